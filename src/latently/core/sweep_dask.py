"""Rows in Dask arrays and data frames, and sweeps over their partitions.

A partition is a recipe: its result can be lost with a worker and is recomputed. Only the parameters of a
sweep are scattered, under a new name each time, and sent again if they are lost. Partial sums are reduced in
a tree of fixed shape, so the result does not depend on which worker computed what, when, or how often.
Without a cluster the partitions are processed in this process, one after the other, with their rows
distributed over threads.

A thread of a worker processes one partition at a time on one core (or more: OMP_NUM_THREADS on the workers,
which Dask sets to 1, is the number of cores of a worker for all its threads together).
"""

# mypy: allow-untyped-calls
# (Dask is only partly annotated)

from __future__ import annotations

import copy
import ctypes
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import get_scheduler

from latently.backend import placement
from latently.backend.namespace import Array, to_numpy
from latently.core.block import Block
from latently.core.data import Data
from latently.core.frame import Frame
from latently.core.sources import Rows, RowWriter, ahead, block_numbers, real_dtype
from latently.core.sweep import LocalSweep
from latently.core.tree import add

PATIENCE = 600.0  # seconds without progress of the cluster after which a sweep fails,
NOTICE = 15.0  # and after which silent workers are told of
ATTEMPTS = 4  # attempts at a sweep when workers are lost with data that cannot be recomputed
FAN_IN = 8  # partial sums added in one task


class DaskData(Data):
    """The rows of a Dask array or data frame, with NumPy arrays of their weights, labels and states."""

    def __init__(self, X: Any):
        self.X = X
        self.in_memory = False
        self.fields = {}
        self.n_features, self.feature_names, self.dtype, counts = _described(X)
        self.client = _current_client()
        self._scheduler = get_scheduler(collections=[X])
        self._counts: list[int] | None = counts
        self._parts = [
            _task(_rows_of_partition, part, f"partition {i} of X", self.n_features, counts and counts[i])
            for i, part in enumerate(_partitions(X))
        ]
        self._held: list[tuple[Any, Any]] | None = None  # partitions and fields, on the cluster if they fit
        self._held_rows: dict[str, Any] = {}  # those partitions, shared by data that differ in fields only

    def with_field(self, name: str, array: Array | None) -> Data:
        data = super().with_field(name, array)
        assert isinstance(data, DaskData)
        data._held = None
        return data

    def followed_by(self, X: Rows, **fields: Array) -> Data:
        data = copy.copy(self)
        more = _task(_rows_of_partition, X, "rows added to X", self.n_features, len(X))
        data._parts, data._counts = [*self._parts, more], [*self._row_counts(), len(X)]
        data._held, data._held_rows = None, {}
        data.fields = {name: np.concatenate([self.fields[name], array]) for name, array in fields.items()}
        return data

    def count_rows(self) -> int:
        return sum(self._row_counts())

    def _row_counts(self) -> list[int]:
        """The number of rows of each partition, which some collections know only after computation."""
        if self._counts is None:
            counts = [_task(len, part) for part in self._parts]
            self._counts = list(self._in_order(counts, at_a_time=len(counts)))
        return self._counts

    def recipes(self) -> list[tuple[Any, Any]]:
        """The rows and fields of each partition, not computed yet."""
        return list(zip(self._parts, self._fields(), strict=True))

    def _fields(self) -> list[Any]:
        if not self.fields:
            return [{}] * len(self._parts)
        ends = np.cumsum(self._row_counts()).tolist()
        return [
            dask.delayed(
                {name: array[start:end] for name, array in self.fields.items()},
                pure=False,
                traverse=False,
            )
            for start, end in zip([0, *ends], ends, strict=False)
        ]

    def held(self) -> list[tuple[Any, Any]]:
        """The same as `recipes`, kept by the workers between sweeps: the rows if they take less than half of
        the memory of the cluster, the fields always."""
        if self._held is None:
            parts, fields = self._held_rows.get("rows", self._parts), self._fields()
            if not self._held_rows:
                n_bytes = self.count_rows() * self.n_features * self.dtype.itemsize
                workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
                if n_bytes < sum(worker["memory_limit"] or 0 for worker in workers) / 2:
                    parts = self.client.persist(parts)
                self._held_rows["rows"] = parts
            if not isinstance(fields[0], dict):
                with _large_graphs():
                    fields = self.client.persist(fields)
            self._held = list(zip(parts, fields, strict=True))
        return self._held

    def let_go(self) -> None:
        """Discard what the workers keep; it is recomputed on the next access."""
        self._held = None
        self._held_rows.clear()

    def blocks(self) -> Iterator[Block]:
        blocks = [_task(_block, *recipe) for recipe in self.recipes()]
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
            with _large_graphs():
                next_tasks = self.client.compute(tasks[i : i + at_a_time])
            while under_way:
                _wait(self.client, under_way[0])
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
            here = Data.sweep(
                self.data, self.frame, floats_per_row=self.floats_per_row, block_size=self.block_size
            )
            return here.reduce(fn, combine, *args)
        return _on_workers(self.data, self._pass(fn, combine, args))

    def sum(self, fn: Callable[..., Any], *args: Any) -> Any:
        """The sum of `fn(*args, block)` over all blocks; `fn` returns a record."""
        return self.reduce(fn, add, *args)

    def rows(self, fn: Callable[..., Array], *args: Any) -> Any:
        """`fn(*args, block)`, one row per row, as a lazy Dask array that is computed where the rows are.

        A generator in `args` provides a seed for each partition, so that the result is reproducible.
        """
        told = self._pass(fn, None, args)
        like = _rows_of_block(told, np.zeros(0), np.zeros((1, self.data.n_features)), {}, None)[:0]
        recipes, counts = self.data.recipes(), self.data._counts
        rngs = [arg for arg in args if isinstance(arg, np.random.Generator)]
        seeds = rngs[0].integers(2**63, size=(len(recipes), 2)).tolist() if rngs else [None] * len(recipes)
        shared = dask.delayed(told, pure=False, traverse=False)
        pieces = [
            da.from_delayed(
                _task(_rows_of_block, shared, like, *recipe, seed),
                shape=(np.nan if counts is None else counts[i], *like.shape[1:]),
                meta=like,
            )
            for i, (recipe, seed) in enumerate(zip(recipes, seeds, strict=True))
        ]
        return da.concatenate(pieces, axis=0)

    def _pass(self, fn: Callable[..., Any], combine: Any, args: tuple[Any, ...]) -> _Pass:
        return _Pass(fn, combine, args, self.frame, self.floats_per_row, self.block_size, np.geterr())


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


