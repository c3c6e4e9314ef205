"""Which rows are unusual: those with a log density that few rows of the model have, or below a threshold."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import numpy as np

_RARE = 1e-3  # quantile of sampled log densities below which a row is unusual
_DRAWN = 10_000
_ROUGH = 20  # draws for a first estimate of a log density


@dataclass(frozen=True)
class Unusual:
    """Rows by log density, least probable first."""

    rows: np.ndarray  # all comparable rows
    threshold: float | None  # rows below it are unusual
    given: bool  # whether the threshold was given; if not, one in a thousand rows of the model is below it
    n_below: int
    n_left_out: int  # rows with missing entries, whose densities are of other sets of features

    @property
    def n_expected(self):
        """Number of rows below the threshold if the model were true; None if that is not known."""
        return None if self.given else _RARE * len(self.rows)


def unusual_rows(facts):
    """Of the rows of facts that have scores."""
    given = facts.threshold is not None and facts.score_name == "log density"
    mostly_complete = 2 * np.count_nonzero(facts.complete) >= len(facts.X)
    comparable = facts.complete if mostly_complete and not given else np.full(len(facts.X), True)
    rows = np.flatnonzero(comparable)
    rows = rows[np.argsort(facts.scores[rows], kind="stable")]
    threshold = facts.threshold if given else None
    if not given and np.array_equal(comparable, facts.complete):
        threshold = rare_score(facts)
    n_below = 0 if threshold is None else int(np.count_nonzero(facts.scores[rows] < threshold))
    return Unusual(rows, threshold, given, n_below, len(facts.X) - len(rows))


def rare_score(facts):
    """The log density that one in a thousand rows of the model is below; None if it is not known."""
    if not hasattr(facts.model, "sample") or facts.score_name != "log density":
        return None
    n_drawn = int(np.clip(2 * 10**7 // facts.X.shape[1], 1000, _DRAWN))
    place = _RARE * (n_drawn - 1)
    lowest = _lowest_scores(facts, facts.drawn(n_drawn), int(np.ceil(place)) + 1)
    return float(np.interp(place, np.arange(len(lowest)), lowest))  # as np.quantile has it


def _lowest_scores(facts, X, n):
    """The n lowest log densities of rows, ascending.

    Where log densities are estimated by draws, as those of a VAE, few draws tell which rows are low, and
    only these get all: until no other row, with the largest error seen, can be among the lowest.
    """
    if "n_samples" not in inspect.signature(facts.model.score_samples).parameters:
        return np.sort(facts.asked_of("score_samples", X) - facts.log_volume(X))[:n]
    volume = facts.log_volume(X)
    rough = facts.asked_of("score_samples", X, n_samples=_ROUGH) - volume
    order = np.argsort(rough, kind="stable")
    fine = np.zeros(0)
    while len(fine) < len(X):
        some = order[len(fine) :][: 10 * n]
        fine = np.concatenate([fine, facts.asked_of("score_samples", X[some]) - volume[some]])
        highest = np.partition(fine, n - 1)[n - 1]
        error = np.max(rough[order[: len(fine)]] - fine)
        if len(fine) == len(X) or highest + max(error, 0.0) <= rough[order[len(fine)]]:
            break
    return np.sort(fine)[:n]
