"""Variational Bayes of common loadings: the bound term by term, steps that gain, numbers of parts found."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma

import latently
from latently.core.block import Block
from latently.distributions.variational import VariationalMixture
from latently.distributions.variational_common import CommonPosterior, PosteriorCommon
from latently.distributions.variational_factors import LARGEST
from latently.mixture import MCFA, BayesianMCFA
from tests.test_bayesian_mfa import (
    D,
    K,
    Q,
    divergence,
    log_weights,
    prior_of,
    row_posteriors,
    rows_with_holes,
)


def any_posterior(rng, n_components=K):
    """Some q, far from the best."""
    root = rng.normal(size=(Q + 1, Q + 3))
    moments = root @ root.T / Q
    roots = rng.normal(size=(n_components, Q, Q + 2))
    return CommonPosterior(
        rng.normal(size=D),
        rng.normal(size=(D, Q)),
        rng.uniform(0.5, 2.0, D),
        rng.uniform(0.2, 3.0, Q + 1),
        moments / moments[-1, -1],
        rng.normal(size=(n_components, Q)),
        roots @ roots.transpose(0, 2, 1) / Q,
        rng.uniform(3.0, 12.0, n_components),
    )


def wishart_of(q, prior, k):
    """b, nu and W of the precision of component k, and the expectation of its log determinant."""
    nu = Q - 1 + prior.rows + q.counts[k]
    W = np.linalg.inv(nu * q.latent_covariances[k])
    expected = digamma(0.5 * (nu - np.arange(Q))).sum() + Q * np.log(2) + np.linalg.slogdet(W)[1]
    return prior.rows + q.counts[k], nu, W, expected


def log_integral(x, q, prior, k):
    """ln of the integral over z and the missing entries of exp E_q[ln p(x, z | k)], a Gaussian integral."""
    V, a, b = row_posteriors(q.of_rows(Q), prior, 0)
    scale, nu, W, log_det = wishart_of(q, prior, k)
    A = np.zeros((D + Q + 1, D + Q + 1))
    constant = 0.5 * log_det - 0.5 * Q * np.log(2 * np.pi) - 0.5 * Q / scale
    for d in range(D):
        residual = np.zeros(D + Q + 1)
        residual[d], residual[D:] = 1.0, -np.append(q.loadings[d], q.mean[d])
        A += a / b[d] * np.outer(residual, residual)
        A[D:, D:] += V
        constant += 0.5 * (digamma(a) - np.log(b[d]) - np.log(2 * np.pi))
    apart = np.column_stack([np.eye(Q), -q.latent_means[k]])  # z - m
    A[D:, D:] += nu * apart.T @ W @ apart
    known = np.append(np.isfinite(x), [False] * Q + [True])
    values = np.append(np.nan_to_num(x), [0.0] * Q + [1.0])[known]
    hidden, linear = A[~known][:, ~known], A[~known][:, known] @ values
    constant += 0.5 * linear @ np.linalg.solve(hidden, linear) - 0.5 * values @ A[known][:, known] @ values
    return constant + 0.5 * len(hidden) * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(hidden)[1]


def divergence_of_factors(q, prior, k):
    """KL of the posterior of xi and Lambda of component k, from scipy's entropy and densities."""
    b, nu, W, log_det = wishart_of(q, prior, k)
    nu_0, b_0, m = Q - 1 + prior.rows, prior.rows, q.latent_means[k]
    W_0 = np.eye(Q) / nu_0
    p = stats.wishart(nu_0, W_0)
    norm = p.logpdf(np.eye(Q)) + 0.5 * nu_0 * Q  # at Lambda = I, without its only other term
    expected = norm + 0.5 * (nu_0 - Q - 1) * log_det - 0.5 * nu_0 * nu * np.trace(W)
    found = -stats.wishart(nu, W).entropy() - expected
    of_mean = 0.5 * (Q * b_0 / b + b_0 * nu * m @ W @ m)  # of xi given Lambda
    return found + of_mean + 0.5 * Q * (np.log(b / b_0) - 1.0)


