"""Softmax regression on features u = f(s), with an L1 penalty and with or without the constraint W, w0 >= 0.

    minimise over W, w0     sum_n weight_n [ln sum_c exp v_nc - v_n,c(n)] + gamma |W|,      v = W u + w0

n rows, r features, C classes: W (C, r), w0 (C,), and W~ = [W, w0] on u~ = [u, 1]. It is convex. A Newton step
minimises the second-order model with the penalty and the constraint, a small problem of `convex_rows`, and
goes half as far while the cost would rise. The model has the whole Hessian, (C (r + 1))^2, O(n C^2 r^2) for a
step, or only its C blocks of classes, O(n C r^2), whose steps are quicker and more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from latently.backend.namespace import Array, device, eye, namespace, ones, zeros
from latently.core.block import Block
from latently.distributions.convex_rows import Rows, Shape, Softmax, cross_entropy, inverse_of, minimised
from latently.distributions.nonlinear import Layer, Terms, inside, powered, sources, steepest, targets_of

_HALVINGS = 40
_RIDGE = 1e-4  # classes share a direction along which the cross-entropy does not change, only the penalty
_SOLVED = 1e-13
_STEPS, _LITTLE = 8, 0.01  # most Newton steps of a sweep, and the relative gain after which no more follow
_INNER, _INNER_STEPS = 1e-3, 100  # how closely the model is minimised, relative to the last gain
_GROWTH, _SLOW = 1.3, 1e-7  # of steps in generation, and the relative gain below which they are too slow


@dataclass(frozen=True)
class SoftmaxSums:
    """Sums over rows with labels, each counted with its weight."""

    entropy: Array  # ()
    slope: Array  # (C, r + 1)
    curvature: Array | None  # (C, r + 1, r + 1), or (C (r + 1), C (r + 1))


@dataclass(frozen=True)
class Regression:
    """Softmax regression on rows of features f(s), which a sweep passes as `Block.X`."""

    gamma: float
    positive: bool

    def cost(self, sweep: Any, layer: Layer) -> float:
        """Cross-entropy and penalty."""
        return float(sweep.sum(entropy_of, layer)) + self.penalty(layer)

    def penalty(self, layer: Layer) -> float:
        return self.gamma * float(namespace(layer.coef).sum(namespace(layer.coef).abs(layer.coef)))

    def solved(self, sweep: Any, layer: Layer, most_steps: int = 200) -> Layer:
        """The minimum, from these coefficients."""
        tolerance = _INNER
        for _ in range(most_steps):
            sums = sweep.sum(of_rows, layer, True)
            layer, gain, cost = self._stepped(sweep, layer, sums, tolerance)
            if gain <= _SOLVED * cost and tolerance <= _SOLVED:
                break
            tolerance = max(_INNER * min(gain / max(cost, 1e-300), 1.0), 0.1 * _SOLVED)
        return layer

    def stepped(self, sweep: Any, layer: Layer, most_steps: int = _STEPS) -> Layer:
        """Newton steps with the blocks of the Hessian, one if it gains little.

        The cross-entropy may be a small part of a cost that stops falling while labels are hardly fitted.
        """
        sums = sweep.sum(of_rows, layer, False)
        for step in range(most_steps):
            layer, gain, cost = self._stepped(sweep, layer, sums, _INNER)
            if gain <= _LITTLE * cost or step + 1 == most_steps:
                break
            told = sweep.sum(of_targets, layer)  # of the next step; the Hessian, which costs more, is kept
            entropy = namespace(told.own).zeros_like(sums.entropy) + (cost - gain - self.penalty(layer))
            sums = replace(sums, entropy=entropy, slope=told.expected - told.own)
        return layer

    def _stepped(
        self, sweep: Any, layer: Layer, sums: SoftmaxSums, tolerance: float
    ) -> tuple[Layer, float, float]:
        """Coefficients after a step, what it gained, and the cost before."""
        at = joined(layer)
        before = float(sums.entropy) + self.penalty(layer)
        goal = self._minimum_of_model(sums, at, tolerance)
        for halving in range(_HALVINGS):
            there = parted(at + 0.5**halving * (goal - at), layer)
            after = self.cost(sweep, there)
            if after <= before:
                return there, before - after, before
        return layer, 0.0, before

    def _minimum_of_model(self, sums: SoftmaxSums, at: Array, tolerance: float) -> Array:
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
        found = minimised(
            Rows(shape, H, None, pull, level), start, tolerance=tolerance, most_steps=_INNER_STEPS
        )
        return xp.reshape(found, (C, m))

    def multiplied(self, sweep: Any, layer: Layer, exponent: float) -> Layer:
        """The multiplicative step W~ [T'U~ / (P'U~ + gamma)]^exponent, without gamma for w0."""
        above, below = sweep.sum(of_targets, layer).parts()
        xp = namespace(below)
        below = below + self.gamma * xp.concat([ones((below.shape[1] - 1,), below), zeros((1,), below)])
        return parted(joined(layer) * powered(above, below, exponent), layer)

    def descended(self, sweep: Any, layer: Layer, rate: float) -> Layer:
        """A step along the gradient."""
        above, below = sweep.sum(of_targets, layer).parts()
        slope = below - above
        xp = namespace(slope)
        slope = xp.concat([steepest(slope[:, :-1], layer.coef, self.gamma), slope[:, -1:]], axis=1)
        return parted(joined(layer) - rate * slope, layer)


def joined(layer: Layer) -> Array:
    """(C, r + 1): coefficients and intercept."""
    intercept: Array = layer.intercept
    return namespace(intercept).concat([layer.coef, intercept[:, None]], axis=1)


def parted(coefficients: Array, layer: Layer) -> Layer:
    return Layer(layer.components, layer.offset, coefficients[:, :-1], coefficients[:, -1])


# -- functions of blocks, whose rows are features -----------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """Sums of u~ over rows with labels: by their class, and by their probability of each class."""

    own: Array  # (C, r + 1): T'U~
    expected: Array  # (C, r + 1): P'U~

    def parts(self) -> tuple[Array, Array]:
        return self.own, self.expected


def _of_block(layer: Layer, block: Block) -> tuple[Array, Array, Array, Array]:
    """u~ (n, r + 1), targets (n, C), cross-entropies (n,) and probabilities, zero for rows without label."""
    F = block.X
    xp, targets = namespace(F), targets_of(layer, block)
    entropy, P = cross_entropy(layer.coef, layer.intercept, targets, F)
    P = P * xp.sum(targets, axis=1)[:, None]
    if block.weight is not None:
        entropy = entropy * block.weight
        targets, P = targets * block.weight[:, None], P
    return xp.concat([F, ones((F.shape[0], 1), F)], axis=1), targets, entropy, P


def entropy_of(layer: Layer, block: Block) -> Array:
    """(): the cross-entropy of the labels."""
    xp = namespace(block.X)
    entropy = cross_entropy(layer.coef, layer.intercept, targets_of(layer, block), block.X)[0]
    return xp.sum(entropy if block.weight is None else entropy * block.weight)


def of_targets(layer: Layer, block: Block) -> Expected:
    U, targets, _, P = _of_block(layer, block)
    if block.weight is not None:
        P = P * block.weight[:, None]
    return Expected(targets.T @ U, P.T @ U)


def of_rows(layer: Layer, whole: bool, block: Block) -> SoftmaxSums:
    U, targets, entropy, P = _of_block(layer, block)
    xp = namespace(U)
    weighted = P if block.weight is None else P * block.weight[:, None]
    slope = (weighted - targets).T @ U
    C, m = slope.shape
    if not whole:
        spread = xp.sqrt(weighted * (1.0 - P))
        scaled = (U * spread[:, c][:, None] for c in range(C))
        blocks = xp.stack([part.T @ part for part in scaled])  # of one array, BLAS computes a half
        return SoftmaxSums(xp.sum(entropy), slope, blocks)
    grid: list[list[Array]] = []
    for c in range(C):  # the blocks up to the diagonal; the others are their transposes
        spread = -weighted[:, c][:, None] * P[:, : c + 1]
        own = xp.astype(xp.arange(c + 1, device=device(U)) == c, U.dtype)
        spread = spread + weighted[:, c][:, None] * own
        mixed = xp.reshape(spread[:, :, None] * U[:, None, :], (U.shape[0], (c + 1) * m))
        products = U.T @ mixed
        grid.append([products[:, i * m : (i + 1) * m] for i in range(c + 1)])
    rows = [xp.concat([grid[c][i] if i <= c else grid[i][c].T for i in range(C)], axis=1) for c in range(C)]
    return SoftmaxSums(xp.sum(entropy), slope, xp.concat(rows))


# -- sources of a class ---------------------------------------------------------------------------------


def sources_of_classes(
    terms: Terms, layer: Layer, targets: Array, S: Array, *, threshold: float, max_iter: int
) -> Array:
    """(n, r) sources that minimise -ln p(c | s) + alpha |s|, or reach p(c | s) > threshold on the way from S.

    Steps along the gradient in s, so that rows end near where they started, each with a step length of its
    own; rows
    that stop short of the threshold go on to the minimum, which is unique in f(s), by Newton steps there.
    """
    xp, f = namespace(S), terms.mapping
    least = 0.0 if terms.positive_sources else -f.limit

    def told(S: Array) -> tuple[Array, Array, Array]:
        entropy, P = cross_entropy(layer.coef, layer.intercept, targets, f.value(S))
        return entropy, P, entropy + terms.alpha * xp.sum(xp.abs(S), axis=1)

    entropy, P, cost = told(S)
    rate = ones((S.shape[0],), S)
    enough = -math.log(threshold) if threshold > 0 else math.inf
    for _ in range(max_iter):
        going = (entropy >= enough) & (rate > 1e-12)
        if not bool(xp.any(going)):
            break
        slope = steepest(((P - targets) @ layer.coef) * f.derivative(S), S, terms.alpha)
        there = xp.clip(S - (rate[:, None] * slope), min=least, max=f.limit)
        told_there = told(there)
        better = told_there[2] < cost
        gained = cost - told_there[2]
        taken = going & better
        S = xp.where(taken[:, None], there, S)
        entropy, cost = xp.where(taken, told_there[0], entropy), xp.where(taken, told_there[2], cost)
        P = xp.where(taken[:, None], told_there[1], P)
        rate = xp.where(going, xp.where(better, _GROWTH * rate, 0.5 * rate), rate)
        rate = xp.where(taken & (gained <= _SLOW * cost), 0.0, rate)  # the minimum is near: Newton goes on
    short = entropy >= enough
    if max_iter == 0 or not bool(xp.any(short)):
        return S
    index = xp.nonzero(short)[0]
    softmax = Softmax(layer.coef, layer.intercept, xp.take(targets, index, axis=0), 1.0)
    start = xp.take(f.value(S), index, axis=0)
    shape = replace(terms, sigma2=1.0).shape()
    gram = zeros((start.shape[1], start.shape[1]), S)
    level = xp.zeros_like(start[:, 0])
    rows = Rows(shape, gram, inverse_of(gram, 0.0), xp.zeros_like(start), level, softmax)
    found = sources(terms, minimised(rows, inside(terms, start), tolerance=1e-9))
    every = xp.clip(xp.cumulative_sum(xp.astype(short, xp.int64)) - 1, min=0)
    return xp.where(short[:, None], xp.take(found, every, axis=0), S)
