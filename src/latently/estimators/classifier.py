"""Base of all classifiers: labels of rows, prediction of classes, and rejection.

A subclass provides ln p(x, class), or any numbers that differ from it by a constant of the row, and a score
of the row whatever its class. Rows with a low score can be rejected: a posterior probability only says which
class fits a row best, not whether any class does.

Densities are too sure of themselves, those of few rows most. Posteriors are therefore those of
ln p(x, class) / T with a temperature T >= 1 (Guo et al., 2017, ICML), of which a share is replaced by equal
probabilities of all classes, the doubt: a row far from all that a model has seen may be wrong by thousands of
nats. Under both the classes of labelled rows are most probable: where rows are few, of rows held out of fits
to the others; else of the rows of the fit.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax, logsumexp
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from latently.estimators.labels import (
    UNLABELLED,
    checked_classes,
    class_labels,
    classes_for_file,
    classes_from_file,
)
from latently.estimators.messages import InterruptedWarning, warn_user
from latently.estimators.rejection import Rejecting
from latently.estimators.rows import in_main_memory
from latently.estimators.weights import in_rows

FEW = 100  # labelled rows per class, on average, below which models are cross-validated
_FOLDS = 5
_SOME = 20  # labelled rows per class, on average, from which on classes may do without borrowed rows
_HOTTEST = 1e6  # of a sharp MFM all log odds are huge
_MOST_DOUBT = 0.98  # beyond which posteriors would not even rank classes
_MISSED = 0.25  # rows beyond those at hand that are taken to be predicted wrongly
_LEAST_GAIN = 1.0  # nats by which labels held out are more probable than by a guess, or there is a warning
_BRIEF = {"checkpoint": None, "callbacks": None, "verbose": 0, "warm_start": False, "n_init": 1}
_LOOSEST, _LONGEST = 1e-4, 100  # tolerance and iterations of these fits, where their own ask for more


class DensityClassifier(ClassifierMixin, Rejecting):
    """Mixin for classifiers with `score_samples`, such as a density ln p(x).

    List it before the base class of the estimator. Those that have `n_parameters` also have `bic` and `aic`.
    """

    takes_unlabelled: ClassVar = True
    least_classes: ClassVar = 1
    temperature_ = 1.0
    doubt_ = 0.0
    _chooses = True  # whether a fit may decide by cross-validation what it borrows

    # -- what a subclass provides -------------------------------------------------------------------

    def _class_log_joint(self, X):
        """(n_samples, n_classes) ln p(x, class). A subclass also has `score_samples`, which gives ln p(x)."""
        raise NotImplementedError

    # -- labels -------------------------------------------------------------------------------------

    def _encoded(self, y, n_rows, classes=None):
        """Index of each row's class, -1 if unlabelled; sets `classes_` unless they are given."""
        codes, found = class_labels(self, y, n_rows, classes)
        if not self.takes_unlabelled and np.any(codes == UNLABELLED):
            raise ValueError(
                f"{type(self).__name__} needs a class for every row, but y holds -1, which marks unlabelled "
                "rows; drop these rows, or use another label for that class"
            )
        if len(found) < self.least_classes:
            raise ValueError(
                f"{type(self).__name__} needs at least {self.least_classes} classes in y, but there is only "
                f"the class {found.tolist()[0]!r}"
            )
        self.classes_ = found
        return codes

    def _set_classes(self, classes, n_classes):
        """Labels for a model with known parameters; 0, 1, ... by default."""
        self.classes_ = checked_classes(classes, n_classes)

    # -- decisions ----------------------------------------------------------------------------------

    def predict_log_proba(self, X):
        """Log posterior probabilities of the classes, (n_samples, n_classes).

        Where every density underflows to zero, classes are equally probable.
        """
        check_is_fitted(self)
        log_joint = self._class_log_joint(X)
        lost = np.max(log_joint, axis=1, keepdims=True) == -np.inf
        found = log_posteriors(np.where(lost, 0.0, log_joint), self.temperature_)
        if self.doubt_ == 0:
            return found
        return np.logaddexp(found + np.log1p(-self.doubt_), np.log(self.doubt_ / found.shape[1]))

    def predict_proba(self, X):
        """Posterior probabilities of the classes, (n_samples, n_classes), in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X):
        """Most probable class of each row, or `rejected_label_` if the row is rejected."""
        check_is_fitted(self)
        if np.all(self.reject_below_ == -np.inf):
            return self._most_probable(X)
        # an array, so that the dtype of the result has room for the label
        rejected = np.asarray(self.rejected_label_)
        return np.where(self.accepts(X), self._most_probable(X), rejected)

    def _most_probable(self, X):
        return self.classes_[np.argmax(self._class_log_joint(X), axis=1)]

    def _class_scores(self, X):
        """(n_samples, n_classes) the score of the row and its posterior: ln p(x, class) of a density."""
        scores = in_main_memory(self.score_samples(X))[:, None]
        log_joint = in_main_memory(self._class_log_joint(X))
        lost = np.max(log_joint, axis=1, keepdims=True) == -np.inf
        posteriors = log_posteriors(np.where(lost, 0.0, log_joint), 1.0)
        return np.where(lost, scores, scores + posteriors)

    def _calibration_groups(self, y, n_rows, per_class):
        if y is None and per_class:
            raise ValueError("per_class=True needs y, the classes of the calibration rows")
        return None if y is None else self._encoded(y, n_rows, self.classes_)

    @available_if(lambda self: hasattr(self, "n_parameters"))
    def bic(self, X, y=None):
        """Bayesian information criterion for the joint density p(x, class); lower is better.

        Unlabelled rows (-1) contribute ln p(x).
        """
        scores = self._joint_scores(X, y)
        return float(-2 * scores.sum() + self.n_parameters() * np.log(len(scores)))

    @available_if(lambda self: hasattr(self, "n_parameters"))
    def aic(self, X, y=None):
        """Akaike information criterion for the joint density p(x, class); lower is better."""
        return float(-2 * self._joint_scores(X, y).sum() + 2 * self.n_parameters())

    def _joint_scores(self, X, y):
        """(n_samples,) ln p(x, class), or ln p(x) for unlabelled rows."""
        check_is_fitted(self)
        log_joint = self._class_log_joint(X)
        codes = self._encoded(y, len(log_joint), self.classes_)
        own = log_joint[np.arange(len(codes)), codes]
        return np.where(codes == UNLABELLED, logsumexp(log_joint, axis=1), own)

    @property
    def rejected_label_(self):
        """The label that `predict` gives rejected rows: -1, or "rejected" if labels are text."""
        check_is_fitted(self)
        label = "rejected" if self.classes_.dtype.kind == "U" else UNLABELLED
        if label in self.classes_:
            raise ValueError(
                f"{label!r} is a class, so it cannot mark rejected rows; use another label for that class, "
                "or `accepts` and `predict_proba`"
            )
        return label

    # -- temperature --------------------------------------------------------------------------------

    def _learn(self, rows, codes, weight):
        """Set `temperature_` and `doubt_` by fits without one fold of the labelled rows each, if asked for.

        `rows` are a NumPy array, `codes` their classes, -1 for unlabelled rows. Returns how much classes
        borrow, and whether the user interrupted.
        """
        self._calibrate(self._given_calibration())
        asked = getattr(self, "shrinkage", None)
        known = codes != UNLABELLED
        sizes = np.bincount(codes[known], weight[known], minlength=len(self.classes_))
        if sizes.max() < 2 or len(sizes) < 2:
            return asked, False
        undecided = sizes.mean() >= _SOME and self._chooses and self._borrows_by_itself()
        amounts = [asked, None] if undecided else [asked]
        if len(amounts) == 1 and not self._learns():
            return asked, False
        try:
            found = [self._held_out(rows, codes, weight, amount) for amount in amounts]
        except (KeyboardInterrupt, InterruptedWarning):
            return asked, True
        amount, best = amounts[0], found[0]
        if len(found) > 1 and found[1].loss < best.loss:
            amount, best = amounts[1], found[1]
        if self._learns():
            self._calibrate(best)
            if best.gain < _LEAST_GAIN:
                warn_user(
                    f"{type(self).__name__} is hardly better than a guess: the labels of {int(known.sum())} "
                    "rows, predicted by fits without them, are together "
                    f"{np.exp(max(best.gain, 0)):.2g} times as probable as with equal probabilities of all "
                    "classes; label more rows, or compare with other models and features by held-out labels"
                )
        return amount, False

    def _learn_from_fit(self, rows, codes, weight):
        """Set `temperature_` and `doubt_` by labelled rows of the fit, which are many."""
        if self._learns():
            self._calibrate(calibrated(self._own_log_joint(rows), codes, weight))

    def _own_log_joint(self, rows):
        """`_class_log_joint` of rows of the fit, which have lost the names of their columns."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._class_log_joint(rows)

    def _calibrate(self, found):
        self.temperature_, self.doubt_ = found.temperature, found.doubt

    def _learns(self):
        return isinstance(self.temperature, str)

    def _given_calibration(self):
        return Calibration(1.0 if self.temperature is None or self._learns() else float(self.temperature))

    def _borrows_by_itself(self):
        """Whether classes borrow rows, by an amount that the user has not given."""
        return False

    def _held_out(self, rows, codes, weight, amount):
        """What is best for rows held out of fits to the others."""
        folds, unweighted = _folds(rows, codes, weight), bool(np.all(weight == 1.0))
        model = self._brief_copy(**({"shrinkage": amount} if hasattr(self, "shrinkage") else {}))
        joint, told, counted = [], [], []
        for fold in range(_FOLDS):
            others = folds == fold
            if not others.any():
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.simplefilter("error", InterruptedWarning)
                try:
                    model.fit(rows[~others], codes[~others], None if unweighted else in_rows(weight[~others]))
                    found = model._class_log_joint(rows[others])
                except (ValueError, ArithmeticError):  # fewer rows than the model needs
                    continue
            if len(model.classes_) < len(self.classes_):
                continue
            joint.append(found)
            told.append(codes[others])
            counted.append(weight[others])
        if not joint:
            return Calibration(loss=np.inf)
        return calibrated(*map(np.concatenate, (joint, told, counted)))

    def _brief_copy(self, **options):
        """An unfitted copy for quick fits, which decides nothing by further fits."""
        model = clone(self).set_params(temperature=None, **options)
        for fitted in (model, *([model.density] if hasattr(model, "density") else [])):
            given = fitted.get_params(deep=False)
            brief = {name: value for name, value in _BRIEF.items() if name in given}
            if {"tol", "max_iter"} <= set(given):
                brief["tol"] = max(given["tol"], _LOOSEST)
                brief["max_iter"] = min(given["max_iter"], _LONGEST)
            fitted.set_params(**brief)
        model._chooses = False
        return model

    # -- files --------------------------------------------------------------------------------------

    def _more_header(self):
        header = {"classes": classes_for_file(self.classes_)}
        if not hasattr(self, "temperature"):
            return header
        return header | {"temperature": float(self.temperature_), "doubt": float(self.doubt_)}

    def _set_more(self, classes, temperature=1.0, doubt=0.0, reject_below=None):
        if type(temperature) is not float or not 0 < temperature < np.inf:
            raise ValueError(f"temperature must be a positive number, not {temperature!r}")
        if type(doubt) is not float or not 0 <= doubt < 1:
            raise ValueError(f"doubt must be at least 0 and below 1, not {doubt!r}")
        if hasattr(self, "temperature"):
            self.temperature_, self.doubt_ = temperature, doubt
        self.classes_ = classes_from_file(classes, len(self.classes_))
        if reject_below is not None:  # files of early versions: a threshold that may have been calibrated
            self._set_rejection({"reject_below": reject_below, "acceptance": None, "n_rows": None})


