"""The two kinds of layers: with own loadings (DMFA), and with common loadings (DMCFA).

A kind converts fitted mixtures to parameters of a layer and back, and defines the family that evaluates rows
given the leaf and the coordinates of the factors.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latently.backend.linalg import clamp_spectrum, symmetric, with_fixed_signs
from latently.backend.namespace import Array, eye, namespace, to_numpy, zeros
from latently.distributions import CommonParams, LowRankParams, MixtureParams
from latently.distributions.deep import DeepCommon, DeepLowRank, DeepParams
from latently.distributions.layers import (
    Layer,
    Layers,
    Moments,
    Rules,
    Top,
    expectations,
    stacked,
    standard_top,
)
from latently.mixture import MCFA, MFA
from latently.mixture.structure import CommonStructure, LowRankStructure, Structure

_LEAST_SPREAD = 1e-3  # variance of factors, as a fraction of the variance due to noise


class Kind(Protocol):
    """The interface that a tree uses. Parameters of a mixture are weights, and `Layers` with one layer."""

    mixture: ClassVar[Any]  # the class of the mixtures
    common: ClassVar[bool]  # whether the components of a mixture share their loadings

    # -- mixtures of one layer --------------------------------------------------------------------------

    @abstractmethod
    def structure(self, n_components: int, n_factors: int) -> Structure:
        """The structure of a mixture of these sizes."""

    @abstractmethod
    def params(self, mixture: Any) -> MixtureParams:
        """The parameters of a fitted mixture."""

    @abstractmethod
    def fitted(self, params: MixtureParams) -> Any:
        """The fitted mixture with these parameters, in main memory."""

    @abstractmethod
    def collapsed(self, params: MixtureParams) -> Any:
        """The fitted mixture with these parameters of a collapsed mixture, in main memory."""

    def check_mixture(self, mixture: Any, place: str) -> None:
        """Raise an error unless this is a fitted mixture of this kind; `place` says where, in the error."""
        if not isinstance(mixture, self.mixture):
            raise ValueError(
                f"{place} must consist of {self.mixture.__name__}, not of {type(mixture).__name__}"
            )
        check_is_fitted(mixture)

    # -- a tree of them ---------------------------------------------------------------------------------

    @abstractmethod
    def leaves(self, family: Any, rules: Rules, component_of: Any) -> Any:
        """The family of the leaves above a first-layer family; `component_of` (S,) are its components."""

    @abstractmethod
    def first(self, params: MixtureParams) -> Any:
        """The first-layer mixture, as parameters of the family of the leaves."""

    @abstractmethod
    def first_layer(self, first: Any) -> Layer:
        """The same as a layer."""

    # -- coordinates of factors -------------------------------------------------------------------------

    @abstractmethod
    def diagonalised(self, params: MixtureParams, covariances: Array) -> MixtureParams:
        """The same mixture in a basis of its factors in which these posterior covariances are diagonal.

        Approximately so, if there is no such basis. In main memory.
        """

    def standardised(self, tree: Any, params: MixtureParams) -> MixtureParams:
        """Parameters of all layers of a tree, in the preferred units of their factors; in main memory."""
        return params


@dataclass(frozen=True)
class OwnLoadings(Kind):
    """Every component has its own mean, loadings and noise, and factors N(0, I)."""

    mixture: ClassVar[Any] = MFA
    common: ClassVar[bool] = False

    def structure(self, n_components, n_factors):
        return LowRankStructure(n_components, n_factors)

    def params(self, mixture: Any) -> MixtureParams:
        layer = Layer(mixture.means_, mixture.loadings_, mixture.noise_variance_)
        top = standard_top(mixture.n_components, mixture.n_factors, mixture.means_)
        return MixtureParams(mixture.weights_, Layers(layer, top))

    def fitted(self, params: MixtureParams) -> MFA:
        return self.collapsed(replace(params, components=params.components.layer))

    def collapsed(self, params: MixtureParams) -> MFA:
        c = params.components
        return MFA.from_parameters(
            weights=params.weights, means=c.means, loadings=c.loadings, noise_variance=c.noise_variance
        )

    def leaves(self, family: Any, rules: Rules, component_of: Any) -> DeepLowRank:
        return DeepLowRank(family, rules, component_of)

    def first(self, params: MixtureParams) -> LowRankParams:
        layer = params.components.layer
        return LowRankParams(layer.means, layer.loadings, layer.noise_variance)

    def first_layer(self, first: LowRankParams) -> Layer:
        return Layer(first.means, first.loadings, first.noise_variance)

    def diagonalised(self, params: MixtureParams, covariances: Array) -> MixtureParams:
        turns = np.stack([with_fixed_signs(np.linalg.eigh(V)[1]) for V in covariances])
        layer = params.components.layer
        turned = replace(layer, loadings=layer.loadings @ turns)
        return replace(params, components=Layers(turned, params.components.above))

    def standardised(self, tree: Any, params: MixtureParams) -> MixtureParams:
        """Factors of every component have mean zero and unit variances."""
        above = params.components.above
        layers = [self.first_layer(params.components.first), *above.all()]
        moments = expectations(above, tree.owners)
        for height, parent in enumerate(tree.parents):
            of = pooled(moments[height], params.weights, tree.nodes[height])
            m, unit = of.means, np.sqrt(np.diagonal(of.covariances, axis1=1, axis2=2))
            below, layer = layers[height], layers[height + 1]
            layers[height] = Layer(
                below.means + np.einsum("npq,nq->np", below.loadings, m),
                below.loadings * unit[:, None, :],
                below.noise_variance,
            )
            layers[height + 1] = Layer(
                (layer.means - m[parent]) / unit[parent],
                layer.loadings / unit[parent][:, :, None],
                layer.noise_variance / unit[parent] ** 2,
            )
        first = LowRankParams(*vars(layers[0]).values())
        components = DeepParams(first, Layers(layers[1], stacked(layers[2:], above.top)))
        return replace(params, components=components)


@dataclass(frozen=True)
class CommonLoadings(Kind):
    """The components of a mixture share loadings and noise; component k has factors N(xi_k, Omega_k)."""

    mixture: ClassVar[Any] = MCFA
    common: ClassVar[bool] = True

    def structure(self, n_components, n_factors):
        return CommonStructure(n_components, n_factors)

    def params(self, mixture: Any) -> MixtureParams:
        A, psi = mixture.loadings_, mixture.noise_variance_
        layer = Layer(zeros((1, A.shape[0]), A), A[None, ...], psi[None, :])
        top = Top(mixture.latent_means_, mixture.latent_covariances_)
        return MixtureParams(mixture.weights_, Layers(layer, top))

    def fitted(self, params: MixtureParams) -> MCFA:
        layer, top = params.components.layer, params.components.top
        return MCFA.from_parameters(
            weights=params.weights,
            loadings=layer.loadings[0, ...],
            latent_means=top.means,
            latent_covariances=top.covariances,
            noise_variance=layer.noise_variance[0, ...],
        )

    def collapsed(self, params: MixtureParams) -> MCFA:
        c = params.components
        return MCFA.from_parameters(
            weights=params.weights,
            loadings=c.loadings,
            latent_means=c.latent_means,
            latent_covariances=c.latent_covariances,
            noise_variance=c.noise_variance,
        )

    def leaves(self, family: Any, rules: Rules, component_of: Any) -> DeepCommon:
        """Covariances of factors follow from the layers above, so the prior is that of the noise."""
        if family.prior is not None:  # the pseudo-rows of the first layer's components, however many leaves
            n_components = int(component_of.max()) + 1
            of_noise = family.prior.of_noise.times(n_components / len(component_of))
            family = family.with_prior(of_noise)
        return DeepCommon(family, rules)

    def first(self, params: MixtureParams) -> CommonParams:
        layer, top = params.components.layer, params.components.top
        A, psi = layer.loadings[0, ...], layer.noise_variance[0, ...]
        return CommonParams(
            origin=zeros(psi.shape, psi),
            anchor=zeros((A.shape[1],), A),
            centre=zeros(psi.shape, psi),
            loadings=A,
            latent_means=top.means,
            latent_covariances=top.covariances,
            noise_variance=psi,
            basis=eye(A.shape[1], A),
        )

    def first_layer(self, first: CommonParams) -> Layer:
        A = first.loadings @ namespace(first.centre).linalg.inv(first.basis)
        return Layer(zeros((1, A.shape[0]), A), A[None, ...], first.noise_variance[None, :])

    def diagonalised(self, params: MixtureParams, covariances: Array) -> MixtureParams:
        """Factors have unit covariance on average, and posterior covariances that are diagonal on average."""
        layer, top, weights = params.components.layer, params.components.top, params.weights
        A, psi = layer.loadings[0], layer.noise_variance[0]
        # a layer above needs a density: a variance of at least a small fraction of that due to noise
        unit = np.linalg.cholesky(np.linalg.inv(A.T @ (A / psi[:, None])))
        inverse = np.linalg.inv(unit)
        least = np.full(len(unit), _LEAST_SPREAD)
        omega = unit @ clamp_spectrum(inverse @ top.covariances @ inverse.T, least) @ unit.T
        values, vectors = np.linalg.eigh(np.einsum("k,kij->ij", weights, omega))
        whitening, back = (vectors / np.sqrt(values)).T, vectors * np.sqrt(values)
        V = whitening @ np.einsum("k,kij->ij", weights, covariances) @ whitening.T
        turn = with_fixed_signs(np.linalg.eigh(symmetric(V))[1])
        basis = turn.T @ whitening
        return MixtureParams(
            weights,
            Layers(
                replace(layer, loadings=(A @ back @ turn)[None]),
                Top(top.means @ basis.T, symmetric(basis @ omega @ basis.T)),
            ),
        )


def pooled(moments: Moments, weights: Array, nodes: Any) -> Moments:
    """Moments of each node from those of its leaves with these weights; in main memory."""
    n = nodes.max() + 1
    members = (np.arange(n)[:, None] == nodes) * np.maximum(weights, np.finfo(float).tiny)
    share = members / members.sum(axis=1, keepdims=True)
    of_leaves, spread = to_numpy(moments.means), to_numpy(moments.covariances)
    means = share @ of_leaves
    off = of_leaves - means[nodes]
    second = spread + off[:, :, None] * off[:, None, :]
    return Moments(means, np.einsum("ns,sij->nij", share, second))
