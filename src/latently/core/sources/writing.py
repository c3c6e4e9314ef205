"""Rows back on disk, in a .npy file."""

from __future__ import annotations

import os
import struct
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from latently.core.replacing import replacement
from latently.core.sources.chunks import Rows


class RowWriter:
    """Rows appended to a .npy file whose length is not known beforehand.

    The file appears, whole, when the `with` block ends without an error; until then, and after one, whatever
    was there before stays. The first rows written decide the dtype and the shape of a row.
    """

    _HEADER_BYTES = 128

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.n_rows = 0
        self._dtype: np.dtype[Any] | None = None
        self._row_shape: tuple[int, ...] = ()

    def __enter__(self) -> RowWriter:
        with ExitStack() as stack:
            temporary = stack.enter_context(replacement(self.path))
            self._file: BinaryIO = temporary.open("wb")
            stack.callback(self._file.close)
            self._file.write(bytes(self._HEADER_BYTES))
            stack.push(self._finish)
            self._ending = stack.pop_all()
        return self

    def write(self, rows: Rows) -> None:
        """Appends the rows, (n, ...)."""
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
        self._ending.__exit__(kind, error, trace)

    def _finish(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._file.seek(0)
            self._file.write(self._header())

    def _header(self) -> bytes:
        """The .npy header, version 1.0, padded to the room kept for it."""
        if self._dtype is None:
            raise ValueError(f"no rows were written to {str(self.path)!r}")
        fields = {"descr": self._dtype.str, "fortran_order": False, "shape": (self.n_rows, *self._row_shape)}
        start = np.lib.format.magic(1, 0) + struct.pack("<H", self._HEADER_BYTES - 10)
        return start + repr(fields).encode().ljust(self._HEADER_BYTES - 11) + b"\n"
