"""Gaussians in one common subspace: the family of mixtures of common factor analysers.

    z | k ~ N(xi_k, Omega_k)      x | z ~ N(A z, diag(psi))      x | k ~ N(A xi_k, A Omega_k A' + diag(psi))

n rows, D features, K components, q factors. There is no free mean: the means lie in the column space of A,
so the position of the origin matters. Rows cost O(D q + K q^2); no D x D matrix is formed.
Baek, McLachlan & Flack (2010), IEEE PAMI 32; formulas: docs/mcfa.md.

With Psi^-1/2 A = Q T (QR), the projected rows p = Q' Psi^-1/2 x contain all information on the components:

    p | k ~ N(T xi_k, T Omega_k T' + I),     and the residual of x has the same density for all components.

So a block takes two products with its rows, one for p and one for the sums of E[z|x] x', whatever K is.

For data far from the origin, A z would lose the precision of deviations from the mean. Therefore factors are
measured from an anchor w, with a point c = A w near the data: x = c + A (z - w) + noise. In a frame that is
shifted relative to the user's units the origin is a point o, and c = o + A w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from latently.backend.linalg import (
    cholesky_of_definite,
    clamp_spectrum,
    diagonals,
    inverse_of_triangular,
    leading_eigenpairs,
    log_determinant,
    orthonormal,
    root,
    squared_lengths,
    symmetric,
    transpose,
)
from latently.backend.namespace import Array, Floats, double, eye, like, namespace, ones, to_numpy, zeros
from latently.backend.packed import packed, unpacked, with_products
from latently.backend.placement import on_device
from latently.core.block import Block
from latently.core.tree import add
from latently.distributions import common_loadings_missing as missing_entries
from latently.distributions.common_loadings_missing import MissingSums, WithMissing
from latently.distributions.family import Family
from latently.distributions.gaussian import NEAR_FLOOR, FullStats
from latently.distributions.prior import Prior
from latently.distributions.responsibilities import Responsibilities, has_rows

_RIDGE = 1e-12  # relative to the variance of factors, for regressions on them
_VANISHED = 1e-10  # variance of an unused factor
_UNUSED = 1e-7  # relative to noise and to the largest loading: factors with smaller loadings are unused
_FAR = 1e6  # distance from the origin, in standard deviations, beyond which only its direction matters


@dataclass(frozen=True)
class CommonParams:
    origin: Array  # (D,): o, the value of A z + o at z = 0; a constant of the frame
    anchor: Array  # (q,): w, the reference point of the factors
    centre: Array  # (D,): c = o + A w
    loadings: Array  # (D, q): A
    latent_means: Array  # (K, q): xi - w
    latent_covariances: Array  # (K, q, q): Omega
    noise_variance: Array  # (D,): psi, > 0
    basis: Array  # (q, q): the factors shown to users are `basis` times these

    @property
    def means(self) -> Array:
        """(K, D)"""
        return self.centre + self.latent_means @ self.loadings.T


@dataclass(frozen=True)
class CommonDensity:
    """Derived quantities, computed once per sweep."""

    params: CommonParams
    stacked: Array  # (q, D) or (q + 1, D): Q' Psi^-1/2, in the dtype of wide products
    offsets: Array  # (q,): the product of that and c
    linear: Array | None  # (D,): Psi^-1 c; None if it is below the projections in `stacked`
    half_precision: Array  # (D,): 1 / (2 psi)
    quadratic: Array  # (K, T + q + 2): of the log densities of p, for its `moments`
    factor_covariances: Array  # (K, q, q): V, of z given x and k
    to_factors: Array  # (K, q, q): V T', so that E[z|x,k] - w = `at_zero` + V T' p
    at_zero: Array  # (K, q)
    roots: Array  # (K, q, q): C with C C' = Omega
    constants: Array  # (K,): -1/2 (D ln 2 pi + ln|Sigma| + c' Psi^-1 c), and log weights
    log_weights: Array  # (K,): terms a mixture added to the constants

    @property
    def means(self) -> Array:
        return self.params.means

    @cached_property
    def tables(self) -> missing_entries.Tables:
        """Tables for rows with missing entries."""
        return missing_entries.tables(self)


@dataclass(frozen=True)
class Projected:
    """Intermediate results of the densities of a block that its statistics reuse."""

    p: Array  # (q, n)
    moments: (
        Array  # (T + q + 2, n): products of p, packed, p, a term of all components, one; T = q (q + 1) / 2
    )
    squares: Array  # (n, D)


@dataclass(frozen=True)
class ProjectedSums:  # sums of a block; z is measured from the anchor
    weight: Array  # (K,)      sum of r
    sum_p: Array  # (K, q)     sum of r p
    sum_pp: Array  # (K, q, q) sum of r p p'
    sum_x: Array  # (D,)       sum of x, over all components, as all fields below
    sum_zx: Array  # (q, D)    sum of E[z|x] x'
    sum_square: Array  # (D,)  sum of x^2
    incomplete: MissingSums | None = None  # sums of rows with missing entries
    plain: Array | None = None  # (K,) sum of r where the others are sums of r u, for rows of precisions u


@dataclass(frozen=True)
class CommonStats:
    """Every field is a sum over rows; missing x replaced by expectations, z measured from the anchor."""

    weight: Array  # (K,)       sum of r
    sum_z: Array  # (K, q)      sum of r E[z|x,k]
    sum_zz: Array  # (K, q, q)  sum of r E[zz'|x,k]
    sum_x: Array  # (D,)        sum of x
    sum_zx: Array  # (q, D)     sum of E[z x'|x]
    sum_square: Array  # (D,)   sum of x^2
    precision: Array | None = None  # (K,) sum of r u where rows have precisions u, which then weigh x and z


@dataclass(frozen=True)
class CommonLoadings(Family):
    """The family; `floor` is the smallest noise variance allowed of each feature."""

    n_factors: int
    floor: Array  # (D,)
    origin: Array | None = None  # (D,): the user's origin in the frame of the starting values
    shared: bool = False  # whether all components share one factor covariance
    prior: Prior | None = None  # of the noise
    isotropic = False

    def conditionals(self) -> list[Conditional]:
        return [NoiseOnly(self), FactorsOnly(self)]

    def floats_per_row(self, K: int, D: int, missing: bool) -> int:
        """Memory per row in the kernel."""
        q = self.n_factors
        return 3 * D + q * q + K * (q + 4) + (K * (q + 1) * (q + 4) if missing else 0)

    def prepare(self, params: CommonParams, dtype: str = "float64") -> CommonDensity:
        xp = namespace(params.centre)
        c, psi, q = params.centre, params.noise_variance, self.n_factors
        root_psi = xp.sqrt(psi)
        Q, T = xp.linalg.qr(params.loadings / root_psi[:, None])
        C = root(params.latent_covariances)
        TC = T @ C
        K = C.shape[0]
        both = symmetric(xp.concat([transpose(TC) @ TC, TC @ transpose(TC)]))
        cholesky = cholesky_of_definite(eye(q, C) + both)
        inverses = inverse_of_triangular(cholesky)
        inverse_B, whitening = inverses[:K, ...], inverses[K:, ...]
        half_V = inverse_B @ transpose(C)
        V = symmetric(transpose(half_V) @ half_V)
        projected_means = T @ params.latent_means[..., None]
        precision = transpose(whitening) @ whitening
        slope = precision @ projected_means
        quadratic = packed(precision, q, diagonal=-0.5, others=-1.0)
        at_zero = -0.5 * xp.sum(projected_means * slope, axis=1)
        to_factors = transpose(half_V) @ (inverse_B @ transpose(TC))  # V T', computed without cancellation
        stacked, linear = (Q / root_psi[:, None]).T, c / psi
        offsets = stacked @ c
        if dtype == "float64":  # one product for both
            stacked, linear = xp.concat([stacked, linear[None, :]]), None
        constants = c.shape[0] * math.log(2 * math.pi) + xp.sum(xp.log(psi) + c**2 / psi)
        constants = constants + log_determinant(cholesky[K:, ...])
        return CommonDensity(
            params=params,
            stacked=xp.astype(stacked, getattr(xp, dtype)),
            offsets=offsets,
            linear=linear,
            half_precision=0.5 / psi,
            quadratic=xp.concat([quadratic, slope[..., 0], xp.ones_like(at_zero), at_zero], axis=1),
            factor_covariances=V,
            to_factors=to_factors,
            at_zero=params.latent_means - (to_factors @ projected_means)[..., 0],
            roots=C,
            constants=-0.5 * constants,
            log_weights=xp.zeros_like(params.latent_means[:, 0]),
        )

    def evaluate(
        self, density: CommonDensity, block: Block, *, rough: bool = False
    ) -> tuple[Array, Projected | WithMissing]:
        """ln N(x; A xi_k, Sigma_k) plus terms of the mixture in the constants (K, n), and projected rows."""
        if block.observed is not None:
            return missing_entries.evaluate(density, block)
        X = block.X
        xp = namespace(X)
        q = self.n_factors
        wide = xp.astype(X, density.stacked.dtype, copy=False)
        products, squares = double(density.stacked @ wide.T), block.once("squares", lambda: X * X)
        p = products[:q, :]
        p -= density.offsets[:, None]
        # terms common to all components: -1/2 ((x - c)' Psi^-1 (x - c) - |p|^2), up to a constant
        common = products[q, :] if density.linear is None else X @ density.linear
        common = common - squares @ density.half_precision + 0.5 * squared_lengths(p, axis=0)
        moments = with_products(p, common, 1.0)
        last = density.quadratic[:, -1:] + density.constants[:, None]
        log_prob = xp.concat([density.quadratic[:, :-1], last], axis=1) @ moments
        return log_prob, Projected(p, moments, squares)

    def normalisers(self, density: CommonDensity, block: Block, latent: Projected | WithMissing) -> Array:
        """-1/2 ln|2 pi Sigma_oo| of the observed entries: (K, n), or (K, 1) for complete rows."""
        if isinstance(latent, WithMissing):
            return missing_entries.normalisers(density, block, latent)
        square = namespace(block.X).sum(density.params.centre**2 * density.half_precision)
        return (density.constants - density.log_weights + square)[:, None]

    def sums(
        self, density: CommonDensity, block: Block, projected: Projected | WithMissing, resp: Responsibilities
    ) -> ProjectedSums:
        X = block.X
        K, q, D = density.constants.shape[0], self.n_factors, X.shape[1]
        if isinstance(projected, WithMissing):
            shapes = ((K,), (K, q), (K, q, q), (D,), (q, D), (D,))
            weight, p, pp, x, zx, square = (zeros(shape, X) for shape in shapes)
            incomplete = missing_entries.sums(density, block, projected, resp)
            return ProjectedSums(weight, p, pp, x, zx, square, incomplete)
        xp = namespace(X)
        r, p, n = resp.full(), projected.p, X.shape[0]
        if q < K and on_device(X):  # first over components: fewer numbers
            to_factors = xp.reshape(xp.permute_dims(density.to_factors, (1, 2, 0)), (q * q, K))
            z = xp.sum(xp.reshape(to_factors @ r, (q, q, n)) * p, axis=1)
        else:
            z = _side_by_side(density.to_factors) @ xp.reshape(r[:, None, :] * p, (K * q, n))
        # (q + 1, n), times the weight: z, and one
        z_and_one = xp.concat([density.at_zero, ones((K, 1), z)], axis=1).T @ r
        z_and_one[:q, :] += z
        zx = z_and_one @ X  # always in float64: the noise is the residual of x^2
        sum_p, sum_pp = _moments(r, projected)
        return ProjectedSums(
            weight=resp.weight,
            sum_p=sum_p,
            sum_pp=sum_pp,
            sum_x=zx[q, :],
            sum_zx=zx[:q, :],
            sum_square=resp.by_row @ projected.squares,
            plain=None if resp.plain is None else resp.plain.weight,
        )

    def stats(self, density: CommonDensity, sums: ProjectedSums) -> CommonStats:
        """Statistics of z, which is linear in p, given k; once per sweep."""
        n, G, a = sums.weight[:, None], density.to_factors, density.at_zero
        plain = sums.weight if sums.plain is None else sums.plain  # V is proportional to 1 / u
        Gp = (G @ sums.sum_p[..., None])[..., 0]
        cross = a[:, :, None] * Gp[:, None, :]
        a_and_V = n[..., None] * (a[:, :, None] * a[:, None, :])
        a_and_V = a_and_V + plain[:, None, None] * density.factor_covariances
        stats = CommonStats(
            weight=sums.weight,
            sum_z=n * a + Gp,
            sum_zz=symmetric(G @ sums.sum_pp @ transpose(G) + 2.0 * cross) + a_and_V,
            sum_x=sums.sum_x,
            sum_zx=sums.sum_zx,
            sum_square=sums.sum_square,
        )
        if sums.incomplete is not None:
            stats = add(stats, CommonStats(**missing_entries.statistics(density, sums.incomplete)))
        return stats

    def m_step(self, stats: CommonStats, params: CommonParams) -> CommonParams:
        """The joint maximiser over factor means and covariances, loadings and noise.

        The loadings are a regression of x - o on z. It is solved for the change of the loadings, in units in
        which z has mean `far` and unit covariance, whose second moments are I + far far', so that a distant
        origin costs no precision. An empty component is unchanged.
        """
        xp = namespace(stats.weight)
        filled = has_rows(stats.weight)
        n = xp.where(filled, stats.weight, 1.0)[:, None]
        precision = stats.weight if stats.precision is None else stats.precision
        share = xp.where(filled, precision, 1.0)[:, None]  # n, without precisions
        latent_means = xp.where(filled[:, None], stats.sum_z / share, params.latent_means)
        outer = (share / n)[..., None] * (latent_means[:, :, None] * latent_means[:, None, :])
        latent_covariances = xp.where(
            filled[:, None, None], stats.sum_zz / n[..., None] - outer, params.latent_covariances
        )
        if self.shared:
            latent_covariances = pooled(latent_covariances, stats.weight)

        A, c, total = params.loadings, params.centre, xp.sum(precision)
        z_mean, x_mean = xp.sum(stats.sum_z, axis=0) / total, stats.sum_x / total
        zz, xz = xp.sum(stats.sum_zz, axis=0) / total, stats.sum_zx.T / total
        residual_z = xz - c[:, None] * z_mean - A @ zz  # mean of (x - c - A z) z'
        residual = x_mean - c - A @ z_mean
        square = stats.sum_square / total - 2.0 * x_mean * c + c**2
        square = square - xp.sum(A * (xz - c[:, None] * z_mean + residual_z), axis=1)

        values, vectors = xp.linalg.eigh(symmetric(zz - z_mean[:, None] * z_mean))
        values = xp.clip(values, min=0.0) + _RIDGE * (
            1.0 + xp.max(diagonals(zz))
        )  # rounding may make it negative
        inverse_R = (vectors / xp.sqrt(values)).T  # with R R' the covariance of z
        far = inverse_R @ (params.anchor + z_mean)
        slope = (residual_z - residual[:, None] * z_mean) @ inverse_R.T
        norm = 1.0 + xp.sum(far * far)
        at_far = slope @ far  # shift at the mean of z due to the slope alone
        added = slope + (residual - at_far)[:, None] * (far / norm)
        moved_mean = residual + (at_far - residual) / norm  # `added` at `far`
        noise = square - xp.sum(added * slope, axis=1) - moved_mean * residual
        n_rows = xp.sum(stats.weight)
        noise = noise * (total / n_rows)
        if self.prior is not None:
            noise = self.prior.variances(noise * n_rows, n_rows, stats.weight.shape[0])
        return self.bounded(
            replace(
                params,
                centre=c + moved_mean - added @ (inverse_R @ z_mean),
                loadings=A + added @ inverse_R,
                latent_means=latent_means,
                latent_covariances=latent_covariances,
                noise_variance=noise,
            )
        )

    def log_prior(self, params: CommonParams) -> float:
        """ln p of the noise, which has the pseudo-rows of all components."""
        if self.prior is None:
            return 0.0
        return float(self.prior.log_variances(params.noise_variance, params.latent_means.shape[0]))

    def implied_stats(self, params: CommonParams, weights: Array) -> CommonStats:
        """Expected statistics under these parameters: the M-step maps them back to the parameters."""
        xp = namespace(weights)
        xi, means, A = params.latent_means, params.means, params.loadings
        zz = weights[:, None, None] * (params.latent_covariances + xi[:, :, None] * xi[:, None, :])
        sum_z = weights[:, None] * xi
        z = xp.sum(sum_z, axis=0)
        square = weights[:, None] * (means**2 + self.marginal_variances(params))
        return CommonStats(
            weight=weights,
            sum_z=sum_z,
            sum_zz=zz,
            sum_x=xp.sum(weights[:, None] * means, axis=0),
            sum_zx=z[:, None] * params.centre + xp.sum(zz, axis=0) @ A.T,
            sum_square=xp.sum(square, axis=0),
        )

    def bounded(self, params: CommonParams) -> CommonParams:
        """Noise variances bounded below by the floor; without a floor a vanishing one is an error."""
        psi = self.noise_above(self.floor, params.noise_variance)
        return replace(params, latent_covariances=symmetric(params.latent_covariances), noise_variance=psi)

    def rounding(self, density: CommonDensity) -> float:
        """Rounding errors of a row's log density: of the quadratic form and of the squared projections."""
        xp = namespace(density.constants)
        params = density.params
        terms = xp.sum((1.0 + params.centre**2) * density.half_precision)
        A = params.loadings / xp.sqrt(params.noise_variance)[:, None]
        terms = terms + xp.max(xp.sum((A @ density.roots) ** 2, axis=(1, 2)))  # of T Omega T' + I
        terms = terms + xp.max(xp.sum((params.latent_means @ A.T) ** 2, axis=1))
        projections = xp.sum(double(density.stacked[: self.n_factors, :]) ** 2)
        narrow, wide = (float(xp.finfo(a.dtype).eps) for a in (density.constants, density.stacked))
        sizes: list[float] = to_numpy(xp.stack([terms, projections])).tolist()
        return narrow * sizes[0] + wide * sizes[1]

    def to_vector(self, params: CommonParams) -> Array:
        """Loadings, factor means and covariances in a fixed basis, and standard deviations of the noise."""
        xp = namespace(params.centre)
        U = params.basis
        A, anchor = params.loadings @ xp.linalg.inv(U), U @ params.anchor
        towards = _towards(anchor, params.origin)
        if towards is not None:  # far from the origin the centre is more accurate than the slope
            A = A + (params.centre - A @ towards)[:, None] * towards
        parts = (
            A,
            params.latent_means @ U.T,
            U @ params.latent_covariances @ U.T,
            xp.sqrt(params.noise_variance),
        )
        return xp.concat([xp.reshape(part, (-1,)) for part in parts])

    def from_vector(self, vector: Array, like: CommonParams) -> CommonParams:
        xp = namespace(vector)
        arrays = []
        for shape in (like.loadings.shape, like.latent_means.shape, like.latent_covariances.shape):
            size = math.prod(shape)
            arrays.append(xp.reshape(vector[:size], shape))
            vector = vector[size:]
        A, latent_means, omega = arrays
        roots = root(symmetric(omega))  # an extrapolation may be negative
        anchor = like.basis @ like.anchor
        towards = _towards(anchor, like.origin)
        if towards is None:
            centre = like.origin + A @ anchor
        else:
            centre = A @ towards
            slope = (centre - like.origin) / xp.linalg.vector_norm(anchor)
            A = A + (slope - centre)[:, None] * towards
        params = CommonParams(
            origin=like.origin,
            anchor=anchor,
            centre=centre,
            loadings=A,
            latent_means=latent_means,
            latent_covariances=roots @ transpose(roots),
            noise_variance=xp.clip(vector, min=0.0) ** 2,
            basis=eye(anchor.shape[0], anchor),
        )
        return self.clamped(params)

    def moved(self, params: CommonParams, weights: Array, shift: Array, scale: Array) -> CommonParams:
        """The parameters of shift + scale * x, with the anchor at the centre of the components."""
        middle = weights @ params.latent_means
        A = params.loadings * scale[:, None]
        return replace(
            params,
            origin=shift + scale * params.origin,
            anchor=params.anchor + middle,
            centre=shift + scale * params.centre + A @ middle,
            loadings=A,
            latent_means=params.latent_means - middle,
            noise_variance=params.noise_variance * scale**2,
        )

    def canonical(self, params: CommonParams) -> CommonParams:
        """The same density with loadings orthogonal in units of the noise, and factors of unit variance.

        Loadings may be much larger than the noise in some directions and smaller in others, and sums that mix
        them would lose the precision of the latter.
        """
        xp = namespace(params.centre)
        A = params.loadings / xp.sqrt(params.noise_variance)[:, None]
        turn = xp.linalg.eigh(symmetric(A.T @ A))[1]
        xi, omega = params.latent_means @ turn, symmetric(turn.T @ params.latent_covariances @ turn)
        spread = xp.mean(diagonals(omega) + xi**2, axis=0)
        alive = spread > _VANISHED
        unit = xp.where(alive, 2.0 ** xp.round(0.5 * xp.log2(xp.where(alive, spread, 1.0))), 1.0)
        return replace(
            params,
            anchor=(turn.T @ params.anchor) / unit,
            loadings=params.loadings @ turn * unit,
            latent_means=xi / unit,
            latent_covariances=omega / unit[:, None] / unit,
            basis=params.basis @ turn * unit,
        )

    def clamped(self, params: CommonParams) -> CommonParams:
        """Starting values projected to the feasible region of the floor."""
        return self.canonical(self.bounded(params))

    def shown(self, params: CommonParams) -> tuple[CommonParams, tuple[Array, Array, Array]]:
        """The parameters with a basis in which A'A = I, and the values shown to users.

        These are loadings, means and covariances of factors measured from zero.
        """
        xp = namespace(params.centre)
        A, U = orthonormal(to_numpy(params.loadings @ xp.linalg.inv(params.basis)))
        A, basis = like(A, params.centre), like(U, params.centre) @ params.basis
        roots = basis @ root(params.latent_covariances)
        omega = symmetric(roots @ transpose(roots))
        xi = (params.latent_means + params.anchor) @ basis.T
        return replace(params, basis=basis), (A, xi, omega)

    def marginal_variances(self, params: CommonParams) -> Array:
        """(K, D): the variance of every feature."""
        xp = namespace(params.centre)
        A, AO = params.loadings, params.loadings @ params.latent_covariances
        return params.noise_variance + xp.sum(AO * A, axis=2)

    def factor_means(self, density: CommonDensity, projected: Projected | WithMissing) -> Array:
        """E[z | x, k] (n, K, q), in the basis shown to users."""
        params = density.params
        return (params.anchor + self._from_anchor(density, projected)) @ params.basis.T

    def factor_covariances(
        self, density: CommonDensity, projected: Projected | WithMissing, n_rows: int
    ) -> Array:
        """Covariances of z given x and k (n, K, q, q), in the basis shown to users."""
        U = density.params.basis
        if isinstance(projected, WithMissing):
            return U @ missing_entries.factor_covariances(density, projected) @ U.T
        V = U @ density.factor_covariances @ U.T
        return namespace(V).broadcast_to(V, (n_rows, *V.shape))

    def expected(
        self, density: CommonDensity, block: Block, latent: Projected | WithMissing, resp: Array
    ) -> Array:
        """(n, D) the posterior mean of A z: in missing entries, that of x."""
        z = namespace(resp).sum(resp[..., None] * self._from_anchor(density, latent), axis=1)
        return density.params.centre + z @ density.params.loadings.T

    def moments_given(
        self, density: CommonDensity, block: Block, latent: WithMissing, k: int
    ) -> tuple[Array, Array]:
        """Means and variances (n, D) of missing entries given the observed ones and component k."""
        return missing_entries.moments_given(density, latent, k)

    def draw(
        self,
        density: CommonDensity,
        block: Block,
        latent: WithMissing,
        labels: Array,
        rng: np.random.Generator,
    ) -> Floats:
        """(n, D) rows with missing entries sampled given the observed ones and the component."""
        return missing_entries.draw(density, latent, labels, rng)

    def sample(self, params: CommonParams, labels: Array, rng: np.random.Generator) -> Floats:
        K, q = params.latent_means.shape
        z = params.latent_means[labels]
        C = root(params.latent_covariances)
        for k in range(K):
            own = labels == k
            z[own] += rng.standard_normal((int(own.sum()), q)) @ C[k].T
        noise = rng.standard_normal((len(labels), len(params.centre))) * np.sqrt(params.noise_variance)
        X: Floats = params.centre + z @ params.loadings.T + noise
        return X

    def n_parameters(self, K: int, D: int) -> int:
        """Free parameters of means and covariances; loadings are counted up to the basis of the factors.

        The number is at most that of unconstrained means and covariances.
        """
        q = self.n_factors
        covariances = 1 if self.shared else K
        structured = D + D * q - q * q + K * q + covariances * q * (q + 1) // 2
        return min(structured, K * D + covariances * D * (D + 1) // 2)

    def least_rows(self, D: int) -> int:
        return super().least_rows(D) if self.shared else self.n_factors + 1

    def at_floor(self, params: CommonParams) -> Array:
        xp, shape = namespace(params.centre), params.means.shape
        return xp.broadcast_to(params.noise_variance <= self.floor * (1.0 + NEAR_FLOOR), shape)

    def from_partition(self, X: Floats, weight: Floats, labels: Array, means: Floats) -> CommonParams:
        """Leading directions of all rows about the origin, and the moments of the parts in this subspace.

        Features are scaled by the noise, so that the start does not depend on their units.
        """
        (K, D), q, total = means.shape, self.n_factors, weight.sum()
        origin = np.zeros(D) if self.origin is None else to_numpy(self.origin)
        residual = (X - means[labels]) * np.sqrt(weight)[:, None]
        psi = np.maximum(_unexplained(residual, total), np.maximum(self.floor, 1e-6))
        unit = np.sqrt(psi)
        middle = weight @ X / total
        to_middle = (middle - origin) / unit
        rows = (X - middle) / unit * np.sqrt(weight)[:, None]
        last = to_middle * (math.sqrt(total) * min(1.0, _FAR / max(1.0, float(np.linalg.norm(to_middle)))))
        _, V = leading_eigenpairs(np.concatenate([rows, last[None, :]]), q)
        V = np.linalg.qr(np.concatenate([V, np.eye(D)[:, : q - V.shape[1]]], axis=1))[0]  # q columns
        centre = middle - unit * (to_middle - V @ (V.T @ to_middle))

        z, parts = (((rows - centre) / unit) @ V for rows in (X, means))
        within = (z - parts[labels]) * np.sqrt(weight)[:, None]
        pooled_within = within.T @ within / total
        omega = np.empty((K, q, q))
        for k in range(K):  # the covariance of a small part is shrunk towards the pooled one
            own = labels == k
            scatter = within[own].T @ within[own]
            omega[k] = (scatter + (q + 1) * pooled_within) / (weight[own].sum() + q + 1)
        if self.shared:
            omega = np.broadcast_to(pooled_within, omega.shape)
        left = (X - centre) / unit - z @ V.T
        params = CommonParams(
            origin=origin,
            anchor=V.T @ to_middle,
            centre=centre,
            loadings=unit[:, None] * V,
            latent_means=parts,
            latent_covariances=omega + 1e-6 * np.eye(q),
            noise_variance=psi * np.maximum(weight @ left**2 / total, 0.1),
            basis=np.eye(q),
        )
        return replace(self.clamped(params), basis=np.eye(q))

    def _from_anchor(self, density: CommonDensity, projected: Projected | WithMissing) -> Array:
        """E[z | x, k] - w (n, K, q)."""
        if isinstance(projected, WithMissing):
            z = missing_entries.factor_means(density, projected)
        else:
            z = density.to_factors @ projected.p + density.at_zero[..., None]  # (K, q, n)
        return namespace(z).permute_dims(z, (2, 0, 1))


@dataclass(frozen=True)
class Conditional:
    """The family with some parameters fixed, for steps in which only the components are latent.

    Alternated with the step above, in which the factors are latent as well, they are an AECM algorithm (Meng
    & van Dyk, 1997): the likelihood never decreases, and vanishing variances, which EM approaches ever more
    slowly, are reached quickly. For complete rows.
    """

    family: CommonLoadings

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
        A, c, psi, total = params.loadings, params.centre, params.noise_variance, xp.sum(stats.weight)
        V = self.family.prepare(params).factor_covariances
        V = xp.sum(stats.weight[:, None, None] * V, axis=0) / total
        z_mean, x_mean = xp.sum(stats.sum_z, axis=0) / total, stats.sum_x / total
        mm = xp.sum(stats.sum_zz, axis=0) / total - V  # mean of E[z] E[z]'
        xz = stats.sum_zx.T / total - c[:, None] * z_mean
        square = stats.sum_square / total - 2.0 * x_mean * c + c**2
        residual = square - xp.sum(A * (2.0 * xz - A @ mm), axis=1)  # mean of (x - A E[z])^2 = (psi u)^2
        expected = 1.0 - xp.sum((A @ V) * A, axis=1) / psi  # psi (Sigma^-1)_dd
        sure = (residual > 0) & (expected > 0)  # beyond rounding
        ratio = xp.where(sure, residual, psi) / xp.where(sure, expected, 1.0)
        noise = xp.sqrt(psi) * xp.sqrt(ratio)
        if self.family.prior is not None:
            # the maximiser of -1/2 [a psi + b / psi] and the log prior, with noise^2 = b / a
            rows = self.family.prior.rows * stats.weight.shape[0] / total
            a = xp.where(sure, expected, 1.0) / psi
            b = a * noise**2 + rows * self.family.prior.scale
            noise = 2.0 * b / (rows + xp.sqrt(rows**2 + 4.0 * a * b))
        return self.family.bounded(replace(params, noise_variance=noise))


class FactorsOnly(Conditional):
    """At fixed loadings and noise: projected rows are a Gaussian mixture with covariances of at least I."""

    def sums(
        self, density: CommonDensity, block: Block, projected: Projected, resp: Responsibilities
    ) -> FullStats:
        """Sums over projected rows."""
        return FullStats(resp.weight, *_moments(resp.full(), projected))

    def stats(self, density: CommonDensity, sums: FullStats) -> FullStats:
        """The sums are already the statistics."""
        return sums

    def m_step(self, stats: FullStats, params: CommonParams) -> CommonParams:
        """Means and covariances of factors from those of projected rows; an empty component is unchanged."""
        xp = namespace(stats.weight)
        T = xp.linalg.qr(params.loadings / xp.sqrt(params.noise_variance)[:, None])[1]
        axes, lengths, turned = xp.linalg.svd(T)  # directions of p spanned by the factors, and their scales
        used = lengths > _UNUSED * (1.0 + xp.max(lengths))
        back = turned.T * xp.where(used, 1.0 / xp.where(used, lengths, 1.0), 0.0)
        filled = has_rows(stats.weight)
        n = xp.where(filled, stats.weight, 1.0)[:, None]
        means = stats.sum_x / n
        spread = stats.sum_xx / n[..., None] - means[:, :, None] * means[:, None, :]
        if self.family.shared:
            spread = pooled(spread, stats.weight)
        one = eye(T.shape[0], T)
        spread = xp.where(used[:, None] & used, axes.T @ spread @ axes, one)
        omega = back @ (clamp_spectrum(spread, xp.ones_like(lengths)) - one) @ back.T
        latent_means = xp.where(filled[:, None], means @ axes @ back.T, params.latent_means)
        if not self.family.shared:
            omega = xp.where(filled[:, None, None], omega, params.latent_covariances)
        return replace(params, latent_means=latent_means, latent_covariances=omega)


def pooled(covariances: Array, weight: Array) -> Array:
    """(K, q, q) weighted mean of all matrices, repeated K times."""
    xp = namespace(covariances)
    mean = xp.sum(weight[:, None, None] * covariances, axis=0) / xp.sum(weight)
    return xp.broadcast_to(mean, covariances.shape)


def _unexplained(residual: Floats, weight: float) -> Floats:
    """(D,) variance of each feature not explained by the others, or half its variance with few rows."""
    S = residual.T @ residual / weight
    variance = np.diagonal(S)
    if len(residual) <= 2 * len(variance):
        return 0.5 * variance
    ridge = 1e-6 * np.where(variance > 0, variance, 1.0)
    return np.asarray(1.0 / np.diagonal(np.linalg.inv(S + np.diag(ridge))))


def _moments(r: Array, projected: Projected) -> tuple[Array, Array]:
    """(K, q) and (K, q, q): the sums of r p and of r p p' over rows, for r (K, n)."""
    q = projected.p.shape[0]
    sums = projected.moments[:-2, :] @ r.T
    return sums[-q:, :].T, unpacked(sums[:-q, :], q)


def _side_by_side(stack: Array) -> Array:
    """(a, K b): the matrices (K, a, b) side by side."""
    xp = namespace(stack)
    K, a, b = stack.shape
    return xp.reshape(xp.permute_dims(stack, (1, 0, 2)), (a, K * b))


def _towards(anchor: Array, origin: Array) -> Array | None:
    """(q,) the direction of the anchor, if the data are far from the origin."""
    xp = namespace(origin)
    length = xp.linalg.vector_norm(anchor)
    if float(xp.linalg.vector_norm(origin)) <= 1.0 or float(length) == 0.0:
        return None
    return anchor / length
