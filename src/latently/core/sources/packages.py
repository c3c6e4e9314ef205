"""Packages that are not always installed, and errors of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def package(name: str, extra: str, what: str) -> Any:
    """The package, or one of its modules, which `what` (a plural) need and which may not be installed."""
    try:
        return import_module(name)
    except ImportError as error:
        needed = name.partition(".")[0]
        raise ImportError(f"{what} need {needed}: pip install 'latently[{extra}]'") from error


@contextmanager
def errors_name(name: str, kind: str) -> Iterator[None]:
    """A reader's own error says which file it was reading, and as what."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{name} cannot be read as {kind}: {error}") from error
