"""Parquet: one file, or a folder of them in the order of their names, as pandas.read_parquet has it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from latently.core.sources.chunks import Rows, check_shape, rechunked, rows_in_frame
from latently.core.sources.dialect import unique
from latently.core.sources.packages import errors_name, package
from latently.core.sources.table import Table


def open_parquet(path: Path) -> Table:
    package("pyarrow.parquet", "parquet", ".parquet files")
    name = repr(str(path))
    files = [path] if path.is_file() else _files_in(path)
    if not files:
        raise ValueError(f"{name} is empty: there are no .parquet files in it")
    parts = [_Part.found(file) for file in files]
    first = parts[0]
    for part in parts:
        if set(part.places) != set(first.places):
            other = sorted(set(part.places) ^ set(first.places))
            raise ValueError(
                f"{str(part.file)!r} and {str(first.file)!r} differ in columns: {', '.join(other)}"
            )
    names, n_rows = list(first.places), sum(part.n_rows for part in parts)
    check_shape((n_rows, len(names)), name)
    other_types = {column: kind for part in parts for column, kind in part.other_types.items()}
    # whole numbers become float64 as well: a null further down would need it
    dtype = np.dtype(np.float32 if all(part.all_float32 for part in parts) else np.float64)
    reader = _Reader(parts, names, other_types, dtype)
    return Table(
        path, name, names, n_rows, reader.frames, reader.chunks, size=n_rows, other_types=other_types
    )


def _files_in(folder: Path) -> list[Path]:
    found = [file.relative_to(folder) for suffix in ("parquet", "pq") for file in folder.rglob(f"*.{suffix}")]
    found = [file for file in found if not any(part.startswith((".", "_")) for part in file.parts)]
    return [folder / file for file in sorted(found, key=Path.as_posix) if (folder / file).is_file()]


@dataclass(frozen=True)
class _Part:
    """A file of a table."""

    file: Path
    n_rows: int
    places: dict[str, int]  # of the columns, by name, in the file's order
    other_types: dict[str, str]  # of columns that hold no numbers
    all_float32: bool

    @classmethod
    def found(cls, file: Path) -> _Part:
        types, name = import_module("pyarrow.types"), repr(str(file))
        with errors_name(name, "a Parquet file"), _opened(file) as opened:
            schema, n_rows = opened.schema_arrow, opened.metadata.num_rows
        index = (schema.pandas_metadata or {}).get("index_columns", [])  # row labels, not features
        fields = [(place, field) for place, field in enumerate(schema) if field.name not in index]
        names = unique([field.name for _, field in fields], name)
        numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
        other_types = {
            column: str(field.type)
            for column, (_, field) in zip(names, fields, strict=True)
            if not any(is_kind(field.type) for is_kind in numeric)
        }
        return cls(
            file,
            n_rows,
            {column: place for column, (place, _) in zip(names, fields, strict=True)},
            other_types,
            all(types.is_float32(field.type) for _, field in fields),
        )


def _opened(file: Path) -> Any:
    # a small buffer per column: by default a whole row group, which may be the file, is read at once
    return import_module("pyarrow.parquet").ParquetFile(file, buffer_size=1 << 16, pre_buffer=False)


@dataclass(frozen=True)
class _Reader:
    parts: list[_Part]
    names: list[str]
    other_types: dict[str, str]
    dtype: np.dtype[Any]

    def chunks(self) -> Iterator[Rows]:
        blocks = (self._numbers(batch, part, self.names) for batch, part in self._batches())
        return rechunked(blocks, len(self.names))

    def frames(
        self,
        missing: Collection[str] = (),
        texts: Collection[str] | None = (),
        moved: Callable[[int], object] | None = None,
    ) -> Iterator[Any]:
        pandas = package("pandas", "csv", "data frames")
        untouched = {*(self.names if texts is None else texts), *self.other_types}
        numbers = [column for column in self.names if column not in untouched]
        others = [column for column in self.names if column in untouched]
        done = 0
        for batch, part in self._batches():
            frame = pandas.DataFrame(self._numbers(batch, part, numbers), columns=numbers)
            if others:
                rest = batch.select([part.places[column] for column in others]).to_pandas(
                    date_as_object=False
                )
                rest.columns, rest.index = others, frame.index  # a range of pandas' own may come with it
                frame = pandas.concat([frame, rest], axis=1)[self.names]
            yield frame
            done += len(frame)
            if moved is not None:
                moved(done)

    def _batches(self) -> Iterator[tuple[Any, _Part]]:
        for part in self.parts:
            with errors_name(repr(str(part.file)), "a Parquet file"), _opened(part.file) as opened:
                for batch in opened.iter_batches(rows_in_frame(len(self.names))):
                    yield batch, part

    def _numbers(self, batch: Any, part: _Part, columns: list[str]) -> Rows:
        """(n, C), NaN for null."""
        arrow_type = import_module("pyarrow").from_numpy_dtype(self.dtype)
        block = np.empty((batch.num_rows, len(columns)), self.dtype)
        for j, column in enumerate(columns):
            values = batch.column(part.places[column]).cast(arrow_type, safe=False)
            block[:, j] = values.to_numpy(zero_copy_only=False)
        return block
