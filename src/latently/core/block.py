"""A block of rows, and everything that belongs to a row."""

from __future__ import annotations

from dataclasses import dataclass, replace

from latently.backend.namespace import Array, is_floating, is_sparse, like, namespace


@dataclass(frozen=True)
class Block:
    """Some rows of the data. Sweeps slice it without knowing what the fields mean."""

    X: Array  # (n, D), as the user gave it; in the frame of a kernel float64, and zero where not observed
    weight: Array | None = None  # (n,), >= 0; None where every row counts once
    allowed: Array | None = None  # (n, K) bool: components a row may come from; None where it may from all
    observed: Array | None = None  # (n, D) bool; None where nothing is missing, or not looked at yet
    state: Array | None = None  # (n, m): what an alternating fit has found of each row so far

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def __getitem__(self, rows: slice) -> Block:
        return Block(*(None if field is None else field[rows, ...] for field in self._fields()))

    def where(self, chosen: Array) -> Block:
        """The rows for which `chosen` (n,) is true."""
        return self.take(namespace(self.X).nonzero(chosen)[0])

    def apart(self, chosen: Array) -> tuple[Block | None, Block | None]:
        """The rows for which `chosen` (n,) is true, and the others; None for no rows."""
        xp = namespace(self.X)
        if bool(xp.all(chosen)):
            return self, None
        return (self.where(chosen), self.where(~chosen)) if bool(xp.any(chosen)) else (None, self)

    def take(self, index: Array) -> Block:
        """The rows of these numbers, in their order."""
        xp = namespace(self.X)
        index = like(index, self.X)
        return Block(*(None if field is None else xp.take(field, index, axis=0) for field in self._fields()))

    def with_observed(self) -> Block:
        """With `observed` filled in: what is not a number was not observed."""
        if is_sparse(self.X):  # what it does not hold is zero
            return self
        xp = namespace(self.X)
        if not is_floating(self.X) or not bool(xp.isnan(xp.sum(self.X))):  # a sum tells of a NaN in one go
            return self
        missing = xp.isnan(self.X)
        if not bool(xp.any(missing)):  # infinities of both signs
            return self
        return replace(self, observed=~missing)

    def informative(self) -> Block:
        """Without rows that say nothing: those of no weight, and those unobserved as well as unlabelled.

        Where rows have a state, all of them, for it has to come back; and of sparse rows.
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
        """The number of rows, each counted with its weight."""
        return float(len(self)) if self.weight is None else float(namespace(self.weight).sum(self.weight))

    def _fields(self) -> tuple[Array | None, ...]:
        return self.X, self.weight, self.allowed, self.observed, self.state


def slices(n_rows: int, rows_at_a_time: int) -> list[slice]:
    """All rows, some at a time."""
    return [slice(i, min(i + rows_at_a_time, n_rows)) for i in range(0, n_rows, rows_at_a_time)]
