"""A warning where a classifier is far behind a simple one, because its model cannot tell the classes apart.

Densities that share a few factors explain the rows, and may leave out what the classes differ in. That shows
in the labelled rows themselves: if far fewer of them get their class, though they were seen, than linear
discriminant analysis predicts of rows held out, the model does not suit them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from latently.backend.namespace import Floats, like
from latently.estimators.labels import UNLABELLED
from latently.estimators.messages import warn_user
from latently.mixture.starts import principal_scores
from latently.supervised.few_rows import FewRows

_FOLDS = 3
_SCORES = 50  # leading principal components that are compared with
_LARGE_WEIGHT = 100.0  # of labels
_FAR = 0.1  # difference of two shares of rows
_ERRORS = 3.0  # standard errors of such a share that the difference has to have, too


def warn_if_far_behind(model: Any, rows: FewRows) -> None:
    """Warn if the model fitted to these rows gives many of the labelled ones a wrong class without need."""
    outweighed, rows = bool(np.any(rows.codes == UNLABELLED)), rows.labelled()
    sizes = np.bincount(rows.codes)
    rows = rows.where(sizes[rows.codes] >= _FOLDS)
    if len(np.unique(rows.codes)) < 2:
        return
    X = _without_gaps(rows.X)
    if not X.any():
        return
    wrong = model._own_log_joint(like(rows.X, model.history_)).argmax(axis=1) != rows.codes
    if np.mean(wrong) < _FAR:
        return
    others = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    told = cross_val_predict(others, X, rows.codes, cv=StratifiedKFold(_FOLDS)) == rows.codes
    own, theirs = 1.0 - float(np.mean(wrong)), float(np.mean(told))
    if theirs - own > max(_FAR, _ERRORS * np.sqrt(0.25 / len(told))):
        warn_user(
            f"{type(model).__name__} does not tell the classes apart: of {len(told)} labelled rows {own:.0%} "
            f"get their class, but linear discriminant analysis predicts {theirs:.0%} of rows that it has "
            f"not seen; {_reason(model, outweighed)}"
        )


def _reason(model: Any, outweighed: bool) -> str:
    C = len(model.classes_)
    if model.n_factors < C and not hasattr(model, "discriminative_weight"):
        return (
            f"n_factors={model.n_factors} and n_components={model.n_components} may be too few for {C} "
            f"classes: n_factors={C} has room for all their means"
        )
    if outweighed:
        return "the unlabelled rows may outweigh the labels: compare with unlabelled_weight=0"
    if hasattr(model, "discriminative_weight"):
        return (
            f"n_factors={model.n_factors} may be too few, or describe the rows instead of the classes: "
            f"labels count more with a larger discriminative_weight, such as {_LARGE_WEIGHT:g}"
        )
    return f"n_components={model.n_components} may be too few"


def _without_gaps(X: Floats) -> Floats:
    """Leading principal scores of the standardised rows, with the mean for missing entries."""
    with np.errstate(all="ignore"):
        mean = np.nan_to_num(np.nansum(X, axis=0) / np.sum(np.isfinite(X), axis=0))
        X = np.where(np.isnan(X), mean, X).astype(np.float64)
        unit = X.std(axis=0)
    X = (X - mean) / np.where(unit > 0, unit, 1.0)
    if X.shape[1] <= _SCORES:
        return X
    scores: Floats = principal_scores(X, np.ones(len(X)), _SCORES)
    return scores
