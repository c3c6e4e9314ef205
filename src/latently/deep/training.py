"""Training of a deep mixture: layer by layer, then all layers jointly.

    first layer      an ordinary mixture of the rows
    further layers   for each leaf of the tree so far, a mixture of its factors, trained on their posteriors
                     given the rows; all layers below are fixed
    fine-tuning      EM over all layers, whose M-step decomposes over layers

Each layer maximises a lower bound of the log-likelihood (docs/dmfa.md). Each mixture is a stage of the fit.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latently.backend.linalg import diagonals
from latently.backend.namespace import Array, Floats, like, namespace, to_numpy
from latently.core.tree import mapped
from latently.deep.next_layer import Inputs, MixtureOptions, train_mixture
from latently.deep.rows import bounds_of_rows, inputs_of_rows, log_likelihoods, weighted
from latently.deep.sizes import LayerSize
from latently.deep.stages import Stages
from latently.deep.tree import (
    SMALLEST_FLOOR,
    Tree,
    collapsed,
    deviation_map,
    diagonalised,
    posterior_covariances,
    with_params,
)
from latently.distributions import Mixture
from latently.distributions.layers import Moments
from latently.estimators.em import fit_em, keep_result
from latently.estimators.fitting import FitOptions, ended_by_one_interrupt
from latently.estimators.problem import Problem
from latently.estimators.randomness import as_random_state
from latently.mixture.base import example


@dataclass(frozen=True)
class Trained:
    """A trained tree, and the record of its training."""

    tree: Tree
    history: list[float]  # objective per row: first layer, each added layer, each step of fine-tuning
    bound_history: list[Floats]  # for every layer above the first
    n_iter: int
    n_passes: int
    converged: bool
    log_prior: float  # of the first layer, per row


def train(model: Any, first: Any, problem: Problem, sizes: list[LayerSize]) -> Trained:
    """Train a tree with the options of the estimator `model`.

    `first` is the estimator of the first layer, and `problem` the problem it is fitted to. An interrupt ends
    the training of all layers: those not trained yet keep their starting values.
    """
    with ended_by_one_interrupt():
        return _train(model, first, problem, sizes)


def _train(model: Any, first: Any, problem: Problem, sizes: list[LayerSize]) -> Trained:
    sampled = model.inputs == "sampled"
    options = FitOptions.of(model, problem.data_identity)
    stages = Stages(options, _seeds(model.random_state, sizes, sampled))
    seeds = iter(stages.seeds)
    trained = _first_layer(model, first, problem, stages)
    for size in sizes:
        rng = np.random.default_rng(next(seeds)) if sampled else None
        mixtures = [(count, next(seeds)) for count in size.counts]
        trained = _with_layer(model, trained, problem, mixtures, size.n_factors, rng, stages)
    if model.fine_tune:
        trained = _fine_tuned(model, trained, problem, stages)
    stages.end()
    return trained


def _seeds(random_state: Any, sizes: list[LayerSize], sampled: bool) -> list[int]:
    """For every layer above the first: one seed for sampled inputs, if used, and one per mixture."""
    rng = as_random_state(random_state)
    n_seeds = sum(len(size.counts) + sampled for size in sizes)
    return [int(rng.randint(2**31 - 1)) for _ in range(n_seeds)]


def _first_layer(model: Any, first: Any, problem: Problem, stages: Stages) -> Trained:
    def shapes() -> Any:
        return example(problem, first._structure())

    stage = stages.run(
        lambda options: fit_em(
            first, problem, lambda progress: first._start(problem, progress), shapes, options=options
        ),
        shapes,
        title=f"{type(model).__name__}, layer 1",
    )
    result = stage.result
    keep_result(first, problem, result)
    tree = Tree.of(model.kind, [[first]])
    log_prior = problem.kernel.log_prior(result.params) / problem.summary.total_weight
    return Trained(tree, result.history[-1:], [], result.n_iter, stage.n_passes, result.converged, log_prior)


# -- a layer --------------------------------------------------------------------------------------------


def _with_layer(
    model: Any,
    trained: Trained,
    problem: Problem,
    mixtures: list[tuple[int, int]],  # for every leaf, the number of components and a seed
    n_factors: int,
    rng: np.random.Generator | None,  # for draws of the inputs
    stages: Stages,
) -> Trained:
    """The tree with a new mixture for the factors of every leaf; the layers below are fixed."""
    below = diagonalised(trained.tree, model.dtype)
    inputs = _inputs(below, problem, model.dtype, rng)
    options = _mixture_options(model, below.n_factors[-1], n_factors)
    priors = mapped(to_numpy, below.moments[-1])
    found = [
        train_mixture(
            own,
            Moments(priors.means[leaf : leaf + 1], priors.covariances[leaf : leaf + 1]),
            replace(options, n_components=count, seed=seed),
            stages,
        )
        for leaf, (own, (count, seed)) in enumerate(zip(inputs, mixtures, strict=True))
    ]
    tree = below.with_layer([problem.on_device(one.params) for one in found])
    log_prior = trained.log_prior  # of the layer that stays fixed
    lower = _mean_over_rows(below, problem, model.dtype, log_likelihoods) + log_prior
    if rng is None:
        length = max(len(one.gains) for one in found)
        shares = np.array([own.weight.sum() for own in inputs]) / problem.summary.total_weight
        gains = [np.pad(one.gains, (0, length - len(one.gains)), mode="edge") for one in found]
        bounds = lower + shares @ np.array(gains)
    else:  # the objective was not a bound of the likelihood of rows
        arguments = bound_arguments(below, tree, model.dtype)
        upper = _mean_over_rows(below, problem, model.dtype, bounds_of_rows, *arguments) + log_prior
        bounds = np.array([lower, upper])
    return replace(
        trained,
        tree=tree,
        history=[*trained.history, _mean_over_rows(tree, problem, model.dtype, log_likelihoods) + log_prior],
        bound_history=[*trained.bound_history, bounds],
        n_iter=trained.n_iter + sum(one.n_iter for one in found),
        converged=trained.converged and all(one.converged for one in found),
    )


def _mixture_options(model: Any, factors_below: int, n_factors: int) -> MixtureOptions:
    automatic = isinstance(model.prior_rows, str)
    return MixtureOptions(
        n_components=1,
        n_factors=n_factors,
        common=model.kind.common,
        prior_rows=factors_below + 2.0 if automatic else float(model.prior_rows),
        least_weight=2.0 * factors_below if automatic and not model.kind.common else 1.0,
        noise_floor=max(float(model.noise_floor), SMALLEST_FLOOR),
        init=model.init,
        n_init=model.n_init,
        tol=model.tol,
        accelerate=model.accelerate,
        seed=0,
    )


def _inputs(tree: Tree, problem: Problem, dtype: str, rng: np.random.Generator | None) -> list[Inputs]:
    """Posteriors of the last layer's factors: for every leaf, the training data of the mixture above it."""
    factors, missing = deviation_map(tree), problem.summary.missing
    V = to_numpy(posterior_covariances(tree, factors, dtype))
    pieces = _over_rows(tree, problem, dtype, inputs_of_rows, factors, V, missing, rng)
    found = []
    for leaf in range(tree.n_leaves):
        rows, weight = (np.concatenate([piece[leaf][i] for piece in pieces]) for i in (0, 1))
        if rng is not None:  # draws have no uncertainty
            covariance = np.zeros_like(V[leaf])
        else:
            covariance = None if missing else V[leaf]
        found.append(Inputs(rows, weight, covariance))
    return found


