"""`fit` and `select`: folders, sizes, models, units, memory."""

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import latently as library
from latently.cli.models import MODELS, numbers_in
from latently.core import io
from latently.selection import CRITERIA
from tests.cli.conftest import make_table


@pytest.fixture
def data(tmp_path):
    table, cluster = make_table()
    table["kind"] = np.where(cluster, "[bold]big one[/bold]", "small, </script>")
    table.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def facts_of(answer):
    """The object that --json prints, which is all of stdout."""
    [line] = answer.out.splitlines()
    return json.loads(line)


# -- folders ---------------------------------------------------------------------------------------------


def test_a_folder_holds_model_and_description(latently, data, tmp_path):
    answer = latently("fit", data, "-m", "mcfa", "-k", 2, "-q", 1, "--seed", 3, "-o", tmp_path / "m")
    assert "MCFA (2 components, 1 factor) of 240 rows and 5 columns" in answer.out
    model = library.load(tmp_path / "m").estimator_
    record = json.loads((tmp_path / "m" / "description.json").read_text())
    assert (model.n_components, model.random_state, model.callbacks) == (2, 3, None)
    assert record["columns"] == list("abcde") and record["left_out"][0][0] == "kind"
    np.testing.assert_allclose(record["mean"], make_table()[0].mean(), rtol=1e-9)
    np.testing.assert_allclose(record["scale"], make_table()[0].std(ddof=0), rtol=1e-9)


def test_nothing_is_replaced_unless_asked(latently, data, tmp_path):
    fit = ["fit", data, "-m", "mcfa", "-k", 1, "-q", 1, "-o", tmp_path / "m"]
    latently(*fit)
    before = (tmp_path / "m" / "model.latently").read_bytes()
    assert "--force" in latently(*fit, "--seed", 1, code=1).err
    assert (tmp_path / "m" / "model.latently").read_bytes() == before
    latently(*fit, "-q", 2, "--force")
    assert (tmp_path / "m" / "model.latently").read_bytes() != before
    (tmp_path / "m" / "thesis.txt").write_text("mine")
    assert "thesis.txt" in latently(*fit, "--force", code=1).err
    assert (tmp_path / "m" / "thesis.txt").read_text() == "mine"
    assert "is a file" in latently(*fit[:-1], data, "--force", code=1).err
    assert "cannot be created" in latently(*fit[:-1], data / "m", code=1).err


def test_a_failure_leaves_what_was_there(latently, data, tmp_path, monkeypatch):
    fit = ["fit", data, "-m", "mcfa", "-k", 1, "-q", 1, "-o", tmp_path / "m"]
    latently(*fit)
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    monkeypatch.setattr("latently.tables.TableModel.save", lambda *_: 1 / 0)
    latently(*fit, "--force", code=1)
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"data.csv", "m"}


def test_a_folder_comes_back_if_its_successor_cannot_take_its_place(latently, data, tmp_path, monkeypatch):
    fit = ["fit", data, "-m", "mcfa", "-k", 1, "-q", 1, "-o", tmp_path / "m"]
    latently(*fit)
    renamed, rename = [], os.rename

    def second_fails(old, new):
        renamed.append(new)
        if len(renamed) == 2:
            raise OSError("no room")
        rename(old, new)

    monkeypatch.setattr("latently.core.replacing._exchanged", lambda one, other: False)  # in one step
    monkeypatch.setattr(os, "rename", second_fails)
    assert "no room" in latently(*fit, "--force", code=1).err
    assert {path.name for path in tmp_path.iterdir()} == {"data.csv", "m"}
    latently("sample", tmp_path / "m")


def test_a_seed_decides_all(latently, data, tmp_path):
    fits = [
        ["fit", data, "-m", "mcfa", "-k", 3, "-q", 1, "--max-iter", 5, "--seed", 7, "-o", tmp_path / name]
        for name in "mn"
    ]
    for fit in fits:
        latently(*fit)
    first, second = (io.read(tmp_path / name / "model.latently") for name in "mn")
    assert first[0] == second[0] and first[1].keys() == second[1].keys()
    assert all(np.array_equal(first[1][name], second[1][name]) for name in first[1])


