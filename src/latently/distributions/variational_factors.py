"""Variational Bayes for mixtures of factor analysers: a posterior over loadings, means and noise.

    x | z, k ~ N(mu_k + L_k z, diag(1 / tau_k))        z ~ N(0, I_q)        tau_kd ~ Gamma(r / 2, r s_d / 2)
    l_kdj | tau ~ N(0, 1 / (alpha_kj tau_kd))          mu_kd | tau ~ N(m_0d, 1 / (alpha_k0 tau_kd))

n rows, D features, K components, q factors at most. The precisions alpha_kj of the columns of loadings, in
units of the noise, are the values for which the bound is largest: where the rows do not ask for a factor they
grow, and the column vanishes (automatic relevance determination). The mean is one more column, of a factor
that is always 1. With
h = (z, 1) and the sums N_k of responsibilities, H_k of E[h h'] and Y_k of E[h x'], each row of loadings and
its noise have a normal-gamma posterior, in which all features share the matrix V_k:

    q(l_d, mu_d | tau_d) = N(Y_d V, V / tau_d)      V_k = (diag(alpha_k) + H_k)^-1
    q(tau_d) = Gamma(a_k, a_k psi_d),   a_k = (r + N_k) / 2,   2 a_k psi_d = r s_d + sum r x_d^2 - Y_d' V Y_d

In the E-step E[ln p(x, z | k)] is a quadratic form in x and z, that of a factor model whose factors have the
prior precision B = I + D V_zz and the mean -B^-1 D V_z0. With B = R R' and u = R'(z + B^-1 D V_z0) it is a
constant and the log density of a usual factor model of loadings L R^-T, so that densities, missing entries
and sums are those of `LowRankGaussian`. Missing entries are latent, too.

z and (L, mu) may be changed to h -> T h and (L, mu) T^-1 without any effect on x. The M-step takes the T that
makes factors uncorrelated, of mean zero and variance one, and columns of loadings orthogonal, if the bound
gains by it: else factors vanish slowly. Ghahramani & Beal (2000), NIPS 12; Bishop (1999), ICANN; Luttinen &
Ilin (2010), Neurocomputing 73. Formulas: docs/bayesian_mfa.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln

from latently.backend.linalg import diagonals, is_positive_definite, log_determinant, symmetric, transpose
from latently.backend.namespace import Array, eye, like, namespace, ones, to_numpy, zeros
from latently.core.tree import changed
from latently.distributions.heavy_tails import MOST_DEGREES, HeavyParams
from latently.distributions.low_rank import (
    LowRankDensity,
    LowRankGaussian,
    LowRankParams,
    LowRankStats,
    ProjectedSums,
)

LARGEST = 1e12  # relevance
LEAST_COUNT = 1e-10  # whose logarithm is a coordinate; with less a part of the rows is empty
_NO_COUNT = 1e-200  # next to nothing of a row may still have factors of any size


@dataclass(frozen=True)
class FactorPosterior:
    """What q depends on, beside the prior."""

    means: Array  # (K, D)
    loadings: Array  # (K, D, q)
    noise_variance: Array  # (K, D): psi, the inverse of the expected precision
    counts: Array  # (K,): N, rows of each component
    relevances: Array  # (K, q + 1): alpha, that of the mean last
    moments: Array  # (K, q + 1, q + 1): H / N, the mean of E[h h']; the identity for an empty component

    @property
    def spread(self) -> Array:
        """(K, q + 1, q + 1) V, the covariance of a row of (L, mu) in units of its noise."""
        return namespace(self.counts).linalg.inv(self.precisions)

    @property
    def precisions(self) -> Array:
        """(K, q + 1, q + 1) V^-1"""
        own = eye(self.relevances.shape[1], self.counts) * self.relevances[:, None, :]
        return own + self.counts[:, None, None] * self.moments


@dataclass(frozen=True)
class FactorPrior:
    """Of every component."""

    rows: float  # r
    mean: Array  # (D,): m_0
    noise: Array  # (D,): s


@dataclass(frozen=True)
class PosteriorDensity(LowRankDensity):
    """That of the factor model with factors u = R'(z - centre)."""

    turn: Array  # (K, q, q): R^-1
    centre: Array  # (K, q)


