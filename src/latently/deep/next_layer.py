"""One more layer above a fixed model: a mixture that replaces the prior of one component's factors.

Its training data are the posteriors N(m_n, V_n) of those factors in the model below, weighted by the
responsibility of the component for row n. EM maximises a lower bound of the log-likelihood (docs/dmfa.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.linalg import symmetric
from latently.backend.namespace import Array, Floats, zeros
from latently.core.block import Block
from latently.core.drivers import em_step, relative
from latently.core.frame import Frame
from latently.core.search import Search
from latently.core.squarem import squarem
from latently.core.sweep import LocalSweep
from latently.deep.stages import Stages
from latently.distributions.deep import NextLayer, UncertainLeaves
from latently.distributions.gaussian import FullDensity, FullGaussian
from latently.distributions.layers import Layer, Layers, Moments, Rules, Top, standard_top
from latently.distributions.mixture import MixtureParams
from latently.estimators import fitting
from latently.estimators.starts import SEARCH_TOL, rows_for_start
from latently.mixture import starts

_RESOLVED = 1e-3  # standard deviations of factors that rounding may move their means by


@dataclass(frozen=True)
class Inputs:
    """Training data of a mixture."""

    rows: Floats  # (n, q): m minus the prior mean; with its own packed V if entries of the data were missing
    weight: Floats  # (n,)
    covariance: Floats | None  # (q, q): V of all rows


@dataclass(frozen=True)
class MixtureOptions:
    """Options for the training of a mixture of factors."""

    n_components: int
    n_factors: int
    common: bool
    prior_rows: float
    least_weight: float  # total weight of rows below which the prior is kept
    noise_floor: float
    init: str
    n_init: int | str
    tol: float
    accelerate: str | None
    seed: int


@dataclass(frozen=True)
class TrainedMixture:
    params: MixtureParams  # weights within the component, and Layers
    gains: Floats  # increase of the bound over that of the prior, per unit of weight, at every step
    n_iter: int
    converged: bool


def train_mixture(inputs: Inputs, prior: Moments, options: MixtureOptions, stages: Stages) -> TrainedMixture:
    """Train the mixture for the factors of a component.

    A mixture that reproduces the prior is kept unless a better one is found. With common loadings there may
    be no such mixture; then the best one found is used in any case.
    """
    stays = TrainedMixture(mixture_of_prior(prior, options), np.zeros(1), 0, True)
    if inputs.weight.sum() < options.least_weight:
        return stays
    _check_distance(prior)
    found = _fitted(inputs, prior, options, stages)
    if found.gains[-1] > 0:
        return replace(found, gains=np.array([0.0, *found.gains[found.gains > 0]]))
    return found if options.common else replace(stays, n_iter=found.n_iter, converged=found.converged)


def _check_distance(prior: Moments) -> None:
    """Raise an error if the factors, of common loadings, are too far from zero for float64."""
    mean, covariance = prior.means[0], prior.covariances[0]
    distance = float(np.linalg.norm(np.linalg.solve(np.linalg.cholesky(covariance), mean)))
    if np.finfo(float).eps * distance > _RESOLVED:
        raise ValueError(
            f"X lies so far from zero, or varies so little, that its factors are {distance:.1g} of their "
            "standard deviations away, where float64 cannot tell how they vary; common loadings have no free "
            "mean: subtract the mean of each column of X from it, or use DMFA"
        )


def _fitted(inputs: Inputs, prior: Moments, options: MixtureOptions, stages: Stages) -> TrainedMixture:
    """The best mixture found by EM; gains may be negative."""
    K, q = options.n_components, prior.means.shape[1]
    total = float(inputs.weight.sum())
    kernel = kernel_for(
        K,
        options.n_factors,
        prior,
        inputs.covariance,
        common=options.common,
        prior_rows=options.prior_rows,
        floor=options.noise_floor * np.diagonal(prior.covariances[0]),
    )
    block = Block(inputs.rows, inputs.weight)
    at_prior = density_of_prior(kernel)
    baseline = float(kernel.family.evaluate(at_prior, block)[0][0] @ inputs.weight) / total

    def step_over(rows: Block) -> Callable[[Any], Any]:
        sweep = LocalSweep(lambda: [rows], None, floats_per_row=kernel.floats_per_row(K, q, False))
        return em_step(kernel, sweep, baseline)

    def accelerated(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return squarem(step, kernel) if options.accelerate == "squarem" else step

    def start(_: Any) -> tuple[Any, bool]:
        order = _in_order(inputs, q)
        sample = block.take(order[:: -(-len(order) // rows_for_start(K))])
        found = starts.Starts(
            kernel,
            K,
            options.init,
            options.seed,
            Block(sample.X[:, :q], sample.weight),
            Frame(np.zeros(q), np.ones(q)),
        )
        n_starts = starts.number_of_starts("auto")[0] if options.n_init == "auto" else options.n_init
        short = step_over(sample)
        search = Search(short, accelerated(short), stop=relative(max(options.tol, SEARCH_TOL)))
        return search.best(found.first(n_starts))

    def example() -> MixtureParams:
        return mixture_of_prior(prior, options)

    step = accelerated(step_over(block))
    # with tol=0 only the whole fit warns about mixtures that have not converged
    stage = stages.run(
        lambda fit_options: fitting.fit(step, start, fit_options, example=example),
        example,
        tol=0.0,
        verbose=False,
        callbacks=(),
    )
    result = stage.result
    return TrainedMixture(result.params, np.array(result.history), result.n_iter, result.converged)


def _in_order(inputs: Inputs, q: int) -> NDArray[np.int64]:
    """Rows ordered by their projection on a fixed direction, independent of their order in the data."""
    return np.argsort(inputs.rows[:, :q] @ np.random.default_rng(0).standard_normal(q), kind="stable")


def mixture_of_prior(prior: Moments, options: MixtureOptions) -> MixtureParams:
    """Components that all reproduce the prior; with common loadings, as far as the leading factors can."""
    mean, covariance = prior.means, prior.covariances[0]
    q, d, n = len(covariance), options.n_factors, options.n_components
    if options.common:
        # the mean must lie in the column space, so it replaces the last direction
        axes = np.linalg.qr(np.column_stack([mean[0], np.linalg.eigh(covariance)[1][:, ::-1]]))[0][:, :d]
        omega = 0.5 * symmetric(axes.T @ covariance @ axes)
        noise = np.diagonal(covariance) - np.diagonal(axes @ omega @ axes.T)
        top = Top(np.repeat(mean @ axes, n, axis=0), np.repeat(omega[None], n, axis=0))
        layer = Layer(np.zeros((1, q)), axes[None], np.maximum(noise, 0.1 * np.diagonal(covariance))[None])
        return MixtureParams(np.full(n, 1 / n), Layers(layer, top))
    loadings = np.sqrt(0.5) * np.eye(q)[:, :d]  # for half of the variance
    noise = 1.0 - np.sum(loadings**2, axis=1)
    layer = Layer(*(np.repeat(array[None], n, axis=0) for array in (mean[0], loadings, noise)))
    return MixtureParams(np.full(n, 1 / n), Layers(layer, standard_top(n, d, mean)))


# -- the kernel -----------------------------------------------------------------------------------------


def kernel_for(
    n_components: int,
    n_factors: int,
    prior: Moments,
    covariance: Array | None,
    *,
    common: bool,
    prior_rows: float = 0.0,
    floor: Array | None = None,
) -> NextLayer:
    """The kernel of a mixture of one component's factors; without a floor for known parameters.

    Its rows are factors minus the mean of their prior.
    `covariance` is the posterior covariance of all rows; None if each row has its own.
    """
    floor = zeros((prior.means.shape[1],), prior.means) if floor is None else floor
    owner = np.zeros(n_components, dtype=int) if common else np.arange(n_components)
    rules = Rules(common, (owner,), (floor,))
    family = UncertainLeaves(
        FullGaussian(floor),
        rules,
        n_factors=n_factors,
        covariance=covariance,
        reference=prior.means[0, :],
    )
    return NextLayer(family=family, prior=prior, prior_rows=prior_rows)


def density_of_prior(kernel: NextLayer) -> FullDensity:
    """The prior itself, for the same rows."""
    density: FullDensity = kernel.family.prepare(Top(kernel.prior.means, kernel.prior.covariances))
    return density
