"""Rows in the plane of two factors, with ellipses of components and decision boundaries."""

from __future__ import annotations

from copy import copy
from itertools import cycle
from numbers import Integral

import numpy as np
from contourpy import contour_generator

from latently.plots._style import MARKERS, axes_for, colours, group_names, named_groups, opened

_SHARE = 0.95  # probability of the interior of an ellipse
_GRID = 151  # grid points along each factor, on which decisions are evaluated
_MOST_NUMBERS = 4_000_000  # most entries of rows that are generated at once for it


class LatentDisplay:
    """Factors of rows on two axes, coloured by component or class.

    Create it with :meth:`from_estimator`; the numbers are available before anything is drawn.

    Parameters
    ----------
    points : array-like of shape (n_samples, 2)
    groups : array-like of int of shape (n_samples,)
        Group of each point.
    group_names : list of str
    means : array-like of shape (n_ellipses, 2), optional
        Centres of ellipses.
    covariances : array-like of shape (n_ellipses, 2, 2), optional
        Covariances of the Gaussians; an ellipse contains 95 % of its Gaussian.
    ellipse_names : list of str, optional
        An ellipse has the colour of the group with the same name; otherwise it is black and labelled.
    boundaries : list of arrays of shape (n_corners, 2), optional
        Decision boundaries.
    axis_names : (str, str), optional

    Attributes
    ----------
    points, groups, group_names, means, covariances, ellipse_names, boundaries, axis_names : as given
        As given.
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import MCFA
    >>> from latently.plots import LatentDisplay
    >>> X = load_iris().data
    >>> model = MCFA(n_components=3, n_factors=2, random_state=0).fit(X)
    >>> display = LatentDisplay.from_estimator(model, X)
    >>> display.points.shape, display.group_names
    ((150, 2), ['component 0', 'component 1', 'component 2'])
    >>> display.plot().figure_.savefig("factors.png")
    """

    def __init__(
        self,
        points,
        groups,
        *,
        group_names,
        means=(),
        covariances=(),
        ellipse_names=(),
        boundaries=(),
        axis_names=("factor 0", "factor 1"),
    ):
        self.points = np.asarray(points)
        self.groups = np.asarray(groups)
        self.group_names = list(group_names)
        self.means = np.reshape(means, (-1, 2))
        self.covariances = np.reshape(covariances, (-1, 2, 2))
        self.ellipse_names = list(ellipse_names)
        self.boundaries = list(boundaries)
        self.axis_names = tuple(axis_names)

    @classmethod
    def from_estimator(cls, model, X, labels=None, axes=(0, 1)):
        """Compute the factors of rows with a fitted model.

        Ellipses are those of the model's components if it has means and covariances of factors
        (`latent_means_` and `latent_covariances_`), else those of the points of each group. With exactly two
        factors there are decision boundaries: the point of every row lies on the side that `predict` returns
        or, if labels depend on the factors only, `predict_from_factors`. Models whose components have their
        own factors, such as MFA, have no boundaries.

        Parameters
        ----------
        model : fitted estimator or pipeline
            With `transform`.
        X : array-like of shape (n_samples, n_features)
        labels : array-like of shape (n_samples,), optional
            Labels for the colours. By default the most probable class or component of each row.
        axes : (int, int), default=(0, 1)
            Indices of the factors to show.

        Returns
        -------
        LatentDisplay
        """
        model, before = opened(model)
        X = X if before is None else before.transform(X)
        factors = np.asarray(model.transform(X))
        axes = _checked_axes(axes, factors.shape[1])
        points = factors[:, axes]
        if labels is not None:
            groups, names = named_groups(labels)
            if groups.shape != (len(points),):
                raise ValueError(f"labels must have one entry for each of the {len(points)} rows of X")
        elif hasattr(model, "predict_proba"):
            resp = np.asarray(model.predict_proba(X))
            groups, names = resp.argmax(axis=1), group_names(model, resp.shape[1])
        else:
            groups, names = np.zeros(len(points), dtype=int), ["rows"]

        if hasattr(model, "latent_means_"):
            means, covariances, ellipse_names = _latent_components(model, factors.shape[1])
        else:
            means, covariances, ellipse_names = _of_groups(factors, groups, names)
        boundaries = _boundaries(model, factors, means, covariances) if factors.shape[1] == 2 else []
        return cls(
            points,
            groups,
            group_names=names,
            means=means[:, axes],
            covariances=covariances[:, axes][:, :, axes],
            ellipse_names=ellipse_names,
            boundaries=[line[:, axes] for line in boundaries],
            axis_names=[f"factor {axis}" for axis in axes],
        )

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
        ax = axes_for(ax, (6.6, 4.6))
        self.axes_, self.figure_ = [ax], ax.figure
        draw_groups(ax, self.points, self.groups, self.group_names)
        of_group = dict(zip(self.group_names, colours(len(self.group_names)), strict=True))
        for mean, covariance, name in zip(self.means, self.covariances, self.ellipse_names, strict=True):
            outline = ellipse(mean, covariance)
            ax.plot(outline[:, 0], outline[:, 1], color=of_group.get(name, "black"), lw=1.6)
            if name not in of_group:
                top = outline[np.argmax(outline[:, 1])]
                ax.annotate(name, top, (0, 3), textcoords="offset points", ha="center", fontsize=8)
        draw_boundaries(ax, self.boundaries, label="decision boundary")
        ax.set_xlabel(self.axis_names[0])
        ax.set_ylabel(self.axis_names[1])
        ax.spines[["top", "right"]].set_visible(False)
        if len(ax.get_legend_handles_labels()[1]) > 1:
            n_columns = 1 + len(self.group_names) // 16
            ax.legend(
                loc="upper left",
                bbox_to_anchor=(1, 1),
                ncols=n_columns,
                frameon=False,
                fontsize=9,
                markerscale=1.5,
            )
        return self


