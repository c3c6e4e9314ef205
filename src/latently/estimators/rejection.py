"""Rejection of rows unlike those of the fit: one threshold for all densities and classifiers.

A row is accepted if its score, `score_samples`, is at least `reject_below_`. The threshold is given
(`reject_below`), or calibrated on held-out rows so that new rows of the same kind are accepted with at least
a given probability (`core.conformal`). Per class, a row is accepted if for some class c its score as a
member, ln p(x, c), is at least the threshold of c, calibrated on the held-out rows of c: then rows of every
class are accepted with that probability, not only rows on average.

Scores of rows that were trained on are too high, and a threshold from them rejects too many new rows. So
a fit keeps a fingerprint of its rows, and calibration compares.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom
from sklearn.utils.validation import check_is_fitted

from latently.backend.hashing import row_hashes
from latently.backend.namespace import is_sparse
from latently.core import conformal
from latently.core.block import slices
from latently.core.data import Data
from latently.estimators.checks import check_flag
from latently.estimators.data import check_data, is_dask
from latently.estimators.messages import warn_user
from latently.estimators.options import estimator, option
from latently.estimators.rows import in_main_memory

_KEPT = 4096  # hashes in a fingerprint: 32 kB; enough to notice 1000 rows of a million
_CERTAIN = 1e-3  # chance of so many equal rows below which calibration rows are taken to be those of the fit
_PIECE = 2**20  # entries hashed at a time
_TIED = 0.05  # share of rows accepted beyond the rate, because of ties, from which on users are told


def check_threshold(name, value):
    """A score below which rows are rejected, or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not value < np.inf:
        raise ValueError(f"{name} must be a number, or None to reject nothing, not {value!r}")


