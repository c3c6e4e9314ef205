"""Regrouping: parts of the rows are split in two, then merged to as many as before, best pairs first.

What a merger loses is the log-likelihood of rows known to belong to their part, with the spread that
components of the family may have (model-based agglomeration: Fraley, 1998), and one row of the prior:

    n_k / 2 ln|S_k| - n_k ln n_k,      S_k = (scatter about the mean + S) / (n_k + 1)

So parts that a component describes badly stay divided, and those that it does not need to tell apart are
joined, several at once. m parts in d dimensions cost O(m^2 d^3).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import xlogy

from latently.backend.namespace import Floats
from latently.distributions import CommonLoadings, FullGaussian, LowRankGaussian
from latently.distributions.heavy_tails import HeavyTailed

_STEPS = 4  # of the two-means within every part
_ROUNDS = 2  # of splitting parts in two, at most
_MOST = 12  # parts that are split in a round
_CORRELATION = 0.99  # of the prior's scale: rows may be fewer than dimensions
_SMALLEST = 1e-9  # relative variances that are taken for rounding errors


@dataclass(frozen=True)
class Spread:
    """What components of a family can tell of the rows about their mean."""

    axes: bool  # whether features are independent given the component
    n_equal: int = 0  # of the smallest eigenvalues, or variances, that are equal

    def products(self, X: Floats) -> Floats:
        """Squares (..., d), or products (..., d, d), whose sums are the scatter."""
        return X * X if self.axes else X[..., :, None] * X[..., None, :]

    def scatter(self, X: Floats, weight: Floats, labels: Any) -> Floats:
        """The sums of `products`, (m, d) or (m, d, d), of m parts, none of them empty."""
        order, starts = _by_part(labels)
        rows, weighted = X[order], (X * weight[:, None])[order]
        if self.axes:
            return np.asarray(np.add.reduceat(weighted * rows, starts))
        return np.stack([weighted[a:b].T @ rows[a:b] for a, b in pairwise([*starts, len(X)])])

    def log_volume(self, mean_products: Floats) -> Floats:
        """ln|S| of the last axes."""
        if not self.axes and not self.n_equal:
            found: Floats = np.linalg.slogdet(mean_products)[1]
            return found
        values = mean_products if self.axes else np.linalg.eigvalsh(mean_products)
        n = self.n_equal
        equal = n * np.log(values[..., :n].mean(axis=-1)) if n else 0.0
        return np.sum(np.log(np.maximum(values[..., n:], np.finfo(float).tiny)), axis=-1) + equal


def spread_of(family: Any, n_dimensions: int) -> Spread | None:
    """The spread of Gaussians, each with its own; None for others. Factors with own noise take any."""
    family = family.gaussian if isinstance(family, HeavyTailed) else family
    if not isinstance(family, FullGaussian | LowRankGaussian | CommonLoadings):
        return None
    if isinstance(family, FullGaussian) and family.shared:
        return None
    n_factors = getattr(family, "n_factors", 0)
    equal = max(n_dimensions - n_factors, 0) if family.isotropic else 0
    full = isinstance(family, FullGaussian)
    return Spread(not (full or n_factors) or (full and family.isotropic), equal)


def regrouped(X: Floats, weight: Floats, labels: Any, n_parts: int, spread: Spread, rng: Any) -> Any:
    """Other labels (n,) of `n_parts` parts, each with the number of a part that it shares many rows with."""
    finer = np.unique(labels, return_inverse=True)[1]
    for _ in range(1 + rng.randint(_ROUNDS)):
        split = np.zeros(finer.max() + 1, dtype=bool)
        split[rng.permutation(len(split))[:_MOST]] = True
        second = _in_second_half(X, weight, finer, rng) & split[finer]
        finer = np.unique(2 * finer + second, return_inverse=True)[1]
    parents = _merged(X, weight, finer, n_parts, spread)[finer]
    common = np.zeros((parents.max() + 1, n_parts))
    np.add.at(common, (parents, labels), weight)
    return linear_sum_assignment(common, maximize=True)[1][parents]


def _in_second_half(X: Floats, weight: Floats, labels: Any, rng: Any) -> Any:
    """(n,) bool: two-means of every part in random units, from two of its rows, often distant ones."""
    X = X * np.sqrt(rng.standard_exponential(X.shape[1]))
    first = _drawn(weight, labels, rng)
    distance = np.sum((X - X[first][labels]) ** 2, axis=1)
    centres = X[first], X[_drawn(weight * distance, labels, rng)]
    order, starts = _by_part(labels)
    rows, weight, labels = X[order], weight[order], labels[order]
    second = np.zeros(len(X), dtype=bool)
    for _ in range(_STEPS):
        one, other = centres  # x is nearer to the other if x'(other - one) > |other|^2 / 2 - |one|^2 / 2
        between = 0.5 * (np.sum(other**2, axis=1) - np.sum(one**2, axis=1))
        nearer = np.einsum("nd,nd->n", rows, (other - one)[labels]) > between[labels]
        own = [np.where(half, weight, 0.0) for half in (~nearer, nearer)]
        centres = _means(rows, own[0], starts), _means(rows, own[1], starts)
        second[order] = nearer
    return second


def _drawn(weight: Floats, labels: Any, rng: Any) -> Any:
    """(K,) a row of each part, drawn with these weights."""
    with np.errstate(divide="ignore", over="ignore"):
        keys = rng.standard_exponential(len(labels)) / weight
    order = np.lexsort((keys, labels))
    return order[np.searchsorted(labels[order], np.arange(labels.max() + 1))]


def _by_part(labels: Any) -> tuple[Any, Any]:
    """(n,) the rows of one part after the other, and where parts (m,) start; none is empty."""
    order = np.argsort(labels, kind="stable")
    return order, np.searchsorted(labels[order], np.arange(labels.max() + 1))


def _means(rows: Floats, weight: Floats, starts: Any) -> Floats:
    """(m, d) the means of parts, whose rows follow one another."""
    total = np.maximum(np.add.reduceat(weight, starts), np.finfo(float).tiny)
    found: Floats = np.add.reduceat(rows * weight[:, None], starts) / total[:, None]
    return found


def _merged(X: Floats, weight: Floats, labels: Any, n_parts: int, spread: Spread) -> Any:
    """The part (m,) that each of the m finer parts ends in, after greedy mergers."""
    order, starts = _by_part(labels)
    m, count = len(starts), np.asarray(np.bincount(labels, weight), dtype=float)
    mean = _means(X[order], weight[order], starts)
    scatter = spread.scatter(X - mean[labels], weight, labels)
    prior = _prior(X, weight, n_parts, spread)

    def cost(count: Floats, scatter: Floats) -> Floats:
        pseudo = (count + 1.0).reshape(-1, *(1,) * (scatter.ndim - 1))
        found: Floats = 0.5 * count * spread.log_volume((scatter + prior) / pseudo) - xlogy(count, count)
        return found

    def joined(i: Any, j: Any) -> tuple[Floats, Floats]:
        """Weights and scatter of pairs of parts."""
        share = count[i] * count[j] / np.maximum(count[i] + count[j], np.finfo(float).tiny)
        apart = spread.products((mean[i] - mean[j]) * np.sqrt(share)[:, None])
        return count[i] + count[j], scatter[i] + scatter[j] + apart

    costs, loss = cost(count, scatter), np.full((m, m), np.inf)
    i, j = np.triu_indices(m, 1)
    loss[i, j] = cost(*joined(i, j)) - costs[i] - costs[j]
    part, left = np.arange(m), np.ones(m, dtype=bool)
    for _ in range(m - n_parts):
        one, other = divmod(int(np.argmin(loss)), m)
        total, together = joined(np.array([one]), np.array([other]))
        mean[one] += (mean[other] - mean[one]) * count[other] / max(total[0], np.finfo(float).tiny)
        count[one], scatter[one], costs[one] = total[0], together[0], cost(total, together)[0]
        part[part == other], left[other] = one, False
        loss[other, :] = loss[:, other] = np.inf
        left[one] = False
        others = np.flatnonzero(left)
        left[one] = True
        if len(others):
            lost = cost(*joined(one, others)) - costs[one] - costs[others]
            loss[np.minimum(one, others), np.maximum(one, others)] = lost
    return np.unique(part, return_inverse=True)[1]


def _prior(X: Floats, weight: Floats, n_parts: int, spread: Spread) -> Floats:
    """The scatter of one row, as in the default prior (mixture/priors.py)."""
    centred = X - weight @ X / weight.sum()
    scatter = spread.scatter(centred, weight / weight.sum(), np.zeros(len(X), dtype=int))[0]
    if not spread.axes:
        scatter = np.where(np.eye(X.shape[1]) > 0, scatter, _CORRELATION * scatter)
    least = max(_SMALLEST * float(np.mean(centred**2)), np.finfo(float).tiny)
    found: Floats = scatter * n_parts ** (-2.0 / X.shape[1])
    return found + (least if spread.axes else least * np.eye(X.shape[1]))
