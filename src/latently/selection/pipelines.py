"""Searches over the last step of a pipeline: the steps before it are fitted once, to all rows."""

from __future__ import annotations

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from latently.selection.result import Selection


def is_pipeline(estimator):
    return isinstance(estimator, Pipeline) and len(estimator.steps) > 1


def selected_last_step(search, pipeline, X, grid, y):
    """What `search(estimator, X, grid)` finds for the last step, as a search over the pipeline.

    Log-likelihoods and criteria are those of the rows that the last step is given: they differ from those of
    the rows of X by the same number in all cells.
    """
    *before, (name, last) = pipeline.steps
    inner = _grid_of_last_step(grid, name)
    fitted = Pipeline([(label, clone(step)) for label, step in before])
    rows = fitted.fit_transform(X) if y is None else fitted.fit_transform(X, y)
    found = search(last, rows, inner)
    parameters = list(found.table_.columns[: found.table_.columns.get_loc("log_likelihood")])
    table = found.table_.drop(columns="rank").rename(columns={one: f"{name}__{one}" for one in parameters})
    models = [
        None if model is None else Pipeline([*fitted.steps, (name, model)]) for model in found.estimators_
    ]
    cells = [{f"{name}__{one}": value for one, value in cell.items()} for cell in found.cells]
    return Selection(found.criterion, table, cells, models)


def _grid_of_last_step(grid, name):
    """The grid with names of the parameters of the last step itself."""
    grids = [grid] if isinstance(grid, dict) else list(grid)
    others = sorted({str(key) for one in grids for key in one if not str(key).startswith(f"{name}__")})
    if others:
        raise ValueError(
            f"a grid over a pipeline may have parameters of its last step only, like {name}__n_components, "
            f"not {', '.join(others)}: densities of differently transformed rows cannot be compared"
        )
    inner = [{key.removeprefix(f"{name}__"): values for key, values in one.items()} for one in grids]
    return inner[0] if isinstance(grid, dict) else inner
