"""What a fitted factor model does with its factors, whatever its number of components."""

from __future__ import annotations

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from latently.distributions import LowRankGaussian, LowRankParams, MixtureParams
from latently.distributions.responsibilities import normalise
from latently.mixture._base import MixtureBase
from latently.mixture._validation import check_integer


class FactorMixture(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MixtureBase):
    """Mixtures with components N(mu_k, L_k L_k' + diag(psi_k))."""

    def __init__(
        self,
        *,
        n_factors,
        means_init,
        loadings_init,
        noise_init,
        **engine,
    ):
        super().__init__(**engine)
        self.n_factors = n_factors
        self.means_init = means_init
        self.loadings_init = loadings_init
        self.noise_init = noise_init

    def _noise(self):
        """Whether the noise is isotropic, and whether the components share it."""
        raise NotImplementedError

    def _family(self, floor):
        isotropic, shared = self._noise()
        return LowRankGaussian(self.n_factors, floor, isotropic=isotropic, shared=shared)

    def _shapes(self, D):
        K, q = self.n_components, self.n_factors
        return {"weights": (K,), "means": (K, D), "loadings": (K, D, q), "noise_variance": (K, D)}

    def _to_kernel(self, fitted):
        components = LowRankParams(fitted["means"], fitted["loadings"], fitted["noise_variance"])
        return MixtureParams(fitted["weights"], components)

    def _from_kernel(self, params):
        c = params.components
        return {
            "weights": params.weights,
            "means": c.means,
            "loadings": c.loadings,
            "noise_variance": c.noise_variance,
        }

    def _validated(self, name, value, D, shown_as):
        array = super()._validated(name, value, D, shown_as)
        if name == "noise_variance":
            isotropic, shared = self._noise()
            if isotropic and np.any(array != array[..., :1]):
                raise ValueError(f"{shown_as} must be the same for all features, the noise being isotropic")
            if shared and np.any(array != array[:1]):
                raise ValueError(f"{shown_as} must be the same for all components, the noise being shared")
        return array

    def _check_hyperparameters(self):
        super()._check_hyperparameters()
        check_integer("n_factors", self.n_factors, least=0)

    def _check_features(self, D):
        if self.n_factors > D:
            raise ValueError(f"n_factors={self.n_factors} must not be larger than n_features={D}")

    @property
    def _n_features_out(self):
        return self.n_factors

    @property
    def covariances_(self):
        """(n_components, n_features, n_features) covariance matrices, worked out when asked for."""
        c = self._parameters().components
        D = c.means.shape[1]
        return c.loadings @ np.swapaxes(c.loadings, 1, 2) + np.eye(D) * c.noise_variance[:, None, :]

    def factor_posterior(self, X):
        """Posterior of the factors given each row and component.

        Returns
        -------
        means : ndarray of shape (n_samples, n_components, n_factors)
        covariances : ndarray of shape (n_components, n_factors, n_factors)
            The same for all rows.
        """
        means = self._rows_of(X, lambda *at: _posterior(*at)[1])
        kernel = self._kernel()
        return means, kernel.prepare(self._parameters()).factor_covariances

    def transform(self, X):
        """Posterior means of the factors, averaged over components, (n_samples, n_factors)."""

        def averaged(kernel, density, block):
            resp, means = _posterior(kernel, density, block)
            return np.sum(resp[:, :, None] * means, axis=1)

        return self._rows_of(X, averaged)

    def inverse_transform(self, X, components=None):
        """Expected rows for given factors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_factors)
            Factors.
        components : array-like of int of shape (n_samples,), optional
            The component each row is to come from. Without it the components are averaged with their
            weights, which is the expectation of x given its factors.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        Z = check_array(X, dtype=np.float64, ensure_min_features=0, input_name="X")
        if Z.shape[1] != self.n_factors:
            raise ValueError(f"X has {Z.shape[1]} columns, but there are n_factors={self.n_factors} factors")
        params = self._parameters()
        pi, c = params.weights, params.components
        if components is None:
            return pi @ c.means + Z @ np.tensordot(pi, c.loadings, axes=1).T
        components = np.asarray(components)
        if components.shape != (len(Z),) or components.dtype.kind not in "iu":
            raise ValueError(f"components must be integers of shape ({len(Z)},)")
        if np.any((components < 0) | (components >= len(pi))):
            raise ValueError(f"components must lie between 0 and {len(pi) - 1}")
        rows = c.means[components]
        for k in range(len(pi)):
            own = components == k
            rows[own] += Z[own] @ c.loadings[k].T
        return rows

    def reconstruct(self, X):
        """The rows without their noise, (n_samples, n_features): the posterior mean of mu_k + L_k z."""
        params = self._parameters()
        L, mu = params.components.loadings, params.components.means

        def noiseless(kernel, density, block):
            resp, means = _posterior(kernel, density, block)
            weighted = resp[:, :, None] * means
            K, D, q = L.shape
            stacked = np.moveaxis(L, 1, 2).reshape(K * q, D)
            return resp @ mu + weighted.reshape(len(resp), K * q) @ stacked

        return self._rows_of(X, noiseless)


def _posterior(kernel, density, block):
    """Responsibilities (n, K) and factor means (n, K, q) of a block."""
    log_joint, projected = kernel.family.evaluate(density, block.X)
    _, resp = normalise(log_joint)
    return resp.T, kernel.family.factor_means(density, projected)
