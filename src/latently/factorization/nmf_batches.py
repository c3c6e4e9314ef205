"""NMF by mini-batches: activations of a batch, then components from sums over all batches so far.

    sums <- (1 - share) sums + share sums of the batch, per unit of weight,     share = (t + offset)^-decay

Batch t is one of a random partition of the rows, drawn anew for every pass. The cost of a pass is that of its
batches as they are met, before they move the components; it is noisy and does not guide the steps.
Mairal, Bach, Ponce & Sapiro (2010), JMLR 11.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from latently.backend.namespace import namespace
from latently.core.alternation import Point
from latently.core.data import Data
from latently.core.drivers import run_passes
from latently.core.tree import add, mapped
from latently.distributions.nonnegative import Codebook, How, Penalty
from latently.estimators import fitting
from latently.estimators.randomness import as_random_state


@dataclass(frozen=True)
class Learnt:
    """State after some batches."""

    components: Any
    sums: Any  # discounted, per unit of weight; None before the first batch
    n_batches: int
    seed: int


def after_batch(
    sweeps: Any, weight: float, components: Any, earlier: Any, share: float
) -> tuple[Any, Any, float]:
    """Components after a batch of this weight, the discounted sums, and the cost of the batch before.

    `earlier` are the sums so far; None if there are none, or the function that makes them of the batch's.
    """
    loss, xp = sweeps.loss, namespace(components)
    codebook = Codebook.of(xp.astype(components, getattr(xp, sweeps.dtype), copy=False))
    sums = sweeps.over(sweeps.data).sum(solved_sums, loss, codebook)
    cost = sweeps.cost(sums, components)
    sums = mapped(lambda array: array / weight, loss.kept(sums, components))
    earlier = earlier(sums) if callable(earlier) else earlier
    if earlier is not None:
        sums = add(mapped(lambda a: (1 - share) * a, earlier), mapped(lambda a: share * a, sums))
    per_row = Penalty(sweeps.penalty.l1 / weight, sweeps.penalty.l2 / weight)
    return loss.from_kept(sums, components, per_row), sums, cost


def solved_sums(loss: Any, codebook: Any, block: Any) -> Any:
    """Sums over a block with the activations that minimise the loss."""
    state = loss.solved(codebook.components, block).T
    return loss.rows(codebook, How(n_passes=0, exponent=0.0), replace(block, state=state))[0]


def fitted(model: Any, data: Any, sweeps: Any, start: Any, options: Any, sweeps_of: Any) -> Any:
    """The result of passes by mini-batches; the last entry of its history is the cost of its components.

    `start(progress)` gives a starting `Point`, and `sweeps_of(data)` the sweeps over a batch and its weight.
    """
    size = model.batch_size

    def step(here: Learnt, block: Any) -> tuple[Learnt, float, float]:
        batch = Data(block.X, **{name: getattr(block, name) for name in data.fields})
        of_batch, weight = sweeps_of(batch)
        share = model._share(here.n_batches) * min(1.0, len(block) / size)
        earlier = here.sums
        if earlier is None:  # a batch without an entry of a feature would end that feature for divergences
            earlier = partial(of_batch.loss.explained, A=here.components)
        components, sums, cost = after_batch(of_batch, weight, here.components, earlier, share)
        return Learnt(components, sums, here.n_batches + 1, here.seed), cost, weight

    def move(here: Learnt, number: int) -> tuple[Learnt, float]:
        total = 0.0
        for block in data.batches(size, np.random.default_rng([here.seed, number])):
            here, cost, _ = step(here, block)
            total += cost
        options.passes.count += 1
        return here, total

    def evaluate(here: Learnt) -> float:
        options.passes.count += 1
        components = here.components
        xp = namespace(components)
        codebook = Codebook.of(xp.astype(components, getattr(xp, sweeps.dtype), copy=False))
        return sweeps.cost(sweeps.over(data).sum(solved_sums, sweeps.loss, codebook), components)

    def first(progress: Any) -> tuple[Learnt, bool]:
        point, interrupted = start(progress)
        seed = int(as_random_state(model.random_state).randint(2**31 - 1))
        return Learnt(point.shared, None, 0, seed), interrupted

    def example() -> Learnt:
        point: Point = sweeps.example()
        block = next(iter(data.batches(size, np.random.default_rng(0))))
        return step(Learnt(point.shared + 1.0, None, 0, 0), block)[0]

    def driver(move: Any, state: Any, **settings: Any) -> Any:
        return run_passes(move, evaluate, state, **settings)

    return fitting.fit(move, first, options, example=example, driver=driver)  # type: ignore[arg-type]
