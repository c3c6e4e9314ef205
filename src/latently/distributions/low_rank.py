"""Gaussians with low-rank plus diagonal covariance: the family of factor models.

    z ~ N(0, I_q)      x | z, k ~ N(mu_k + L_k z, diag(psi_k))      x | k ~ N(mu_k, L_k L_k' + diag(psi_k))

n rows, D features, K components, q factors. psi may differ by component or be shared, and differ by
feature or be isotropic; q = 0 gives diagonal and spherical Gaussians. Rows cost O(K D q); no D x D
matrix is formed. Ghahramani & Hinton (1996), CRG-TR-96-1; formulas: docs/mfa.md.

With C C' = I + L' Psi^-1 L (Cholesky) and P = Psi^-1 L C^-T, the projected rows y = P'(x - mu) give both

    (x - mu)' Sigma^-1 (x - mu) = (x - mu)' Psi^-1 (x - mu) - |y|^2      and      E[z|x] = C^-T y,

so that one stacked product X [P_1 .. P_K] serves the density and the statistics. These large products, most
of the work, may be computed in float32; the small ones whose large terms cancel stay in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latently.backend.linalg import (
    cholesky_of_definite,
    diagonals,
    inverse,
    inverse_of_triangular,
    log_determinant,
    rough_eigenpairs,
    squared_lengths,
    symmetric,
    transpose,
)
from latently.backend.namespace import (
    Array,
    Floats,
    constant,
    double,
    eye,
    like,
    namespace,
    ones,
    surely_all,
    to_numpy,
    zeros,
)
from latently.backend.placement import on_device
from latently.core.block import Block
from latently.core.tree import add
from latently.distributions import low_rank_missing
from latently.distributions.family import Family
from latently.distributions.gaussian import NEAR_FLOOR
from latently.distributions.low_rank_missing import MissingSums, WithMissing
from latently.distributions.parts import rows_of_parts
from latently.distributions.prior import Prior, log_noise
from latently.distributions.responsibilities import Entries, Responsibilities, has_rows


@dataclass(frozen=True)
class LowRankParams:
    means: Array  # (K, D)
    loadings: Array  # (K, D, q)
    noise_variance: Array  # (K, D), > 0; equal rows if shared, equal columns if isotropic


@dataclass(frozen=True)
class LowRankDensity:
    """Derived quantities of a sweep. G = 1 if the noise is shared else K; S = 1 if isotropic else D."""

    means: Array  # (K, D)
    projections: Array  # (K, D, q): P
    to_factors: Array  # (K, q, q): C^-1, so that E[z|x]' = y' C^-1
    factor_covariances: Array  # (K, q, q): V = (C C')^-1
    stacked: Array  # (K q, D): P_1' above P_2' ..., in the dtype of wide products
    offsets: Array  # (K q, 1): P' mu, in that dtype
    linear: Array | None  # (K, D): Psi_k^-1 mu_k; None if it is below the projections in `stacked`
    inverse_noise: Array  # (G, S): 1 / psi
    loadings: Array  # (K, D, q)
    noise: Array  # (K, D)
    constants: Array  # (K,): -1/2 (D ln 2 pi + ln|Sigma| + mu' Psi^-1 mu), and log weights
    log_weights: Array  # (K,): terms a mixture added to the constants

    @cached_property
    def tables(self) -> low_rank_missing.Tables:
        """Tables for rows with missing entries."""
        return low_rank_missing.tables(self)


@dataclass(frozen=True)
class Projected:
    """Intermediate results of the densities of a block that its statistics reuse."""

    X: Array  # (n, D), in the dtype of wide products
    y: Array  # (K, q, n), in the same dtype
    squares: Array  # (n, S)
    terms: Array | None = None  # (n, D + S + 1): those of log densities without factors, if side by side


@dataclass(frozen=True)
class ProjectedSums:  # sums of a block in projected rows, before conversion to factors
    weight: Array  # (K,)       sum of r
    sum_x: Array  # (K, D)      sum of r x
    sum_yx: Array  # (K, q, D)  sum of r y x'
    sum_square: Array  # (G, S) sum of r x^2, over components if shared, over features if isotropic
    incomplete: MissingSums | None = None  # sums of rows with missing entries
    plain: Array | None = None  # (K,) sum of r where the others are sums of r u, for rows of precisions u


@dataclass(frozen=True)
class LowRankStats:
    """Every field is a sum over rows; missing x replaced by expectations, m = E[z|x,k], V its covariance."""

    weight: Array  # (K,)       sum of r
    sum_x: Array  # (K, D)      sum of r x
    sum_z: Array  # (K, q)      sum of r m
    sum_zx: Array  # (K, q, D)  sum of r E[z x']
    sum_zz: Array  # (K, q, q)  sum of r (V + m m')
    sum_square: Array  # (G, S) sum of r x^2, over components if shared, over features if isotropic
    precision: Array | None = None  # (K,) sum of r u where rows have precisions u, which then weigh x and m


@dataclass(frozen=True)
class LowRankGaussian(Family):
    """The family; `floor` is the smallest noise variance allowed of each feature."""

    n_factors: int
    floor: Array  # (D,)
    isotropic: bool = False
    shared: bool = False
    prior: Prior | None = None  # of the noise; equal for all features if isotropic

    def floats_per_row(self, K: int, D: int, missing: bool) -> int:
        """Memory per row in the kernel.

        Without factors the value is overestimated: blocks that stay in the cache are faster.
        """
        q = self.n_factors
        # for missing entries less than there is: many small steps are faster in long blocks
        for_missing = K * q * (q + 6) // 2 if missing else 0
        if not q and not missing and on_device(self.floor):
            return 4 * D + 4 * K
        return for_missing + (3 * D + 2 * K * (q + 2) if q else 12 * (D + K))

    def prepare(self, params: LowRankParams, dtype: str = "float64") -> LowRankDensity:
        xp = namespace(params.means)
        mu, L, psi = params.means, params.loadings, params.noise_variance
        (K, D), q = mu.shape, self.n_factors
        constants = -0.5 * (D * math.log(2 * math.pi) + xp.sum(xp.log(psi) + mu**2 / psi, axis=1))
        if q:
            scaled = L / psi[:, :, None]
            B = constant(mu, np.eye, q) + symmetric(transpose(L) @ scaled)  # posterior precision of z
            C = cholesky_of_definite(B)
            inverse_C = inverse_of_triangular(C)
            P = scaled @ transpose(inverse_C)
            constants = constants - 0.5 * log_determinant(C)
        else:
            inverse_C = zeros((K, 0, 0), mu)
            P = L
        offsets = xp.reshape(xp.sum(P * mu[:, :, None], axis=1), (K * q, 1))
        stacked, linear = xp.reshape(transpose(P), (K * q, D)), mu / psi
        if dtype == "float64":  # one product for both
            stacked, linear = xp.concat([stacked, linear]), None
        inverse_noise = 1.0 / psi[: 1 if self.shared else K, : 1 if self.isotropic else D]
        return LowRankDensity(
            means=mu,
            projections=P,
            to_factors=inverse_C,
            factor_covariances=transpose(inverse_C) @ inverse_C,
            stacked=xp.astype(stacked, getattr(xp, dtype)),
            offsets=xp.astype(offsets, getattr(xp, dtype)),
            linear=linear,
            inverse_noise=inverse_noise,
            loadings=L,
            noise=psi,
            constants=constants,
            log_weights=xp.zeros_like(constants),
        )

    def evaluate(
        self, density: LowRankDensity, block: Block, *, rough: bool = False
    ) -> tuple[Array, Projected | WithMissing]:
        """ln N(x; mu_k, Sigma_k) plus terms of the mixture in the constants (K, n), and projected rows.

        If `rough`, entries whose responsibilities are below rounding in sums over rows may be approximate.
        """
        if block.observed is not None:
            return low_rank_missing.evaluate(self, density, block, rough=rough)
        X = block.X
        xp = namespace(X)
        K, q = density.means.shape[0], self.n_factors
        if not q and on_device(X):  # one product, and no other pass over (K, n)
            terms = block.once(f"terms {self.isotropic}", lambda: self._terms(X))
            linear = density.stacked if density.linear is None else density.linear
            half = xp.broadcast_to(-0.5 * density.inverse_noise, (K, density.inverse_noise.shape[1]))
            log_prob = xp.concat([linear, half, density.constants[:, None]], axis=1) @ terms.T
            y, squares = zeros((K, 0, X.shape[0]), X), terms[:, X.shape[1] : -1]
            return log_prob, Projected(X, y, squares, terms)
        wide = xp.astype(X, density.stacked.dtype, copy=False)
        products = density.stacked @ wide.T
        y = products[: K * q, :]
        y -= density.offsets
        y = xp.reshape(y, (K, q, X.shape[0]))
        log_prob = products[K * q :, :] if density.linear is None else density.linear @ X.T
        squares = block.once(f"squares {self.isotropic}", lambda: self.squares(X))
        log_prob += (-0.5 * density.inverse_noise) @ squares.T  # (G, n)
        log_prob += density.constants[:, None]
        if q:
            log_prob += 0.5 * double(squared_lengths(y, axis=1))
        return log_prob, Projected(wide, y, squares)

    def normalisers(self, density: LowRankDensity, block: Block, latent: Projected | WithMissing) -> Array:
        """-1/2 ln|2 pi Sigma_oo| of the observed entries: (K, n), or (K, 1) for complete rows."""
        if isinstance(latent, WithMissing):
            return low_rank_missing.normalisers(density, block, latent)
        square = namespace(block.X).sum(density.means**2 / density.noise, axis=1)
        return (density.constants - density.log_weights + 0.5 * square)[:, None]

    def factor_means(self, density: LowRankDensity, projected: Projected | WithMissing) -> Array:
        """E[z | x, k] (n, K, q)."""
        if isinstance(projected, WithMissing):
            return low_rank_missing.factor_means(projected)
        z = transpose(density.to_factors) @ double(projected.y)  # (K, q, n)
        return namespace(z).permute_dims(z, (2, 0, 1))

    def factor_covariances(
        self, density: LowRankDensity, projected: Projected | WithMissing, n_rows: int
    ) -> Array:
        """Covariances of z given x and k (n, K, q, q)."""
        if isinstance(projected, WithMissing):
            return low_rank_missing.factor_covariances(projected)
        V = density.factor_covariances
        return namespace(V).broadcast_to(V, (n_rows, *V.shape))

    def expected(
        self, density: LowRankDensity, block: Block, latent: Projected | WithMissing, resp: Array
    ) -> Array:
        """(n, D) the posterior mean of mu_k + L_k z: in missing entries, that of x."""
        xp = namespace(resp)
        (K, D), q = density.means.shape, self.n_factors
        weighted = xp.reshape(resp[:, :, None] * self.factor_means(density, latent), (len(block), K * q))
        return resp @ density.means + weighted @ xp.reshape(transpose(density.loadings), (K * q, D))

    def moments_given(
        self, density: LowRankDensity, block: Block, latent: WithMissing, k: int
    ) -> tuple[Array, Array]:
        """Means and variances (n, D) of missing entries given the observed ones and component k."""
        return low_rank_missing.moments_given(density, latent, k)

    def draw(
        self,
        density: LowRankDensity,
        block: Block,
        latent: WithMissing,
        labels: Array,
        rng: np.random.Generator,
    ) -> Floats:
        """(n, D) rows with missing entries sampled given the observed ones and the component."""
        return low_rank_missing.draw(density, latent, labels, rng)

    def most_per_row(self, K: int) -> float:
        """Responsibilities per row above which products over all rows are faster; measured."""
        q = self.n_factors
        return K * ((q + 2) / (q + 27) if q else 0.15)

    def sums(
        self,
        density: LowRankDensity,
        block: Block,
        projected: Projected | WithMissing,
        resp: Responsibilities,
    ) -> ProjectedSums:
        X = block.X
        if isinstance(projected, WithMissing):
            return self.no_sums(density, low_rank_missing.sums(self, density, block, projected, resp))
        if projected.terms is not None:
            of_terms, D = resp.times(projected.terms), X.shape[1]
            sum_x, squares = of_terms[:, :D], of_terms[:, D:-1]
            sum_yx = self._dense_yx(projected, resp)
        elif resp.sparse is not None and self.n_factors:
            sum_x, sum_yx, squares = self._gathered_sums(density, projected, resp, resp.sparse)
        else:
            sum_x, sum_yx, squares = resp.times(X), self._dense_yx(projected, resp), None
        if self.shared:
            squares = resp.by_row[None, :] @ projected.squares
        elif squares is None:
            squares = resp.times(projected.squares)
        plain = None if resp.plain is None else resp.plain.weight
        return ProjectedSums(resp.weight, sum_x, sum_yx, squares, plain=plain)

    def no_sums(self, density: LowRankDensity, incomplete: MissingSums) -> ProjectedSums:
        """Expectations for missing entries only: for complete rows they are zero."""
        (K, D), (G, S) = density.means.shape, density.inverse_noise.shape
        shapes = ((K,), (K, D), (K, self.n_factors, D), (G, S))
        weight, sum_x, sum_yx, square = (zeros(shape, density.means) for shape in shapes)
        return ProjectedSums(weight, sum_x, sum_yx, square, incomplete)

    def stats(self, density: LowRankDensity, sums: ProjectedSums) -> LowRankStats:
        """Statistics in z = C^-T y from sums in y = P'(x - mu), which is linear in x; once per sweep."""
        mu, P, W = density.means, density.projections, density.to_factors
        weight, sum_yx = sums.weight, sums.sum_yx
        plain = weight if sums.plain is None else sums.plain  # V is proportional to 1 / u
        sum_y = ((sums.sum_x - weight[:, None] * mu)[:, None, :] @ P)[:, 0, :]
        yy = (sum_yx - sum_y[:, :, None] * mu[:, None, :]) @ P
        stats = LowRankStats(
            weight=weight,
            sum_x=sums.sum_x,
            sum_z=(sum_y[:, None, :] @ W)[:, 0, :],
            sum_zx=transpose(W) @ sum_yx,
            sum_zz=plain[:, None, None] * density.factor_covariances + symmetric(transpose(W) @ yy @ W),
            sum_square=sums.sum_square,
        )
        if sums.incomplete is not None:
            stats = add(stats, LowRankStats(**low_rank_missing.statistics(self, density, sums.incomplete)))
        return stats

    def sums_of_moments(
        self, density: LowRankDensity, weight: Array, mean: Array, scatter: Array
    ) -> tuple[Array, ProjectedSums]:
        """Log-likelihood and sums of one component from the rows' mean and scatter about it.

        They are the sufficient statistics of a single Gaussian, so one pass over the rows is enough.
        """
        xp = namespace(scatter)
        mu, P = density.means[0, :], density.projections[0, :, :]
        r = mean - mu
        about_mu = scatter + weight * (r[:, None] * r[None, :])
        second = about_mu @ P  # sum of (x - mu) y'
        moment = xp.linalg.diagonal(scatter) + weight * mean**2
        sum_square = xp.sum(moment, axis=0, keepdims=True) if self.isotropic else moment
        inverse_noise = density.inverse_noise[0, :]
        log_det_part = density.constants[0] + 0.5 * xp.sum(mu**2 * inverse_noise)
        squares = xp.linalg.diagonal(about_mu)
        log_likelihood = weight * log_det_part - 0.5 * (xp.sum(squares * inverse_noise) - xp.sum(P * second))
        return log_likelihood, ProjectedSums(
            xp.reshape(weight, (1,)),
            (weight * mean)[None, :],
            (second.T + (weight * (r @ P))[:, None] * mu)[None, :, :],
            sum_square[None, :],
        )

    def m_step(self, stats: LowRankStats, params: LowRankParams) -> LowRankParams:
        """The joint maximiser over means, loadings and noise; an empty component is unchanged."""
        xp = namespace(stats.weight)
        K, D = stats.sum_x.shape
        filled = has_rows(stats.weight)
        n = xp.where(filled, stats.weight, 1.0)[:, None]  # (K, 1)
        precision = stats.weight if stats.precision is None else stats.precision
        share = xp.where(filled, precision, 1.0)[:, None]  # n, without precisions
        x_mean, z_mean = stats.sum_x / share, stats.sum_z / share
        C_zx = stats.sum_zx - (share * z_mean)[:, :, None] * x_mean[:, None, :]
        C_zz = symmetric(stats.sum_zz - (share * z_mean)[:, :, None] * z_mean[:, None, :])
        if self.n_factors:
            C_zz = xp.where(filled[:, None, None], C_zz, constant(C_zz, np.eye, self.n_factors))
            L = inverse(C_zz) @ C_zx  # (K, q, D), the loadings transposed
        else:
            L = C_zx
        means = x_mean - (z_mean[:, None, :] @ L)[:, 0, :]

        explained = precision[:, None] * x_mean**2 + xp.sum(L * C_zx, axis=1)  # (K, D)
        if self.shared:
            explained = xp.sum(explained, axis=0, keepdims=True)
        if self.isotropic:
            explained = xp.sum(explained, axis=1, keepdims=True)
        n_noise, n_features = xp.sum(stats.weight) if self.shared else n, D if self.isotropic else 1
        psi = (stats.sum_square - explained) / (n_noise * n_features)
        if self.prior is not None:
            psi = self.prior.variances(psi * n_noise, n_noise, K if self.shared else 1)
        psi = xp.broadcast_to(psi, (K, D))
        loadings = transpose(L)
        if not surely_all(filled):
            means = xp.where(filled[:, None], means, params.means)
            loadings = xp.where(filled[:, None, None], loadings, params.loadings)
            psi = xp.where(filled[:, None] | self.shared, psi, params.noise_variance)
        return self.clamped(LowRankParams(means, loadings, psi))

    def log_priors(self, params: LowRankParams) -> Array:
        """ln p of the noise; shared noise has the pseudo-rows of all components."""
        if self.prior is None:
            return zeros(params.means.shape[:1], params.means)
        return log_noise(self.prior, params.noise_variance, self.shared)

    def implied_stats(self, params: LowRankParams, weights: Array) -> LowRankStats:
        """Expected statistics under these parameters: the M-step maps them back to the parameters."""
        xp = namespace(weights)
        mu, L = params.means, params.loadings
        square = weights[:, None] * (mu**2 + self.marginal_variances(params))
        if self.isotropic:
            square = xp.sum(square, axis=1, keepdims=True)
        if self.shared:
            square = xp.sum(square, axis=0, keepdims=True)
        return LowRankStats(
            weight=weights,
            sum_x=weights[:, None] * mu,
            sum_z=xp.zeros_like(L[:, 0, :]),
            sum_zx=weights[:, None, None] * transpose(L),
            sum_zz=weights[:, None, None] * eye(self.n_factors, weights),
            sum_square=square,
        )

    def clamped(self, params: LowRankParams) -> LowRankParams:
        """Noise variances bounded below by the floor; without a floor a vanishing one is an error."""
        psi = self.noise_above(self._floor(), params.noise_variance)
        return LowRankParams(params.means, params.loadings, psi)

    @property
    def separate(self) -> bool:
        return not self.shared

    def rounding(self, density: LowRankDensity) -> float:
        return self.roundings(density, 1)[0]

    def roundings(self, density: LowRankDensity, n_runs: int) -> list[float]:
        """Rounding errors of a row's log density: of the quadratic form and of the squared projections."""
        xp = namespace(density.means)
        terms = xp.sum((1.0 + density.means**2) * density.inverse_noise, axis=1)
        # squares of projected rows cancel those of projected means, which may be large in extrapolations
        of_means = double(xp.reshape(density.offsets, (density.means.shape[0], -1)))
        projections = xp.sum(density.projections**2, axis=(1, 2)) + xp.sum(of_means**2, axis=1)
        narrow, wide = (float(xp.finfo(a.dtype).eps) for a in (density.means, density.stacked))
        sizes = [xp.max(xp.reshape(of, (n_runs, -1)), axis=1) for of in (terms, projections)]
        return [narrow * t + wide * p for t, p in zip(*to_numpy(xp.stack(sizes)).tolist(), strict=True)]

    def coordinates(self, params: LowRankParams) -> tuple[Array, ...]:
        """Means, loadings and standard deviations of the noise.

        An unneeded noise variance decreases like 1/t^2, ever more slowly; its root can be extrapolated to
        zero.
        """
        return params.means, params.loadings, namespace(params.means).sqrt(params.noise_variance)

    def from_coordinates(self, *arrays: Array) -> LowRankParams:
        means, loadings, deviation = arrays
        xp = namespace(deviation)
        deviation = xp.clip(deviation, min=0.0)
        # products of vectors round equal entries to different last digits
        tied = deviation[: 1 if self.shared else None, : 1 if self.isotropic else None]
        deviation = xp.broadcast_to(tied, deviation.shape)
        return self.clamped(LowRankParams(means, loadings, deviation**2))

    def moved(self, params: LowRankParams, weights: Array, shift: Array, scale: Array) -> LowRankParams:
        """The parameters of shift + scale * x."""
        return LowRankParams(
            shift + scale * params.means,
            params.loadings * scale[:, None],
            params.noise_variance * scale**2,
        )

    def marginal_variances(self, params: LowRankParams) -> Array:
        """(K, D): the variance of every feature."""
        xp = namespace(params.means)
        return params.noise_variance + xp.sum(params.loadings**2, axis=2)

    def from_partition(self, X: Array, weight: Array, labels: Array, means: Array) -> LowRankParams:
        """Local principal components of the parts; parts that are too small use the pooled ones."""
        xp, (K, D), q = namespace(X), means.shape, self.n_factors
        residual = (X - xp.take(means, labels, axis=0)) * xp.sqrt(weight)[:, None]
        labels = to_numpy(labels)
        sizes, counts = np.bincount(labels, to_numpy(weight), K), np.bincount(labels, minlength=K)
        large = (np.minimum(sizes, counts) > 2 * D) & (0 < q < D and not self.isotropic)
        small = ~large & (sizes < 2 * (q + 1))
        found: dict[int, tuple[Array, Array]] = {}
        for start, chosen in ((self._by_multiple_correlations, large), (self._principal, ~large & ~small)):
            for some, rows in rows_of_parts(residual, labels, np.flatnonzero(chosen).tolist()):
                found.update(zip(some, zip(*start(rows, like(sizes[some], X)), strict=True), strict=True))
        if small.any():
            values = self._principal(residual[None, ...], xp.sum(weight)[None])
            pooled = values[0][0, ...], values[1][0, ...]
            found.update({k: pooled for k in np.flatnonzero(small).tolist()})
        loadings, psi = (xp.stack([found[k][i] for k in range(K)]) for i in range(2))
        size = like(sizes, X)
        typical = size @ psi / xp.sum(size)
        if self.shared:
            psi = xp.broadcast_to(typical, (K, D))
        else:
            # the noise of a small part is shrunk towards the pooled one, so that it does not start as a spike
            psi = (size[:, None] * psi + (q + 2) * typical) / (size[:, None] + q + 2)
        smallest = xp.clip(self._floor(), min=1e-6)  # away from zero even without a floor
        return self.clamped(LowRankParams(means, loadings, xp.maximum(psi, smallest)))

    def sample(self, params: LowRankParams, labels: Array, rng: np.random.Generator) -> Floats:
        K, D = params.means.shape
        X: Floats = params.means[labels] + rng.standard_normal((len(labels), D)) * np.sqrt(
            params.noise_variance[labels]
        )
        for k in range(K):
            own = labels == k
            X[own] += rng.standard_normal((int(own.sum()), self.n_factors)) @ params.loadings[k].T
        return X

    def n_parameters(self, K: int, D: int) -> int:
        """Free parameters of means and covariances; loadings are counted up to rotation.

        A covariance has at most D (D + 1) / 2 of them, whatever the number of factors.
        """
        q = self.n_factors
        loadings = D * q - q * (q - 1) // 2
        noise = 1 if self.isotropic else D
        full = D * (D + 1) // 2
        if self.shared:
            return K * D + min(K * loadings + noise, K * full)
        return K * (D + min(loadings + noise, full))

    def least_rows(self, D: int) -> int:
        """Any q + 1 points lie in a subspace of q factors; one more tells of noise of a component's own."""
        q = min(self.n_factors, D)
        return max(q + 1, super().least_rows(D)) if self.shared else min(q + 2, D + 1)

    def at_floor(self, params: LowRankParams) -> Array:
        return params.noise_variance <= self._floor() * (1.0 + NEAR_FLOOR)

    # -- helpers of the above----------------------------------------------------------------------

    def squares(self, X: Array) -> Array:
        """(n, S): x^2, summed over features if the noise is isotropic."""
        return namespace(X).vecdot(X, X, axis=-1)[:, None] if self.isotropic else X * X

    def _terms(self, X: Array) -> Array:
        """(n, D + S + 1): x, its squares and one; log densities without factors are sums of multiples."""
        xp = namespace(X)
        return xp.concat([X, self.squares(X), ones((X.shape[0], 1), X)], axis=1)

    def _floor(self) -> Array:
        xp = namespace(self.floor)
        return xp.mean(self.floor, keepdims=True) if self.isotropic else self.floor

    def _dense_yx(self, projected: Projected, resp: Responsibilities) -> Array:
        """Sum of r y x' by one stacked product over all rows and components."""
        xp = namespace(projected.y)
        (K, q, n), D = projected.y.shape, projected.X.shape[1]
        if q == 0:
            return zeros((K, 0, D), resp.weight)
        weighted_y = projected.y * xp.astype(resp.dense, projected.y.dtype)[:, None, :]
        return xp.reshape(double(xp.reshape(weighted_y, (K * q, n)) @ projected.X), (K, q, D))

    def _gathered_sums(
        self, density: LowRankDensity, projected: Projected, resp: Responsibilities, entries: Entries
    ) -> tuple[Array, Array, Array | None]:
        """Sums of r x, r y x' and r x^2 over contributing rows, about each component's own mean.

        They are accurate in float32 as well; they are shifted to the origin in float64.
        """
        xp = namespace(projected.y)
        mu, dtype = density.means, projected.X.dtype
        products, squares = [], []
        for k in range(mu.shape[0]):
            rows, r = entries.of(k)
            r = xp.astype(r, dtype)
            residual = xp.take(projected.X, rows, axis=0)
            residual -= xp.astype(mu[k, :], dtype)
            weighted = xp.concat([xp.take(projected.y[k, :, :], rows, axis=1) * r, r[None, :]])
            products.append(weighted @ residual)  # (q + 1, D)
            if not self.shared:
                squares.append(r @ self.squares(residual))
        about_mean = double(xp.stack(products))
        first, weight = about_mean[:, -1, :], resp.weight[:, None]
        sum_y = (first[:, None, :] @ density.projections)[:, 0, :]
        sum_yx = about_mean[:, :-1, :] + sum_y[:, :, None] * mu[:, None, :]
        sum_square = None
        if not self.shared:
            shift = 2.0 * first * mu + weight * mu**2
            if self.isotropic:
                shift = xp.sum(shift, axis=1, keepdims=True)
            sum_square = double(xp.stack(squares)) + shift
        return first + weight * mu, sum_yx, sum_square

    def _principal(self, residual: Array, weight: Array) -> tuple[Array, Array]:
        """Loadings (G, D, q) and noise (G, D) of parts: PCA of rows about their mean, by root weights."""
        xp, (G, _, D), q = namespace(residual), residual.shape, self.n_factors
        variance = xp.sum(residual**2, axis=1) / weight[:, None]
        values, vectors = rough_eigenpairs(residual, min(q, D))
        r, values = values.shape[1], values / weight[:, None]
        rest = xp.clip(xp.sum(variance, axis=1) - xp.sum(values, axis=1), min=0.0) / max(1, D - r)
        loadings = vectors * xp.sqrt(xp.clip(values - rest[:, None], min=0.0))[:, None, :]
        loadings = xp.concat([loadings, zeros((G, D, q - r), residual)], axis=2)
        if self.isotropic:
            return loadings, zeros((G, D), residual) + rest[:, None]
        return loadings, xp.maximum(variance - xp.sum(loadings**2, axis=2), 0.1 * variance)

    def _by_multiple_correlations(self, residual: Array, weight: Array) -> tuple[Array, Array]:
        """Loadings (G, D, q) and noise (G, D) of parts, independent of the units of the features.

        The noise is the variance of a feature not explained by the others, 1 / (S^-1)_dd, slightly reduced;
        the loadings are optimal for that noise. Joreskog (1967), Psychometrika 32.
        """
        xp, D, q = namespace(residual), residual.shape[2], self.n_factors
        S = transpose(residual) @ residual / weight[:, None, None]
        variance = diagonals(S)
        ridge = 1e-6 * xp.where(variance > 0, variance, 1.0)
        psi = (1.0 - 0.5 * q / D) / diagonals(xp.linalg.inv(S + ridge[:, :, None] * eye(D, residual)))
        root = xp.sqrt(psi)
        values, vectors = rough_eigenpairs(residual / root[:, None, :], q)
        beyond = xp.sqrt(xp.clip(values / weight[:, None] - 1.0, min=0.0))
        return root[:, :, None] * vectors * beyond[:, None, :], psi
