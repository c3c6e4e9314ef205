"""The squashed normal against quadrature, long arithmetic and its own draws."""

from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

from latently.distributions import SquashedNormal
from latently.distributions.squashed_normal import hazards, truncated_normal

ANSWERS = [(label, sharp) for label in (0, 1) for sharp in (False, True)]
every_answer = pytest.mark.parametrize("label, sharp", ANSWERS, ids=lambda value: str(value))


def example(seed, d, label, sharp, away=0.0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d, d))
    coef = rng.normal(size=d)
    return SquashedNormal(
        mean=rng.normal(size=d),
        covariance=root @ root.T + 0.2 * np.eye(d),
        coef=coef,
        intercept=float(rng.normal()) + away,
        label=label,
        sharp=sharp,
    )


def exactly(t):
    """h, h + t and 1 - h (h + t) with 80 digits."""
    with mpmath.workdps(80):
        t = mpmath.mpf(t)
        h = mpmath.exp(-t * t / 2) / mpmath.sqrt(2 * mpmath.pi) / (mpmath.erfc(-t / mpmath.sqrt(2)) / 2)
        return [float(value) for value in (h, h + t, 1 - h * (h + t))]


@pytest.mark.parametrize("t", [-1e6, -300.0, -38.5, -10.0, -6.0001, -6.0, -3.0, -0.5, 0.0, 1.0, 6.0])
def test_hazards_keep_their_digits(t):
    np.testing.assert_allclose([float(value) for value in hazards(np.array(t))], exactly(t), rtol=2e-11)


def test_hazards_of_many():
    t = np.array([[-1e3, -1.0], [0.0, 7.0]])
    for index in np.ndindex(t.shape):
        np.testing.assert_allclose([v[index] for v in hazards(t)], exactly(t[index]), rtol=2e-11)


@every_answer
@pytest.mark.parametrize("seed", range(4))
def test_one_dimension_by_quadrature(seed, label, sharp):
    y = example(seed, 1, label, sharp)
    edge = -y.intercept / y.coef[0]
    spread = np.sqrt(y.covariance[0, 0])
    ends = np.unique([y.mean[0] - 12 * spread, edge, y.mean[0] + 12 * spread])
    density = lambda x: np.exp(y.log_prob(np.array([x])))
    moment = lambda f: sum(
        integrate.quad(lambda x: f(x) * density(x), a, b, epsabs=1e-12, limit=200)[0]
        for a, b in pairwise(ends)
    )
    assert moment(lambda x: 1.0) == pytest.approx(1.0, abs=1e-9)
    mean = moment(lambda x: x)
    assert y.expectation[0] == pytest.approx(mean, abs=1e-8)
    assert y.variance[0, 0] == pytest.approx(moment(lambda x: (x - mean) ** 2), abs=1e-8)


@pytest.mark.parametrize("sharp", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_two_answers_make_the_gaussian(seed, sharp):
    no, yes = (example(seed, 3, label, sharp) for label in (0, 1))
    p = np.exp(yes.log_normaliser)
    assert p + np.exp(no.log_normaliser) == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(p * yes.expectation + (1 - p) * no.expectation, yes.mean, atol=1e-12)
    second = lambda y: y.variance + np.outer(y.expectation, y.expectation)
    whole = yes.covariance + np.outer(yes.mean, yes.mean)
    np.testing.assert_allclose(p * second(yes) + (1 - p) * second(no), whole, atol=1e-12)
    points = np.random.default_rng(seed).normal(size=(20, 3))
    both = np.logaddexp(yes.log_prob(points) + yes.log_normaliser, no.log_prob(points) + no.log_normaliser)
    gaussian = stats.multivariate_normal(yes.mean, yes.covariance).logpdf(points)
    np.testing.assert_allclose(both, gaussian, atol=1e-10)


@every_answer
@pytest.mark.parametrize("away", [0.0, -8.0, 8.0])
def test_draws_have_the_moments(label, sharp, away):
    y = example(1, 3, label, sharp, away)
    n = 200_000
    draws = y.sample(n, np.random.default_rng(0))
    assert np.all(np.isfinite(draws))
    error = np.sqrt(np.diag(y.variance) / n)
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - y.expectation), 5 * error)
    products = (draws - y.expectation)[:, :, None] * (draws - y.expectation)[:, None, :]
    np.testing.assert_array_less(
        np.abs(products.mean(axis=0) - y.variance), 5 * products.std(axis=0) / np.sqrt(n)
    )
    if sharp:
        assert np.all((2 * label - 1) * (draws @ y.coef + y.intercept) > -1e-9)


