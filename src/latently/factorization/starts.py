"""Starting values of a non-negative factorisation: singular vectors, random draws, or clusters of rows.

All but clusters use sums over rows only, so they depend neither on the order or device of the rows nor on
whether a row is given twice or with weight two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latently.backend.namespace import device, double, is_floating, is_sparse, like, namespace, to_numpy
from latently.distributions.nonnegative import added_up, against, known_in, rows_of, seen_in, weighted
from latently.estimators.memory import check_parameters_fit

INITS = ("nndsvd", "nndsvda", "nndsvdar", "random", "kmeans")
_MORE = 10  # additional directions, which improve the accuracy of the leading ones
_POWERS = 4
_ZERO = 1e-6  # entries below this fraction of the largest are zero up to rounding,
_RANK = 1e-6  # and singular values below this fraction of the largest are zero
_ROWS_FOR_CLUSTERS = 10000
_LARGEST, _LARGEST_SINGLE = 1e150, 1e15  # whose squares are still finite


# -- totals over the rows -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Totals:
    """Weighted sums over all observed entries."""

    weight: float
    seen: Any  # (D,): weight of the rows in which the feature is observed
    total: Any  # (D,): x
    square: float  # x^2
    constant: float  # what the loss takes from the entries alone
    lowest: float
    largest: float

    def mean(self):
        """(D,) mean of each feature, in main memory."""
        seen = to_numpy(self.seen)
        return to_numpy(self.total) / np.where(seen > 0, seen, 1.0)


def no_loss(X):
    """The part of the loss that comes from entries alone, for models that do not ask for it."""
    return 0.0 * X


def checked_totals(model, data, *, positive, of_entries=no_loss, largest_power=2.0):
    """Sums over all entries; an error if the rows cannot be factorised, with or without negative entries.

    `of_entries` is the part of the loss that comes from entries alone, and `largest_power` the largest of the
    entries, or of their inverses, that the loss takes.
    """
    rows = data.X.shape[0] if data.in_memory else 0
    check_parameters_fit(
        model, data.n_features, {"activations_": (rows, model.n_components or data.n_features)}
    )
    with np.errstate(over="ignore", invalid="ignore"):
        found = totals_of(data, of_entries, model.block_size)
    if found is None:
        raise ValueError("every entry of X is missing (NaN), so there is nothing to learn from")
    extent = found.lowest, found.largest, to_numpy(found.seen)
    check_extent(model, *extent, positive=positive, single=is_single(data), largest_power=largest_power)
    return found


def totals_of(data, of_entries, block_size):
    """Sums over all entries of rows that were checked."""
    sweep = data.sweep(None, floats_per_row=4 * data.n_features, block_size=block_size)
    return sweep.reduce(totals, both, of_entries)


def check_extent(model, lowest, largest, seen, *, positive, single=False, largest_power=2.0):
    """An error if rows with these extremes and these sums of observed entries cannot be factorised."""
    if positive and lowest < 0:
        raise ValueError(
            f"Negative values in data passed to {type(model).__name__}: X holds {lowest:.6g}, but "
            f"sums of non-negative parts are never negative; shift or clip X, or use {_cure(model)}"
        )
    most = (_LARGEST_SINGLE if single else _LARGEST) ** (2.0 / largest_power)
    extreme = max(largest, -lowest)
    if not extreme < most:
        raise ValueError(
            f"Input X contains infinity or a value too large: {extreme:.6g}; rescale X, or use "
            "float64 instead of float32"
        )
    if 0 < extreme < 1 / most:
        raise ValueError(
            f"X has no entry above {extreme:.6g}, whose powers underflow; rescale X, or use "
            "float64 instead of float32"
        )
    if not np.all(seen > 0):
        raise ValueError(f"feature {np.argmin(seen)} of X is missing (NaN) in every row; drop it")


def squares_about(mean, block):
    """Weighted sum of the squares of the observed entries about the means (D,) of their features."""
    X = rows_of(block)
    xp = namespace(mean)
    X = double(like(X.toarray(), mean) if is_sparse(X) else X) - mean
    squares, seen = X**2, seen_in(block, X)
    return float(xp.sum(weighted((squares if seen is None else squares * seen).T, block.weight)))


def _cure(model):
    if hasattr(model, "constraint"):
        return 'constraint="unconstrained"'
    return "FastNMTF" if hasattr(model, "n_row_clusters") else "PCA"


def is_single(data):
    """Whether products are computed in float32; not for files, whose blocks may differ in dtype."""
    return data.in_memory and str(data.X.dtype).endswith("float32")


def totals(of_entries, block):
    X = rows_of(block)
    if is_sparse(X):
        return _sparse_totals(of_entries, X, block.weight)
    xp = namespace(X)
    X = double(X)
    n, D = X.shape
    weight = xp.ones((n,), dtype=xp.float64, device=device(X)) if block.weight is None else block.weight
    counts = seen_in(block, X)
    if counts is None:
        seen = xp.zeros((D,), dtype=xp.float64, device=device(X)) + xp.sum(weight)
        counted, of_square, constant, low = X, X * X, of_entries(X), X
    else:
        seen = weight @ counts
        counted, of_square, constant = X * counts, X * X * counts, of_entries(X) * counts
        low = xp.where(known_in(block), X, xp.inf)
    constant, square = (float(weight @ xp.sum(terms, axis=1)) for terms in (constant, of_square))
    bounds = float(xp.min(low)), float(xp.max(X))
    return Totals(float(xp.sum(weight)), seen, weight @ counted, square, constant, *bounds)


def _sparse_totals(of_entries, X, weight):
    n, D = X.shape
    weight = np.ones(n) if weight is None else weight
    values = X.data.astype(np.float64)
    by_value = np.repeat(weight, np.diff(X.indptr))
    return Totals(
        float(weight.sum()),
        np.full(D, weight.sum()),
        np.asarray(weight @ X, dtype=np.float64),
        float(by_value @ values**2),
        float(by_value @ of_entries(values)),
        float(values.min(initial=0.0 if len(values) < n * D else np.inf)),
        float(values.max(initial=0.0)),
    )


def both(a, b):
    return Totals(
        a.weight + b.weight,
        a.seen + b.seen,
        a.total + b.total,
        a.square + b.square,
        a.constant + b.constant,
        min(a.lowest, b.lowest),
        max(a.largest, b.largest),
    )


# -- starts -------------------------------------------------------------------------------------------


def components(init, sweep, found, n_components, rng, place, exact=False):
    """(r, D) components in main memory; `place` is an array on the device of the rows.

    With `exact`, products with float32 rows are in float64, for models that compute in float64 themselves.
    """
    mean = found.mean()
    if init == "kmeans":
        return _clusters(sweep, n_components, mean, rng)
    sizes = np.abs(rng.standard_normal((n_components, len(mean))))
    by_chance = np.sqrt(max(mean.mean(), 0.0) / n_components) * sizes
    if init == "random":
        return by_chance
    A = _singular_parts(sweep, n_components, mean, rng, place, exact)
    A = np.concatenate([A, by_chance[len(A) :]])
    dead = ~A.any(axis=1)
    A[dead] = by_chance[dead]
    filling = {"nndsvd": 0.0, "nndsvda": A.mean(), "nndsvdar": 0.01 * A.mean() * sizes}[init]
    return np.where(A.max() * _ZERO < A, A, filling)


def _singular_parts(sweep, n_components, mean, rng, place, exact):
    """The dominant non-negative part of each leading pair of singular vectors (Boutsidis & Gallopoulos 2008).

    Zero for pairs beyond the rank; at most as many as features.
    """
    D = len(mean)
    n_components = min(n_components, D)
    Q = np.linalg.qr(rng.standard_normal((D, min(D, n_components + _MORE))))[0]
    mean = like(mean, place)
    for _ in range(_POWERS):
        Q = np.linalg.qr(to_numpy(sweep.sum(_applied, like(Q, place), mean, exact)))[0]
    image = to_numpy(sweep.sum(_applied, like(Q, place), mean, exact))
    values, vectors = np.linalg.eigh(0.5 * (Q.T @ image + image.T @ Q))
    there = values[::-1][:n_components] > _RANK**2 * max(values[-1], 0.0)
    V = (Q @ vectors[:, ::-1][:, :n_components]).T  # (r, D)
    V *= np.where(V.sum(axis=1) < 0, -1.0, 1.0)[:, None]
    sides = to_numpy(sweep.sum(_sides, like(V, place), mean, exact))  # (2, r)
    positive, negative = np.maximum(V, 0.0), np.maximum(-V, 0.0)
    norms = np.sqrt(sides * [np.sum(positive**2, axis=1), np.sum(negative**2, axis=1)])
    dominant = norms[0] >= norms[1]
    chosen = np.where(dominant[:, None], positive, negative)
    size = np.linalg.norm(chosen, axis=1, keepdims=True)
    strength = np.sqrt(np.maximum(norms.max(axis=0), 0.0))[:, None]
    return np.where(there[:, None] & (size > 0), strength * chosen / np.where(size > 0, size, 1.0), 0.0)


def _filled(mean, block, exact=False):
    """Rows with missing entries imputed by the means of their features."""
    X = rows_of(block)
    if exact and not is_sparse(X):
        X = double(X)
    if block.observed is None:
        return X
    xp = namespace(X)
    return xp.where(known_in(block), X, xp.astype(mean, X.dtype))


def _applied(Q, mean, exact, block):
    """(D, p): sum of x x' Q."""
    X = _filled(mean, block, exact)
    Q = Q if is_sparse(X) else namespace(Q).astype(Q, X.dtype, copy=False)
    return double(added_up(weighted(against(Q.T, X), block.weight), X).T)


