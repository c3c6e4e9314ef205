"""Mixtures of factor analysers and of probabilistic PCA."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from latently.mixture._clusters import Clusters
from latently.mixture._docs import shares_docs
from latently.mixture._factors import FactorMixture
from latently.mixture._validation import check_choice, check_flag

_ISOTROPIC = {"diagonal": False, "isotropic": True}


@shares_docs
class MFA(Clusters, FactorMixture):
    """Mixture of factor analysers.

    A component k is drawn with probability pi_k, factors z from N(0, I), and
    x = mu_k + L_k z + noise with noise ~ N(0, diag(psi_k)). Clusters and, in each, a linear
    map to a few factors; no covariance matrix is ever formed, so many features are fine.

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    n_factors : int, default=1
        Number of factors q of each component. With 0 this is a diagonal Gaussian mixture.
    noise : {"diagonal", "isotropic"}, default="diagonal"
        Whether the noise variance differs between features. "isotropic" is :class:`MPPCA`.
    shared_noise : bool, default=False
        Whether all components share one noise variance.
    {shared}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    loadings_ : ndarray of shape (n_components, n_features, n_factors)
    noise_variance_ : ndarray of shape (n_components, n_features)
    covariances_ : ndarray of shape (n_components, n_features, n_features)
        Worked out when asked for.
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import MFA
    >>> X = load_iris().data
    >>> model = MFA(n_components=3, n_factors=1, random_state=0).fit(X)
    >>> model.transform(X).shape
    (150, 1)
    >>> model.n_parameters()
    38
    """

    _PARAMETERS: ClassVar = {
        "weights": "weights_init",
        "means": "means_init",
        "loadings": "loadings_init",
        "noise_variance": "noise_init",
    }

    def __init__(
        self,
        n_components=1,
        n_factors=1,
        *,
        noise="diagonal",
        shared_noise=False,
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        init="kmeans",
        weights_init=None,
        means_init=None,
        loadings_init=None,
        noise_init=None,
        noise_floor=1e-6,
        accelerate="squarem",
        batch_size=None,
        learning_decay=0.7,
        learning_offset=10.0,
        checkpoint=None,
        checkpoint_every=10,
        block_size=None,
        dtype="float64",
        random_state=None,
        warm_start=False,
        verbose=0,
        callbacks=None,
    ):
        super().__init__(
            n_factors=n_factors,
            max_iter=max_iter,
            tol=tol,
            n_init=n_init,
            init=init,
            means_init=means_init,
            loadings_init=loadings_init,
            noise_init=noise_init,
            noise_floor=noise_floor,
            accelerate=accelerate,
            batch_size=batch_size,
            learning_decay=learning_decay,
            learning_offset=learning_offset,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            block_size=block_size,
            dtype=dtype,
            random_state=random_state,
            warm_start=warm_start,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.n_components = n_components
        self.weights_init = weights_init
        self.noise = noise
        self.shared_noise = shared_noise

    @classmethod
    def from_parameters(
        cls, *, weights, means, loadings, noise_variance, noise="diagonal", shared_noise=False
    ):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes."""
        K, q = _sizes(weights, loadings)
        model = cls(K, q, noise=noise, shared_noise=shared_noise)
        return _fitted(model, weights, means, loadings, noise_variance)

    def _check_hyperparameters(self):
        super()._check_hyperparameters()
        check_choice("noise", self.noise, _ISOTROPIC)
        check_flag("shared_noise", self.shared_noise)

    def _noise(self):
        return _ISOTROPIC[self.noise], bool(self.shared_noise)


@shares_docs
class MPPCA(MFA):
    """Mixture of probabilistic principal component analysers.

    As :class:`MFA`, with noise of equal variance in all features: x = mu_k + W_k z + noise,
    noise ~ N(0, sigma_k^2 I).

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    n_factors : int, default=1
        Number of factors q of each component. With 0 this is a spherical Gaussian mixture.
    shared_noise : bool, default=False
        Whether all components share one noise variance.
    {shared}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    loadings_ : ndarray of shape (n_components, n_features, n_factors)
    noise_variance_ : ndarray of shape (n_components, n_features)
        The same in each row of it.
    covariances_ : ndarray of shape (n_components, n_features, n_features)
        Worked out when asked for.
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import MPPCA
    >>> X = load_iris().data
    >>> model = MPPCA(n_components=3, n_factors=1, random_state=0).fit(X)
    >>> model.predict(X).shape
    (150,)
    >>> model.n_parameters()
    29
    """

    def __init__(
        self,
        n_components=1,
        n_factors=1,
        *,
        shared_noise=False,
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        init="kmeans",
        weights_init=None,
        means_init=None,
        loadings_init=None,
        noise_init=None,
        noise_floor=1e-6,
        accelerate="squarem",
        batch_size=None,
        learning_decay=0.7,
        learning_offset=10.0,
        checkpoint=None,
        checkpoint_every=10,
        block_size=None,
        dtype="float64",
        random_state=None,
        warm_start=False,
        verbose=0,
        callbacks=None,
    ):
        super().__init__(
            n_components,
            n_factors,
            noise="isotropic",
            shared_noise=shared_noise,
            max_iter=max_iter,
            tol=tol,
            n_init=n_init,
            init=init,
            weights_init=weights_init,
            means_init=means_init,
            loadings_init=loadings_init,
            noise_init=noise_init,
            noise_floor=noise_floor,
            accelerate=accelerate,
            batch_size=batch_size,
            learning_decay=learning_decay,
            learning_offset=learning_offset,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            block_size=block_size,
            dtype=dtype,
            random_state=random_state,
            warm_start=warm_start,
            verbose=verbose,
            callbacks=callbacks,
        )

    @classmethod
    def from_parameters(cls, *, weights, means, loadings, noise_variance, shared_noise=False):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes."""
        K, q = _sizes(weights, loadings)
        model = cls(K, q, shared_noise=shared_noise)
        return _fitted(model, weights, means, loadings, noise_variance)


def _sizes(weights, loadings):
    """Components and factors that the arrays speak of."""
    if np.ndim(weights) != 1 or np.ndim(loadings) < 2:
        raise ValueError(
            "weights must have shape (n_components,) and loadings (n_components, n_features, n_factors)"
        )
    return len(weights), np.shape(loadings)[-1]


def _fitted(model, weights, means, loadings, noise_variance):
    model._check_hyperparameters()
    return model._set_parameters(
        weights=weights, means=means, loadings=loadings, noise_variance=noise_variance
    )
