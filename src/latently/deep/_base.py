"""What deep mixtures share: a tree of layers, its collapsed density, and training layer by layer.

`layers_` holds a mixture of one layer for the rows, then one for the factors of each of its components, and
so on. All that is asked of rows is asked of the collapsed mixture, whose components are the leaves: the
components of the last layer.
"""

from __future__ import annotations

import operator
import warnings
from copy import copy
from dataclasses import replace
from itertools import pairwise
from numbers import Integral
from typing import ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from latently.backend import packed
from latently.backend.linalg import diagonals, transpose
from latently.backend.namespace import double, eye, is_native, like, namespace, to_device, to_numpy, zeros
from latently.core.block import Block
from latently.core.tree import mapped
from latently.deep._counts import n_structure_parameters
from latently.deep._growth import Inputs, Training, density_of_prior, grown, kernel_for
from latently.distributions import FullGaussian, FullParams, Mixture, MixtureParams
from latently.distributions.deep import DeepParams
from latently.distributions.layers import (
    Layer,
    Layers,
    Moments,
    Rules,
    Top,
    at_leaves,
    climbed,
    expectations,
    stacked,
)
from latently.distributions.mixture import log_density, responsibilities
from latently.distributions.responsibilities import normalise
from latently.mixture._base import MixtureBase
from latently.mixture._clusters import Clusters, probabilities
from latently.mixture._engine import for_method, in_main_memory
from latently.mixture._factors import has_missing, noiseless
from latently.mixture._validation import (
    check_choice,
    check_flag,
    check_integer,
    check_labels,
    check_number,
    numbers,
)

_NEGLIGIBLE = 1e-12  # share of a row that is not worth a place among the inputs of a component
_SMALLEST_FLOOR = 1e-9  # noise variance of factors, as a fraction of their variance
_OF_FIRST_LAYER = (
    *("max_iter", "tol", "n_init", "init", "noise_floor", "accelerate", "block_size", "dtype"),
    *("random_state", "verbose", "callbacks"),
)


