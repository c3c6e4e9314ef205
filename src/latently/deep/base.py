"""The base class of deep mixtures: their options, fitting, and the methods of a fitted model.

A concrete model defines the kind of its layers. `layers_` are fitted mixtures with one layer each; as a
record they form a `Tree` (tree.py), which is trained by functions (training.py). Methods for rows use the
collapsed mixture of the tree (rows.py).
"""

from __future__ import annotations

from copy import copy
from dataclasses import KW_ONLY
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import like, to_numpy
from latently.core.tree import mapped
from latently.deep import rows
from latently.deep.counts import n_structure_parameters
from latently.deep.kinds import Kind
from latently.deep.sizes import layer_sizes
from latently.deep.training import bound_arguments, train
from latently.deep.tree import (
    Tree,
    check_layers,
    collapsed,
    factor_map,
    posterior_covariances,
    rows_of_factors,
)
from latently.estimators.checks import check_choice, check_flag, check_integer, check_number, numbers
from latently.estimators.messages import warn_user
from latently.estimators.options import estimator, option
from latently.estimators.parameters import store
from latently.estimators.rows import in_main_memory, rows_of
from latently.mixture.base import MixtureEstimator
from latently.mixture.factors import checked_factors, has_missing, noiseless

_OF_FIRST_LAYER = (
    *("max_iter", "tol", "n_init", "init", "noise_floor", "prior", "accelerate"),
    *("block_size", "dtype", "random_state", "verbose", "callbacks"),
)


