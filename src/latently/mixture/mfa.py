"""Mixtures of factor analysers and of probabilistic PCA."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np

from latently.estimators.checks import check_choice, check_flag, check_integer
from latently.estimators.options import estimator, option
from latently.mixture.factors import FactorMethods
from latently.mixture.parsimonious import MODELS, check_shared, structure_of
from latently.mixture.robust import RobustMixture
from latently.mixture.structure import LowRankStructure, low_rank_covariances

_NOISE = ("diagonal", "isotropic")  # between features


@estimator
class MFA(FactorMethods, RobustMixture):
    """Mixture of factor analysers.

    A component k is drawn with probability pi_k, factors z from N(0, I), and
    x = mu_k + L_k z + noise with noise ~ N(0, diag(psi_k)). The model finds clusters and, within each, a
    linear map to a few factors. No covariance matrix is ever formed, so it scales to many features.

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    n_factors : int, default=1
        Number of factors q of each component. With 0 this is a diagonal Gaussian mixture.
    noise : {"diagonal", "isotropic"}, default="diagonal"
        Whether the noise variance differs between features. "isotropic" is :class:`MPPCA`.
    shared_noise : bool, "shape" or "volume", default=False
        Whether all components share one noise variance, or the proportions of the noise variances of
        features ("shape"), or their product ("volume").
    shared_loadings : bool, default=False
        Whether all components share their loadings.
    covariance_type : "auto" or a model of pgmm, default="auto"
        What `noise`, `shared_noise` and `shared_loadings` say, or in their place one of the twelve models
        UUU, UUC, UCU, UCC, UCUU, UUCU, CUU, CUC, CCU, CCC, CCUU and CUCU. The letters say what is constrained
        (C) or not (U): loadings equal, noise equal, noise isotropic; of four letters, loadings equal, shape
        equal, volume equal, noise isotropic.
    {options}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    loadings_ : ndarray of shape (n_components, n_features, n_factors)
        Repeated for every component if they are shared; so is the noise.
    noise_variance_ : ndarray of shape (n_components, n_features)
    covariances_ : ndarray of shape (n_components, n_features, n_features)
        Computed on access.
    {attributes}

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

    n_components: int = option(default=1, check=check_integer, least=1)
    n_factors: int = option(default=1, check=check_integer, least=0)
    _: KW_ONLY
    noise: str = option(default="diagonal", check=check_choice, choices=_NOISE)
    shared_noise: Any = option(default=False, check=check_shared)
    shared_loadings: bool = option(default=False, check=check_flag)
    covariance_type: str = option(default="auto", check=check_choice, choices=("auto", *MODELS))
    weights_init: Any = None
    means_init: Any = None
    loadings_init: Any = None
    noise_init: Any = None

    @classmethod
    def from_parameters(cls, *, weights, means, loadings, noise_variance, **options):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        return from_low_rank(cls, weights, means, loadings, noise_variance, options)

    def _gaussian_structure(self):
        return structure_of(self)

    @property
    def covariances_(self):
        """(n_components, n_features, n_features) covariance matrices, computed on access."""
        return low_rank_covariances(self._gaussian_params().components)


@estimator
class MPPCA(FactorMethods, RobustMixture):
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
    {options}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    loadings_ : ndarray of shape (n_components, n_features, n_factors)
    noise_variance_ : ndarray of shape (n_components, n_features)
        All entries of a row are equal.
    covariances_ : ndarray of shape (n_components, n_features, n_features)
        Computed on access.
    {attributes}

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

    n_components: int = option(default=1, check=check_integer, least=1)
    n_factors: int = option(default=1, check=check_integer, least=0)
    _: KW_ONLY
    shared_noise: bool = option(default=False, check=check_flag)
    weights_init: Any = None
    means_init: Any = None
    loadings_init: Any = None
    noise_init: Any = None

    @classmethod
    def from_parameters(cls, *, weights, means, loadings, noise_variance, **options):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        return from_low_rank(cls, weights, means, loadings, noise_variance, options)

    def _gaussian_structure(self):
        return LowRankStructure(self.n_components, self.n_factors, True, bool(self.shared_noise))

    covariances_ = MFA.covariances_


def from_low_rank(cls, weights, means, loadings, noise_variance, options):
    """A fitted mixture of the class, with the sizes taken from the arrays."""
    if np.ndim(weights) != 1 or np.ndim(loadings) < 2:
        raise ValueError(
            "weights must have shape (n_components,) and loadings (n_components, n_features, n_factors)"
        )
    given = {"weights": weights, "means": means, "loadings": loadings, "noise_variance": noise_variance}
    return cls._from_parameters((len(weights), np.shape(loadings)[-1]), given, options)
