"""Commands on tables that come with the library: datasets and demo."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from latently.cli.commands.making import ToFolder, tell
from latently.cli.commands.options import AnswerOptions, Force, RowsOutput, Seed, option
from latently.cli.speaking import Voice, counted, shown


def _data_names(incomplete: str):
    from latently.datasets import names

    return [(name, title) for name, title in names().items() if name.startswith(incomplete)]


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(help="The data set to write; by default all are listed.", autocompletion=_data_names),
    ] = None,
    *,
    to: RowsOutput,
    folder: Annotated[str | None, option(help="The folder in which data sets are cached.")] = None,
    answer: AnswerOptions,
):
    """List data sets, or write one as a table.

    For example: latently datasets wine --output wine.csv
    """
    with Voice(answer.json, answer.quiet) as voice:
        if name is None:
            from latently.datasets import names

            voice.table(["name", "description"], names().items())
            if answer.json:
                voice.result("", datasets=names())
            return
        from latently.cli.demo import write_dataset

        n_rows, records = write_dataset(name, folder, to.output, to.force, as_object=answer.json)
        if records is not None:
            voice.result("", rows=n_rows, results=records)
        elif to.output is not None:
            text = f"Wrote {counted(n_rows, 'row')} of {shown(name)} to {shown(to.output)}"
            voice.result(text, rows=n_rows, output=to.output)


def demo(
    *,
    output: ToFolder = "latently-demo",
    seed: Seed = 0,
    force: Force = False,
    answer: AnswerOptions,
):
    """A complete example on a small table: select a model of wines, fit it and write a report.

    For example: latently demo
    """
    from latently.cli.demo import run_demo

    with Voice(answer.json, answer.quiet) as voice, TemporaryDirectory() as scratch:
        found = run_demo(output, force, seed, voice, Path(scratch))
        tell(found, output, voice, with_table=True)
