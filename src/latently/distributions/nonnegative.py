"""X ~ S A without negative entries: what a block of rows contributes, and what components follow from it.

n rows x, D features, r components: the rows of A (r, D) are the parts, those of S (n, r) the activations.
Inside, activations stand as (r, n), so that one activation of all rows lies together. Everything here is a
pure function of arrays; sums over rows add. Formulas: docs/nmf.md.

Squared error: rows enter through A x' and through sums of s s' and s x' only, which are the two wide products
of a sweep; all the rest is r x r. The other losses are in `divergences`.

The mask `observed` of a block may hold the weights of its entries instead, (n, D) numbers of which zero is a
missing entry: what is weighted is the loss of an entry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from latently.backend.coordinate_descent import descend
from latently.backend.namespace import (
    Array,
    contiguous,
    device,
    double,
    is_floating,
    is_sparse,
    namespace,
    zeros,
)
from latently.backend.packed import pairs, unpacked
from latently.core.block import Block, slices
from latently.core.tree import add

GROUP = 8  # coordinates whose gradients come of one product
TINY = 1e-300
_PASSES = 3  # over the coordinates, with acceleration
_MANY, _PASSES_OF_MANY = 64, 2  # components, for which a pass takes longer beside the wide products
SOLVED, _SOLVED_SINGLE, MOST_PASSES = 1e-10, 1e-5, 2000  # when activations of given components are found
INNER_PASSES = 10  # of descent, between two steps of Newton's method
_REFINED_AT_ONCE = 256


@dataclass(frozen=True)
class Penalty:
    """l1 v + l2 v^2 / 2 on every entry v."""

    l1: float = 0.0
    l2: float = 0.0

    def cost(self, total: Any, square: Any) -> float:
        return self.l1 * float(total) + 0.5 * self.l2 * float(square)

    def __bool__(self) -> bool:
        return self.l1 > 0 or self.l2 > 0


NO_PENALTY = Penalty()


@dataclass(frozen=True)
class Codebook:
    """The components as blocks need them, once per sweep."""

    components: Array  # (r, D)
    gram: Array  # (r, r): A A'
    totals: Array  # (r,): sums over features

    @classmethod
    def of(cls, components: Array) -> Codebook:
        xp = namespace(components)
        return cls(components, components @ components.T, xp.sum(components, axis=1))

    def table(self) -> Array:
        """(r (r + 1) / 2, D) products of any two components, for rows with missing entries."""
        xp, A = namespace(self.components), self.components
        first, second = (
            xp.asarray(index, device=device(A)) for index in zip(*pairs(A.shape[0]), strict=True)
        )
        return xp.take(A, first, axis=0) * xp.take(A, second, axis=0)


@dataclass(frozen=True)
class How:
    """How far a step goes."""

    n_passes: int = 1  # over the coordinates, where rows have a state
    cold_passes: int = 10  # where they have none
    tolerance: float = 0.0  # of coordinate descent; 0 for exactly so many passes
    exponent: float = 1.0  # of multiplicative updates
    momentum: float | None = None  # None where states hold nothing but activations

    def extrapolated(self, V: Array, block: Block) -> tuple[Array, Array]:
        """Activations carried on in the direction of the step before, and the state (n, m) they leave."""
        xp = namespace(V)
        if self.momentum is None:
            return V, xp.asarray(V.T, copy=True)
        there = V
        if self.momentum and block.state is not None and has_state(block):
            earlier = block.state[:, V.shape[0] :].T
            there = xp.clip(V + self.momentum * (V - earlier), min=0.0)
        return there, xp.concat([there, V]).T


class Loss(Protocol):
    """What a factorisation asks of a loss, of which a penalty on activations is a part."""

    penalty: Penalty
    n_fixed: int  # the first components, which are given and stay as they are

    @property
    def evaluates_start(self) -> bool:
        """Whether sums tell the cost of the activations before the step that gave them, or after."""

    @property
    def descends(self) -> bool:
        """Whether steps are those of coordinate descent, from zero, or multiplicative ones."""

    @property
    def needs_support(self) -> bool:
        """Whether an entry that is positive, where all components are zero, costs infinitely much."""

    @property
    def needs_positive(self) -> bool:
        """Whether entries of zero cost infinitely much."""

    @property
    def largest_power(self) -> float:
        """Of the entries, of all that the loss takes of them or of their inverses."""

    def of_entries(self, X: Array) -> Array:
        """What the loss of each entry takes from the entry alone."""

    def scale(self, constant: float, total: float, seen: float) -> float:
        """The order of magnitude of the cost.

        From the sums over all entries of `of_entries`, of the entries and of ones.
        """

    def rows(self, codebook: Codebook, how: How, block: Block) -> tuple[Any, list[Array]]: ...
    def components(self, sums: Any, A: Array, penalty: Penalty, how: How) -> Array: ...
    def cost(self, sums: Any, A: Array, penalty: Penalty, constant: float) -> float: ...
    def how(self, speed: float, n_components: int) -> How: ...
    def kept(self, sums: Any, A: Array) -> Any: ...
    def from_kept(self, sums: Any, A: Array, penalty: Penalty) -> Array: ...
    def explained(self, sums: Any, A: Array) -> Any: ...
    def solved(self, A: Array, block: Block) -> Array: ...
    def row_costs(self, V: Array, A: Array, block: Block) -> Array: ...
    def floats_per_row(self, n_components: int, n_features: int, missing: bool) -> int: ...


# -- products with rows, which may be sparse ----------------------------------------------------------


def rows_of(block: Block) -> Array:
    """(n, D) the rows in floating point, zero where nothing was observed."""
    X = block.X
    if is_sparse(X):
        return X
    if not is_floating(X):
        X = double(X)
    known = known_in(block)
    return X if known is None else namespace(X).where(known, X, 0.0)


def counted_rows(block: Block) -> Array:
    """(n, D) the rows, each entry times its weight."""
    X = rows_of(block)
    return X * seen_in(block, X) if has_entry_weights(block) else X


def has_entry_weights(block: Block) -> bool:
    """Whether entries have weights, instead of being observed or not."""
    return block.observed is not None and is_floating(block.observed)


def known_in(block: Block) -> Array | None:
    """(n, D) whether there is an observation that counts; None for complete rows."""
    return block.observed > 0 if has_entry_weights(block) else block.observed  # type: ignore[operator]


def seen_in(block: Block, A: Array) -> Array | None:
    """(n, D) the weight of each entry, ones and zeros for a mask; None for complete rows."""
    return None if block.observed is None else namespace(A).astype(block.observed, A.dtype)


def counted_complete(block: Block) -> Array:
    """(n,) whether all entries of a row were observed, with weight one."""
    whole = block.observed == 1.0 if has_entry_weights(block) else block.observed
    return namespace(block.X).all(whole, axis=1)


def against(A: Array, X: Array) -> Array:
    """(r, n): A X'."""
    return np.ascontiguousarray((X @ np.ascontiguousarray(A.T)).T) if is_sparse(X) else A @ X.T


