"""SQUAREM: accelerated EM.

EM converges slowly if much information is missing: its error shrinks by nearly the same factor, in nearly
the same direction, in every step. Two steps determine both, so the limit can be extrapolated. An
extrapolation is accepted only if the objective is at least that of plain EM: the objective never decreases
and the fixed points are the same. Varadhan & Roland (2008), Scandinavian Journal of Statistics 35, scheme S3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np

from latently.backend.namespace import Array, like, namespace, to_numpy
from latently.core.drivers import Step

_STEPS = 16  # step lengths between two powers of two
_BITS = 7  # precision of a typical entry of a direction
_COARSER = 10.0  # than that of the plain step: a guess has to be better by more than its rounding error
# Rounding error of such a guess, relative to the objective: a bound of first order ends here.
_COARSEST = 1e-3


class Chart(Protocol):
    """Conversion between parameters and points of an unconstrained space."""

    def to_vector(self, params: Any) -> Array: ...

    def from_vector(self, vector: Array, like: Any) -> Any:
        """The parameters at a point, shaped like others; raises ValueError if the point is infeasible."""


def squarem(step: Callable[[Any], Step[Any]], chart: Chart) -> Callable[[Any], Step[Any]]:
    """An accelerated step: two plain steps, an extrapolation, and a plain step from there."""
    longer = squarem_steps(lambda params: [step(one) for one in params], _OneByOne(chart))
    return lambda params: longer([params])[0]


class Charts(Protocol):
    """The same of several runs at once."""

    def to_vectors(self, params: Sequence[Any]) -> Array:
        """(S, p)"""

    def from_vectors(self, vectors: Array, like: Sequence[Any]) -> list[Any]: ...


class _OneByOne:
    def __init__(self, chart: Chart) -> None:
        self.chart = chart

    def to_vectors(self, params: Sequence[Any]) -> Array:
        vectors = [self.chart.to_vector(one) for one in params]
        return vectors[0][None, :] if len(vectors) == 1 else namespace(vectors[0]).stack(vectors)

    def from_vectors(self, vectors: Array, like: Sequence[Any]) -> list[Any]:
        return [self.chart.from_vector(vectors[i, :], one) for i, one in enumerate(like)]


def squarem_steps(
    steps: Callable[[Sequence[Any]], list[Step[Any]]], charts: Charts
) -> Callable[[Sequence[Any]], list[Step[Any]]]:
    """Accelerated steps of several runs at once, from plain steps of all of them.

    The next parameters of all are computed when those of the first are asked for.
    """

    def longer(params: Sequence[Any]) -> list[Step[Any]]:
        here = steps(params)
        following = cache(lambda: _followed(steps, charts, params, here))
        return [
            Step(taken.objective, taken.rounding, lambda i=i: following()[i])  # type: ignore[misc]
            for i, taken in enumerate(here)
        ]

    return longer


def _followed(steps: Any, charts: Charts, params: Sequence[Any], here: Sequence[Step[Any]]) -> list[Any]:
    """The parameters after the accelerated step of each run."""
    once = [taken.next_params() for taken in here]
    second = steps(once)
    following = [taken.next_params() for taken in second]  # what is taken where an extrapolation fails
    guesses = _extrapolated(charts, params, once, following)
    for i, better in _after_guesses(steps, [(i, guess, second[i]) for i, guess in guesses]):
        following[i] = better
    return following


def _after_guesses(steps: Any, guesses: list[tuple[int, Any, Step[Any]]]) -> list[tuple[int, Any]]:
    """The number of each run whose guess is good enough, and its parameters a plain step from there."""
    if not guesses:
        return []
    try:
        with np.errstate(all="ignore"):  # extrapolations may be numerically invalid
            third = steps([guess for _, guess, _ in guesses])
            tried = zip(guesses, third, strict=True)
            return [(i, taken.next_params()) for (i, _, plain), taken in tried if _better(taken, plain)]
    except (ValueError, ArithmeticError):  # of some run: each one alone
        return (
            [found for one in guesses for found in _after_guesses(steps, [one])] if len(guesses) > 1 else []
        )


def _better(guess: Step[Any], plain: Step[Any]) -> bool:
    """Whether an extrapolation is at least as good, beyond its rounding error.

    Where that error is large its bound tells nothing, nor does the objective: it may be 1e26.
    """
    doubt = guess.rounding if guess.rounding > _COARSER * plain.rounding else 0.0
    known = math.isfinite(guess.objective) and doubt <= _COARSEST * max(1.0, abs(plain.objective))
    return known and guess.objective - doubt >= plain.objective


def _extrapolated(
    charts: Charts, start: Sequence[Any], once: Sequence[Any], twice: Sequence[Any]
) -> list[tuple[int, Any]]:
    """Limits of steps that shrink by a constant factor, with the numbers of the runs whose steps do shrink.

    Long steps amplify differences in the last digits, such as those due to another order of the rows.
    Therefore directions and step lengths are rounded to about one percent: the extrapolation is as good, and
    the last digits of `start` are carried over, not amplified.
    """
    x0, x1, x2 = (charts.to_vectors(params) for params in (start, once, twice))
    xp = namespace(x0)
    r = x1 - x0
    v = (x2 - x1) - r
    lengths, bends = (xp.linalg.vector_norm(of, axis=1) for of in (r, v))
    pairs = list(zip(*to_numpy(xp.stack([lengths, bends])).tolist(), strict=True))
    runs = [i for i, (length, bend) in enumerate(pairs) if math.inf > length > bend > 0]
    if not runs:
        return []
    if len(runs) < len(pairs):
        x0, r, v = (xp.take(of, like(np.array(runs), x0), axis=0) for of in (x0, r, v))
        pairs = [pairs[i] for i in runs]
    strides = [2.0 ** (round(_STEPS * math.log2(length / bend)) / _STEPS) for length, bend in pairs]
    stride = like(np.array(strides), x0)[:, None]
    r, v = (_rounded(of, sizes) for of, sizes in zip((r, v), zip(*pairs, strict=True), strict=True))
    points = x0 + 2.0 * stride * r + stride**2 * v
    return _feasible(charts, points, runs, [twice[i] for i in runs])


def _feasible(charts: Charts, points: Array, runs: list[int], shaped: list[Any]) -> list[tuple[int, Any]]:
    """The parameters at the points where there are any, with the numbers of their runs."""
    try:
        return list(zip(runs, charts.from_vectors(points, shaped), strict=True))
    except (ValueError, ArithmeticError):  # of some run: each one alone
        if len(runs) == 1:
            return []
        alone = (
            _feasible(charts, points[i : i + 1, :], [run], shaped[i : i + 1]) for i, run in enumerate(runs)
        )
        return [found for one in alone for found in one]


def _rounded(directions: Array, lengths: Sequence[float]) -> Array:
    """The directions rounded to multiples of a power of two, about one percent of their typical entries."""
    root = math.sqrt(directions.shape[1])
    units = [2.0 ** (round(math.log2(length / root)) - _BITS) for length in lengths]
    unit = like(np.array(units), directions)[:, None]
    return namespace(directions).round(directions / unit) * unit
