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


def is_numpy(array: Array) -> bool:
    """Whether this is a NumPy array, for which some products have a quicker way."""
    return isinstance(array, np.ndarray)


def exp_above(exponents: Array, lowest: float) -> Array:
    """exp of the exponents, which are raised to `lowest` first; NumPy's are overwritten, to save memory."""
    if is_numpy(exponents):
        np.maximum(exponents, lowest, out=exponents)
        return np.exp(exponents, out=exponents)
    xp = namespace(exponents)
    return xp.exp(xp.clip(exponents, min=lowest))
