"""Parameters, densities and sums of Gaussians with common loadings (common_loadings.py has the symbols)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from latently.backend.linalg import (
    any_root,
    cholesky_of_definite,
    inverse_of_triangular,
    log_determinant,
    symmetric,
    transpose,
)
from latently.backend.namespace import Array, eye, namespace
from latently.distributions import common_loadings_missing as missing_entries
from latently.distributions.common_loadings_missing import MissingSums


@dataclass(frozen=True)
class CommonParams:
    origin: Array  # (D,): o, the value of A z + o at z = 0; a constant of the frame
    anchor: Array  # (q,): w, the reference point of the factors
    centre: Array  # (D,): c = o + A w
    loadings: Array  # (D, q): A
    latent_means: Array  # (K, q): xi - w
    latent_covariances: Array  # (K, q, q): Omega
    noise_variance: Array  # (D,): psi, > 0
    basis: Array  # (q, q): the factors shown to users are `basis` times these

    @property
    def means(self) -> Array:
        """(K, D)"""
        return self.centre + self.latent_means @ self.loadings.T

    @cached_property
    def projection(self) -> Projection:
        """The components as projected rows show them, for densities, steps and the prior."""
        return projection(self)


@dataclass(frozen=True)
class Projection:
    """Projected rows p = W (x - c), and what they tell of z: given k, z - w = xi + V T' (p - T xi)."""

    axes: Array  # (D, q): Q of Psi^-1/2 A = Q T
    W: Array  # (q, D): Q' Psi^-1/2
    T: Array  # (q, q)
    roots: Array  # (K, q, q): C with C C' = Omega
    factor_covariances: Array  # (K, q, q): V, of z given x and k
    to_factors: Array  # (K, q, q): V T'
    precisions: Array  # (K, q, q): (T Omega T' + I)^-1, of p given k
    log_determinants: Array  # (K,): ln|T Omega T' + I|


def projection(params: CommonParams) -> Projection:
    xp = namespace(params.centre)
    q, root_psi = params.loadings.shape[1], xp.sqrt(params.noise_variance)
    Q, T = xp.linalg.qr(params.loadings / root_psi[:, None])
    C = any_root(params.latent_covariances)
    TC = T @ C
    K = C.shape[0]
    both = symmetric(xp.concat([transpose(TC) @ TC, TC @ transpose(TC)]))
    cholesky = cholesky_of_definite(eye(q, C) + both)
    inverses = inverse_of_triangular(cholesky)
    inverse_B, whitening = inverses[:K, ...], inverses[K:, ...]
    half_V = inverse_B @ transpose(C)
    return Projection(
        axes=Q,
        W=(Q / root_psi[:, None]).T,
        T=T,
        roots=C,
        factor_covariances=symmetric(transpose(half_V) @ half_V),
        to_factors=transpose(half_V) @ (inverse_B @ transpose(TC)),  # computed without cancellation
        precisions=transpose(whitening) @ whitening,
        log_determinants=log_determinant(cholesky[K:, ...]),
    )


@dataclass(frozen=True)
class CommonDensity:
    """Derived quantities, computed once per sweep."""

    params: CommonParams
    stacked: Array  # (q, D) or (q + 1, D): Q' Psi^-1/2, in the dtype of wide products
    offsets: Array  # (q,): the product of that and c
    linear: Array | None  # (D,): Psi^-1 c; None if it is below the projections in `stacked`
    half_precision: Array  # (D,): 1 / (2 psi)
    quadratic: Array  # (K, T + q + 2): of the log densities of p, for its `moments`
    factor_covariances: Array  # (K, q, q): V, of z given x and k
    to_factors: Array  # (K, q, q): V T', so that E[z|x,k] - w = `at_zero` + V T' p
    at_zero: Array  # (K, q)
    roots: Array  # (K, q, q): C with C C' = Omega
    constants: Array  # (K,): -1/2 (D ln 2 pi + ln|Sigma| + c' Psi^-1 c), and log weights
    log_weights: Array  # (K,): terms a mixture added to the constants

    @property
    def means(self) -> Array:
        return self.params.means

    @cached_property
    def tables(self) -> missing_entries.Tables:
        """Tables for rows with missing entries."""
        return missing_entries.tables(self)


@dataclass(frozen=True)
class Projected:
    """Intermediate results of the densities of a block that its statistics reuse."""

    p: Array  # (q, n)
    moments: Array  # (T + q + 2, n): products of p, packed, p, a term of all components, one
    squares: Array | None  # (n, D); None on a device, where they are not kept


@dataclass(frozen=True)
class ProjectedSums:  # sums of a block; z is measured from the anchor
    weight: Array  # (K,)      sum of r
    sum_p: Array  # (K, q)     sum of r p
    sum_pp: Array  # (K, q, q) sum of r p p'
    sum_x: Array  # (D,)       sum of x, over all components, as all fields below
    sum_zx: Array  # (q, D)    sum of E[z|x] x'
    sum_square: Array  # (D,)  sum of x^2
    incomplete: MissingSums | None = None  # sums of rows with missing entries
    plain: Array | None = None  # (K,) sum of r where the others are sums of r u, for rows of precisions u


@dataclass(frozen=True)
class CommonStats:
    """Every field is a sum over rows; missing x replaced by expectations, z measured from the anchor."""

    weight: Array  # (K,)       sum of r
    sum_z: Array  # (K, q)      sum of r E[z|x,k]
    sum_zz: Array  # (K, q, q)  sum of r E[zz'|x,k]
    sum_x: Array  # (D,)        sum of x
    sum_zx: Array  # (q, D)     sum of E[z x'|x]
    sum_square: Array  # (D,)   sum of x^2
    precision: Array | None = None  # (K,) sum of r u where rows have precisions u, which then weigh x and z
