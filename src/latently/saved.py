"""Saving and loading estimators: the one persistence path, on the file format of `latently.core.io`."""

from __future__ import annotations

import importlib
import warnings

import numpy as np

from latently.core import io
from latently.core.io import ModelFileError

# Which class a file may name, and where it lives. A file never decides what is imported.
_HOMES = {
    "GaussianMixture": "latently.mixture",
    "FactorAnalysis": "latently.mixture",
    "PPCA": "latently.mixture",
    "MFA": "latently.mixture",
    "MPPCA": "latently.mixture",
}


class SavedMixin:
    """`save` for estimators that have `_fitted_parameters`, `_set_parameters` and `_check_hyperparameters`."""

    def save(self, path):
        """Write the fitted estimator to a file that `latently.load` reads.

        The file holds arrays and text only: reading it never runs code.

        Parameters
        ----------
        path : str or path-like
            Where to write; an existing file is replaced in one go.
        """
        arrays = {f"fitted.{name}": array for name, array in self._fitted_parameters().items()}
        arrays["fit.history"] = np.asarray(self.history_, dtype=np.float64)
        plain = {}
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


def load(path):
    """Read an estimator that was written by its `save` method.

    Nothing in the file is executed. A file that is damaged, of another version or not one of ours is a
    :class:`latently.core.io.ModelFileError`.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator
        A fitted estimator of the class that was saved.

    Examples
    --------
    >>> import latently
    >>> from latently.mixture import PPCA
    >>> model = PPCA.from_parameters(mean=[0.0, 0.0], loadings=[[1.0], [2.0]], noise_variance=0.5)
    >>> model.save("ppca.latently")
    >>> latently.load("ppca.latently").score([[1.0, 2.0]]) == model.score([[1.0, 2.0]])
    True
    """
    header, arrays = io.read(path)
    name = header.get("class")
    if name not in _HOMES:
        raise ModelFileError(f"{str(path)!r} holds a {name!r}, which this version of latently does not have")
    cls = getattr(importlib.import_module(_HOMES[name]), name)
    groups = {"fitted": {}, "fit": {}, "hyper": {}}
    try:
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
        if header["feature_names"] is not None:
            if len(header["feature_names"]) != estimator.n_features_in_:
                raise ValueError("feature_names do not match the number of features")
            estimator.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelFileError(f"{str(path)!r} does not hold a valid {name}: {error}") from None
    return estimator
