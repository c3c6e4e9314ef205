"""Arrays in files as tables: rows of numbers whose columns have no names, or images."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from latently.core.sources.chunks import MOST_COLUMNS, Rows, rows_in_chunk, rows_in_frame
from latently.core.sources.packages import package
from latently.core.sources.table import Table, image_shape_of


class StoredArray(Protocol):
    """An array in a file."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of `blocks`."""
        ...

    def blocks(self, n_rows: int) -> Iterator[Rows]:
        """The rows in order, so many at a time, (n, W), whatever belongs to a row side by side."""
        ...


def array_table(path: Path, stored: StoredArray) -> Table:
    shape = stored.shape
    if not 1 <= len(shape) <= 4:
        raise ValueError(f"{stored.name} is {len(shape)}-D, not 2-D")
    if 0 in shape:
        raise ValueError(f"{stored.name} is empty: its shape is {shape}")
    width = math.prod(shape[1:])
    if width > MOST_COLUMNS:
        raise ValueError(f"{stored.name} has {width} columns, more than {MOST_COLUMNS}; is it transposed?")
    names = [f"column_{j}" for j in range(1, width + 1)]
    if image := image_shape_of(shape):
        names = pixel_names(image)
    return Table(
        path,
        stored.name,
        names,
        shape[0],
        _Frames(stored, names),
        partial(_chunks, stored, width),
        size=shape[0],
        named=False,
        array_shape=shape,
    )


def pixel_names(shape: tuple[int, ...]) -> list[str]:
    """Row and column of every pixel, and its colour if it has one."""
    return ["pixel_" + "_".join(str(i + 1) for i in place) for place in np.ndindex(*shape)]


def _chunks(stored: StoredArray, width: int) -> Iterator[Rows]:
    return stored.blocks(rows_in_chunk(width, stored.dtype))


@dataclass(frozen=True)
class _Frames:
    stored: StoredArray
    names: list[str]

    def __call__(
        self,
        missing: Collection[str] = (),
        texts: Collection[str] | None = (),
        moved: Callable[[int], object] | None = None,
    ) -> Iterator[Any]:
        pandas = package("pandas", "csv", "data frames")
        done = 0
        for block in self.stored.blocks(rows_in_frame(len(self.names))):
            yield pandas.DataFrame(block, columns=self.names)
            done += len(block)
            if moved is not None:
                moved(done)
