"""Passes over the partitions of a Dask collection on a cluster, as the process sees them that calls `fit`.

A partition is a recipe: its result can be lost with a worker and is recomputed. Only the parameters of a
sweep are scattered, under a new name each time, and sent again if they are lost. Partial sums are reduced in
a tree of fixed shape, so the result does not depend on which worker computed what, when, or how often.
States of rows stay with the workers; those that are lost are made again by the same passes.
"""

# mypy: allow-untyped-calls
# (Dask is only partly annotated)

from __future__ import annotations

import copy
import pickle
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import Array
from latently.core.partitions import Moved, Pass, moved_block, only_states, sum_of_block, sum_of_sums
from latently.core.tree import add

PATIENCE = 600.0  # seconds without progress of the cluster after which a sweep fails,
NOTICE = 15.0  # and after which silent workers are told of
ATTEMPTS = 4  # attempts at a sweep when workers are lost with data that cannot be recomputed
FAN_IN = 8  # partial sums added in one task


def task(fn: Callable[..., Any], *args: Any) -> Any:
    """A call on a worker, under a new name, so that no earlier result is reused."""
    return dask.delayed(fn, pure=False)(*args)


def literal(value: Any) -> Any:
    """A value of this process for tasks."""
    return dask.delayed(value, pure=False, traverse=False)


def large_graphs() -> Any:
    """Suppress Dask's warning about large objects in tasks; here they are weights, states or a model."""
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PB"})


# -- a pass ------------------------------------------------------------------------------------------------


class Lost(Exception):
    """Workers were lost with data that cannot be recomputed."""


def on_workers(data: Any, compute: Callable[[], Any]) -> Any:
    """What `compute()` gives, tried again if workers are lost; `data` discards what they kept of it."""
    from distributed import CancelledError, KilledWorker
    from distributed.comm import CommClosedError

    for attempt in range(1, ATTEMPTS + 1):
        try:
            return compute()
        except (Lost, CancelledError, KilledWorker, CommClosedError) as error:
            if attempt == ATTEMPTS:
                raise RuntimeError(
                    f"workers were lost in each of {ATTEMPTS} attempts at one pass over the rows; their logs "
                    "(client.get_worker_logs()) may say why. The usual reason is memory, of which smaller "
                    "partitions take less"
                ) from error
            data.let_go()
            data.client.wait_for_workers(1, timeout=PATIENCE)


def summed(data: Any, told: Pass) -> Any:
    """The sum of the pass over all partitions."""
    shared = _scattered(data.client, told)
    sums = _tree(shared, [task(sum_of_block, shared, *recipe) for recipe in data.held()])
    (total,) = _computed(data.client, shared, sums)
    return total


def moved(data: Any, told: Pass) -> tuple[Any, States]:
    """The sum of a pass that moves the states of all rows, and the new states."""
    shared = _scattered(data.client, told)
    pairs = [task(moved_block, shared, *recipe) for recipe in data.held()]
    sums = _tree(shared, [task(_first, pair) for pair in pairs])
    total, *pieces = _computed(data.client, shared, sums, *(task(_second, pair) for pair in pairs))
    return total.sums, data.states.after(told, pieces, total)


def _scattered(client: Any, told: Pass) -> Any:
    """The pass on one worker, from which others fetch it: to send it to all hangs if one dies meanwhile.

    A worker that does not take it holds up the others no longer than any step of the cluster may take.
    """
    workers, waited = None, 0.0

    def scatter() -> Any:
        return client.scatter([told], workers=workers, hash=False, asynchronous=True)

    while True:
        pause = min(NOTICE, PATIENCE - waited)
        try:
            return client.sync(scatter, callback_timeout=pause)[0]
        except TimeoutError:
            waited += pause
            heard = client.run_on_scheduler(_last_heard)
            if not heard:
                raise Lost from None
            if waited >= PATIENCE:
                raise TimeoutError(_stuck(client, heard[-1:])) from None
            workers = [heard[0].address]
        except OSError as error:  # connections: no worker is available
            raise Lost from error


def _tree(shared: Any, sums: list[Any]) -> Any:
    while len(sums) > 1:
        sums = [task(sum_of_sums, shared, *sums[i : i + FAN_IN]) for i in range(0, len(sums), FAN_IN)]
    return sums[0]


def _computed(client: Any, shared: Any, total: Any, *kept: Any) -> list[Any]:
    """The value of the first task, and the others as futures: their values stay with the workers."""
    with large_graphs():
        total, *pieces = client.compute([total, *kept])
    try:
        wait_for(client, [total, *pieces])
        value = copy.deepcopy(total.result())  # deserialised arrays may be read-only
        if any(piece.status != "finished" for piece in pieces):
            raise Lost
        return [value, *pieces]
    finally:
        total.release()
        shared.release()


