"""Consensus over restarts: with how many components do fits from random starts agree?"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.parallel import Parallel, delayed

from latently.backend.placement import one_blas_thread
from latently.estimators.checks import check_integer
from latently.estimators.randomness import as_generator
from latently.metrics.consensus import consensus_matrix, cophenetic_correlation
from latently.selection.frames import pandas

_MOST_ROWS = 5000  # the matrix has their square as entries
_AS_GOOD = 0.01  # dispersions that differ by less are equal


class Consensus:
    """The result of :func:`consensus`.

    Attributes
    ----------
    table_ : pandas.DataFrame
        A row for each number of components: `n_components`, `cophenetic_correlation` and `dispersion` of the
        consensus matrix, both 1 if all runs agree; `n_clusters`, the median number of components that have
        rows; and `score`, that of the best run.
    matrices_ : dict of int to ndarray of shape (n_samples, n_samples)
        For each number of components the share of the runs that have two rows in one cluster.
    n_components_ : int
        The largest number of components whose dispersion is the highest, up to 0.01, among those of which
        all components have rows.
    best_ : estimator
        The best run with `n_components_`.
    """

    def __init__(self, rows, matrices, models):
        self._rows, self.matrices_ = rows, matrices
        filled = [row for row in rows if row["n_clusters"] == row["n_components"]] or rows
        dispersions = {row["n_components"]: row["dispersion"] for row in filled}
        highest = max(dispersions.values())
        self.n_components_ = max(K for K, value in dispersions.items() if value >= highest - _AS_GOOD)
        self.best_ = models[self.n_components_]

    @property
    def table_(self):
        return pandas().DataFrame(self._rows)

    def plot(self, ax=None, n_components=None):
        """Draw the consensus matrix, rows in the order of their tree.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default the axes of a new pyplot figure.
        n_components : int, optional
            Of which number of components; by default `n_components_`.

        Returns
        -------
        latently.plots.ConsensusDisplay
        """
        from latently.plots import ConsensusDisplay

        K = self.n_components_ if n_components is None else n_components
        if K not in self.matrices_:
            raise ValueError(f"n_components must be one of {list(self.matrices_)}, not {K!r}")
        return ConsensusDisplay(self.matrices_[K]).plot(ax)

    def __repr__(self):
        return f"runs agree best with {self.n_components_} components\n{self.table_.to_string(index=False)}"

    def _repr_html_(self):
        return self.table_._repr_html_()


def consensus(model, X, n_components, *, n_runs=20, n_jobs=None, random_state=None):
    """Fit a model from many random starts for each number of components, and see whether the fits agree.

    A row belongs to the component with its largest activation, or to the cluster that `predict` says. With
    too many components runs divide groups in different ways, so that they agree less (Brunet et al. 2004).

    Parameters
    ----------
    model : estimator
        With `n_components`, `random_state`, and `predict` or `transform`: `NMF` and other factorisations, or
        a mixture. Clones of it are fitted with different seeds; a parameter `init` is set to "random".
    X : array-like of shape (n_samples, n_features)
        At most 5000 rows.
    n_components : list of int
        The numbers of components to compare.
    n_runs : int, default=20
        Number of fits for each of them.
    n_jobs : int, optional
        Number of parallel fits, as for joblib. The result does not depend on it.
    random_state : int, Generator, RandomState or None
        Seed of the starts.

    Returns
    -------
    Consensus
        `table_`, `matrices_`, `n_components_`, `best_`, `plot()`.

    Examples
    --------
    >>> import numpy as np
    >>> from latently.factorization import NMF
    >>> from latently.selection import consensus
    >>> rng = np.random.default_rng(0)
    >>> X = np.kron(np.eye(3), np.ones((10, 4))) + rng.random((30, 12))
    >>> found = consensus(NMF(tol=1e-3), X, [2, 3, 4], n_runs=8, random_state=0)
    >>> found.n_components_
    3
    """
    check_integer("n_runs", n_runs, least=2)
    sizes = _sizes(n_components)
    settings = _settings(model)
    n = np.shape(X)[0]
    if n > _MOST_ROWS:
        raise ValueError(
            f"X has {n} rows, and its consensus matrix would have {n} x {n} entries; give a sample of at "
            f"most {_MOST_ROWS}"
        )
    seeds = as_generator(random_state).integers(2**32, size=(len(sizes), n_runs))
    rows, matrices, models = [], {}, {}
    for K, of_runs in zip(sizes, seeds, strict=True):
        runs = Parallel(n_jobs=n_jobs)(
            delayed(_run)(model, {**settings, "n_components": K, "random_state": int(seed)}, X)
            for seed in of_runs
        )
        matrices[K] = consensus_matrix([labels for labels, _, _ in runs])
        _, score, models[K] = max(runs, key=lambda run: run[1])
        rows.append(
            {
                "n_components": K,
                "cophenetic_correlation": cophenetic_correlation(matrices[K]),
                "dispersion": float(np.mean((2.0 * matrices[K] - 1.0) ** 2)),
                "n_clusters": float(np.median([len(np.unique(labels)) for labels, _, _ in runs])),
                "score": score,
            }
        )
    return Consensus(rows, matrices, models)


def _sizes(n_components):
    sizes = list(n_components) if np.iterable(n_components) else [n_components]
    for K in sizes:
        check_integer("n_components", K, least=2)
    if len(set(sizes)) < len(sizes) or not sizes:
        raise ValueError(f"n_components must be different numbers, such as [2, 3, 4], not {n_components!r}")
    return [int(K) for K in sizes]


def _settings(model) -> dict[str, Any]:
    """What is set in every clone."""
    names = model.get_params(deep=False) if isinstance(model, BaseEstimator) else {}
    if not {"n_components", "random_state"} <= set(names) or not (
        hasattr(model, "predict") or hasattr(model, "transform")
    ):
        raise TypeError(
            "consensus needs an unfitted factorisation or mixture with n_components, random_state and "
            f"transform or predict, such as NMF(), not {model!r}"
        )
    return {"init": "random"} if "init" in names else {}


def _run(model, settings, X):
    """Labels of the rows, the score and the model of one run."""
    fitted = clone(model).set_params(**settings)
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted.fit(X)
        if hasattr(fitted, "predict"):
            labels = fitted.predict(X)
        else:
            labels = np.argmax(np.asarray(fitted.transform(X)), axis=1)
        return np.asarray(labels), float(fitted.score(X)), fitted
