"""Normal distribution restricted to the non-negative numbers, accurate far in the tail.

    p(w) = N(w; mu, sigma^2) / Phi(t)   for w >= 0,    t = mu / sigma

E[w] = sigma (h + t) and Var[w] = sigma^2 (1 - h (h + t)) with the hazard h = phi(t) / Phi(t), both of which
cancel for t far below zero; `squashed_normal.hazards` gives them to full relative precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import special

from latently.backend.namespace import Floats
from latently.distributions.squashed_normal import hazards

_LOG_ROOT_2_PI = 0.5 * math.log(2 * math.pi)
_ROOT_2_OVER_PI = math.sqrt(2 / math.pi)
_FAR = -50.0  # below this a series has full precision
_VERY_FAR = -1e4  # below this the tail is exponential to single precision, and quantiles cancel


@dataclass(frozen=True)
class TruncatedNormal:
    """Independent entries w >= 0; `location` and `scale` are those before the restriction."""

    location: Floats  # mu, any shape
    scale: Floats  # sigma > 0, broadcast to the same shape

    def __post_init__(self) -> None:
        location, scale = np.broadcast_arrays(
            np.asarray(self.location, dtype=np.float64), np.asarray(self.scale, dtype=np.float64)
        )
        if not (np.all(np.isfinite(location)) and np.all(np.isfinite(scale)) and np.all(scale > 0)):
            raise ValueError("location must be finite, and scale finite and positive")
        object.__setattr__(self, "location", location)
        object.__setattr__(self, "scale", scale)

    @cached_property
    def expectation(self) -> Floats:
        return np.asarray(self.scale * self._beyond)

    @cached_property
    def second_moment(self) -> Floats:
        _, beyond, left = self._hazards
        return np.asarray(self.scale**2 * (left + beyond**2))

    @cached_property
    def variance(self) -> Floats:
        return np.asarray(self.scale**2 * self._hazards[2])

    @cached_property
    def entropy(self) -> Floats:
        """The differential entropy, which may be negative.

        ln(sigma sqrt(2 pi e)) + ln Phi(t) - t h / 2, whose last two terms grow as t^2 in the tail and cancel.
        """
        h, beyond, _ = self._hazards
        t = self._t
        below = t < 0
        near = np.where(below, 0.0, t)
        of_near = special.log_ndtr(near) - 0.5 * near * h
        of_tail = _log_scaled(np.where(below, t, 0.0)) - 0.5 * np.where(below, t, 0.0) * beyond
        return np.asarray(np.log(self.scale) + _LOG_ROOT_2_PI + 0.5 + np.where(below, of_tail, of_near))

    def log_prob(self, w: Floats) -> Floats:
        """ln p(w) of every entry, -inf where w < 0."""
        w = np.asarray(w, dtype=np.float64)
        t, u = self._t, np.maximum(w, 0.0) / self.scale
        below = t < 0
        of_near = -0.5 * (u - np.where(below, 0.0, t)) ** 2 - special.log_ndtr(np.where(below, 0.0, t))
        of_tail = u * (np.where(below, t, 0.0) - 0.5 * u) - _log_scaled(np.where(below, t, 0.0))
        inside = np.where(below, of_tail, of_near) - np.log(self.scale) - _LOG_ROOT_2_PI
        return np.asarray(np.where(w >= 0, inside, -np.inf))

    def sample(self, n_samples: int, rng: np.random.Generator) -> Floats:
        """(n_samples, ...) independent draws."""
        t = self._t
        u = 1.0 - rng.random((n_samples, *t.shape))  # in (0, 1]
        far = t < _VERY_FAR
        near = np.where(far, 0.0, t)
        e = -special.ndtri_exp(special.log_ndtr(near) + np.log(u))
        a = np.where(far, -t, 1.0)
        tail = -2.0 * np.log(u) / (np.sqrt(a**2 - 2.0 * np.log(u)) + a)
        return np.asarray(self.scale * np.where(far, tail, np.maximum(near + e, 0.0)))

    @cached_property
    def _t(self) -> Floats:
        return np.asarray(self.location / self.scale)

    @cached_property
    def _hazards(self) -> tuple[Floats, Floats, Floats]:
        return hazards(self._t)

    @property
    def _beyond(self) -> Floats:
        return self._hazards[1]


def _log_scaled(t: Floats) -> Floats:
    """ln Phi(t) + t^2 / 2, for t <= 0."""
    return np.asarray(np.log(0.5 * special.erfcx(-t / math.sqrt(2))))


def expectation_of(location: Any, scale: Any) -> Floats:
    """`TruncatedNormal.expectation` alone, to about twelve digits: for sweeps, which ask for little else."""
    t = location / scale
    beyond = t + _ROOT_2_OVER_PI / special.erfcx(-t / math.sqrt(2))
    far = t < _FAR
    if np.any(far):
        a2 = 1.0 / np.where(far, t * t, 1.0)
        tail = -a2 * t * (1 - a2 * (2 - a2 * (10 - a2 * (74 - a2 * 706))))
        beyond = np.where(far, tail, beyond)
    return np.asarray(scale * beyond)


def expectation_of_one(location: float, scale: float) -> float:
    """The same of one entry, for loops in which arrays would cost more than numbers."""
    t = location / scale
    if t < _FAR:
        return float(expectation_of(np.float64(location), np.float64(scale)))
    return scale * (t + _ROOT_2_OVER_PI / float(special.erfcx(-t / math.sqrt(2))))
