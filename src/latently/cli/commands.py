"""What there is to type: commands and their options. The work is elsewhere, and imported as it begins."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from latently.cli.models import DEFAULT, MODELS, build, model_named, numbers_in
from latently.cli.speaking import Voice, counted, shown

app = typer.Typer(
    name="latently",
    help="Density models with structured latent variables: fit them, choose among them and use them.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_READING, _MODEL, _OUTPUT = "How data are read", "Model", "Output"


def _model_names(incomplete: str):
    return [(name, model.title) for name, model in MODELS.items() if name.startswith(incomplete)]


def _data_names(incomplete: str):
    from latently.datasets import names

    return [(name, title) for name, title in names().items() if name.startswith(incomplete)]


def _option(*names, help, panel=None, **more):
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


Data = Annotated[str, typer.Argument(help="A CSV, TSV, Parquet, .npy or .npz file, or a folder of images.")]
Fitted = Annotated[str, typer.Argument(metavar="MODEL", help="A folder that fit or select wrote.")]
Separator = Annotated[
    str | None, _option(help="The mark between cells; guessed if not given.", panel=_READING)
]
Decimal = Annotated[
    str | None, _option(help="The decimal mark, '.' or ','; guessed if not given.", panel=_READING)
]
Header = Annotated[
    bool | None,
    _option(
        "--header/--no-header", help="Whether the first line has names; guessed if not given.", panel=_READING
    ),
]
Array = Annotated[str | None, _option(help="Which array of an .npz file.", panel=_READING)]
Resize = Annotated[
    str | None, _option(help="Size of all images, such as 28x28 (width x height).", panel=_READING)
]
Colour = Annotated[bool, _option("--colour", help="Keep the colours of images.", panel=_READING)]
Missing = Annotated[
    list[str] | None,
    _option(
        help="A further text that stands for a missing cell; may be given several times.", panel=_READING
    ),
]
Columns = Annotated[
    list[str] | None,
    _option(
        "--columns", "-c", help="Columns to use: names with commas between, * for any text.", panel=_READING
    ),
]
Without = Annotated[list[str] | None, _option(help="Columns to leave out, written likewise.", panel=_READING)]
Label = Annotated[
    str | None,
    _option("--label", "-l", help="The column that holds classes (of images: folder).", panel=_READING),
]
Standardise = Annotated[
    bool | None,
    _option(
        "--standardise/--no-standardise",
        help="Give columns mean 0 and deviation 1 for the fit. By default tables are, images and counts not.",
        panel=_READING,
    ),
]
InMemory = Annotated[
    bool | None,
    _option(
        "--in-memory/--from-disk",
        help="Where the numbers are during the fit. By default more than 256 MB of them are on disk.",
        panel=_READING,
    ),
]
ModelName = Annotated[
    str | None,
    _option("--model", "-m", help=f"One of {', '.join(MODELS)}.", panel=_MODEL, autocompletion=_model_names),
]
Components = Annotated[
    str | None,
    _option("-k", "--components", help="Number of components, or a range such as 1..6.", panel=_MODEL),
]
Factors = Annotated[
    str | None, _option("-q", "--factors", help="Number of factors, or a range such as 1..5.", panel=_MODEL)
]
Options = Annotated[
    list[str] | None,
    _option(
        "--option", help="name=value, a parameter of the model; may be given several times.", panel=_MODEL
    ),
]
MaxIter = Annotated[int | None, _option(help="Most iterations of a fit.", panel=_MODEL, min=0)]
Tol = Annotated[float | None, _option(help="Relative gain at which a fit ends.", panel=_MODEL, min=0.0)]
Criterion = Annotated[str, _option(help="bic, aic, icl or log_likelihood (of rows held out).", panel=_MODEL)]
Seed = Annotated[int, _option(help="Seed of all that is drawn by chance.", min=0, max=2**32 - 1)]
ToFolder = Annotated[str, _option("--output", "-o", help="The folder to make.", panel=_OUTPUT)]
ToFile = Annotated[
    str | None,
    _option("--output", "-o", help="A .csv, .tsv or .parquet file; by default CSV on stdout.", panel=_OUTPUT),
]
Force = Annotated[bool, _option("--force", help="Replace what is there.", panel=_OUTPUT)]
Json = Annotated[bool, _option("--json", help="Answer with one JSON object on stdout.", panel=_OUTPUT)]
Debug = Annotated[bool, _option("--debug", help="Show where an error came from.", panel=_OUTPUT)]
Keep = Annotated[
    list[str] | None,
    _option(help="A column of the data to copy to the output; may be given several times.", panel=_OUTPUT),
]


def _reading(separator, decimal, header, array, resize=None, colour=False):
    from latently.cli.tables import Reading, size_of

    if separator is not None:
        separator = {"\\t": "\t", "tab": "\t", "space": r"\s+"}.get(separator, separator)
        if (len(separator) != 1 and separator != r"\s+") or separator in '"\n\r':
            raise typer.BadParameter(
                f"it is one character, tab or space, not {shown(separator)}", param_hint="--separator"
            )
    if decimal not in (None, ".", ","):
        raise typer.BadParameter(f"it is '.' or ',', not {shown(decimal)}", param_hint="--decimal")
    try:
        return Reading(separator, decimal, header, array, size_of(resize) if resize else None, colour)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--resize") from None


def _checked(k, q, model, options, criterion="bic"):
    """Errors of usage that can be told before anything is read."""
    for hint, check in (
        ("-k", lambda: k is None or numbers_in(k, "-k")),
        ("-q", lambda: q is None or numbers_in(q, "-q")),
        ("--model", lambda: model is None or model_named(model)),
        ("--option", lambda: not options or build(model_named(model or DEFAULT), {}, options, seed=0)),
    ):
        try:
            check()
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=hint) from None
    if criterion not in ("bic", "aic", "icl", "log_likelihood"):
        raise typer.BadParameter(
            f"it must be bic, aic, icl or log_likelihood, not {shown(criterion)}", param_hint="--criterion"
        )


# -- making models ---------------------------------------------------------------------------------------


@app.command()
def fit(
    data: Data,
    model: ModelName = None,
    components: Components = None,
    factors: Factors = None,
    option: Options = None,
    max_iter: MaxIter = None,
    tol: Tol = None,
    columns: Columns = None,
    without: Without = None,
    label: Label = None,
    missing: Missing = None,
    standardise: Standardise = None,
    in_memory: InMemory = None,
    separator: Separator = None,
    decimal: Decimal = None,
    header: Header = None,
    array: Array = None,
    resize: Resize = None,
    colour: Colour = False,
    seed: Seed = 0,
    output: ToFolder = "latently-model",
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
):
    """Fit a model to a table and keep it in a folder. Sizes that are not given are chosen by BIC."""
    _checked(components, factors, model, option)
    reading = _reading(separator, decimal, header, array, resize, colour)
    from latently.cli.fitting import Request
    from latently.cli.fitting import fit as fitted_to

    with Voice(json) as voice:
        request = Request(
            data, output, force, model, components, factors, option or [], "bic", max_iter, tol, seed,
            columns or [], without or [], label, missing or [], standardise, in_memory, reading,
        )  # fmt: skip
        _tell(fitted_to(request, voice), output, voice)


@app.command()
def select(
    data: Data,
    model: ModelName = None,
    components: Components = None,
    factors: Factors = None,
    criterion: Criterion = "bic",
    option: Options = None,
    max_iter: MaxIter = None,
    tol: Tol = None,
    columns: Columns = None,
    without: Without = None,
    label: Label = None,
    missing: Missing = None,
    standardise: Standardise = None,
    in_memory: InMemory = None,
    separator: Separator = None,
    decimal: Decimal = None,
    header: Header = None,
    array: Array = None,
    resize: Resize = None,
    colour: Colour = False,
    seed: Seed = 0,
    output: ToFolder = "latently-model",
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
):
    """Fit models of several sizes, print how they compare and keep the best in a folder."""
    _checked(components, factors, model, option, criterion)
    if model is not None and not MODELS[model].selectable:
        raise typer.BadParameter(
            f"sizes of {model} cannot be chosen by a criterion; use fit", param_hint="--model"
        )
    reading = _reading(separator, decimal, header, array, resize, colour)
    from latently.cli.fitting import Request
    from latently.cli.fitting import fit as fitted_to

    with Voice(json) as voice:
        request = Request(
            data, output, force, model, components, factors, option or [], criterion, max_iter, tol, seed,
            columns or [], without or [], label, missing or [], standardise, in_memory, reading,
        )  # fmt: skip
        found = fitted_to(request, voice, select_all=True)
        if found.selection is None:
            voice.note("there was one size only, so nothing was chosen; give a range such as -k 1..6")
        _tell(found, output, voice, with_table=True)


_SHOWN_MODELS = 10
_AGREEMENT = {
    "training_accuracy": "{share:.1f} % of the rows fitted to are put into their class",
    "clustering_accuracy": "Components agree with {label} in {share:.1f} % of the rows, at best one to one",
}


def _tell(found, output, voice, with_table=False):
    """What was fitted, in a few lines."""
    from latently.cli.writing import FILES

    record, model, selection = found.record, found.model, found.selection
    name = type(model).__name__
    sizes = {
        parameter: value
        for parameter, value in model.get_params(deep=True).items()
        if parameter.rpartition("__")[2] in ("n_components", "n_factors")
    }
    facts = {
        "model": record.model,
        **{parameter.rpartition("__")[2]: value for parameter, value in sizes.items()},
        "rows": record.n_rows,
        "columns": record.columns,
        "left_out": [{"column": column, "reason": reason} for column, reason in record.left_out],
        "missing_cells": record.n_missing,
        "standardised": record.standardised,
        "output": output,
    }
    described = ", ".join(
        counted(value, parameter.rpartition("n_")[2].removesuffix("s")) for parameter, value in sizes.items()
    )
    lines = [
        f"{name} ({described}) of {counted(record.n_rows, 'row')} and "
        f"{counted(len(record.columns), 'column')}{', standardised' if record.standardised else ''}"
    ]
    if record.densities:
        facts["median_log_density"] = record.threshold(0.5)
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
    for fact, share in found.agreement.items():
        facts[fact] = share
        lines.append(_AGREEMENT[fact].format(share=100 * share, label=shown(record.label)))
    files = ", ".join(name for name in FILES if Path(output, name).is_file())
    voice.result([*lines, f"Wrote {files} to {shown(output)}"], **facts)


def _show_table(selection, voice):
    from pandas import isna

    from latently.selection.result import CRITERIA, cell_name

    table = selection.table_.sort_values("rank", na_position="last").head(_SHOWN_MODELS)
    parameters = list(selection.best_params_)
    column = CRITERIA[selection.criterion].column
    columns = ["rank", *parameters, "log_likelihood", "n_parameters", column, "converged"]
    formats = {column: "{:.2f}", "log_likelihood": "{:.4f}", "held_out_log_likelihood": "{:.4f}"}
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


# -- using them ------------------------------------------------------------------------------------------


@app.command()
def predict(
    model: Fitted,
    data: Data,
    probabilities: Annotated[
        bool, _option("--probabilities", help="Those of all components or classes.")
    ] = False,
    keep: Keep = None,
    missing: Missing = None,
    separator: Separator = None,
    decimal: Decimal = None,
    header: Header = None,
    array: Array = None,
    output: ToFile = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
):
    """The component or class of each row."""
    reading = _reading(separator, decimal, header, array)
    from latently.cli import using

    with Voice(json) as voice:
        folder = using.open_folder(model)
        done = using.apply(
            folder, data, reading, missing or (), using.predictions(folder, probabilities), voice,
            output=output, force=force, keep=keep or (),
        )  # fmt: skip
        _told(done, output, voice)


@app.command()
def score(
    model: Fitted,
    data: Data,
    accept: Annotated[
        float, _option(help="Share of ordinary rows that are to be accepted as such.", min=0.0, max=1.0)
    ] = 0.99,
    reference: Annotated[
        str | None,
        _option(
            help="Ordinary rows that were not fitted to, to set the limit by; by default those fitted to."
        ),
    ] = None,
    keep: Keep = None,
    missing: Missing = None,
    separator: Separator = None,
    decimal: Decimal = None,
    header: Header = None,
    array: Array = None,
    output: ToFile = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
):
    """The log density of each row, and whether it is novel: below what nearly all ordinary rows reach."""
    reading = _reading(separator, decimal, header, array)
    from latently.cli import using

    with Voice(json) as voice:
        folder = using.open_folder(model)
        limit = using.threshold(folder, accept, reference, reading, missing or (), voice)
        n_novel = 0

        def columns_of(values):
            nonlocal n_novel
            scores = using.log_densities(folder, values)
            n_novel += int((scores < limit).sum())
            return {"log_density": scores, "novel": scores < limit}

        done = using.apply(
            folder,
            data,
            reading,
            missing or (),
            columns_of,
            voice,
            output=output,
            force=force,
            keep=keep or (),
        )
        voice.note(f"{n_novel} of {done[0]} rows are novel: their log density is below {limit:.6g}")
        _told(done, output, voice, novel=n_novel, threshold=limit, acceptance_rate=accept)


@app.command()
def transform(
    model: Fitted,
    data: Data,
    keep: Keep = None,
    missing: Missing = None,
    separator: Separator = None,
    decimal: Decimal = None,
    header: Header = None,
    array: Array = None,
    output: ToFile = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
):
    """The factors of each row."""
    reading = _reading(separator, decimal, header, array)
    from latently.cli import using

    with Voice(json) as voice:
        folder = using.open_folder(model)
        done = using.apply(
            folder, data, reading, missing or (), using.factors(folder), voice,
            output=output, force=force, keep=keep or (),
        )  # fmt: skip
        _told(done, output, voice)


@app.command()
def sample(
    model: Fitted,
    rows: Annotated[int, _option("--rows", "-n", help="How many.", min=1)] = 10,
    seed: Seed = 0,
    output: ToFile = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
):
    """New rows drawn from the model."""
    from latently.cli import using

    with Voice(json) as voice:
        _told(using.sample(using.open_folder(model), rows, seed, output, force, voice), output, voice)


@app.command()
def impute(
    model: Fitted,
    data: Data,
    draw: Annotated[
        bool, _option("--draw", help="Draw missing cells by chance in place of their mean.")
    ] = False,
    seed: Seed = 0,
    missing: Missing = None,
    separator: Separator = None,
    decimal: Decimal = None,
    header: Header = None,
    array: Array = None,
    output: ToFile = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
):
    """The table with its missing cells filled by what the model expects; all other cells stay as they are."""
    reading = _reading(separator, decimal, header, array)
    from latently.cli import using

    with Voice(json) as voice:
        n_rows, records, n_filled = using.impute(
            using.open_folder(model), data, reading, missing or (), voice,
            draw=draw, seed=seed, output=output, force=force,
        )  # fmt: skip
        voice.note(f"filled {counted(n_filled, 'cell')}")
        _told((n_rows, records), output, voice, filled=n_filled)


def _told(done, output, voice, **facts):
    """What was written where; rows that went to stdout speak for themselves."""
    n_rows, records = done
    if records is not None:
        facts["results"] = records
    if voice.json or output is not None:
        voice.result(
            f"Wrote {counted(n_rows, 'row')} to {shown(output)}", rows=n_rows, output=output, **facts
        )


@app.command()
def report(
    model: Fitted,
    data: Data,
    missing: Missing = None,
    separator: Separator = None,
    decimal: Decimal = None,
    header: Header = None,
    array: Array = None,
    output: Annotated[
        str | None, _option("--output", "-o", help="By default report.html in the folder.", panel=_OUTPUT)
    ] = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
):
    """A page about the model and the data, in one HTML file."""
    reading = _reading(separator, decimal, header, array)
    from latently.cli import using

    with Voice(json) as voice:
        path, n_rows = using.report(
            using.open_folder(model), data, reading, missing or (), voice, output=output, force=force
        )
        voice.result(f"Wrote {shown(path)}", output=os.fspath(path), rows=n_rows)


# -- around them -----------------------------------------------------------------------------------------


@app.command()
def datasets(
    name: Annotated[
        str | None,
        typer.Argument(help="Which to write; without it they are listed.", autocompletion=_data_names),
    ] = None,
    output: ToFile = None,
    folder: Annotated[str | None, _option(help="Where files of data sets are kept.")] = None,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
):
    """List data sets, or write one as a table."""
    with Voice(json) as voice:
        if name is None:
            from latently.datasets import names

            voice.table(["name", "what it is"], names().items())
            if json:
                voice.result("", datasets=names())
            return
        from latently.cli.demo import write_dataset

        n_rows, records = write_dataset(name, folder, output, force, as_object=json)
        if records is not None:
            voice.result("", rows=n_rows, results=records)
        elif output is not None:
            told = f"Wrote {counted(n_rows, 'row')} of {shown(name)} to {shown(output)}"
            voice.result(told, rows=n_rows, output=output)


@app.command()
def demo(
    output: ToFolder = "latently-demo",
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
    debug: Debug = False,
):
    """The main job on a small table: choose a model of wines, fit it and write a report."""
    from latently.cli.demo import run_demo

    with Voice(json) as voice, TemporaryDirectory() as scratch:
        found = run_demo(output, force, seed, voice, Path(scratch))
        _tell(found, output, voice, with_table=True)


def _version(wanted: bool):
    if wanted:
        from importlib.metadata import version

        print(version("latently"))
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", callback=_version, is_eager=True)
    ] = False,
):
    pass
