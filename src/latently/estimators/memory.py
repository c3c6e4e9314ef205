"""Fits that cannot fit into memory are told before they begin, with the argument to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

from latently.backend.placement import memory_bytes
from latently.estimators.checks import check_integer

_COPIES = 4  # of the parameters, at least: those before and after a step, sums, and what densities need
_SIZES = ("n_components", "n_factors", "n_subcomponents", "n_row_clusters", "n_column_clusters")


class NotEnoughMemory(MemoryError, ValueError):
    """A fit that takes more memory than there is."""


def check_parameters_fit(
    model: Any, n_features: int, more: Mapping[str, tuple[int, ...]] | None = None
) -> None:
    """An error if the parameters alone take more memory than there is; `more` are shapes of other arrays."""
    sizes = model._sizes(n_features)
    shapes = {f"{entry.name}_": entry.shape_for(sizes) for entry in model._parameters()} | dict(more or {})
    needed, there = 8 * _COPIES * sum(map(prod, shapes.values())), memory_bytes()
    if needed <= there:
        return
    name = max(shapes, key=lambda name: prod(shapes[name]))
    cures = [
        size for size in _SIZES if isinstance(getattr(model, size, None), int) and getattr(model, size) > 1
    ]
    if shapes[name].count(n_features) > 1 and hasattr(model, "covariance_type"):
        cures.append('the parameters of a component (covariance_type="diag", or MFA)')
    cures.append("or the columns of X")
    raise NotEnoughMemory(
        f"{type(model).__name__} needs at least {needed / 1e9:.3g} GB of memory, most of it for {name} of "
        f"shape {shapes[name]}, but there are {there / 1e9:.3g} GB; reduce {', '.join(cures)}"
    )


@contextmanager
def allocations_named(model: Any) -> Iterator[None]:
    """Inside, memory that torch could not have is told with the arguments to reduce."""
    try:
        yield
    except RuntimeError as error:
        if "allocate" not in str(error):  # the same words for all devices
            raise
        cures = [size for size in (*_SIZES, "hidden_layer_sizes", "batch_size") if hasattr(model, size)]
        raise NotEnoughMemory(
            f"{type(model).__name__} needs more memory than there is ({error}); reduce {', '.join(cures)}, "
            "or the columns of X"
        ) from error


def check_block_fits(model: Any, n_rows: int, floats_per_row: int) -> None:
    """An error if one block of rows with its temporaries takes more memory than there is."""
    needed, there = 8 * floats_per_row * n_rows, memory_bytes()
    if needed > there:
        fitting = max(1, int(there / (16 * floats_per_row)))
        raise NotEnoughMemory(
            f"{type(model).__name__} needs {needed / 1e9:.3g} GB of memory for a block of {n_rows} rows, but "
            f"there are {there / 1e9:.3g} GB; set block_size={fitting}, or reduce n_components or n_factors"
        )


def check_draws(model: Any, n_samples: Any) -> None:
    """An error unless `sample` can draw so many rows at once."""
    check_integer("n_samples", n_samples, least=1)
    needed, there = 8 * n_samples * model.n_features_in_, memory_bytes()
    if needed > there:
        raise NotEnoughMemory(
            f"n_samples={n_samples} rows of {model.n_features_in_} features take {needed / 1e9:.3g} GB of "
            f"memory, but there are {there / 1e9:.3g} GB; draw fewer at a time"
        )
