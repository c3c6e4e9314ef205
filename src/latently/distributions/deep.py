"""Deep mixtures as single-layer mixtures: families whose components are the leaves of a tree.

    x | z_1, c ~ N(mu_c + W_c z_1, diag(psi_c))      or      x | z_1 ~ N(A z_1, diag(psi))

and z_1 given its leaf is N(a_s, C_s), determined by the layers above (layers.py). So x given the leaf is

    N(mu_c + W_c a_s, W_c C_s W_c' + Psi_c)          or      N(A a_s, A C_s A' + Psi),

a low-rank Gaussian with loadings W_c C_s^1/2, or one with common loadings: the E-step is that of single-layer
mixtures, and only the M-step differs. It separates, because the complete-data likelihood is a product over
layers. S leaves, q factors of the first layer.

`NextLayer` is the kernel that learns a layer above a frozen model. Its rows are posteriors N(m_n, V_n) of the
highest factors so far, and its objective is a lower bound of the log-likelihood (docs/dmfa.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend import packed
from latently.backend.linalg import diagonals, symmetric, transpose
from latently.backend.namespace import Array, Floats, like, namespace, to_numpy
from latently.core.block import Block
from latently.core.tree import mapped
from latently.distributions.common_loadings import CommonLoadings
from latently.distributions.common_loadings_records import CommonDensity, CommonParams, CommonStats
from latently.distributions.gaussian import FullDensity, FullParams, FullStats
from latently.distributions.layers import (
    Layer,
    Layers,
    Moments,
    Rules,
    Top,
    expectations,
    stacked,
    standard_top,
    stepped,
)
from latently.distributions.low_rank import LowRankDensity, LowRankGaussian, LowRankParams, LowRankStats
from latently.distributions.mixture import Mixture, MixtureParams, MixtureStats
from latently.distributions.responsibilities import Responsibilities, has_rows


@dataclass(frozen=True)
class DeepParams:
    first: Any  # LowRankParams of C components, or CommonParams of S, whose leaves follow from `above`
    above: Layers


@dataclass(frozen=True)
class Leaves:
    """A family whose components are leaves: the E-step is that of a single-layer family."""

    family: Any  # the single-layer family
    rules: Rules  # of the layers above

    def floats_per_row(self, K: int, D: int, missing: bool) -> int:
        return int(self.family.floats_per_row(K, D, missing))

    def conditionals(self) -> list[Any]:
        """No partial steps: they would violate the structure of the layers."""
        return []

    def evaluate(self, density: Any, block: Block, *, rough: bool = False) -> tuple[Array, Any]:
        found: tuple[Array, Any] = self.family.evaluate(density, block, rough=rough)
        return found

    def most_per_row(self, K: int) -> float:
        return float(self.family.most_per_row(K))

    def sums(self, density: Any, block: Block, latent: Any, resp: Responsibilities) -> Any:
        return self.family.sums(density, block, latent, resp)

    def stats(self, density: Any, sums: Any) -> Any:
        return self.family.stats(density, sums)

    def canonical(self, params: Any) -> Any:
        return params

    def log_prior(self, params: Any) -> float:
        """That of the first layer; the layers above are kept from collapsing by `prior_rows`."""
        return float(self.family.log_prior(params.first))

    def rounding(self, density: Any) -> float:
        return float(self.family.rounding(density))


@dataclass(frozen=True)
class DeepLowRank(Leaves):
    """Leaves of layers with own loadings, above `LowRankGaussian`."""

    owner: NDArray[np.int64]  # (S,): the component of the first layer

    def collapsed(self, params: DeepParams) -> LowRankParams:
        """The low-rank Gaussians of the leaves."""
        z = expectations(params.above, self.rules.owners)[0]
        first = self._at_leaves(params.first)
        means = first.means + (first.loadings @ z.means[..., None])[..., 0]
        root = namespace(means).linalg.cholesky(z.covariances)
        return LowRankParams(means, first.loadings @ root, first.noise_variance)

    def prepare(self, params: DeepParams, dtype: str = "float64") -> LowRankDensity:
        density: LowRankDensity = self.family.prepare(self.collapsed(params), dtype)
        return density

    def m_step(self, stats: LowRankStats, params: DeepParams) -> DeepParams:
        """Convert statistics of the leaves' factors u, z_1 = a + C^1/2 u, to those of z_1, per layer."""
        xp = namespace(stats.weight)
        z = expectations(params.above, self.rules.owners)[0]
        root = xp.linalg.cholesky(z.covariances)
        filled = has_rows(stats.weight)
        n = xp.where(filled, stats.weight, 1.0)[:, None]
        u = stats.sum_z / n
        spread = stats.sum_zz / n[..., None] - u[:, :, None] * u[:, None, :]
        means = z.means + (root @ u[..., None])[..., 0]
        seen = Moments(means, symmetric(root @ spread @ transpose(root)))
        second = seen.covariances + means[:, :, None] * means[:, None, :]
        of_leaves = LowRankStats(
            weight=stats.weight,
            sum_x=stats.sum_x,
            sum_z=stats.weight[:, None] * means,
            sum_zx=z.means[:, :, None] * stats.sum_x[:, None, :] + root @ stats.sum_zx,
            sum_zz=stats.weight[:, None, None] * second,
            sum_square=stats.sum_square,
        )
        first = self.family.m_step(self._by_component(of_leaves), params.first)
        return DeepParams(first, stepped(params.above, self.rules, stats.weight, seen))

    def clamped(self, params: DeepParams) -> DeepParams:
        return replace(params, first=self.family.clamped(params.first))

    def moved(self, params: DeepParams, weights: Array, shift: Array, scale: Array) -> DeepParams:
        """The parameters of shift + scale * x; factors are unchanged."""
        return replace(params, first=self.family.moved(params.first, weights, shift, scale))

    def to_vector(self, params: DeepParams) -> Array:
        xp = namespace(params.first.means)
        return xp.concat([self.family.to_vector(params.first), _layers_to_vector(params.above, top=False)])

    def from_vector(self, vector: Array, like: DeepParams) -> DeepParams:
        K, D, q = like.first.loadings.shape
        size = K * D * (q + 2)
        above = _layers_from_vector(vector[size:], like.above, self.rules, top=False)
        return DeepParams(self.family.from_vector(vector[:size], like.first), above)

    def _at_leaves(self, first: LowRankParams) -> LowRankParams:
        xp = namespace(first.means)
        index = like(self.owner, first.means)
        arrays = (first.means, first.loadings, first.noise_variance)
        return LowRankParams(*(xp.take(array, index, axis=0) for array in arrays))

    def _by_component(self, stats: LowRankStats) -> LowRankStats:
        """Sums over the leaves of each component."""
        xp = namespace(stats.weight)
        n = int(self.owner.max()) + 1
        members = like((np.arange(n)[:, None] == self.owner).astype(np.float64), stats.weight)

        def added(values: Array) -> Array:
            flat = xp.reshape(values, (values.shape[0], -1))
            return xp.reshape(members @ flat, (n, *values.shape[1:]))

        by_component: LowRankStats = mapped(added, stats)
        return by_component


