"""Model selection: numbers of components and factors, noise structures; imputation; outlier detection."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from latently.selection.criteria import CRITERIA, Criterion

if TYPE_CHECKING:
    from latently.selection.comparison import Comparison, compare
    from latently.selection.fit_check import Calibration, calibration
    from latently.selection.imputer import Imputer
    from latently.selection.information import StandardErrors, standard_errors
    from latently.selection.outliers import OutlierDetector, as_outlier_detector
    from latently.selection.restarts import Consensus, consensus
    from latently.selection.result import Selection
    from latently.selection.search import select
    from latently.selection.uncertainty import (
        Bootstrap,
        LikelihoodRatioTest,
        bootstrap,
        likelihood_ratio_test,
    )

__all__ = [
    "CRITERIA",
    "Bootstrap",
    "Calibration",
    "Comparison",
    "Consensus",
    "Criterion",
    "Imputer",
    "LikelihoodRatioTest",
    "OutlierDetector",
    "Selection",
    "StandardErrors",
    "as_outlier_detector",
    "bootstrap",
    "calibration",
    "compare",
    "consensus",
    "likelihood_ratio_test",
    "select",
    "standard_errors",
]

_HOMES = {
    "Bootstrap": "uncertainty",
    "Calibration": "fit_check",
    "Comparison": "comparison",
    "Consensus": "restarts",
    "Imputer": "imputer",
    "LikelihoodRatioTest": "uncertainty",
    "OutlierDetector": "outliers",
    "Selection": "result",
    "StandardErrors": "information",
    "as_outlier_detector": "outliers",
    "bootstrap": "uncertainty",
    "likelihood_ratio_test": "uncertainty",
    "calibration": "fit_check",
    "compare": "comparison",
    "consensus": "restarts",
    "select": "search",
    "standard_errors": "information",
}


def __getattr__(name: str) -> Any:
    # What needs scikit-learn loads on first use: the command line shows the criteria in its help.
    if name in _HOMES:
        return getattr(import_module(f"latently.selection.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'latently.selection' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
