"""What co-clusterings share: options, the matrix to cluster, sweeps as steps, and methods of rows."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import is_sparse, is_torch, to_numpy
from latently.core.alternation import Point, never_rising
from latently.core.data import Data
from latently.core.drivers import Objective, Step, best_start
from latently.estimators import fitting
from latently.estimators.checks import check_choice, check_integer, check_number, check_weights, real_array
from latently.estimators.data import check_data, checked_table, identity_in_order
from latently.estimators.fitting import FitOptions
from latently.estimators.iterative import IterativeEstimator
from latently.estimators.options import estimator, option
from latently.estimators.randomness import as_random_state
from latently.estimators.rows import for_method, in_main_memory, rows_over
from latently.estimators.weights import weights_in_rows
from latently.factorization import co_clustering_starts, starts

_SHORT_RUN = 5  # sweeps of every start before the better ones continue
COST = Objective("cost", direction=-1, remedy="rescale the data")


@dataclass(frozen=True)
class CoClusteringCost:
    """The terms of the cost of a co-clustering.

    Attributes
    ----------
    reconstruction : float
        Half the sum of squared differences between X and its reconstruction.
    rows, columns, core : float
        The penalties of `PenalizedNMTF`; zero for the other models.
    total : float
        Their sum.
    """

    reconstruction: float
    rows: float
    columns: float
    core: float
    total: float


@dataclass(frozen=True)
class Matrix:
    """Rows of positive weight with observed entries, in main memory."""

    X: Any  # (n, D) float64, zero where not observed; perhaps sparse
    observed: Any  # (n, D) of ones and zeros; None if all are
    weight: Any  # (n,)
    kept: Any  # (N,): which rows of the user these are

    def filled(self) -> Any:
        """Missing entries replaced by the mean of their column, for starts."""
        if self.observed is None:
            return self.X
        counts = self.weight @ self.observed
        mean = (self.weight @ self.X) / np.where(counts > 0, counts, 1.0)
        return self.X + (1.0 - self.observed) * mean


@dataclass(frozen=True)
class Problem:
    """The cost of a co-clustering, and a sweep that does not raise it."""

    sweep: Callable[[Any], tuple[Any, float]]
    start: Callable[[Any, Any, Any], tuple[Any, float]]  # of leading directions, and labels in them
    given: tuple[Any, float] | None  # the user's starting point
    rounding: float
    example: Any  # parameters of the right shapes

    def step(self, point: Point) -> Step[Point]:
        def next_point() -> Point:
            shared, cost = self.sweep(point.shared)
            return replace(point, shared=shared, cost=cost)

        assert point.cost is not None
        return Step(point.cost, self.rounding, next_point)


def _point(shared: Any, cost: float) -> Point:
    return Point(shared, None, cost)


@estimator
class CoClustering(ClassNamePrefixFeaturesOutMixin, TransformerMixin, IterativeEstimator):
    """Everything but the factors; a concrete model has `_problem`, `_keep` and functions of rows.

    Parameters
    ----------
    n_row_clusters, n_column_clusters : int, default=2
        Numbers of clusters of the rows, K, and of the columns, L; they may differ.
    init : {"kmeans", "random"}, default="kmeans"
        Starting labels: k-means of the rows and of the columns, or by chance.
    n_init : int, default=10
        Number of starts. After a few sweeps the better half goes on, and so on until one is left. Starts that
        were found before are left out.
    max_iter : int, default=500
        Maximum number of sweeps.
    tol : float, default=1e-5
        The fit stops when a sweep decreases the cost by less than `tol` times the cost. With 0, exactly
        `max_iter` sweeps are made.
    callbacks : list of callables, optional
        Called after every sweep with a record (`number`, `objective`, `gain`, `max_iter`), whose objective is
        the cost and whose gain is its decrease; one that returns True stops the fit.
    warm_start : bool, default=False
        Whether `fit` starts from the last fit, if it was of as many rows.

    Attributes
    ----------
    row_labels_ : ndarray of shape (n_samples,)
        The cluster of each row of the fit, from 0. Not saved: `predict` gives those of any rows.
    column_labels_ : ndarray of shape (n_features,)
        The cluster of each column, from 0.
    history_ : ndarray of shape (n_sweeps,)
        Weighted cost after every sweep; it never increases.
    n_iter_ : int
        Number of sweeps.
    n_passes_ : int
        The same number, as sweeps are never rejected.
    converged_ : bool
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If X had string column names.
    """

    n_row_clusters: int = option(default=2, check=check_integer, least=1)
    n_column_clusters: int = option(default=2, check=check_integer, least=1)
    _: KW_ONLY
    init: str = option(default="kmeans", check=check_choice, choices=co_clustering_starts.INITS)
    n_init: int = option(default=10, check=check_integer, least=1)
    max_iter: int = option(default=500, check=check_integer, least=0)
    tol: float = option(default=1e-5, check=check_number, least=0)
    accelerate: Any = option(default="auto", check=check_choice, choices=("auto", None))
    batch_size: ClassVar[None] = None  # type: ignore[misc]
    learning_decay: ClassVar[None] = None  # type: ignore[misc,assignment]
    learning_offset: ClassVar[None] = None  # type: ignore[misc,assignment]

    objective = COST
    _positive = True  # whether entries must not be negative

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self._positive
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags

    @property
    def components_(self):
        """(n_row_clusters, n_features) what a row of each cluster alone looks like: W C'."""
        raise NotImplementedError

    @property
    def _n_features_out(self):
        return self.core_.shape[0]

    def to(self, device):
        """A copy of the fitted model, which works in main memory: `device` must be "numpy"."""
        if device != "numpy":
            raise ValueError(
                f"{type(self).__name__} works in main memory; device must be 'numpy', not {device!r}"
            )
        check_is_fitted(self)
        return copy(self)

    # -- fitting --------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None):
        """Cluster the rows and the columns.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), sparse matrix, path or blocks
            The rows. NaN marks a missing entry, which the cost leaves out; entries that a sparse matrix does
            not hold are zeros. Files and Dask collections are read into memory.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row; an integer weight is equivalent to repeating the row.

        Returns
        -------
        self
        """
        return super().fit(X, sample_weight=sample_weight)

    def fit_transform(self, X, y=None, sample_weight=None):
        """Fit the model and return what `transform` gives for the rows, (n_samples, n_row_clusters)."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit the model and return `row_labels_`."""
        return self.fit(X, sample_weight=sample_weight).row_labels_

    def _fit(self, data):
        matrix = self._matrix(data)
        self._check_entries(matrix)
        self._check_clusters(matrix)
        problem = self._problem(matrix)
        identity = "" if self.checkpoint is None else identity_in_order(data, self.block_size)
        objective = replace(COST, least_size=problem.rounding / np.finfo(np.float64).eps)
        options = FitOptions.of(self, identity, objective=objective, least_size=0.0)
        step = options.passes.counted(never_rising(problem.step))
        result = fitting.fit(
            step,
            lambda progress: self._start(problem, matrix, step, options, progress),
            options,
            example=lambda: Point(problem.example, None, 0.0),
        )
        self.n_iter_, self.converged_ = result.n_iter, result.converged
        self.n_passes_ = result.n_iter
        self.history_ = np.array(result.history[1:], dtype=np.float64)
        self._keep(matrix, result.params.shared, data)

    def _start(self, problem, matrix, step, options, progress):
        """The starting point, and whether the user interrupted the search for it."""
        if problem.given is not None:
            return _point(*problem.given), False
        rng = as_random_state(self.random_state)
        sizes = (self.n_row_clusters, self.n_column_clusters)
        plane = co_clustering_starts.plane(matrix.filled(), matrix.weight, sizes, rng)
        labels = co_clustering_starts.labels(plane, matrix.weight, sizes, self.init, rng)
        points = (_point(*problem.start(plane, *pair)) for pair in islice(labels, self.n_init))
        points = progress.starts(points) if progress and self.n_init > 1 else points
        return best_start(step, points, n_steps=_SHORT_RUN, stop=options.stop, objective=options.objective)

    def _check_entries(self, matrix):
        values = matrix.X.data if is_sparse(matrix.X) else matrix.X
        lowest, largest = float(values.min(initial=0.0)), float(values.max(initial=0.0))
        seen = np.ones(1)
        if matrix.observed is not None:
            seen = matrix.observed.sum(axis=0)
        starts.check_extent(self, lowest, largest, seen, positive=self._positive)

    def _check_clusters(self, matrix):
        n, D = matrix.X.shape
        if self.n_row_clusters > n:
            raise ValueError(
                f"n_row_clusters={self.n_row_clusters} must not be larger than the number of rows, "
                f"n_samples={n}"
            )
        if self.n_column_clusters > D:
            raise ValueError(
                f"n_column_clusters={self.n_column_clusters} must not be larger than the number of columns, "
                f"n_features={D}"
            )

    # -- rows of the user -----------------------------------------------------------------------------

    def _data(self, X, y=None, sample_weight=None, *, reset):
        if is_sparse(X):
            X = checked_table(
                self, X, reset=reset, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False
            )
            if not np.all(np.isfinite(X.data)):
                raise ValueError(
                    "X is sparse and contains NaN or infinity; missing entries are not supported in sparse "
                    "matrices, so use a dense array"
                )
            weight = None if sample_weight is None else np.asarray(weights_in_rows(sample_weight, X.shape[0]))
            return Data(X, weight=weight)
        return check_data(self, to_numpy(X) if is_torch(X) else X, sample_weight, reset=reset)

    def _matrix(self, data):
        """The rows that tell something, in main memory."""
        weight = data.field("weight")
        if data.in_memory and is_sparse(data.X):
            X, observed = data.X, None
        else:
            X = self._read(data)
            observed = None
            if np.isnan(X.sum()):  # one quick pass
                observed = np.asarray(~np.isnan(X), dtype=np.float64)
                X = np.where(observed > 0, X, 0.0)
        weight = np.ones(X.shape[0]) if weight is None else np.asarray(weight)
        kept = weight > 0
        if observed is not None:
            kept &= observed.any(axis=1)
            if not kept.any():
                raise ValueError("every entry of X is missing (NaN), so there is nothing to learn from")
        if not kept.all():
            X, observed, weight = X[kept], None if observed is None else observed[kept], weight[kept]
        return Matrix(X, observed, weight, kept)

    def _read(self, data):
        if data.in_memory:
            return np.asarray(data.X, dtype=np.float64)
        sweep = data.sweep(None, floats_per_row=2 * data.n_features, block_size=self.block_size)
        X = in_main_memory(data.collected(sweep.rows(_in_float64), None))
        if np.isinf(X).any():
            raise ValueError("Input X contains infinity")
        return X

    def _rows_of(self, X, fn, out, *args):
        check_is_fitted(self)
        data = self._data(X, reset=False)
        place = None if data.in_memory and is_sparse(data.X) else self.core_
        D = self.n_features_in_
        if data.in_memory and is_sparse(data.X):
            D = 1 + data.X.nnz // max(data.X.shape[0], 1)
        floats = 2 * D + 4 * sum(self.core_.shape)
        return rows_over(self, data, fn, self._model(), *args, place=place, floats_per_row=floats, out=out)

    # -- using a fitted model -------------------------------------------------------------------------

    def inverse_transform(self, X):
        """Rows for given row factors (n_samples, n_row_clusters), (n_samples, n_features)."""
        check_is_fitted(self)
        Z = real_array("X", X, dtype=np.float64)
        if Z.shape[1] != self.core_.shape[0]:
            raise ValueError(
                f"X has {Z.shape[1]} columns, but the model has n_row_clusters={self.core_.shape[0]}"
            )
        return Z @ self.components_

    def impute(self, X, *, out=None):
        """Impute missing entries by their reconstruction; observed entries are unchanged."""
        return self._rows_of(X, _imputed, out)

    def reconstruct(self, X, *, out=None):
        """Rows reconstructed from their factors, (n_samples, n_features)."""
        return self._rows_of(X, _reconstruction, out)

    def row_cost(self, X, *, out=None):
        """The cost of each row, (n_samples,)."""
        return self._rows_of(X, _row_costs, out)

    def score(self, X, y=None, sample_weight=None):
        """Minus the mean cost of the rows, weighted if `sample_weight` is given."""
        costs = in_main_memory(self.row_cost(X))
        weight = None if sample_weight is None else check_weights(sample_weight, len(costs))
        return -float(np.average(costs, weights=weight))

    # -- for subclasses -------------------------------------------------------------------------------

    def _sizes(self, n_features):
        return {"K": self.n_row_clusters, "L": self.n_column_clusters, "D": n_features}

    def _problem(self, matrix):
        raise NotImplementedError

    def _keep(self, matrix, shared, data):
        raise NotImplementedError

    def _model(self):
        """A record with `factors(block)`, `components` and `row_costs(block)`."""
        raise NotImplementedError


# -- functions of blocks ------------------------------------------------------------------------------


def _in_float64(block):
    return to_numpy(block.X).astype(np.float64)


def in_floats(block):
    """The block with entries in float64, zero where nothing was observed."""
    X = block.X
    if is_sparse(X):
        return block
    X = np.asarray(X, dtype=np.float64)
    return replace(block, X=X if block.observed is None else np.where(block.observed, X, 0.0))


@for_method("reconstruct")
def _reconstruction(model, block):
    return model.factors(in_floats(block)) @ model.components


@for_method("impute")
def _imputed(model, block):
    if is_sparse(block.X):
        return block.X.toarray()
    if block.observed is None:
        return block.X
    return np.where(block.observed, block.X, _reconstruction(model, block))


@for_method("row_cost")
def _row_costs(model, block):
    return model.row_costs(in_floats(block))
