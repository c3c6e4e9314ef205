"""Two-layer mixtures of factor analysers with joint loadings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from latently.backend.namespace import Array, like, namespace, to_numpy
from latently.distributions.mixture import Mixture, MixtureParams, MixtureStats
from latently.distributions.responsibilities import normalise
from latently.mixture._common import CommonFactorModel
from latently.mixture._docs import shares_docs
from latently.mixture._engine import for_method, in_main_memory
from latently.mixture._validation import check_integer, check_mixing_weights, check_positive, parameter
from latently.supervised._mixtures import ClassifyingMixture

_UNSEEN = 1e-100  # the share of a class without rows; with none at all, later rows would have no density


@shares_docs
class MJFAClassifier(ClassifyingMixture, CommonFactorModel):
    """Two-layer mixture of factor analysers with joint loadings (2L-MJFA): classes in one common subspace.

    A class c is drawn with probability rho_c, one of its K components with probability pi_ck, factors z from
    N(xi_ck, Omega_ck), and x = A z + noise with noise ~ N(0, diag(psi)). All classes share the loadings A and
    the noise, so there are few parameters, and rows of all classes can be seen in one plane of factors. With
    one component per class it is an MCFA whose components are the classes.

    Rows without a label help too: they count for the classes as probable as these are.

    Parameters
    ----------
    n_components : int, default=1
        Number of components K of each class.
    n_factors : int, default=1
        Number of factors q, at least one.
    shared_covariance : bool, default=False
        Whether all components have one and the same covariance of the factors. Then they are told apart by
        their means alone, and there are far fewer parameters: worth a try where rows are few.
    class_prior : array-like of shape (n_classes,), optional
        Probabilities of the classes in ascending order of their labels. By default they are learnt; those of
        labelled rows are the shares of the classes.
    reject_below : float, optional
        Rows whose log density is below are rejected by `predict`. See also `calibrate_rejection`.
    {shared}

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_prior_ : ndarray of shape (n_classes,)
    weights_ : ndarray of shape (n_classes, n_components)
        Of the components within their class.
    loadings_ : ndarray of shape (n_features, n_factors)
        A, with orthonormal columns.
    latent_means_ : ndarray of shape (n_classes, n_components, n_factors)
    latent_covariances_ : ndarray of shape (n_classes, n_components, n_factors, n_factors)
        They may be singular.
    noise_variance_ : ndarray of shape (n_features,)
    means_ : ndarray of shape (n_classes, n_components, n_features)
        Worked out when asked for, as `covariances_`.
    covariances_ : ndarray of shape (n_classes, n_components, n_features, n_features)
    reject_below_ : float
    {fitted}

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

    _PARAMETERS: ClassVar = {
        "class_prior": "class_prior_init",
        "weights": "weights_init",
        "loadings": "loadings_init",
        "latent_means": "latent_means_init",
        "latent_covariances": "latent_covariances_init",
        "noise_variance": "noise_init",
    }

    def __init__(
        self,
        n_components=1,
        n_factors=1,
        *,
        shared_covariance=False,
        class_prior=None,
        reject_below=None,
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        init="kmeans",
        class_prior_init=None,
        weights_init=None,
        loadings_init=None,
        latent_means_init=None,
        latent_covariances_init=None,
        noise_init=None,
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
            shared_covariance=shared_covariance,
            max_iter=max_iter,
            tol=tol,
            n_init=n_init,
            init=init,
            weights_init=weights_init,
            loadings_init=loadings_init,
            latent_means_init=latent_means_init,
            latent_covariances_init=latent_covariances_init,
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
        self.class_prior = class_prior
        self.reject_below = reject_below
        self.class_prior_init = class_prior_init

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
        shared_covariance=False,
        classes=None,
    ):
        """A fitted classifier with known parameters, in the shapes of the fitted attributes.

        The loadings are kept as they are; the normal form belongs to `fit`. Without `classes` the labels are
        0, 1, ...
        """
        if np.ndim(weights) != 2 or np.ndim(loadings) != 2:
            raise ValueError(
                "weights must have shape (n_classes, n_components) and loadings (n_features, n_factors)"
            )
        model = cls(np.shape(weights)[1], np.shape(loadings)[1], shared_covariance=shared_covariance)
        model._check_hyperparameters()
        model._set_parameters(
            class_prior=class_prior,
            weights=weights,
            loadings=loadings,
            latent_means=latent_means,
            latent_covariances=latent_covariances,
            noise_variance=noise_variance,
        )
        model._set_classes(classes, len(model.class_prior_))
        return model

    def _class_log_joint(self, X):
        return in_main_memory(self._rows_of(X, of_classes))

    # -- components by class ------------------------------------------------------------------------

    @property
    def means_(self):
        """(n_classes, n_components, n_features) means, worked out when asked for."""
        return self._by_class(super().means_)

    @property
    def covariances_(self):
        """(n_classes, n_components, n_features, n_features) covariances, worked out when asked for."""
        return self._by_class(super().covariances_)

    def n_parameters(self):
        """Number of free parameters of the fitted density of rows and classes."""
        return super().n_parameters() - (0 if self.class_prior is None else len(self.classes_) - 1)

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
        X, components = super().sample(n_samples, random_state=random_state)
        return X, self.classes_[to_numpy(components) // self.n_components]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # one factor puts the means of all classes on a line through the origin
        tags.classifier_tags.poor_score = self.n_factors == 1
        return tags

    def _check_hyperparameters(self):
        check_integer("n_components", self.n_components, least=1)
        super()._check_hyperparameters()

    def _known(self, y, n_rows, *, reset):
        """(n_rows, C K) bool: the components of the class of each row, of all classes if it has no label."""
        of_class = super()._known(y, n_rows, reset=reset)
        return None if of_class is None else np.repeat(of_class, self.n_components, axis=1)

    def _n_components(self):
        return self._n_classes() * self.n_components

    def _n_classes_of(self, given):
        return np.size(given["class_prior"])

    def _least_rows(self):
        return self.n_components  # a small class need not fill all of its own

    def _mixture(self, family):
        return MixtureOfClasses(family, self.dtype, self.n_components, self._given_prior())

    def _given_prior(self):
        if self.class_prior is None:
            return None
        prior = parameter("class_prior", self.class_prior, (self._n_classes(),))
        return check_mixing_weights("class_prior", check_positive("class_prior", prior))

    def _shapes(self, D):
        C, K, q = self._n_classes(), self.n_components, self.n_factors
        return {
            "class_prior": (C,),
            "weights": (C, K),
            "loadings": (D, q),
            "latent_means": (C, K, q),
            "latent_covariances": (C, K, q, q),
            "noise_variance": (D,),
        }

    def _to_kernel(self, fitted):
        C, K, q = fitted["latent_means"].shape
        xp = namespace(fitted["latent_means"])
        return super()._to_kernel(
            fitted
            | {
                "weights": joint_weights(fitted["class_prior"], fitted["weights"]),
                "latent_means": xp.reshape(fitted["latent_means"], (C * K, q)),
                "latent_covariances": xp.reshape(fitted["latent_covariances"], (C * K, q, q)),
            }
        )

    def _from_kernel(self, params):
        flat = super()._from_kernel(params)
        xp = namespace(params.weights)
        joint = self._by_class(flat["weights"])  # rho_c pi_ck
        rho = xp.sum(joint, axis=1)
        there = rho[:, None] > 0  # a class that no row is of yet has equal weights
        pi = xp.where(there, joint / xp.where(there, rho[:, None], 1.0), 1.0 / self.n_components)
        by_class = {name: self._by_class(flat[name]) for name in ("latent_means", "latent_covariances")}
        prior = self._given_prior()  # which the sums are but for rounding
        return flat | by_class | {"class_prior": rho if prior is None else like(prior, rho), "weights": pi}

    def _set_exact(self, params):
        # the weights that a model read from a file will have, to the last digit
        super()._set_exact(replace(params, weights=joint_weights(self.class_prior_, self.weights_)))

    def _by_class(self, array):
        """(C, K, ...) of an array (C K, ...)."""
        return namespace(array).reshape(array, (self._n_classes(), self.n_components, *array.shape[1:]))

    def _validated(self, name, value, D, shown_as):
        if name != "weights":
            array = super()._validated(name, value, D, shown_as)
            return check_mixing_weights(shown_as, array) if name == "class_prior" else array
        rows = parameter(shown_as, value, self._shapes(D)["weights"])
        return np.stack([check_mixing_weights(f"each row of {shown_as}", row) for row in rows])

    def _completed(self, ours, given):
        if "loadings" in given:
            raise ValueError("loadings_init needs all other starting values too, which say what it means")
        return {**ours, **given}


def joint_weights(class_prior, weights):
    """(C K,) rho_c pi_ck."""
    return namespace(weights).reshape(class_prior[:, None] * weights, (-1,))


@dataclass(frozen=True)
class MixtureOfClasses(Mixture):
    """A mixture whose components belong to classes, `n_per_class` to each, in order."""

    n_per_class: int = 1
    class_prior: Array | None = None  # (C,), if the classes have known probabilities

    def m_step(self, stats: MixtureStats, params: MixtureParams) -> MixtureParams:
        stepped = super().m_step(stats, params)
        xp = namespace(stepped.weights)
        joint = xp.reshape(stepped.weights, (-1, self.n_per_class))
        unseen = xp.sum(joint, axis=1, keepdims=True) == 0
        joint = xp.where(unseen, _UNSEEN / self.n_per_class, joint)
        return self._with_prior(replace(stepped, weights=xp.reshape(joint, stepped.weights.shape)))

    def clamped(self, params: MixtureParams) -> MixtureParams:
        return self._with_prior(super().clamped(params))

    def from_vector(self, vector: Array, like: MixtureParams) -> MixtureParams:
        return self._with_prior(super().from_vector(vector, like))

    def from_partition(self, X, weight, labels, means, allowed=None):
        return self._with_prior(super().from_partition(X, weight, labels, means, allowed))

    def _with_prior(self, params: MixtureParams) -> MixtureParams:
        """The classes given their known probabilities; components keep their shares of their class."""
        if self.class_prior is None:
            return params
        xp = namespace(params.weights)
        joint = xp.reshape(params.weights, (-1, self.n_per_class))
        total = xp.sum(joint, axis=1, keepdims=True)
        there = total > 0
        pi = xp.where(there, joint / xp.where(there, total, 1.0), 1.0 / self.n_per_class)
        prior = like(self.class_prior, params.weights)[:, None]
        return replace(params, weights=xp.reshape(prior * pi, params.weights.shape))


@for_method("predict")
def of_classes(kernel, density, frame, block):
    """(n, C) ln p(x, class)."""
    framed = frame.enter(block)
    log_joint, K = kernel.family.evaluate(density, framed)[0], kernel.n_per_class
    classes = (normalise(log_joint[c : c + K, :])[0] for c in range(0, log_joint.shape[0], K))
    return namespace(log_joint).stack([one - frame.log_volume(framed) for one in classes], axis=1)
