"""Text with separators: which mark, which encoding, whether there is a header, which mark is the decimal one.

Columns can be read as text too, so that what a file says can be given back as it was.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from contextlib import contextmanager
from dataclasses import dataclass

from latently.cli.speaking import counted, listed, shown

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
BLANKS = r"\s+"  # any run of blanks, as pandas calls it
_SAMPLE_LINES = 200
_SAMPLE_CHARACTERS = 10_000_000
_EVEN = 0.9  # the share of lines that have equally many cells, in a table with a few flaws
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_DECIMAL_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class Dialect:
    """How a file is written."""

    encoding: str
    separator: str
    decimal: str
    header: bool
    names: tuple[str, ...]


def dialect_of(path, *, separator=None, decimal=None, header=None, note):
    """The dialect of a file, by its first lines; what is given is not guessed."""
    encoding = _encoding_of(path, note)
    lines = _first_lines(path, encoding)
    if not lines:
        raise ValueError(f"the file {shown(path)} is empty")
    separator = separator or _separator_of(lines)
    rows = _cells(lines, separator, path)
    if not rows:
        raise ValueError(f"the file {shown(path)} is empty: it has nothing but blank lines")
    if header is None:
        header = _has_header(rows)
        if not header:
            note("the first line is taken for data, not for names; --header says otherwise")
    if header and len(rows) == 1:
        raise ValueError(f"the file {shown(path)} has a header, but no rows")
    names = _names(rows, header, path, note)
    if decimal is None:
        decimal = _decimal_of(rows[header:], separator)
        if decimal == ",":
            note("numbers are read with a decimal comma; --decimal says otherwise")
    return Dialect(encoding, separator, decimal, header, tuple(names))


@contextmanager
def opened(path, encoding, errors="strict"):
    """The file as text, unpacked if need be."""
    raw = gzip.open if path.name.lower().endswith(".gz") else open
    with (
        raw(path, "rb") as bytes_,
        io.TextIOWrapper(bytes_, encoding=encoding, errors=errors, newline="") as file,
    ):
        try:
            yield file
        except (EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"the file {shown(path)} is no whole gzip file: {error}") from error


def _encoding_of(path, note):
    """UTF-8 if the whole file is, UTF-16 if it says so, and else Latin-1, in which every file can be read."""
    raw = gzip.open if path.name.lower().endswith(".gz") else open
    decoder = codecs.getincrementaldecoder("utf-8")()
    utf8, start = True, b""
    try:
        with raw(path, "rb") as file:
            while chunk := file.read(1 << 20):
                start = start or chunk[:4096]
                if utf8:
                    try:
                        decoder.decode(chunk)
                    except UnicodeDecodeError:
                        utf8 = False
                        break
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"the file {shown(path)} is no whole gzip file: {error}") from error
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in start:
        raise ValueError(f"the file {shown(path)} is not text, although its name says so")
    if utf8:
        return "utf-8-sig"
    note(f"{shown(path.name)} is not UTF-8; it is read as Latin-1, so check names that have accents")
    return "latin-1"


def _first_lines(path, encoding):
    with opened(path, encoding, errors="replace") as file:
        text = file.read(_SAMPLE_CHARACTERS)
    lines = io.StringIO(text, newline="").readlines()
    whole = lines if len(text) < _SAMPLE_CHARACTERS or len(lines) == 1 else lines[:-1]
    return whole[:_SAMPLE_LINES] if any(line.strip() for line in whole) else []


def _cells(lines, separator, path):
    """Cells of every line that has any."""
    if separator == BLANKS:
        return [line.split() for line in lines if line.strip()]
    try:
        rows = list(csv.reader(lines, delimiter=separator, skipinitialspace=separator != "\t"))
    except csv.Error as error:
        raise ValueError(f"the file {shown(path)} cannot be read as a table: {error}") from error
    return [row for row in rows if any(cell.strip() for cell in row)]


def _separator_of(lines):
    """The mark that splits lines into equally many cells, the header too; a comma if there is none.

    Commas come last: they are also decimal marks, which split lines evenly where nothing is missing.
    """
    best, ranked = ",", (False, False, 1.0)
    for separator in SEPARATORS:
        try:
            widths = [
                len(row) for row in csv.reader(lines, delimiter=separator, skipinitialspace=True) if row
            ]
        except csv.Error:
            continue
        usual = max(set(widths), key=widths.count)
        share = widths.count(usual) / len(widths)
        rank = (widths[0] == usual and share >= _EVEN, separator != ",", usual * share)
        if usual > 1 and rank > ranked:
            best, ranked = separator, rank
    if ranked[2] == 1.0:
        rows = [line.split() for line in lines[1:] if line.strip()]
        even = rows and len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows)
        return BLANKS if even and _is_number(rows[0][0]) else best
    return best


def _is_number(cell):
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return "_" not in cell


def _has_header(rows):
    """Whether the first line names the columns: it has no numbers, or years, or text above a number."""
    first = [_is_number(cell) for cell in rows[0]]
    if not any(first) or _are_years([cell for cell in rows[0] if _is_number(cell)]):
        return True
    if len(rows) == 1:
        return False
    second = [_is_number(cell) for cell in rows[1]]
    return any(below and not above for above, below in zip(first, second, strict=False))


def _are_years(cells):
    """Whether these are several years in order, as some tables have them for names."""
    years = [int(cell) for cell in cells if re.fullmatch(r"\s*[12]\d{3}\s*", cell)]
    return len(years) == len(cells) > 1 and years == sorted(set(years))


def _names(rows, header, path, note):
    """A name for every column, no two the same."""
    widths = {len(row) for row in rows[header:]}
    widest = len(rows[header:][0])
    names = [cell.strip() for cell in rows[0]] if header else [""] * widest
    if header and widths == {len(names) + 1}:
        note("lines have one cell more than the header; the first is taken for names of rows")
        names = ["row_name", *names]
    elif header and widest > len(names):
        raise ValueError(
            f"the file {shown(path)} has {counted(len(names), 'name')} in its header but {widest} cells in "
            "the line below; if the mark between cells was taken wrongly, give --separator"
        )
    return unique(names, note)


def unique(names, note):
    """The names, numbered where they are empty or come twice."""
    found, twice = {}, []
    for number, name in enumerate(names, 1):
        name = name or f"column_{number}"
        new, copy = name, 1
        while new in found:
            copy += 1
            new = f"{name}_{copy}"
        if new != name:
            twice.append(new)
        found[new] = None
    if twice:
        note(f"several columns have the same name; the later ones are called {listed(twice)}")
    return list(found)


def _decimal_of(rows, separator):
    """A comma if there are numbers with one and none with a point."""
    if separator == ",":
        return "."
    cells = [cell for row in rows for cell in row]
    commas = any(_DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    return "," if commas and not any(_DECIMAL_POINT.fullmatch(cell) for cell in cells) else "."


def read_frames(path, dialect, n_rows, pandas, missing, texts, moved):
    """The rows as data frames, `n_rows` at a time; `moved` is told how many characters were read.

    Columns named in `texts` come as text, all of them untouched if it is None. Of the others, those that hold
    numbers and texts in `missing` come as numbers.
    """
    if texts is None:
        kinds = {"dtype": object, "na_filter": False}
    else:
        spellings = [spelt for text in missing for spelt in (text, text.upper(), text.capitalize())]
        kinds = {"dtype": dict.fromkeys(texts, object), "na_values": spellings, "decimal": dialect.decimal}
    with opened(path, dialect.encoding) as file:
        counting = _Counting(file)
        try:
            with pandas.read_csv(
                counting,
                sep=dialect.separator,
                header=0 if dialect.header else None,
                names=list(dialect.names),
                index_col=False,
                skipinitialspace=dialect.separator != "\t",
                chunksize=n_rows,
                low_memory=False,  # one type per column and frame
                **kinds,
            ) as frames:
                for frame in frames:
                    # short lines lack cells, which are NaN even in text
                    yield frame.fillna("") if texts is None else frame
                    moved(counting.n_read)
        except pandas.errors.EmptyDataError:
            return
        except pandas.errors.ParserError as error:
            reason = str(error).removeprefix("Error tokenizing data. C error: ")
            raise ValueError(f"the file {shown(path)} cannot be read as a table: {reason}") from error


@dataclass
class _Counting:
    """A file that knows how much of it was read."""

    file: io.TextIOBase
    n_read: int = 0

    def read(self, size=-1):
        text = self.file.read(size)
        self.n_read += len(text)
        return text

    def __iter__(self):
        return iter(self.file)
