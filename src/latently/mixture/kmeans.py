"""k-means of the same rows several times at once: with other units of the features, rows and seeds.

S runs, K centres each, n rows, D features. With units u (D,) and centres c in the units of the rows,

    sum_d u_d^2 (x_d - c_d)^2  =  sum_d u_d^2 x_d^2  -  2 sum_d (u_d^2 c_d) x_d  +  sum_d u_d^2 c_d^2,

so one product of the rows with S K centres gives all distances, and one sparse product all new centres.
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

from latently.backend.namespace import Floats

Labels = NDArray[np.int64]
MOST_STEPS = 100
_NUMBERS = 4_000_000  # rows times centres at once


@dataclass(frozen=True)
class Task:
    """One run of k-means; rows of zero weight join the nearest centre and have no effect."""

    weight: Floats  # (n,)
    units: Floats  # (D,)
    seed: int
    n_steps: int = MOST_STEPS  # none: rows join the nearest seed


def kmeans(
    X: Floats, tasks: Sequence[Task], n_centres: int, observed: NDArray[np.bool_] | None = None
) -> list[Labels]:
    """Labels (n,) of every run; missing entries of X are zero."""
    n_at_once = max(1, _NUMBERS // (len(X) * n_centres))
    groups = [tasks[i : i + n_at_once] for i in range(0, len(tasks), n_at_once)]
    return [labels for group in groups for labels in _together(X, group, n_centres, observed)]


def _together(
    X: Floats, tasks: Sequence[Task], K: int, observed: NDArray[np.bool_] | None
) -> NDArray[np.int64]:
    """(S, n) labels."""
    seen = None if observed is None else observed.astype(float)
    weight = np.stack([task.weight for task in tasks])
    metric = np.stack([task.units for task in tasks]) ** 2
    labels = _nearest(X, metric, _seeds(X, weight, metric, [task.seed for task in tasks], K), seen)
    n_steps = np.array([task.n_steps for task in tasks])
    going = np.flatnonzero(n_steps > 0)
    for number in range(1, int(n_steps.max()) + 1):
        if len(going) == 0:
            break
        own_weight, own_metric = weight[going], metric[going]
        centres = _means(X, own_weight, own_metric, labels[going], K, seen)
        moved = _nearest(X, own_metric, centres, seen)
        changed = np.any((moved != labels[going]) & (own_weight > 0), axis=1)
        labels[going] = moved
        going = going[changed & (n_steps[going] > number)]
    return labels


def _nearest(X: Floats, metric: Floats, centres: Floats, seen: Floats | None) -> Labels:
    """(S, n) the nearest of the centres (S, K, D)."""
    S, K, D = centres.shape
    scaled = metric[:, None, :] * centres
    lengths = (0.5 * scaled * centres).reshape(S * K, D)
    closeness = scaled.reshape(S * K, D) @ X.T
    closeness -= lengths.sum(axis=1)[:, None] if seen is None else lengths @ seen.T
    return _largest(closeness.reshape(S, K, len(X)))


def _largest(numbers: Floats) -> Labels:
    """argmax over the second of three axes, several times faster than NumPy's."""
    most, labels = numbers[:, 0].copy(), np.zeros((numbers.shape[0], numbers.shape[2]), dtype=np.int64)
    for k in range(1, numbers.shape[1]):
        np.copyto(labels, k, where=numbers[:, k] > most)
        np.maximum(most, numbers[:, k], out=most)
    return labels


def _means(X: Floats, weight: Floats, metric: Floats, labels: Labels, K: int, seen: Floats | None) -> Floats:
    """(S, K, D) the means of the parts; an empty one takes the row farthest from its own mean."""
    S, n = labels.shape
    flat = (labels + K * np.arange(S)[:, None]).T.reshape(-1)  # one entry for each run in every column
    own = sparse.csc_array((weight.T.reshape(-1), flat, S * np.arange(n + 1)), shape=(S * K, n))
    totals = np.bincount(flat, weight.T.reshape(-1), S * K)
    counts = totals[:, None] if seen is None else own @ seen
    means: Floats = (own @ X / np.where(counts > 0, counts, 1.0)).reshape(S, K, -1)
    for s, k in np.argwhere(totals.reshape(S, K) == 0):
        away = X - means[s, labels[s]]
        distance = (away * away if seen is None else away * away * seen) @ metric[s]
        means[s, k] = X[np.argmax(np.where(weight[s] > 0, distance, -1.0))]
        labels[s, np.argmax(np.where(weight[s] > 0, distance, -1.0))] = k
    return means


def _seeds(X: Floats, weight: Floats, metric: Floats, seeds: Sequence[int], K: int) -> Floats:
    """(S, K, D) rows far from one another; of a few candidates the one that leaves the least distance."""
    S, D = metric.shape
    T = 2 + int(math.log(K))
    draws = np.stack([np.random.default_rng(seed).random((K, T)) for seed in seeds])
    squares = metric @ (X * X).T  # (S, n)
    centres = np.empty((S, K, D))
    every, closest = np.arange(S), np.full(weight.shape, np.inf)
    for k in range(K):
        chance = weight if k == 0 else weight * closest
        chosen = _drawn(chance, draws[:, k, : 1 if k == 0 else T])
        rows = X[chosen]  # (S, T, D)
        scaled = rows * metric[:, None, :]
        distance = (-2.0 * scaled).reshape(-1, D) @ X.T
        distance = distance.reshape(S, -1, len(X)) + squares[:, None, :]
        distance += np.sum(scaled * rows, axis=2)[:, :, None]
        np.maximum(distance, 0.0, out=distance)
        np.minimum(distance, closest[:, None, :], out=distance)
        best = np.argmin((distance @ weight[:, :, None])[:, :, 0], axis=1)
        centres[:, k, :], closest = rows[every, best], distance[every, best]
    return centres


def _drawn(chance: Floats, draws: Floats) -> Labels:
    """(S, T) rows with probabilities proportional to their chance (S, n), for draws between 0 and 1."""
    cumulated = np.cumsum(chance, axis=1)
    found = [np.searchsorted(own, u * own[-1], side="right") for own, u in zip(cumulated, draws, strict=True)]
    return np.minimum(np.stack(found), chance.shape[1] - 1)
