"""The Array API namespace of whatever arrays came in."""

from __future__ import annotations

from typing import Any, TypeAlias

import array_api_compat
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = Any  # an array of some Array API namespace: NumPy, torch, array_api_strict
Namespace: TypeAlias = Any
Floats: TypeAlias = NDArray[np.float64]


def namespace(*arrays: Array) -> Namespace:
    """The Array API namespace that the arrays share."""
    return array_api_compat.array_namespace(*arrays)


def to_numpy(array: Array) -> NDArray[Any]:
    """The same values as a NumPy array, copied from the device if need be."""
    if isinstance(array, np.ndarray):
        return array
    if array_api_compat.is_torch_array(array):
        return np.asarray(array.detach().cpu())
    return np.asarray(array)


def double(array: Array) -> Array:
    """The array in float64, in which every sum over blocks is kept."""
    xp = namespace(array)
    return array if array.dtype == xp.float64 else xp.astype(array, xp.float64)


def on_host(array: Array) -> bool:
    """Whether the array lies in main memory, where gathering a few rows is cheap."""
    return str(array_api_compat.device(array)) in ("cpu", "CPU_DEVICE")