def added_up(V: Array, X: Array) -> Array:
    """(r, D): V X."""
    return np.ascontiguousarray((X.T @ np.ascontiguousarray(V.T)).T) if is_sparse(X) else V @ X


def weighted(V: Array, weight: Array | None) -> Array:
    """Activations (r, n), each row counted with its weight."""
    return V if weight is None else V * namespace(V).astype(weight, V.dtype)


# -- coordinate descent -------------------------------------------------------------------------------


# Descent is many short steps. Two threads at once would pass Python's lock to and fro after each of them; one
# descends while the others multiply.
_ONE_DESCENDS = threading.Lock()


# what coordinate k of all columns, being v (m,), does when the quadratic alone would move it by a step (m,)
Bounded = Callable[[int, Array, Array], Array]


def _not_below_zero(k: int, v: Array, step: Array) -> Array:
    return namespace(v).maximum(step, -v)


def descended(
    V: Array,
    G: Array,
    B: Array,
    n_passes: int,
    tolerance: float = 0.0,
    *,
    bounded: Bounded = _not_below_zero,
) -> Array:
    """Minimises v'Gv/2 - b'v over v >= 0 for all columns of V (r, m) and B, one coordinate after the other.

    G is (r, r), or (r, r, m) where each column has its own. Ends after `n_passes` over the coordinates, or
    when none moves by more than `tolerance` of the largest, in units in which G has a unit diagonal. Other
    constraints or penalties, for a shared G, are those of `bounded`.
    """
    xp = namespace(V)
    V = xp.asarray(V, copy=True)
    r = V.shape[0]
    diagonal = xp.stack([G[k, k, ...] for k in range(r)])
    positive = diagonal > smallest(V)  # a component of zeros leaves its activations as they are
    inverse = xp.where(positive, 1.0 / xp.where(positive, diagonal, 1.0), 0.0)
    units = xp.sqrt(diagonal) if G.ndim == 3 else xp.sqrt(diagonal)[:, None]
    with _ONE_DESCENDS if G.ndim == 2 else nullcontext():
        for _ in range(n_passes):
            before = xp.asarray(V, copy=True) if tolerance else None
            if G.ndim == 3:
                for k in range(r):
                    V[k, :] = xp.clip(
                        V[k, :] + (B[k, :] - xp.sum(G[k, :, :] * V, axis=0)) * inverse[k, :], min=0.0
                    )
            elif bounded is not _not_below_zero or not descend(V, G, B, inverse, 1):
                for start in range(0, r, GROUP):
                    _descend_group(V, G, B, inverse, start, min(start + GROUP, r), bounded)
            if tolerance:
                moved = xp.max(xp.abs(V - before) * units)
                if bool(moved <= tolerance * xp.max(V * units)):
                    break
    return V


