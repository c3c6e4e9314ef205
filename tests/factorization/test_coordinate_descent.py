"""The kernel of coordinate descent for CUDA: interpreted, it does what plain descent does. Needs triton."""

import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from latently.backend.coordinate_descent import descend  # noqa: E402
from latently.distributions.nonnegative import descended  # noqa: E402

PROGRAM = """
import numpy as np, torch
from latently.backend.coordinate_descent import launch, solves_a_problem
from latently.distributions.nonnegative import descended

rng = np.random.default_rng(0)
for r, m, n_passes in [(1, 1, 1), (3, 5, 2), (17, 33, 2), (20, 150, 1)]:
    A, V = rng.random((r, 2 * r)), rng.random((r, m))
    A[r // 2] *= r < 5  # in larger problems one coordinate has no curvature, and stays
    G, B = A @ A.T, r * rng.standard_normal((r, m))
    diagonal = np.diag(G)
    inverse = np.where(diagonal > 0, 1.0 / np.where(diagonal > 0, diagonal, 1.0), 0.0)
    found = torch.asarray(V.copy())
    launch(found, *(torch.asarray(array) for array in (G, B, inverse)), n_passes)
    np.testing.assert_allclose(found.numpy(), descended(V, G, B, n_passes), rtol=1e-12, atol=1e-12)
"""


def test_the_interpreted_kernel_is_plain_descent():
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_tensors_in_main_memory_are_left_to_others():
    V = torch.ones((2, 3), dtype=torch.float64)
    assert not descend(V, torch.eye(2), V, torch.ones(2), 1)
    assert bool((V == 1.0).all())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_descent_on_a_device_is_that_in_main_memory():
    rng = np.random.default_rng(0)
    A, V = rng.random((30, 60)), rng.random((30, 500))
    G, B = A @ A.T, 30 * rng.standard_normal((30, 500))
    there = descended(*(torch.asarray(array, device="cuda") for array in (V, G, B)), 3)
    np.testing.assert_allclose(there.cpu().numpy(), descended(V, G, B, 3), rtol=1e-9, atol=1e-9)
