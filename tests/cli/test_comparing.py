"""`fit` without a model, and `compare`: families, a budget, a verdict, and advice that runs as printed."""

import json
import os
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import latently as library
from tests.cli.conftest import make_table


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a table of three kinds."""
    home = tmp_path_factory.mktemp("home")
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=240)
    table = pd.DataFrame(
        rng.normal(size=(240, 2)) + 9 * np.array([[0, 0], [1, 0], [0, 1]])[kind], columns=["a b", "c"]
    )
    table.assign(kind=np.where(kind == 2, "z", "xy")).to_csv(home / "my table.csv", index=False)
    return home


def test_fit_without_a_model_compares_families(latently, home, monkeypatch):
    monkeypatch.chdir(home)
    fit = ["fit", "my table.csv", "--label", "kind", "--budget", 200, "-o", "my model"]
    answer = latently(*fit, "--json")
    facts = json.loads(answer.out)
    assert "compared for at most 200 s (--budget)" in answer.err
    assert facts["model"] == "gaussian-mixture" and facts["n_components"] == 3 and facts["fits"]
    assert "the best of" in facts["verdict"] and "Held-out rows agree" in facts["verdict"]
    # three components, two classes: no one-to-one matching
    assert facts["purity"] > 0.99 and 0.3 < facts["adjusted_rand_index"] < 0.9
    assert "clustering_accuracy" not in facts
    model = library.load("my model")
    assert model.preparation_.verdict == facts["verdict"]
    assert np.abs(np.subtract(*model.preparation_.probability_plot)).max() < 0.3
    families = pd.read_csv("my model/comparison.csv")
    assert families["bic"].is_monotonic_increasing and len(families) == len(facts["families"])


def test_sizes_without_a_model_compare_the_families_of_that_size(latently, tmp_path):
    """A number of components is no choice of a family; where none is compared, the model is told."""
    make_table(120)[0].to_csv(tmp_path / "a.csv", index=False)
    fit = ["fit", tmp_path / "a.csv", "--budget", 200, "--json", "--force", "-o", tmp_path / "m"]
    facts = json.loads(latently(*fit, "-k", 3).out)
    assert {row["n_components"] for row in facts["families"]} == {3} and len(facts["families"]) >= 5
    assert facts["n_components"] == 3 and "the best of" in facts["verdict"]
    facts = json.loads(latently(*fit, "-k", "1,2", "-q", 2).out)
    assert {row["n_factors"] for row in facts["families"]} == {2}
    assert {row["family"] for row in facts["families"]} == {"factor analysis", "PPCA", "MFA", "MPPCA", "MCFA"}
    assert "must be less than the number of columns, 5" in latently(*fit, "-q", 5, code=1).err
    few = ["fit", tmp_path / "few.csv", "-k", 1, "-q", 1, "--force", "-o", tmp_path / "m"]
    make_table(15)[0].to_csv(tmp_path / "few.csv", index=False)
    assert "the model is mcfa; --model chooses another" in latently(*few).err
    assert "the model is mcfa" not in latently(*few, "-m", "mcfa").err


def test_compare_says_which_to_use(latently, home):
    answer = latently(
        "compare", home / "my table.csv", "--without", "kind", "--budget", 200, "--bootstrap", 1
    )
    lines = answer.out.splitlines()
    assert lines[0].split()[:2] == ["family", "components"] and "stability" in lines[0]
    assert "the best of" in lines[-1] and "Gaussian mixture" in lines[-1]


def test_a_misfit_is_named_with_its_columns(latently, tmp_path):
    table, _ = make_table(1200, 3)
    table["b"] = np.random.default_rng(0).integers(0, 3, 1200)
    table.to_csv(tmp_path / "a.csv", index=False)
    facts = json.loads(latently("compare", tmp_path / "a.csv", "--budget", 4, "--json").out)
    assert facts["fits"] is False or "The model fits" in facts["verdict"]
    assert len(facts["families"]) > 3


def test_printed_advice_runs_as_printed(latently, home, monkeypatch):
    """Every command of a report, in a shell, in the folder it was written in."""
    monkeypatch.chdir(home)
    own = str(Path(sys.executable).parent)  # of `latently` and `python`, as in an active environment
    monkeypatch.setenv("PATH", own + os.pathsep + os.environ["PATH"])
    rng = np.random.default_rng(0)
    table = pd.read_csv("my table.csv")
    table.loc[rng.random(240) < 0.2, "c"] = np.nan
    table.to_csv("holes.csv", index=False)
    latently(
        "fit", "holes.csv", "-m", "mfa", "-k", 2, "-q", 1, "--label", "kind", "--max-iter", 3, "-o", "rough"
    )
    latently("report", "rough", "holes.csv")
    page = (home / "rough" / "report.html").read_text()
    commands = [
        line
        for code in re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
        for line in unescape(re.sub("<[^>]*>", "", code)).splitlines()
        if line.startswith(("latently ", "python "))
    ]
    kinds = {shlex.split(line)[1] for line in commands}
    assert {"predict", "impute", "-c"} <= kinds
    for line in [
        line for line in commands if line.startswith(("latently predict", "latently impute", "python"))
    ]:
        assert subprocess.run(line, shell=True, capture_output=True).returncode == 0, line
    for line in [line for line in commands if line.startswith(("latently fit", "latently select"))]:
        assert latently(*shlex.split(line)[1:], *(["--max-iter", "2"] if "--max-iter" not in line else []))
