"""The base class of mixtures by variational Bayes, which keep as many components as the rows ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from latently.backend.namespace import Array, like, namespace, to_numpy
from latently.core.drivers import LOG_LIKELIHOOD
from latently.core.tree import mapped
from latently.distributions import MixtureParams
from latently.distributions.variational import VariationalMixture
from latently.estimators.checks import check_choice, check_integer, check_number
from latently.estimators.fitted import FittedModel
from latently.estimators.options import estimator, option
from latently.estimators.parameters import store
from latently.mixture.base import MixtureEstimator
from latently.mixture.structure import Structure

PROCESSES = {"dirichlet_process": True, "dirichlet": False}
_BOUND = replace(LOG_LIKELIHOOD, name="lower bound per row")
TYPICAL = 10  # components that share the volume of the data in priors, whatever `n_components` is
_LEAST_ROWS = 1.0  # of a component that is kept


@dataclass(frozen=True)
class PosteriorStructure(Structure):
    """K components of which a posterior is known. Their weights follow from the rows that were counted."""

    n_components: int
    process: bool  # a Dirichlet process; else a Dirichlet distribution
    concentration: float

    def kernel(self, family: Any, dtype: str) -> VariationalMixture:
        return VariationalMixture(family, dtype, self.process, self.concentration)

    def components(self, fitted: Mapping[str, Array]) -> Any:
        """The parameters of the family, from the fitted attributes."""
        raise NotImplementedError

    def to_kernel(self, fitted: Mapping[str, Array]) -> MixtureParams:
        components = self.components(fitted)
        if "weights" in fitted:
            return MixtureParams(fitted["weights"], components)
        return self.kernel(None, "float64").with_weights(components)

    def completed(self, ours: dict[str, Array], given: dict[str, Array]) -> dict[str, Array]:
        ours.pop("weights")  # they follow from the counts
        return {**ours, **given}


@estimator
class PosteriorMixture(MixtureEstimator):
    """Options of mixtures by variational Bayes; a concrete model implements `_structure` and `_predictive`.

    Parameters
    ----------
    weight_prior : {"dirichlet_process", "dirichlet"}, default="dirichlet_process"
        Prior of the mixing weights.
    concentration : float or "auto", default="auto"
        Of that prior; the smaller, the fewer components. "auto" is 1 / n_components.
    prior : float or "auto", default="auto"
        How many rows the prior of the covariances or noise variances of each component is worth, up to a
        million; "auto" is one.

    Attributes
    ----------
    history_ : ndarray of shape (n_iter + 1,)
        Lower bound of the log probability of the rows, per row, at the starting values and after every step.
        It never decreases.
    """

    n_components: int = option(default=10, check=check_integer, least=1)
    _: KW_ONLY
    weight_prior: str = option(default="dirichlet_process", check=check_choice, choices=tuple(PROCESSES))
    concentration: Any = option(default="auto", check=check_number, least=1e-12, or_else="auto")
    prior: Any = option(default="auto", check=check_number, least=1e-3, most=1e6, or_else="auto")

    objective = _BOUND

    def _structure(self) -> PosteriorStructure:
        raise NotImplementedError

    def _weight_settings(self):
        """The number of components, whether weights have a process for a prior, and its concentration."""
        n_components = getattr(self, "n_components_", self.n_components)
        a = 1.0 / self.n_components if isinstance(self.concentration, str) else float(self.concentration)
        return int(n_components), PROCESSES[self.weight_prior], a

    def _predictive(self):
        """The kernel of the density of new rows, of the parameters of the posterior."""
        raise NotImplementedError

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
        counts = to_numpy(self.counts_)
        kept = np.flatnonzero(counts >= _LEAST_ROWS)
        kept = kept if len(kept) else np.array([int(np.argmax(counts))])
        left = {}
        for entry in self._parameters():
            if entry.shape[:1] == ("K",):
                array = getattr(self, f"{entry.name}_")
                left[entry.name] = namespace(array).take(array, like(kept, array), axis=0)
        left["weights"] = left["weights"] / namespace(left["weights"]).sum(left["weights"])
        store(self, left)

    def _search(self, problem, sample):
        """Runs on a sample that counts for all rows, and finds as many components as these ask for."""
        all_rows = problem.summary.total_weight / float(np.sum(sample.weight))
        return super()._search(problem, replace(sample, weight=sample.weight * all_rows))

    def _keep(self, params):
        store(self, self.__dict__.pop("_prior_of_all", {}))
        self.n_components_ = int(params.weights.shape[0])
        super()._keep(params)

    def _look_for_degenerate_components(self, problem, params):
        self._degenerate = []  # the prior determines what rows do not

    # -- a fitted model -------------------------------------------------------------------------------

    def _fitted_model(self) -> FittedModel:
        structure, fitted = self._structure(), self._fitted_arrays()
        params, kernel = structure.to_kernel(fitted), self._predictive()
        return FittedModel(
            kernel,
            params,
            structure.frame(*kernel.moments(params)),
            structure.n_components,
            self.n_features_in_,
            next(iter(fitted.values())),
        )

    @classmethod
    def _from_posterior(cls, sizes, given, options):
        """A fitted estimator with these arrays; the weights follow from the counts."""
        model = cls(*sizes, **options)
        model._check_options()
        model._set_layout(len(np.atleast_1d(given["counts"])))
        structure = model._structure()
        shown = {name: np.asarray(array, float) for name, array in given.items()}
        params = structure.kernel(None, "float64").with_weights(structure.components(shown))
        return model._with_parameters(weights=mapped(to_numpy, params.weights), **given)

    def _layout_header(self):
        return {"n_components": int(self.n_components_)}

    def _set_layout(self, n_components):
        check_integer("n_components_", n_components, least=1)
        if n_components > self.n_components:
            raise ValueError(f"n_components_={n_components} must not be larger than {self.n_components}")
        self.n_components_ = int(n_components)
