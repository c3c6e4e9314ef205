"""The state of a training between two epochs, and its checkpoint.

A checkpoint holds the module, its best state so far, and the states of the optimiser and all generators as
named arrays, and counters, histories and the rest as numbers. Settings of the optimiser, such as the learning
rate, are not saved: they are those of the fit, which the checkpoint identifies by `belongs_to`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from latently.core.checkpoint import Checkpoint, whole_number
from latently.training.generators import Generators
from latently.training.modules import copied_state, module_arrays, set_module_arrays


@dataclass
class Record:
    """Results of the epochs so far."""

    sign: int  # 1 if a larger objective is better, -1 if a smaller one is
    n_iter: int = 0
    history: list[float] = field(default_factory=list)  # the objective, for each epoch
    losses: dict[str, list[float]] = field(default_factory=dict)  # all that steps returned, for each epoch
    best_value: float | None = None
    n_stale: int = 0  # epochs since the last sufficient improvement
    converged: bool = False
    ended: bool = False

    def add(self, losses: Mapping[str, float], objective: str) -> float:
        """Add an epoch and return the improvement of the objective."""
        if self.n_iter > 0 and losses.keys() != self.losses.keys():
            raise ValueError(
                f"the losses were {sorted(self.losses)}, now {sorted(losses)}; return the same names always"
            )
        for name, value in losses.items():
            self.losses.setdefault(name, []).append(value)
        self.history.append(self._last(objective))
        self.n_iter += 1
        return self.sign * (self.history[-1] - self.history[-2]) if self.n_iter > 1 else math.inf

    def is_best(self, watched: str, tol: float) -> bool:
        """Whether the last epoch is the best one; counts epochs without sufficient improvement."""
        value = self._last(watched)
        best = self.best_value
        gain = math.inf if best is None else self.sign * (value - best)
        self.n_stale = 0 if best is None or gain > tol * max(1.0, abs(best)) else self.n_stale + 1
        if gain > 0:
            self.best_value = value
        return gain > 0

    def _last(self, name: str) -> float:
        if name not in self.losses:
            raise ValueError(
                f"the step returned no {name!r}, only {sorted(self.losses)}; name one of these as objective"
            )
        return self.losses[name][-1]


@dataclass(frozen=True)
class Snapshot:
    """The module after some epoch; one object, so that it is replaced atomically in case of an interrupt."""

    n_iter: int
    state: dict[str, Tensor]


def write(
    checkpoint: Checkpoint,
    record: Record,
    best: Snapshot | None,
    module: nn.Module,
    optimizer: Optimizer | None,
    generators: Generators,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write the checkpoint, replacing its contents."""
    arrays = _prefixed("module", module_arrays(module))
    if best is not None:
        arrays |= _prefixed("best", {name: tensor.cpu().numpy() for name, tensor in best.state.items()})
    state_arrays, state_numbers = _optimizer_state(optimizer)
    arrays |= _prefixed("optimizer", state_arrays)
    torch_generators = generators.torch_generators().items()
    arrays |= _prefixed("generator", {name: one.get_state().numpy() for name, one in torch_generators})
    numbers = {
        **asdict(record),
        "best_iter": None if best is None else best.n_iter,
        "optimizer": state_numbers,
        "shuffling": generators.shuffling.bit_generator.state,
        "notes": dict(notes or {}),
        "arrays": {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()},
    }
    del numbers["history"]  # checkpoints store it separately
    checkpoint.write(arrays, record.history, numbers)


