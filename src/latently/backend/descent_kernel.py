"""The kernel of `coordinate_descent`, in triton: imported where there is a CUDA device only."""

import triton
import triton.language as tl


@triton.jit
def descent(V, G, B, inverse, r, m, n_passes, COLUMNS: tl.constexpr, COORDINATES: tl.constexpr):
    """Passes over the r coordinates of some of the m columns of V; arrays are contiguous."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < m
    for _ in range(n_passes):
        for k in range(r):
            pull = tl.load(B + k * m + columns, mask=inside, other=0.0)
            for first in range(0, r, COORDINATES):
                j = first + tl.arange(0, COORDINATES)
                g = tl.load(G + k * r + j, mask=j < r, other=0.0)
                known = (j < r)[:, None] & inside[None, :]
                v = tl.load(V + j[:, None] * m + columns[None, :], mask=known, other=0.0)
                pull -= tl.sum(g[:, None] * v, axis=0)
            own = tl.load(V + k * m + columns, mask=inside, other=0.0)
            moved = tl.maximum(own + pull * tl.load(inverse + k), 0.0)
            tl.debug_barrier()  # all threads have read before one writes ...
            tl.store(V + k * m + columns, moved, mask=inside)
            tl.debug_barrier()  # ... and all have written before one reads
