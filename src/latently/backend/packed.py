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
    add_product,
    constant,
    empty,
    is_numpy,
    is_torch,
    minus_product,
    multiply_into,
    namespace,
    zeros,
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
    """(C C')^-1, packed: the sum of r r' over the rows r of C^-1."""
    q, shape = len(columns), columns[0].shape[1:]
    total = zeros((q * (q + 1) // 2, *shape), columns[0])
    rows: list[Array] = []  # (k + 1, ...), up to the diagonal
    for k in range(q):
        row, start = zeros((k + 1, *shape), columns[0]), 0
        row[k, ...] = 1.0
        for m, earlier in enumerate(rows):
            add_product(row[: m + 1, ...], earlier, columns[m][k - m, ...], negative=True)
        row /= columns[k][0, ...]
        for j in range(k + 1):
            add_product(total[start : start + k + 1 - j, ...], row[j:, ...], row[j, ...])
            start += q - j
        rows.append(row)
    return total


def products(a: Array, b: Array) -> Array:
    """(q (q + 1) / 2, ...) the products a_i b_j, packed, of the rows of a and b (q, ...)."""
    q = a.shape[0]
    if not (is_numpy(a) or is_torch(a)):
        return namespace(a).concat([a[j:, ...] * b[j, ...] for j in range(q)])
    rows = empty((q * (q + 1) // 2, *a.shape[1:]), a)
    _write_products(rows, a, b)
    return rows


def with_products(p: Array, *others: Array | float) -> Array:
    """(q (q + 1) / 2 + q + len(others), n): packed products of the rows of p (q, n), then p, then others."""
    xp, (q, n) = namespace(p), p.shape
    if not (is_numpy(p) or is_torch(p)):
        last = [xp.reshape(xp.zeros_like(p[0, :]) + other, (1, n)) for other in others]
        return xp.concat([products(p, p), p, *last])
    start = q * (q + 1) // 2
    rows = empty((start + q + len(others), n), p)
    _write_products(rows[:start, :], p, p)
    rows[start : start + q, :] = p
    for i, other in enumerate(others, start + q):
        rows[i, :] = other
    return rows


def _write_products(out: Array, a: Array, b: Array) -> None:
    """Write `products` to an array."""
    q, start = a.shape[0], 0
    for j in range(q):
        multiply_into(out[start : start + q - j, ...], a[j:, ...], b[j, ...])
        start += q - j


def packed(stack: Array, q: int, diagonal: float, others: float) -> Array:
    """(..., q (q + 1) / 2) from symmetric matrices (..., q, q), with a factor for the diagonal."""
    xp = namespace(stack)
    entries = xp.reshape(stack, (*stack.shape[:-2], q * q))
    places = constant(stack, _lower_places, q)
    factors = constant(stack, _lower_factors, q, diagonal, others)
    return xp.take(entries, places, axis=-1) * factors


def unpacked(S: Array, q: int) -> Array:
    """(..., q, q) from (q (q + 1) / 2, ...)."""
    xp = namespace(S)
    if q == 0:
        return xp.reshape(S, (*S.shape[1:], 0, 0))
    entries = xp.take(S, constant(S, _places, q), axis=0)  # (q q, ...)
    return xp.reshape(xp.moveaxis(entries, 0, -1), (*S.shape[1:], q, q))


@cache
def apart(q: int) -> Floats:
    """(T,) one for entries off the diagonal, else zero."""
    return np.where(_rows(q) == _columns(q), 0.0, 1.0)


def entries(vectors: Array) -> tuple[Array, Array]:
    """(..., T) entry i of vectors (..., q), and entry j, for all packed (i, j)."""
    xp, q = namespace(vectors), vectors.shape[-1]
    return (
        xp.take(vectors, constant(vectors, _rows, q), axis=-1),
        xp.take(vectors, constant(vectors, _columns, q), axis=-1),
    )


@cache
def _rows(q: int) -> NDArray[np.int64]:
    return np.array([i for i, _ in pairs(q)], dtype=np.int64)


@cache
def _columns(q: int) -> NDArray[np.int64]:
    return np.array([j for _, j in pairs(q)], dtype=np.int64)


@cache
def _lower_places(q: int) -> NDArray[np.int64]:
    """Where packed entries are in a matrix, row by row."""
    return _rows(q) * q + _columns(q)


@cache
def _lower_factors(q: int, diagonal: float, others: float) -> Floats:
    return np.where(_rows(q) == _columns(q), diagonal, others)


@cache
def _places(q: int) -> NDArray[np.int64]:
    """(q q,) where the entries of a matrix, row by row, are packed."""
    where = {pair: p for p, pair in enumerate(pairs(q))}
    return np.array([where[max(i, j), min(i, j)] for i in range(q) for j in range(q)])
