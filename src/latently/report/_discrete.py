"""Columns of categories, ordered answers and counts in what makes a row: tables of their probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_NUMBERS = ("number", "date")
_LEAST = -1e3  # log probability; the script cannot add -infinity
_MOST_VALUES = 300  # of a count, beyond which only those that rows have are kept


@dataclass(frozen=True)
class Discrete:
    """One column: its values, and the log probability of each in each component."""

    place: int
    values: np.ndarray  # (L,) ascending
    logs: np.ndarray  # (K, L)

    @property
    def likeliest(self):
        """(K,) the most probable value in each component."""
        return self.values[np.argmax(self.logs, axis=1)]

    def log_probabilities(self, value):
        """(K,) of a value."""
        return self.logs[:, int(np.argmin(np.abs(self.values - value)))]


def numbers_of(model):
    """(D,) whether the columns of a mixture of several kinds are numbers."""
    return np.array([column.kind in _NUMBERS for column in model.columns_])


def discrete_columns(model, X):
    """The columns that are no numbers, of a mixture of several kinds whose rows are numbers.

    Within a component columns are independent, so a row with nothing but a value has its probability.
    """
    D, found = X.shape[1], []
    with np.errstate(divide="ignore"):
        for j in np.flatnonzero(~numbers_of(model)).tolist():
            values = _values(model.columns_[j], X[~np.isnan(X[:, j]), j])
            rows = np.full((len(values), D), np.nan)
            rows[:, j] = values
            joint = np.asarray(model.score_samples(rows))[:, None] + np.log(model.predict_proba(rows))
            logs = np.maximum(joint - np.log(model.weights_), _LEAST)
            found.append(Discrete(j, values, logs.T))
    return tuple(found)


def _values(column, seen):
    if column.levels:
        return np.arange(float(len(column.levels)))
    most = int(seen.max()) if len(seen) else 0
    return np.arange(most + 1.0) if most < _MOST_VALUES else np.unique(seen)
