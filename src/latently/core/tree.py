"""Arithmetic on records: dataclasses whose fields are arrays, numbers or records again."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

Record = TypeVar("Record")


def add(a: Record, b: Record) -> Record:
    """The field-by-field sum: statistics of two blocks become those of both."""
    return _combine(a, b)


def _combine(a: Any, b: Any) -> Any:
    if dataclasses.is_dataclass(a):
        sums = {f.name: _combine(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a)}
        return dataclasses.replace(a, **sums)  # type: ignore[type-var]
    return a + b
