"""A non-negative factorisation as an alternation: activations over a sweep, then components.

    cost = loss(X, S A) + penalty on S + penalty on A

N rows, D features, r components. The state of a row is its activations, (N, r), followed with momentum by
those of the previous step, (N, 2 r); there is no state before the first sweep.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from latently.backend.namespace import contiguous, is_sparse, like, namespace, to_numpy, zeros
from latently.backend.placement import one_blas_thread
from latently.core.alternation import (
    FIRST_MOMENTUM,
    Alternating,
    Point,
    adaptive_exponents,
    alternation,
    each_state,
    extrapolation,
    swept,
)
from latently.core.checkpoint import Maybe
from latently.core.drivers import Passes
from latently.distributions.nonnegative import Codebook, How, Loss, Penalty


@dataclass(frozen=True)
class NonnegativeSweeps(Alternating):
    """Sweeps over the rows of a fit."""

    loss: Loss
    penalty: Penalty  # on components
    data: Any  # core.data.Data, or its counterpart for Dask
    n_components: int
    dtype: str  # of products with rows
    constant: float  # the part of the cost that depends on the rows alone
    scale: float  # the order of magnitude of the cost
    floats_per_row: int
    block_size: int | None
    accelerate: bool
    passes: Passes = field(default_factory=Passes)

    @property
    def step(self) -> Any:
        step = alternation(self)
        if not self.accelerate:
            return step
        return extrapolation(step) if self.loss.descends else adaptive_exponents(step)

    def over(self, data: Any) -> Any:
        """Passes over the rows without states."""
        return data.sweep(None, floats_per_row=self.floats_per_row, block_size=self.block_size)

    def start(self, components: Any, activations: Any = None) -> Point:
        """The starting point; activations are computed in the first step if they are not given."""
        if activations is not None and self._has_momentum:
            activations = namespace(activations).concat([activations, activations], axis=1)
        speed = FIRST_MOMENTUM if self._has_momentum else 1.0
        point = Point(components, activations, speed=speed)
        if (
            self._penalised
        ):  # otherwise the scale of the starting components would determine what is penalised to zero
            free = replace(self.loss, penalty=Penalty())  # type: ignore[type-var]
            sums, state = self._swept(components, activations, self._standing, free)
            point = self.canonical(replace(point, state=state), sums)
        if self.loss.evaluates_start:
            return point
        if point.state is None and self.loss.descends:  # from zero
            return replace(point, cost=self.constant)
        sums, state = self._swept(point.shared, point.state, self._standing)
        return replace(point, state=state, cost=self.cost(sums, point.shared))

    def example(self) -> Point:
        """A point of the right shapes, for reading a checkpoint."""
        r, n_columns = self.n_components, self.n_components * (2 if self._has_momentum else 1)
        components = zeros((r, self.data.n_features), self._place)
        state = zeros((self._n_rows, n_columns), self._place)
        state = namespace(state).astype(state, self._float(state), copy=False)
        cost = None if self.loss.evaluates_start else 0.0
        return Point(components, Maybe(state), cost, onward=Maybe(components))

    # -- the interface of Alternating -------------------------------------------------------------------

    @property
    def evaluates_start(self) -> bool:
        return self.loss.evaluates_start

    @property
    def rounding(self) -> float:
        return 64 * float(np.finfo(self.dtype).eps) * (self.scale + abs(self.constant))

    def sweep(self, shared: Any, state: Any, speed: float) -> tuple[Any, Any]:
        return self._swept(shared, state, self._how(speed))

    def update(self, sums: Any, shared: Any, speed: float) -> Any:
        with one_blas_thread():  # idle threads would keep spinning while rows are processed
            return self.loss.components(sums, shared, self.penalty, self._how(speed))

    def cost(self, sums: Any, shared: Any) -> float:
        with one_blas_thread():
            return self.loss.cost(sums, shared, self.penalty, self.constant)

    def onward(self, before: Any, found: Any, speed: float) -> Any:
        momentum = self._how(speed).momentum
        if not momentum:
            return None
        return namespace(found).clip(found + momentum * (found - before), min=0.0)

    def canonical(self, point: Point, sums: Any) -> Point:
        """The same product, rescaled between the factors to minimise the penalties."""
        return self._balanced(point, sums) if self._penalised else point

    def penalties(self, point: Point) -> float:
        """The penalty terms of the cost at a point."""
        A = point.shared
        xp = namespace(A)
        added = self.penalty.cost(xp.sum(A), xp.sum(A * A))
        if self.loss.penalty:
            sums = self.over(self._with(point.state)).sum(_sizes, self.n_components)
            added += self.loss.penalty.cost(sums[0], sums[1])
        return added

    # -- sweeps -----------------------------------------------------------------------------------------

    @property
    def _has_momentum(self) -> bool:
        return self.accelerate and self.loss.descends

    @property
    def _penalised(self) -> bool:
        return bool(self.loss.penalty) and bool(self.penalty)

    @property
    def _standing(self) -> How:
        """A step that leaves activations unchanged, unless they are zero."""
        return replace(self._how(0.0), n_passes=0, exponent=0.0)

    def _how(self, speed: float) -> How:
        return self.loss.how(speed, self.n_components) if self.accelerate else How()

    def _swept(self, components: Any, state: Any, how: How, loss: Loss | None = None) -> tuple[Any, Any]:
        xp = namespace(components)
        with one_blas_thread():
            codebook = Codebook.of(xp.astype(components, self._float(components), copy=False))
        self.passes.count += 1
        return swept(self.over(self._with(state)), (loss or self.loss).rows, codebook, how)

    def _with(self, state: Any) -> Any:
        """The rows with their states, if there are any yet."""
        state = zeros((self._n_rows, 0), self._place) if state is None else state
        return self.data.with_field("state", state)

    @cached_property
    def _n_rows(self) -> int:
        return self.data.count_rows()

    @cached_property
    def _place(self) -> Any:
        return place_of(self.data)

    def _float(self, array: Any) -> Any:
        return getattr(namespace(array), self.dtype)

    def _balanced(self, point: Point, sums: Any) -> Point:
        A = point.shared
        xp = namespace(A)
        ours = [to_numpy(array) for array in (sums.total, sums.square)]
        theirs = [to_numpy(xp.sum(A, axis=1)), to_numpy(xp.sum(A * A, axis=1))]
        linear, square = self.loss.penalty.l1 * ours[0], self.loss.penalty.l2 * ours[1]
        inverse, inverse_square = self.penalty.l1 * theirs[0], self.penalty.l2 * theirs[1]
        factor = cheapest_scale(linear, square, inverse, inverse_square)
        factor[: self.loss.n_fixed] = 1.0

        def cost(c: Any) -> float:
            return float(np.sum(linear * c + 0.5 * square * c**2 + inverse / c + 0.5 * inverse_square / c**2))

        gain = cost(np.ones_like(factor)) - cost(factor)
        if not gain > 0:
            return point
        by = like(factor, A)[:, None]
        return replace(
            point,
            shared=A / by,
            state=each_state(_rescaled, point.state, factor),
            cost=None if point.cost is None else point.cost - gain,
            onward=None if point.onward is None else point.onward / by,
        )


def place_of(data: Any) -> Any:
    """An array on the device of the rows."""
    return data.X if data.in_memory and not is_sparse(data.X) else np.zeros(0)


def cheapest_scale(linear: Any, square: Any, inverse: Any, inverse_square: Any) -> Any:
    """The c > 0 that minimises linear c + square c^2/2 + inverse/c + inverse_square/c^2/2, or 1.

    By Newton's method in ln c, where the function is convex.
    """
    found = (linear + square > 0) & (inverse + inverse_square > 0)
    t = np.zeros_like(linear)
    for _ in range(50):
        up, down = linear * np.exp(t), inverse * np.exp(-t)
        up2, down2 = square * np.exp(2 * t), inverse_square * np.exp(-2 * t)
        slope, curvature = up - down + up2 - down2, up + down + 2 * (up2 + down2)
        t = t - np.where(found, np.clip(slope / np.where(found, curvature, 1.0), -2.0, 2.0), 0.0)
    return np.exp(t)


def _rescaled(state: Any, factor: Any) -> Any:
    """Activations, and those of the previous step if they follow, times a factor (r,)."""
    scale = like(np.tile(factor, state.shape[1] // len(factor)), state)
    return state * namespace(state).astype(scale, state.dtype)


def _sizes(r: int, block: Any) -> Any:
    """Sums of the activations and of their squares, (2,)."""
    S = contiguous(block.state[:, :r])  # so that the order of summation is fixed
    xp = namespace(S)
    counted = S if block.weight is None else S * block.weight[:, None]
    return xp.stack([xp.sum(counted), xp.sum(counted * S)])
