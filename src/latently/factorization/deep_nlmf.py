"""Stacks of non-linear factorisations."""

from __future__ import annotations

from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import like, namespace, ones, to_numpy
from latently.core.alternation import in_one_place, swept
from latently.core.drivers import Objective, relative
from latently.core.quasi_newton import Descent
from latently.distributions.mappings import MAPPINGS
from latently.distributions.nonlinear import prepared
from latently.distributions.stack import climbed, flattened, unflattened
from latently.estimators import fitting
from latently.estimators.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
    numbers,
)
from latently.estimators.data import check_data
from latently.estimators.fitting import FitOptions
from latently.estimators.iterative import IterativeEstimator
from latently.estimators.messages import unchanged_on_failure, warn_user
from latently.estimators.options import estimator, option
from latently.estimators.rows import for_method, in_main_memory
from latently.factorization.nlmf import CONSTRAINTS, NLMF, SOLVERS
from latently.factorization.nlmf_classifier import SESSIONS, NLMFClassifier
from latently.factorization.nonlinear_sweeps import floats_per_row

_TOTAL = Objective("total cost of all layers", direction=-1, remedy="rescale the data")
# settings of layers, with what checks one value
_OF_LAYERS: dict[str, Any] = {
    "mapping": lambda name, value: check_choice(name, value, tuple(MAPPINGS)),
    "constraint": lambda name, value: check_choice(name, value, CONSTRAINTS),
    "alpha": lambda name, value: check_number(name, value, least=0),
    "beta": lambda name, value: check_number(name, value, least=0),
    "gamma": lambda name, value: check_number(name, value, least=0),
    "sigma2": lambda name, value: check_number(name, value, least=0),
    "solver": lambda name, value: check_choice(name, value, SOLVERS),
    "session": lambda name, value: check_choice(name, value, SESSIONS),
}
_LITTLE = 1e-6  # of the cost: what fine-tuning may leave without a word
_SLOW = 0.01  # of tol: quasi-Newton steps gain less, and more of them follow
_OF_ALL = ("n_init", "max_iter", "tol", "accelerate", "block_size", "verbose", "callbacks")


def _check_sizes(name, value):
    if isinstance(value, (list, tuple)):
        if not value:
            raise ValueError(f"{name} must have a number for each layer, not {value!r}")
        for one in value:
            check_integer(name, one, least=1)
    else:
        check_integer(name, value, least=1)


def _check_setting(name, value):
    if isinstance(value, (list, tuple)) and not value:
        raise ValueError(f"{name} must be one value or one for each layer, not {value!r}")
    for one in value if isinstance(value, (list, tuple)) else (value,):
        _OF_LAYERS[name](name, one)


@dataclass(frozen=True)
class StackCost:
    """The cost of all layers.

    Attributes
    ----------
    layers : tuple of records
        The terms of each layer, as its own `cost` gives them.
    total : float
        The sum of their totals.
    """

    layers: tuple[Any, ...]
    total: float


def _is_labelled(self):
    return hasattr(self, "classes_")


