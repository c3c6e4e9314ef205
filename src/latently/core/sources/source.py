"""What a source of rows is, for those who read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from latently.core.sources.chunks import Rows


@runtime_checkable
class Source(Protocol):
    """Rows that are read in chunks."""

    n_features: int
    feature_names: list[str] | None  # None where the columns have no names
    n_rows: int | None  # None where only reading can tell, until the first whole reading has

    def chunks(self) -> Iterator[Rows]:
        """The rows in order, from the first one, as (n_i, n_features) real arrays with n_i >= 1."""
        ...


@dataclass
class RowSource:
    name: str  # what messages call it
    n_features: int
    n_rows: int | None
    feature_names: list[str] | None
    read: Callable[[], Iterator[Rows]]

    def chunks(self) -> Iterator[Rows]:
        n = 0
        with closing(cast(Any, self.read())) as chunks:
            for chunk in chunks:
                n += len(chunk)
                yield chunk
        if self.n_rows is not None and n != self.n_rows:
            raise ValueError(f"{self.name} changed between two readings: it had {self.n_rows} rows, now {n}")
        self.n_rows = n


@dataclass
class Followed:
    """The rows of a source, and then those of an array."""

    source: Source
    rows: Rows

    @property
    def n_features(self) -> int:
        return self.source.n_features

    @property
    def feature_names(self) -> list[str] | None:
        return self.source.feature_names

    @property
    def n_rows(self) -> int | None:
        return None if self.source.n_rows is None else self.source.n_rows + len(self.rows)

    def chunks(self) -> Iterator[Rows]:
        yield from self.source.chunks()
        yield self.rows.copy()
