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

from latently.backend.namespace import Array, namespace
from latently.core.drivers import Step

_STEPS = 16  # step lengths between two powers of two
_BITS = 7  # precision of a typical entry of a direction
_COARSER = 10.0  # a guess is rejected if its rounding error exceeds that of the plain step by this factor


class Chart(Protocol):
    """Conversion between parameters and points of an unconstrained space."""

    def to_vector(self, params: Any) -> Array: ...

    def from_vector(self, vector: Array, like: Any) -> Any:
        """The parameters at a point, shaped like others; raises ValueError if the point is infeasible."""


def squarem(step: Callable[[Any], Step[Any]], chart: Chart) -> Callable[[Any], Step[Any]]:
    """An accelerated step: two plain steps, an extrapolation, and a plain step from there."""
    longer = squarem_steps(lambda params: [step(one) for one in params], chart)
    return lambda params: longer([params])[0]


def squarem_steps(
    steps: Callable[[Sequence[Any]], list[Step[Any]]], chart: Chart
) -> Callable[[Sequence[Any]], list[Step[Any]]]:
    """Accelerated steps of several runs at once, from plain steps of all of them.

    The next parameters of all are computed when those of the first are asked for.
    """

    def longer(params: Sequence[Any]) -> list[Step[Any]]:
        here = steps(params)
        following = cache(lambda: _followed(steps, chart, params, here))
        return [
            Step(taken.objective, taken.rounding, lambda i=i: following()[i])  # type: ignore[misc]
            for i, taken in enumerate(here)
        ]

    return longer


def _followed(steps: Any, chart: Chart, params: Sequence[Any], here: Sequence[Step[Any]]) -> list[Any]:
    """The parameters after the accelerated step of each run."""
    once = [taken.next_params() for taken in here]
    second = steps(once)
    following = [taken.next_params() for taken in second]  # what is taken where an extrapolation fails
    guesses = [_extrapolated(chart, *points) for points in zip(params, once, following, strict=True)]
    for_runs = [i for i, guess in enumerate(guesses) if guess is not None]
    for i, better in _after_guesses(steps, [(i, guesses[i], second[i]) for i in for_runs]):
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
        return [found for one in guesses for found in _after_guesses(steps, [one])] if len(guesses) > 1 else []


def _better(guess: Step[Any], plain: Step[Any]) -> bool:
    """Whether an extrapolation is at least as good, beyond its rounding error."""
    doubt = guess.rounding if guess.rounding > _COARSER * plain.rounding else 0.0
    return math.isfinite(guess.objective) and guess.objective - doubt >= plain.objective


def _extrapolated(chart: Chart, start: Any, once: Any, twice: Any) -> Any:
    """Limit of steps that shrink by a constant factor; None if steps do not shrink.

    Long steps amplify differences in the last digits, such as those due to another order of the rows.
    Therefore directions and step lengths are rounded to about one percent: the extrapolation is as good, and
    the last digits of `start` are carried over, not amplified.
    """
    x0, x1, x2 = (chart.to_vector(params) for params in (start, once, twice))
    xp = namespace(x0)
    r = x1 - x0
    v = (x2 - x1) - r
    length, bend = float(xp.linalg.vector_norm(r)), float(xp.linalg.vector_norm(v))
    if not length > bend > 0:
        return None
    try:
        stride = 2.0 ** (round(_STEPS * math.log2(length / bend)) / _STEPS)
        r, v = _rounded(r, length), _rounded(v, bend)
        return chart.from_vector(x0 + 2.0 * stride * r + stride**2 * v, like=twice)
    except (ValueError, ArithmeticError):
        return None


def _rounded(direction: Array, length: float) -> Array:
    """The direction rounded to multiples of a power of two, about one percent of its typical entry."""
    typical = length / math.sqrt(direction.shape[0])
    unit = 2.0 ** (round(math.log2(typical)) - _BITS)
    return namespace(direction).round(direction / unit) * unit
