"""Two passes over the rows before a fit: sizes, moments, and a sample for the initialisation.

The sample must not depend on the order of the rows, on blocks, or on whether a row is given twice or with
weight two. Therefore it consists of distinct rows with their total weights, and those with the smallest
hashes are taken: a pseudorandom selection that is the same for the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.hashing import row_hashes
from latently.backend.namespace import Array, Floats, device, double, like, namespace, to_numpy
from latently.core.block import Block
from latently.core.tree import add


@dataclass(frozen=True)
class Summary:
    """Sizes, and weighted mean and standard deviation of each feature over the observed entries."""

    n_rows: int  # with positive weight and something observed or labelled
    total_weight: float
    observed_weight: Array  # (D,)
    missing: bool  # whether any entry is missing
    mean: Array  # (D,)
    deviation: Array  # (D,)
    constant: Array  # (D,) bool: the feature is constant
    infinite: Array  # (D,) bool: it contains an infinity
    low: Array  # (D,) smallest and
    high: Array  # (D,) largest entry
    content: int  # order-independent hash of all rows with their weights and labels
    sample: Sample | None  # in main memory

    @classmethod
    def of_moments(cls, mean: Array, deviation: Array) -> Summary:
        """Summary of rows known by their moments only, which may have missing entries."""
        nothing = namespace(mean).zeros_like(mean)
        return cls(0, 1.0, nothing, True, mean, deviation, nothing > 0, nothing > 0, mean, mean, 0, None)


@dataclass(frozen=True)
class Sample:
    """Distinct rows sorted by hash."""

    keys: NDArray[np.int64]  # (m,)
    X: Floats  # (m, D), NaN where missing
    weight: Floats  # (m,)
    allowed: NDArray[np.bool_] | None  # (m, K)

    def distinct(self, limit: int) -> Sample:
        """At most `limit` rows, with equal ones merged."""
        keys, first, inverse = np.unique(self.keys, return_index=True, return_inverse=True)
        weight: Floats = np.bincount(inverse, weights=self.weight, minlength=len(keys)).astype(np.float64)
        first = first[:limit]
        allowed = None if self.allowed is None else self.allowed[first]
        return Sample(keys[:limit], self.X[first], weight[:limit], allowed)


@dataclass(frozen=True)
class _Ranges:
    n_rows: int
    weight: float
    observed_weight: Array
    missing: bool  # not told by the weights: that of a row may be lost in their sums
    low: Array
    high: Array
    keys: NDArray[np.int64]
    content: int


@dataclass(frozen=True)
class _Moments:
    total: Array
    total_square: Array


def summarise(sweep: Any, sample_size: int) -> Summary | None:
    """Two passes: ranges first, so that moments are accurate whatever the offset and the units.

    None if no row has positive weight and something observed or labelled.
    """

    def joined(a: _Ranges, b: _Ranges) -> _Ranges:
        xp = namespace(a.low)
        return _Ranges(
            a.n_rows + b.n_rows,
            a.weight + b.weight,
            a.observed_weight + b.observed_weight,
            a.missing or b.missing,
            xp.minimum(a.low, b.low),
            xp.maximum(a.high, b.high),
            np.union1d(a.keys, b.keys)[:sample_size],
            (a.content + b.content) % 2**64,
        )

    ranges = sweep.reduce(_ranges, joined, sample_size)
    if ranges is None:
        return None
    xp = namespace(ranges.low)
    seen = ranges.observed_weight > 0
    low, high = xp.where(seen, ranges.low, 0.0), xp.where(seen, ranges.high, 0.0)
    constant = low == high
    middle = 0.5 * low + 0.5 * high
    half_range = xp.where(constant, 1.0, high - middle)
    last_key = int(ranges.keys[-1]) if sample_size else None

    def both(a: Any, b: Any) -> Any:
        return add(a[0], b[0]), _put_together(a[1], b[1], sample_size)

    moments, sample = sweep.reduce(_moments, both, middle, half_range, last_key)
    n = xp.where(seen, ranges.observed_weight, 1.0)
    mean, square = moments.total / n, moments.total_square / n
    spread = xp.sqrt(xp.where(square > mean**2, square - mean**2, 0.0))
    return Summary(
        n_rows=ranges.n_rows,
        total_weight=ranges.weight,
        observed_weight=ranges.observed_weight,
        missing=ranges.missing,
        mean=middle + half_range * mean,
        deviation=half_range * spread,
        constant=constant,
        infinite=xp.isinf(low) | xp.isinf(high),
        low=low,
        high=high,
        content=ranges.content,
        sample=sample.distinct(sample_size),
    )


def _ranges(sample_size: int, block: Block) -> _Ranges:
    xp = namespace(block.X)
    low = high = block.X
    observed_weight = xp.full(
        (block.X.shape[1],), block.total_weight(), dtype=xp.float64, device=device(block.X)
    )
    if block.observed is not None:
        low = xp.where(block.observed, low, xp.inf)
        high = xp.where(block.observed, high, -xp.inf)
        mask = xp.astype(block.observed, xp.float64)
        observed_weight = xp.sum(mask if block.weight is None else mask * block.weight[:, None], axis=0)
    keys = _keys(block) if sample_size else np.zeros(0, np.int64)
    weighed = keys
    if sample_size and block.weight is not None:
        weighed = keys * (2 * row_hashes(block.weight[:, None]) + 1)
    return _Ranges(
        len(block),
        block.total_weight(),
        observed_weight,
        block.observed is not None and not bool(xp.all(block.observed)),
        double(xp.min(low, axis=0)),
        double(xp.max(high, axis=0)),
        np.unique(keys)[:sample_size],
        int(weighed.sum()) % 2**64,
    )


def _moments(middle: Array, half_range: Array, last_key: int | None, block: Block) -> tuple[_Moments, Sample]:
    xp = namespace(block.X)
    u = (double(block.X) - middle) / half_range  # in [-1, 1]
    if block.observed is not None:
        u = xp.where(block.observed, u, 0.0)
    weighted = u if block.weight is None else u * block.weight[:, None]
    moments = _Moments(xp.sum(weighted, axis=0), xp.sum(weighted * u, axis=0))
    keys = _keys(block) if last_key is not None else np.zeros(len(block), np.int64)
    chosen = keys <= last_key if last_key is not None else np.zeros(len(block), dtype=bool)
    index = like(np.flatnonzero(chosen), block.X)
    sample = Sample(
        keys[chosen],
        to_numpy(double(xp.take(block.X, index, axis=0))),
        np.ones(int(chosen.sum()))
        if block.weight is None
        else to_numpy(xp.take(block.weight, index, axis=0)),
        None if block.allowed is None else to_numpy(xp.take(block.allowed, index, axis=0)),
    )
    return moments, sample.distinct(len(sample.keys))


def _put_together(a: Sample, b: Sample, limit: int) -> Sample:
    allowed = None if a.allowed is None or b.allowed is None else np.concatenate([a.allowed, b.allowed])
    both = Sample(
        np.concatenate([a.keys, b.keys]),
        np.concatenate([a.X, b.X]),
        np.concatenate([a.weight, b.weight]),
        allowed,
    )
    return both.distinct(limit) if len(both.keys) > 2 * limit else both  # limits the memory for repeated rows


def _keys(block: Block) -> NDArray[np.int64]:
    """Keys that are equal for rows with equal values and labels, whatever their weights."""
    hashes = row_hashes(block.X)
    if block.allowed is not None:
        hashes = hashes + 31 * row_hashes(block.allowed)
    return hashes
