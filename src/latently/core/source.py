"""Out-of-core rows: a file, a memory map, a zarr array or blocks, read chunk by chunk.

A source can be read any number of times and yields the same rows each time, as arrays of about CHUNK_BYTES
that are owned by the reader: there are no other references to them, so dropping them frees the memory.
`ahead` prefetches the next chunk; `RowWriter` writes one output row per row to disk.

Nothing is unpickled. pandas, pyarrow and zarr are imported only when one of their files is opened.
"""

from __future__ import annotations

import csv
import gzip
import mmap
import os
import secrets
import struct
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import to_numpy

CHUNK_BYTES = 64_000_000  # memory of one chunk of a file

T = TypeVar("T")
Rows = NDArray[Any]


@runtime_checkable
class Source(Protocol):
    """Rows read in chunks."""

    n_features: int
    feature_names: list[str] | None  # None if the columns have no names
    n_rows: int | None  # None until the first complete pass, if it is not known in advance

    def chunks(self) -> Iterator[Rows]:
        """The rows in order, from the first one, as (n_i, n_features) real arrays with n_i >= 1."""
        ...


@dataclass
class _Source:
    name: str  # name in messages
    n_features: int
    n_rows: int | None
    feature_names: list[str] | None
    read: Callable[[], Iterator[Rows]]

    def chunks(self) -> Iterator[Rows]:
        n = 0
        with closing(cast(Any, self.read())) as chunks:
            for chunk in chunks:
                n += len(chunk)
                yield chunk
        if self.n_rows is not None and n != self.n_rows:
            raise ValueError(f"{self.name} changed between two readings: it had {self.n_rows} rows, now {n}")
        self.n_rows = n


def open_source(X: Any) -> Source | None:
    """The source for X; None if X is an ordinary array-like."""
    if _of_dask(X):
        return None
    if isinstance(X, Source):
        return X
    if isinstance(X, str | os.PathLike):
        return _open_file(Path(os.fspath(X)))
    if isinstance(X, np.memmap) and X._mmap is not None:  # type: ignore[attr-defined]
        return _memmap(X)
    zarr = sys.modules.get("zarr")
    if zarr is not None and isinstance(X, zarr.Array | zarr.Group):
        return _zarr_array(X, "the zarr array")
    if _array_like(X) or isinstance(X, bytes | bytearray | Mapping | Set):
        return None
    if isinstance(X, Iterator):
        raise TypeError(
            f"an iterator ({type(X).__name__}) can be read only once, but the rows are needed several times: "
            "give a function that returns a new iterator over the blocks, or an object whose __iter__ does"
        )
    if isinstance(X, Sequence):
        return _blocks(X) if len(X) > 0 and _looks_like_a_block(X[0]) else None
    return _blocks(X) if isinstance(X, Iterable) or callable(X) else None


def _array_like(X: Any) -> bool:
    return any(hasattr(X, name) for name in ("shape", "dtype", "__array__", "__dataframe__"))


def _looks_like_a_block(item: Any) -> bool:
    return not _of_dask(item) and len(getattr(item, "shape", ())) == 2


def _of_dask(X: Any) -> bool:
    """Whether this is a Dask collection; attribute access could already trigger computation."""
    return type(X).__module__.startswith("dask")


# -- dtypes and sizes ------------------------------------------------------------------------------------


def _real(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """The dtype in which values of `dtype` are returned: unchanged if it can be computed with."""
    if dtype.kind not in "biuf":
        raise ValueError(f"{name} holds values of type {dtype}; real numbers are needed")
    kept = dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize in (4, 8))
    return dtype.newbyteorder("=") if kept else np.dtype(np.float64)


