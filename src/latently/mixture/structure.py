"""The mapping between the fitted attributes of a mixture and the parameters of its kernel.

A structure follows from the options of an estimator: the number of components, what they share, and the names
and shapes of the fitted arrays. It holds no data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from latently.backend.linalg import diagonals, transpose
from latently.backend.namespace import Array, contiguous, eye, namespace, ones, to_numpy, zeros
from latently.core.frame import Frame
from latently.core.summary import Summary
from latently.core.tree import mapped
from latently.distributions import (
    CommonLoadings,
    CommonParams,
    FullGaussian,
    FullParams,
    LowRankGaussian,
    LowRankParams,
    Mixture,
    MixtureParams,
)
from latently.distributions.eigen_gaussian import MODELS, EigenGaussian
from latently.distributions.family import Family
from latently.estimators.checks import (
    check_covariances,
    check_locations,
    check_mixing_weights,
    check_positive,
    check_semidefinite,
    numbers,
)
from latently.estimators.parameters import Parameter

Fitted = Mapping[str, Array]  # fitted attributes by name, without their underscore

_FARTHEST = 1e12  # standard deviations that data with common loadings may lie away from the origin
_LOST = 1e-12  # of the largest variance of factors: nothing, in directions that given loadings do not span


class Structure(Protocol):
    """The interface that `MixtureEstimator` uses."""

    n_components: int  # of the kernel
    means_from: str = "means_init"  # the starting values that locate the components
    exact_names: tuple[str, ...] = ()  # of the arrays that `exact` keeps

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The table of the fitted arrays."""
        ...

    # -- sizes ----------------------------------------------------------------------------------------

    def sizes(self, n_features: int) -> dict[str, int]:
        """The values of the symbols in the shapes of the parameters."""
        ...

    @property
    def least_rows(self) -> int:
        """Minimum number of rows for a fit."""
        return self.n_components

    @property
    def n_free_weights(self) -> int:
        """Free parameters of the mixing weights."""
        return self.n_components - 1

    @property
    def spread_by_row(self) -> bool:
        """Whether every row has its own posterior covariance of the factors, even if it is complete."""
        return False

    @property
    def start_dimensions(self) -> int | None:
        """The number of principal components that some starts use, if any."""
        return None

    @property
    def most_starts(self) -> int | None:
        """How many random starts "auto" means at most, if not as many as for other mixtures."""
        return None

    @property
    def quick_steps(self) -> bool:
        """Whether a run alone takes as long on a small table as one of several that share their passes."""
        return False

    @property
    def n_groups(self) -> int | None:
        """The number of equally large groups of components that labels distinguish, if any."""
        return None

    # -- kernels --------------------------------------------------------------------------------------

    def family(self, floor: Array | None) -> Family:
        """The family of the components, with a lower bound (D,) of their variances."""
        ...

    def family_in(self, frame: Frame, floor: Array) -> Family:
        """The family for rows in a frame."""
        return self.family(floor)

    def kernel(self, family: Family, dtype: str) -> Mixture:
        return Mixture(family, dtype)

    def kernel_for(self, family: Family, dtype: str, frame: Frame, summary: Summary) -> Mixture:
        """The kernel for rows with this summary, in a frame."""
        return self.kernel(family, dtype)

    def frame(self, mean: Array, deviation: Array) -> Frame:
        """The frame for rows with these moments: centred and scaled, unless the family needs other units.

        Families of discrete rows use `Frame.identity(mean)`.
        """
        return Frame.around(mean, deviation, isotropic=self.family(None).isotropic)

    def check_rows(self, summary: Summary) -> None:
        """Raise an error if the model cannot have generated rows with this summary (`low` and `high`)."""
        return None

    def check_frame(self, frame: Frame, name_of: Any) -> None:
        """Raise an error if the model cannot be fitted to rows in this location and scale."""
        return None

    # -- parameters -----------------------------------------------------------------------------------

    def to_kernel(self, fitted: Fitted) -> MixtureParams:
        """Fitted attributes as parameters of the kernel."""
        ...

    def from_kernel(self, params: MixtureParams) -> dict[str, Array]:
        """Parameters of the kernel as fitted attributes."""
        ...

    def gaussian(self, params: MixtureParams) -> MixtureParams:
        """The mixture of Gaussians within the kernel's parameters."""
        return params

    def gaussian_family(self, family: Any) -> Any:
        """The family of Gaussians within the family of the components."""
        return family

    def completed(self, ours: dict[str, Array], given: dict[str, Array]) -> dict[str, Array]:
        """Starting values: those given, and the computed ones for the others."""
        return {**ours, **given}

    def start_means(self, given: dict[str, Array]) -> Array | None:
        """(K, D) the means given by the user, if any."""
        return given.get("means")

    def exact(self, params: MixtureParams, fitted: Fitted) -> MixtureParams | None:
        """Parameters to keep beside the fitted attributes, for structures whose attributes lose precision."""
        return None

    def with_exact(self, usual: MixtureParams, given: Mapping[str, Array]) -> MixtureParams:
        """The parameters kept by `exact`, rebuilt from the arrays of a file."""
        raise ValueError(f"it has unknown arrays: {sorted(given)}")


