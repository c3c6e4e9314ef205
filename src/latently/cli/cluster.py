"""Fits on a Dask cluster: its workers read the prepared rows from a file that they share, part by part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from latently.cli.speaking import counted, shown
from latently.core.sources import package

_PART_BYTES = 32_000_000  # of the rows of a task
_FEWEST = 1000  # rows of a task, if there are as many
_PATIENCE = 20  # seconds to find the scheduler


@contextmanager
def rows_on_cluster(path: str, address: str, voice: Any) -> Iterator[Any]:
    """The rows of a .npy file as a Dask array, while the cluster at this address is the one that computes.

    A part is read anew where and when it is needed, so a worker that is lost takes none with it.
    """
    distributed, delayed = (
        package("distributed", "dask", "clusters"),
        package("dask", "dask", "clusters").delayed,
    )
    array = package("dask.array", "dask", "clusters")
    path = str(Path(path).resolve())
    try:
        client = distributed.Client(address, timeout=_PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at --scheduler {shown(address)}: {error}") from error
    with client:
        client.wait_for_workers(1, timeout=_PATIENCE)
        blind = sorted(worker for worker, there in client.run(_is_there, path).items() if not there)
        if blind:
            raise ValueError(
                f"{counted(len(blind), 'worker')} of the cluster, such as {blind[0]}, cannot read "
                f"{shown(path)}: give --output in a folder that all workers share"
            )
        n, D = np.load(path, mmap_mode="r").shape
        threads = client.nthreads()
        step = max(1, min(_PART_BYTES // (8 * D), max(_FEWEST, -(-n // (2 * sum(threads.values()))))))
        ends = [(start, min(start + step, n)) for start in range(0, n, step)]
        parts, workers = counted(len(ends), "part"), counted(len(threads), "worker")
        voice.note(f"{parts} of the rows are fitted by {workers}")
        tasks = [
            array.from_delayed(delayed(_part, pure=False)(path, a, b), shape=(b - a, D), dtype=np.float64)
            for a, b in ends
        ]
        yield array.concatenate(tasks)


def _part(path: str, start: int, end: int) -> Any:
    return np.array(np.load(path, mmap_mode="r")[start:end], dtype=np.float64)


def _is_there(path: str) -> bool:
    return os.path.exists(path)