def bound(kernel, params, X, weight=None):
    block = Block(np.nan_to_num(X), np.ones(len(X)) if weight is None else weight, observed=np.isfinite(X))
    return float(kernel.e_step(kernel.prepare(params), block).log_likelihood) + kernel.log_prior(params)


def stepped(kernel, params, X):
    block = Block(np.nan_to_num(X), np.ones(len(X)), observed=np.isfinite(X))
    density = kernel.prepare(params)
    return kernel.m_step(kernel.stats(density, kernel.e_step(density, block)), params)


@pytest.mark.parametrize("process", [True, False])
def test_the_bound_is_the_sum_of_its_terms(process):
    rng = np.random.default_rng(0)
    q, prior, X = any_posterior(rng), prior_of(rng), rows_with_holes(rng)
    weight = rng.uniform(0.5, 2.0, len(X))
    kernel = VariationalMixture(
        PosteriorCommon(Q, np.zeros(D), prior=prior), process=process, concentration=0.7
    )
    logs, of_weights = log_weights(q.counts, process, 0.7)
    expected = -of_weights - divergence(q.of_rows(Q), prior, 0)
    expected -= sum(divergence_of_factors(q, prior, k) for k in range(K))
    for x, w in zip(X, weight, strict=True):
        of_components = [logs[k] + log_integral(x, q, prior, k) for k in range(K)]
        expected += w * np.logaddexp.reduce(of_components)
    np.testing.assert_allclose(bound(kernel, kernel.with_weights(q), X, weight), expected, rtol=1e-9)


def test_no_step_lowers_the_bound_from_wherever_it_starts():
    rng = np.random.default_rng(1)
    for _ in range(40):
        q, prior, X = any_posterior(rng, 3), prior_of(rng), rows_with_holes(rng, 30)
        kernel = VariationalMixture(PosteriorCommon(Q, np.zeros(D), prior=prior), concentration=0.5)
        params, before = kernel.with_weights(q), -np.inf
        for _ in range(6):
            after = bound(kernel, params, X)
            assert after >= before - 1e-9 * abs(before)
            params, before = stepped(kernel, params, X), after


def test_every_part_of_the_posterior_is_the_best():
    """At the end of a fit the bound falls in all directions, so that each update maximises it."""
    rng = np.random.default_rng(2)
    X = planted(2, n=40, n_features=D, noise=0.5)
    X[rng.random(X.shape) < 0.1] = np.nan
    model = BayesianMCFA(3, 2, tol=1e-14, max_iter=20_000, n_init=2, random_state=0).fit(X)
    problem = model._problem_of_fitted(model._data(X, reset=False))
    params = problem.to_frame(model._fitted_model().params)
    there = problem.frame.enter(Block(X, None, observed=None)).X
    kernel, q = problem.kernel, params.components
    best = bound(kernel, params, there)
    for name in vars(q):
        array = getattr(q, name)
        for _ in range(5):
            step = 1e-3 * rng.normal(size=array.shape)
            if name in ("moments", "latent_covariances"):
                step = step + np.swapaxes(step, -1, -2)
            relative = name in ("noise_variance", "relevances", "counts")
            for sign in (1, -1):
                moved = array * (1 + sign * step) if relative else array + sign * step
                assert bound(kernel, kernel.with_weights(replace(q, **{name: moved})), there) < best + 1e-7, (
                    name
                )


def test_a_factor_goes_where_the_bound_gains_by_it():
    """Also with missing entries; those that are left come first."""
    rng, gains = np.random.default_rng(3), []
    for _ in range(30):
        q, prior, X = any_posterior(rng), prior_of(rng), rows_with_holes(rng, 40)
        kernel = VariationalMixture(PosteriorCommon(Q, np.zeros(D), prior=prior), concentration=0.5)
        params = kernel.with_weights(q)
        for _ in range(6):
            before, params = params, stepped(kernel, params, X)
            left = params.components
            if left.n_active < before.components.n_active:
                gains.append(bound(kernel, params, X) - bound(kernel, before, X))
                assert np.all(left.loadings[:, left.n_active :] == 0) and left.relevances[-2] == LARGEST
    assert len(gains) > 10 and min(gains) > 0


