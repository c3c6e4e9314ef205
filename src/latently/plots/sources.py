"""Sources of a non-linear factorisation, and the map they pass through."""

from __future__ import annotations

import numpy as np

from latently.plots._style import axes_for

_MOST = 100_000  # sources that are counted


class SourcesDisplay:
    """How sources are distributed, and f(s): whether they are in the linear part of the map or at its ends.

    Parameters
    ----------
    sources : array-like
        Values of sources, of any shape.
    curve : (array-like, array-like)
        s and f(s).
    n_bins : int, default=60

    Attributes
    ----------
    edges : ndarray of shape (n_bins + 1,)
    density : ndarray of shape (n_bins,)
        Of the sources, in these bins.
    curve : as given
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.factorization import NLMF
    >>> from latently.plots import SourcesDisplay
    >>> X = load_digits().data / 16
    >>> display = SourcesDisplay.from_estimator(NLMF(10, random_state=0).fit(X))
    >>> display.density.shape
    (60,)
    >>> display.plot().figure_.savefig("sources.png")
    """

    def __init__(self, sources, curve, *, n_bins=60):
        sources = np.ravel(np.asarray(sources, dtype=float))
        if sources.size == 0:
            raise ValueError("sources must hold at least one value")
        self.density, self.edges = np.histogram(
            sources[:: -(-sources.size // _MOST)], bins=n_bins, density=True
        )
        self.curve = tuple(np.asarray(part, dtype=float) for part in curve)

    @classmethod
    def from_estimator(cls, model, X=None, **options):
        """The sources of a fitted NLMF or NLMFClassifier.

        Parameters
        ----------
        model : fitted estimator
        X : array-like of shape (n_samples, n_features), optional
            Rows; by default those of the fit.
        **options
            Parameters of the class.

        Returns
        -------
        SourcesDisplay
        """
        if not hasattr(model, "map_sources"):
            raise TypeError(
                f"{type(model).__name__} has no map of sources; it has to be an NLMF or NLMFClassifier"
            )
        if X is None and not hasattr(model, "activations_"):
            raise ValueError("the model was read from a file, without the sources of its fit; give X")
        S = np.asarray(model.activations_ if X is None else model.transform(X))
        at = np.linspace(S.min(), S.max(), 200)
        columns = np.tile(at[:, None], (1, model.components_.shape[0]))
        return cls(S, (at, np.asarray(model.map_sources(columns))[:, 0]), **options)

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
        ax = axes_for(ax, (6.4, 4.2))
        self.axes_, self.figure_ = [ax], ax.figure
        ax.stairs(self.density, self.edges, fill=True, color="#9dbbdb", label="density of sources")
        ax.plot(*self.curve, color="#1f5fa8", lw=1.6, label="f(s)")
        ax.set_xlabel("s")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=9)
        return self
