"""Encoders and decoders with a likelihood of rows given codes: what autoencoders have in common.

    x | z ~ N(mean + scale g(z), scale^2 s2 I) or Bernoulli(logistic(g(z)))     q(z | x) = N(m(x), diag v(x))

Networks work in a frame of their own, in which rows are centred and divided by one common scale; densities
are in the units of the rows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

LOG_2PI = math.log(2.0 * math.pi)
_MOST_LOG_VARIANCE = 20.0


class Coder(nn.Module):
    """Encoder and decoder with what belongs to the likelihood; rows are in the units of X."""

    mean: Tensor

    def __init__(self, encoder: nn.Module, decoder: nn.Module, n_features: int):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.register_buffer("mean", torch.zeros(n_features))  # of the rows

    def posterior(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log variances of q(z | x), (n, q) each."""
        m, log_v = self.encoder(self.inside(X)).chunk(2, dim=1)
        return m, log_v.clamp(-_MOST_LOG_VARIANCE, _MOST_LOG_VARIANCE)

    def codes(self, X: Tensor) -> Tensor:
        """One code for each row, (n, q)."""
        return self.posterior(X)[0]

    def start(self, mean: Tensor, variance: Tensor) -> None:
        """Set what depends on the moments (D,) of the rows."""
        self.mean.copy_(mean)

    def quick_parameters(self) -> list[nn.Parameter]:
        """Those that all entries of all rows agree on, which may move faster than weights."""
        return []

    def inside(self, X: Tensor) -> Tensor:
        raise NotImplementedError

    def expected(self, Z: Tensor) -> Tensor:
        """E[x | z], (n, D)"""
        raise NotImplementedError

    def log_likelihood(self, X: Tensor, Z: Tensor, observed: Tensor | None = None) -> Tensor:
        """ln p(x | z) of rows (n, D) and their codes (n, S, q), (n, S); of entries that are observed."""
        raise NotImplementedError

    def draw(self, Z: Tensor, generator: torch.Generator) -> Tensor:
        raise NotImplementedError


class GaussianCoder(Coder):
    """x | z ~ N(mean + scale g(z), scale^2 s2 I)"""

    scale: Tensor

    def __init__(self, encoder: nn.Module, decoder: nn.Module, n_features: int):
        super().__init__(encoder, decoder, n_features)
        self.register_buffer("scale", torch.ones(()))
        self.log_noise = nn.Parameter(torch.zeros(()))  # ln s2

    def start(self, mean: Tensor, variance: Tensor) -> None:
        super().start(mean, variance)
        common = torch.sqrt(variance.mean())
        self.scale.copy_(common if common > 0 else torch.ones(()))

    def quick_parameters(self) -> list[nn.Parameter]:
        return [self.log_noise]

    @property
    def noise_variance(self) -> float:
        return float(torch.exp(self.log_noise.detach().double()) * self.scale.double() ** 2)

    def inside(self, X: Tensor) -> Tensor:
        return (X - self.mean) / self.scale

    def expected(self, Z: Tensor) -> Tensor:
        return self.mean + self.scale * self.decoder(Z)

    def log_likelihood(self, X: Tensor, Z: Tensor, observed: Tensor | None = None) -> Tensor:
        n, S, q = Z.shape
        error = self.inside(X)[:, None] - self.decoder(Z.reshape(n * S, q)).reshape(n, S, -1)
        D: Any = X.shape[1]
        if observed is not None:
            error, D = error * observed[:, None], observed.sum(dim=1, keepdim=True)
        volume = D * (LOG_2PI + self.log_noise + 2.0 * torch.log(self.scale))
        return -0.5 * ((error**2).sum(dim=2) * torch.exp(-self.log_noise) + volume)

    def draw(self, Z: Tensor, generator: torch.Generator) -> Tensor:
        mean = self.expected(Z)
        noise = torch.empty_like(mean).normal_(generator=generator)
        return mean + self.scale * torch.exp(0.5 * self.log_noise) * noise


class BernoulliCoder(Coder):
    """x | z ~ Bernoulli(logistic(g(z))); a fraction x is x ln p(1) + (1 - x) ln p(0)."""

    def inside(self, X: Tensor) -> Tensor:
        return X

    def expected(self, Z: Tensor) -> Tensor:
        return torch.sigmoid(self.decoder(Z))

    def log_likelihood(self, X: Tensor, Z: Tensor, observed: Tensor | None = None) -> Tensor:
        n, S, q = Z.shape
        logits = self.decoder(Z.reshape(n * S, q)).reshape(n, S, -1)
        if observed is not None:
            found = torch.einsum("nd,nsd->ns", X * observed, logits)
            return found - torch.einsum("nd,nsd->ns", observed, softplus(logits))
        return torch.einsum("nd,nsd->ns", X, logits) - softplus(logits).sum(dim=2)

    def draw(self, Z: Tensor, generator: torch.Generator) -> Tensor:
        mean = self.expected(Z)
        return torch.empty_like(mean).uniform_(generator=generator).lt_(mean)


CODERS = {"gaussian": GaussianCoder, "bernoulli": BernoulliCoder}


def divergence(m: Tensor, log_v: Tensor) -> Tensor:
    """KL of N(m, diag v) from N(0, I), (n,)"""
    return 0.5 * (m**2 + torch.exp(log_v) - 1.0 - log_v).sum(dim=1)
