"""`fit` and `select`: fit a model to the rows of a table and save it in a folder."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from latently.cli.models import DEFAULT, MODELS, build, model_named, numbers_in
from latently.cli.speaking import counted, shown
from latently.cli.tables import choice_of, kinds_in_words, open_table
from latently.cli.writing import COMPARISON, DESCRIPTION, MODEL, SELECTION, new_folder
from latently.core.sources import open_source, package
from latently.metrics import adjusted_rand_score, clustering_accuracy, purity
from latently.selection.criteria import CRITERIA
from latently.selection.criteria import DEFAULT as DEFAULT_CRITERION
from latently.tables import TableModel
from latently.tables.preparation import Preparation, described, held_out_scores, quantiles
from latently.tables.preparing import (
    IN_MEMORY_BYTES,
    check_enough,
    collected,
    held_out_chunks,
    recorded,
    surveyed,
)
from latently.tables.reading import Reading

MOST_COMPONENTS, MOST_FACTORS = 6, 5  # largest sizes in the default search
BUDGET = 30.0  # seconds to compare families
ROWS_TO_CHOOSE_BY = 10_000  # largest sample of rows with which `fit` selects sizes
_FACTORS = 2  # default for classifiers
MIXED = "mixed"  # the model of tables with categories


@dataclass(frozen=True)
class Request:
    """The user's options for `fit` or `select`."""

    data: list[str]
    output: str
    force: bool = False
    model: str | None = None
    k: str | None = None
    q: str | None = None
    options: list[str] = field(default_factory=list)
    criterion: str = DEFAULT_CRITERION
    max_iter: int | None = None
    tol: float | None = None
    seed: int = 0
    columns: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    as_is: list[str] = field(default_factory=list)
    kinds: dict[str, Any] = field(default_factory=dict)
    label: str | None = None
    missing: list[str] = field(default_factory=list)
    standardise: bool | None = None
    in_memory: bool | None = None  # None depends on the size
    reading: Reading = field(default_factory=Reading)
    hold_out: float = 0.0  # share of the rows that are left out of the fit
    jobs: int | None = None
    budget: float = BUDGET  # seconds to compare families
    scheduler: str | None = None  # address of a Dask cluster that fits


@dataclass
class Fitted:
    """The result of `fit` or `select`."""

    model: object
    record: Preparation
    X: object  # rows in the model's units, or the path of a file of them, which exists only during `then`
    codes: np.ndarray | None  # class indices of the rows, -1 if unlabelled
    labels: list[str]  # names of the classes
    selection: object | None
    agreement: dict[str, float]  # of the model with the labels, by name
    comparison: object | None = None  # of families, if no model was asked for


def fit(request, voice, *, select_all=False, then=None):
    """Fit a model and save it in the folder; with `select_all` sizes are always selected on all rows.

    `then(fitted, table_model, folder)` may add files to the temporary folder before it is renamed.
    """
    with new_folder(request.output, request.force) as folder:
        fitted = _fitted(request, voice, folder, select_all)
        table_model = TableModel.of_fitted(fitted.model, fitted.record)
        table_model.save(folder / MODEL)
        if fitted.comparison is not None:
            fitted.comparison.table_.to_csv(folder / COMPARISON, index=False)
        if fitted.selection is not None:
            fitted.selection.table_.to_csv(folder / SELECTION, index=False)
        (folder / DESCRIPTION).write_text(described(fitted.record), encoding="utf-8")
        if then is not None:
            then(fitted, table_model, folder)
        if isinstance(fitted.X, str):
            (folder / "rows.npy").unlink()
    return fitted


def _fitted(request, voice, folder, select_all):
    table = open_table(request.data, request.reading, voice)
    if request.scheduler is not None:  # workers read the rows from their file
        request = replace(request, in_memory=False)
    limit = {None: IN_MEMORY_BYTES, True: np.inf, False: 0}[request.in_memory]
    known = surveyed(
        table,
        choice_of(
            request, model_named(request.model or DEFAULT), decides=not (request.model or request.options)
        ),
        missing=request.missing,
        label=request.label,
        limit=limit,
        hold_out=request.hold_out,
        seed=request.seed,
    )
    if len(known.held_out):
        n, n_all = len(known.held_out), len(known.held_out) + known.found.n_rows
        voice.note(f"{counted(n, 'row')} of {n_all} are held out of the fit, for thresholds of scores")
    places = known.places
    name = request.model or (DEFAULT if len(places) > 1 or request.q else "gaussian-mixture")
    name = MIXED if known.mixed else name
    model = model_named(name)
    _check_labels(request, model, name, known.found, voice)
    record = recorded(
        known,
        model.name,
        model=name,
        missing=request.missing,
        as_is=request.as_is,
        standardise=request.standardise,
        seed=request.seed,
    )
    if known.kinds:
        voice.note(f"{kinds_in_words(record)}; --kind NAME=KIND chooses another")
    if not known.in_memory and request.in_memory is None:
        voice.note("the table is large, so its numbers are kept in a temporary file during the fit")
    rows = collected(known, record, scratch=folder, in_memory=request.in_memory is True)
    if _compares(request, select_all) and rows.n_rows >= FEWEST_TO_COMPARE:
        fitted = _best_family(request, record, rows, voice)
        return replace(fitted, record=_with_held_out(fitted.record, fitted.model, known, request.seed))
    if request.model is None:
        voice.note(f"the model is {name}; --model chooses another")
    labels, rows = _labels(model, name, rows, voice)
    sizes, grid = _sizes(request, model, rows.n_rows, len(places))
    estimator = build(
        model, sizes, request.options, seed=request.seed, max_iter=request.max_iter, tol=request.tol
    )
    if record.kinds:
        estimator.set_params(columns=record.estimator_columns())
    selection, all_rows = None, select_all or rows.n_rows <= ROWS_TO_CHOOSE_BY
    if grid:
        by = rows.X if all_rows else drawn(rows, request.seed, voice)
        selection = selected(estimator, by, grid, request, voice)
        estimator.set_params(**selection.best_params_)
    check_enough(estimator, rows.n_rows)
    fitted = (
        selection.best_
        if selection and all_rows
        else _run(estimator, rows.X, labels, voice, request.scheduler)
    )
    record = _with_held_out(record, fitted, known, request.seed)
    return _complete(fitted, record, rows, selection)