# -- Gaussian mixtures --------------------------------------------------------------------------------


@dataclass(frozen=True)
class CovarianceType:
    """The shape of the covariances of a Gaussian mixture, and the family that has them."""

    shape: tuple[str, ...]
    check: Any
    make_family: Any  # of a floor
    components: Any  # the family's parameters, of means (K, D) and covariances in their shape
    covariances: Any  # covariances in their shape, of the family's parameters


def _diagonal(means: Array, variances: Array) -> LowRankParams:
    """A factor model without factors."""
    return LowRankParams(means, zeros((*means.shape, 0), means), variances)


COVARIANCE_TYPES = {
    "full": CovarianceType(
        ("K", "D", "D"),
        check_covariances,
        FullGaussian,
        FullParams,
        lambda components: components.covariances,
    ),
    "tied": CovarianceType(
        ("D", "D"),
        check_covariances,
        lambda floor: FullGaussian(floor, shared=True),
        lambda means, covariance: FullParams(means, covariance[None, ...]),
        lambda components: components.covariances[0, ...],
    ),
    "diag": CovarianceType(
        ("K", "D"),
        check_positive,
        lambda floor: LowRankGaussian(0, floor),
        _diagonal,
        lambda components: components.noise_variance,
    ),
    "spherical": CovarianceType(
        ("K",),
        check_positive,
        lambda floor: LowRankGaussian(0, floor, isotropic=True),
        lambda means, variances: _diagonal(
            means, namespace(means).broadcast_to(variances[:, None], means.shape)
        ),
        lambda components: components.noise_variance[:, 0],
    ),
}


def _of_mclust(components: Any, make_family: Any, covariances: Any, check: Any = check_covariances) -> Any:
    """A type whose covariances are always of shape (K, D, D)."""
    return CovarianceType(("K", "D", "D"), check, make_family, components, covariances)


def check_diagonal(shown_as: str, array: Any) -> Any:
    """Covariances (K, D, D) of features that do not depend on one another."""
    check_covariances(shown_as, array)
    if np.any(array * (1.0 - np.eye(array.shape[-1])) != 0):
        raise ValueError(f"{shown_as} must be diagonal for this covariance_type")
    return array


def _of_diagonals(means: Array, covariances: Array) -> LowRankParams:
    return _diagonal(means, diagonals(covariances))


def _as_diagonals(components: LowRankParams) -> Array:
    return eye(components.means.shape[1], components.means) * components.noise_variance[:, None, :]


def _repeated(components: FullParams) -> Array:
    K, D = components.means.shape
    return namespace(components.means).broadcast_to(components.covariances, (K, D, D))


# The models of mclust: what components share of volume, shape and orientation.
for _name, _isotropic, _shared in (
    *(("EII", True, True), ("VII", True, False), ("EEI", False, True), ("VVI", False, False)),
):
    COVARIANCE_TYPES[_name] = _of_mclust(
        _of_diagonals,
        partial(LowRankGaussian, 0, isotropic=_isotropic, shared=_shared),
        _as_diagonals,
        check_diagonal,
    )
for _name in MODELS:
    COVARIANCE_TYPES[_name] = _of_mclust(
        FullParams, partial(EigenGaussian, model=_name), lambda components: components.covariances
    )
COVARIANCE_TYPES["VVV"] = COVARIANCE_TYPES["full"]
COVARIANCE_TYPES["EEE"] = _of_mclust(
    lambda means, covariances: FullParams(means, covariances[:1, ...]),
    partial(FullGaussian, shared=True),
    _repeated,
)


