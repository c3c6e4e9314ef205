"""Non-linear matrix factorisation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import double, is_floating, is_native, like, namespace, to_numpy
from latently.core.alternation import each_state, in_one_place
from latently.core.tree import mapped
from latently.distributions.mappings import MAPPINGS
from latently.distributions.nonlinear import (
    Layer,
    Stay,
    Terms,
    best_components,
    explained,
    inferred,
    measured_from,
    prepared,
    row_costs,
)
from latently.estimators.checks import (
    check_choice,
    check_integer,
    check_locations,
    check_matrix,
    check_non_negative,
    check_number,
    check_weights,
    numbers,
    parameter,
)
from latently.estimators.iterative import IterativeEstimator
from latently.estimators.messages import warn_user
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter, given_starts, store
from latently.estimators.randomness import as_generator
from latently.estimators.rows import for_method, in_main_memory, rows_over
from latently.factorization import nonlinear_starts, starts
from latently.factorization.alternating import SweptFactorization
from latently.factorization.nonlinear_sweeps import (
    Alternate,
    Gradient,
    Multiplicative,
    NonlinearSweeps,
    Solver,
    floats_per_row,
)
from latently.factorization.sweeps import place_of

CONSTRAINTS = ("unconstrained", "non_negative", "semi")
SOLVERS = ("auto", "exact", "mu", "gradient")
_MUCH_ROUNDING = 1e-6  # of the squares of the rows: what is left about their means is summed again
_SMALL_SOURCE = 0.02  # the least that multiplicative steps start from


@dataclass(frozen=True)
class Cost:
    """The terms of the cost of a factorisation.

    Attributes
    ----------
    reconstruction : float
        The squared error of the rows over 2 sigma2.
    activations : float
        alpha times the sum of the absolute values of the sources.
    components : float
        beta times that of the components.
    total : float
        Their sum.
    """

    reconstruction: float
    activations: float
    components: float
    total: float


def _check_sigma2(name, value):
    check_number(name, value, least=0)
    if value == 0:
        raise ValueError(f"{name} must be above 0, not {value!r}: the squared error is divided by it")


@estimator
class NonlinearFactorization(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SweptFactorization):
    """Everything that layers with and without a classifier share.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of components r; None uses the number of features.
    mapping : {"tanh", "logistic", "ratio", "identity"}, default="tanh"
        The map f: tanh s, 1 / (1 + exp(-s)), s / (1 + s) for s >= 0, or s itself.
    constraint : {"unconstrained", "non_negative", "semi"}, default="unconstrained"
        "non_negative": sources, components and offset are not negative; the only one for the map "ratio".
        "semi": components and offset are not negative, sources are free; needs the map "logistic". Both need
        non-negative rows.
    alpha, beta : float, default=0.0
        Penalties on the absolute values of sources and of components. With `alpha` alone the cost has no
        minimum: sources can shrink while components grow.
    sigma2 : float, default=1.0
        Variance of the noise: the squared error is divided by 2 sigma2.
    solver : {"auto", "exact", "mu", "gradient"}, default="auto"
        How a sweep moves sources and components. "exact": each is minimised, the other being fixed. "mu":
        multiplicative steps, for "non_negative". "gradient": steps along the gradient (multiplicative ones
        for what must not be negative). Steps of the last two are shortened until the cost does not rise.
        "auto": a few Newton steps for the sources, and the minimum for the components.
    components_init : array-like of shape (n_components, n_features), optional
    offset_init : array-like of shape (n_features,), optional
    activations_init : array-like of shape (n_samples, n_components), optional
        Starting values. Without, components are principal axes, or non-negative parts of singular vectors,
        and sources are inferred.
    accelerate : {"auto", None}, default="auto"
        Whether steps are extrapolated, and rejected if the cost would increase: "auto" and "exact" use
        momentum, "mu" exponents above one. None uses plain sweeps.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        A. No scale is normalised.
    offset_ : ndarray of shape (n_features,)
        b.
    activations_ : ndarray of shape (n_samples, n_components)
        S of the fitted rows; with a classifier it knows their labels. Not saved.
    history_ : ndarray of shape (n_sweeps,)
        Weighted cost after every sweep; it never increases.
    """

    n_components: int | None = option(default=None, check=check_integer, least=1, or_else=None)
    _: KW_ONLY
    mapping: str = option(default="tanh", check=check_choice, choices=tuple(MAPPINGS))
    constraint: str = option(default="unconstrained", check=check_choice, choices=CONSTRAINTS)
    alpha: float = option(default=0.0, check=check_number, least=0)
    beta: float = option(default=0.0, check=check_number, least=0)
    sigma2: float = option(default=1.0, check=_check_sigma2)
    solver: str = option(default="auto", check=check_choice, choices=SOLVERS)
    offset_init: Any = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.constraint != "unconstrained"
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    @property
    def _n_features_out(self):
        return self.components_.shape[0]

    def _check_options(self):
        super()._check_options()
        if self.mapping == "ratio" and self.constraint != "non_negative":
            raise ValueError(
                f'mapping="ratio" needs constraint="non_negative", not {self.constraint!r}: s / (1 + s) has '
                "a pole at -1"
            )
        if self.constraint == "semi" and self.mapping != "logistic":
            raise ValueError(
                f'constraint="semi" needs mapping="logistic", not {self.mapping!r}: free sources must have '
                "features that are not negative"
            )
        if self.solver == "mu" and self.constraint != "non_negative":
            raise ValueError(
                f'solver="mu" needs constraint="non_negative", not {self.constraint!r}: multiplicative steps '
                'keep every sign; use "auto", "exact" or "gradient"'
            )
        if self.activations_init is not None and self.components_init is None:
            raise ValueError("activations_init needs components_init, which it refers to")

    # -- fitting --------------------------------------------------------------------------------------

    def _fit(self, data):
        self._warn_without_minimum()
        found = self._totals(data)
        sweeps = self._sweeps(data, found)
        parts: list[tuple[float, float]] = []
        result = self._swept(sweeps, found, sweeps.recorded(sweeps.step, parts))
        self._keep(result.params.shared.layer)
        self.activations_ = in_one_place(result.params.state)
        self.history_ = like(np.array(result.history[1:], dtype=np.float64), self.components_)
        unknown = np.full((max(result.n_iter + 1 - len(parts), 0), 2), np.nan)  # before a checkpoint
        told = np.concatenate([unknown, np.reshape(parts, (-1, 2))])[1 : result.n_iter + 1]
        self._keep_parts(told)

    def _keep_parts(self, parts):
        """The two parts of the cost after every sweep, for models that show them."""

    def _warn_without_minimum(self):
        if self.alpha > 0 and self.beta == 0:
            warn_user(
                f"alpha={self.alpha} with beta=0: the cost has no minimum, because sources can shrink while "
                "components grow without changing their product; set beta above 0"
            )

    def _continue(self, sweeps, found):
        continues = self._continues(sweeps.data, "partial_fit")
        layer = self._layer_of_fit() if continues else self._first_batch(sweeps, found).layer
        sums, state = sweeps.swept(layer, None, Stay())
        cost = sweeps.cost(sums, layer, layer, state)
        per_row = mapped(lambda array: array / found.weight, sums)
        earlier = getattr(self, "_online", None)
        if earlier is not None:  # sums refer to the offset of their own sweep
            earlier = measured_from(earlier[0], earlier[1], layer.offset)
        elif self.n_iter_ > 0:  # the rows of the fit are not kept; its components represent them
            earlier = explained(per_row, layer)
        per_row = self._discounted(earlier, per_row)
        beta = self.beta / found.weight
        self._online = mapped(namespace(layer.components).asarray, per_row), layer.offset
        layer = best_components(per_row, layer, sweeps.terms, beta)
        self._keep(self._with_classes(sweeps, layer, state))
        self.activations_ = in_one_place(state)
        self._count_batch(cost)

    def _with_classes(self, sweeps, layer, state):
        """The layer after a step of its classifier on a batch, if it has one."""
        return layer

    def _start(self, sweeps, found, options, progress):
        """The starting point, and whether the user interrupted the search for it."""
        data = sweeps.data
        if self.warm_start and self._continues(data, "fit"):
            self._check_shapes(data.n_features, "warm_start")
            return self._at(sweeps, self._layer_of_fit()), False
        given = self._given(data.n_features, ("components", "offset"), sweeps.place)
        rng = as_generator(self.random_state)
        sweep = sweeps.over(data)
        enough = "components" in given and "offset" in given
        n_init = 1 if enough else self.n_init

        def starting_points():
            for number in range(n_init):
                if enough:
                    layer = Layer(given["components"], given["offset"])
                else:
                    layer = nonlinear_starts.layer(
                        sweeps.terms,
                        sweep,
                        found,
                        sweeps.n_components,
                        rng,
                        sweeps.place,
                        by_chance=number > 0,
                        labelled=sweeps.n_classes > 0,
                    )
                yield self._at(sweeps, self._starting_layer(replace(layer, **given)))

        return self._best(sweeps, starting_points(), n_init, options, progress)

    def _given(self, n_features, names, place):
        """Starting values from the user, of these parameters, by name."""
        table = [entry for entry in self._parameters() if entry.name in names]
        given = given_starts(self, table, self._sizes(n_features))
        return {name: like(array, place) for name, array in given.items()}

    def _starting_layer(self, layer):
        """The layer with starting values of the classifier, if sweeps have one."""
        return layer

    def _layer_of_fit(self):
        """The fitted layer as sweeps see it."""
        return self._layer()

    def _at(self, sweeps, layer):
        """The starting point with this layer."""
        if self.activations_init is not None:
            name, shape = "activations_init", (sweeps.n_rows, sweeps.n_components)
            given = parameter(name, self.activations_init, shape)
            if self.constraint == "non_negative":
                check_non_negative(name, given)
            return sweeps.start(layer, like(given, sweeps.place))
        point = sweeps.start(layer)
        if self._multiplies():  # a zero never leaves zero
            point = sweeps.start(layer, each_state(_above_zero, point.state))
        return point

    def _multiplies(self):
        """Whether sources move by multiplicative steps."""
        return self.constraint == "non_negative" and self.solver in ("mu", "gradient")

    def _totals(self, data):
        return starts.checked_totals(self, data, positive=self.constraint != "unconstrained")

    def _terms(self):
        return Terms(
            MAPPINGS[self.mapping],
            float(self.alpha),
            float(self.beta),
            self._gamma(),
            float(self.sigma2),
            positive_sources=self.constraint == "non_negative",
            positive_parts=self.constraint != "unconstrained",
        )

    def _gamma(self):
        return 0.0

    def _n_classes(self):
        return 0

    def _sweeps(self, data, found):
        D = data.n_features
        mean, seen = found.mean(), to_numpy(found.seen)
        missing = bool(np.any(seen < found.weight * (1 - 1e-12)))
        squares = found.square - float(np.sum(mean**2 * seen))
        if squares < _MUCH_ROUNDING * found.square:
            squares = data.sweep(None, floats_per_row=2 * D, block_size=self.block_size).sum(
                starts.squares_about, like(mean, place_of(data))
            )
        scale = 0.5 * squares / self.sigma2
        solvers: dict[str, Solver] = {
            "auto": Alternate(exact=False),
            "exact": Alternate(exact=True),
            "mu": Multiplicative(accelerated=self.accelerate is not None),
            "gradient": Gradient(),
        }
        return NonlinearSweeps(
            self._terms(),
            solvers[self.solver],
            data,
            n_components=D if self.n_components is None else self.n_components,
            n_classes=self._n_classes(),
            missing=missing,
            scale=scale if scale > 0 else 1.0,
            mean=mean,
            seen=seen,
            block_size=self.block_size,
            accelerate=self.accelerate is not None,
        )

    # -- using a fitted model -------------------------------------------------------------------------

    def transform(self, X, *, out=None):
        """Sources of the rows that minimise their cost, (n_samples, n_components).

        The problem is convex in f(s) and solved for each row on its own. Where the best source is infinite,
        its absolute value is cut off where the map reaches the end of its range in float64.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        out : path of a .npy file, optional
            Write the result to this file block by block and return the file, memory-mapped.
        """
        return self._rows_of(X, _sources, out)

    def reconstruct(self, X, *, out=None):
        """Rows reconstructed from their sources, (n_samples, n_features)."""
        return self._rows_of(X, _reconstruction, out)

    def impute(self, X, *, out=None):
        """Impute missing entries by their reconstruction; observed entries are unchanged."""
        return self._rows_of(X, _imputed, out)

    def row_cost(self, X, *, out=None):
        """The cost of each row: squared error over 2 sigma2 and ``alpha |s|``, (n_samples,)."""
        return self._rows_of(X, total_costs, out)

    def inverse_transform(self, X):
        """Rows f(S) A + b for given sources, (n_samples, n_features)."""
        S = self._checked_sources(X)
        return self._terms().mapping.value(S) @ self.components_ + self.offset_

    def map_sources(self, X):
        """Features f(S) of given sources, (n_samples, n_components)."""
        return self._terms().mapping.value(self._checked_sources(X))

    def _checked_sources(self, X, name="X"):
        """Given sources as an array beside the components."""
        check_is_fitted(self)
        S = double(X) if is_native(X) else numbers(name, X)
        if S.ndim != 2 or S.shape[1] != self.components_.shape[0]:
            raise ValueError(
                f"{name} must have one column for each of the {self.components_.shape[0]} components, "
                f"not shape {tuple(S.shape)}"
            )
        if self.mapping == "ratio" and S.shape[0] and bool(namespace(S).min(S) < 0):
            raise ValueError(f'{name} must not be negative with mapping="ratio"')
        return like(S, self.components_)

    def _row_terms(self, X, activations):
        """(n, 2) squared errors and penalties of the rows, of their own sources or of given ones."""
        if activations is None:
            return in_main_memory(self._rows_of(X, _costs, None))
        S = self._checked_sources(activations, "activations")
        data = self._data_of(X)
        if data.count_rows() != S.shape[0]:
            raise ValueError(
                f"activations must have one row for each of the {data.count_rows()} rows of X, "
                f"not {S.shape[0]}"
            )
        return in_main_memory(self._over(data.with_field("state", S), _costs_of_given, None))

    def _data_of(self, X):
        """Rows for the methods of a fitted model."""
        check_is_fitted(self)
        return IterativeEstimator._data(self, X, reset=False)

    def _rows_of(self, X, fn, out):
        return self._over(self._data_of(X), fn, out)

    def _over(self, data, fn, out):
        layer, terms = self._layer(), self._terms()
        r, D = self.components_.shape
        floats = floats_per_row(r, D, _may_be_missing(data))
        place = self.components_
        return rows_over(
            self, data, fn, terms, prepared(layer, terms), place=place, floats_per_row=floats, out=out
        )

    # -- parameters in and out ------------------------------------------------------------------------

    def _layer(self):
        return Layer(self.components_, self.offset_)

    def _keep(self, layer):
        store(self, {"components": layer.components, "offset": layer.offset})

    def _parameters(self):
        check = check_locations if self.constraint == "unconstrained" else check_non_negative
        return (
            Parameter("components", "components_init", ("r", "D"), check),
            Parameter("offset", "offset_init", ("D",), check),
        )

    def _sizes(self, n_features):
        return {"r": n_features if self.n_components is None else self.n_components, "D": n_features}


@estimator
class NLMF(NonlinearFactorization):
    """Non-linear matrix factorisation: X ~ f(S) A + b, with a map f of sources S, and sparse S and A.

    Minimises ``|X - f(S) A - 1 b'|^2 / (2 sigma2) + alpha |S| + beta |A|``. The offset b is added after the
    map, and not penalised.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    {attributes}

    Notes
    -----
    NaN marks a missing entry, which the cost leaves out.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.factorization import NLMF
    >>> X = load_digits().data / 16
    >>> model = NLMF(n_components=10, sigma2=0.01, random_state=0).fit(X)
    >>> model.transform(X).shape, model.components_.shape
    ((1797, 10), (10, 64))
    >>> bool((model.history_[1:] <= model.history_[:-1]).all())
    True
    """

    @classmethod
    def from_parameters(cls, *, components, offset, **options):
        """A fitted estimator with known components (n_components, n_features) and offset (n_features,)."""
        check_matrix("components", components)
        return cls(len(components), **options)._with_parameters(components=components, offset=offset)

    def fit(self, X, y=None, sample_weight=None):
        """Factorise the rows into sources and components.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            The rows. NaN marks a missing entry. Torch tensors stay on their device; Dask collections and
            files are read block by block.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row, in any unit; integers without a common divisor are copies of rows.

        Returns
        -------
        self
        """
        return super().fit(X, sample_weight=sample_weight)

    def fit_transform(self, X, y=None, sample_weight=None):
        """Fit the model and return what `transform` gives for the rows, (n_samples, n_components)."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def score(self, X, y=None, sample_weight=None):
        """Minus the mean cost of the rows, weighted if `sample_weight` is given."""
        costs = in_main_memory(self.row_cost(X))
        weight = None if sample_weight is None else check_weights(sample_weight, len(costs))
        return -float(np.average(costs, weights=weight))

    def cost(self, X, *, activations=None, sample_weight=None):
        """The terms of the cost of these rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        activations : array-like of shape (n_samples, n_components), optional
            Sources of the rows; by default those of `transform`.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        Cost
            A record with `reconstruction`, `activations`, `components` and `total`.
        """
        rows = self._row_terms(X, activations)
        weight = np.ones(len(rows)) if sample_weight is None else check_weights(sample_weight, len(rows))
        reconstruction, activation = (weight @ rows).tolist()
        components = self.beta * float(np.abs(to_numpy(self.components_)).sum())
        return Cost(reconstruction, activation, components, reconstruction + activation + components)


