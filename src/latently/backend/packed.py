"""Many small symmetric matrices, stored entry by entry: one array per entry, not per matrix.

A library factorisation of one 10 x 10 matrix is mostly overhead. Here every operation is vectorised over all
matrices. The lower triangle is packed column by column: q (q + 1) / 2 entries, each of any shape.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import (
    Array,
    Floats,
    empty,
    is_numpy,
    is_torch,
    like,
    minus_product,
    multiply_into,
    namespace,
)

_AT_ONCE = 24  # factors of a product that neither overflows nor underflows


def pairs(q: int) -> list[tuple[int, int]]:
    """Row and column of each packed entry."""
    return [(i, j) for j in range(q) for i in range(j, q)]


def cholesky(S: Array, q: int) -> list[Array]:
    """Columns (q - j, ...) of the Cholesky factors of packed matrices (q (q + 1) / 2, ...)."""
    xp = namespace(S)
    columns: list[Array] = []
    start = 0
    for j in range(q):
        column = S[start : start + q - j, ...]
        start += q - j
        for m, earlier in enumerate(columns):
            below = earlier[j - m :, ...]
            column = minus_product(column, below, below[0, ...])
        columns.append(column / xp.sqrt(column[0, ...]))
    return columns


def log_determinant(columns: list[Array]) -> Array:
    """ln |C C'| of factors C, whose diagonals lie well between 1e-9 and 1e9."""
    xp = namespace(columns[0])
    total = xp.zeros_like(columns[0][0, ...])
    for i in range(0, len(columns), _AT_ONCE):  # logarithms are expensive, products are not
        product = columns[i][0, ...]
        for column in columns[i + 1 : i + _AT_ONCE]:
            product = product * column[0, ...]
        total = total + xp.log(product)
    return 2.0 * total


def forward(columns: list[Array], b: Array) -> Array:
    """C^-1 b for b (q, ...)."""
    xp = namespace(b)
    solved: list[Array] = []
    for column in columns:
        y = b[0, ...] / column[0, ...]
        solved.append(y)
        b = minus_product(b[1:, ...], column[1:, ...], y)
    return xp.stack(solved)


def backward(columns: list[Array], y: Array) -> Array:
    """C'^-1 y for y (q, ...)."""
    xp = namespace(y)
    solved: list[Array] = []
    for j in reversed(range(len(columns))):
        z = y[j, ...]
        for below, earlier in enumerate(reversed(solved), 1):
            z = minus_product(z, columns[j][below, ...], earlier)
        solved.append(z / columns[j][0, ...])
    return xp.stack(solved[::-1])


def inverse(columns: list[Array]) -> Array:
    """(C C')^-1, packed."""
    xp = namespace(columns[0])
    q = len(columns)
    inverted = []  # columns of C^-1
    for j in range(q):
        ones = xp.ones_like(columns[j][:1, ...])
        unit = xp.concat([ones, xp.zeros_like(columns[j][1:, ...])])
        inverted.append(forward(columns[j:], unit))
    return xp.stack([xp.sum(inverted[i] * inverted[j][i - j :, ...], axis=0) for i, j in pairs(q)])


def with_products(p: Array, *others: Array | float) -> Array:
    """(q (q + 1) / 2 + q + len(others), n): packed products of the rows of p (q, n), then p, then others."""
    xp, (q, n) = namespace(p), p.shape
    if not (is_numpy(p) or is_torch(p)):
        last = [xp.reshape(xp.zeros_like(p[0, :]) + other, (1, n)) for other in others]
        return xp.concat([*(p[j:, :] * p[j, :] for j in range(q)), p, *last])
    rows, start = empty((q * (q + 3) // 2 + len(others), n), p), 0
    for j in range(q):
        multiply_into(rows[start : start + q - j, :], p[j:, :], p[j, :])
        start += q - j
    rows[start : start + q, :] = p
    for i, other in enumerate(others, start + q):
        rows[i, :] = other
    return rows


def packed(stack: Array, q: int, diagonal: float, others: float) -> Array:
    """(..., q (q + 1) / 2) from symmetric matrices (..., q, q), with a factor for the diagonal."""
    xp = namespace(stack)
    entries = xp.reshape(stack, (*stack.shape[:-2], q * q))
    places, factors = _lower(q, diagonal, others)
    if is_numpy(stack):
        return entries.take(places, -1) * factors
    return xp.take(entries, like(places, stack), axis=-1) * like(factors, stack)


def unpacked(S: Array, q: int) -> Array:
    """(..., q, q) from (q (q + 1) / 2, ...)."""
    xp = namespace(S)
    if q == 0:
        return xp.reshape(S, (*S.shape[1:], 0, 0))
    entries = xp.take(S, like(_places(q), S), axis=0)  # (q q, ...)
    return xp.reshape(xp.moveaxis(entries, 0, -1), (*S.shape[1:], q, q))


@cache
def _lower(q: int, diagonal: float, others: float) -> tuple[NDArray[np.int64], Floats]:
    """Where packed entries are in a matrix, row by row, and their factors."""
    rows, columns = np.array(pairs(q), dtype=np.int64).reshape(-1, 2).T
    return rows * q + columns, np.where(rows == columns, diagonal, others)


@cache
def _places(q: int) -> NDArray[np.int64]:
    """(q q,) where the entries of a matrix, row by row, are packed."""
    where = {pair: p for p, pair in enumerate(pairs(q))}
    return np.array([where[max(i, j), min(i, j)] for i in range(q) for j in range(q)])
