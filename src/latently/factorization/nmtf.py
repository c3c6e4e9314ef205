"""Non-negative tri-factorisation: clusters of rows and of columns, and how strongly they go together."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import is_sparse
from latently.distributions import tri_factors
from latently.distributions.tri_factors import Factors, LowRank, Overlap, Table
from latently.estimators.checks import (
    check_matrix,
    check_non_negative,
    check_number,
    check_positive,
    parameter,
)
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter, given_starts, store
from latently.estimators.rows import for_method
from latently.factorization.co_clustering import CoClustering, CoClusteringCost, Problem, in_floats

# of every start, in the plane of the leading directions, where they cost little
_ROUGH_SWEEPS, _ROUGH_GAIN = 50, 1e-7
_LEAST = 0.2  # of an entry of the starting factors outside of its cluster, where one inside has one more;
_LEAST_OF_DESCENT = 0.0  # which descent does not need, since it leaves zeros


@estimator
class TriFactorization(CoClustering):
    """Tri-factorisations whose factors are not negative.

    Parameters
    ----------
    row_factors_init : array-like of shape (n_samples, n_row_clusters), optional
    core_init : array-like of shape (n_row_clusters, n_column_clusters), optional
    column_factors_init : array-like of shape (n_features, n_column_clusters), optional
        Starting values, which replace those that are computed.
    accelerate : {"auto", None}, default="auto"
        "auto": a sweep makes a few passes of coordinate descent over each factor. None: one multiplicative
        update of Z, then C, then W, each with what is new.

    Attributes
    ----------
    row_factors_ : ndarray of shape (n_samples, n_row_clusters)
        Z of the rows of the fit. Not saved: `transform` gives those of any rows.
    core_ : ndarray of shape (n_row_clusters, n_column_clusters)
        W.
    column_factors_ : ndarray of shape (n_features, n_column_clusters)
        C.
    components_ : ndarray of shape (n_row_clusters, n_features)
        W C'.
    """

    _: KW_ONLY
    row_factors_init: Any = None
    core_init: Any = None
    column_factors_init: Any = None

    @property
    def components_(self):
        check_is_fitted(self)
        return self.core_ @ self.column_factors_.T

    # -- fitting --------------------------------------------------------------------------------------

    def _overlap(self):
        return Overlap()

    def _problem(self, matrix):
        # rows of weight w are rows times the root of w, with factors times the root of w
        root = np.sqrt(matrix.weight)[:, None]
        X = matrix.X.multiply(root).tocsr() if is_sparse(matrix.X) else matrix.X * root
        table, overlap = Table.of(X, matrix.observed), self._overlap()
        move = tri_factors.multiplied if self.accelerate is None else tri_factors.descending
        given = self._given(matrix, root)

        least = _LEAST if self.accelerate is None else _LEAST_OF_DESCENT

        def costed(factors):
            return factors, tri_factors.cost(table, factors, overlap)

        def start(plane, row_labels, column_labels):
            if given:
                return costed(
                    replace(_soft(table.X, row_labels, column_labels, self._shape(), root, least), **given)
                )
            rough = Table(
                LowRank(plane.rows * root, plane.directions), None, float(plane.scales @ plane.scales)
            )
            factors = _soft(rough.X, row_labels, column_labels, self._shape(), root, least)
            before = np.inf
            for _ in range(_ROUGH_SWEEPS):  # without penalties, which would keep rows in their first cluster
                factors, now = tri_factors.descending(rough, factors, Overlap())
                if before - now <= _ROUGH_GAIN * table.square:
                    break
                before = now
            return costed(factors)

        n, D = matrix.X.shape
        K, L = self._shape()
        return Problem(
            sweep=lambda factors: move(table, factors, overlap),
            rounding=64 * float(np.finfo(np.float64).eps) * table.square,
            start=start,
            given=costed(Factors(**given)) if len(given) == 3 else None,
            example=Factors(np.zeros((n, K)), np.zeros((K, L)), np.zeros((D, L))),
        )

    def _shape(self):
        return self.n_row_clusters, self.n_column_clusters

    def _given(self, matrix, root):
        """Starting values from the user or from the last fit, by field of the factors."""
        D = matrix.X.shape[1]
        if self.warm_start and hasattr(self, "row_factors_"):
            self._check_shapes(D, "warm_start")
            if len(self.row_factors_) == len(matrix.kept):
                rows = self.row_factors_[matrix.kept] * root
                return {"rows": rows, "core": self.core_, "columns": self.column_factors_}
        named = given_starts(self, self._parameters(), self._sizes(D))
        given = {"core": named.get("core"), "columns": named.get("column_factors")}
        if self.row_factors_init is not None:
            shape = (len(matrix.kept), self.n_row_clusters)
            rows = check_non_negative(
                "row_factors_init", parameter("row_factors_init", self.row_factors_init, shape)
            )
            given["rows"] = rows[matrix.kept] * root
        return {name: array for name, array in given.items() if array is not None}

    def _keep(self, matrix, factors, data):
        """Fitted attributes; rows that told nothing are inferred like new ones."""
        norms = np.linalg.norm(factors.rows, axis=0)
        self._keep_factors(factors, norms)
        rows = np.zeros((len(matrix.kept), self.n_row_clusters))
        rows[matrix.kept] = factors.rows / np.sqrt(matrix.weight)[:, None]
        if not matrix.kept.all():
            rows[~matrix.kept] = self.transform(data.X[~matrix.kept])
        self._keep_rows(rows, norms)

    def _keep_factors(self, factors, norms):
        store(self, {"core": factors.core, "column_factors": factors.columns})
        self._label_columns()

    def _keep_rows(self, rows, norms):
        self.row_factors_ = np.ascontiguousarray(rows)
        self.row_labels_ = tri_factors.by_largest(rows, norms)

    def _label_columns(self):
        C = self.column_factors_
        self.column_labels_ = tri_factors.by_largest(C, np.linalg.norm(C, axis=0))

    # -- using a fitted model -------------------------------------------------------------------------

    def transform(self, X, *, out=None):
        """Row factors of the least cost, core and column factors being known, (n_samples, n_row_clusters).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), sparse matrix, path or blocks
        out : path of a .npy file, optional
            Write the result to this file block by block and return the file, memory-mapped.
        """
        return self._rows_of(X, _factors, out)

    def predict(self, X, *, out=None):
        """The row cluster of each row, by its factors, (n_samples,)."""
        check_is_fitted(self)
        return self._rows_of(X, _labels, out, self._row_norms())

    def cost(self, X, *, row_factors=None, sample_weight=None):
        """The terms of the cost of these rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or sparse matrix
        row_factors : array-like of shape (n_samples, n_row_clusters), optional
            By default those of `transform`.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        CoClusteringCost
            A record with `reconstruction`, `rows`, `columns`, `core` and `total`.
        """
        check_is_fitted(self)
        Z = self.transform(X) if row_factors is None else row_factors
        data = self._data(X, sample_weight=sample_weight, reset=False)
        matrix = self._matrix(data)
        Z = parameter("row_factors", Z, (len(matrix.kept), self.core_.shape[0]))
        root = np.sqrt(matrix.weight)[:, None]
        X = matrix.X.multiply(root).tocsr() if is_sparse(matrix.X) else matrix.X * root
        factors = Factors(Z[matrix.kept] * root, self.core_, self.column_factors_)
        penalties = rows, columns, core = self._overlap().costs(factors)
        total = tri_factors.cost(Table.of(X, matrix.observed), factors, self._overlap())
        return CoClusteringCost(total - sum(penalties), rows, columns, core, total)

    def _row_norms(self):
        return np.ones(self.core_.shape[0])

    def _model(self):
        return _Known(self.components_, self._overlap().rows)

    # -- parameters in and out ------------------------------------------------------------------------

    def _parameters(self):
        return (
            Parameter("core", "core_init", ("K", "L"), check_non_negative),
            Parameter("column_factors", "column_factors_init", ("D", "L"), check_non_negative),
        )

    def _set_fitted_arrays(self, **given):
        super()._set_fitted_arrays(**given)
        self._label_columns()

    def _n_features_of(self, given):
        check_matrix("column_factors", given["column_factors"])
        return len(given["column_factors"])


@estimator
class NMTF(TriFactorization):
    """Non-negative matrix tri-factorisation: X ~ Z W C' without negative entries.

    Rows of Z tell how strongly a row belongs to each of K row clusters, rows of C how strongly a column
    belongs to each of L column clusters, and W how the two go together. Minimises ``|X - Z W C'|^2 / 2``.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    {attributes}

    Notes
    -----
    The columns of Z and of C have unit length in the end, and W the scale. Labels are the largest entries of
    their rows. Rows and columns of zeros have no factors, and label 0.

    Examples
    --------
    >>> import numpy as np
    >>> from latently.factorization import NMTF
    >>> blocks = np.array([[5.0, 1.0, 0.0], [0.0, 4.0, 1.0]])
    >>> X = np.repeat(np.repeat(blocks, 10, axis=0), 5, axis=1)
    >>> model = NMTF(2, 3, random_state=0).fit(X)
    >>> np.unique(model.row_labels_).size, np.unique(model.column_labels_).size
    (2, 3)
    """

    @classmethod
    def from_parameters(cls, *, core, column_factors, row_factors=None, **options):
        """A fitted estimator with known core (K, L) and column factors (D, L).

        With the factors of some rows (n, K) as well, it also has `row_factors_` and `row_labels_`.
        """
        check_matrix("core", core)
        model = cls(*np.shape(core), **options)
        model._with_parameters(core=core, column_factors=column_factors)
        if row_factors is not None:
            check_matrix("row_factors", row_factors)
            rows = check_non_negative(
                "row_factors", parameter("row_factors", row_factors, np.shape(row_factors))
            )
            model._keep_rows(rows, np.linalg.norm(rows, axis=0))
        return model

    def _keep_factors(self, factors, norms):
        super()._keep_factors(tri_factors.normalised(factors), norms)

    def _keep_rows(self, rows, norms):
        super()._keep_rows(rows / np.where(norms > 0, norms, 1.0), np.ones_like(norms))


@estimator
class PenalizedNMTF(TriFactorization):
    """Non-negative tri-factorisation with clusters that hardly overlap.

    Minimises ``|X - Z W C'|^2 / 2`` plus ``row_penalty / 2`` times the sum of products of different columns
    of Z, ``column_penalty / 2`` times that of C, and ``core_penalty / 2`` times the squares of W.

    Parameters
    ----------
    row_penalty, column_penalty : float, default=0.1
        Penalties on rows and on columns that belong to several clusters; those that suit X grow with its
        squares.
    core_penalty : float, default=0.1
        Penalty on the size of W. It must be positive where one of the others is: Z and C could escape them by
        becoming small while W grows.
    tol : float, default=1e-4
        The fit stops when a sweep decreases the cost by less than `tol` times the cost. Where penalties are
        large beside X, but not most of the cost, scale moves between the factors for many sweeps, with little
        gain.
    {options}

    Attributes
    ----------
    row_norms_ : ndarray of shape (n_row_clusters,)
        Lengths of the columns of Z in the fit, by which `predict` compares clusters.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from latently.factorization import PenalizedNMTF
    >>> X = np.kron([[5.0, 1.0, 0.0], [0.0, 4.0, 1.0]], np.ones((10, 5)))
    >>> X = X + np.random.default_rng(0).random(X.shape)
    >>> model = PenalizedNMTF(2, 3, row_penalty=0.1, random_state=0).fit(X)
    >>> np.unique(model.row_labels_).size, np.unique(model.column_labels_).size
    (2, 3)
    """

    _: KW_ONLY
    row_penalty: float = option(default=0.1, check=check_number, least=0)
    column_penalty: float = option(default=0.1, check=check_number, least=0)
    core_penalty: float = option(default=0.1, check=check_number, least=0)
    tol: float = option(default=1e-4, check=check_number, least=0)

    @classmethod
    def from_parameters(cls, *, core, column_factors, row_factors=None, row_norms=None, **options):
        """A fitted estimator with known core (K, L) and column factors (D, L).

        With the factors of some rows (n, K) as well, it also has `row_factors_` and `row_labels_`, and their
        lengths as `row_norms_` unless given; without, these are one.
        """
        check_matrix("core", core)
        rows = None
        if row_factors is not None:
            check_matrix("row_factors", row_factors)
            rows = check_non_negative(
                "row_factors", parameter("row_factors", row_factors, (len(row_factors), len(core)))
            )
        if row_norms is None:
            found = np.ones(len(core)) if rows is None else np.linalg.norm(rows, axis=0)
            row_norms = np.where(found > 0, found, 1.0)
        model = cls(*np.shape(core), **options)
        model._with_parameters(core=core, column_factors=column_factors, row_norms=row_norms)
        if rows is not None:
            model._keep_rows(rows, model.row_norms_)
        return model

    def _check_options(self):
        super()._check_options()
        if self.core_penalty == 0 and (self.row_penalty > 0 or self.column_penalty > 0):
            raise ValueError(
                f"core_penalty=0 with row_penalty={self.row_penalty} and column_penalty={self.column_penalty}"
                ": the cost has no minimum, because row and column factors can shrink while the core grows; "
                "set core_penalty above 0"
            )

    def _overlap(self):
        return Overlap(float(self.row_penalty), float(self.column_penalty), float(self.core_penalty))

    def _keep_factors(self, factors, norms):
        super()._keep_factors(factors, norms)
        store(self, {"row_norms": np.where(norms > 0, norms, 1.0)})

    def _row_norms(self):
        return self.row_norms_

    def _parameters(self):
        return (*super()._parameters(), Parameter("row_norms", None, ("K",), check_positive))


def _soft(X, row_labels, column_labels, shape, root, least):
    """Factors near the indicators of these labels, with a core that fits."""
    K, L = shape
    Z = ((row_labels[:, None] == np.arange(K)) + least) * root
    C = (column_labels[:, None] == np.arange(L)) + least
    cross = (tri_factors.onto_columns(C, X) @ Z).T
    squares = np.outer(np.sum(Z**2, axis=0), np.sum(C**2, axis=0))
    W = cross / np.where(squares > 0, squares, 1.0)
    W = np.maximum(W, 1e-3 * W.max())
    square = float(np.vdot((Z.T @ Z) @ W @ (C.T @ C), W))
    scale = float(np.vdot(cross, W)) / square if square > 0 else 1.0
    return Factors(Z, scale * W, C)


# -- functions of blocks ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    components: Any  # (K, D)
    penalty: float  # on the overlap of row factors

    def factors(self, block):
        X = block.X
        lowest = X.min() if X.shape[0] else 0.0
        if lowest < 0:
            raise ValueError(
                "Negative values in data passed to NMTF: sums of non-negative parts are never negative; clip "
                "X, or use FastNMTF"
            )
        return tri_factors.inferred(self.components, self.penalty, block)

    def row_costs(self, block):
        Z = self.factors(block)
        X = block.X.toarray() if is_sparse(block.X) else block.X
        difference = X - Z @ self.components
        if block.observed is not None:
            difference = np.where(block.observed, difference, 0.0)
        overlap = 0.5 * self.penalty * np.sum(Z * tri_factors.others(Z), axis=1)
        return 0.5 * np.sum(difference**2, axis=1) + overlap


@for_method("transform")
def _factors(model, block):
    return model.factors(in_floats(block))


@for_method("predict")
def _labels(model, norms, block):
    return tri_factors.by_largest(model.factors(in_floats(block)), norms)
