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

from latently.backend.linalg import diagonals, log_determinant, symmetric, transpose
from latently.backend.namespace import Array, Floats, is_numpy, like, namespace, to_numpy, zeros
from latently.core.block import Block
from latently.distributions.responsibilities import Responsibilities

if TYPE_CHECKING:
    from latently.distributions.gaussian import FullDensity

_STACK_BYTES = 8_000_000  # of the matrices that are processed at once


@dataclass(frozen=True)
class Group:
    """Rows with m missing entries each, and their P distinct patterns."""

    rows: Array  # (n,) positions in the block
    pattern: Array  # (n,) of each row
    missing: Array  # (P, m) features that are missing
    places: Array  # (P, D) position of each feature among the missing ones; m if it is observed
    covariances: list[Array]  # G times (P, m, m): V

    def spread_out(self, values: Array) -> Array:
        """(n, D) from values (n, m) of the missing entries, zero elsewhere."""
        xp = namespace(values)
        n, m = values.shape
        padded = xp.reshape(xp.concat([values, zeros((n, 1), values)], axis=1), (-1,))
        at = xp.take(self.places, self.pattern, axis=0) + (m + 1) * like(np.arange(n)[:, None], values)
        return xp.reshape(xp.take(padded, xp.reshape(at, (-1,))), at.shape)


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
    residuals = [(block.X - density.means[k, :]) * observed for k in range(K)]
    products = [r @ precisions[k if G > 1 else 0, ...] for k, r in enumerate(residuals)]
    groups, order, shifts, constants = [], [], [], []
    for rows, pattern, missing in _patterns(block):
        covariances, log_dets = _inverses(precisions, missing)
        group = Group(rows, pattern, missing, _places(missing, block), covariances)
        groups.append(group)
        order.append(rows)
        shifts.append(xp.stack([_shift(group, covariances[k % G], products[k]) for k in range(K)]))
        n_missing = missing.shape[1]
        parts = [xp.take(0.5 * (n_missing * math.log(2 * math.pi) - ln), pattern) for ln in log_dets]
        constants.append(xp.stack(parts))
    back = xp.argsort(xp.concat(order))
    shift = xp.take(xp.concat(shifts, axis=1), back, axis=1)
    constant = xp.take(xp.concat(constants, axis=1), back, axis=1)
    filled = xp.stack(residuals) + shift
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
    for k in range(K):
        chosen = xp.nonzero(weights[k, :] > 0)[0]
        r = xp.take(weights[k, :], chosen)
        x = xp.take(latent.residuals[k, ...], chosen, axis=0) + density.means[k, :]
        sum_x[k, :] += r @ x
        sum_xx[k if G > 1 else 0, ...] += (r[:, None] * x).T @ x
    plain = weights if resp.plain is None else resp.plain.full()
    for g in range(G):
        r = plain[g, :] if G > 1 else xp.sum(plain, axis=0)
        for group in latent.groups:
            sum_xx[g, ...] += _sum_of_covariances(group, g, xp.take(r, group.rows))
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
        group.spread_out(xp.take(diagonals(group.covariances[g]), group.pattern, axis=0))
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


def _inverses(precisions: Array, missing: Array) -> tuple[list[Array], list[Array]]:
    """V = Lambda_mm^-1 (P, m, m) and ln|Lambda_mm| (P,), for each of the precisions (G, D, D)."""
    xp = namespace(precisions)
    (P, m), (G, D, _) = missing.shape, precisions.shape
    if m == 0:
        return [zeros((P, 0, 0), precisions)] * G, [zeros((P,), precisions)] * G
    at = xp.reshape(missing[:, :, None] * D + missing[:, None, :], (-1,))
    covariances, log_dets = [], []
    for g in range(G):
        own = xp.reshape(xp.take(xp.reshape(precisions[g, ...], (-1,)), at), (P, m, m))
        log_dets.append(log_determinant(xp.linalg.cholesky(own)))
        covariances.append(symmetric(xp.linalg.inv(own)))
    return covariances, log_dets