def _folds(rows, codes, weight):
    """(n,) the fold of each row, -1 for unlabelled ones and for classes of one row.

    It depends on the rows alone, not on their order or on whether they are weighted or repeated: rows of a
    class are assigned in the order of their projections on a fixed direction, equal ones together.
    """
    rows = np.where(np.isnan(rows), 0.0, rows.astype(np.float64))
    mean = np.average(rows, axis=0, weights=weight)
    unit = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weight))
    scaled = (rows - mean) / np.where(unit > 0, unit, 1.0)
    along = np.round(scaled @ np.random.default_rng(0).standard_normal(rows.shape[1]), 9)
    folds = np.full(len(rows), -1)
    for c in range(codes.max() + 1):
        own = np.flatnonzero((codes == c) & (weight > 0))
        places = np.unique(along[own], return_inverse=True)[1]
        if places.max(initial=0) > 0:
            folds[own] = (places + c) % _FOLDS
    return folds


@dataclass(frozen=True)
class Calibration:
    temperature: float = 1.0
    doubt: float = 0.0
    loss: float = 0.0  # the mean log loss of labelled rows under both
    gain: float = np.inf  # nats by which their labels are more probable than by a guess, in all


def calibrated(log_joint, codes, weight):
    """Temperature and doubt with the least log loss of rows with ln p(x, class) (n, C).

    A further quarter of a row is taken to be predicted wrongly, with probability zero, so that there is some
    doubt always: that no held-out row is, does not mean that none will be.
    """
    finite = np.isfinite(log_joint).all(axis=1)
    log_joint, codes, weight = log_joint[finite], codes[finite], weight[finite]
    if not len(codes):
        return Calibration(loss=np.inf)
    n, C = weight.sum(), log_joint.shape[1]

    def best_doubt(log_temperature):
        own = np.exp(log_posteriors(log_joint, np.exp(log_temperature))[np.arange(len(codes)), codes])

        def loss(doubt):
            return -weight @ np.log((1 - doubt) * own + doubt / C) - _MISSED * np.log(doubt / C)

        # convex in the doubt: the root of the derivative, which rises
        def slope(doubt):
            return -weight @ ((1 / C - own) / ((1 - doubt) * own + doubt / C)) - _MISSED / doubt

        low = _MISSED / (n * C + _MISSED) / 2
        if slope(_MOST_DOUBT) <= 0:
            doubt = _MOST_DOUBT
        else:
            doubt = low if slope(low) >= 0 else float(brentq(slope, low, _MOST_DOUBT))
        return doubt, float(loss(doubt))

    grid = np.linspace(0.0, np.log(_HOTTEST), 60)
    best = int(np.argmin([best_doubt(value)[1] for value in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(
        lambda value: best_doubt(value)[1], bounds=around, method="bounded", options={"xatol": 1e-3}
    ).x
    found = round(float(found), 2)  # the loss is flat there: its last digits must not decide
    if best_doubt(0.0)[1] <= best_doubt(found)[1]:
        found = 0.0
    doubt, total = best_doubt(found)
    gain = n * np.log(C) - (total + _MISSED * np.log(doubt / C))
    return Calibration(float(np.exp(found)), doubt, total / n, float(gain))


def log_posteriors(log_joint, temperature):
    """(n, C) ln P(class | x) of ln p(x, class) at a temperature."""
    cooled = log_joint / temperature
    return log_softmax(cooled, axis=1)  # relative to the largest: ln 2 is lost beside logarithms of 1e20


def check_temperature(name, value):
    """A temperature of posteriors: "auto", a number, or None for one."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return
    if isinstance(value, (str, bool)) or not isinstance(value, Real) or not 0 < float(value) < np.inf:
        raise ValueError(f"{name} must be 'auto', None or a positive number, not {value!r}")
