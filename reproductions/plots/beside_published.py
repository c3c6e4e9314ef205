"""Our numbers compared with published ones."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

OURS, THEIRS, PALE = "#1f5fa8", "#d1622b", "#9dbbdb"


def errors_over_grid(rows, *, title, by_label):
    """Clustering errors over dimensions, one column of panels per method and one line per number of
    clusters.

    If there is only one dimension, errors are drawn over the number of clusters.

    Parameters
    ----------
    rows : list of dict
        With "method", "clusters", "dimensions", "ERR", "ERR, published" (missing if nothing was published)
        and, for the one selected by a criterion, "chosen".
    title : str
    by_label : str
        Name of the entry with the error of the fit that labels would select.

    Returns
    -------
    matplotlib.figure.Figure
    """
    across, down = "dimensions", "clusters"
    if len({row[across] for row in rows}) == 1:
        across, down = down, across
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = sorted({row[down] for row in rows})
    figure = Figure(figsize=(2.5 * len(methods) + 0.5, 2.1 * len(lines) + 1.3), layout="constrained")
    axes = figure.subplots(len(lines), len(methods), squeeze=False, sharex=True, sharey=True)
    for i, line in enumerate(lines):
        for j, method in enumerate(methods):
            ax = axes[i, j]
            own = [row for row in rows if row["method"] == method and row[down] == line]
            _error_lines(ax, own, across, by_label)
            ax.set_title(f"{method}, {line} {down}", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel(across)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    for ax in axes[:, 0]:
        ax.set_ylabel("ERR")
    axes[0, 0].set_ylim(bottom=0)
    handles = {
        name: handle for ax in axes.flat for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False
    )
    figure.suptitle(title)
    return figure


def _error_lines(ax, rows, across, by_label):
    x = [row[across] for row in rows]
    theirs = [np.nan if row.get("ERR, published") is None else row["ERR, published"] for row in rows]
    if all(by_label in row for row in rows):
        picked = [row[by_label] for row in rows]
        ax.plot(x, picked, "-", color=PALE, marker="v", ms=4, label="ours, picked by label")
    if not np.isnan(theirs).all():
        ax.plot(x, theirs, "--", color=THEIRS, marker="s", ms=4, mfc="white", label="published")
    ax.plot(x, [row["ERR"] for row in rows], "-", color=OURS, marker="o", ms=4, label="ours")
    chosen = [row for row in rows if row.get("chosen")]
    if chosen:
        ax.plot(
            [row[across] for row in chosen],
            [row["ERR"] for row in chosen],
            "o",
            ms=11,
            mfc="none",
            mec="black",
            label="chosen by BIC or ICL",
        )
    ax.grid(alpha=0.3)
    ax.tick_params(labelsize=8)


def scatter_panels(planes, classes, *, title):
    """Points in several planes, coloured by class.

    Parameters
    ----------
    planes : dict of str to array-like of shape (n_points, 2)
    classes : array-like of shape (n_points,)
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    classes = np.asarray(classes)
    figure = Figure(figsize=(4.6 * len(planes), 4.4), layout="constrained")
    axes = figure.subplots(1, len(planes), squeeze=False)[0]
    for ax, (name, points) in zip(axes, planes.items(), strict=True):
        points = np.asarray(points)
        for label, marker in zip(np.unique(classes), "osD^vP*X" * len(classes), strict=False):
            own = points[classes == label]
            ax.plot(own[:, 0], own[:, 1], marker, ms=4, alpha=0.7, mew=0, label=str(label))
        ax.set_title(name)
        ax.grid(alpha=0.3)
    figure.suptitle(title)
    return figure


