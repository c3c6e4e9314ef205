"""Factor analysis and probabilistic PCA: factor models with one component."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np

from latently.core.drivers import Result
from latently.distributions.moments import moment_step, principal_fit, total_moments
from latently.estimators.checks import check_integer
from latently.estimators.options import estimator, option
from latently.estimators.parameters import given_starts
from latently.mixture.base import MixtureEstimator
from latently.mixture.factors import FactorMethods
from latently.mixture.mfa import MFA
from latently.mixture.structure import OneComponent


@estimator
class FactorAnalysis(FactorMethods, MixtureEstimator):
    """Factor analysis: x = mu + L z + noise, z ~ N(0, I), noise ~ N(0, diag(psi)).

    With more rows than features the data are read once to compute their covariance; an iteration then costs
    O(D^2 q), independent of the number of rows.

    Parameters
    ----------
    n_factors : int, default=1
        Number of factors q.
    {options}

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    loadings_ : ndarray of shape (n_features, n_factors)
    noise_variance_ : ndarray of shape (n_features,)
    covariance_ : ndarray of shape (n_features, n_features)
        Computed on access.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import FactorAnalysis
    >>> X = load_iris().data
    >>> model = FactorAnalysis(n_factors=1).fit(X)
    >>> model.loadings_.shape
    (4, 1)
    >>> model.n_parameters()
    12
    """

    n_factors: int = option(default=1, check=check_integer, least=0)
    _: KW_ONLY
    means_init: Any = None
    loadings_init: Any = None
    noise_init: Any = None

    @classmethod
    def from_parameters(cls, *, mean, loadings, noise_variance, **options):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        return _from_one(cls, mean, loadings, noise_variance, options)

    def _structure(self):
        return OneComponent(1, self.n_factors)

    def _result(self, problem, step=None):
        if not problem.summary.missing and problem.summary.n_rows > problem.data.n_features:
            step = moment_step(problem.kernel, total_moments(problem.sweep()), problem.log_volume)
        return super()._result(problem, step)

    covariances_ = MFA.covariances_

    @property
    def covariance_(self):
        """(n_features, n_features) covariance matrix, computed on access."""
        return self.covariances_[0]


@estimator
class PPCA(FactorMethods, MixtureEstimator):
    """Probabilistic PCA: x = mu + W z + noise, z ~ N(0, I), noise ~ N(0, sigma^2 I).

    Fitted in closed form, so the options of the iteration (`max_iter`, `tol`, starting values, ...) have no
    effect. With missing entries it is fitted by EM, as the other models are.

    Parameters
    ----------
    n_factors : int, default=1
        Number of factors q.
    {options}

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    loadings_ : ndarray of shape (n_features, n_factors)
        Principal axes, longest first, each with its largest entry positive.
    noise_variance_ : ndarray of shape (n_features,)
        All entries are equal.
    covariance_ : ndarray of shape (n_features, n_features)
        Computed on access.
    n_iter_, n_passes_, converged_ : int, int, bool
        1, 1 and True, unless entries are missing.
    history_ : ndarray
        Log-likelihood per row; one entry, unless entries are missing.
    n_features_in_, feature_names_in_ : int, ndarray
        Number of features, and their names if X had any.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import PPCA
    >>> X = load_iris().data
    >>> model = PPCA(n_factors=2).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    >>> model.n_parameters()
    12
    """

    n_factors: int = option(default=1, check=check_integer, least=0)
    _: KW_ONLY
    means_init: Any = None
    loadings_init: Any = None
    noise_init: Any = None

    @classmethod
    def from_parameters(cls, *, mean, loadings, noise_variance, **options):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        return _from_one(cls, mean, loadings, noise_variance, options)

    def _structure(self):
        return OneComponent(1, self.n_factors, isotropic=True)

    def _result(self, problem, step=None):
        if problem.summary.missing:
            return super()._result(problem, step)
        given_starts(self, self._parameters(), self._sizes(problem.data.n_features))  # checked, not needed
        params = principal_fit(problem.kernel.family, problem.sweep(), problem.summary.n_rows)
        self.n_passes_ = 1
        return Result(params, [problem.step()(params).objective], 1, True)

    covariances_, covariance_ = FactorAnalysis.covariances_, FactorAnalysis.covariance_


def _from_one(cls, mean, loadings, noise_variance, options):
    if np.ndim(loadings) != 2:
        raise ValueError("loadings must have shape (n_features, n_factors)")
    model = cls(np.shape(loadings)[1], **options)
    return model._with_parameters(mean=mean, loadings=loadings, noise_variance=noise_variance)
