"""Many small convex problems at once, one for each row of U.

    minimise over u    u'Gu/2 - c'u + sum_k lambda_k |f^-1(u_k)| + kappa [ln sum_c exp v_c - v_t]
    subject to         lower <= u <= upper,      v = W u + w0

n rows, r coordinates, C classes; the last term is there only for rows with a label t. G is (r, r), or (n, r,
r) where each row has its own. This is the inference of sources in u = f(s), where it is convex
(docs/nlmf.md), and with f the identity the least-squares update of components with or without constraints.

Projected Newton steps: coordinates at a bound, or at s = 0 where the penalty has its kink, are held while the
gradient keeps them there; the others take a Newton step, projected on the side of the kink on which they are.
A shared G makes the Newton equations of all rows one conjugate-gradient iteration in matrix products,
preconditioned by one inverse: rows differ from G by few held coordinates, a diagonal and C - 1 directions.
Where no length of the projected step descends, a bound or kink is near that the whole step would pass: the
part up to it descends, and holds that coordinate from then on; without one a step along the gradient is
taken. Every row has its own step length and ends on its own, so that its result does not depend on other
rows. An iteration costs O(n r^2). Bertsekas (1982), SIAM J. Control and Optimization 20.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latently.backend.namespace import Array, contiguous, device, eye, is_numpy, namespace
from latently.distributions.mappings import IDENTITY, Identity, Mapping
from latently.distributions.nonnegative import descended as steps

_UNBOUNDED = float("inf")
_MOST_STEPS = 200
_HALVINGS, _MORE_HALVINGS = 12, 60
_ARMIJO = 1e-4
# Of the way to the end of the range that one step may go, where the penalty is infinite there.
_TO_THE_END = 0.9
INNER, _INNER_STEPS = 1e-10, 60  # of conjugate gradients: what is left of the squared residual; iterations
_TIMES_HELD = 2  # how often coordinates are held back before a step is taken
_NOTHING = 1e-280  # sizes of a gram below which its inverse would overflow
_ROUNDING = 4e-15  # of the objective, relative to its terms


@dataclass(frozen=True)
class Softmax:
    """A label's cross-entropy as a function of u."""

    coef: Array  # (C, r): W
    intercept: Array  # (C,): w0
    targets: Array  # (n, C): one for the class of a row; zeros for a row without label
    weight: float  # kappa

    def take(self, index: Array) -> Softmax:
        return replace(self, targets=namespace(index).take(self.targets, index, axis=0))


@dataclass(frozen=True)
class Shape:
    """What all rows share: the map, the penalty and the range."""

    mapping: Mapping = IDENTITY
    penalty: Any = 0.0  # lambda: a number, or (r,)
    penalised: bool = False  # whether any of it is positive
    signed: bool = True  # whether s may be negative, so that the penalty has its kink inside the range
    lower: Any = -_UNBOUNDED  # a number, (r,), or (n, r)
    upper: Any = _UNBOUNDED

    def take(self, index: Array) -> Shape:
        def chosen(bound: Any) -> Any:
            return namespace(bound).take(bound, index, axis=0) if getattr(bound, "ndim", 0) == 2 else bound

        return replace(self, lower=chosen(self.lower), upper=chosen(self.upper))


@dataclass(frozen=True)
class Rows:
    """The problems, one for each row."""

    shape: Shape
    gram: Array  # (r, r), or (n, r, r)
    inverse: Array | None  # (r, r): about the inverse of a shared gram
    pull: Array  # (n, r): c
    level: Array  # (n,): what is added to the objective, so that it is a cost >= 0
    softmax: Softmax | None = None

    def take(self, index: Array) -> Rows:
        xp = namespace(self.pull)
        own = self.gram.ndim == 3
        return Rows(
            self.shape.take(index),
            xp.take(self.gram, index, axis=0) if own else self.gram,
            self.inverse,
            xp.take(self.pull, index, axis=0),
            xp.take(self.level, index, axis=0),
            None if self.softmax is None else self.softmax.take(index),
        )


