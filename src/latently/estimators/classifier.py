"""Base of all classifiers: labels of rows, prediction of classes, and rejection.

A subclass provides ln p(x, class), or any numbers that differ from it by a constant of the row, and a score
of the row whatever its class. Rows with a low score can be rejected: a posterior probability only says which
class fits a row best, not whether any class does.

Densities of few rows are too sure of themselves. Posteriors are therefore those of ln p(x, class) / T, with a
temperature T >= 1 under which rows held out of fits to the others are most probable (Guo et al., 2017, ICML).
"""

from __future__ import annotations

import warnings
from numbers import Real
from typing import ClassVar

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from latently.estimators.checks import check_number
from latently.estimators.labels import (
    UNLABELLED,
    checked_classes,
    class_labels,
    classes_for_file,
    classes_from_file,
)
from latently.estimators.rows import in_main_memory

_FOLDS = 5
_SOME = 20  # labelled rows per class, on average, from which on classes may do without borrowed rows
_FEW = 100  # labelled rows per class, on average, below which "auto" learns the temperature
_HOTTEST = 1e12  # of a sharp MFM all log odds are huge
_BRIEF = {"checkpoint": None, "callbacks": None, "verbose": 0, "warm_start": False, "n_init": 1, "tol": 1e-5}


class DensityClassifier(ClassifierMixin):
    """Mixin for classifiers with `score_samples`, such as a density ln p(x), and an option `reject_below`.

    List it before the base class of the estimator. Those that have `n_parameters` also have `bic` and `aic`.
    """

    takes_unlabelled: ClassVar = True
    least_classes: ClassVar = 1
    temperature_ = 1.0

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
        log_joint = np.where(lost, 0.0, log_joint) / self.temperature_
        return log_joint - logsumexp(log_joint, axis=1, keepdims=True)

    def predict_proba(self, X):
        """Posterior probabilities of the classes, (n_samples, n_classes), in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X):
        """Most probable class of each row, or `rejected_label_` if the row is rejected."""
        check_is_fitted(self)
        if self.reject_below_ == -np.inf:
            return self._most_probable(X)
        # an array, so that the dtype of the result has room for the label
        rejected = np.asarray(self.rejected_label_)
        return np.where(self.accepts(X), self._most_probable(X), rejected)

    def _most_probable(self, X):
        return self.classes_[np.argmax(self._class_log_joint(X), axis=1)]

    def accepts(self, X):
        """Whether the log density of each row is at least `reject_below_`, (n_samples,) bool."""
        return in_main_memory(self.score_samples(X)) >= self.reject_below_

    def calibrate_rejection(self, X, acceptance_rate=0.99):
        """Set `reject_below_` so that a given fraction of held-out rows is accepted.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Held-out rows of the known classes: the density of training rows is biased upwards.
        acceptance_rate : float, default=0.99
            The fraction of them to accept.

        Returns
        -------
        self
        """
        check_number("acceptance_rate", acceptance_rate, least=0, most=1)
        scores = np.sort(in_main_memory(self.score_samples(X)))
        n_rejected = int(np.floor((1 - acceptance_rate) * len(scores) + 1e-9))  # (1 - 0.9) * 10 is below 1
        if n_rejected < len(scores):
            self.reject_below_ = float(scores[n_rejected])
        else:
            self.reject_below_ = float(np.nextafter(scores[-1], np.inf))
        return self

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

    def _start_rejecting(self):
        """Set the threshold of a new fit."""
        self.reject_below_ = -np.inf if self.reject_below is None else float(self.reject_below)

    # -- temperature --------------------------------------------------------------------------------

    def _learn_temperature(self, rows, codes, weight):
        """Set `temperature_`, with "auto" by fits without one fold of the labelled rows each.

        `rows` are an array in main memory, else there is nothing to learn: files, streams and devices have
        rows enough. `codes` are the classes, -1 for unlabelled rows. Returns whether rows held out are more
        probable if classes borrow none, where that is to be decided.
        """
        self.temperature_ = 1.0
        if self.temperature is None:
            return False
        if not isinstance(self.temperature, str):
            self.temperature_ = float(self.temperature)
            return False
        if not isinstance(rows, np.ndarray):
            return False
        counted = np.ones(len(rows)) if weight is None else weight
        told = (counted > 0) & (np.any(~np.isnan(rows), axis=1) | (codes != UNLABELLED))
        rows, codes, weight = rows[told], codes[told], None if weight is None else weight[told]
        known = codes != UNLABELLED
        sizes = np.bincount(codes[known], counted[told][known], minlength=len(self.classes_))
        if sizes.mean() >= _FEW or sizes.max() < 2 or len(sizes) < 2:
            return False
        loss, self.temperature_ = self._learnt(rows, codes, weight)
        if sizes.mean() < _SOME or not self._borrows_by_itself():
            return False
        other, temperature = self._learnt(rows, codes, weight, shrinkage=None)
        if other < loss:
            self.temperature_ = temperature
        return other < loss

    def _borrows_by_itself(self):
        """Whether classes borrow rows, by an amount that the user has not given."""
        return False

    def _learnt(self, rows, codes, given, **changes):
        """The log loss of rows held out of fits to the others, and the temperature that minimises it."""
        y = self.classes_[codes]
        if np.any(codes == UNLABELLED):
            y = y.astype(object)
            y[codes == UNLABELLED] = UNLABELLED
        weight = np.ones(len(y)) if given is None else given
        folds = _folds(rows, codes, weight)
        own = self.get_params(deep=False)
        brief = {name: value for name, value in _BRIEF.items() if name in own}
        model = clone(self).set_params(temperature=None, **brief, **changes)
        held_out, told, counted = [], [], []
        for fold in range(_FOLDS):
            others = folds == fold
            if not others.any():
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    model.fit(rows[~others], y[~others], None if given is None else given[~others])
                    joint = model._class_log_joint(rows[others])
                except (ValueError, ArithmeticError):  # fewer rows than the model needs
                    continue
            if len(model.classes_) < len(self.classes_):
                continue
            held_out.append(joint)
            told.append(codes[others])
            counted.append(weight[others])
        if not held_out:
            return np.inf, 1.0
        return _best_temperature(*map(np.concatenate, (held_out, told, counted)))

    # -- files --------------------------------------------------------------------------------------

    def _more_header(self):
        threshold = None if self.reject_below_ == -np.inf else self.reject_below_  # JSON has no infinity
        header = {"classes": classes_for_file(self.classes_), "reject_below": threshold}
        return header | ({"temperature": float(self.temperature_)} if hasattr(self, "temperature") else {})

    def _set_more(self, classes, reject_below, temperature=1.0):
        if type(temperature) is not float or not 0 < temperature < np.inf:
            raise ValueError(f"temperature must be a positive number, not {temperature!r}")
        if hasattr(self, "temperature"):
            self.temperature_ = temperature
        threshold = reject_below
        self.classes_ = classes_from_file(classes, len(self.classes_))
        if threshold is not None and (type(threshold) is not float or not np.isfinite(threshold)):
            raise ValueError(f"reject_below must be a finite number or null, not {threshold!r}")
        self.reject_below_ = -np.inf if threshold is None else threshold


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


def _best_temperature(log_joint, codes, weight):
    """The least log loss of rows with ln p(x, class) (n, C), and the T >= 1 that gives it."""
    finite = np.isfinite(log_joint).all(axis=1)
    log_joint, codes, weight = log_joint[finite], codes[finite], weight[finite]
    if not len(codes):
        return np.inf, 1.0

    def loss(log_temperature):
        cooled = log_joint / np.exp(log_temperature)
        own = cooled[np.arange(len(codes)), codes]
        return weight @ (logsumexp(cooled, axis=1) - own)

    grid = np.linspace(0.0, np.log(_HOTTEST), 100)
    best = int(np.argmin([loss(value) for value in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-3})
    plain = loss(0.0)
    return (float(found.fun), float(np.exp(found.x))) if found.fun < plain else (float(plain), 1.0)


def check_temperature(name, value):
    """A temperature of posteriors: "auto", a number, or None for one."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return
    if isinstance(value, (str, bool)) or not isinstance(value, Real) or not 0 < float(value) < np.inf:
        raise ValueError(f"{name} must be 'auto', None or a positive number, not {value!r}")


def check_threshold(name, value):
    """A log density below which rows are rejected, or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not value < np.inf:
        raise ValueError(f"{name} must be a log density, or None to reject nothing, not {value!r}")
