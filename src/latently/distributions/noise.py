"""A mixture of any family beside uniform noise, which takes the rows that fit no component.

    x ~ noise with probability pi_0, else from component k with probability pi_k;   sum_k pi_k = 1 - pi_0
    p(x | noise) = prod_d 1 / (high_d - low_d)

over the box from `low` to `high`, the smallest and largest observed value of every feature; of a row with
missing entries the product is over the observed features. The box is known, not estimated, so noise adds a
constant to the density of a row and one parameter, pi_0, of at most a half: most rows are not noise.

Only rows that were not fitted can lie beyond the box. Their density has no part of noise, but they are judged
as if noise went on there: far from all components, a row is noise rather than one of the nearest component.
Banfield & Raftery (1993), Biometrics 49. Formulas: docs/robust.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latently.backend.namespace import Array, Floats, namespace, ones, to_numpy
from latently.core.block import Block
from latently.distributions.mixture import (
    DEAD,
    Mixture,
    MixtureParams,
    MixtureStats,
    drawn_labels,
    expected_rows,
)
from latently.distributions.responsibilities import normalise, respond

NOISE = -1  # the label of rows of noise
LARGEST_SHARE = 0.5  # of noise
_START = 0.05  # weight of the noise
_EDGE = 1e-6  # of the width of the box, by which rows may leave it: frames round their ends


@dataclass(frozen=True)
class NoisyParams(MixtureParams):  # the weights of the components sum to one minus the weight of the noise
    noise_weight: Array  # ()
    box: Array  # (2, D): low, high


@dataclass(frozen=True)
class NoisyDensity:
    components: Any  # the family's density
    log_noise: Array  # (): ln pi_0
    log_widths: Array  # (D,)
    box: Array  # (2, D)


@dataclass(frozen=True)
class NoisyStats(MixtureStats):
    noise_weight: Array  # (): sum of w times the probability of noise


@dataclass(frozen=True)
class NoisyMixture(Mixture):
    """The kernel. A row whose label tells its component, or some of them, is not noise."""

    box: Array | None = (
        None  # (2, D): of the rows of a fit, in their frame; None to keep that of the parameters
    )

    def in_main_memory(self) -> NoisyMixture:
        box = None if self.box is None else to_numpy(self.box)
        return NoisyMixture(super().in_main_memory().family, self.dtype, box)

    # -- densities ------------------------------------------------------------------------------------

    def prepare(self, params: Any) -> NoisyDensity:
        xp = namespace(params.weights)
        alive = params.noise_weight > 0
        log_noise = xp.where(alive, xp.log(xp.where(alive, params.noise_weight, 1.0)), -xp.inf)
        log_widths = xp.log(params.box[1, :] - params.box[0, :])
        return NoisyDensity(super().prepare(params), log_noise, log_widths, params.box)

    def of_family(self, density: NoisyDensity) -> Any:
        return density.components

    def log_noise(self, density: NoisyDensity, block: Block) -> Array:
        """(n,) ln pi_0 p(x_o | noise); minus infinity for rows that must come from some component."""
        xp = namespace(block.X)
        if block.observed is None:
            log_noise = (density.log_noise - xp.sum(density.log_widths)) * ones((len(block),), block.X)
        else:
            log_noise = density.log_noise - xp.astype(block.observed, xp.float64) @ density.log_widths
        if block.allowed is None:
            return log_noise
        return xp.where(xp.all(block.allowed, axis=1), log_noise, -xp.inf)

    def posterior(self, density: NoisyDensity, block: Block) -> tuple[Array, Array]:
        """ln p(x) (n,), and posterior probabilities (K + 1, n), those of noise last."""
        xp = namespace(block.X)
        log_joint = self.family.evaluate(density.components, block)[0]
        log_noise = self.log_noise(density, block)
        log_norm, resp = normalise(xp.concat([log_joint, log_noise[None, :]]))
        low, high = density.box[0, :], density.box[1, :]
        edge = _EDGE * (high - low)
        below, above = low - edge - block.X, block.X - high - edge
        outside = (below > 0) | (above > 0)
        if block.observed is not None:
            outside = outside & block.observed
        outside = xp.any(outside, axis=1)
        if bool(xp.any(outside)):
            log_norm = xp.where(outside, normalise(log_joint)[0], log_norm)
        return log_norm, resp

    def most_probable(self, resp: Array) -> Array:
        """(n,) the components with the largest posterior probabilities (n, K + 1), -1 for noise."""
        best = super().most_probable(resp)
        return namespace(resp).where(best == resp.shape[1] - 1, NOISE, best)

    def sums(self, density: NoisyDensity, block: Block) -> NoisyStats:
        xp = namespace(block.X)
        log_joint, latent = self.family.evaluate(density.components, block, rough=True)
        most_per_row = self.family.most_per_row(log_joint.shape[0])
        log_clean, resp = respond(log_joint, block.weight, block.allowed, most_per_row)
        weight, log_noise = resp.by_row, self.log_noise(density, block)
        log_norm = xp.logaddexp(log_clean, log_noise)
        finite = xp.where(xp.isfinite(log_norm), log_norm, 0.0)
        resp = resp.scaled(xp.exp(log_clean - finite))
        noise = xp.sum(weight * xp.exp(log_noise - finite))
        sums = self.family.sums(density.components, block, latent, resp)
        return NoisyStats(xp.sum(weight * log_norm), xp.sum(weight), sums, noise)

    # -- EM -------------------------------------------------------------------------------------------

    def stats(self, density: NoisyDensity, sums: Any) -> NoisyStats:
        components = self.family.stats(density.components, sums.components)
        stats: NoisyStats = replace(sums, components=components)
        return stats

    def m_step(self, stats: Any, params: Any) -> NoisyParams:
        stepped: Any = super().m_step(stats, params)
        return _bounded(
            replace(stepped, noise_weight=stats.noise_weight / stats.total_weight), params.weights
        )

    def implied_stats(self, params: Any) -> NoisyStats:
        xp = namespace(params.weights)
        components = self.family.implied_stats(params.components, params.weights + 0.0)
        total = xp.sum(params.weights) + params.noise_weight
        return NoisyStats(0.0 * total, total, components, params.noise_weight + 0.0)

    def rounding(self, density: NoisyDensity) -> float:
        return super().rounding(density.components)

    def clamped(self, params: Any) -> NoisyParams:
        """Above the floors and, in a fit, with its box, and weights that sum to one."""
        params = super().clamped(params)
        if self.box is None:
            kept: NoisyParams = params
            return kept
        weights = (1.0 - params.noise_weight) * _shares(params.weights)
        return _bounded(replace(params, weights=weights, box=self.box), weights)

    def moved(self, params: Any, shift: Array, scale: Array) -> NoisyParams:
        moved = self.family.moved(params.components, _shares(params.weights), shift, scale)
        there: NoisyParams = replace(params, components=moved, box=shift + scale * params.box)
        return there

    def to_vector(self, params: Any) -> Array:
        xp = namespace(params.weights)
        weights = xp.concat([xp.reshape(params.noise_weight, (1,)), params.weights])
        return xp.concat([xp.log(xp.clip(weights, min=DEAD)), self.family.to_vector(params.components)])

    def from_vector(self, vector: Array, like: Any) -> NoisyParams:
        xp = namespace(vector)
        before = xp.concat([xp.reshape(like.noise_weight, (1,)), like.weights])
        size = before.shape[0]
        weights = xp.where(before > DEAD, xp.exp(vector[:size] - xp.max(vector[:size])), 0.0)
        weights = weights / xp.sum(weights)
        components = self.family.from_vector(vector[size:], like.components)
        return _bounded(NoisyParams(weights[1:], components, weights[0], like.box), like.weights)

    def from_partition(
        self, X: Floats, weight: Floats, labels: Array, means: Floats, allowed: Array | None = None
    ) -> NoisyParams:
        """The start without noise, and a little noise."""
        start = super().from_partition(X, weight, labels, means, allowed)
        box = np.stack([X.min(axis=0), X.max(axis=0)]) if self.box is None else self.box
        return NoisyParams((1.0 - _START) * start.weights, start.components, np.asarray(_START), box)

    # -- rows -----------------------------------------------------------------------------------------

    def sample(self, params: Any, n_samples: int, rng: np.random.Generator) -> tuple[Floats, Array]:
        """Rows (n, D) and their components (n,), which are -1 for noise."""
        is_noise = rng.random(n_samples) < float(params.noise_weight)
        X, labels = super().sample(params, n_samples, rng)
        X[is_noise] = _uniform(params.box, int(is_noise.sum()), rng)
        return X, np.where(is_noise, NOISE, labels)

    def moments(self, params: Any) -> tuple[Array, Array]:
        """Mean (D,) and standard deviations (D,), noise included."""
        xp = namespace(params.weights)
        mean, deviation = super().moments(replace(params, weights=_shares(params.weights)))
        low, high, noise = params.box[0, :], params.box[1, :], params.noise_weight
        step = noise * (0.5 * (low + high) - mean)
        variance = (1.0 - noise) * (deviation**2 + step**2)
        variance = variance + noise * ((high - low) ** 2 / 12.0 + (0.5 * (low + high) - mean - step) ** 2)
        return mean + step, xp.sqrt(variance)

    def imputed(self, density: NoisyDensity, block: Block) -> Array:
        noise = self.posterior(density, block)[1][-1, :, None]
        middle = 0.5 * (density.box[0, :] + density.box[1, :])
        return (1.0 - noise) * expected_rows(self, density, block) + noise * middle

    def moments_of_missing(self, density: NoisyDensity, block: Block) -> tuple[Array, Array]:
        noise = self.posterior(density, block)[1][-1, :, None]
        mean, variance = super().moments_of_missing(density, block)
        middle = 0.5 * (density.box[0, :] + density.box[1, :])
        of_noise = (density.box[1, :] - density.box[0, :]) ** 2 / 12.0
        apart = (1.0 - noise) * noise * (mean - middle) ** 2
        mixed = (1.0 - noise) * variance + noise * of_noise + apart
        return (1.0 - noise) * mean + noise * middle, mixed

    def drawn(self, density: NoisyDensity, block: Block, n_draws: int, rng: np.random.Generator) -> Floats:
        resp = to_numpy(self.posterior(density, block)[1])
        latent = self.family.evaluate(density.components, block)[1]
        rows = np.empty((len(block), n_draws, block.X.shape[1]))
        for i in range(n_draws):
            labels = drawn_labels(resp, rng)
            is_noise = labels == len(resp) - 1
            own = np.where(is_noise, 0, labels)
            rows[:, i] = self.family.draw(density.components, block, latent, own, rng)
            rows[is_noise, i] = _uniform(to_numpy(density.box), int(is_noise.sum()), rng)
        return rows


def _shares(weights: Array) -> Array:
    """(K,) the weights of the components among themselves."""
    return weights / namespace(weights).sum(weights)


def _bounded(params: Any, before: Array) -> NoisyParams:
    """The maximiser with noise of at most its largest share; components keep theirs among themselves.

    Where no component has any weight left, their shares are those of the weights `before`.
    """
    there: NoisyParams = params
    if bool(params.noise_weight <= LARGEST_SHARE):
        return there
    weights = params.weights if bool(namespace(before).any(params.weights > 0)) else before
    noise_weight = 0.0 * params.noise_weight + LARGEST_SHARE
    return replace(there, weights=(1.0 - LARGEST_SHARE) * _shares(weights), noise_weight=noise_weight)


def _uniform(box: Floats, n_rows: int, rng: np.random.Generator) -> Floats:
    """(n, D)"""
    return rng.uniform(box[0], box[1], size=(n_rows, box.shape[1]))
