"""Commands that use a fitted folder: right numbers, in the user's units and names; and nothing is trusted."""

import io
import json
import re
import shlex
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import latently as library
from latently.metrics import conformal_interval
from latently.report._drawing import number
from tests.cli.conftest import make_table, run_command
from tests.report.cases import Reader


def frame_of(answer):
    return pd.read_csv(io.StringIO(answer.out))


def in_model_units(folder, table):
    """What the model was fitted to, and the logarithm of the volume of its units."""
    record = json.loads((folder / "description.json").read_text())
    return (table - record["mean"]) / record["scale"], np.log(record["scale"]).sum()


# -- the right numbers -----------------------------------------------------------------------------------


def test_results_are_those_of_the_library(latently, fitted):
    folder, data = fitted
    table, model = pd.read_csv(data), library.load(folder).estimator_
    rows, log_volume = in_model_units(folder, table)
    rows = rows.to_numpy()
    predicted = frame_of(latently("predict", folder, data, "--probabilities"))
    np.testing.assert_array_equal(predicted["component"], model.predict(rows))
    np.testing.assert_allclose(predicted.filter(like="probability of"), model.predict_proba(rows), atol=1e-12)
    scores = frame_of(latently("score", folder, data))["log_density"]
    np.testing.assert_allclose(scores, model.score_samples(rows) - log_volume, rtol=1e-9)
    factors = frame_of(latently("transform", folder, data))
    np.testing.assert_allclose(factors[["factor_1", "factor_2"]], model.transform(rows), atol=1e-9)
    assert factors["row"].tolist() == list(range(1, 241))


def test_log_densities_are_of_the_users_units(latently, tmp_path):
    """Of one Gaussian, SciPy knows them."""
    from scipy.stats import multivariate_normal

    table, _ = make_table(200, 3)
    table.to_csv(tmp_path / "a.csv", index=False)
    latently(
        "fit",
        tmp_path / "a.csv",
        "-m",
        "gaussian-mixture",
        "-k",
        1,
        "--option",
        "prior=none",
        "-o",
        tmp_path / "m",
    )
    exact = multivariate_normal(table.mean(), np.cov(table.T, ddof=0)).logpdf(table)
    np.testing.assert_allclose(
        frame_of(latently("score", tmp_path / "m", tmp_path / "a.csv"))["log_density"], exact, rtol=1e-6
    )


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99])
def test_the_acceptance_rate_is_kept(latently, fitted, tmp_path, rate):
    folder, data = fitted
    accepted = frame_of(latently("score", folder, data, "--accept", rate))["accepted"]
    assert abs(accepted.mean() - rate) < 0.01
    make_table(2000, seed=0)[0].tail(1000).to_csv(tmp_path / "other.csv", index=False)
    other = [tmp_path / "other.csv", "--reference", tmp_path / "other.csv"]
    answer = latently("score", folder, *other, "--accept", rate, "--json")
    facts = json.loads(answer.out)
    assert abs(facts["rejected"] / 1000 - (1 - rate)) < 0.01
    assert sum(not row["accepted"] for row in facts["results"]) == facts["rejected"]


def test_a_part_held_out_of_the_fit_gives_thresholds_with_a_guarantee(latently, tmp_path):
    table = make_table(1200, seed=3)[0]
    table.head(1000).to_csv(tmp_path / "a.csv", index=False)
    table.tail(200).to_csv(tmp_path / "new.csv", index=False)
    fit = ["-m", "gaussian-mixture", "-k", 2, "--hold-out", 0.2, "-o", tmp_path / "m"]
    assert "200 rows of 1000 are held out of the fit" in latently("fit", tmp_path / "a.csv", *fit).err
    model = library.load(tmp_path / "m")
    held_out = model.preparation_.held_out
    assert len(held_out) == 200 and held_out == sorted(held_out)
    shown = set(np.round(model.score_samples(table.head(1000)), 6))
    assert set(np.round(held_out, 6)) <= shown  # they are rows of the table, in its units
    said = latently("score", tmp_path / "m", tmp_path / "new.csv", "--accept", 0.9, "--json")
    facts = json.loads(said.out)
    assert facts["threshold"] == held_out[19]  # the 20th of 200: floor(201 * 0.1)
    low, high = conformal_interval(200, 0.9, n_rows=200, level=0.999)
    assert low <= 1 - facts["rejected"] / 200 <= high
    assert "rows of the fit" not in said.err and "rows are rejected" in said.err
    assert model.accepts(table.tail(200), 0.9).sum() == 200 - facts["rejected"]
    assert "is that of 0.9 of the rows of the fit" not in said.err
    for rate, says in ((0.999, "needs at least 999 calibration rows"), (1.0, "--accept must be a number")):
        answer = latently("score", tmp_path / "m", tmp_path / "new.csv", "--accept", rate, code=1)
        assert says in answer.err
    latently("report", tmp_path / "m", tmp_path / "a.csv")  # with the threshold for 0.99