def _first(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def _second(pair: tuple[Any, Any]) -> Any:
    return pair[1]


class States:
    """(N, m): a state of every row, a piece for each partition, kept by the workers.

    Pieces that were lost are made again, bit for bit: by the same passes, from where these began. When the
    passes take more memory than the states, these come to the calling process instead.
    """

    def __init__(self, data: Any, begin: Array):
        self.data = data  # the rows, without states
        self.begin = begin
        self.passes: tuple[Pass, ...] = ()
        self._size = 0  # of the passes, in bytes
        self._pieces: list[Any] | None = None

    def pieces(self) -> list[Any]:
        """Futures of all pieces, in order."""
        if self._pieces is None:
            recipes, client = self.data.held(), self.data.client
            pieces = [literal(part) for part in self.data.split(self.begin)]
            for told in self.passes:
                shared = literal(told)
                pairs = (
                    task(moved_block, shared, *recipe, piece)
                    for recipe, piece in zip(recipes, pieces, strict=True)
                )
                pieces = [task(_second, pair) for pair in pairs]
            with large_graphs():
                self._pieces = client.compute(pieces)
            wait_for(client, self._pieces)
        return self._pieces

    def let_go(self) -> None:
        """Discard what the workers keep."""
        self._pieces = None
        self.data.let_go()

    def after(self, told: Pass, pieces: list[Any], moved: Moved) -> States:
        """The states after another pass."""
        there = States(self.data, self.begin)
        there.passes, there._pieces = (*self.passes, told), pieces
        there._size = self._size + len(pickle.dumps(told.args))
        if there._size > moved.n_bytes:
            there.begin, there.passes, there._size = there.here(), (), 0
        return there

    def mapped(self, fn: Callable[..., Array], *args: Any) -> States:
        """`fn(state, *args)` of all pieces."""
        told = Pass(only_states, add, (fn, args), None, 64, None, np.geterr())
        rows = self.data.with_field("state", self)
        there: States = on_workers(rows, lambda: moved(rows, told))[1]
        return there

    def here(self) -> NDArray[Any]:
        """All of them, in the calling process."""
        parts = on_workers(self, self._parts)
        return np.concatenate([part for part in parts if len(part)])

    def _parts(self) -> list[Any]:
        pieces = self.pieces()
        wait_for(self.data.client, pieces)
        return [piece.result() for piece in pieces]

    @property
    def client(self) -> Any:
        return self.data.client

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.here(), dtype=dtype)


# -- waiting -----------------------------------------------------------------------------------------------


def wait_for(client: Any, futures: Any) -> None:
    """Wait until the futures are done, as long as the cluster makes progress; tell of silent workers."""
    from distributed import wait

    before, still, told = None, 0.0, False
    while True:
        pause = min(NOTICE, PATIENCE - still)
        try:
            wait(futures, timeout=pause)
            return
        except TimeoutError:
            now, workers = client.run_on_scheduler(_progress, NOTICE)
            still = still + pause if now == before else 0.0
            before = now
            silent = [worker for worker in workers if worker.silent]
            if still >= PATIENCE:
                raise TimeoutError(_stuck(client, silent or workers)) from None
            if silent and not told:
                told = True
                warnings.warn(
                    f"a pass over the rows waits{_listed(silent)}. A scheduler gives up a silent worker "
                    "after its worker-ttl and has others do its work; to end the wait now, stop that worker",
                    stacklevel=2,
                )


@dataclass(frozen=True)
class _Busy:
    """A worker, and what it has to do."""

    address: str
    n_tasks: int
    age: float  # seconds since it was heard of
    status: str
    silent: bool


def _stuck(client: Any, workers: list[_Busy]) -> str:
    return (
        f"the cluster took no step for {PATIENCE:.0f} s{_listed(workers)}. Workers pause without a word when "
        f"their memory is full, or wait for each other: look at {client.dashboard_link} and "
        "client.get_worker_logs(), and try smaller partitions or more memory per worker"
    )


def _listed(workers: list[_Busy]) -> str:
    each = [
        f"{one.address} (with {one.n_tasks} tasks, {one.status}, heard of {one.age:.0f} s ago)"
        for one in workers[:5]
    ]
    return f" for worker {', '.join(each)}" if each else ""


def _progress(notice: float, dask_scheduler: Any) -> tuple[int, list[_Busy]]:
    """The number of steps that the scheduler took, and the workers with tasks, the most silent first."""
    busy = [_worker(one, notice) for one in dask_scheduler.workers.values() if one.processing]
    return int(dask_scheduler.transition_counter), sorted(busy, key=lambda one: -one.age)


def _last_heard(dask_scheduler: Any) -> list[_Busy]:
    """All workers, the most silent last."""
    return sorted((_worker(one, 0.0) for one in dask_scheduler.workers.values()), key=lambda one: one.age)


def _worker(worker: Any, notice: float) -> _Busy:
    age, status = time.time() - worker.last_seen, worker.status.name
    silent = age > notice or status == "paused"
    return _Busy(worker.address, len(worker.processing), age, status, silent)
