"""Binary NMF and binary sparse coding, against an oracle that walks through all states one by one."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import latently
from latently.core.drivers import Passes, State, relative, run
from latently.datasets import load_bars
from latently.estimators.rows import for_method, rows_of
from latently.factorization import BNMF, BinarySparseCoding
from latently.factorization.candidates import Candidates
from tests.oracles import bnmf as oracle

EXACT = {"accelerate": None, "tol": 0.0}  # max_iter=n is exactly n EM steps
NO_FLOOR = {BNMF: {"weight_floor": 0.0}, BinarySparseCoding: {"noise_floor": 0.0}}
LIMIT = 2
WAYS = {
    "all": {},
    "proper": {"truncation": LIMIT},
    "conditional": {"truncation": LIMIT, "truncation_rule": "conditional"},
    "source": {"truncation": LIMIT, "truncation_rule": "source"},
    "candidates": {"truncation": LIMIT, "candidates": 3},
    "conditional candidates": {"truncation": LIMIT, "truncation_rule": "conditional", "candidates": 3},
}
MONOTONE = [way for way in WAYS if way != "source"]
both = pytest.mark.parametrize("model", [BNMF, BinarySparseCoding])
every_way = pytest.mark.parametrize("way", WAYS)
every_monotone_way = pytest.mark.parametrize("way", MONOTONE)
holed_or_not = pytest.mark.parametrize("holed", [False, True], ids=["", "holed"])
either_way = pytest.mark.parametrize("accelerate", [None, "squarem"])


def example(rng, model, H, D, per_unit=False, size=3.0):
    """Random parameters, in the order of the oracle."""
    pi = rng.uniform(0.15, 0.6, size=H) if per_unit else np.full(H, rng.uniform(0.2, 0.5))
    if model is BNMF:
        return size * rng.gamma(1.0, size=(H, D)), pi, None
    return size * rng.normal(size=(H, D)), pi, 0.3 * size**2


def parameters(theta, per_unit):
    W, pi, variance = theta
    given = {"components": W, "activation_probability": pi if per_unit else pi[0]}
    return given if variance is None else {**given, "noise_variance": variance}


def known(theta, *, per_unit=False, **settings):
    model = BNMF if theta[2] is None else BinarySparseCoding
    return model.from_parameters(**parameters(theta, per_unit)).set_params(**settings)


def started(theta, *, per_unit=False, **settings):
    model = BNMF if theta[2] is None else BinarySparseCoding
    names = {"noise_variance": "noise_init"}
    starts = {names.get(name, f"{name}_init"): value for name, value in parameters(theta, per_unit).items()}
    return model(len(theta[1]), per_unit=per_unit, **starts, **settings)


def theta_of(model):
    W = model.components_
    pi = np.broadcast_to(model.activation_probability_, len(W))
    return W, pi, getattr(model, "noise_variance_", None)


def assert_same(actual, expected, rtol=1e-6, atol=1e-8):
    for name, ours, theirs in zip(("weights", "probability", "variance"), actual, expected, strict=True):
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol, err_msg=name)


def problem(seed, model, H=4, D=5, N=14, holed=False, per_unit=False, size=3.0):
    """Starting values, rows drawn from other ones, and weights."""
    rng = np.random.default_rng(seed)
    X, _ = known(example(rng, model, H, D, size=size)).sample(N, random_state=seed)
    X[np.all(X == 0, axis=1), 0] = 1.0  # rows of zeros have candidates by chance; they are tested apart
    if holed:
        X[rng.random(X.shape) < 0.2] = np.nan
        X[np.isnan(X).all(axis=1), 0] = 2.0
    return example(rng, model, H, D, per_unit, size), X, rng.uniform(0.2, 3.0, size=N)


@for_method("candidates")
def chosen(kernel, density, frame, block):
    return density.choose(kernel, frame.enter(block))


def candidates(X, theta, n):
    """The units of each row that may be on, as the library chose them: the oracle says if well."""
    W, _, variance = theta
    found = rows_of(known(theta, truncation=1, candidates=n), X, chosen)
    for y, row in zip(np.nan_to_num(X), found, strict=True):
        if variance is None:  # of which most is there
            score = [sum(min(a, b) for a, b in zip(y, w, strict=True)) / sum(w) for w in W]
        else:  # that explain most alone
            score = [2 * sum(y * w) - sum(w**2) for w in W]
        score = np.array(score)
        assert row.sum() == n and score[row].min() >= score[~row].max() - 1e-9
    return [np.flatnonzero(row) for row in found]


def listed(X, theta, way):
    """The oracle's states that count, and those that they are compared with."""
    H, settings = len(theta[1]), WAYS[way]
    if not settings:
        return oracle.states(H), None
    few = oracle.states(H, LIMIT)
    if "candidates" in settings:
        units = candidates(X, theta, settings["candidates"])
        return [[s for s in few if all(h in row for h in range(H) if s[h])] for row in units], None
    return few, oracle.states(H, LIMIT + 1) if way == "source" else None


def objective(X, theta, way, states=None):
    """What a fit maximises, of each row."""
    states, compared = listed(X, theta, way) if states is None else states
    value = oracle.log_density(X, theta, compared or states)
    return value - oracle.log_kept(theta[1], LIMIT) if "conditional" in way else value


def quietly(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data)


# -- densities ------------------------------------------------------------------------------------------


