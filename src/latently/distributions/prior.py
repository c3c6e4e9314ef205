"""A weak conjugate prior of variances: what a few rows of a typical spread would add to the statistics.

    noise variances     inverse gamma      ln p(psi)   = -nu/2 sum_d [ln(psi_d / s_d) + s_d / psi_d - 1]
    covariances         inverse Wishart    ln p(Sigma) = -nu/2 [ln|Sigma| - ln|S| + tr(S Sigma^-1) - D]

up to constants, so that both are zero at their maximum, the scale s or S, and depend neither on units nor on
the origin. Added to Q they act as nu rows about the mean with the spread of the scale:

    psi_d = (residual squares + nu s_d) / (n + nu)          Sigma = (scatter + nu S) / (n + nu)

Common loadings need both: without the former, noise vanishes where a feature follows from the factors, and
without the latter, the factors of small components. There half of the rows are of either kind.

Maximum likelihood lets a component shrink around a few rows that it fits exactly; with the prior its noise
stays above nu s / (n + nu), and the penalised likelihood is bounded. Fraley & Raftery (2007), Journal of
Classification 24; choice of nu and s: docs/prior.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from latently.backend.linalg import log_determinant, transpose
from latently.backend.namespace import Array, eye, namespace


@dataclass(frozen=True)
class Prior:
    """Pseudo-rows about the mean of every component."""

    rows: float  # nu, of each component
    scale: Array  # (D,) or (K, D): s; of full covariances (D, D) or (K, D, D): S
    loadings: Array | None = None  # (D, r): B of a scale S = B B' + diag(s), of A Omega A' + diag(psi)

    def times(self, factor: float) -> Prior:
        """The same for statistics that are multiplied by `factor`."""
        return replace(self, rows=self.rows * factor)

    @property
    def half(self) -> float:
        """Half of the rows: those of the noise, and as many of the covariance, if there are loadings."""
        return 0.5 * self.rows

    @property
    def of_noise(self) -> Prior:
        """That of the noise variances alone."""
        return self if self.loadings is None else Prior(self.half, self.scale)

    def variances(self, squares: Array, weight: Array, together: int = 1) -> Array:
        """The maximiser of Q + ln p for sums of residual squares and weights that broadcast with the scale.

        `together` components share the variances, and all bring their pseudo-rows.
        """
        rows = self.rows * together
        return (squares + rows * self.scale) / (weight + rows)

    def log_variances(self, psi: Array, together: int = 1) -> Array:
        """ln p of the variances (..., D), summed over features; they and the scale broadcast."""
        xp = namespace(psi)
        ratio = self.scale / psi
        return -0.5 * self.rows * together * xp.sum(ratio - xp.log(ratio) - 1.0, axis=-1)

    def log_covariances(self, together: int, U: Array) -> Array:
        """ln p (G,) of covariances Sigma (G, D, D), by triangular U with U U' = Sigma^-1."""
        xp, R = namespace(U), self._root
        inside = transpose(U) @ R
        trace = xp.sum(inside * inside, axis=(-2, -1)) - U.shape[-1]
        apart = -log_determinant(U) - self._log_determinant
        return -0.5 * self.rows * together * (apart + trace)

    @cached_property
    def _root(self) -> Array:
        """The Cholesky factor of S."""
        return namespace(self.scale).linalg.cholesky(self.scale)

    @cached_property
    def _log_determinant(self) -> Array:
        """ln |S|."""
        return log_determinant(self._root)

    @cached_property
    def log_volume(self) -> Array:
        """ln |B B' + diag(s)|."""
        xp = namespace(self.scale)
        B: Any = self.loadings
        inner = eye(B.shape[1], B) + B.T @ (B / self.scale[:, None])
        return xp.sum(xp.log(self.scale)) + log_determinant(xp.linalg.cholesky(inner))


def log_noise(prior: Prior, psi: Array, shared: bool) -> Array:
    """ln p (K,) of the noise variances (K, D) of K components; (1,) if it is shared, with equal rows."""
    return prior.log_variances(psi[:1, :], psi.shape[0]) if shared else prior.log_variances(psi)
