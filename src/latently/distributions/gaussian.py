"""Gaussians with full covariance matrices, one per component or one for all.

    x | k ~ N(mu_k, Sigma_k)

n rows, D features, K components. Rows cost O(K D^2).
Formulas: docs/gaussian_mixture.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from latently.backend.linalg import (
    clamp_spectrum,
    diagonals,
    inverse_of_triangular,
    is_positive_definite,
    log_determinant,
    squared_lengths,
    symmetric,
    transpose,
)
from latently.backend.namespace import Array, Floats, double, eye, like, namespace, ones, to_numpy, zeros
from latently.backend.packed import unpacked
from latently.backend.placement import on_device
from latently.core.block import Block, slices
from latently.distributions import gaussian_missing, products
from latently.distributions.family import SMALLEST_VARIANCE, Family
from latently.distributions.gaussian_missing import WithMissing
from latently.distributions.parts import rows_of_parts
from latently.distributions.prior import Prior
from latently.distributions.responsibilities import Responsibilities, has_rows

NEAR_FLOOR = 1e-3  # relative distance within which a variance is at the floor


# Numbers, components times rows times features, that stay in the cache: one product for all.
_AT_ONCE = 500_000
_AT_ONCE_ON_DEVICE = 200_000_000
_LARGEST_LOG = 300.0  # log of the largest standard deviation accepted in an extrapolation


@dataclass(frozen=True)
class FullParams:
    means: Array  # (K, D)
    covariances: Array  # (K, D, D), or (1, D, D) shared by all components

    @cached_property
    def cholesky(self) -> Array:
        """Their Cholesky factors C, for densities, coordinates and the prior."""
        return namespace(self.covariances).linalg.cholesky(self.covariances)

    @cached_property
    def inverse_factors(self) -> Array:
        """Triangular U with U U' = Sigma^-1."""
        return transpose(inverse_of_triangular(self.cholesky))


@dataclass(frozen=True)
class FullDensity:
    """Precision factors U with U U' = Sigma^-1, once per sweep."""

    means: Array  # (K, D)
    factors: Array  # (G, D, D), G = K or 1
    whitening: Array  # (G, D + 1, D): U above -mu' U (above zero if shared), in the dtype of wide products
    offsets: Array  # (K, D): mu' U
    covariances: Array  # (G, D, D)
    constants: Array  # (K,): -1/2 (D ln 2 pi + ln|Sigma|), and log weights
    log_weights: Array  # (K,): terms a mixture added to the constants
    expanded: bool = False  # whether log densities are computed from products of features

    @property
    def coefficients(self) -> Array:
        """(K, M) of the log densities, for the terms of rows."""
        A = self.factors @ transpose(self.factors)
        linear = (self.factors @ self.offsets[..., None])[..., 0]
        return products.coefficients(-0.5 * A, linear, self.constants - 0.5 * squared_lengths(self.offsets))


@dataclass(frozen=True)
class Terms:
    """The products of features of some rows, on a device."""

    values: Array  # (M, n)


@dataclass(frozen=True)
class FullStats:  # every field is a sum over rows
    weight: Array  # (K,)        sum of r
    sum_x: Array  # (K, D)       sum of r x
    sum_xx: Array  # (G, D, D)   sum of r x x'
    precision: Array | None = None  # (K,) sum of r u where rows have precisions u, which then weigh all x


