"""Sizes of layers: from the user's options to one number for every mixture."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from latently.estimators.checks import check_integer


@dataclass(frozen=True)
class LayerSize:
    """Sizes of a layer above the first."""

    counts: list[int]  # the number of sub-components of every component below
    n_factors: int


def layer_sizes(
    n_components: int, n_factors: int, n_subcomponents: Any, n_subfactors: Any
) -> list[LayerSize]:
    """The layers above the first, from the lowest up; an error if the sizes are inconsistent."""
    sizes: list[LayerSize] = []
    n_below, factors_below = n_components, n_factors
    for count, factors in _by_layer(n_subcomponents, n_subfactors):
        counts: list[Any] = [count] * n_below if isinstance(count, Integral) else count
        if len(counts) != n_below:
            raise ValueError(
                f"n_subcomponents={n_subcomponents!r} must be an integer, or have an entry for each "
                f"of the {n_below} components of the layer below"
            )
        if factors > factors_below:
            raise ValueError(
                f"n_subfactors={n_subfactors!r} must not be larger than the number of factors of "
                f"the layer below, {factors_below}"
            )
        sizes.append(LayerSize(counts, factors))
        n_below, factors_below = sum(counts), factors
    return sizes


def _by_layer(n_subcomponents: Any, n_subfactors: Any) -> list[tuple[Any, int]]:
    """For every layer above the first: sub-components (an int, or one for each component), and factors."""
    one_layer = isinstance(n_subfactors, Integral)
    factors = [n_subfactors] if one_layer else _listed("n_subfactors", n_subfactors)
    for number in factors:
        check_integer("n_subfactors", number, least=1)
    counts = n_subcomponents
    if one_layer or isinstance(counts, Integral):
        counts = [counts] * len(factors)
    counts = _listed("n_subcomponents", counts)
    if len(counts) != len(factors):
        raise ValueError(
            f"n_subcomponents={n_subcomponents!r} must be an integer, or have an entry for each of "
            f"the {len(factors)} layers that n_subfactors describes"
        )
    counts = [count if isinstance(count, Integral) else _listed("n_subcomponents", count) for count in counts]
    for count in counts:
        for number in [count] if isinstance(count, Integral) else count:
            check_integer("n_subcomponents", number, least=1)
    return list(zip(counts, factors, strict=True))


def _listed(name: str, value: Any) -> list[Any]:
    """A sequence of sizes as a list."""
    if isinstance(value, (list, tuple, np.ndarray)) and len(value):
        return [entry.item() if isinstance(entry, np.generic) else entry for entry in value]
    raise ValueError(f"{name} must be an integer or a sequence of integers, not {value!r}")
