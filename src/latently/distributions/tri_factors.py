"""X ~ Z W C' without negative entries: sweeps over three factors, of which no one raises the cost.

    cost = |X - Z W C'|^2 / 2  +  a/2 sum_{k != j} z_k'z_j  +  b/2 sum_{l != j} c_l'c_j  +  c/2 |W|^2

n rows, D columns, K row clusters, L column clusters: Z (n, K), W (K, L), C (D, L). Only observed entries of X
count. With all entries observed a sweep makes two wide products, X C and X'Z, and never forms Z W C', so
sparse X stay sparse. Two kinds of sweeps: multiplicative ones, and coordinate descent, for which missing
entries are filled in by the current product (a bound of the cost that touches it). Formulas: docs/nmtf.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import is_sparse
from latently.distributions.nonnegative import added_up, against, descended, minimised

Floats = NDArray[np.float64]

_TINY = 1e-300
_LONGER = 4.0  # a column of Z or C is made longer or shorter by up to this factor a sweep
_NEGLIGIBLE = 1e-9  # part of the squares of X; penalties below are not lowered any further
_PASSES = 3  # of coordinate descent over each factor
_SOLVED, _MOST_PASSES, _MOST_ROUNDS = 1e-10, 2000, 20  # when the best row factors are found
_EQUAL = 1e-9  # what single clusters explain of a row, relative to the best
_CLOSE = 1e-4  # of the squares of X: below this, differences are squared one by one
_ENTRIES = 2**21  # of Z W C' that are formed at a time


@dataclass(frozen=True)
class LowRank:
    """The matrix R V' by its parts (n, r) and (D, r): what a few directions tell of a large one."""

    rows: Floats
    columns: Floats


@dataclass(frozen=True)
class Table:
    """The matrix to factorise: zero where nothing was observed; an array, sparse or `LowRank`."""

    X: Any  # (n, D)
    observed: Floats | None  # (n, D) of ones and zeros; None if all are
    square: float  # sum of squares

    @classmethod
    def of(cls, X: Any, observed: Floats | None) -> Table:
        values = X.data if is_sparse(X) else X
        return cls(X, observed, float(np.vdot(values, values)))


@dataclass(frozen=True)
class Factors:
    rows: Floats  # Z (n, K)
    core: Floats  # W (K, L)
    columns: Floats  # C (D, L)


@dataclass(frozen=True)
class Overlap:
    """Penalties on the overlap of row factors, of column factors, and on the size of the core."""

    rows: float = 0.0
    columns: float = 0.0
    core: float = 0.0

    def costs(self, factors: Factors) -> tuple[float, float, float]:
        Z, W, C = factors.rows, factors.core, factors.columns
        return (
            0.5 * self.rows * float(np.vdot(Z, others(Z))),
            0.5 * self.columns * float(np.vdot(C, others(C))),
            0.5 * self.core * float(np.vdot(W, W)),
        )


def others(V: Floats) -> Floats:
    """For each entry the sum of the others of its row."""
    rest: Floats = V.sum(axis=1, keepdims=True) - V
    return rest


def onto_columns(C: Floats, X: Any) -> Floats:
    """(L, n): C'X'."""
    if isinstance(X, LowRank):
        return (C.T @ X.columns) @ X.rows.T
    product: Floats = against(C.T, X)
    return product


def onto_rows(Z: Floats, X: Any) -> Floats:
    """(D, K): X'Z."""
    if isinstance(X, LowRank):
        return X.columns @ (X.rows.T @ Z)
    product: Floats = added_up(Z.T, X).T
    return product


def cost(table: Table, factors: Factors, overlap: Overlap) -> float:
    cross = (onto_columns(factors.columns, table.X) @ factors.rows).T
    return squared_error(table, factors, cross) + sum(overlap.costs(factors))


