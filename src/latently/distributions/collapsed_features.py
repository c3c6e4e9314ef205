"""The linear-Gaussian model of the Indian buffet process, weights integrated out, and its Gibbs sampler.

    X ~ Z A + N(0, sigma^2)     a_kd ~ N(0, sigma_a^2)     Z ~ Indian buffet process

    M = (Z'Z + (sigma^2 / sigma_a^2) I)^-1,    H = M Z'X the posterior mean of A,
    p(x_n | z, j new features, others) = N(x_n; z H, (sigma^2 (1 + z M z') + j sigma_a^2) I)

with M and H of the other rows. Features that the same rows have share M ("pattern"); without missing entries
there is one. M follows rows by rank-one updates, so a visit of a row costs O(K^2 D) and none of the others is
touched. Document 003, section 2.3; Griffiths & Ghahramani (2011), JMLR 12; Doshi-Velez & Ghahramani (2009).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg
from scipy.special import gammaln, xlogy

from latently.backend.namespace import Floats
from latently.distributions.binary_codes import Patterns, Table
from latently.distributions.buffet_priors import Priors
from latently.distributions.indian_buffet import IndianBuffet, harmonic, log_odds

_MOST_NEW = 20  # features that a row may bring at once
_PROPOSALS = 8  # for each variance in a sweep: they need only sums over the rows
_ROWS_BETWEEN_INVERSES = 200  # after which rounding errors of updates are removed


@dataclass(frozen=True)
class Draw:
    """A state of the chain."""

    codes: Floats  # (N, K), without null columns
    concentration: float
    noise: float  # sigma^2
    spread: float  # sigma_a^2


@dataclass(frozen=True)
class Patterned:
    """The features of the rows, grouped by which rows have them."""

    table: Table
    masks: Floats  # (U, N) which rows have the features of a pattern
    members: Floats  # (U, D) which features belong to it
    sizes: Floats  # (U,) how many

    @classmethod
    def of(cls, table: Table) -> Patterned:
        N, D = table.Y.shape
        if table.mask is None:
            return cls(table, np.ones((1, N)), np.ones((1, D)), np.array([float(D)]))
        found: Patterns = table.of_columns
        members = (np.arange(found.masks.shape[1])[:, None] == found.index).astype(np.float64)
        return cls(table, found.masks.T.copy(), members, members.sum(axis=1))

    def grams(self, Z: Floats) -> Floats:
        """(U, K, K) Z'Z of the rows of every pattern."""
        return np.asarray(np.einsum("un,nk,nj->ukj", self.masks, Z, Z, optimize=True))

    def log_likelihood(self, Z: Floats, noise: float, spread: float) -> float:
        """ln p(X | Z), weights integrated out."""
        return self.log_likelihood_of(self.grams(Z), Z.T @ self.table.Y, noise, spread)

    def log_likelihood_of(self, grams: Floats, sums: Floats, noise: float, spread: float) -> float:
        """The same from Z'Z of every pattern and Z'X (K, D)."""
        K = len(sums)
        n = self.masks.sum(axis=1)
        quadratic, log_det = self.table.sum_squares, 0.0
        for u, size in enumerate(self.sizes):
            L = np.linalg.cholesky(grams[u] + noise / spread * np.eye(K))
            own = self.members[u] > 0
            quadratic -= float(np.sum(linalg.solve_triangular(L, sums[:, own], lower=True) ** 2))
            log_det += size * 2.0 * float(np.log(np.diagonal(L)).sum())
        of_noise = float(self.sizes @ (n - K)) * math.log(noise)
        of_spread = float(self.sizes.sum()) * K * math.log(spread)
        count = float(self.sizes @ n)
        return (
            -0.5 * (count * math.log(2 * math.pi) + of_noise + of_spread + log_det) - 0.5 * quadratic / noise
        )

    def posterior_mean(self, draw: Draw) -> Floats:
        """(K, D) of the weights."""
        grams, sums = self.grams(draw.codes), draw.codes.T @ self.table.Y
        H = np.zeros_like(sums)
        for u in range(len(self.sizes)):
            own = self.members[u] > 0
            ridge = draw.noise / draw.spread * np.eye(len(sums))
            H[:, own] = np.linalg.solve(grams[u] + ridge, sums[:, own])
        return H


