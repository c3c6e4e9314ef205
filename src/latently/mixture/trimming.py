"""Starts of a mixture whose best run is degenerate: what rows without its degenerate components lead to.

Where a row is far from all others, every run of EM may give it a component of its own, whatever its start.
Runs on the other rows do not, and one that starts at their optimum may stay clean with all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

from latently.backend.namespace import to_numpy
from latently.core.block import Block
from latently.core.search import Search
from latently.core.tree import mapped
from latently.mixture.degenerate import without_degenerate
from latently.mixture.starts import AT_ONCE, Starts

_TIMES = 3  # that rows of degenerate components are left out


@dataclass(frozen=True)
class Searched:
    """What a search for the optimum of some rows found, and how."""

    starts: Starts
    search: Search[Any]
    best: Any
    interrupted: bool

    @property
    def clean(self) -> bool:
        return self.search.clean(self.best)


def cleaner(
    first: Searched,
    kernel: Any,
    sample: Block,
    searched: Callable[[Block], Searched],
    ready: Callable[[Iterable[Any]], Iterable[Any]],
) -> tuple[Any, bool]:
    """The best run from the end of a search, or from near the optimum of rows without degenerate components.

    Also whether the user interrupted it.
    """
    found, rest = first, sample
    for _ in range(_TIMES):
        fewer = without_degenerate(kernel, mapped(to_numpy, found.best), rest)
        if fewer is None:
            return first.best, False
        found, rest = searched(fewer), fewer
        if found.interrupted:
            return first.best, True
        if found.clean:
            break
    near = islice(found.starts.near(mapped(to_numpy, found.best)), AT_ONCE)
    effort = replace(first.search.effort, racers=AT_ONCE, cuts=())
    candidates = chain([first.best, found.best], ready(near))
    return replace(first.search, effort=effort).best(candidates, n_near=1)
