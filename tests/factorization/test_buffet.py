"""Indian-buffet models: priors, exact sweeps against slow oracles, and what only these models do."""

import math
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from scipy.special import gammaln

from latently.distributions import IndianBuffet, TruncatedNormal, left_ordered_form
from latently.distributions.binary_codes import Table
from latently.distributions.collapsed_features import CollapsedFeatures, Draw, Patterned
from latently.distributions.correlated_codes import Correlated
from latently.distributions.truncated_normal import expectation_of
from latently.factorization import IBPIBP, INBMT, MEIBP, LinearGaussianIBP
from tests.oracles import buffet as oracle

N, D = 11, 4  # of an odd number no half has a feature, which would be a tie


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def shapes():
    """(4, 36) shapes of Griffiths & Ghahramani's kind, one in each corner of 6 x 6 pixels."""
    F = np.zeros((4, 6, 6))
    F[0, 1, :3] = F[0, :3, 1] = 1
    F[1, 0, 3:] = F[1, 2, 3:] = F[1, 1, 3] = F[1, 1, 5] = 1
    F[2, 3, 0] = F[2, 4, :2] = F[2, 5, :3] = 1
    F[3, 3, 3:] = F[3, 4:, 4] = 1
    return F.reshape(4, 36)


def images(n, noise, rng, luminances=(1.0,)):
    codes = rng.integers(2, size=(n, 4))
    X = (codes * rng.choice(luminances, size=codes.shape)) @ shapes()
    return X + noise * rng.standard_normal(X.shape), codes


def small(rng, holes):
    """Rows and starting values that are far from an optimum."""
    Y = rng.integers(2, size=(N, 3)) @ rng.random((3, D)) * 2 + 0.3 * rng.standard_normal((N, D))
    if holes:
        Y[rng.random(Y.shape) < 0.2] = np.nan
        Y[3] = np.nan
    Z = rng.integers(2, size=(N, 4))
    Z[:, 0] = 0
    Z[5, 0] = 1  # of one row alone, which may leave it
    return Y, Z


# -- priors -------------------------------------------------------------------------------------------


def histories(n):
    return [np.array(h) for h in product((0, 1), repeat=n) if any(h)]


def test_the_classes_have_probabilities_that_sum_to_one():
    buffet, total = IndianBuffet(0.8), 0.0
    for K in range(11):
        for columns in combinations_with_replacement(histories(2), K):
            Z = np.array(columns).T.reshape(2, K)
            total += math.exp(buffet.log_prob(Z))
            assert buffet.log_prob(Z) == pytest.approx(oracle.log_buffet_of_class(Z, 0.8), abs=1e-12)
            assert buffet.log_prob_ordered(Z) == pytest.approx(oracle.log_ordered(Z, 0.8), abs=1e-12)
    assert total == pytest.approx(1.0, abs=1e-7)


def test_the_finite_model_sums_to_one_and_tends_to_the_infinite_one():
    finite = IndianBuffet(1.3, n_features=3)
    every = [np.reshape(bits, (2, 3)) for bits in product((0, 1), repeat=6)]
    assert sum(math.exp(finite.log_prob(Z)) for Z in every) == pytest.approx(1.0)
    Z = np.array([[1, 1, 0], [1, 1, 1]])
    wide = np.hstack([Z, np.zeros((2, 9997), dtype=int)])
    orders = gammaln(10001) - gammaln(9998) - gammaln(3)  # of the class
    assert IndianBuffet(1.3, n_features=10000).log_prob(wide) + orders == pytest.approx(
        IndianBuffet(1.3).log_prob(Z), abs=2e-3
    )


def test_draws_follow_the_prior(rng):
    buffet = IndianBuffet(1.5)
    draws = [buffet.sample(3, rng) for _ in range(8000)]
    assert all(set(np.unique(Z)) <= {0, 1} and Z.any(axis=0).all() for Z in draws)
    count = np.array([Z.shape[1] for Z in draws])
    assert count.mean() == pytest.approx(1.5 * (1 + 1 / 2 + 1 / 3), abs=5 * count.std() / math.sqrt(8000))
    # the chance of one class
    Z = np.array([[1], [1], [0]])
    share = np.mean([one.shape == Z.shape and (one == Z).all() for one in draws])
    assert share == pytest.approx(math.exp(buffet.log_prob(Z)), abs=5 * math.sqrt(share / 8000))
    assert IndianBuffet(2.0, n_features=4).sample(5, rng).shape == (5, 4)


