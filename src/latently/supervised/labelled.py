"""Methods of mixtures that are classifiers: labels are classes instead of components.

They are functions that such a classifier assigns as its methods. It implements `_n_classes_of(given)`, the
number of classes that given parameters imply, and `_class_of_draw(latent)`, the class of each row drawn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from latently.backend.namespace import is_numpy, namespace, to_numpy
from latently.estimators import em
from latently.estimators.checks import check_number
from latently.estimators.labels import UNLABELLED
from latently.mixture.base import MixtureEstimator

_MOST_UNLABELLED = 3.0  # times the weight of labelled rows that unlabelled ones have at most, by default


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
        Weight of each row; an integer weight is equivalent to repeating the row.

    Returns
    -------
    self
    """
    _require_labels(self, y)
    MixtureEstimator.fit(self, X, y, sample_weight)
    self._start_rejecting()
    return self


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
    if not hasattr(self, "reject_below_"):
        self._start_rejecting()
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


def learn_temperature(self, data):
    """As the classifier learns it, from the rows of a fit; whether classes are to borrow nothing."""
    allowed, weight = data.field("allowed"), data.field("weight")
    if allowed is None or not data.in_memory or not is_numpy(data.X):
        return self._learn_temperature(None, None, None)
    of_class = allowed[:, :: allowed.shape[1] // len(self.classes_)]
    codes = np.where(of_class.all(axis=1), UNLABELLED, np.argmax(of_class, axis=1))
    return self._learn_temperature(data.X, codes, weight)


def lightened(self, data):
    """The rows with unlabelled ones counted as `unlabelled_weight` says."""
    allowed = data.field("allowed")
    if allowed is None or self.unlabelled_weight == 1:
        return data
    unlabelled: Any = to_numpy(allowed).all(axis=1)
    if not unlabelled.any():
        return data
    weight = data.field("weight")
    weight = np.ones(len(unlabelled)) if weight is None else to_numpy(weight)
    told = weight > 0
    if data.in_memory and unlabelled.any():
        told &= ~unlabelled | to_numpy(~namespace(data.X).all(namespace(data.X).isnan(data.X), axis=1))
    if isinstance(self.unlabelled_weight, str):
        if self.prior is None:  # maximum likelihood
            return data
        total = weight[unlabelled & told].sum()
        share = min(1.0, _MOST_UNLABELLED * weight[~unlabelled].sum() / total) if total > 0 else 1.0
    else:
        share = float(self.unlabelled_weight)
    lighter = data.with_field("weight", np.where(unlabelled, share * weight, weight))
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
    self._start_rejecting()


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
