"""Weights of rows in units of rows, so that weights times a constant are the same weights.

Most of a fit sees weights relative to each other only. What counts rows needs a unit: priors that are worth a
number of rows, costs with a penalty, rounding of sums. The unit of weights is

    what they are all whole multiples of, if there is such a number: weights 2, 6, 8 are 1, 3 and 4 copies
    their mean, otherwise: weights are shares, and all rows together count as many as there are

So integers without a common divisor are copies of rows, in any unit, and equal weights are none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from latently.estimators.checks import check_weights

_MOST_COPIES = 1e5  # of a row, for weights that count copies
_ROUNDING = 1e-10  # of the largest weight


class Copies(np.ndarray):
    """Weights that are in units of rows already; parts of them keep the unit of the whole."""


def weights_in_rows(sample_weight, n_rows) -> Copies:
    """The checked weights in units of rows; rows of weight zero do not count."""
    if isinstance(sample_weight, Copies):
        return in_rows(check_weights(sample_weight, n_rows))
    weight = check_weights(sample_weight, n_rows)
    weight = weight / weight.max()
    heavy = np.unique(weight[weight > 0])
    unit = _common_unit(heavy)
    if unit is None:
        weight = weight / np.mean(weight, where=weight > 0)
    else:
        weight = np.round(weight / unit)
    return in_rows(weight)


def in_rows(weight) -> Copies:
    """Weights that are known to be in units of rows."""
    return np.asarray(weight, dtype=np.float64).view(Copies)


def _common_unit(weights: NDArray[np.float64]) -> float | None:
    """What all these increasing weights up to one are whole multiples of, by Euclid's algorithm; or None."""
    unit = weights[0]
    while unit > 1.0 / _MOST_COPIES:
        left = np.abs(weights - unit * np.round(weights / unit))
        left = left[left > _ROUNDING]
        if left.size == 0:
            return float(1.0 / np.round(1.0 / unit))
        unit = left.min()
    return None
