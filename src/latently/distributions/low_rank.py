"""Gaussians whose covariance is low rank plus diagonal: the family of factor models.

    z ~ N(0, I_q)      x | z, k ~ N(mu_k + L_k z, diag(psi_k))      x | k ~ N(mu_k, L_k L_k' + diag(psi_k))

n rows, D features, K components, q factors. psi may differ by component or be shared, and differ by
feature or be isotropic; q = 0 gives diagonal and spherical Gaussians. Rows cost O(K D q); no D x D
matrix is formed. Ghahramani & Hinton (1996), CRG-TR-96-1; formulas: docs/mfa.md.

With C C' = I + L' Psi^-1 L (Cholesky) and P = Psi^-1 L C^-T, the projected rows y = P'(x - mu) give both

    (x - mu)' Sigma^-1 (x - mu) = (x - mu)' Psi^-1 (x - mu) - |y|^2      and      E[z|x] = C^-T y,

so that one stacked product X [P_1 .. P_K] serves the density and the statistics. Those wide products, most
of the work, may be done in float32; the narrow ones whose large terms cancel stay in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from latently.backend.linalg import leading_eigenpairs, log_determinant, symmetric, transpose
from latently.backend.namespace import Array, Floats, double, namespace
from latently.distributions.gaussian import SMALLEST_VARIANCE
from latently.distributions.responsibilities import rows_that_count


@dataclass(frozen=True)
class LowRankParams:
    means: Array  # (K, D)
    loadings: Array  # (K, D, q)
    noise_variance: Array  # (K, D), > 0; equal rows if shared, equal columns if isotropic


@dataclass(frozen=True)
class LowRankDensity:
    """What a block needs, once per sweep. G = 1 if the noise is shared else K; S = 1 if isotropic else D."""

    means: Array  # (K, D)
    projections: Array  # (K, D, q): P
    to_factors: Array  # (K, q, q): C^-1, so that E[z|x]' = y' C^-1
    factor_covariances: Array  # (K, q, q): V = (C C')^-1
    stacked: Array  # (D, K q): [P_1 .. P_K], in the dtype of wide products
    offsets: Array  # (K q,): P' mu, in that dtype
    linear: Array  # (D, K): Psi_k^-1 mu_k
    inverse_noise: Array  # (S, G): 1 / psi
    constants: Array  # (K,): -1/2 (D ln 2 pi + ln|Sigma| + mu' Psi^-1 mu)


@dataclass(frozen=True)
class Projected:
    """A block's rows as the wide products see them."""

    X: Array  # (n, D) in their dtype
    y: Array  # (n, K, q)


@dataclass(frozen=True)
class LowRankStats:  # every field is a sum over rows; m and V are mean and covariance of z given x and k
    weight: Array  # (K,)       sum of r
    sum_x: Array  # (K, D)      sum of r x
    sum_z: Array  # (K, q)      sum of r m
    sum_xz: Array  # (K, D, q)  sum of r x m'
    sum_zz: Array  # (K, q, q)  sum of r (V + m m')
    sum_square: Array  # (G, S) sum of r x^2, over components if shared, over features if isotropic


