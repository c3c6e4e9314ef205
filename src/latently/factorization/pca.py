"""Principal component analysis as a factorisation.

    min || X - 1 m' - S A ||^2     with orthonormal rows of A

The solution is m the mean, A the leading principal axes and S = (X - 1 m') A'; the remaining cost is the sum
of the squares of the other singular values. Axes are in descending order of their variance, and the entry of
largest absolute value in each is positive; any other basis of their space has the same cost.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg
from sklearn.utils.extmath import svd_flip
from sklearn.utils.validation import check_is_fitted

from latently.estimators.base import Estimator
from latently.estimators.checks import check_integer, numbers, parameter
from latently.estimators.data import checked_table
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import estimator, option
from latently.factorization.linear import LinearFactorization, distinct_rows


@estimator
class PCA(LinearFactorization, Estimator):
    """Principal component analysis as a factorisation: X ~ mean + S A with orthonormal rows of A.

    Equivalent to scikit-learn's PCA with a full singular value decomposition, which minimises the cost
    exactly, but supports sample weights.

    Parameters
    ----------
    n_components : int, optional
        Number of components; by default the smaller of the numbers of features and distinct rows.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The axes, of unit length, in descending order of variance.
    mean_ : ndarray of shape (n_features,)
    explained_variance_ : ndarray of shape (n_components,)
        Variance of the rows along each axis, with divisor n_samples - 1 (total weight in rows - 1).
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.factorization import PCA
    >>> X = load_digits().data
    >>> few, many = PCA(5).fit(X), PCA(20).fit(X)
    >>> few.components_.shape, many.squared_error(X) < few.squared_error(X)
    ((5, 64), True)
    """

    n_components: int | None = option(default=None, check=check_integer, least=1, or_else=None)

    def fit(self, X, y=None, sample_weight=None):
        """Compute the principal axes.

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
        X = checked_table(self, X, dtype=np.float64, ensure_min_samples=2)
        X, weight = distinct_rows(X, sample_weight)
        if self.n_components is not None and self.n_components > min(X.shape):
            raise ValueError(
                f"n_components={self.n_components} must not be larger than the number of distinct rows of X, "
                f"{X.shape[0]}, and n_features={X.shape[1]}"
            )
        self.mean_ = np.average(X, axis=0, weights=weight)
        scaled = np.sqrt(weight)[:, None] * (X - self.mean_)
        U, values, axes = linalg.svd(scaled, full_matrices=False, overwrite_a=True)
        axes = svd_flip(U, axes, u_based_decision=False)[1][: self.n_components]
        self.components_ = np.ascontiguousarray(axes)
        self.explained_variance_ = values[: self.n_components] ** 2 / max(weight.sum() - 1.0, 1.0)

    def transform(self, X):
        """The sources (n_samples, n_components): coordinates of the rows along the axes."""
        check_is_fitted(self)
        X = checked_table(self, X, dtype=np.float64, reset=False)
        return (X - self.mean_) @ self.components_.T

    def _offset(self):
        return self.mean_

    # -- files --------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {
            "components": self.components_,
            "mean": self.mean_,
            "explained_variance": self.explained_variance_,
        }

    def _set_fitted_arrays(self, components, mean, explained_variance):
        components = numbers("components", components)
        if components.ndim != 2 or (self.n_components or len(components)) != len(components):
            raise ValueError(f"components must have n_components={self.n_components} rows")
        self.components_ = components
        self.mean_ = parameter("mean", mean, components.shape[1:])
        self.explained_variance_ = parameter("explained_variance", explained_variance, components.shape[:1])
        self.n_features_in_ = components.shape[1]
