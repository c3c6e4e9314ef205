"""Mixtures with heavy tails and with noise: densities, EM steps, draws, imputations; slow references."""

from dataclasses import replace

import array_api_strict
import numpy as np
import pytest
from scipy import special, stats

import latently
from latently.backend.namespace import to_numpy
from latently.distributions.heavy_tails import degrees_for
from latently.estimators.messages import DegenerateWarning
from latently.mixture import MCFA, MFA, MPPCA, GaussianMixture
from tests.contracts.models import COMMON, GAUSSIAN, MIXED, assert_same, rows
from tests.oracles import missing, robust

MODELS = [*GAUSSIAN, *MIXED, COMMON]
ONE_OF_EACH = [GAUSSIAN[0], MIXED[0], MIXED[2], COMMON]
WAYS = {"t": (True, False), "noise": (False, True), "both": (True, True)}
every_way = pytest.mark.parametrize("way", WAYS)
one_of_each = pytest.mark.parametrize("model", ONE_OF_EACH, ids=str)


def example(model, way, seed=0, D=3, K=2, q=1, N=14):
    """Parameters of the oracle, its extras (degrees, noise), and rows of which some entries are missing."""
    rng = np.random.default_rng(seed)
    theta, X = model.example(rng, D, K, q), rows(rng, N, D)
    X[0] *= 6.0  # an outlier
    heavy, noisy = WAYS[way]
    degrees = rng.uniform(1.5, 12.0, K) if heavy else None
    noise = None
    if noisy:
        noise = 0.05, np.array([X.min(axis=0), X.max(axis=0)])
        theta = {**theta, "weights": 0.95 * theta["weights"]}
    holes = rng.random(X.shape) < 0.25
    holes[holes.all(axis=1), 0] = False
    holes[[np.nanargmin(X[:, d]) for d in range(D)] + [np.nanargmax(X[:, d]) for d in range(D)]] = False
    return theta, (degrees, noise), X, np.where(holes, np.nan, X)


def extras(degrees, noise, suffix=""):
    given = {} if degrees is None else {f"degrees_of_freedom{suffix}": degrees}
    if noise is not None:
        given |= {f"noise_weight{suffix}": noise[0]}
    return given


def known(model, theta, degrees, noise):
    given = extras(degrees, noise) | ({} if noise is None else {"noise_box": noise[1]})
    return model.cls.from_parameters(**model.attributes(theta), **given, **model.options)


def options(way):
    heavy, noisy = WAYS[way]
    return {"tails": "t" if heavy else "normal", "noise_component": noisy}


def oracle_step(model, X, theta, degrees, noise, weight):
    if model.is_gaussian:
        kind = model.options["covariance_type"]
        return robust.gaussian_step(X, *model.dense(theta), kind, degrees, noise, weight)
    if model.common_loadings:
        return robust.mcfa_step(X, *theta.values(), degrees, noise, weight)
    return robust.mfa_step(X, *theta.values(), model.isotropic, model.shared, degrees, noise, weight)


@every_way
@one_of_each
def test_densities_are_those_of_scipy(model, way):
    theta, extra, X, holed = example(model, way)
    fitted = known(model, theta, *extra)
    for some in (X, holed):
        joint = robust.log_joint(some, *model.dense(theta), *extra)
        expected = special.logsumexp(joint, axis=1)
        np.testing.assert_allclose(fitted.score_samples(some), expected, rtol=1e-10)
        resp = np.exp(joint - expected[:, None])
        np.testing.assert_allclose(fitted.predict_proba(some), resp, rtol=1e-8, atol=1e-12)
        best = np.argmax(resp, axis=1)
        np.testing.assert_array_equal(fitted.predict(some), np.where(best == len(theta["weights"]), -1, best))


