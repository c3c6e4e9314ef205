"""One low-rank Gaussian fitted to the mean and scatter of the rows, its sufficient statistics.

With more rows than features the data are read once; the iterations have no cost per row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from latently.backend.linalg import leading_eigenpairs, symmetric, with_fixed_signs
from latently.backend.namespace import Array, Floats, like, namespace, ones, to_numpy
from latently.core.block import Block
from latently.core.drivers import Step
from latently.distributions.low_rank import LowRankGaussian, LowRankParams
from latently.distributions.mixture import Mixture, MixtureParams, MixtureStats
from latently.distributions.prior import Prior


@dataclass(frozen=True)
class Moments:
    weight: Array  # ()      sum of w
    sum_x: Array  # (D,)     sum of w x
    sum_xx: Array  # (D, D)  sum of w x x'

    @property
    def mean(self) -> Array:
        return self.sum_x / self.weight

    @property
    def scatter(self) -> Array:
        """Sum of w (x - mean)(x - mean)'."""
        return symmetric(self.sum_xx - self.weight * (self.mean[:, None] * self.mean[None, :]))


def total_moments(sweep: Any) -> Moments:
    """The moments of all rows, which must be complete, in one pass."""
    total: Moments = sweep.sum(_moments)
    return total


def _moments(block: Block) -> Moments:
    xp = namespace(block.X)
    weighted = block.X if block.weight is None else block.X * block.weight[:, None]
    total = xp.sum(block.weight) if block.weight is not None else xp.sum(ones((len(block),), block.X))
    return Moments(total, xp.sum(weighted, axis=0), weighted.T @ block.X)


def moment_step(
    kernel: Mixture, moments: Moments, log_volume: float
) -> Callable[[MixtureParams], Step[MixtureParams]]:
    """The EM step of a single component, from moments instead of rows."""
    mean, scatter = moments.mean, moments.scatter

    def step(params: MixtureParams) -> Step[MixtureParams]:
        density = kernel.prepare(params)
        log_likelihood, sums = kernel.family.sums_of_moments(density, moments.weight, mean, scatter)
        objective = float((log_likelihood + kernel.log_prior(params)) / moments.weight) - log_volume
        stats = kernel.stats(density, MixtureStats(log_likelihood, moments.weight, sums))
        return Step(objective, kernel.rounding(density), lambda: kernel.m_step(stats, params))

    return step


def principal_fit(family: LowRankGaussian, sweep: Any, n_rows: int) -> MixtureParams:
    """Probabilistic PCA in closed form: W = U (Lambda - sigma^2)^1/2, sigma^2 the mean of the rest.

    Uses the D x D covariance, or the n x n products of the rows if there are fewer rows.
    """
    D, q = family.floor.shape[0], family.n_factors
    kept = min(q, D - 1)  # with q = D the last axis has the variance of the noise, and length zero
    if n_rows > D:
        moments = total_moments(sweep)
        n = float(moments.weight)
        mean, covariance = to_numpy(moments.mean), to_numpy(moments.scatter / moments.weight)
        total = float(np.trace(covariance))
        values, vectors = np.zeros(0), np.zeros((D, 0))
        if kept:
            values, vectors = linalg.eigh(covariance, subset_by_index=[D - kept, D - 1])
            values, vectors = values[::-1], with_fixed_signs(vectors[:, ::-1])
    else:
        rows, weight = sweep.reduce(_rows, _joined)
        n = float(weight.sum())
        mean = np.average(rows, axis=0, weights=weight)
        rows = (rows - mean) * np.sqrt(weight / weight.sum())[:, None]
        total = float(np.sum(rows**2))
        values, vectors = leading_eigenpairs(rows, kept)
    noise = max(0.0, total - float(values.sum())) / (D - kept)
    if family.prior is not None:
        noise = _noise_with_prior(total, values, D, n, family.prior)
    noise = max(noise, float(np.mean(to_numpy(family.floor))))
    loadings = np.zeros((D, q))
    loadings[:, : len(values)] = vectors * np.sqrt(np.maximum(values - noise, 0.0))
    arrays = (np.ones(1), mean[None, :], loadings[None, :, :], np.full((1, D), noise))
    weights, *params = (like(array, family.floor) for array in arrays)
    return MixtureParams(weights, family.clamped(LowRankParams(*params)))


def _noise_with_prior(total: float, values: Floats, D: int, weight: float, prior: Prior) -> float:
    """sigma^2: the mean of the eigenvalues it has to explain, and of the pseudo-rows of the prior.

    An axis whose eigenvalue is below sigma^2 has length zero, so the noise has to explain it as well.
    """
    scale = float(np.mean(to_numpy(prior.scale)))
    for kept in range(len(values), -1, -1):
        rest = max(0.0, total - float(values[:kept].sum()))
        noise = (weight * rest + prior.rows * D * scale) / (weight * (D - kept) + prior.rows * D)
        if kept == 0 or noise <= values[kept - 1]:
            break
    return noise


def _rows(block: Block) -> tuple[Floats, Floats]:
    """The rows and their weights, in main memory."""
    weight = np.ones(len(block)) if block.weight is None else to_numpy(block.weight)
    return to_numpy(block.X), weight


def _joined(a: tuple[Floats, Floats], b: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    return np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
