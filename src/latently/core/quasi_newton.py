"""Quasi-Newton steps on an objective with an L1 penalty and bounds, which never raise it.

    minimise over x     g(x) + sum_i penalty_i |x_i| >= 0,      x_i >= 0 where `positive`

g is smooth; p numbers x. The limited-memory BFGS direction of the gradient that counts at kinks and bounds,
taken only where it agrees with that gradient in sign, is followed within the orthant, half as far until the
objective falls. Where the slope promises far more than the whole objective, as beside a jump of g, the first
trial is accordingly shorter. Andrew & Gao (2007), ICML.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import Floats
from latently.core.drivers import Step

_MEMORY = 10  # pairs of steps and changes of the gradient
_HALVINGS = 25
_ARMIJO = 1e-4
_MOST_PROMISED = 1e3  # times the objective: a Newton step to a minimum >= 0 promises at most two

# g, its gradient and a state, from which g nearby is found: where g has several values, the one next to it
Evaluate = Callable[[Floats, Any], tuple[float, Floats, Any]]


@dataclass(frozen=True)
class Walk:
    """Where a descent stands, with what it remembers of its way."""

    at: Floats  # (p,)
    value: float  # the objective
    gradient: Floats  # (p,): of g
    steps: Floats  # (m, p)
    changes: Floats  # (m, p): of the gradient
    state: Any = None
    stuck: bool = False  # whether the objective falls in no direction that was tried


@dataclass(frozen=True)
class Descent:
    """The problem, and how to take a step."""

    evaluate: Evaluate
    penalty: Floats  # (p,)
    positive: NDArray[np.bool_]  # (p,)
    scale: Floats  # (p,): the inverse of a typical curvature

    def start(self, at: Floats, state: Any = None) -> Walk:
        value, gradient, state = self.evaluate(at, state)
        nothing = np.zeros((0, len(at)))
        return Walk(at, value + self._penalties(at), gradient, nothing, nothing, state)

    def step(self, walk: Walk) -> Step[Walk]:
        return Step(walk.value, 1e-9 * abs(walk.value), lambda: self._onward(walk))

    def promised(self, walk: Walk) -> float:
        """What the slope and typical curvatures let expect of further steps."""
        slope = self._slope(walk.at, walk.gradient)
        return 0.5 * float(slope @ (self.scale * slope))

    def _penalties(self, at: Floats) -> float:
        return float(self.penalty @ np.abs(at))

    def _onward(self, walk: Walk) -> Walk:
        if walk.stuck:
            return walk
        slope = self._slope(walk.at, walk.gradient)
        direction = -self._times_inverse_curvature(walk, slope)
        direction = np.where(direction * slope < 0, direction, 0.0)
        if not direction.any():
            return walk
        there = self._searched(walk, direction, slope)
        if there is None and len(walk.steps):  # what is remembered misleads
            forgetful = replace(walk, steps=walk.steps[:0], changes=walk.changes[:0])
            there = self._searched(forgetful, -self.scale * slope, slope)
        return replace(walk, stuck=True) if there is None else there

    def _searched(self, walk: Walk, direction: Floats, slope: Floats) -> Walk | None:
        """Along the direction within the orthant; None if the objective falls nowhere."""
        orthant = np.where(walk.at != 0, np.sign(walk.at), -np.sign(slope))
        length = min(1.0, _MOST_PROMISED * walk.value / -float(slope @ direction))
        for _ in range(_HALVINGS):
            there = walk.at + length * direction
            there = np.where((self.penalty > 0) & (there * orthant < 0), 0.0, there)
            there = np.where(self.positive, np.maximum(there, 0.0), there)
            value, gradient, state = self.evaluate(there, walk.state)
            value += self._penalties(there)
            if value <= walk.value + _ARMIJO * float(slope @ (there - walk.at)) and value < walk.value:
                return self._remembered(walk, Walk(there, value, gradient, walk.steps, walk.changes, state))
            length *= 0.5
        return None

    def _remembered(self, before: Walk, after: Walk) -> Walk:
        step, change = after.at - before.at, after.gradient - before.gradient
        if float(step @ change) <= 1e-10 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            return after
        steps = np.vstack([after.steps, step])[-_MEMORY:]
        return replace(after, steps=steps, changes=np.vstack([after.changes, change])[-_MEMORY:])

    def _slope(self, at: Floats, gradient: Floats) -> Floats:
        """The gradient of the objective; the smallest subgradient at kinks, and zero where a bound holds."""
        shrunk = np.sign(gradient) * np.maximum(np.abs(gradient) - self.penalty, 0.0)
        slope = np.where(at == 0, shrunk, gradient + self.penalty * np.sign(at))
        return np.where(self.positive & (at <= 0), np.minimum(gradient + self.penalty, 0.0), slope)

    def _times_inverse_curvature(self, walk: Walk, slope: Floats) -> Floats:
        """The two loops of Nocedal (1980), in units in which `scale` is one."""
        q, root = np.sqrt(self.scale) * slope, np.sqrt(self.scale)
        S, Y = walk.steps / root, walk.changes * root
        inner = [1.0 / float(s @ y) for s, y in zip(S, Y, strict=True)]
        share = []
        for s, y, rho in reversed(list(zip(S, Y, inner, strict=True))):
            share.append(rho * float(s @ q))
            q = q - share[-1] * y
        if len(S):
            q = q * (float(S[-1] @ Y[-1]) / float(Y[-1] @ Y[-1]))
        for s, y, rho, a in zip(S, Y, inner, reversed(share), strict=True):
            q = q + s * (a - rho * float(y @ q))
        return root * q