# -- sizes -----------------------------------------------------------------------------------------------


def test_select_shows_and_keeps_the_best(latently, data, tmp_path):
    answer = latently("select", data, "-m", "gaussian-mixture", "-k", "1..3", "-o", tmp_path / "m")
    table = pd.read_csv(tmp_path / "m" / "selection.csv")
    best = table.loc[table["bic"].idxmin()]
    assert len(table) == 3 and best["rank"] == 1
    assert library.load(tmp_path / "m").estimator_.n_components == best["n_components"] == 2
    header, first = answer.out.splitlines()[:2]
    assert header.split()[:2] == ["rank", "components"] and first.split()[:2] == ["1", "2"]
    facts = facts_of(latently("select", data, "-m", "ppca", "-q", "1,3", "--json", "-o", tmp_path / "n"))
    assert len(facts["selection"]) == 2 and facts["criterion"] == "bic"


@pytest.mark.parametrize("criterion", [name for name, kind in CRITERIA.items() if not kind.labels])
def test_select_by_every_criterion(latently, data, tmp_path, criterion):
    select = ["select", data, "-m", "gaussian-mixture", "-k", "1,2", "--max-iter", 20, "-o", tmp_path / "m"]
    facts = facts_of(latently(*select, "--criterion", criterion, "--json"))
    assert facts["criterion"] == criterion and facts["n_components"] == 2
    latently("report", tmp_path / "m", data)
    assert CRITERIA[criterion].label in (tmp_path / "m" / "report.html").read_text()


def test_parts_are_chosen_by_entries_held_out(latently, tmp_path):
    rng = np.random.default_rng(2)
    parts = rng.gamma(1.0, size=(2, 8)) * (rng.random((2, 8)) < 0.6) + 0.02
    X = np.abs(rng.gamma(1.0, size=(50, 2)) @ parts + 0.05 * rng.normal(size=(50, 8)))
    np.save(tmp_path / "a.npy", X)
    select = ["select", tmp_path / "a.npy", "-m", "nmf", "-k", "1..3", "--option", "alpha_W=1e-4"]
    answer = latently(*select, "--criterion", "entries", "-o", tmp_path / "m")
    table = pd.read_csv(tmp_path / "m" / "selection.csv")
    assert library.load(tmp_path / "m").estimator_.n_components == 2
    assert table["held_out_error"].idxmin() == 1 and table["bic"].isna().all()
    assert answer.out.split()[:4] == ["rank", "components", "held_out_error", "converged"]
    assert "by entries" in answer.out
    latently("report", tmp_path / "m", tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("model", "criterion", "cure"),
    [("nmf", "bic", "choose entries"), ("bnmf", "entries", "use fit"), ("mjfa", "entries", "use fit")],
)
def test_a_criterion_that_does_not_serve_the_model(latently, model, criterion, cure):
    answer = latently("select", "a.csv", "-m", model, "--criterion", criterion, code=2)
    assert f"sizes of {model} cannot be selected by" in answer.err and cure in answer.err


def test_what_is_not_given_is_chosen(latently, data, tmp_path):
    fit = ["fit", data, "-m", "mcfa", "-k", 2, "--columns", "a,b,c", "--max-iter", 20, "-o", tmp_path / "m"]
    facts = facts_of(latently(*fit, "--json"))
    assert {row["n_factors"] for row in facts["selection"]} == {1, 2}
    assert facts["n_components"] == 2 and facts["model"] == "mcfa"


def test_many_rows_are_chosen_by_some(latently, data, tmp_path, monkeypatch):
    monkeypatch.setattr("latently.cli.fitting.ROWS_TO_CHOOSE_BY", 60)
    for place in ("--in-memory", "--from-disk"):
        answer = latently("fit", data, "-m", "ppca", place, "--force", "-o", tmp_path / "m")
        assert "60 rows drawn from 240" in answer.err
        model = library.load(tmp_path / "m").estimator_
        rows = (make_table()[0] - make_table()[0].mean()) / make_table()[0].std(ddof=0)
        by_all = type(model)(model.n_factors).fit(rows.to_numpy())
        np.testing.assert_allclose(model.noise_variance_, by_all.noise_variance_, rtol=1e-6)