def check_acceptance(name, value):
    """A share of rows to accept, above zero and below one."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must be a number between 0 and 1, such as 0.95, not {value!r}")


@dataclass(frozen=True)
class Rejection:
    """A calibrated threshold, and what it was calibrated for, which early files do not tell."""

    reject_below: Any  # float; or (n_classes,) ndarray, a threshold for each class
    acceptance: float | None  # the rate asked for
    n_rows: Any  # held-out rows; or (n_classes,) ndarray, those of each class

    def for_file(self):
        below = [float(value) if np.isfinite(value) else None for value in np.atleast_1d(self.reject_below)]
        return {
            "reject_below": below if np.ndim(self.reject_below) else below[0],
            "acceptance": self.acceptance,
            "n_rows": self.n_rows.tolist() if np.ndim(self.n_rows) else self.n_rows,
        }

    @classmethod
    def from_file(cls, n_classes, *, reject_below, acceptance, n_rows):
        """A record that `for_file` made; ValueError if it is not one."""
        per_class = isinstance(reject_below, list)
        values, counts = (reject_below, n_rows) if per_class else ([reject_below], [n_rows])
        for value in values:
            if value is not None and (type(value) is not float or not np.isfinite(value)):
                raise ValueError(f"reject_below must be a finite number or null, not {value!r}")
        if acceptance is not None:
            check_acceptance("acceptance", acceptance)
            if not isinstance(counts, list) or any(type(count) is not int or count < 0 for count in counts):
                raise ValueError(f"n_rows must be numbers of rows, not {n_rows!r}")
        if per_class and not (len(values) == n_classes and len(counts) == n_classes):
            raise ValueError("it must have a threshold and a number of rows for each class")
        limits = np.array([-np.inf if value is None else value for value in values])
        return (
            cls(limits, acceptance, np.array(counts))
            if per_class
            else cls(float(limits[0]), acceptance, n_rows)
        )


@estimator
class Rejecting:
    """Mixin of models with `score_samples`: they reject rows with a low score.

    Its fits call `remember_rows`, which ends an earlier calibration.

    Parameters
    ----------
    reject_below : float, optional
        Rows whose `score_samples` is below this value are rejected: `accepts` is False, and the `predict` of
        classifiers gives `rejected_label_`. By default no row is; see also `calibrate_rejection`.

    Attributes
    ----------
    reject_below_ : float, or ndarray of shape (n_classes,)
        Rows with a lower score are rejected: the calibrated threshold, else `reject_below`, -inf for None.
    """

    _: KW_ONLY
    reject_below: float | None = option(default=None, check=check_threshold)

    @property
    def reject_below_(self):
        check_is_fitted(self)
        rejection = getattr(self, "_rejection", None)
        if rejection is not None:
            return rejection.reject_below
        check_threshold("reject_below", self.reject_below)
        return -np.inf if self.reject_below is None else float(self.reject_below)

    def accepts(self: Any, X):
        """Whether each row is accepted: its score is at least `reject_below_`.

        After `calibrate_rejection` with `per_class=True`: its score as a member of some class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
            True for accepted rows.
        """
        limit = self.reject_below_
        if np.ndim(limit) == 0:
            return in_main_memory(self.score_samples(X)) >= limit
        return np.any(self._class_scores(X) >= limit, axis=1)

    def calibrate_rejection(self: Any, X, y=None, *, acceptance=0.95, per_class=False):
        """Set `reject_below_` so that new rows are accepted with a given probability, by held-out rows.

        Split-conformal: with n held-out rows, of the kind that is to be accepted, the threshold is the
        k-th smallest of their scores, k = floor((n + 1) (1 - acceptance)). A new row of that kind is then
        accepted with a probability of at least `acceptance`, and of at most `acceptance` + 1 / (n + 1)
        if no scores tie, whether or not the model is right. The threshold holds until the next `fit`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows that `fit` has not seen; those it has seen have scores that are too high, and give a warning
            where that is noticed.
        y : array-like of shape (n_samples,), optional
            Classes of the rows, for classifiers; needed for `per_class` only.
        acceptance : float, default=0.95
            The probability, between 0 and 1. It needs at least 1 / (1 - acceptance) - 1 rows.
        per_class : bool, default=False
            Whether rows of every class are to be accepted with that probability, not only rows on average:
            a threshold for each class, and at least so many rows of each. For classifiers.

        Returns
        -------
        self
        """
        check_is_fitted(self)
        check_acceptance("acceptance", acceptance)
        check_flag("per_class", per_class)
        scores = self._class_scores(X) if per_class else in_main_memory(self.score_samples(X))
        scores = checked_scores(scores)
        groups = self._calibration_groups(y, len(scores), per_class)
        fingerprint = getattr(self, "_trained_on", None)
        if fingerprint is not None:
            fingerprint.warn_of(hashes_of(self, X), acceptance)
        if not per_class:
            self._rejection = Rejection(_threshold(scores, acceptance), float(acceptance), len(scores))
            return self
        below = [
            _threshold(scores[groups == code, code], acceptance, f" of class {name!r}")
            for code, name in enumerate(self.classes_.tolist())
        ]
        counts = np.bincount(groups[groups >= 0], minlength=len(below))
        self._rejection = Rejection(np.array(below), float(acceptance), counts)
        return self

    def _calibration_groups(self, y, n_rows, per_class):
        """The class of each row, for a threshold per class; -1 where unknown."""

    def _class_scores(self, X):
        """(n_samples, n_classes) scores of each row as a member of each class."""
        raise ValueError(
            f"per_class=True needs a classifier, and {type(self).__name__} has no classes; use "
            "PerClass(density), or per_class=False"
        )

    def _set_rejection(self: Any, record):
        """Restore a calibration from a file."""
        n_classes = len(self.classes_) if hasattr(self, "classes_") else None
        self._rejection = Rejection.from_file(n_classes, **record)


def checked_scores(scores):
    """Scores as float64; an error if one is not a number."""
    scores = np.asarray(scores, dtype=np.float64)
    if np.isnan(scores).any():
        row = np.argwhere(np.isnan(scores))[0][0]
        raise ValueError(f"the score of row {row} of X is NaN, so no threshold can be found")
    return scores


def _threshold(scores, acceptance, of=""):
    """The conformal threshold, with a warning if ties spoil it."""
    below, n = conformal.threshold(scores, acceptance, of), len(scores)
    share = float(np.mean(scores >= below))
    if share - (n + 1 - conformal.rank(n, acceptance)) / n > _TIED:
        warn_user(
            f"{share:.0%} of the calibration rows{of} are accepted instead of {acceptance:.0%}, because many "
            f"have the same score, {below:.6g}: rows that are no more usual cannot be told from them"
        )
    return below


# -- which rows a fit has seen ------------------------------------------------------------------------


@dataclass(frozen=True)
class Fingerprint:
    """The smallest hashes of the rows of a fit: a sample of them that does not depend on their order."""

    hashes: NDArray[np.int64]  # sorted and distinct: all those up to `limit`
    limit: int
    chance: float  # that a new row equals a row of the fit, by how many of these differ from all others

    @classmethod
    def of(cls, hashes):
        limit = np.iinfo(np.int64).max
        if len(hashes) > _KEPT:
            limit = int(np.partition(hashes, _KEPT - 1)[_KEPT - 1])
        found, counts = np.unique(hashes[hashes <= limit], return_counts=True)
        n = int(counts.sum())
        # Good and Turing: the share of rows seen once estimates the share of new rows not seen yet
        return cls(found, limit, (n - np.count_nonzero(counts == 1) + 1) / (n + 1))

    def warn_of(self, hashes, acceptance):
        """Warn if more of these rows are rows of the fit than chance explains."""
        compared = hashes[hashes <= self.limit]
        n_known = int(np.isin(compared, self.hashes).sum())
        if n_known and binom.sf(n_known - 1, len(compared), self.chance) < _CERTAIN:
            share = n_known / len(compared)
            warn_user(
                f"about {share:.0%} of the calibration rows were rows of the fit: their scores are too high, "
                f"so fewer new rows than {acceptance:.4g} may be accepted; calibrate on rows held out of the "
                "fit"
            )


def remember_rows(model, data):
    """End an earlier calibration, and keep a fingerprint of the rows of this fit, if they are in memory.

    `data` are checked rows (`estimators.data`). Rows of files and of Dask would cost another pass. Saved
    models have no fingerprint: it could tell others which rows they were fitted to.
    """
    if not isinstance(model, Rejecting):
        return
    state = vars(model)
    state.pop("_rejection", None)
    state.pop("_trained_on", None)
    if not data.in_memory:
        return
    hashes, weight = _hashes(data.X), data.field("weight")
    state["_trained_on"] = Fingerprint.of(hashes if weight is None else hashes[in_main_memory(weight) > 0])


def hashes_of(model, X):
    """The hashes of rows, to be compared with a fingerprint; none of rows that are not in memory."""
    if is_sparse(X):
        return _hashes(X)
    data = Data(np.zeros((0, 1))) if is_dask(X) else check_data(model, X, reset=False, missing=True)
    return _hashes(data.X if data.in_memory else np.zeros((0, 1)))


def _hashes(X):
    """(n,) in pieces of a few megabytes."""
    parts = slices(X.shape[0], max(1, _PIECE // X.shape[1]))
    if is_sparse(X):
        found = [row_hashes(X[part].toarray()) for part in parts]
    else:
        found = [row_hashes(X[part, ...]) for part in parts]
    return np.concatenate([np.zeros(0, np.int64), *found])
