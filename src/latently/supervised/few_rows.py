"""What a classifier has to know of its labelled rows, wherever the rows are.

Shrinkage and temperature are learnt from few rows in main memory: all labelled ones where they are few, with
some unlabelled ones. As the rows that starts are computed from (core/summary.py) they are distinct rows with
the smallest hashes, so that the same rows give the same model from arrays, files, tensors and Dask.

Cost: two passes over the data for each of labelled rows, those of large classes, and unlabelled rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import Floats, device, namespace, to_numpy
from latently.core.summary import summarise
from latently.estimators.classifier import FEW
from latently.estimators.data import computed
from latently.estimators.labels import UNLABELLED

_UNLABELLED = 3  # unlabelled rows for each labelled one,
_AT_LEAST = 300  # but so many, if there are


@dataclass(frozen=True)
class FewRows:
    """Distinct rows; their weights sum to those of all rows of their class, or of all unlabelled rows."""

    X: Floats  # (m, D), NaN where missing
    codes: NDArray[Any]  # (m,): classes, -1 for unlabelled rows
    weight: Floats  # (m,)

    def labelled(self) -> FewRows:
        return self.where(self.codes != UNLABELLED)

    def where(self, chosen: Any) -> FewRows:
        return FewRows(self.X[chosen], self.codes[chosen], self.weight[chosen])


@dataclass(frozen=True)
class KnownClasses:
    """The classes of the rows of a fit, whose field `allowed` is not None."""

    data: Any
    n_classes: int
    block_size: int | None

    @cached_property
    def codes(self):
        """(N,) class of each row, -1 if it is unlabelled."""
        return self._codes(to_numpy(self.data.field("allowed")))

    @cached_property
    def weight(self):
        """(N,)"""
        weight = self.data.field("weight")
        return np.ones(len(self.codes)) if weight is None else to_numpy(weight)

    @cached_property
    def unlabelled(self):
        """(N,) bool: rows without a class that have a weight and an entry."""
        unlabelled = (self.codes == UNLABELLED) & (self.weight > 0)
        if not unlabelled.any():
            return unlabelled
        observed = self.data.collected(self._sweep(self.data).rows(_any_observed), None)
        return unlabelled & to_numpy(computed(observed))

    @cached_property
    def labelled(self):
        """(N,) bool: rows with a class and a weight."""
        return (self.codes != UNLABELLED) & (self.weight > 0)

    def sizes(self):
        """(C,) total weight of the rows of each class."""
        return np.bincount(self.codes[self.labelled], self.weight[self.labelled], minlength=self.n_classes)

    def sample(self):
        """Up to 100 rows per class, and three times as many unlabelled ones, or 300.

        All rows of classes of up to 100 rows are among them.
        """
        counts = np.bincount(self.codes[self.labelled], minlength=self.n_classes)
        large = self.labelled & (counts[self.codes] > FEW)
        parts = [
            self._of(self.labelled & ~large, FEW * self.n_classes),
            self._of(large, FEW * int(np.sum(counts > FEW))),
        ]
        parts.append(
            self._of(self.unlabelled, max(_AT_LEAST, _UNLABELLED * sum(len(part.X) for part in parts)))
        )
        X, codes, weight = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "codes", "weight")
        )
        told = self.labelled | self.unlabelled
        for code in np.unique(codes):
            total = self.weight[told & (self.codes == code)].sum()
            weight[codes == code] *= total / weight[codes == code].sum()
        return FewRows(X, codes, weight)

    def _of(self, chosen, most):
        """At most so many distinct rows of those chosen (N,)."""
        D = self.data.n_features
        if not chosen.any() or not most:
            return FewRows(np.zeros((0, D)), np.zeros(0, dtype=int), np.zeros(0))
        with np.errstate(over="ignore", invalid="ignore"):  # unsuitable rows are reported by the fit
            weighted = self.data.with_field("weight", np.where(chosen, self.weight, 0.0))
            summary: Any = summarise(self._sweep(weighted), most)
        sample = summary.sample
        return FewRows(sample.X, self._codes(sample.allowed), sample.weight)

    def _codes(self, allowed):
        of_class = allowed[:, :: allowed.shape[1] // self.n_classes]
        return np.where(of_class.all(axis=1), UNLABELLED, np.argmax(of_class, axis=1))

    def _sweep(self, data):
        return data.sweep(None, floats_per_row=3 * data.n_features, block_size=self.block_size)


def _any_observed(block):
    xp = namespace(block.X)
    if block.observed is None:
        return xp.ones((len(block),), dtype=xp.bool, device=device(block.X))
    return xp.any(block.observed, axis=1)