@every_way
@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.filterwarnings("ignore::latently.estimators.messages.DegenerateWarning")  # of so few rows
def test_a_step_is_the_oracles(model, way):
    theta, (degrees, noise), X, holed = example(model, way, N=10)
    weight = np.linspace(0.5, 2.0, len(X))
    X = holed if way != "noise" else X  # with noise alone both are the Gaussian steps of other weights
    new, nu, share = oracle_step(model, X, theta, degrees, noise, weight)
    starts = model.starts(theta) | extras(degrees, noise, "_init")
    settings = {"max_iter": 1, "accelerate": None, "noise_floor": 0.0, "prior": None, "tol": 0.0}
    K, _, q = model.shape(theta)
    fitted = model.unfitted(K, q, **starts, **options(way), **settings).fit(X, sample_weight=weight)
    expected = model.normal_form(dict(zip(theta, new, strict=True)))
    assert_same(model.theta(fitted), expected, rtol=1e-7, atol=1e-8)
    if degrees is not None:
        np.testing.assert_allclose(fitted.degrees_of_freedom_, nu, rtol=1e-6)
    if noise is not None:
        np.testing.assert_allclose(fitted.noise_weight_, share, rtol=1e-8)
        np.testing.assert_allclose(fitted.noise_box_, noise[1])
        assert float(fitted.weights_.sum() + fitted.noise_weight_) == pytest.approx(1.0, abs=1e-12)


def test_one_t_component_is_the_maximum_likelihood_fit_of_scipy():
    x = stats.t(3.0, loc=2.0, scale=1.5).rvs(400, random_state=0)
    degrees, location, scale = stats.t.fit(x)
    model = GaussianMixture(1, tails="t", prior=None, tol=1e-13).fit(x[:, None])
    assert model.score(x[:, None]) >= stats.t(degrees, location, scale).logpdf(x).mean() - 1e-9
    np.testing.assert_allclose(model.degrees_of_freedom_, [degrees], rtol=1e-2)
    np.testing.assert_allclose(model.means_, [[location]], atol=2e-3)
    np.testing.assert_allclose(np.sqrt(model.covariances_[0]), [[scale]], rtol=2e-3)


def test_degrees_of_freedom_solve_their_equation_within_bounds():
    expected = np.array([1.0, 1.3, 2.0, 7.7, 150.0, 4000.0, 1e4])
    h = expected / 2
    mean = special.digamma(h) - np.log(h) - 1.0
    np.testing.assert_allclose(degrees_for(mean), expected, rtol=1e-9)
    np.testing.assert_allclose(degrees_for(np.array([-1.0, -0.9, -50.0])), [1e4, 1e4, 1.0])


@one_of_each
def test_draws_have_the_tails_and_the_noise_of_the_density(model):
    theta, (degrees, noise), _, _ = example(model, "both", D=2)
    X, labels = known(model, theta, degrees, noise).sample(4000, random_state=0)
    _, means, covs = model.dense(theta)
    assert stats.binomtest(int(np.sum(labels == -1)), 4000, float(noise[0])).pvalue > 1e-4
    box = noise[1]
    for d in range(2):
        uniform = stats.uniform(box[0, d], box[1, d] - box[0, d])
        assert stats.kstest(X[labels == -1, d], uniform.cdf).pvalue > 1e-4
    for k in range(len(means)):
        r = X[labels == k] - means[k]
        distance = np.sum(r * np.linalg.solve(covs[k], r.T).T, axis=1)
        assert stats.kstest(distance / 2, stats.f(2, degrees[k]).cdf).pvalue > 1e-4


@one_of_each
def test_imputation_is_the_conditional_t(model):
    theta, (degrees, _), _, _ = example(model, "t", K=1)
    fitted, row = known(model, theta, degrees, None), np.array([4.0, np.nan, -3.0])
    _, means, covs = model.dense(theta)
    mean, cov = missing.conditioned(row, means[0], covs[0])
    np.testing.assert_allclose(fitted.impute(row[None])[0], mean, rtol=1e-9)
    seen = ~np.isnan(row)
    r = (row - means[0])[seen]
    distance = r @ np.linalg.solve(covs[0][np.ix_(seen, seen)], r)
    nu = degrees[0]
    scale = np.sqrt(cov[1, 1] * (nu + distance) / (nu + 2))
    drawn = fitted.impute(row[None], n_draws=3000, random_state=0)[:, 0, 1]
    assert stats.kstest((drawn - mean[1]) / scale, stats.t(nu + 2).cdf).pvalue > 1e-4
    error = fitted.impute(row[None], return_std=True)[1][0]
    np.testing.assert_allclose(error, [0.0, scale * stats.t(nu + 2).std(), 0.0], rtol=1e-9)