def test_ranges():
    assert numbers_in("1..3,7, 9", "-k") == [1, 2, 3, 7, 9]
    for wrong in ("", "a", "1..", "..3", "-1", "1.5", "3..1", "1...3"):
        with pytest.raises(ValueError, match="-k must be"):
            numbers_in(wrong, "-k")


# -- models and options ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_every_model_fits_is_kept_and_used(latently, tmp_path, name):
    table, cluster = make_table(80, 4)
    table = (table / table.std()).abs().round()  # counts suit all models
    table["kind"] = np.where(cluster, "big one", "small")
    table.to_csv(tmp_path / "a.csv", index=False)
    sizes = (["-k", 2] if MODELS[name].k else []) + (["-q", 1] if MODELS[name].q else [])
    label = ["--label", "kind"] if MODELS[name].labels else []
    kinds = (
        ["--kind", "a=number", "--kind", "b=number"] if name == "mixed" else []
    )  # its factors are of numbers
    given = [*sizes, *label, *kinds, "--max-iter", 30]
    fit = ["fit", tmp_path / "a.csv", "-m", name, *given, "-o", tmp_path / "m"]
    facts = facts_of(latently(*fit, "--json"))
    assert facts["model"] == name
    model = library.load(tmp_path / "m").estimator_
    for command, method in (("predict", "predict"), ("score", "score_samples"), ("transform", "transform")):
        answer = latently(
            command, tmp_path / "m", tmp_path / "a.csv", code=0 if hasattr(model, method) else 1
        )
        assert not hasattr(model, method) or len(answer.out.splitlines()) == 81
    latently("sample", tmp_path / "m", code=0 if hasattr(model, "sample") else 1)
    latently("impute", tmp_path / "m", tmp_path / "a.csv", code=0 if hasattr(model, "impute") else 1)
    if MODELS[name].labels:
        least = 0.5 if name == "deep-nlmf" else 0.9  # of one factor, deep layers keep little of the class
        assert facts["training_accuracy"] > least
        predicted = latently("predict", tmp_path / "m", tmp_path / "a.csv", "--keep", "kind").out.splitlines()
        assert sum(line.split(",")[1] == line.split(",")[2] for line in predicted[1:]) > 80 * least - 3


def test_options_are_typed_by_the_estimator(latently, data, tmp_path):
    given = "noise=isotropic shared-noise=true n_init=3 noise_floor=1e-4 accelerate=none".split()
    options = [part for option in given for part in ("--option", option)]
    latently("fit", data, "-m", "mfa", "-k", 2, "-q", 1, *options, "--tol", 1e-3, "-o", tmp_path / "m")
    found = library.load(tmp_path / "m").estimator_.get_params()
    expected = {"noise": "isotropic", "shared_noise": True, "n_init": 3, "noise_floor": 1e-4, "tol": 1e-3}
    assert {name: found[name] for name in expected} == expected and found["accelerate"] is None


@pytest.mark.parametrize(
    ("option", "message", "code"),
    [
        ("nois=isotropic", "no option 'nois'", 2),
        ("noise", "name=value", 2),
        ("shared_noise=2", "true or false", 2),
        ("noise_floor=low", "must be a number", 2),
        ("noise=loud", "noise must be one of", 1),
        ("callbacks=print", "no option", 2),
        ("means_init=0", "no option", 2),
    ],
)
def test_wrong_options(latently, data, tmp_path, option, message, code):
    fit = ["fit", data, "-m", "mfa", "-k", 1, "-q", 1, "-o", tmp_path / "m", "--option", option]
    assert message in latently(*fit, code=code).err


