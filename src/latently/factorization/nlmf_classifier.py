"""Non-linear matrix factorisation with a classifier on the same sources."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import like, to_numpy, zeros
from latently.distributions.nonlinear import Layer
from latently.distributions.softmax import Regression, sources_of_classes
from latently.estimators.checks import (
    check_choice,
    check_integer,
    check_locations,
    check_matrix,
    check_non_negative,
    check_number,
    check_weights,
)
from latently.estimators.classifier import DensityClassifier
from latently.estimators.labels import UNLABELLED
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter, store
from latently.estimators.randomness import as_generator
from latently.estimators.rows import for_method, in_main_memory
from latently.factorization.nlmf import NonlinearFactorization, total_costs

SESSIONS = ("joint", "dual")


@dataclass(frozen=True)
class LabelledCost:
    """The terms of the cost of a factorisation with a classifier.

    Attributes
    ----------
    reconstruction, activations, components : float
        As for `NLMF.cost`.
    classification : float
        The cross-entropy of the labels; rows labelled -1 leave theirs out.
    coef : float
        gamma times the sum of the absolute values of the coefficients.
    total : float
        The sum of all five.
    """

    reconstruction: float
    activations: float
    components: float
    classification: float
    coef: float
    total: float


@estimator
class NLMFClassifier(DensityClassifier, NonlinearFactorization):  # type: ignore[misc]  # its score is accuracy
    """Non-linear matrix factorisation with a softmax classifier on the same sources.

    Minimises ``|X - f(S) A - 1 b'|^2 / (2 sigma2) + alpha |S| + beta |A|`` plus the cross-entropy of the
    labels given v = f(S) W' + w0, plus ``gamma |W|``. So sources describe a row and tell its class, and
    sources that are made for a class give rows of that class (`generate`).

    Parameters
    ----------
    session : {"joint", "dual"}, default="joint"
        "joint" minimises the whole cost. "dual" first factorises the rows without their labels, then fits the
        classifier, without constraint, to the sources that were found.
    gamma : float, default=0.1
        Penalty on the absolute values of the coefficients. With 0 they grow without bound if sources separate
        the classes.
    coef_init : array-like of shape (n_classes, n_components), optional
    intercept_init : array-like of shape (n_classes,), optional
        Starting values of the classifier.
    {options}

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (n_classes, n_components)
        W, for two classes too; not negative for the constraints "non_negative" and "semi" in a joint session.
    intercept_ : ndarray of shape (n_classes,)
        w0.
    history_ : ndarray of shape (n_sweeps,)
        Weighted cost after every sweep; it never increases. In a dual session that of the factorisation.
    history_parts_ : ndarray of shape (n_sweeps, 2)
        The same in two parts: of the rows with the penalties on sources and components, and of the classifier
        with that on coefficients; not saved.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.factorization import NLMFClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = NLMFClassifier(20, sigma2=0.1, max_iter=50, tol=1e-3, random_state=0).fit(X[::2] / 16, y[::2])
    >>> model.score(X[1::2] / 16, y[1::2]) > 0.9
    True
    >>> model.generate([3, 8], random_state=0).shape
    (2, 64)
    """

    n_components: int | None = option(default=None, check=check_integer, least=1, or_else=None)
    _: KW_ONLY
    session: str = option(default="joint", check=check_choice, choices=SESSIONS)
    gamma: float = option(default=0.1, check=check_number, least=0)
    coef_init: Any = None
    intercept_init: Any = None

    least_classes = 2

    @classmethod
    def from_parameters(cls, *, components, offset, coef, intercept, classes=None, **options):
        """A fitted classifier with known parameters, in the shapes of the fitted attributes.

        Without `classes` the labels are 0, 1, ... Any further keywords are those of the constructor.
        """
        check_matrix("components", components)
        check_matrix("coef", coef)
        model = cls(len(components), **options)
        model._set_classes(classes, len(coef))
        model._with_parameters(components=components, offset=offset, coef=coef, intercept=intercept)
        model._set_classes(classes, len(coef))
        return model

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.array_api_support = (
            False  # rows may be on any device, but labels, which may be text, are NumPy's
        )
        return tags

    # -- fitting --------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None):
        """Factorise the rows and fit the classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            The rows. NaN marks a missing entry.
        y : array-like of shape (n_samples,)
            The class of each row, as numbers or text; -1 for unlabelled rows, whose cross-entropy is left
            out. If y holds only two labels and one of them is -1, it is a class.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row, in any unit; integers without a common divisor are copies of rows.

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight)

    def partial_fit(self, X, y=None, sample_weight=None, classes=None):
        """Update the model with a batch of rows.

        Components as in `NLMF.partial_fit`; coefficients take a share, that of the batch, of a Newton step
        on the labels of the batch.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`. The first batch determines the starting values.
        classes : array-like of shape (n_classes,), optional
            All classes, given with the first batch; by default those among its labels.

        Returns
        -------
        self
        """
        self._declared = None if classes is None else np.unique(classes)
        try:
            super().partial_fit(X, y, sample_weight)
        finally:
            self.__dict__.pop("_declared", None)
        return self

    def _data(self, X, y=None, sample_weight=None, *, reset):
        data = super()._data(X, None, sample_weight, reset=reset)
        classes = getattr(self, "_declared", None) if reset else self.classes_
        codes = self._encoded(y, data.count_rows(), classes)
        labels = np.arange(len(self.classes_))
        return data.with_field("allowed", (codes[:, None] == labels) | (codes[:, None] == UNLABELLED))

    def _fit(self, data):
        super()._fit(data)
        if self.session == "dual":
            self._fit_classifier(self._sweeps(data, self._totals(data)), self.activations_)

    def _fit_classifier(self, sweeps, sources):
        """The minimum over coefficients, the sources being given."""
        sweeps = replace(sweeps, n_classes=len(self.classes_))
        layer = self._with_starting_coef(Layer(self.components_, self.offset_))
        self._keep(self._regression().solved(sweeps.over_features(sources), layer))

    def _warn_without_minimum(self):
        if self.session == "dual" or self.beta == 0:
            super()._warn_without_minimum()

    def _starting_layer(self, layer):
        return layer if self.session == "dual" else self._with_starting_coef(layer)

    def _with_starting_coef(self, layer):
        A, C = layer.components, len(self.classes_)
        given = self._given(A.shape[1], ("coef", "intercept"), A)
        multiplies = self._regression().positive and self.solver in ("mu", "gradient")
        level = 0.1 if multiplies else 0.0  # a zero never leaves zero
        coef, intercept = zeros((C, A.shape[0]), A) + level, zeros((C,), A) + level
        return Layer(A, layer.offset, given.get("coef", coef), given.get("intercept", intercept))

    def _layer_of_fit(self):
        return super()._layer() if self.session == "dual" else self._layer()

    def _with_classes(self, sweeps, layer, state):
        before = (
            Layer(layer.components, layer.offset, self.coef_, self.intercept_)
            if hasattr(self, "coef_")
            else (self._with_starting_coef(layer))
        )
        over = replace(sweeps, n_classes=len(self.classes_)).over_features(state)
        found = self._regression().stepped(over, before, most_steps=1)
        share = 1.0 if self.n_iter_ == 0 else self._share(self.n_iter_)
        coef = before.coef + share * (found.coef - before.coef)
        intercept = before.intercept + share * (found.intercept - before.intercept)
        return replace(before, coef=coef, intercept=intercept)

    def _keep_parts(self, parts):
        self.history_parts_ = parts

    def _gamma(self):
        return float(self.gamma)

    def _n_classes(self):
        """Of the sweeps: none where they do without labels."""
        return 0 if self.session == "dual" else len(self.classes_)

    # -- using a fitted model -------------------------------------------------------------------------

    def score_samples(self, X, *, out=None):
        """The score by which rows are rejected: minus the cost of each row without its label, (n_samples,).

        Up to a constant this is the log density of the row and its sources.
        """
        return self._rows_of(X, _scores, out)

    def _class_log_joint(self, X):
        sources = in_main_memory(self.transform(X))
        return self._logits(sources)

    def _logits(self, sources):
        """(n, C) in main memory."""
        F = self._terms().mapping.value(sources)
        return F @ to_numpy(self.coef_).T + to_numpy(self.intercept_)

    def cost(self, X, y, *, activations=None, sample_weight=None):
        """The terms of the cost of these rows and labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        y : array-like of shape (n_samples,)
            Labels; -1 for rows whose cross-entropy is left out.
        activations : array-like of shape (n_samples, n_components), optional
            Sources of the rows; by default those of `transform`.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        LabelledCost
            A record with `reconstruction`, `activations`, `components`, `classification`, `coef` and `total`.
        """
        check_is_fitted(self)
        S = in_main_memory(self.transform(X) if activations is None else activations)
        rows = self._row_terms(X, like(np.asarray(S, dtype=np.float64), self.components_))
        weight = np.ones(len(rows)) if sample_weight is None else check_weights(sample_weight, len(rows))
        codes = self._encoded(y, len(rows), self.classes_)
        v = self._logits(np.asarray(S, dtype=np.float64))
        entropy = np.where(codes == UNLABELLED, 0.0, logsumexp(v, axis=1) - v[np.arange(len(v)), codes])
        reconstruction, activation = (weight @ rows).tolist()
        parts = (
            reconstruction,
            activation,
            self.beta * float(np.abs(to_numpy(self.components_)).sum()),
            float(weight @ entropy),
            self.gamma * float(np.abs(to_numpy(self.coef_)).sum()),
        )
        return LabelledCost(*parts, sum(parts))

    def class_features(self):
        """What each class looks for in a row: its coefficients propagated to features, W A (n_classes,
        n_features).
        """
        check_is_fitted(self)
        return self.coef_ @ self.components_

    def generate_activations(self, y, *, threshold=0.99, max_iter=10000, random_state=None):
        """Sources that tell given classes.

        From random sources, ``-ln p(class | s) + alpha |s|`` is decreased until the probability of the class
        is above the threshold, or the minimum is reached.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            A class for each row to generate.
        threshold : float, default=0.99
            The probability at which to stop; with 1 the minimum is sought.
        max_iter : int, default=10000
            Maximum number of steps; with 0 the random sources are returned.
        random_state : int, Generator, RandomState or None
            Seed of this draw.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        check_number("threshold", threshold, least=0, most=1)
        check_integer("max_iter", max_iter, least=0)
        y = np.atleast_1d(np.asarray(y))
        codes = self._encoded(y, len(y), self.classes_)
        if np.any(codes == UNLABELLED):
            raise ValueError(
                f"y must hold classes to generate, among {self.classes_.tolist()}, but it holds -1"
            )
        S = as_generator(random_state).standard_normal((len(codes), self.components_.shape[0]))
        terms, layer = self._terms(), self._layer()
        S = like(np.abs(S) if terms.positive_sources else S, self.components_)
        targets = like((codes[:, None] == np.arange(len(self.classes_))).astype(np.float64), self.components_)
        return sources_of_classes(terms, layer, targets, S, threshold=threshold, max_iter=max_iter)

    def generate(self, y, *, threshold=0.99, max_iter=10000, random_state=None):
        """New rows of given classes, (n_samples, n_features): `inverse_transform` of
        `generate_activations`.
        """
        options = {"threshold": threshold, "max_iter": max_iter, "random_state": random_state}
        return self.inverse_transform(self.generate_activations(y, **options))

    # -- parameters in and out ------------------------------------------------------------------------

    def _layer(self):
        return Layer(self.components_, self.offset_, self.coef_, self.intercept_)

    def _regression(self):
        positive = self.constraint != "unconstrained" and self.session == "joint"
        return Regression(float(self.gamma), positive)

    def _keep(self, layer):
        super()._keep(layer)
        if layer.coef is not None:
            store(self, {"coef": layer.coef, "intercept": layer.intercept})

    def _parameters(self):
        free = self.constraint == "unconstrained" or self.session == "dual"
        check = check_locations if free else check_non_negative
        return (
            *super()._parameters(),
            Parameter("coef", "coef_init", ("C", "r"), check),
            Parameter("intercept", "intercept_init", ("C",), check),
        )

    def _sizes(self, n_features):
        return {**super()._sizes(n_features), "C": len(self.classes_) if hasattr(self, "classes_") else 2}

    def _set_fitted_arrays(self, **given):
        if not hasattr(self, "classes_") or len(self.classes_) != np.shape(given["coef"])[0]:
            self._set_classes(None, np.shape(given["coef"])[0])
        super()._set_fitted_arrays(**given)


@for_method("score_samples")
def _scores(terms, known, block):
    return -total_costs(terms, known, block)
