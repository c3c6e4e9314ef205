"""Whether a density fits at all: log densities of rows unseen against those of its samples.

If the model is right, the share of its samples with a lower log density is uniform over held-out rows. Far
too many rows in the lowest percent are tails that the model does not have; a distance elsewhere is a bulk of
another shape. Columns are compared one by one for what is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.stats import binom, ks_2samp, kurtosis, skew

_SAMPLES = 20_000
_PROBABILITIES = np.arange(1, 100) / 100
_TAIL = 0.01  # share of rows that should be below the model's own quantile of this
_DISTANCE = 0.08  # of distributions, below which a misfit does not matter for use
_SURE = 1e-3  # p-value below which a difference is not chance
_MOST_NAMED = 3


@dataclass(frozen=True)
class Calibration:
    """How log densities of held-out rows compare with what the model expects.

    Attributes
    ----------
    fits : bool
        Whether no misfit was found.
    verdict : str
        The result in a sentence.
    expected, observed : list of float
        A probability plot: at each probability, the share of held-out rows whose log density is below the
        model's own quantile. Points of a model that fits are on the diagonal.
    n_rows : int
        Number of held-out rows.
    n_unusual, n_expected : int and float
        Held-out rows below the 1 % quantile, and how many are expected.
    columns : dict
        Distance of the distribution of each column from the model's, for those that do not fit.
    """

    fits: bool
    verdict: str
    expected: list = field(repr=False)
    observed: list = field(repr=False)
    n_rows: int
    n_unusual: int
    n_expected: float
    columns: dict


def calibration(model, X, *, feature_names=None, random_state=0):
    """Compare a fitted density with rows it was not fitted to.

    Parameters
    ----------
    model : estimator with `score_samples` and `sample`
    X : ndarray of shape (n_samples, n_features)
        Held-out rows; NaN where missing.
    feature_names : list of str, optional
    random_state : int, default=0
        Seed of the samples.

    Returns
    -------
    Calibration
    """
    X = np.asarray(X, dtype=np.float64)
    rng = np.random.default_rng(random_state)
    drawn = np.array(model.sample(_SAMPLES, random_state=rng)[0], dtype=np.float64)
    missing = np.isnan(X)
    if missing.any():  # samples get holes of rows, so that densities are of alike entries
        drawn[missing[rng.integers(len(X), size=len(drawn))]] = np.nan
    own, scores = (np.asarray(model.score_samples(rows), dtype=np.float64) for rows in (drawn, X))
    observed = [float(np.mean(scores <= limit)) for limit in np.quantile(own, _PROBABILITIES)]
    n_unusual = int(np.sum(scores < np.quantile(own, _TAIL)))
    n, n_expected = len(X), _TAIL * len(X)
    tails = n_unusual > 2 * n_expected and binom.sf(n_unusual - 1, n, _TAIL) < _SURE
    distance = ks_2samp(own, scores)
    bulk = distance.statistic > _DISTANCE and distance.pvalue < _SURE
    columns = _misfits(drawn, X, feature_names)
    cure = "try a transformation of skewed columns"
    if not hasattr(model, "columns_"):  # a model of mixed columns has no heavy tails
        cure = "try tails='t', or a transformation of skewed columns"
    verdict = _verdict(tails, bulk, n_unusual, n_expected, n, columns, X, feature_names, cure)
    return Calibration(
        not tails and not bulk, verdict, _PROBABILITIES.tolist(), observed, n, n_unusual, n_expected, columns
    )


def _names(X, feature_names):
    return [str(j) for j in range(X.shape[1])] if feature_names is None else list(map(str, feature_names))


def _misfits(drawn, X, feature_names):
    """Columns whose own distribution is not that of the model, worst first."""
    found = {}
    for name, theirs, values in zip(_names(X, feature_names), drawn.T, X.T, strict=True):
        values, theirs = values[~np.isnan(values)], theirs[~np.isnan(theirs)]
        if len(values) > 1 and len(theirs) > 1:
            distance = ks_2samp(theirs, values)
            if distance.statistic > _DISTANCE and distance.pvalue < _SURE / X.shape[1]:
                found[name] = float(distance.statistic)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _verdict(tails, bulk, n_unusual, n_expected, n, columns, X, feature_names, cure):
    if not tails and not bulk:
        return (
            f"The model fits: log densities of {n} held-out rows are as it expects ({n_unusual} below its "
            f"1 % quantile, {n_expected:.0f} expected)."
        )
    parts = []
    if tails:
        parts.append(
            f"{n_unusual} of {n} held-out rows are below its 1 % quantile, where {n_expected:.0f} are "
            f"expected, so its tails are too light ({cure})"
        )
    if bulk:
        parts.append("log densities of ordinary rows are distributed otherwise than the model says")
    names = _names(X, feature_names)
    worst = [f"{name!r} ({_shape(X[:, names.index(name)])})" for name in list(columns)[:_MOST_NAMED]]
    where = f"; columns that fit worst: {', '.join(worst)}" if worst else "; each column alone fits"
    return f"The model does not fit: {' and '.join(parts)}{where}."


def _shape(values):
    """What is particular to a column, in words."""
    values = values[~np.isnan(values)]
    values_of_most = np.unique(values, return_counts=True)[1].max() / len(values)
    n_distinct = len(np.unique(values))
    if n_distinct <= 10:
        return f"only {n_distinct} different values"
    if values_of_most > 0.1:
        return f"one value in {100 * values_of_most:.0f} % of the rows"
    if abs(skew(values)) > 1:
        return "skewed"
    return "heavy tails" if kurtosis(values) > 2 else "another shape"
