"""Tables for commands: what `latently.tables` reads, with progress on the terminal."""

from __future__ import annotations

import atexit
import re
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from latently.core.words import shown

_MOST_NAMED = 8  # columns of a kind


def option(name, value):
    """An option as it is written on the command line."""
    return f"--{name.replace('_', '-')} {shown(value) if value != '...' else value}"


def open_table(path, reading, voice):
    """The table in a file or folder; reading it moves a progress bar."""
    from latently.tables.reading import table_of

    paths = [path] if isinstance(path, str) or not isinstance(path, list | tuple) else list(path)
    table = table_of([_given(one) for one in paths], reading, option)

    def frames(missing=(), texts=(), moved=None):
        with voice.bar(f"Reading {table.path.name}", table.size) as moved:
            yield from table.frames(missing, texts, moved)

    return replace(table, frames=frames)


def choice_of(request, model, *, decides=False):
    """What the user says about columns; with `decides` these tell whether a mixed model is needed."""
    from latently.tables.columns import Choice
    from latently.tables.preparing import takes_binary, takes_kinds

    return Choice(
        tuple(request.columns),
        tuple(request.without),
        tuple(request.as_is),
        model is not None and takes_binary(model.name),
        option,
        kinds=request.kinds,
        takes_kinds=None if decides else model is not None and takes_kinds(model.name),
    )


def kinds_in_words(record):
    """The kinds of the columns, each with its names."""
    names: dict[str, list[str]] = {}
    for name in record.columns:
        kind = record.kind_of(name)
        what = f"{shown(name)} ({len(kind.levels)} levels)" if kind.levels else shown(name)
        names.setdefault(kind.name, []).append(what)
    parts = []
    for kind, own in names.items():
        noun = {"category": "categories", "ordinal": "ordered answers"}.get(kind, f"{kind}s")
        more = f" and {len(own) - _MOST_NAMED} more" if len(own) > _MOST_NAMED else ""
        parts.append(f"{noun}: {', '.join(own[:_MOST_NAMED])}{more}")
    return "; ".join(parts)


_STANDARD_INPUT: dict[str, str] = {}  # the file that holds it, and what messages call it


def _given(path):
    """The path, or that of a file with the standard input for "-", which is read several times."""
    if str(path) != "-":
        return path
    if not _STANDARD_INPUT:
        if sys.stdin.isatty():
            raise ValueError("- reads a table from another program, as in: cat a.csv | latently fit -")
        folder = tempfile.mkdtemp(prefix="latently-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        file = Path(folder) / f"standard-input{_ending(start := sys.stdin.buffer.read(6))}"
        with file.open("wb") as target:
            target.write(start)
            shutil.copyfileobj(sys.stdin.buffer, target)
        _STANDARD_INPUT[str(file)] = "standard input"
    return next(iter(_STANDARD_INPUT))


def _ending(start):
    """That of a file that begins with these bytes."""
    kinds = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\x93NUMPY": ".npy", b"\x1f\x8b": ".csv.gz"}
    return next((ending for magic, ending in kinds.items() if start.startswith(magic)), ".csv")


def with_options(message):
    """A message about a parameter, with the option that sets it."""
    for parameter, short in (("n_components", "-k"), ("n_factors", "-q")):
        message = re.sub(rf"\b{parameter}\b(=\d+)?(?= must)", rf"\g<0> ({short})", message)
    return message


def true_names(text):
    """The text with the user's names of files that were made for reading."""
    for path, name in _STANDARD_INPUT.items():
        text = text.replace(path, name)
    return text


def size_of(text):
    """(height, width) of "WIDTHxHEIGHT"."""
    width, x, height = text.lower().partition("x")
    if not (
        x and width.isdecimal() and height.isdecimal() and 0 < int(width) <= 4096 and 0 < int(height) <= 4096
    ):
        raise ValueError(f"a size must have the form WIDTHxHEIGHT, such as 28x28, not {shown(text)}")
    return int(height), int(width)
