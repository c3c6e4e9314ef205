"""Starting layers of a non-linear factorisation: principal axes, non-negative parts, or random ones.

Without constraints, penalties and labels, principal axes that are scaled until all sources are within the
range of the map already are the best factorisation. Like the starts of NMF these use sums over rows only.
"""

from __future__ import annotations

import numpy as np

from latently.backend.namespace import double, like, namespace, to_numpy
from latently.distributions.nonlinear import Layer
from latently.factorization import starts

# Features up to which the covariance is formed; beyond, axes are found by power iteration.
_COVARIANCE_OF = 2048
_MORE, _POWERS = 20, 8
_FILL = 0.9  # of the range of the map, which sources of the start take up
_RANK = 1e-12  # of the largest variance: a smaller one is rounding
_OFFSET = 0.05  # of the mean, for offsets of non-negative layers


def layer(terms, sweep, found, n_components, rng, place, *, by_chance, labelled):
    """Components (r, D) and offset (D,), on the device of `place`; the first start is not by chance."""
    make = _positive if terms.positive_parts else _free
    A, b = make(terms, sweep, found, n_components, rng, place, by_chance, labelled)
    return Layer(like(A, place), like(b, place))


def _free(terms, sweep, found, r, rng, place, by_chance, labelled):
    mean = found.mean()
    f, D = terms.mapping, len(mean)
    if by_chance:
        typical = np.sqrt(max(found.square / max(found.weight, 1e-300) / D - np.mean(mean**2), 1e-12))
        A = typical * rng.standard_normal((r, D)) * 2.0 / np.sqrt(r)
        return A, mean - f.zero * A.sum(axis=0)
    V = _axes(sweep, mean, r, rng, place)
    low, high = (to_numpy(part) for part in sweep.reduce(_ranges, _wider, like(V, place), like(mean, place)))
    centred = terms.alpha == 0 and f.high < np.inf
    centre = 0.5 * (low + high) if centred else np.zeros(len(V))
    reach = np.maximum(high - centre, centre - low)
    span = 1.0 if f.high == np.inf else f.high - f.zero
    A = V * (np.where(reach > 0, reach, 1.0) / (_FILL * span))[:, None]
    # beyond the rank of the rows nothing is left to explain; sparse sources or labels may want more than D
    # components
    wanted = len(A) and (terms.alpha > 0 or (labelled and r > D))
    size = 0.1 * np.sqrt(np.mean(A**2)) if wanted else 0.0
    A = np.concatenate([A, size * rng.standard_normal((r - len(A), D))])
    return A, mean + centre @ V - f.zero * A.sum(axis=0)


def _positive(terms, sweep, found, r, rng, place, by_chance, labelled):
    mean, f = found.mean(), terms.mapping
    A = starts.components("random" if by_chance else "nndsvda", sweep, found, r, rng, place, exact=True)
    A = np.maximum(A, 1e-4 * max(np.max(A), 1e-100))
    b = _OFFSET * mean
    A = A / np.sqrt(np.sum(A**2, axis=1, keepdims=True))
    _, high = sweep.reduce(_ranges, _wider, like(A, place), like(0.0 * mean, place))
    A = A * (np.maximum(to_numpy(high), 1e-100) / _FILL)[:, None]
    if (
        f.zero and terms.positive_sources
    ):  # the map is at least f(0), so that much of every component is in each row
        A = A * min(1.0, 0.5 * mean.sum() / max(f.zero * A.sum(), 1e-300))
    return A, b


def _axes(sweep, mean, r, rng, place):
    """(k, D) leading principal axes of the rows, k <= r of them with a variance."""
    D = len(mean)
    k = min(r, D)
    there = like(mean, place)
    if D <= _COVARIANCE_OF:
        values, vectors = np.linalg.eigh(to_numpy(sweep.sum(_scatter, there)))
    else:
        Q = np.linalg.qr(rng.standard_normal((D, min(D, k + _MORE))))[0]
        for _ in range(_POWERS):
            Q = np.linalg.qr(to_numpy(sweep.sum(_applied, like(Q, place), there)))[0]
        image = to_numpy(sweep.sum(_applied, like(Q, place), there))
        values, vectors = np.linalg.eigh(0.5 * (Q.T @ image + image.T @ Q))
        vectors = Q @ vectors
    V = vectors[:, ::-1][:, :k].T
    V = V[values[::-1][:k] > _RANK * max(values[-1], 1e-300)]
    largest = V[np.arange(len(V)), np.argmax(np.abs(V), axis=1)]
    return V * np.where(largest < 0, -1.0, 1.0)[:, None]


# -- functions of blocks ------------------------------------------------------------------------------


def _centred(mean, block):
    X = double(block.X) - mean
    return X if block.observed is None else namespace(X).where(block.observed, X, 0.0)


def _weighted(X, block):
    return X if block.weight is None else X * block.weight[:, None]


def _scatter(mean, block):
    """(D, D): sum of (x - m) (x - m)'."""
    X = _centred(mean, block)
    return _weighted(X, block).T @ X


def _applied(Q, mean, block):
    """(D, p): sum of (x - m) (x - m)' Q."""
    X = _centred(mean, block)
    return X.T @ (_weighted(X, block) @ Q)


def _ranges(V, mean, block):
    """(2, k): smallest and largest (x - m)'v, zero included."""
    scores = _centred(mean, block) @ V.T
    xp = namespace(scores)
    if not len(block):
        return xp.zeros_like(V[:, :2]).T
    return xp.stack([xp.clip(xp.min(scores, axis=0), max=0.0), xp.clip(xp.max(scores, axis=0), min=0.0)])


def _wider(a, b):
    xp = namespace(a)
    return xp.stack([xp.minimum(a[0, :], b[0, :]), xp.maximum(a[1, :], b[1, :])])
