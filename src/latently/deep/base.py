"""What deep mixtures share: their options, how they are fitted, and what one asks of a fitted one.

A leaf class says of which kind its layers are. `layers_` are fitted mixtures of one layer; as a record they
are a `Tree` (tree.py), which is trained by functions (training.py) and answers for rows by its collapsed
mixture (rows.py).
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
    *("max_iter", "tol", "n_init", "init", "noise_floor", "accelerate", "block_size", "dtype"),
    *("random_state", "verbose", "callbacks"),
)


@estimator
class DeepMixture(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MixtureEstimator):
    """Mixtures whose components have a mixture of their own in the place of the prior of their factors.

    Parameters
    ----------
    n_components : int, default=1
        Number of components C of the first layer.
    n_factors : int, default=1
        Number of factors q of the first layer.
    n_subcomponents : int or sequence, default=2
        Number of sub-components of each component: one for all, or one for each. With several layers above
        the first, one such entry for each of these.
    n_subfactors : int or sequence of int, default=1
        Number of factors of the second layer; a sequence makes as many layers above the first. No layer has
        more factors than the one below.
    fine_tune : bool, default=False
        Whether EM over all layers together follows the training of one after the other. It never lowers the
        log-likelihood of the rows.
    inputs : {"expected", "sampled"}, default="expected"
        What a layer learns from: the posterior of the factors below it, with its uncertainty and with the
        share that each component has in a row; or one draw from the posterior in the most probable
        component.
    prior_rows : float or "auto", default="auto"
        So many rows from the prior that it replaces are added to those of each sub-component. More keep a
        layer nearer to a model without it, for rows that are few. "auto" is two more than there are
        factors below, the fewest for which the inverse of their covariance has an expectation; and
        components of DMFA with fewer rows than twice the factors below keep their prior. With 0 the bound
        alone is raised.
    max_iter : int, default=1000
        Maximum number of EM iterations, of each mixture of each layer and of fine-tuning.
    tol : float, default=5e-8
        EM ends when what it raises, per row, gains less than `tol` times its size (or `tol`, if its size is
        below one).
    noise_floor : float, default=1e-6
        No noise variance falls below this fraction of the variance of the feature in the data, or of the
        factor in the layers above.
    checkpoint : path, optional
        A file that keeps the state of the fit: what is finished of the layers, and the mixture that is being
        trained. `fit` with the same data and options resumes from it after the process was killed, and ends
        where the undisturbed fit would have, bit for bit. It is removed when the fit has ended.
    random_state : int, Generator, RandomState or None
        Seed of the starts, and of draws.
    verbose : int, default=0
        Whether to show progress, of the first layer and of fine-tuning.
    callbacks : list of callables, optional
        Each is called after every iteration of the first layer and of fine-tuning with a record (`number`,
        `objective`, `gain`, `max_iter`) and may return True to end that stage of the fit.

    Attributes
    ----------
    weights_ : ndarray of shape (n_leaves,)
        Probabilities of the components of the last layer, the leaves.
    component_of_ : ndarray of shape (n_leaves,)
        The component of the first layer that each leaf belongs to.
    history_ : ndarray
        Log-likelihood per row of the first layer alone, with every further layer, and after every step of
        fine-tuning.
    bound_history_ : list of ndarray
        For every layer above the first, the lower bound of the log-likelihood per row that its training
        raised, less what `prior_rows` cost, after every step; it never falls. With inputs="sampled", which
        raises no bound, that before and after.
    n_iter_ : int
        EM steps taken, over all layers.
    n_passes_ : int
        Passes over the rows that first layer and fine-tuning took.
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
    def partial_fit(self):
        raise AttributeError(f"{type(self).__name__} is trained layer by layer and has no partial_fit")

    # -- fitting --------------------------------------------------------------------------------------

    def _structure(self):
        """Of the first layer."""
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
        self.kind.check_frame(problem.frame)
        trained = train(self, first, problem, self._layer_sizes())
        self._set_tree(trained.tree)
        self.n_iter_, self.n_passes_ = trained.n_iter, trained.n_passes
        self.converged_ = trained.converged
        self.history_ = like(np.array(trained.history), problem.frame.shift)
        self.bound_history_ = trained.bound_history
        if not self.fine_tune and not self.converged_ and first.converged_ and self.tol > 0:
            warn_user(
                f"a layer of {type(self).__name__} did not converge in max_iter={self.max_iter} iterations; "
                "raise max_iter or tol",
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
        """(n_leaves,) the component of the first layer that each component of the last belongs to."""
        return self._tree().nodes[0]

    @classmethod
    def from_layers(cls, first, second, *more):
        """A fitted model made of fitted layers.

        Parameters
        ----------
        first : fitted mixture
            Of the rows, with C components; of the class that `fit` makes layers of.
        second : list of fitted mixtures
            One for each component of the first, in order: of its factors, in the place of their prior.
        *more : lists of fitted mixtures
            Of further layers: one for each component of all mixtures of the layer before, in order.

        Returns
        -------
        estimator
            It has copies of the layers, with their factors as they are.
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
        """The equivalent mixture of one layer, whose components are those of the last layer.

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
        return {}  # they are those of the layers

    def _set_fitted_arrays(self):
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
        """Of `history_`, besides fine-tuning, which goes on from the last."""
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
            The layer whose components are meant: 1 for those of the rows, 2 for sub-components, and so on.
        out : path of a .npy file, optional
            As for `score_samples`.

        Returns
        -------
        ndarray of shape (n_samples, number of components of that layer)
        """
        return rows_of(self, X, rows.probabilities_of_nodes, self._members(layer), out=out)

    def predict(self, X, *, layer=1, out=None):
        """The most probable component of each row, in a layer as for `predict_proba`."""
        return rows_of(self, X, rows.most_probable_node, self._members(layer), out=out)

    def _members(self, layer):
        """(n_leaves, n) one where a leaf belongs to the component of that layer."""
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
            Seed of this draw; the estimator's `random_state` is that of `fit`.

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
            The layer of the factors; 1 is that of the rows. By default the last.

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
        """The rows without their noise, (n_samples, n_features): their expectation given the factors,
        averaged over the posterior of factors and components."""
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
        """The lower bound of the log density of rows that training of the last layer raised, (n_samples,).

        The posterior of all layers but the last is that of the model without the last layer. It is never
        above `score_samples`; how far it is below tells what the posterior leaves out.
        """
        tree = self._tree()
        below = copy(self)
        below.layers_ = self.layers_[:-1]
        return rows_of(
            below, X, rows.bounds_of_rows, *bound_arguments(below._tree(), tree, self.dtype), out=out
        )

    def n_parameters(self):
        """Number of free parameters of the fitted density: the dimension of what can be told apart."""
        tree = self._tree()
        free = n_structure_parameters(
            tree.parents, tree.n_factors, self.n_features_in_, common=self.kind.common
        )
        return tree.n_leaves - 1 + free


def _beside(mixture, array):
    """The mixture with its parameters where the array is."""
    arrays = {**mixture._fitted_arrays(), "history": mixture.history_}
    store(mixture, {name: like(value, array) for name, value in arrays.items()})
    return mixture
