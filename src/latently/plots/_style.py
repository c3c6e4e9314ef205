"""What displays share: colours for all readers, axes to draw on, and the model inside a pipeline."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib import pyplot as plt

LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito's
MARKERS = "osD^vPX"


def colours(n):
    """Colours of n lines or groups that colour-blind readers can tell apart."""
    if n <= len(LINES):
        return LINES[:n]
    return colormaps["viridis"](np.linspace(0.0, 0.9, n))


def readable_on(colour):
    """The colour of text on a cell of this colour."""
    red, green, blue, *_ = colour
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def axes_for(ax, size):
    """The axes given, or those of a new figure of pyplot."""
    return plt.figure(figsize=size, layout="constrained").subplots() if ax is None else ax


def opened(model):
    """The model and, if it is the end of a pipeline, the steps before it; else None."""
    steps = getattr(model, "steps", [])
    if not steps:
        return model, None
    return model[-1], model[:-1] if len(steps) > 1 else None


def named_groups(labels):
    """A number for each row, and what the numbers stand for."""
    values, groups = np.unique(np.asarray(labels), return_inverse=True)
    return groups, [str(value) for value in values]


def group_names(model, n):
    """Names of the n groups that a model shares rows out to: its classes, or its components."""
    if hasattr(model, "classes_"):
        return [str(label) for label in model.classes_]
    return [f"component {k}" for k in range(n)]
