"""Starting values: a partition of some rows by k-means, then the family's own fit of its parts.

Starts decide optima. They are the same for a given seed, whatever the order of the rows and whether a
row is given twice or with weight two: rows are sorted along a fixed direction before anything random
happens, and at most `rows_for_start` of them are looked at.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from latently.backend.placement import one_blas_thread
from latently.core.block import slices

INITS = ("kmeans", "k-means++", "random")
SHORT_RUN = 10  # EM steps that a start is given before the best one is carried on


def rows_for_start(n_components):
    return max(10_000, 50 * n_components)


def canonical_sample(block, frame, limit, rows_at_a_time):
    """At most `limit` rows in the kernel's frame with their weights, in an order set by their values."""
    direction = np.random.default_rng(0).standard_normal(len(frame.shift))
    key = np.concatenate(
        [frame.enter(block.X[rows]) @ direction for rows in slices(len(block), rows_at_a_time)]
    )
    order = np.argsort(key, kind="stable")
    weight = np.ones(len(block)) if block.weight is None else block.weight
    if len(block) > limit:
        # evenly spaced in cumulated weight, so that a row of weight two is two rows
        cumulated = np.cumsum(weight[order])
        targets = (np.arange(limit) + 0.5) / limit * cumulated[-1]
        order = order[np.searchsorted(cumulated, targets)]
        weight = np.ones(len(block))
    return frame.enter(block.X[order]), weight[order]


def starting_values(kernel, n_components, init, n_init, random_state, sample, frame, means=None):
    """Yields `n_init` starts, in turn by k-means in the user's units and on standardised features.

    Units carry meaning in some tables and pictures and are arbitrary in others; the short runs that follow
    tell which. Given `means`, or one component, leave nothing to chance: there is one start.
    """
    X, weight = sample
    if means is not None or n_components == 1:
        if means is None:
            means = np.average(X, axis=0, weights=weight)[None, :]
        yield kernel.from_partition(X, weight, nearest(X, means), means)
        return
    rng = check_random_state(random_state)
    for i in range(n_init):
        standardised = i % 2 == 1
        units = np.ones_like(frame.scale) if standardised else frame.scale / frame.scale.max()
        labels = partition(X * units, weight, n_components, init, rng.randint(2**31 - 1))
        yield kernel.from_partition(X, weight, labels, part_means(X, weight, labels, n_components))


def partition(X, weight, n_components, init, seed):
    """Labels (n,) of the parts."""
    from sklearn.cluster import KMeans, kmeans_plusplus  # here, because it takes a tenth of a second

    if init == "random":
        return np.random.default_rng(seed).integers(n_components, size=len(X))
    if init == "k-means++":
        centres, _ = kmeans_plusplus(X, n_components, sample_weight=weight, random_state=seed)
        return nearest(X, centres)
    # tol=0: scikit-learn's tolerance looks at unweighted variances, so weights would not equal copies
    kmeans = KMeans(n_components, n_init=1, tol=0, random_state=seed)
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than components: fine here
        return kmeans.fit(X, sample_weight=weight).labels_


def nearest(X, centres):
    distance = np.sum(centres**2, axis=1) - 2 * X @ centres.T
    return np.argmin(distance, axis=1)


def part_means(X, weight, labels, n_components):
    """Means (K, D) of the parts; an empty part takes the row farthest from its own mean."""
    sizes = np.bincount(labels, weights=weight, minlength=n_components)
    means = np.zeros((n_components, X.shape[1]))
    np.add.at(means, labels, X * weight[:, None])
    means /= np.maximum(sizes, np.finfo(float).tiny)[:, None]
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        distance = np.sum((X - means[labels]) ** 2, axis=1)
        means[empty] = X[np.argsort(-distance, kind="stable")[: len(empty)]]
    return means
