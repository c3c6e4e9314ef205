"""Blocks of a matrix: every row and every column has one cluster, and every block its mean.

    cost = 1/2 sum_nd w_n (x_nd - W[z_n, c_d])^2     over observed entries

n rows with weights w, D columns, K row clusters, L column clusters. A sweep makes two wide products, of X
with the indicators of columns and of rows. Each of its parts is the exact minimum with the others fixed, so
the cost never rises. Entries may have any sign.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import is_sparse
from latently.distributions.nonnegative import added_up, against

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

_ROUNDING = 16 * np.finfo(np.float64).eps  # of sums: scores closer than this are equal


@dataclass(frozen=True)
class Entries:
    """The matrix: zero where nothing was observed, perhaps sparse."""

    X: Any  # (n, D)
    observed: Floats | None  # (n, D) of ones and zeros; None if all are
    weight: Floats  # (n,)
    square: float  # weighted sum of squares

    @classmethod
    def of(cls, X: Any, observed: Floats | None, weight: Floats) -> Entries:
        return cls(X, observed, weight, float(weight @ row_squares(X)))


@dataclass(frozen=True)
class Blocks:
    rows: Labels  # (n,)
    core: Floats  # (K, L)
    columns: Labels  # (D,)


def row_squares(X: Any) -> Floats:
    """(n,) sums of squares."""
    if is_sparse(X):
        X = X.multiply(X).sum(axis=1)
        squares: Floats = np.asarray(X).ravel()
    else:
        squares = np.einsum("nd,nd->n", X, X)
    return squares


def indicators(labels: Labels, n: int) -> Floats:
    """(m, n) with a one in each row."""
    found: Floats = (labels[:, None] == np.arange(n)).astype(np.float64)
    return found


def swept(entries: Entries, blocks: Blocks, *, refill: bool) -> tuple[Blocks, float]:
    """Means, rows, means, columns, means; and the cost.

    With `refill`, clusters that end empty take the row or column that is fitted worst.
    """
    K, L = blocks.core.shape
    w = entries.weight[:, None]
    rows, columns = blocks.rows, blocks.columns
    in_columns = _sums_of_rows(entries, indicators(columns, L))
    core = _means(*_of_blocks(in_columns, indicators(rows, K) * w), blocks.core)
    scores = _scores(*in_columns, core)
    rows = _lowest(*scores)
    if refill:
        rows = _refilled(rows, K, scores[0], entries, by_row=True)
    by_rows = indicators(rows, K) * w
    core = _means(*_of_blocks(in_columns, by_rows), core)
    in_rows = _sums_of_columns(entries, by_rows)
    scores = _scores(*in_rows, core.T)
    columns = _lowest(*scores)
    if refill:
        columns = _refilled(columns, L, scores[0], entries, by_row=False)
    sums, counts = (part.T for part in _of_blocks(in_rows, indicators(columns, L)))
    core = _means(sums, counts, core)
    there = Blocks(rows, core, columns)
    return there, _cost(entries, there, sums, counts)


def cost(entries: Entries, blocks: Blocks) -> float:
    K, L = blocks.core.shape
    in_columns = _sums_of_rows(entries, indicators(blocks.columns, L))
    weighted = indicators(blocks.rows, K) * entries.weight[:, None]
    return _cost(entries, blocks, *_of_blocks(in_columns, weighted))


def with_means(entries: Entries, blocks: Blocks) -> tuple[Blocks, float]:
    """The labels with the means of their blocks, and the cost; a block without entries keeps its own."""
    K, L = blocks.core.shape
    in_columns = _sums_of_rows(entries, indicators(blocks.columns, L))
    sums, counts = _of_blocks(in_columns, indicators(blocks.rows, K) * entries.weight[:, None])
    there = replace(blocks, core=_means(sums, counts, blocks.core))
    return there, _cost(entries, there, sums, counts)


def nearest(core: Floats, columns: Labels, X: Any, observed: Any) -> tuple[Labels, Floats]:
    """The cluster of each row with known blocks, and half its squared error."""
    entries = Entries.of(X, observed, np.ones(X.shape[0]))
    scores, size = _scores(*_sums_of_rows(entries, indicators(columns, core.shape[1])), core)
    labels = _lowest(scores, size)
    errors = row_squares(X) + scores[np.arange(len(labels)), labels]
    return labels, 0.5 * np.maximum(errors, 0.0)


def _sums_of_rows(entries: Entries, E: Floats) -> tuple[Floats, Floats]:
    """(n, L) sums and numbers of the observed entries of each row, by column cluster."""
    sums = against(E.T, entries.X).T
    if entries.observed is None:
        return sums, np.broadcast_to(E.sum(axis=0), sums.shape)
    return sums, entries.observed @ E


def _sums_of_columns(entries: Entries, E: Floats) -> tuple[Floats, Floats]:
    """(D, K) weighted sums and weights of the observed entries of each column, by row cluster."""
    sums = added_up(E.T, entries.X).T
    if entries.observed is None:
        return sums, np.broadcast_to(E.sum(axis=0), sums.shape)
    return sums, entries.observed.T @ E


def _of_blocks(parts: tuple[Floats, Floats], E: Floats) -> tuple[Floats, Floats]:
    sums, counts = parts
    return E.T @ sums, E.T @ counts


def _means(sums: Floats, counts: Floats, earlier: Floats) -> Floats:
    filled = counts > 0
    return np.where(filled, sums / np.where(filled, counts, 1.0), earlier)


def _scores(sums: Floats, counts: Floats, core: Floats) -> tuple[Floats, Floats]:
    """(n, K) squared error in each cluster but for the squares of the row, and the size of its terms."""
    squares, products = counts @ (core**2).T, sums @ core.T
    size = squares + 2.0 * (np.abs(sums) @ np.abs(core).T)
    return squares - 2.0 * products, size.max(axis=1)


def _lowest(scores: Floats, size: Floats) -> Labels:
    """The first of the lowest scores up to rounding."""
    within = scores.min(axis=1) + _ROUNDING * size
    found: Labels = np.argmax(scores <= within[:, None], axis=1)
    return found


def _refilled(labels: Labels, n: int, scores: Floats, entries: Entries, *, by_row: bool) -> Labels:
    """Labels in which empty clusters have a row (or column) each, of those that are fitted worst."""
    sizes = np.bincount(labels, minlength=n)
    empty = np.flatnonzero(sizes == 0)
    if not len(empty):
        return labels
    if by_row:
        square = row_squares(entries.X)
        importance = entries.weight
    else:
        squares = entries.X.multiply(entries.X) if is_sparse(entries.X) else entries.X**2
        square = np.asarray(squares.T @ entries.weight).ravel()
        importance = np.ones(len(labels))
    errors = importance * (square + scores[np.arange(len(labels)), labels])
    noticeable = errors > 1e-9 * np.sum(importance * square)
    labels, sizes = labels.copy(), sizes.copy()
    for worst in np.argsort(-errors, kind="stable"):
        if not len(empty) or not noticeable[worst]:
            break
        if sizes[labels[worst]] > 1:
            sizes[labels[worst]] -= 1
            labels[worst], empty = empty[0], empty[1:]
    return labels


def _cost(entries: Entries, blocks: Blocks, sums: Floats, counts: Floats) -> float:
    W = blocks.core
    error = 0.5 * (entries.square - 2.0 * float(np.vdot(sums, W)) + float(np.vdot(counts, W**2)))
    if is_sparse(entries.X) or error > 1e-4 * entries.square:
        return max(error, 0.0)
    difference = entries.X - W[np.ix_(blocks.rows, blocks.columns)]  # where most digits of the sum cancel
    if entries.observed is not None:
        difference *= entries.observed
    return 0.5 * float(entries.weight @ np.sum(difference**2, axis=1))
