"""Arrays of zarr, in a folder or as objects."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from latently.core.sources.arrays import array_table
from latently.core.sources.chunks import Rows, check_shape, ranges, real_dtype, rows_in_chunk
from latently.core.sources.packages import package
from latently.core.sources.source import RowSource, Source
from latently.core.sources.table import Table

_MOST_BYTES = 1 << 31  # of a stored part


def open_zarr(path: Path) -> Table:
    zarr = package("zarr", "zarr", ".zarr files")
    try:
        opened = zarr.open(str(path), mode="r")
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(f"{str(path)!r} holds no zarr array: {error}") from error
    stored = _stored(opened, repr(str(path)))
    part = math.prod(stored.array.chunks) * stored.dtype.itemsize
    if part > _MOST_BYTES:
        raise ValueError(
            f"{stored.name} has parts of {part / 1e9:.3g} GB, which are read as a whole; split them"
        )
    return array_table(path, stored)


def zarr_source(array: Any, name: str) -> Source:
    """The source for a zarr array, or for a group that holds one array and no more."""
    stored = _stored(array, name)
    check_shape(stored.shape, name)
    n_rows, n_features = stored.shape
    return RowSource(name, n_features, n_rows, None, partial(_chunks, stored))


@dataclass(frozen=True)
class _StoredZarr:
    name: str
    array: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def blocks(self, n_rows: int) -> Iterator[Rows]:
        stored = self.array.chunks[0]
        step = n_rows // stored * stored or n_rows  # whole stored chunks: each is decoded once
        for a, b in ranges(self.shape[0], step):
            yield np.ascontiguousarray(self.array[a:b], dtype=self.dtype).reshape(b - a, -1)


def _stored(array: Any, name: str) -> _StoredZarr:
    if not hasattr(array, "shape"):
        members = dict(array.arrays())
        if len(members) != 1:
            names = f" ({', '.join(sorted(members))})" if members else ""
            raise ValueError(f"{name} is a group of {len(members)} arrays{names}; one array is needed")
        [array] = members.values()
    return _StoredZarr(name, array, tuple(array.shape), real_dtype(np.dtype(array.dtype), name))


def _chunks(stored: _StoredZarr) -> Iterator[Rows]:
    return stored.blocks(rows_in_chunk(stored.shape[1], stored.dtype))
