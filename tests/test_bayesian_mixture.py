"""Variational Bayes: the bound by Monte Carlo, fixed points of scikit-learn, density of new rows, and K."""

import warnings

import numpy as np
import pytest
import sklearn.mixture
from scipy import stats
from scipy.special import logsumexp, multigammaln

import latently
from latently.mixture import BayesianGaussianMixture

PRIORS = ("dirichlet_process", "dirichlet")


def log_wishart(precisions, inverse_scale, nu):
    D = len(inverse_scale)
    log_norm = 0.5 * nu * (D * np.log(2) - np.linalg.slogdet(inverse_scale)[1]) + multigammaln(0.5 * nu, D)
    trace = np.einsum("ij,nji->n", inverse_scale, precisions)
    return 0.5 * (nu - D - 1) * np.linalg.slogdet(precisions)[1] - 0.5 * trace - log_norm


def draws(model, rng, n):
    """Weights (n, K), means (n, K, D), precisions (n, K, D, D) from q, and ln p - ln q of each draw (n,)."""
    K, D = model.means_.shape
    r, a = float(model.prior_rows_), 1.0 / model.n_components
    N = model.counts_
    excess = np.zeros(n)
    means, precisions = np.empty((n, K, D)), np.empty((n, K, D, D))
    for k in range(K):
        nu, b = D - 1 + r + N[k], r + N[k]
        of_q, of_p = nu * model.covariances_[k], (D - 1 + r) * model.prior_covariance_
        precisions[:, k] = stats.wishart(nu, np.linalg.inv(of_q)).rvs(n, random_state=rng)
        excess += log_wishart(precisions[:, k], of_p, D - 1 + r) - log_wishart(precisions[:, k], of_q, nu)
        roots = np.linalg.cholesky(np.linalg.inv(precisions[:, k]))
        e = rng.normal(size=(n, D))
        means[:, k] = model.means_[k] + np.einsum("nij,nj->ni", roots, e) / np.sqrt(b)
        apart = means[:, k] - model.prior_mean_
        distance = np.einsum("ni,nij,nj->n", apart, precisions[:, k], apart)
        excess += 0.5 * D * np.log(r / b) - 0.5 * r * distance + 0.5 * np.sum(e**2, axis=1)
    if model.weight_prior == "dirichlet":
        p, q = stats.dirichlet(np.full(K, a)), stats.dirichlet(a + N)
        weights = q.rvs(n, random_state=rng)
        return weights, means, precisions, excess + p.logpdf(weights.T) - q.logpdf(weights.T)
    order = np.argsort(-N)
    weights, rest = np.empty((n, K)), np.ones(n)
    for at, k in enumerate(order):
        q = stats.beta(1 + N[k], a + N[order[at + 1 :]].sum())
        v = q.rvs(n, random_state=rng)
        excess += stats.beta(1, a).logpdf(v) - q.logpdf(v)
        weights[:, k], rest = rest * v, rest * (1 - v)
    return weights, means, precisions, excess


def log_densities(X, weights, means, precisions):
    """(n, rows, K) ln pi_k N(x | k) of the observed entries."""
    found = np.empty((len(weights), len(X), means.shape[1]))
    for i, x in enumerate(X):
        o = np.isfinite(x)
        covariances = np.linalg.inv(precisions)[..., o, :][..., o]
        apart = x[o] - means[..., o]
        quadratic = np.einsum("nki,nkij,nkj->nk", apart, np.linalg.inv(covariances), apart)
        log_det = np.linalg.slogdet(2 * np.pi * covariances)[1]
        found[:, i] = np.log(np.maximum(weights, 1e-300)) - 0.5 * (quadratic + log_det)
    return found


@pytest.mark.parametrize("weight_prior", PRIORS)
def test_the_bound_is_that_of_monte_carlo(weight_prior):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-2, 1, size=(9, 2)), rng.normal(2, 1, size=(6, 2))])
    settings = {
        "n_init": 1,
        "max_iter": 1,
        "tol": 0,
        "prior": 2.0,
        "random_state": 0,
    }  # q need not be the best
    model = BayesianGaussianMixture(2, weight_prior=weight_prior, **settings).fit(X)
    assert model.n_components_ == 2
    n = 4_000
    weights, means, precisions, excess = draws(model, rng, n)
    expected = log_densities(X, weights, means, precisions)
    resp = np.exp(expected.mean(axis=0))  # nearly the best, which changes the bound in second order only
    resp = resp / resp.sum(axis=1, keepdims=True)
    each = np.sum(resp * (expected - np.log(resp)), axis=(1, 2)) + excess
    assert abs(each.mean() - len(X) * model.history_[-1]) < 5 * each.std() / np.sqrt(n) + 1e-3


