"""EM with candidates: each row has a few units that may be on, which are chosen anew now and then.

Between two choices a step is one of EM with the candidates fixed, over params alone. Candidates are chosen
anew every few iterations, and wherever the objective hardly improves any more, for rows to which that gives a
higher objective. A fit ends only where a new choice brings no more. A choice costs two passes over the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from latently.core.drivers import Passes, Step, StopRule
from latently.core.squarem import squarem
from latently.distributions.binary_causes import better_candidates
from latently.estimators.problem import Problem
from latently.estimators.rows import in_main_memory

_ROUND = 10  # iterations until candidates are chosen anew


@dataclass(frozen=True)
class WithCandidates:
    """Parameters, and the candidates of the rows."""

    params: Any
    allowed: Any  # (N, H) bool
    age: int = 0  # iterations since they were chosen
    last: float = -math.inf  # the objective one iteration before


@dataclass(frozen=True)
class Candidates:
    """How candidates are chosen, for the rows of a fit."""

    problem: Problem
    stop: StopRule
    accelerate: bool
    passes: Passes

    def start(self, params: Any) -> WithCandidates:
        return WithCandidates(params, self._chosen(params, None))

    def step(self) -> Callable[[WithCandidates], Step[WithCandidates]]:
        """The step of EM, with a new choice of candidates where one is due."""
        last: tuple[Any, Any] = None, None

        def em_step(here: WithCandidates) -> Step[Any]:
            nonlocal last
            if last[0] is not here.allowed:
                last = here.allowed, self._step_with(here.allowed)
            made: Step[Any] = last[1](here.params)
            return made

        def step(here: WithCandidates) -> Step[WithCandidates]:
            made = None if here.age >= _ROUND else em_step(here)
            due = made is None or self.stop(made.objective, made.objective - here.last)
            if due:
                here = replace(here, allowed=self._chosen(here.params, here.allowed), age=0)
                made = em_step(here)
            taken: Any = made

            def next_params() -> WithCandidates:
                return WithCandidates(taken.next_params(), here.allowed, here.age + 1, taken.objective)

            return Step(taken.objective, taken.rounding, next_params, may_stop=due)

        return step

    def _step_with(self, allowed: Any) -> Any:
        step = self.passes.counted(self._problem_with(allowed).step())
        return squarem(step, self.problem.kernel) if self.accelerate else step

    def _chosen(self, params: Any, allowed: Any) -> Any:
        """(N, H) bool: new candidates for the rows that gain by them."""
        problem = self._problem_with(allowed)
        density = problem.kernel.prepare(params)
        rows = problem.sweep().rows(better_candidates, problem.kernel, density)
        return in_main_memory(problem.data.collected(rows, None))

    def _problem_with(self, allowed: Any) -> Problem:
        return replace(self.problem, data=self.problem.data.with_field("allowed", allowed))