def test_bad_codes_and_concentrations_are_refused():
    for bad in (np.array([[0.5]]), np.array([[2]]), np.zeros(3), np.zeros((0, 2)), [["a"]]):
        with pytest.raises(ValueError, match="Z must"):
            IndianBuffet(1.0).log_prob(bad)
    for bad in (-1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="concentration"):
            IndianBuffet(bad)
    with pytest.raises(ValueError, match="n_features=2"):
        IndianBuffet(1.0, n_features=2).log_prob(np.ones((3, 3)))
    assert IndianBuffet(0.0).log_prob(np.zeros((3, 2))) == 0.0


def test_left_ordered_form(rng):
    Z = rng.integers(2, size=(5, 7))
    ordered = left_ordered_form(Z)
    numbers = 2 ** np.arange(5)[::-1] @ ordered
    assert np.all(np.diff(numbers) <= 0)
    np.testing.assert_array_equal(left_ordered_form(Z[:, rng.permutation(7)]), ordered)
    assert left_ordered_form(np.zeros((3, 0))).shape == (3, 0)


# -- truncated normal ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("mu", "s"), [(0.7, 1.1), (-2.0, 0.7), (0.0, 1.0), (3.0, 0.5), (-9.0, 1.0)])
def test_moments_of_the_truncated_normal(mu, s, rng):
    q, slow = TruncatedNormal(mu, s), oracle.Truncated(mu, s)
    assert q.expectation == pytest.approx(slow.mean, rel=1e-9)
    assert expectation_of(np.float64(mu), np.float64(s)) == pytest.approx(slow.mean, rel=1e-9)
    assert q.second_moment == pytest.approx(slow.square, rel=1e-9)
    assert q.variance == pytest.approx(slow.variance, rel=1e-6)
    assert q.entropy == pytest.approx(slow.entropy, rel=1e-8, abs=1e-9)
    w = q.sample(40_000, rng)
    assert w.min() >= 0 and w.mean() == pytest.approx(slow.mean, abs=5 * w.std() / 200)
    assert -q.log_prob(w).mean() == pytest.approx(slow.entropy, abs=5 * q.log_prob(w).std() / 200)
    assert q.log_prob(-1.0) == -np.inf


@pytest.mark.parametrize("a", [30.0, 1e3, 1e8, 1e100])
def test_far_in_the_tail_it_is_exponential(a):
    """Moments of N(-a, 1) above 0 tend to those of an exponential of rate a: w = e / a (1 - 1 / a^2 ...)."""
    q = TruncatedNormal(np.array([-a]), 1.0)
    slack = 10 / a**2 + 1e-9
    assert q.expectation[0] * a == pytest.approx(1.0, rel=slack)
    assert expectation_of(np.array([-a]), np.array([1.0]))[0] * a == pytest.approx(1.0, rel=slack)
    assert q.second_moment[0] * a * a == pytest.approx(2.0, rel=slack)
    assert q.variance[0] * a * a == pytest.approx(1.0, rel=slack)
    assert q.entropy[0] == pytest.approx(1.0 - math.log(a), abs=slack)
    assert q.log_prob(np.array([2 / a]))[0] == pytest.approx(math.log(a) - 2.0, abs=slack)
    assert np.all(q.sample(100, np.random.default_rng(0)) > 0)


def test_far_inside_it_is_the_normal():
    q = TruncatedNormal(1e6, 2.0)
    assert (q.expectation, q.variance) == (1e6, 4.0)
    assert q.entropy == pytest.approx(0.5 * math.log(2 * math.pi * math.e * 4))
    with pytest.raises(ValueError, match="scale"):
        TruncatedNormal(0.0, 0.0)


# -- sweeps from given values -------------------------------------------------------------------------


