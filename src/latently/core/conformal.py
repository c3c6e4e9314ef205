"""Split-conformal thresholds: which rows to accept, with a guarantee for any finite number of rows.

    s_(1) <= ... <= s_(n)    scores of rows held out of the fit, larger is more usual
    k = floor((n + 1) (1 - a))    for an acceptance rate a
    accept x  if  s(x) >= s_(k)

If the held-out rows and a new row are exchangeable, the rank of the new score among all n + 1 is uniform
(ties only help), so the new row is below s_(k) with probability at most k / (n + 1) <= 1 - a, whatever the
scores are and however bad the model is. This is on average over the held-out rows. Given them, the share of
new rows that are accepted is itself random: without ties it has the distribution Beta(n + 1 - k, k).

With k = 0 no threshold has the guarantee; so a rate a needs n >= 1 / (1 - a) - 1 rows.

Vovk, Gammerman & Shafer (2005), Algorithmic Learning in a Random World; Vovk (2012), ACML, for the Beta.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import stats


def least_rows(acceptance: float) -> int:
    """How many held-out rows a threshold with this acceptance rate needs."""
    return math.ceil(1 / (1 - _as_written(acceptance))) - 1


def rank(n_rows: int, acceptance: float) -> int:
    """k: the threshold is the k-th smallest score, from 1; 0 if there are too few rows for the rate."""
    return math.floor((n_rows + 1) * (1 - _as_written(acceptance)))


def threshold(scores: NDArray[np.float64], acceptance: float, of: str = "") -> float:
    """The k-th smallest score; a ValueError if there are too few. `of` says in it whose scores they are."""
    n, needed = len(scores), least_rows(acceptance)
    if n < needed:
        most = math.floor(1000 * n / (n + 1)) / 1000
        cure = f"give more, or an acceptance of at most {most:g}" if n else "give some"
        raise ValueError(
            f"acceptance={acceptance:g} needs at least {needed} calibration rows{of}, but there are {n}; "
            + cure
        )
    k = rank(n, acceptance)
    return float(np.partition(scores, k - 1)[k - 1])


def interval(
    n_rows: int, acceptance: float, n_new: int | None = None, level: float = 0.95
) -> tuple[float, float]:
    """Where the acceptance of new rows lies with probability `level`, if no scores tie.

    `n_new` rows accept a share with a beta-binomial distribution; infinitely many (None) with a Beta.
    """
    k = rank(n_rows, acceptance)
    if k == 0:
        return 1.0, 1.0
    ends = np.array([0.5 - level / 2, 0.5 + level / 2])
    a, b = n_rows + 1 - k, k
    if n_new is None:
        low, high = stats.beta.ppf(ends, a, b)
    else:
        low, high = stats.betabinom.ppf(ends, n_new, a, b) / n_new
    return float(low), float(high)


def _as_written(acceptance: float) -> Fraction:
    """The decimal number that the user wrote: 10 (1 - 0.9) is to be 1, not a little less."""
    return Fraction(repr(float(acceptance)))
