"""Gaussians in the space of codes: densities in the log domain, and statistics that no rows make singular.

    ln w_k + ln N(z; mu_k, S_k)        S_k = (1 - rho) S + rho tr(S) / d I

n codes, d their size, K Gaussians. Covariances are d x d, with d small; every factorisation is of one with
eigenvalues above a floor, so that none fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latently.deep.coders import LOG_2PI

_LEAST_VARIANCE = 1e-8  # of codes, beside a unit of about one


def log_joint(Z: Tensor, log_weights: Tensor, means: Tensor, covariances: Tensor) -> Tensor:
    """ln w_k N(z; mu_k, S_k) of codes (n, d), (n, K)."""
    L = torch.linalg.cholesky(covariances)
    log_volume = torch.log(L.diagonal(dim1=-2, dim2=-1)).sum(dim=-1) + 0.5 * Z.shape[1] * LOG_2PI
    return log_weights - log_volume - 0.5 * squared_distances(Z, means, L)


def squared_distances(Z: Tensor, means: Tensor, L: Tensor) -> Tensor:
    """Squared Mahalanobis distances (n, K) of codes from means, given Cholesky factors."""
    apart = (Z[None] - means[:, None]).mT  # (K, d, n)
    return (torch.linalg.solve_triangular(L, apart, upper=False) ** 2).sum(dim=1).T


def shrunk(S: Tensor, shrinkage: float, floor: float = _LEAST_VARIANCE) -> Tensor:
    """(1 - shrinkage) S + shrinkage tr(S) / d I of matrices (K, d, d), with eigenvalues above a floor."""
    d = S.shape[-1]
    eye = torch.eye(d, dtype=S.dtype, device=S.device)
    level = S.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None]
    found = (1.0 - shrinkage) * S + shrinkage * level * eye
    values, vectors = torch.linalg.eigh(found)
    least = max(floor, 1e-10 * float(values.max()))
    if bool((values >= least).all()):
        return found  # as it is, to the last digit
    raised = (vectors * values.clamp(min=least)[:, None]) @ vectors.mT
    return 0.5 * (raised + raised.mT)  # symmetric to the last digit, as files keep it


def weighted_mixture(Z: Tensor, log_resp: Tensor, shrinkage: float) -> tuple[Tensor, Tensor, Tensor]:
    """Log weights, means and covariances of codes (n, d) under log responsibilities (n, K), with gradients.

    Shares of a component are those of a softmax over rows, so that one without rows has statistics as well.
    """
    log_mass = torch.logsumexp(log_resp, dim=0)
    share = torch.exp(log_resp - log_mass)  # (n, K), columns sum to one
    means = share.T @ Z
    apart = Z[:, None] - means
    S = torch.einsum("nk,nki,nkj->kij", share, apart, apart)
    eye = torch.eye(Z.shape[1], dtype=Z.dtype, device=Z.device)
    level = S.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None]
    least = 1e-4  # float32 cannot factorise much flatter ones
    covariances = (1.0 - shrinkage) * S + (shrinkage * level + least) * eye
    return log_mass - torch.logsumexp(log_mass, dim=0), means, covariances


@dataclass(frozen=True)
class Sums:
    """Statistics of codes under responsibilities, in float64; they add."""

    weight: Tensor  # (K,)    sum of r
    total: Tensor  # (K, d)   sum of r z
    product: Tensor  # (K, d, d) sum of r z z'

    @classmethod
    def of(cls, Z: Tensor, resp: Tensor, variance: Tensor | None = None) -> Sums:
        """Of codes (n, d), under weights (n, K); with variances (n, d) of the codes themselves."""
        product = torch.einsum("nk,ni,nj->kij", resp, Z, Z)
        if variance is not None:
            product = product + torch.diag_embed(resp.T @ variance)
        return cls(resp.sum(dim=0), resp.T @ Z, product)

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.weight + other.weight, self.total + other.total, self.product + other.product)

    def means(self) -> Tensor:
        return self.total / self._divisor()[:, None]

    def covariances(self, shrinkage: float) -> Tensor:
        mu = self.means()
        S = self.product / self._divisor()[:, None, None] - mu[:, :, None] * mu[:, None, :]
        return shrunk(0.5 * (S + S.mT), shrinkage)

    def _divisor(self) -> Tensor:
        return torch.where(self.weight > 0, self.weight, 1.0)


def as_array(tensor: Tensor) -> NDArray[Any]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())