@both
@every_way
@holed_or_not
def test_densities_are_those_of_the_oracle(model, way, holed):
    per_unit = way in ("all", "proper", "candidates")
    theta, X, _ = problem(0, model, holed=holed, per_unit=per_unit)
    ours, (states, _) = known(theta, per_unit=per_unit, **WAYS[way]), listed(X, theta, way)
    exact = oracle.log_density(X, theta)
    if "conditional" in way:  # a model of its own, which has no other states
        exact = objective(X, theta, "conditional")
    np.testing.assert_allclose(ours.score_samples(X), exact, rtol=1e-11)
    np.testing.assert_allclose(ours.bound(X), objective(X, theta, way), rtol=1e-11)
    means = oracle.means(X, theta, states)
    np.testing.assert_allclose(ours.transform(X), means, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(ours.predict_codes(X), oracle.best_states(X, theta, states))
    np.testing.assert_allclose(ours.reconstruct(X), means @ theta[0], rtol=1e-9, atol=1e-12)
    assert ours.score(X) == pytest.approx(np.mean(objective(X, theta, way)), rel=1e-11)


@both
def test_a_log_joint_is_what_one_state_leaves(model):
    theta, X, _ = problem(1, model, H=1)
    ours = known(theta)
    on, off = (np.array([oracle.log_joint(y, (s,), theta) for y in X]) for s in (1, 0))
    np.testing.assert_allclose(ours.score_samples(X), np.logaddexp(on, off), rtol=1e-12)
    np.testing.assert_allclose(ours.transform(X)[:, 0], np.exp(on - np.logaddexp(on, off)), rtol=1e-10)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
@both
@every_way
def test_counts_of_all_sizes(model, size, way):
    theta, X, _ = problem(2, model, size=size)
    ours, (states, _) = known(theta, **WAYS[way]), listed(X, theta, way)
    np.testing.assert_allclose(ours.bound(X), objective(X, theta, way), rtol=1e-10)
    np.testing.assert_allclose(ours.transform(X), oracle.means(X, theta, states), rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(ours.predict_codes(X), oracle.best_states(X, theta, states))


@pytest.mark.parametrize("way", ["all", "proper", "conditional", "source"])
def test_weights_of_zero_and_rows_of_zeros(way):
    W = np.array([[3.0, 0.0, 0.0, 1.0], [0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 4.0, 0.0]])
    theta = W, np.full(3, 0.3), None
    X = np.array([[0, 0, 0, 0], [2, 0, 0, 1], [0, 1, 3, 0], [0, 0, 5, 0], [4, 0, 2, 0]], dtype=float)
    ours, (states, _) = known(theta, **WAYS[way]), listed(X, theta, way)
    np.testing.assert_allclose(ours.bound(X), objective(X, theta, way), rtol=1e-12)
    np.testing.assert_allclose(ours.transform(X), oracle.means(X, theta, states), rtol=1e-10, atol=1e-14)
    np.testing.assert_array_equal(ours.predict_codes(X), oracle.best_states(X, theta, states))
    fitted = started(theta, max_iter=1, weight_floor=0.0, **WAYS[way], **EXACT).fit(X)
    q = oracle.posterior(X, theta, *listed(X, theta, way))
    expected = oracle.step(X, q, theta, limit=LIMIT if way in ("conditional", "source") else None)
    assert_same(theta_of(fitted), expected)
    assert np.all(fitted.components_[W == 0] == 0)


@every_way
def test_rows_that_no_state_explains(way):
    theta = np.array([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0], [2.5, 0.0]]), np.full(4, 0.3), None
    ours = known(theta, **WAYS[way])
    X = np.array([[1.0, 1.0]])
    assert ours.bound(X)[0] == ours.score_samples(X)[0] == -np.inf
    assert np.all((ours.transform(X) >= 0) & (ours.transform(X) <= 1))
    assert set(np.unique(ours.predict_codes(X))) <= {0.0, 1.0}


def test_rows_that_only_states_beyond_the_limit_explain_still_have_a_code():
    theta = 1e4 * np.eye(4), np.full(4, 0.3), None
    X = np.array([[1e4, 1e4, 1e4, 0.0]])
    floored = theta[0] + 1e-6, *theta[1:]
    P = known(floored, **WAYS["source"]).transform(X)
    np.testing.assert_allclose(P, oracle.means(X, floored, oracle.states(4, LIMIT)), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(P.sum(), LIMIT, rtol=1e-9)


@both
def test_all_units_as_candidates_are_no_candidates(model):
    theta, X, _ = problem(3, model)
    for rule in ("proper", "conditional"):
        settings = {"truncation": LIMIT, "truncation_rule": rule}
        plain, chosen = known(theta, **settings), known(theta, candidates=4, **settings)
        np.testing.assert_allclose(chosen.bound(X), plain.bound(X), rtol=1e-12)
        np.testing.assert_allclose(chosen.transform(X), plain.transform(X), rtol=1e-10)
        few = known(theta, candidates=3, **settings)
        assert np.all(few.bound(X) <= plain.bound(X) + 1e-12)
        assert np.count_nonzero(few.transform(X), axis=1).max() <= 3


@both
def test_truncation_gives_a_lower_bound(model):
    theta, X, _ = problem(4, model, H=5)
    exact, before = known(theta).score_samples(X), np.full(len(X), -np.inf)
    for limit in range(1, 6):
        bound = known(theta, truncation=limit).bound(X)
        assert np.all(bound >= before) and np.all(bound <= exact + 1e-12 * np.abs(exact))
        before = bound
    np.testing.assert_allclose(before, exact, rtol=1e-13)
    np.testing.assert_allclose(known(theta).bound(X), exact, rtol=1e-13)
    np.testing.assert_allclose(known(theta, truncation=9).bound(X), exact, rtol=1e-13)


@both
@pytest.mark.parametrize("way", ["all", "proper"])
def test_the_bound_is_the_free_energy_of_its_posteriors(model, way):
    theta, X, _ = problem(5, model)
    states, _ = listed(X, theta, way)
    q = oracle.posterior(X, theta, states)
    np.testing.assert_allclose(
        known(theta, **WAYS[way]).bound(X), oracle.free_energy(X, q, theta), rtol=1e-11
    )
    other = oracle.posterior(X, problem(6, model)[0], states)
    assert np.all(oracle.free_energy(X, other, theta) <= known(theta, **WAYS[way]).bound(X))


def test_the_probabilities_of_all_counts_are_one_in_all():
    theta = np.array([[1.0, 0.5], [0.3, 1.5]]), np.full(2, 0.4), None
    grid = np.stack(np.meshgrid(np.arange(25.0), np.arange(25.0)), axis=-1).reshape(-1, 2)
    assert np.exp(known(theta).score_samples(grid)).sum() == pytest.approx(1.0, abs=1e-12)
    prior = known(theta, truncation=1, truncation_rule="conditional")
    assert np.exp(prior.bound(grid)).sum() == pytest.approx(1.0, abs=1e-12)
    assert np.exp(known(theta, truncation=1).bound(grid)).sum() == pytest.approx(1 - 0.4**2, abs=1e-12)


@both
@pytest.mark.parametrize("way", ["all", "conditional"])
def test_the_sampler_agrees_with_the_density(model, way):
    rng = np.random.default_rng(7)
    W, pi, variance = example(rng, model, 4, 3)
    ours = known((W, pi, variance), **WAYS[way])
    near = known((0.95 * W, 0.9 * pi, None if variance is None else 0.9 * variance), **WAYS[way])
    X, codes = ours.sample(50_000, random_state=0)
    ratio = np.exp(near.bound(X) - ours.bound(X))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(X))
    P = ours.transform(X)
    for test in (1.0, np.tanh(X[:, :1] / 3)):
        left = (codes - P) * test
        assert np.all(np.abs(left.mean(axis=0)) < 5 * left.std(axis=0) / np.sqrt(len(X)))
    assert set(np.unique(codes)) == {0.0, 1.0}
    assert way == "all" or codes.sum(axis=1).max() == LIMIT
    np.testing.assert_array_equal(X, ours.sample(50_000, random_state=0)[0])


# -- steps ------------------------------------------------------------------------------------------------


@both
@every_way
@holed_or_not
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_one_step_is_that_of_the_oracle(model, way, holed, weighted):
    theta, X, weight = problem(10, model, holed=holed)
    weight = weight if weighted else None
    states = listed(X, theta, way)
    limit = LIMIT if way in ("conditional", "source", "conditional candidates") else None
    expected = oracle.step(X, oracle.posterior(X, theta, *states), theta, limit=limit, sample_weight=weight)
    ours = started(theta, max_iter=1, **WAYS[way], **EXACT, **NO_FLOOR[model]).fit(X, None, weight)
    assert_same(theta_of(ours), expected)
    history = [np.average(objective(X, at, way, states), weights=weight) for at in (theta, expected)]
    np.testing.assert_allclose(ours.history_, history, rtol=1e-9)
    assert ours.n_iter_ == 1 and not ours.converged_


@both
@pytest.mark.parametrize("way", ["all", "proper", "candidates"])
def test_one_step_with_a_probability_for_each_unit(model, way):
    theta, X, weight = problem(11, model, N=30, holed=True, per_unit=True)
    q = oracle.posterior(X, theta, *listed(X, theta, way))
    expected = oracle.step(X, q, theta, per_unit=True, sample_weight=weight)
    settings = {**WAYS[way], **EXACT, **NO_FLOOR[model]}
    ours = started(theta, per_unit=True, max_iter=1, **settings).fit(X, None, weight)
    assert_same(theta_of(ours), expected)


@every_way
@holed_or_not
def test_one_step_by_least_squares(way, holed):
    theta, X, weight = problem(12, BNMF, holed=holed, N=20)
    q = oracle.posterior(X, theta, *listed(X, theta, way))
    limit = LIMIT if way in ("conditional", "source", "conditional candidates") else None
    expected = oracle.step(X, q, theta, by_least_squares=True, limit=limit, sample_weight=weight)
    settings = {"m_step": "least_squares", "weight_floor": 0.0, **WAYS[way], **EXACT}
    ours = started(theta, max_iter=1, **settings).fit(X, None, weight)
    assert_same(theta_of(ours), expected, rtol=1e-6, atol=1e-7)
    assert ours.components_.min() >= 0


@both
def test_three_steps_and_none(model):
    theta, X, _ = problem(13, model)
    expected = theta
    for _ in range(3):
        expected = oracle.step(X, oracle.posterior(X, expected), expected)
    settings = {**EXACT, **NO_FLOOR[model]}
    assert_same(theta_of(started(theta, max_iter=3, **settings).fit(X)), expected)
    assert_same(theta_of(started(theta, max_iter=0, **settings).fit(X)), theta, rtol=1e-14)


@both
def test_units_that_are_never_on_keep_their_weights(model):
    theta, X, _ = problem(14, model, size=30.0)
    theta[0][1] = 3000.0  # explains no row
    ours = started(theta, max_iter=1, **EXACT, **NO_FLOOR[model]).fit(X)
    assert ours.transform(X)[:, 1].max() < 1e-12
    np.testing.assert_allclose(ours.components_[1], 3000.0)


@pytest.mark.parametrize(("mean", "H", "limit"), [(0.3, 5, 1), (1.2, 6, 2), (2.9, 8, 3), (1e-6, 8, 4)])
def test_the_corrected_probability_makes_a_cut_binomial_have_its_mean(mean, H, limit):
    pi = oracle.corrected(mean, H, limit)
    counts = np.arange(limit + 1)
    mass = stats.binom.pmf(counts, H, pi)
    assert counts @ mass / mass.sum() == pytest.approx(mean, rel=1e-9)
    again = pi * stats.binom.cdf(limit, H, pi) / (counts @ mass) * mean  # the iteration of the source of it
    assert again == pytest.approx(pi, rel=1e-9)


def test_the_corrected_probability_is_not_biased():
    theta = 40.0 * np.eye(6), np.full(6, 0.3), None
    X, _ = known(theta).sample(3000, random_state=0)
    found = {}
    for rule in ("proper", "source"):
        settings = {"truncation": 2, "truncation_rule": rule, "max_iter": 1, **EXACT}
        found[rule] = started(theta, **settings).fit(X).activation_probability_
    assert found["proper"] < 0.26  # rows with more causes have two at most
    few = X[np.count_nonzero(X, axis=1) <= 2]  # what a prior without other states would make
    settings = {"truncation": 2, "truncation_rule": "conditional", "max_iter": 1, **EXACT}
    conditional = started(theta, **settings).fit(few).activation_probability_
    assert conditional == pytest.approx(0.3, abs=0.02)
    assert found["source"] == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize("seed", range(4))
def test_the_step_of_weights_maximises_a_bound_of_q(seed):
    theta, X, _ = problem(seed, BNMF)
    q = oracle.posterior(X, theta)
    new = started(theta, max_iter=1, weight_floor=0.0, **EXACT).fit(X).components_
    best = oracle.separable_bound(X, q, theta[0], new)
    rng = np.random.default_rng(seed)
    for size in (1e-3, 0.1, 1.0):
        other = new * np.exp(size * rng.normal(size=new.shape))
        assert oracle.separable_bound(X, q, theta[0], other) < best
    at_old = oracle.separable_bound(X, q, theta[0], theta[0])
    gains = [oracle.expected(X, q, (W, *theta[1:])) for W in (new, theta[0])]
    assert gains[0] - gains[1] >= best - at_old > 0  # a bound that touches Q at the old weights


@both
@every_monotone_way
@either_way
@pytest.mark.parametrize("seed", range(6))
def test_the_objective_never_falls(model, way, accelerate, seed):
    rng = np.random.default_rng(seed)
    per_unit = bool(rng.integers(2)) and "conditional" not in way
    H, D, holed = int(rng.integers(4, 7)), int(rng.integers(2, 7)), bool(rng.integers(2))
    theta, X, weight = problem(seed, model, H, D, N=40, holed=holed, per_unit=per_unit)
    settings = {"accelerate": accelerate, "tol": 0.0, "max_iter": 25, **WAYS[way]}
    if rng.integers(2):
        settings |= NO_FLOOR[model]
    ours = started(theta, per_unit=per_unit, **settings).fit(X, None, weight if seed % 2 else None)
    assert np.isfinite(ours.history_).all()
    assert np.diff(ours.history_).min() >= -1e-9 * (1 + np.abs(ours.history_).max())
    assert ours.history_[-1] > ours.history_[0]
    if "candidates" not in WAYS[way]:  # of which new rows choose anew
        score = ours.score(X, sample_weight=weight if seed % 2 else None)
        assert ours.history_[-1] == pytest.approx(score, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_the_objective_never_falls_in_hundreds_of_fits(seed):
    model, way = (BNMF, BinarySparseCoding)[seed % 2], MONOTONE[seed // 2 % len(MONOTONE)]
    test_the_objective_never_falls(model, way, [None, "squarem"][seed // 20 % 2], seed)


def test_least_squares_may_lower_the_likelihood_where_em_does_not():
    bars = load_bars(random_state=0)
    truth = bars.components, np.full(8, 0.3), None
    first = {}
    for m_step in ("exact", "least_squares"):
        settings = {"m_step": m_step, "weight_floor": 1e-5, "max_iter": 1, **EXACT}
        first[m_step] = np.diff(started(truth, **settings).fit(bars.X).history_)[0]
    assert first["exact"] > 0 > first["least_squares"]


@both
@pytest.mark.parametrize("way", ["all", "proper", "conditional"])
def test_every_slope_vanishes_at_the_end(model, way):
    rng = np.random.default_rng(3)
    truth = example(rng, model, 3, 4)
    X, _ = known(truth).sample(200, random_state=0)
    ours = started(truth, max_iter=3000, tol=1e-15, **WAYS[way]).fit(X)
    theta = theta_of(ours)
    total = lambda theta: known(theta, **WAYS[way]).score(X)

    def slope(which, index):
        ends = []
        for sign in (1, -1):
            moved = list(theta)
            moved[which] = np.array(theta[which], dtype=float)
            moved[which][index] += sign * 1e-5
            ends.append(total(moved))
        return (ends[0] - ends[1]) / 2e-5

    floor = 1.001e-6 * X.mean()
    for index in np.ndindex(theta[0].shape):
        if model is BNMF and theta[0][index] <= 2e-5:  # as small as it may be, or on its way there
            up = total(
                (theta[0] + 1e-4 * (np.arange(12).reshape(3, 4) == index[0] * 4 + index[1]), *theta[1:])
            )
            assert theta[0][index] > floor or up <= total(theta)
        else:
            assert abs(slope(0, index)) < 2e-5
    assert abs(slope(1, slice(None))) < 2e-5
    assert model is BNMF or abs(slope(2, ())) < 2e-5


# -- what must not matter ---------------------------------------------------------------------------------


@both
@either_way
@every_monotone_way
def test_weight_two_is_a_row_twice(model, way, accelerate):
    theta, X, _ = problem(20, model, N=30, holed=True)
    copies = np.random.default_rng(0).integers(1, 4, size=30)
    settings = {"max_iter": 6, "tol": 0.0, "accelerate": accelerate, **WAYS[way]}
    by_weight = started(theta, **settings).fit(X, None, copies)
    by_copies = started(theta, **settings).fit(np.repeat(X, copies, axis=0))
    np.testing.assert_allclose(by_weight.history_, by_copies.history_, rtol=1e-9)
    assert_same(theta_of(by_weight), theta_of(by_copies), rtol=1e-5, atol=1e-7)


@both
def test_own_starts_know_of_weights_and_of_no_order(model):
    _, X, _ = problem(21, model, N=40)
    copies = np.random.default_rng(0).integers(1, 4, size=40)
    settings = {"max_iter": 10, "tol": 0.0, "accelerate": None, "random_state": 0}
    by_weight = model(3, **settings).fit(X, None, copies)
    again = model(3, **settings).fit(X, None, copies)
    back = model(3, **settings).fit(X[::-1], None, copies[::-1])
    np.testing.assert_array_equal(by_weight.history_, again.history_)
    np.testing.assert_allclose(by_weight.history_, back.history_, rtol=1e-6)


@both
@every_way
def test_order_and_blocks_do_not_matter(model, way):
    theta, X, weight = problem(22, model, N=30, holed=True)
    settings = {"max_iter": 5, **EXACT, **WAYS[way]}
    plain = started(theta, **settings).fit(X, None, weight)
    blocks = started(theta, block_size=7, **settings).fit(X, None, weight)
    back = started(theta, **settings).fit(X[::-1], None, weight[::-1])
    for other in (blocks, back):
        assert_same(theta_of(other), theta_of(plain))
        np.testing.assert_allclose(other.history_, plain.history_, rtol=1e-10)
    for method in ("bound", "score_samples", "transform", "predict_codes", "reconstruct"):
        whole, parts = getattr(plain, method)(X), getattr(blocks, method)(X)
        np.testing.assert_allclose(parts, whole, rtol=1e-6, atol=1e-7)


@both
def test_a_full_mask_is_no_mask(model):
    theta, X, _ = problem(23, model)
    extra = np.vstack([X, np.full((1, X.shape[1]), np.nan)])  # one row with holes, of no weight
    weight = np.append(np.ones(len(X)), 0.0)
    for way in ("all", "source", "candidates"):
        settings = {"max_iter": 2, **EXACT, **WAYS[way]}
        whole = started(theta, **settings).fit(X)
        masked = started(theta, **settings).fit(extra, None, weight)
        assert_same(theta_of(masked), theta_of(whole))
        np.testing.assert_allclose(whole.bound(extra)[:-1], whole.bound(X), rtol=1e-11)


@both
@pytest.mark.parametrize("way", ["all", "candidates"])
def test_files_blocks_and_dask_arrays_are_rows_too(model, way, tmp_path):
    da = pytest.importorskip("dask.array")
    theta, X, weight = problem(25, model, N=40)
    np.save(tmp_path / "rows.npy", X)
    settings = {"max_iter": 4, **EXACT, **WAYS[way]}
    plain = started(theta, **settings).fit(X, None, weight)
    for place in (tmp_path / "rows.npy", [X[:1], X[1:30], X[30:]], da.from_array(X, chunks=(15, 3))):
        other = started(theta, **settings).fit(place, None, weight)
        np.testing.assert_allclose(other.history_, plain.history_, rtol=1e-10)
        for method in ("bound", "transform", "predict_codes"):
            found = np.asarray(getattr(other, method)(place))
            np.testing.assert_allclose(found, getattr(plain, method)(X), rtol=1e-8, atol=1e-9)


@both
@pytest.mark.parametrize("way", ["all", "proper", "conditional", "source"])
def test_tensors(model, way):
    torch = pytest.importorskip("torch")
    theta, X, weight = problem(26, model, N=30, holed=True)
    settings = {"max_iter": 4, **EXACT, **WAYS[way]}
    here, there = (started(theta, **settings).fit(Y, None, weight) for Y in (X, torch.asarray(X)))
    assert isinstance(there.components_, torch.Tensor)
    np.testing.assert_allclose(there.components_.numpy(), here.components_, rtol=1e-9)
    np.testing.assert_allclose(
        there.activation_probability_.numpy(), here.activation_probability_, rtol=1e-10
    )
    for method in ("bound", "score_samples", "transform", "predict_codes", "reconstruct"):
        found = getattr(there, method)(torch.asarray(X)).numpy()
        np.testing.assert_allclose(found, getattr(here, method)(X), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(there.to("numpy").bound(X), here.bound(X), rtol=1e-10)


@both
def test_own_starts_of_tensors(model):
    torch = pytest.importorskip("torch")
    _, X, _ = problem(26, model, N=30)
    settings = {"max_iter": 4, "random_state": 0, **EXACT}
    here, there = (model(3, **settings).fit(Y) for Y in (X, torch.asarray(X)))
    np.testing.assert_allclose(there.history_.numpy(), here.history_, rtol=1e-6)


@both
@pytest.mark.parametrize("way", ["candidates", "conditional candidates"])
@pytest.mark.parametrize("seed", range(3))
def test_own_starts_with_candidates(model, way, seed):
    _, X, _ = problem(seed, model, H=6, N=60)
    ours = model(6, max_iter=10, tol=0.0, random_state=seed, **WAYS[way]).fit(X)
    assert np.diff(ours.history_).min() >= -1e-9


@both
def test_candidates_of_tensors_are_an_error(model):
    torch = pytest.importorskip("torch")
    theta, X, _ = problem(27, model)
    with pytest.raises(ValueError, match="candidates need NumPy arrays"):
        started(theta, **WAYS["candidates"]).fit(torch.asarray(X))


# -- other ways to fit --------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("way", ["all", "proper", "candidates"])
def test_partial_fit_and_mini_batches_learn(model, way):
    truth = example(np.random.default_rng(30), model, 4, 6, size=5.0)
    X, _ = known(truth).sample(1200, random_state=0)
    start = problem(30, model, D=6, size=5.0)[0]
    settings = {"tol": 0.0, **WAYS[way]}
    before = started(start, max_iter=0, **settings).fit(X).score(X)
    whole = started(start, max_iter=60, **settings).fit(X).score(X)
    parts = started(start, **settings)
    for _ in range(4):
        for part in range(0, 1200, 100):
            parts.partial_fit(X[part : part + 100])
    batches = started(start, batch_size=100, max_iter=6, **settings).fit(X)
    for online in (parts, batches):
        assert online.score(X) > before + 0.7 * (whole - before)
        assert np.isfinite(online.history_).all()


@both
def test_partial_fit_goes_on_from_known_parameters(model):
    theta = example(np.random.default_rng(31), model, 3, 5)
    X, _ = known(theta).sample(400, random_state=0)
    ours = known(theta).partial_fit(X[:200]).partial_fit(X[200:])
    assert ours.score(X) > known(theta).score(X) - 0.3
    assert ours.n_iter_ == 2


class Killed(Exception):
    """In place of a process that is killed."""


def killed_at(sweep):
    def kill(iteration):
        if iteration.number == sweep:
            raise Killed

    return kill


def assert_same_fit(ours, theirs):
    """To the last bit."""
    assert_same(theta_of(ours), theta_of(theirs), rtol=0, atol=0)
    np.testing.assert_array_equal(ours.history_, theirs.history_)
    assert (ours.n_iter_, ours.converged_, ours.n_passes_) == (
        theirs.n_iter_,
        theirs.converged_,
        theirs.n_passes_,
    )


RESUMED = {
    "all": {},
    "mini-batches": {"batch_size": 10},
    "candidates": WAYS["candidates"],
    "candidates in mini-batches": {"batch_size": 10, **WAYS["candidates"]},
}


@both
@either_way
@pytest.mark.parametrize("way", RESUMED)
def test_a_killed_fit_resumes_from_its_checkpoint(model, way, accelerate, tmp_path):
    theta, X, _ = problem(33, model, N=40)
    settings = {"tol": 0.0, "random_state": 0, "max_iter": 24, "accelerate": accelerate, **RESUMED[way]}
    whole = started(theta, **settings).fit(X)
    resumed = started(theta, checkpoint=tmp_path / "state", checkpoint_every=1, **settings)
    for iteration in (1, 4, 9, 10, 11, 20, 23):  # candidates are chosen anew in between
        with pytest.raises(Killed):
            clone(resumed).set_params(callbacks=[killed_at(iteration)]).fit(X)
        assert (tmp_path / "state").exists()
    assert_same_fit(resumed.fit(X), whole)
    assert not (tmp_path / "state").exists()


@both
def test_a_checkpoint_knows_the_order_of_rows_with_candidates(model, tmp_path):
    theta, X, _ = problem(34, model, N=40)
    ours = started(theta, checkpoint=tmp_path / "state", checkpoint_every=1, tol=0.0, **WAYS["candidates"])
    with pytest.raises(Killed):
        clone(ours).set_params(callbacks=[killed_at(3)]).fit(X)
    with pytest.raises(ValueError, match="other data"):
        ours.fit(X[::-1])


@both
@either_way
def test_a_fit_ends_only_where_new_candidates_bring_no_more(model, accelerate):
    for seed in range(6):
        theta, X, _ = problem(seed, model, H=8, N=60)
        ours = started(theta, tol=1e-3, truncation=2, candidates=3)
        problem_of = ours._problem(ours._data(X, reset=True))
        stop = relative(ours.tol)
        rows = Candidates(problem_of, stop, accelerate == "squarem", Passes())
        start = State.at(rows.start(ours._start(problem_of)[0]))
        end = run(rows.step(), start, max_iter=1000, stop=stop)
        assert end.converged
        again = rows.step()(replace(end.params, age=10))  # of which age they are chosen anew in any case
        assert again.objective <= end.history[-1] + 1e-12
        assert stop(again.objective, again.objective - end.history[-2])


@both
@pytest.mark.parametrize("way", ["all", "candidates"])
def test_callbacks_and_progress(model, way, capsys):
    theta, X, _ = problem(35, model, N=40)
    seen = []

    def stop_at_third(iteration):
        seen.append(iteration.objective)
        return len(seen) == 3

    ours = started(theta, tol=0.0, callbacks=[stop_at_third], verbose=1, **WAYS[way]).fit(X)
    assert len(seen) == 3 and ours.n_iter_ == 2  # the start is told of, too
    np.testing.assert_allclose(ours.history_, seen)
    assert model.__name__[:10] in "".join(capsys.readouterr())  # narrow windows cut names off


# -- as scikit-learn users expect it -------------------------------------------------------------------------


SHORT = {"max_iter": 8, "tol": 0.0, "random_state": 0, "n_init": 2}


@both
@every_way
def test_saved_and_loaded(model, way, tmp_path):
    theta, X, _ = problem(42, model)
    ours = started(theta, max_iter=3, tol=0.0, **WAYS[way]).fit(X)
    ours.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    assert type(again) is model and again.get_params()["truncation"] == ours.truncation
    for method in ("bound", "score_samples", "transform", "predict_codes"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(ours, method)(X))
    np.testing.assert_array_equal(again.history_, ours.history_)
    assert again.n_parameters() == ours.n_parameters()


@both
@pytest.mark.parametrize("per_unit", [False, True])
def test_saved_with_one_probability_or_many(model, per_unit, tmp_path):
    theta, X, _ = problem(43, model, per_unit=per_unit)
    ours = known(theta, per_unit=per_unit)
    ours.save(tmp_path / "model")
    np.testing.assert_array_equal(latently.load(tmp_path / "model").bound(X), ours.bound(X))


def test_the_subpackage_is_found_from_the_top():
    assert latently.factorization.BNMF is BNMF
    assert "factorization" in dir(latently)


# -- answers ----------------------------------------------------------------------------------------------


@both
@every_way
def test_answers_have_their_ranges(model, way):
    theta, X, _ = problem(50, model, N=40, holed=True)
    ours = started(theta, max_iter=5, tol=0.0, **WAYS[way]).fit(X)
    P, codes = ours.transform(X), ours.predict_codes(X)
    assert P.min() >= 0 and P.max() <= 1 + 1e-12
    assert set(np.unique(codes)) <= {0.0, 1.0}
    assert way == "all" or codes.sum(axis=1).max() <= LIMIT
    np.testing.assert_allclose(ours.reconstruct(X), P @ ours.components_, rtol=1e-10)
    np.testing.assert_allclose(ours.inverse_transform(P), ours.reconstruct(X), rtol=1e-10)
    np.testing.assert_allclose(ours.inverse_transform(codes), codes @ ours.components_)


@both
@pytest.mark.parametrize("way", ["all", "proper"])
def test_the_code_is_the_state_of_highest_probability(model, way):
    theta, X, _ = problem(51, model)
    codes = known(theta, **WAYS[way]).predict_codes(X)
    for y, code in zip(X, codes, strict=True):
        own = oracle.log_joint(y, tuple(code.astype(int)), theta)
        limit = LIMIT if way == "proper" else None
        assert own >= max(oracle.log_joint(y, s, theta) for s in oracle.states(4, limit)) - 1e-9


@both
@pytest.mark.parametrize("per_unit", [False, True])
def test_the_number_of_parameters_is_the_rank_of_the_density(model, per_unit):
    theta, X, _ = problem(52, model, H=2, D=3, per_unit=per_unit)
    ours = known(theta, per_unit=per_unit)
    m = ours.n_parameters()
    assert m == oracle.jacobian_rank(2, 3, 2.0 if model is BinarySparseCoding else None, per_unit)
    total = oracle.log_density(X, theta).sum()
    assert ours.bic(X) == pytest.approx(-2 * total + m * np.log(len(X)))
    assert ours.aic(X) == pytest.approx(-2 * total + 2 * m)


def matched(bars, model):
    """Which unit is which bar, (2 * size,)."""
    distance = np.abs(bars.components[:, None] - model.components_).sum(axis=-1)
    return linear_sum_assignment(distance)[1]


@pytest.mark.parametrize("seed", range(3))
def test_bars_are_found(seed):
    bars = load_bars(random_state=seed)
    ours = BNMF(8, random_state=seed).fit(bars.X)
    units = matched(bars, ours)
    W = ours.components_[units]
    own = bars.components > 0
    heights = np.array([row[mine].mean() for row, mine in zip(W, own, strict=True)])
    np.testing.assert_allclose(heights, 10.0, rtol=0.05)
    assert W[~own].max() < 1.0
    assert ours.activation_probability_ == pytest.approx(0.3, abs=0.03)
    assert np.mean(ours.predict_codes(bars.X)[:, units] == bars.codes) > 0.97
    truth = known((bars.components, np.full(8, 0.3), None))
    assert ours.score(bars.X) > truth.score(bars.X)


def test_bars_are_found_by_the_gaussian_relative():
    bars = load_bars(random_state=0)
    ours = BinarySparseCoding(8, random_state=0).fit(bars.X)
    units = matched(bars, ours)
    assert np.mean(ours.predict_codes(bars.X)[:, units] == bars.codes) > 0.95


# -- rows and arguments that are hard or wrong -----------------------------------------------------------


@both
@pytest.mark.parametrize("kind", ["zeros", "two rows", "few rows", "equal", "one feature", "huge"])
@either_way
def test_hard_rows(model, kind, accelerate):
    X = np.random.default_rng(0).poisson(3.0, size=(30, 4)).astype(float)
    if kind == "zeros":
        X = np.zeros((20, 4))
    elif kind == "two rows":
        X = X[:2]
    elif kind == "few rows":
        X = X[:3]
    elif kind == "equal":
        X = np.full((20, 4), 3.0)
    elif kind == "one feature":
        X = X[:, :1]
    elif kind == "huge":
        X = 1e6 * X
    ours = quietly(model(5, random_state=0, max_iter=30, accelerate=accelerate), X)
    assert np.isfinite(ours.history_).all()
    assert np.diff(ours.history_).min(initial=0.0) >= -1e-9 * (1 + np.abs(ours.history_).max())
    for part in theta_of(ours):
        assert part is None or np.isfinite(part).all()
    for method in ("bound", "transform", "predict_codes", "reconstruct"):
        assert np.isfinite(getattr(ours, method)(X)).all()


@both
def test_rows_without_entries_do_not_matter(model):
    theta, X, _ = problem(60, model)
    empty = np.vstack([X, np.full((3, X.shape[1]), np.nan)])
    settings = {"max_iter": 3, **EXACT}
    assert_same(theta_of(started(theta, **settings).fit(empty)), theta_of(started(theta, **settings).fit(X)))


def test_numbers_that_are_no_counts_give_a_warning():
    _, X, _ = problem(61, BNMF, N=30)
    with pytest.warns(UserWarning, match="not counts"):
        ours = BNMF(2, **SHORT).fit(X + 0.5)
    assert np.isfinite(ours.history_).all()
    BinarySparseCoding(2, **SHORT).fit(X + 0.5)


@both
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_components": 1.5}, "n_components"),
        ({"n_components": 40}, "set `truncation`"),
        ({"n_components": 60, "truncation": 20, "candidates": None}, "set `truncation`, or a smaller one"),
        ({"truncation": 0}, "truncation"),
        ({"truncation": 1.5}, "truncation"),
        ({"truncation_rule": "loose"}, "truncation_rule"),
        ({"truncation": 1, "per_unit": True, "truncation_rule": "conditional"}, "per_unit"),
        ({"truncation": 2, "candidates": 1}, "candidates=1 must not be smaller than truncation=2"),
        ({"truncation": 1, "candidates": 2, "truncation_rule": "source"}, "candidates"),
        ({"candidates": 0}, "candidates"),
        ({"per_unit": "yes"}, "per_unit"),
        ({"annealing": -1}, "annealing"),
        ({"activation_probability_init": 0.0}, "activation_probability_init"),
        ({"activation_probability_init": 1.0}, "activation_probability_init"),
        ({"activation_probability_init": -0.5}, "activation_probability_init"),
        ({"activation_probability_init": np.nan}, "activation_probability_init"),
        ({"activation_probability_init": [0.5, 0.5]}, "activation_probability_init"),
        ({"components_init": np.ones((2, 4))}, "components_init"),
        ({"components_init": np.full((3, 4), np.inf)}, "components_init"),
    ],
)
def test_bad_arguments_are_named(model, settings, says):
    X = np.random.default_rng(0).poisson(3.0, size=(20, 4))
    with pytest.raises((ValueError, TypeError), match=says):
        model(**{"n_components": 3, **settings}).fit(X)


@pytest.mark.parametrize(
    ("model", "settings", "says"),
    [
        (BNMF, {"components_init": -np.ones((3, 4))}, "components_init must not be negative"),
        (BNMF, {"m_step": "newton"}, "m_step"),
        (BNMF, {"weight_floor": -1.0}, "weight_floor"),
        (BinarySparseCoding, {"noise_init": 0.0}, "noise_init"),
        (BinarySparseCoding, {"noise_floor": -1.0}, "noise_floor"),
    ],
)
def test_bad_arguments_of_one_model_are_named(model, settings, says):
    X = np.random.default_rng(0).poisson(3.0, size=(20, 4))
    with pytest.raises((ValueError, TypeError), match=says):
        model(3, **settings).fit(X)


@both
def test_bad_rows_are_named(model):
    X = np.random.default_rng(0).poisson(3.0, size=(20, 4)).astype(float)
    endless = X.copy()
    endless[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        model(2).fit(endless)
    if model is BNMF:
        with pytest.raises(ValueError, match="smallest entry is -1"):
            model(2).fit(np.where(X > 5, -1.0, X))
        negative = np.where(X > 5, -0.5, X)
        for method in ("transform", "bound", "partial_fit"):
            with pytest.raises(ValueError, match="counts"):
                getattr(model(2, **SHORT).fit(X), method)(negative)
    ours = model(2, **SHORT).fit(X)
    with pytest.raises(ValueError, match="features"):
        ours.transform(X[:, :3])
    with pytest.raises(ValueError, match="columns"):
        ours.inverse_transform(X)
    for weight, says in ((-np.ones(20), "negative"), (np.ones(19), "sample_weight")):
        with pytest.raises(ValueError, match=says):
            model(2).fit(X, None, weight)
        with pytest.raises(ValueError, match=says):
            ours.score(X, sample_weight=weight)


def test_counts_that_no_start_explains_are_an_error_or_finite():
    X = np.random.default_rng(0).poisson(3.0, size=(20, 2)).astype(float)
    settings = {"components_init": [[1.0, 0.0], [2.0, 0.0]], "activation_probability_init": 0.3}
    ours = quietly(BNMF(2, max_iter=20, **settings), X)
    assert np.isfinite(ours.history_).all()
    with pytest.raises(FloatingPointError, match="objective per row became -inf"):
        BNMF(2, max_iter=20, weight_floor=0.0, **settings).fit(X)


def test_too_many_units_for_the_exact_density():
    W = np.random.default_rng(0).gamma(1.0, size=(30, 4))
    settings = {"components_init": W, "activation_probability_init": 0.1}
    X = np.random.default_rng(0).poisson(3.0, size=(5, 4))
    ours = BNMF(30, truncation=2, max_iter=0, tol=0.0, **settings).fit(X)
    assert np.isfinite(ours.bound(X)).all()
    with pytest.raises(ValueError, match="use `bound`"):
        ours.score_samples(X)


def test_many_units_choose_their_candidates():
    bars = load_bars(7, 150, probability=0.12, random_state=0)
    settings = {"components_init": bars.components + 1.0, "activation_probability_init": 0.2}
    ours = quietly(BNMF(14, truncation=4, candidates=8, max_iter=15, **settings), bars.X)
    assert np.mean(ours.predict_codes(bars.X) == bars.codes) > 0.97


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"components": np.ones(3)}, "components"),
        ({"components": -np.ones((2, 3))}, "components must not be negative"),
        ({"components": np.full((2, 3), np.nan)}, "components"),
        ({"activation_probability": 1.5}, "activation_probability"),
        ({"activation_probability": [0.1, 0.2, 0.3]}, "activation_probability"),
    ],
)
def test_bad_parameters_are_named(changed, says):
    with pytest.raises(ValueError, match=says):
        BNMF.from_parameters(**{"components": np.ones((2, 3)), "activation_probability": 0.3, **changed})


def test_rows_that_float64_cannot_tell_apart_are_an_error():
    """Without a mean of its own the model measures distances from the origin."""
    X = np.random.default_rng(0).normal(size=(80, 3))
    for offset in (1e8, 1e9, -1e12):
        with pytest.raises(ValueError, match="subtract the means"):
            BinarySparseCoding(2, max_iter=3, tol=0.0, random_state=0).fit(X + offset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        far = BinarySparseCoding(2, random_state=0, max_iter=3).fit(X + 1e5)
    assert -10 < far.score(X + 1e5) < 0


@pytest.mark.parametrize("seed", [8, 10, 15])
def test_starts_are_above_the_floor(seed):
    """The floor is a part of the mean of all columns, which one column of huge counts decides."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(np.where(rng.random(42) < 0.5, 22.0, 0.7)[:, None], size=(42, 4)) * 1.0
    X[:, 3] = 1e9
    X = np.where(rng.random(X.shape) < 0.45, np.nan, X)
    found = BNMF(3, n_init=1, max_iter=3, tol=0, random_state=522).fit(X[~np.isnan(X).all(axis=1)])
    assert np.diff(found.history_).min() > -1e-3  # of sums of 1e10


@pytest.mark.parametrize("seed", range(3))
def test_noise_below_the_digits_of_the_rows_is_no_fall(seed):
    """All rows but one fit to the last digit, and without a floor their variance is that of rounding."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(17, 4)), 2)
    X[1] = 10.0 ** rng.integers(60, 90)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = BinarySparseCoding(3, noise_floor=0.0, max_iter=12, random_state=seed).fit(X)
    assert np.all(np.isfinite(model.history_)) and model.noise_variance_ > 0
