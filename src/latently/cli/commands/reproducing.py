"""The command that runs published tables and figures again."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from latently.cli.commands.options import AnswerOptions, Seed, option
from latently.cli.speaking import Voice, shown


def reproduce(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Such as 003/table-3.5.")] = None,
    *,
    all: Annotated[bool, option("--all", help="All of them.")] = False,
    list_: Annotated[bool, option("--list", help="Say which there are, and run none.")] = False,
    quick: Annotated[
        bool, option("--quick", help="Few restarts and a part of the grid; saved only with --output.")
    ] = False,
    output: Annotated[
        str | None,
        option(
            "--output", "-o", metavar="FOLDER", help="Where results are saved; 'reproductions' for full runs."
        ),
    ] = None,
    seed: Seed = 0,
    answer: AnswerOptions,
):
    """Run published tables and figures again, ours beside theirs."""
    from latently.reproductions import available

    known = available()
    unknown = [name for name in ids or () if name not in known]
    if unknown:
        raise typer.BadParameter(
            f"there is no reproduction {', '.join(map(shown, unknown))}; --list says which there are",
            param_hint="ID",
        )
    names = list(known) if all or list_ else list(ids or ())
    if not names:
        raise typer.BadParameter("name a reproduction, or give --all or --list", param_hint="ID")
    with Voice(answer.json) as voice:
        if list_:
            voice.result(
                [f"{name}  {known[name].title}" for name in names],
                reproductions={name: known[name].title for name in names},
            )
            return 0
        return _reproduced({name: known[name] for name in names}, quick, output, seed, voice)


def _reproduced(chosen, quick, output, seed, voice):
    folder = output or (None if quick else "reproductions")
    results, left_out = {}, {}
    for number, (name, reproduction) in enumerate(chosen.items(), 1):
        try:
            with voice.bar(f"{name} ({number} of {len(chosen)})"):
                result = reproduction.run(quick, seed)
        except FileNotFoundError as error:
            voice.note(f"{name} was left out: {error}")
            left_out[name] = str(error)
            continue
        paths = [os.fspath(path) for path in result.save(folder)] if folder else []
        results[name] = {
            "records": result.records,
            "published": result.reproduction.published,
            "files": paths,
        }
        if not voice.json:
            print(result.to_markdown())
            voice.result([f"Wrote {path}" for path in paths])
    if voice.json:
        voice.result("", results=results, left_out=left_out)
    return 1 if left_out else 0
