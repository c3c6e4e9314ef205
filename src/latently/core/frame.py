"""Internal coordinates of kernels: x = shift + scale * u.

Quadratic forms of data far from the origin lose precision, and squares of 1e155 overflow. Therefore the data
are centred, in float64, and divided by powers of two (which is exact) block by block before they enter a
kernel; parameters are converted at the start and the end of a fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from latently.backend.namespace import Array, double, is_torch, namespace, scaled_and_shifted, zero_where
from latently.core.block import Block

_LARGEST = 1e150  # of the origin in the frame


@dataclass(frozen=True)
class Frame:
    """The map x = shift + scale * u between the user's units x and the kernel's u.

    log p(x) = log p(u) - sum of log scale, over the observed features.
    """

    shift: Array  # (D,)
    scale: Array  # (D,), powers of two

    @classmethod
    def around(cls, mean: Array, deviation: Array, *, isotropic: bool) -> Frame:
        """Centred at `mean`, with about unit standard deviation per feature; one common scale if `isotropic`.

        A constant feature gets the scale of the others.
        """
        xp = namespace(mean)
        varies = deviation > 0
        largest = float(xp.max(deviation)) or 1.0
        relative = deviation / largest  # squares stay in range
        n_varying = max(1, int(xp.sum(xp.astype(varies, xp.int64))))
        typical = largest * math.sqrt(float(xp.sum(relative**2)) / n_varying or 1.0)
        scale = xp.where(varies & (not isotropic), deviation, typical)
        return cls(mean, 2.0 ** xp.round(xp.log2(scale)))

    @classmethod
    def identity(cls, row: Array) -> Frame:
        """In which rows like this one (D,) stay as they are."""
        zeros = namespace(row).zeros_like(row)
        return cls(zeros, zeros + 1.0)

    def enter(self, block: Block) -> Block:
        """The rows in this frame, in float64; missing entries are zero, which is the mean."""
        if self._at_once is not None:
            u = scaled_and_shifted(double(block.X), *self._at_once)
        else:
            u = double(block.X) - self.shift
            u *= 1.0 / self.scale
        if block.observed is not None:
            u = zero_where(~block.observed, u)
        return replace(block, X=u)

    @cached_property
    def _at_once(self) -> tuple[Array, Array] | None:
        """Factors and offsets by which tensors enter in one step; None where that could overflow.

        Factors are powers of two, so the result is the same to the last digit.
        """
        factor = 1.0 / self.scale
        offset = -self.shift * factor
        xp = namespace(offset)
        if not is_torch(offset) or not bool(xp.all(xp.abs(offset) < _LARGEST)):
            return None
        return factor, offset

    def log_scale(self) -> Array:
        """(D,)"""
        return namespace(self.scale).log(self.scale)

    def log_volume(self, block: Block) -> Array:
        """Log density of each row in the frame minus that in the user's units: () or (n,)."""
        xp = namespace(self.scale)
        if block.observed is None:
            return xp.sum(self.log_scale())
        return xp.astype(block.observed, xp.float64) @ self.log_scale()
