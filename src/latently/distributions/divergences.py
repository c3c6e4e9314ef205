"""Losses of a non-negative factorisation by multiplicative updates: Kullback-Leibler and beta divergences.

    d(x | y) = (x^beta + (beta - 1) y^beta - beta x y^(beta - 1)) / (beta (beta - 1)),    y = s A

    beta = 1: x ln(x / y) - x + y        beta = 0 (Itakura-Saito): x / y - ln(x / y) - 1

n rows x, D features, r components, as in `nonnegative`. Every sweep makes all products s A. The slope of the
loss by y is y^(beta - 1) - x y^(beta - 2): sums of its two parts, over features or over rows, are the
denominator and the numerator of a multiplicative update. For beta = 1 the denominator does not depend on the
fit and zeros of x cost nothing, so that divergence has a class of its own, for sparse rows too.

Févotte and Idier (2011), Neural Computation 23. Formulas: docs/nmf.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latently.backend.namespace import Array, double, is_sparse, namespace, zeros
from latently.core.block import Block
from latently.distributions.nonnegative import (
    INNER_PASSES,
    MOST_PASSES,
    NO_PENALTY,
    SOLVED,
    TINY,
    Codebook,
    How,
    Penalty,
    activations,
    added_up,
    against,
    applied,
    counted_rows,
    descended,
    on_diagonal,
    ratio_or_one,
    refined,
    rows_of,
    seen_in,
    smallest,
    square_of,
    weighted,
    with_first,
)

_FIRST_STEPS = 10  # multiplicative ones, which come near soon and arrive late
_HALVINGS = 40


# -- activations of given components ------------------------------------------------------------------


def newton_minimum(
    V: Array,
    table: Array,
    penalty: Penalty,
    base: Array,
    evaluated: Callable[[Array], tuple[Any, Array]],
    derivatives: Callable[[Any], tuple[Array, Array]],
    patience: int = 1,
) -> Array:
    """(r, n) activations at a minimum of the loss and a penalty, by Newton's method from V.

    A quadratic is minimised over v >= 0 in every step, and rows whose cost would rise go half as far, and
    half again. `evaluated(V)` gives what derivatives are made of, and the loss of each row; `derivatives` of
    the former give minus the slopes (r, n) and the curvatures by s A (n, D), which must not be negative.
    `base` is the part of the slopes by which moves are measured. A row is at its minimum when it hardly
    moves, or when `patience` steps have gained nothing: more than one where curvatures are not exact, so that
    steps become shorter slowly.
    """
    xp, r = namespace(V), V.shape[0]
    rounding = 16 * float(xp.finfo(V.dtype).eps)

    def costs(V: Array) -> tuple[Any, Array]:
        made, loss = evaluated(V)
        return made, loss + penalty.l1 * xp.sum(V, axis=0) + 0.5 * penalty.l2 * xp.sum(V * V, axis=0)

    made, cost = costs(V)
    idle = xp.zeros_like(cost)
    for _ in range(MOST_PASSES):
        pull, curvatures = derivatives(made)
        H = square_of(against(table, curvatures), r)
        if penalty.l2:
            H = H + on_diagonal(penalty.l2, H)
        B = applied(H, V) + pull - penalty.l1 - penalty.l2 * V
        step = refined(descended(V, H, B, INNER_PASSES), H, B) - V
        share, before = xp.ones_like(V[0, :]), cost
        slack = rounding * (xp.abs(cost) + xp.sum(V * base, axis=0))
        for _ in range(_HALVINGS):
            there = V + share * step
            made, cost = costs(there)
            worse = cost > before + slack
            if not bool(xp.any(worse)):
                break
            share = xp.where(worse, 0.5 * share, share)
        V = there
        near = xp.max(xp.abs(share * step) * base, axis=0) <= SOLVED * xp.max(V * base, axis=0)
        idle = xp.where(before - cost <= slack, idle + 1.0, 0.0)
        if bool(xp.all(near | (idle >= patience))):
            break
    return V


def _in_double(block: Block) -> Block:
    X = block.X.astype(np.float64) if is_sparse(block.X) else double(block.X)
    return replace(block, X=X)


def _for_newton(block: Block) -> Block:
    """The rows for Newton's method, which needs the digits, and without activations."""
    return replace(_in_double(block), state=None)


