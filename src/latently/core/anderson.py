"""Anderson acceleration: steps that remember earlier ones.

A step leads from a point x to x + f(x), and f vanishes where steps end. The last m steps tell how f changes
along their moves: with the columns of X the moves and those of F the changes of f,

    x  ->  x + f - (X + F) g,      g = argmin |f - F g|,

which would be the end if f were linear. Where that lies behind, steps are leaving a saddle point, and a
multiple of f is taken, ever longer. Either is accepted only if the objective does not fall, else the step
itself follows; so the fixed points are those of the step. An iteration takes one evaluation, or two.
Walker & Ni (2011), SIAM Journal on Numerical Analysis 49; as an accelerator of EM Henderson & Varadhan
(2019), Journal of Computational and Graphical Statistics 28.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latently.backend.namespace import Array, eye, namespace, zeros
from latently.core.drivers import Step, StopRule, attempted
from latently.core.squarem import Chart

_MEMORY = 5  # moves
_RIDGE = 1e-2  # of the regression on changes of unit length
_BITS = 7  # precision of its coefficients, so that differences in the last digits are not amplified
_SLOW = 3  # iterations in a row without a noticeable gain, before a run may end
_LESS_CAUTION = 4.0
_LONGEST = 64.0  # stride away from a saddle point


@dataclass(frozen=True)
class Remembering:
    """Parameters, and what steps remember."""

    params: Any
    point: Array  # (P,): where the last step was taken
    residual: Array  # (P,): f there
    moves: Array  # (m, P): between consecutive points, the latest first
    changes: Array  # (m, P): of f
    n_moves: int  # so many of them; -1 before the first step
    objective: float  # at `point`
    caution: float  # of attempts
    stride: float  # of the next step away from a saddle point
    n_slow: int  # steps in a row that gained little

    @classmethod
    def nothing(cls, params: Any, chart: Chart, caution: float = 1.0) -> Remembering:
        point = chart.to_vector(params)
        none = zeros((_MEMORY, point.shape[0]), point)
        return cls(params, 0.0 * point, 0.0 * point, none, none, -1, 0.0, caution, 2.0, 0)

    def after(self, point: Array, residual: Array, objective: float, n_slow: int) -> Remembering:
        """With one more step."""
        told = {"point": point, "residual": residual, "objective": objective, "n_slow": n_slow}
        if self.n_moves < 0:
            return replace(self, **told, n_moves=0)
        return replace(
            self,
            **told,
            moves=_with_first(point - self.point, self.moves),
            changes=_with_first(residual - self.residual, self.changes),
            n_moves=min(self.n_moves + 1, _MEMORY),
        )


def anderson(
    step: Callable[[Any], Step[Any]], chart: Chart, stop: StopRule
) -> Callable[[Remembering], Step[Remembering]]:
    """The accelerated step; `stop` tells small gains, of which a run has to see several before it ends."""

    def longer(last: Remembering) -> Step[Remembering]:
        here = step(last.params)
        slow = last.n_moves >= 0 and stop(here.objective, here.objective - last.objective)
        n_slow = last.n_slow + 1 if slow else 0

        def next_params() -> Remembering:
            try:
                aim = here.next_params() if here.attempt is None else here.attempt(last.caution)
            except (ValueError, ArithmeticError):
                there, caution = attempted(step, last.params, here, last.caution)
                return replace(Remembering.nothing(there, chart, caution), n_slow=n_slow)
            point = chart.to_vector(last.params)
            now = last.after(point, chart.to_vector(aim) - point, here.objective, n_slow)
            bolder = max(1.0, last.caution / _LESS_CAUTION)
            guess, away = _extrapolated(chart, now, aim)
            if guess is not None and _improves(step, guess, here):
                stride = min(2.0 * now.stride, _LONGEST) if away else now.stride
                return replace(now, params=guess, caution=bolder, stride=stride)
            there, caution = attempted(step, last.params, here, last.caution)
            if away:
                now = replace(now, stride=max(2.0, now.stride / 4.0))
            elif guess is not None:  # the older half of the moves may be to blame
                now = replace(now, n_moves=(now.n_moves - 1) // 2)
            return replace(now, params=there, caution=bolder if caution == last.caution else caution)

        return Step(here.objective, here.rounding, next_params, may_stop=n_slow >= _SLOW)

    return longer


def _improves(step: Callable[[Any], Step[Any]], guess: Any, here: Step[Any]) -> bool:
    try:
        with np.errstate(all="ignore"):  # extrapolations may be numerically invalid
            there = step(guess)
    except (ValueError, ArithmeticError):
        return False
    return math.isfinite(there.objective) and there.objective >= here.objective


def _extrapolated(chart: Chart, now: Remembering, aim: Any) -> tuple[Any, bool]:
    """Where f would vanish if it were linear, shaped like `aim`, or None; and whether that lies behind.

    Then it is a point farther ahead instead.
    """
    xp = namespace(now.point)
    moves, changes = now.moves[: now.n_moves, :], now.changes[: now.n_moves, :]
    lengths = xp.linalg.vector_norm(changes, axis=1)
    length = float(xp.linalg.vector_norm(now.residual))
    if now.n_moves < 1 or not 0 < length < math.inf or not bool(xp.all(lengths > 0)):
        return None, False
    moves, changes = moves / lengths[:, None], changes / lengths[:, None]
    try:
        products = changes @ changes.T + _RIDGE * eye(now.n_moves, changes)
        g = xp.linalg.solve(products, (changes @ now.residual)[:, None])[:, 0]
        unit = 2.0 ** (round(math.log2(length)) - _BITS)
        g = xp.round(g / unit) * unit
        direction = now.residual - g @ (moves + changes)
        away = float(xp.sum(direction * now.residual)) < 0
        direction = now.stride * now.residual if away else direction
        return chart.from_vector(now.point + direction, like=aim), away
    except (ValueError, ArithmeticError):
        return None, False


def _with_first(row: Array, rows: Array) -> Array:
    """(m, P): another row first, without the last."""
    return namespace(row).concat([row[None, :], rows[:-1, :]])
