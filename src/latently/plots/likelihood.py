"""Log densities of rows, and the rejection threshold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from latently.metrics import conformal_threshold
from latently.plots._style import axes_for, colours, opened

_BINS = 50
_FARTHEST = 1.0  # how far the plot extends beyond the first rows, in units of their range


class LikelihoodDisplay:
    """Histograms of log densities, with the threshold below which rows are rejected.

    Parameters
    ----------
    log_densities : dict of str to array-like of shape (n_samples,)
        Log densities by name of the set of rows. The first set are rows of known classes.
    threshold : float, optional
        Rows with a lower log density are rejected.

    Attributes
    ----------
    log_densities : dict of str to ndarray
    threshold : float
        -inf if nothing is rejected.
    accepted : dict of str to float
        The fraction of rows that are accepted.
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from latently.mixture import MFA
    >>> from latently.plots import LikelihoodDisplay
    >>> X, y = load_wine(return_X_y=True)
    >>> X = X / X.std(axis=0)
    >>> known, other = X[y != 2], X[y == 2]
    >>> model = MFA(n_components=2, n_factors=2, random_state=0).fit(known[::2])
    >>> rows = {"known": known[1::2], "another cultivar": other}
    >>> display = LikelihoodDisplay.from_estimator(model, rows, acceptance=0.95)
    >>> display.accepted["known"] >= 0.95 and display.accepted["another cultivar"] < 0.5
    True
    >>> display.plot().figure_.savefig("log-densities.png")
    """

    def __init__(self, log_densities, *, threshold=-np.inf):
        self.log_densities = {str(name): np.asarray(values) for name, values in log_densities.items()}
        self.threshold = float(threshold)
        for name, values in self.log_densities.items():
            if values.ndim != 1 or len(values) == 0 or np.any(np.isnan(values)):
                raise ValueError(f"the log densities of {name!r} must be numbers, one per row")
        self.accepted = {
            name: float(np.mean(values >= self.threshold)) for name, values in self.log_densities.items()
        }

    @classmethod
    def from_estimator(cls, model, X, *, acceptance=None):
        """Compute the log densities of rows with a fitted model.

        Parameters
        ----------
        model : fitted estimator or pipeline
            With `score_samples`.
        X : array-like of shape (n_samples, n_features), or dict of str to such
            The rows, or several sets of rows by name, drawn in one plot.
        acceptance : float, optional
            Use the threshold that accepts new rows with this probability, by `conformal_threshold` of the
            rows, of the first set if there are several. These should be held-out rows. By default the
            threshold is `reject_below_` of the model, if it is one number.

        Returns
        -------
        LikelihoodDisplay
        """
        sets = X if isinstance(X, Mapping) else {"rows": X}
        if not sets:
            raise ValueError("X must contain at least one set of rows")
        scores = {name: np.asarray(model.score_samples(rows)) for name, rows in sets.items()}
        if acceptance is None:
            below = getattr(opened(model)[0], "reject_below_", -np.inf)
            return cls(scores, threshold=below if np.ndim(below) == 0 else -np.inf)
        return cls(scores, threshold=conformal_threshold(next(iter(scores.values())), acceptance))

    def plot(self, ax=None):
        """Draw the plot.

        Rows whose density is far below that of the first set are counted at the left edge.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default the axes of a new pyplot figure.

        Returns
        -------
        self
        """
        ax = axes_for(ax, (7.0, 4.2))
        self.axes_, self.figure_ = [ax], ax.figure
        edges = self._edges()
        rejects = np.isfinite(self.threshold)
        for (name, values), colour in zip(
            self.log_densities.items(), colours(len(self.log_densities)), strict=True
        ):
            label: str | None = f"{name}: {100 * self.accepted[name]:.3g} % accepted" if rejects else name
            label = None if not rejects and len(self.log_densities) == 1 else label
            share = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / len(values)
            ax.stairs(share, edges, fill=True, color=colour, alpha=0.3)
            ax.stairs(share, edges, color=colour, lw=1.4, label=label)
        if rejects:
            ax.axvline(self.threshold, color="black", lw=1.2, ls="--")
            ax.annotate(
                f"rejected below {self.threshold:.4g}",
                (self.threshold, 1.0),
                (-4, -2),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="right",
                va="top",
                rotation=90,
                fontsize=8,
            )
        beyond = sum(np.count_nonzero(values < edges[0]) for values in self.log_densities.values())
        edge = f"; {beyond} rows are lower, counted at the left edge" if beyond else ""
        ax.set_xlabel(f"log density of a row{edge}")
        ax.set_ylabel("fraction of rows")
        ax.set_xlim(edges[0], edges[-1])
        ax.set_ylim(bottom=0)
        ax.spines[["top", "right"]].set_visible(False)
        if ax.get_legend_handles_labels()[1]:
            ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=9)
        return self

    def _edges(self):
        """Bin edges that cover the first rows, the threshold, and other rows that are not far away."""
        finite = [values[np.isfinite(values)] for values in self.log_densities.values()]
        inner = np.concatenate([finite[0], [self.threshold] if np.isfinite(self.threshold) else []])
        if len(inner) == 0:  # no row of the first set has a finite log density
            inner = np.concatenate([*finite, [0.0]])
        outer = np.concatenate([inner, *finite])
        reach = _FARTHEST * (np.ptp(inner) or 1.0)
        low, high = max(outer.min(), inner.min() - reach), min(outer.max(), inner.max() + reach)
        return np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
