"""Starting values of Gaussians with common loadings from a partition of rows."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from latently.backend.linalg import leading_eigenpairs, leading_eigenvectors
from latently.backend.namespace import Array, Floats, to_numpy
from latently.distributions.common_loadings_records import CommonParams

if TYPE_CHECKING:
    from latently.distributions.common_loadings import CommonLoadings

_FAR = 1e6  # distance from the origin, in standard deviations, beyond which only its direction matters


def from_partition(
    family: CommonLoadings, X: Floats, weight: Floats, labels: Array, means: Floats
) -> CommonParams:
    """Leading directions of all rows about the origin, and the moments of the parts in this subspace.

    Features are scaled by the noise, so that the start does not depend on their units.
    """
    (K, D), q, total = means.shape, family.n_factors, weight.sum()
    origin = np.zeros(D) if family.origin is None else to_numpy(family.origin)
    rows = _few_rows(X, weight) if len(X) <= 2 * D else row_moments(X, weight)
    middle = rows.middle
    psi = np.maximum(rows.unexplained(X, weight, labels, means), np.maximum(family.floor, 1e-6))
    unit = np.sqrt(psi)
    to_middle = (middle - origin) / unit
    V = rows.leading(unit, to_middle * min(1.0, _FAR / max(1.0, float(np.linalg.norm(to_middle)))), q)
    V = np.linalg.qr(np.concatenate([V, np.eye(D)[:, : q - V.shape[1]]], axis=1))[0]  # q columns
    centre = middle - unit * (to_middle - V @ (V.T @ to_middle))

    turn = V / unit[:, None]
    z, parts = (X - middle) @ turn + (middle - centre) @ turn, (means - centre) @ turn
    within = (z - parts[labels]) * np.sqrt(weight)[:, None]
    pooled_within = within.T @ within / total
    omega = np.empty((K, q, q))
    for k in range(K):  # the covariance of a small part is shrunk towards the pooled one
        own = labels == k
        scatter = within[own].T @ within[own]
        omega[k] = (scatter + (q + 1) * pooled_within) / (weight[own].sum() + q + 1)
    if family.shared:
        omega = np.broadcast_to(pooled_within, omega.shape)
    left = rows.left((middle - centre) / unit, unit, V)
    params = CommonParams(
        origin=origin,
        anchor=V.T @ to_middle,
        centre=centre,
        loadings=unit[:, None] * V,
        latent_means=parts,
        latent_covariances=omega + 1e-6 * np.eye(q),
        noise_variance=psi * np.maximum(left, 0.1),
        basis=np.eye(q),
    )
    return replace(family.clamped(params), basis=np.eye(q))


@dataclass(frozen=True)
class RowMoments:
    """What starts need of many rows."""

    middle: Floats  # (D,)
    second: Floats  # (D, D) about the middle, per unit of weight

    def unexplained(self, X: Floats, weight: Floats, labels: Array, means: Floats) -> Floats:
        """(D,) variance about the means of the parts that other features do not explain."""
        K, n = len(means), len(X)
        sizes = np.bincount(labels, weight, K)
        own = sparse.csr_array((weight, (labels, np.arange(n))), shape=(K, n)) @ X  # sums of the parts
        own = own / np.where(sizes > 0, sizes, 1.0)[:, None]
        apart, off = ((own - of) * np.sqrt(sizes / weight.sum())[:, None] for of in (self.middle, means))
        S = self.second + off.T @ off - apart.T @ apart
        variance = np.diagonal(S)
        ridge = 1e-6 * np.where(variance > 0, variance, 1.0)
        return np.asarray(1.0 / np.diagonal(np.linalg.inv(S + np.diag(ridge))))

    def leading(self, unit: Floats, last: Floats, q: int) -> Floats:
        """(D, r) leading directions of the rows in these units and one more of the weight of all."""
        return leading_eigenvectors(self.second / unit / unit[:, None] + last[:, None] * last, q)

    def left(self, about: Floats, unit: Floats, V: Floats) -> Floats:
        """(D,) mean squares of the rows, from a point that the middle is `about` away from, without V V'."""
        second = self.second / unit / unit[:, None] + about[:, None] * about
        inside = second @ V
        twice = np.sum((V @ (V.T @ inside)) * V, axis=1)
        return np.asarray(np.diagonal(second) - 2.0 * np.sum(inside * V, axis=1) + twice)


@dataclass(frozen=True)
class _FewRows:
    """The same of rows that are fewer than their products."""

    middle: Floats  # (D,)
    scaled: Floats  # (n, D): rows about the middle, by roots of their shares of the weight

    def unexplained(self, X: Floats, weight: Floats, labels: Array, means: Floats) -> Floats:
        """So few rows do not tell what is explained: half of the variance about the means of the parts."""
        return np.asarray(0.5 * (weight / weight.sum()) @ (X - means[labels]) ** 2)

    def leading(self, unit: Floats, last: Floats, q: int) -> Floats:
        return leading_eigenpairs(np.concatenate([self.scaled / unit, last[None, :]]), q)[1]

    def left(self, about: Floats, unit: Floats, V: Floats) -> Floats:
        rows = self.scaled / unit
        rows = rows - (rows @ V) @ V.T
        return np.asarray(np.sum(rows**2, axis=0) + (about - V @ (V.T @ about)) ** 2)


def _few_rows(X: Floats, weight: Floats) -> _FewRows:
    shares = weight / weight.sum()
    middle = shares @ X
    return _FewRows(middle, (X - middle) * np.sqrt(shares)[:, None])


_last: list[tuple[weakref.ref[Any], weakref.ref[Any], RowMoments]] = []


def row_moments(X: Floats, weight: Floats) -> RowMoments:
    """Weighted moments of rows. The last ones are remembered as long as the rows live: starts share rows."""
    for known, its_weight, moments in _last:
        if known() is X and its_weight() is weight:
            return moments
    rows = _few_rows(X, weight)
    moments = RowMoments(rows.middle, rows.scaled.T @ rows.scaled)
    _last[:] = [(weakref.ref(X, lambda _: _last.clear()), weakref.ref(weight), moments)]
    return moments