class DeepMixture(Clusters, ClassNamePrefixFeaturesOutMixin, TransformerMixin, MixtureBase):
    """Mixtures whose components have a mixture of their own in the place of the prior of their factors."""

    _PARAMETERS: ClassVar = {}  # they are those of the layers

    def __init__(
        self,
        *,
        n_components,
        n_factors,
        n_subcomponents,
        n_subfactors,
        fine_tune,
        inputs,
        prior_rows,
        **engine,
    ):
        super().__init__(
            batch_size=None,
            learning_decay=0.7,
            learning_offset=10.0,
            checkpoint=None,
            checkpoint_every=10,
            warm_start=False,
            **engine,
        )
        self.n_components = n_components
        self.n_factors = n_factors
        self.n_subcomponents = n_subcomponents
        self.n_subfactors = n_subfactors
        self.fine_tune = fine_tune
        self.inputs = inputs
        self.prior_rows = prior_rows

    @property
    def partial_fit(self):
        raise AttributeError(f"{type(self).__name__} is trained layer by layer and has no partial_fit")

    # -- what a subclass provides -------------------------------------------------------------------

    _LAYER: ClassVar[type]  # the mixture that layers are made of
    _COMMON: ClassVar[bool]  # whether its components share their loadings

    def _check_frame(self, frame):
        """Whether the model makes sense for rows where they are."""

    def _first_params(self):
        """The parameters of the first layer, for the deep family."""
        raise NotImplementedError

    def _first_layer(self, first):
        """Such parameters as a record of a layer."""
        raise NotImplementedError

    def _family(self, floor):
        """The family of the collapsed mixture."""
        raise NotImplementedError

    def _deep_family(self, family, rules):
        """The family of the leaves, above one of one layer."""
        raise NotImplementedError

    def _part_params(self, part):
        """A mixture of one layer as a record of that layer and its top."""
        raise NotImplementedError

    def _part(self, params):
        """The mixture of one layer with these parameters: weights, and such a record."""
        raise NotImplementedError

    def _with_factors_settled(self, part, covariances):
        """The same mixture in a basis of its factors in which these posterior covariances are diagonal.

        Or nearly so, if there is none. Noise of a layer above is diagonal too, so it has less to leave out.
        """
        raise NotImplementedError

    def _collapsed(self):
        """The collapsed mixture as an estimator."""
        raise NotImplementedError

    # -- the tree -----------------------------------------------------------------------------------

    def _parents(self):
        """Of every layer above the first, the component of the layer below that each component belongs to."""
        return [
            np.repeat(np.arange(len(parts)), [part.n_components for part in parts])
            for parts in self.layers_[1:]
        ]

    def _nodes(self):
        """Of every layer, the component that each leaf belongs to."""
        parents = self._parents()
        last = sum(part.n_components for part in self.layers_[-1])
        nodes = [np.arange(last)]
        for parent in parents[::-1]:
            nodes.insert(0, parent[nodes[0]])
        return nodes

    def _n_components(self):
        return len(self._nodes()[0]) if hasattr(self, "layers_") else self.n_components

    def _owners(self):
        """Of every layer above the first, which of its parameters each leaf has."""
        return tuple(self._nodes()[:-1] if self._COMMON else self._nodes()[1:])

    def _rules(self, floors=None):
        owners = self._owners()
        return Rules(self._COMMON, owners, (0.0,) * len(owners) if floors is None else floors)

    @property
    def component_of_(self):
        """(n_leaves,) the component of the first layer that each component of the last belongs to."""
        check_is_fitted(self)
        return self._nodes()[0]

    @property
    def weights_(self):
        """(n_leaves,) probabilities of the components of the last layer; they sum to one."""
        check_is_fitted(self)
        weights = self.layers_[0][0].weights_
        for parts in self.layers_[1:]:
            xp = namespace(weights)
            weights = xp.concat([weights[i] * part.weights_ for i, part in enumerate(parts)])
        return weights

    def _record(self):
        """The layers as parameters of the deep family."""
        parts = [[self._part_params(part) for part in parts] for parts in self.layers_]
        layers = [_joined([part.layer for part in of_layer]) for of_layer in parts[1:]]
        return DeepParams(self._first_params(), stacked(layers, _joined([part.top for part in parts[-1]])))

    def _set_record(self, params):
        """Makes the weights of the leaves and parameters of the deep family those of the layers."""
        above, nodes, placed = params.components.above, self._nodes(), self._placed()
        moments = expectations(above, self._owners())
        weights, found = to_numpy(params.weights), []
        for height, parts in enumerate(self.layers_):
            of_nodes = np.bincount(nodes[height], weights)
            top = pooled(moments[height], weights, nodes[height])
            layer = self._first_layer(params.components.first) if height == 0 else above.all()[height - 1]
            start, of_layer = 0, []
            for number, part in enumerate(parts):
                own = slice(start, start + part.n_components)
                start = own.stop
                total = of_nodes[own].sum()
                shares = (
                    of_nodes[own] / total if total > 0 else np.full(part.n_components, 1 / part.n_components)
                )
                rows = slice(number, number + 1) if self._COMMON else own
                record = Layers(
                    Layer(*(to_numpy(array)[rows] for array in vars(layer).values())),
                    Top(top.means[own], top.covariances[own]),
                )
                of_layer.append(_alike(self._part(MixtureParams(shares, record)), placed))
            found.append(of_layer)
        self.layers_ = found

    def _expected(self):
        """Moments of the factors of all layers, given the leaf."""
        return expectations(self._record().above, self._owners())

    def _climb(self, height=None):
        """How factors follow from those of the kernel, f: z = b + G f + rest; b, G and covariances of rest.

        By default those of the highest layer; `height` counts from the first.
        """
        height = len(self.layers_) - 1 if height is None else height
        above, owners = self._record().above, self._owners()
        here, gain = climbed(above, owners, height)
        first = expectations(above, owners)[0]
        if self._COMMON:
            return here.means - (gain.K @ first.means[..., None])[..., 0], gain.K, gain.rest
        return here.means, gain.K @ namespace(gain.K).linalg.cholesky(first.covariances), gain.rest

    # -- sizes --------------------------------------------------------------------------------------

    def _layer_sizes(self):
        """Of every layer above the first: sub-components (an int, or one for each component), and factors."""
        one_layer = isinstance(self.n_subfactors, Integral)
        factors = [self.n_subfactors] if one_layer else _listed("n_subfactors", self.n_subfactors)
        for number in factors:
            check_integer("n_subfactors", number, least=1)
        counts = self.n_subcomponents
        if one_layer or isinstance(counts, Integral):
            counts = [counts] * len(factors)
        counts = _listed("n_subcomponents", counts)
        if len(counts) != len(factors):
            raise ValueError(
                f"n_subcomponents={self.n_subcomponents!r} must be an integer, or have an entry for each of "
                f"the {len(factors)} layers that n_subfactors speaks of"
            )
        counts = [
            count if isinstance(count, Integral) else _listed("n_subcomponents", count) for count in counts
        ]
        for count in counts:
            for number in [count] if isinstance(count, Integral) else count:
                check_integer("n_subcomponents", number, least=1)
        return list(zip(counts, factors, strict=True))

    def _sizes(self):
        """How many there are of what, for notebooks."""
        told = [
            f"layer {number}: {sum(part.n_components for part in parts)} x {parts[0].n_factors} factors"
            for number, parts in enumerate(self.layers_, 1)
        ]
        return [*told, f"{self.n_features_in_} features"]

    def _check_hyperparameters(self):
        check_integer("n_components", self.n_components, least=1)
        super()._check_hyperparameters()
        check_integer("n_factors", self.n_factors, least=1)
        n_below, factors_below = self.n_components, self.n_factors
        for counts, factors in self._layer_sizes():
            if isinstance(counts, Integral):
                n_below *= counts
            elif len(counts) == n_below:
                n_below = sum(counts)
            else:
                raise ValueError(
                    f"n_subcomponents={self.n_subcomponents!r} must be an integer, or have an entry for each "
                    f"of the {n_below} components of the layer below"
                )
            if factors > factors_below:
                raise ValueError(
                    f"n_subfactors={self.n_subfactors!r} must not be larger than the number of factors of "
                    f"the layer below, {factors_below}"
                )
            factors_below = factors
        check_flag("fine_tune", self.fine_tune)
        check_choice("inputs", self.inputs, ("expected", "sampled"))
        if not (isinstance(self.prior_rows, str) and self.prior_rows == "auto"):
            check_number("prior_rows", self.prior_rows, least=0)

    # -- fitting ------------------------------------------------------------------------------------

    def _known(self, y, n_rows, *, reset):
        return check_labels(y, n_rows, self.n_components)

    def _fit(self, data):
        settings = {name: getattr(self, name) for name in _OF_FIRST_LAYER}
        first = self._LAYER(self.n_components, self.n_factors, **settings)
        first.n_features_in_ = data.n_features
        problem = first._problem(data)
        self._check_frame(problem.frame)
        first._fit_to(problem)
        self.layers_ = [[_alike(self._part(self._described(first)), first._placed())]]
        self.n_iter_, self.n_passes_, self.converged_ = first.n_iter_, first.n_passes_, first.converged_
        self.history_, self.bound_history_ = to_numpy(first.history_)[-1:], []
        seeds = check_random_state(self.random_state)
        for counts, n_factors in self._layer_sizes():
            self._add_layer(problem, counts, n_factors, seeds)
        if self.fine_tune:
            self._tune(problem)
        elif not self.converged_ and first.converged_ and self.tol > 0:
            warnings.warn(
                f"a layer of {type(self).__name__} did not converge in max_iter={self.max_iter} iterations; "
                "raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.history_ = like(self.history_, problem.frame.shift)
        return self

    def _add_layer(self, problem, counts, n_factors, seeds):
        """A mixture for the factors of every component of the highest layer; all that is below stays."""
        self._settle_factors()
        counts = [counts] * self._n_components() if isinstance(counts, Integral) else counts
        inputs = self._inputs(problem, seeds if self.inputs == "sampled" else None)
        priors = self._expected()[-1]
        q, automatic = priors.means.shape[1], isinstance(self.prior_rows, str)
        training = Training(
            n_leaves=1,
            n_factors=n_factors,
            common=self._COMMON,
            prior_rows=q + 2.0 if automatic else float(self.prior_rows),
            least_weight=2.0 * q if automatic and not self._COMMON else 1.0,
            noise_floor=max(float(self.noise_floor), _SMALLEST_FLOOR),
            init=self.init,
            n_init=self.n_init,
            max_iter=self.max_iter,
            tol=self.tol,
            accelerate=self.accelerate,
            seed=0,
        )
        found = [
            grown(
                own,
                Moments(*(to_numpy(array)[leaf : leaf + 1] for array in (priors.means, priors.covariances))),
                replace(training, n_leaves=count, seed=seeds.randint(2**31 - 1)),
            )
            for leaf, (own, count) in enumerate(zip(inputs, counts, strict=True))
        ]
        placed, lower = self._placed(), self._mean_of_rows(problem, log_likelihoods)
        self.layers_ = [*self.layers_, [_alike(self._part(one.params), placed) for one in found]]
        self.n_iter_ += sum(one.n_iter for one in found)
        self.converged_ &= all(one.converged for one in found)
        self.history_ = np.append(self.history_, self._mean_of_rows(problem, log_likelihoods))
        if self.inputs == "sampled":  # what was raised was no bound of the likelihood of rows
            bounds = [lower, self._bound_on(problem)]
        else:
            length = max(len(one.gains) for one in found)
            shares = np.array([own.weight.sum() for own in inputs]) / problem.summary.total_weight
            gains = [np.pad(one.gains, (0, length - len(one.gains)), mode="edge") for one in found]
            bounds = lower + shares @ np.array(gains)
        self.bound_history_.append(np.array(bounds))

    def _settle_factors(self):
        """The factors of the highest layer in a basis that suits a layer above."""
        covariances = to_numpy(self._posterior_covariances(self._climb()))
        placed, start, settled = self._placed(), 0, []
        for part in self.layers_[-1]:
            own = slice(start, start + part.n_components)
            settled.append(_alike(self._with_factors_settled(part, covariances[own]), placed))
            start = own.stop
        self.layers_ = [*self.layers_[:-1], settled]

    def _posterior_covariances(self, climb):
        """(n_leaves, q, q) of factors given a complete row, and the leaf."""
        _, G, rest = climb
        kernel = self._kernel()
        V = kernel.family.factor_covariances(kernel.prepare(self._parameters()), None, 1)[0, ...]
        return G @ V @ transpose(G) + rest

    def _inputs(self, problem, by_chance):
        """What the model knows of its highest factors: for every leaf, the rows of a layer above it."""
        climb, own_blurs = self._climb(), problem.summary.missing
        rng = None if by_chance is None else np.random.default_rng(by_chance.randint(2**31 - 1))
        V = to_numpy(self._posterior_covariances(climb))
        pieces = self._reduced(problem, inputs_of_rows, operator.add, climb, V, own_blurs, rng)
        found = []
        for leaf in range(self._n_components()):
            rows, weight = (np.concatenate([piece[leaf][i] for piece in pieces]) for i in (0, 1))
            blur = None if own_blurs and rng is None else V[leaf] if rng is None else np.zeros_like(V[leaf])
            found.append(Inputs(rows, weight, blur))
        return found

    def _reduced(self, problem, fn, combine, *args):
        """`fn(kernel, density, frame, *args, block)` of all blocks of the rows, combined."""
        kernel, params, data = self._kernel(), self._parameters(), self._labelled(problem.data)
        frame = self._frame(kernel, params)
        density = kernel.prepare(kernel.moved(params, -frame.shift / frame.scale, 1.0 / frame.scale))
        floats = kernel.floats_per_row(self._n_components(), data.n_features, problem.summary.missing)
        sweep = data.sweep(None, floats_per_row=floats, block_size=self.block_size)
        return sweep.reduce(fn, combine, kernel, density, frame, *args)

    def _mean_of_rows(self, problem, fn, *args):
        total = self._reduced(problem, weighted, operator.add, fn, *args)
        return float(total) / problem.summary.total_weight

    def _labelled(self, data):
        """The rows with what is known of their components said of leaves."""
        if data.allowed is None:
            return data
        xp = namespace(data.allowed)
        return data.with_allowed(xp.take(data.allowed, like(self._nodes()[0], data.allowed), axis=1))

    def _tune(self, problem):
        """EM over all layers together, from where they are."""
        moments = self._expected()[:-1]
        least = max(float(self.noise_floor), _SMALLEST_FLOOR)
        floors = tuple(  # what is below already stays where it is
            namespace(of.means).minimum(
                layer.noise_variance, least * namespace(of.means).mean(diagonals(of.covariances), axis=0)
            )
            for layer, of in zip(self._record().above.all(), moments, strict=True)
        )
        family = self._deep_family(problem.kernel.family, self._rules(floors))
        kernel, data = Mixture(family, self.dtype), self._labelled(problem.data)
        deep = replace(problem, kernel=kernel, data=data, n_components=self._n_components())
        n_iter, n_passes = self.n_iter_, self.n_passes_
        result = self._fitted_in(deep)
        self._set_record(deep.from_frame(result.params))
        self.n_iter_, self.n_passes_ = n_iter + result.n_iter, n_passes + self.n_passes_
        self.converged_ = result.converged
        self.history_ = np.append(self.history_, result.history[1:])

    def _start(self, problem, progress=None):
        return problem.to_frame(MixtureParams(self.weights_, self._record())), False

    def _sample_size(self):
        return 0

    # -- parameters in and out ------------------------------------------------------------------------

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
        _check_layers(cls, layers)
        first = layers[0][0]
        counts = [[part.n_components for part in parts] for parts in layers[1:]]
        factors = [parts[0].n_factors for parts in layers[1:]]
        one_layer = len(factors) == 1
        model = cls(
            first.n_components,
            first.n_factors,
            counts[0] if one_layer else counts,
            factors[0] if one_layer else factors,
        )
        model._check_hyperparameters()
        copied = [[model._part(model._described(part)) for part in parts] for parts in layers]
        model._set_fitted_estimators([part for parts in copied for part in parts])
        model._set_parameters()
        if hasattr(first, "feature_names_in_"):
            model.feature_names_in_ = first.feature_names_in_
        return model

    def _described(self, part):
        """Weights and record of a mixture of one layer, in main memory."""
        return mapped(to_numpy, MixtureParams(part.weights_, self._part_params(part)))

    def collapse(self):
        """The equivalent mixture of one layer, whose components are those of the last layer.

        Returns
        -------
        estimator
            A fitted mixture with the same density of rows.
        """
        check_is_fitted(self)
        model = _alike(self._collapsed(), self._placed())
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_
        return model

    def _kernel(self):
        return Mixture(self._family(np.zeros(self.n_features_in_)), self.dtype)

    def _parameters(self):
        family = self._deep_family(self._family(None), self._rules())
        return MixtureParams(self.weights_, family.collapsed(self._record()))

    def _placed(self):
        return self.layers_[0][0]._placed()

    def _fitted_parameters(self):
        check_is_fitted(self)
        return {}

    def _set_parameters(self):
        self.n_features_in_ = self.layers_[0][0].n_features_in_
        self.n_iter_, self.n_passes_, self.converged_, self.history_ = 0, 0, False, np.zeros(0)
        self.bound_history_ = []
        return self

    def _fitted_estimators(self):
        return [part for parts in self.layers_ for part in parts]

    def _set_fitted_estimators(self, parts):
        layers, rest = [parts[:1]], parts[1:]
        while rest:
            n_parts = sum(part.n_components for part in layers[-1])
            layers.append(rest[:n_parts])
            rest = rest[n_parts:]
        _check_layers(type(self), layers)
        self.layers_ = layers

    def _more_header(self):
        return {"bound_history": [history.tolist() for history in self.bound_history_]}

    def _set_more(self, more):
        histories = more["bound_history"]
        if set(more) != {"bound_history"} or not isinstance(histories, list):
            raise ValueError("its header must have a bound_history and nothing else")
        self.bound_history_ = [numbers("bound_history", history) for history in histories]

    def to(self, where):
        moved = copy(self)
        moved.layers_ = [[part.to(where) for part in parts] for parts in self.layers_]
        moved.history_ = to_device(self.history_, where)
        return moved

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
        return self._rows_of(X, probabilities_of_nodes, self._members(layer), out=out)

    def predict(self, X, *, layer=1, out=None):
        """The most probable component of each row, in a layer as for `predict_proba`."""
        return self._rows_of(X, most_probable_node, self._members(layer), out=out)

    def _members(self, layer):
        """(n_leaves, n) one where a leaf belongs to the component of that layer."""
        check_is_fitted(self)
        nodes = self._nodes()[self._checked_layer(layer) - 1]
        n = self._n_nodes(layer)
        return like((nodes[:, None] == np.arange(n)).astype(np.float64), self._placed())

    def _n_nodes(self, layer):
        return sum(part.n_components for part in self.layers_[layer - 1])

    def _checked_layer(self, layer):
        check_integer("layer", layer, least=1)
        if layer > len(self.layers_):
            raise ValueError(
                f"layer={layer} must not be larger than the number of layers, {len(self.layers_)}"
            )
        return layer

    def sample(self, n_samples=1, *, layer=1, random_state=None):
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
        layer : int, default=1
            The layer whose components are told, as for `predict_proba`.
        random_state : int, Generator, RandomState or None
            Its own source of chance: the estimator's `random_state` belongs to `fit`.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        components : ndarray of shape (n_samples,)
            The component each row was drawn from.
        """
        check_is_fitted(self)
        nodes = self._nodes()[self._checked_layer(layer) - 1]
        X, leaves = super().sample(n_samples, random_state=random_state)
        return X, like(nodes[to_numpy(leaves)], self._placed())

    def transform(self, X, *, out=None):
        """Posterior means of the factors of the last layer, averaged over components.

        (n_samples, n_subfactors)
        """
        check_is_fitted(self)
        return self._rows_of(X, averaged_factors, self._climb(), out=out)

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
        check_is_fitted(self)
        climb = self._climb(None if layer is None else self._checked_layer(layer) - 1)
        means = self._rows_of(X, factor_means, climb)
        if in_main_memory(self._rows_of(X, has_missing)).any():
            return means, self._rows_of(X, factor_covariances, climb)
        return means, self._posterior_covariances(climb)

    def reconstruct(self, X, *, out=None):
        """The rows without their noise, (n_samples, n_features): what is expected of them given the factors,
        averaged over the posterior of factors and components."""
        return self._rows_of(X, noiseless, out=out)

    def inverse_transform(self, X):
        """Expected rows for given factors of the last layer.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_subfactors)
            Factors.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Averaged over components, as probable as they are given these factors.
        """
        check_is_fitted(self)
        Z = double(X) if is_native(X) else check_array(X, dtype=np.float64, input_name="X")
        if Z.shape[1] != self._n_features_out:
            raise ValueError(f"X has {Z.shape[1]} columns, but there are {self._n_features_out} factors")
        at_zero, slopes = self._map_to_rows()
        shares = self._leaves_given_factors(Z)  # (n, S)
        xp = namespace(Z)
        rows = shares @ at_zero
        for leaf in range(shares.shape[1]):
            rows = rows + shares[:, leaf, None] * (Z @ xp.matrix_transpose(slopes[leaf, ...]))
        return rows

    def _map_to_rows(self):
        """What rows are expected of factors of the last layer: (S, D) at zero, and slopes (S, D, q)."""
        record = self._record()
        at_zero, slopes = None, None
        layers = [self._first_layer(record.first), *(record.above.all() if len(self.layers_) > 1 else [])]
        owners = [np.zeros_like(self._nodes()[0]) if self._COMMON else self._nodes()[0], *self._owners()]
        for layer, owner in zip(layers, owners, strict=True):
            node = at_leaves(layer, owner)
            if slopes is None:
                at_zero, slopes = node.means, node.loadings
            else:
                at_zero = at_zero + (slopes @ node.means[..., None])[..., 0]
                slopes = slopes @ node.loadings
        return at_zero, slopes

    def _leaves_given_factors(self, Z):
        """(n, S) posterior probabilities of the leaves given the factors of the last layer."""
        top = self._record().above
        top = top.top if isinstance(top, Layers) else top
        kernel = Mixture(FullGaussian(zeros((Z.shape[1],), Z)))
        least = _SMALLEST_FLOOR * (1.0 + namespace(Z).max(diagonals(top.covariances)))
        params = FullParams(top.means, top.covariances + least * eye(Z.shape[1], Z))
        return responsibilities(kernel, kernel.prepare(MixtureParams(self.weights_, params)), Block(Z))

    def bound(self, X, *, out=None):
        """The lower bound of the log density of rows that training of the last layer raised, (n_samples,).

        The posterior of all layers but the last is that of the model without the last layer. It is never
        above `score_samples`; how far it is below tells what the posterior leaves out.
        """
        check_is_fitted(self)
        below = self._below()
        return below._rows_of(X, bounds_of_rows, *below._bound_parts(self), out=out)

    def _bound_on(self, problem):
        below = self._below()
        return below._mean_of_rows(problem, bounds_of_rows, *below._bound_parts(self))

    def _below(self):
        """The model without its last layer."""
        below = copy(self)
        below.layers_ = self.layers_[:-1]
        return below

    def _bound_parts(self, model):
        """What the bound of a model with one layer more than this needs."""
        climb, placed = self._climb(), self._placed()
        parts = [
            mapped(lambda array: like(array, placed), model._described(part)) for part in model.layers_[-1]
        ]
        return climb, self._posterior_covariances(climb), self._expected()[-1], parts, self._COMMON

    def n_parameters(self):
        """Number of free parameters of the fitted density: the dimension of what can be told apart."""
        check_is_fitted(self)
        factors = [parts[0].n_factors for parts in self.layers_]
        structure = n_structure_parameters(self._parents(), factors, self.n_features_in_, common=self._COMMON)
        return self._n_components() - 1 + structure


# -- functions of rows ---------------------------------------------------------------------------------


@for_method("predict_proba")
def probabilities_of_nodes(kernel, density, frame, members, block):
    return probabilities(kernel, density, frame, block) @ members


@for_method("predict")
def most_probable_node(kernel, density, frame, members, block):
    resp = probabilities_of_nodes(kernel, density, frame, members, block)
    return namespace(resp).argmax(resp, axis=1)


@for_method("factor_posterior")
def factor_means(kernel, density, frame, climb, block):
    """(n, S, q)"""
    latent = kernel.family.evaluate(density, frame.enter(block))[1]
    return namespace(block.X).permute_dims(_climbed(kernel, density, climb, latent), (1, 0, 2))


@for_method("factor_posterior")
def factor_covariances(kernel, density, frame, climb, block):
    """(n, S, q, q)"""
    _, G, rest = climb
    latent = kernel.family.evaluate(density, frame.enter(block))[1]
    return G @ kernel.family.factor_covariances(density, latent, len(block)) @ transpose(G) + rest


@for_method("transform")
def averaged_factors(kernel, density, frame, climb, block):
    """(n, q)"""
    log_joint, latent = kernel.family.evaluate(density, frame.enter(block))
    resp = normalise(log_joint)[1]
    return namespace(resp).sum(resp[:, :, None] * _climbed(kernel, density, climb, latent), axis=0)


@for_method("fit")
def log_likelihoods(kernel, density, frame, block):
    """(n,) of rows with what is known of their components."""
    return _posterior(kernel, density, frame, block)[0] - frame.log_volume(block)


@for_method("bound")
def bounds_of_rows(kernel, density, frame, climb, V, priors, parts, common, block):
    """(n,) ln p(x) of the kernel's model, plus what layers above gain where they replace the priors."""
    xp = namespace(density.constants)
    log_norm, resp, latent = _posterior(kernel, density, frame, block)
    own_blurs = block.observed is not None
    rows = _with_blurs(kernel, density, climb, latent, len(block)) if own_blurs else None
    rows = _climbed(kernel, density, climb, latent) if rows is None else rows
    total = log_norm - frame.log_volume(block)
    for leaf, params in enumerate(parts):
        prior = Moments(priors.means[leaf : leaf + 1, ...], priors.covariances[leaf : leaf + 1, ...])
        blur = None if own_blurs else V[leaf, ...]
        above = kernel_for(params.weights.shape[0], 1, prior, blur, common=common)
        own = Block(rows[leaf, ...])
        gain = log_density(above, above.prepare(params), own)
        gain = gain - above.family.evaluate(density_of_prior(above), own)[0][0, :]
        total = total + xp.where(resp[leaf, :] > 0, resp[leaf, :] * gain, 0.0)
    return total


