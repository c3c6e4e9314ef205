"""The imputer that chooses a model by hidden entries."""

import numpy as np
import pandas as pd
import pytest

import latently
from latently.mixture import PPCA, FactorAnalysis, GaussianMixture
from latently.selection import Imputer
from latently.selection.imputer import hidden_entries

QUICK = {"cv": 2, "n_jobs": 1, "random_state": 0}


def factors(n=80, D=6, q=2, share=0.15, seed=0):
    """Rows of a factor model, complete and with missing entries."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, q)) @ rng.normal(size=(q, D)) + 0.3 * rng.normal(size=(n, D))
    return X, np.where(rng.random(X.shape) < share, np.nan, X)


@pytest.fixture
def short_paths(monkeypatch):
    few_of = {"_FLOORS": (0.1,), "_PRIORS": (1.0,), "_SIZES": (1, 2, 4), "_COARSE": (2,), "_COMPONENTS": (2,)}
    for name, few in few_of.items():
        monkeypatch.setattr(f"latently.selection.imputer.{name}", few)


def test_the_model_with_the_lowest_error_is_chosen(short_paths):
    _, holed = factors()
    imputer = Imputer(**QUICK).fit(holed)
    errors = [candidate.error for candidate in imputer.candidates_]
    assert imputer.best_score_ == min(errors) < 0.7 * imputer.baseline_score_
    means = next(c for c in imputer.candidates_ if getattr(c.model, "covariance_type", "") == "diag")
    assert means.error == pytest.approx(
        imputer.baseline_score_, rel=0.02
    )  # a diagonal Gaussian imputes means
    assert imputer.table_["error"].iloc[0] == imputer.best_score_
    again = type(imputer.best_)(**imputer.best_.get_params()).fit(holed)
    np.testing.assert_array_equal(imputer.transform(holed), again.impute(holed))


def test_errors_are_those_of_fits_written_out():
    _, holed = factors()
    holed = holed[
        np.lexsort(np.where(np.isnan(holed), np.inf, holed).T)
    ]  # the order in which entries are hidden
    imputer = Imputer([PPCA(2), PPCA(4)], **QUICK).fit(holed)
    rng = np.random.RandomState(0)
    masks, scale = hidden_entries(~np.isnan(holed), 2, rng), np.nanstd(holed, axis=0)
    for candidate, q in zip(imputer.candidates_, (2, 4), strict=True):
        squares = []
        for mask in masks:
            seen = np.where(mask, np.nan, holed)
            filled = PPCA(q).fit(seen).impute(seen)
            squares.append(np.mean((((filled - holed) / scale)[mask]) ** 2))
        assert candidate.error == pytest.approx(np.sqrt(np.mean(squares)), rel=1e-9)


def test_hidden_entries_have_the_patterns_of_other_rows():
    rng = np.random.RandomState(0)
    observed = np.ones((60, 5), dtype=bool)
    observed[::3, 3:] = False  # two features that are missing together
    masks = hidden_entries(observed, 3, rng)
    whole = np.sum(masks, axis=0)
    assert whole.max() == 1 and not whole[:, :3].any()  # a row is in one part
    np.testing.assert_array_equal(whole[:, 3], whole[:, 4])
    assert not whole[~observed].any() and whole[observed].sum() == 80
    complete = hidden_entries(np.ones((60, 5), dtype=bool), 3, rng)
    assert 0.1 < np.sum(complete, axis=0).mean() < 0.3


@pytest.mark.slow
def test_paths_reach_many_factors_and_end(monkeypatch):
    monkeypatch.setattr("latently.selection.imputer._FLOORS", ())
    monkeypatch.setattr("latently.selection.imputer._COMPONENTS", ())
    _, holed = factors(n=150, D=24, q=8)
    imputer = Imputer(**QUICK).fit(holed)
    sizes = {c.model.n_factors for c in imputer.candidates_ if isinstance(c.model, FactorAnalysis)}
    assert {2, 8, 12} <= sizes and max(sizes) < 24
    assert 6 <= imputer.best_.n_factors <= 12


def test_paths_are_followed_on_some_rows_and_decided_on_all(short_paths, monkeypatch):
    monkeypatch.setattr("latently.selection.imputer._FIRST_ROWS", 60)
    n_rows, fit = [], GaussianMixture.fit

    def counted(self, X, *given):
        n_rows.append(len(X))
        return fit(self, X, *given)

    monkeypatch.setattr(GaussianMixture, "fit", counted)
    _, holed = factors(n=150, D=6, q=4)
    imputer = Imputer(**QUICK).fit(holed)
    assert {60} < set(n_rows) <= {60, 150}
    leader = next(c for c in imputer.candidates_ if c.error == imputer.best_score_)
    again = Imputer([leader.model], **QUICK).fit(holed)
    assert again.best_score_ == pytest.approx(imputer.best_score_)


def test_full_gaussians_are_shrunk_where_rows_are_few():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 24)) @ rng.normal(size=(24, 24)) @ np.diag(1.0 / np.arange(1, 25))
    holed = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    tried = [GaussianMixture(prior=rows, noise_floor=0.03, tol=1e-3) for rows in (1.0, 30.0)]
    weak, strong = (Imputer([model], **QUICK).fit(holed).best_score_ for model in tried)
    assert strong < weak


def test_tables_keep_their_index_and_columns():
    _, holed = factors(n=30)
    table = pd.DataFrame(holed, columns=list("abcdef"), index=np.arange(30) * 2)
    completed = Imputer([PPCA(1)], **QUICK).fit_transform(table)
    assert list(completed) == list("abcdef") and completed.index.equals(table.index)
    pd.testing.assert_frame_equal(completed[table.notna()], table)
    assert completed.notna().all(axis=None)


def test_draws_errors_and_files(tmp_path):
    _, holed = factors(n=30)
    imputer = Imputer([PPCA(1)], **QUICK).fit(holed)
    assert imputer.impute(holed, n_draws=3, random_state=0).shape == (3, 30, 6)
    imputed, error = imputer.impute(holed, return_std=True)
    assert np.all((error > 0) == np.isnan(holed))
    imputer.save(tmp_path / "imputer")
    loaded = latently.load(tmp_path / "imputer")
    assert str(loaded) == str(imputer)
    np.testing.assert_array_equal(loaded.transform(holed), imputed)
    assert loaded.best_score_ == imputer.best_score_


def test_a_model_that_fails_leaves_the_others_alone():
    _, holed = factors(n=30)
    imputer = Imputer([PPCA(1), PPCA(9)], **QUICK).fit(holed)
    assert imputer.best_.n_factors == 1 and "n_factors=9" in imputer.candidates_[1].failure
    with pytest.raises(ValueError, match=r"no model could be fitted.*n_factors=9"):
        Imputer([PPCA(9)], **QUICK).fit(holed)


def test_progress_is_told(capsys):
    told = []
    _, holed = factors(n=30)
    Imputer([PPCA(1), GaussianMixture()], **QUICK, callbacks=[told.append], verbose=1).fit(holed)
    assert [candidate.name for candidate in told] == ["PPCA(1)", "GaussianMixture(1)"]
    assert "PPCA(1): error 0." in capsys.readouterr().out


def test_what_cannot_be_imputed():
    _, holed = factors(n=30)
    with pytest.raises(ValueError, match=r"feature 2 of X is missing in every row; drop it"):
        Imputer(**QUICK).fit(np.where(np.arange(6) == 2, np.nan, holed))
    with pytest.raises(TypeError, match=r"models must be a list of estimators"):
        Imputer(PPCA(1)).fit(holed)
    with pytest.raises(TypeError, match=r"models must have fit and impute"):
        Imputer([PPCA]).fit(holed)
    with pytest.raises(ValueError, match=r"n_jobs must be None"):
        Imputer(n_jobs=0).fit(holed)
    with pytest.raises(ValueError, match=r"too few observed entries"):
        Imputer([PPCA(1)]).fit([[1.0, 2.0], [3.0, 4.0]])
