"""Mixtures of factor analysers by variational Bayes: as many components and factors as the rows ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import Array, like, namespace, to_numpy
from latently.distributions import LowRankGaussian, LowRankParams, MixtureParams
from latently.distributions.heavy_tails import HeavyTailed
from latently.distributions.variational import PredictiveMixture
from latently.distributions.variational_factors import FactorPosterior, PosteriorFactors
from latently.estimators.checks import (
    check_integer,
    check_locations,
    check_mixing_weights,
    check_non_negative,
    check_positive,
    check_semidefinite,
)
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter, store
from latently.mixture.mfa import MFA
from latently.mixture.posterior import PosteriorMixture, PosteriorStructure
from latently.mixture.posterior_factors import PosteriorFactorMethods


@dataclass(frozen=True)
class PosteriorFactorModels(PosteriorStructure):
    """K factor models of which a posterior is known."""

    n_factors: int

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("weights", None, ("K",), check_mixing_weights),
            Parameter("means", "means_init", ("K", "D"), check_locations),
            Parameter("loadings", "loadings_init", ("K", "D", "q"), check_locations),
            Parameter("noise_variance", "noise_init", ("K", "D"), check_positive),
            Parameter("counts", "counts_init", ("K",), check_non_negative),
            Parameter("relevances", None, ("K", "h"), check_positive),
            Parameter("factor_moments", None, ("K", "h", "h"), check_semidefinite),
            Parameter("prior_mean", None, ("D",), check_locations),
            Parameter("prior_noise", None, ("D",), check_positive),
            Parameter("prior_rows", None, (), check_positive),
        )

    def sizes(self, n_features: int) -> dict[str, int]:
        return {"K": self.n_components, "D": n_features, "q": self.n_factors, "h": self.n_factors + 1}

    @property
    def spread_by_row(self) -> bool:
        return True

    def family(self, floor: Array | None) -> PosteriorFactors:
        return PosteriorFactors(self.n_factors, floor)  # type: ignore[arg-type]

    def components(self, fitted: Mapping[str, Array]) -> FactorPosterior:
        own = ("means", "loadings", "noise_variance")
        if "relevances" not in fitted:  # starting values
            known = LowRankParams(*(fitted[name] for name in own))
            return self.family(None).around(known, fitted["counts"])
        names = (*own, "counts", "relevances", "factor_moments")
        return FactorPosterior(*(fitted[name] for name in names))

    def from_kernel(self, params: MixtureParams) -> dict[str, Array]:
        c = params.components
        return {
            "weights": params.weights,
            "means": c.means,
            "loadings": c.loadings,
            "noise_variance": c.noise_variance,
            "counts": c.counts,
            "relevances": c.relevances,
            "factor_moments": c.moments,
        }


@estimator
class BayesianMFA(PosteriorFactorMethods, PosteriorMixture):
    """Mixture of factor analysers with a posterior over its parameters, components and factors.

    Variational Bayes: components that the rows do not ask for end up empty and are removed, and so are
    factors, whose loadings have a prior with a scale of its own for each column (automatic relevance
    determination). `n_components` and `n_factors` are the most there may be. Densities, factors and imputed
    entries are those of a mixture of t factor analysers, which approximates the predictive distribution.

    Parameters
    ----------
    n_components : int, default=10
        The largest number of components.
    n_factors : int, default=5
        The largest number of factors of each component; of less than that many features, one less than there
        are.
    means_init, loadings_init, noise_init, counts_init : array-like, optional
        Starting values of the posterior.
    {options}

    Attributes
    ----------
    n_components_ : int
        Components that are left (n_kept below): those with at least one row; all of them if rows were
        labelled.
    n_factors_ : ndarray of int of shape (n_kept,)
        Factors that each component uses: those whose loadings are longer than their own uncertainty. They
        come first.
    weights_ : ndarray of shape (n_kept,)
        Expected weights, of the components that are left alone.
    means_ : ndarray of shape (n_kept, n_features)
    loadings_ : ndarray of shape (n_kept, n_features, q)
        For the largest number q of factors that a component uses; further columns of others are near zero.
    noise_variance_ : ndarray of shape (n_kept, n_features)
        Inverses of the expected precisions of the noise.
    counts_ : ndarray of shape (n_kept,)
        Rows of each component.
    relevances_ : ndarray of shape (n_kept, q + 1)
        Expected precisions of the loadings of each factor and of the mean, in units of the noise.
    factor_moments_ : ndarray of shape (n_kept, q + 1, q + 1)
        Means over rows of the products of (factors, 1) with themselves. The inverse of diag(relevances) plus
        counts times these is the covariance of each feature's loadings and mean, in units of its noise.
    prior_mean_, prior_noise_, prior_rows_ : ndarray
        The prior of every component: centre of the means, scale of the noise and how many rows it is worth.
    covariances_ : ndarray of shape (n_kept, n_features, n_features)
        Scale matrices of the predictive distribution, computed on access.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import BayesianMFA
    >>> X = load_iris().data
    >>> model = BayesianMFA(n_components=8, n_factors=3, random_state=0).fit(X)
    >>> model.n_components_
    2
    """

    n_components: int = option(default=10, check=check_integer, least=1)
    n_factors: int = option(default=5, check=check_integer, least=0)
    _: KW_ONLY
    means_init: Any = None
    loadings_init: Any = None
    noise_init: Any = None
    counts_init: Any = None

    def _structure(self):
        n_components, process, concentration = self._weight_settings()
        return PosteriorFactorModels(n_components, process, concentration, self._n_columns)

    def _predictive(self):
        floor = np.zeros(self.n_features_in_)
        of_q = PosteriorFactors(self._n_columns, floor)
        of_rows = HeavyTailed(LowRankGaussian(self._n_columns, floor), estimated=False)
        return PredictiveMixture(of_rows, self.dtype, family_of_q=of_q, rows=float(self.prior_rows_))

    def _without_unused_factors(self):
        """Columns that no component uses are removed; those of each come in the order of their lengths."""
        used = int(np.max(self.n_factors_, initial=0))
        loadings, noise = to_numpy(self.loadings_), to_numpy(self.noise_variance_)
        lengths = np.sum(loadings**2 / noise[:, :, None], axis=1)
        order = np.argsort(-lengths, axis=1, kind="stable")[:, :used]  # (K, used)
        last = np.full((len(order), 1), lengths.shape[1])
        columns = np.concatenate([order, last], axis=1)  # and that of the mean
        k = np.arange(len(order))[:, None]
        moments = to_numpy(self.factor_moments_)[k[:, :, None], columns[:, :, None], columns[:, None, :]]
        left = {
            "loadings": np.take_along_axis(loadings, order[:, None, :], axis=2),
            "relevances": to_numpy(self.relevances_)[k, columns],
            "factor_moments": moments,
        }
        place = self.means_
        store(self, {name: like(array, place) for name, array in left.items()})
        self._kept_factors = used

    # -- a fitted model -------------------------------------------------------------------------------

    @classmethod
    def from_parameters(
        cls,
        *,
        means,
        loadings,
        noise_variance,
        counts,
        relevances,
        factor_moments,
        prior_mean,
        prior_noise,
        prior_rows,
        **options,
    ):
        """A fitted estimator with a known posterior, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        if np.ndim(loadings) != 3:
            raise ValueError("loadings must have shape (n_components, n_features, n_factors)")
        given = {
            "means": means, "loadings": loadings, "noise_variance": noise_variance, "counts": counts,
            "relevances": relevances, "factor_moments": factor_moments, "prior_mean": prior_mean,
            "prior_noise": prior_noise, "prior_rows": prior_rows,
        }  # fmt: skip
        return cls._from_posterior(np.shape(loadings)[::2], given, options)

    @property
    def n_factors_(self):
        structure = self._structure()
        components = structure.to_kernel(self._fitted_arrays()).components
        used = structure.family(None).used(components)
        return to_numpy(namespace(used).sum(namespace(used).astype(used, namespace(used).int64), axis=1))

    def n_parameters(self):
        """Number of free parameters of a mixture of factor analysers with the factors that are used."""
        check_is_fitted(self)
        K, D = self.means_.shape
        each = [LowRankGaussian(int(q), np.zeros(D)).n_parameters(1, D) for q in self.n_factors_]
        return K - 1 + sum(each)

    def predictive(self):
        """The mixture of t factor analysers, `MFA(tails="t")`, whose density this model uses for rows."""
        fitted = self._fitted_model()
        heavy = self._predictive_components(fitted)
        c = heavy.gaussian
        return MFA.from_parameters(
            weights=fitted.params.weights,
            means=c.means,
            loadings=c.loadings,
            noise_variance=c.noise_variance,
            degrees_of_freedom=heavy.degrees,
        )

    covariances_ = MFA.covariances_
