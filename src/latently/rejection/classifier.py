"""Scores that any classifier has: how sure it is of a row.

    max_softmax    ln max_c p(c | x)             Hendrycks & Gimpel (2017), ICLR
    energy         ln sum_c exp(logit_c(x))      Liu et al. (2020), NeurIPS

Logits are defined up to a constant of the row, so the energy of a discriminative classifier is a heuristic.
Of a classifier that models p(x, c), such as those of latently, it is ln p(x), up to a constant of all rows.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from latently.estimators.base import Estimator
from latently.estimators.checks import check_choice
from latently.estimators.data import check_data, in_memory
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import estimator, option
from latently.estimators.rejection import Rejecting, remember_rows
from latently.estimators.rows import in_main_memory


@estimator
class ClassifierScore(Rejecting, Estimator):
    """How sure a classifier is of a row, as a score by which rows can be rejected.

    A classifier may be sure of rows unlike all that it has seen: compare this score with that of a density.

    Parameters
    ----------
    classifier : estimator
        Any classifier, of scikit-learn too, with `predict_proba`; for "energy" with `score_samples` or
        `decision_function`. A clone of it is fitted; to use a fitted one, wrap it in scikit-learn's
        `FrozenEstimator`.
    kind : {"max_softmax", "energy"}, default="max_softmax"
        The log probability of the most probable class, or ln of the sum of exp(logits), which is the log
        density ln p(x) of classifiers that have one.
    {options}

    Attributes
    ----------
    classifier_ : estimator
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from latently.rejection import ClassifierScore
    >>> X, y = load_iris(return_X_y=True)
    >>> score = ClassifierScore(LogisticRegression(max_iter=1000)).fit(X[::2], y[::2])
    >>> score = score.calibrate_rejection(X[1::2], acceptance=0.9)
    >>> bool(score.accepts(X[1::2]).mean() >= 0.9)
    True
    """

    classifier: Any
    _: KW_ONLY
    kind: str = option(default="max_softmax", check=check_choice, choices=("max_softmax", "energy"))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if hasattr(self.classifier, "get_params"):
            tags.input_tags.allow_nan = get_tags(self.classifier).input_tags.allow_nan
        return tags

    def fit(self, X, y):
        """Fit the classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            The class of each row.

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            data = check_data(self, in_memory(X), reset=True)
            if y is None:
                raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
            self.classifier_ = clone(self.classifier).fit(data.X, y)
            remember_rows(self, data)
        return self

    def _check_options(self):
        super()._check_options()
        usable = hasattr(self.classifier, "get_params") and not isinstance(self.classifier, type)
        if not usable or not is_classifier(self.classifier):
            raise TypeError(
                f"classifier must be a classifier, such as LogisticRegression(), not {self.classifier!r}"
            )

    @property
    def classes_(self):
        check_is_fitted(self)
        return self.classifier_.classes_

    def score_samples(self, X):
        """The score of each row, (n_samples,); larger is surer."""
        check_is_fitted(self)
        model, rows = self.classifier_, check_data(self, in_memory(X), reset=False).X
        if self.kind == "max_softmax":
            return np.max(_log_probabilities(model, rows), axis=1)
        if hasattr(model, "score_samples"):
            return in_main_memory(model.score_samples(rows))
        if not hasattr(model, "decision_function"):
            raise TypeError(
                f'kind="energy" needs score_samples or decision_function, which {type(model).__name__} lacks'
            )
        logits = np.asarray(model.decision_function(rows), dtype=np.float64)
        if logits.ndim == 1:  # of the second of two classes
            logits = np.stack([np.zeros(len(logits)), logits], axis=1)
        return logsumexp(logits, axis=1)

    # -- files --------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {}

    def _parts(self):
        return {"classifier": self.classifier_}

    def _set_parts(self, classifier):
        if type(classifier) is not type(self.classifier):
            raise ValueError("its classifier does not have the class of its hyper-parameter")
        self.classifier_, self.n_features_in_ = classifier, classifier.n_features_in_

    def _set_fitted_arrays(self):
        """There are none besides those of the classifier."""


def _log_probabilities(model, rows):
    if hasattr(model, "predict_log_proba"):  # more digits where it is nearly sure
        return in_main_memory(model.predict_log_proba(rows))
    if not hasattr(model, "predict_proba"):
        raise TypeError(f'kind="max_softmax" needs predict_proba, which {type(model).__name__} lacks')
    with np.errstate(divide="ignore"):
        return np.log(in_main_memory(model.predict_proba(rows)))
