"""Full Gaussians for rows with missing entries, grouped by missingness pattern.

With Lambda = Sigma^-1, o the observed and m the missing entries of a row, and r = x - mu,

    Cov[x_m | x_o] = V = Lambda_mm^-1      E[r_m | x_o] = -V Lambda_mo r_o
    ln|Sigma_oo| = ln|Sigma| + ln|Lambda_mm|

and the quadratic form of x_o is that of the completed residual, r' Lambda r. So a pattern costs O(m^3), not
O(D^3) or O((D - m)^3), and a row O(D^2) in products over all rows at once. Patterns with the same number of
missing entries are stacked and inverted together; rows that share a pattern share its V.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from latently.backend.linalg import (
    cholesky_of_definite,
    diagonals,
    inverse_of_triangular,
    log_determinant,
    symmetric,
    transpose,
)
from latently.backend.namespace import Array, Floats, is_numpy, like, namespace, to_numpy, zeros
from latently.backend.placement import on_device
from latently.core.block import Block, slices
from latently.distributions.responsibilities import Responsibilities

if TYPE_CHECKING:
    from latently.distributions.gaussian import FullDensity

_STACK_BYTES = 8_000_000  # of the matrices that are processed at once
_STACK_BYTES_OF_TENSORS = 500_000_000  # the same, of all components


@dataclass(frozen=True)
class Group:
    """Rows with m missing entries each, and their P distinct patterns."""

    rows: Array  # (n,) positions in the block
    pattern: Array  # (n,) of each row
    missing: Array  # (P, m) features that are missing
    places: Array  # (P, D) position of each feature among the missing ones; m if it is observed
    covariances: Array  # (G, P, m, m): V

    def spread_out(self, values: Array) -> Array:
        """(..., n, D) from values (..., n, m) of the missing entries, zero elsewhere."""
        xp = namespace(values)
        *stack, n, m = values.shape
        padded = xp.concat([values, zeros((*stack, n, 1), values)], axis=-1)
        at = xp.take(self.places, self.pattern, axis=0) + (m + 1) * like(np.arange(n)[:, None], values)
        spread = xp.take(xp.reshape(padded, (*stack, n * (m + 1))), xp.reshape(at, (-1,)), axis=-1)
        return xp.reshape(spread, (*stack, *at.shape))


@dataclass(frozen=True)
class WithMissing:
    """Intermediate results of the densities of rows with missing entries that their statistics reuse."""

    groups: list[Group]
    residuals: Array  # (K, n, D): E[x | x_o, k] - mu_k
    constants: Array  # (G, n): 1/2 ln|2 pi V|, by which complete rows would be less likely


def evaluate(density: FullDensity, block: Block) -> tuple[Array, WithMissing]:
    """ln pi_k N(x_o; mu_o, Sigma_oo) (K, n), and the conditional means and covariances."""
    xp = namespace(block.X)
    K, G = density.means.shape[0], density.factors.shape[0]
    U = density.factors
    precisions = symmetric(U @ transpose(U))
    observed = xp.astype(block.observed, xp.float64)
    some = _at_once(K, block.X)
    residuals = xp.concat([(block.X - density.means[k, None, :]) * observed for k in some])
    products = xp.concat([residuals[k, ...] @ precisions[k if G > 1 else slice(1), ...] for k in some])
    groups, order, shifts, constants = [], [], [], []
    for rows, pattern, missing, seen in block.once(f"patterns {G}", lambda: list(_patterns(block, G))):
        covariances, log_dets = _inverses(precisions, missing)
        group = Group(rows, pattern, missing, _places(seen), covariances)
        groups.append(group)
        order.append(rows)
        shifts.append(xp.concat([_shift(group, k if G > 1 else slice(1), products[k, ...]) for k in some]))
        n_missing = missing.shape[1]
        constants.append(xp.take(0.5 * (n_missing * math.log(2 * math.pi) - log_dets), pattern, axis=1))
    back = xp.argsort(xp.concat(order))
    constant = xp.take(xp.concat(constants, axis=1), back, axis=1)
    filled = residuals + xp.take(xp.concat(shifts, axis=1), back, axis=1)
    whitened = filled @ U
    log_prob = density.constants[:, None] + constant - 0.5 * xp.vecdot(whitened, whitened, axis=-1)
    return log_prob, WithMissing(groups, filled, constant)


def sums(density: FullDensity, latent: WithMissing, resp: Responsibilities) -> tuple[Array, Array]:
    """Sums of r E[x] (K, D) and r E[xx'] (G, D, D) given the observed entries.

    With precisions u of rows these are r u E[x] and r E[u xx']: V, which is proportional to 1 / u, is
    weighted with r.
    """
    (K, D), G = density.means.shape, density.covariances.shape[0]
    xp = namespace(density.means)
    weights = resp.full()
    sum_x, sum_xx = zeros((K, D), density.means), zeros((G, D, D), density.means)
    on_one = () if on_device(weights) else range(K)
    if on_device(weights):
        rows = latent.residuals + density.means[:, None, :]
        weighted = rows * weights[..., None]
        sum_x, by_component = xp.sum(weighted, axis=1), transpose(weighted) @ rows
        sum_xx = by_component if G > 1 else xp.sum(by_component, axis=0, keepdims=True)
    for k in on_one:
        chosen = xp.nonzero(weights[k, :] > 0)[0]
        r = xp.take(weights[k, :], chosen)
        x = xp.take(latent.residuals[k, ...], chosen, axis=0) + density.means[k, :]
        sum_x[k, :] += r @ x
        sum_xx[k if G > 1 else 0, ...] += (r[:, None] * x).T @ x
    plain = weights if resp.plain is None else resp.plain.full()
    r = plain if G > 1 else xp.sum(plain, axis=0, keepdims=True)
    for group in latent.groups:
        sum_xx += _sums_of_covariances(group, xp.take(r, group.rows, axis=1))
    return sum_x, sum_xx


def expected(density: FullDensity, block: Block, latent: WithMissing, resp: Array) -> Array:
    """(n, D) posterior mean of the rows, for responsibilities (n, K)."""
    K = resp.shape[1]
    parts = (resp[:, k, None] * (latent.residuals[k, ...] + density.means[k, :]) for k in range(K))
    return sum(parts, zeros(block.X.shape, block.X))


def moments_given(density: FullDensity, latent: WithMissing, k: int) -> tuple[Array, Array]:
    """Means and variances (n, D) of the rows given the observed entries and component k."""
    xp = namespace(density.means)
    g = k % density.covariances.shape[0]
    parts = [
        group.spread_out(xp.take(diagonals(group.covariances[g, ...]), group.pattern, axis=0))
        for group in latent.groups
    ]
    back = xp.argsort(xp.concat([group.rows for group in latent.groups]))
    variances = xp.take(xp.concat(parts), back, axis=0)
    return latent.residuals[k, ...] + density.means[k, :], variances


def draw(density: FullDensity, latent: WithMissing, labels: Array, rng: np.random.Generator) -> Floats:
    """(n, D) rows with missing entries sampled given the observed ones and the component."""
    G = density.covariances.shape[0]
    own = np.arange(len(labels))
    drawn: Floats = to_numpy(latent.residuals)[labels, own] + to_numpy(density.means)[labels]
    for group in latent.groups:
        at, pattern, missing = (to_numpy(a) for a in (group.rows, group.pattern, group.missing))
        roots = [np.linalg.cholesky(to_numpy(V)) for V in group.covariances]
        for k in np.unique(labels[at]):
            chosen = np.flatnonzero(labels[at] == k)
            root = roots[k % G][pattern[chosen]]
            step = (root @ rng.standard_normal((len(chosen), missing.shape[1], 1)))[..., 0]
            drawn[at[chosen][:, None], missing[pattern[chosen]]] += step
    return drawn


def _at_once(K: int, array: Array) -> list[slice]:
    """Components that are computed together: all on a device, each one alone in main memory."""
    return slices(K, K if on_device(array) else 1)


def _inverses(precisions: Array, missing: Array) -> tuple[Array, Array]:
    """V = Lambda_mm^-1 (G, P, m, m) and ln|Lambda_mm| (G, P), for the precisions (G, D, D)."""
    xp = namespace(precisions)
    (P, m), (G, D, _) = missing.shape, precisions.shape
    if m == 0:
        return zeros((G, P, 0, 0), precisions), zeros((G, P), precisions)
    at = xp.reshape(missing[:, :, None] * D + missing[:, None, :], (-1,))
    covariances, log_dets = [], []
    for some in _at_once(G, precisions):
        entries = xp.reshape(precisions[some, ...], (-1, D * D))
        own = xp.reshape(xp.take(entries, at, axis=1), (-1, P, m, m))
        if on_device(own):
            cholesky = cholesky_of_definite(own)
            half = inverse_of_triangular(cholesky)
            covariances.append(transpose(half) @ half)
        else:
            cholesky = xp.linalg.cholesky(own)
            covariances.append(symmetric(xp.linalg.inv(own)))
        log_dets.append(log_determinant(cholesky))
    return xp.concat(covariances), xp.concat(log_dets)


def _shift(group: Group, some: slice, products: Array) -> Array:
    """(K, n, D): E[r_m | x_o] in the missing entries, zero elsewhere.

    Of some components, whose `products` (K, n, D) are r Lambda of the block.
    """
    xp, V = namespace(products), group.covariances[some, ...]
    (P, m), (K, _, D) = group.missing.shape, products.shape
    n = group.rows.shape[0]
    if m == 0:
        return zeros((K, n, D), V)
    at = group.rows[:, None] * D + xp.take(group.missing, group.pattern, axis=0)
    b = xp.reshape(xp.take(xp.reshape(products, (K, -1)), xp.reshape(at, (-1,)), axis=1), (K, n, m))
    if P == 1:
        return group.spread_out(-b @ V[:, 0, ...])
    own = V if n == P else xp.take(V, group.pattern, axis=1)  # patterns are in the order of the rows
    return group.spread_out(-(own @ b[..., None])[..., 0])


def _sums_of_covariances(group: Group, r: Array) -> Array:
    """(G, D, D): the sums over rows of r V, in the positions of the missing entries, for r (G, n)."""
    xp = namespace(r)
    V, places = group.covariances, group.places
    (P, m), D, G = group.missing.shape, places.shape[1], r.shape[0]
    if m == 0:
        return zeros((G, D, D), r)
    if is_numpy(V):
        return np.stack([_sum_of_covariances(group, V[g], r[g]) for g in range(G)])
    weighted = xp.reshape(_by_pattern(group, r)[..., None, None] * V, (G, P * m, m))
    # rows of V in D columns, then summed over the rows of one feature: by a product, in a fixed order
    padded = xp.reshape(xp.concat([weighted, zeros((G, P * m, 1), V)], axis=2), (G, -1))
    first = like((m + 1) * np.arange(P * m).reshape(P, m, 1), V)
    at = xp.reshape(first + places[:, None, :], (-1,))
    in_columns = xp.reshape(xp.take(padded, at, axis=1), (G, P * m, D))
    features = xp.reshape(group.missing, (1, -1)) == like(np.arange(D)[:, None], V)  # (D, P m)
    return xp.astype(features, V.dtype)[None, ...] @ in_columns


def _sum_of_covariances(group: Group, V: Floats, r: Floats) -> Floats:
    """The same of one component in main memory."""
    P, D = group.missing.shape[0], group.places.shape[1]
    by_pattern = np.bincount(group.pattern, weights=r, minlength=P)
    used = np.flatnonzero(by_pattern > 0)
    missing, values = group.missing[used], V[used] * by_pattern[used, None, None]
    at = missing[:, :, None] * D + missing[:, None, :]
    return np.asarray(np.bincount(at.reshape(-1), weights=values.reshape(-1), minlength=D * D).reshape(D, D))


def _by_pattern(group: Group, r: Array) -> Array:
    """(G, P) the sums of r (G, n) over the rows of each pattern."""
    P, n = group.missing.shape[0], r.shape[1]
    if n == P:
        return r
    pattern = to_numpy(group.pattern)
    return like(np.stack([np.bincount(pattern, one, P) for one in to_numpy(r)]), r)


def _places(seen: Array) -> Array:
    """(P, D) position of each feature among the missing ones of its pattern; their number if it is seen."""
    xp = namespace(seen)
    place = xp.cumulative_sum(xp.astype(~seen, xp.int64), axis=1)
    return xp.where(seen, place[:, -1:], place - 1)


def _patterns(block: Block, G: int) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Rows (n,) with equally many missing entries, and the pattern (n,) of each.

    Then what the patterns miss (P, m) and see (P, D). They are numbered in the order in which the rows have
    them; stacks of them, for G covariances on a device, are of limited size.
    """
    observed = to_numpy(block.observed)
    packed = np.packbits(observed, axis=1)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    n_missing = np.sum(~observed[first], axis=1)
    rows_by_pattern = np.argsort(inverse, kind="stable")
    ends = np.cumsum(np.bincount(inverse, minlength=len(first)))
    starts = np.concatenate([[0], ends[:-1]])
    for m in np.unique(n_missing).tolist():
        size = 8 * m * (m if is_numpy(block.X) else G * observed.shape[1])
        limit = _STACK_BYTES if is_numpy(block.X) else _STACK_BYTES_OF_TENSORS
        at_once = max(1, limit // max(1, size))
        with_m = np.flatnonzero(n_missing == m)
        for i in range(0, len(with_m), at_once):
            some = with_m[i : i + at_once]
            rows = np.concatenate([rows_by_pattern[starts[p] : ends[p]] for p in some])
            pattern = np.repeat(np.arange(len(some)), ends[some] - starts[some])
            seen = observed[first[some]]
            missing = np.nonzero(~seen)[1].reshape(len(some), m)
            yield tuple(like(array, block.X) for array in (rows, pattern, missing, seen))
