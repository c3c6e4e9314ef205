"""Plot of a criterion over the grid of a search."""

from __future__ import annotations

import io
from itertools import cycle
from numbers import Real
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from latently.plots._style import MARKERS, colours, readable_on

_IN_A_ROW = 3  # heat maps per line
_HEAT = "viridis"  # dark is best
_MOST_NUMBERS = 100  # up to this number of cells, values are written in the heat map


class SelectionDisplay:
    """A criterion over the cells of a grid, as heat maps or as curves.

    Parameters
    ----------
    table : pandas.DataFrame
        One row per cell.
    parameters : list of str
        Columns with the parameters of the grid.
    column : str
        Column to plot.
    label : str
        Label of that column in the plot.
    higher_is_better : bool
    error_column : str, optional
        Column with standard errors, drawn with curves.

    Attributes
    ----------
    x_name, y_name : str
        The parameters on the axes; `y_name` is None for curves.
    x_values, y_values : list
    groups : dict of str to ndarray
        The criterion for every combination of the other parameters: an array over `y_values` and `x_values`
        for heat maps, over `x_values` for curves. NaN for missing cells.
    errors : dict of str to ndarray
        Standard errors, in the same form.
    best : tuple
        Group of the best cell, and its position in the group.
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.
    """

    def __init__(self, table, parameters, column, *, label, higher_is_better, error_column=None):
        self.label = label
        self.higher_is_better = higher_is_better
        values = {name: _distinct(table[name]) for name in parameters}
        varying = [name for name in parameters if len(values[name]) > 1] or parameters[:1]
        numeric = [name for name in varying if all(map(_is_number, values[name]))]
        numeric.sort(key=lambda name: name != "n_components")  # components on the x axis
        most = max(varying, key=lambda name: len(values[name]))
        self.x_name = numeric[0] if numeric else most
        self.y_name = numeric[1] if len(numeric) > 1 else None
        self.x_values = values[self.x_name]
        self.y_values = [] if self.y_name is None else values[self.y_name]
        others = [name for name in varying if name not in (self.x_name, self.y_name)]

        shape = (len(self.x_values),) if self.y_name is None else (len(self.y_values), len(self.x_values))
        self.groups: dict[str, Any] = {}
        self.errors: dict[str, Any] = {}
        self.best: Any = None
        sign = 1 if higher_is_better else -1
        for row in table.to_dict("records"):
            group = ", ".join(f"{name} = {row[name]}" for name in others)
            scores = self.groups.setdefault(group, np.full(shape, np.nan))
            errors = self.errors.setdefault(group, np.zeros(shape))
            at: tuple[Any, ...] = (_position(self.x_values, row[self.x_name]),)
            at = at if self.y_name is None else (_position(self.y_values, row[self.y_name]), *at)
            if (
                not sign * row[column] <= sign * scores[at]
            ):  # keep the best of several cells at one position; NaN never wins
                scores[at] = row[column]
                errors[at] = 0.0 if error_column is None else row[error_column]
            if self.best is None or sign * row[column] > sign * self.best_score:
                self.best = group, at

    @property
    def best_score(self):
        group, at = self.best
        return self.groups[group][at]

    def plot(self, ax=None):
        """Draw the plot.

        Parameters
        ----------
        ax : matplotlib Axes, or one for each heat map, optional
            By default the axes of a new pyplot figure.

        Returns
        -------
        self
        """
        if ax is None:
            return self._draw(self._axes_on(plt.figure(figsize=self._size(), layout="constrained")))
        axes = list(np.ravel(ax))
        needed = 1 if self.y_name is None else len(self.groups)
        if len(axes) != needed:
            raise ValueError(f"ax must be {needed} axes, one per heat map, not {len(axes)}")
        return self._draw(axes)

    def svg(self):
        """The plot as the bytes of an SVG file."""
        figure = Figure(figsize=self._size(), layout="constrained")
        self._draw(self._axes_on(figure))
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
        return file.getvalue()

    def _layout(self):
        """Numbers of rows and columns of axes."""
        n = 1 if self.y_name is None else len(self.groups)
        return -(-n // _IN_A_ROW), min(n, _IN_A_ROW)

    def _size(self):
        if self.y_name is None:
            return 7.0, 4.5
        n_rows, n_columns = self._layout()
        width = max(2.8, 0.62 * len(self.x_values)) * n_columns + 2.2
        return width, max(2.4, 0.5 * len(self.y_values)) * n_rows + 1.2

    def _axes_on(self, figure):
        axes = list(figure.subplots(*self._layout(), squeeze=False).ravel())
        n = 1 if self.y_name is None else len(self.groups)
        for ax in axes[n:]:
            ax.set_axis_off()
        return axes[:n]

    def _draw(self, axes):
        self.axes_, self.figure_ = axes, axes[0].figure
        if self.y_name is None:
            self._draw_curves(axes[0])
        else:
            self._draw_heat_maps(axes)
        return self

    @property
    def _described(self):
        return f"{self.label} ({'higher' if self.higher_is_better else 'lower'} is better)"

    def _draw_curves(self, ax):
        numeric = all(map(_is_number, self.x_values))
        x = np.array(self.x_values, dtype=float) if numeric else np.arange(len(self.x_values))
        for (group, scores), colour, marker in zip(
            self.groups.items(), colours(len(self.groups)), cycle(MARKERS), strict=False
        ):
            there = np.isfinite(scores)
            errors = self.errors[group][there]
            ax.errorbar(
                x[there],
                scores[there],
                yerr=errors if errors.any() else None,
                color=colour,
                marker=marker,
                markersize=5,
                linewidth=1.6 if numeric else 0,
                elinewidth=1.0,
                capsize=3,
                label=group or None,
            )
        ax.plot(
            x[self.best[1]],
            self.best_score,
            marker="o",
            markersize=15,
            markerfacecolor="none",
            markeredgecolor="black",
            markeredgewidth=1.5,
            linestyle="none",
            label=f"best, {_number(self.best_score)}",
        )
        every = 1 + len(x) // 20
        ax.set_xticks(x[::every], _texts(self.x_values)[::every])
        ax.set_xlabel(self.x_name)
        ax.set_ylabel(self._described)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.9")
        ax.set_axisbelow(True)
        ax.legend(frameon=False, fontsize=9)

    def _draw_heat_maps(self, axes):
        """Heat map of the gap to the best cell on a square-root scale, which emphasises small gaps."""
        sign = 1 if self.higher_is_better else -1
        gaps = {group: sign * (self.best_score - scores) for group, scores in self.groups.items()}
        finite = np.concatenate([gap[np.isfinite(gap)] for gap in gaps.values()])
        norm = PowerNorm(0.5, 0.0, max(finite.max(), np.finfo(float).tiny))
        for ax, (group, gap) in zip(axes, gaps.items(), strict=True):
            image = ax.imshow(gap, norm=norm, cmap=_HEAT, origin="lower", aspect="auto")
            ax.set_facecolor("0.88")  # missing cell
            ax.set_xticks(range(len(self.x_values)), _texts(self.x_values))
            ax.set_yticks(range(len(self.y_values)), _texts(self.y_values))
            ax.set_xlabel(self.x_name)
            ax.set_ylabel(self.y_name)
            ax.set_title(group, fontsize=10)
            ax.tick_params(length=0)
            ax.spines[:].set_visible(False)
            if gap.size <= _MOST_NUMBERS:
                _write_in(ax, gap, norm)
            if group == self.best[0]:
                i, j = self.best[1]
                for colour, width in (("white", 5.0), ("black", 2.2)):  # visible on light and dark cells
                    frame = Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=colour, linewidth=width)
                    ax.add_patch(frame).set_zorder(3)
        side = "below" if self.higher_is_better else "above"
        bar = self.figure_.colorbar(image, ax=axes, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_label(f"{side} the best, which is {_number(self.best_score)}")
        self.figure_.suptitle(f"{self._described}; the best cell is framed", fontsize=11)


def _write_in(ax, gap, norm):
    """Write the values of a heat map in its cells."""
    for (i, j), value in np.ndenumerate(gap):
        if np.isfinite(value):
            colour = readable_on(colormaps[_HEAT](norm(value)))
            text = "best" if value == 0 else _number(value)
            ax.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)


def _distinct(column):
    """Distinct values of a parameter: numbers sorted, others in order of appearance."""
    values = list({repr(value): value for value in column}.values())
    return sorted(values) if all(map(_is_number, values)) else values


def _position(values, value):
    return [repr(each) for each in values].index(repr(value))


def _is_number(value):
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def _texts(values):
    return [f"{value:g}" if _is_number(value) else str(value) for value in values]


def _number(value):
    """About four digits."""
    size = abs(value)
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 30 else f"{value:.2f}"
