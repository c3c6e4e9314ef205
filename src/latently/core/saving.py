"""Conversion of fitted estimators to a header and named arrays, and back, for all models."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import is_native, to_numpy
from latently.core import io

Arrays = dict[str, NDArray[Any]]


class SavedMixin:
    """`save`, for estimators with `_fitted_parameters`, `_set_parameters` and `_check_hyperparameters`."""

    _KEEPS_HISTORY: ClassVar[bool] = True  # whether there are `history_`, `n_iter_` and the like

    def _exact_parameters(self) -> dict[str, Any]:
        """Arrays equivalent to the fitted attributes with higher precision, if there are any."""
        return {}

    def _set_exact_parameters(self, **given: Any) -> None:
        raise ValueError(f"it has arrays that are not known: {sorted(given)}")

    def _more_header(self) -> dict[str, Any]:
        """Further fitted values to save, as plain JSON values."""
        return {}

    def _set_more(self, more: dict[str, Any]) -> None:
        """Restore the values of `_more_header`, after `_set_parameters`."""
        _require(not more, f"its header has entries that are not known: {sorted(more)}")

    def _fitted_estimators(self) -> list[Any]:
        """Fitted estimators that are parts of this one."""
        return []

    def _set_fitted_estimators(self, parts: list[Any]) -> None:
        """Restore the estimators of `_fitted_estimators`, before `_set_parameters`."""
        _require(not parts, "it has parts that are not known")

    def save(self: Any, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file that `latently.load` reads.

        The file contains arrays and text only: reading it never runs code.

        Parameters
        ----------
        path : str or path-like
            File to write; an existing file is replaced atomically.
        """
        left_out: set[str] = set()
        header, arrays = _described(self, left_out)
        for name in sorted(left_out):
            warnings.warn(f"{name} cannot be written to a file and is left out", UserWarning, stacklevel=2)
        io.write(path, header, arrays)


# -- to a file ----------------------------------------------------------------------------------------


def _described(estimator: Any, left_out: set[str]) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a fitted estimator; names of hyper-parameters that cannot be saved."""
    header, arrays = _described_settings(estimator, left_out)
    fitted, exact = estimator._fitted_parameters(), estimator._exact_parameters()
    arrays |= {f"fitted.{name}": to_numpy(array) for name, array in fitted.items()}
    arrays |= {f"exact.{name}": to_numpy(array) for name, array in exact.items()}
    names = getattr(estimator, "feature_names_in_", None)
    header["feature_names"] = None if names is None else [str(name) for name in names]
    if estimator._KEEPS_HISTORY:
        arrays["fit.history"] = to_numpy(estimator.history_)
        header["n_iter"], header["n_passes"] = int(estimator.n_iter_), int(estimator.n_passes_)
        header["converged"] = bool(estimator.converged_)
    more, parts = estimator._more_header(), estimator._fitted_estimators()
    if more:
        header["more"] = more
    if parts:
        header["parts"] = []
    for number, part in enumerate(parts):
        its_header, its_arrays = _described(part, left_out)
        header["parts"].append(its_header)
        arrays |= {f"parts.{number}.{key}": array for key, array in its_arrays.items()}
    return header, arrays


def _described_settings(estimator: Any, left_out: set[str]) -> tuple[dict[str, Any], Arrays]:
    """Class and hyper-parameters, including arrays and estimators."""
    if not (isinstance(estimator, SavedMixin) and type(estimator).__module__.startswith("latently.")):
        raise TypeError(
            f"{type(estimator).__name__} is not a class of latently, so latently.load cannot know it"
        )
    arrays: Arrays = {}
    plain: dict[str, Any] = {}
    estimators: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():  # type: ignore[attr-defined]
        if _may_be_array(name) and is_native(value):
            arrays[f"hyper.{name}"] = to_numpy(value)
        elif _may_be_array(name) and isinstance(value, (list, tuple, np.ndarray)):
            arrays[f"hyper.{name}"] = np.asarray(value, dtype=np.float64)
        elif value is None or isinstance(value, (bool, int, float, str)):
            plain[name] = value
        elif isinstance(value, np.generic):
            plain[name] = value.item()
        elif _are_sizes(value):
            plain[name] = _as_lists(value)
        elif hasattr(value, "get_params"):
            estimators[name], its_arrays = _described_settings(value, left_out)
            arrays |= {f"hyper.{name}.{key}": array for key, array in its_arrays.items()}
        else:
            left_out.add(name)
    header = {"class": type(estimator).__name__, "hyper_parameters": plain}
    return header | ({"hyper_estimators": estimators} if estimators else {}), arrays


def _may_be_array(hyper_parameter: str) -> bool:
    return hyper_parameter == "class_prior" or (
        hyper_parameter.endswith("_init") and hyper_parameter != "n_init"
    )


def _are_sizes(value: Any) -> bool:
    """Whether this is a nested sequence of integers, such as numbers of components per layer."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iu" and value.ndim in (1, 2)
    return isinstance(value, (list, tuple)) and all(
        type(entry) is int or (isinstance(entry, (list, tuple)) and all(type(size) is int for size in entry))
        for entry in value
    )