def test_wrong_shares_to_hold_out_are_told(latently, fitted, tmp_path):
    small = ["-m", "gaussian-mixture", "-k", 1, "-o", tmp_path / "m"]
    answer = latently("fit", fitted[1], *small, "--hold-out", 0.0001, code=1)
    assert "--hold-out 0.0001 of 240 rows is none" in answer.err


def test_rows_held_out_of_the_fit_are_held_out_of_its_preparation(latently, tmp_path):
    """Means and scales are those of the other rows, in memory and from disk; a total is in neither part."""
    table = make_table(100)[0].round(3)
    table.loc[100] = table.sum()
    table.to_csv(tmp_path / "a.csv", index=False)
    fit = ["fit", tmp_path / "a.csv", "-m", "gaussian-mixture", "-k", 1, "--hold-out", 0.3]
    latently(*fit, "-o", tmp_path / "m")
    record = library.load(tmp_path / "m").preparation_
    rest = table.drop(index=[100, *np.random.default_rng(0).permutation(100)[:30]])
    np.testing.assert_allclose(record.mean, rest.mean(), rtol=1e-12)
    np.testing.assert_allclose(record.scale, rest.std(ddof=0), rtol=1e-12)
    assert record.n_rows == 70 and len(record.held_out) == 30
    latently(*fit, "--from-disk", "-o", tmp_path / "n")
    other = library.load(tmp_path / "n").preparation_
    assert other.mean == record.mean
    np.testing.assert_allclose(other.held_out, record.held_out, rtol=1e-9)


def test_reference_rows_of_the_fit_are_told(latently, fitted):
    assert "of the same name" in latently("score", *fitted, "--reference", fitted[1], "--accept", 0.9).err
    assert "new rows a few more are rejected" in latently("score", *fitted).err


def test_far_rows_are_rejected(latently, fitted, tmp_path):
    (pd.read_csv(fitted[1]) * 50).head(5).to_csv(tmp_path / "far.csv", index=False)
    assert not frame_of(latently("score", fitted[0], tmp_path / "far.csv"))["accepted"].any()


def test_columns_go_by_name(latently, fitted, tmp_path):
    folder, data = fitted
    table = pd.read_csv(data)
    shuffled = table[list("ecabd")].assign(more="text")
    shuffled.to_csv(tmp_path / "a.csv", sep=";", decimal=",", index=False)
    shuffled.to_parquet(tmp_path / "a.parquet")
    np.save(tmp_path / "a.npy", table)  # no names: by place
    plain = frame_of(latently("score", folder, data))
    for name in ("a.parquet", "a.npy"):
        found = frame_of(latently("score", folder, tmp_path / name))
        np.testing.assert_allclose(found["log_density"], plain["log_density"])
    found = pd.read_csv(
        io.StringIO(latently("score", folder, tmp_path / "a.csv").out), sep=";", decimal=","
    )  # as the file was written
    np.testing.assert_allclose(found["log_density"], plain["log_density"])


def test_pieces_make_no_difference(latently, fitted, monkeypatch):
    folder, data = fitted
    commands = [["predict"], ["score"], ["transform"], ["impute"]]
    whole = [latently(*command, folder, data).out for command in commands]
    monkeypatch.setattr("latently.core.sources.chunks.CHUNK_BYTES", 64 * 50)
    for command, before in zip(commands, whole, strict=True):
        found, expected = (
            pd.read_csv(io.StringIO(text)) for text in (latently(*command, folder, data).out, before)
        )
        pd.testing.assert_frame_equal(found, expected)


