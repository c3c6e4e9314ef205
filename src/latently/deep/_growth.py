"""One more layer above a frozen model: a mixture in the place of the prior of one component's factors.

The rows are what the model below knows of those factors: N(m_n, V_n) for every row, with the share that the
component has in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.linalg import symmetric
from latently.backend.namespace import Array, Floats, zeros
from latently.core.block import Block
from latently.core.drivers import State, best_start, em_step, relative, run
from latently.core.frame import Frame
from latently.core.squarem import squarem
from latently.core.sweep import LocalSweep
from latently.distributions.deep import BlurredLeaves, NextLayer
from latently.distributions.gaussian import FullDensity, FullGaussian
from latently.distributions.layers import Layer, Layers, Moments, Rules, Top, standard_top
from latently.distributions.mixture import MixtureParams
from latently.mixture import _starts


@dataclass(frozen=True)
class Inputs:
    rows: Floats  # (n, q): m; with its own packed V after each where entries of the data were missing
    weight: Floats  # (n,)
    blur: Floats | None  # (q, q): V of all rows


@dataclass(frozen=True)
class Grown:
    params: MixtureParams  # of weights within the component, and Layers
    gains: Floats  # what the bound is above that of the prior, per unit of weight, from step to step
    n_iter: int
    converged: bool


def kernel_for(
    n_leaves: int,
    n_factors: int,
    prior: Moments,
    blur: Array | None,
    *,
    common: bool,
    prior_rows: float = 0.0,
    floor: Array | None = None,
) -> NextLayer:
    """The kernel of the leaves of one component; without a floor for parameters that are known."""
    floor = zeros((prior.means.shape[1],), prior.means) if floor is None else floor
    owner = np.zeros(n_leaves, dtype=int) if common else np.arange(n_leaves)
    rules = Rules(common, (owner,), (floor,))
    family = BlurredLeaves(FullGaussian(floor), rules, n_factors=n_factors, blur=blur)
    return NextLayer(family=family, prior=prior, prior_rows=prior_rows)


def density_of_prior(kernel: NextLayer) -> FullDensity:
    """The prior itself, for the same rows."""
    density: FullDensity = kernel.family.prepare(Top(kernel.prior.means, kernel.prior.covariances))
    return density


@dataclass(frozen=True)
class Training:
    """How a mixture of factors is learnt."""

    n_leaves: int
    n_factors: int
    common: bool
    prior_rows: float
    least_weight: float  # of rows, for there to be anything to learn
    noise_floor: float
    init: str
    n_init: int | str
    max_iter: int
    tol: float
    accelerate: str | None
    seed: int


def grown(inputs: Inputs, prior: Moments, training: Training) -> Grown:
    """The mixture for the factors of a component, and how it came about.

    The layer that reproduces the prior stands until another one has overtaken it. With common loadings
    there may be no such layer; then the best one found stands in any case.
    """
    stays = Grown(prior_layer(prior, training), np.zeros(1), 0, True)
    if inputs.weight.sum() < training.least_weight:
        return stays
    found = _fitted(inputs, prior, training)
    if found.gains[-1] > 0:
        return replace(found, gains=np.array([0.0, *found.gains[found.gains > 0]]))
    return found if training.common else replace(stays, n_iter=found.n_iter, converged=found.converged)


def _fitted(inputs: Inputs, prior: Moments, training: Training) -> Grown:
    """The best mixture that EM finds; gains may be below zero."""
    n_leaves, q = training.n_leaves, prior.means.shape[1]
    total = float(inputs.weight.sum())
    kernel = kernel_for(
        n_leaves,
        training.n_factors,
        prior,
        inputs.blur,
        common=training.common,
        prior_rows=training.prior_rows,
        floor=training.noise_floor * np.diagonal(prior.covariances[0]),
    )
    block = Block(inputs.rows, inputs.weight)
    at_prior = density_of_prior(kernel)
    baseline = float(kernel.family.evaluate(at_prior, block)[0][0] @ inputs.weight) / total

    def step_over(rows: Block) -> Any:
        sweep = LocalSweep(lambda: [rows], None, floats_per_row=kernel.floats_per_row(n_leaves, q, False))
        return em_step(kernel, sweep, baseline)

    order = _in_order(inputs, q)
    every = -(-len(order) // _starts.rows_for_start(n_leaves))
    sample = block.take(order[::every])
    n_init = _starts.number_of_starts(training.n_init, max(1, round(total)), q, n_leaves)
    starts = _starts.starting_values(
        kernel,
        n_leaves,
        training.init,
        n_init,
        training.seed,
        Block(sample.X[:, :q], sample.weight),
        Frame(np.zeros(q), np.ones(q)),
    )
    stop = relative(training.tol)
    start, _ = best_start(step_over(sample), starts, n_steps=_starts.SHORT_RUN, stop=stop)
    step = step_over(block)
    if training.accelerate == "squarem":
        step = squarem(step, kernel)
    result = run(step, State.at(start), max_iter=training.max_iter, stop=stop)
    return Grown(result.params, np.array(result.history), result.n_iter, result.converged)


def _in_order(inputs: Inputs, q: int) -> NDArray[np.int64]:
    """Rows in the order of their values along a fixed direction, whatever their order in the data."""
    return np.argsort(inputs.rows[:, :q] @ np.random.default_rng(0).standard_normal(q), kind="stable")


def prior_layer(prior: Moments, training: Training) -> MixtureParams:
    """Leaves that all reproduce the prior; with common loadings, only what the leading factors can."""
    mean, covariance = prior.means, prior.covariances[0]
    q, d, n = len(covariance), training.n_factors, training.n_leaves
    if training.common:
        # the mean must lie in the column space, so it takes the place of the last direction
        axes = np.linalg.qr(np.column_stack([mean[0], np.linalg.eigh(covariance)[1][:, ::-1]]))[0][:, :d]
        omega = 0.5 * symmetric(axes.T @ covariance @ axes)
        noise = np.diagonal(covariance) - np.diagonal(axes @ omega @ axes.T)
        top = Top(np.repeat(mean @ axes, n, axis=0), np.repeat(omega[None], n, axis=0))
        layer = Layer(np.zeros((1, q)), axes[None], np.maximum(noise, 0.1 * np.diagonal(covariance))[None])
        return MixtureParams(np.full(n, 1 / n), Layers(layer, top))
    loadings = np.sqrt(0.5) * np.eye(q)[:, :d]  # of half of the variance
    noise = 1.0 - np.sum(loadings**2, axis=1)
    layer = Layer(*(np.repeat(array[None], n, axis=0) for array in (mean[0], loadings, noise)))
    return MixtureParams(np.full(n, 1 / n), Layers(layer, standard_top(n, d, mean)))