@pytest.mark.parametrize("holes", [False, True], ids=["", "holes"])
@pytest.mark.parametrize("seed", range(3))
def test_sweeps_of_meibp_are_those_of_the_oracle(seed, holes):
    rng = np.random.default_rng(seed)
    Y, Z = small(rng, holes)
    location, scale = rng.standard_normal((4, D)), 0.2 + rng.random((4, D))
    slow = oracle.Blocks(Y, Z, np.eye(D), location, scale, 0.7, 1.0, 0.4, 0.9, free=False)
    model = MEIBP(
        codes_init=Z,
        location_init=location,
        scale_init=scale,
        concentration_init=0.7,
        noise_init=0.4,
        component_variance_init=0.9,
        moves=False,
        tol=0,
    )
    np.testing.assert_allclose(model.set_params(max_iter=0).fit(Y).bound_, slow.bound(), rtol=1e-9)
    history = []
    for _ in range(3):
        slow.sweep()
        history.append(slow.objective())
    model.set_params(max_iter=3).fit(Y)
    np.testing.assert_array_equal(model.codes_, slow.Z)
    np.testing.assert_allclose(model.location_, slow.mu, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.scale_, slow.s, rtol=1e-9)
    np.testing.assert_allclose(model.components_, slow.moments()[0], rtol=1e-7)
    np.testing.assert_allclose(model.history_, history, rtol=1e-9)
    np.testing.assert_allclose(model.bound_, slow.bound(), rtol=1e-9)
    hyper = model.concentration_, model.noise_variance_, model.component_variance_
    np.testing.assert_allclose(hyper, (slow.alpha, slow.noise, slow.spread), rtol=1e-9)


@pytest.mark.parametrize("holes", [False, True], ids=["", "holes"])
@pytest.mark.parametrize("seed", range(3))
def test_sweeps_of_inbmt_are_those_of_the_oracle(seed, holes):
    rng = np.random.default_rng(seed)
    Y, Z = small(rng, holes)
    C = rng.integers(2, size=(D, 3))
    C[0] = 1
    location, scale = rng.standard_normal((4, 3)), 0.2 + rng.random((4, 3))
    slow = oracle.Blocks(Y, Z, C, location, scale, 0.7, 1.2, 0.4, 0.9)
    model = INBMT(
        row_codes_init=Z,
        column_codes_init=C,
        location_init=location,
        scale_init=scale,
        concentration_init=0.7,
        column_concentration_init=1.2,
        noise_init=0.4,
        core_variance_init=0.9,
        moves=False,
        tol=0,
    )
    np.testing.assert_allclose(model.set_params(max_iter=0).fit(Y).bound_, slow.bound(), rtol=1e-9)
    history = []
    for _ in range(2):
        slow.sweep()
        history.append(slow.objective())
    model.set_params(max_iter=2).fit(Y)
    np.testing.assert_array_equal(model.row_codes_, slow.Z)
    np.testing.assert_array_equal(model.column_codes_, slow.C)
    np.testing.assert_allclose(model.location_, slow.mu, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.history_, history, rtol=1e-9)
    np.testing.assert_allclose(model.column_concentration_, slow.lam, rtol=1e-9)
    np.testing.assert_allclose(model.components_, slow.moments()[0] @ slow.C.T, rtol=1e-7)


def test_kept_hyperparameters_stay(rng):
    Y, Z = small(rng, False)
    kept = {
        "noise_init": 0.3,
        "concentration_init": 0.6,
        "learn_hyperparameters": False,
        "max_iter": 3,
        "tol": 0,
    }
    model = MEIBP(codes_init=Z, component_variance_init=0.5, **kept).fit(Y)
    found = model.noise_variance_, model.concentration_, model.component_variance_
    assert tuple(map(float, found)) == (0.3, 0.6, 0.5)
    model = IBPIBP(rate_init=0.5, random_state=0, **kept).fit(Y)
    assert (float(model.noise_variance_), float(model.rate_)) == (0.3, 0.5)


# -- correlated IBP-IBP -------------------------------------------------------------------------------


def correlated(rng, holes):
    Y, _ = small(rng, holes)
    U, V = rng.integers(2, size=(N, 3)), rng.integers(2, size=(3, 4))
    V[0] = 1
    U[:, 0] |= ~U.any(axis=1)
    Z = rng.integers(2, size=(N, 4)) * (U @ V > 0)
    return Y, Z, U, V, rng.standard_normal((4, D)), 0.2 + rng.random((4, D))


