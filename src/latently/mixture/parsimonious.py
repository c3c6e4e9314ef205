"""The twelve parsimonious mixtures of factor analysers: names, parts, and checks of starting values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latently.backend.namespace import Array
from latently.distributions.family import Family
from latently.distributions.parsimonious import ParsimoniousFactors
from latently.estimators.checks import check_locations, check_positive
from latently.estimators.parameters import Parameter
from latently.mixture.structure import LowRankStructure

_CLOSE = 1e-6  # relative differences of logarithms that rounding explains
NOISES = {False: "free", True: "shared", "shape": "shape", "volume": "volume"}
# by name the options `noise`, `shared_noise` and `shared_loadings`
MODELS: dict[str, tuple[str, Any, bool]] = {
    "UUU": ("diagonal", False, False),
    "UUC": ("isotropic", False, False),
    "UCU": ("diagonal", True, False),
    "UCC": ("isotropic", True, False),
    "UCUU": ("diagonal", "shape", False),
    "UUCU": ("diagonal", "volume", False),
    "CUU": ("diagonal", False, True),
    "CUC": ("isotropic", False, True),
    "CCU": ("diagonal", True, True),
    "CCC": ("isotropic", True, True),
    "CCUU": ("diagonal", "shape", True),
    "CUCU": ("diagonal", "volume", True),
}


@dataclass(frozen=True)
class ParsimoniousStructure(LowRankStructure):
    """K components N(mu_k, L_k L_k' + diag(psi_k)) that share loadings or parts of psi."""

    shared_loadings: bool = False
    noise: str = "free"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        weights, means, _, noise = super().parameters
        loadings = Parameter("loadings", "loadings_init", ("K", "D", "q"), self.check_loadings)
        return (weights, means, loadings, noise)

    def family(self, floor: Array | None) -> Family:
        return ParsimoniousFactors(
            self.n_factors,
            floor,
            isotropic=self.isotropic,
            common_loadings=self.shared_loadings,
            noise=self.noise,
        )

    def check_loadings(self, shown_as: str, array: Any) -> Any:
        check_locations(shown_as, array)
        if self.shared_loadings and np.any(array != array[:1]):
            raise ValueError(f"{shown_as} must be the same for all components, because loadings are shared")
        return array

    def check_noise(self, shown_as: str, array: Any) -> Any:
        check_positive(shown_as, array)
        if self.isotropic and np.any(array != array[..., :1]):
            raise ValueError(f"{shown_as} must be the same for all features, because the noise is isotropic")
        logs = np.log(array)
        means = logs.mean(axis=1, keepdims=True)
        apart = {
            "shared": logs - logs[:1],
            "shape": (logs - means) - (logs - means)[:1],
            "volume": means - means[:1],
        }
        if self.noise in apart and np.max(np.abs(apart[self.noise])) > _CLOSE:
            shared = {"shared": "the noise", "shape": "the shape of the noise", "volume": "its volume"}
            raise ValueError(
                f"{shown_as} must be that of components which share {shared[self.noise]}, but differs by more"
            )
        return array


def check_shared(name: str, value: Any) -> None:
    """The option `shared_noise`."""
    known = isinstance(value, bool | np.bool_) or (isinstance(value, str) and value in ("shape", "volume"))
    if not known:
        raise ValueError(f"{name} must be True, False, 'shape' or 'volume', not {value!r}")


def structure_of(model: Any) -> LowRankStructure:
    """The structure for the options of `MFA`."""
    noise, shared, loadings = model.noise, model.shared_noise, bool(model.shared_loadings)
    if model.covariance_type != "auto":
        if (noise, shared, loadings) not in (("diagonal", False, False), MODELS[model.covariance_type]):
            raise ValueError(
                f"covariance_type={model.covariance_type!r} says all of noise, shared_noise and "
                "shared_loadings; leave these at their defaults"
            )
        noise, shared, loadings = MODELS[model.covariance_type]
    isotropic, form = noise == "isotropic", NOISES[shared]
    if isotropic:  # one number for each component: its volume, of the only shape
        form = {"shape": "free", "volume": "shared"}.get(form, form)
    if not loadings and form in ("free", "shared"):
        return LowRankStructure(model.n_components, model.n_factors, isotropic, form == "shared")
    return ParsimoniousStructure(
        model.n_components, model.n_factors, isotropic, shared_loadings=loadings, noise=form
    )