def _task(fn: Callable[..., Any], *args: Any) -> Any:
    """A call on a worker, under a new name, so that no earlier result is reused."""
    return dask.delayed(fn, pure=False)(*args)


def _large_graphs() -> Any:
    """Suppress Dask's warning about large objects in tasks; here they are weights or a model."""
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PB"})


# -- a sweep on a cluster: client side ---------------------------------------------------------------------


class _Lost(Exception):
    """Workers were lost with data that cannot be recomputed."""


def _on_workers(data: DaskData, told: _Pass) -> Any:
    from distributed import CancelledError, KilledWorker
    from distributed.comm import CommClosedError

    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _swept(data, told)
        except (_Lost, CancelledError, KilledWorker, CommClosedError) as error:
            if attempt == ATTEMPTS:
                raise RuntimeError(
                    f"workers were lost in each of {ATTEMPTS} attempts at one pass over the rows; their logs "
                    "(client.get_worker_logs()) may say why. The usual reason is memory, of which smaller "
                    "partitions take less"
                ) from error
            data.let_go()
            data.client.wait_for_workers(1, timeout=PATIENCE)


def _swept(data: DaskData, told: _Pass) -> Any:
    client = data.client
    try:
        # no broadcast: it hangs if a worker dies meanwhile; workers fetch it from each other
        shared = client.scatter([told], hash=False)[0]
    except OSError as error:  # connections and timeouts: no worker is available
        raise _Lost from error
    sums = [_task(_sum_of_block, shared, *recipe) for recipe in data.held()]
    while len(sums) > 1:
        sums = [_task(_sum_of_sums, shared, *sums[i : i + FAN_IN]) for i in range(0, len(sums), FAN_IN)]
    total = client.compute(sums[0])
    try:
        _wait(client, total)
        return copy.deepcopy(total.result())  # deserialised arrays may be read-only
    finally:
        total.release()
        shared.release()


def _wait(client: Any, future: Any) -> None:
    """Wait until the future is done, as long as the cluster makes progress; tell of silent workers."""
    from distributed import wait

    before, still, told = None, 0.0, False
    while True:
        pause = min(NOTICE, PATIENCE - still)
        try:
            wait(future, timeout=pause)
            return
        except TimeoutError:
            now, workers = client.run_on_scheduler(_progress, NOTICE)
            still = still + pause if now == before else 0.0
            before = now
            silent = [worker for worker in workers if worker.silent]
            if still >= PATIENCE:
                raise TimeoutError(
                    f"the cluster took no step for {PATIENCE:.0f} s{_listed(silent or workers)}. Workers "
                    "pause without a word when their memory is full, or wait for each other: look at "
                    f"{client.dashboard_link} and client.get_worker_logs(), and try smaller partitions or "
                    "more memory per worker"
                ) from None
            if silent and not told:
                told = True
                warnings.warn(
                    f"a pass over the rows waits{_listed(silent)}. A scheduler gives up a silent worker "
                    "after its worker-ttl and has others do its work; to end the wait now, stop that worker",
                    stacklevel=2,
                )


