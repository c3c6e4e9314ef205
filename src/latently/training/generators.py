"""Random numbers of a fit: generators for shuffling, initialisation and sampling, derived from one seed.

The global generators of NumPy and torch are neither read nor changed. Most torch functions accept a
generator, but layers call them without one; `drawing_from` adds it to such calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class Generators:
    """One generator per purpose, so that additional draws for one of them do not affect the others."""

    shuffling: np.random.Generator  # the order of the rows
    initialisation: torch.Generator  # on the CPU, so that starting values are the same on every device
    sampling: torch.Generator  # draws of training steps, on the device of the rows
    evaluation: torch.Generator  # never advanced: validation uses the same draws after every epoch

    @classmethod
    def from_seed(cls, random_state: Any, device: torch.device | str = "cpu") -> Generators:
        """From an integer, a NumPy Generator or RandomState (which is advanced), or None for a new seed."""
        shuffling, *others = _seed_sequence(random_state).spawn(4)
        device = torch.empty(0, device=device).device  # with its number, as tensors have it
        places: tuple[torch.device | str, ...] = ("cpu", device, device)
        return cls(np.random.default_rng(shuffling), *map(_torch_generator, others, places))

    def for_evaluation(self) -> torch.Generator:
        """The evaluation generator, always in its initial state."""
        copied = torch.Generator(self.evaluation.device)
        copied.set_state(self.evaluation.get_state())
        return copied

    def copied(self) -> Generators:
        """Generators in the same states, which advance on their own."""
        torch_ones = {}
        for name, one in self.torch_generators().items():
            torch_ones[name] = torch.Generator(one.device)
            torch_ones[name].set_state(one.get_state())
        return Generators(deepcopy(self.shuffling), **torch_ones)

    def torch_generators(self) -> dict[str, torch.Generator]:
        return {name: getattr(self, name) for name in ("initialisation", "sampling", "evaluation")}


def _seed_sequence(random_state: Any) -> np.random.SeedSequence:
    match random_state:
        case np.random.Generator():
            return np.random.SeedSequence(random_state.integers(2**32, size=4).tolist())
        case np.random.RandomState():
            return np.random.SeedSequence(random_state.randint(2**32, size=4, dtype=np.uint64).tolist())
        case None:
            return np.random.SeedSequence()
        case int() | np.integer() if not isinstance(random_state, bool) and random_state >= 0:
            return np.random.SeedSequence(int(random_state))
    raise ValueError(
        "random_state must be None, a non-negative integer, a NumPy Generator or a RandomState, "
        f"not {random_state!r}"
    )


def seed_of(random_state: Any) -> int:
    """An integer of 63 bits from a `random_state` in any form."""
    return _number(_seed_sequence(random_state))


def generator_of(random_state: Any, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of torch on this device from a `random_state` in any form."""
    return _torch_generator(_seed_sequence(random_state), device)


def _number(seed: np.random.SeedSequence) -> int:
    (number,) = seed.generate_state(1, np.uint64).tolist()
    return int(number) >> 1  # torch takes 63 bits


def _torch_generator(seed: np.random.SeedSequence, device: torch.device | str) -> torch.Generator:
    return torch.Generator(device).manual_seed(_number(seed))


def initialise(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """Reset the parameters of every layer as torch does, with draws from `generator`.

    Parameters of a module without `reset_parameters` are not changed. To build layers without drawing from
    torch's global generator in the first place, build them inside `drawing_from(generator)`.
    """
    with drawing_from(generator):
        for part in module.modules():
            reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
            if reset is not None:
                reset()
    return module


class drawing_from(TorchFunctionMode):
    """Context in which draws without a generator, also those of layers, use this one (in this thread)."""

    def __init__(self, generator: torch.Generator):
        super().__init__()
        self.generator = generator

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func in _TAKE_A_GENERATOR:
            if given.get("generator") is None:
                given["generator"] = self.generator
        elif func in _REPLACED:
            return _REPLACED[func](self.generator, *args, **given)
        elif func in _REFUSED and given.get("training", True):
            raise NotImplementedError(
                f"{func.__name__} draws from torch's global generator and does not accept another; "
                "use a function that accepts generator=batch.generator"
            )
        return func(*args, **given)


def _dropout(
    generator: torch.Generator, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    if not training or p == 0.0:
        return input
    kept = torch.empty_like(input).bernoulli_(1.0 - p, generator=generator)
    if p < 1.0:
        kept /= 1.0 - p
    return input.mul_(kept) if inplace else input * kept


def _rand_like(generator: torch.Generator, input: Tensor, **options: Any) -> Tensor:
    return torch.empty_like(input, **options).uniform_(generator=generator)


def _randn_like(generator: torch.Generator, input: Tensor, **options: Any) -> Tensor:
    return torch.empty_like(input, **options).normal_(generator=generator)


def _named(owner: Any, names: str) -> set[Any]:
    return {getattr(owner, name) for name in names.split() if hasattr(owner, name)}


_TAKE_A_GENERATOR = (
    _named(torch, "rand randn randint randperm normal bernoulli multinomial poisson binomial")
    | _named(torch, "_standard_gamma _sample_dirichlet")
    | _named(
        Tensor, "uniform_ normal_ bernoulli bernoulli_ exponential_ cauchy_ log_normal_ geometric_ random_"
    )
    | _named(Tensor, "multinomial")
    | _named(nn.init, "uniform_ normal_ trunc_normal_ kaiming_uniform_ kaiming_normal_ xavier_uniform_")
    | _named(nn.init, "xavier_normal_ orthogonal_ sparse_")
)
_REPLACED: dict[Any, Callable[..., Tensor]] = {
    functional.dropout: _dropout,
    torch.dropout: _dropout,
    torch.rand_like: _rand_like,
    torch.randn_like: _randn_like,
}
_REFUSED = _named(
    functional, "dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout rrelu"
) | _named(functional, "gumbel_softmax")
