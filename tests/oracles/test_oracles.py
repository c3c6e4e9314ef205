"""Tests of the oracles: properties that pin them down without the library."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import optimize, stats

from . import mcfa, missing
from . import mixtures as oracle

SEEDS = [0, 1]
MFA_VARIANTS = [(t, s) for t in oracle.NOISE_TYPES for s in (False, True)]


# ---------------------------------------------------------------------------------- instances


def data(seed, N=40, D=4):
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=2.0, size=(3, D))
    shape = rng.normal(size=(3, D, D))
    labels = rng.integers(3, size=N)
    noise = rng.normal(size=(N, D))
    return np.array([centres[k] + shape[k] @ e for k, e in zip(labels, noise, strict=True)])


def row_weights(seed, N=40):
    return np.random.default_rng(seed + 100).uniform(0.2, 3.0, size=N)


def gmm_start(seed, covariance_type="full", D=4, K=2):
    rng = np.random.default_rng(seed + 200)
    weights = rng.dirichlet(np.full(K, 5.0))
    means = rng.normal(scale=2.0, size=(K, D))
    roots = rng.normal(size=(K, D, D))
    covs = np.array([A @ A.T + np.eye(D) for A in roots])
    if covariance_type == "tied":
        covs = np.array([covs[0]] * K)
    elif covariance_type == "diag":
        covs = np.array([np.diag(np.diag(cov)) for cov in covs])
    elif covariance_type == "spherical":
        covs = np.array([cov[0, 0] * np.eye(D) for cov in covs])
    return weights, means, covs


def mfa_start(seed, noise_type="diagonal", shared_noise=False, D=4, K=2, q=2):
    rng = np.random.default_rng(seed + 300)
    weights = rng.dirichlet(np.full(K, 5.0))
    means = rng.normal(scale=2.0, size=(K, D))
    loadings = rng.normal(size=(K, D, q))
    noise = rng.uniform(0.3, 2.0, size=(K, D))
    if noise_type == "isotropic":
        noise = np.repeat(noise[:, :1], D, axis=1)
    if shared_noise:
        noise = np.repeat(noise[:1], K, axis=0)
    return weights, means, loadings, noise


def mcfa_start(seed, D=4, K=2, q=2):
    rng = np.random.default_rng(seed + 500)
    weights = rng.dirichlet(np.full(K, 5.0))
    roots = rng.normal(size=(K, q, q))
    latent_covs = np.array([R @ R.T + np.eye(q) for R in roots])
    latent_means, noise = rng.normal(scale=2.0, size=(K, q)), rng.uniform(0.3, 2.0, size=D)
    return weights, rng.normal(size=(D, q)), latent_means, latent_covs, noise


def density_arguments(params):
    weights, means, loadings, noise = params
    return weights, means, oracle.covariances(loadings, noise)


def gradient(f, theta, h=1e-5):
    out = np.empty(len(theta))
    for i in range(len(theta)):
        step = np.zeros(len(theta))
        step[i] = h
        out[i] = (f(theta + step) - f(theta - step)) / (2 * h)
    return out


# --------------------------------------------------------------------------- densities, factors


@pytest.mark.parametrize("seed", SEEDS)
def test_densities_agree_with_scipy(seed):
    X, (weights, means, covs) = data(seed), gmm_start(seed)
    density = np.zeros(len(X))
    for k, weight in enumerate(weights):
        component = weight * stats.multivariate_normal(means[k], covs[k]).pdf(X)
        joint = oracle.log_joint(X, weights, means, covs)[:, k]
        np.testing.assert_allclose(np.exp(joint), component, rtol=1e-10)
        density += component
    log_density = oracle.log_density(X, weights, means, covs)
    np.testing.assert_allclose(np.exp(log_density), density, rtol=1e-10)
    r = oracle.responsibilities(X, weights, means, covs)
    np.testing.assert_allclose(r.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(r * density[:, None], np.exp(joint_of(X, weights, means, covs)))


def joint_of(X, weights, means, covs):
    return (
        np.log(weights)
        + np.array([stats.multivariate_normal(m, c).logpdf(X) for m, c in zip(means, covs, strict=True)]).T
    )


def test_far_row_keeps_finite_log_density():
    weights, means, covs = gmm_start(0)
    X = np.full((1, 4), 1e4)
    assert np.isfinite(oracle.log_density(X, weights, means, covs)).all()
    np.testing.assert_allclose(oracle.responsibilities(X, weights, means, covs).sum(), 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_covariances_are_those_of_samples(seed):
    rng = np.random.default_rng(seed)
    _, _, loadings, noise = mfa_start(seed, K=1)
    z = rng.normal(size=(200_000, 2))
    x = z @ loadings[0].T + rng.normal(size=(200_000, 4)) * np.sqrt(noise[0])
    cov = oracle.covariances(loadings, noise)[0]
    error = np.abs(np.cov(x.T) - cov)
    deviation = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / 200_000)
    assert (error < 5 * deviation).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("q", [0, 1, 3, 5])
def test_factor_posterior_is_that_of_section_0(seed, q):
    X, (_, means, loadings, noise) = data(seed), mfa_start(seed, q=q)
    z_means, z_covs = oracle.factor_posterior(X, means, loadings, noise)
    assert z_means.shape == (len(X), 2, q)
    for k in range(2):
        L, precision = loadings[k], np.diag(1 / noise[k])
        B = np.eye(q) + L.T @ precision @ L
        np.testing.assert_allclose(z_covs[k], np.linalg.inv(B), atol=1e-10)
        expected = np.linalg.solve(B, L.T @ precision @ (X - means[k]).T).T
        np.testing.assert_allclose(z_means[:, k], expected, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_expectations_agree_with_importance_sampling(seed):
    """Draws of (k, z) from the prior, weighted by p(x | k, z): no posterior formula at all."""
    rng = np.random.default_rng(seed)
    n_draws = 200_000
    params = mfa_start(seed, D=3, q=1)
    weights, means, loadings, noise = params
    x = means[0] + 0.5
    k = rng.choice(2, size=n_draws, p=weights)
    z = rng.normal(size=(n_draws, 1))
    signal = means[k] + np.einsum("ndq,nq->nd", loadings[k], z)
    log_w = -0.5 * np.sum((x - signal) ** 2 / noise[k] + np.log(2 * np.pi * noise[k]), axis=1)
    w = np.exp(log_w)

    def check(values, expected):
        """Self-normalised estimate within 5 standard errors."""
        estimate = np.average(values, axis=0, weights=w)
        error = np.sqrt(np.sum((w[:, None] * (values - estimate)) ** 2, axis=0)) / w.sum()
        assert (np.abs(estimate - expected) < 5 * error).all()

    X = x[None]
    covs = oracle.covariances(loadings, noise)
    density = np.exp(oracle.log_density(X, weights, means, covs))[0]
    assert abs(w.mean() - density) < 5 * w.std() / np.sqrt(n_draws)
    r = oracle.responsibilities(X, weights, means, covs)[0]
    m, V = oracle.factor_posterior(X, means, loadings, noise)
    check((k[:, None] == np.arange(2)).astype(float), r)
    check(z, oracle.transform(X, *params)[0])
    check(signal, oracle.reconstruct(X, *params)[0])
    check(z**2, sum(r[j] * (V[j, 0, 0] + m[0, j, 0] ** 2) for j in range(2)))


# ------------------------------------------------------------------------------------ EM steps


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("covariance_type", oracle.GAUSSIAN_TYPES)
def test_gmm_log_likelihood_is_q_plus_entropy(seed, covariance_type):
    X, w, old = data(seed), row_weights(seed), gmm_start(seed, covariance_type)
    bound = oracle.gmm_q(X, old, old, w) + oracle.gmm_entropy(X, old, w)
    np.testing.assert_allclose(bound, oracle.log_likelihood(X, *old, w), rtol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("q", [0, 2])
def test_mfa_log_likelihood_is_q_plus_entropy(seed, q):
    X, w, old = data(seed), row_weights(seed), mfa_start(seed, q=q)
    bound = oracle.mfa_q(X, old, old, w) + oracle.mfa_entropy(X, old, w)
    likelihood = oracle.log_likelihood(X, *density_arguments(old), w)
    np.testing.assert_allclose(bound, likelihood, rtol=1e-11)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("covariance_type", oracle.GAUSSIAN_TYPES)
def test_gmm_step_maximises_q(seed, covariance_type):
    D, K = 3, 2
    X, w = data(seed, N=20, D=D), row_weights(seed, N=20)
    old = gmm_start(seed, covariance_type, D=D, K=K)
    new = oracle.gmm_step(X, *old, covariance_type, w)

    def moved(theta):
        """The step's result at theta = 0; all of the model's distributions around it."""
        logits, theta = theta[:K], theta[K:]
        shift, rest = theta[: K * D].reshape(K, D), theta[K * D :]
        covs = np.empty((K, D, D))
        for k in range(K):
            if covariance_type in ("full", "tied"):
                roots = rest.reshape(-1, D, D)
                root = np.linalg.cholesky(new[2][k]) + roots[k % len(roots)]
                covs[k] = root @ root.T
            else:
                scale = np.exp(rest.reshape(K, -1)[k]) * np.ones(D)
                covs[k] = np.diag(np.diag(new[2][k]) * scale)
        return new[0] * np.exp(logits) / np.sum(new[0] * np.exp(logits)), new[1] + shift, covs

    size = {"full": K * D * D, "tied": D * D, "diag": K * D, "spherical": K}[covariance_type]
    size += K + K * D
    assert_maximum(lambda theta: oracle.gmm_q(X, old, moved(theta), w), size, seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("noise_type", "shared_noise"), MFA_VARIANTS)
def test_mfa_step_maximises_q(seed, noise_type, shared_noise):
    D, K, q = 3, 2, 1
    X, w = data(seed, N=8, D=D), row_weights(seed, N=8)
    old = mfa_start(seed, noise_type, shared_noise, D=D, K=K, q=q)
    new = oracle.mfa_step(X, *old, noise_type, shared_noise, w)

    def moved(theta):
        logits, shift, turn, scale = np.split(theta, np.cumsum([K, K * D, K * D * q]))
        scale = np.exp(scale.reshape(1 if shared_noise else K, -1)) * np.ones((K, D))
        weights = new[0] * np.exp(logits) / np.sum(new[0] * np.exp(logits))
        return (
            weights,
            new[1] + shift.reshape(K, D),
            new[2] + turn.reshape(K, D, q),
            new[3] * scale,
        )

    size = K + K * D + K * D * q
    size += (1 if shared_noise else K) * (D if noise_type == "diagonal" else 1)
    assert_maximum(lambda theta: oracle.mfa_q(X, old, moved(theta), w), size, seed)


def assert_maximum(q_function, size, seed, n_trials=20):
    """Zero gradient at theta = 0, and random moves of many lengths lower the function."""
    rng = np.random.default_rng(seed + 400)
    at_zero = q_function(np.zeros(size))
    assert np.abs(gradient(q_function, np.zeros(size))).max() < 1e-6 * max(1, abs(at_zero))
    for _ in range(n_trials):
        theta = rng.normal(size=size) * 10 ** rng.uniform(-3, 0)
        assert q_function(theta) < at_zero


@pytest.mark.parametrize("seed", SEEDS)
def test_mfa_step_is_the_centred_form(seed):
    """Section 4, the equivalent form with weighted means, and d_k = diag sum r (x - fit) x'."""
    X, w, old = data(seed), row_weights(seed), mfa_start(seed)
    _, means, loadings, noise = oracle.mfa_step(X, *old, "diagonal", False, w)
    r = oracle.responsibilities(X, *density_arguments(old)) * w[:, None]
    m, V = oracle.factor_posterior(X, *old[1:])
    for k in range(2):
        N_k = r[:, k].sum()
        x_mean, z_mean = r[:, k] @ X / N_k, r[:, k] @ m[:, k] / N_k
        Xc, Zc = X - x_mean, m[:, k] - z_mean
        C_xz = (Xc * r[:, k, None]).T @ Zc
        C_zz = (Zc * r[:, k, None]).T @ Zc + N_k * V[k]
        L = C_xz @ np.linalg.inv(C_zz)
        mean = x_mean - L @ z_mean
        residual = X - m[:, k] @ L.T - mean
        np.testing.assert_allclose(loadings[k], L, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(means[k], mean, rtol=1e-8, atol=1e-10)
        psi = np.sum(r[:, k, None] * residual * X, axis=0) / N_k
        np.testing.assert_allclose(noise[k], psi, rtol=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_component_is_factor_analysis(seed):
    """Section 2 takes the mean apart. Its step agrees once mu = xbar (it is never left again)."""
    X, (weights, _, loadings, noise) = data(seed), mfa_start(seed, K=1)
    mean = X.mean(axis=0)
    new = oracle.mfa_step(X, weights, mean[None], loadings, noise)
    m, V = oracle.factor_posterior(X, mean[None], loadings, noise)
    Y, m, V = X - mean, m[:, 0], V[0]
    L = Y.T @ m @ np.linalg.inv(len(X) * V + m.T @ m)
    psi = np.mean(Y * (Y - m @ L.T), axis=0)
    np.testing.assert_allclose(new[1][0], mean, atol=1e-10)
    np.testing.assert_allclose(new[2][0], L, atol=1e-10)
    np.testing.assert_allclose(new[3][0], psi, atol=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("noise_type", "shared_noise", "covariance_type"),
    [("diagonal", False, "diag"), ("isotropic", False, "spherical")],
)
def test_no_factors_is_a_gaussian_mixture(seed, noise_type, shared_noise, covariance_type):
    X, old = data(seed), mfa_start(seed, noise_type, shared_noise, q=0)
    new = oracle.mfa_step(X, *old, noise_type, shared_noise)
    expected = oracle.gmm_step(X, *density_arguments(old), covariance_type)
    for ours, theirs in zip(density_arguments(new), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)


def all_steps():
    for covariance_type in oracle.GAUSSIAN_TYPES:
        yield pytest.param(
            lambda seed, t=covariance_type: gmm_start(seed, t),
            lambda X, p, w, t=covariance_type: oracle.gmm_step(X, *p, t, w),
            lambda p: p,
            id=f"gmm-{covariance_type}",
        )
    for noise_type, shared in MFA_VARIANTS:
        yield pytest.param(
            lambda seed, t=noise_type, s=shared: mfa_start(seed, t, s, q=1),
            lambda X, p, w, t=noise_type, s=shared: oracle.mfa_step(X, *p, t, s, w),
            density_arguments,
            id=f"mfa-{noise_type}-{'shared' if shared else 'own'}",
        )
    yield pytest.param(
        lambda seed: mfa_start(seed, "isotropic", q=1),
        lambda X, p, w: oracle.mppca_marginal_step(X, *p, w),
        density_arguments,
        id="mppca-marginal",
    )


STEPS = list(all_steps())
MCFA_STEP = pytest.param(mcfa_start, lambda X, p, w: mcfa.step(X, *p, w), lambda p: mcfa.dense(*p), id="mcfa")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("start", "step", "arguments"), STEPS)
def test_no_step_lowers_the_likelihood(seed, start, step, arguments):
    X, w = data(seed), row_weights(seed)
    weights, means, *rest = start(seed)
    params = weights, X.mean(axis=0) + 0.3 * means, *rest  # overlapping: rarely collapses
    history = [oracle.log_likelihood(X, *arguments(params), w)]
    for _ in range(50):
        params = step(X, params, w)
        history.append(oracle.log_likelihood(X, *arguments(params), w))
        if np.linalg.eigvalsh(arguments(params)[2]).min() < 1e-6:
            break  # a component shrinking on a few rows: the likelihood has no maximum (section 1)
    assert all(b >= a - 1e-10 * abs(a) for a, b in pairwise(history))
    assert history[-1] > history[0] + 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("start", "step", "arguments"), [*STEPS, MCFA_STEP])