@dataclass(frozen=True)
class _Busy:
    """A worker that has something to do."""

    address: str
    n_tasks: int
    age: float  # seconds since it was heard of
    status: str
    silent: bool


def _listed(workers: list[_Busy]) -> str:
    each = [
        f"{one.address} (with {one.n_tasks} tasks, {one.status}, heard of {one.age:.0f} s ago)"
        for one in workers[:5]
    ]
    return f" for worker {', '.join(each)}" if each else ""


def _progress(notice: float, dask_scheduler: Any) -> tuple[int, list[_Busy]]:
    """The number of steps that the scheduler took, and the workers with tasks, the most silent first."""
    now, busy = time.time(), []
    for worker in dask_scheduler.workers.values():
        if worker.processing:
            age, status = now - worker.last_seen, worker.status.name
            silent = age > notice or status == "paused"
            busy.append(_Busy(worker.address, len(worker.processing), age, status, silent))
    return int(dask_scheduler.transition_counter), sorted(busy, key=lambda one: -one.age)


# -- a sweep on a cluster: worker side ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Pass:
    """Everything workers need for one pass over the rows."""

    fn: Callable[..., Any]
    combine: Any  # combines two partial results; None if there is one result per row
    args: tuple[Any, ...]
    frame: Frame | None
    floats_per_row: int
    block_size: int | None
    errors: Any  # handling of floating-point errors

    def over(self, block: Block, n_threads: int) -> LocalSweep:
        """The pass over some rows, in blocks that do not depend on the load of the worker."""
        most = placement.BLOCK_BYTES // (8 * self.floats_per_row)
        size = max(placement.SMALLEST_BLOCK, min(most, -(-len(block) // n_threads)))
        return LocalSweep(
            lambda: [block],
            self.frame,
            floats_per_row=self.floats_per_row,
            block_size=self.block_size or size,
            n_threads=n_threads,
        )


def _rows_of_partition(partition: Any, name: str, n_features: int, n_rows: int | None) -> Rows:
    """The partition as a numeric array, with NaN for missing entries."""
    n_found = np.shape(partition)[0]
    if n_rows is not None and n_found != n_rows:
        raise ValueError(f"{name} should have {n_rows} rows but has {n_found}")
    if n_found == 0:
        return np.zeros((0, n_features))
    rows = block_numbers(partition, name)[1]
    if rows.shape[1] != n_features:
        raise ValueError(f"{name} should have {n_features} columns but has {rows.shape[1]}")
    return np.ascontiguousarray(rows, dtype=real_dtype(rows.dtype, name))


def _block(X: Rows, fields: dict[str, Array]) -> Block:
    block = Block(X, **fields)
    if any(len(array) != len(X) for array in fields.values()):
        raise ValueError("a partition of X changed its number of rows between two passes")
    return block


def _sum_of_block(told: _Pass, X: Rows, fields: dict[str, Array]) -> Any:
    block = _block(X, fields)
    if len(block) == 0:
        return None
    _reuse_memory()
    with np.errstate(**told.errors):
        return told.over(block, _threads()).reduce(told.fn, told.combine, *told.args)


def _sum_of_sums(told: _Pass, *parts: Any) -> Any:
    """The parts combined in order, without modifying them, in case of a retry."""
    total = None
    for part in parts:
        if part is not None:
            total = copy.deepcopy(part) if total is None else told.combine(total, part)
    return total


def _rows_of_block(
    told: _Pass, empty: Rows, X: Rows, fields: dict[str, Array], seed: list[int] | None
) -> Rows:
    block = _block(X, fields)
    if len(block) == 0:
        return empty
    args = told.args
    if seed is not None:
        args = tuple(
            np.random.default_rng(seed) if isinstance(arg, np.random.Generator) else arg for arg in args
        )
    n_threads = _threads() if seed is None else 1  # with several threads the order of draws would be random
    _reuse_memory()
    with np.errstate(**told.errors):
        return np.concatenate([to_numpy(rows) for rows in told.over(block, n_threads).rows(told.fn, *args)])


_CORES_LOCK = threading.Lock()
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # constants of malloc.h


@cache
def _cores() -> int:
    return placement.row_threads()


def _threads() -> int:
    """Row threads of a task, given the other threads of its worker."""
    with _CORES_LOCK:  # determined before any task limits BLAS to one thread
        cores = _cores()
    try:
        from distributed import get_worker

        return max(1, cores // get_worker().state.nthreads)
    except (ImportError, ValueError):  # Dask's threads in this process, one partition each
        return 1


@cache
def _reuse_memory() -> None:
    """Reuse freed memory for the next blocks, as in processes not started by Dask.

    Dask sets MALLOC_TRIM_THRESHOLD_ for its workers, which disables the dynamic thresholds of glibc: each
    large array is then mapped and cleared by the system again, which takes as long as everything else. These
    are the values that glibc would reach; at most 64 MB stay allocated per thread.
    """
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ or sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 2**25)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**26)
