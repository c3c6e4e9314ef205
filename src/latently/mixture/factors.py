"""Methods of fitted factor models: rows to factors (`transform`) and factors to rows."""

from __future__ import annotations

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import double, is_native, like, namespace, to_numpy
from latently.distributions.mixture import expected_rows
from latently.distributions.responsibilities import normalise
from latently.estimators.checks import real_array
from latently.estimators.rows import for_method, in_main_memory, rows_of
from latently.mixture.rotation import RotatedFactors


class FactorMethods(RotatedFactors, ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """For mixtures with factors z and noise with a diagonal covariance matrix; `n_factors` is an option."""

    @property
    def _n_features_out(self):
        return self.n_factors

    def _check_features(self, n_features):
        if self.n_factors > n_features:
            raise ValueError(f"n_factors={self.n_factors} must not be larger than n_features={n_features}")

    def transform(self, X, *, out=None):
        """Posterior means of the factors, averaged over components, (n_samples, n_factors)."""
        return rows_of(self, X, averaged_factors, out=out)

    def inverse_transform(self, X, components=None):
        """Expected rows for given factors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_factors)
            Factors.
        components : array-like of int of shape (n_samples,), optional
            The component of each row. By default components are averaged with their weights, which gives the
            expectation of x given its factors.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        Z = checked_factors(self, X)
        params = self._gaussian_params()
        pi, c = params.weights / namespace(params.weights).sum(params.weights), params.components
        if components is None:
            xp = namespace(Z, pi)
            return pi @ c.means + Z @ xp.sum(pi[:, None, None] * c.loadings, axis=0).T
        components = to_numpy(np.asarray(components) if isinstance(components, list | tuple) else components)
        if components.shape != (len(Z),) or components.dtype.kind not in "iu":
            raise ValueError(f"components must be integers of shape ({len(Z)},)")
        if np.any((components < 0) | (components >= len(pi))):
            raise ValueError(f"components must lie between 0 and {len(pi) - 1}")
        return rows_of_factors(c, Z, like(components, pi))

    def reconstruct(self, X, *, out=None):
        """Noise-free rows, (n_samples, n_features): the expectation of x given the factors, averaged over the
        posterior of factors and components."""
        return rows_of(self, X, noiseless, out=out)

    def factor_posterior(self, X):
        """Posterior of the factors given each row and component.

        Returns
        -------
        means : ndarray of shape (n_samples, n_components, n_factors)
        covariances : ndarray of shape (n_components, n_factors, n_factors)
            The same for all rows. If X has missing entries, or with tails="t", each row has its own
            covariances and the shape is (n_samples, n_components, n_factors, n_factors).
        """
        means = rows_of(self, X, factor_means)
        by_row = self._structure().spread_by_row
        if by_row or in_main_memory(rows_of(self, X, has_missing)).any():
            return means, rows_of(self, X, factor_covariances)
        fitted = self._fitted_model()
        density = fitted.kernel.of_family(fitted.kernel.prepare(fitted.params))
        return means, fitted.kernel.family.factor_covariances(density, None, 1)[0, ...]


def checked_factors(model, X):
    """Factors (n_samples, n_factors) given by the user, validated."""
    check_is_fitted(model)
    if is_native(X):
        Z = double(X)
    else:
        Z = real_array("X", X, dtype=np.float64, ensure_min_features=0)
    if Z.shape[1] != model._n_features_out:
        raise ValueError(f"X has {Z.shape[1]} columns, but the model has n_factors={model._n_features_out}")
    return Z


def rows_of_factors(c, Z, components):
    """(n, D) mu_k + L_k z, for factors Z (n, q) and the component k of each row."""
    xp = namespace(Z, c.means)
    rows = xp.take(c.means, components, axis=0)
    for k in range(c.means.shape[0]):
        rows = xp.where((components == k)[:, None], rows + Z @ c.loadings[k, ...].T, rows)
    return rows


# -- functions of blocks ------------------------------------------------------------------------------


@for_method("transform")
def averaged_factors(kernel, density, frame, block):
    """(n, q)"""
    density = kernel.of_family(density)
    log_joint, latent = kernel.family.evaluate(density, frame.enter(block))
    resp = normalise(log_joint)[1].T
    return namespace(resp).sum(resp[:, :, None] * kernel.family.factor_means(density, latent), axis=1)


@for_method("reconstruct")
def noiseless(kernel, density, frame, block):
    return expected_rows(kernel, density, frame.enter(block)) * frame.scale + frame.shift


@for_method("factor_posterior")
def factor_means(kernel, density, frame, block):
    """(n, K, q)"""
    density = kernel.of_family(density)
    return kernel.family.factor_means(density, kernel.family.evaluate(density, frame.enter(block))[1])


@for_method("factor_posterior")
def factor_covariances(kernel, density, frame, block):
    """(n, K, q, q)"""
    density = kernel.of_family(density)
    latent = kernel.family.evaluate(density, frame.enter(block))[1]
    return kernel.family.factor_covariances(density, latent, len(block))


@for_method("factor_posterior")
def has_missing(kernel, density, frame, block):
    """(n,) bool"""
    xp = namespace(block.X)
    if block.observed is None:
        return xp.zeros_like(block.X[:, 0], dtype=xp.bool)
    return ~xp.all(block.observed, axis=1)
