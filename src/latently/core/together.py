"""Runs from several starts that share passes over the rows.

`em_steps` makes the steps of all runs at once from a kernel whose parameters can be stacked; the next
parameters of all are computed when those of the first are asked for. `squarem_steps` of core/squarem.py makes
longer steps of them, each run with its own extrapolation; `run_together` takes steps until all have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Protocol, TypeVar

from latently.backend.namespace import to_numpy
from latently.core.drivers import (
    Objective,
    Prepared,
    Result,
    State,
    Step,
    StopRule,
    advanced,
    interrupted_at,
    soon,
)

Params = TypeVar("Params")
Steps = Callable[[Sequence[Params]], list[Step[Params]]]


class Stackable(Protocol):
    """How the parameters of several runs become those of one kernel."""

    def stacked(self, n_runs: int) -> Any:
        """The kernel; its log-likelihoods, `log_priors` and `roundings` are those of the runs."""

    def stack(self, params: Sequence[Any]) -> Any: ...

    def unstack(self, params: Any, n_runs: int) -> list[Any]: ...


def em_steps(runs: Stackable, sweep: Any, at_once: int, alone: Callable[[Any], Step[Any]]) -> Steps[Any]:
    """EM steps over the rows of a sweep, of up to `at_once` runs at once; `alone` is the step of one.

    The last steps are remembered: runs that continue ask for them again.
    """
    recent: list[tuple[Any, Step[Any]]] = []
    joined = _Joined(runs, sweep)

    def steps(params: Sequence[Any]) -> list[Step[Any]]:
        taken = {id(one): step for one, step in recent}
        if all(id(one) in taken for one in params):
            return [taken[id(one)] for one in params]
        recent.clear()  # before memory is needed for others
        n_groups = -(-len(params) // at_once)
        bounds = [len(params) * i // n_groups for i in range(n_groups + 1)]
        groups = [params[a:b] for a, b in pairwise(bounds)]
        found = [
            step
            for group in groups
            for step in ([alone(group[0])] if len(group) == 1 else joined.steps(group))
        ]
        recent.extend(zip(params, found, strict=True))
        return found

    return steps


class _Joined:
    """The steps of several runs as one; parameters that were joined before need not be joined again."""

    def __init__(self, runs: Stackable, sweep: Any) -> None:
        self.runs, self.sweep = runs, sweep
        self.prepared = Prepared()
        self.last: list[tuple[list[Any], Any]] = []  # parameters of runs, and as one

    def steps(self, params: Sequence[Any]) -> list[Step[Any]]:
        n_runs = len(params)
        kernel, joined = self.runs.stacked(n_runs), self._stacked(params)
        density = self.prepared(kernel, joined)
        stats = kernel.stats(density, self.sweep.sum(kernel.e_step, density))
        together = soon(stats.total_weight, lambda: kernel.canonical(kernel.m_step(stats, joined)))
        self.prepared.ahead(kernel, stats.total_weight, together)
        following = cache(lambda: self._apart(together(), n_runs))
        objectives = to_numpy((stats.log_likelihood + kernel.log_priors(joined)) / stats.total_weight)
        return [
            Step(float(objectives[i]), rounding, lambda i=i: following()[i])  # type: ignore[misc]
            for i, rounding in enumerate(kernel.roundings(density))
        ]

    def _stacked(self, params: Sequence[Any]) -> Any:
        for apart, joined in self.last:
            if len(apart) == len(params) and all(a is b for a, b in zip(apart, params, strict=True)):
                return joined
        return self.runs.stack(params)

    def _apart(self, joined: Any, n_runs: int) -> list[Any]:
        found = self.runs.unstack(joined, n_runs)
        self.last = [(found, joined), *self.last[:1]]
        return found


def run_together(
    steps: Steps[Params],
    starts: Sequence[State[Params]],
    *,
    n_steps: int,
    stop: StopRule,
    objective: Objective,
) -> list[Result[Params]]:
    """Every run takes `n_steps` steps at most, as `drivers.run` would take them; the results in order.

    If the user interrupts, all runs end, and those without any evaluation are left out.
    """
    at: list[State[Params] | Result[Params]] = list(starts)
    limits = [state.n_iter + n_steps for state in starts]
    while going := [i for i, one in enumerate(at) if isinstance(one, State)]:
        states = {i: one for i in going if isinstance(one := at[i], State)}
        try:
            taken = steps([state.params for state in states.values()])
            for (i, state), step in zip(states.items(), taken, strict=True):
                there = advanced(state, step, max_iter=limits[i], stop=stop, objective=objective)
                at[i] = there
                if isinstance(there, Result) and there.interrupted:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            if all(isinstance(one, State) and not one.history for one in at):
                raise
            at = [interrupted_at(one) if isinstance(one, State) and one.history else one for one in at]
            return [one for one in at if isinstance(one, Result)]
    return [one for one in at if isinstance(one, Result)]
