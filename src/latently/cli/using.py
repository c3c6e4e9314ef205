"""Commands that use a fitted folder: `predict`, `score`, `transform`, `sample`, `impute`, `report`.

Rows are processed in chunks, so a file may be larger than memory. Results have the user's units and names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from latently.cli.preparation import (
    Preparation,
    later_rows,
    matching_columns,
    read_preparation,
    texts_of,
)
from latently.cli.speaking import counted, shown
from latently.cli.tables import frames_of, open_table
from latently.cli.writing import (
    DESCRIPTION,
    MODEL,
    REPORT,
    SELECTION,
    check_file,
    check_kind,
    new_file,
    write_rows,
)
from latently.core.sources import MISSING, Table, package
from latently.saved import load

ROWS_IN_REPORT = 50_000
MOST_SAMPLES_AT_ONCE = 100_000


@dataclass
class Folder:
    """A model and its record, as written by `fit` or `select`."""

    path: Path | None  # None if it was not read from a folder
    model: object
    record: Preparation

    def needs(self, method, what):
        if not hasattr(self.model, method):
            raise ValueError(f"the model {shown(self.record.model)} in {shown(self.path)} cannot {what}")


def open_folder(path):
    """The folder, validated."""
    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"there is no folder {shown(path)}; latently fit creates one")
    record = read_preparation(path / DESCRIPTION)
    model = load(path / MODEL)
    if model.n_features_in_ != len(record.columns):
        raise ValueError(
            f"the model in {shown(path)} has {model.n_features_in_} features, but its description "
            f"{counted(len(record.columns), 'column')}; they do not match"
        )
    return Folder(path, model, record)


@dataclass
class Later:
    """Rows to be preprocessed like the training rows."""

    table: Table
    names: list[str]
    missing: tuple[str, ...]

    @property
    def decimal(self):
        return self.table.dialect.decimal if self.table.dialect else "."

    @property
    def manner(self):
        """Separator and decimal mark for text output, as in the user's file."""
        dialect = self.table.dialect
        if dialect is None or dialect.separator not in (",", ";", "|"):
            return {}
        return {"separator": dialect.separator, "decimal": dialect.decimal}

    def frames(self, voice, texts=()):
        """Frames, their numbers in the model's columns in the user's units, and their position.

        Columns in `texts` are kept as text; all columns if it is None.
        """
        start = 0
        for frame in frames_of(self.table, voice, self.missing, texts):
            yield frame, later_rows(frame, self.names, self.missing, self.decimal), start
            start += len(frame)
        if start == 0:
            raise ValueError(f"the file {shown(self.table.path)} has no rows")


def open_later(folder, data, reading, missing, voice):
    """The table that the model is applied to."""
    record = folder.record
    if record.image_shape is not None:  # images are resized to the size used in the fit
        reading = replace(reading, resize=tuple(record.image_shape[:2]), colour=len(record.image_shape) == 3)
    table = open_table(data, reading, voice)
    more = (text.strip().lower() for text in missing)
    return Later(table, matching_columns(table, record), (*MISSING, *record.missing, *more))


def apply(folder, data, reading, missing, columns_of, voice, *, output, force, keep=()):
    """Write the columns `columns_of(values)` for all rows; returns the result of `write_rows`."""
    pandas = package("pandas", "csv", "tables of results")
    check_kind(output)
    if output is not None:
        check_file(output, force)
    later = open_later(folder, data, reading, missing, voice)
    for name in keep:
        if name not in later.table.columns:
            raise ValueError(f"--keep names {shown(name)}, which is not a column of the data")
    if later.table.path.is_dir():
        keep = (*keep, "file")

    def frames():
        for frame, values, start in later.frames(voice, keep):
            first = {"row": np.arange(start + 1, start + len(frame) + 1)}
            found = columns_of(values)
            kept = {_free(name, {**first, **found}): frame[name].to_numpy() for name in keep}
            yield pandas.DataFrame(first | kept | found)

    return write_rows(frames(), output, force, as_object=voice.json, **later.manner)


def predictions(folder, all_probabilities):
    """Columns for `predict`."""
    folder.needs("predict", "predict components or classes")
    model, record = folder.model, folder.record
    classes = getattr(model, "classes_", None)
    name = "component" if classes is None else "class"
    if not hasattr(model, "predict_proba"):  # labels alone, such as those of co-clusters
        return lambda values: {"cluster": np.asarray(model.predict(record.to_frame(values)))}

    def columns_of(values):
        rows = record.to_frame(values)
        probability = np.asarray(model.predict_proba(rows))
        found = {name: np.asarray(model.predict(rows)), "probability": probability.max(axis=1)}
        if all_probabilities:
            kinds = range(probability.shape[1]) if classes is None else classes
            found |= {
                f"probability of {kind}": column for kind, column in zip(kinds, probability.T, strict=True)
            }
        return found

    return columns_of


