"""Mixtures of factor models with a label that hangs on the factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import double, namespace, to_numpy
from latently.distributions.labelled import (
    LabelledMixture,
    LabelledParams,
    class_log_joint,
    class_probabilities,
)
from latently.distributions.responsibilities import normalise
from latently.mixture._clusters import most_probable, probabilities
from latently.mixture._docs import shares_docs
from latently.mixture._engine import for_method, in_main_memory
from latently.mixture._factors import FactorMixture, averaged_factors
from latently.mixture._validation import check_integer, check_number, numbers
from latently.supervised._mixtures import ClassifyingMixture


@dataclass(frozen=True)
class Risks:
    """What each decision about a row is expected to cost, each of shape (n_samples,).

    Attributes
    ----------
    dimension : ndarray
        Expected squared error of `transform`: the trace of the covariance of the factors given the row.
    classification : ndarray
        Probability that `predict` errs.
    latent_classification : ndarray
        The same if one decides by the factors from `transform`, as if they were exact.
    clustering : ndarray
        Probability that `predict_component` errs.
    """

    dimension: np.ndarray
    classification: np.ndarray
    latent_classification: np.ndarray
    clustering: np.ndarray


@shares_docs
class MFMClassifier(ClassifyingMixture, FactorMixture):
    """Mixture of factor models with a probit label (MFM): factors that describe and discriminate.

    A component l is drawn with probability pi_l, factors y from N(0, I), and x = G_l y + mu_l + noise with
    noise ~ N(0, sigma_l^2 I). The label hangs on the factors alone: of two classes, the second has
    probability Phi(w'y + b). So a few factors must tell both what a row looks like and to which class it
    belongs. Without labels this is MPPCA.

    With more than two classes there is a w and b for each, which answer the question "is it class c?". The
    mean over questions of ln p(x, answer) is maximised, and the probability of a class is that of the answers
    it gives, put together and normalised.

    Parameters
    ----------
    n_components : int, default=1
        Number of components L.
    n_factors : int, default=1
        Number of factors d, at least one.
    discriminative_weight : float, default=1.0
        The weight a of the labels: what is maximised is the mean of ln p(x) + a ln P(z | x). One is the
        likelihood; more makes factors that tell classes apart at the cost of describing rows.
    reject_below : float, optional
        Rows whose log density is below are rejected by `predict`. See also `calibrate_rejection`.
    {shared}

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    loadings_ : ndarray of shape (n_components, n_features, n_factors)
    noise_variance_ : ndarray of shape (n_components, n_features)
        The same for all features.
    coef_ : ndarray of shape (1, n_factors) or (n_classes, n_factors)
        w of the second of two classes, or of each of more.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    covariances_ : ndarray of shape (n_components, n_features, n_features)
        Worked out when asked for.
    reject_below_ : float
    {fitted}

    Notes
    -----
    The factors of each component can be turned about w without changing the density of rows and labels. So
    with several components and three factors or more, `transform`, plain `reconstruct` and the risk
    `dimension` hang on the turn that was found, except where `clustering` risk is nil.

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

    _LEAST_CLASSES: ClassVar = 2
    _OBJECTIVE: ClassVar = "objective per row"  # of rows and labels, these with their weight
    _PARAMETERS: ClassVar = {
        "weights": "weights_init",
        "means": "means_init",
        "loadings": "loadings_init",
        "noise_variance": "noise_init",
        "coef": "coef_init",
        "intercept": "intercept_init",
    }

    def __init__(
        self,
        n_components=1,
        n_factors=1,
        *,
        discriminative_weight=1.0,
        reject_below=None,
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        init="kmeans",
        weights_init=None,
        means_init=None,
        loadings_init=None,
        noise_init=None,
        coef_init=None,
        intercept_init=None,
        noise_floor=1e-6,
        accelerate="squarem",
        batch_size=None,
        learning_decay=0.7,
        learning_offset=10.0,
        checkpoint=None,
        checkpoint_every=10,
        block_size=None,
        dtype="float64",
        random_state=None,
        warm_start=False,
        verbose=0,
        callbacks=None,
    ):
        super().__init__(
            n_factors=n_factors,
            max_iter=max_iter,
            tol=tol,
            n_init=n_init,
            init=init,
            means_init=means_init,
            loadings_init=loadings_init,
            noise_init=noise_init,
            noise_floor=noise_floor,
            accelerate=accelerate,
            batch_size=batch_size,
            learning_decay=learning_decay,
            learning_offset=learning_offset,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            block_size=block_size,
            dtype=dtype,
            random_state=random_state,
            warm_start=warm_start,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.n_components = n_components
        self.discriminative_weight = discriminative_weight
        self.reject_below = reject_below
        self.weights_init = weights_init
        self.coef_init = coef_init
        self.intercept_init = intercept_init

    @classmethod
    def from_parameters(cls, *, weights, means, loadings, noise_variance, coef, intercept, classes=None):
        """A fitted classifier with known parameters, in the shapes of the fitted attributes.

        Of two classes, `coef` may be of shape (n_factors,) and `intercept` a number; without `classes` the
        labels are 0, 1, ...
        """
        if np.ndim(weights) != 1 or np.ndim(loadings) != 3:
            raise ValueError(
                "weights must have shape (n_components,) and loadings (n_components, n_features, n_factors)"
            )
        model = cls(len(weights), np.shape(loadings)[2])
        model._check_hyperparameters()
        model._set_parameters(
            weights=weights,
            means=means,
            loadings=loadings,
            noise_variance=noise_variance,
            coef=coef,
            intercept=intercept,
        )
        model._set_classes(classes, model._n_classes())
        return model

    # -- decisions ----------------------------------------------------------------------------------

    def score_samples(self, X, y=None):
        """Log density of each row, or of each row and its label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        y : array-like of shape (n_samples,), optional
            Labels: then ln p(x, z) is given, and ln p(x) for rows labelled -1.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return super().score_samples(X) if y is None else self._joint_scores(X, y)

    def predict_component(self, X):
        """The most probable component of each row, (n_samples,); labels are not asked for."""
        return self._rows_of(X, most_probable)

    def predict_from_factors(self, X):
        """The class of each row judged by its factors from `transform` alone, (n_samples,)."""
        return self.classes_[np.argmax(self._latent_probabilities(X), axis=1)]

    def risks(self, X):
        """What each decision about a row is expected to cost.

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
            dimension=in_main_memory(self._rows_of(X, factor_spread)),
            classification=1.0 - np.max(self.predict_proba(X), axis=1),
            latent_classification=1.0 - np.max(self._latent_probabilities(X), axis=1),
            clustering=in_main_memory(self._rows_of(X, doubt_of_component)),
        )

    def reconstruct(self, X, least_squares=False, *, out=None):
        """The rows as their most probable component has them, (n_samples, n_features).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        least_squares : bool, default=False
            Whether to project the row on the loadings of that component, which brings it as close to the row
            as can be, in place of taking the factors from `transform`.
        out : path of a .npy file, optional
            Where to write the result block by block.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        return self._rows_of(X, projected_rows if least_squares else rows_from_factors, out=out)

    def _class_log_joint(self, X):
        return in_main_memory(self._rows_of(X, of_classes))

    def _latent_probabilities(self, X):
        factors = in_main_memory(self._rows_of(X, averaged_factors))
        coef, intercept = to_numpy(self.coef_), to_numpy(self.intercept_)
        return class_probabilities(coef, intercept, self._n_classes(), factors)

    def sample(self, n_samples=1, *, random_state=None):
        """Draw rows and their classes from the model.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        y : ndarray of shape (n_samples,)
        """
        X, codes = super().sample(n_samples, random_state=random_state)
        return X, self.classes_[to_numpy(codes)]

    def n_parameters(self):
        """Number of free parameters of the fitted density of rows and labels.

        Loadings count up to turns about the coefficients of the classifier. With as many factors as features,
        noise of the rows can be traded for doubt about the label, except where the angles between three or
        more coefficients have to suit several components.
        """
        check_is_fitted(self)
        L, D, d, J = self.n_components, self.n_features_in_, self.n_factors, self._n_questions()
        seen = min(d, J)  # directions of the factors that the classifier tells apart
        turns = (d - seen) * (d - seen - 1) // 2
        traded = d == D and 1 in (L, J, D)
        return L - 1 + L * (D + 1 + D * d - turns) + J + J * seen - seen * (seen - 1) // 2 - traded

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self.n_factors == 1  # one factor has room for one plane
        return tags

    # -- for the engine -----------------------------------------------------------------------------

    def _check_hyperparameters(self):
        super()._check_hyperparameters()
        check_integer("n_factors", self.n_factors, least=1)
        check_number("discriminative_weight", self.discriminative_weight, least=0)
        if self.discriminative_weight == 0:
            raise ValueError("discriminative_weight must be above 0; without labels there is MPPCA")
        if self.discriminative_weight > 1 and self.batch_size is not None:
            raise ValueError("batch_size needs a discriminative_weight of at most 1")

    def _partial_fit(self, X, y, sample_weight):
        if self.discriminative_weight > 1:
            raise ValueError("partial_fit needs a discriminative_weight of at most 1")
        return super()._partial_fit(X, y, sample_weight)

    def _noise(self):
        return True, False

    def _in_dimensions(self):
        return self.n_factors  # some starts by chance: k-means may find the classes, which no component is

    def _mixture(self, family):
        C, weight = max(2, self._n_classes()), float(self.discriminative_weight)
        return LabelledMixture(family, self.dtype, n_classes=C, emphasis=weight)

    def _n_questions(self):
        C = self._n_classes()
        return C if C > 2 else 1

    def _n_classes_of(self, given):
        coef = numbers("coef", given["coef"])
        if coef.ndim not in (1, 2) or (coef.ndim == 2 and coef.shape[0] == 2):
            raise ValueError(
                "coef must have shape (n_factors,) or (1, n_factors) for two classes, or "
                f"(n_classes, n_factors) for more, not {coef.shape}"
            )
        return coef.shape[0] if coef.ndim == 2 and coef.shape[0] > 2 else 2

    def _shapes(self, D):
        J = self._n_questions()
        return super()._shapes(D) | {"coef": (J, self.n_factors), "intercept": (J,)}

    def _to_kernel(self, fitted):
        plain = super()._to_kernel(fitted)
        return LabelledParams(plain.weights, plain.components, fitted["coef"], fitted["intercept"])

    def _from_kernel(self, params):
        return super()._from_kernel(params) | {"coef": params.coef, "intercept": params.intercept}


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
    rows = xp.take(density.means, best, axis=0)
    for k in range(resp.shape[1]):
        rows = xp.where((best == k)[:, None], rows + y @ density.loadings[k, ...].T, rows)
    return rows * frame.scale + frame.shift


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
