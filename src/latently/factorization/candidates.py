"""EM with candidates: each row has a few units that may be on, selected again from time to time.

Between two selections candidates are fixed and EM updates the parameters alone. Candidates are selected again
every few iterations, and whenever the objective hardly improves, for rows whose objective increases. A fit
converges only if a new selection brings no improvement. A selection costs two passes over the rows.
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

_ROUND = 10  # iterations between two selections of candidates


@dataclass(frozen=True)
class WithCandidates:
    """Parameters, and the candidates of the rows."""

    params: Any
    allowed: Any  # (N, H) bool
    age: int = 0  # iterations since the last selection
    last: float = -math.inf  # the objective of the previous iteration


@dataclass(frozen=True)
class Candidates:
    """Selection of candidates for the rows of a fit."""

    problem: Problem
    stop: StopRule
    accelerate: bool
    passes: Passes

    def start(self, params: Any) -> WithCandidates:
        return WithCandidates(params, self._chosen(params, None))

    def step(self) -> Callable[[WithCandidates], Step[WithCandidates]]:
        """The EM step, with a new selection of candidates when one is due."""
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
        """(N, H) bool: new candidates for the rows whose objective increases."""
        problem = self._problem_with(allowed)
        density = problem.kernel.prepare(params)
        rows = problem.sweep().rows(better_candidates, problem.kernel, density)
        return in_main_memory(problem.data.collected(rows, None))

    def _problem_with(self, allowed: Any) -> Problem:
        return replace(self.problem, data=self.problem.data.with_field("allowed", allowed))
