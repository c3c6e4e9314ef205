"""Variational Bayes of factor models: the bound term by term, density of new rows, numbers of parts found."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma

import latently
from latently.core.block import Block
from latently.distributions.low_rank import LowRankStats
from latently.distributions.variational import VariationalMixture
from latently.distributions.variational_factors import FactorPosterior, FactorPrior, PosteriorFactors
from latently.mixture import BayesianMFA
from latently.selection import select

K, D, Q = 2, 4, 2


def any_posterior(rng):
    """Some q, far from the best."""
    roots = rng.normal(size=(K, Q + 1, Q + 3))
    moments = roots @ roots.transpose(0, 2, 1) / Q
    moments /= moments[:, -1:, -1:]
    return FactorPosterior(
        rng.normal(size=(K, D)),
        rng.normal(size=(K, D, Q)),
        rng.uniform(0.5, 2.0, (K, D)),
        np.array([11.0, 7.0]),
        rng.uniform(0.2, 3.0, (K, Q + 1)),
        moments,
    )


def prior_of(rng):
    return FactorPrior(1.5, 0.3 * rng.normal(size=D), rng.uniform(0.5, 1.5, D))


def rows_with_holes(rng, n=9):
    X = rng.normal(size=(n, D)) * 2
    X[rng.random(X.shape) < 0.3] = np.nan
    X[0] = 1.0  # a complete row
    return X


def row_posteriors(q, prior, k):
    """Of every feature: the covariance of (l, mu) in units of the noise, and a and b of its precision."""
    V = np.linalg.inv(np.diag(q.relevances[k]) + q.counts[k] * q.moments[k])
    a = 0.5 * (prior.rows + q.counts[k])
    return V, a, a * q.noise_variance[k]


def quadratic_form(x, q, prior, k):
    """Which of y = (x, z, 1) are known, their values, and A and c of E_q[ln p(x, z | k)] = c - 1/2 y'A y."""
    V, a, b = row_posteriors(q, prior, k)
    A, constant = np.zeros((D + Q + 1, D + Q + 1)), -0.5 * Q * np.log(2 * np.pi)
    for d in range(D):
        residual = np.zeros(D + Q + 1)
        residual[d], residual[D:] = 1.0, -np.append(q.loadings[k, d], q.means[k, d])
        A += a / b[d] * np.outer(residual, residual)
        A[D:, D:] += V  # E[tau l l'] = E[tau] m m' + V
        constant += 0.5 * (digamma(a) - np.log(b[d]) - np.log(2 * np.pi))
    A[D : D + Q, D : D + Q] += np.eye(Q)
    known = np.append(np.isfinite(x), [False] * Q + [True])
    return known, np.append(np.nan_to_num(x), [0.0] * Q + [1.0])[known], A, constant


def log_integral(x, q, prior, k):
    """ln of the integral over z and the missing entries of exp E_q[ln p(x, z | k)]."""
    known, values, A, constant = quadratic_form(x, q, prior, k)
    hidden = A[~known][:, ~known]
    linear = A[~known][:, known] @ values
    constant += 0.5 * linear @ np.linalg.solve(hidden, linear) - 0.5 * values @ A[known][:, known] @ values
    return constant + 0.5 * len(hidden) * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(hidden)[1]


def divergence(q, prior, k):
    """KL of the posterior of component k, from entropies and expected log densities, feature by feature."""
    V, a, b = row_posteriors(q, prior, k)
    found = 0.0
    for d in range(D):
        log_tau, tau = digamma(a) - np.log(b[d]), a / b[d]
        apart = np.append(q.loadings[k, d], q.means[k, d] - prior.mean[d])
        found -= stats.multivariate_normal(cov=V).entropy() - 0.5 * (Q + 1) * log_tau
        for j in range(Q + 1):
            alpha = q.relevances[k, j]
            expected_square = tau * apart[j] ** 2 + V[j, j]  # of the coefficient, times tau
            found -= 0.5 * (np.log(alpha) + log_tau - np.log(2 * np.pi) - alpha * expected_square)
        found -= stats.gamma(a, scale=1 / b[d]).entropy()
        p = stats.gamma(0.5 * prior.rows, scale=2 / (prior.rows * prior.noise[d]))
        found -= stats.gamma.expect(p.logpdf, (a,), scale=1 / b[d])  # by quadrature
    return found


