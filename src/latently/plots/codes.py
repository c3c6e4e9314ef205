"""Binary codes of rows: left-ordered, so that rows with the same code stand together."""

from __future__ import annotations

import numpy as np

from latently.plots._style import axes_for

_MOST = 2000  # rows drawn: of more, a part at equal distances in their order


class CodesDisplay:
    """Binary codes as an image in left-ordered form: codes by the rows that have them, from the first row on.

    Rows are sorted by their codes, which the left-ordered form alone does not do, so blocks show which codes
    go together.

    Parameters
    ----------
    codes : array-like of 0 and 1 of shape (n_samples, n_codes)

    Attributes
    ----------
    order : ndarray
        The rows, in the order in which they are shown.
    image : ndarray
        The sorted codes.
    counts : ndarray
        How many rows have each code, in the order of the image.
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from latently.plots import CodesDisplay
    >>> display = CodesDisplay(np.array([[0, 1], [1, 1], [0, 1], [1, 0]]))
    >>> display.image.tolist()
    [[1, 1], [1, 0], [1, 0], [0, 1]]
    >>> display.counts.tolist()
    [3, 2]
    >>> display.plot().figure_.savefig("codes.png")
    """

    def __init__(self, codes):
        codes = np.asarray(codes)
        if codes.ndim != 2 or not np.isin(codes, (0, 1)).all():
            raise ValueError("codes must be an array of 0 and 1 with one row per row of the data")
        codes = codes.astype(int)
        by_size = np.argsort(-codes.sum(axis=0), kind="stable")
        sorted_codes = codes[:, by_size]
        self.order = np.lexsort(1 - sorted_codes[:, ::-1].T) if codes.shape[1] else np.arange(len(codes))
        shown = sorted_codes[self.order]
        self.image = shown[:, np.lexsort(1 - shown[::-1])] if shown.size else shown
        self.counts = self.image.sum(axis=0)

    @classmethod
    def from_estimator(cls, model, X=None):
        """The codes of a fitted model: those of the rows of its fit, or those it predicts for the rows X.

        Parameters
        ----------
        model : fitted MEIBP, INBMT, IBPIBP, LinearGaussianIBP, BNMF or BinarySparseCoding
        X : array-like of shape (n_samples, n_features), optional

        Returns
        -------
        CodesDisplay
        """
        own = next((name for name in ("row_codes_", "codes_") if hasattr(model, name)), None)
        if X is not None and hasattr(model, "predict_codes"):
            return cls(model.predict_codes(X))
        if own is None or X is not None:
            raise TypeError(f"{type(model).__name__} has no binary codes of such rows")
        return cls(getattr(model, own))

    def plot(self, ax=None):
        """Draw the plot.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default the axes of a new pyplot figure.

        Returns
        -------
        self
        """
        ax = axes_for(ax, (4.8, 5.2))
        self.axes_, self.figure_ = [ax], ax.figure
        n, K = self.image.shape
        kept = np.unique(np.linspace(0, max(n - 1, 0), min(n, _MOST)).astype(int))
        shown = self.image[kept] if K else np.zeros((max(n, 1), 1))
        extent = (-0.5, max(K, 1) - 0.5, n, 0)
        ax.imshow(shown, aspect="auto", interpolation="nearest", cmap="Greys", vmin=0, vmax=1, extent=extent)
        ax.set_xticks(range(K), [f"{count}" for count in self.counts])
        ax.set_xlabel("codes, by the rows that have them")
        ax.set_ylabel("rows, by code")
        return self
