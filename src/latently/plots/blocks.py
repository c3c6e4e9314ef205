"""A co-clustered matrix: rows and columns in the order of their clusters, with borders between blocks."""

from __future__ import annotations

import numpy as np

from latently.plots._style import axes_for

_MOST = 1000  # pixels a side: larger matrices are shown by the means of neighbours


class BlocksDisplay:
    """A matrix with rows and columns sorted by cluster, and lines between the clusters.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        NaN marks a missing entry, which stays empty.
    row_labels : array-like of shape (n_samples,)
    column_labels : array-like of shape (n_features,)

    Attributes
    ----------
    row_order, column_order : ndarray
        Rows and columns in the order in which they are shown.
    row_borders, column_borders : ndarray
        Where the next cluster begins, in rows and columns.
    image : ndarray
        The sorted matrix; the means of neighbours if it is large.
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from latently.factorization import FastNMTF
    >>> from latently.plots import BlocksDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = np.kron(np.eye(3), np.ones((10, 6)))[rng.permutation(30)][:, rng.permutation(18)]
    >>> display = BlocksDisplay.from_estimator(FastNMTF(3, 3, random_state=0).fit(X), X)
    >>> display.row_borders.tolist(), display.column_borders.tolist()
    ([10, 20], [6, 12])
    >>> display.plot().figure_.savefig("blocks.png")
    """

    def __init__(self, X, row_labels, column_labels):
        rows, columns = (np.asarray(labels) for labels in (row_labels, column_labels))
        if np.ndim(X) != 2 or rows.shape != (X.shape[0],) or columns.shape != (X.shape[1],):
            raise ValueError(
                f"X must have one row for each of row_labels, {rows.shape}, and one column for each of "
                f"column_labels, {columns.shape}, but has shape {np.shape(X)}"
            )
        self.row_order, self.row_borders = _sorted(rows)
        self.column_order, self.column_borders = _sorted(columns)
        self.shape = X.shape
        self.image = _shrunk(X, self.row_order, self.column_order)

    @classmethod
    def from_estimator(cls, model, X):
        """The rows X in the clusters of a fitted NMTF, PenalizedNMTF or FastNMTF.

        Parameters
        ----------
        model : fitted estimator
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        BlocksDisplay
        """
        if not hasattr(model, "column_labels_"):
            raise TypeError(
                f"{type(model).__name__} has no clusters of columns; it has to be a fitted NMTF, "
                "PenalizedNMTF or FastNMTF"
            )
        rows = getattr(model, "row_labels_", None)  # those of the fit, if X are its rows
        if rows is None or len(rows) != X.shape[0]:
            rows = model.predict(X)
        return cls(X if hasattr(X, "toarray") else np.asarray(X, dtype=float), rows, model.column_labels_)

    def plot(self, ax=None, *, cmap="cividis"):
        """Draw the plot.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default the axes of a new pyplot figure.
        cmap : str, default="cividis"

        Returns
        -------
        self
        """
        ax = axes_for(ax, (6.4, 5.2))
        self.axes_, self.figure_ = [ax], ax.figure
        n, D = self.shape
        drawn = ax.imshow(self.image, aspect="auto", interpolation="nearest", cmap=cmap, extent=(0, D, n, 0))
        for border in self.row_borders:
            ax.axhline(border, color="white", lw=1.2)
        for border in self.column_borders:
            ax.axvline(border, color="white", lw=1.2)
        ax.set_xlabel("columns, by cluster")
        ax.set_ylabel("rows, by cluster")
        ax.figure.colorbar(drawn, ax=ax)
        return self


def _sorted(labels):
    order = np.argsort(labels, kind="stable")
    return order, np.flatnonzero(np.diff(labels[order])) + 1


def _shrunk(X, rows, columns):
    """The sorted matrix, or means of its neighbours if it has more than `_MOST` a side."""
    n, D = X.shape
    if n <= _MOST and D <= _MOST:
        dense = X.toarray() if hasattr(X, "toarray") else X
        return dense[np.ix_(rows, columns)]
    by_row, by_column = (np.linspace(0, size, min(size, _MOST) + 1).astype(int)[:-1] for size in (n, D))
    if hasattr(X, "toarray"):
        cells = X.tocoo()
        places = [np.empty(size, dtype=int) for size in (n, D)]
        for place, order, starts in zip(places, (rows, columns), (by_row, by_column), strict=True):
            place[order] = np.searchsorted(starts, np.arange(len(order)), side="right") - 1
        sums = np.zeros((len(by_row), len(by_column)))
        np.add.at(sums, (places[0][cells.row], places[1][cells.col]), cells.data)
        seen = np.outer(np.diff([*by_row, n]), np.diff([*by_column, D]))
    else:
        found = X[np.ix_(rows, columns)]
        known = ~np.isnan(found)
        sums, seen = (
            np.add.reduceat(np.add.reduceat(part, by_row, axis=0), by_column, axis=1)
            for part in (np.where(known, found, 0.0), known.astype(float))
        )
    return np.where(seen > 0, sums / np.where(seen > 0, seen, 1.0), np.nan)