def _descend_group(
    V: Array, G: Array, B: Array, inverse: Array, start: int, end: int, bounded: Bounded
) -> None:
    """A pass over coordinates start to end, in place."""
    pull = B[start:end, :] - G[start:end, :] @ V
    for k in range(start, end):
        i = k - start
        step = bounded(k, V[k, :], pull[i, :] * inverse[k])
        V[k, :] += step
        if k + 1 < end:
            pull[i + 1 :, :] -= G[k + 1 : end, k][:, None] * step


def refined(V: Array, G: Array, B: Array) -> Array:
    """The minimum of v'Gv/2 - b'v for those coordinates that are not zero, or as far towards it as none
    becomes negative; each column has a G of its own (r, r, m)."""
    xp, r = namespace(V), V.shape[0]
    free = V > 0
    largest = xp.max(xp.stack([G[k, k, :] for k in range(r)]), axis=0)
    least = max(1e-12, 16 * float(xp.finfo(G.dtype).eps))
    ridge = xp.where(free, xp.where(largest > 0, least * largest, 1.0), 1.0)
    M = xp.where(free[:, None, :] & free[None, :, :], G, 0.0)
    M = M + xp.eye(r, dtype=G.dtype, device=device(G))[:, :, None] * ridge
    pull = xp.where(free, B - applied(G, V), 0.0)
    step = xp.linalg.solve(xp.permute_dims(M, (2, 0, 1)), pull.T[:, :, None])[:, :, 0].T
    back = step < 0
    room = xp.min(xp.where(back, V / xp.where(back, -step, 1.0), 1.0), axis=0)
    return xp.clip(V + xp.clip(room, max=1.0) * step, min=0.0)


def _descended(
    V: Array, G: Array, B: Array, penalty: Penalty, n_passes: int, tolerance: float = 0.0
) -> Array:
    """Coordinate descent on the loss and a penalty."""
    if penalty.l2:
        G = G + on_diagonal(penalty.l2, G)
    elif penalty.l1:  # what the loss does not depend on is best at zero
        xp = namespace(V)
        diagonal = xp.stack([G[k, k, ...] for k in range(V.shape[0])])
        V = xp.where(xp.reshape(diagonal, (V.shape[0], -1)) > 0, V, 0.0)
    B = B - penalty.l1 if penalty.l1 else B
    if tolerance:
        return minimised(V, G, B, n_passes, tolerance)
    return descended(V, G, B, n_passes)


