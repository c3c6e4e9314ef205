"""Checks of hyper-parameters and parameter arrays.

Every error names the argument, its value, and what is allowed.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array

from latently.backend.namespace import is_native, to_numpy, without_mask

LARGEST = 1e153  # squares of larger values overflow float64, squares of values below its inverse underflow


_MOST = 2**63  # integers from here on are no index of an array
_NOTHING_ELSE: Any = object()


@contextmanager
def errors_name(name):
    """Inside, errors of NumPy and scikit-learn name the argument that was given."""
    try:
        yield
    except OverflowError as error:  # integers in an array of objects
        raise ValueError(f"{name} holds numbers that float64 cannot hold: {error}") from None
    except (ValueError, TypeError) as error:
        if re.search(rf"\b{name}\b", str(error)):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from None


def real_array(name, value, **options):
    """The array by `check_array`, which alone takes what a mask hides for entries, and times for numbers."""
    with errors_name(name):
        return check_array(real_numbers(name, value), input_name=name, **options)


def real_numbers(name, value):
    """The value with NaN for what a mask hides; an error if it holds times."""
    value = without_mask(value)
    dtype = getattr(value, "dtype", None)
    if getattr(dtype, "kind", "") in ("m", "M"):
        raise ValueError(f"{name} holds times ({dtype}), not numbers; say in what units, as by astype(float)")
    return value


def check_integer(name, value, *, least, or_else=_NOTHING_ELSE):
    """An integer of at least `least`, or the other allowed value `or_else`."""
    if _is(value, or_else):
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= value < _MOST:
        other = "" if or_else is _NOTHING_ELSE else f" or {or_else!r}"
        raise ValueError(f"{name} must be an integer of at least {least}{other}, not {value!r}")


def check_layer_sizes(name, value, *, fewest=1, or_one=False):
    """A sequence of at least so many positive integers; with `or_one` also one positive integer."""
    if or_one and isinstance(value, Integral):
        check_integer(name, value, least=1)
        return
    sizes = value.tolist() if isinstance(value, np.ndarray) else value
    positive = isinstance(sizes, (list, tuple)) and all(
        isinstance(size, Integral) and not isinstance(size, bool) and int(size) >= 1 for size in sizes
    )
    if not positive or len(sizes) < fewest:
        raise ValueError(f"{name} must be a sequence of positive integers, such as (200, 50), not {value!r}")


def check_number(name, value, *, least, most=np.inf, or_else=_NOTHING_ELSE):
    if _is(value, or_else):
        return
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not least <= value <= most
        or value == np.inf
    ):
        limits = f"of at least {least}" if most == np.inf else f"from {least} to {most}"
        other = "" if or_else is _NOTHING_ELSE else f" or {or_else!r}"
        raise ValueError(f"{name} must be a finite number {limits}{other}, not {value!r}")


def _is(value, other):
    return value is other or (isinstance(value, str) and isinstance(other, str) and value == other)


def check_prior(name, value):
    """The strength of a prior: "auto", None for none, or a number of rows."""
    if value is None or _is(value, "auto"):
        return
    if isinstance(value, str):
        raise ValueError(f"{name} must be 'auto', None or a number of rows, not {value!r}")
    check_number(name, value, least=0)


def check_flag(name, value):
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, not {value!r}")


def check_verbosity(name, value):
    if not isinstance(value, (bool, np.bool_)):
        check_integer(name, value, least=0)


def check_seed(name, value):
    if isinstance(value, np.random.Generator):
        return
    try:
        check_random_state(value)
    except ValueError:
        raise ValueError(
            f"{name} must be None, an integer (0 to 2**32 - 1), a Generator or a RandomState, not {value!r}"
        ) from None


def check_callbacks(name, value):
    if value is None:
        return
    if not isinstance(value, (list, tuple)) or not all(map(callable, value)):
        raise ValueError(f"{name} must be a list of callables, not {value!r}")


def check_choice(name, value, choices):
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {allowed}, not {value!r}")


def check_path(name, value):
    if value is not None and not isinstance(value, (str, os.PathLike)):
        raise ValueError(f"{name} must be a path or None, not {value!r}")


def check_writable(name, path):
    """A path that can be written: not a folder, and in an existing folder."""
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        reason = "is a folder" if path.is_dir() else f"is in {str(path.parent)!r}, which does not exist"
        raise ValueError(f"{name}={str(path)!r} {reason}; give the path of a file")


def check_weights(sample_weight, n_rows):
    weight = real_array(
        "sample_weight",
        to_numpy(sample_weight) if is_native(sample_weight) else sample_weight,
        ensure_2d=False,
        dtype=np.float64,
        ensure_min_samples=0,
    )
    if weight.shape != (n_rows,):
        raise ValueError(f"sample_weight must have one entry per row, shape ({n_rows},), not {weight.shape}")
    if np.any(weight < 0):
        raise ValueError("sample_weight must not be negative")
    if not np.any(weight > 0):
        raise ValueError("sample_weight is zero for every row")
    with np.errstate(over="ignore"):
        if not np.isfinite(weight.sum()) or weight.max() < 1e-300:
            raise ValueError("the sum of sample_weight overflows or underflows float64; rescale it")
    return weight


_EXACT_SHAPES: ContextVar[bool] = ContextVar("exact shapes", default=False)


@contextmanager
def exact_shapes():
    """Inside, parameters have their full shape, as those of files do; nothing small becomes large."""
    token = _EXACT_SHAPES.set(True)
    try:
        yield
    finally:
        _EXACT_SHAPES.reset(token)


def parameter(name, value, shape):
    """A finite float64 array, broadcast to this shape."""
    array = numbers(name, value)
    if _EXACT_SHAPES.get() and array.shape != tuple(shape):
        raise ValueError(f"{name} has shape {array.shape}, not {tuple(shape)}")
    try:
        array = np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{name} has shape {array.shape}, which does not broadcast to {shape}") from None
    return array.copy()


def numbers(name, value):
    """A float64 array of finite numbers."""
    try:
        array = np.asarray(to_numpy(value) if is_native(value) else without_mask(value))
        if array.dtype.kind not in "biuf":
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of real numbers") from None
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must hold finite numbers only")
    return array


def check_matrix(name, value):
    """Rows and columns, at least one of each."""
    if np.ndim(value) != 2 or 0 in np.shape(value):
        raise ValueError(f"{name} must have shape (n_{name}, n_features), not {np.shape(value)}")


def check_mixing_weights(name, weights):
    """Weights that sum to one, up to rounding to six digits; they are not renormalised."""
    off = abs(weights.sum() - 1.0)
    if np.any(weights < 0) or off > 1e-6:
        raise ValueError(f"{name} must be non-negative and sum to one; their sum is {weights.sum():.6g}")
    return weights / weights.sum() if off > 1e-12 else weights


def check_class_prior(class_prior, n_classes):
    """Positive probabilities (n_classes,) that sum to one."""
    prior = numbers("class_prior", class_prior)
    if prior.shape != (n_classes,):
        raise ValueError(
            f"class_prior must have an entry for each of the {n_classes} classes, not shape {prior.shape}"
        )
    return check_mixing_weights("class_prior", check_positive("class_prior", prior))


def check_positive(name, array):
    if np.any(array <= 0):
        raise ValueError(f"{name} must be positive; its smallest entry is {array.min():.6g}")
    if array.min() < 1 / LARGEST**2 or array.max() > LARGEST**2:
        raise ValueError(
            f"{name} must lie between {1 / LARGEST**2:g} and {LARGEST**2:g}; rescale the features"
        )
    return array


def check_non_negative(name, array):
    if np.any(array < 0):
        raise ValueError(f"{name} must not be negative; its smallest entry is {array.min():.6g}")
    return check_locations(name, array)


def check_locations(name, array):
    if np.any(np.abs(array) > LARGEST):
        raise ValueError(f"{name} must not exceed {LARGEST:g}, beyond which squares overflow")
    return array


def check_covariances(name, stack):
    """Symmetric and positive definite matrices (..., D, D)."""
    _check_symmetric(name, stack)
    try:
        np.linalg.cholesky(stack)
    except np.linalg.LinAlgError:
        raise ValueError(f"{name} must be positive definite") from None
    check_positive(f"the diagonal of {name}", np.diagonal(stack, axis1=-2, axis2=-1))
    return 0.5 * (stack + np.swapaxes(stack, -1, -2))


def check_semidefinite(name, stack):
    """Symmetric matrices (..., q, q) without negative eigenvalues, up to rounding."""
    _check_symmetric(name, stack)
    values = np.linalg.eigvalsh(stack)
    if np.any(values[..., 0] < -1e-8 * np.abs(values[..., -1])):
        raise ValueError(f"{name} must have no negative eigenvalues; the smallest is {values.min():.3g}")
    return 0.5 * (stack + np.swapaxes(stack, -1, -2))


def _check_symmetric(name, stack):
    deviation = np.sqrt(np.abs(np.diagonal(stack, axis1=-2, axis2=-1)))
    # products may be asymmetric in their last digits
    rounding = 1e-8 * deviation[..., :, None] * deviation[..., None, :]
    if np.any(np.abs(stack - np.swapaxes(stack, -1, -2)) > rounding):
        raise ValueError(f"{name} must be symmetric")
