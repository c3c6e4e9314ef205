"""Commands that use a fitted folder: predict, score, transform, sample, impute, report and explore."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from latently.cli.commands.options import (
    AnswerOptions,
    Data,
    Fitted,
    Force,
    Keep,
    ReadOptions,
    RowsOutput,
    Seed,
    option,
    output_option,
)
from latently.cli.speaking import Voice, counted, shown

_MOST_ROWS = 10**12  # that are drawn, which takes weeks


def predict(
    model: Fitted,
    data: Data,
    *,
    probabilities: Annotated[
        bool, option("--probabilities", help="Write the probabilities of all components or classes.")
    ] = False,
    keep: Keep = None,
    read: ReadOptions,
    to: RowsOutput,
    answer: AnswerOptions,
):
    """Predict the component or class of each row.

    For example: latently predict wines new_wines.csv --output components.csv
    """
    reading = read.reading()
    from latently.cli import using

    with Voice(answer.json, answer.quiet) as voice:
        folder = using.open_folder(model)
        columns_of = using.predictions(folder, probabilities)
        _apply(folder, data, read, reading, columns_of, voice, keep, to)


def score(
    model: Fitted,
    data: Data,
    *,
    accept: Annotated[
        float,
        option(
            help="Probability, below 1, with which new rows of the same kind are to be accepted.",
            min=0.0,
            max=1.0,
        ),
    ] = 0.99,
    reference: Annotated[
        str | None,
        option(
            help="Rows to take the threshold from, which the fit has not seen; by default those of fit "
            "--hold-out, else the rows of the fit."
        ),
    ] = None,
    keep: Keep = None,
    read: ReadOptions,
    to: RowsOutput,
    answer: AnswerOptions,
):
    """Compute the log density of each row, and accept or reject it by a threshold.

    For example: latently score wines new_wines.csv --accept 0.99
    """
    reading = read.reading()
    from latently.cli import using

    with Voice(answer.json, answer.quiet) as voice:
        folder = using.open_folder(model)
        limit = using.threshold(folder, accept, reference, reading, read.missing or (), voice)
        n_rejected = 0

        def columns_of(values):
            nonlocal n_rejected
            scores = using.log_densities(folder, values)
            n_rejected += int((scores < limit).sum())
            return {"log_density": scores, "accepted": scores >= limit}

        def facts(n_rows):
            voice.note(f"{n_rejected} of {n_rows} rows are rejected: their log density is below {limit:.6g}")
            return {"rejected": n_rejected, "threshold": limit, "acceptance": accept}

        _apply(folder, data, read, reading, columns_of, voice, keep, to, facts)


def transform(
    model: Fitted, data: Data, *, keep: Keep = None, read: ReadOptions, to: RowsOutput, answer: AnswerOptions
):
    """Compute the factors of each row.

    For example: latently transform wines new_wines.csv --keep label
    """
    reading = read.reading()
    from latently.cli import using

    with Voice(answer.json, answer.quiet) as voice:
        folder = using.open_folder(model)
        _apply(folder, data, read, reading, using.factors(folder), voice, keep, to)


def sample(
    model: Fitted,
    *,
    rows: Annotated[int, option("--rows", "-n", help="Number of rows.", min=1, max=_MOST_ROWS)] = 10,
    seed: Seed = 0,
    to: RowsOutput,
    answer: AnswerOptions,
):
    """Draw new rows from the model.

    For example: latently sample wines --rows 1000 --output drawn.csv
    """
    from latently.cli import using

    with Voice(answer.json, answer.quiet) as voice:
        n_rows, records = using.sample(using.open_folder(model), rows, seed, to.output, to.force, voice)
        _tell(n_rows, records, to.output, voice)


def impute(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] DATA",
            help="A folder that fit or select wrote, and a table; a table alone to choose a model for it.",
        ),
    ],
    *,
    draw: Annotated[
        bool, option("--draw", help="Draw missing cells at random instead of using their mean.")
    ] = False,
    draws: Annotated[
        int | None,
        option(
            "--draws",
            help="Multiple imputation: write every row so many times, each with other draws and their number "
            "in the column draw.",
            min=1,
        ),
    ] = None,
    std: Annotated[
        bool,
        option("--std", help="Add the standard error of each cell, zero if observed, in columns NAME_std."),
    ] = False,
    seed: Seed = 0,
    read: ReadOptions,
    to: RowsOutput,
    answer: AnswerOptions,
):
    """Impute missing cells by their expectation; all other cells are unchanged.

    For example: latently impute wines incomplete.csv --output completed.csv

    Without a model, several are compared by how well they predict cells that are hidden from them.
    """
    reading = read.reading()
    if len(paths) > 2:
        raise typer.BadParameter("give a table, or a model and a table", param_hint="[MODEL] DATA")
    if draw + std + (draws is not None) > 1:
        raise typer.BadParameter("give one of --draw, --draws and --std", param_hint="--draws")
    from latently.cli import fitting, imputing, using
    from latently.tables import TableModel

    with Voice(answer.json, answer.quiet) as voice:
        facts: dict[str, Any] = {}

        def chosen():
            request = fitting.Request(
                [paths[0]], output="", seed=seed, missing=list(read.missing or ()), reading=reading
            )
            model, record, error, of_means = imputing.chosen_imputer(request, voice)
            facts.update(model=str(model), error=float(error), of_means=float(of_means))
            return using.Folder(None, TableModel.of_fitted(model, record))

        n_rows, records, n_imputed = using.impute(
            chosen if len(paths) == 1 else using.open_folder(paths[0]), paths[-1],
            reading, read.missing or (), voice, draw=draw, draws=draws, std=std,
            seed=seed, output=to.output, force=to.force,
        )  # fmt: skip
        voice.note(f"imputed {counted(n_imputed, 'cell')}")
        _tell(n_rows, records, to.output, voice, filled=n_imputed, **facts)


def report(
    model: Fitted,
    data: Data,
    *,
    read: ReadOptions,
    bootstrap: Annotated[
        int, option(help="Bootstrap fits, for intervals of the parameters; 200 are usual.", min=0)
    ] = 0,
    output: Annotated[str | None, output_option("By default report.html in the folder.")] = None,
    force: Force = False,
    answer: AnswerOptions,
):
    """Write a report on the model and the data, in one HTML file.

    For example: latently report wines wine.csv
    """
    reading = read.reading()
    from latently.cli import using

    with Voice(answer.json, answer.quiet) as voice:
        path, n_rows = using.report(
            using.open_folder(model), data, reading, read.missing or (), voice,
            output=output, force=force, n_bootstrap=bootstrap,
        )  # fmt: skip
        voice.result(f"Wrote {shown(path)}", output=os.fspath(path), rows=n_rows)


def explore(
    model: Fitted,
    data: Data,
    *,
    opened: Annotated[bool, option("--open/--no-open", help="Open the page in a browser.")] = True,
    read: ReadOptions,
    output: Annotated[str | None, output_option("By default explore.html in the folder.")] = None,
    force: Force = False,
    answer: AnswerOptions,
):
    """Explore the model in a browser: rows it makes at any factors, and rows of the data beside them.

    Writes one HTML file that needs no network, and opens it.
    """
    reading = read.reading()
    import webbrowser

    from latently.cli import using

    with Voice(answer.json, answer.quiet) as voice:
        path, n_rows = using.report(
            using.open_folder(model), data, reading, read.missing or (), voice,
            output=output, force=force, explorer=True,
        )  # fmt: skip
        shown_there = opened and webbrowser.open(path.resolve().as_uri())
        if opened and not shown_there:
            voice.note(f"no browser could be opened; open {shown(path)} in one")
        voice.result(f"Wrote {shown(path)}", output=os.fspath(path), rows=n_rows, opened=bool(shown_there))


def _apply(folder, data, read, reading, columns_of, voice, keep, to, facts=lambda n_rows: {}):
    """Write the columns for all rows; `facts(n_rows)` are further results to report."""
    from latently.cli import using

    n_rows, records = using.apply(
        folder, data, reading, read.missing or (), columns_of, voice,
        output=to.output, force=to.force, keep=keep or (),
    )  # fmt: skip
    _tell(n_rows, records, to.output, voice, **facts(n_rows))


def _tell(n_rows, records, output, voice, **facts):
    """Report what was written where; not for rows on stdout."""
    if records is not None:
        facts["results"] = records
    if voice.json or output is not None:
        voice.result(
            f"Wrote {counted(n_rows, 'row')} to {shown(output)}", rows=n_rows, output=output, **facts
        )
