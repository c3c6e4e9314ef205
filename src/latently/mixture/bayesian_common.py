"""Mixtures of common factor analysers by variational Bayes: as many parts as the rows ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latently.backend.linalg import root
from latently.backend.namespace import Array, eye, like, namespace, to_numpy
from latently.distributions import CommonLoadings, CommonParams, MixtureParams
from latently.distributions.heavy_tails import HeavyTailed
from latently.distributions.variational import PredictiveMixture
from latently.distributions.variational_common import CommonPosterior, PosteriorCommon
from latently.estimators.checks import (
    check_covariances,
    check_integer,
    check_locations,
    check_mixing_weights,
    check_non_negative,
    check_positive,
    check_semidefinite,
)
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter, store
from latently.mixture.factors import checked_factors
from latently.mixture.mcfa import MCFA, check_loadings_given
from latently.mixture.mfa import MFA
from latently.mixture.posterior import PosteriorMixture, PosteriorStructure
from latently.mixture.posterior_factors import PosteriorFactorMethods
from latently.mixture.structure import CommonStructure

_POSTERIOR = (
    *("mean", "loadings", "noise_variance", "relevances", "factor_moments", "latent_means"),
    *("latent_covariances", "counts"),
)


@dataclass(frozen=True)
class PosteriorCommonModels(PosteriorStructure):
    """K components in a common space of factors, of which a posterior is known."""

    n_factors: int

    means_from: ClassVar[str] = CommonStructure.means_from  # type: ignore[misc]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("weights", None, ("K",), check_mixing_weights),
            Parameter("mean", "mean_init", ("D",), check_locations),
            Parameter("loadings", "loadings_init", ("D", "q"), check_locations),
            Parameter("latent_means", "latent_means_init", ("K", "q"), check_locations),
            Parameter("latent_covariances", "latent_covariances_init", ("K", "q", "q"), check_covariances),
            Parameter("noise_variance", "noise_init", ("D",), check_positive),
            Parameter("counts", "counts_init", ("K",), check_non_negative),
            Parameter("relevances", None, ("h",), check_positive),
            Parameter("factor_moments", None, ("h", "h"), check_semidefinite),
            Parameter("prior_mean", None, ("D",), check_locations),
            Parameter("prior_noise", None, ("D",), check_positive),
            Parameter("prior_rows", None, (), check_positive),
        )

    def sizes(self, n_features: int) -> dict[str, int]:
        return {"K": self.n_components, "D": n_features, "q": self.n_factors, "h": self.n_factors + 1}

    @property
    def spread_by_row(self) -> bool:
        return True

    def family(self, floor: Array | None) -> PosteriorCommon:
        return PosteriorCommon(self.n_factors, floor)  # type: ignore[arg-type]

    def components(self, fitted: Mapping[str, Array]) -> CommonPosterior:
        if "relevances" in fitted:
            return CommonPosterior(*(fitted[name] for name in _POSTERIOR))
        mean, q = fitted["mean"], self.n_factors  # starting values
        known = CommonParams(
            *(mean, namespace(mean).zeros_like(fitted["loadings"][0, :]), mean, fitted["loadings"]),
            *(fitted["latent_means"], fitted["latent_covariances"], fitted["noise_variance"], eye(q, mean)),
        )
        return self.family(None).around(known, fitted["counts"])

    def from_kernel(self, params: MixtureParams) -> dict[str, Array]:
        c = params.components
        names = (name.removeprefix("factor_") for name in _POSTERIOR)
        return {
            "weights": params.weights,
            **dict(zip(_POSTERIOR, (getattr(c, n) for n in names), strict=True)),
        }

    def start_means(self, given: dict[str, Array]) -> Array | None:
        return None

    def completed(self, ours: dict[str, Array], given: dict[str, Array]) -> dict[str, Array]:
        ours = {name: array for name, array in ours.items() if name not in ("relevances", "factor_moments")}
        of_common = CommonStructure(self.n_components, self.n_factors)
        return super().completed(of_common.completed(ours, given), {})


@estimator
class BayesianMCFA(PosteriorFactorMethods, PosteriorMixture):
    """Mixture of common factor analysers with a posterior over its parameters, components and factors.

    Variational Bayes: components that the rows do not ask for end up empty and are removed, and so are
    factors, whose loadings have a prior with a scale of its own for each column (automatic relevance
    determination). `n_components` and `n_factors` are the most there may be. All components share the
    loadings, as in `MCFA`, but features have a free mean, so that their origin does not matter. Densities,
    factors and imputed entries are those of a mixture of t distributions with common loadings, which
    approximates the predictive distribution.

    Parameters
    ----------
    n_components : int, default=10
        The largest number of components.
    n_factors : int, default=5
        The largest number of factors, at least one; of not more than that many features, one less than there
        are.
    mean_init, loadings_init, latent_means_init, latent_covariances_init, noise_init, counts_init : \