def test_samples_are_in_the_users_units(latently, fitted, tmp_path):
    folder, data = fitted
    table = pd.read_csv(data)
    latently("sample", folder, "-n", 20_000, "-o", tmp_path / "s.parquet")
    drawn = pd.read_parquet(tmp_path / "s.parquet")
    assert list(drawn) == ["component", *table]
    assert ((drawn[list(table)].mean() - table.mean()).abs() < 0.05 * table.std()).all()
    np.testing.assert_allclose(drawn[list(table)].std(), table.std(), rtol=0.05)
    first, second, other = (latently("sample", folder, "--seed", seed).out for seed in (1, 1, 2))
    assert first == second != other


def test_more_samples_than_there_is_room_for(latently, fitted, tmp_path):
    folder, _ = fitted
    assert "--rows" in latently("sample", folder, "-n", 10**20, code=2).err
    for more, where in ((["-o", tmp_path / "s.csv"], "disk"), (["-o", tmp_path / "s.parquet"], "disk")):
        assert where in latently("sample", folder, "-n", 10**12, *more, code=1).err
    assert "of memory" in latently("sample", folder, "-n", 10**12, "--json", code=1).err
    assert not list(tmp_path.glob("*s.*"))


def test_impute_fills_holes_and_nothing_else(latently, fitted, tmp_path):
    folder, data = fitted
    table = pd.read_csv(data).map("{:+.6f}0".format)  # as no program would write them
    table.insert(2, "note", ["  a, b", '"quoted"', "007", ""] * 60)
    holes = np.random.default_rng(0).random((240, 5)) < 0.1
    holed = table.copy()
    holed[list("abcde")] = holed[list("abcde")].mask(holes, "?")
    holed.to_csv(tmp_path / "holed.csv", index=False)
    answer = latently("impute", folder, tmp_path / "holed.csv", "-o", tmp_path / "filled.csv", "--json")
    assert json.loads(answer.out)["filled"] == holes.sum()
    filled = pd.read_csv(tmp_path / "filled.csv", dtype=str, keep_default_na=False)
    assert (
        list(filled) == list(table)
        and filled["note"].str.strip().tolist() == table["note"].str.strip().tolist()
    )
    numbers = list("abcde")
    assert (filled[numbers] == table[numbers]).to_numpy()[~holes].all()  # to the last character
    error = (filled[numbers].astype(float) - table[numbers].astype(float)) / table[numbers].astype(
        float
    ).std()
    assert np.sqrt((error.to_numpy()[holes] ** 2).mean()) < 0.6  # the mean of the column would have 1
    drawn = [
        latently("impute", folder, tmp_path / "holed.csv", "--draw", "--seed", seed).out for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_impute_writes_draws_and_standard_errors(latently, fitted, tmp_path, monkeypatch):
    folder, data = fitted
    table = pd.read_csv(data).head(60)
    holes = np.random.default_rng(0).random(table.shape) < 0.2
    table.mask(holes).assign(draw="mine").to_csv(tmp_path / "holed.csv", index=False)
    impute = ["impute", folder, tmp_path / "holed.csv"]
    means = pd.read_csv(io.StringIO(latently(*impute).out))
    answer = latently(*impute, "--std", "-o", tmp_path / "std.csv", "--json")
    assert json.loads(answer.out)["filled"] == holes.sum()
    errors = pd.read_csv(tmp_path / "std.csv")
    assert list(errors) == [*table, "draw", *(f"{name}_std" for name in table)]
    pd.testing.assert_frame_equal(errors[list(means)], means)
    std = errors[[f"{name}_std" for name in table]].to_numpy()
    np.testing.assert_array_equal(std > 0, holes)

    several = pd.read_csv(io.StringIO(latently(*impute, "--draws", 200, "--seed", 1).out))
    assert list(several) == ["draw_", *table, "draw"] and len(several) == 200 * 60
    np.testing.assert_array_equal(several["draw_"], np.tile(np.arange(1, 201), 60))
    drawn = several[list(table)].to_numpy().reshape(60, 200, 5)  # all draws of a row together
    np.testing.assert_allclose(
        drawn[~np.repeat(holes[:, None], 200, axis=1)].min(), table.to_numpy()[~holes].min()
    )
    ratio = drawn.std(axis=1)[holes] / std[holes]
    assert 0.8 < np.sqrt((ratio**2).mean()) < 1.25
    middle = (drawn.mean(axis=1) - means[list(table)].to_numpy())[holes] / std[holes]
    assert np.sqrt((middle**2).mean()) < 0.15
    monkeypatch.setattr("latently.core.sources.chunks.CHUNK_BYTES", 64 * 50)
    pieces = pd.read_csv(io.StringIO(latently(*impute, "--draws", 2).out))
    np.testing.assert_array_equal(pieces["draw_"], np.tile([1, 2], 60))
    assert "one of" in latently(*impute, "--draws", 2, "--std", code=2).err
    assert "--draws" in latently(*impute, "--draws", 0, code=2).err


def test_draws_need_a_model_that_has_them(latently, fitted, tmp_path):
    pd.read_csv(fitted[1]).abs().to_csv(tmp_path / "a.csv", index=False)
    latently("fit", tmp_path / "a.csv", "-m", "nmf", "-k", 2, "--max-iter", 5, "-o", tmp_path / "m")
    for option in (["--draw"], ["--draws", 2], ["--std"]):
        answer = latently("impute", tmp_path / "m", tmp_path / "a.csv", *option, code=1)
        assert "expectations only" in answer.err


def test_impute_without_a_model_chooses_one(latently, fitted, tmp_path, monkeypatch):
    for name, few in {
        "_FLOORS": (0.1,),
        "_PRIORS": (1.0,),
        "_SIZES": (1,),
        "_COARSE": (2,),
        "_COMPONENTS": (),
    }.items():
        monkeypatch.setattr(f"latently.selection.imputer.{name}", few)
    table = pd.read_csv(fitted[1]).head(80)
    holes = np.random.default_rng(0).random(table.shape) < 0.1
    table.mask(holes).assign(word="x").to_csv(tmp_path / "holed.csv", index=False)
    answer = latently("impute", tmp_path / "holed.csv", "-o", tmp_path / "filled.csv", "--json")
    told = json.loads(answer.out)
    assert told["filled"] == holes.sum() and told["error"] < 0.6 < told["of_means"]
    assert "chose " in answer.err and "hidden cells" in answer.err
    filled = pd.read_csv(tmp_path / "filled.csv")
    assert (filled["word"] == "x").all()
    error = ((filled[list(table)] - table) / table.std()).to_numpy()
    np.testing.assert_allclose(error[~holes], 0.0, atol=1e-9)
    assert np.sqrt((error[holes] ** 2).mean()) < 0.6
    assert "there is no" in latently("impute", tmp_path / "nothing.csv", code=1).err


def test_impute_without_a_model_imputes_text(latently, tmp_path, monkeypatch):
    monkeypatch.setattr("latently.cli.imputing._SIZES", (1, 2))
    rng = np.random.default_rng(0)
    z = rng.random(120) < 0.5
    table = pd.DataFrame({"size": rng.normal(8.0 * z), "town": np.where(z, "Oslo", "Bonn")})
    table["visits"] = rng.poisson(np.where(z, 9, 2))
    holes = rng.random(table.shape) < 0.1
    holes[holes.all(axis=1)] = False
    table.mask(holes).to_csv(tmp_path / "holed.csv", index=False)
    answer = latently("impute", tmp_path / "holed.csv", "-o", tmp_path / "full.csv", "--json")
    told = json.loads(answer.out)
    assert told["filled"] == holes.sum() and told["error"] < 0.7 * told["of_means"]
    assert "chose MixedMixture(2" in answer.err and "categories: 'town'" in answer.err
    full = pd.read_csv(tmp_path / "full.csv")
    np.testing.assert_allclose(full["size"][~holes[:, 0]], table["size"][~holes[:, 0]])
    assert (full["town"] == table["town"]).mean() > 0.98 and full.notna().all().all()
    draws = latently("impute", tmp_path / "holed.csv", "--draws", 2, "-o", tmp_path / "d.csv")
    assert "240 rows" in draws.out and pd.read_csv(tmp_path / "d.csv").notna().all().all()


def test_impute_of_parquet(latently, fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("latently.core.sources.chunks.CHUNK_BYTES", 64 * 100)
    holed = pd.read_csv(fitted[1]).assign(b=pd.array([1] * 240, dtype="Int64"))
    holed.loc[203, "b"] = None  # no frame before has a hole
    holed.assign(word="x").to_parquet(tmp_path / "a.parquet")
    latently("impute", fitted[0], tmp_path / "a.parquet", "-o", tmp_path / "b.parquet")
    filled = pd.read_parquet(tmp_path / "b.parquet")
    assert filled["b"].notna().all() and filled["a"].equals(holed["a"]) and (filled["word"] == "x").all()


# -- output ----------------------------------------------------------------------------------------------


def test_files_are_not_replaced_unless_asked(latently, fitted, tmp_path):
    folder, data = fitted
    (tmp_path / "p.csv").write_text("mine")
    assert "--force" in latently("predict", folder, data, "-o", tmp_path / "p.csv", code=1).err
    assert "--force" in latently("sample", folder, "-o", tmp_path / "p.csv", code=1).err
    assert (tmp_path / "p.csv").read_text() == "mine"
    latently("predict", folder, data, "-o", tmp_path / "p.csv", "--force")
    assert (tmp_path / "p.csv").read_text().startswith("row,component")
    assert "must end in" in latently("predict", folder, data, "-o", tmp_path / "p.doc", code=1).err
    assert "does not exist" in latently("predict", folder, data, "-o", tmp_path / "no" / "p.csv", code=1).err
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


def test_a_failure_half_way_writes_nothing(latently, fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("latently.core.sources.chunks.CHUNK_BYTES", 64 * 50)
    table = pd.read_csv(fitted[1], dtype=str)
    table.loc[150:, "c"] = "oops"
    table.to_csv(tmp_path / "a.csv", index=False)
    answer = latently("predict", fitted[0], tmp_path / "a.csv", "-o", tmp_path / "p.csv", code=1)
    assert "'c'" in answer.err and "'oops'" in answer.err and "--missing" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_columns_are_kept_on_request(latently, fitted, tmp_path):
    pd.read_csv(fitted[1]).assign(code="007").to_csv(tmp_path / "a.csv", index=False)
    pd.read_csv(fitted[1]).assign(accepted="book").to_csv(tmp_path / "clash.csv", index=False)
    answer = latently("predict", fitted[0], tmp_path / "a.csv", "--keep", "code")
    assert answer.out.splitlines()[1].startswith("1,007,")
    answer = latently("score", fitted[0], tmp_path / "clash.csv", "--keep", "accepted")
    assert answer.out.splitlines()[0] == "row,accepted_,log_density,accepted"
    assert "'cod'" in latently("predict", fitted[0], tmp_path / "a.csv", "--keep", "cod", code=1).err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop(columns="b"), "no column 'b'"),
        (lambda table: table.rename(columns={"b": "B"}), "'b'"),
        (lambda table: table.assign(b=np.inf), "infinite"),
        (lambda table: table.head(0), "no rows"),
    ],
)
def test_data_that_do_not_suit_the_model(latently, fitted, tmp_path, change, message):
    change(pd.read_csv(fitted[1])).to_csv(tmp_path / "a.csv", index=False)
    assert message in latently("score", fitted[0], tmp_path / "a.csv", code=1).err