FEWEST_TO_COMPARE = 20  # rows


def _compares(request, select_all):
    """Whether families are compared: nothing was said about the model but its size."""
    given = request.model or request.options
    return not (given or select_all) and request.criterion == DEFAULT_CRITERION


def _best_family(request, record, rows, voice):
    from latently.cli.comparing import compared, winner

    X = rows.X if isinstance(rows.X, np.ndarray) else drawn(rows, request.seed, voice)
    comparison = compared(X, record, request, voice)
    name, estimator = winner(comparison, request.seed)
    more = {
        parameter: value
        for parameter, value in (("max_iter", request.max_iter), ("tol", request.tol))
        if value is not None
    }
    fitted = _run(estimator.set_params(**more), rows.X, None, voice, request.scheduler)
    fit = comparison.calibration_
    record = replace(
        record,
        model=name,
        verdict=comparison.verdict_,
        probability_plot=None if fit is None else [fit.expected, fit.observed],
    )
    return replace(_complete(fitted, record, rows, None), comparison=comparison)


def _with_held_out(record, fitted, known, seed):
    """The record with log densities of held-out rows, from which later commands take thresholds."""
    if not len(known.held_out):
        return record
    if not hasattr(fitted, "score_samples"):
        raise ValueError(f"--hold-out is of no use: a {type(fitted).__name__} has no densities")
    scores = [
        np.asarray(fitted.score_samples(X), dtype=np.float64) - record.log_volume(X)
        for X in held_out_chunks(known, record)
    ]
    return replace(record, held_out=held_out_scores(np.concatenate(scores), np.random.default_rng(seed)))


def _complete(fitted, record, rows, selection):
    """The record, completed with results of the fit."""
    densities = []
    if hasattr(fitted, "score_samples"):
        scores = np.asarray(fitted.score_samples(rows.X), dtype=np.float64)
        densities = quantiles(
            scores - np.concatenate([record.log_volume(chunk) for chunk in chunks_of(rows.X)])
        )
    parameters = None if selection is None else list(selection.best_params_)
    record = replace(
        record,
        densities=densities,
        selection=None if selection is None else {"criterion": selection.criterion, "parameters": parameters},
    )
    return Fitted(fitted, record, rows.X, rows.codes, rows.labels, selection, _agreement(fitted, rows))


def _agreement(model, rows):
    """Of predicted classes the accuracy; of components that of the best one-to-one matching with labels, or
    purity and adjusted Rand index if their numbers differ.
    """
    if rows.codes is None or not hasattr(model, "predict"):
        return {}
    known = rows.codes >= 0
    answers = np.asarray(model.predict(rows.X))[known]
    if hasattr(model, "classes_"):
        right = answers.astype(str) == np.array(rows.labels)[rows.codes[known]]
        return {"training_accuracy": float(right.mean())}
    codes = rows.codes[known]
    if len(np.unique(answers)) == 1:  # then there is nothing to compare
        return {}
    if len(np.unique(answers)) == len(np.unique(codes)):
        return {"clustering_accuracy": float(clustering_accuracy(codes, answers))}
    return {  # a one-to-one matching would leave some out
        "purity": float(purity(codes, answers)),
        "adjusted_rand_index": float(adjusted_rand_score(codes, answers)),
    }


def chunks_of(X):
    """Rows in memory or on disk, in chunks."""
    source: Any = X if isinstance(X, np.ndarray) else open_source(X)
    return [source] if isinstance(source, np.ndarray) else source.chunks()


