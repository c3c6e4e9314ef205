"""Free parameters of deep mixtures: the dimension of the set of their densities at a generic point.

All parameters are counted, minus the redundant directions that leave the density unchanged. Factors z of a
node can be shifted and their basis changed, z -> B z, if the layers above compensate for it. But noise must
stay diagonal: off-diagonal entries of B psi + psi B' are allowed only where the factors above can absorb
them, as a symmetric matrix X that is added to the covariances of all leaves. So every mixture or component
above imposes a number of equations on B and X, and the solutions are counted:

    changes of basis          max(q, q^2 - equations): scaling of factors is always free
    those, and X as well      max(2 q, q^2 + q (q + 1) / 2 - equations)

Not proved, but verified against the ranks of Jacobian matrices (tests/deep).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Counted:
    size: int  # dimension of means and covariances of the leaves
    leaves: int
    equations: int  # imposed on changes of the factors below
    factors: int


def n_structure_parameters(parents, factors, D, *, common):
    """Free parameters of a tree, without weights.

    `parents` are those of the components of every layer above the first, `factors` the numbers of factors.
    """
    n_layers = len(factors)

    def component(height, number, p):
        """A component with own loadings, in p dimensions."""
        q = factors[height]
        if height == n_layers - 1:
            return leaf(p, q)
        above = [component(height + 1, child, q) for child in np.flatnonzero(parents[height] == number)]
        return joined(above, p, q, 2 * p + p * q)

    def mixture(height, numbers, p):
        """A mixture with common loadings and the components `numbers`, in p dimensions."""
        q = factors[height]
        if height == n_layers - 1:
            n = len(numbers)
            return leaf(p, q) if n == 1 else closed(p, q, n, p + p * q + n * _full(q) - q * q, _half(q))
        above = [mixture(height + 1, np.flatnonzero(parents[height] == number), q) for number in numbers]
        return joined(above, p, q, p + p * q)

    def leaf(p, q):
        """A single Gaussian is a factor analyser for any number of layers; common loadings span its mean."""
        taken = p * q - q * (q - 1) // 2
        size = p + taken + (q if common else p)
        taken -= (p - q) if common else 0
        return Counted(min(size, _full(p)), 1, max(0, p * (p - 1) // 2 - taken), q)

    def joined(above, p, q, own):
        leaves, equations = sum(one.leaves for one in above), sum(one.equations for one in above)
        if leaves == 1:
            return leaf(p, q)
        free = max(q, q * q - equations)
        taken = min(_half(q), max(2 * q, q * q + _half(q) - equations) - free)
        if len(above) == 1:  # leaves differ only in the span of its loadings, so other directions may rotate
            taken += (p - q) * (q - above[0].factors)
        size = own + sum(one.size for one in above) - free - (0 if common else q)
        return closed(p, q, leaves, size, taken)

    def closed(p, q, leaves, size, taken):
        equations = p * (p - 1) // 2 - taken
        return Counted(min(size + min(0, equations), leaves * _full(p)), leaves, max(0, equations), q)

    n_first = int(parents[0].max()) + 1
    if common:
        return int(mixture(0, np.arange(n_first), D).size)
    return int(sum(component(0, c, D).size for c in range(n_first)))


def _half(q):
    """Free entries of a symmetric matrix."""
    return q * (q + 1) // 2


def _full(q):
    """Free entries of a mean and an unrestricted covariance matrix."""
    return q + _half(q)
