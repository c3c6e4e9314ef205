"""Arithmetic on records: dataclasses whose fields are arrays, numbers or records again."""

from __future__ import annotations

import dataclasses
from typing import Any


def add(a: Any, b: Any) -> Any:
    """The field-by-field sum: statistics of two blocks become those of both."""
    if not dataclasses.is_dataclass(a):
        return a + b
    names = [field.name for field in dataclasses.fields(a)]
    record: Any = type(a)
    return record(**{name: add(getattr(a, name), getattr(b, name)) for name in names})
