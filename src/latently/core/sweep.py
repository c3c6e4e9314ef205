"""A sweep: one pass over rows held in memory, block by block, on all cores.

Each thread takes a contiguous run of blocks and keeps one running sum, so memory stays at a block and
a record of statistics per thread however many rows there are, and the result is the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import pairwise
from typing import Any

from latently.backend.namespace import Array, namespace
from latently.backend.placement import block_rows, one_blas_thread, row_threads
from latently.core.block import Block, slices
from latently.core.frame import Frame
from latently.core.tree import add


class InMemorySweep:
    """Applies a function to every block of rows, in the frame of the kernel."""

    def __init__(self, block: Block, frame: Frame, *, floats_per_row: int, batch_size: int | None = None):
        self.block = block
        self.frame = frame
        self.slices = slices(len(block), block_rows(len(block), floats_per_row, batch_size))

    def sum(self, fn: Callable[[Block], Any]) -> Any:
        """The sum of `fn(block)` over all blocks; `fn` returns a record."""
        return reduce(add, self._shared_out(lambda blocks: reduce(add, map(fn, blocks))))

    def rows(self, fn: Callable[[Block], Array]) -> Array:
        """`fn(block)`, one row per row, for all rows in order."""
        pieces = [piece for run in self._shared_out(lambda blocks: list(map(fn, blocks))) for piece in run]
        return namespace(pieces[0]).concat(pieces, axis=0)

    def _shared_out(self, work: Callable[[Iterator[Block]], Any]) -> list[Any]:
        n_threads = min(row_threads(), len(self.slices))
        bounds = [len(self.slices) * i // n_threads for i in range(n_threads + 1)]
        runs = [self.slices[a:b] for a, b in pairwise(bounds)]
        with one_blas_thread():
            if n_threads == 1:
                return [work(self._blocks(self.slices))]
            with ThreadPoolExecutor(n_threads) as pool:
                return list(pool.map(lambda run: work(self._blocks(run)), runs))

    def _blocks(self, slices: list[slice]) -> Iterator[Block]:
        for rows in slices:
            piece = self.block[rows]
            yield Block(self.frame.enter(piece.X), piece.weight)
