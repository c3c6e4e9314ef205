"""Fitted estimators as a header and named arrays, and back: the one persistence path of all models."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.core import io


class SavedMixin:
    """`save`, for estimators with `_fitted_parameters`, `_set_parameters` and `_check_hyperparameters`."""

    def save(self: Any, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file that `latently.load` reads.

        The file holds arrays and text only: reading it never runs code.

        Parameters
        ----------
        path : str or path-like
            Where to write; an existing file is replaced in one go.
        """
        arrays = {f"fitted.{name}": array for name, array in self._fitted_parameters().items()}
        arrays["fit.history"] = np.asarray(self.history_, dtype=np.float64)
        plain: dict[str, Any] = {}
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, (list, tuple, np.ndarray)) and name.endswith("_init"):
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
            "converged": bool(self.converged_),
        }
        io.write(path, header, arrays)


def rebuild(cls: Any, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    """The estimator that a header and its arrays describe; a ValueError or the like if they make none."""
    groups: dict[str, dict[str, NDArray[Any]]] = {"fitted": {}, "fit": {}, "hyper": {}}
    for key, array in arrays.items():
        group, _, field = key.partition(".")
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{field} holds values that are not finite")
        groups[group][field] = array
    estimator = cls(**header["hyper_parameters"], **groups["hyper"])
    estimator._check_hyperparameters()
    estimator._set_parameters(**groups["fitted"])
    estimator.history_ = groups["fit"]["history"]
    estimator.n_iter_, estimator.converged_ = int(header["n_iter"]), bool(header["converged"])
    names = header["feature_names"]
    if names is not None:
        if len(names) != estimator.n_features_in_:
            raise ValueError("feature_names do not match the number of features")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    return estimator