def _check_labels(request, model, name, found, voice):
    if model.labels and request.label is None:
        raise ValueError(f"the model {name} is a classifier; give the column of the classes with --label")
    if request.label is None:
        return
    if not found.labels:
        raise ValueError(f"the column {shown(request.label)} has no labels: every cell is missing")
    if not model.labels and not model.may_use_labels:
        classifiers = ", ".join(
            known for known, entry in MODELS.items() if entry.labels or entry.may_use_labels
        )
        subject = f"the model {name} does not use the labels" if request.model else "the labels are not used"
        voice.note(
            f"{subject}; they are only compared with its result; models that use labels: {classifiers}"
        )
    elif len(found.labels) > max(100, found.n_rows // 2):
        raise ValueError(
            f"the column {shown(request.label)} has {len(found.labels)} different labels "
            f"in {found.n_rows} rows; give a column with few classes"
        )


def _labels(model, name, rows, voice):
    """Labels for the fit of a classifier, and the rows that it can use."""
    if not model.labels and not (model.may_use_labels and rows.codes is not None):
        return None, rows
    names = rows.labels
    known = rows.codes >= 0
    labels = np.array([names[code] if code >= 0 else -1 for code in rows.codes], dtype=object)
    if known.all():
        return labels.astype(str), rows
    if name == "per-class":
        if not isinstance(rows.X, np.ndarray):
            raise ValueError("per-class needs all rows in memory; give --in-memory, or use the model mjfa")
        voice.note(f"{counted(int((~known).sum()), 'row')} without a label are not used")
        return labels[known].astype(str), replace(
            rows, X=rows.X[known], n_rows=int(known.sum()), codes=rows.codes[known]
        )
    voice.note(f"{counted(int((~known).sum()), 'row')} without a label are used as unlabelled training data")
    return labels, rows


# -- sizes -----------------------------------------------------------------------------------------------


def _sizes(request, model, n_rows, n_columns):
    """Given parameters, and the grid of those to be selected."""
    sizes, grid = {}, {}
    usual = {
        "-k": range(1, max(1, min(MOST_COMPONENTS, n_rows // 10)) + 1),
        "-q": model.usual_q or range(1, max(1, min(MOST_FACTORS, n_columns - 1)) + 1),
    }
    for given, text, parameter in (("-k", request.k, model.k), ("-q", request.q, model.q)):
        if parameter is None:
            if text is not None:
                what = "components" if given == "-k" else "factors"
                raise ValueError(f"{given} cannot be used with {model.name}, which has no number of {what}")
            continue
        if text is None and model.kind == "network":  # nothing selects its size
            continue
        values = list(usual[given]) if text is None else numbers_in(text, given)
        if len(values) == 1:
            sizes[parameter] = values[0]
        elif model.can_be_chosen_by(request.criterion):
            grid[parameter] = values
        elif text is not None:
            raise ValueError(f"{given} must be one number for {model.name}, not {shown(text)}")
        elif given == "-q":
            sizes[parameter] = min(_FACTORS, n_columns)
        elif not model.labels:
            raise ValueError(f"{model.name} cannot select its size; give -k")
    return sizes, grid


def drawn(rows, seed, voice):
    """A random sample of rows for the selection of sizes."""
    some = np.sort(np.random.default_rng(seed).choice(rows.n_rows, ROWS_TO_CHOOSE_BY, replace=False))
    voice.note(f"sizes are selected on {len(some)} rows drawn from {rows.n_rows}; latently select uses all")
    start, parts = 0, []
    for chunk in chunks_of(rows.X):
        here = some[(some >= start) & (some < start + len(chunk))]
        parts.append(chunk[here - start])
        start += len(chunk)
    return np.concatenate(parts)


def selected(estimator, X, grid, request, voice):
    package("pandas", "csv", "choices of sizes")
    if CRITERIA[request.criterion].held_out and not isinstance(X, np.ndarray):
        raise ValueError(
            f"the criterion {request.criterion} needs all rows in memory; give --in-memory, or use another"
        )
    from latently.selection import select

    with redirect_stdout(sys.stderr):  # the library's progress bar belongs on stderr
        return select(
            estimator,
            X,
            grid,
            request.criterion,
            n_jobs=request.jobs,
            random_state=request.seed,
            verbose=int(voice.watched),
        )


# -- one fit ---------------------------------------------------------------------------------------------


def _run(estimator, X, labels, voice, scheduler=None):
    if scheduler is not None:
        from latently.cli.cluster import rows_on_cluster

        with rows_on_cluster(X, scheduler, voice) as rows:
            return _run(estimator, rows, labels, voice)
    title = f"Fitting {type(estimator).__name__}"
    with voice.bar(title) as moved:
        has_callbacks = "callbacks" in estimator.get_params(deep=False)
        if has_callbacks:
            estimator.set_params(
                callbacks=[lambda iteration: moved(iteration.number, iteration.max_iter) or None]
            )
        try:
            estimator.fit(X) if labels is None else estimator.fit(X, labels)
        finally:
            if has_callbacks:
                estimator.set_params(callbacks=None)  # they cannot be saved, and belong to this fit
    return estimator
