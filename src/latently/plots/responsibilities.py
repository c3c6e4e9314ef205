"""Responsibilities of all rows as an image."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import PowerNorm

from latently.plots._style import axes_for, group_names, opened

_MOST_COLUMNS = 500  # of the image


class ResponsibilitiesDisplay:
    """Probabilities of the components or classes of all rows, as an image.

    Rows run from left to right, grouped by component and sorted by decreasing certainty: uncertain rows are
    at the right end of each block, and their alternative components are visible above and below. Uncertain
    rows are marked above the image.

    Parameters
    ----------
    responsibilities : array-like of shape (n_samples, n_components)
    names : list of str
        Names of the components or classes.
    sure_from : float, default=0.9
        Rows whose largest responsibility is smaller are uncertain.

    Attributes
    ----------
    responsibilities, names, sure_from : as given
        As given.
    components : ndarray of shape (n_samples,)
        The most probable component of each row.
    uncertain : ndarray of shape (n_samples,)
        Whether the largest responsibility is below `sure_from`.
    order : ndarray of shape (n_samples,)
        Indices of the rows from left to right.
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import MFA
    >>> from latently.plots import ResponsibilitiesDisplay
    >>> X = load_iris().data
    >>> model = MFA(n_components=3, n_factors=1, random_state=0).fit(X)
    >>> display = ResponsibilitiesDisplay.from_estimator(model, X)
    >>> doubtful = X[display.uncertain]
    >>> 0 < len(doubtful) < 20
    True
    >>> display.plot().figure_.savefig("responsibilities.png")
    """

    def __init__(self, responsibilities, *, names, sure_from=0.9):
        self.responsibilities = np.asarray(responsibilities)
        self.names = list(names)
        self.sure_from = sure_from
        if not 0 <= sure_from <= 1:
            raise ValueError(f"sure_from must be a probability from 0 to 1, not {sure_from!r}")
        if self.responsibilities.ndim != 2 or self.responsibilities.shape[1] != len(self.names):
            raise ValueError(
                f"responsibilities must have one column for each of the {len(self.names)} names, not shape "
                f"{self.responsibilities.shape}"
            )
        self.components = self.responsibilities.argmax(axis=1)
        surest = self.responsibilities.max(axis=1)
        self.uncertain = surest < sure_from
        self.order = np.lexsort([-surest, self.components])

    @classmethod
    def from_estimator(cls, model, X, *, sure_from=0.9):
        """Compute the responsibilities of rows with a fitted model.

        Parameters
        ----------
        model : fitted estimator or pipeline
            With `predict_proba`.
        X : array-like of shape (n_samples, n_features)
        sure_from : float, default=0.9

        Returns
        -------
        ResponsibilitiesDisplay
        """
        if not hasattr(model, "predict_proba"):
            raise TypeError(
                "ResponsibilitiesDisplay needs a model with predict_proba, but "
                f"{type(model).__name__} has none"
            )
        resp = np.asarray(model.predict_proba(X))
        return cls(resp, names=group_names(opened(model)[0], resp.shape[1]), sure_from=sure_from)

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
        n_rows, n_components = self.responsibilities.shape
        ax = axes_for(ax, (8.0, 1.8 + 0.3 * min(n_components, 20)))
        self.axes_, self.figure_ = [ax], ax.figure
        image = ax.imshow(
            self._drawn().T,
            extent=(-0.5, n_rows - 0.5, n_components - 0.5, -0.5),
            norm=PowerNorm(0.5, 0.0, 1.0),  # make small probabilities visible
            cmap="Blues",
            aspect="auto",
            interpolation="nearest",
        )
        counts = np.bincount(self.components, minlength=n_components)
        for end in np.cumsum(counts)[:-1]:
            ax.axvline(end - 0.5, color="0.5", lw=0.6)
        labels = [f"{name} ({count})" for name, count in zip(self.names, counts, strict=True)]
        every = 1 + n_components // 30
        ax.set_yticks(range(0, n_components, every), labels[::every], fontsize=9 if n_components <= 15 else 7)
        places = np.flatnonzero(self.uncertain[self.order])
        ax.plot(
            places,
            np.full(len(places), 1.03),
            marker="v",
            ls="none",
            ms=5,
            mew=0,
            color="#D55E00",
            transform=ax.get_xaxis_transform(),
            clip_on=False,
        )
        ax.set_xlim(-0.5, n_rows - 0.5)
        ax.set_xlabel("rows by component, most certain first")
        share = f"{len(places)} of {n_rows} rows are uncertain (below {self.sure_from:g})"
        ax.set_title(share, fontsize=10, color="#B04A00" if len(places) else "black", pad=14)
        ax.tick_params(axis="y", length=0)
        ax.spines[:].set_color("0.8")
        bar = self.figure_.colorbar(image, ax=ax, pad=0.02, ticks=[0, 0.1, 0.5, 1])
        bar.outline.set_visible(False)
        bar.set_label("probability")
        return self

    def _drawn(self):
        """Responsibilities from left to right; averages of adjacent rows if there are too many."""
        ordered = self.responsibilities[self.order]
        starts = np.unique(np.linspace(0, len(ordered), _MOST_COLUMNS, endpoint=False).astype(int))
        lengths = np.diff(starts, append=len(ordered))
        return np.add.reduceat(ordered, starts) / lengths[:, None]
