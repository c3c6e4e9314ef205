"""Deep belief nets as torch modules: a restricted Boltzmann machine on top of directed layers.

    p(x, h^1, ..., h^L) = p(x | h^1) p(h^1 | h^2) ... p(h^{L-1}, h^L)
    q(h | x) = q(h^1 | x) q(h^2 | h^1) ...

Layer l is a machine of which only p(h^{l-1} | h^l) counts, but for the last, which may have a group of labels
beside h^{L-1}. The up-pass q has the weights of the machines until fine-tuning gives it its own.

    bound(x) = E_q[ln p(x | h^1) - ln q(h^1 | x) + bound(h^1)],   bound(h^{L-1}) = ln p(h^{L-1})

Exact sums over a layer take 2^H terms for each state of the layer below.
Hinton, Osindero and Teh (2006), Neural Computation 18.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from latently.deep.boltzmann import (
    Boltzmann,
    ContrastiveDivergence,
    Learning,
    Machine,
    Velocities,
    all_states,
    binary,
    mean_over,
    mean_product,
    one_hot,
    one_of,
)
from latently.deep.draws import RowDraws
from latently.training.batches import Batch

LISTED_UNITS = 16  # of a layer, up to which sums over its states are exact


class UpPass(nn.Module):
    """q(h = 1 | v) = logistic(r + Rv), with its own parameters."""

    def __init__(self, machine: Machine):
        super().__init__()
        self.components = nn.Parameter(machine.components.detach().clone(), requires_grad=False)  # (H, D) R
        self.intercept_hidden = nn.Parameter(machine.intercept_hidden.detach().clone(), requires_grad=False)

    def copy(self, machine: Machine) -> None:
        self.components.copy_(machine.components / machine.units.variance)
        self.intercept_hidden.copy_(machine.intercept_hidden)


class BeliefNet(nn.Module):
    """Machines, the rows' first, and up-passes of their own for all but the last if `apart`."""

    def __init__(self, machines: list[Machine], apart: bool):
        super().__init__()
        self.layers: Any = nn.ModuleList(machines)
        self.recognition: Any = nn.ModuleList([UpPass(machine) for machine in machines[:-1]] if apart else [])

    def is_apart(self) -> bool:
        """Whether the up-pass has left the weights of the machines."""
        tied = [machine.components / machine.units.variance for machine in self.layers]
        return any(not torch.equal(up.components, A) for up, A in zip(self.recognition, tied, strict=False))

    def within(self, dtype: torch.dtype) -> Beliefs:
        """The functions of rows in this dtype, with the present parameters."""
        machines = [machine.within(dtype) for machine in self.layers]
        own = [(one.components.to(dtype), one.intercept_hidden.to(dtype)) for one in self.recognition]
        tied = [(m.components / m.units.variance, m.intercept_hidden) for m in machines]
        return Beliefs(machines, own + tied[len(own) :])


