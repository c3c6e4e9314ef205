"""Mixtures of Gaussians by variational Bayes, which keep as many components as the rows ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from latently.backend.namespace import Array, like
from latently.distributions import FullGaussian, FullParams, MixtureParams
from latently.distributions.heavy_tails import HeavyTailed
from latently.distributions.variational import (
    ConjugatePrior,
    PosteriorGaussian,
    PosteriorParams,
    PredictiveMixture,
)
from latently.estimators.checks import (
    check_covariances,
    check_mixing_weights,
    check_non_negative,
    check_positive,
)
from latently.estimators.options import estimator
from latently.estimators.parameters import Parameter
from latently.mixture.posterior import TYPICAL, PosteriorMixture, PosteriorStructure
from latently.mixture.priors import ROWS, weak_prior


@dataclass(frozen=True)
class PosteriorGaussians(PosteriorStructure):
    """K Gaussians of which a posterior is known."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("weights", None, ("K",), check_mixing_weights),
            Parameter("means", "means_init", ("K", "D")),
            Parameter("covariances", "covariances_init", ("K", "D", "D"), check_covariances),
            Parameter("counts", "counts_init", ("K",), check_non_negative),
            Parameter("prior_mean", None, ("D",)),
            Parameter("prior_covariance", None, ("D", "D"), check_covariances),
            Parameter("prior_rows", None, (), check_positive),
        )

    def sizes(self, n_features: int) -> dict[str, int]:
        return {"K": self.n_components, "D": n_features}

    def family(self, floor: Array | None) -> PosteriorGaussian:
        return PosteriorGaussian(floor)

    def components(self, fitted: Mapping[str, Array]) -> PosteriorParams:
        return PosteriorParams(fitted["means"], fitted["covariances"], fitted["counts"])

    def from_kernel(self, params: MixtureParams) -> dict[str, Array]:
        c = params.components
        return {"weights": params.weights, "means": c.means, "covariances": c.covariances, "counts": c.counts}

    def gaussian(self, params: MixtureParams) -> MixtureParams:
        return MixtureParams(
            params.weights, FullParams(params.components.means, params.components.covariances)
        )


@estimator
class BayesianGaussianMixture(PosteriorMixture):
    """Mixture of Gaussians with a posterior over its parameters and over the number of components.

    Variational Bayes with a conjugate prior: components that the rows do not ask for end up empty and are
    removed. `n_components` is the most there may be. The density of rows is the predictive one, averaged over
    the posterior: a mixture of t distributions.

    Parameters
    ----------
    n_components : int, default=10
        The largest number of components.
    means_init, covariances_init, counts_init : array-like, optional
        Starting values of the posterior.
    {options}

    Attributes
    ----------
    n_components_ : int
        Components that are left (n_kept below): those with at least one row; all of them if rows were
        labelled.
    weights_ : ndarray of shape (n_kept,)
        Expected weights, of the components that are left alone.
    means_ : ndarray of shape (n_kept, n_features)
    covariances_ : ndarray of shape (n_kept, n_features, n_features)
        Inverses of the expected precision matrices.
    counts_ : ndarray of shape (n_kept,)
        Rows of each component. With r = `prior_rows_`, the posterior has a Wishart distribution of
        n_features - 1 + r + ``counts_`` degrees of freedom, and means as precise as r + ``counts_`` rows
        tell.
    prior_mean_, prior_covariance_, prior_rows_ : ndarray
        The prior of every component: worth so many rows about this mean, of expected precision the inverse
        of this covariance; they are the mean and the covariance of all rows, the latter over
        10^(2 / n_features).
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import BayesianGaussianMixture
    >>> X = load_iris().data
    >>> model = BayesianGaussianMixture(n_components=8, random_state=0).fit(X)
    >>> model.n_components_
    2
    """

    _: KW_ONLY
    means_init: Any = None
    covariances_init: Any = None
    counts_init: Any = None

    def _structure(self):
        return PosteriorGaussians(*self._weight_settings())

    def _predictive(self):
        floor = np.zeros(self.n_features_in_)
        of_rows = HeavyTailed(FullGaussian(floor), estimated=False)
        return PredictiveMixture(
            of_rows, self.dtype, family_of_q=PosteriorGaussian(floor), rows=float(self.prior_rows_)
        )

    def _prior(self, family, frame, data, summary, floor):
        """That of all components: some rows about the mean of all rows, with part of their covariance."""
        if summary.n_rows == 0:  # of a fitted model
            mean = (self.prior_mean_ - frame.shift) / frame.scale
            covariance = self.prior_covariance_ / frame.scale[:, None] / frame.scale
            return ConjugatePrior(float(self.prior_rows_), mean, covariance)
        rows = ROWS if isinstance(self.prior, str) else float(self.prior)
        sweep = data.sweep(frame, floats_per_row=4 * data.n_features, block_size=self.block_size)
        variance = (summary.deviation / frame.scale) ** 2
        spread = weak_prior(FullGaussian(floor), floor, variance, summary, sweep, TYPICAL, rows)
        mean = (summary.mean - frame.shift) / frame.scale
        covariance = spread.scale * frame.scale[:, None] * frame.scale
        covariance = 0.5 * (covariance + covariance.T)
        self._prior_of_all = {
            "prior_mean": summary.mean,
            "prior_covariance": covariance,
            "prior_rows": like(np.array(spread.rows), mean),
        }
        return ConjugatePrior(float(spread.rows), mean, spread.scale)

    @classmethod
    def from_parameters(
        cls, *, means, covariances, counts, prior_mean, prior_covariance, prior_rows, **options
    ):
        """A fitted estimator with a known posterior, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        given = {
            "means": means, "covariances": covariances, "counts": counts, "prior_mean": prior_mean,
            "prior_covariance": prior_covariance, "prior_rows": prior_rows,
        }  # fmt: skip
        return cls._from_posterior((max(1, np.size(counts)),), given, options)