@dataclass(frozen=True)
class LowRankGaussian:
    """The family; `floor` is the smallest noise variance allowed of each feature."""

    n_factors: int
    floor: Array  # (D,)
    isotropic: bool = False
    shared: bool = False

    def floats_per_row(self, K: int, D: int) -> int:
        """How much memory a row takes on its way through the kernel."""
        return 3 * D + 2 * K * (self.n_factors + 2)

    def prepare(self, params: LowRankParams, dtype: str = "float64") -> LowRankDensity:
        xp = namespace(params.means)
        mu, L, psi = params.means, params.loadings, params.noise_variance
        (K, D), q = mu.shape, self.n_factors
        constants = -0.5 * (D * math.log(2 * math.pi) + xp.sum(xp.log(psi) + mu**2 / psi, axis=1))
        if q:
            scaled = L / psi[:, :, None]
            B = xp.eye(q, dtype=mu.dtype) + symmetric(transpose(L) @ scaled)  # posterior precision of z
            C = xp.linalg.cholesky(B)
            inverse_C = xp.linalg.inv(C)
            P = scaled @ transpose(inverse_C)
            constants = constants - 0.5 * log_determinant(C)
        else:
            inverse_C = xp.zeros((K, 0, 0), dtype=mu.dtype)
            P = L
        offsets = xp.reshape(xp.sum(P * mu[:, :, None], axis=1), (K * q,))
        stacked = xp.reshape(xp.permute_dims(P, (1, 0, 2)), (D, K * q))
        inverse_noise = 1.0 / psi.T[: 1 if self.isotropic else D, : 1 if self.shared else K]
        return LowRankDensity(
            means=mu,
            projections=P,
            to_factors=inverse_C,
            factor_covariances=transpose(inverse_C) @ inverse_C,
            stacked=xp.astype(stacked, getattr(xp, dtype)),
            offsets=xp.astype(offsets, getattr(xp, dtype)),
            linear=(mu / psi).T,
            inverse_noise=inverse_noise,
            constants=constants,
        )

    def evaluate(self, density: LowRankDensity, X: Array) -> tuple[Array, Projected]:
        """ln N(x; mu_k, Sigma_k) (n, K), and the projected rows."""
        xp = namespace(X)
        K, q = density.means.shape[0], self.n_factors
        log_prob = self._squares(X) @ (-0.5 * density.inverse_noise)  # (n, G)
        log_prob = log_prob + X @ density.linear
        log_prob += density.constants
        dtype = density.stacked.dtype
        if X.dtype != dtype:
            X = xp.astype(X, dtype)
        y = X @ density.stacked
        y -= density.offsets
        y = xp.reshape(y, (X.shape[0], K, q))
        if q:
            log_prob += 0.5 * double(xp.vecdot(y, y, axis=-1))
        return log_prob, Projected(X, y)

    def factor_means(self, density: LowRankDensity, projected: Projected) -> Array:
        """E[z | x, k] (n, K, q)."""
        xp = namespace(projected.y)
        y = xp.permute_dims(double(projected.y), (1, 0, 2))
        return xp.permute_dims(y @ density.to_factors, (1, 0, 2))

    def stats(self, density: LowRankDensity, X: Array, projected: Projected, resp: Array) -> LowRankStats:
        xp = namespace(X)
        weight = xp.sum(resp, axis=0)
        # break-even of gathering rows against the dense product, measured for q = 0 and q = 10
        needed = rows_that_count(resp, share=(self.n_factors + 2) / (self.n_factors + 27))
        if needed is None:
            sums = self._dense_sums(X, projected, resp)
        else:
            sums = self._sparse_sums(density, X, projected, resp, needed)
        return self._from_projected(density, weight, *sums)

    def stats_of_moments(
        self, density: LowRankDensity, weight: Array, mean: Array, scatter: Array
    ) -> tuple[Array, LowRankStats]:
        """Log-likelihood and statistics of one component from the rows' mean and scatter about it.

        They are all that a single Gaussian asks of the data, so a pass over the rows is needed only once.
        """
        xp = namespace(scatter)
        mu, P = density.means[0, :], density.projections[0, :, :]
        r = mean - mu
        about_mu = scatter + weight * (r[:, None] * r[None, :])
        second = about_mu @ P  # sum of (x - mu) y'
        sum_y = weight * (r @ P)
        moment = xp.linalg.diagonal(scatter) + weight * mean**2
        sum_square = xp.sum(moment, axis=0, keepdims=True) if self.isotropic else moment
        inverse_noise = density.inverse_noise[:, 0]
        log_det_part = density.constants[0] + 0.5 * xp.sum(mu**2 * inverse_noise)
        squares = xp.linalg.diagonal(about_mu)
        log_likelihood = weight * log_det_part - 0.5 * (xp.sum(squares * inverse_noise) - xp.sum(P * second))
        return log_likelihood, self._from_projected(
            density,
            xp.reshape(weight, (1,)),
            (weight * mean)[None, :],
            sum_y[None, :],
            (second + mu[:, None] * sum_y)[None, :, :],
            sum_square[None, :],
        )

    def m_step(self, stats: LowRankStats, params: LowRankParams) -> LowRankParams:
        """The joint maximiser over means, loadings and noise; an empty component stays as it was."""
        xp = namespace(stats.weight)
        K, D = stats.sum_x.shape
        filled = stats.weight > 0
        n = xp.where(filled, stats.weight, 1.0)[:, None]  # (K, 1)
        x_mean = xp.where(filled[:, None], stats.sum_x / n, params.means)
        z_mean = stats.sum_z / n
        C_xz = stats.sum_xz - n[:, :, None] * x_mean[:, :, None] * z_mean[:, None, :]
        C_zz = symmetric(stats.sum_zz - n[:, :, None] * z_mean[:, :, None] * z_mean[:, None, :])
        if self.n_factors:
            C_zz = xp.where(filled[:, None, None], C_zz, xp.eye(self.n_factors, dtype=C_zz.dtype))
            L = transpose(xp.linalg.solve(C_zz, transpose(C_xz)))
        else:
            L = params.loadings
        L = xp.where(filled[:, None, None], L, params.loadings)
        means = xp.where(filled[:, None], x_mean - xp.sum(L * z_mean[:, None, :], axis=2), params.means)

        explained = stats.weight[:, None] * x_mean**2 + xp.sum(L * C_xz, axis=2)  # (K, D)
        if self.shared:
            explained = xp.sum(explained, axis=0, keepdims=True)
        if self.isotropic:
            explained = xp.sum(explained, axis=1, keepdims=True)
        divisor = (xp.sum(stats.weight) if self.shared else n) * (D if self.isotropic else 1)
        psi = xp.broadcast_to((stats.sum_square - explained) / divisor, (K, D))
        if not self.shared:
            psi = xp.where(filled[:, None], psi, params.noise_variance)
        return self.clamped(LowRankParams(means, L, psi))

    def clamped(self, params: LowRankParams) -> LowRankParams:
        """Noise variances raised to the floor; without a floor one that has vanished is an error."""
        xp = namespace(params.noise_variance)
        psi = xp.maximum(params.noise_variance, xp.broadcast_to(self._floor(), params.noise_variance.shape))
        if not bool(xp.all(psi > SMALLEST_VARIANCE)):
            raise ValueError(
                f"a noise variance fell below {SMALLEST_VARIANCE:g} of its feature's variance, where float64 "
                "has no digits left; set noise_floor above that, or use fewer components or factors"
            )
        return LowRankParams(params.means, params.loadings, psi)

    def rounding(self, density: LowRankDensity) -> float:
        """Roundings of a row's log density: of the quadratic form's terms, and of the projections squared."""
        xp = namespace(density.means)
        terms = xp.sum((1.0 + density.means.T**2) * density.inverse_noise, axis=0)
        projections = xp.sum(density.projections**2, axis=(1, 2))
        narrow, wide = (float(xp.finfo(a.dtype).eps) for a in (density.means, density.stacked))
        return narrow * float(xp.max(terms)) + wide * float(xp.max(projections))

    def moved(self, params: LowRankParams, shift: Array, scale: Array) -> LowRankParams:
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

    def from_partition(self, X: Floats, weight: Floats, labels: Array, means: Floats) -> LowRankParams:
        """Local principal components of the parts; a part too small for its own takes the pooled ones."""
        K, D = means.shape
        q = self.n_factors
        residual = (X - means[labels]) * np.sqrt(weight)[:, None]
        own = [labels == k for k in range(K)]
        sizes = np.array([weight[rows].sum() for rows in own])
        loadings, psi = np.empty((K, D, q)), np.empty((K, D))
        pooled_psi = pooled_loadings = None
        for k in range(K):
            if sizes[k] >= 2 * (q + 1):
                loadings[k], psi[k] = self._principal(residual[own[k]], sizes[k])
            else:
                if pooled_loadings is None:
                    pooled_loadings, pooled_psi = self._principal(residual, weight.sum())
                loadings[k], psi[k] = pooled_loadings, pooled_psi
        typical = sizes @ psi / sizes.sum()
        if self.shared:
            psi = np.broadcast_to(typical, (K, D))
        else:
            # a small part's noise is drawn towards that of all, lest it start as a spike
            psi = (sizes[:, None] * psi + (q + 2) * typical) / (sizes[:, None] + q + 2)
        return self.clamped(LowRankParams(means, loadings, np.maximum(psi, self._smallest_start())))

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
        """Free parameters of means and covariances; loadings count up to rotation.

        A covariance has no more than D (D + 1) / 2 of them, however many factors are asked for.
        """
        q = self.n_factors
        loadings = D * q - q * (q - 1) // 2
        noise = 1 if self.isotropic else D
        full = D * (D + 1) // 2
        if self.shared:
            return K * D + min(K * loadings + noise, K * full)
        return K * (D + min(loadings + noise, full))

    # -- parts of the above -----------------------------------------------------------------------

    def _squares(self, X: Array) -> Array:
        """(n, S): x^2, summed over features if the noise is isotropic."""
        return namespace(X).vecdot(X, X, axis=-1)[:, None] if self.isotropic else X * X

    def _floor(self) -> Array:
        xp = namespace(self.floor)
        return xp.mean(self.floor, keepdims=True) if self.isotropic else self.floor

    def _dense_sums(self, X: Array, projected: Projected, resp: Array) -> tuple[Array, Array, Array, Array]:
        """Sums of r x, r y, r x y' and r x^2 by one stacked product over all rows and components."""
        xp = namespace(X)
        (n, K), D, q = resp.shape, X.shape[1], self.n_factors
        sum_x = resp.T @ X
        weighted_y = projected.y * xp.astype(resp, projected.y.dtype)[:, :, None]
        sum_y = double(xp.sum(weighted_y, axis=0))
        sum_xy = double(projected.X.T @ xp.reshape(weighted_y, (n, K * q)))
        sum_xy = xp.permute_dims(xp.reshape(sum_xy, (D, K, q)), (1, 0, 2))
        return sum_x, sum_y, sum_xy, self._sum_square(X, resp)

    def _sparse_sums(
        self, density: LowRankDensity, X: Array, projected: Projected, resp: Array, needed: list[Array]
    ) -> tuple[Array, Array, Array, Array]:
        """The same sums over the rows that count, taken about each component's own mean.

        So they keep their digits in float32 too; float64 carries them over to the origin.
        """
        xp = namespace(X)
        mu = density.means
        dtype = projected.X.dtype
        sum_y, products, squares = [], [], []
        for k, rows in enumerate(needed):
            r = xp.astype(xp.take(resp[:, k], rows), dtype)
            residual = xp.take(projected.X, rows, axis=0)
            residual -= xp.astype(mu[k, :], dtype)
            weighted_y = xp.take(projected.y[:, k, :], rows, axis=0) * r[:, None]
            sum_y.append(xp.sum(weighted_y, axis=0))
            products.append(xp.concat([weighted_y, r[:, None]], axis=1).T @ residual)  # (q + 1, D)
            if not self.shared:
                squares.append(r @ self._squares(residual))
        about_mean = double(xp.stack(products))
        first, weight = about_mean[:, -1, :], xp.sum(resp, axis=0)[:, None]
        sum_x, sum_y = first + weight * mu, double(xp.stack(sum_y))
        sum_xy = transpose(about_mean[:, :-1, :]) + mu[:, :, None] * sum_y[:, None, :]
        if self.shared:
            sum_square = self._sum_square(X, resp)
        else:
            shift = 2.0 * first * mu + weight * mu**2
            if self.isotropic:
                shift = xp.sum(shift, axis=1, keepdims=True)
            sum_square = double(xp.stack(squares)) + shift
        return sum_x, sum_y, sum_xy, sum_square

    def _sum_square(self, X: Array, resp: Array) -> Array:
        if self.shared:
            resp = namespace(resp).sum(resp, axis=1, keepdims=True)
        return resp.T @ self._squares(X)

    def _from_projected(
        self,
        density: LowRankDensity,
        weight: Array,
        sum_x: Array,
        sum_y: Array,
        sum_xy: Array,
        sum_square: Array,
    ) -> LowRankStats:
        """Statistics in z from sums in y: m = C^-T y, and sum of r y y' = P' (sum of r (x - mu) y')."""
        centred = sum_xy - density.means[:, :, None] * sum_y[:, None, :]
        yy = transpose(density.projections) @ centred
        W = density.to_factors
        return LowRankStats(
            weight=weight,
            sum_x=sum_x,
            sum_z=(sum_y[:, None, :] @ W)[:, 0, :],
            sum_xz=sum_xy @ W,
            sum_zz=weight[:, None, None] * density.factor_covariances + symmetric(transpose(W) @ yy @ W),
            sum_square=sum_square,
        )

    def _principal(self, residual: Floats, weight: float) -> tuple[Floats, Floats]:
        """Loadings (D, q) and noise (D,) by PCA of rows about their mean, each scaled by its root weight."""
        D, q = residual.shape[1], self.n_factors
        variance = np.sum(residual**2, axis=0) / weight
        values, vectors = leading_eigenpairs(residual, min(q, D))
        values = values / weight
        rest = max(0.0, float(variance.sum() - values.sum())) / max(1, D - len(values))
        loadings = np.zeros((D, q))
        loadings[:, : len(values)] = vectors * np.sqrt(np.maximum(values - rest, 0.0))
        if self.isotropic:
            return loadings, np.full(D, rest)
        return loadings, np.maximum(variance - np.sum(loadings**2, axis=1), 0.1 * variance)

    def _smallest_start(self) -> Array:
        """Starts keep clear of zero even without a floor."""
        return np.maximum(self._floor(), 1e-6)
