"""All rows of a fit, with their weights, labels and states."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from latently.backend.namespace import Array, like, namespace, to_numpy
from latently.core.block import Block
from latently.core.frame import Frame
from latently.core.sources import RowWriter, ahead
from latently.core.sweep import LocalSweep


class Data:
    """Rows in memory, or a `Source` whose chunks are read again in every sweep."""

    def __init__(
        self,
        X: Any,
        weight: Array | None = None,
        allowed: Array | None = None,
        state: Array | None = None,
    ):
        self.X = X
        self.weight = weight
        self.allowed = allowed
        self.state = state
        self.in_memory = not hasattr(X, "chunks")
        self.n_features: int = X.shape[1] if self.in_memory else X.n_features
        self.feature_names: list[str] | None = None if self.in_memory else X.feature_names

    def with_weight(self, weight: Array | None) -> Data:
        return Data(self.X, None if weight is None else self._beside_rows(weight), self.allowed, self.state)

    def with_allowed(self, allowed: Array | None) -> Data:
        return Data(self.X, self.weight, None if allowed is None else self._beside_rows(allowed), self.state)

    def with_state(self, state: Array | None) -> Data:
        """State of each row for the next sweep; see `Block`."""
        return Data(self.X, self.weight, self.allowed, state)

    def _beside_rows(self, array: Array) -> Array:
        return like(array, self.X) if self.in_memory else array

    def count_rows(self) -> int:
        """The number of rows, which some sources know only after reading."""
        if self.in_memory:
            return int(self.X.shape[0])
        if self.X.n_rows is not None:
            return int(self.X.n_rows)
        return sum(len(chunk) for chunk in self.X.chunks())

    def blocks(self) -> Iterator[Block]:
        """The rows in order, in chunks that fit in memory."""
        chunks: Iterable[Array] = [self.X] if self.in_memory else ahead(self.X.chunks())
        start = 0
        for X in chunks:
            rows = slice(start, start + X.shape[0])
            weight, allowed, state = (
                None if field is None else field[rows, ...]
                for field in (self.weight, self.allowed, self.state)
            )
            yield Block(X, weight, allowed, state=state)
            start = rows.stop

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[Block]:
        """All rows in mini-batches of about `size`, in a new random order within every chunk."""
        for block in self.blocks():
            n = len(block)
            n_batches = max(1, -(-n // size))
            order = rng.permutation(n)
            for i in range(n_batches):
                yield block.take(order[n * i // n_batches : n * (i + 1) // n_batches])

    def collected(self, pieces: Iterator[Array], out: str | os.PathLike[str] | None) -> Array:
        """The pieces as one array, or written to a .npy file one by one, which is then memory-mapped."""
        if out is None:
            parts = list(pieces)
            return namespace(parts[0]).concat(parts, axis=0)
        with RowWriter(out) as file:
            for piece in pieces:
                file.write(to_numpy(piece))
        return np.load(out, mmap_mode="r")

    def sweep(self, frame: Frame | None, *, floats_per_row: int, block_size: int | None) -> Any:
        """Passes over all rows, in a frame or unchanged."""
        return LocalSweep(self.blocks, frame, floats_per_row=floats_per_row, block_size=block_size)
