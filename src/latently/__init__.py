"""latently: density models with structured latent variables, behind one scikit-learn-compatible API."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "datasets",
    "deep",
    "factorization",
    "generate",
    "load",
    "metrics",
    "mixture",
    "plots",
    "rejection",
    "report",
    "selection",
    "supervised",
    "tables",
]

_SUBPACKAGES = set(__all__) - {"__version__", "load"}


def __getattr__(name: str) -> Any:
    # Subpackages load on first use, so that `import latently` costs next to nothing.
    if name in _SUBPACKAGES:
        return importlib.import_module(f"latently.{name}")
    if name == "load":
        return importlib.import_module("latently.saved").load
    raise AttributeError(f"module 'latently' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