def draw_groups(ax, points, groups, names):
    """Draw points with a colour and a marker for each group."""
    size, alpha = (4.5, 0.75) if len(points) <= 2000 else (2.5, 0.5)
    for group, (name, colour, marker) in enumerate(
        zip(names, colours(len(names)), cycle(MARKERS), strict=False)
    ):
        own = points[groups == group]
        ax.plot(
            own[:, 0],
            own[:, 1],
            marker,
            color=colour,
            ms=size,
            mew=0,
            alpha=alpha,
            label=name,
            rasterized=len(points) > 20_000,  # otherwise vector files grow with every point
        )


def draw_boundaries(ax, lines, label=None):
    """Draw boundaries inside the current limits only: distant ones must not shrink the view."""
    x, y = ax.get_xlim(), ax.get_ylim()
    for line in lines:
        seen = (line.max(axis=0) > (x[0], y[0])) & (line.min(axis=0) < (x[1], y[1]))
        if seen.all():
            ax.plot(line[:, 0], line[:, 1], color="black", lw=0.9, label=label)
            label = None  # one legend entry for all boundaries
    ax.set_xlim(x)
    ax.set_ylim(y)


def ellipse(mean, covariance, n_corners=101):
    """(n_corners, 2) outline of the ellipse that contains 95 % of a Gaussian."""
    values, vectors = np.linalg.eigh(covariance)
    angle = np.linspace(0.0, 2 * np.pi, n_corners)
    circle = np.sqrt(-2 * np.log(1 - _SHARE)) * np.column_stack([np.cos(angle), np.sin(angle)])
    return mean + circle * np.sqrt(np.maximum(values, 0.0)) @ vectors.T


def _checked_axes(axes, n_factors):
    axes = list(axes)
    if n_factors < 2:
        raise ValueError(
            f"LatentDisplay needs a model with at least two factors, but this one has {n_factors}"
        )
    right = len(axes) == 2 and all(isinstance(axis, Integral) and 0 <= int(axis) < n_factors for axis in axes)
    if not right or axes[0] == axes[1]:
        raise ValueError(f"axes must be two different factors from 0 to {n_factors - 1}, not {axes}")
    return axes