@dataclass(frozen=True)
class PosteriorFactors(LowRankGaussian):
    """The family. Its log densities are expectations over q, its M-step gives q, and its log prior is -KL."""

    prior: FactorPrior | None = None  # type: ignore[assignment]

    def _prior(self) -> FactorPrior:
        assert self.prior is not None
        return self.prior

    # -- E-step ---------------------------------------------------------------------------------------

    def prepare(self, params: FactorPosterior, dtype: str = "float64") -> PosteriorDensity:  # type: ignore[override]
        xp = namespace(params.means)
        (K, D), q = params.means.shape, self.n_factors
        V = D * params.spread
        constant = -0.5 * V[:, q, q] + 0.5 * D * self.log_noise(params)
        turn, centre = zeros((K, 0, 0), params.means), zeros((K, 0), params.means)
        loadings, means = params.loadings, params.means
        if q:
            R = xp.linalg.cholesky(eye(q, V) + symmetric(V[:, :q, :q]))
            turn = xp.linalg.inv(R)
            own = (turn @ V[:, :q, q:])[:, :, 0]  # R^-1 D V_z0
            centre = -(transpose(turn) @ own[:, :, None])[:, :, 0]
            constant = constant + 0.5 * xp.sum(own**2, axis=1) - 0.5 * log_determinant(R)
            means = means + (loadings @ centre[:, :, None])[:, :, 0]
            loadings = loadings @ transpose(turn)
        density = super().prepare(LowRankParams(means, loadings, params.noise_variance), dtype)
        # as for log weights, which rows with missing entries add to constants of their own
        fields = dict(vars(density), constants=density.constants + constant, log_weights=constant)
        return PosteriorDensity(**fields, turn=turn, centre=centre)

    def log_noise(self, params: FactorPosterior) -> Array:
        """(K,) E[ln tau] + ln psi, of any feature."""
        a = 0.5 * (self._prior().rows + to_numpy(params.counts))
        return like(digamma(a) - np.log(a), params.means)

    def stats(self, density: PosteriorDensity, sums: ProjectedSums) -> LowRankStats:  # type: ignore[override]
        """The statistics in z = R^-T u + centre."""
        of_u, turn, centre = super().stats(density, sums), density.turn, density.centre
        N = of_u.weight[:, None]
        turned = (of_u.sum_z[:, None, :] @ turn)[:, 0, :]
        cross = turned[:, :, None] * centre[:, None, :]
        return changed(
            of_u,
            sum_z=turned + N * centre,
            sum_zx=transpose(turn) @ of_u.sum_zx + centre[:, :, None] * of_u.sum_x[:, None, :],
            sum_zz=transpose(turn) @ of_u.sum_zz @ turn
            + cross
            + transpose(cross)
            + N[:, :, None] * centre[:, :, None] * centre[:, None, :],
        )

    # -- M-step ---------------------------------------------------------------------------------------

    def m_step(self, stats: LowRankStats, params: FactorPosterior) -> FactorPosterior:  # type: ignore[override]
        """q of loadings, means and noise, and of the relevances; that of an empty component is the prior."""
        moments = Moments.of(stats, self._prior())
        posterior = self.rows_given(moments, params.relevances)
        T, energies = self._transformation(moments, posterior)
        return self.rows_given(moments.transformed(T), best_relevances(energies, params.means.shape[1]))

    def rows_given(self, moments: Moments, relevances: Array) -> FactorPosterior:
        """q(L, mu, tau) for these relevances."""
        prior, q = self._prior(), self.n_factors
        xp, N = namespace(relevances), moments.counts
        empty = (N <= _NO_COUNT)[:, None, None]
        one = eye(q + 1, N)
        mean = xp.where(empty, one, moments.hh / xp.where(empty, 1.0, N[:, None, None]))
        nothing = moments.hx[:, 0, :]
        found = FactorPosterior(nothing, transpose(moments.hx), nothing, N, relevances, mean)
        rows = found.spread @ moments.hx  # (K, q + 1, D)
        left = xp.clip(moments.square - xp.sum(rows * moments.hx, axis=1), min=0.0)
        psi = (prior.rows * prior.noise + left) / (prior.rows + N)[:, None]
        means = prior.mean + rows[:, q, :]
        return changed(found, means=means, loadings=transpose(rows[:, :q, :]), noise_variance=psi)

    def energies(self, posterior: FactorPosterior) -> Array:
        """(K, q + 1, q + 1) the sum over features of E[tau (l, mu - m_0) (l, mu - m_0)']."""
        xp, D = namespace(posterior.means), posterior.means.shape[1]
        apart = (posterior.means - self._prior().mean)[:, :, None]
        rows = xp.concat([posterior.loadings, apart], axis=2)
        return (
            symmetric(transpose(rows) @ (rows / posterior.noise_variance[:, :, None])) + D * posterior.spread
        )

    def _transformation(self, moments: Moments, posterior: FactorPosterior) -> tuple[Array, Array]:
        """T (K, q + 1, q + 1), and the energies (K, q + 1) of the columns of (L, mu) T^-1."""
        q, energies = self.n_factors, self.energies(posterior)
        xp, one = namespace(energies), zeros(energies.shape, energies) + eye(q + 1, energies)
        if not q:
            return one, diagonals(energies)
        T, back = _standardising(moments, energies)
        turned = symmetric(transpose(back) @ energies @ back)
        D = posterior.means.shape[1]
        before = self._part_of_bound(moments.hh, diagonals(energies), 0.0 * moments.counts, D)
        log_det = log_determinant_of(back[:, :q, :q])
        there = symmetric(T @ moments.hh @ transpose(T))
        after = self._part_of_bound(there, diagonals(turned), (D - moments.counts) * log_det, D)
        better = xp.isfinite(after) & (after > before)
        T = xp.where(better[:, None, None], T, one)
        return T, xp.where(better[:, None], diagonals(turned), diagonals(energies))

    def _part_of_bound(self, hh: Array, energies: Array, volume: Array, D: int) -> Array:
        """(K,) what a transformation changes in the bound, with the best relevances."""
        xp = namespace(hh)
        of_factors = -0.5 * xp.sum(diagonals(hh)[:, :-1], axis=1)
        return of_factors + volume + 0.5 * D * xp.sum(xp.log(best_relevances(energies, D)), axis=1)

    def log_priors(self, params: FactorPosterior) -> Array:  # type: ignore[override]
        """(K,) -KL(q(L, mu, tau) || p)."""
        prior, D = self._prior(), params.means.shape[1]
        N, alpha = to_numpy(params.counts), to_numpy(params.relevances)
        energies = to_numpy(diagonals(self.energies(params)))
        xp = namespace(params.counts)
        log_V = -to_numpy(log_determinant(xp.linalg.cholesky(params.precisions)))
        of_rows = np.sum(alpha * energies - D * np.log(alpha) - D, axis=1) - D * log_V
        a, a_0 = 0.5 * (prior.rows + N)[:, None], 0.5 * prior.rows
        psi, s = to_numpy(params.noise_variance), to_numpy(prior.noise)
        of_noise = np.sum(gamma_divergence(a, a * psi, a_0, a_0 * s), axis=1)
        return like(-(0.5 * of_rows + of_noise), params.means)

    def implied_stats(self, params: FactorPosterior, weights: Array) -> LowRankStats:  # type: ignore[override]
        """The statistics that gave these loadings, means and noise, for all rows that were counted."""
        prior, q, N = self._prior(), self.n_factors, params.counts
        xp = namespace(N)
        hh = N[:, None, None] * params.moments
        rows = xp.concat([params.loadings, (params.means - prior.mean)[:, :, None]], axis=2)  # (K, D, q + 1)
        hx = params.precisions @ transpose(rows)  # about m_0
        square = (prior.rows + N)[:, None] * params.noise_variance - prior.rows * prior.noise
        square = square + xp.sum(transpose(rows) * hx, axis=1)
        hx_there = hx + hh[:, :, q:] * prior.mean
        return LowRankStats(
            weight=N + 0.0,
            sum_x=hx_there[:, q, :],
            sum_z=hh[:, :q, q],
            sum_zx=hx_there[:, :q, :],
            sum_zz=hh[:, :q, :q],
            sum_square=square + 2.0 * prior.mean * hx[:, q, :] + N[:, None] * prior.mean**2,
        )

    # -- what q says ----------------------------------------------------------------------------------

    def predictive(self, params: FactorPosterior, rows: float) -> HeavyParams:
        """x | k ~ t(m_k, L_k L_k' + (1 + tr V_k) diag(psi_k), r + N_k), with `rows` r of the prior.

        Given the factors every feature has exactly this distribution, averaged over q, but for h' V h, which
        is replaced by its expectation.
        """
        xp = namespace(params.means)
        wider = 1.0 + xp.sum(diagonals(params.spread), axis=1)
        gaussian = LowRankParams(params.means, params.loadings, params.noise_variance * wider[:, None])
        return HeavyParams(gaussian, xp.clip(rows + params.counts, max=MOST_DEGREES))

    def used(self, params: FactorPosterior) -> Array:
        """(K, q) bool: factors whose loadings are longer than their own uncertainty."""
        return lengths(params) > params.means.shape[1] * diagonals(params.spread)[:, : self.n_factors]

    # -- a family as others ---------------------------------------------------------------------------

    @property
    def separate(self) -> bool:
        return False

    def least_rows(self, D: int) -> int:
        return 0  # the prior determines all else

    def at_floor(self, params: Any) -> Array:
        return params.means < params.means

    def clamped(self, params: FactorPosterior) -> FactorPosterior:  # type: ignore[override]
        return params

    def coordinates(self, params: FactorPosterior) -> tuple[Array, ...]:  # type: ignore[override]
        """Any of them is a posterior, if not the best for its counts."""
        xp = namespace(params.means)
        return (
            *(params.means, params.loadings, 0.5 * xp.log(params.noise_variance)),
            xp.log(xp.clip(params.counts, min=LEAST_COUNT)),
            *(xp.log(params.relevances), params.moments),
        )

    def from_coordinates(self, *arrays: Array) -> FactorPosterior:  # type: ignore[override]
        means, loadings, log_deviations, log_counts, log_relevances, moments = arrays
        xp = namespace(means)
        psi, counts, alpha = xp.exp(2.0 * log_deviations), xp.exp(log_counts), xp.exp(log_relevances)
        alpha = xp.clip(alpha, max=LARGEST)
        there = FactorPosterior(means, loadings, psi, counts, alpha, symmetric(moments))
        if not is_positive_definite(there.moments):
            raise ValueError("these moments of factors are not positive definite")
        return there

    def moved(  # type: ignore[override]
        self, params: FactorPosterior, weights: Array, shift: Array, scale: Array
    ) -> FactorPosterior:
        there = super().moved(
            LowRankParams(params.means, params.loadings, params.noise_variance), weights, shift, scale
        )
        return changed(params, **vars(there))

    def from_partition(self, X: Array, weight: Array, labels: Array, means: Array) -> FactorPosterior:  # type: ignore[override]
        """That of a factor model for the parts, as if it were known from their rows."""
        start = super().from_partition(X, weight, labels, means)
        xp = namespace(X)
        sizes = [xp.sum(xp.where(labels == k, weight, 0.0)) for k in range(means.shape[0])]
        return self.around(start, xp.stack(sizes))

    def around(self, start: LowRankParams, counts: Array) -> FactorPosterior:
        """A posterior about known parameters, with the relevances that these suggest.

        Without rows it is the prior, if that is known.
        """
        xp, (K, D), q = namespace(start.means), start.means.shape, self.n_factors
        means, loadings, psi = start.means, start.loadings, start.noise_variance
        mean = xp.zeros_like(means)
        if self.prior is not None:
            mean, empty = mean + self.prior.mean, (counts <= LEAST_COUNT)[:, None]
            means, psi = xp.where(empty, mean, means), xp.where(empty, self.prior.noise, psi)
            loadings = xp.where(empty[:, :, None], 0.0, loadings)
        rows = xp.concat([loadings, (means - mean)[:, :, None]], axis=2)
        relevances = best_relevances(xp.sum(rows**2 / psi[:, :, None], axis=1) + 1.0, D)
        one = eye(q + 1, means) + zeros((K, 1, 1), means)
        return FactorPosterior(means, loadings, psi, counts, relevances, one)


