"""Low-rank Gaussians for rows with missing entries: exact marginal densities and the same statistics.

With o the observed entries of a row, everything is as for complete rows with Psi_o and L_o in place of Psi
and L, but the posterior precision of the factors now differs from row to row. It is linear in the mask,

    B = I + L_o' Psi_o^-1 L_o = I + sum_d mask_d l_d l_d' / psi_d,

so one product of the masks with a table of l l' / psi gives it for all rows and components. Small
factorisations follow, vectorised entry by entry over all rows. Missing entries are latent as well: the
statistics contain their expectations x_d = mu_d + l_d'z and have the shape of those of complete rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from latently.backend import packed
from latently.backend.namespace import Array, Floats, is_numpy, like, namespace, to_numpy, zeros
from latently.backend.placement import on_device
from latently.core.block import Block
from latently.distributions.responsibilities import LOST, Responsibilities, needed_entries

if TYPE_CHECKING:
    from latently.distributions.low_rank import LowRankDensity, LowRankGaussian

_FULL_ROWS = 8  # responsibilities per row that are gathered on a device, at most


@dataclass(frozen=True)
class Tables:
    """Tables that multiply rows with missing entries, computed once per sweep. T = q (q + 1) / 2."""

    of_rows: Array  # ((q + 1) K, D): l / psi, factor by factor, then mu / psi
    of_masks: Array  # ((q + 1) K, D): l mu / psi, then the constants of ln N
    precisions: Array  # (T K, D): l l' / psi, packed

    @cached_property
    def in_float32(self) -> NDArray[np.float32]:
        """The precisions in float32, for the first pass."""
        with np.errstate(over="ignore"):
            rounded: NDArray[np.float32] = self.precisions.astype(np.float32)
        return rounded


@dataclass(frozen=True)
class WithMissing:
    """Intermediate results of the densities of rows with missing entries that their statistics reuse."""

    places: NDArray[np.int64] | None  # flat indices in (K, n) of the other fields; None for all
    columns: list[Array]  # of the factors C C' = B: (q - j, K, n), or (q - j, places)
    y: Array  # (q, K, n) or (q, places): C^-1 times the projected row

    def at(self, array: Array, flat: Array | None) -> Array:
        """(a, M) the entries of `columns` or `y` at other flat indices, a subset of `places`."""
        if self.places is None or flat is None:
            return _entries(array, flat)
        return np.take(array, np.searchsorted(self.places, flat), axis=1)


@dataclass(frozen=True)
class MissingSums:
    """Sums over rows of (1, m, E[zz']), weighted with r; S as in LowRankDensity, E[zz'] packed."""

    totals: Array  # (1 + q + T, K)
    of_rows: Array  # (1 + q, K, D): of 1 and m, times x where it is observed
    of_missing: Array  # (1 + q + T, K, D): of all, where x is missing
    of_squares: Array  # (K, S): of 1, times x^2 where it is observed
    excess: Array | None = None  # (K, D): sums of r - r u where x is missing, if rows have precisions u


def tables(density: LowRankDensity) -> Tables:
    xp = namespace(density.means)
    mu, psi = density.means, density.noise
    L = xp.permute_dims(density.loadings, (2, 0, 1))  # (q, K, D)
    q, K, D = L.shape
    scaled = L / psi
    constant = -0.5 * (math.log(2 * math.pi) + xp.log(psi) + mu**2 / psi)
    rows = [*(scaled[i, ...] for i in range(q)), mu / psi]
    masks = [*(scaled[i, ...] * mu for i in range(q)), constant]
    precisions = packed.products(scaled, L) if q else zeros((0, K, D), mu)
    return Tables(
        of_rows=xp.reshape(xp.stack(rows), (-1, D)),
        of_masks=xp.reshape(xp.stack(masks), (-1, D)),
        precisions=xp.reshape(precisions, (precisions.shape[0] * K, D)),
    )


def evaluate(
    family: LowRankGaussian, density: LowRankDensity, block: Block, *, rough: bool
) -> tuple[Array, WithMissing]:
    """ln pi_k p(x_o | k) (K, n), and intermediate results for `sums`.

    If `rough`, entries that are negligible in sums over rows, because the row is much more probable under
    another component, may be approximate: most of the work is in precisions that would not be used.
    """
    xp = namespace(block.X)
    n, (K, q) = len(block), (density.means.shape[0], family.n_factors)
    observed = xp.astype(block.observed, xp.float64)
    by_row = xp.reshape(density.tables.of_rows @ block.X.T, (q + 1, K, n))
    by_mask = xp.reshape(density.tables.of_masks @ observed.T, (q + 1, K, n))
    log_prob = by_row[q, ...] + by_mask[q, ...]
    log_prob += (-0.5 * density.inverse_noise) @ family.squares(block.X).T
    log_prob += density.log_weights[:, None]
    if not q:
        return log_prob, WithMissing(None, [], by_row[:0, ...])
    b = by_row[:q, ...] - by_mask[:q, ...]
    if rough and is_numpy(b) and K > 2:
        guess, places = _that_may_count(density, block, log_prob, b)
        if len(places) <= family.most_per_row(K) * n:
            columns, y = _made_exact(density, observed, log_prob, b, guess, places)
            if np.all(np.isfinite(np.max(guess, axis=0))):  # every row has a finite density
                return guess, WithMissing(places, columns, y)
    precisions = xp.reshape(density.tables.precisions @ observed.T, (-1, K, n))
    gain, columns, y = _explained(precisions, b)
    return log_prob + gain, WithMissing(None, columns, y)


def normalisers(density: LowRankDensity, block: Block, latent: WithMissing) -> Array:
    """-1/2 ln|2 pi Sigma_oo| (K, n), after an evaluation that was not rough."""
    xp = namespace(block.X)
    of_noise = -0.5 * xp.log(2 * math.pi * density.noise) @ xp.astype(block.observed, xp.float64).T
    return of_noise - 0.5 * packed.log_determinant(latent.columns) if latent.columns else of_noise


def _explained(precisions: Array, b: Array) -> tuple[Array, list[Array], Array]:
    """1/2 (b'B^-1 b - ln|B|), factors of B, and C^-1 b, for packed B - I (T, ...) and b (q, ...)."""
    xp = namespace(b)
    q = b.shape[0]
    for p, (i, j) in enumerate(packed.pairs(q)):
        if i == j:
            precisions[p, ...] += 1.0
    columns = packed.cholesky(precisions, q)
    y = packed.forward(columns, b)
    return 0.5 * (xp.sum(y * y, axis=0) - packed.log_determinant(columns)), columns, y


def _that_may_count(
    density: LowRankDensity, block: Block, log_prob: Floats, b: Floats
) -> tuple[Floats, NDArray[np.int64]]:
    """Approximate log densities (K, n), and the flat indices of non-negligible responsibilities.

    Computed with precisions in float32 and a bound on the resulting error of a log density: an error d in B
    changes b'B^-1 b by |B^-1 b|^2 d <= b'B^-1 b d, and ln|B| by q d, because B >= I.
    """
    (q, K, n), D = b.shape, block.X.shape[1]
    assert block.observed is not None
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):  # float32 may overflow
        products = density.tables.in_float32 @ block.observed.astype(np.float32).T
        gain, _, y = _explained(products.reshape(-1, K, n).astype(np.float64), b)
        trace = np.sum(density.loadings**2 / density.noise[:, :, None], axis=(1, 2))[:, None]
        off = 4.0 * math.sqrt(D) * np.finfo(np.float32).eps * trace  # well above the rounding error
        doubt = 0.5 * off * (np.sum(y * y, axis=0) + q)
        guess = log_prob + gain
        if block.allowed is not None:
            guess[~block.allowed.T] = -np.inf
        at_least = guess - doubt - np.max(guess + doubt, axis=0)  # nats relative to the largest of the row
        at_most = guess + doubt - np.max(guess - doubt, axis=0)
        out_of_question = at_most < np.max(at_least, axis=1, keepdims=True) + LOST
        out_of_question |= guess == -np.inf
    return guess, np.flatnonzero(~out_of_question)  # NaN is not negligible


def _made_exact(
    density: LowRankDensity,
    observed: Floats,
    log_prob: Floats,
    b: Floats,
    guess: Floats,
    places: NDArray[np.int64],
) -> tuple[list[Floats], Floats]:
    """Replace the approximations at `places` by exact values; returns factors of B and C^-1 b there."""
    _, K, n = b.shape
    tables = density.tables.precisions.reshape(-1, K, observed.shape[1])
    bounds = np.searchsorted(places, n * np.arange(K + 1))
    rows = [places[bounds[k] : bounds[k + 1]] - k * n for k in range(K)]
    precisions = np.concatenate([tables[:, k, :] @ observed[rows[k]].T for k in range(K)], axis=1)
    gain, columns, y = _explained(precisions, _entries(b, places))
    guess.reshape(-1)[places] = log_prob.reshape(-1)[places] + gain
    return columns, y


def sums(
    family: LowRankGaussian,
    density: LowRankDensity,
    block: Block,
    latent: WithMissing,
    resp: Responsibilities,
) -> MissingSums:
    """Weighted with r u, if rows have precisions u, but covariances, proportional to 1 / u, with r."""
    xp = namespace(block.X)
    q = family.n_factors
    r, flat, bounds = resp.entries()  # ordered by component
    if q and flat is None and resp.plain is None and on_device(block.X):
        fewer = needed_entries(resp.dense, _FULL_ROWS * len(block))
        r, flat, bounds = (r, flat, bounds) if fewer is None else fewer
    weighted = r[None, :]
    if q:
        columns = [latent.at(column, flat) for column in latent.columns]
        m = packed.backward(columns, latent.at(latent.y, flat))  # (q, M)
        zz = packed.inverse(columns)
        outer = packed.products(m, m)
        if resp.plain is None:
            zz += outer
            zz *= r
        else:
            zz = zz * resp.plain.entries()[0] + outer * r
        weighted = xp.concat([weighted, m * r, zz])
    sums = sums_of_moments(family, block, weighted, flat, bounds)
    if resp.plain is None:
        return sums
    return replace(sums, excess=_sums_where_missing(block, resp.plain.entries()[0] - r, flat, bounds))


def _sums_where_missing(block: Block, weights: Array, flat: Array | None, bounds: list[int]) -> Array:
    """(K, D) sums of weights (M,), ordered by component, over the rows where a feature is missing."""
    xp = namespace(block.X)
    assert block.observed is not None
    missing, parts = xp.astype(~block.observed, xp.float64), []
    for k, (first, last) in enumerate(pairwise(bounds)):
        rows = missing if flat is None else xp.take(missing, flat[first:last] - k * len(block), axis=0)
        parts.append(weights[first:last] @ rows)
    return xp.stack(parts)


def sums_of_moments(
    family: LowRankGaussian, block: Block, weighted: Array, flat: Array | None, bounds: list[int]
) -> MissingSums:
    """The sums for r (1, m, E[zz']), (1 + q + T, M), ordered by component.

    `flat` are their flat indices in (K, n), None for all; `bounds` are the starts of the components.
    """
    xp = namespace(block.X)
    q, n, K = family.n_factors, len(block), len(bounds) - 1
    assert block.observed is not None
    X, missing = block.X, xp.astype(~block.observed, xp.float64)
    if flat is None:
        by_component = xp.reshape(weighted, (weighted.shape[0], K, n))
        return MissingSums(
            totals=xp.sum(by_component, axis=2),
            of_rows=_times(by_component[: 1 + q, ...], X),
            of_missing=_times(by_component, missing),
            of_squares=by_component[0, ...] @ family.squares(X),
        )
    if on_device(X):
        return _of_gathered(family, block, weighted, flat, bounds)
    totals, of_rows, of_missing, of_squares = [], [], [], []
    for k in range(K):
        own, rows = weighted[:, bounds[k] : bounds[k + 1]], flat[bounds[k] : bounds[k + 1]] - k * n
        its, its_missing = (xp.take(array, rows, axis=0) for array in (X, missing))
        totals.append(xp.sum(own, axis=1))
        of_rows.append(own[: 1 + q, :] @ its)
        of_missing.append(own @ its_missing)
        of_squares.append(own[0, :] @ family.squares(its))
    return MissingSums(
        totals=xp.stack(totals, axis=1),
        of_rows=xp.stack(of_rows, axis=1),
        of_missing=xp.stack(of_missing, axis=1),
        of_squares=xp.stack(of_squares),
    )


def _times(weighted: Array, rows: Array) -> Array:
    """(a, K, D) the sums of rows (n, D) with weights (a, K, n)."""
    xp, (a, K, n) = namespace(rows), weighted.shape
    return xp.reshape(xp.reshape(weighted, (a * K, n)) @ rows, (a, K, rows.shape[1]))


def _of_gathered(
    family: LowRankGaussian, block: Block, weighted: Array, flat: Array, bounds: list[int]
) -> MissingSums:
    """The sums of the rows of all components side by side, with zeros after those of smaller ones."""
    xp, n, K = namespace(flat), len(block), len(bounds) - 1
    assert block.observed is not None
    first, counts = like(np.array(bounds[:-1]), flat), like(np.diff(bounds), flat)
    m = int(max(np.diff(bounds)))
    within = like(np.arange(m), flat)
    places = xp.where(within < counts[:, None], first[:, None] + within, bounds[-1])
    places = xp.reshape(places, (-1,))
    weighted = xp.concat([weighted, xp.zeros_like(weighted[:, :1])], axis=1)
    weighted = xp.permute_dims(
        xp.reshape(xp.take(weighted, places, axis=1), (weighted.shape[0], K, m)), (1, 0, 2)
    )
    rows = xp.take(xp.concat([flat % n, xp.zeros_like(flat[:1])]), places)
    X = xp.take(block.X, rows, axis=0)
    missing = xp.astype(~xp.take(block.observed, rows, axis=0), xp.float64)
    squares = family.squares(X)
    X, missing, squares = (xp.reshape(array, (K, m, -1)) for array in (X, missing, squares))
    return MissingSums(
        totals=xp.sum(weighted, axis=2).T,
        of_rows=xp.permute_dims(weighted[:, : 1 + family.n_factors, :] @ X, (1, 0, 2)),
        of_missing=xp.permute_dims(weighted @ missing, (1, 0, 2)),
        of_squares=(weighted[:, :1, :] @ squares)[:, 0, :],
    )


def statistics(family: LowRankGaussian, density: LowRankDensity, sums: MissingSums) -> dict[str, Array]:
    """The fields of LowRankStats, with expectations in place of missing x; once per sweep."""
    xp = namespace(sums.totals)
    q = family.n_factors
    mu, psi = density.means, density.noise
    L = xp.permute_dims(density.loadings, (2, 0, 1))  # (q, K, D)
    r, m = sums.of_missing[0, ...], sums.of_missing[1 : 1 + q, ...]
    zz = packed.unpacked(sums.of_missing[1 + q :, ...], q)
    zzl = xp.permute_dims((zz @ density.loadings[..., None])[..., 0], (2, 0, 1)) if q else m  # r E[zz'] l
    ml = xp.sum(m * L, axis=0)
    square = r * (psi + mu**2) + 2.0 * mu * ml + xp.sum(zzl * L, axis=0)
    if sums.excess is not None:
        square = square + sums.excess * psi
    if family.isotropic:
        square = xp.sum(square, axis=1, keepdims=True)
    square = square + sums.of_squares
    if family.shared:
        square = xp.sum(square, axis=0, keepdims=True)
    return {
        "weight": sums.totals[0, :],
        "sum_x": sums.of_rows[0, ...] + r * mu + ml,
        "sum_z": sums.totals[1 : 1 + q, :].T,
        "sum_zx": xp.permute_dims(sums.of_rows[1:, ...] + m * mu + zzl, (1, 0, 2)),
        "sum_zz": packed.unpacked(sums.totals[1 + q :, :], q),
        "sum_square": square,
    }


def factor_means(latent: WithMissing) -> Array:
    """E[z | x_o, k] (n, K, q)."""
    xp = namespace(latent.y)
    z = packed.backward(latent.columns, latent.y) if latent.columns else latent.y
    return xp.permute_dims(z, (2, 1, 0))


def factor_covariances(latent: WithMissing) -> Array:
    """Covariances of z given x_o and k (n, K, q, q)."""
    xp = namespace(latent.y)
    q, K, n = latent.y.shape
    if not q:
        return zeros((n, K, 0, 0), latent.y)
    return xp.permute_dims(packed.unpacked(packed.inverse(latent.columns), q), (1, 0, 2, 3))


def moments_given(density: LowRankDensity, latent: WithMissing, k: int) -> tuple[Array, Array]:
    """Means mu + L m and variances psi + diag(L B^-1 L') (n, D) of missing entries, given component k."""
    mu, L, psi = density.means[k, :], density.loadings[k, ...], density.noise[k, :]
    if not latent.columns:
        nothing = zeros((latent.y.shape[2], L.shape[0]), mu)
        return mu + nothing, psi + nothing
    columns = [column[:, k, :] for column in latent.columns]
    z = packed.backward(columns, latent.y[:, k, :])
    return mu + z.T @ L.T, psi + spread(columns, L)


def spread(columns: list[Array], L: Array) -> Array:
    """(n, D): the diagonals of L B^-1 L', for loadings (D, q) and factors of B."""
    xp = namespace(L)
    products = [
        (1.0 if i == j else 2.0) * L[:, i] * L[:, j] for i, j in packed.pairs(len(columns))
    ]  # entries off the diagonal count twice
    return packed.inverse(columns).T @ xp.stack(products)


def draw(density: LowRankDensity, latent: WithMissing, labels: Array, rng: np.random.Generator) -> Floats:
    """(n, D) rows sampled given the observed entries and components; only the missing entries are used."""
    mu, L, psi = (to_numpy(a)[labels] for a in (density.means, density.loadings, density.noise))
    rows: Floats = mu + np.sqrt(psi) * rng.standard_normal(mu.shape)
    if latent.columns:
        own = np.arange(len(labels))
        columns = [to_numpy(column)[:, labels, own] for column in latent.columns]
        y = to_numpy(latent.y)[:, labels, own]
        z = packed.backward(columns, y + rng.standard_normal(y.shape))  # C'^-1 e has covariance B^-1
        rows += np.einsum("ndq,qn->nd", L, z)
    return rows


def _entries(array: Array, flat: Array | None) -> Array:
    """(a, M) the chosen entries of (a, K, n)."""
    xp = namespace(array)
    array = xp.reshape(array, (array.shape[0], array.shape[1] * array.shape[2]))
    return array if flat is None else xp.take(array, flat, axis=1)
