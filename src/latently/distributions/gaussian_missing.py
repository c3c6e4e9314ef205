"""Full Gaussians for rows with missing entries, grouped by missingness pattern.

For a pattern with observed entries o the matrix S, which is Sigma on o and the identity elsewhere, replaces
Sigma_oo: it has the same determinant and, for residuals set to zero elsewhere, the same quadratic form,
and patterns of different sizes can be stacked. Given x_o, the mean is mu + Sigma_.o Sigma_oo^-1 (x - mu)_o.

If rows share patterns, work is done once per pattern; otherwise for many rows at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from latently.backend.linalg import log_determinant, symmetric, transpose
from latently.backend.namespace import Array, Floats, eye, like, namespace, to_numpy, zeros
from latently.core.block import Block
from latently.distributions.responsibilities import Responsibilities

if TYPE_CHECKING:
    from latently.distributions.gaussian import FullDensity

_STACK_BYTES = 8_000_000  # of the matrices that are processed at once


def log_joint(density: FullDensity, block: Block) -> tuple[Array, Array]:
    """ln pi_k N(x_o; mu_o, Sigma_oo) (K, n), and -1/2 ln|2 pi Sigma_oo| (K, n)."""
    xp = namespace(block.X)
    K, G = density.means.shape[0], density.covariances.shape[0]
    places, scores, normalisers = [], [], []
    for rows, mask in _patterns(block):
        X = xp.take(block.X, rows, axis=0)
        X = xp.reshape(X, (mask.shape[0], -1, X.shape[1]))  # (patterns, rows of each, D)
        n_observed = xp.sum(mask, axis=1)[:, None]
        by_component, constants = [], []
        for g in range(G):
            C = xp.linalg.cholesky(_stand_in(density.covariances[g, ...], mask))
            whiten = transpose(xp.linalg.inv(C))
            constant = -0.5 * (n_observed * math.log(2 * math.pi) + log_determinant(C)[:, None])
            for k in range(K) if G == 1 else (g,):
                y = ((X - density.means[k, :]) * mask[:, None, :]) @ whiten
                log_prob = constant - 0.5 * xp.vecdot(y, y, axis=-1) + density.log_weights[k]
                by_component.append(xp.reshape(log_prob, (-1,)))
                constants.append(xp.reshape(xp.broadcast_to(constant, log_prob.shape), (-1,)))
        places.append(rows)
        scores.append(xp.stack(by_component))
        normalisers.append(xp.stack(constants))
    return _in_order(places, scores, axis=1), _in_order(places, normalisers, axis=1)


def sums(density: FullDensity, block: Block, resp: Responsibilities) -> tuple[Array, Array]:
    """Sums of r E[x] (K, D) and r E[xx'] (G, D, D) given the observed entries.

    With precisions u of rows these are r u E[x] and r E[u xx'], where u E[x] E[x]' is weighted with r u and
    the covariance of x, which is proportional to 1 / u, with r.
    """
    xp = namespace(block.X)
    (K, D), G = density.means.shape, density.covariances.shape[0]
    weights = resp.full()
    plain = weights if resp.plain is None else resp.plain.full()
    sum_x, sum_xx = zeros((K, D), block.X), zeros((G, D, D), block.X)
    for rows, mask in _patterns(block):
        single = mask.shape[0] > 1  # every row has its own pattern
        for k in range(K):
            r = xp.take(weights[k, :], rows)
            chosen = xp.nonzero(r > 0)[0]
            if chosen.shape[0] == 0:
                continue
            own = xp.take(mask, chosen, axis=0) if single else mask
            r = xp.take(r, chosen)
            s = r if resp.plain is None else xp.take(xp.take(plain[k, :], rows), chosen)
            x = xp.take(block.X, xp.take(rows, chosen), axis=0)
            x, spread = _conditional(density, k, x, own)
            sum_x[k, :] += r @ x
            part = (r[:, None] * x).T @ x
            if single:
                part = part + xp.reshape(s @ xp.reshape(spread, (-1, D * D)), (D, D))
            else:
                part = part + xp.sum(s) * spread[0, ...]
            sum_xx[k if G > 1 else 0, ...] += part
    return sum_x, sum_xx


def expected(density: FullDensity, block: Block, resp: Array) -> Array:
    """(n, D) posterior mean of the rows, for responsibilities (n, K)."""
    xp = namespace(block.X)
    if block.observed is None:
        return block.X
    places, means = [], []
    for rows, mask in _patterns(block):
        X, own = xp.take(block.X, rows, axis=0), xp.take(resp, rows, axis=0)
        parts = (own[:, k, None] * _conditional(density, k, X, mask)[0] for k in range(resp.shape[1]))
        places.append(rows)
        means.append(sum(parts, zeros(X.shape, X)))
    return _in_order(places, means, axis=0)


def draw(density: FullDensity, block: Block, labels: Array, rng: np.random.Generator) -> Floats:
    """(n, D) rows with missing entries sampled given the observed ones and the component."""
    xp = namespace(block.X)
    drawn: Floats = to_numpy(block.X).copy()
    for rows, mask in _patterns(block):
        at = to_numpy(rows)
        for k in np.unique(labels[at]):
            chosen = np.flatnonzero(labels[at] == k)
            own = xp.take(mask, like(chosen, mask), axis=0) if mask.shape[0] > 1 else mask
            X = xp.take(block.X, like(at[chosen], block.X), axis=0)
            x, spread = (to_numpy(part) for part in _conditional(density, int(k), X, own))
            # zero in observed entries; symmetric roots exist for singular matrices as well
            values, vectors = np.linalg.eigh(spread)
            root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
            drawn[at[chosen]] = x + (root @ rng.standard_normal((*x.shape, 1)))[..., 0]
    return drawn


def _conditional(density: FullDensity, k: int, X: Array, mask: Array) -> tuple[Array, Array]:
    """E[x | x_o] (m, D) and its covariance, zero where observed: (m, D, D), or (1, D, D) of a single mask."""
    xp = namespace(X)
    covariance = density.covariances[k if density.covariances.shape[0] > 1 else 0, ...]
    C = xp.linalg.cholesky(_stand_in(covariance, mask))
    W = xp.linalg.inv(C) * mask[:, None, :]  # W'W = Sigma_oo^-1, zero elsewhere
    gain = covariance @ transpose(W)  # (P, D, D): Sigma_.o C^-T
    residual = (X - density.means[k, :]) * mask
    y = (W @ residual[:, :, None])[..., 0] if mask.shape[0] > 1 else residual @ transpose(W[0, ...])
    shift = (gain @ y[:, :, None])[..., 0] if mask.shape[0] > 1 else y @ transpose(gain[0, ...])
    hole = 1.0 - mask
    x = xp.where(mask > 0, X, density.means[k, :] + shift)
    spread = symmetric(covariance - gain @ transpose(gain)) * hole[:, :, None] * hole[:, None, :]
    return x, spread


def _stand_in(covariance: Array, mask: Array) -> Array:
    """(P, D, D): the covariance where both entries are observed, the identity elsewhere."""
    return (
        covariance * mask[:, :, None] * mask[:, None, :] + eye(mask.shape[1], mask) * (1.0 - mask)[:, None, :]
    )


def _in_order(places: list[Array], parts: list[Array], axis: int) -> Array:
    """Scatter the parts to the positions of their rows."""
    xp = namespace(parts[0])
    return xp.take(xp.concat(parts, axis=axis), xp.argsort(xp.concat(places)), axis=axis)


def _patterns(block: Block) -> Iterator[tuple[Array, Array]]:
    """Rows that share a pattern (1, D), or rows with their own patterns (m, D), as ones and zeros."""
    xp = namespace(block.X)
    observed = to_numpy(block.observed)
    n, D = observed.shape
    packed = np.packbits(observed, axis=1)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    shared = len(first) <= max(1, n // 8)
    if shared:
        order = np.argsort(inverse, kind="stable")
        groups = np.split(order, np.cumsum(np.bincount(inverse))[:-1])
    else:
        at_once = max(2, _STACK_BYTES // (8 * D * D))
        groups = [np.arange(i, min(i + at_once, n)) for i in range(0, n, at_once)]
    for rows in groups:
        masks = observed[rows[:1]] if shared else observed[rows]
        yield like(rows, block.X), xp.astype(like(masks, block.X), xp.float64)