class DeepCommon(Leaves):
    """Leaves of layers with common loadings, above `CommonLoadings`."""

    def collapsed(self, params: DeepParams) -> CommonParams:
        """The Gaussians of the leaves in the factors of the first layer, measured from its anchor."""
        xp = namespace(params.first.centre)
        z = expectations(params.above, self.rules.owners)[0]
        first: CommonParams = params.first
        back = xp.linalg.inv(first.basis)
        return replace(
            first,
            latent_means=z.means @ back.T - first.anchor,
            latent_covariances=symmetric(back @ z.covariances @ back.T),
        )

    def prepare(self, params: DeepParams, dtype: str = "float64") -> CommonDensity:
        density: CommonDensity = self.family.prepare(self.collapsed(params), dtype)
        return density

    def m_step(self, stats: CommonStats, params: DeepParams) -> DeepParams:
        xp = namespace(stats.weight)
        first = self.family.m_step(stats, self.collapsed(params))
        n = xp.where(has_rows(stats.weight), stats.weight, 1.0)[:, None]
        z, basis = stats.sum_z / n, params.first.basis
        spread = stats.sum_zz / n[..., None] - z[:, :, None] * z[:, None, :]
        seen = Moments((z + params.first.anchor) @ basis.T, symmetric(basis @ spread @ basis.T))
        return DeepParams(first, stepped(params.above, self.rules, stats.weight, seen))

    def clamped(self, params: DeepParams) -> DeepParams:
        return replace(params, first=self.family.clamped(self.collapsed(params)))

    def canonical(self, params: DeepParams) -> DeepParams:
        return replace(params, first=self.family.canonical(self.collapsed(params)))

    def moved(self, params: DeepParams, weights: Array, shift: Array, scale: Array) -> DeepParams:
        """The parameters of shift + scale * x; factors are unchanged."""
        return replace(params, first=self.family.moved(self.collapsed(params), weights, shift, scale))

    def to_vector(self, params: DeepParams) -> Array:
        xp = namespace(params.first.centre)
        first = self.family.to_vector(self.collapsed(params))
        return xp.concat([first, _layers_to_vector(params.above, top=True)])

    def from_vector(self, vector: Array, like: DeepParams) -> DeepParams:
        first = self.collapsed(like)
        arrays = (first.loadings, first.latent_means, first.latent_covariances, first.noise_variance)
        size = sum(math.prod(array.shape) for array in arrays)
        above = _layers_from_vector(vector[size:], like.above, self.rules, top=True)
        return DeepParams(self.family.from_vector(vector[:size], first), above)


