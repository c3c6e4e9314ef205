"""Factors in planes, and rows of images."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

GROUPS = (("#0072B2", "o"), ("#D55E00", "s"))  # colours that colour-blind readers can tell apart


def latent_planes(panels, classes, *, class_names, title, n_lines=1):
    """Points of two classes in several planes, with the decision boundary.

    Parameters
    ----------
    panels : dict of str to (array-like of shape (n_points, 2), float)
        Points, and the position of the decision boundary on the first axis.
    classes : array-like of shape (n_points,)
        0 or 1.
    class_names : (str, str)
    title : str
    n_lines : int, default=1
        Number of lines of panels.

    Returns
    -------
    matplotlib.figure.Figure
    """
    classes = np.asarray(classes)
    n_columns = -(-len(panels) // n_lines)
    figure = Figure(figsize=(2.4 * n_columns, 2.4 * n_lines + 0.8), layout="constrained")
    axes = figure.subplots(n_lines, n_columns, squeeze=False)
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for ax, (name, (points, border)) in zip(axes.flat, panels.items(), strict=False):
        points = np.asarray(points)
        for label, (colour, marker) in enumerate(GROUPS):
            x, y = points[classes == label].T
            ax.plot(x, y, marker, color=colour, ms=4.5, mew=0, alpha=0.75, label=class_names[label])
        left, right = ax.get_xlim()
        if left < border < right:  # a far border must not push the points together
            ax.axvline(border, color="black", lw=0.9)
        ax.set_title(name, fontsize=9)
        ax.tick_params(labelsize=7)
        ax.grid(alpha=0.3)
    for ax in axes[-1]:
        ax.set_xlabel("along w", fontsize=8)
    for ax in axes[:, 0]:
        ax.set_ylabel("across w", fontsize=8)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(title, fontsize=10)
    return figure


def image_lines(lines, image_shape, *, title):
    """Labelled lines of small grey images between black (0) and white (1).

    Parameters
    ----------
    lines : dict of str to array-like of shape (n_images, height * width)
        The same number of images in each.
    image_shape : (height, width)
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    height, width = image_shape
    pictures = np.stack([np.reshape(line, (-1, height, width)) for line in lines.values()])
    framed = np.pad(pictures, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=1.0)
    canvas = np.concatenate(np.concatenate(framed, axis=1), axis=1)
    inches = 6.0 * canvas.shape[0] / canvas.shape[1]
    figure = Figure(figsize=(8.0, inches + 0.5), layout="constrained")
    ax = figure.subplots()
    ax.imshow(canvas, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks((np.arange(len(lines)) + 0.5) * (height + 2) - 0.5, list(lines), fontsize=8)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    figure.suptitle(title, fontsize=10)
    return figure


def two_measures(lines, *, x, y, title):
    """One measure against another, as lines of labelled points.

    Parameters
    ----------
    lines : dict of str to list of (float, float, str)
        The two measures of each point, and its label.
    x, y : str
        Names of the measures.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = Figure(figsize=(6.0, 4.2), layout="constrained")
    ax = figure.subplots()
    for name, points in lines.items():
        ax.plot([point[0] for point in points], [point[1] for point in points], "o-", ms=4, label=name)
        for right, up, text in points:
            ax.annotate(text, (right, up), (4, 4), textcoords="offset points", fontsize=7)
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    return figure
