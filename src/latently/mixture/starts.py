"""Starting values: a partition of a sample of rows, then the family's own fit to its parts.

The start determines which local optimum is found, so there are several: first partitions of the rows by
k-means and by agglomeration, then changes to the partition of the best optimum found so far. For a given seed
they depend neither on the order of the rows nor on whether a row is given twice or with weight two, because
the sample does not (core/summary.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from latently.backend.linalg import leading_eigenpairs, squared_lengths
from latently.backend.namespace import Floats, like, namespace, to_numpy
from latently.core.block import Block
from latently.core.frame import Frame
from latently.core.search import COSTLY
from latently.core.tree import mapped
from latently.distributions.mixture import responsibilities
from latently.distributions.stacked import can_be_stacked, with_components
from latently.estimators.randomness import as_random_state
from latently.estimators.starts import features_in_order
from latently.mixture.kmeans import MOST_STEPS, Task, kmeans
from latently.mixture.regrouping import regrouped, spread_of

INITS = ("kmeans", "k-means++", "random")
AT_ONCE = 6  # starts near an optimum whose rows are clustered together
_BALL = (0.1, 0.6)  # shares of a part that may be split off around one of its rows
_HIERARCHICAL_ROWS = 1000  # that are agglomerated, in time quadratic in their number
_HIERARCHICAL_SCORES = 20  # principal scores in which they are
_DIMENSIONS = 16  # principal scores in which parts with dependent features are regrouped
_SPLITS = ("kmeans", "k-means++", "ball", "random")
_ONLY_MERGED = 0.5  # share of the starts near an optimum, where components may be empty
_DISTANT = 0.05  # chance to merge two parts that share no row, relative to two that share all


def number_of_starts(n_init, in_dimensions=None, most=None, effort=COSTLY):
    """How many starts are tried at first, and how many near the best optima found; `n_init` in all.

    With "auto" as many as the effort says; models that use two more kinds of starts have 2 more of the first.
    With `most`, "auto" is at most that many in all.
    """
    at_first = effort.first if in_dimensions is None else effort.first + 2
    if n_init == "auto":
        return at_first, effort.near if most is None else min(effort.near, most - at_first)
    first = min(n_init, max(at_first, n_init // 3))
    return first, n_init - first


@dataclass(frozen=True)
class Starts:
    """Starting values from partitions of rows in main memory.

    With given `means`, or one component, nothing is random and there is one start. Rows only join parts that
    their labels allow; with `n_classes` the rows of each class are partitioned separately. Where all
    components share the classes, half of the partitions are of rows centred on the means of their classes.

    If the rows of a fit are on a device, `there` are the kernel and the sample on it: k-means and the fits to
    parts are computed where they are.
    """

    kernel: Any
    n_components: int
    init: str
    random_state: Any
    block: Any  # a Block with weights
    frame: Frame
    means: Floats | None = None  # (K, D)
    in_dimensions: int | None = None  # the number of principal components whose scores some starts use
    n_classes: Any = None  # an int, or None
    there: Any = None  # (kernel, Block) on a device, or None

    @cached_property
    def rng(self):
        return as_random_state(self.random_state)

    @property
    def allowed(self):
        """(n, K) bool: the parts that rows may join; None for all."""
        return self.block.allowed if self.kernel.labels_are_components else None

    def first(self, n):
        """Yield n starts: k-means in the user's units, on standardised features, and a hierarchical one.

        Units are meaningful in some datasets and arbitrary in others; the runs that follow decide. Further
        starts have features weighted at random. With `in_dimensions`, one in four uses the scores of that
        many principal components and one in four is a random partition.
        """
        X, observed, K, allowed = self.block.X, self.block.observed, self.n_components, self.allowed
        if self.means is not None:
            yield self._start(nearest(X, self.means, observed, allowed), self.means)
        elif K == 1:
            yield self._start(np.zeros(len(X), dtype=int))
        elif self.n_classes == K and allowed is not None and np.all(np.sum(allowed, axis=1) == 1):
            yield self._start(np.argmax(allowed, axis=1))  # classes are the components, all rows labelled
        else:
            yield from (self._start(self._as_allowed(labels)) for labels in self._partitions(n))

    def near(self, params):
        """Yield starts near an optimum, in turn six that are regrouped and six that are changed at random.

        Regrouping (mixture/regrouping.py) changes several parts at once, and well as far as hard labels tell.
        At random two parts are merged, those that share rows more often, and one is split in two, large ones
        more often: by k-means, by the seeds of k-means++, around one of its rows, or at random. No way finds
        all optima. With `n_classes` parts change within one class and are not regrouped, nor are those that
        may be empty, of whose starts half only merge.
        """
        K, weight, rng = self.n_components, self.block.weight, self.rng
        kernel, block = (self.kernel, self.block) if self.there is None else self.there
        density = kernel.prepare(mapped(lambda array: like(array, block.X), params))
        shares = to_numpy(responsibilities(kernel, density, block)).T[:K, :]  # no noise
        groups = np.repeat(np.arange(self.n_classes or 1), K // (self.n_classes or 1))
        i, j = np.triu_indices(K, 1)
        i, j = i[groups[i] == groups[j]], j[groups[i] == groups[j]]
        if len(i) == 0:
            return
        overlap = (shares * weight) @ shares.T
        common = np.maximum(np.sqrt(np.outer(np.diag(overlap), np.diag(overlap))), np.finfo(float).tiny)
        chance = (overlap / common)[i, j] + _DISTANT
        labels = np.argmax(shares, axis=0)
        while True:
            yield from self._regrouped(params, labels)
            changes = []
            for _ in range(AT_ONCE):
                pair = rng.choice(len(i), p=chance / chance.sum())
                one, other = i[pair], j[pair]
                merged = np.where(labels == other, one, labels)
                size = np.sqrt(np.bincount(merged, weight, K)) * (groups == groups[one])
                size[np.bincount(merged, minlength=K) < 2] = 0.0
                size[one] *= 0.5  # split again, the merged part may end as it was
                if not size.any():
                    return
                own = merged == rng.choice(K, p=size / size.sum())
                way = _SPLITS[rng.randint(len(_SPLITS))]
                both = np.any(labels == one) and np.any(labels == other)
                if self.kernel.may_leave_empty and both and rng.random_sample() < _ONLY_MERGED:
                    way = "never"
                changes.append((merged, own, other, way))
            halves = self._halves([(own, by) for _, own, _, by in changes])
            for (merged, own, other, _), half in zip(changes, halves, strict=True):
                yield self._changed(params, labels, self._as_allowed(np.where(own & half, other, merged)))

    def _regrouped(self, params, labels):
        """Starts from regrouped parts, if they differ."""
        rows, spread = self._spread
        if spread is None or self.n_classes is not None or self.kernel.may_leave_empty:
            return
        for _ in range(AT_ONCE):
            after = regrouped(rows, self.block.weight, labels, self.n_components, spread, self.rng)
            if np.any(after != labels):
                yield self._changed(params, labels, self._as_allowed(after))

    @cached_property
    def _spread(self):
        """Rows (n, d) in the dimensions in which parts are regrouped, and how components spread there."""
        family, X = self.kernel.family, self.block.X
        spread = spread_of(family, X.shape[1])
        if spread is None or spread.axes or X.shape[1] <= _DIMENSIONS:
            return X[:, self._features], spread
        X = principal_scores(X, self.block.weight, _DIMENSIONS, power=0.0 if family.isotropic else 0.5)
        return X, spread_of(family, X.shape[1])

    def _halves(self, parts):
        """(n,) bool for every part of the rows and a way to split it: whether rows are in its second half."""
        rows = self.block if self.there is None else self.there[1]
        X, weight, rng = rows.X, self.block.weight, self.rng
        units = [_random_units(self._features, rng) for _ in parts]
        seeds = [rng.randint(2**31 - 1) for _ in parts]
        steps = {"kmeans": MOST_STEPS, "k-means++": 0}
        given = list(zip(parts, units, seeds, strict=True))
        tasks = [
            Task(np.where(own, weight, 0.0), u, s, steps[by]) for (own, by), u, s in given if by in steps
        ]
        clustered = iter(kmeans(rows.X, tasks, 2, rows.observed) if tasks else [])
        for (own, by), unit, seed in given:
            if by in steps:
                yield next(clustered) == 1
            elif by == "never":
                yield np.zeros(len(X), dtype=bool)
            elif by == "ball":
                yield _around_a_row(rows.X, unit, np.where(own, weight, 0.0), np.random.default_rng(seed))
            else:
                yield np.random.default_rng(seed).random(len(X)) < 0.5

    def _changed(self, params, labels, after):
        """The start for rows with other labels; components whose rows stay keep their parameters."""
        if not can_be_stacked(self.kernel):
            return self._start(after)
        moved = labels != after
        parts = np.union1d(labels[moved], after[moved])
        if len(parts) == 0:
            return self._start(after)
        rows = np.flatnonzero(np.isin(after, parts))
        there = None if self.there is None else (self.there[0], self._of_rows(self.there[1], rows))
        own = replace(self, n_components=len(parts), block=self._of_rows(self.block, rows), there=there)
        return with_components(params, parts, own._start(np.searchsorted(parts, after[rows])))

    @staticmethod
    def _of_rows(block, rows):
        """Some rows of a block, without labels."""
        return Block(block.X, block.weight, None, block.observed).take(like(rows, block.X))

    def _start(self, labels, means=None):
        kernel, block = (self.kernel, self.block) if self.there is None else self.there
        labels = like(labels, block.X)
        if means is None:
            means = part_means(block.X, block.weight, labels, self.n_components, block.observed)
        else:
            means = like(means, block.X)
        X = filled(block.X, block.observed, namespace(means).take(means, labels, axis=0))
        return mapped(to_numpy, kernel.from_partition(X, block.weight, labels, means, block.allowed))

    def _partitions(self, n):
        """Labels (n,) of n starts, before labels of rows are looked at."""
        given = [self._clustering(i) for i in range(n)]
        if self.n_classes is not None and self.allowed is not None:
            yield from (self._within_classes(one) for one in given)
            return
        weight = self.block.weight
        found: dict[int, Any] = {}
        sizes = self._sizes(n)
        for rows, K in {
            (id(one.rows), K): (one.rows, K) for one, K in zip(given, sizes, strict=True)
        }.values():
            own = [i for i, one in enumerate(given) if one.rows is rows and sizes[i] == K]
            how = [given[i] for i in own]
            there = self.there[1] if self.there is not None and rows is self.block.X else None
            labels = partitions(rows, weight, K, how, how[0].seen, there)
            found.update(zip(own, labels, strict=True))
        yield from (found[i] for i in range(n))

    def _sizes(self, n):
        """How many parts n starts have: fewer than there are components where these may be empty."""
        K = self.n_components
        if not self.kernel.may_leave_empty or self.allowed is not None:
            return [K] * n
        return [round(float(size)) for size in np.geomspace(K, 1, n + 1)[:n]]

    def _clustering(self, i):
        """How start number i partitions the rows."""
        X, observed, scale = self.block.X, self.block.observed, self.frame.scale
        rows, seen, by, rng = X, observed, self.init, self.rng
        units, features = self._standard if i % 2 else scale / scale.max(), self._features
        if not self.kernel.labels_are_components and self.block.allowed is not None and i % 4 < 2:
            rows = self._about_class_means
        if self.in_dimensions is not None and i % 4 == 3:
            rows, seen = self._scores, None
            units, features = np.ones(rows.shape[1]), np.arange(rows.shape[1])
        elif self.in_dimensions is not None and i > 2 and i % 4 == 2:
            by = "random"
        elif i == 2 and by == "kmeans":
            rows, seen, by = self._principal_scores(rows, _HIERARCHICAL_SCORES, power=0.5), None, "ward"
            units = np.ones(rows.shape[1])
        if (i >= 2 and by != "ward") or (i == 1 and np.ptp(self._standard / scale) == 0):
            units = units * _random_units(features, rng)  # the same again would be a waste
        return Clustering(by, rows, seen, units, rng.randint(2**31 - 1))

    @cached_property
    def _features(self):
        """(D,) the features in an order that does not depend on that in the data."""
        return features_in_order(self.block.X)

    @cached_property
    def _standard(self):
        """(D,) that give features of the frame about unit deviation: ones, unless it has one scale."""
        X, observed, weight = self.block.X, self.block.observed, self.block.weight
        if np.ptp(self.frame.scale) > 0:
            return np.ones(X.shape[1])
        total = np.sum(weight) if observed is None else weight @ observed
        deviation = np.sqrt(weight @ X**2 / np.maximum(total, np.finfo(float).tiny))
        return 2.0 ** -np.round(np.log2(np.where(deviation > 0, deviation, 1.0)))

    @cached_property
    def _scores(self):
        return self._principal_scores(self.block.X, self.in_dimensions)

    def _principal_scores(self, rows, n_dimensions, power=1.0):
        if self.there is not None and rows is self.block.X:
            rows = self.there[1].X
        return principal_scores(rows, like(self.block.weight, rows), n_dimensions, power)

    @cached_property
    def _about_class_means(self):
        return _about_class_means(self.block.X, self.block.weight, self.block.observed, self.block.allowed)

    def _within_classes(self, how):
        """Labels (n,) of a separate partition of each class; unlabelled rows join the nearest part.

        The components of a class have consecutive numbers.
        """
        per_class = self.n_components // self.n_classes
        of_class = self.allowed[:, ::per_class]
        labelled = of_class.sum(axis=1) == 1
        if not labelled.any():
            raise ValueError(
                "no row with a label has a weight and an entry, so nothing is known of the classes; check y "
                "and sample_weight"
            )
        labels = np.zeros(len(how.rows), dtype=int)
        rng = np.random.default_rng(how.seed)
        for c in range(self.n_classes):
            own = np.flatnonzero(labelled & of_class[:, c])
            if len(own):
                seen = None if how.seen is None else how.seen[own]
                here = replace(how, rows=how.rows[own], seen=seen, seed=int(rng.integers(2**31 - 1)))
                weight = self.block.weight[own]
                labels[own] = c * per_class + partitions(here.rows, weight, per_class, [here], seen)[0]
        if not labelled.all():
            rows, observed = how.rows * how.units, how.seen
            seen = None if observed is None else observed[labelled]
            weight = self.block.weight[labelled]
            means = part_means(rows[labelled], weight, labels[labelled], self.n_components, seen)
            labels[~labelled] = nearest(rows, means, observed, self.allowed)[~labelled]
        return labels

    def _as_allowed(self, labels):
        if self.allowed is None:
            return labels
        X, weight, observed = self.block.X, self.block.weight, self.block.observed
        return _as_allowed(X, weight, labels, self.n_components, observed, self.allowed)


@dataclass(frozen=True)
class Clustering:
    """How some rows are partitioned."""

    by: str  # one of INITS, or "ward"
    rows: Floats  # (n, D), zero where missing
    seen: Any  # (n, D) bool, or None if all entries are observed
    units: Floats  # (D,) of the features
    seed: int


def partitions(rows, weight, n_components, given, seen, there=None):
    """Labels (n,) of every clustering of these rows; k-means of all at once, of the same rows `there`."""
    if len(rows) < n_components:  # fewer distinct rows than components
        return [np.arange(len(rows))] * len(given)
    steps = {"kmeans": MOST_STEPS, "k-means++": 0}
    tasks = [Task(weight, how.units, how.seed, steps[how.by]) for how in given if how.by in steps]
    at = (rows, seen) if there is None else (there.X, there.observed)
    clustered = iter(kmeans(at[0], tasks, n_components, at[1]))
    found = []
    for how in given:
        if how.by in steps:
            found.append(next(clustered))
        elif how.by == "ward":
            found.append(agglomerated(rows * how.units, n_components, how.seed))
        else:
            found.append(np.random.default_rng(how.seed).integers(n_components, size=len(rows)))
    return found


def _random_units(features, rng):
    """(D,) random units, drawn for one feature after the other in this order."""
    units = np.empty(len(features))
    units[features] = np.sqrt(rng.standard_exponential(len(features)))
    return units


def _around_a_row(X, units, weight, rng):
    """(n,) bool: the rows nearest to a random one, a random share of all; those of zero weight are none."""
    away = X - X[int(rng.choice(len(X), p=weight / weight.sum())), ...]
    away *= like(units, X)
    distance = np.where(weight > 0, to_numpy(squared_lengths(away)), np.inf)
    order = np.argsort(distance, kind="stable")
    inside = np.zeros(len(X), dtype=bool)
    inside[order] = np.cumsum(weight[order]) <= rng.uniform(*_BALL) * weight.sum()
    return inside


def agglomerated(X, n_components, seed):
    """Labels (n,) by Ward's linkage, which merges the parts whose spherical Gaussians lose least likelihood.

    Weights play no part. Of many rows a sample is merged, and the others join the nearest part.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # here, because it is not always needed

    chosen = np.random.default_rng(seed).permutation(len(X))[:_HIERARCHICAL_ROWS]
    parts = fcluster(linkage(X[chosen], "ward"), n_components, "maxclust") - 1
    centres = part_means(X[chosen], np.ones(len(chosen)), parts, n_components)
    labels = nearest(X, centres)
    labels[chosen] = parts
    return labels


