"""Binary matrix tri-factorisation with Indian buffet priors on both sides (iNBMT).

    Y ~ Z W X' + N(0, sigma^2)     w_kl ~ half-normal(sigma_w^2)     Z, X ~ ordered Indian buffet processes

Y (N, D), row codes Z (N, K), column codes X (D, L), core W (K, L). Codes are maximised over, core entries
have the mean-field posterior q(w_kl) = TN(mu_kl, s_kl^2), and the objective J is the bound T of ln p(Y, Z, X)
plus log hyper-priors. What `binary_features` does with rows is done here with rows and, transposed, with
columns. Each update is an exact coordinate maximiser, so J never falls. A sweep costs
O(ND(K + L) + NK^2 + DL^2).
Document 003, sections 4.2 and 4.3, as corrected in docs/inbmt.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from latently.backend.namespace import Floats
from latently.distributions.binary_codes import Table, least_squares_gains, swept_codes
from latently.distributions.binary_features import gaussian, minus_divergence
from latently.distributions.buffet_priors import GammaPrior, Priors, log_new_column
from latently.distributions.indian_buffet import log_ordered
from latently.distributions.truncated_normal import TruncatedNormal, expectation_of_one

_ROUNDS = 4  # of core and hyper-parameters before the first sweep, where no noise was given


@dataclass(frozen=True)
class Blocks:
    """Where a fit stands."""

    row_codes: Floats  # (N, K)
    column_codes: Floats  # (D, L)
    location: Floats  # (K, L) of q
    scale: Floats  # (K, L) of q
    concentration: float  # alpha, of the rows
    column_concentration: float  # lambda
    noise: float  # sigma^2
    spread: float  # sigma_w^2
    of_rows: Floats  # (K, D) Z'Y
    of_columns: Floats  # (N, L) Y X

    @cached_property
    def core(self) -> TruncatedNormal:
        return TruncatedNormal(self.location, self.scale)

    @cached_property
    def components(self) -> Floats:
        """(K, D) what a row code adds to a row."""
        return np.asarray(self.core.expectation @ self.column_codes.T)

    @cached_property
    def component_variances(self) -> Floats:
        """(K, D)."""
        return np.asarray(self.core.variance @ self.column_codes.T)

    @cached_property
    def divergence(self) -> Floats:
        """(K, L) minus the KL divergences of q from the half-normal."""
        return minus_divergence(self.core, self.spread)


@dataclass(frozen=True)
class BinaryBlocks:
    """The model with its rows: functions of `Blocks`, none of which changes its argument."""

    table: Table
    priors: Priors  # `concentration` is that of both

    def start(
        self,
        row_codes: Floats,
        column_codes: Floats,
        core: Floats,
        *,
        concentration: float,
        column_concentration: float,
        noise: float | None,
        spread: float,
    ) -> Blocks:
        """Codes with a core known almost exactly; without a noise, all hyper-parameters at their modes."""
        state = Blocks(
            row_codes,
            column_codes,
            core,
            np.full(core.shape, 1e-3 * math.sqrt(spread)),
            concentration,
            column_concentration,
            noise or 1.0,
            spread,
            row_codes.T @ self.table.Y,
            self.table.Y @ column_codes,
        )
        return state if noise is not None else self.with_modes(state)

    def given(
        self,
        row_codes: Floats,
        column_codes: Floats,
        location: Floats | None,
        scale: Floats | None,
        *,
        concentration: float,
        column_concentration: float,
        noise: float | None,
        spread: float,
    ) -> Blocks:
        """The start with these codes and this posterior, or with the core that these codes imply."""
        shape = row_codes.shape[1], column_codes.shape[1]
        if scale is None and noise is None and self.priors.learn:
            spread = max(spread, self.table.mean_square)  # else a core in large units would be taken for zero
        start = self.start(
            row_codes,
            column_codes,
            np.zeros(shape) if location is None else np.maximum(location, 0.0),
            concentration=concentration,
            column_concentration=column_concentration,
            noise=noise or self.table.mean_square,  # not the modes, which would make an unknown core zero
            spread=spread,
        )
        if location is not None and scale is not None:
            start = replace(start, location=location, scale=scale)
            return start if noise is not None else self.with_modes(start)
        start = self.with_core(self.with_core(start))
        # with a noise that is too large the first sweep would turn off most codes
        for _ in range(_ROUNDS if noise is None else 0):
            start = self.with_modes(self.with_core(start))
        return start

    def sweep(self, state: Blocks) -> Blocks:
        """The core, row codes, column codes."""
        return self.with_column_codes(self.with_row_codes(self.with_core(state)))

    def with_core(self, state: Blocks) -> Blocks:
        """Every q(w_kl) once, k outer and l inner."""
        Z, X, noise = state.row_codes, state.column_codes, state.noise
        K, L = state.location.shape
        M = state.core.expectation.copy()
        location, scale = np.empty((K, L)), np.empty((K, L))
        ridge = noise / state.spread
        target = state.of_rows @ X  # (K, L) Z'YX
        missing = self.table.mask is not None
        rows, columns = Z.T @ Z, X.T @ X
        rest = None if missing else target - rows @ M @ columns
        for k in range(K):
            if missing:  # counts (D,) of rows that have k and j, and what the others explain of feature d
                patterns = self.table.of_columns
                shared = ((Z[:, k : k + 1] * Z).T @ patterns.masks)[:, patterns.index]
                explained = np.sum(shared * (M @ X.T), axis=0)
                columns = (X * shared[k][:, None]).T @ X
                left = target[k] - explained @ X
                mine = 1.0
            else:
                assert rest is not None
                left, mine = rest[k], rows[k, k]
            for m in range(L):
                count = mine * columns[m, m]
                tau = 1.0 / (count + ridge)
                mu = tau * (left[m] + count * M[k, m])
                location[k, m], scale[k, m] = mu, math.sqrt(tau * noise)
                after = expectation_of_one(float(mu), float(scale[k, m]))
                step, M[k, m] = after - M[k, m], after
                left -= (step * mine) * columns[m]
            if rest is not None and k + 1 < K:  # `left` was row k itself; the rows below follow
                change = M[k] - state.core.expectation[k]
                rest[k + 1 :] -= np.outer(rows[k + 1 :, k], change @ columns)
        return replace(state, location=location, scale=scale)

    def with_row_codes(self, state: Blocks) -> Blocks:
        """Every z_nk once, n outer and k inner; columns that end empty are removed."""
        found = self._swept(
            self.table,
            state.row_codes,
            state.components,
            state.component_variances,
            state.of_columns @ state.core.expectation.T,
            state.noise,
            state.concentration,
            state.divergence.sum(axis=1),
        )
        if np.array_equal(found, state.row_codes):
            return state
        return self.only(replace(state, row_codes=found, of_rows=found.T @ self.table.Y), found.any(axis=0))

    def with_column_codes(self, state: Blocks) -> Blocks:
        """Every x_dl once, d outer and l inner; columns that end empty are removed."""
        Z, q = state.row_codes, state.core
        found = self._swept(
            self.table.transposed,
            state.column_codes,
            (Z @ q.expectation).T,
            (Z @ q.variance).T,
            state.of_rows.T @ q.expectation,
            state.noise,
            state.column_concentration,
            state.divergence.sum(axis=0),
        )
        if np.array_equal(found, state.column_codes):
            return state
        state = replace(state, column_codes=found, of_columns=self.table.Y @ found)
        return self.only(state, None, found.any(axis=0))

    @staticmethod
    def _swept(
        table: Table,
        codes: Floats,
        B: Floats,
        variances: Floats,
        inner: Floats,
        noise: float,
        concentration: float,
        taken_up: Floats,
    ) -> Floats:
        gains = least_squares_gains(table, B, variances, noise, inner)
        log_new = log_new_column(concentration, len(table.Y))
        return swept_codes(codes, gains, log_new=log_new, taken_up=taken_up)

    def only(self, state: Blocks, rows: Any = None, columns: Any = None) -> Blocks:
        """The columns of row codes and of column codes that are kept."""
        K, L = state.location.shape
        rows = np.ones(K, dtype=bool) if rows is None else np.asarray(rows, dtype=bool)
        columns = np.ones(L, dtype=bool) if columns is None else np.asarray(columns, dtype=bool)
        if rows.all() and columns.all():
            return state
        return replace(
            state,
            row_codes=state.row_codes[:, rows],
            column_codes=state.column_codes[:, columns],
            location=state.location[rows][:, columns],
            scale=state.scale[rows][:, columns],
            of_rows=state.of_rows[rows],
            of_columns=state.of_columns[:, columns],
        )

    def with_modes(self, state: Blocks) -> Blocks:
        """Hyper-parameters at their conditional modes."""
        if not self.priors.learn:
            return state
        N, D = self.table.Y.shape
        K, L = state.location.shape
        return replace(
            state,
            concentration=self.priors.concentration.concentration(K, N),
            column_concentration=self.priors.concentration.concentration(L, D),
            noise=self.priors.noise.mode(self.expected_error(state), self.table.n_observed),
            spread=self.priors.weights.mode(float(state.core.second_moment.sum()), K * L),
        )

    def expected_error(self, state: Blocks) -> float:
        """E|Y - Z W X'|^2 over observed entries."""
        Z, X = state.row_codes, state.column_codes
        error = self.table.squared_error(Z, state.components, state.of_rows)
        counts = np.broadcast_to(self.table.column_counts(Z), (Z.shape[1], len(X))) @ X
        return error + float(np.sum(counts * state.core.variance))

    def bound(self, state: Blocks) -> float:
        """T."""
        N, D = self.table.Y.shape
        return (
            gaussian(self.expected_error(state), state.noise, self.table.n_observed)
            + log_ordered(state.row_codes.sum(axis=0), N, state.concentration)
            + log_ordered(state.column_codes.sum(axis=0), D, state.column_concentration)
            + float(state.divergence.sum())
        )

    def objective(self, state: Blocks) -> float:
        """J."""
        of_concentration: GammaPrior = self.priors.concentration
        return (
            self.bound(state)
            + of_concentration.log_prob(state.concentration)
            + of_concentration.log_prob(state.column_concentration)
            + self.priors.noise.log_prob(state.noise)
            + self.priors.weights.log_prob(state.spread)
        )