@pytest.mark.parametrize("holes", [False, True], ids=["", "holes"])
@pytest.mark.parametrize("seed", range(3))
def test_every_update_of_the_correlated_model_gains_what_the_objective_says(seed, holes):
    """Every bit is at whatever is better when its update has passed, by the oracle's bound."""
    rng = np.random.default_rng(seed)
    Y, Z, U, V, mu, s = correlated(rng, holes)
    model = IBPIBP(random_state=0)._model(Table.of(Y))
    floats = (a.astype(float) for a in (Z, U, V))
    state = Correlated(*floats, mu, s, 0.8, 1.1, 0.4, 0.9, Z.T @ np.nan_to_num(Y))

    def slow(state):
        arrays = state.codes, state.categories, state.links, state.location, state.scale
        alphas = state.category_concentration, state.feature_concentration
        return oracle.correlated_bound(Y, *arrays, alphas, state.noise, state.rate, 0.05)

    assert model.bound(state) == pytest.approx(slow(state), rel=1e-8)
    J = model.objective(state)
    for move in (
        *(model.with_codes, model.with_categories, model.with_links),
        *(model.with_weights, model.with_modes),
    ):
        state = move(state)
        assert model.bound(state) == pytest.approx(slow(state), rel=1e-8)
        assert model.objective(state) >= J - 1e-9 * abs(J)
        J = model.objective(state)


def test_one_visit_of_the_correlated_model_bit_by_bit(rng):
    Y, Z, U, V, mu, s = correlated(rng, False)
    model = IBPIBP()._model(Table.of(Y))
    arrays = [a.astype(float) for a in (Z, U, V)]
    rest = (mu, s, 0.8, 1.1, 0.4, 0.9, Z.T @ Y)
    bound = lambda Z, U, V: oracle.correlated_bound(Y, Z, U, V, mu, s, (0.8, 1.1), 0.4, 0.9, 0.05)
    moves = model.with_codes, model.with_categories, model.with_links
    for which, (move, name) in enumerate(zip(moves, ("codes", "categories", "links"), strict=True)):
        expected = [a.copy() for a in arrays]
        A = expected[which]
        for index in np.ndindex(*A.shape):
            A[index] = 1
            on = bound(*expected)
            A[index] = 0
            A[index] = float(on > bound(*expected))
        found = getattr(move(Correlated(*arrays, *rest)), name)
        np.testing.assert_array_equal(found, A[:, A.any(axis=0)] if which else A, err_msg=name)


# -- the sampler --------------------------------------------------------------------------------------


def test_the_collapsed_likelihood_is_that_of_gaussians(rng):
    Y, Z = small(rng, True)
    model = LinearGaussianIBP.from_parameters(
        codes=Z, components=np.zeros((4, D)), concentration=0.8, noise_variance=0.3, component_variance=0.7
    )
    found = model.log_joint(Y, Z)
    assert found.likelihood == pytest.approx(oracle.collapsed_log_likelihood(Y, Z, 0.3, 0.7), rel=1e-9)
    assert found.prior == pytest.approx(oracle.log_buffet_of_class(Z, 0.8), rel=1e-9)
    assert found.total == found.likelihood + found.prior
    with pytest.raises(ValueError, match="codes"):
        model.log_joint(Y, Z[:3])


@pytest.mark.parametrize("holes", [False, True], ids=["", "holes"])
def test_the_chain_has_the_posterior_by_enumeration(holes):
    """Of the number of features and of the codes of the first row, N = 3."""
    rng = np.random.default_rng(0)
    X = np.array([[1.0, 0.5], [-0.8, 0.2], [0.9, 0.7]])
    if holes:
        X[1, 1] = np.nan
    model = CollapsedFeatures(
        Patterned.of(Table.of(X)), LinearGaussianIBP(learn_hyperparameters=False)._priors((1, 1))
    )
    exact = np.zeros(8)
    for K in range(7):
        for columns in combinations_with_replacement(histories(3), K):
            Z = np.array(columns).T.reshape(3, K).astype(float)
            exact[K] += math.exp(model.log_joint(Draw(Z, 1.0, 0.3, 0.7)))
    draw, n = Draw(np.zeros((3, 0)), 1.0, 0.3, 0.7), 2500
    found = np.zeros(8)
    for _ in range(n):
        draw = model.swept(draw, rng)
        found[min(draw.codes.shape[1], 7)] += 1 / n
    assert 0.5 * np.abs(found - exact / exact.sum()).sum() < 0.05


def test_draws_and_the_best_state_of_the_chain(rng):
    X, codes = images(80, 0.5, rng)
    model = LinearGaussianIBP(max_iter=25, keep=4, random_state=0).fit(X)
    assert len(model.draws_) == 4 and model.draws_[-1].dtype == np.int64
    best = model.log_joint(X, model.codes_).total
    assert best == pytest.approx(model.log_joint_, rel=1e-9) and best >= model.history_.max() - 1e-6
    assert LinearGaussianIBP(max_iter=2, random_state=0).fit(X).draws_ == []
    start = LinearGaussianIBP(codes_init=codes, max_iter=0).fit(X)
    np.testing.assert_array_equal(start.codes_, codes)


