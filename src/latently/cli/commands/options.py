"""Options, each declared once, and records of options that several commands share.

A command takes records as parameters; `with_options` passes typer a function with all their options.
"""

from __future__ import annotations

import codecs
import functools
import inspect
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from latently.cli.models import MODELS
from latently.cli.speaking import shown
from latently.cli.tables import size_of
from latently.selection.criteria import CRITERIA

_READING, _MODEL, _OUTPUT = "Reading data", "Model", "Output"


def option(*names, help, panel=None, **more):
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def output_option(help, **more):
    return option("--output", "-o", help=help, panel=_OUTPUT, **more)


def _model_names(incomplete: str):
    return [(name, model.title) for name, model in MODELS.items() if name.startswith(incomplete)]


def _criterion_names(incomplete: str):
    return [(name, kind.description) for name, kind in CRITERIA.items() if name.startswith(incomplete)]


# -- single ones -----------------------------------------------------------------------------------------

Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help="A table: CSV or other text (also packed), Parquet, Excel, ODS, Arrow, JSON, zarr, .npy, .npz, "
        "a folder of images, - for standard input, or several files with the same columns.",
    ),
]
Fitted = Annotated[str, typer.Argument(metavar="MODEL", help="A folder that fit or select wrote.")]
Criterion = Annotated[
    str,
    option(
        help="; ".join(f"{name}: {kind.description}" for name, kind in CRITERIA.items()) + ".",
        panel=_MODEL,
        autocompletion=_criterion_names,
    ),
]
Seed = Annotated[int, option(help="Random seed.", min=0, max=2**32 - 1)]
Keep = Annotated[
    list[str] | None,
    option(help="A column of the data to copy to the output; may be given several times.", panel=_OUTPUT),
]
Force = Annotated[bool, option("--force", help="Replace existing files.", panel=_OUTPUT)]


# -- records ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadOptions:
    """How a file is read."""

    missing: Annotated[
        list[str] | None,
        option(
            help="An additional text that marks a missing cell; may be given several times.", panel=_READING
        ),
    ] = None
    separator: Annotated[
        str | None, option(help="The separator between cells; by default detected.", panel=_READING)
    ] = None
    decimal: Annotated[
        str | None, option(help="The decimal mark, '.' or ','; by default detected.", panel=_READING)
    ] = None
    header: Annotated[
        bool | None,
        option(
            "--header/--no-header",
            help="Whether the first line has names; by default detected.",
            panel=_READING,
        ),
    ] = None
    array: Annotated[str | None, option(help="The array to read from an .npz file.", panel=_READING)] = None
    encoding: Annotated[
        str | None, option(help="The encoding of text, such as cp1252; by default detected.", panel=_READING)
    ] = None
    skip_rows: Annotated[
        int | None, option(help="Lines above the table; by default detected.", panel=_READING, min=0)
    ] = None
    thousands: Annotated[
        str | None, option(help="The mark between groups of three digits.", panel=_READING)
    ] = None

    def reading(self, resize=None, colour=False):
        """The options, validated."""
        separator = self.separator
        if separator is not None:
            separator = {"\\t": "\t", "tab": "\t", "space": r"\s+"}.get(separator, separator)
        if separator is not None and ((len(separator) != 1 and separator != r"\s+") or separator in '"\n\r'):
            raise typer.BadParameter(
                f"it must be one character, tab or space, not {shown(separator)}", param_hint="--separator"
            )
        if self.decimal not in (None, ".", ","):
            raise typer.BadParameter(
                f"it must be '.' or ',', not {shown(self.decimal)}", param_hint="--decimal"
            )
        try:
            size = size_of(resize) if resize else None
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--resize") from None
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise typer.BadParameter(
                    f"there is no encoding {shown(self.encoding)}", param_hint="--encoding"
                ) from None
        if self.thousands is not None and (len(self.thousands) != 1 or self.thousands == self.decimal):
            raise typer.BadParameter("it must be one mark, not that of decimals", param_hint="--thousands")
        from latently.core.sources.dialect import Given
        from latently.tables.reading import Reading

        text = Given(separator, self.decimal, self.header, self.encoding, self.skip_rows, self.thousands)
        return Reading(text, self.array, size, colour)


@dataclass(frozen=True)
class ImageOptions:
    """How a folder of images is read."""

    resize: Annotated[
        str | None, option(help="Size of all images, such as 28x28 (width x height).", panel=_READING)
    ] = None
    colour: Annotated[bool, option("--colour", help="Keep the colours of images.", panel=_READING)] = False


