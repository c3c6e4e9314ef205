"""Drivers: iterations over steps.

A step makes one pass over the data: it returns the objective at the given parameters, a bound on its
rounding error, and the next parameters. A driver takes steps until convergence.
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
    """Fields that all statistics have: the log-likelihood and the total weight."""

    @property
    def log_likelihood(self) -> float: ...

    @property
    def total_weight(self) -> float: ...


class Kernel(Protocol):
    """Interface of a model to the engine: pure functions of parameters, rows and statistics."""

    def prepare(self, params: Any) -> Any:
        """Quantities derived from the parameters, computed once per sweep for all blocks."""

    def e_step(self, density: Any, block: Any) -> Evaluated:
        """Sums over the rows of a block."""

    def stats(self, density: Any, sums: Any) -> Evaluated:
        """The statistics of all rows, from the sums of all blocks."""

    def m_step(self, stats: Any, params: Any) -> Any:
        """The parameters that maximise Q; empty components keep `params`."""

    def canonical(self, params: Any) -> Any:
        """The same model in normalised coordinates, between steps whose statistics are not kept."""

    @property
    def damping(self) -> float:
        """Initial damping of a step that may decrease the objective; zero if it cannot."""

    def damped(self, stats: Any, params: Any, damping: float) -> Any:
        """Damped statistics: a shorter step in the same direction."""

    def rounding(self, density: Any) -> float:
        """Bound on the rounding error of the log-likelihood, in nats per row."""


@dataclass(frozen=True)
class Step(Generic[Params]):
    """The objective at some parameters, and the next parameters, computed on access."""

    objective: float
    rounding: float
    next_params: Callable[[], Params]


@dataclass(frozen=True)
class Iteration:
    """Argument of callbacks at every iteration."""

    number: int  # 0 for the starting values
    objective: float  # log-likelihood per row
    gain: float  # increase since the previous iteration; infinite at the start
    max_iter: int


_DAMPINGS = 16  # how often a step that decreases the objective is retried with more damping
_NOTICEABLE = 1e-10  # a relative decrease beyond float64 rounding

Callback = Callable[[Iteration], Any]
StopRule = Callable[[float, float], bool]


@dataclass(frozen=True)
class Result(Generic[Params]):
    """Result of a run. The last entry of `history` belongs to `params`."""

    params: Params
    history: list[float]
    n_iter: int
    converged: bool
    interrupted: bool = False

    def state(self) -> State[Params]:
        """State from which another run can continue."""
        return State(self.params, self.params, self.history[:-1], self.n_iter, 0.0)


@dataclass(frozen=True)
class State(Generic[Params]):
    """State of a run between two steps, sufficient to resume it exactly."""

    params: Params  # not evaluated yet
    previous: Params  # the last entry of `history` belongs to these
    history: list[float]
    n_iter: int
    rounding: float

    @classmethod
    def at(cls, params: Params) -> State[Params]:
        """The state before the first step."""
        return cls(params, params, [], 0, 0.0)


class LikelihoodFell(RuntimeError):
    """The objective decreased beyond rounding, which no EM step should do."""


def relative(tol: float) -> StopRule:
    """Stop when the gain is at most `tol` times the objective (or times one, if that is larger)."""

    def stop(objective: float, gain: float) -> bool:
        return tol > 0 and gain <= tol * max(1.0, abs(objective))

    return stop


def em_step(kernel: Kernel, sweep: Any, log_volume: float = 0.0) -> Callable[[Any], Step[Any]]:
    """The EM step of a kernel over the rows of a sweep.

    `log_volume` is the log-likelihood per row in the sweep's frame minus that in the user's units.
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
                except (ValueError, ArithmeticError):  # no parameters have these statistics
                    pass
                damping *= 4.0
            return params

        return Step(objective, rounding, next_params)

    return step


class Passes:
    """Count the passes of steps over the data."""

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
    """Two consecutive steps as one step."""

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
    """Take steps until convergence, at most until iteration `max_iter`.

    Each callback is called at every iteration and may return True to end the run; `between` receives the
    state between two iterations. The objective is evaluated before every step and once after the last, and
    must not decrease. If rounding is coarse, the last step may decrease it slightly; then the run ends with
    the previous parameters. So does a run that the user interrupts.
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
        rounding = max(state.rounding, taken.rounding)  # at both ends of the step
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
    """The best of several starts by successive halving, and whether the user interrupted the search.

    All starts take a few steps, the better half takes as many more, and so on until one is left. A single
    start is returned unchanged.
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
    """Sort by objective, best first; ties within rounding keep their order."""

    def order(a: Result[Params], b: Result[Params]) -> int:
        if _clearly_better(a, b):
            return -1
        return 1 if _clearly_better(b, a) else 0

    return sorted(ends, key=cmp_to_key(order))


def _clearly_better(a: Result[Any], b: Result[Any]) -> bool:
    """Whether a value is better beyond rounding."""
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
