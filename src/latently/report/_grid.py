"""The grid of a search, for the report."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from latently.selection import CRITERIA, Criterion


@dataclass(frozen=True)
class Grid:
    table: Any  # pandas.DataFrame, best first
    parameters: list[str]
    criterion: Criterion
    values: dict[str, list[Any]]  # values of every parameter with several integers, ascending
    at_edge: dict[str, str]  # parameter -> "low" or "high", if the best has the first or last of them
    display: Any  # the numbers behind the plot; None without matplotlib


def grid_of(selection):
    """The grid of a result of `latently.selection.select`, or of its table alone."""
    if selection is None:
        return None
    table = getattr(selection, "table_", selection)
    columns = list(getattr(table, "columns", ()))
    if "rank" not in columns or "log_likelihood" not in columns:
        raise ValueError(
            "selection must be the result of latently.selection.select, or its table_, not "
            f"{type(selection).__name__}"
        )
    parameters = columns[: columns.index("log_likelihood")]
    ranked = table[table["rank"].notna()].sort_values("rank", kind="stable")
    if not len(ranked):
        raise ValueError("selection has no fitted model; omit it")
    name = getattr(selection, "criterion", None)
    criterion = CRITERIA[name] if name in CRITERIA else _criterion_of(ranked)
    values, at_edge = {}, {}
    for parameter in parameters:
        seen = list(dict.fromkeys(ranked[parameter]))
        if len(seen) > 1 and all(
            isinstance(v, Integral) and not isinstance(v, (bool, np.bool_)) for v in seen
        ):
            values[parameter] = sorted(int(v) for v in seen)
            best = int(ranked[parameter].iloc[0])
            if best == values[parameter][-1]:
                at_edge[parameter] = "high"
            elif best == values[parameter][0] > 1:
                at_edge[parameter] = "low"
    return Grid(ranked, parameters, criterion, values, at_edge, _display(ranked, parameters, criterion))


def _criterion_of(ranked):
    """The criterion that is consistent with the ranks."""
    for criterion in sorted(CRITERIA.values(), key=lambda each: each.held_out is None):  # a column by choice
        if criterion.column in ranked:
            steps = np.diff(ranked[criterion.column].to_numpy(dtype=float))
            if np.all(steps <= 0 if criterion.higher_is_better else steps >= 0):
                return criterion
    raise ValueError("the ranks in the table of selection are not consistent with any of its criteria")


def _display(ranked, parameters, criterion):
    try:
        from latently.plots.selection import SelectionDisplay
    except ImportError:  # matplotlib is not needed otherwise
        return None
    error = "held_out_standard_error" if criterion.held_out else None
    return SelectionDisplay(
        ranked,
        parameters,
        criterion.column,
        label=criterion.label,
        higher_is_better=criterion.higher_is_better,
        error_column=error,
    )
