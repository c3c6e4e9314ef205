"""Variational Bayes for mixtures of Gaussians: a posterior over parameters in place of their best values.

    pi ~ Dirichlet(a, .., a), or pi_k = v_k prod_{j<k} (1 - v_j) with v_k ~ Beta(1, a), a Dirichlet process
    Lambda_k ~ Wishart(W_0, nu_0)    mu_k | Lambda_k ~ N(m_0, (b_0 Lambda_k)^-1)
    x | k ~ N(mu_k, Lambda_k^-1)

n rows, D features, K components at most. The posterior factorises into q(z) q(pi) prod_k q(mu_k, Lambda_k),
of the same families, so that everything follows from the counts N_k, the sums of responsibilities, and from
means xbar_k and scatters S_k of the rows:

    b_k = b_0 + N_k    nu_k = nu_0 + N_k    m_k = (b_0 m_0 + N_k xbar_k) / b_k
    W_k^-1 = W_0^-1 + S_k + b_0 N_k / b_k (xbar_k - m_0)(xbar_k - m_0)'

The prior is worth r rows about m_0, b_0 = r and nu_0 = D - 1 + r, and expects the precision S^-1 with
W_0^-1 = nu_0 S. In the E-step a component is a Gaussian with the mean m_k and the covariance
C_k = (nu_k W_k)^-1, times a constant,

    E[ln N(x | k)] = ln N(x; m_k, C_k) + 1/2 sum_i psi((nu_k + 1 - i) / 2) - D/2 ln(nu_k / 2) - D / (2 b_k),

also of the observed entries of a row alone, so that missing ones need nothing else. With the best q(z) the
bound of ln p(X) is  sum_n ln sum_k exp(E[ln pi_k] + E[ln N(x_n | k)]) - KL(q || p) of all parameters, which
the engine sees as log-likelihood plus log prior; no step lowers it. Sticks are in the order of the counts,
the best there is for a Dirichlet process; the bound is that of the process without truncation.

Bishop (2006), Pattern Recognition and Machine Learning, 10.2; Blei & Jordan (2006), Bayesian Analysis 1;
Kurihara, Welling & Teh (2007), IJCAI. A new row has the density of a mixture of t distributions, which
`PredictiveMixture` is. Formulas: docs/bayesian_mixture.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import betaln, digamma, gammaln, multigammaln

from latently.backend.linalg import log_determinant, symmetric, transpose
from latently.backend.namespace import Array, Floats, like, namespace, to_numpy
from latently.core.tree import changed, mapped
from latently.distributions.gaussian import FullDensity, FullGaussian, FullParams, FullStats
from latently.distributions.heavy_tails import HeavyParams
from latently.distributions.mixture import Mixture, MixtureParams, MixtureStats

_LEAST_COUNT = 1e-10  # whose logarithm is a coordinate


@dataclass(frozen=True)
class PosteriorParams:
    """What q(mu, Lambda) of every component depends on, beside the prior."""

    means: Array  # (K, D): m
    covariances: Array  # (K, D, D): (nu W)^-1, the inverse of the expected precision
    counts: Array  # (K,): N, rows of each component

    @cached_property
    def gaussian(self) -> FullParams:
        return FullParams(self.means, self.covariances)


@dataclass(frozen=True)
class ConjugatePrior:
    """Pseudo-rows of every component."""

    rows: float  # r
    mean: Array  # (D,)
    covariance: Array  # (D, D): S, the inverse of the expected precision

    @property
    def degrees(self) -> float:
        """nu_0"""
        return float(self.mean.shape[0]) - 1.0 + self.rows

    @cached_property
    def cholesky(self) -> Array:
        return namespace(self.covariance).linalg.cholesky(self.covariance)


@dataclass(frozen=True)
class PosteriorGaussian(FullGaussian):
    """The family. Its log densities are expectations over q, its M-step gives q, and its log prior is -KL."""

    prior: ConjugatePrior | None = None  # type: ignore[assignment]

    def prepare(self, params: PosteriorParams, dtype: str = "float64") -> FullDensity:  # type: ignore[override]
        density = super().prepare(params.gaussian, dtype)
        return changed(density, constants=density.constants + self.expectations(params))

    def expectations(self, params: PosteriorParams) -> Array:
        """(K,) E[ln N(x | k)] - ln N(x; m_k, S_k)."""
        b, nu, D = self._degrees(params)
        means = np.sum(digamma(0.5 * (nu[:, None] - np.arange(D))), axis=1)
        return like(0.5 * (means - D * np.log(0.5 * nu) - D / b), params.means)

    def _degrees(self, params: PosteriorParams) -> tuple[Floats, Floats, int]:
        """b (K,), nu (K,) and D."""
        assert self.prior is not None
        counts, D = to_numpy(params.counts), int(params.means.shape[1])
        return self.prior.rows + counts, D - 1 + self.prior.rows + counts, D

    def m_step(self, stats: FullStats, params: PosteriorParams) -> PosteriorParams:  # type: ignore[override]
        """q(mu, Lambda); that of an empty component is the prior."""
        assert self.prior is not None
        xp, prior = namespace(stats.weight), self.prior
        n, D = stats.weight, stats.sum_x.shape[1]
        share = xp.where(n > 0, n, 1.0)[:, None]
        mean = stats.sum_x / share
        b = prior.rows + n
        means = (prior.rows * prior.mean + stats.sum_x) / b[:, None]
        apart = mean - prior.mean
        scatter = stats.sum_xx - n[:, None, None] * mean[:, :, None] * mean[:, None, :]
        between = (prior.rows * n / b)[:, None, None] * apart[:, :, None] * apart[:, None, :]
        inverse_W = prior.degrees * prior.covariance + scatter + between
        nu = (D - 1) + b
        return PosteriorParams(means, symmetric(inverse_W) / nu[:, None, None], n + 0.0)

    def log_priors(self, params: PosteriorParams) -> Array:  # type: ignore[override]
        """(K,) -KL(q(mu_k, Lambda_k) || p)."""
        assert self.prior is not None
        b, nu, D = self._degrees(params)
        b_0, xp = self.prior.rows, namespace(params.means)
        nu_0 = self.prior.degrees
        U = params.gaussian.inverse_factors  # U U' = nu W
        apart = (params.means - self.prior.mean)[:, None, :] @ U
        distance = to_numpy(xp.sum(apart**2, axis=(1, 2)))
        inside = transpose(U) @ self.prior.cholesky
        trace = nu_0 * to_numpy(xp.sum(inside**2, axis=(1, 2)))  # nu tr(W_0^-1 W)
        # ln |W_0| - ln |W|
        log_ratio = to_numpy(log_determinant(params.gaussian.cholesky)) + D * np.log(nu)
        log_ratio = log_ratio - float(log_determinant(self.prior.cholesky)) - D * math.log(nu_0)
        of_mean = 0.5 * (D * (b_0 / b - 1.0 - np.log(b_0 / b)) + b_0 * distance)
        expected = np.sum(digamma(0.5 * (nu[:, None] - np.arange(D))), axis=1)
        of_precision = (
            0.5 * (nu - nu_0) * expected
            - 0.5 * nu * D
            + 0.5 * trace
            + 0.5 * nu_0 * log_ratio
            - multigammaln_of(0.5 * nu, D)
            + float(multigammaln(0.5 * nu_0, D))
        )
        return like(-(of_mean + of_precision), params.means)

    def implied_stats(self, params: PosteriorParams, weights: Array) -> FullStats:  # type: ignore[override]
        """The statistics whose M-step gives these parameters, for all rows that were counted."""
        assert self.prior is not None
        prior, n, D = self.prior, params.counts, params.means.shape[1]
        b = prior.rows + n
        sum_x = b[:, None] * params.means - prior.rows * prior.mean
        second = (D - 1 + b)[:, None, None] * params.covariances - prior.degrees * prior.covariance
        m = params.means
        second = second + b[:, None, None] * m[:, :, None] * m[:, None, :]
        return FullStats(n, sum_x, second - prior.rows * prior.mean[:, None] * prior.mean[None, :])

    def predictive(self, params: PosteriorParams, rows: float) -> HeavyParams:
        """x | k ~ t(m_k, (1 + b_k) nu_k / (b_k (nu_k + 1 - D)) C_k, nu_k + 1 - D); `rows` of the prior."""
        b, D = rows + params.counts, params.means.shape[1]
        wider = (1.0 + b) * (b + (D - 1)) / b**2
        return HeavyParams(FullParams(params.means, params.covariances * wider[:, None, None]), b)

    @property
    def separate(self) -> bool:
        return False

    def least_rows(self, D: int) -> int:
        return 0  # the prior determines all else

    def clamped(self, params: PosteriorParams) -> PosteriorParams:  # type: ignore[override]
        return params

    def coordinates(self, params: PosteriorParams) -> tuple[Array, ...]:  # type: ignore[override]
        """Any of them is a posterior, if not the best for its counts."""
        xp = namespace(params.means)
        return *super().coordinates(params.gaussian), xp.log(xp.clip(params.counts, min=_LEAST_COUNT))

    def from_coordinates(self, *arrays: Array) -> PosteriorParams:  # type: ignore[override]
        *gaussian, log_counts = arrays
        free = FullGaussian(0.0 * self.floor).from_coordinates(*gaussian)
        return PosteriorParams(free.means, free.covariances, namespace(log_counts).exp(log_counts))

    def moved(  # type: ignore[override]
        self, params: PosteriorParams, weights: Array, shift: Array, scale: Array
    ) -> PosteriorParams:
        moved = super().moved(params.gaussian, weights, shift, scale)
        return PosteriorParams(moved.means, moved.covariances, params.counts)

    def from_partition(self, X: Array, weight: Array, labels: Array, means: Array) -> PosteriorParams:  # type: ignore[override]
        """The posterior for rows that belong to their parts."""
        xp, K = namespace(X), means.shape[0]
        own = xp.stack([xp.where(labels == k, weight, 0.0) for k in range(K)])
        second = xp.stack([(X * own[k, :, None]).T @ X for k in range(K)])
        return self.m_step(FullStats(xp.sum(own, axis=1), own @ X, second), None)  # type: ignore[arg-type]


@dataclass(frozen=True)
class VariationalMixture(Mixture):
    """The kernel. The weights among its parameters are the expected ones, which follow from the counts."""

    process: bool = True  # a Dirichlet process; else a Dirichlet distribution
    concentration: float = 1.0  # a
    multiple: float = 1.0  # of the statistics of an M-step, in rows
    may_leave_empty = True

    def prepare(self, params: MixtureParams) -> Any:
        density = self.family.prepare(params.components, self.dtype)
        log_weights = like(self._weights(params.components.counts)[0], params.weights)
        return changed(
            density,
            constants=density.constants + log_weights,
            log_weights=density.log_weights + log_weights,  # where the family has terms of its own
        )

    def m_step(self, stats: MixtureStats, params: MixtureParams) -> MixtureParams:
        of_rows = stats.components
        if self.multiple != 1.0:
            of_rows = mapped(lambda field: field * self.multiple, of_rows)
        return self.with_weights(self.family.m_step(of_rows, params.components))

    def with_weights(self, components: PosteriorParams) -> MixtureParams:
        """Their expectations, shares of what the components that there are have together."""
        expected = self._weights(components.counts)[1]
        return MixtureParams(like(expected / expected.sum(), components.counts), components)

    def log_prior(self, params: MixtureParams) -> float:
        return float(self.family.log_prior(params.components)) - self._weights(params.components.counts)[2]

    def _weights(self, counts: Array) -> tuple[Floats, Floats, float]:
        """E[ln pi] (K,), E[pi] (K,), and KL(q(pi) || p)."""
        N, a = to_numpy(counts), self.concentration
        if not self.process:
            alpha, K = a + N, len(N)
            logs = digamma(alpha) - digamma(alpha.sum())
            same = gammaln(alpha.sum()) - gammaln(alpha).sum() - gammaln(K * a) + K * gammaln(a)
            return logs, alpha / alpha.sum(), float(same + N @ logs)
        order = np.argsort(-N, kind="stable")
        n = N[order]
        later = np.cumsum(n[::-1])[::-1] - n
        first, second = 1.0 + n, a + later
        log_own, log_rest = (digamma(of) - digamma(first + second) for of in (first, second))
        logs, means = np.empty_like(N), np.empty_like(N)
        logs[order] = log_own + np.concatenate([[0.0], np.cumsum(log_rest)[:-1]])
        rest = np.cumprod(second / (first + second))
        means[order] = first / (first + second) * np.concatenate([[1.0], rest[:-1]])
        divergence = betaln(1.0, a) - betaln(first, second) + n * log_own + later * log_rest
        return logs, means, float(divergence.sum())

    def of_unit_weight(self, weight: float) -> VariationalMixture:
        return replace(self, multiple=weight)

    def implied_stats(self, params: MixtureParams) -> MixtureStats:
        counts = params.components.counts
        total = namespace(counts).sum(counts)
        components = mapped(lambda field: field / total, self.family.implied_stats(params.components, counts))
        one = namespace(counts).sum(components.weight)
        return MixtureStats(0.0 * one, one, components)

    def to_vector(self, params: MixtureParams) -> Array:
        return self.family.to_vector(params.components)

    def from_vector(self, vector: Array, like: MixtureParams) -> MixtureParams:
        """With as many rows in all: extrapolated logarithms of counts may be of any size."""
        found, xp = self.family.from_vector(vector, like.components), namespace(vector)
        counts = found.counts / xp.max(found.counts)
        total = xp.sum(like.components.counts)
        return self.with_weights(changed(found, counts=counts * (total / xp.sum(counts))))

    def from_partition(
        self, X: Array, weight: Array, labels: Array, means: Array, allowed: Array | None = None
    ) -> MixtureParams:
        return self.with_weights(self.family.from_partition(X, weight, labels, means))


@dataclass(frozen=True)
class PredictiveMixture(Mixture):
    """The density of a new row, averaged over the posterior; its parameters are those of the posterior."""

    family_of_q: Any = None
    rows: float = 1.0  # of the prior

    def predictive(self, params: MixtureParams) -> MixtureParams:
        """The mixture that it is."""
        return MixtureParams(params.weights, self.family_of_q.predictive(params.components, self.rows))

    def prepare(self, params: MixtureParams) -> Any:
        return super().prepare(self.predictive(params))

    def moved(self, params: MixtureParams, shift: Array, scale: Array) -> MixtureParams:
        moved = self.family_of_q.moved(params.components, params.weights, shift, scale)
        return MixtureParams(params.weights, moved)

    def sample(self, params: MixtureParams, n_samples: int, rng: np.random.Generator) -> tuple[Floats, Array]:
        return super().sample(self.predictive(params), n_samples, rng)

    def moments(self, params: MixtureParams) -> tuple[Array, Array]:
        return super().moments(self.predictive(params))


def multigammaln_of(a: Floats, D: int) -> Floats:
    """(K,) the logarithm of the multivariate gamma function."""
    terms: Floats = np.sum(gammaln(a[:, None] - 0.5 * np.arange(D)), axis=1)
    return terms + 0.25 * D * (D - 1) * math.log(math.pi)
