"""Missing entries: every density, posterior, imputation and EM step is that of the observed ones."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from latently.estimators.weights import weights_in_rows
from latently.mixture import MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture
from tests.contracts.models import ALL, BY_NAME, FACTOR, MIXED, assert_same, instance, rows
from tests.oracles import missing as oracle
from tests.oracles import mixtures

every_model = pytest.mark.parametrize("model", ALL, ids=str)
every_factor_model = pytest.mark.parametrize("model", FACTOR, ids=str)
every_mixture = pytest.mark.parametrize("model", [m for m in ALL if not m.one_component], ids=str)
every_seed = pytest.mark.parametrize("seed", range(3))
# one of each kind, where the families have no part in what is tested
FEW = "GMM-full GMM-tied GMM-spherical FactorAnalysis PPCA MFA-diagonal MPPCA-shared MCFA"
FEW = [BY_NAME[name] for name in FEW.split()]
a_few_models = pytest.mark.parametrize("model", FEW, ids=str)
weighted_or_not = pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])

EXACT = {
    "noise_floor": 0.0,
    "prior": None,
    "tol": 0.0,
    "accelerate": None,
}  # max_iter=n runs exactly n EM steps

agree = lambda actual, expected: np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-9)


def with_holes(rng, X, fraction=0.3, empty=False):
    """X with NaN in about this fraction of its entries, in some rows and some columns more than in others.

    Rows keep an entry, unless two are to be empty, and so do columns.
    """
    N, D = X.shape
    lean = rng.dirichlet(np.full(D, 2.0)) * D * fraction
    holes = rng.random((N, D)) < np.outer(rng.choice([0.0, 1.0, 2.0], size=N), lean)
    holes[np.arange(N), rng.integers(D, size=N)] = False
    for j in range(D):
        holes[rng.choice(N, size=min(N, 3), replace=False), j] = False
    if empty:
        holes[rng.integers(N, size=2)] = True
    return np.where(holes, np.nan, X)


def holed(model, seed, n_rows=25):
    """Parameters, and rows with holes of which the first is complete and the last empty."""
    theta, X = instance(model, seed, n_rows)
    X[1:] = with_holes(np.random.default_rng(seed + 1000), X[1:])
    X[-1] = np.nan
    return theta, X


def problem(model, seed, N=30, D=4, K=2, q=2):
    """Rows with holes, row weights and starting values that are wide enough."""
    rng = np.random.default_rng(seed)
    X = rows(rng, N, D)
    weight = rng.uniform(0.2, 3.0, size=N)
    start = model.narrower(model.example(rng, D, K, q), 6.0)
    means = X[rng.choice(N, size=len(start["weights"]), replace=False)]
    return with_holes(rng, X), weight, model.centred(start, means)


def turned_to(theta):
    """Parameters with L L' in the place of L: PPCA may turn its loadings to the principal axes."""
    if "loadings" not in theta or "latent_means" in theta:
        return theta
    return {**theta, "loadings": theta["loadings"] @ np.swapaxes(theta["loadings"], 1, 2)}


def in_order(model, estimator):
    """The parameters with components in the order of their means: two starts may end in the same optimum."""
    theta = model.theta(estimator)
    return model.picked(theta, np.argsort(model.dense(theta)[1][:, 0]))


# -- the oracle itself, against the one of complete rows ----------------------------------------------------


@every_model
@pytest.mark.parametrize("seed", [1])
def test_oracle_of_complete_rows(model, seed):
    theta, X = instance(model, seed, n_rows=40)
    weight = np.random.default_rng(seed).uniform(0.5, 2.0, size=len(X))
    dense = model.dense(theta)
    agree(oracle.log_density(X, *dense), mixtures.log_density(X, *dense))
    agree(oracle.responsibilities(X, *dense), mixtures.responsibilities(X, *dense))
    assert_same(oracle.step(model, X, theta, weight), model.step(X, theta, weight), rtol=1e-7, atol=1e-8)
    floor = model.floor(X, 0.4, weight)
    agree(oracle.floor_of(model, X, 0.4, weight), floor)
    bounded = oracle.step(model, X, theta, weight, floor=floor)
    assert_same(bounded, model.step(X, theta, weight, floor), rtol=1e-7, atol=1e-8)
    if not model.is_gaussian:
        agree(oracle.transform_of(model, X, theta), model.transform(X, theta))
        agree(oracle.reconstruct_of(model, X, theta), model.reconstruct(X, theta))


@pytest.mark.parametrize("seed", range(3))
def test_oracle_marginal_is_that_of_scipy(seed):
    theta, X = holed(BY_NAME["GMM-full"], seed)
    for x, log_density in zip(X[:-1], oracle.log_density(X[:-1], *theta.values()), strict=True):
        seen = np.flatnonzero(~np.isnan(x))
        parts = [
            weight * stats.multivariate_normal(mean[seen], cov[np.ix_(seen, seen)]).pdf(x[seen])
            for weight, mean, cov in zip(*theta.values(), strict=True)
        ]
        assert log_density == pytest.approx(np.log(sum(parts)), rel=1e-10)