def test_a_factor_that_was_taken_out_has_no_part_in_the_bound():
    rng = np.random.default_rng(4)
    prior, X = prior_of(rng), rows_with_holes(rng)
    q = replace(any_posterior(rng), loadings=np.zeros((D, Q)), relevances=np.array([LARGEST, LARGEST, 1.0]))
    moments = np.zeros((Q + 1, Q + 1))
    moments[-1, -1] = 1.0
    one = np.broadcast_to(np.eye(Q), (K, Q, Q))
    q = replace(q, moments=moments, latent_means=np.zeros((K, Q)), latent_covariances=one)
    narrow = replace(
        q,
        loadings=np.zeros((D, 1)),
        relevances=q.relevances[1:],
        moments=moments[1:, 1:],
        latent_means=np.zeros((K, 1)),
        latent_covariances=one[:, 1:, 1:],
    )
    bounds = []
    for one in (q, narrow):
        kernel = VariationalMixture(PosteriorCommon(one.loadings.shape[1], np.zeros(D), prior=prior))
        bounds.append(bound(kernel, kernel.with_weights(one), X))
    np.testing.assert_allclose(*bounds, rtol=1e-9)


def planted(seed, n=100, n_features=8, n_factors=2, apart=4.0, noise=0.6):
    """Three components in a common space of two factors, away from the origin."""
    rng = np.random.default_rng(seed)
    loadings, parts = rng.normal(size=(n_features, n_factors)), []
    angles = 2 * np.pi * (rng.random() + np.arange(3) / 3)
    for k in range(3):
        turn = np.linalg.qr(rng.normal(size=(n_factors, n_factors)))[0] * rng.uniform(0.5, 1.2, n_factors)
        centre = apart * np.array([np.cos(angles[k]), np.sin(angles[k])])
        z = centre + rng.normal(size=(n, n_factors)) @ turn.T
        parts.append(z @ loadings.T + noise * rng.normal(size=(n, n_features)))
    return np.concatenate(parts) + 7.0


@pytest.mark.parametrize("seed", range(5))
def test_planted_components_and_factors_are_found(seed):
    model = BayesianMCFA(6, 5, random_state=seed).fit(planted(seed))
    assert model.n_components_ == 3 and model.n_factors_ == 2
    assert model.loadings_.shape == (8, 2)
    np.testing.assert_allclose(model.counts_, 100, atol=4)


@pytest.mark.parametrize("accelerate", [None, "squarem"])
def test_the_bound_never_falls(accelerate):
    X = planted(1, n=40)
    rng = np.random.default_rng(2)
    X[rng.random(X.shape) < 0.15] = np.nan
    for weight_prior in ("dirichlet_process", "dirichlet"):
        options = {"weight_prior": weight_prior, "accelerate": accelerate, "tol": 0, "random_state": 0}
        model = BayesianMCFA(6, 4, n_init=1, max_iter=40, **options)
        model.fit(X, sample_weight=rng.integers(3, size=len(X)))
        assert np.diff(model.history_).min() > -1e-11


def test_more_components_than_needed_cost_nothing():
    X = planted(0, n=60)
    bounds = [BayesianMCFA(k, 3, concentration=0.1, random_state=0).fit(X).history_[-1] for k in (3, 6)]
    np.testing.assert_allclose(*bounds, atol=1e-3)


def test_the_origin_does_not_matter():
    X = planted(0, n=40)
    here, there = (BayesianMCFA(4, 3, random_state=0).fit(rows) for rows in (X, X + 1e6))
    np.testing.assert_allclose(there.history_[-1], here.history_[-1], atol=1e-5)
    np.testing.assert_allclose(there.mean_ - 1e6, here.mean_, atol=1e-3)


