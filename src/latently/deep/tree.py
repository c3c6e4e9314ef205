"""A deep mixture as a record: layers of mixtures, with one mixture above every component.

    layer 1      one mixture, of the rows
    layer 2      for every component of layer 1 a mixture of its factors, which replaces their prior
    ...          and so on; the components of the last layer are the leaves

Given its leaf a row is Gaussian, so a tree is equivalent to a mixture with one layer whose components are the
leaves: the collapsed mixture, which all methods for rows use. Factors of higher layers are linear in those of
the collapsed mixture. S leaves, D features. Formulas: docs/dmfa.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.linalg import diagonals, transpose
from latently.backend.namespace import Array, eye, like, namespace, to_numpy, zeros
from latently.core.block import Block
from latently.core.frame import Frame
from latently.core.tree import mapped
from latently.deep.kinds import Kind, pooled
from latently.distributions import FullGaussian, FullParams, Mixture, MixtureParams
from latently.distributions.deep import DeepParams
from latently.distributions.layers import (
    Layer,
    Layers,
    Moments,
    Rules,
    Top,
    at_leaves,
    expectations,
    from_first,
    stacked,
)
from latently.distributions.mixture import responsibilities
from latently.estimators.checks import check_integer
from latently.estimators.fitted import FittedModel

SMALLEST_FLOOR = 1e-9  # noise variance of factors, as a fraction of their variance


@dataclass(frozen=True)
class Tree:
    """The mixtures of all layers; each has weights, and `Layers` with one layer and its top."""

    kind: Kind
    layers: tuple[tuple[MixtureParams, ...], ...]

    @classmethod
    def of(cls, kind: Kind, layers: list[list[Any]]) -> Tree:
        """The tree of fitted mixtures."""
        return cls(kind, tuple(tuple(kind.params(mixture) for mixture in mixtures) for mixtures in layers))

    def with_layer(self, mixtures: list[MixtureParams]) -> Tree:
        """The tree with one more layer: a mixture for every leaf."""
        return Tree(self.kind, (*self.layers, tuple(mixtures)))

    def with_last_layer(self, mixtures: list[MixtureParams]) -> Tree:
        """The tree with other mixtures in the last layer."""
        return Tree(self.kind, (*self.layers[:-1], tuple(mixtures)))

    # -- sizes ----------------------------------------------------------------------------------------

    @cached_property
    def counts(self) -> list[list[int]]:
        """For every layer, the number of components of each of its mixtures."""
        return [[mixture.weights.shape[0] for mixture in mixtures] for mixtures in self.layers]

    @cached_property
    def n_factors(self) -> list[int]:
        """The number of factors of every layer."""
        return [mixtures[0].components.layer.loadings.shape[2] for mixtures in self.layers]

    @property
    def n_leaves(self) -> int:
        return sum(self.counts[-1])

    @property
    def n_features(self) -> int:
        return int(self.layers[0][0].components.layer.means.shape[1])

    @cached_property
    def parents(self) -> list[NDArray[np.int64]]:
        """For every layer above the first, the component below that each component belongs to."""
        return [np.repeat(np.arange(len(counts)), counts) for counts in self.counts[1:]]

    @cached_property
    def nodes(self) -> list[NDArray[np.int64]]:
        """For every layer, (S,) the component that each leaf belongs to."""
        nodes = [np.arange(self.n_leaves)]
        for parent in self.parents[::-1]:
            nodes.insert(0, parent[nodes[0]])
        return nodes

    def nodes_of(self, layer: int) -> NDArray[np.int64]:
        """(S,) the component that each leaf belongs to in a layer, counted from 1."""
        return self.nodes[self.checked_layer(layer) - 1]

    def checked_layer(self, layer: Any) -> int:
        check_integer("layer", layer, least=1)
        if layer > len(self.layers):
            raise ValueError(
                f"layer={layer} must not be larger than the number of layers, {len(self.layers)}"
            )
        return int(layer)

    @property
    def owners(self) -> tuple[NDArray[np.int64], ...]:
        """For every layer above the first, the index of the parameters of each leaf."""
        return tuple(self.nodes[:-1] if self.kind.common else self.nodes[1:])

    def rules(self, floors: tuple[Array, ...] | None = None) -> Rules:
        """The rules of the layers above the first, with lower bounds of their noise variances."""
        return Rules(self.kind.common, self.owners, floors or (0.0,) * len(self.owners))

    # -- parameters -----------------------------------------------------------------------------------

    @cached_property
    def weights(self) -> Array:
        """(S,) probabilities of the leaves."""
        weights = self.layers[0][0].weights
        for mixtures in self.layers[1:]:
            xp = namespace(weights)
            weights = xp.concat([weights[i] * mixture.weights for i, mixture in enumerate(mixtures)])
        return weights

    @cached_property
    def params(self) -> MixtureParams:
        """Parameters of the family of the leaves: their weights, and the parameters of all layers."""
        layers = [_joined([one.components.layer for one in mixtures]) for mixtures in self.layers[1:]]
        top = _joined([one.components.top for one in self.layers[-1]])
        first = self.kind.first(self.layers[0][0])
        above: Any = stacked(layers, top)  # a top only, in a tree of one layer
        return MixtureParams(self.weights, DeepParams(first, above))

    @cached_property
    def moments(self) -> list[Moments]:
        """For every layer, the moments of its factors given the leaf."""
        return expectations(self.params.components.above, self.owners)


def with_params(tree: Tree, params: MixtureParams) -> Tree:
    """A tree of the same sizes, with these weights of the leaves and parameters of all layers.

    A mixture with zero total weight gets equal weights.
    """
    params = tree.kind.standardised(tree, mapped(to_numpy, params))
    above, weights = params.components.above, params.weights
    moments = expectations(above, tree.owners)
    layers = [tree.kind.first_layer(params.components.first), *above.all()]
    found = []
    for height, counts in enumerate(tree.counts):
        of_nodes = np.bincount(tree.nodes[height], weights)
        top = pooled(moments[height], weights, tree.nodes[height])
        ends = np.cumsum(counts)
        mixtures = []
        for number, (end, count) in enumerate(zip(ends, counts, strict=True)):
            own = slice(end - count, end)
            total = of_nodes[own].sum()
            shares = of_nodes[own] / total if total > 0 else np.full(count, 1 / count)
            rows = slice(number, number + 1) if tree.kind.common else own
            layer = Layer(*(array[rows] for array in vars(layers[height]).values()))
            mixture = MixtureParams(shares, Layers(layer, Top(top.means[own], top.covariances[own])))
            mixtures.append(mapped(lambda array: like(array, tree.weights), mixture))
        found.append(tuple(mixtures))
    return Tree(tree.kind, tuple(found))


def _joined(records: list[Any]) -> Any:
    """Records of arrays, concatenated along the first axis."""
    kind, fields = type(records[0]), vars(records[0])
    return kind(**{name: namespace(fields[name]).concat([vars(r)[name] for r in records]) for name in fields})


# -- the collapsed mixture ------------------------------------------------------------------------------


def collapsed(tree: Tree, dtype: str = "float64") -> FittedModel:
    """The mixture with one layer whose components are the leaves, for rows in the user's units."""
    structure = tree.kind.structure(tree.n_leaves, tree.n_factors[0])
    leaves = tree.kind.leaves(structure.family(None), tree.rules(), tree.nodes[0])
    params = MixtureParams(tree.weights, leaves.collapsed(tree.params.components))
    kernel = structure.kernel(structure.family(np.zeros(tree.n_features)), dtype)
    frame = Frame.around(*kernel.moments(params), isotropic=kernel.family.isotropic)
    return FittedModel(kernel, params, frame, tree.n_leaves, tree.n_features, tree.weights)


