"""Coordinate descent of non-negative quadratics on CUDA, as one kernel instead of many short ones.

Minimises v'Gv/2 - b'v over v >= 0 for every column of V (r, m) and B (r, m), with one G (r, r). A program has
some columns and goes through their coordinates: of each it reads one row of G and all coordinates of its
columns, which stay in the cache. Needs triton, which comes with torch for CUDA, and a C compiler; `descend`
says whether it could run. Before a device first uses the kernel, it solves a small problem with it, which has
to come out as by plain products.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from latently.backend.namespace import Array, is_torch

_COLUMNS = 128  # of a program; fewer if that leaves processors idle
_COORDINATES = 16  # read at once
_PROGRAMS = 128  # at least, if there are that many columns
_TRIAL = (40, 700, 3)  # coordinates, columns and passes of the problem that comes first


def descend(V: Array, G: Array, B: Array, inverse: Array, n_passes: int) -> bool:
    """Passes over all coordinates of V, in place; `inverse` (r,) are reciprocals of the diagonal of G.

    False, and V unchanged, where this is not possible: the caller has to do it in another way.
    """
    if not is_torch(V) or V.device.type != "cuda" or not V.is_contiguous() or not _works(V.device):
        return False
    import torch

    with torch.cuda.device(V.device):
        launch(V, G, B, inverse, n_passes)
    return True


def launch(V: Array, G: Array, B: Array, inverse: Array, n_passes: int) -> None:
    """The kernel for all columns of V (r, m), which is contiguous."""
    from latently.backend.descent_kernel import descent

    r, m = V.shape
    columns = _COLUMNS
    while columns > 16 and m < columns * _PROGRAMS:
        columns //= 2
    B, G, inverse = (array.to(V.dtype).contiguous() for array in (B, G, inverse))
    descent[(-(-m // columns),)](V, G, B, inverse, r, m, n_passes, columns, _COORDINATES)


@cache
def _works(device: Any) -> bool:
    """Whether the kernel compiles and solves a problem on the device."""
    import torch

    try:
        with torch.cuda.device(device):
            return solves_a_problem(device)
    except Exception:  # compilers fail in many ways, and there is another way to descend
        return False


def solves_a_problem(device: Any) -> bool:
    """Whether the kernel finds on the device what plain products find."""
    import torch

    r, m, n_passes = _TRIAL
    draw = torch.Generator().manual_seed(0)
    A = torch.rand((r, 2 * r), generator=draw, dtype=torch.float64)
    B = r * torch.randn((r, m), generator=draw, dtype=torch.float64)
    V = torch.rand((r, m), generator=draw, dtype=torch.float64)
    G, expected = A @ A.T, V.clone()
    inverse = 1.0 / torch.diagonal(G)
    for _ in range(n_passes):
        for k in range(r):
            expected[k, :] = (expected[k, :] + (B[k, :] - G[k, :] @ expected) * inverse[k]).clip(min=0.0)
    found = V.to(device)
    launch(found, G.to(device), B.to(device), inverse.to(device), n_passes)
    return bool(torch.allclose(found.cpu(), expected, rtol=1e-9, atol=1e-9))
