"""Labels of all kinds, and rows that are turned away."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score

from latently.estimators.labels import UNLABELLED, class_labels
from latently.mixture import PPCA
from latently.supervised import MFMClassifier, MJFAClassifier, PerClass


class Spike(BaseEstimator):
    """ln p(x) = -|x - mean| - ln 2 of the first feature: simple enough to know every answer."""

    def fit(self, X):
        self.mean_ = X[:, 0].mean()
        return self

    def score_samples(self, X):
        return -np.abs(X[:, 0] - self.mean_) - np.log(2)


class Box(Spike):
    """ln p(x) = -ln 2 within one of the mean, and no density at all elsewhere."""

    def score_samples(self, X):
        return np.where(np.abs(X[:, 0] - self.mean_) <= 1, -np.log(2), -np.inf)


X = np.array([[-1.0], [1.0], [9.0], [11.0]])  # means 0 and 10
LABELS = {
    "numbers": [3, 7],
    "zero and one": [0, 1],
    "minus one and one": [-1, 1],
    "small": np.array([3, 7], dtype=np.int8),
    "unsigned": np.array([3, 7], dtype=np.uint8),
    "long": np.array([3, 7], dtype=np.uint64),
    "whole floats": [3.0, 7.0],
    "bool": [False, True],
    "text": ["cat", "mouse"],
    "objects": np.array(["cat", "mouse"], dtype=object),
}
every_label = pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
without_minus_one = pytest.mark.parametrize(
    "labels", [v for k, v in LABELS.items() if "minus" not in k], ids=[k for k in LABELS if "minus" not in k]
)


def fitted(labels, density=None, **settings):
    labels = np.asarray(labels)
    return PerClass(density or Spike(), **settings).fit(X, labels[[0, 0, 1, 1]])


# -- labels -----------------------------------------------------------------------------------------


@every_label
def test_classes_are_the_labels(labels):
    model = fitted(labels)
    assert model.classes_.tolist() == np.asarray(labels).tolist()
    assert model.classes_.dtype.kind == np.asarray(labels).dtype.kind.replace("O", "U")
    said = model.predict([[0.5], [12.0], [4.0]])
    assert said.tolist() == [labels[0], labels[1], labels[0]]
    assert said.dtype == model.classes_.dtype
    assert model.score(X, np.asarray(labels)[[0, 0, 1, 1]]) == 1.0


@every_label
def test_labels_in_any_container_and_order(labels):
    y = np.asarray(labels)[[1, 0, 1, 0]]
    rows = X[[2, 0, 3, 1]]
    expected = fitted(labels).predict_proba(X)
    for given_y in (y, y.tolist(), pd.Series(y, index=[5, 3, 9, 1])):
        np.testing.assert_array_equal(PerClass(Spike()).fit(rows, given_y).predict_proba(X), expected)


def test_labels_of_tensors():
    torch = pytest.importorskip("torch")
    model = PerClass(Spike()).fit(X, torch.tensor([0, 0, 1, 1]))
    assert model.predict(X).tolist() == [0, 0, 1, 1]


def test_what_minus_one_means():
    codes, classes = class_labels(None, [0, 2, -1, 0], 4)
    assert codes.tolist() == [0, 1, UNLABELLED, 0] and classes.tolist() == [0, 2]
    codes, classes = class_labels(None, [1.0, 2.0, -1.0], 3)
    assert codes.tolist() == [0, 1, UNLABELLED] and classes.tolist() == [1, 2]
    codes, classes = class_labels(None, [1, -1, 1], 3)  # two labels: both are classes
    assert codes.tolist() == [1, 0, 1] and classes.tolist() == [-1, 1]
    codes, classes = class_labels(None, np.array(["b", -1, "a"], dtype=object), 3)
    assert codes.tolist() == [1, UNLABELLED, 0] and classes.tolist() == ["a", "b"]
    codes, classes = class_labels(None, np.array(["b", -1], dtype=object), 2)
    assert codes.tolist() == [0, UNLABELLED] and classes.tolist() == ["b"]
    with pytest.warns(UserWarning, match=r"the text '-1', which is taken for a class.*astype\(object\)"):
        codes, classes = class_labels(None, ["b", "-1", "a"], 3)  # text is a label, whatever it says
    assert codes.tolist() == [2, 0, 1] and classes.tolist() == ["-1", "a", "b"]
    assert class_labels(None, [True, False], 2)[0].tolist() == [1, 0]


def test_labels_of_classes_that_are_known_already():
    codes, classes = class_labels(None, [5, -1, 5], 3, classes=[1, 3, 5])
    assert codes.tolist() == [2, UNLABELLED, 2] and classes.tolist() == [1, 3, 5]
    codes, _ = class_labels(None, [-1, -1], 2, classes=[1, 3])
    assert codes.tolist() == [UNLABELLED] * 2
    codes, _ = class_labels(None, [-1, 1], 2, classes=[-1, 1])
    assert codes.tolist() == [0, 1]
    codes, _ = class_labels(None, ["b"], 1, classes=["a", "b"])
    assert codes.tolist() == [1]
    with pytest.raises(ValueError, match=r"class 4, which is not among \[1, 3\]"):
        class_labels(None, [1, 4], 2, classes=np.array([1, 3]))


@pytest.mark.parametrize(
    "y, says",
    [
        (None, "requires y"),
        ([0, 1, 1], "4 in all, not 3"),
        ([0, 1, np.nan, 1], "NaN; drop unlabelled rows"),
        ([0, 1, np.inf, 1], "infinity"),
        ([0.1, 0.2, 0.3, 0.4], "continuous|Unknown label type"),
        ([-1, -1, -1, -1], "every row is unlabelled"),
        ([0, 1, 2, -1], "use another label for that class"),
        (np.array(["a", "b", None, "a"], dtype=object), "objects: NoneType and str; drop"),
        (pd.Series(["a", None, "b", "a"]), r"y (contains NaN|.*NoneType and str); drop unlabelled rows"),
        (pd.array([0, 1, pd.NA, 1], dtype="Int64"), "NaN"),
        (np.array(["a", 1, "b", 2], dtype=object), "objects: int and str"),
        (np.zeros((4, 2), dtype=int), "1d array"),
    ],
    ids=range(12),
)
def test_labels_that_are_none(y, says):
    with pytest.raises(ValueError, match=says):
        PerClass(Spike()).fit(X, y)


@pytest.mark.parametrize(
    "classes, says",
    [
        ([0], "2 different"),
        ([1, 1], "2 different"),
        ([[0, 1]], "2 different"),
        ([1, 0], "ascending"),
        (["b", "a"], "ascending"),
        ([0.0, np.nan], "finite"),
        ([0.0, np.inf], "finite"),
        ([0, 10**30], "text or finite numbers"),
        ([0j, 1j], "text or finite numbers"),
    ],
    ids=str,
)
def test_classes_that_cannot_be_set(classes, says):
    with pytest.raises(ValueError, match=says):
        PerClass(Spike())._set_classes(classes, 2)


def test_classes_that_can_be_set():
    model = PerClass(Spike())
    for classes, expected in [
        (None, [0, 1]),
        ([-1, 1], [-1, 1]),
        (np.array(["a", "bc"], dtype=object), ["a", "bc"]),
    ]:
        model._set_classes(classes, 2)
        assert model.classes_.tolist() == expected
        assert model.classes_.dtype.kind in "iU"


# -- rejection --------------------------------------------------------------------------------------


def test_nothing_is_rejected_by_default():
    model = fitted([0, 1])
    assert model.reject_below_ == -np.inf
    assert model.accepts([[0.0], [1e9]]).tolist() == [True, True]
    assert model.predict([[-1e9], [1e9]]).tolist() == [0, 1]


@without_minus_one
def test_rejected_rows(labels):
    """ln p(0) is ln 1/4 and a little more; ln p(100) about -90."""
    model = fitted(labels, reject_below=-10.0)
    rows = [[0.0], [100.0], [10.0], [-100.0]]
    assert model.accepts(rows).tolist() == [True, False, True, False]
    rejected = "rejected" if isinstance(np.asarray(labels).tolist()[0], str) else -1
    assert model.rejected_label_ == rejected
    assert model.predict(rows).tolist() == [labels[0], rejected, labels[1], rejected]
    # the kind of answer depends on the model, not on the rows
    assert model.predict(rows[:1]).dtype == model.predict(rows).dtype
    assert model.predict(rows[:1]).tolist() == [labels[0]]
    # posteriors are those of the classes still, and a rejected row is no success
    np.testing.assert_array_equal(model.predict_proba(rows), fitted(labels).predict_proba(rows))
    y = np.asarray(labels)[[0, 0, 1, 1]]
    assert model.score(rows, y) == accuracy_score([0, 0, 1, 1], [0, -1, 1, -1]) == 0.5


@pytest.mark.parametrize("labels", [[-1, 1], [-1.0, 1.0], ["cat", "rejected"]], ids=str)
def test_a_class_that_is_called_what_rejected_rows_are(labels):
    """Also where no row is rejected: an error that depends on the rows would come too late."""
    y = np.asarray(labels)[[0, 0, 1, 1]]
    model = PerClass(Spike()).fit(X, y)
    assert model.predict(X).tolist() == y.tolist()
    model.calibrate_rejection([[5.0], [10.0], [9.0]], acceptance=0.5)
    assert model.accepts([[5.0], [10.0]]).tolist() == [False, True]
    for rows in (X, [[10.0]]):
        with pytest.raises(ValueError, match="is a class"):
            model.predict(rows)


@pytest.mark.parametrize("value", [np.nan, np.inf, "low", True, [1.0], 1j], ids=str)
def test_thresholds_that_are_none(value):
    with pytest.raises(ValueError, match="reject_below"):
        fitted([0, 1], reject_below=value)


@pytest.mark.parametrize("value", [-3, np.float32(-3.0), np.int64(-3), -np.inf])
def test_thresholds_of_all_types(value):
    model = fitted([0, 1], reject_below=value)
    assert type(model.reject_below_) is float and model.reject_below_ == value


def test_calibration_ends_with_the_next_fit():
    model = fitted([0, 1], reject_below=-50.0)
    before = model.reject_below_
    assert model.calibrate_rejection(np.arange(20.0)[:, None]) is model
    assert model.reject_below_ != before and model.reject_below == -50.0
    assert model.fit(X, [0, 0, 1, 1]).reject_below_ == -50.0


def test_rejection_before_the_fit():
    for method in ("accepts", "calibrate_rejection", "predict"):
        with pytest.raises(NotFittedError):
            getattr(PerClass(Spike()), method)(X)
    with pytest.raises(NotFittedError):
        _ = PerClass(Spike()).rejected_label_


def test_rows_without_any_density():
    """Densities of zero leave nothing to go by: classes are equally probable, and the row can be rejected."""
    model = fitted([0, 1], Box())
    rows = [[0.5], [5.0], [10.0]]
    np.testing.assert_allclose(model.score_samples(rows), [np.log(0.25), -np.inf, np.log(0.25)])
    np.testing.assert_allclose(model.predict_proba(rows), [[1, 0], [0.5, 0.5], [0, 1]])
    assert model.predict(rows).tolist() == [0, 0, 1]
    model.calibrate_rejection([*rows, [0.25]], acceptance=0.6)
    assert model.predict(rows).tolist() == [0, -1, 1]
    with pytest.warns(UserWarning, match="same score, -inf"):  # no number is below -inf
        model.calibrate_rejection([[5.0], [6.0], [7.0]], acceptance=0.5)
    assert model.accepts(rows).all()


@pytest.mark.parametrize(
    "model", [PerClass(PPCA(1)), MJFAClassifier(1, 2), MFMClassifier(1, 2)], ids=lambda m: type(m).__name__
)
def test_criteria_are_those_of_rows_and_labels(model):
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = clone(model).set_params(temperature=None).fit(X, names)
    log_joint = model.score_samples(X) + model.predict_log_proba(X)[np.arange(len(y)), y]
    assert model.bic(X, names) == pytest.approx(-2 * log_joint.sum() + model.n_parameters() * np.log(150))
    assert model.aic(X, names) == pytest.approx(-2 * log_joint.sum() + 2 * model.n_parameters())
    assert model.bic(X, names) < model.bic(X, names[::-1])
    with pytest.raises(ValueError, match="requires y"):
        model.bic(X, None)
