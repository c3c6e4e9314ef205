"""Mixtures whose components come in groups, equally many in each, one after the other.

    flat component  k J + j   <->   sub-component j of group k

`HardGroups` divides each row among the sub-components of one group only, the likeliest; `ClassGroups` has
groups that are classes, whose probabilities may be known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from latently.backend.namespace import Array, Floats, like, namespace
from latently.distributions.mixture import Mixture, MixtureParams, MixtureStats

_UNSEEN = 1e-100  # the share of a class without rows; with none at all, later rows would have no density


@dataclass(frozen=True)
class HardGroups(Mixture):
    """A flat mixture in which each row belongs to one group alone."""

    n_groups: int = 1

    def assigned(self, log_joint: Array, allowed: Array | None) -> Array:
        """(n, K J) bool: the sub-components of the one group to which each row is assigned."""
        xp = namespace(log_joint)
        if allowed is not None:
            log_joint = xp.where(allowed.T, log_joint, -xp.inf)
        n_flat, n = log_joint.shape
        grouped = xp.reshape(log_joint, (self.n_groups, n_flat // self.n_groups, n))
        largest = xp.max(grouped, axis=1)
        below = grouped - xp.where(xp.isfinite(largest), largest, 0.0)[:, None, :]
        best = xp.argmax(largest + xp.log(xp.sum(xp.exp(xp.clip(below, min=-700.0)), axis=1)), axis=0)
        group_of = like(np.repeat(np.arange(self.n_groups), n_flat // self.n_groups), best)
        return best[:, None] == group_of[None, :]


@dataclass(frozen=True)
class ClassGroups(Mixture):
    """A mixture whose components belong to classes, `n_per_class` to each."""

    n_per_class: int = 1
    class_prior: Array | None = None  # (C,), if the classes have known probabilities

    def m_step(self, stats: MixtureStats, params: MixtureParams) -> MixtureParams:
        stepped = super().m_step(stats, params)
        xp = namespace(stepped.weights)
        joint = xp.reshape(stepped.weights, (-1, self.n_per_class))
        unseen = xp.sum(joint, axis=1, keepdims=True) == 0
        joint = xp.where(unseen, _UNSEEN / self.n_per_class, joint)
        return self._with_prior(replace(stepped, weights=xp.reshape(joint, stepped.weights.shape)))

    def clamped(self, params: MixtureParams) -> MixtureParams:
        return self._with_prior(super().clamped(params))

    def from_vector(self, vector: Array, like: MixtureParams) -> MixtureParams:
        return self._with_prior(super().from_vector(vector, like))

    def from_partition(
        self, X: Floats, weight: Floats, labels: Array, means: Floats, allowed: Array | None = None
    ) -> MixtureParams:
        return self._with_prior(super().from_partition(X, weight, labels, means, allowed))

    def _with_prior(self, params: MixtureParams) -> MixtureParams:
        """The classes with their known probabilities; components keep their shares of their class."""
        if self.class_prior is None:
            return params
        xp = namespace(params.weights)
        joint = xp.reshape(params.weights, (-1, self.n_per_class))
        total = xp.sum(joint, axis=1, keepdims=True)
        there = total > 0
        pi = xp.where(there, joint / xp.where(there, total, 1.0), 1.0 / self.n_per_class)
        prior = like(self.class_prior, params.weights)[:, None]
        return replace(params, weights=xp.reshape(prior * pi, params.weights.shape))


def by_group(array: Array, n_groups: int) -> Array:
    """(K, J, ...) of an array (K J, ...)."""
    per_group = array.shape[0] // n_groups
    return namespace(array).reshape(array, (n_groups, per_group, *array.shape[1:]))


def joint_weights(group_weights: Array, weights: Array) -> Array:
    """(K J,) products of the weights (K,) of groups and those (K, J) within them."""
    return namespace(weights).reshape(group_weights[:, None] * weights, (-1,))


def split_weights(joint: Array, n_groups: int) -> tuple[Array, Array]:
    """Weights (K,) of groups and (K, J) within them; equal where a group has none."""
    xp = namespace(joint)
    grouped = by_group(joint, n_groups)
    total = xp.sum(grouped, axis=1)
    there = (total > 0)[:, None]
    within = xp.where(there, grouped / xp.where(there, total[:, None], 1.0), 1.0 / grouped.shape[1])
    return total, within
