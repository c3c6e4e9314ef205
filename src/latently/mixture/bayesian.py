"""Mixtures of Gaussians by variational Bayes, which keep as many components as the rows ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from latently.backend.namespace import Array, like, namespace, to_numpy
from latently.core.drivers import LOG_LIKELIHOOD
from latently.core.tree import mapped
from latently.distributions import FullGaussian, FullParams, MixtureParams
from latently.distributions.variational import (
    ConjugatePrior,
    PosteriorGaussian,
    PosteriorParams,
    PredictiveMixture,
    VariationalMixture,
)
from latently.estimators.checks import (
    check_choice,
    check_covariances,
    check_integer,
    check_mixing_weights,
    check_non_negative,
    check_number,
    check_positive,
)
from latently.estimators.fitted import FittedModel
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter, store
from latently.mixture.base import MixtureEstimator
from latently.mixture.priors import ROWS, weak_prior
from latently.mixture.structure import Structure

_PROCESSES = {"dirichlet_process": True, "dirichlet": False}
_BOUND = replace(LOG_LIKELIHOOD, name="lower bound per row")
_LEAST_ROWS = 1.0  # of a component that is kept


@dataclass(frozen=True)
class PosteriorStructure(Structure):
    """K Gaussians of which a posterior is known."""

    n_components: int
    process: bool
    concentration: float

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

    def kernel(self, family: Any, dtype: str) -> VariationalMixture:
        return VariationalMixture(family, dtype, self.process, self.concentration)

    def to_kernel(self, fitted: Mapping[str, Array]) -> MixtureParams:
        components = PosteriorParams(fitted["means"], fitted["covariances"], fitted["counts"])
        if "weights" in fitted:
            return MixtureParams(fitted["weights"], components)
        return self.kernel(None, "float64").with_weights(components)

    def from_kernel(self, params: MixtureParams) -> dict[str, Array]:
        c = params.components
        return {"weights": params.weights, "means": c.means, "covariances": c.covariances, "counts": c.counts}

    def gaussian(self, params: MixtureParams) -> MixtureParams:
        return MixtureParams(
            params.weights, FullParams(params.components.means, params.components.covariances)
        )

    def completed(self, ours: dict[str, Array], given: dict[str, Array]) -> dict[str, Array]:
        ours.pop("weights")  # they follow from the counts
        return {**ours, **given}


@estimator
class BayesianGaussianMixture(MixtureEstimator):
    """Mixture of Gaussians with a posterior over its parameters and over the number of components.

    Variational Bayes with a conjugate prior: components that the rows do not ask for end up empty and are
    removed. `n_components` is the most there may be. The density of rows is the predictive one, averaged over
    the posterior: a mixture of t distributions.

    Parameters
    ----------
    n_components : int, default=10
        The largest number of components.
    weight_prior : {"dirichlet_process", "dirichlet"}, default="dirichlet_process"
        Prior of the mixing weights.
    concentration : float or "auto", default="auto"
        Of that prior; the smaller, the fewer components. "auto" is 1 / n_components.
    means_init, covariances_init, counts_init : array-like, optional
        Starting values of the posterior.
    {options}

    Attributes
    ----------
    n_components_ : int
        Components that are left: those with at least one row. All of them if rows were labelled.
    weights_ : ndarray of shape (n_components_,)
        Expected weights, of the components that are left alone.
    means_ : ndarray of shape (n_components_, n_features)
    covariances_ : ndarray of shape (n_components_, n_features, n_features)
        Inverses of the expected precision matrices.
    counts_ : ndarray of shape (n_components_,)
        Rows of each component. With r = `prior_rows_`, the posterior has a Wishart distribution of
        n_features - 1 + r + counts_ degrees of freedom, and means as precise as r + counts_ rows tell.
    prior_mean_, prior_covariance_, prior_rows_ : ndarray
        The prior of every component: worth so many rows about this mean, of expected precision the inverse
        of this covariance; mean and covariance are those of all rows.
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

    n_components: int = option(default=10, check=check_integer, least=1)
    _: KW_ONLY
    weight_prior: str = option(default="dirichlet_process", check=check_choice, choices=tuple(_PROCESSES))
    concentration: Any = option(default="auto", check=check_number, least=1e-12, or_else="auto")
    prior: Any = option(default="auto", check=check_number, least=1e-3, or_else="auto")
    means_init: Any = None
    covariances_init: Any = None
    counts_init: Any = None

    objective = _BOUND

    def _structure(self):
        n_components = getattr(self, "n_components_", self.n_components)
        a = 1.0 / self.n_components if isinstance(self.concentration, str) else float(self.concentration)
        return PosteriorStructure(int(n_components), _PROCESSES[self.weight_prior], a)

    # -- fitting --------------------------------------------------------------------------------------

    def _data(self, X, y=None, sample_weight=None, *, reset):
        if reset and not self.warm_start:
            self.__dict__.pop("n_components_", None)
        return super()._data(X, y, sample_weight, reset=reset)

    def _fit(self, data):
        super()._fit(data)
        if data.field("allowed") is None:
            self._without_empty_components()
        self.n_components_ = int(self.counts_.shape[0])

    def _without_empty_components(self):
        kept = np.flatnonzero(to_numpy(self.counts_) >= _LEAST_ROWS)
        kept = kept if len(kept) else np.array([int(np.argmax(to_numpy(self.counts_)))])
        left = {}
        for name in ("weights", "means", "covariances", "counts"):
            array = getattr(self, f"{name}_")
            left[name] = namespace(array).take(array, like(kept, array), axis=0)
        left["weights"] = left["weights"] / namespace(left["weights"]).sum(left["weights"])
        store(self, left)

    def _prior(self, family, frame, data, summary, floor):
        """That of all components: some rows about the mean of all rows, with their covariance."""
        if summary.n_rows == 0:  # of a fitted model
            mean = (self.prior_mean_ - frame.shift) / frame.scale
            covariance = self.prior_covariance_ / frame.scale[:, None] / frame.scale
            return ConjugatePrior(float(self.prior_rows_), mean, covariance)
        rows = ROWS if isinstance(self.prior, str) else float(self.prior)
        sweep = data.sweep(frame, floats_per_row=4 * data.n_features, block_size=self.block_size)
        variance = (summary.deviation / frame.scale) ** 2
        spread = weak_prior(FullGaussian(floor), floor, variance, summary, sweep, 1, rows)
        mean = (summary.mean - frame.shift) / frame.scale
        covariance = spread.scale * frame.scale[:, None] * frame.scale
        covariance = 0.5 * (covariance + covariance.T)
        self._prior_of_all = {
            "prior_mean": summary.mean,
            "prior_covariance": covariance,
            "prior_rows": like(np.array(spread.rows), mean),
        }
        return ConjugatePrior(float(spread.rows), mean, spread.scale)

    def _keep(self, params):
        store(self, self.__dict__.pop("_prior_of_all", {}))
        self.n_components_ = int(params.weights.shape[0])
        super()._keep(params)

    def _look_for_degenerate_components(self, problem, params):
        self._degenerate = []  # the prior determines what rows do not

    # -- a fitted model -------------------------------------------------------------------------------

    def _fitted_model(self) -> FittedModel:
        structure, fitted = self._structure(), self._fitted_arrays()
        params = structure.to_kernel(fitted)
        kernel = PredictiveMixture.of(np.zeros(self.n_features_in_), self.dtype, float(self.prior_rows_))
        mean, deviation = kernel.moments(params)
        place = next(iter(fitted.values()))
        return FittedModel(
            kernel,
            params,
            structure.frame(mean, deviation),
            structure.n_components,
            self.n_features_in_,
            place,
        )

    @classmethod
    def from_parameters(
        cls, *, means, covariances, counts, prior_mean, prior_covariance, prior_rows, **options
    ):
        """A fitted estimator with a known posterior, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        model = cls(max(1, np.size(counts)), **options)
        model._check_options()
        structure = model._structure()
        posterior = PosteriorParams(*(np.asarray(of, float) for of in (means, covariances, counts)))
        weights = mapped(to_numpy, structure.kernel(None, "float64").with_weights(posterior)).weights
        model = model._with_parameters(
            weights=weights, means=means, covariances=covariances, counts=counts,
            prior_mean=prior_mean, prior_covariance=prior_covariance, prior_rows=prior_rows,
        )  # fmt: skip
        model.n_components_ = len(model.counts_)
        return model

    def _layout_header(self):
        return {"n_components": int(self.n_components_)}

    def _set_layout(self, n_components):
        check_integer("n_components_", n_components, least=1)
        if n_components > self.n_components:
            raise ValueError(f"n_components_={n_components} must not be larger than {self.n_components}")
        self.n_components_ = int(n_components)
