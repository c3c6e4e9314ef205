"""Checkpoints: the state of a run in a file, so that a killed fit can be resumed.

A checkpoint belongs to one fit: the same data and the same parameters. A fingerprint of these is stored with
the state and compared on reading.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import like, to_numpy
from latently.core import io
from latently.core.drivers import ObjectiveWorsened

_CURE = "delete the file to start again"


def whole_number(numbers: Mapping[str, Any], name: str) -> int:
    """A count in the numbers of a checkpoint; a ValueError if it is none."""
    value = numbers[name]
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError(f"{name} must be a count, not {value!r}")
    return value


class Checkpoint:
    """A file for the states of the fit identified by `belongs_to`."""

    def __init__(self, path: str | os.PathLike[str], belongs_to: dict[str, Any]):
        self.path = Path(path)
        self.belongs_to = belongs_to

    def write(self, records: dict[str, Any], history: list[float], numbers: dict[str, Any]) -> None:
        """Replace the file atomically: a fit killed at any time leaves a complete file."""
        arrays = {"history": np.asarray(history, dtype=np.float64)}
        for name, record in records.items():
            arrays.update(_flat(name, record))
        header = {"class": "checkpoint", "belongs_to": self.belongs_to, "numbers": numbers}
        io.write(self.path, header, arrays)

    def exists(self) -> bool:
        return self.path.exists()

    def read(
        self, templates: dict[str, Any], optional: Set[str] = frozenset()
    ) -> tuple[dict[str, Any], list[float], dict[str, Any]]:
        """What was written last, records shaped like the templates; those of `optional` may be missing."""
        header, arrays = io.read(self.path)
        if (read := _READ.get()) is not None:
            read.append(self.path)
        shown = f"checkpoint={str(self.path)!r}"
        if header.get("class") != "checkpoint":
            raise ValueError(f"{shown} is a model file, not a checkpoint; choose another path")
        theirs: Any = header.get("belongs_to")
        numbers: Any = header.get("numbers")
        history = arrays.get("history", np.zeros(()))
        told = isinstance(theirs, dict) and isinstance(numbers, dict)
        if not told or history.ndim != 1 or history.dtype != np.float64:
            raise ValueError(f"{shown} is no checkpoint of a fit; {_CURE}")
        other = [name for name, value in self.belongs_to.items() if theirs.get(name) != value]
        if other:
            raise ValueError(
                f"{shown} belongs to a fit with other {', '.join(other)}; {_CURE}, or choose another path"
            )
        with self.understood():
            present = [name for name in templates if name not in optional or _holds(arrays, name)]
            records = {name: _like(name, templates[name], arrays) for name in present}
            return records, list(map(float, history)), numbers

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays of the file by name."""
        return io.read(self.path)[1]

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Inside, what was read is taken apart; errors say that the file is no state of this fit."""
        try:
            yield
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            shown = f"checkpoint={str(self.path)!r}"
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            if shown in str(error):
                raise
            raise ValueError(f"{shown} does not fit this model: {reason}; {_CURE}") from None

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


_READ: ContextVar[list[Path] | None] = ContextVar("checkpoints read", default=None)


@contextmanager
def errors_name_checkpoints() -> Iterator[None]:
    """Inside, errors of a fit that went on from a checkpoint say so: its state may be to blame."""
    if _READ.get() is not None:  # a fit within a fit
        yield
        return
    read: list[Path] = []
    token = _READ.set(read)
    try:
        yield
    except (ObjectiveWorsened, ValueError, ArithmeticError) as error:
        unnamed = [repr(str(path)) for path in read if repr(str(path)) not in str(error)]
        if not unnamed:
            raise
        raise ValueError(
            f"{error} (the fit went on from checkpoint={unnamed[-1]}; if that is not from a fit to these "
            "rows, delete it to start again)"
        ) from error
    finally:
        _READ.reset(token)


def fingerprint(*values: Any) -> str:
    """A short fingerprint that differs if any array or number differs."""
    digest = hashlib.sha256()
    for value in values:
        array = np.ascontiguousarray(to_numpy(value) if hasattr(value, "shape") else value)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Maybe:
    """In a template: what may have been None when the record was written."""

    template: Any


def _holds(arrays: dict[str, Any], name: str) -> bool:
    return any(key == name or key.startswith(f"{name}.") for key in arrays)


def _flat(name: str, record: Any) -> dict[str, Any]:
    if record is None:
        return {}
    if dataclasses.is_dataclass(record):
        parts = [_flat(f"{name}.{f.name}", getattr(record, f.name)) for f in dataclasses.fields(record)]
        return {key: value for part in parts for key, value in part.items()}
    return {name: to_numpy(record)}


def _like(name: str, template: Any, arrays: dict[str, Any]) -> Any:
    if template is None:
        return None
    if isinstance(template, Maybe):
        return _like(name, template.template, arrays) if _holds(arrays, name) else None
    if dataclasses.is_dataclass(template):
        fields = dataclasses.fields(template)
        build: Any = type(template)
        return build(**{f.name: _like(f"{name}.{f.name}", getattr(template, f.name), arrays) for f in fields})
    array = arrays[name]
    if isinstance(template, (int, float)):
        if array.shape != () or np.isnan(array) or (np.isinf(array) and np.isfinite(template)):
            raise ValueError(f"{name} must be a finite number")
        return type(template)(array)
    form = tuple(template.shape), to_numpy(template).dtype.kind  # states of float32 rows are float32
    if (array.shape, array.dtype.kind) != form or not np.all(np.isfinite(array)):
        kind = "float" if form[1] == "f" else to_numpy(template).dtype
        raise ValueError(f"{name} must have shape {form[0]}, dtype {kind} and finite entries")
    return like(array, template)
