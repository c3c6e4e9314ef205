"""How a file of text is written: its encoding, the mark between cells, the decimal mark, names of columns.

All of it is guessed by the first lines, but what the user gives; the encoding by the whole file.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from latently.core.sources.cells import MISSING
from latently.core.sources.chunks import MOST_COLUMNS
from latently.core.sources.limits import checked_parts
from latently.core.sources.packing import unpacked

BLANKS = r"\s+"  # any run of blanks, as pandas calls it
_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE_LINES = 200
_SAMPLE_CHARACTERS = 10_000_000
_EVEN = 0.9  # the share of lines that have equally many cells, in a table with a few flaws
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
_DECIMAL_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")

_GROUPS_AND_COMMA = re.compile(r"\D{0,4}[+-]?\d{1,3}([. \u00a0\u202f]\d{3})*,\d+\s*([$€£%]|[A-Z]{3})?\s*")
_GROUPS_OF_THREE = re.compile(r"\s*[+-]?\d{1,3}((,\d{3}){2,}|(,\d{3})+\.\d+)\s*")

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
    skip: tuple[int, ...] = ()  # lines that are left out, from 0
    thousands: str | None = None

    @property
    def features(self) -> tuple[str, ...]:
        return self.names[1:] if self.row_names else self.names


class Unclear(ValueError):
    """A file that can be understood in several ways; `option` is the argument that says which is meant."""

    def __init__(self, message: str, option: str):
        super().__init__(message)
        self.option = option


@dataclass(frozen=True)
class Given:
    """What the user says of a file of text; None is guessed."""

    separator: str | None = None
    decimal: str | None = None
    header: bool | None = None
    encoding: str | None = None
    skip_rows: int | None = None  # lines above the header
    thousands: str | None = None  # mark between groups of three digits


def dialect_of(path: Path, given: Given | None = None) -> Dialect:
    """The dialect of a file; what is given is not guessed."""
    given = given or Given()
    name, header = repr(str(path)), given.header
    encoding = given.encoding or _encoding_of(path)
    lines = _first_lines(path, encoding)
    if not lines:
        raise ValueError(f"the file {name} is empty")
    skipped = _preamble(lines, given, name) if given.skip_rows is None else given.skip_rows
    lines = lines[skipped:]
    separator = given.separator or _separator_of(lines)
    rows = _cells(lines, separator, name)
    if not rows:
        raise ValueError(f"the file {name} is empty: it has nothing but blank lines")
    if header is None:
        header = has_header(rows)
    units = header and given.header is None and are_units(rows)
    if units:
        texts = ", ".join(cell.strip() for cell in rows[1] if cell.strip())
        warnings.warn(
            f"the line below the header of {name} is left out: it has units ({texts[:80]})", stacklevel=2
        )
        del rows[1]
    if header and len(rows) == 1:
        raise ValueError(f"the file {name} is empty: it has a header, but no rows")
    names, row_names = _names(rows, header, name)
    _tell_short(rows, header, len(names), name)
    decimal = given.decimal or _decimal_of(rows[header:], separator)
    columns = tuple(unique(names, name))
    padded = tuple(
        column
        for column, cells in zip(columns, zip(*_even(rows[header:]), strict=False), strict=False)
        if _padded(cells)
    )
    places = [place for place, line in enumerate(lines) if line.strip()]
    skip = (*range(skipped), *([skipped + places[1]] if units else []))
    return Dialect(encoding, separator, decimal, header, columns, padded, row_names, skip, given.thousands)


def _preamble(lines: list[str], given: Given, name: str) -> int:
    """Number of lines above the table: comments, and a title of one cell above a table of several."""
    found = 0
    while found < len(lines) - 1 and (lines[found].startswith(("#", "//", "%")) or not lines[found].strip()):
        found += 1
    if any(line.strip() for line in lines[:found]):
        last = lines[found - 1].lstrip("#% ").strip()
        if lines[found - 1].startswith("#") and last and _names_columns(last, lines[found]):
            return 0 if found == 1 else found - 1  # a header that is written as a comment
    else:
        found = 0
    separator = given.separator or _separator_of(lines[found:])
    if separator == BLANKS:
        return found
    widths = [line.count(separator) for line in lines[found:]]
    usual = max(set(widths), key=widths.count)
    titles = 0
    while titles < min(10, len(widths) - 2) and usual > 0 and widths[titles] < usual:
        if lines[found + titles].count('"') % 2:  # a name of the header goes on in the next line
            break
        if sum(bool(cell.strip(' "\r\n')) for cell in lines[found + titles].split(separator)) > 1:
            break
        titles += 1
    if 0 < titles < len(widths) - 1 and widths[titles] == usual:
        text = lines[found].strip()[:60]
        warnings.warn(
            f"the first {found + titles} lines of {name} are left out: they are above the table, "
            f"such as {text!r}",
            stacklevel=2,
        )
        return found + titles
    return found


def _names_columns(comment: str, below: str) -> bool:
    """Whether a comment has as many cells as the line below, none of which is a number."""
    separator = next((mark for mark in _SEPARATORS if mark in below), None)
    if separator is None:
        return False
    cells = comment.split(separator)
    return len(cells) == len(below.split(separator)) and not any(map(_is_number, cells))


def are_units(rows: Cells) -> bool:
    """Whether the line below the header has texts where all others have numbers, as lines of units do."""
    if len(rows) < 4 or len(rows[1]) != len(rows[0]):
        return False
    others = [row for row in _even([rows[0], *rows[2:]])[1:]]
    numeric = [
        place
        for place in range(len(rows[0]))
        if others and sum(_is_number(row[place]) for row in others) > 0.9 * len(others)
    ]
    texts = [rows[1][place].strip() for place in numeric]
    named = [text for text in texts if text.lower() not in MISSING]
    return len(named) >= 2 and not any(map(_is_number, named)) and all(len(text) <= 12 for text in texts)


def _tell_short(rows: Cells, header: bool, width: int, name: str) -> None:
    """Warn of lines with fewer cells than columns."""
    short = [number for number, row in enumerate(rows[header:], 1) if len(row) < width]
    if short and width > 1:
        listed = ", ".join(map(str, short[:5])) + (" and others" if len(short) > 5 else "")
        warnings.warn(
            f"rows {listed} of {name} have fewer cells than the {width} columns; the last cells are missing",
            stacklevel=2,
        )


@contextmanager
def opened(path: Path, encoding: str, errors: str = "strict") -> Iterator[io.TextIOWrapper]:
    """The file as text, unpacked if need be."""
    with _opened_bytes(path) as file, io.TextIOWrapper(file, encoding, errors, newline="") as text:
        yield text


@contextmanager
def _opened_bytes(path: Path) -> Iterator[IO[bytes]]:
    with unpacked(path) as file:
        yield file


def _encoding_of(path: Path) -> str:
    """UTF-8 if the whole file is, UTF-16 if it says so, and else Latin-1, in which every file can be read."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    utf8, first = True, True
    with _opened_bytes(path) as file:
        for part in checked_parts(file, path.stat().st_size, f"the file {str(path)!r}"):
            if first and part.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return "utf-16"
            if b"\0" in part:
                raise ValueError(f"the file {str(path)!r} is not text, although its name says so")
            first = False
            try:
                decoder.decode(part)
            except UnicodeDecodeError:
                utf8 = False
                break
    if utf8:
        return "utf-8-sig"
    warnings.warn(
        f"{path.name!r} is not UTF-8; it is read as Latin-1, so check names that have accents", stacklevel=2
    )
    return "latin-1"


