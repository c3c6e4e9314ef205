"""Several runs as one: mixtures with different parameters over the same rows.

S mixtures of K components have S K components, which go through the same products as those of one mixture;
only responsibilities are normalised within each mixture. On small tables a pass takes as long for a dozen
mixtures as for two or three, and accelerators have enough to do. Components must share no parameters
(`Family.separate`).

    flat component  s K + k   <->   component k of mixture s

Memory is that of S mixtures, so the number of mixtures at once is bounded (`Runs.at_once`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latently.backend.namespace import Array, namespace
from latently.core.block import Block
from latently.core.tree import field_names
from latently.distributions.family import flattened, unflattened
from latently.distributions.mixture import DEAD, Mixture, MixtureParams, MixtureStats
from latently.distributions.responsibilities import respond_in_groups

_EPS = float(np.finfo(np.float64).eps)
_NUMBERS = 400_000  # rows times components times features of all mixtures at once; measured


@dataclass(frozen=True)
class Stacked(Mixture):
    """The kernel of S mixtures; the log-likelihoods and log priors of its statistics are (S,)."""

    n_runs: int = 1

    def sums(self, density: Any, block: Block) -> MixtureStats:
        # never rough: what is negligible beside a component of another mixture may matter in its own
        log_joint, latent = self.tempered(density, block, rough=False)
        log_norm, resp = respond_in_groups(log_joint, block.weight, block.allowed, self.n_runs)
        sums = self.family.sums(density, block, latent, resp)
        log_likelihood = self.temperature * (log_norm @ resp.by_row)
        return MixtureStats(log_likelihood, namespace(block.X).sum(resp.by_row), sums)

    def log_priors(self, params: MixtureParams) -> Array:
        """(S,)"""
        by_component = self.family.log_priors(params.components)
        return namespace(by_component).sum(self._by_run(by_component), axis=1)

    def roundings(self, density: Any) -> list[float]:
        """S numbers, as `rounding` gives one."""
        return [32.0 * (_EPS + one) for one in self.family.roundings(density, self.n_runs)]

    def _by_run(self, array: Array) -> Array:
        return namespace(array).reshape(array, (self.n_runs, -1))


@dataclass(frozen=True)
class Runs:
    """What runs of one kernel need to go together."""

    kernel: Mixture

    def at_once(self, n_rows: int, n_features: int, n_components: int) -> int:
        """How many mixtures are best stacked for so many rows in main memory; one if that gains nothing."""
        return max(1, _NUMBERS // max(1, n_rows * n_features * n_components))

    def stacked(self, n_runs: int) -> Stacked:
        return Stacked(self.kernel.family, self.kernel.dtype, n_runs, temperature=self.kernel.temperature)

    def stack(self, params: Sequence[MixtureParams]) -> MixtureParams:
        """The components of all, one after the other."""
        xp = namespace(params[0].weights)
        kind: Any = type(params[0].components)
        arrays = [
            xp.concat([getattr(one.components, name) for one in params], axis=0) for name in field_names(kind)
        ]
        return MixtureParams(xp.concat([one.weights for one in params]), kind(*arrays))

    def unstack(self, params: MixtureParams, n_runs: int) -> list[MixtureParams]:
        K = params.weights.shape[0] // n_runs
        kind: Any = type(params.components)
        arrays = [getattr(params.components, name) for name in field_names(kind)]
        bounds = [(s * K, (s + 1) * K) for s in range(n_runs)]
        return [
            MixtureParams(params.weights[a:b], kind(*(array[a:b, ...] for array in arrays)))
            for a, b in bounds
        ]

    def to_vectors(self, params: Sequence[MixtureParams]) -> Array:
        """(S, p) the vector of each run."""
        joined = self.stack(params)
        xp = namespace(joined.weights)
        log_weights = xp.log(xp.clip(joined.weights, min=DEAD))
        return flattened((log_weights, *self.kernel.family.coordinates(joined.components)), len(params))

    def from_vectors(self, vectors: Array, like: Sequence[MixtureParams]) -> list[MixtureParams]:
        """The parameters of every vector; a ValueError if any has none."""
        xp, S, joined = namespace(vectors), len(like), self.stack(like)
        K = joined.weights.shape[0] // S
        log_weights = vectors[:, :K] - xp.max(vectors[:, :K], axis=1, keepdims=True)
        dead = xp.reshape(joined.weights, (S, K)) <= DEAD
        weights = xp.where(dead, 0.0, xp.exp(log_weights))
        weights = xp.reshape(weights / xp.sum(weights, axis=1, keepdims=True), (S * K,))
        arrays = unflattened(vectors[:, K:], joined.components)
        components = self.kernel.family.from_coordinates(*arrays)
        return self.unstack(MixtureParams(weights, components), S)


def can_be_stacked(kernel: Any) -> bool:
    """Whether runs of the kernel can go together: plain mixtures of components that share nothing.

    A prior of its own for every component would have to be repeated; such are left alone. So are families
    with steps over some of their parameters.
    """
    if type(kernel) is not Mixture or not kernel.family.separate or kernel.family.conditionals():
        return False
    prior = kernel.family.prior
    return prior is None or prior.scale.ndim == (2 if _is_full(kernel.family) else 1)


def with_components(params: MixtureParams, parts: Array, others: MixtureParams) -> MixtureParams:
    """The mixture with some components, `parts`, replaced by those of another one; NumPy arrays."""
    weights = params.weights.copy()
    kind: Any = type(params.components)
    weights[parts] = others.weights * weights[parts].sum()
    arrays = [getattr(params.components, name).copy() for name in field_names(kind)]
    for array, name in zip(arrays, field_names(kind), strict=True):
        array[parts] = getattr(others.components, name)
    return MixtureParams(weights, kind(*arrays))


def _is_full(family: Any) -> bool:
    return not hasattr(family, "n_factors")
