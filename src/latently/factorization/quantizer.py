"""Vector quantisation as a factorisation: every row is approximated by its prototype.

    min || X - S A ||^2     with one 1 in every row of S and 0 elsewhere

The rows of A are the prototypes: k-means, written as a matrix product.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latently.estimators.base import Estimator
from latently.estimators.checks import check_choice, check_integer, check_seed, numbers, parameter
from latently.estimators.data import checked_table
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import estimator, option
from latently.estimators.randomness import as_random_state
from latently.factorization.linear import LinearFactorization, distinct_rows

INITS = ("k-means++", "rows", "unit", "gaussian")


@estimator
class VectorQuantizer(LinearFactorization, Estimator):
    """Vector quantisation by k-means: X ~ S A, where every row of S has exactly one 1.

    Parameters
    ----------
    n_components : int, default=8
        Number of prototypes.
    init : {"k-means++", "rows", "unit", "gaussian"}, default="k-means++"
        Starting values: rows far apart from one another ("k-means++"), random rows ("rows"), unit vectors
        with uniform positive entries independent of X ("unit"), or draws from a Gaussian with the mean and
        variances of X ("gaussian"). A prototype that loses all its rows is moved to the row with the largest
        error.
    n_init : int, default=10
        Number of random starts; the one with the lowest cost is kept.
    max_iter : int, default=300
        Maximum number of iterations of each start; it converges when no row changes its prototype.
    random_state : int, Generator, RandomState or None
        Seed of the random starts.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The prototypes.
    starts_ : ndarray of shape (n_components, n_features)
        Starting values of the prototypes.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.factorization import VectorQuantizer
    >>> X = load_digits().data
    >>> model = VectorQuantizer(10, random_state=0).fit(X)
    >>> model.components_.shape, model.transform(X)[0].sum()
    ((10, 64), np.float64(1.0))
    """

    n_components: int = option(default=8, check=check_integer, least=1)
    _: KW_ONLY
    init: str = option(default="k-means++", check=check_choice, choices=INITS)
    n_init: int = option(default=10, check=check_integer, least=1)
    max_iter: int = option(default=300, check=check_integer, least=1)
    random_state: Any = option(default=None, check=check_seed)

    def fit(self, X, y=None, sample_weight=None):
        """Compute the prototypes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row, in any unit; integers without a common divisor are copies of rows.

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            self._fit(X, sample_weight)
        return self

    def _fit(self, X, sample_weight):
        from sklearn.cluster import KMeans  # here, because it takes a tenth of a second

        X = checked_table(self, X, dtype=np.float64)
        rows, weight = distinct_rows(X, sample_weight)
        if self.n_components > len(rows):
            raise ValueError(
                f"n_components={self.n_components} must not be larger than the number of distinct rows of X, "
                f"{len(rows)} (n_samples={len(X)})"
            )
        rng = as_random_state(self.random_state)
        lowest = np.inf
        for _ in range(self.n_init):
            starts = _STARTS[self.init](rows, weight, self.n_components, rng)
            run = KMeans(self.n_components, init=starts, n_init=1, max_iter=self.max_iter, tol=0)
            run.fit(rows, sample_weight=weight)
            if run.inertia_ < lowest:
                lowest, best, self.starts_, self.n_iter_ = run.inertia_, run, starts, int(run.n_iter_)
        self.components_ = best.cluster_centers_
        for k in np.unique(best.labels_):  # recomputed: KMeans may round means of rows >= 0 below 0
            own = best.labels_ == k
            self.components_[k] = np.average(rows[own], axis=0, weights=weight[own])

    def predict(self, X):
        """Index of the nearest prototype of each row; the lowest index in case of ties."""
        from sklearn.metrics import pairwise_distances_argmin

        check_is_fitted(self)
        X = checked_table(self, X, dtype=np.float64, reset=False)
        return pairwise_distances_argmin(X, self.components_)

    def transform(self, X):
        """The sources (n_samples, n_components): 1 for the nearest prototype, 0 for the others."""
        nearest = self.predict(X)
        return (nearest[:, None] == np.arange(len(self.components_))).astype(np.float64)

    # -- files --------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {"components": self.components_, "starts": self.starts_}

    def _set_fitted_arrays(self, components, starts):
        components = numbers("components", components)
        if components.ndim != 2 or len(components) != self.n_components:
            raise ValueError(f"components must have n_components={self.n_components} rows")
        self.components_, self.starts_ = components, parameter("starts", starts, components.shape)
        self.n_features_in_ = components.shape[1]

    def _more_header(self):
        return {"n_iter": self.n_iter_}

    def _set_more(self, n_iter):
        check_integer("n_iter", n_iter, least=1)
        self.n_iter_ = n_iter


def _spread_rows(X, weight, n, rng):
    from sklearn.cluster import kmeans_plusplus

    return kmeans_plusplus(X, n, sample_weight=weight, random_state=rng)[0]


def _some_rows(X, weight, n, rng):
    return X[rng.choice(len(X), size=n, replace=False, p=weight / weight.sum())]


def _unit_vectors(X, weight, n, rng):
    vectors = rng.uniform(size=(n, X.shape[1]))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _gaussian_draws(X, weight, n, rng):
    mean = np.average(X, axis=0, weights=weight)
    deviation = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    return mean + deviation * rng.standard_normal((n, X.shape[1]))


_STARTS = dict(zip(INITS, (_spread_rows, _some_rows, _unit_vectors, _gaussian_draws), strict=True))