def test_per_class_takes_any_density(latently, data, tmp_path):
    fit = ["fit", data, "-m", "per-class", "--label", "kind", "-k", 1, "-o", tmp_path / "m"]
    latently(*fit, "--option", "density=gaussian-mixture", "--option", "covariance_type=diag")
    model = library.load(tmp_path / "m").estimator_
    assert [density.covariance_type for density in model.densities_] == ["diag", "diag"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "mjfa"], "--label"),
        (["--label", "kin"], "did you mean 'kind'?"),
        (["-m", "fa", "-k", "2"], "no number of components"),
        (["-m", "gaussian-mixture", "-q", "2"], "no number of factors"),
        (["-m", "mjfa", "--label", "kind", "-k", "1..3"], "one number"),
        (["-m", "bnmf", "--without", "kind"], "give -k"),
        (["-m", "mfa", "-k", "1", "-q", "99"], "n_factors=99"),
        (["-m", "mfa", "-k", "500", "-q", "1"], "n_components=500"),
        (["-m", "bnmf", "-k", "2", "--standardise"], "Negative"),
    ],
)
def test_requests_that_cannot_be_met(latently, data, tmp_path, arguments, message):
    assert message in latently("fit", data, *arguments, "-o", tmp_path / "m", code=1).err
    assert not (tmp_path / "m").exists()


def test_labels_are_text_and_may_be_missing(latently, tmp_path):
    table, cluster = make_table(100, 3)
    table["kind"] = [["007", "1 b"][c] if i % 5 else "" for i, c in enumerate(cluster)]
    table.to_csv(tmp_path / "a.csv", index=False)
    for name, message in (("mjfa", "as unlabelled"), ("per-class", "not used"), ("mcfa", "only compared")):
        fit = ["fit", tmp_path / "a.csv", "-m", name, "--label", "kind", "-k", 2, "-q", 1, "--max-iter", 10]
        answer = latently(*fit, "--json", "-o", tmp_path / name)
        assert message in answer.err
        assert max(facts_of(answer).get(key, 0) for key in ("training_accuracy", "clustering_accuracy")) > 0.9
    predicted = latently("predict", tmp_path / "mjfa", tmp_path / "a.csv").out.splitlines()[1:]
    assert {line.split(",")[1] for line in predicted} == {"007", "1 b"}


# -- units and places ------------------------------------------------------------------------------------


def test_units_do_not_matter_to_factor_analysis(latently, tmp_path, table):
    """Its likelihood has the same maximum in any units, so log densities must agree in the user's."""
    table.mask(np.random.default_rng(0).random(table.shape) < 0.05).to_csv(tmp_path / "a.csv", index=False)
    scores = []
    for option in ("--standardise", "--no-standardise"):
        folder = tmp_path / option
        latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "--tol", 1e-10, option, "-o", folder)
        latently("score", folder, tmp_path / "a.csv", "-o", tmp_path / f"{option}.csv")
        scores.append(pd.read_csv(tmp_path / f"{option}.csv")["log_density"])
    np.testing.assert_allclose(*scores, atol=1e-3)


@pytest.mark.parametrize("kind", ["csv", "parquet", "npy"])
def test_disk_and_memory_agree(latently, tmp_path, table, kind, monkeypatch):
    monkeypatch.setattr("latently.core.sources.chunks.CHUNK_BYTES", 64 * 100)
    path = tmp_path / f"a.{kind}"
    holed = table.mask(np.random.default_rng(0).random(table.shape) < 0.05)
    write = {
        "csv": lambda: holed.assign(word="x").to_csv(path, index=False),
        "parquet": lambda: holed.assign(word="x").to_parquet(path),
        "npy": lambda: np.save(path, holed),
    }
    write[kind]()
    models = []
    for place in ("--in-memory", "--from-disk"):
        latently("fit", path, "-m", "mfa", "-k", 2, "-q", 1, place, "-o", tmp_path / place)
        models.append(library.load(tmp_path / place).estimator_)
        assert {entry.name for entry in (tmp_path / place).iterdir()} == {
            "model.latently",
            "description.json",
        }
    np.testing.assert_allclose(models[0].means_, models[1].means_, atol=1e-6)


def test_labels_and_criteria_of_rows_on_disk(latently, data, tmp_path):
    fit = [
        "fit",
        data,
        "-m",
        "mcfa",
        "-k",
        2,
        "-q",
        1,
        "--from-disk",
        "--label",
        "kind",
        "--max-iter",
        10,
        "--json",
    ]
    assert facts_of(latently(*fit, "-o", tmp_path / "m"))["clustering_accuracy"] > 0.9
    assert facts_of(latently(*fit, "-m", "mjfa", "-o", tmp_path / "n"))["training_accuracy"] > 0.9
    select = ["select", data, "-m", "ppca", "-q", "1,2", "--from-disk", "-o", tmp_path / "s"]
    for criterion in ("log_likelihood", "entries"):
        assert "--in-memory" in latently(*select, "--criterion", criterion, code=1).err
    latently(*select)


