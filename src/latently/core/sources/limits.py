"""Limits of files that are small, but claim or unpack to far more than their size.

Each is far above what tables are, and an error says which it was: nothing is allocated before.
"""

from __future__ import annotations

import io
import lzma
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

MOST_CHARACTERS = 512_000_000  # of the lines that are read at a time
_MANY = 100_000_000  # bytes or cells, below which nothing is refused
_MOST_TIMES_SHEETS = 100  # that a sheet may be larger unpacked; XML shrinks to a tenth
_MOST_TIMES_TEXT = 5000  # the same of text
_MOST_CELLS = 1000  # cells of a table for each that is filled
_XZ_MEMORY = 300_000_000  # bytes; xz -9 needs 68 MB
_PLACE = re.compile(rb"""\sr=["']([A-Z]{1,3})(\d{1,7})["']""")
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"


def check_unpacked(size: int, packed: int, name: str, times: int = _MOST_TIMES_TEXT) -> None:
    """An error for what unpacks to far more than its size."""
    if size > _MANY and size > times * packed:
        raise ValueError(
            f"{name} unpacks to more than {times} times its size, over {size / 1e6:.0f} MB; unpack it "
            "yourself if it is meant to be so large"
        )


def check_filled(n_rows: int, n_columns: int, filled: int, name: str) -> None:
    """An error for a table that is nearly all empty, and large for that reason alone."""
    if n_rows * n_columns > max(10_000_000, _MOST_CELLS * filled):
        raise ValueError(
            f"{name} has {n_rows} rows and {n_columns} columns, but only {filled} filled cells: no table"
        )


# -- sheets -----------------------------------------------------------------------------------------------


def check_sheets(path: Path, ending: str, name: str) -> None:
    """An error for an archive of sheets that is far larger unpacked, or whose cells are far apart."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            check_unpacked(
                sum(member.file_size for member in members), path.stat().st_size, name, _MOST_TIMES_SHEETS
            )
            for member in members:
                if ending == ".ods" and member.filename == "content.xml":
                    with archive.open(member) as file:
                        _check_repeated(file, name)
                elif ending != ".ods" and "worksheets/" in member.filename:
                    with archive.open(member) as file:
                        _check_places(file, name)
    except (zipfile.BadZipFile, ElementTree.ParseError, NotImplementedError) as error:
        raise ValueError(str(error)) from error


def _check_places(file: IO[bytes], name: str) -> None:
    """Of .xlsx: cells say where they are, and all between is filled up."""
    rows = columns = filled = 0
    rest = b""
    while part := file.read(1 << 20):
        text = rest + part
        last = 0
        for found in _PLACE.finditer(text):
            filled, last = filled + 1, found.end()
            rows, columns = max(rows, int(found[2])), max(columns, _column(found[1]))
        rest = text[max(last, len(text) - 40) :]
    check_filled(rows, columns, filled, name)


def _column(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + letter - 64
    return number


def _check_repeated(file: IO[bytes], name: str) -> None:
    """Of .ods: cells and rows say how often they are repeated."""
    rows = columns = filled = 0
    for _, node in ElementTree.iterparse(file):
        if node.tag != f"{_TABLE}table-row":
            continue
        at = 0
        for cell in node:
            at += _repeated(cell, "columns")
            if f"{_OFFICE}value-type" in cell.attrib:
                filled, columns = filled + 1, max(columns, at)
        if any(f"{_OFFICE}value-type" in cell.attrib for cell in node):
            rows += _repeated(node, "rows")
        node.clear()
    check_filled(rows, columns, filled, name)


def _repeated(node: Any, what: str) -> int:
    text = node.get(f"{_TABLE}number-{what}-repeated", "1")
    return max(1, int(text)) if text.isdecimal() and len(text) < 12 else 1


# -- packed text ------------------------------------------------------------------------------------------


class LimitedXz(io.RawIOBase):
    """An .xz file that may not take much memory: its header says how much it wants."""

    def __init__(self, path: Path):
        self.file, self.unpacker = path.open("rb"), _unpacker()

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        view = memoryview(room).cast("B")
        while True:
            if self.unpacker.eof:  # another stream may follow, or zeros that fill up
                rest = self.unpacker.unused_data.lstrip(b"\0") or self.file.read(1 << 16).lstrip(b"\0")
                if not rest:
                    return 0
                self.unpacker, packed = _unpacker(), rest
            else:
                packed = self.file.read(1 << 16) if self.unpacker.needs_input else b""
                if self.unpacker.needs_input and not packed:
                    raise EOFError("it is cut short")
            found = self.unpacker.decompress(packed, max_length=len(view))
            if found:
                view[: len(found)] = found
                return len(found)

    def close(self) -> None:
        self.file.close()
        super().close()


def _unpacker() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(memlimit=_XZ_MEMORY)


def checked_parts(file: IO[bytes], packed: int, name: str) -> Iterator[bytes]:
    """The bytes of a file of text in parts, while they are not far more than its size."""
    size = 0
    while part := file.read(1 << 20):
        size += len(part)
        check_unpacked(size, packed, name)
        yield part
