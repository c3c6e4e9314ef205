"""Loadings as heat maps: the effect of each factor on the features."""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap, Normalize

from latently.plots._style import opened, readable_on

# blue is positive and orange negative, as in reports; colour-blind readers can tell them apart
SIGNED = LinearSegmentedColormap.from_list("signed", ["#cd5500", "#ffffff", "#005aa0"])
_MOST_NAMES = 40  # up to this number, every feature is labelled
_MOST_NUMBERS = 100  # up to this number of cells, values are written in the heat map
_WIDEST = 11.0  # inches


class LoadingsDisplay:
    """Loadings of features on factors, one heat map per component with its own loadings.

    Parameters
    ----------
    loadings : array-like of shape (n_maps, n_features, n_factors)
    feature_names : list of str, optional
        By default x0, x1, ...
    titles : list of str, optional
        Titles of the maps.
    factor_names : list of str, optional
        By default 0, 1, ...

    Attributes
    ----------
    loadings, feature_names, titles, factor_names : as given
        As given.
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import FactorAnalysis
    >>> from latently.plots import LoadingsDisplay
    >>> X = load_iris(as_frame=True).data
    >>> display = LoadingsDisplay.from_estimator(FactorAnalysis(n_factors=2).fit(X))
    >>> display.loadings.shape, display.feature_names[0]
    ((1, 4, 2), 'sepal length (cm)')
    >>> display.plot().figure_.savefig("loadings.png")
    """

    def __init__(self, loadings, *, feature_names=None, titles=None, factor_names=None):
        self.loadings = np.asarray(loadings)
        n_maps, n_features, n_factors = self.loadings.shape
        self.feature_names = _texts(feature_names, [f"x{d}" for d in range(n_features)], "feature_names")
        self.titles = _texts(titles, [""] * n_maps, "titles")
        self.factor_names = _texts(factor_names, range(n_factors), "factor_names")

    @classmethod
    def from_estimator(cls, model, *, feature_names=None):
        """The loadings of a fitted model, or the components of a factorisation.

        Parameters
        ----------
        model : fitted estimator or pipeline
            With `loadings_` or `components_`.
        feature_names : list of str, optional
            By default the feature names of the training data, if there are any.

        Returns
        -------
        LoadingsDisplay
        """
        model, before = opened(model)
        if hasattr(model, "loadings_"):
            loadings = np.asarray(model.loadings_)
        elif hasattr(model, "components_"):
            loadings = np.asarray(model.components_).T
        else:
            raise TypeError(
                f"LoadingsDisplay needs a fitted model with loadings_ or components_, but "
                f"{type(model).__name__} has neither"
            )
        if loadings.shape[-1] == 0:
            raise ValueError("the model has no factors (n_factors=0), so there are no loadings to draw")
        if feature_names is None:
            of_model = getattr(model, "feature_names_in_", None)
            feature_names = of_model if before is None else before.get_feature_names_out()
        titles = [f"component {k}" for k in range(len(loadings))] if loadings.ndim == 3 else None
        if loadings.ndim == 2:
            loadings = loadings[None]
        return cls(loadings, feature_names=feature_names, titles=titles)

    def plot(self, ax=None):
        """Draw the plot.

        Parameters
        ----------
        ax : matplotlib Axes, or one for each map, optional
            By default the axes of a new pyplot figure.

        Returns
        -------
        self
        """
        n_maps = len(self.loadings)
        axes = self._new_axes() if ax is None else list(np.ravel(ax))
        if len(axes) != n_maps:
            raise ValueError(f"ax must be {n_maps} axes, one per component, not {len(axes)}")
        self.axes_, self.figure_ = axes, axes[0].figure
        largest = np.abs(self.loadings).max() or 1.0
        norm = Normalize(-largest, largest)
        n_features = len(self.feature_names)
        every = -(-n_features // _MOST_NAMES)
        for axis, loadings, title in zip(axes, self.loadings, self.titles, strict=True):
            image = axis.imshow(loadings, norm=norm, cmap=SIGNED, aspect="auto", interpolation="nearest")
            axis.set_xticks(range(len(self.factor_names)), self.factor_names)
            axis.set_yticks(range(0, n_features, every), self.feature_names[::every])
            axis.set_xlabel("factor")
            axis.set_title(title, fontsize=10)
            axis.tick_params(length=0, labelsize=9)
            axis.spines[:].set_visible(False)
            if loadings.size <= _MOST_NUMBERS:
                for (i, j), value in np.ndenumerate(loadings):
                    colour = readable_on(SIGNED(norm(value)))
                    axis.text(j, i, f"{value:.2g}", ha="center", va="center", fontsize=8, color=colour)
        bar = self.figure_.colorbar(image, ax=axes, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label("loading")
        return self

    def _new_axes(self):
        n_maps, n_features, n_factors = self.loadings.shape
        width = max(1.1, 0.5 * n_factors + 0.2)
        n_columns = max(1, min(n_maps, int(_WIDEST / width)))
        n_lines = -(-n_maps // n_columns)
        height = min(7.0, max(1.8, 0.27 * min(n_features, _MOST_NAMES)))
        size = width * n_columns + 2.8, height * n_lines + 0.9
        figure = plt.figure(figsize=size, layout="constrained")
        axes = figure.subplots(n_lines, n_columns, squeeze=False, sharey=True).ravel()
        for unused in axes[n_maps:]:
            unused.set_axis_off()
        return list(axes[:n_maps])


def _texts(given, default, name):
    default = list(default)
    texts = [str(text) for text in (default if given is None else given)]
    if len(texts) != len(default):
        raise ValueError(f"{name} must have {len(default)} entries, not {len(texts)}")
    return texts
