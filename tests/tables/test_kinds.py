"""Tables with categories, ordered answers, counts and dates: guessed, used, and given back as they came."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest

import latently as library
from latently.mixture import MixedMixture
from latently.report import report
from latently.tables import TableModel

GRADES = ["low", "mid", "high"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*cells are missing"),
    pytest.mark.filterwarnings("ignore:column 'name' is left out"),
]
KINDS = {"ticket": "category", "member": "category", "grade": "ordinal", "bags": "count", "when": "date"}


def trips(n=240, seed=0):
    """Two groups of rows in columns of all kinds, with a name that tells rows apart; and the groups."""
    rng = np.random.default_rng(seed)
    z = rng.integers(2, size=n)
    table = pd.DataFrame(
        {
            "distance": rng.normal(np.where(z, 40.0, 12.0), 5.0),
            "price": rng.normal(np.where(z, 10.0, 20.0), 3.0),
            "ticket": np.where(rng.random(n) < np.where(z, 0.8, 0.1), "day", "month"),
            "member": rng.random(n) < np.where(z, 0.3, 0.8),
            "grade": np.array(GRADES)[rng.integers(0, 2, n) + z],
            "bags": rng.poisson(np.where(z, 2.5, 0.3)),
            "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.permutation(n), unit="D"),
            "name": [f"person {i}" for i in range(n)],
        }
    )
    return table, z


def with_holes(table, seed=1):
    table = table.astype({"member": object, "bags": float})
    hidden = np.random.default_rng(seed).random(table.shape) < 0.1
    hidden[:, list(table).index("name")] = False
    return table.mask(hidden), hidden


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kinds")
    holed, _ = with_holes(trips()[0])
    holed.to_csv(folder / "trips.csv", index=False)
    holed.assign(member=holed["member"].astype("boolean")).to_parquet(folder / "trips.parquet")
    return folder


@pytest.fixture(scope="module")
def model():
    return TableModel(MixedMixture(2, random_state=0), kinds={"grade": GRADES}).fit(with_holes(trips()[0])[0])


def fit_of(home, *more):
    given = ["fit", home / "trips.csv", "-m", "mixed", "-k", 2, "--kind", "grade=low,mid,high"]
    return [*given, *more, "-o", home / "model", "--force"]


# -- guesses -------------------------------------------------------------------------------------------


def test_a_table_with_text_gets_a_mixed_model_by_itself(latently, home, tmp_path):
    options = ["--budget", 4, "--kind", "grade=ordinal", "--kind", "grade=low,mid,high"]
    answer = latently("fit", home / "trips.csv", *options, "--json", "-o", tmp_path / "m")
    facts = json.loads(answer.out)
    assert facts["model"] == "mixed" and facts["kinds"] == {"distance": "number", "price": "number", **KINDS}
    assert [entry["column"] for entry in facts["left_out"]] == ["name"]
    told = "categories: 'ticket' (2 levels), 'member' (2 levels); ordered answers: 'grade' (3 levels)"
    assert told in answer.err and "counts: 'bags'; dates: 'when'; --kind NAME=KIND" in answer.err
    assert {row["family"] for row in facts["families"]} >= {"mixed mixture", "independent columns"}
    again = library.load(tmp_path / "m")
    assert again.preparation_.kinds == KINDS and again.preparation_.levels["grade"] == GRADES


def test_numbers_alone_keep_their_models(latently, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(60, 3)), columns=list("abc")).assign(visits=rng.poisson(3.0, 60))
    days = pd.date_range("2024-01-01", periods=60)
    table.assign(day=days).to_csv(tmp_path / "a.csv", index=False)
    facts = json.loads(latently("fit", tmp_path / "a.csv", "--budget", 1, "--json", "-o", tmp_path / "m").out)
    assert facts["model"] != "mixed" and "kinds" not in facts and facts["columns"] == [*"abc", "visits"]
    assert "kinds" not in json.loads((tmp_path / "m" / "description.json").read_text())


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("a", ["x", "y"] * 30, "category"),
        ("a", [True, False] * 30, "category"),
        ("a", [1, 2] * 30, "category"),
        ("a", [0, 3, 20] * 20, "count"),
        ("a", [0, 3, 21] * 20, None),
        ("a", [-1, 0, 1] * 20, None),
        ("a", ["2024-01-05", "1999-12-31"] * 30, "date"),
        ("a", ["2024-01-05 10:30", "1999-12-31"] * 30, "time"),
        ("a", pd.Categorical(["l", "m", "h"] * 20, ["l", "m", "h"], ordered=True), "ordinal"),
        ("a", [f"p{i}" for i in range(60)], "left out"),
        ("user_id", [f"p{i % 40}" for i in range(60)], "left out"),
        ("a", ["same"] * 60, "left out"),
        ("a", [f"town {i % 25}" for i in range(60)], "category"),
    ],
)
def test_kinds_follow_the_content(name, values, kind):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=60), "y": rng.normal(size=60), name: values})
    with pytest.warns(UserWarning, match="left out") if kind == "left out" else np.errstate():
        found = TableModel(MixedMixture(1)).fit(table)
    assert (name in found.columns_) == (kind != "left out")
    assert found.preparation_.kinds.get(name) == (None if kind == "left out" else kind)


def test_a_kind_given_overrules_the_guess():
    table, _ = trips()
    kinds = {"bags": "number", "grade": ["low", "mid", "high"], "ticket": "category", "price": "number"}
    found = TableModel(MixedMixture(2, random_state=0), kinds=kinds, without=["name"]).fit(table)
    assert (
        "bags" not in found.preparation_.kinds and found.preparation_.scale[found.columns_.index("bags")] != 1
    )
    assert [one.kind for one in found.estimator_.columns_][4] == "ordinal"
    rounded = table.assign(price=table["price"].round())
    found = TableModel(MixedMixture(2), kinds={"price": "ordinal"}, columns=["price", "ticket"]).fit(rounded)
    assert found.preparation_.levels["price"] == [
        f"{value:.0f}" for value in sorted(rounded["price"].unique())
    ]


@pytest.mark.parametrize(
    ("kinds", "estimator", "message"),
    [
        ({"grade": "ordinal"}, MixedMixture(), "give them from low to high: --kind grade=low,mid,high"),
        ({"grade": ["low", "high"]}, MixedMixture(), "holds 'mid', which is not among its levels"),
        ({"price": "count"}, MixedMixture(), "must hold whole numbers of at least 0 to be a count"),
        ({"ticket": "date"}, MixedMixture(), "holds no dates such as 2024-01-31"),
        ({"ticket": "number"}, MixedMixture(), "holds text"),
        ({"ticket": "colour"}, MixedMixture(), "must be 'number', 'date', 'category'"),
        ({"grade": ["low"]}, MixedMixture(), "at least two levels"),
        ({"nothing": "count"}, MixedMixture(), "no column 'nothing'"),
        ({"grade": "category"}, library.mixture.MFA(1, 1), "model mixed"),
    ],
)
def test_wrong_kinds_are_named(kinds, estimator, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        TableModel(estimator, kinds=kinds, without=["name"]).fit(trips()[0])


# -- answers in the user's table -----------------------------------------------------------------------


def test_levels_and_dates_come_back_as_they_were(model):
    holed, hidden = with_holes(trips()[0])
    filled = model.impute(holed)
    assert not filled.isna().any().any() and list(filled) == list(holed)
    assert filled["when"].dtype == holed["when"].dtype and set(filled["grade"]) <= set(GRADES)
    assert {type(value) for value in filled["member"]} == {bool}
    assert (filled["bags"] == filled["bags"].round()).all() and (filled["when"].dt.hour == 0).all()
    for j, name in enumerate(holed):
        seen = ~hidden[:, j]
        assert (filled.loc[seen, name] == holed.loc[seen, name]).all()
    drawn = model.sample(50, random_state=0)
    assert set(drawn["ticket"]) == {"day", "month"} and set(drawn["member"]) == {True, False}
    assert drawn["when"].dtype.kind == "M" and drawn["member"].dtype == bool
    assert drawn["bags"].dtype == np.int64 and (drawn["bags"] >= 0).all()
    assert np.isfinite(model.score_samples(drawn)).all()
    typed = holed.astype({"ticket": "category", "member": "boolean"})
    assert dict(model.impute(typed)[["ticket", "member"]].dtypes) == dict(typed[["ticket", "member"]].dtypes)
    twice, errors = model.impute(holed, return_std=True)
    pd.testing.assert_frame_equal(twice, filled)
    assert (errors.to_numpy() > 0).sum() == hidden.sum()


def test_densities_are_those_of_the_mixture_of_the_table(model):
    """A density in the table's units, whatever the preparation does: that of MixedMixture itself."""
    holed, _ = with_holes(trips()[0])
    columns = {"grade": GRADES, "bags": "count"}
    direct = MixedMixture(2, columns=columns, random_state=0).fit(holed.drop(columns="name"))
    np.testing.assert_allclose(
        model.score_samples(holed), direct.score_samples(holed.drop(columns="name")), rtol=1e-4
    )
    assert (model.predict(holed) == direct.predict(holed.drop(columns="name"))).mean() in (0.0, 1.0)
    z = trips()[1]
    assert max(np.mean(model.predict(holed) == z), np.mean(model.predict(holed) != z)) > 0.98