def lengths(params: FactorPosterior) -> Array:
    """(K, q) squared lengths of the columns of loadings, in units of the noise."""
    return namespace(params.means).sum(params.loadings**2 / params.noise_variance[:, :, None], axis=1)


def best_relevances(energies: Array, D: int) -> Array:
    """(K, q + 1) the best alpha for columns with these energies (K, q + 1)."""
    return D / namespace(energies).clip(energies, min=D / LARGEST)


@dataclass(frozen=True)
class Moments:
    """Sums over the rows of each component, of rows about m_0, and h = (z, 1)."""

    counts: Array  # (K,)
    hh: Array  # (K, q + 1, q + 1)
    hx: Array  # (K, q + 1, D)
    square: Array  # (K, D)

    @classmethod
    def of(cls, stats: LowRankStats, prior: FactorPrior) -> Moments:
        xp, N = namespace(stats.weight), stats.weight[:, None]
        of_one = xp.concat([stats.sum_z, N], axis=1)  # (K, q + 1)
        above = xp.concat([stats.sum_zz, stats.sum_z[:, None, :]], axis=1)
        hh = xp.concat([above, of_one[:, :, None]], axis=2)
        hx = xp.concat([stats.sum_zx, stats.sum_x[:, None, :]], axis=1) - of_one[:, :, None] * prior.mean
        square = stats.sum_square - 2.0 * prior.mean * stats.sum_x + N * prior.mean**2
        return cls(stats.weight, symmetric(hh), hx, square)

    def transformed(self, T: Array) -> Moments:
        return Moments(self.counts, symmetric(T @ self.hh @ transpose(T)), T @ self.hx, self.square)


