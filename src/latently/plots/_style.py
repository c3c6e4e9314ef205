"""Helpers of all displays: colour-blind safe colours, axes, and the model inside a pipeline."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib import pyplot as plt

LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
MARKERS = "osD^vPX"


def colours(n):
    """n colours for lines or groups, distinguishable for colour-blind readers."""
    if n <= len(LINES):
        return LINES[:n]
    return colormaps["viridis"](np.linspace(0.0, 0.9, n))


def readable_on(colour):
    """Text colour that is readable on a cell of this colour."""
    red, green, blue, *_ = colour
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def axes_for(ax, size):
    """The given axes, or those of a new pyplot figure."""
    return plt.figure(figsize=size, layout="constrained").subplots() if ax is None else ax


def opened(model):
    """The final model and the preceding steps of a pipeline; None if there are no such steps."""
    steps = getattr(model, "steps", [])
    if not steps:
        return model, None
    return model[-1], model[:-1] if len(steps) > 1 else None


def named_groups(labels):
    """Integer code of each row's label, and the labels."""
    values, groups = np.unique(np.asarray(labels), return_inverse=True)
    return groups, [str(value) for value in values]


def group_names(model, n):
    """Names of the n groups of a model: its classes, or its components."""
    if hasattr(model, "classes_"):
        return [str(label) for label in model.classes_]
    noisy = bool(getattr(model, "noise_component", False))  # noise is the last group
    return [f"component {k}" for k in range(n - noisy)] + noisy * ["noise"]
