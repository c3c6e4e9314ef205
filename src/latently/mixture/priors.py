"""The default prior of a mixture: the spread of all rows that the factors of one component leave unexplained.

It is worth one row per component (distributions/prior.py). Its scale depends on the rows alone, never on a
start, so that the objectives of all starts compare. With K components in d dimensions it is divided by
K^(2/d), as if the components shared the volume of the data (Fraley & Raftery, 2007):

    full covariances      S  the covariance of all rows, with correlations reduced by one percent
    noise of q factors    s  the variances that the q leading principal components leave
    common loadings       S  that noise, and the q leading principal components, divided by K^(2/q)

The principal components cost one pass: with a fixed random matrix W (D, l) the sums C W, C = X'X, give
C ~ C W (W'C W)^-1 W'C (Nystrom), exactly if l = D. Choice and measurements: docs/prior.md.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from latently.backend.linalg import root
from latently.backend.namespace import Array, Floats, eye, like, namespace, to_numpy, zeros
from latently.core.block import Block
from latently.core.summary import Summary
from latently.distributions import CommonLoadings, FullGaussian
from latently.distributions.family import Family
from latently.distributions.mixture import MixtureParams
from latently.distributions.prior import Prior

ROWS = 1.0  # per component
_CORRELATION = 0.99  # of full covariances: rows may be fewer than features
_LEAST = 1e-3  # of a feature's variance, for noise: features may depend on one another
_LEAST_COMMON = 1e-6  # of the mean variance, for isotropic noise: one feature may have nearly all of it
_MORE = 64  # columns of W beyond twice the number of factors
_SMALLEST = 1e-12  # relative eigenvalues that are rounding errors


def weak_prior(
    family: Family,
    floor: Array,  # (D,)
    variance: Array,  # (D,), zero for constant features
    summary: Summary,
    sweep: Any,
    n_components: int,
    rows: float = ROWS,
) -> Prior:
    """The prior for rows with this summary; arrays and the sweep are in the frame, where rows are centred.

    A constant feature has the floor for its scale, so that its variance stays there.
    """
    xp, constant = namespace(variance), variance == 0
    rows = rows * min(1.0, summary.total_weight / max(1, summary.n_rows))  # equal light weights are none
    instead = xp.where(floor > 0, floor, 1.0)
    if isinstance(family, FullGaussian):
        one = eye(variance.shape[0], variance)
        S = _correlations(sweep, variance) * _CORRELATION + one * (1.0 - _CORRELATION)
        spread = xp.sqrt(xp.where(constant, instead, variance))
        S = S * spread[:, None] * spread * _share_of(n_components, variance.shape[0])
        return Prior(rows, xp.where((one > 0) & constant, instead, S))
    n_factors = getattr(family, "n_factors", 0)
    axes, seen = _leading_axes(sweep, variance, n_factors, isotropic=bool(family.isotropic))
    explained = xp.sum(axes * axes, axis=1) / seen
    left = variance * xp.clip(1.0 - explained, min=0.0 if family.isotropic else _LEAST)
    dimensions = float(variance.shape[0])
    if family.isotropic:  # features in one unit may differ in spread, and the widest ones have the clusters
        relative = left / (float(xp.max(left)) or 1.0)
        dimensions = float(xp.sum(relative)) ** 2 / (float(xp.sum(relative**2)) or 1.0) or 1.0
        D = variance.shape[0]
        spread = xp.sum(left) / max(1, D - n_factors)  # over the axes that are left
        left = xp.zeros_like(left) + xp.maximum(spread, _LEAST_COMMON * xp.mean(variance))
    scale = xp.where(left > 0, left * _share_of(n_components, dimensions), instead)
    if not isinstance(family, CommonLoadings):
        return Prior(rows, scale)
    share = _share_of(n_components, n_factors)
    return Prior(rows, scale, axes * xp.sqrt(variance / seen * share)[:, None])


def _share_of(n_components: int, dimensions: float) -> float:
    return float(n_components ** (-2.0 / dimensions))


def prior_of_fitted(family: Family, params: MixtureParams, rows: float = ROWS) -> Prior:
    """The prior for further rows of a fitted mixture: about its own noise, or covariances, on average."""
    xp = namespace(params.weights)
    shares, components = params.weights / xp.sum(params.weights), params.components
    full = isinstance(family, FullGaussian)
    scale = components.covariances if full else components.noise_variance
    if isinstance(family, CommonLoadings):
        within = xp.tensordot(shares, components.latent_covariances, axes=1)
        return Prior(rows, scale, components.loadings @ root(within))
    if scale.shape[0] == 1 or (not full and scale.ndim == 1):  # shared
        return Prior(rows, xp.reshape(scale, scale.shape[1:] if full else scale.shape[-1:]))
    return Prior(rows, xp.tensordot(shares, scale, axes=1))


# -- spread of all rows -------------------------------------------------------------------------------


def _correlations(sweep: Any, variance: Array) -> Array:
    """(D, D) of all rows, attenuated where entries are missing; constant features have none."""
    xp, one = namespace(variance), eye(variance.shape[0], variance)
    product, square, _ = sweep.reduce(_products, _added, _unit(variance), None)
    spread = xp.sqrt(xp.where(square > 0, square, 1.0)) / _unit(variance)
    found = 0.5 * (product + product.T) / (spread[:, None] * spread)
    return xp.where((one > 0) | (variance == 0) | (variance == 0)[:, None], one, found)


def _leading_axes(sweep: Any, variance: Array, n_factors: int, *, isotropic: bool) -> tuple[Array, Array]:
    """Loadings (D, q) of the leading principal components, and the variances (D,) in their units.

    They are those of standardised features, unless the features have one unit.
    """
    xp, D = namespace(variance), variance.shape[0]
    if n_factors == 0:
        return zeros((D, 1), variance), xp.ones_like(variance)
    unit = _unit(variance)
    unit = xp.zeros_like(unit) + xp.max(unit) if isotropic else unit
    n_columns = min(D, 2 * n_factors + _MORE)
    W = np.eye(D) if n_columns == D else np.random.default_rng(0).standard_normal((D, n_columns))
    product, square, weight = sweep.reduce(_products, _added, unit, like(W, variance))
    axes = like(_leading(to_numpy(product / weight), W, n_factors), variance)
    seen = square / (weight * unit**2)  # the variance in these units, with zeros for missing entries
    return axes, xp.where(seen > 0, seen, 1.0)


def _unit(variance: Array) -> Array:
    xp = namespace(variance)
    return xp.sqrt(xp.where(variance > 0, variance, 1.0))


def _leading(CW: Floats, W: Floats, n: int) -> Floats:
    """(D, n or less) B, so that B B' is the part of C with its n leading eigenvectors."""
    inner = W.T @ CW
    values, vectors = np.linalg.eigh(0.5 * (inner + inner.T))
    used = values > _SMALLEST * max(values[-1], np.finfo(float).tiny)
    axes, lengths, _ = np.linalg.svd(CW @ (vectors[:, used] / np.sqrt(values[used])), full_matrices=False)
    found: Floats = axes[:, :n] * lengths[:n]
    return found


def _added(a: tuple[Array, ...], b: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(map(operator.add, a, b))


def _products(unit: Array, W: Array | None, block: Block) -> tuple[Array, Array, float]:
    """X'X W for rows in these units; the sums of squares (D,) in those of the frame; the weight."""
    xp = namespace(block.X)
    X = block.X / unit
    weighted = X if block.weight is None else X * block.weight[:, None]
    product = weighted.T @ (X if W is None else X @ W)
    return product, xp.sum(weighted * X, axis=0) * unit**2, block.total_weight()