@dataclass(frozen=True)
class _At:
    """The objective at some U."""

    U: Array  # (n, r)
    S: Array | None  # (n, r): f^-1(U), where a penalty depends on it
    cost: Array  # (n,)
    size: Array  # (n,): of the terms of the cost, which its rounding is relative to
    slope: Array  # (n, r): gradient without the penalty
    probability: Array | None  # (n, C)

    def take(self, index: Array) -> _At:
        xp = namespace(self.U)
        parts = (self.U, self.S, self.cost, self.size, self.slope, self.probability)
        return _At(*(None if part is None else xp.take(part, index, axis=0) for part in parts))


def inverse_of(gram: Array, more: float) -> Array:
    """A preconditioner for a shared gram (r, r) and a diagonal of about `more`."""
    return namespace(gram).linalg.inv(gram + (more + _ridge(gram)) * eye(gram.shape[0], gram))


def _ridge(gram: Array) -> float:
    """What a shared gram lacks to be regular in float64."""
    xp = namespace(gram)
    size = float(xp.sum(xp.linalg.diagonal(gram))) / max(gram.shape[0], 1)
    return 1e-11 * size if size > _NOTHING else 1e-8


def minimised(
    rows: Rows, U: Array, *, tolerance: float, most_steps: int = _MOST_STEPS, inner: float = INNER
) -> Array:
    """U (n, r) from these starting values, until a step gains less than `tolerance` of a row's cost.

    `inner` is what conjugate gradients leave of the squared residual of the Newton equations.
    """
    return minimised_from(rows, U, None, tolerance=tolerance, most_steps=most_steps, inner=inner)[0]


def minimised_from(
    rows: Rows, U: Array, S: Array | None, *, tolerance: float, most_steps: int, inner: float
) -> tuple[Array, Array | None]:
    """The same, and f^-1(U) where a penalty has needed it. S is that of the start, if it is known."""
    xp = namespace(U)
    n = U.shape[0]
    U = xp.clip(U, rows.shape.lower, rows.shape.upper) if _bounded(rows.shape) else U
    if n == 0:
        return U, None
    here, left = _at(rows, U, S), xp.arange(n, device=device(U))
    ended: list[Array] = []
    sources: list[Array | None] = []
    places: list[Array] = []

    def end(at: _At, where: Array) -> None:
        ended.append(at.U)
        sources.append(at.S)
        places.append(where)

    for _ in range(most_steps):
        side, gradient, free = _faces(rows.shape, here)
        if rows.inverse is not None and rows.gram.ndim == 2:  # a bound of the gain tells who is there already
            bound = squares(gradient, gradient @ rows.inverse)
            there = bound <= tolerance * xp.clip(here.cost, min=0.0) + _ROUNDING * here.size
            if bool(xp.all(there)):
                end(here, left)
                break
        step, gradient, free = _held_back(rows, here, side, gradient, free, inner)
        gain = -squares(gradient, step)
        near = gain <= tolerance * xp.clip(here.cost, min=0.0) + _ROUNDING * here.size
        if bool(xp.any(near)):
            done, going = xp.nonzero(near)[0], xp.nonzero(~near)[0]
            end(here.take(done), xp.take(left, done, axis=0))
            if going.shape[0] == 0:
                break
            rows, here, left = rows.take(going), here.take(going), xp.take(left, going, axis=0)
            side, gradient, step, free = (xp.take(a, going, axis=0) for a in (side, gradient, step, free))
        here, stuck = _along(rows, here, side, gradient, step, _HALVINGS)
        if bool(xp.any(stuck)):  # a projected Newton step need not descend; one to the bound or down does
            index = xp.nonzero(stuck)[0]
            their, at = rows.take(index), here.take(index)
            theirs = [xp.take(array, index, axis=0) for array in (side, gradient, free)]
            direct = xp.take(step, index, axis=0)
            part = _within(their.shape, at.U, direct)
            nearer, far = _along(their, at, theirs[0], theirs[1], part[:, None] * direct, 0)
            reached = ~far & (part > 0) & (part < 1)
            downhill = -theirs[1] / _diagonal(their, at, theirs[0])
            at, lost = _along(
                their, at, theirs[0], theirs[1], xp.where(theirs[2], downhill, 0.0), _MORE_HALVINGS
            )
            at, lost = _put(at, nearer.take(xp.nonzero(reached)[0]), reached), lost & ~reached
            here = _put(here, at, stuck)
            if bool(xp.any(lost)):  # rounding is all that is left
                gone = xp.zeros_like(stuck)
                gone = _scattered(gone, lost, index)
                done, going = xp.nonzero(gone)[0], xp.nonzero(~gone)[0]
                end(here.take(done), xp.take(left, done, axis=0))
                if going.shape[0] == 0:
                    break
                rows, here, left = rows.take(going), here.take(going), xp.take(left, going, axis=0)
    else:
        end(here, left)
    if len(ended) == 1:
        return ended[0], sources[0]
    order = xp.argsort(xp.concat(places))
    U = xp.take(xp.concat(ended), order, axis=0)
    if any(part is None for part in sources):
        return U, None
    return U, xp.take(xp.concat(sources), order, axis=0)


