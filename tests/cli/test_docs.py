"""The examples of pages for the command line, run one after the other."""

import doctest
import io
import re
import shlex
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


@pytest.mark.parametrize(("page", "fewest"), [("command_line.md", 6), ("tutorials.md", 4)])
def test_examples_print_what_the_page_says(page, fewest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checker = doctest.OutputChecker()
    found = list(examples(DOCS / page))
    assert len(found) >= fewest
    for command, expected in found:
        command, _, only = command.partition(" | head -")
        program, *arguments = shlex.split(command)
        assert program == "latently"
        shown = io.StringIO()
        with redirect_stdout(shown), redirect_stderr(shown):
            run_command(arguments)
        lines = shown.getvalue().splitlines(keepends=True)
        printed = "".join(lines[: int(only)] if only else lines)
        assert checker.check_output(expected, printed, doctest.ELLIPSIS), f"$ {command}\n{printed}"


def test_all_commands_and_models_are_on_the_page():
    from latently.cli.models import MODELS

    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in MODELS)
