"""k-means of the same rows several times at once: with other units of the features, rows and seeds.

S runs, K centres each, n rows, D features. With units u (D,) and centres c in the units of the rows,

    sum_d u_d^2 (x_d - c_d)^2  =  sum_d u_d^2 x_d^2  -  2 sum_d (u_d^2 c_d) x_d  +  sum_d u_d^2 c_d^2,

so one product of the rows with S K centres gives all distances, and one more all new centres.
Missing entries have no distance, and centres are the means of what was observed. Seeds are drawn as by greedy
k-means++ (Arthur & Vassilvitskii, 2007). A row of weight two counts as two equal rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from latently.backend.namespace import Array, Floats, is_numpy, like, namespace, ones, to_numpy

Labels = NDArray[np.int64]
MOST_STEPS = 100
_NUMBERS = 4_000_000  # rows times centres at once
_NUMBERS_ON_DEVICE = 100_000_000


@dataclass(frozen=True)
class Task:
    """One run of k-means; rows of zero weight join the nearest centre and have no effect."""

    weight: Floats  # (n,)
    units: Floats  # (D,)
    seed: int
    n_steps: int = MOST_STEPS  # none: rows join the nearest seed


def kmeans(X: Array, tasks: Sequence[Task], n_centres: int, observed: Array | None = None) -> list[Labels]:
    """Labels (n,) of every run; missing entries of X are zero. Distances are computed where X is."""
    n_at_once = max(1, (_NUMBERS if is_numpy(X) else _NUMBERS_ON_DEVICE) // (X.shape[0] * n_centres))
    groups = [tasks[i : i + n_at_once] for i in range(0, len(tasks), n_at_once)]
    return [labels for group in groups for labels in to_numpy(_together(X, group, n_centres, observed))]


def _together(X: Array, tasks: Sequence[Task], K: int, observed: Array | None) -> Array:
    """(S, n) labels."""
    xp = namespace(X)
    seen = None if observed is None else xp.astype(observed, X.dtype)
    weight = like(np.stack([task.weight for task in tasks]), X)
    units = np.stack([task.units for task in tasks])
    # a common factor changes no distance beside another; this one loses no digit, and keeps squares finite
    _, exponents = np.frexp(np.max(units, axis=1, keepdims=True))
    metric = like(np.ldexp(units, -exponents) ** 2, X)
    labels = _nearest(X, metric, _seeds(X, weight, metric, [task.seed for task in tasks], K), seen)
    n_steps = np.array([task.n_steps for task in tasks])
    going = np.flatnonzero(n_steps > 0)
    for number in range(1, int(n_steps.max()) + 1):
        if len(going) == 0:
            break
        own = like(going, X)
        own_weight, own_metric, before = (xp.take(array, own, axis=0) for array in (weight, metric, labels))
        centres, before = _means(X, own_weight, own_metric, before, K, seen)
        moved = _nearest(X, own_metric, centres, seen)
        changed = to_numpy(xp.any((moved != before) & (own_weight > 0), axis=1))
        labels[own, ...] = moved
        going = going[changed & (n_steps[going] > number)]
    return labels


def _nearest(X: Array, metric: Array, centres: Array, seen: Array | None) -> Array:
    """(S, n) the nearest of the centres (S, K, D)."""
    xp, (S, K, D) = namespace(X), centres.shape
    scaled = metric[:, None, :] * centres
    lengths = xp.reshape(0.5 * scaled * centres, (S * K, D))
    closeness = xp.reshape(scaled, (S * K, D)) @ X.T
    closeness -= xp.sum(lengths, axis=1)[:, None] if seen is None else lengths @ seen.T
    return _largest(xp.reshape(closeness, (S, K, X.shape[0])))


def _largest(numbers: Array) -> Array:
    """argmax over the second of three axes, several times faster than NumPy's."""
    if not is_numpy(numbers):
        return namespace(numbers).argmax(numbers, axis=1)
    most, labels = numbers[:, 0].copy(), np.zeros((numbers.shape[0], numbers.shape[2]), dtype=np.int64)
    for k in range(1, numbers.shape[1]):
        np.copyto(labels, k, where=numbers[:, k] > most)
        np.maximum(most, numbers[:, k], out=most)
    return labels