@estimator
class DeepMixture(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MixtureEstimator):
    """Mixtures in which the prior of each component's factors is itself a mixture.

    Parameters
    ----------
    n_components : int, default=1
        Number of components C of the first layer.
    n_factors : int, default=1
        Number of factors q of the first layer.
    n_subcomponents : int or sequence, default=2
        Number of sub-components of each component: one number for all, or a sequence with one number per
        component. With several layers above the first, a sequence with one such entry per layer.
    n_subfactors : int or sequence of int, default=1
        Number of factors of the second layer, or a sequence with one number for each layer above the first.
        No layer may have more factors than the one below.
    fine_tune : bool, default=False
        Whether layer-by-layer training is followed by EM over all layers jointly, which never decreases the
        log-likelihood of the rows.
    inputs : {"expected", "sampled"}, default="expected"
        The training data of a layer: the posterior of the factors below it, including its uncertainty and
        weighted by the responsibilities; or one draw from the posterior given the most probable component.
    prior_rows : float or "auto", default="auto"
        Number of pseudo-rows, distributed as the replaced prior, that are added to each sub-component. Larger
        values regularise a layer towards a model without it, which helps with few rows. "auto" is the number
        of factors below plus two, the smallest number for which the inverse of their covariance has an
        expectation; in addition, components of DMFA with fewer rows than twice the factors below keep their
        prior. With 0 there is no regularisation.
    max_iter : int, default=1000
        Maximum number of EM iterations for each mixture of each layer, and for fine-tuning.
    tol : float, default=5e-8
        EM stops when its objective per row increases by less than `tol` times its absolute value (or by less
        than `tol`, if that value is below one).
    noise_floor : float, default=1e-6
        Lower bound of the noise variances, as a fraction of the variance of the feature in the data, or of
        the factor in the layers above.
    checkpoint : path, optional
        A file for the state of the fit: the finished mixtures, and the state of the one in training. After an
        interruption, `fit` with the same data and options resumes from it and gives bit for bit the result of
        the uninterrupted fit. It is removed when the fit has finished.
    random_state : int, Generator, RandomState or None
        Seed of the random starts and of sampled inputs.
    verbose : int, default=0
        Whether to show the progress of the first layer and of fine-tuning.
    callbacks : list of callables, optional
        Called after every iteration of the first layer and of fine-tuning with a record (`number`,
        `objective`, `gain`, `max_iter`); one that returns True ends that stage of the fit.

    Attributes
    ----------
    weights_ : ndarray of shape (n_leaves,)
        Probabilities of the components of the last layer, the leaves.
    component_of_ : ndarray of shape (n_leaves,)
        The component of the first layer that each leaf belongs to.
    history_ : ndarray
        Log-likelihood per row of the first layer alone, after adding each further layer, and after every step
        of fine-tuning, with the log prior of the first layer's noise. A layer of DMCFA may decrease it, as it
        cannot always reproduce the prior it replaces; no step of fine-tuning does.
    bound_history_ : list of ndarray
        For every layer above the first, the lower bound of the log-likelihood per row that its training
        maximises, minus the penalty due to `prior_rows`, after every step; it never decreases, though that of
        DMCFA may begin below the log-likelihood without the layer. With
        inputs="sampled", which does not maximise a bound, its values before and after training.
    n_iter_ : int
        EM steps taken, over all layers.
    n_passes_ : int
        Passes over the rows in the first layer and in fine-tuning.
    """

    n_components: int = option(default=1, check=check_integer, least=1)
    n_factors: int = option(default=1, check=check_integer, least=1)
    n_subcomponents: Any = 2
    n_subfactors: Any = 1
    _: KW_ONLY
    fine_tune: bool = option(default=False, check=check_flag)
    inputs: str = option(default="expected", check=check_choice, choices=("expected", "sampled"))
    prior_rows: Any = option(default="auto", check=check_number, least=0, or_else="auto")
    # layers are trained one after the other, each on all rows
    batch_size: ClassVar = None  # type: ignore[misc]
    learning_decay: ClassVar = 0.7  # type: ignore[misc]
    learning_offset: ClassVar = 10.0  # type: ignore[misc]
    warm_start: ClassVar = False  # type: ignore[misc]

    kind: ClassVar[Kind]  # of the layers

    @property
    def partial_fit(self):  # type: ignore[override]
        raise AttributeError(f"{type(self).__name__} is trained layer by layer and has no partial_fit")

    # -- fitting --------------------------------------------------------------------------------------

    def _structure(self):
        """The structure of the first layer."""
        return self.kind.structure(self.n_components, self.n_factors)

    def _check_options(self):
        super()._check_options()
        self._layer_sizes()

    def _layer_sizes(self):
        return layer_sizes(self.n_components, self.n_factors, self.n_subcomponents, self.n_subfactors)

    def _fit(self, data):
        options = {name: getattr(self, name) for name in _OF_FIRST_LAYER}
        first = self.kind.mixture(self.n_components, self.n_factors, **options)
        first.n_features_in_ = data.n_features
        if hasattr(self, "feature_names_in_"):
            first.feature_names_in_ = self.feature_names_in_
        problem = first._problem(data)
        trained = train(self, first, problem, self._layer_sizes())
        self._set_tree(trained.tree)
        self.n_iter_, self.n_passes_ = trained.n_iter, trained.n_passes
        self.converged_ = trained.converged
        self.history_ = like(np.array(trained.history), problem.frame.shift)
        self.bound_history_ = trained.bound_history
        if not self.fine_tune and not self.converged_ and first.converged_ and self.tol > 0:
            warn_user(
                f"a layer of {type(self).__name__} did not converge in max_iter={self.max_iter} iterations; "
                "increase max_iter or tol",
                ConvergenceWarning,
            )

    # -- parameters in and out ------------------------------------------------------------------------

    def _tree(self):
        check_is_fitted(self)
        return Tree.of(self.kind, self.layers_)

    def _set_tree(self, tree):
        self.layers_ = [
            [_beside(self.kind.fitted(mapped(to_numpy, mixture)), tree.weights) for mixture in mixtures]
            for mixtures in tree.layers
        ]

    def _fitted_model(self):
        return collapsed(self._tree(), self.dtype)

    @property
    def weights_(self):
        """(n_leaves,) probabilities of the components of the last layer; they sum to one."""
        return self._tree().weights

    @property
    def component_of_(self):
        """(n_leaves,) the first-layer component that each component of the last layer belongs to."""
        return self._tree().nodes[0]

    @classmethod
    def from_layers(cls, first, second, *more):
        """Build a fitted model from fitted layers.

        Parameters
        ----------
        first : fitted mixture
            Mixture of the rows with C components, of the class that `fit` uses for layers.
        second : list of fitted mixtures
            For each component of the first, in order, the mixture that replaces the prior of its factors.
        *more : lists of fitted mixtures
            Further layers: for each component of all mixtures of the layer before, in order, one mixture.

        Returns
        -------
        estimator
            Holds copies of the layers; their factors are not transformed.
        """
        return cls.from_parameters(layers=[[first], second, *more])

    @classmethod
    def from_parameters(cls, *, layers):
        """A fitted estimator with known layers, in the form of `layers_`; see also `from_layers`."""
        check_layers(cls.kind, layers)
        first = layers[0][0]
        counts = [[mixture.n_components for mixture in mixtures] for mixtures in layers[1:]]
        factors = [mixtures[0].n_factors for mixtures in layers[1:]]
        one_layer = len(factors) == 1
        model = cls(
            first.n_components,
            first.n_factors,
            counts[0] if one_layer else counts,
            factors[0] if one_layer else factors,
        )
        model._check_options()
        here = [[mixture.to("numpy") for mixture in mixtures] for mixtures in layers]
        model._set_tree(Tree.of(cls.kind, here))
        model._set_fitted_arrays()
        if hasattr(first, "feature_names_in_"):
            model.feature_names_in_ = first.feature_names_in_
        return model

    def collapse(self):
        """The equivalent mixture with one layer, whose components are those of the last layer.

        Returns
        -------
        estimator
            A fitted mixture with the same density of rows.
        """
        fitted = self._fitted_model()
        model = _beside(self.kind.collapsed(mapped(to_numpy, fitted.params)), fitted.place)
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_
        return model

    def to(self, device):
        moved = super().to(device)
        moved.layers_ = [[mixture.to(device) for mixture in mixtures] for mixtures in self.layers_]
        return moved

    to.__doc__ = MixtureEstimator.to.__doc__

    def _sizes_in_words(self):
        tree = self._tree()
        return [
            f"layer {number}: {sum(counts)} x {n_factors} factors"
            for number, (counts, n_factors) in enumerate(zip(tree.counts, tree.n_factors, strict=True), 1)
        ]

    # -- files ----------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {}  # the layers hold all arrays

    def _set_fitted_arrays(self):  # type: ignore[override]  # the layers have them
        self.n_features_in_ = self.layers_[0][0].n_features_in_
        self.n_iter_, self.n_passes_, self.converged_, self.history_ = 0, 0, False, np.zeros(0)
        self.bound_history_ = []

    def _parts(self):
        return {"layers": self.layers_}

    def _set_parts(self, layers):
        if not isinstance(layers, list) or not all(isinstance(mixtures, list) for mixtures in layers):
            raise ValueError("its layers must be lists of mixtures")
        check_layers(self.kind, layers)
        self.layers_ = layers

    @property
    def _n_stages(self):
        """The number of stages in `history_`; fine-tuning continues the last one."""
        return len(self.layers_)

    def _more_header(self):
        return {"bound_history": [history.tolist() for history in self.bound_history_]}

    def _set_more(self, bound_history):
        if not isinstance(bound_history, list):
            raise ValueError("its bound_history must be a list")
        self.bound_history_ = [numbers("bound_history", history) for history in bound_history]

    # -- using a fitted model -------------------------------------------------------------------------

    @property
    def _n_features_out(self):
        return self.layers_[-1][0].n_factors

    def predict_proba(self, X, *, layer=1, out=None):
        """Posterior probability of each component.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        layer : int, default=1
            The layer of the components: 1 for the first layer, 2 for sub-components, and so on.
        out : path of a .npy file, optional
            As for `score_samples`.

        Returns
        -------
        ndarray of shape (n_samples, number of components of that layer)
        """
        return rows_of(self, X, rows.probabilities_of_nodes, self._members(layer), out=out)

    def predict(self, X, *, layer=1, out=None):
        """Most probable component of each row, in a layer as for `predict_proba`."""
        return rows_of(self, X, rows.most_probable_node, self._members(layer), out=out)

    def _members(self, layer):
        """(n_leaves, n) 1 if a leaf belongs to the component of that layer, else 0."""
        tree = self._tree()
        nodes = tree.nodes_of(layer)
        return like((nodes[:, None] == np.arange(nodes[-1] + 1)).astype(np.float64), tree.weights)

    def sample(self, n_samples=1, *, layer=1, random_state=None):
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
        layer : int, default=1
            The layer whose components are returned, as for `predict_proba`.
        random_state : int, Generator, RandomState or None
            Seed of this draw; the estimator's `random_state` is used by `fit` only.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        components : ndarray of shape (n_samples,)
            The component each row was drawn from.
        """
        tree = self._tree()
        nodes = tree.nodes_of(layer)
        X, leaves = super().sample(n_samples, random_state=random_state)
        return X, like(nodes[to_numpy(leaves)], tree.weights)

    def transform(self, X, *, out=None):
        """Posterior means of the factors of the last layer, averaged over components.

        (n_samples, n_subfactors)
        """
        return rows_of(self, X, rows.averaged_factors, factor_map(self._tree()), out=out)

    def factor_posterior(self, X, *, layer=None):
        """Posterior of factors given each row and component of the last layer.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        layer : int, optional
            The layer of the factors, from 1 for the first layer. By default the last.

        Returns
        -------
        means : ndarray of shape (n_samples, n_leaves, q)
        covariances : ndarray of shape (n_leaves, q, q)
            The same for all rows; (n_samples, n_leaves, q, q) if X has missing entries.
        """
        tree = self._tree()
        factors = factor_map(tree, None if layer is None else tree.checked_layer(layer))
        means = rows_of(self, X, rows.factor_means, factors)
        if in_main_memory(rows_of(self, X, has_missing)).any():
            return means, rows_of(self, X, rows.factor_covariances, factors)
        return means, posterior_covariances(tree, factors, self.dtype)

    def reconstruct(self, X, *, out=None):
        """Noise-free rows, (n_samples, n_features): the expectation of x given the factors, averaged over the
        posterior of factors and components."""
        return rows_of(self, X, noiseless, out=out)

    def inverse_transform(self, X):
        """Expected rows for given factors of the last layer.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_subfactors)
            Factors.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Averaged over components, weighted by their probabilities given these factors.
        """
        return rows_of_factors(self._tree(), checked_factors(self, X))

    def bound(self, X, *, out=None):
        """Lower bound of the log density that the training of the last layer maximises, (n_samples,).

        It uses the posterior of the model without the last layer for all layers but the last. It never
        exceeds `score_samples`; the gap is the Kullback-Leibler divergence of that approximate posterior.
        """
        tree = self._tree()
        below = copy(self)
        below.layers_ = self.layers_[:-1]
        return rows_of(
            below, X, rows.bounds_of_rows, *bound_arguments(below._tree(), tree, self.dtype), out=out
        )

    def n_parameters(self):
        """Number of free parameters of the fitted density: the dimension of the set of such densities."""
        tree = self._tree()
        free = n_structure_parameters(
            tree.parents, tree.n_factors, self.n_features_in_, common=self.kind.common
        )
        return tree.n_leaves - 1 + free


def _beside(mixture, array):
    """The mixture, moved to the device of the array."""
    arrays = {**mixture._fitted_arrays(), "history": mixture.history_}
    store(mixture, {name: like(value, array) for name, value in arrays.items()})
    return mixture