def weighted(kernel, density, frame, fn, *args):
    """The sum over rows of weight times `fn`."""
    *_, block = args
    values = fn(kernel, density, frame, *args)
    return namespace(values).sum(values if block.weight is None else values * block.weight)


def inputs_of_rows(kernel, density, frame, climb, V, own_blurs, rng, block):
    """[for every leaf: rows (n, q) or (n, q + T), and weights (n,)], in main memory; one entry for the block.

    With `rng`, rows are drawn from their posterior and given to the most probable leaf.
    """
    _, resp, latent = _posterior(kernel, density, frame, block)
    blurred = own_blurs and rng is None
    if blurred:
        rows = _with_blurs(kernel, density, climb, latent, len(block))
    else:
        rows = _climbed(kernel, density, climb, latent)
    rows, resp = to_numpy(rows), to_numpy(resp)
    if rng is not None:
        rows = rows + _drawn(kernel, density, climb, V, latent, own_blurs, len(block), rng)
        resp = (np.argmax(resp, axis=0) == np.arange(len(resp))[:, None]).astype(np.float64)
    kept = resp > _NEGLIGIBLE
    weight = resp if block.weight is None else resp * to_numpy(block.weight)
    return [[(rows[leaf][kept[leaf]], weight[leaf][kept[leaf]]) for leaf in range(len(resp))]]


