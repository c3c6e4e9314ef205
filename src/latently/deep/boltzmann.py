"""Restricted Boltzmann machines as torch modules.

    p(v, h) = exp(h'Av / s2 + u(v) + c'h) / Z        p(h_j = 1 | v) = logistic(c + Av / s2)_j

D visible units v, H hidden units h. Binary visible units have u(v) = b'v and s2 = 1; the last C of them may
be one group of which exactly one is on (labels), with a softmax in place of logistic functions. Gaussian ones
have u(v) = -|v - b|^2 / 2 s2, so that p(v | h) = N(b + A'h, s2 I); labels beside them are not divided by s2.

    free energy     F(v) = -u(v) - sum_j softplus(c + Av / s2)_j,     p(v) = exp(-F(v)) / Z

A row costs O(D H) for everything but Z, which takes 2^min(H, D) terms, or annealed importance sampling.
Parameters are float64; training computes in the dtype of its rows, and densities in float64.
Hinton (2002), Neural Computation 14; Tieleman (2008), ICML; Salakhutdinov and Murray (2008), ICML.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

LISTED_BITS = 20  # log2 of the number of states that are listed unasked
MOST_BITS = 30  # log2 of the number of states that are listed at all
_BLOCK_BITS = 12  # log2 of the number of states in memory at a time


def binary(probability: Tensor, generator: torch.Generator) -> Tensor:
    """Binary draws with these probabilities; quicker than torch.bernoulli."""
    return torch.empty_like(probability).uniform_(generator=generator).lt_(probability)


@dataclass(frozen=True)
class BinaryUnits:
    """Visible units 0 or 1, of which the last `n_labels` are one group with exactly one on."""

    n_labels: int = 0
    variance: float = 1.0

    def scaled(self, v: Tensor) -> Tensor:
        return v

    def energy(self, v: Tensor, intercept: Tensor) -> Tensor:
        """-u(v), (n,)"""
        return -(v @ intercept)

    def log_sum(self, field: Tensor, intercept: Tensor) -> Tensor:
        """ln sum_v exp(u(v) + v'A'h) where field = b + A'h, (n,)"""
        bits, labels = self.parted(field)
        total = softplus(bits).sum(dim=1)
        return total + torch.logsumexp(labels, dim=1) if self.n_labels else total

    def mean(self, field: Tensor) -> Tensor:
        if not self.n_labels:
            return torch.sigmoid(field)
        bits, labels = self.parted(field)
        return torch.cat([torch.sigmoid(bits), torch.softmax(labels, dim=1)], dim=1)

    def draw(self, field: Tensor, generator: torch.Generator) -> Tensor:
        if not self.n_labels:
            return binary(torch.sigmoid(field), generator)
        bits, labels = self.parted(field)
        return torch.cat([binary(torch.sigmoid(bits), generator), one_of(labels, generator)], dim=1)

    def parted(self, field: Tensor) -> tuple[Tensor, Tensor]:
        n = field.shape[1] - self.n_labels
        return field[:, :n], field[:, n:]


@dataclass(frozen=True)
class GaussianUnits:
    """Real visible units with one fixed variance given the hidden ones, and labels as binary units have."""

    variance: float = 1.0
    n_labels: int = 0

    def scaled(self, v: Tensor) -> Tensor:
        """v / s2, but labels as they are: what weights are multiplied by."""
        real, labels = self.parted(v)
        return torch.cat([real / self.variance, labels], dim=1) if self.n_labels else real / self.variance

    def energy(self, v: Tensor, intercept: Tensor) -> Tensor:
        (real, labels), (mean, log_odds) = self.parted(v), self.parted(intercept[None])
        return ((real - mean) ** 2).sum(dim=1) / (2.0 * self.variance) - (labels * log_odds).sum(dim=1)

    def log_sum(self, field: Tensor, intercept: Tensor) -> Tensor:
        (mean, labels), (rest, _) = self.parted(field), self.parted(intercept[None])
        volume = 0.5 * mean.shape[1] * math.log(2.0 * math.pi * self.variance)
        total = volume + ((mean**2).sum(dim=1) - (rest**2).sum()) / (2.0 * self.variance)
        return total + torch.logsumexp(labels, dim=1) if self.n_labels else total

    def mean(self, field: Tensor) -> Tensor:
        mean, labels = self.parted(field)
        return torch.cat([mean, torch.softmax(labels, dim=1)], dim=1) if self.n_labels else mean

    def draw(self, field: Tensor, generator: torch.Generator) -> Tensor:
        mean, labels = self.parted(field)
        drawn = mean + math.sqrt(self.variance) * torch.empty_like(mean).normal_(generator=generator)
        return torch.cat([drawn, one_of(labels, generator)], dim=1) if self.n_labels else drawn

    def parted(self, field: Tensor) -> tuple[Tensor, Tensor]:
        n = field.shape[1] - self.n_labels
        return field[:, :n], field[:, n:]