def _check_shape(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2:
        hint = "; reshape it to (-1, 1) for one feature or (1, -1) for one row" if len(shape) == 1 else ""
        raise ValueError(f"{name} is {len(shape)}-D, not 2-D{hint}")
    if 0 in shape:
        raise ValueError(f"{name} is empty: its shape is {shape}")


def _rows_in(n_bytes: int, n_features: int, dtype: np.dtype[Any]) -> int:
    return max(1, n_bytes // (n_features * dtype.itemsize))


def _ranges(n_rows: int, step: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def _rechunked(blocks: Iterable[Rows], n_features: int) -> Iterator[Rows]:
    """The same rows copied to new chunks: large blocks are split, small ones concatenated.

    A block is not used after the next one is requested, so its memory may be reused.
    """
    chunk, filled = np.empty((0, n_features)), 0
    for block in blocks:
        dtype = _real(block.dtype, "a block")
        if filled > 0 and chunk.dtype != dtype:
            yield chunk[:filled]
            filled = 0
        start = 0
        while start < len(block):
            if filled == 0:
                chunk = np.empty((_rows_in(CHUNK_BYTES, n_features, dtype), n_features), dtype)
            n = min(len(chunk) - filled, len(block) - start)
            chunk[filled : filled + n] = block[start : start + n]
            _release(block)
            start, filled = start + n, filled + n
            if filled == len(chunk):
                yield chunk
                filled = 0
    if filled > 0:
        yield chunk[:filled]


# -- files -----------------------------------------------------------------------------------------------


def _open_file(path: Path) -> Source:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    for suffix, opener in _OPENERS.items():
        if path.name.lower().endswith(suffix):
            if path.is_dir() and opener not in (_zarr, _parquet):
                raise ValueError(f"{str(path)!r} is a folder, not a {suffix} file")
            return opener(path)
    raise ValueError(f"{str(path)!r} is not a kind of file that can be read: {', '.join(_OPENERS)}")


def _package(name: str, extra: str, files: str) -> Any:
    """Import an optional package."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{files} files need {package}: pip install 'latently[{extra}]'") from error


@contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    """Add the name of the file to errors of a reader."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from error


# .npy: plain reads, because the pages of a memory map count as memory of the process


def _npy(path: Path) -> Source:
    name = repr(str(path))
    with path.open("rb") as file:
        with _errors_name(path):
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            elif version == (2, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
            else:  # 3.0 is for records with field names beyond Latin-1
                raise ValueError(f"its format version is {version}")
        offset = file.tell()
        n_bytes = os.fstat(file.fileno()).st_size - offset
    _real(dtype, name)
    _check_shape(shape, name)
    if n_bytes < shape[0] * shape[1] * dtype.itemsize:
        raise ValueError(f"{name} is cut short: it has {n_bytes} bytes for values of shape {shape}")
    read = _read_npy_by_columns if fortran else _read_npy
    return _Source(name, shape[1], shape[0], None, partial(read, path, offset, (shape[0], shape[1]), dtype))


def _read_npy(path: Path, offset: int, shape: tuple[int, int], dtype: np.dtype[Any]) -> Iterator[Rows]:
    n_rows, n_features = shape
    real = _real(dtype, "")
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        for a, b in _ranges(n_rows, _rows_in(CHUNK_BYTES, n_features, real)):
            yield _filled(np.empty((b - a, n_features), dtype), file).astype(real, copy=False)


def _read_npy_by_columns(
    path: Path, offset: int, shape: tuple[int, int], dtype: np.dtype[Any]
) -> Iterator[Rows]:
    """The same for Fortran order, where columns are contiguous: one read per column and chunk."""
    n_rows, n_features = shape
    real = _real(dtype, "")
    with path.open("rb", buffering=0) as file:
        for a, b in _ranges(n_rows, _rows_in(CHUNK_BYTES, n_features, real)):
            chunk = np.empty((b - a, n_features), real)
            column = np.empty(b - a, dtype)
            for j in range(n_features):
                file.seek(offset + (j * n_rows + a) * dtype.itemsize)
                chunk[:, j] = _filled(column, file)
            yield chunk


def _filled(array: Rows, file: Any) -> Rows:
    """Read the array from the file."""
    room = array.reshape(-1).view(np.uint8).data
    while room:
        n = file.readinto(room)
        if not n:
            raise ValueError(f"{file.name!r} became shorter while it was read")
        room = room[n:]
    return array


# .zarr


def _zarr(path: Path) -> Source:
    zarr = _package("zarr", "zarr", ".zarr")
    try:
        opened = zarr.open(str(path), mode="r")
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(f"{str(path)!r} holds no zarr array: {error}") from error
    return _zarr_array(opened, repr(str(path)))


def _zarr_array(array: Any, name: str) -> Source:
    """The source for a zarr array, or for a group with exactly one array."""
    if not hasattr(array, "shape"):
        members = dict(array.arrays())
        if len(members) != 1:
            names = f" ({', '.join(sorted(members))})" if members else ""
            raise ValueError(f"{name} is a group of {len(members)} arrays{names}; one array is needed")
        [array] = members.values()
    shape, dtype = tuple(array.shape), np.dtype(array.dtype)
    _real(dtype, name)
    _check_shape(shape, name)
    return _Source(name, shape[1], shape[0], None, partial(_read_zarr, array, shape, dtype))


def _read_zarr(array: Any, shape: tuple[int, int], dtype: np.dtype[Any]) -> Iterator[Rows]:
    real = _real(dtype, "")
    step = _rows_in(CHUNK_BYTES, shape[1], real)
    step = (
        step // array.chunks[0] * array.chunks[0] or step
    )  # multiples of stored chunks: each is decoded once
    for a, b in _ranges(shape[0], step):
        yield np.ascontiguousarray(array[a:b, :], dtype=real)


# .parquet


def _parquet(path: Path) -> Source:
    """One file or a folder of them, sorted by name, as in pandas.read_parquet."""
    parquet, types = _package("pyarrow.parquet", "parquet", ".parquet"), import_module("pyarrow.types")
    name = repr(str(path))
    files = [path] if path.is_file() else _parquet_files(path)
    if not files:
        raise ValueError(f"{name} is empty: there are no .parquet files in it")
    names: list[str] = []
    all_float32, n_rows = True, 0
    for file in files:
        with _errors_name(file), parquet.ParquetFile(file) as opened:
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
    _check_shape((n_rows, len(names)), name)
    # integers become float64 as well: a later null would need it
    dtype = np.dtype(np.float32 if all_float32 else np.float64)
    return _Source(name, len(names), n_rows, names, partial(_read_parquet, files, names, dtype))


def _parquet_files(folder: Path) -> list[Path]:
    found = [file.relative_to(folder) for suffix in ("parquet", "pq") for file in folder.rglob(f"*.{suffix}")]
    found = [file for file in found if not any(part.startswith((".", "_")) for part in file.parts)]
    return [folder / file for file in sorted(found, key=Path.as_posix) if (folder / file).is_file()]


def _read_parquet(files: list[Path], names: list[str], dtype: np.dtype[Any]) -> Iterator[Rows]:
    return _rechunked(_parquet_batches(files, names, dtype), len(names))


def _parquet_batches(files: list[Path], names: list[str], dtype: np.dtype[Any]) -> Iterator[Rows]:
    parquet, pyarrow = import_module("pyarrow.parquet"), import_module("pyarrow")
    arrow_type = pyarrow.from_numpy_dtype(dtype)
    n_rows = _rows_in(CHUNK_BYTES // 4, len(names), dtype)
    for file in files:
        # a small buffer per column: by default a whole row group, which may be the file, is read at once
        with _errors_name(file), parquet.ParquetFile(file, buffer_size=1 << 16, pre_buffer=False) as opened:
            for batch in opened.iter_batches(n_rows, columns=names):
                block = np.empty((batch.num_rows, len(names)), dtype)
                for j, column in enumerate(names):
                    values = batch.column(column).cast(arrow_type, safe=False)
                    block[:, j] = values.to_numpy(zero_copy_only=False)  # null is NaN
                yield block


# .csv


def _csv(path: Path) -> Source:
    """Text with commas, or tabs in .tsv. The first line is a header unless it is all numbers."""
    _package("pandas", "csv", ".csv and .tsv")
    name = repr(str(path))
    separator = "\t" if ".tsv" in path.name.lower()[-7:] else ","
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with cast(Any, opened)(path, "rt", encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, delimiter=separator, skipinitialspace=True)
        with _errors_name(path):
            first, second = ([*islice((line for line in lines if line), 2), [], []])[:2]
    if not first:
        raise ValueError(f"{name} is empty")
    if len(second) > len(first):  # pandas would treat the first fields as row labels
        raise ValueError(f"{name} has {len(first)} fields in its first line, {len(second)} in the second")
    header = None if all(map(_is_number, first)) else 0
    read = partial(_csv_tables, path, separator, header)
    with closing(read(n_rows=1)) as tables:
        table = next(tables, None)
    if table is None or len(table) == 0:
        raise ValueError(f"{name} is empty: it has a header, but no rows")
    names = None if header is None else [str(column) for column in table.columns]
    n_features = table.shape[1]
    return _Source(name, n_features, None, names, partial(_read_csv, path, separator, header, n_features))


def _is_number(field: str) -> bool:
    """Whether a field is a number or empty."""
    try:
        float(field or "nan")
    except ValueError:
        return False
    return "_" not in field  # which Python accepts in numbers


def _read_csv(path: Path, separator: str, header: int | None, n_features: int) -> Iterator[Rows]:
    # parsing takes about four times the memory of the result
    n_rows = _rows_in(CHUNK_BYTES // 4, n_features, np.dtype(np.float64))
    with closing(_csv_tables(path, separator, header, n_rows)) as tables:
        yield from _rechunked((_csv_numbers(table, path) for table in tables), n_features)


def _csv_tables(path: Path, separator: str, header: int | None, n_rows: int) -> Generator[Any, None, None]:
    pandas = import_module("pandas")
    with (
        _errors_name(path),
        pandas.read_csv(
            path,
            sep=separator,
            header=header,
            chunksize=n_rows,
            skipinitialspace=True,
            encoding="utf-8-sig",
            low_memory=False,  # one type per column and table
        ) as tables,
    ):
        yield from tables


def _csv_numbers(table: Any, path: Path) -> Rows:
    """The values of a table in float64, with NaN for missing values."""
    numbers = np.empty(table.shape)
    for j, column in enumerate(table.columns):
        values = table.iloc[:, j]
        try:
            numbers[:, j] = values.to_numpy(dtype=np.float64, na_value=np.nan)
        except (ValueError, TypeError):
            parsed = import_module("pandas").to_numeric(values, errors="coerce")
            bad = values[parsed.isna() & values.notna()]
            example = (bad if len(bad) > 0 else values).iloc[0]
            raise ValueError(
                f"column {column!r} of {str(path)!r} holds {example!r}; real numbers are needed"
            ) from None
    return numbers


_OPENERS: dict[str, Callable[[Path], Source]] = {
    ".npy": _npy,
    ".zarr": _zarr,
    ".parquet": _parquet,
    ".pq": _parquet,
    ".csv": _csv,
    ".csv.gz": _csv,
    ".tsv": _csv,
    ".tsv.gz": _csv,
}


# -- memory maps -----------------------------------------------------------------------------------------


def _memmap(X: np.memmap[Any, Any]) -> Source:
    name = "the memory map"
    _real(X.dtype, name)
    _check_shape(X.shape, name)
    return _Source(name, X.shape[1], X.shape[0], None, partial(_rechunked, [X], X.shape[1]))


def _release(block: Rows) -> None:
    """Release the pages of a memory map, which can be read from the file again.

    Pages of a copy-on-write map are kept: they may have been modified by the user.
    """
    if isinstance(block, np.memmap) and block.mode in ("r", "r+", "w+"):
        pages = block._mmap  # type: ignore[attr-defined]
        if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
            pages.madvise(mmap.MADV_DONTNEED)


# -- blocks ----------------------------------------------------------------------------------------------


def _blocks(X: Any) -> Source:
    """The source for a function that returns an iterator over 2-D blocks, or for an iterable of them."""
    blocks = _started(X)
    first = next(_numbers_of(blocks), None)
    if first is None:
        raise ValueError("the blocks are empty: not one has a row")
    if hasattr(blocks, "close"):
        blocks.close()
    names, rows = first
    known = isinstance(X, Sequence) and all(map(_looks_like_a_block, X))
    n_rows = sum(len(block) for block in X) if known else None
    read = _BlockReader(X, names, rows.shape[1], blocks)
    return _Source("the sequence of blocks", rows.shape[1], n_rows, names, read)


def _started(X: Any) -> Any:
    """A new iterator over the blocks."""
    made = X if isinstance(X, Iterable) else X()
    if not isinstance(made, Iterable) or _array_like(made):
        raise TypeError(
            f"a function given as data must return an iterator over blocks, not {type(made).__name__}"
        )
    return iter(made)


@dataclass
class _BlockReader:
    X: Any
    names: list[str] | None
    n_features: int
    first_iterator: Any  # one block was read from it to determine the number of columns

    def __call__(self) -> Iterator[Rows]:
        blocks = _started(self.X)
        if blocks is self.first_iterator:
            raise TypeError(
                "the same iterator came back when the blocks were to be read again: make a new one"
            )
        try:
            yield from _rechunked(self._checked(blocks), self.n_features)
        finally:
            if hasattr(blocks, "close"):
                blocks.close()

    def _checked(self, blocks: Iterator[Any]) -> Iterator[Rows]:
        for names, rows in _numbers_of(blocks, self.n_features):
            if names != self.names:
                raise ValueError(f"the blocks differ in column names: {self.names}, then {names}")
            yield rows


def _numbers_of(
    blocks: Iterator[Any], n_features: int | None = None
) -> Iterator[tuple[list[str] | None, Rows]]:
    """Column names and values of every non-empty block."""
    for i, block in zip(count(), blocks, strict=False):
        name = f"block {i}"
        names, rows = _numbers(block, name)
        if len(rows) == 0:
            continue
        if n_features is not None and rows.shape[1] != n_features:
            raise ValueError(f"{name} has {rows.shape[1]} columns, but the first block has {n_features}")
        yield names, rows


def _numbers(block: Any, name: str) -> tuple[list[str] | None, Rows]:
    """Column names, if they are strings, and values of a block."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(block, pandas.DataFrame):
        return _frame_numbers(block, name)
    if hasattr(block, "toarray"):
        raise TypeError(f"{name} is sparse; give dense blocks, as by its toarray()")
    if isinstance(block, str | bytes | Mapping | Set) or not (
        _array_like(block) or isinstance(block, Sequence)
    ):
        raise TypeError(f"{name} is of type {type(block).__name__}, not an array")
    names = list(getattr(block, "columns", [])) or None  # polars
    if isinstance(block, np.ma.MaskedArray):
        block = np.ma.filled(block.astype(np.float64), np.nan)
    try:
        rows = to_numpy(block)
    except ValueError as error:  # a ragged list
        raise ValueError(f"{name} is no 2-D array: {error}") from error
    if rows.shape[:1] != (0,):
        _check_shape(rows.shape, name)
        _real(rows.dtype, name)
    return names, rows


def _frame_numbers(frame: Any, name: str) -> tuple[list[str] | None, Rows]:
    names = list(frame.columns)
    for column, dtype in zip(names, frame.dtypes, strict=True):
        if dtype.kind not in "biuf" and len(frame) > 0:
            raise ValueError(
                f"column {column!r} of {name} holds values of type {dtype}; real numbers are needed"
            )
    kinds = set(frame.dtypes)
    plain = len(kinds) == 1 and isinstance(next(iter(kinds)), np.dtype)  # all columns of one NumPy type
    rows = frame.to_numpy() if plain else frame.to_numpy(dtype=np.float64, na_value=np.nan)
    if len(rows) > 0:
        _check_shape(rows.shape, name)
    return names if all(isinstance(column, str) for column in names) else None, rows


# -- reading ahead ---------------------------------------------------------------------------------------


def ahead(chunks: Iterator[T]) -> Iterator[T]:
    """The same items, with the next one prefetched in a thread.

    Two items are in memory at a time. An error is raised in place of its item; if the reader stops early, the
    pending read is awaited, `chunks` is closed and the thread ends.
    """
    end = object()
    pool = ThreadPoolExecutor(1, thread_name_prefix="latently-ahead")
    try:
        coming = pool.submit(next, chunks, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, chunks, end)
            yield cast(T, item)
    finally:
        pool.shutdown()
        if hasattr(chunks, "close"):
            with suppress(
                ValueError
            ):  # after an interrupt a thread may still be reading; it closes them at its end
                chunks.close()


# -- writing ---------------------------------------------------------------------------------------------


class RowWriter:
    """Append rows to a .npy file whose length is not known in advance.

    The file is created atomically when the `with` block ends without an error; otherwise an existing file is
    unchanged. The first rows written determine the dtype and the shape of a row.
    """

    _HEADER_BYTES = 128

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.n_rows = 0
        self._dtype: np.dtype[Any] | None = None
        self._row_shape: tuple[int, ...] = ()

    def __enter__(self) -> RowWriter:
        self._temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        self._file: BinaryIO = self._temporary.open("xb")
        self._file.write(bytes(self._HEADER_BYTES))
        return self

    def write(self, rows: Rows) -> None:
        """Append the rows, (n, ...)."""
        rows = np.asarray(rows)
        if self._dtype is None:
            if rows.dtype.kind not in "biufc" or not 1 <= rows.ndim <= 4:
                raise ValueError(f"rows of numbers are needed, not {rows.ndim}-D values of type {rows.dtype}")
            self._dtype, self._row_shape = rows.dtype, rows.shape[1:]
        if rows.ndim == 0 or rows.shape[1:] != self._row_shape:
            raise ValueError(f"rows of shape {self._row_shape} are expected, not {rows.shape[1:]}")
        if not np.can_cast(rows.dtype, self._dtype, "same_kind"):
            raise ValueError(f"rows of {rows.dtype} do not go with the {self._dtype} written before")
        if rows.size > 0:
            self._file.write(np.ascontiguousarray(rows, dtype=self._dtype).data)
        self.n_rows += len(rows)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._file:
                if error is None:
                    self._file.seek(0)
                    self._file.write(self._header())
            if error is None:
                os.replace(self._temporary, self.path)
        finally:
            self._temporary.unlink(missing_ok=True)

    def _header(self) -> bytes:
        """The .npy header, version 1.0, padded to the reserved size."""
        if self._dtype is None:
            raise ValueError(f"no rows were written to {str(self.path)!r}")
        fields = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.n_rows, *self._row_shape)}
        start = np.lib.format.magic(1, 0) + struct.pack("<H", self._HEADER_BYTES - 10)
        return start + repr(fields).encode().ljust(self._HEADER_BYTES - 11) + b"\n"
