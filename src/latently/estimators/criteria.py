"""Information criteria of fitted densities."""

from __future__ import annotations

from typing import Any

import numpy as np

from latently.estimators.rows import in_main_memory


def information_criteria(
    model: Any, X: Any, weight: Any = None, *, with_icl: bool = False
) -> dict[str, float]:
    """Log-likelihood per row, BIC, AIC and optionally ICL; a weight counts as that many copies of a row."""
    scores = in_main_memory(model.score_samples(X))
    weight = np.ones(len(scores)) if weight is None else weight
    n, total, m = weight.sum(), weight @ scores, model.n_parameters()
    found = {"log_likelihood": total / n, "bic": -2 * total + m * np.log(n), "aic": -2 * total + 2 * m}
    if with_icl:
        resp = in_main_memory(model.predict_proba(X))
        entropy = -weight @ np.sum(resp * np.log(np.where(resp > 0, resp, 1.0)), axis=1)
        found["icl"] = found["bic"] + 2 * entropy
    return {name: float(value) for name, value in found.items()}


def bic(self: Any, X: Any) -> float:
    """Bayesian information criterion on the rows of X; lower is better."""
    return information_criteria(self, X)["bic"]


def aic(self: Any, X: Any) -> float:
    """Akaike information criterion on the rows of X; lower is better."""
    return information_criteria(self, X)["aic"]


def icl(self: Any, X: Any) -> float:
    """BIC plus twice the entropy of the responsibilities (integrated completed likelihood)."""
    return information_criteria(self, X, with_icl=True)["icl"]