def test_weights_are_repeated_rows(seed, start, step, arguments):
    X, params = data(seed), start(seed)
    counts = np.random.default_rng(seed).integers(0, 4, size=len(X))
    weighted, repeated = step(X, params, counts), step(np.repeat(X, counts, axis=0), params, None)
    for a, b in zip(weighted, repeated, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
    np.testing.assert_allclose(  # only the ratios of the weights matter
        step(X, params, 3.5 * counts)[1], weighted[1], atol=1e-10
    )
    likelihood = oracle.log_likelihood(X, *arguments(params), counts)
    again = oracle.log_likelihood(np.repeat(X, counts, axis=0), *arguments(params))
    np.testing.assert_allclose(likelihood, again, rtol=1e-12)


@pytest.mark.parametrize("covariance_type", oracle.GAUSSIAN_TYPES)
def test_gmm_step_is_that_of_scikit_learn(covariance_type):
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    X, old = data(0), gmm_start(0, covariance_type)
    precisions = oracle.sklearn_covariances(np.linalg.inv(old[2]), covariance_type)
    model = GaussianMixture(
        2,
        covariance_type=covariance_type,
        reg_covar=0,
        max_iter=1,
        weights_init=old[0],
        means_init=old[1],
        precisions_init=precisions,
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(X)
    weights, means, covs = oracle.gmm_step(X, *old, covariance_type)
    np.testing.assert_allclose(model.weights_, weights, rtol=1e-8)
    np.testing.assert_allclose(model.means_, means, rtol=1e-8)
    expected = oracle.sklearn_covariances(covs, covariance_type)
    np.testing.assert_allclose(model.covariances_, expected, rtol=1e-8, atol=1e-12)


# ---------------------------------------------------------------------------------------- PPCA


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("q", [0, 1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_ppca_is_the_maximum(seed, q, weighted):
    X, w = data(seed), row_weights(seed) if weighted else None
    rng = np.random.default_rng(seed)

    def log_likelihood(mean, loadings, sigma2):
        cov = loadings @ loadings.T + sigma2 * np.eye(4)
        return oracle.log_likelihood(X, np.ones(1), mean[None], cov[None], w)

    mean, loadings, sigma2 = oracle.ppca(X, q, w)
    best = log_likelihood(mean, loadings, sigma2)
    np.testing.assert_allclose(oracle.ppca_max_log_likelihood(X, q, w), best, rtol=1e-12)
    for _ in range(50):
        size = 10 ** rng.uniform(-3, 0)
        other = log_likelihood(
            mean + size * rng.normal(size=4),
            loadings + size * rng.normal(size=loadings.shape),
            sigma2 * np.exp(size * rng.normal()),
        )
        assert other < best


@pytest.mark.parametrize("seed", SEEDS)
def test_ppca_is_not_a_local_maximum_only(seed):
    """Numerical optimisation from random starts finds no higher likelihood, and reaches this one."""
    X, rng = data(seed), np.random.default_rng(seed)
    S, mean = np.cov(X.T, bias=True), X.mean(axis=0)

    def loss(theta):
        W = theta[:-1].reshape(4, 2)
        cov = W @ W.T + np.exp(theta[-1]) * np.eye(4)
        return np.linalg.slogdet(cov)[1] + np.trace(np.linalg.solve(cov, S))

    found = min(optimize.minimize(loss, rng.normal(size=9)).fun for _ in range(5))
    _, loadings, sigma2 = oracle.ppca(X, 2)
    closed = loss(np.append(loadings.ravel(), np.log(sigma2)))
    np.testing.assert_allclose(found, closed, atol=1e-6)
    maximum = -0.5 * len(X) * (4 * np.log(2 * np.pi) + closed)
    np.testing.assert_allclose(oracle.ppca_max_log_likelihood(X, 2), maximum, rtol=1e-10)
    np.testing.assert_allclose(oracle.ppca(X, 2)[0], mean, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_ppca_weights_are_repeated_rows(seed):
    X = data(seed)
    counts = np.random.default_rng(seed).integers(0, 4, size=len(X))
    again = np.repeat(X, counts, axis=0)
    for a, b in zip(oracle.ppca(X, 2, counts), oracle.ppca(again, 2), strict=True):
        np.testing.assert_allclose(np.abs(a), np.abs(b), atol=1e-9)
    np.testing.assert_allclose(
        oracle.ppca_max_log_likelihood(X, 2, counts), oracle.ppca_max_log_likelihood(again, 2)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_ppca_is_a_fixed_point_of_both_steps(seed):
    X, w = data(seed), row_weights(seed)
    mean, loadings, sigma2 = oracle.ppca(X, 2, w)
    fixed = np.ones(1), mean[None], loadings[None], np.full((1, 4), sigma2)
    once = oracle.mfa_step(X, *fixed, "isotropic", False, w)
    start = mfa_start(seed, "isotropic", K=1)
    jump = oracle.mppca_marginal_step(X, *start, w)  # optimal in one step
    for new in (once, jump):
        for a, b in zip(density_arguments(new), density_arguments(fixed), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)


# ---------------------------------------------------------------------------------------- MCFA


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("q", [1, 2, 4])
def test_mcfa_is_a_mixture_of_factor_analysers(seed, q):
    """With z = xi_k + R_k u, R_k R_k' = Omega_k, u ~ N(0, I): another way to all densities and posteriors."""
    X, params = data(seed), mcfa_start(seed, q=q)
    _, loadings, latent_means, latent_covs, noise = params
    twin = mcfa.as_mfa(*params)
    for ours, theirs in zip(mcfa.dense(*params), density_arguments(twin), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    m, V = mcfa.factor_posterior(X, *params[1:])
    u_means, u_covs = oracle.factor_posterior(X, *twin[1:])
    for k, R in enumerate(np.linalg.cholesky(latent_covs)):
        np.testing.assert_allclose(m[:, k], latent_means[k] + u_means[:, k] @ R.T, atol=1e-9)
        np.testing.assert_allclose(V[k], R @ u_covs[k] @ R.T, atol=1e-10)
        B = np.linalg.inv(latent_covs[k]) + loadings.T @ np.diag(1 / noise) @ loadings  # section 0
        np.testing.assert_allclose(V[k], np.linalg.inv(B), atol=1e-10)
    np.testing.assert_allclose(mcfa.reconstruct(X, *params), oracle.reconstruct(X, *twin), atol=1e-9)
    r = oracle.responsibilities(X, *mcfa.dense(*params))
    np.testing.assert_allclose(mcfa.transform(X, *params), np.einsum("nk,nkq->nq", r, m), atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_mcfa_expectations_agree_with_importance_sampling(seed):
    """Draws of (k, z) from the prior, weighted by p(x | z): no posterior formula at all."""
    rng = np.random.default_rng(seed)
    n_draws = 200_000
    params = mcfa_start(seed, D=3, q=1)
    weights, loadings, latent_means, latent_covs, noise = params
    x = loadings @ latent_means[0] + 0.5
    k = rng.choice(2, size=n_draws, p=weights)
    z = latent_means[k] + np.sqrt(latent_covs[k, :, 0]) * rng.normal(size=(n_draws, 1))
    w = np.exp(-0.5 * np.sum((x - z @ loadings.T) ** 2 / noise + np.log(2 * np.pi * noise), axis=1))
    X = x[None]
    density = np.exp(oracle.log_density(X, *mcfa.dense(*params)))[0]
    assert abs(w.mean() - density) < 5 * w.std() / np.sqrt(n_draws)
    for values, expected in ((z, mcfa.transform(X, *params)), (z @ loadings.T, mcfa.reconstruct(X, *params))):
        estimate = np.average(values, axis=0, weights=w)
        error = np.sqrt(np.sum((w[:, None] * (values - estimate)) ** 2, axis=0)) / w.sum()
        assert (np.abs(estimate - expected[0]) < 5 * error).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("q", [1, 2, 4])
def test_mcfa_log_likelihood_is_q_plus_entropy(seed, q):
    X, w, old = data(seed), row_weights(seed), mcfa_start(seed, q=q)
    bound = mcfa.q_function(X, old, old, w) + mcfa.entropy(X, old, w)
    np.testing.assert_allclose(bound, oracle.log_likelihood(X, *mcfa.dense(*old), w), rtol=1e-11)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("D", "K", "q"), [(3, 2, 1), (3, 2, 2), (2, 2, 2), (3, 1, 1)])
def test_mcfa_step_maximises_q(seed, D, K, q):
    X, w, old = data(seed, N=20, D=D), row_weights(seed, N=20), mcfa_start(seed, D=D, K=K, q=q)
    new = mcfa.step(X, *old, w)
    sizes = [K, D * q, K * q, K * q * q, D]

    def moved(theta):
        """The step's result at theta = 0; all of the model's distributions around it."""
        logits, turn, shift, stretch, scale = np.split(theta, np.cumsum(sizes)[:-1])
        weights = new[0] * np.exp(logits) / np.sum(new[0] * np.exp(logits))
        roots = np.linalg.cholesky(new[3]) + stretch.reshape(K, q, q)
        latent_covs = roots @ np.swapaxes(roots, 1, 2)
        latent_means = new[2] + shift.reshape(K, q)
        return weights, new[1] + turn.reshape(D, q), latent_means, latent_covs, new[4] * np.exp(scale)

    assert_maximum(lambda theta: mcfa.q_function(X, old, moved(theta), w), sum(sizes), seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_mcfa_step_is_more_than_the_conditional_maximisations(seed):
    """The printed form: Omega exceeds ours by the outer product of the move of xi, psi is of the old A."""
    X, w, old = data(seed), row_weights(seed), mcfa_start(seed)
    new = mcfa.step(X, *old, w)
    weights, A, xi, Omega, psi = old
    r = oracle.responsibilities(X, *mcfa.dense(*old)) * w[:, None]
    printed_Omega, printed_psi = np.empty(Omega.shape), np.zeros(len(psi))
    for k in range(len(weights)):
        Sigma = A @ Omega[k] @ A.T + np.diag(psi)
        gamma = np.linalg.solve(Sigma, A @ Omega[k])
        residual = X - xi[k] @ A.T
        scatter = (residual * r[:, k, None]).T @ residual / r[:, k].sum()
        printed_Omega[k] = gamma.T @ scatter @ gamma + (np.eye(len(xi[k])) - gamma.T @ A) @ Omega[k]
        beta = np.diag(psi) @ np.linalg.inv(Sigma)
        noise = np.diag(np.diag(psi) - beta @ np.diag(psi) + beta @ scatter @ beta.T)
        printed_psi += r[:, k].sum() / r.sum() * noise
        move = new[2][k] - xi[k]
        np.testing.assert_allclose(printed_Omega[k] - np.outer(move, move), new[3][k], rtol=1e-9, atol=1e-10)
    values = [
        mcfa.q_function(X, old, candidate, w)
        for candidate in (old, (*new[:3], printed_Omega, printed_psi), new)
    ]
    assert values[0] < values[1] < values[2] - 1e-3


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("q", [1, 2, 4])
def test_no_mcfa_step_lowers_the_likelihood(seed, q):
    X, w = data(seed), row_weights(seed)
    params = mcfa_start(seed, q=q)
    history = []
    for _ in range(50):
        history.append(oracle.log_likelihood(X, *mcfa.dense(*params), w))
        params = mcfa.step(X, *params, w)
        if np.linalg.eigvalsh(mcfa.dense(*params)[2]).min() < 1e-6:
            break  # a component shrinking on a few rows: the likelihood has no maximum
    assert all(b >= a - 1e-10 * abs(a) for a, b in pairwise(history))
    assert history[-1] > history[0] + 1


def assert_same_mcfa(a, b):
    for ours, theirs in zip(a, b, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("q", [1, 2, 4])
def test_mcfa_in_other_coordinates_of_the_factors(seed, q):
    """(A C^-1, C xi, C Omega C') is the same model, and its steps are the same."""
    X, w, params = data(seed), row_weights(seed), mcfa_start(seed, q=q)
    C = np.random.default_rng(seed).normal(size=(q, q)) + 2 * np.eye(q)
    other = mcfa.turned(C, *params)
    assert_same_mcfa(mcfa.dense(*other), mcfa.dense(*params))
    assert_same_mcfa(mcfa.step(X, *other, w), mcfa.turned(C, *mcfa.step(X, *params, w)))
    np.testing.assert_allclose(mcfa.transform(X, *other), mcfa.transform(X, *params) @ C.T, atol=1e-8)
    normal = mcfa.normal_form(*params)
    assert_same_mcfa(mcfa.dense(*normal), mcfa.dense(*params))
    np.testing.assert_allclose(normal[1].T @ normal[1], np.eye(q), atol=1e-12)
    assert_same_mcfa(mcfa.normal_form(*normal), normal)
    U = normal[1].T @ params[1]  # of A = (A U^-1) U
    np.testing.assert_allclose(U, np.triu(U), atol=1e-12)
    assert np.all(np.diag(U) > 0)
    upper = np.triu(C) + 3 * np.eye(q)  # a change that keeps the order of the columns is undone
    assert_same_mcfa(mcfa.normal_form(*mcfa.turned(upper, *params)), normal)


@pytest.mark.parametrize("seed", SEEDS)
def test_mcfa_of_one_component_and_as_many_factors_as_features_is_a_gaussian(seed):
    X, w = data(seed), row_weights(seed)
    params = mcfa_start(seed, K=1, q=4)
    for _ in range(100):
        params = mcfa.step(X, *params, w)
    _, means, covs = mcfa.dense(*params)
    np.testing.assert_allclose(means[0], np.average(X, axis=0, weights=w), atol=1e-6)
    np.testing.assert_allclose(covs[0], np.cov(X.T, aweights=w, bias=True), atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_mcfa_with_missing_entries(seed):
    """Complete rows as above; with holes, the step is that of all completions in proportion to density."""
    X, w, params = data(seed, N=12, D=3), row_weights(seed, N=12), mcfa_start(seed, D=3, q=2)
    assert_same_mcfa(missing.mcfa_step(X, *params, w), mcfa.step(X, *params, w))
    m, V = missing.mcfa_factor_posterior(X, *params[1:])
    np.testing.assert_allclose(m, mcfa.factor_posterior(X, *params[1:])[0], atol=1e-9)
    np.testing.assert_allclose(V[3], mcfa.factor_posterior(X, *params[1:])[1], atol=1e-9)
    np.testing.assert_allclose(missing.mcfa_transform(X, *params), mcfa.transform(X, *params), atol=1e-9)
    # Gauss-Hermite points of each component's conditional distribution of the missing entry
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(5)
    holed = X.copy()
    holed[np.arange(8), np.arange(8) % 3] = np.nan
    _, means, covs = mcfa.dense(*params)
    r = missing.responsibilities(holed, *mcfa.dense(*params))
    completed, shares, components = [], [], []
    for n, x in enumerate(holed):
        for k in range(2):
            mean, cov = missing.conditioned(x, means[k], covs[k])
            spread = np.sqrt(np.diag(cov))
            for node, share in zip(nodes, node_weights / node_weights.sum(), strict=True):
                completed.append(mean + node * spread)
                shares.append(w[n] * r[n, k] * share)
                components.append(k)
    labels = missing.allowed_components(components, 2)
    by_completion = missing.mcfa_step(np.array(completed), *params, np.array(shares), labels)
    assert_same_mcfa(missing.mcfa_step(holed, *params, w), by_completion)


@pytest.mark.parametrize("D", range(1, 8))
@pytest.mark.parametrize("K", [1, 2, 3, 4])
def test_mcfa_count_is_the_rank_of_the_jacobian(D, K):
    for q in range(1, D + 1):
        assert mcfa.n_parameters(D, K, q) == mcfa.jacobian_rank(D, K, q), q


def test_mcfa_count_as_printed():
    """Section 6 spelled out, and where it counts too many: D = 8, q = 2, K = 3; D = q; one component."""
    assert mcfa.n_parameters(8, 3, 2) == 2 + 8 + 16 + 6 + 9 - 4
    assert mcfa.n_parameters(3, 2, 3) == oracle.n_parameters("full", 3, 2)
    assert mcfa.n_parameters(3, 1, 2) == oracle.n_parameters("full", 3, 1) == 9


# --------------------------------------------------------------------------- counts and criteria

GAUSSIAN_COUNTS = [(m, D, K, 0, False) for m in oracle.GAUSSIAN_TYPES for D in (1, 2, 4) for K in (1, 3)]
# Ledermann: (D - q)^2 >= D + q holds for q <= 0, 1, 1, 2, 3 at D = 2, 3, 4, 5, 6
FACTOR_COUNTS = [
    (m, D, K, q, shared)
    for m in ("mfa", "mppca")
    for D in (1, 2, 3, 4, 5, 6)
    for K in (1, 2, 3)
    for q in (*range(D + 1), 2 * D)
    for shared in (False, True)
]


@pytest.mark.parametrize(("model", "D", "K", "q", "shared"), GAUSSIAN_COUNTS + FACTOR_COUNTS)
def test_count_is_the_rank_of_the_jacobian(model, D, K, q, shared):
    expected = oracle.jacobian_rank(model, D, K, q, shared)
    assert oracle.n_parameters(model, D, K, q, shared) == expected


def test_counts_as_printed():
    """Sections 1 to 5 below the Ledermann bound, spelled out: D = 8, q = 2, K = 3."""
    assert oracle.n_parameters("full", 8, 3) == 2 + 24 + 3 * 36
    assert oracle.n_parameters("tied", 8, 3) == 2 + 24 + 36
    assert oracle.n_parameters("diag", 8, 3) == 2 + 48
    assert oracle.n_parameters("spherical", 8, 3) == 2 + 24 + 3
    assert oracle.n_parameters("fa", 8, q=2) == 16 + 16 - 1
    assert oracle.n_parameters("ppca", 8, q=2) == 8 + 1 + 16 - 1
    assert oracle.n_parameters("mfa", 8, 3, 2) == 2 + 3 * (16 + 16 - 1)
    assert oracle.n_parameters("mfa", 8, 3, 2, True) == 2 + 3 * (8 + 16 - 1) + 8
    assert oracle.n_parameters("mppca", 8, 3, 2) == 2 + 3 * (8 + 1 + 16 - 1)
    assert oracle.n_parameters("mppca", 8, 3, 2, True) == 3 + 3 * (8 + 16 - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_criteria(seed):
    X, params = data(seed), gmm_start(seed)
    joint = joint_of(X, *params)
    density = np.exp(joint).sum(axis=1)
    r = np.exp(joint) / density[:, None]
    bic = -2 * np.log(density).sum() + 29 * np.log(40)
    np.testing.assert_allclose(oracle.bic(X, *params, 29), bic)
    np.testing.assert_allclose(oracle.aic(X, *params, 29), -2 * np.log(density).sum() + 58)
    np.testing.assert_allclose(oracle.icl(X, *params, 29), bic + 2 * stats.entropy(r, axis=1).sum())
    # ICL is the BIC of the completed data: the labels' conditional expectation
    completed = -2 * np.sum(r * joint) + 29 * np.log(40)
    np.testing.assert_allclose(oracle.icl(X, *params, 29), completed)


# -------------------------------------------------------------------------------------- floors


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rank", [1, 4])
def test_floor_full_meets_the_optimality_conditions(seed, rank):
    """In P = Sigma^-1, ln|P| - tr(P S) is concave and P <= F^-1 convex: these are sufficient.

    Sigma - S >= 0 is the multiplier, and (Sigma - S)(F^-1 - Sigma^-1) = 0.
    """
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(4, rank))
    S, floor = A @ A.T, rng.uniform(0.1, 2.0, size=4)
    Sigma = oracle.floor_full(S, floor)
    np.testing.assert_allclose(Sigma, Sigma.T, atol=1e-12)
    assert np.linalg.eigvalsh(Sigma - np.diag(floor)).min() > -1e-10
    assert np.linalg.eigvalsh(Sigma - S).min() > -1e-10
    slack = (Sigma - S) @ (np.diag(1 / floor) - np.linalg.inv(Sigma))
    np.testing.assert_allclose(slack, 0, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_floor_full_beats_other_feasible_covariances(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(3, 2))
    S, floor = A @ A.T, rng.uniform(0.1, 2.0, size=3)

    def value(Sigma):
        return -np.linalg.slogdet(Sigma)[1] - np.trace(np.linalg.solve(Sigma, S))

    Sigma = oracle.floor_full(S, floor)
    roots = [np.linalg.cholesky(Sigma - np.diag(floor) + 1e-12 * np.eye(3)), np.zeros((3, 3))]
    for trial in range(200):
        root = roots[trial % 2] + rng.normal(size=(3, 3)) * 10 ** rng.uniform(-3, 0.5)
        assert value(root @ root.T + np.diag(floor)) <= value(Sigma) + 1e-9


def test_floor_that_does_not_bind_changes_nothing():
    S = np.cov(data(0).T)
    np.testing.assert_allclose(oracle.floor_full(S, np.full(4, 1e-9)), S, atol=1e-9)
    with pytest.raises(ValueError, match="positive"):
        oracle.floor_full(S, np.zeros(4))


@pytest.mark.parametrize("seed", SEEDS)
def test_diagonal_and_spherical_floors_maximise(seed):
    rng = np.random.default_rng(seed)
    s, floor = rng.uniform(0.1, 2.0, size=6), rng.uniform(0.1, 2.0, size=6)
    grid = np.linspace(0.05, 3.0, 59001)

    def best(variance, bound):
        allowed = grid[grid >= bound]
        return allowed[np.argmax(-np.log(allowed) - variance / allowed)]

    expected = [best(a, b) for a, b in zip(s, floor, strict=True)]
    np.testing.assert_allclose(oracle.floor_diagonal(s, floor), expected, atol=1e-4)
    for variance in (0.2, 2.5):
        expected = best(variance, floor.max())
        np.testing.assert_allclose(oracle.floor_spherical(variance, floor), expected, atol=1e-4)
