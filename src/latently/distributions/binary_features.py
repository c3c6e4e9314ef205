"""Maximisation-expectation for the Indian buffet with non-negative features (ME-IBP).

    y_n ~ N(z_n W, sigma^2 I)     w_kd ~ half-normal(sigma_w^2)     Z ~ ordered Indian buffet process

N rows, D features, K columns of codes. Codes are maximised over, weights have the mean-field posterior
q(w_kd) = TN(mu_kd, s_kd^2), and the objective J is the bound T of ln p(Y, Z) plus log hyper-priors:

    T = -(ND / 2) ln 2 pi sigma^2 - E|Y - Z W|^2 / (2 sigma^2) + ln p(Z | alpha) - sum KL(q || half-normal)

Each update is an exact coordinate maximiser, so J never falls. A sweep costs O(NDK + N K^2).
Reed & Ghahramani (2013), ICML; document 003, section 4.2, as corrected in docs/meibp.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from latently.backend.namespace import Floats
from latently.distributions.binary_codes import Table, least_squares_gains, swept_codes
from latently.distributions.buffet_priors import Priors, log_new_column
from latently.distributions.indian_buffet import log_ordered
from latently.distributions.truncated_normal import TruncatedNormal, expectation_of

_ROUNDS = 4  # of weights and hyper-parameters before the first sweep, where no noise was given


@dataclass(frozen=True)
class Features:
    """Where a fit stands."""

    codes: Floats  # (N, K) of zeros and ones
    location: Floats  # (K, D) of q
    scale: Floats  # (K, D) of q
    concentration: float
    noise: float  # sigma^2
    spread: float  # sigma_w^2
    products: Floats  # (K, D) Z'Y

    @property
    def n_features(self) -> int:
        return int(self.codes.shape[1])

    @cached_property
    def weights(self) -> TruncatedNormal:
        return TruncatedNormal(self.location, self.scale)

    @cached_property
    def divergence(self) -> Floats:
        """(K,) minus the KL divergences of q from the half-normal, summed over features."""
        return np.asarray(np.sum(minus_divergence(self.weights, self.spread), axis=1))


def minus_divergence(q: TruncatedNormal, spread: float) -> Floats:
    """-KL(q || half-normal(spread)) of every weight, which is at most 0."""
    return np.asarray(-0.5 * math.log(math.pi * spread / 2) - q.second_moment / (2 * spread) + q.entropy)


@dataclass(frozen=True)
class BinaryFeatures:
    """The model with its rows: functions of `Features`, none of which changes its argument."""

    table: Table
    priors: Priors

    @property
    def n_rows(self) -> int:
        return len(self.table.Y)

    def start(
        self,
        codes: Floats,
        weights: Floats,
        *,
        concentration: float,
        noise: float | None,
        spread: float,
    ) -> Features:
        """Codes with weights known almost exactly; without a noise, all hyper-parameters at their modes."""
        products = codes.T @ self.table.Y
        scale = np.full(weights.shape, 1e-3 * math.sqrt(spread))
        state = Features(codes, weights, scale, concentration, noise or 1.0, spread, products)
        return state if noise is not None else self.with_modes(state)

    def given(
        self,
        codes: Floats,
        location: Floats | None,
        scale: Floats | None,
        *,
        concentration: float,
        noise: float | None,
        spread: float,
    ) -> Features:
        """The start with these codes and this posterior, or with the weights that these codes imply."""
        weights = np.zeros((codes.shape[1], self.table.Y.shape[1])) if location is None else location
        if scale is None and noise is None and self.priors.learn:
            spread = max(
                spread, self.table.mean_square
            )  # else weights in large units would be taken for zero
        start = self.start(
            codes,
            np.maximum(weights, 0.0),
            concentration=concentration,
            noise=noise or self.table.mean_square,  # not the modes, which would make unknown weights zero
            spread=spread,
        )
        if location is not None and scale is not None:
            start = replace(start, location=location, scale=scale)
            return start if noise is not None else self.with_modes(start)
        start = self.with_weights(self.with_weights(start))
        # with a noise that is too large the first sweep would turn off most codes
        for _ in range(_ROUNDS if noise is None else 0):
            start = self.with_modes(self.with_weights(start))
        return start

    def sweep(self, state: Features) -> Features:
        """Weights, then codes."""
        return self.with_codes(self.with_weights(state))

    def with_weights(self, state: Features) -> Features:
        """Every q(w_kd) once, k after k; different features do not interact."""
        noise = state.noise

        def posterior(counts: Any, target: Floats) -> tuple[Floats, Floats]:
            tau = 1.0 / (counts + noise / state.spread)
            return tau * target, np.sqrt(tau * noise)

        location, scale = swept_weights(
            self.table, state.codes, state.weights.expectation, state.products, posterior
        )
        return replace(state, location=location, scale=scale)

    def with_codes(self, state: Features) -> Features:
        """Every z_nk once, n outer and k inner; columns that end empty are removed."""
        if state.n_features == 0:
            return state
        gains = least_squares_gains(
            self.table, state.weights.expectation, state.weights.variance, state.noise
        )
        Z = swept_codes(
            state.codes,
            gains,
            log_new=log_new_column(state.concentration, self.n_rows),
            taken_up=state.divergence,
        )
        if np.array_equal(Z, state.codes):
            return state
        return self.only(replace(state, codes=Z, products=Z.T @ self.table.Y), Z.any(axis=0))

    def only(self, state: Features, kept: Any) -> Features:
        """The columns that are kept."""
        if np.all(kept):
            return state
        return replace(
            state,
            codes=state.codes[:, kept],
            location=state.location[kept],
            scale=state.scale[kept],
            products=state.products[kept],
        )

    def with_modes(self, state: Features) -> Features:
        """Hyper-parameters at their conditional modes."""
        if not self.priors.learn:
            return state
        K, D = state.location.shape
        return replace(
            state,
            concentration=self.priors.concentration.concentration(K, self.n_rows),
            noise=self.priors.noise.mode(self.expected_error(state), self.table.n_observed),
            spread=self.priors.weights.mode(float(state.weights.second_moment.sum()), K * D),
        )

    def expected_error(self, state: Features) -> float:
        """E|Y - Z W|^2 over observed entries."""
        error = self.table.squared_error(state.codes, state.weights.expectation, state.products)
        return error + float(np.sum(self.table.column_counts(state.codes) * state.weights.variance))

    def bound(self, state: Features) -> float:
        """T."""
        return (
            gaussian(self.expected_error(state), state.noise, self.table.n_observed)
            + log_ordered(state.codes.sum(axis=0), self.n_rows, state.concentration)
            + float(state.divergence.sum())
        )

    def objective(self, state: Features) -> float:
        """J."""
        return (
            self.bound(state)
            + self.priors.concentration.log_prob(state.concentration)
            + self.priors.noise.log_prob(state.noise)
            + self.priors.weights.log_prob(state.spread)
        )


def swept_weights(
    table: Table,
    Z: Floats,
    M: Floats,
    products: Floats,
    posterior: Callable[[Any, Floats], tuple[Floats, Any]],
) -> tuple[Floats, Floats]:
    """(K, D) location and scale of every q(w_kd), once, k after k, from expectations M.

    `posterior(counts, target)` gives those of one k from the number of rows that have it (with missing
    entries, for each feature) and the sum of what the other columns leave of these rows.
    """
    M = M.copy()
    location, scale = np.empty_like(M), np.empty_like(M)
    gram = Z.T @ Z
    for k in range(len(M)):
        if table.mask is None:
            counts, others = gram[k, k], gram[k] @ M - gram[k, k] * M[k]
        else:
            shared = ((Z[:, k : k + 1] * Z).T @ table.of_columns.masks)[:, table.of_columns.index]
            counts, others = shared[k], np.sum(shared * M, axis=0) - shared[k] * M[k]
        location[k], scale[k] = posterior(counts, products[k] - others)
        M[k] = expectation_of(location[k], scale[k])
    return location, scale


def gaussian(sum_squares: float, variance: float, count: int) -> float:
    """ln N(0, variance) of `count` numbers with this sum of squares."""
    return -0.5 * count * math.log(2 * math.pi * variance) - 0.5 * sum_squares / variance