def minimised(V: Array, G: Array, B: Array, n_passes: int, tolerance: float) -> Array:
    """As `descended`, but it arrives where components are nearly collinear and passes would be very many."""
    xp = namespace(V)
    units = xp.sqrt(xp.reshape(xp.stack([G[k, k, ...] for k in range(V.shape[0])]), (V.shape[0], -1)))
    for _ in range(n_passes):
        before = V
        V = descended(V, G, B, INNER_PASSES)
        if G.ndim == 3:
            V = refined(V, G, B)
        else:  # some columns at a time: each needs a matrix of its own
            parts = slices(V.shape[1], _REFINED_AT_ONCE)
            V = xp.concat([refined(V[:, part], G[:, :, None], B[:, part]) for part in parts], axis=1)
        if bool(xp.max(xp.abs(V - before) * units) <= tolerance * xp.max(V * units)):
            break
    return V


# -- squared error ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SquareSums:
    """Sums over rows, each counted with its weight w; s are its activations."""

    gram: Array  # (r, r): s s', of complete rows
    cross: Array  # (r, D): s x'
    grams: Array | None  # (r (r + 1) / 2, D): packed s s of incomplete rows, over what was observed
    total: Array  # (r,): s
    square: Array  # (r,): s^2


@dataclass(frozen=True)
class SquaredError:
    """The loss |x - s A|^2 / 2 over what was observed, with a penalty on activations.

    By coordinate descent ("hals"), or by multiplicative updates ("mu").
    """

    solver: str = "hals"
    penalty: Penalty = NO_PENALTY
    n_fixed: int = 0

    evaluates_start: ClassVar[bool] = False
    needs_support: ClassVar[bool] = False
    needs_positive: ClassVar[bool] = False
    largest_power: ClassVar[float] = 2.0

    @property
    def descends(self) -> bool:
        return self.solver == "hals"

    def of_entries(self, X: Array) -> Array:
        return 0.5 * X * X

    def scale(self, constant: float, total: float, seen: float) -> float:
        return constant

    def rows(self, codebook: Codebook, how: How, block: Block) -> tuple[Any, list[Array]]:
        """Sums of a block after a step of its activations, and their new state."""
        if block.observed is not None:
            complete, incomplete = block.apart(counted_complete(block))
            if complete is not None and incomplete is not None:
                return _in_order(block, self, codebook, how)
            if incomplete is None:
                block = replace(block, observed=None)
        X = counted_rows(block)
        V = self._stepped(codebook, how, block, X)
        V, state = how.extrapolated(V, block)
        return self._sums(V, X, block), [state]

    def _stepped(self, codebook: Codebook, how: How, block: Block, X: Array) -> Array:
        V, G, B = self._system(codebook, block, X)
        cold = not has_state(block)
        if self.solver == "mu":
            ratio = ratio_or_one(B, applied(G, V) + self.penalty.l1 + self.penalty.l2 * V)
            return V * (ratio if how.exponent == 1.0 else ratio**how.exponent)
        n_passes = how.cold_passes if cold else how.n_passes
        return _descended(V, G, B, self.penalty, n_passes, how.tolerance)

    def _system(self, codebook: Codebook, block: Block, X: Array) -> tuple[Array, Array, Array]:
        """Activations, their Gram matrix or matrices, and the linear term."""
        xp, A = namespace(codebook.components), codebook.components
        B = against(A, X)
        V = activations(block, codebook, B if self.solver == "hals" else None)
        if block.observed is None:
            return V, codebook.gram, B
        packed = codebook.table() @ xp.astype(block.observed, A.dtype).T
        return V, square_of(packed, A.shape[0]), B

    def _sums(self, V: Array, X: Array, block: Block) -> SquareSums:
        xp = namespace(V)
        counted = weighted(V, block.weight)
        total, square = double(xp.sum(counted, axis=1)), double(xp.sum(counted * V, axis=1))
        cross = double(added_up(counted, X))
        if block.observed is None:
            return SquareSums(double(counted @ V.T), cross, None, total, square)
        first, second = (xp.asarray(i, device=device(V)) for i in zip(*pairs(V.shape[0]), strict=True))
        products = xp.take(counted, first, axis=0) * xp.take(V, second, axis=0)
        grams = double(products @ xp.astype(block.observed, V.dtype))
        return SquareSums(zeros((V.shape[0], V.shape[0]), V), cross, grams, total, square)

    def components(self, sums: SquareSums, A: Array, penalty: Penalty, how: How) -> Array:
        """The components after a step, the activations being given."""
        G = self._grams(sums)
        if self.solver == "mu":
            ratio = ratio_or_one(sums.cross, applied(G, A) + penalty.l1 + penalty.l2 * A)
            found = A * (ratio if how.exponent == 1.0 else ratio**how.exponent)
            return with_first(A, self.n_fixed, found)
        m, B = self.n_fixed, sums.cross
        if m == A.shape[0]:
            return A
        if m:  # what the given components do not explain is left to the others
            G, B = G[m:, m:, ...], B[m:, :] - applied(G[m:, :m, ...], A[:m, :])
        return with_first(A, m, _descended(A[m:, :], G, B, penalty, how.n_passes), apart=True)

    def kept(self, sums: SquareSums, A: Array) -> SquareSums:
        """The sums in a form that does not depend on the components, for fits batch by batch."""
        return sums

    def from_kept(self, sums: SquareSums, A: Array, penalty: Penalty) -> Array:
        """The components that follow from such sums, those before being A."""
        return self.components(sums, A, penalty, How(n_passes=4))

    def explained(self, sums: SquareSums, A: Array) -> SquareSums:
        """Such sums of the same activations, had the components made all rows."""
        return replace(sums, cross=applied(self._grams(sums), A))

    @staticmethod
    def _grams(sums: SquareSums) -> Array:
        """(r, r), or (r, r, D) with missing entries: sums of s s'."""
        if sums.grams is None:
            return sums.gram
        return sums.gram[:, :, None] + square_of(sums.grams, sums.gram.shape[0])

    def cost(self, sums: SquareSums, A: Array, penalty: Penalty, constant: float) -> float:
        """That of components A and of the activations after the step that gave the sums."""
        xp = namespace(A)
        found = constant - float(xp.sum(sums.cross * A)) + 0.5 * float(xp.sum(sums.gram * (A @ A.T)))
        if sums.grams is not None:
            index = pairs(A.shape[0])
            twice = xp.asarray([1.0 if i == j else 2.0 for i, j in index], device=device(A))
            table = Codebook.of(A).table()
            found += 0.5 * float(xp.sum(twice * xp.sum(sums.grams * table, axis=1)))
        found += self.penalty.cost(xp.sum(sums.total), xp.sum(sums.square))
        return found + penalty.cost(xp.sum(A), xp.sum(A * A))

    def how(self, speed: float, n_components: int) -> How:
        """An accelerated step: with momentum and more passes, or with an exponent."""
        if not self.descends:
            return How(exponent=speed)
        return How(n_passes=_PASSES if n_components < _MANY else _PASSES_OF_MANY, momentum=speed)

    def solved(self, A: Array, block: Block) -> Array:
        """(r, n) activations that minimise the loss."""
        tolerance = SOLVED if A.dtype == namespace(A).float64 else _SOLVED_SINGLE
        how = How(cold_passes=MOST_PASSES, tolerance=tolerance)
        _, [state] = replace(self, solver="hals").rows(Codebook.of(A), how, replace(block, state=None))
        return state.T

    def row_costs(self, V: Array, A: Array, block: Block) -> Array:
        """(n,) the loss of each row with activations V (r, n), without penalties."""
        X, xp = rows_of(block), namespace(A)
        if is_sparse(X):
            squares = np.asarray(X.multiply(X).sum(axis=1)).ravel()
            return 0.5 * (squares + np.sum(V * ((A @ A.T) @ V - 2.0 * against(A, X)), axis=0))
        R, seen = double(X - V.T @ A), seen_in(block, V)
        return 0.5 * xp.sum(R * R if seen is None else R * R * seen, axis=1)

    def floats_per_row(self, n_components: int, n_features: int, missing: bool) -> int:
        """Few for complete rows, whose descent is faster in long blocks."""
        r = n_components
        return 3 * n_features + 6 * r + 2 * r * r if missing else n_features + 6 * r