@dataclass(frozen=True)
class FactorMap:
    """Map from factors f of the collapsed mixture to factors z of a layer: z = offset + gain f + rest."""

    offset: Array  # (S, q)
    gain: Array  # (S, q, p)
    rest: Array  # (S, q, q): covariance of z given f

    def covariances(self, of_collapsed: Array) -> Array:
        """(..., S, q, q) covariances of z, given those of f."""
        return self.gain @ of_collapsed @ transpose(self.gain) + self.rest


def factor_map(tree: Tree, layer: int | None = None) -> FactorMap:
    """The map to the factors of a layer, counted from 1; by default the last."""
    height = len(tree.layers) - 1 if layer is None else layer - 1
    here, gain = from_first(tree.params.components.above, tree.owners, height)
    first = tree.moments[0]
    if tree.kind.common:  # f is z of the first layer
        offset = here.means - (gain.K @ first.means[..., None])[..., 0]
        return FactorMap(offset, gain.K, gain.rest)
    root = namespace(gain.K).linalg.cholesky(first.covariances)  # f is z of the first layer, standardised
    return FactorMap(here.means, gain.K @ root, gain.rest)


def deviation_map(tree: Tree) -> FactorMap:
    """The map to the factors of the last layer minus their prior mean."""
    factors = factor_map(tree)
    return replace(factors, offset=factors.offset - tree.moments[-1].means)


