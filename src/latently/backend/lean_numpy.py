"""NumPy as an Array API namespace without the wrappers of its Python layer.

On a small table an EM step is a few dozen calls on arrays of a few hundred numbers, and `np.sum`,
`np.reshape` or `np.matrix_transpose` take as long to dispatch as to compute. These are the same functions,
called directly. What is not here is NumPy's own. Needs NumPy 2.1, which follows the Array API.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_sum: Any = np.add.reduce
_max: Any = np.maximum.reduce
_min: Any = np.minimum.reduce
_all: Any = np.logical_and.reduce
_any: Any = np.logical_or.reduce


class _Linalg:
    """`np.linalg`, likewise."""

    def __init__(self) -> None:
        self.__dict__.update(vars(np.linalg))
        self.diagonal, self.vector_norm = _diagonal, _vector_norm


class LeanNumPy:
    """The functions of NumPy; attributes that it makes when they are asked for are asked of it."""

    def __init__(self) -> None:
        self.__dict__.update({name: value for name, value in vars(np).items() if not name.startswith("__")})
        own = (sum_, max_, min_, all_, any_, reshape, permute_dims, matrix_transpose, take, astype, clip)
        self.__dict__.update({function.__name__.rstrip("_"): function for function in own})
        self.stack, self.broadcast_to, self.linalg = stack, broadcast_to, _Linalg()

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def sum_(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    return _sum(x, axis, dtype, None, keepdims)


def max_(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _max(x, axis, None, None, keepdims)


def min_(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _min(x, axis, None, None, keepdims)


def all_(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _all(x, axis, None, None, keepdims)


def any_(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return _any(x, axis, None, None, keepdims)


def reshape(x: Any, shape: Any) -> Any:
    return x.reshape(shape)


def permute_dims(x: Any, axes: Any) -> Any:
    return x.transpose(axes)


def matrix_transpose(x: Any) -> Any:
    return x.mT


def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    return x.take(indices, axis)


def astype(x: Any, dtype: Any, copy: bool = True) -> Any:
    return x.astype(dtype, copy=copy)


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    if max is None:
        return x if min is None else np.maximum(x, min)
    return np.minimum(x, max) if min is None else np.clip(x, min, max)


def stack(arrays: Sequence[Any], axis: int = 0) -> Any:
    if axis:
        return np.stack(arrays, axis=axis)
    return np.concatenate([array[None, ...] for array in arrays])


def broadcast_to(x: Any, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else np.broadcast_to(x, shape)


def _diagonal(x: Any, offset: int = 0) -> Any:
    return x.diagonal(offset, -2, -1)


def _vector_norm(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.sqrt(_sum(x * x, axis, None, None, keepdims))
