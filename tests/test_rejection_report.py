"""What is measured of scores that reject rows, against counting by hand."""

import math

import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from latently.metrics import conformal_interval, conformal_threshold, rejection_report
from latently.mixture import GaussianMixture
from latently.rejection import NeighborScore
from latently.supervised import PerClass

matplotlib.use("Agg")
from matplotlib.figure import Figure

from latently.plots import RejectionDisplay

scores_of = st.lists(st.sampled_from([-np.inf, -2.0, -1.0, 0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=15)


@given(known=scores_of, other=scores_of, threshold=st.sampled_from([-np.inf, -1.0, 0.0, 0.7, 9.0]))
def test_shares_and_areas_are_those_of_counting(known, other, threshold):
    report = rejection_report(known, other, threshold=threshold)
    known, other = np.array(known), np.array(other)
    assert report.acceptance == np.mean(known >= threshold)
    assert report.rejection == np.mean(other < threshold)
    pairs = (known[:, None] > other).mean() + 0.5 * (known[:, None] == other).mean()
    assert report.auroc == pytest.approx(pairs)
    cuts = [cut for cut in np.unique(known) if np.mean(known >= cut) >= 0.95]
    assert report.fpr_at_95 == min(np.mean(other >= cut) for cut in cuts)
    found, precision = 0.0, 0.0
    for cut in np.unique(np.concatenate([known, other])):  # from the least usual on
        recall = np.mean(other <= cut)
        precision += (recall - found) * np.sum(other <= cut) / (np.sum(other <= cut) + np.sum(known <= cut))
        found = recall
    assert report.aupr == pytest.approx(precision)
    assert (report.n_known, report.n_other) == (len(known), len(other))


@given(scores=scores_of, seed=st.integers(0, 50))
def test_risk_is_the_error_rate_of_accepted_rows(scores, seed):
    correct = np.random.default_rng(seed).random(len(scores)) < 0.6
    report = rejection_report(scores, correct=correct)
    scores = np.array(scores)
    cuts = np.unique(scores)[::-1]
    np.testing.assert_allclose(report.coverage, [np.mean(scores >= cut) for cut in cuts])
    np.testing.assert_allclose(report.risk, [np.mean(~correct[scores >= cut]) for cut in cuts])
    by_row = [np.mean(~correct[scores >= score]) for score in scores]
    assert report.risk_coverage_area == pytest.approx(np.mean(by_row))
    assert report.risk[-1] == pytest.approx(np.mean(~correct))
    assert report.auroc is report.threshold is report.acceptance_interval is None


def test_acceptance_is_compared_with_its_interval():
    rng = np.random.default_rng(0)
    below = conformal_threshold(rng.normal(size=300), 0.9)
    new = rng.normal(size=100)
    report = rejection_report(new, threshold=below, acceptance=0.9, n_calibration=300)
    assert report.acceptance_interval == conformal_interval(300, 0.9, n_rows=100)
    assert report.as_calibrated and "inside its interval" in str(report)
    moved = rejection_report(new - 1.5, threshold=below, acceptance=0.9, n_calibration=300)
    assert not moved.as_calibrated and "OUTSIDE" in str(moved)
    assert rejection_report(new, threshold=below).as_calibrated is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"scores_known": [0.0, np.nan]}, "scores_known contains NaN, at row 1"),
        ({"scores_known": []}, "scores_known is empty; give"),
        ({"scores_other": []}, "scores_other is empty; give"),
        ({"scores_known": [[1.0]]}, r"scores_known must have shape \(n_samples,\)"),
        ({"scores_other": ["low"]}, "scores_other|could not convert"),
        ({"threshold": np.nan}, "threshold must be a number"),
        ({"threshold": "low"}, "threshold must be a number"),
        ({"acceptance": 0.9}, "belong together"),
        ({"acceptance": 0.9, "n_calibration": 9}, "those of a threshold"),
        ({"acceptance": 1.0, "n_calibration": 9, "threshold": 0.0}, "acceptance must be a number between"),
        ({"acceptance": 0.9, "n_calibration": 0, "threshold": 0.0}, "n_calibration must be a number of rows"),
        ({"level": 95}, "level must be a number between 0 and 1"),
        ({"correct": [True]}, "correct must hold True or False for each of the 2"),
        ({"correct": [0.5, 1.0]}, "correct must hold"),
    ],
)
def test_wrong_arguments_are_told(given, says):
    with pytest.raises(ValueError, match=says):
        rejection_report(**{"scores_known": [0.0, 1.0]} | given)


def test_too_few_scores_for_a_rate():
    with pytest.raises(ValueError, match="needs at least 9 calibration rows, but there are 5"):
        conformal_threshold(np.arange(5.0), 0.9)
    with pytest.raises(ValueError, match="n_rows must be"):
        conformal_interval(10, 0.9, n_rows=0)


# -- drawn --------------------------------------------------------------------------------------------


