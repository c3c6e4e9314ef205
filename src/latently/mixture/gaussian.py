"""Mixtures of Gaussians with full, tied, diagonal or spherical covariances."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from latently.backend.namespace import namespace, zeros
from latently.distributions import FullGaussian, FullParams, LowRankGaussian, LowRankParams, MixtureParams
from latently.mixture._base import MixtureBase
from latently.mixture._clusters import Clusters
from latently.mixture._docs import shares_docs
from latently.mixture._validation import check_choice, check_covariances, check_positive


@shares_docs
class GaussianMixture(Clusters, MixtureBase):
    """Mixture of Gaussians.

    A component k is drawn with probability pi_k, then x from N(mu_k, Sigma_k).

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        Whether each component has its own covariance matrix, all share one, each has its own variances
        of the features, or each has one variance.
    {shared}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    covariances_ : ndarray
        (n_components, n_features, n_features) if "full", (n_features, n_features) if "tied",
        (n_components, n_features) if "diag", (n_components,) if "spherical".
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import GaussianMixture
    >>> X = load_iris().data
    >>> model = GaussianMixture(n_components=3, covariance_type="tied", random_state=0).fit(X)
    >>> model.means_.shape, model.covariances_.shape
    ((3, 4), (4, 4))
    >>> model.n_parameters()
    24
    """

    _PARAMETERS: ClassVar = {
        "weights": "weights_init",
        "means": "means_init",
        "covariances": "covariances_init",
    }

    def __init__(
        self,
        n_components=1,
        *,
        covariance_type="full",
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        init="kmeans",
        weights_init=None,
        means_init=None,
        covariances_init=None,
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
            max_iter=max_iter,
            tol=tol,
            n_init=n_init,
            init=init,
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
        self.covariance_type = covariance_type
        self.weights_init = weights_init
        self.means_init = means_init
        self.covariances_init = covariances_init

    @classmethod
    def from_parameters(cls, *, weights, means, covariances, covariance_type="full"):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes."""
        model = cls(max(1, np.size(weights)), covariance_type=covariance_type)
        model._check_hyperparameters()
        return model._set_parameters(weights=weights, means=means, covariances=covariances)

    def _check_hyperparameters(self):
        super()._check_hyperparameters()
        check_choice("covariance_type", self.covariance_type, _TYPES)

    def _family(self, floor):
        return _TYPES[self.covariance_type].family(floor)

    def _shapes(self, D):
        K = self.n_components
        covariances = _TYPES[self.covariance_type].shape(K, D)
        return {"weights": (K,), "means": (K, D), "covariances": covariances}

    def _to_kernel(self, fitted):
        to_kernel = _TYPES[self.covariance_type].to_kernel
        return MixtureParams(fitted["weights"], to_kernel(fitted["means"], fitted["covariances"]))

    def _from_kernel(self, params):
        covariances = _TYPES[self.covariance_type].from_kernel(params.components)
        return {"weights": params.weights, "means": params.components.means, "covariances": covariances}

    def _validated(self, name, value, D, shown_as):
        array = super()._validated(name, value, D, shown_as)
        if name == "covariances":
            return _TYPES[self.covariance_type].check(shown_as, array)
        return array


class _Full:
    """Each component has its own covariance matrix."""

    check = staticmethod(check_covariances)

    def family(self, floor):
        return FullGaussian(floor)

    def shape(self, K, D):
        return (K, D, D)

    def to_kernel(self, means, covariances):
        return FullParams(means, covariances)

    def from_kernel(self, components):
        return components.covariances


class _Tied(_Full):
    """All components share one covariance matrix."""

    def family(self, floor):
        return FullGaussian(floor, shared=True)

    def shape(self, K, D):
        return (D, D)

    def to_kernel(self, means, covariances):
        return FullParams(means, covariances[None, ...])

    def from_kernel(self, components):
        return components.covariances[0, ...]


class _Diagonal:
    """Each component has its own variances: a factor model without factors."""

    check = staticmethod(check_positive)

    def family(self, floor):
        return LowRankGaussian(0, floor)

    def shape(self, K, D):
        return (K, D)

    def to_kernel(self, means, covariances):
        return LowRankParams(means, zeros((*means.shape, 0), means), covariances)

    def from_kernel(self, components):
        return components.noise_variance


class _Spherical(_Diagonal):
    """Each component has one variance."""

    def family(self, floor):
        return LowRankGaussian(0, floor, isotropic=True)

    def shape(self, K, D):
        return (K,)

    def to_kernel(self, means, covariances):
        return super().to_kernel(means, namespace(means).broadcast_to(covariances[:, None], means.shape))

    def from_kernel(self, components):
        return components.noise_variance[:, 0]


_TYPES = {"full": _Full(), "tied": _Tied(), "diag": _Diagonal(), "spherical": _Spherical()}