def _as_lists(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_as_lists(entry) for entry in value] if isinstance(value, (list, tuple)) else value


# -- from a file --------------------------------------------------------------------------------------


def rebuild(class_named: Callable[[Any], Any], header: dict[str, Any], arrays: Arrays) -> Any:
    """The estimator described by a header and arrays; raises ValueError or similar if they are invalid.

    `class_named` maps the class name in the header to the class.
    """
    groups = _groups(arrays, ("fitted", "exact", "fit", "hyper", "parts"))
    for group in ("fitted", "exact", "fit"):
        _check_numbers(groups[group])
    estimator = _rebuilt_settings(class_named, header, groups["hyper"])
    estimator._check_hyperparameters()
    estimator._set_fitted_estimators(_rebuilt_parts(class_named, header.get("parts", []), groups["parts"]))
    estimator._set_parameters(**groups["fitted"])
    for name, array in groups["fitted"].items():
        _require(getattr(estimator, f"{name}_").shape == array.shape, f"{name} has shape {array.shape}")
    if groups["exact"]:
        estimator._set_exact_parameters(**groups["exact"])
    if estimator._KEEPS_HISTORY:
        _set_history(estimator, header, groups["fit"])
    else:
        _require(not groups["fit"])
    more = header.get("more", {})
    _require(isinstance(more, dict))
    estimator._set_more(more)
    names = header["feature_names"]
    if names is not None:
        _require(isinstance(names, list) and all(isinstance(name, str) for name in names))
        _require(len(names) == estimator.n_features_in_)
        estimator.feature_names_in_ = np.array(names, dtype=object)
    return estimator


def _rebuilt_settings(class_named: Callable[[Any], Any], header: Any, arrays: Arrays) -> Any:
    """An unfitted estimator."""
    plain, described = header["hyper_parameters"], header.get("hyper_estimators", {})
    _require(isinstance(plain, dict) and isinstance(described, dict))
    _require(not any(isinstance(value, dict) for value in plain.values()))
    _require(all(_are_sizes(value) for value in plain.values() if isinstance(value, list)))
    _require(not any(isinstance(plain[name], str) for name in plain if _may_be_array(name)))
    given = {name: array for name, array in arrays.items() if "." not in name}
    _check_numbers(given)
    inner = _groups({name: arrays[name] for name in arrays if name not in given}, tuple(described))
    estimators = {}
    for name, its_header in described.items():
        _require("hyper_estimators" not in its_header, f"{name} is nested too deeply")
        its_arrays = _groups(inner[name], ("hyper",))["hyper"]
        estimators[name] = _rebuilt_settings(class_named, its_header, its_arrays)
    return class_named(header["class"])(**plain, **given, **estimators)


def _rebuilt_parts(class_named: Callable[[Any], Any], headers: Any, arrays: Arrays) -> list[Any]:
    _require(isinstance(headers, list) and not any("parts" in header for header in headers))
    by_number = _groups(arrays, tuple(str(number) for number in range(len(headers))))
    return [rebuild(class_named, header, by_number[str(i)]) for i, header in enumerate(headers)]


def _set_history(estimator: Any, header: dict[str, Any], arrays: Arrays) -> None:
    _require(set(arrays) == {"history"})
    history, n_iter, converged = arrays["history"], header["n_iter"], header["converged"]
    n_passes = header.get("n_passes", 0)  # not in files of the first release
    _require(all(type(n) is int and n >= 0 for n in (n_iter, n_passes)) and type(converged) is bool)
    _require(history.ndim == 1 and len(history) <= n_iter + 1)
    estimator.history_, estimator.n_iter_, estimator.converged_ = history, n_iter, converged
    estimator.n_passes_ = n_passes


def _groups(arrays: Arrays, names: tuple[str, ...]) -> dict[str, Arrays]:
    """Arrays grouped by the prefix of their key before the first dot."""
    groups: dict[str, Arrays] = {name: {} for name in names}
    for key, array in arrays.items():
        group, _, field = key.partition(".")
        _require(group in groups, f"it has an array {key!r} that is not known")
        groups[group][field] = array
    return groups


def _check_numbers(arrays: Arrays) -> None:
    for name, array in arrays.items():
        if array.dtype != np.float64 or not np.all(np.isfinite(array)):
            raise ValueError(f"{name} must hold finite numbers in float64")


def _require(condition: bool, message: str = "its header does not fit its arrays") -> None:
    if not condition:
        raise ValueError(message)