@dataclass(frozen=True)
class FullGaussian(Family):
    """The family; `floor` is the smallest variance allowed of each feature: Sigma >= diag(floor)."""

    floor: Array  # (D,)
    shared: bool = False
    prior: Prior | None = None  # its scale is (D, D)
    isotropic = False

    def floats_per_row(self, K: int, D: int, missing: bool) -> int:
        """Memory per row in the kernel, with a margin so that blocks stay in the cache."""
        if missing and on_device(
            self.floor
        ):  # covariances of a fifth of the features, as many patterns as rows
            return K * (4 * D + D * D // 20)
        # with missing entries also conditional means, and covariances of about a third of the features
        for_missing = K * (2 * D + D * D // 9) if missing else 0
        if not self.shared and not missing and products.pays(K, D, self.floor):
            return products.n_terms(D) + 2 * D + 4 * K
        return 12 * (D + K) + for_missing

    def prepare(self, params: FullParams, dtype: str = "float64") -> FullDensity:
        xp = namespace(params.means)
        mu, C, U = params.means, params.cholesky, params.inverse_factors
        D = mu.shape[1]
        offsets = (mu[:, None, :] @ U)[:, 0, :]
        constants = -0.5 * (D * math.log(2 * math.pi) + log_determinant(C))
        last = zeros((1, 1, D), mu) if self.shared else -offsets[:, None, :]
        return FullDensity(
            means=mu,
            factors=U,
            whitening=xp.astype(xp.concat([U, last], axis=1), getattr(xp, dtype)),
            offsets=offsets,
            covariances=params.covariances,
            constants=xp.broadcast_to(constants, (mu.shape[0],)),
            log_weights=zeros((mu.shape[0],), mu),
            expanded=not self.shared
            and dtype == "float64"
            and products.pays(mu.shape[0], D, mu)
            and bool(xp.max(xp.sum(U * U, axis=(1, 2))) < products.MOST_PRECISE),
        )

    def evaluate(
        self, density: FullDensity, block: Block, *, rough: bool = False
    ) -> tuple[Array, Array | Terms | WithMissing]:
        """ln N(x; mu_k, Sigma_k) plus terms of the mixture in the constants (K, n), and rows for `sums`."""
        X = block.X
        if block.observed is not None:
            return gaussian_missing.evaluate(density, block)
        if density.expanded:
            terms = block.once("terms", lambda: products.terms(X))
            return density.coefficients @ terms, Terms(terms)
        xp = namespace(X)
        (n, D), G, dtype = X.shape, density.whitening.shape[0], density.whitening.dtype
        at_once = _components_at_once(X, G)
        if at_once > 1 and not self.shared:  # rows side by side: long loops over rows, not over features
            wide = block.once("columns and one", lambda: xp.concat([X.T, ones((1, n), X)]))
            wide = xp.astype(wide, dtype, copy=False)
            stacked, distances = transpose(density.whitening), []
            for some in slices(G, at_once):
                y = xp.reshape(stacked[some, :, :], (-1, D + 1)) @ wide
                distances.append(squared_lengths(xp.reshape(y, (-1, D, n)), axis=1))
            distance = double(distances[0] if len(distances) == 1 else xp.concat(distances))
            distance *= -0.5
            distance += density.constants[:, None]
            return distance, wide.T
        wide = xp.astype(xp.concat([X, ones((n, 1), X)], axis=1), dtype, copy=False)
        whitened = (wide @ density.whitening[g, :, :] for g in range(G))
        if self.shared:
            y, m = double(next(whitened)), density.offsets
            distance = squared_lengths(y) - 2.0 * (m @ y.T) + squared_lengths(m)[:, None]
        else:
            distance = double(xp.stack([squared_lengths(y) for y in whitened]))
        return density.constants[:, None] - 0.5 * distance, wide

    def normalisers(self, density: FullDensity, block: Block, latent: Array | Terms | WithMissing) -> Array:
        """-1/2 ln|2 pi Sigma_oo| of the observed entries: (K, n), or (K, 1) for complete rows."""
        complete = (density.constants - density.log_weights)[:, None]
        return complete + latent.constants if isinstance(latent, WithMissing) else complete

    def most_per_row(self, K: int) -> float:
        """Responsibilities per row above which products over all rows are faster; measured."""
        return 0.7 * K

    def sums(
        self, density: FullDensity, block: Block, wide: Array | Terms | WithMissing, resp: Responsibilities
    ) -> FullStats:
        X = block.X
        if isinstance(wide, WithMissing):
            sum_x, sum_xx = gaussian_missing.sums(density, wide, resp)
            return FullStats(resp.weight, sum_x, sum_xx)
        if isinstance(wide, Terms):
            return FullStats(resp.weight, *products.moments(resp.dense @ wide.values.T, X.shape[1]))
        xp = namespace(X)
        if self.shared:
            sum_xx = X.T @ (resp.by_row[:, None] * X)
            return FullStats(resp.weight, resp.times(X), sum_xx[None, :, :])
        (n, D), K = X.shape, density.means.shape[0]
        if resp.dense is not None and n * D * (D + 5) <= 2 * _AT_ONCE and wide.dtype == xp.float64:
            columns = block.once("columns and products", lambda: _with_products(X))
            sums = resp.dense @ columns.T  # one product for all, about the mean of the data
            return FullStats(resp.weight, sums[:, :D], unpacked(sums[:, D:].T, D))
        # the last column of wide rows is one: products with it are the sums of r x, about the means
        centres = xp.concat([density.means, zeros((K, 1), density.means)], axis=1)
        centres = xp.astype(centres, wide.dtype, copy=False)
        at_once = _components_at_once(X, K)
        if resp.dense is not None and at_once > 1:
            roots = xp.sqrt(xp.astype(resp.dense, wide.dtype, copy=False))[:, None, :]
            scatters = []
            for some in slices(K, at_once):
                residual = wide.T - centres[some, :, None]
                residual *= roots[some, :, :]
                scatters.append(residual @ transpose(residual))
            both = double(scatters[0] if len(scatters) == 1 else xp.concat(scatters))
        else:
            both = double(xp.stack([self._product(centres[k, :], wide, resp, k) for k in range(K)]))
        sums = _about_origin(resp.weight, density.means, both[:, D, :D], both[:, :D, :D])
        return FullStats(resp.weight, *sums)

    @staticmethod
    def _product(centre: Array, wide: Array, resp: Responsibilities, k: int) -> Array:
        """(D + 1, D + 1) the sum of r (x - mu) (x - mu)' for wide rows x of one component.

        About its mean, so that products are accurate in float32 as well.
        """
        xp = namespace(wide)
        if resp.sparse is not None:
            own, r = resp.sparse.of(k)
            residual = xp.take(wide, own, axis=0)
            residual -= centre
        else:
            r = resp.dense[k, :]  # type: ignore[index]
            residual = wide - centre
        residual *= xp.astype(xp.sqrt(r), wide.dtype)[:, None]
        return residual.T @ residual

    def expected(
        self, density: FullDensity, block: Block, latent: Array | Terms | WithMissing, resp: Array
    ) -> Array:
        """(n, D) the posterior mean of x, which equals x where it is observed."""
        if not isinstance(latent, WithMissing):
            return block.X
        return gaussian_missing.expected(density, block, latent, resp)

    def moments_given(
        self, density: FullDensity, block: Block, latent: WithMissing, k: int
    ) -> tuple[Array, Array]:
        """Means and variances (n, D) of missing entries given the observed ones and component k."""
        return gaussian_missing.moments_given(density, latent, k)

    def draw(
        self, density: FullDensity, block: Block, latent: WithMissing, labels: Array, rng: np.random.Generator
    ) -> Floats:
        """(n, D) rows with missing entries sampled given the observed ones and the component."""
        return gaussian_missing.draw(density, latent, labels, rng)

    def stats(self, density: FullDensity, sums: FullStats) -> FullStats:
        """The sums are already the statistics."""
        return sums

    def m_step(self, stats: FullStats, params: FullParams) -> FullParams:
        """Weighted means and covariances (Sigma >= diag(floor)); an empty component is unchanged."""
        xp = namespace(stats.weight)
        filled = has_rows(stats.weight)
        n = xp.where(filled, stats.weight, 1.0)[:, None]
        precision = stats.weight if stats.precision is None else stats.precision
        share = xp.where(filled, precision, 1.0)[:, None]  # n, without precisions
        means = xp.where(filled[:, None], stats.sum_x / share, params.means)
        outer = means[:, :, None] * means[:, None, :]
        if self.shared:
            total = xp.sum(stats.weight)
            between = xp.sum(outer * precision[:, None, None], axis=0, keepdims=True)
            covariances = (stats.sum_xx - between) / total
            if self.prior is not None:
                K = stats.weight.shape[0]
                covariances = self.prior.variances(covariances * total, total, K)
        else:
            covariances = stats.sum_xx / n[:, :, None] - (share / n)[:, :, None] * outer
            if self.prior is not None:
                covariances = self.prior.variances(covariances * n[:, :, None], n[:, :, None])
            covariances = xp.where(filled[:, None, None], covariances, params.covariances)
        return FullParams(means, self.bounded(covariances))

    def log_priors(self, params: FullParams) -> Array:
        """ln p of the covariances; a shared one has the pseudo-rows of all components."""
        if self.prior is None:
            return zeros(params.means.shape[:1], params.means)
        together = params.means.shape[0] if self.shared else 1
        return self.prior.log_covariances(together, params.inverse_factors)

    def implied_stats(self, params: FullParams, weights: Array) -> FullStats:
        """Expected statistics under these parameters: the M-step maps them back to the parameters."""
        xp = namespace(weights)
        mu = params.means
        second = weights[:, None, None] * (params.covariances + mu[:, :, None] * mu[:, None, :])
        if self.shared:
            second = xp.sum(second, axis=0, keepdims=True)
        return FullStats(weights, weights[:, None] * mu, second)

    def bounded(self, covariances: Array) -> Array:
        """The covariances bounded below by the floor; without a floor a singular one is an error."""
        xp = namespace(covariances)
        covariances = symmetric(covariances)
        least = xp.where(self.floor < SMALLEST_VARIANCE, SMALLEST_VARIANCE, self.floor)
        if is_positive_definite(covariances - eye(least.shape[0], least) * least):
            return covariances
        if bool(xp.any(least > self.floor)):
            raise ValueError(
                f"a covariance matrix became singular, within {SMALLEST_VARIANCE:g} of the data's variance; "
                "set noise_floor above that, or use fewer components or a simpler covariance_type"
            )
        return clamp_spectrum(covariances, self.floor)

    @property
    def separate(self) -> bool:
        return not self.shared

    def rounding(self, density: FullDensity) -> float:
        return self.roundings(density, 1)[0]

    def roundings(self, density: FullDensity, n_runs: int) -> list[float]:
        """Rounding errors of a row's log density: a sum of squares of products with U."""
        xp = namespace(density.factors)
        squares = xp.reshape(xp.sum(density.factors**2, axis=(1, 2)), (n_runs, -1))
        eps = float(xp.finfo(density.whitening.dtype).eps)
        return [eps * float(size) for size in to_numpy(xp.max(squares, axis=1))]

    def clamped(self, params: FullParams) -> FullParams:
        """Starting values projected to the feasible region of the floor."""
        return FullParams(params.means, self.bounded(params.covariances))

    def coordinates(self, params: FullParams) -> tuple[Array, ...]:
        """Means and the Cholesky factors of the covariances, with log diagonals."""
        xp = namespace(params.means)
        C = params.cholesky
        diagonal = eye(C.shape[-1], C) > 0
        # the factor with its diagonal replaced by its logarithm; zeros above it stay zero
        return params.means, xp.where(diagonal, xp.log(xp.where(diagonal, C, 1.0)), C)

    def from_coordinates(self, *arrays: Array) -> FullParams:
        means, C = arrays
        xp = namespace(C)
        diagonal = eye(C.shape[-1], C) > 0
        C = xp.where(diagonal, xp.exp(xp.clip(C, max=_LARGEST_LOG)), C)
        return self.clamped(FullParams(means, C @ transpose(C)))

    def moved(self, params: FullParams, weights: Array, shift: Array, scale: Array) -> FullParams:
        """The parameters of shift + scale * x."""
        return FullParams(shift + scale * params.means, params.covariances * scale[:, None] * scale[None, :])

    def marginal_variances(self, params: FullParams) -> Array:
        """(K, D) or (1, D): the variance of every feature."""
        return diagonals(params.covariances)

    def from_partition(self, X: Array, weight: Array, labels: Array, means: Array) -> FullParams:
        """Means and covariances of the parts; those of small parts are shrunk towards the pooled one."""
        xp, (K, D) = namespace(X), means.shape
        residual = (X - xp.take(means, labels, axis=0)) * xp.sqrt(weight)[:, None]
        pooled = residual.T @ residual / xp.sum(weight)
        if self.shared:
            return self.clamped(FullParams(means, pooled[None, :, :]))
        labels = to_numpy(labels)
        sizes = like(np.bincount(labels, to_numpy(weight), K), X)[:, None, None]
        scatter: dict[int, Array] = {}
        for some, rows in rows_of_parts(residual, labels, range(K)):
            scatter.update(zip(some, transpose(rows) @ rows, strict=True))
        total = xp.stack([scatter[k] for k in range(K)]) + (D + 1) * pooled
        return self.clamped(FullParams(means, total / (sizes + D + 1)))

    def sample(self, params: FullParams, labels: Array, rng: np.random.Generator) -> Floats:
        K, D = params.means.shape
        C = np.broadcast_to(np.linalg.cholesky(params.covariances), (K, D, D))
        X: Floats = params.means[labels]
        for k in range(K):
            own = labels == k
            X[own] += rng.standard_normal((int(own.sum()), D)) @ C[k].T
        return X

    def n_parameters(self, K: int, D: int) -> int:
        return K * D + (1 if self.shared else K) * D * (D + 1) // 2

    def least_rows(self, D: int) -> int:
        return super().least_rows(D) if self.shared else D + 1

    def at_floor(self, params: FullParams) -> Array:
        """By the eigenvalues relative to the floor."""
        xp = namespace(self.floor)
        unit = xp.sqrt(xp.where(self.floor > 0, self.floor, SMALLEST_VARIANCE))
        values = xp.linalg.eigvalsh(symmetric(params.covariances / (unit[:, None] * unit)))
        return xp.broadcast_to(values <= 1.0 + NEAR_FLOOR, params.means.shape)


def _with_products(X: Array) -> Array:
    """(D + D (D + 1) / 2, n): the features, then their products, packed."""
    xp, columns = namespace(X), X.T
    return xp.concat([columns, *(columns[j:, :] * columns[j, :] for j in range(X.shape[1]))])


def _components_at_once(X: Array, K: int) -> int:
    """How many components are multiplied at once: all or one in main memory, as many as fit elsewhere."""
    if on_device(X):
        return max(2, min(K, _AT_ONCE_ON_DEVICE // int(X.shape[0] * X.shape[1])))
    return K if K * X.shape[0] * X.shape[1] <= _AT_ONCE else 1


def _about_origin(weight: Array, mu: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """Sums of r x and r x x', from those of r (x - mu) and r (x - mu)(x - mu)'."""
    total = first + weight[:, None] * mu
    return total, second + first[:, :, None] * mu[:, None, :] + mu[:, :, None] * total[:, None, :]