def test_arrays_of_another_width(latently, fitted, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 3)))
    assert "3 columns" in latently("score", fitted[0], tmp_path / "a.npy", code=1).err


# -- nothing of the user's is markup, a path or trusted ------------------------------------------------------

NASTY = [
    "[red]x[/red]",
    "../../up",
    "</script><b>",
    "=1+1",
    "\x1b[31mred\x1b[0m",
    "\u202egnp.exe",
    "a\nb",
    ":smile:",
]


def test_names_and_cells_are_shown_as_they_are(latently, tmp_path):
    table, cluster = make_table(100, 5)
    table.columns = NASTY[:5]
    table["kind"] = [NASTY[3 + c] for c in cluster]
    table["word"] = [NASTY[i % len(NASTY)] for i in range(100)]
    home = tmp_path / "[bold]folder"
    home.mkdir()
    table.to_csv(home / "[red]data.csv", index=False)
    fit = ["fit", home / "[red]data.csv", "-m", "mjfa", "-q", 1, "--label", "kind", "-o", home / "m"]
    answer = latently(*fit)
    assert "\x1b" not in answer.out + answer.err and "\u202e" not in answer.err
    assert "[red]x[/red]" in answer.err  # the first word that was found
    assert {path.name for path in (home / "m").iterdir()} == {"model.latently", "description.json"}
    assert {path.name for path in home.iterdir()} == {"[red]data.csv", "m"}
    assert {path.name for path in tmp_path.iterdir()} == {"[bold]folder"}
    latently("select", fit[1], "-m", "ppca", "-q", "1,2", "-o", home / "n")
    predicted = frame_of(latently("predict", home / "m", fit[1], "--probabilities"))
    assert set(predicted["class"]) == set(NASTY[3:5])
    answer = latently("fit", fit[1], "--columns", "\x1b[31m", code=1)
    assert "\x1b" not in answer.err and "\\x1b[31m" in answer.err


