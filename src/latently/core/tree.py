"""Arithmetic on records: dataclasses whose fields are arrays, numbers, records again, or None."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

Record = TypeVar("Record")


def add(total: Any, part: Any) -> Any:
    """`total` plus `part`, field by field: the sum of the statistics of two blocks. None is the empty sum.

    The arrays of `total` are overwritten, so that running sums of large statistics are not copied.
    """
    if total is None or part is None:
        return part if total is None else total
    if dataclasses.is_dataclass(total):
        record: Any = type(total)
        return record(
            **{name: add(getattr(total, name), getattr(part, name)) for name in field_names(record)}
        )
    total += part
    return total


def mapped(fn: Callable[[Any], Any], record: Any) -> Any:
    """The record with `fn` applied to every array or number in it."""
    if record is None:
        return None
    if dataclasses.is_dataclass(record):
        build: Any = type(record)
        return build(**{name: mapped(fn, getattr(record, name)) for name in field_names(build)})
    return fn(record)


def changed(record: Record, **fields: Any) -> Record:
    """The record with other values of some fields, as `dataclasses.replace` at a third of its cost."""
    kind: Any = type(record)
    values = vars(record)
    copy: Record = object.__new__(kind)
    vars(copy).update({name: values[name] for name in field_names(kind)}, **fields)
    return copy


@cache
def field_names(record: Any) -> tuple[str, ...]:
    """The names of the fields of a class of records."""
    return tuple(field.name for field in dataclasses.fields(record))
