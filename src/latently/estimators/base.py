"""The base of estimators without iterations: saving, and display in notebooks."""

from __future__ import annotations

from sklearn.base import BaseEstimator

from latently.estimators import notebook, saving
from latently.estimators.options import check_options


class Estimator(BaseEstimator):
    """A scikit-learn estimator with `save`; subclasses define what a file holds (see `estimators.saving`)."""

    save = saving.save
    _repr_html_inner = notebook.html
    _repr_mimebundle_ = notebook.mimebundle

    def _check_options(self):
        check_options(self)
