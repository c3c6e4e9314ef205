"""Mixtures of few parameters on a device: what does not touch rows is computed in main memory.

A step of MCFA has hundreds of operations on matrices of some factors, each of which takes a device as long to
start as NumPy to do, and a few that it waits for. So statistics come to main memory, as one array, and the
next parameters and their density go back; parameters and densities remember what they are in main memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

from latently.backend.namespace import Array, like, namespace, to_numpy
from latently.backend.placement import one_blas_thread
from latently.core.tree import mapped
from latently.distributions.mixture import Mixture, MixtureParams, MixtureStats

Method = TypeVar("Method", bound=Callable[..., Any])

_HERE, _OF, _ROUNDING, _PRIOR = "_in_main_memory", "_of_parameters", "_rounding", "_log_prior"
_ALIGNED = 32  # numbers: products of matrices are slower from other places


def _small(method: Method) -> Method:
    """The method in one thread of BLAS: more of them take longer for small matrices."""

    @wraps(method)
    def alone(*args: Any) -> Any:
        with one_blas_thread():
            return method(*args)

    return cast(Method, alone)


@dataclass(frozen=True)
class SmallSteps(Mixture):
    """The kernel for rows on a device; statistics and vectors of parameters are NumPy arrays."""

    @cached_property
    def _here(self) -> Mixture:
        return Mixture(mapped(_as_numpy, self.family), self.dtype)

    def in_main_memory(self) -> Mixture:
        return self._here

    @_small
    def prepare(self, params: MixtureParams) -> Any:
        density = _there(self._here.prepare(_here(params)), params.weights)
        vars(density)[_OF] = params
        return density

    @_small
    def stats(self, density: Any, sums: MixtureStats) -> MixtureStats:
        params = vars(density)[_OF]  # while the device adds up, what the objective needs beside its sums
        vars(density)[_ROUNDING] = self, self._here.rounding(_here(density))
        vars(params)[_PRIOR] = self, self._here.log_prior(_here(params))
        return self._here.stats(_here(density), _here(sums))

    @_small
    def m_step(self, stats: MixtureStats, params: MixtureParams) -> MixtureParams:
        return self._moved(self._here.m_step(stats, _here(params)), params)

    @_small
    def implied_stats(self, params: MixtureParams) -> MixtureStats:
        return self._here.implied_stats(_here(params))

    @_small
    def log_prior(self, params: MixtureParams) -> float:
        kernel, known = vars(params).get(_PRIOR, (None, 0.0))
        return float(known) if kernel is self else self._here.log_prior(_here(params))

    @_small
    def rounding(self, density: Any) -> float:
        kernel, known = vars(density).get(_ROUNDING, (None, 0.0))
        return float(known) if kernel is self else self._here.rounding(_here(density))

    @_small
    def clamped(self, params: MixtureParams) -> MixtureParams:
        return self._moved(self._here.clamped(_here(params)), params)

    @_small
    def canonical(self, params: MixtureParams) -> MixtureParams:
        return self._moved(self._here.canonical(_here(params)), params)

    @_small
    def to_vector(self, params: MixtureParams) -> Array:
        return self._here.to_vector(_here(params))

    @_small
    def from_vector(self, vector: Array, like: MixtureParams) -> MixtureParams:
        return self._moved(self._here.from_vector(to_numpy(vector), _here(like)), like)

    @staticmethod
    def _moved(here: MixtureParams, beside: MixtureParams) -> MixtureParams:
        moved: MixtureParams = _there(here, beside.weights)
        return moved


def steps_are_small(kernel: Any) -> bool:
    """Whether the parameters of the kernel are so few that its steps are best computed in main memory."""
    return type(kernel) is Mixture and kernel.family.few_parameters


def _here(record: Any) -> Any:
    """The record in main memory."""
    known = vars(record).get(_HERE)
    return _as_one(record, to_numpy, 1) if known is None else known


def _there(record: Any, place: Array) -> Any:
    """A record of NumPy arrays on the device of an array, where it remembers what it was."""
    moved = _as_one(record, lambda array: like(array, place), _ALIGNED)
    vars(moved)[_HERE] = record
    return moved


def _as_one(record: Any, move: Callable[[Array], Array], aligned: int) -> Any:
    """The record with arrays in float64 moved side by side, and others one by one."""
    parts: list[Any] = []
    mapped(parts.append, record)
    flat, places, end = [], {}, 0
    for i, part in enumerate(parts):
        if not hasattr(part, "shape"):
            continue
        xp = namespace(part)
        if part.dtype != xp.float64:
            parts[i] = move(part)
            continue
        size = math.prod(part.shape)
        places[i] = end, size, tuple(part.shape)
        flat.append(xp.reshape(part, (-1,)))
        if rest := -size % aligned:
            flat.append(xp.zeros((rest,), dtype=xp.float64))  # of arrays in main memory only
        end += size + rest
    if flat:
        at_once = move(xp.concat(flat))
        for i, (start, size, shape) in places.items():
            parts[i] = at_once[start : start + size].reshape(shape)
    following = iter(parts)
    return mapped(lambda _: next(following), record)


def _as_numpy(value: Any) -> Any:
    return to_numpy(value) if hasattr(value, "shape") else value
