"""All rows of a fit, with their weights, labels and states."""

from __future__ import annotations

import os
from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from latently.backend.namespace import Array, device, double, is_sparse, like, namespace, to_numpy
from latently.core.block import Block
from latently.core.frame import Frame
from latently.core.sources import Followed, Rows, RowWriter, ahead
from latently.core.sweep import LocalSweep


class Data:
    """Rows in memory, or a `Source` whose chunks are read anew for every sweep.

    `fields` are arrays with an entry for every row, by the name of the field of `Block` that they become:
    weights, allowed components, states.
    """

    def __init__(self, X: Any, **fields: Array | None):
        self.X = X
        self.fields = {name: array for name, array in fields.items() if array is not None}
        self.in_memory = not hasattr(X, "chunks")
        self.n_features: int = X.shape[1] if self.in_memory else X.n_features
        self.feature_names: list[str] | None = None if self.in_memory else X.feature_names
        self.given: tuple[int, float] | None = None  # rows and weight before some were added or made lighter

    def with_field(self, name: str, array: Array | None) -> Data:
        """The same rows with another field; None removes it."""
        data = copy(self)
        data.fields = {**self.fields, name: self._beside_rows(array)}
        if array is None:
            del data.fields[name]
        return data

    def field(self, name: str) -> Array | None:
        return self.fields.get(name)

    def followed_by(self, X: Rows, **fields: Array) -> Data:
        """The same rows and then X (m, D), in main memory, with the fields of both."""
        data = copy(self)
        if self.in_memory:
            data.X = namespace(self.X).concat([double(self.X), like(X, self.X)])
        else:
            data.X = Followed(self.X, X)
        data.fields = {}
        for name, array in fields.items():
            data = data.with_field(name, np.concatenate([to_numpy(self.fields[name]), array]))
        return data

    def _beside_rows(self, array: Array | None) -> Array | None:
        """The array on the device of the rows; one that is there already is not copied."""
        if array is None or not self.in_memory or is_sparse(self.X):
            return array
        there = namespace(array) is namespace(self.X) and device(array) == device(self.X)
        return array if there else like(array, self.X)

    def count_rows(self) -> int:
        """The number of rows, which some sources know only after reading."""
        if self.in_memory:
            return int(self.X.shape[0])
        if self.X.n_rows is not None:
            return int(self.X.n_rows)
        return sum(len(chunk) for chunk in self.X.chunks())

    def blocks(self) -> Iterator[Block]:
        """The rows in order, in chunks that fit in memory."""
        if self.in_memory:
            yield Block(self.X, **self.fields)
            return
        start = 0
        for X in ahead(self.X.chunks()):
            rows = slice(start, start + X.shape[0])
            yield Block(X, **{name: array[rows, ...] for name, array in self.fields.items()})
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
        return LocalSweep(
            self.blocks, frame, floats_per_row=floats_per_row, block_size=block_size, fixed=self.in_memory
        )
