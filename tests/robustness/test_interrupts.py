"""One Ctrl-C ends a fit that consists of several, and keeps what was found until then."""

import warnings

import numpy as np
import pytest

from latently.deep import DMCFA, DMFA
from latently.factorization import DeepNLMF
from latently.mixture import GaussianMixture
from latently.supervised import PerClass

X = np.random.default_rng(0).normal(size=(90, 4)) + 3 * (np.arange(90) % 3)[:, None]
LONG = {"max_iter": 200, "tol": 0.0, "random_state": 0}


class Once:
    """Interrupts once, after so many iterations, and counts those that follow."""

    def __init__(self, after):
        self.after, self.seen = after, 0

    def __call__(self, iteration):
        self.seen += 1
        if self.seen == self.after:
            raise KeyboardInterrupt

    def __deepcopy__(self, memo):
        return self  # clones of a density share it


MODELS = {
    "PerClass": lambda once: PerClass(
        GaussianMixture(2, n_init=1, callbacks=[once], **LONG), temperature=None
    ),
    "DMFA": lambda once: DMFA(2, 2, 2, 1, n_init=1, callbacks=[once], **LONG),
    "DMCFA-tuned": lambda once: DMCFA(2, 2, 2, 1, n_init=1, fine_tune=True, callbacks=[once], **LONG),
    "DeepNLMF": lambda once: DeepNLMF([3, 2], n_init=1, callbacks=[once], **LONG),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_interrupt_ends_the_whole_fit(name):
    once = Once(after=5)
    model = MODELS[name](once)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, np.arange(90) % 3) if name == "PerClass" else model.fit(X)
    told = [warning for warning in caught if "interrupted" in str(warning.message)]
    assert len(told) == 1
    assert once.seen < 20  # of hundreds
    assert np.all(
        np.isfinite(model.score_samples(X) if hasattr(model, "score_samples") else model.transform(X))
    )


def test_the_next_fit_is_a_whole_one():
    once = Once(after=5)
    model = MODELS["DMFA"](once)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
        short = model.n_iter_
        assert model.set_params(callbacks=None).fit(X).n_iter_ > 10 * short
