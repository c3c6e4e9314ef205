"""Text with a mark between the cells: .csv, .tsv and .txt files, packed or not."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from latently.core.sources.cells import MISSING, numbers_of
from latently.core.sources.chunks import Rows, rechunked, rows_in_frame
from latently.core.sources.dialect import Dialect, Given, dialect_of, opened
from latently.core.sources.limits import MOST_CHARACTERS
from latently.core.sources.packages import package
from latently.core.sources.packing import inner_name, packing_of
from latently.core.sources.table import Table

_LONGEST_LINE = 50_000_000  # characters
_AT_A_TIME = 64_000_000  # the same of the lines of a data frame, about
_FIRST_ROWS = 10_000  # whose length is not known


def open_delimited(path: Path, given: Given | None = None) -> Table:
    """The table in a file of text; see `dialect` for what is guessed."""
    package("pandas", "csv", ".csv, .tsv and .txt files")
    given = given or Given()
    if inner_name(path).endswith(".tsv") and given.separator is None:
        given = replace(given, separator="\t")
    dialect = dialect_of(path, given)
    packed = bool(packing_of(path))
    return Table(
        path,
        repr(str(path)),
        list(dialect.names),
        None,
        partial(_frames, path, dialect),
        partial(_chunks, path, dialect),
        size=path.stat().st_size * (4 if packed else 1),  # a guess, for bars alone
        named=dialect.header,
        beside=dialect.names[:1] if dialect.row_names else (),
        dialect=dialect,
    )


def _frames(
    path: Path,
    dialect: Dialect,
    missing: Collection[str] = MISSING,
    texts: Collection[str] | None = (),
    moved: Callable[[int], object] | None = None,
) -> Iterator[Any]:
    """Data frames; `moved` is told how many characters were read."""
    pandas = package("pandas", "csv", ".csv, .tsv and .txt files")
    kinds: dict[str, Any] = {"dtype": object, "na_filter": False}
    if texts is not None:
        spellings = [spelt for text in missing for spelt in (text, text.upper(), text.capitalize())]
        kinds = {"dtype": dict.fromkeys(texts, object), "na_values": spellings, "decimal": dialect.decimal}
        kinds |= {"thousands": dialect.thousands} if dialect.thousands else {}
    with opened(path, dialect.encoding) as file:
        counting = _Counting(file, repr(str(path)))
        try:
            with pandas.read_csv(
                counting,
                sep=dialect.separator,
                header=0 if dialect.header else None,
                names=list(dialect.names),
                index_col=False,
                skiprows=list(dialect.skip) or None,
                skipinitialspace=dialect.separator != "\t",
                iterator=True,
                low_memory=False,  # one type per column and frame
                **kinds,
            ) as reader:
                for frame in _parts(reader, counting, rows_in_frame(len(dialect.names))):
                    # short lines lack cells, which are NaN even in text
                    yield frame.fillna("") if texts is None else frame
                    if moved is not None:
                        moved(counting.n_read)
        except pandas.errors.EmptyDataError:
            return
        except pandas.errors.ParserError as error:
            reason = str(error).removeprefix("Error tokenizing data. C error: ").strip()
            if long := re.fullmatch(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason):
                width, line, n = long.groups()
                reason = f"line {line} has {n} cells, but the table has {width} columns"
            raise ValueError(f"the file {str(path)!r} cannot be read as a table: {reason}") from error


def _parts(reader: Any, counting: _Counting, most: int) -> Iterator[Any]:
    """Data frames of at most so many rows, and fewer where lines are long."""
    n_rows, done = min(most, _FIRST_ROWS), 0
    while True:
        counting.n_at_a_time = 0
        try:
            frame = reader.get_chunk(n_rows)
        except StopIteration:
            return
        yield frame
        done += len(frame)
        n_rows = max(1, min(most, int(_AT_A_TIME * done / max(1, counting.n_read))))


def _chunks(path: Path, dialect: Dialect) -> Iterator[Rows]:
    return rechunked(_numbers(path, dialect), len(dialect.features))


def _numbers(path: Path, dialect: Dialect) -> Iterator[Rows]:
    for frame in _frames(path, dialect):
        features = frame[list(dialect.features)]
        values, is_text = numbers_of(features, decimal=dialect.decimal)
        if is_text.any():
            row, place = np.argwhere(is_text)[0]
            cell = str(features.iloc[int(row), int(place)])
            column, example = dialect.features[place], cell if len(cell) <= 60 else cell[:57] + "..."
            raise ValueError(f"column {column!r} of {str(path)!r} holds {example!r}; real numbers are needed")
        yield values


@dataclass
class _Counting:
    """A file that knows how much of it was read."""

    file: io.TextIOBase
    name: str
    n_read: int = 0
    n_in_line: int = 0
    n_at_a_time: int = 0

    def read(self, size: int = -1) -> str:
        text = self.file.read(size)
        self.n_read += len(text)
        self.n_at_a_time += len(text)
        if "\0" in text:
            raise ValueError(f"the file {self.name} is not text: it has characters of zero")
        if self.n_at_a_time > MOST_CHARACTERS:
            raise ValueError(f"the file {self.name} has lines that are far longer than those above them")
        end = max(text.rfind("\n"), text.rfind("\r"))
        self.n_in_line = len(text) - 1 - end if end >= 0 else self.n_in_line + len(text)
        if self.n_in_line > _LONGEST_LINE:  # which the parser would keep in memory as a whole
            raise ValueError(f"the file {self.name} has a line of more than {_LONGEST_LINE} characters")
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self.file)
