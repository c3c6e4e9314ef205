"""Chapter 5: layers of the non-linear factorisation of all ten digits, fitted once and measured.

The source writes the settings of a layer as {d, alpha, beta, gamma, sigma^2}; `Setting` is one of these.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from latently.datasets import load
from latently.factorization import DeepNLMF, NLMFClassifier

IMAGE_SHAPE = (28, 28)
CLASSES = tuple(range(10))
REBUILT, WRONG, WRONG_OF_FITTED = "e_r", "class error, %", "class error of fitted, %"
COLUMNS = {REBUILT: ".3f", WRONG: ".2f", WRONG_OF_FITTED: ".2f", "sweeps": "d", "seconds": ".0f"}
_GRADIENT_SWEEPS = 10  # for one that minimises
ABOUT = """
    Pixels from 0 to 1, 1000 training images of each digit, and the 10,000 test images (the source's 1000
    of each cannot be: there are 892 test images of the 5). e_r is the squared error of rebuilt test
    images over twice their number; errors of classes are of test and of fitted images. Sources of both
    are inferred without labels. Test images choose nothing unless it is said. A fit ends when a sweep
    gains less than 1e-5 of the cost, as in the source, or after the number of sweeps told; it starts from
    principal axes (non-negative parts), not by chance.
"""


@dataclass(frozen=True)
class Setting:
    """A layer in the source's notation, and how it is fitted."""

    d: int
    alpha: float = 0.0
    beta: float = 0.0
    gamma: float = 0.0
    sigma2: float = 1.0
    mapping: str = "tanh"
    constraint: str = "unconstrained"
    session: str = "joint"
    solver: str = "auto"

    def __str__(self):
        numbers = ", ".join(f"{value:g}" for value in (self.alpha, self.beta, self.gamma, self.sigma2))
        return f"{{{self.d}, {numbers}}}"

    def model(self, sweeps, seed):
        return NLMFClassifier(
            self.d,
            alpha=self.alpha,
            beta=self.beta,
            gamma=self.gamma,
            sigma2=self.sigma2,
            mapping=self.mapping,
            constraint=self.constraint,
            session=self.session,
            solver=self.solver,
            max_iter=(_GRADIENT_SWEEPS if self.solver == "gradient" else 1) * sweeps,
            tol=1e-5,
            random_state=seed,
        )


@lru_cache(maxsize=4)
def digits(per_class, n_test, seed):
    """Training images, their digits, test images and theirs; the first of a random order of each class."""
    data, rng = load("mnist"), np.random.default_rng(seed)
    rows = np.concatenate([rng.permutation(np.flatnonzero(data.y_train == c))[:per_class] for c in CLASSES])
    test = np.arange(len(data.y_test)) if n_test is None else rng.permutation(len(data.y_test))[:n_test]
    return data.X_train[rows] / 255, data.y_train[rows], data.X_test[test] / 255, data.y_test[test]


def quietly(model, *rows):
    """A fitted model; the source's settings without beta or with few sweeps are meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="alpha=.* with beta=0")
        return model.fit(*rows)


@lru_cache(maxsize=64)  # what is drawn is what was measured
def layer(setting, per_class, n_test, sweeps, seed):
    """A fitted first layer, and the seconds it took."""
    X, y, _, _ = digits(per_class, n_test, seed)
    began = time.perf_counter()
    return quietly(setting.model(sweeps, seed), X, y), time.perf_counter() - began


@lru_cache(maxsize=16)
def second_layer(first, second, inputs, per_class, n_test, sweeps, seed):
    """A stack of two layers, and the seconds that the second took."""
    X, y, _, _ = digits(per_class, n_test, seed)
    below, _ = layer(first, per_class, n_test, sweeps, seed)
    rows = below.activations_ if inputs == "activations" else below.transform(X)
    began = time.perf_counter()
    above = quietly(second.model(sweeps, seed), rows, y)
    return DeepNLMF.from_layers(below, above), time.perf_counter() - began


def measured(model, seconds, per_class, n_test, seed, *, of_fitted=True):
    """Errors of a fitted model on test images, and of classes on the fitted ones."""
    X, y, X_test, y_test = digits(per_class, n_test, seed)
    found = {
        REBUILT: float(np.sum((X_test - model.reconstruct(X_test)) ** 2) / (2 * len(X_test))),
        WRONG: 100 * float(np.mean(model.predict(X_test) != y_test)),
    }
    if of_fitted:
        found[WRONG_OF_FITTED] = 100 * float(np.mean(model.predict(X) != y))
    return {**found, "sweeps": int(model.n_iter_), "seconds": round(seconds, 1)}


def by_class(model, n_test, per_class, seed):
    """How many test images of each digit are called another."""
    _, _, X_test, y_test = digits(per_class, n_test, seed)
    wrong = model.predict(X_test) != y_test
    return [int(np.sum(wrong & (y_test == c))) for c in CLASSES]


def with_session(setting, session):
    return replace(setting, session=session)
