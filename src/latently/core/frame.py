"""The coordinates in which kernels work: x = shift + scale * u.

Quadratic forms of data far from the origin lose their digits, and squares of 1e155 overflow. So the
data are centred, in float64, and divided by powers of two (which costs no digit) block by block on
their way into a kernel; parameters are carried over at the start and the end of a fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from latently.backend.namespace import Array, double, namespace


@dataclass(frozen=True)
class Frame:
    """The map x = shift + scale * u between the user's units x and the kernel's u."""

    shift: Array  # (D,)
    scale: Array  # (D,), powers of two
    log_volume: float  # sum of log scale: log p(x) = log p(u) - log_volume

    @classmethod
    def around(cls, mean: Array, deviation: Array, *, isotropic: bool) -> Frame:
        """Centred on `mean`, each feature of about unit deviation; one common scale if `isotropic`.

        A feature that does not vary takes the scale of the others.
        """
        xp = namespace(mean)
        varies = deviation > 0
        largest = float(xp.max(deviation)) or 1.0
        relative = deviation / largest  # so that its squares stay in range
        n_varying = max(1, int(xp.sum(xp.astype(varies, xp.int64))))
        typical = largest * math.sqrt(float(xp.sum(relative**2)) / n_varying or 1.0)
        scale = xp.where(varies & (not isotropic), deviation, typical)
        exponent = xp.round(xp.log2(scale))
        return cls(mean, 2.0**exponent, float(xp.sum(exponent)) * math.log(2.0))

    def enter(self, X: Array) -> Array:
        """The rows in this frame, in float64."""
        u = double(X) - self.shift
        u *= 1.0 / self.scale
        return u
