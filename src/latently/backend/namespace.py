"""Array API namespaces of the arrays in use."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import array_api_compat
import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.sparse import issparse

from latently.backend.lean_numpy import LeanNumPy

Array: TypeAlias = Any  # an array of some Array API namespace: NumPy, torch, array_api_strict
Namespace: TypeAlias = Any
Floats: TypeAlias = NDArray[np.float64]


# NumPy itself follows the Array API, from 2.1 on in all that is used here; wrappers of it take time
_COMPATIBLE: Namespace = array_api_compat.array_namespace(np.zeros(0))
_OF_NUMPY: Namespace = LeanNumPy() if hasattr(np, "cumulative_sum") else _COMPATIBLE


def namespace(*arrays: Array) -> Namespace:
    """The Array API namespace that the arrays share."""
    for array in arrays:
        if type(array) is not np.ndarray:
            found = array_api_compat.array_namespace(*arrays)
            return _OF_NUMPY if found is _COMPATIBLE else found
    return _OF_NUMPY


def device(array: Array) -> Any:
    """The device of the array."""
    if type(array) is np.ndarray:
        return "cpu"
    return array_api_compat.device(array)


def to_numpy(array: Array) -> NDArray[Any]:
    """The same values as a NumPy array, copied from the device if necessary."""
    if isinstance(array, np.ndarray):
        return array
    if is_torch(array):
        return np.asarray(array.detach().cpu())
    if is_strict(array):  # its arrays can be on mock devices
        array = array.to_device(namespace(array).Device("CPU_DEVICE"))
    return np.asarray(array)


def without_mask(array: Any) -> Any:
    """A masked array with NaN for the entries that its mask hides, and NumPy shows; others as they are."""
    if not isinstance(array, np.ma.MaskedArray):
        return array
    if not np.any(np.ma.getmaskarray(array)):
        return np.asarray(array)
    return np.ma.filled(array.astype(np.float64) if array.dtype.kind in "biu" else array, np.nan)


def like(values: Any, array: Array) -> Array:
    """The values in the namespace and on the device of `array`, in their own dtype."""
    xp = namespace(array)
    return xp.asarray(to_numpy(values) if hasattr(values, "shape") else values, device=device(array))


def constant(array: Array, make: Callable[..., NDArray[Any]], *given: Any) -> Array:
    """`make(*given)` where `array` is: on a device it is kept, since to send it there is to wait for it."""
    return make(*given) if is_numpy(array) else _sent(make, given, namespace(array), device(array))


@lru_cache(maxsize=256)
def _sent(make: Callable[..., NDArray[Any]], given: tuple[Any, ...], xp: Namespace, where: Any) -> Array:
    return xp.asarray(make(*given), device=where)


def to_device(array: Array, where: Any) -> Array:
    """The array as a NumPy array ("numpy"), or as a torch tensor on a device."""
    if where == "numpy":
        return to_numpy(array)
    import torch

    return torch.asarray(array if is_torch(array) else to_numpy(array), device=where)


def zeros(shape: tuple[int, ...], array: Array) -> Array:
    """Zeros in float64 on the device of `array`."""
    xp = namespace(array)
    return xp.zeros(shape, dtype=xp.float64, device=device(array))


def empty(shape: tuple[int, ...], array: Array) -> Array:
    """An array in float64 on the device of `array`, whose entries are yet to be written."""
    xp = namespace(array)
    return xp.empty(shape, dtype=xp.float64, device=device(array))


def minus_product(a: Array, b: Array, c: Array) -> Array:
    """a - b * c, of tensors in one kernel."""
    if is_torch(a):
        import torch

        return torch.addcmul(a, b, c, value=-1.0)
    return a - b * c


def add_product(out: Array, a: Array, b: Array, *, negative: bool = False) -> None:
    """Add a * b, or its negative, to `out`; to a tensor in one kernel."""
    if is_torch(out):
        out.addcmul_(a, b, value=-1.0 if negative else 1.0)
    elif negative:
        out -= a * b
    else:
        out += a * b


def multiply_into(out: Array, a: Array, b: Array) -> None:
    """Write a * b to `out`, a tensor or NumPy array, without another one for the product."""
    if is_numpy(out):
        np.multiply(a, b, out=out)
        return
    import torch

    torch.mul(a, b, out=out)


def ones(shape: tuple[int, ...], array: Array) -> Array:
    """Ones in float64 on the device of `array`."""
    xp = namespace(array)
    return xp.ones(shape, dtype=xp.float64, device=device(array))


def eye(n: int, array: Array) -> Array:
    """The identity matrix in float64 on the device of `array`."""
    xp = namespace(array)
    return xp.eye(n, dtype=xp.float64, device=device(array))


def double(array: Array) -> Array:
    """The array in float64, the dtype of all sums over blocks."""
    xp = namespace(array)
    return array if array.dtype == xp.float64 else xp.astype(array, xp.float64)


def contiguous(array: Array) -> Array:
    """The array in contiguous row-major memory."""
    if is_torch(array):
        return array.contiguous()
    return np.ascontiguousarray(array).reshape(array.shape) if is_numpy(array) else array


def surely_all(mask: Array) -> bool:
    """Whether all are true; False as well where a device would have to be waited for."""
    if is_torch(mask) and mask.device.type != "cpu":
        return False
    return bool(namespace(mask).all(mask))


def is_floating(array: Array) -> bool:
    return bool(namespace(array).isdtype(array.dtype, "real floating"))


def is_numpy(array: Array) -> bool:
    """Whether this is a NumPy array, for which some products have a faster path."""
    return isinstance(array, np.ndarray)


def is_torch(array: Array) -> bool:
    if type(array) is np.ndarray:
        return False
    return bool(array_api_compat.is_torch_array(array))


def is_strict(array: Any) -> bool:
    """Whether this is an array of array_api_strict, which tests conformance to the Array API."""
    return type(array).__module__.partition(".")[0] == "array_api_strict"


def is_sparse(array: Any) -> bool:
    """Whether this is a SciPy sparse matrix; only factorisations accept them."""
    return bool(issparse(array))


def is_native(array: Any) -> bool:
    """Whether estimators accept such arrays without conversion, besides NumPy arrays."""
    if not array_api_compat.is_array_api_obj(array) or is_numpy(array):
        return False
    return is_torch(array) or is_strict(array)


def zero_where(chosen: Array, array: Array) -> Array:
    """The array with zeros where `chosen`; NumPy arrays are overwritten."""
    if is_numpy(array) and array.dtype == np.float64:
        bits = array.view(np.int64)  # bitwise and with -1 or 0: faster than where()
        bits &= (chosen.view(np.int8) - np.int8(1)).astype(np.int64)
        return array
    return namespace(array).where(chosen, 0.0, array)


def scaled_and_shifted(X: Array, scale: Array, shift: Array) -> Array:
    """A tensor (n, D) times a scale (D,), plus a shift (D,), in one kernel."""
    import torch

    return torch.addcmul(shift, X, scale)


def exp_above(exponents: Array, lowest: float) -> Array:
    """exp of the exponents, clipped below at `lowest`; NumPy arrays are overwritten to save memory."""
    if is_numpy(exponents):
        np.maximum(exponents, lowest, out=exponents)
        return np.exp(exponents, out=exponents)
    xp = namespace(exponents)
    return xp.exp(xp.clip(exponents, min=lowest))


def log_ndtr(array: Array) -> Array:
    """ln Phi, the logarithm of the normal distribution function, to full precision far in the tails."""
    if is_numpy(array) or isinstance(array, float):
        return special.log_ndtr(array)
    if is_torch(array):
        import torch

        return torch.special.log_ndtr(array)
    return like(special.log_ndtr(to_numpy(array)), array)


def log_gamma(array: Array) -> Array:
    """ln of the gamma function."""
    if is_numpy(array):
        return special.gammaln(array)
    if is_torch(array):
        import torch

        return torch.special.gammaln(array)
    return like(special.gammaln(to_numpy(array)), array)
