"""Binary causes: rows are sums of the units that are on, with noise.

    s_h ~ Bernoulli(pi_h)      a(s) = sum_h s_h w_h      x_d | s ~ Poisson(a_d(s))   or   N(a_d(s), sigma^2)

H units, D features, n rows; M states of the units: all 2^H, or those with at most gamma units on. The work
per row is two products with the table of states: X log(a)' for the posteriors q (M, n), and q X for the
statistics. Formulas: docs/bnmf.md; Luecke & Eggert (2010), JMLR 11, for the truncation.

For Poisson noise the M-step for the weights treats the counts of the individual units as latent and never
decreases the likelihood: w_hd <- w_hd sum_n x_d <s_h / a_d(s)> / sum_n <s_h>. Least squares is the M-step for
Gaussian noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from scipy import optimize, sparse, special, stats

from latently.backend.namespace import (
    Array,
    Floats,
    eye,
    is_numpy,
    like,
    log_gamma,
    namespace,
    ones,
    to_numpy,
    zeros,
)
from latently.core.block import Block
from latently.core.kernel import Kernel
from latently.distributions.responsibilities import normalise

_EPS = float(np.finfo(np.float64).eps)
_LEAST_PROBABILITY = 1e-9  # smallest probability of a unit to be on, or off
_IMPOSSIBLE = -1e30  # instead of minus infinity, which times zero is NaN


@lru_cache(maxsize=8)
def states(n_units: int, most_on: int) -> Floats:
    """(M, H) the states with at most `most_on` units on, fewest first."""
    chosen = [on for size in range(most_on + 1) for on in combinations(range(n_units), size)]
    table = np.zeros((len(chosen), n_units))
    for row, on in zip(table, chosen, strict=True):
        row[list(on)] = 1.0
    return table


def n_states(n_units: int, most_on: int) -> int:
    return sum(math.comb(n_units, size) for size in range(min(most_on, n_units) + 1))


@dataclass(frozen=True)
class CauseParams:
    components: Array  # (H, D): w
    activation: Array  # (H,): pi
    noise_variance: Any = None  # (): sigma^2, of Gaussian noise


@dataclass(frozen=True)
class CauseDensity:
    params: CauseParams
    states: Array  # (M, H)
    log_prior: Array  # (M,)
    means: Array  # (M, D): a(s)
    slopes: Array  # (M, D): factor of a row in its log density
    constants: Array  # (M, D): addend of the log density, for observed entries
    impossible: (
        tuple[Array, Array] | None
    )  # states (m,) under which entries (m, D) must be zero; None if none


@dataclass(frozen=True)
class CauseSums:
    """Sums over rows; q are the posteriors of the states, missing x are replaced by expectations."""

    log_likelihood: Array
    total_weight: Array
    kept_weight: Array  # sum of q, below the total weight if the truncation rule "source" loses some
    on: Array  # (H,)       sum of <s>
    explained: Any  # (H, D)  sum of x <s_h w_hd / a_d(s)>: the counts due to each unit
    exposure: Any  # (H, D)   sum of <s_h>, where x_d is observed
    sum_ss: Any  # (H, H)     sum of <s s'>
    sum_sx: Any  # (H, D)     sum of <s x'>
    sum_square: Any  # ()     sum of <x'x>


@dataclass(frozen=True)
class PoissonNoise:
    """Poisson noise, for counts."""

    least_squares: bool = False  # whether the M-step is least squares, clipped at zero

    def table(self, params: CauseParams, means: Array) -> tuple[Array, Array, Array | None]:
        xp = namespace(means)
        positive = means > 0
        slopes = xp.where(positive, xp.log(xp.where(positive, means, 1.0)), 0.0)
        impossible = None if bool(xp.all(positive)) else xp.astype(~positive, xp.float64)
        return slopes, -means, impossible

    def per_row(self, params: CauseParams, X: Array, observed: Array | None) -> Array:
        """(n,) terms common to all states: - sum of ln x!; zero for missing entries."""
        xp = namespace(X)
        if bool(xp.any(X < 0)):
            raise ValueError(f"X must hold counts, but its smallest entry is {float(xp.min(X)):.6g}")
        return -xp.sum(log_gamma(X + 1.0), axis=1)

    def weights(self, kernel: BinaryCauses, sums: CauseSums, params: CauseParams) -> Array:
        xp = namespace(params.components)
        if self.least_squares:
            new = _regression(sums, params)
            return xp.where(new > kernel.floor, new, kernel.floor)
        filled = sums.exposure > 0
        new = xp.where(filled, sums.explained / xp.where(filled, sums.exposure, 1.0), params.components)
        return xp.where(new > kernel.floor, new, kernel.floor)

    def variance(self, kernel: BinaryCauses, sums: CauseSums, weights: Array, params: CauseParams) -> None:
        return None

    def draw(self, params: CauseParams, means: Floats, rng: np.random.Generator) -> Floats:
        return rng.poisson(means).astype(np.float64)


@dataclass(frozen=True)
class GaussianNoise:
    """Gaussian noise, for real numbers."""

    variance_floor: float = 0.0
    least_squares = True

    def table(self, params: CauseParams, means: Array) -> tuple[Array, Array, Array | None]:
        precision = 1.0 / params.noise_variance
        return means * precision, -0.5 * means**2 * precision, None

    def per_row(self, params: CauseParams, X: Array, observed: Array | None) -> Array:
        xp = namespace(X)
        variance = params.noise_variance
        n_seen = X.shape[1] if observed is None else xp.sum(xp.astype(observed, xp.float64), axis=1)
        log_scale = 0.5 * xp.log(2.0 * math.pi * variance)
        return -0.5 * xp.sum(X * X, axis=1) / variance - n_seen * log_scale

    def weights(self, kernel: BinaryCauses, sums: CauseSums, params: CauseParams) -> Array:
        return _regression(sums, params)

    def variance(self, kernel: BinaryCauses, sums: CauseSums, weights: Array, params: CauseParams) -> Array:
        xp = namespace(weights)
        left = (
            sums.sum_square - 2.0 * xp.sum(weights * sums.sum_sx) + xp.sum(weights * (sums.sum_ss @ weights))
        )
        left = left / (sums.kept_weight * weights.shape[1])
        return xp.where(left > self.variance_floor, left, self.variance_floor)

    def draw(self, params: CauseParams, means: Floats, rng: np.random.Generator) -> Floats:
        return np.asarray(means + math.sqrt(float(params.noise_variance)) * rng.standard_normal(means.shape))


def _regression(sums: CauseSums, params: CauseParams) -> Array:
    """(H, D) weights by least squares; a unit that is never on keeps its weights."""
    xp = namespace(params.components)
    used = sums.on > 1e-12 * sums.kept_weight
    both = used[:, None] & used[None, :]
    one = eye(params.components.shape[0], params.components)
    ridge = 1e-10 * sums.kept_weight
    gram = xp.where(both, sums.sum_ss, 0.0) + xp.where(used, ridge, 1.0) * one
    pull = sums.sum_sx + ridge * params.components
    return xp.where(
        used[:, None], xp.linalg.solve(gram, xp.where(used[:, None], pull, 0.0)), params.components
    )


@dataclass(frozen=True)
class BinaryCauses(Kernel):
    """The kernel.

    Without `truncation` all states are used. With it, the objective is the sum over states with at most that
    many units on ("proper", a lower bound of the likelihood), or the likelihood of a prior restricted to
    these states ("conditional"), or posteriors are normalised over one unit more than is used ("source",
    which is not known to increase any objective).
    """

    n_units: int
    noise: Any
    floor: float = 0.0  # smallest weight
    truncation: int | None = None
    rule: str = "proper"
    per_unit: bool = False
    candidates: int | None = (
        None  # number of units of each row that may be on; `allowed` of a block contains them
    )
    chosen_anew: bool = False  # whether candidates are selected at every pass

    @property
    def most_on(self) -> int:
        return self.n_units if self.truncation is None else min(self.truncation, self.n_units)

    @property
    def truncated(self) -> bool:
        return self.most_on < self.n_units

    @property
    def monotone(self) -> bool:
        """Whether no step decreases the objective."""
        exact = not self.noise.least_squares or isinstance(self.noise, GaussianNoise)
        return exact and not self.chosen_anew and not (self.truncated and self.rule == "source")

    def exact(self) -> BinaryCauses:
        """The same model without truncation."""
        truncation = self.truncation if self.rule == "conditional" else None
        return replace(self, truncation=truncation, candidates=None)

    def floats_per_row(self, K: int, D: int, missing: bool) -> int:
        if self.candidates is not None:
            return 4 * D * n_states(self.candidates, self.most_on)
        return 2 * n_states(self.n_units, self._most_normalised()) + 3 * D

    def _most_normalised(self) -> int:
        one_more = self.truncated and self.rule == "source"
        return min(self.most_on + one_more, self.n_units)

    def prepare(self, params: CauseParams) -> Any:
        xp = namespace(params.components)
        if self.candidates is not None:
            if not is_numpy(params.components):
                raise ValueError("candidates need NumPy arrays; set candidates=None for tensors")
            return Chosen(params, states(self.candidates, min(self.most_on, self.candidates)))
        S = like(states(self.n_units, self._most_normalised()), params.components)
        pi = params.activation
        log_prior = S @ (xp.log(pi) - xp.log1p(-pi)) + xp.sum(xp.log1p(-pi))
        if self.truncated and self.rule == "conditional":
            log_prior = log_prior - self._log_mass(pi)
        means = S @ params.components
        slopes, constants, impossible = self.noise.table(params, means)
        if impossible is not None:  # mostly for the state with no unit on
            some = xp.nonzero(xp.any(impossible > 0, axis=1))[0]
            impossible = some, xp.take(impossible, some, axis=0)
        return CauseDensity(params, S, log_prior, means, slopes, constants, impossible)

    def log_joint(self, density: CauseDensity, block: Block) -> Array:
        """(M, n) ln p(x, s), without terms common to all states."""
        xp = namespace(block.X)
        X = block.X
        log_joint = density.slopes @ X.T
        if block.observed is None:
            log_joint += (density.log_prior + xp.sum(density.constants, axis=1))[:, None]
        else:
            log_joint += density.constants @ xp.astype(block.observed, xp.float64).T
            log_joint += density.log_prior[:, None]
        if density.impossible is not None:
            some, must_be_zero = density.impossible
            broken = must_be_zero @ xp.astype(X > 0, xp.float64).T
            log_joint[some, :] = xp.where(broken > 0, -xp.inf, xp.take(log_joint, some, axis=0))
        return log_joint

    def posterior(self, density: CauseDensity, block: Block) -> tuple[Array, Array]:
        """The objective of each row (n,), and q (M, n) of the states in use."""
        xp = namespace(block.X)
        log_norm, q = normalise(self.log_joint(density, block))
        log_norm = log_norm + self.noise.per_row(density.params, block.X, block.observed)
        if self._most_normalised() > self.most_on:
            q *= xp.astype(xp.sum(density.states, axis=1) <= self.most_on, xp.float64)[:, None]
        return log_norm, q

    def e_step(self, density: Any, block: Block) -> CauseSums:
        if isinstance(density, Chosen):
            return density.sums(self, block)
        xp = namespace(block.X)
        X, S = block.X, density.states
        log_norm, q = self.posterior(density, block)
        weight = ones((X.shape[0],), X) if block.weight is None else block.weight
        if block.weight is not None:
            q *= weight
        by_state = xp.sum(q, axis=1)  # (M,)
        of_x = q @ X  # (M, D)
        seen = None if block.observed is None else q @ xp.astype(block.observed, xp.float64)
        explained = exposure = sum_ss = sum_sx = square = None
        if not self.noise.least_squares:
            possible = density.means > 0
            share = xp.where(possible, of_x / xp.where(possible, density.means, 1.0), 0.0)
            explained = density.params.components * (S.T @ share)
            exposure = (S.T @ by_state)[:, None] + zeros(X.shape[1:], X) if seen is None else S.T @ seen
        else:
            square = xp.sum(xp.sum(q, axis=0) * xp.sum(X * X, axis=1))
            if seen is not None:  # missing entries: expectation given the state, plus noise variance
                missing = by_state[:, None] - seen
                of_x = of_x + missing * density.means
                square = square + xp.sum(missing * density.means**2)
                if density.params.noise_variance is not None:
                    square = square + xp.sum(missing) * density.params.noise_variance
            sum_sx = S.T @ of_x
            sum_ss = S.T @ (S * by_state[:, None])
        return CauseSums(
            log_likelihood=xp.sum(weight * log_norm),
            total_weight=xp.sum(weight),
            kept_weight=xp.sum(by_state),
            on=S.T @ by_state,
            explained=explained,
            exposure=exposure,
            sum_ss=sum_ss,
            sum_sx=sum_sx,
            sum_square=square,
        )

    def m_step(self, stats: CauseSums, params: CauseParams) -> CauseParams:
        weights = self.noise.weights(self, stats, params)
        variance = self.noise.variance(self, stats, weights, params)
        return CauseParams(weights, self._activation(stats), variance)

    def _activation(self, stats: CauseSums) -> Array:
        xp = namespace(stats.on)
        on = stats.on / stats.kept_weight
        if not self.per_unit:
            mean = float(xp.sum(on))
            if self.truncated and self.rule != "proper":
                mean = self.n_units * self._corrected(mean)
            on = xp.zeros_like(on) + mean / self.n_units
        return xp.clip(on, min=_LEAST_PROBABILITY, max=1.0 - _LEAST_PROBABILITY)

    def _corrected(self, mean: float) -> float:
        """The pi for which a truncated binomial has this mean: B(pi) / A(pi) = mean."""
        low, high = _LEAST_PROBABILITY, 1.0 - _LEAST_PROBABILITY
        sizes = np.arange(self.most_on + 1)
        log_ways = np.log(special.comb(self.n_units, sizes))

        def excess(pi: float) -> float:
            mass = special.softmax(log_ways + sizes * special.logit(pi))
            return float(sizes @ mass) - mean

        if excess(low) >= 0:
            return low
        if excess(high) <= 0:
            return high
        return float(optimize.brentq(excess, low, high, xtol=1e-16))

    def _log_mass(self, pi: Array) -> float:
        """ln P(at most `truncation` units on), for equal pi."""
        return float(stats.binom.logcdf(self.most_on, self.n_units, float(to_numpy(pi)[0])))

    def rounding(self, density: Any) -> float:
        """Rounding errors of the products of a row, bounded by those of the state with the largest means."""
        if not self.monotone:
            return math.inf
        if isinstance(density, Chosen):
            largest = self.most_on * float(np.sum(np.abs(density.params.components)))
            return 64.0 * _EPS * (1.0 + largest * (1.0 + math.log1p(largest)))
        xp = namespace(density.means)
        size = xp.sum(xp.abs(density.means * density.slopes) + xp.abs(density.constants), axis=1)
        return 64.0 * _EPS * (1.0 + float(xp.max(size)))

    def clamped(self, params: CauseParams) -> CauseParams:
        """Starting values projected to the feasible region."""
        xp = namespace(params.components)
        pi = xp.clip(params.activation, min=_LEAST_PROBABILITY, max=1.0 - _LEAST_PROBABILITY)
        weights = params.components
        if isinstance(self.noise, PoissonNoise):
            weights = xp.where(weights > self.floor, weights, self.floor)
        return replace(params, components=weights, activation=pi)

    def implied_stats(self, params: CauseParams) -> CauseSums:
        """Expected statistics per unit of weight, for stepwise EM to continue from parameters alone."""
        xp = namespace(params.components)
        W, pi = params.components, params.activation
        one = xp.sum(pi) / xp.sum(pi)
        ss = pi[:, None] * pi + eye(pi.shape[0], pi) * (pi * (1.0 - pi))
        if not self.noise.least_squares:
            exposure = pi[:, None] + xp.zeros_like(W)
            return CauseSums(0.0 * one, one, one, pi, W * exposure, exposure, None, None, None)
        sx = ss @ W
        square = xp.sum(W * sx)
        if params.noise_variance is not None:
            square = square + params.noise_variance * W.shape[1]
        return CauseSums(0.0 * one, one, one, pi, None, None, ss, sx, square)

    def to_vector(self, params: CauseParams) -> Array:
        """Weights (roots for Poisson noise, so that zero can be reached), logits, log standard deviation."""
        xp = namespace(params.components)
        W, pi = xp.reshape(params.components, (-1,)), params.activation
        if isinstance(self.noise, PoissonNoise):
            return xp.concat([xp.sqrt(W), xp.log(pi) - xp.log1p(-pi)])
        deviation = xp.reshape(0.5 * xp.log(params.noise_variance), (1,))
        return xp.concat([W, xp.log(pi) - xp.log1p(-pi), deviation])

    def from_vector(self, vector: Array, like: CauseParams) -> CauseParams:
        xp = namespace(vector)
        H, D = like.components.shape
        W = xp.reshape(vector[: H * D], (H, D))
        # extrapolations may be large, but must not overflow
        pi = 1.0 / (1.0 + xp.exp(-xp.clip(vector[H * D : H * D + H], min=-30.0, max=30.0)))
        if isinstance(self.noise, PoissonNoise):
            return self.clamped(CauseParams(xp.clip(W, min=0.0) ** 2, pi))
        variance = xp.exp(2.0 * xp.clip(vector[-1], min=-300.0, max=300.0))
        variance = xp.where(variance > self.noise.variance_floor, variance, self.noise.variance_floor)
        return self.clamped(CauseParams(W, pi, variance))

    def sample(self, params: CauseParams, n_samples: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Rows (n, D) and their states (n, H)."""
        codes = np.asarray(rng.random((n_samples, self.n_units)) < params.activation, dtype=np.float64)
        if self.truncated and self.rule == "conditional":  # only states in the support of the prior
            table = states(self.n_units, self.most_on)
            pi = params.activation
            log_prior = table @ special.logit(pi)
            probability = np.exp(log_prior - special.logsumexp(log_prior))
            codes = table[rng.choice(len(table), size=n_samples, p=probability / probability.sum())]
        return self.noise.draw(params, codes @ params.components, rng), codes


