"""Kernels for passes over rows on CUDA: interpreted, they do what plain operations do. Needs triton."""

import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from latently.backend import row_kernels  # noqa: E402 (only where torch is installed)

PROGRAM = """
import torch
from latently.backend.row_kernels import (
    do_as_plain_operations, launch_by_column, launch_by_row, launch_normalise, plainly_normalised
)
assert do_as_plain_operations("cpu")
draw = torch.Generator().manual_seed(1)
for shape in [(1, 1), (3, 5), (100, 40), (2, 3, 17), (130, 50)]:
    numbers = 50.0 * torch.randn(shape, generator=draw, dtype=torch.float64)
    expected = plainly_normalised(numbers)
    for found, known in zip(launch_normalise(numbers.clone()), expected, strict=True):
        torch.testing.assert_close(found, known, rtol=1e-12, atol=1e-13)
for n, D in [(1, 1), (33, 65), (5000, 3)]:
    X, h = (torch.randn(shape, generator=draw, dtype=torch.float64) for shape in [(n, D), (D,)])
    weight = torch.rand(n, generator=draw, dtype=torch.float64)
    torch.testing.assert_close(launch_by_row(X, h), (X * X) @ h, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(launch_by_column(X, weight), weight @ (X * X), rtol=1e-12, atol=1e-13)
"""


def test_the_interpreted_kernels_are_plain_operations():
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_passes_over_rows(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    rng = np.random.default_rng(0)
    numbers, X, h, weight = (
        rng.normal(size=(2, 7, 90)),
        rng.normal(size=(90, 5)),
        rng.random(5),
        rng.random(90),
    )
    there = [torch.asarray(array, device=device) for array in (numbers.copy(), X, h, weight)]
    log_norm, shares = row_kernels.normalised(there[0])
    expected = np.log(np.sum(np.exp(numbers), axis=1))
    np.testing.assert_allclose(log_norm.cpu(), expected, rtol=1e-12)
    np.testing.assert_allclose(shares.cpu(), np.exp(numbers - expected[:, None, :]), rtol=1e-12)
    np.testing.assert_allclose(row_kernels.squares_by_row(there[1], there[2]).cpu(), X**2 @ h)
    np.testing.assert_allclose(row_kernels.squares_by_column(there[1], there[3]).cpu(), weight @ X**2)
