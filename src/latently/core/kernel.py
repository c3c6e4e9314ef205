"""A model as the engine sees it: pure functions of parameters, rows and statistics.

A kernel subclasses `Kernel`, writes the functions without a body, and takes the defaults of the others as
they are where they suit it. It holds hyper-parameters only, never data or state.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol

from latently.backend.namespace import Array


class Evaluated(Protocol):
    """What statistics always hold: the objective summed over rows, and the weight of these rows."""

    @property
    def log_likelihood(self) -> Any: ...

    @property
    def total_weight(self) -> Any: ...


class Kernel(Protocol):
    """What EM asks of a model."""

    # -- one EM step ----------------------------------------------------------------------------------

    @abstractmethod
    def prepare(self, params: Any) -> Any:
        """What every block needs of the parameters, computed once per sweep."""

    @abstractmethod
    def e_step(self, density: Any, block: Any) -> Evaluated:
        """Sums over the rows of a block."""

    def stats(self, density: Any, sums: Any) -> Evaluated:
        """The statistics of all rows, from the sums of all blocks."""
        evaluated: Evaluated = sums
        return evaluated

    @abstractmethod
    def m_step(self, stats: Any, params: Any) -> Any:
        """The parameters that maximise Q + log prior; `params` are kept where the statistics are empty."""

    @abstractmethod
    def rounding(self, density: Any) -> float:
        """How much of the objective per row may be lost to rounding."""

    # -- what most kernels leave as it is ---------------------------------------------------------------

    def log_prior(self, params: Any) -> float:
        """What the objective adds to the log-likelihood of all rows; it must not depend on the frame."""
        return 0.0

    def of_unit_weight(self, weight: float) -> Any:
        """The kernel for statistics per unit of weight, of rows of this total weight; a prior has to know."""
        return self

    @property
    def checked(self) -> bool:
        """Whether steps are attempts, taken only if they do not lower the objective."""
        return False

    @property
    def sure(self) -> bool:
        """Whether `m_step` itself never lowers the objective."""
        return True

    def attempt(self, stats: Any, params: Any, caution: float) -> Any:
        """A longer step than `m_step`, or one that `m_step` cannot take, shorter with more caution (>= 1)."""
        return self.m_step(stats, params)

    def canonical(self, params: Any) -> Any:
        """The same model in its preferred coordinates; applied between steps."""
        return params

    def conditionals(self, missing: bool) -> list[Any]:
        """Kernels for steps over some parameters with the others fixed, taken before the full step."""
        return []

    def clamped(self, params: Any) -> Any:
        """The nearest parameters that respect the floors."""
        return params

    def moved(self, params: Any, shift: Array, scale: Array) -> Any:
        """The parameters of the model of shift + scale * x."""
        return params

    def in_main_memory(self) -> Any:
        """The kernel with its arrays, if it has any, as NumPy arrays."""
        return self

    def floats_per_row(self, n_components: int, n_features: int, missing: bool) -> int:
        """Temporary numbers that a row takes in the kernel; it decides how many rows make a block."""
        return 4 * (n_features + n_components)

    # -- optional: acceleration, stepwise EM, drawing rows ------------------------------------------------

    def to_vector(self, params: Any) -> Array:
        """All parameters as one unconstrained vector, for SQUAREM."""
        raise NotImplementedError(f"{type(self).__name__} has no vector of parameters; use accelerate=None")

    def from_vector(self, vector: Array, like: Any) -> Any:
        """The parameters of a vector, shaped like others; a ValueError where there are none."""
        raise NotImplementedError(f"{type(self).__name__} has no vector of parameters; use accelerate=None")

    def implied_stats(self, params: Any) -> Any:
        """Statistics of unit weight whose M-step gives these parameters, to continue from by stepwise EM."""
        raise NotImplementedError(f"{type(self).__name__} cannot continue from parameters alone")

    def sample(self, params: Any, n_samples: int, rng: Any) -> tuple[Any, Any]:
        """Rows (n, D) and their latent states."""
        raise NotImplementedError(f"{type(self).__name__} cannot be sampled from")
