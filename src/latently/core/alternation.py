"""Alternation between what each row has of its own and what all rows share.

    cost(s_1 .. s_N, A) = sum_n cost_n(s_n, A) + penalties

States s_n belong to the rows (activations, memberships, indicators), parameters A to all of them. A sweep
over the rows moves the states with A fixed, and the sums that it leaves move A with the states fixed. A model
provides these two updates and the cost (`Alternating`); `alternation` makes a step of them, and
`extrapolation` and `adaptive_exponents` make longer steps of that one, which are taken back where the cost
would rise. All of them are steps for `core.drivers.run`. A model with more than two blocks, or whose updates
have to be shortened until the cost does not rise (`shortened`), makes its own step of a `Point`.

A sweep costs one pass over the rows; a step that is taken back costs one more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from latently.backend.namespace import Array
from latently.core.drivers import Step

T = TypeVar("T")

# Ang & Gillis (2019), Neural Computation 31.
_GROWTH, _GROWTH_OF_LIMIT, _SHRINKAGE = 1.05, 1.01, 1.5
FIRST_MOMENTUM = 0.5
# A multiplicative step of exponent 2 or more may not converge.
_LARGEST_EXPONENT, _GROWTH_OF_EXPONENT = 1.95, 1.1


@dataclass(frozen=True)
class Point:
    """Where an alternation stands, with the pace at which it moves."""

    shared: Any  # array or record: the parameters that all rows share
    state: Any  # (N, m): the states of the rows; None before the first sweep
    cost: float | None = None  # None where only the next sweep tells
    onward: Any = None  # parameters from which the next sweep starts, if these are not `shared`
    speed: float = 1.0  # of the next step: a momentum or an exponent
    limit: float = 1.0  # of the momentum
    earlier_speed: float = FIRST_MOMENTUM  # of the last step that lowered the cost


class Alternating(Protocol):
    """What an alternation asks of a model, which holds the rows; `speed` is that of the acceleration."""

    @property
    @abstractmethod
    def evaluates_start(self) -> bool:
        """Whether sums tell the cost at the point where their sweep started; else where the step ends."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """How much of the cost may be lost to rounding."""

    @abstractmethod
    def sweep(self, shared: Any, state: Array | None, speed: float) -> tuple[Any, Array]:
        """Sums over the rows after their states have moved, and the new states."""

    @abstractmethod
    def update(self, sums: Any, shared: Any, speed: float) -> Any:
        """The parameters after a step, the states being fixed."""

    @abstractmethod
    def cost(self, sums: Any, shared: Any) -> float:
        """The cost of the parameters, with the states that `evaluates_start` says."""

    def onward(self, before: Any, found: Any, speed: float) -> Any:
        """The parameters extrapolated along the last step; None where there is no extrapolation."""
        return None

    def canonical(self, point: Point, sums: Any) -> Point:
        """The same model in its preferred coordinates; applied after every step."""
        return point


PointStep = Callable[[Point], Step[Point]]


def alternation(model: Alternating) -> PointStep:
    """States, then parameters."""
    return _evaluated_in_passing(model) if model.evaluates_start else _evaluated_by_sums(model)


def _evaluated_by_sums(model: Alternating) -> PointStep:
    """The sums of a sweep are all that the cost depends on, so it is known as soon as parameters are."""

    def step(point: Point) -> Step[Point]:
        def next_point() -> Point:
            start = point.shared if point.onward is None else point.onward
            sums, state = model.sweep(start, point.state, point.speed)
            found = model.update(sums, start, point.speed)
            onward = model.onward(point.shared, found, point.speed)
            there = replace(point, shared=found, state=state, cost=model.cost(sums, found), onward=onward)
            return model.canonical(there, sums)

        assert point.cost is not None
        return Step(point.cost, model.rounding, next_point)

    return step


def _evaluated_in_passing(model: Alternating) -> PointStep:
    """The next sweep has to be made to know the cost; a step already holds it."""

    def step(point: Point) -> Step[Point]:
        sums, state = model.sweep(point.shared, point.state, point.speed)

        def next_point() -> Point:
            found = model.update(sums, point.shared, point.speed)
            return model.canonical(replace(point, shared=found, state=state), sums)

        return Step(model.cost(sums, point.shared), model.rounding, next_point)

    return step


def swept(sweep: Any, fn: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """Sums and new states (N, m) of a sweep; `fn(*args, block)` gives sums and a list of one array of states.

    The data of the sweep have a state, if only one without columns, so that no row is left out. On a cluster
    the states stay with its workers: `each_state` and `in_one_place` do what else is done with them.
    """
    found: tuple[Any, Any] = sweep.moved(fn, *args)
    return found


def each_state(fn: Callable[..., Array], state: Any, *args: Any) -> Any:
    """`fn(state, *args)`, which works row by row, wherever states are."""
    return state.mapped(fn, *args) if hasattr(state, "mapped") else fn(state, *args)


def in_one_place(state: Any) -> Array:
    """The states as one array."""
    return state.here() if hasattr(state, "here") else state


# -- longer steps -------------------------------------------------------------------------------------


def extrapolation(step: PointStep, *, of_states: bool = True) -> PointStep:
    """Steps with momentum, for models with `onward`: it grows while the cost falls.

    A step that would raise the cost is taken again from where the last one ended, without momentum. Where
    states have none of their own (`of_states`), a step without `onward` would only be repeated, so it is not.
    """

    def longer(point: Point) -> Step[Point]:
        here = step(point)

        def next_point() -> Point:
            there = here.next_params()
            plain = point.onward is None and not of_states
            if plain or step(there).objective <= here.objective:
                speed = min(point.limit, _GROWTH * point.speed)
                limit = min(1.0, _GROWTH_OF_LIMIT * point.limit)
                return replace(there, speed=speed, limit=limit, earlier_speed=point.speed)
            there = step(replace(point, onward=None, speed=0.0)).next_params()
            return replace(there, speed=point.speed / _SHRINKAGE, limit=point.earlier_speed)

        return Step(here.objective, here.rounding, next_point)

    return longer


def adaptive_exponents(step: PointStep) -> PointStep:
    """Multiplicative steps: the exponent grows while the cost falls, and is one again where it would rise."""
    step = _remembered(step)

    def longer(point: Point) -> Step[Point]:
        here = step(point)

        def next_point() -> Point:
            faster = min(_LARGEST_EXPONENT, _GROWTH_OF_EXPONENT * point.speed)
            there = replace(here.next_params(), speed=faster)
            if point.speed == 1.0 or step(there).objective <= here.objective:
                return there
            return step(replace(point, speed=1.0)).next_params()

        return Step(here.objective, here.rounding, next_point)

    return longer


def shortened(
    trial: Callable[[float], tuple[T, float]], before: float, rate: float, slack: float, *, most: int = 60
) -> tuple[T | None, float, float]:
    """What `trial(rate)` gives at the first rate, halved again and again, at which the cost does not rise.

    With its cost, and that rate. None, and the cost before, if none does. A rate above one falls back to
    one first.
    """
    for _ in range(most):
        found, cost = trial(rate)
        if cost <= before + slack:
            return found, min(cost, before), rate
        rate = 1.0 if rate > 1.0 else 0.5 * rate
    return None, before, rate


def never_rising(step: PointStep) -> PointStep:
    """The same step, which stays where it is when rounding is all that is left to gain."""

    def guarded(point: Point) -> Step[Point]:
        here = step(point)

        def next_point() -> Point:
            there = here.next_params()
            if there.cost is None:
                return there
            by_rounding = here.objective < there.cost <= here.objective + here.rounding
            return replace(point, onward=None) if by_rounding else there

        return Step(here.objective, here.rounding, next_point)

    return guarded


def _remembered(step: PointStep) -> PointStep:
    """The same step, which is not made twice in a row for the same point: it may cost a sweep."""
    last: tuple[Any, Any] = None, None

    def remembering(point: Point) -> Step[Point]:
        nonlocal last
        if last[0] is not point:
            last = point, step(point)
        made: Step[Point] = last[1]
        return made

    return remembering
