"""EM fits: with all rows at every step, with mini-batches, or incrementally with `partial_fit`.

These functions work for any estimator with a `Problem`: a kernel, and rows in its frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from latently.backend.namespace import Array, like, namespace, to_numpy
from latently.backend.placement import SMALLEST_BLOCK
from latently.core.anderson import Remembering, anderson
from latently.core.block import Block
from latently.core.drivers import Result, Step, relative, run_passes
from latently.core.frame import Frame
from latently.core.squarem import squarem
from latently.core.stepwise import Batch, Online
from latently.core.tree import mapped
from latently.estimators import fitting
from latently.estimators.fitting import FitOptions, Start
from latently.estimators.memory import check_block_fits
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.parameters import all_given, given_starts
from latently.estimators.problem import Problem
from latently.estimators.randomness import as_random_state

_NOISE = 1e-5  # approximate relative accuracy of the log-likelihood of a pass with mini-batches


@dataclass(frozen=True)
class Learning:
    """Step sizes of stepwise EM: batch t has weight (t + offset)^-decay."""

    decay: float
    offset: float

    @classmethod
    def of(cls, model: Any) -> Learning:
        return cls(model.learning_decay, model.learning_offset)

    def step(self, online: Online, problem: Problem, sweep: Any, batch: Batch | None = None) -> Any:
        return online.step(problem.kernel, sweep, decay=self.decay, offset=self.offset, batch=batch)


def fit_em(
    model: Any,
    problem: Problem,
    start: Start,
    example: Callable[[], Any],
    *,
    step: Callable[[Any], Step[Any]] | None = None,
    options: FitOptions | None = None,
) -> Result[Any]:
    """The fitted parameters in the frame, with all rows or mini-batches as the estimator's options say.

    `start(progress)` computes starting values, `example()` returns parameters of the right shapes, and `step`
    replaces the EM step over the rows if there is a cheaper one. `options` are those of one stage of a longer
    fit; by default those of the estimator.
    """
    options = options or FitOptions.of(model, problem.data_identity)
    rows = problem.data.X.shape[0] if problem.data.in_memory else np.inf
    size = min(rows, SMALLEST_BLOCK if model.block_size is None else model.block_size)
    check_block_fits(model, int(size), problem.floats_per_row)
    by = _all_rows if model.batch_size is None else _mini_batches
    result = by(model, problem, start, example, options, step)
    model.n_passes_ = options.passes.count
    return result


def _all_rows(
    model: Any, problem: Problem, start: Start, example: Any, options: FitOptions, step: Any
) -> Result[Any]:
    passes = options.passes
    sweep = problem.sweep()
    step = problem.step(passes, sweep) if step is None else passes.counted(step)
    if model.accelerate == "anderson":
        return _anderson(problem.kernel, step, start, example, options)
    if model.accelerate == "squarem":
        step = problem.with_conditionals(step, sweep, problem.log_volume, passes=passes)
        step = squarem(step, problem.kernel)
    return fitting.fit(step, start, options, example=example)


def _anderson(chart: Any, step: Any, start: Start, example: Any, options: FitOptions) -> Result[Any]:
    """A fit whose steps remember earlier ones; a checkpoint holds what they remember."""

    def first(progress: Any) -> tuple[Remembering, bool]:
        params, interrupted = start(progress)
        return Remembering.nothing(params, chart), interrupted

    def shape() -> Remembering:
        return Remembering.nothing(example(), chart)

    result = fitting.fit(anderson(step, chart, options.stop), first, options, example=shape)
    return replace(result, params=result.params.params)


def known_start(
    model: Any,
    problem: Problem,
    to_kernel: Callable[[dict[str, Any]], Any],
    check: Callable[[Any, str], Any] = lambda start, shown_as: start,
    shown_as: str = "the starting values",
) -> tuple[Any, dict[str, Any]]:
    """Starting values that need no search, from an earlier fit or from the user; or None, and those given.

    `check(start, shown_as)` returns a start in the frame, or raises an error that calls it `shown_as`.
    """
    here, n_features = problem.in_main_memory(), problem.data.n_features
    if model.warm_start and hasattr(model, "history_"):
        model._check_shapes(n_features, "warm_start")
        last = here.to_frame(mapped(to_numpy, model._fitted_model().params))
        return problem.on_device(check(last, "the means of the last fit")), {}
    given = given_starts(model, model._parameters(), model._sizes(n_features))
    if not all_given(model, model._parameters()):
        return None, given
    return problem.on_device(check(here.to_frame(to_kernel(given)), shown_as)), given


# -- mini-batches -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pass:
    """State of a fit with mini-batches; the row order of pass t is drawn with the seed (seed, t)."""

    online: Online
    seed: int


def _mini_batches(
    model: Any, problem: Problem, start: Start, example: Any, options: FitOptions, step: Any
) -> Result[Any]:
    """A step after every `batch_size` rows; an iteration is a pass over all rows."""
    learning, summary, size = Learning.of(model), problem.summary, model.batch_size
    full = min(size, summary.n_rows)
    full_weight = summary.total_weight * (full / summary.n_rows)

    def move(here: Pass, number: int) -> tuple[Pass, float]:
        online, total, weight = here.online, 0.0, 0.0
        for batch in problem.data.batches(size, np.random.default_rng([here.seed, number])):
            share = Batch(min(1.0, len(batch) / full), full_weight, summary.total_weight)
            online, part, its_weight = learning.step(online, problem, problem.sweep_of(batch), share)
            total, weight = total + part, weight + its_weight
        options.passes.count += 1
        log_prior = problem.kernel.log_prior(online.params) / summary.total_weight
        return replace(here, online=online), total / weight + log_prior - problem.log_volume

    def evaluate(here: Pass) -> float:
        options.passes.count += 1
        return float(problem.step()(here.online.params).objective)

    def first(progress: Any) -> tuple[Pass, bool]:
        params, interrupted = start(progress)
        return Pass(
            Online(params, None), int(as_random_state(model.random_state).randint(2**31 - 1))
        ), interrupted

    def shape() -> Pass:
        online = Online(example(), None)
        return Pass(
            learning.step(online, problem, problem.sweep_of_sample(problem.in_main_memory().sample()))[0], 0
        )

    def driver(move: Any, state: Any, **settings: Any) -> Result[Any]:
        return run_passes(move, evaluate, state, **settings)

    tol = max(model.tol, _NOISE) if model.tol else 0.0
    options = replace(options, stop=relative(tol))
    result = fitting.fit(move, first, options, example=shape, driver=driver)  # type: ignore[arg-type]
    return replace(result, params=result.params.online.params)


# -- incremental fits ---------------------------------------------------------------------------------


def partial_fit(self: Any, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """Update the model with a batch of rows, by stepwise EM.

    The first batch determines the starting values, as `fit` would compute them, and the feature variances for
    `noise_floor`; so it should be typical, with some rows of every component. Batch t contributes to the
    running statistics with weight (t + learning_offset)^-learning_decay. A model that was fitted, or read
    from a file, continues from its parameters; its earlier steps count for t.

    Parameters
    ----------
    X, y, sample_weight
        As for `fit`.

    Returns
    -------
    self
    """
    self._check_options()
    with unchanged_on_failure(self):
        _continue(self, partial(self._data, X, y, sample_weight))
    return self


def _continue(model: Any, data_of: Callable[..., Any]) -> None:
    """One step of stepwise EM; the problem of the first batch is kept for the following ones."""
    fitted, online = hasattr(model, "history_"), getattr(model, "_online", None)
    data = data_of(reset=online is None and not fitted)
    if fitted:
        model._check_shapes(data.n_features, "partial_fit")
    if online is not None:
        problem, online = online
        problem = replace(problem, data=data)
    elif fitted:  # by `fit`, or read from a file
        problem = model._problem_of_fitted(data)
        start = problem.to_frame(model._fitted_model().params)
        online = Online(start, problem.kernel.implied_stats(start), model.n_iter_)
    else:
        problem = model._problem(data)
        online = Online(model._start(problem)[0], None)
        model.n_iter_, model.converged_, model.history_, model.n_passes_ = 0, False, np.zeros(0), 0
    online, total, weight = Learning.of(model).step(online, problem, problem.sweep())
    if weight:
        rows = data.sweep(None, floats_per_row=data.n_features, block_size=model.block_size)
        log_volume = float(rows.sum(weighted_log_volume, problem.frame)) / weight
        log_prior = problem.kernel.log_prior(online.params) / online.weight
        history = np.append(to_numpy(model.history_), total / weight + log_prior - log_volume)
        model.history_ = like(history, problem.frame.shift)
        model.n_iter_ += 1
        model.n_passes_ += 1
    model._online = replace(problem, data=None, summary=replace(problem.summary, sample=None)), online
    model._keep(problem.from_frame(online.params))


def weighted_log_volume(frame: Frame, block: Block) -> Array:
    """The sum over rows of weight times log volume."""
    volume = frame.log_volume(block)
    xp = namespace(block.X)
    if block.observed is None:
        return volume * block.total_weight()
    return xp.sum(volume if block.weight is None else volume * block.weight)


def keep_result(model: Any, problem: Problem, result: Result[Any]) -> None:
    """Store the result of a fit in the fitted attributes of the estimator."""
    vars(model).pop("_online", None)
    model._keep(problem.from_frame(result.params))
    model.n_iter_, model.converged_ = result.n_iter, result.converged
    model.history_ = like(np.array(result.history), problem.frame.shift)