def squares(A: Array, B: Array) -> Array:
    """(n,) products of the rows of two matrices, without a matrix of products in between."""
    return np.einsum("ij,ij->i", A, B) if is_numpy(A) else namespace(A).sum(A * B, axis=1)


def response(rows: Rows, U: Array, V: Array, moves: Array) -> Array:
    """(n, r) H^-1 V over the coordinates that may move at the minimum U, H being a row's curvature.

    Those that are not in `moves` (n, r) are held as well.
    """
    here = _at(rows, U)
    side, _, free = _faces(rows.shape, here)
    free = free & moves
    return _newton(rows, here, side, namespace(U).where(free, -V, 0.0), free)


# -- one coordinate after the other ---------------------------------------------------------------------


def descended(rows: Rows, U: Array, n_passes: int) -> Array:
    """U (n, r) after passes over the coordinates, where G is shared and the penalty has no kink inside.

    Each step is at a minimum, or as far towards it as a Newton step gets, so that the cost of no row rises.
    The cross-entropy is replaced by a bound that touches it at U: its curvature over v is at most half that
    of |v|^2 / 2 around the mean (Boehning, 1992). One pass costs as much as a product with G and little more,
    and where many coordinates are at a bound it gains more than a Newton step.
    """
    xp, shape, G = namespace(U), rows.shape, rows.gram
    U = xp.clip(U, shape.lower, shape.upper) if _bounded(shape) else U
    pull = rows.pull
    if rows.softmax is not None:
        W = rows.softmax.coef
        W = W - xp.mean(W, axis=0)
        G = G + (0.5 * rows.softmax.weight) * (W.T @ W)
        pull = U @ G - _at(rows, U).slope
    return steps(_columns(U), G, _columns(pull), n_passes, bounded=_Bounds(shape, xp.linalg.diagonal(G))).T


def _columns(rows: Array) -> Array:
    """(r, n), one coordinate of all rows lying together."""
    return contiguous(rows.T)