def _layers_to_vector(layers: Layers, *, top: bool) -> Array:
    """Loadings, means, standard deviations of noise and, with `top`, roots of covariances, as one vector."""
    xp = namespace(layers.layer.means)
    parts = []
    for layer in layers.all():
        parts += [layer.loadings, xp.sqrt(layer.noise_variance)] + ([] if top else [layer.means])
    if top:
        parts += [layers.top.means, layers.top.covariances]
    return xp.concat([xp.reshape(part, (-1,)) for part in parts])


def _layers_from_vector(vector: Array, like: Layers, rules: Rules, *, top: bool) -> Layers:
    xp = namespace(vector)

    def taken(array: Array) -> Array:
        nonlocal vector
        size = math.prod(array.shape)
        part, vector = vector[:size], vector[size:]
        return xp.reshape(part, array.shape)

    found = []
    for layer, floor in zip(like.all(), rules.floors, strict=True):
        loadings = taken(layer.loadings)
        noise = xp.clip(taken(layer.noise_variance), min=0.0) ** 2
        means = layer.means if top else taken(layer.means)
        found.append(Layer(means, loadings, xp.maximum(noise, floor + 0.0 * noise)))
    highest = like.top
    if top:
        means, omega = taken(highest.means), symmetric(taken(highest.covariances))
        values, vectors = xp.linalg.eigh(omega)  # an extrapolation may be negative
        omega = (vectors * xp.clip(values, min=0.0)[..., None, :]) @ transpose(vectors)
        highest = Top(means, symmetric(omega))
    return Layers(found[0], stacked(found[1:], highest))


# -- learning an additional layer --------------------------------------------------------------------------


@dataclass(frozen=True)
class UncertainLeaves(Leaves):
    """The leaves of one node, above `FullGaussian`, for rows of which only a posterior N(m, V) is known.

    A row contributes E ln N(z; a, C) = ln N(m; a, C) - tr(C^-1 V) / 2. V is the same for all rows, or packed
    after m in each row. Rows m are measured from a reference among them, since factors with common loadings
    may lie far from zero, where second moments would keep nothing of how they vary.
    """

    n_factors: int
    covariance: Array | None  # (q, q): V; None if rows have their own
    reference: Array  # (q,)

    def prepare(self, params: Layers | Top, dtype: str = "float64") -> FullDensity:
        leaves = expectations(params, self.rules.owners)[0]
        means = leaves.means - self.reference
        density: FullDensity = self.family.prepare(FullParams(means, leaves.covariances), dtype)
        if self.covariance is None:
            return density
        U = density.factors
        lost = 0.5 * namespace(U).sum(U * (self.covariance @ U), axis=(1, 2))
        return replace(density, constants=density.constants - lost)

    def evaluate(self, density: FullDensity, block: Block, *, rough: bool = False) -> tuple[Array, Array]:
        means, own = self._split(density, block)
        log_prob, wide = self.family.evaluate(density, means, rough=rough)
        if own is not None:
            log_prob = log_prob - 0.5 * (_twice_off_diagonal(density.factors) @ own.T)
        return log_prob, wide

    def sums(self, density: FullDensity, block: Block, latent: Array, resp: Responsibilities) -> FullStats:
        means, own = self._split(density, block)
        sums: FullStats = self.family.sums(density, means, latent, resp)
        if own is None:
            spread = resp.weight[:, None, None] * self.covariance
        else:
            spread = packed.unpacked(resp.times(own).T, means.X.shape[1])
        return replace(sums, sum_xx=sums.sum_xx + spread)

    def m_step(self, stats: FullStats, params: Layers) -> Layers:
        xp = namespace(stats.weight)
        n = xp.where(has_rows(stats.weight), stats.weight, 1.0)[:, None]
        means = stats.sum_x / n
        spread = symmetric(stats.sum_xx / n[..., None] - means[:, :, None] * means[:, None, :])
        return stepped(params, self.rules, stats.weight, Moments(means + self.reference, spread))

    def from_partition(self, X: Floats, weight: Floats, labels: Array, means: Floats) -> Layers:
        """Starting values from the means of rows, without their covariances."""
        (K, q), d, floor = means.shape, self.n_factors, self.family.floor
        if self.rules.common:
            origin = -to_numpy(self.reference)
            common = CommonLoadings(d, floor, origin=origin).from_partition(X, weight, labels, means)
            noise = common.noise_variance + self._hidden_variances(X)
            layer = Layer(np.zeros((1, q)), common.loadings[None], noise[None])
            return Layers(layer, Top(common.anchor + common.latent_means, common.latent_covariances))
        own = LowRankGaussian(d, floor).from_partition(X, weight, labels, means)
        noise = own.noise_variance + self._hidden_variances(X)
        layer = Layer(own.means + self.reference, own.loadings, noise)
        return Layers(layer, standard_top(K, d, own.means))

    def _hidden_variances(self, X: Floats) -> Floats:
        """(q,) variances that the means of rows do not show; half of theirs if rows have their own."""
        return 0.5 * np.var(X, axis=0) if self.covariance is None else np.diagonal(to_numpy(self.covariance))

    def log_prior(self, params: Layers) -> float:
        """None: the pseudo-rows of the kernel take its place."""
        return 0.0

    def to_vector(self, params: Layers) -> Array:
        return _layers_to_vector(params, top=self.rules.common)

    def from_vector(self, vector: Array, like: Layers) -> Layers:
        return _layers_from_vector(vector, like, self.rules, top=self.rules.common)

    def rounding(self, density: FullDensity) -> float:
        """Means of leaves are products of numbers that may be far from zero, as far as the reference is."""
        U = density.factors
        distance = float(namespace(U).max(namespace(U).abs(transpose(U) @ self.reference)))
        return super().rounding(density) + float(namespace(U).finfo(U.dtype).eps) * distance

    def _split(self, density: FullDensity, block: Block) -> tuple[Block, Array | None]:
        if self.covariance is not None:
            return block, None
        q = density.means.shape[1]
        return replace(block, X=block.X[:, :q]), block.X[:, q:]


