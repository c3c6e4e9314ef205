"""The training loop: epochs of steps over mini-batches, with early stopping.

A step is a function `step(batch) -> {name: loss}` of a `Batch`. With an optimiser its entry "loss" is
differentiated and the optimiser updates the parameters; all other entries are only recorded. Without one the
step updates the parameters itself (contrastive divergence, wake-sleep), and all entries are only recorded.
State that a step keeps between batches (velocities, persistent chains) belongs in buffers of the module, so
that checkpoints contain it.

An epoch costs its steps, and one copy of the module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from latently.core.checkpoint import Checkpoint
from latently.core.drivers import Callback, Iteration, NotFinite, Result
from latently.training import graphs, resume
from latently.training.batches import Batch, Rows
from latently.training.generators import Generators, drawing_from
from latently.training.modules import copied_state, set_state

Losses: TypeAlias = Mapping[str, Tensor | float]  # means over the rows of a batch, by name
StepFunction: TypeAlias = Callable[[Batch], Losses]


@dataclass(frozen=True)
class Trained(Result[nn.Module]):
    """The result of a training: `history` has the objective of each of the first `n_iter` epochs.

    `params` is the module after these epochs. `losses` has the losses of all epochs, including those after
    the best one: means over rows by name, those of validation rows as "validation <name>". `converged` is
    True if training stopped because patience ran out.
    """

    losses: dict[str, list[float]] = field(default_factory=dict)
    maximise: bool = False  # whether a larger objective is better


def train(
    step: StepFunction,
    module: nn.Module,
    rows: Rows,
    generators: Generators,
    *,
    max_iter: int,
    optimizer: Optimizer | None = None,
    schedule: Callable[[int], float] | None = None,
    objective: str = "loss",
    maximise: bool = False,
    validation: Rows | None = None,
    evaluate: StepFunction | None = None,
    patience: int | None = None,
    tol: float = 0.0,
    callbacks: Iterable[Callback] = (),
    checkpoint: Checkpoint | None = None,
    checkpoint_every: int = 1,
    draws_name_generators: bool = False,
    static: bool = False,
    check: Callable[[Tensor], None] | None = None,
    notes: Mapping[str, Any] | None = None,
    from_checkpoint: bool = True,
) -> Trained:
    """Train the module in place for at most `max_iter` epochs, and leave it in evaluation mode.

    Parameters
    ----------
    step, optimizer
        See above. A step that updates the parameters itself runs without gradients, unless it enables them.
    schedule
        Epoch (from 0) -> factor by which the optimiser's initial learning rates are multiplied.
    objective, maximise
        The entry of the losses for the history and callbacks, and whether larger is better.
    validation, evaluate
        Rows that are evaluated after every epoch, by `evaluate`, or by the step itself if there is an
        optimiser: without gradients, in evaluation mode, with the same draws each time.
    patience, tol
        Training stops after `patience` epochs without an improvement of more than `tol` times the objective
        (or `tol`, if the objective is below one), and the best state is restored. The objective of validation
        rows is used, if there are any. Without patience the last state is kept.
    callbacks
        Called after every epoch with an `Iteration`: its number is the number of epochs done, its gain is
        positive if the objective improved. One that returns True stops the training.
    checkpoint, checkpoint_every
        Where and how often the state is written. If the file exists, training resumes from it, with the same
        result as without the interruption. The file is not removed; that is up to the caller.
    draws_name_generators
        Whether every draw of the steps is told `batch.generator`. Other draws are then not redirected to it,
        which saves time where steps consist of many small operations.
    static
        Whether steps are static as `training.graphs` has it, so that a GPU can replay them.
    check
        Called with rows that are read for the first time; raises an error for those that are not allowed.
    notes, from_checkpoint
        What else checkpoints hold, as numbers (see `training.stages`), and whether an existing one is read.
    """
    if validation is not None and evaluate is None and optimizer is None:
        raise ValueError("validation rows need evaluate=, because the step updates the parameters itself")
    if generators.sampling.device != rows.device:
        raise ValueError(f"generators draw on {generators.sampling.device}, but rows are on {rows.device}")
    watched = objective if validation is None else f"validation {objective}"
    callbacks, rates = list(callbacks), _Rates(optimizer, schedule)
    steps = graphs.Steps(
        _whole_step(step, optimizer, redirected=not draws_name_generators),
        graphs.recorder(generators.sampling, optimizer) if static else None,
    )
    record, best = resume.Record(sign=1 if maximise else -1), None
    if checkpoint is not None and from_checkpoint and checkpoint.exists():
        record, best = resume.read(checkpoint, module, optimizer, generators)
    interrupted, last = False, resume.Snapshot(record.n_iter, copied_state(module))
    try:
        while record.n_iter < max_iter and not record.ended:
            rates.set(record.n_iter)
            means = _Means(record.n_iter, optimizer)
            losses = _epoch(steps, module, rows, generators, means, check)
            if validation is not None:
                means = _Means(record.n_iter, None)
                found = _evaluated(evaluate or step, module, validation, generators, means, check)
                losses |= {f"validation {name}": value for name, value in found.items()}
            gain = record.add(losses, objective)
            last = resume.Snapshot(record.n_iter, copied_state(module))
            if patience is not None:
                best = last if record.is_best(watched, tol) else best
                record.converged = record.n_stale >= patience
            iteration = Iteration(record.n_iter, record.history[-1], gain, max_iter)
            asked = any([callback(iteration) is True for callback in callbacks])
            record.ended = asked or record.converged
            done = record.ended or record.n_iter == max_iter
            if checkpoint is not None and (done or record.n_iter % checkpoint_every == 0):
                resume.write(checkpoint, record, best, module, optimizer, generators, notes)
    except KeyboardInterrupt:
        if last.n_iter == 0 and not (notes or {}).get("n_iter"):
            raise
        interrupted = True
    finally:
        rates.restore()
        module.eval()
    kept = best or last
    set_state(module, kept.state)
    return Trained(
        params=module,
        history=record.history[: kept.n_iter],
        n_iter=kept.n_iter,
        converged=record.converged and not interrupted,
        interrupted=interrupted,
        losses={name: values[: last.n_iter] for name, values in record.losses.items()},
        maximise=maximise,
    )


class _Rates:
    """The initial learning rates of an optimiser, and their schedule."""

    def __init__(self, optimizer: Optimizer | None, schedule: Callable[[int], float] | None):
        if schedule is not None and optimizer is None:
            raise ValueError(
                "schedule= needs an optimizer; a step that updates the parameters itself can use batch.epoch"
            )
        self.optimizer, self.schedule = optimizer, schedule
        self.first = [] if optimizer is None else [group["lr"] for group in optimizer.param_groups]

    def set(self, epoch: int) -> None:
        if self.schedule is not None:
            self._multiply(self.schedule(epoch))

    def restore(self) -> None:
        if self.schedule is not None:
            self._multiply(1.0)

    def _multiply(self, factor: float) -> None:
        groups = [] if self.optimizer is None else self.optimizer.param_groups
        for group, rate in zip(groups, self.first, strict=True):
            group["lr"] = rate * factor


def _whole_step(step: StepFunction, optimizer: Optimizer | None, *, redirected: bool) -> StepFunction:
    """The step with that of the optimiser; losses are detached."""

    def advance(batch: Batch) -> Losses:
        with (
            torch.set_grad_enabled(optimizer is not None),
            drawing_from(batch.generator) if redirected else nullcontext(),
        ):
            losses = step(batch)
        recorded = _detached(losses)
        if optimizer is not None:
            loss = losses.get("loss")
            if not isinstance(loss, Tensor):
                raise ValueError(
                    f"a step for an optimizer must return a tensor 'loss'; this one returned {sorted(losses)}"
                )
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        return recorded

    return advance


def _detached(losses: Losses) -> Losses:
    found: dict[str, Tensor | float] = {}
    for name, loss in losses.items():
        if isinstance(loss, Tensor):
            if loss.numel() != 1:
                raise ValueError(
                    f"the loss {name!r} has shape {tuple(loss.shape)}; return its mean, batch.mean(loss)"
                )
            loss = loss.detach().reshape(())
        found[name] = loss
    return found


def _epoch(
    steps: graphs.Steps,
    module: nn.Module,
    rows: Rows,
    generators: Generators,
    means: _Means,
    check: Callable[[Tensor], None] | None,
) -> dict[str, float]:
    """One step for each batch; the means of the losses over all rows."""
    module.train()
    with steps.epoch():
        for batch in rows.batches(generators.sampling, means.epoch, generators.shuffling):
            if check is not None and means.epoch == 0:
                check(batch.X)
            try:
                losses = steps(batch)
            except torch.linalg.LinAlgError as error:
                raise NotFinite(f"{error} (in epoch {means.epoch + 1}; lower learning_rate)") from None
            means.add(losses, batch)
        return means.finished()


def _evaluated(
    evaluate: StepFunction,
    module: nn.Module,
    rows: Rows,
    generators: Generators,
    means: _Means,
    check: Callable[[Tensor], None] | None,
) -> dict[str, float]:
    module.eval()
    generator = generators.for_evaluation()
    with torch.no_grad(), drawing_from(generator):
        for batch in rows.batches(generator, means.epoch):
            if check is not None and means.epoch == 0:
                check(batch.X)
            means.add(_detached(evaluate(batch)), batch)
    return means.finished()


class _Means:
    """Means over rows of named losses, transferred from an accelerator once, after the last batch."""

    def __init__(self, epoch: int, optimizer: Optimizer | None):
        self.epoch, self.optimizer = epoch, optimizer
        self.sums: dict[str, Any] = {}
        self.n_rows: dict[str, int] = {}

    def add(self, losses: Losses, batch: Batch) -> None:
        for name, loss in losses.items():
            if batch.X.device.type == "cpu":
                self.sums[name] = self.sums.get(name, 0.0) + len(batch) * self._finite(name, float(loss))
            else:  # one small kernel
                if name not in self.sums:
                    self.sums[name] = torch.zeros((), dtype=torch.float64, device=batch.X.device)
                self.sums[name].add_(loss, alpha=len(batch))
            self.n_rows[name] = self.n_rows.get(name, 0) + len(batch)

    def finished(self) -> dict[str, float]:
        return {name: self._finite(name, float(self.sums[name]) / n) for name, n in self.n_rows.items()}

    def _finite(self, name: str, value: float) -> float:
        if math.isfinite(value):
            return value
        rate = f" (now {self.optimizer.param_groups[0]['lr']:g})" if self.optimizer is not None else ""
        raise NotFinite(
            f"the loss {name!r} became {value} in epoch {self.epoch + 1}; lower learning_rate{rate}, "
            "and make sure that X has no missing or infinite entries"
        )
