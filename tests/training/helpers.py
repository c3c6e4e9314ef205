"""Small users of the training loop."""

import numpy as np
import torch
from torch import nn

from latently.training.batches import Rows
from latently.training.generators import Generators, drawing_from
from latently.training.loop import train


class Killed(Exception):
    """Instead of a process that dies."""


def killer(epoch):
    def kill(iteration):
        if iteration.number == epoch:
            raise Killed

    return kill


def correlated_rows(n=120, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) @ rng.normal(size=(2, 5)) + 0.1 * rng.normal(size=(n, 5))


OPTIMIZERS = {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.9, nesterov=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.02, amsgrad=True),
    "plain": lambda parameters: torch.optim.SGD(parameters, lr=0.02),
}


class NoisyAutoencoder:
    """A network with dropout, batch norm and draws in its step: all that a resumed training must repeat."""

    def __init__(self, optimizer="adam", seed=0, X=None, **options):
        self.generators = Generators.from_seed(seed)
        with drawing_from(self.generators.initialisation):
            self.module = nn.Sequential(
                nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 5)
            )
        self.optimizer = OPTIMIZERS[optimizer](self.module.parameters())
        settings = {"batch_size": 32, "min_batch_size": 2}
        self.rows = Rows(correlated_rows() if X is None else X, **settings | options)

    def step(self, batch):
        noise = 0.1 * torch.randn(batch.X.shape, generator=batch.generator)
        error = ((self.module(batch.X + noise) - batch.X) ** 2).sum(dim=1)
        return {"loss": batch.mean(error), "largest": error.detach().max()}

    def train(self, **options):
        return train(self.step, self.module, self.rows, self.generators, optimizer=self.optimizer, **options)


class ContrastiveMean(nn.Module):
    """N(mean, 1) learnt without gradients: rows minus draws of a chain, with momentum in a buffer."""

    def __init__(self, D):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(D), requires_grad=False)
        self.register_buffer("velocity", torch.zeros(D))

    def step(self, batch, rate=0.1):
        chain = self.mean + torch.randn(batch.X.shape, generator=batch.generator)
        self.velocity.mul_(0.5).add_(rate * batch.mean(batch.X - chain))
        self.mean += self.velocity
        return {"log-likelihood": batch.mean(-0.5 * ((batch.X - self.mean) ** 2).sum(dim=1))}