@dataclass(frozen=True)
class ModelOptions:
    """Which model is fitted, and how."""

    model: Annotated[
        str | None,
        option(
            "--model",
            "-m",
            help="By default fit compares families, and select takes mcfa. One of: "
            + "; ".join(f"{name} ({model.title})" for name, model in MODELS.items())
            + ".",
            panel=_MODEL,
            autocompletion=_model_names,
        ),
    ] = None
    components: Annotated[
        str | None,
        option(
            "-k",
            "--components",
            help="Number of components, or a range such as 1..6; fit without --model compares the families "
            "of that size.",
            panel=_MODEL,
        ),
    ] = None
    factors: Annotated[
        str | None,
        option("-q", "--factors", help="Number of factors, or a range such as 1..5.", panel=_MODEL),
    ] = None
    options: Annotated[
        list[str] | None,
        option(
            "--option", help="name=value, a parameter of the model; may be given several times.", panel=_MODEL
        ),
    ] = None
    max_iter: Annotated[int | None, option(help="Maximum number of iterations.", panel=_MODEL, min=0)] = None
    tol: Annotated[
        float | None, option(help="Relative gain below which a fit stops.", panel=_MODEL, min=0.0)
    ] = None
    hold_out: Annotated[
        float,
        option(
            help="Share of the rows, drawn at random, to leave out of the fit: score and report then have a "
            "threshold with a guarantee.",
            panel=_MODEL,
            min=0.0,
            max=0.9,
        ),
    ] = 0.0


Jobs = Annotated[
    int | None,
    option("--jobs", "-j", help="Models fitted at the same time; by default as many as cores.", panel=_MODEL),
]
Scheduler = Annotated[
    str | None,
    option(
        help="Address of a Dask scheduler, such as tcp://host:8786, whose workers fit the model; they read "
        "the rows from a file in the folder of --output.",
        panel=_MODEL,
    ),
]
Budget = Annotated[
    float, option(help="Seconds in which families of models are compared.", panel=_MODEL, min=0.1)
]


@dataclass(frozen=True)
class ColumnOptions:
    """Selection and preprocessing of columns."""

    columns: Annotated[
        list[str] | None,
        option(
            "--columns",
            "-c",
            help="Columns to use: names separated by commas, * matches any text.",
            panel=_READING,
        ),
    ] = None
    without: Annotated[
        list[str] | None, option(help="Columns to exclude, in the same form.", panel=_READING)
    ] = None
    as_is: Annotated[
        list[str] | None,
        option(
            "--as-is",
            help="Columns to use whatever their values look like: codes, times, two values, or numbers such "
            "as -9999 that often stand for missing cells.",
            panel=_READING,
        ),
    ] = None
    kind: Annotated[
        list[str] | None,
        option(
            help="COLUMN=KIND, what a column holds: number, category, ordinal, count, date, or its levels "
            "from low to high with commas; may be given several times. By default its content tells.",
            panel=_READING,
        ),
    ] = None
    label: Annotated[
        str | None,
        option("--label", "-l", help="The column that holds classes (of images: folder).", panel=_READING),
    ] = None
    standardise: Annotated[
        bool | None,
        option(
            "--standardise/--no-standardise",
            help="Give columns mean 0 and deviation 1 for the fit. By default tables are, images and counts "
            "not.",
            panel=_READING,
        ),
    ] = None
    in_memory: Annotated[
        bool | None,
        option(
            "--in-memory/--from-disk",
            help="Where the numbers are kept during the fit. By default on disk if larger than 256 MB.",
            panel=_READING,
        ),
    ] = None

    @property
    def kinds(self):
        """Kinds by column; lists of levels as lists."""
        found: dict[str, Any] = {}
        for text in self.kind or []:
            name, equals, kind = text.rpartition("=")
            if not equals or not name or not kind:
                raise typer.BadParameter(
                    f"it must have the form COLUMN=KIND, not {shown(text)}", param_hint="--kind"
                )
            levels = [part.strip() for part in kind.split(",")]
            found[name.strip()] = levels if len(levels) > 1 else levels[0]
        return found


@dataclass(frozen=True)
class RowsOutput:
    """Where rows are written."""

    output: Annotated[
        str | None, output_option("A .csv, .tsv or .parquet file; by default CSV on stdout.")
    ] = None
    force: Force = False


@dataclass(frozen=True)
class AnswerOptions:
    """Form of the output."""

    json: Annotated[bool, option("--json", help="Print one JSON object on stdout.", panel=_OUTPUT)] = False
    quiet: Annotated[bool, option("--quiet", help="Print errors and requested rows only.", panel=_OUTPUT)] = (
        False
    )
    debug: Annotated[bool, option("--debug", help="Show the traceback of an error.", panel=_OUTPUT)] = False


def with_options(command):
    """The command for typer, with each record replaced by its options."""
    parameters: list[inspect.Parameter] = []
    records: dict[str, Any] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        record = parameter.annotation
        if not is_dataclass(record):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        types = get_type_hints(record, include_extras=True)
        records[parameter.name] = record
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=types[field.name],
            )
            for field in fields(record)
        ]

    @functools.wraps(command)
    def run(**given):
        made = {
            name: record(**{field.name: given.pop(field.name) for field in fields(record)})
            for name, record in records.items()
        }
        return command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