class _Bounds:
    """The minimum over one coordinate, of the quadratic with the penalty, within the range."""

    def __init__(self, shape: Shape, diagonal: Array):
        self.shape, self.diagonal, self.xp = shape, diagonal, namespace(diagonal)
        self.penalty = shape.penalty + 0.0 * diagonal if shape.penalised else None
        self.curved = shape.penalised and not isinstance(shape.mapping, Identity)

    def __call__(self, k: int, v: Array, step: Array) -> Array:
        xp, shape = self.xp, self.shape
        if self.penalty is not None:
            h, penalty = self.diagonal[k], self.penalty[k]
            step = (
                self._curved(h, penalty, v, step) if self.curved else step - penalty / (h if h > 0 else 1.0)
            )
        step = xp.maximum(step, _end(shape.lower, k) - v)
        if isinstance(shape.upper, float) and shape.upper == _UNBOUNDED:
            return step
        return xp.minimum(step, _end(shape.upper, k) - v)

    def _curved(self, h: Array, penalty: Array, v: Array, step: Array) -> Array:
        """A Newton step; where it goes too far, the chord of the slope, which is convex, does not."""
        xp, f = self.xp, self.shape.mapping
        slope = penalty * f.steepness(v) - h * step
        most = _TO_THE_END * (f.high - v)
        there = xp.minimum(-slope / (h + penalty * f.bend(v)), most)
        after = penalty * f.steepness(v + xp.maximum(there, f.zero - v)) + h * (there - step)
        beyond = (slope < 0) & (after > 0)
        return xp.where(beyond, there * (slope / xp.where(beyond, slope - after, 1.0)), there)


def _end(bound: Any, k: int) -> Any:
    """The bound of coordinate k: a number, or (n,)."""
    if getattr(bound, "ndim", 0) == 0:
        return bound
    return bound[k] if bound.ndim == 1 else bound[:, k]


# -- the objective ------------------------------------------------------------------------------------


def _at(rows: Rows, U: Array, S: Array | None = None) -> _At:
    xp = namespace(U)
    shape = rows.shape
    image = U @ rows.gram if rows.gram.ndim == 2 else (rows.gram @ U[:, :, None])[:, :, 0]
    square, linear = 0.5 * squares(U, image), squares(rows.pull, U)
    cost, size, slope = rows.level + square - linear, rows.level + square + xp.abs(linear), image - rows.pull
    if shape.penalised:
        S = shape.mapping.inverse(U) if S is None else S
        penalty = xp.sum(shape.penalty * xp.abs(S), axis=1)
        cost, size = cost + penalty, size + penalty
    probability = None
    if rows.softmax is not None:
        told = rows.softmax
        entropy, probability = cross_entropy(told.coef, told.intercept, told.targets, U)
        labelled = xp.sum(told.targets, axis=1)[:, None]
        cost, size = cost + told.weight * entropy, size + told.weight * entropy
        slope = slope + told.weight * ((labelled * probability - told.targets) @ told.coef)
    return _At(U, S if shape.penalised else None, cost, size, slope, probability)


def cross_entropy(coef: Array, intercept: Array, targets: Array, U: Array) -> tuple[Array, Array]:
    """(n,) minus the log probability of the class of each row, zero without label; and probabilities (n,
    C).
    """
    xp = namespace(U)
    v = U @ coef.T + intercept
    v = v - xp.max(v, axis=1, keepdims=True)
    e = xp.exp(v)
    total = xp.sum(e, axis=1, keepdims=True)
    log_probability = v - xp.log(total)
    return -xp.sum(targets * log_probability, axis=1), e / total


def _faces(shape: Shape, here: _At) -> tuple[Array, Array, Array]:
    """On which side of the kink each coordinate is or goes; the gradient there; and which may move."""
    xp = namespace(here.U)
    U, slope = here.U, here.slope
    ones = xp.ones_like(U)
    if not shape.penalised:
        side, gradient = ones, slope
        free = ones > 0
    else:
        steep = shape.penalty * shape.mapping.steepness(U)
        if shape.signed:
            side = xp.sign(U - shape.mapping.zero)
            at_kink = side == 0
            if bool(xp.any(at_kink)):
                pushed = shape.penalty / shape.mapping.slope
                away = xp.sign(slope + 0.0) * -1.0
                away = xp.where((xp.abs(slope) > pushed), away, 0.0)
                away = xp.where(pushed + 0.0 * slope > 0, away, 1.0)
                side = xp.where(at_kink, away, side)
            gradient, free = slope + side * steep, side != 0
        else:
            side, gradient, free = ones, slope + steep, ones > 0
    # a penalty that is infinite at both ends keeps rows away from them
    if _bounded(shape) and not (shape.penalised and shape.signed and not isinstance(shape.mapping, Identity)):
        low, high = shape.lower >= U, shape.upper <= U
        if bool(xp.any(low | high)):
            free = free & ~(low & (gradient > 0)) & ~(high & (gradient < 0))
    return side, gradient if bool(xp.all(free)) else xp.where(free, gradient, 0.0), free


