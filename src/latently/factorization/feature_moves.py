"""Starts of ME-IBP, and moves that change its number of features.

A start cuts the features of the rows into groups, more than are needed, each with a column of codes: whether
the mean of the group is at its higher level. Moves then remove, merge, split and add columns. Each is
followed by a short refinement and kept only if the objective is larger, so it never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from latently.backend.namespace import Floats
from latently.distributions.binary_codes import Bools, Table
from latently.distributions.binary_features import BinaryFeatures, Features

_MOST_KEPT = 4  # moves of a kind between two sweeps
_MOST_PAIRS = 6  # tried for a merge in a round
_MOST_OTHERS = 4  # deaths and splits in a round
PARALLEL = 0.9  # the least cosine of weights that differ in size only
_ALIKE = 0.25  # the least similarity of two columns that may merge
_REFINEMENT = 2  # sweeps after a move
_AXES = 20  # in which features of rows are grouped


class Proposal(NamedTuple):
    """Columns and weights to try."""

    codes: Floats
    weights: Floats


def moved(model: BinaryFeatures, state: Features, rng: np.random.Generator) -> tuple[Features, bool]:
    """A state with a larger objective, and whether any move was kept."""
    kinds = (_deaths, _merges, _strengths, _splits, _births)
    return kept_moves(
        model, state, [partial(kind, model, rng=rng) for kind in kinds], partial(refined, model)
    )


def kept_moves(
    model: Any,
    state: Any,
    kinds: Sequence[Callable[[Any], Iterator[Any]]],
    refine: Callable[[Any, Any, float], Any],
) -> tuple[Any, bool]:
    """The state after moves of all kinds, each kept only if J is larger, and whether any was.

    `kind(state)` gives proposals, and `refine(state, proposal, J)` states. Only a few moves of a kind are
    kept, so that a sweep does not take too long: others follow in the next.
    """
    J, kept_any = model.objective(state), False
    for kind in kinds:
        for _ in range(_MOST_KEPT):
            for proposal in kind(state):
                trial = refine(state, proposal, J)
                found = model.objective(trial)
                if found > J + 1e-9 * abs(J):
                    state, J, kept_any = trial, found, True
                    break
            else:
                break
    return state, kept_any


def swept_while_promising(model: Any, trial: Any, sweep: Callable[[Any], Any], J: float) -> Any:
    """The trial after a few sweeps, but one if the next would have to gain more than that to reach J."""
    before = model.objective(trial)
    for _ in range(_REFINEMENT):
        trial = sweep(trial)
        found = model.objective(trial)
        if found + max(found - before, 0.0) < J:
            break
        before = found
    return trial


def refined(model: BinaryFeatures, state: Features, proposal: Proposal, J: float) -> Features:
    """Other columns after a few sweeps, with the hyper-parameters at their modes."""
    codes = proposal.codes.astype(np.float64)
    in_use = codes.any(axis=0)
    trial = model.start(
        codes[:, in_use],
        proposal.weights[in_use],
        concentration=max(state.concentration, model.priors.concentration.concentration(1, model.n_rows))
        if model.priors.learn
        else state.concentration,
        noise=state.noise,
        spread=state.spread,
    )

    def sweep(trial: Features) -> Features:
        return model.with_modes(model.with_weights(model.sweep(trial)))

    return swept_while_promising(model, model.with_modes(model.with_weights(trial)), sweep, J)


# -- moves --------------------------------------------------------------------------------------------


def _deaths(model: BinaryFeatures, state: Features, rng: np.random.Generator) -> Iterator[Proposal]:
    """Without a column that explains little."""
    Z, M = state.codes, state.weights.expectation
    energy = Z.sum(axis=0) * np.sum(M**2, axis=1)
    for k in np.argsort(energy)[:_MOST_OTHERS]:
        yield Proposal(np.delete(Z, k, axis=1), np.delete(M, k, axis=0))


def _merges(model: BinaryFeatures, state: Features, rng: np.random.Generator) -> Iterator[Proposal]:
    """One column for two that are on in nearly the same rows, or have nearly the same weights."""
    Z, M = state.codes, state.weights.expectation
    for i, j in pairs(np.maximum(jaccard(Z), cosines(M))):
        either, both = np.maximum(Z[:, i], Z[:, j]), Z[:, i] * Z[:, j]
        overlap = both.sum() / max(either.sum(), 1.0)
        together = M[i] + M[j] if overlap > 0.5 else np.maximum(M[i], M[j])
        left = Proposal(np.delete(Z, (i, j), axis=1), np.delete(M, (i, j), axis=0))
        for z in (either, Z[:, i], Z[:, j]) if overlap > 0.5 else (either,):
            yield with_column(left, z, together)


def _strengths(model: BinaryFeatures, state: Features, rng: np.random.Generator) -> Iterator[Proposal]:
    """Two columns with the same weights up to their size, for one column or two that are alike."""
    Z, M = state.codes, state.weights.expectation
    if not len(M):
        return
    R = model.table.residual(Z, M)
    alike = [pair for pair in pairs(cosines(M)) if cosines(M)[pair] > PARALLEL]
    for group in [
        *alike,
        *((int(k),) for k in np.argsort(-Z.sum(axis=0) * np.sum(M**2, axis=1))[:_MOST_OTHERS]),
    ]:
        w = M[list(group)].sum(axis=0)
        size = float(w @ w)
        if size == 0:
            continue
        codes, (a, b) = two_weights((R + Z[:, group] @ M[list(group)]) @ w / size)
        left = Proposal(np.delete(Z, group, axis=1), np.delete(M, group, axis=0))
        if codes.any(axis=0).all():
            yield with_column(with_column(left, codes[:, 0], a * w), codes[:, 1], b * w)


def _splits(model: BinaryFeatures, state: Features, rng: np.random.Generator) -> Iterator[Proposal]:
    """Two columns for one: by the strength with which its rows have it, or by features that do not agree."""
    Z, M, Y = state.codes, state.weights.expectation, model.table.Y
    R = model.table.residual(Z, M)
    error = Z.T @ np.sum(R * R, axis=1) / np.maximum(Z.sum(axis=0), 1.0)
    for k in np.argsort(-error)[:_MOST_OTHERS]:
        on = Z[:, k] > 0.5
        size = float(M[k] @ M[k])
        if on.sum() < 4 or size == 0:
            continue
        own = R[on]
        strength = own @ M[k] / size
        high, low_level, step = two_levels(strength)
        second = np.zeros(len(Y))
        second[np.flatnonzero(on)[high]] = 1.0
        weights = M.copy()
        weights[k] = max(1.0 + low_level, 0.1) * M[k]
        yield with_column(Proposal(Z, weights), second, step * M[k])
        v = leading(own, rng)
        part = (v > 0) == (v[np.argmax(np.abs(v) * (M[k] > 0))] > 0)
        part &= M[k] > 0
        if not part.any() or part[M[k] > 0].all():
            continue
        weights = M.copy()
        weights[k] = np.where(part, 0.0, M[k])
        mine = (R + Z[:, k : k + 1] * M[k]) @ np.where(part, M[k], 0.0)
        second = np.zeros(len(Y))
        second[two_levels(mine)[0]] = 1.0
        yield with_column(Proposal(Z, weights), second, np.where(part, M[k], 0.0))


def _births(model: BinaryFeatures, state: Features, rng: np.random.Generator) -> Iterator[Proposal]:
    """A further column for what is not explained."""
    Z, M = state.codes, state.weights.expectation
    R = model.table.residual(Z, M)
    starts = [np.argmax(np.sum(np.maximum(R, 0.0) ** 2, axis=1)), rng.integers(len(R))]
    for n in starts:
        v = np.maximum(R[n], 0.0)
        for _ in range(4):
            u = np.maximum(R @ v, 0.0)
            v = np.maximum(u @ R, 0.0)
            size = np.linalg.norm(v)
            if size == 0:
                return
            v = v / size
        high = two_levels(R @ v)[0]
        if 0 < len(high) < len(R) or len(R) == 1:
            z = np.zeros(len(R))
            z[high] = 1.0
            yield with_column(Proposal(Z, M), z, np.maximum(R[high].mean(axis=0), 0.0))
    level = np.maximum(R.mean(axis=0), 0.0)
    if level.any():
        yield with_column(Proposal(Z, M), np.ones(len(R)), level)


# -- parts of moves -----------------------------------------------------------------------------------


def with_column(proposal: Proposal, z: Floats, w: Floats) -> Proposal:
    return Proposal(np.column_stack([proposal.codes, z]), np.vstack([proposal.weights, w]))


def pairs(similarity: Floats) -> list[tuple[int, int]]:
    """The pairs that are most alike, best first."""
    i, j = np.triu_indices(len(similarity), 1)
    order = np.argsort(-similarity[i, j], kind="stable")[:_MOST_PAIRS]
    return [(int(i[o]), int(j[o])) for o in order if similarity[i[o], j[o]] > _ALIKE]


def jaccard(Z: Floats) -> Floats:
    """(K, K) rows that two columns have in common, of those that either has."""
    both = Z.T @ Z
    own = np.diagonal(both)
    return np.asarray(both / np.maximum(own[:, None] + own - both, 1.0))


def two_weights(strength: Floats) -> tuple[Floats, tuple[float, float]]:
    """(n, 2) codes and weights a, b with which 0, a, b and a + b come closest to the strengths (n,)."""
    best: float = np.inf
    found = np.zeros((len(strength), 2)), (0.0, 0.0)
    top = float(np.quantile(strength, 0.95))
    for weights in ((top / 3, 2 * top / 3), (top / 2, top)):
        a, b = weights
        for _ in range(10):
            levels = np.array([0.0, a, b, a + b])
            nearest = np.argmin(np.abs(strength[:, None] - levels), axis=1)
            codes = np.column_stack([nearest & 1, nearest >> 1]).astype(np.float64)
            gram = codes.T @ codes
            if np.linalg.det(gram) <= 0:
                break
            a, b = np.linalg.solve(gram, codes.T @ strength).tolist()
            error = float(np.sum((strength - codes @ (a, b)) ** 2))
            if error < best and min(a, b) > 0:
                best, found = error, (codes, (a, b))
    return found


def cosines(M: Floats) -> Floats:
    """(K, K) of the rows of M."""
    norms = np.linalg.norm(M, axis=1)
    unit = M / np.where(norms > 0, norms, 1.0)[:, None]
    return np.asarray(unit @ unit.T)


def two_levels(values: Floats) -> tuple[Any, float, float]:
    """Which of the values (n,) are at the higher of two levels (2-means), the lower level, and the step."""
    order = np.argsort(values, kind="stable")
    n, total = len(values), np.cumsum(values[order])
    if n < 2:
        return np.arange(n), 0.0, float(total[-1]) if n else 0.0
    below = np.arange(1, n)
    low, high = total[:-1] / below, (total[-1] - total[:-1]) / (n - below)
    cut = int(np.argmax(below * (n - below) * (high - low) ** 2))
    return order[cut + 1 :], float(low[cut]), float(high[cut] - low[cut])


def leading(R: Floats, rng: np.random.Generator) -> Floats:
    """(D,) about the leading right singular vector, by a few products."""
    v: Any = rng.standard_normal(R.shape[1])
    for _ in range(5):
        v = (R @ v) @ R
        size = np.linalg.norm(v)
        if size == 0:
            break
        v = v / size
    return np.asarray(v)


# -- starts -------------------------------------------------------------------------------------------


def starting_columns(table: Table, n_groups: int, rng: np.random.Generator) -> Proposal:
    """A column for each of about `n_groups` groups of features, and its weights."""
    Y = filled(table)
    codes, weights = [], []
    for group in groups_of_features(Y, n_groups, rng):
        high, low, step = two_levels(Y[:, group].mean(axis=1))
        z = np.zeros(len(Y))
        z[high] = 1.0
        w = np.zeros(Y.shape[1])
        w[group] = max(step + max(low, 0.0), 0.0)
        codes.append(z)
        weights.append(w)
    return Proposal(np.column_stack(codes), np.vstack(weights))


def filled(table: Table) -> Floats:
    """The rows with means of features where entries are missing; for starts alone."""
    if table.mask is None:
        return table.Y
    means = table.Y.sum(axis=0) / np.maximum(table.mask.sum(axis=0), 1)
    return np.where(table.mask, table.Y, means)


def groups_of_features(Y: Floats, n_groups: int, rng: np.random.Generator) -> list[Bools]:
    """(D,) masks of features that go together over the rows, by k-means on principal axes."""
    from sklearn.cluster import KMeans  # here, because it takes a tenth of a second

    D = Y.shape[1]
    points = Y.T
    if min(Y.shape) > 2 * _AXES:  # a random projection of the rows, twice multiplied
        basis = np.linalg.qr(Y @ (Y.T @ (Y @ rng.standard_normal((D, _AXES)))))[0]
        points = Y.T @ basis
    n = min(n_groups, len(np.unique(points, axis=0)))
    seed = int(rng.integers(2**31))
    labels = KMeans(n, n_init=1, random_state=seed).fit(points).labels_
    return [labels == g for g in range(n) if np.any(labels == g)]
