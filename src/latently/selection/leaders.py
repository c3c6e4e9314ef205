"""A search of a grid that spends its time on the models that may win.

1. Every cell is fitted briefly, smaller models first: from k-means, and from the optima of its neighbours on
   the grid that are nested in it, with a component split or a factor added. The best goes on for a while.
2. The leaders take part in the full search of the estimator, and
3. the leaders of these go on from the best optimum found to the tolerance of the estimator.

A more thorough fit gains on a brief one. Cells that would not win with somewhat more than the largest gain
seen so far keep the fits they have; the others follow, best first, until none is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latently.selection.nesting import is_nested, start_from

LEAST_CELLS = 6  # in smaller grids nearly all would be leaders
_BRIEF, _SEARCHED, _COMPLETE = range(3)  # how far the fit of a cell is
_STARTS = 1  # of a brief fit, beside those from neighbours
_PARENTS = 2  # nested neighbours that a brief fit starts from
_TOLERANCE = 1e-5  # relative, and
_STEPS, _MORE_STEPS = 10, 40  # of each start, and then of the best of them
_AT_ONCE = {_SEARCHED: 2, _COMPLETE: 1}  # leaders that go on side by side, whatever the number of jobs
_GAIN = {_SEARCHED: 25.0, _COMPLETE: 2.0}  # nats that a more thorough fit may always gain, of few rows, and
_GAIN_PER_ROW = {_SEARCHED: 0.02, _COMPLETE: 0.01}
_MARGIN = 1.5  # times the largest gain seen so far


def is_worthwhile(complete, criterion, X):
    """Whether brief fits save time: a grid of mixtures with automatic starts, compared on all their rows."""
    searched = all(
        cell.get("n_init") == "auto"
        and cell.get("accelerate") == "squarem"
        and cell.get("batch_size") is None
        for cell in complete
    )
    given = any(value is not None for cell in complete for name, value in cell.items() if _is_start(name))
    sized = all("n_components" in cell and "tol" in cell and "max_iter" in cell for cell in complete)
    in_memory = hasattr(X, "shape") and (isinstance(X, np.ndarray) or hasattr(X, "iloc"))
    kept = any(cell.get("warm_start") for cell in complete)
    enough = len(complete) >= LEAST_CELLS
    return (
        enough and criterion.held_out is None and searched and not given and sized and in_memory and not kept
    )


def _is_start(name):
    return name.endswith("_init") and name != "n_init"


def levels(complete):
    """Cells in waves, each after all that are nested in it, and for each cell those nested in it."""
    level = [0] * len(complete)
    nested = [
        [other for other in range(len(complete)) if is_nested(complete[other], complete[cell])]
        for cell in range(len(complete))
    ]
    for cell in sorted(range(len(complete)), key=lambda cell: len(nested[cell])):
        level[cell] = 1 + max((level[other] for other in nested[cell]), default=-1)
    return [
        [cell for cell in range(len(complete)) if level[cell] == at] for at in range(max(level) + 1)
    ], nested


@dataclass
class Leaders:
    """`run(jobs, title, brief)` yields fits of (cell, starting values), in order; `better` compares two."""

    complete: list[dict[str, Any]]  # all parameters of every cell
    run: Any
    better: Any
    column: str  # of the criterion, lower is better
    n_rows: float  # total weight
    seed: int

    def __post_init__(self):
        self.fits: dict[int, Any] = {}  # the best of each cell so far
        self.progress = dict.fromkeys(range(len(self.complete)), _BRIEF)

    def fit(self):
        """Fit every cell; `fits` has what is there at any time, also if the user interrupts."""
        waves, nested = levels(self.complete)
        for number, wave in enumerate(waves, 1):
            title = f"Brief fits, {number} of {len(waves)}"
            self._try([(cell, start) for cell in wave for start in self._starts(cell, nested)], title)
            best = [(cell, start) for cell in wave for start in self._own_optimum(cell)]
            self._try([(cell, {**start, **self._brief(cell, _MORE_STEPS)}) for cell, start in best], title)
        self._promote(_SEARCHED, lambda cell: [self._steps(cell)], "Searches")
        self._promote(_COMPLETE, self._own_optimum, "Leading fits")

    def brief(self):
        """For each cell, whether its fit is not complete."""
        return {cell: at != _COMPLETE for cell, at in self.progress.items()}

    def _promote(self, to, starts, title):
        """Fit the cells that may win more thoroughly, best first, until those that are left cannot."""
        gain = 0.0
        while chosen := self._leaders(to, gain):
            before = {cell: self.fits[cell].log_likelihood for cell in chosen}
            jobs = [(cell, start) for cell in chosen for start in (starts(cell) or [{}])]
            self._try(jobs, title, complete=to == _COMPLETE)
            for cell in chosen:
                self.progress[cell] = to
                more = self.fits[cell].log_likelihood - before[cell]
                gain = max(gain, more if np.isfinite(more) else 0.0)

    def _leaders(self, to, gain):
        """The best cells, some at a time, that may win if a more thorough fit gains as much as others did."""
        value = {
            cell: fit.numbers.get(self.column, np.inf) for cell, fit in self.fits.items() if not fit.error
        }
        there = [
            value[cell] for cell in value if self.progress[cell] >= to and not self.fits[cell].degenerate
        ]
        order = sorted((cell for cell in value if self.progress[cell] == to - 1), key=lambda c: (value[c], c))
        expected = max(_GAIN[to], self.n_rows * max(_GAIN_PER_ROW[to], _MARGIN * gain))
        room = 2.0 * expected if there else np.inf
        return [cell for cell in order if value[cell] - room < min(there, default=np.inf)][: _AT_ONCE[to]]

    def _try(self, jobs, title, complete=False):
        """Make some fits, and keep what is better than before.

        A complete fit goes on from the one before, whose objective may have a prior besides the likelihood.
        """
        for (cell, _), fit in zip(jobs, self.run(jobs, title, not complete) if jobs else (), strict=True):
            sound = complete and not fit.error and not fit.degenerate
            if cell not in self.fits or sound or self.better(fit, self.fits[cell]):
                self.fits[cell] = fit

    def _starts(self, cell, nested):
        """Of brief fits: a few fresh ones, and the optima of neighbours."""
        yield {**self._brief(cell), "n_init": _STARTS}
        direct = [one for one in nested[cell] if not any(one in nested[other] for other in nested[cell])]
        usable = [one for one in direct if not self.fits[one].error and not self.fits[one].degenerate]
        for one in sorted(usable, key=lambda one: -self.fits[one].log_likelihood)[:_PARENTS]:
            rng = np.random.default_rng([self.seed, cell, one])
            start = start_from(self.fits[one].model, self.complete[cell], rng)
            if start is not None:
                yield {**self._brief(cell), **start, "n_init": 1}

    def _own_optimum(self, cell):
        """The parameters of its best fit so far as a start, if they can be one."""
        fit = self.fits[cell]
        if fit.error or fit.degenerate:
            return []
        start = start_from(fit.model, self.complete[cell], np.random.default_rng(self.seed))
        return [] if start is None else [{**start, "n_init": 1}]

    def _steps(self, cell, most=_STEPS):
        return {"max_iter": min(most, self.complete[cell]["max_iter"])}

    def _brief(self, cell, most=_STEPS):
        return {"tol": max(_TOLERANCE, self.complete[cell]["tol"]), **self._steps(cell, most)}
