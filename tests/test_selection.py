"""The search over the parameters of a mixture, against fits and folds written out by hand."""

import base64
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, LeaveOneOut, StratifiedKFold

from latently.estimators.weights import weights_in_rows
from latently.mixture import MCFA, MFA, MPPCA, PPCA, GaussianMixture
from latently.selection import CRITERIA, Selection, select
from latently.selection.nesting import is_nested, start_from
from latently.supervised import MJFAClassifier

GRID = {"n_components": [1, 2, 3], "n_factors": [1, 2]}
ROOT = Path(__file__).resolve().parents[1]


def groups(n=90, D=5, seed=0):
    """Two clouds of different shape."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, D)) + 0.3 * rng.normal(size=(n, D))
    X[: n // 3] = 6 + 0.5 * rng.normal(size=(n // 3, D))
    return X


@pytest.fixture(scope="module")
def X():
    return groups()


@pytest.fixture(scope="module")
def found(X):
    return select(MFA(n_init=1, tol=1e-4), X, GRID, random_state=0, n_jobs=1)


def without_time(selection):
    return selection.table_.drop(columns="seconds")


# -- the numbers -----------------------------------------------------------------------------------------


def test_the_table_is_that_of_fits_one_by_one(X, found):
    for row in found.table_.to_dict("records"):
        model = MFA(row["n_components"], row["n_factors"], n_init=1, tol=1e-4, random_state=0).fit(X)
        expected = {
            "log_likelihood": model.score(X),
            "n_parameters": model.n_parameters(),
            "bic": model.bic(X),
            "aic": model.aic(X),
            "icl": model.icl(X),
            "n_iter": model.n_iter_,
            "converged": model.converged_,
        }
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert len(found.table_) == 6 and (found.table_["error"] == "").all()


@pytest.mark.parametrize("criterion", ["bic", "aic", "icl"])
def test_the_best_has_the_lowest_criterion(X, criterion):
    found = select(MFA(n_init=1, tol=1e-4), X, GRID, criterion, random_state=0, n_jobs=1)
    row = found.table_.loc[found.table_[criterion].idxmin()]
    assert row["rank"] == 1
    assert found.best_score_ == row[criterion] == pytest.approx(getattr(found.best_, criterion)(X))
    assert found.best_params_ == {name: row[name] for name in GRID}
    assert {name: found.best_.get_params()[name] for name in GRID} == found.best_params_
    order = found.table_.sort_values("rank")[criterion].to_numpy()
    assert (np.diff(order) >= 0).all()


def test_held_out_scores_are_those_of_a_loop_over_folds(X):
    few = {"n_init": 1, "tol": 1e-3}
    found = select(MFA(**few), X, GRID, "log_likelihood", cv=4, random_state=3, n_jobs=1)
    folds = list(KFold(4, shuffle=True, random_state=3).split(X))
    for row in found.table_.to_dict("records"):
        model = MFA(row["n_components"], row["n_factors"], **few, random_state=3)
        scores = [model.fit(X[fitted]).score(X[others]) for fitted, others in folds]
        assert row["held_out_log_likelihood"] == pytest.approx(np.mean(scores), rel=1e-10)
        assert row["held_out_standard_error"] == pytest.approx(np.std(scores, ddof=1) / 2, rel=1e-8)
    best = found.table_["held_out_log_likelihood"].idxmax()
    assert found.table_["rank"][best] == 1 and found.best_ is found.estimators_[best]
    assert found.best_.score(X) == pytest.approx(found.table_["log_likelihood"][best])  # fitted to all rows


def test_splitters_of_scikit_learn_are_taken(X):
    few = X[::6]
    folds = select(PPCA(), few, {"n_factors": [1, 2]}, "log_likelihood", cv=LeaveOneOut(), n_jobs=1)
    scores = [PPCA(1).fit(np.delete(few, i, 0)).score(few[[i]]) for i in range(len(few))]
    assert folds.table_["held_out_log_likelihood"][0] == pytest.approx(np.mean(scores))
    assert folds.table_["held_out_standard_error"][0] > 0


def test_a_row_of_weight_two_counts_as_two_rows(X):
    weight = np.where(np.arange(len(X)) % 3 == 0, 2.0, 1.0)
    twice = np.repeat(X, weight.astype(int), axis=0)
    grid = {"n_components": [1, 2]}
    weighted = select(MFA(n_init=1, tol=1e-4), X, grid, sample_weight=weight, random_state=0, n_jobs=1).table_
    repeated = select(MFA(n_init=1, tol=1e-4), twice, grid, random_state=0, n_jobs=1).table_
    for name in ("log_likelihood", "bic", "aic", "icl"):
        np.testing.assert_allclose(weighted[name], repeated[name], rtol=1e-6)


def test_weights_count_in_held_out_scores(X):
    weight = np.where(np.arange(len(X)) % 2 == 0, 1.0, 3.0)
    found = select(
        PPCA(), X, {"n_factors": [1]}, "log_likelihood", cv=KFold(3), sample_weight=weight, n_jobs=1
    )
    scores = [
        PPCA(1).fit(X[a], sample_weight=weight[a]).score(X[b], sample_weight=weight[b])
        for a, b in KFold(3).split(X)
    ]
    assert found.table_["held_out_log_likelihood"][0] == pytest.approx(np.mean(scores))


# -- where and how it runs -------------------------------------------------------------------------------


SAME_WHATEVER_N_JOBS = """
import sys, joblib, numpy as np
from latently.mixture import MFA
from latently.selection import select
from tests.test_selection import groups, without_time
X = groups(600, 20)  # more than one block of rows, were there threads
run = lambda n_jobs: select(MFA(n_init=1, tol=1e-4), X, grid, random_state=0, n_jobs=n_jobs)
grid = {"n_components": [1, 2]}
alone = run(1)
for backend in sys.argv[1:]:
    with joblib.parallel_config(backend):
        together = run(2)
    same = [np.array_equal(a.loadings_, b.loadings_) for a, b in zip(alone.estimators_, together.estimators_)]
    print(backend, without_time(alone).equals(without_time(together)) and all(same))
