"""How a file of text is written: its encoding, the mark between cells, the decimal mark, names of columns.

All of it is guessed by the first lines, but what the user gives; the encoding by the whole file.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from latently.core.sources.cells import MISSING

BLANKS = r"\s+"  # any run of blanks, as pandas calls it
_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE_LINES = 200
_SAMPLE_CHARACTERS = 10_000_000
_EVEN = 0.9  # the share of lines that have equally many cells, in a table with a few flaws
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_DECIMAL_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")

Cells = list[list[str]]  # of lines


@dataclass(frozen=True)
class Dialect:
    """How a file is written."""

    encoding: str
    separator: str
    decimal: str
    header: bool
    names: tuple[str, ...]  # of the columns, no two the same
    padded: tuple[str, ...]  # columns whose whole numbers begin with zeros
    row_names: bool  # whether the first column has names of the rows, which the header does not count

    @property
    def features(self) -> tuple[str, ...]:
        return self.names[1:] if self.row_names else self.names


class Unclear(ValueError):
    """A file that can be understood in several ways; `option` is the argument that says which is meant."""

    def __init__(self, message: str, option: str):
        super().__init__(message)
        self.option = option


def dialect_of(
    path: Path, separator: str | None = None, decimal: str | None = None, header: bool | None = None
) -> Dialect:
    """The dialect of a file; what is given is not guessed."""
    name = repr(str(path))
    encoding = _encoding_of(path)
    lines = _first_lines(path, encoding)
    if not lines:
        raise ValueError(f"the file {name} is empty")
    separator = separator or _separator_of(lines)
    rows = _cells(lines, separator, name)
    if not rows:
        raise ValueError(f"the file {name} is empty: it has nothing but blank lines")
    if header is None:
        header = _has_header(rows)
    if header and len(rows) == 1:
        raise ValueError(f"the file {name} is empty: it has a header, but no rows")
    names, row_names = _names(rows, header, name)
    decimal = decimal or _decimal_of(rows[header:], separator)
    columns = tuple(unique(names, name))
    padded = tuple(
        column
        for column, cells in zip(columns, zip(*_even(rows[header:]), strict=False), strict=False)
        if _padded(cells)
    )
    return Dialect(encoding, separator, decimal, header, columns, padded, row_names)


@contextmanager
def opened(path: Path, encoding: str, errors: str = "strict") -> Iterator[io.TextIOWrapper]:
    """The file as text, unpacked if need be."""
    with _opened_bytes(path) as file, io.TextIOWrapper(file, encoding, errors, newline="") as text:
        yield text


@contextmanager
def _opened_bytes(path: Path) -> Iterator[IO[bytes]]:
    packed = path.name.lower().endswith(".gz")
    try:
        with cast(IO[bytes], gzip.open(path, "rb")) if packed else path.open("rb") as file:
            yield file
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{str(path)!r} cannot be read as a gzip file: {error}") from error


def _encoding_of(path: Path) -> str:
    """UTF-8 if the whole file is, UTF-16 if it says so, and else Latin-1, in which every file can be read."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    utf8, start = True, b""
    with _opened_bytes(path) as file:
        while utf8 and (chunk := file.read(1 << 20)):
            start = start or chunk[:4096]
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                utf8 = False
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in start:
        raise ValueError(f"the file {str(path)!r} is not text, although its name says so")
    if utf8:
        return "utf-8-sig"
    warnings.warn(
        f"{path.name!r} is not UTF-8; it is read as Latin-1, so check names that have accents", stacklevel=2
    )
    return "latin-1"


def _first_lines(path: Path, encoding: str) -> list[str]:
    with opened(path, encoding, errors="replace") as file:
        text = file.read(_SAMPLE_CHARACTERS)
    lines = io.StringIO(text, newline="").readlines()
    whole = lines if len(text) < _SAMPLE_CHARACTERS or len(lines) == 1 else lines[:-1]
    return whole[:_SAMPLE_LINES] if any(line.strip() for line in whole) else []


def _cells(lines: list[str], separator: str, name: str) -> Cells:
    """Cells of every line that has any."""
    if separator == BLANKS:
        return [line.split() for line in lines if line.strip()]
    try:
        rows = list(csv.reader(lines, delimiter=separator, skipinitialspace=separator != "\t"))
    except csv.Error as error:
        raise ValueError(f"the file {name} cannot be read as a table: {error}") from error
    return [row for row in rows if any(cell.strip() for cell in row)]