def log_densities(folder, values):
    """(n,) in the user's units."""
    scores = np.asarray(folder.model.score_samples(folder.record.to_frame(values)))
    return scores - folder.record.log_volume(values)


def threshold(folder, acceptance_rate, reference, reading, missing, voice):
    """The log density below which rows are novel, from reference rows or from the training rows."""
    folder.needs("score_samples", "compute densities")
    if reference is None:
        return folder.record.threshold(acceptance_rate)
    later = open_later(folder, reference, reading, missing, voice)
    scores = np.concatenate([log_densities(folder, values) for _, values, _ in later.frames(voice)])
    return float(np.quantile(scores, 1 - acceptance_rate))


def factors(folder):
    """Columns for `transform`."""
    folder.needs("transform", "compute factors: it has none")

    def columns_of(values):
        rows = np.asarray(folder.model.transform(folder.record.to_frame(values)))
        return {f"factor_{j}": column for j, column in enumerate(rows.T, 1)}

    return columns_of


def sample(folder, n, seed, output, force, voice):
    """Write rows drawn from the model."""
    pandas = package("pandas", "csv", "tables of results")
    folder.needs("sample", "generate rows")
    check_kind(output)
    rng = np.random.default_rng(seed)
    classes = getattr(folder.model, "classes_", None)

    def frames():
        with voice.bar("Drawing rows", n) as moved:
            for start in range(0, n, MOST_SAMPLES_AT_ONCE):
                drawn, of = folder.model.sample(min(MOST_SAMPLES_AT_ONCE, n - start), random_state=rng)
                frame = pandas.DataFrame(
                    folder.record.from_frame(np.asarray(drawn)), columns=folder.record.columns
                )
                if np.ndim(of) == 1:
                    frame.insert(0, _free("component" if classes is None else "class", frame), np.asarray(of))
                yield frame
                moved(start + len(frame))

    return write_rows(frames(), output, force, as_object=voice.json)


def _free(name, taken):
    return f"{name}_" if name in taken else name


def impute(folder, data, reading, missing, voice, *, draw, draws, std, seed, output, force):
    """Write the user's table with missing cells imputed; all other cells are unchanged.

    With `draws` every row is written so many times, each with other draws, and with `std` standard errors
    follow in columns of their own. `folder` is a fitted folder, or a function that chooses a model once the
    options have been checked. Returns the result of `write_rows`, and the number of imputed cells.
    """
    package("pandas", "csv", "tables of results")
    check_kind(output)
    if output is not None:
        check_file(output, force)
    folder = folder() if callable(folder) else folder
    folder.needs("impute", "impute missing cells")
    if (draw or draws or std) and "n_draws" not in signature(folder.model.impute).parameters:
        raise ValueError(
            f"the model {shown(folder.record.model)} imputes expectations only; --draw, --draws and --std "
            "need a mixture, such as mfa"
        )
    later = open_later(folder, data, reading, missing, voice)
    rng = np.random.default_rng(seed)
    n_imputed = 0

    def frames():
        nonlocal n_imputed
        for frame, values, _ in later.frames(voice, None):
            absent = np.isnan(values)
            n_imputed += int(absent.sum())
            rows = folder.record.to_frame(values)
            if std:
                imputed, errors = folder.model.impute(rows, return_std=True)
                imputed = folder.record.from_frame(np.asarray(imputed))
                errors = np.asarray(errors) * np.array(folder.record.scale)
                yield _with_errors(_with_imputed(frame, later, absent, imputed), later, errors)
            elif draws or draw:
                tables = folder.model.impute(rows, n_draws=draws or 1, random_state=rng)
                tables = [folder.record.from_frame(np.asarray(table)) for table in tables]
                completed = [_with_imputed(frame, later, absent, table) for table in tables]
                yield _one_below_the_other(completed) if draws else completed[0]
            else:
                imputed = folder.record.from_frame(np.asarray(folder.model.impute(rows)))
                yield _with_imputed(frame, later, absent, imputed)

    written = write_rows(frames(), output, force, as_object=voice.json, **later.manner)
    return *written, n_imputed


def _with_errors(frame, later, errors):
    """The frame followed by a column of standard errors for each column of the model."""
    return frame.assign(**{_free(f"{name}_std", frame): errors[:, j] for j, name in enumerate(later.names)})


