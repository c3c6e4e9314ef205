"""Results of a fitted model on rows: the numbers behind the sections and charts.

Results for which a model has no method are None, and their section is omitted.
"""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from latently.metrics import adjusted_rand_score, clustering_accuracy, purity
from latently.report._groups import NO_LABEL, Agreement, Groups, labelled, profiles
from latently.report._inputs import (
    checked_image_shape,
    checked_names,
    checked_numbers,
    checked_rows,
    checked_threshold,
    checked_total,
    checked_units,
)
from latently.report._intervals import checked_uncertainty
from latently.report._levels import check_levels, indicators, with_levels
from latently.report._rare import unusual_rows

_ROWS_FOR_AXES = 2000  # rows used for principal axes


@dataclass(frozen=True)
class Sources:
    mapping: str
    values: np.ndarray  # (n, r): s
    mapped: np.ndarray  # (n, r): f(s)


@dataclass(frozen=True)
class Loadings:
    noun: str  # "factor" or "part"
    tables: dict[str, np.ndarray]  # title -> (D, q), in standard deviations of the feature
    raw: np.ndarray  # (D, total number of columns) unscaled


class Facts:
    """A model, rows, and derived results. Expensive results are cached."""

    def __init__(
        self,
        model,
        X,
        *,
        feature_names=None,
        labels=None,
        row_names=None,
        image_shape=None,
        units=None,
        row_numbers=None,
        n_rows=None,
        threshold=None,
        columns=None,
        uncertainty=None,
        command_line=None,
    ):
        self.command_line = command_line
        self.uncertainty = checked_uncertainty(uncertainty)
        model, X, feature_names, self.levels = with_levels(model, X, columns, feature_names)
        self.X = checked_rows(model, X)
        check_levels(self.levels, self.X)
        self.offset, self.scale = checked_units(units, self.X.shape[1])
        self.model = model.to("numpy") if hasattr(model, "to") else model
        n, D = self.X.shape
        self.image_shape = checked_image_shape(image_shape, D)
        own_names = getattr(model, "feature_names_in_", None)
        if feature_names is None:
            feature_names = own_names if own_names is not None else [f"feature {j}" for j in range(1, D + 1)]
        self.feature_names = checked_names("feature_names", feature_names, D)
        self.row_names = None if row_names is None else checked_names("row_names", row_names, n)
        self.row_numbers = checked_numbers(row_numbers, n)
        self.n_rows = checked_total(n_rows, self.row_numbers)
        self.threshold = checked_threshold(threshold)
        self.classes = None if labels is None else labelled(labels, n, getattr(model, "classes_", None))

    def asked(self, method, some=slice(None)):
        """Result of a method of the model for the rows, or some of them."""
        return self.asked_of(method, self.X[some])

    def asked_of(self, method, X, model=None, **given):
        with warnings.catch_warnings():
            # feature names are for display only; the columns are those of the model by contract
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            return np.asarray(getattr(model or self.model, method)(X, **given))

    def drawn(self, n_rows):
        """Rows sampled from the model with a fixed seed."""
        found = self.model.sample(n_rows, random_state=0)
        return np.asarray(found[0] if isinstance(found, tuple) else found)

    @cached_property
    def settings(self):
        """Parameters of the estimator that differ from their defaults."""
        signature = inspect.signature(type(self.model).__init__).parameters
        chosen = {}
        for name, value in self.model.get_params(deep=False).items():
            plain = isinstance(value, (bool, Real, str)) or hasattr(value, "get_params")
            default = signature[name].default if name in signature else None
            if plain and name != "verbose" and (hasattr(value, "get_params") or value != default):
                chosen[name] = value
        return chosen

    @cached_property
    def n_parameters(self):
        """Free parameters of the density; None if the model does not count them."""
        try:
            return self.model.n_parameters() if hasattr(self.model, "n_parameters") else None
        except TypeError:  # a classifier whose densities do not count them
            return None

    @property
    def converged(self):
        """Whether the fit converged; True for fits without iterations."""
        return bool(getattr(self.model, "converged_", True)) or not getattr(self.model, "n_iter_", 0)

    def row_name(self, i):
        """Name of the row at this position: that of the file, or its number there."""
        return f"row {self.row_numbers[i]}" if self.row_names is None else self.row_names[i]

    # -- the data -----------------------------------------------------------------------------------

    @cached_property
    def missing(self):
        """(D,) number of missing entries of each feature."""
        return np.count_nonzero(np.isnan(self.X), axis=0)

    @cached_property
    def complete(self):
        """(n,) whether a row is complete."""
        return ~np.isnan(self.X).any(axis=1)

    @cached_property
    def everything(self):
        """One group of all rows, for means and standard deviations of features."""
        return profiles(self.X, np.ones((len(self.X), 1)))

    @cached_property
    def shown(self):
        """The rows in the original units."""
        return self.X * self.scale + self.offset

    @property
    def in_other_units(self):
        return bool(np.any(self.scale != 1.0) or np.any(self.offset != 0.0))

    @property
    def mean(self):
        return self.everything.means[0]

    @property
    def deviation(self):
        return self.everything.deviations[0]

    # -- groups -------------------------------------------------------------------------------------

    @cached_property
    def groups(self):
        """Components, or the predicted classes of a classifier without components."""
        if hasattr(self.model, "predict_component"):
            codes = self.asked("predict_component").astype(int)
            K = max(int(getattr(self.model, "n_components", 1)), codes.max() + 1)
            return Groups("component", [f"component {k}" for k in range(K)], codes)
        if not hasattr(self.model, "predict"):
            return None
        predicted = self.asked("predict")
        if hasattr(self.model, "classes_"):
            found = labelled(predicted, len(self.X), self.model.classes_)
            return Groups("predicted class", found.names, found.codes)
        if hasattr(self.model, "n_row_clusters"):
            names = [f"row cluster {k}" for k in range(self.model.core_.shape[0])]
            return Groups("row cluster", names, predicted.astype(int))
        if not hasattr(self.model, "predict_proba"):  # an outlier detector
            return Groups("kind of row", ["usual", "anomaly"], (predicted == -1).astype(int))
        probabilities = self.asked("predict_proba")
        names = [f"component {k}" for k in range(probabilities.shape[1])]
        if getattr(self.model, "noise_component", False):  # has the last column, and the label -1
            names[-1] = "noise"
        codes = predicted.astype(int) % len(names)
        return Groups("component", names, codes, probabilities)

    @property
    def has_groups(self):
        """Whether there is more than one group."""
        return self.groups is not None and len(self.groups.names) > 1

    @property
    def is_classifier(self):
        return hasattr(self.model, "classes_")

    @cached_property
    def predicted(self):
        """Predicted classes of a classifier."""
        if not self.is_classifier:
            return None
        if self.groups.noun == "predicted class":
            return self.groups
        found = labelled(self.asked("predict"), len(self.X), self.model.classes_)
        return Groups("predicted class", found.names, found.codes)

    @cached_property
    def profiles(self):
        """None unless there are several groups with rows."""
        if self.groups is None or np.count_nonzero(self.groups.sizes) < 2:
            return None
        found = profiles(self.X, self.groups.memberships)
        found.differences[:, list(self.levels.nominal)] = 0.0  # numbers of categories have no order
        return found

    @cached_property
    def shares(self):
        """Of columns with levels: (m,) how frequent each level is, and (K, m) in each group."""
        found = {}
        for j, names in self.levels.names.items():
            own = np.nan_to_num(indicators(self.X[:, j], len(names)))
            both = own.sum(axis=0)[None], (self.groups.memberships.T @ own if self.groups else own[:0])
            whole, of_groups = (part / np.maximum(part.sum(axis=1, keepdims=True), 1e-300) for part in both)
            found[j] = (whole[0], of_groups)
        return found

    @cached_property
    def _of_known_class(self):
        """(n,) whether a row has a label."""
        classes: Any = self.classes
        names = classes.names
        return classes.codes != names.index(NO_LABEL) if NO_LABEL in names else np.full(len(self.X), True)

    @cached_property
    def share_predicted_right(self):
        """Fraction of labelled rows that a classifier predicts correctly."""
        if self.predicted is None or self.classes is None or not self._of_known_class.any():
            return None
        said = np.array(self.predicted.names, dtype=object)[self.predicted.codes]
        right = np.array(self.classes.names, dtype=object)[self.classes.codes]
        return float(np.mean((said == right)[self._of_known_class]))

    @cached_property
    def agreement(self):
        """Agreement of components with the labels of rows."""
        if (
            self.classes is None
            or self.is_classifier
            or not self.has_groups
            or not self._of_known_class.any()
        ):
            return None
        both = self.classes.codes[self._of_known_class], self.groups.codes[self._of_known_class]
        alike = len(np.unique(both[0])) == len(np.unique(both[1]))
        accuracy = clustering_accuracy(*both) if alike else None
        return Agreement(accuracy, purity(*both), adjusted_rand_score(*both))

    def strongest(self, scores, most):
        """Indices of the features with the highest scores (D,), in the order of the data."""
        return np.sort(np.argsort(-scores, kind="stable")[:most])

    @cached_property
    def informative(self):
        """(D,) largest difference of a feature between groups, or its standard deviation without groups."""
        if self.profiles is None:
            return self.deviation
        filled = self.groups.sizes > 0
        found = np.max(np.abs(self.profiles.differences[filled]), axis=0)
        for j in self.levels.nominal:
            of_levels = profiles(indicators(self.X[:, j], len(self.levels.names[j])), self.groups.memberships)
            found[j] = np.max(np.abs(of_levels.differences[filled]))
        return found

    # -- density ------------------------------------------------------------------------------------

    @cached_property
    def score_name(self):
        return self._scored[0]

    @cached_property
    def scores(self):
        """(n,) log densities in the original units, or a lower bound; None if there is neither."""
        _, found = self._scored
        return None if found is None else found - self.log_volume(self.X)

    def log_volume(self, X):
        """(n,) log density in the units of the model minus that in the original units."""
        return ~np.isnan(X) @ np.log(self.scale)

    @cached_property
    def _scored(self):
        if not hasattr(self.model, "score_samples"):
            return "log density", None
        try:
            return "log density", self.asked("score_samples")
        except ValueError:  # not available, for example if there are too many states to sum over
            if hasattr(self.model, "bound"):
                return "bound of the log density", self.asked("bound")
            return "log density", None

    @cached_property
    def unusual(self):
        """None without scores."""
        return None if self.scores is None else unusual_rows(self)

    # -- factors ------------------------------------------------------------------------------------

    @cached_property
    def flat(self):
        """The equivalent single-layer model of a deep one; the model itself if it has no layers."""
        return self.model.collapse() if hasattr(self.model, "collapse") else self.model

    @cached_property
    def factors(self):
        """(n, q) result of `transform`; None if there is none."""
        if not hasattr(self.flat, "transform"):
            return None
        found = self.asked_of("transform", self.X, self.flat)
        return found if found.ndim == 2 and found.shape[1] else None

    @property
    def factor_noun(self):
        return "part" if hasattr(self.model, "components_") else "factor"

    @cached_property
    def each_has_its_own_factors(self):
        loadings = getattr(self.flat, "loadings_", None)
        return (
            loadings is not None
            and np.ndim(loadings) == 3
            and len(loadings) > 1
            and np.shape(loadings)[2] > 0
        )

    @cached_property
    def principal(self):
        """(n, 2) rows on their principal axes, or (n, 1) if there is one feature only."""
        filled = self._filled
        if self.levels.nominal:
            parts = [
                indicators(column, len(self.levels.names[j])) if j in self.levels.nominal else column[:, None]
                for j, column in enumerate(filled.T)
            ]
            filled = np.concatenate(parts, axis=1)
        of_all = profiles(filled, np.ones((len(filled), 1)))
        shift, deviation = of_all.means[0], of_all.deviations[0]
        scale = np.ones_like(shift) if self.image_shape else np.where(deviation > 0, deviation, 1.0)
        picked = np.unique(np.linspace(0, len(filled) - 1, min(len(filled), _ROWS_FOR_AXES)).astype(int))
        sample = (filled[picked] - shift) / scale
        axes = np.linalg.svd(sample, full_matrices=False)[2][:2]
        axes = axes * np.sign(axes[np.arange(len(axes)), np.argmax(np.abs(axes), axis=1)])[:, None]
        return ((filled - shift) / scale) @ axes.T

    @cached_property
    def _filled(self):
        if self.complete.all():
            return self.X
        if hasattr(self.model, "impute"):
            return self.asked("impute")
        return np.where(np.isnan(self.X), self.mean, self.X)

    @property
    def _layers(self):
        """The layers of a stack, that of the rows first; the model itself if it is none."""
        return getattr(self.model, "layers_", None) or [self.model]

    @cached_property
    def sources(self):
        """Sources that a map turns into features, those of the top layer; None if there is no map."""
        top = self._layers[-1]
        if not hasattr(top, "map_sources") or self.factors is None or not np.isfinite(self.factors).all():
            return None
        return Sources(str(top.mapping), self.factors, np.asarray(top.map_sources(self.factors)))

    @cached_property
    def class_features(self):
        """(C, D) coefficients of classes propagated to features; None if there are none."""
        return np.asarray(self.model.class_features()) if hasattr(self.model, "class_features") else None

    @cached_property
    def parts_of_cost(self):
        """The cost of rows and that of labels after every sweep, by name; None if they are not known."""
        parts = np.asarray(getattr(self._layers[-1], "history_parts_", ()), dtype=float)
        if len(parts) < 2 or not np.isfinite(parts).all() or not parts[:, 1].any():
            return None
        return {"cost of rows": parts[:, 0], "cost of labels": parts[:, 1]}

    @cached_property
    def offset_image(self):
        """(1, D) the offset that is added to parts; None without."""
        offset = getattr(self._layers[0], "offset_", None)
        found = None if offset is None else np.asarray(offset)
        return None if found is None or found.shape != self.mean.shape else found[None]

    @cached_property
    def loadings(self):
        """Loadings in standard deviations of the features, per standard deviation of the factor."""
        D = self.X.shape[1]
        unit = np.where(self.deviation > 0, self.deviation, 1.0)[:, None]
        parts = getattr(self._layers[0], "components_", None)
        if parts is not None and np.ndim(parts) == 2 and np.shape(parts)[1] == D:
            return Loadings("part", {"": np.asarray(parts).T / unit}, np.asarray(parts).T)
        loadings = getattr(self.flat, "loadings_", None)
        if loadings is None or np.shape(loadings)[-2:-1] != (D,) or np.shape(loadings)[-1] == 0:
            return None
        loadings = np.asarray(loadings)
        if loadings.ndim == 2:
            return Loadings("factor", {"": loadings * self._factor_deviation() / unit}, loadings)
        if loadings.ndim != 3:
            return None
        noun = "component" if self.flat is self.model else "sub-component"
        tables = {f"{noun} {k}": own / unit for k, own in enumerate(loadings)}
        return Loadings("factor", tables, np.concatenate(list(loadings), axis=1))

    def _factor_deviation(self):
        """(q,) standard deviations of common factors; one if they are standard normal in the model."""
        means = getattr(self.flat, "latent_means_", None)
        if means is None:
            return 1.0
        q = np.shape(means)[-1]
        weights = np.asarray(self.flat.weights_)
        if hasattr(self.flat, "class_prior_"):
            weights = weights * np.asarray(self.flat.class_prior_)[:, None]
        weights, means = weights.ravel() / weights.sum(), np.reshape(means, (-1, q))
        own = np.diagonal(np.reshape(self.flat.latent_covariances_, (-1, q, q)), axis1=1, axis2=2)
        return np.sqrt(weights @ (own + (means - weights @ means) ** 2))

    @cached_property
    def noise_share(self):
        """Mean fraction of the features' variances that is noise under the model; None if not known."""
        noise = getattr(self.flat, "noise_variance_", None)
        if noise is None or np.shape(noise)[-1:] != self.deviation.shape:
            return None
        noise = np.asarray(noise)
        if noise.ndim == 2:
            noise = np.average(noise, axis=0, weights=np.asarray(self.flat.weights_))
        varies = self.deviation > 0
        return (
            float(np.mean(np.minimum(noise[varies] / self.deviation[varies] ** 2, 1.0)))
            if varies.any()
            else None
        )
