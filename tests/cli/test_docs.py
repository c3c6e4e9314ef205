"""The examples of pages for the command line, run one after the other."""

import doctest
import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.cli.conftest import run_command

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "command_line.md"


def examples(page):
    """Commands of all console blocks, and what the page says that they print."""
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        for example in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, expected = example.partition("\n")
            yield command, expected


def shown_by(command):
    """What a command prints: latently here, what it is piped to and other commands in a shell."""
    command, _, pipe = command.partition(" | ") if command.startswith("latently ") else ("", "", command)
    rows, notes = io.StringIO(), io.StringIO()
    if command:
        with redirect_stdout(rows), redirect_stderr(notes):
            run_command(shlex.split(command)[1:])
    if not pipe:
        return notes.getvalue() + rows.getvalue()
    pipe = re.sub(r"^python\b", shlex.quote(sys.executable), pipe)
    done = subprocess.run(pipe, shell=True, input=rows.getvalue(), capture_output=True, text=True, check=True)
    return notes.getvalue() + done.stdout


@pytest.mark.parametrize(("page", "fewest"), [("command_line.md", 6), ("tutorials.md", 18)])
def test_examples_print_what_the_page_says(page, fewest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checker = doctest.OutputChecker()
    found = list(examples(DOCS / page))
    assert len(found) >= fewest
    for command, expected in found:
        printed = shown_by(command)
        assert checker.check_output(expected, printed, doctest.ELLIPSIS), f"$ {command}\n{printed}"


def test_all_commands_and_models_are_on_the_page():
    from latently.cli.models import MODELS

    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in MODELS)