def bars_beside_published(rows, *, measures, groups, method, title):
    """Bars of our numbers and the published ones, one panel per measure.

    Parameters
    ----------
    rows : list of dict
    measures : dict of str to str
        Entries of a row, with titles; the published number is the entry "..., published".
    groups, method : str
        Entries with the group of bars of a row, and the bar within the group.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    names = list(dict.fromkeys(row[groups] for row in rows))
    methods = list(dict.fromkeys(row[method] for row in rows))
    colours = dict(zip(methods, (OURS, THEIRS, "#4b8f4b", "#7a5ea8"), strict=False))
    n_columns = min(2, len(measures))
    n_lines = -(-len(measures) // n_columns)
    figure = Figure(figsize=(5.6 * n_columns, 3.2 * n_lines + 0.8), layout="constrained")
    axes = figure.subplots(n_lines, n_columns, squeeze=False).ravel()
    width = 0.84 / (2 * len(methods))
    for ax, (measure, heading) in zip(axes, measures.items(), strict=False):
        for row in rows:
            place = names.index(row[groups]) - 0.42 + width * (2 * methods.index(row[method]) + 0.5)
            colour = colours[row[method]]
            ax.bar(place, row[measure], width, color=colour, label=row[method])
            theirs = row.get(f"{measure}, published")
            if theirs is not None:
                label = f"{row[method]}, published"
                ax.bar(place + width, theirs, width, fc="white", ec=colour, hatch="////", label=label)
        ax.set_xticks(range(len(names)), [name.replace(", ", "\n") for name in names], fontsize=8)
        ax.set_title(heading, fontsize=10)
        ax.set_axisbelow(True)
        ax.grid(axis="y", alpha=0.3)
        ax.axhline(0, color="black", lw=0.8)
    handles = {name: handle for handle, name in zip(*axes[0].get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False
    )
    figure.suptitle(title)
    return figure


def class_errors(rows, *, methods, title):
    """Errors of classifiers over dimensions, one panel per method and one line per number of components.

    Parameters
    ----------
    rows : list of dict
        With "train on", each with its own line of panels, "method", "components", "dimensions", "ERR" and
        "ERR, published" (missing if there is none). Rows whose components are not a number are those
        selected for the method; rows of methods not in `methods` are drawn in all panels.
    methods : sequence of str
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    ways = list(dict.fromkeys(row["train on"] for row in rows))
    dimensions = sorted({row["dimensions"] for row in rows if isinstance(row["dimensions"], int)})
    figure = Figure(figsize=(2.6 * len(methods) + 0.5, 2.9 * len(ways) + 1.2), layout="constrained")
    axes = figure.subplots(len(ways), len(methods), squeeze=False, sharex=True, sharey=True)
    for line, way in zip(axes, ways, strict=True):
        own = [row for row in rows if row["train on"] == way]
        for ax, method in zip(line, methods, strict=True):
            _class_error_lines(ax, [row for row in own if row["method"] == method])
            for row, style in zip(
                [row for row in own if row["method"] not in methods], _STYLES, strict=False
            ):
                ax.axhline(row["ERR"], color="grey", lw=1, ls=style, label=row["method"])
            ax.set_title(f"{method}\ntrained on {way}", fontsize=8)
            ax.grid(alpha=0.3)
            ax.tick_params(labelsize=8)
            ax.set_xticks(dimensions)
        line[0].set_ylabel("ERR")
    for ax in axes[-1]:
        ax.set_xlabel("dimensions")
    axes[0, 0].set_ylim(bottom=0)
    handles = {
        name: handle for ax in axes.flat for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=5, frameon=False, fontsize=8
    )
    figure.suptitle(title)
    return figure


_STYLES = ("-", "--", "-.", ":")


def _class_error_lines(ax, rows):
    grid = [row for row in rows if isinstance(row["components"], int) and "ERR" in row]
    numbers = sorted({row["components"] for row in grid})
    for i, number in enumerate(numbers):
        own = [row for row in grid if row["components"] == number]
        marker = "ov^sD"[i % 5]
        for name, colour, style, label in (
            ("ERR, published", THEIRS, "--", "published"),
            ("ERR", OURS, "-", "ours"),
        ):
            points = [(row["dimensions"], row[name]) for row in own if row.get(name) is not None]
            if points:
                label = f"{label}, {number} component{'s' if number > 1 else ''}"
                alpha = 1 - 0.6 * i / max(len(numbers) - 1, 1)
                ax.plot(
                    *zip(*points, strict=True),
                    style,
                    color=colour,
                    marker=marker,
                    ms=4,
                    alpha=alpha,
                    label=label,
                )
    for row in rows:
        if not isinstance(row["components"], int):
            ax.axhline(row["ERR"], color="black", lw=1.2, label="ours, chosen on training rows")
