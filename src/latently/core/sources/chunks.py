"""Chunks: how many rows are read at a time, and in which dtype they are handed on."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK_BYTES = 64_000_000  # what one chunk may hold in memory

MOST_COLUMNS = 1_000_000  # of a table
Rows = NDArray[Any]


def real_dtype(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """The dtype in which values of `dtype` are handed on: its own where others can compute with it."""
    if dtype.kind not in "biuf":
        why = "; Python objects are not read, because they could run code" if dtype.hasobject else ""
        raise ValueError(f"{name} holds values of type {dtype}; real numbers are needed{why}")
    kept = dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize in (4, 8))
    return dtype.newbyteorder("=") if kept else np.dtype(np.float64)


def check_shape(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2:
        hint = "; reshape it to (-1, 1) for one feature or (1, -1) for one row" if len(shape) == 1 else ""
        raise ValueError(f"{name} is {len(shape)}-D, not 2-D{hint}")
    if 0 in shape:
        raise ValueError(f"{name} is empty: its shape is {shape}")


def rows_in_chunk(n_features: int, dtype: np.dtype[Any]) -> int:
    return max(1, CHUNK_BYTES // (n_features * dtype.itemsize))


def rows_in_frame(n_columns: int) -> int:
    """Rows of a data frame: parsing it, and what follows, takes several times the memory of its numbers."""
    return max(1, CHUNK_BYTES // 8 // (n_columns * 8))


def ranges(n_rows: int, step: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def rechunked(blocks: Iterable[Rows], n_features: int) -> Iterator[Rows]:
    """The same rows copied to new chunks: large blocks in parts, small ones joined.

    A block is not looked at again once the next one is asked for, so its maker may use its memory again.
    """
    chunk, filled = np.empty((0, n_features)), 0
    for block in blocks:
        dtype = real_dtype(block.dtype, "a block")
        if filled > 0 and chunk.dtype != dtype:
            yield chunk[:filled]
            filled = 0
        start = 0
        while start < len(block):
            if filled == 0:
                chunk = np.empty((rows_in_chunk(n_features, dtype), n_features), dtype)
            n = min(len(chunk) - filled, len(block) - start)
            chunk[filled : filled + n] = block[start : start + n]
            release(block)
            start, filled = start + n, filled + n
            if filled == len(chunk):
                yield chunk
                filled = 0
    if filled > 0:
        yield chunk[:filled]


def release(block: Rows) -> None:
    """Lets the pages of a memory map go; the file still has them.

    Not those of a copy-on-write map, which may hold what the user wrote and no file has.
    """
    if isinstance(block, np.memmap) and block.mode in ("r", "r+", "w+"):
        pages = block._mmap  # type: ignore[attr-defined]
        if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
            pages.madvise(mmap.MADV_DONTNEED)