def _bounded(shape: Shape) -> bool:
    bounds = (shape.lower, shape.upper)
    return any(not isinstance(bound, float) or abs(bound) != float("inf") for bound in bounds)


def _bend(shape: Shape, U: Array, side: Array) -> Array | None:
    """The second derivative of the penalty."""
    if not shape.penalised or isinstance(shape.mapping, Identity):
        return None
    return namespace(U).clip(shape.penalty * side * shape.mapping.bend(U), min=0.0)


def _diagonal(rows: Rows, here: _At, side: Array) -> Array:
    """(n, r) a bound of the curvature along each coordinate."""
    xp = namespace(here.U)
    found = xp.linalg.diagonal(rows.gram) + xp.zeros_like(here.U)
    bend = _bend(rows.shape, here.U, side)
    if bend is not None:
        found = found + bend
    if rows.softmax is not None:
        W = rows.softmax.coef
        found = found + 0.25 * rows.softmax.weight * (xp.max(W, axis=0) - xp.min(W, axis=0)) ** 2
    return xp.where(found > 0, found, 1.0)


# -- Newton steps -------------------------------------------------------------------------------------


def _newton(rows: Rows, here: _At, side: Array, gradient: Array, free: Array, inner: float = INNER) -> Array:
    """(n, r) the step to the minimum of the second-order model over the coordinates that may move."""
    bend = _bend(rows.shape, here.U, side)
    if rows.gram.ndim == 3:
        return _solved(rows, here, bend, gradient, free)
    return _conjugate(rows, here, bend, gradient, free, inner)


def _held_back(
    rows: Rows, here: _At, side: Array, gradient: Array, free: Array, inner: float
) -> tuple[Array, Array, Array]:
    """The Newton step without coordinates at a bound or kink that it would push beyond; gradient and free
    there.

    The gradient lets them go, but together with the others they would only be projected back.
    """
    xp = namespace(here.U)
    step = _newton(rows, here, side, gradient, free, inner)
    for _ in range(_TIMES_HELD):
        stopped = _stopped(rows.shape, here.U, step, side)
        concerned = xp.any(stopped, axis=1)
        if not bool(xp.any(concerned)):
            break
        free = free & ~stopped
        gradient = xp.where(free, gradient, 0.0)
        index = xp.nonzero(concerned)[0]
        their_side, left, own = (xp.take(array, index, axis=0) for array in (side, gradient, free))
        again = _newton(rows.take(index), here.take(index), their_side, left, own, inner)
        every = xp.clip(xp.cumulative_sum(xp.astype(concerned, xp.int64)) - 1, min=0)
        step = xp.where(concerned[:, None], xp.take(again, every, axis=0), step)
    return step, gradient, free


def _stopped(shape: Shape, U: Array, step: Array, side: Array) -> Array:
    """(n, r) whether a coordinate is where the range or its side ends, and the step goes on."""
    xp = namespace(U)
    stopped = xp.zeros_like(U) > 0
    if shape.penalised and shape.signed:
        at_kink = (shape.mapping.zero == U) & (shape.penalty + 0.0 * U > 0)
        stopped = stopped | (at_kink & (step * side < 0))
    if _bounded(shape):
        stopped = stopped | ((shape.lower >= U) & (step < 0)) | ((shape.upper <= U) & (step > 0))
    return stopped


