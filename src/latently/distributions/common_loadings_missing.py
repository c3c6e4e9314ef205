"""Common loadings for rows with missing entries: exact marginal densities and the same statistics.

With o the observed entries of a row, the posterior precision of the factors is Omega_k^-1 + W with

    W = A_o' Psi_o^-1 A_o = sum_d mask_d a_d a_d' / psi_d      and      u = A_o' Psi_o^-1 (x_o - c_o),

the same W and u for all components: one product with the masks and one with the rows. With Omega_k = C C' and
z = xi_k + C s, s ~ N(0, I), the posterior of s has precision B = I + C'W C and mean B^-1 C'(u - W xi_k), both
linear in (W, u), so a second product gives them for all components. Small factorisations follow, vectorised
entry by entry over all rows. Factors are measured from the anchor throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from latently.backend import packed
from latently.backend.linalg import transpose
from latently.backend.namespace import Array, Floats, constant, namespace, to_numpy
from latently.core.block import Block
from latently.distributions.low_rank_missing import spread
from latently.distributions.responsibilities import Responsibilities

if TYPE_CHECKING:
    from latently.distributions.common_loadings_records import CommonDensity


@dataclass(frozen=True)
class Tables:
    """Tables that multiply rows with missing entries, computed once per sweep. P = q (q + 1) / 2."""

    of_rows: Array  # (q + 1, D): a / psi, then c / psi
    of_masks: Array  # (q + 1 + P, D): a c / psi, the constants of ln N, then a a' / psi
    of_u: Array  # ((q + 1) K, q): C', then xi'
    of_W: Array  # ((q + 1 + P) K, P): C'W xi, xi'W xi / 2, then C'W C
    to_zz: Array  # (P, (1 + q + P) K): from 1, s and s s' of every component to z z'
    to_z: Array  # (q, (1 + q) K): from 1 and s to z


@dataclass(frozen=True)
class WithMissing:
    """Intermediate results of the densities of rows with missing entries that their statistics reuse."""

    columns: list[Array]  # of the factors of B: (q - j, K, n)
    y: Array  # (q, K, n): the inverse factor times C'(u - W xi)


@dataclass(frozen=True)
class MissingSums:
    """Sums over rows, weighted with r; s s' and z z' packed."""

    totals: Array  # (1 + q + P, K): of 1, s and s s'
    of_rows: Array  # (1 + q, D): of 1 and z, times x where it is observed
    of_missing: Array  # (1 + q + P, D): of 1, z and z z', where x is missing
    of_squares: Array  # (D,): of x^2 where it is observed
    excess: Array | None = None  # (D,): of r - r u where x is missing, if rows have precisions u


def tables(density: CommonDensity) -> Tables:
    params = density.params
    xp = namespace(params.centre)
    A, c, psi = params.loadings.T, params.centre, params.noise_variance  # (q, D), (D,), (D,)
    C, xi = density.roots, params.latent_means
    q = xi.shape[1]
    scaled = A / psi
    of_entry = -0.5 * (math.log(2 * math.pi) + xp.log(psi) + c**2 / psi)
    apart = constant(A, packed.apart, q)  # such entries count twice

    def both(left: Array, right: Array) -> Array:
        """(..., P): a_i b_j + a_j b_i, or a_i b_i, of vectors (..., q)."""
        (a_i, a_j), (b_i, b_j) = packed.entries(left), packed.entries(right)
        return a_i * b_j + apart * a_j * b_i

    roots, means = xp.permute_dims(C, (2, 0, 1)), xi[None, ...]  # (q, K, q), (1, K, q)
    first, second = (xp.permute_dims(of, (2, 0, 1)) for of in packed.entries(C))  # (P, K, q)
    of_W = xp.concat([both(roots, means), 0.5 * both(means, means), both(first, second)])

    shown = xp.concat([xi[..., None], C], axis=2)  # (K, q, 1 + q): z = xi + C s
    C_i, C_j = (transpose(of) for of in packed.entries(transpose(C)))  # (K, P, q)
    xi_i, xi_j = (of[..., None] for of in packed.entries(xi))  # (K, P, 1)
    to_zz = xp.concat([xi_i * xi_j, xi_i * C_j + xi_j * C_i, both(C_i, C_j)], axis=2)
    return Tables(
        of_rows=xp.concat([scaled, (c / psi)[None, :]]),
        of_masks=xp.concat([scaled * c, of_entry[None, :], packed.products(scaled, A)]),
        of_u=xp.reshape(xp.concat([roots, means]), (-1, q)),
        of_W=xp.reshape(of_W, (-1, apart.shape[0])),
        to_zz=_by_entry(to_zz),
        to_z=_by_entry(shown),
    )


def _by_entry(stack: Array) -> Array:
    """(a, b K) from (K, a, b)."""
    xp, (K, a, b) = namespace(stack), stack.shape
    return xp.reshape(xp.permute_dims(stack, (1, 2, 0)), (a, b * K))


def evaluate(density: CommonDensity, block: Block) -> tuple[Array, WithMissing]:
    """ln pi_k p(x_o | k) (K, n), and intermediate results for `sums`."""
    xp = namespace(block.X)
    n, (K, q) = len(block), density.params.latent_means.shape
    by_row = density.tables.of_rows @ block.X.T
    by_mask = density.tables.of_masks @ xp.astype(block.observed, xp.float64).T
    u, W = by_row[:q, :] - by_mask[:q, :], by_mask[q + 1 :, :]
    common = by_row[q, :] + by_mask[q, :] - (block.X * block.X) @ density.half_precision
    by_u = xp.reshape(density.tables.of_u @ u, (q + 1, K, n))
    by_W = xp.reshape(density.tables.of_W @ W, (-1, K, n))
    b = by_u - by_W[: q + 1, ...]
    B = by_W[q + 1 :, ...]
    for p, (i, j) in enumerate(packed.pairs(q)):
        if i == j:
            B[p, ...] += 1.0
    columns = packed.cholesky(B, q)
    y = packed.forward(columns, b[:q, ...])
    log_prob = common + b[q, ...] + 0.5 * (xp.sum(y * y, axis=0) - packed.log_determinant(columns))
    return log_prob + density.log_weights[:, None], WithMissing(columns, y)


def normalisers(density: CommonDensity, block: Block, latent: WithMissing) -> Array:
    """-1/2 ln|2 pi Sigma_oo| (K, n)."""
    xp = namespace(block.X)
    observed = xp.astype(block.observed, xp.float64)
    of_noise = -0.5 * (observed @ xp.log(2 * math.pi * density.params.noise_variance))
    return of_noise - 0.5 * packed.log_determinant(latent.columns)


def sums(density: CommonDensity, block: Block, latent: WithMissing, resp: Responsibilities) -> MissingSums:
    """Weighted with r u, if rows have precisions u, but covariances, proportional to 1 / u, with r."""
    xp = namespace(block.X)
    q, K, n = latent.y.shape
    r = resp.full()
    s = packed.backward(latent.columns, latent.y)
    ss = packed.inverse(latent.columns)
    outer = packed.products(s, s)
    if resp.plain is None:
        ss += outer
        ss *= r
    else:
        ss = ss * resp.plain.full() + outer * r
    weighted = xp.concat([r[None, ...], s * r, ss])
    weighted = xp.reshape(weighted, (-1, n))  # ((1 + q + P) K, n)
    z = density.tables.to_z @ weighted[: (1 + q) * K, :]
    zz = density.tables.to_zz @ weighted
    rows = xp.concat([resp.by_row[None, :], z, zz])
    assert block.observed is not None
    missing = xp.astype(~block.observed, xp.float64)
    return MissingSums(
        totals=xp.reshape(xp.sum(weighted, axis=1), (-1, K)),
        of_rows=rows[: 1 + q, :] @ block.X,
        of_missing=rows @ missing,
        of_squares=resp.by_row @ (block.X * block.X),
        excess=None if resp.plain is None else (resp.plain.by_row - resp.by_row) @ missing,
    )


def statistics(density: CommonDensity, sums: MissingSums) -> dict[str, Array]:
    """The fields of CommonStats, with expectations in place of missing x; once per sweep."""
    params, C = density.params, density.roots
    xp = namespace(params.centre)
    xi, A, c, psi = params.latent_means, params.loadings.T, params.centre, params.noise_variance
    q = xi.shape[1]
    n, s = sums.totals[0, :], (C @ sums.totals[1 : 1 + q, :].T[..., None])[..., 0]  # (K,), (K, q)
    cross = xi[:, :, None] * s[:, None, :]
    ss = C @ packed.unpacked(sums.totals[1 + q :, :], q) @ transpose(C)
    outer = xi[:, :, None] * xi[:, None, :]
    missing_weight, z = sums.of_missing[0, :], sums.of_missing[1 : 1 + q, :]
    zz = packed.unpacked(sums.of_missing[1 + q :, :], q)  # (D, q, q)
    zza = (zz @ A.T[..., None])[..., 0].T  # (q, D)
    az = xp.sum(A * z, axis=0)
    of_noise = missing_weight if sums.excess is None else missing_weight + sums.excess
    return {
        "weight": n,
        "sum_z": n[:, None] * xi + s,
        "sum_zz": n[:, None, None] * outer + cross + transpose(cross) + ss,
        "sum_x": sums.of_rows[0, :] + missing_weight * c + az,
        "sum_zx": sums.of_rows[1:, :] + z * c + zza,
        "sum_square": sums.of_squares
        + of_noise * psi
        + missing_weight * c**2
        + 2.0 * c * az
        + xp.sum(A * zza, axis=0),
    }


def factor_means(density: CommonDensity, latent: WithMissing) -> Array:
    """E[z | x_o, k] relative to the anchor (K, q, n)."""
    s = namespace(latent.y).permute_dims(packed.backward(latent.columns, latent.y), (1, 0, 2))
    return density.params.latent_means[..., None] + density.roots @ s


def factor_covariances(density: CommonDensity, latent: WithMissing) -> Array:
    """Covariances of z given x_o and k (n, K, q, q)."""
    covariances = packed.unpacked(packed.inverse(latent.columns), len(latent.columns))  # (K, n, q, q)
    covariances = namespace(covariances).permute_dims(covariances, (1, 0, 2, 3))
    return density.roots @ covariances @ transpose(density.roots)


def moments_given(density: CommonDensity, latent: WithMissing, k: int) -> tuple[Array, Array]:
    """Means c + A z and variances (n, D) of missing entries, given component k; cov(z) = C B^-1 C'."""
    params, root = density.params, density.roots[k, ...]
    columns = [column[:, k, :] for column in latent.columns]
    s = packed.backward(columns, latent.y[:, k, :])
    z = params.latent_means[k, :] + (root @ s).T
    variances = params.noise_variance + spread(columns, params.loadings @ root)
    return params.centre + z @ params.loadings.T, variances


def draw(density: CommonDensity, latent: WithMissing, labels: Array, rng: np.random.Generator) -> Floats:
    """(n, D) rows sampled given the observed entries and components; only the missing entries are used."""
    params, own = density.params, np.arange(len(labels))
    columns = [to_numpy(column)[:, labels, own] for column in latent.columns]
    y = to_numpy(latent.y)[:, labels, own]
    s = packed.backward(columns, y + rng.standard_normal(y.shape))
    z = to_numpy(params.latent_means)[labels] + np.einsum("nij,jn->ni", to_numpy(density.roots)[labels], s)
    c, A, psi = (to_numpy(a) for a in (params.centre, params.loadings, params.noise_variance))
    rows: Floats = c + z @ A.T + np.sqrt(psi) * rng.standard_normal((len(labels), len(c)))
    return rows
