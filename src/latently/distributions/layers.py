"""Layers of factors above the first one: distributions of lower factors given the leaves of a tree.

    z_L | leaf ~ N(xi, Omega)      z_{l-1} | z_l, node ~ N(mu + W z_l, diag(psi)),  l = L .. 2

A leaf is a component of the last layer; in every layer below it belongs to one node. Given its leaf all
factors are Gaussian, and those of the first layer, which generate the rows, have a dense q x q covariance.
There are two kinds of layers:

    own loadings      every node has its own mu, W and psi; xi = 0 and Omega = I (mixtures of factor
                      analysers)
    common loadings   the nodes that belong to one node below share W and psi; mu = 0; xi, Omega are those of
                      the leaf (mixtures of common factor analysers)

S leaves. The EM step depends on the rows only through the moments of z_1 per leaf. Yang, section 2.4
and chapter 5, with the corrections of docs/dmfa.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from latently.backend.linalg import diagonals, symmetric, transpose
from latently.backend.namespace import Array, eye, like, namespace, zeros
from latently.distributions.responsibilities import has_rows

_RIDGE = 1e-12  # relative to the variance of factors, for regressions on them


@dataclass(frozen=True)
class Layer:
    """Maps of n nodes from q factors to the p factors of the layer below."""

    means: Array  # (n, p): mu
    loadings: Array  # (n, p, q): W
    noise_variance: Array  # (n, p): psi, > 0


@dataclass(frozen=True)
class Top:
    means: Array  # (S, q): xi
    covariances: Array  # (S, q, q): Omega


@dataclass(frozen=True)
class Layers:
    """A layer and the layers above it."""

    layer: Layer
    above: Layers | Top

    def all(self) -> list[Layer]:
        """The layers, lowest first."""
        return [self.layer, *(self.above.all() if isinstance(self.above, Layers) else [])]

    @property
    def top(self) -> Top:
        return self.above.top if isinstance(self.above, Layers) else self.above


@dataclass(frozen=True)
class Moments:
    """Mean and covariance of some factors for every leaf: prior or observed."""

    means: Array  # (S, q)
    covariances: Array  # (S, q, q)


@dataclass(frozen=True)
class Gain:
    """Regression of factors on those below, given the leaf: z = at + K (below - at_below) + rest."""

    K: Array  # (S, q, p)
    rest: Array  # (S, q, q): residual covariance

    def posterior(self, expected: Moments, expected_below: Moments, below: Moments) -> Moments:
        """Moments of z given moments of the factors below."""
        off = (self.K @ (below.means - expected_below.means)[..., None])[..., 0]
        spread = self.K @ below.covariances @ transpose(self.K)
        return Moments(expected.means + off, symmetric(spread) + self.rest)


@dataclass(frozen=True)
class Rules:
    """Structure of the layers: their kind, the node of each leaf, and the noise floors."""

    common: bool
    owners: tuple[NDArray[np.int64], ...]  # of each layer, (S,): the node of each leaf
    floors: tuple[Array, ...]  # of each layer, (p,) or (n, p)

    def above(self) -> Rules:
        return replace(self, owners=self.owners[1:], floors=self.floors[1:])


def stacked(layers: list[Layer], top: Top) -> Layers | Top:
    """The record of layers, lowest first."""
    return top if not layers else Layers(layers[0], stacked(layers[1:], top))


def at_leaves(layer: Layer, owner: NDArray[np.int64]) -> Layer:
    """The parameters of the node of each leaf."""
    xp = namespace(layer.means)
    index = like(owner, layer.means)
    arrays = (layer.means, layer.loadings, layer.noise_variance)
    return Layer(*(xp.take(array, index, axis=0) for array in arrays))


def expectations(layers: Layers | Top, owners: tuple[NDArray[np.int64], ...]) -> list[Moments]:
    """Moments of the factors of all layers given the leaf, lowest first."""
    if isinstance(layers, Top):
        return [Moments(layers.means, layers.covariances)]
    above = expectations(layers.above, owners[1:])
    node, z = at_leaves(layers.layer, owners[0]), above[0]
    W, psi = node.loadings, node.noise_variance
    means = node.means + (W @ z.means[..., None])[..., 0]
    noise = eye(psi.shape[1], psi) * psi[:, None, :]
    return [Moments(means, symmetric(W @ z.covariances @ transpose(W)) + noise), *above]


def gain(node: Layer, expected: Moments, expected_below: Moments) -> Gain:
    """Regression of the factors above a layer whose parameters at the leaves are `node`."""
    W, omega = node.loadings, expected.covariances
    K = transpose(namespace(W).linalg.solve(expected_below.covariances, W @ omega))
    left = eye(omega.shape[-1], omega) - K @ W
    # as a sum of squares, which cannot be negative
    noise = (K * node.noise_variance[:, None, :]) @ transpose(K)
    return Gain(K, symmetric(left @ omega @ transpose(left) + noise))


def from_first(
    layers: Layers | Top, owners: tuple[NDArray[np.int64], ...], height: int
) -> tuple[Moments, Gain]:
    """Moments of the factors `height` layers above the first, and how they follow from those of the first."""
    expected = expectations(layers, owners)
    n_leaves, q = expected[0].means.shape
    one = namespace(expected[0].means).broadcast_to(eye(q, expected[0].means), (n_leaves, q, q))
    total = Gain(one, 0.0 * one)
    for i in range(height):
        assert isinstance(layers, Layers)
        here = gain(at_leaves(layers.all()[i], owners[i]), expected[i + 1], expected[i])
        rest = symmetric(here.K @ total.rest @ transpose(here.K)) + here.rest
        total = Gain(here.K @ total.K, rest)
    return expected[height], total


def stepped(layers: Layers, rules: Rules, weight: Array, seen: Moments) -> Layers:
    """The M-step: the maximiser of Q for leaves with these moments of z_1 and weights `weight` (S,).

    With z_l given the leaf and the factors below, a layer is a regression of those below on z_l. Nodes
    without weight are unchanged.
    """
    expected = expectations(layers, rules.owners)
    return _stepped(layers, rules, weight, seen, expected)


def _stepped(layers: Layers, rules: Rules, weight: Array, seen: Moments, expected: list[Moments]) -> Layers:
    xp = namespace(weight)
    owner, floor = rules.owners[0], rules.floors[0]
    here = gain(at_leaves(layers.layer, owner), expected[1], expected[0])
    z = here.posterior(expected[1], expected[0], seen)
    cross = seen.covariances @ transpose(here.K)  # (S, p, q): covariance of the factors below and z
    layer = _regression(layers.layer, owner, weight, seen, z, cross, rules.common)
    layer = replace(
        layer, noise_variance=xp.maximum(layer.noise_variance, floor + 0.0 * layer.noise_variance)
    )
    if isinstance(layers.above, Layers):
        return Layers(layer, _stepped(layers.above, rules.above(), weight, z, expected[1:]))
    top = layers.above
    if rules.common:
        filled = has_rows(weight)
        top = Top(
            xp.where(filled[:, None], z.means, top.means),
            xp.where(filled[:, None, None], z.covariances, top.covariances),
        )
    return Layers(layer, top)


def _regression(
    old: Layer, owner: NDArray[np.int64], weight: Array, x: Moments, z: Moments, cross: Array, common: bool
) -> Layer:
    """Regression of x on z in every node over its leaves; through the origin if loadings are `common`.

    It is solved for the change of the loadings and from moments about the means of the node, so that leaves
    far from the origin cost no precision: of second moments about it, zz + z z', the inverse is known.
    """
    xp = namespace(weight)
    n = old.means.shape[0]
    members = like((np.arange(n)[:, None] == owner).astype(np.float64), weight)  # (n, S)
    total = members @ weight
    filled = total > 0
    share = members * weight / xp.where(filled, total, 1.0)[:, None]  # weight of a leaf in its node

    def averaged(values: Array) -> Array:
        flat = xp.reshape(values, (values.shape[0], -1))
        return xp.reshape(share @ flat, (n, *values.shape[1:]))

    index = like(owner, weight)
    W = xp.take(old.loadings, index, axis=0)
    x_mean, z_mean = averaged(x.means), averaged(z.means)
    x_off, z_off = (
        one - xp.take(mean, index, axis=0) for one, mean in ((x.means, x_mean), (z.means, z_mean))
    )
    residual_off = x_off - (W @ z_off[..., None])[..., 0]
    residual_z = cross - W @ z.covariances  # covariance of x - W z and z
    xz = averaged(residual_z + residual_off[:, :, None] * z_off[:, None, :])
    zz = averaged(z.covariances + z_off[:, :, None] * z_off[:, None, :])
    spread = diagonals(x.covariances) - xp.sum(W * (cross + residual_z), axis=2)
    square = averaged(spread + residual_off**2)
    zz = xp.where(filled[:, None, None], symmetric(zz), eye(zz.shape[-1], zz))
    added = transpose(_solved(zz, transpose(xz)))  # with a free mean
    if common:
        towards = _solved(zz, z_mean[..., None])[..., 0]
        norm = 1.0 + xp.sum(towards * z_mean, axis=1)[:, None]
        residual = x_mean - (old.loadings @ z_mean[..., None])[..., 0]
        excess = (added @ z_mean[..., None])[..., 0] - residual  # what `added` moves the mean too far
        added = added - excess[..., None] * (towards / norm)[:, None, :]
        square = square - residual * excess / norm
    loadings = old.loadings + added
    noise = square - xp.sum(added * xz, axis=2)
    means = old.means if common else x_mean - (loadings @ z_mean[..., None])[..., 0]
    keep = filled[:, None]
    return Layer(
        xp.where(keep, means, old.means),
        xp.where(keep[..., None], loadings, old.loadings),
        xp.where(keep, noise, old.noise_variance),
    )


def _solved(zz: Array, right: Array) -> Array:
    """zz^-1 right, where zz may be singular: all leaves of a node may have factors without variance."""
    xp = namespace(zz)
    ridge = _RIDGE * (xp.max(diagonals(zz), axis=-1)[:, None, None] + _RIDGE) * eye(zz.shape[-1], zz)
    return xp.linalg.solve(zz + ridge, right)


def standard_top(n_leaves: int, n_factors: int, array: Array) -> Top:
    """Factors N(0, I) for all leaves."""
    covariances = eye(n_factors, array) + zeros((n_leaves, n_factors, n_factors), array)
    return Top(zeros((n_leaves, n_factors), array), covariances)
