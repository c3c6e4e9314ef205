"""`random_state` in all accepted forms: an integer, a Generator, a RandomState or None."""

from __future__ import annotations

from copy import copy
from inspect import signature
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from latently.estimators.checks import check_seed
from latently.estimators.rows import in_main_memory


def as_generator(random_state: Any) -> np.random.Generator:
    """A NumPy Generator; a given one is used itself, so its state advances."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    check_seed("random_state", random_state)
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**32, size=4, dtype=np.uint64))
    return np.random.default_rng(random_state)


def as_random_state(random_state: Any) -> np.random.RandomState:
    """A NumPy RandomState, as scikit-learn's functions need it."""
    if isinstance(random_state, np.random.Generator):
        return np.random.RandomState(random_state.integers(2**32, size=4, dtype=np.uint32))
    check_seed("random_state", random_state)
    state: np.random.RandomState = check_random_state(random_state)
    return state


def draw_from(density: Any, n_samples: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows (n, D) of any density and their components (n,), in random order."""
    seed = int(rng.integers(2**32))
    if "random_state" in signature(density.sample).parameters:
        drawn = density.sample(n_samples, random_state=seed)
    else:  # scikit-learn's mixtures draw with the seed of the fit
        drawn = copy(density).set_params(random_state=seed).sample(n_samples)
    X, components = drawn if isinstance(drawn, tuple) else (drawn, np.zeros(n_samples, dtype=int))
    order = rng.permutation(n_samples)
    return in_main_memory(X)[order], in_main_memory(components)[order]