def test_the_command_line_and_python_agree(latently, home):
    latently(*fit_of(home))
    found = library.load(home / "model")
    for name in ("trips.csv", "trips.parquet"):  # other files have other types for the same cells
        scores = pd.read_csv(io.StringIO(latently("score", home / "model", home / name).out))["log_density"]
        np.testing.assert_array_equal(found.score_samples(home / "trips.csv"), scores)
    filled = pd.read_csv(io.StringIO(latently("impute", home / "model", home / "trips.csv").out), dtype=str)
    table = pd.read_csv(home / "trips.csv", dtype=str)
    assert not filled.isna().any().any() and set(filled["ticket"]) == {"day", "month"}
    assert (
        set(filled["member"]) == {"True", "False"} and filled["when"].str.fullmatch(r"\d{4}-\d\d-\d\d").all()
    )
    assert (filled.where(table.notna()) == table).where(table.notna(), True).all().all()
    drawn = pd.read_csv(io.StringIO(latently("sample", home / "model", "-n", 20).out))
    assert list(drawn) == ["component", *found.columns_]
    found.save(home / "alone.latently")
    np.testing.assert_array_equal(library.load(home / "alone.latently").predict(table), found.predict(table))


def test_large_files_are_fitted_from_disk(latently, home):
    latently(*fit_of(home))
    before = library.load(home / "model")
    latently(*fit_of(home, "--from-disk"))
    after = library.load(home / "model")
    np.testing.assert_allclose(
        after.score_samples(home / "trips.csv"), before.score_samples(home / "trips.csv"), rtol=1e-6
    )


