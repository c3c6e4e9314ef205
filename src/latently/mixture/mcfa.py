"""Mixtures of common factor analysers."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np

from latently.estimators.checks import check_flag, check_integer
from latently.estimators.options import estimator, option
from latently.mixture.factors import FactorMethods, checked_factors
from latently.mixture.robust import RobustMixture
from latently.mixture.structure import CommonStructure, common_covariances


@estimator
class MCFA(FactorMethods, RobustMixture):
    """Mixture of common factor analysers: clusters in one common subspace.

    A component k is drawn with probability pi_k, factors z from N(xi_k, Omega_k), and x = A z + noise with
    noise ~ N(0, diag(psi)). Clusters and a linear map to a few factors are learnt jointly. The clusters can
    be plotted in the common factor space, and the model has few parameters, so there may be more features
    than rows.

    There is no free mean: all means lie in the column space of A. The origin of the features therefore
    matters, and centred data give a different model.

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    n_factors : int, default=1
        Number of factors q, at least one.
    shared_covariance : bool, default=False
        Whether all components share one covariance of the factors. They then differ only in their means,
        which needs far fewer parameters: worth a try with few rows.
    {options}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    loadings_ : ndarray of shape (n_features, n_factors)
        A, with orthonormal columns.
    latent_means_ : ndarray of shape (n_components, n_factors)
    latent_covariances_ : ndarray of shape (n_components, n_factors, n_factors)
        May be singular: a component can have zero variance along some factor.
    noise_variance_ : ndarray of shape (n_features,)
    means_ : ndarray of shape (n_components, n_features)
        Computed on access, as is `covariances_`.
    covariances_ : ndarray of shape (n_components, n_features, n_features)
    {attributes}

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

    n_components: int = option(default=1, check=check_integer, least=1)
    n_factors: int = option(default=1, check=check_integer, least=1)
    _: KW_ONLY
    shared_covariance: bool = option(default=False, check=check_flag)
    weights_init: Any = None
    loadings_init: Any = None
    latent_means_init: Any = None
    latent_covariances_init: Any = None
    noise_init: Any = None

    @classmethod
    def from_parameters(
        cls, *, weights, loadings, latent_means, latent_covariances, noise_variance, **options
    ):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        The loadings are kept as they are; `fit` makes them orthonormal. Any further keywords are those of the
        constructor.
        """
        if np.ndim(weights) != 1 or np.ndim(loadings) != 2:
            raise ValueError("weights must have shape (n_components,) and loadings (n_features, n_factors)")
        given = {
            "weights": weights,
            "loadings": loadings,
            "latent_means": latent_means,
            "latent_covariances": latent_covariances,
            "noise_variance": noise_variance,
        }
        return cls._from_parameters((len(weights), np.shape(loadings)[1]), given, options)

    def _gaussian_structure(self):
        return CommonStructure(self.n_components, self.n_factors, bool(self.shared_covariance))

    def _check_options(self):
        super()._check_options()
        check_loadings_given(self)

    @property
    def means_(self):
        """(n_components, n_features) means, computed on access."""
        return self._gaussian_params().components.means

    @property
    def covariances_(self):
        """(n_components, n_features, n_features) covariance matrices, computed on access."""
        return common_covariances(self._gaussian_params().components)

    def inverse_transform(self, X):  # type: ignore[override]  # all components share the loadings
        """Expected rows for given factors, (n_samples, n_features): A z."""
        return checked_factors(self, X) @ self.loadings_.T


def check_loadings_given(model):
    """Starting values of factors are meaningless without the loadings they refer to."""
    for name in ("latent_means_init", "latent_covariances_init"):
        if getattr(model, name) is not None and model.loadings_init is None:
            raise ValueError(f"{name} needs loadings_init, which defines the factors it refers to")
