"""Steps of Gaussians with common loadings: the M-step, the weak prior, and steps over some parameters.

Half of the pseudo-rows of the prior are of the noise (prior.py). The other half, nu of each component, are
rows about its mean, d ~ N(0, S) with S = B B' + diag(s):

    ln p(Sigma_k) = -nu/2 [ln|Sigma_k| - ln|S| + tr(S Sigma_k^-1) - D],   Sigma_k = A Omega_k A' + diag(psi),

an inverse Wishart density of the covariance of its rows. So it depends neither on the coordinates of the
factors nor on whether a spread is due to A or to Omega. Up to a constant it is nu times the expectation of
ln N(d; 0, Sigma_k), and EM takes pseudo-rows as it takes rows: their factors are latent, too, with

    E[z d'] = G W S,     E[z z'] = V + G P G',     G = V T',  P = W S W',  W = Q' Psi^-1/2,

which add to the sums of rows about the means. Each step is the joint maximiser of Q plus that, so the
log-likelihood plus log prior never falls, whatever the rows have: missing entries, weights, tails. It costs
O(D q^2 + K q^3) once per sweep. Formulas: docs/mcfa.md, docs/prior.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from latently.backend.linalg import clamp_spectrum, diagonals, symmetric, transpose
from latently.backend.namespace import Array, eye, namespace
from latently.backend.packed import unpacked
from latently.core.block import Block
from latently.distributions.common_loadings_missing import WithMissing
from latently.distributions.common_loadings_records import (
    CommonDensity,
    CommonParams,
    CommonStats,
    Projected,
    ProjectedSums,
)
from latently.distributions.gaussian import FullStats
from latently.distributions.prior import Prior
from latently.distributions.responsibilities import Responsibilities, has_rows

if TYPE_CHECKING:
    from latently.distributions.common_loadings import CommonLoadings

_RIDGE = 1e-12  # relative to the variance of factors, for regressions on them
_UNUSED = 1e-7  # relative to noise and to the largest loading: factors with smaller loadings are unused


@dataclass(frozen=True)
class PseudoRows:
    """What the prior adds to sums over rows about the means of their components."""

    rows: float  # nu, of each component
    pp: Array  # (q, q)     P, the second moment of projected pseudo-rows
    zz: Array  # (K, q, q)  nu E[z z']
    xz: Array  # (D, q)     nu E[d z'], over all components
    square: Array  # (D,)   nu E[d^2], over all components


def pseudo_rows(prior: Prior, params: CommonParams) -> PseudoRows:
    xp, at = namespace(params.centre), params.projection
    B: Any = prior.loadings
    s, G, nu = prior.scale, at.to_factors, prior.half
    K = G.shape[0]
    WB = at.W @ B
    SW = B @ WB.T + s[:, None] * at.W.T  # S W'
    P = at.W @ SW
    return PseudoRows(
        rows=nu,
        pp=symmetric(P),
        zz=nu * (at.factor_covariances + symmetric(G @ P @ transpose(G))),
        xz=nu * (SW @ xp.sum(G, axis=0).T),
        square=nu * K * (xp.sum(B * B, axis=1) + s),
    )


def log_prior(prior: Prior, params: CommonParams) -> float:
    """ln p of the covariances of all components; of the noise alone, if the scale has no loadings."""
    K, D = params.latent_means.shape[0], params.centre.shape[0]
    of_noise = float(prior.of_noise.log_variances(params.noise_variance, K))
    if prior.loadings is None:
        return of_noise
    xp, at, psi = namespace(params.centre), params.projection, params.noise_variance
    B, s = prior.loadings / xp.sqrt(psi)[:, None], prior.scale / psi
    inside = at.axes.T @ B
    P = inside @ inside.T + (at.axes.T * s) @ at.axes
    outside = xp.sum((B - at.axes @ inside) ** 2) + xp.sum(s * (1.0 - xp.sum(at.axes * at.axes, axis=1)))
    by_component = at.log_determinants + xp.sum(at.precisions * P, axis=(1, 2))
    common = xp.sum(xp.log(psi)) - prior.log_volume + outside - D
    return of_noise - 0.5 * prior.half * float(xp.sum(by_component) + K * common)


def m_step(family: CommonLoadings, stats: CommonStats, params: CommonParams) -> CommonParams:
    """The joint maximiser over factor means and covariances, loadings and noise.

    The loadings are a regression of x - o on z. It is solved for the change of the loadings, in units in
    which z has mean `far` and unit covariance, whose second moments are I + far far', so that a distant
    origin costs no precision. An empty component is unchanged.
    """
    xp = namespace(stats.weight)
    added_rows = _pseudo_rows(family.prior, params)
    filled = has_rows(stats.weight)
    precision = stats.weight if stats.precision is None else stats.precision
    share = xp.where(filled, precision, 1.0)[:, None]  # n, without precisions
    means = stats.sum_z / share
    latent_means = xp.where(filled[:, None], means, params.latent_means)
    scatter = stats.sum_zz - share[..., None] * (means[:, :, None] * means[:, None, :])
    latent_covariances = _covariances(
        scatter, stats.weight, added_rows, params.latent_covariances, shared=family.shared
    )

    A, c, total = params.loadings, params.centre, xp.sum(precision)
    z_mean, x_mean = xp.sum(stats.sum_z, axis=0) / total, stats.sum_x / total
    xz, zz, square = _about_the_centre(stats, c, total, added_rows)
    residual_z = xz - A @ zz  # mean of (x - c - A z) z'
    residual = x_mean - c - A @ z_mean
    square = square - xp.sum(A * (xz + residual_z), axis=1)

    values, vectors = xp.linalg.eigh(symmetric(zz - z_mean[:, None] * z_mean))
    # rounding may make them negative
    values = xp.clip(values, min=0.0) + _RIDGE * (1.0 + xp.max(diagonals(zz)))
    inverse_R = (vectors / xp.sqrt(values)).T  # with R R' the covariance of z
    far = inverse_R @ (params.anchor + z_mean)
    slope = (residual_z - residual[:, None] * z_mean) @ inverse_R.T
    norm = 1.0 + xp.sum(far * far)
    at_far = slope @ far  # shift at the mean of z due to the slope alone
    added = slope + (residual - at_far)[:, None] * (far / norm)
    moved_mean = residual + (at_far - residual) / norm  # `added` at `far`
    noise = square - xp.sum(added * slope, axis=1) - moved_mean * residual
    n_rows, K = xp.sum(stats.weight), stats.weight.shape[0]
    if added_rows is not None:
        n_rows = n_rows + K * added_rows.rows
    noise = noise * (total / n_rows)
    if family.prior is not None:
        noise = family.prior.of_noise.variances(noise * n_rows, n_rows, K)
    return family.bounded(
        replace(
            params,
            centre=c + moved_mean - added @ (inverse_R @ z_mean),
            loadings=A + added @ inverse_R,
            latent_means=latent_means,
            latent_covariances=latent_covariances,
            noise_variance=noise,
        )
    )


def _pseudo_rows(prior: Prior | None, params: CommonParams) -> PseudoRows | None:
    """Those of a prior of covariances; one of the noise alone has none."""
    return None if prior is None or prior.loadings is None else pseudo_rows(prior, params)


def _covariances(
    scatter: Array, weight: Array, added: PseudoRows | None, old: Array, *, shared: bool
) -> Array:
    """(K, q, q) covariances from sums of squares about the means; empty components keep the old ones."""
    xp, filled = namespace(scatter), has_rows(weight)
    rows = weight if added is None else weight + added.rows
    if added is not None:
        scatter = scatter + added.zz
    if shared:
        return xp.broadcast_to(xp.sum(scatter, axis=0) / xp.sum(rows), scatter.shape)
    return xp.where(filled[:, None, None], scatter / xp.where(filled, rows, 1.0)[:, None, None], old)


def _about_the_centre(
    stats: CommonStats, c: Array, total: Array, added: PseudoRows | None
) -> tuple[Array, Array, Array]:
    """Sums of (x - c) z', of z z' and of the squares of x - c, divided by `total`; z from the anchor."""
    xp = namespace(c)
    xz = stats.sum_zx.T - c[:, None] * xp.sum(stats.sum_z, axis=0)
    zz = xp.sum(stats.sum_zz, axis=0)
    square = stats.sum_square - 2.0 * stats.sum_x * c
    if added is not None:
        xz, zz, square = xz + added.xz, zz + xp.sum(added.zz, axis=0), square + added.square
    rows = stats.weight if stats.precision is None else stats.precision
    return xz / total, zz / total, square / total + (xp.sum(rows) / total) * c**2


@dataclass(frozen=True)
class Conditional:
    """The family with some parameters fixed, for steps in which only the components are latent.

    Alternated with the step above, in which the factors are latent as well, they are an AECM algorithm (Meng
    & van Dyk, 1997): the likelihood never decreases, and vanishing variances, which EM approaches ever more
    slowly, are reached quickly. For complete rows.
    """

    family: CommonLoadings
    few_parameters = True

    def prepare(self, params: CommonParams, dtype: str = "float64") -> CommonDensity:
        return self.family.prepare(params, dtype)

    def evaluate(
        self, density: CommonDensity, block: Block, *, rough: bool = False
    ) -> tuple[Array, Projected | WithMissing]:
        return self.family.evaluate(density, block, rough=rough)

    def most_per_row(self, K: int) -> float:
        return self.family.most_per_row(K)

    def rounding(self, density: CommonDensity) -> float:
        return self.family.rounding(density)

    def canonical(self, params: CommonParams) -> CommonParams:
        return self.family.canonical(params)

    def log_prior(self, params: CommonParams) -> float:
        return self.family.log_prior(params)


class NoiseOnly(Conditional):
    """At fixed loadings and factors: psi becomes psi (E[u^2] / E[diag Sigma^-1])^1/2, u = Sigma^-1 (x - mu).

    Both expectations are equal at a maximum. The step maximises a tight lower bound of the likelihood (Zhou,
    Hu, Zhou & Lange, 2019); towards zero it converges linearly, where EM converges like 1/t.
    """

    def sums(
        self, density: CommonDensity, block: Block, projected: Projected, resp: Responsibilities
    ) -> ProjectedSums:
        return self.family.sums(density, block, projected, resp)

    def stats(self, density: CommonDensity, sums: ProjectedSums) -> CommonStats:
        return self.family.stats(density, sums)

    def m_step(self, stats: CommonStats, params: CommonParams) -> CommonParams:
        xp = namespace(stats.weight)
        A, c, psi = params.loadings, params.centre, params.noise_variance
        family, V = self.family, params.projection.factor_covariances
        added, K, n_rows = _pseudo_rows(family.prior, params), stats.weight.shape[0], xp.sum(stats.weight)
        rows = 0.0 if added is None else added.rows
        total = n_rows + K * rows
        V = xp.sum((stats.weight + rows)[:, None, None] * V, axis=0) / total
        xz, zz, square = _about_the_centre(stats, c, total, added)
        mm = zz - V  # mean of E[z] E[z]'
        residual = square - xp.sum(A * (2.0 * xz - A @ mm), axis=1)  # mean of (x - A E[z])^2 = (psi u)^2
        expected = 1.0 - xp.sum((A @ V) * A, axis=1) / psi  # psi (Sigma^-1)_dd
        sure = (residual > 0) & (expected > 0)  # beyond rounding
        ratio = xp.where(sure, residual, psi) / xp.where(sure, expected, 1.0)
        noise = xp.sqrt(psi) * xp.sqrt(ratio)
        if family.prior is not None:
            # the maximiser of -1/2 [a psi + b / psi] and the log prior of the noise, with noise^2 = b / a
            share = family.prior.of_noise.rows * K / total
            a = xp.where(sure, expected, 1.0) / psi
            b = xp.where(sure, residual, psi) + share * family.prior.scale
            noise = 2.0 * b / (share + xp.sqrt(share**2 + 4.0 * a * b))
        return family.bounded(replace(params, noise_variance=noise))


class FactorsOnly(Conditional):
    """At fixed loadings and noise: projected rows are a Gaussian mixture with covariances of at least I."""

    def sums(
        self, density: CommonDensity, block: Block, projected: Projected, resp: Responsibilities
    ) -> FullStats:
        """Sums over projected rows."""
        return FullStats(resp.weight, *moments_of(resp.full(), projected))

    def stats(self, density: CommonDensity, sums: FullStats) -> FullStats:
        """The sums are already the statistics."""
        return sums

    def m_step(self, stats: FullStats, params: CommonParams) -> CommonParams:
        """Means and covariances of factors from those of projected rows; an empty component is unchanged."""
        xp = namespace(stats.weight)
        T = params.projection.T
        axes, lengths, turned = xp.linalg.svd(T)  # directions of p spanned by the factors, and their scales
        used = lengths > _UNUSED * (1.0 + xp.max(lengths))
        back = turned.T * xp.where(used, 1.0 / xp.where(used, lengths, 1.0), 0.0)
        filled = has_rows(stats.weight)
        n = xp.where(filled, stats.weight, 1.0)[:, None]
        means = stats.sum_x / n
        scatter = stats.sum_xx - n[..., None] * (means[:, :, None] * means[:, None, :])
        added = _pseudo_rows(self.family.prior, params)
        if added is not None:
            added = replace(added, zz=added.rows * added.pp)  # those of projected pseudo-rows
        spread = _covariances(scatter, stats.weight, added, scatter, shared=self.family.shared)
        one = eye(T.shape[0], T)
        spread = xp.where(used[:, None] & used, axes.T @ spread @ axes, one)
        omega = back @ (clamp_spectrum(spread, xp.ones_like(lengths)) - one) @ back.T
        latent_means = xp.where(filled[:, None], means @ axes @ back.T, params.latent_means)
        if not self.family.shared:
            omega = xp.where(filled[:, None, None], omega, params.latent_covariances)
        return replace(params, latent_means=latent_means, latent_covariances=omega)


def moments_of(r: Array, projected: Projected) -> tuple[Array, Array]:
    """(K, q) and (K, q, q): the sums of r p and of r p p' over rows, for r (K, n)."""
    q = projected.p.shape[0]
    sums = projected.moments[:-2, :] @ r.T
    return sums[-q:, :].T, unpacked(sums[:-q, :], q)
