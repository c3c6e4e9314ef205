"""Binary codes of rows with an Indian-buffet prior, and least squares with missing entries.

    y_n ~ N(z_n B, sigma^2 I)      gain of z_nk = linear_nk - sum_j z_nj gram_kj + ln of the prior odds

N rows, D features, K columns of codes. Rows are visited in order, in each the columns in order; a bit is set
to whatever is more probable. Rows depend on one another only through the sums of the columns, so all of them
are decided at once with sums that earlier decisions imply, until decisions and sums agree: then they are
those of the visits in order, because every pass settles at least one more row. A pass costs O(N K^2) and no
product with the features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import Floats
from latently.core.block import slices
from latently.distributions.indian_buffet import log_odds

Bools = NDArray[np.bool_]
Index = NDArray[np.intp]

_LARGEST_GRAMS = 2**24  # numbers held at a time
_TRUSTED = 1e-6  # of the squares of the rows: a smaller squared error is computed from residuals


@dataclass(frozen=True)
class Patterns:
    """The distinct columns of a mask, and which one each of its columns is."""

    masks: Floats  # (n, U) of zeros and ones
    index: Index  # (m,)

    @classmethod
    def of(cls, mask: Bools) -> Patterns:
        """Those of the columns of a mask (n, m)."""
        packed = np.packbits(mask, axis=0).T
        keys = np.ascontiguousarray(packed).view([("", packed.dtype)] * packed.shape[1])
        _, first, index = np.unique(keys, return_index=True, return_inverse=True)
        return cls(np.asarray(mask[:, first], dtype=np.float64), index.reshape(-1))

    def grams(self, A: Floats, chosen: slice = slice(None)) -> Floats:
        """(U, K, K) A' diag(mask) A for the chosen masks; A is (n, K)."""
        masks = self.masks[:, chosen]
        K, U = A.shape[1], masks.shape[1]
        found = np.empty((U, K, K))
        if U <= K:
            for u in range(U):
                rows = A[masks[:, u] > 0]
                found[u] = rows.T @ rows
            return found
        for k in range(K):
            found[:, k, k:] = found[:, k:, k] = masks.T @ (A[:, k:] * A[:, k : k + 1])
        return found


@dataclass(frozen=True)
class Table:
    """Rows in which entries may be missing."""

    Y: Floats  # (N, D), zero where missing
    mask: Bools | None = None  # (N, D); None if all were observed

    @classmethod
    def of(cls, X: Floats) -> Table:
        """Rows in which NaN marks a missing entry."""
        missing = np.isnan(X)
        if not missing.any():
            return cls(np.ascontiguousarray(X, dtype=np.float64))
        return cls(np.where(missing, 0.0, X), ~missing)

    @cached_property
    def transposed(self) -> Table:
        """The features as rows."""
        return Table(self.Y.T, None if self.mask is None else self.mask.T)

    @cached_property
    def n_observed(self) -> int:
        return int(self.Y.size if self.mask is None else self.mask.sum())

    @cached_property
    def sum_squares(self) -> float:
        return float(np.vdot(self.Y, self.Y))

    @cached_property
    def mean_square(self) -> float:
        """Of the observed entries; positive."""
        return max(self.sum_squares / self.n_observed, 1e-12)

    @cached_property
    def of_rows(self) -> Patterns:
        """Which features the rows have."""
        assert self.mask is not None
        return Patterns.of(self.mask.T)

    @cached_property
    def of_columns(self) -> Patterns:
        """Which rows the features have."""
        assert self.mask is not None
        return Patterns.of(self.mask)

    def squared_error(self, Z: Floats, B: Floats, products: Floats | None = None) -> float:
        """Sum of (Y - Z B)^2 over observed entries; `products` Z'Y (K, D), if known, save a pass."""
        if self.mask is None and products is not None:
            error = self.sum_squares - 2.0 * float(np.vdot(products, B)) + float(np.vdot(Z.T @ Z @ B, B))
            if error > _TRUSTED * self.sum_squares:
                return error
        residual = self.residual(Z, B)
        return float(np.vdot(residual, residual))

    def residual(self, Z: Floats, B: Floats) -> Floats:
        """(N, D) Y - Z B, zero where missing."""
        R = self.Y - Z @ B
        if self.mask is not None:
            R *= self.mask
        return R

    def row_sums(self, v: Floats) -> Floats:
        """(N, K) sums of v (K, D) over the features that a row has."""
        if self.mask is None:
            return np.broadcast_to(v.sum(axis=1), (len(self.Y), len(v)))
        return np.asarray((self.of_rows.masks.T @ v.T)[self.of_rows.index])

    def column_counts(self, Z: Floats) -> Floats:
        """(K, D) sums of Z over the rows that a feature has; (K, 1) if nothing is missing."""
        if self.mask is None:
            return np.asarray(Z.sum(axis=0)[:, None])
        return np.asarray((Z.T @ self.of_columns.masks)[:, self.of_columns.index])