def test_a_watched_terminal_is_not_steered(fitted, tmp_path):
    """Cells that are copied to a terminal are shown with escapes."""
    import os
    import pty

    table = pd.read_csv(fitted[1]).head(2).assign(word="\x1b[31mred")
    table.to_csv(tmp_path / "a.csv", index=False)
    arguments = [sys.executable, "-m", "latently", "predict", fitted[0], tmp_path / "a.csv", "--keep", "word"]
    leader, follower = pty.openpty()
    with subprocess.Popen(arguments, stdout=follower, stderr=subprocess.DEVNULL) as process:
        process.wait(timeout=60)
    os.close(follower)
    shown = os.read(leader, 10_000).decode()
    os.close(leader)
    assert "\x1b" not in shown and "\\x1b[31mred" in shown


def broken(**changes):
    """Changes of a description by which it is no longer valid."""
    return [pytest.param(name, value, id=f"{name}={str(value)[:20]}") for name, value in changes.items()]


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        *broken(format="other", format_version=99, columns=[], mean=[0.0], scale=[0.0] * 5, standardised=1),
        *broken(model=3, n_rows=-1, n_missing=1.5, file=None, left_out=[["a"]], label=7, labels=["a", "a"]),
        *broken(missing="?", image_shape=[2, 2], seed="x", densities=[0.0], selection={}, surprise=1),
        *broken(columns=["a", "a", "c", "d", "e"], mean=[1e999] * 5, scale=[-1.0] * 5, labels={"a": 1}),
        *broken(columns=[["a"], "b", "c", "d", "e"], densities=list(range(200)), image_shape=[1 << 40, 1]),
        *broken(columns=["a", "b", "c", "d"], selection={"criterion": "luck", "parameters": []}),
    ],
)
def test_a_description_is_checked(latently, fitted, tmp_path, entry, value):
    folder, data = fitted
    (tmp_path / "model.latently").write_bytes((folder / "model.latently").read_bytes())
    record = json.loads((folder / "description.json").read_text())
    (tmp_path / "description.json").write_text(json.dumps(record))
    latently("score", tmp_path, data)
    (tmp_path / "description.json").write_text(json.dumps(record | {entry: value}))
    assert "description" in latently("score", tmp_path, data, code=1).err


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{" * 100_000, "[" * 100_000, "\x00", '{"format": "latently fit"}']
)
def test_a_description_that_is_none(latently, fitted, tmp_path, text):
    (tmp_path / "model.latently").write_bytes((fitted[0] / "model.latently").read_bytes())
    (tmp_path / "description.json").write_text(text)
    assert "description.json" in latently("score", tmp_path, fitted[1], code=1).err


def test_folders_that_are_no_models(latently, fitted, tmp_path):
    assert "latently fit" in latently("score", tmp_path / "absent", fitted[1], code=1).err
    assert "model.latently" in latently("score", tmp_path, fitted[1], code=1).err
    (tmp_path / "description.json").write_bytes((fitted[0] / "description.json").read_bytes())
    assert "model.latently" in latently("score", tmp_path, fitted[1], code=1).err
    (tmp_path / "model.latently").write_bytes(b"nonsense")
    assert "model.latently" in latently("score", tmp_path, fitted[1], code=1).err


# -- the report ------------------------------------------------------------------------------------------


@pytest.fixture
def written(monkeypatch):
    """What reports were asked for; a file stands for each."""
    asked = []

    def write_report(path, model, X, **more):
        path.write_text("page")
        asked.append({"model": model, "X": X, **more})
        return path

    monkeypatch.setattr("latently.report.write_report", write_report)
    return asked


def test_report_hands_over_what_is_known(latently, tmp_path, written, monkeypatch):
    table, cluster = make_table()
    table["kind"] = np.where(cluster, "big one", "small")
    table.iloc[4, 2] = np.nan
    table.to_csv(tmp_path / "a.csv", index=False)
    select = ["select", tmp_path / "a.csv", "-m", "gaussian-mixture", "-k", "1,2", "--label", "kind"]
    latently(*select, "-o", tmp_path / "m")
    latently("report", tmp_path / "m", tmp_path / "a.csv")
    [asked] = written
    rows, _ = in_model_units(tmp_path / "m", table[list("abcde")])
    np.testing.assert_allclose(asked["X"], rows)
    assert asked["feature_names"] == list("abcde") and asked["labels"].tolist() == table["kind"].tolist()
    search = asked["selection"]
    saved = pd.read_csv(tmp_path / "m" / "selection.csv")
    assert search.best_params_ == {"n_components": 2} and search.best_score_ == saved["bic"].min()
    assert search.table_["rank"].tolist() == saved["rank"].tolist()
    assert (tmp_path / "m" / "report.html").read_text() == "page"
    assert "--force" in latently("report", tmp_path / "m", tmp_path / "a.csv", code=1).err
    monkeypatch.setattr("latently.cli.using.CELLS_IN_REPORT", 50 * 5)
    monkeypatch.setattr("latently.core.sources.chunks.CHUNK_BYTES", 64 * 200)
    answer = latently("report", tmp_path / "m", tmp_path / "a.csv", "-o", tmp_path / "r.html", "--json")
    some = written[1]
    assert len(some["X"]) == len(some["labels"]) == json.loads(answer.out)["rows"] == 50
    complete = rows.fillna(0).to_numpy()
    places = [int(np.flatnonzero((np.nan_to_num(row) == complete).all(axis=1))[0]) for row in some["X"]]
    assert places == sorted(set(places))  # rows of the table, each once, beside their own labels
    assert some["row_numbers"].tolist() == [place + 1 for place in places] and some["n_rows"] == len(rows)
    assert some["labels"].tolist() == table["kind"].iloc[places].tolist()


def test_the_real_report_takes_what_it_is_given(latently, fitted, tmp_path):
    latently("report", *fitted, "-o", tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text().lstrip().lower().startswith("<!doctype html>")


@pytest.fixture
def long_file(tmp_path):
    """60 000 rows in uneven units, of which row 52 346 of the file is far out; and a model of them."""
    table, _ = make_table(60_000, 3)
    table.iloc[52_345] += 40 * table.std()
    pyarrow = pytest.importorskip("pyarrow.parquet")
    pyarrow.write_table(pytest.importorskip("pyarrow").Table.from_pandas(table), tmp_path / "long.parquet")
    sizes = ["-m", "gaussian-mixture", "-k", 2, "--max-iter", 3, "-o", tmp_path / "m"]
    assert run_command(["fit", tmp_path / "long.parquet", *sizes]) == 0
    return tmp_path / "m", tmp_path / "long.parquet"


def payload_of(page):
    """What the script of a report is given."""
    return json.loads(re.search(r'id="rows">(.*?)</script>', page.read_text())[1])


@pytest.mark.parametrize("most_cells", [None, 3 * 52_000])
def test_report_and_score_number_and_judge_rows_alike(latently, long_file, tmp_path, monkeypatch, most_cells):
    if most_cells:  # a sample of the rows
        monkeypatch.setattr("latently.cli.using.CELLS_IN_REPORT", most_cells)
    scored = json.loads(latently("score", *long_file, "--json").out)
    rows = pd.DataFrame(scored["results"]).set_index("row")
    latently("report", *long_file, "-o", tmp_path / "r.html")
    page = tmp_path / "r.html"
    payload, text = payload_of(page), Reader(page.read_text()).text()
    assert payload["rows"]["width"] == 1
    numbers = np.cumsum(np.frombuffer(b64decode(payload["rows"]["data"]), "u1"), dtype=int)
    assert len(numbers) == payload["count"] == 50_000 and numbers.max() > 50_000
    column = payload["values"][0]
    codes = np.frombuffer(b64decode(column["data"]), "<u2")
    shown = column["low"] + (column["high"] - column["low"]) * codes / 65534
    np.testing.assert_allclose(
        shown, rows["log_density"][numbers], atol=1e-4 * (column["high"] - column["low"])
    )
    assert f"threshold: {number(scored['threshold'])}" in text
    if most_cells is None:
        least = rows["log_density"].idxmin()
        assert least == 52_346 and f"row {least}{number(rows['log_density'][least])}" in text
        assert f"{scored['rejected']} of 60\u202f000 rows" in text
        assert f"mean log density{number(rows['log_density'].mean())}" in text
    else:
        assert "52\u202f000 rows, drawn at random from 60\u202f000" in text


def test_factors_have_the_names_of_transform(latently, fitted, tmp_path):
    names = latently("transform", *fitted).out.splitlines()[0].split(",")[1:]
    latently("report", *fitted, "-o", tmp_path / "r.html")
    axes = [axis["name"] for axis in payload_of(tmp_path / "r.html")["axes"]]
    assert axes[: len(names)] == [name.replace("_", " ") for name in names]


def test_explore_writes_a_page_and_opens_it(latently, fitted, tmp_path, monkeypatch):
    visited = []
    monkeypatch.setattr("webbrowser.open", lambda address: not visited.append(address))
    page = tmp_path / "e.html"
    latently("explore", *fitted, "-o", page)
    assert visited == [page.resolve().as_uri()]
    headings = Reader(page.read_text()).headings()
    assert headings[:2] == ["Explorer", "Projection of the rows"] and "Next steps" not in headings
    assert "--force" in latently("explore", *fitted, "-o", page, code=1).err
    latently("explore", *fitted, "-o", page, "--force", "--no-open")
    quiet = latently("explore", *fitted, "-o", page, "--force", "--no-open", "--quiet")
    assert not quiet.out and not quiet.err
    assert len(visited) == 1
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert "no browser" in latently("explore", *fitted, "-o", page, "--force").err


def test_demo(latently, tmp_path, monkeypatch):
    monkeypatch.setattr("latently.cli.demo.COMPONENTS", "2,3")
    monkeypatch.setattr("latently.cli.demo.FACTORS", "3")
    answer = latently("demo", "-o", tmp_path / "demo", "--json")
    assert json.loads(answer.out)["clustering_accuracy"] > 0.9
    files = {"model.latently", "description.json", "selection.csv", "report.html", "data.csv"}
    assert {path.name for path in (tmp_path / "demo").iterdir()} == files
    assert run_command(["predict", tmp_path / "demo", tmp_path / "demo" / "data.csv"]) == 0


def test_next_steps_fit_to_the_same_columns(latently, tmp_path, table, monkeypatch):
    """And are other ones than what the fit has done."""
    monkeypatch.chdir(tmp_path)
    table.to_csv("a.csv", index=False)
    given = ["-k", 2, "-q", 1, "--columns", "a,b,c", "--no-standardise", "-o", "m"]
    latently("fit", "a.csv", "-m", "mfa", *given)
    latently("report", "m", "a.csv")
    page = Reader(Path("m/report.html").read_text(encoding="utf-8"))
    [search] = [text for text in page.text("code").split("latently ") if text.startswith("select")]
    arguments = shlex.split(search)
    latently(*arguments)
    assert library.load("m-wider").columns_ == ["a", "b", "c"]
    assert not library.load("m-wider").preparation_.standardised
    [script] = [line for line in page.text("code").splitlines() if line.startswith("python -c")]
    code = "import latently; model = latently.load('m'); print(model.predict('a.csv'))"
    assert script == f'python -c "{code}"'
    latently("fit", "a.csv", "--budget", 1, "-o", "best")
    latently("report", "best", "a.csv")
    page = Reader(Path("best/report.html").read_text(encoding="utf-8"))
    assert "Compare other model sizes" not in page.text("h3")


def test_explorers_of_axes_and_of_components_alone(latently, tmp_path, table):
    table.to_csv(tmp_path / "a.csv", index=False)
    for columns, expected in (("a,b", "Move the axes to see"), ("a", "Choose a component to see")):
        model = tmp_path / columns
        latently("fit", tmp_path / "a.csv", "-m", "gaussian-mixture", "-k", 2, "-c", columns, "-o", model)
        latently("explore", model, tmp_path / "a.csv", "--no-open")
        assert expected in (model / "explore.html").read_text(encoding="utf-8")