def _separator_of(lines: list[str]) -> str:
    """The mark that splits lines into equally many cells, the header too; a comma if there is none.

    Commas come last: they are also decimal marks, which split lines evenly where nothing is missing.
    """
    best, ranked = ",", (False, False, 1.0)
    for separator in _SEPARATORS:
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
        even = bool(rows) and len(rows[0]) > 1 and all(len(row) == len(rows[0]) for row in rows)
        return BLANKS if even and _is_number(rows[0][0]) else best
    return best


def _decimal_of(rows: Cells, separator: str) -> str:
    """A comma if there are numbers with one and none with a point."""
    if separator == ",":
        return "."
    cells = [cell for row in rows for cell in row]
    commas = any(_DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    return "," if commas and not any(_DECIMAL_POINT.fullmatch(cell) for cell in cells) else "."


def _even(rows: Cells) -> Cells:
    """The rows with as many cells as the first."""
    return [row for row in rows if len(row) == len(rows[0])]


def _padded(cells: tuple[str, ...]) -> bool:
    """Whether these are whole numbers of one width, some of which begin with a zero, as in 00501."""
    words = [cell.strip() for cell in cells if cell.strip().lower() not in MISSING]
    whole = bool(words) and all(word.isascii() and word.isdecimal() for word in words)
    return whole and len(set(map(len, words))) == 1 and len(words[0]) > 2 and any(w[0] == "0" for w in words)


# -- names of columns ------------------------------------------------------------------------------------


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return "_" not in cell  # which Python lets through


def _has_header(rows: Cells) -> bool:
    """Whether the first line names the columns: none of its cells is a number, or a name is above one."""
    first = rows[0]
    is_name = [not _is_number(cell) and cell.strip().lower() not in MISSING for cell in first]
    numbers = [cell for cell in first if _is_number(cell)]
    if not numbers:
        return any(is_name)
    if _are_years(numbers) or _number_columns(first):
        return True
    return len(rows) > 1 and any(
        name and _is_number(below) for name, below in zip(is_name, rows[1], strict=False)
    )


def _are_years(cells: list[str]) -> bool:
    """Whether these are several years in order, as some tables have them for names."""
    years = [int(cell) for cell in cells if re.fullmatch(r"\s*[12]\d{3}\s*", cell)]
    return len(years) == len(cells) > 1 and years == sorted(set(years))


def _number_columns(cells: list[str]) -> bool:
    """Whether these are an empty corner and 0, 1, 2 and so on, as pandas writes a frame without names."""
    return not cells[0].strip() and [cell.strip() for cell in cells[1:]] == list(
        map(str, range(len(cells) - 1))
    )


def _names(rows: Cells, header: bool, name: str) -> tuple[list[str], bool]:
    """A name for every column, maybe an empty one, and whether the first is that of names of rows."""
    widths = {len(row) for row in rows[header:]}
    widest = len(rows[header:][0])
    if not header:
        return [""] * widest, False
    names = [cell.strip() for cell in rows[0]]
    if widths == {len(names) + 1}:
        warnings.warn(
            f"lines of {name} have one cell more than its header; the first is taken for names of rows",
            stacklevel=2,
        )
        return ["row_name", *names], True
    if widest > len(names):
        raise Unclear(
            f"the file {name} has {len(names)} names in its header but {widest} cells in the line below; the "
            "mark between cells may have been taken wrongly",
            "separator",
        )
    return names, False


def unique(names: list[str], name: str) -> list[str]:
    """The names, numbered where they are empty or come twice."""
    found: dict[str, None] = {}
    twice = []
    for number, column in enumerate(names, 1):
        column = column or f"column_{number}"
        new, copy = column, 1
        while new in found:
            copy += 1
            new = f"{column}_{copy}"
        if new != column:
            twice.append(new)
        found[new] = None
    if twice:
        listed = ", ".join(repr(column[:60]) for column in twice[:5]) + (
            " and others" if len(twice) > 5 else ""
        )
        warnings.warn(
            f"several columns of {name} have the same name; the later ones are called {listed}", stacklevel=2
        )
    return list(found)