def posterior_covariances(tree: Tree, factors: FactorMap, dtype: str = "float64") -> Array:
    """(S, q, q) covariances of factors given a complete row and the leaf."""
    fitted = collapsed(tree, dtype)
    density = fitted.kernel.prepare(fitted.params)
    return factors.covariances(fitted.kernel.family.factor_covariances(density, None, 1)[0, ...])


def diagonalised(tree: Tree, dtype: str = "float64") -> Tree:
    """The same density, with a basis of the last factors in which their posterior covariances are diagonal.

    Approximately so, if there is no such basis. The noise of a layer above is diagonal, so it fits better.
    """
    covariances = to_numpy(posterior_covariances(tree, factor_map(tree), dtype))
    ends, mixtures = np.cumsum(tree.counts[-1]), []
    for mixture, start, end in zip(tree.layers[-1], [0, *ends[:-1]], ends, strict=True):
        turned = tree.kind.diagonalised(mapped(to_numpy, mixture), covariances[start:end])
        mixtures.append(mapped(lambda array: like(array, tree.weights), turned))
    return tree.with_last_layer(mixtures)


# -- from factors to rows -------------------------------------------------------------------------------


def rows_of_factors(tree: Tree, Z: Array) -> Array:
    """(n, D) expected rows given factors (n, q) of the last layer, averaged over leaves."""
    at_zero, slopes = _map_to_rows(tree)
    shares = _leaves_given_factors(tree, Z)
    rows = shares @ at_zero
    for leaf in range(shares.shape[1]):
        rows = rows + shares[:, leaf, None] * (Z @ namespace(Z).matrix_transpose(slopes[leaf, ...]))
    return rows


def _map_to_rows(tree: Tree) -> tuple[Array, Array]:
    """Expected rows of each leaf as a function of the last factors: intercepts (S, D), slopes (S, D, q)."""
    params = tree.params.components
    first = tree.kind.first_layer(params.first)
    node = at_leaves(first, np.zeros_like(tree.nodes[0]) if tree.kind.common else tree.nodes[0])
    at_zero, slopes = node.means, node.loadings
    above = params.above.all() if isinstance(params.above, Layers) else []
    for layer, owner in zip(above, tree.owners, strict=True):
        node = at_leaves(layer, owner)
        at_zero = at_zero + (slopes @ node.means[..., None])[..., 0]
        slopes = slopes @ node.loadings
    return at_zero, slopes


def _leaves_given_factors(tree: Tree, Z: Array) -> Array:
    """(n, S) posterior probabilities of the leaves given the factors of the last layer."""
    top = tree.moments[-1]
    kernel = Mixture(FullGaussian(zeros((Z.shape[1],), Z)))
    least = SMALLEST_FLOOR * (1.0 + namespace(Z).max(diagonals(top.covariances)))
    params = FullParams(top.means, top.covariances + least * eye(Z.shape[1], Z))
    return responsibilities(kernel, kernel.prepare(MixtureParams(tree.weights, params)), Block(Z))


# -- fitted mixtures as layers --------------------------------------------------------------------------


def check_layers(kind: Kind, layers: list[list[Any]]) -> None:
    """Raise an error unless these mixtures form a tree: one for the factors of each component below."""
    if len(layers) < 2 or len(layers[0]) != 1:
        raise ValueError(
            "layers must start with one mixture for the rows, followed by at least one more layer"
        )
    for number, mixtures in enumerate(layers, 1):
        for mixture in mixtures:
            kind.check_mixture(mixture, f"layer {number}")
        if len({mixture.n_factors for mixture in mixtures}) > 1:
            raise ValueError(f"all mixtures of layer {number} must have the same number of factors")
    for number, (below, mixtures) in enumerate(pairwise(layers), 2):
        n_below, q = sum(mixture.n_components for mixture in below), below[0].n_factors
        if len(mixtures) != n_below:
            raise ValueError(
                f"layer {number} must have a mixture for each of the {n_below} components below, "
                f"not {len(mixtures)}"
            )
        if any(mixture.n_features_in_ != q for mixture in mixtures):
            raise ValueError(
                f"the mixtures of layer {number} must have {q} features, one for each factor below"
            )
