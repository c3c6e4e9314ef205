"""One place where what the user gives is checked: hyper-parameters, rows, parameter arrays.

Every error names the argument, what it was, and what it should be.
"""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, validate_data

from latently.core.block import Block

LARGEST = 1e153  # squares of larger values overflow float64, those of smaller than its inverse vanish


def check_integer(name, value, *, least):
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, not {value!r}")


def check_number(name, value, *, least):
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= value < np.inf:
        raise ValueError(f"{name} must be a finite number of at least {least}, not {value!r}")


def check_flag(name, value):
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, not {value!r}")


def check_seed(random_state):
    try:
        check_random_state(random_state)
    except ValueError:
        raise ValueError(
            f"random_state must be None, an integer (0 to 2**32 - 1) or a RandomState, not {random_state!r}"
        ) from None


def check_callbacks(callbacks):
    if callbacks is None:
        return
    if not isinstance(callbacks, (list, tuple)) or not all(map(callable, callbacks)):
        raise ValueError(f"callbacks must be a list of callables, not {callbacks!r}")


def check_choice(name, value, choices):
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        allowed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {allowed}, not {value!r}")


def check_rows(estimator, X, sample_weight=None, *, reset):
    """The rows as a `Block`: numeric, finite, two-dimensional; rows of weight zero left out."""
    X = validate_data(
        estimator,
        X,
        reset=reset,
        dtype="numeric",  # integers stay small: blocks become floating on their way into the kernel
        ensure_min_samples=2 if reset else 1,
        ensure_all_finite="allow-nan",
    )
    if X.dtype.kind == "f":
        if np.isnan(np.min(X)):
            raise ValueError(
                "Input X contains NaN. Missing values are not supported yet; fill them first, "
                "for example with sklearn.impute.SimpleImputer"
            )
        if X.dtype.itemsize not in (4, 8):
            with np.errstate(over="ignore"):  # a long double may be too large
                X = check_array(X, dtype=np.float64, input_name="X")
    if sample_weight is None:
        return Block(X)
    weight = check_weights(sample_weight, len(X))
    kept = weight > 0
    if not kept.all():
        X, weight = X[kept], weight[kept]
    return Block(X, None if np.all(weight == 1.0) else weight)


def check_weights(sample_weight, n_rows):
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight", ensure_min_samples=0
    )
    if weight.shape != (n_rows,):
        raise ValueError(f"sample_weight must have one entry per row, shape ({n_rows},), not {weight.shape}")
    if np.any(weight < 0):
        raise ValueError("sample_weight must not be negative")
    if not np.any(weight > 0):
        raise ValueError("sample_weight is zero for every row, so there is nothing to weigh")
    with np.errstate(over="ignore"):
        if not np.isfinite(weight.sum()) or weight.max() < 1e-300:
            raise ValueError("sample_weight sums to more or less than float64 can hold; rescale it")
    return weight


def check_summary(summary):
    """Features whose squares a float can hold."""
    largest = np.max(np.abs(summary.mean) + summary.deviation)
    if not largest < LARGEST:
        raise ValueError(
            f"X holds values of about {largest:.3g}, whose squares overflow float64; rescale the features"
        )
    vanishing = ~summary.constant & (summary.deviation < 1 / LARGEST)
    if np.any(vanishing):
        raise ValueError(
            f"feature {np.flatnonzero(vanishing)[0]} of X varies so little that its variance vanishes in "
            "float64; rescale it, or drop it"
        )


def parameter(name, value, shape):
    """A float64 array of this shape, broadcast if need be, and finite."""
    array = numbers(name, value)
    try:
        array = np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{name} has shape {array.shape}, which does not broadcast to {shape}") from None
    return array.copy()


def numbers(name, value):
    """A float64 array of finite numbers."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of real numbers") from None
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must hold finite numbers only")
    return array


def check_mixing_weights(name, weights):
    """Weights that sum to one; written with six digits is good enough, rounding is left as it is."""
    off = abs(weights.sum() - 1.0)
    if np.any(weights < 0) or off > 1e-6:
        raise ValueError(f"{name} must be non-negative and sum to one; their sum is {weights.sum():.6g}")
    return weights / weights.sum() if off > 1e-12 else weights


def check_positive(name, array):
    if np.any(array <= 0):
        raise ValueError(f"{name} must be positive; its smallest entry is {array.min():.6g}")
    if array.min() < 1 / LARGEST**2 or array.max() > LARGEST**2:
        raise ValueError(
            f"{name} must lie between {1 / LARGEST**2:g} and {LARGEST**2:g}; rescale the features"
        )
    return array


def check_locations(name, array):
    if np.any(np.abs(array) > LARGEST):
        raise ValueError(f"{name} must not exceed {LARGEST:g}, beyond which squares overflow")
    return array


def check_covariances(name, stack):
    """Symmetric and positive definite matrices (..., D, D)."""
    deviation = np.sqrt(np.abs(np.diagonal(stack, axis1=-2, axis2=-1)))
    rounding = (
        1e-8 * deviation[..., :, None] * deviation[..., None, :]
    )  # a product may differ in its last digits
    if np.any(np.abs(stack - np.swapaxes(stack, -1, -2)) > rounding):
        raise ValueError(f"{name} must be symmetric")
    try:
        np.linalg.cholesky(stack)
    except np.linalg.LinAlgError:
        raise ValueError(f"{name} must be positive definite") from None
    check_positive(f"the diagonal of {name}", np.diagonal(stack, axis1=-2, axis2=-1))
    return 0.5 * (stack + np.swapaxes(stack, -1, -2))
