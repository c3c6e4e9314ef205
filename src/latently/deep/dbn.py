"""The deep belief net as an estimator; `deep.belief` has the model."""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from latently.deep.belief import LISTED_UNITS, BeliefNet, BeliefTraining
from latently.deep.boltzmann import BinaryUnits, Machine
from latently.deep.boltzmann_options import BoltzmannOptions, start_intercept, through_codes
from latently.deep.draws import RowDraws
from latently.deep.rbm import RBM
from latently.estimators.checks import check_flag, check_integer, check_layer_sizes, check_number
from latently.estimators.labels import (
    checked_classes,
    class_labels,
    classes_for_file,
    classes_from_file,
    classes_to_come,
)
from latently.estimators.memory import check_draws
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import estimator, option
from latently.estimators.rejection import remember_rows
from latently.estimators.rows import in_main_memory
from latently.training.generators import generator_of, seed_of
from latently.training.stages import Stage, train_stages


def _is_listed(model):
    """Whether sums over the states of all layers but the last can be exact."""
    if all(size <= LISTED_UNITS for size in model._layer_sizes[:-1]):
        return True
    raise AttributeError(
        f"score_samples of a DBN sums over all states of every layer but the last, of up to {LISTED_UNITS} "
        "units; larger nets have bound"
    )


def _has_labels(model):
    if hasattr(model, "classes_"):
        return True
    raise AttributeError("the net has no labels; use fit(X, y)")