def _may_be_missing(data):
    """Whether entries may be missing; the sum is NaN if any entry is."""
    if not data.in_memory:
        return True
    X = data.X
    return is_floating(X) and bool(namespace(X).isnan(namespace(X).sum(X)))


# -- functions of blocks ------------------------------------------------------------------------------


def _for_rows(method):
    """Decorator for functions of rows, which refuses negative entries where parts are not negative."""

    def checked(fn):
        @wraps(fn)
        def of_block(terms, known, block):
            X, xp = block.X, namespace(block.X)
            if terms.positive_parts and X.shape[0]:
                seen = X if block.observed is None else xp.where(block.observed, X, 0)
                if bool(xp.min(seen) < 0):
                    raise ValueError(
                        "Negative values in data passed to NLMF; sums of non-negative parts are never "
                        "negative"
                    )
            return fn(terms, known, block)

        return for_method(method)(of_block)

    return checked


@_for_rows("transform")
def _sources(terms, known, block):
    return inferred(terms, known, block)


@_for_rows("reconstruct")
def _reconstruction(terms, known, block):
    return terms.mapping.value(inferred(terms, known, block)) @ known.layer.components + known.layer.offset


@_for_rows("impute")
def _imputed(terms, known, block):
    if block.observed is None:
        return block.X
    return namespace(block.X).where(block.observed, block.X, _reconstruction(terms, known, block))


def _above_zero(sources):
    return namespace(sources).clip(sources, min=_SMALL_SOURCE)


@_for_rows("cost")
def _costs(terms, known, block):
    return row_costs(terms, known.layer, inferred(terms, known, block), block)


@_for_rows("cost")
def _costs_of_given(terms, known, block):
    return row_costs(terms, known.layer, block.state, block)


@_for_rows("row_cost")
def total_costs(terms, known, block):
    costs = _costs(terms, known, block)
    return namespace(costs).sum(costs, axis=1)
