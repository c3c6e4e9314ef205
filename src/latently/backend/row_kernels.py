"""Passes over rows and responsibilities on CUDA as one kernel each: they are limited by reading memory.

By plain operations responsibilities take five passes over (K, n) and sums of squares three over (n, D); each
takes one here, and no array beside what is read. Needs triton, which comes with torch for CUDA, and a C
compiler; elsewhere, and for tensors in main memory, the plain operations are the way. Before a device first
uses the kernels, they have to come out on it as plain operations do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from latently.backend.namespace import Array, double, empty, is_torch, namespace

_MOST_COMPONENTS = 1024  # that one program normalises
_NUMBERS = 1024  # of a program at once; measured on an H200, as the rest
_FEWEST_COLUMNS = 16  # next to one another in memory
_COLUMNS = 64
_ROWS = 32
_ROWS_OF_PART = 2048  # whose squares one program adds up


def normalised(log_joint: Array) -> tuple[Array, Array]:
    """log sum exp over the last axis but one, and exp of what is left without it, for a tensor (..., K, n).

    NaN where nothing is finite. The tensor is overwritten.
    """
    if _possible(log_joint) and log_joint.shape[-2] <= _MOST_COMPONENTS:
        found: tuple[Array, Array] = _there(launch_normalise, log_joint)
        return found
    return plainly_normalised(log_joint)


def squares_by_row(X: Array, h: Array) -> Array:
    """(n,) the sums over features of h x^2, for a tensor X (n, D) and h (D,)."""
    return _there(launch_by_row, X, h) if _possible(X) else (X * X) @ h


def squares_by_column(X: Array, weight: Array) -> Array:
    """(D,) the sums over rows of w x^2, for a tensor X (n, D) and weights (n,)."""
    return _there(launch_by_column, X, weight) if _possible(X) else weight @ (X * X)


def plainly_normalised(log_joint: Array) -> tuple[Array, Array]:
    """`normalised` by the operations of torch."""
    import torch

    largest = torch.amax(log_joint, dim=-2)
    resp = torch.softmax(log_joint, dim=-2)
    return largest - torch.log(torch.amax(resp, dim=-2)), resp


def launch_normalise(log_joint: Array) -> tuple[Array, Array]:
    from latently.backend.row_kernels_triton import normalise

    *stack, K, n = log_joint.shape
    groups = log_joint.reshape(-1, K, n)
    log_norm = empty((groups.shape[0], n), log_joint)
    rows = max(2, 1 << (K - 1).bit_length())
    columns = max(_FEWEST_COLUMNS, _NUMBERS // rows)
    grid = (-(-n // columns), groups.shape[0])
    normalise[grid](groups, log_norm, K, n, rows, columns, num_warps=8)
    return log_norm.reshape(*stack, n), log_joint


def launch_by_row(X: Array, h: Array) -> Array:
    from latently.backend.row_kernels_triton import by_row

    (n, D), found = X.shape, empty((X.shape[0],), X)
    by_row[(-(-n // _ROWS),)](X, double(h).contiguous(), found, n, D, _ROWS, _COLUMNS)
    return found


def launch_by_column(X: Array, weight: Array) -> Array:
    from latently.backend.row_kernels_triton import by_column

    n, D = X.shape
    n_parts = -(-n // _ROWS_OF_PART)
    found = empty((n_parts, D), X)
    grid = (n_parts, -(-D // _COLUMNS))
    by_column[grid](X, double(weight).contiguous(), found, n, D, _ROWS_OF_PART, _ROWS, _COLUMNS)
    return namespace(found).sum(found, axis=0)


def _there(launch: Callable[..., Any], *arrays: Array) -> Any:
    """What a launch gives, on the device of the arrays."""
    import torch

    with torch.cuda.device(arrays[0].device):
        return launch(*arrays)


def _possible(array: Array) -> bool:
    """Whether the kernels take this array."""
    return bool(
        is_torch(array)
        and array.device.type == "cuda"
        and array.element_size() == 8
        and array.is_contiguous()
        and array.numel() > 0
        and _works(array.device)
    )


@cache
def _works(device: Any) -> bool:
    """Whether the kernels compile, and do on the device what plain operations do."""
    import torch

    try:
        with torch.cuda.device(device):
            return do_as_plain_operations(device)
    except Exception:  # compilers fail in many ways, and there is another way
        return False


def do_as_plain_operations(device: Any) -> bool:
    """Whether the kernels find on the device what plain operations find."""
    import torch

    draw = torch.Generator().manual_seed(0)
    numbers = 30.0 * torch.randn((2, 5, 300), generator=draw, dtype=torch.float64)
    X = torch.randn((2 * _ROWS_OF_PART + 7, 70), generator=draw, dtype=torch.float64)
    h = torch.rand((70,), generator=draw, dtype=torch.float64)
    weight = torch.rand((X.shape[0],), generator=draw, dtype=torch.float64)
    pairs = [
        (launch_by_row(X.to(device), h.to(device)), (X * X) @ h),
        (launch_by_column(X.to(device), weight.to(device)), weight @ (X * X)),
        *zip(launch_normalise(numbers.to(device, copy=True)), plainly_normalised(numbers), strict=True),
    ]
    return all(torch.allclose(found.cpu(), known, rtol=1e-12, atol=1e-12) for found, known in pairs)