def _one_below_the_other(tables):
    """The draws of each row together, with their number in the first column; whatever the pieces read."""
    import pandas

    m, n = len(tables), len(tables[0])
    rows = pandas.concat(tables, ignore_index=True).iloc[np.arange(m * n).reshape(m, n).T.ravel()]
    rows.insert(0, _free("draw", rows), np.tile(np.arange(1, m + 1), n))
    return rows


def _with_imputed(frame, later, absent, imputed):
    """The frame with imputed numbers in its missing cells. Text is kept as written; numbers become floats."""
    columns = {}
    for j, name in enumerate(later.names):
        rows = absent[:, j]
        if later.table.dialect:
            cells = frame[name].to_numpy(copy=True)
            cells[rows] = [f"{value:.10g}".replace(".", later.decimal) for value in imputed[rows, j]]
        else:
            cells = frame[name].to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
            cells[rows] = imputed[rows, j]
        columns[name] = cells
    return frame.assign(**columns)


# -- the report ------------------------------------------------------------------------------------------


def report(folder, data, reading, missing, voice, *, output, force):
    """Write the page; returns its path and the number of rows it shows."""
    output = Path(folder.path / REPORT if output is None else output)
    check_file(output, force)
    later = open_later(folder, data, reading, missing, voice)
    record = folder.record
    label = record.label if record.label in later.table.columns else None
    rng = np.random.default_rng(record.seed)
    labels: list[Any] = []
    rows, names, keys, n_rows = [], [], [], 0
    for frame, values, _ in later.frames(voice, [] if label is None else [label]):
        n_rows += len(frame)
        rows.append(values)
        keys.append(rng.random(len(frame)))
        labels += texts_of(frame[label], later.missing) if label else [None] * len(frame)
        names += list(frame["file"]) if later.table.path.is_dir() else [None] * len(frame)
        if sum(map(len, rows)) > ROWS_IN_REPORT:  # keep the rows with the smallest random keys
            values, key = np.concatenate(rows), np.concatenate(keys)
            some = np.sort(np.argpartition(key, ROWS_IN_REPORT - 1)[:ROWS_IN_REPORT])
            rows, keys = [values[some]], [key[some]]
            labels, names = [labels[i] for i in some], [names[i] for i in some]
    X = record.to_frame(np.concatenate(rows))
    if len(X) < n_rows:
        voice.note(f"the report shows {len(X)} rows drawn from {n_rows}")
    with voice.bar("Writing the report"), new_file(output, force) as path:
        write_page(
            path,
            folder,
            X,
            labels=labels if label else None,
            row_names=names if later.table.path.is_dir() else None,
            selection=read_selection(folder),
            file=later.table.path.name,
            n_rows=n_rows,
        )
    return output, len(X)


def write_page(path, folder, X, *, labels, row_names, selection, file, n_rows):
    """Write the page of `latently.report`."""
    from latently.report import write_report  # only here: it is large

    record = folder.record
    left_out = "; ".join(f"{name}: {reason}" for name, reason in record.left_out)
    write_report(
        path,
        folder.model,
        X,
        feature_names=record.columns,
        labels=None if labels is None else np.array(["" if text is None else text for text in labels]),
        row_names=row_names,
        selection=selection,
        image_shape=None if record.image_shape is None else tuple(record.image_shape),
        title=f"{type(folder.model).__name__} of {file}",
        data_summary={
            "file": file,
            "rows": n_rows,
            "columns": len(record.columns),
            "standardised": record.standardised,
            **({"left out": left_out} if left_out else {}),
        },
        units=(record.mean, record.scale),
    )


def read_selection(folder):
    """The `Selection` that the model was selected by; None if there was none."""
    record, path = folder.record, folder.path / SELECTION
    if record.selection is None or not path.is_file():
        return None
    pandas = package("pandas", "csv", "tables of a search")
    from latently.selection import Selection

    criterion, parameters = record.selection["criterion"], record.selection["parameters"]
    try:
        table = pandas.read_csv(path, keep_default_na=True, na_values=[""]).drop(columns="rank")
        table = table.astype({"n_parameters": "Int64", "n_iter": "Int64", "converged": "boolean"})
        texts = {name: table[name].fillna("").astype(str) for name in ("started_from", "error")}
        table = table.assign(**texts)
        cells = table[parameters].to_dict("records")
        return Selection(criterion, table, cells, [folder.model] * len(table))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the table {shown(path)} is damaged: {error}; remove it, or fit again") from error
