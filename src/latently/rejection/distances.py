"""Distances of rows to those of the fit, in their own space or that of codes.

    Mahalanobis      -min_c (z - mu_c)' S^-1 (z - mu_c),    S of all classes, shrunken
    k neighbours     -(distance of z to the k-th nearest row of the fit)

z is a row, or what a transformer makes of it. S is the covariance about the class means, drawn to a multiple
of the identity by the amount of Ledoit & Wolf (2004, J. Multivariate Analysis); without classes there is one
mean.

Lee et al. (2018), NeurIPS; Sun et al. (2022), ICML.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from sklearn.base import clone
from sklearn.covariance import ledoit_wolf
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from latently.core.data import Data
from latently.estimators.base import Estimator
from latently.estimators.checks import LARGEST, check_integer, check_matrix
from latently.estimators.data import check_data, in_memory
from latently.estimators.labels import UNLABELLED, class_labels
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import estimator, option
from latently.estimators.rejection import Rejecting, remember_rows
from latently.estimators.rows import in_main_memory

_RIDGE = 1e-12  # of the mean variance: rows in a subspace, or one row per class, leave some variances at zero


def check_transformer(name, value):
    """An estimator with `transform`, or None."""
    if value is None:
        return
    if isinstance(value, type) or not all(hasattr(value, method) for method in ("fit", "transform")):
        raise TypeError(f"{name} must be an estimator with fit and transform, such as PCA(5), not {value!r}")


@estimator
class CodeScore(Rejecting, Estimator):
    """Scores of codes of rows; a subclass implements `_fit_codes` and `_score_codes`.

    Parameters
    ----------
    transformer : estimator, optional
        Makes the codes: anything with `fit` and `transform`, such as a factor model, a classifier of latently
        or a pipeline. A clone of it is fitted, with y if there are classes; to use a fitted one, wrap it in
        scikit-learn's `FrozenEstimator`. By default rows are their own codes; scale them first.

    Attributes
    ----------
    transformer_ : estimator or None
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.
    """

    _: KW_ONLY
    transformer: Any = option(default=None, check=check_transformer)

    def fit(self, X, y=None):
        """Fit the score to rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Classes, for scores and transformers that use them.

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            data = self._rows(X, reset=True)
            self.transformer_ = None
            if self.transformer is not None:
                self.transformer_ = clone(self.transformer).fit(data.X, *(() if y is None else (y,)))
            self._fit_codes(self._codes(data.X), y)
            remember_rows(self, data)
        return self

    def score_samples(self, X):
        """The score of each row, (n_samples,): minus its distance."""
        check_is_fitted(self)
        return self._score_codes(self._codes(self._rows(X, reset=False).X))

    def _rows(self, X, *, reset):
        data = check_data(self, in_memory(X), reset=reset)
        if not data.in_memory:
            raise ValueError(f"{type(self).__name__} needs all rows of X in memory; give them as an array")
        return Data(np.asarray(in_main_memory(data.X), dtype=np.float64))

    def _codes(self, rows):
        if self.transformer_ is None:
            return rows
        codes = np.asarray(in_main_memory(self.transformer_.transform(rows)), dtype=np.float64)
        if not np.isfinite(codes).all():
            row = int(np.argwhere(~np.isfinite(codes))[0][0])
            raise ValueError(f"the transformer gives row {row} of X a code that is not finite")
        return codes

    def _fit_codes(self, codes, y):
        raise NotImplementedError

    def _score_codes(self, codes):
        raise NotImplementedError

    # -- files --------------------------------------------------------------------------------------

    def _parts(self):
        return {"transformer": self.transformer_}

    def _set_parts(self, transformer):
        if type(transformer) is not type(self.transformer):
            raise ValueError("its transformer does not have the class of its hyper-parameter")
        self.transformer_ = transformer

    def _set_sizes(self, n_codes):
        self.n_features_in_ = n_codes if self.transformer_ is None else self.transformer_.n_features_in_


