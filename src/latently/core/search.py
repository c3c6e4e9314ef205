"""Search: which of several starts leads to the best optimum.

Early in a run the objective tells where a start lies, and only late where it leads: a good optimum may
overtake after dozens of iterations. So few starts are dropped early, and late only those that have settled.

1. All starts take a few short (plain) steps, every other one from where `anneal` leads it, if that is given.
   The best few go on, always with the first start among them, which is not annealed.
2. They race: they take the long (accelerated) steps of the fit, round after round. A run leaves the race
   when it can hardly overtake: its objective plus the gain to be expected of it does not exceed that of the
   best run by more than a slack. So of several runs to the same optimum one is left. A run has settled when
   less than the slack is to be expected of it; the fit itself converges further.
3. The winner is varied: new starts near it take short steps, and the best of them races against it; then
   those near the next winner, and so on, until nothing better is found.

A run that gained G in a round, and whose gains shrink by a factor rho from round to round, has
G rho / (1 - rho) still to gain. Before two rounds have passed, rho is taken to be large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Generic

from latently.core.drivers import (
    LOG_LIKELIHOOD,
    Objective,
    Params,
    Result,
    State,
    Step,
    StopRule,
    best_first,
    run,
)
from latently.core.together import Steps, run_together

_ROUND = 5  # long steps between two looks at a race
_LONGEST = 200  # steps of a run
_SLOWEST = 0.9  # the largest rho: of slow runs at most nine times their last gain is expected
_SLACK = 2e-4  # relative differences between optima that do not matter
_SAME = 5  # times the slack: runs that end so close to one another are taken to be at one optimum


@dataclass(frozen=True)
class Effort:
    """How many starts are tried, and how far they run before most of them are dropped."""

    first: int  # starts at first
    near: int  # starts near the best optima found, at most
    at_once: int  # of them that are compared before the best optimum may change
    in_vain: int  # how often in a row they may be in vain
    short: int  # plain steps of the first starts
    short_near: int  # the same of starts near an optimum
    cuts: tuple[tuple[int, float], ...]  # then long steps, and the share of runs that go on
    racers: int  # that race at first; the first start is always among them
    racers_near: int  # starts near an optimum that race against it


COSTLY = Effort(8, 36, 12, 1, 4, 2, (), 3, 1)  # where a run costs as much beside others as alone
CHEAP = Effort(12, 108, 12, 3, 3, 3, ((2, 0.5), (3, 0.4)), 3, 3)  # where runs share passes over the rows

# With many features plain steps tell less of where a run leads, and better optima are found for longer.
COSTLY_WIDE = Effort(8, 108, 12, 2, 3, 3, ((0, 0.25), (5, 0.34)), 3, 1)
CHEAP_WIDE = replace(CHEAP, near=216)


@dataclass(frozen=True)
class Search(Generic[Params]):
    """How runs from several starts go on, and how they are compared."""

    short: Callable[[Params], Step[Params]]
    long: Callable[[Params], Step[Params]]
    stop: StopRule
    objective: Objective = LOG_LIKELIHOOD
    clean: Callable[[Params], bool] = lambda params: True  # runs that end elsewhere rank below all others
    effort: Effort = COSTLY
    anneal: Callable[[list[Params]], list[Params]] | None = None  # every other start, before its short steps
    short_steps: Steps[Params] | None = None  # `short` and `long` of several runs at once, if that is cheaper
    long_steps: Steps[Params] | None = None

    def best(
        self,
        starts: Iterable[Params],
        near: Callable[[Params], Iterable[Params]] = lambda params: (),
        n_near: int = 0,
        n_vain: int | None = None,
    ) -> tuple[Params, bool]:
        """The end of the best run, and whether the user interrupted the search.

        `near(params)` yields new starts near an optimum; `n_near` of them are tried in all, but no more after
        `n_vain` times as many as are compared at once were in vain; once is enough where all of the first
        race ended at one optimum. A single start is returned unchanged.
        """
        starts = iter(starts)
        first, second = next(starts), next(starts, None)
        if second is None:
            return first, False
        found = _Found(self)
        try:
            ends = found.narrowed(chain([first, second], starts), self.effort.short, self.effort.racers)
            agreed = found.race(ends, until_decided=n_near == 0)
            in_vain = 0
            while n_near > 0 and (n_vain is None or in_vain < (1 if agreed else n_vain)):
                before, starts = found.best, islice(near(found.best.params), min(n_near, self.effort.at_once))
                starts = list(starts)
                if not starts:
                    break
                n_near -= len(starts)
                racers = found.narrowed(starts, self.effort.short_near, self.effort.racers_near, before)
                found.race(racers, until_decided=n_near == 0)
                gain = self.objective.improvement(before.history[-1], found.best.history[-1])
                better = gain > self.slack(before)
                agreed, in_vain = agreed and not better, 0 if better else in_vain + 1
            return found.best.params, False
        except KeyboardInterrupt:
            if not found.ends:
                raise
            return self.ranked(found.ends)[0].params, True

    def ranked(self, ends: Iterable[Result[Params]]) -> list[Result[Params]]:
        return best_first(ends, self.objective, self.clean)

    def different(self, ends: list[Result[Params]], other: Result[Params]) -> list[Result[Params]]:
        """The best first, without those that are where `other` or a better one is already."""
        kept = [other]
        for end in self.ranked(ends):
            if all(self.differ(end.history[-1], known.history[-1]) for known in kept):
                kept.append(end)
        return kept[1:]

    def differ(self, a: float, b: float) -> bool:
        return self.objective.better(a, b) or self.objective.better(b, a)

    def may_overtake(self, end: Result[Params], leader: Result[Params]) -> bool:
        """Whether a run may still become better than the leader, beyond the slack."""
        lacks = self.objective.improvement(end.history[-1], leader.history[-1])
        return self.expected_gain(end) > lacks + self.slack(leader)

    def has_settled(self, end: Result[Params]) -> bool:
        """Whether nothing that matters is to be gained any more."""
        return end.converged or end.n_iter >= _LONGEST or self.expected_gain(end) <= self.slack(end)

    def expected_gain(self, end: Result[Params]) -> float:
        improvement, history = self.objective.improvement, end.history
        n_long = len(history) - 1 - self.effort.short
        if n_long < _ROUND:
            return math.inf  # too early to tell
        gain = improvement(history[-1 - _ROUND], history[-1])
        shrinking = _SLOWEST
        if n_long >= 2 * _ROUND:
            before = improvement(history[-1 - 2 * _ROUND], history[-1 - _ROUND])
            shrinking = min(gain / before, _SLOWEST) if before > 0 else _SLOWEST
        return gain * max(1.0, shrinking / (1.0 - shrinking))

    def slack(self, end: Result[Params]) -> float:
        return _SLACK * max(self.objective.least_size, abs(end.history[-1]))


class _Found(Generic[Params]):
    """The runs of a search so far."""

    def __init__(self, search: Search[Params]) -> None:
        self.search = search
        self.ends: list[Result[Params]] = []  # of all runs that may still be the best, for an interrupt
        self.best: Result[Params]

    def narrowed(
        self, starts: Iterable[Params], n_short: int, n_left: int, known: Result[Params] | None = None
    ) -> list[Result[Params]]:
        """The most promising runs; those that are where a better one or the `known` one is do not count.

        Without `known`, the first start is always among them, and is not annealed.
        """
        search, ends, starts = self.search, [], iter(starts)
        if search.anneal is not None:
            if known is None:  # it runs before, in case the user interrupts what follows
                ends = self._runs(search.short, search.short_steps, [State.at(next(starts))], n_short)
            others = list(starts)
            starts = iter(search.anneal(others[::2]) + others[1::2])
        ends = ends + self._runs(search.short, search.short_steps, map(State.at, starts), n_short)
        for n_long, share in search.effort.cuts:
            if len(ends) <= n_left:
                break
            ends = self._longer(ends, n_long)
            ends = self._chosen(ends, max(n_left, math.ceil(share * len(ends))), known)
        return self._chosen(ends, n_left, known)

    def _chosen(
        self, ends: list[Result[Params]], n: int, known: Result[Params] | None
    ) -> list[Result[Params]]:
        if known is not None:
            return self.search.different(ends, known)[:n]
        return [ends[0], *self.search.different(ends[1:], ends[0])[: n - 1]]

    def race(self, racers: list[Result[Params]], *, until_decided: bool) -> bool:
        """Let runs go on until they have settled or cannot overtake; then `best` is the best so far.

        With `until_decided` the winner need not settle: the fit continues it. Returns whether all racers
        ended about where the best one is.
        """
        finished = [self.best] if hasattr(self, "best") else []
        reached: list[float] = []  # by those that have left
        while True:
            settled = [self.search.has_settled(end) for end in racers]
            finished += [end for end, done in zip(racers, settled, strict=True) if done]
            racers = [end for end, done in zip(racers, settled, strict=True) if not done]
            self.ends = [*finished, *racers]
            leader = self.search.ranked(self.ends)[0]
            stay = [end is leader or self.search.may_overtake(end, leader) for end in racers]
            reached += [end.history[-1] for end, stays in zip(racers, stay, strict=True) if not stays]
            racers = [end for end, stays in zip(racers, stay, strict=True) if stays]
            if not racers or (until_decided and len(racers) == 1 and racers[0] is leader):
                break
            racers = self._longer(racers, _ROUND)
        self.best = leader
        self.ends = [self.best]
        reached += [end.history[-1] for end in finished]
        near = _SAME * self.search.slack(leader)
        improvement = self.search.objective.improvement
        return all(improvement(value, leader.history[-1]) <= near for value in reached)

    def _longer(self, ends: list[Result[Params]], n_steps: int) -> list[Result[Params]]:
        if n_steps == 0:
            return ends
        search, states = self.search, (end.state() for end in ends)
        return self._runs(search.long, search.long_steps, states, n_steps)

    def _runs(
        self,
        step: Callable[[Params], Step[Params]],
        steps: Steps[Params] | None,
        states: Iterable[State[Params]],
        n_steps: int,
    ) -> list[Result[Params]]:
        """Ends of runs of some more steps, all at once or, without `steps`, one after the other."""
        stop, objective = self.search.stop, self.search.objective
        if steps is not None:
            ends = run_together(steps, list(states), n_steps=n_steps, stop=stop, objective=objective)
            return self._kept(ends)
        ends = []
        for state in states:
            limit = state.n_iter + n_steps
            ends += self._kept([run(step, state, max_iter=limit, stop=stop, objective=objective)])
        return ends

    def _kept(self, ends: list[Result[Params]]) -> list[Result[Params]]:
        self.ends += ends
        if any(end.interrupted for end in ends):
            raise KeyboardInterrupt
        return ends
