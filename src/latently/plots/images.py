"""Rows that are images, drawn side by side."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure


def image_grid(rows, image_shape, *, title=None, labels=None, n_columns=10):
    """A figure with one picture per row, all on one grey scale.

    Parameters
    ----------
    rows : array-like of shape (n_images, height * width)
    image_shape : (height, width)
    title : str, optional
    labels : list of str, optional
        Written above the pictures.
    n_columns : int, default=10

    Returns
    -------
    matplotlib.figure.Figure
    """
    rows = np.asarray(rows)
    n_columns = min(n_columns, len(rows))
    n_lines = -(-len(rows) // n_columns)
    figure = Figure(figsize=(0.8 * n_columns, (1.0 if labels else 0.8) * n_lines + 0.5), layout="constrained")
    axes = figure.subplots(n_lines, n_columns, squeeze=False).ravel()
    low, high = np.quantile(rows, [0.01, 0.99])
    for ax in axes:
        ax.set_axis_off()
    for i, row in enumerate(rows):
        axes[i].imshow(row.reshape(image_shape), cmap="gray_r", vmin=low, vmax=high)
        if labels is not None:
            axes[i].set_title(labels[i], fontsize=8)
    if title is not None:
        figure.suptitle(title)
    return figure
