"""Derivatives of log densities by the parameters of Gaussian mixtures and factor models.

With u_k = Sigma_k^-1 (x - mu_k) and G_k = d ln p(x) / d Sigma_k = r_k / 2 (u_k u_k' - Sigma_k^-1), of the
observed entries of a row alone (others have zeros), every parameter follows by the chain rule:

    pi_k     r_k / pi_k              Sigma_k                     G_k
    mu_k     r_k u_k                 L_k, psi_k                  2 G_k L_k, diag G_k
    A        sum_k r_k u_k xi_k' + 2 G_k A Omega_k               common loadings
    xi_k, Omega_k, psi               A' r_k u_k, A' G_k A, sum_k diag G_k

n rows, D features, K components, P parameters. Rows with the same missing entries share their matrices. A
pass costs O(n K D^2), and derivatives by row O(n P).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp

Arrays = dict[str, Any]  # fitted arrays by name, or derivatives by them, whose leading axes may be rows


@dataclass(frozen=True)
class Covariances:
    """A Gaussian mixture of free covariances of one shape."""

    shape: str  # full, tied, diag or spherical

    def gaussians(self, arrays: Arrays) -> tuple[Any, Any, Any]:
        """Weights (K,), means (K, D) and covariances (K, D, D)."""
        means, given = arrays["means"], arrays["covariances"]
        K, D = means.shape
        if self.shape in ("diag", "spherical"):
            given = np.eye(D) * given.reshape(K, -1, 1)
        return arrays["weights"], means, np.broadcast_to(given, (K, D, D))

    def chained(self, arrays: Arrays, by_weight: Any, by_mean: Any, G: Any) -> Arrays:
        """Derivatives by the parameters from those by weights, means and covariances."""
        own = G if self.shape in ("full", "tied") else np.diagonal(G, axis1=-2, axis2=-1)
        own = own.sum(axis=-3) if self.shape == "tied" else own
        own = own.sum(axis=-1) if self.shape == "spherical" else own
        return {"weights": by_weight, "means": by_mean, "covariances": own}


@dataclass(frozen=True)
class Factors:
    """Factor models; a single one has no axis of components."""

    single: bool

    def gaussians(self, arrays: Arrays) -> tuple[Any, Any, Any]:
        L, psi = arrays["loadings"], arrays["noise_variance"]
        if self.single:
            weights, means, L, psi = np.ones(1), arrays["mean"][None], L[None], psi[None]
        else:
            weights, means = arrays["weights"], arrays["means"]
        return weights, means, L @ np.swapaxes(L, 1, 2) + np.eye(means.shape[1]) * psi[:, None, :]

    def chained(self, arrays: Arrays, by_weight: Any, by_mean: Any, G: Any) -> Arrays:
        by_noise = np.diagonal(G, axis1=-2, axis2=-1)
        if not self.single:
            found = {"weights": by_weight, "means": by_mean, "loadings": 2.0 * G @ arrays["loadings"]}
            return {**found, "noise_variance": by_noise}
        by_loadings = 2.0 * G[..., 0, :, :] @ arrays["loadings"]
        return {"mean": by_mean[..., 0, :], "loadings": by_loadings, "noise_variance": by_noise[..., 0, :]}


@dataclass(frozen=True)
class CommonFactors:
    """Common loadings."""

    def gaussians(self, arrays: Arrays) -> tuple[Any, Any, Any]:
        A, psi = arrays["loadings"], arrays["noise_variance"]
        covariances = A @ arrays["latent_covariances"] @ A.T + np.diag(psi)
        return arrays["weights"], arrays["latent_means"] @ A.T, covariances

    def chained(self, arrays: Arrays, by_weight: Any, by_mean: Any, G: Any) -> Arrays:
        A, xi, omega = arrays["loadings"], arrays["latent_means"], arrays["latent_covariances"]
        of_means = np.swapaxes(by_mean, -1, -2) @ xi
        return {
            "weights": by_weight,
            "loadings": of_means + 2.0 * np.sum(G @ (A @ omega), axis=-3),
            "latent_means": by_mean @ A,
            "latent_covariances": A.T @ G @ A,
            "noise_variance": np.diagonal(G, axis1=-2, axis2=-1).sum(axis=-2),
        }


class Passes:
    """Passes over rows (n, D) of weights (n,), with NaN where an entry is missing."""

    def __init__(self, X: Any, weight: Any, kind: Any) -> None:
        self.X, self.weight, self.kind = X, weight, kind
        patterns, pattern = np.unique(np.isfinite(X), axis=0, return_inverse=True)
        self.groups = [
            (np.flatnonzero(pattern.ravel() == i), np.flatnonzero(o)) for i, o in enumerate(patterns)
        ]

    def _of_groups(self, arrays: Arrays) -> Any:
        """For each pattern: rows, responsibilities (n, K), u (K, n, D) and inverses (K, D, D)."""
        weights, means, covariances = self.kind.gaussians(arrays)
        K, D = means.shape
        for rows, o in self.groups:
            inverses, U, log_joint = (
                np.zeros((K, D, D)),
                np.zeros((K, len(rows), D)),
                np.empty((len(rows), K)),
            )
            for k in range(K):
                own = np.linalg.inv(covariances[k][np.ix_(o, o)])
                apart = self.X[np.ix_(rows, o)] - means[k, o]
                U[k][:, o], inverses[k][np.ix_(o, o)] = apart @ own, own
                log_norm = 0.5 * (np.linalg.slogdet(own)[1] - len(o) * np.log(2.0 * np.pi))
                log_joint[:, k] = np.log(weights[k]) + log_norm - 0.5 * np.sum(apart * U[k][:, o], axis=1)
            yield rows, np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True)), U, inverses

    def total(self, arrays: Arrays) -> Arrays:
        """The derivatives of the log-likelihood of all rows."""
        weights, means, _ = self.kind.gaussians(arrays)
        K, D = means.shape
        by_weight, by_mean, G = np.zeros(K), np.zeros((K, D)), np.zeros((K, D, D))
        for rows, r, U, inverses in self._of_groups(arrays):
            r = r * self.weight[rows, None]
            ru = r.T[:, :, None] * U
            by_weight += r.sum(axis=0) / weights
            by_mean += ru.sum(axis=1)
            G += 0.5 * (np.swapaxes(U, 1, 2) @ ru - r.sum(axis=0)[:, None, None] * inverses)
        found: Arrays = self.kind.chained(arrays, by_weight, by_mean, G)
        return found

    def by_row(self, arrays: Arrays, most: int = 1_000_000) -> Any:
        """Yield the weights (n,) and derivatives, with rows as the first axis, of some rows at a time."""
        weights, means, _ = self.kind.gaussians(arrays)
        at_once = max(1, most // means.size // means.shape[1])
        for rows, r, U, inverses in self._of_groups(arrays):
            for start in range(0, len(rows), at_once):
                some = slice(start, start + at_once)
                own, u = r[some], np.swapaxes(U[:, some], 0, 1)  # (n, K), (n, K, D)
                G = 0.5 * own[..., None, None] * (u[..., :, None] * u[..., None, :] - inverses)
                yield self.weight[rows[some]], self.kind.chained(arrays, own / weights, own[..., None] * u, G)
