"""Starts of the correlated IBP-IBP, and moves that change its numbers of features and categories.

A fit starts from that of ME-IBP, with a category for every feature: then codes of rows imply their
categories. Features and categories are removed and merged; a move is kept only if the objective is larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from latently.backend.namespace import Floats
from latently.distributions.binary_features import BinaryFeatures, Features
from latently.distributions.correlated_codes import Correlated, CorrelatedCodes
from latently.factorization import feature_moves
from latently.factorization.feature_moves import jaccard, kept_moves, pairs, swept_while_promising

_MOST_OTHERS = 4  # deaths in a round


def from_features(
    model: CorrelatedCodes,
    features: Features,
    *,
    concentrations: tuple[float, float],
    noise: float,
    rate: float,
) -> Correlated:
    """The start with a category for every feature."""
    K = features.n_features
    state = Correlated(
        features.codes,
        features.codes,
        np.eye(K),
        features.location,
        features.scale,
        *concentrations,
        noise,
        rate,
        features.products,
    )
    state = replace(state, rate=model.with_modes(state).rate)  # which tells the unit of the weights
    return model.with_modes(model.with_weights(state))


def features_to_start_from(
    model: BinaryFeatures, n_groups: int, n_sweeps: int, moves: bool, rng: np.random.Generator
) -> Features:
    """A fit of ME-IBP, long enough to know the features."""
    proposal = feature_moves.starting_columns(model.table, n_groups, rng)
    state = model.given(*proposal, None, concentration=1.0, noise=None, spread=1.0)
    for _ in range(n_sweeps):
        state = model.with_modes(model.sweep(state))
    if moves:
        state, _ = feature_moves.moved(model, state, rng)
    return state


def moved(model: CorrelatedCodes, state: Correlated, rng: np.random.Generator) -> tuple[Correlated, bool]:
    """A state with a larger objective, and whether any move was kept."""
    return kept_moves(model, state, (_fewer_features, _fewer_categories), partial(refined, model))


def refined(model: CorrelatedCodes, state: Correlated, proposal: Correlated, J: float) -> Correlated:
    """Other columns after a few sweeps; codes that no category allows are turned off first."""
    trial = model.only(proposal, features=proposal.links.any(axis=0))
    codes = trial.codes * (trial.counts > 0)
    trial = replace(trial, codes=codes, products=codes.T @ model.table.Y)

    def sweep(trial: Correlated) -> Correlated:
        return model.with_modes(model.with_weights(model.sweep(trial)))

    return swept_while_promising(model, model.with_modes(model.with_weights(trial)), sweep, J)


def _fewer_features(state: Correlated) -> Iterator[Correlated]:
    """Without a feature that explains little, or with one for two that are alike."""
    Z, V, M, sd = state.codes, state.links, state.weights.expectation, state.scale
    K = Z.shape[1]

    def put(Z: Floats, V: Floats, M: Floats, sd: Floats) -> Correlated:
        return replace(state, codes=Z, links=V, location=M, scale=sd, products=np.zeros_like(M))

    energy = Z.sum(axis=0) * np.sum(M**2, axis=1)
    for k in np.argsort(energy)[:_MOST_OTHERS]:
        left = np.arange(K) != k
        yield put(Z[:, left], V[:, left], M[left], sd[left])
    for i, j in pairs(jaccard(Z)):
        left = (np.arange(K) != i) & (np.arange(K) != j)
        either = np.maximum(V[:, i], V[:, j])
        yield put(
            np.column_stack([Z[:, left], np.maximum(Z[:, i], Z[:, j])]),
            np.column_stack([V[:, left], either]),
            np.vstack([M[left], M[i] + M[j]]),
            np.vstack([sd[left], sd[i]]),
        )


def _fewer_categories(state: Correlated) -> Iterator[Correlated]:
    """Without a category that few rows have, or with one for two; pairs with most rows in common first."""
    U, V = state.categories, state.links
    C = U.shape[1]
    similar = jaccard(U)
    i, j = np.triu_indices(C, 1)
    for o in np.argsort(-similar[i, j], kind="stable")[: 2 * _MOST_OTHERS]:
        left = (np.arange(C) != i[o]) & (np.arange(C) != j[o])
        together = np.maximum(U[:, i[o]], U[:, j[o]]), np.maximum(V[i[o]], V[j[o]])
        yield replace(
            state,
            categories=np.column_stack([U[:, left], together[0]]),
            links=np.vstack([V[left], together[1]]),
        )
    for c in np.argsort(U.sum(axis=0))[:_MOST_OTHERS]:
        left = np.arange(C) != c
        yield replace(state, categories=U[:, left], links=V[left])
