"""Input that is silently wrong: told by name, with the option that decides, and the safe thing done."""

import json

import numpy as np
import pandas as pd
import pytest

import latently as library
from latently.cli.models import MODELS
from latently.mixture import FactorAnalysis, GaussianMixture
from latently.tables import TableModel
from latently.tables.preparing import SUMS_OF_PARTS
from tests.cli.conftest import make_table

N = 240


def ordinary(n=N):
    return make_table(n)[0]


def shuffled(values, seed=0):
    return np.random.default_rng(seed).permutation(np.asarray(values))


def random(seed=0):
    return np.random.default_rng(seed)


DAYS = pd.date_range("2021-01-01", periods=N)
# what a column holds, its name, and what the reason says
LEFT_OUT = {
    "jitter": ("level", 5 + 1e-13 * random().normal(size=N), "but for rounding"),
    "shuffled ids": ("x", shuffled(range(1, N + 1)), "numbers the rows in another order"),
    "descending ids": ("x", np.arange(N, 0, -1), "numbers the rows, 240 to 1"),
    "ids with gaps": ("customerID", shuffled(random().choice(10**6, N, replace=False)), "identify"),
    "repeated ids": (
        "user_id",
        shuffled(np.repeat(random().choice(10**6, N // 2, replace=False), 2)),
        "identify",
    ),
    "zip codes": ("zip_code", random().choice([90210, 10001, 60601, 73301], N), "postal codes"),
    "leading zeros": ("area", [f"{i:05d}" for i in random().integers(0, 99999, N)], "leading zeros"),
    "unix times": ("x", random().integers(1_600_000_000, 1_650_000_000, N), "(seconds since 1970)"),
    "unix milliseconds": ("created_at", random().integers(1.6e12, 1.65e12, N), "milliseconds since 1970"),
    "dates": ("x", [int(day.strftime("%Y%m%d")) for day in DAYS], "yyyymmdd, 20210101 to"),
    "truth": ("member", random().random(N) < 0.3, "two values, 0 and 1"),
    "truth as numbers": ("member", (random().random(N) < 0.3).astype(int), "two values, 0 and 1"),
    "one or two": ("sex", 1 + (random().random(N) < 0.5), "two values, 1 and 2"),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_columns_that_say_nothing_to_a_density(latently, tmp_path, case):
    name, values, reason = LEFT_OUT[case]
    ordinary().assign(**{name: values}).to_csv(tmp_path / "a.csv", index=False)
    fit = ["fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "--json"]
    answer = latently(*fit, "-o", tmp_path / "m")
    facts = json.loads(answer.out)
    assert facts["columns"] == list("abcde")
    [entry] = facts["left_out"]
    assert entry["column"] == name and reason in entry["reason"]
    assert f"column '{name}' is left out" in answer.err and f"--as-is '{name}' uses it" in answer.err
    for option in (["--as-is", name], ["--columns", f"a,b,c,d,e,{name}"]):
        facts = json.loads(latently(*fit, *option, "-o", tmp_path / option[0]).out)
        assert facts["columns"] == [*"abcde", name]


def test_one_hot_columns_are_named_together(latently, tmp_path):
    kinds = pd.get_dummies(pd.Series(random().choice(["red", "green", "blue"], N)), dtype=int)
    pd.concat([ordinary(), kinds], axis=1).to_csv(tmp_path / "a.csv", index=False)
    facts = json.loads(
        latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "--json", "-o", tmp_path / "m").out
    )
    reasons = {entry["column"]: entry["reason"] for entry in facts["left_out"]}
    assert set(reasons) == {"red", "green", "blue"}
    assert all("one-hot" in reason and "'red'" in reason for reason in reasons.values())


@pytest.mark.parametrize(
    ("value", "column"), [(-9999, "a"), (999, "c"), (-999.25, "b"), (99, "a"), (9999.99, "d")]
)
def test_sentinels_are_missing(latently, tmp_path, value, column):
    table = ordinary()
    table[column] = (table[column] - table[column].mean()) / table[column].std()
    clean = table.copy()
    here = random().random(N) < 0.05
    table.loc[here, column] = value
    table.to_csv(tmp_path / "a.csv", index=False)
    answer = latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "--json", "-o", tmp_path / "m")
    assert json.loads(answer.out)["missing_cells"] == here.sum()
    assert f"column '{column}': {value:g} in {here.sum()} cells" in answer.err
    assert f"--as-is '{column}' keeps" in answer.err
    model = library.load(tmp_path / "m")
    place = list(table).index(column)
    np.testing.assert_allclose(model.preparation_.mean[place], clean[column][~here].mean(), atol=1e-12)
    scores = model.score_samples(table)  # later rows are treated alike
    np.testing.assert_array_equal(
        scores, model.score_samples(clean.assign(**{column: clean[column].where(~here)}))
    )
    filled = pd.read_csv(
        __import__("io").StringIO(latently("impute", tmp_path / "m", tmp_path / "a.csv").out)
    )
    assert (filled[column].abs() < 10).all()
    kept = latently(
        "fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "--json", "--as-is", column, "-o", tmp_path / "n"
    )
    assert json.loads(kept.out)["missing_cells"] == 0


def test_usual_numbers_are_no_sentinels(latently, tmp_path):
    table = ordinary().assign(age=random().integers(18, 100, N), price=random().integers(0, 1000, N))
    table.loc[[3, 70], "price"] = 999
    table.to_csv(tmp_path / "a.csv", index=False)
    answer = latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "-o", tmp_path / "m", "--json")
    assert json.loads(answer.out)["missing_cells"] == 0 and "missing" not in answer.err


@pytest.mark.parametrize("kind", ["sum", "mean", "both"])
@pytest.mark.parametrize("place", ["--in-memory", "--from-disk"])
def test_a_total_is_no_row(latently, tmp_path, kind, place, monkeypatch):
    monkeypatch.setattr("latently.core.sources.chunks.CHUNK_BYTES", 64 * 700)
    table = ordinary().abs()
    table.insert(0, "shop", [f"shop {i}" for i in range(N)])
    more = []
    if kind in ("sum", "both"):
        more.append({"shop": "Total", **table[list("abcde")].sum()})
    if kind in ("mean", "both"):
        more.append({"shop": "Average", **table[list("abcde")].mean()})
    pd.concat([table, pd.DataFrame(more)]).to_csv(tmp_path / "a.csv", index=False)
    answer = latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, place, "--json", "-o", tmp_path / "m")
    assert json.loads(answer.out)["rows"] == N
    assert answer.err.count("is left out: it is the") == len(more) and "row 241 is left out" in answer.err
    record = library.load(tmp_path / "m").preparation_
    np.testing.assert_allclose(record.mean, table[list("abcde")].mean())
    whole = ["fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "--as-is", "*", "--json", "-o", tmp_path / "n"]
    if kind == "sum":
        assert json.loads(latently(*whole).out)["rows"] == N + 1


@pytest.mark.parametrize("cell", ["inf", "<0.5", "#DIV/0!", "error", "-Infinity"])
def test_a_bad_cell_is_missing(latently, tmp_path, cell):
    table = ordinary().astype(object)
    table.loc[17, "c"] = cell
    table.to_csv(tmp_path / "a.csv", index=False)
    answer = latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "-o", tmp_path / "m", "--json")
    facts = json.loads(answer.out)
    assert facts["columns"] == list("abcde") and facts["missing_cells"] == 1
    assert "column 'c': 1 cell that cannot be used as a number" in answer.err
    later = latently("score", tmp_path / "m", tmp_path / "a.csv")
    assert "column 'c': 1 cell" in later.err
    scores = library.load(tmp_path / "m").score_samples(ordinary().mask(table == cell))
    assert later.out.splitlines()[18].startswith(f"18,{float(scores[17])!r},")


def test_a_column_of_names_with_some_numbers_is_text(latently, tmp_path):
    tickets = [str(i) if i % 3 else f"A/5 {i}" for i in random().integers(0, 10**6, N)]
    ordinary().assign(ticket=tickets).to_csv(tmp_path / "a.csv", index=False)
    facts = json.loads(
        latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "--json", "-o", tmp_path / "m").out
    )
    assert facts["columns"] == list("abcde") and "holds text" in facts["left_out"][0]["reason"]


