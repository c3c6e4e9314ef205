"""Drivers: how iterates move.

A step looks at the data once: it tells the objective at the parameters given, what rounding may take
from it, and how to go on. A driver takes steps until the objective settles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cmp_to_key
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

Params = TypeVar("Params")


class Evaluated(Protocol):
    """What a kernel's statistics always say: the log-likelihood, and the weight it sums over."""

    @property
    def log_likelihood(self) -> float: ...

    @property
    def total_weight(self) -> float: ...


class Kernel(Protocol):
    """A model as the engine sees it: pure functions of parameters, rows and statistics."""

    def prepare(self, params: Any) -> Any:
        """What every block needs of the parameters, worked out once per sweep."""

    def e_step(self, density: Any, block: Any) -> Evaluated:
        """Sums over the rows of a block."""

    def stats(self, density: Any, sums: Any) -> Evaluated:
        """The statistics of all rows, from the sums of all blocks."""

    def m_step(self, stats: Any, params: Any) -> Any:
        """The parameters that maximise Q; `params` are kept where the statistics are empty."""

    def canonical(self, params: Any) -> Any:
        """The same model in coordinates that suit it; between steps whose statistics are not kept."""

    @property
    def damping(self) -> float:
        """How much to hold back a first try at a step that may lead down; zero if none does."""

    def damped(self, stats: Any, params: Any, damping: float) -> Any:
        """Statistics from which the step leads less far, but in the same direction."""

    def rounding(self, density: Any) -> float:
        """How many nats per row the log-likelihood may lose to rounding."""


@dataclass(frozen=True)
class Step(Generic[Params]):
    """How good a place is, and the way on, which is worked out only if it is taken."""

    objective: float
    rounding: float
    next_params: Callable[[], Params]


@dataclass(frozen=True)
class Iteration:
    """What a callback is told after every iteration."""

    number: int  # 0 for the starting values
    objective: float  # log-likelihood per row
    gain: float  # rise since the iteration before; infinite at the start
    max_iter: int


_DAMPINGS = 16  # how often a step that leads down is tried again, ever shorter
_NOTICEABLE = 1e-10  # a relative fall that is more than the last digits of float64

Callback = Callable[[Iteration], Any]
StopRule = Callable[[float, float], bool]


@dataclass(frozen=True)
class Result(Generic[Params]):
    """Where a run ended. The last entry of `history` belongs to `params`."""

    params: Params
    history: list[float]
    n_iter: int
    converged: bool
    interrupted: bool = False

    def state(self) -> State[Params]:
        """From where another run can go on."""
        return State(self.params, self.params, self.history[:-1], self.n_iter, 0.0)


@dataclass(frozen=True)
class State(Generic[Params]):
    """Where a run stands between two steps: all that it takes to go on as if nothing had happened."""

    params: Params  # not looked at yet
    previous: Params  # to which the last entry of `history` belongs
    history: list[float]
    n_iter: int
    rounding: float

    @classmethod
    def at(cls, params: Params) -> State[Params]:
        """Before the first step."""
        return cls(params, params, [], 0, 0.0)


class LikelihoodFell(RuntimeError):
    """The objective fell beyond rounding, which no EM step may do."""


def relative(tol: float) -> StopRule:
    """Stop when the gain is at most `tol` times the objective (or times one, if that is larger)."""

    def stop(objective: float, gain: float) -> bool:
        return tol > 0 and gain <= tol * max(1.0, abs(objective))

    return stop


def em_step(kernel: Kernel, sweep: Any, log_volume: float = 0.0) -> Callable[[Any], Step[Any]]:
    """The EM step of a kernel over the rows of a sweep.

    `log_volume` is what the log-likelihood per row in the sweep's frame is above that in the user's units.
    """

    def evaluated(params: Any) -> tuple[Any, float, float]:
        density = kernel.prepare(params)
        stats = kernel.stats(density, sweep.sum(kernel.e_step, density))
        objective = float(stats.log_likelihood) / float(stats.total_weight) - log_volume
        return stats, objective, kernel.rounding(density)

    def step(params: Any) -> Step[Any]:
        stats, objective, rounding = evaluated(params)

        def next_params() -> Any:
            if kernel.damping == 0.0:
                return kernel.canonical(kernel.m_step(stats, params))
            damping = kernel.damping
            for _ in range(_DAMPINGS):
                try:
                    there = kernel.canonical(kernel.m_step(kernel.damped(stats, params, damping), params))
                    if evaluated(there)[1] >= objective:
                        return there
                except (ValueError, ArithmeticError):  # statistics that belong to no parameters
                    pass
                damping *= 4.0
            return params

        return Step(objective, rounding, next_params)

    return step


