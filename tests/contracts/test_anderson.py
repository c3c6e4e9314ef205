"""Anderson acceleration of steps with known ends."""

from dataclasses import dataclass

import numpy as np
import pytest

from latently.core.anderson import Remembering, anderson
from latently.core.drivers import Passes, State, Step, relative, run


@dataclass(frozen=True)
class Point:
    x: np.ndarray


class Chart:
    @staticmethod
    def to_vector(params):
        return params.x

    @staticmethod
    def from_vector(vector, like):
        return Point(vector)


def ascent(hessian, rate, passes):
    """Steps of gradient ascent on -x'Hx / 2, counted as a sweep is: a point known by heart costs nothing."""
    known = []

    def step(params):
        if not any(params is one for one in known):
            passes.count += 1
            known[:] = [params, *known[:1]]
        objective = -0.5 * params.x @ hessian @ params.x
        return Step(float(objective), 1e-12, lambda: Point(params.x - rate * hessian @ params.x))

    return step


def accelerated(hessian, start, max_iter, rate=1.0, tol=0.0):
    passes, stop = Passes(), relative(tol)
    step = anderson(ascent(hessian, rate, passes), Chart, stop)
    first = State.at(Remembering.nothing(Point(start), Chart))
    return run(step, first, max_iter=max_iter, stop=stop), passes.count


def test_slow_steps_arrive_in_few():
    hessian = np.diag([1.0, 0.1, 0.01, 0.001])
    result, n_passes = accelerated(hessian, np.ones(4), 40)
    assert abs(result.history[-1]) < 1e-10  # plain steps would be at about 5e-4
    assert np.diff(result.history).min() >= 0 and n_passes <= 2 * 40 + 1


def test_saddle_points_are_left_quickly():
    hessian = np.diag([1.0, 0.5, -0.01])
    start = np.array([1.0, 1.0, 1e-3])
    result, _ = accelerated(hessian, start, 60)
    plain = 0.5 * 0.01 * (1e-3 * 1.01**60) ** 2
    assert result.history[-1] > 1e3 * plain and np.diff(result.history).min() >= 0


def test_a_run_ends_after_several_small_gains_only():
    result, _ = accelerated(np.diag([1.0, 0.01]), np.ones(2), 200, tol=1e-6)
    gains = np.diff(result.history)
    assert result.converged and result.n_iter < 60
    assert np.all(gains[-3:] <= 1e-6) and gains[-4] > 1e-6


@pytest.mark.parametrize("at", [3, 7])
def test_a_run_continues_exactly_where_it_stopped(at):
    hessian = np.diag([1.0, 0.1, 0.02])
    whole, _ = accelerated(hessian, np.ones(3), 12)
    passes, stop, states = Passes(), relative(0.0), []
    step = anderson(ascent(hessian, 1.0, passes), Chart, stop)
    first = State.at(Remembering.nothing(Point(np.ones(3)), Chart))
    run(step, first, max_iter=at, stop=stop, between=states.append)
    step = anderson(ascent(hessian, 1.0, passes), Chart, stop)
    resumed = run(step, states[-1], max_iter=12, stop=stop)
    np.testing.assert_array_equal(resumed.history, whole.history)
