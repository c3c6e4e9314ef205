"""What a worker does with a partition in a pass over the rows of a Dask collection.

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
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from latently.backend import placement
from latently.backend.namespace import Array, to_numpy
from latently.core.block import Block
from latently.core.frame import Frame
from latently.core.sources import Rows, block_numbers, real_dtype
from latently.core.sweep import LocalSweep


@dataclass(frozen=True)
class Pass:
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


def rows_of_partition(partition: Any, name: str, n_features: int, n_rows: int | None) -> Rows:
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


def block_of(X: Rows, fields: dict[str, Array], state: Array | None = None) -> Block:
    if state is not None:
        fields = {**fields, "state": state}
    block = Block(X, **fields)
    if any(len(array) != len(X) for array in fields.values()):
        raise ValueError("a partition of X changed its number of rows between two passes")
    return block


def sum_of_block(told: Pass, X: Rows, fields: dict[str, Array], state: Array | None = None) -> Any:
    block = block_of(X, fields, state)
    if len(block) == 0:
        return None
    _reuse_memory()
    with np.errstate(**told.errors):
        return told.over(block, _threads()).reduce(told.fn, told.combine, *told.args)


@dataclass(frozen=True)
class Moved:
    """What a pass that moves states has summed, and the size of the states."""

    sums: Any
    n_bytes: int


def moved_block(told: Pass, X: Rows, fields: dict[str, Array], state: Array) -> tuple[Moved | None, Array]:
    """The sums over a partition, and its new states."""
    block = block_of(X, fields, state)
    if len(block) == 0:
        return None, state
    _reuse_memory()
    with np.errstate(**told.errors):
        sums, state = told.over(block, _threads()).moved(told.fn, *told.args)
    return Moved(sums, state.nbytes), state


def only_states(fn: Callable[..., Array], args: tuple[Any, ...], block: Block) -> tuple[None, list[Array]]:
    """`fn(state, *args)`, which sums nothing."""
    return None, [fn(block.state, *args)]


def sum_of_sums(told: Pass, *parts: Any) -> Any:
    """The parts combined in order, without modifying them, in case of a retry."""
    total = None
    for part in parts:
        if part is not None:
            total = copy.deepcopy(part) if total is None else told.combine(total, part)
    return total


def rows_of_block(
    told: Pass,
    empty: Rows,
    seed: list[int] | None,
    X: Rows,
    fields: dict[str, Array],
    state: Array | None = None,
) -> Rows:
    block = block_of(X, fields, state)
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
