"""Where co-clusterings start: k-means of the rows and of the columns, both in a few leading directions.

Power iterations give the leading singular vectors, in which k-means is quick and hardly worse. Of the starts
every second one clusters directions (rows of unit length), which suits rows of very different size. Nothing
depends on the order of rows, nor on whether a row is given twice or with weight two.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.hashing import row_hashes
from latently.distributions.nonnegative import added_up, against

INITS = ("kmeans", "random")
_MORE = 4  # additional directions, which improve the leading ones
_POWERS = 2
_DIGITS = 9  # of coordinates, by which equal rows are found
_IN_VAIN = 2  # starts in a row that others have found before

Labels = NDArray[np.int64]
Floats = NDArray[np.float64]
Pair = tuple[Labels, Labels]


@dataclass(frozen=True)
class Plane:
    """The leading singular directions of a matrix, which is about `rows @ directions.T`."""

    rows: Floats  # (n, r)
    directions: Floats  # (D, r), orthonormal
    scales: Floats  # (r,) singular values


def plane(X: Any, weight: Any, sizes: tuple[int, int], rng: Any) -> Plane:
    """The leading directions of X (n, D): a few more than products of factors of these sizes have."""
    D = X.shape[1]
    rank = min(max(sizes) + _MORE, D)
    Q = np.linalg.qr(rng.standard_normal((D, rank)))[0] if rank < D else np.eye(D)
    for _ in range(_POWERS if rank < D else 0):
        Q = np.linalg.qr(_pulled_back(X, weight, Q))[0]
    image = against(Q.T, X).T
    squares, directions = np.linalg.eigh(image.T @ (image * weight[:, None]))
    return Plane(image @ directions, Q @ directions, np.sqrt(np.clip(squares, 0.0, None)))


def labels(found: Plane, weight: Any, sizes: tuple[int, int], init: str, rng: Any) -> Iterator[Pair]:
    """Different starting labels of the rows and of the columns, without end unless chance repeats itself.

    Rows have positive weight (n,); `sizes` are the numbers of clusters.
    """
    draw = _by_chance if init == "random" else _by_means
    seen: set[bytes] = set()
    in_vain = 0
    for pair in draw(found, weight, sizes, rng):
        key = b"".join(_in_order_of_appearance(one).tobytes() for one in pair)
        in_vain = in_vain + 1 if key in seen else 0
        if in_vain >= _IN_VAIN:
            return
        if key not in seen:
            seen.add(key)
            yield pair


def _by_chance(found, weight, sizes, rng):
    first, number = _distinct(found.rows)
    while True:
        yield (
            rng.randint(sizes[0], size=len(first))[number],
            rng.randint(sizes[1], size=len(found.directions)),
        )


def _distinct(rows):
    """The first of equal rows, in an order that depends on their values alone; and which each row equals."""
    # they are equal up to rounding, which depends on where they stand
    rounded = np.round(rows / (np.abs(rows).max() or 1.0), _DIGITS)
    _, first, number = np.unique(row_hashes(rounded), return_index=True, return_inverse=True)
    return first, number


def _by_means(found, weight, sizes, rng):
    rows, columns = found.rows, found.directions * found.scales
    first, number = _distinct(rows)
    weights = np.bincount(number, weight)
    number_of_start = 0
    while True:
        unit = number_of_start % 2 == 1
        by_row = _clusters(rows[first], weights, sizes[0], unit, rng)[number]
        yield by_row, _clusters(columns, np.ones(len(columns)), sizes[1], unit, rng)
        number_of_start += 1


def _pulled_back(X, weight, Q):
    return added_up(against(Q.T, X) * weight, X).T


def _clusters(points, weight, n_clusters, unit, rng):
    """Labels of the points by k-means; those at zero, such as rows without entries, take no part in it."""
    from sklearn.cluster import KMeans  # here, because it takes a tenth of a second
    from sklearn.exceptions import ConvergenceWarning

    length = np.linalg.norm(points, axis=1)
    used = length > 1e-12 * length.max(initial=0.0)
    found = np.zeros(len(points), dtype=np.int64)
    if not used.any():
        return found
    chosen = points[used] / (length[used, None] if unit else 1.0)
    model = KMeans(min(n_clusters, len(chosen)), n_init=1, random_state=rng.randint(2**31 - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters
        found[used] = model.fit(chosen, sample_weight=weight[used]).labels_
    return found


def _in_order_of_appearance(found):
    """The same partition, with clusters numbered in the order in which they appear."""
    _, first, number = np.unique(found, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number].astype(np.int64)
