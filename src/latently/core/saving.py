"""Fitted estimators as a header and named arrays, and back: the one persistence path of all models."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import is_native, to_numpy
from latently.core import io


class SavedMixin:
    """`save`, for estimators with `_fitted_parameters`, `_set_parameters` and `_check_hyperparameters`."""

    def _exact_parameters(self) -> dict[str, Any]:
        """Arrays that say the same as the fitted attributes, with more digits, if there are such."""
        return {}

    def _set_exact_parameters(self, **given: Any) -> None:
        raise ValueError(f"it has arrays that are not known: {sorted(given)}")

    def save(self: Any, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file that `latently.load` reads.

        The file holds arrays and text only: reading it never runs code.

        Parameters
        ----------
        path : str or path-like
            Where to write; an existing file is replaced in one go.
        """
        if not type(self).__module__.startswith("latently."):
            raise TypeError(
                f"{type(self).__name__} is not a class of latently, so latently.load cannot know it"
            )
        arrays = {f"fitted.{name}": to_numpy(array) for name, array in self._fitted_parameters().items()}
        arrays |= {f"exact.{name}": to_numpy(array) for name, array in self._exact_parameters().items()}
        arrays["fit.history"] = to_numpy(self.history_)
        plain: dict[str, Any] = {}
        for name, value in self.get_params(deep=False).items():
            if name.endswith("_init") and is_native(value):
                arrays[f"hyper.{name}"] = to_numpy(value)
            elif isinstance(value, (list, tuple, np.ndarray)) and name.endswith("_init"):
                arrays[f"hyper.{name}"] = np.asarray(value, dtype=np.float64)
            elif value is None or isinstance(value, (bool, int, float, str)):
                plain[name] = value
            elif isinstance(value, np.generic):
                plain[name] = value.item()
            else:
                warnings.warn(
                    f"{name} cannot be written to a file and is left out", UserWarning, stacklevel=2
                )
        names = getattr(self, "feature_names_in_", None)
        header = {
            "class": type(self).__name__,
            "hyper_parameters": plain,
            "feature_names": None if names is None else [str(name) for name in names],
            "n_iter": int(self.n_iter_),
            "n_passes": int(self.n_passes_),
            "converged": bool(self.converged_),
        }
        io.write(path, header, arrays)


def rebuild(cls: Any, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    """The estimator that a header and its arrays describe; a ValueError or the like if they make none."""
    groups: dict[str, dict[str, NDArray[Any]]] = {"fitted": {}, "exact": {}, "fit": {}, "hyper": {}}
    for key, array in arrays.items():
        group, _, field = key.partition(".")
        if array.dtype != np.float64 or not np.all(np.isfinite(array)):
            raise ValueError(f"{field} must hold finite numbers in float64")
        groups[group][field] = array
    plain = header["hyper_parameters"]
    _require(isinstance(plain, dict) and not any(isinstance(v, (list, dict)) for v in plain.values()))
    arrays_only = (k for k in plain if k.endswith("_init") and k != "n_init")
    _require(not any(isinstance(plain[k], str) for k in arrays_only))
    estimator = cls(**plain, **groups["hyper"])
    estimator._check_hyperparameters()
    estimator._set_parameters(**groups["fitted"])
    for name, array in groups["fitted"].items():
        _require(getattr(estimator, f"{name}_").shape == array.shape, f"{name} has shape {array.shape}")
    if groups["exact"]:
        estimator._set_exact_parameters(**groups["exact"])

    (history,) = groups["fit"].values()
    n_iter, converged, names = header["n_iter"], header["converged"], header["feature_names"]
    n_passes = header.get("n_passes", 0)  # files of the first release do not tell
    _require(all(type(n) is int and n >= 0 for n in (n_iter, n_passes)) and type(converged) is bool)
    _require("history" in groups["fit"] and history.ndim == 1 and len(history) <= n_iter + 1)
    estimator.history_, estimator.n_iter_, estimator.converged_ = history, n_iter, converged
    estimator.n_passes_ = n_passes
    if names is not None:
        _require(isinstance(names, list) and all(isinstance(name, str) for name in names))
        _require(len(names) == estimator.n_features_in_)
        estimator.feature_names_in_ = np.array(names, dtype=object)
    return estimator


def _require(condition: bool, message: str = "its header does not fit its arrays") -> None:
    if not condition:
        raise ValueError(message)
