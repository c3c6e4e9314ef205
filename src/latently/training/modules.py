"""Parameters of a torch module as named arrays, and back.

The arrays are those of the module's `state_dict`: parameters, and buffers such as the running means of batch
norm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


def module_arrays(module: nn.Module) -> dict[str, NDArray[Any]]:
    """Copies of all parameters and buffers, by name."""
    return {name: tensor.numpy() for name, tensor in copied_state(module, device="cpu").items()}


def set_module_arrays(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Set all parameters and buffers; names, shapes and dtypes must match those of the module."""
    state: dict[str, Tensor] = module.state_dict()
    missing, unknown = state.keys() - arrays.keys(), arrays.keys() - state.keys()
    if missing or unknown:
        raise ValueError(
            f"the arrays do not match {type(module).__name__}: missing {sorted(missing)}, "
            f"unknown {sorted(unknown)}"
        )
    for name, tensor in state.items():
        array = np.asarray(arrays[name])
        dtype = tensor.new_empty(0, device="cpu").numpy().dtype
        if array.shape != tuple(tensor.shape) or array.dtype != dtype:
            raise ValueError(
                f"{name} must have shape {tuple(tensor.shape)} and dtype {dtype}, "
                f"not shape {array.shape} and dtype {array.dtype}"
            )
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name} must have finite entries")
    set_state(module, {name: torch.tensor(np.asarray(array)) for name, array in arrays.items()})


def copied_state(module: nn.Module, device: torch.device | str | None = None) -> dict[str, Tensor]:
    """Copies of the current parameters and buffers, optionally on another device."""
    state: dict[str, Tensor] = module.state_dict()
    return {name: tensor.detach().to(device, copy=True) for name, tensor in state.items()}


def set_state(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy the tensors into the module; its parameters remain the same objects."""
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            tensor.copy_(state[name])
