"""Commands and their options. The implementation is elsewhere, and imported when a command runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from latently.cli.commands.applying import explore, impute, predict, report, sample, score, transform
from latently.cli.commands.examples import datasets, demo
from latently.cli.commands.making import compare, fit, select
from latently.cli.commands.options import with_options

app = typer.Typer(
    name="latently",
    help="Density models with structured latent variables: fit, select and apply them.\n\n"
    "Begin with 'latently demo', or with a table of your own: 'latently fit table.csv --output model', "
    "then 'latently report model table.csv'.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool):
    if wanted:
        from importlib.metadata import version

        print(version("latently"))
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
):
    pass


_MAKING: tuple[Callable[..., Any], ...] = (fit, select, compare)
_APPLYING: tuple[Callable[..., Any], ...] = (predict, score, transform, sample, impute, report, explore)
_AROUND: tuple[Callable[..., Any], ...] = (datasets, demo)
for command in (*_MAKING, *_APPLYING, *_AROUND):  # in the order of the help
    app.command()(with_options(command))