def test_new_rows_have_the_distribution_of_the_posterior():
    """Means and covariances of rows of one component, each with its own parameters from q."""
    rng = np.random.default_rng(3)
    model = BayesianMCFA(1, 2, random_state=0).fit(planted(2, n=30, n_features=4))
    n, q, (D_, u) = 100_000, model._posterior(), model.loadings_.shape
    r, N = float(model.prior_rows_), float(model.counts_[0])
    nu = u - 1 + r + N
    Lambda = stats.wishart(nu, np.linalg.inv(nu * model.latent_covariances_[0])).rvs(n, random_state=rng)
    inverse = np.linalg.inv(np.reshape(Lambda, (n, u, u)))
    root = np.linalg.cholesky(inverse * (1 + 1 / (r + N)))  # of z about m: that of xi, too
    z = model.latent_means_[0] + (root @ rng.normal(size=(n, u, 1)))[..., 0]
    h, drawn = np.column_stack([z, np.ones(n)]), np.empty((n, D_))
    for d in range(D_):
        a = 0.5 * (r + N)
        tau = rng.gamma(a, 1 / (a * model.noise_variance_[d]), size=n)
        noise = rng.multivariate_normal(np.zeros(u + 1), q.spread, size=n) / np.sqrt(tau)[:, None]
        rows = np.append(model.loadings_[d], model.mean_[d]) + noise
        drawn[:, d] = np.sum(h * rows, axis=1) + rng.normal(size=n) / np.sqrt(tau)
    degrees = r + N
    covariance, width = model.covariances_[0] * degrees / (degrees - 2), drawn.std(axis=0)
    assert np.max(np.abs(drawn.mean(axis=0) - model.means_[0]) / width) < 0.02
    assert np.max(np.abs(np.cov(drawn.T) - covariance) / np.outer(width, width)) < 0.02 + 2 / degrees


def test_rows_are_those_of_a_mixture_of_factor_analysers(tmp_path):
    X = planted(3, n=40)
    model = BayesianMCFA(5, 4, random_state=0).fit(X)
    X[::3, 2] = np.nan
    plain = model.predictive()
    for one in (plain, model.rotate("varimax"), model.align_factors()):
        np.testing.assert_allclose(one.score_samples(X), model.score_samples(X))
    np.testing.assert_allclose(model.impute(X), plain.impute(X))
    assert model.communalities().equals(plain.communalities())
    complete = planted(3, n=40)
    rebuilt = model.inverse_transform(model.transform(complete))
    np.testing.assert_allclose(rebuilt, model.reconstruct(complete))
    assert np.sqrt(np.mean((rebuilt - complete) ** 2)) < 0.7
    model.save(tmp_path / "m.latently")
    loaded = latently.load(tmp_path / "m.latently")
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))
    assert loaded.n_factors_ == model.n_factors_
    again = loaded.partial_fit(X)
    assert again.n_components_ == model.n_components_ and np.isfinite(again.score(X))
    fitted = {name.rstrip("_"): getattr(model, name) for name in (
        "mean_", "loadings_", "latent_means_", "latent_covariances_", "noise_variance_", "counts_",
        "relevances_", "factor_moments_", "prior_mean_", "prior_noise_", "prior_rows_",
    )}  # fmt: skip
    made = BayesianMCFA.from_parameters(**fitted, concentration=0.2)
    np.testing.assert_allclose(made.score_samples(X), model.score_samples(X))


def test_the_density_is_close_to_that_of_maximum_likelihood():
    X, new = planted(4), planted(4, n=400)
    model, plain = (
        BayesianMCFA(6, 5, random_state=0).fit(X),
        MCFA(3, 2, random_state=0).fit(X - X.mean(axis=0)),
    )
    assert model.score(X) == pytest.approx(plain.score(X - X.mean(axis=0)), abs=0.3)
    assert model.n_parameters() == 2 + 2 * 8 + 8 * 2 - 4 - 2 + 3 * 2 + 3 * 3 and np.isfinite(model.bic(new))


