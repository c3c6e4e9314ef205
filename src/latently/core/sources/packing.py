"""Packed files of text: .gz, .bz2, .xz, .zst, and .zip archives of one file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

from latently.core.sources.limits import LimitedXz

_KNOWN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)  # which take little memory
PACKINGS = (".gz", ".bz2", ".xz", ".zst", ".zip")


def packing_of(path: Path) -> str:
    """The ending of a packed file; nothing if it is not packed."""
    ending = path.suffix.lower()
    return ending if ending in PACKINGS else ""


def inner_name(path: Path) -> str:
    """The name of what is packed, in small letters."""
    name = path.name.lower()
    if packing_of(path) == ".zip":
        return _member(path).lower()
    return name.removesuffix(packing_of(path)) if packing_of(path) else name


def _member(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [
                entry
                for entry in archive.infolist()
                if not entry.is_dir() and not entry.filename.startswith(("__MACOSX/", "."))
            ]
            names = [entry.filename for entry in entries]
    except (zipfile.BadZipFile, OSError) as error:
        raise ValueError(f"{str(path)!r} cannot be read as a .zip file: {error}") from error
    if len(names) == 1 and entries[0].compress_type not in _KNOWN:
        raise ValueError(f"{str(path)!r} is packed in a way that is not supported; unpack it first")
    if len(names) != 1:
        raise ValueError(
            f"{str(path)!r} holds {len(names)} files, not one: {', '.join(names[:5])}; unpack it first"
        )
    return names[0]


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked if need be."""
    packing = packing_of(path)
    errors = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zipfile.BadZipFile, zlib.error)
    try:
        with _opener(path, packing) as file:
            yield file
    except errors as error:
        raise ValueError(f"{str(path)!r} cannot be read as a {packing[1:]} file: {error}") from error
    except OSError as error:
        if packing in ("", ".gz") or error.errno is not None:
            raise
        raise ValueError(f"{str(path)!r} cannot be read as a {packing[1:]} file: {error}") from error


def _opener(path: Path, packing: str) -> Any:
    if packing == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if packing == ".bz2":
        return bz2.open(path, "rb")
    if packing == ".xz":
        return io.BufferedReader(LimitedXz(path))
    if packing == ".zst":
        return _zstandard(path)
    if packing == ".zip":
        return _from_archive(path)
    return path.open("rb")


@contextmanager
def _from_archive(path: Path) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(path) as archive, archive.open(_member(path)) as file:
        yield file


def _zstandard(path: Path) -> Any:
    try:
        return import_module("zstandard").open(path, "rb")
    except ImportError:
        pass
    try:
        return import_module("pyarrow").input_stream(str(path), compression="zstd")
    except ImportError as error:
        raise ImportError(".zst files need zstandard: pip install 'latently[zstd]'") from error
