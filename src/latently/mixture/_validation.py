"""One place where what the user gives is checked: hyper-parameters, rows, parameter arrays.

Every error names the argument, what it was, and what it should be.
"""

from __future__ import annotations

import os
import warnings
from numbers import Integral, Real
from pathlib import Path

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, validate_data

from latently.backend.namespace import device, double, is_floating, is_native, is_torch, namespace, to_numpy
from latently.core.data import Data
from latently.core.sources import open_source

LARGEST = 1e153  # squares of larger values overflow float64, those of smaller than its inverse vanish


def check_integer(name, value, *, least, or_else=None):
    """`or_else` is what might have been given instead, for the message."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        other = "" if or_else is None else f" or {or_else!r}"
        raise ValueError(f"{name} must be an integer of at least {least}{other}, not {value!r}")


def check_number(name, value, *, least, most=np.inf):
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not least <= value <= most
        or value == np.inf
    ):
        limits = f"of at least {least}" if most == np.inf else f"from {least} to {most}"
        raise ValueError(f"{name} must be a finite number {limits}, not {value!r}")


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


def check_path(name, value):
    if value is not None and not isinstance(value, (str, os.PathLike)):
        raise ValueError(f"{name} must be a path or None, not {value!r}")


def check_writable(name, path):
    """A file that can be written: not a folder, and in one that exists."""
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        reason = "is a folder" if path.is_dir() else f"is in {str(path.parent)!r}, which does not exist"
        raise ValueError(f"{name}={str(path)!r} {reason}; give the path of a file")


def check_data(estimator, X, y=None, sample_weight=None, *, reset):
    """The rows, wherever they are, with their weights and what is known of their components."""
    if _is_dask(X):
        from latently.core.sweep_dask import DaskData

        data = DaskData(X)
        sample_weight, y = (_computed(value) for value in (sample_weight, y))
    else:
        data = Data(_checked_rows(estimator, X, reset=reset))
    if not data.in_memory:
        _check_features_of(estimator, data, reset=reset)
    n_rows = None if sample_weight is None and y is None else data.count_rows()
    if sample_weight is not None:
        weight = check_weights(sample_weight, n_rows)
        data = data.with_weight(None if np.all(weight == 1.0) else weight)
    if y is not None:
        data = data.with_allowed(estimator._known(y, n_rows, reset=reset))
    return data


def _checked_rows(estimator, X, *, reset):
    """Rows in memory as an array: numeric, two-dimensional, NaN where not observed; or a source of blocks."""
    source = open_source(X)
    if source is not None:
        return source
    if is_native(X):
        return _checked_tensor(estimator, X, reset=reset)
    X = validate_data(
        estimator,
        X,
        reset=reset,
        dtype="numeric",  # integers stay small: blocks become floating on their way into the kernel
        ensure_min_samples=2 if reset else 1,
        ensure_all_finite="allow-nan",
    )
    if X.dtype.kind == "f" and X.dtype.itemsize not in (4, 8):
        with np.errstate(over="ignore"):  # a long double may be too large
            X = check_array(X, dtype=np.float64, input_name="X", ensure_all_finite="allow-nan")
    return X


def _checked_tensor(estimator, X, *, reset):
    """What `validate_data` checks, for arrays that stay where they are."""
    xp = namespace(X)
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead; reshape X to rows and features")
    if not xp.isdtype(X.dtype, ("bool", "integral", "real floating")):
        raise ValueError("X must hold real numbers. Complex data not supported")
    if X.shape[1] == 0:
        raise ValueError(f"Found array with 0 feature(s) (shape={tuple(X.shape)}) while 1 is required")
    least = 2 if reset else 1
    if X.shape[0] < least:
        raise ValueError(
            f"Found array with {X.shape[0]} sample(s) (shape={tuple(X.shape)}) while {least} is required"
        )
    if is_floating(X) and bool(xp.any(xp.isinf(X))):
        raise ValueError("Input X contains infinity")
    if is_floating(X) and X.dtype not in (xp.float32, xp.float64):
        X = double(X)
    _check_feature_count(estimator, X.shape[1], reset=reset)
    if reset:
        vars(estimator).pop("feature_names_in_", None)
    return X.detach() if is_torch(X) else X


def _check_feature_count(estimator, n_features, *, reset):
    if reset:
        estimator.n_features_in_ = n_features
    elif n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )


def _check_features_of(estimator, data, *, reset):
    """Number and names of the features of rows that are not in memory."""
    _check_feature_count(estimator, data.n_features, reset=reset)
    names = data.feature_names
    if reset:
        vars(estimator).pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, dtype=object)
        return
    expected = list(getattr(estimator, "feature_names_in_", names or ()))
    if names is not None and list(names) != expected:
        raise ValueError(
            f"the feature names of X are not those of the fit: {list(names)[:5]} but {expected[:5]}"
        )


def _is_dask(X):
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


def _computed(value):
    return value.compute() if _is_dask(value) else value


def check_same_device(method, data, parameters):
    """Rows and parameters must be arrays of one kind on one device."""
    X = data.X if data.in_memory else np.zeros(0)
    if namespace(X) is namespace(parameters) and device(X) == device(parameters):
        return
    if is_torch(parameters):
        cure = f"move X there with torch.asarray(X, device={str(parameters.device)!r})"
    else:
        cure = "give X in that form"
    target = str(X.device) if is_torch(X) else "numpy"
    raise ValueError(
        f"{method}(): X and the model must use the same namespace and device, but X is {_described(X)} and "
        f"the parameters are {_described(parameters)}; {cure}, or move the model: "
        f"model = model.to({target!r})"
    )


def _described(array):
    if is_torch(array):
        return f"torch on {array.device}"
    return "NumPy" if isinstance(array, np.ndarray) else f"{type(array).__module__.partition('.')[0]}"


def check_labels(y, n_rows, n_components):
    """(N, K) bool: the components each row may come from; None where y says nothing of them.

    scikit-learn hands targets of all kinds to estimators that have no use for them, so what cannot be meant
    as components is ignored with a warning; with -1 among the labels there is no doubt, and an error.
    """
    if is_native(y):
        y = to_numpy(y)
    y = np.asarray(y)
    if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] not in (1, n_components)):
        raise ValueError(
            f"y must have one entry per row, or a column for each of the {n_components} components, "
            f"not shape {y.shape}"
        )
    if len(y) != n_rows:
        raise ValueError(f"y must have one entry per row, {n_rows} in all, not {len(y)}")
    zeros_and_ones = y.ndim == 2 and y.shape[1] > 1 and y.dtype.kind in "iu" and np.isin(y, (0, 1)).all()
    if zeros_and_ones or (y.ndim == 2 and y.dtype == bool):
        y = y.astype(bool)
        if not y.any(axis=1).all():
            row = np.flatnonzero(~y.any(axis=1))[0]
            raise ValueError(f"y allows no component at all for row {row}; allow all where nothing is known")
        return None if y.all() else y
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise ValueError("y contains NaN; use -1 for rows whose component is not known")
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    whole = y.ndim == 1 and y.dtype.kind in "iuf" and bool(np.all(y == np.round(y)))
    fits = whole and bool(np.all((y >= -1) & (y < n_components)))
    if whole and not fits and np.any(y == -1):
        raise ValueError(
            f"y must hold components from 0 to {n_components - 1}, or -1 where unknown, "
            f"not {y[(y < -1) | (y >= n_components)][0]}"
        )
    if n_components == 1:
        return None
    if not fits:
        warnings.warn(
            f"y is ignored: it does not hold components (0 to {n_components - 1}, -1 where unknown)",
            UserWarning,
            stacklevel=5,  # where `fit` was called
        )
        return None
    if np.all(y == -1):
        return None
    return (y[:, None] == np.arange(n_components)) | (y[:, None] == -1)


def check_weights(sample_weight, n_rows):
    weight = check_array(
        to_numpy(sample_weight) if is_native(sample_weight) else sample_weight,
        ensure_2d=False,
        dtype=np.float64,
        input_name="sample_weight",
        ensure_min_samples=0,
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


def called(estimator, feature):
    """What messages call a feature: its name, or its number if it has none."""
    names = getattr(estimator, "feature_names_in_", None)
    return str(feature) if names is None else repr(str(names[feature]))


def check_summary(estimator, summary):
    """Rows that say something, and features whose squares a float can hold."""
    if summary is None:
        raise ValueError("every entry of X is missing (NaN), so there is nothing to learn from")
    seen, infinite, mean, deviation, constant = map(
        to_numpy,
        (summary.observed_weight > 0, summary.infinite, summary.mean, summary.deviation, summary.constant),
    )
    if not seen.all():
        feature = called(estimator, np.flatnonzero(~seen)[0])
        raise ValueError(f"feature {feature} of X is missing (NaN) in every row; drop it")
    if infinite.any():
        feature = called(estimator, np.argmax(infinite))
        raise ValueError(f"Input X contains infinity or a value too large, in feature {feature}")
    largest = np.max(np.abs(mean) + deviation)
    if not largest < LARGEST:
        raise ValueError(
            f"X holds values of about {largest:.3g}, whose squares overflow float64; rescale the features"
        )
    vanishing = ~constant & (deviation < 1 / LARGEST)
    if np.any(vanishing):
        feature = called(estimator, np.flatnonzero(vanishing)[0])
        raise ValueError(
            f"feature {feature} of X varies so little that its variance vanishes in float64; rescale it, or "
            "drop it"
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
        array = np.asarray(to_numpy(value) if is_native(value) else value)
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
    _check_symmetric(name, stack)
    try:
        np.linalg.cholesky(stack)
    except np.linalg.LinAlgError:
        raise ValueError(f"{name} must be positive definite") from None
    check_positive(f"the diagonal of {name}", np.diagonal(stack, axis1=-2, axis2=-1))
    return 0.5 * (stack + np.swapaxes(stack, -1, -2))


def check_semidefinite(name, stack):
    """Symmetric matrices (..., q, q) without negative eigenvalues, but for rounding."""
    _check_symmetric(name, stack)
    values = np.linalg.eigvalsh(stack)
    if np.any(values[..., 0] < -1e-8 * np.abs(values[..., -1])):
        raise ValueError(f"{name} must have no negative eigenvalues; the smallest is {values.min():.3g}")
    return 0.5 * (stack + np.swapaxes(stack, -1, -2))


def _check_symmetric(name, stack):
    deviation = np.sqrt(np.abs(np.diagonal(stack, axis1=-2, axis2=-1)))
    # a product may differ in its last digits
    rounding = 1e-8 * deviation[..., :, None] * deviation[..., None, :]
    if np.any(np.abs(stack - np.swapaxes(stack, -1, -2)) > rounding):
        raise ValueError(f"{name} must be symmetric")
