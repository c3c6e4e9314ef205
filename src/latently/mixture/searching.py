"""How the starts of a mixture are compared: by runs on a sample of the rows, which share passes if they can.

Where features are many the search is longer, and every other start is annealed if runs can share passes,
unless the sample leaves rows out: what a longer search gains on a sample does not carry over to all rows
(docs/engine.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from latently.backend.placement import block_bytes, on_device
from latently.core.drivers import em_step, relative
from latently.core.search import CHEAP, CHEAP_WIDE, COSTLY, COSTLY_WIDE, Search
from latently.core.squarem import squarem, squarem_steps
from latently.core.together import em_steps
from latently.distributions.stacked import Runs, can_be_stacked
from latently.estimators.problem import Problem
from latently.estimators.starts import SEARCH_TOL, rows_for_start
from latently.mixture.annealing import Annealing, temperatures
from latently.mixture.degenerate import is_degenerate

_MANY = 4  # runs that share passes, from which on more starts are tried
_WIDE = 15  # features from which on the search is longer
_WIDE_IF_TIED = 30  # the same where components share parameters


def search_of(
    problem: Problem, sample: Any, *, tol: float, accelerated: bool, quick_steps: bool
) -> Search[Any]:
    """The search on a sample of rows; `quick_steps` says that steps are quick alone."""
    kernel: Any = problem.kernel
    sweep = problem.sweep_of_sample(sample)
    step = em_step(kernel, sweep)
    rows = max(float(np.sum(sample.weight)), float(len(sample)))
    short = problem.with_conditionals(step, sweep, last=1)
    long = squarem(problem.with_conditionals(step, sweep), kernel) if accelerated else short
    runs, (n, D) = Runs(kernel), sample.X.shape
    at_once = runs.at_once(n, D, problem.n_components)
    stacked = can_be_stacked(kernel)
    wide = (_WIDE if stacked else _WIDE_IF_TIED) <= D
    longer = wide and problem.summary.n_rows <= rows_for_start(problem.n_components)
    if at_once >= _MANY and (stacked or quick_steps):
        effort = CHEAP_WIDE if longer else CHEAP
    else:
        effort = COSTLY_WIDE if longer else COSTLY
    search = Search(
        short,
        long,
        stop=relative(max(tol, SEARCH_TOL)),
        clean=lambda params: not is_degenerate(kernel, params, rows),
        effort=effort,
    )
    if not stacked:
        return search
    if on_device(problem.frame.shift):  # the same search, of as many runs at once as memory allows
        at_once = max(at_once, block_bytes(problem.frame.shift) // (8 * n * problem.floats_per_row))
    steps = em_steps(runs, sweep, at_once, step)
    return replace(
        search,
        anneal=Annealing(kernel, sweep, at_once, temperatures(D)) if longer else None,
        short_steps=steps,
        long_steps=squarem_steps(steps, runs) if accelerated else steps,
    )
