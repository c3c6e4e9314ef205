"""Random numbers that belong to rows: the same for a row whatever rows stand beside it.

Methods that estimate by draws, such as importance sampling, so have results for each row that depend on that
row and a seed alone: not on blocks, threads, order or device. Draws are a hash of the row, the seed and a
counter (the finaliser of splitmix64), which costs a few integer operations each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latently.backend.hashing import row_hashes
from latently.training.generators import seed_of

_GOLDEN = -7046029254386353131  # 2^64 divided by the golden ratio, as a signed integer
_FIRST, _SECOND = -4658895280553007687, -7723592293110705685


class RowDraws:
    """A stream of random numbers for every row of X, (n, D)."""

    def __init__(self, X: Tensor, random_state: Any):
        seed = torch.tensor([seed_of(random_state)], device=X.device)
        hashes = torch.from_numpy(np.ascontiguousarray(row_hashes(X))).to(X.device)
        self._keys = _mixed(hashes ^ _mixed(seed * _GOLDEN))  # (n,)
        self._n_drawn = 0

    def uniform(self, *shape: int) -> Tensor:
        """The next numbers between 0 and 1, (n, *shape), in float64."""
        size = math.prod(shape)
        counter = torch.arange(self._n_drawn + 1, self._n_drawn + size + 1, device=self._keys.device)
        self._n_drawn += size
        bits = _mixed(self._keys[:, None] + counter * _GOLDEN)
        return ((_shifted(bits, 11) + 0.5) * 2.0**-53).reshape(-1, *shape)

    def normal(self, *shape: int) -> Tensor:
        """The next standard normal numbers, (n, *shape), in float64."""
        size = math.prod(shape)
        pair = self.uniform(2, -(-size // 2))
        radius, angle = torch.sqrt(-2.0 * torch.log(pair[:, 0])), 2.0 * math.pi * pair[:, 1]
        both = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1)
        return both[:, :size].reshape(-1, *shape)


def _mixed(z: Tensor) -> Tensor:
    """The finaliser of splitmix64, modulo 2^64."""
    z = (z ^ _shifted(z, 30)) * _FIRST
    z = (z ^ _shifted(z, 27)) * _SECOND
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, n: int) -> Tensor:
    """A shift to the right that fills up with zeros."""
    return (z >> n) & ((1 << (64 - n)) - 1)
