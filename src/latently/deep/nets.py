"""Encoders and decoders: multilayer perceptrons, and convolutions that halve and double images.

    MLP     D -> sizes[0] -> ... -> sizes[-1] -> outputs, with an activation between layers; () is linear
    conv    (c, h, w) -> sizes[i] channels of half the height and width in each layer, then linear

Decoders mirror their encoder.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "softplus": nn.Softplus, "elu": nn.ELU}


def mlp(sizes: tuple[int, ...], activation: str) -> nn.Sequential:
    """Linear layers between these sizes, with an activation after each but the last."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


class ConvEncoder(nn.Module):
    """Images in rows -> outputs, (n, D) -> (n, n_out)."""

    def __init__(
        self, image_shape: tuple[int, int, int], channels: tuple[int, ...], n_out: int, activation: str
    ):
        super().__init__()
        self.image_shape = image_shape
        layers: list[nn.Module] = []
        for n_in, n_next in pairwise((image_shape[0], *channels)):
            layers += [nn.Conv2d(n_in, n_next, 3, stride=2, padding=1), ACTIVATIONS[activation]()]
        self.convolutions = nn.Sequential(*layers)
        c, h, w = halved(image_shape, channels)[-1]
        self.linear = nn.Linear(c * h * w, n_out)

    def forward(self, X: Tensor) -> Tensor:
        found: Tensor = self.linear(self.convolutions(X.reshape(-1, *self.image_shape)).flatten(1))
        return found


class ConvDecoder(nn.Module):
    """Codes -> images in rows, (n, q) -> (n, D)."""

    def __init__(
        self, image_shape: tuple[int, int, int], channels: tuple[int, ...], n_in: int, activation: str
    ):
        super().__init__()
        shapes = halved(image_shape, channels)
        self.smallest = shapes[-1]
        c, h, w = self.smallest
        self.linear = nn.Linear(n_in, c * h * w)
        layers: list[nn.Module] = []
        for (n_from, h, w), (n_to, height, width) in pairwise(shapes[::-1]):
            more = (height - 2 * h + 1, width - 2 * w + 1)  # of the two sizes that are halved to this one
            layers += [
                ACTIVATIONS[activation](),
                nn.ConvTranspose2d(n_from, n_to, 3, stride=2, padding=1, output_padding=more),
            ]
        self.convolutions = nn.Sequential(*layers)

    def forward(self, Z: Tensor) -> Tensor:
        found: Tensor = self.convolutions(self.linear(Z).reshape(-1, *self.smallest))
        return found.flatten(1)


def halved(image_shape: tuple[int, int, int], channels: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Shapes (c, h, w) of the image and of every layer."""
    shapes = [image_shape]
    for channel in channels:
        _, h, w = shapes[-1]
        shapes.append((channel, (h + 1) // 2, (w + 1) // 2))
    return shapes


def own_copy(module: nn.Module, what: str, n_in: int, n_out: int) -> nn.Module:
    """A copy of the user's module, if it maps (n, n_in) to (n, n_out)."""
    with torch.device("cpu"):  # files are checked with modules that have no memory
        module, example = deepcopy(module), torch.zeros(2, n_in)
    try:
        with torch.no_grad():
            found = module(example)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{what} does not accept rows of shape {tuple(example.shape)}: {error}") from None
    if not isinstance(found, Tensor) or tuple(found.shape) != (2, n_out):
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"{what} must return a tensor of shape {(2, n_out)}, not {shape}")
    return module.to(torch.empty(0).device)
