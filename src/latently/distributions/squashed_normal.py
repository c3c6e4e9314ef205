"""Squashed normal: the posterior of a Gaussian given a binary probit observation.

    y ~ N(mu, R)      P(z = 1 | y) = Phi(w'y + b)      p(y | z) = N(y; mu, R) Phi(g (w'y + b)) / Phi(g t)

with g = 2 z - 1, t = (w'mu + b) / s and s^2 = 1 + w'R w. Without the one in s^2 the observation is sharp: z =
1 exactly where w'y + b > 0 (the Heaviside case), and p(y | z) is a Gaussian truncated at a hyperplane.

Moments need the hazard h(t) = phi(t) / Phi(t) and its derivative. For improbable labels Phi underflows (at
t = -38), and h + t and 1 - h (h + t) cancel; logarithms and a continued fraction keep full precision.
Formulas: docs/squashed_normal.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, special

from latently.backend.namespace import Array, Floats, log_ndtr, namespace

_TAIL = -6.0  # below this the continued fraction is more accurate
_TERMS = 80  # of it: enough for full precision in the worst case


@dataclass(frozen=True)
class SquashedNormal:
    """The distribution of y given the label z."""

    mean: Floats  # (d,): mu
    covariance: Floats  # (d, d): R, positive definite
    coef: Floats  # (d,): w
    intercept: float  # b
    label: int  # z, 0 or 1
    sharp: bool = False  # whether the observation is a step function, the Heaviside case

    def __post_init__(self) -> None:
        mean, covariance, coef = (
            np.asarray(a, dtype=np.float64) for a in (self.mean, self.covariance, self.coef)
        )
        d = mean.shape[0] if mean.ndim == 1 else 0
        if d == 0 or covariance.shape != (d, d) or coef.shape != (d,):
            raise ValueError(
                f"mean, covariance and coef must have shapes (d,), (d, d) and (d,), not {mean.shape}, "
                f"{covariance.shape} and {coef.shape}"
            )
        if not all(np.all(np.isfinite(a)) for a in (mean, covariance, coef, self.intercept)):
            raise ValueError("mean, covariance, coef and intercept must be finite")
        if self.label not in (0, 1):
            raise ValueError(f"label must be 0 or 1, not {self.label!r}")
        if np.any(np.abs(covariance - covariance.T) > 1e-8 * np.max(np.abs(covariance))):
            raise ValueError("covariance must be symmetric")
        if self.sharp and not np.any(coef):
            raise ValueError("coef must not be zero: a sharp answer would not depend on y")
        for name, value in (("mean", mean), ("covariance", covariance), ("coef", coef)):
            object.__setattr__(self, name, value)
        values = linalg.eigvalsh(covariance)
        if values[0] <= 1e-14 * values[-1]:
            raise ValueError("covariance must be positive definite")

    def log_prob(self, y: Floats) -> Floats:
        """ln p(y | z) of rows (..., d)."""
        y = np.asarray(y, dtype=np.float64)
        rows = np.reshape(y - self.mean, (-1, len(self.mean)))
        whitened = linalg.solve_triangular(self._root, rows.T, lower=True)
        quadratic = np.sum(whitened**2, axis=0).reshape(y.shape[:-1])
        log_det = 2.0 * np.sum(np.log(np.diagonal(self._root)))
        gaussian = -0.5 * (len(self.mean) * math.log(2 * math.pi) + log_det + quadratic)
        answer = self._sign * (y @ self.coef + self.intercept)
        seen = np.where(answer > 0, 0.0, -np.inf) if self.sharp else special.log_ndtr(answer)
        return np.asarray(gaussian + seen - self.log_normaliser)

    @cached_property
    def log_normaliser(self) -> float:
        """ln P(z), the log-probability of the label."""
        return float(special.log_ndtr(self._t))

    @cached_property
    def expectation(self) -> Floats:
        """(d,) E[y | z]."""
        hazard, _, _ = hazards(np.array(self._t))
        return np.asarray(self.mean + self._sign * float(hazard) / self._s * (self.covariance @ self.coef))

    @cached_property
    def variance(self) -> Floats:
        """(d, d) the covariance of y given z."""
        Rw = self.covariance @ self.coef
        wRw = float(self.coef @ Rw)
        _, _, left = hazards(np.array(self._t))
        # R minus the part along w, plus its remaining variance: 1 - h (h + t) wRw / s^2, without cancellation
        kept = (self._noise + wRw * float(left)) / self._s**2
        if wRw == 0.0:
            return self.covariance
        along = np.outer(Rw, Rw) / wRw
        return np.asarray(self.covariance - along + kept * along)

    def sample(self, n_samples: int, rng: np.random.Generator) -> Floats:
        """(n, d) samples: first w'y given the label, then the rest of y given w'y."""
        Rw = self.covariance @ self.coef
        wRw = float(self.coef @ Rw)
        y = self.mean + rng.standard_normal((n_samples, len(self.mean))) @ self._root.T
        if wRw == 0.0:
            return np.asarray(y)
        # v = w'y + b + noise has standard deviation s, and the label implies g v > 0; in units of s, g v = t
        # + e
        e = truncated_normal(-self._t, n_samples, rng)
        centred = self._sign * self._s * e  # v minus its mean
        noise = math.sqrt(self._noise) * rng.standard_normal(n_samples)
        drawn = (y - self.mean) @ self.coef + noise
        return np.asarray(y + np.outer(centred - drawn, Rw / self._s**2))

    @property
    def _sign(self) -> float:
        return 2.0 * self.label - 1.0

    @property
    def _noise(self) -> float:
        return 0.0 if self.sharp else 1.0

    @cached_property
    def _s(self) -> float:
        return math.sqrt(self._noise + float(self.coef @ self.covariance @ self.coef))

    @cached_property
    def _t(self) -> float:
        """g t: signed distance of the mean from the boundary towards the label, in units of s."""
        return self._sign * (float(self.coef @ self.mean) + self.intercept) / self._s

    @cached_property
    def _root(self) -> Floats:
        return np.asarray(linalg.cholesky(self.covariance, lower=True))


def hazards(t: Array) -> tuple[Array, Array, Array]:
    """h(t) = phi(t) / Phi(t), h + t, and 1 - h (h + t), to full relative precision.

    A standard normal e given e > -t has mean h and variance 1 - h (h + t).
    """
    xp = namespace(t)
    shape, t = t.shape, xp.reshape(t, (-1,))
    far = t < _TAIL
    near = xp.where(far, 0.0, t)
    h = xp.exp(-0.5 * near**2 - 0.5 * math.log(2 * math.pi) - log_ndtr(near))
    beyond, left = h + near, 1.0 - h * (h + near)
    if bool(xp.any(far)):
        # h(-x) = x + 1 / (x + 2 / (x + 3 / ...)) (Laplace)
        x = -t[far]
        fraction = x
        for k in range(_TERMS, 1, -1):
            previous = k / fraction
            fraction = x + previous
        c = 1.0 / fraction  # h - x, where `previous` is 2 / (x + 3 / ...)
        h[far], beyond[far], left[far] = x + c, c, c * (previous - c)
    return xp.reshape(h, shape), xp.reshape(beyond, shape), xp.reshape(left, shape)


def truncated_normal(least: float, n_samples: int, rng: np.random.Generator) -> Floats:
    """(n,) standard normal draws above `least`, accurate far in the tail."""
    u = 1.0 - rng.random(n_samples)  # in (0, 1]
    return np.asarray(-special.ndtri_exp(special.log_ndtr(-least) + np.log(u)))
