"""Blocks of rows, from a list, a function or an iterable: arrays, data frames, tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from latently.backend.namespace import to_numpy, without_mask
from latently.core.sources.chunks import Rows, check_shape, real_dtype, rechunked
from latently.core.sources.source import RowSource, Source


def array_like(X: Any) -> bool:
    return any(hasattr(X, name) for name in ("shape", "dtype", "__array__", "__dataframe__"))


def looks_like_a_block(item: Any) -> bool:
    return not of_dask(item) and len(getattr(item, "shape", ())) == 2


def of_dask(X: Any) -> bool:
    """Whether this is a Dask collection; asking it for attributes could already start work."""
    return type(X).__module__.startswith("dask")


def block_source(X: Any) -> Source:
    """The source for a function that returns an iterator over 2-D blocks, or for an iterable of them."""
    blocks = _started(X)
    first = next(_numbers_of(blocks), None)
    if first is None:
        raise ValueError("the blocks are empty: not one has a row")
    if hasattr(blocks, "close"):
        blocks.close()
    names, rows = first
    known = isinstance(X, Sequence) and all(map(looks_like_a_block, X))
    n_rows = sum(len(block) for block in X) if known else None
    read = _BlockReader(X, names, rows.shape[1], blocks)
    return RowSource("the sequence of blocks", rows.shape[1], n_rows, names, read)


def _started(X: Any) -> Any:
    """A new iterator over the blocks."""
    made = X if isinstance(X, Iterable) else X()
    if not isinstance(made, Iterable) or array_like(made):
        raise TypeError(
            f"a function given as data must return an iterator over blocks, not {type(made).__name__}"
        )
    return iter(made)


@dataclass
class _BlockReader:
    X: Any
    names: list[str] | None
    n_features: int
    first_iterator: Any  # of which a block was read to learn the number of columns

    def __call__(self) -> Iterator[Rows]:
        blocks = _started(self.X)
        if blocks is self.first_iterator:
            raise TypeError(
                "the same iterator came back when the blocks were to be read again: make a new one"
            )
        try:
            yield from rechunked(self._checked(blocks), self.n_features)
        finally:
            if hasattr(blocks, "close"):
                blocks.close()

    def _checked(self, blocks: Iterator[Any]) -> Iterator[Rows]:
        for names, rows in _numbers_of(blocks, self.n_features):
            if names != self.names:
                raise ValueError(f"the blocks differ in column names: {self.names}, then {names}")
            yield rows


def _numbers_of(
    blocks: Iterator[Any], n_features: int | None = None
) -> Iterator[tuple[list[str] | None, Rows]]:
    """Column names and values of every block that has rows."""
    for i, block in zip(count(), blocks, strict=False):
        name = f"block {i}"
        names, rows = block_numbers(block, name)
        if len(rows) == 0:
            continue
        if n_features is not None and rows.shape[1] != n_features:
            raise ValueError(f"{name} has {rows.shape[1]} columns, but the first block has {n_features}")
        yield names, rows


def block_numbers(block: Any, name: str) -> tuple[list[str] | None, Rows]:
    """Column names, if they are strings, and values of a block."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(block, pandas.DataFrame):
        return _frame_numbers(block, name)
    if hasattr(block, "toarray"):
        raise TypeError(f"{name} is sparse; give dense blocks, as by its toarray()")
    if isinstance(block, str | bytes | Mapping | Set) or not (
        array_like(block) or isinstance(block, Sequence)
    ):
        raise TypeError(f"{name} is of type {type(block).__name__}, not an array")
    names = list(getattr(block, "columns", [])) or None  # polars
    try:
        rows = to_numpy(without_mask(block))
    except ValueError as error:  # a ragged list
        raise ValueError(f"{name} is no 2-D array: {error}") from error
    if rows.shape[:1] != (0,):
        check_shape(rows.shape, name)
        real_dtype(rows.dtype, name)
    return names, rows


def _frame_numbers(frame: Any, name: str) -> tuple[list[str] | None, Rows]:
    names = list(frame.columns)
    for column, dtype in zip(names, frame.dtypes, strict=True):
        if dtype.kind not in "biuf" and len(frame) > 0:
            raise ValueError(
                f"column {column!r} of {name} holds values of type {dtype}; real numbers are needed"
            )
    kinds = set(frame.dtypes)
    plain = len(kinds) == 1 and isinstance(next(iter(kinds)), np.dtype)  # all columns of one NumPy type
    rows = frame.to_numpy() if plain else frame.to_numpy(dtype=np.float64, na_value=np.nan)
    if len(rows) > 0:
        check_shape(rows.shape, name)
    return names if all(isinstance(column, str) for column in names) else None, rows
