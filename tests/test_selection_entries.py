"""The search by entries that are hidden, against fits and folds written out by hand."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse
from matplotlib.figure import Figure
from sklearn.model_selection import KFold, ShuffleSplit

from latently.factorization import NMF, PCA
from latently.mixture import MFA, PPCA, FactorAnalysis, GaussianMixture
from latently.selection import select


def parts(loss, n=80, D=14, r=3, seed=0):
    """Rows that are sums of r parts, with noise that suits the loss."""
    rng = np.random.default_rng(seed)
    A = rng.gamma(1.0, size=(r, D)) * (rng.random((r, D)) < 0.6) + 0.02
    Y = rng.gamma(1.0, size=(n, r)) @ A
    return rng.poisson(20 * Y).astype(float) if loss == "kl" else np.abs(Y + 0.1 * rng.normal(size=(n, D)))


def factors(n=120, D=10, q=2, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, q)) @ rng.normal(size=(q, D)) + 0.4 * rng.normal(size=(n, D))


def by_hand(model, X, cv, seed, weight=None):
    """Errors, fold by fold."""
    entries = np.flatnonzero(~np.isnan(X))
    errors = []
    for _, others in KFold(cv, shuffle=True, random_state=seed).split(entries):
        holed = X.copy()
        holed.flat[entries[others]] = np.nan
        filled = model.fit(holed, sample_weight=weight).impute(holed)
        rows = entries[others] // X.shape[1]
        squares = (filled.flat[entries[others]] - X.flat[entries[others]]) ** 2
        errors.append(np.average(squares, weights=None if weight is None else weight[rows]))
    return errors


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
def test_the_number_of_parts_is_found(loss):
    X = parts(loss, seed=2)
    model = NMF(loss=loss, tol=1e-3, alpha_W=1e-4)
    found = select(model, X, {"n_components": range(1, 5)}, "entries", cv=4, random_state=0, n_jobs=1)
    assert found.best_params_ == {"n_components": 3}
    assert found.best_.components_.shape == (3, 14)
    errors = found.table_["held_out_error"]
    assert errors[2] == errors.min() == found.best_score_ and errors[0] > 1.5 * errors[2]
    training = [model_.reconstruction_err_ for model_ in found.estimators_]
    assert np.argmin(training) == 3  # which would choose the largest


@pytest.mark.parametrize("model", [FactorAnalysis(tol=1e-4), PPCA(tol=1e-4)], ids=str)
def test_the_number_of_factors_is_found(model):
    X, grid = factors(n=200, D=14, seed=1), {"n_factors": [1, 2, 3]}
    found = select(model, X, grid, "entries", cv=4, random_state=0, n_jobs=1)
    assert found.best_params_ == {"n_factors": 2}
    assert found.table_["bic"].notna().all()  # likelihoods are told where there are any


def test_numbers_are_those_of_a_loop_over_folds():
    X = factors(n=40)
    X[::7, 3] = np.nan
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    grid = {"n_factors": [1, 2]}
    found = select(PPCA(), X, grid, "entries", cv=3, sample_weight=weight, random_state=4, n_jobs=1)
    for row in found.table_.to_dict("records"):
        errors = by_hand(PPCA(row["n_factors"]), X, 3, 4, weight)
        assert row["held_out_error"] == pytest.approx(np.mean(errors), rel=1e-9)
        assert row["held_out_standard_error"] == pytest.approx(np.std(errors, ddof=1) / np.sqrt(3), rel=1e-6)
    again = select(PPCA(), X, grid, "entries", cv=3, sample_weight=weight, random_state=4, n_jobs=2)
    pd.testing.assert_frame_equal(found.table_.drop(columns="seconds"), again.table_.drop(columns="seconds"))


def test_tables_lists_and_splitters():
    X = parts("frobenius", n=30, D=6)
    grid = {"n_components": [1, 2]}
    run = lambda data, **more: select(NMF(tol=1e-2), data, grid, "entries", random_state=0, n_jobs=1, **more)
    plain = run(X)
    table = pd.DataFrame(np.round(100 * X).astype(int), columns=list("abcdef"))
    named = run(table)
    assert list(named.best_.feature_names_in_) == list("abcdef")
    assert named.best_score_ == pytest.approx(1e4 * plain.best_score_, rel=0.1)
    pd.testing.assert_series_equal(run(X.tolist()).table_["held_out_error"], plain.table_["held_out_error"])
    tenths = run(X, cv=ShuffleSplit(4, test_size=0.1, random_state=0))
    assert np.isfinite(tenths.table_["held_out_error"]).all()


def test_what_is_shown():
    X = parts("frobenius", n=30, D=6)
    found = select(NMF(tol=1e-2), X, {"n_components": [1, 2, 3]}, "entries", random_state=0, n_jobs=1)
    assert "squared error per held-out entry" in repr(found) and "lower is better" in repr(found)
    assert "log_likelihood" not in repr(found)
    assert "log likelihood" not in found.to_html() and "held out error" in found.to_html()
    display = found.plot(Figure().subplots())
    np.testing.assert_allclose(display.groups[""], found.table_["held_out_error"])
    assert np.all(display.errors[""] > 0)


def test_a_cell_that_fails_leaves_the_others_alone():
    X = factors(n=30, D=5)
    found = select(PPCA(), X, {"n_factors": [1, 9]}, "entries", random_state=0, n_jobs=1)
    assert found.best_params_ == {"n_factors": 1} and found.table_["error"][1]


def test_a_poor_optimum_is_mended_here_too():
    class PoorAtThree(MFA):
        def fit(self, X, y=None, sample_weight=None):
            if self.n_components != 3 or self.means_init is not None:
                return super().fit(X, y, sample_weight)
            params = self.get_params()
            self.set_params(max_iter=0, tol=0, n_init=1, init="random")
            super().fit(X, y, sample_weight)
            return self.set_params(**params)

    X = np.concatenate([factors(40, 5), 6 + factors(40, 5, seed=1)])
    grid = {"n_components": [2, 3]}
    model = PoorAtThree(2, 1, n_init=2, tol=1e-4)
    options = {"cv": 3, "random_state": 0, "n_jobs": 1}
    poor = select(model, X, grid, "entries", warm_starts=False, **options).table_["held_out_error"]
    mended = select(model, X, grid, "entries", **options).table_["held_out_error"]
    assert mended[1] < 0.8 * poor[1] and mended[0] == poor[0]


@pytest.mark.parametrize("kind", ["path", "sparse", "blocks", "dask"])
def test_entries_can_only_be_hidden_in_arrays_and_tables(kind, tmp_path):
    X = parts("frobenius", n=20, D=5)
    if kind == "path":
        np.save(tmp_path / "rows.npy", X)
        given = tmp_path / "rows.npy"
    elif kind == "dask":
        given = pytest.importorskip("dask.array").from_array(X, chunks=(10, 5))
    else:
        given = sparse.csr_array(X) if kind == "sparse" else lambda: iter([X])
    with pytest.raises(
        TypeError, match=r"criterion='entries' needs to index entries of X.*array or a data frame"
    ):
        select(NMF(), given, {"n_components": [1]}, "entries")


def test_too_few_entries():
    X = parts("frobenius", n=20, D=5)
    X[1:, 2] = np.nan
    with pytest.raises(
        ValueError, match=r"too few entries.*nothing is observed of feature 2; increase cv, or remove"
    ):
        select(NMF(), X, {"n_components": [1]}, "entries")
    with pytest.raises(ValueError, match="X has 4 entries, too few for cv=5 folds"):
        select(NMF(), np.ones((2, 2)), {"n_components": [1]}, "entries")
    with pytest.raises(ValueError, match="cv must be an integer of at least 2"):
        select(NMF(), parts("kl"), {"n_components": [1]}, "entries", cv=1)


def test_an_estimator_has_what_its_criterion_needs():
    X = parts("frobenius", n=20, D=5)
    with pytest.raises(
        TypeError, match=r"be a mixture.*NMF has no score_samples.*choose criterion='entries'"
    ):
        select(NMF(), X, {"n_components": [1]})
    with pytest.raises(TypeError, match=r"impute missing values, such as NMF\(\), but PCA has no impute"):
        select(PCA(), X, {"n_components": [1]}, "entries")
    options = {"random_state": 0, "n_jobs": 1}
    assert select(GaussianMixture(), X, {"n_components": [1]}, "entries", **options).best_score_ > 0