def test_noise_imputes_the_middle_of_its_box_and_draws_from_it():
    box = np.array([[-10.0, 5.0], [10.0, 9.0]])
    given = {"means": [[0.0, 0.0]], "covariances": np.eye(2)[None]}
    model = GaussianMixture.from_parameters(weights=[0.5], noise_weight=0.5, noise_box=box, **given)
    X = np.array([[8.0, np.nan], [0.0, np.nan]])
    noise = 0.5 / 20 / (0.5 / 20 + 0.5 * stats.norm.pdf(0.0))
    np.testing.assert_allclose(model.impute(X)[:, 1], [7.0, 7.0 * noise], rtol=1e-6)
    drawn = model.impute(X, n_draws=1000, random_state=0)[:, :, 1]
    assert stats.kstest(drawn[:, 0], stats.uniform(5.0, 4.0).cdf).pvalue > 1e-4
    mean, error = model.impute(X, return_std=True)
    np.testing.assert_allclose(mean[:, 1], [7.0, 7.0 * noise], rtol=1e-6)
    second = noise * (49.0 + 16.0 / 12.0) + 1.0 - noise
    np.testing.assert_allclose(error[:, 1] ** 2, [16.0 / 12.0, second - (7.0 * noise) ** 2], rtol=1e-6)


def test_rows_beyond_the_box_are_noise_of_which_the_density_has_no_part():
    box = np.array([[-10.0, -10.0], [10.0, 10.0]])
    given = {"means": [[0.0, 0.0]], "covariances": np.eye(2)[None]}
    model = GaussianMixture.from_parameters(weights=[0.5], noise_weight=0.5, noise_box=box, **given)
    X = np.array([[0.0, 0.0], [10.0, -10.0], [10.1, 0.0], [10.1, np.nan]])
    normal = np.array([np.nansum(stats.norm.logpdf(x)) for x in X]) + np.log(0.5)
    noise = np.log(0.5) - np.log(20) * np.array([2, 2, 2, 1])
    expected = np.where([True, True, False, False], np.logaddexp(normal, noise), normal)
    np.testing.assert_allclose(model.score_samples(X), expected)
    np.testing.assert_array_equal(model.predict(X), [0, -1, -1, -1])


def test_noise_takes_at_most_half_of_the_rows():
    rng = np.random.default_rng(0)
    X = np.concatenate([0.1 * rng.normal(size=(20, 2)), rng.uniform(-5, 5, (80, 2))])
    settings = {"means_init": np.zeros((1, 2)), "covariances_init": np.eye(2), "tol": 0.0, "max_iter": 3}
    for accelerate in (None, "squarem"):
        model = GaussianMixture(1, noise_component=True, accelerate=accelerate, **settings).fit(X)
        assert model.noise_weight_ == 0.5
        np.testing.assert_allclose(model.weights_, [0.5])


@pytest.mark.parametrize("model", [MIXED[0], COMMON], ids=str)
def test_factors_given_a_row_are_spread_by_its_distance(model):
    theta, (degrees, _), X, holed = example(model, "t", q=2)
    _, means, covs = model.dense(theta)
    for some in (X, holed):
        m, spread = known(model, theta, degrees, None).factor_posterior(some)
        assert spread.shape == (*m.shape, 2)
        if some is X:
            expected_m, V = model.factor_posterior(X, theta)
            np.testing.assert_allclose(m, expected_m, rtol=1e-7, atol=1e-9)
            for k, nu in enumerate(degrees):
                r = X - means[k]
                distance = np.sum(r * np.linalg.solve(covs[k], r.T).T, axis=1)
                expected = V[k] * ((nu + distance) / (nu + X.shape[1] - 2))[:, None, None]
                np.testing.assert_allclose(spread[:, k], expected, rtol=1e-7, atol=1e-10)