@pytest.mark.parametrize("sharp", [False, True])
def test_draws_agree_with_the_density(sharp):
    """The mean of q / p over draws from p is one."""
    p = example(2, 2, 1, sharp)
    narrow = SquashedNormal(p.mean, 0.8 * p.covariance, p.coef, p.intercept, 1, sharp)
    draws = p.sample(200_000, np.random.default_rng(0))
    draws = draws[np.isfinite(p.log_prob(draws))]  # at a sharp edge rounding may leave a draw outside
    ratio = np.exp(narrow.log_prob(draws) - p.log_prob(draws))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(ratio))


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("sharp", [False, True])
def test_far_in_the_tail(label, sharp):
    """An answer that is all but impossible: w'y lies just beyond the edge, with a tiny spread."""
    side = 2 * label - 1
    y = SquashedNormal(np.zeros(2), np.eye(2), np.array([3.0, 0.0]), -side * 3e5, label, sharp)
    assert np.isfinite(y.log_normaliser) and y.log_normaliser < -1e8
    s2 = 9.0 + (0.0 if sharp else 1.0)
    reached = side * (3 * y.expectation[0]) / 3e5  # how much of the way to the edge
    assert reached == pytest.approx(9.0 / s2, rel=1e-9)
    assert 0 < y.variance[0, 0] < (1e-9 if sharp else 0.11)
    assert y.variance[1, 1] == 1.0
    draws = y.sample(1000, np.random.default_rng(0))
    np.testing.assert_allclose(draws[:, 0].mean(), y.expectation[0], rtol=1e-5)


def test_truncated_normal_is_above():
    for least in (-40.0, -1.0, 0.0, 5.0, 100.0, 1e6):
        draws = truncated_normal(least, 20_000, np.random.default_rng(0))
        assert np.all(draws >= least * (1 - 1e-12 * np.sign(least)))
        h, _, variance = (float(value) for value in hazards(np.array(-least)))
        assert abs(draws.mean() - h) < 5 * np.sqrt(variance / len(draws)) + 1e-12 * abs(least)


def test_no_coefficients_no_change():
    y = SquashedNormal(np.ones(2), np.eye(2), np.zeros(2), 0.7, 1)
    np.testing.assert_array_equal(y.expectation, y.mean)
    np.testing.assert_array_equal(y.variance, y.covariance)
    assert y.log_normaliser == pytest.approx(special.log_ndtr(0.7))
    assert y.sample(5, np.random.default_rng(0)).shape == (5, 2)


GOOD = {"mean": np.zeros(2), "covariance": np.eye(2), "coef": np.ones(2), "intercept": 0.0, "label": 1}


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"mean": np.zeros(3)}, "shapes"),
        ({"coef": np.ones((2, 1))}, "shapes"),
        ({"covariance": np.array([[1.0, 0.5], [0.0, 1.0]])}, "symmetric"),
        ({"covariance": np.ones((2, 2))}, "positive definite"),
        ({"mean": np.array([0.0, np.nan])}, "finite"),
        ({"intercept": np.inf}, "finite"),
        ({"label": 2}, "label"),
        ({"coef": np.zeros(2), "sharp": True}, "coef"),
    ],
)
def test_bad_parameters(bad, words):
    with pytest.raises(ValueError, match=words):
        SquashedNormal(**{**GOOD, **bad})
