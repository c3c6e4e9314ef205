"""Models whose components lie in one common subspace, by whatever name the components go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from latently.backend.namespace import contiguous, eye, to_device, to_numpy, zeros
from latently.core.tree import mapped
from latently.distributions import CommonLoadings, CommonParams, MixtureParams
from latently.mixture._factors import FactorModel
from latently.mixture._validation import called, check_flag, check_integer, check_semidefinite, numbers

_FARTHEST = 1e12  # standard deviations that data may lie away from the origin
_EXACT = ("anchor", "centre", "loadings", "latent_means", "latent_covariances", "basis")


class CommonFactorModel(FactorModel):
    """Mixtures with components N(A xi_k, A Omega_k A' + diag(psi))."""

    _LOCATED_BY = "the means that latent_means_init and loadings_init lead to"

    def __init__(
        self, *, shared_covariance, weights_init, latent_means_init, latent_covariances_init, **rest
    ):
        super().__init__(**rest)
        self.shared_covariance = shared_covariance
        self.weights_init = weights_init
        self.latent_means_init = latent_means_init
        self.latent_covariances_init = latent_covariances_init

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
        check_flag("shared_covariance", self.shared_covariance)
        for name in ("latent_means_init", "latent_covariances_init"):
            if getattr(self, name) is not None and self.loadings_init is None:
                raise ValueError(f"{name} needs loadings_init, which says what its factors mean")

    def _family(self, floor):
        return CommonLoadings(self.n_factors, floor, shared=bool(self.shared_covariance))

    def _family_in(self, frame, floor):
        origin = -frame.shift / frame.scale
        distance = np.abs(to_numpy(origin))
        if np.max(distance) > _FARTHEST:
            raise ValueError(
                f"feature {called(self, np.argmax(distance))} of X lies {np.max(distance):.1g} standard "
                "deviations away from the origin, where MCFA, which has no free mean, has no digits left; "
                "subtract a constant"
            )
        return replace(self._family(floor), origin=origin)

    def _in_dimensions(self):
        return self.n_factors

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
        moved._set_exact(mapped(lambda array: to_device(array, where), self._parameters()))
        return moved

    def _completed(self, ours, given):
        if "loadings" in given:  # our factors in the basis of theirs
            basis = np.linalg.lstsq(given["loadings"], ours["loadings"], rcond=None)[0]
            omega = basis @ ours["latent_covariances"] @ basis.T
            ours = {**ours, "latent_means": ours["latent_means"] @ basis.T, "latent_covariances": omega}
        return {**ours, **given}

    def _validated(self, name, value, D, shown_as):
        array = super()._validated(name, value, D, shown_as)
        if name != "latent_covariances":
            return array
        flat = array.reshape(-1, *array.shape[-2:])
        if self.shared_covariance and not np.allclose(
            flat, flat[0], rtol=1e-9, atol=1e-9 * np.max(np.abs(flat))
        ):
            raise ValueError(f"{shown_as} must be the same for all components, as shared_covariance has it")
        return check_semidefinite(shown_as, array)

    def _n_features_of(self, given):
        loadings = numbers("loadings", given["loadings"])
        if len(loadings) == 0:
            raise ValueError("loadings must have one row per feature")
        return len(loadings)
