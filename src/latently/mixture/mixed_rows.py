"""Rows of mixed columns in memory, in files and on clusters, and how they become numbers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from latently.core.sources import RowSource, open_source, open_table
from latently.estimators.data import is_dask
from latently.mixture.column_kinds import encoded, is_table, n_rows_of


@dataclass(frozen=True)
class _InMemory:
    X: Any

    @property
    def plain(self):
        """Whether these are numbers without names, of which nothing says what they mean."""
        return not is_table(self.X)

    def parts(self):
        return [self.X]

    def with_weight(self, weight):
        """(n,) bool: the rows that count; None for all, also where the weights are none."""
        if weight is None or np.shape(weight) != (n_rows_of(self.X),):
            return None
        weight = np.asarray(weight)
        return weight > 0 if weight.dtype.kind in "biuf" and np.any(weight > 0) else None

    def mapped(self, columns, unseen):
        rows = encoded(self.X, columns, unseen)
        return rows if self.plain else _framed(rows, columns)


@dataclass(frozen=True)
class _OfDask:
    X: Any  # a data frame of Dask
    plain: bool = False

    def with_weight(self, weight):
        return None  # rows are not taken apart: a level that only rows without weight have is one as well

    def parts(self):
        return (part.compute() for part in self.X.partitions)

    def mapped(self, columns, unseen):
        meta = _framed(np.zeros((0, len(columns))), columns)
        return self.X.map_partitions(_mapped_part, columns, unseen, meta=meta)


@dataclass(frozen=True)
class _OfDaskArray:
    X: Any  # rows of numbers without names
    plain: bool = True

    with_weight = _OfDask.with_weight

    @property
    def _rows(self):
        return self.X.rechunk({1: -1})

    def parts(self):
        return (part.compute() for part in self._rows.blocks)

    def mapped(self, columns, unseen):
        return self._rows.map_blocks(encoded, columns, unseen, dtype=np.float64)


def _mapped_part(part, columns, unseen):
    return _framed(encoded(part, columns, unseen), columns).set_index(part.index)


@dataclass(frozen=True)
class _OutOfCore:
    name: str
    n_rows: int | None
    feature_names: Any  # None for numbers without names
    parts: Any

    @property
    def plain(self):
        return self.feature_names is None

    with_weight = _OfDask.with_weight

    def mapped(self, columns, unseen):
        read = lambda: (encoded(part, columns, unseen) for part in self.parts())
        return RowSource(self.name, len(columns), self.n_rows, self.feature_names, read)


def rows_in(X):
    """The rows in one of the forms above; None for tensors and others, which hold numbers only."""
    if is_table(X) or (isinstance(X, np.ndarray) and X.ndim == 2 and X.size):
        return _InMemory(X)
    if is_dask(X):
        if hasattr(X, "partitions") and hasattr(X, "columns"):
            return _OfDask(X)
        return _OfDaskArray(X) if getattr(X, "ndim", 0) == 2 else None
    if isinstance(X, (str, os.PathLike)):
        table = open_table(X)
        if table.named and table.array_shape is None:
            return _OutOfCore(table.name, table.n_rows, table.columns, table.frames)
    source = open_source(X)
    return None if source is None else _OutOfCore("X", source.n_rows, source.feature_names, source.chunks)


def _framed(rows, columns):
    """The numbers as a data frame, with the names of the columns."""
    names = [str(column.name) for column in columns]
    try:
        return import_module("pandas").DataFrame(rows, columns=names, copy=False)
    except ImportError:
        raise ImportError("tables of mixed columns need pandas: pip install 'latently[csv]'") from None
