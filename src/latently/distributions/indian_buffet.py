"""The Indian buffet process: a prior over binary matrices with any number of columns.

    P([Z]) = alpha^K / prod_h K_h! * exp(-alpha H_N) * prod_k (N - m_k)! (m_k - 1)! / N!

Z is (N, K) without null columns, m_k a column's sum, H_N = 1 + 1/2 + .. + 1/N, and K_h the number of columns
equal to h. [Z] is the class of all orders of the columns; with K! in place of prod K_h! the same is the
probability of Z with its columns in random order, the form that coordinate-wise algorithms need.
Griffiths & Ghahramani (2011), JMLR 12.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma, gammaln, xlogy

from latently.backend.namespace import Floats

Codes = NDArray[np.int64]
_EULER = 0.5772156649015329


@dataclass(frozen=True)
class IndianBuffet:
    """The process with a `concentration` alpha, or its finite model with `n_features` columns."""

    concentration: float
    n_features: int | None = None  # None: any number

    def __post_init__(self) -> None:
        if not 0 <= self.concentration < np.inf:
            raise ValueError(f"concentration must be finite and not negative, not {self.concentration!r}")
        if self.n_features is not None and self.n_features < 1:
            raise ValueError(f"n_features must be at least 1 or None, not {self.n_features!r}")
        if self.n_features is not None and self.concentration == 0:
            raise ValueError("concentration must be positive with n_features")

    def log_prob(self, Z: Any) -> float:
        """ln P([Z]) of the class, null columns ignored; with `n_features`, ln p(Z) of the matrix."""
        Z = binary_matrix("Z", Z)
        if self.n_features is not None:
            return self._log_prob_finite(Z)
        columns = Z[:, Z.any(axis=0)]
        _, equal = np.unique(columns, axis=1, return_counts=True)
        return self._log_columns(columns) - float(np.sum(gammaln(equal + 1)))

    def log_prob_ordered(self, Z: Any) -> float:
        """ln p(Z) of the active columns in random order."""
        Z = binary_matrix("Z", Z)
        if self.n_features is not None:
            raise ValueError("log_prob_ordered is of the infinite model; use n_features=None")
        columns = Z[:, Z.any(axis=0)]
        return self._log_columns(columns) - float(gammaln(columns.shape[1] + 1))

    def sample(self, n_rows: int, rng: np.random.Generator) -> Codes:
        """(n_rows, K) codes: customers one after the other, or the columns of the finite model."""
        if self.n_features is not None:
            probability = rng.beta(self.concentration / self.n_features, 1.0, size=self.n_features)
            return np.asarray(rng.random((n_rows, self.n_features)) < probability, dtype=np.int64)
        Z = np.zeros((n_rows, 0), dtype=np.int64)
        for n in range(n_rows):
            counts = Z.sum(axis=0)
            Z[n] = rng.random(len(counts)) < counts / (n + 1)
            new = np.zeros((n_rows, rng.poisson(self.concentration / (n + 1))), dtype=np.int64)
            new[n] = 1
            Z = np.concatenate([Z, new], axis=1)
        return Z

    def _log_columns(self, Z: Codes) -> float:
        """The part that needs no order of the columns, all of which are active."""
        return log_buffet(Z.sum(axis=0), len(Z), self.concentration)

    def _log_prob_finite(self, Z: Codes) -> float:
        K = self.n_features
        assert K is not None
        if Z.shape[1] != K:
            raise ValueError(f"Z must have n_features={K} columns, not {Z.shape[1]}")
        m, N, share = Z.sum(axis=0), len(Z), self.concentration / K
        return float(np.sum(np.log(share) + betaln(m + share, N - m + 1)))


def log_buffet(counts: Any, n_rows: int, concentration: float) -> float:
    """ln p(Z) of active columns with these sums, up to what depends on their order."""
    m = np.asarray(counts, dtype=np.float64)
    of_columns = float(np.sum(betaln(m, n_rows - m + 1)))
    return float(xlogy(len(m), concentration)) - concentration * harmonic(n_rows) + of_columns


def log_ordered(counts: Any, n_rows: int, concentration: float) -> float:
    """ln p(Z) of active columns with these sums, in random order."""
    return log_buffet(counts, n_rows, concentration) - float(gammaln(len(counts) + 1))


def log_odds(n_rows: int) -> Floats:
    """(N + 1,) ln m - ln(N - m): the odds that a row has what m of the others have."""
    m = np.arange(n_rows + 1, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(m) - np.log(n_rows - m))


def harmonic(n: int) -> float:
    """H_n."""
    return float(digamma(n + 1) + _EULER)


def left_ordered_form(Z: Any) -> Codes:
    """Z with its columns in the order of the binary numbers that they are, largest first; first row first.

    Null columns come last; matrices of one class have the same active columns.
    """
    Z = binary_matrix("Z", Z)
    return np.asarray(Z[:, left_order(Z)])


def left_order(Z: Any) -> NDArray[np.intp]:
    """(K,) the order of the columns in left-ordered form; equal ones keep their order."""
    Z = np.asarray(Z)
    if not Z.size:
        return np.arange(Z.shape[1])
    return np.lexsort(1 - Z[::-1].astype(np.int64))


def binary_matrix(name: str, Z: Any) -> Codes:
    """(N, K) integers 0 and 1, or an error."""
    Z = np.asarray(Z)
    if Z.ndim != 2 or Z.shape[0] == 0:
        raise ValueError(f"{name} must be a matrix with a row for each observation, not shape {Z.shape}")
    if Z.dtype.kind not in "biuf" or not np.all((Z == 0) | (Z == 1)):
        raise ValueError(f"{name} must hold zeros and ones only")
    return np.asarray(Z, dtype=np.int64)