@dataclass(frozen=True)
class Beliefs:
    """The parameters of a net in one dtype, and all functions of rows in that dtype."""

    machines: list[Boltzmann]  # the rows' first
    up: list[tuple[Tensor, Tensor]]  # of each machine: weights (H, D) and intercepts (H,) of the up-pass

    @property
    def top(self) -> Boltzmann:
        return self.machines[-1]

    def upward(self, layer: int, v: Tensor) -> Tensor:
        """Logits of q(h | v) of a layer."""
        R, r = self.up[layer]
        return torch.addmm(r, v, R.T)

    def means_below_top(self, v: Tensor) -> Tensor:
        """Probabilities, passed up to the units below the last layer."""
        for layer in range(len(self.machines) - 1):
            v = torch.sigmoid(self.upward(layer, v))
        return v

    def top_hidden(self, h: Tensor) -> Tensor:
        """p(h^L = 1 | h^{L-1}), with labels summed out."""
        top = self.top
        if not top.units.n_labels:
            return top.hidden(h)
        posterior = torch.softmax(top.label_scores(h), dim=1)  # (n, C)
        n = h.shape[1]
        given = replace(top.units, n_labels=0).scaled(h)
        logits = torch.addmm(top.intercept_hidden, given, top.components[:, :n].T)
        found = torch.zeros_like(logits)
        for label in range(posterior.shape[1]):
            found += posterior[:, label : label + 1] * torch.sigmoid(logits + top.components[:, n + label])
        return found

    def downward(self, h: Tensor) -> Tensor:
        """E[x] from units below the last layer, passed down by means."""
        for machine in reversed(self.machines[:-1]):
            h = machine.visible(h)
        return h

    # -- exact sums -----------------------------------------------------------------------------------

    def bounds_above(self, log_partition: float) -> list[Tensor]:
        """For every layer but the last: the bound of the layers above at each state of its hidden units."""
        found: list[Tensor] = []
        for layer in reversed(range(len(self.machines) - 1)):
            h = all_states(self.machines[layer].n_hidden, self.top.components)
            if layer == len(self.machines) - 2:
                values = [self.top.log_unnormalised(block) - log_partition for block in h]
            else:
                values = [self.bound(block, layer + 1, found[0]) for block in h]
            found.insert(0, torch.cat(values))
        return found

    def bound(self, v: Tensor, layer: int, above: Tensor) -> Tensor:
        """The bound at visible units of a layer, whose hidden units have these bounds, (n,)"""
        machine = self.machines[layer]
        logits = self.upward(layer, v)
        log_rest = softplus(logits).sum(dim=1)
        total, start = torch.zeros_like(log_rest), 0
        for h in all_states(machine.n_hidden, v):
            log_q = logits @ h.T - log_rest[:, None]
            gain = _log_down(machine, v, h) - log_q + above[start : start + len(h)]
            total += (torch.exp(log_q) * gain).sum(dim=1)
            start += len(h)
        return total

    def log_prior(self, log_partition: float) -> Tensor:
        """ln p(h^1) of all states of the first hidden layer."""
        states = all_states(self.machines[-2].n_hidden, self.top.components)
        log_p = torch.cat([self.top.log_unnormalised(h) - log_partition for h in states])
        for layer in reversed(range(1, len(self.machines) - 1)):
            blocks = all_states(self.machines[layer - 1].n_hidden, self.top.components)
            log_p = torch.cat([self.log_density(v, layer, log_p) for v in blocks])
        return log_p

    def log_density(self, v: Tensor, layer: int, log_prior: Tensor) -> Tensor:
        """ln p(v) of visible units of a layer, whose hidden units have these log probabilities, (n,)"""
        machine, start, parts = self.machines[layer], 0, []
        for h in all_states(machine.n_hidden, v):
            joint = _log_down(machine, v, h) + log_prior[start : start + len(h)]
            parts.append(torch.logsumexp(joint, dim=1))
            start += len(h)
        return torch.logsumexp(torch.stack(parts), dim=0)

    # -- draws ----------------------------------------------------------------------------------------

    def sampled_bound(self, x: Tensor, log_partition: float, draws: RowDraws, n_samples: int) -> Tensor:
        """An unbiased estimate of the bound from draws of q, (n,)"""
        v = x[:, None].expand(-1, n_samples, -1).reshape(-1, x.shape[1])
        total = torch.zeros(len(v), dtype=x.dtype, device=x.device)
        for layer, machine in enumerate(self.machines[:-1]):
            logits = self.upward(layer, v)
            uniform = draws.uniform(n_samples, machine.n_hidden).reshape(logits.shape)
            h = (uniform < torch.sigmoid(logits)).to(x.dtype)
            total += machine.log_conditional(v, h) - (h * logits - softplus(logits)).sum(dim=1)
            v = h
        total += self.top.log_unnormalised(v) - log_partition
        return total.reshape(-1, n_samples).mean(dim=1)

    def top_draws(
        self, n: int, n_steps: int, labels: Tensor | None, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Units below the last layer, and its hidden ones, after Gibbs steps with labels clamped if given."""
        top = self.top
        v = top.units.draw(top.intercept_visible.expand(n, -1), generator)
        for _ in range(n_steps):
            if labels is not None:
                v = torch.cat([v[:, : -labels.shape[1]], labels], dim=1)
            v, h = top.gibbs(v, 1, generator)
        return v[:, : v.shape[1] - top.units.n_labels], h

    def rows_from(self, h: Tensor, generator: torch.Generator, *, drawn: bool) -> Tensor:
        """One pass down from units below the last layer by draws; the rows are drawn, or their means."""
        for machine in reversed(self.machines[1:-1]):
            h = machine.units.draw(machine.field(h), generator)
        if len(self.machines) == 1:
            return h
        field = self.machines[0].field(h)
        units = self.machines[0].units
        return units.draw(field, generator) if drawn else units.mean(field)


def _log_down(machine: Boltzmann, v: Tensor, h: Tensor) -> Tensor:
    """ln p(v | h) of all pairs, (n, m)"""
    field, b = machine.field(h), machine.intercept_visible
    drive = v @ (field - b).T / machine.units.variance
    return drive - machine.units.energy(v, b)[:, None] - machine.units.log_sum(field, b)


# -- training -----------------------------------------------------------------------------------------


class BeliefTraining(nn.Module):
    """A net with the state of its training."""

    def __init__(self, net: BeliefNet, n_chains: int = 0, has_unlabelled: bool = True):
        super().__init__()
        self.net, self.has_unlabelled = net, has_unlabelled
        self.divergences: Any = nn.ModuleList([ContrastiveDivergence(m, n_chains) for m in net.layers])
        moving = [
            parameter
            for machine, up in zip(net.layers, net.recognition, strict=False)
            for parameter in (
                machine.components,
                machine.intercept_visible,
                up.components,
                up.intercept_hidden,
            )
        ]
        self.velocities = Velocities(*moving)

    def begin(self, layer: int, tied: bool, intercept: Tensor | None) -> None:
        """The start of a layer: the one below transposed, or with these visible intercepts."""
        machine = self.net.layers[layer]
        if tied:
            below = self.net.layers[layer - 1]
            n = len(below.intercept_hidden)
            machine.components[:, :n] = below.components.T
            machine.intercept_visible[:n] = below.intercept_hidden
            machine.intercept_hidden.copy_(below.intercept_visible)
        elif intercept is not None:
            machine.intercept_visible[: len(intercept)] = intercept

    def begin_apart(self) -> None:
        """The up-pass starts as that of the machines."""
        for machine, up in zip(self.net.layers, self.net.recognition, strict=False):
            up.copy(machine)

    def greedy(self, layer: int, batch: Batch, learning: Learning) -> dict[str, Tensor]:
        """Contrastive divergence of one layer, on draws of the layers below."""
        v = self._top_visible(self._drawn(batch.X, layer, batch.generator), layer, batch)
        return self.divergences[layer].step(v, batch.weight, batch.generator, learning)[0]

    def all_layers(self, batch: Batch, learning: Learning) -> dict[str, Tensor]:
        """Contrastive divergence of all layers at once; what is recorded is that of the last."""
        v, recorded = batch.X, {}
        for layer, divergence in enumerate(self.divergences):
            seen = self._top_visible(v, layer, batch)
            recorded, _ = divergence.step(seen, batch.weight, batch.generator, learning)
            v = binary(divergence.machine.within(v.dtype).hidden(seen), batch.generator)
        return recorded

    def evaluate(self, layer: int, batch: Batch) -> dict[str, Tensor]:
        v = self._top_visible(self._drawn(batch.X, layer, batch.generator), layer, batch)
        return self.divergences[layer].evaluate(v, batch.weight, batch.generator)

    def up_down(self, batch: Batch, learning: Learning) -> dict[str, Tensor]:
        """One step of contrastive wake-sleep: up by q, Gibbs steps at the top, down by p."""
        net, generator = self.net.within(batch.X.dtype), batch.generator
        n_below = len(net.machines) - 1
        weight = None if batch.weight is None else batch.weight / len(batch)
        awake = [batch.X]
        for layer in range(n_below):
            awake.append(binary(torch.sigmoid(net.upward(layer, awake[-1])), generator))
        seen = self._top_visible(awake[-1], n_below, batch)
        recorded, dreamt = self.divergences[-1].step(seen, batch.weight, generator, learning)
        asleep = [dreamt[:, : awake[-1].shape[1]]]
        for machine in reversed(net.machines[:-1]):
            asleep.insert(0, machine.units.draw(machine.field(asleep[0]), generator))
        asleep_weight = weight
        if weight is not None and len(self.divergences[-1].chain):  # persistent chains are those of no row
            asleep_weight = (weight.sum() / len(dreamt)).expand(len(dreamt))
        changes: list[Tensor] = []
        for layer, machine in enumerate(net.machines[:-1]):
            v, h = awake[layer], awake[layer + 1]
            missed = (v - machine.visible(h)) / machine.units.variance
            changes += [mean_product(h, missed, weight), mean_over(missed, weight)]
            v, h = asleep[layer], asleep[layer + 1]
            missed = h - torch.sigmoid(net.upward(layer, v))
            changes += [mean_product(missed, v, asleep_weight), mean_over(missed, asleep_weight)]
        self.velocities.move(tuple(changes), learning)
        return recorded

    def _drawn(self, v: Tensor, n_layers: int, generator: torch.Generator) -> Tensor:
        for machine in itertools.islice(self.net.layers, n_layers):
            v = binary(machine.within(v.dtype).hidden(v), generator)
        return v

    def _top_visible(self, v: Tensor, layer: int, batch: Batch) -> Tensor:
        """Visible units of a layer: with labels, drawn where they are unknown, if it is the last."""
        machine = self.net.layers[layer]
        n_labels = machine.units.n_labels
        if not n_labels:
            return v
        y: Any = batch.y
        labels = one_hot(y.clamp(min=0), v.new_empty(len(v), n_labels))
        if self.has_unlabelled:
            drawn = one_of(machine.within(v.dtype).label_scores(v), batch.generator)
            labels = torch.where(y[:, None] >= 0, labels, drawn)
        return torch.cat([v, labels], dim=1)
