"""What a fitted model says of prepared rows, in the user's units and names.

The command line and `TableModel` both compute every number here, so they agree to the last bit. `values` are
(n, D) numbers in the user's units, NaN where missing.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np

from latently.tables.kinds import WITH_LEVELS, cells_of, written
from latently.tables.survey import texts_of


def needs(estimator, method, what):
    """Raise an error unless the model has a method."""
    if not hasattr(estimator, method):
        raise ValueError(f"a {type(estimator).__name__} cannot {what}")


def log_densities(estimator, record, values):
    """(n,) log density of each row."""
    needs(estimator, "score_samples", "compute densities")
    scores = np.asarray(estimator.score_samples(record.to_frame(values)), dtype=np.float64)
    return scores - record.log_volume(values)


def accepted(estimator, record, values):
    """(n,) whether the estimator, whose rejection was calibrated, accepts each row."""
    return np.asarray(estimator.accepts(record.to_frame(values)))


def predicted(estimator, record, values):
    """(n,) component or class of each row."""
    needs(estimator, "predict", "predict components or classes")
    return np.asarray(estimator.predict(record.to_frame(values)))


def probabilities(estimator, record, values):
    """(n, K) probabilities of components or classes."""
    needs(estimator, "predict_proba", "predict components or classes")
    return np.asarray(estimator.predict_proba(record.to_frame(values)))


def anomalies(estimator, record, values):
    """What an outlier detector says of each row, as columns: whether it is an anomaly, and its score."""
    rows = record.to_frame(values)
    odd = np.asarray(estimator.predict(rows)) == -1
    return {"anomaly": odd, "score": np.asarray(estimator.decision_function(rows), dtype=np.float64)}


def factors(estimator, record, values):
    """(n, q) factors of each row."""
    needs(estimator, "transform", "compute factors: it has none")
    return np.asarray(estimator.transform(record.to_frame(values)))


def factor_names(n):
    return [f"factor_{j}" for j in range(1, n + 1)]


def draws_rows(estimator):
    """Whether missing entries can be drawn, and have standard errors."""
    return "n_draws" in signature(estimator.impute).parameters


def imputed(estimator, record, values):
    """(n, D) rows with missing entries replaced by their expectation."""
    needs(estimator, "impute", "impute missing cells")
    return record.from_frame(np.asarray(estimator.impute(record.to_frame(values))))


def imputed_with_errors(estimator, record, values):
    """Rows as `imputed` has them, and (n, D) standard errors."""
    rows, errors = estimator.impute(record.to_frame(values), return_std=True)
    return record.from_frame(np.asarray(rows)), np.asarray(errors) * np.array(record.scale)


def imputed_draws(estimator, record, values, n_draws, rng):
    """Rows with missing entries drawn, so many times."""
    tables = estimator.impute(record.to_frame(values), n_draws=n_draws, random_state=rng)
    return [record.from_frame(np.asarray(table)) for table in tables]


def reconstructed(estimator, record, values):
    """(n, D) what the model makes of the factors of each row."""
    if hasattr(estimator, "reconstruct"):
        rows = estimator.reconstruct(record.to_frame(values))
    else:
        needs(estimator, "inverse_transform", "reconstruct rows: it has no way back from its factors")
        rows = estimator.inverse_transform(estimator.transform(record.to_frame(values)))
    return record.from_frame(np.asarray(rows))


# -- data frames -----------------------------------------------------------------------------------------


def free(name, taken):
    """The name, or another like it that is not taken."""
    return f"{name}_" if name in taken else name


def kind_of_group(estimator):
    """What `predict` gives: "component", "cluster" (of rows, where columns have clusters too) or "class"."""
    if hasattr(estimator, "n_row_clusters"):
        return "cluster"
    return "component" if getattr(estimator, "classes_", None) is None else "class"


def sampled(estimator, record, n, rng):
    """A data frame of n drawn rows, with the component or class of each first, if the model tells."""
    import pandas

    needs(estimator, "sample", "generate rows")
    drawn, of = estimator.sample(n, random_state=rng)
    frame = pandas.DataFrame(record.from_frame(np.asarray(drawn)), columns=record.columns)
    for name in record.kinds:
        kind = record.kind_of(name)
        cells = cells_of(frame[name].to_numpy(), kind)
        frame[name] = cells.astype(np.int64) if kind.name == "count" else cells  # none is missing
    if np.ndim(of) == 1:
        frame.insert(0, free(kind_of_group(estimator), frame), np.asarray(of))
    return frame


def with_imputed(frame, later, values, rows, *, as_text=False):
    """The frame with imputed numbers where `values` has none; all other cells stay as they are.

    Columns with missing cells become floats, float32 if they were, or stay text. Integers become floats
    everywhere if the frame is one of several.
    """
    columns: dict[str, Any] = {}
    is_row = ~lines_of_text(frame, later, values)
    for j, name in enumerate(later.names):
        here, column = np.isnan(values[:, j]) & is_row, frame[name]
        kind = later.record.kind_of(later.record.columns[j])
        if kind.name in WITH_LEVELS and here.any():  # a level that the fit has not seen is not missing
            here = here & np.array([text is None for text in texts_of(column, later.missing)])
        if not here.any() and (as_text or kind.name != "number" or len(frame) == later.table.n_rows):
            continue
        if as_text:
            cells = column.to_numpy(dtype=object, copy=True)
            cells[here] = written(rows[here, j], kind, later.decimal)
        elif kind.name != "number":
            columns[name] = _with_cells(column, here, cells_of(rows[here, j], kind, column))
            continue
        else:
            cells = np.where(here, rows[:, j], values[:, j])
            cells = cells.astype(np.float32) if str(column.dtype).lower() in _SINGLE else cells
        columns[name] = cells
    return frame.assign(**columns)


def lines_of_text(frame, later, values):
    """(n,) whether a line has text where numbers should be, and no value at all, as notes below a table."""
    lines = np.isnan(values).all(axis=1)
    if not lines.any():
        return lines
    numbers = [
        name
        for name, own in zip(later.names, later.record.columns, strict=True)
        if later.record.kind_of(own).name == "number"
    ]
    cells = frame.loc[lines, numbers]
    texts = [[text is not None for text in texts_of(cells[name], later.missing)] for name in numbers]
    lines[lines] = np.any(np.array(texts, dtype=bool).reshape(len(numbers), -1), axis=0)
    return lines


def _with_cells(column, here, cells):
    """The column with these cells in place of its own, in its type if that has room for them."""
    filled = column.astype(object)
    filled[here] = cells
    try:
        return filled.astype(column.dtype)
    except (TypeError, ValueError):  # such as a categorical without the level
        return filled.infer_objects()


_SINGLE = ("float32", "float[pyarrow]")


def with_errors(frame, later, errors):
    """The frame followed by a column of standard errors for each column of the model."""
    return frame.assign(**{free(f"{name}_std", frame): errors[:, j] for j, name in enumerate(later.names)})


def one_below_the_other(tables):
    """The draws of each row together, with their number in the first column; whatever the pieces read."""
    import pandas

    m, n = len(tables), len(tables[0])
    rows = pandas.concat(tables, ignore_index=True).iloc[np.arange(m * n).reshape(m, n).T.ravel()]
    rows.insert(0, free("draw", rows), np.tile(np.arange(1, m + 1), n))
    return rows