def test_curves_are_means_over_runs_with_bands():
    rng = np.random.default_rng(0)
    known, other = rng.normal(1.0, 1.0, (6, 300)), rng.normal(size=(6, 200))
    display = RejectionDisplay({"score": known}, {"score": other}, correct={"score": known > 0.3})
    curve = display.curves["score"]
    reports = [rejection_report(a, b, correct=a > 0.3) for a, b in zip(known, other, strict=True)]
    np.testing.assert_allclose(curve.areas, [report.auroc for report in reports])
    np.testing.assert_allclose(
        display.risks["score"].areas, [report.risk_coverage_area for report in reports]
    )
    exact = [np.mean(a >= np.quantile(b, 0.8)) for a, b in zip(known, other, strict=True)]
    at = np.searchsorted(curve.x, 0.2)
    assert curve.mean[at] == pytest.approx(np.mean(exact), abs=0.01)
    half = (curve.high - curve.low)[at] / 2
    assert half == pytest.approx(2.571 * np.std(exact, ddof=1) / np.sqrt(6), rel=0.15)
    one = RejectionDisplay({"score": known[0]}, {"score": other[0]}).curves["score"]
    np.testing.assert_array_equal(one.low, one.high)
    ax = display.plot().axes_
    assert len(ax) == 2 and len(ax[0].collections) == 1  # a band
    assert ax[0].get_legend().get_texts()[0].get_text() == f"score ({curve.areas.mean():.3f})"


def test_curves_of_models():
    X, y = load_wine(return_X_y=True)
    X = scale(X)
    known, labels, other = X[y < 2], y[y < 2], X[y == 2]
    fit, new = slice(None, None, 2), slice(1, None, 2)
    classifier = PerClass(GaussianMixture(), temperature=None).fit(known[fit], labels[fit])
    models = {"density": classifier, "neighbours": NeighborScore().fit(known[fit])}
    display = RejectionDisplay.from_estimator(models, known[new], other, y=labels[new])
    assert list(display.curves) == ["density", "neighbours"] and list(display.risks) == ["density"]
    assert display.risks["density"].mean[-1] == pytest.approx(
        1 - classifier.score(known[new], labels[new]), abs=1e-9
    )
    figure = Figure()
    ax = figure.subplots()
    alone = RejectionDisplay.from_estimator(models["density"], known[new], other)
    assert alone.plot(ax).axes_ == [ax] and list(alone.curves) == ["PerClass"]
    figure.canvas.draw()
    with pytest.raises(ValueError, match="there are 2 panels"):
        display.plot(ax)


def test_wrong_arguments_of_the_display_are_told():
    with pytest.raises(ValueError, match="give scores of other rows"):
        RejectionDisplay({"a": [1.0]})
    with pytest.raises(ValueError, match="'b' has no scores of known rows"):
        RejectionDisplay({"a": [1.0]}, {"b": [1.0]})
    with pytest.raises(ValueError, match="contains NaN"):
        RejectionDisplay({"a": [1.0, np.nan]}, {"a": [1.0]})
    with pytest.raises(ValueError):
        RejectionDisplay({"a": [[1.0], [2.0]]}, {"a": [[1.0]]})


def test_intervals_are_quantiles_of_their_distributions():
    """With one of 19 rows to be rejected the acceptance is Beta(19, 1): P(share <= s) = s^19."""
    assert conformal_interval(19, 0.95) == pytest.approx((0.025 ** (1 / 19), 0.975 ** (1 / 19)))
    # of two new rows: k = 2 of n = 9; they are accepted with probabilities 8/10 and 9/11 given the first is
    none, both = (2 / 10) * (3 / 11), (8 / 10) * (9 / 11)
    assert none < 0.1 < 1 - both < 0.5
    assert conformal_interval(9, 0.8, n_rows=2, level=0.8) == (0.5, 1.0)
    assert conformal_interval(9, 0.8, n_rows=2, level=1 - 1.9 * none) == (0.0, 1.0)


@pytest.mark.parametrize("level", [0.5, 0.95, 1 - 0.05 / 70])
@pytest.mark.parametrize(("n", "n_new", "rate"), [(25, 25, 0.9), (60, 7, 0.95), (300, 1000, 0.97)])
def test_shares_of_new_rows_lie_in_their_interval_with_at_least_its_probability(n, n_new, rate, level):
    """By counting orders, all as likely: j of n_new numbers are above the k-th smallest of n."""
    k = math.floor((n + 1) * (1 - rate) + 1e-9)
    ways = [
        math.comb(k - 1 + n_new - j, n_new - j) * math.comb(n - k + j, j) / math.comb(n + n_new, n)
        for j in range(n_new + 1)
    ]
    assert sum(ways) == pytest.approx(1)
    low, high = conformal_interval(n, rate, n_rows=n_new, level=level)
    inside = sum(ways[round(low * n_new) : round(high * n_new) + 1])
    assert level <= inside + 1e-12
    for ends in ((1, 0), (0, -1)):  # one count less on either side leaves more than its half outside
        shorter = ways[round(low * n_new) + ends[0] : round(high * n_new) + 1 + ends[1]]
        assert sum(shorter) <= 1 - (1 - level) / 2 + 1e-12
