"""Low-rank Gaussians of rows with missing entries: exact marginal densities, and the same statistics.

With o the observed entries of a row, everything is as for complete rows with Psi_o and L_o in place of Psi
and L, but the posterior precision of the factors now differs from row to row. It is linear in the mask,

    B = I + L_o' Psi_o^-1 L_o = I + sum_d mask_d l_d l_d' / psi_d,

so one product of the masks with a table of l l' / psi gives it for all rows and components. Then come small
factorisations, done entry by entry over all rows at once. Missing entries are latent too: the statistics hold
their expectations x_d = mu_d + l_d'z given the rest, and have the shape of those of complete rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from latently.backend import packed
from latently.backend.namespace import Array, Floats, namespace, to_numpy, zeros
from latently.core.block import Block
from latently.distributions.responsibilities import Responsibilities

if TYPE_CHECKING:
    from latently.distributions.low_rank import LowRankDensity, LowRankGaussian


@dataclass(frozen=True)
class Tables:
    """What rows with holes are multiplied with, once per sweep. T = q (q + 1) / 2."""

    of_rows: Array  # ((q + 1) K, D): l / psi, factor by factor, then mu / psi
    of_masks: Array  # ((T + q + 1) K, D): l l' / psi, then l mu / psi, then -1/2 ln N's constant


@dataclass(frozen=True)
class Holed:
    """What the statistics of rows with holes can take over from their densities."""

    observed: Array  # (n, D), one or zero
    columns: list[Array]  # of the factors C C' = B: (q - j, K, n)
    y: Array  # (q, K, n): C^-1 times the projected row


@dataclass(frozen=True)
class LowRankStats:
    """Every field is a sum over rows; x is expected where it is missing, m = E[z|x,k], V its covariance."""

    weight: Array  # (K,)       sum of r
    sum_x: Array  # (K, D)      sum of r x
    sum_z: Array  # (K, q)      sum of r m
    sum_zx: Array  # (K, q, D)  sum of r E[z x']
    sum_zz: Array  # (K, q, q)  sum of r (V + m m')
    sum_square: Array  # (G, S) sum of r x^2, over components if shared, over features if isotropic


def tables(density: LowRankDensity) -> Tables:
    xp = namespace(density.means)
    mu, psi = density.means, density.noise
    L = xp.permute_dims(density.loadings, (2, 0, 1))  # (q, K, D)
    q, K, D = L.shape
    scaled = L / psi
    constant = -0.5 * (math.log(2 * math.pi) + xp.log(psi) + mu**2 / psi)
    products = [scaled[i, ...] * L[j, ...] for i, j in packed.pairs(q)]
    rows = [*(scaled[i, ...] for i in range(q)), mu / psi]
    masks = [*products, *(scaled[i, ...] * mu for i in range(q)), constant]
    return Tables(*(xp.reshape(xp.stack(parts), (len(parts) * K, D)) for parts in (rows, masks)))


def evaluate(family: LowRankGaussian, density: LowRankDensity, block: Block) -> tuple[Array, Holed]:
    """ln pi_k p(x_o | k) (K, n), and what `sums` needs."""
    xp = namespace(block.X)
    n, (K, q) = len(block), (density.means.shape[0], family.n_factors)
    T = q * (q + 1) // 2
    observed = xp.astype(block.observed, xp.float64)
    by_row = xp.reshape(density.tables.of_rows @ block.X.T, (q + 1, K, n))
    by_mask = xp.reshape(density.tables.of_masks @ observed.T, (T + q + 1, K, n))
    log_prob = by_row[q, ...] + by_mask[T + q, ...]
    log_prob += (-0.5 * density.inverse_noise) @ family.squares(block.X).T
    log_prob += density.log_weights[:, None]
    if not q:
        return log_prob, Holed(observed, [], by_row[:0, ...])
    precision = by_mask[:T, ...]
    for p, (i, j) in enumerate(packed.pairs(q)):
        if i == j:
            precision[p, ...] += 1.0
    columns = packed.cholesky(precision, q)
    y = packed.forward(columns, by_row[:q, ...] - by_mask[T : T + q, ...])
    log_prob += 0.5 * (xp.sum(y * y, axis=0) - packed.log_determinant(columns))
    return log_prob, Holed(observed, columns, y)


def sums(
    family: LowRankGaussian, density: LowRankDensity, block: Block, holed: Holed, resp: Responsibilities
) -> LowRankStats:
    xp = namespace(block.X)
    K, q, n = density.means.shape[0], family.n_factors, len(block)
    r, flat, bounds = resp.entries()  # of all components, one after the other
    if q:
        columns = [_entries(column, flat) for column in holed.columns]
        m = packed.backward(columns, _entries(holed.y, flat))  # (q, M)
        zz = packed.inverse(columns)
        zz += xp.stack([m[i, :] * m[j, :] for i, j in packed.pairs(q)])
        weighted = xp.concat([xp.ones_like(r)[None, :], m, zz]) * r  # (1 + q + T, M)
    else:
        weighted = r[None, :]
    squares = family.squares(block.X)
    of_rows, of_masks, of_squares = [], [], []
    for k in range(K):
        own = slice(bounds[k], bounds[k + 1])
        X, observed, square = block.X, holed.observed, squares
        if flat is not None:
            rows = flat[own] - k * n
            X, observed, square = (xp.take(array, rows, axis=0) for array in (X, observed, square))
        of_rows.append(weighted[: 1 + q, own] @ X)
        of_masks.append(weighted[:, own] @ (1.0 - observed))
        of_squares.append(r[own] @ square)
    return _statistics(
        family,
        density,
        totals=xp.stack([xp.sum(weighted[:, bounds[k] : bounds[k + 1]], axis=1) for k in range(K)], axis=1),
        of_rows=xp.stack(of_rows, axis=1),
        of_holes=xp.stack(of_masks, axis=1),
        of_squares=xp.stack(of_squares),
    )


def _statistics(
    family: LowRankGaussian,
    density: LowRankDensity,
    totals: Array,
    of_rows: Array,
    of_holes: Array,
    of_squares: Array,
) -> LowRankStats:
    """From sums of r, r m over what was observed (1 + q, K, D) and of r, r m, r E[zz'] over holes."""
    xp = namespace(of_rows)
    q = of_rows.shape[0] - 1
    mu, psi = density.means, density.noise
    L = xp.permute_dims(density.loadings, (2, 0, 1))  # (q, K, D)
    r, m, zz = of_holes[0, ...], of_holes[1 : 1 + q, ...], packed.unpacked(of_holes[1 + q :, ...], q)
    zzl = xp.permute_dims((zz @ density.loadings[..., None])[..., 0], (2, 0, 1)) if q else m  # r E[zz'] l
    ml = xp.sum(m * L, axis=0)
    square = r * (psi + mu**2) + 2.0 * mu * ml + xp.sum(zzl * L, axis=0)
    if family.isotropic:
        square = xp.sum(square, axis=1, keepdims=True)
    square = square + of_squares
    if family.shared:
        square = xp.sum(square, axis=0, keepdims=True)
    return LowRankStats(
        weight=totals[0, :],
        sum_x=of_rows[0, ...] + r * mu + ml,
        sum_z=totals[1 : 1 + q, :].T,
        sum_zx=xp.permute_dims(of_rows[1:, ...] + m * mu + zzl, (1, 0, 2)),
        sum_zz=packed.unpacked(totals[1 + q :, :], q),
        sum_square=square,
    )


def factor_means(holed: Holed) -> Array:
    """E[z | x_o, k] (n, K, q)."""
    xp = namespace(holed.y)
    z = packed.backward(holed.columns, holed.y) if holed.columns else holed.y
    return xp.permute_dims(z, (2, 1, 0))


def factor_covariances(holed: Holed) -> Array:
    """Covariances of z given x_o and k (n, K, q, q)."""
    xp = namespace(holed.y)
    q, K, n = holed.y.shape
    if not q:
        return zeros((n, K, 0, 0), holed.y)
    return xp.permute_dims(packed.unpacked(packed.inverse(holed.columns), q), (1, 0, 2, 3))


def draw(density: LowRankDensity, holed: Holed, labels: Array, rng: np.random.Generator) -> Floats:
    """(n, D) rows drawn given the observed entries and components: the drawn values matter in holes only."""
    mu, L, psi = (to_numpy(a)[labels] for a in (density.means, density.loadings, density.noise))
    rows: Floats = mu + np.sqrt(psi) * rng.standard_normal(mu.shape)
    if holed.columns:
        own = np.arange(len(labels))
        columns = [to_numpy(column)[:, labels, own] for column in holed.columns]
        y = to_numpy(holed.y)[:, labels, own]
        z = packed.backward(columns, y + rng.standard_normal(y.shape))  # C'^-1 e has covariance B^-1
        rows += np.einsum("ndq,qn->nd", L, z)
    return rows


def _entries(array: Array, flat: Array | None) -> Array:
    """(a, M) the chosen entries of (a, K, n)."""
    xp = namespace(array)
    array = xp.reshape(array, (array.shape[0], array.shape[1] * array.shape[2]))
    return array if flat is None else xp.take(array, flat, axis=1)