"""


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_the_result_does_not_depend_on_the_number_of_jobs(backend):
    # a process of its own, because with one thread, as tests may run, there is nothing to see
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    result = subprocess.run(
        [sys.executable, "-c", SAME_WHATEVER_N_JOBS, backend],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=Path(__file__).parents[1],
    )
    assert result.stdout.split("\n")[0] == f"{backend} True"


def test_what_is_left_after_a_second_runs_in_other_processes(X, found, monkeypatch):
    monkeypatch.setattr("latently.selection.search._QUICK", 0.0)
    monkeypatch.setattr("latently.selection.search.row_threads", lambda: 2)
    asked = []
    parallel = joblib.Parallel
    monkeypatch.setattr(
        "latently.selection.search.Parallel",
        lambda n_jobs, **options: asked.append(n_jobs) or parallel(1, **options),
    )
    together = select(MFA(n_init=1, tol=1e-4), X, GRID, random_state=0)
    assert asked == [2]
    pd.testing.assert_frame_equal(without_time(found), without_time(together), check_exact=True)


def test_seeds(X):
    grid = {"n_components": [3]}
    first, again = (
        select(MFA(init="random", n_init=1, tol=1e-4), X, grid, random_state=5, n_jobs=1) for _ in "ab"
    )
    assert first.best_.random_state == 5
    assert np.array_equal(first.best_.means_, again.best_.means_)
    own = select(MFA(init="random", n_init=1, tol=1e-4, random_state=1), X, grid, random_state=5, n_jobs=1)
    assert own.best_.random_state == 1
    by_grid = select(MFA(n_init=1, tol=1e-4), X, {"random_state": [7, 8]}, random_state=5, n_jobs=1)
    assert [model.random_state for model in by_grid.estimators_] == [7, 8]
    np.random.seed(0)  # noqa: NPY002 -- None means this generator, as everywhere in scikit-learn
    drawn = select(MFA(n_init=1, tol=1e-4), X, grid, n_jobs=1).best_.random_state
    np.random.seed(0)  # noqa: NPY002
    assert drawn == select(MFA(n_init=1, tol=1e-4), X, grid, n_jobs=1).best_.random_state


def test_the_estimator_stays_as_it_was(X):
    estimator = MFA(n_init=1, tol=1e-4)
    before = estimator.get_params()
    select(estimator, X, {"n_components": [2]}, n_jobs=1)
    assert estimator.get_params() == before and not hasattr(estimator, "means_")


@pytest.mark.parametrize("form", ["frame", "list", "float32", "holes", "path"])
def test_data_of_all_kinds(X, found, form, tmp_path):
    data = {
        "frame": lambda: pd.DataFrame(X, columns=list("abcde")),
        "list": lambda: X.tolist(),
        "float32": lambda: X.astype(np.float32),
        "holes": lambda: np.where(np.random.default_rng(0).random(X.shape) < 0.05, np.nan, X),
        "path": lambda: _saved(X, tmp_path / "rows.npy"),
    }[form]()
    criterion = "bic" if form == "path" else "log_likelihood"
    grid = {"n_components": [1, 2], "n_factors": [1, 2]}
    result = select(MFA(n_init=1, tol=1e-4), data, grid, criterion, cv=3, random_state=0, n_jobs=1)
    assert result.best_params_["n_components"] == 2
    if form in ("frame", "list", "path"):
        np.testing.assert_allclose(result.table_["bic"], found.table_["bic"][:4], rtol=1e-6)
    if form == "frame":
        assert list(result.best_.feature_names_in_) == list("abcde")


def _saved(X, path):
    np.save(path, X)
    return str(path)


def test_progress_is_shown(X, capsys):
    select(PPCA(), X, {"n_factors": [1, 2]}, n_jobs=1, verbose=1)
    assert "PPCA" in capsys.readouterr().out


# -- poor optima -----------------------------------------------------------------------------------------


class PoorAtThree(MFA):
    """Of three components, takes the first random partition for the optimum, unless told where to start."""

    def fit(self, X, y=None, sample_weight=None):
        if self.n_components != 3 or self.means_init is not None:
            return super().fit(X, y, sample_weight)
        params = self.get_params()
        self.set_params(max_iter=0, tol=0, n_init=1, init="random")
        super().fit(X, y, sample_weight)
        return self.set_params(**params)


@pytest.mark.parametrize("criterion", ["bic", "log_likelihood"])
def test_a_poor_optimum_is_mended_from_a_nested_model(X, criterion):
    options = {"criterion": criterion, "cv": 3, "random_state": 0, "n_jobs": 1}
    poor = select(PoorAtThree(n_init=1, tol=1e-4), X, GRID, warm_starts=False, **options).table_
    mended = select(PoorAtThree(n_init=1, tol=1e-4), X, GRID, **options)
    table = mended.table_
    at_three = table["n_components"] == 3
    assert (poor["log_likelihood"][4:].to_numpy() < poor["log_likelihood"][2:4].to_numpy() - 1).all()
    assert (table["refits"][at_three] > 0).all() and (poor["refits"] == 0).all()
    assert (table["started_from"][at_three] != "").all() and (table["started_from"][~at_three] == "").all()
    for q in (1, 2):
        by_size = table[table["n_factors"] == q].set_index("n_components")["log_likelihood"]
        assert by_size[3] >= by_size[2] - 1e-4
    if criterion == "log_likelihood":
        column = "held_out_log_likelihood"
        assert (table[column][at_three] > poor[column][at_three] + 1).all()
    assert all(model.means_init is None for model in mended.estimators_)
    assert "restarted from a smaller model" in repr(mended)


class PoorWithSeedZero(GaussianMixture):
    def fit(self, X, y=None, sample_weight=None):
        poor = self.random_state == 0 and self.covariance_type == "full"
        params = self.get_params()
        if poor:
            self.set_params(max_iter=0, tol=0, init="random")
        super().fit(X, y, sample_weight)
        return self.set_params(**params)


def test_another_seed_where_there_is_no_way_from_the_nested_model(X):
    grid = {"covariance_type": ["full", "spherical"]}
    table = select(PoorWithSeedZero(3, n_init=1), X, grid, random_state=0, n_jobs=1).table_
    assert table["started_from"].tolist() == ["random_state=1", ""]
    assert table["log_likelihood"][0] > table["log_likelihood"][1]


@pytest.mark.parametrize(
    ("smaller", "larger", "nested"),
    [
        ({"n_components": 1, "n_factors": 2}, {"n_components": 2, "n_factors": 2}, True),
        ({"n_components": 1, "n_factors": 2}, {"n_components": 2, "n_factors": 3}, True),
        ({"n_components": 1, "n_factors": 2}, {"n_components": 2, "n_factors": 1}, False),
        ({"n_components": 2, "n_factors": 2}, {"n_components": 2, "n_factors": 2}, False),
        ({"shared_noise": True}, {"shared_noise": False}, True),
        ({"shared_noise": False}, {"shared_noise": True}, False),
        ({"covariance_type": "tied"}, {"covariance_type": "full"}, True),
        ({"covariance_type": "spherical"}, {"covariance_type": "tied"}, False),
        ({"n_components": 1, "tol": 1e-3}, {"n_components": 2, "tol": 1e-6}, False),
        ({"n_components": 1, "means_init": np.ones(2)}, {"n_components": 2, "means_init": np.ones(2)}, True),
    ],
)
def test_nesting(smaller, larger, nested):
    assert is_nested(smaller, larger) is nested


@pytest.mark.parametrize(
    ("model", "larger"),
    [
        (MFA(2, 1), MFA(4, 3)),
        (MFA(2, 1, shared_noise=True), MFA(2, 1)),
        (MPPCA(2, 1), MPPCA(4, 1)),
        (MCFA(2, 1), MCFA(4, 2)),
        *((GaussianMixture(2, covariance_type=c), GaussianMixture(4, covariance_type=c))
          for c in ("full", "tied", "diag", "spherical")),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.get_params().get('covariance_type', '')}",
)  # fmt: skip
def test_a_larger_model_starts_where_a_smaller_ended(X, model, larger, monkeypatch):
    labels = (np.arange(len(X)) >= len(X) // 3).astype(int)  # the second component is the larger
    model.set_params(random_state=0).fit(X, labels)
    start = start_from(model, larger.get_params(), np.random.default_rng(0))
    assert larger.set_params(**start).fit(X).score(X) >= model.score(X) - 1e-6
    # without the small steps that let EM begin, it is the same density
    monkeypatch.setattr("latently.selection.nesting._APART", 0.0)
    monkeypatch.setattr("latently.selection.nesting._SHORT", 0.0)
    start = start_from(model, larger.get_params(), np.random.default_rng(0))
    larger.set_params(max_iter=0, tol=0, **start).fit(X)
    np.testing.assert_allclose(larger.score_samples(X), model.score_samples(X), rtol=1e-8)


# -- failures and warnings -------------------------------------------------------------------------------


def test_a_cell_that_fails_leaves_the_others_alone(X):
    found = select(MFA(n_init=1, tol=1e-4), X, {"n_factors": [1, 9, 2]}, random_state=0, n_jobs=1)
    table = found.table_
    assert table["error"].str.contains("n_factors").tolist() == [False, True, False]
    assert table["rank"].isna().tolist() == [False, True, False]
    assert found.estimators_[1] is None and "1 failed" in repr(found)
    assert np.isnan(table["bic"][1]) and not table["bic"][[0, 2]].isna().any()
    assert 'class="failed"' in found.to_html()


def test_a_cell_that_fails_in_one_fold_has_no_rank(X):
    few = X[:9]
    found = select(MFA(), few, {"n_components": [1, 8]}, "log_likelihood", cv=KFold(3), n_jobs=1)
    assert "n_samples=6" in found.table_["error"][1]
    assert found.table_["rank"].isna().tolist() == [False, True]


def test_all_cells_failing_is_an_error_that_says_why(X):
    with pytest.raises(ValueError, match=r"n_factors=8: ValueError: .*n_factors"):
        select(MFA(), X, {"n_factors": [8, 9]}, n_jobs=1)


@pytest.mark.parametrize("n_jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_warnings_of_fits_become_one(X, n_jobs):
    with pytest.warns(ConvergenceWarning, match=r"4 x MFA did not converge in max_iter=1 ") as caught:
        found = select(
            MFA(max_iter=1, n_init=1, tol=1e-4),
            X,
            {"n_factors": [1, 2], "shared_noise": [True, False]},
            n_jobs=n_jobs,
        )
    assert len(caught) == 1 and caught[0].filename == __file__
    assert not found.table_["converged"].any() and "4 did not converge" in repr(found)


def test_warnings_of_several_kinds_are_listed(X):
    flat = np.column_stack([X, np.ones(len(X))])
    with pytest.warns(UserWarning, match="constant features") as caught:
        select(MFA(max_iter=1, n_init=1, tol=1e-4), flat, {"n_components": [1, 2]}, n_jobs=1)
    assert len(caught) == 1 and "did not converge" in str(caught[0].message)


# -- bad arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"criterion": "bick"}, "criterion must be one of 'bic'"),
        ({"grid": {}}, "grid is empty"),
        ({"grid": []}, "grid is empty"),
        ({"grid": {"n_components": []}}, "grid must be a dict"),
        ({"grid": {"n_components": 3}}, "grid must be a dict"),
        ({"grid": 3}, "grid must be a dict"),
        (
            {"grid": {"n_clusters": [2]}},
            "'n_clusters', which MFA does not have; its parameters are accelerate",
        ),
        ({"grid": {"checkpoint": ["a"]}}, "checkpoint"),
        ({"estimator": MFA(checkpoint="a")}, "checkpoint"),
        ({"n_jobs": 0}, "n_jobs must be None"),
        ({"n_jobs": 1.5}, "n_jobs must be None"),
        ({"n_jobs": True}, "n_jobs must be None"),
        ({"criterion": "log_likelihood", "cv": 1}, "cv must be an integer of at least 2"),
        ({"random_state": "a"}, "random_state must be"),
        ({"warm_starts": "all"}, "warm_starts must be True or False"),
        ({"verbose": "yes"}, "verbose must be an integer"),
        ({"sample_weight": [1.0]}, "sample_weight must have one entry per row"),
    ],
)
def test_bad_arguments(X, changes, message):
    with pytest.raises(ValueError, match=message):
        select(**{"estimator": MFA(), "X": X, "grid": GRID, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"estimator": MFA}, r"write MFA\(\)"),
        ({"estimator": KFold()}, "estimator must be a mixture, such as MFA"),
        ({"X": "rows.npy", "criterion": "log_likelihood"}, "give an array or a data frame"),
        ({"X": "rows.npy", "sample_weight": [1.0]}, "sample_weight needs X in memory"),
    ],
)
def test_arguments_of_a_wrong_type(X, changes, message):
    with pytest.raises(TypeError, match=message):
        select(**{"estimator": MFA(), "X": X, "grid": GRID, **changes})


def test_without_pandas_nothing_begins():
    program = (
        "import sys; sys.modules['pandas'] = None\n"
        "from latently.selection import select\n"
        "from latently.mixture import MFA\n"
        "try: select(MFA(), None, None)\n"
        "except ImportError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'latently[csv]'" in result.stdout


# -- tables, pages, pictures -----------------------------------------------------------------------------


def test_a_list_of_grids_shows_the_values_of_all_parameters(X):
    grid = [{"n_components": [1]}, {"n_components": [2], "shared_noise": [True]}]
    found = select(MFA(n_init=1, tol=1e-4), X, grid, n_jobs=1)
    assert found.table_["shared_noise"].tolist() == [False, True]
    assert found.best_params_ in ({"n_components": 1}, {"n_components": 2, "shared_noise": True})


def test_of_equals_the_smaller_is_best():
    table = pd.DataFrame(
        {
            "n_components": [2, 1, 3],
            "log_likelihood": 0.0,
            "n_parameters": [9, 5, 12],
            "bic": [1.0, 1.0, 0.5],
            "degenerate": 0,
            "error": ["", "", "broken"],
        }
    )
    found = Selection("bic", table, [{"n_components": k} for k in (2, 1, 3)], ["two", "one", None])
    assert found.best_ == "one" and found.table_["rank"].tolist()[:2] == [2, 1]


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_needs_nothing_but_itself(found, tmp_path):
    page = found.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    parsed = Tags(page)
    assert not parsed.open  # every tag is closed
    sources = [attrs[name] for _, attrs in parsed.tags for name in ("src", "href") if name in attrs]
    assert len(sources) == 1 and sources[0].startswith("data:image/svg+xml;base64,")
    assert b"<svg" in base64.b64decode(sources[0].partition(",")[2])
    assert "http" not in re.sub(r"base64,[^\"]*", "", page) and not {"script", "link"} & {
        t for t, _ in parsed.tags
    }
    rows = re.findall(r"<tr( class=\"best\")?><td>(\d+)</td>", page)
    assert rows == [(' class="best"' if i == 1 else "", str(i)) for i in range(1, 7)]
    assert "prefers-color-scheme: dark" in page


def test_pages_escape_what_they_show(X):
    bad = "<script>alert(1)</script>"
    found = select(MFA(n_init=1, tol=1e-4), X, {"init": [bad, "kmeans"]}, n_jobs=1)
    for page in (found.to_html(), found._repr_html_()):
        assert bad not in page and "&lt;script&gt;" in page


def test_heat_map_shows_what_cells_lack_to_the_best(found):
    ax = Figure().subplots()
    display = found.plot(ax)
    assert display.axes_ == [ax] and display.figure_ is ax.figure
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("n_components", "n_factors")
    expected = found.table_.pivot(index="n_factors", columns="n_components", values="bic").to_numpy()
    np.testing.assert_array_equal(display.groups[""], expected)
    np.testing.assert_allclose(ax.images[0].get_array(), expected - expected.min())
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "2", "3"]
    i, j = np.unravel_index(np.argmin(expected), expected.shape)
    assert {patch.get_xy() for patch in ax.patches} == {(j - 0.5, i - 0.5)}
    assert "lower is better" in ax.figure.get_suptitle()
    assert len(ax.figure.axes) == 2  # the other is the colour bar


def test_one_heat_map_for_each_value_of_a_third_parameter(X):
    grid = {**GRID, "shared_noise": [False, True], "n_components": [1, 2]}
    found = select(MFA(n_init=1, tol=1e-4), X, grid, n_jobs=1, random_state=0)
    figure = Figure()
    axes = figure.subplots(1, 2)
    display = found.plot(axes)
    assert [ax.get_title() for ax in axes] == ["shared_noise = False", "shared_noise = True"]
    assert sum(len(ax.patches) > 0 for ax in axes) == 1  # the best cell is in one of them
    assert list(display.groups) == ["shared_noise = False", "shared_noise = True"]
    with pytest.raises(ValueError, match="ax must be 2 axes"):
        found.plot(figure.subplots())


def test_curves_for_one_number(X):
    grid = {"n_components": [1, 2, 3], "covariance_type": ["tied", "diag"]}
    found = select(
        GaussianMixture(n_init=1, tol=1e-4), X, grid, "log_likelihood", cv=3, n_jobs=1, random_state=0
    )
    ax = Figure().subplots()
    display = found.plot(ax)
    assert display.y_name is None and ax.get_xlabel() == "n_components"
    assert "higher is better" in ax.get_ylabel()
    for container, kind in zip(ax.containers, ("tied", "diag"), strict=True):
        rows = found.table_[found.table_["covariance_type"] == kind]
        x, y = container.lines[0].get_data()
        assert x.tolist() == [1, 2, 3] and np.array_equal(y, rows["held_out_log_likelihood"])
        assert container.get_label() == f"covariance_type = {kind}" and container.has_yerr
    assert ax.lines[-1].get_data()[1] == found.best_score_


def test_a_new_figure_is_made_where_no_axes_are_given(found):
    from matplotlib import pyplot

    figure = found.plot().figure_
    assert pyplot.fignum_exists(figure.number)
    pyplot.close(figure)


def test_cells_that_are_not_there_are_gaps(X):
    grid = [{"n_components": [1, 2], "n_factors": [1]}, {"n_components": [1], "n_factors": [2, 9]}]
    display = select(MFA(n_init=1, tol=1e-4), X, grid, n_jobs=1).plot(Figure().subplots())
    assert display.x_values == [1, 2] and display.y_values == [1, 2]  # nine factors failed
    assert np.isnan(display.groups[""]).tolist() == [[False, False], [False, True]]


# -- the table of criteria -------------------------------------------------------------------------------


def test_documentation_lists_every_criterion_and_no_other():
    [choices] = re.findall(r"criterion : \{(.*?)\}", select.__doc__)
    assert choices.replace('"', "").split(", ") == list(CRITERIA)
    page = (ROOT / "docs" / "selection.md").read_text(encoding="utf-8")
    rows = re.findall(r'^\| `"(\w+)"` \|.*\| (\w+) \|$', page, re.M)
    assert rows == [(name, kind.direction.split()[0]) for name, kind in CRITERIA.items()]


def test_the_command_line_lists_every_criterion(capsys):
    from latently.cli import main

    main(["select", "--help"])
    text = capsys.readouterr().out
    assert [name for name in CRITERIA if f"{name}:" not in text] == []


def test_criteria_are_known_without_anything_large():
    program = (
        "import sys\nfrom latently.selection import CRITERIA\n"
        "print(*{'numpy', 'sklearn', 'pandas', 'scipy'} & sys.modules.keys(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


# -- log loss -----------------------------------------------------------------------------------------------


def labelled_rows():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    X = rng.normal(size=(60, 3))
    X[:, 0] += 2.5 * y
    return X, y


def test_classifiers_are_chosen_by_the_log_loss_of_held_out_rows():
    X, y = labelled_rows()
    some = np.where(np.arange(60) % 6 == 0, -1, y)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 60)
    weight = weights_in_rows(weight, 60)  # parts of rows keep the unit of all
    model = MJFAClassifier(tol=1e-4, n_init=1, temperature=None)
    cv = StratifiedKFold(3)
    settings = {"criterion": "log_loss", "cv": cv, "random_state": 0, "n_jobs": 1}
    found = select(model, X, {"n_factors": [1, 2]}, y=some, sample_weight=weight, **settings)
    known = np.flatnonzero(some >= 0)
    losses = []
    for seen, others in cv.split(known, y[known]):
        seen = np.union1d(known[seen], np.flatnonzero(some < 0))  # unlabelled rows are never held out
        fit = clone(model).set_params(n_factors=1, random_state=0).fit(X[seen], some[seen], weight[seen])
        others = known[others]
        own = fit.predict_proba(X[others])[np.arange(len(others)), y[others]]
        losses.append(np.average(-np.log(own), weights=weight[others]))
    assert found.table_["held_out_log_loss"][0] == pytest.approx(np.mean(losses), rel=1e-9)
    assert found.best_score_ == found.table_["held_out_log_loss"].min()
    assert found.best_.classes_.tolist() == [0, 1]


def test_labels_belong_to_the_log_loss():
    X, y = labelled_rows()
    with pytest.raises(ValueError, match="requires y"):
        select(MJFAClassifier(), X, {"n_factors": [1]}, criterion="log_loss")
    with pytest.raises(ValueError, match="y is used by criterion='log_loss' only"):
        select(GaussianMixture(), X, {"n_components": [1]}, y=y)
    with pytest.raises(TypeError, match="be a classifier"):
        select(GaussianMixture(), X, {"n_components": [1]}, criterion="log_loss", y=y)
    with pytest.raises(ValueError, match="smallest class has 30 rows, too few for cv=31"):
        select(MJFAClassifier(), X, {"n_factors": [1]}, criterion="log_loss", y=y, cv=31)


# -- pipelines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["bic", "log_likelihood"])
def test_the_last_step_of_a_pipeline_is_selected(criterion):
    from sklearn.datasets import load_wine
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X = load_wine().data
    settings = {"criterion": criterion, "cv": 2, "n_jobs": 1, "random_state": 0}
    pipeline = make_pipeline(StandardScaler(), MFA(tol=1e-3, max_iter=20, n_init=1))
    found = select(pipeline, X, {"mfa__n_components": [1, 2], "mfa__n_factors": [1, 2]}, **settings)
    alone = select(
        MFA(tol=1e-3, max_iter=20, n_init=1),
        StandardScaler().fit_transform(X),
        {"n_components": [1, 2], "n_factors": [1, 2]},
        **settings,
    )
    assert found.best_params_ == {f"mfa__{name}": value for name, value in alone.best_params_.items()}
    assert found.best_score_ == alone.best_score_ and list(found.table_["rank"]) == list(alone.table_["rank"])
    rows = StandardScaler().fit(X).transform(X)
    np.testing.assert_array_equal(found.best_.predict(X), alone.best_.predict(rows))
    assert found.best_[0].n_features_in_ == 13 and not hasattr(pipeline[0], "mean_")
    assert "mfa__n_components" in repr(found) and "<table" in found._repr_html_()
    with pytest.raises(ValueError, match=r"of its last step only, .* not standardscaler__with_std"):
        select(pipeline, X, {"standardscaler__with_std": [True, False]}, **settings)


def test_sparse_rows_are_refused_with_the_cure():
    from scipy.sparse import csr_array

    with pytest.raises(TypeError, match="toarray"):
        MFA(1, 1).fit(csr_array(np.eye(5)))
