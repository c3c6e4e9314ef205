"""Variational Bayes for mixtures of common factor analysers: a posterior over all parameters.

    x | z ~ N(mu + A z, diag(1 / tau))           tau_d ~ Gamma(r / 2, r s_d / 2)
    a_dj | tau ~ N(0, 1 / (alpha_j tau_d))       mu_d | tau ~ N(m_0d, 1 / (alpha_0 tau_d))
    z | k ~ N(xi_k, Lambda_k^-1)                 xi_k | Lambda_k ~ N(0, (r Lambda_k)^-1)
    Lambda_k ~ Wishart(I / nu_0, nu_0), nu_0 = q - 1 + r, whose expectation is I

n rows, D features, K components, q factors at most. Rows (a_d, mu_d) and noise have the posterior of one
component of `PosteriorFactors`, with the sums over the rows of all components; xi_k and Lambda_k have that of
a component of `PosteriorGaussian`, with E[z | x, k] and E[z z' | x, k] for its rows. Unlike `CommonLoadings`
there is a free mean, so the origin does not matter. With V of the loadings, m_k and C_k of the factors,

    E[ln p(x, z | k)] = ln N(x; mu + A z, psi) + ln N(z; m_k, C_k) - D/2 h' V h + terms of k,   h = (z, 1),

a constant and the log density of x and z in a model of common loadings whose factors have the precision
B_k = C_k^-1 + D V_zz and the mean B_k^-1 (C_k^-1 m_k - D V_z0): densities, missing entries and sums are those
of `CommonLoadings`.

z -> M^-1 (z - t) and (A, mu) -> (A M, mu + A t) have no effect on x. The bound is largest for M M' = S, the
inverse of the mean of all C_k^-1, with columns of A M orthogonal in units of the noise; t has no closed form,
but a step of a minorisation never lowers the bound. The M-step takes both. A factor whose loadings vanish
still costs the bound the posteriors of its part of xi_k and Lambda_k, so the weakest is taken out of the
model for good where the bound gains by that.
Formulas: docs/bayesian_mcfa.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import multigammaln

from latently.backend.linalg import (
    diagonals,
    inverse_of_triangular,
    is_positive_definite,
    log_determinant,
    symmetric,
    transpose,
)
from latently.backend.namespace import Array, eye, like, namespace, ones, to_numpy, zeros
from latently.core.block import Block
from latently.core.tree import changed, mapped
from latently.distributions.common_loadings import CommonLoadings
from latently.distributions.common_loadings_records import (
    CommonDensity,
    CommonParams,
    CommonStats,
    ProjectedSums,
)
from latently.distributions.family import Family
from latently.distributions.gaussian import FullStats
from latently.distributions.heavy_tails import MOST_DEGREES, HeavyParams
from latently.distributions.responsibilities import Responsibilities
from latently.distributions.variational import (
    ConjugatePrior,
    PosteriorGaussian,
    PosteriorParams,
    multigammaln_of,
)
from latently.distributions.variational_factors import (
    LARGEST,
    LEAST_COUNT,
    FactorPosterior,
    FactorPrior,
    Moments,
    PosteriorFactors,
    affine,
    along_axes,
    best_relevances,
    lengths,
)


@dataclass(frozen=True)
class CommonPosterior:
    """What q depends on, beside the prior. Factors that were taken out come last."""

    mean: Array  # (D,): mu
    loadings: Array  # (D, q): A
    noise_variance: Array  # (D,): psi, the inverse of the expected precision
    relevances: Array  # (q + 1,): alpha, that of the mean last; `LARGEST` for factors that were taken out
    moments: Array  # (q + 1, q + 1): H / N, the mean of E[h h'] over all rows; zero for those
    latent_means: Array  # (K, q): m
    latent_covariances: Array  # (K, q, q): C, the inverse of the expected precision
    counts: Array  # (K,): N_k, rows of each component

    @property
    def means(self) -> Array:
        """(K, D)"""
        return self.mean + self.latent_means @ self.loadings.T

    @property
    def n_active(self) -> int:
        """Factors that are in the model."""
        return int(np.sum(to_numpy(self.relevances)[:-1] < 0.5 * LARGEST))

    @property
    def spread(self) -> Array:
        """(q + 1, q + 1) V, the covariance of a row of (A, mu) in units of its noise."""
        return self.of_rows(self.loadings.shape[1]).spread[0, ...]

    def of_rows(self, q: int) -> FactorPosterior:
        """The posterior of loadings and noise as that of one component, of its first q factors."""
        kept = like(np.append(np.arange(q), self.loadings.shape[1]), self.counts)
        xp = namespace(self.mean)
        moments = xp.take(xp.take(self.moments, kept, axis=0), kept, axis=1)
        parts = (self.mean, self.loadings[:, :q], self.noise_variance, xp.sum(self.counts))
        return FactorPosterior(
            *(part[None, ...] for part in (*parts, xp.take(self.relevances, kept), moments))
        )

    def of_factors(self, q: int) -> PosteriorParams:
        """The posterior of xi and Lambda, of the first q factors."""
        return PosteriorParams(self.latent_means[:, :q], self.latent_covariances[:, :q, :q], self.counts)


@dataclass(frozen=True)
class PosteriorCommonDensity(CommonDensity):
    """That of the model of common loadings with the same sums."""

    precisions: Array  # (K, q): diagonals of B, the prior precisions of the factors there


@dataclass(frozen=True)
class PosteriorSums(ProjectedSums):
    log_precisions: Array | None = None  # (q,): sum of r ln of the precision of z_j given x and the other z


@dataclass(frozen=True)
class PosteriorStats(CommonStats):
    log_precisions: Array | None = None  # (q,)


@dataclass(frozen=True)
class PosteriorCommon(CommonLoadings):
    """The family. Its log densities are expectations over q, its M-step gives q, and its log prior is -KL."""

    prior: FactorPrior | None = None  # type: ignore[assignment]

    def conditionals(self) -> list[Any]:
        return []

    def _of_rows(self, q: int) -> PosteriorFactors:
        return PosteriorFactors(q, self.floor, prior=self.prior)

    def _of_factors(self, example: Array) -> PosteriorGaussian:
        """The family of xi and Lambda, for as many factors as the example (q,) has."""
        rows, q = 0.0 if self.prior is None else self.prior.rows, example.shape[0]
        nothing = zeros((q,), example)
        return PosteriorGaussian(nothing, prior=ConjugatePrior(rows, nothing, eye(q, example)))

    # -- E-step ---------------------------------------------------------------------------------------

    def prepare(self, params: CommonPosterior, dtype: str = "float64") -> PosteriorCommonDensity:  # type: ignore[override]
        xp, m, q = namespace(params.mean), params.latent_means, params.n_active
        D, of_rows = params.mean.shape[0], params.of_rows(self.n_factors)
        V = D * of_rows.spread[0, ...]
        precisions = symmetric(xp.linalg.inv(params.latent_covariances) + V[:-1, :-1])
        roots = xp.linalg.cholesky(params.latent_covariances), xp.linalg.cholesky(precisions)
        inverse_root = inverse_of_triangular(roots[1])
        covariances = transpose(inverse_root) @ inverse_root
        h = xp.concat([m, ones((m.shape[0], 1), m)], axis=1)
        push = -(h @ V)[:, :-1]  # of the mean, from m
        moved = (covariances @ push[..., None])[..., 0]
        constant = 0.5 * xp.sum(push * moved, axis=1) - 0.5 * xp.sum((h @ V) * h, axis=1)
        constant = constant - 0.5 * (log_determinant(roots[0]) + log_determinant(roots[1]))
        constant = constant + 0.5 * D * self._of_rows(self.n_factors).log_noise(of_rows)
        if q:
            constant = constant + self._of_factors(m[0, :q]).expectations(params.of_factors(q))
        density = super().prepare(_plain(params, m + moved, symmetric(covariances)), dtype)
        # as for log weights, which rows with missing entries add to constants of their own
        fields = dict(vars(density), constants=density.constants + constant, log_weights=constant)
        return PosteriorCommonDensity(**fields, precisions=diagonals(precisions))

    def sums(
        self,
        density: PosteriorCommonDensity,  # type: ignore[override]
        block: Block,
        projected: Any,
        resp: Responsibilities,
    ) -> PosteriorSums:
        sums, xp, own = super().sums(density, block, projected, resp), namespace(block.X), density.params
        by_feature = own.loadings**2 / own.noise_variance[:, None]
        if block.observed is None:
            found = resp.weight @ xp.log(density.precisions + xp.sum(by_feature, axis=0))
        else:
            by_row, r = xp.astype(block.observed, xp.float64) @ by_feature, resp.full()
            logs = [xp.log(density.precisions[:, j, None] + by_row[:, j]) for j in range(self.n_factors)]
            found = xp.stack([xp.sum(r * of_factor) for of_factor in logs])
        return PosteriorSums(**vars(sums), log_precisions=found)

    def stats(self, density: PosteriorCommonDensity, sums: PosteriorSums) -> PosteriorStats:  # type: ignore[override]
        return PosteriorStats(**vars(super().stats(density, sums)), log_precisions=sums.log_precisions)

    # -- M-step ---------------------------------------------------------------------------------------

    def m_step(self, stats: PosteriorStats, params: CommonPosterior) -> CommonPosterior:  # type: ignore[override]
        """q of all parameters, in coordinates of the factors for which the bound is larger."""
        moments, parts = self._moments(stats, params.n_active)
        moments, parts, relevances = self._without_weakest(moments, parts, params, stats.log_precisions)
        q = parts.shape[1] - 1
        rows = self._of_rows(q).rows_given(moments, relevances)
        if q:
            T, relevances = self._transformation(rows, self._latent(parts))
            moments, parts = moments.transformed(T[None, ...]), symmetric(T @ parts @ transpose(T))
            rows = self._of_rows(q).rows_given(moments, relevances)
        return self._joined(rows, self._latent(parts))

    def _without_weakest(
        self, moments: Moments, parts: Array, params: CommonPosterior, log_precisions: Array
    ) -> tuple[Moments, Array, Array]:
        """Moments, their parts and relevances without the weakest factor, if the bound gains by that.

        The others keep their q(z), and their parameters have the best posterior, so the gain is exact.
        """
        q, relevances = params.n_active, params.of_rows(params.n_active).relevances
        if not q:
            return moments, parts, relevances
        rows = params.of_rows(q)
        weakest = int(np.argmin(to_numpy(lengths(rows) / diagonals(rows.spread)[:, :-1])[0]))
        place = like(np.delete(np.eye(q + 1), weakest, axis=0), relevances)
        fewer = moments.transformed(place[None, ...]), place @ parts @ place.T, relevances @ place.T
        total = float(moments.counts[0])
        gain = self._evidence(*fewer) - self._evidence(moments, parts, relevances)
        gain += 0.5 * (float(log_precisions[weakest]) - total * math.log(2 * math.pi * math.e))
        return fewer if gain > 0 else (moments, parts, relevances)

    def _evidence(self, moments: Moments, parts: Array, relevances: Array) -> float:
        """Of x and z with the best posterior of all parameters, up to a constant for the same rows."""
        assert self.prior is not None
        xp, q = namespace(parts), parts.shape[1] - 1
        rows, r = self._of_rows(q).rows_given(moments, relevances), self.prior.rows
        D, N = rows.means.shape[1], to_numpy(parts[:, -1, -1])
        log_V = -log_determinant(xp.linalg.cholesky(rows.precisions))
        found: float = 0.5 * D * float(xp.sum(xp.log(relevances)) + xp.sum(log_V))
        found -= 0.5 * (r + float(moments.counts[0])) * float(xp.sum(xp.log(rows.noise_variance)))
        if q:
            nu_0, nu, C = q - 1 + r, q - 1 + r + N, self._latent(parts).covariances
            log_C = to_numpy(log_determinant(xp.linalg.cholesky(C))) + q * np.log(nu)
            gammas = multigammaln_of(0.5 * nu, q) - float(multigammaln(0.5 * nu_0, q))
            of_counts = q * (np.log(r / (r + N)) + nu_0 * math.log(nu_0) - N * math.log(math.pi))
            found += float(np.sum(gammas + 0.5 * (of_counts - nu * log_C)))
        return found

    def _moments(self, stats: PosteriorStats, q: int) -> tuple[Moments, Array]:
        """Sums over all rows, about m_0, and the parts (K, q + 1, q + 1) of components in that of h h'."""
        assert self.prior is not None
        xp, N, centre = namespace(stats.weight), stats.weight[:, None], self.prior.mean
        sum_z = stats.sum_z[:, :q]
        above = xp.concat([stats.sum_zz[:, :q, :q], sum_z[:, None, :]], axis=1)
        parts = symmetric(xp.concat([above, xp.concat([sum_z, N], axis=1)[:, :, None]], axis=2))
        hh, total = xp.sum(parts, axis=0), xp.sum(stats.weight)
        hx = xp.concat([stats.sum_zx[:q, :], stats.sum_x[None, :]]) - hh[:, -1:] * centre
        square = stats.sum_square - 2.0 * centre * stats.sum_x + total * centre**2
        return Moments(*(part[None, ...] for part in (total, hh, hx, square))), parts

    def _latent(self, parts: Array) -> PosteriorParams:
        """q(xi, Lambda) for these sums (K, q + 1, q + 1) of h h'."""
        stats = FullStats(parts[:, -1, -1], parts[:, :-1, -1], parts[:, :-1, :-1])
        return self._of_factors(stats.sum_x[0, :]).m_step(stats, None)  # type: ignore[arg-type]

    def _transformation(self, rows: FactorPosterior, latent: PosteriorParams) -> tuple[Array, Array]:
        """T (q + 1, q + 1), and the best relevances (1, q + 1) after it.

        Components without rows do not count: they have their prior in any coordinates.
        """
        assert self.prior is not None
        xp, r, D = namespace(rows.means), self.prior.rows, rows.means.shape[1]
        energies = self._of_rows(latent.means.shape[1]).energies(rows)[0, ...]
        full = xp.astype(latent.counts > LEAST_COUNT, xp.float64)
        precisions = symmetric(xp.linalg.inv(latent.covariances)) * full[:, None, None]
        total = xp.sum(precisions, axis=0)
        root = xp.linalg.cholesky(total / xp.sum(full))
        M = along_axes(transpose(inverse_of_triangular(root)), energies[:-1, :-1])
        # the largest -alpha_0/2 |mu - m_0 + A t|^2 - r/2 sum of (m_k - t)' C_k^-1 (m_k - t)
        alpha = best_relevances(diagonals(energies), D)[-1]
        pull = r * xp.sum((precisions @ latent.means[..., None])[..., 0], axis=0) - alpha * energies[:-1, -1]
        t = xp.linalg.solve(alpha * energies[:-1, :-1] + r * total, pull[:, None])
        forth = xp.linalg.inv(M)
        T, back = (affine(A[None, ...], b[None, ...])[0, ...] for A, b in ((forth, -(forth @ t)), (M, t)))
        after = diagonals(symmetric(back.T @ energies @ back))
        return T, best_relevances(after, D)[None, :]

    def _joined(self, rows: FactorPosterior, latent: PosteriorParams) -> CommonPosterior:
        """All of q, with the factors that were taken out at the end."""
        xp, there = namespace(rows.means), rows.loadings.shape[2]
        one = eye(self.n_factors + 1, rows.means)
        place = xp.concat([one[:, :there], one[:, -1:]], axis=1)
        of_z, gone = place[:-1, :-1], one[:, there:-1]
        C = of_z @ latent.covariances @ of_z.T + (gone @ gone.T)[:-1, :-1]
        return CommonPosterior(
            mean=rows.means[0, :],
            loadings=rows.loadings[0, ...] @ of_z.T,
            noise_variance=rows.noise_variance[0, :],
            relevances=place @ rows.relevances[0, :] + LARGEST * xp.sum(gone, axis=1),
            moments=place @ rows.moments[0, ...] @ place.T,
            latent_means=latent.means @ of_z.T,
            latent_covariances=C,
            counts=latent.counts,
        )

    def log_prior(self, params: CommonPosterior) -> float:  # type: ignore[override]
        """-KL(q || p) of all parameters."""
        q, xp = params.n_active, namespace(params.mean)
        found = float(xp.sum(self._of_rows(q).log_priors(params.of_rows(q))))
        if q:
            latent = params.of_factors(q)
            found += float(xp.sum(self._of_factors(params.latent_means[0, :q]).log_priors(latent)))
        return found

    def implied_stats(self, params: CommonPosterior, weights: Array) -> PosteriorStats:  # type: ignore[override]
        """The statistics that gave this posterior, for all complete rows that were counted."""
        q, xp = params.n_active, namespace(params.mean)
        rows = self._of_rows(q).implied_stats(params.of_rows(q), weights)
        latent = self._of_factors(params.latent_means[0, :q]).implied_stats(params.of_factors(q), weights)
        pad = eye(self.n_factors, params.mean)[:, :q]
        density = self.prepare(params)
        precisions = density.precisions + xp.sum(params.loadings**2 / params.noise_variance[:, None], axis=0)
        return PosteriorStats(
            log_precisions=params.counts @ xp.log(precisions),
            weight=params.counts + 0.0,
            sum_z=latent.sum_x @ pad.T,
            sum_zz=pad @ latent.sum_xx @ pad.T,
            sum_x=xp.sum(rows.sum_x, axis=0),
            sum_zx=pad @ rows.sum_zx[0, ...],
            sum_square=xp.sum(rows.sum_square, axis=0),
        )

    # -- what q says ----------------------------------------------------------------------------------

    def predictive(self, params: CommonPosterior, rows: float) -> HeavyParams:
        """x | k ~ t(mu + A m_k, A C~_k A' + (1 + tr V H / N) diag(psi), r + N_k), with `rows` r of the prior.

        C~_k is the scale matrix of the factors' exact predictive distribution, a t distribution with as many
        degrees of freedom. That the noise shares its draw of a scale with them is the approximation.
        """
        xp, q = namespace(params.mean), params.n_active
        latent = self._predictive_factors(params.of_factors(q), rows)
        pad = eye(self.n_factors, params.mean)[:, :q]
        wider = 1.0 + xp.sum(params.spread * params.moments)
        C = pad @ latent.gaussian.covariances @ pad.T
        gaussian = _plain(params, params.latent_means, C, params.noise_variance * wider)
        return HeavyParams(gaussian, xp.clip(latent.degrees, max=MOST_DEGREES))

    def _predictive_factors(self, latent: PosteriorParams, rows: float) -> HeavyParams:
        return PosteriorGaussian(self.floor).predictive(latent, rows)

    # -- a family as others ---------------------------------------------------------------------------

    def least_rows(self, D: int) -> int:
        return 0  # the prior determines all else

    def at_floor(self, params: Any) -> Array:
        return params.means < params.means

    def bounded(self, params: Any) -> Any:
        return params

    def clamped(self, params: Any) -> Any:
        return params

    def canonical(self, params: Any) -> Any:
        return params

    def coordinates(self, params: CommonPosterior) -> tuple[Array, ...]:
        """Any of them is a posterior, if not the best for its counts."""
        xp = namespace(params.mean)
        latent = PosteriorParams(params.latent_means, params.latent_covariances, params.counts)
        of_factors = self._of_factors(params.latent_means[0, :]).coordinates(latent)
        log_deviations = 0.5 * xp.log(params.noise_variance)
        own = (params.mean, params.loadings, log_deviations, xp.log(params.relevances), params.moments)
        return *own, *of_factors

    def from_coordinates(self, *arrays: Array) -> CommonPosterior:
        mean, loadings, log_deviations, log_relevances, moments, *of_factors = arrays
        xp = namespace(mean)
        latent = self._of_factors(of_factors[0][0, :]).from_coordinates(*of_factors)
        alpha = xp.clip(xp.exp(log_relevances), max=LARGEST)
        psi = xp.exp(2.0 * log_deviations)
        of_rows = (mean, loadings, psi, alpha, symmetric(moments))
        there = CommonPosterior(*of_rows, latent.means, latent.covariances, latent.counts)
        q = there.n_active
        if not is_positive_definite(there.of_rows(q).moments):
            raise ValueError("these moments of factors are not positive definite")
        if bool(xp.any(alpha[:q] >= 0.5 * LARGEST) | xp.any(loadings[:, q:] != 0)):
            raise ValueError("factors that were taken out must come last and have no loadings")
        return there

    to_vector = Family.to_vector
    from_vector = Family.from_vector

    def moved(self, params: CommonPosterior, weights: Array, shift: Array, scale: Array) -> CommonPosterior:  # type: ignore[override]
        return changed(
            params,
            mean=shift + scale * params.mean,
            loadings=params.loadings * scale[:, None],
            noise_variance=params.noise_variance * scale**2,
        )

    def from_partition(self, X: Array, weight: Array, labels: Array, means: Array) -> CommonPosterior:  # type: ignore[override]
        """That of common loadings for the parts, as if they were known from their rows."""
        rows, weights, parts, centres = (to_numpy(array) for array in (X, weight, labels, means))
        here = CommonLoadings(self.n_factors, to_numpy(self.floor))
        start = here.from_partition(rows, weights, parts, centres)
        sizes = np.bincount(parts, weights, len(centres))
        found: CommonPosterior = mapped(to_numpy, self).around(start, sizes)
        there: CommonPosterior = mapped(lambda array: like(array, X), found)
        return there

    def around(self, start: CommonParams, counts: Array) -> CommonPosterior:
        """A posterior about known parameters, with the relevances that these suggest."""
        xp, q, D = namespace(start.centre), start.loadings.shape[1], start.centre.shape[0]
        empty = counts <= LEAST_COUNT
        m = xp.where(empty[:, None], 0.0, start.latent_means)
        C = xp.where(empty[:, None, None], eye(q, m), start.latent_covariances)
        h = xp.concat([m, ones((m.shape[0], 1), m)], axis=1)
        one = eye(q + 1, m)[:, :q]
        parts = h[:, :, None] * h[:, None, :] + one @ C @ one.T
        share = counts / xp.sum(counts)
        apart = start.centre if self.prior is None else start.centre - self.prior.mean
        rows = xp.concat([start.loadings, apart[:, None]], axis=1)
        relevances = best_relevances(xp.sum(rows**2 / start.noise_variance[:, None], axis=0) + 1.0, D)
        moments = xp.sum(share[:, None, None] * parts, axis=0)
        return CommonPosterior(
            *(start.centre, start.loadings, start.noise_variance, relevances, moments, m, C, counts)
        )


def _plain(params: CommonPosterior, means: Array, covariances: Array, noise: Any = None) -> CommonParams:
    """Common loadings with these means and covariances of the factors."""
    q = params.loadings.shape[1]
    return CommonParams(
        origin=params.mean,
        anchor=zeros((q,), params.mean),
        centre=params.mean,
        loadings=params.loadings,
        latent_means=means,
        latent_covariances=covariances,
        noise_variance=params.noise_variance if noise is None else noise,
        basis=eye(q, params.mean),
    )