def _solved(rows: Rows, here: _At, bend: Array | None, gradient: Array, free: Array) -> Array:
    """By a factorisation of each row's own matrix."""
    xp = namespace(here.U)
    H = rows.gram
    if rows.softmax is not None:
        W, P = rows.softmax.coef, here.probability
        P = P * xp.sum(rows.softmax.targets, axis=1)[:, None]
        mean = P @ W
        H = H + rows.softmax.weight * (
            xp.matrix_transpose(P[:, :, None] * W[None, :, :]) @ W - mean[:, :, None] * mean[:, None, :]
        )
    diagonal = xp.linalg.diagonal(H)
    added = 1e-12 * diagonal if bend is None else bend + 1e-12 * diagonal
    added = xp.where(free & (diagonal + added > 0), added, 1.0)
    both = free[:, :, None] & free[:, None, :]
    M = xp.where(both, H, 0.0) + eye(H.shape[-1], H) * added[:, None, :]
    return xp.linalg.solve(M, -gradient[:, :, None])[:, :, 0]


def _conjugate(
    rows: Rows, here: _At, bend: Array | None, gradient: Array, free: Array, inner: float
) -> Array:
    """By conjugate gradients on all rows at once."""
    xp = namespace(here.U)
    G, M = rows.gram, rows.inverse
    scale: Array | None = None if bool(xp.all(free)) else xp.astype(free, here.U.dtype)
    held = scale
    if bend is not None:  # coordinates whose own penalty curves more than the gram are scaled by that
        own = 1.0 / xp.sqrt(1.0 + bend * xp.linalg.diagonal(M))
        scale = own if scale is None else scale * own
    weight = W = P = None
    if rows.softmax is not None:
        W, weight = rows.softmax.coef, rows.softmax.weight
        P = here.probability * xp.sum(rows.softmax.targets, axis=1)[:, None]

    ridge = _ridge(G)  # a coordinate that only a linear penalty moves has no curvature of its own
    ridged = G + ridge * eye(G.shape[0], G)

    def curved(v: Array) -> Array:
        image = v @ ridged
        if bend is not None:
            image += bend * v
        if W is not None:
            t = v @ W.T
            image += weight * ((P * t - P * xp.sum(P * t, axis=1)[:, None]) @ W)
        if held is not None:
            image *= held
        return image

    def preconditioned(v: Array) -> Array:
        if scale is None:
            return v @ M
        found = (scale * v) @ M
        found *= scale
        return found

    residual = -gradient
    z = preconditioned(residual)
    if scale is None and W is None:  # M is the inverse, so this is the step
        return z
    x = xp.zeros_like(gradient)
    direction, rz = z, squares(residual, z)
    enough = inner * rz
    going = rz > 0
    for _ in range(_INNER_STEPS):
        image = curved(direction)
        curvature = squares(direction, image)
        going = going & (curvature > 0)
        if not bool(xp.any(going)):
            break
        length = xp.where(going, rz / xp.where(going, curvature, 1.0), 0.0)[:, None]
        x += length * direction
        image *= length
        residual -= image
        z = preconditioned(residual)
        after = squares(residual, z)
        going = going & (after > enough)
        if not bool(xp.any(going)):
            break
        turn = xp.where(going, after / xp.where(rz > 0, rz, 1.0), 0.0)[:, None]
        z += turn * direction
        direction, rz = z, after
    return x


