"""What every model with a score of rows promises: a threshold of it, calibrated, kept and given up."""

from copy import copy

import numpy as np
import pytest
from sklearn.base import is_classifier

import latently
from latently.core import conformal
from tests.contracts.cases import CASES, fitted, having


def held_out(case):
    X, y = case.data(n=48, seed=7)
    return X + (0.001 if case.rows == "real" else 0.0), y


def test_every_score_has_a_threshold():
    """Or an offset, as scikit-learn's detectors have it."""
    without = {case.name for case in CASES if case.has("score_samples") and not case.has("accepts")}
    assert without == {"OutlierDetector"}


@having("accepts")
def test_a_threshold_is_calibrated_kept_and_given_up(case, tmp_path):
    model, (X, y) = copy(fitted(case)), held_out(case)
    model._trained_on = type(fitted(case)._trained_on).of(np.zeros(0, np.int64))  # the same seeds, other rows
    assert model.reject_below_ == -np.inf and model.accepts(X).all()
    scores = np.sort(np.asarray(model.score_samples(X)))
    assert model.calibrate_rejection(X, y, acceptance=0.8) is model
    assert model.reject_below_ == scores[conformal.rank(48, 0.8) - 1]
    np.testing.assert_array_equal(model.accepts(X), model.score_samples(X) >= model.reject_below_)
    if is_classifier(model):
        rejected = np.asarray(model.predict(X)) == model.rejected_label_
        np.testing.assert_array_equal(rejected, ~model.accepts(X))
        model.calibrate_rejection(X, y, acceptance=0.5, per_class=True)
        assert model.reject_below_.shape == model.classes_.shape
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    np.testing.assert_array_equal(again.reject_below_, model.reject_below_)
    np.testing.assert_array_equal(again.accepts(X), model.accepts(X))
    assert "_rejection" not in vars(fitted(case))


@having("accepts")
def test_a_fit_ends_a_calibration_and_knows_its_rows(case):
    X, y = case.data(n=40, seed=3)
    model = case.fit(X, y)
    if case.rows != "counts":  # few different rows are often equal
        with pytest.warns(UserWarning, match="were rows of the fit"):
            model.calibrate_rejection(X, acceptance=0.8)
        assert model.reject_below_ > -np.inf
    else:
        model._rejection = "of an earlier fit"
    assert case.fit(X, y, to=model).reject_below_ == -np.inf