def _first_lines(path: Path, encoding: str) -> list[str]:
    with opened(path, encoding, errors="replace") as file:
        text = file.read(_SAMPLE_CHARACTERS)
    if "\0" in text:  # of an encoding that was given
        raise ValueError(f"the file {str(path)!r} is not text in {encoding}: it has bytes of zero")
    lines = io.StringIO(text, newline="").readlines()
    if len(text) == _SAMPLE_CHARACTERS and len(lines) == 1:
        raise ValueError(f"{str(path)!r} has no end of line in its first {len(text)} characters: no table")
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
    if any(_GROUPS_OF_THREE.fullmatch(cell) for cell in cells):  # 1,234,567 or 1,234.5
        return "."
    commas = any(_DECIMAL_COMMA.fullmatch(cell) or _GROUPS_AND_COMMA.fullmatch(cell) for cell in cells)
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


def has_header(rows: Cells) -> bool:
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
    if max(map(len, rows)) > MOST_COLUMNS:
        raise ValueError(f"the file {name} has lines of more than {MOST_COLUMNS} cells; is it transposed?")
    widest = len(rows[header:][0])
    if not header:
        return [""] * widest, False
    names = [cell.strip() for cell in rows[0]]
    names[0] = names[0].lstrip("# ") or names[0]  # of a header that is written as a comment
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
