"""A table in a file: what every format is read as, by the library and by the command line alike.

The reader of a format makes a `Table`, and its rules are in that reader alone. The library wants numbers and
nothing else: `table_source` gives them, and refuses what holds none. The command line also wants columns of
text, for labels and such, and leaves out what a model cannot use: it reads `frames`. Numbers, names and what
counts as missing are the same either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from latently.core.sources.chunks import Rows, check_shape
from latently.core.sources.dialect import Dialect
from latently.core.sources.source import RowSource, Source


@dataclass(frozen=True)
class Table:
    """The rows of a file, which can be read as often as one likes.

    `frames(missing, texts, moved)` gives them as pandas data frames that hold numbers as numbers. Texts in
    `missing` stand for missing entries. Columns named in `texts` come as the file has them, all of them if it
    is None. `moved(done)` is told how far the reading is, of `size`.

    `chunks()` gives the numbers of all columns but those in `beside`; text is an error.
    """

    path: Path
    name: str  # what messages call it
    columns: list[str]
    n_rows: int | None  # None where only reading can tell
    frames: Callable[..., Iterator[Any]]
    chunks: Callable[[], Iterator[Rows]]
    size: int  # in whatever units `frames` counts
    named: bool = True  # whether the file gives the names of the columns
    array_shape: tuple[int, ...] | None = None  # as stored; None for tables of columns
    beside: tuple[str, ...] = ()  # columns that belong to the rows but are no features
    other_types: Mapping[str, str] = field(default_factory=dict)  # of columns that hold no numbers, if known
    dialect: Dialect | None = None  # of text

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """(height, width) or (height, width, colours) of arrays of images."""
        return image_shape_of(self.array_shape or ())


def image_shape_of(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """That of one image, where an array is one of images, with or without colours."""
    is_images = len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))
    return shape[1:] if is_images else None


def table_source(table: Table) -> Source:
    """The numbers of a table. A column that holds no numbers is an error, at once where its type tells."""
    if table.array_shape is not None:
        check_shape(table.array_shape, table.name)
    features = [column for column in table.columns if column not in table.beside]
    for column in features:
        if column in table.other_types:
            raise ValueError(
                f"column {column!r} of {table.name} holds values of type {table.other_types[column]}; "
                "real numbers are needed"
            )
    names = features if table.named else None
    return RowSource(table.name, len(features), table.n_rows, names, table.chunks)
