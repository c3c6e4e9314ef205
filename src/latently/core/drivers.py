"""Drivers: iterations over steps.

A step evaluates the objective at the parameters given, bounds its rounding error, and holds the way on,
which is computed only if it is taken. A driver takes steps until the objective stops improving.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cmp_to_key
from itertools import chain
from typing import Any, Generic, TypeVar

from latently.backend.placement import on_device
from latently.core.kernel import Kernel

Params = TypeVar("Params")


@dataclass(frozen=True)
class Objective:
    """What a run improves: its name in messages, and which direction is better."""

    name: str
    direction: int = 1  # 1: it must not fall; -1: it must not rise; 0: a sampler, which may do either
    remedy: str = "rescale the data"  # what to do if it is not finite
    least_size: float = 1.0  # of two values, relative to which their difference is noticed

    def improvement(self, before: float, after: float) -> float:
        """Positive where `after` is better."""
        return (self.direction or 1) * (after - before)

    def better(self, a: float, b: float) -> bool:
        """Whether a is better than b beyond rounding."""
        return self.improvement(b, a) > _NOTICEABLE * max(self.least_size, abs(b))

    def check(self, value: float, improvement: float, rounding: float, n_iter: int) -> None:
        """An error if the value is not finite, or worse than the last by more than rounding explains."""
        if not math.isfinite(value):
            raise NotFinite(f"the {self.name} became {value} at iteration {n_iter}; {self.remedy}")
        if self.direction and improvement < -rounding:
            fell = "fell" if self.direction > 0 else "rose"
            raise ObjectiveWorsened(
                f"the {self.name} {fell} by {-improvement:.3g} to {value:.10g} in iteration {n_iter}; "
                f"rounding explains at most {rounding:.3g}. A step of this model, or its bound of "
                "rounding, is wrong: please report this"
            )


LOG_LIKELIHOOD = Objective(
    "log-likelihood per row",
    remedy="check X for rows that the model cannot have generated, or raise noise_floor (weight_floor of "
    "BNMF) to keep the model away from singular solutions",
)


class NotFinite(FloatingPointError, ValueError):
    """The objective became infinite or NaN: the data do not suit the model or its options."""


class ObjectiveWorsened(RuntimeError):
    """The objective became worse beyond rounding, which no exact step may do."""


@dataclass(frozen=True)
class Step(Generic[Params]):
    """The objective at some parameters, and the next parameters, computed only if they are asked for."""

    objective: float
    rounding: float
    next_params: Callable[[], Params]
    may_stop: bool = True  # whether a small improvement up to here is a reason to stop
    attempt: Callable[[float], Params] | None = None  # by caution: longer steps, which have to be checked
    sure: Callable[[], Params] | None = None  # what to take where an attempt fails, if that needs no check


@dataclass(frozen=True)
class Iteration:
    """What a callback receives after every iteration."""

    number: int  # 0 for the starting values
    objective: float  # what `history_` holds: log-likelihood per row, cost, ...
    gain: float  # improvement since the iteration before, positive for better; infinite at the start
    max_iter: int


_ATTEMPTS = 16  # how often a step that worsens the objective is tried again, ever more cautiously
_MORE_CAUTION = 10.0
_REMEMBERED = 2  # evaluations
_RAISED_AGAIN = (ValueError, ArithmeticError, RuntimeError)  # by what is computed early, if it is asked for
_NOTICEABLE = 1e-10  # a relative fall that is more than the last digits of float64

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
    previous: Params  # to which the last entry of `history` belongs
    history: list[float]
    n_iter: int
    rounding: float
    ended: bool = False  # a callback or the stop rule has ended it

    @classmethod
    def at(cls, params: Params) -> State[Params]:
        """The state before the first step."""
        return cls(params, params, [], 0, 0.0)


def relative(tol: float, least_size: float = 1.0) -> StopRule:
    """Stop when the gain is at most `tol` times the objective (or times `least_size`, if that is larger)."""

    def stop(objective: float, gain: float) -> bool:
        return tol > 0 and gain <= tol * max(least_size, abs(objective))

    return stop


class Passes:
    """Count the passes of steps over the data."""

    def __init__(self) -> None:
        self.count = 0

    def counted(self, step: Callable[[Params], Step[Params]]) -> Callable[[Params], Step[Params]]:
        def counting(params: Params) -> Step[Params]:
            self.count += 1
            return step(params)

        return counting


def em_step(
    kernel: Kernel, sweep: Any, log_volume: float = 0.0, passes: Passes | None = None
) -> Callable[[Any], Step[Any]]:
    """The EM step of a kernel over the rows of a sweep; `passes` counts every evaluation.

    The objective is log-likelihood plus log prior, per row. `log_volume` is the log-likelihood per row in the
    sweep's frame minus that in the user's units. The last evaluations are remembered: where attempts are
    checked, the run asks for the accepted one again.
    """
    passes = passes or Passes()
    recent: list[tuple[Any, tuple[Any, float, float]]] = []
    prepared = Prepared()

    def summed(params: Any) -> tuple[Any, Any]:
        passes.count += 1
        density = prepared(kernel, params)
        return density, kernel.stats(density, sweep.sum(kernel.e_step, density))

    def told(params: Any, density: Any, stats: Any) -> tuple[float, float]:
        gained = float(stats.log_likelihood) + kernel.log_prior(params)
        return gained / float(stats.total_weight) - log_volume, kernel.rounding(density)

    def evaluated(params: Any) -> tuple[Any, float, float]:
        for known, evaluation in recent:
            if known is params:
                return evaluation
        density, stats = summed(params)
        evaluation = stats, *told(params, density, stats)
        recent[:] = [(params, evaluation), *recent[: _REMEMBERED - 1]]
        return evaluation

    def plain_step(params: Any) -> Step[Any]:
        density, stats = summed(params)
        following = soon(stats.total_weight, lambda: kernel.canonical(kernel.m_step(stats, params)))
        prepared.ahead(kernel, stats.total_weight, following)
        return Step(*told(params, density, stats), following)

    # apart, since a step that refers to itself would keep the rows of the sweep until cycles are collected
    return _checked_step(kernel, evaluated) if kernel.checked else plain_step


def soon(array: Any, compute: Callable[[], Params]) -> Callable[[], Params]:
    """What computes something when it is asked for, and only once.

    Where such an array is on a device it is computed now: then the device is at work while its other results
    are waited for.
    """
    computed = cache(compute)
    if on_device(array):
        with suppress(*_RAISED_AGAIN):
            computed()
    return computed


class Prepared:
    """Densities of parameters, prepared when `soon` computes these: before a device is waited for."""

    def __init__(self) -> None:
        self._recent: list[tuple[Any, Any]] = []

    def ahead(self, kernel: Kernel, array: Any, params: Callable[[], Any]) -> None:
        """Prepare the density of parameters, if such an array is on a device."""
        if on_device(array):
            with suppress(*_RAISED_AGAIN):
                self._recent = [(params(), kernel.prepare(params())), *self._recent[: _REMEMBERED - 1]]

    def __call__(self, kernel: Kernel, params: Any) -> Any:
        """The density, computed now if it was not before."""
        for known, density in self._recent:
            if known is params:
                return density
        return kernel.prepare(params)


def _checked_step(kernel: Kernel, evaluated: Callable[[Any], tuple[Any, float, float]]) -> Any:
    """The step of a kernel whose attempts may lower the objective."""

    def step(params: Any) -> Step[Any]:
        stats, objective, rounding = evaluated(params)

        def plain() -> Any:
            return kernel.canonical(kernel.m_step(stats, params))

        def attempt(caution: float) -> Any:
            return kernel.canonical(kernel.attempt(stats, params, caution))

        here: Step[Any] = Step(
            objective,
            rounding,
            lambda: attempted(step, params, here, 1.0)[0],
            attempt=attempt,
            sure=plain if kernel.sure else None,
        )
        return here

    return step


def attempted(
    step: Callable[[Params], Step[Params]], params: Params, here: Step[Params], caution: float
) -> tuple[Params, float]:
    """The first attempt that does not lower the objective, ever more cautious, and the caution it took.

    The sure step, if there is one, follows the first that fails; without any success nothing changes.
    """
    if here.attempt is None:
        return here.next_params(), caution
    for _ in range(_ATTEMPTS):
        try:
            there = here.attempt(caution)
            if step(there).objective >= here.objective:
                return there, caution
        except (ValueError, ArithmeticError):  # no parameters have these statistics
            pass
        caution *= _MORE_CAUTION
        if here.sure is not None:
            return here.sure(), caution
    return params, caution


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
    objective: Objective = LOG_LIKELIHOOD,
    callbacks: Iterable[Callback] = (),
    between: Callable[[State[Params]], None] = lambda state: None,
) -> Result[Params]:
    """Steps until the objective stops improving, at most until iteration `max_iter`.

    Each callback sees every iteration and may return True to end; `between` sees the state between two. The
    objective is evaluated before every step and once after the last, and may not worsen. Where rounding is
    coarse, the last step may worsen it a little; then the run ends with the parameters before it. So does a
    run that the user interrupts.
    """
    callbacks = list(callbacks)
    state = start
    while True:
        try:
            taken = step(state.params)
        except KeyboardInterrupt:
            if not state.history:
                raise
            return interrupted_at(state)
        there = advanced(
            state,
            taken,
            max_iter=max_iter,
            stop=stop,
            objective=objective,
            callbacks=callbacks,
            between=between,
        )
        if isinstance(there, Result):
            return there
        state = there


def interrupted_at(state: State[Params]) -> Result[Params]:
    """The result of a run whose parameters were not evaluated any more: those before them."""
    return Result(state.previous, list(state.history), state.n_iter - 1, False, interrupted=True)


def advanced(
    state: State[Params],
    taken: Step[Params],
    *,
    max_iter: int,
    stop: StopRule,
    objective: Objective = LOG_LIKELIHOOD,
    callbacks: Iterable[Callback] = (),
    between: Callable[[State[Params]], None] = lambda state: None,
) -> State[Params] | Result[Params]:
    """The state after a step that was evaluated, or the result, if the run ends with it."""
    params, n_iter, history = state.params, state.n_iter, list(state.history)
    gain = objective.improvement(history[-1], taken.objective) if history else math.inf
    rounding = max(state.rounding, taken.rounding)  # of both ends of the step
    objective.check(taken.objective, gain, rounding, n_iter)
    try:
        converged = bool(objective.direction) and taken.may_stop and stop(taken.objective, gain)
        noticeable = gain < -_NOTICEABLE * max(1.0, abs(taken.objective))
        if converged and noticeable and n_iter > 1:
            return Result(state.previous, history, n_iter - 1, converged)
        if converged and noticeable and n_iter == 1 and math.isfinite(rounding):
            # scikit-learn expects one iteration at least, so it counts, but nothing changes
            return Result(state.previous, [*history, history[-1]], n_iter, converged)
        history = [*history, taken.objective]
        ended = _told(callbacks, Iteration(n_iter, taken.objective, gain, max_iter))
        if converged or ended or n_iter >= max_iter:
            return Result(params, history, n_iter, converged)
        following = State(taken.next_params(), params, history, n_iter + 1, taken.rounding)
        between(following)
        return following
    except KeyboardInterrupt:
        return Result(params, history, n_iter, False, interrupted=True)


def run_passes(
    move: Callable[[Params, int], tuple[Params, float]],
    evaluate: Callable[[Params], float],
    start: State[Params],
    *,
    max_iter: int,
    stop: StopRule,
    objective: Objective = LOG_LIKELIHOOD,
    callbacks: Iterable[Callback] = (),
    between: Callable[[State[Params]], None] = lambda state: None,
) -> Result[Params]:
    """Passes by mini-batches, each of which moves the parameters many times.

    `move(params, number)` makes one pass and gives the objective met on the way, which is noisy: it is not
    guarded, and the run stops when it hardly changes, whichever way. The last entry of the history is
    `evaluate` of the final parameters.
    """
    callbacks = list(callbacks)
    params, history, ended, interrupted = start.params, list(start.history), start.ended, False
    try:
        while len(history) < max_iter and not ended:
            params, met = move(params, len(history))
            gain = objective.improvement(history[-1], met) if history else math.inf
            objective.check(met, math.inf, 0.0, len(history))
            history = [*history, met]
            iteration = Iteration(len(history) - 1, met, gain, max_iter)
            ended = _told(callbacks, iteration) or stop(met, abs(gain))
            between(State(params, params, history, len(history), 0.0, ended))
    except KeyboardInterrupt:
        if not history:
            raise
        interrupted = True
    n_iter = len(history)
    last = abs(objective.improvement(*history[-2:])) if n_iter > 1 else math.inf
    converged = not interrupted and n_iter > 0 and stop(history[-1], last)
    try:
        history = [*history, evaluate(params)]
    except KeyboardInterrupt:
        if not history:
            raise
        history, interrupted = [*history, history[-1]], True
    return Result(params, history, n_iter, converged, interrupted)


def _told(callbacks: Iterable[Callback], iteration: Iteration) -> bool:
    """Whether any callback asks to end; all of them hear of the iteration."""
    return any([callback(iteration) is True for callback in callbacks])


def best_start(
    step: Callable[[Params], Step[Params]],
    starts: Iterable[Params],
    *,
    n_steps: int,
    stop: StopRule,
    objective: Objective = LOG_LIKELIHOOD,
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
                end = run(step, start, max_iter=n_done, stop=stop, objective=objective)
                ends.append(end)
                if end.interrupted:
                    return best_first([*last_round, *ends], objective)[0].params, True
            ends = best_first(ends, objective)[: -(-len(ends) // 2)]
            if len(ends) == 1:
                return ends[0].params, False
            survivors = [end.state() for end in ends]
    except KeyboardInterrupt:
        if not (found := [*last_round, *ends]):
            raise
        return best_first(found, objective)[0].params, True


def best_first(
    ends: Iterable[Result[Params]],
    objective: Objective,
    clean: Callable[[Params], bool] = lambda params: True,
) -> list[Result[Params]]:
    """The best first, and among equals the first found: their last digits must not decide.

    Runs that end at parameters which are not `clean` come after all others.
    """

    def order(a: tuple[bool, Result[Params]], b: tuple[bool, Result[Params]]) -> int:
        if a[0] != b[0]:
            return -1 if a[0] else 1
        if objective.better(a[1].history[-1], b[1].history[-1]):
            return -1
        return 1 if objective.better(b[1].history[-1], a[1].history[-1]) else 0

    return [end for _, end in sorted(((clean(end.params), end) for end in ends), key=cmp_to_key(order))]