@every_way
@one_of_each
def test_parameters_are_counted(model, way):
    theta, (degrees, noise), _, _ = example(model, way)
    plain = known(model, {**theta, "weights": np.full(2, 0.5)}, None, None)
    more = known(model, theta, degrees, noise).n_parameters() - plain.n_parameters()
    assert more == (0 if degrees is None else 2) + (noise is not None)


def test_outliers_are_noise_and_do_not_move_the_components():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(m, 1.0, (150, 2)) for m in (-5.0, 5.0)] + [rng.uniform(-60, 60, (15, 2))])
    for opts in ({"noise_component": True}, {"tails": "t"}):
        model = GaussianMixture(2, random_state=0, n_init=2, **opts).fit(X)
        np.testing.assert_allclose(np.sort(model.means_[:, 0]), [-5.0, 5.0], atol=0.4)
        outlying = np.argsort(model.score_samples(X))[:12]
        assert np.all(outlying >= 300)
        if model.noise_component:
            assert np.mean(model.predict(X)[300:] == -1) > 0.8
            assert np.mean(model.predict(X)[:300] == -1) < 0.02


def test_degenerate_components_are_found_within_heavy_tails_and_beside_noise():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(60, 3)), 9.0 + 1e-3 * rng.normal(size=(2, 3))])
    means = {"means_init": [[0.0, 0.0, 0.0], [9.0, 9.0, 9.0]], "prior": None, "n_init": 1, "max_iter": 30}
    for opts in ({"tails": "t"}, {"noise_component": True}):
        with pytest.warns(DegenerateWarning, match="component 1"):
            model = GaussianMixture(2, tol=1e-6, **means, **opts).fit(X)
        np.testing.assert_array_equal(model.degenerate_components_, [1])


@one_of_each
def test_a_component_whose_sums_underflow_is_left_as_it_is(model):
    theta, (degrees, _), X, _ = example(model, "t", N=25)
    starts = model.starts(theta) | extras(degrees, None, "_init")
    estimator = model.unfitted(2, 1, **starts, tails="t")
    problem = estimator._problem(estimator._data(X, reset=True))
    kernel, here = problem.kernel, estimator._start(problem)[0]
    density = kernel.prepare(here)
    sums = kernel.stats(density, problem.sweep().sum(kernel.e_step, density))
    for array in vars(sums.components.gaussian).values():
        if array.shape[0] == 2:  # of each component
            array[1] = 0.0
    sums.components.weight[1] = 1e-310
    there = kernel.m_step(sums, here).components
    assert there.degrees[1] == degrees[1] != there.degrees[0] != degrees[0]
    assert all(np.all(np.isfinite(array)) for array in vars(there.gaussian).values())
    if not model.common_loadings:
        np.testing.assert_array_equal(there.means[1], here.components.means[1])


def test_a_labelled_row_is_not_noise():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(m, 1.0, (40, 2)) for m in (-5.0, 5.0)] + [np.full((4, 2), 30.0)])
    y = np.full(84, -1)
    start = {"weights_init": 0.5, "means_init": [[-5.0, -5.0], [5.0, 5.0]], "covariances_init": np.eye(2)}
    settings = {"max_iter": 20, "tol": 0.0, "noise_weight_init": 0.1, "noise_component": True}
    free = GaussianMixture(2, **start, **settings).fit(X, y)
    np.testing.assert_allclose(free.noise_weight_, 4 / 84, rtol=0.1)
    y[80:] = 1
    told = GaussianMixture(2, **start, **settings).fit(X, y)
    assert told.noise_weight_ < 0.01 < free.noise_weight_