def _shift(group: Group, V: Array, products: Array) -> Array:
    """(n, D): E[r_m | x_o] in the missing entries, zero elsewhere; `products` is r Lambda of the block."""
    xp = namespace(V)
    (P, m), D = group.missing.shape, products.shape[1]
    n = group.rows.shape[0]
    if m == 0:
        return zeros((n, D), V)
    at = group.rows[:, None] * D + xp.take(group.missing, group.pattern, axis=0)
    b = xp.reshape(xp.take(xp.reshape(products, (-1,)), xp.reshape(at, (-1,))), (n, m))
    if P == 1:
        return group.spread_out(-b @ V[0, ...])
    own = V if n == P else xp.take(V, group.pattern, axis=0)  # patterns are in the order of the rows
    return group.spread_out(-(own @ b[:, :, None])[..., 0])


def _sum_of_covariances(group: Group, g: int, r: Array) -> Array:
    """(D, D): the sum over rows of r V, in the positions of the missing entries."""
    xp = namespace(r)
    V, places = group.covariances[g], group.places
    (P, m), D = group.missing.shape, places.shape[1]
    if m == 0:
        return zeros((D, D), r)
    by_pattern = like(np.bincount(to_numpy(group.pattern), weights=to_numpy(r), minlength=P), r)
    if is_numpy(V):
        used = np.flatnonzero(by_pattern > 0)
        missing, values = group.missing[used], V[used] * by_pattern[used, None, None]
        at = missing[:, :, None] * D + missing[:, None, :]
        return np.bincount(at.reshape(-1), weights=values.reshape(-1), minlength=D * D).reshape(D, D)
    total = zeros((D * D,), V)
    at_once = max(1, _STACK_BYTES // (8 * D * D))
    for start in range(0, P, at_once):
        some = slice(start, start + at_once)
        count = places[some, ...].shape[0]
        padded = xp.concat([V[some, ...], zeros((count, m, 1), V)], axis=2)
        padded = xp.reshape(xp.concat([padded, zeros((count, 1, m + 1), V)], axis=1), (-1,))
        own = places[some, ...]
        first = like(np.arange(count) * (m + 1) ** 2, V)
        at = first[:, None, None] + (m + 1) * own[:, :, None] + own[:, None, :]
        dense = xp.reshape(xp.take(padded, xp.reshape(at, (-1,))), (count, D * D))
        total = total + by_pattern[some] @ dense
    return xp.reshape(total, (D, D))


def _places(missing: Array, block: Block) -> Array:
    """(P, D) position of each feature among the missing ones; m where it is observed."""
    features = to_numpy(missing)
    P, m = features.shape
    places = np.full((P, block.X.shape[1]), m)
    np.put_along_axis(places, features, np.arange(m)[None, :], axis=1)
    return like(places, block.X)


def _patterns(block: Block) -> Iterator[tuple[Array, Array, Array]]:
    """Rows (n,) with equally many missing entries, the pattern (n,) of each, and the patterns (P, m).

    Patterns are numbered in the order in which the rows have them; stacks of them are of limited size.
    """
    observed = to_numpy(block.observed)
    packed = np.packbits(observed, axis=1)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    n_missing = np.sum(~observed[first], axis=1)
    rows_by_pattern = np.argsort(inverse, kind="stable")
    ends = np.cumsum(np.bincount(inverse, minlength=len(first)))
    starts = np.concatenate([[0], ends[:-1]])
    for m in np.unique(n_missing):
        at_once = max(1, _STACK_BYTES // (8 * max(1, int(m)) ** 2))
        with_m = np.flatnonzero(n_missing == m)
        for i in range(0, len(with_m), at_once):
            some = with_m[i : i + at_once]
            rows = np.concatenate([rows_by_pattern[starts[p] : ends[p]] for p in some])
            pattern = np.repeat(np.arange(len(some)), ends[some] - starts[some])
            missing = np.nonzero(~observed[first[some]])[1].reshape(len(some), int(m))
            yield like(rows, block.X), like(pattern, block.X), like(missing, block.X)
