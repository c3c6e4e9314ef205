"""Commands that use a fitted folder, from `predict` to `report` and `explore`.

Rows are processed in chunks, so a file may be larger than memory. Results have the user's units and names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from latently.cli.speaking import shown
from latently.cli.tables import open_table
from latently.cli.writing import (
    EXPLORE,
    REPORT,
    SELECTION,
    check_file,
    check_kind,
    check_room,
    new_file,
    write_rows,
)
from latently.core import conformal
from latently.core.sources import package
from latently.estimators.rejection import check_acceptance
from latently.saved import load
from latently.tables import answers
from latently.tables.kinds import DATES
from latently.tables.preparation import ACCEPTANCE
from latently.tables.preparing import later_rows, standardises
from latently.tables.reading import FILE

CELLS_IN_REPORT = 16_000_000  # of more, rows are drawn
MOST_SAMPLES_AT_ONCE = 100_000


@dataclass
class Folder:
    """A table model, as written by `fit` or `select`."""

    path: Path | None  # None if it was not read from a folder
    table_model: Any

    @property
    def model(self):
        """The estimator, of prepared rows."""
        return self.table_model.estimator_

    @property
    def record(self):
        return self.table_model.preparation_

    def needs(self, method, what):
        if not hasattr(self.model, method):
            raise ValueError(f"the model {shown(self.record.model)} in {shown(self.path)} cannot {what}")


def open_folder(path):
    """The folder, or file of a table model, validated."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"there is no folder {shown(path)}; latently fit creates one")
    model = load(path)
    if type(model).__name__ != "TableModel":
        raise ValueError(
            f"{shown(path)} holds a {type(model).__name__} that knows no columns; give the folder that "
            "latently fit wrote, or the file of a TableModel"
        )
    return Folder(path, model)


def open_later(folder, data, reading, missing, voice):
    """The rows that the model is applied to."""
    record = folder.record
    if record.image_shape is not None:  # images are resized to the size used in the fit
        reading = replace(reading, resize=tuple(record.image_shape[:2]), colour=len(record.image_shape) == 3)
    return later_rows(open_table(data, reading, voice), record, missing)


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
    if FILE in later.table.beside:  # of images, or one of several
        keep = (*keep, "file")

    def frames():
        for frame, values, start in later.frames(keep):
            first = {"row": np.arange(start + 1, start + len(frame) + 1)}
            found = columns_of(values)
            kept = {answers.free(name, {**first, **found}): frame[name].to_numpy() for name in keep}
            yield pandas.DataFrame(first | kept | found)

    return write_rows(frames(), output, force, as_object=voice.json, **later.manner)


def predictions(folder, all_probabilities):
    """Columns for `predict`."""
    folder.needs("predict", "predict components or classes")
    model, record = folder.model, folder.record
    classes, name = getattr(model, "classes_", None), answers.kind_of_group(model)
    if not hasattr(model, "predict_proba"):  # labels alone, such as those of co-clusters
        return lambda values: {name: answers.predicted(model, record, values)}

    def columns_of(values):
        if not hasattr(model, "predict_proba"):  # an outlier detector
            return answers.anomalies(model, record, values)
        probability = answers.probabilities(model, record, values)
        found = {name: answers.predicted(model, record, values), "probability": probability.max(axis=1)}
        if all_probabilities:
            kinds = range(probability.shape[1]) if classes is None else classes
            found |= {
                f"probability of {kind}": column for kind, column in zip(kinds, probability.T, strict=True)
            }
        return found

    return columns_of


def log_densities(folder, values):
    """(n,) in the user's units."""
    return answers.log_densities(folder.model, folder.record, values)


def threshold(folder, acceptance, reference, reading, missing, voice):
    """The log density below which rows are rejected: from reference rows, else as the record has it."""
    check_acceptance("--accept", acceptance)
    folder.needs("score_samples", "compute densities")
    record = folder.record
    if reference is None:
        if not record.held_out:
            voice.note(
                f"the threshold is that of {acceptance:.4g} of the rows of the fit, and of new rows a few "
                "more are rejected; for a guarantee give --reference with other rows, or fit with --hold-out "
                "0.2"
            )
        return record.threshold(acceptance)
    later = open_later(folder, reference, reading, missing, voice)
    if later.table.path.name == record.file:
        voice.note(
            f"the reference rows are in a file of the same name as those of the fit, {shown(record.file)}; "
            "densities of rows that the fit has seen are too high, and too many new rows are then rejected"
        )
    scores = np.concatenate([log_densities(folder, values) for _, values, _ in later.frames()])
    return conformal.threshold(scores, acceptance)


