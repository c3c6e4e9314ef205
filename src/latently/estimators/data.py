"""Validation of the user's rows, in memory, on a device or out of core."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import get_tags
from sklearn.utils.validation import check_array, validate_data

from latently.backend.hashing import row_hashes
from latently.backend.namespace import (
    device,
    double,
    is_floating,
    is_native,
    is_sparse,
    is_torch,
    namespace,
    to_numpy,
    without_mask,
)
from latently.core.checkpoint import fingerprint
from latently.core.data import Data
from latently.core.sources import open_source
from latently.estimators.checks import LARGEST, errors_name, real_numbers
from latently.estimators.weights import weights_in_rows


def check_data(estimator, X, sample_weight=None, *, reset, missing=None) -> Any:
    """Validated rows with their weights, in memory, on a device or out of core.

    Missing entries are an error unless `missing` or, by default, the tags of the estimator allow them; out of
    core they are found when the rows are read (`check_summary`, and `estimators.rows`).
    """
    missing = allows_missing(estimator) if missing is None else missing
    X = without_mask(X)
    if hasattr(estimator, "_as_numbers"):  # its tables hold other things than numbers as well
        X = estimator._as_numbers(X, reset=reset, weight=sample_weight)
    if is_dask(X):
        from latently.core.sweep_dask import DaskData

        data: Any = DaskData(X)
    else:
        data = Data(_checked_rows(estimator, X, reset=reset, missing=missing))
    if not data.in_memory:
        _check_features_of(estimator, data, reset=reset)
    if sample_weight is not None:
        weight = np.asarray(weights_in_rows(computed(sample_weight), data.count_rows()))
        data = data.with_field("weight", None if np.all(weight == 1.0) else weight)
    return data


def _checked_rows(estimator, X, *, reset, missing):
    """Rows in memory as an array: numeric, two-dimensional, NaN where not observed; or a source of blocks."""
    source = open_source(X)
    if source is not None:
        return source
    if is_native(X):
        return _checked_tensor(estimator, X, reset=reset, missing=missing)
    X = checked_table(
        estimator,
        X,
        reset=reset,
        dtype="numeric",  # integers keep their dtype: blocks are converted to floats for the kernel
        ensure_min_samples=2 if reset else 1,
        ensure_all_finite="allow-nan" if missing else True,
    )
    if X.dtype.kind == "f" and X.dtype.itemsize not in (4, 8):
        with np.errstate(over="ignore"):  # a long double may overflow
            X = check_array(X, dtype=np.float64, input_name="X", ensure_all_finite="allow-nan")
    return X


def checked_table(estimator, X, **options):
    """The rows by `validate_data`, which alone takes what a mask hides for entries, and times for numbers."""
    with errors_name("X"):
        try:
            rows = validate_data(estimator, real_numbers("X", X), **options)
            if rows.dtype.kind == "O":  # what columns of categories or periods are left as
                finite = options.get("ensure_all_finite", True)
                rows = check_array(rows, dtype=np.float64, input_name="X", ensure_all_finite=finite)
            return rows
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            raise ValueError(
                f"{error}{_columns_of_text(X)}; leave columns of text out, or use MixedMixture or "
                "TableModel, which take them"
            ) from None


def _columns_of_text(X):
    """Where a data frame has text, in words."""
    if not hasattr(X, "columns"):
        return ""
    names = [name for name in X.columns if any(isinstance(value, str) for value in X[name])]
    if not names:
        return ""
    more = ", ..." if len(names) > 3 else ""
    return f" (text in {', '.join(map(repr, names[:3]))}{more})"


def in_memory(X):
    """The rows, those of a memory map as an array, for estimators that need all of them at once."""
    return np.asarray(X) if isinstance(X, np.memmap) else X


def allows_missing(estimator):
    """Whether the estimator takes NaN as a missing entry."""
    return get_tags(estimator).input_tags.allow_nan


def refuse_missing(estimator, found):
    if found:
        raise ValueError(
            f"Input X contains NaN, and {type(estimator).__name__} does not accept missing entries; impute "
            "them first, for example with MFA().fit(X).impute(X)"
        )


def _checked_tensor(estimator, X, *, reset, missing):
    """The checks of `validate_data`, for arrays that stay on their device."""
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
    if is_floating(X) and not missing:
        refuse_missing(estimator, bool(xp.any(xp.isnan(X))))
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
            f"the feature names of X are not those of the fit: {list(names)[:5]} instead of {expected[:5]}"
        )


def identity_in_order(data, block_size):
    """Identifies these rows and their order, for checkpoints with a state for each row."""
    sweep = data.sweep(None, floats_per_row=2 * data.n_features, block_size=block_size)
    hashes = computed(data.collected(sweep.rows(_hashes), None))
    fields = (data.field(name) for name in ("weight", "observed"))
    return f"{len(hashes)} rows, {fingerprint(hashes, *(field for field in fields if field is not None))}"


def _hashes(block):
    return row_hashes(block.X.toarray() if is_sparse(block.X) else block.X)


def is_dask(X):
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


def computed(value):
    """The value in main memory, computed if it is a Dask collection."""
    return value.compute() if is_dask(value) else value


def check_same_device(method, data, parameters):
    """Raise an error unless rows and parameters use the same namespace and device."""
    X = data.X if data.in_memory else np.zeros(0)
    its_place = np.zeros(0) if is_sparse(X) else X
    if namespace(its_place) is namespace(parameters) and device(its_place) == device(parameters):
        return
    if is_sparse(X):
        cure = "make X dense and move it there"
    elif is_torch(parameters):
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
    if is_sparse(array):
        return "sparse (SciPy)"
    if is_torch(array):
        return f"torch on {array.device}"
    return "NumPy" if isinstance(array, np.ndarray) else f"{type(array).__module__.partition('.')[0]}"


def check_summary(estimator, summary):
    """Raise an error if nothing was observed, or if squares of a feature overflow or underflow."""
    if summary is None:
        raise ValueError("every entry of X is missing (NaN), so there is nothing to learn from")
    if not allows_missing(estimator):
        refuse_missing(estimator, summary.missing)
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
            f"feature {feature} of X varies so little that its variance underflows in float64; rescale or "
            "drop it"
        )


def called(estimator, feature):
    """The feature's name in messages: its column name, or its number if it has none."""
    names = getattr(estimator, "feature_names_in_", None)
    return str(feature) if names is None else repr(str(names[feature]))
