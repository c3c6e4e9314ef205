"""Row-wise methods of all models: blocks, devices and output files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import Array, is_floating, namespace, to_numpy
from latently.estimators.checks import check_writable
from latently.estimators.data import allows_missing, check_data, check_same_device
from latently.estimators.fitted import FittedModel

Fn = Callable[..., Array]


def for_method(method: str) -> Callable[[Fn], Fn]:
    """Decorate a function of blocks with the public method that uses it, for error messages."""

    def mark(fn: Fn) -> Fn:
        fn.method = method  # type: ignore[attr-defined]
        return fn

    return mark


def rows_of(model: Any, X: Any, fn: Fn, *args: Any, out: Any = None) -> Array:
    """`fn(kernel, density, frame, *args, block)` for all rows of X, with blocks in the user's units."""
    check_is_fitted(model)
    data = check_data(model, X, reset=False)
    fitted: FittedModel = model._fitted_model()
    given = fitted.kernel, fitted.density, fitted.frame, *args
    return rows_over(
        model, data, fn, *given, place=fitted.place, floats_per_row=fitted.floats_per_row, out=out
    )


def rows_over(
    model: Any,
    data: Any,
    fn: Fn,
    *args: Any,
    place: Array | None,
    floats_per_row: int,
    out: Any = None,
    missing: bool | None = None,
) -> Array:
    """`fn(*args, block)` for all rows of checked data.

    `place` is an array on the device of the model, where the rows have to be; None if `fn` moves them.
    `missing` says whether entries may be missing; by default the tags of the model do.
    """
    if out is not None:
        check_writable("out", out)
    if place is not None:
        check_same_device(f"{type(model).__name__}.{fn.method}", data, place)  # type: ignore[attr-defined]
    sweep = data.sweep(None, floats_per_row=floats_per_row, block_size=model.block_size)
    missing = allows_missing(model) if missing is None else missing
    checked = quietly if data.in_memory else partial(finite_only, missing, type(model).__name__)
    collected: Array = data.collected(sweep.rows(checked, fn, *args), out)
    return collected


def quietly(fn: Fn, *args: Any) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # distant rows have log density -inf
        return fn(*args)


def finite_only(allow_nan: bool, name: str, fn: Fn, *args: Any) -> Array:
    """`fn`, with an error for infinite or forbidden entries, for rows that were not validated before."""
    *_, block = args
    xp = namespace(block.X)
    if block.observed is not None and not allow_nan:
        raise ValueError(
            f"Input X contains NaN, and {name} does not accept missing entries; impute them first"
        )
    if is_floating(block.X) and bool(xp.any(xp.isinf(block.X))):
        raise ValueError("Input X contains infinity")
    return quietly(fn, *args)


def in_main_memory(rows: Any) -> NDArray[Any]:
    """The result of a method for all rows, as a NumPy array."""
    return to_numpy(rows.compute() if hasattr(rows, "compute") else rows)
