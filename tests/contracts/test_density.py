"""Densities, posteriors, samplers and counts of every model, against the dense oracles."""

import numpy as np
import pytest

from tests.contracts.models import ALL, FACTOR, MIXED, TWINS, instance
from tests.oracles import mixtures as oracle

SEEDS = range(8)
every_model = pytest.mark.parametrize("model", ALL, ids=str)
every_factor_model = pytest.mark.parametrize("model", FACTOR, ids=str)
every_seed = pytest.mark.parametrize("seed", SEEDS)

agree = lambda actual, expected: np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


# -- against the oracle ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [*ALL, *TWINS], ids=str)
@every_seed
def test_density_and_responsibilities(model, seed):
    theta, X = instance(model, seed)
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
def test_fitted_attributes_are_what_was_given(model, seed):
    theta, _ = instance(model, seed)
    estimator = model.known(theta)
    K, D, _ = model.shape(theta)
    for name, array in model.attributes(theta).items():
        np.testing.assert_array_equal(getattr(estimator, f"{name}_"), array)
    assert estimator.n_features_in_ == D
    if not model.one_component:
        agree(estimator.means_, model.dense(theta)[1])
    if not model.is_gaussian:
        agree(estimator.covariances_, model.dense(theta)[2])
        assert estimator.covariances_.shape == (K, D, D)
    if model.one_component:
        agree(estimator.covariance_, model.dense(theta)[2][0])


@every_factor_model
@every_seed
def test_factors(model, seed):
    theta, X = instance(model, seed)
    estimator = model.known(theta)
    z_means, z_covs = estimator.factor_posterior(X)
    expected_means, expected_covs = model.factor_posterior(X, theta)
    assert z_means.shape == expected_means.shape
    assert z_covs.shape == expected_covs.shape
    agree(z_means, expected_means)
    agree(z_covs, expected_covs)
    agree(estimator.transform(X), model.transform(X, theta))
    agree(estimator.reconstruct(X), model.reconstruct(X, theta))


@every_factor_model
@every_seed
def test_inverse_transform(model, seed):
    theta, _ = instance(model, seed)
    estimator = model.known(theta)
    K, _, q = model.shape(theta)
    rng = np.random.default_rng(seed)
    Z, labels = rng.normal(size=(9, q)), rng.integers(K, size=9)
    parts = model.rows_of_factors(Z, theta)  # (9, K, D)
    agree(estimator.inverse_transform(Z), np.einsum("k,nkd->nd", theta["weights"], parts))
    if not model.common_loadings:  # where all components give the same rows
        agree(estimator.inverse_transform(Z, labels), parts[np.arange(9), labels])


@every_model
@every_seed
def test_criteria(model, seed):
    theta, X = instance(model, seed)
    estimator, dense = model.known(theta), model.dense(theta)
    K, D, q = model.shape(theta)
    count = model.n_parameters(D, K, q)
    assert estimator.n_parameters() == count
    agree(estimator.bic(X), oracle.bic(X, *dense, count))
    agree(estimator.aic(X), oracle.aic(X, *dense, count))
    agree(estimator.icl(X), oracle.icl(X, *dense, count))


@every_model
@pytest.mark.parametrize("D", [1, 2, 3, 4, 5])
def test_number_of_parameters_is_the_dimension_of_the_model(model, D):
    rng = np.random.default_rng(D)
    for K in (1, 2, 3):
        for q in range(D + 1):
            known = model.known(model.example(rng, D, K, q))
            assert known.n_parameters() == model.jacobian_rank(D, K, q), (D, K, q)


@pytest.mark.parametrize("model", FACTOR, ids=str)
@pytest.mark.parametrize(("D", "q"), [(1, 2), (1, 4), (2, 3), (2, 5), (3, 6)])
def test_more_factors_than_features_are_an_error(model, D, q):
    # as in fit; the count of parameters, too, holds up to q = D only
    with pytest.raises(ValueError, match="n_factors"):
        model.known(model.example(np.random.default_rng(0), D, 2, q))


# -- densities are densities ----------------------------------------------------------------------------


def _grid(means, covs, points_per_deviation=4.0):
    """Points (n, D) and the volume of a cell, far enough out and fine enough for a trapezoid rule."""
    deviations = np.sqrt(np.array([np.diag(cov) for cov in covs]))
    smallest = np.sqrt(np.linalg.eigvalsh(covs).min())
    low = (means - 9 * deviations).min(axis=0)
    high = (means + 9 * deviations).max(axis=0)
    axes = [np.arange(a, b, smallest / points_per_deviation * 2) for a, b in zip(low, high, strict=True)]
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes)), cell


@every_model
@pytest.mark.parametrize(("D", "K", "q"), [(1, 1, 1), (1, 3, 0), (2, 1, 1), (2, 3, 1), (2, 2, 2)])
def test_density_integrates_to_one(model, D, K, q):
    theta = model.example(np.random.default_rng(10 * D + K), D, K, q)
    points, cell = _grid(*model.dense(theta)[1:])
    assert np.exp(model.known(theta).score_samples(points)).sum() * cell == pytest.approx(1.0, abs=1e-9)


