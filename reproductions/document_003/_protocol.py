"""One protocol for chapters 3 and 5 of document 003, fixed before any of their tables was run with it."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

NOISE_FLOOR = 0.01
OPTIONS = {"noise_floor": NOISE_FLOOR}  # all else is the library's default
PROTOCOL = f"""
    All models have the defaults of the library (its search among starts, its weak prior, and for classifiers
    the rows that classes borrow from each other), but no noise variance may fall below {NOISE_FLOOR:.0%} of
    the feature's variance.

    Features are as they are for clusters and densities, because only so do printed values of BIC come about,
    and standardised by the training rows for classifiers, because the source does not say how its noise
    compares with its features.

    No labels of test rows are used, nor any labels for clusters.

    These choices were made for the whole document before any number of this run was seen, but for the floor
    of mPPCA in Tables 3.1 to 3.6, which is told there; what differs from them is a row of its own and is
    marked.
"""
FIXED = """
    Rows are given, so a model is fitted from several seeds and the fit of largest objective (likelihood and
    prior) is told, fits with degenerate components last. "Spread" is the standard deviation of what is told
    if as many fits are drawn again from these: nothing where all seeds end at one optimum, even if others
    would find a better one. "Picked by label" is the lowest ERR among these fits: neither a legitimate way to
    pick nor a lower bound, as other fits may exist.
"""
DRAWN = """
    Rows are drawn by chance, so there are several draws with one fit each, and numbers are means over the
    draws. "Spread" is their standard deviation.
"""


def seed_of(seed, draw):
    """The seed of a draw."""
    return 1000 * seed + draw


def fits(model, X, seeds):
    """Fitted copies of the model, one for each seed, the best first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # and degenerate components, which come last
        found = [clone(model).set_params(random_state=seed).fit(X) for seed in seeds]
    return sorted(found, key=lambda one: (len(one.degenerate_components_) > 0, -one.history_[-1]))


def from_classes(model, X, y):
    """A fit that starts from one component for each class and then forgets the classes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        components = np.unique(y, return_inverse=True)[1]
        return clone(model).fit(X, components).set_params(warm_start=True).fit(X)


def spread_of_pick(values):
    """Standard deviation of the value of the best of n fits, drawn with replacement from n that were made.

    `values` are those of the n fits, the best first.
    """
    n = len(values)
    at_best = (np.arange(n, -1, -1) / n) ** n  # that all n drawn are from the i-th on
    shares = at_best[:-1] - at_best[1:]
    return float(np.sqrt(shares @ (np.asarray(values) - shares @ values) ** 2))


def over_draws(records, keys, alike=()):
    """One record for the records of several draws: means, and standard deviations as "..., spread".

    Entries in `keys` and `alike` are those of the first draw.
    """
    first = records[0]
    told = {name: first[name] for name in (*keys, *alike) if name in first}
    for name, value in first.items():
        if name in told or not isinstance(value, float):
            continue
        values = [record[name] for record in records]
        told[name] = float(np.mean(values))
        if len(records) > 1:
            told[f"{name}, spread"] = float(np.std(values, ddof=1))
    return told | {"draws": len(records)}
