"""How well scores tell known rows from others, and right predictions from wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib import pyplot as plt
from scipy.stats import t

from latently.metrics.rejection import checked_flags, checked_scores, risk_coverage, roc
from latently.plots._style import LINES, colours

_POINTS = np.linspace(0.0, 1.0, 201)


@dataclass(frozen=True)
class Curve:
    """The mean of curves over runs, with a confidence band of it."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray  # the mean itself, if there is one run only
    high: np.ndarray
    areas: np.ndarray  # (n_runs,) under each curve

    @classmethod
    def of(cls, curves, areas, level):
        """`curves` (n_runs, n_points) at `_POINTS`."""
        curves = np.array(curves)
        mean, n = curves.mean(axis=0), len(curves)
        half = t.ppf(0.5 + level / 2, n - 1) * curves.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else 0.0
        return cls(_POINTS, mean, np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1), np.array(areas))


class RejectionDisplay:
    """ROC curves of scores, and the risk of a classifier against its coverage.

    Parameters
    ----------
    known : dict of str to array-like of shape (n_known,), or list of such
        Scores of rows to be accepted, by name of the score; larger is more usual. A list has one array for
        each run, such as a seed.
    other : dict of str to array-like of shape (n_other,), or list of such, optional
        Scores of rows to be rejected, with the same names and runs: for ROC curves.
    correct : dict of str to array-like of shape (n_known,), or list of such, optional
        Whether the class of each known row was predicted correctly: for risk and coverage. Scores that are
        left out have none.
    level : float, default=0.95
        Probability of the confidence bands of the mean over runs.

    Attributes
    ----------
    curves : dict of str to Curve
        ROC: the share of known rows that are accepted where a share `x` of the others is, as the `mean` over
        runs between `low` and `high`; `areas` are the AUROC of each run.
    risks : dict of str to Curve
        Error rate of the share `x` of the known rows with the largest scores.
    axes_, figure_ : list of matplotlib axes, and their figure
        Axes and figure of the plot, after `plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from latently.plots import RejectionDisplay
    >>> rng = np.random.default_rng(0)
    >>> known = {"good": rng.normal(2, 1, (5, 200)), "poor": rng.normal(0.5, 1, (5, 200))}
    >>> other = {"good": rng.normal(0, 1, (5, 100)), "poor": rng.normal(0, 1, (5, 100))}
    >>> display = RejectionDisplay(known, other)
    >>> bool(display.curves["good"].areas.mean() > display.curves["poor"].areas.mean())
    True
    """

    def __init__(self, known, other=None, *, correct=None, level=0.95):
        if other is None and correct is None:
            raise ValueError("give scores of other rows, or which rows were predicted correctly")
        runs = {str(name): _runs("known", name, scores) for name, scores in known.items()}
        if not runs:
            raise ValueError("known must hold the scores of at least one name")
        self.curves, self.risks = {}, {}
        for name, scores in (other or {}).items():
            pairs = list(zip(_named(runs, name), _runs("other", name, scores), strict=True))
            found = [roc(*pair) for pair in pairs]
            areas = [float(np.trapezoid(accepted, share)) for share, accepted in found]
            self.curves[str(name)] = Curve.of([_at_points(*curve) for curve in found], areas, level)
        for name, flags in (correct or {}).items():
            scores = _named(runs, name)
            flags = [checked_flags(one, len(row)) for one, row in zip(_several(flags), scores, strict=True)]
            found = [risk_coverage(*pair) for pair in zip(scores, flags, strict=True)]
            held = [np.interp(_POINTS, coverage, risk) for coverage, risk, _ in found]
            self.risks[str(name)] = Curve.of(held, [area for *_, area in found], level)

    @classmethod
    def from_estimator(cls, models, X_known, X_other=None, *, y=None, level=0.95):
        """Compute the scores of rows with fitted models.

        Parameters
        ----------
        models : dict of str to fitted estimator, or to a list of such
            By name, with `score_samples`; a list has one model for each run.
        X_known : array-like of shape (n_known, n_features)
            Rows to be accepted, not of the fit.
        X_other : array-like of shape (n_other, n_features), optional
            Rows to be rejected.
        y : array-like of shape (n_known,), optional
            The classes of the known rows, for the risk of models with `predict_proba` and `classes_`.
        level : float, default=0.95

        Returns
        -------
        RejectionDisplay
        """
        if not isinstance(models, Mapping):
            models = {type(models).__name__: models}
        several = {name: model if isinstance(model, list) else [model] for name, model in models.items()}

        def scores(X):
            return {name: [np.asarray(one.score_samples(X)) for one in of] for name, of in several.items()}

        correct = None
        if y is not None:
            correct = {
                name: [
                    one.classes_[np.argmax(one.predict_proba(X_known), axis=1)] == np.asarray(y) for one in of
                ]
                for name, of in several.items()
                if all(hasattr(one, "predict_proba") and hasattr(one, "classes_") for one in of)
            }
        others = None if X_other is None else scores(X_other)
        return cls(scores(X_known), others, correct=correct, level=level)

    def plot(self, ax=None):
        """Draw the plot.

        Parameters
        ----------
        ax : matplotlib Axes or list of such, optional
            One for each of the ROC and the risk, as far as they are there; by default those of a new pyplot
            figure.

        Returns
        -------
        self
        """
        panels = [panel for panel in ((self.curves, _draw_roc), (self.risks, _draw_risks)) if panel[0]]
        if ax is None:
            figure = plt.figure(figsize=(1.0 + 4.4 * len(panels), 4.2), layout="constrained")
            ax = figure.subplots(1, len(panels), squeeze=False)[0]
        axes = list(np.atleast_1d(ax))
        if len(axes) != len(panels):
            raise ValueError(f"there are {len(panels)} panels, so ax must hold as many axes, not {len(axes)}")
        self.axes_, self.figure_ = axes, axes[0].figure
        names = list(dict.fromkeys([*self.curves, *self.risks]))
        colour = dict(zip(names, colours(len(names)), strict=True))
        for axis, (found, draw) in zip(axes, panels, strict=True):
            draw(axis, found)
            for name, curve in found.items():
                area = f"{curve.areas.mean():.3f}"
                axis.plot(curve.x, curve.mean, color=colour[name], lw=1.6, label=f"{name} ({area})")
                if len(curve.areas) > 1:
                    axis.fill_between(curve.x, curve.low, curve.high, color=colour[name], alpha=0.2, lw=0)
            axis.spines[["top", "right"]].set_visible(False)
            axis.legend(frameon=False, fontsize=9)
        return self


