"""Trainings that consist of several stages, such as one for each layer, behind one result and one checkpoint.

Each stage is a training of its own: its own epochs, early stopping and best state. A checkpoint says to which
stage it belongs and what the stages before recorded, so a killed training resumes in the middle of any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from latently.core.checkpoint import Checkpoint, whole_number
from latently.core.drivers import Callback, Iteration
from latently.training import resume
from latently.training.batches import Rows
from latently.training.generators import Generators
from latently.training.loop import StepFunction, Trained, train


@dataclass(frozen=True)
class Stage:
    """A part of a training; `begin` sets what depends on the stages before."""

    step: StepFunction
    evaluate: StepFunction
    max_iter: int
    begin: Callable[[], None] = lambda: None


@dataclass
class _Earlier:
    """What the stages before recorded."""

    history: list[float] = field(default_factory=list)
    losses: dict[str, list[float]] = field(default_factory=dict)
    n_iter: int = 0
    converged: bool = True

    def add(self, result: Trained) -> None:
        self.history += result.history
        for name, values in result.losses.items():
            self.losses.setdefault(name, []).extend(values)
        self.n_iter += result.n_iter
        self.converged = self.converged and result.converged


def train_stages(
    stages: Sequence[Stage],
    module: nn.Module,
    rows: Rows,
    generators: Generators,
    *,
    callbacks: Iterable[Callback] = (),
    checkpoint: Checkpoint | None = None,
    check: Callable[[Tensor], None] | None = None,
    **options: Any,
) -> Trained:
    """Train the module in one stage after the other; options are those of `train`, for each stage.

    An interrupt, or a callback that returns True, ends the training without the stages that follow.
    """
    total = sum(stage.max_iter for stage in stages)
    first, earlier, resumed = 0, _Earlier(), False
    if checkpoint is not None and checkpoint.exists():
        notes = resume.notes(checkpoint)
        with checkpoint.understood():
            first, resumed = whole_number(notes, "stage"), True
            if first >= len(stages):
                raise ValueError(f"it is in stage {first + 1} of {len(stages)}")
            earlier = _Earlier(**{name: value for name, value in notes.items() if name != "stage"})
            whole_number(vars(earlier), "n_iter")
            _check_series(earlier.history, *earlier.losses.values())
    ended = [False]
    result = None
    for number in range(first, len(stages)):
        stage = stages[number]
        if not resumed:
            stage.begin()
        result = train(
            stage.step,
            module,
            rows,
            generators,
            max_iter=stage.max_iter,
            evaluate=stage.evaluate,
            callbacks=[_numbered(callback, earlier.n_iter, total, ended) for callback in callbacks],
            checkpoint=checkpoint,
            check=check if number == 0 else None,  # later stages see the same rows
            notes={"stage": number, **vars(earlier)},
            from_checkpoint=resumed,
            **options,
        )
        earlier.add(result)
        resumed = False
        if result.interrupted or ended[0]:
            break
    if result is None:
        raise ValueError("a training needs at least one stage")
    return replace(
        result,
        history=earlier.history,
        losses=earlier.losses,
        n_iter=earlier.n_iter,
        converged=earlier.converged and not ended[0],
    )


def _check_series(*series: Any) -> None:
    if not all(isinstance(one, list) and all(type(value) is float for value in one) for one in series):
        raise ValueError("its history is no list of numbers")


def _numbered(callback: Callback, n_before: int, total: int, ended: list[bool]) -> Callback:
    """The callback with epochs counted over all stages; it notes whether it ended the training."""

    def call(iteration: Iteration) -> Any:
        asked = callback(replace(iteration, number=n_before + iteration.number, max_iter=total))
        ended[0] = ended[0] or asked is True
        return asked

    return call