@dataclass(frozen=True)
class Chosen:
    """The density of rows that have their own few candidate units; in main memory.

    C candidates have M states. Rates are computed per row, so a row costs M D whatever the number of units.
    """

    params: CauseParams
    states: Floats  # (M, C)

    def choose(self, kernel: BinaryCauses, block: Block) -> Array:
        """(n, H) bool: the candidates of each row.

        The units with the largest sum over features of min(x, w), relative to that of w.
        """
        X, W = to_numpy(block.X), np.abs(self.params.components)
        size = np.maximum(W.sum(axis=1), 1e-300)
        score = np.stack([np.minimum(np.abs(X), w).sum(axis=1) for w in W], axis=1) / size
        if isinstance(kernel.noise, GaussianNoise):  # weights of any sign: what a single unit would explain
            score = 2.0 * X @ self.params.components.T - np.sum(W**2, axis=1)
        best = np.argpartition(-score, self.states.shape[1] - 1, axis=1)[:, : self.states.shape[1]]
        allowed = np.zeros(score.shape, dtype=bool)
        np.put_along_axis(allowed, best, True, axis=1)
        return allowed

    def posterior(self, kernel: BinaryCauses, block: Block) -> tuple[Floats, Floats, Array, Floats]:
        """The objective (n,), q (n, M), the candidates (n, C) and the means of the states (n, M, D)."""
        allowed = self.choose(kernel, block) if block.allowed is None else block.allowed
        units = np.nonzero(allowed)[1].reshape(len(block), -1)
        means = self.states @ self.params.components[units]
        slopes, constants, impossible = kernel.noise.table(self.params, means)
        X, pi = block.X, self.params.activation
        log_joint = np.einsum("nmd,nd->nm", slopes, X)
        seen = np.ones_like(X) if block.observed is None else block.observed.astype(np.float64)
        log_joint += np.einsum("nmd,nd->nm", constants, seen)
        if impossible is not None:
            log_joint += _IMPOSSIBLE * np.einsum("nmd,nd->nm", impossible, (X > 0).astype(np.float64))
        log_joint += special.logit(pi)[units] @ self.states.T + np.log1p(-pi).sum()
        if kernel.truncated and kernel.rule == "conditional":
            log_joint -= kernel._log_mass(pi)
        log_joint += kernel.noise.per_row(self.params, X, block.observed)[:, None]
        log_joint = np.where(log_joint < 0.5 * _IMPOSSIBLE, -np.inf, log_joint)
        log_norm, q = normalise(log_joint.T)
        return log_norm, q.T, units, means

    def sums(self, kernel: BinaryCauses, block: Block) -> CauseSums:
        log_norm, q, units, means = self.posterior(kernel, block)
        weight = np.ones(len(block)) if block.weight is None else block.weight
        q = q * weight[:, None]
        (n, C), (H, D) = units.shape, self.params.components.shape
        onto = sparse.csr_array((np.ones(n * C), (units.ravel(), np.arange(n * C))), shape=(H, n * C))
        on = q @ self.states  # (n, C)
        seen = np.ones((n, D)) if block.observed is None else block.observed.astype(np.float64)
        explained = exposure = sum_ss = sum_sx = square = None
        if not kernel.noise.least_squares:
            share = np.where(means > 0, block.X[:, None, :] / np.where(means > 0, means, 1.0), 0.0)
            explained = onto @ (self.states.T @ (q[:, :, None] * share)).reshape(n * C, D)
            explained *= self.params.components
            exposure = onto @ (on[:, :, None] * seen[:, None, :]).reshape(n * C, D)
        else:
            x = np.where(seen[:, None, :] > 0, block.X[:, None, :], means)  # (n, M, D)
            sum_sx = onto @ (self.states.T @ (q[:, :, None] * x)).reshape(n * C, D)
            square = np.sum(q[:, :, None] * x**2)
            if self.params.noise_variance is not None:
                square = square + np.sum(weight[:, None] * (1.0 - seen)) * self.params.noise_variance
            pairs = (units[:, :, None] * H + units[:, None, :]).ravel()
            ss = np.einsum("nm,mi,mj->nij", q, self.states, self.states, optimize=True)
            sum_ss = np.bincount(pairs, weights=ss.ravel(), minlength=H * H).reshape(H, H)
        total = np.sum(weight)
        return CauseSums(
            log_likelihood=np.sum(weight * log_norm),
            total_weight=total,
            kept_weight=np.sum(q),
            on=onto @ on.ravel(),
            explained=explained,
            exposure=exposure,
            sum_ss=sum_ss,
            sum_sx=sum_sx,
            sum_square=square,
        )


