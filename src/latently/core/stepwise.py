"""Stepwise EM: parameters move after every batch of rows, not after all of them.

The statistics of the batches are blended, each new one with a share that shrinks as (t + offset)^-decay, so
that noise averages out and what was learnt under early parameters is forgotten. Cappe & Moulines (2009),
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
    """What a mini-batch is among all rows."""

    size: float  # rows, of those a full batch has
    full_weight: float  # what a full batch weighs on average


@dataclass(frozen=True)
class Online:
    """Where stepwise EM stands."""

    params: Any
    stats: Any  # blended, of one unit of weight; None before the first batch
    n_steps: int = 0

    def step(
        self, kernel: Kernel, sweep: Any, *, decay: float, offset: float, batch: Batch | None = None
    ) -> tuple[Online, float, float]:
        """After one batch; and the log-likelihood of the batch before it, in its frame, and its weight.

        A batch of a stream counts as a whole. One of known data counts by its size and weight among them, so
        that all rows do alike.
        """
        density = kernel.prepare(self.params)
        sums = sweep.sum(kernel.e_step, density)
        if sums is None:  # no row says anything
            return self, 0.0, 0.0
        stats: Any = kernel.stats(density, sums)
        weight = float(stats.total_weight)
        log_likelihood = float(stats.log_likelihood)
        if not math.isfinite(log_likelihood):
            raise ValueError(
                "X holds values so far from those seen before that their density vanishes; check X"
            )
        if self.stats is None:
            stats = mapped(lambda field: field / weight, stats)
        else:
            share = (self.n_steps + offset) ** -decay
            size, full_weight = (1.0, weight) if batch is None else (batch.size, batch.full_weight)
            older = mapped(lambda field: field * (1.0 - share * size), self.stats)
            stats = add(older, mapped(lambda field: field * (share / full_weight), stats))
        params = kernel.m_step(stats, self.params)
        return replace(self, params=params, stats=stats, n_steps=self.n_steps + 1), log_likelihood, weight
