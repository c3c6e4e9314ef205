"""From log joint densities to responsibilities, and which of them are worth a product.

Responsibilities are mostly zero once a mixture has found its clusters. A row whose weight for a
component is below rounding can be left out of that component's sums.
"""

from __future__ import annotations

import math

from latently.backend.namespace import Array, namespace, on_host

_NEGLIGIBLE = -700.0


def normalise(log_joint: Array) -> tuple[Array, Array]:
    """log sum_k exp (n,) and the responsibilities (n, K).

    A row so far away that every density underflows has log density -inf and equal responsibilities.
    """
    xp = namespace(log_joint)
    largest = xp.max(log_joint, axis=1, keepdims=True)
    lost = ~xp.isfinite(largest)
    if bool(xp.any(lost)):
        log_joint = xp.where(lost, 0.0, log_joint)
        largest = xp.where(lost, 0.0, largest)
    # exp is ten times slower where it underflows, so it stops at e^-700, which is then taken for zero
    resp = xp.exp(xp.clip(log_joint - largest, min=_NEGLIGIBLE))
    resp -= math.exp(_NEGLIGIBLE)
    total = xp.sum(resp, axis=1, keepdims=True)
    resp /= total
    log_norm = xp.where(lost, -xp.inf, largest + xp.log(total))
    return log_norm[:, 0], resp


def rows_that_count(resp: Array, share: float) -> list[Array] | None:
    """For each component the rows it needs, or None if they are more than `share` of all (n, K) pairs.

    What is left out of a component adds up to less than one rounding of what is kept. Gathering rows
    pays in main memory only: on a GPU the answer is None.
    """
    if not on_host(resp):
        return None
    xp = namespace(resp)
    n, K = resp.shape
    threshold = xp.max(resp, axis=0) * (float(xp.finfo(resp.dtype).eps) / n)
    needed = resp > threshold
    counts = xp.sum(xp.astype(needed, xp.int64), axis=0)
    if int(xp.sum(counts)) > share * n * K:
        return None
    rows = xp.nonzero(xp.matrix_transpose(needed))[1]
    ends = [int(end) for end in xp.cumulative_sum(counts)]
    return [rows[start:end] for start, end in zip([0, *ends], ends, strict=False)]