def one_of(log_odds: Tensor, generator: torch.Generator) -> Tensor:
    """One-hot draws, (n, C): the draws of torch.multinomial, which reads its input on the host."""
    probability = torch.softmax(log_odds, dim=1)
    waiting = torch.empty_like(probability).exponential_(generator=generator)
    return one_hot((probability / waiting).argmax(dim=1), probability)


def one_hot(chosen: Tensor, like: Tensor) -> Tensor:
    """Rows of zeros with a one where chosen (n,) says, in the shape (n, C) and dtype of `like`."""
    return torch.zeros_like(like).scatter_(1, chosen[:, None], 1.0)


@dataclass(frozen=True)
class LogPartition:
    """ln Z, or its estimate with a standard error."""

    value: float
    standard_error: float  # 0.0 if the value is exact
    method: str  # "exact" or "ais"


@dataclass(frozen=True)
class Boltzmann:
    """The parameters of a machine in one dtype, and all functions of rows in that dtype."""

    components: Tensor  # (H, D) A
    intercept_visible: Tensor  # (D,) b
    intercept_hidden: Tensor  # (H,) c
    units: BinaryUnits | GaussianUnits

    @property
    def n_hidden(self) -> int:
        return int(self.components.shape[0])

    @property
    def n_visible(self) -> int:
        return int(self.components.shape[1])

    # -- conditionals ---------------------------------------------------------------------------------

    def hidden_logits(self, v: Tensor) -> Tensor:
        """c + Av / s2, (n, H)"""
        return torch.addmm(self.intercept_hidden, self.units.scaled(v), self.components.T)

    def hidden(self, v: Tensor) -> Tensor:
        """p(h = 1 | v), (n, H)"""
        return torch.sigmoid(self.hidden_logits(v))

    def field(self, h: Tensor) -> Tensor:
        """b + A'h, (n, D)"""
        return torch.addmm(self.intercept_visible, h, self.components)

    def visible(self, h: Tensor) -> Tensor:
        """E[v | h], (n, D)"""
        return self.units.mean(self.field(h))

    def log_conditional(self, v: Tensor, h: Tensor) -> Tensor:
        """ln p(v | h) of rows that belong together, (n,)"""
        field, b = self.field(h), self.intercept_visible
        drive = (self.units.scaled(v) * (field - b)).sum(dim=1)
        return drive - self.units.energy(v, b) - self.units.log_sum(field, b)

    def gibbs(
        self, v: Tensor, n_steps: int, generator: torch.Generator, probability: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Visible units after so many steps, and the hidden ones that they were drawn from.

        `probability` of the first hidden units, if it is known.
        """
        for _ in range(n_steps):
            h = binary(self.hidden(v) if probability is None else probability, generator)
            v, probability = self.units.draw(self.field(h), generator), None
        return v, h

    # -- densities ------------------------------------------------------------------------------------

    def free_energy(self, v: Tensor) -> Tensor:
        """F(v), (n,)"""
        return self.units.energy(v, self.intercept_visible) - softplus(self.hidden_logits(v)).sum(dim=1)

    def label_scores(self, v: Tensor) -> Tensor:
        """-F(v, e_c) for every label c, (n, C); v has the units that are no labels."""
        A, b, n = self.components, self.intercept_visible, v.shape[1]
        plain = replace(self.units, n_labels=0)
        logits = torch.addmm(self.intercept_hidden, plain.scaled(v), A[:, :n].T)
        scores = [softplus(logits + A[:, k]).sum(dim=1) + b[k] for k in range(n, self.n_visible)]
        return torch.stack(scores, dim=1) - plain.energy(v, b[:n])[:, None]

    def log_unnormalised(self, v: Tensor) -> Tensor:
        """ln sum_h exp(...) of the units that are no labels, which are summed out, (n,)"""
        if self.units.n_labels:
            return torch.logsumexp(self.label_scores(v), dim=1)
        return -self.free_energy(v)

    def pseudo_log_likelihood(self, v: Tensor, logits: Tensor, drawn: Tensor) -> Tensor:
        """An unbiased estimate of sum_i ln p(v_i | the others), from one random unit of each row, (n,).

        `drawn` has a number from 0 to 1 for each row, which chooses the unit. The group of labels counts as
        one unit. A fraction v_i is v_i ln p(1) + (1 - v_i) ln p(0).
        """
        A, b, C = self.components, self.intercept_visible, self.units.n_labels
        n_bits = v.shape[1] - C
        n_units = n_bits + bool(C)
        unit = (n_units * drawn).long().clamp_(max=n_units - 1)
        bit = unit.clamp(max=max(n_bits - 1, 0))
        value = v.gather(1, bit[:, None])[:, 0]
        column = A.index_select(1, bit).T.contiguous()  # (n, H)
        without = logits - value[:, None] * column
        odds = b[bit] + (softplus(without + column) - softplus(without)).sum(dim=1)
        found = value * logsigmoid(odds) + (1.0 - value) * logsigmoid(-odds)
        if C:
            scores = torch.log_softmax(self.label_scores(v[:, :n_bits]), dim=1)
            found = torch.where(unit == n_bits, (v[:, n_bits:] * scores).sum(dim=1), found)
        return n_units * found

    # -- the partition function -----------------------------------------------------------------------

    @property
    def bits(self) -> float:
        """log2 of the number of terms in Z when the smaller side is listed."""
        return min(float(self.n_hidden), self._visible_bits())

    def _visible_bits(self) -> float:
        if isinstance(self.units, GaussianUnits):
            return math.inf
        C = self.units.n_labels
        return self.n_visible - C + math.log2(max(C, 1))

    def exact_log_partition(self) -> LogPartition:
        """ln Z by listing the states of the smaller side."""
        A, b, c = self.components, self.intercept_visible, self.intercept_hidden
        n_bits = self.n_visible - self.units.n_labels
        total = torch.tensor(-math.inf, dtype=torch.float64, device=A.device)
        if self._visible_bits() < self.n_hidden:
            for v in all_states(n_bits, A):
                total = torch.logaddexp(total, torch.logsumexp(self.log_unnormalised(v), dim=0))
        else:
            for h in all_states(self.n_hidden, A):
                terms = h @ c + self.units.log_sum(self.field(h), b)
                total = torch.logaddexp(total, torch.logsumexp(terms, dim=0))
        return LogPartition(float(total), 0.0, "exact")

    def annealed_log_partition(self, n_chains: int, n_steps: int, generator: torch.Generator) -> LogPartition:
        """ln Z by annealed importance sampling from a machine without weights.

        The intercepts of that machine are the log odds of a short run of this one, so that the two are close.
        """
        A, b = self.components, self.intercept_visible
        units, is_binary = self.units, isinstance(self.units, BinaryUnits)
        base = self._base_intercept(n_chains, generator) if is_binary else b
        start = base.expand(n_chains, -1)
        v = units.draw(start, generator)
        log_base = units.log_sum(base[None], base)[0] + self.n_hidden * math.log(2.0)
        log_weight = torch.zeros(n_chains, dtype=torch.float64, device=A.device)
        previous = 0.0
        for step in range(1, n_steps + 1):
            beta = step / n_steps
            logits = self.hidden_logits(v)
            log_weight += (softplus(beta * logits) - softplus(previous * logits)).sum(dim=1)
            if is_binary:
                log_weight += (beta - previous) * (v @ (b - base))
            if step < n_steps:
                h = binary(torch.sigmoid(beta * logits), generator)
                v = units.draw(torch.addmm(base + beta * (b - base), h, A, alpha=beta), generator)
            previous = beta
        return _log_mean(log_weight, float(log_base))

    def _base_intercept(self, n_chains: int, generator: torch.Generator) -> Tensor:
        b = self.intercept_visible
        v, _ = self.gibbs(self.units.draw(b.expand(n_chains, -1), generator), 100, generator)
        mean = torch.zeros_like(b)
        for _ in range(20):
            v, h = self.gibbs(v, 1, generator)
            mean += self.visible(h).mean(dim=0) / 20
        bits, labels = self.units.parted(mean.clamp(1e-3, 1.0 - 1e-3)[None])
        return torch.cat([torch.logit(bits), torch.log(labels)], dim=1)[0]


class Machine(nn.Module):
    """The parameters as a module, in float64."""

    components: nn.Parameter
    intercept_visible: nn.Parameter
    intercept_hidden: nn.Parameter

    def __init__(self, n_visible: int, n_hidden: int, units: BinaryUnits | GaussianUnits):
        super().__init__()
        self.units = units
        start = {
            "components": torch.empty(n_hidden, n_visible, dtype=torch.float64).normal_(std=0.01),
            "intercept_visible": torch.zeros(n_visible, dtype=torch.float64),
            "intercept_hidden": torch.zeros(n_hidden, dtype=torch.float64),
        }
        for name, value in start.items():
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))

    def within(self, dtype: torch.dtype) -> Boltzmann:
        """The functions of rows in this dtype, with the present parameters."""
        A, b, c = self.components, self.intercept_visible, self.intercept_hidden
        return Boltzmann(A.to(dtype), b.to(dtype), c.to(dtype), self.units)


def all_states(n_bits: int, like: Tensor) -> Iterator[Tensor]:
    """All 2^n binary vectors, in blocks (m, n)."""
    places = torch.arange(n_bits, device=like.device)
    for start in range(0, 2**n_bits, 2**_BLOCK_BITS):
        numbers = torch.arange(start, min(start + 2**_BLOCK_BITS, 2**n_bits), device=like.device)
        yield ((numbers[:, None] >> places) & 1).to(like.dtype)


def _log_mean(log_weight: Tensor, offset: float) -> LogPartition:
    """The log of a mean of weights with its standard error, to first order."""
    n = len(log_weight)
    value = float(torch.logsumexp(log_weight, dim=0)) - math.log(n)
    relative = torch.exp(log_weight - value)
    error = float(relative.std()) / math.sqrt(n) if n > 1 else math.inf
    return LogPartition(value + offset, error, "ais")


# -- training -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learning:
    """Settings of contrastive divergence."""

    rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    n_gibbs: int = 1
    sparsity_target: float | None = None
    sparsity_weight: float = 0.0


class Velocities(nn.Module):
    """Parameters that move with momentum; the velocities are buffers, which checkpoints hold."""

    def __init__(self, *parameters: nn.Parameter):
        super().__init__()
        self.moving = parameters  # a tuple, so they are not registered twice
        for number, parameter in enumerate(parameters):
            self.register_buffer(f"velocity{number}", torch.zeros_like(parameter))

    def move(self, changes: tuple[Tensor, ...], learning: Learning) -> None:
        """velocity <- momentum velocity + rate change; parameter += velocity"""
        for number, (parameter, change) in enumerate(zip(self.moving, changes, strict=True)):
            velocity = getattr(self, f"velocity{number}")
            velocity.mul_(learning.momentum).add_(change, alpha=learning.rate)
            if parameter.ndim == 2 and learning.weight_decay:
                velocity.add_(parameter, alpha=-learning.rate * learning.weight_decay)
            parameter.add_(velocity)


class ContrastiveDivergence(nn.Module):
    """A machine with the state of its training: velocities, and chains if they are persistent."""

    chain: Tensor
    started: Tensor

    def __init__(self, machine: Machine, n_chains: int = 0):
        super().__init__()
        self.machine = machine
        self.velocities = Velocities(machine.components, machine.intercept_visible, machine.intercept_hidden)
        self.register_buffer("chain", torch.zeros(n_chains, len(machine.intercept_visible)))
        self.register_buffer("started", torch.zeros(1))
        self._has_started = False

    def step(
        self, v0: Tensor, weight: Tensor | None, generator: torch.Generator, learning: Learning
    ) -> tuple[dict[str, Tensor], Tensor]:
        """One update by the difference of data and chain; hidden units enter by their probabilities.

        Returns what is recorded, and the visible units at the end of the chain.
        """
        machine, units, n = self.machine.within(v0.dtype), self.machine.units, len(v0)
        logits = machine.hidden_logits(v0)
        p0 = torch.sigmoid(logits)
        monitored = _monitored(machine, v0, logits, generator)
        data_weight = model_weight = None if weight is None else weight / n
        if self.chain.shape[0]:
            vk, _ = machine.gibbs(self._chains(machine, generator), learning.n_gibbs, generator)
            self.chain.copy_(vk)
            if weight is not None:
                model_weight = (weight.mean() / len(vk)).expand(len(vk))
        else:
            vk, _ = machine.gibbs(v0, learning.n_gibbs, generator, p0)
        pk, end = machine.hidden(vk), vk
        v0, vk = units.scaled(v0), units.scaled(vk)
        change: tuple[Tensor, ...] = (
            mean_product(p0, v0, data_weight, mean_product(pk, vk, model_weight)),
            mean_over(v0, data_weight) - mean_over(vk, model_weight),
            mean_over(p0, data_weight) - mean_over(pk, model_weight),
        )
        if learning.sparsity_target is not None:
            gap = learning.sparsity_weight * (learning.sparsity_target - mean_over(p0, data_weight))
            change = (
                change[0] + gap[:, None] * mean_over(v0, data_weight),
                change[1],
                change[2] + gap,
            )
        self.velocities.move(change, learning)
        return {"log-likelihood": mean_over(monitored, data_weight)}, end

    def evaluate(self, v: Tensor, weight: Tensor | None, generator: torch.Generator) -> dict[str, Tensor]:
        """What is recorded of rows that are not learnt from."""
        machine = self.machine.within(v.dtype)
        found = _monitored(machine, v, machine.hidden_logits(v), generator)
        return {"log-likelihood": mean_over(found, None if weight is None else weight / len(v))}

    def _chains(self, machine: Boltzmann, generator: torch.Generator) -> Tensor:
        if not self._has_started:  # asks the tensor once: its value is not known on the host
            self._has_started = bool(self.started)
        if not self._has_started:
            b = machine.intercept_visible
            self.chain.copy_(machine.units.draw(b.expand(len(self.chain), -1), generator))
            self.started.fill_(1.0)
            self._has_started = True
        return self.chain.to(machine.components.dtype)


def _monitored(machine: Boltzmann, v: Tensor, logits: Tensor, generator: torch.Generator) -> Tensor:
    """The pseudo-log-likelihood of binary units, ln p(v | E[h | v]) of others, (n,)"""
    if isinstance(machine.units, BinaryUnits):
        drawn = torch.empty(len(v), dtype=torch.float64, device=v.device).uniform_(generator=generator)
        return machine.pseudo_log_likelihood(v, logits, drawn)
    return machine.log_conditional(v, torch.sigmoid(logits))


def mean_product(p: Tensor, v: Tensor, weight: Tensor | None, less: Tensor | None = None) -> Tensor:
    """The mean of hv', (H, D), less what is given."""
    p = p / len(v) if weight is None else weight[:, None] * p
    return p.T @ v if less is None else torch.addmm(less, p.T, v, beta=-1.0)


def mean_over(values: Tensor, weight: Tensor | None) -> Tensor:
    return values.mean(dim=0) if weight is None else torch.tensordot(weight, values, dims=1)
