"""Arithmetic on records: dataclasses whose fields are arrays, numbers, records again, or None."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


def add(total: Any, part: Any) -> Any:
    """`total` plus `part`, field by field: the sum of the statistics of two blocks. None is the empty sum.

    The arrays of `total` are overwritten, so that running sums of large statistics are not copied.
    """
    if total is None or part is None:
        return part if total is None else total
    if dataclasses.is_dataclass(total):
        names = [field.name for field in dataclasses.fields(total)]
        record: Any = type(total)
        return record(**{name: add(getattr(total, name), getattr(part, name)) for name in names})
    total += part
    return total


def mapped(fn: Callable[[Any], Any], record: Any) -> Any:
    """The record with `fn` applied to every array or number in it."""
    if record is None:
        return None
    if dataclasses.is_dataclass(record):
        fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
        build: Any = type(record)
        return build(**{name: mapped(fn, value) for name, value in fields.items()})
    return fn(record)