def _posterior(kernel, density, frame, block):
    """ln p(x) (n,) and responsibilities (S, n), with what is known of components, and latent values."""
    log_joint, latent = kernel.family.evaluate(density, frame.enter(block))
    if block.allowed is not None:
        log_joint = namespace(log_joint).where(block.allowed.T, log_joint, -namespace(log_joint).inf)
    return *normalise(log_joint), latent


def _climbed(kernel, density, climb, latent):
    """(S, n, q) posterior means of factors."""
    b, G, _ = climb
    f = kernel.family.factor_means(density, latent)
    return namespace(f).permute_dims(f, (1, 0, 2)) @ transpose(G) + b[:, None, :]


def _with_blurs(kernel, density, climb, latent, n):
    """(S, n, q + T) posterior means of factors, and their packed covariances."""
    _, G, rest = climb
    V = G @ kernel.family.factor_covariances(density, latent, n) @ transpose(G) + rest  # (n, S, q, q)
    xp = namespace(V)
    entries = xp.stack([V[:, :, i, j].T for i, j in packed.pairs(V.shape[-1])], axis=2)
    return xp.concat([_climbed(kernel, density, climb, latent), entries], axis=2)


def _drawn(kernel, density, climb, V, latent, own_blurs, n, rng):
    """(S, n, q) what draws of the factors are off their posterior means."""
    if own_blurs:
        _, G, rest = climb
        V = to_numpy(G @ kernel.family.factor_covariances(density, latent, n) @ transpose(G) + rest)
        V = np.swapaxes(V, 0, 1)  # (S, n, q, q)
    else:
        V = V[:, None]
    noise = rng.standard_normal((V.shape[0], n, V.shape[-1], 1))
    return (np.linalg.cholesky(V) @ noise)[..., 0]


