"""Tables from files: the readers of the library, with the options and notes of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from latently.cli.speaking import shown


@dataclass(frozen=True)
class Reading:
    """The user's options for reading a file; None is detected automatically."""

    separator: str | None = None
    decimal: str | None = None
    header: bool | None = None
    array: str | None = None
    resize: tuple[int, int] | None = None  # height, width
    colour: bool = False


def open_table(path, reading, voice):
    """The table in a file or folder."""
    from latently.core.sources import FOLDERS, Unclear
    from latently.core.sources import open_table as opened

    path = Path(path)
    if path.is_dir() and not path.name.lower().endswith(FOLDERS):
        from latently.cli.images import open_images

        return open_images(path, reading)
    try:
        table = opened(
            path,
            separator=reading.separator,
            decimal=reading.decimal,
            header=reading.header,
            array=reading.array,
        )
    except Unclear as error:
        raise ValueError(f"{error}; give --{error.option}") from error
    if table.dialect is not None:
        if reading.header is None and not table.dialect.header:
            voice.note("the first line is read as data, not as column names; use --header if it has names")
        if reading.decimal is None and table.dialect.decimal == ",":
            voice.note("numbers are read with a decimal comma; use --decimal . if they have decimal points")
    return table


def frames_of(table, voice, missing, texts):
    """The data frames of a table, with a progress bar; see `latently.core.sources.Table.frames`."""
    with voice.bar(f"Reading {table.path.name}", table.size) as moved:
        yield from table.frames(missing, texts, moved)


def size_of(text):
    """(height, width) of "WIDTHxHEIGHT"."""
    width, x, height = text.lower().partition("x")
    if not (
        x and width.isdecimal() and height.isdecimal() and 0 < int(width) <= 4096 and 0 < int(height) <= 4096
    ):
        raise ValueError(f"a size must have the form WIDTHxHEIGHT, such as 28x28, not {shown(text)}")
    return int(height), int(width)