# -- learning -----------------------------------------------------------------------------------------


def recovered(found, level=0.5):
    return [any(((w > level) == (shape > 0.5)).all() for w in found) for shape in shapes()]


@pytest.mark.parametrize("estimator", [MEIBP, INBMT, IBPIBP])
def test_all_shapes_are_found(estimator):
    rng = np.random.default_rng(5)
    X, codes = images(300, 0.5, rng)
    model = estimator(random_state=1).fit(X)
    assert model.n_components_ == 4 and all(recovered(model.components_))
    assert np.all(np.diff(model.history_) >= 0)
    order = [int(np.argmax(model.components_ @ shape)) for shape in shapes()]
    assert np.mean(model.predict_codes(X)[:, order] == codes) > 0.99
    if estimator is INBMT:
        assert model.core_.shape == (4, 4)


def test_two_strengths_of_a_shape_share_its_columns():
    X, _ = images(250, 0.4, np.random.default_rng(2), luminances=(1.0, 2.0))
    model = INBMT(random_state=0).fit(X)
    assert model.column_codes_.shape[1] == 4 and all(recovered(model.column_codes_.T))
    assert model.n_components_ == 8


@pytest.mark.parametrize("estimator", [MEIBP, INBMT, IBPIBP, LinearGaussianIBP])
@pytest.mark.parametrize("unit", [1e-2, 1e4, 1e9])
def test_features_are_found_in_any_unit(estimator, unit):
    """Starts in units of one took weights in large units for zero, and found no feature."""
    X, _ = images(150, 0.4, np.random.default_rng(3))
    options = {"max_iter": 5} if estimator is LinearGaussianIBP else {"n_init": 1}
    model = estimator(random_state=0, **options).fit(unit * X)
    assert model.n_components_ == 4 and all(recovered(model.components_ / unit))
    assert model.noise_variance_ == pytest.approx((0.4 * unit) ** 2, rel=0.1)


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")  # where squares underflow
def test_rows_too_small_for_the_prior_of_the_noise_are_told():
    X, _ = images(100, 0.4, np.random.default_rng(3))
    with pytest.warns(UserWarning, match="scale of noise_prior, 0.001") as told:
        assert MEIBP(random_state=0, n_init=1).fit(1e-5 * X).n_components_ == 0
    suggested = float(str(told[0].message).rpartition(", ")[2].rstrip(")"))
    model = MEIBP(noise_prior=(1, suggested), random_state=0, n_init=1).fit(1e-5 * X)
    assert all(recovered(1e5 * model.components_))
    with pytest.warns(UserWarning, match="multiply X by a constant$"):
        MEIBP(random_state=0, n_init=1).fit(1e-200 * X)


@pytest.mark.parametrize("estimator", [MEIBP, INBMT, IBPIBP])
@pytest.mark.parametrize("seed", range(2))
def test_the_objective_of_random_fits_never_falls(estimator, seed):
    rng = np.random.default_rng(seed)
    X = np.abs(rng.standard_normal((40, 3))) @ rng.random((3, 7)) + 0.2 * rng.standard_normal((40, 7))
    X[rng.random(X.shape) < 0.2 * seed] = np.nan
    model = estimator(init_components=5, n_init=1, random_state=seed, max_iter=15, tol=0).fit(X)
    assert len(model.history_) == 15 and np.all(np.diff(model.history_) >= 0)


def test_an_erased_half_comes_back(rng):
    X, codes = images(260, 0.3, rng)
    train, test = X[:200], X[200:].copy()
    test[:, 18:] = np.nan
    truth = codes[200:, :2] @ shapes()[:2]
    for estimator in (MEIBP, INBMT):
        model = estimator(random_state=0).fit(train)
        filled = model.impute(test)
        np.testing.assert_array_equal(filled[:, :18], test[:, :18])
        assert np.abs(model.reconstruct(test)[:, :18] - truth[:, :18]).mean() < 0.1