# -- Kullback-Leibler divergence ----------------------------------------------------------------------


@dataclass(frozen=True)
class CountSums:
    """Sums over rows, each counted with its weight; s are its activations."""

    cost: Array  # (): s A - x ln s A and penalties, of the activations before the step
    counts: Array  # (r, D): s x / (s A), after it
    exposure: Array  # (r, 1): s, of complete rows
    exposures: Array | None  # (r, D): s of rows with missing entries, where observed
    total: Array  # (r,): s
    square: Array  # (r,): s^2


@dataclass(frozen=True)
class Divergence:
    """The loss sum of x ln(x / s A) - x + s A over what was observed, by multiplicative updates."""

    penalty: Penalty = NO_PENALTY
    n_fixed: int = 0

    evaluates_start: ClassVar[bool] = True
    descends: ClassVar[bool] = False
    needs_support: ClassVar[bool] = True
    needs_positive: ClassVar[bool] = False
    largest_power: ClassVar[float] = 2.0

    def of_entries(self, X: Array) -> Array:
        xp = namespace(X)
        return xp.where(X > 0, X * xp.log(xp.where(X > 0, X, 1.0)), 0.0) - X

    def scale(self, constant: float, total: float, seen: float) -> float:
        return total

    def rows(self, codebook: Codebook, how: How, block: Block) -> tuple[Any, list[Array]]:
        """Sums of a block after a step of its activations, and their new state."""
        X, A = counted_rows(block), codebook.components
        V = activations(block, codebook)
        seen = seen_in(block, A)
        exposure = codebook.totals[:, None] if seen is None else A @ seen.T
        ratio, cost = _ratios(V, A, X, seen, block.weight)
        xp = namespace(V)
        counted = weighted(V, block.weight)
        cost += self.penalty.cost(xp.sum(counted), xp.sum(counted * V))
        V = self._grown(V, against(A, ratio), exposure, how.exponent)
        counted = weighted(V, block.weight)
        counts = double(added_up(counted, _ratios(V, A, X, None, None, cost=False)[0]))
        total, square = double(xp.sum(counted, axis=1)), double(xp.sum(counted * V, axis=1))
        if seen is None:
            exposure = xp.asarray(total[:, None], copy=True)  # sums are added in place
            sums = CountSums(cost, counts, exposure, None, total, square)
        else:
            nothing = zeros((V.shape[0], 1), V)
            sums = CountSums(cost, counts, nothing, double(counted @ seen), total, square)
        return sums, [xp.asarray(V.T, copy=True)]

    def _grown(self, V: Array, counts: Array, exposure: Array, exponent: float) -> Array:
        """The multiplicative step, whose goal minimises exposure v - counts ln v + l1 v + l2 v^2 / 2."""
        return _stepped_towards(V, counts, exposure, self.penalty, exponent)

    def components(self, sums: CountSums, A: Array, penalty: Penalty, how: How) -> Array:
        """The components after a step, the activations being given."""
        found = _stepped_towards(A, sums.counts, self._exposures(sums), penalty, how.exponent)
        return with_first(A, self.n_fixed, found)

    def cost(self, sums: CountSums, A: Array, penalty: Penalty, constant: float) -> float:
        """That of components A and of the activations before the step that gave the sums."""
        xp = namespace(A)
        return constant + float(sums.cost) + penalty.cost(xp.sum(A), xp.sum(A**2))

    def how(self, speed: float, n_components: int) -> How:
        """An accelerated step: with an exponent."""
        return How(exponent=speed)

    def kept(self, sums: CountSums, A: Array) -> CountSums:
        """The sums in a form that does not depend on the components, for fits batch by batch."""
        return replace(sums, counts=sums.counts * A)

    def from_kept(self, sums: CountSums, A: Array, penalty: Penalty) -> Array:
        """The components that follow from such sums, those before being A."""
        found = _stepped_towards(
            namespace(A).ones_like(A), sums.counts, self._exposures(sums), penalty, exponent=1.0
        )
        return with_first(A, self.n_fixed, found)

    def explained(self, sums: CountSums, A: Array) -> CountSums:
        """Such sums of the same activations, had the components made all rows."""
        return replace(sums, counts=A * self._exposures(sums))

    @staticmethod
    def _exposures(sums: CountSums) -> Array:
        return sums.exposure if sums.exposures is None else sums.exposure + sums.exposures

    def solved(self, A: Array, block: Block) -> Array:
        """(r, n) activations that minimise the loss."""
        block, codebook = _for_newton(block), Codebook.of(double(A))
        B, X, seen = codebook.components, counted_rows(block), seen_in(block, codebook.components)
        exposure = codebook.totals[:, None] if seen is None else B @ seen.T
        V = activations(block, codebook)
        for _ in range(_FIRST_STEPS):
            V = self._grown(V, against(B, _ratios(V, B, X, seen, None, cost=False)[0]), exposure, 1.0)

        def evaluated(V: Array) -> tuple[Array, Array]:
            return _ratios(V, B, X, seen, None, by_row=True)

        def derivatives(ratio: Array) -> tuple[Array, Array]:
            return against(B, ratio) - exposure, _curvatures(ratio, X)

        base = exposure + self.penalty.l1
        found = newton_minimum(V, codebook.table(), self.penalty, base, evaluated, derivatives)
        return namespace(A).astype(found, A.dtype, copy=False)

    def row_costs(self, V: Array, A: Array, block: Block) -> Array:
        """(n,) the loss of each row with activations V (r, n), without penalties."""
        X, seen, xp = counted_rows(block), seen_in(block, A), namespace(A)
        ratio, told = _ratios(V, A, X, seen, None, by_row=True)
        told = xp.where(_unreached(ratio, X), xp.inf, told)
        if is_sparse(X):
            rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
            return told + np.bincount(rows, weights=self.of_entries(X.data), minlength=X.shape[0])
        terms = self.of_entries(rows_of(block))
        return told + double(xp.sum(terms if seen is None else terms * seen, axis=1))

    def floats_per_row(self, n_components: int, n_features: int, missing: bool) -> int:
        return 4 * n_features + 6 * n_components


