"""The structure of a mixture over columns of several kinds: its fitted arrays, its frame, and its starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from latently.backend.namespace import like, namespace, zeros
from latently.core.block import Block
from latently.core.frame import Frame
from latently.distributions.columns import ColumnFamily, ColumnMixture, ColumnParams, Layout
from latently.distributions.levels import indicator, places
from latently.distributions.low_rank import LowRankParams
from latently.distributions.mixture import MixtureParams
from latently.estimators.checks import check_locations, check_mixing_weights, check_positive
from latently.estimators.parameters import Parameter
from latently.mixture.starts import Starts
from latently.mixture.structure import Structure

DISCRETE = ("probabilities", "locations", "scales", "rates", "dispersions")  # arrays beside those of numbers


def check_probabilities(shown_as, array):
    if np.any(array <= 0):
        raise ValueError(f"{shown_as} must be positive")
    return array


@dataclass(frozen=True)
class MixedStructure(Structure):
    """K components over columns of the kinds of a layout."""

    n_components: int
    n_factors: int
    layout: Layout

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        table = [Parameter("weights", "weights_init", ("K",), check_mixing_weights)]
        if self.layout.numbers:
            table += [
                Parameter("means", "means_init", ("K", "N"), check_locations),
                Parameter("loadings", "loadings_init", ("K", "N", "q"), check_locations),
                Parameter("noise_variance", "noise_init", ("K", "N"), check_positive),
            ]
        if self.layout.categories:
            table.append(Parameter("probabilities", "probabilities_init", ("K", "M"), check_probabilities))
        if self.layout.ordered:
            table += [
                Parameter("locations", "locations_init", ("K", "O")),
                Parameter("scales", "scales_init", ("K", "O"), check_positive),
            ]
        if self.layout.counts:
            table.append(Parameter("rates", "rates_init", ("K", "C"), check_positive))
            if any(self.layout.dispersed):
                table.append(Parameter("dispersions", "dispersions_init", ("K", "C"), check_positive))
        return tuple(table)

    def sizes(self, n_features: int) -> dict[str, int]:
        layout = self.layout
        return {
            "K": self.n_components,
            "D": layout.n_features,
            "q": self.n_factors,
            "N": len(layout.numbers),
            "M": sum(layout.sizes),
            "O": len(layout.ordered),
            "C": len(layout.counts),
        }

    def family(self, floor: Any) -> ColumnFamily:
        return ColumnFamily(self.n_factors, self.layout, floor)  # type: ignore[abstract]

    def kernel(self, family: Any, dtype: str) -> ColumnMixture:
        return ColumnMixture(family, dtype)

    def frame(self, mean: Any, deviation: Any) -> Frame:
        """Only numbers are moved and scaled."""
        frame = Frame.around(mean, deviation, isotropic=False)
        discrete = like(self.is_discrete, mean)
        xp = namespace(mean)
        return Frame(xp.where(discrete, 0.0, frame.shift), xp.where(discrete, 1.0, frame.scale))

    @property
    def is_discrete(self) -> Any:
        """(D,) bool"""
        return np.isin(np.arange(self.layout.n_features), self.layout.discrete)

    def to_kernel(self, fitted: Mapping[str, Any]) -> MixtureParams:
        weights, layout = fitted["weights"], self.layout
        K, numbers = weights.shape[0], None
        if layout.numbers:
            numbers = LowRankParams(fitted["means"], fitted["loadings"], fitted["noise_variance"])
        widths = (0, len(layout.ordered), len(layout.ordered), 0, len(layout.counts))
        arrays = [
            fitted[name] if name in fitted else zeros((K, width), weights)
            for name, width in zip(DISCRETE, widths, strict=True)
        ]
        return MixtureParams(weights, ColumnParams(numbers, *arrays))

    def from_kernel(self, params: MixtureParams) -> dict[str, Any]:
        components = params.components
        arrays = {"weights": params.weights}
        if components.numbers is not None:
            arrays |= {
                name: getattr(components.numbers, name) for name in ("means", "loadings", "noise_variance")
            }
        kept = {entry.name for entry in self.parameters}
        return arrays | {name: getattr(components, name) for name in DISCRETE if name in kept}

    def start_means(self, given: Mapping[str, Any]) -> None:
        return None


@dataclass(frozen=True)
class MixedStarts(Starts):
    """Partitions by k-means of rows in which all columns are numbers of comparable spread."""

    @cached_property
    def embedded(self) -> Starts:
        rows = embedding(self.kernel.family.layout, self.block)
        block = Block(rows, self.block.weight, self.block.allowed)
        return Starts(self.kernel, self.n_components, self.init, self.rng, block, Frame.identity(rows[0]))

    def _clustering(self, i):
        return self.embedded._clustering(i)

    def _halves(self, parts):
        return self.embedded._halves(parts)

    def _as_allowed(self, labels):
        return self.embedded._as_allowed(labels)


def embedding(layout: Layout, block: Block) -> Any:
    """(n, E): numbers as they are in the frame, one column per level of a category, scores of the others.

    Every column of the table has about unit variance in all; missing entries are at the mean.
    """
    X, observed = block.X, block.observed
    weight: Any = block.weight
    weight = weight / weight.sum()
    parts = [X[:, list(layout.numbers)]]

    def seen(columns):
        return None if observed is None else observed[:, list(columns)]

    def standardised(values, known):
        known = np.ones(values.shape, dtype=bool) if known is None else known
        share = np.maximum(weight @ known, 1e-300)
        mean = weight @ np.where(known, values, 0.0) / share
        centred = np.where(known, values - mean, 0.0)
        return centred, np.sqrt(np.maximum(weight @ centred**2 / share, 1e-12))

    if layout.categories:
        own = indicator(X[:, list(layout.categories)], seen(layout.categories), layout.sizes).toarray()
        for j, place in enumerate(places(layout.sizes)):
            known = (
                None
                if observed is None
                else observed[:, [layout.categories[j]]] & np.ones(own[:, place].shape, bool)
            )
            centred, spread = standardised(own[:, place], known)
            parts.append(centred / np.sqrt(np.sum(spread**2)))
    for j, column in enumerate(layout.ordered):
        ends = np.array(layout.cuts[j])
        middles = ndtri(0.5 * (ndtr(ends[:-1]) + ndtr(ends[1:])))
        centred, spread = standardised(middles[X[:, [column]].astype(int)], seen([column]))
        parts.append(centred / spread)
    if layout.counts:
        centred, spread = standardised(np.sqrt(X[:, list(layout.counts)]), seen(layout.counts))
        parts.append(centred / spread)
    return np.concatenate(parts, axis=1)
