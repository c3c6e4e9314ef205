"""A way to run commands here, and small tables for them."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from latently.cli import main


class Answer(NamedTuple):
    out: str
    err: str


def run_command(arguments):
    """The exit code of a command."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as end:
        return end.code


@pytest.fixture
def latently(capsys):
    """`latently("fit", "data.csv", code=0)` runs a command; its exit code must be `code`."""

    def run(*arguments, code=0):
        capsys.readouterr()
        found = run_command(arguments)
        answer = Answer(*capsys.readouterr())
        assert found == code, answer.err
        if "--debug" not in arguments:
            assert "Traceback" not in answer.err
        if code:
            assert sum(line.startswith("latently: error: ") for line in answer.err.splitlines()) == 1
        return answer

    return run


def make_table(n_rows=240, n_columns=5, seed=0):
    """Two clusters near a plane, in units that differ by column; the cluster of each row."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, 2, n_rows)
    rows = rng.normal(size=(n_rows, 2)) @ rng.normal(size=(2, n_columns)) + 5 * cluster[:, None]
    rows += 0.5 * rng.normal(size=rows.shape)
    units = 10.0 ** np.arange(-2, n_columns - 2)
    return pd.DataFrame(rows * units + 3 * units, columns=list("abcdefgh")[:n_columns]), cluster


@pytest.fixture
def table():
    return make_table()[0]


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """The folder of a model, and the file it was fitted to."""
    home = tmp_path_factory.mktemp("fitted")
    make_table()[0].to_csv(home / "data.csv", index=False)
    arguments = ["fit", home / "data.csv", "-m", "mfa", "-k", 2, "-q", 2, "-o", home / "model"]
    assert run_command(arguments) == 0
    return home / "model", home / "data.csv"
