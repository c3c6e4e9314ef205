"""The functions that are called without NumPy's wrappers are NumPy's."""

import numpy as np
import pytest

from latently.backend.lean_numpy import LeanNumPy

LEAN = LeanNumPy()
ARRAYS = {
    "matrix": np.arange(6.0).reshape(2, 3) - 2.5,
    "stack": np.random.default_rng(0).standard_normal((2, 3, 3)),
    "nan": np.array([[1.0, np.nan], [np.inf, -2.0]]),
    "bool": np.array([[True, False], [True, True]]),
    "int": np.arange(4).reshape(2, 2),
    "float32": np.arange(4, dtype=np.float32).reshape(2, 2) / 3,
    "empty": np.zeros((0, 2)),
    "scalar": np.float64(3.5),
}
CALLS = {
    "sum": lambda xp, x: xp.sum(x),
    "sum of an axis": lambda xp, x: xp.sum(x, axis=-1),
    "sum that keeps it": lambda xp, x: xp.sum(x, axis=0, keepdims=True),
    "sum of axes": lambda xp, x: xp.sum(x, axis=(0, 1)),
    "max": lambda xp, x: xp.max(x, axis=0),
    "max of all": lambda xp, x: xp.max(x),
    "min": lambda xp, x: xp.min(x, axis=-1, keepdims=True),
    "all": lambda xp, x: xp.all(x > 0, axis=0),
    "any": lambda xp, x: xp.any(x > 0),
    "reshape": lambda xp, x: xp.reshape(x, (-1,)),
    "permute_dims": lambda xp, x: xp.permute_dims(x, tuple(range(x.ndim))[::-1]),
    "matrix_transpose": lambda xp, x: xp.matrix_transpose(x),
    "take": lambda xp, x: xp.take(x, np.array([1, 0, 1]), axis=0),
    "astype": lambda xp, x: xp.astype(x, xp.float32),
    "astype without a copy": lambda xp, x: xp.astype(x, xp.float64, copy=False),
    "clip below": lambda xp, x: xp.clip(x, min=0.5),
    "clip above": lambda xp, x: xp.clip(x, max=0.5),
    "clip": lambda xp, x: xp.clip(x, 0.0, 1.0),
    "stack": lambda xp, x: xp.stack([x, x + 1]),
    "stack last": lambda xp, x: xp.stack([x, x + 1], axis=-1),
    "broadcast_to": lambda xp, x: xp.broadcast_to(x, (2, *x.shape)),
    "diagonal": lambda xp, x: xp.linalg.diagonal(x),
    "vector_norm": lambda xp, x: xp.linalg.vector_norm(x, axis=-1),
    "of NumPy itself": lambda xp, x: xp.where(x > 0, x, xp.nan),
}


def outcome(call, xp, x):
    try:
        with np.errstate(all="ignore"):
            return call(xp, x)
    except (ValueError, IndexError, TypeError, AttributeError):
        return None


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("array", ARRAYS)
def test_results_are_those_of_numpy(call, array):
    ours, theirs = (outcome(CALLS[call], xp, ARRAYS[array]) for xp in (LEAN, np))
    if theirs is None:  # NumPy refuses
        return
    assert ours is not None
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-15)


def test_what_is_not_overridden_is_numpy():
    assert LEAN.exp is np.exp
    assert LEAN.linalg.cholesky is np.linalg.cholesky
