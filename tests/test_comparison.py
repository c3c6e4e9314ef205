"""Families compared: the right one wins, held-out rows check it, and a misfit is named."""

import numpy as np
import pytest

from latently.mixture import MFA, GaussianMixture
from latently.selection import calibration, compare
from latently.selection.families import Cell, Family


def clusters(n, seed=0):
    """Three round clusters in two dimensions."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) + 8 * np.array([[0, 0], [1, 0], [0, 1]])[rng.integers(3, size=n)]


def test_the_right_family_and_size_win():
    told = []
    found = compare(clusters(400), budget=60, n_bootstrap=2, progress=lambda *done: told.append(done))
    assert found.best_params_ == {"n_components": 3} and found.best_name_ == "spherical Gaussian mixture"
    assert found.table_["bic"].is_monotonic_increasing and "is " in found.verdict_
    assert found.table_["stability"][0] > 0.95
    assert len(told) == found.table_["n_fits"].sum()
    assert "Held-out rows agree" in found.verdict_ and "The model fits" in found.verdict_
    assert "stopped" not in found.verdict_
    assert found.best_.score_samples(clusters(5)).shape == (5,)


def test_given_sizes_are_those_of_all_families():
    table = compare(clusters(100), n_components=[2, 5], budget=60, refit=False).table_
    assert set(table["n_components"]) <= {2, 5} and "one Gaussian" not in set(table["family"])
    for wrong, says in (({"n_components": 0}, "n_components"), ({"n_factors": []}, "n_factors"),
                        ({"n_factors": 2}, "less than the number of columns, 2")):  # fmt: skip
        with pytest.raises(ValueError, match=says):
            compare(clusters(100), **wrong)


@pytest.mark.slow
def test_a_grid_has_no_edge():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 2)) + 30 * rng.integers(3, size=(800, 2))  # nine clusters
    found = compare(X, budget=60, refit=False)
    assert 9 <= found.best_params_["n_components"] <= 11


def test_a_budget_is_kept_and_told():
    X = np.random.default_rng(0).normal(size=(3000, 30)) ** 3
    found = compare(X, budget=0.5, refit=False)
    assert "stopped after its budget of 0.5 s" in found.verdict_ and found.seconds_ < 20
    with pytest.raises(ValueError, match="budget"):
        compare(X, budget=0)
    with pytest.raises(ValueError, match="too few"):
        compare(X[:5])


def test_a_model_that_fits_is_calibrated():
    X = clusters(2000)
    model = GaussianMixture(3, random_state=0).fit(X)
    found = calibration(model, clusters(1000, seed=1))
    assert found.fits and np.abs(np.subtract(found.expected, found.observed)).max() < 0.06


@pytest.mark.parametrize("holes", [0.0, 0.2])
def test_a_misfit_is_named(holes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    X[:, 2] = rng.standard_t(2, size=3000)
    X[:, 3] = np.exp(X[:, 3])
    X[rng.random(X.shape) < holes] = np.nan
    model = MFA(1, 1, random_state=0).fit(X[:2000])
    found = calibration(model, X[2000:], feature_names=["a", "b", "tailed", "lopsided"])
    assert not found.fits and found.n_unusual > 2 * found.n_expected
    assert (
        "'lopsided' (skewed)" in found.verdict and "'a'" not in found.verdict and "tails='t'" in found.verdict
    )


def test_missing_entries_are_no_misfit():
    X = clusters(1500)
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    assert calibration(GaussianMixture(3, random_state=0).fit(X[:1000]), X[1000:]).fits


def test_degenerate_components_do_not_win():
    """Few rows may be fitted by components of a few each, whose BIC is low and means nothing."""
    sound, degenerate = Cell((2,), None, 100.0, 0.0, 3, 0.1), Cell((6,), None, 10.0, 0.0, 9, 0.1, 3)
    tried = {(2,): sound, (6,): degenerate, (3,): None}
    family = Family("one", None, ("n_components",), (range(1, 9),), (2,), tried)
    assert family.best is sound
    del tried[(2,)]
    assert family.best is degenerate
    X = np.repeat(clusters(12), 5, axis=0) + 1e-6 * np.random.default_rng(0).normal(size=(60, 2))
    found = compare(X, budget=5, refit=False)
    assert len(getattr(found.best_, "degenerate_components_", ())) == 0
