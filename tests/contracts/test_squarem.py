"""Longer steps: nothing but the number of passes changes."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.preprocessing import scale

from latently.core.block import Block
from latently.core.drivers import State, Step, relative, run
from latently.core.squarem import squarem
from latently.distributions import CommonLoadings, CommonParams, LowRankGaussian, LowRankParams
from latently.mixture import MFA, FactorAnalysis
from tests.contracts.models import BY_EM, rows

every_em_model = pytest.mark.parametrize("model", BY_EM, ids=str)


@every_em_model
def test_vectors_are_parameters_and_back(model):
    known = model.known(model.example(np.random.default_rng(0), 4, 3, 2))
    kernel, params = model.kernel(known, np.full(4, 1e-6))
    vector = kernel.to_vector(params)
    assert vector.ndim == 1 and np.all(np.isfinite(vector))
    again = kernel.from_vector(vector, like=params)
    np.testing.assert_allclose(again.weights, params.weights, rtol=1e-12)
    np.testing.assert_allclose(kernel.to_vector(again), vector, rtol=1e-10, atol=1e-10)


@every_em_model
@pytest.mark.parametrize("seed", range(3))
def test_likelihood_never_falls(model, seed):
    X = rows(np.random.default_rng(seed), 80, 5)
    # at a lower floor quadratic forms of a million take more than the last digits asked for here
    # one start, since the search among several takes the steps of the fit
    settings = {"random_state": 0, "tol": 0.0, "noise_floor": 1e-3, "n_init": 1}
    longer = model.unfitted(2, 2, accelerate="squarem", max_iter=60, **settings).fit(X)
    assert np.all(np.diff(longer.history_) > -1e-10)
    # a long step is at least as good as a plain one from the same place
    plain = model.unfitted(2, 2, accelerate=None, max_iter=1, **settings).fit(X)
    assert longer.history_[1] >= plain.history_[1] - 1e-10
    assert longer.history_[0] == plain.history_[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "data, make, times",
    [
        ("digits", lambda **given: MFA(10, 6, **given), 2.0),  # with noise; more on digits as they are
        ("wine", lambda **given: MFA(3, 3, **given), 3.0),
        ("iris", lambda **given: MFA(3, 2, **given), 5.0),
        ("iris", lambda **given: FactorAnalysis(2, **given), 5.0),
    ],
    ids=["digits MFA", "wine MFA", "iris MFA", "iris FA"],
)
def test_fewer_passes(data, make, times):
    X = {
        "digits": lambda: load_digits().data + np.random.default_rng(0).random((1797, 64)),
        "wine": lambda: scale(load_wine().data),
        "iris": lambda: load_iris().data,
    }[data]()
    settings = {"random_state": 0, "max_iter": 20000}
    plain = make(accelerate=None, tol=1e-8, **settings).fit(X)
    longer = make(accelerate="squarem", tol=1e-10, **settings).fit(X)
    assert plain.n_passes_ == plain.n_iter_ + 1
    assert longer.n_passes_ <= 3 * longer.n_iter_ + 1
    as_good = int(np.argmax(longer.history_ >= plain.history_[-1]))  # steps until it is where EM ended
    assert longer.history_[as_good] >= plain.history_[-1]
    assert plain.n_passes_ > times * (3 * as_good + 1)


class Line:
    """Numbers on a line as parameters."""

    def to_vector(self, params):
        return np.array([params])

    def from_vector(self, vector, like):
        if vector[0] > 50:
            raise ValueError("out of reach")
        return float(vector[0])


def test_steps_of_constant_ratio_are_seen_through():
    """Steps that shrink by 0.9 lead to 10 at once."""
    step = squarem(lambda at: Step(-abs(at - 10.0), 0.0, lambda: 10 - 0.9 * (10 - at)), Line())
    assert step(0.0).next_params() == pytest.approx(10.0, rel=0.01)  # directions are rounded


@pytest.mark.parametrize("limit", [10.0, 1000.0], ids=["worse", "out of reach"])
def test_a_bad_guess_is_dropped(limit):
    """Beyond 3 the objective breaks down, or the chart ends: two plain steps are taken."""
    objective = lambda at: -abs(at - limit) if at < 3 else -1e9
    step = squarem(lambda at: Step(objective(at), 0.0, lambda: limit - 0.9 * (limit - at)), Line())
    plain = limit - 0.81 * limit
    assert step(0.0).next_params() == pytest.approx(plain)


def test_a_guess_of_rounding_errors_is_dropped():
    def at(x):  # beyond 20, where the guess lands, the objective is rounding error
        objective, rounding = (x, 0.0) if x < 20 else (1e26, 1e18)
        return Step(objective, rounding, lambda: 40 - 0.9 * (40 - x))

    assert squarem(at, Line())(0.0).next_params() == pytest.approx(40 * (1 - 0.81))


def test_a_run_takes_the_steps():
    step = squarem(lambda at: Step(-((at - 10.0) ** 2), 0.0, lambda: 10 - 0.9 * (10 - at)), Line())
    result = run(step, State.at(0.0), max_iter=50, stop=relative(1e-9))
    assert result.converged and result.n_iter <= 5 and result.params == pytest.approx(10.0)


@pytest.mark.parametrize("shared", [False, True])
def test_equal_noise_stays_equal_to_the_last_digit(shared):
    """Else the file of the model is refused; combinations of vectors round each entry in its own way."""
    params = LowRankParams(np.zeros((2, 3)), np.ones((2, 3, 1)), np.full((2, 3), 2.0))
    family = LowRankGaussian(1, np.zeros(3), isotropic=True, shared=shared)
    vector = family.to_vector(params)
    vector[-6:] *= 1 + 2.0**-52 * np.arange(6)
    noise = family.from_vector(vector, params).noise_variance
    np.testing.assert_array_equal(noise, noise[: 1 if shared else None, :1] + 0 * noise)


@pytest.mark.parametrize("size", [1.0, 1e4, 1e7])
@pytest.mark.parametrize("common", [False, True], ids=["own", "common"])
def test_rounding_of_float32_far_away_is_known(size, common):
    """Extrapolations may put means far from the rows; a density that is noise there must not win."""
    rng = np.random.default_rng(0)
    means, L, psi = size * rng.normal(size=(1, 3)), 50 * size * rng.normal(size=(3, 2)), np.full(3, 1e-6)
    if common:
        family, zero = CommonLoadings(2, np.zeros(3)), np.zeros(3)
        z = np.linalg.lstsq(L, means[0], rcond=None)[0]
        one = (np.zeros((1, 2)), np.eye(2)[None], psi, np.eye(2))
        params = CommonParams(zero, z, L @ z, L, *one)
    else:
        family = LowRankGaussian(2, np.zeros(3))
        params = LowRankParams(means, L[None], psi[None])
    block = Block(rng.normal(size=(50, 3)))
    narrow, wide = (family.prepare(params, dtype) for dtype in ("float32", "float64"))
    off = family.evaluate(narrow, block)[0] - family.evaluate(wide, block)[0]
    assert np.abs(off).max() < 32 * (family.rounding(narrow) + family.rounding(wide))