def filled_on_a_grid(x, means, covs):
    """Copies of x with a fine grid in place of NaN, and the volume of a cell: enough for a trapezoid rule."""
    out = np.flatnonzero(np.isnan(x))
    width = 0.6 * np.sqrt(np.linalg.eigvalsh(covs).min())
    # whatever is observed, the conditional means lie no farther than this many deviations of the marginal
    far = 8 + np.nanmax(np.abs(x - means) / np.sqrt(np.diagonal(covs, axis1=1, axis2=2)), initial=0.0)
    reach = far * np.sqrt(np.diagonal(covs, axis1=1, axis2=2))
    low, high = (means - reach).min(axis=0)[out], (means + reach).max(axis=0)[out]
    axes = [np.arange(a, b, width) for a, b in zip(low, high, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(out))
    filled = np.repeat(x[None], len(points), axis=0)
    filled[:, out] = points
    return filled, width ** len(out)


@pytest.mark.parametrize("name", ["GMM-full", "MFA-diagonal", "MCFA"])
@pytest.mark.parametrize("row", [[np.nan, 0.3], [1.2, np.nan], [np.nan, np.nan]], ids=str)
def test_oracle_is_the_integral_over_what_is_missing(name, row):
    model = BY_NAME[name]
    theta = model.example(np.random.default_rng(4), 2, 2, 1, spread=1.0)
    dense = model.dense(theta)
    X = np.array([row])
    filled, cell = filled_on_a_grid(X[0], *dense[1:])
    density = np.exp(mixtures.log_density(filled, *dense))
    agree(np.exp(oracle.log_density(X, *dense)), density.sum() * cell)
    share = density / density.sum()
    agree(oracle.impute(X, *dense), [share @ filled])
    agree(oracle.responsibilities(X, *dense), [share @ mixtures.responsibilities(filled, *dense)])
    if not model.is_gaussian:
        agree(oracle.transform_of(model, X, theta), [share @ model.transform(filled, theta)])
        agree(oracle.reconstruct_of(model, X, theta), [share @ model.reconstruct(filled, theta)])


@every_model
def test_oracle_step_is_the_step_of_all_completions(model):
    # Expected statistics given what is observed are the average of those of the completed rows.
    rng = np.random.default_rng(5)
    theta = model.example(rng, 3, 2, 1, spread=1.0)
    X, weight = rng.normal(size=(7, 3)), rng.uniform(0.5, 2.0, size=7)
    X[np.arange(5), [0, 1, 2, 0, 2]] = np.nan
    completions, shares = [], []
    for x, w in zip(X, weight, strict=True):
        filled, _ = filled_on_a_grid(x, *model.dense(theta)[1:]) if np.isnan(x).any() else (x[None], 1.0)
        density = np.exp(mixtures.log_density(filled, *model.dense(theta)))
        completions.append(filled)
        shares.append(w * density / density.sum())
    averaged = model.step(np.concatenate(completions), theta, np.concatenate(shares))
    assert_same(oracle.step(model, X, theta, weight), averaged, rtol=1e-7)


# -- densities and posteriors -------------------------------------------------------------------------------


@every_model
@every_seed
def test_density_and_responsibilities(model, seed):
    theta, X = holed(model, seed)
    estimator, dense = model.known(theta), model.dense(theta)
    log_density = oracle.log_density(X, *dense)
    agree(estimator.score_samples(X), log_density)
    agree(estimator.score(X), log_density.mean())
    weight = np.random.default_rng(seed).uniform(size=len(X))
    agree(estimator.score(X, sample_weight=weight), np.average(log_density, weights=weight))
    resp = oracle.responsibilities(X, *dense)
    agree(estimator.predict_proba(X), resp)
    np.testing.assert_array_equal(estimator.predict(X), resp.argmax(axis=1))


@every_model
@every_seed
def test_a_row_with_nothing_observed(model, seed):
    theta, _ = instance(model, seed)
    weights, means, _ = model.dense(theta)
    X = np.full((2, means.shape[1]), np.nan)
    estimator = model.known(theta)
    np.testing.assert_allclose(
        estimator.score_samples(X), 0.0, atol=1e-14
    )  # weights may sum to one but for rounding
    np.testing.assert_allclose(estimator.predict_proba(X), [weights, weights], rtol=1e-14)
    np.testing.assert_array_equal(estimator.predict(X), weights.argmax())
    agree(estimator.impute(X), [weights @ means] * 2)
    if not model.is_gaussian:
        prior = weights @ theta["latent_means"] if model.common_loadings else np.zeros(model.shape(theta)[2])
        agree(estimator.transform(X), [prior] * 2)
        agree(estimator.reconstruct(X), [weights @ means] * 2)


@every_factor_model
@every_seed
def test_factors(model, seed):
    theta, X = holed(model, seed)
    estimator = model.known(theta)
    z_means, z_covs = estimator.factor_posterior(X)
    expected_means, expected_covs = oracle.factor_posterior_of(model, X, theta)
    assert z_means.shape == expected_means.shape
    assert z_covs.shape == expected_covs.shape
    agree(z_means, expected_means)
    agree(z_covs, expected_covs)
    agree(estimator.transform(X), oracle.transform_of(model, X, theta))
    agree(estimator.reconstruct(X), oracle.reconstruct_of(model, X, theta))


@every_factor_model
def test_factor_covariances_are_per_row_only_if_something_is_missing(model):
    theta, X = instance(model, 1)
    K, D, q = model.shape(theta)
    estimator = model.known(theta)
    assert estimator.factor_posterior(X)[1].shape == (K, q, q)
    X[0, D - 1] = np.nan
    means, covs = estimator.factor_posterior(X)
    assert means.shape == (len(X), K, q)
    assert covs.shape == (len(X), K, q, q)


@every_model
@pytest.mark.parametrize("block_size", [3])
def test_rows_do_not_see_each_other(model, block_size):
    theta, X = holed(model, 3)
    estimator = model.known(theta)
    methods = [estimator.score_samples, estimator.predict_proba, estimator.impute]
    if not model.is_gaussian:
        methods += [estimator.transform, estimator.reconstruct, lambda X: estimator.factor_posterior(X)[0]]
    whole = [method(X) for method in methods]
    estimator.set_params(block_size=block_size)
    for together, method in zip(whole, methods, strict=True):
        np.testing.assert_allclose(method(X), together, rtol=1e-11, atol=1e-11)
        alone = np.concatenate([method(x[None]) for x in X])
        np.testing.assert_allclose(alone, together, rtol=1e-10, atol=1e-10)


@every_model
def test_a_column_may_be_missing_in_new_rows(model):
    theta = model.example(np.random.default_rng(0), 4, 3, 2)
    X = rows(np.random.default_rng(1), 12, 4)
    X[:, 2] = np.nan
    estimator, dense = model.known(theta), model.dense(theta)
    agree(estimator.score_samples(X), oracle.log_density(X, *dense))
    agree(estimator.impute(X), oracle.impute(X, *dense))


@pytest.mark.parametrize("name", ["GMM-full", "GMM-tied", "MFA-diagonal", "MPPCA", "MCFA"])
def test_many_features(name):
    model, rng = BY_NAME[name], np.random.default_rng(8)
    theta = model.example(rng, 60, 2, 8)
    X = with_holes(rng, rng.normal(size=(300, 60)))
    estimator, dense = model.known(theta), model.dense(theta)
    agree(estimator.score_samples(X), oracle.log_density(X, *dense))
    agree(estimator.impute(X), oracle.impute(X, *dense))


@every_model
@pytest.mark.parametrize("distance", [1e8, 1e100, 1e160, 1e300])
def test_far_rows_are_never_nan(model, distance):
    theta = model.example(np.random.default_rng(0), 3, 2, 2)
    X = distance * np.array(
        [[1.0, np.nan, 0.0], [-1.0, 1.0, np.nan], [np.nan, np.nan, 1.0], [1.0, -1.0, 1.0]]
    )
    estimator = model.known(theta)
    scores, resp = estimator.score_samples(X), estimator.predict_proba(X)
    assert not np.any(np.isnan(scores))
    np.testing.assert_allclose(resp.sum(axis=1), 1.0, rtol=1e-12)
    if distance <= 1e100:
        np.testing.assert_allclose(scores, oracle.log_density(X, *model.dense(theta)), rtol=1e-8)


@every_mixture
def test_a_dead_component_takes_no_part(model):
    rng = np.random.default_rng(0)
    theta = model.example(rng, 3, 3, 1)
    theta["weights"] = np.array([0.4, 0.0, 0.6])
    alive = model.picked(theta, [0, 2])
    X = with_holes(rng, rng.normal(size=(20, 3)), empty=True)
    agree(model.known(theta).score_samples(X), model.known(alive).score_samples(X))
    agree(model.known(theta).impute(X), model.known(alive).impute(X))
    assert np.all(model.known(theta).predict_proba(X)[:, 1] == 0)


# -- imputation ---------------------------------------------------------------------------------------------


@every_model
@every_seed
def test_imputation_is_the_conditional_mean(model, seed):
    theta, X = holed(model, seed)
    before, estimator = X.copy(), model.known(theta)
    filled, seen = estimator.impute(X), ~np.isnan(X)
    agree(filled, oracle.impute(X, *model.dense(theta)))
    assert np.array_equal(filled[seen], X[seen])  # bit for bit
    np.testing.assert_array_equal(X, before)
    assert not np.shares_memory(filled, X)
    drawn = estimator.impute(X, n_draws=1, random_state=seed)[0]
    assert np.array_equal(drawn[seen], X[seen])
    assert np.all(np.isfinite(drawn))
    np.testing.assert_array_equal(X, before)


@every_model
def test_standard_errors_are_conditional_standard_deviations(model):
    theta, X = holed(model, 4)
    estimator, missing = model.known(theta), np.isnan(X)
    mean, covariances = oracle.moments(X, *model.dense(theta))
    imputed, error = estimator.impute(X, return_std=True)
    agree(imputed, np.where(missing, mean, X))
    agree(error**2, np.where(missing, np.diagonal(covariances, axis1=1, axis2=2), 0.0))
    assert np.all(error[~missing] == 0)
    np.testing.assert_array_equal(estimator.impute(X[:1], return_std=True)[1], 0.0)  # the row is complete


@pytest.mark.parametrize("name", ["GMM-full", "GMM-tied", "GMM-diag", "PPCA", "MFA-diagonal", "MCFA"])
def test_draws_spread_by_their_standard_errors(name):
    model, m = BY_NAME[name], 4000
    theta, X = holed(model, 5, n_rows=4)
    estimator, missing = model.known(theta), np.isnan(X)
    imputed, error = estimator.impute(X, return_std=True)
    tables = estimator.impute(X, n_draws=m, random_state=0)
    assert tables.shape == (m, *X.shape)
    assert np.all(tables[:, ~missing] == X[~missing])
    away = (tables.mean(axis=0) - imputed)[missing] / error[missing]
    assert np.abs(away).max() < 5 / np.sqrt(m)
    assert np.abs(tables.std(axis=0)[missing] / error[missing] - 1).max() < 0.12


def test_files_of_tables_and_standard_errors(tmp_path):
    theta, X = holed(BY_NAME["MFA-diagonal"], 1)
    estimator = BY_NAME["MFA-diagonal"].known(theta).set_params(block_size=7)
    np.save(tmp_path / "X.npy", X)
    tables = estimator.impute(tmp_path / "X.npy", n_draws=3, random_state=0, out=tmp_path / "tables.npy")
    assert tables.shape == (3, *X.shape)
    assert np.load(tmp_path / "tables.npy", mmap_mode="r").shape == (len(X), 3, X.shape[1])
    both = estimator.impute(tmp_path / "X.npy", return_std=True, out=tmp_path / "errors.npy")
    np.testing.assert_array_equal(np.stack(both), np.stack(estimator.impute(X, return_std=True)))


@pytest.mark.parametrize("n_draws", [0, 1.5, True, "two"])
def test_a_wrong_number_of_draws(n_draws):
    known = PPCA.from_parameters(mean=[0.0, 0.0], loadings=[[1.0], [2.0]], noise_variance=0.5)
    with pytest.raises(ValueError, match="n_draws must be an integer of at least 1"):
        known.impute([[1.0, np.nan]], n_draws=n_draws)
    with pytest.raises(ValueError, match="return_std=True needs n_draws=None"):
        known.impute([[1.0, np.nan]], n_draws=2, return_std=True)


@every_model
@pytest.mark.parametrize("settings", [{}, {"n_draws": 2, "random_state": 0}], ids=["mean", "draws"])
def test_imputation_of_complete_rows_is_a_copy(model, settings):
    theta, X = instance(model, 2)
    filled = model.known(theta).impute(X, **settings)
    np.testing.assert_array_equal(filled, np.broadcast_to(X, filled.shape))
    assert not np.shares_memory(filled, X)


@every_model
@pytest.mark.parametrize("row", [[0.5, np.nan, np.nan], [np.nan, -1.0, 0.4], [np.nan] * 3], ids=str)
def test_drawn_entries_have_the_conditional_distribution(model, row):
    n = 20_000
    theta = model.example(np.random.default_rng(1), 3, 3, 2, spread=1.0)
    p, q = model.known(theta), model.known(model.narrower(theta))
    X = np.repeat([row], n, axis=0)
    drawn = p.impute(X, n_draws=1, random_state=1)[0]
    # E_p[q(x) / p(x) | observed] = q(observed) / p(observed)
    ratio = np.exp(q.score_samples(drawn) - p.score_samples(drawn))
    expected = np.exp(q.score_samples(X[:1]) - p.score_samples(X[:1]))[0]
    assert abs(ratio.mean() - expected) < 5 * ratio.std() / np.sqrt(n)
    out = np.isnan(row)
    drawn = drawn[:, out]
    mean, deviation = drawn.mean(axis=0), drawn.std(axis=0)
    assert np.all(
        np.abs(mean - oracle.impute(X[:1], *model.dense(theta))[0, out]) < 5 * deviation / np.sqrt(n)
    )
    second, wanted = drawn.T @ drawn / n, second_moment(X[0], *model.dense(theta))[np.ix_(out, out)]
    spread = np.sqrt(np.var(drawn[:, :, None] * drawn[:, None, :], axis=0) / n)
    assert np.all(np.abs(second - wanted) < 5 * spread)


def second_moment(x, weights, means, covs):
    """E[x x' | observed] of one row, (D, D)."""
    resp, total = oracle.responsibilities(x[None], weights, means, covs)[0], 0.0
    for r, mean, cov in zip(resp, means, covs, strict=True):
        m, C = oracle.conditioned(x, mean, cov)
        total = total + r * (np.outer(m, m) + C)
    return total


@every_model
def test_draws_have_their_own_chance(model):
    theta, X = holed(model, 4)
    known = model.known(theta)
    first, again, other = (known.impute(X, n_draws=1, random_state=seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.all((first != other) == np.isnan(X))
    for source in (np.random.default_rng, np.random.RandomState):
        first, again = (known.impute(X, n_draws=1, random_state=source(7))[0] for _ in range(2))
        np.testing.assert_array_equal(first, again)


# -- steps --------------------------------------------------------------------------------------------------


def check_steps(model, X, weight, start, n_steps, rtol=1e-8):
    expected, history = start, [oracle.objective(model, X, start, weight)]
    for _ in range(n_steps):
        expected = oracle.step(model, X, expected, weight)
        history.append(oracle.objective(model, X, expected, weight))
    estimator = model.started(start, max_iter=n_steps, **EXACT).fit(X, sample_weight=weight)
    assert_same(turned_to(model.theta(estimator)), turned_to(model.normal_form(expected)), rtol=rtol)
    assert estimator.n_iter_ == n_steps
    assert not estimator.converged_
    assert estimator.history_.shape == (n_steps + 1,)
    np.testing.assert_allclose(estimator.history_, history, rtol=1e-9)
    assert estimator.history_[-1] == pytest.approx(estimator.score(X, sample_weight=weight), rel=1e-11)


@every_model
@weighted_or_not
@pytest.mark.parametrize("n_steps", [0, 1, 3])
def test_exactly_n_steps(model, weighted, n_steps):
    X, weight, start = problem(model, 0)
    check_steps(model, X, weight if weighted else None, start, n_steps)


@every_model
@pytest.mark.parametrize("seed", range(2))
def test_steps_of_all_sizes(model, seed):
    rng = np.random.default_rng(seed + 50)
    D, K = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    X, weight, start = problem(model, seed, N=70, D=D, K=K, q=int(rng.integers(0, D + 1)))
    check_steps(model, X, weight, start, 2)


# full covariances need more rows than features
@pytest.mark.parametrize("model", [m for m in ALL if m.name not in ("GMM-full", "GMM-tied")], ids=str)
def test_steps_with_few_rows(model):
    X, weight, start = problem(model, 5, N=7, D=9, q=1)
    start = model.centred(start, np.nan_to_num(0.5 * model.dense(start)[1]))
    check_steps(model, X, weight, model.narrower(start, 5.0), 2)


@every_model
@weighted_or_not
def test_steps_where_rows_share_what_is_missing(model, weighted):
    X, weight, start = problem(model, 6, N=64)
    X = np.where(np.isnan(X), 0.3, X)
    X[:20, 1], X[20:24, [0, 3]], X[24:40, :3] = np.nan, np.nan, np.nan
    check_steps(model, X, weight if weighted else None, start, 2)


@every_mixture
def test_steps_of_components_far_apart(model):
    # most components have no part in a row, not even by rounding
    rng = np.random.default_rng(7)
    start = model.example(rng, 4, 5, 2)
    start = model.centred(start, 200.0 * rng.permutation(np.vstack([np.eye(4), np.zeros(4)])))
    means = model.dense(start)[1]
    X = np.repeat(means, 16, axis=0) + rng.normal(size=(80, 4))
    X[::7] = means[0] + 3.0 * rng.normal(size=X[::7].shape)
    check_steps(model, with_holes(rng, X), rng.uniform(0.2, 3.0, size=80), model.narrower(start, 6.0), 2)


@every_model
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("block_size", [4])
def test_parts_of_the_rows_add_up(model, dtype, block_size):
    X, weight, start = problem(model, 2)
    settings = {"max_iter": 3, "dtype": dtype, **EXACT}
    whole = model.started(start, **settings).fit(X, sample_weight=weight)
    parts = model.started(start, block_size=block_size, **settings).fit(X, sample_weight=weight)
    rtol, atol = (1e-9, 1e-10) if dtype == "float64" else (1e-2, 1e-3)
    assert_same(model.theta(parts), model.theta(whole), rtol=rtol, atol=atol)


@every_model
def test_single_precision_is_near_double(model):
    X, weight, start = problem(model, 3)
    double, single = (
        model.started(start, max_iter=3, dtype=dtype, **EXACT).fit(X, sample_weight=weight)
        for dtype in ("float64", "float32")
    )
    np.testing.assert_allclose(single.history_, double.history_, rtol=1e-4)


@every_model
@weighted_or_not
def test_step_at_the_floor_is_the_constrained_maximiser(model, weighted):
    rng = np.random.default_rng(4)
    axis = np.array([1.0, -1.0, 2.0, 0.7])  # three narrow clusters in a row
    X = 3.0 * np.outer(np.arange(45) % 3 - 1, axis) + rng.normal(size=(45, 4)) * [0.1, 0.2, 0.4, 2.5]
    start = model.example(rng, 4, 3, 1)
    start = model.centred(start, X[: len(start["weights"])].copy())
    X[15:, 2] *= 4.0
    X[::4, 2] = np.nan  # unlike the others, so that the variance of all rows would be another one
    X[1::3, 0] = np.nan
    weight = rng.uniform(0.2, 3.0, size=45) if weighted else None
    floor = oracle.floor_of(model, X, 0.5, weight)
    if model.is_gaussian:
        start["covs"] = start["covs"] + np.diag(np.full(4, floor.max()))
    else:
        start["noise"] = start["noise"] + floor.max()
        if model.one_component:
            start["loadings"] = 2.5 * axis[None, :, None]
        elif model.common_loadings:
            start["loadings"] = axis[:, None]
    bounded = start
    for _ in range(3):
        free = oracle.step(model, X, bounded, weight)
        bounded = oracle.step(model, X, bounded, weight, floor=floor)
    key = "covs" if model.is_gaussian else "noise"
    assert not np.allclose(free[key], bounded[key])  # the floor does bind
    estimator = model.started(start, max_iter=3, **{**EXACT, "noise_floor": 0.5}).fit(X, sample_weight=weight)
    assert_same(turned_to(model.theta(estimator)), turned_to(model.normal_form(bounded)))
    assert estimator.history_[-1] == pytest.approx(oracle.objective(model, X, bounded, weight), rel=1e-10)


# -- the likelihood never falls -----------------------------------------------------------------------------


@st.composite
def fits(draw):
    """A model with its settings, rows with holes, and row weights."""
    model = BY_NAME[draw(st.sampled_from(sorted(BY_NAME)))]
    D, K = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    N, q = draw(st.integers(2 * K + 4, 50)), draw(st.integers(0, D))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rows(rng, N, D, draw(st.sampled_from([0.0, 2.0, 20.0])), draw(st.sampled_from([0.01, 1.0])))
    if draw(st.booleans()):
        X = np.round(X)
    X = X * 10.0 ** rng.uniform(-3, 3, size=D)
    X = X + draw(st.sampled_from([0.0, 1.0, 1e4])) * rng.normal(size=D)
    X = with_holes(rng, X, draw(st.sampled_from([0.02, 0.2, 0.5, 0.8])), empty=draw(st.booleans()))
    weight = rng.uniform(0.1, 5.0, size=N) if draw(st.booleans()) else None
    chosen = {
        "init": draw(st.sampled_from(["kmeans", "k-means++", "random"])),
        "noise_floor": draw(st.sampled_from([1e-6, 1e-3])),
        "accelerate": draw(st.sampled_from([None, "squarem"])),
        "block_size": draw(st.sampled_from([None, 3])),
        "n_init": draw(st.integers(1, 2)),
        "random_state": draw(st.integers(0, 100)),
    }
    return model, K, q, chosen, X, weight


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(fits())
def test_likelihood_never_falls(fit):
    model, K, q, chosen, X, weight = fit
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X has constant features", UserWarning)
        chosen = {"prior": None, **chosen}
        estimator = model.unfitted(K, q, max_iter=20, tol=0.0, **chosen).fit(X, sample_weight=weight)
    for name, array in model.theta(estimator).items():
        assert np.all(np.isfinite(array)), name
    history = estimator.history_
    assert np.all(np.isfinite(history))
    fall = -np.min(np.diff(history), initial=0.0)
    # 32 roundings of quadratic forms, which are the larger the smaller the noise may be
    assert fall <= 32 * np.finfo(float).eps * X.shape[1] / chosen["noise_floor"] + 1e-9
    told = ~np.isnan(X).all(axis=1)
    score = estimator.score(X[told], sample_weight=None if weight is None else weight[told])
    assert score == pytest.approx(history[-1], rel=1e-5, abs=1e-5)
    assert np.all(np.isfinite(estimator.predict_proba(X)))
    assert np.all(np.isfinite(estimator.impute(X)))


n = np.nan
# tables with hardly anything in them, on which long strides go astray: rows lost to all components, factors
# or means without bound, a stride whose square overflows
ASTRAY = [
    (
        MFA(4, 2, noise="isotropic", noise_floor=1e-3, n_init=1, random_state=59),
        [[n, n], [n, n], [n, n], [0.079, n], [0.079, -0.99]],
        [[0, 1, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]],
        None,
    ),
    (
        MPPCA(3, 2, noise_floor=1e-3, n_init=3, init="k-means++", random_state=12),
        [
            [11552.256802038526, 12486.140062985869],
            [11553.428619096934, n],
            [11553.183036467075, 9468.01725395446],
            [11552.25689065187, 12485.854686023798],
            [11553.429005386917, 9497.98561478594],
        ],
        None,
        None,
    ),
    (
        MFA(
            4,
            1,
            noise="isotropic",
            shared_noise=True,
            noise_floor=1e-9,
            n_init=3,
            init="k-means++",
            random_state=40,
        ),
        [
            [-5588.9102066496, n],
            [-11590.59797454764, n],
            [n, 8.391839235711762],
            [n, 8.396712121998007],
            [n, 8.394658027135243],
            [n, 8.555566006023851],
            [n, 8.394658027135243],
        ],
        None,
        [4.814251752408739, 3.0432558688318205, 1.6285129134427971, 0.5522516577851844, 2.096825258857581]
        + [1.5535027453680186, 1.4448143735111454],
    ),
    (
        MPPCA(3, 2, noise_floor=1e-3, n_init=3, init="k-means++", random_state=12),
        [[12000.0, n], [n, 9500.0], [n, 9500.0], [12000.0, 12000.0], [12000.0, 9500.0]],
        None,
        None,
    ),
]


@pytest.mark.filterwarnings("ignore:X has constant features:UserWarning")
@pytest.mark.parametrize(
    ("estimator", "X", "allowed", "weight"), ASTRAY, ids=["rows", "factors", "means", "stride"]
)
def test_long_strides_go_astray_without_harm(estimator, X, allowed, weight):
    y = None if allowed is None else np.array(allowed, dtype=bool)
    estimator.set_params(accelerate="squarem", max_iter=25, tol=0.0).fit(np.array(X), y, sample_weight=weight)
    assert np.diff(estimator.history_).min() > -1e-3


@every_mixture
def test_a_fit_is_at_least_as_likely_as_the_truth(model):
    theta = model.example(np.random.default_rng(6), 5, 2, 1, spread=4.0)
    truth = model.known(theta)
    X = with_holes(np.random.default_rng(7), truth.sample(400, random_state=0)[0], 0.25)
    fitted = model.unfitted(2, 1, n_init=2, max_iter=300, random_state=0, tol=1e-5, prior=None).fit(X)
    assert fitted.history_[-1] >= truth.score(X)
    assert fitted.converged_


# -- what must not matter -----------------------------------------------------------------------------------


def fitted(model, X, weight=None, **settings):
    chosen = {"max_iter": 8, "tol": 0.0, "n_init": 2, "random_state": 3, **settings}
    return model.unfitted(3, 2, **chosen).fit(X, sample_weight=weight)


def rows_with_holes(seed, N=50):
    rng = np.random.default_rng(seed)
    return rng, with_holes(rng, rows(rng, N, 4), 0.2)


@a_few_models
def test_most_blocks_may_be_complete(model):
    X = rows(np.random.default_rng(13), 50, 4)
    X[3, 2] = np.nan
    whole, parts = fitted(model, X), fitted(model, X, block_size=6)
    assert_same(in_order(model, parts), in_order(model, whole), rtol=1e-6, atol=1e-8)


@every_model
def test_a_missing_entry_is_one_whatever_its_weight(model):
    """The weight of its row may be lost in the sum of all weights."""
    X, weight = rows(np.random.default_rng(0), 50, 4), np.ones(50)
    X[3, 1], weight[3] = np.nan, 1e-17
    found = fitted(model, X, weight, prior=None)
    assert found.history_[-1] == pytest.approx(found.score(np.delete(X, 3, axis=0)), rel=1e-9)


@a_few_models
@pytest.mark.parametrize(
    ("weighted", "holes", "block_size"),
    [(False, True, None), (True, True, 4), (True, False, None), (False, "one", 4)],
)
def test_empty_rows_are_left_out(model, weighted, holes, block_size):
    rng, X = rows_with_holes(10)
    if holes is not True:  # of some blocks nothing is left but complete rows
        X = rows(rng, 50, 4)
        X[30, 2] = np.nan if holes else X[30, 2]
    weight = rng.uniform(0.5, 2.0, size=len(X) + 4)
    more = np.insert(X, [0, 7, 7, 50], np.nan, axis=0)
    kept = ~np.isnan(more).all(axis=1)
    weight = weights_in_rows(weight, len(weight))  # in one unit, for both fits
    with_them = fitted(model, more, weight if weighted else None, block_size=block_size)
    without = fitted(model, X, weight[kept] if weighted else None)
    assert_same(in_order(model, with_them), in_order(model, without), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(with_them.history_, without.history_, rtol=1e-9)
    assert with_them.n_iter_ == without.n_iter_
    assert with_them.converged_ == without.converged_


@pytest.mark.parametrize("model", [m for m in FEW if m.translation_invariant], ids=str)
def test_an_offset_moves_the_means_only(model):
    offset = 1e8
    _, X = rows_with_holes(11)
    X = np.round(X * 1024) / 1024  # X + offset is exact
    here, there = fitted(model, X), fitted(model, X + offset)
    expected, actual = in_order(model, here), in_order(model, there)
    np.testing.assert_allclose(actual.pop("means") - offset, expected.pop("means"), atol=1e-7)
    assert_same(actual, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(there.history_, here.history_, rtol=1e-8)
    np.testing.assert_allclose(there.impute(X + offset) - offset, here.impute(X), atol=1e-6)


@pytest.mark.parametrize("model", MIXED, ids=str)
def test_one_component_is_the_one_component_model(model):
    one = next(m for m in FACTOR if m.one_component and m.isotropic == model.isotropic)
    X, weight, start = problem(one, 15, N=40, D=5)
    alone = one.started(start, max_iter=5, **EXACT).fit(X, sample_weight=weight)
    mixed = model.started(start, max_iter=5, **EXACT).fit(X, sample_weight=weight)
    assert_same(turned_to(one.theta(alone)), turned_to(model.theta(mixed)), rtol=1e-9)
    np.testing.assert_allclose(alone.history_, mixed.history_, rtol=1e-11)


def test_ppca_has_a_history_only_if_something_is_missing():
    X = rows(np.random.default_rng(0), 40, 4)
    closed = PPCA(1).fit(X)
    assert closed.history_.shape == (1,) and closed.n_iter_ == 1
    X[3, 2] = np.nan
    by_em = PPCA(1, tol=1e-9).fit(X)
    assert by_em.history_.shape == (by_em.n_iter_ + 1,) and by_em.n_iter_ > 1
    assert by_em.converged_
    # one entry of 160 changes little
    np.testing.assert_allclose(by_em.covariance_, closed.covariance_, rtol=0.2, atol=0.2)


# -- what is learnt from holes ------------------------------------------------------------------------------


def low_rank(rng, N):
    """Rows of two clusters, each near a plane in eight dimensions."""
    means, loadings = rng.normal(scale=2.0, size=(2, 8)), rng.normal(size=(2, 8, 2))
    labels = np.arange(N) % 2
    z, noise = rng.normal(size=(N, 2)), 0.2 * rng.normal(size=(N, 8))
    return means[labels] + np.einsum("ndq,nq->nd", loadings[labels], z) + noise


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "estimator", [MFA(2, 2), GaussianMixture(2), FactorAnalysis(4), PPCA(4)], ids=lambda e: type(e).__name__
)
def test_imputation_of_low_rank_rows(estimator, seed):
    rng = np.random.default_rng(seed)
    X = low_rank(rng, 400)
    holes = rng.random(X.shape) < 0.25
    given = np.where(holes, np.nan, X)
    estimator.set_params(random_state=seed, n_init=2, tol=1e-5).fit(given)
    error = lambda filled: np.sqrt(np.mean((filled - X)[holes] ** 2))
    by_means = error(np.where(holes, np.nanmean(given, axis=0), X))
    assert error(estimator.impute(given)) < 0.5 * by_means
    # the draws have the noise and the rest of the doubt on top: twice the squared error of the mean
    drawn = error(estimator.impute(given, n_draws=1, random_state=seed)[0])
    assert error(estimator.impute(given)) < drawn < 1.7 * error(estimator.impute(given))


# -- what is turned away ------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weight zero where it is observed"])
def test_a_column_without_any_entry_is_an_error(model, weighted):
    X = rows(np.random.default_rng(0), 30, 4)
    X[:, 2] = np.nan
    weight = None
    if weighted:
        X[0, 2], weight = 1.0, np.append(0.0, np.ones(29))
    with pytest.raises(ValueError, match=r"(column|feature)\D*2\b"):
        model.unfitted(2, 1).fit(X, sample_weight=weight)


def test_a_column_without_any_entry_is_told_by_name():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(rows(np.random.default_rng(0), 30, 3), columns=["length", "width", "age"])
    X["width"] = np.nan
    with pytest.raises(ValueError, match=r"width|(column|feature)\D*1\b"):
        GaussianMixture(2).fit(X)


@every_model
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_entries_are_an_error(model, value):
    X = with_holes(np.random.default_rng(0), rows(np.random.default_rng(1), 30, 4))
    X[7, 2] = value
    with pytest.raises(ValueError, match="infinity"):
        model.unfitted(2, 1).fit(X)
    estimator = model.known(model.example(np.random.default_rng(2), 4, 2, 1))
    methods = [estimator.score_samples, estimator.predict, estimator.predict_proba, estimator.impute]
    if not model.is_gaussian:
        methods += [estimator.transform, estimator.reconstruct, estimator.factor_posterior]
    for method in methods:
        with pytest.raises(ValueError, match="infinity"):
            method(X)


@every_model
def test_more_components_than_rows_with_entries_are_an_error(model):
    X = np.full((9, 3), np.nan)
    with pytest.raises(ValueError, match=r"X|column|feature"):
        model.unfitted(2, 1).fit(X)
    if not model.one_component:
        X[:2] = rows(np.random.default_rng(0), 2, 3)
        with pytest.raises(ValueError, match="n_components"):
            model.unfitted(3, 1).fit(X)


@every_model
def test_tags_say_so(model):
    assert model.unfitted(2, 1).__sklearn_tags__().input_tags.allow_nan
