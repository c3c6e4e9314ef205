"""A block of rows with their weights, labels and masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from latently.backend.namespace import Array, is_floating, is_sparse, like, namespace


@dataclass(frozen=True)
class Block:
    """Some rows of the data. Sweeps slice it independently of the meaning of the fields."""

    X: Array  # (n, D), as given by the user; in the frame of a kernel float64, zero where missing
    weight: Array | None = None  # (n,), >= 0; None if all weights are one
    allowed: Array | None = None  # (n, K) bool: components allowed for a row; None if all are
    observed: Array | None = None  # (n, D) bool; None if nothing is missing, or not determined yet
    state: Array | None = None  # (n, m): state of each row in an alternating fit

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def once(self, name: str, compute: Callable[[], Array]) -> Array:
        """What depends on the rows alone, computed when first asked for and kept as long as the block."""
        if name not in self._computed:
            self._computed[name] = compute()
        return self._computed[name]

    def small_once(self, name: str, compute: Callable[[], Array]) -> Array:
        """The same for what is small: it is kept as long as the rows, also where blocks are made again."""
        if name not in self._small:
            self._small[name] = compute()
        return self._small[name]

    @cached_property
    def _small(self) -> dict[str, Array]:
        return {}

    def again(self) -> Block:
        """The same block without what was computed from its rows, unless that is small."""
        block = replace(self)
        vars(block)["_small"] = self._small
        return block

    @cached_property
    def _computed(self) -> dict[str, Array]:
        return {}

    def is_same(self, other: Block) -> bool:
        """Whether its arrays are those of the other, not only their values."""
        return all(a is b for a, b in zip(self._fields(), other._fields(), strict=True))

    def __getitem__(self, rows: slice) -> Block:
        return Block(*(None if field is None else field[rows, ...] for field in self._fields()))

    def where(self, chosen: Array) -> Block:
        """The rows where `chosen` (n,) is true."""
        return self.take(namespace(self.X).nonzero(chosen)[0])

    def apart(self, chosen: Array) -> tuple[Block | None, Block | None]:
        """The rows where `chosen` (n,) is true, and the others; None if there are none."""
        xp = namespace(self.X)
        if bool(xp.all(chosen)):
            return self, None
        return (self.where(chosen), self.where(~chosen)) if bool(xp.any(chosen)) else (None, self)

    def take(self, index: Array) -> Block:
        """The rows with these indices, in this order."""
        if is_sparse(self.X):
            return Block(*(None if field is None else field[index] for field in self._fields()))
        xp = namespace(self.X)
        index = like(index, self.X)
        return Block(*(None if field is None else xp.take(field, index, axis=0) for field in self._fields()))

    def with_observed(self) -> Block:
        """The block with the mask `observed`: NaN marks missing entries."""
        if is_sparse(self.X):  # entries that are not stored are zero
            return self
        xp = namespace(self.X)
        if not is_floating(self.X) or not bool(
            xp.isnan(xp.sum(self.X))
        ):  # the sum is NaN if any entry is: one fast pass
            return self
        missing = xp.isnan(self.X)
        if not bool(xp.any(missing)):  # the sum of infinities of both signs is NaN as well
            return self
        return replace(self, observed=~missing)

    def informative(self) -> Block:
        """Without rows of zero weight, and without rows that are neither observed nor labelled.

        All rows are kept if they have a state, which must be returned, or are sparse.
        """
        if self.state is not None or is_sparse(self.X):
            return self
        xp = namespace(self.X)
        kept = None if self.weight is None else self.weight > 0
        if self.observed is not None:
            known = xp.any(self.observed, axis=1)
            if self.allowed is not None:
                known = known | ~xp.all(self.allowed, axis=1)
            kept = known if kept is None else kept & known
        if kept is None or bool(xp.all(kept)):
            return self
        block = self.where(kept)
        complete = block.observed is None or bool(xp.all(block.observed))
        return replace(block, observed=None) if complete else block

    def total_weight(self) -> float:
        """The total weight of the rows."""
        return float(len(self)) if self.weight is None else float(namespace(self.weight).sum(self.weight))

    def _fields(self) -> tuple[Array | None, ...]:
        return self.X, self.weight, self.allowed, self.observed, self.state


def slices(n_rows: int, rows_at_a_time: int) -> list[slice]:
    """All rows, in blocks."""
    return [slice(i, min(i + rows_at_a_time, n_rows)) for i in range(0, n_rows, rows_at_a_time)]
