"""How far imputed cells are from those that were hidden, in columns of numbers and of levels."""

from __future__ import annotations

from typing import Any

import numpy as np

from latently.mixture.column_kinds import encoded

_LEVELS = ("category", "ordinal")


def observed_in(X: Any) -> np.ndarray:
    """(N, D) whether each cell of an array or a data frame holds something."""
    return X.notna().to_numpy() if hasattr(X, "iloc") else ~np.isnan(numbers_of(X))


def numbers_of(X: Any) -> np.ndarray:
    """An array or a data frame as an array of float64."""
    if hasattr(X, "iloc"):
        return X.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(X, dtype=np.float64)


def without_entries(model: Any, X: Any, hidden: np.ndarray) -> Any:
    """X with empty cells where `hidden` (N, D) says so."""
    if not hasattr(X, "iloc"):
        return np.where(hidden, np.nan, X)
    return (X if hasattr(model, "columns") else X.astype(np.float64)).mask(hidden)


def errors_of_imputed(model: Any, X: Any, made: Any, hidden: np.ndarray) -> np.ndarray:
    """Errors of the cells of `made` that are hidden (N, D), row by row.

    Squared differences; of a model of mixed columns those of numbers, dates and counts are in units of the
    variance of the column, and a wrong level of a category or an ordered answer counts as one.
    """
    columns = getattr(model, "columns_", ())
    if all(one.kind == "number" for one in columns):
        return (numbers_of(made) - numbers_of(X))[hidden] ** 2
    truth, guess = (encoded(table, columns, "missing") for table in (X, made))
    found = (guess - truth) ** 2
    for j, one in enumerate(columns):
        if one.kind in _LEVELS:
            found[:, j] = guess[:, j] != truth[:, j]
        else:
            found[:, j] /= np.nanvar(truth[:, j]) or 1.0
    return found[hidden]
