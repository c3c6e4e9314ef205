"""NumPy's .npy files, in C and in Fortran order.

Plain reads, because the pages of a memory map would count as memory of the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from latently.core.sources.chunks import Rows, check_shape, ranges, real_dtype, rows_in_chunk
from latently.core.sources.packages import errors_name
from latently.core.sources.source import RowSource, Source


def open_npy(path: Path) -> Source:
    name = repr(str(path))
    with path.open("rb") as file:
        with errors_name(path):
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            elif version == (2, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
            else:  # 3.0 is for records with field names beyond Latin-1
                raise ValueError(f"its format version is {version}")
        offset = file.tell()
        n_bytes = os.fstat(file.fileno()).st_size - offset
    real_dtype(dtype, name)
    check_shape(shape, name)
    if n_bytes < shape[0] * shape[1] * dtype.itemsize:
        raise ValueError(f"{name} is cut short: it has {n_bytes} bytes for values of shape {shape}")
    read = _read_npy_by_columns if fortran else _read_npy
    return RowSource(name, shape[1], shape[0], None, partial(read, path, offset, (shape[0], shape[1]), dtype))


def _read_npy(path: Path, offset: int, shape: tuple[int, int], dtype: np.dtype[Any]) -> Iterator[Rows]:
    n_rows, n_features = shape
    real = real_dtype(dtype, "")
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        for a, b in ranges(n_rows, rows_in_chunk(n_features, real)):
            yield _filled(np.empty((b - a, n_features), dtype), file).astype(real, copy=False)


def _read_npy_by_columns(
    path: Path, offset: int, shape: tuple[int, int], dtype: np.dtype[Any]
) -> Iterator[Rows]:
    """The same for Fortran order, where a column's rows lie together: one read per column and chunk."""
    n_rows, n_features = shape
    real = real_dtype(dtype, "")
    with path.open("rb", buffering=0) as file:
        for a, b in ranges(n_rows, rows_in_chunk(n_features, real)):
            chunk = np.empty((b - a, n_features), real)
            column = np.empty(b - a, dtype)
            for j in range(n_features):
                file.seek(offset + (j * n_rows + a) * dtype.itemsize)
                chunk[:, j] = _filled(column, file)
            yield chunk


def _filled(array: Rows, file: Any) -> Rows:
    """The array, its memory read from the file."""
    room = array.reshape(-1).view(np.uint8).data
    while room:
        n = file.readinto(room)
        if not n:
            raise ValueError(f"{file.name!r} became shorter while it was read")
        room = room[n:]
    return array