def _means(
    X: Array, weight: Array, metric: Array, labels: Array, K: int, seen: Array | None
) -> tuple[Array, Array]:
    """(S, K, D) the means of the parts, and labels; an empty part takes the row farthest from its mean."""
    xp, (S, n) = namespace(X), labels.shape
    own = _memberships(labels, weight, K)
    totals = own @ ones((n,), X)
    counts = totals[:, None] if seen is None else own @ seen
    means = xp.reshape(own @ X / xp.where(counts > 0, counts, 1.0), (S, K, X.shape[1]))
    for s, k in np.argwhere(to_numpy(totals).reshape(S, K) == 0):
        away = X - xp.take(means[s, ...], labels[s, :], axis=0)
        distance = (away * away if seen is None else away * away * seen) @ metric[s, :]
        farthest = int(xp.argmax(xp.where(weight[s, :] > 0, distance, -1.0)))
        means[s, k, :] = X[farthest, :]
        labels[s, farthest] = k
    return means, labels


def _memberships(labels: Array, weight: Array, K: int) -> Array:
    """(S K, n) the weight of every row in its part of each run; a sparse matrix in main memory."""
    xp, (S, n) = namespace(weight), labels.shape
    if not is_numpy(weight):
        parts = like(np.arange(K), labels)
        return xp.reshape(xp.where(labels[:, None, :] == parts[:, None], weight[:, None, :], 0.0), (S * K, n))
    flat = (labels + K * np.arange(S)[:, None]).T.reshape(-1)  # one entry for each run in every column
    return sparse.csc_array((weight.T.reshape(-1), flat, S * np.arange(n + 1)), shape=(S * K, n))


def _seeds(X: Array, weight: Array, metric: Array, seeds: Sequence[int], K: int) -> Array:
    """(S, K, D) rows far from one another; of a few candidates the one that leaves the least distance."""
    xp, (S, D), n = namespace(X), metric.shape, X.shape[0]
    T = 2 + int(math.log(K))
    draws = like(np.stack([np.random.default_rng(seed).random((K, T)) for seed in seeds]), X)
    squares = metric @ (X * X).T  # (S, n)
    centres = []
    every, closest = like(np.arange(S), X), None
    for k in range(K):
        chosen = _drawn(weight if closest is None else weight * closest, draws[:, k, : T if k else 1])
        rows = xp.reshape(xp.take(X, xp.reshape(chosen, (-1,)), axis=0), (S, -1, D))  # T of them
        scaled = rows * metric[:, None, :]
        distance = xp.reshape(xp.reshape(-2.0 * scaled, (-1, D)) @ X.T, (S, -1, n)) + squares[:, None, :]
        distance += xp.sum(scaled * rows, axis=2)[:, :, None]
        distance = xp.clip(distance, min=0.0)
        if closest is not None:
            distance = xp.minimum(distance, closest[:, None, :])
        best = xp.argmin((distance @ weight[:, :, None])[:, :, 0], axis=1)
        centres.append(rows[every, best, ...])
        closest = distance[every, best, ...]
    return xp.stack(centres, axis=1)


def _drawn(chance: Array, draws: Array) -> Array:
    """(S, T) rows with probabilities proportional to their chance (S, n), for draws between 0 and 1."""
    xp, (S, n) = namespace(chance), chance.shape
    cumulated = xp.cumulative_sum(chance, axis=1)
    found = [xp.searchsorted(cumulated[s, :], draws[s, :] * cumulated[s, -1], side="right") for s in range(S)]
    return xp.clip(xp.stack(found), max=n - 1)
