"""Hashes of rows: pseudorandom numbers that are equal for equal values.

They do not depend on the dtype, library or device of the array. Therefore they use integer arithmetic on the
bits, not floating-point sums, which depend on the order of summation.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import Array, double, is_numpy, is_torch, like, namespace, to_numpy

_MIX = np.int64(-7046029254386353131)  # odd; 2^64 divided by the golden ratio


def row_hashes(X: Array) -> NDArray[np.int64]:
    """(n,) one number per row, in main memory."""
    if not is_torch(X):
        X = to_numpy(X)
    xp = namespace(X)
    values = double(X) + 0.0  # minus zero becomes zero
    values = xp.where(xp.isnan(values), xp.nan, values)  # NaN has many bit patterns
    bits = values.view(np.int64) if is_numpy(values) else values.view(xp.int64)
    bits = bits ^ (bits >> 32)
    bits *= like(_multipliers(X.shape[1]), values)
    hashes: NDArray[Any] = to_numpy(xp.sum(bits, axis=1))
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is intended
        hashes = (hashes ^ (hashes >> 32)) * _MIX
        hashes = (hashes ^ (hashes >> 29)) * _MIX
    return hashes


@cache
def _multipliers(n_columns: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(-(2**62), 2**62, size=n_columns) * 2 + 1
