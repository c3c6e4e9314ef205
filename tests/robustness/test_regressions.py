"""Faults that attacks once found, one small test each."""

import numpy as np
import pytest

import latently
from latently.deep import DMCFA, DMFA
from latently.factorization import PCA, BinarySparseCoding, VectorQuantizer
from latently.generate import CodebookGenerator
from latently.supervised import PerClass

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4)) + 4 * (np.arange(60) % 3)[:, None]


def again(model, tmp_path):
    model.save(tmp_path / "model.latently")
    return latently.load(tmp_path / "model.latently")


@pytest.mark.parametrize("kind", [DMFA, DMCFA])
def test_a_deep_model_without_iterations_is_saved(kind, tmp_path):
    model = kind(2, 2, 2, 1, max_iter=0, tol=0.0, random_state=0).fit(X)
    np.testing.assert_array_equal(again(model, tmp_path).score_samples(X), model.score_samples(X))


def test_a_classifier_of_deep_models_is_saved(tmp_path):
    model = PerClass(DMFA(1, 1, 1, 1, max_iter=3, tol=0.0, random_state=0), temperature=None)
    model.fit(X, np.arange(60) % 2)
    np.testing.assert_array_equal(again(model, tmp_path).predict_proba(X), model.predict_proba(X))


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_a_codebook_without_elements_for_a_group_is_refused():
    """It could neither be sampled from nor saved. Of nine elements, three each are equal but for rounding."""
    elements = np.random.default_rng(1).normal(size=(3, 2)).repeat(3, axis=0)
    elements *= 1 + 1e-12 * rng.normal(size=elements.shape)
    with pytest.raises(ValueError, match=r"cannot be split into n_groups=5 groups: only \d have elements"):
        CodebookGenerator(n_groups=5, n_init=1, random_state=0).fit(elements)


@pytest.mark.parametrize(
    "model", [PCA(2), VectorQuantizer(2, random_state=0)], ids=["PCA", "VectorQuantizer"]
)
@pytest.mark.parametrize(
    "bad", [np.full((9, 4), np.nan), np.zeros((1, 3)), "no rows"], ids=["NaN", "few", "text"]
)
def test_a_failed_fit_leaves_the_one_before(model, bad):
    before = model.fit(X).transform(X)
    with pytest.raises((ValueError, TypeError, FileNotFoundError)):
        model.fit(bad)
    np.testing.assert_array_equal(model.transform(X), before)


@pytest.mark.parametrize("spread", [1e-17, 1e-12, 1e-8, 1e-5])
def test_the_history_of_binary_sparse_coding_never_falls_on_columns_that_hardly_vary(spread):
    rows = X[:, :3].copy()
    rows[:, 1] = 5.0 + spread * rng.normal(size=60)
    model = BinarySparseCoding(2, max_iter=30, tol=0.0, random_state=0).fit(rows)
    assert np.all(np.diff(model.history_) >= -1e-9 * np.abs(model.history_[1:]))
    assert np.all(np.isfinite(model.score_samples(rows)))


def test_weights_that_are_none_beside_others_do_not_hide_missing_entries():
    """A row with NaN and weight 1e-17 was lost in the sums that told whether any entry is missing."""
    from latently.mixture import MCFA

    rows, weight = X.copy(), np.ones(60)
    rows[0, 0], weight[0] = np.nan, 1e-17
    model = MCFA(2, 1, max_iter=3, tol=0.0, random_state=0).fit(rows, sample_weight=weight)
    assert np.all(np.isfinite(model.score_samples(rows)))


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-x", "@sum"])
def test_text_that_spreadsheets_take_for_formulas_is_told(cell, tmp_path):
    pandas = pytest.importorskip("pandas")
    from latently.cli.writing import _as_text

    with pytest.warns(UserWarning, match="begins as formulas of spreadsheets do"):
        assert cell in _as_text(pandas.DataFrame({"label": ["a", cell]}), True, ",", ".")