class Passes:
    """Counts how often steps look at the data."""

    def __init__(self) -> None:
        self.count = 0

    def counted(self, step: Callable[[Params], Step[Params]]) -> Callable[[Params], Step[Params]]:
        def counting(params: Params) -> Step[Params]:
            self.count += 1
            return step(params)

        return counting


def alternate(
    first: Callable[[Params], Step[Params]], second: Callable[[Params], Step[Params]]
) -> Callable[[Params], Step[Params]]:
    """Two steps that are taken one after the other, as one."""

    def both(params: Params) -> Step[Params]:
        here = first(params)
        return Step(here.objective, here.rounding, lambda: second(here.next_params()).next_params())

    return both


def run(
    step: Callable[[Params], Step[Params]],
    start: State[Params],
    *,
    max_iter: int,
    stop: StopRule,
    callbacks: Iterable[Callback] = (),
    between: Callable[[State[Params]], None] = lambda state: None,
) -> Result[Params]:
    """Steps until the objective settles, at most until iteration `max_iter`.

    Each callback sees every iteration and may return True to end; `between` sees the state between two. The
    objective is looked at before every step and once after the last, and may not fall. Where rounding is
    coarse, the last step may lead down a little; then the run ends with the place before it. So does a run
    that the user interrupts.
    """
    callbacks = list(callbacks)
    state, history = start, list(start.history)
    while True:
        params, n_iter = state.params, state.n_iter
        try:
            taken = step(params)
        except KeyboardInterrupt:
            if not history:
                raise
            return Result(state.previous, history, n_iter - 1, False, interrupted=True)
        gain = taken.objective - history[-1] if history else math.inf
        rounding = max(state.rounding, taken.rounding)  # of both ends of the step
        _check(taken.objective, gain, rounding, n_iter)
        converged = stop(taken.objective, gain)
        if converged and n_iter > 1 and gain < -_NOTICEABLE * max(1.0, abs(taken.objective)):
            return Result(state.previous, history, n_iter - 1, converged)
        history.append(taken.objective)
        told = Iteration(n_iter, taken.objective, gain, max_iter)
        try:
            ended = any([callback(told) is True for callback in callbacks])
            if ended or converged or n_iter >= max_iter:
                return Result(params, history, n_iter, converged)
            state = State(taken.next_params(), params, history, n_iter + 1, taken.rounding)
            between(state)
        except KeyboardInterrupt:
            return Result(params, history, n_iter, False, interrupted=True)


def best_start(
    step: Callable[[Params], Step[Params]], starts: Iterable[Params], *, n_steps: int, stop: StopRule
) -> tuple[Params, bool]:
    """Where the most promising of several starts leads, and whether the user interrupted the search.

    All take a few steps, the better half takes as many more, and so on until one is left. A single start is
    returned as it is.
    """
    starts = iter(starts)
    first, second = next(starts), next(starts, None)
    if second is None:
        return first, False
    ends: list[Result[Params]] = []
    survivors: Iterable[State[Params]] = map(State.at, chain([first, second], starts))
    n_done = 0
    try:
        while True:
            last_round, ends, n_done = ends, [], n_done + n_steps
            for start in survivors:
                end = run(step, start, max_iter=n_done, stop=stop)
                ends.append(end)
                if end.interrupted:
                    return _best([*last_round, *ends])[0].params, True
            ends = _best(ends)[: -(-len(ends) // 2)]
            if len(ends) == 1:
                return ends[0].params, False
            survivors = [end.state() for end in ends]
    except KeyboardInterrupt:
        if not (found := [*last_round, *ends]):
            raise
        return _best(found)[0].params, True


def _best(ends: list[Result[Params]]) -> list[Result[Params]]:
    """The best first, and among equals the first found: their last digits must not tell them apart."""

    def order(a: Result[Params], b: Result[Params]) -> int:
        if _clearly_better(a, b):
            return -1
        return 1 if _clearly_better(b, a) else 0

    return sorted(ends, key=cmp_to_key(order))


def _clearly_better(a: Result[Any], b: Result[Any]) -> bool:
    """Beyond rounding."""
    return a.history[-1] > b.history[-1] + _NOTICEABLE * max(1.0, abs(b.history[-1]))


def _check(objective: float, gain: float, rounding: float, n_iter: int) -> None:
    if not math.isfinite(objective):
        raise FloatingPointError(
            f"the log-likelihood became {objective} at iteration {n_iter}; "
            "a larger noise_floor (weight_floor of BNMF) keeps the model away from singular solutions"
        )
    if gain < -rounding:
        raise LikelihoodFell(
            f"the log-likelihood per row fell by {-gain:.3g} to {objective:.10g} in iteration {n_iter}; "
            f"rounding explains at most {rounding:.3g}. Please report this"
        )
