"""A sweep: one pass over the rows, block by block, on all cores.

Each thread processes a contiguous run of blocks and keeps one running sum, so memory is a block and a record
of statistics per thread for any number of rows, and the result is reproducible. A small table is one block in
the thread of the caller: to share it out would take longer than the computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from latently.backend.namespace import Array, namespace
from latently.backend.placement import (
    block_rows,
    exact_products,
    is_small,
    keep_freed_memory,
    kept_bytes,
    one_blas_thread,
    threads_for,
)
from latently.core.block import Block, slices
from latently.core.frame import Frame
from latently.core.tree import add


class Sweep(Protocol):
    """Interface of a pass over rows, wherever they are stored."""

    def reduce(self, fn: Callable[..., Any], combine: Callable[[Any, Any], Any], *args: Any) -> Any:
        """`fn(*args, block)` of all blocks, combined in order, without rows that do not contribute."""

    def sum(self, fn: Callable[..., Any], *args: Any) -> Any:
        """The sum of `fn(*args, block)` over all blocks; `fn` returns a record."""

    def moved(self, fn: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
        """The sums of a pass that moves the states of the rows, and the states (N, m)."""

    def rows(self, fn: Callable[..., Array], *args: Any) -> Iterator[Array]:
        """`fn(*args, block)`, one row per row, for all rows in order, piece by piece."""


class LocalSweep:
    """A sweep in this process over `chunks`: large blocks of rows in the user's units.

    Without a `frame` the rows are passed to functions unchanged. If the arrays of the chunks are `fixed`, the
    same with the same values in every pass, a table that is one block enters the frame once.
    """

    def __init__(
        self,
        chunks: Callable[[], Iterable[Block]],
        frame: Frame | None,
        *,
        floats_per_row: int,
        block_size: int | None = None,
        n_threads: int | None = None,
        fixed: bool = False,
    ):
        self.chunks = chunks
        self.frame = frame
        self.floats_per_row = floats_per_row
        self.block_size = block_size
        self.n_threads = n_threads
        self.fixed = fixed
        self._known: tuple[Block, Block] | None = None  # a chunk, and its rows that contribute
        self._plain: tuple[Block, dict[int, Block | None]] | None = None  # a chunk, and its complete blocks
        self._at_once: dict[int, int] = {}  # rows of a block, by those of its chunk
        self._keeps = fixed and frame is not None and block_size is None  # blocks as they enter, on a device

    def reduce(self, fn: Callable[..., Any], combine: Callable[[Any, Any], Any], *args: Any) -> Any:
        def work(blocks: Iterator[Block]) -> Any:
            return _reduced(combine, (fn(*args, block) for block in blocks if len(block)))

        n_threads, enter = self._threads_for(args), self._contributing
        parts = (part for chunk in self.chunks() for part in self._shared_out(chunk, enter, work, n_threads))
        return _reduced(combine, parts)

    def sum(self, fn: Callable[..., Any], *args: Any) -> Any:
        return self.reduce(fn, add, *args)

    def moved(self, fn: Callable[..., Any], *args: Any) -> tuple[Any, Array]:
        sums, states = self.reduce(fn, _joined, *args)
        return sums, states[0] if len(states) == 1 else namespace(states[0]).concat(states)

    def rows(self, fn: Callable[..., Array], *args: Any) -> Iterator[Array]:
        def work(blocks: Iterator[Block]) -> list[Array]:
            return [fn(*args, block) for block in blocks]

        n_threads = self._threads_for(args)
        for chunk in self.chunks():
            for run in self._shared_out(chunk, self._framed, work, n_threads):
                yield from run

    def _threads_for(self, args: tuple[Any, ...]) -> int | None:
        """One if blocks draw from a generator, so that the order of their draws is fixed."""
        return 1 if any(isinstance(arg, np.random.Generator) for arg in args) else self.n_threads

    def _shared_out(
        self,
        chunk: Block,
        enter: Callable[[Block], Block],
        work: Callable[[Iterator[Block]], Any],
        n_threads: int | None,
    ) -> list[Any]:
        """What `work` makes of the blocks of each thread, as they `enter`."""
        keep_freed_memory()
        if self._is_small(chunk):
            with one_blas_thread(), exact_products(chunk.X):
                return [work(iter([self._whole(chunk, enter)]))]
        if len(chunk) not in self._at_once:  # a device takes long to say what memory is free
            kept = kept_bytes(chunk.X, self.floats_per_row) if self._keeps else 0
            self._keeps = kept > 0
            self._at_once[len(chunk)] = block_rows(chunk.X, self.floats_per_row, self.block_size, kept)
        pieces = slices(len(chunk), self._at_once[len(chunk)])
        n_threads = min(n_threads or threads_for(chunk.X), len(pieces))
        bounds = [len(pieces) * i // n_threads for i in range(n_threads + 1)]
        runs = [pieces[a:b] for a, b in pairwise(bounds)]

        plain = self._plain_blocks(chunk, enter)

        def blocks(run: list[slice]) -> Iterator[Block]:
            return (self._entered(chunk[rows], rows.start, enter, plain) for rows in run)

        with one_blas_thread(), exact_products(chunk.X):
            if len(pieces) == 1:
                return [work(iter([self._whole(chunk, enter)]))]
            if n_threads == 1:
                return [work(blocks(pieces))]
            contexts = [
                copy_context() for _ in runs
            ]  # threads inherit context of the caller, such as np.errstate
            with ThreadPoolExecutor(n_threads) as pool:
                return list(pool.map(lambda c, run: c.run(work, blocks(run)), contexts, runs))

    def _is_small(self, chunk: Block) -> bool:
        return self.block_size is None and is_small(chunk.X, self.floats_per_row)

    def _contributing(self, block: Block) -> Block:
        """The rows of a block that contribute, in the frame."""
        block = block.with_observed().informative()
        return block if self.frame is None else self.frame.enter(block)

    def _plain_blocks(self, chunk: Block, enter: Callable[[Block], Block]) -> dict[int, Block | None] | None:
        """The blocks of a chunk of which all rows contribute all entries, as far as is known, by their start.

        As they enter, if those are kept.
        """
        if not self.fixed or enter != self._contributing:
            return None
        if self._plain is None or not self._plain[0].is_same(chunk):
            self._plain = chunk, {}
        return self._plain[1]

    def _entered(
        self,
        block: Block,
        start: int,
        enter: Callable[[Block], Block],
        plain: dict[int, Block | None] | None,
    ) -> Block:
        """A block as it enters; what was found in an earlier pass is not looked for again."""
        if plain is None:
            return enter(block)
        if (known := plain.get(start)) is not None:
            return known.again()
        is_plain = start in plain
        if not is_plain:
            contributing = block.with_observed().informative()
            is_plain, block = contributing is block, contributing
        entered = block if self.frame is None else self.frame.enter(block)
        if is_plain:
            plain[start] = entered.again() if self._keeps else None
        return entered

    def _framed(self, block: Block) -> Block:
        block = block.with_observed()
        return block if self.frame is None else self.frame.enter(block)

    def _whole(self, chunk: Block, enter: Callable[[Block], Block]) -> Block:
        """A chunk that is one block, as it enters; the last one is remembered."""
        if not self.fixed or enter != self._contributing:
            return enter(chunk)
        if self._known is None or not self._known[0].is_same(chunk):
            self._known = chunk, enter(chunk)
        return self._known[1]


def _reduced(combine: Callable[[Any, Any], Any], parts: Iterable[Any]) -> Any:
    """All parts combined in order; None is the result of a run without contributing rows."""
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else combine(total, part)
    return total


def _joined(a: tuple[Any, list[Array]], b: tuple[Any, list[Array]]) -> tuple[Any, list[Array]]:
    return add(a[0], b[0]), a[1] + b[1]
