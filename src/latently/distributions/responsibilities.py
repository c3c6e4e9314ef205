"""Responsibilities from log joint densities, dense or sparse.

Responsibilities have shape (K, n), components first, so that sums over components run along rows. They are
mostly zero once a mixture has found its clusters. A row whose responsibility for a component is below
rounding is left out of that component's sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latently.backend.linalg import sparse_matrix
from latently.backend.namespace import (
    Array,
    Floats,
    exp_above,
    is_numpy,
    is_torch,
    namespace,
    ones,
    to_numpy,
)
from latently.backend.row_kernels import normalised

_NEGLIGIBLE = -700.0  # exponents below this are treated as minus infinity
LOST = -45.0  # responsibilities this many nats below a component's largest are below rounding
_LEAST_WEIGHT = 1e-290  # near 1e-308 sums lose their digits, and their reciprocals are infinite


def has_rows(weight: Array) -> Array:
    """Which components have rows that parameters can be computed from, by their total weight."""
    return weight > _LEAST_WEIGHT


def normalise(log_joint: Array) -> tuple[Array, Array]:
    """log sum_k exp (n,) and the responsibilities (K, n); `log_joint` is overwritten."""
    return _normalised(log_joint, None)


def _normalised(log_joint: Array, allowed: Array | None, checked: bool = True) -> tuple[Array, Array]:
    """The same, possibly with one more axis in front, and among components that are `allowed` (n, K)."""
    if not is_torch(log_joint):
        return _dense(*_below_largest(log_joint, allowed))
    xp = namespace(log_joint)
    shown = log_joint if allowed is None else xp.where(allowed.T, log_joint, -xp.inf)
    if checked and not bool(xp.all(xp.isfinite(xp.max(shown, axis=-2)))):
        return _dense(*_below_largest(log_joint, allowed))
    return normalised(shown)


def respond_in_groups(
    log_joint: Array, row_weight: Array | None, allowed: Array | None, n_groups: int
) -> tuple[Array, Responsibilities]:
    """The same of several mixtures, the groups of components: log p(x) (S, n), and responsibilities (S K, n).

    `allowed` (n, K) are the same components of each. Rows without a finite density are not looked for in
    tensors: log p(x) of such a row may be NaN.
    """
    xp = namespace(log_joint)
    n_components, n = log_joint.shape
    by_row = ones((n,), log_joint) if row_weight is None else row_weight
    grouped = xp.reshape(log_joint, (n_groups, n_components // n_groups, n))
    log_norm, resp = _normalised(grouped, allowed, checked=False)
    resp = xp.reshape(resp, (n_components, n))
    if row_weight is not None:
        resp *= row_weight
    return log_norm, Responsibilities(xp.sum(resp, axis=1), by_row, resp, None)


def _below_largest(log_joint: Array, allowed: Array | None) -> tuple[Array, Array, Array]:
    """Maximum of each row (n,), mask of rows without one (n,), and differences to the maximum (K, n).

    All may have one more axis in front. A row so far away that every density underflows has no maximum: its
    log density is minus infinity and its responsibilities are equal. Components that are not `allowed` (n, K)
    have zero responsibility.
    """
    xp = namespace(log_joint)
    if allowed is not None:
        log_joint = xp.where(allowed.T, log_joint, -xp.inf)
    largest = xp.max(log_joint, axis=-2)
    lost = ~xp.isfinite(largest)
    if bool(xp.any(lost)):
        equal = 0.0 if allowed is None else xp.where(allowed.T, 0.0, -xp.inf)
        log_joint = xp.where(lost[..., None, :], equal, log_joint)
        largest = xp.where(lost, 0.0, largest)
    log_joint -= largest[..., None, :]
    return largest, lost, log_joint


def _dense(largest: Array, lost: Array, below: Array) -> tuple[Array, Array]:
    xp = namespace(below)
    # exp is ten times slower where it underflows, so exponents are clipped before that
    resp = exp_above(below, _NEGLIGIBLE)
    resp -= math.exp(_NEGLIGIBLE)
    total = xp.sum(resp, axis=-2)
    resp /= total[..., None, :]
    return xp.where(lost, -xp.inf, largest + xp.log(total)), resp


@dataclass(frozen=True)
class Entries:
    """Non-negligible responsibilities, ordered by component."""

    rows: Array  # (M,)
    values: Array  # (M,)
    bounds: list[int]  # (K + 1,): entries bounds[k] to bounds[k + 1] are those of component k

    def of(self, k: int) -> tuple[Array, Array]:
        """Rows and values of one component."""
        own = slice(self.bounds[k], self.bounds[k + 1])
        return self.rows[own], self.values[own]


@dataclass(frozen=True)
class Responsibilities:
    """Weighted responsibilities: all of them, or only those above rounding."""

    weight: Array  # (K,): sum over rows
    by_row: Array  # (n,): sum over components, the weight of the row
    dense: Array | None  # (K, n)
    sparse: Entries | None  # instead of `dense`
    plain: Responsibilities | None = None  # r, where these are r u: rows have precisions u (heavy tails)
    whole: bool = False  # whether `by_row` is the weight of the rows, which depends on no parameters

    def entries(self) -> tuple[Array, Array | None, list[int]]:
        """Values ordered by component, their flat indices in (K, n), and the start of each component.

        The indices are None if all responsibilities are included.
        """
        xp = namespace(self.weight)
        K, n = self.weight.shape[0], self.by_row.shape[0]
        if self.sparse is None:
            return xp.reshape(self.dense, (K * n,)), None, [k * n for k in range(K + 1)]
        bounds = self.sparse.bounds
        component = np.repeat(np.arange(K), np.diff(bounds))
        return self.sparse.values, self.sparse.rows + n * component, bounds

    def full(self) -> Array:
        """(K, n), zero where responsibilities are negligible."""
        if self.sparse is None:
            return self.dense
        dense = np.zeros((len(self.weight), len(self.by_row)))
        values, places, _ = self.entries()
        dense.reshape(-1)[places] = values
        return dense

    def scaled(self, factor: Array) -> Responsibilities:
        """Responsibilities times a factor (n,) of each row, or (K, n) of each entry."""
        xp = namespace(self.weight)
        if self.sparse is None:
            dense = self.dense * factor
            return Responsibilities(xp.sum(dense, axis=1), xp.sum(dense, axis=0), dense, None)
        values, places, bounds = self.entries()
        K, n, rows = len(self.weight), len(self.by_row), self.sparse.rows
        values = values * (factor[rows] if factor.ndim == 1 else factor.reshape(-1)[places])
        weight = np.bincount(np.repeat(np.arange(K), np.diff(bounds)), weights=values, minlength=K)
        by_row = np.bincount(rows, weights=values, minlength=n)
        return Responsibilities(weight, by_row, None, Entries(rows, values, bounds))

    def times(self, rows: Array) -> Array:
        """Sum over rows of responsibility times row, (K, columns)."""
        if self.sparse is None:
            return self.dense @ rows
        matrix = sparse_matrix(self.sparse.values, self.sparse.rows, self.sparse.bounds, len(rows))
        return matrix @ rows


def needed_entries(dense: Array, most: float) -> tuple[Array, Array, list[int]] | None:
    """The responsibilities (K, n) of a tensor above rounding, as `Responsibilities.entries` gives them.

    None if the components would have more than `most` places in all, as many each as the largest one needs.
    """
    xp, (K, _) = namespace(dense), dense.shape
    needed = dense > math.exp(LOST) * xp.max(dense, axis=1, keepdims=True)
    counts = to_numpy(xp.sum(xp.astype(needed, xp.int64), axis=1))
    if K * counts.max() > most:
        return None
    flat = xp.nonzero(xp.reshape(needed, (-1,)))[0]
    return xp.take(xp.reshape(dense, (-1,)), flat), flat, [0, *np.cumsum(counts).tolist()]


def respond(
    log_joint: Array,
    row_weight: Array | None,
    allowed: Array | None,
    most_per_row: float,
    *,
    checked: bool = True,
) -> tuple[Array, Responsibilities]:
    """log p(x) (n,) and weighted responsibilities; sparse if at most `most_per_row` are non-negligible.

    Gathering rows is faster in main memory only, so they are dense for arrays other than NumPy, and always if
    `most_per_row` is negative. If not `checked`, a device is not waited for to find rows without a finite
    density: log p(x) of such a row may be NaN.
    """
    xp = namespace(log_joint)
    by_row = ones((log_joint.shape[1],), log_joint) if row_weight is None else row_weight
    if is_numpy(log_joint):
        largest, lost, below = _below_largest(log_joint, allowed)
        if most_per_row >= 0 and not lost.any():
            needed = below > np.max(below, axis=1, keepdims=True) + LOST
            if np.count_nonzero(needed) <= most_per_row * len(by_row):
                return _sparse(largest, below, needed, by_row)
        log_norm, resp = _dense(largest, lost, below)
    else:
        log_norm, resp = _normalised(log_joint, allowed, checked)
    if row_weight is not None:
        resp *= row_weight
    return log_norm, Responsibilities(xp.sum(resp, axis=1), by_row, resp, None, whole=True)


def _sparse(
    largest: Floats, below: Floats, needed: NDArray[np.bool_], by_row: Floats
) -> tuple[Floats, Responsibilities]:
    K, n = below.shape
    flat = np.flatnonzero(needed)
    rows = flat % n
    values = np.exp(below.reshape(-1)[flat])
    total = np.bincount(rows, weights=values, minlength=n)
    values *= (by_row / total)[rows]
    weight = np.bincount(flat // n, weights=values, minlength=K)
    bounds = np.searchsorted(flat, n * np.arange(K + 1)).tolist()
    return largest + np.log(total), Responsibilities(weight, by_row, None, Entries(rows, values, bounds))
