"""Components over columns of several kinds: numbers, categories, ordered answers and counts.

    p(x | k) = N(numbers; mu_k, L_k L_k' + diag(psi_k)) prod_j p(x_j | k),   j categories, answers and counts

Given its component, columns of different kinds are independent; numbers may depend on one another through
factors. The density is one of numbers and a probability of the others. A missing entry leaves its factor out,
which is exact. Numbers: distributions/low_rank.py; levels: distributions/levels.py; counts:
distributions/counts.py. Formulas: docs/mixed_mixture.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from latently.backend.namespace import Array, Floats, contiguous, double, like, namespace, to_numpy, zeros
from latently.core.block import Block
from latently.distributions import counts, levels
from latently.distributions.counts import CountPrior
from latently.distributions.family import Family, flattened, unflattened
from latently.distributions.low_rank import LowRankGaussian, LowRankParams
from latently.distributions.mixture import Mixture, MixtureParams, drawn_labels
from latently.distributions.prior import Prior
from latently.distributions.responsibilities import Responsibilities, normalise

_EPS = float(np.finfo(np.float64).eps)
_START_ROWS = 2.0  # pseudo-rows that keep starting probabilities away from zero


@dataclass(frozen=True)
class Layout:
    """Which columns are of which kind, and what is known of them."""

    n_features: int
    numbers: tuple[int, ...] = ()
    categories: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()  # levels of each category
    ordered: tuple[int, ...] = ()
    cuts: tuple[tuple[float, ...], ...] = ()  # ends of the intervals of each ordered answer
    counts: tuple[int, ...] = ()
    dispersed: tuple[bool, ...] = ()  # whether counts may vary more than Poisson

    @property
    def with_levels(self) -> tuple[int, ...]:
        return self.categories + self.ordered

    @property
    def all_sizes(self) -> tuple[int, ...]:
        return self.sizes + tuple(len(ends) - 1 for ends in self.cuts)

    @property
    def discrete(self) -> tuple[int, ...]:
        return self.with_levels + self.counts


@dataclass(frozen=True)
class ColumnParams:
    numbers: LowRankParams | None
    probabilities: Array  # (K, M), of the levels of all categories
    locations: Array  # (K, Jo), of ordered answers
    scales: Array  # (K, Jo)
    rates: Array  # (K, Jc), means of counts
    dispersions: Array  # (K, Jc)

    @property
    def means(self) -> Array:
        """(K, numbers): those by which starts are located."""
        return zeros((self.rates.shape[0], 1), self.rates) if self.numbers is None else self.numbers.means


@dataclass(frozen=True)
class ColumnDensity:
    numbers: Any  # LowRankDensity, or None
    log_levels: Array  # (M, K)
    rates: Floats  # (K, Jc)
    dispersions: Floats  # (K, Jc)
    constants: Array  # (K,)
    log_weights: Array  # (K,)


@dataclass(frozen=True)
class ColumnSums:
    """Every field is a sum over rows; `numbers` are sums of that family, then its statistics."""

    weight: Array  # (K,)
    numbers: Any
    levels: Array  # (K, M)   rows at every level, of categories and ordered answers
    counted: Array  # (K, Jc) rows with a count
    sum_counts: Array  # (K, Jc)
    sum_digamma: Array  # (K, Jc) of psi(x + r)


@dataclass(frozen=True)
class Latent:
    """Intermediate results of the densities of a block that its statistics reuse."""

    numbers_block: Block | None
    numbers: Any
    indicator: Any  # (n, M)
    counts: Array  # (n, Jc)
    counts_observed: Array | None


@dataclass(frozen=True)
class ColumnPrior:
    """Pseudo-rows of each component that look like all rows."""

    rows: float
    numbers: Prior | None
    levels: Floats  # (M,) frequencies of the levels of all columns
    counts: CountPrior

    def times(self, factor: float) -> ColumnPrior:
        numbers = None if self.numbers is None else self.numbers.times(factor)
        rows = self.rows * factor
        return ColumnPrior(rows, numbers, self.levels, replace(self.counts, rows=rows))


@dataclass(frozen=True)
class ColumnFamily(Family):
    """The family; `floor` is the smallest noise variance of each column, used for numbers."""

    n_factors: int
    layout: Layout
    floor: Array  # (D,)
    prior: ColumnPrior | None = None  # type: ignore[assignment]
    isotropic: bool = False

    @cached_property
    def gaussian(self) -> LowRankGaussian:
        """The family of the numbers."""
        floor = self.floor
        if floor is not None:
            floor = namespace(floor).take(floor, like(np.array(self.layout.numbers, dtype=np.int64), floor))
        return LowRankGaussian(
            self.n_factors, floor, prior=None if self.prior is None else self.prior.numbers
        )

    def prepare(self, params: ColumnParams, dtype: str = "float64") -> ColumnDensity:
        xp, K = namespace(params.rates), params.rates.shape[0]
        numbers = None if params.numbers is None else self.gaussian.prepare(params.numbers, dtype)
        nothing = zeros((K,), params.rates)
        logs = [xp.log(params.probabilities)]
        for j, ends in enumerate(self.layout.cuts):
            location, scale = to_numpy(params.locations[:, j]), to_numpy(params.scales[:, j])
            logs.append(like(levels.ordered_log_probabilities(np.array(ends), location, scale), params.rates))
        log_levels = xp.concat(logs, axis=1).T
        return ColumnDensity(
            numbers, log_levels, to_numpy(params.rates), to_numpy(params.dispersions), nothing, nothing
        )

    def evaluate(self, density: ColumnDensity, block: Block, *, rough: bool = False) -> tuple[Array, Latent]:
        xp, layout = namespace(block.X), self.layout
        log_prob = zeros((density.constants.shape[0], len(block)), block.X) + density.constants[:, None]
        numbers_block = numbers = None
        if layout.numbers:
            numbers_block = _columns(block, layout.numbers)
            own, numbers = self.gaussian.evaluate(density.numbers, numbers_block)
            log_prob = log_prob + own
        own_levels = None
        if layout.with_levels:
            part = _columns(block, layout.with_levels)
            own_levels = levels.indicator(part.X, part.observed, layout.all_sizes)
            log_prob = log_prob + (own_levels @ density.log_levels).T
        part = _columns(block, layout.counts)
        for j in range(len(layout.counts)):
            own = counts.looked_up(
                counts.log_mass, part.X[:, j], density.rates[:, j], density.dispersions[:, j]
            )
            log_prob = log_prob + (own if part.observed is None else xp.where(part.observed[:, j], own, 0.0))
        return log_prob, Latent(numbers_block, numbers, own_levels, part.X, part.observed)

    def sums(
        self, density: ColumnDensity, block: Block, latent: Latent, resp: Responsibilities
    ) -> ColumnSums:
        r = resp.full()
        xp, K = namespace(r), r.shape[0]
        numbers = None
        if latent.numbers_block is not None:
            numbers = self.gaussian.sums(density.numbers, latent.numbers_block, latent.numbers, resp)
        own_levels = zeros((K, 0), r)
        if latent.indicator is not None:
            own_levels = contiguous((latent.indicator.T @ r.T).T)
        X, seen = latent.counts, latent.counts_observed
        counted = resp.weight[:, None] + zeros((K, X.shape[1]), r) if seen is None else r @ double(seen)
        total = r @ X if X.shape[1] else zeros((K, 0), r)
        by_column = [zeros((K, 0), r)]
        for j in range(X.shape[1]):
            psi = zeros((K,), r)
            if self.layout.dispersed[j]:
                own = counts.looked_up(
                    counts.digamma_of, X[:, j], density.rates[:, j], density.dispersions[:, j]
                )
                own = r * own
                psi = xp.sum(own if seen is None else xp.where(seen[:, j], own, 0.0), axis=1)
            by_column.append(psi[:, None])
        weight = resp.weight + 0.0  # an array of its own: sums of blocks are added in place
        return ColumnSums(weight, numbers, own_levels, counted, total, xp.concat(by_column, axis=1))

    def stats(self, density: ColumnDensity, sums: ColumnSums) -> ColumnSums:
        if sums.numbers is None:
            return sums
        return replace(sums, numbers=self.gaussian.stats(density.numbers, sums.numbers))

    def m_step(self, stats: ColumnSums, params: ColumnParams) -> ColumnParams:
        layout, place = self.layout, params.rates
        numbers = None if params.numbers is None else self.gaussian.m_step(stats.numbers, params.numbers)
        of_levels, n_categories = to_numpy(stats.levels), sum(layout.sizes)
        if self.prior is not None:
            of_levels = of_levels + self.prior.rows * self.prior.levels
        probabilities = levels.probabilities(
            of_levels[:, :n_categories], layout.sizes, to_numpy(params.probabilities)
        )
        locations, scales = _copy(params.locations), _copy(params.scales)
        for j, at in enumerate(levels.places(layout.all_sizes)[len(layout.sizes) :]):
            ends = np.array(layout.cuts[j])
            locations[:, j], scales[:, j] = levels.grouped_normal(
                of_levels[:, at], ends, locations[:, j], scales[:, j]
            )
        rates, dispersions = counts.maximised(
            to_numpy(stats.counted),
            to_numpy(stats.sum_counts),
            to_numpy(stats.sum_digamma),
            to_numpy(params.rates),
            to_numpy(params.dispersions),
            None if self.prior is None else self.prior.counts,
        )
        found = (like(array, place) for array in (probabilities, locations, scales, rates, dispersions))
        return ColumnParams(numbers, *found)

    def log_priors(self, params: ColumnParams, density: Any = None) -> Array:
        if self.prior is None:
            return zeros(params.rates.shape[:1], params.rates)
        total = 0.0 if params.numbers is None else self.gaussian.log_priors(params.numbers)
        logs = to_numpy(self.prepare(params).log_levels).T  # (K, M)
        typical = self.prior.levels
        known = typical > 0
        each = np.where(known, typical * (logs - np.log(np.where(known, typical, 1.0))), 0.0)
        own = self.prior.rows * each.sum(axis=1)
        rates, dispersions = to_numpy(params.rates), to_numpy(params.dispersions)
        own = own + counts.log_prior(self.prior.counts, rates, dispersions).sum(axis=1)
        return like(own, params.rates) + total

    def rounding(self, density: ColumnDensity) -> float:
        own = _EPS * (64.0 * (1.0 + len(self.layout.discrete)) + counts.log_mass_size(density.rates))
        return own if density.numbers is None else own + self.gaussian.rounding(density.numbers)

    # -- parameters -----------------------------------------------------------------------------------

    def n_parameters(self, K: int, D: int) -> int:
        """Free parameters; cut points of L levels are L - 3 that components share."""
        layout = self.layout
        numbers = self.gaussian.n_parameters(K, len(layout.numbers)) if layout.numbers else 0
        categories = K * sum(size - 1 for size in layout.sizes)
        ordered = sum(min(2 * K + len(ends) - 4, K * (len(ends) - 2)) for ends in layout.cuts)
        return numbers + categories + ordered + K * (len(layout.counts) + sum(layout.dispersed))

    def least_rows(self, D: int) -> int:
        return self.gaussian.least_rows(len(self.layout.numbers)) if self.layout.numbers else 2

    def at_floor(self, params: ColumnParams) -> Array:
        found = np.zeros((params.rates.shape[0], self.layout.n_features), dtype=bool)
        if params.numbers is not None:
            found[:, list(self.layout.numbers)] = to_numpy(self.gaussian.at_floor(params.numbers))
        return like(found, params.rates)

    def clamped(self, params: ColumnParams) -> ColumnParams:
        if params.numbers is None:
            return params
        return replace(params, numbers=self.gaussian.clamped(params.numbers))

    def moved(self, params: ColumnParams, weights: Array, shift: Array, scale: Array) -> ColumnParams:
        if params.numbers is None:
            return params
        xp, own = namespace(shift), like(np.array(self.layout.numbers, dtype=np.int64), shift)
        shift, scale = xp.take(shift, own), xp.take(scale, own)
        return replace(params, numbers=self.gaussian.moved(params.numbers, weights, shift, scale))

    def marginal_variances(self, params: ColumnParams) -> Array:
        if params.numbers is None:
            return params.means + 1.0
        return self.gaussian.marginal_variances(params.numbers)

    def coordinates(self, params: ColumnParams) -> tuple[Array, ...]:
        xp = namespace(params.rates)
        numbers = () if params.numbers is None else self.gaussian.coordinates(params.numbers)
        log_dispersions = xp.log(xp.where(params.dispersions > 0, params.dispersions, 1.0))
        own = (xp.log(params.probabilities), params.locations, xp.log(params.scales), xp.log(params.rates))
        return (*numbers, *own, log_dispersions)

    def to_vector(self, params: ColumnParams) -> Array:
        return flattened(self.coordinates(params))

    def from_vector(self, vector: Array, like: ColumnParams) -> ColumnParams:
        xp, numbers = namespace(vector), None
        start = 0
        if like.numbers is not None:
            start = sum(array.size for array in map(to_numpy, self.gaussian.coordinates(like.numbers)))
            numbers = self.gaussian.from_coordinates(*unflattened(vector[:start], like.numbers))
        parts = []
        for name in ("probabilities", "locations", "scales", "rates", "dispersions"):
            shape = getattr(like, name).shape
            size = shape[0] * shape[1]
            parts.append(xp.reshape(vector[start : start + size], shape))
            start += size
        logs, locations, log_scales, log_rates, log_dispersions = parts
        far = [
            xp.max(xp.abs(part)) > 300.0 for part in (log_scales, log_rates, log_dispersions) if part.shape[1]
        ]
        if not bool(xp.all(xp.isfinite(vector))) or any(map(bool, far)):
            raise ValueError("the extrapolation left the range of numbers")
        shares = []
        for place in levels.places(self.layout.sizes):
            own = logs[:, place]
            own = xp.exp(own - xp.max(own, axis=1, keepdims=True))
            shares.append(xp.clip(own / xp.sum(own, axis=1, keepdims=True), min=levels.SMALLEST_PROBABILITY))
        probabilities = xp.concat(shares, axis=1) if shares else logs
        return ColumnParams(
            numbers,
            _normalised(probabilities, self.layout.sizes),
            xp.clip(locations, min=-12.0, max=12.0),
            xp.clip(xp.exp(log_scales), min=1e-2, max=1e2),
            xp.clip(xp.exp(log_rates), min=counts.SMALLEST_MEAN),
            xp.where(like.dispersions > 0, xp.clip(xp.exp(log_dispersions), *counts.DISPERSIONS), 0.0),
        )

    def implied_stats(self, params: ColumnParams, weights: Array) -> ColumnSums:
        xp, own = namespace(weights), weights[:, None]
        numbers = None if params.numbers is None else self.gaussian.implied_stats(params.numbers, weights)
        of_levels = own * xp.exp(self.prepare(params).log_levels).T
        psi = counts.implied_digamma(to_numpy(params.rates), to_numpy(params.dispersions))
        counted = own + xp.zeros_like(params.rates)
        return ColumnSums(weights, numbers, of_levels, counted, own * params.rates, own * like(psi, weights))

    # -- starts and draws -----------------------------------------------------------------------------

    def from_partition(self, X: Array, weight: Array, labels: Array, means: Array) -> ColumnParams:
        """The fit to each part, with a few rows of all others; entries that are no level are missing ones."""
        layout, K = self.layout, means.shape[0]
        own = np.array(layout.numbers, dtype=np.int64)
        numbers = None
        if layout.numbers:
            numbers = self.gaussian.from_partition(X[:, own], weight, labels, means[:, own])
        resp = np.where(labels == np.arange(K)[:, None], weight, 0.0)
        codes = X[:, list(layout.with_levels)]
        nearest = np.round(codes)
        known = np.abs(codes - nearest) < 1e-9
        of_levels = np.zeros((K, 0))
        if layout.with_levels:
            of_levels = (levels.indicator(nearest, known, layout.all_sizes).T @ resp.T).T
            typical = self._shares(of_levels.sum(axis=0))
            of_levels = of_levels + _START_ROWS * typical
        n_categories = sum(layout.sizes)
        before = np.zeros((K, n_categories))
        probabilities = levels.probabilities(of_levels[:, :n_categories], layout.sizes, before)
        shape = (K, len(layout.ordered))
        locations, scales = np.zeros(shape), np.ones(shape)
        for j, at in enumerate(levels.places(layout.all_sizes)[len(layout.sizes) :]):
            locations[:, j], scales[:, j] = levels.grouped_normal(
                of_levels[:, at], np.array(layout.cuts[j]), locations[:, j], scales[:, j]
            )
        x = np.maximum(X[:, list(layout.counts)], 0.0)
        size = resp.sum(axis=1)[:, None]
        pooled = np.maximum(weight @ x / weight.sum(), 1e-3)
        rates = (resp @ x + _START_ROWS * pooled) / (size + _START_ROWS)
        excess = (resp @ x**2 + _START_ROWS * (pooled + pooled**2)) / (size + _START_ROWS) - rates**2 - rates
        dispersions = np.clip(excess / rates**2, 0.05, 10.0) * np.array(layout.dispersed, dtype=float)
        return ColumnParams(numbers, probabilities, locations, scales, rates, dispersions)

    def _shares(self, of_levels: Floats) -> Floats:
        """(M,) frequencies in each column, equal ones where nothing was seen."""
        parts = [of_levels[place] for place in levels.places(self.layout.all_sizes)]
        parts = [part / part.sum() if part.sum() > 0 else np.full(len(part), 1 / len(part)) for part in parts]
        return np.concatenate(parts) if parts else np.zeros(0)

    def sample(self, params: ColumnParams, labels: Array, rng: np.random.Generator) -> Floats:
        layout, n = self.layout, len(labels)
        X = np.empty((n, layout.n_features))
        if params.numbers is not None:
            X[:, list(layout.numbers)] = self.gaussian.sample(params.numbers, labels, rng)
        chances = np.exp(to_numpy(self.prepare(params).log_levels)).T
        for column, place in zip(layout.with_levels, levels.places(layout.all_sizes), strict=True):
            X[:, column] = drawn_labels(chances[labels, place].T, rng)
        for j, column in enumerate(layout.counts):
            mean, dispersion = params.rates[labels, j], params.dispersions[labels, j]
            r = 1.0 / np.where(dispersion > 0, dispersion, 1.0)
            rate = np.where(dispersion > 0, rng.gamma(r, mean / r), mean)
            X[:, column] = rng.poisson(rate)
        return X

    # -- missing entries ------------------------------------------------------------------------------

    def expected(self, density: ColumnDensity, block: Block, latent: Latent, resp: Array) -> Array:
        """(n, D) conditional means of numbers, most probable categories, median answers, rounded counts."""
        layout, R = self.layout, to_numpy(resp)
        rows = np.zeros((len(block), layout.n_features))
        if latent.numbers_block is not None:
            own = self.gaussian.expected(density.numbers, latent.numbers_block, latent.numbers, resp)
            rows[:, list(layout.numbers)] = to_numpy(own)
        chances = R @ np.exp(to_numpy(density.log_levels)).T
        for column, place in zip(layout.with_levels, levels.places(layout.all_sizes), strict=True):
            own = chances[:, place]
            ordered = column in layout.ordered
            cumulated = np.cumsum(own, axis=1)
            rows[:, column] = (
                np.sum(cumulated < 0.5 * cumulated[:, -1:], axis=1) if ordered else own.argmax(axis=1)
            )
        if layout.counts:
            rows[:, list(layout.counts)] = np.round(R @ density.rates)
        return like(rows, resp)

    def draw(
        self, density: ColumnDensity, block: Block, latent: Latent, labels: Array, rng: np.random.Generator
    ) -> Floats:
        drawn = np.zeros((len(block), self.layout.n_features))
        params = ColumnParams(
            None, *(np.zeros((len(density.constants), 0)),) * 3, density.rates, density.dispersions
        )
        layout = self.layout
        chances = np.exp(to_numpy(density.log_levels)).T
        for column, place in zip(layout.with_levels, levels.places(layout.all_sizes), strict=True):
            drawn[:, column] = drawn_labels(chances[labels, place].T, rng)
        counts_only = replace(
            self, layout=replace(layout, numbers=(), categories=(), sizes=(), ordered=(), cuts=())
        )
        if layout.counts:
            own = list(layout.counts)
            drawn[:, own] = counts_only.sample(params, labels, rng)[:, own]
        if latent.numbers_block is not None and latent.numbers_block.observed is not None:
            own = list(layout.numbers)
            drawn[:, own] = self.gaussian.draw(
                density.numbers, latent.numbers_block, latent.numbers, labels, rng
            )
        return drawn

    def floats_per_row(self, K: int, D: int, missing: bool) -> int:
        layout = self.layout
        numbers = self.gaussian.floats_per_row(K, len(layout.numbers), missing) if layout.numbers else 0
        return numbers + 4 * D + 2 * len(layout.with_levels) + 6 * K

    def factor_means(self, density: ColumnDensity, latent: Latent) -> Array:
        """E[z | x, k] (n, K, q)."""
        return self.gaussian.factor_means(density.numbers, latent.numbers)


@dataclass(frozen=True)
class ColumnMixture(Mixture):
    """The kernel; only numbers have moments."""

    def moments(self, params: MixtureParams) -> tuple[Array, Array]:
        layout: Layout = self.family.layout
        mean, deviation = np.zeros(layout.n_features), np.ones(layout.n_features)
        if layout.numbers:
            numbers = MixtureParams(params.weights, params.components.numbers)
            own = Mixture(self.family.gaussian).moments(numbers)
            mean[list(layout.numbers)], deviation[list(layout.numbers)] = map(to_numpy, own)
        return like(mean, params.weights), like(deviation, params.weights)

    def moments_of_missing(self, density: Any, block: Block) -> tuple[Array, Array]:
        """Expected entries and their variances; of a category the squared chance of another level."""
        family, layout = self.family, self.family.layout
        log_joint, latent = family.evaluate(density, block)
        resp = normalise(log_joint)[1]
        R = to_numpy(resp).T
        mean = to_numpy(family.expected(density, block, latent, resp.T))
        variance = np.zeros_like(mean)
        if latent.numbers_block is not None and latent.numbers_block.observed is not None:
            own = list(layout.numbers)
            for k in range(R.shape[1]):
                m, v = map(
                    to_numpy,
                    family.gaussian.moments_given(density.numbers, latent.numbers_block, latent.numbers, k),
                )
                variance[:, own] += R[:, k, None] * (v + (m - mean[:, own]) ** 2)
        chances = R @ np.exp(to_numpy(density.log_levels)).T
        for column, place in zip(layout.with_levels, levels.places(layout.all_sizes), strict=True):
            own_chances = chances[:, place]
            if column in layout.ordered:
                codes = np.arange(own_chances.shape[1])
                variance[:, column] = np.sum(
                    own_chances * (codes - mean[:, column : column + 1]) ** 2, axis=1
                )
            else:
                variance[:, column] = (1.0 - own_chances.max(axis=1)) ** 2
        for j, column in enumerate(layout.counts):
            mu, a = density.rates[:, j], density.dispersions[:, j]
            variance[:, column] = (
                R @ (mu + a * mu**2 + mu**2) - 2 * mean[:, column] * (R @ mu) + mean[:, column] ** 2
            )
        return like(mean, resp), like(variance, resp)


def _columns(block: Block, chosen: tuple[int, ...]) -> Block:
    """Some columns of the rows; without a mask if they are complete."""
    xp, index = namespace(block.X), np.array(chosen, dtype=np.int64)
    X = xp.take(block.X, like(index, block.X), axis=1)
    if block.observed is None:
        return Block(X, block.weight)
    observed = xp.take(block.observed, like(index, block.X), axis=1)
    return Block(X, block.weight, observed=None if bool(xp.all(observed)) else observed)


def _normalised(probabilities: Array, sizes: tuple[int, ...]) -> Array:
    xp = namespace(probabilities)
    if not sizes:
        return probabilities
    parts = [probabilities[:, place] for place in levels.places(sizes)]
    return xp.concat([part / xp.sum(part, axis=1, keepdims=True) for part in parts], axis=1)


def _copy(array: Array) -> Floats:
    return np.array(to_numpy(array))