def test_new_levels_are_told_and_left_alone(model):
    holed, _ = with_holes(trips()[0])
    new = holed.assign(ticket=holed["ticket"].where(holed.index > 3, "year"))
    with pytest.warns(UserWarning, match="'ticket': 4 cells that hold levels that the fit has not seen"):
        filled = model.impute(new)
    assert (filled["ticket"][:4] == "year").all()
    with pytest.warns(UserWarning, match="not seen"):
        scores = model.score_samples(new)
    np.testing.assert_array_equal(
        scores, model.score_samples(holed.assign(ticket=holed["ticket"].where(holed.index > 3)))
    )


def test_held_out_rows_may_have_levels_of_their_own(latently, tmp_path):
    table, _ = trips()
    table["ticket"] = [f"only here {i}" if i % 40 == 0 else text for i, text in enumerate(table["ticket"])]
    table.drop(columns="name").to_csv(tmp_path / "a.csv", index=False)
    latently("fit", tmp_path / "a.csv", "-m", "mixed", "-k", 2, "--hold-out", 0.5, "-o", tmp_path / "m")
    found = library.load(tmp_path / "m")
    assert len(found.preparation_.held_out) == 120 and 2 < len(found.preparation_.levels["ticket"]) < 8


def test_a_changed_level_of_a_description_is_named(latently, home):
    latently(*fit_of(home))
    path = home / "model" / "description.json"
    path.write_text(path.read_text().replace('"month"', '"year"'))
    assert "'levels' was changed" in latently("predict", home / "model", home / "trips.csv", code=1).err


