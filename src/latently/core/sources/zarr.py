"""Arrays of zarr, in memory of theirs or in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from latently.core.sources.chunks import Rows, check_shape, ranges, real_dtype, rows_in_chunk
from latently.core.sources.packages import package
from latently.core.sources.source import RowSource, Source


def open_zarr(path: Path) -> Source:
    zarr = package("zarr", "zarr", ".zarr")
    try:
        opened = zarr.open(str(path), mode="r")
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(f"{str(path)!r} holds no zarr array: {error}") from error
    return zarr_source(opened, repr(str(path)))


def zarr_source(array: Any, name: str) -> Source:
    """The source for a zarr array, or for a group that holds one array and no more."""
    if not hasattr(array, "shape"):
        members = dict(array.arrays())
        if len(members) != 1:
            names = f" ({', '.join(sorted(members))})" if members else ""
            raise ValueError(f"{name} is a group of {len(members)} arrays{names}; one array is needed")
        [array] = members.values()
    shape, dtype = tuple(array.shape), np.dtype(array.dtype)
    real_dtype(dtype, name)
    check_shape(shape, name)
    return RowSource(name, shape[1], shape[0], None, partial(_read_zarr, array, shape, dtype))


def _read_zarr(array: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> Iterator[Rows]:
    real = real_dtype(dtype, "")
    step = rows_in_chunk(shape[1], real)
    step = step // array.chunks[0] * array.chunks[0] or step  # whole stored chunks: each is decoded once
    for a, b in ranges(shape[0], step):
        yield np.ascontiguousarray(array[a:b, :], dtype=real)