def _along(
    rows: Rows, here: _At, side: Array, gradient: Array, step: Array, halvings: int
) -> tuple[_At, Array]:
    """Where each row gets along its step, half as far while it does not descend; and whether it stays."""
    xp = namespace(here.U)
    there = _at(rows, _projected(rows.shape, here.U, here.U + step, side))
    stays = ~_descends(here, there, gradient)
    length = 1.0
    for _ in range(halvings):
        if not bool(xp.any(stays)):
            return there, stays
        length *= 0.5
        index = xp.nonzero(stays)[0]
        some, at = rows.take(index), here.take(index)
        theirs = [xp.take(array, index, axis=0) for array in (side, gradient, step)]
        tried = _at(some, _projected(some.shape, at.U, at.U + length * theirs[2], theirs[0]))
        good = _descends(at, tried, theirs[1])
        if bool(xp.any(good)):
            better = xp.nonzero(good)[0]
            chosen = _scattered(xp.zeros_like(stays), good, index)
            there = _put(there, tried.take(better), chosen)
            stays = stays & ~chosen
    return _put(there, here.take(xp.nonzero(stays)[0]), stays), stays


def _within(shape: Shape, U: Array, step: Array) -> Array:
    """(n,) the part of a step that ends at the first bound or kink; one where it meets none."""
    xp = namespace(U)
    room = xp.where(step > 0, shape.upper - U, U - shape.lower)
    if shape.penalised and shape.signed:
        way = shape.mapping.zero - U
        ahead = (way * step > 0) & (shape.penalty + 0.0 * U > 0)
        room = xp.where(ahead, xp.minimum(room, xp.abs(way)), room)
    part = xp.where(step != 0, room / xp.where(step != 0, xp.abs(step), 1.0), 1.0)
    return xp.clip(xp.min(part, axis=1), min=0.0, max=1.0)


def _projected(shape: Shape, before: Array, after: Array, side: Array) -> Array:
    """Points kept on their side of the kink and within the range."""
    xp = namespace(after)
    if shape.penalised and shape.signed:
        zero = shape.mapping.zero
        crossed = ((after - zero) * side < 0) & (shape.penalty + 0.0 * side > 0)
        after = xp.where(crossed, zero, after)
    if not _bounded(shape):
        return after
    if shape.penalised and not isinstance(shape.mapping, Identity):
        after = xp.minimum(after, before + _TO_THE_END * (shape.mapping.high - before))
        if shape.signed:
            after = xp.maximum(after, before + _TO_THE_END * (shape.mapping.low - before))
    return xp.clip(after, shape.lower, shape.upper)


def _descends(here: _At, there: _At, gradient: Array) -> Array:
    xp = namespace(here.U)
    expected = squares(gradient, there.U - here.U)
    return there.cost <= here.cost + _ARMIJO * xp.clip(expected, max=0.0) + 0.25 * _ROUNDING * here.size


# -- rows put back in their places --------------------------------------------------------------------


def _put(all_rows: _At, some: _At, where: Array) -> _At:
    """All rows, those `where` (n,) replaced by `some` in order."""
    xp = namespace(where)
    number = xp.cumulative_sum(xp.astype(where, xp.int64)) - 1
    number = xp.clip(number, min=0)
    if some.U.shape[0] == 0:
        return all_rows

    def mixed(old: Array, new: Array) -> Array:
        picked = xp.take(new, number, axis=0)
        return xp.where(where if old.ndim == 1 else where[:, None], picked, old)

    probability = None if all_rows.probability is None else mixed(all_rows.probability, some.probability)
    return _At(
        mixed(all_rows.U, some.U),
        None if all_rows.S is None else mixed(all_rows.S, some.S),
        mixed(all_rows.cost, some.cost),
        mixed(all_rows.size, some.size),
        mixed(all_rows.slope, some.slope),
        probability,
    )


def _scattered(nothing: Array, chosen: Array, index: Array) -> Array:
    """(n,) bool: true at those places of `index` where `chosen`."""
    xp = namespace(nothing)
    places = xp.take(index, xp.nonzero(chosen)[0], axis=0)
    every = xp.arange(nothing.shape[0], device=device(nothing))
    found = xp.searchsorted(places, every)
    found = xp.clip(found, max=max(places.shape[0] - 1, 0))
    return nothing | (xp.take(places, found, axis=0) == every) if places.shape[0] else nothing