def test_two_hundred_thousand_rows_of_parquet(latently, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(200_000, 6)).astype(np.float32), columns=list("abcdef"))
    table.iloc[100_000:, :3] += 8
    table.assign(who="me", when=pd.Timestamp("2024-01-01")).to_parquet(tmp_path / "a.parquet")
    fit = ["fit", tmp_path / "a.parquet", "-m", "mfa", "-k", 2, "-q", 1, "--max-iter", 20]
    assert facts_of(latently(*fit, "--json", "-o", tmp_path / "m"))["rows"] == 200_000
    latently("predict", tmp_path / "m", tmp_path / "a.parquet", "-o", tmp_path / "p.parquet")
    found = pd.read_parquet(tmp_path / "p.parquet")["component"]
    assert found[:100_000].nunique() == found[100_000:].nunique() == 1 and found[0] != found[199_999]


@pytest.mark.slow
def test_large_tables_stay_on_disk_and_fit_a_memory_cap(tmp_path):
    """600 MB of numbers; a process that held them could not."""
    n_rows, n_columns = 5_000_000, 15
    pattern = np.random.default_rng(0).normal(size=(50_000, n_columns))
    header = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", "f8", (n_rows, n_columns))
    for start in range(0, n_rows, len(pattern)):
        header[start : start + len(pattern)] = pattern
    del header
    arguments = ["fit", "a.npy", "-m", "ppca", "-q", "1", "-o", "m"]
    process = subprocess.Popen(
        [sys.executable, "-m", "latently", *arguments],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (700_000_000, 700_000_000)),
    )
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "temporary file" in err
    assert {path.name for path in tmp_path.iterdir()} == {"a.npy", "m"}


def test_a_cluster_fits_columns_of_several_kinds(latently, tmp_path):
    distributed = pytest.importorskip("distributed")
    rng = np.random.default_rng(0)
    z = rng.random(80) < 0.5
    lines = [
        f"{size:.3f},{town}"
        for size, town in zip(rng.normal(6 * z), np.where(z, "Oslo", "Bonn"), strict=True)
    ]
    (tmp_path / "towns.csv").write_text("size,town\n" + "\n".join([*lines, "5.5,"]) + "\n")
    fit = ("fit", tmp_path / "towns.csv", "-m", "mixed", "-k", 2)
    latently(*fit, "-o", tmp_path / "here")
    with distributed.LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster:
        latently(*fit, "-o", tmp_path / "there", "--scheduler", cluster.scheduler_address)
    here, there = (library.load(tmp_path / name).estimator_ for name in ("here", "there"))
    np.testing.assert_allclose(there.probabilities_, here.probabilities_, rtol=1e-6)


def test_a_cluster_fits_the_same_model(latently, data, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    fit = ("fit", data, "-m", "mfa", "-k", 2, "-q", 2)
    latently(*fit, "-o", tmp_path / "here")
    with distributed.LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster:
        where = ("--scheduler", cluster.scheduler_address)
        assert "fitted by 2 workers" in latently(*fit, "-o", tmp_path / "there", *where).err
        monkeypatch.setattr("latently.cli.cluster._is_there", lambda path: False)
        refused = latently(*fit, "-o", tmp_path / "blind", *where, code=1).err
        assert "cannot read" in refused and "folder that all workers share" in refused
    here, there = (library.load(tmp_path / name).estimator_ for name in ("here", "there"))
    np.testing.assert_allclose(there.means_, here.means_, rtol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name in ("there", "blind")) == ["there"]
    monkeypatch.setattr("latently.cli.cluster._PATIENCE", 0.2)
    assert "no Dask scheduler answers" in latently(*fit, "--scheduler", "tcp://127.0.0.1:1", code=1).err