@dataclass(frozen=True)
class GaussianStructure(Structure):
    """K Gaussians with covariances of one type."""

    n_components: int
    covariance_type: str

    @property
    def type(self) -> CovarianceType:
        return COVARIANCE_TYPES[self.covariance_type]

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("weights", "weights_init", ("K",), check_mixing_weights),
            Parameter("means", "means_init", ("K", "D"), check_locations),
            Parameter("covariances", "covariances_init", self.type.shape, self.type.check),
        )

    def sizes(self, n_features: int) -> dict[str, int]:
        return {"K": self.n_components, "D": n_features}

    def family(self, floor: Array | None) -> Family:
        family: Family = self.type.make_family(floor)
        return family

    @property
    def quick_steps(self) -> bool:
        return self.covariance_type in ("tied", "EEE")  # all components are whitened by one product

    def to_kernel(self, fitted: Fitted) -> MixtureParams:
        return MixtureParams(fitted["weights"], self.type.components(fitted["means"], fitted["covariances"]))

    def from_kernel(self, params: MixtureParams) -> dict[str, Array]:
        c = params.components
        return {"weights": params.weights, "means": c.means, "covariances": self.type.covariances(c)}


# -- factor models ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LowRankStructure(Structure):
    """K components N(mu_k, L_k L_k' + diag(psi_k))."""

    n_components: int
    n_factors: int
    isotropic: bool = False
    shared: bool = False  # one noise variance for all components

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("weights", "weights_init", ("K",), check_mixing_weights),
            Parameter("means", "means_init", ("K", "D"), check_locations),
            Parameter("loadings", "loadings_init", ("K", "D", "q"), check_locations),
            NoiseParameter("noise_variance", "noise_init", ("K", "D"), self.check_noise, self.isotropic),
        )

    def sizes(self, n_features: int) -> dict[str, int]:
        return {"K": self.n_components, "D": n_features, "q": self.n_factors}

    def family(self, floor: Array | None) -> Family:
        return LowRankGaussian(self.n_factors, floor, isotropic=self.isotropic, shared=self.shared)

    def to_kernel(self, fitted: Fitted) -> MixtureParams:
        components = LowRankParams(fitted["means"], fitted["loadings"], fitted["noise_variance"])
        return MixtureParams(fitted["weights"], components)

    def from_kernel(self, params: MixtureParams) -> dict[str, Array]:
        c = params.components
        return {
            "weights": params.weights,
            "means": c.means,
            "loadings": c.loadings,
            "noise_variance": c.noise_variance,
        }

    def check_noise(self, shown_as: str, array: Any) -> Any:
        check_positive(shown_as, array)
        if self.isotropic and np.any(array != array[..., :1]):
            raise ValueError(f"{shown_as} must be the same for all features, because the noise is isotropic")
        if self.shared and np.any(array != array[:1]):
            raise ValueError(f"{shown_as} must be the same for all components, because the noise is shared")
        return array


@dataclass(frozen=True)
class NoiseParameter(Parameter):
    """A noise variance, for which isotropic components accept one number each."""

    isotropic: bool = False

    def checked(self, value: Any, sizes: Mapping[str, int], shown_as: str) -> Any:
        if self.isotropic and len(self.shape) == 2:
            value = numbers(shown_as, value)
            if value.shape == (sizes["K"],):
                value = value[:, None]
        return super().checked(value, sizes, shown_as)


