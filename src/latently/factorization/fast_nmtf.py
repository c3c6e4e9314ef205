"""Tri-factorisation by indicators: k-means of rows and columns at once, around the means of blocks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import is_sparse
from latently.distributions import co_clusters
from latently.distributions.co_clusters import Blocks, Entries
from latently.estimators.checks import check_locations, check_matrix, numbers
from latently.estimators.options import estimator
from latently.estimators.parameters import Parameter, store
from latently.estimators.rows import for_method
from latently.factorization.co_clustering import CoClustering, CoClusteringCost, Problem, in_floats


@estimator
class FastNMTF(CoClustering):
    """Fast tri-factorisation: every row and every column has one cluster, and every block its mean.

    Minimises ``1/2 sum (x_nd - W[z_n, c_d])^2``. Entries may have any sign.

    Parameters
    ----------
    row_labels_init : array-like of shape (n_samples,), optional
    column_labels_init : array-like of shape (n_features,), optional
        Starting labels, from 0, which replace those that are computed.
    accelerate : {"auto", None}, default="auto"
        "auto": a cluster that has become empty gets the row or column that is fitted worst, as this lowers
        the cost. None: plain sweeps, in which it stays empty.
    {options}

    Attributes
    ----------
    core_ : ndarray of shape (n_row_clusters, n_column_clusters)
        W, the means of the blocks; a block without entries has the mean of X, or the last mean that it had.
    components_ : ndarray of shape (n_row_clusters, n_features)
        What a row of each cluster is reconstructed by.
    {attributes}

    Notes
    -----
    A sweep computes means, row labels, means, column labels and means. Ties go to the lowest label, so rows
    without any observed entry have label 0.

    Examples
    --------
    >>> import numpy as np
    >>> from latently.factorization import FastNMTF
    >>> X = np.kron([[5.0, -1.0, 0.0], [0.0, 4.0, 1.0]], np.ones((10, 5)))
    >>> model = FastNMTF(2, 3, random_state=0).fit(X)
    >>> sorted(model.core_.ravel().round(6).tolist())
    [-1.0, 0.0, 0.0, 1.0, 4.0, 5.0]
    """

    _: KW_ONLY
    row_labels_init: Any = None
    column_labels_init: Any = None

    _positive = False

    @classmethod
    def from_parameters(cls, *, core, column_labels, row_labels=None, **options):
        """A fitted estimator with known means of blocks (K, L) and labels of the columns (D,)."""
        check_matrix("core", core)
        model = cls(*np.shape(core), **options)
        model._with_parameters(core=core, column_labels=column_labels)
        if row_labels is not None:
            model.row_labels_ = _checked_labels("row_labels", row_labels, None, len(model.core_))
        return model

    @property
    def components_(self):
        check_is_fitted(self)
        return self.core_[:, self.column_labels_]

    # -- fitting --------------------------------------------------------------------------------------

    def _problem(self, matrix):
        # differences from the mean, where X is dense: their squares lose no digits to an offset
        counts = matrix.weight.sum() * matrix.X.shape[1]
        if matrix.observed is not None:
            counts = float(np.sum(matrix.weight @ matrix.observed))
        mean = float(np.sum(matrix.weight @ matrix.X)) / counts
        shift = 0.0 if is_sparse(matrix.X) else mean
        X = matrix.X
        if shift:
            X = X - shift if matrix.observed is None else (X - shift) * matrix.observed
        entries = Entries.of(X, matrix.observed, matrix.weight)
        self._shift = shift
        n, D = X.shape
        K, L = self.n_row_clusters, self.n_column_clusters
        row_labels, column_labels, core = self._given(matrix)
        core = np.full((K, L), mean - shift) if core is None else core - shift
        refill = self.accelerate is not None

        def start(plane, by_row, by_column):
            blocks = Blocks(
                by_row if row_labels is None else row_labels,
                core,
                by_column if column_labels is None else column_labels,
            )
            return co_clusters.with_means(entries, blocks)

        given = row_labels is not None and column_labels is not None
        return Problem(
            sweep=lambda blocks: co_clusters.swept(entries, blocks, refill=refill),
            rounding=64 * float(np.finfo(np.float64).eps) * entries.square,
            start=start,
            given=start(None, None, None) if given else None,
            example=Blocks(np.zeros(n, dtype=np.int64), np.zeros((K, L)), np.zeros(D, dtype=np.int64)),
        )

    def _given(self, matrix):
        """Starting labels of rows and columns, and means, of the user or the last fit; None if not given."""
        N, D = len(matrix.kept), matrix.X.shape[1]
        if self.warm_start and hasattr(self, "row_labels_"):
            self._check_shapes(D, "warm_start")
            if len(self.row_labels_) == N:
                return self.row_labels_[matrix.kept], self.column_labels_, self.core_
        rows, columns = self.row_labels_init, self.column_labels_init
        if rows is not None:
            rows = _checked_labels("row_labels_init", rows, N, self.n_row_clusters)[matrix.kept]
        if columns is not None:
            columns = _checked_labels("column_labels_init", columns, D, self.n_column_clusters)
        return rows, columns, None

    def _keep(self, matrix, blocks, data):
        store(self, {"core": blocks.core + self.__dict__.pop("_shift")})
        self.column_labels_ = blocks.columns
        labels = np.zeros(len(matrix.kept), dtype=np.int64)
        labels[matrix.kept] = blocks.rows
        if not matrix.kept.all():
            labels[~matrix.kept] = self.predict(data.X[~matrix.kept])
        self.row_labels_ = labels

    # -- using a fitted model -------------------------------------------------------------------------

    def transform(self, X, *, out=None):
        """One in the column of the cluster of each row, else zero, (n_samples, n_row_clusters)."""
        return self._rows_of(X, _indicators, out)

    def predict(self, X, *, out=None):
        """The row cluster of each row, the one with the smallest squared error, (n_samples,)."""
        return self._rows_of(X, _labels, out)

    def cost(self, X, *, row_labels=None, sample_weight=None):
        """The cost of these rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or sparse matrix
        row_labels : array-like of shape (n_samples,), optional
            By default those of `predict`.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        CoClusteringCost
            A record whose `reconstruction` is the `total`.
        """
        check_is_fitted(self)
        matrix = self._matrix(self._data(X, sample_weight=sample_weight, reset=False))
        labels = self.predict(X) if row_labels is None else row_labels
        labels = _checked_labels("row_labels", labels, len(matrix.kept), len(self.core_))[matrix.kept]
        entries = Entries.of(matrix.X, matrix.observed, matrix.weight)
        total = co_clusters.cost(entries, Blocks(labels, self.core_, self.column_labels_))
        return CoClusteringCost(total, 0.0, 0.0, 0.0, total)

    def _model(self):
        return _Known(self.core_, self.column_labels_)

    # -- parameters in and out ------------------------------------------------------------------------

    def _parameters(self):
        return (
            Parameter("core", None, ("K", "L"), check_locations),
            Parameter("column_labels", None, ("D",), _whole),
        )

    def _n_features_of(self, given):
        labels = numbers("column_labels", given["column_labels"])
        if labels.ndim != 1 or not len(labels):
            raise ValueError("column_labels must have one entry per feature")
        return len(labels)

    def _set_fitted_arrays(self, **given):
        super()._set_fitted_arrays(**given)
        L = self.core_.shape[1]
        self.column_labels_ = _checked_labels("column_labels", self.column_labels_, None, L)

    def _fitted_arrays(self):
        return {name: np.asarray(array, dtype=np.float64) for name, array in super()._fitted_arrays().items()}


def _whole(name, array):
    return _checked_labels(name, array, None, None)


def _checked_labels(name, value, length, n_clusters):
    """Labels (length,) as integers from 0 to below the number of clusters."""
    array = numbers(name, value)
    if array.ndim != 1 or (length is not None and len(array) != length):
        raise ValueError(f"{name} must have shape ({'n' if length is None else length},), not {array.shape}")
    most = np.inf if n_clusters is None else n_clusters - 1
    if np.any(array != np.round(array)) or array.min() < 0 or array.max() > most:
        allowed = "integers from 0" if n_clusters is None else f"integers from 0 to {most}"
        raise ValueError(f"{name} must hold {allowed}")
    return array.astype(np.int64)


# -- functions of blocks ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    core: Any
    columns: Any

    @property
    def components(self):
        return self.core[:, self.columns]

    def nearest(self, block):
        # differences from the mean of the blocks, where X is dense: an offset costs no digits
        X, shift = block.X, 0.0
        observed = None if block.observed is None else block.observed.astype(np.float64)
        if not is_sparse(X):
            shift = float(self.core.mean())
            X = X - shift if observed is None else (X - shift) * observed
        return co_clusters.nearest(self.core - shift, self.columns, X, observed)

    def factors(self, block):
        return co_clusters.indicators(self.nearest(block)[0], len(self.core))

    def row_costs(self, block):
        return self.nearest(block)[1]


@for_method("transform")
def _indicators(model, block):
    return model.factors(in_floats(block))


@for_method("predict")
def _labels(model, block):
    return model.nearest(in_floats(block))[0]
