"""A family of densities as a mixture sees it: the components of a mixture, all at once.

n rows, K components, D features. A family is a frozen dataclass that subclasses `Family`, writes the
functions without a body, and takes the defaults of the others where they suit it. Arrays are of the namespace
of the rows. Three records belong to it:

    parameters   with `means` (K, D), a field or a property, by which starts are located
    density      what `prepare` returns: a dataclass with `constants` (K,), added to the log densities, and
                 `log_weights` (K,), both set by the mixture
    statistics   sums over rows with `weight` (K,)

Mixtures take missing entries, so `evaluate` and `sums` have to respect `block.observed` (None for complete
rows). What `evaluate` returns may be overwritten.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from latently.backend.namespace import Array, Floats, namespace
from latently.backend.placement import on_device
from latently.core.block import Block
from latently.core.tree import field_names
from latently.distributions.prior import Prior
from latently.distributions.responsibilities import Responsibilities

SMALLEST_VARIANCE = 1e-11  # for data of unit variance: quadratic forms are still accurate


class Family(Protocol):
    """Parameters, densities and statistics of K components."""

    has_floor: bool = True  # whether `floor` bounds variances; else constant features are nothing to report
    floor: Any  # (D,) smallest variances; None where parameters are known
    prior: Prior | None = None  # of variances; without one M-steps maximise the likelihood
    few_parameters: bool = False  # whether they are so few that operations on them are best done by NumPy
    isotropic: bool  # whether a component knows one scale only, so that features must keep their units

    # -- densities ------------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, params: Any, dtype: str = "float64") -> Any:
        """What blocks need of the parameters, computed once per sweep; it has a field `constants` (K,)."""

    @abstractmethod
    def evaluate(self, density: Any, block: Block, *, rough: bool = False) -> tuple[Array, Any]:
        """(K, n) log densities, constants included, and what `sums` can reuse of their computation.

        With `rough`, log densities far below the largest of a row need no digits.
        """

    @abstractmethod
    def sample(self, params: Any, labels: Array, rng: np.random.Generator) -> Floats:
        """(n, D) a row for each of the components in `labels`."""

    @abstractmethod
    def marginal_variances(self, params: Any) -> Array:
        """(K, D)"""

    @abstractmethod
    def n_parameters(self, K: int, D: int) -> int:
        """Free parameters of K components, weights not counted."""

    def least_rows(self, D: int) -> int:
        """Rows that determine the parameters of a component; those with fewer are degenerate.

        Any mean describes one row exactly, so at least two.
        """
        return 2

    def at_floor(self, params: Any) -> Array:
        """(K, D) bool: features, or directions, in which a component has the smallest variance allowed."""
        return params.means < params.means

    # -- EM -------------------------------------------------------------------------------------------

    @abstractmethod
    def sums(self, density: Any, block: Block, latent: Any, resp: Responsibilities) -> Any:
        """Sums over the rows of a block; their field `weight` (K,) is the sum of responsibilities."""

    def stats(self, density: Any, sums: Any) -> Any:
        """Statistics from the sums of all blocks."""
        return sums

    @abstractmethod
    def m_step(self, stats: Any, params: Any) -> Any:
        """The maximiser of Q plus the log prior, if there is one, above the floor."""

    def log_prior(self, params: Any) -> float:
        """The log prior density of the parameters, which is zero at its maximum and without a prior."""
        if self.prior is None:
            return 0.0
        by_component = self.log_priors(params)
        return float(namespace(by_component).sum(by_component))

    def log_priors(self, params: Any) -> Array:
        """The log prior densities (K,) of the components, or of what they share (1,), if there is a prior."""
        name = type(self).__name__
        raise NotImplementedError(f"{name} has no prior")

    def with_prior(self, prior: Prior | None) -> Any:
        """The same family with another prior."""
        return replace(self, prior=prior)  # type: ignore[type-var]

    def noise_above(self, floor: Array, noise: Array) -> Array:
        """Noise variances bounded below by the floor; without a floor a vanishing one is an error."""
        xp = namespace(noise)
        noise = xp.maximum(noise, xp.broadcast_to(floor, noise.shape))
        waits = on_device(noise) and self._floor_suffices  # else NaN is all that could be found here
        if not waits and not bool(xp.all(noise > SMALLEST_VARIANCE)):
            raise ValueError(
                f"a noise variance fell below {SMALLEST_VARIANCE:g} of its feature's variance, where float64 "
                "has no digits left; set noise_floor above that, or use fewer components or factors"
            )
        return noise

    @cached_property
    def _floor_suffices(self) -> bool:
        """Whether no variance above the floor is too small."""
        return bool(namespace(self.floor).all(self.floor > SMALLEST_VARIANCE))

    @property
    def separate(self) -> bool:
        """Whether components share no parameters, so that those of several mixtures can be stacked."""
        return False

    @abstractmethod
    def rounding(self, density: Any) -> float:
        """How much of a log density may be lost to rounding, relative to its size."""

    def roundings(self, density: Any, n_runs: int) -> list[float]:
        """The same of each of several mixtures, whose `separate` components are stacked."""
        name = type(self).__name__
        raise NotImplementedError(f"components of {name} cannot be stacked")

    @abstractmethod
    def from_partition(self, X: Any, weight: Any, labels: Array, means: Any) -> Any:
        """Starting values from a partition of rows, and the means (K, D) of its parts.

        The rows are in main memory, except for families that are `separate`.
        """

    def conditionals(self) -> list[Any]:
        """Families for steps over some parameters with the others fixed."""
        return []

    def canonical(self, params: Any) -> Any:
        """The same density in preferred coordinates, if there is a choice."""
        return params

    def clamped(self, params: Any) -> Any:
        """The nearest parameters above the floor."""
        return params

    def most_per_row(self, K: int) -> float:
        """Up to how many responsibilities per row sparse products are faster; below zero for never."""
        return -1.0

    def floats_per_row(self, K: int, D: int, missing: bool) -> int:
        """Temporary numbers that a row takes."""
        return 4 * (D + K)

    # -- coordinates ----------------------------------------------------------------------------------

    @abstractmethod
    def moved(self, params: Any, weights: Array, shift: Array, scale: Array) -> Any:
        """The parameters of shift + scale * x."""

    # -- optional -------------------------------------------------------------------------------------

    def coordinates(self, params: Any) -> tuple[Array, ...]:
        """For every field of the parameters an array of the same shape, unconstrained."""
        name = type(self).__name__
        raise NotImplementedError(f"{name} has no vector of parameters; use accelerate=None")

    def from_coordinates(self, *arrays: Array) -> Any:
        """The parameters of such arrays; a ValueError where there are none."""
        name = type(self).__name__
        raise NotImplementedError(f"{name} has no vector of parameters; use accelerate=None")

    def to_vector(self, params: Any) -> Array:
        """All parameters as one unconstrained vector, for SQUAREM."""
        return flattened(self.coordinates(params))

    def from_vector(self, vector: Array, like: Any) -> Any:
        """The parameters of a vector; a ValueError where there are none."""
        return self.from_coordinates(*unflattened(vector, like))

    def implied_stats(self, params: Any, weights: Array) -> Any:
        """Statistics whose M-step gives these parameters, for components of these weights."""
        raise NotImplementedError(f"{type(self).__name__} cannot continue from parameters alone")

    def expected(self, density: Any, block: Block, latent: Any, resp: Array) -> Array:
        """(n, D) expected rows given what was observed, averaged over components."""
        raise NotImplementedError(f"{type(self).__name__} cannot impute missing entries")

    def moments_given(self, density: Any, block: Block, latent: Any, k: int) -> tuple[Array, Array]:
        """Means and variances (n, D) of missing entries, given the observed ones and component k."""
        raise NotImplementedError(f"{type(self).__name__} has no standard errors of imputed entries")

    def draw(
        self, density: Any, block: Block, latent: Any, labels: Array, rng: np.random.Generator
    ) -> Floats:
        """(n, D) rows whose missing entries are drawn given the observed ones and the component."""
        raise NotImplementedError(f"{type(self).__name__} cannot draw missing entries")


def flattened(arrays: Sequence[Array], n_runs: int | None = None) -> Array:
    """(p,) all numbers, one array after the other; with `n_runs` (S, p), those of each run."""
    xp = namespace(arrays[0])
    shape = (-1,) if n_runs is None else (n_runs, -1)
    return xp.concat([xp.reshape(array, shape) for array in arrays], axis=-1)


def unflattened(vector: Array, like: Any) -> list[Array]:
    """Arrays of the shapes of the fields of `like`, from such a vector, or from vectors (S, p) of runs."""
    xp, start, found = namespace(vector), 0, []
    n_runs = 1 if vector.ndim == 1 else vector.shape[0]
    kind: Any = type(like)
    for name in field_names(kind):
        shape = getattr(like, name).shape
        size = math.prod(shape) // n_runs
        found.append(xp.reshape(vector[..., start : start + size], shape))
        start += size
    return found
