"""Curves over iterations, and success rates."""

from __future__ import annotations

from itertools import zip_longest

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reproductions.plots.beside_published import OURS, THEIRS


def curve_panels(panels, *, y, title, level=None, limits=None, n_lines=1):
    """Curves over iterations, in panels on one scale.

    Parameters
    ----------
    panels : dict of str to dict of str to sequence of float
        Curves by panel and name; the first value is that of the starting values.
    y : str
        Label of the y axis.
    title : str
    level : float, optional
        Drawn as a dashed line in every panel.
    limits : (float, float), optional
        Limits of the y axis, if starting values are far off.
    n_lines : int, default=1
        Number of lines of panels.

    Returns
    -------
    matplotlib.figure.Figure
    """
    n_columns = -(-len(panels) // n_lines)
    figure = Figure(figsize=(3.2 * n_columns + 0.6, 2.7 * n_lines + 0.7), layout="constrained")
    axes = figure.subplots(n_lines, n_columns, squeeze=False, sharex=True, sharey=True)
    for ax, panel in zip_longest(axes.flat, panels):
        if panel is None:
            ax.set_axis_off()
            continue
        if level is not None:
            ax.axhline(level, color="black", lw=0.8, ls="--")
        for name, values in panels[panel].items():
            ax.plot(values, lw=1.2, label=name)
        ax.set_title(panel, fontsize=9)
        ax.tick_params(labelsize=8)
        ax.grid(alpha=0.3)
    if limits is not None:
        axes[0, 0].set_ylim(limits)
    for ax in axes[-1]:
        ax.set_xlabel("iteration")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    for ax in axes[:, 0]:
        ax.set_ylabel(y)
    handles = {
        name: handle for ax in axes.flat for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=8,
    )
    figure.suptitle(title, fontsize=10)
    return figure


def shares(values, errors, published, *, x, title):
    """Fractions as points with error bars, one per line.

    Parameters
    ----------
    values : dict of str to float
    errors : list of float
        Standard errors.
    published : list of float or None
        The published values; None where there is none.
    x : str
        Label of the x axis.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = Figure(figsize=(8.0, 0.28 * len(values) + 1.2), layout="constrained")
    ax = figure.subplots()
    places = range(len(values))
    ax.errorbar(values.values(), places, xerr=errors, fmt="o", ms=5, color=OURS, label="ours")
    printed = [(share, place) for share, place in zip(published, places, strict=True) if share is not None]
    if printed:
        ax.plot(*zip(*printed, strict=True), "s", mfc="none", color=THEIRS, label="published")
    ax.set_yticks(places, values, fontsize=8)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.05)
    ax.set_xlabel(x)
    ax.grid(alpha=0.3)
    figure.legend(
        *ax.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=8
    )
    figure.suptitle(title, fontsize=10)
    return figure
