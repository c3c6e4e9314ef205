"""Rows as mini-batches of tensors, from memory, any device or files.

Every chunk of rows (all rows, if they are in memory) is shuffled and split evenly: 101 rows with
`batch_size=100` give batches of 51 and 50, so that no small last batch has a mostly noisy gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latently.backend.namespace import Array, is_native, is_sparse, is_torch, like, namespace, to_numpy
from latently.core.data import Data
from latently.core.sources import open_source

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Batch:
    """The input of a step: some rows with labels and weights, and a generator for its draws."""

    X: Tensor  # (n, D), in the dtype and on the device of the training
    y: Tensor | None  # (n,) or (n, m): int64 where labels are integers
    weight: Tensor | None  # (n,), with mean 1 over all rows; None if rows are not weighted
    rows: Tensor  # (n,), int64: indices of the rows
    generator: torch.Generator  # for every draw of the step
    epoch: int  # from 0

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def mean(self, values: Tensor) -> Tensor:
        """Weighted mean over rows of (n, ...) values; averaged over an epoch it is the mean over all rows."""
        if self.weight is None:
            return values.mean(dim=0)
        total: Tensor = torch.tensordot(self.weight, values, dims=1)
        return total / len(self)


class Rows:
    """The rows of a fit with weights and labels, as mini-batches.

    X is an array, a tensor, `Data` (with its weights), or anything that `open_source` accepts. Device "auto"
    is the device of a tensor, and the CPU for all else. Rows in memory are moved to another device once, rows
    of a file batch by batch. Rows with zero weight are ignored.
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        weight: Any = None,
        *,
        batch_size: int,
        min_batch_size: int = 1,
        drop_last: bool = False,
        device: str | torch.device = "auto",
        dtype: str = "float32",
    ):
        if dtype not in _DTYPES:
            raise ValueError(f"dtype must be one of {sorted(_DTYPES)}, not {dtype!r}")
        if not 1 <= min_batch_size <= batch_size:
            raise ValueError(
                f"batch_size={batch_size} must be at least min_batch_size={min_batch_size}, both at least 1"
            )
        data = X if isinstance(X, Data) else Data(_opened(X))
        here = data.X.device if data.in_memory and is_torch(data.X) else torch.device("cpu")
        self.device = here if device == "auto" else _available(device)
        self.dtype = _DTYPES[dtype]
        self.batch_size, self.min_batch_size, self.drop_last = batch_size, min_batch_size, drop_last
        # Rows on another device move there once. Those that do not grow by it are converted once as well.
        if data.in_memory and (self.device != here or _n_bytes(data.X) >= self.dtype.itemsize):
            data = Data(self._tensor(data.X), weight=data.field("weight"))
        self.data = data
        self.n_features = data.n_features
        weight = data.field("weight") if weight is None else weight
        self._n_all = data.count_rows()
        self._weight = (
            None if weight is None else self._beside("weight", np.asarray(to_numpy(weight), np.float64))
        )
        self._y = None if y is None else self._label_tensor(self._beside("y", to_numpy(y)))
        self._chosen = np.ones(self._n_all, dtype=bool) if self._weight is None else self._weight > 0  # (N,)

    def __len__(self) -> int:
        return int(np.count_nonzero(self._chosen))

    @property
    def y(self) -> Tensor | None:
        """Labels of all rows, on the device of the training."""
        return self._y

    def split(self, fraction: float, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """Random split into training rows and a `fraction` of validation rows."""
        n = round(fraction * len(self))
        if not (0 < fraction < 1 and 0 < n < len(self)):
            raise ValueError(
                f"a validation fraction of {fraction} of {len(self)} rows leaves no rows for training or "
                "validation; use one between 0 and 1, or more rows"
            )
        held_out = np.zeros(self._n_all, dtype=bool)
        held_out[rng.choice(np.flatnonzero(self._chosen), size=n, replace=False)] = True
        training, validation = copy(self), copy(self)
        training._chosen, validation._chosen = self._chosen & ~held_out, held_out
        validation.min_batch_size, validation.drop_last = 1, False
        return training, validation

    def batches(
        self, generator: torch.Generator, epoch: int = 0, order: np.random.Generator | None = None
    ) -> Iterator[Batch]:
        """All rows, each once, in order or shuffled within every chunk.

        With `drop_last` all batches have exactly `batch_size` rows, and the remaining rows are skipped in
        this epoch. Otherwise all batches have at least `min_batch_size` rows, if necessary a few more than
        `batch_size`.
        """
        weight = self._scaled_weight()
        ready: tuple[Array, Tensor] | None = None  # a batch, returned once the next one is ready
        left: tuple[Array, Tensor] | None = None  # rows too few for a batch
        for X, rows in self._chunks():
            index = np.flatnonzero(self._chosen[rows])
            numbers = torch.from_numpy(rows).to(self.device)
            if left is not None:
                part = torch.from_numpy(index).to(self.device)
                X, numbers = _joined(left, (_taken(X, part), numbers[part]))
                index = np.arange(len(numbers))
            if order is not None:
                index = order.permutation(index)
            taken = torch.from_numpy(index).to(self.device)  # once: a transfer costs as much as a small step
            bounds = self._bounds(len(index))
            for start, stop in pairwise(bounds):
                if ready is not None:
                    yield self._batch(*ready, weight, generator, epoch)
                part = taken[start:stop]
                ready = _taken(X, part), numbers[part]
            rest = taken[bounds[-1] :]
            left = (_taken(X, rest), numbers[rest]) if len(rest) else None
        if ready is None:
            raise ValueError(
                f"{len(self)} rows are too few for one batch with batch_size={self.batch_size}, "
                f"min_batch_size={self.min_batch_size} and drop_last={self.drop_last}; lower batch_size"
            )
        if left is not None and not self.drop_last:
            ready = _joined(ready, left)
        yield self._batch(*ready, weight, generator, epoch)

    def _bounds(self, n: int) -> list[int]:
        """Boundaries of the batches of n rows."""
        if self.drop_last:
            return list(range(0, n + 1, self.batch_size))
        n_batches = min(-(-n // self.batch_size), n // self.min_batch_size)
        return [n * i // n_batches for i in range(n_batches + 1)] if n_batches else [0]

    def _chunks(self) -> Iterator[tuple[Array, NDArray[np.int64]]]:
        start = 0
        for block in self.data.blocks():
            yield block.X, np.arange(start, start + len(block))
            start += len(block)

    def _scaled_weight(self) -> Tensor | None:
        """Weights of all rows, with mean 1 over those that are chosen."""
        if self._weight is None:
            return None
        return self._tensor(self._weight * (1.0 / float(self._weight[self._chosen].mean())))

    def _batch(
        self, X: Array, rows: Tensor, weight: Tensor | None, generator: torch.Generator, epoch: int
    ) -> Batch:
        y = None if self._y is None else self._y[rows]
        weight = None if weight is None else weight[rows]
        return Batch(self._tensor(X), y, weight, rows, generator, epoch)

    def _tensor(self, values: Array) -> Tensor:
        """The values in the dtype and on the device of the training."""
        if is_torch(values):
            return torch.asarray(values, dtype=self.dtype, device=self.device)
        name = "float32" if self.dtype == torch.float32 else "float64"
        with np.errstate(over="ignore"):  # infinities are reported by the loss
            return torch.from_numpy(np.array(to_numpy(values), dtype=name, order="C")).to(self.device)

    def _label_tensor(self, y: NDArray[Any]) -> Tensor:
        if y.dtype.kind in "iub":
            return torch.from_numpy(y.astype(np.int64)).to(self.device)
        if y.dtype.kind != "f":
            raise ValueError(f"y must hold numbers, not {y.dtype}; encode labels as 0 to C - 1")
        return self._tensor(y)

    def _beside(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        if array.ndim == 0 or array.shape[0] != self._n_all:
            raise ValueError(
                f"{name} has shape {array.shape}, but X has {self._n_all} rows; give one entry per row"
            )
        return array


def _n_bytes(X: Array) -> int:
    """Bytes of an entry."""
    return int(X.dtype.itemsize) if hasattr(X.dtype, "itemsize") else 0


def _available(device: str | torch.device) -> torch.device:
    """The device with its index, so that devices can be compared."""
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"device={str(device)!r} needs a GPU, and torch finds none; use device='cpu' or 'auto'"
        )
    return torch.empty(0, device=device).device


def _opened(X: Any) -> Any:
    """A source of chunks, or a 2-D array of any namespace."""
    source = open_source(X)
    if source is not None:
        return source
    if is_sparse(X):
        raise TypeError("X is a sparse matrix, which is not supported; use X.toarray()")
    X = X if is_native(X) else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X has shape {tuple(X.shape)}; reshape it to (n_samples, n_features)")
    return X


def _taken(X: Array, index: Tensor) -> Array:
    if is_torch(X):
        return torch.index_select(X, 0, index.to(X.device))
    return namespace(X).take(X, like(index.cpu().numpy(), X), axis=0)


def _joined(first: tuple[Array, Tensor], second: tuple[Array, Tensor]) -> tuple[Array, Tensor]:
    xp = namespace(first[0])
    return xp.concat([first[0], second[0]], axis=0), torch.cat([first[1], second[1]])