# -- the report ----------------------------------------------------------------------------------------


def words_of(page, section):
    text = page[page.index(f'<section id="{section}"') :]
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", text[: text.index("</section>")]))


def test_the_report_shows_levels_as_bars_beside_means(latently, home):
    latently(*fit_of(home))
    latently("report", home / "model", home / "trips.csv", "--bootstrap", 3)
    page = (home / "model" / "report.html").read_text()
    found, table = library.load(home / "model"), pd.read_csv(home / "trips.csv")
    told = words_of(page, "columns")
    weights = found.predict_proba(table)
    day = (table["ticket"] == "day").to_numpy()
    seen = table["ticket"].notna().to_numpy()
    for k in range(2):  # shares of levels by responsibility, and means in the table's units
        share = 100 * weights[day, k].sum() / weights[seen, k].sum()
        assert f"{share:.1f}".removesuffix(".0") + " %" in told
        here = table["distance"].notna()
        mean = np.average(table["distance"][here], weights=weights[here, k])
        assert f"{mean:.2f}"[:4] in told
    assert "2024-0" in words_of(page, "data") and "days" in told
    assert "ticket = " in words_of(page, "profiles") and '"levels":["day","month"]' in page
    assert "--kind grade=low,mid,high" in page
    told = words_of(page, "intervals")
    assert "ticket = day" in told and "means 0 when 2024-0" in told


def test_a_report_takes_the_table_of_a_mixed_mixture():
    table, _ = with_holes(trips()[0])
    table = table.drop(columns="name")
    model = MixedMixture(2, columns={"grade": GRADES}, random_state=0).fit(table)
    page = report(model, table).html
    whole = TableModel(MixedMixture(2, random_state=0), kinds={"grade": GRADES}).fit(table)
    assert "month" in words_of(page, "columns") and "2024-" in words_of(page, "columns")
    rows = whole.preparation_.to_frame(np.zeros((3, 7)))
    given = {"feature_names": whole.columns_, "columns": whole.preparation_.levels}
    assert "month" in report(whole.estimator_, rows, **given).html
    with pytest.raises(ValueError, match="stand for none of its 2 levels"):
        report(whole.estimator_, rows + 5.0, **given)


def test_spellings_of_numbers_and_truth_are_one_level(tmp_path):
    """Files write the same cell in several ways: True, true and TRUE, 1 and 1.0."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=60), "y": rng.normal(size=60), "member": rng.random(60) < 0.5})
    table["code"] = np.where(table["member"], 1, 0)
    found = TableModel(MixedMixture(2, random_state=0), as_is=["*"]).fit(table)
    texts = table.assign(
        member=np.where(table["member"], "TRUE", "false"), code=[f"{value}.0" for value in table["code"]]
    )
    texts.to_csv(tmp_path / "a.csv", index=False)
    np.testing.assert_array_equal(found.score_samples(texts), found.score_samples(table))
    np.testing.assert_array_equal(found.predict(tmp_path / "a.csv"), found.predict(table))