@dataclass(frozen=True)
class Gains:
    """What rows gain by bits, without the prior: linear_nk - sum_j z_nj gram_kj over j other than k."""

    linear: Floats  # (N, K)
    gram: Callable[[slice], tuple[Floats, Index | None]]  # (U, K, K) of some rows, and which one each has
    rows_at_a_time: int

    def slices(self) -> list[slice]:
        return slices(len(self.linear), self.rows_at_a_time)


def least_squares_gains(
    table: Table, B: Floats, spread: Floats | None, noise: float, inner: Floats | None = None
) -> Gains:
    """Gains of codes (N, K) in the squared error of Y - Z B over 2 noise.

    `spread` (K, D) is the variance of B; `inner` (N, K) is Y B', if it is known.
    """
    inner = table.Y @ B.T if inner is None else inner
    if table.mask is None:
        G = B @ B.T
        own = np.diagonal(G) + (0.0 if spread is None else spread.sum(axis=1))
        return Gains((inner - 0.5 * own) / noise, lambda rows: (_hollow(G[None] / noise), None), len(table.Y))
    own = table.row_sums(B * B if spread is None else B * B + spread)
    patterns = table.of_rows

    def gram(rows: slice) -> tuple[Floats, Index | None]:
        used, index = np.unique(patterns.index[rows], return_inverse=True)
        some = Patterns(patterns.masks[:, used], index)
        return _hollow(some.grams(B.T) / noise), index.reshape(-1)

    at_a_time = max(1, _LARGEST_GRAMS // max(1, len(B) ** 2))
    return Gains((inner - 0.5 * own) / noise, gram, at_a_time)


def swept_codes(
    Z: Floats,
    gains: Gains,
    *,
    log_new: float,
    taken_up: Floats,
) -> Floats:
    """(N, K) codes after every bit was set once, rows in order and in each the columns in order.

    `log_new` is ln alpha - ln N, and `taken_up` (K,) what T gains when a column that is null comes into use.
    """
    Z, counts, prior = Z.copy(), Z.sum(axis=0), BuffetOdds(len(Z), log_new, taken_up)
    for rows in gains.slices():
        gram, index = gains.gram(rows)
        start = rows.start

        def visit(left: slice, old: Floats, odds: Odds, start: int = start) -> Floats:
            which = None if index is None else index[left.start - start :]  # noqa: B023 (called at once)
            return visited(old, gains.linear[left], gram, which, odds)  # noqa: B023

        counts = settle(Z, rows, counts, prior, visit)
    return Z


class Odds(Protocol):
    """The log prior odds of the bits of rows, given what the rows before them have."""

    def __call__(self, k: int, Z: Floats) -> Floats:
        """(n,) of column k, when the rows are Z (n, K) so far."""


@dataclass(frozen=True)
class BuffetOdds:
    """The odds of an ordered Indian buffet process."""

    n_rows: int
    log_new: float
    taken_up: Floats | float = 0.0  # (K,)

    def given(self, others: Floats) -> Odds:
        """The odds of rows without which the columns have the sums `others` (n, K)."""
        prior = log_odds(self.n_rows)[np.rint(others).astype(np.intp)]
        alone = np.asarray(others < 0.5)
        apart, in_use = np.asarray(alone.any(axis=0)), (~alone).sum(axis=1)
        taken_up = np.broadcast_to(self.taken_up, others.shape[1:])

        def odds(k: int, Z: Floats) -> Floats:
            found = prior[:, k]
            if apart[k]:  # the row would be the first to have it
                n = np.flatnonzero(alone[:, k])
                with_it = 1.0 + in_use[n] + (Z[n] * alone[n]).sum(axis=1) - Z[n, k]
                found = found.copy()
                found[n] = self.log_new - np.log(with_it) + taken_up[k]
            return np.asarray(found)

        return odds


Visit = Callable[[slice, Floats, Odds], Floats]


def settle(Z: Floats, rows: slice, counts: Floats, prior: BuffetOdds, visit: Visit) -> Floats:
    """Visit these rows of Z in order, in place; the sums of the columns before and after (K,).

    `visit(left, old, odds)` gives the rows `left` after a visit, all at once. What it decides is right for
    rows whose odds are; the first one always is, so every pass settles one at least, and mostly all.
    """
    old, first = Z[rows].copy(), rows.start
    while first < rows.stop:
        left = slice(first, rows.stop)
        own, guess = old[first - rows.start :], Z[left]
        change = guess - own
        others = counts + np.cumsum(change, axis=0) - change - own
        new = visit(left, own, prior.given(others))
        wrong = np.flatnonzero((new != guess).any(axis=1))
        settled = len(new) if not len(wrong) else int(wrong[0]) + 1
        counts = counts + (new[:settled] - own[:settled]).sum(axis=0)
        Z[left] = new
        first += settled
    return counts


def visited(old: Floats, linear: Floats, gram: Floats, index: Index | None, odds: Odds) -> Floats:
    """(n, K) the rows after a visit: every bit is set if that gains anything."""
    Z = old.copy()
    gain = linear - (Z @ gram[0] if index is None else np.einsum("nk,nkj->nj", Z, gram[index]))
    for k in range(Z.shape[1]):
        on = gain[:, k] + odds(k, Z) > 0
        turned = np.flatnonzero(on != (Z[:, k] > 0.5))
        if len(turned):
            step = np.where(on[turned], 1.0, -1.0)
            row = gram[0, k] if index is None else gram[index[turned], k]
            gain[turned] -= step[:, None] * row
            Z[turned, k] = on[turned]
    return Z


def swept_alone(Z: Floats, gains: Gains, prior: Floats) -> Floats:
    """(N, K) codes after every bit was set once, with log prior odds (N, K) that do not depend on others."""
    Z = Z.copy()
    for rows in gains.slices():
        gram, index = gains.gram(rows)
        here = prior[rows]
        Z[rows] = visited(Z[rows], gains.linear[rows], gram, index, lambda k, Z, here=here: here[:, k])
    return Z


def best_codes(gains: Gains, prior: Floats) -> Floats:
    """(N, K) codes of rows for themselves, with these log prior odds (K,) or (N, K).

    Bits are turned one at a time, the best first, from no bits and from all of them; the better end is kept.
    The objective is submodular where B is not negative.
    """
    N, K = gains.linear.shape
    found = np.zeros((N, K))
    prior = np.broadcast_to(prior, (N, K))
    for rows in gains.slices():
        gram, index = gains.gram(rows)
        linear = gains.linear[rows] + prior[rows]
        ends = [_climbed(begin, linear, gram, index) for begin in (np.zeros, np.ones)]
        better = ends[1][1] > ends[0][1]
        found[rows] = np.where(better[:, None], ends[1][0], ends[0][0])
    return found


def values_of(gains: Gains, Z: Floats) -> Floats:
    """(N,) what codes gain over none."""
    found = np.empty(len(Z))
    for rows in gains.slices():
        gram, index = gains.gram(rows)
        shared = Z[rows] @ gram[0] if index is None else np.einsum("nk,nkj->nj", Z[rows], gram[index])
        found[rows] = np.sum(Z[rows] * (gains.linear[rows] - 0.5 * shared), axis=1)
    return found


def _climbed(
    begin: Callable[..., Floats], linear: Floats, gram: Floats, index: Index | None
) -> tuple[Floats, Floats]:
    """Codes from which no single bit is worth turning, and their objective (n,)."""
    n, K = linear.shape
    certain = np.isposinf(linear)
    linear = np.where(certain, 1e300, np.where(np.isneginf(linear), -1e300, linear))
    Z = np.asarray(begin((n, K)), dtype=np.float64)
    gain = linear - (Z @ gram[0] if index is None else np.einsum("nk,nkj->nj", Z, gram[index]))
    moving = np.arange(n)
    for _ in range(4 * K + 4):
        if not len(moving) or not K:
            break
        rise = np.where(Z[moving] > 0.5, -gain[moving], gain[moving])
        k = np.argmax(rise, axis=1)
        up = rise[np.arange(len(moving)), k] > 0
        moving, k = moving[up], k[up]
        step = 1.0 - 2.0 * Z[moving, k]
        Z[moving, k] += step
        gain[moving] -= step[:, None] * (gram[0, k] if index is None else gram[index[moving], k])
    return Z, np.asarray(np.sum(Z * np.clip(0.5 * (linear + gain), -1e250, 1e250), axis=1))


def _hollow(gram: Floats) -> Floats:
    """With zeros on the diagonals."""
    K = gram.shape[-1]
    gram[:, np.arange(K), np.arange(K)] = 0.0
    return gram