@dataclass(frozen=True)
class CollapsedFeatures:
    """The model with its rows."""

    rows: Patterned
    priors: Priors

    def log_joint(self, draw: Draw) -> float:
        """ln p(X | Z) + ln P([Z])."""
        prior = IndianBuffet(draw.concentration).log_prob(draw.codes)
        return self.rows.log_likelihood(draw.codes, draw.noise, draw.spread) + prior

    def swept(self, draw: Draw, rng: np.random.Generator) -> Draw:
        """The next state: codes, row after row, and hyper-parameters if they are learnt."""
        codes = _Visits(self.rows, draw, rng).all_rows()
        draw = Draw(codes, draw.concentration, draw.noise, draw.spread)
        return self._with_hyperparameters(draw, rng) if self.priors.learn else draw

    def _with_hyperparameters(self, draw: Draw, rng: np.random.Generator) -> Draw:
        (N, K), prior = draw.codes.shape, self.priors.concentration
        concentration = float(rng.gamma(prior.shape + K) / (prior.rate + harmonic(N)))
        grams, sums = self.rows.grams(draw.codes), draw.codes.T @ self.rows.table.Y
        noise, spread = draw.noise, draw.spread

        def log_posterior(noise: float, spread: float) -> float:  # of the logarithms of both
            return (
                self.rows.log_likelihood_of(grams, sums, noise, spread)
                + self.priors.noise.log_prob(noise)
                + self.priors.weights.log_prob(spread)
                + math.log(noise)
                + math.log(spread)
            )

        here = log_posterior(noise, spread)
        steps = [2.4 * math.sqrt(2.0 / count) for count in (self.rows.table.n_observed, 1 + sums.size)]
        for number in range(2 * _PROPOSALS):  # of one and the other in turns
            factor = math.exp(steps[number % 2] * rng.standard_normal())
            there = (noise, spread * factor) if number % 2 else (noise * factor, spread)
            if not all(1e-300 < value < 1e300 for value in there):
                continue
            found = log_posterior(*there)
            if math.log(1.0 - rng.random()) < found - here:
                (noise, spread), here = there, found
        return Draw(draw.codes, concentration, noise, spread)


