"""A mixture of any family.

    k ~ pi,   x | k ~ family(parameters of k)

Written once: families say what a row's density is and what their statistics are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latently.backend.namespace import Array, Floats, namespace
from latently.core.block import Block
from latently.distributions.responsibilities import normalise

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class MixtureParams:
    weights: Array  # (K,), sum to one
    components: Any  # the family's parameters


@dataclass(frozen=True)
class MixtureDensity:
    log_weights: Array  # (K,), -inf for a component that has died
    components: Any  # the family's density


@dataclass(frozen=True)
class MixtureStats:
    log_likelihood: Array  # sum of w log p(x)
    total_weight: Array  # sum of w
    components: Any  # the family's statistics; its `weight` (K,) is the sum of w r


@dataclass(frozen=True)
class Mixture:
    """The kernel that the engine runs. Wide matrix products are done in `dtype`, all else in float64."""

    family: Any
    dtype: str = "float64"

    def prepare(self, params: MixtureParams) -> MixtureDensity:
        xp = namespace(params.weights)
        alive = params.weights > 0
        log_weights = xp.where(alive, xp.log(xp.where(alive, params.weights, 1.0)), -xp.inf)
        return MixtureDensity(log_weights, self.family.prepare(params.components, self.dtype))

    def log_joint(self, density: MixtureDensity, block: Block) -> Array:
        """ln pi_k + ln p(x | k), (n, K), in float64."""
        return self.family.evaluate(density.components, block.X)[0] + density.log_weights

    def e_step(self, density: MixtureDensity, block: Block) -> MixtureStats:
        xp = namespace(block.X)
        log_prob, latent = self.family.evaluate(density.components, block.X)
        log_norm, resp = normalise(log_prob + density.log_weights)
        if block.weight is None:
            total = xp.asarray(float(len(block)), dtype=xp.float64)
        else:
            log_norm, resp = log_norm * block.weight, resp * block.weight[:, None]
            total = xp.sum(block.weight)
        components = self.family.stats(density.components, block.X, latent, resp)
        return MixtureStats(xp.sum(log_norm), total, components)

    def m_step(self, stats: MixtureStats, params: MixtureParams) -> MixtureParams:
        """pi_k = N_k / N, and the family's own step."""
        return MixtureParams(
            stats.components.weight / stats.total_weight,
            self.family.m_step(stats.components, params.components),
        )

    def rounding(self, density: MixtureDensity) -> float:
        return 32.0 * (_EPS + float(self.family.rounding(density.components)))

    def clamped(self, params: MixtureParams) -> MixtureParams:
        return MixtureParams(params.weights, self.family.clamped(params.components))

    def moved(self, params: MixtureParams, shift: Array, scale: Array) -> MixtureParams:
        """The parameters of the mixture of shift + scale * x."""
        return MixtureParams(params.weights, self.family.moved(params.components, shift, scale))

    def from_partition(self, X: Floats, weight: Floats, labels: Array, means: Floats) -> MixtureParams:
        """Starting values from a partition of some rows and the means of its K parts.

        An empty part is given a hundredth of an equal share, lest its component be dead from the start.
        """
        sizes = np.bincount(labels, weights=weight, minlength=len(means))
        sizes = np.maximum(sizes, weight.sum() / (100 * len(means)))
        components = self.family.from_partition(X, weight, labels, means)
        return MixtureParams(sizes / sizes.sum(), components)

    def sample(self, params: MixtureParams, n_samples: int, rng: np.random.Generator) -> tuple[Floats, Array]:
        """Rows (n, D) and the components (n,) that they came from."""
        labels = rng.choice(len(params.weights), size=n_samples, p=params.weights / params.weights.sum())
        return self.family.sample(params.components, labels, rng), labels

    def moments(self, params: MixtureParams) -> tuple[Array, Array]:
        """Mean (D,) and standard deviations (D,) of the mixture."""
        xp = namespace(params.weights)
        pi, mu = params.weights[:, None], params.components.means
        mean = mu[0, :] + xp.sum(pi * (mu - mu[0, :]), axis=0)  # exact where all components agree
        within = self.family.marginal_variances(params.components)
        return mean, xp.sqrt(xp.sum(pi * (within + (mu - mean) ** 2), axis=0))


def responsibilities(kernel: Mixture, density: MixtureDensity, block: Block) -> Array:
    """(n, K) posterior probabilities of the components."""
    return normalise(kernel.log_joint(density, block))[1]


def log_density(kernel: Mixture, density: MixtureDensity, block: Block) -> Array:
    """(n,) ln p(x)."""
    return normalise(kernel.log_joint(density, block))[0]
