"""Model selection: numbers of components and factors, noise structures, by a criterion; imputation."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from latently.selection.criteria import CRITERIA, Criterion

if TYPE_CHECKING:
    from latently.selection.comparison import Comparison, compare
    from latently.selection.fit_check import Calibration, calibration
    from latently.selection.imputer import Imputer
    from latently.selection.result import Selection
    from latently.selection.search import select

__all__ = [
    "CRITERIA",
    "Calibration",
    "Comparison",
    "Criterion",
    "Imputer",
    "Selection",
    "calibration",
    "compare",
    "select",
]

_HOMES = {
    "Calibration": "fit_check",
    "Comparison": "comparison",
    "calibration": "fit_check",
    "compare": "comparison",
    "Imputer": "imputer",
    "Selection": "result",
    "select": "search",
}


def __getattr__(name: str) -> Any:
    # What needs scikit-learn loads on first use: the command line shows the criteria in its help.
    if name in _HOMES:
        return getattr(import_module(f"latently.selection.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'latently.selection' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
