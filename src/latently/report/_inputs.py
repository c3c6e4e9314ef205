"""Checks of what a report is asked to show."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np


def checked_rows(model, X):
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"X must have shape (n_samples, n_features) and at least one row, not {rows.shape}")
    D = getattr(model, "n_features_in_", None)
    if D is None:
        raise ValueError(f"{type(model).__name__} is not fitted yet; call fit before the report")
    if rows.shape[1] != D:
        raise ValueError(f"X has {rows.shape[1]} features, but {type(model).__name__} was fitted to {D}")
    if np.isinf(rows).any():
        raise ValueError("X contains infinity; use NaN for missing entries")
    return rows


def checked_names(name, names, n):
    names = [str(entry) for entry in names]
    if len(names) != n:
        raise ValueError(f"{name} must have {n} names, not {len(names)}")
    return names


def checked_numbers(numbers, n):
    """The numbers of the rows in their file, from 1."""
    if numbers is None:
        return np.arange(1, n + 1)
    found = np.asarray(numbers)
    if found.shape != (n,) or found.dtype.kind not in "iu" or found.min() < 1 or len(np.unique(found)) < n:
        raise ValueError(f"row_numbers must be {n} different integers of at least 1")
    return found.astype(np.int64)


def checked_total(n_rows, numbers):
    """The number of rows of the file that X was drawn from."""
    if n_rows is None:
        return max(len(numbers), int(numbers.max()))
    if not isinstance(n_rows, Integral) or n_rows < numbers.max():
        raise ValueError(f"n_rows must be an integer of at least {numbers.max()}, not {n_rows!r}")
    return int(n_rows)


def checked_threshold(threshold):
    if threshold is not None and (not isinstance(threshold, Real) or not np.isfinite(float(threshold))):
        raise ValueError(f"threshold must be a finite log density, not {threshold!r}")
    return None if threshold is None else float(threshold)


def checked_fit(verdict, plot):
    """A verdict and the points of a probability plot; None for what was not given."""
    if plot is None:
        return verdict, None
    try:
        points = np.asarray(plot, dtype=float)
    except (TypeError, ValueError):
        points = np.zeros(0)
    if (
        points.ndim != 2
        or len(points) != 2
        or points.shape[1] < 2
        or not np.all((points >= 0) & (points <= 1))
    ):
        raise ValueError("probability_plot must be two sequences of shares, expected and observed")
    return verdict, points


def checked_units(units, D):
    """Offset and scale (D,) that convert the model's units to the original units."""
    if units is None:
        return np.zeros(D), np.ones(D)
    try:
        offset, scale = (np.broadcast_to(np.asarray(part, dtype=float), (D,)) for part in units)
    except (TypeError, ValueError):
        raise ValueError(f"units must be an offset and a scale for each of the {D} features") from None
    if not (np.isfinite(offset).all() and np.isfinite(scale).all() and (scale > 0).all()):
        raise ValueError("units must be finite offsets and positive scales")
    return offset, scale


def checked_image_shape(shape, D):
    if shape is None:
        return None
    shape = tuple(int(side) for side in shape)
    if len(shape) not in (2, 3) or shape[2:] not in ((), (1,), (3,)) or min(shape) < 1 or np.prod(shape) != D:
        raise ValueError(
            f"image_shape must be (height, width), or (height, width, 3) for colours, with {D} values in "
            f"total, not {shape}"
        )
    return shape
