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

import numpy as np

from latently.backend.linalg import (
    diagonals,
    orthonormal,
    root,
    squared_lengths,
    symmetric,
    transpose,
)
from latently.backend.namespace import Array, Floats, double, eye, like, namespace, ones, to_numpy, zeros
from latently.backend.packed import packed, with_products
from latently.backend.placement import on_device
from latently.backend.row_kernels import squares_by_column, squares_by_row
from latently.core.block import Block
from latently.core.tree import add
from latently.distributions import common_loadings_missing as missing_entries
from latently.distributions.common_loadings_missing import WithMissing
from latently.distributions.common_loadings_records import (
    CommonDensity,
    CommonParams,
    CommonStats,
    Projected,
    ProjectedSums,
)
from latently.distributions.common_loadings_start import from_partition
from latently.distributions.common_loadings_steps import (
    Conditional,
    FactorsOnly,
    NoiseOnly,
    log_prior,
    m_step,
    moments_of,
)
from latently.distributions.family import Family
from latently.distributions.gaussian import NEAR_FLOOR
from latently.distributions.prior import Prior
from latently.distributions.responsibilities import Responsibilities

_VANISHED = 1e-10  # variance of an unused factor
_PRIOR_TERMS = 8  # of a feature of a pseudo-row, of about unit size, in the log prior


@dataclass(frozen=True)
class CommonLoadings(Family):
    """The family; `floor` is the smallest noise variance allowed of each feature."""

    n_factors: int
    floor: Array  # (D,)
    origin: Array | None = None  # (D,): the user's origin in the frame of the starting values
    shared: bool = False  # whether all components share one factor covariance
    prior: Prior | None = None  # of covariances, or of the noise, if its scale has no loadings
    isotropic = False
    few_parameters = True

    def conditionals(self) -> list[Conditional]:
        return [NoiseOnly(self), FactorsOnly(self)]

    def floats_per_row(self, K: int, D: int, missing: bool) -> int:
        """Memory per row in the kernel."""
        q = self.n_factors
        if on_device(self.floor) and not missing:
            return D + 4 * q * q + 3 * K
        return 3 * D + q * q + K * (q + 4) + (K * (q + 1) * (q + 4) if missing else 0)

    def prepare(self, params: CommonParams, dtype: str = "float64") -> CommonDensity:
        xp, at = namespace(params.centre), params.projection
        c, psi, q = params.centre, params.noise_variance, self.n_factors
        projected_means = at.T @ params.latent_means[..., None]
        slope = at.precisions @ projected_means
        quadratic = packed(at.precisions, q, diagonal=-0.5, others=-1.0)
        at_zero = -0.5 * xp.sum(projected_means * slope, axis=1)
        stacked, linear = at.W, c / psi
        offsets = stacked @ c
        if dtype == "float64":  # one product for both
            stacked, linear = xp.concat([stacked, linear[None, :]]), None
        constants = c.shape[0] * math.log(2 * math.pi) + xp.sum(xp.log(psi) + c**2 / psi)
        return CommonDensity(
            params=params,
            stacked=xp.astype(stacked, getattr(xp, dtype)),
            offsets=offsets,
            linear=linear,
            half_precision=0.5 / psi,
            quadratic=xp.concat([quadratic, slope[..., 0], xp.ones_like(at_zero), at_zero], axis=1),
            factor_covariances=at.factor_covariances,
            to_factors=at.to_factors,
            at_zero=params.latent_means - (at.to_factors @ projected_means)[..., 0],
            roots=at.roots,
            constants=-0.5 * (constants + at.log_determinants),
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
        products = double(density.stacked @ wide.T)
        squares = None if on_device(X) else block.once("squares", lambda: X * X)
        p = products[:q, :]
        p -= density.offsets[:, None]
        # terms common to all components: -1/2 ((x - c)' Psi^-1 (x - c) - |p|^2), up to a constant
        common = products[q, :] if density.linear is None else X @ density.linear
        h = density.half_precision
        common = common - (squares_by_row(X, h) if squares is None else squares @ h)
        common = common + 0.5 * squared_lengths(p, axis=0)
        moments = with_products(p, common, 1.0)
        constants, dead = density.constants, None
        if not on_device(X):  # products with infinite numbers may warn of invalid ones
            dead = constants == -xp.inf
            constants = xp.where(dead, 0.0, constants)
        last = density.quadratic[:, -1:] + constants[:, None]
        log_prob = xp.concat([density.quadratic[:, :-1], last], axis=1) @ moments
        if dead is not None and bool(xp.any(dead)):
            log_prob = xp.where(dead[:, None], -xp.inf, log_prob)
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
        sum_p, sum_pp = moments_of(r, projected)
        squares = projected.squares
        return ProjectedSums(
            weight=resp.weight,
            sum_p=sum_p,
            sum_pp=sum_pp,
            sum_x=zx[q, :],
            sum_zx=zx[:q, :],
            sum_square=_sum_of_squares(block, resp) if squares is None else resp.by_row @ squares,
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
        return m_step(self, stats, params)

    def log_prior(self, params: CommonParams) -> float:
        return 0.0 if self.prior is None else log_prior(self.prior, params)

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
        AA, C, xi = A.T @ A, density.roots, params.latent_means
        terms = terms + xp.max(xp.sum((AA @ C) * C, axis=(1, 2)))  # of T Omega T' + I
        terms = terms + xp.max(xp.sum((xi @ AA) * xi, axis=1))
        if self.prior is not None:  # as if there was one row
            terms = terms + _PRIOR_TERMS * self.prior.rows * params.latent_means.shape[0] * A.shape[0]
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
        """Leading directions of all rows about the origin, and the moments of the parts in this subspace."""
        return from_partition(self, X, weight, labels, means)

    def _from_anchor(self, density: CommonDensity, projected: Projected | WithMissing) -> Array:
        """E[z | x, k] - w (n, K, q)."""
        if isinstance(projected, WithMissing):
            z = missing_entries.factor_means(density, projected)
        else:
            z = density.to_factors @ projected.p + density.at_zero[..., None]  # (K, q, n)
        return namespace(z).permute_dims(z, (2, 0, 1))


def _sum_of_squares(block: Block, resp: Responsibilities) -> Array:
    """(D,) the sum of x^2, which is computed once where rows have their own weights in every pass."""
    X, by_row = block.X, resp.by_row
    if not resp.whole:
        return squares_by_column(X, by_row)
    return (
        block.small_once("sum of squares", lambda: squares_by_column(X, by_row)) + 0.0
    )  # sums are overwritten


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
