"""Starting values of Gaussians with common loadings from a partition of rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from latently.backend.linalg import leading_eigenpairs
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
    residual = (X - means[labels]) * np.sqrt(weight)[:, None]
    psi = np.maximum(_unexplained(residual, total), np.maximum(family.floor, 1e-6))
    unit = np.sqrt(psi)
    middle = weight @ X / total
    to_middle = (middle - origin) / unit
    rows = (X - middle) / unit * np.sqrt(weight)[:, None]
    last = to_middle * (math.sqrt(total) * min(1.0, _FAR / max(1.0, float(np.linalg.norm(to_middle)))))
    _, V = leading_eigenpairs(np.concatenate([rows, last[None, :]]), q)
    V = np.linalg.qr(np.concatenate([V, np.eye(D)[:, : q - V.shape[1]]], axis=1))[0]  # q columns
    centre = middle - unit * (to_middle - V @ (V.T @ to_middle))

    z, parts = (((rows - centre) / unit) @ V for rows in (X, means))
    within = (z - parts[labels]) * np.sqrt(weight)[:, None]
    pooled_within = within.T @ within / total
    omega = np.empty((K, q, q))
    for k in range(K):  # the covariance of a small part is shrunk towards the pooled one
        own = labels == k
        scatter = within[own].T @ within[own]
        omega[k] = (scatter + (q + 1) * pooled_within) / (weight[own].sum() + q + 1)
    if family.shared:
        omega = np.broadcast_to(pooled_within, omega.shape)
    left = (X - centre) / unit - z @ V.T
    params = CommonParams(
        origin=origin,
        anchor=V.T @ to_middle,
        centre=centre,
        loadings=unit[:, None] * V,
        latent_means=parts,
        latent_covariances=omega + 1e-6 * np.eye(q),
        noise_variance=psi * np.maximum(weight @ left**2 / total, 0.1),
        basis=np.eye(q),
    )
    return replace(family.clamped(params), basis=np.eye(q))


def _unexplained(residual: Floats, weight: float) -> Floats:
    """(D,) variance of each feature not explained by the others, or half its variance with few rows."""
    S = residual.T @ residual / weight
    variance = np.diagonal(S)
    if len(residual) <= 2 * len(variance):
        return 0.5 * variance
    ridge = 1e-6 * np.where(variance > 0, variance, 1.0)
    return np.asarray(1.0 / np.diagonal(np.linalg.inv(S + np.diag(ridge))))