def bound_arguments(below: Tree, tree: Tree, dtype: str) -> tuple[Any, ...]:
    """Arguments of `bounds_of_rows` for a tree and the same tree `below` without its last layer."""
    factors = deviation_map(below)
    V = posterior_covariances(below, factors, dtype)
    return factors, V, below.moments[-1], tree.layers[-1], tree.kind.common


def _mean_over_rows(tree: Tree, problem: Problem, dtype: str, fn: Any, *args: Any) -> float:
    """The weighted mean over rows of `fn`, which returns one value per row."""
    return float(_over_rows(tree, problem, dtype, weighted, fn, *args)) / problem.summary.total_weight


def _over_rows(tree: Tree, problem: Problem, dtype: str, fn: Any, *args: Any) -> Any:
    """The sum of `fn(kernel, density, frame, *args, block)` over all blocks, by the collapsed mixture."""
    fitted, data = collapsed(tree, dtype), _labels_of_leaves(tree, problem.data)
    floats = fitted.kernel.floats_per_row(tree.n_leaves, data.n_features, problem.summary.missing)
    sweep = data.sweep(None, floats_per_row=floats, block_size=problem.block_size)
    return sweep.reduce(fn, operator.add, fitted.kernel, fitted.density, fitted.frame, *args)


def _labels_of_leaves(tree: Tree, data: Any) -> Any:
    """The rows with labels of the leaves that they may come from, instead of first-layer components."""
    allowed = data.field("allowed")
    if allowed is None:
        return data
    component_of = like(tree.nodes[0], allowed)
    return data.with_field("allowed", namespace(allowed).take(allowed, component_of, axis=1))


# -- fine-tuning ------------------------------------------------------------------------------------------


def _fine_tuned(model: Any, trained: Trained, problem: Problem, stages: Stages) -> Trained:
    """EM over all layers, from their current parameters."""
    tree, of_first = trained.tree, problem.kernel.family  # type: ignore[attr-defined]
    rules = tree.rules(_floors(tree, model.noise_floor))
    deep = replace(
        problem,
        kernel=Mixture(tree.kind.leaves(of_first, rules, tree.nodes[0]), model.dtype),
        data=_labels_of_leaves(tree, problem.data),
        n_components=tree.n_leaves,
    )

    def start() -> Any:
        return deep.to_frame(tree.params)

    stage = stages.run(
        lambda options: fit_em(model, deep, lambda progress: (start(), False), start, options=options),
        start,
        title=f"{type(model).__name__}, all layers",
    )
    result = stage.result
    return replace(
        trained,
        tree=with_params(tree, deep.from_frame(result.params)),
        history=[*trained.history, *result.history[1:]],
        n_iter=trained.n_iter + result.n_iter,
        n_passes=trained.n_passes + stage.n_passes,
        converged=result.converged,
    )


def _floors(tree: Tree, noise_floor: float) -> tuple[Array, ...]:
    """Lower bounds of the noise variances above the first layer; current values below them are kept."""
    least = max(float(noise_floor), SMALLEST_FLOOR)
    return tuple(
        namespace(of.means).minimum(
            layer.noise_variance, least * namespace(of.means).mean(diagonals(of.covariances), axis=0)
        )
        for layer, of in zip(tree.params.components.above.all(), tree.moments[:-1], strict=True)
    )
