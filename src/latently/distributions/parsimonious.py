"""Factor models whose components share loadings, noise, or the volume or shape of their noise.

    x | k ~ N(mu_k, L_k L_k' + Psi_k),     Psi_k = omega_k Delta_k,  Delta_k diagonal with |Delta_k| = 1

With what `low_rank` offers these are the twelve parsimonious models of McNicholas & Murphy (2008), Statistics
and Computing 18, and (2010), Bioinformatics 26. Densities and statistics are those of `low_rank`: a model is
another M-step. Given loadings, with s_kd the expected squares of residuals and n_k the weights, the noise
minimises sum_k sum_d n_k ln psi_kd + s_kd / psi_kd over the psi of the model and above the floor,

    free      s_kd / n_k                        shared   sum_k s_kd / sum_k n_k
    "shape"   omega_k delta_d: one of the two after the other, each in closed form
    "volume"  omega delta_kd, in closed form with omega = sum_k (prod_d s_kd)^(1/D) / sum_k n_k; with a floor
              that binds, psi_kd = max(s_kd / l_k, floor_d) with multipliers l_k found by a search (the
              problem is convex in ln psi)

and given the noise, feature d of common loadings solves L_d sum_k C_zz,k / psi_kd = sum_k C_xz,kd / psi_kd.
The two alternate within an M-step, on statistics alone, and none lowers Q. A prior adds pseudo-rows to s, n.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from latently.backend.linalg import symmetric, transpose
from latently.backend.namespace import Array, Floats, eye, like, namespace, to_numpy, zeros
from latently.distributions.low_rank import LowRankGaussian, LowRankParams, LowRankStats
from latently.distributions.responsibilities import has_rows

_ROUNDS = 10  # of loadings and noise within an M-step
_ENOUGH = 1e-10  # relative change of noise
_LEAST_AT_START = 0.1  # noise of a component, as a share of its variance
_TINY = 1e-300
_LARGEST_LOG = 300.0
_GRID, _NARROWINGS = 33, 12  # of a volume, if the floor binds


@dataclass(frozen=True)
class ParsimoniousFactors(LowRankGaussian):
    """The family. Parameters and statistics have an entry for every component, whatever is shared."""

    common_loadings: bool = False
    noise: str = "free"  # or what components have in common: "shared" for all of it, "shape" or "volume"

    # -- the M-step -----------------------------------------------------------------------------------

    def m_step(self, stats: LowRankStats, params: LowRankParams) -> LowRankParams:
        """Means, and loadings and noise in turn until they stay; an empty component keeps what is its own."""
        xp = namespace(stats.weight)
        filled = has_rows(stats.weight)
        precision = stats.weight if stats.precision is None else stats.precision
        share = xp.where(filled, precision, 1.0)[:, None]
        x_mean, z_mean = stats.sum_x / share, stats.sum_z / share
        C_zx = stats.sum_zx - (share * z_mean)[:, :, None] * x_mean[:, None, :]  # (K, q, D)
        C_zz = symmetric(stats.sum_zz - (share * z_mean)[:, :, None] * z_mean[:, None, :])
        total = precision[:, None] * x_mean**2
        C_xx = stats.sum_square - (xp.sum(total, axis=1, keepdims=True) if self.isotropic else total)

        psi, L = params.noise_variance, transpose(params.loadings)  # (K, D), (K, q, D)
        for _ in range(_ROUNDS):
            L = self._loadings(C_zz, C_zx, filled, psi, L)
            explained = xp.sum(L * (2.0 * C_zx - C_zz @ L), axis=1)  # (K, D)
            if self.isotropic:
                explained = xp.sum(explained, axis=1, keepdims=True)
            before, psi = psi, self._noise(C_xx - explained, stats.weight, psi)
            alone = self.n_factors == 0 or not self.common_loadings or self.noise == "shared"
            if alone or bool(xp.all(xp.abs(psi - before) <= _ENOUGH * psi)):
                break  # the best loadings do not depend on the noise, or both stay
        means = xp.where(filled[:, None], x_mean - (z_mean[:, None, :] @ L)[:, 0, :], params.means)
        return self.clamped(LowRankParams(means, transpose(L), psi))

    def _loadings(self, C_zz: Array, C_zx: Array, filled: Array, psi: Array, before: Array) -> Array:
        """(K, q, D) the best loadings, transposed, for this noise."""
        xp, (K, q, D) = namespace(C_zx), C_zx.shape
        if q == 0:
            return C_zx
        some = filled[:, None, None]
        if not self.common_loadings:
            return xp.where(some, xp.linalg.inv(xp.where(some, C_zz, eye(q, C_zz))) @ C_zx, before)
        weights = xp.where(filled[:, None], 1.0 / psi, 0.0)  # (K, D)
        if self.isotropic or self.noise in ("shared", "shape"):  # in the same proportions for all features
            weights = weights[:, :1]
        A = xp.reshape(weights.T @ xp.reshape(C_zz, (K, q * q)), (-1, q, q))
        B = xp.sum(weights[:, None, :] * C_zx, axis=0)  # (q, D)
        if A.shape[0] == 1:
            L = xp.linalg.inv(A[0, :, :]) @ B
        else:
            L = xp.linalg.solve(A, B.T[:, :, None])[:, :, 0].T
        return xp.broadcast_to(L, (K, q, D))

    def _noise(self, squares: Array, weight: Array, before: Array) -> Array:
        """(K, D) the best noise for sums of squared residuals (K, S), of rows with these weights (K,)."""
        s, n = to_numpy(squares), to_numpy(weight)[:, None]
        old, f = to_numpy(before), to_numpy(self._floor())
        D = old.shape[1]
        if self.isotropic:
            s, old = s / D, old[:, :1]
        s = np.maximum(s, 0.0)
        if self.prior is not None:
            scale = np.broadcast_to(to_numpy(self.prior.scale), (len(n), D))[:, : s.shape[1]]
            s, n = s + self.prior.rows * scale, n + self.prior.rows
        n = np.broadcast_to(n, s.shape)
        found = _OF_FORM[self.noise](s, n, old, f)
        return like(np.array(np.broadcast_to(found, (len(s), D))), before)  # a copy that can be written

    # -- coordinates, bounds and starts ---------------------------------------------------------------

    @property
    def separate(self) -> bool:
        return False

    @property
    def _by_parts(self) -> bool:
        return self.noise in ("shape", "volume")

    def coordinates(self, params: LowRankParams) -> tuple[Array, ...]:
        """As without constraints; logarithms of noise whose volume or shape is shared, which lines keep."""
        if not self._by_parts:
            return super().coordinates(params)
        return params.means, params.loadings, namespace(params.means).log(params.noise_variance)

    def from_coordinates(self, *arrays: Array) -> LowRankParams:
        means, L, log_psi = arrays
        xp = namespace(means)
        if self.common_loadings:
            L = xp.broadcast_to(L[:1, ...], L.shape)
        if not self._by_parts:
            return super().from_coordinates(means, L, log_psi)
        psi = xp.exp(xp.clip(log_psi, min=-_LARGEST_LOG, max=_LARGEST_LOG))
        return self.clamped(LowRankParams(means, L, psi))

    def clamped(self, params: LowRankParams) -> LowRankParams:
        """The nearest noise of the model above the floor, and equal loadings if they are common."""
        L, psi = params.loadings, params.noise_variance
        if self.common_loadings:
            L = L[:1, ...] + zeros(L.shape, L)  # a copy that can be written
        if self._by_parts:
            K, D = psi.shape
            ones = np.ones((K, D))
            psi = like(_OF_FORM[self.noise](to_numpy(psi), ones, to_numpy(psi), to_numpy(self._floor())), psi)
            bounded = LowRankGaussian(self.n_factors, 0.0 * self.floor)
            return bounded.clamped(LowRankParams(params.means, L, psi))
        return super().clamped(LowRankParams(params.means, L, psi))

    def from_partition(self, X: Array, weight: Array, labels: Array, means: Array) -> LowRankParams:
        """Local principal components, of all parts if loadings are common, and noise of the model."""
        xp, (K, D) = namespace(X), means.shape
        free = LowRankGaussian(self.n_factors, self.floor, isotropic=self.isotropic)
        own = xp.stack([xp.where(labels == k, weight, 0.0) for k in range(K)])  # (K, n)
        size = xp.sum(own, axis=1)
        if self.common_loadings:
            residual = X - xp.take(means, labels, axis=0)
            one = free.from_partition(residual, weight, xp.zeros_like(labels), zeros((1, D), X))
            L, typical = one.loadings, one.noise_variance
            share = xp.where(size > 0, size, 1.0)[:, None]
            variance = own @ residual**2 / share
            psi = xp.clip(variance - xp.sum(L**2, axis=2), min=0.0)
            psi = xp.maximum(psi, _LEAST_AT_START * variance)
            psi = (size[:, None] * psi + (self.n_factors + 2) * typical) / (
                size[:, None] + self.n_factors + 2
            )
            if self.isotropic:
                psi = xp.mean(psi, axis=1, keepdims=True) + xp.zeros_like(psi)
            L = xp.broadcast_to(L, (K, D, self.n_factors))
        else:
            start = free.from_partition(X, weight, labels, means)
            L, psi = start.loadings, start.noise_variance
        size = xp.clip(size, min=1.0)
        squares = size[:, None] * psi
        if self.isotropic:
            squares = xp.sum(squares, axis=1, keepdims=True)
        psi = replace(self, prior=None)._noise(squares, size, psi)
        return self.clamped(LowRankParams(means, L, psi))

    # -- sizes ----------------------------------------------------------------------------------------

    def n_parameters(self, K: int, D: int) -> int:
        """Loadings are counted up to rotation; no count exceeds that of the covariances they make."""
        q = self.n_factors
        loadings = D * q - q * (q - 1) // 2
        one = 1 if self.isotropic else D  # of the noise of a component
        full = D * (D + 1) // 2
        more = {"free": one, "shared": 0, "shape": 1, "volume": one - 1}[self.noise]  # of a further component
        if self.common_loadings:
            return K * D + min(loadings + one, full) + (K - 1) * more
        return K * D + min(K * loadings + one + (K - 1) * more, K * full)

    def least_rows(self, D: int) -> int:
        return 2 if self.common_loadings else super().least_rows(D)


# -- noise (K, S) of each form, from sums s (K, S), weights n (K, S), that before, and the floor (S,) -------


def _free(s: Floats, n: Floats, before: Floats, floor: Floats) -> Floats:
    found: Floats = np.where(n > 0, np.maximum(s / np.where(n > 0, n, 1.0), floor), before)
    return found


def _shared(s: Floats, n: Floats, before: Floats, floor: Floats) -> Floats:
    pooled = np.maximum(s.sum(axis=0, keepdims=True) / n.sum(axis=0, keepdims=True), floor)
    found: Floats = np.repeat(pooled, len(s), axis=0)
    return found


def _of_one_shape(s: Floats, n: Floats, before: Floats, floor: Floats) -> Floats:
    """omega_k delta_d. Any omega has a delta above the floor, so that the first step may start anywhere."""
    some = n[:, :1] > 0
    omega = np.exp(np.mean(np.log(np.maximum(before, _TINY)), axis=1, keepdims=True))  # (K, 1)
    psi = before
    for _ in range(_ROUNDS):
        delta = np.maximum((s / omega).sum(axis=0) / n.sum(axis=0), np.max(floor / omega, axis=0))
        delta = np.maximum(delta, _TINY)
        own = np.mean(s / delta, axis=1, keepdims=True) / np.where(some, n[:, :1], 1.0)
        omega = np.maximum(np.where(some, own, omega), np.max(floor / delta))
        after = omega * delta
        done = np.all(np.abs(after - psi) <= _ENOUGH * after)
        psi = after
        if done:
            break
    return psi


def _of_one_volume(s: Floats, n: Floats, before: Floats, floor: Floats) -> Floats:
    """omega delta_kd."""
    some = n[:, :1] > 0
    log_s = np.log(np.maximum(np.where(some, s, before), _TINY))
    log_volume = np.mean(log_s, axis=1, keepdims=True)
    total = n[:, 0].sum()
    omega = np.where(some, np.exp(log_volume), 0.0).sum() / total
    with np.errstate(divide="ignore"):
        log_floor = np.broadcast_to(np.log(floor), s.shape)
    found: Floats = np.exp(log_s - log_volume) * omega
    if np.all(found >= floor):
        return found
    # above the floor are those with the largest quotients s / floor: sums if only the first m are
    order = np.argsort(log_floor - log_s, axis=1)
    top, bottom = np.take_along_axis(log_s, order, axis=1), np.take_along_axis(log_floor, order, axis=1)
    sums = np.cumsum(top, axis=1) + bottom.sum(axis=1, keepdims=True) - np.cumsum(bottom, axis=1)

    def multipliers(log_omega: Floats) -> Floats:
        """(m, K) ln l_k so that the mean over d of max(ln s_kd - ln l_k, ln floor_d) is ln omega, of (m,)."""
        D = sums.shape[1]
        if_m = (sums - D * log_omega[:, None, None]) / np.arange(1, D + 1)
        last = np.maximum(np.sum(if_m <= top - bottom, axis=2, keepdims=True), 1) - 1
        chosen: Floats = np.take_along_axis(if_m, last, axis=2)[..., 0]
        return chosen

    low, high = float(np.mean(log_floor[0])), float(np.max(log_s) - np.log(_TINY))
    for _ in range(_NARROWINGS):
        grid = np.linspace(low, high, _GRID)
        larger = (
            np.where(some[:, 0], np.exp(multipliers(grid)), 0.0).sum(axis=1) > total
        )  # volumes are better
        last = int(np.sum(larger)) - 1
        low, high = float(grid[max(last, 0)]), float(grid[min(last + 1, _GRID - 1)])
    log_l = multipliers(np.array([high]))[0, :, None]
    found = np.maximum(np.exp(log_s - log_l), floor)
    return found


_OF_FORM = {"free": _free, "shared": _shared, "shape": _of_one_shape, "volume": _of_one_volume}
