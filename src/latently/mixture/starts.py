"""Starting values: a k-means partition of a sample of rows, then the family's own fit to its parts.

The start determines which local optimum is found. For a given seed starts depend neither on the order of the
rows nor on whether a row is given twice or with weight two, because the sample does not (core/summary.py).
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning

from latently.backend.linalg import leading_eigenpairs
from latently.backend.placement import one_blas_thread
from latently.estimators.randomness import as_random_state

INITS = ("kmeans", "k-means++", "random")
_REFILLS = 3  # rounds of k-means, with missing entries imputed again after each
_FEWEST_STARTS, _MOST_STARTS = 8, 24
_CHEAP = 400_000  # entries processed by all starts together that cost next to nothing


def number_of_starts(n_init, n_rows, n_features, n_components, in_dimensions=None, most=None):
    """`n_init`; with "auto" more for small data, and up to twice as many for models with two more kinds.

    At most `most`, if given.
    """
    if n_init != "auto":
        return n_init
    if most is None:
        most = _MOST_STARTS if in_dimensions is None else 2 * _MOST_STARTS
    cheap = _CHEAP // (n_rows * n_features * n_components)
    return int(min(most, max(_FEWEST_STARTS, cheap)))


def starting_values(
    kernel,
    n_components,
    init,
    n_init,
    random_state,
    block,
    frame,
    means=None,
    in_dimensions=None,
    n_classes=None,
):
    """Yield `n_init` starts, alternating between k-means in the user's units and on standardised features.

    Units are meaningful in some datasets and arbitrary in others; the short runs that follow decide. From the
    third start on features are weighted at random. With `in_dimensions`, one start in four uses the scores of
    that many principal components and one in four is a random partition. With given `means`, or one
    component, nothing is random and there is one start. Rows only join parts that their labels allow; with
    `n_classes` the rows of each class are partitioned separately. Where all components share the
    classes, half of the partitions are of rows centred on the means of their classes.
    """
    X, weight, observed = block.X, block.weight, block.observed
    allowed = block.allowed if kernel.labels_are_components else None

    def start(labels, means=None):
        if means is None:
            means = part_means(X, weight, labels, n_components, observed)
        X_filled = filled(X, observed, means[labels])
        return kernel.from_partition(X_filled, weight, labels, means, block.allowed)

    if means is not None:
        yield start(nearest(X, means, observed, allowed), means)
        return
    if n_components == 1:
        yield start(np.zeros(len(X), dtype=int))
        return
    if n_classes == n_components and allowed is not None and np.all(np.sum(allowed, axis=1) == 1):
        yield start(np.argmax(allowed, axis=1))  # classes are the components, and every row is labelled
        return
    rng = as_random_state(random_state)
    for i in range(n_init):
        standardised = i % 2 == 1
        units = np.ones_like(frame.scale) if standardised else frame.scale / frame.scale.max()
        rows, seen, by = X, observed, init
        if not kernel.labels_are_components and block.allowed is not None and i % 4 < 2:
            rows = _about_class_means(X, weight, observed, block.allowed)
        if in_dimensions is not None and i % 4 == 2:
            rows, seen = principal_scores(X, weight, in_dimensions), None
            units = np.ones(rows.shape[1])
        elif in_dimensions is not None and i % 4 == 3:
            by = "random"
        if i >= 2:  # the same partition again would waste a start
            units = units * np.sqrt(rng.standard_exponential(len(units)))
        seed = rng.randint(2**31 - 1)
        if n_classes is not None and allowed is not None:
            labels = _within_classes(rows * units, weight, n_components, n_classes, by, seed, seen, allowed)
        else:
            labels = partition(rows * units, weight, n_components, by, seed, seen)
        if allowed is not None:
            labels = _as_allowed(X, weight, labels, n_components, observed, allowed)
        yield start(labels)


def partition(X, weight, n_components, init, seed, observed):
    """Labels (n,) of the parts."""
    from sklearn.cluster import KMeans, kmeans_plusplus  # here, because it takes a tenth of a second

    if len(X) < n_components:  # fewer distinct rows than components
        return np.arange(len(X))
    if init == "random":
        return np.random.default_rng(seed).integers(n_components, size=len(X))
    # Missing entries are first imputed with the mean, which is zero here.
    with config_context(
        array_api_dispatch=False
    ):  # rows are NumPy's here, and older versions of k-means fail
        centres, _ = kmeans_plusplus(X, n_components, sample_weight=weight, random_state=seed)
    if init == "k-means++":
        return nearest(X, centres, observed)
    for _ in range(1 if observed is None else _REFILLS):
        # tol=0: scikit-learn's tolerance looks at unweighted variances, so weights would not equal copies
        kmeans = KMeans(n_components, init=centres, n_init=1, tol=0, random_state=seed)
        with warnings.catch_warnings(), one_blas_thread(), config_context(array_api_dispatch=False):
            # fewer distinct rows than components: fine here
            warnings.simplefilter("ignore", ConvergenceWarning)
            kmeans.fit(X, sample_weight=weight)
        labels, centres = kmeans.labels_, kmeans.cluster_centers_
        if observed is not None:
            labels = nearest(X, centres, observed)
            X = filled(X, observed, part_means(X, weight, labels, n_components, observed)[labels])
    return labels


def _about_class_means(X, weight, observed, of_class):
    """The rows minus the mean of their class, so that parts contain rows of all classes."""
    labels = np.where(of_class.sum(axis=1) == 1, np.argmax(of_class, axis=1), of_class.shape[1])
    return X - part_means(X, weight, labels, of_class.shape[1] + 1, observed)[labels]


def _within_classes(X, weight, n_components, n_classes, init, seed, observed, allowed):
    """Labels (n,) of a separate partition of each class; unlabelled rows join the nearest part.

    The components of a class have consecutive numbers.
    """
    per_class = n_components // n_classes
    of_class = allowed[:, ::per_class]
    labelled = of_class.sum(axis=1) == 1
    labels = np.zeros(len(X), dtype=int)
    for c in range(n_classes):
        own = labelled & of_class[:, c]
        if own.any():
            seen = None if observed is None else observed[own]
            labels[own] = c * per_class + partition(X[own], weight[own], per_class, init, seed, seen)
    if not labelled.all():
        seen = None if observed is None else observed[labelled]
        means = part_means(X[labelled], weight[labelled], labels[labelled], n_components, seen)
        labels[~labelled] = nearest(X, means, observed, allowed)[~labelled]
    return labels


def principal_scores(X, weight, n_dimensions):
    """(n, r) scores of the leading principal components, each of unit variance; r <= n_dimensions."""
    scaled = (X - weight @ X / weight.sum()) * np.sqrt(weight)[:, None]
    values, vectors = leading_eigenpairs(scaled, n_dimensions)
    used = values > 1e-12 * max(values[0], np.finfo(float).tiny)
    used[0] = True
    deviations = np.sqrt(np.maximum(values[used] / weight.sum(), np.finfo(float).tiny))
    return X @ vectors[:, used] / deviations


def nearest(X, centres, observed=None, allowed=None):
    if observed is None:
        distance = np.sum(centres**2, axis=1) - 2 * X @ centres.T
    else:
        distance = observed @ (centres**2).T - 2 * np.where(observed, X, 0.0) @ centres.T
    if allowed is not None:
        distance[~allowed] = np.inf
    return np.argmin(distance, axis=1)


def filled(X, observed, values):
    """The rows with `values` in the missing entries."""
    return X if observed is None else np.where(observed, X, values)


def part_means(X, weight, labels, n_components, observed=None):
    """Means (K, D) of the observed entries of each part; an empty part takes the row farthest from its mean.

    A feature not observed in any row of a part gets the overall mean, which is zero here.
    """
    own = _shares(labels, weight, n_components)
    if observed is None:
        totals = own.sum(axis=1)[:, None]
        means = own @ X / np.maximum(totals, np.finfo(float).tiny)
    else:
        totals = own @ observed
        means = own @ np.where(observed, X, 0.0) / np.maximum(totals, np.finfo(float).tiny)
    empty = np.flatnonzero(own.sum(axis=1) == 0)
    if len(empty):
        distance = np.sum((X - means[labels]) ** 2, axis=1)
        means[empty] = X[np.resize(np.argsort(-distance, kind="stable"), len(empty))]
    return means


def _shares(labels, weight, n_components):
    """(K, n) the weight of every row in its own part, zero elsewhere."""
    own = np.zeros((n_components, len(labels)))
    own[labels, np.arange(len(labels))] = weight
    return own


def _as_allowed(X, weight, labels, n_components, observed, allowed):
    """Renumber parts to match the labels as well as possible, then move the rows that still violate them."""
    if allowed[np.arange(len(X)), labels].all():
        return labels
    parts, numbers = linear_sum_assignment(_shares(labels, weight, n_components) @ allowed, maximize=True)
    labels = numbers[np.argsort(parts)][labels]
    stays = allowed[np.arange(len(X)), labels]
    if stays.all():
        return labels
    seen = None if observed is None else observed[stays]
    means = part_means(X[stays], weight[stays], labels[stays], n_components, seen) if stays.any() else None
    moved = np.argmax(allowed, axis=1) if means is None else nearest(X, means, observed, allowed)
    return np.where(stays, labels, moved)
