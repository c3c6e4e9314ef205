"""Rows in Dask arrays and data frames, and sweeps over their partitions, on a cluster if there is one.

Without a cluster the partitions are processed in this process, one after the other, with their rows
distributed over threads.
"""

# mypy: allow-untyped-calls
# (Dask is only partly annotated)

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import get_scheduler

from latently.backend import placement
from latently.backend.namespace import Array
from latently.core import cluster
from latently.core.block import Block
from latently.core.cluster import States, large_graphs, literal, task, wait_for
from latently.core.data import Data
from latently.core.frame import Frame
from latently.core.partitions import Pass, block_of, rows_of_block, rows_of_partition
from latently.core.sources import Rows, RowWriter, ahead, real_dtype
from latently.core.tree import add


class DaskData(Data):
    """The rows of a Dask array or data frame, with NumPy arrays of their weights and labels.

    States are an array without a cluster, and `States` with one.
    """

    def __init__(self, X: Any):
        self.X = X
        self.in_memory = False
        self.fields = {}
        self.n_features, self.feature_names, self.dtype, counts = _described(X)
        self.client = _current_client()
        self._scheduler = get_scheduler(collections=[X])
        self._counts: list[int] | None = counts
        self._parts = [
            task(rows_of_partition, part, f"partition {i} of X", self.n_features, counts and counts[i])
            for i, part in enumerate(_partitions(X))
        ]
        self.states: States | None = None
        # on the cluster, if it has room, shared by data that differ in other things only
        self._held_rows: dict[str, Any] = {}
        self._held_fields: dict[str, Any] = {}

    def with_field(self, name: str, array: Any) -> Data:
        if name == "state" and self.client is not None:
            with_states = copy.copy(self)
            known = array is None or isinstance(array, States)
            with_states.states = array if known else States(self.stateless(), array)
            return with_states
        data = super().with_field(name, array)
        assert isinstance(data, DaskData)
        data._held_fields = {}
        return data

    def stateless(self) -> DaskData:
        """The same rows without states."""
        data = copy.copy(self)
        data.states = None
        return data

    def followed_by(self, X: Rows, **fields: Array) -> Data:
        data = copy.copy(self)
        more = task(rows_of_partition, X, "rows added to X", self.n_features, len(X))
        data._parts, data._counts = [*self._parts, more], [*self._row_counts(), len(X)]
        data.states, data._held_rows, data._held_fields = None, {}, {}
        data.fields = {name: np.concatenate([self.fields[name], array]) for name, array in fields.items()}
        return data

    def count_rows(self) -> int:
        return sum(self._row_counts())

    def _row_counts(self) -> list[int]:
        """The number of rows of each partition, which some collections know only after computation."""
        if self._counts is None:
            counts = [task(len, part) for part in self._parts]
            self._counts = list(self._in_order(counts, at_a_time=len(counts)))
        return self._counts

    def recipes(self) -> list[tuple[Any, ...]]:
        """The rows, fields and states of each partition, not computed yet."""
        return self._with_states(self._parts, self._fields())

    def _with_states(self, parts: list[Any], fields: list[Any]) -> list[tuple[Any, ...]]:
        states = () if self.states is None else (self.states.pieces(),)
        return list(zip(parts, fields, *states, strict=True))

    def _fields(self) -> list[Any]:
        if not self.fields:
            return [{}] * len(self._parts)
        arrays = {name: self.split(array) for name, array in self.fields.items()}
        return [
            literal(dict(zip(arrays, parts, strict=True))) for parts in zip(*arrays.values(), strict=True)
        ]

    def split(self, array: Array) -> list[Array]:
        """An array with an entry for each row, in parts for the partitions."""
        ends = np.cumsum(self._row_counts()).tolist()
        return [array[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def held(self) -> list[tuple[Any, ...]]:
        """The same as `recipes`, kept by the workers between sweeps: the rows if they take less than half of
        the memory of the cluster, fields and states always."""
        if not self._held_rows:
            parts = self._parts
            n_bytes = self.count_rows() * self.n_features * self.dtype.itemsize
            workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
            if n_bytes < sum(worker["memory_limit"] or 0 for worker in workers) / 2:
                parts = self.client.persist(parts)
            self._held_rows["rows"] = parts
        if not self._held_fields:
            fields = self._fields()
            if self.fields:
                with large_graphs():
                    fields = self.client.persist(fields)
            self._held_fields["fields"] = fields
        return self._with_states(self._held_rows["rows"], self._held_fields["fields"])

    def let_go(self) -> None:
        """Discard what the workers keep; it is recomputed on the next access."""
        self._held_rows.clear()
        self._held_fields.clear()
        if self.states is not None:
            self.states.let_go()

    def blocks(self) -> Iterator[Block]:
        blocks = [task(block_of, *recipe) for recipe in self.recipes()]
        at_a_time = (
            1 if self.client is None else self._n_threads()
        )  # locally memory is limited; on a cluster it is that of the workers
        for block in self._in_order(blocks, at_a_time):
            if len(block):
                yield block

    def _in_order(self, tasks: list[Any], at_a_time: int) -> Iterator[Any]:
        """Results of the tasks in order; the next ones are computed while some are in use."""
        if self.client is None:
            groups = (tasks[i : i + at_a_time] for i in range(0, len(tasks), at_a_time))
            yield from ahead(
                value for group in groups for value in dask.compute(*group, scheduler=self._scheduler)
            )
            return
        under_way: list[Any] = []
        for i in range(0, len(tasks) + at_a_time, at_a_time):
            with large_graphs():
                next_tasks = self.client.compute(tasks[i : i + at_a_time])
            while under_way:
                wait_for(self.client, under_way[0])
                yield under_way.pop(0).result()
            under_way = next_tasks

    def _n_threads(self) -> int:
        """Number of tasks that can run in parallel."""
        return (
            placement.row_threads() if self.client is None else max(1, sum(self.client.nthreads().values()))
        )

    def collected(self, pieces: Any, out: str | os.PathLike[str] | None) -> Array:
        """The pieces as a Dask array; or written to a .npy file, which is memory-mapped."""
        if out is None:
            return pieces
        with RowWriter(out) as file:
            for piece in self._in_order(list(pieces.to_delayed().ravel()), at_a_time=self._n_threads()):
                file.write(piece)
        return np.load(out, mmap_mode="r")

    def sweep(self, frame: Frame | None, *, floats_per_row: int, block_size: int | None) -> DaskSweep:
        return DaskSweep(self, frame, floats_per_row, block_size)


@dataclass(frozen=True)
class DaskSweep:
    """Passes over the rows of a Dask collection."""

    data: DaskData
    frame: Frame | None
    floats_per_row: int
    block_size: int | None

    def reduce(self, fn: Callable[..., Any], combine: Callable[[Any, Any], Any], *args: Any) -> Any:
        """`fn(*args, block)` of all blocks, combined in order, without rows that do not contribute."""
        if self.data.client is None:
            return self._here().reduce(fn, combine, *args)
        told = self._pass(fn, combine, args)
        return cluster.on_workers(self.data, lambda: cluster.summed(self.data, told))

    def sum(self, fn: Callable[..., Any], *args: Any) -> Any:
        """The sum of `fn(*args, block)` over all blocks; `fn` returns a record."""
        return self.reduce(fn, add, *args)

    def moved(self, fn: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
        """The sums of a pass that moves the states of the rows, and the states, where they are."""
        if self.data.client is None:
            here: tuple[Any, Any] = self._here().moved(fn, *args)
            return here
        told = self._pass(fn, add, args)
        found: tuple[Any, Any] = cluster.on_workers(self.data, lambda: cluster.moved(self.data, told))
        return found

    def _here(self) -> Any:
        """The sweep in this process."""
        return Data.sweep(
            self.data, self.frame, floats_per_row=self.floats_per_row, block_size=self.block_size
        )

    def rows(self, fn: Callable[..., Array], *args: Any) -> Any:
        """`fn(*args, block)`, one row per row, as a lazy Dask array that is computed where the rows are.

        A generator in `args` provides a seed for each partition, so that the result is reproducible.
        """
        told = self._pass(fn, None, args)
        like = rows_of_block(told, np.zeros(0), None, np.zeros((1, self.data.n_features)), {})[:0]
        recipes, counts = self.data.recipes(), self.data._counts
        rngs = [arg for arg in args if isinstance(arg, np.random.Generator)]
        seeds = rngs[0].integers(2**63, size=(len(recipes), 2)).tolist() if rngs else [None] * len(recipes)
        shared = literal(told)
        pieces = [
            da.from_delayed(
                task(rows_of_block, shared, like, seed, *recipe),
                shape=(np.nan if counts is None else counts[i], *like.shape[1:]),
                meta=like,
            )
            for i, (recipe, seed) in enumerate(zip(recipes, seeds, strict=True))
        ]
        return da.concatenate(pieces, axis=0)

    def _pass(self, fn: Callable[..., Any], combine: Any, args: tuple[Any, ...]) -> Pass:
        return Pass(fn, combine, args, self.frame, self.floats_per_row, self.block_size, np.geterr())


# -- validation before any computation ---------------------------------------------------------------------


def _described(X: Any) -> tuple[int, list[str] | None, np.dtype[Any], list[int] | None]:
    """Number and names of the columns, their dtype, and the number of rows of each partition if known."""
    is_array = isinstance(X, da.Array)
    if not is_array and not hasattr(type(X), "columns"):
        raise ValueError(f"X must be an array or a data frame, not a {type(X).__name__} of Dask")
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead; reshape X to rows and features")
    names, counts = None, None
    if is_array:
        dtype = real_dtype(X.dtype, "X")
        if np.isnan(X.shape[1]):
            raise ValueError("the number of columns of X is not known; X.compute_chunk_sizes() finds it out")
        counts = None if any(map(np.isnan, X.chunks[0])) else [int(n) for n in X.chunks[0]]
    else:
        names = list(X.columns)
        for name, kind in zip(names, X.dtypes, strict=True):
            if kind.kind not in "biuf":
                raise ValueError(f"column {name!r} of X holds values of type {kind}; real numbers are needed")
        names = names if all(isinstance(name, str) for name in names) else None
        dtype = np.dtype(np.float64)
    D = int(X.shape[1])
    if D == 0 or (counts is not None and not any(counts)):
        raise ValueError(f"X is empty: it has no {'columns' if D == 0 else 'rows'}")
    return D, names, dtype, counts


def _partitions(X: Any) -> list[Any]:
    """Delayed partitions, all columns in each."""
    if not isinstance(X, da.Array):
        return list(X.to_delayed())
    return list((X.rechunk({1: -1}) if X.numblocks[1] > 1 else X).to_delayed().ravel())


def _current_client() -> Any:
    """The client that Dask would use; None if it would compute in this process."""
    get = get_scheduler()
    client = getattr(get, "__self__", None)
    return client if hasattr(client, "scatter") else None
