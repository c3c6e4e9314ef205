"""How several starts are compared: by runs on a sample of the rows."""

from __future__ import annotations

from typing import Any

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
