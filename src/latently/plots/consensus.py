"""A consensus matrix: rows in the order of their tree, so that groups on which runs agree are blocks."""

from __future__ import annotations

import numpy as np
from scipy.cluster.hierarchy import leaves_list

from latently.metrics.consensus import consensus_tree, cophenetic_correlation
from latently.plots._style import axes_for


class ConsensusDisplay:
    """How often each pair of rows is in one cluster, rows sorted by average linkage.

    Parameters
    ----------
    consensus : array-like of shape (n_samples, n_samples)
        Shares of clusterings, as from `latently.metrics.consensus_matrix` or `latently.selection.consensus`.

    Attributes
    ----------
    order : ndarray of shape (n_samples,)
        The rows in the order in which they are shown.
    image : ndarray of shape (n_samples, n_samples)
        The sorted matrix.
    cophenetic_correlation : float
        1 if all clusterings agree.
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> from latently.metrics import consensus_matrix
    >>> from latently.plots import ConsensusDisplay
    >>> display = ConsensusDisplay(consensus_matrix([[0, 1, 0, 1], [1, 0, 1, 0]]))
    >>> display.order.tolist(), display.cophenetic_correlation
    ([0, 2, 1, 3], 1.0)
    >>> display.plot().figure_.savefig("consensus.png")
    """

    def __init__(self, consensus):
        self.order = leaves_list(consensus_tree(consensus))
        self.image = np.asarray(consensus, dtype=float)[np.ix_(self.order, self.order)]
        self.cophenetic_correlation = cophenetic_correlation(consensus)

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
        ax = axes_for(ax, (5.6, 4.8))
        self.axes_, self.figure_ = [ax], ax.figure
        drawn = ax.imshow(self.image, vmin=0.0, vmax=1.0, interpolation="nearest", cmap=cmap)
        ax.set_xlabel("rows, in the order of their tree")
        ax.set_title(f"cophenetic correlation {self.cophenetic_correlation:.3f}", fontsize=10)
        ax.figure.colorbar(drawn, ax=ax, label="share of runs with both rows in one cluster")
        return self