def _latent_components(model, q):
    """Factor means and covariances of all components, and the names of the components or classes."""
    means = np.reshape(model.latent_means_, (-1, q))
    covariances = np.reshape(model.latent_covariances_, (-1, q, q))
    names = group_names(model, len(means))
    return means, covariances, [name for name in names for _ in range(len(means) // len(names))]


def _of_groups(factors, groups, names):
    """Means and covariances of the factors in each group with at least three rows."""
    own = [factors[groups == group] for group in range(len(names))]
    enough = [group for group, rows in enumerate(own) if len(rows) > 2]
    q = factors.shape[1]
    means = np.reshape([own[group].mean(axis=0) for group in enough], (-1, q))
    covariances = np.reshape([np.cov(own[group], rowvar=False) for group in enough], (-1, q, q))
    return means, covariances, [names[group] for group in enough]


def _boundaries(model, factors, means, covariances):
    """Decision boundaries (n_corners, 2) in the plane of a model's two factors."""
    shown = np.concatenate([factors, *map(ellipse, means, covariances)])
    low, high = shown.min(axis=0), shown.max(axis=0)
    low, high = low - 0.1 * (high - low), high + 0.1 * (high - low)
    if hasattr(model, "coef_"):
        coef, intercept = np.asarray(model.coef_), np.asarray(model.intercept_)
        if len(coef) == 1:  # coefficients of the second of two classes
            coef, intercept = np.concatenate([-coef, coef]), np.concatenate([-intercept, intercept])
        return _changes(lambda Z: Z @ coef.T + intercept, low, high)
    if hasattr(model, "latent_means_"):
        return _common_boundaries(model, low, high)
    return []


def _common_boundaries(model, low, high):
    """Decision boundaries for common loadings A.

    Both the decision about a row x and its position in the plot depend only on its weighted least-squares
    factors. Rows A z therefore represent all rows, and boundaries are computed in the plane of z. The
    position is the gradient of a convex function of z, so rows with different z have different positions.
    """
    model = _without_feature_names(model)

    def of_rows(method, Z):
        n_parts = 1 + len(Z) * model.n_features_in_ // _MOST_NUMBERS
        parts = [method(model.inverse_transform(part)) for part in np.array_split(Z, n_parts)]
        return np.concatenate([np.asarray(part) for part in parts])

    def log_probabilities(Z):
        return np.log(np.maximum(of_rows(model.predict_proba, Z), np.finfo(float).tiny))

    first, last = low, high
    for _ in range(20):  # positions are shrunk to the components, so the z must extend beyond the view
        places = of_rows(model.transform, _grid(first, last, 9))
        short, reach = (places.min(axis=0) > low, places.max(axis=0) < high), 0.25 * (last - first)
        if not np.any(short):
            break
        first, last = first - reach * short[0], last + reach * short[1]
    first, last = (
        first - 0.5 * (last - first),
        last + 0.5 * (last - first),
    )  # to cover the corners of the view
    return [of_rows(model.transform, line) for line in _changes(log_probabilities, first, last)]


def _without_feature_names(model):
    """A copy without feature names, for rows that are generated here."""
    copied = copy(model)
    vars(copied).pop("feature_names_in_", None)
    return copied


def _grid(low, high, n):
    """(n * n, 2)"""
    return np.stack(np.meshgrid(*np.linspace(low, high, n).T), axis=-1).reshape(-1, 2)


def _changes(scores, low, high):
    """Lines along which the group with the highest score changes."""
    grid = _grid(low, high, _GRID)
    on_grid = scores(grid)
    x, y = np.linspace(low, high, _GRID).T
    lines = []
    for group in range(on_grid.shape[1] - 1):
        lead = lambda values, group=group: values[:, group] - np.delete(values, group, axis=1).max(axis=1)
        for line in contour_generator(x, y, lead(on_grid).reshape(_GRID, _GRID)).lines(0.0):
            lines.append(_exactly_level(lambda Z, lead=lead: lead(scores(Z)), line, (high - low) / _GRID))
    return lines


def _exactly_level(lead, line, cell):
    """Refine a line by Newton steps to zero lead: interpolation on the grid is wavy where it is steep."""
    for _ in range(3):
        value, shifts = lead(line), np.diag(1e-3 * cell)
        slope = np.stack([(lead(line + d) - lead(line - d)) / (2 * d.sum()) for d in shifts], axis=1)
        steepness = np.sum(slope**2, axis=1)
        step = np.where(steepness > 0, value / np.where(steepness > 0, steepness, 1.0), 0.0)[:, None] * slope
        line = line - np.clip(step, -cell, cell)
    return line
