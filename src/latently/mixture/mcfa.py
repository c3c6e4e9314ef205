"""Mixtures of common factor analysers."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from latently.backend.namespace import contiguous, elsewhere, eye, to_numpy, zeros
from latently.core.tree import mapped
from latently.distributions import CommonLoadings, CommonParams, MixtureParams
from latently.mixture._docs import shares_docs
from latently.mixture._factors import FactorModel
from latently.mixture._validation import check_integer, check_semidefinite, numbers

_FARTHEST = 1e12  # standard deviations that data may lie away from the origin
_EXACT = ("anchor", "centre", "loadings", "latent_means", "latent_covariances", "basis")


@shares_docs
class MCFA(FactorModel):
    """Mixture of common factor analysers: clusters in one common subspace.

    A component k is drawn with probability pi_k, factors z from N(xi_k, Omega_k), and x = A z + noise with
    noise ~ N(0, diag(psi)). Clusters and a linear map to a few factors are learnt together; the clusters can
    be seen in the plane of the factors, and parameters are few, so there may be more features than rows.

    There is no free mean: all means lie in the column space of A. So the origin of the features matters, and
    centred data give another model.

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    n_factors : int, default=1
        Number of factors q, at least one.
    {shared}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    loadings_ : ndarray of shape (n_features, n_factors)
        A, with orthonormal columns.
    latent_means_ : ndarray of shape (n_components, n_factors)
    latent_covariances_ : ndarray of shape (n_components, n_factors, n_factors)
        They may be singular: a component may have no variance along some factor.
    noise_variance_ : ndarray of shape (n_features,)
    means_ : ndarray of shape (n_components, n_features)
        Worked out when asked for, as `covariances_`.
    covariances_ : ndarray of shape (n_components, n_features, n_features)
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import MCFA
    >>> X = load_iris().data
    >>> model = MCFA(n_components=3, n_factors=2, random_state=0).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    >>> model.n_parameters()
    25
    """

    _PARAMETERS: ClassVar = {
        "weights": "weights_init",
        "loadings": "loadings_init",
        "latent_means": "latent_means_init",
        "latent_covariances": "latent_covariances_init",
        "noise_variance": "noise_init",
    }
    _LOCATED_BY = "the means that latent_means_init and loadings_init lead to"

    def __init__(
        self,
        n_components=1,
        n_factors=1,
        *,
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        init="kmeans",
        weights_init=None,
        loadings_init=None,
        latent_means_init=None,
        latent_covariances_init=None,
        noise_init=None,
        noise_floor=1e-6,
        accelerate="squarem",
        mini_batch=None,
        learning_decay=0.7,
        learning_offset=10.0,
        checkpoint=None,
        checkpoint_every=10,
        batch_size=None,
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
            loadings_init=loadings_init,
            noise_init=noise_init,
            noise_floor=noise_floor,
            accelerate=accelerate,
            mini_batch=mini_batch,
            learning_decay=learning_decay,
            learning_offset=learning_offset,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            batch_size=batch_size,
            dtype=dtype,
            random_state=random_state,
            warm_start=warm_start,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.n_components = n_components
        self.weights_init = weights_init
        self.latent_means_init = latent_means_init
        self.latent_covariances_init = latent_covariances_init

    @classmethod
    def from_parameters(cls, *, weights, loadings, latent_means, latent_covariances, noise_variance):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        The loadings are kept as they are; the normal form belongs to `fit`.
        """
        if np.ndim(weights) != 1 or np.ndim(loadings) != 2:
            raise ValueError("weights must have shape (n_components,) and loadings (n_features, n_factors)")
        model = cls(len(weights), np.shape(loadings)[1])
        model._check_hyperparameters()
        return model._set_parameters(
            weights=weights,
            loadings=loadings,
            latent_means=latent_means,
            latent_covariances=latent_covariances,
            noise_variance=noise_variance,
        )

    @property
    def means_(self):
        """(n_components, n_features) means, worked out when asked for."""
        return self._parameters().components.means

    @property
    def covariances_(self):
        """(n_components, n_features, n_features) covariance matrices, worked out when asked for."""
        c = self._parameters().components
        A, psi = c.loadings, c.noise_variance
        return A @ c.latent_covariances @ A.T + eye(psi.shape[0], psi) * psi

    def inverse_transform(self, X):
        """Expected rows for given factors, (n_samples, n_features): A z."""
        return self._factors(X) @ self.loadings_.T

    def _check_hyperparameters(self):
        super()._check_hyperparameters()
        check_integer("n_factors", self.n_factors, least=1)
        for name in ("latent_means_init", "latent_covariances_init"):
            if getattr(self, name) is not None and self.loadings_init is None:
                raise ValueError(f"{name} needs loadings_init, which says what its factors mean")

    def _family(self, floor):
        return CommonLoadings(self.n_factors, floor)

    def _family_in(self, frame, floor):
        origin = -frame.shift / frame.scale
        distance = np.abs(to_numpy(origin))
        if np.max(distance) > _FARTHEST:
            raise ValueError(
                f"feature {np.argmax(distance)} of X lies {np.max(distance):.1g} standard deviations away "
                "from the origin, where MCFA, which has no free mean, has no digits left; subtract a constant"
            )
        return replace(self._family(floor), origin=origin)

    def _in_dimensions(self):
        return self.n_factors

    def _shapes(self, D):
        K, q = self.n_components, self.n_factors
        return {
            "weights": (K,),
            "loadings": (D, q),
            "latent_means": (K, q),
            "latent_covariances": (K, q, q),
            "noise_variance": (D,),
        }

    def _to_kernel(self, fitted):
        A, psi = fitted["loadings"], fitted["noise_variance"]
        components = CommonParams(
            origin=zeros(psi.shape, psi),
            anchor=zeros((A.shape[1],), A),
            centre=zeros(psi.shape, psi),
            loadings=A,
            latent_means=fitted["latent_means"],
            latent_covariances=fitted["latent_covariances"],
            noise_variance=psi,
            basis=eye(A.shape[1], A),
        )
        return MixtureParams(fitted["weights"], components)

    def _from_kernel(self, params):
        _, (A, xi, omega) = self._family(None).shown(params.components)
        return {
            "weights": params.weights,
            "loadings": A,
            "latent_means": xi,
            "latent_covariances": omega,
            "noise_variance": params.components.noise_variance,
        }

    # The loadings that users see are orthonormal in their units, which costs digits where units differ by
    # orders of magnitude or data lie far from the origin. So the kernel's own parameters are kept as well.

    def _keep(self, params):
        super()._keep(params)
        kept, _ = self._family(None).shown(params.components)
        self._set_exact(MixtureParams(params.weights, mapped(contiguous, kept)))

    def _set_exact(self, params):
        self._exact = self._fitted_parameters(), params

    def _has_exact(self):
        """Whether there are such parameters, and the fitted attributes are still those they belong to."""
        shown = getattr(self, "_exact", (None,))[0]
        return shown is not None and all(shown[name] is a for name, a in self._fitted_parameters().items())

    def _parameters(self):
        return self._exact[1] if self._has_exact() else super()._parameters()

    def _exact_parameters(self):
        return (
            {name: getattr(self._exact[1].components, name) for name in _EXACT} if self._has_exact() else {}
        )

    def _set_exact_parameters(self, **given):
        usual = super()._parameters()
        for name in _EXACT:
            expected = getattr(usual.components, name).shape
            if name not in given or given[name].shape != expected:
                raise ValueError(f"the exact {name} must have shape {expected}")
        if set(given) != set(_EXACT):
            raise ValueError(f"expected the exact parameters {_EXACT}, not {sorted(given)}")
        self._set_exact(replace(usual, components=replace(usual.components, **given)))

    def to(self, where):
        moved = super().to(where)
        moved._set_exact(mapped(lambda array: elsewhere(array, where), self._parameters()))
        return moved

    def _completed(self, ours, given):
        if "loadings" in given:  # our factors in the basis of theirs
            basis = np.linalg.lstsq(given["loadings"], ours["loadings"], rcond=None)[0]
            omega = basis @ ours["latent_covariances"] @ basis.T
            ours = {**ours, "latent_means": ours["latent_means"] @ basis.T, "latent_covariances": omega}
        return {**ours, **given}

    def _validated(self, name, value, D, shown_as):
        array = super()._validated(name, value, D, shown_as)
        return check_semidefinite(shown_as, array) if name == "latent_covariances" else array

    def _n_features_of(self, given):
        loadings = numbers("loadings", given["loadings"])
        if len(loadings) == 0:
            raise ValueError("loadings must have one row per feature")
        return len(loadings)
