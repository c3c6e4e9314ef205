"""A mixture of any family.

    k ~ pi,   x | k ~ family(parameters of k)

Generic over families, which define the density of a row and the statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from latently.backend.namespace import Array, Floats, like, namespace, to_numpy
from latently.core.block import Block
from latently.core.kernel import Kernel
from latently.core.tree import add, changed, mapped
from latently.distributions.responsibilities import normalise, respond

DEAD = 1e-300  # a component with less weight is dead
_FEW_NUMBERS = 100_000  # components times rows times features; measured
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class MixtureParams:
    weights: Array  # (K,), sum to one
    components: Any  # the family's parameters


@dataclass(frozen=True)
class MixtureStats:
    log_likelihood: Array  # sum of w log p(x)
    total_weight: Array  # sum of w
    components: Any  # the family's sums, then its statistics; their `weight` (K,) is the sum of w r


@dataclass(frozen=True)
class Mixture(Kernel):
    """The kernel that the engine runs. Wide matrix products are done in `dtype`, all else in float64."""

    family: Any  # Family
    dtype: str = "float64"
    temperature: float = field(default=1.0, kw_only=True)  # see mixture/annealing.py
    labels_are_components = True  # labels are components that rows may come from
    may_leave_empty = False  # the objective tells whether fewer components are better

    def conditionals(self, missing: bool) -> list[Mixture]:
        """Kernels for partial steps over some parameters, if there are any for such data."""
        if missing:
            return []
        return [replace(self, family=family) for family in self.family.conditionals()]

    def in_main_memory(self) -> Mixture:
        return replace(self, family=mapped(_as_numpy, self.family))

    def log_prior(self, params: MixtureParams) -> float:
        return float(self.family.log_prior(params.components))

    def of_unit_weight(self, weight: float) -> Mixture:
        if getattr(self.family, "prior", None) is None:
            return self
        return replace(self, family=self.family.with_prior(self.family.prior.times(1.0 / weight)))

    def floats_per_row(self, K: int, D: int, missing: bool) -> int:
        return int(self.family.floats_per_row(K, D, missing))

    def prepare(self, params: MixtureParams) -> Any:
        """The family's density with log weights in its constants: it evaluates to ln pi_k p(x | k)."""
        xp = namespace(params.weights)
        alive = params.weights > 0
        log_weights = xp.where(alive, xp.log(xp.where(alive, params.weights, 1.0)), -xp.inf)
        density = self.family.prepare(params.components, self.dtype)
        return changed(density, constants=density.constants + log_weights, log_weights=log_weights)

    def e_step(self, density: Any, block: Block) -> MixtureStats:
        if block.observed is not None:  # complete rows are faster separately
            complete, incomplete = block.apart(namespace(block.X).all(block.observed, axis=1))
            if complete is not None:
                sums = self.e_step(density, replace(complete, observed=None))
                return sums if incomplete is None else add(self.e_step(density, incomplete), sums)
        return self.sums(density, block)

    def sums(self, density: Any, block: Block) -> MixtureStats:
        """Sums over rows that are all complete or all incomplete."""
        xp = namespace(block.X)
        log_joint, latent = self.tempered(density, block, rough=True)
        # to gather rows pays where their products take longer than the calls
        small = log_joint.shape[0] * block.X.shape[0] * block.X.shape[1] <= _FEW_NUMBERS
        most_per_row = -1.0 if small else self.family.most_per_row(log_joint.shape[0])
        allowed = self.assigned(log_joint, block.allowed)
        # a row without a finite density makes the objective infinite or NaN, which ends the fit
        log_norm, resp = respond(log_joint, block.weight, allowed, most_per_row, checked=False)
        sums = self.family.sums(density, block, latent, resp)
        log_likelihood = self.temperature * xp.sum(resp.by_row * log_norm)
        return MixtureStats(log_likelihood, xp.sum(resp.by_row), sums)

    def tempered(self, density: Any, block: Block, *, rough: bool) -> tuple[Array, Any]:
        """ln pi_k p(x | k) (K, n) over the temperature, and what the family found beside it."""
        if self.temperature == 1.0:
            found: tuple[Array, Any] = self.family.evaluate(density, block, rough=rough)
            return found
        log_joint, latent = self.family.evaluate(density, block)  # what is negligible at T = 1 is needed
        return log_joint / self.temperature, latent

    def posterior(self, density: Any, block: Block) -> tuple[Array, Array]:
        """ln p(x) (n,) of the observed entries, and the posterior probabilities (K, n) of the components."""
        return normalise(self.family.evaluate(density, block)[0])

    def most_probable(self, resp: Array) -> Array:
        """(n,) the components with the largest posterior probabilities (n, K)."""
        return namespace(resp).argmax(resp, axis=1)

    def of_family(self, density: Any) -> Any:
        """The density that the functions of the family take."""
        return density

    def assigned(self, log_joint: Array, allowed: Array | None) -> Array | None:
        """(n, K) bool: the components among which rows are divided, of those that are allowed."""
        return allowed

    def stats(self, density: Any, sums: MixtureStats) -> MixtureStats:
        """The statistics of a sweep from its sums."""
        components = self.family.stats(density, sums.components)
        return MixtureStats(sums.log_likelihood, sums.total_weight, components)

    def m_step(self, stats: MixtureStats, params: MixtureParams) -> MixtureParams:
        """pi_k = N_k / N, and the M-step of the family."""
        return changed(
            params,
            weights=stats.components.weight / stats.total_weight,
            components=self.family.m_step(stats.components, params.components),
        )

    def implied_stats(self, params: MixtureParams) -> MixtureStats:
        """Expected statistics per unit of weight, for stepwise EM to continue from parameters alone."""
        one = params.weights / namespace(params.weights).sum(params.weights)
        components = self.family.implied_stats(params.components, one)
        total = namespace(one).sum(one)
        return MixtureStats(0.0 * total, total, components)

    def rounding(self, density: Any) -> float:
        return 32.0 * (_EPS + float(self.family.rounding(density)))

    def clamped(self, params: MixtureParams) -> MixtureParams:
        return replace(params, components=self.family.clamped(params.components))

    def canonical(self, params: MixtureParams) -> MixtureParams:
        """The same density in normalised coordinates, if the family has several."""
        components = self.family.canonical(params.components)
        return params if components is params.components else changed(params, components=components)

    def moved(self, params: MixtureParams, shift: Array, scale: Array) -> MixtureParams:
        """The parameters of the mixture of shift + scale * x."""
        moved = self.family.moved(params.components, params.weights, shift, scale)
        return replace(params, components=moved)

    def to_vector(self, params: MixtureParams) -> Array:
        """All parameters as one unconstrained vector: log weights, then those of the family."""
        xp = namespace(params.weights)
        log_weights = xp.log(xp.clip(params.weights, min=DEAD))
        return xp.concat([log_weights, self.family.to_vector(params.components)])

    def from_vector(self, vector: Array, like: MixtureParams) -> MixtureParams:
        """The parameters of a vector; dead components stay dead."""
        xp = namespace(vector)
        K = like.weights.shape[0]
        log_weights = vector[:K] - xp.max(vector[:K])
        weights = xp.where(like.weights > DEAD, xp.exp(log_weights), 0.0)
        components = self.family.from_vector(vector[K:], like.components)
        return MixtureParams(weights / xp.sum(weights), components)

    def from_partition(
        self, X: Array, weight: Array, labels: Array, means: Array, allowed: Array | None = None
    ) -> MixtureParams:
        """Starting values from a partition of some rows and the means of its K parts.

        An empty part gets one percent of an equal weight, so that its component is not dead from the start.
        """
        K = means.shape[0]
        sizes = np.bincount(to_numpy(labels), weights=to_numpy(weight), minlength=K)
        sizes = np.maximum(sizes, sizes.sum() / (100 * K))
        components = self.family.from_partition(X, weight, labels, means)
        return MixtureParams(like(sizes / sizes.sum(), means), components)

    def sample(self, params: MixtureParams, n_samples: int, rng: np.random.Generator) -> tuple[Floats, Array]:
        """Rows (n, D) and their components (n,)."""
        labels = rng.choice(len(params.weights), size=n_samples, p=params.weights / params.weights.sum())
        return self.family.sample(params.components, labels, rng), labels

    def moments(self, params: MixtureParams) -> tuple[Array, Array]:
        """Mean (D,) and standard deviations (D,) of the mixture."""
        xp = namespace(params.weights)
        pi, mu = params.weights[:, None], params.components.means
        mean = mu[0, :] + xp.sum(pi * (mu - mu[0, :]), axis=0)  # exact if all components agree
        within = self.family.marginal_variances(params.components)
        return mean, xp.sqrt(xp.sum(pi * (within + (mu - mean) ** 2), axis=0))

    def imputed(self, density: Any, block: Block) -> Array:
        """(n, D) rows whose missing entries are their posterior means; for a block that has some."""
        return expected_rows(self, density, block)

    def moments_of_missing(self, density: Any, block: Block) -> tuple[Array, Array]:
        """Means and variances (n, D) of missing entries given the observed ones; for a block that has some.

        The variance is that within components and that of the means of the components, weighted with r.
        """
        density = self.of_family(density)
        log_joint, latent = self.family.evaluate(density, block)
        resp = normalise(log_joint)[1]
        mean = self.family.expected(density, block, latent, resp.T)
        variance = namespace(mean).zeros_like(mean)
        for k in range(resp.shape[0]):
            its_mean, its_variance = self.family.moments_given(density, block, latent, k)
            variance = variance + resp[k, :, None] * (its_variance + (its_mean - mean) ** 2)
        return mean, variance

    def drawn(self, density: Any, block: Block, n_draws: int, rng: np.random.Generator) -> Floats:
        """(n, n_draws, D) rows whose missing entries are drawn given the observed ones, if it has some."""
        log_joint, latent = self.family.evaluate(density, block)
        resp = to_numpy(normalise(log_joint)[1])
        rows = np.empty((len(block), n_draws, block.X.shape[1]))
        for i in range(n_draws):
            rows[:, i] = self.family.draw(density, block, latent, drawn_labels(resp, rng), rng)
        return rows


