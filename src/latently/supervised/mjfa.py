"""Two-layer mixtures of factor analysers with joint loadings."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from latently.backend.namespace import like, namespace, to_numpy
from latently.distributions.groups import ClassGroups, by_group, joint_weights, split_weights
from latently.distributions.responsibilities import normalise
from latently.estimators.checks import (
    check_class_prior,
    check_flag,
    check_integer,
    check_locations,
    check_mixing_weights,
    check_positive,
)
from latently.estimators.classifier import DensityClassifier, check_temperature
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter
from latently.estimators.rows import for_method, in_main_memory, rows_of
from latently.mixture.base import MixtureEstimator
from latently.mixture.factors import FactorMethods
from latently.mixture.mcfa import MCFA, check_loadings_given
from latently.mixture.structure import CommonStructure, common_covariances
from latently.supervised import labelled
from latently.supervised.borrowing import borrowed_rows, check_shrinkage


@dataclass(frozen=True)
class ClassStructure(CommonStructure):
    """C classes of K components with common loadings; `n_components` is C K."""

    n_groups: int = 1  # type: ignore[assignment]
    class_prior: Any = None  # (C,), if given

    @property
    def parameters(self):
        return (
            Parameter("class_prior", "class_prior_init", ("C",), check_mixing_weights),
            Parameter("weights", "weights_init", ("C", "K"), check_rows_of_weights),
            Parameter("loadings", "loadings_init", ("D", "q"), check_locations),
            Parameter("latent_means", "latent_means_init", ("C", "K", "q"), check_locations),
            Parameter(
                "latent_covariances", "latent_covariances_init", ("C", "K", "q", "q"), self.check_latent
            ),
            Parameter("noise_variance", "noise_init", ("D",), check_positive),
        )

    def sizes(self, n_features):
        per_class = self.n_components // self.n_groups
        return {"C": self.n_groups, "K": per_class, "D": n_features, "q": self.n_factors}

    @property
    def least_rows(self):
        return self.n_components // self.n_groups  # a small class may leave components empty

    def kernel(self, family, dtype):
        return ClassGroups(family, dtype, self.n_components // self.n_groups, self.class_prior)

    def to_kernel(self, fitted):
        C, K, q = fitted["latent_means"].shape
        xp = namespace(fitted["latent_means"])
        flat = {
            "weights": joint_weights(fitted["class_prior"], fitted["weights"]),
            "latent_means": xp.reshape(fitted["latent_means"], (C * K, q)),
            "latent_covariances": xp.reshape(fitted["latent_covariances"], (C * K, q, q)),
        }
        return super().to_kernel({**fitted, **flat})

    def from_kernel(self, params):
        flat = super().from_kernel(params)
        rho, pi = split_weights(flat["weights"], self.n_groups)
        if self.class_prior is not None:  # equal to the sums up to rounding
            rho = like(self.class_prior, rho)
        by_class = {
            name: by_group(flat[name], self.n_groups) for name in ("latent_means", "latent_covariances")
        }
        return {**flat, **by_class, "class_prior": rho, "weights": pi}

    def exact(self, params, fitted):
        # exactly the weights of the model when it is read from a file
        weights = joint_weights(fitted["class_prior"], fitted["weights"])
        return super().exact(replace(params, weights=weights), fitted)

    def completed(self, ours, given):
        if "loadings" in given:
            raise ValueError("loadings_init needs all other starting values too, because they depend on it")
        return {**ours, **given}


def check_rows_of_weights(shown_as, array):
    """Weights (C, K) whose rows each sum to one."""
    return np.stack([check_mixing_weights(f"each row of {shown_as}", row) for row in array])


@estimator
class MJFAClassifier(  # type: ignore[misc]  # it predicts classes, where a mixture predicts components
    DensityClassifier, ClassNamePrefixFeaturesOutMixin, TransformerMixin, MixtureEstimator
):
    """Two-layer mixture of factor analysers with joint loadings (2L-MJFA): classes in one common subspace.

    A class c is drawn with probability rho_c, one of its K components with probability pi_ck, factors z from
    N(xi_ck, Omega_ck), and x = A z + noise with noise ~ N(0, diag(psi)). All classes share the loadings A and
    the noise, so there are few parameters, and rows of all classes can be plotted in one factor space. With
    one component per class it is an MCFA whose components are the classes.

    Unlabelled rows are used too: they contribute to each class with its posterior probability.

    Parameters
    ----------
    n_components : int, default=1
        Number of components K of each class.
    n_factors : int, default=1
        Number of factors q, at least one.
    shared_covariance : bool, default=False
        Whether all components share one covariance of the factors. They then differ only in their means,
        which needs far fewer parameters: worth a try with few rows.
    class_prior : array-like of shape (n_classes,), optional
        Probabilities of the classes, in ascending order of their labels. By default they are estimated; with
        all rows labelled they are the class frequencies.
    shrinkage : float, "auto" or None, default="auto"
        How many rows each class borrows on average from what classes share: the deviations of all labelled
        rows from their class means. "auto" is ten rows and more where classes seem to differ by chance only
        (closed form), of both the fraction 5 / n for classes of n > 5 rows; with 20 to 100 rows per class
        cross-validation decides whether to borrow at all, and with more they borrow none. None or 0 borrows
        none, as does "auto" with prior=None; infinitely many would give all classes one covariance.
        `partial_fit` borrows none.
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
    {options}

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_prior_ : ndarray of shape (n_classes,)
    weights_ : ndarray of shape (n_classes, n_components)
        Weights of the components within each class; every row sums to one.
    loadings_ : ndarray of shape (n_features, n_factors)
        A, with orthonormal columns.
    latent_means_ : ndarray of shape (n_classes, n_components, n_factors)
    latent_covariances_ : ndarray of shape (n_classes, n_components, n_factors, n_factors)
        May be singular.
    noise_variance_ : ndarray of shape (n_features,)
    means_ : ndarray of shape (n_classes, n_components, n_features)
        Computed on access, as is `covariances_`.
    covariances_ : ndarray of shape (n_classes, n_components, n_features, n_features)
    temperature_ : float
    doubt_ : float
        Share of equal probabilities of all classes in `predict_proba`.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from latently.supervised import MJFAClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MJFAClassifier(n_components=2, n_factors=3, random_state=0).fit(scale(X)[::2], y[::2])
    >>> model.score(scale(X)[1::2], y[1::2]) > 0.9
    True
    >>> model.transform(scale(X)).shape
    (178, 3)
    """

    n_components: int = option(default=1, check=check_integer, least=1)
    n_factors: int = option(default=1, check=check_integer, least=1)
    _: KW_ONLY
    shared_covariance: bool = option(default=False, check=check_flag)
    class_prior: Any = None
    shrinkage: Any = option(default="auto", check=check_shrinkage)
    unlabelled_weight: Any = option(default="auto", check=labelled.check_unlabelled_weight)
    temperature: Any = option(default="auto", check=check_temperature)
    class_prior_init: Any = None
    weights_init: Any = None
    loadings_init: Any = None
    latent_means_init: Any = None
    latent_covariances_init: Any = None
    noise_init: Any = None

    @classmethod
    def from_parameters(
        cls,
        *,
        class_prior,
        weights,
        loadings,
        latent_means,
        latent_covariances,
        noise_variance,
        classes=None,
        **options,
    ):
        """A fitted classifier with known parameters, in the shapes of the fitted attributes.

        The loadings are kept as they are; `fit` makes them orthonormal. Without `classes` the labels are
        0, 1, ... Any further keywords are those of the constructor.
        """
        if np.ndim(weights) != 2 or np.ndim(loadings) != 2:
            raise ValueError(
                "weights must have shape (n_classes, n_components) and loadings (n_features, n_factors)"
            )
        model = cls(np.shape(weights)[1], np.shape(loadings)[1], **options)._with_parameters(
            class_prior=class_prior,
            weights=weights,
            loadings=loadings,
            latent_means=latent_means,
            latent_covariances=latent_covariances,
            noise_variance=noise_variance,
        )
        model._set_classes(classes, len(model.class_prior_))
        return model

    fit, partial_fit, sample = labelled.fit, labelled.partial_fit, labelled.sample

    def __sklearn_tags__(self):
        return labelled.with_tags(self, super().__sklearn_tags__())

    # -- factors --------------------------------------------------------------------------------------

    _n_features_out = FactorMethods._n_features_out
    _check_features = FactorMethods._check_features
    transform = FactorMethods.transform
    reconstruct = FactorMethods.reconstruct
    factor_posterior = FactorMethods.factor_posterior
    inverse_transform = MCFA.inverse_transform

    # -- components by class --------------------------------------------------------------------------

    @property
    def means_(self):
        """(n_classes, n_components, n_features) means, computed on access."""
        return by_group(self._fitted_model().params.components.means, labelled.n_classes(self))

    @property
    def covariances_(self):
        """(n_classes, n_components, n_features, n_features) covariances, computed on access."""
        return by_group(common_covariances(self._fitted_model().params.components), labelled.n_classes(self))

    def n_parameters(self):
        """Number of free parameters of the fitted density of rows and classes."""
        return super().n_parameters() - (0 if self.class_prior is None else len(self.classes_) - 1)

    def _class_log_joint(self, X):
        return in_main_memory(rows_of(self, X, of_classes))

    def _class_of_draw(self, components):
        return to_numpy(components) // self.n_components

    # -- fitting --------------------------------------------------------------------------------------

    def _structure(self):
        C = labelled.n_classes(self)
        prior = None if self.class_prior is None else check_class_prior(self.class_prior, C)
        return ClassStructure(C * self.n_components, self.n_factors, bool(self.shared_covariance), C, prior)

    def _borrows_by_itself(self):
        return self.shrinkage == "auto" and self.prior is not None

    def _fit(self, data):
        known = labelled.known_classes(self, data)
        learnt = labelled.learn(self, known)
        rows = self._with_borrowed(labelled.lightened(self, data, known, learnt), known, learnt)
        labelled.fit_learnt(self, rows, known, learnt)

    def _with_borrowed(self, data, known, learnt):
        """The rows, and those that classes borrow from one another."""
        amount, C, K = learnt.amount, labelled.n_classes(self), self.n_components
        if amount in (None, 0) or (amount == "auto" and self.prior is None):
            return data
        told = known.labelled | known.unlabelled
        weight = known.weight if data.field("weight") is None else to_numpy(data.field("weight"))
        rows, unlabelled = learnt.few.labelled(), float(weight[known.unlabelled].sum())
        lent = borrowed_rows(rows.X, rows.codes, rows.weight, C, amount, unlabelled=unlabelled, axes=K == 1)
        if lent is None:
            return data
        more = data.with_field("weight", weight).followed_by(
            lent.X, weight=lent.weight, allowed=np.repeat(lent.codes[:, None] == np.arange(C), K, axis=1)
        )
        more.given = data.given or (int(told.sum()), float(weight[told].sum()))
        return more

    _prior, _start = labelled.prior, labelled.start

    def _check_options(self):
        super()._check_options()
        check_loadings_given(self)

    def _allowed(self, y, n_rows, *, reset):
        """(n_rows, C K) bool: the components of the class of each row, of all classes if it is unlabelled."""
        of_class = labelled.allowed_classes(self, y, n_rows, reset=reset)
        return None if of_class is None else np.repeat(of_class, self.n_components, axis=1)

    _set_fitted_arrays = labelled.set_fitted_arrays

    def _n_classes_of(self, given):
        return np.size(given["class_prior"])


@for_method("predict")
def of_classes(kernel, density, frame, block):
    """(n, C) ln p(x, class)."""
    framed = frame.enter(block)
    log_joint, K = kernel.family.evaluate(density, framed)[0], kernel.n_per_class
    classes = (normalise(log_joint[c : c + K, :])[0] for c in range(0, log_joint.shape[0], K))
    return namespace(log_joint).stack([one - frame.log_volume(framed) for one in classes], axis=1)
