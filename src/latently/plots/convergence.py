"""Objective of a fit over its iterations."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import MaxNLocator

from latently.plots._style import axes_for, colours, opened


class ConvergenceDisplay:
    """Objectives of one or more fits, over iterations.

    Parameters
    ----------
    histories : dict of str to array-like of shape (n_iter + 1,)
        Objectives of each fit, including that of the starting values.
    label : str, default="objective"
        Name of the objective.

    Attributes
    ----------
    histories, label : as given
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import GaussianMixture
    >>> from latently.plots import ConvergenceDisplay
    >>> X = load_iris().data
    >>> models = {f"{K} components": GaussianMixture(K, random_state=0).fit(X) for K in (2, 3)}
    >>> display = ConvergenceDisplay.from_estimator(models)
    >>> list(display.histories)
    ['2 components', '3 components']
    >>> display.plot().figure_.savefig("convergence.png")
    """

    def __init__(self, histories, *, label="objective"):
        self.histories = {str(name): np.asarray(history, float) for name, history in histories.items()}
        self.label = label
        if not self.histories:
            raise ValueError("histories must contain at least one history")
        for name, history in self.histories.items():
            if history.ndim != 1 or len(history) == 0:
                raise ValueError(f"the history of {name!r} contains no objectives: was the model fitted?")

    @classmethod
    def from_estimator(cls, models, *, label=None):
        """The histories of fitted models.

        Parameters
        ----------
        models : fitted estimator or pipeline, or dict of str to such
            With `history_`.
        label : str, optional
            By default the name of the models' objective.

        Returns
        -------
        ConvergenceDisplay
        """
        models = models if isinstance(models, dict) else {type(opened(models)[0]).__name__: models}
        models = {name: opened(model)[0] for name, model in models.items()}
        for name, model in models.items():
            if not hasattr(model, "history_"):
                raise TypeError(f"{name!r} has no history_: it is not fitted, or its fit is not iterative")
        if label is None:
            called = {getattr(model, "_OBJECTIVE", "objective") for model in models.values()}
            label = called.pop() if len(called) == 1 else "objective"
        return cls({name: model.history_ for name, model in models.items()}, label=label)

    @classmethod
    def from_parts(cls, model):
        """The two parts of the cost of a factorisation with a classifier.

        Parameters
        ----------
        model : fitted estimator or pipeline
            With `history_parts_`, such as NLMFClassifier after `fit`.

        Returns
        -------
        ConvergenceDisplay
        """
        model = opened(model)[0]
        if not hasattr(model, "history_parts_"):
            raise TypeError(
                f"{type(model).__name__} has no history_parts_; it has to be an NLMFClassifier after fit"
            )
        reconstruction, classification = np.asarray(model.history_parts_).T
        return cls({"reconstruction": reconstruction, "classification": classification}, label="cost")

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
        for (name, history), colour in zip(self.histories.items(), colours(len(self.histories)), strict=True):
            ax.plot(history, color=colour, lw=1.6, label=name)
            ax.plot(len(history) - 1, history[-1], "o", color=colour, ms=5)  # final value
        ax.set_xlabel("iteration")
        ax.set_ylabel(self.label)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(color="0.9")
        ax.set_axisbelow(True)
        if len(self.histories) > 1:
            ax.legend(frameon=False, fontsize=9)
        return self