def _draw_roc(ax, found):
    ax.plot([0, 1], [0, 1], color=LINES[-1], lw=0.8, ls=":")
    ax.set(xlabel="other rows accepted", ylabel="known rows accepted", xlim=(0, 1), ylim=(0, 1.01))
    ax.set_title("ROC (area)", fontsize=10)


def _draw_risks(ax, found):
    ax.set(xlabel="known rows accepted (coverage)", ylabel="errors among them (risk)", xlim=(0, 1))
    ax.set_ylim(0, 1.05 * max(curve.high.max() for curve in found.values()) or 1.0)
    ax.set_title("Risk and coverage (area)", fontsize=10)


def _at_points(share, accepted):
    """The largest share of known rows accepted at each share of others: the curve rises in steps there."""
    last = np.append(share[1:] > share[:-1], True)
    return np.interp(_POINTS, share[last], accepted[last])


def _several(values):
    """One array for each run."""
    if isinstance(values, (list, tuple)) and len(values) and np.ndim(values[0]) == 1:
        return list(values)
    return list(values) if np.ndim(values) == 2 else [values]


def _runs(kind, name, scores):
    return [checked_scores(f"{kind}[{name!r}]", one) for one in _several(scores)]


def _named(runs, name):
    if str(name) not in runs:
        raise ValueError(f"{name!r} has no scores of known rows; there are {sorted(runs)}")
    return runs[str(name)]
