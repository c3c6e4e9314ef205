"""Grids of images."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from latently.plots._style import axes_for

_SCALES = ("together", "single", None)
_INCHES = 0.8  # width of an image in a new figure
_LARGEST = 16.0  # inches


class ImageGridDisplay:
    """Images on a grid, with borders between images and heavier ones between groups.

    Parameters
    ----------
    images : array-like of shape (n_images, height * width)
    image_shape : (int, int)
        Height and width.
    scale : {"together", "single", None}, default="together"
        Range from white to black: common to all images, so that they are comparable; the range of each image,
        for maximal contrast; or 0 to 1, with values outside clipped.
    n_columns : int, default=10
    labels : list of str, optional
        Text above the images.
    groups : array-like of shape (n_images,), optional
        Group of each image: images of a group are placed next to each other, with lines between groups.

    Attributes
    ----------
    order : ndarray of shape (n_images,)
        Indices of the images in the order they are shown.
    ink : ndarray of shape (n_images, height, width)
        Values from 0 (white) to 1 (black), in this order.
    canvas : ndarray
        All images as one array; NaN between images.
    separators : list of ((float, float), (float, float))
        x and y of the endpoints of the lines between groups.
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.plots import ImageGridDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> display = ImageGridDisplay(X[:40], (8, 8), scale="single", groups=y[:40])
    >>> display.ink.shape, float(display.ink.max())
    ((40, 8, 8), 1.0)
    >>> display.plot().figure_.savefig("digits.png")
    """

    def __init__(self, images, image_shape, *, scale="together", n_columns=10, labels=None, groups=None):
        images = np.asarray(images, dtype=float)
        if images.ndim != 2 or len(images) == 0 or images.shape[1] != image_shape[0] * image_shape[1]:
            raise ValueError(
                f"images must be rows of height * width = {image_shape[0]} * {image_shape[1]} numbers, "
                f"not of shape {images.shape}"
            )
        if scale not in _SCALES:
            raise ValueError(f"scale must be 'together', 'single' or None, not {scale!r}")
        for name, given in (("labels", labels), ("groups", groups)):
            if given is not None and len(given) != len(images):
                raise ValueError(f"{name} must have one entry for each of {len(images)} images")
        self.image_shape = tuple(image_shape)
        self.n_columns = min(n_columns, len(images))
        self.order = np.arange(len(images)) if groups is None else np.argsort(groups, kind="stable")
        self.labels = None if labels is None else [labels[i] for i in self.order]
        self.groups = None if groups is None else np.asarray(groups)[self.order]
        self.ink = _ink(images, scale)[self.order].reshape(-1, *self.image_shape)
        self._lay_out()

    @classmethod
    def from_estimator(cls, model, image_shape, **options):
        """Show the components, means or codebook of a fitted model.

        Parameters
        ----------
        model : fitted estimator
            With `codebook_` (then grouped), `components_` (followed by `offset_`, if it has one) or `means_`.
        image_shape : (int, int)
        **options
            Parameters of the class.

        Returns
        -------
        ImageGridDisplay
        """
        for name in ("codebook_", "components_", "means_"):
            if hasattr(model, name):
                size = image_shape[0] * image_shape[1]
                images = np.reshape(np.asarray(getattr(model, name)), (-1, size))
                if name == "components_" and hasattr(model, "offset_"):
                    images = np.concatenate([images, np.reshape(np.asarray(model.offset_), (1, size))])
                    options = {"labels": [*([""] * (len(images) - 1)), "offset"], **options}
                groups = model.labels_ if name == "codebook_" else None
                return cls(images, image_shape, **{"groups": groups, **options})
        raise TypeError(f"{type(model).__name__} has no components_, means_ or codebook_ to show")

    @classmethod
    def from_classes(cls, model, image_shape, **options):
        """Show what a classifier on sources looks for: the coefficients of each class, decoded to images.

        Parameters
        ----------
        model : fitted NLMFClassifier or DeepNLMF with labels
            Coefficients W of its (top) layer become W A, and further A of every layer below.
        image_shape : (int, int)
        **options
            Parameters of the class.

        Returns
        -------
        ImageGridDisplay
        """
        if not hasattr(model, "class_features"):
            raise TypeError(f"{type(model).__name__} has no coef_ and components_ to show")
        images = np.asarray(model.class_features())
        return cls(images, image_shape, **{"labels": [str(label) for label in model.classes_], **options})

    def _lay_out(self):
        """Compute the canvas, the corners of images on it, and the lines between groups."""
        h, w = self.image_shape
        n, n_columns = len(self.ink), self.n_columns
        n_lines = -(-n // n_columns)
        self.gap = max(1, round(0.06 * h))
        room = np.full(n_lines, self.gap)
        if self.labels is not None:  # above lines with at least one label
            lines = [self.labels[i : i + n_columns] for i in range(0, n, n_columns)]
            room += [round(0.35 * h) if any(line) else 0 for line in lines]
        tops = np.cumsum(room) + h * np.arange(n_lines)
        self.corners = [(tops[i // n_columns], self.gap + (w + self.gap) * (i % n_columns)) for i in range(n)]
        self.canvas = np.full((tops[-1] + h + self.gap, (w + self.gap) * n_columns + self.gap), np.nan)
        self.separators = []
        for i, (top, left) in enumerate(self.corners):
            self.canvas[top : top + h, left : left + w] = self.ink[i]
            if self.groups is not None and i > 0 and self.groups[i] != self.groups[i - 1]:
                x = left - 0.5 * self.gap - 0.5
                ends = (top - self.gap - 0.5, top + h + self.gap - 0.5)
                self.separators.append(((x, x), ends))

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
        ax = axes_for(ax, self.size())
        self.axes_, self.figure_ = [ax], ax.figure
        ax.set_facecolor("0.85")  # visible where the canvas is NaN: the borders
        ax.imshow(self.canvas, cmap="gray_r", vmin=0.0, vmax=1.0, interpolation="nearest")
        for x, y in self.separators:
            ax.plot(x, y, color="#D55E00", lw=2.0, solid_capstyle="butt")
        if self.labels is not None:
            for label, (top, left) in zip(self.labels, self.corners, strict=True):
                x, y = left + 0.5 * self.image_shape[1] - 0.5, top - 0.5 * self.gap - 0.5
                ax.text(x, y, label, ha="center", va="bottom", fontsize=7)
        ax.set_xlim(-0.5, self.canvas.shape[1] - 0.5)
        ax.set_ylim(self.canvas.shape[0] - 0.5, -0.5)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_visible(False)
        return self

    def size(self):
        """Size of a suitable figure, in inches."""
        height, width = self.canvas.shape
        inches = min(_INCHES * self.n_columns, _LARGEST, _LARGEST * width / height)
        return inches, inches * height / width


def image_grid(rows, image_shape, *, title=None, labels=None, n_columns=10, scale="together", groups=None):
    """A figure with one image per row.

    Parameters
    ----------
    rows : array-like of shape (n_images, height * width)
    image_shape : (height, width)
    title : str, optional
    labels, n_columns, scale, groups
        As in :class:`ImageGridDisplay`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    display = ImageGridDisplay(
        rows, image_shape, scale=scale, n_columns=n_columns, labels=labels, groups=groups
    )
    width, height = display.size()
    figure = Figure(figsize=(width, height + (0.0 if title is None else 0.4)), layout="constrained")
    display.plot(figure.subplots())
    if title is not None:
        figure.suptitle(title)
    return figure


def _ink(images, scale):
    """Values from 0 (white) to 1 (black)."""
    if scale == "single":
        low, high = images.min(axis=1, keepdims=True), images.max(axis=1, keepdims=True)
    elif scale == "together":
        low, high = np.quantile(images, [0.01, 0.99])  # robust to single extreme pixels
    else:
        low, high = 0.0, 1.0
    return np.clip((images - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
