"""Stepwise EM: parameters are updated after every batch of rows.

The statistics of the batches are averaged, each new batch with a step size (t + offset)^-decay, so that noise
averages out and statistics of early parameters are forgotten. Cappe & Moulines (2009),
Journal of the Royal Statistical Society B 71; the fixed points are those of EM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from latently.core.kernel import Kernel
from latently.core.tree import add, mapped


@dataclass(frozen=True)
class Batch:
    """Size and weight of a mini-batch relative to all rows."""

    size: float  # rows, as a fraction of a full batch
    full_weight: float  # mean weight of a full batch
    total_weight: float  # of all rows


@dataclass(frozen=True)
class Online:
    """State of stepwise EM."""

    params: Any
    stats: Any  # averaged, per unit of weight; None before the first batch
    n_steps: int = 0
    weight: float = 0.0  # of the rows seen; zero if the statistics are those of given parameters

    def step(
        self, kernel: Kernel, sweep: Any, *, decay: float, offset: float, batch: Batch | None = None
    ) -> tuple[Online, float, float]:
        """State after one batch; the log-likelihood of the batch before the update, in its frame; its weight.

        The step size of a batch of a stream does not depend on its size. That of a mini-batch of known data
        is proportional to its size and weight, so that all rows count equally.
        """
        density = kernel.prepare(self.params)
        sums = sweep.sum(kernel.e_step, density)
        if sums is None:  # no row has weight and observed entries
            return self, 0.0, 0.0
        stats: Any = kernel.stats(density, sums)
        weight = float(stats.total_weight)
        log_likelihood = float(stats.log_likelihood)
        if not math.isfinite(log_likelihood):
            raise ValueError(
                "X holds values so far from those seen before that their density underflows; check X"
            )
        seen = self.weight + weight
        if self.stats is None:
            stats = mapped(lambda field: field / weight, stats)
        else:
            share = (self.n_steps + offset) ** -decay
            size, full_weight = (1.0, weight) if batch is None else (batch.size, batch.full_weight)
            if self.weight == 0.0:  # given parameters stand for as many rows as the step size tells
                seen = weight / share
            older = mapped(lambda field: field * (1.0 - share * size), self.stats)
            stats = add(older, mapped(lambda field: field * (share / full_weight), stats))
        kernel = kernel.of_unit_weight(seen if batch is None else batch.total_weight)
        params = kernel.m_step(stats, self.params)
        moved = replace(self, params=params, stats=stats, n_steps=self.n_steps + 1, weight=seen)
        return moved, log_likelihood, weight
