"""The kernels of `row_kernels`, in triton, of contiguous arrays: for where there is a CUDA device only."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["K", "n"])  # one compilation for tables of all sizes
def normalise(numbers, log_norm, K, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Some columns of one of the groups (K, n): exp over its sum, in place, and the logarithm of the sum."""
    group = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, ROWS).to(tl.int64)
    inside = (k < K)[:, None] & (columns < n)[None, :]
    places = numbers + (group * K + k[:, None]) * n + columns[None, :]
    x = tl.load(places, mask=inside, other=-float("inf"))
    largest = tl.max(x, axis=0)
    x = tl.exp(x - largest[None, :])
    total = tl.sum(x, axis=0)
    tl.store(places, x * (1.0 / total)[None, :], mask=inside)
    tl.store(log_norm + group * n + columns, largest + tl.log(total), mask=columns < n)


@triton.jit(do_not_specialize=["n"])
def by_row(X, h, found, n, D, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sums over features of h x^2 of some rows of X (n, D)."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    for start in range(0, D, COLUMNS):
        d = start + tl.arange(0, COLUMNS)
        inside = (rows < n)[:, None] & (d < D)[None, :]
        x = tl.load(X + rows[:, None] * D + d[None, :], mask=inside, other=0.0)
        total += x * x * tl.load(h + d, mask=d < D, other=0.0)[None, :]
    tl.store(found + rows, tl.sum(total, axis=1), mask=rows < n)


@triton.jit(do_not_specialize=["n"])
def by_column(X, weight, found, n, D, n_rows, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sums over `n_rows` rows of w x^2, for some columns of X (n, D)."""
    part = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float64)
    for start in range(0, n_rows, ROWS):
        rows = part * n_rows + start + tl.arange(0, ROWS)
        inside = (rows < n)[:, None] & (d < D)[None, :]
        x = tl.load(X + rows[:, None] * D + d[None, :], mask=inside, other=0.0)
        total += x * x * tl.load(weight + rows, mask=rows < n, other=0.0)[:, None]
    tl.store(found + part * D + d, tl.sum(total, axis=0), mask=d < D)