def _ratios(
    V: Array,
    A: Array,
    X: Array,
    seen: Array | None,
    weight: Array | None,
    *,
    cost: bool = True,
    by_row: bool = False,
) -> tuple[Array, Any]:
    """x / (s A); and the sum of s A - x ln s A over what was seen, of all rows or of each."""
    if is_sparse(X):
        return _sparse_ratios(V, A, X, weight, cost, by_row)
    xp = namespace(V)
    Y = V.T @ A
    told = None
    if cost:
        expected = xp.sum(Y if seen is None else Y * seen, axis=1)
        logs = xp.sum(X * xp.log(xp.clip(Y, min=smallest(Y))), axis=1)
        told = double(expected) - double(logs)
        if not by_row:
            told = xp.sum(told if weight is None else told * weight)
    if bool(xp.min(Y) > smallest(Y)):
        return X / Y, told
    above = smallest(Y) < Y  # else no component has the feature, so that its ratio counts for nothing
    return xp.where(above, X / xp.where(above, Y, 1.0), 0.0), told


def _sparse_ratios(
    V: Array, A: Array, X: Any, weight: Array | None, cost: bool, by_row: bool
) -> tuple[Any, Any]:
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    y = np.empty(len(X.data))
    for start in range(0, len(y), 1 << 16):  # so that what is gathered stays in the cache
        part = slice(start, start + (1 << 16))
        y[part] = np.einsum("ij,ij->j", V[:, rows[part]], A[:, X.indices[part]])
    above = y > TINY
    y = np.maximum(y, TINY)
    told = None
    if cost:
        logs = np.bincount(rows, weights=X.data * np.log(y), minlength=X.shape[0])
        told = V.T @ A.sum(axis=1) - logs
        if not by_row:
            told = np.sum(told if weight is None else told * weight)
    ratio = X.copy()
    ratio.data = np.where(above, X.data / np.where(above, y, 1.0), 0.0)
    return ratio, told


