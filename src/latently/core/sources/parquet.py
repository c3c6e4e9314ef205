"""Parquet: one file, or a folder of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from latently.core.sources.chunks import Rows, check_shape, rechunked, rows_in_chunk
from latently.core.sources.packages import errors_name, package
from latently.core.sources.source import RowSource, Source


def open_parquet(path: Path) -> Source:
    """One file or a folder of them, in the order of their names, as pandas.read_parquet has it."""
    parquet, types = package("pyarrow.parquet", "parquet", ".parquet"), import_module("pyarrow.types")
    name = repr(str(path))
    files = [path] if path.is_file() else _parquet_files(path)
    if not files:
        raise ValueError(f"{name} is empty: there are no .parquet files in it")
    names: list[str] = []
    all_float32, n_rows = True, 0
    for file in files:
        with errors_name(file), parquet.ParquetFile(file) as opened:
            schema, n_rows = opened.schema_arrow, n_rows + opened.metadata.num_rows
        index = (schema.pandas_metadata or {}).get("index_columns", [])  # row labels, not features
        fields = [field for field in schema if field.name not in index]
        for field in fields:
            numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
            if not any(is_kind(field.type) for is_kind in numeric):
                raise ValueError(
                    f"column {field.name!r} of {str(file)!r} holds values of type {field.type}; "
                    "real numbers are needed"
                )
        here = [field.name for field in fields]
        names = names or here
        if len(set(here)) < len(here):
            raise ValueError(f"{str(file)!r} has several columns of one name")
        if set(here) != set(names):
            other = sorted(set(here) ^ set(names))
            raise ValueError(f"{str(file)!r} and {str(files[0])!r} differ in columns: {', '.join(other)}")
        all_float32 = all_float32 and all(types.is_float32(field.type) for field in fields)
    check_shape((n_rows, len(names)), name)
    # whole numbers become float64 as well: a null further down would need it
    dtype = np.dtype(np.float32 if all_float32 else np.float64)
    return RowSource(name, len(names), n_rows, names, partial(_read_parquet, files, names, dtype))


def _parquet_files(folder: Path) -> list[Path]:
    found = [file.relative_to(folder) for suffix in ("parquet", "pq") for file in folder.rglob(f"*.{suffix}")]
    found = [file for file in found if not any(part.startswith((".", "_")) for part in file.parts)]
    return [folder / file for file in sorted(found, key=Path.as_posix) if (folder / file).is_file()]


def _read_parquet(files: list[Path], names: list[str], dtype: np.dtype[Any]) -> Iterator[Rows]:
    return rechunked(_parquet_batches(files, names, dtype), len(names))


def _parquet_batches(files: list[Path], names: list[str], dtype: np.dtype[Any]) -> Iterator[Rows]:
    parquet, pyarrow = import_module("pyarrow.parquet"), import_module("pyarrow")
    arrow_type = pyarrow.from_numpy_dtype(dtype)
    n_rows = rows_in_chunk(len(names), dtype, parts=4)
    for file in files:
        # a small buffer per column: by default a whole row group, which may be the file, is read at once
        with errors_name(file), parquet.ParquetFile(file, buffer_size=1 << 16, pre_buffer=False) as opened:
            for batch in opened.iter_batches(n_rows, columns=names):
                block = np.empty((batch.num_rows, len(names)), dtype)
                for j, column in enumerate(names):
                    values = batch.column(column).cast(arrow_type, safe=False)
                    block[:, j] = values.to_numpy(zero_copy_only=False)  # null is NaN
                yield block
