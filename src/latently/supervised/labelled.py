"""Methods of mixtures that are classifiers: labels are classes instead of components.

They are functions that such a classifier assigns as its methods. It implements `_n_classes_of(given)`, the
number of classes that given parameters imply, and `_class_of_draw(latent)`, the class of each row drawn.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latently.backend.namespace import like
from latently.estimators import em
from latently.estimators.checks import check_number
from latently.estimators.classifier import FEW
from latently.estimators.labels import UNLABELLED
from latently.estimators.messages import InterruptedWarning
from latently.estimators.weights import in_rows
from latently.mixture.base import MixtureEstimator
from latently.supervised.far_behind import warn_if_far_behind
from latently.supervised.few_rows import FewRows, KnownClasses

# How many times the weight of labelled rows unlabelled ones have at most by default, and the share of them
# that has to keep the class that labelled rows alone give them; otherwise the next, and at last none.
_MOST_UNLABELLED = ((3.0, 0.95), (0.3, 0.9))


def fit(self, X, y=None, sample_weight=None):
    """Fit the model to all classes jointly by expectation-maximisation.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features), path or blocks
        The rows, as for all mixtures. NaN marks a missing entry.
    y : array-like of shape (n_samples,)
        The class of each row, as numbers or text; -1 for unlabelled rows. If y holds only two labels and one
        of them is -1, it is a class.
    sample_weight : array-like of shape (n_samples,), optional
        Weight of each row, in any unit; integers without a common divisor are copies of rows.

    Returns
    -------
    self
    """
    _require_labels(self, y)
    return MixtureEstimator.fit(self, X, y, sample_weight)


def partial_fit(self, X, y=None, sample_weight=None, classes=None):
    """Update the model with a batch of rows, by stepwise EM.

    Parameters
    ----------
    X, y, sample_weight
        As for `fit`. The first batch determines the starting values, so it should hold rows of all classes.
    classes : array-like of shape (n_classes,), optional
        All classes, given with the first batch; by default those among its labels.

    Returns
    -------
    self
    """
    _require_labels(self, y)
    self._declared = None if classes is None else np.unique(classes)
    try:
        em.partial_fit(self, X, y, sample_weight)
    finally:
        vars(self).pop("_declared", None)
    return self


def sample(self, n_samples=1, *, random_state=None):
    """Draw rows and their classes from the model.

    Parameters
    ----------
    n_samples : int, default=1
    random_state : int, Generator, RandomState or None
        Seed of this draw; the estimator's `random_state` is used by `fit` only.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
    """
    X, latent = MixtureEstimator.sample(self, n_samples, random_state=random_state)
    return X, self.classes_[self._class_of_draw(latent)]


def allowed_classes(self, y, n_rows, *, reset):
    """(n_rows, C) bool: the class of each row, all classes if it is unlabelled; None if all rows are."""
    classes = getattr(self, "_declared", None) if reset else self.classes_
    codes = self._encoded(y, n_rows, classes)
    of_class = (codes[:, None] == np.arange(len(self.classes_))) | (codes[:, None] == UNLABELLED)
    return None if of_class.all() else of_class


def known_classes(self, data):
    """What is known of the classes of rows; None if labels tell nothing."""
    if data.field("allowed") is None:
        return None
    return KnownClasses(data, n_classes(self), self.block_size)


@dataclass(frozen=True)
class Learnt:
    """What is known before a fit."""

    amount: Any = None  # of rows that classes borrow
    few: FewRows | None = None  # some rows in main memory
    interrupted: bool = False  # by the user
    most_unlabelled: float = _MOST_UNLABELLED[0][0]  # times the weight of labelled rows


def learn(self, known):
    """How much classes borrow and, where rows are few, the temperature, from a sample of any rows."""
    self._calibrate(self._given_calibration())
    borrows = getattr(self, "shrinkage", None) not in (None, 0)
    if known is None or not (borrows or self._learns() or _may_be_outweighed(self, known.unlabelled)):
        return Learnt()
    few, most = known.sample(), Learnt.most_unlabelled
    if _may_be_outweighed(self, few.codes == UNLABELLED):
        try:
            most = _most_unlabelled(self, few)
        except (KeyboardInterrupt, InterruptedWarning):
            return Learnt(getattr(self, "shrinkage", None), few, interrupted=True)
        few = _with_unlabelled(few, most)
    if known.sizes().mean() < FEW:
        amount, interrupted = self._learn(few.X, few.codes, few.weight)
        return Learnt(amount, few, interrupted, most)
    amount = None if self._borrows_by_itself() else getattr(self, "shrinkage", None)
    return Learnt(amount, few, most_unlabelled=most)


def _may_be_outweighed(self, unlabelled):
    by_itself = isinstance(self.unlabelled_weight, str) and self.prior is not None
    return by_itself and self._chooses and n_classes(self) > 1 and bool(np.any(unlabelled))


def _most_unlabelled(self, few):
    """What unlabelled rows may count for without turning the classes away from the labels.

    That is the most with which nearly all of them get the class that a fit to the labelled rows alone gives
    them, and labelled rows get their own as often as from that fit: those that change for the worse are not
    more than the others by over one standard error.
    """
    told, rows = few.where(few.codes != UNLABELLED), few.where(few.codes == UNLABELLED)
    alone = _quick_classes(self, told, few.X)
    if alone is None:
        return Learnt.most_unlabelled
    for most, unchanged in _MOST_UNLABELLED:
        together = _quick_classes(self, _with_unlabelled(few, most), few.X)
        if together is None:
            return most
        known = few.codes != UNLABELLED
        same = (together == alone)[~known]
        right = [(found == few.codes)[known] for found in (alone, together)]
        lost, won = (told.weight[one & ~other].sum() for one, other in (right, right[::-1]))
        if rows.weight @ same >= unchanged * rows.weight.sum() and lost - won <= np.sqrt(lost + won):
            return most
    return 0.0


def _quick_classes(self, given, X):
    """(n,) the classes of rows by a quick fit to those given; None if it needs more rows."""
    model = self._brief_copy(unlabelled_weight=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", InterruptedWarning)
        try:
            model.fit(given.X, given.codes, in_rows(given.weight))
        except (ValueError, ArithmeticError):
            return None
    return model._class_log_joint(X).argmax(axis=1) if len(model.classes_) == n_classes(self) else None


def _with_unlabelled(few, most):
    """The rows, unlabelled ones with at most so many times the weight of the others."""
    if most == 0:
        return few.labelled()
    unlabelled = few.codes == UNLABELLED
    share = _share_of_unlabelled(few.weight, unlabelled, most)
    return replace(few, weight=np.where(unlabelled, share, 1.0) * few.weight)


def _share_of_unlabelled(weight, unlabelled, most):
    """What unlabelled rows count for if they may have `most` times the weight of the others."""
    total = weight[unlabelled].sum()
    return min(1.0, most * weight[~unlabelled].sum() / total) if total > 0 else 1.0


def fit_learnt(self, data, known, learnt):
    """Fit the mixture to rows; of many rows, learn the temperature afterwards."""
    self._interrupted = learnt.interrupted
    try:
        MixtureEstimator._fit(self, data)
    finally:
        self.__dict__.pop("_interrupted", None)
    if learnt.few is not None and known.sizes().mean() >= FEW:
        rows = learnt.few.labelled()
        self._learn_from_fit(like(rows.X, self.history_), rows.codes, rows.weight)
    if learnt.few is not None and self._chooses and not learnt.interrupted:
        warn_if_far_behind(self, learnt.few)


def start(self, problem, progress=None):
    """Starting values; the first ones, if the user interrupted before."""
    if getattr(self, "_interrupted", False):
        return self._first_start(problem, progress)
    return MixtureEstimator._start(self, problem, progress)


def lightened(self, data, known, learnt):
    """The rows with unlabelled ones counted as `unlabelled_weight` says."""
    if known is None or self.unlabelled_weight == 1 or not np.any(known.codes == UNLABELLED):
        return data
    weight, unlabelled = known.weight, known.unlabelled
    if isinstance(self.unlabelled_weight, str):
        if self.prior is None:  # maximum likelihood
            return data
        told = unlabelled | known.labelled
        share = _share_of_unlabelled(weight[told], unlabelled[told], learnt.most_unlabelled)
    else:
        share = float(self.unlabelled_weight)
    lighter = data.with_field("weight", np.where(known.codes == UNLABELLED, share * weight, weight))
    told = unlabelled | known.labelled
    lighter.given = int(told.sum()), float(weight[told].sum())
    return lighter


def prior(self, family, frame, data, summary, floor):
    """That of the rows as given: light weights of some must not make the prior lighter."""
    if getattr(data, "given", None) is not None:
        summary = replace(summary, n_rows=data.given[0], total_weight=data.given[1])
    return MixtureEstimator._prior(self, family, frame, data, summary, floor)


def check_unlabelled_weight(name, value):
    """The weight of unlabelled rows: "auto", or a number from 0 to 1."""
    if isinstance(value, str) and value == "auto":
        return
    if isinstance(value, str) or value is None:
        raise ValueError(f"{name} must be 'auto' or a number from 0 to 1, not {value!r}")
    check_number(name, value, least=0, most=1)


def set_fitted_arrays(self, **given):
    self._set_classes(None, self._n_classes_of(given))
    MixtureEstimator._set_fitted_arrays(self, **given)


def n_classes(model):
    return len(model.classes_) if hasattr(model, "classes_") else 1


def with_tags(model, tags):
    """scikit-learn's tags of a mixture that is a classifier."""
    tags.array_api_support = False  # rows may be on any device, but labels, which may be text, are NumPy's
    tags.classifier_tags.poor_score = model.n_factors == 1  # one factor cannot separate many classes
    return tags


def _require_labels(model, y):
    if y is None:
        raise ValueError(f"{type(model).__name__} requires y to be passed, but the target y is None")