def _curvatures(ratio: Array, X: Array) -> Array:
    """x / (s A)^2, the second derivatives of the loss by s A."""
    if is_sparse(X):
        found = ratio.copy()
        found.data = _curvatures(ratio.data, X.data)
        return found
    xp = namespace(X)
    return xp.where(X > 0, ratio * (ratio / xp.where(X > 0, X, 1.0)), 0.0)


def _stepped_towards(V: Array, counts: Array, exposure: Array, penalty: Penalty, exponent: float) -> Array:
    xp = namespace(V)
    base = exposure + penalty.l1
    numerator = V * counts
    if penalty.l2:
        root = xp.sqrt(base * base + 4.0 * penalty.l2 * numerator)
        goal_ratio = ratio_or_one(2.0 * counts, base + root)
    else:
        goal_ratio = ratio_or_one(counts, base)
    return V * (goal_ratio if exponent == 1.0 else goal_ratio**exponent)


def _unreached(ratio: Array, X: Array) -> Array:
    """(n,) whether a row has something where no component that is on has anything."""
    if is_sparse(X):
        rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        return np.bincount(rows, weights=(X.data > 0) & (ratio.data == 0), minlength=X.shape[0]) > 0
    return namespace(X).any((X > 0) & (ratio == 0), axis=1)


# -- beta divergences -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlopeSums:
    """Sums over rows, each counted with its weight; s are its activations, y = s A what is made of them."""

    cost: Array  # (): the loss without what it takes from x alone, and penalties, before the step
    above: Array  # (r, D): s x y^(beta - 2), after it
    below: Array  # (r, D): s y^(beta - 1)
    total: Array  # (r,): s
    square: Array  # (r,): s^2