def squared_error(table: Table, factors: Factors, cross: Floats) -> float:
    """Half the sum of squared differences; `cross` is Z'X C, which only complete tables need."""
    Z, W, C = factors.rows, factors.core, factors.columns
    if table.observed is None:
        square = float(np.vdot((Z.T @ Z) @ W @ (C.T @ C), W))
        error = 0.5 * (table.square - 2.0 * float(np.vdot(cross, W)) + square)
        if not isinstance(table.X, np.ndarray) or error > _CLOSE * table.square:
            return max(error, 0.0)
    right, total = W @ C.T, 0.0
    height = max(1, _ENTRIES // right.shape[1])
    for start in range(0, Z.shape[0], height):
        part = slice(start, start + height)
        difference = table.X[part] - Z[part] @ right
        if table.observed is not None:
            difference *= table.observed[part]
        total += float(np.vdot(difference, difference))
    return 0.5 * total


# -- multiplicative sweeps ----------------------------------------------------------------------------


def multiplied(table: Table, factors: Factors, overlap: Overlap) -> tuple[Factors, float]:
    """Z, C and W after one multiplicative update each, every one with what is new; and their cost."""
    Z, W, C = factors.rows, factors.core, factors.columns
    Z = Z * _ratio(
        onto_columns(C, table.X).T @ W.T,
        _explained_by_columns(table, Z, W, C) @ W.T + overlap.rows * others(Z),
    )
    toward_rows = onto_rows(Z, table.X)
    C = C * _ratio(toward_rows @ W, _explained_by_rows(table, Z, W, C) @ W + overlap.columns * others(C))
    cross = toward_rows.T @ C
    W = W * _ratio(cross, _explained_by_rows(table, Z, W, C).T @ C + overlap.core * W)
    there = Factors(Z, W, C)
    return there, squared_error(table, there, cross) + sum(overlap.costs(there))


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """0/0 leaves an entry as it is."""
    positive = denominator > _TINY
    return np.where(positive, numerator / np.where(positive, denominator, 1.0), 1.0)


def _explained_by_columns(table: Table, Z: Floats, W: Floats, C: Floats) -> Floats:
    """(n, L): Z W C' C, over observed entries."""
    if table.observed is None:
        return Z @ (W @ (C.T @ C))
    return (table.observed * ((Z @ W) @ C.T)) @ C


def _explained_by_rows(table: Table, Z: Floats, W: Floats, C: Floats) -> Floats:
    """(D, K): (Z W C')' Z, over observed entries."""
    if table.observed is None:
        return C @ (W.T @ (Z.T @ Z))
    return (table.observed * ((Z @ W) @ C.T)).T @ Z


# -- coordinate descent -------------------------------------------------------------------------------


def descending(table: Table, factors: Factors, overlap: Overlap) -> tuple[Factors, float]:
    """Z, C and W after a few passes of coordinate descent each, and their cost."""
    Z, W, C = factors.rows, factors.core, factors.columns
    X = table.X
    if table.observed is not None:  # what is missing is as it was fitted: a bound that touches the cost
        X = X + (1.0 - table.observed) * ((Z @ W) @ C.T)
    gram = W @ (C.T @ C) @ W.T + _off_diagonal(overlap.rows, W.shape[0])
    Z = descended(Z.T, gram, W @ onto_columns(C, X), _PASSES).T
    toward_rows = onto_rows(Z, X)
    square = Z.T @ Z
    gram = W.T @ square @ W + _off_diagonal(overlap.columns, W.shape[1])
    C = descended(C.T, gram, W.T @ toward_rows.T, _PASSES).T
    cross = toward_rows.T @ C
    W = _descended_core(W, square, C.T @ C, cross, overlap.core)
    there = Factors(Z, W, C)
    error, penalties = squared_error(table, there, cross), sum(overlap.costs(there))
    if penalties > max(error, _NEGLIGIBLE * table.square):  # else rows decide, not the scale of factors
        there = balanced(there, overlap)
        penalties = sum(overlap.costs(there))
    return there, error + penalties


def balanced(factors: Factors, overlap: Overlap) -> Factors:
    """The same product, with columns of Z and C of such lengths that the penalties are lower.

    With Z scaled by p and C by q they are sums of products of powers of p and q, which is convex in
    logarithms; every length in turn is set to its minimum. Sweeps move scale between the factors very slowly.
    """
    Z, W, C = factors.rows, factors.core, factors.columns
    p, q = np.ones(W.shape[0]), np.ones(W.shape[1])
    between_rows = _off_diagonal(overlap.rows, len(p)) * (Z.T @ Z)
    between_columns = _off_diagonal(overlap.columns, len(q)) * (C.T @ C)
    squares = overlap.core * W**2
    for _ in range(_PASSES):
        p = _lengths(p, between_rows, squares @ q**-2.0)
        q = _lengths(q, between_columns, p**-2.0 @ squares)
    return Factors(Z * p, W / np.outer(p, q), C * q)


def _lengths(p: Floats, between: Floats, squares: Floats) -> Floats:
    """Each p_k in turn at the minimum of p_k sum_j between_kj p_j + squares_k / (2 p_k^2).

    A cluster that overlaps with no other would grow without end, so there are bounds.
    """
    p = p.copy()
    for k in range(len(p)):
        slope = float(between[k] @ p)
        if slope > 0.0:
            p[k] = np.cbrt(np.clip(squares[k] / slope, _LONGER**-3, _LONGER**3))
        elif squares[k] > 0.0:
            p[k] = _LONGER
    return p


def _off_diagonal(size: float, n: int) -> Floats:
    return size * (1.0 - np.eye(n))


def _descended_core(W: Floats, S: Floats, T: Floats, cross: Floats, ridge: float) -> Floats:
    """Row by row to the minimum of a separable bound: T is below the diagonal matrix of its row sums."""
    W, slopes = W.copy(), T.sum(axis=1)
    for _ in range(_PASSES):
        for k in range(len(W)):
            gradient = (S[k] @ W) @ T - cross[k] + ridge * W[k]
            curvature = S[k, k] * slopes + ridge
            positive = curvature > _TINY
            step = np.where(positive, gradient / np.where(positive, curvature, 1.0), 0.0)
            W[k] = np.maximum(W[k] - step, 0.0)
    return W


# -- rows of their own --------------------------------------------------------------------------------


def inferred(components: Floats, penalty: float, block: Any) -> Floats:
    """(n, K): the row factors z >= 0 of the least |x - z B|^2 / 2 + a/2 sum_{k != j} z_k z_j of each row.

    Coordinate descent from the best single cluster. Without penalty it ends at the minimum; of several
    minima, which there are with more row than column clusters, at one near that cluster, as a fit does. With
    a penalty it ends where no coordinate can lower the cost.
    """
    X = block.X if block.observed is None else np.where(block.observed, block.X, 0.0)
    toward = against(components, X)
    K = len(components)
    if block.observed is None:
        gram = components @ components.T
        diagonal = np.diagonal(gram)[:, None]
        gram = gram + _off_diagonal(penalty, K)
    else:
        products = (components[:, None, :] * components).reshape(K * K, -1)
        gram = (products @ block.observed.T.astype(np.float64)).reshape(K, K, -1)
        diagonal = np.stack([gram[k, k] for k in range(K)])
        gram = gram + _off_diagonal(penalty, K)[:, :, None]
    positive = diagonal > _TINY
    alone = np.where(positive, np.maximum(toward, 0.0) / np.where(positive, diagonal, 1.0), 0.0)
    gain = alone * toward
    best = np.argmax(gain >= (1.0 - _EQUAL) * gain.max(axis=0), axis=0)  # the first of several
    start = np.where(np.arange(K)[:, None] == best, alone, 0.0)
    if penalty == 0.0:  # a convex problem, flat where there are more row than column clusters
        return np.ascontiguousarray(minimised(start, gram, toward, _MOST_ROUNDS, _SOLVED).T)
    return np.ascontiguousarray(descended(start, gram, toward, _MOST_PASSES, _SOLVED).T)


def by_largest(V: Floats, norms: Floats) -> NDArray[np.int64]:
    """The cluster of each row: the largest entry after columns are scaled to unit length."""
    found: NDArray[np.int64] = np.argmax(V / np.where(norms > 0, norms, 1.0), axis=1)
    return found


def normalised(factors: Factors) -> Factors:
    """The same product with columns of Z and C of unit length."""
    rows, columns = (np.linalg.norm(V, axis=0) for V in (factors.rows, factors.columns))
    core = rows[:, None] * factors.core * columns
    by_rows, by_columns = (np.where(norm > 0, norm, 1.0) for norm in (rows, columns))
    return Factors(factors.rows / by_rows, core, factors.columns / by_columns)
