"""What a fitted factor model does with its factors, whatever its number of components."""

from __future__ import annotations

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from latently.backend.linalg import transpose
from latently.backend.namespace import double, eye, is_native, like, namespace, to_numpy
from latently.distributions import LowRankGaussian, LowRankParams, MixtureParams
from latently.distributions.mixture import expected_rows
from latently.distributions.responsibilities import normalise
from latently.mixture._base import MixtureBase
from latently.mixture._engine import for_method, in_main_memory
from latently.mixture._validation import check_integer, numbers


class FactorModel(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MixtureBase):
    """Mixtures whose components have factors z, and noise with a diagonal covariance matrix."""

    def __init__(self, *, n_factors, loadings_init, noise_init, **engine):
        super().__init__(**engine)
        self.n_factors = n_factors
        self.loadings_init = loadings_init
        self.noise_init = noise_init

    def _check_features(self, D):
        if self.n_factors > D:
            raise ValueError(f"n_factors={self.n_factors} must not be larger than n_features={D}")

    @property
    def _n_features_out(self):
        return self.n_factors

    def factor_posterior(self, X):
        """Posterior of the factors given each row and component.

        Returns
        -------
        means : ndarray of shape (n_samples, n_components, n_factors)
        covariances : ndarray of shape (n_components, n_factors, n_factors)
            The same for all rows; (n_samples, n_components, n_factors, n_factors) if X has missing entries,
            because then each row has its own.
        """
        means = self._rows_of(X, factor_means)
        if in_main_memory(self._rows_of(X, has_missing)).any():
            return means, self._rows_of(X, factor_covariances)
        kernel = self._kernel()
        return means, kernel.family.factor_covariances(kernel.prepare(self._parameters()), None, 1)[0, ...]

    def transform(self, X, *, out=None):
        """Posterior means of the factors, averaged over components, (n_samples, n_factors)."""
        return self._rows_of(X, averaged_factors, out=out)

    def reconstruct(self, X, *, out=None):
        """The rows without their noise, (n_samples, n_features): what is expected of them given the factors,
        averaged over the posterior of factors and components."""
        return self._rows_of(X, noiseless, out=out)

    def _factors(self, X):
        """Factors (n_samples, n_factors) of the user's, checked."""
        check_is_fitted(self)
        if is_native(X):
            Z = double(X)
        else:
            Z = check_array(X, dtype=np.float64, ensure_min_features=0, input_name="X")
        if Z.shape[1] != self.n_factors:
            raise ValueError(f"X has {Z.shape[1]} columns, but there are n_factors={self.n_factors} factors")
        return Z


class FactorMixture(FactorModel):
    """Mixtures with components N(mu_k, L_k L_k' + diag(psi_k))."""

    def __init__(self, *, means_init, **rest):
        super().__init__(**rest)
        self.means_init = means_init

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
        isotropic, shared = self._noise()
        if name == "noise_variance" and isotropic and self._shapes(D)[name] != (D,):
            value = numbers(shown_as, value)
            if value.shape == (self._n_components(),):  # one for each: their features all have the same
                value = value[:, None]
        array = super()._validated(name, value, D, shown_as)
        if name == "noise_variance":
            if isotropic and np.any(array != array[..., :1]):
                raise ValueError(f"{shown_as} must be the same for all features, the noise being isotropic")
            if shared and np.any(array != array[:1]):
                raise ValueError(f"{shown_as} must be the same for all components, the noise being shared")
        return array

    def _check_hyperparameters(self):
        super()._check_hyperparameters()
        check_integer("n_factors", self.n_factors, least=0)

    @property
    def covariances_(self):
        """(n_components, n_features, n_features) covariance matrices, worked out when asked for."""
        c = self._parameters().components
        return (
            c.loadings @ transpose(c.loadings) + eye(c.means.shape[1], c.means) * c.noise_variance[:, None, :]
        )

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
        Z = self._factors(X)
        params = self._parameters()
        pi, c = params.weights, params.components
        if components is None:
            xp = namespace(Z, pi)
            return pi @ c.means + Z @ xp.sum(pi[:, None, None] * c.loadings, axis=0).T
        components = to_numpy(np.asarray(components) if isinstance(components, list | tuple) else components)
        if components.shape != (len(Z),) or components.dtype.kind not in "iu":
            raise ValueError(f"components must be integers of shape ({len(Z)},)")
        if np.any((components < 0) | (components >= len(pi))):
            raise ValueError(f"components must lie between 0 and {len(pi) - 1}")
        xp = namespace(Z, pi)
        chosen = like(components[:, None] == np.arange(len(pi)), pi)
        rows = xp.take(c.means, like(components, pi), axis=0)
        for k in range(len(pi)):
            rows = xp.where(chosen[:, k, None], rows + Z @ c.loadings[k, ...].T, rows)
        return rows


@for_method("reconstruct")
def noiseless(kernel, density, frame, block):
    return expected_rows(kernel, density, frame.enter(block)) * frame.scale + frame.shift


@for_method("factor_posterior")
def factor_means(kernel, density, frame, block):
    """(n, K, q)"""
    return kernel.family.factor_means(density, kernel.family.evaluate(density, frame.enter(block))[1])


@for_method("factor_posterior")
def has_missing(kernel, density, frame, block):
    """(n,) bool"""
    xp = namespace(block.X)
    if block.observed is None:
        return xp.zeros_like(block.X[:, 0], dtype=xp.bool)
    return ~xp.all(block.observed, axis=1)


@for_method("factor_posterior")
def factor_covariances(kernel, density, frame, block):
    """(n, K, q, q)"""
    latent = kernel.family.evaluate(density, frame.enter(block))[1]
    return kernel.family.factor_covariances(density, latent, len(block))


@for_method("transform")
def averaged_factors(kernel, density, frame, block):
    """(n, q)"""
    log_joint, latent = kernel.family.evaluate(density, frame.enter(block))
    resp = normalise(log_joint)[1].T
    return namespace(resp).sum(resp[:, :, None] * kernel.family.factor_means(density, latent), axis=1)