@dataclass(frozen=True)
class BetaDivergence:
    """The beta divergence of what was observed, for any beta but 1, by multiplicative updates.

    Where components have nothing in common with an entry, y is zero and stays so; such entries count for
    nothing in an update.
    """

    beta: float
    penalty: Penalty = NO_PENALTY
    n_fixed: int = 0

    evaluates_start: ClassVar[bool] = True
    descends: ClassVar[bool] = False

    @property
    def needs_support(self) -> bool:
        return self.beta <= 1.0

    @property
    def needs_positive(self) -> bool:
        return self.beta <= 0.0

    @property
    def needs_range(self) -> bool:
        """Whether the least y of float32, to the power of beta, is far from zero: a step above it costs."""
        return 0.0 < self.beta < 1.0

    @property
    def largest_power(self) -> float:
        return max(2.0, abs(self.beta), 2.0 - self.beta)

    def of_entries(self, X: Array) -> Array:
        xp, beta = namespace(X), self.beta
        positive = X > 0
        x = xp.where(positive, X, 1.0)
        if beta == 0:
            return xp.where(positive, -xp.log(x) - 1.0, 0.0)
        return xp.where(positive, x**beta, 0.0) / (beta * (beta - 1.0))

    def scale(self, constant: float, total: float, seen: float) -> float:
        if self.beta == 0:
            return seen + abs(constant)
        return abs(constant) * (1.0 + abs(self.beta) + abs(self.beta - 1.0))

    def rows(self, codebook: Codebook, how: How, block: Block) -> tuple[Any, list[Array]]:
        """Sums of a block after a step of its activations, and their new state."""
        xp, dtype = namespace(codebook.components), codebook.components.dtype
        if self.needs_range:
            block, codebook = _in_double(block), Codebook.of(double(codebook.components))
        X, A = _dense(rows_of(block)), codebook.components
        V, seen = activations(block, codebook), seen_in(block, A)
        above, below, costs = self._slopes(V, A, X, seen)
        cost = xp.sum(costs if block.weight is None else costs * block.weight)
        counted = weighted(V, block.weight)
        cost += self.penalty.cost(xp.sum(counted), xp.sum(counted * V))
        V = self._stepped(V, A @ above.T, A @ below.T, self.penalty, how.exponent)
        above, below, _ = self._slopes(V, A, X, seen, cost=False)
        counted = weighted(V, block.weight)
        total, square = double(xp.sum(counted, axis=1)), double(xp.sum(counted * V, axis=1))
        sums = SlopeSums(cost, double(counted @ above), double(counted @ below), total, square)
        return sums, [xp.astype(V.T, dtype, copy=True)]

    def _slopes(
        self, V: Array, A: Array, X: Array, seen: Array | None, *, cost: bool = True
    ) -> tuple[Array, Array, Any]:
        """x y^(beta - 2) and y^(beta - 1), (n, D); and the loss of each row but for what it takes from x."""
        xp, beta = namespace(V), self.beta
        Y = V.T @ A
        least = self._least(Y)
        reached = None if bool(xp.min(Y) > least) else least < Y
        if reached is not None:
            Y = xp.where(reached, Y, least)
        below = _powered(Y, beta - 1.0)
        above = X * below / Y
        told = None
        if cost:
            terms = Y * above + xp.log(Y) if beta == 0 else below * (Y / beta - X / (beta - 1.0))
            told = double(xp.sum(terms if seen is None else terms * seen, axis=1))
        for part in (seen, reached):
            if part is not None:
                above, below = (slope * xp.astype(part, slope.dtype) for slope in (above, below))
        return above, below, told

    def _least(self, Y: Array) -> float:
        """Below which y counts as zero, so that all powers of it are finite."""
        return float(smallest(Y) ** (1.0 / self.largest_power))

    def _power(self, penalty: Penalty) -> float:
        """With this power of the ratio no update raises the cost.

        In the units of v, the slope of the function that majorises the cost is below v^b - above v^a + l1 +
        l2 v, with a = min(beta - 2, 0) and b = max(beta - 1, 0).
        """
        highest = max(self.beta - 1.0, 1.0 if penalty.l2 else 0.0)
        return 1.0 / (highest - min(self.beta - 2.0, 0.0))

    def _stepped(self, V: Array, above: Array, below: Array, penalty: Penalty, exponent: float) -> Array:
        ratio = ratio_or_one(above, below + penalty.l1 + penalty.l2 * V)
        power = self._power(penalty) * exponent
        return V * (ratio if power == 1.0 else ratio**power)

    def components(self, sums: SlopeSums, A: Array, penalty: Penalty, how: How) -> Array:
        """The components after a step, the activations being given."""
        found = self._stepped(A, sums.above, sums.below, penalty, how.exponent)
        return with_first(A, self.n_fixed, found)

    def cost(self, sums: SlopeSums, A: Array, penalty: Penalty, constant: float) -> float:
        """That of components A and of the activations before the step that gave the sums."""
        xp = namespace(A)
        return constant + float(sums.cost) + penalty.cost(xp.sum(A), xp.sum(A**2))

    def how(self, speed: float, n_components: int) -> How:
        """An accelerated step: with an exponent."""
        return How(exponent=speed)

    def kept(self, sums: SlopeSums, A: Array) -> SlopeSums:
        """The sums in a form that does not depend on the components, for fits batch by batch."""
        of_above, of_below = self._units(A)
        return replace(sums, above=sums.above / of_above, below=sums.below / of_below)

    def from_kept(self, sums: SlopeSums, A: Array, penalty: Penalty) -> Array:
        """The components that follow from such sums, those before being A."""
        found = A
        for _ in range(_ONLINE_STEPS if penalty else 1):
            of_above, of_below = self._units(found)
            found = self._stepped(found, sums.above * of_above, sums.below * of_below, penalty, 1.0)
        return with_first(A, self.n_fixed, found)

    def explained(self, sums: SlopeSums, A: Array) -> SlopeSums:
        """Such sums of the same activations, had the components made all rows."""
        of_above, of_below = self._units(A)
        return replace(sums, above=sums.below * of_below / of_above)

    def _units(self, A: Array) -> tuple[Array, Array]:
        """The powers a and b of A, with which the two slopes of the majorising function go."""
        xp = namespace(A)
        least = self._least(A)
        A = xp.where(least < A, A, 1.0)  # an entry of zero stays zero in any units
        return A ** min(self.beta - 2.0, 0.0), A ** max(self.beta - 1.0, 0.0)

    def solved(self, A: Array, block: Block) -> Array:
        """(r, n) activations at a minimum of the loss, which is convex for 1 <= beta <= 2 only."""
        block, codebook = _for_newton(block), Codebook.of(double(A))
        B, X, seen = codebook.components, _dense(rows_of(block)), seen_in(block, codebook.components)
        V, xp = activations(block, codebook), namespace(B)
        below = xp.zeros_like(X)
        for _ in range(_FIRST_STEPS):
            above, below, _ = self._slopes(V, B, X, seen, cost=False)
            V = self._stepped(V, B @ above.T, B @ below.T, self.penalty, 1.0)

        def evaluated(V: Array) -> tuple[Any, Array]:
            above, below, cost = self._slopes(V, B, X, seen)
            return (above, below, V), cost

        def derivatives(made: Any) -> tuple[Array, Array]:
            above, below, V = made
            Y = V.T @ B
            Y = xp.where(self._least(Y) < Y, Y, 1.0)  # where both slopes are zero already
            curvatures = ((self.beta - 1.0) * below + (2.0 - self.beta) * above) / Y
            return B @ (above - below).T, xp.maximum(curvatures, _LEAST_CURVATURE * below / Y)

        base = B @ below.T + self.penalty.l1
        table = codebook.table()
        found = newton_minimum(V, table, self.penalty, base, evaluated, derivatives, _PATIENCE)
        return namespace(A).astype(found, A.dtype, copy=False)

    def row_costs(self, V: Array, A: Array, block: Block) -> Array:
        """(n,) the loss of each row with activations V (r, n), without penalties."""
        if self.needs_range:
            V, A, block = double(V), double(A), _in_double(block)
        X, seen, xp = _dense(rows_of(block)), seen_in(block, A), namespace(A)
        above, _, told = self._slopes(V, A, X, seen)
        if self.needs_support:
            unreached = (X > 0) & (above == 0)
            told = xp.where(
                xp.any(unreached if seen is None else unreached & (seen > 0), axis=1), xp.inf, told
            )
        terms = self.of_entries(X)
        return told + double(xp.sum(terms if seen is None else terms * seen, axis=1))

    def floats_per_row(self, n_components: int, n_features: int, missing: bool) -> int:
        return 6 * n_features + 6 * n_components


_ONLINE_STEPS = 10  # with penalties, where one is not the minimum
_PATIENCE = 30
_LEAST_CURVATURE = 0.25  # of that at x = y, where the loss is not convex


def _powered(Y: Array, exponent: float) -> Array:
    """A power of positive numbers; roots are faster than powers of a half."""
    half = exponent % 1.0 == 0.5
    return Y ** (exponent - 0.5) * namespace(Y).sqrt(Y) if half else Y**exponent


def _dense(X: Any) -> Array:
    """A block of sparse rows with its zeros, which the loss counts as well."""
    return X.toarray() if is_sparse(X) else X
