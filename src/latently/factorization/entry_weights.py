"""Weights of entries, for factorisations whose loss is a sum over entries.

They take the place of the mask of what was observed: a weight of zero is a missing entry.
"""

from __future__ import annotations

import numpy as np

from latently.backend.namespace import (
    double,
    is_floating,
    is_native,
    is_sparse,
    like,
    namespace,
    to_numpy,
    zeros,
)
from latently.estimators.checks import real_array

_LARGEST = 1e50  # weights beyond, or below its inverse, could overflow with large entries


def with_entry_weights(data, entry_weight):
    """Checked rows with weights of their entries; those of zeros and ones are a mask like NaN."""
    if not data.in_memory:
        raise ValueError(
            "entry_weight needs X in memory; without weights, NaN marks missing entries in files as well"
        )
    xp, X = namespace(data.X), data.X if is_floating(data.X) else double(data.X)
    weight = like(_checked(entry_weight, tuple(X.shape)), X)
    known = ~xp.isnan(X) & (weight > 0)
    if bool(xp.all((weight == 1.0) | ~known)):
        return _of_rows(data, xp.where(known, X, xp.nan))
    weighted = _of_rows(data, xp.where(known, X, 0.0)).with_field("observed", xp.where(known, weight, 0.0))
    told = xp.any(known, axis=1)
    if not bool(xp.all(told)):
        of_rows = data.field("weight")
        counts = xp.astype(told, xp.float64)
        weighted = weighted.with_field("weight", counts if of_rows is None else counts * like(of_rows, X))
    # rows with a state, if only one without columns, go into a sweep as they are, with their weights
    return weighted.with_field("state", zeros((X.shape[0], 0), X))


def _of_rows(data, X):
    """The same data with other rows."""
    return type(data)(X, **data.fields)


def _checked(entry_weight, shape):
    if is_sparse(entry_weight):
        entry_weight = entry_weight.toarray()
    given = to_numpy(entry_weight) if is_native(entry_weight) else entry_weight
    weight = real_array("entry_weight", given, dtype=np.float64)
    if weight.shape != shape:
        raise ValueError(f"entry_weight must have the shape of X, {shape}, not {weight.shape}")
    if np.any(weight < 0):
        raise ValueError(f"entry_weight must not be negative; its smallest entry is {weight.min():.6g}")
    heavy = weight[weight > 0]
    if heavy.size and not 1 / _LARGEST <= heavy.min() <= heavy.max() <= _LARGEST:
        raise ValueError(
            f"entry_weight must be zero or lie between {1 / _LARGEST:g} and {_LARGEST:g}; rescale it"
        )
    return weight