def responsibilities(kernel: Mixture, density: Any, block: Block) -> Array:
    """(n, K) posterior probabilities of the components, and of noise if there is any."""
    return kernel.posterior(density, block)[1].T


def log_density(kernel: Mixture, density: Any, block: Block) -> Array:
    """(n,) ln p(x) of the observed entries."""
    return kernel.posterior(density, block)[0]


def expected_rows(kernel: Mixture, density: Any, block: Block) -> Array:
    """(n, D) posterior mean of missing entries; for observed entries the reconstruction of the family.

    Averaged over the components; noise, if there is any, has no part in it.
    """
    density = kernel.of_family(density)
    log_joint, latent = kernel.family.evaluate(density, block)
    return kernel.family.expected(density, block, latent, normalise(log_joint)[1].T)


def drawn_labels(resp: Floats, rng: np.random.Generator) -> Array:
    """(n,) a component for each row, drawn with its posterior probabilities (K, n)."""
    cumulated = np.cumsum(resp, axis=0)
    return np.sum(cumulated < rng.random(resp.shape[1]) * cumulated[-1], axis=0)


def _as_numpy(value: Any) -> Any:
    """Arrays; sizes of families stay numbers, NumPy's too, which have a shape."""
    return to_numpy(value) if hasattr(value, "shape") and not isinstance(value, np.generic) else value
