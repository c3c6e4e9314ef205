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
from tests.test_datasets import REAL_FOLDER

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "command_line.md"


def examples(text):
    """Commands of all console blocks, and scripts, with what the page says that they print."""
    blocks = re.findall(r"^```(console|python|text)\n(.*?)^```", text, re.M | re.S)
    for (kind, block), (next_kind, below) in zip(blocks, [*blocks, ("", "")][1:], strict=True):
        if kind == "python" and not block.startswith(">>>"):
            yield block, below if next_kind == "text" else ""
        for example in re.split(r"^\$ ", block, flags=re.M)[1:] if kind == "console" else ():
            command, _, expected = example.partition("\n")
            yield command, expected


def shown_by(command):
    """What a command prints: latently here, what it is piped to and other commands in a shell."""
    if "\n" in command:
        rows = io.StringIO()
        with redirect_stdout(rows):
            exec(command, {})
        return rows.getvalue()
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


def check(found):
    checker = doctest.OutputChecker()
    for command, expected in found:
        printed = shown_by(command)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert checker.check_output(expected, printed, flags), f"$ {command}\n{printed}"


SPECTRA = "## Read spectra"


@pytest.mark.parametrize(("page", "fewest"), [("command_line.md", 6), ("tutorials.md", 18)])
def test_examples_print_what_the_page_says(page, fewest, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sections = re.split("^(?=## )", (DOCS / page).read_text(encoding="utf-8"), flags=re.M)
    found = [
        example for section in sections if not section.startswith(SPECTRA) for example in examples(section)
    ]
    assert len(found) >= fewest
    check(found)


def test_spectra_are_read_as_the_page_says(tmp_path, monkeypatch):
    if not (REAL_FOLDER / "sonar.npz").is_file():
        pytest.skip("needs sonar.npz in the folder that LATENTLY_DATA names")
    monkeypatch.setenv("LATENTLY_DATA", str(REAL_FOLDER))
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "tutorials.md").read_text(encoding="utf-8")
    [section] = re.findall(f"^{SPECTRA}\n.*?^(?=## )", text, re.M | re.S)
    check(examples(section))


def test_all_commands_and_models_are_on_the_page():
    from latently.cli.models import MODELS

    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in MODELS)
