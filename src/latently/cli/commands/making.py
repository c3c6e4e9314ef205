"""Commands that create a fitted folder: fit and select."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from latently.cli.commands.options import (
    AnswerOptions,
    Budget,
    ColumnOptions,
    Criterion,
    Data,
    Force,
    ImageOptions,
    Jobs,
    ModelOptions,
    ReadOptions,
    Scheduler,
    Seed,
    option,
    output_option,
)
from latently.cli.models import DEFAULT, MODELS, build, model_named, numbers_in
from latently.cli.speaking import Voice, counted, shown
from latently.selection import criteria
from latently.selection.criteria import CRITERIA

ToFolder = Annotated[str, output_option("The folder to create.")]


def fit(
    data: Data,
    *,
    of: ModelOptions,
    columns: ColumnOptions,
    read: ReadOptions,
    images: ImageOptions,
    budget: Budget = 30.0,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    seed: Seed = 0,
    output: ToFolder = "latently-model",
    force: Force = False,
    answer: AnswerOptions,
):
    """Fit a model to a table and save it in a folder. Sizes that are not given are selected by BIC.

    Without --model, the families of models are compared, of the sizes that -k and -q allow if they are given.
    For example:

    latently fit wine.csv --label cultivar --output wines
    """
    request = _request(data, criteria.DEFAULT, of, columns, read, images, seed, output, force)
    request = replace(request, budget=budget, jobs=jobs, scheduler=scheduler)
    from latently.cli.fitting import fit as fitted_to

    with Voice(answer.json, answer.quiet) as voice:
        tell(fitted_to(request, voice), output, voice, data)


def select(
    data: Data,
    *,
    of: ModelOptions,
    criterion: Criterion = criteria.DEFAULT,
    jobs: Jobs = None,
    columns: ColumnOptions,
    read: ReadOptions,
    images: ImageOptions,
    seed: Seed = 0,
    output: ToFolder = "latently-model",
    force: Force = False,
    answer: AnswerOptions,
):
    """Fit models of several sizes, print a comparison and save the best in a folder.

    For example: latently select wine.csv --model mfa -k 1..6 -q 1..4 --output wines
    """
    request = _request(data, criterion, of, columns, read, images, seed, output, force)
    request = replace(request, jobs=jobs)
    if of.model is not None:
        _check_criterion(MODELS[of.model], of.model, criterion)
    from latently.cli.fitting import fit as fitted_to

    with Voice(answer.json, answer.quiet) as voice:
        found = fitted_to(request, voice, select_all=True)
        if found.selection is None:
            voice.note("there was only one size, so nothing was selected; give a range such as -k 1..6")
        tell(found, output, voice, data, with_table=True)


def compare(
    data: Data,
    *,
    columns: ColumnOptions,
    read: ReadOptions,
    budget: Budget = 30.0,
    bootstrap: Annotated[
        int, option(help="Bootstrap fits of each family's best model, for stability.", min=0)
    ] = 0,
    seed: Seed = 0,
    answer: AnswerOptions,
):
    """Compare the families of models on a table, and say which to use.

    For example: latently compare wine.csv --label cultivar --bootstrap 5
    """
    request = _request(data, criteria.DEFAULT, ModelOptions(), columns, read, ImageOptions(), seed, "", False)
    request = replace(request, budget=budget)
    from latently.cli import comparing

    with Voice(answer.json, answer.quiet) as voice:
        found = comparing.compare_table(request, voice, bootstrap)
        comparing.show(found, voice)
        voice.result(found.verdict_, **_facts_of(found))


def _facts_of(comparison):
    table = comparison.table_.astype(object).where(comparison.table_.notna(), None)
    fit = comparison.calibration_
    return {
        "verdict": comparison.verdict_,
        "families": table.to_dict("records"),
        "fits": None if fit is None else fit.fits,
        "unusual_held_out_rows": None if fit is None else fit.n_unusual,
    }


def _request(data, criterion, of, columns, read, images, seed, output, force):
    """The user's options, after the checks that are possible before reading data."""
    for hint, check in (
        ("-k", lambda: of.components is None or numbers_in(of.components, "-k")),
        ("-q", lambda: of.factors is None or numbers_in(of.factors, "-q")),
        ("--model", lambda: of.model is None or model_named(of.model)),
        (
            "--option",
            lambda: not of.options or build(model_named(of.model or DEFAULT), {}, of.options, seed=0),
        ),
    ):
        try:
            check()
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=hint) from None
    if criterion not in CRITERIA:
        raise typer.BadParameter(
            f"it must be {criteria.listed()}, not {shown(criterion)}", param_hint="--criterion"
        )
    reading = read.reading(images.resize, images.colour)
    from latently.cli.fitting import Request

    return Request(
        data, output, force, of.model, of.components, of.factors, of.options or [], criterion, of.max_iter,
        of.tol, seed, columns.columns or [], columns.without or [], columns.as_is or [], columns.kinds,
        columns.label, read.missing or [],
        columns.standardise, columns.in_memory, reading, of.hold_out,
    )  # fmt: skip


