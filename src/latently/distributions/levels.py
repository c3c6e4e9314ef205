"""Columns of levels: categories, whose probabilities are free, and ordered answers.

    category   p(x = l | k) = p_kl
    ordered    p(x = l | k) = Phi((b_l - m_k) / s_k) - Phi((a_l - m_k) / s_k)

n rows, K components, J columns, M levels of all columns together. An ordered answer is a normal variable of
which only the interval between two cut points is seen. The cut points are those of all rows, so that the
variable has mean 0 and deviation 1 there; a component has a location m and a scale s of its own, two numbers
whatever the number of levels.

Either way rows matter through one matrix, the indicator (n, M) of the level of every row in every column: the
log densities are `indicator @ log p'`, the statistics are the sums of responsibilities per level.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
from scipy import sparse
from scipy.special import log_ndtr, ndtri

from latently.backend.namespace import Array, Floats, is_numpy, like, namespace

SMALLEST_PROBABILITY = 1e-12
_LOCATIONS = (-12.0, 12.0)  # where cut points of levels that have rows lie within
_SCALES = (1e-2, 1e2)
_STEPS = 30  # of Fisher scoring, at most
_HALVINGS = 20
_ENOUGH = 1e-10  # relative to the statistics


def places(sizes: Sequence[int]) -> list[slice]:
    """Where the levels of each column are among all levels."""
    bounds = [0, *accumulate(sizes)]
    return [slice(a, b) for a, b in pairwise(bounds)]


def indicator(codes: Array, observed: Array | None, sizes: Sequence[int]) -> Array:
    """(n, M) one at the level of every observed entry, from levels (n, J) as numbers; sparse for NumPy."""
    xp = namespace(codes)
    n, J = codes.shape
    starts = np.array([place.start for place in places(sizes)], dtype=np.int64)
    if is_numpy(codes):
        columns = codes.astype(np.int64) + starts
        if observed is None:
            indices, bounds = columns.ravel(), np.arange(0, n * J + 1, J)
        else:
            indices, bounds = columns[observed], np.concatenate([[0], np.cumsum(observed.sum(axis=1))])
        return sparse.csr_array((np.ones(len(indices)), indices, bounds), shape=(n, sum(sizes)))
    own = []
    for j, size in enumerate(sizes):
        hits = codes[:, j : j + 1] == like(np.arange(float(size)), codes)[None, :]
        own.append(hits if observed is None else hits & observed[:, j : j + 1])
    return xp.astype(xp.concat(own, axis=1), xp.float64)


# -- categories ---------------------------------------------------------------------------------------


def probabilities(counts: Floats, sizes: Sequence[int], before: Floats) -> Floats:
    """(K, M) shares of the levels, at least `SMALLEST_PROBABILITY`; those `before` without rows."""
    found = before.copy()
    for place in places(sizes):
        own = counts[:, place]
        total = own.sum(axis=1, keepdims=True)
        share = own / np.where(total > 0, total, 1.0)
        low = share <= SMALLEST_PROBABILITY  # bounded, and the others share the rest
        rest = 1.0 - SMALLEST_PROBABILITY * low.sum(axis=1, keepdims=True)
        share = np.where(
            low, SMALLEST_PROBABILITY, share * rest / np.sum(share * ~low, axis=1, keepdims=True)
        )
        found[:, place] = np.where(total > 0, share, before[:, place])
    return found


# -- ordered levels -----------------------------------------------------------------------------------


def cut_points(counts: Floats) -> Floats:
    """(L + 1,) the ends of the intervals of L levels of a standard normal variable, for their frequencies."""
    share = (counts + 0.5) / (counts.sum() + 0.5 * len(counts))  # levels without rows keep some room
    inner = np.cumsum(share)[:-1]
    return np.concatenate([[-np.inf], ndtri(inner), [np.inf]])


def log_interval(low: Floats, high: Floats) -> Floats:
    """ln (Phi(high) - Phi(low)), also far in either tail."""
    with np.errstate(invalid="ignore"):
        flip = low + high > 0  # upper tails as lower ones
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    above, below = log_ndtr(b), log_ndtr(a)
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = np.where(below == -np.inf, 0.0, np.log1p(-np.exp(below - above)))
    found: Floats = np.maximum(above + difference, -700.0)
    return found


def ordered_log_probabilities(cuts: Floats, location: Floats, scale: Floats) -> Floats:
    """(K, L) for locations and scales (K,)."""
    ends = (cuts - location[:, None]) / scale[:, None]
    return log_interval(ends[:, :-1], ends[:, 1:])


def grouped_normal(counts: Floats, cuts: Floats, location: Floats, scale: Floats) -> tuple[Floats, Floats]:
    """Locations and scales (K,) that maximise the likelihood of counts (K, L), from those given.

    In v = m / s and t = 1 / s the log-likelihood is concave (Burridge, 1981), so Fisher scoring with halved
    steps climbs to its maximum; the result is never worse than the start.
    """
    limits = np.array(
        [[_LOCATIONS[0] / _SCALES[0], 1.0 / _SCALES[1]], [_LOCATIONS[1] / _SCALES[0], 1.0 / _SCALES[0]]]
    )
    here = np.stack([location / scale, 1.0 / scale], axis=1)  # (K, 2)
    value = _grouped(counts, cuts, here)
    total = counts.sum(axis=1)
    for _ in range(_STEPS):
        gradient, information = _scores(counts, cuts, here)
        information += (1e-9 * np.maximum(total, 1e-300))[:, None, None] * np.eye(2)
        move = np.linalg.solve(information, gradient[..., None])[..., 0]
        if np.all(np.sum(gradient * move, axis=1) <= _ENOUGH * np.maximum(total, 1e-300)):
            break
        for halving in range(_HALVINGS):
            there = np.clip(here + move * 0.5**halving, *limits)
            new = _grouped(counts, cuts, there)
            better = new > value
            here, value = np.where(better[:, None], there, here), np.where(better, new, value)
            move = np.where(better[:, None], 0.0, move)
            if not move.any():
                break
    scale = 1.0 / here[:, 1]
    return here[:, 0] * scale, scale


def _ends(cuts: Floats, here: Floats) -> Floats:
    """(K, L + 1)"""
    with np.errstate(invalid="ignore"):
        return cuts * here[:, 1:] - here[:, :1]


def _grouped(counts: Floats, cuts: Floats, here: Floats) -> Floats:
    """(K,) log-likelihood."""
    ends = _ends(cuts, here)
    total: Floats = np.sum(counts * log_interval(ends[:, :-1], ends[:, 1:]), axis=1)
    return total


def _scores(counts: Floats, cuts: Floats, here: Floats) -> tuple[Floats, Floats]:
    """Gradient (K, 2) and expected information (K, 2, 2)."""
    ends = _ends(cuts, here)
    log_p = log_interval(ends[:, :-1], ends[:, 1:])
    finite = np.where(np.isfinite(cuts), cuts, 0.0)
    log_phi = np.where(np.isfinite(cuts), -0.5 * np.where(np.isfinite(cuts), ends, 0.0) ** 2, -np.inf)
    log_phi -= 0.5 * np.log(2 * np.pi)
    with np.errstate(over="ignore"):
        low, high = (
            np.minimum(np.exp(log_phi[:, end] - log_p), 1e150) for end in (slice(0, -1), slice(1, None))
        )
    by_v = low - high  # (K, L)
    by_t = finite[1:] * high - finite[:-1] * low
    each = np.stack([by_v, by_t], axis=2)
    total, p = counts.sum(axis=1), np.exp(log_p)
    information = np.einsum("k,kl,kli,klj->kij", total, p, each, each)
    return np.einsum("kl,kli->ki", counts, each), information


def totals(counts: Floats, sizes: Sequence[int]) -> Floats:
    """(K, J) sums over the levels of each column."""
    return np.stack([counts[:, place].sum(axis=1) for place in places(sizes)], axis=1)


def level_counts(codes: Array, observed: Array | None, weight: Array | None, sizes: Sequence[int]) -> Array:
    """(M,) the weight of the rows at every level."""
    own = indicator(codes, observed, sizes)
    weight = namespace(codes).ones_like(codes[:, 0]) if weight is None else weight
    return own.T @ weight
