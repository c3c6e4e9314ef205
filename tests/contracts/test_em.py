"""Fits: every EM step is the oracle's, and what must not matter does not."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latently.mixture import MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture
from tests.contracts.models import ALL, BY_EM, BY_NAME, FA, GAUSSIAN, MIXED, TWINS, assert_same, rows
from tests.oracles import mixtures as oracle

every_model = pytest.mark.parametrize("model", ALL, ids=str)
every_em_model = pytest.mark.parametrize("model", BY_EM, ids=str)
every_mixture = pytest.mark.parametrize("model", [m for m in BY_EM if not m.one_component], ids=str)
weighted_or_not = pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])

EXACT = {
    "noise_floor": 0.0,
    "prior": None,
    "tol": 0.0,
}  # api.md: with these, max_iter=n runs exactly n EM steps
CAN_BE_WIDE = [m for m in BY_EM if m.name not in ("GMM-full", "GMM-tied")]  # N <= D without a floor


def problem(model, seed, N=30, D=4, K=2, q=2):
    """Rows, row weights and starting values wide enough that no component takes too few rows."""
    rng = np.random.default_rng(seed)
    X = rows(rng, N, D)
    weight = rng.uniform(0.2, 3.0, size=N)
    start = model.narrower(model.example(rng, D, K, q), 6.0)
    means = X[rng.choice(N, size=len(start["weights"]), replace=False)]
    return X, weight, model.centred(start, means)


def likelihood(model, X, theta, weight=None):
    """Log-likelihood per row by the oracle."""
    total = len(X) if weight is None else weight.sum()
    return oracle.log_likelihood(X, *model.dense(theta), sample_weight=weight) / total


# -- steps ------------------------------------------------------------------------------------------------


def check_steps(model, X, weight, start, n_steps, rtol=1e-8):
    expected, history = start, [likelihood(model, X, start, weight)]
    for _ in range(n_steps):
        expected = model.step(X, expected, weight)
        history.append(likelihood(model, X, expected, weight))
    estimator = model.started(start, max_iter=n_steps, **EXACT).fit(X, sample_weight=weight)
    assert_same(model.theta(estimator), model.normal_form(expected), rtol=rtol)
    assert estimator.n_iter_ == n_steps
    assert not estimator.converged_
    assert estimator.history_.shape == (n_steps + 1,)
    np.testing.assert_allclose(estimator.history_, history, rtol=1e-9)
    score = estimator.score(X, sample_weight=weight)
    assert estimator.history_[-1] == pytest.approx(score, rel=1e-11)


@pytest.mark.parametrize("model", [*BY_EM, *TWINS], ids=str)
@weighted_or_not
@pytest.mark.parametrize("n_steps", [0, 1, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_exactly_n_steps(model, weighted, n_steps, seed):
    X, weight, start = problem(model, seed)
    check_steps(model, X, weight if weighted else None, start, n_steps)


@pytest.mark.parametrize("model", CAN_BE_WIDE, ids=str)
@weighted_or_not
@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize(("N", "D"), [(6, 9), (7, 7)])
def test_exactly_n_steps_with_few_rows(model, weighted, n_steps, N, D):
    X, weight, start = problem(model, 5, N=N, D=D, K=2, q=1)
    start = model.narrower(model.centred(start, 0.5 * model.dense(start)[1]), 5.0)
    check_steps(model, X, weight if weighted else None, start, n_steps)


@every_em_model
@pytest.mark.parametrize("seed", range(4))
def test_steps_of_all_sizes(model, seed):
    rng = np.random.default_rng(seed + 50)
    D, K = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    X, weight, start = problem(model, seed, N=120, D=D, K=K, q=int(rng.integers(0, D + 1)))
    check_steps(model, X, weight, start, 2)


@every_em_model
def test_no_step_is_taken_beyond_the_last(model):
    # too few rows for a covariance matrix: a step would be an error, but none is asked for
    X, _, start = problem(model, 3, N=4, D=6, K=1, q=1)
    estimator = model.started(start, max_iter=0, **EXACT).fit(X)
    assert_same(model.theta(estimator), model.normal_form(start))
    np.testing.assert_allclose(estimator.history_, [likelihood(model, X, start)])


@every_em_model
@weighted_or_not
@pytest.mark.parametrize("noise_floor", [0.2, 0.5])
def test_step_at_the_floor_is_the_constrained_maximiser(model, weighted, noise_floor):
    rng = np.random.default_rng(4)
    axis = np.array([1.0, -1.0, 2.0, 0.7])  # three narrow clusters in a row
    labels = np.arange(45) % 3
    X = 3.0 * np.outer(labels - 1, axis) + rng.normal(size=(45, 4)) * [0.1, 0.2, 0.4, 2.5]
    weight = rng.uniform(0.2, 3.0, size=45) if weighted else None
    floor = model.floor(X, noise_floor, weight)
    start = model.example(rng, 4, 3, 1)
    start = model.centred(start, X[: len(start["weights"])])
    if model.is_gaussian:
        start["covs"] = start["covs"] + np.diag(np.full(4, floor.max()))
    else:
        start["noise"] = start["noise"] + floor.max()
        if model.one_component:
            start["loadings"] = 2.5 * axis[None, :, None]
    bounded = start
    for _ in range(2):
        free, bounded = model.step(X, bounded, weight), model.step(X, bounded, weight, floor)
    key = "covs" if model.is_gaussian else "noise"
    assert not np.allclose(free[key], bounded[key])  # the floor does bind
    estimator = model.started(start, max_iter=2, tol=0.0, noise_floor=noise_floor)
    estimator.fit(X, sample_weight=weight)
    assert_same(model.theta(estimator), model.normal_form(bounded))
    assert estimator.history_[-1] == pytest.approx(likelihood(model, X, bounded, weight), rel=1e-10)


@every_em_model
def test_starting_values_below_the_floor_are_raised_to_it(model):
    X, _, start = problem(model, 0)
    if model.is_gaussian:
        start["covs"] = 1e-3 * start["covs"]
        floored = np.array([oracle.floor_full(cov, model.floor(X, 0.5)) for cov in start["covs"]])
        expected = {**start, "covs": floored}
    else:
        start["noise"] = 1e-3 * start["noise"]
        expected = {**start, "noise": np.maximum(start["noise"], model.floor(X, 0.5))}
    estimator = model.started(start, max_iter=0, tol=0.0, noise_floor=0.5).fit(X)
    assert_same(model.theta(estimator), model.normal_form(expected))


@pytest.mark.parametrize("model", [m for m in GAUSSIAN if m.name in ("GMM-full", "GMM-tied")], ids=str)
def test_a_singular_covariance_without_a_floor_is_an_error(model):
    X = np.random.default_rng(0).normal(size=(4, 6))
    with pytest.raises(ValueError, match="noise_floor"):
        model.unfitted(2, max_iter=3, n_init=1, **EXACT).fit(X)
    fitted = model.unfitted(2, max_iter=3, n_init=1, tol=0.0).fit(X)
    assert np.all(np.isfinite(fitted.covariances_))


# -- the likelihood never falls ------------------------------------------------------------------------------


@st.composite
def fits(draw):
    """A model with its settings, rows and row weights."""
    model = BY_NAME[draw(st.sampled_from(sorted(BY_NAME)))]
    D, K = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    N, q = draw(st.integers(max(2, K), 50)), draw(st.integers(0, D))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rows(
        rng, N, D, spread=draw(st.sampled_from([0.0, 2.0, 20.0])), width=draw(st.sampled_from([0.01, 1.0]))
    )
    if draw(st.booleans()):  # many rows twice, few distinct ones
        X = X[rng.integers(max(1, N // 3), size=N)]
    if draw(st.booleans()):
        X = np.round(X)
    X = X * 10.0 ** rng.uniform(-3, 3, size=D)
    X = X + draw(st.sampled_from([0.0, 1.0, 1e4])) * rng.normal(size=D)
    weight = rng.uniform(0.1, 5.0, size=N) if draw(st.booleans()) else None
    if weight is not None and draw(st.booleans()):
        weight[rng.random(N) < 0.3] = 0.0
        weight[:K] = np.maximum(weight[:K], 1.0)
    chosen = {
        "init": draw(st.sampled_from(["kmeans", "k-means++", "random"])),
        "noise_floor": draw(st.sampled_from([1e-6, 1e-6, 1e-3, 1e-9])),
        "n_init": draw(st.integers(1, 3)),
        "random_state": draw(st.integers(0, 100)),
        "prior": draw(st.sampled_from(["auto", None])),
    }
    return model, K, q, chosen, X, weight


def check_fit(model, K, q, chosen, X, weight, max_iter):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X has constant features", UserWarning)
        estimator = model.unfitted(K, q, max_iter=max_iter, tol=0.0, **chosen).fit(X, sample_weight=weight)
    for name, array in model.theta(estimator).items():
        assert np.all(np.isfinite(array)), name
    history = estimator.history_
    assert np.all(np.isfinite(history))
    fall = -np.min(np.diff(history), initial=0.0)
    # 32 roundings of quadratic forms, which are the larger the smaller the noise may be
    assert fall <= 32 * np.finfo(float).eps * X.shape[1] / chosen["noise_floor"] + 1e-9
    score = estimator.score(X, sample_weight=weight)
    if chosen["prior"] is None:
        assert score == pytest.approx(history[-1], rel=1e-5, abs=1e-5)
    assert score >= history[-1] - 1e-5 * max(1.0, abs(score))  # the log prior is at most zero
    assert np.all(np.isfinite(estimator.predict_proba(X)))


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(fits())
def test_likelihood_never_falls(fit):
    check_fit(*fit, max_iter=25)


@pytest.mark.slow
@settings(max_examples=2000, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
@given(fits())
def test_likelihood_never_falls_in_thousands_of_fits(fit):
    check_fit(*fit, max_iter=60)


# -- closed form, and models that are the same -------------------------------------------------------------


@weighted_or_not
@pytest.mark.parametrize(
    ("N", "D", "q"), [(30, 5, 0), (30, 5, 2), (30, 5, 4), (6, 9, 3), (30, 1, 0), (7, 7, 4)]
)
def test_ppca_is_the_closed_form(weighted, N, D, q):
    rng = np.random.default_rng(N + D + q)
    X = rows(rng, N, D)
    weight = rng.uniform(0.2, 3.0, size=N) if weighted else None
    fitted = PPCA(q, noise_floor=0.0, prior=None).fit(X, sample_weight=weight)
    mean, loadings, noise = oracle.ppca(X, q, weight)
    np.testing.assert_allclose(fitted.mean_, mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(fitted.noise_variance_, noise, rtol=1e-9)
    np.testing.assert_allclose(fitted.covariance_, loadings @ loadings.T + noise * np.eye(D), atol=1e-9)
    largest = np.argmax(np.abs(fitted.loadings_), axis=0)
    assert np.all(fitted.loadings_[largest, np.arange(q)] >= 0)
    lengths = np.linalg.norm(fitted.loadings_, axis=0)
    assert np.all(np.diff(lengths) <= 1e-12)
    if N > D:
        total = N if weight is None else weight.sum()
        best = oracle.ppca_max_log_likelihood(X, q, weight) / total
        assert fitted.score(X, sample_weight=weight) == pytest.approx(best, rel=1e-10)
    assert fitted.history_[-1] == pytest.approx(fitted.score(X, sample_weight=weight), rel=1e-11)


def test_ppca_with_as_many_factors_as_features_is_the_covariance():
    X = rows(np.random.default_rng(0), 30, 4)
    np.testing.assert_allclose(PPCA(4, prior=None).fit(X).covariance_, np.cov(X.T, bias=True), atol=1e-10)


def test_ppca_has_the_history_it_documents():
    fitted = PPCA(1).fit(rows(np.random.default_rng(0), 30, 4))
    assert fitted.history_.shape == (1,) and fitted.n_iter_ == 1 and fitted.converged_


@pytest.mark.parametrize("noise_floor", [0.1, 0.5])
def test_ppca_at_the_floor_is_the_constrained_maximum(noise_floor):
    X = rows(np.random.default_rng(2), 40, 4)
    fitted = PPCA(2, noise_floor=noise_floor, prior=None).fit(X)
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    noise = max(values[:2].mean(), noise_floor * values.mean())
    values[:2] = noise
    expected = (vectors * np.maximum(values, noise)) @ vectors.T
    np.testing.assert_allclose(fitted.noise_variance_, noise)
    np.testing.assert_allclose(fitted.covariance_, expected, atol=1e-10)


@pytest.mark.parametrize("q", [1, 3])
def test_no_em_run_beats_ppca(q):
    rng = np.random.default_rng(q)
    X = rows(rng, 40, 5)
    best = PPCA(q, noise_floor=0.0, prior=None).fit(X)
    for size in (0.01, 0.3, 3.0):
        start = {
            "weights_init": [1.0],
            "means_init": best.mean_ + size * rng.normal(size=5),
            "loadings_init": best.loadings_ + size * rng.normal(size=(5, q)),
            "noise_init": best.noise_variance_ * np.exp(size * rng.normal()),
        }
        run = MPPCA(1, q, **start, max_iter=300, **EXACT).fit(X)
        assert run.history_.max() <= best.history_[-1] + 1e-11
        assert run.history_[-1] == pytest.approx(best.history_[-1], abs=1e-3)


@weighted_or_not
@pytest.mark.parametrize(
    ("N", "D", "q"), [(40, 5, 2), (40, 5, 0), (40, 5, 5), (6, 9, 2), (5, 5, 1), (6, 5, 1)]
)
@pytest.mark.parametrize("model", [m for m in MIXED if not m.isotropic], ids=str)
def test_one_component_is_factor_analysis(model, N, D, q, weighted):
    # above N = D factor analysis works from the covariance, the mixture from the rows
    X, weight, start = problem(FA, N, N=N, D=D, q=q)
    weight = weight if weighted else None
    by_covariance = FA.started(start, max_iter=5, **EXACT).fit(X, sample_weight=weight)
    by_rows = model.started(start, max_iter=5, **EXACT).fit(X, sample_weight=weight)
    assert_same(FA.theta(by_covariance), model.theta(by_rows), rtol=1e-9)
    np.testing.assert_allclose(by_covariance.history_, by_rows.history_, rtol=1e-11)


def test_default_starts_of_one_component_agree_too():
    X = rows(np.random.default_rng(0), 60, 5)
    settings = {"max_iter": 20, "tol": 0.0}
    by_covariance, by_rows = FactorAnalysis(2, **settings).fit(X), MFA(1, 2, **settings).fit(X)
    np.testing.assert_allclose(by_covariance.history_, by_rows.history_, rtol=1e-11)


# -- what must not matter ------------------------------------------------------------------------------------

DEFAULT_START = {"max_iter": 15, "tol": 0.0, "random_state": 3}


def fitted(model, X, weight=None, **settings):
    return model.unfitted(3, 2, **{**DEFAULT_START, **settings}).fit(X, sample_weight=weight)


@every_model
def test_all_weights_equal_are_no_weights(model):
    X, _, start = problem(model, 8, N=50, K=3)
    plain, light = (
        model.started(start, max_iter=10, tol=0.0).fit(X, sample_weight=weight)
        for weight in (None, np.full(50, 0.3))
    )
    assert_same(model.theta(plain), model.theta(light))
    np.testing.assert_allclose(plain.history_, light.history_, rtol=1e-11)


@pytest.mark.parametrize("model", [m for m in ALL if m.translation_invariant], ids=str)
@pytest.mark.parametrize("offset", [1e8, -1e8])
def test_an_offset_moves_the_means_only(model, offset):
    X = np.round(rows(np.random.default_rng(10), 50, 4) * 1024) / 1024  # X + offset is exact
    here, there = fitted(model, X), fitted(model, X + offset)
    expected = model.theta(here)
    actual = model.theta(there)
    np.testing.assert_allclose(actual.pop("means") - offset, expected.pop("means"), atol=1e-7)
    assert_same(actual, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(there.history_, here.history_, rtol=1e-8)
    np.testing.assert_allclose(there.score_samples(X + offset), here.score_samples(X), rtol=1e-6, atol=1e-6)


@every_em_model
@pytest.mark.parametrize("exponents", [(3, -5, 0, 11), (-100, 100, 7, 0), (20, 20, 20, 20)], ids=str)
def test_powers_of_two_scale_exactly(model, exponents):
    exponents = np.full(4, exponents[0]) if model.isotropic else np.array(exponents)
    unit = 2.0**exponents
    X, weight, start = problem(model, 11, N=60)
    settings = {"max_iter": 8, "tol": 0.0}
    here = model.started(start, **settings).fit(X, sample_weight=weight)
    there = model.started(model.scaled(start, unit), **settings).fit(X * unit, sample_weight=weight)
    if model.common_loadings:  # orthonormal loadings are others in other units
        here_, there_ = (model.dense(model.theta(estimator)) for estimator in (here, there))
        np.testing.assert_allclose(there_[0], here_[0], rtol=1e-9)
        np.testing.assert_allclose(there_[1] / unit, here_[1], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(there_[2] / unit / unit[:, None], here_[2], rtol=1e-8, atol=1e-9)
    else:
        assert_same(model.theta(there), model.scaled(model.theta(here), unit), rtol=0, atol=0)
    volume = exponents.sum() * np.log(2.0)
    np.testing.assert_allclose(there.history_, here.history_ - volume, rtol=1e-13, atol=1e-13 * abs(volume))


@every_model
def test_a_common_unit_does_not_matter_to_the_starts(model):
    X = rows(np.random.default_rng(12), 60, 4)
    here, there = fitted(model, X), fitted(model, X * 2.0**40)
    means = [model.dense(model.theta(estimator))[1] for estimator in (here, there)]
    digits = (
        1e-6 if model.common_loadings else 1e-8
    )  # races of starts take long strides, which amplify rounding
    np.testing.assert_allclose(means[1] / 2.0**40, means[0], rtol=digits)


# -- starts, restarts and runs ----------------------------------------------------------------------------


@every_em_model
def test_starting_values_that_are_given_are_kept(model):
    X, _, start = problem(model, 15, N=60, K=3)
    expected, starts = model.attributes(model.normal_form(start)), model.starts(start)
    for name, init in zip(expected, starts, strict=True):
        needed = {"loadings_init", init} if init.startswith("latent") else {init}  # say what the factors mean
        given = {name: starts[name] for name in needed}
        estimator = model.unfitted(3, 2, **given, max_iter=0, n_init=1, tol=0.0).fit(X)
        kept = getattr(estimator, f"{name}_")
        np.testing.assert_allclose(kept, expected[name], rtol=1e-12, atol=1e-14, err_msg=name)
        assert all(np.all(np.isfinite(array)) for array in model.theta(estimator).values())
        run = estimator.set_params(max_iter=5, n_init=3).fit(X)
        assert run.history_[-1] >= run.history_[0]


@every_em_model
def test_starting_values_broadcast(model):
    X, _, start = problem(model, 16)
    K, D, q = model.shape(start)
    start["weights"] = np.full(K, 1 / K)
    short = model.starts(start)
    short.pop("weights_init", None)
    if not model.one_component:
        short["weights_init"] = 1 / K
    if model.is_gaussian:
        start["covs"] = np.broadcast_to(2.0 * np.eye(D), (K, D, D))
        full_matrix = model.options["covariance_type"] in ("full", "tied")
        short["covariances_init"] = 2.0 * np.eye(D) if full_matrix else 2.0
    else:
        start["noise"] = np.full(start["noise"].shape, 0.5)
        short["noise_init"] = 0.5
    if model.common_loadings:
        start["latent_covs"] = np.broadcast_to(2.0 * np.eye(q), (K, q, q))
        short["latent_covariances_init"] = 2.0 * np.eye(q)
    brief = model.unfitted(K, q, **short, max_iter=2, accelerate=None, **EXACT).fit(X)
    assert_same(
        model.theta(brief), model.theta(model.started(start, max_iter=2, **EXACT).fit(X)), rtol=0, atol=0
    )


@every_mixture
def test_the_best_start_is_carried_on(model):
    X = rows(np.random.default_rng(19), 80, 4, spread=4.0)
    better = []
    for seed in range(4):
        settings = {"init": "random", "random_state": seed, "tol": 0.0}
        one = model.unfitted(3, 1, n_init=1, max_iter=4, accelerate=None, **settings).fit(X)
        ends = [model.unfitted(3, 1, n_init=n, max_iter=0, **settings).fit(X).history_[0] for n in (2, 5)]
        assert min(ends) >= one.history_[-1] - 1e-12  # the first start is the same one
        better.append(ends[-1] > one.history_[-1] + 1e-6)
    assert any(better)


# -- float32 ------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("seed", range(4))
def test_float32_scores(model, seed):
    rng = np.random.default_rng(seed)
    D, K = int(rng.integers(2, 30)), int(rng.integers(1, 5))
    theta = model.example(rng, D, K, int(rng.integers(0, min(D, 6))))
    known = model.known(theta)
    X, _ = known.sample(300, random_state=seed)
    double = known.score_samples(X)
    single = known.set_params(dtype="float32").score_samples(X)
    assert single.dtype == np.float64
    assert abs(single.mean() - double.mean()) < 1e-4
    if model.shape(theta)[2]:  # wide products are there to be narrowed
        assert not np.array_equal(single, double)


@every_model
def test_float32_fits(model):
    X, weight, start = problem(model, 22, N=300, D=6, K=3)
    X, start = X + 100.0, model.centred(start, model.dense(start)[1] + 100.0)
    double, single = (
        model.started(start, max_iter=5, tol=0.0, dtype=dtype).fit(X, sample_weight=weight)
        for dtype in ("float64", "float32")
    )
    np.testing.assert_allclose(single.history_, double.history_, atol=1e-4)
    assert all(array.dtype == np.float64 for array in model.theta(single).values())
    means = [model.dense(model.theta(estimator))[1] for estimator in (single, double)]
    np.testing.assert_allclose(means[0], means[1], rtol=1e-4)
    exact = single.set_params(dtype="float64").score(X, sample_weight=weight)
    assert exact == pytest.approx(double.history_[-1], abs=1e-4)


def test_gaussian_mixtures_are_factor_models_without_factors():
    X = rows(np.random.default_rng(23), 60, 4)
    for kind, twin in (("diag", MFA), ("spherical", MPPCA)):
        mixture = GaussianMixture(3, covariance_type=kind, **DEFAULT_START).fit(X)
        factors = twin(3, 0, **DEFAULT_START).fit(X)
        np.testing.assert_allclose(mixture.history_, factors.history_, rtol=1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_isotropic_mixtures_of_factor_analysers_are_those_of_principal_components(shared):
    X = rows(np.random.default_rng(23), 60, 4)
    settings = {**DEFAULT_START, "shared_noise": shared}
    factors = MFA(3, 2, noise="isotropic", **settings).fit(X)
    principal = MPPCA(3, 2, **settings).fit(X)
    for name in ("history_", "weights_", "means_", "loadings_", "noise_variance_"):
        np.testing.assert_array_equal(getattr(factors, name), getattr(principal, name))
