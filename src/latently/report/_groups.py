"""Groups of rows, what distinguishes them, and how well two groupings agree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np

NO_LABEL = "no label"
MOST_DIFFERENT = 99.0  # largest difference that is reported, in standard deviations
_BLOCK = 1 << 22  # entries of X that are processed at once


@dataclass(frozen=True)
class Groups:
    """A grouping of rows: by components, by predicted classes, or by given labels."""

    noun: str
    names: list[str]
    codes: np.ndarray  # (n,) indices into names
    probabilities: np.ndarray | None = None  # (n, K)

    @property
    def kind(self):
        """Which colours it has: components and classes share none."""
        return "c" if self.noun == "component" else "d"

    @cached_property
    def sizes(self):
        return np.bincount(self.codes, minlength=len(self.names))

    @property
    def memberships(self):
        """(n, K) weight of each row in each group."""
        if self.probabilities is not None:
            return self.probabilities
        return (self.codes[:, None] == np.arange(len(self.names))).astype(float)


@dataclass(frozen=True)
class Profiles:
    """Feature statistics of groups, over observed entries, weighted by membership."""

    means: np.ndarray  # (K, D)
    deviations: np.ndarray  # (K, D) within each group
    differences: (
        np.ndarray
    )  # (K, D) mean minus that of the other groups, in pooled within-group standard deviations


@dataclass(frozen=True)
class Agreement:
    accuracy: float | None  # fraction of rows under the best matching of as many components as classes
    purity: float  # fraction of rows of the most frequent class of their component
    adjusted_rand: float

    @property
    def in_words(self):
        """What rows do that agree, and the fraction of those that do."""
        if self.accuracy is None:
            return "have the most frequent class of their component", self.purity
        return "have the class that matches their component", self.accuracy


def labelled(labels, n, order=None):
    """Groups of rows with equal labels; missing labels (None, NaN or empty) are the last group."""
    labels = list(np.asarray(labels, dtype=object))
    if len(labels) != n:
        raise ValueError(f"labels must have one label for each of the {n} rows, not {len(labels)}")
    shown = [_label(label) for label in labels]
    known = [_label(label) for label in ([] if order is None else order)]
    numbers = all(isinstance(label, Real) for label in labels if _label(label) is not None)
    others = {text for text in shown if text is not None} - set(known)
    names = known + sorted(others, key=float if numbers else str)
    if None in shown:
        names.append(None)
    position = {name: i for i, name in enumerate(names)}
    codes = np.array([position[text] for text in shown])
    return Groups("class", [NO_LABEL if name is None else name for name in names], codes)


def _label(label):
    """Text of a label; None if it is missing."""
    if label is None or label != label or label == "":
        return None
    if isinstance(label, (float, np.floating)):
        return f"{label:g}"
    return str(label)


def profiles(X, memberships):
    """Means and standard deviations of features in groups with membership weights (n, K)."""
    shift = np.nan_to_num(X[np.argmax(~np.isnan(X), axis=0), np.arange(X.shape[1])])  # close to the data
    K, D = memberships.shape[1], X.shape[1]
    weight, total, square = np.zeros((K, D)), np.zeros((K, D)), np.zeros((K, D))
    for second in (False, True):  # second pass: squares about the means
        means = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
        for rows in _blocks(*X.shape):
            observed = ~np.isnan(X[rows])
            there = np.where(observed, X[rows] - shift, 0.0)
            belongs = memberships[rows].T
            if not second:
                weight += belongs @ observed
                total += belongs @ there
                continue
            for k in np.flatnonzero(belongs.any(axis=1)):
                square[k] += belongs[k] @ np.where(observed, (there - means[k]) ** 2, 0.0)
    share = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0)
    all_weight, all_total = weight.sum(axis=0), total.sum(axis=0)
    pooled = np.sqrt(square.sum(axis=0) / np.maximum(all_weight, np.finfo(float).tiny))
    rest = np.divide(
        all_total - total, all_weight - weight, out=means.copy(), where=all_weight - weight > 1e-9
    )
    gap = np.where(weight > 0, means - rest, 0.0)
    rounding = 1e-12 * np.maximum(np.abs(means + shift), np.abs(shift))
    gap = np.where(np.abs(gap) > rounding, gap, 0.0)
    differences = np.divide(gap, pooled, out=np.sign(gap) * MOST_DIFFERENT, where=pooled > 0)
    differences = np.clip(differences, -MOST_DIFFERENT, MOST_DIFFERENT)
    return Profiles(means + shift, np.sqrt(square * share), differences)


def _blocks(n, D):
    step = max(1, _BLOCK // D)
    return (slice(start, start + step) for start in range(0, n, step))
