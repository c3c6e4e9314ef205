"""Grids of which only the leaders are fitted fully: the winner is that of fitting everything."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from latently.mixture import MFA, GaussianMixture
from latently.selection import CRITERIA, select
from latently.selection.leaders import is_worthwhile, levels
from latently.selection.nesting import is_nested

GRID = {"n_components": range(1, 4), "covariance_type": ["full", "tied", "diag"]}


@pytest.fixture(scope="module")
def X():
    return load_iris().data


@pytest.fixture(scope="module")
def quick(X):
    return select(GaussianMixture(), X, GRID, random_state=0)


def test_the_winner_is_that_of_the_exhaustive_search(X, quick):
    thorough = select(GaussianMixture(), X, GRID, random_state=0, exhaustive=True)
    assert quick.best_params_ == thorough.best_params_
    assert quick.best_score_ <= thorough.best_score_ + 0.01 * 2 * len(X)  # as close as default fits are
    assert not thorough.table_["brief"].any()


def test_only_models_that_cannot_win_are_fitted_briefly(X, quick):
    table = quick.table_
    assert table["brief"].sum() > len(table) / 2
    complete = table[~table["brief"]]
    assert quick.best_score_ == complete["bic"].min()
    assert table.loc[table["brief"], "bic"].min() > quick.best_score_
    assert complete["converged"].all()
    assert quick.best_.n_init == "auto" and quick.best_.tol == GaussianMixture().tol


def test_the_result_does_not_depend_on_the_number_of_jobs(X, quick):
    again = select(GaussianMixture(), X, GRID, random_state=0, n_jobs=2)
    np.testing.assert_array_equal(again.table_["bic"], quick.table_["bic"])
    assert (again.table_["brief"] == quick.table_["brief"]).all()


def test_weights_are_rows(X):
    weight = np.where(np.arange(len(X)) % 3, 1, 2)
    weighted = select(GaussianMixture(), X, GRID, random_state=0, sample_weight=weight)
    twice = select(GaussianMixture(), np.repeat(X, weight, axis=0), GRID, random_state=0)
    assert weighted.best_params_ == twice.best_params_
    assert weighted.best_score_ == pytest.approx(twice.best_score_, rel=1e-4)


def test_a_cell_that_fails_leaves_the_others_alone(X):
    grid = {"n_components": [1, 2], "n_factors": [1, 2, 3, 9]}
    found = select(MFA(), X, grid, random_state=0)
    failed = found.table_["n_factors"] == 9
    assert (found.table_["error"][failed] != "").all() and (found.table_["error"][~failed] == "").all()
    assert not failed[found.table_["rank"].idxmin()]


def test_levels_go_up():
    own = GaussianMixture().get_params()
    complete = [
        {**own, "n_components": K, "covariance_type": kind} for K in (3, 1, 2) for kind in ("full", "diag")
    ]
    waves, nested = levels(complete)
    assert sorted(cell for wave in waves for cell in wave) == list(range(6))
    at = {cell: number for number, wave in enumerate(waves) for cell in wave}
    for cell in range(6):
        assert nested[cell] == [one for one in range(6) if is_nested(complete[one], complete[cell])]
        assert all(at[one] < at[cell] for one in nested[cell])


@pytest.mark.parametrize(
    "changes, criterion, rows, expected",
    [
        ({}, "bic", np.ones((9, 2)), True),
        ({}, "log_likelihood", np.ones((9, 2)), False),
        ({"n_init": 3}, "bic", np.ones((9, 2)), False),
        ({"means_init": np.ones((2, 2))}, "bic", np.ones((9, 2)), False),
        ({"batch_size": 4}, "bic", np.ones((9, 2)), False),
        ({}, "bic", "rows.npy", False),
    ],
)
def test_when_brief_fits_are_worthwhile(changes, criterion, rows, expected):
    complete = [{**GaussianMixture(K).get_params(), **changes} for K in range(1, 8)]
    assert is_worthwhile(complete, CRITERIA[criterion], rows) == expected
    assert not is_worthwhile(complete[:3], CRITERIA[criterion], rows)
