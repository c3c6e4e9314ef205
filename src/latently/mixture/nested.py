"""Mixtures of mixtures of Gaussians, with rows assigned to the components of the top layer.

    k ~ pi,   j | k ~ rho_k,   x | k, j ~ N(mu_kj, Sigma_kj)

K components of J sub-components each. As a density it is a flat mixture of K J Gaussians. It is fitted with
hard assignment at the top layer, by maximising

    sum_n max_k ln pi_k p_k(x_n),     p_k(x) = sum_j rho_kj N(x; mu_kj, Sigma_kj)

Reassigning rows increases it for fixed parameters, and EM within every component increases it for fixed
assignments, so a step of both never decreases it (classification EM; Celeux & Govaert, 1992). Formulas:
docs/nested_mixture.md.
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from latently.backend.namespace import like, namespace, to_numpy
from latently.core.drivers import LOG_LIKELIHOOD
from latently.core.tree import mapped
from latently.distributions.groups import HardGroups, by_group, joint_weights, split_weights
from latently.distributions.mixture import MixtureParams, responsibilities
from latently.estimators.checks import check_choice, check_integer, check_locations, check_mixing_weights
from latently.estimators.fitting import ended_by_one_interrupt
from latently.estimators.labels import component_labels
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter
from latently.estimators.rows import for_method, rows_of
from latently.mixture.base import MixtureEstimator
from latently.mixture.gaussian import GaussianMixture
from latently.mixture.structure import COVARIANCE_TYPES, GaussianStructure


@dataclass(frozen=True)
class NestedStructure(GaussianStructure):
    """K groups of J Gaussians; `n_components` is K J."""

    n_groups: int = 1  # type: ignore[assignment]

    @property
    def parameters(self):
        return (
            Parameter("weights", "weights_init", ("K",), check_mixing_weights),
            Parameter("subweights", "subweights_init", ("K", "J"), check_rows_of_weights),
            Parameter("means", "means_init", ("K", "J", "D"), check_locations),
            Parameter("covariances", "covariances_init", self._covariance_shape(), self.type.check),
        )

    def _covariance_shape(self):
        return self.type.shape if self.type.shape[0] != "K" else ("K", "J", *self.type.shape[1:])

    def sizes(self, n_features):
        return {"K": self.n_groups, "J": self.n_components // self.n_groups, "D": n_features}

    def kernel(self, family, dtype):
        return HardGroups(family, dtype, self.n_groups)

    def to_kernel(self, fitted):
        xp = namespace(fitted["means"])

        def flat(array):
            return xp.reshape(array, (self.n_components, *array.shape[2:]))

        covariances = fitted["covariances"] if self.type.shape[0] != "K" else flat(fitted["covariances"])
        weights = joint_weights(fitted["weights"], fitted["subweights"])
        return MixtureParams(weights, self.type.components(flat(fitted["means"]), covariances))

    def from_kernel(self, params):
        weights, subweights = split_weights(params.weights, self.n_groups)
        covariances = self.type.covariances(params.components)
        return {
            "weights": weights,
            "subweights": subweights,
            "means": by_group(params.components.means, self.n_groups),
            "covariances": covariances if self.type.shape[0] != "K" else by_group(covariances, self.n_groups),
        }

    def start_means(self, given):
        return given["means"].reshape(self.n_components, -1) if "means" in given else None


def check_rows_of_weights(shown_as, array):
    """Weights (K, J) whose rows each sum to one."""
    return np.stack(
        [check_mixing_weights(f"{shown_as} of component {k}", row) for k, row in enumerate(array)]
    )


@estimator
class NestedMixture(MixtureEstimator):
    """Mixture of Gaussian mixtures: the dual-layer mixture of Gaussians.

    A component k is drawn with probability pi_k, one of its sub-components j with probability rho_kj, then x
    from N(mu_kj, Sigma_kj). The density is that of a flat mixture, which `collapse` returns.

    During the fit every row belongs to one component. The objective, stored in `history_`, is the mean over
    rows of max_k ln pi_k p_k(x). It equals ln p(x) plus the log probability of the most probable component,
    which pushes components apart, while sub-components may overlap.

    Parameters
    ----------
    n_components : int, default=1
        Number of components K of the top layer.
    n_subcomponents : int, default=2
        Number of sub-components J of each component.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        Each sub-component has its own covariance matrix ("full"), all sub-components share one ("tied"), each
        has its own diagonal covariance matrix ("diag"), or each has a single variance ("spherical").
    {options}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    subweights_ : ndarray of shape (n_components, n_subcomponents)
        Each row sums to one.
    means_ : ndarray of shape (n_components, n_subcomponents, n_features)
    covariances_ : ndarray
        (n_components, n_subcomponents, n_features, n_features) if "full", (n_features, n_features) if "tied",
        (n_components, n_subcomponents, n_features) if "diag", (n_components, n_subcomponents) if "spherical".
    history_ : ndarray of shape (n_iter + 1,)
        Mean over rows of max_k ln pi_k p_k(x), at the starting values and after every step; it never
        decreases. `score` returns the mean log density, which is higher.
    {attributes}

    Notes
    -----
    Rows are first assigned by a `GaussianMixture` of `n_components`, and reassigned at every step. Rows with
    a label in `y` keep their component: `fit(X, GaussianMixture(K).fit_predict(X))` assigns them once.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import NestedMixture
    >>> X = load_iris().data
    >>> model = NestedMixture(2, 2, covariance_type="tied", random_state=0).fit(X)
    >>> model.means_.shape, model.subweights_.shape
    ((2, 2, 4), (2, 2))
    >>> flat = model.collapse()
    >>> flat.n_components, bool(abs(flat.score(X) - model.score(X)) < 1e-12)
    (4, True)
    """

    n_components: int = option(default=1, check=check_integer, least=1)
    n_subcomponents: int = option(default=2, check=check_integer, least=1)
    _: KW_ONLY
    covariance_type: str = option(default="full", check=check_choice, choices=tuple(COVARIANCE_TYPES))
    weights_init: Any = None
    subweights_init: Any = None
    means_init: Any = None
    covariances_init: Any = None

    objective = replace(LOG_LIKELIHOOD, name="mean of max ln pi_k p_k(x)")

    @classmethod
    def from_parameters(cls, *, weights, subweights, means, covariances, **options):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        shape = np.shape(subweights)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"subweights must have shape (n_components, n_subcomponents), not {shape}")
        return cls(*shape, **options)._with_parameters(
            weights=weights, subweights=subweights, means=means, covariances=covariances
        )

    def _structure(self):
        flat = self.n_components * self.n_subcomponents
        return NestedStructure(flat, self.covariance_type, self.n_components)

    # -- using a fitted model -------------------------------------------------------------------------

    def collapse(self):
        """The same density as one flat mixture of all sub-components.

        Returns
        -------
        GaussianMixture
            Fitted; sub-component j of component k becomes component k * n_subcomponents + j.
        """
        params = mapped(to_numpy, self._fitted_model().params)
        flat = GaussianMixture.from_parameters(
            weights=params.weights,
            means=params.components.means,
            covariances=COVARIANCE_TYPES[self.covariance_type].covariances(params.components),
            covariance_type=self.covariance_type,
        )
        if hasattr(self, "feature_names_in_"):
            flat.feature_names_in_ = self.feature_names_in_
        return flat

    def predict_proba(self, X, *, out=None):
        """Posterior probability of each component of the top layer, (n_samples, n_components)."""
        return rows_of(self, X, component_probabilities, out=out)

    def predict(self, X, *, out=None):
        """Most probable component of the top layer for each row."""
        return rows_of(self, X, best_component, out=out)

    def subcomponent_proba(self, X, *, out=None):
        """Posterior probability of each sub-component, (n_samples, n_components, n_subcomponents).

        Summed over sub-components they equal `predict_proba`.
        """
        return rows_of(self, X, subcomponent_probabilities, out=out)

    def predict_subcomponents(self, X, *, out=None):
        """Most probable sub-component within the component that `predict` gives, numbered from 0 in each."""
        return rows_of(self, X, best_subcomponent, out=out)

    def sample(self, n_samples=1, *, random_state=None):
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None
            Seed of this draw; the estimator's `random_state` is used by `fit` only.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        components : ndarray of shape (n_samples,)
            The component of the top layer each row was drawn from.
        """
        X, flat = super().sample(n_samples, random_state=random_state)
        return X, flat // self.n_subcomponents

    def _sizes_in_words(self):
        plural = "" if self.n_components == 1 else "s"
        return [f"{self.n_components} component{plural} of {self.n_subcomponents} sub-components each"]

    # -- fitting --------------------------------------------------------------------------------------

    def _allowed(self, y, n_rows, *, reset):
        allowed = component_labels(y, n_rows, self.n_components)
        return None if allowed is None else np.repeat(allowed, self.n_subcomponents, axis=1)

    def _check_rows(self, n_rows, structure):
        if n_rows < structure.n_components:
            raise ValueError(
                f"n_components={self.n_components} times n_subcomponents={self.n_subcomponents} must not be "
                f"larger than n_samples={n_rows}"
            )

    def _start(self, problem, progress=None):
        sample = problem.summary.sample
        given = self.means_init is not None or (self.warm_start and hasattr(self, "history_"))
        if given or self.n_components == 1:
            return super()._start(problem, progress)
        with ended_by_one_interrupt() as ending:
            assigned = replace(sample, allowed=self._first_assignment(sample))
        problem = replace(problem, summary=replace(problem.summary, sample=assigned))
        return (self._first_start if ending.interrupted else super()._start)(problem, progress)

    def _first_assignment(self, sample):
        """(n, K J) bool: sub-components of the most probable component in a mixture of K Gaussians."""
        J = self.n_subcomponents
        allowed = None if sample.allowed is None else sample.allowed[:, ::J]
        top = GaussianMixture(
            self.n_components,
            covariance_type=self.covariance_type,
            tol=1e-5,
            n_init=self.n_init,
            init=self.init,
            noise_floor=self.noise_floor,
            prior=self.prior,
            random_state=self.random_state,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit itself reports constant features
            top.fit(sample.X, allowed, sample.weight)
        probability = top.predict_proba(sample.X)
        if allowed is not None:
            probability = np.where(allowed, probability, -1.0)
        assigned = np.argmax(probability, axis=1)[:, None] == np.arange(self.n_components)
        return np.repeat(assigned, J, axis=1)


@for_method("subcomponent_proba")
def subcomponent_probabilities(kernel, density, frame, block):
    flat = responsibilities(kernel, density, frame.enter(block))
    return namespace(flat).reshape(flat, (flat.shape[0], kernel.n_groups, flat.shape[1] // kernel.n_groups))


@for_method("predict_proba")
def component_probabilities(kernel, density, frame, block):
    joint = subcomponent_probabilities(kernel, density, frame, block)
    return namespace(joint).sum(joint, axis=2)


@for_method("predict")
def best_component(kernel, density, frame, block):
    probability = component_probabilities(kernel, density, frame, block)
    return namespace(probability).argmax(probability, axis=1)


@for_method("predict_subcomponents")
def best_subcomponent(kernel, density, frame, block):
    joint = subcomponent_probabilities(kernel, density, frame, block)
    xp = namespace(joint)
    best = xp.argmax(xp.sum(joint, axis=2), axis=1)
    chosen = best[:, None] == like(np.arange(kernel.n_groups), best)[None, :]
    return xp.argmax(xp.sum(xp.where(chosen[:, :, None], joint, 0.0), axis=1), axis=1)
