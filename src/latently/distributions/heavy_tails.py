"""Components with heavy tails: multivariate t instead of Gaussian, for any family of Gaussians.

    u | k ~ Gamma(nu_k / 2, rate nu_k / 2)    x | u, k ~ N(mu_k, Sigma_k / u)   x | k ~ t(mu_k, Sigma_k, nu_k)

n rows, D features, K components, nu_k degrees of freedom. u is the precision of a row: rows far away have a
small one and count little. With factors, z | u ~ N(0, I / u) and x | z, u ~ N(mu + L z, Psi / u). d is the
number of observed entries of a row and delta = (x - mu)_o' Sigma_oo^-1 (x - mu)_o, both of them only; then

    ln p(x_o | k) = -1/2 ln|2 pi Sigma_oo| + ln G((nu + d) / 2) - ln G(nu / 2) - d/2 ln(nu / 2)
                    - (nu + d) / 2 ln(1 + delta / nu)
    u | x_o, k ~ Gamma((nu + d) / 2, rate (nu + delta) / 2),    E[u] = (nu + d) / (nu + delta).

The Gaussian family gives delta, and the posterior means m of whatever is latent, which do not depend on u.
Their covariance is V / u, so E[u z z'] = V + E[u] m m': sums are those of the family with r E[u] in place of
r, but V is weighted with r (`Responsibilities.plain`). The M-step of the family takes the sums of r and of r
E[u] apart, and

    nu maximises  -ln G(nu / 2) + nu/2 (ln(nu / 2) + c),    c the mean of E[ln u] - E[u], weighted with r.

An exact EM step, at the cost of the Gaussian one and O(K) per row. Peel & McLachlan (2000), Statistics and
Computing 10; McLachlan, Bean & Ben-Tovim Jones (2007), Computational Statistics & Data Analysis 51. Formulas:
docs/robust.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from latently.backend.namespace import Array, Floats, like, namespace, to_numpy
from latently.core.block import Block
from latently.distributions.family import Family
from latently.distributions.prior import Prior
from latently.distributions.responsibilities import Responsibilities

FEWEST_DEGREES, MOST_DEGREES = 1.0, 1e4  # bounds of the degrees of freedom; with the most, tails are normal
_START = 10.0
# Degrees of freedom below which the variance, infinite for two, is taken to be that for so many.
_WIDEST = 3.0
_NEWTON_STEPS = 6
_EMPTY = 1e-250  # precision of a component below which quotients of sums have no digits


@dataclass(frozen=True)
class HeavyParams:
    gaussian: Any  # parameters of the Gaussian family: of mu and Sigma
    degrees: Array  # (K,): nu

    @property
    def means(self) -> Array:
        return self.gaussian.means


@dataclass(frozen=True)
class HeavyDensity:
    gaussian: Any  # the density of the Gaussian family, without log weights
    degrees: Array  # (K,): nu
    constants: (
        Array  # (K,): terms of the log density of complete rows that only depend on nu, and log weights
    )
    log_weights: Array  # (K,): terms a mixture added to the constants
    rate: Array  # (K,): E[ln u] of a complete row, plus ln((nu + delta) / 2)

    @cached_property
    def by_observed(self) -> tuple[Array, Array]:
        """The constants without log weights, and the rates, of rows with 0, 1, .. D observed entries."""
        D = self.gaussian.means.shape[1]
        return tuple(like(of, self.degrees) for of in _of_degrees(self.degrees, np.arange(D + 1.0)))


@dataclass(frozen=True)
class Distances:
    """What `sums` reuses of the densities of a block."""

    gaussian: Any  # of the Gaussian family
    distance: Array  # (K, n): delta
    n_observed: Array | float  # (n,), or D for complete rows
    rate: Array  # (K, n), or (K, 1) for complete rows


@dataclass(frozen=True)
class HeavySums:
    weight: Array  # (K,): sum of r
    gaussian: Any  # sums, then statistics, of the Gaussian family, weighted with r u
    tail: Array  # (K,): sum of r (E[ln u] - E[u])


@dataclass(frozen=True)
class HeavyTailed(Family):
    """The family; `estimated` says whether the degrees of freedom are estimated or stay as they are."""

    gaussian: Any
    estimated: bool = True

    @property
    def has_floor(self) -> bool:  # type: ignore[override]
        return bool(self.gaussian.has_floor)

    @property
    def floor(self) -> Any:
        return self.gaussian.floor

    @property
    def isotropic(self) -> bool:  # type: ignore[override]
        return bool(self.gaussian.isotropic)

    @property
    def prior(self) -> Prior | None:  # type: ignore[override]
        return self.gaussian.prior  # type: ignore[no-any-return]

    def with_prior(self, prior: Prior | None) -> HeavyTailed:
        """Of the scale matrices; the M-step of the Gaussian family knows it."""
        return replace(self, gaussian=self.gaussian.with_prior(prior))

    def log_prior(self, params: HeavyParams) -> float:
        return float(self.gaussian.log_prior(params.gaussian))

    # -- densities ------------------------------------------------------------------------------------

    def prepare(self, params: HeavyParams, dtype: str = "float64") -> HeavyDensity:
        gaussian = self.gaussian.prepare(params.gaussian, dtype)
        nu = params.degrees
        D = params.means.shape[1]
        constants, rate = (like(of[:, 0], nu) for of in _of_degrees(nu, np.array([float(D)])))
        return HeavyDensity(gaussian, nu, constants, namespace(nu).zeros_like(nu), rate)

    def evaluate(
        self, density: HeavyDensity, block: Block, *, rough: bool = False
    ) -> tuple[Array, Distances]:
        """ln t(x; mu_k, Sigma_k, nu_k) plus terms of the mixture (K, n); never rough: tails matter."""
        xp = namespace(block.X)
        log_normal, latent = self.gaussian.evaluate(density.gaussian, block)
        normalisers = self.gaussian.normalisers(density.gaussian, block, latent)
        distance = xp.clip(2.0 * (normalisers - log_normal), min=0.0)
        if block.observed is None:
            size: Any = float(block.X.shape[1])
            constants, rate = density.constants[:, None], density.rate[:, None]
        else:
            counts = xp.sum(xp.astype(block.observed, xp.int64), axis=1)
            size = xp.astype(counts, xp.float64)
            constants, rate = (xp.take(of, counts, axis=1) for of in density.by_observed)
            constants = constants + density.log_weights[:, None]
        nu = density.degrees[:, None]
        log_prob = normalisers + constants - 0.5 * (nu + size) * xp.log1p(distance / nu)
        return log_prob, Distances(latent, distance, size, rate)

    def sample(self, params: HeavyParams, labels: Array, rng: np.random.Generator) -> Floats:
        """A Gaussian row, with its distance from the mean divided by the root of a random precision."""
        rows = self.gaussian.sample(params.gaussian, labels, rng)
        half = 0.5 * params.degrees[labels]
        u = rng.gamma(half, 1.0 / half)
        means = params.means[labels]
        drawn: Floats = means + (rows - means) / np.sqrt(u)[:, None]
        return drawn

    def marginal_variances(self, params: HeavyParams) -> Array:
        """(K, D): Sigma_dd nu / (nu - 2); finite for any nu, because frames depend on it."""
        nu = namespace(params.degrees).clip(params.degrees, min=_WIDEST)[:, None]
        return self.gaussian.marginal_variances(params.gaussian) * (nu / (nu - 2.0))

    def n_parameters(self, K: int, D: int) -> int:
        return int(self.gaussian.n_parameters(K, D)) + (K if self.estimated else 0)

    def least_rows(self, D: int) -> int:
        return int(self.gaussian.least_rows(D))

    def at_floor(self, params: HeavyParams) -> Array:
        return self.gaussian.at_floor(params.gaussian)

    # -- EM -------------------------------------------------------------------------------------------

    def sums(
        self, density: HeavyDensity, block: Block, latent: Distances, resp: Responsibilities
    ) -> HeavySums:
        xp = namespace(block.X)
        beyond = density.degrees[:, None] + latent.distance
        u = (density.degrees[:, None] + latent.n_observed) / beyond
        tail = resp.scaled(latent.rate - xp.log(0.5 * beyond) - u).weight
        by_precision = replace(resp.scaled(u), plain=resp)
        sums = self.gaussian.sums(density.gaussian, block, latent.gaussian, by_precision)
        return HeavySums(resp.weight + 0.0, sums, tail)  # a copy: sums of blocks are added in place

    def stats(self, density: HeavyDensity, sums: HeavySums) -> HeavySums:
        gaussian = self.gaussian.stats(density.gaussian, sums.gaussian)
        return replace(sums, gaussian=replace(gaussian, weight=sums.weight, precision=gaussian.weight))

    def m_step(self, stats: HeavySums, params: HeavyParams) -> HeavyParams:
        """The maximiser over all parameters; an empty component is unchanged."""
        xp = namespace(stats.weight)
        filled = stats.gaussian.precision > _EMPTY
        own = replace(stats.gaussian, weight=xp.where(filled, stats.weight, 0.0))
        gaussian = self.gaussian.m_step(own, params.gaussian)
        if not self.estimated:
            return replace(params, gaussian=gaussian)
        mean = to_numpy(stats.tail / xp.where(filled, stats.weight, 1.0))
        return HeavyParams(gaussian, xp.where(filled, like(degrees_for(mean), stats.tail), params.degrees))

    def implied_stats(self, params: HeavyParams, weights: Array) -> HeavySums:
        """Expected statistics under these parameters; the expectation of u is one."""
        half = 0.5 * to_numpy(params.degrees)
        tail = weights * like(special.digamma(half) - np.log(half) - 1.0, weights)
        gaussian = self.gaussian.implied_stats(params.gaussian, weights)
        return HeavySums(weights, replace(gaussian, precision=weights + 0.0), tail)

    def rounding(self, density: HeavyDensity) -> float:
        """That of delta, times the slope of the log density in it at most, relative to the Gaussian's."""
        D = int(density.gaussian.means.shape[1])
        slope = 1.0 + D / float(namespace(density.degrees).min(density.degrees))
        return slope * float(self.gaussian.rounding(density.gaussian))

    def from_partition(self, X: Floats, weight: Floats, labels: Array, means: Floats) -> HeavyParams:
        """The Gaussian start, with rather heavy tails."""
        gaussian = self.gaussian.from_partition(X, weight, labels, means)
        return HeavyParams(gaussian, np.full(len(means), _START))

    def canonical(self, params: HeavyParams) -> HeavyParams:
        return replace(params, gaussian=self.gaussian.canonical(params.gaussian))

    def clamped(self, params: HeavyParams) -> HeavyParams:
        return replace(params, gaussian=self.gaussian.clamped(params.gaussian))

    def most_per_row(self, K: int) -> float:
        return float(self.gaussian.most_per_row(K))

    def floats_per_row(self, K: int, D: int, missing: bool) -> int:
        return int(self.gaussian.floats_per_row(K, D, missing)) + 4 * K

    def moved(self, params: HeavyParams, weights: Array, shift: Array, scale: Array) -> HeavyParams:
        return replace(params, gaussian=self.gaussian.moved(params.gaussian, weights, shift, scale))

    def to_vector(self, params: HeavyParams) -> Array:
        """The logarithms of the degrees of freedom, then the vector of the Gaussian family."""
        xp = namespace(params.degrees)
        return xp.concat([xp.log(params.degrees), self.gaussian.to_vector(params.gaussian)])

    def from_vector(self, vector: Array, like: HeavyParams) -> HeavyParams:
        xp = namespace(vector)
        K = like.degrees.shape[0]
        degrees = like.degrees
        if self.estimated:
            low, high = (float(np.log(bound)) for bound in (FEWEST_DEGREES, MOST_DEGREES))
            degrees = xp.exp(xp.clip(vector[:K], min=low, max=high))
        return HeavyParams(self.gaussian.from_vector(vector[K:], like.gaussian), degrees)

    # -- what is latent -------------------------------------------------------------------------------

    def factor_means(self, density: HeavyDensity, latent: Distances) -> Array:
        """E[z | x, k] (n, K, q), which does not depend on the precision of the row."""
        return self.gaussian.factor_means(density.gaussian, latent.gaussian)

    def factor_covariances(self, density: HeavyDensity, latent: Distances, n_rows: int) -> Array:
        """Covariances of z given x and k (n, K, q, q): V E[1 / u], infinite where nu + d is at most two."""
        V = self.gaussian.factor_covariances(density.gaussian, latent.gaussian, n_rows)
        return _stretched(V, _expected_variance(density, latent).T[:, :, None, None])

    def expected(self, density: HeavyDensity, block: Block, latent: Distances, resp: Array) -> Array:
        """(n, D) as in the Gaussian family: conditional means are the same."""
        return self.gaussian.expected(density.gaussian, block, latent.gaussian, resp)

    def moments_given(
        self, density: HeavyDensity, block: Block, latent: Distances, k: int
    ) -> tuple[Array, Array]:
        """As in the Gaussian family, with variances times E[1 / u]."""
        mean, variance = self.gaussian.moments_given(density.gaussian, block, latent.gaussian, k)
        return mean, _stretched(variance, _expected_variance(density, latent)[k, :, None])

    def draw(
        self, density: HeavyDensity, block: Block, latent: Distances, labels: Array, rng: np.random.Generator
    ) -> Floats:
        """A Gaussian draw, with its distance from the conditional mean divided by the root of a precision."""
        rows = self.gaussian.draw(density.gaussian, block, latent.gaussian, labels, rng)
        own = np.eye(density.degrees.shape[0])[labels]
        means = to_numpy(self.expected(density, block, latent, like(own, block.X)))
        nu = to_numpy(density.degrees)[labels]
        distance = to_numpy(latent.distance)[labels, np.arange(len(labels))]
        shape = 0.5 * (nu + to_numpy(latent.n_observed))
        u = rng.gamma(shape, 2.0 / (nu + distance))
        drawn: Floats = means + (rows - means) / np.sqrt(u)[:, None]
        return drawn