array-like, optional
        Starting values of the posterior.
    {options}

    Attributes
    ----------
    n_components_ : int
        Components that are left (n_kept below): those with at least one row; all of them if rows were
        labelled.
    n_factors_ : int
        Factors that were not taken out of the model.
    weights_ : ndarray of shape (n_kept,)
        Expected weights, of the components that are left alone.
    mean_ : ndarray of shape (n_features,)
        Of rows whose factors are zero.
    loadings_ : ndarray of shape (n_features, q)
        For the number q of factors that are left; for one, of zeros, if none is. Columns come with the
        longest first, in units of the noise.
    latent_means_ : ndarray of shape (n_kept, q)
    latent_covariances_ : ndarray of shape (n_kept, q, q)
        Inverses of the expected precision matrices of the factors.
    noise_variance_ : ndarray of shape (n_features,)
        Inverses of the expected precisions of the noise.
    counts_ : ndarray of shape (n_kept,)
        Rows of each component. With r = `prior_rows_`, the precision of its factors has a Wishart
        distribution of q - 1 + r + ``counts_`` degrees of freedom.
    relevances_ : ndarray of shape (q + 1,)
        Expected precisions of the loadings of each factor and of the mean, in units of the noise.
    factor_moments_ : ndarray of shape (q + 1, q + 1)
        Means over rows of the products of (factors, 1) with themselves. The inverse of diag(relevances) plus
        the number of rows times these is the covariance of each feature's loadings and mean, in units of its
        noise.
    prior_mean_, prior_noise_, prior_rows_ : ndarray
        The prior: centre of the mean, scale of the noise, and how many rows it is worth, for the noise and
        for the factors of each component.
    means_ : ndarray of shape (n_kept, n_features)
        Computed on access.
    covariances_ : ndarray of shape (n_kept, n_features, n_features)
        Scale matrices of the predictive distribution, computed on access.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import BayesianMCFA
    >>> X = load_iris().data
    >>> model = BayesianMCFA(n_components=8, n_factors=3, random_state=0).fit(X)
    >>> model.n_components_
    2
    """

    n_components: int = option(default=10, check=check_integer, least=1)
    n_factors: int = option(default=5, check=check_integer, least=1)
    _: KW_ONLY
    mean_init: Any = None
    loadings_init: Any = None
    latent_means_init: Any = None
    latent_covariances_init: Any = None
    noise_init: Any = None
    counts_init: Any = None

    _least_columns = 1

    def _structure(self):
        n_components, process, concentration = self._weight_settings()
        return PosteriorCommonModels(n_components, process, concentration, self._n_columns)

    def _check_options(self):
        super()._check_options()
        check_loadings_given(self)

    def _predictive(self):
        floor = np.zeros(self.n_features_in_)
        of_q = PosteriorCommon(self._n_columns, floor)
        of_rows = HeavyTailed(CommonLoadings(self._n_columns, floor), estimated=False)
        return PredictiveMixture(of_rows, self.dtype, family_of_q=of_q, rows=float(self.prior_rows_))

    def _posterior(self):
        return self._structure().to_kernel(self._fitted_arrays()).components

    def _without_unused_factors(self):
        """Columns of factors that were taken out, which are last, are removed, but for one."""
        kept = np.arange(max(self._least_columns, self.n_factors_))
        q, with_mean = self._posterior(), np.append(kept, self._n_columns)
        left = {
            "loadings": to_numpy(q.loadings)[:, kept],
            "latent_means": to_numpy(q.latent_means)[:, kept],
            "latent_covariances": to_numpy(q.latent_covariances)[:, kept[:, None], kept],
            "relevances": to_numpy(q.relevances)[with_mean],
            "factor_moments": to_numpy(q.moments)[with_mean[:, None], with_mean],
        }
        store(self, {name: like(array, q.mean) for name, array in left.items()})
        self._kept_factors = len(kept)

    # -- a fitted model -------------------------------------------------------------------------------

    @classmethod
    def from_parameters(
        cls,
        *,
        mean,
        loadings,
        latent_means,
        latent_covariances,
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
        if np.ndim(loadings) != 2:
            raise ValueError("loadings must have shape (n_features, n_factors)")
        given = {
            "mean": mean, "loadings": loadings, "latent_means": latent_means,
            "latent_covariances": latent_covariances, "noise_variance": noise_variance, "counts": counts,
            "relevances": relevances, "factor_moments": factor_moments, "prior_mean": prior_mean,
            "prior_noise": prior_noise, "prior_rows": prior_rows,
        }  # fmt: skip
        return cls._from_posterior((len(np.atleast_1d(counts)), np.shape(loadings)[1]), given, options)

    @property
    def n_factors_(self):
        return self._posterior().n_active

    means_ = MCFA.means_
    covariances_ = MCFA.covariances_

    def n_parameters(self):
        """Number of free parameters of common factor analysers with a mean and the factors that are left."""
        check_is_fitted(self)
        K, D = len(self.counts_), self.n_features_in_
        q = self.n_factors_
        structured = 2 * D + D * q - q * q - q + K * q + K * q * (q + 1) // 2
        return K - 1 + min(structured, K * D + K * D * (D + 1) // 2)

    def inverse_transform(self, X):  # type: ignore[override]  # all components share the loadings
        """Expected rows for given factors, (n_samples, n_features): mu + A z."""
        return self.mean_ + checked_factors(self, X) @ self.loadings_.T

    def predictive(self):
        """The mixture of t factor analysers, `MFA(tails="t")`, whose density this model uses for rows.

        Factors of its components are uncorrelated, of mean zero and variance one, so they are others.
        """
        fitted = self._fitted_model()
        heavy = self._predictive_components(fitted)
        c, xp = heavy.gaussian, namespace(heavy.degrees)
        return MFA.from_parameters(
            weights=fitted.params.weights,
            means=c.means,
            loadings=c.loadings @ root(c.latent_covariances),
            noise_variance=xp.broadcast_to(c.noise_variance, c.means.shape),
            degrees_of_freedom=heavy.degrees,
        )