@every_model
@pytest.mark.parametrize("seed", [0, 1])
def test_sampler_agrees_with_density(model, seed):
    theta = model.example(np.random.default_rng(seed), 3, 3, 2)
    p, q = model.known(theta), model.known(model.narrower(theta))
    X, _ = p.sample(100_000, random_state=seed)
    ratio = np.exp(q.score_samples(X) - p.score_samples(X))  # mean 1 under p
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(X))


@every_model
def test_sampler_has_the_moments_of_the_model(model):
    theta = model.example(np.random.default_rng(3), 3, 3, 2)
    weights, means, covs = model.dense(theta)
    X, components = model.known(theta).sample(50_000, random_state=1)
    assert X.shape == (50_000, 3)
    assert components.shape == (50_000,)
    for k, weight in enumerate(weights):
        own = X[components == k]
        n = len(own)
        assert abs(n / len(X) - weight) <= 5 * np.sqrt(weight * (1 - weight) / len(X))
        white = np.linalg.solve(np.linalg.cholesky(covs[k]), (own - means[k]).T)
        assert np.all(np.abs(white.mean(axis=1)) < 5 / np.sqrt(n))
        assert np.all(np.abs(white @ white.T / n - np.eye(3)) < 5 * np.sqrt(2 / n))


# -- far away and far apart ---------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("distance", [1e3, 1e8, 1e30, 1e100, 1e152, 1e160, 1e200, 1e300])
def test_far_rows_are_never_nan(model, seed, distance):
    rng = np.random.default_rng(seed)
    theta = model.example(rng, 3, 2, 2)
    X = distance * np.concatenate([np.eye(3), -np.eye(3), rng.uniform(-1, 1, size=(5, 3))])
    if model.shape(theta)[2]:
        loadings = theta["loadings"] if model.common_loadings else theta["loadings"][0]
        along = distance * loadings.T / 4  # where quadratic forms cancel most
        X = np.concatenate([X, along, -along])
    estimator = model.known(theta)
    with np.errstate(over="ignore", invalid="ignore"):
        scores, resp = estimator.score_samples(X), estimator.predict_proba(X)
    assert not np.any(np.isnan(scores))
    assert np.all(scores < 0)
    assert np.all(np.isfinite(resp))
    np.testing.assert_allclose(resp.sum(axis=1), 1.0, rtol=1e-12)
    if distance <= 1e100:
        assert np.all(np.isfinite(scores))
        np.testing.assert_allclose(scores, oracle.log_density(X, *model.dense(theta)), rtol=1e-8)


@every_model
@pytest.mark.parametrize("unit", [1e-120, 1e120])
def test_units_change_densities_by_their_volume_only(model, unit):
    rng = np.random.default_rng(5)
    theta, X = model.example(rng, 3, 2, 1), rng.normal(scale=2.0, size=(20, 3))
    expected = model.known(theta).score_samples(X) - 3 * np.log(unit)
    agree(model.known(model.scaled(theta, unit)).score_samples(unit * X), expected)


@pytest.mark.parametrize("model", [m for m in ALL if m.translation_invariant], ids=str)
@pytest.mark.parametrize(("offset", "unit"), [(1e8, 1.0), (1e100, 1e95)])
def test_offsets_do_not_change_densities(model, offset, unit):
    rng = np.random.default_rng(5)
    theta = model.example(rng, 3, 2, 1)
    theta["means"] = np.round(theta["means"], 2)
    X = np.round(rng.normal(scale=2.0, size=(20, 3)), 2)
    moved = model.scaled(theta, unit)
    moved["means"] = offset + moved["means"]
    expected = model.known(theta).score_samples(X) - 3 * np.log(unit)
    # the offset itself costs digits of the rows
    digits = 1e-16 * offset / unit * 1e3
    np.testing.assert_allclose(model.known(moved).score_samples(offset + unit * X), expected, rtol=digits)


@pytest.mark.parametrize("model", [m for m in ALL if not m.one_component], ids=str)
def test_a_dead_component_takes_no_part(model):
    rng = np.random.default_rng(0)
    theta = model.example(rng, 3, 3, 1)
    theta["weights"] = np.array([0.4, 0.0, 0.6])
    alive = model.picked(theta, [0, 2])
    X = rng.normal(size=(20, 3))
    agree(model.known(theta).score_samples(X), model.known(alive).score_samples(X))
    assert np.all(model.known(theta).predict_proba(X)[:, 1] == 0)
    assert 1 not in model.known(theta).sample(500, random_state=0)[1]


# -- variants that are the same model --------------------------------------------------------------------


@pytest.mark.parametrize("model", MIXED, ids=str)
def test_one_component_is_the_one_component_model(model):
    theta, X = model.example(np.random.default_rng(1), 4, 1, 2), np.random.default_rng(2).normal(size=(9, 4))
    one = next(m for m in FACTOR if m.one_component and m.isotropic == model.isotropic)
    agree(model.known(theta).score_samples(X), one.known(theta).score_samples(X))
    assert model.known(theta).n_parameters() == one.known(theta).n_parameters()
