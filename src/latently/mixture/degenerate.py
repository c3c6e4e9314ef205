"""Degenerate components: those that describe a few rows, or a subspace, exactly.

The likelihood of a mixture grows without bound as a component shrinks around rows that it can fit exactly:
any q + 1 rows for q factors, any D rows for a full covariance. Such an optimum says nothing about the data,
and no more does a component that is the mean of one row, whatever it shares with others. A component is
called degenerate if it has fewer rows than its family needs (`Family.least_rows`), or if it has reached the
floor in most features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latently.backend.namespace import Array, to_numpy
from latently.core.block import Block
from latently.distributions.mixture import Mixture, MixtureParams, responsibilities

_ROUNDING = 0.5  # of a row, since rows are shared among components
_MOST = 0.5  # share of the features
_SHOWN = 3  # components named in a warning


@dataclass(frozen=True)
class Degenerate:
    number: int  # of the component
    rows: float  # sum of responsibilities
    least_rows: int  # that its family needs

    def __str__(self) -> str:
        if self.rows < self.least_rows - _ROUNDING:
            return f"{self.number} has {self.rows:.1f} rows, but needs {self.least_rows}"
        return f"{self.number} with {self.rows:.0f} rows has noise at noise_floor in most features"


def degenerate_components(
    kernel: Mixture, params: MixtureParams, rows: float, varying: Array | None = None
) -> list[Degenerate]:
    """The degenerate components of a mixture fitted to `rows` rows, in the frame of the fit.

    With the features that are not constant, `varying` (D,), also those at the floor. A single component has
    all rows, and a component without any has no effect; neither is degenerate.
    """
    weights = to_numpy(params.weights)
    if len(weights) == 1 or not hasattr(kernel.family, "least_rows"):
        return []
    least = kernel.family.least_rows(params.components.means.shape[1])
    counts = weights * rows
    found = (counts < least - _ROUNDING) & (counts > _ROUNDING)
    if varying is not None:
        of = to_numpy(varying)
        floored = to_numpy(kernel.family.at_floor(params.components))[:, of]
        found |= (np.mean(floored, axis=1) > _MOST) if floored.shape[1] else False
    return [Degenerate(int(k), float(counts[k]), least) for k in np.flatnonzero(found)]


def is_degenerate(kernel: Any, params: Any, rows: float) -> bool:
    """Whether any component has too few of `rows` rows; for ranking starts."""
    return bool(degenerate_components(kernel, params, rows))


def without_degenerate(kernel: Any, params: Any, block: Block) -> Block | None:
    """The rows of all components that are not degenerate; None if these are too few to fit the mixture."""
    weight: Any = block.weight
    rows = max(float(np.sum(weight)), float(len(block)))
    numbers = [one.number for one in degenerate_components(kernel, params, rows)]
    shares = responsibilities(kernel, kernel.prepare(params), block)
    kept = np.flatnonzero(~np.isin(np.argmax(shares, axis=1), numbers))
    return block.take(kept) if len(params.weights) <= len(kept) < len(block) else None


def described(found: list[Degenerate], model: str, *, robust: bool = False) -> str:
    """A warning, with the cure; `robust` if the model could have a noise component, and has none."""
    named = "; ".join(f"component {one}" for one in found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        f"{model} has degenerate components, which the rows do not determine: {named}{more}. Use fewer "
        "components or factors, a larger prior (such as prior=5), or a larger noise_floor"
        + ("; if rows lie far from all others, noise_component=True" if robust else "")
    )