def read(
    checkpoint: Checkpoint, module: nn.Module, optimizer: Optimizer | None, generators: Generators
) -> tuple[Record, Snapshot | None]:
    """Restore module, optimiser and generators from the checkpoint; returns the record and the best state."""
    _, history, numbers = checkpoint.read({})
    try:
        arrays = checkpoint.arrays()
        arrays.pop("history")
        shapes = {name: [str(array.dtype), list(array.shape)] for name, array in arrays.items()}
        if shapes != numbers.pop("arrays"):
            raise ValueError("its arrays are not those it describes")
        if not all(np.all(np.isfinite(array)) for array in arrays.values()):
            raise ValueError("its arrays must be finite")
        best, best_iter = None, numbers.pop("best_iter")
        if best_iter is not None:
            set_module_arrays(module, _without_prefix("best", arrays))
            best = Snapshot(best_iter, copied_state(module))
        set_module_arrays(module, _without_prefix("module", arrays))
        _set_optimizer_state(optimizer, _without_prefix("optimizer", arrays), numbers.pop("optimizer"))
        states = _without_prefix("generator", arrays)
        for name, one in generators.torch_generators().items():
            one.set_state(torch.tensor(states[name]))
        generators.shuffling.bit_generator.state = numbers.pop("shuffling")
        numbers.pop("notes")
        record = Record(history=history, **numbers)
        _check_record(record)
        return record, best
    except (LookupError, AttributeError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(
            f"checkpoint={str(checkpoint.path)!r} does not match this model: {error}; "
            "delete the file to start again"
        ) from None


def _check_record(record: Record) -> None:
    for name in ("n_iter", "n_stale"):
        whole_number(vars(record), name)
    series = (record.history, *record.losses.values())
    if not all(len(one) == record.n_iter and np.all(np.isfinite(one)) for one in series):
        raise ValueError("its history does not go with its number of epochs")
    if record.sign not in (-1, 1) or not isinstance(record.best_value, float | None):
        raise ValueError("its best value is none")
    if type(record.converged) is not bool or type(record.ended) is not bool:
        raise ValueError("it does not say whether it ended")


def notes(checkpoint: Checkpoint) -> dict[str, Any]:
    """The notes that the checkpoint was written with."""
    _, _, numbers = checkpoint.read({})
    found: dict[str, Any] = numbers.get("notes", {})
    return found


def _prefixed(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _without_prefix(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


def _parameters(optimizer: Optimizer | None) -> list[Tensor]:
    """The parameters, in the order in which optimisers number them."""
    groups = [] if optimizer is None else optimizer.param_groups
    return [parameter for group in groups for parameter in group["params"]]


def _optimizer_state(optimizer: Optimizer | None) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The optimiser's state of each parameter, named "index.entry": tensors, and plain numbers."""
    arrays: dict[str, NDArray[Any]] = {}
    numbers: dict[str, Any] = {}
    parameters = _parameters(optimizer)
    state = {} if optimizer is None else optimizer.state_dict()["state"]
    for i, remembered in state.items():
        for name, value in remembered.items():
            if isinstance(value, Tensor) and value.shape in ((), parameters[i].shape):
                arrays[f"{i}.{name}"] = value.detach().cpu().numpy()
            elif isinstance(value, bool | int | float):
                numbers[f"{i}.{name}"] = value
            elif value is not None:
                raise NotImplementedError(
                    f"checkpoints cannot hold {name!r} of {type(optimizer).__name__}, which is neither a "
                    "number nor a tensor shaped like its parameter; choose another optimizer or no checkpoint"
                )
    return arrays, numbers


def _set_optimizer_state(
    optimizer: Optimizer | None, arrays: dict[str, NDArray[Any]], numbers: dict[str, Any]
) -> None:
    if optimizer is None:
        if arrays or numbers:
            raise ValueError("it has the state of an optimizer, but no optimizer was given")
        return
    parameters = _parameters(optimizer)
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**arrays, **numbers}.items():
        i, _, name = key.partition(".")
        if int(i) >= len(parameters):
            raise ValueError(
                f"the optimizer has {len(parameters)} parameters, but the file has the state of parameter {i}"
            )
        shape = tuple(parameters[int(i)].shape)
        if isinstance(value, np.ndarray):
            if value.shape not in ((), shape):
                raise ValueError(f"{name!r} of parameter {i} has shape {value.shape}, the parameter {shape}")
            value = torch.tensor(value)
        state.setdefault(int(i), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