def degrees_for(mean: Floats) -> Floats:
    """The degrees of freedom that maximise -ln G(h) + h (ln h + c), h = nu / 2, within their bounds.

    They solve ln h - digamma(h) = -1 - c. The left falls from infinity to zero, so the maximum within bounds
    is the solution moved to the nearest bound. Newton's steps in 1 / h from an approximation with a relative
    error of 1.5 % (Minka, 2002).
    """
    target = np.maximum(-1.0 - mean, np.finfo(float).tiny)
    target = np.clip(target, _gap(0.5 * MOST_DEGREES), _gap(0.5 * FEWEST_DEGREES))
    h = (3.0 - target + np.sqrt((target - 3.0) ** 2 + 24.0 * target)) / (12.0 * target)
    for _ in range(_NEWTON_STEPS):
        slope = 1.0 / h - special.polygamma(1, h)
        h = 1.0 / (1.0 / h + (_gap(h) - target) / (h**2 * slope))
        h = np.clip(h, 0.5 * FEWEST_DEGREES, 0.5 * MOST_DEGREES)
    degrees: Floats = 2.0 * h
    return degrees


def _stretched(variance: Array, factor: Array) -> Array:
    """The product, in which zero times infinity is zero."""
    xp = namespace(variance)
    none = variance == 0.0
    return xp.where(none, 0.0, xp.where(none, 1.0, variance) * factor)


def _expected_variance(density: HeavyDensity, latent: Distances) -> Array:
    """(K, n): E[1 / u | x], infinite where nu + d is at most two."""
    xp = namespace(density.degrees)
    nu = density.degrees[:, None]
    left = nu + latent.n_observed - 2.0
    finite = left > 0
    return xp.where(finite, (nu + latent.distance) / xp.where(finite, left, 1.0), xp.inf)


def _gap(h: Any) -> Any:
    return np.log(h) - special.digamma(h)


def _of_degrees(degrees: Array, n_observed: Floats) -> tuple[Floats, Floats]:
    """Terms (K, m) of the log density for m numbers of observed entries, and of E[ln u] without delta."""
    half = 0.5 * to_numpy(degrees)[:, None]
    both = half + 0.5 * n_observed
    constants = special.gammaln(both) - special.gammaln(half) - 0.5 * n_observed * np.log(half)
    return constants, special.digamma(both)
