"""Quadratic forms of many components as one product: x'Ax + b'x + c is linear in the products of features.

With the products x_i x_j of all rows side by side, then the features and one, log densities of K Gaussians
are one product of K rows of coefficients with them, and all second moments are one product with the
responsibilities: half of the operations of whitened rows, and no other pass over K arrays of rows. To write
the products down takes as long as about D / 10 components, so it pays on accelerators with many components.

Features are taken in some groups, each with all features from its first one on, so that a few calls make all
products; those within a group come twice. Quadratic forms lose the digits of large terms that cancel, hence
`MOST_PRECISE`.
"""

from __future__ import annotations

from collections.abc import Iterator

from latently.backend.namespace import Array, contiguous, empty, multiply_into, namespace, zeros
from latently.backend.placement import on_device

MOST_PRECISE = 1e8  # largest sum of squares of a whitening factor: relative to the data, of 1 / variances
_GROUPS = 8
_FEATURES_OF_ONE = 10  # from one component for so many features on it pays


def pays(K: int, D: int, array: Array) -> bool:
    return on_device(array) and _FEATURES_OF_ONE * K >= D


def n_terms(D: int) -> int:
    """How many terms a row has."""
    return sum((end - start) * (D - start) for start, end in _groups(D)) + D + 1


def terms(X: Array) -> Array:
    """(M, n) the terms of rows (n, D): products of features, features, and one."""
    n, D = X.shape
    found = empty((n_terms(D), n), X)
    columns, at = contiguous(X.T), 0
    for start, end in _groups(D):
        size = (end - start) * (D - start)
        own = found[at : at + size, :].reshape(end - start, D - start, n)
        multiply_into(own, columns[start:end, None, :], columns[None, start:, :])
        at += size
    found[at:-1, :] = columns
    found[-1, :] = 1.0
    return found


def coefficients(A: Array, b: Array, c: Array) -> Array:
    """(K, M) of x'Ax + b'x + c, for symmetric matrices A (K, D, D), b (K, D) and c (K,)."""
    xp, (K, D) = namespace(A), b.shape
    parts = []
    for start, end in _groups(D):
        later = 2.0 * A[:, start:end, end:]  # its mirror image is not among the products
        parts.append(xp.reshape(xp.concat([A[:, start:end, start:end], later], axis=2), (K, -1)))
    return xp.concat([*parts, b, c[:, None]], axis=1)


def moments(sums: Array, D: int) -> tuple[Array, Array]:
    """(K, D) and (K, D, D): the sums of x and of x x', from sums of terms (K, M)."""
    K, at = sums.shape[0], 0
    second = zeros((K, D, D), sums)
    for start, end in _groups(D):
        size = (end - start) * (D - start)
        own = sums[:, at : at + size].reshape(K, end - start, D - start)
        second[:, start:end, start:] = own
        second[:, start:, start:end] = own.mT
        at += size
    return sums[:, at:-1], second


def _groups(D: int) -> Iterator[tuple[int, int]]:
    width = -(-D // _GROUPS)
    return ((start, min(start + width, D)) for start in range(0, D, width))
