"""A non-linear factorisation as an alternation: sources over a sweep, components, then coefficients of
classes.

    cost = |X - f(S) A - 1 b'|^2 / (2 sigma^2) + alpha |S| + beta |A| + cross-entropy + gamma |W|

N rows, D features, r components. The state of a row is its sources, (N, r). A solver says how each of the
three blocks moves; where that is a step that may overshoot, it is shortened until the cost does not rise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from latently.backend.namespace import Array, like, namespace, to_numpy, zeros
from latently.backend.placement import one_blas_thread
from latently.core.alternation import (
    FIRST_MOMENTUM,
    Point,
    PointStep,
    extrapolation,
    in_one_place,
    never_rising,
    shortened,
    swept,
)
from latently.core.checkpoint import Maybe
from latently.core.data import Data
from latently.core.drivers import Passes, Step
from latently.distributions.nonlinear import (
    Coordinates,
    Descend,
    Layer,
    Move,
    Multiply,
    Newton,
    Stay,
    Sums,
    Terms,
    best_components,
    better_components,
    descended_components,
    from_offset,
    multiplied_components,
    prepared,
    row_costs,
    squared_error,
    swept_rows,
)
from latently.distributions.softmax import Regression
from latently.factorization.sweeps import place_of

_EPS = float(np.finfo(np.float64).eps)
_TRUSTED = 1e-6  # of the squares of the rows: a smaller squared error is computed from residuals
_LARGEST_EXPONENT, _GROWTH_OF_EXPONENT = 1.95, 1.1
_PASSES = 3  # over the coordinates of sources that must not be negative
_GROWTH_OF_RATE = 1.3  # of gradient steps, as in document 000


@dataclass(frozen=True)
class Moving:
    """The layer, and how far the last step of each block went."""

    layer: Layer
    rates: Array  # (3,): of sources, components and coefficients
    classification: float = 0.0  # the part of the cost that belongs to the classifier


class Solver(Protocol):
    """How the blocks move; `rate` is an exponent or a step length, which a trial halves."""

    @property
    def shortens(self) -> bool:
        """Whether steps may raise the cost, so that they have to be tried."""

    def sources(self, terms: Terms, rate: float) -> Move: ...
    def components(self, sums: Sums, layer: Layer, terms: Terms, rate: float) -> Layer: ...
    def coefficients(self, regression: Regression, sweep: Any, layer: Layer, rate: float) -> Layer: ...
    def next_rate(self, rate: float) -> float: ...


@dataclass(frozen=True)
class Alternate:
    """Each block minimised: exactly, or nearly so by Newton steps from where it is."""

    exact: bool
    shortens: bool = False

    def sources(self, terms: Terms, rate: float) -> Move:
        if self.exact:
            return Newton()
        return Coordinates(_PASSES) if terms.positive_sources else Newton(1, tolerance=1e-7, inner=1e-2)

    def components(self, sums: Sums, layer: Layer, terms: Terms, rate: float) -> Layer:
        return best_components(sums, layer, terms) if self.exact else better_components(sums, layer, terms)

    def coefficients(self, regression: Regression, sweep: Any, layer: Layer, rate: float) -> Layer:
        return regression.solved(sweep, layer) if self.exact else regression.stepped(sweep, layer)

    def next_rate(self, rate: float) -> float:
        return rate


@dataclass(frozen=True)
class Multiplicative:
    """Multiplicative steps, with exponents from one or, accelerated, above one where these succeed."""

    accelerated: bool
    shortens: bool = True

    def sources(self, terms: Terms, rate: float) -> Move:
        return Multiply(rate)

    def components(self, sums: Sums, layer: Layer, terms: Terms, rate: float) -> Layer:
        return multiplied_components(sums, layer, terms, rate)

    def coefficients(self, regression: Regression, sweep: Any, layer: Layer, rate: float) -> Layer:
        return regression.multiplied(sweep, layer, rate)

    def next_rate(self, rate: float) -> float:
        if not self.accelerated:
            return 1.0
        return min(_LARGEST_EXPONENT, _GROWTH_OF_EXPONENT * rate)


@dataclass(frozen=True)
class Gradient:
    """Steps along the gradient; of what must not be negative, multiplicative ones."""

    shortens: bool = True

    def sources(self, terms: Terms, rate: float) -> Move:
        return Multiply(rate) if terms.positive_sources else Descend(rate)

    def components(self, sums: Sums, layer: Layer, terms: Terms, rate: float) -> Layer:
        step = multiplied_components if terms.positive_parts else descended_components
        return step(sums, layer, terms, rate)

    def coefficients(self, regression: Regression, sweep: Any, layer: Layer, rate: float) -> Layer:
        step = regression.multiplied if regression.positive else regression.descended
        return step(sweep, layer, rate)

    def next_rate(self, rate: float) -> float:
        return _GROWTH_OF_RATE * rate


@dataclass(frozen=True)
class NonlinearSweeps:
    """Sweeps over the rows of a fit."""

    terms: Terms
    solver: Solver
    data: Any  # core.data.Data, or its counterpart for Dask; labels are `allowed`
    n_components: int
    n_classes: int  # 0 without a classifier
    missing: bool
    scale: float  # the order of magnitude of the cost: that of the rows at their means
    mean: Any  # (D,) of each feature, in main memory
    seen: Any  # (D,) weight of the rows in which it is observed
    block_size: int | None
    accelerate: bool
    passes: Passes = field(default_factory=Passes)

    @property
    def step(self) -> PointStep:
        momentum = self.accelerate and not self.solver.shortens
        return never_rising(extrapolation(self._step, of_states=False) if momentum else self._step)

    @property
    def floats_per_row(self) -> int:
        return floats_per_row(self.n_components, self.data.n_features, self.missing)

    def recorded(self, step: PointStep, parts: list[tuple[float, float]]) -> PointStep:
        """The same step, which notes the two parts of the cost at every point: of rows, and of their
        labels.
        """

        def noting(point: Point) -> Step[Point]:
            here = step(point)
            told = float(point.shared.classification)
            parts.append((here.objective - told, told))
            return here

        return noting

    def over(self, data: Any) -> Any:
        return data.sweep(None, floats_per_row=self.floats_per_row, block_size=self.block_size)

    def start(self, layer: Layer, sources: Array | None = None) -> Point:
        """The starting point; sources that are not given are inferred."""
        sums, state = self.swept(layer, sources, Stay())
        cost = self.cost(sums, layer, layer, state)
        speed = FIRST_MOMENTUM if self.accelerate and not self.solver.shortens else 1.0
        told = float(sums.entropy) + (self.regression.penalty(layer) if self.n_classes else 0.0)
        return Point(Moving(layer, self._first_rates(layer, sums), told), state, cost, speed=speed)

    def example(self) -> Point:
        """A point of the right shapes, for reading a checkpoint."""
        r, D, C, place = self.n_components, self.data.n_features, self.n_classes, self.place
        classes = (zeros((C, r), place), zeros((C,), place)) if C else (None, None)
        layer = Layer(zeros((r, D), place), zeros((D,), place), *classes)
        state = zeros((self.n_rows, r), place)
        return Point(
            Moving(layer, zeros((3,), place)), state, 0.0, onward=Maybe(Moving(layer, zeros((3,), place)))
        )

    # -- one step ---------------------------------------------------------------------------------------

    def _step(self, point: Point) -> Step[Point]:
        assert point.cost is not None
        moved = self._shortened if self.solver.shortens else self._alternated
        return Step(point.cost, self.rounding(point.cost, point.shared.layer), lambda: moved(point))

    def _alternated(self, point: Point) -> Point:
        """Every block is minimised, or at least lowered, so nothing has to be tried."""
        start = point.shared.layer if point.onward is None else point.onward.layer
        sums, state = self.swept(start, point.state, self.solver.sources(self.terms, 1.0))
        with one_blas_thread():
            layer = self.solver.components(sums, start, self.terms, 1.0)
        entropy = float(sums.entropy)
        if self.n_classes:
            over_features = self.over_features(state)
            layer = self.solver.coefficients(self.regression, over_features, layer, 1.0)
            entropy = self.regression.cost(over_features, layer) - self.regression.penalty(layer)
        cost = self.cost(sums, start, layer, state, entropy)
        found = Moving(
            layer, point.shared.rates, entropy + (self.regression.penalty(layer) if self.n_classes else 0.0)
        )
        return replace(
            point,
            shared=found,
            state=state,
            cost=cost,
            onward=self._onward(point.shared.layer, found, point.speed),
        )

    def _onward(self, before: Layer, found: Moving, speed: float) -> Moving | None:
        """The layer carried on in the direction of the last step."""
        if not self.accelerate or not speed:
            return None

        def there(new: Array, old: Array) -> Array:
            moved = new + speed * (new - old)
            return namespace(moved).clip(moved, min=0.0) if self.terms.positive_parts else moved

        new, old = found.layer, before
        classes = (None, None)
        if self.n_classes:
            classes = there(new.coef, old.coef), there(new.intercept, old.intercept)
        return Moving(
            Layer(there(new.components, old.components), there(new.offset, old.offset), *classes), found.rates
        )

    def _shortened(self, point: Point) -> Point:
        """Block by block, each step shortened until the cost does not rise."""
        layer, state, before = point.shared.layer, point.state, point.cost
        assert before is not None
        rates = [float(rate) for rate in to_numpy(point.shared.rates)]
        slack = 4 * _EPS * (self.scale + abs(before))

        def of_sources(rate: float) -> tuple[Any, float]:
            sums, there = self.swept(layer, state, self.solver.sources(self.terms, rate))
            return (sums, there), self.cost(sums, layer, layer, there)

        found, cost, rates[0] = shortened(of_sources, before, rates[0], slack)
        sums, state = self.swept(layer, state, Stay()) if found is None else found
        start, entropy = layer, float(sums.entropy)

        def of_components(rate: float) -> tuple[Layer, float]:
            with one_blas_thread():
                there = self.solver.components(sums, start, self.terms, rate)
            return there, self.cost(sums, start, there, state)

        there, cost, rates[1] = shortened(of_components, cost, rates[1], slack)
        layer = start if there is None else there
        if self.n_classes:
            over_features, before_coefficients = self.over_features(state), layer
            rest = cost - entropy - self.regression.penalty(layer)

            def of_coefficients(rate: float) -> tuple[Layer, float]:
                there = self.solver.coefficients(self.regression, over_features, before_coefficients, rate)
                return there, rest + self.regression.cost(over_features, there)

            there, cost, rates[2] = shortened(of_coefficients, cost, rates[2], slack)
            layer = layer if there is None else there
        told = cost - rest if self.n_classes else 0.0
        next_rates = np.array([self.solver.next_rate(rate) for rate in rates])
        moving = Moving(layer, self._like(next_rates), told)
        return replace(point, shared=moving, state=state, cost=cost)

    def _first_rates(self, layer: Layer, sums: Sums) -> Array:
        """One for exponents; of gradient steps, the inverse of a typical curvature."""
        rates = np.ones(3)
        if isinstance(self.solver, Gradient):
            gram, of_sources = to_numpy(layer.components @ layer.components.T), to_numpy(sums.gram)
            if not self.terms.positive_sources:
                rates[0] = self.terms.sigma2 / max(float(np.trace(gram)), 1e-300)
            if not self.terms.positive_parts:
                total = np.trace(of_sources) if of_sources.any() else float(self.n_rows)
                rates[1] = self.terms.sigma2 / max(float(total), 1e-300)
            if not self.regression.positive:
                rates[2] = 4.0 / max(float(np.trace(of_sources)), 1.0)
        return self._like(rates)

    # -- sweeps -----------------------------------------------------------------------------------------

    def swept(self, layer: Layer, state: Array | None, move: Move) -> tuple[Sums, Array]:
        """Sums over the rows after a step of their sources, and the sources."""
        with one_blas_thread():
            known = prepared(layer, self.terms)
        self.passes.count += 1
        sums: Sums
        sums, state = swept(self.over(self._with(state)), swept_rows, self.terms, move, known)
        return sums, state

    def cost(
        self, sums: Sums, start: Layer, layer: Layer, state: Array, entropy: float | None = None
    ) -> float:
        """The cost of a layer with the sources that a sweep from `start` left."""
        terms, A = self.terms, layer.components
        xp = namespace(A)
        with one_blas_thread():
            error = squared_error(sums, from_offset(layer, start.offset)) / terms.sigma2
        if error <= _TRUSTED * float(sums.level) / terms.sigma2:
            self.passes.count += 1
            error = float(self.over(self._with(state)).sum(_errors, terms, layer))
        found = error + terms.alpha * float(sums.size) + terms.beta * float(xp.sum(xp.abs(A)))
        found += float(sums.entropy) if entropy is None else entropy
        return found + (self.regression.penalty(layer) if self.n_classes else 0.0)

    def rounding(self, cost: float, layer: Layer) -> float:
        """How much of the cost of a layer may be rounding.

        Sums of squares are about the offset b, so they lose digits where it is far from the means. Rows and
        offset are rounded themselves, by d = eps times their size: residuals that are off by d change a cost
        c to at most (sqrt(c) + sqrt(sum d^2 / 2 sigma^2))^2.
        """
        offset = to_numpy(layer.offset)
        about_offset = self.scale + self._squares_of(self.mean - offset)
        resolution = (4 * _EPS) ** 2 * (self.scale + self._squares_of(np.abs(self.mean) + np.abs(offset)))
        mixed = 2 * float(np.sqrt(resolution * max(cost, 0.0)))
        return 256 * _EPS * (about_offset + abs(cost)) + resolution + mixed

    def _squares_of(self, x: Any) -> float:
        """The cost of residuals (D,) that are the same in all rows."""
        return 0.5 * float(np.sum(self.seen * x**2)) / self.terms.sigma2

    @property
    def regression(self) -> Regression:
        return Regression(self.terms.gamma, self.terms.positive_parts)

    def over_features(self, state: Array) -> Any:
        """Passes over the features f(s) of the rows, with their labels and weights."""
        data = Data(self.terms.mapping.value(in_one_place(state)))
        for name in ("weight", "allowed"):
            data = data.with_field(name, self.data.field(name))
        r, C = self.n_components, self.n_classes
        return data.sweep(None, floats_per_row=(C + 4) * (r + 1), block_size=self.block_size)

    def _with(self, state: Array | None) -> Any:
        state = zeros((self.n_rows, 0), self.place) if state is None else state
        return self.data.with_field("state", state)

    def _like(self, array: Any) -> Array:
        return like(array, self.place)

    @cached_property
    def n_rows(self) -> int:
        return int(self.data.count_rows())

    @cached_property
    def place(self) -> Any:
        return place_of(self.data)


def floats_per_row(r: int, D: int, missing: bool) -> int:
    """Temporary floats per row, which determine the number of rows in a block."""
    return 3 * D + 12 * r + (3 * r * r if missing else 0)


def _errors(terms: Terms, layer: Layer, block: Any) -> Array:
    """(): the sum of squared errors over 2 sigma^2."""
    errors = row_costs(terms, layer, block.state, block)[:, 0]
    return namespace(errors).sum(errors if block.weight is None else errors * block.weight)