@pytest.mark.parametrize("name", ["MFA", "MCFA"])
def test_files_keep_robust_models(tmp_path, name):
    X = rows(np.random.default_rng(0), 60, 4)
    cls = {"MFA": MFA, "MCFA": MCFA}[name]
    made = {"tails": "t", "noise_component": True, "degrees_of_freedom_init": 5.0, "max_iter": 3, "tol": 0.0}
    model = cls(2, 1, n_init=1, random_state=0, **made).fit(X)
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    for attribute in ("degrees_of_freedom_", "noise_weight_", "noise_box_"):
        np.testing.assert_array_equal(getattr(again, attribute), getattr(model, attribute))


def test_a_constant_feature_neither_makes_nor_hides_noise():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 2)), rng.uniform(-30, 30, (8, 2))])
    without = GaussianMixture(1, noise_component=True).fit(X)
    with pytest.warns(UserWarning, match="constant"):
        beside = GaussianMixture(1, noise_component=True).fit(np.column_stack([X, np.full(len(X), 3.0)]))
    np.testing.assert_allclose(beside.noise_weight_, without.noise_weight_, rtol=1e-4)


def test_arrays_on_a_device_give_the_same_fit():
    _, _, X, holed = example(MIXED[0], "both", N=40)
    few = {"n_init": 1, "random_state": 0, "max_iter": 3, "tol": 0.0}
    device = array_api_strict.Device("device1")  # arrays on it mix with none elsewhere
    for some in (X, holed):
        there = array_api_strict.asarray(some, device=device)
        model = MFA(2, 1, tails="t", noise_component=True, **few).fit(some)
        other = MFA(2, 1, tails="t", noise_component=True, **few).fit(there)
        for attribute in ("degrees_of_freedom_", "noise_weight_", "noise_box_", "loadings_", "weights_"):
            expected = getattr(model, attribute)
            np.testing.assert_allclose(to_numpy(getattr(other, attribute)), expected, rtol=1e-7, atol=1e-9)
        np.testing.assert_array_equal(to_numpy(other.predict(there)), model.predict(some))
        assert other.impute(there, n_draws=1, random_state=0).shape == (1, *X.shape)


@one_of_each
def test_a_step_with_a_prior_maximises_the_penalised_objective(model):
    """Pseudo-rows are added to the N_k of rows, not to the sums of their precisions."""
    theta, (degrees, _), X, _ = example(model, "t", N=25)
    starts = model.starts(theta) | extras(degrees, None, "_init")
    estimator = model.unfitted(2, 1, **starts, tails="t", prior=5.0)
    problem = estimator._problem(estimator._data(X, reset=True))
    kernel, here = problem.kernel, estimator._start(problem)[0]
    prior = kernel.family.prior.of_noise  # test_mcfa.py has pseudo-rows with factors
    kernel = replace(kernel, family=kernel.family.with_prior(prior))
    density = kernel.prepare(here)
    stats_here = kernel.stats(density, problem.sweep().sum(kernel.e_step, density))
    free = replace(kernel, family=kernel.family.with_prior(None))
    assert kernel.log_prior(here) < 0 == free.log_prior(here)
    there, without = kernel.m_step(stats_here, here), free.m_step(stats_here, here)
    gaussian, other = there.components.gaussian, without.components.gaussian
    name = "covariances" if model.is_gaussian else "noise_variance"
    n = stats_here.components.weight
    n = n.sum() if model.common_loadings else n.reshape(-1, *[1] * (getattr(gaussian, name).ndim - 1))
    rows = prior.rows * (2 if model.common_loadings else 1)
    expected = (n * getattr(other, name) + rows * prior.scale) / (n + rows)
    np.testing.assert_allclose(getattr(gaussian, name), expected, rtol=1e-9)


def test_fixed_degrees_stay_and_are_not_counted():
    X = rows(np.random.default_rng(0), 50, 2)
    fixed = {"fixed_degrees_of_freedom": True, "degrees_of_freedom_init": [3.0, 30.0]}
    few = {"n_init": 1, "random_state": 0, "max_iter": 2, "tol": 0.0}
    model = GaussianMixture(2, tails="t", **fixed, **few).fit(X)
    np.testing.assert_array_equal(model.degrees_of_freedom_, [3.0, 30.0])
    assert model.n_parameters() == GaussianMixture(2, **few).fit(X).n_parameters()


