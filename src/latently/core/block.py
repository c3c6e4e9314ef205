"""A block of rows, and everything that belongs to a row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from latently.backend.namespace import Array, double, namespace


@dataclass(frozen=True)
class Block:
    """Some rows of the data. Sweeps slice it without knowing what the fields mean."""

    X: Array  # (n, D), as the user gave it: any real dtype
    weight: Array | None = None  # (n,), > 0; None where every row counts once

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def __getitem__(self, rows: slice) -> Block:
        return Block(self.X[rows, :], None if self.weight is None else self.weight[rows])

    def total_weight(self) -> float:
        """The number of rows, each counted with its weight."""
        return float(len(self)) if self.weight is None else float(namespace(self.weight).sum(self.weight))


def slices(n_rows: int, rows_at_a_time: int) -> list[slice]:
    """All rows, some at a time."""
    return [slice(i, min(i + rows_at_a_time, n_rows)) for i in range(0, n_rows, rows_at_a_time)]


@dataclass(frozen=True)
class Summary:
    """Weighted mean and standard deviation of each feature, and whether it ever changes."""

    mean: Array  # (D,)
    deviation: Array  # (D,)
    constant: Array  # (D,) bool


def summarise(block: Block, rows_at_a_time: int) -> Summary:
    """Two passes: ranges first, so that neither an offset nor the units can spoil the moments."""
    xp = namespace(block.X)
    pieces = [block[rows] for rows in slices(len(block), rows_at_a_time)]
    low = reduce(xp.minimum, [double(xp.min(piece.X, axis=0)) for piece in pieces])
    high = reduce(xp.maximum, [double(xp.max(piece.X, axis=0)) for piece in pieces])
    constant = low == high
    middle = 0.5 * low + 0.5 * high
    half_range = xp.where(constant, 1.0, high - middle)

    total, total_square = 0.0, 0.0
    for piece in pieces:
        u = (double(piece.X) - middle) / half_range  # in [-1, 1]
        weighted = u if piece.weight is None else u * piece.weight[:, None]
        total = total + xp.sum(weighted, axis=0)
        total_square = total_square + xp.sum(weighted * u, axis=0)
    n = block.total_weight()
    mean = total / n
    spread = xp.sqrt(xp.where(total_square / n > mean**2, total_square / n - mean**2, 0.0))
    return Summary(middle + half_range * mean, half_range * spread, constant)