def log_weights(counts, process, concentration):
    """E[ln pi] and KL(q(pi) || p): of sticks in the order of the counts, or of a Dirichlet distribution."""
    if not process:
        alpha = concentration + counts
        p, q = stats.dirichlet(np.full(K, concentration)), stats.dirichlet(alpha)
        logs = digamma(alpha) - digamma(alpha.sum())
        log_norm = p.logpdf(np.full(K, 1 / K)) - (concentration - 1) * K * np.log(1 / K)
        return logs, -q.entropy() - log_norm - (concentration - 1) * logs.sum()
    logs, rest, found = np.zeros(K), 0.0, 0.0
    for position, k in enumerate(np.argsort(-counts)):
        later = np.sort(counts)[: K - 1 - position].sum()
        a, b = 1 + counts[k], concentration + later
        own, other = digamma(a) - digamma(a + b), digamma(b) - digamma(a + b)
        logs[k], rest = rest + own, rest + other
        found += -stats.beta(a, b).entropy() - np.log(concentration) - (concentration - 1) * other
    return logs, found


@pytest.mark.parametrize("process", [True, False])
def test_the_bound_is_the_sum_of_its_terms(process):
    rng = np.random.default_rng(0)
    q, prior, X = any_posterior(rng), prior_of(rng), rows_with_holes(rng)
    weight = rng.uniform(0.5, 2.0, len(X))
    family = PosteriorFactors(Q, np.zeros(D), prior=prior)
    kernel = VariationalMixture(family, process=process, concentration=0.7)
    logs, expected = log_weights(q.counts, process, 0.7)
    expected = -expected - sum(divergence(q, prior, k) for k in range(K))
    for x, w in zip(X, weight, strict=True):
        of_components = [logs[k] + log_integral(x, q, prior, k) for k in range(K)]
        expected += w * np.logaddexp.reduce(of_components)
    params = kernel.with_weights(q)
    block = Block(np.nan_to_num(X), weight, observed=np.isfinite(X))
    told = float(kernel.e_step(kernel.prepare(params), block).log_likelihood) + kernel.log_prior(params)
    np.testing.assert_allclose(told, expected, rtol=1e-9)


def test_statistics_are_moments_of_what_is_hidden():
    rng = np.random.default_rng(1)
    q, prior, X = any_posterior(rng), prior_of(rng), rows_with_holes(rng)
    kernel = VariationalMixture(PosteriorFactors(Q, np.zeros(D), prior=prior))
    density = kernel.prepare(kernel.with_weights(q))
    first = np.eye(K, dtype=bool)[np.zeros(len(X), dtype=int)]
    block = Block(np.nan_to_num(X), None, first, np.isfinite(X))
    found = kernel.stats(density, kernel.e_step(density, block)).components
    S = np.zeros((D + Q + 1, D + Q + 1))
    for x in X:
        known, values, A, _ = quadratic_form(x, q, prior, 0)
        covariance = np.linalg.inv(A[~known][:, ~known])
        y = np.zeros(D + Q + 1)
        y[known], y[~known] = values, -covariance @ A[~known][:, known] @ values
        S += np.outer(y, y)
        S[np.ix_(~known, ~known)] += covariance
    x, z, one = slice(0, D), slice(D, D + Q), D + Q
    for told, moments in (
        (found.sum_zz, S[z, z]), (found.sum_zx, S[z, x]), (found.sum_z, S[z, one]), (found.sum_x, S[one, x])
    ):  # fmt: skip
        np.testing.assert_allclose(told[0], moments, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.sum_square[0], np.diag(S)[x], rtol=1e-9)


