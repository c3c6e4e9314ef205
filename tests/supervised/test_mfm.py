"""Mixtures of factor models with a label, against an oracle that conditions dense Gaussians."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler, scale

import latently
from latently.distributions.labelled import AnswerSums, LabelledMixture, LabelledParams
from latently.distributions.low_rank import LowRankGaussian, LowRankParams
from latently.metrics import signal_to_error_ratio
from latently.mixture import MPPCA, PPCA
from latently.supervised import MFMClassifier, mfm
from tests.contracts.models import rows
from tests.oracles import mfm as oracle

ATTRIBUTES = ("weights", "means", "loadings", "noise_variance", "coef", "intercept")
STARTS = ("weights_init", "means_init", "loadings_init", "noise_init", "coef_init", "intercept_init")
EXACT = {
    "accelerate": None,
    "noise_floor": 0.0,
    "prior": None,
    "tol": 0.0,
}  # max_iter=n is exactly n EM steps
SIZES = [(1, 1, 2, 2), (1, 3, 4, 2), (2, 2, 3, 2), (3, 1, 4, 2), (1, 2, 2, 4), (2, 2, 4, 3), (3, 3, 5, 3)]
every_size = pytest.mark.parametrize("size", SIZES, ids=lambda size: "L{}-d{}-D{}-C{}".format(*size))
holed_or_not = pytest.mark.parametrize("holed", [False, True], ids=["", "holed"])
either_way = pytest.mark.parametrize("accelerate", [None, "squarem"])
two_or_more = pytest.mark.parametrize("C", [2, 3])


def example(rng, L, d, D, C, spread=2.0):
    """Random parameters, in the order of the oracle."""
    J = 1 if C == 2 else C
    return (
        rng.dirichlet(np.full(L, 5.0)),
        rng.normal(scale=spread, size=(L, D)),
        rng.normal(size=(L, D, d)),
        np.repeat(rng.uniform(0.3, 2.0, size=(L, 1)), D, axis=1),
        rng.normal(size=(J, d)),
        rng.normal(scale=0.5, size=J),
    )


def known(theta):
    return MFMClassifier.from_parameters(**dict(zip(ATTRIBUTES, theta, strict=True)))


def started(theta, **settings):
    L, _, d = theta[2].shape
    settings = {"temperature": None, **settings}  # posteriors by Bayes' rule
    return MFMClassifier(L, d, **dict(zip(STARTS, theta, strict=True)), **settings)


def theta_of(model):
    return tuple(getattr(model, f"{name}_") for name in ATTRIBUTES)


def assert_same(actual, expected, rtol=1e-8, atol=1e-9):
    for name, ours, theirs in zip(ATTRIBUTES, actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol, err_msg=name)


def problem(seed, size, N=30, holed=False, unlabelled=0.2):
    """Starting values, rows, labels of which some are -1, and weights; every class has two rows at least."""
    rng = np.random.default_rng(seed)
    L, d, D, C = size
    X = rows(rng, N, D)
    y = np.where(rng.random(N) < unlabelled, -1, rng.integers(C, size=N))
    y[: 2 * C] = np.arange(2 * C) % C
    theta = example(rng, L, d, D, C)
    theta = (theta[0], X[rng.choice(N, size=L, replace=False)], *theta[2:])
    if holed:
        X[rng.random(X.shape) < 0.2] = np.nan
        nothing = np.isnan(X).all(axis=1) & (y == -1)  # such rows are left out; see the test of that
        X[nothing] = 0.5
        X[0] = np.nan  # a label is all that is known of it
    return theta, X, y, rng.uniform(0.2, 3.0, size=N)


def labelled_rows(seed, C=2, N=150, D=4, overlap=1.0):
    """Rows in three clusters, and classes that depend on a direction, with errors."""
    rng = np.random.default_rng(seed)
    X = rows(rng, N, D)
    direction = X @ rng.normal(size=D)
    direction = (direction - direction.mean()) / direction.std() + overlap * rng.normal(size=N)
    return X, np.searchsorted(np.quantile(direction, np.arange(1, C) / C), direction)


def objective(model, X, y, emphasis=1.0, weight=None):
    """Mean of ln p(x) + a ln P(z | x); of more classes than two, with the mean over their questions."""
    theta, y = theta_of(model), np.asarray(y)
    plain = model.score_samples(X)
    if len(theta[5]) == 1:
        told = model.score_samples(X, y)
    else:  # each question alone makes a model of two classes
        of_one = [known((*theta[:4], theta[4][j : j + 1], theta[5][j : j + 1])) for j in range(len(theta[5]))]
        labels = [np.where(y == -1, -1, y == c) for c in model.classes_]
        told = np.mean([one.score_samples(X, z) for one, z in zip(of_one, labels, strict=True)], axis=0)
    return np.average(plain + emphasis * (told - plain), weights=weight)


def quietly(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data)


# -- densities ----------------------------------------------------------------------------------------


@every_size
@holed_or_not
def test_densities_are_those_of_the_oracle(size, holed):
    theta, X, y, _ = problem(0, size, holed=holed)
    model = known(theta)
    np.testing.assert_allclose(model.score_samples(X), oracle.log_density(X, theta), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(model.score_samples(X, y), oracle.log_joint(X, y, theta), rtol=1e-11)
    P = oracle.class_posterior(X, theta)
    np.testing.assert_allclose(model.predict_proba(X), P, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(P), rtol=1e-9, atol=1e-13)
    np.testing.assert_array_equal(model.predict(X), P.argmax(axis=1))
    r = oracle.component_posterior(X, theta)
    np.testing.assert_array_equal(model.predict_component(X), r.argmax(axis=1))
    np.testing.assert_allclose(model.transform(X), oracle.factors(X, theta), rtol=1e-9, atol=1e-12)


@every_size
def test_the_oracle_agrees_with_quadrature(size):
    theta, X, *_ = problem(1, size, N=12)
    P = oracle.class_posterior(X, theta)
    for n, x in enumerate(X):
        np.testing.assert_allclose(oracle.posterior_by_quadrature(x, theta), P[n], atol=1e-10)


@two_or_more
@pytest.mark.parametrize("D", [1, 2])
def test_the_density_of_rows_and_labels_is_one_in_all(C, D):
    theta = example(np.random.default_rng(D), 2, 1, D, C, spread=1.0)
    model, grid = known(theta), np.linspace(-14, 14, 281)
    X = np.stack(np.meshgrid(*[grid] * D), axis=-1).reshape(-1, D)
    joint = sum(np.exp(model.score_samples(X, np.full(len(X), c))) for c in range(C))
    np.testing.assert_allclose(joint, np.exp(model.score_samples(X)), rtol=1e-11)
    for _ in range(D):
        joint = integrate.trapezoid(joint.reshape(-1, len(grid)), grid)
    assert float(joint[0]) == pytest.approx(1.0, abs=1e-9)


@two_or_more
@pytest.mark.parametrize("t", [-38.5, -40.0, -1e3, 40.0])
@holed_or_not
def test_answers_that_are_all_but_impossible(C, t, holed):
    weights, means, loadings, noise, coef, intercept = example(np.random.default_rng(3), 2, 2, 3, C)
    theta = weights, means, loadings, noise, coef, intercept + t * np.sqrt(1 + np.sum(coef**2, axis=1))
    X = np.random.default_rng(0).normal(size=(6, 3))
    if holed:
        X[:3, 1] = np.nan
    model = known(theta)
    for c in range(C):
        y = np.full(6, c)
        np.testing.assert_allclose(model.score_samples(X, y), oracle.log_joint(X, y, theta), rtol=1e-10)
    P = model.predict_proba(X)
    assert np.isfinite(model.predict_log_proba(X)).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-12)
    if C == 2:
        assert np.all(model.predict(X) == (t > 0))
        fitted = started(theta, max_iter=1, **EXACT).fit(X, np.arange(6) % 2)
        assert_same(theta_of(fitted), oracle.step(X, np.arange(6) % 2, theta), rtol=1e-6, atol=1e-8)


def test_rows_far_away_have_probabilities_all_the_same():
    theta = example(np.random.default_rng(0), 2, 2, 3, 3)
    P = known(theta).predict_proba(np.full((1, 3), 1e200))
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    assert np.all(P >= 0)


@two_or_more
@pytest.mark.parametrize("L", [1, 3])
def test_the_sampler_agrees_with_the_density(C, L):
    rng = np.random.default_rng(L)
    theta = example(rng, L, 2, 3, C)
    model = known(theta)
    narrower = known((*theta[:2], np.sqrt(0.7) * theta[2], 0.7 * theta[3], 1.2 * theta[4], theta[5] + 0.3))
    X, y = model.sample(100_000, random_state=0)
    ratio = np.exp(narrower.score_samples(X, y) - model.score_samples(X, y))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(X))
    P = model.predict_proba(X)
    for c in range(C):
        left = (y == c) - P[:, c]
        for test in (np.ones(len(X)), np.tanh(X[:, 0]), P[:, c]):
            assert abs(np.mean(left * test)) < 5 * np.std(left * test) / np.sqrt(len(X))


def test_samples_have_the_labels_of_the_classes():
    X, y = labelled_rows(0, C=3)
    model = quietly(MFMClassifier(1, 1, max_iter=5), X, np.array(["a", "b", "c"])[y])
    drawn, labels = model.sample(50, random_state=0)
    assert drawn.shape == (50, 4) and set(labels) == {"a", "b", "c"}
    np.testing.assert_array_equal(drawn, model.sample(50, random_state=0)[0])


# -- steps ----------------------------------------------------------------------------------------------


@every_size
@holed_or_not
@pytest.mark.parametrize("emphasis", [1.0, 0.3])
def test_one_step_is_that_of_the_oracle(size, holed, emphasis):
    theta, X, y, weight = problem(2, size, holed=holed)
    expected = oracle.step(X, y, theta, emphasis, weight)
    model = started(theta, max_iter=1, discriminative_weight=emphasis, **EXACT).fit(X, y, weight)
    assert_same(theta_of(model), expected)
    history = [oracle.objective(X, y, at, emphasis, weight) for at in (theta, expected)]
    np.testing.assert_allclose(model.history_, history, rtol=1e-11)
    assert model.n_iter_ == 1 and not model.converged_


@two_or_more
def test_three_steps_without_weights(C):
    theta, X, y, _ = problem(3, (2, 2, 3, C), unlabelled=0.0)
    expected = theta
    for _ in range(3):
        expected = oracle.step(X, y, expected)
    assert_same(theta_of(started(theta, max_iter=3, **EXACT).fit(X, y)), expected)


@pytest.mark.parametrize("size", [1.0, 1e4, 1e8])
def test_the_regression_of_answers_does_not_depend_on_the_size_of_factors(size):
    """Two factors that are the same have singular moments, and any coefficients with the same sum do."""
    family = LowRankGaussian(2, np.zeros(3), isotropic=True)
    theta = example(np.random.default_rng(0), 1, 2, 3, 2)
    params = LabelledParams(theta[0], LowRankParams(*theta[1:4]), *theta[4:])
    kernel = LabelledMixture(family)
    y = np.vander(size * np.linspace(-1, 2, 10), 2)[:, [0, 0, 1]]
    v = 1.0 + y[:, 0] / size + np.resize([0.1, -0.1], 10)
    answers = AnswerSums(np.array([10.0]), (y.T @ y)[None], (v @ y)[None], np.array([v @ v]))
    moved = kernel.m_step(replace(kernel.implied_stats(params), answers=answers), params)
    slope, level = np.polyfit(y[:, 0], v, 1)
    noise = np.std(v - slope * y[:, 0] - level)
    np.testing.assert_allclose(moved.coef.sum() * noise, slope, rtol=1e-6)
    np.testing.assert_allclose(moved.intercept * noise, level, rtol=1e-6)


def test_no_step_is_no_change():
    theta, X, y, _ = problem(4, (2, 2, 3, 3))
    assert_same(theta_of(started(theta, max_iter=0, **EXACT).fit(X, y)), theta, rtol=1e-12, atol=1e-14)


def test_the_oracle_never_lowers_its_objective():
    for emphasis in (1.0, 0.3):
        theta, X, y, weight = problem(5, (2, 2, 3, 3), holed=True)
        before = oracle.objective(X, y, theta, emphasis, weight)
        for _ in range(4):
            theta = oracle.step(X, y, theta, emphasis, weight)
            after = oracle.objective(X, y, theta, emphasis, weight)
            assert after > before
            before = after


@either_way
@pytest.mark.parametrize("seed", range(8))
def test_the_objective_never_falls(seed, accelerate):
    rng = np.random.default_rng(seed)
    L, d, C = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(2, 5))
    D, emphasis = int(rng.integers(d, 7)), float(rng.choice([0.3, 1.0, 4.0]))
    _, X, y, weight = problem(seed, (L, d, D, C), N=60, holed=bool(rng.integers(2)))
    weight = weight if rng.integers(2) else None
    y = np.where(y < 0, rng.integers(C, size=60), y) if rng.integers(2) else y
    if rng.integers(2):  # labels that rows can tell
        y = np.where(y < 0, -1, np.arange(60) % C)
        X[:, 0] += 4.0 * np.arange(60) % C
    settings = {"discriminative_weight": emphasis, "accelerate": accelerate, "random_state": seed}
    settings["prior"] = None
    model = MFMClassifier(L, d, max_iter=15, tol=0.0, n_init=2, **settings).fit(X, y, weight)
    assert np.isfinite(model.history_).all()
    assert np.diff(model.history_).min() >= -1e-8
    assert model.history_[-1] == pytest.approx(objective(model, X, y, emphasis, weight), abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_the_objective_never_falls_in_hundreds_of_fits(seed):
    test_the_objective_never_falls(seed, [None, "squarem"][seed % 2])


@pytest.mark.parametrize(("C", "emphasis"), [(2, 0.3), (2, 1.0), (2, 4.0), (3, 0.3), (3, 1.0)])
def test_every_slope_vanishes_at_the_end(C, emphasis):
    X, y = known(example(np.random.default_rng(3), 1, 2, 4, C)).sample(150, random_state=0)
    settings = {"max_iter": 400, "tol": 1e-13, "n_init": 1, "random_state": 0}
    model = MFMClassifier(1, 2, discriminative_weight=emphasis, **settings).fit(X, y)
    theta = theta_of(model)
    assert C > 2 or np.abs(model.coef_).max() < 50
    # one of several questions may have become sharp, and its w so long that steps have to go by its length
    length = np.maximum(1.0, np.linalg.norm(model.coef_, axis=1))

    def slope(which, change):
        ends = [(*theta[:which], theta[which] + sign * change, *theta[which + 1 :]) for sign in (1, -1)]
        up, down = (objective(known(end), X, y, emphasis) for end in ends)
        return (up - down) / 2e-5

    for which in (1, 2, 4, 5):
        for index in np.ndindex(theta[which].shape):
            change = np.zeros(theta[which].shape)
            change[index] = 1e-5 * (length[index[0]] if which in (4, 5) else 1.0)
            assert abs(slope(which, change)) < 1e-5, (ATTRIBUTES[which], index)
    assert abs(slope(3, 1e-5 * theta[3])) < 1e-5
    if C == 2 and emphasis == 1.0:
        assert np.abs(oracle.gradient(X, y, theta)).max() / len(X) < 1e-5


def test_the_gradient_of_the_oracle_is_the_slope_of_its_likelihood():
    theta, X, y, _ = problem(7, (2, 3, 4, 2), N=15, unlabelled=0.0)
    e = theta[4] / np.linalg.norm(theta[4])
    total = lambda coef, intercept: np.sum(oracle.log_joint(X, y, (*theta[:4], coef, intercept)))
    h = 1e-5
    by_length = (total(theta[4] + h * e, theta[5]) - total(theta[4] - h * e, theta[5])) / (2 * h)
    by_intercept = (total(theta[4], theta[5] + h) - total(theta[4], theta[5] - h)) / (2 * h)
    np.testing.assert_allclose(oracle.gradient(X, y, theta), [by_length, by_intercept], rtol=1e-7)


def test_classes_that_are_apart_end_in_a_sharp_answer():
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    X = rng.normal(size=(80, 3)) + 12.0 * np.outer(y, [1.0, 1.0, 0.0])
    model = MFMClassifier(1, 1, temperature=None, random_state=0).fit(X, y)
    assert model.converged_ and np.all(np.isfinite(model.coef_))
    assert model.score(X, y) == 1.0
    assert model.risks(X).classification.max() < 1e-3


# -- what must not matter ---------------------------------------------------------------------------------

SHORT = {"max_iter": 10, "tol": 0.0, "random_state": 3, "n_init": 2, "temperature": None}


def data(C=3, holed=True, N=80):
    X, y = labelled_rows(8, C, N=N)
    rng = np.random.default_rng(9)
    y[rng.random(N) < 0.2] = -1
    if holed:
        X[rng.random(X.shape) < 0.1] = np.nan
        X[np.flatnonzero(y >= 0)[0]] = np.nan
    return X, y, rng.integers(1, 4, size=N)


@either_way
@two_or_more
def test_weight_two_is_a_row_twice(C, accelerate):
    X, y, copies = data(C)
    settings = {**SHORT, "accelerate": accelerate}
    by_weight = MFMClassifier(2, 2, **settings).fit(X, y, copies)
    by_copies = MFMClassifier(2, 2, **settings).fit(np.repeat(X, copies, axis=0), np.repeat(y, copies))
    np.testing.assert_allclose(by_weight.history_, by_copies.history_, rtol=1e-8)
    # Not coefficients, which grow for ever where factors divide the classes.
    for method in ("score_samples", "predict_proba"):
        ours, theirs = (getattr(model, method)(X) for model in (by_weight, by_copies))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@two_or_more
@pytest.mark.parametrize("emphasis", [0.3, 1.0, 4.0])
def test_order_and_blocks_do_not_matter(C, emphasis):
    X, y, weight = data(C)
    theta = example(np.random.default_rng(0), 2, 2, 4, C)
    settings = {"max_iter": 8, "tol": 0.0, "accelerate": None, "discriminative_weight": emphasis}
    plain = started(theta, **settings).fit(X, y, weight)
    blocks = started(theta, block_size=7, **settings).fit(X, y, weight)
    back = started(theta, **settings).fit(X[::-1], y[::-1], weight[::-1])
    for other in (blocks, back):
        assert_same(theta_of(other), theta_of(plain))
        np.testing.assert_allclose(other.history_, plain.history_, rtol=1e-10)
    small = known(theta_of(plain)).set_params(block_size=7)
    for method in ("score_samples", "predict_proba", "transform", "reconstruct"):
        whole = getattr(known(theta_of(plain)), method)(X)
        np.testing.assert_allclose(getattr(small, method)(X), whole, rtol=1e-9, atol=1e-11)


@two_or_more
def test_a_full_mask_is_no_mask(C):
    X, y, _ = data(C, holed=False)
    theta = example(np.random.default_rng(1), 2, 2, 4, C)
    whole = started(theta, max_iter=1, **EXACT).fit(X, y)
    extra = np.vstack([X, np.full((1, 4), np.nan)])  # one row with holes, of no weight, which takes that path
    ways = np.append(np.ones(len(X)), 0.0)
    masked = started(theta, max_iter=1, **EXACT).fit(extra, np.append(y, 0), ways)
    assert_same(theta_of(masked), theta_of(whole), rtol=1e-10)
    model = known(theta)
    for method in ("score_samples", "predict_proba", "transform", "reconstruct"):
        together = getattr(model, method)(extra)
        np.testing.assert_allclose(together[:-1], getattr(model, method)(X), rtol=1e-10, atol=1e-12)
    projected = model.reconstruct(extra, least_squares=True)[:-1]
    np.testing.assert_allclose(projected, model.reconstruct(X, least_squares=True), rtol=1e-8, atol=1e-9)


def test_rows_that_say_nothing_are_left_out():
    theta, X, y, weight = problem(10, (2, 2, 3, 3))
    X[5], y[5] = np.nan, -1
    rest = np.arange(30) != 5
    expected = oracle.step(X[rest], y[rest], theta, 1.0, weight[rest])
    assert_same(theta_of(started(theta, max_iter=1, **EXACT).fit(X, y, weight)), expected)


def test_float32_is_close():
    X, y, _ = data(2, holed=False)
    theta = example(np.random.default_rng(2), 2, 2, 4, 2)
    exact, single = (
        started(theta, max_iter=10, tol=0.0, accelerate=None, dtype=dtype).fit(X, y)
        for dtype in ("float64", "float32")
    )
    np.testing.assert_allclose(single.history_, exact.history_, atol=1e-4)
    np.testing.assert_allclose(single.predict_proba(X), exact.predict_proba(X), atol=1e-3)


@two_or_more
def test_shifts_and_units_do_not_matter(C):
    X, y, _ = data(C)
    theta = example(np.random.default_rng(3), 2, 2, 4, C)
    settings = {"max_iter": 8, "tol": 0.0, "accelerate": None}
    plain = started(theta, **settings).fit(X, y)
    far = started((theta[0], theta[1] + 1e6, *theta[2:]), **settings).fit(X + 1e6, y)
    np.testing.assert_allclose(far.means_ - 1e6, plain.means_, atol=1e-7)
    np.testing.assert_allclose(far.predict_proba(X + 1e6), plain.predict_proba(X), atol=1e-6)
    c = 1e-4
    small = (theta[0], c * theta[1], c * theta[2], c**2 * theta[3], *theta[4:])
    scaled = started(small, **settings).fit(c * X, y)
    np.testing.assert_allclose(scaled.loadings_, c * plain.loadings_, rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(scaled.coef_, plain.coef_, rtol=1e-8)
    np.testing.assert_allclose(scaled.predict_proba(c * X), plain.predict_proba(X), atol=1e-10)


def test_flipped_labels_flip_the_classifier():
    X, y, _ = data(2, holed=False)
    theta = example(np.random.default_rng(4), 2, 2, 4, 2)
    plain = started(theta, max_iter=5, **EXACT).fit(X, y)
    flipped = started((*theta[:4], -theta[4], -theta[5]), max_iter=5, **EXACT)
    flipped.fit(X, np.where(y < 0, -1, 1 - y))
    expected = (*theta_of(plain)[:4], -plain.coef_, -plain.intercept_)
    assert_same(theta_of(flipped), expected, rtol=1e-9)


def test_classes_in_another_order_are_the_same_classes():
    X, y, _ = data(3)
    theta = example(np.random.default_rng(4), 2, 2, 4, 3)
    order = np.array([2, 0, 1])  # what was class order[c] is now class c
    plain = started(theta, max_iter=5, **EXACT).fit(X, y)
    renamed = started((*theta[:4], theta[4][order], theta[5][order]), max_iter=5, **EXACT)
    renamed.fit(X, np.where(y < 0, -1, np.argsort(order)[y]))
    np.testing.assert_allclose(renamed.predict_proba(X), plain.predict_proba(X)[:, order], atol=1e-10)


@pytest.mark.parametrize(
    "names", [["no", "yes"], [-1, 1], [False, True], [3.0, 7.0], np.array(["a", "b"], dtype=object)], ids=str
)
def test_labels_of_all_kinds(names):
    X, y = labelled_rows(11)
    plain = MFMClassifier(2, 1, **SHORT).fit(X, y)
    model = MFMClassifier(2, 1, **SHORT).fit(X, np.asarray(names)[y])
    assert model.classes_.tolist() == list(names)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), np.asarray(names)[plain.predict(X)])
    assert model.score(X, np.asarray(names)[y]) == plain.score(X, y)
    assert set(np.unique(model.predict_from_factors(X))) <= set(names)


def turn(rng, coef):
    """(d, d) an orthogonal matrix that leaves the rows of coef where they are."""
    d = coef.shape[1]
    _, values, vectors = np.linalg.svd(coef)
    free = vectors[np.sum(values > 1e-12) :]  # (d - rank, d), at right angles to all of them
    inner, _ = np.linalg.qr(rng.normal(size=(len(free), len(free))))
    return np.eye(d) - free.T @ free - free.T @ inner @ free  # of one dimension, a reflection


@pytest.mark.parametrize(("d", "C"), [(3, 2), (2, 2), (5, 3)])
def test_turns_about_the_classifier_change_nothing_that_is_identified(d, C):
    rng = np.random.default_rng(d)
    weights, means, loadings, noise, coef, intercept = example(rng, 3, d, 6, C, spread=0.5)
    turned = np.array([loadings[0], *(G @ turn(rng, coef) for G in loadings[1:])])
    one, other = (known((weights, means, G, noise, coef, intercept)) for G in (loadings, turned))
    X = rng.normal(size=(40, 6))
    X[::3, 1] = np.nan
    assert np.abs(turned - loadings).max() > 0.1
    y = rng.integers(C, size=40)
    np.testing.assert_allclose(one.score_samples(X, y), other.score_samples(X, y), rtol=1e-10)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-11)
    same = lambda method: (method(one), method(other))
    np.testing.assert_allclose(*same(lambda model: model.risks(X).clustering), atol=1e-11)
    np.testing.assert_allclose(*same(lambda model: model.risks(X).latent_classification), atol=1e-11)
    np.testing.assert_allclose(*same(lambda model: model.reconstruct(X, least_squares=True)), atol=1e-9)
    np.testing.assert_array_equal(*same(lambda model: model.predict_component(X)))
    # and these hang on the turn
    assert np.abs(one.risks(X).dimension - other.risks(X).dimension).max() > 0.01
    assert np.abs(one.reconstruct(X) - other.reconstruct(X)).max() > 0.01


# -- decisions ------------------------------------------------------------------------------------------


@every_size
@holed_or_not
def test_risks_and_reconstructions_are_their_formulas(size, holed):
    theta, X, *_ = problem(12, size, holed=holed)
    model, found = known(theta), known(theta).risks(X)
    expected = oracle.risks(X, theta)
    names = ("dimension", "classification", "latent_classification", "clustering")
    for name, values in zip(names, expected, strict=True):
        np.testing.assert_allclose(getattr(found, name), values, rtol=1e-9, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(model.reconstruct(X), oracle.reconstruct(X, theta), rtol=1e-9, atol=1e-11)
    nearest = model.reconstruct(X, least_squares=True)
    np.testing.assert_allclose(nearest, oracle.project(X, theta), rtol=1e-7, atol=1e-8)
    assert np.isfinite(nearest).all()


def test_a_least_squares_reconstruction_is_a_projection():
    theta, X, *_ = problem(13, (1, 2, 4, 2))
    model = known(theta)
    nearest = model.reconstruct(X, least_squares=True)
    left = X - nearest
    np.testing.assert_allclose(left @ theta[2][0], 0.0, atol=1e-10)
    np.testing.assert_allclose(model.reconstruct(nearest, least_squares=True), nearest, atol=1e-10)
    assert np.all(np.sum(left**2, axis=1) <= np.sum((X - model.reconstruct(X)) ** 2, axis=1) + 1e-12)


def test_a_risk_is_the_share_of_errors_on_average():
    model = known(example(np.random.default_rng(5), 2, 2, 3, 3, spread=1.0))
    X, y = model.sample(50_000, random_state=0)
    wrong = model.predict(X) != y
    risk = model.risks(X).classification
    assert abs(np.mean(wrong - risk)) < 5 * np.std(wrong - risk) / np.sqrt(len(X))
    plain, factors = np.mean(model.predict_from_factors(X) != y), np.mean(wrong)
    assert plain >= factors - 5 * 0.5 / np.sqrt(len(X))


def test_rejection():
    X, y = labelled_rows(14)
    model = MFMClassifier(2, 1, **SHORT).fit(X, np.array(["a", "b"])[y])
    assert model.accepts(X).all()
    held_out, _ = labelled_rows(114)
    model.calibrate_rejection(held_out, acceptance=0.9)
    n = len(held_out)
    assert np.sum(~model.accepts(held_out)) == np.floor((n + 1) * 0.1 + 1e-9) - 1
    assert set(model.predict(X[~model.accepts(X)])) == {"rejected"}
    fixed = MFMClassifier(2, 1, reject_below=-1e9, **SHORT).fit(X, y)
    np.testing.assert_array_equal(fixed.predict(np.full((1, 4), 1e9)), [-1])


def test_without_labels_to_speak_of_it_is_ppca():
    X, y = labelled_rows(15)
    ours = MFMClassifier(1, 2, discriminative_weight=1e-9, tol=0.0, max_iter=60, n_init=1).fit(X, y)
    theirs = PPCA(2).fit(X)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=1e-5)
    np.testing.assert_allclose(ours.reconstruct(X), theirs.reconstruct(X), atol=1e-4)
    np.testing.assert_allclose(ours.covariances_[0], theirs.covariance_, atol=1e-4)


def test_a_classifier_of_no_length_is_mppca():
    theta, X, *_ = problem(16, (2, 2, 3, 2))
    flat = known((*theta[:4], np.zeros((1, 2)), theta[5]))
    plain = MPPCA.from_parameters(
        weights=theta[0], means=theta[1], loadings=theta[2], noise_variance=theta[3]
    )
    np.testing.assert_allclose(flat.score_samples(X), plain.score_samples(X), rtol=1e-12)
    assert np.ptp(flat.predict_proba(X), axis=0).max() < 1e-12


def test_labels_cost_next_to_nothing_of_the_reconstruction_of_real_rows():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    ours = MFMClassifier(1, 4, n_init=1, tol=1e-6).fit(X, y)
    theirs = PPCA(4).fit(X)
    ratios = [signal_to_error_ratio(X, model.reconstruct(X)) for model in (ours, theirs)]
    assert abs(ratios[0] - ratios[1]) < 0.1  # decibels; of about 10
    assert ours.score(X, y) > 0.9


# -- number of parameters -------------------------------------------------------------------------------

COUNTED = [(1, 1, 1, 2), (2, 1, 1, 2), (1, 2, 2, 2), (2, 2, 2, 2), (1, 2, 4, 2), (2, 3, 4, 2), (1, 3, 5, 2)]
COUNTED += [(2, 1, 1, 3), (1, 2, 2, 3), (2, 2, 2, 3), (1, 1, 3, 3), (2, 2, 3, 3), (2, 3, 3, 3), (1, 4, 5, 3)]


@pytest.mark.parametrize("size", COUNTED, ids=str)
def test_the_number_of_parameters_is_the_rank_of_the_density(size):
    L, d, D, C = size
    count = known(example(np.random.default_rng(0), *size)).n_parameters()
    assert count == oracle.jacobian_rank(*size)
    if C == 2 and d < D:
        assert count == L - 1 + L * (D + 1 + D * d - (d - 1) * (d - 2) // 2) + 2


# -- as scikit-learn users expect it ---------------------------------------------------------------------


@two_or_more
def test_saved_and_loaded(C, tmp_path):
    X, y = labelled_rows(19, C)
    model = MFMClassifier(2, 2, **SHORT).fit(X, np.array(["x", "y", "z"])[y])
    model.calibrate_rejection(labelled_rows(119, C)[0], acceptance=0.9)
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    assert type(again) is MFMClassifier
    assert again.classes_.tolist() == model.classes_.tolist()
    labels = model.classes_[y]
    np.testing.assert_array_equal(again.score_samples(X, labels), model.score_samples(X, labels))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.history_, model.history_)
    assert again.n_parameters() == model.n_parameters()


def test_tensors():
    torch = pytest.importorskip("torch")
    X, y, weight = data(3)
    settings = {**SHORT, "accelerate": None}
    here = MFMClassifier(2, 2, **settings).fit(X, y, weight)
    there = MFMClassifier(2, 2, **settings).fit(torch.asarray(X), y, weight)
    assert isinstance(there.coef_, torch.Tensor)
    for name in ATTRIBUTES:
        ours = getattr(there, f"{name}_").numpy()
        np.testing.assert_allclose(ours, getattr(here, f"{name}_"), rtol=1e-7, atol=1e-8, err_msg=name)
    T = torch.asarray(X)
    for method in ("score_samples", "transform", "reconstruct", "predict_proba"):
        np.testing.assert_allclose(getattr(there, method)(T), getattr(here, method)(X), rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(there.predict(T), here.predict(X))
    nearest = there.reconstruct(T, least_squares=True)
    np.testing.assert_allclose(nearest, here.reconstruct(X, least_squares=True), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(there.risks(T).dimension, here.risks(X).dimension, rtol=1e-6)
    moved = there.to("numpy")
    np.testing.assert_allclose(moved.predict_proba(X), here.predict_proba(X), atol=1e-7)


# -- other ways to fit -----------------------------------------------------------------------------------


@two_or_more
def test_partial_fit_learns(C):
    X, y = labelled_rows(20, C, N=900, overlap=0.3)
    model = MFMClassifier(1, 2, random_state=0)
    for part in range(0, 900, 100):
        model.partial_fit(X[part : part + 100], y[part : part + 100])
    whole = quietly(MFMClassifier(1, 2, random_state=0, max_iter=200), X, y)
    assert np.mean(model.score_samples(X, y)) > np.mean(whole.score_samples(X, y)) - 0.2
    assert model.score(X, y) > whole.score(X, y) - 0.1


def test_partial_fit_knows_classes_that_come_later():
    X, y = labelled_rows(21, 3, N=300)
    first = np.flatnonzero(y < 2)[:80]
    model = MFMClassifier(1, 2, random_state=0).partial_fit(X[first], y[first], classes=[0, 1, 2])
    assert model.classes_.tolist() == [0, 1, 2] and model.coef_.shape == (3, 2)
    late, before = y == 2, model.score_samples(X, y)
    assert np.isfinite(before).all()
    for _ in range(20):
        model.partial_fit(X, y)
    after = model.score_samples(X, y)
    assert after.mean() > before.mean() and after[late].mean() > before[late].mean()
    other = MFMClassifier(1, 2, random_state=0).partial_fit(X[first], y[first])
    with pytest.raises(ValueError, match="class 2, which is not among"):
        other.partial_fit(X, y)


def test_mini_batches():
    X, y = labelled_rows(22, 2, N=600, overlap=0.3)
    batches = MFMClassifier(1, 2, batch_size=60, max_iter=20, tol=0.0, random_state=0, prior=None).fit(X, y)
    whole = quietly(MFMClassifier(1, 2, max_iter=100, random_state=0, prior=None), X, y)
    assert batches.history_[-1] == pytest.approx(objective(batches, X, y), rel=1e-9)
    assert batches.history_[-1] > whole.history_[-1] - 0.1


# -- rows and arguments that are hard or wrong -------------------------------------------------------------


HARD = {"tol": 0.0, "n_init": 1, "random_state": 0}


@pytest.mark.parametrize(
    "kind", ["few rows", "constant", "duplicates", "one row of a class", "tiny", "all equal"]
)
@either_way
def test_hard_rows(kind, accelerate):
    X, y = labelled_rows(25, 3, N=60)
    if kind == "few rows":
        X, y = rows(np.random.default_rng(0), 9, 20), np.arange(9) % 3
    elif kind == "constant":
        X[:, 2] = 5.0
    elif kind == "duplicates":
        X, y = np.repeat(X[:4], 15, axis=0), np.tile(np.arange(3), 20)
    elif kind == "one row of a class":
        y = np.where(y == 2, 0, y)
        y[3] = 2
    elif kind == "tiny":
        X = 1e-150 * X
    elif kind == "all equal":
        X = np.ones((60, 4))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X has constant features", UserWarning)
        model = MFMClassifier(2, 2, max_iter=15, accelerate=accelerate, **HARD).fit(X, y)
    assert np.isfinite(model.history_).all()
    assert np.diff(model.history_).min() >= -1e-6
    for array in theta_of(model):
        assert np.isfinite(array).all()
    P = model.predict_proba(X)
    assert np.isfinite(P).all()
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    assert np.isfinite(model.risks(X).dimension).all()
    assert np.isfinite(model.reconstruct(X, least_squares=True)).all()


@pytest.mark.parametrize(
    "settings, y, says",
    [
        ({}, None, "requires y"),
        ({}, np.zeros(20, dtype=int), "at least 2 classes"),
        ({}, np.full(20, -1), "every row is unlabelled"),
        ({}, np.arange(19) % 2, "20 in all, not 19"),
        ({}, np.where(np.arange(20) == 3, np.nan, np.arange(20) % 2), "NaN"),
        ({}, np.linspace(0, 1, 20), "Unknown label type"),
        ({"n_factors": 5}, np.arange(20) % 2, "n_factors"),
        ({"n_factors": 0}, np.arange(20) % 2, "n_factors"),
        ({"n_components": 21}, np.arange(20) % 2, "n_components"),
        ({"discriminative_weight": 0}, np.arange(20) % 2, "discriminative_weight"),
        ({"discriminative_weight": -1.0}, np.arange(20) % 2, "discriminative_weight"),
        ({"discriminative_weight": np.nan}, np.arange(20) % 2, "discriminative_weight"),
        ({"discriminative_weight": np.inf}, np.arange(20) % 2, "discriminative_weight"),
        ({"discriminative_weight": "much"}, np.arange(20) % 2, "discriminative_weight"),
        ({"discriminative_weight": 2.0, "batch_size": 5}, np.arange(20) % 2, "batch_size"),
        ({"reject_below": np.nan}, np.arange(20) % 2, "reject_below"),
        ({"reject_below": "low"}, np.arange(20) % 2, "reject_below"),
        ({"coef_init": np.zeros((2, 1))}, np.arange(20) % 2, "coef_init"),
        ({"intercept_init": [np.nan]}, np.arange(20) % 2, "intercept_init"),
    ],
)
def test_bad_arguments_are_named(settings, y, says):
    X = rows(np.random.default_rng(0), 20, 4)
    with pytest.raises((ValueError, TypeError), match=says):
        MFMClassifier(**settings).fit(X, y)


def test_a_large_emphasis_needs_all_rows_at_once():
    X, y = labelled_rows(26)
    with pytest.raises(ValueError, match="partial_fit needs a discriminative_weight"):
        MFMClassifier(discriminative_weight=2.0).partial_fit(X, y)


def test_labels_that_were_not_seen():
    X, y = labelled_rows(27)
    model = MFMClassifier(**SHORT).fit(X, y)
    with pytest.raises(ValueError, match="class 2, which is not among"):
        model.score_samples(X, np.full(len(X), 2))
    with pytest.raises(ValueError, match="one label per row"):
        model.score_samples(X, y[:-1])


@pytest.mark.parametrize(
    "changed, says",
    [
        ({"coef": np.zeros((2, 2))}, "coef"),
        ({"coef": np.zeros((1, 3))}, "coef"),
        ({"coef": np.full((1, 2), np.nan)}, "coef"),
        ({"intercept": np.zeros(3)}, "intercept"),
        ({"noise_variance": -1.0}, "noise_variance"),
        ({"weights": [0.5, 0.6]}, "weights"),
        ({"weights": 1.0}, "weights"),
        ({"classes": ["a", "b", "c"]}, "classes"),
    ],
)
def test_bad_parameters_are_named(changed, says):
    theta = example(np.random.default_rng(0), 2, 2, 3, 2)
    given = {**dict(zip(ATTRIBUTES, theta, strict=True)), **changed}
    with pytest.raises(ValueError, match=says):
        MFMClassifier.from_parameters(**given)


def test_short_forms_of_parameters():
    weights, means, loadings, noise, coef, intercept = example(np.random.default_rng(0), 2, 2, 3, 2)
    full = known((weights, means, loadings, noise, coef, intercept))
    short = MFMClassifier.from_parameters(
        weights=weights,
        means=means,
        loadings=loadings,
        noise_variance=noise,
        coef=coef[0],
        intercept=intercept[0],
        classes=["a", "b"],
    )
    X = np.random.default_rng(1).normal(size=(5, 3))
    np.testing.assert_array_equal(short.predict_proba(X), full.predict_proba(X))
    assert set(short.predict(X)) <= {"a", "b"}


# -- passes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("emphasis", [1.0, 6.0])
def test_every_evaluation_is_counted_and_they_are_few(monkeypatch, emphasis):
    X, y = labelled_rows(3, C=3)
    start = quietly(MFMClassifier(2, 2, n_init=1, max_iter=1, random_state=0), X, y)
    given = {f"{name}_init": getattr(start, f"{name}_") for name in ATTRIBUTES if name != "noise_variance"}
    given["noise_init"] = start.noise_variance_
    count, e_step = [], LabelledMixture.e_step
    monkeypatch.setattr(
        LabelledMixture, "e_step", lambda *args: (count.append(1), e_step(*args))[1]
    )  # all rows are one block
    settings = {"discriminative_weight": emphasis, "temperature": None, **given}
    model = quietly(MFMClassifier(2, 2, **settings), X, y)
    assert model.n_passes_ == len(count) <= 2 * model.n_iter_ + 1
    assert np.diff(model.history_).min() >= -1e-10
    slow = quietly(MFMClassifier(2, 2, accelerate=None, max_iter=len(count), **settings), X, y)
    assert model.history_[-1] >= slow.history_[-1]


def test_starts_are_chosen_by_what_they_say_of_labels():
    """The likelihood prefers components that describe rows, and factors that say nothing of the class."""
    iris = load_iris()
    X, y = scale(iris.data), iris.target
    model = MFMClassifier(2, 1, random_state=0, temperature=None, tol=1e-4).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.85
    found = MPPCA(2, 1, random_state=0, tol=1e-4).fit(X[::2])
    likelier = MFMClassifier(2, 1, means_init=found.means_, temperature=None, tol=1e-4).fit(X[::2], y[::2])
    assert likelier.history_[-1] > model.history_[-1]
    assert likelier.score(X[1::2], y[1::2]) < 0.7


def test_an_interrupted_search_keeps_the_best_start_so_far(monkeypatch):
    iris = load_iris()
    X, y = scale(iris.data), iris.target
    runs, run = 0, mfm.run

    def interrupted(*given, **options):
        nonlocal runs
        runs += 1
        end = run(*given, **options)
        return replace(end, interrupted=runs == 4)

    monkeypatch.setattr(mfm, "run", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = MFMClassifier(2, 1, random_state=0, temperature=None).fit(X, y)
    assert runs == 4 and model.n_iter_ == 0
    assert model.score(X, y) > 0.8
