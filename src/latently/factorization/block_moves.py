"""Starts of iNBMT, and moves that change its numbers of row and column codes.

As in `feature_moves`: over-segmented at the start, then columns are removed, merged, split and added, each
move followed by a short refinement and kept only if the objective is larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from latently.backend.namespace import Floats
from latently.distributions.binary_blocks import BinaryBlocks, Blocks
from latently.distributions.binary_codes import Table
from latently.factorization.feature_moves import (
    PARALLEL,
    cosines,
    filled,
    groups_of_features,
    jaccard,
    kept_moves,
    leading,
    pairs,
    swept_while_promising,
    two_levels,
    two_weights,
)

_MOST_OTHERS = 4  # deaths and splits in a round


@dataclass(frozen=True)
class Proposal:
    """Codes and a core to try."""

    rows: Floats  # (N, K)
    columns: Floats  # (D, L)
    core: Floats  # (K, L)

    def without_row(self, *k: int) -> Proposal:
        return Proposal(np.delete(self.rows, k, axis=1), self.columns, np.delete(self.core, k, axis=0))

    def without_column(self, *m: int) -> Proposal:
        return self.transposed().without_row(*m).transposed()

    def with_row(self, z: Floats, w: Floats) -> Proposal:
        """With a row code (N,) and its weights (L,)."""
        return Proposal(np.column_stack([self.rows, z]), self.columns, np.vstack([self.core, w]))

    def with_column(self, x: Floats, w: Floats) -> Proposal:
        return self.transposed().with_row(x, w).transposed()

    def transposed(self) -> Proposal:
        return Proposal(self.columns, self.rows, self.core.T)


def moved(model: BinaryBlocks, state: Blocks, rng: np.random.Generator) -> tuple[Blocks, bool]:
    """A state with a larger objective, and whether any move was kept."""
    kinds = (_deaths, _merges, _strengths, _splits, _births)
    return kept_moves(
        model, state, [partial(kind, model, rng=rng) for kind in kinds], partial(refined, model)
    )


def refined(model: BinaryBlocks, state: Blocks, proposal: Proposal, J: float) -> Blocks:
    """Other columns after a few sweeps, with the hyper-parameters at their modes."""
    rows, columns = proposal.rows.any(axis=0), proposal.columns.any(axis=0)
    least = model.priors.concentration
    learn = model.priors.learn
    N, D = model.table.Y.shape
    trial = model.start(
        proposal.rows[:, rows],
        proposal.columns[:, columns],
        proposal.core[rows][:, columns],
        concentration=max(state.concentration, least.concentration(1, N)) if learn else state.concentration,
        column_concentration=max(state.column_concentration, least.concentration(1, D))
        if learn
        else state.column_concentration,
        noise=state.noise,
        spread=state.spread,
    )

    def sweep(trial: Blocks) -> Blocks:
        return model.with_modes(model.with_core(model.sweep(trial)))

    return swept_while_promising(model, model.with_modes(model.with_core(trial)), sweep, J)


# -- moves --------------------------------------------------------------------------------------------


def _of(state: Blocks) -> Proposal:
    return Proposal(state.row_codes, state.column_codes, state.core.expectation)


def _deaths(model: BinaryBlocks, state: Blocks, rng: np.random.Generator) -> Iterator[Proposal]:
    """Without a column of codes that explains little."""
    here = _of(state)
    counts = state.row_codes.sum(axis=0)[:, None] * state.column_codes.sum(axis=0)
    energy = counts * here.core**2
    for k in np.argsort(energy.sum(axis=1))[:_MOST_OTHERS]:
        yield here.without_row(int(k))
    for m in np.argsort(energy.sum(axis=0))[:_MOST_OTHERS]:
        yield here.without_column(int(m))


def _merges(model: BinaryBlocks, state: Blocks, rng: np.random.Generator) -> Iterator[Proposal]:
    """One row code, column code, or block, for two that are alike."""
    here = _of(state)
    for i, j in pairs(jaccard(here.rows)):
        for proposal in _merged(here, i, j):
            yield proposal
            # the column codes that these two use most, merged with them
            a, b = int(np.argmax(here.core[i])), int(np.argmax(here.core[j]))
            if a != b:
                for both in _merged(proposal.transposed(), a, b):
                    yield both.transposed()
                    break
    for i, j in pairs(np.maximum(jaccard(here.columns), cosines(here.core.T))):
        for proposal in _merged(here.transposed(), i, j):
            yield proposal.transposed()
    for i, j in pairs(cosines(here.core @ here.columns.T)):
        yield next(_merged(here, i, j))


def _merged(here: Proposal, i: int, j: int) -> Iterator[Proposal]:
    """Two row codes as one: either, or one of the two, with the weights of both."""
    either = np.maximum(here.rows[:, i], here.rows[:, j])
    overlap = float((here.rows[:, i] * here.rows[:, j]).sum()) / max(float(either.sum()), 1.0)
    add = np.add if overlap > 0.5 else np.maximum
    left, weights = here.without_row(i, j), add(here.core[i], here.core[j])
    yield left.with_row(either, weights)
    if overlap > 0.5:
        yield left.with_row(here.rows[:, i], weights)
        yield left.with_row(here.rows[:, j], weights)


def _strengths(model: BinaryBlocks, state: Blocks, rng: np.random.Generator) -> Iterator[Proposal]:
    """Two row codes with the same weights up to their size, for one or two that are alike."""
    here, B = _of(state), state.components
    if 0 in here.core.shape:
        return
    R = model.table.residual(state.row_codes, B)
    similar = cosines(B)
    alike = [pair for pair in pairs(similar) if similar[pair] > PARALLEL]
    energy = here.rows.sum(axis=0) * np.sum(B**2, axis=1)
    for group in [*alike, *((int(k),) for k in np.argsort(-energy)[:_MOST_OTHERS])]:
        chosen = list(group)
        w, v = here.core[chosen].sum(axis=0), B[chosen].sum(axis=0)
        size = float(v @ v)
        if size == 0:
            continue
        codes, (a, b) = two_weights((R + here.rows[:, chosen] @ B[chosen]) @ v / size)
        if codes.any(axis=0).all():
            yield here.without_row(*group).with_row(codes[:, 0], a * w).with_row(codes[:, 1], b * w)


def _splits(model: BinaryBlocks, state: Blocks, rng: np.random.Generator) -> Iterator[Proposal]:
    """Two columns of codes for one, where residuals within it do not agree."""
    here, Y = _of(state), model.table.Y
    if 0 in here.core.shape:
        return
    R = model.table.residual(state.row_codes, state.components)
    of_features = np.sum(R * R, axis=0) @ here.columns / np.maximum(here.columns.sum(axis=0), 1.0)
    for m in np.argsort(-of_features)[:_MOST_OTHERS]:
        on = here.columns[:, m] > 0.5
        if on.sum() < 2:
            continue
        # halves of the features by the direction in which their residuals differ most, each with a row code
        own = R[:, on] - R[:, on].mean(axis=1, keepdims=True)
        high = two_levels(leading(own, rng))[0]
        x = np.zeros(Y.shape[1])
        x[np.flatnonzero(on)[high]] = 1.0
        if not 0 < x.sum() < on.sum():
            continue
        rest = here.columns[:, m] - x
        k = int(np.argmax(here.core[:, m] * here.rows.sum(axis=0)))
        columns = here.columns.copy()
        columns[:, m] = rest
        core = here.core.copy()
        halves = Proposal(here.rows, columns, core).with_column(x, core[:, m])
        yield halves
        mine = (R + np.outer(here.rows[:, k], state.components[k])) @ x
        z = np.zeros(len(Y))
        z[two_levels(mine)[0]] = 1.0
        weights = np.append(np.zeros(len(core.T)), core[k, m])
        cut = halves.core.copy()
        cut[k, -1] = 0.0
        yield Proposal(halves.rows, halves.columns, cut).with_row(z, weights)
    error = state.row_codes.T @ np.sum(R * R, axis=1) / np.maximum(state.row_codes.sum(axis=0), 1.0)
    for k in np.argsort(-error)[:_MOST_OTHERS]:
        b = state.components[k]
        having, size = np.flatnonzero(here.rows[:, k] > 0.5), float(b @ b)
        if len(having) < 4 or size == 0:
            continue
        high, low, step = two_levels(R[having] @ b / size)
        z = np.zeros(len(Y))
        z[having[high]] = 1.0
        core = here.core.copy()
        core[k] *= max(1.0 + low, 0.1)
        yield Proposal(here.rows, here.columns, core).with_row(z, step * here.core[k])


def _births(model: BinaryBlocks, state: Blocks, rng: np.random.Generator) -> Iterator[Proposal]:
    """A block for what is not explained, or a row code over the column codes there are, or the reverse."""
    here = _of(state)
    R = model.table.residual(state.row_codes, state.components)
    K, L = here.core.shape
    n = int(np.argmax(np.sum(np.maximum(R, 0.0) ** 2, axis=1)))
    for first in (n, int(rng.integers(len(R)))):
        v = np.maximum(R[first], 0.0)
        for _ in range(4):
            v = np.maximum(np.maximum(R @ v, 0.0) @ R, 0.0)
            size = float(np.linalg.norm(v))
            if size == 0:
                return
            v = v / size
        u = np.maximum(R @ v, 0.0)
        z, x = _upper(u), _upper(v)
        level = max(float(z @ R @ x) / max(float(z.sum() * x.sum()), 1.0), 0.0)
        block = here.with_row(z, np.zeros(L)).with_column(x, np.append(np.zeros(K), level))
        if level > 0:
            yield block
        if L:
            over = z @ R @ here.columns / np.maximum(z.sum() * here.columns.sum(axis=0), 1.0)
            yield here.with_row(z, np.maximum(over, 0.0))
        if K:
            over = here.rows.T @ (R @ x) / np.maximum(x.sum() * here.rows.sum(axis=0), 1.0)
            yield here.with_column(x, np.maximum(over, 0.0))
    level = float(R.mean())
    if level > 0:
        everywhere = here.with_row(np.ones(len(R)), np.zeros(L))
        yield everywhere.with_column(np.ones(R.shape[1]), np.append(np.zeros(K), level))


def _upper(values: Floats) -> Floats:
    found = np.zeros(len(values))
    found[two_levels(values)[0]] = 1.0
    return found


# -- starts -------------------------------------------------------------------------------------------


def starting_blocks(table: Table, n_groups: int, rng: np.random.Generator) -> Proposal:
    """A row code for each of about `n_groups` groups of features, which are the column codes."""
    Y = filled(table)
    groups = groups_of_features(Y, n_groups, rng)
    rows, levels = [], []
    for group in groups:
        high, low, step = two_levels(Y[:, group].mean(axis=1))
        z = np.zeros(len(Y))
        z[high] = 1.0
        rows.append(z)
        levels.append(max(step + max(low, 0.0), 0.0))
    columns = np.column_stack(groups).astype(np.float64)
    return Proposal(np.column_stack(rows), columns, np.diag(levels))