def factors(folder):
    """Columns for `transform`."""
    folder.needs("transform", "compute factors: it has none")

    def columns_of(values):
        rows = answers.factors(folder.model, folder.record, values)
        return dict(zip(answers.factor_names(rows.shape[1]), rows.T, strict=True))

    return columns_of


def sample(folder, n, seed, output, force, voice):
    """Write rows drawn from the model."""
    package("pandas", "csv", "tables of results")
    folder.needs("sample", "generate rows")
    check_kind(output)
    rng = np.random.default_rng(seed)

    def frames():
        with voice.bar("Drawing rows", n) as moved:
            for start in range(0, n, MOST_SAMPLES_AT_ONCE):
                now = min(MOST_SAMPLES_AT_ONCE, n - start)
                frame = answers.sampled(folder.model, folder.record, now, rng)
                if start == 0:
                    check_room(frame, n, output, as_object=voice.json)
                yield frame
                moved(start + now)

    return write_rows(frames(), output, force, as_object=voice.json)


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
    model, record = folder.model, folder.record
    if (draw or draws or std) and not answers.draws_rows(model):
        raise ValueError(
            f"the model {shown(record.model)} imputes expectations only; --draw, --draws and --std "
            "need a mixture, such as mfa"
        )
    later = open_later(folder, data, reading, missing, voice)
    as_text = later.table.dialect is not None
    rng = np.random.default_rng(seed)
    n_imputed = 0

    def frames():
        nonlocal n_imputed
        for frame, values, _ in later.frames(None):
            n_imputed += int(np.isnan(values[~answers.lines_of_text(frame, later, values)]).sum())
            if std:
                imputed, errors = answers.imputed_with_errors(model, record, values)
                completed = answers.with_imputed(frame, later, values, imputed, as_text=as_text)
                yield answers.with_errors(completed, later, errors)
            elif draws or draw:
                tables = answers.imputed_draws(model, record, values, draws or 1, rng)
                tables = [
                    answers.with_imputed(frame, later, values, rows, as_text=as_text) for rows in tables
                ]
                yield answers.one_below_the_other(tables) if draws else tables[0]
            else:
                imputed = answers.imputed(model, record, values)
                yield answers.with_imputed(frame, later, values, imputed, as_text=as_text)

    written = write_rows(frames(), output, force, as_object=voice.json, **later.manner)
    return *written, n_imputed


# -- the report ------------------------------------------------------------------------------------------