def test_few_rows_are_refused_or_told(latently, tmp_path):
    ordinary(2).to_csv(tmp_path / "two.csv", index=False)
    fit = ["fit", tmp_path / "two.csv", "-m", "gaussian-mixture", "-k", 2, "-o", tmp_path / "m"]
    assert "needs at least 4 rows, but there are 2" in latently(*fit, code=1).err
    ordinary(8).to_csv(tmp_path / "eight.csv", index=False)
    fit[1] = tmp_path / "eight.csv"
    assert "only 8 rows for 2 components" in latently(*fit).err


def test_rows_too_few_to_judge_a_model_by_are_told(latently, tmp_path):
    """Also where one component is fitted, and sizes are chosen; in the shell and in Python."""
    for n, told in ((2, True), (9, True), (10, False)):
        ordinary(n).to_csv(tmp_path / "few.csv", index=False)
        answer = latently("fit", tmp_path / "few.csv", "-m", "fa", "--force", "-o", tmp_path / "m")
        assert (f"only {n} rows, too few to tell whether the model fits" in answer.err) == told
    with pytest.warns(UserWarning, match="only 2 rows, too few"):
        TableModel(GaussianMixture()).fit(ordinary(2))


def test_a_report_is_a_web_page(latently, tmp_path):
    ordinary().to_csv(tmp_path / "a.csv", index=False)
    latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "-o", tmp_path / "m")
    answer = latently("report", tmp_path / "m", tmp_path / "a.csv", "-o", tmp_path / "r.pdf", code=1)
    assert "must end in .html" in answer.err and not (tmp_path / "r.pdf").exists()