@estimator
class DeepNLMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, IterativeEstimator):
    """Stack of non-linear factorisations: each layer factorises the sources of the one below.

    Layer l + 1 has s^l ~ f(s^(l+1)) A + b. Inference goes up, one layer after the other; decoding comes
    down. With labels every layer has a classifier on its sources, and that of the top layer predicts.

    Parameters
    ----------
    n_components : int or sequence of int, default=(100, 50)
        Number of components of each layer, the one of the rows first.
    mapping, constraint, session, alpha, beta, gamma, sigma2, solver
        As for `NLMFClassifier`: one value for all layers, or a sequence with one for each.
    inputs : {"activations", "transform"}, default="activations"
        What a layer learns from: the sources of the fit below, which with labels know these; or those that
        `transform` finds, as for new rows.
    fine_tune : bool, default=False
        Whether all layers are then trained together: quasi-Newton steps on the sum of the costs of all
        layers at the sources that `transform` finds, which never rises.
    fine_tune_iter : int, default=100
        Maximum number of these steps.
    n_init, max_iter, tol, accelerate, checkpoint
        For each layer, as for `NLMF`; the fit of each layer has its own checkpoint file, and fine-tuning too.
    {options}

    Attributes
    ----------
    layers_ : list of NLMF or NLMFClassifier
        The fitted layers, that of the rows first.
    classes_ : ndarray of shape (n_classes,)
        If there were labels.
    history_ : ndarray of shape (n_sweeps,)
        Cost of the top layer after every sweep; it never increases.
    fine_tune_history_ : ndarray
        Total cost before fine-tuning and after every step; it never increases. Empty without.
    n_iter_, n_passes_, converged_
        Of the top layer.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If X had string column names.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.factorization import DeepNLMF
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DeepNLMF((20, 10), sigma2=(0.1, 0.01), max_iter=30, tol=1e-3, random_state=0)
    >>> model = model.fit(X[::2] / 16, y[::2])
    >>> model.transform(X / 16).shape, model.score(X[1::2] / 16, y[1::2]) > 0.8
    ((1797, 10), True)
    >>> model.generate([3], random_state=0).shape
    (1, 64)
    """

    n_components: Any = option(default=(100, 50), check=_check_sizes)
    _: KW_ONLY
    mapping: Any = option(default="tanh", check=_check_setting)
    constraint: Any = option(default="unconstrained", check=_check_setting)
    session: Any = option(default="joint", check=_check_setting)
    alpha: Any = option(default=0.0, check=_check_setting)
    beta: Any = option(default=0.0, check=_check_setting)
    gamma: Any = option(default=0.1, check=_check_setting)
    sigma2: Any = option(default=1.0, check=_check_setting)
    solver: Any = option(default="auto", check=_check_setting)
    inputs: str = option(default="activations", check=check_choice, choices=("activations", "transform"))
    fine_tune: bool = option(default=False, check=check_flag)
    fine_tune_iter: int = option(default=100, check=check_integer, least=0)
    n_init: int = option(default=1, check=check_integer, least=1)
    max_iter: int = option(default=500, check=check_integer, least=0)
    tol: float = option(default=1e-5, check=check_number, least=0)
    accelerate: Any = option(default="auto", check=check_choice, choices=("auto", None))
    # layers are trained one after the other, each on all rows
    batch_size: ClassVar = None  # type: ignore[misc]
    learning_decay: ClassVar = 0.7  # type: ignore[misc]
    learning_offset: ClassVar = 10.0  # type: ignore[misc]
    warm_start: ClassVar = False  # type: ignore[misc]

    objective = replace(_TOTAL, name="cost")

    @classmethod
    def from_layers(cls, *layers, **options):
        """A fitted stack of fitted layers, that of the rows first.

        Parameters
        ----------
        *layers : NLMF or NLMFClassifier
            Layer l + 1 has as many features as layer l has components. All have a classifier for the same
            classes, or none has.
        **options
            Constructor keywords other than those of layers.

        Returns
        -------
        DeepNLMF
        """
        if not layers:
            raise ValueError("from_layers needs at least one fitted layer")
        for layer in layers:
            if not isinstance(layer, (NLMF, NLMFClassifier)):
                raise TypeError(f"layers must be NLMF or NLMFClassifier, not {type(layer).__name__}")
            check_is_fitted(layer)

        def setting(name, default):
            values = [getattr(layer, name, default) for layer in layers]
            return values[0] if all(value == values[0] for value in values) else tuple(values)

        sizes = tuple(int(layer.components_.shape[0]) for layer in layers)
        defaults = {"gamma": 0.1, "session": "joint"}
        settings = {name: setting(name, defaults.get(name)) for name in _OF_LAYERS}
        model = cls(sizes, **{**settings, **options})
        model._check_options()
        model._set_layers(list(layers))
        model.fine_tune_history_ = np.zeros(0)
        return model

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        first = self.constraint[0] if isinstance(self.constraint, (list, tuple)) else self.constraint
        tags.input_tags.positive_only = first != "unconstrained"
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    @property
    def _n_features_out(self):
        return self.layers_[-1].components_.shape[0]

    @property
    def partial_fit(self):
        raise AttributeError("DeepNLMF is trained layer by layer and has no partial_fit")

    # -- options of layers ----------------------------------------------------------------------------

    def _layer_sizes(self):
        sizes = self.n_components
        return tuple(sizes) if isinstance(sizes, (list, tuple)) else (sizes,)

    def _setting(self, name, number):
        value = getattr(self, name)
        return value[number] if isinstance(value, (list, tuple)) else value

    def _check_options(self):
        super()._check_options()
        n_layers = len(self._layer_sizes())
        for name in _OF_LAYERS:
            value = getattr(self, name)
            if isinstance(value, (list, tuple)) and len(value) != n_layers:
                raise ValueError(
                    f"{name} must be one value or one for each of the {n_layers} layers of "
                    f"n_components={self.n_components!r}, not {value!r}"
                )
        for number in range(n_layers):
            self._new_layer(number, labelled=True)._check_options()

    def _new_layer(self, number, labelled):
        settings = {name: self._setting(name, number) for name in _OF_LAYERS}
        settings |= {name: getattr(self, name) for name in _OF_ALL}
        if not labelled:
            settings = {name: value for name, value in settings.items() if name not in ("gamma", "session")}
        if self.checkpoint is not None:
            settings["checkpoint"] = f"{self.checkpoint}.layer{number + 1}"
            settings["checkpoint_every"] = self.checkpoint_every
        kind = NLMFClassifier if labelled else NLMF
        return kind(self._layer_sizes()[number], random_state=self.random_state, **settings)

    # -- fitting --------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None):
        """Fit the layers, one after the other from the rows up.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            The rows. NaN marks a missing entry.
        y : array-like of shape (n_samples,), optional
            The class of each row; -1 for unlabelled rows. With labels every layer has a classifier.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row, in any unit; integers without a common divisor are copies of rows.

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self), fitting.ended_by_one_interrupt():
            check_data(self, X, sample_weight, reset=True)
            self.__dict__.pop("classes_", None)
            layers, rows = [], X
            for number in range(len(self._layer_sizes())):
                layer = self._new_layer(number, labelled=y is not None)
                try:
                    layer.fit(rows, y, sample_weight) if y is not None else layer.fit(
                        rows, sample_weight=sample_weight
                    )
                except ValueError as error:
                    if number == 0:
                        raise
                    raise ValueError(
                        f"layer {number + 1}, on the sources of layer {number}: {error}"
                    ) from error
                layers.append(layer.set_params(callbacks=None))  # they belong to this fit
                if number == 0:
                    sample_weight = _without_empty_rows(layer, X, sample_weight)
                rows = layer.activations_ if self.inputs == "activations" else layer.transform(rows)
                rows = in_main_memory(rows) if hasattr(rows, "compute") else rows
            names = getattr(self, "feature_names_in_", None)
            self._set_layers(layers)
            if names is not None:
                self.feature_names_in_ = names
            self.fine_tune_history_ = np.zeros(0)
            if self.fine_tune:
                self._tune(X, y, sample_weight)
        return self

    def _tune(self, X, y, sample_weight):
        """All layers together, by quasi-Newton steps on the total cost at the sources that `transform`
        finds.
        """
        first = self.layers_[0]
        data = first._data(X, y, sample_weight, reset=False)
        terms = [layer._terms() for layer in self.layers_]
        layers = tuple(layer._layer() for layer in self.layers_)
        sizes = [layer.components_.shape for layer in self.layers_]
        floats = sum(floats_per_row(r, D, number == 0) for number, (r, D) in enumerate(sizes))
        n_rows, place = data.count_rows(), layers[0].components
        n_states = sum(r for r, _ in sizes)

        def evaluate(vector, state):
            there = unflattened(like(vector, place), layers)
            stack = tuple((t, prepared(layer, t)) for t, layer in zip(terms, there, strict=True))
            rows = data.with_field("state", state)
            sweep = rows.sweep(None, floats_per_row=floats, block_size=self.block_size)
            sums, state = swept(sweep, climbed, stack)
            return float(sums.cost), to_numpy(sums.gradient), in_one_place(state)

        weight = data.field("weight")
        weight = np.ones(n_rows) if weight is None else to_numpy(weight)
        features = [to_numpy(layer.map_sources(layer.activations_)) for layer in self.layers_]
        squares = [float(weight @ np.mean(F**2, axis=1)) for F in features]
        penalty, positive, scale = self._of_parameters(layers, terms, float(weight.sum()), squares)
        descent = Descent(evaluate, penalty, positive, scale)
        identity = "" if self.checkpoint is None else f"{n_rows} rows"
        options = FitOptions.of(self, identity, objective=replace(_TOTAL, least_size=0.0), least_size=0.0)
        options = replace(
            options,
            max_iter=self.fine_tune_iter,
            stop=relative(_SLOW * self.tol, 0.0),
            tol=0.0,
            checkpoint=None,
        )
        start, no_state = to_numpy(flattened(layers)), like(np.zeros((n_rows, 0)), place)
        result = fitting.fit(descent.step, lambda progress: (descent.start(start, no_state), False), options)
        self.fine_tune_history_ = np.array(result.history)
        walk = result.params
        size = sum(  # of the terms of the cost, to which its rounding is relative
            square * float(np.sum(to_numpy(layer.components) ** 2)) / term.sigma2
            for square, layer, term in zip(squares, layers, terms, strict=True)
        )
        if walk.stuck and descent.promised(walk) > _LITTLE * (walk.value + _LITTLE * size):
            warn_user(
                "DeepNLMF cannot be fine-tuned further: no step lowers the cost, although its gradient is "
                "not zero; a larger alpha determines sources better",
                ConvergenceWarning,
            )
        state = walk.state
        assert state.shape[1] == n_states
        for layer, found in zip(
            self.layers_, unflattened(like(result.params.at, place), layers), strict=True
        ):
            layer._keep(found)
            r = found.components.shape[0]
            layer.activations_, state = state[:, :r], state[:, r:]

    @staticmethod
    def _of_parameters(layers, terms, total, squares):
        """(p,) penalties, whether a parameter must not be negative, and inverses of typical curvatures."""
        penalty, positive, scale = [], [], []
        for layer, term, square in zip(layers, terms, squares, strict=True):
            square = max(square, 1e-6 * total)
            entries = [
                (layer.components, term.beta, term.positive_parts, square / term.sigma2),
                (layer.offset, 0.0, term.positive_parts, total / term.sigma2),
                (layer.coef, term.gamma, term.positive_parts, 0.1 * square),
                (layer.intercept, 0.0, term.positive_parts, 0.1 * total),
            ]
            for array, its_penalty, its_sign, its_curvature in entries:
                if array is not None:
                    size = int(np.prod(array.shape))
                    penalty.append(np.full(size, its_penalty))
                    positive.append(np.full(size, its_sign))
                    scale.append(np.full(size, 1.0 / its_curvature))
        return np.concatenate(penalty), np.concatenate(positive), np.concatenate(scale)

    # -- using a fitted stack -------------------------------------------------------------------------

    def transform(self, X, *, layer=None):
        """Sources of the top layer, or of another one, (n_samples, n_components).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        layer : int, optional
            The layer, from 1 for that of the rows; by default the top one.
        """
        check_is_fitted(self)
        for one in self._layers_up_to(layer):
            X = one.transform(X)
        return X

    def inverse_transform(self, X, *, layer=None):
        """Rows for given sources of the top layer, or of another one, (n_samples, n_features)."""
        check_is_fitted(self)
        for one in reversed(self._layers_up_to(layer)):
            X = one.inverse_transform(X)
        return X

    def _layers_up_to(self, layer):
        if layer is None:
            return self.layers_
        check_integer("layer", layer, least=1)
        if layer > len(self.layers_):
            raise ValueError(f"layer must be at most {len(self.layers_)}, the number of layers, not {layer}")
        return self.layers_[:layer]

    def reconstruct(self, X, *, layer=None):
        """Rows decoded from their sources of the top layer, or of another one, (n_samples, n_features)."""
        return self.inverse_transform(self.transform(X, layer=layer), layer=layer)

    def impute(self, X):
        """Impute missing entries by their reconstruction from the first layer; others are unchanged."""
        check_is_fitted(self)
        return self.layers_[0].impute(X)

    def cost(self, X, y=None):
        """The terms of the cost of all layers, at the sources that `transform` finds.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        y : array-like of shape (n_samples,), optional
            Labels; needed if the stack has classifiers.

        Returns
        -------
        StackCost
            A record with `layers`, the records of the layers, and `total`.
        """
        check_is_fitted(self)
        records = []
        for layer in self.layers_:
            S = layer.transform(X)
            S = in_main_memory(S) if hasattr(S, "compute") else S
            labels = (y,) if _is_labelled(self) else ()
            records.append(layer.cost(X, *labels, activations=S))
            X = S
        return StackCost(tuple(records), sum(record.total for record in records))

    def score(self, X, y=None, sample_weight=None):
        """Accuracy of the labels if there are any; else minus the mean squared error of reconstructions."""
        if y is not None and _is_labelled(self):
            return self._top("score", X, y, sample_weight=sample_weight)
        made, rows = in_main_memory(self.reconstruct(X)), in_main_memory(X)
        errors = np.nansum((np.asarray(rows, dtype=np.float64) - made) ** 2, axis=1)
        return -float(np.average(errors, weights=sample_weight))

    def _top(self, method, X, *args, **options):
        """A method of the top layer, for rows."""
        check_is_fitted(self)
        for layer in self.layers_[:-1]:
            X = layer.transform(X)
        return getattr(self.layers_[-1], method)(X, *args, **options)

    @available_if(_is_labelled)
    def predict(self, X):
        """Most probable class of each row, by the classifier of the top layer."""
        return self._top("predict", X)

    @available_if(_is_labelled)
    def predict_proba(self, X):
        """Probabilities of the classes, (n_samples, n_classes), in the order of `classes_`."""
        return self._top("predict_proba", X)

    @available_if(_is_labelled)
    def predict_log_proba(self, X):
        """Log probabilities of the classes, (n_samples, n_classes)."""
        return self._top("predict_log_proba", X)

    @available_if(_is_labelled)
    def class_features(self):
        """What each class looks for in a row: coefficients of the top layer propagated down through all
        components, (n_classes, n_features).
        """
        check_is_fitted(self)
        found = self.layers_[-1].class_features()
        for layer in reversed(self.layers_[:-1]):
            found = found @ layer.components_
        return found

    @available_if(_is_labelled)
    def generate_activations(self, y, *, threshold=0.99, max_iter=10000, random_state=None):
        """Sources of the top layer that tell given classes, as `NLMFClassifier.generate_activations` finds
        them.
        """
        check_is_fitted(self)
        options = {"threshold": threshold, "max_iter": max_iter, "random_state": random_state}
        return self.layers_[-1].generate_activations(y, **options)

    @available_if(_is_labelled)
    def generate(self, y, *, threshold=0.99, max_iter=10000, random_state=None):
        """New rows of given classes, (n_samples, n_features): sources of the top layer, decoded."""
        options = {"threshold": threshold, "max_iter": max_iter, "random_state": random_state}
        return self.inverse_transform(self.generate_activations(y, **options))

    # -- parts in and out -----------------------------------------------------------------------------

    def _set_layers(self, layers):
        """Keep fitted layers, which have to fit on one another."""
        for number, (below, above) in enumerate(pairwise(layers), 1):
            if below.components_.shape[0] != above.n_features_in_:
                raise ValueError(
                    f"layer {number + 1} has {above.n_features_in_} features, but layer {number} has "
                    f"{below.components_.shape[0]} components"
                )
        labelled = [hasattr(layer, "classes_") for layer in layers]
        if any(labelled):
            if not all(labelled) or any(
                not np.array_equal(layer.classes_, layers[0].classes_) for layer in layers
            ):
                raise ValueError("either all layers have a classifier for the same classes, or none has one")
            self.classes_ = layers[-1].classes_
        self.layers_ = layers
        top = layers[-1]
        self.history_, self.n_iter_ = top.history_, top.n_iter_
        self.n_passes_, self.converged_ = top.n_passes_, top.converged_
        self.n_features_in_ = layers[0].n_features_in_

    def to(self, device):
        """Copy the fitted stack to another device, as `NLMF.to`."""
        moved = copy(self)
        moved._set_layers([layer.to(device) for layer in self.layers_])
        return moved

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {"fine_tune_history": self.fine_tune_history_}

    def _set_fitted_arrays(self, **given):
        if set(given) != {"fine_tune_history"}:
            raise ValueError(f"expected the array fine_tune_history, not {sorted(given)}")
        history = numbers("fine_tune_history", given["fine_tune_history"])
        if history.ndim != 1:
            raise ValueError(f"fine_tune_history must be a list of costs, not of shape {history.shape}")
        self.fine_tune_history_ = history

    def _parts(self):
        return {"layers": self.layers_}

    def _set_parts(self, layers):
        if not isinstance(layers, list) or not all(isinstance(one, (NLMF, NLMFClassifier)) for one in layers):
            raise ValueError("its layers are not NLMF or NLMFClassifier")
        if tuple(layer.components_.shape[0] for layer in layers) != self._layer_sizes():
            raise ValueError("its layers do not have n_components")
        self._set_layers(layers)


def _without_empty_rows(layer, X, sample_weight):
    """Weights for the layers above the first, for which a row without any entry is as good as absent."""
    seen = in_main_memory(layer._rows_of(X, _has_entries, None))[:, 0]
    if seen.all():
        return sample_weight
    return (
        seen if sample_weight is None else seen * np.asarray(in_main_memory(sample_weight), dtype=np.float64)
    )


@for_method("fit")
def _has_entries(terms, known, block):
    """(n, 1) one for rows of which anything was observed."""
    xp = namespace(known.gram)
    if block.observed is None:
        return ones((len(block), 1), known.gram)
    return xp.astype(xp.any(block.observed, axis=1), xp.float64)[:, None]