@estimator
class DBN(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BoltzmannOptions):
    """Deep belief net: directed layers of binary units below a restricted Boltzmann machine.

    Layers are learnt greedily, each by contrastive divergence on binary draws of the one below. With labels
    the last machine sees a group of label units beside the layer below. Fine-tuning is the up-down algorithm
    (contrastive wake-sleep), which gives the up-pass its own weights.

    Parameters
    ----------
    n_components : sequence of int or int, default=(500, 500, 2000)
        Number of hidden units of every layer, the rows' first; an integer is one layer.
    tied_start : bool, default=True
        Whether a layer with as many hidden units as the layer below has visible ones starts at that layer's
        weights, transposed, so that the bound starts at the log density of the net below.
    fine_tune : int, default=0
        Epochs of up-down training after the layers.
    fine_tune_learning_rate : float, default=0.05
        Step size of the up-down training.
    n_gibbs : int, default=5
        Number k of Gibbs steps from the rows (CD-k), or of the persistent chains, for each update. One step
        is faster and enough for `predict`, but `generate` and `sample` then leave the rows' modes.
    max_iter : int, default=20
        Number of epochs of each layer.
    {options}

    Attributes
    ----------
    layers_ : list of RBM
        The generative parameters of each layer, the rows' first. Of all but the last only p(v | h) is part
        of the model.
    recognition_ : list of (ndarray of shape (n_hidden, n_visible), ndarray of shape (n_hidden,))
        Weights and intercepts of the up-pass of each layer; without fine-tuning those of `layers_`.
    classes_ : ndarray of shape (n_classes,)
        If it was fitted with labels.
    history_ : ndarray of shape (n_iter,)
        Mean pseudo-log-likelihood of the visible units of the layer in training in each epoch, over all
        layers, and of the last layer in fine-tuning. It is noisy.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.deep import DBN
    >>> X, y = load_digits(return_X_y=True)
    >>> model = DBN((30, 30), max_iter=5, batch_size=50, random_state=0).fit(X / 16, y)
    >>> model.predict(X[:2] / 16).shape, model.generate([3, 8], n_steps=10, random_state=0).shape
    ((2,), (2, 64))
    """

    n_components: Any = option(default=(500, 500, 2000), check=check_layer_sizes, or_one=True)
    _: KW_ONLY
    tied_start: bool = option(default=True, check=check_flag)
    fine_tune: int = option(default=0, check=check_integer, least=0)
    fine_tune_learning_rate: float = option(default=0.05, check=check_number, least=0)
    n_gibbs: int = option(default=5, check=check_integer, least=1)

    @classmethod
    def from_layers(cls, *layers, classes=None, **options):
        """A net made of fitted machines.

        Parameters
        ----------
        *layers : RBM
            The rows' first. Visible units of a layer are hidden units of the one before; the last may have
            label units besides.
        classes : array-like of shape (n_classes,), optional
            Labels, in ascending order; by default 0, 1, ..., if the last machine has label units.
        **options
            Options of the constructor.
        """
        if not layers or not all(isinstance(layer, RBM) for layer in layers):
            raise ValueError("layers must be fitted machines, of class RBM; give at least one")
        for layer in layers:
            check_is_fitted(layer)
        n_labels = layers[-1].label_units
        for number, layer in enumerate(layers):
            below = layers[number - 1].n_components if number else layer.n_features_in_ - layer.label_units
            is_last = number == len(layers) - 1
            if layer.n_features_in_ - layer.label_units != below:
                raise ValueError(
                    f"layer {number} has {layer.n_features_in_ - layer.label_units} visible units besides "
                    f"labels, but the layer before it has {below} hidden units"
                )
            if (layer.label_units and not is_last) or (number and layer.visible != "binary"):
                raise ValueError(
                    f"layer {number} has label units or Gaussian units; only the last layer may have the "
                    "former, and only the first the latter"
                )
        first = layers[0]
        options = {"visible": first.visible, "visible_variance": first.visible_variance} | options
        model = cls(tuple(layer.n_components for layer in layers), **options)
        model._check_options()
        model._set_fitted_arrays()
        if n_labels or classes is not None:
            model.classes_ = checked_classes(classes, n_labels)
        model.n_features_in_, model.losses_ = first.n_features_in_ - first.label_units, {}
        module = model._built(model.n_features_in_, torch.Generator())
        with torch.no_grad():
            for machine, layer in zip(module.layers, layers, strict=True):
                machine.load_state_dict(layer.module_.state_dict())
            for up, machine in zip(module.recognition, module.layers, strict=False):
                up.copy(machine)
        model.module_ = module.eval()
        return model

    @property
    def _layer_sizes(self):
        sizes = self.n_components
        return (int(sizes),) if np.ndim(sizes) == 0 else tuple(map(int, sizes))

    # -- fitting --------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None):
        """Train the net, layer by layer, and fine-tune it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            The rows, in [0, 1] for binary visible units, without missing entries.
        y : array-like of shape (n_samples,), optional
            Labels, -1 where unknown; the last layer then models them together with the rows.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row.

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            data = self._data(X, y, sample_weight, reset=True)
            if not (self.warm_start and hasattr(self, "module_")):
                self.__dict__.pop("classes_", None)
            self._fit(data, self._codes(data, y))
            remember_rows(self, data)
        return self

    def partial_fit(self, X, y=None, sample_weight=None, classes=None):
        """Train all layers at once for one epoch over a batch of rows, each on draws of the one below.

        A net that was fine-tuned goes on with up-down training.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        classes : array-like of shape (n_classes,), optional
            All labels that will come, in the first call; by default those of its y.

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            known = hasattr(self, "module_")
            data = self._data(X, y, sample_weight, reset=not known)
            if not known and classes is not None:
                self.classes_ = classes_to_come(classes)
            if known and hasattr(self, "classes_") != (y is not None):
                raise ValueError("partial_fit needs y in every call, or in none")
            self._partial_fit(data, self._codes(data, y))
        return self

    def _codes(self, data, y):
        """Indices of the classes of the rows, and `classes_`; None without labels."""
        if y is None:
            return None
        codes, classes = class_labels(self, y, data.count_rows(), getattr(self, "classes_", None))
        self.classes_ = classes
        return codes

    def _module(self, n_features):
        sizes = (n_features, *self._layer_sizes)
        n_labels = len(self.classes_) if hasattr(self, "classes_") else 0
        machines = []
        for layer, (n_visible, n_hidden) in enumerate(pairwise(sizes)):
            labels = n_labels if layer == len(sizes) - 2 else 0
            units = self._units(labels) if layer == 0 else BinaryUnits(labels)
            machines.append(Machine(n_visible + labels, n_hidden, units))
        return BeliefNet(machines, apart=self.fine_tune > 0)

    def _training(self, module):
        return BeliefTraining(module, self._n_chains())

    def _trained(self, training, rows, generators, *, validation, callbacks, checkpoint):
        training.has_unlabelled = rows.y is not None and bool((rows.y < 0).any())
        continued = self.warm_start and hasattr(self, "module_")
        stages = [
            self._layer_stage(training, rows, layer, continued) for layer in range(len(self._layer_sizes))
        ]
        if self.fine_tune:
            stages.append(self._fine_tuning(training, continued))
        return train_stages(
            stages,
            training,
            rows,
            generators,
            validation=validation,
            callbacks=callbacks,
            checkpoint=checkpoint,
            **self._monitoring(),
        )

    def _layer_stage(self, training, rows, layer, continued):
        learning = self._learning()
        return Stage(
            lambda batch: training.greedy(layer, batch, learning),
            lambda batch: training.evaluate(layer, batch),
            self.max_iter,
            lambda: None if continued else self._begin(training, rows, layer),
        )

    def _begin(self, training, rows, layer):
        """Start a layer at the one below, or at intercepts that make the means of its rows likely."""
        net, sizes = training.net, (rows.n_features, *self._layer_sizes)
        units = net.layers[layer].units
        tied = layer > 0 and self.tied_start and sizes[layer + 1] == sizes[layer - 1]
        if tied and (layer > 1 or self.visible == "binary"):  # Gaussian units are hidden units of no layer
            training.begin(layer, tied=True, intercept=None)
            return

        def upward(X):
            for machine in list(net.layers)[:layer]:
                X = machine.within(X.dtype).hidden(X)
            return X

        plain = replace(units, n_labels=0)
        training.begin(layer, tied=False, intercept=start_intercept(plain, rows, upward))

    def _fine_tuning(self, training, continued):
        learning = replace(self._learning(), rate=self.fine_tune_learning_rate)
        top = len(self._layer_sizes) - 1
        return Stage(
            lambda batch: training.up_down(batch, learning),
            lambda batch: training.evaluate(top, batch),
            self.fine_tune,
            lambda: None if continued else training.begin_apart(),
        )

    def _start(self, module, rows):
        if rows.n_features and not hasattr(self, "module_"):
            training = BeliefTraining(module)
            self._begin(training, rows, 0)

    def _online_losses(self, training, batch):
        if training.net.is_apart():
            return training.up_down(batch, replace(self._learning(), rate=self.fine_tune_learning_rate))
        recorded = training.all_layers(batch, self._learning())
        training.begin_apart()
        return recorded

    def _finish(self, rows, generators):
        self.__dict__.pop("_partition", None)

    # -- the fitted net -------------------------------------------------------------------------------

    @property
    def layers_(self):
        self._check_module("layers_")
        return [self._layer(number) for number in range(len(self._layer_sizes))]

    def _layer(self, number):
        machine = self.module_.layers[number]
        own = ("visible", "visible_variance") if number == 0 else ()
        options = {name: getattr(self, name) for name in (*own, "block_size", "random_state")}
        layer = RBM(self._layer_sizes[number], label_units=machine.units.n_labels, **options)
        layer._set_fitted_arrays()
        layer.module_, layer.losses_ = machine, {}
        layer.n_features_in_ = len(machine.intercept_visible)
        return layer

    @property
    def recognition_(self):
        self._check_module("recognition_")
        up = self._net.up
        return [(R.cpu().numpy().copy(), r.cpu().numpy().copy()) for R, r in up]

    def _check_module(self, name):
        if "module_" not in vars(self):
            raise AttributeError(f"DBN has no {name} before fit")

    @property
    def _net(self):
        return self.module_.within(torch.float64)

    @property
    def _n_features_out(self):
        return self._layer_sizes[-1]

    def _sizes_in_words(self):
        return [f"{'-'.join(str(size) for size in self._layer_sizes)} hidden units"]

    def transform(self, X, *, out=None):
        """Probabilities of the units of the last layer, passed up by probabilities, (n_samples, n_top).

        Labels, if there are any, are summed out.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        out : path of a .npy file, optional
        """
        return self._exactly(lambda net, X: net.top_hidden(net.means_below_top(X)), X, out)

    def inverse_transform(self, H):
        """Means of the rows for units of the last layer, passed down by means, (n_samples, n_features)."""
        check_is_fitted(self)
        net = self._net
        n = net.top.n_visible - net.top.units.n_labels
        part = lambda top, h: net.downward(top.visible(h)[:, :n])
        return through_codes(net.top, part, H, self._n_features_out)

    def reconstruct(self, X, *, out=None):
        """Rows after the way up and down by means, (n_samples, n_features)."""

        def part(net, X):
            below = net.means_below_top(X)
            return net.downward(net.top.visible(net.top_hidden(below))[:, : below.shape[1]])

        return self._exactly(part, X, out)

    def bound(self, X, *, n_samples=100, random_state=0, out=None):
        """A lower bound of the log density of each row, (n_samples,).

        It is exact if every layer but the last has up to 16 units; otherwise an estimate from draws of the
        up-pass. ln Z of the last layer is listed or estimated as by `RBM.log_partition`, with a fixed seed.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        n_samples : int, default=100
            Draws for each row.
        random_state : int, Generator, RandomState or None, default=0
        out : path of a .npy file, optional
        """
        check_is_fitted(self)
        check_integer("n_samples", n_samples, least=1)
        log_partition, net, seed = self._log_partition(), self._net, seed_of(random_state)
        if len(net.machines) == 1:
            return self._exactly(lambda net, X: net.top.log_unnormalised(X) - log_partition, X, out)
        if all(machine.n_hidden <= LISTED_UNITS for machine in net.machines[:-1]):
            above = net.bounds_above(log_partition)
            return self._exactly(
                lambda net, X: net.bound(X, 0, above[0]), X, out, floats=3 * min(len(above[0]), 4096)
            )
        part = lambda net, X: net.sampled_bound(X, log_partition, RowDraws(X, seed), n_samples)
        return self._exactly(part, X, out, floats=3 * n_samples * sum(self._layer_sizes))

    @available_if(_is_listed)
    def score_samples(self, X, *, out=None):
        """Log density of each row, (n_samples,); only if every layer but the last has up to 16 units."""
        check_is_fitted(self)
        log_partition, net = self._log_partition(), self._net
        if len(net.machines) == 1:
            return self._exactly(lambda net, X: net.top.log_unnormalised(X) - log_partition, X, out)
        log_prior = net.log_prior(log_partition)
        return self._exactly(
            lambda net, X: net.log_density(X, 0, log_prior), X, out, floats=3 * min(len(log_prior), 4096)
        )

    def score(self, X, y=None, sample_weight=None):
        """Accuracy if there are labels; otherwise the mean bound of the log density."""
        if y is not None and hasattr(self, "classes_"):
            return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
        return float(np.average(in_main_memory(self.bound(X)), weights=sample_weight))

    def _log_partition(self):
        if "_partition" not in vars(self):
            self._partition = self.layers_[-1].estimate_log_partition(random_state=0)
        return self._partition.value

    @available_if(_has_labels)
    def predict_proba(self, X, *, out=None):
        """Probabilities of the classes, (n_samples, n_classes).

        Probabilities go up to the layer below the last, where those of the labels are exact.
        """
        self._check_labels()
        part = lambda net, X: torch.softmax(net.top.label_scores(net.means_below_top(X)), dim=1)
        return self._exactly(part, X, out)

    @available_if(_has_labels)
    def predict(self, X):
        """The most probable class of each row, (n_samples,)."""
        self._check_labels()
        return self.classes_[np.argmax(in_main_memory(self.predict_proba(X)), axis=1)]

    def _check_labels(self):
        check_is_fitted(self)
        if not hasattr(self, "classes_"):
            raise ValueError("the net was fitted without labels; use fit(X, y)")

    # -- draws ----------------------------------------------------------------------------------------

    def generate(self, y, *, n_steps=200, random_state=None):
        """One new row for each label, (len(y), n_features).

        Gibbs steps of the last layer with the label clamped, then one pass down by draws; rows are the means
        given the first hidden layer.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels.
        n_steps : int, default=200
        random_state : int, Generator, RandomState or None
        """
        self._check_labels()
        check_integer("n_steps", n_steps, least=1)
        codes, _ = class_labels(self, y, len(y), self.classes_)
        if np.any(codes < 0):
            raise ValueError(f"y must hold labels among {self.classes_.tolist()}, not -1")
        net = self._net
        device = net.top.components.device
        labels = torch.eye(len(self.classes_), dtype=torch.float64)[torch.from_numpy(codes)].to(device)
        generator = generator_of(random_state, device)
        with torch.no_grad():
            below, h = net.top_draws(len(codes), n_steps, labels, generator)
            if len(net.machines) == 1:
                return net.top.visible(h)[:, : below.shape[1]].cpu().numpy()
            return net.rows_from(below, generator, drawn=False).cpu().numpy()

    def sample(self, n_samples=1, *, n_steps=1000, random_state=None):
        """Draw rows: Gibbs steps of the last layer, then one pass down.

        Parameters
        ----------
        n_samples : int, default=1
        n_steps : int, default=1000
        random_state : int, Generator, RandomState or None

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        H : ndarray of shape (n_samples, n_top)
            Units of the last layer.
        """
        check_is_fitted(self)
        check_draws(self, n_samples)
        check_integer("n_steps", n_steps, least=1)
        net = self._net
        generator = generator_of(random_state, net.top.components.device)
        with torch.no_grad():
            below, h = net.top_draws(n_samples, n_steps, None, generator)
            rows = net.rows_from(below, generator, drawn=True)
        return rows.cpu().numpy(), h.cpu().numpy()

    def _exactly(self, part, X, out, floats=0):
        """`part` of the net and rows in float64."""

        def of_module(module, X):
            return part(module.within(X.dtype), X)

        return self.rows_through(of_module, X, out, dtype=torch.float64, floats_per_row=floats)

    # -- files ----------------------------------------------------------------------------------------

    def _more_header(self):
        classes = classes_for_file(self.classes_) if hasattr(self, "classes_") else None
        return super()._more_header() | {"classes": classes}

    def _set_more(self, *, classes, **more):  # type: ignore[override]
        if classes is not None:
            if not isinstance(classes, list):
                raise ValueError("classes must be a list of labels")
            self.classes_ = classes_from_file(classes, len(classes))
        super()._set_more(**more)