def planted(seed, n=120, n_features=8, n_factors=2, apart=2.5):
    """Three components of two factors."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(3):
        loadings = 1.2 * rng.normal(size=(n_features, n_factors))
        noise = rng.normal(size=(n, n_features)) * rng.uniform(0.3, 0.7, n_features)
        parts.append(
            apart * rng.normal(size=n_features) + rng.normal(size=(n, n_factors)) @ loadings.T + noise
        )
    return np.concatenate(parts)


@pytest.mark.parametrize("seed", range(4))
def test_planted_components_and_factors_are_found(seed):
    model = BayesianMFA(6, 5, random_state=seed).fit(planted(seed))
    assert model.n_components_ == 3 and model.n_factors_.tolist() == [2, 2, 2]
    assert model.loadings_.shape == (3, 8, 2)
    np.testing.assert_allclose(model.counts_, 120, atol=2)


@pytest.mark.parametrize("accelerate", [None, "squarem"])
def test_the_bound_never_falls(accelerate):
    X = planted(1, n=40)
    rng = np.random.default_rng(2)
    X[rng.random(X.shape) < 0.15] = np.nan
    for weight_prior in ("dirichlet_process", "dirichlet"):
        model = BayesianMFA(
            6,
            4,
            weight_prior=weight_prior,
            accelerate=accelerate,
            n_init=1,
            max_iter=25,
            tol=0,
            random_state=0,
        )
        model.fit(X, sample_weight=rng.integers(3, size=len(X)))
        assert np.diff(model.history_).min() > -1e-11


def test_next_to_nothing_of_a_row_may_still_have_factors_of_any_size():
    """Where one row has all the weight, others are far away and their squares are sums like any other."""
    rng = np.random.default_rng(3)
    family = PosteriorFactors(Q, np.zeros(D), prior=prior_of(rng))
    before, y = any_posterior(rng), rng.normal(size=(9, Q + D))
    S = np.stack([y.T @ y] * K)  # of (z, x)
    noise = []
    for count in (2e-9, 2e-10, 2e-11, 2e-13):
        none = np.zeros((K, D + Q))
        sums = LowRankStats(
            weight=np.full(K, count),
            sum_x=none[:, Q:],
            sum_z=none[:, :Q],
            sum_zx=S[:, :Q, Q:],
            sum_zz=S[:, :Q, :Q],
            sum_square=np.diagonal(S, axis1=1, axis2=2)[:, Q:],
        )
        noise.append(family.m_step(sums, before).noise_variance)
    np.testing.assert_allclose(noise, np.broadcast_to(noise[0], np.shape(noise)), rtol=1e-6)


def test_the_bound_never_falls_where_one_row_has_all_the_weight():
    rng = np.random.default_rng(13)
    X = np.round(8 * rng.normal(size=(26, 2))) / 8
    X[0, 0] = np.nan
    X[1:][rng.random((25, 2)) < 0.2] = np.nan
    weight = np.where(np.arange(26) == 0, 1.0, 1e-16)
    model = BayesianMFA(2, 1, n_init=1, max_iter=30, tol=0, init="k-means++", random_state=13)
    assert np.all(np.isfinite(model.fit(X, sample_weight=weight).history_))


def test_more_components_than_needed_cost_nothing():
    X = planted(0, n=60)
    bounds = [BayesianMFA(k, 3, concentration=0.1, random_state=0).fit(X).history_[-1] for k in (3, 6)]
    np.testing.assert_allclose(*bounds, atol=1e-3)


def drawn_rows(model, rng, n):
    """(n, D) new rows of one component, each with its own parameters from q."""
    D, q = model.means_.shape[1], model.loadings_.shape[-1]
    V = np.linalg.inv(np.diag(model.relevances_[0]) + model.counts_[0] * model.factor_moments_[0])
    a = 0.5 * (float(model.prior_rows_) + model.counts_[0])
    z = np.column_stack([rng.normal(size=(n, q)), np.ones(n)])
    drawn = np.empty((n, D))
    for d in range(D):
        tau = rng.gamma(a, 1 / (a * model.noise_variance_[0, d]), size=n)
        centre = np.append(model.loadings_[0, d], model.means_[0, d])
        coefficients = centre + rng.multivariate_normal(np.zeros(q + 1), V, size=n) / np.sqrt(tau)[:, None]
        drawn[:, d] = np.sum(z * coefficients, axis=1) + rng.normal(size=n) / np.sqrt(tau)
    return drawn


def test_new_rows_have_the_distribution_of_the_posterior():
    rng = np.random.default_rng(3)
    X = planted(2, n=5, n_features=4, n_factors=1)
    exact = BayesianMFA(1, 0, random_state=0).fit(X)
    for d in range(4):  # of one feature and no factors it is exact
        column = drawn_rows(exact, rng, 4_000)[:, d]
        scale = np.sqrt(exact.covariances_[0, d, d])
        degrees = exact.counts_[0] + float(exact.prior_rows_)
        assert stats.kstest((column - exact.means_[0, d]) / scale, stats.t(degrees).cdf).pvalue > 1e-4
    model = BayesianMFA(1, 2, random_state=0).fit(planted(2, n=30, n_features=4, n_factors=1))
    degrees = model.counts_[0] + float(model.prior_rows_)
    covariance = model.covariances_[0] * degrees / (degrees - 2)
    drawn, width = drawn_rows(model, rng, 100_000), np.sqrt(np.diag(covariance))
    assert np.max(np.abs(drawn.mean(axis=0) - model.means_[0]) / width) < 0.02
    assert np.max(np.abs(np.cov(drawn.T) - covariance) / np.outer(width, width)) < 0.02 + 2 / degrees


def test_rows_are_those_of_a_mixture_of_factor_analysers(tmp_path):
    X = planted(3, n=40)
    model = BayesianMFA(5, 4, random_state=0).fit(X)
    X[::3, 2] = np.nan
    plain = model.predictive()
    for one in (plain, model.rotate("varimax"), model.align_factors()):
        np.testing.assert_allclose(one.score_samples(X), model.score_samples(X))
    np.testing.assert_allclose(model.transform(X), plain.transform(X))
    np.testing.assert_allclose(model.impute(X), plain.impute(X))
    assert model.communalities().equals(plain.communalities())
    model.save(tmp_path / "m.latently")
    loaded = latently.load(tmp_path / "m.latently")
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))
    assert loaded.n_factors_.tolist() == model.n_factors_.tolist()
    again = loaded.partial_fit(X)
    assert again.n_components_ == model.n_components_ and np.isfinite(again.score(X))


def test_later_batches_start_from_the_posterior():
    """The statistics that a posterior implies give it back."""
    X = planted(0, n=60)
    model = BayesianMFA(3, 2, random_state=0, tol=1e-12, max_iter=5000).fit(X)
    problem = model._problem_of_fitted(model._data(X, reset=False))
    q = problem.to_frame(model._fitted_model().params).components
    back = problem.kernel.family.m_step(problem.kernel.family.implied_stats(q, None), q)
    for name in ("means", "loadings", "noise_variance", "counts"):
        np.testing.assert_allclose(getattr(back, name), getattr(q, name), rtol=1e-3, atol=1e-4)


def test_labels_keep_all_components():
    X = planted(1, n=30)
    y = np.repeat([3, 0, 1], 30)
    model = BayesianMFA(4, 3, random_state=0).fit(X, np.where(np.arange(90) % 2, y, -1))
    assert model.n_components_ == 4 and np.mean(model.predict(X) == y) > 0.95


@pytest.mark.parametrize("n_factors", [0, 7])
def test_as_many_factors_as_features_allow(n_factors):
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = BayesianMFA(3, n_factors, random_state=0).fit(X)
    assert model.loadings_.shape[1:] == (3, 0) and np.isfinite(model.score(X))
    assert model.n_components_ == 1 and model.n_parameters() == 6


def test_starting_values():
    X = planted(0, n=30)
    start = BayesianMFA(3, 2, random_state=0, n_init=1).fit(X)
    given = {
        "means_init": start.means_,
        "loadings_init": start.loadings_,
        "noise_init": start.noise_variance_,
        "counts_init": start.counts_,
    }
    model = BayesianMFA(3, 2, max_iter=30, **given).fit(X)
    np.testing.assert_allclose(model.history_[-1], start.history_[-1], atol=0.02)


def test_select_compares_priors():
    X = planted(0, n=30)
    found = select(BayesianMFA(4, 3, random_state=0), X, {"prior": [0.5, 2.0]}, criterion="bic")
    assert found.best_.n_components_ == 3


def test_bad_options_are_named():
    X = np.random.default_rng(0).normal(size=(30, 3))
    for name, value in (("prior", None), ("concentration", 0.0), ("n_factors", -1), ("n_components", 0)):
        with pytest.raises(ValueError, match=name):
            BayesianMFA(**{name: value}).fit(X)
    with pytest.raises(ValueError, match="noise_init"):
        BayesianMFA(2, 1, noise_init=-1.0).fit(X)
