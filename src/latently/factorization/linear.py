"""Base of the linear factorisations: rows are sources times components.

    X ~ S A + offset,     cost = || X - S A - offset ||^2

n rows, r components. They differ in the constraints on S and A: in vector quantisation every row has exactly
one source that is on, PCA has orthonormal components around the mean, NMF non-negative entries.
"""

from __future__ import annotations

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latently.backend.hashing import row_hashes
from latently.estimators.checks import LARGEST, check_weights, real_array
from latently.estimators.weights import weights_in_rows


class LinearFactorization(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Mixin for estimators with `components_` (r, D) and `transform`, which returns the sources (n, r)."""

    def _offset(self):
        """The constant added to every row: 0, or the mean (D,)."""
        return 0.0

    @property
    def _n_features_out(self):
        return len(self.components_)

    def inverse_transform(self, X):
        """Rows (n_samples, n_features) for given sources X (n_samples, n_components)."""
        check_is_fitted(self)
        S = real_array("X", X, dtype=np.float64)
        if S.shape[1] != len(self.components_):
            raise ValueError(
                f"X has {S.shape[1]} columns, but the model has {len(self.components_)} components"
            )
        return S @ self.components_ + self._offset()

    def reconstruct(self, X):
        """Rows reconstructed from their sources, (n_samples, n_features)."""
        return self.inverse_transform(self.transform(X))

    def squared_error(self, X, sample_weight=None):
        """The cost of the factorisation: the sum of squared differences between X and its reconstruction.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row.

        Returns
        -------
        float
        """
        reconstructed = self.reconstruct(X)
        by_row = np.sum((real_array("X", X, dtype=np.float64) - reconstructed) ** 2, axis=1)
        if sample_weight is not None:
            by_row = by_row * check_weights(sample_weight, len(by_row))
        return float(np.sum(by_row))


def distinct_rows(X, sample_weight):
    """Distinct rows with positive weight and their total weights, in sorted order.

    So a weight of two is equivalent to repeating a row, and random draws do not depend on the order of rows.
    """
    weight = np.ones(len(X)) if sample_weight is None else np.asarray(weights_in_rows(sample_weight, len(X)))
    X, weight = X[weight > 0], weight[weight > 0]
    largest = np.abs(X).max()
    if not largest < LARGEST:
        raise ValueError(
            f"X holds values of about {largest:.3g}, whose squares overflow float64; rescale the features"
        )
    _, first, number = np.unique(row_hashes(X), return_index=True, return_inverse=True)
    return X[first], np.bincount(number, weight)