@estimator
class MahalanobisScore(CodeScore):
    """Minus the squared Mahalanobis distance of a row to the nearest class mean.

    The covariance is that of all classes about their means, shrunken by the amount of Ledoit and Wolf.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        If it was fitted with classes.
    means_ : ndarray of shape (n_classes, n_codes)
        One mean without classes.
    covariance_ : ndarray of shape (n_codes, n_codes)
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from latently.rejection import MahalanobisScore
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_wine(return_X_y=True)
    >>> X = scale(X)
    >>> score = MahalanobisScore().fit(X[y < 2], y[y < 2])
    >>> bool(score.score_samples(X[y < 2]).mean() > score.score_samples(X[y == 2]).mean())
    True
    """

    def _fit_codes(self, codes, y):
        groups, n_groups = np.zeros(len(codes), dtype=int), 1
        self.__dict__.pop("classes_", None)
        if y is not None:
            groups, self.classes_ = class_labels(self, y, len(codes))
            n_groups = len(self.classes_)
        known = groups != UNLABELLED
        codes, groups = codes[known], groups[known]
        sizes = np.bincount(groups, minlength=n_groups)
        totals = np.zeros((n_groups, codes.shape[1]))
        np.add.at(totals, groups, codes)
        self.means_ = totals / sizes[:, None]
        deviations = codes - self.means_[groups]
        if not np.max(np.abs(deviations)) < LARGEST:
            raise ValueError("squares of the deviations of X from its means overflow; rescale the features")
        unit = float(np.max(np.abs(deviations))) or 1.0  # its fourth powers may overflow
        covariance = ledoit_wolf(deviations / unit, assume_centered=True)[0] * unit**2
        ridge = _RIDGE * (float(np.trace(covariance)) / len(covariance) or 1.0)
        self.covariance_ = covariance + ridge * np.eye(len(covariance))

    def _score_codes(self, codes):
        root = cholesky(self.covariance_, lower=True)
        with np.errstate(over="ignore", invalid="ignore"):  # distant rows have the score -inf
            distances = [
                np.sum(solve_triangular(root, (codes - mean).T, lower=True) ** 2, axis=0)
                for mean in self.means_
            ]
        return -np.min(np.nan_to_num(distances, nan=np.inf, posinf=np.inf), axis=0)

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {"means": self.means_, "covariance": self.covariance_}

    def _set_fitted_arrays(self, means, covariance):
        check_matrix("means", means)
        D = means.shape[1]
        symmetric = covariance.shape == (D, D) and np.allclose(covariance, covariance.T)
        if not symmetric or np.linalg.eigvalsh(covariance)[0] <= 0:
            raise ValueError("covariance must be a positive definite matrix with an entry for each code")
        self.means_, self.covariance_ = means, covariance
        self._set_sizes(D)


@estimator
class NeighborScore(CodeScore):
    """Minus the distance of a row to its k-th nearest row of the fit.

    A row of the fit is its own nearest neighbour. All codes of the fit are kept, in saved files too.

    Parameters
    ----------
    n_neighbors : int, default=5
        k.
    {options}

    Attributes
    ----------
    codes_ : ndarray of shape (n_samples, n_codes)
        Of the rows of the fit.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.mixture import MPPCA
    >>> from latently.rejection import NeighborScore
    >>> X, y = load_digits(return_X_y=True)
    >>> known, other = X[y < 5], X[y >= 5]
    >>> score = NeighborScore(transformer=MPPCA(1, 8)).fit(known[::2])
    >>> bool(score.score_samples(known[1::2]).mean() > score.score_samples(other).mean())
    True
    """

    n_neighbors: int = option(default=5, check=check_integer, least=1)

    def _fit_codes(self, codes, y):
        if len(codes) < self.n_neighbors:
            raise ValueError(f"n_neighbors={self.n_neighbors} must not be larger than n_samples={len(codes)}")
        self.codes_ = codes
        self.__dict__.pop("_index", None)

    def _score_codes(self, codes):
        if not hasattr(self, "_index"):
            self._index = NearestNeighbors(n_neighbors=self.n_neighbors).fit(self.codes_)
        return -self._index.kneighbors(codes, n_neighbors=self.n_neighbors)[0][:, -1]

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {"codes": self.codes_}

    def _set_fitted_arrays(self, codes):
        check_matrix("codes", codes)
        if len(codes) < self.n_neighbors:
            raise ValueError(f"there are {len(codes)} codes, fewer than n_neighbors={self.n_neighbors}")
        self.codes_ = codes
        self._set_sizes(codes.shape[1])
