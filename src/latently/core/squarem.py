"""SQUAREM: EM with longer strides.

EM creeps where much of the information is missing: its error shrinks by nearly the same factor, in nearly
the same direction, step after step. Two steps tell both, so the place where they lead can be guessed. A
guess is kept only where the objective is at least that of plain EM: the objective never falls and the
fixed points are the same. Varadhan & Roland (2008), Scandinavian Journal of Statistics 35, scheme S3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from latently.backend.namespace import Array, namespace
from latently.core.drivers import Step

_STEPS = 16  # of the stride between two powers of two
_BITS = 7  # of a typical entry of a direction
_COARSER = 10.0  # times as much rounding as at the plain step makes a guess doubtful


class Chart(Protocol):
    """Parameters as a point in a space without bounds, and back."""

    def to_vector(self, params: Any) -> Array: ...

    def from_vector(self, vector: Array, like: Any) -> Any:
        """The parameters at a point, shaped like others; a ValueError where the point is out of reach."""


def squarem(step: Callable[[Any], Step[Any]], chart: Chart) -> Callable[[Any], Step[Any]]:
    """A step worth several: two plain ones, a guess where they lead, and a plain one from there."""

    def longer(params: Any) -> Step[Any]:
        here = step(params)

        def next_params() -> Any:
            once = here.next_params()
            second = step(once)
            twice = second.next_params()
            guess = _extrapolated(chart, params, once, twice)
            if guess is None:
                return twice
            try:
                with np.errstate(all="ignore"):  # a guess at which the model breaks down is no matter
                    third = step(guess)
                    return third.next_params() if _better(third, second) else twice
            except (ValueError, ArithmeticError):
                return twice

        return Step(here.objective, here.rounding, next_params)

    return longer


def _better(guess: Step[Any], plain: Step[Any]) -> bool:
    """Whether a guess is at least as good; far out, where digits are lost, beyond what rounding may feign."""
    doubt = guess.rounding if guess.rounding > _COARSER * plain.rounding else 0.0
    return math.isfinite(guess.objective) and guess.objective - doubt >= plain.objective


def _extrapolated(chart: Chart, start: Any, once: Any, twice: Any) -> Any:
    """Where steps that shrink by a constant factor would end; None where steps do not shrink.

    Long strides would also lead two fits apart whose numbers differ in the last digit only, as those of rows
    given in another order do. So directions and stride are rounded, to a part in a hundred or so: a guess is
    as good, and the last digits of `start` are carried along, not multiplied.
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
    """The direction in multiples of a power of two, about a hundredth of its typical entry."""
    typical = length / math.sqrt(direction.shape[0])
    unit = 2.0 ** (round(math.log2(typical)) - _BITS)
    return namespace(direction).round(direction / unit) * unit
