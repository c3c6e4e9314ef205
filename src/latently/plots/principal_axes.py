"""High-dimensional rows and Gaussians on the first two principal axes of the rows.

With the axes U (D, 2) and the mean m of the rows, a row is shown at z = U'(x - m), and a Gaussian with
covariance Sigma as one with covariance U' Sigma U, whatever its mean.
"""

from __future__ import annotations

import numpy as np

from latently.plots._style import axes_for, named_groups, opened
from latently.plots.latent import draw_groups, ellipse


class PrincipalAxesDisplay:
    """Rows on their first two principal axes, with the ellipses of components.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    labels : array-like of shape (n_samples,), optional
        Labels for the colours of the rows.
    means : array-like of shape (n_components, n_features), optional
    covariances : callable, optional
        Function of the axes (2, n_features) that returns the projected covariances (n_components, 2, 2). This
        avoids full covariance matrices where the projection can be computed directly.
    marks : dict of str to array-like of shape (n_marks, n_features), optional
        Other points of interest, by name.

    Attributes
    ----------
    center : ndarray of shape (n_features,)
        The mean of the rows.
    principal_axes : ndarray of shape (2, n_features)
        Orthonormal.
    variance_shares : ndarray of shape (2,)
        Fraction of the variance of the rows explained by each axis.
    points : ndarray of shape (n_samples, 2)
    means : ndarray of shape (n_components, 2)
    covariances : ndarray of shape (n_components, 2, 2), or None
    marks : dict of str to ndarray of shape (n_marks, 2)
    groups, group_names : as given
        Group of each row, and the names of the groups.
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from latently.mixture import MFA
    >>> from latently.plots import PrincipalAxesDisplay
    >>> X = load_wine().data
    >>> model = MFA(3, 2, random_state=0).fit(X)
    >>> display = PrincipalAxesDisplay.from_estimator(model, X)
    >>> display.points.shape, display.covariances.shape
    ((178, 2), (3, 2, 2))
    >>> display.plot().figure_.savefig("principal_axes.png")
    """

    def __init__(self, X, *, labels=None, means=None, covariances=None, marks=None):
        X = np.asarray(X, dtype=float)
        if X.ndim != 2 or min(X.shape) < 2:
            raise ValueError(f"X must have at least two rows and two features, not shape {X.shape}")
        if not np.isfinite(X).all():
            raise ValueError(
                "X must contain finite numbers only; impute missing entries first, for example by `impute`"
            )
        self.center = X.mean(axis=0)
        self.principal_axes, self.variance_shares = _leading_axes(X - self.center)
        self.points = self.project(X)
        self.groups, self.group_names = named_groups(np.zeros(len(X)) if labels is None else labels)
        if labels is None:
            self.group_names = ["rows"]
        if self.groups.shape != (len(X),):
            raise ValueError(f"labels must have one entry for each of the {len(X)} rows of X")
        self.means = self.project(np.zeros((0, X.shape[1])) if means is None else means)
        self.covariances = None if covariances is None else np.asarray(covariances(self.principal_axes))
        self.marks = {name: self.project(rows) for name, rows in (marks or {}).items()}

    @classmethod
    def from_estimator(cls, model, X=None, labels=None):
        """Project rows and the components of a fitted model.

        Parameters
        ----------
        model : fitted estimator or pipeline
            A mixture or factor model; a `SourceDensity`, whose sources are shown; a `VectorQuantizer`, with
            its prototypes and their initial values; or a `CodebookGenerator`, with its elements and groups.
        X : array-like of shape (n_samples, n_features), optional
            Not needed for a `CodebookGenerator`.
        labels : array-like of shape (n_samples,), optional
            Labels for the colours of the rows.

        Returns
        -------
        PrincipalAxesDisplay
        """
        model, before = opened(model)
        if hasattr(model, "codebook_"):
            labels = [f"group {k}" for k in model.labels_] if labels is None else labels
            return cls(model.codebook_, labels=labels, means=model.centers_, marks={"start": model.starts_})
        if X is None:
            raise ValueError(f"X must be given: {type(model).__name__} does not contain the rows to be shown")
        X = X if before is None else before.transform(X)
        if hasattr(model, "starts_"):
            return cls(X, labels=labels, means=model.components_, marks={"start": model.starts_})
        if hasattr(model, "density_"):
            model, X = model.density_, model.sources(X)
        if hasattr(model, "collapse"):
            model = model.collapse()
        if not hasattr(model, "means_") and not hasattr(model, "mean_"):
            raise TypeError(f"{type(model).__name__} has no means_ to be shown")
        means = model.means_ if hasattr(model, "means_") else model.mean_[None]
        return cls(X, labels=labels, means=means, covariances=lambda axes: _projected(model, axes))

    def project(self, rows):
        """Positions (n, 2) of rows (n, n_features) in the plot."""
        return (np.asarray(rows) - self.center) @ self.principal_axes.T

    def plot(self, ax=None):
        """Draw the plot; an ellipse contains 95 % of its Gaussian.

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
        around, of_means = "#0072B2", "#D55E00"
        if len(self.group_names) == 1:
            ax.plot(*self.points.T, ".", color="0.65", ms=3, label=self.group_names[0], zorder=0)
        else:
            around = of_means = "black"  # colours are used for the groups
            draw_groups(ax, self.points, self.groups, self.group_names)
        few = len(self.means) <= 30
        if self.covariances is not None:
            for mean, covariance in zip(self.means, self.covariances, strict=True):
                outline = ellipse(mean, covariance)
                ax.plot(*outline.T, color=around, lw=1.4 if few else 0.7, alpha=0.9 if few else 0.5)
        for name, points in self.marks.items():
            ax.plot(*points.T, "s", mfc="none", mec="black", ms=6, label=name)
        if len(self.means):
            ax.plot(
                *self.means.T, "P", color=of_means, mec="white", mew=0.6, ms=9 if few else 5, label="mean"
            )
        for set_label, number in ((ax.set_xlabel, 0), (ax.set_ylabel, 1)):
            share = 100 * self.variance_shares[number]
            set_label(f"principal axis {number + 1} ({share:.0f} % of the variance)")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9)
        return self


def _leading_axes(centred):
    """Two orthonormal axes (2, D), with positive largest entries, and their explained variance ratios."""
    n, D = centred.shape
    if n >= D:
        values, vectors = np.linalg.eigh(centred.T @ centred)
        values, axes = values[:-3:-1], vectors[:, :-3:-1].T
    else:
        _, singular, vectors = np.linalg.svd(centred, full_matrices=False)
        values, axes = singular[:2] ** 2, vectors[:2]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    total = np.sum(centred**2)
    return axes * np.sign(largest), np.maximum(values, 0.0) / (total if total > 0 else 1.0)


def _projected(model, axes):
    """(K, 2, 2) covariances of a model's components projected on the axes (2, D)."""
    if hasattr(model, "loadings_"):
        loadings = axes @ np.asarray(model.loadings_)  # (K, 2, q), or (2, q) if common
        noise = np.asarray(model.noise_variance_)  # (K, D) or (D,)
        among_factors = getattr(model, "latent_covariances_", np.eye(loadings.shape[-1]))
        explained = loadings @ among_factors @ np.swapaxes(loadings, -1, -2)
        projected = explained + (axes * noise[..., None, :]) @ axes.T
        return np.reshape(projected, (-1, 2, 2))
    covariances, K = np.asarray(model.covariances_), len(model.means_)
    kind = model.covariance_type
    if kind in ("full", "tied"):
        return np.broadcast_to(axes @ covariances @ axes.T, (K, 2, 2))
    variances = covariances if kind == "diag" else covariances[:, None]  # (K, D) or (K, 1)
    return (axes * variances[:, None, :]) @ axes.T