# -- what all losses share ----------------------------------------------------------------------------


def has_state(block: Block) -> bool:
    """Whether activations are known already; a state of no columns keeps the place of rows until they are."""
    return block.state is not None and bool(block.state.shape[1] > 0)


def activations(block: Block, codebook: Codebook, pull: Array | None = None) -> Array:
    """(r, n) those that the block brings; else zero for descent, or such that totals agree."""
    A = codebook.components
    xp, r = namespace(A), A.shape[0]
    if block.state is not None and has_state(block):  # in one layout, for products to round in one way
        return contiguous(xp.astype(block.state[:, :r], A.dtype, copy=False).T)
    if pull is not None:
        return xp.zeros_like(pull)
    X = counted_rows(block)
    totals = xp.asarray(np.asarray(X.sum(axis=1)).ravel()) if is_sparse(X) else xp.sum(X, axis=1)
    seen = seen_in(block, A)
    expected = xp.sum(codebook.totals) if seen is None else seen @ xp.sum(A, axis=0)
    level = totals / xp.clip(expected, min=smallest(A))
    level = xp.where(level > 0, level, smallest(A))
    return xp.zeros((r, len(block)), dtype=A.dtype, device=device(A)) + xp.astype(level, A.dtype)


def _in_order(block: Block, loss: SquaredError, codebook: Codebook, how: How) -> tuple[Any, list[Array]]:
    """Complete rows and those with missing entries apart; states come back in the order of the rows."""
    xp, complete = namespace(block.X), counted_complete(block)
    parts = [replace(block.where(complete), observed=None), block.where(~complete)]
    (first, [one]), (second, [other]) = (loss.rows(codebook, how, part) for part in parts)
    places = xp.concat([xp.nonzero(complete)[0], xp.nonzero(~complete)[0]])
    state = xp.take(xp.concat([one, other]), xp.argsort(places), axis=0)
    return add(second, first), [state]