def test_labels_are_of_the_code_that_explains_most_alone(rng):
    X, _ = images(60, 0.5, rng)
    model = INBMT(random_state=0, n_init=1).fit(X)
    B, labels = model.components_, model.row_labels_
    for n in range(60):
        scores = [
            X[n] @ b - 0.5 * b @ b if z else -np.inf for b, z in zip(B, model.row_codes_[n], strict=True)
        ]
        assert labels[n] == (np.argmax(scores) if model.row_codes_[n].any() else -1)
    of_columns = model.row_codes_ @ model.core_
    for d in range(36):
        scores = of_columns.T @ X[:, d] - 0.5 * (of_columns**2).sum(axis=0)
        own = np.where(model.column_codes_[d] > 0, scores, -np.inf)
        assert model.column_labels_[d] == (np.argmax(own) if model.column_codes_[d].any() else -1)


def test_codes_of_a_row_cannot_be_improved_by_one_bit(rng):
    X, _ = images(80, 0.5, rng)
    model = MEIBP(random_state=0, n_init=1).fit(X)
    m = model.codes_.sum(axis=0)
    prior = np.log(m) - np.log(len(X) - m)
    V = TruncatedNormal(model.location_, model.scale_).variance.sum(axis=1)
    value = lambda x, z: (
        -0.5 * (np.sum((x - z @ model.components_) ** 2) + z @ V) / model.noise_variance_ + z @ prior
    )
    for x, z in zip(X, model.predict_codes(X), strict=True):
        for k in range(len(z)):
            other = z.copy()
            other[k] = 1 - z[k]
            assert value(x, z) >= value(x, other)


def test_a_code_and_the_category_that_gives_it_are_decided_together(rng):
    """Of features without common columns and one category each: the optimum is known for every bit."""
    B, Z = np.kron(np.eye(3), [1.0, 2.0]), 1 * (rng.random((40, 3)) < 0.2)  # rare, which tells against them
    model = IBPIBP.from_parameters(
        codes=Z, categories=Z, category_features=np.eye(3), location=B, scale=np.full(B.shape, 1e-9),
        category_concentration=1.0, feature_concentration=1.0, noise_variance=2.0, rate=1.0,
    )  # fmt: skip
    X = Z @ B + rng.standard_normal((40, 6))
    gains = (X @ B.T - 0.5 * np.sum(B**2, axis=1)) / 2.0
    m = Z.sum(axis=0)
    on = gains + np.log1p(-model.miss_probability) + np.log(m) - np.log(40 - m) > 0
    np.testing.assert_array_equal(model.predict_codes(X), on)


def test_nothing_but_noise_has_no_features(rng):
    for estimator in (MEIBP, INBMT, IBPIBP):
        model = estimator(random_state=0, n_init=1).fit(-1.0 - rng.random((20, 4)))
        assert model.components_.shape == (0, 4)
        assert model.predict_codes(np.ones((3, 4))).shape == (3, 0)
        np.testing.assert_array_equal(model.reconstruct(np.ones((3, 4))), np.zeros((3, 4)))


# -- bad input ----------------------------------------------------------------------------------------


def test_codes_that_are_none_and_starts_without_codes_are_refused(rng):
    X = rng.random((6, 4))
    for bad in (np.full((6, 2), 0.5), np.zeros((5, 2)), np.zeros(6)):
        with pytest.raises(ValueError, match="codes_init"):
            MEIBP(codes_init=bad).fit(X)
        with pytest.raises(ValueError, match="row_codes_init"):
            INBMT(row_codes_init=bad, column_codes_init=np.ones((4, 1))).fit(X)
    with pytest.raises(ValueError, match="needs codes_init"):
        MEIBP(location_init=np.ones((1, 4))).fit(X)
    with pytest.raises(ValueError, match="needs row_codes_init and column_codes_init"):
        INBMT(row_codes_init=np.ones((6, 1))).fit(X)
    with pytest.raises(TypeError, match="sample_weight"):
        MEIBP().fit(X, sample_weight=np.ones(6))
    with pytest.raises(ValueError, match="drop it"):
        MEIBP().fit(np.column_stack([X, np.full(6, np.nan)]))


@pytest.mark.parametrize("bad", [1.0, (1,), (0.5, 1), (1, 0), "ab", (1, np.nan), None])
def test_priors_that_are_none_are_refused(bad, rng):
    with pytest.raises(ValueError, match="concentration_prior"):
        MEIBP(concentration_prior=bad).fit(rng.random((6, 4)))
