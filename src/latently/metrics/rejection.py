"""How well a score tells rows of known kinds from others, and thresholds of it with a guarantee.

Larger scores are more usual: `score_samples` of densities and classifiers, or any other numbers.

    acceptance       share of known rows with a score of at least the threshold
    rejection        share of other rows below it
    AUROC            probability that a known row has a larger score than another row; ties count half
    AUPR             average precision of finding the other rows by their low scores
    FPR at 95 %      share of other rows that are accepted where 95 % of the known rows are
    risk-coverage    error rate of a classifier on the rows it accepts, against the share that it accepts

Thresholds and intervals: `core.conformal`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from sklearn.utils import check_array

from latently.backend.namespace import is_native, to_numpy
from latently.core import conformal


def conformal_threshold(scores, acceptance=0.95):
    """The threshold that accepts a new row with at least a given probability, from scores of held-out rows.

    It is the k-th smallest of n scores, k = floor((n + 1) (1 - acceptance)). `calibrate_rejection` of models
    sets this threshold; the function takes scores of any other kind.

    Parameters
    ----------
    scores : array-like of shape (n_samples,)
        Of rows that were not used to choose the score; larger is more usual.
    acceptance : float, default=0.95
        It needs at least 1 / (1 - acceptance) - 1 rows.

    Returns
    -------
    float
        Accept rows with at least this score.

    Examples
    --------
    >>> import numpy as np
    >>> from latently.metrics import conformal_threshold
    >>> float(conformal_threshold(np.arange(1, 20), acceptance=0.9))
    2.0
    """
    _check_share("acceptance", acceptance)
    return conformal.threshold(checked_scores("scores", scores), acceptance)


def conformal_interval(n_calibration, acceptance=0.95, *, n_rows=None, level=0.95):
    """Where the acceptance of new rows lies after calibration, with a given probability.

    Parameters
    ----------
    n_calibration : int
        Number of calibration rows n.
    acceptance : float, default=0.95
        The rate they were calibrated for.
    n_rows : int, optional
        The number of new rows of which a share is accepted; by default infinitely many, for which the share
        has the distribution Beta(n + 1 - k, k) if no scores tie.
    level : float, default=0.95

    Returns
    -------
    low, high : float

    Examples
    --------
    >>> from latently.metrics import conformal_interval
    >>> low, high = conformal_interval(1000, 0.95)
    >>> round(low, 3), round(high, 3)
    (0.936, 0.963)
    """
    _check_share("acceptance", acceptance)
    _check_share("level", level)
    _check_count("n_calibration", n_calibration)
    if n_rows is not None:
        _check_count("n_rows", n_rows)
    return conformal.interval(int(n_calibration), acceptance, n_rows, level)


@dataclass(frozen=True)
class RejectionReport:
    """What `rejection_report` found; fields are None where rows for them were not given."""

    n_known: int
    n_other: int
    threshold: float | None
    acceptance: float | None  # of the known rows
    acceptance_interval: tuple[float, float] | None  # where it should lie after calibration
    rejection: float | None  # of the other rows
    auroc: float | None
    aupr: float | None
    fpr_at_95: float | None
    coverage: NDArray[np.float64] | None  # (m,) shares of known rows, by falling score
    risk: NDArray[np.float64] | None  # (m,) error rates of the classifier on these
    risk_coverage_area: float | None  # mean of the risk over all coverages

    @property
    def as_calibrated(self):
        """Whether the acceptance lies in its interval."""
        if self.acceptance_interval is None or self.acceptance is None:
            return None
        low, high = self.acceptance_interval
        return low <= self.acceptance <= high

    def __str__(self):
        lines = [f"known rows          {self.n_known}", f"other rows          {self.n_other}"]
        for name, value in (
            ("threshold", self.threshold),
            ("acceptance", self.acceptance),
            ("rejection", self.rejection),
            ("AUROC", self.auroc),
            ("AUPR", self.aupr),
            ("FPR at 95 %", self.fpr_at_95),
            ("risk-coverage area", self.risk_coverage_area),
        ):
            if value is not None:
                lines.append(f"{name:<20}{value:.4g}")
        if self.acceptance_interval is not None:
            low, high = self.acceptance_interval
            where = "inside" if self.as_calibrated else "OUTSIDE"
            lines.append(f"{'':<20}{where} its interval, {low:.4g} to {high:.4g}")
        return "\n".join(lines)


def rejection_report(
    scores_known,
    scores_other=None,
    *,
    threshold=None,
    acceptance=None,
    n_calibration=None,
    level=0.95,
    correct=None,
):
    """How well a score accepts known rows, rejects other rows and tells of errors.

    Parameters
    ----------
    scores_known : array-like of shape (n_known,)
        Scores of rows to be accepted, neither of the fit nor of the calibration; larger is more usual.
    scores_other : array-like of shape (n_other,), optional
        Scores of rows to be rejected.
    threshold : float, optional
        Rows below it are rejected, such as `reject_below_` of a model.
    acceptance, n_calibration : float and int, optional
        The rate that the threshold was calibrated for, and on how many rows: for `acceptance_interval`, which
        allows for the number of known rows here too.
    level : float, default=0.95
        Probability that the acceptance lies in this interval.
    correct : array-like of shape (n_known,), optional
        Whether the class of each known row was predicted correctly: for risk and coverage.

    Returns
    -------
    RejectionReport

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.metrics import rejection_report
    >>> from latently.mixture import MPPCA
    >>> X, y = load_digits(return_X_y=True)
    >>> known, other = X[y < 8], X[y >= 8]
    >>> model = MPPCA(8, 8, random_state=0, tol=1e-3).fit(known[::2])
    >>> model = model.calibrate_rejection(known[1::4], acceptance=0.9)
    >>> scores = model.score_samples(known[3::4]), model.score_samples(other)
    >>> report = rejection_report(
    ...     *scores, threshold=model.reject_below_, acceptance=0.9, n_calibration=len(known[1::4])
    ... )
    >>> report.as_calibrated, report.auroc > 0.8
    (True, True)
    """
    _check_share("level", level)
    known = checked_scores("scores_known", scores_known)
    other = None if scores_other is None else checked_scores("scores_other", scores_other)
    if threshold is not None and (
        isinstance(threshold, bool) or not isinstance(threshold, Real) or math.isnan(float(threshold))
    ):
        raise ValueError(f"threshold must be a number, not {threshold!r}")
    if (acceptance is None) != (n_calibration is None):
        raise ValueError("acceptance and n_calibration belong together: give both or neither")
    if acceptance is not None:
        _check_share("acceptance", acceptance)
        _check_count("n_calibration", n_calibration)
        if threshold is None:
            raise ValueError("acceptance and n_calibration are those of a threshold; give it too")
    interval = (
        None if acceptance is None else conformal.interval(int(n_calibration), acceptance, len(known), level)
    )
    curve = None if correct is None else risk_coverage(known, checked_flags(correct, len(known)))
    separation = (None, None, None) if other is None else _separation(known, other)
    return RejectionReport(
        n_known=len(known),
        n_other=0 if other is None else len(other),
        threshold=None if threshold is None else float(threshold),
        acceptance=None if threshold is None else float(np.mean(known >= threshold)),
        acceptance_interval=interval,
        rejection=None if threshold is None or other is None else float(np.mean(other < threshold)),
        auroc=separation[0],
        aupr=separation[1],
        fpr_at_95=separation[2],
        coverage=None if curve is None else curve[0],
        risk=None if curve is None else curve[1],
        risk_coverage_area=None if curve is None else curve[2],
    )


def risk_coverage(scores, correct):
    """Coverages, risks, and the area below: rows with equal scores are accepted together."""
    order = np.argsort(-scores, kind="stable")
    errors, sorted_scores = np.cumsum(~correct[order]), scores[order]
    last = np.append(sorted_scores[1:] != sorted_scores[:-1], True)  # of rows with equal scores
    n_accepted = np.flatnonzero(last) + 1
    risk = errors[last] / n_accepted
    steps = np.diff(n_accepted, prepend=0)
    return n_accepted / len(scores), risk, float(steps @ risk / len(scores))


def roc(known, other):
    """Shares of other and of known rows that are accepted, as the threshold falls; both from 0 to 1."""
    is_known = np.repeat([1, 0], [len(known), len(other)])
    return roc_curve(is_known, _ranks(known, other))[:2]


def _separation(known, other):
    """AUROC, AUPR and FPR at 95 %."""
    is_other = np.repeat([0, 1], [len(known), len(other)])
    ranks = _ranks(known, other)
    at_95 = np.sort(known)[math.floor(0.05 * len(known) + 1e-9)]
    return (
        float(roc_auc_score(is_other, -ranks)),
        float(average_precision_score(is_other, -ranks)),
        float(np.mean(other >= at_95)),
    )


def _ranks(known, other):
    """Ranks of all scores, of which some may be infinite."""
    return np.unique(np.concatenate([known, other]), return_inverse=True)[1]


def checked_scores(name, scores):
    """(n,) float64; infinite scores are allowed, NaN is an error."""
    scores = check_array(
        to_numpy(scores) if is_native(scores) else scores,
        ensure_2d=False,
        ensure_min_samples=0,
        ensure_all_finite=False,
        dtype=np.float64,
        input_name=name,
    )
    if scores.ndim != 1:
        raise ValueError(f"{name} must have shape (n_samples,), not {scores.shape}")
    if not len(scores):
        raise ValueError(f"{name} is empty; give scores of at least one row, or None where it is optional")
    if np.isnan(scores).any():
        raise ValueError(f"{name} contains NaN, at row {int(np.argmax(np.isnan(scores)))}")
    return scores


def checked_flags(correct, n):
    correct = np.asarray(correct)
    if correct.shape != (n,) or not (correct.dtype == bool or np.isin(correct, (0, 1)).all()):
        raise ValueError(f"correct must hold True or False for each of the {n} known rows")
    return correct.astype(bool)


def _check_share(name, value):
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must be a number between 0 and 1, such as 0.95, not {value!r}")


def _check_count(name, value):
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a number of rows of at least 1, not {value!r}")
