"""The weak prior: M-steps are maximisers of Q plus the log prior, and what must not matter does not."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import latently
from latently.core import io
from latently.core.block import Block
from latently.core.drivers import LOG_LIKELIHOOD, Result, best_first
from latently.distributions.prior import Prior
from latently.estimators import saving
from latently.estimators.messages import DegenerateWarning
from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture
from latently.selection import select
from tests.contracts.models import ALL, BY_EM, COMMON, assert_same, rows
from tests.oracles import mcfa
from tests.oracles import mixtures as oracle

every_model = pytest.mark.parametrize("model", ALL, ids=str)
every_em_model = pytest.mark.parametrize("model", BY_EM, ids=str)


def kernel_with_prior(model, D=3, K=2, q=1, rows=2.5):
    """The kernel with a prior of no particular scale, parameters, and the prior."""
    rng = np.random.default_rng(0)
    kernel, params = model.kernel(model.known(model.example(rng, D, K, q)), np.zeros(D))
    scale = rng.uniform(0.2, 1.5, size=D)
    if model.isotropic:
        scale = np.full(D, scale[0])
    if model.name in ("GMM-full", "GMM-tied"):
        root = rng.normal(size=(D, D))
        scale = root @ root.T + np.eye(D)
    loadings = rng.normal(size=(D, 2)) if model.common_loadings else None
    prior = Prior(rows, scale, loadings)
    return replace(kernel, family=replace(kernel.family, prior=prior)), params, prior


def plain_log_prior(model, theta, prior):
    """The formula of the header of distributions/prior.py, term by term."""
    K, D, _ = model.shape(theta)
    total, rows, scale = 0.0, prior.rows, prior.scale

    def of_covariance(covariance, scale):
        ratio = np.linalg.solve(covariance, scale)
        return -0.5 * rows * (np.trace(ratio) - np.log(np.linalg.det(ratio)) - D)

    if prior.loadings is not None:  # half of the rows each
        rows = 0.5 * rows
        whole = prior.loadings @ prior.loadings.T + np.diag(scale)
        parts = [theta[name] for name in ("weights", "loadings", "latent_means", "latent_covs", "noise")]
        total += sum(of_covariance(covariance, whole) for covariance in mcfa.dense(*parts)[2])
    for k in range(K):
        if model.name in ("GMM-full", "GMM-tied"):
            total += of_covariance(theta["covs"][k], scale)
            continue
        noise = np.diag(theta["covs"][k]) if model.is_gaussian else theta["noise"]
        noise = noise if model.is_gaussian or model.common_loadings else noise[k]
        for psi, s in zip(noise, scale, strict=True):
            total -= 0.5 * rows * (np.log(psi / s) + s / psi - 1.0)
    return total


def expected_prior(model, old, theta, prior):
    """What the M-step maximises beside Q: the log prior, where pseudo-rows have factors their expectation.

    By rows with the covariance of the scale, of a component about its mean.
    """
    if not model.common_loadings:
        return plain_log_prior(model, theta, prior)
    D = len(prior.scale)
    root = np.linalg.cholesky(prior.loadings @ prior.loadings.T + np.diag(prior.scale)).T * np.sqrt(D)
    pseudo = np.concatenate([root, -root])
    total = plain_log_prior(model, theta, prior.of_noise)
    for k in range(len(old["weights"])):
        alone = [
            (np.ones(1), of["loadings"], np.zeros((1, 1)), of["latent_covs"][k : k + 1], of["noise"])
            for of in (old, theta)
        ]
        total += mcfa.q_function(pseudo, *alone, np.full(2 * D, 0.5 * prior.rows / (2 * D)))
    return total


@pytest.mark.parametrize("seed", range(3))
def test_pseudo_rows_of_covariances_are_a_bound_of_their_prior(seed):
    """It touches at the old parameters and has the slope of the log prior there, so that EM never falls."""
    model, rng = COMMON, np.random.default_rng(seed)
    prior = kernel_with_prior(model, q=1)[2]
    old = model.example(rng, 3, 2, 1)
    gaps = []
    for size in (0.0, 1e-4, 0.1, 1.0):
        new = {name: array + size * rng.uniform(0.0, 1.0, size=array.shape) for name, array in old.items()}
        new["weights"] = old["weights"]
        gaps.append(plain_log_prior(model, new, prior) - expected_prior(model, old, new, prior))
    assert abs(gaps[1] - gaps[0]) < 1e-6
    assert gaps[2] > gaps[0] and gaps[3] > gaps[2]


@every_em_model
def test_log_prior_is_the_formula(model):
    rng = np.random.default_rng(1)
    theta = model.example(rng, 3, 2, 1)
    kernel, _, prior = kernel_with_prior(model)
    params = model.known(theta)._fitted_model().params
    expected = plain_log_prior(model, theta, prior)
    assert kernel.log_prior(params) == pytest.approx(expected, rel=1e-10)
    assert expected < 0.0


class Chart:
    """Parameters of a model as a vector without constraints: means, loadings, roots and logarithms."""

    def __init__(self, model, theta):
        self.model, self.K, self.D, self.q = model, *model.shape(theta)

    def to_vector(self, theta):
        parts = [np.log(theta["weights"])]
        for name, array in theta.items():
            if name in ("covs", "latent_covs"):
                kept = array[:1] if self.model.name == "GMM-tied" else array
                parts.append(np.linalg.cholesky(kept))
            elif name == "noise":
                parts.append(np.log(self._free(array)))
            elif name != "weights":
                parts.append(array)
        return np.concatenate([np.ravel(part) for part in parts])

    def theta(self, vector, like):
        found, free = {}, list(vector)

        def taken(shape):
            size = int(np.prod(shape))
            part = np.reshape(free[:size], shape)
            del free[:size]
            return part

        for name, array in like.items():
            if name == "weights":
                found[name] = np.exp(taken(array.shape)) / np.sum(np.exp(vector[: self.K]))
            elif name in ("covs", "latent_covs"):
                root = np.tril(taken((1, *array.shape[1:]) if self.model.name == "GMM-tied" else array.shape))
                covs = root @ np.swapaxes(root, 1, 2)
                if self.model.name in ("GMM-diag", "GMM-spherical"):
                    covs = covs * np.eye(self.D)
                if self.model.name == "GMM-spherical":
                    covs = np.eye(self.D) * covs[:, :1, :1]
                found[name] = np.broadcast_to(covs, array.shape)
            elif name == "noise":
                found[name] = np.broadcast_to(np.exp(taken(self._free(array).shape)), array.shape)
            else:
                found[name] = taken(array.shape)
        return found

    def _free(self, noise):
        if self.model.common_loadings:
            return noise
        noise = noise[:1] if self.model.shared else noise
        return noise[:, :1] if self.model.isotropic else noise


@every_em_model
def test_no_parameters_beat_the_m_step(model):
    rng = np.random.default_rng(2)
    X = rows(rng, 12, 3)
    kernel, _, prior = kernel_with_prior(model, q=1)
    old = model.example(rng, 3, 2, 1)
    params = model.known(old)._fitted_model().params
    density = kernel.prepare(params)
    stats = kernel.stats(density, kernel.e_step(density, Block(X)))
    stepped = kernel.m_step(stats, params)
    if model.common_loadings:  # in the basis of the old factors
        c = stepped.components
        latent_means = c.latent_means + c.anchor
        values = (stepped.weights, c.loadings, latent_means, c.latent_covariances, c.noise_variance)
        best = dict(zip(old, values, strict=True))
    else:
        attributes = model.known(old)._structure().from_kernel(stepped)
        best = model.theta(model.cls.from_parameters(**attributes, **model.options))
    chart = Chart(model, best)
    of = oracle.gmm_q if model.is_gaussian else mcfa.q_function if model.common_loadings else oracle.mfa_q

    def loss(vector):
        theta = chart.theta(vector, best)
        return -of(X, tuple(old.values()), tuple(theta.values())) - expected_prior(model, old, theta, prior)

    at = chart.to_vector(best)
    assert chart.theta(at, best).keys() == best.keys()
    lowest = loss(at)
    for size in (1e-3, 1e-1):
        assert min(loss(at + size * rng.normal(size=len(at))) for _ in range(20)) > lowest
    assert minimize(loss, at, method="BFGS", options={"maxiter": 4}).fun > lowest - 1e-7


# -- fits -------------------------------------------------------------------------------------------------


@every_model
def test_objective_is_likelihood_plus_prior_and_never_falls(model):
    rng = np.random.default_rng(3)
    X, weight = rows(rng, 40, 4), rng.uniform(0.5, 2.0, size=40)
    X[rng.random(X.shape) < 0.1] = np.nan
    X, weight = X[~np.all(np.isnan(X), axis=1)], weight[~np.all(np.isnan(X), axis=1)]
    estimator = model.unfitted(2, 1, max_iter=20, tol=0.0, random_state=0, prior=3.0)
    estimator.fit(X, sample_weight=weight)
    assert np.all(np.diff(estimator.history_) >= -1e-11)
    assert estimator.history_[-1] < estimator.score(X, sample_weight=weight)
    data = estimator._data(X, sample_weight=weight, reset=False)
    prior = estimator._problem(data).kernel.family.prior
    assert prior.rows == pytest.approx(3.0 * min(1.0, weight.sum() / len(X)))


@every_em_model
def test_given_scale_gives_the_documented_objective(model):
    X = rows(np.random.default_rng(4), 30, 3)
    estimator = model.unfitted(2, 1, max_iter=5, tol=0.0, random_state=0, prior=2.0).fit(X)
    problem = estimator._problem(estimator._data(X, reset=False))
    prior, frame = problem.kernel.family.prior, problem.frame.scale
    unit = frame[:, None] * frame if prior.scale.ndim == 2 else frame**2  # of the user
    loadings = None if prior.loadings is None else prior.loadings * frame[:, None]
    log_prior = plain_log_prior(model, model.theta(estimator), Prior(2.0, prior.scale * unit, loadings))
    assert estimator.history_[-1] == pytest.approx(estimator.score(X) + log_prior / len(X), rel=1e-9)


@every_model
def test_weights_are_copies_and_light_weights_are_none(model):
    rng = np.random.default_rng(5)
    X, copies = rows(rng, 30, 3), rng.integers(1, 4, size=30)
    settings = {"max_iter": 8, "tol": 0.0, "random_state": 0, "prior": 4.0}
    weighted = model.unfitted(2, 1, **settings).fit(X, sample_weight=copies.astype(float))
    repeated = model.unfitted(2, 1, **settings).fit(np.repeat(X, copies, axis=0))
    assert_same(model.theta(weighted), model.theta(repeated), rtol=1e-6, atol=1e-8)
    start = model.example(rng, 3, 2, 1)
    plain, light = (
        model.started(start, **settings).fit(X, sample_weight=weight) for weight in (None, np.full(30, 0.1))
    )
    np.testing.assert_allclose(plain.history_, light.history_, rtol=1e-9)


@every_model
def test_units_do_not_matter(model):
    rng = np.random.default_rng(6)
    X, start = rows(rng, 40, 3), model.example(rng, 3, 2, 1)
    unit = np.full(3, 3.7) if model.isotropic else np.array([3.7, 0.013, 900.0])
    settings = {"max_iter": 8, "tol": 0.0, "prior": 5.0}
    here = model.started(start, **settings).fit(X)
    there = model.started(model.scaled(start, unit), **settings).fit(X * unit)
    np.testing.assert_allclose(here.history_, there.history_ + np.sum(np.log(unit)), rtol=1e-9)
    assert_same(model.normal_form(model.scaled(model.theta(here), unit)), model.theta(there), rtol=1e-6)


def test_none_is_maximum_likelihood():
    X = rows(np.random.default_rng(7), 40, 4)
    problem = MFA(2, 1, prior=None)
    problem.fit(X)
    assert problem._problem(problem._data(X, reset=False)).kernel.family.prior is None
    assert problem.history_[-1] == pytest.approx(problem.score(X), rel=1e-12)


def test_ppca_is_the_maximum_that_em_finds():
    rng = np.random.default_rng(8)
    for N, q, strength in ((30, 2, 5.0), (30, 4, 200.0), (5, 2, 1.0)):
        X = rows(rng, N, 5)
        closed = PPCA(q, prior=strength).fit(X)
        by_em = MPPCA(1, q, prior=strength, tol=1e-12, max_iter=3000).fit(X)
        assert by_em.history_[-1] == pytest.approx(closed.history_[0], abs=1e-6)
        np.testing.assert_allclose(by_em.noise_variance_[0], closed.noise_variance_, rtol=1e-2)


def test_mini_batches_find_the_same_penalised_optimum():
    X = np.random.default_rng(9).normal(size=(400, 3)) + np.repeat([[0.0], [8.0]], 200, axis=0)
    settings = {"means_init": X[[0, -1]], "prior": 100.0, "covariance_type": "diag"}
    whole = GaussianMixture(2, **settings).fit(X)
    batches = GaussianMixture(2, **settings, batch_size=100, max_iter=30, tol=0.0, random_state=0).fit(X)
    assert batches.history_[-1] == pytest.approx(whole.history_[-1], abs=0.005)
    assert whole.history_[-1] < whole.score(X) - 0.01  # the prior has its say
    np.testing.assert_allclose(batches.covariances_, whole.covariances_, rtol=0.05)


def test_partial_fit_keeps_the_prior_in_proportion():
    X = rows(np.random.default_rng(10), 300, 3)
    stream = GaussianMixture(2, random_state=0, prior=30.0)
    for batch in np.array_split(X, 3):
        stream.partial_fit(batch)
    more = GaussianMixture(2, random_state=0, prior=30.0).fit(X).partial_fit(X[:100])
    for model in (stream, more):
        assert np.all(np.isfinite(model.history_)) and np.all(np.linalg.eigvalsh(model.covariances_) > 0)


@pytest.mark.parametrize("cls", [GaussianMixture, MFA, MPPCA, MCFA, FactorAnalysis, PPCA])
def test_odd_rows_are_no_trouble(cls):
    """Few rows, duplicates, constant columns and large offsets."""
    rng = np.random.default_rng(11)
    wide = np.hstack([rng.normal(size=(6, 9)), np.ones((6, 1))]) + 1e6
    same = np.repeat(rng.normal(size=(2, 3)), 5, axis=0)
    for X in (wide, same, same + 1e8):
        sizes = (1,) if cls in (FactorAnalysis, PPCA) else (2,) if cls is GaussianMixture else (2, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = cls(*sizes, random_state=0, max_iter=30).fit(X)
        assert np.all(np.isfinite(model.history_)) and np.all(np.isfinite(model.score_samples(X)))


@pytest.mark.parametrize("prior", ["weak", -1.0, True, np.inf, float("nan")])
def test_bad_priors_are_named(prior):
    with pytest.raises(ValueError, match="prior must be"):
        MFA(2, 1, prior=prior).fit(rows(np.random.default_rng(0), 20, 3))


# -- degenerate components --------------------------------------------------------------------------------


def with_a_clump(n_rows=3):
    """Two clusters, and `n_rows` rows on one spot."""
    rng = np.random.default_rng(12)
    clusters = rng.normal(size=(60, 5)) + np.repeat([[0.0], [6.0]], 30, axis=0)
    return np.concatenate([clusters, 30.0 + 1e-3 * rng.normal(size=(n_rows, 5))])


@pytest.mark.parametrize(
    ("model", "least"),
    [
        (MFA(3, 2), 4),
        (MPPCA(3, 2), 4),
        (MFA(3, 2, shared_noise=True), 3),
        (MCFA(3, 2), 3),
        (GaussianMixture(3), 6),
        (GaussianMixture(3, covariance_type="diag"), 2),
        (GaussianMixture(3, covariance_type="tied"), 2),
    ],
    ids=str,
)
def test_components_with_too_few_rows_are_named(model, least):
    means = {} if isinstance(model, MCFA) else {"means_init": [np.full(5, at) for at in (0.0, 6.0, 30.0)]}
    model = model.set_params(random_state=0, n_init=1, max_iter=50, **means)
    X = with_a_clump(least - 1)
    with pytest.warns(DegenerateWarning, match=rf"rows, but needs {least}.*fewer components or factors"):
        model.fit(X)
    (small,) = model.degenerate_components_
    assert small == np.argmin(model.weights_)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DegenerateWarning)
        assert model.fit(with_a_clump(least)).degenerate_components_.tolist() == []


def test_noise_at_the_floor_is_named_without_a_prior():
    X = with_a_clump(12)
    X[60:] = np.round(X[60:])  # twelve equal rows
    settings = {"means_init": X[[0, 30, 60]], "random_state": 0}
    with pytest.warns(DegenerateWarning, match="component 2 with 12 rows has noise at noise_floor"):
        MFA(3, 1, prior=None, **settings).fit(X)
    assert MFA(3, 1, **settings).fit(X).degenerate_components_.tolist() == []


def test_clean_runs_come_first():
    ends = [
        Result(params, [objective], 1, True) for params, objective in (("a", 0.0), ("b", 2.0), ("c", 1.0))
    ]

    def order(clean):
        return "".join(end.params for end in best_first(ends, LOG_LIKELIHOOD, clean))

    assert order(lambda params: True) == order(lambda params: False) == "bca"
    assert order(lambda params: params != "b") == "cab"


def test_no_degenerate_model_is_selected_while_there_is_a_clean_one():
    X, grid = with_a_clump(4), {"n_components": [1, 2]}
    model = MFA(n_factors=3, prior=None, n_init=4)
    found = select(model, X, grid, random_state=0, n_jobs=1)  # the table tells, so there is no warning
    table = found.table_.set_index("n_components")
    assert table["degenerate"].tolist() == [0, 1]  # the clump alone is a component
    assert table["bic"].idxmin() == 2 and found.best_params_ == {"n_components": 1}
    assert table["rank"].tolist() == [1, 2]
    assert "with degenerate components came last" in repr(found)
    with pytest.warns(DegenerateWarning, match="also the best, with n_components=2"):
        select(model, X, {"n_components": [2]}, random_state=0, n_jobs=1)


def test_what_is_known_after_fit_only(tmp_path):
    model = MFA(2, 1, random_state=0).fit(with_a_clump())
    model.save(tmp_path / "model")
    with pytest.raises(AttributeError, match="after `fit` only"):
        latently.load(tmp_path / "model").degenerate_components_  # noqa: B018


def test_files_without_the_option_load(tmp_path):
    model = MFA(2, 1, random_state=0).fit(with_a_clump())
    header, arrays = saving._described(model, saving.LeftOut())
    del header["hyper_parameters"]["prior"]
    io.write(tmp_path / "model", header, arrays)
    loaded = latently.load(tmp_path / "model")
    assert loaded.prior == "auto"
    np.testing.assert_array_equal(loaded.noise_variance_, model.noise_variance_)


def test_a_row_far_from_all_others_is_for_a_noise_component():
    """The mean of a component fits one row exactly, whatever the prior of its covariance."""
    X = with_a_clump(1)
    with pytest.warns(DegenerateWarning, match="noise_component=True"):
        MCFA(3, 2, random_state=0, prior=5.0).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DegenerateWarning)
        MCFA(2, 2, random_state=0, noise_component=True).fit(X)
