"""Threads over rows, block sizes, and the limit of one BLAS thread.

Threads over row blocks with one BLAS thread each are faster than a multi-threaded BLAS, and do not degrade
when the machine is shared.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from typing import Any

import joblib
import numpy as np
import threadpoolctl
from threadpoolctl import ThreadpoolController

from latently.backend.namespace import Array, is_torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

BLOCK_BYTES = 48_000_000  # memory of a block with its temporaries: bounded memory, large products
DEVICE_BLOCK_BYTES = 8_000_000_000  # large blocks keep an accelerator busy
_MOST_BLOCKS = 8  # beside a copy of the rows as kernels need them: smaller ones cost more than it saves
_LARGEST_KEPT = (32 << 20) - (1 << 14)  # bytes; glibc adapts its threshold to arrays below 32 MB
SMALL_BYTES = 2_000_000  # of a table with its temporaries, which one thread processes in a millisecond or two
_LIMITS_OF_GROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of Linux
SMALLEST_BLOCK = 256  # rows; below this a second thread does not pay off


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@cache
def _cores() -> int:
    return int(joblib.cpu_count())  # cached: it reads files, a tenth of a millisecond


def row_threads() -> int:
    """As many threads as BLAS would use, so that OMP_NUM_THREADS and joblib workers are respected."""
    allowed = [library["num_threads"] for library in _blas().info()]
    return int(max(1, min([_cores(), *allowed])))


def memory_bytes() -> float:
    """The memory of this machine, or as much of it as this process may take."""
    limits = [float("inf")]
    with suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in _LIMITS_OF_GROUPS:
        with suppress(OSError, ValueError), open(path) as file:
            limits.append(int(file.read()))  # or "max"
    if resource is not None and (allowed := resource.getrlimit(resource.RLIMIT_AS)[0]) > 0:
        limits.append(allowed)
    return min(limits)


class _Limit:
    """The limit on BLAS threads, held while at least one fit needs it.

    The limit is global to the process: if every fit saved and restored it separately, two concurrent fits
    could leave it set.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._limiter: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._holders == 0:
                _take_control()
                self._limiter = _blas().limit(limits=1)
            self._holders += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            if self._holders == 1:
                self._give_back()
            self._holders = max(0, self._holders - 1)  # none are left after a fork

    def _give_back(self) -> None:
        _take_control()
        self._limiter.restore_original_limits()

    def after_fork(self) -> None:
        """In a child made by fork: those that held the limit are fits of its parent."""
        self._lock = threading.Lock()
        if self._holders > 0:
            self._give_back()
        self._holders = 0


def _take_control() -> None:
    """Let this thread change the limit, which threadpoolctl allows only for the first thread that did so."""
    release = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


_LIMIT = _Limit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LIMIT.after_fork)


def one_blas_thread() -> AbstractContextManager[None]:
    """Context in which BLAS calls are single-threaded; parallelism is over rows."""
    return _LIMIT


@cache
def keep_freed_memory() -> None:
    """Make the C library keep the memory of temporary arrays for the next block.

    By default glibc returns it to the system and allocates it again, page by page, which may cost ten times
    as much as the computation. Once a large array has been freed, it keeps twice that size.
    """
    np.empty(_LARGEST_KEPT, dtype=np.uint8)


def on_device(array: Array) -> bool:
    """Whether the array is on an accelerator."""
    return is_torch(array) and array.device.type != "cpu"


def threads_for(array: Array) -> int:
    """Number of threads over the rows of such an array; torch has its own threads."""
    return 1 if is_torch(array) else row_threads()


def is_small(X: Array, floats_per_row: int) -> bool:
    """Whether all rows are best processed as one block by one thread."""
    return 8 * floats_per_row * int(X.shape[0]) <= SMALL_BYTES


def block_rows(X: Array, floats_per_row: int, block_size: int | None, kept: int = 0) -> int:
    """Rows per block: `block_size` if given, else as many as fit in memory, balanced over threads.

    The memory is without `kept` bytes.
    """
    if block_size is not None:
        return block_size
    n_rows, n_threads = int(X.shape[0]), threads_for(X)
    n_blocks = -(-8 * floats_per_row * n_rows // (block_bytes(X) - kept))
    n_blocks = max(1, n_threads * -(-n_blocks // n_threads))  # a multiple of the threads, for balanced load
    return max(SMALLEST_BLOCK, -(-n_rows // n_blocks))


def kept_bytes(X: Array, floats_per_row: int) -> int:
    """Of a copy of rows in float64 on a device, if the rest of the memory of blocks suffices; else zero."""
    if not on_device(X):
        return 0
    n_rows, size = int(X.shape[0]), 8 * int(X.shape[0] * X.shape[1])
    return size if 8 * floats_per_row * n_rows <= _MOST_BLOCKS * (block_bytes(X) - size) else 0


def block_bytes(X: Array) -> int:
    """How much memory a block of such rows may take with its temporaries."""
    if not on_device(X) or X.device.type != "cuda":
        return BLOCK_BYTES
    import torch

    free, _ = torch.cuda.mem_get_info(X.device)
    return int(min(DEVICE_BLOCK_BYTES, max(BLOCK_BYTES, free // 4)))


def exact_products(X: Array) -> AbstractContextManager[None]:
    """Context without TF32, which may be enabled in torch: it costs 0.1 nats per row."""
    return _without_tf32() if is_torch(X) else nullcontext()


@contextmanager
def _without_tf32() -> Iterator[None]:
    import torch

    allowed = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(allowed)
