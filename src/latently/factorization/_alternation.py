"""Activations and components in turn: how the iterates of a non-negative factorisation move.

A sweep over the rows is a step of the activations and the sums they leave; the components follow from these.
No step leads up: one that was carried too far is taken again as it would have been without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latently.backend.namespace import like, namespace, to_numpy, zeros
from latently.backend.placement import one_blas_thread
from latently.core.drivers import Step
from latently.core.tree import add
from latently.factorization._nonnegative import Codebook, Divergence, How, Penalty, SquaredError

# Ang & Gillis (2019), Neural Computation 31, for the extrapolation; a multiplicative step of exponent 2 and
# more may have no end.
_GROWTH, _GROWTH_OF_LIMIT, _SHRINKAGE = 1.05, 1.01, 1.5
_FIRST_MOMENTUM = 0.5
_LARGEST_EXPONENT, _GROWTH_OF_EXPONENT = 1.95, 1.1
_PASSES = 3  # over the coordinates, with acceleration
_MANY, _PASSES_OF_MANY = 64, 2  # components, for which a pass takes longer beside the wide products
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Place:
    """Components and activations, what they cost, and how the way to them was."""

    components: Any  # (r, D), float64
    data: Any  # the rows, whose states are the activations
    cost: float
    onward: Any  # (r, D): components from which the next sweep starts
    before: Any  # (r, D): components of the sweep before, as they were without extrapolation
    speed: float  # momentum, or the exponent of multiplicative updates
    limit: float = 1.0
    earlier_speed: float = _FIRST_MOMENTUM
    ahead: Any = None  # what a sweep from here has found, if it had to be made to know the cost


class Alternation:
    """Sweeps over rows for one loss; `penalty` is that of the components."""

    def __init__(
        self,
        loss: Any,
        penalty: Penalty,
        *,
        sweep_of: Callable[[Any], Any],
        dtype: str,
        constant: float,
        scale: float,
        accelerate: bool,
    ):
        self.loss = loss
        self.penalty = penalty
        self.sweep_of = sweep_of
        self.dtype = dtype  # of products with rows
        self.constant = constant  # what the loss takes from the rows alone
        self.scale = scale  # the objective is minus the cost divided by it
        self.accelerate = accelerate
        self.n_passes = 0

    @property
    def _descends(self) -> bool:
        return isinstance(self.loss, SquaredError) and self.loss.solver == "hals"

    def start(self, components: Any, data: Any, activations: Any = None) -> Place:
        """Before the first sweep; activations are worked out in it if there are none yet."""
        if activations is None:
            data = data.with_state(zeros((data.count_rows(), 0), components))
        else:
            twice = self._descends and self.accelerate
            xp = namespace(activations)
            data = data.with_state(xp.concat([activations, activations], axis=1) if twice else activations)
        place = Place(components, data, np.inf, components, components, self._slowest())
        standing = How(n_passes=0, exponent=0.0, momentum=0.0 if self._descends and self.accelerate else None)
        if self._penalised():  # else the scale at which components start would decide what is penalised away
            sums, data = self._swept(components, data, standing, replace(self.loss, penalty=Penalty()))
            place = self._balanced(replace(place, data=data), sums)
        elif activations is None and self._descends:  # all zero
            return replace(place, cost=self.constant)
        if isinstance(self.loss, Divergence):
            return self._looked_ahead(place, 1.0)
        sums, data = self._swept(place.components, place.data, standing)
        cost = self.loss.cost(sums, place.components, self.penalty, self.constant)
        return replace(place, data=data, cost=cost)

    def step(self, place: Place) -> Step[Place]:
        rounding = 64 * self._eps() * (1.0 + abs(self.constant) / self.scale)
        return Step(-place.cost / self.scale, rounding, lambda: self._following(place))

    def _eps(self) -> float:
        return _EPS if self.dtype == "float64" else float(np.finfo(np.float32).eps)

    def _slowest(self) -> float:
        return _FIRST_MOMENTUM if self._descends else 1.0

    def _following(self, place: Place) -> Place:
        if isinstance(self.loss, Divergence):
            return self._following_ahead(place)
        if not self.accelerate:
            return self._stepped(place, How())
        if not self._descends:
            tried = self._stepped(place, How(exponent=place.speed))
            if tried.cost <= place.cost:
                return replace(tried, speed=self._faster(place.speed))
            return self._stepped(replace(place, speed=1.0), How())
        n_passes = _PASSES if place.components.shape[0] < _MANY else _PASSES_OF_MANY
        tried = self._stepped(place, How(n_passes=n_passes, momentum=place.speed))
        if tried.cost <= place.cost:
            speed = min(place.limit, _GROWTH * place.speed)
            limit = min(1.0, _GROWTH_OF_LIMIT * place.limit)
            return replace(tried, speed=speed, limit=limit, earlier_speed=place.speed)
        resting = replace(place, onward=place.components, before=place.components)
        there = self._stepped(resting, How(n_passes=n_passes, momentum=0.0))
        return replace(there, speed=place.speed / _SHRINKAGE, limit=place.earlier_speed)

    @staticmethod
    def _faster(exponent: float) -> float:
        return min(_LARGEST_EXPONENT, _GROWTH_OF_EXPONENT * exponent)

    def _stepped(self, place: Place, how: How) -> Place:
        """Activations, then components."""
        sums, data = self._swept(place.onward, place.data, how)
        with one_blas_thread():  # others would go on spinning for a while where rows are to be worked on
            found = self.loss.components(sums, place.onward, self.penalty, how)
            cost = self.loss.cost(sums, found, self.penalty, self.constant)
        onward = found
        if how.momentum:
            onward = namespace(found).clip(found + how.momentum * (found - place.before), min=0.0)
        there = replace(place, components=found, data=data, cost=cost, onward=onward, before=found)
        return self._balanced(there, sums) if self._penalised() else there

    def _swept(self, components: Any, data: Any, how: How, loss: Any = None) -> tuple[Any, Any]:
        """The sums that a step of the activations leaves, and the rows with their new activations."""
        xp = namespace(components)
        with one_blas_thread():
            codebook = Codebook.of(xp.astype(components, getattr(xp, self.dtype), copy=False))
        self.n_passes += 1
        sums, states = self.sweep_of(data).reduce((loss or self.loss).rows, _joined, codebook, how)
        return sums, data.with_state(states[0] if len(states) == 1 else namespace(states[0]).concat(states))

    # -- the divergence, whose cost is known only when the next sweep has made its ratios -------------------

    def _looked_ahead(self, place: Place, exponent: float) -> Place:
        sums, data = self._swept(place.components, place.data, How(exponent=exponent))
        xp = namespace(place.components)
        cost = self.constant + float(sums.cost)
        cost += self.penalty.cost(xp.sum(place.components), xp.sum(place.components**2))
        return replace(place, cost=cost, speed=exponent, ahead=(sums, data))

    def _following_ahead(self, place: Place) -> Place:
        speed = self._faster(place.speed) if self.accelerate else 1.0
        tried = self._looked_ahead(self._moved(place), speed)
        if tried.cost <= place.cost or place.speed == 1.0:
            return tried
        again = self._looked_ahead(replace(place, ahead=None), 1.0)
        return self._looked_ahead(self._moved(again), 1.0)

    def _moved(self, place: Place) -> Place:
        sums, data = place.ahead
        found = self.loss.components(sums, place.components, self.penalty, How(exponent=place.speed))
        there = replace(place, components=found, onward=found, before=found, data=data, ahead=None)
        return self._balanced(there, sums) if self._penalised() else there

    # -- penalties, which take the freedom of scale from the factors ----------------------------------------

    def _penalised(self) -> bool:
        parts = (self.loss.penalty, self.penalty)
        return all(part.l1 > 0 or part.l2 > 0 for part in parts)

    def _balanced(self, place: Place, sums: Any) -> Place:
        """The same product, its scale shared between the factors so that penalties are least."""
        xp, A = namespace(place.components), place.components
        ours = [to_numpy(array) for array in (sums.total, sums.square)]
        theirs = [to_numpy(xp.sum(A, axis=1)), to_numpy(xp.sum(A * A, axis=1))]
        linear, square = self.loss.penalty.l1 * ours[0], self.loss.penalty.l2 * ours[1]
        inverse, inverse_square = self.penalty.l1 * theirs[0], self.penalty.l2 * theirs[1]
        factor = _cheapest_scale(linear, square, inverse, inverse_square)

        def cost(c: Any) -> float:
            return float(np.sum(linear * c + 0.5 * square * c**2 + inverse / c + 0.5 * inverse_square / c**2))

        gain = cost(np.ones_like(factor)) - cost(factor)
        if not gain > 0:
            return place
        by = like(factor, A)
        state = place.data.state
        scale = like(np.tile(factor, state.shape[1] // len(factor)), state)
        data = place.data.with_state(state * namespace(state).astype(scale, state.dtype))
        return replace(
            place,
            components=A / by[:, None],
            onward=place.onward / by[:, None],
            before=place.before / by[:, None],
            data=data,
            cost=place.cost - gain,
        )


def _joined(a: Any, b: Any) -> Any:
    return add(a[0], b[0]), a[1] + b[1]


def _cheapest_scale(linear: Any, square: Any, inverse: Any, inverse_square: Any) -> Any:
    """The c > 0 that minimises linear c + square c^2/2 + inverse/c + inverse_square/c^2/2, or 1.

    By Newton's method in ln c, in which the function is convex.
    """
    found = (linear + square > 0) & (inverse + inverse_square > 0)
    t = np.zeros_like(linear)
    for _ in range(50):
        up, down = linear * np.exp(t), inverse * np.exp(-t)
        up2, down2 = square * np.exp(2 * t), inverse_square * np.exp(-2 * t)
        slope, curvature = up - down + up2 - down2, up + down + 2 * (up2 + down2)
        t = t - np.where(found, np.clip(slope / np.where(found, curvature, 1.0), -2.0, 2.0), 0.0)
    return np.exp(t)
