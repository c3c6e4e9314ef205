"""Rows of the parts of a partition, for starting values: one part after the other, or many side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import Array, like, namespace, zeros
from latently.backend.placement import on_device

_AT_ONCE = 200_000_000  # numbers of the parts that are side by side


def rows_of_parts(
    rows: Array, labels: NDArray[np.int64], parts: Sequence[int]
) -> Iterator[tuple[list[int], Array]]:
    """Yield some of the parts and their rows (G, m, D), all parts in the end.

    In main memory G is one. On a device many short computations would wait for one another, so there are many
    parts, with zeros below the rows of the smaller ones.
    """
    xp, (n, D) = namespace(rows), rows.shape
    own = {k: np.flatnonzero(labels == k) for k in parts}
    if not on_device(rows):
        for k in parts:
            yield [k], xp.take(rows, like(own[k], rows), axis=0)[None, ...]
        return
    with_zero = xp.concat([rows, zeros((1, D), rows)])
    waiting = sorted(parts, key=lambda k: -len(own[k]))
    while waiting:
        m = len(own[waiting[0]])
        some = waiting[: max(1, _AT_ONCE // max(1, m * D))]
        waiting = waiting[len(some) :]
        places = np.full((len(some), m), n)
        for place, k in zip(places, some, strict=True):
            place[: len(own[k])] = own[k]
        side_by_side = xp.take(with_zero, like(places.reshape(-1), rows), axis=0)
        yield some, xp.reshape(side_by_side, (len(some), m, D))
