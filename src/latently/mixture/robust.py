"""Mixtures that withstand outliers: components with heavy tails, and noise beside the components.

`Robust` adds either or both to the structure of a mixture of Gaussians; `RobustMixture` declares the options.
The mathematics is in distributions/heavy_tails.py and distributions/noise.py; docs/robust.md tells when to
use which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from latently.backend.namespace import Array, contiguous, namespace, zeros
from latently.core.frame import Frame
from latently.core.summary import Summary
from latently.distributions import Mixture, MixtureParams
from latently.distributions.family import Family
from latently.distributions.heavy_tails import FEWEST_DEGREES, MOST_DEGREES, HeavyParams, HeavyTailed
from latently.distributions.noise import LARGEST_SHARE, NoisyMixture, NoisyParams
from latently.estimators.checks import check_choice, check_flag, check_locations
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter
from latently.mixture.base import MixtureEstimator
from latently.mixture.structure import Fitted, Structure

_TAILS = ("normal", "t")
_OWN = ("degrees_of_freedom", "noise_weight", "noise_box")  # fitted arrays that come with the options


@estimator
class RobustMixture(MixtureEstimator):
    """Options of mixtures that withstand outliers; a concrete model implements `_gaussian_structure`.

    Parameters
    ----------
    tails : {"normal", "t"}, default="normal"
        "t" replaces the Gaussian of every component by a multivariate t distribution, in whose heavy tails
        outliers count little; `means_` are then locations and covariances those of the rows' centre (scale
        matrices). The degrees of freedom are estimated, between 1 and 10000.
    noise_component : bool, default=False
        Whether to add noise, uniform over the bounding box of the rows, for rows that fit no component. Its
        weight, of at most one half, is estimated. `predict` gives -1 for rows of noise, and `predict_proba`
        has one more column for it, the last.
    fixed_degrees_of_freedom : bool, default=False
        Whether the degrees of freedom stay at `degrees_of_freedom_init`.
    degrees_of_freedom_init : float or array-like of shape (n_components,), optional
        Starting values of the degrees of freedom, 10 by default.
    noise_weight_init : float, optional
        Starting value of the weight of the noise, 0.05 by default. `weights_init` are scaled to sum to the
        rest.

    Attributes
    ----------
    degrees_of_freedom_ : ndarray of shape (n_components,)
        With tails="t".
    noise_weight_ : ndarray of shape ()
        With noise_component=True. `weights_` sum to one minus this weight.
    noise_box_ : ndarray of shape (2, n_features)
        With noise_component=True: the smallest and the largest value of each feature, between which noise is
        uniform.
    """

    _: KW_ONLY
    tails: str = option(default="normal", check=check_choice, choices=_TAILS)
    noise_component: bool = option(default=False, check=check_flag)
    fixed_degrees_of_freedom: bool = option(default=False, check=check_flag)
    degrees_of_freedom_init: Any = None
    noise_weight_init: Any = None

    def _gaussian_structure(self) -> Structure:
        """The structure of the mixture with normal tails and without noise, for the current options."""
        raise NotImplementedError

    def _structure(self) -> Structure:
        plain, heavy, noisy = self._gaussian_structure(), self.tails == "t", bool(self.noise_component)
        return Robust(plain, heavy, noisy, not self.fixed_degrees_of_freedom) if heavy or noisy else plain

    def _check_options(self):
        super()._check_options()
        for name, value, needed in (
            ("degrees_of_freedom_init", self.degrees_of_freedom_init is not None, self.tails == "t"),
            ("fixed_degrees_of_freedom", self.fixed_degrees_of_freedom, self.tails == "t"),
            ("noise_weight_init", self.noise_weight_init is not None, self.noise_component),
        ):
            if value and not needed:
                cure = "noise_component=True" if "noise" in name else "tails='t'"
                raise ValueError(f"{name}={getattr(self, name)!r} has no effect without {cure}")
        if self.fixed_degrees_of_freedom and self.degrees_of_freedom_init is None:
            raise ValueError("fixed_degrees_of_freedom=True needs degrees_of_freedom_init, such as 4.0")

    @classmethod
    def _from_parameters(cls, sizes, given, options):
        """A fitted estimator; the arrays of `_OWN` among the options switch theirs on."""
        own = {name: options[name] for name in _OWN if name in options}
        options = {name: value for name, value in options.items() if name not in own}
        if "degrees_of_freedom" in own:
            options.setdefault("tails", "t")
        if "noise_weight" in own:
            options.setdefault("noise_component", True)
        return cls(*sizes, **options)._with_parameters(**given, **own)

    def _set_fitted_arrays(self, **given):
        super()._set_fitted_arrays(**given)
        if self.noise_component:
            total = float(self.weights_.sum() + self.noise_weight_)
            if abs(total - 1.0) > 1e-6:
                raise ValueError(f"weights and noise_weight must sum to one; their sum is {total:.6g}")

    def _keep(self, params):
        kept = {entry.name for entry in self._parameters()}
        for name in _OWN:  # of an earlier fit with other options
            if name not in kept:
                self.__dict__.pop(f"{name}_", None)
        super()._keep(params)


@dataclass(frozen=True)
class Robust(Structure):
    """A structure of Gaussians with heavy tails, noise, or both."""

    plain: Structure
    heavy: bool
    noisy: bool
    estimated: bool = True  # whether the degrees of freedom are

    # -- as without -----------------------------------------------------------------------------------

    @property
    def n_components(self) -> int:  # type: ignore[override]
        return self.plain.n_components

    @property
    def means_from(self) -> str:  # type: ignore[override]
        return self.plain.means_from

    @property
    def exact_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.plain.exact_names

    @property
    def least_rows(self) -> int:
        return self.plain.least_rows

    @property
    def start_dimensions(self) -> int | None:
        return self.plain.start_dimensions

    @property
    def most_starts(self) -> int | None:
        return self.plain.most_starts

    @property
    def n_groups(self) -> int | None:
        return self.plain.n_groups

    def check_rows(self, summary: Summary) -> None:
        self.plain.check_rows(summary)

    def check_frame(self, frame: Frame, name_of: Any) -> None:
        self.plain.check_frame(frame, name_of)

    def start_means(self, given: dict[str, Array]) -> Array | None:
        return self.plain.start_means(given)

    def completed(self, ours: dict[str, Array], given: dict[str, Array]) -> dict[str, Array]:
        return self.plain.completed(ours, given)

    # -- sizes ----------------------------------------------------------------------------------------

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        table = self.plain.parameters
        if self.heavy:
            entry = Parameter("degrees_of_freedom", "degrees_of_freedom_init", ("K",), check_degrees)
            table = (*table, entry)
        if self.noisy:
            shares = (
                replace(entry, check=check_shares) if entry.name == "weights" else entry for entry in table
            )
            share = Parameter("noise_weight", "noise_weight_init", (), check_share)
            table = (*shares, share, Parameter("noise_box", None, ("2", "D"), check_box))
        return table

    def sizes(self, n_features: int) -> dict[str, int]:
        return {**self.plain.sizes(n_features), "2": 2}

    @property
    def n_free_weights(self) -> int:
        return self.plain.n_free_weights + self.noisy

    @property
    def spread_by_row(self) -> bool:
        return self.heavy

    # -- kernels --------------------------------------------------------------------------------------

    def family(self, floor: Array | None) -> Family:
        return self._with_tails(self.plain.family(floor))

    def family_in(self, frame: Frame, floor: Array) -> Family:
        return self._with_tails(self.plain.family_in(frame, floor))

    def kernel(self, family: Family, dtype: str) -> Mixture:
        return NoisyMixture(family, dtype) if self.noisy else self.plain.kernel(family, dtype)

    def kernel_for(self, family: Family, dtype: str, frame: Frame, summary: Summary) -> Mixture:
        kernel = self.kernel(family, dtype)
        if not isinstance(kernel, NoisyMixture) or summary.n_rows == 0:  # the box of an earlier fit stays
            return kernel
        xp = namespace(frame.scale)
        low, high = ((end - frame.shift) / frame.scale for end in (summary.low, summary.high))
        # a constant feature, with a variance at the floor, tells nothing if noise has the same density in it
        half = xp.where(summary.constant, math.sqrt(0.5 * math.pi) * xp.sqrt(family.floor), 0.0)
        largest = xp.where(xp.abs(summary.low) > xp.abs(summary.high), summary.low, summary.high)
        last_digit = 2.0 * float(xp.finfo(low.dtype).eps) * xp.abs(largest) / frame.scale
        half = xp.where((high - low < 2.0 * last_digit) & (half < last_digit), last_digit, half)
        return replace(kernel, box=xp.stack([low - half, high + half]))

    def _with_tails(self, family: Family) -> Family:
        return HeavyTailed(family, self.estimated) if self.heavy else family

    # -- parameters -----------------------------------------------------------------------------------

    def gaussian(self, params: MixtureParams) -> MixtureParams:
        components = params.components.gaussian if self.heavy else params.components
        return MixtureParams(params.weights, components)

    def gaussian_family(self, family: Any) -> Any:
        return family.gaussian if self.heavy else family

    def to_kernel(self, fitted: Fitted) -> MixtureParams:
        """Fitted attributes, or starting values, for which the kernel of the fit has the box."""
        plain = self.plain.to_kernel(fitted)
        components = plain.components
        if self.heavy:
            components = HeavyParams(components, fitted["degrees_of_freedom"])
        if not self.noisy:
            return replace(plain, components=components)
        box = fitted.get("noise_box")
        if box is None:
            low = zeros((components.means.shape[1],), components.means)
            box = namespace(low).stack([low, low + 1.0])
        return NoisyParams(plain.weights, components, fitted["noise_weight"], box)

    def from_kernel(self, params: MixtureParams) -> dict[str, Array]:
        fitted = self.plain.from_kernel(self.gaussian(params))
        if self.heavy:
            fitted["degrees_of_freedom"] = params.components.degrees
        if isinstance(params, NoisyParams):
            fitted |= {"noise_weight": params.noise_weight, "noise_box": params.box}
        return fitted

    def exact(self, params: MixtureParams, fitted: Fitted) -> MixtureParams | None:
        kept = self.plain.exact(self.gaussian(params), fitted)
        return None if kept is None else self._around(kept, params, contiguous)

    def with_exact(self, usual: MixtureParams, given: Mapping[str, Array]) -> MixtureParams:
        return self._around(self.plain.with_exact(self.gaussian(usual), given), usual, lambda array: array)

    def _around(self, plain: MixtureParams, params: Any, copied: Any) -> MixtureParams:
        """`params` with other Gaussian components."""
        components = plain.components
        if self.heavy:
            components = HeavyParams(components, copied(params.components.degrees))
        return replace(params, components=components)


def check_degrees(name: str, degrees: Any) -> Any:
    if np.any((degrees < FEWEST_DEGREES) | (degrees > MOST_DEGREES)):
        outside = degrees[(degrees < FEWEST_DEGREES) | (degrees > MOST_DEGREES)].flat[0]
        raise ValueError(
            f"{name} must lie between {FEWEST_DEGREES:g} and {MOST_DEGREES:g}, where tails are normal, "
            f"not {outside:.6g}"
        )
    return degrees


def check_shares(name: str, weights: Any) -> Any:
    total = weights.sum()
    if np.any(weights < 0) or not 0 < total <= 1.0 + 1e-6:
        raise ValueError(
            f"{name} must be non-negative and, beside noise, sum to at most one; their sum is {total:.6g}"
        )
    return weights


def check_share(name: str, weight: Any) -> Any:
    if not 0 <= weight <= LARGEST_SHARE:
        raise ValueError(f"{name} must lie between 0 and {LARGEST_SHARE:g}, not {float(weight):.6g}")
    return weight


def check_box(name: str, box: Any) -> Any:
    check_locations(name, box)
    if np.any(box[0] >= box[1]):
        raise ValueError(f"{name} must hold the smallest values of the features, then larger ones")
    return box