def _normalised(kernel: BinaryCauses, density: Any) -> tuple[BinaryCauses, Any]:
    """Kernel and density whose posteriors sum to one over the states in use."""
    if kernel._most_normalised() == kernel.most_on:
        return kernel, density
    proper = replace(kernel, rule="proper")
    return proper, proper.prepare(density.params)


def activations(kernel: BinaryCauses, density: Any, block: Block) -> Array:
    """(n, H) posterior probabilities that units are on."""
    if isinstance(density, Chosen):
        _, q, units, _ = density.posterior(kernel, block)
        found = np.zeros((len(block), kernel.n_units))
        np.put_along_axis(found, units, q @ density.states, axis=1)
        return found
    kernel, density = _normalised(kernel, density)
    return kernel.posterior(density, block)[1].T @ density.states


def best_codes(kernel: BinaryCauses, density: Any, block: Block) -> Array:
    """(n, H) the most probable state of each row."""
    if isinstance(density, Chosen):
        _, q, units, _ = density.posterior(kernel, block)
        found = np.zeros((len(block), kernel.n_units))
        np.put_along_axis(found, units, density.states[np.argmax(q, axis=1)], axis=1)
        return found
    xp = namespace(block.X)
    kernel, density = _normalised(kernel, density)
    q = kernel.posterior(density, block)[1]
    return xp.take(density.states, xp.argmax(q, axis=0), axis=0)


def log_density(kernel: BinaryCauses, density: Any, block: Block) -> Array:
    """(n,) the objective of each row: ln p(x), or its truncated version."""
    if isinstance(density, Chosen):
        return density.posterior(kernel, block)[0]
    return kernel.posterior(density, block)[0]


def better_candidates(kernel: BinaryCauses, density: Chosen, block: Block) -> Array:
    """(n, H) bool: new candidates, for rows whose objective they increase."""
    new = density.choose(kernel, block)
    if block.allowed is None:
        return new
    gain = log_density(kernel, density, replace(block, allowed=new)) - log_density(kernel, density, block)
    return np.where(gain[:, None] > 0, new, block.allowed)