def with_first(A: Array, n_fixed: int, found: Array, *, apart: bool = False) -> Array:
    """The components `found` with the first ones of A: in place of theirs, or before them if `apart`."""
    if not n_fixed:
        return found
    return namespace(A).concat([A[:n_fixed, :], found if apart else found[n_fixed:, :]])


def applied(G: Array, V: Array) -> Array:
    return G @ V if G.ndim == 2 else namespace(V).sum(G * V[None, :, :], axis=1)


def square_of(packed: Array, r: int) -> Array:
    """(r, r, m) symmetric matrices, of their packed columns."""
    return namespace(packed).permute_dims(unpacked(packed, r), (1, 2, 0))


def on_diagonal(value: float, G: Array) -> Array:
    xp = namespace(G)
    unit = xp.eye(G.shape[0], dtype=G.dtype, device=device(G)) * value
    return unit if G.ndim == 2 else unit[:, :, None]


def ratio_or_one(numerator: Array, denominator: Array) -> Array:
    """Of the multiplicative rules: where both vanish the entry stays as it is."""
    xp = namespace(numerator)
    positive = denominator > 0
    return xp.where(positive, xp.clip(numerator, min=0.0) / xp.where(positive, denominator, 1.0), 1.0)


def smallest(array: Array) -> float:
    """Below which an entry counts as zero; in float32 there is less room."""
    return TINY if array.dtype == namespace(array).float64 else 1e-37
