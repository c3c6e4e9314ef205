"""Mixtures of common factor analysers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from latently.mixture._clusters import Clusters
from latently.mixture._common import CommonFactorModel
from latently.mixture._docs import shares_docs


@shares_docs
class MCFA(Clusters, CommonFactorModel):
    """Mixture of common factor analysers: clusters in one common subspace.

    A component k is drawn with probability pi_k, factors z from N(xi_k, Omega_k), and x = A z + noise with
    noise ~ N(0, diag(psi)). Clusters and a linear map to a few factors are learnt together; the clusters can
    be seen in the plane of the factors, and parameters are few, so there may be more features than rows.

    There is no free mean: all means lie in the column space of A. So the origin of the features matters, and
    centred data give another model.

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    n_factors : int, default=1
        Number of factors q, at least one.
    shared_covariance : bool, default=False
        Whether all components have one and the same covariance of the factors. Then they are told apart by
        their means alone, and there are far fewer parameters: worth a try where rows are few.
    {shared}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    loadings_ : ndarray of shape (n_features, n_factors)
        A, with orthonormal columns.
    latent_means_ : ndarray of shape (n_components, n_factors)
    latent_covariances_ : ndarray of shape (n_components, n_factors, n_factors)
        They may be singular: a component may have no variance along some factor.
    noise_variance_ : ndarray of shape (n_features,)
    means_ : ndarray of shape (n_components, n_features)
        Worked out when asked for, as `covariances_`.
    covariances_ : ndarray of shape (n_components, n_features, n_features)
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import MCFA
    >>> X = load_iris().data
    >>> model = MCFA(n_components=3, n_factors=2, random_state=0).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    >>> model.n_parameters()
    25
    """

    _PARAMETERS: ClassVar = {
        "weights": "weights_init",
        "loadings": "loadings_init",
        "latent_means": "latent_means_init",
        "latent_covariances": "latent_covariances_init",
        "noise_variance": "noise_init",
    }

    def __init__(
        self,
        n_components=1,
        n_factors=1,
        *,
        shared_covariance=False,
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        init="kmeans",
        weights_init=None,
        loadings_init=None,
        latent_means_init=None,
        latent_covariances_init=None,
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
            shared_covariance=shared_covariance,
            max_iter=max_iter,
            tol=tol,
            n_init=n_init,
            init=init,
            weights_init=weights_init,
            loadings_init=loadings_init,
            latent_means_init=latent_means_init,
            latent_covariances_init=latent_covariances_init,
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

    @classmethod
    def from_parameters(
        cls, *, weights, loadings, latent_means, latent_covariances, noise_variance, shared_covariance=False
    ):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        The loadings are kept as they are; the normal form belongs to `fit`.
        """
        if np.ndim(weights) != 1 or np.ndim(loadings) != 2:
            raise ValueError("weights must have shape (n_components,) and loadings (n_features, n_factors)")
        model = cls(len(weights), np.shape(loadings)[1], shared_covariance=shared_covariance)
        model._check_hyperparameters()
        return model._set_parameters(
            weights=weights,
            loadings=loadings,
            latent_means=latent_means,
            latent_covariances=latent_covariances,
            noise_variance=noise_variance,
        )

    def _shapes(self, D):
        K, q = self.n_components, self.n_factors
        return {
            "weights": (K,),
            "loadings": (D, q),
            "latent_means": (K, q),
            "latent_covariances": (K, q, q),
            "noise_variance": (D,),
        }