@pytest.mark.parametrize("weight_prior", PRIORS)
def test_new_rows_have_the_average_density_of_the_posterior(weight_prior):
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(-2, 1, size=(20, 2)), rng.normal(2, 1, size=(15, 2))])
    model = BayesianGaussianMixture(2, weight_prior=weight_prior, random_state=0).fit(X)
    weights, means, precisions, _ = draws(model, rng, 4_000)
    new = np.array([[0.0, 0.0], [3.0, 2.0], [np.nan, 1.0], [-2.0, 4.0]])
    each = (
        np.exp(logsumexp(log_densities(new, weights, means, precisions), axis=2)) / weights.sum(axis=1).mean()
    )
    error = 5 * each.std(axis=0) / np.sqrt(len(each))
    np.testing.assert_array_less(np.abs(np.exp(model.score_samples(new)) - each.mean(axis=0)), error)


def test_fixed_points_and_bounds_are_those_of_scikit_learn():
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.normal(c, 1, size=(40, 3)) @ rng.normal(size=(3, 3)) for c in (-1.5, 0, 1.5)])
    ours = BayesianGaussianMixture(4, weight_prior="dirichlet", random_state=0).fit(X)
    between = []
    for seed in (0, 1, 5):
        theirs = sklearn.mixture.BayesianGaussianMixture(
            n_components=4, weight_concentration_prior_type="dirichlet_distribution", reg_covar=0, tol=1e-12,
            covariance_prior=3 * ours.prior_covariance_, init_params="random", max_iter=5000,
            random_state=seed,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs.fit(X)
        start = {
            "means_init": theirs.means_,
            "covariances_init": theirs.covariances_,
            "counts_init": theirs.degrees_of_freedom_ - 3,
        }
        stayed = BayesianGaussianMixture(
            4, weight_prior="dirichlet", max_iter=1, tol=0, accelerate=None, **start
        )
        stayed.fit(X)
        kept = start["counts_init"] >= 1
        np.testing.assert_allclose(stayed.means_, theirs.means_[kept], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(stayed.counts_, start["counts_init"][kept], rtol=1e-4, atol=1e-4)
        between.append(len(X) * stayed.history_[-1] - theirs.lower_bound_)
    assert np.ptp(between) < 1e-4  # constants alone
    assert ours.history_[-1] >= stayed.history_[-1] - 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_planted_components_are_found(seed):
    rng = np.random.default_rng(seed)
    K, D = 2 + seed, 2 + seed
    centres = 9 * rng.permutation(np.eye(D + K)[:K, :D] + np.arange(K)[:, None] / 2)
    X = np.concatenate(
        [
            c + rng.normal(size=(60, D)) @ rng.uniform(-0.6, 0.6, (D, D)) + rng.normal(size=(60, D))
            for c in centres
        ]
    )
    model = BayesianGaussianMixture(8, random_state=seed).fit(X)
    assert model.n_components_ == K
    np.testing.assert_allclose(model.counts_, 60, atol=1)


@pytest.mark.parametrize("accelerate", [None, "squarem"])
def test_the_bound_never_falls(accelerate):
    rng = np.random.default_rng(3)
    X = np.concatenate(
        [rng.normal(-2, 1, size=(50, 3)), rng.normal(2, 2, size=(50, 3)), rng.normal(size=(50, 3))]
    )
    X[rng.random(X.shape) < 0.15] = np.nan
    for weight_prior in PRIORS:
        model = BayesianGaussianMixture(
            6, weight_prior=weight_prior, accelerate=accelerate, n_init=1, max_iter=25, tol=0, random_state=0
        )
        model.fit(X, sample_weight=rng.integers(3, size=len(X)))
        assert np.diff(model.history_).min() > -1e-11


def test_files_labels_and_later_batches(tmp_path):
    rng = np.random.default_rng(4)
    X = np.concatenate([rng.normal(-3, 1, size=(60, 2)), rng.normal(3, 1, size=(60, 2))])
    model = BayesianGaussianMixture(6, random_state=0).fit(X)
    assert model.n_components_ == 2 and model.predict_proba(X).shape == (120, 2)
    model.save(tmp_path / "m.latently")
    loaded = latently.load(tmp_path / "m.latently")
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))
    again = loaded.partial_fit(X + 0.5)
    assert again.n_components_ == 2 and np.isfinite(again.score(X))
    y = np.where(np.arange(120) < 40, 3, -1)  # component 3 has the first rows
    labelled = BayesianGaussianMixture(4, random_state=0).fit(X, y)
    assert labelled.n_components_ == 4 and np.all(labelled.predict(X)[:60] == 3)
    assert model.set_params(n_components=1).fit(X).n_components_ == 1


def test_bad_options_are_named():
    X = np.random.default_rng(0).normal(size=(30, 2))
    for name, value in (
        *(("prior", None), ("prior", 0.0), ("prior", 1e300)),
        *(("concentration", 0.0), ("weight_prior", "process")),
    ):
        with pytest.raises(ValueError, match=name):
            BayesianGaussianMixture(2, **{name: value}).fit(X)
