"""Softmax regression on features u = f(s), with an L1 penalty and with or without the constraint W, w0 >= 0.

    minimise over W, w0     sum_n weight_n [ln sum_c exp v_nc - v_n,c(n)] + gamma |W|,      v = W u + w0

n rows, r features, C classes: W (C, r), w0 (C,), and W~ = [W, w0] on u~ = [u, 1]. It is convex. A Newton step
minimises the second-order model with the penalty and the constraint, a small problem of `convex_rows`, and goes half
as far while the cost would rise. The model has the whole Hessian, (C (r + 1))^2, O(n C^2 r^2) for a step, or only
its C blocks of classes, O(n C r^2), whose steps are quicker and more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from latently.backend.namespace import Array, eye, namespace, ones, zeros
from latently.core.block import Block
from latently.distributions.convex_rows import Rows, Shape, cross_entropy, minimised
from latently.distributions.mappings import Mapping
from latently.distributions.nonlinear import Layer, powered, steepest, targets_of

_HALVINGS = 40
_RIDGE = 1e-10  # classes share a direction along which the cost does not change
_SOLVED = 1e-13


@dataclass(frozen=True)
class SoftmaxSums:
    """Sums over rows with labels, each counted with its weight."""

    entropy: Array  # ()
    slope: Array  # (C, r + 1)
    curvature: Array | None  # (C, r + 1, r + 1), or (C (r + 1), C (r + 1))


@dataclass(frozen=True)
class Regression:
    """Softmax regression on rows of sources, which a sweep passes as `Block.X`."""

    mapping: Mapping
    gamma: float
    positive: bool

    def cost(self, sweep: Any, layer: Layer) -> float:
        """Cross-entropy and penalty."""
        return float(sweep.sum(entropy_of, self.mapping, layer)) + self.penalty(layer)

    def penalty(self, layer: Layer) -> float:
        return self.gamma * float(namespace(layer.coef).sum(namespace(layer.coef).abs(layer.coef)))

    def solved(self, sweep: Any, layer: Layer, most_steps: int = 200) -> Layer:
        """The minimum, from these coefficients."""
        for _ in range(most_steps):
            found, gain, cost = self._stepped(sweep, layer, whole=True)
            layer = found
            if gain <= _SOLVED * cost:
                break
        return layer

    def stepped(self, sweep: Any, layer: Layer) -> Layer:
        """One Newton step with the blocks of the Hessian."""
        return self._stepped(sweep, layer, whole=False)[0]

    def _stepped(self, sweep: Any, layer: Layer, whole: bool) -> tuple[Layer, float, float]:
        """Coefficients after a step, what it gained, and the cost before."""
        sums = sweep.sum(of_rows, self.mapping, layer, whole)
        at = joined(layer)
        before = float(sums.entropy) + self.penalty(layer)
        goal = self._minimum_of_model(sums, at)
        for halving in range(_HALVINGS):
            there = parted(at + 0.5**halving * (goal - at), layer)
            after = self.cost(sweep, there)
            if after <= before:
                return there, before - after, before
        return layer, 0.0, before

    def _minimum_of_model(self, sums: SoftmaxSums, at: Array) -> Array:
        """(C, r + 1) the minimum of the second-order model with penalty and constraint."""
        xp, (C, m) = namespace(at), at.shape
        curvature: Any = sums.curvature
        n_rows = C if curvature.ndim == 3 else 1
        H = xp.reshape(curvature, (n_rows, -1, C * m // n_rows))
        size = xp.sum(xp.linalg.diagonal(H)) / (C * m)
        H = H + (_RIDGE * size + 1e-300) * eye(H.shape[-1], at)
        start = xp.reshape(at, (n_rows, -1))
        pull = (H @ start[:, :, None])[:, :, 0] - xp.reshape(sums.slope, (n_rows, -1))
        of_class = xp.concat([ones((m - 1,), at), zeros((1,), at)])
        penalty = self.gamma * xp.reshape(xp.zeros_like(at) + of_class, (n_rows, -1))[0, :]
        lower = 0.0 if self.positive else -float("inf")
        shape = Shape(penalty=penalty, penalised=self.gamma > 0, signed=not self.positive, lower=lower)
        level = xp.zeros_like(start[:, 0]) + xp.abs(sums.entropy)
        found = minimised(Rows(shape, H, None, pull, level), start, tolerance=1e-12)
        return xp.reshape(found, (C, m))

    def multiplied(self, sweep: Any, layer: Layer, exponent: float) -> Layer:
        """The multiplicative step W~ [T'U~ / (P'U~ + gamma)]^exponent, without gamma for w0."""
        above, below = sweep.sum(of_targets, self.mapping, layer).parts()
        xp = namespace(below)
        below = below + self.gamma * xp.concat([ones((below.shape[1] - 1,), below), zeros((1,), below)])
        return parted(joined(layer) * powered(above, below, exponent), layer)

    def descended(self, sweep: Any, layer: Layer, rate: float) -> Layer:
        """A step along the gradient."""
        above, below = sweep.sum(of_targets, self.mapping, layer).parts()
        slope = below - above
        xp = namespace(slope)
        slope = xp.concat([steepest(slope[:, :-1], layer.coef, self.gamma), slope[:, -1:]], axis=1)
        return parted(joined(layer) - rate * slope, layer)


def joined(layer: Layer) -> Array:
    """(C, r + 1): coefficients and intercept."""
    xp = namespace(layer.coef)
    return xp.concat([layer.coef, layer.intercept[:, None]], axis=1)


def parted(coefficients: Array, layer: Layer) -> Layer:
    return Layer(layer.components, layer.offset, coefficients[:, :-1], coefficients[:, -1])


# -- functions of blocks, whose rows are sources ------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """Sums of u~ over rows with labels: by their class, and by their probability of each class."""

    own: Array  # (C, r + 1): T'U~
    expected: Array  # (C, r + 1): P'U~

    def parts(self) -> tuple[Array, Array]:
        return self.own, self.expected


def _of_block(mapping: Mapping, layer: Layer, block: Block) -> tuple[Array, Array, Array, Array]:
    """u~ (n, r + 1), targets (n, C), cross-entropies (n,) and probabilities, zero for rows without label."""
    F = mapping.value(block.X)
    xp, targets = namespace(F), targets_of(layer, block)
    entropy, P = cross_entropy(layer.coef, layer.intercept, targets, F)
    P = P * xp.sum(targets, axis=1)[:, None]
    if block.weight is not None:
        entropy = entropy * block.weight
        targets, P = targets * block.weight[:, None], P
    return xp.concat([F, ones((F.shape[0], 1), F)], axis=1), targets, entropy, P


def entropy_of(mapping: Mapping, layer: Layer, block: Block) -> Array:
    """(): the cross-entropy of the labels."""
    xp = namespace(block.X)
    entropy = cross_entropy(layer.coef, layer.intercept, targets_of(layer, block), mapping.value(block.X))[0]
    return xp.sum(entropy if block.weight is None else entropy * block.weight)


def of_targets(mapping: Mapping, layer: Layer, block: Block) -> Expected:
    U, targets, _, P = _of_block(mapping, layer, block)
    if block.weight is not None:
        P = P * block.weight[:, None]
    return Expected(targets.T @ U, P.T @ U)


def of_rows(mapping: Mapping, layer: Layer, whole: bool, block: Block) -> SoftmaxSums:
    U, targets, entropy, P = _of_block(mapping, layer, block)
    xp = namespace(U)
    weighted = P if block.weight is None else P * block.weight[:, None]
    slope = (weighted - targets).T @ U
    C, m = slope.shape
    if not whole:
        spread = weighted * (1.0 - P)
        blocks = xp.stack([(U * spread[:, c][:, None]).T @ U for c in range(C)])
        return SoftmaxSums(xp.sum(entropy), slope, blocks)
    grid = []
    for c in range(C):
        others = -weighted[:, c][:, None] * P
        own = xp.arange(C) == c
        own = xp.astype(own, U.dtype)
        spread = others + weighted[:, c][:, None] * own  # (n, C)
        mixed = xp.reshape(spread[:, :, None] * U[:, None, :], (U.shape[0], C * m))
        grid.append(U.T @ mixed)
    return SoftmaxSums(xp.sum(entropy), slope, xp.concat(grid))