@dataclass(frozen=True)
class OneComponent(LowRankStructure):
    """The same with one component, whose attributes have no component axis."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("mean", "means_init", ("D",), check_locations),
            Parameter("loadings", "loadings_init", ("D", "q"), check_locations),
            Parameter("noise_variance", "noise_init", ("D",), self.check_noise),
        )

    def to_kernel(self, fitted: Fitted) -> MixtureParams:
        mean, *rest = (fitted[name][None, ...] for name in ("mean", "loadings", "noise_variance"))
        return MixtureParams(ones((1,), mean), LowRankParams(mean, *rest))

    def from_kernel(self, params: MixtureParams) -> dict[str, Array]:
        flat = super().from_kernel(params)
        return {name: flat[of][0, ...] for name, of in _OF_ONE.items()}


_OF_ONE = {"mean": "means", "loadings": "loadings", "noise_variance": "noise_variance"}


# -- common loadings ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommonStructure(Structure):
    """K components N(A xi_k, A Omega_k A' + diag(psi)).

    The fitted attributes have orthonormal loadings in the user's units, which costs precision where units
    differ by orders of magnitude or data lie far from the origin. So the kernel's own parameters are kept.
    """

    n_components: int
    n_factors: int
    shared_covariance: bool = False

    means_from: ClassVar[str] = "the means implied by latent_means_init and loadings_init"  # type: ignore[misc]
    exact_names: ClassVar[tuple[str, ...]] = (  # type: ignore[misc]
        *("anchor", "centre", "loadings", "latent_means", "latent_covariances", "basis"),
    )

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("weights", "weights_init", ("K",), check_mixing_weights),
            Parameter("loadings", "loadings_init", ("D", "q"), check_locations),
            Parameter("latent_means", "latent_means_init", ("K", "q"), check_locations),
            Parameter("latent_covariances", "latent_covariances_init", ("K", "q", "q"), self.check_latent),
            Parameter("noise_variance", "noise_init", ("D",), check_positive),
        )

    def sizes(self, n_features: int) -> dict[str, int]:
        return {"K": self.n_components, "D": n_features, "q": self.n_factors}

    @property
    def start_dimensions(self) -> int | None:
        return self.n_factors

    def family(self, floor: Array | None) -> CommonLoadings:
        return CommonLoadings(self.n_factors, floor, shared=self.shared_covariance)

    def family_in(self, frame: Frame, floor: Array) -> CommonLoadings:
        return replace(self.family(floor), origin=-frame.shift / frame.scale)

    def check_frame(self, frame: Frame, name_of: Any) -> None:
        distance = np.abs(to_numpy(frame.shift / frame.scale))
        if np.max(distance) > _FARTHEST:
            raise ValueError(
                f"feature {name_of(np.argmax(distance))} of X lies {np.max(distance):.1g} standard "
                "deviations away from the origin, too far for MCFA, which has no free mean; "
                "subtract a constant"
            )

    def to_kernel(self, fitted: Fitted) -> MixtureParams:
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

    def from_kernel(self, params: MixtureParams) -> dict[str, Array]:
        _, (A, xi, omega) = self.family(None).shown(params.components)
        return {
            "weights": params.weights,
            "loadings": A,
            "latent_means": xi,
            "latent_covariances": omega,
            "noise_variance": params.components.noise_variance,
        }

    def completed(self, ours: dict[str, Array], given: dict[str, Array]) -> dict[str, Array]:
        if "loadings" in given:  # express the computed factors in the basis of the given loadings
            basis = np.linalg.lstsq(given["loadings"], ours["loadings"], rcond=None)[0]
            omega = basis @ ours["latent_covariances"] @ basis.T
            variances, directions = np.linalg.eigh(0.5 * (omega + np.swapaxes(omega, 1, 2)))
            lost = variances <= _LOST * variances.max()  # of these the computed factors tell nothing
            if lost.any():
                omega = omega + (directions * lost[:, None, :]) @ np.swapaxes(directions, 1, 2)
            ours = {**ours, "latent_means": ours["latent_means"] @ basis.T, "latent_covariances": omega}
        return {**ours, **given}

    def start_means(self, given: dict[str, Array]) -> Array | None:
        return None

    def exact(self, params: MixtureParams, fitted: Fitted) -> MixtureParams | None:
        kept, _ = self.family(None).shown(params.components)
        return MixtureParams(params.weights, mapped(contiguous, kept))

    def with_exact(self, usual: MixtureParams, given: Mapping[str, Array]) -> MixtureParams:
        """The kernel's own parameters, rebuilt from the arrays of a file."""
        for name in self.exact_names:
            expected = getattr(usual.components, name).shape
            if name not in given or given[name].shape != expected:
                raise ValueError(f"the exact {name} must have shape {expected}")
        if set(given) != set(self.exact_names):
            raise ValueError(f"expected the exact parameters {self.exact_names}, not {sorted(given)}")
        return replace(usual, components=replace(usual.components, **given))

    def check_latent(self, shown_as: str, array: Any) -> Any:
        flat = array.reshape(-1, *array.shape[-2:])
        if self.shared_covariance and not np.allclose(
            flat, flat[0], rtol=1e-9, atol=1e-9 * np.max(np.abs(flat))
        ):
            raise ValueError(
                f"{shown_as} must be the same for all components, because shared_covariance=True"
            )
        return check_semidefinite(shown_as, array)


# -- quantities derived from the parameters -----------------------------------------------------------


def low_rank_covariances(c: LowRankParams) -> Array:
    """(K, D, D) L L' + diag(psi)."""
    return c.loadings @ transpose(c.loadings) + eye(c.means.shape[1], c.means) * c.noise_variance[:, None, :]


def common_covariances(c: CommonParams) -> Array:
    """(K, D, D) A Omega A' + diag(psi)."""
    A, psi = c.loadings, c.noise_variance
    return A @ c.latent_covariances @ A.T + eye(psi.shape[0], psi) * psi
