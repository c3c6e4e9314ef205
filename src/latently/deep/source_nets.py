"""The networks of the source document (003, 6.2.2): its tables of layers.

    images up to 32 wide   conv 28 (5 x 5), 64, 128 channels (3 x 3), each of half the size
    larger images          conv 64, 128, 256, 256 channels (3 x 3)
    other rows             D -> 64 -> 12 -> q with tanh

Convolutions are followed by batch normalisation and a leaky ReLU, and by FC(32, tanh) - FC(q). Decoders
mirror them with ReLU; those of images end with a logistic function. Corrected: FC(32, 4) of the encoder of
rows, which the decoder does not mirror, and DCONV(64, 28) of larger images, which would double their size.
"""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from latently.deep.nets import mlp

_SMALL, _LARGE = ((28, 5), (64, 3), (128, 3)), ((64, 3), (128, 3), (256, 3), (256, 3))  # channels, kernel
_WIDEST_SMALL = 32
_HIDDEN = 32
_ROWS = (64, 12)


def source_networks(
    n_features: int, image_shape: tuple[int, int, int] | None, n_factors: int, n_out: int
) -> tuple[nn.Module, nn.Module]:
    """Encoder and decoder; the encoder has `n_out` outputs."""
    if image_shape is None:
        encoder = mlp((n_features, *_ROWS, n_out), "tanh")
        return encoder, mlp((n_factors, *_ROWS[::-1], n_features), "tanh")
    return SourceEncoder(image_shape, n_out), SourceDecoder(image_shape, n_factors)


class SourceEncoder(nn.Module):
    """Images in rows -> outputs, (n, D) -> (n, n_out)."""

    def __init__(self, image_shape: tuple[int, int, int], n_out: int):
        super().__init__()
        self.image_shape = image_shape
        shapes, kernels = _sizes(image_shape)
        layers: list[nn.Module] = []
        for ((n_in, _, _), (n_next, _, _)), kernel in zip(pairwise(shapes), kernels, strict=True):
            layers += [
                nn.Conv2d(n_in, n_next, kernel, stride=2, padding=1),
                nn.BatchNorm2d(n_next),
                nn.LeakyReLU(0.2),
            ]
        self.convolutions = nn.Sequential(*layers)
        c, h, w = shapes[-1]
        self.linear = mlp((c * h * w, _HIDDEN, n_out), "tanh")

    def forward(self, X: Tensor) -> Tensor:
        found: Tensor = self.linear(self.convolutions(X.reshape(-1, *self.image_shape)).flatten(1))
        return found


class SourceDecoder(nn.Module):
    """Codes -> images in rows with pixels in [0, 1], (n, q) -> (n, D)."""

    def __init__(self, image_shape: tuple[int, int, int], n_in: int):
        super().__init__()
        shapes, kernels = _sizes(image_shape)
        self.smallest = shapes[-1]
        c, h, w = self.smallest
        self.linear = mlp((n_in, _HIDDEN, c * h * w), "tanh")
        layers: list[nn.Module] = [nn.BatchNorm2d(c)]
        for (below, above), kernel in zip(pairwise(shapes[::-1]), kernels[::-1], strict=True):
            (n_from, h, w), (n_to, height, width) = below, above
            more = (height - 2 * h + 4 - kernel, width - 2 * w + 4 - kernel)
            layers += [
                nn.ConvTranspose2d(n_from, n_to, kernel, stride=2, padding=1, output_padding=more),
                nn.BatchNorm2d(n_to),
                nn.ReLU(),
            ]
        self.convolutions = nn.Sequential(*layers[:-2], nn.Sigmoid())

    def forward(self, Z: Tensor) -> Tensor:
        found: Tensor = self.convolutions(self.linear(Z).reshape(-1, *self.smallest))
        return found.flatten(1)


def _sizes(image_shape: tuple[int, int, int]) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Shapes (c, h, w) of the image and of every layer, and the widths of their kernels."""
    table = _SMALL if max(image_shape[1:]) <= _WIDEST_SMALL else _LARGE
    shapes = [image_shape]
    for channels, kernel in table:
        _, h, w = shapes[-1]
        if min(h, w) + 2 < kernel:
            raise ValueError(f'images of {image_shape[1:]} pixels are too small for architecture="source"')
        shapes.append((channels, (h + 2 - kernel) // 2 + 1, (w + 2 - kernel) // 2 + 1))
    return shapes, [kernel for _, kernel in table]