def _standardising(moments: Moments, energies: Array) -> tuple[Array, Array]:
    """T and T^-1 for which H = N I in the factors and the energies of their columns are diagonal.

    Columns come with the largest energy first and keep their signs, so that iterates settle.
    """
    xp, q = namespace(energies), energies.shape[1] - 1
    N = moments.counts[:, None]
    full = N > _NO_COUNT
    mean = xp.where(full, moments.hh[:, :q, q] / xp.where(full, N, 1.0), 0.0)
    second = moments.hh[:, :q, :q] / xp.where(full, N, 1.0)[:, :, None] - mean[:, :, None] * mean[:, None, :]
    one = eye(q, energies)
    second = symmetric(xp.where(full[:, :, None], second, one))
    back = along_axes(xp.linalg.cholesky(second + 1e-12 * one), energies[:, :q, :q])  # z = back z' + mean
    forth = xp.linalg.inv(back)
    return affine(forth, -(forth @ mean[:, :, None])), affine(back, mean[:, :, None])


def along_axes(C: Array, energies: Array) -> Array:
    """C times the eigenvectors of C' E C (..., q, q), the largest first, with a positive diagonal."""
    xp = namespace(C)
    vectors = xp.flip(xp.linalg.eigh(symmetric(transpose(C) @ energies @ C))[1], axis=-1)
    back = C @ vectors
    return xp.where(diagonals(back)[..., None, :] >= 0, back, -back)


def affine(A: Array, b: Array) -> Array:
    """(K, q + 1, q + 1) the matrix that takes (z, 1) to (A z + b, 1)."""
    xp, K = namespace(A), A.shape[0]
    last = xp.concat([zeros((K, 1, A.shape[1]), A), ones((K, 1, 1), A)], axis=2)
    return xp.concat([xp.concat([A, b], axis=2), last], axis=1)


def log_determinant_of(stack: Array) -> Array:
    """ln of the absolute determinants."""
    return namespace(stack).linalg.slogdet(stack)[1]


def gamma_divergence(shape: Any, rate: Any, shape_0: Any, rate_0: Any) -> Any:
    """KL of Gamma(shape, rate) from Gamma(shape_0, rate_0)."""
    of_shapes = (shape - shape_0) * digamma(shape) - gammaln(shape) + gammaln(shape_0)
    return of_shapes + shape_0 * (np.log(rate) - np.log(rate_0)) + shape * (rate_0 / rate - 1.0)
