"""Drivers: how iterates move.

A step looks at the data once: it tells the objective at the parameters given, what rounding may take
from it, and how to go on. A driver takes steps until the objective settles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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

    def rounding(self, density: Any) -> float:
        """How many nats per row the log-likelihood may lose to rounding."""


@dataclass(frozen=True)
class Step(Generic[Params]):
    """How good a place is, and the way on, which is worked out only if it is taken."""

    objective: float
    rounding: float
    following: Callable[[], Params]


@dataclass(frozen=True)
class Iteration:
    """What a callback is told after every iteration."""

    number: int  # 0 for the starting values
    objective: float  # log-likelihood per row
    gain: float  # rise since the iteration before; infinite at the start
    max_iter: int


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


class LikelihoodFell(RuntimeError):
    """The objective fell beyond rounding, which no EM step may do."""


def relative(tol: float) -> StopRule:
    """Stop when the gain is at most `tol` times the objective (or times one, if that is larger)."""

    def stop(objective: float, gain: float) -> bool:
        return tol > 0 and gain <= tol * max(1.0, abs(objective))

    return stop


def em_step(kernel: Kernel, sweep: Any) -> Callable[[Any], Step[Any]]:
    """The EM step of a kernel over the rows of a sweep."""

    def step(params: Any) -> Step[Any]:
        density = kernel.prepare(params)
        stats = kernel.stats(density, sweep.sum(lambda block: kernel.e_step(density, block)))
        objective = float(stats.log_likelihood) / float(stats.total_weight) - sweep.frame.log_volume
        return Step(objective, kernel.rounding(density), lambda: kernel.m_step(stats, params))

    return step


def run(
    step: Callable[[Params], Step[Params]],
    params: Params,
    *,
    max_iter: int,
    stop: StopRule,
    callbacks: Iterable[Callback] = (),
) -> Result[Params]:
    """At most `max_iter` steps from `params`; each callback sees every iteration and may return True to end.

    The objective is looked at before every step and once after the last, and may not fall. Where rounding
    is coarse, the last step may lead down a little; then the run ends with the place before it.
    """
    callbacks = list(callbacks)
    history: list[float] = []
    n_iter, rounding = 0, 0.0
    previous = params
    while True:
        taken = step(params)
        gain = taken.objective - history[-1] if history else math.inf
        rounding = max(rounding, taken.rounding)  # of both ends of the step
        _check(taken.objective, gain, rounding, n_iter)
        converged = stop(taken.objective, gain)
        if converged and n_iter > 1 and gain < -_NOTICEABLE * max(1.0, abs(taken.objective)):
            return Result(previous, history, n_iter - 1, converged)
        history.append(taken.objective)
        told = Iteration(n_iter, taken.objective, gain, max_iter)
        ended = any([callback(told) is True for callback in callbacks])
        if ended or converged or n_iter == max_iter:
            return Result(params, history, n_iter, converged)
        previous, params, rounding = params, taken.following(), taken.rounding
        n_iter += 1


def best_start(
    step: Callable[[Params], Step[Params]], starts: Iterable[Params], *, n_steps: int, stop: StopRule
) -> Params:
    """The end of the best of several short runs; a single start is returned as it is."""
    starts = iter(starts)
    first, second = next(starts), next(starts, None)
    if second is None:
        return first
    ends = (run(step, start, max_iter=n_steps, stop=stop) for start in chain([first, second], starts))
    return max(ends, key=lambda end: end.history[-1]).params


def _check(objective: float, gain: float, rounding: float, n_iter: int) -> None:
    if not math.isfinite(objective):
        raise FloatingPointError(
            f"the log-likelihood became {objective} at iteration {n_iter}; "
            "a larger noise_floor keeps the model away from singular solutions"
        )
    if gain < -rounding:
        raise LikelihoodFell(
            f"the log-likelihood per row fell by {-gain:.3g} to {objective:.10g} in iteration {n_iter}; "
            f"rounding explains at most {rounding:.3g}. Please report this"
        )