def report(folder, data, reading, missing, voice, *, output, force, explorer=False, n_bootstrap=0):
    """Write the page, or that of the explorer alone; returns its path and the number of rows it shows."""
    if output is None:
        own = EXPLORE if explorer else REPORT
        output = folder.path / own if folder.path.is_dir() else folder.path.with_suffix(".html")
    output = Path(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"the output {shown(output)} must end in .html: a report is a web page, "
            "which a browser can print to a PDF"
        )
    check_file(output, force)
    later = open_later(folder, data, reading, missing, voice)
    record = folder.record
    label = record.label if record.label in later.table.columns else None
    rng = np.random.default_rng(record.seed)
    labels: list[Any] = []
    most = max(1, CELLS_IN_REPORT // len(record.columns))
    rows, names, keys, numbers, n_rows = [], [], [], [], 0
    for frame, values, start in later.frames([] if label is None else [label]):
        n_rows += len(frame)
        rows.append(values)
        keys.append(rng.random(len(frame)))
        numbers.append(np.arange(start + 1, start + len(frame) + 1))
        labels += later.labels(frame) if label else [None] * len(frame)
        names += list(frame["file"]) if later.table.path.is_dir() else [None] * len(frame)
        if sum(map(len, rows)) > most:  # keep the rows with the smallest random keys
            values, key, number = np.concatenate(rows), np.concatenate(keys), np.concatenate(numbers)
            some = np.sort(np.argpartition(key, most - 1)[:most])
            rows, keys, numbers = [values[some]], [key[some]], [number[some]]
            labels, names = [labels[i] for i in some], [names[i] for i in some]
    X = record.to_frame(np.concatenate(rows))
    if len(X) < n_rows:
        voice.note(f"the report shows {len(X)} rows drawn from {n_rows}")
    uncertainty = _uncertainty(folder, X, labels if label else None, n_bootstrap) if n_bootstrap else None
    with voice.bar("Writing the page"), new_file(output, force) as path:
        write_page(
            path,
            folder,
            X,
            labels=labels if label else None,
            row_names=names if later.table.path.is_dir() else None,
            selection=read_selection(folder),
            file=later.table.path.name,
            n_rows=n_rows,
            row_numbers=np.concatenate(numbers),
            explorer=explorer,
            uncertainty=uncertainty,
            data=data,
            table_columns=[name for name in later.table.columns if name not in later.table.beside],
        )
    return output, len(X)


def write_page(
    path,
    folder,
    X,
    *,
    labels,
    row_names,
    selection,
    file,
    n_rows,
    row_numbers=None,
    data=None,
    table_columns=(),
    explorer=False,
    uncertainty=None,
):
    """Write the page of `latently.report`, or that of its explorer."""
    from latently import report as pages  # only here: it is large

    record = folder.record
    left_out = "; ".join(f"{name}: {reason}" for name, reason in record.left_out)
    given: dict[str, Any] = dict(
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
        row_numbers=row_numbers,
        n_rows=n_rows,
        threshold=_usual_threshold(record),
        verdict=record.verdict,
        probability_plot=record.probability_plot,
        columns={**record.levels, **{name: "date" for name, kind in record.kinds.items() if kind in DATES}},
        uncertainty=uncertainty,
        command_line=None if data is None else _command_line(folder, data, table_columns),
    )
    if explorer:
        pages.explore(folder.model, X, **given).save(path)
    else:
        pages.write_report(path, folder.model, X, **given)


def _uncertainty(folder, X, labels, n_draws):
    """Of the rows of known classes, if the model has classes."""
    from latently.selection import bootstrap

    record, model, y = folder.record, folder.model, None
    if hasattr(model, "classes_"):
        if labels is None:
            raise ValueError(f"--bootstrap needs the classes, but the table has no column {record.label!r}")
        classes = {str(label): code for code, label in enumerate(model.classes_)}
        codes = np.array([classes.get(str(label), -1) for label in labels])
        X, y = X[codes >= 0], model.classes_[codes[codes >= 0]]
    names = {"feature_names": record.columns, "levels": record.levels}
    return bootstrap(model, X, y, n_draws=max(2, n_draws), random_state=record.seed, **names)


def _usual_threshold(record):
    """That of `score` without options; None if too few rows were held out for it."""
    too_few = record.held_out and len(record.held_out) < conformal.least_rows(ACCEPTANCE)
    return record.threshold(ACCEPTANCE) if record.densities and not too_few else None


def _command_line(folder, data, columns):
    """What the printed next steps have to name, so that they fit to the same columns of the table."""
    from latently.cli.models import MODELS
    from latently.report import CommandLine

    record, entry = folder.record, MODELS.get(folder.record.model)
    if entry is None:  # of a Python session
        return None
    sizes = {"-k": entry.k, "-q": entry.q}
    given = {option: getattr(folder.model, name, None) for option, name in sizes.items() if name}
    options = [] if record.label is None else ["--label", record.label]
    options += [part for name, why in record.left_out if why == "not wanted" for part in ("--without", name)]
    known = {*record.columns, record.label, *(name for name, _ in record.left_out)}
    if not known.issuperset(columns) and set(record.columns) <= set(columns):  # some were asked for
        together = not any("," in name for name in record.columns)
        asked = [",".join(record.columns)] if together else record.columns
        options += [part for names in asked for part in ("--columns", names)]
    if not record.standardised and standardises(entry.name) and record.image_shape is None:
        options.append("--no-standardise")
    options += [part for text in record.missing for part in ("--missing", text)]
    options += [part for name in record.as_is for part in ("--as-is", name)]
    for name, kind in record.kinds.items():
        levels = record.levels[name] if kind == "ordinal" else [kind]
        options += ["--kind", f"{name}={','.join(levels)}"]
    options += [part for text in _settings(folder.model, entry) for part in ("--option", text)]
    return CommandLine(
        str(folder.path),
        tuple(map(str, data)) if isinstance(data, list | tuple) else (str(data),),
        record.model,
        {option: size for option, size in given.items() if isinstance(size, int)},
        tuple(options),
        record.verdict is not None,
    )


def _settings(model, entry):
    """Settings of a model that are not the defaults, as --option has them."""
    given = model.get_params(deep=False)
    defaults = type(model)().get_params(deep=False) if entry.name != "PerClass" else given
    own = {entry.k, entry.q, "random_state", "max_iter", "tol", "callbacks", "verbose"}
    return [
        f"{name}={value}"
        for name, value in given.items()
        if name not in own and value != defaults[name] and isinstance(value, bool | int | float | str)
    ]


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
