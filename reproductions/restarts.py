"""Several fits of a model, of which the likelihood picks one; labels never do."""

from __future__ import annotations

import warnings

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

ROUGH = {"n_init": 8, "tol": 1e-6}  # each restart goes on with the best of eight short runs
SAID = """
    Every model is fitted several times from different seeds (restarts), each time with the best of eight
    short runs, and the fit of highest likelihood is kept. No labels are used.
"""


def fit_restarts(model, X, n_restarts, seed, **options):
    """Fitted copies of the model, the likeliest first; only that one is run on to the model's own `tol`.

    `options` replace those of `ROUGH`.
    """
    options = ROUGH | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # `converged_` tells
        rough = (clone(model).set_params(random_state=1000 * seed + i, **options) for i in range(n_restarts))
        best, *others = sorted((one.fit(X) for one in rough), key=lambda one: -one.score(X))
        return [best.set_params(tol=model.tol, warm_start=True).fit(X), *others]
