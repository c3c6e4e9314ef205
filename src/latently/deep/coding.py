"""The base of estimators with an encoder and a decoder: their networks, options, codes and files."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import KW_ONLY
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from latently.backend.namespace import is_torch, to_numpy
from latently.deep.nets import ACTIVATIONS, ConvDecoder, ConvEncoder, mlp, own_copy
from latently.deep.network import NetworkEstimator
from latently.estimators.checks import check_choice, check_layer_sizes, numbers
from latently.estimators.data import called
from latently.estimators.messages import warn_user
from latently.estimators.options import estimator, option

_RESOLVED = 1e-5  # variation beside the distance from zero, of which float32 leaves two digits
_ROWS_AT_A_TIME = 512  # of a pass over all rows: convolutions keep many numbers of each


def _check_image_shape(name, value):
    if value is not None:
        check_layer_sizes(name, value, fewest=2)
        if len(value) > 3:
            raise ValueError(f"{name} must be (height, width) or (channels, height, width), not {value!r}")


def _check_network(name, value):
    if value is not None and not isinstance(value, nn.Module):
        raise ValueError(f"{name} must be a torch.nn.Module or None, not {value!r}")


@estimator
class CodingEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NetworkEstimator):
    """Options and methods of models with an encoder and a decoder.

    A subclass declares `n_factors`. Its module has `mean` (D,), a buffer, `codes(X)` (n, q), `expected(Z)`
    (n, D), and `start(mean, variance)` with the moments of the rows.

    Parameters
    ----------
    hidden_layer_sizes : sequence of int, default=(200,)
        Sizes of the hidden layers of the encoder, or numbers of channels of its convolutions; the decoder
        mirrors it. () is linear.
    architecture : {"auto", "mlp", "conv"}, default="auto"
        Multilayer perceptrons or convolutional nets; "auto" is "conv" if `image_shape` is given.
    image_shape : tuple, optional
        (height, width) or (channels, height, width) of the image that a row is.
    encoder, decoder : torch.nn.Module, optional
        Networks of your own: rows (n, n_features) to codes (n, n_factors), and codes to rows. Copies are
        trained, from the parameters that they have. A saved file holds their parameters, but `latently.load`
        needs both.
    activation : {"tanh", "relu", "softplus", "elu"}, default="tanh"
        After each hidden layer.
    learning_rate_schedule : {"constant", "cosine"}, default="constant"
        "cosine" lowers the step size to zero over `max_iter` epochs.
    {options}
    """

    _: KW_ONLY
    hidden_layer_sizes: Any = option(default=(200,), check=check_layer_sizes, fewest=0)
    architecture: str = option(default="auto", check=check_choice, choices=("auto", "mlp", "conv"))
    image_shape: Any = option(default=None, check=_check_image_shape)
    encoder: Any = option(default=None, check=_check_network)
    decoder: Any = option(default=None, check=_check_network)
    activation: str = option(default="tanh", check=check_choice, choices=tuple(ACTIVATIONS))
    learning_rate_schedule: str = option(
        default="constant", check=check_choice, choices=("constant", "cosine")
    )

    # -- fitting --------------------------------------------------------------------------------------

    def _check_options(self):
        super()._check_options()
        if self.architecture == "conv" and self.image_shape is None:
            raise ValueError('architecture="conv" needs image_shape=(height, width)')

    def _check_features(self, n_features):
        if self.image_shape is not None and math.prod(self.image_shape) != n_features:
            raise ValueError(
                f"image_shape={self.image_shape!r} has {math.prod(self.image_shape)} pixels, but X has "
                f"{n_features} columns"
            )

    def _channels_first(self):
        """(channels, height, width) of the images; None for rows that are none."""
        if self.image_shape is None:
            return None
        shape = tuple(map(int, self.image_shape))
        return (1, *shape) if len(shape) == 2 else shape

    def _networks(self, n_features, n_out):
        """Encoder and decoder; the encoder has `n_out` outputs."""
        q, sizes, shape = self.n_factors, tuple(map(int, self.hidden_layer_sizes)), self._channels_first()
        convolves = self.architecture == "conv" or (self.architecture == "auto" and shape is not None)
        if self.encoder is not None:
            encoder = own_copy(self.encoder, "encoder", n_features, n_out)
        elif convolves:
            encoder = ConvEncoder(shape, sizes, n_out, self.activation)
        else:
            encoder = mlp((n_features, *sizes, n_out), self.activation)
        if self.decoder is not None:
            decoder = own_copy(self.decoder, "decoder", q, n_features)
        elif convolves:
            decoder = ConvDecoder(shape, sizes, q, self.activation)
        else:
            decoder = mlp((q, *sizes[::-1], n_features), self.activation)
        return encoder, decoder

    def _rows(self, data, targets):
        if data.in_memory and not is_torch(data.X):
            self._warn_of_far_columns(data.X)
        return super()._rows(data, targets)

    def _warn_of_far_columns(self, X):
        """Networks compute in float32: seven digits for the distance from zero and the variation."""
        low, high = X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
        with np.errstate(invalid="ignore"):  # infinities are refused later
            extent = high - low
            far = np.flatnonzero((extent > 0) & (extent < _RESOLVED * np.maximum(-low, high)))
        if len(far):
            first = far[0]
            others = f" and {len(far) - 1} more" if len(far) > 1 else ""
            warn_user(
                f"feature {called(self, first)}{others} of X varies by {extent[first]:.3g} about "
                f"{low[first]:.6g}, which float32, in which networks compute, hardly resolves; subtract the "
                "mean of each column first, as StandardScaler does"
            )

    def _start(self, module, rows):
        module.start(*moments(rows))

    def _optimizer(self, module):
        """Adam; numbers that all rows agree on, not weights of networks, move ten times as fast."""
        few = {id(parameter) for parameter in module.quick_parameters()}
        nets = [parameter for parameter in module.parameters() if id(parameter) not in few]
        groups: list[dict[str, Any]] = [{"params": nets}]
        if few:
            groups.append({"params": list(module.quick_parameters()), "lr": 10.0 * self.learning_rate})
        return torch.optim.Adam(groups, lr=self.learning_rate, fused=True)

    def _schedule(self):
        if self.learning_rate_schedule == "constant":
            return None
        return lambda epoch: 0.5 * (1.0 + math.cos(math.pi * epoch / max(self.max_iter, 1)))

    @property
    def draws_name_generators(self):  # type: ignore[override]
        """Networks of the user may have dropout."""
        return self.encoder is None and self.decoder is None

    def _check_enough(self, data, least):
        """Raise an error for fewer rows than codes have entries."""
        weight = data.field("weight")
        n = data.count_rows() if weight is None else int((to_numpy(weight) > 0).sum())
        if n < least:
            raise ValueError(
                f"n_factors={self.n_factors} needs at least {least} rows, but X has n_samples={n}; lower "
                "n_factors, or give more rows"
            )

    def _pieces(self, data):
        """All rows in order, a few at a time: rows and weights in float64 at the module, and indices."""
        device, start = self.module_.mean.device, 0
        for block in data.blocks():
            for first in range(0, len(block), _ROWS_AT_A_TIME):
                part = block[first : first + _ROWS_AT_A_TIME]
                X = part.X if is_torch(part.X) else torch.from_numpy(np.array(to_numpy(part.X), np.float64))
                weight = np.ones(len(part)) if part.weight is None else to_numpy(part.weight)
                here = slice(start + first, start + first + len(part))
                yield (
                    X.to(device, torch.float64),
                    torch.from_numpy(np.array(weight, np.float64)).to(device),
                    here,
                )
            start += len(block)

    # -- codes ----------------------------------------------------------------------------------------

    @property
    def _n_features_out(self):
        return self.n_factors

    def _sizes_in_words(self):
        return [f"{self.n_factors} factors"]

    def transform(self, X, *, out=None):
        """Codes of the rows, (n_samples, n_factors).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        out : path of a .npy file, optional
            Write the result to this file block by block and return the file, memory-mapped.
        """
        return self._exactly(lambda module, X: module.codes(X), X, out)

    def inverse_transform(self, Z):
        """Means of the rows given codes (n_samples, n_factors), (n_samples, n_features)."""
        check_is_fitted(self)
        given = torch.is_tensor(Z)
        codes = torch.as_tensor(Z if given else numbers("Z", Z), dtype=torch.float64)
        if codes.ndim != 2 or codes.shape[1] != self.n_factors:
            raise ValueError(f"Z must have {self.n_factors} columns, not shape {tuple(codes.shape)}")
        with torch.no_grad():
            found = self._double().expected(codes.detach().to(self.module_.mean.device))
        return found.to(Z.device) if given else found.cpu().numpy()

    def reconstruct(self, X, *, out=None):
        """Means of the rows given their codes, (n_samples, n_features)."""
        return self._exactly(lambda module, X: module.expected(module.codes(X)), X, out)

    def _double(self):
        return deepcopy(self.module_).double()

    def _exactly(self, part, X, out=None, missing=False, floats_per_row=0):
        """`part(module, X)` in float64 for all rows."""
        return self.rows_through(
            part, X, out, dtype=torch.float64, missing=missing, floats_per_row=floats_per_row
        )

    # -- files ----------------------------------------------------------------------------------------

    def _needed_at_load(self):
        return [name for name in ("encoder", "decoder") if getattr(self, name) is not None]

    def _more_header(self):
        return super()._more_header() | {"needs": self._needed_at_load()}

    def _set_more(self, *, needs, **more):  # type: ignore[override]
        missing = [name for name in needs if getattr(self, name, None) is None]
        if missing:
            given = ", ".join(f"{name}=..." for name in missing)
            raise ValueError(
                f"its {' and '.join(missing)} were modules of your own; use latently.load(path, {given})"
            )
        super()._set_more(**more)


def moments(rows):
    """Means and variances (D,) of the rows of a training, in float64."""
    total: Any = 0.0
    squares: Any = 0.0
    centre: Any = None
    n = 0.0
    for batch in rows.batches(torch.Generator(rows.device)):
        if centre is None:  # so that large offsets cost no digits
            centre = batch.X.double().mean(dim=0)
        apart = batch.X.double() - centre
        weight = torch.ones(len(batch)) if batch.weight is None else batch.weight
        weight = weight.to(apart)
        total, squares, n = total + weight @ apart, squares + weight @ apart**2, n + float(weight.sum())
    mean = total / n
    return centre + mean, (squares / n - mean**2).clamp(min=0.0)
