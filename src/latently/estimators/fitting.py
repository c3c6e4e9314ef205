"""One function that fits any iterative model: step + start + options -> result.

It handles what all fits share: random restarts, checkpoints, interrupts, progress, callbacks, and warnings at
the end. The model defines the step and the objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from latently.core.checkpoint import Checkpoint, fingerprint, whole_number
from latently.core.drivers import (
    LOG_LIKELIHOOD,
    Objective,
    Passes,
    Result,
    State,
    Step,
    StopRule,
    relative,
    run,
)
from latently.core.progress import Progress
from latently.estimators.checks import check_writable
from latently.estimators.messages import InterruptedWarning, warn_user

# Parameters that may differ between a fit and the one that resumes from its checkpoint.
_FREE_TO_CHANGE = {"max_iter", "tol", "verbose", "callbacks", "checkpoint", "checkpoint_every"}

Start = Callable[[Progress | None], tuple[Any, bool]]  # parameters, and whether the search was interrupted


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit that do not depend on the model."""

    title: str
    max_iter: int
    stop: StopRule
    tol: float = 0.0
    objective: Objective = LOG_LIKELIHOOD
    verbose: bool = False
    callbacks: tuple[Any, ...] = ()
    checkpoint: Checkpoint | None = None
    checkpoint_every: int = 10
    passes: Passes = field(default_factory=Passes)  # over the rows, counted by the steps

    @classmethod
    def of(
        cls,
        model: Any,
        data_identity: str = "",
        *,
        objective: Objective | None = None,
        least_size: float = 1.0,
    ) -> FitOptions:
        """The options of an estimator; `data_identity` identifies the rows that a checkpoint belongs to."""
        return cls(
            title=type(model).__name__,
            max_iter=model.max_iter,
            stop=relative(model.tol, least_size),
            tol=model.tol,
            objective=objective or model.objective,
            verbose=bool(model.verbose),
            callbacks=tuple(model.callbacks or ()),
            checkpoint=_checkpoint(model, data_identity),
            checkpoint_every=model.checkpoint_every,
        )

    @contextmanager
    def progress(self) -> Iterator[Progress | None]:
        if not self.verbose:
            yield None
            return
        with Progress(self.title, self.objective.name) as progress:
            yield progress


def fit(
    step: Callable[[Any], Step[Any]],
    start: Start,
    options: FitOptions,
    *,
    example: Callable[[], Any] | None = None,
    driver: Callable[..., Result[Any]] = run,
) -> Result[Any]:
    """The result of `driver(step, state, ...)` from the starting values, or resumed from a checkpoint.

    `example` gives a record with the shapes of the parameters, for reading a checkpoint.
    """
    ending = _ENDING.get()
    over = ending is not None and ending.interrupted
    with options.progress() as progress:
        state = _resumed(options, example)
        interrupted = False
        if state is None:
            params, interrupted = start(progress)
            interrupted = interrupted or over
            state = State.at(params)
        else:
            step = _trusting_nothing(step, options)
        result = driver(
            step,
            state,
            max_iter=0 if interrupted else options.max_iter,
            stop=options.stop,
            objective=options.objective,
            callbacks=[*options.callbacks, *([progress] if progress else ())],
            between=lambda state: _keep(options, state),
        )
    result = replace(result, interrupted=result.interrupted or interrupted)
    if options.checkpoint and not result.interrupted:
        options.checkpoint.remove()
    if ending is not None:
        ending.interrupted = ending.interrupted or result.interrupted
    if not over:
        warn_at_the_end(result, options)
    return result


@dataclass
class Ending:
    """Of a fit that consists of several: whether the user interrupted one of them."""

    interrupted: bool = False


_ENDING: ContextVar[Ending | None] = ContextVar("ending", default=None)


@contextmanager
def ended_by_one_interrupt() -> Iterator[Ending]:
    """Inside, an interrupt of one fit is one of all that follow: these keep their starting values."""
    ending = _ENDING.get() or Ending()
    token = _ENDING.set(ending)
    try:
        yield ending
    finally:
        _ENDING.reset(token)


def warn_at_the_end(result: Result[Any], options: FitOptions) -> None:
    """Warn of a fit that was interrupted, or did not converge although `tol` asks for it."""
    if result.interrupted:
        warn_user(
            f"{options.title} was interrupted; it keeps the parameters of iteration {result.n_iter}",
            InterruptedWarning,
        )
    elif not result.converged and result.n_iter == options.max_iter and options.tol > 0:
        warn_user(
            f"{options.title} did not converge in max_iter={options.max_iter} iterations; "
            "increase max_iter or tol",
            ConvergenceWarning,
        )


# -- checkpoints --------------------------------------------------------------------------------------


def _checkpoint(model: Any, data_identity: str) -> Checkpoint | None:
    """The checkpoint of a fit, with what identifies the fit it belongs to."""
    if model.checkpoint is None:
        return None
    check_writable("checkpoint", model.checkpoint)
    settings = {
        name: _described(value)
        for name, value in model.get_params(deep=False).items()
        if name not in _FREE_TO_CHANGE
    }
    return Checkpoint(model.checkpoint, {"model": type(model).__name__, "data": data_identity, **settings})


def _described(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if not isinstance(value, (list, tuple)) and not hasattr(value, "shape"):
        return "?"
    try:
        return fingerprint(value)
    except ValueError:  # a list of lists of different lengths, such as the sizes of layers
        return repr(value)


def _keep(options: FitOptions, state: State[Any]) -> None:
    if options.checkpoint is None or state.n_iter % options.checkpoint_every:
        return
    records = {"params": state.params}
    if state.previous is not state.params:
        records["previous"] = state.previous
    numbers = {
        "n_iter": state.n_iter,
        "rounding": state.rounding,
        "ended": bool(state.ended),
        "n_passes": options.passes.count,
    }
    options.checkpoint.write(records, state.history, numbers)


def _trusting_nothing(step: Callable[..., Any], options: FitOptions) -> Callable[..., Any]:
    """The step, whose first call shows whether the state in a checkpoint is one of this fit."""
    checkpoint, tried = options.checkpoint, False
    assert checkpoint is not None

    def guarded(*args: Any) -> Any:
        nonlocal tried
        if tried:
            return step(*args)
        tried = True
        with checkpoint.understood():
            return step(*args)

    return guarded


def _resumed(options: FitOptions, example: Callable[[], Any] | None) -> State[Any] | None:
    """The state in the checkpoint, if there is one."""
    if options.checkpoint is None or example is None or not options.checkpoint.exists():
        return None
    shape = example()
    records, history, numbers = options.checkpoint.read({"params": shape, "previous": shape}, {"previous"})
    with options.checkpoint.understood():
        options.passes.count = whole_number(numbers, "n_passes")
        n_iter = whole_number(numbers, "n_iter")
        if len(history) > n_iter + 1 or not np.all(np.isfinite(history)):
            raise ValueError(f"a history of {len(history)} finite entries does not go with n_iter={n_iter}")
        previous = records.get("previous", records["params"])
        rounding, ended = float(numbers["rounding"]), bool(numbers["ended"])
        return State(records["params"], previous, history, n_iter, rounding, ended)
    return None
