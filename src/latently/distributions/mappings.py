"""Maps f from sources s to features u = f(s), entry by entry: X ~ f(S) A + b.

    tanh        u = tanh s              -1 < u < 1
    logistic    u = 1 / (1 + e^-s)       0 < u < 1
    ratio       u = s / (1 + s)          0 <= u < 1, s >= 0
    identity    u = s

All increase, and |f^-1(u)| is a convex function of u, so that a penalty alpha |s| is convex in u. Where the
best u is at the end of the range, s would be infinite: |s| never exceeds `limit`, at which u differs from the
end by rounding only (by 1e-12 for the ratio).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from latently.backend.namespace import Array, namespace


class Mapping(Protocol):
    """A map f; `zero` is f(0), `slope` is f'(0), and `low`, `high` are the ends of u = f(s) for |s| <=
    limit.
    """

    @property
    def zero(self) -> float: ...
    @property
    def slope(self) -> float: ...
    @property
    def limit(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...

    def value(self, s: Array) -> Array:
        """f(s)."""

    def derivative(self, s: Array) -> Array:
        """f'(s)."""

    def inverse(self, u: Array) -> Array:
        """s = f^-1(u), for u between `low` and `high`."""

    def steepness(self, u: Array) -> Array:
        """ds/du = 1 / f'(s)."""

    def bend(self, u: Array) -> Array:
        """d2s/du2, which is not negative where s is not."""


@dataclass(frozen=True)
class Tanh:
    zero: float = 0.0
    slope: float = 1.0
    limit: float = 18.0
    low: float = -float(np.tanh(18.0))
    high: float = float(np.tanh(18.0))

    def value(self, s: Array) -> Array:
        return namespace(s).tanh(s)

    def derivative(self, s: Array) -> Array:
        xp = namespace(s)
        e = xp.exp(-2.0 * xp.abs(s))
        return 4.0 * e / (1.0 + e) ** 2

    def inverse(self, u: Array) -> Array:
        return namespace(u).atanh(u)

    def steepness(self, u: Array) -> Array:
        return 1.0 / ((1.0 - u) * (1.0 + u))

    def bend(self, u: Array) -> Array:
        return 2.0 * u / ((1.0 - u) * (1.0 + u)) ** 2


@dataclass(frozen=True)
class Logistic:
    zero: float = 0.5
    slope: float = 0.25
    limit: float = 36.0
    low: float = float(np.exp(-36.0) / (1.0 + np.exp(-36.0)))
    high: float = float(1.0 / (1.0 + np.exp(-36.0)))

    def value(self, s: Array) -> Array:
        xp = namespace(s)
        e = xp.exp(-xp.abs(s))
        return xp.where(s >= 0, 1.0, e) / (1.0 + e)

    def derivative(self, s: Array) -> Array:
        xp = namespace(s)
        e = xp.exp(-xp.abs(s))
        return e / (1.0 + e) ** 2

    def inverse(self, u: Array) -> Array:
        xp = namespace(u)
        return xp.log(u / (1.0 - u))

    def steepness(self, u: Array) -> Array:
        return 1.0 / (u * (1.0 - u))

    def bend(self, u: Array) -> Array:
        return (2.0 * u - 1.0) / (u * (1.0 - u)) ** 2


@dataclass(frozen=True)
class Ratio:
    zero: float = 0.0
    slope: float = 1.0
    limit: float = 1e12
    low: float = 0.0
    high: float = 1e12 / (1.0 + 1e12)

    def value(self, s: Array) -> Array:
        return s / (1.0 + s)

    def derivative(self, s: Array) -> Array:
        return 1.0 / (1.0 + s) ** 2

    def inverse(self, u: Array) -> Array:
        return u / (1.0 - u)

    def steepness(self, u: Array) -> Array:
        return 1.0 / (1.0 - u) ** 2

    def bend(self, u: Array) -> Array:
        return 2.0 / (1.0 - u) ** 3


@dataclass(frozen=True)
class Identity:
    zero: float = 0.0
    slope: float = 1.0
    limit: float = float("inf")
    low: float = -float("inf")
    high: float = float("inf")

    def value(self, s: Array) -> Array:
        return s

    def derivative(self, s: Array) -> Array:
        return namespace(s).ones_like(s)

    def inverse(self, u: Array) -> Array:
        return u

    def steepness(self, u: Array) -> Array:
        return namespace(u).ones_like(u)

    def bend(self, u: Array) -> Array:
        return namespace(u).zeros_like(u)


IDENTITY = Identity()
MAPPINGS: dict[str, Mapping] = {
    "tanh": Tanh(),
    "logistic": Logistic(),
    "ratio": Ratio(),
    "identity": IDENTITY,
}
