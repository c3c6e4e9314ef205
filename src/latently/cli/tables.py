"""Tables for commands: what `latently.tables` reads, with progress on the terminal."""

from __future__ import annotations

from dataclasses import replace

from latently.core.words import shown


def option(name, value):
    """An option as it is written on the command line."""
    return f"--{name.replace('_', '-')} {shown(value) if value != '...' else value}"


def open_table(path, reading, voice):
    """The table in a file or folder; reading it moves a progress bar."""
    from latently.tables.reading import table_of

    table = table_of(path, reading, option)

    def frames(missing=(), texts=(), moved=None):
        with voice.bar(f"Reading {table.path.name}", table.size) as moved:
            yield from table.frames(missing, texts, moved)

    return replace(table, frames=frames)


def size_of(text):
    """(height, width) of "WIDTHxHEIGHT"."""
    width, x, height = text.lower().partition("x")
    if not (
        x and width.isdecimal() and height.isdecimal() and 0 < int(width) <= 4096 and 0 < int(height) <= 4096
    ):
        raise ValueError(f"a size must have the form WIDTHxHEIGHT, such as 28x28, not {shown(text)}")
    return int(height), int(width)