# -- parts ---------------------------------------------------------------------------------------------


def _listed(name, value):
    """A sequence of sizes as a list."""
    if isinstance(value, (list, tuple, np.ndarray)) and len(value):
        return [entry.item() if isinstance(entry, np.generic) else entry for entry in value]
    raise ValueError(f"{name} must be an integer or a sequence of integers, not {value!r}")


def _check_layers(cls, layers):
    """Whether these are layers of one model: a mixture for the factors of each component below."""
    kind = cls._LAYER
    if len(layers) < 2 or len(layers[0]) != 1:
        raise ValueError(
            "layers must begin with one mixture for the rows, followed by at least one more layer"
        )
    for number, parts in enumerate(layers, 1):
        for part in parts:
            if not isinstance(part, kind):
                raise ValueError(
                    f"layer {number} must be made of {kind.__name__}, not of {type(part).__name__}"
                )
            check_is_fitted(part)
        if len({part.n_factors for part in parts}) > 1:
            raise ValueError(f"all mixtures of layer {number} must have the same number of factors")
    for number, (below, parts) in enumerate(pairwise(layers), 2):
        n_below, q = sum(part.n_components for part in below), below[0].n_factors
        if len(parts) != n_below:
            raise ValueError(
                f"layer {number} must have a mixture for each of the {n_below} components below, "
                f"not {len(parts)}"
            )
        if any(part.n_features_in_ != q for part in parts):
            raise ValueError(f"the mixtures of layer {number} must have {q} features, the factors below them")


def _alike(part, array):
    """The mixture with its parameters where `array` is."""
    part._store({name: like(value, array) for name, value in part._fitted_parameters().items()})
    part.history_ = like(part.history_, array)
    return part


def _joined(records):
    """Records of arrays, one below the other."""
    kind = type(records[0])
    fields = vars(records[0])
    return kind(**{name: namespace(fields[name]).concat([vars(r)[name] for r in records]) for name in fields})


def pooled(moments, weights, nodes):
    """Moments of each node from those of its leaves, which have these weights; in main memory."""
    n = nodes.max() + 1
    members = (np.arange(n)[:, None] == nodes) * np.maximum(weights, np.finfo(float).tiny)
    share = members / members.sum(axis=1, keepdims=True)
    of_leaves, spread = to_numpy(moments.means), to_numpy(moments.covariances)
    means = share @ of_leaves
    off = of_leaves - means[nodes]
    second = spread + off[:, :, None] * off[:, None, :]
    return Moments(means, np.einsum("ns,sij->nij", share, second))
