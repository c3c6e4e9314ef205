"""How several starts are compared: by runs on a sample of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from latently.estimators.parameters import all_given

SHORT_RUN = 4  # EM steps after which the better half of the starts continues
SEARCH_TOL = 1e-6  # relative gain of an iteration below which a run of a search has converged


def rows_for_start(n_components: int) -> int:
    """Rows of the sample that starts see."""
    return max(10_000, 50 * n_components)


def sample_size(model: Any, n_components: int) -> int:
    """Rows to keep for the starts; with starting values given, what identifies the data of a checkpoint."""
    if all_given(model, model._parameters()) or (model.warm_start and hasattr(model, "history_")):
        return 0 if model.checkpoint is None else 2
    return rows_for_start(n_components)


def features_in_order(X: Any) -> Any:
    """(D,) the features of rows about their mean, in an order that their values decide, not their places.

    Third powers of totals over all features order those with equal moments as well: standardised ones,
    uncorrelated ones, or the same numbers in other rows. Rounding only decides where exchanging features is
    exchanging rows.
    """
    size = np.mean(np.abs(X), axis=0)
    relative = X / np.where(size > 0, size, 1.0)
    return np.argsort(np.sum(relative, axis=1) ** 3 @ relative, kind="stable")


def rows_in_order(X: Any) -> Any:
    """(n,) rows ordered by their projection on a direction that no order of the features changes."""
    direction = np.random.default_rng(0).standard_normal(X.shape[1])
    return np.argsort(X[:, features_in_order(X)] @ direction, kind="stable")
