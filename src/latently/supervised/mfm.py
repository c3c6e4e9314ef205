"""Mixtures of factor models with a label that depends on the factors."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from itertools import chain, islice
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_softmax
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import double, namespace, to_numpy
from latently.core.drivers import LOG_LIKELIHOOD, State, em_step, relative, run
from latently.core.search import COSTLY
from latently.core.tree import mapped
from latently.distributions.labelled import (
    LabelledMixture,
    LabelledParams,
    class_log_joint,
    class_probabilities,
)
from latently.distributions.responsibilities import normalise
from latently.estimators.checks import check_choice, check_integer, check_locations, check_number, numbers
from latently.estimators.classifier import DensityClassifier, check_temperature
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter
from latently.estimators.rows import for_method, in_main_memory, rows_of
from latently.estimators.starts import SEARCH_TOL
from latently.mixture.base import MixtureEstimator, most_probable, probabilities
from latently.mixture.degenerate import is_degenerate
from latently.mixture.factors import FactorMethods, averaged_factors, rows_of_factors
from latently.mixture.mfa import MFA
from latently.mixture.structure import LowRankStructure
from latently.supervised import labelled


@dataclass(frozen=True)
class LabelledStructure(LowRankStructure):
    """L isotropic factor models, and a probit regression on the factors for every question about classes."""

    n_classes: int = 2
    emphasis: float = 1.0  # weight of the labels
    newton: bool = False  # whether fits take Gauss-Newton steps

    @property
    def n_questions(self):
        return self.n_classes if self.n_classes > 2 else 1

    @property
    def parameters(self):
        return (
            *super().parameters,
            Parameter("coef", "coef_init", ("J", "q"), check_locations),
            Parameter("intercept", "intercept_init", ("J",), check_locations),
        )

    def sizes(self, n_features):
        return {**super().sizes(n_features), "J": self.n_questions}

    @property
    def start_dimensions(self):
        return self.n_factors  # some random starts: k-means may find the classes, which components are not

    @property
    def most_starts(self):
        return 12  # their steps cost several times those of other mixtures

    def kernel(self, family, dtype):
        return LabelledMixture(
            family,
            dtype,
            n_classes=max(2, self.n_classes),
            emphasis=self.emphasis,
            newton=self.newton,
        )

    def to_kernel(self, fitted):
        plain = super().to_kernel(fitted)
        return LabelledParams(plain.weights, plain.components, fitted["coef"], fitted["intercept"])

    def from_kernel(self, params):
        return {**super().from_kernel(params), "coef": params.coef, "intercept": params.intercept}


_BRIEFLY, _LONGER = 10, 100  # steps of all starts, and of the leaders
_LEADERS = 3
_AS_PROBABLE = 0.01  # nats per label within which optima are told apart by the objective instead


@dataclass(frozen=True)
class LabelSearch:
    """Which of several starts leads to an optimum that predicts labels.

    The likelihood of rows and labels is nearly that of rows alone: rows have many entries, labels one. Its
    highest optimum often has components that describe rows a little better and factors that say nothing of
    the class. So of the optima that starts lead to the one with the most probable labels given rows is taken,
    and of those with equally probable labels the likeliest.
    """

    step: Any
    stop: Any
    label_loss: Any  # of parameters: the mean of -ln P(z | x) over labelled rows
    clean: Any  # whether no component is degenerate
    effort: Any = COSTLY

    def best(self, starts, near, n_near=0, n_vain=None):
        """The end of the best run, and whether the user interrupted; a single start is returned unchanged."""
        starts = iter(starts)
        first, second = next(starts), next(starts, None)
        if second is None:
            return first, False
        ends: list[Any] = []
        try:
            for start in chain([first, second], starts):
                ends.append(self._run(State.at(start), _BRIEFLY))
            for start in islice(near(self._ranked(ends)[0].params), n_near):
                ends.append(self._run(State.at(start), _BRIEFLY))
            leaders = self._ranked(ends)[:_LEADERS]
            return self._ranked([self._run(end.state(), _LONGER) for end in leaders])[0].params, False
        except KeyboardInterrupt:
            if not ends:
                raise
            return self._ranked(ends)[0].params, True

    def _run(self, state, n_steps):
        end = run(self.step, state, max_iter=n_steps, stop=self.stop)
        if end.interrupted:
            raise KeyboardInterrupt
        return end

    def _ranked(self, ends):
        losses = [self.label_loss(end.params) for end in ends]
        least = min(losses)

        def rank(i):
            equal = losses[i] <= least + _AS_PROBABLE
            return not self.clean(ends[i].params), not equal, -ends[i].history[-1] if equal else losses[i]

        return [ends[i] for i in sorted(range(len(ends)), key=rank)]


@dataclass(frozen=True)
class Risks:
    """Expected cost of each decision about a row; all arrays have shape (n_samples,).

    Attributes
    ----------
    dimension : ndarray
        Expected squared error of `transform`: the trace of the covariance of the factors given the row.
    classification : ndarray
        Probability that `predict` is wrong.
    latent_classification : ndarray
        The same for a decision based on the factors from `transform`, treated as exact.
    clustering : ndarray
        Probability that `predict_component` is wrong.
    """

    dimension: np.ndarray
    classification: np.ndarray
    latent_classification: np.ndarray
    clustering: np.ndarray


@estimator
class MFMClassifier(  # type: ignore[misc]  # it predicts classes, where a mixture predicts components
    DensityClassifier, ClassNamePrefixFeaturesOutMixin, TransformerMixin, MixtureEstimator
):
    """Mixture of factor models with a probit label (MFM): factors that describe and discriminate.

    A component l is drawn with probability pi_l, factors y from N(0, I), and x = G_l y + mu_l + noise with
    noise ~ N(0, sigma_l^2 I). The label depends on the factors alone: of two classes, the second has
    probability Phi(w'y + b). So the same few factors describe a row and predict its class. Without labels
    this is MPPCA.

    With more than two classes each class has its own w and b, for the question "is it class c?" (one versus
    rest). The mean over questions of ln p(x, answer) is maximised. The probability of a class is the
    probability of its combined answers, normalised.

    Parameters
    ----------
    n_components : int, default=1
        Number of components L.
    n_factors : int, default=1
        Number of factors d, at least one.
    discriminative_weight : float, default=1.0
        The weight a of the labels: the fit maximises the mean of ln p(x) + a ln P(z | x). One gives the
        likelihood; larger values favour factors that separate the classes over factors that describe rows.
    unlabelled_weight : float or "auto", default="auto"
        Weight of unlabelled rows in `fit`, relative to labelled ones: 0 leaves them out, 1 counts them fully.
        "auto" counts them fully up to three times the total weight of labelled rows, and keeps them at that
        if there are more; up to 0.3 times, or not at all, where they turn classes away from the labels: where
        they change the classes of too many rows in quick fits. With prior=None it counts them fully.
    temperature : float, "auto" or None, default="auto"
        `predict_proba` gives the posteriors of p(x, class)^(1/T); T > 1 makes them less certain, and
        `predict` does not depend on it. "auto" learns T >= 1, and a share of equal probabilities (`doubt_`),
        by the log loss of labelled rows: with fewer than 100 per class on average
        of rows held out of five more fits, else of (some of) the rows of the fit. None is Bayes' rule.
    accelerate : {"anderson", "squarem", None}, default="anderson"
        "anderson" and "squarem" take longer steps, with Gauss-Newton steps for the classifier, which are
        checked: the objective never decreases, and the fixed points are those of EM. "anderson" extrapolates
        from the last steps and takes one or two passes over the data per iteration, "squarem" three or four.
        None is plain EM.
    n_init : int or "auto", default="auto"
        Number of starts. After ten steps the three that make the labels of rows most probable continue, and
        the best of them is fitted. "auto" is up to 12. One component needs one start.
    {options}

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    loadings_ : ndarray of shape (n_components, n_features, n_factors)
    noise_variance_ : ndarray of shape (n_components, n_features)
        The same for all features.
    coef_ : ndarray of shape (1, n_factors) or (n_classes, n_factors)
        w of the second class for two classes, or of each class for more.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    covariances_ : ndarray of shape (n_components, n_features, n_features)
        Computed on access.
    temperature_ : float
    doubt_ : float
        Share of equal probabilities of all classes in `predict_proba`.
    {attributes}

    Notes
    -----
    The factors of each component can be rotated about w without changing the density of rows and labels. With
    several components and three or more factors, `transform`, `reconstruct` with `least_squares=False` and
    the risk `dimension` therefore depend on the rotation found, except where the `clustering` risk is zero.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from latently.supervised import MFMClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MFMClassifier(n_components=2, n_factors=4, random_state=0).fit(scale(X)[::2], y[::2])
    >>> model.score(scale(X)[1::2], y[1::2]) > 0.9
    True
    >>> model.transform(scale(X)).shape
    (569, 4)
    """

    n_components: int = option(default=1, check=check_integer, least=1)
    n_factors: int = option(default=1, check=check_integer, least=1)
    _: KW_ONLY
    discriminative_weight: float = option(default=1.0, check=check_number, least=0)
    unlabelled_weight: Any = option(default="auto", check=labelled.check_unlabelled_weight)
    temperature: Any = option(default="auto", check=check_temperature)
    accelerate: Any = option(default="anderson", check=check_choice, choices=(None, "squarem", "anderson"))
    weights_init: Any = None
    means_init: Any = None
    loadings_init: Any = None
    noise_init: Any = None
    coef_init: Any = None
    intercept_init: Any = None

    objective = replace(
        LOG_LIKELIHOOD, name="objective per row"
    )  # log-likelihood of rows and labels, the latter with their weight
    least_classes: ClassVar = 2

    @classmethod
    def from_parameters(
        cls, *, weights, means, loadings, noise_variance, coef, intercept, classes=None, **options
    ):
        """A fitted classifier with known parameters, in the shapes of the fitted attributes.

        For two classes, `coef` may be of shape (n_factors,) and `intercept` a number; without `classes` the
        labels are 0, 1, ... Any further keywords are those of the constructor.
        """
        if np.ndim(weights) != 1 or np.ndim(loadings) != 3:
            raise ValueError(
                "weights must have shape (n_components,) and loadings (n_components, n_features, n_factors)"
            )
        model = cls(len(weights), np.shape(loadings)[2], **options)._with_parameters(
            weights=weights,
            means=means,
            loadings=loadings,
            noise_variance=noise_variance,
            coef=coef,
            intercept=intercept,
        )
        model._set_classes(classes, labelled.n_classes(model))
        return model

    fit, sample = labelled.fit, labelled.sample

    def partial_fit(self, X, y=None, sample_weight=None, classes=None):
        if self.discriminative_weight > 1:
            raise ValueError("partial_fit needs a discriminative_weight of at most 1")
        return labelled.partial_fit(self, X, y, sample_weight, classes)

    partial_fit.__doc__ = labelled.partial_fit.__doc__

    def __sklearn_tags__(self):
        return labelled.with_tags(self, super().__sklearn_tags__())

    # -- factors --------------------------------------------------------------------------------------

    _n_features_out = FactorMethods._n_features_out
    _check_features = FactorMethods._check_features
    transform = FactorMethods.transform
    inverse_transform = FactorMethods.inverse_transform
    factor_posterior = FactorMethods.factor_posterior
    covariances_ = MFA.covariances_

    # -- decisions ----------------------------------------------------------------------------------

    def score_samples(self, X, y=None, *, out=None):
        """Log density of each row, or of each row and its label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        y : array-like of shape (n_samples,), optional
            Labels: the result is then ln p(x, z), or ln p(x) for rows labelled -1.
        out : path of a .npy file, optional
            Write the result to this file block by block; only without y.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        if y is None:
            return super().score_samples(X, out=out)
        if out is not None:
            raise ValueError("out can only be used without y")
        return self._joint_scores(X, y)

    def predict_component(self, X):
        """Most probable component of each row given x alone, (n_samples,)."""
        return rows_of(self, X, most_probable)

    def predict_from_factors(self, X):
        """Class of each row predicted from its factors (`transform`) alone, (n_samples,)."""
        return self.classes_[np.argmax(self._latent_probabilities(X), axis=1)]

    def risks(self, X):
        """Expected cost of each decision about a row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks

        Returns
        -------
        Risks
            A record of arrays (n_samples,): `dimension`, `classification`, `latent_classification` and
            `clustering`.
        """
        return Risks(
            dimension=in_main_memory(rows_of(self, X, factor_spread)),
            classification=1.0 - np.max(self.predict_proba(X), axis=1),
            latent_classification=1.0 - np.max(self._latent_probabilities(X), axis=1),
            clustering=in_main_memory(rows_of(self, X, doubt_of_component)),
        )

    def reconstruct(self, X, least_squares=False, *, out=None):
        """Rows reconstructed by their most probable component, (n_samples, n_features).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        least_squares : bool, default=False
            Whether to project each row on the loadings of that component, which minimises the squared error,
            instead of using the factors from `transform`.
        out : path of a .npy file, optional
            Write the result to this file block by block.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        return rows_of(self, X, projected_rows if least_squares else rows_from_factors, out=out)

    def _class_log_joint(self, X):
        return in_main_memory(rows_of(self, X, of_classes))

    def _latent_probabilities(self, X):
        factors = in_main_memory(rows_of(self, X, averaged_factors))
        coef, intercept = to_numpy(self.coef_), to_numpy(self.intercept_)
        return class_probabilities(coef, intercept, labelled.n_classes(self), factors)

    def n_parameters(self):
        """Number of free parameters of the fitted density of rows and labels.

        Loadings are counted up to rotations about the coefficients of the classifier. With as many factors as
        features, noise of the rows can be exchanged for uncertainty of the label, unless the angles between
        three or more coefficients must fit several components.
        """
        check_is_fitted(self)
        L, D, d, J = self.n_components, self.n_features_in_, self.n_factors, self._n_questions()
        seen = min(d, J)  # dimension of the factor space that the classifier uses
        turns = (d - seen) * (d - seen - 1) // 2
        traded = d == D and 1 in (L, J, D)
        return L - 1 + L * (D + 1 + D * d - turns) + J + J * seen - seen * (seen - 1) // 2 - traded

    # -- fitting --------------------------------------------------------------------------------------

    def _structure(self):
        return LabelledStructure(
            self.n_components,
            self.n_factors,
            isotropic=True,
            n_classes=labelled.n_classes(self),
            emphasis=float(self.discriminative_weight),
            newton=self.accelerate is not None and self.batch_size is None,
        )

    def _n_questions(self):
        return self._structure().n_questions

    def _check_options(self):
        super()._check_options()
        if self.discriminative_weight == 0:
            raise ValueError("discriminative_weight must be above 0; without labels use MPPCA")
        if self.discriminative_weight > 1 and self.batch_size is not None:
            raise ValueError("batch_size needs a discriminative_weight of at most 1")

    def _fit(self, data):
        known = labelled.known_classes(self, data)
        learnt = labelled.learn(self, known)
        labelled.fit_learnt(self, labelled.lightened(self, data, known, learnt), known, learnt)

    _prior, _start = labelled.prior, labelled.start

    def _search(self, problem, sample):
        """How starts are compared: by the labels of a sample of the rows."""
        here = problem.in_main_memory()
        if sample.allowed is None:  # a class of which all rows are
            return super()._search(problem, sample)
        told = ~sample.allowed.all(axis=1)
        block, codes = sample.where(told), np.argmax(sample.allowed[told], axis=1)
        rows = max(float(np.sum(sample.weight)), float(len(sample)))

        def label_loss(params):
            density = here.kernel.prepare(mapped(to_numpy, params))
            joint = class_log_joint(here.kernel, density, replace(block, allowed=None))
            joint = log_softmax(joint, axis=1)
            loss = -np.average(joint[np.arange(len(codes)), codes], weights=block.weight)
            return float(loss) if np.isfinite(loss) else np.inf

        return LabelSearch(
            em_step(problem.kernel, problem.sweep_of_sample(sample)),
            relative(max(self.tol, SEARCH_TOL)),
            label_loss,
            lambda params: not is_degenerate(problem.kernel, params, rows),
        )

    _allowed = labelled.allowed_classes
    _set_fitted_arrays = labelled.set_fitted_arrays

    def _class_of_draw(self, codes):
        return to_numpy(codes)

    def _n_classes_of(self, given):
        coef = numbers("coef", given["coef"])
        if coef.ndim not in (1, 2) or (coef.ndim == 2 and coef.shape[0] == 2):
            raise ValueError(
                "coef must have shape (n_factors,) or (1, n_factors) for two classes, or "
                f"(n_classes, n_factors) for more, not {coef.shape}"
            )
        return coef.shape[0] if coef.ndim == 2 and coef.shape[0] > 2 else 2


@for_method("predict")
def of_classes(kernel, density, frame, block):
    """(n, C) ln p(x, class)."""
    framed = frame.enter(block)
    volume = frame.log_volume(framed)
    return class_log_joint(kernel, density, framed) - (volume if volume.ndim == 0 else volume[:, None])


def posterior(kernel, density, frame, block):
    """Probabilities of the components (n, L), means of the factors (n, L, d), and the rows' latent state."""
    log_joint, latent = kernel.family.evaluate(density, frame.enter(block))
    return normalise(log_joint)[1].T, kernel.family.factor_means(density, latent), latent


@for_method("risks")
def factor_spread(kernel, density, frame, block):
    """(n,) the trace of the covariance of the factors."""
    resp, M, latent = posterior(kernel, density, frame, block)
    xp = namespace(resp)
    R = kernel.family.factor_covariances(density, latent, len(block))  # (n, L, d, d)
    within = xp.sum(xp.linalg.diagonal(R), axis=-1)
    mean = xp.sum(resp[:, :, None] * M, axis=1)
    between = xp.sum((M - mean[:, None, :]) ** 2, axis=2)
    return xp.sum(resp * (within + between), axis=1)


@for_method("risks")
def doubt_of_component(kernel, density, frame, block):
    """(n,) the probability of all components but the most probable."""
    resp = probabilities(kernel, density, frame, block)
    xp = namespace(resp)
    best = xp.argmax(resp, axis=1)[:, None] == xp.arange(resp.shape[1])
    return xp.sum(xp.where(best, 0.0, resp), axis=1)


@for_method("reconstruct")
def rows_from_factors(kernel, density, frame, block):
    """(n, D) G y + mu of the most probable component, with the factors averaged over components."""
    resp, M, _ = posterior(kernel, density, frame, block)
    xp = namespace(resp)
    y, best = xp.sum(resp[:, :, None] * M, axis=1), xp.argmax(resp, axis=1)
    return rows_of_factors(density, y, best) * frame.scale + frame.shift


@for_method("reconstruct")
def projected_rows(kernel, density, frame, block):
    """(n, D) the observed part of a row projected on the loadings of its most probable component."""
    framed = frame.enter(block)
    resp = normalise(kernel.family.evaluate(density, framed)[0])[1].T
    xp = namespace(resp)
    best = xp.argmax(resp, axis=1)
    rows = xp.zeros_like(framed.X)
    for k in range(resp.shape[1]):
        own = best == k
        if not bool(xp.any(own)):
            continue
        mu, G = density.means[k, :], density.loadings[k, ...]
        part = framed.where(own)
        if part.observed is None:
            y = (part.X - mu) @ xp.linalg.pinv(G).T
        else:
            seen = double(xp.astype(part.observed, xp.float64))
            D, d = G.shape
            squares = xp.reshape(seen @ xp.reshape(G[:, :, None] * G[:, None, :], (D, d * d)), (-1, d, d))
            y = (xp.linalg.pinv(squares) @ ((part.X - mu * seen) @ G)[..., None])[..., 0]
        rows[own, :] = mu + y @ G.T
    return rows * frame.scale + frame.shift
