"""Arithmetic on records: dataclasses whose fields are arrays, numbers or records again."""

from __future__ import annotations

import dataclasses
from typing import Any


def add(total: Any, part: Any) -> Any:
    """`total` plus `part`, field by field: statistics of two blocks become those of both.

    The arrays of `total` are used up: a running sum of large statistics is not copied at every block.
    """
    if dataclasses.is_dataclass(total):
        names = [field.name for field in dataclasses.fields(total)]
        record: Any = type(total)
        return record(**{name: add(getattr(total, name), getattr(part, name)) for name in names})
    total += part
    return total
