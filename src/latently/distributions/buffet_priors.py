"""Priors of the hyper-parameters of Indian-buffet models, without their normalising constants, and modes.

    alpha ~ Gamma(a, rate b)      sigma^2 ~ IG(a, b)

A conditional mode is the exact coordinate maximiser of the objective.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import xlogy

from latently.distributions.indian_buffet import harmonic


@dataclass(frozen=True)
class GammaPrior:
    """Of a concentration or a rate."""

    shape: float
    rate: float

    def log_prob(self, value: float) -> float:
        return float(xlogy(self.shape - 1.0, value)) - self.rate * value

    def mode(self, count: float, exposure: float) -> float:
        """Of value^count e^(-value exposure) times the prior."""
        return max(self.shape + count - 1.0, 0.0) / (self.rate + exposure)

    def concentration(self, n_columns: int, n_rows: int) -> float:
        """The mode of the concentration of an Indian buffet process."""
        return self.mode(n_columns, harmonic(n_rows))


@dataclass(frozen=True)
class InverseGammaPrior:
    """Of a variance."""

    shape: float
    scale: float

    def log_prob(self, variance: float) -> float:
        return -(self.shape + 1.0) * math.log(variance) - self.scale / variance

    def mode(self, sum_squares: float, count: float) -> float:
        """Of N(0, variance) densities with this sum of squares, times the prior."""
        return (self.scale + 0.5 * sum_squares) / (self.shape + 1.0 + 0.5 * count)


@dataclass(frozen=True)
class Priors:
    """Of the hyper-parameters of a model; `learn` says whether these move to their modes."""

    concentration: GammaPrior
    noise: InverseGammaPrior
    weights: InverseGammaPrior
    learn: bool = True


def log_new_column(concentration: float, n_rows: int) -> float:
    """ln alpha - ln N: the weight of a column that a row is the first to use."""
    return (math.log(concentration) if concentration > 0 else -math.inf) - math.log(n_rows)