def _sides(V, mean, exact, block):
    """(2, r): sums of (v x)^2 over rows where it is positive, and where negative."""
    X = _filled(mean, block, exact)
    xp = namespace(V)
    scores = double(against(V if is_sparse(X) else xp.astype(V, X.dtype, copy=False), X))
    squares = weighted(scores**2, block.weight)
    return xp.stack(
        [
            xp.sum(xp.where(scores > 0, squares, 0.0), axis=1),
            xp.sum(xp.where(scores < 0, squares, 0.0), axis=1),
        ]
    )


def _clusters(sweep, n_components, mean, rng):
    """Cluster centres of a sample of rows."""
    from sklearn.cluster import KMeans  # here, because it takes a tenth of a second

    rows = np.concatenate(list(sweep.rows(_plain_rows, mean)))
    n = len(rows)
    if n > _ROWS_FOR_CLUSTERS:
        rows = rows[np.sort(rng.choice(n, _ROWS_FOR_CLUSTERS, replace=False))]
    distinct = np.unique(rows, axis=0)
    k = min(n_components, len(distinct))
    seed = int(rng.integers(2**31 - 1))
    centres = KMeans(k, n_init=1, random_state=seed).fit(rows).cluster_centers_
    more = np.maximum(mean, 0.0) * rng.uniform(0.5, 1.5, size=(n_components - k, len(mean)))
    return np.maximum(np.concatenate([centres, more]), 0.0) + 1e-3 * max(mean.mean(), 0.0)


def _plain_rows(mean, block):
    X = _filled(mean, block) if block.observed is None else _filled(like(mean, block.X), block)
    return X.toarray() if is_sparse(X) else to_numpy(X if is_floating(X) else double(X))
