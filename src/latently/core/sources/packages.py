"""Packages that are not always installed, and errors of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any


def package(name: str, extra: str, files: str) -> Any:
    """The package, which is not among those that latently always needs."""
    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"{files} files need {package}: pip install 'latently[{extra}]'") from error


@contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """A reader's own error says which file it was reading."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error}") from error