def test_a_fit_without_the_options_forgets_their_attributes():
    X = rows(np.random.default_rng(0), 50, 3)
    few = {"n_init": 1, "random_state": 0, "max_iter": 2, "tol": 0.0}
    model = MPPCA(2, 1, tails="t", noise_component=True, **few).fit(X)
    model.set_params(tails="normal", noise_component=False).fit(X)
    assert not any(hasattr(model, name) for name in ("degrees_of_freedom_", "noise_weight_", "noise_box_"))
    model.set_params(tails="t", warm_start=True)
    with pytest.raises(ValueError, match="degrees_of_freedom_, which the earlier fit"):
        model.fit(X)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"tails": "heavy"}, "tails must be one of 'normal', 't'"),
        ({"noise_component": 1.0}, "noise_component must be True or False"),
        ({"degrees_of_freedom_init": 4.0}, "degrees_of_freedom_init=4.0 has no effect without tails='t'"),
        ({"noise_weight_init": 0.1}, "noise_weight_init=0.1 has no effect without noise_component=True"),
        ({"tails": "t", "fixed_degrees_of_freedom": True}, "needs degrees_of_freedom_init"),
        ({"tails": "t", "degrees_of_freedom_init": 0.5}, "between 1 and 10000.*not 0.5"),
        ({"tails": "t", "degrees_of_freedom_init": [3.0, 4.0, 5.0]}, "does not broadcast"),
        ({"noise_component": True, "noise_weight_init": 1.0}, "must lie between 0 and 0.5, not 1"),
        ({"noise_component": True, "weights_init": [0.9, 0.9]}, "weights_init .* at most one.* 1.8"),
    ],
)
def test_bad_options_are_named(made, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixture(2, **made).fit(rows(np.random.default_rng(0), 20, 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise_weight": 0.3, "noise_box": [[0.0], [1.0]]}, "must sum to one; their sum is 1.3"),
        ({"noise_weight": 0.0, "noise_box": [[1.0], [0.0]]}, "noise_box must hold the smallest values"),
        ({"noise_weight": 0.0}, r"expected the parameters .*noise_box"),
        ({"degrees_of_freedom": -1.0}, "degrees_of_freedom must lie between"),
    ],
)
def test_bad_parameters_are_named(given, message):
    known = {"weights": [1.0], "means": [[0.0]], "covariances": [[[1.0]]]}
    with pytest.raises(ValueError, match=message):
        GaussianMixture.from_parameters(**known, **given)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_box_is_as_wide_as_float64_tells(tmp_path):
    """Of a feature that is constant, or nearly so, far from zero."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[:, 1], X[:, 2] = 1.3586206744669146e17, 2.0**60 + 256.0 * (X[:, 2] > 0)
    model = GaussianMixture(2, covariance_type="diag", noise_component=True, max_iter=5, random_state=0).fit(
        X
    )
    model.save(tmp_path / "model")
    assert np.all(model.noise_box_[0] < model.noise_box_[1])
    np.testing.assert_array_equal(latently.load(tmp_path / "model").score_samples(X), model.score_samples(X))


def test_infinite_covariances_of_independent_factors():
    """One observed entry and one degree of freedom leave no second moments; what is zero stays zero."""
    model = MFA.from_parameters(
        weights=[1.0],
        means=np.zeros((1, 3)),
        loadings=np.zeros((1, 3, 2)),
        noise_variance=np.ones((1, 3)),
        tails="t",
        degrees_of_freedom=[1.0],
    )
    V = model.factor_posterior(np.array([[1.0, np.nan, np.nan]]))[1][0, 0]
    np.testing.assert_array_equal(V, [[np.inf, 0.0], [0.0, np.inf]])
