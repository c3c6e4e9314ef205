"""Thresholds with a guarantee: of every density and classifier, by the same three names."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.exceptions import NotFittedError

import latently
from latently.core import conformal
from latently.factorization import PCA
from latently.generate import SourceDensity
from latently.metrics import conformal_interval, conformal_threshold
from latently.mixture import MFA, PPCA, GaussianMixture
from latently.supervised import MJFAClassifier, PerClass

SHORT = {"max_iter": 5, "tol": 0.0, "n_init": 1, "random_state": 0}


def rows_of_classes(n, seed, shift=4.0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.normal(size=(n, 3)) + shift * np.eye(3)[y], np.array(["a", "b", "c"])[y]


class Scores(PPCA):
    """A density whose score is the first feature."""

    def score_samples(self, X):
        return np.asarray(X, dtype=float)[:, 0]


def of_scores(seed=0, **settings):
    return Scores(1, **settings).fit(np.random.default_rng(seed).normal(size=(30, 2)))


def as_rows(scores):
    return np.column_stack([scores, np.arange(len(scores)) + 0.5])


# -- the threshold ------------------------------------------------------------------------------------


@given(
    scores=st.lists(st.integers(0, 12), min_size=1, max_size=50),
    rate=st.sampled_from([0.5, 0.9, 0.95, 0.99, 1 / 3, 0.7, 0.8]),
)
def test_threshold_is_the_largest_with_the_guarantee(scores, rate):
    """Of n + 1 exchangeable rows, each in turn the new one, a share of at least the rate is accepted."""
    scores = np.array(scores, dtype=float)
    n = len(scores)
    if n < math.ceil(1 / (1 - rate) - 1 - 1e-9):
        with pytest.raises(ValueError, match=f"there are {n}"):
            conformal_threshold(scores, rate)
        return
    accepted = 0
    for new in range(n):
        others = np.delete(scores, new)
        if conformal.rank(n - 1, rate) == 0:
            return
        accepted += scores[new] >= conformal_threshold(others, rate)
    assert accepted >= rate * n - 1e-9
    below = conformal_threshold(scores, rate)
    assert below in scores and np.sum(scores < below) <= (n + 1) * (1 - rate) - 1 + 1e-9
    higher = scores[scores > below]
    if len(higher):  # a higher one would reject more than k - 1 calibration rows
        assert np.sum(scores < higher.min()) > (n + 1) * (1 - rate) - 1 - 1e-9


@pytest.mark.parametrize(
    ("rate", "n", "k"),
    [(0.9, 9, 1), (0.9, 19, 2), (0.99, 99, 1), (0.95, 19, 1), (0.7, 9, 3), (0.8, 4, 1), (0.5, 2, 1)],
)
def test_rates_are_taken_as_written(rate, n, k):
    """(9 + 1) (1 - 0.9) is a little less than one in floating point."""
    assert conformal.rank(n, rate) == k
    assert conformal_threshold(np.arange(n) + 1.0, rate) == k


def test_rows_that_a_rate_needs():
    for rate in (0.5, 0.8, 0.9, 0.95, 0.99, 0.999):
        n = conformal.least_rows(rate)
        assert conformal.rank(n, rate) == 1 and conformal.rank(n - 1, rate) == 0
    with pytest.raises(
        ValueError, match=r"acceptance=0.99 needs at least 99 .* there are 50; .* at most 0.98"
    ):
        of_scores().calibrate_rejection(as_rows(np.arange(50.0)), acceptance=0.99)


def test_acceptance_of_new_rows_has_its_distribution():
    """Without ties, of thresholds from 200 rows each: Beta, whatever the distribution of scores."""
    rng = np.random.default_rng(0)
    realised = []
    for _ in range(400):
        below = conformal_threshold(rng.standard_cauchy(200), 0.9)
        realised.append(stats.cauchy.sf(below))
    k = conformal.rank(200, 0.9)
    assert stats.kstest(realised, stats.beta(201 - k, k).cdf).pvalue > 1e-3
    assert stats.kstest(realised, stats.beta(200 - k, k + 1).cdf).pvalue < 1e-3  # one rank off is noticed
    low, high = conformal_interval(200, 0.9)
    assert np.mean((np.array(realised) >= low) & (np.array(realised) <= high)) == pytest.approx(
        0.95, abs=0.03
    )


def test_intervals_of_few_new_rows_are_wider():
    rng = np.random.default_rng(1)
    low, high = conformal_interval(100, 0.9, n_rows=50)
    wide = conformal_interval(100, 0.9)
    assert low < wide[0] and high > wide[1]
    inside = []
    for _ in range(400):
        scores = rng.normal(size=150)
        share = np.mean(scores[100:] >= conformal_threshold(scores[:100], 0.9))
        inside.append(low <= share <= high)
    assert np.mean(inside) > 0.93


# -- of models ----------------------------------------------------------------------------------------


def test_a_density_accepts_rows_by_its_score():
    model = of_scores()
    assert model.reject_below_ == -np.inf and model.accepts(as_rows([-1e300, 0.0])).all()
    assert model.calibrate_rejection(as_rows(np.arange(100.0)), acceptance=0.9) is model
    assert model.reject_below_ == 9.0
    assert model.accepts(as_rows([8.999, 9.0, 9.1])).tolist() == [False, True, True]
    model.fit(as_rows(np.arange(20.0)))
    assert model.reject_below_ == -np.inf  # the threshold was that of another fit


def test_a_threshold_that_is_given():
    model = of_scores(reject_below=3.0)
    assert model.reject_below_ == 3.0 and model.accepts(as_rows([2.9, 3.0])).tolist() == [False, True]
    model.calibrate_rejection(as_rows(np.arange(100.0)), acceptance=0.9)
    assert model.reject_below_ == 9.0 and model.reject_below == 3.0


@pytest.mark.parametrize("rate", [0, 1, 0.0, 1.0, -0.1, 1.1, np.nan, "all", None, True], ids=str)
def test_rates_that_are_none(rate):
    model = of_scores()
    with pytest.raises(ValueError, match="acceptance must be a number between 0 and 1"):
        model.calibrate_rejection(as_rows(np.arange(100.0)), acceptance=rate)
    assert model.reject_below_ == -np.inf


def test_before_the_fit():
    for call in (
        lambda model: model.reject_below_,
        lambda model: model.accepts([[0.0, 1.0]]),
        lambda model: model.calibrate_rejection([[0.0, 1.0]]),
    ):
        with pytest.raises(NotFittedError):
            call(MFA(1, 1))


def test_scores_that_are_not_numbers():
    model, scores = of_scores(), np.arange(100.0)
    model.score_samples = lambda X: np.where(scores == 7, np.nan, scores)
    with pytest.raises(ValueError, match="row 7 of X is NaN"):
        model.calibrate_rejection(as_rows(scores))


def test_ties_at_the_threshold_are_told():
    model = of_scores()
    with pytest.warns(UserWarning, match=r"100% of the calibration rows are accepted instead of 90%"):
        model.calibrate_rejection(as_rows(np.where(np.arange(100) < 50, 0.0, 1.0)), acceptance=0.9)
    assert model.accepts(as_rows([0.0])).all()
    model.calibrate_rejection(as_rows(np.arange(100) // 2 * 1.0), acceptance=0.9)  # pairs are no matter


def test_a_classifier_with_a_threshold_for_each_class(tmp_path):
    """Rows of a class are accepted by its own threshold, or that of another."""
    X, y = rows_of_classes(300, 0)
    scale = np.where(y == "c", 5.0, 1.0)[:, None]  # one class is broad
    model = PerClass(GaussianMixture(), shrinkage=None, temperature=None).fit(X * scale, y)
    X_new, y_new = rows_of_classes(600, 1)
    X_new = X_new * np.where(y_new == "c", 5.0, 1.0)[:, None]
    model.calibrate_rejection(X_new[:300], y_new[:300], acceptance=0.9, per_class=True)
    joint = model.score_samples(X_new)[:, None] + model.predict_log_proba(X_new)
    np.testing.assert_allclose(
        model.reject_below_,
        [conformal_threshold(joint[:300][y_new[:300] == c, i], 0.9) for i, c in enumerate("abc")],
        rtol=1e-9,
    )
    np.testing.assert_array_equal(model.accepts(X_new), (joint >= model.reject_below_ - 1e-9).any(axis=1))
    for c in "abc":
        assert np.mean(model.accepts(X_new[300:][y_new[300:] == c])) > 0.82
    assert set(model.predict([[1e3] * 3])) == {"rejected"}
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    np.testing.assert_array_equal(again.reject_below_, model.reject_below_)
    np.testing.assert_array_equal(again.accepts(X_new), model.accepts(X_new))
    np.testing.assert_array_equal(again._rejection.n_rows, [100, 100, 100])
    assert again._rejection.acceptance == 0.9


def test_wrong_classes_of_calibration_rows_are_told():
    X, y = rows_of_classes(90, 0)
    model = PerClass(GaussianMixture(), temperature=None).fit(X, y)
    X_new, y_new = rows_of_classes(90, 1)
    with pytest.raises(ValueError, match="needs y"):
        model.calibrate_rejection(X_new, per_class=True)
    with pytest.raises(ValueError, match="of class 'b', but there are 1"):
        few = (y_new != "b") | (np.arange(90) == 1)
        model.calibrate_rejection(X_new[few], y_new[few], per_class=True)
    with pytest.raises(ValueError, match="one label per row"):
        model.calibrate_rejection(X_new, y_new[:-1])
    with pytest.raises(ValueError):
        model.calibrate_rejection(X_new, np.where(y_new == "b", "d", y_new))
    with pytest.raises(ValueError, match="per_class=True needs a classifier, and MFA has no classes"):
        MFA(1, 1, **SHORT | {"tol": 1e-3}).fit(X).calibrate_rejection(X_new, y_new, per_class=True)
    with pytest.raises(ValueError, match="per_class must be True or False"):
        model.calibrate_rejection(X_new, y_new, per_class="yes")
    assert model.reject_below_ == -np.inf


def test_unlabelled_calibration_rows_have_no_class_of_their_own():
    X, y = rows_of_classes(90, 0)
    y = np.searchsorted(["a", "b", "c"], y)
    model = MJFAClassifier(1, 2, temperature=None, tol=1e-3, random_state=0).fit(X, y)
    X_new = np.concatenate([rows_of_classes(90, 1)[0], np.full((5, 3), 50.0)])
    model.calibrate_rejection(X_new, np.append(y, [-1] * 5), per_class=True)
    assert model._rejection.n_rows.tolist() == [30, 30, 30]
    assert not model.accepts([[50.0] * 3]).any()


def test_saved_densities_keep_their_threshold(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 3))
    for model in (
        MFA(2, 1, tol=1e-3, random_state=0),
        SourceDensity(PCA(), GaussianMixture(tol=1e-3)),
        PPCA(1, reject_below=-4.0),
    ):
        model.fit(X[:100])
        if model.reject_below is None:
            model.calibrate_rejection(X[100:], acceptance=0.8)
        model.save(tmp_path / "model")
        again = latently.load(tmp_path / "model")
        assert again.reject_below_ == model.reject_below_ > -np.inf
        np.testing.assert_array_equal(again.accepts(X), model.accepts(X))


# -- rows that were trained on ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [60, 20_000])
def test_calibration_rows_of_the_fit_are_noticed(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    model = Scores(1).fit(X)
    few = rng.permutation(n)[: max(n // 4, 12)]
    for rows in (X, X[few], X[few].astype(np.float64, order="F"), X[::-1]):
        with pytest.warns(UserWarning, match="100% of the calibration rows were rows of the fit"):
            model.calibrate_rejection(rows, acceptance=0.8)
    mixed = np.concatenate([X[: n // 2], rng.normal(size=(n // 2, 2))])
    with pytest.warns(UserWarning, match=r"about [45]\d% of the calibration rows"):
        model.calibrate_rejection(mixed)
    model.calibrate_rejection(rng.normal(size=(n, 2)))


def test_rows_with_few_different_values_are_no_rows_of_the_fit():
    """Held-out rows of a table of answers are often equal to rows of the fit."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(600, 4)).astype(float)
    model = MFA(1, 1, **SHORT | {"tol": 1e-3}).fit(X[:300])
    model.calibrate_rejection(X[300:], acceptance=0.9)
    assert np.isin(X[300:, 0], X[:300, 0]).all()


def test_rows_without_weight_were_not_trained_on():
    X = np.random.default_rng(0).normal(size=(200, 3))
    weight = np.repeat([1.0, 0.0], 100)
    model = MFA(1, 1, tol=1e-3).fit(X, sample_weight=weight)
    model.calibrate_rejection(X[100:])
    with pytest.warns(UserWarning, match="rows of the fit"):
        model.calibrate_rejection(X[:100])


def test_rows_from_files_are_not_compared(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 3))
    np.save(tmp_path / "rows.npy", X)
    model = MFA(1, 1, tol=1e-3).fit(tmp_path / "rows.npy").calibrate_rejection(X)
    in_memory = MFA(1, 1, tol=1e-3).fit(X).calibrate_rejection(tmp_path / "rows.npy")
    assert model.reject_below_ == pytest.approx(in_memory.reject_below_, rel=1e-6)


def test_a_saved_model_does_not_hold_its_rows(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 3))
    MFA(1, 1, tol=1e-3).fit(X).save(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        latently.load(tmp_path / "model").calibrate_rejection(X)
