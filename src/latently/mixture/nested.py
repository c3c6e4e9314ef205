"""Mixtures of mixtures of Gaussians, with rows dealt to the components of the top layer.

    k ~ pi,   j | k ~ rho_k,   x | k, j ~ N(mu_kj, Sigma_kj)

n rows, K components of J sub-components each. As a density it is one flat mixture of K J Gaussians. It is
fitted with hard assignment at the top: what is maximised is

    sum_n max_k ln pi_k p_k(x_n),     p_k(x) = sum_j rho_kj N(x; mu_kj, Sigma_kj)

Dealing rows anew raises it at fixed parameters, and EM in every component raises it at fixed rows, so a
step of both never lowers it (classification EM; Celeux & Govaert, 1992). Formulas: docs/nested_mixture.md.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from latently.backend.namespace import Array, like, namespace
from latently.distributions.mixture import Mixture, MixtureParams, responsibilities
from latently.mixture._base import MixtureBase
from latently.mixture._clusters import Clusters
from latently.mixture._docs import shares_docs
from latently.mixture._engine import for_method
from latently.mixture._validation import check_choice, check_integer, check_labels, check_mixing_weights
from latently.mixture.gaussian import _TYPES, GaussianMixture


@dataclass(frozen=True)
class DealingMixture(Mixture):
    """The kernel: a flat mixture whose components come in groups, each row being of one group alone."""

    n_groups: int = 1

    def dealt(self, log_joint: Array, allowed: Array | None) -> Array:
        """(n, K J) bool: the sub-components of the one component to which each row is dealt."""
        xp = namespace(log_joint)
        if allowed is not None:
            log_joint = xp.where(allowed.T, log_joint, -xp.inf)
        n_flat, n = log_joint.shape
        grouped = xp.reshape(log_joint, (self.n_groups, n_flat // self.n_groups, n))
        largest = xp.max(grouped, axis=1)
        below = grouped - xp.where(xp.isfinite(largest), largest, 0.0)[:, None, :]
        best = xp.argmax(largest + xp.log(xp.sum(xp.exp(xp.clip(below, min=-700.0)), axis=1)), axis=0)
        group_of = like(np.repeat(np.arange(self.n_groups), n_flat // self.n_groups), best)
        return best[:, None] == group_of[None, :]


@shares_docs
class NestedMixture(Clusters, MixtureBase):
    """Mixture of Gaussian mixtures: the dual-layer mixture of Gaussians.

    A component k is drawn with probability pi_k, one of its sub-components j with probability rho_kj, then x
    from N(mu_kj, Sigma_kj). The density is that of one flat mixture, which `collapse` gives.

    In the fit every row belongs to one component: what rises at every step, and what `history_` holds, is the
    mean over rows of max_k ln pi_k p_k(x). It is ln p(x) plus the log probability of the likeliest component,
    so components are drawn apart and sub-components are left to overlap.

    Parameters
    ----------
    n_components : int, default=1
        Number of components K of the top layer.
    n_subcomponents : int, default=2
        Number of sub-components of each.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        Whether each sub-component has its own covariance matrix, all of the model share one, each has its own
        variances of the features, or each has one variance.
    {shared}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    subweights_ : ndarray of shape (n_components, n_subcomponents)
        Each row sums to one.
    means_ : ndarray of shape (n_components, n_subcomponents, n_features)
    covariances_ : ndarray
        (n_components, n_subcomponents, n_features, n_features) if "full", (n_features, n_features) if "tied",
        (n_components, n_subcomponents, n_features) if "diag", (n_components, n_subcomponents) if "spherical".
    n_iter_, n_passes_, converged_, n_features_in_, feature_names_in_
        As of `GaussianMixture`.
    history_ : ndarray of shape (n_iter + 1,)
        The mean over rows of max_k ln pi_k p_k(x), of the starting values and after every step; it never
        falls. `score` is the log density, which is higher.

    Notes
    -----
    Rows are first dealt by a `GaussianMixture` of `n_components`, and dealt anew at every step. With `y` they
    stay in the component it names: `fit(X, GaussianMixture(K).fit_predict(X))` deals them once.

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

    _OBJECTIVE: ClassVar = "mean over rows of max ln pi_k p_k(x)"  # what `history_` holds
    _PARAMETERS: ClassVar = {
        "weights": "weights_init",
        "subweights": "subweights_init",
        "means": "means_init",
        "covariances": "covariances_init",
    }

    def __init__(
        self,
        n_components=1,
        n_subcomponents=2,
        *,
        covariance_type="full",
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        init="kmeans",
        weights_init=None,
        subweights_init=None,
        means_init=None,
        covariances_init=None,
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
            max_iter=max_iter,
            tol=tol,
            n_init=n_init,
            init=init,
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
        self.n_subcomponents = n_subcomponents
        self.covariance_type = covariance_type
        self.weights_init = weights_init
        self.subweights_init = subweights_init
        self.means_init = means_init
        self.covariances_init = covariances_init

    @classmethod
    def from_parameters(cls, *, weights, subweights, means, covariances, covariance_type="full"):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes."""
        shape = np.shape(subweights)
        if len(shape) != 2 or 0 in shape:
            raise ValueError(
                f"subweights must have a row for each component and a column for each sub-component, "
                f"not shape {shape}"
            )
        model = cls(*shape, covariance_type=covariance_type)
        model._check_hyperparameters()
        return model._set_parameters(
            weights=weights, subweights=subweights, means=means, covariances=covariances
        )

    # -- using a fitted model -----------------------------------------------------------------------

    def collapse(self):
        """The same density as one flat mixture of all sub-components.

        Returns
        -------
        GaussianMixture
            Fitted; sub-component j of component k is its component k * n_subcomponents + j.
        """
        params = self._parameters_in_main_memory()
        fitted = _TYPES[self.covariance_type].from_kernel(params.components)
        flat = GaussianMixture.from_parameters(
            weights=params.weights,
            means=params.components.means,
            covariances=fitted,
            covariance_type=self.covariance_type,
        )
        if hasattr(self, "feature_names_in_"):
            flat.feature_names_in_ = self.feature_names_in_
        return flat

    def predict_proba(self, X, *, out=None):
        """Posterior probability of each component of the top layer, (n_samples, n_components)."""
        return self._rows_of(X, component_probabilities, out=out)

    def predict(self, X, *, out=None):
        """The most probable component of the top layer of each row."""
        return self._rows_of(X, best_component, out=out)

    def subcomponent_proba(self, X, *, out=None):
        """Posterior probability of each sub-component, (n_samples, n_components, n_subcomponents).

        Their sums over sub-components are `predict_proba`.
        """
        return self._rows_of(X, subcomponent_probabilities, out=out)

    def predict_subcomponents(self, X, *, out=None):
        """The most probable sub-component of the component that `predict` gives, counted from 0 in each."""
        return self._rows_of(X, best_subcomponent, out=out)

    def sample(self, n_samples=1, *, random_state=None):
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None
            Its own source of chance: the estimator's `random_state` belongs to `fit`.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        components : ndarray of shape (n_samples,)
            The component of the top layer each row was drawn from.
        """
        X, flat = super().sample(n_samples, random_state=random_state)
        return X, flat // self.n_subcomponents

    def _sizes(self):
        components, *others = super()._sizes()
        return [f"{components} of {self.n_subcomponents} sub-components each", *others]

    # -- for the engine -----------------------------------------------------------------------------

    def _check_hyperparameters(self):
        check_integer("n_components", self.n_components, least=1)
        check_integer("n_subcomponents", self.n_subcomponents, least=1)
        super()._check_hyperparameters()
        check_choice("covariance_type", self.covariance_type, _TYPES)

    def _n_components(self):
        """Of the flat mixture."""
        return self.n_components * self.n_subcomponents

    def _n_classes(self):
        return self.n_components

    def _known(self, y, n_rows, *, reset):
        allowed = check_labels(y, n_rows, self.n_components)
        return None if allowed is None else np.repeat(allowed, self.n_subcomponents, axis=1)

    def _family(self, floor):
        return _TYPES[self.covariance_type].family(floor)

    def _mixture(self, family):
        return DealingMixture(family, self.dtype, self.n_components)

    def _summarised(self, data):
        sweep, summary = super()._summarised(data)
        if summary.n_rows < self._n_components():
            raise ValueError(
                f"n_components={self.n_components} times n_subcomponents={self.n_subcomponents} must not be "
                f"larger than n_samples={summary.n_rows}"
            )
        return sweep, summary

    def _start(self, problem, progress=None):
        sample = problem.summary.sample
        given = self.means_init is not None or (self.warm_start and hasattr(self, "history_"))
        if not given and self.n_components > 1:
            dealt = replace(sample, allowed=self._first_dealt(sample))
            problem = replace(problem, summary=replace(problem.summary, sample=dealt))
        return super()._start(problem, progress)

    def _first_dealt(self, sample):
        """(n, K J) bool: sub-components of the likeliest component in a mixture of K Gaussians."""
        J = self.n_subcomponents
        allowed = None if sample.allowed is None else sample.allowed[:, ::J]
        top = GaussianMixture(
            self.n_components,
            covariance_type=self.covariance_type,
            tol=1e-5,
            n_init=self.n_init,
            init=self.init,
            noise_floor=self.noise_floor,
            random_state=self.random_state,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of constant features the fit itself tells
            top.fit(sample.X, allowed, sample.weight)
        probability = top.predict_proba(sample.X)
        if allowed is not None:
            probability = np.where(allowed, probability, -1.0)
        dealt = np.argmax(probability, axis=1)[:, None] == np.arange(self.n_components)
        return np.repeat(dealt, J, axis=1)

    def _given_starts(self, D):
        given = super()._given_starts(D)
        if "means" in given:
            given["means"] = given["means"].reshape(-1, D)  # as starts are made of them
        return given

    def _shapes(self, D):
        K, J = self.n_components, self.n_subcomponents
        covariances = _TYPES[self.covariance_type].shape(K * J, D)
        if self.covariance_type != "tied":
            covariances = (K, J, *covariances[1:])
        return {"weights": (K,), "subweights": (K, J), "means": (K, J, D), "covariances": covariances}

    def _to_kernel(self, fitted):
        flat = self._n_components()
        xp = namespace(fitted["means"])
        weights = xp.reshape(fitted["weights"][:, None] * fitted["subweights"], (flat,))
        means = xp.reshape(fitted["means"], (flat, fitted["means"].shape[-1]))
        covariances = fitted["covariances"]
        if self.covariance_type != "tied":
            covariances = xp.reshape(covariances, (flat, *covariances.shape[2:]))
        return MixtureParams(weights, _TYPES[self.covariance_type].to_kernel(means, covariances))

    def _from_kernel(self, params):
        means = params.components.means
        xp, shapes = namespace(means), self._shapes(means.shape[-1])
        joint = xp.reshape(params.weights, shapes["subweights"])
        weights = xp.sum(joint, axis=1)
        alive = (weights > 0)[:, None]  # the weights of sub-components mean nothing where no row is
        subweights = xp.where(alive, joint / xp.where(alive, weights[:, None], 1.0), 1 / self.n_subcomponents)
        covariances = _TYPES[self.covariance_type].from_kernel(params.components)
        return {
            "weights": weights,
            "subweights": subweights,
            "means": xp.reshape(means, shapes["means"]),
            "covariances": xp.reshape(covariances, shapes["covariances"]),
        }

    def _validated(self, name, value, D, shown_as):
        array = super()._validated(name, value, D, shown_as)
        if name == "subweights":
            return np.stack(
                [check_mixing_weights(f"{shown_as} of component {k}", row) for k, row in enumerate(array)]
            )
        if name == "covariances":
            return _TYPES[self.covariance_type].check(shown_as, array)
        return array


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
