"""Warnings that point to the user's own line, and fits that either succeed or leave no trace."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from latently.core.checkpoint import errors_name_checkpoints
from latently.estimators.memory import allocations_named


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first line outside latently and scikit-learn, which is the user's call."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class DegenerateWarning(ConvergenceWarning):
    """A component of a fitted mixture describes a few rows, or a subspace, exactly."""


class InterruptedWarning(ConvergenceWarning):
    """The user interrupted a fit, which keeps its parameters so far."""


_OURS = ("latently", "sklearn", "contextlib")


@contextmanager
def unchanged_on_failure(estimator: Any) -> Iterator[None]:
    """Restore the estimator if the fit fails; errors name its checkpoint, and what took memory."""
    earlier = vars(estimator).copy()
    try:
        with errors_name_checkpoints(), allocations_named(estimator):
            yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(earlier)
        raise