class _Visits:
    """A sweep over the rows; M and Z'X follow the codes."""

    def __init__(self, rows: Patterned, draw: Draw, rng: np.random.Generator):
        self.rows, self.draw, self.rng = rows, draw, rng
        self.Z = draw.codes.copy()
        self.ridge = draw.noise / draw.spread
        self.odds = log_odds(len(self.Z))
        self.counts = self.Z.sum(axis=0)
        j = np.arange(_MOST_NEW + 1)
        share = draw.concentration / len(self.Z)
        self.new_prior = xlogy(j, share) - gammaln(j + 1)
        self._invert()

    def all_rows(self) -> Floats:
        for n in range(len(self.Z)):
            if n and n % _ROWS_BETWEEN_INVERSES == 0:
                self._invert()
            self._visit(n)
        return self.Z[:, self.counts > 0.5]

    def _invert(self) -> None:
        self.M = np.linalg.inv(self.rows.grams(self.Z) + self.ridge * np.eye(self.Z.shape[1]))
        self.sums = self.Z.T @ self.rows.table.Y

    def _visit(self, n: int) -> None:
        """Row n drops the features that it alone has, draws each of the others, and brings new ones."""
        has = self.rows.masks[:, n] > 0.5
        x = self.rows.table.Y[n]
        z = self.Z[n].copy()
        self.counts -= z
        self._update(has, z, x, sign=-1.0)
        alone = self.counts < 0.5
        if alone.any():
            self._keep(~alone)
            z = z[~alone]
        z, level, error = self._drawn(has, z, x)
        new = self._new_features(has, level, error)
        if new:
            self._add(new)
            z = np.append(z, np.ones(new))
        self.Z[n] = z
        self.counts += z
        self._update(has, z, x, sign=1.0)

    def _drawn(self, has: Any, z: Floats, x: Floats) -> tuple[Floats, Floats, Floats]:
        """The row's codes, and with them 1 + z M z' and |x - z H|^2 of every pattern that it has."""
        noise = self.draw.noise
        M = self.M[has]  # (U, K, K)
        members, sizes = self.rows.members[has], self.rows.sizes[has]
        U = len(sizes)
        if U == 1:
            own = members[0] > 0
            H = (M[0] @ self.sums[:, own])[None]
            b, C = H @ x[own], H @ H.transpose(0, 2, 1)
        else:
            H = np.einsum("ukj,jd,ud->ukd", M, self.sums, members, optimize=True)
            b, C = H @ x, H @ H.transpose(0, 2, 1)
        prior = self.odds[np.rint(self.counts).astype(np.intp)]
        uniform = self.rng.random(len(z))
        threshold = np.log(uniform) - np.log1p(-uniform)
        squares = members @ (x * x)
        if U == 1:
            return self._drawn_of_one(
                z, M[0], C[0], b[0], float(squares[0]), float(sizes[0]), prior, threshold
            )
        Mz, Cz = M @ z, C @ z
        level = 1.0 + Mz @ z
        error = squares - 2.0 * (b @ z) + Cz @ z
        diagonals = np.diagonal(M, axis1=1, axis2=2), np.diagonal(C, axis1=1, axis2=2)
        for k in range(len(z)):
            step = 1.0 - 2.0 * z[k]  # of the bit if it is turned
            there = level + 2.0 * step * Mz[:, k] + diagonals[0][:, k]
            its_error = error + 2.0 * step * (Cz[:, k] - b[:, k]) + diagonals[1][:, k]
            gain = (
                -0.5 * sizes @ np.log(there / level) - 0.5 * np.sum(its_error / there - error / level) / noise
            )
            if threshold[k] < step * prior[k] + gain:
                z[k] += step
                level, error = there, its_error
                Mz, Cz = Mz + step * M[:, :, k], Cz + step * C[:, :, k]
        return z, level, error

    def _drawn_of_one(
        self,
        z: Floats,
        M: Floats,
        C: Floats,
        b: Floats,
        squares: float,
        size: float,
        prior: Floats,
        threshold: Floats,
    ) -> tuple[Floats, Floats, Floats]:
        """The same for one pattern, in numbers, because arrays of one cost more than what they hold."""
        noise = self.draw.noise
        Mz, Cz = M @ z, C @ z
        level, error = 1.0 + float(Mz @ z), squares - 2.0 * float(b @ z) + float(Cz @ z)
        for k in range(len(z)):
            step = 1.0 - 2.0 * float(z[k])
            there = level + 2.0 * step * float(Mz[k]) + float(M[k, k])
            its_error = error + 2.0 * step * float(Cz[k] - b[k]) + float(C[k, k])
            gain = -0.5 * size * math.log(there / level) - 0.5 * (its_error / there - error / level) / noise
            if threshold[k] < step * prior[k] + gain:
                z[k] += step
                level, error = there, its_error
                Mz, Cz = Mz + step * M[k], Cz + step * C[k]
        return z, np.array([level]), np.array([error])

    def _new_features(self, has: Any, level: Floats, error: Floats) -> int:
        noise, spread = self.draw.noise, self.draw.spread
        variance = noise * level + np.arange(_MOST_NEW + 1)[:, None] * spread  # (J, U)
        log_weight = self.new_prior - 0.5 * (np.log(variance) @ self.rows.sizes[has])
        log_weight = log_weight - 0.5 * np.sum(error / variance, axis=1)
        weight = np.exp(log_weight - log_weight.max())
        return int(np.searchsorted(np.cumsum(weight), self.rng.random() * weight.sum(), side="right"))

    # -- M and Z'X ------------------------------------------------------------------------------------

    def _update(self, has: Any, z: Floats, x: Floats, sign: float) -> None:
        """With a row added, or removed: (A + s zz')^-1 = M - s Mz z'M / (1 + s z'Mz)."""
        if not z.any():
            return
        M = self.M[has]
        Mz = M @ z
        M -= sign * Mz[:, :, None] * Mz[:, None, :] / (1.0 + sign * (Mz @ z))[:, None, None]
        self.M[has] = M
        self.sums += np.outer(sign * z, x)

    def _keep(self, kept: Any) -> None:
        self.Z, self.counts, self.sums = self.Z[:, kept], self.counts[kept], self.sums[kept]
        self.M = np.ascontiguousarray(self.M[:, kept][:, :, kept])

    def _add(self, new: int) -> None:
        """Null columns, of which the inverse is known."""
        U, K = self.M.shape[:2]
        M = np.zeros((U, K + new, K + new))
        M[:, :K, :K] = self.M
        M[:, np.arange(K, K + new), np.arange(K, K + new)] = 1.0 / self.ridge
        self.M = M
        self.Z = np.column_stack([self.Z, np.zeros((len(self.Z), new))])
        self.counts = np.append(self.counts, np.zeros(new))
        self.sums = np.vstack([self.sums, np.zeros((new, self.sums.shape[1]))])
