"""Columns of counts: Poisson, or negative binomial where a component is more dispersed than Poisson.

    x | k ~ NB(mean mu_k, dispersion a_k),   variance mu + a mu^2;   a = 0 is Poisson

K components, J columns, r = 1 / a. A negative binomial variable is Poisson with a gamma distributed rate of
shape r and mean mu. Its mean has a closed form; for the shape the rate is a latent variable, whose expected
logarithm needs the sums of psi(x + r) over rows:

    mu   the root of (n + b) mu^2 - (sum x + b m0 - b r) mu - b m0 r = 0      (b = 0: the mean of x)
    r    ln r - psi(r) = ln mu + M / mu - 1 - L,   M and L the means of E[rate] and E[ln rate] at the new mu

with b pseudo-rows of mean m0 and shape r0 as a prior. Neither step lowers the objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, digamma, gammaln, polygamma

from latently.backend.namespace import Array, Floats, like, namespace, to_numpy

SMALLEST_MEAN = 1e-10
DISPERSIONS = (1e-6, 1e3)
_LARGE = 1e3  # shapes above it use Stirling's series, whose large terms cancel on paper
_TABLE = 4096  # counts below it are looked up
_STEPS = 50


@dataclass(frozen=True)
class CountPrior:
    rows: float
    means: Floats  # (J,)
    shapes: Floats  # (J,)


def log_mass(x: Floats, mean: Floats, dispersion: Floats) -> Floats:
    """ln p(x) for arrays that broadcast."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        poisson = x * np.log(mean) - mean - gammaln(x + 1.0)
        r = 1.0 / np.where(dispersion > 0, dispersion, 1.0)
        usual = -betaln(r, x + 1.0) - np.log(x + r) + x * np.log(mean / (r + mean)) - r * np.log1p(mean / r)
        series = (1 / (x + r) - 1 / r) / 12 - (1 / (x + r) ** 3 - 1 / r**3) / 360
        large = (x + r - 0.5) * np.log1p(x / r) - x + series + x * np.log(mean) - (r + x) * np.log1p(mean / r)
        negative_binomial = np.where(r >= _LARGE, large - gammaln(x + 1.0), usual)
    found: Floats = np.where(dispersion > 0, negative_binomial, poisson)
    return found


def log_mass_size(mean: Floats) -> float:
    """The size of terms that cancel in `log_mass`: rounding is relative to it."""
    return float(np.sum(mean * np.log1p(mean), axis=-1).max(initial=0.0))


def looked_up(fn: Callable[..., Floats], x: Array, mean: Floats, dispersion: Floats) -> Array:
    """(K, n) of a function of counts and the parameters (K,) of a column; small counts from a table."""
    xp = namespace(x)
    counts = to_numpy(x)
    largest = counts.max(initial=0.0)
    mean, dispersion = mean[:, None], dispersion[:, None]
    if largest < min(_TABLE, max(64, counts.size)):
        table = fn(np.arange(largest + 1.0)[None, :], mean, dispersion)
        return xp.take(like(table, x), xp.astype(x, xp.int64), axis=1)
    return like(fn(counts[None, :], mean, dispersion), x)


def digamma_of(x: Floats, mean: Floats, dispersion: Floats) -> Floats:
    """psi(x + r), zero for Poisson columns."""
    r = 1.0 / np.where(dispersion > 0, dispersion, 1.0)
    return np.where(dispersion > 0, digamma(x + r), 0.0)


def maximised(
    n: Floats, sum_x: Floats, sum_digamma: Floats, mean: Floats, dispersion: Floats, prior: CountPrior | None
) -> tuple[Floats, Floats]:
    """Means and dispersions (K, J) after a step from those given; unchanged where there are no rows."""
    prior = CountPrior(0.0, np.ones(n.shape[1]), np.ones(n.shape[1])) if prior is None else prior
    rows, m0, r0 = prior.rows, prior.means, prior.shapes
    known = n + rows > 0
    size = np.where(known, n + rows, 1.0)
    poisson = dispersion == 0
    r = 1.0 / np.where(poisson, 1.0, dispersion)
    half = 0.5 * (sum_x + rows * m0 - rows * r) / size
    new = half + np.sqrt(half**2 + rows * m0 * r / size)
    new = np.where(poisson, (sum_x + rows * m0) / size, new)
    new = np.maximum(np.where(known, new, mean), SMALLEST_MEAN)
    share = np.where(n > 0, n, 1.0)
    rate = (sum_x / share + r) / (1.0 + r / new)
    log_rate = sum_digamma / share - np.log1p(r / new)
    first, second = np.where(n > 0, rate, 0.0), np.where(n > 0, log_rate, 0.0)
    first = (n * first + rows * m0) / size
    second = (n * second + rows * (np.log(m0) - _gap(r0))) / size
    found = shape_of(np.log(new) + first / new - 1.0 - second)
    return new, np.where(poisson | ~known, dispersion, np.clip(1.0 / found, *DISPERSIONS))


def shape_of(gap: Floats) -> Floats:
    """r with ln r - psi(r) = gap, by Newton's steps in ln r; a vanishing gap is a very large shape."""
    gap = np.maximum(gap, 1e-12)
    r = (3.0 - gap + np.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)
    for _ in range(_STEPS):
        error = _gap(r) - gap
        slope = 1.0 - r * polygamma(1, r)  # of the gap by ln r, below zero
        step = np.clip(-error / np.minimum(slope, -1e-300), -2.0, 2.0)
        r = np.clip(r * np.exp(step), 1e-8, 1e12)
        if np.all(np.abs(step) < 1e-12):
            break
    return r


def log_prior(prior: CountPrior, mean: Floats, dispersion: Floats) -> Floats:
    """(K, J) what the pseudo-rows add: zero at their own mean and shape, below zero elsewhere."""
    poisson = dispersion == 0
    m0, r0 = prior.means, prior.shapes
    r = 1.0 / np.where(poisson, 1.0, dispersion)
    of_poisson = m0 * np.log(mean / m0) - mean + m0
    of_gamma = _log_gamma_density(r, mean, m0, r0) - _log_gamma_density(r0, m0, m0, r0)
    return prior.rows * np.where(poisson, of_poisson, of_gamma)


def _log_gamma_density(r: Floats, mean: Floats, m0: Floats, r0: Floats) -> Floats:
    """Expected ln gamma density of a rate with mean m0 and expected logarithm ln m0 - gap(r0)."""
    found: Floats = r * np.log(r / mean) - gammaln(r) + (r - 1.0) * (np.log(m0) - _gap(r0)) - r * m0 / mean
    return found


def _gap(r: Floats) -> Floats:
    """ln r - psi(r)"""
    r = np.asarray(r, dtype=np.float64)
    large = 1 / (2 * r) + 1 / (12 * r**2) - 1 / (120 * r**4)
    return np.where(r > _LARGE, large, np.log(r) - digamma(np.minimum(r, _LARGE)))


def implied_digamma(mean: Floats, dispersion: Floats) -> Floats:
    """The mean of psi(x + r) for which the step stays at these parameters."""
    r = 1.0 / np.where(dispersion > 0, dispersion, 1.0)
    return np.where(dispersion > 0, np.log(mean) - _gap(r) + np.log1p(r / mean), 0.0)