def test_later_batches_start_from_the_posterior():
    """The statistics that a posterior implies give it back."""
    X = planted(0, n=60)
    model = BayesianMCFA(3, 2, random_state=0, tol=1e-13, max_iter=5000).fit(X)
    problem = model._problem_of_fitted(model._data(X, reset=False))
    q = problem.to_frame(model._fitted_model().params).components
    back = problem.kernel.family.m_step(problem.kernel.family.implied_stats(q, None), q)
    for name in ("mean", "loadings", "noise_variance", "counts", "latent_means", "latent_covariances"):
        np.testing.assert_allclose(getattr(back, name), getattr(q, name), rtol=1e-3, atol=1e-3, err_msg=name)


def test_labels_keep_all_components():
    X = planted(1, n=30)
    y = np.repeat([3, 0, 1], 30)
    model = BayesianMCFA(4, 3, random_state=0).fit(X, np.where(np.arange(90) % 2, y, -1))
    assert model.n_components_ == 4 and np.mean(model.predict(X) == y) > 0.95


@pytest.mark.parametrize("n_features", [1, 3])
def test_noise_has_no_factors(n_features):
    X = np.random.default_rng(0).normal(size=(60, n_features))
    model = BayesianMCFA(3, 7, random_state=0).fit(X)
    assert model.n_components_ == 1 and model.n_factors_ == 0
    assert model.loadings_.shape == (n_features, 1) and np.all(model.loadings_ == 0)
    assert np.isfinite(model.score(X)) and model.transform(X).shape == (60, 1)


def test_starting_values():
    X = planted(0, n=30)
    start = BayesianMCFA(3, 2, random_state=0, n_init=1).fit(X)
    given = {
        "mean_init": start.mean_,
        "loadings_init": start.loadings_,
        "latent_means_init": start.latent_means_,
        "latent_covariances_init": start.latent_covariances_,
        "noise_init": start.noise_variance_,
        "counts_init": start.counts_,
    }
    model = BayesianMCFA(3, 2, max_iter=60, **given).fit(X)
    np.testing.assert_allclose(model.history_[-1], start.history_[-1], atol=0.02)
    part = {"loadings_init": start.loadings_, "mean_init": start.mean_}
    np.testing.assert_allclose(BayesianMCFA(3, 2, **part).fit(X).history_[-1], start.history_[-1], atol=0.05)


def test_bad_options_are_named():
    X = np.random.default_rng(0).normal(size=(30, 3))
    for name, value in (("prior", None), ("concentration", 0.0), ("n_factors", 0), ("n_components", 0)):
        with pytest.raises(ValueError, match=name):
            BayesianMCFA(**{name: value}).fit(X)
    with pytest.raises(ValueError, match="noise_init"):
        BayesianMCFA(2, 1, noise_init=-1.0).fit(X)
    with pytest.raises(ValueError, match="needs loadings_init"):
        BayesianMCFA(2, 1, latent_means_init=np.zeros((2, 1))).fit(X)


def test_an_extrapolation_has_as_many_rows():
    """Of components that vanish, logarithms of counts may be extrapolated to any size."""
    rng = np.random.default_rng(0)
    kernel = VariationalMixture(PosteriorCommon(Q, np.zeros(D), prior=prior_of(rng)))
    params = kernel.with_weights(any_posterior(rng))
    vector = kernel.to_vector(params)
    np.testing.assert_allclose(kernel.from_vector(vector, params).components.counts, params.components.counts)
    vector[-1] += 95.0  # the last of the logarithms of the counts
    far = kernel.from_vector(vector, params)
    np.testing.assert_allclose(far.components.counts.sum(), params.components.counts.sum())
    assert kernel.log_prior(far) < 0
