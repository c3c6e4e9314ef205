"""The networks of the joint autoencoder, with the Gaussians of classes as gradients learn them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from latently.deep.coders import GaussianCoder
from latently.deep.latent_gaussians import squared_distances
from latently.deep.source_nets import SourceDecoder

_FLOOR = 0.01  # variance of codes within a class while training; codes have variance one


class JointCoder(GaussianCoder):
    """The coder with the Gaussians of the classes, as they are learnt by gradients."""

    log_prior: Tensor

    def __init__(self, encoder, decoder, n_features, n_factors, n_classes, variational):
        super().__init__(encoder, decoder, n_features)
        self.variational = variational
        self.normalisation = None if variational else nn.BatchNorm1d(n_factors, affine=False)
        self.means = nn.Parameter(torch.randn(n_classes, n_factors))
        self.log_spread = nn.Parameter(torch.zeros(n_classes, n_factors))
        self.lower = nn.Parameter(torch.zeros(n_classes, n_factors, n_factors))
        self.register_buffer("log_prior", torch.zeros(n_classes))

    def start(self, mean: Tensor, variance: Tensor) -> None:
        if not isinstance(self.decoder, SourceDecoder):  # which gives pixels in [0, 1]
            super().start(mean, variance)

    def quick_parameters(self) -> list[nn.Parameter]:
        return [self.log_noise, self.means, self.log_spread, self.lower]

    def codes(self, X: Tensor) -> Tensor:
        if self.normalisation is None:
            return self.posterior(X)[0]
        found: Tensor = self.normalisation(self.encoder(self.inside(X)))
        return found

    def covariances(self) -> Tensor:
        """(C, q, q), at least the floor."""
        L = torch.tril(self.lower, -1) + torch.diag_embed(torch.exp(self.log_spread))
        return L @ L.mT + _FLOOR * torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)

    def class_divergences(self, m: Tensor, log_v: Tensor) -> Tensor:
        """KL of N(m, diag v) from the Gaussian of every class, (n, C)."""
        L = torch.linalg.cholesky(self.covariances())
        spread = torch.cholesky_inverse(L).diagonal(dim1=-2, dim2=-1)  # (C, q)
        log_det = 2.0 * torch.log(L.diagonal(dim1=-2, dim2=-1)).sum(dim=-1)
        own = (1.0 + log_v).sum(dim=1, keepdim=True)
        return 0.5 * (squared_distances(m, self.means, L) + torch.exp(log_v) @ spread.T + log_det - own)
