"""Stepwise EM: parameters move after every batch of rows, not after all of them.

The statistics of the batches are blended, each new one with a share that shrinks as (t + offset)^-decay, so
that noise averages out and what was learnt under early parameters is forgotten. Cappe & Moulines (2009),
Journal of the Royal Statistical Society B 71; the fixed points are those of EM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from latently.core.drivers import Kernel
from latently.core.tree import add, mapped


@dataclass(frozen=True)
class Online:
    """Where stepwise EM stands."""

    params: Any
    stats: Any  # blended, of one unit of weight; None before the first batch
    n_steps: int = 0

    def step(self, kernel: Kernel, sweep: Any, *, decay: float, offset: float) -> tuple[Online, float, float]:
        """After one batch; and the log-likelihood of the batch before it, in its frame, and its weight."""
        density = kernel.prepare(self.params)
        sums = sweep.sum(kernel.e_step, density)
        if sums is None:  # no row says anything
            return self, 0.0, 0.0
        stats: Any = kernel.stats(density, sums)
        weight = float(stats.total_weight)
        log_likelihood = float(stats.log_likelihood)
        stats = mapped(lambda field: field / weight, stats)
        if self.stats is not None:
            share = (self.n_steps + offset) ** -decay
            older = mapped(lambda field: field * (1.0 - share), self.stats)
            stats = add(older, mapped(lambda field: field * share, stats))
        params = kernel.m_step(stats, self.params)
        return replace(self, params=params, stats=stats, n_steps=self.n_steps + 1), log_likelihood, weight