@dataclass(frozen=True, kw_only=True)
class NextLayer(Mixture):
    """The kernel for the leaves of one node.

    Each leaf receives `prior_rows` pseudo-rows from the prior of the factors in addition to its own. The
    objective is then the bound minus a penalty for deviating from the prior: still a lower bound, and never
    above the bound itself. Rows are measured from the mean of the prior.
    """

    prior: Moments  # of one node: (1, q), (1, q, q)
    prior_rows: float

    def stats(self, density: FullDensity, sums: MixtureStats) -> MixtureStats:
        own = sums.components
        K, kappa = own.weight.shape[0], self.prior_rows
        second = own.sum_xx + kappa * self.prior.covariances
        components = FullStats(own.weight + kappa, own.sum_x, second)
        lost = kappa * (self.expected_prior(density) - K * self.at_prior() + K * np.log(K))
        return MixtureStats(sums.log_likelihood + lost, sums.total_weight, components)

    def m_step(self, stats: MixtureStats, params: MixtureParams) -> MixtureParams:
        weight = stats.components.weight
        components = self.family.m_step(stats.components, params.components)
        return MixtureParams(weight / namespace(weight).sum(weight), components)

    def expected_prior(self, density: FullDensity) -> Array:
        """The sum over leaves of E ln pi_s N(z; a_s, C_s), z from the prior."""
        xp = namespace(density.means)
        U, log_weights = density.factors, density.log_weights
        off = (transpose(U) @ density.means[..., None])[..., 0]
        spread = xp.sum(U * (self.prior.covariances @ U), axis=(1, 2))
        D = density.means.shape[1]
        log_det = xp.sum(xp.log(diagonals(U)), axis=1)
        expected = log_det - 0.5 * (D * np.log(2 * np.pi) + xp.sum(off * off, axis=1) + spread)
        return xp.sum(xp.where(log_weights > -xp.inf, log_weights, 0.0) + expected)

    def at_prior(self) -> float:
        """E ln of the prior itself, an upper bound for a leaf."""
        D = self.prior.means.shape[1]
        log_det = np.linalg.slogdet(to_numpy(self.prior.covariances[0]))[1]
        return float(-0.5 * (D * np.log(2 * np.pi) + log_det + D))


def _twice_off_diagonal(factors: Array) -> Array:
    """(K, T): the packed U U', such that its product with a packed V is tr(U U' V)."""
    xp = namespace(factors)
    precision = factors @ transpose(factors)
    q = precision.shape[-1]
    columns = [precision[:, i, j] * (1.0 if i == j else 2.0) for i, j in packed.pairs(q)]
    return xp.stack(columns, axis=1)
