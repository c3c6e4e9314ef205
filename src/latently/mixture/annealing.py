"""Annealing: starts take their first EM steps at a high temperature, which then falls to one.

With D features log densities of components differ by about D, so rows belong to one component almost surely
before much is known of it, and EM ends near its start. At temperature T responsibilities are those of
densities to the power 1 / T, and EM raises

    sum_n T ln sum_k (pi_k p(x_n | k))^(1/T)  +  log prior,

which has fewer maxima the higher T is (deterministic annealing EM: Ueda & Nakano, 1998).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latently.core.drivers import em_step
from latently.core.together import em_steps
from latently.distributions.stacked import Runs

_STEPS = 20
_NATS = 4.0  # that a difference of D nats counts at the first temperature


def temperatures(n_features: int) -> tuple[float, ...]:
    """Those of the steps, falling to one by equal factors."""
    return tuple(np.geomspace(n_features / _NATS, 1.0, _STEPS).tolist())


@dataclass(frozen=True)
class Annealing:
    """One EM step of each start at each temperature, over the rows of a sweep; `at_once` starts in a pass."""

    kernel: Any
    sweep: Any
    at_once: int
    temperatures: tuple[float, ...]

    def __call__(self, starts: list[Any]) -> list[Any]:
        for temperature in self.temperatures:
            starts = [step.next_params() for step in self._steps(temperature)(starts)]
        return starts

    def _steps(self, temperature: float) -> Callable[[list[Any]], list[Any]]:
        kernel = replace(self.kernel, temperature=temperature)
        return em_steps(Runs(kernel), self.sweep, self.at_once, em_step(kernel, self.sweep))