def _about_class_means(X, weight, observed, of_class):
    """The rows minus the mean of their class, so that parts contain rows of all classes."""
    labels = np.where(of_class.sum(axis=1) == 1, np.argmax(of_class, axis=1), of_class.shape[1])
    return X - part_means(X, weight, labels, of_class.shape[1] + 1, observed)[labels]


def principal_scores(X, weight, n_dimensions, power=1.0):
    """(n, r) scores of the leading principal components, over a power of their deviations; r <= n_dimensions.

    With power 1 each has unit variance; with 1/2 large ones remain larger, as for agglomeration in mclust.
    """
    xp, total = namespace(X), float(namespace(weight).sum(weight))
    scaled = (X - weight @ X / total) * xp.sqrt(weight)[:, None]
    values, vectors = leading_eigenpairs(scaled, n_dimensions)
    used = values > 1e-12 * max(values[0], np.finfo(float).tiny)
    used[0] = True
    deviations = np.sqrt(np.maximum(values[used] / total, np.finfo(float).tiny))
    return to_numpy(X @ like(vectors[:, used] / deviations**power, X))


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
    return X if observed is None else namespace(X).where(observed, X, values)


def part_means(X, weight, labels, n_components, observed=None):
    """Means (K, D) of the observed entries of each part; an empty part takes the row farthest from its mean.

    A feature not observed in any row of a part gets the overall mean, which is zero here.
    """
    xp, tiny = namespace(X), np.finfo(float).tiny
    own = _shares(labels, weight, n_components)
    sizes = xp.sum(own, axis=1)
    totals = sizes[:, None] if observed is None else own @ xp.astype(observed, X.dtype)
    means = own @ filled(X, observed, 0.0) / xp.clip(totals, min=tiny)
    empty = np.flatnonzero(to_numpy(sizes) == 0)
    if len(empty):
        distance = to_numpy(xp.sum((X - xp.take(means, labels, axis=0)) ** 2, axis=1))
        farthest = np.resize(np.argsort(-distance, kind="stable"), len(empty))
        means[like(empty, X), ...] = xp.take(X, like(farthest, X), axis=0)
    return means


def _shares(labels, weight, n_components):
    """(K, n) the weight of every row in its own part, zero elsewhere."""
    parts = like(np.arange(n_components), labels)
    return namespace(weight).where(labels == parts[:, None], weight, 0.0)


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