def _check_criterion(model, name, criterion):
    """Raise an error unless sizes of the model can be selected by the criterion."""
    if model.can_be_chosen_by(criterion):
        return
    others = [other for other in CRITERIA if model.can_be_chosen_by(other)]
    cure = f"choose {criteria.listed(others)}" if others else "use fit"
    wrong = f"by {criterion}" if others else "by a criterion"
    hint = "--criterion" if others else "--model"
    raise typer.BadParameter(f"sizes of {name} cannot be selected {wrong}; {cure}", param_hint=hint)


_SHOWN_MODELS = 10
_AGREEMENT = {
    "training_accuracy": "{training_accuracy:.1f} % of the labelled rows are classified correctly",
    "clustering_accuracy": "Components agree with {label} in {clustering_accuracy:.1f} % of the rows, "
    "matched one to one",
    "purity": "Components and {label} differ in number: in {purity:.1f} % of the rows, {label} is the most "
    "frequent one of the component (purity); adjusted Rand index {rand:.2f}",
}


_SIZES = ("n_components", "n_factors", "n_row_clusters", "n_column_clusters")


def tell(found, output, voice, data=(), with_table=False):
    """Print a short summary of the fit."""
    from latently.cli.writing import FILES

    record, model, selection = found.record, found.model, found.selection
    name = type(model).__name__
    sizes = {
        parameter: value
        for parameter, value in model.get_params(deep=True).items()
        if parameter.rpartition("__")[2] in _SIZES
    }
    facts = {
        "model": record.model,
        **{parameter.rpartition("__")[2]: value for parameter, value in sizes.items()},
        "rows": record.n_rows,
        "columns": record.columns,
        **({"kinds": {name: record.kind_of(name).name for name in record.columns}} if record.kinds else {}),
        "left_out": [{"column": column, "reason": reason} for column, reason in record.left_out],
        "missing_cells": record.n_missing,
        "standardised": record.standardised,
        "output": output,
    }
    described = ", ".join(
        counted(value, parameter.rpartition("__")[2].removeprefix("n_").replace("_", " ").removesuffix("s"))
        for parameter, value in sizes.items()
    )
    lines = [
        f"{name}{f' ({described})' if described else ''} of {counted(record.n_rows, 'row')} and "
        f"{counted(len(record.columns), 'column')}{', standardised' if record.standardised else ''}"
    ]
    if record.densities:
        facts["median_log_density"] = record.quantile(0.5)
    if hasattr(model, "n_iter_"):
        facts |= {"iterations": model.n_iter_, "converged": model.converged_}
    if selection is not None:
        facts |= {"criterion": selection.criterion, "criterion_value": selection.best_score_}
        facts["selection"] = (
            selection.table_.astype(object).where(selection.table_.notna(), None).to_dict("records")
        )
        lines[0] += f", the best of {len(selection.table_)} by {selection.criterion}"
        if with_table:
            _show_table(selection, voice)
    if found.comparison is not None:
        facts |= _facts_of(found.comparison)
        lines.append(found.comparison.verdict_)
    facts |= found.agreement
    for fact, text in _AGREEMENT.items():
        if fact in found.agreement:
            lines.append(text.format(label=shown(record.label), **_shares(found)))
    files = ", ".join(name for name in FILES if Path(output, name).is_file())
    voice.result([*lines, f"Wrote {files} to {shown(output)}", f"Next: {_next(output, data)}"], **facts)


def _next(output, data):
    """The command that most will want to run next."""
    page = Path(output, "report.html")
    if page.is_file():
        return f"open {shlex.quote(str(page))} in a browser"
    return shlex.join(["latently", "report", str(output), *map(str, data)])


def _shares(found):
    """Measures of agreement in percent, and the Rand index."""
    shares = {fact: 100 * share for fact, share in found.agreement.items()}
    return shares | {"rand": found.agreement.get("adjusted_rand_index", 0.0)}


def _show_table(selection, voice):
    from pandas import isna

    from latently.selection.result import cell_name

    table = selection.table_.sort_values("rank", na_position="last").head(_SHOWN_MODELS)
    parameters = list(selection.best_params_)
    criterion = CRITERIA[selection.criterion]
    columns = ["rank", *parameters, "log_likelihood", "n_parameters", criterion.column, "converged"]
    columns = [name for name in columns if selection.table_[name].notna().any()]  # some have no likelihood
    formats = {"log_likelihood": "{:.4f}", criterion.column: "{:.5g}" if criterion.held_out else "{:.2f}"}
    shown_rows = [
        ["" if isna(row[name]) else formats.get(name, "{}").format(row[name]) for name in columns]
        for row in table[columns].astype(object).to_dict("records")
    ]
    voice.table([name.removeprefix("n_") for name in columns], shown_rows)
    failed = selection.table_[selection.table_["error"] != ""]
    if len(failed):
        first = failed.iloc[0]
        voice.note(
            f"{counted(len(failed), 'fit')} failed, with {cell_name(first[parameters].to_dict())}: "
            f"{first['error']}"
        )
