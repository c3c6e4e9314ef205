"""NumPy's .npy files and the arrays of .npz archives, in C and in Fortran order.

Plain reads, because the pages of a memory map would count as memory of the process.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from latently.core.sources.arrays import array_table
from latently.core.sources.chunks import Rows, ranges, real_dtype
from latently.core.sources.dialect import Unclear
from latently.core.sources.packages import errors_name
from latently.core.sources.table import Table


def open_npy(path: Path) -> Table:
    stored = _StoredNpy.found(repr(str(path)), partial(path.open, "rb", buffering=0), in_archive=False)
    stored.check_size(path.stat().st_size)
    return array_table(path, stored)


@dataclass(frozen=True)
class _StoredNpy:
    name: str
    opened: Callable[[], Any]  # a context with the file
    in_archive: bool  # where going back means to start from the beginning
    offset: int  # of the values, after the header
    shape: tuple[int, ...]
    by_columns: bool
    stored_dtype: np.dtype[Any]

    @classmethod
    def found(cls, name: str, opened: Callable[[], Any], in_archive: bool) -> _StoredNpy:
        with opened() as file:
            shape, by_columns, dtype = _header(file, name)
            offset = file.tell()
        real_dtype(dtype, name)
        return cls(name, opened, in_archive, offset, shape, by_columns, dtype)

    def check_size(self, n_bytes: int) -> None:
        """An error before anything is allocated, if a file of so many bytes cannot hold the values."""
        n_bytes -= self.offset
        if n_bytes < math.prod(self.shape) * self.stored_dtype.itemsize:
            raise ValueError(
                f"{self.name} is cut short: it has {n_bytes} bytes for values of shape {self.shape}"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        return real_dtype(self.stored_dtype, self.name)

    def blocks(self, n_rows: int) -> Iterator[Rows]:
        with self.opened() as file:
            if not self.by_columns:
                return (yield from self._by_rows(file, n_rows))
            if not self.in_archive:
                return (yield from self._by_columns(file, n_rows))
            file.seek(self.offset)  # a column at a time would unpack the archive again and again
            whole = self._filled(np.empty(self.shape, self.stored_dtype, order="F"), file)
            rows = whole.reshape(self.shape[0], -1)
            for a, b in ranges(self.shape[0], n_rows):
                yield np.array(rows[a:b], dtype=self.dtype, order="C")

    def _by_rows(self, file: IO[bytes], n_rows: int) -> Iterator[Rows]:
        width = int(np.prod(self.shape[1:], dtype=int))
        file.seek(self.offset)
        for a, b in ranges(self.shape[0], n_rows):
            rows = self._filled(np.empty((b - a, width), self.stored_dtype), file)
            yield rows.astype(self.dtype, copy=False)

    def _by_columns(self, file: IO[bytes], n_rows: int) -> Iterator[Rows]:
        """For Fortran order, where a column's rows lie together: one read per column and block."""
        n, *rest = self.shape
        places = np.arange(np.prod(rest, dtype=int)).reshape(rest, order="F").ravel()  # of each in the file
        for a, b in ranges(n, n_rows):
            block = np.empty((b - a, len(places)), self.dtype)
            column = np.empty(b - a, self.stored_dtype)
            for j, place in enumerate(places):
                file.seek(self.offset + (int(place) * n + a) * self.stored_dtype.itemsize)
                block[:, j] = self._filled(column, file)
            yield block

    def _filled(self, array: Rows, file: Any) -> Rows:
        """The array, its memory read from the file."""
        room = array.reshape(-1, order="A").view(np.uint8).data
        while room:
            n = file.readinto(room)
            if not n:
                raise ValueError(f"{self.name} is cut short, or became shorter while it was read")
            room = room[n:]
        return array


def _header(file: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns lie together, and type."""
    with errors_name(name, "a NumPy array"):
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(file)
        if version == (2, 0):
            return np.lib.format.read_array_header_2_0(file)
        raise ValueError(f"its format version is {version}")  # 3.0: records with names beyond Latin-1


# -- archives --------------------------------------------------------------------------------------------


def open_npz(path: Path, array: str | None = None) -> Table:
    """The array of this name, or the only one with rows of several numbers.

    Arrays with an entry for each row, such as labels, are columns beside it.
    """
    name = repr(str(path))
    with _archive(path) as archive:
        members = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
    headers = {}
    for member in members:
        with _member(path, member) as file:
            headers[member] = _header(file, f"the array {member!r} of {name}")
    shapes = {member: header[0] for member, header in headers.items()}
    chosen = array or _only([m for m, shape in shapes.items() if len(shape) >= 2]) or _only(members)
    if chosen is None or chosen not in shapes:
        there = ", ".join(f"{member!r} {shape}" for member, shape in shapes.items()) or "none"
        wrong = "holds several arrays" if chosen is None else f"has no array {chosen!r}"
        raise Unclear(f"the file {name} {wrong}; there are: {there}", "array")
    stored = _StoredNpy.found(
        f"the array {chosen!r} of {name}", partial(_member, path, chosen), in_archive=True
    )
    with _archive(path) as archive:
        stored.check_size(archive.getinfo(f"{chosen}.npy").file_size)
    table = array_table(path, stored)
    taken = {chosen, *table.columns}
    beside = tuple(
        member
        for member, (shape, _, dtype) in headers.items()
        if member not in taken and shape == (table.n_rows,) and not dtype.hasobject
    )
    if not beside:
        return table
    frames = partial(_frames_with_arrays, table.frames, path, beside)
    return replace(table, columns=[*table.columns, *beside], frames=frames, beside=beside)


def _only(names: list[str]) -> str | None:
    return names[0] if len(names) == 1 else None


@contextmanager
def _member(path: Path, name: str) -> Iterator[IO[bytes]]:
    """An array of an archive as a file."""
    with _archive(path) as archive, archive.open(f"{name}.npy") as file:
        yield file


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{str(path)!r} cannot be read as an .npz file: {error}") from error


def _frames_with_arrays(
    frames: Callable[..., Iterator[Any]],
    path: Path,
    beside: tuple[str, ...],
    missing: Collection[str] = (),
    texts: Collection[str] | None = (),
    moved: Callable[[int], object] | None = None,
) -> Iterator[Any]:
    with np.load(path, allow_pickle=False) as file:
        columns = {name: file[name] for name in beside}
    start = 0
    for frame in frames(missing, texts, moved):
        extra = {name: values[start : start + len(frame)] for name, values in columns.items()}
        start += len(frame)
        yield frame.assign(**extra)