def test_the_same_is_told_in_python():
    table = ordinary().assign(zip=random().choice([90210, 10001], N))
    table.loc[3:9, "a"] = -9999
    with pytest.warns(UserWarning) as told:
        model = TableModel(FactorAnalysis(1)).fit(table)
    texts = [str(one.message) for one in told]
    assert any("as_is=['zip'] uses it" in text for text in texts)
    assert any("as_is=['a'] keeps" in text for text in texts)
    assert model.columns_ == list("abcde")
    assert {one.filename for one in told} == {__file__}


def test_sums_of_parts_are_known():
    """They are neither standardised nor refused columns of two values."""
    assert {model.name for model in MODELS.values() if model.kind == "parts"} == SUMS_OF_PARTS


def test_a_table_of_two_values_only_is_fitted(latently, tmp_path):
    answers = pd.DataFrame((random().random((N, 4)) < 0.4).astype(int), columns=list("abcd"))
    answers.to_csv(tmp_path / "a.csv", index=False)
    answer = latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "--json", "-o", tmp_path / "m")
    assert json.loads(answer.out)["columns"] == list("abcd") and "all columns have two values" in answer.err
    answer = latently("fit", tmp_path / "a.csv", "-m", "rbm", "-k", 2, "--max-iter", 2, "-o", tmp_path / "n")
    assert "two values" not in answer.err


def test_several_columns_with_sentinels(latently, tmp_path):
    """The folder can be used, and a value that stands for missing elsewhere needs less evidence."""
    table = ordinary()
    table = (table - table.min()) / (table.max() - table.min()) * 1500  # -999 is not far away
    table["b"] = table["b"] / 100
    here = random().random(N) < 0.05
    table.loc[here, ["e", "b", "a"]] = -999
    table.to_csv(tmp_path / "a.csv", index=False)
    answer = latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "--json", "-o", tmp_path / "m")
    assert json.loads(answer.out)["missing_cells"] == 3 * here.sum()
    latently("score", tmp_path / "m", tmp_path / "a.csv")


def test_lines_below_the_table_are_no_rows(latently, tmp_path):
    table = ordinary()
    table.insert(0, "shop", [f"shop {i}" for i in range(N)])
    table.loc[N] = ["Total", *table[list("abcde")].sum()]
    notes = ["* estimated", "", "Source: our own, of 2024", ",see the yearly book,,,,"]
    (tmp_path / "a.csv").write_text(table.to_csv(index=False) + "\n".join(notes) + "\n")
    answer = latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "--json", "-o", tmp_path / "m")
    facts = json.loads(answer.out)
    assert facts["rows"] == N and facts["missing_cells"] == 0
    assert answer.err.count("line without numbers below the table") == 3
    assert "row 241 is left out: it is the sum" in answer.err
    imputed = latently("impute", tmp_path / "m", tmp_path / "a.csv", "-o", tmp_path / "b.csv")
    assert "imputed 5 cells" in imputed.err  # of the line that might be a shop
    assert "formulas" not in imputed.err  # where numbers are negative
    assert (tmp_path / "b.csv").read_text().splitlines()[-1].startswith(",see the yearly book")


def test_names_that_mean_identification(latently, tmp_path):
    table = ordinary().assign(PID=random().integers(0, 10**6, N), Humid=random().integers(30, 99, N))
    table.assign(rownames=3 * np.arange(N) + random().integers(0, 3, N)).to_csv(
        tmp_path / "a.csv", index=False
    )
    answer = latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "--json", "-o", tmp_path / "m")
    assert json.loads(answer.out)["columns"] == [*"abcde", "Humid"]


def test_one_row_is_told(latently, tmp_path):
    ordinary(1).to_csv(tmp_path / "a.csv", index=False)
    assert "a.csv' has one row" in latently("fit", tmp_path / "a.csv", code=1).err


def test_decimal_commas_beside_points_are_told(latently, tmp_path):
    table = ordinary().assign(f=[f"{value:.2f}".replace(".", ",") for value in random().random(N)])
    table.to_csv(tmp_path / "a.csv", index=False, sep=";")
    answer = latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "-o", tmp_path / "m")
    assert "column 'f' is left out" in answer.err and "--decimal ','" in answer.err
