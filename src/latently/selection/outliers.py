"""A density as one of scikit-learn's outlier detectors.

    predict(x) = 1  if  ln p(x) >= offset_,  else -1

`offset_` is the quantile `contamination` of the log densities of the rows of the fit, as scikit-learn's
detectors have it. For a guarantee on new rows use `calibrate_rejection` of the density with held-out rows.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import OutlierMixin, clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from latently.estimators.base import Estimator
from latently.estimators.data import check_data, in_memory
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import estimator, option
from latently.estimators.rows import in_main_memory


def check_contamination(name, value):
    """The share of outliers among the rows of a fit: above 0 and at most 0.5, as for scikit-learn."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) <= 0.5:
        raise ValueError(f"{name} must be a number above 0 and at most 0.5, such as 0.1, not {value!r}")


def as_outlier_detector(density, *, contamination=0.1):
    """A density as an outlier detector with scikit-learn's interface.

    Parameters
    ----------
    density : estimator
        Anything with `fit` and `score_samples`: the densities of latently and scikit-learn, the scores of
        `latently.rejection`, and pipelines that end in one. `fit` of the detector fits a clone of it.
    contamination : float, default=0.1
        The share of the rows of the fit to be called outliers, above 0 and at most 0.5.

    Returns
    -------
    OutlierDetector
        With `fit`, `predict` (1 or -1), `fit_predict`, `decision_function`, `score_samples` and `offset_`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from latently.mixture import MFA
    >>> from latently.selection import as_outlier_detector
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> X[:10] += 8.0
    >>> model = make_pipeline(StandardScaler(), MFA(1, 1))
    >>> as_outlier_detector(model, contamination=0.05).fit_predict(X)[:12]
    array([-1, -1, -1, -1, -1, -1, -1, -1, -1, -1,  1,  1])
    """
    return OutlierDetector(density, contamination=contamination)


@estimator
class OutlierDetector(OutlierMixin, Estimator):
    """A density as one of scikit-learn's outlier detectors; made by :func:`as_outlier_detector`.

    Parameters
    ----------
    density : estimator
        Anything with `fit` and `score_samples`. A clone of it is fitted.
    contamination : float, default=0.1
        The share of the rows of the fit to be called outliers, above 0 and at most 0.5.

    Attributes
    ----------
    density_ : estimator
    offset_ : float
        Rows with a lower log density are outliers.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.
    """

    density: Any
    _: KW_ONLY
    contamination: float = option(default=0.1, check=check_contamination)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if hasattr(self.density, "get_params"):
            tags.input_tags.allow_nan = get_tags(self.density).input_tags.allow_nan
        return tags

    def fit(self, X, y=None):
        """Fit the density to the rows, and find the threshold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            rows = self._rows(X, reset=True)
            self.density_ = clone(self.density).fit(rows)
            scores = in_main_memory(self.density_.score_samples(rows))
            if isinstance(rows, np.ndarray) and rows.dtype.kind == "f":
                scores = scores[~np.isnan(rows).all(axis=1)]  # such rows say nothing
            if np.isfinite(scores).all():
                self.offset_ = np.quantile(scores, self.contamination)
            else:  # between infinities NumPy interpolates to NaN
                self.offset_ = np.quantile(scores, self.contamination, method="lower")
        return self

    def _check_options(self):
        super()._check_options()
        can = all(hasattr(self.density, method) for method in ("fit", "score_samples", "get_params"))
        if not can or isinstance(self.density, type) or is_classifier(self.density):
            raise TypeError(
                "density must be an estimator with fit and score_samples that needs no labels, such as "
                f"MFA(2, 1), not {self.density!r}"
            )

    def _rows(self, X, *, reset):
        data = check_data(self, in_memory(X), reset=reset)
        return data.X if data.in_memory else X

    def score_samples(self, X):
        """Log density of each row, (n_samples,)."""
        check_is_fitted(self)
        return in_main_memory(self.density_.score_samples(self._rows(X, reset=False)))

    def decision_function(self, X):
        """Log density minus `offset_`, (n_samples,): negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X):
        """-1 for outliers and 1 for other rows, (n_samples,)."""
        return np.where(self.score_samples(X) >= self.offset_, 1, -1)

    # -- files --------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {"offset": np.array(self.offset_)}

    def _parts(self):
        return {"density": self.density_}

    def _set_parts(self, density):
        if type(density) is not type(self.density):
            raise ValueError("its density does not have the class of its hyper-parameter")
        self.density_, self.n_features_in_ = density, density.n_features_in_

    def _set_fitted_arrays(self, offset):
        if offset.shape != ():
            raise ValueError("offset must be a number")
        self.offset_ = np.float64(offset)
