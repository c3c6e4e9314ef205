"""Binary features whose codes depend on categories of their rows (correlated IBP-IBP).

    U (N, C) ~ IBP(alpha_u)     V (C, K) ~ IBP(alpha_v), its rows the customers
    z_nk ~ Bernoulli(1 - q^{u_n v_k})     Y ~ Z W + N(0, sigma^2)     w_kd ~ Exp(rho)

A noisy "or": each category that a row has, and that has feature k, gives it but for a probability of missing
q. The objective J is a bound of ln p(Y, Z, U, V) plus log hyper-priors, as in `binary_features`; every update
is an exact coordinate maximiser, or a move that is kept only if J is larger. A sweep costs
O(NDK + NK(K + C)).
Document 003, section 4.4, as completed in docs/ibp_ibp.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import xlogy

from latently.backend.namespace import Floats
from latently.distributions.binary_codes import (
    BuffetOdds,
    Gains,
    Odds,
    Table,
    best_codes,
    least_squares_gains,
    settle,
    swept_alone,
    values_of,
)
from latently.distributions.binary_features import gaussian, swept_weights
from latently.distributions.buffet_priors import GammaPrior, InverseGammaPrior, log_new_column
from latently.distributions.indian_buffet import log_ordered
from latently.distributions.truncated_normal import TruncatedNormal

_LEAST_COUNT = 1e-8  # in place of no row at all, for which q is the exponential prior
_ROUNDS = 2  # of turns of all categories of new rows, and one more for each of them
_ROUNDING = 1e-12  # relative, of sums of gains


@dataclass(frozen=True)
class Correlated:
    """Where a fit stands."""

    codes: Floats  # (N, K)
    categories: Floats  # (N, C)
    links: Floats  # (C, K)
    location: Floats  # (K, D) of q
    scale: Floats  # (K, D) of q
    category_concentration: float  # alpha_u
    feature_concentration: float  # alpha_v
    noise: float  # sigma^2
    rate: float  # rho
    products: Floats  # (K, D) Z'Y

    @cached_property
    def weights(self) -> TruncatedNormal:
        return TruncatedNormal(self.location, self.scale)

    @cached_property
    def counts(self) -> Floats:
        """(N, K) how many categories of a row have a feature."""
        return np.asarray(np.rint(self.categories @ self.links))


@dataclass(frozen=True)
class _Rows:
    """Categories and codes of rows, and what they gain over none."""

    categories: Floats  # (n, C)
    codes: Floats  # (n, K)
    value: Floats  # (n,)

    def or_better(self, other: _Rows) -> _Rows:
        """The better of the two for every row; the same object if no row has anything better."""
        better = other.value > self.value + _ROUNDING * (1.0 + np.abs(self.value))
        if not better.any():
            return self
        chosen = better[:, None]
        return _Rows(
            np.where(chosen, other.categories, self.categories),
            np.where(chosen, other.codes, self.codes),
            np.where(better, other.value, self.value),
        )


@dataclass(frozen=True)
class CorrelatedCodes:
    """The model with its rows: functions of `Correlated`, none of which changes its argument."""

    table: Table
    miss: float  # q
    concentration: GammaPrior
    noise: InverseGammaPrior
    rate: GammaPrior
    learn: bool = True

    @property
    def n_rows(self) -> int:
        return len(self.table.Y)

    def sweep(self, state: Correlated) -> Correlated:
        """Weights, codes, categories, links."""
        return self.with_links(self.with_categories(self.with_codes(self.with_weights(state))))

    def with_weights(self, state: Correlated) -> Correlated:
        """Every q(w_kd) once, k after k."""
        noise = state.noise

        def posterior(counts: Any, target: Floats) -> tuple[Floats, Floats]:
            counts = np.maximum(counts, _LEAST_COUNT)
            return (target - state.rate * noise) / counts, np.sqrt(noise / counts)

        location, scale = swept_weights(
            self.table, state.codes, state.weights.expectation, state.products, posterior
        )
        return replace(state, location=location, scale=scale)

    def with_codes(self, state: Correlated) -> Correlated:
        """Every z_nk once; rows do not interact."""
        if state.codes.shape[1] == 0:
            return state
        q = state.weights
        gains = least_squares_gains(self.table, q.expectation, q.variance, state.noise)
        Z = swept_alone(state.codes, gains, self.log_odds(state.counts))
        if np.array_equal(Z, state.codes):
            return state
        return replace(state, codes=Z, products=Z.T @ self.table.Y)

    def with_categories(self, state: Correlated) -> Correlated:
        """Every u_nc once, n outer and c inner; a category that ends empty goes if J does not fall."""
        U = state.categories.copy()
        if U.shape[1] == 0:
            return state
        Z, V = state.codes, state.links
        prior = BuffetOdds(self.n_rows, log_new_column(state.category_concentration, self.n_rows))

        def visit(left: slice, old: Floats, odds: Odds) -> Floats:
            return self.visited_categories(Z[left], old, V, odds)

        settle(U, slice(0, self.n_rows), U.sum(axis=0), prior, visit)
        state = replace(state, categories=U)
        in_use = U.any(axis=0)
        if in_use.all():
            return state
        smaller = self.only(state, categories=in_use)
        return smaller if self.objective(smaller) >= self.objective(state) else state

    def visited_categories(self, Z: Floats, old: Floats, V: Floats, odds: Odds) -> Floats:
        """(n, C) the categories of rows with these codes, after every bit was set once."""
        U, counts = old.copy(), np.rint(old @ V)
        for c in range(U.shape[1]):
            has = np.flatnonzero(V[c] > 0.5)
            without = counts[:, has] - U[:, c : c + 1]
            gain = self.log_link(Z[:, has], without + 1.0).sum(axis=1) + odds(c, U)
            on = gain > self.log_link(Z[:, has], without).sum(axis=1)
            counts[:, has] = without + on[:, None]
            U[:, c] = on
        return U

    def with_links(self, state: Correlated) -> Correlated:
        """Every v_ck once, c outer and k inner; a feature that no category has any more goes."""
        Z, U, V, counts = state.codes, state.categories, state.links.copy(), state.counts.copy()
        C, K = V.shape
        log_new = log_new_column(state.feature_concentration, C) if C else 0.0
        for c in range(C):
            rows = U[:, c] > 0.5
            without = counts[rows] - V[c]
            gain = (self.log_link(Z[rows], without + 1.0) - self.log_link(Z[rows], without)).sum(axis=0)
            odds = BuffetOdds(C, log_new).given((V.sum(axis=0) - V[c])[None])
            row = V[c : c + 1].copy()
            for k in range(K):
                row[0, k] = float(gain[k] + odds(k, row)[0] > 0)
            V[c] = row[0]
            counts[rows] = without + V[c]
        state = replace(state, links=V)
        return self.only(state, features=V.any(axis=0))

    def only(self, state: Correlated, *, features: Any = None, categories: Any = None) -> Correlated:
        """The features and categories that are kept."""
        if features is not None and not np.all(features):
            state = replace(
                state,
                codes=state.codes[:, features],
                links=state.links[:, features],
                location=state.location[features],
                scale=state.scale[features],
                products=state.products[features],
            )
        if categories is not None and not np.all(categories):
            state = replace(state, categories=state.categories[:, categories], links=state.links[categories])
            state = self.only(state, features=state.links.any(axis=0))
        return state

    def with_modes(self, state: Correlated) -> Correlated:
        """Hyper-parameters at their conditional modes."""
        if not self.learn:
            return state
        (C, K), D = state.links.shape, self.table.Y.shape[1]
        total = float(state.weights.expectation.sum())
        return replace(
            state,
            category_concentration=self.concentration.concentration(
                int(state.categories.any(axis=0).sum()), self.n_rows
            ),
            feature_concentration=self.concentration.concentration(K, C),
            noise=self.noise.mode(self.expected_error(state), self.table.n_observed),
            rate=self.rate.mode(K * D, total) if K else state.rate,
        )

    def expected_error(self, state: Correlated) -> float:
        """E|Y - Z W|^2 over observed entries."""
        error = self.table.squared_error(state.codes, state.weights.expectation, state.products)
        return error + float(np.sum(self.table.column_counts(state.codes) * state.weights.variance))

    def bound(self, state: Correlated) -> float:
        """T."""
        U, V, q, rate = state.categories, state.links, state.weights, state.rate
        active = U.sum(axis=0)
        return (
            gaussian(self.expected_error(state), state.noise, self.table.n_observed)
            + float(self.log_link(state.codes, state.counts).sum())
            + log_ordered(active[active > 0], self.n_rows, state.category_concentration)
            + log_ordered(V.sum(axis=0), len(V), state.feature_concentration)
            + float(xlogy(V.shape[1] * self.table.Y.shape[1], rate))
            + float(np.sum(q.entropy - rate * q.expectation))
        )

    def objective(self, state: Correlated) -> float:
        """J."""
        return (
            self.bound(state)
            + self.concentration.log_prob(state.category_concentration)
            + self.concentration.log_prob(state.feature_concentration)
            + self.noise.log_prob(state.noise)
            + self.rate.log_prob(state.rate)
        )

    # -- rows of their own ----------------------------------------------------------------------------

    def best_codes(self, gains: Gains, V: Floats, prior: Floats) -> Floats:
        """(n, K) codes of rows for themselves, of the highest probability with categories that were found.

        V (C, K) are the features of categories, and `prior` (C,) the log prior odds of categories. A code
        and its only category hold each other: neither is worth turning while the other stays. So categories
        are turned together with the codes that then are best.
        """

        def with_codes(U: Floats) -> _Rows:
            counts = np.rint(U @ V)
            Z = best_codes(gains, self.log_odds(counts))
            return _Rows(U, Z, values_of(gains, Z) + self.log_link(Z, counts).sum(axis=1) + U @ prior)

        def climbed(here: _Rows) -> _Rows:
            for _ in range(_ROUNDS + len(V)):
                before = here
                for c in range(len(V)):
                    U = here.categories.copy()
                    U[:, c] = 1.0 - U[:, c]
                    here = here.or_better(with_codes(U))
                if here is before:
                    break
            return here

        none, every = (np.full((len(gains.linear), len(V)), level) for level in (0.0, 1.0))
        alone = best_codes(gains, np.zeros(V.shape[1]))
        suggested = self.visited_categories(alone, every, V, lambda c, U: np.full(len(U), prior[c]))
        best = climbed(with_codes(none))
        for U in (every, suggested):
            best = best.or_better(climbed(with_codes(U)))
        return best.codes

    # -- the link -------------------------------------------------------------------------------------

    def log_link(self, Z: Floats, counts: Floats) -> Floats:
        """ln p(z | c) of every code: z ln(1 - q^c) + (1 - z) c ln q."""
        return np.asarray(np.where(Z > 0.5, self._log_on(counts), counts * math.log(self.miss)))

    def log_odds(self, counts: Floats) -> Floats:
        """ln p(z = 1 | c) - ln p(z = 0 | c), -inf where c = 0."""
        return np.asarray(self._log_on(counts) - counts * math.log(self.miss))

    def _log_on(self, counts: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log1p(-np.exp(counts * math.log(self.miss))))
