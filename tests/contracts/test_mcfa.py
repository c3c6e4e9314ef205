"""What is particular to mixtures of common factor analysers."""

import dataclasses

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import StandardScaler

import latently
from latently.core.block import Block
from latently.distributions.heavy_tails import HeavyParams, HeavyTailed
from latently.distributions.prior import Prior
from latently.mixture import MCFA, MFA, FactorAnalysis, GaussianMixture
from tests.contracts.models import COMMON, FA, assert_same, rows
from tests.oracles import mcfa as oracle

EXACT = {
    "noise_floor": 0.0,
    "prior": None,
    "tol": 0.0,
    "accelerate": None,
}  # max_iter=n runs exactly n EM steps
SHORT = {"max_iter": 15, "tol": 0.0, "n_init": 2, "random_state": 0}
FASHIONS = {
    "EM": {"accelerate": None},
    "squarem": {"accelerate": "squarem"},
    "mini-batches": {"batch_size": 20},
    "single precision": {"dtype": "float32"},
    "blocks": {"block_size": 7},
}


def problem(seed, N=60, D=5, K=3, q=2):
    """Rows of the model, and the parameters that made them."""
    theta = COMMON.example(np.random.default_rng(seed), D, K, q, spread=4.0)
    return COMMON.known(theta).sample(N, random_state=seed)[0], theta


def assert_normal(model, atol=1e-10):
    A, Omega = model.loadings_, model.latent_covariances_
    np.testing.assert_allclose(A.T @ A, np.eye(A.shape[1]), atol=atol)
    np.testing.assert_array_equal(Omega, np.swapaxes(Omega, 1, 2))
    assert np.all(np.linalg.eigvalsh(Omega) >= -1e-12 * np.abs(Omega).max())


def assert_sensible(model, X):
    """All finite, in normal form, never falling, and the last of history_ the score or, by a prior, less."""
    for name, array in COMMON.theta(model).items():
        assert np.all(np.isfinite(array)), name
    assert np.all(model.noise_variance_ > 0)
    assert_normal(model)
    assert np.all(np.diff(model.history_) >= -1e-9 * (1 + np.abs(model.history_[1:])))
    score = model.score(X)
    assert score >= model.history_[-1] - 1e-5 * (1 + abs(score))
    if model.prior is None:
        assert score == pytest.approx(model.history_[-1], rel=1e-5, abs=1e-5)
    assert np.all(np.isfinite(model.transform(X)))


# -- the normal form ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fashion", FASHIONS)
@pytest.mark.parametrize("holes", [False, True], ids=["", "holes"])
def test_fits_end_in_the_normal_form(fashion, holes):
    X, _ = problem(0)
    if holes:
        X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    model = MCFA(3, 2, **{**SHORT, **FASHIONS[fashion]}).fit(X)
    assert_normal(model)
    assert_normal(model.partial_fit(X))


@pytest.mark.parametrize("q", [1, 2, 5])
def test_the_normal_form_is_that_of_cholesky(q):
    """U of U'U = A'A is upper triangular with a positive diagonal: from given values there is one result."""
    X, _ = problem(1)
    start = COMMON.example(np.random.default_rng(2), 5, 3, q)
    model = COMMON.started(start, max_iter=0, **EXACT).fit(X)
    U = model.loadings_.T @ start["loadings"]
    np.testing.assert_allclose(U, np.triu(U), atol=1e-12)
    assert np.all(np.diag(U) > 0)
    np.testing.assert_allclose(model.latent_means_, start["latent_means"] @ U.T, rtol=1e-10, atol=1e-12)
    expected = U @ start["latent_covs"] @ U.T
    np.testing.assert_allclose(model.latent_covariances_, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_coordinates_of_the_factors_do_not_matter(seed):
    """(A C^-1, C xi, C Omega C') are the same start; with an upper triangular C even the same numbers."""
    X, _ = problem(seed)
    rng = np.random.default_rng(seed)
    start = COMMON.narrower(COMMON.example(rng, 5, 3, 2), 4.0)
    here = COMMON.started(start, max_iter=3, **EXACT).fit(X)
    for upper in (False, True):
        C = rng.normal(size=(2, 2)) + 3 * np.eye(2)
        C = np.triu(C) if upper else C
        other = dict(zip(start, oracle.turned(C, *start.values()), strict=True))
        there = COMMON.started(other, max_iter=3, **EXACT).fit(X)
        np.testing.assert_allclose(there.history_, here.history_, rtol=1e-10)
        np.testing.assert_allclose(there.means_, here.means_, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(there.covariances_, here.covariances_, rtol=1e-7, atol=1e-8)
        if not upper:
            continue
        first = COMMON.theta(COMMON.started(start, max_iter=0, **EXACT).fit(X))
        again = COMMON.theta(COMMON.started(other, max_iter=0, **EXACT).fit(X))
        assert_same(again, first)


def test_known_parameters_are_kept_as_they_are_until_a_fit():
    X, theta = problem(3)
    known = COMMON.known(theta)
    np.testing.assert_array_equal(known.loadings_, theta["loadings"])
    normal = COMMON.known(COMMON.normal_form(theta))
    np.testing.assert_allclose(known.score_samples(X), normal.score_samples(X), rtol=1e-10)
    U = normal.loadings_.T @ theta["loadings"]
    np.testing.assert_allclose(known.transform(X) @ U.T, normal.transform(X), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(known.reconstruct(X), normal.reconstruct(X), rtol=1e-9, atol=1e-10)


def test_factors_and_rows():
    X, _ = problem(4)
    model = MCFA(3, 2, **SHORT).fit(X)
    Z = model.transform(X)
    means, _ = model.factor_posterior(X)
    np.testing.assert_allclose(Z, np.einsum("nk,nkq->nq", model.predict_proba(X), means), atol=1e-10)
    np.testing.assert_allclose(model.inverse_transform(Z), Z @ model.loadings_.T, atol=1e-12)
    np.testing.assert_allclose(model.reconstruct(X), model.inverse_transform(Z), atol=1e-10)
    np.testing.assert_allclose(model.means_, model.inverse_transform(model.latent_means_), atol=1e-10)


# -- no free mean --------------------------------------------------------------------------------------------


def test_moving_the_rows_changes_the_model():
    X, _ = problem(5, N=200, D=6, K=2, q=1)
    fits = [MCFA(2, 1, random_state=0).fit(X + offset).history_[-1] for offset in (0.0, 10.0)]
    assert fits[0] > fits[1] + 0.05  # as made: all means on one line through the origin


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("offset", [1e2, 1e5, 1e8], ids="{:g}".format)
def test_rows_far_from_the_origin(offset, seed):
    """Seen from the origin all rows are in one direction, which takes one factor; others are for the rest."""
    X = rows(np.random.default_rng(seed), 80, 4) + offset * np.array([1.0, -1.0, 0.5, 2.0])
    for q in (1, 3):
        model = MCFA(2, q, **{**SHORT, "max_iter": 40}).fit(X)
        assert_sensible(model, X)
        deviation = X.std(axis=0)
        overall = model.weights_ @ model.means_
        assert np.all(np.abs(overall - X.mean(axis=0)) < 0.5 * deviation)
        total = np.diagonal(model.covariances_, axis1=1, axis2=2)
        assert np.all(np.sqrt(total) < 5 * deviation)
    # two factors are left beside the mean, and two components, though the steps are few
    assert model.history_[-1] > FactorAnalysis(1).fit(X).history_[-1] - 0.05


@pytest.mark.parametrize("offset", [1e4, 1e8], ids="{:g}".format)
def test_far_from_the_origin_the_mean_costs_one_factor(offset):
    """Of K = 1 and rows far away, q factors are a free mean and q - 1 factors: the mean is never in doubt."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1)) @ rng.normal(size=(1, 5)) * 2 + rng.normal(size=(300, 5))
    moved = np.round(X * 1024) / 1024 + offset
    free_mean = FactorAnalysis(1, prior=None).fit(moved).history_[-1]
    one_more = MCFA(1, 2, prior=None).fit(moved)
    assert_sensible(one_more, moved)
    assert one_more.history_[-1] > free_mean - 1e-3
    np.testing.assert_allclose(one_more.means_[0] - offset, moved.mean(axis=0) - offset, atol=1e-2)


# -- models that are the same --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("holes", [False, True], ids=["", "holes"])
def test_it_is_a_mixture_of_factor_analysers_with_shared_noise(seed, holes):
    X, theta = problem(seed, q=1 + seed)
    if holes:
        X[np.random.default_rng(seed).random(X.shape) < 0.2] = np.nan
    known = COMMON.known(theta)
    twin = MFA.from_parameters(
        weights=known.weights_,
        means=known.means_,
        loadings=known.loadings_ @ np.linalg.cholesky(known.latent_covariances_),
        noise_variance=np.tile(known.noise_variance_, (3, 1)),
        shared_noise=True,
    )
    np.testing.assert_allclose(known.score_samples(X), twin.score_samples(X), rtol=1e-10)
    np.testing.assert_allclose(known.predict_proba(X), twin.predict_proba(X), atol=1e-10)
    np.testing.assert_allclose(known.reconstruct(X), twin.reconstruct(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(known.impute(X), twin.impute(X), rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.* did not converge")  # it contains more than optima
@pytest.mark.parametrize("seed", range(2))
def test_the_mixture_that_contains_it_fits_no_worse(seed):
    X = rows(np.random.default_rng(seed), 150, 5)
    common = MCFA(2, 2, max_iter=100, random_state=seed, prior=None).fit(X)
    values, vectors = np.linalg.eigh(common.latent_covariances_)  # they may be singular
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    free = MFA(
        2,
        2,
        shared_noise=True,
        max_iter=100,
        prior=None,
        weights_init=common.weights_,
        means_init=common.means_,
        loadings_init=common.loadings_ @ roots,
        noise_init=np.tile(common.noise_variance_, (2, 1)),
    ).fit(X)
    assert free.history_[0] == pytest.approx(common.history_[-1], rel=1e-9)
    assert free.history_[-1] > common.history_[-1] + 0.01
    assert free.n_parameters() > common.n_parameters()


@pytest.mark.parametrize("prior", [None, "auto"])
def test_an_empty_component_tells_nothing_of_a_shared_covariance(prior):
    X, _ = problem(0, K=2)
    options = {**EXACT, "prior": prior, "shared_covariance": True}
    start = MCFA(2, 2, max_iter=3, random_state=0, n_init=1, **options).fit(X)
    given = {"loadings_init": start.loadings_, "noise_init": start.noise_variance_}
    means, shared = start.latent_means_, start.latent_covariances_[:1]
    far = np.vstack([means, means[0] + 1e3])  # of no rows
    nearly = np.append(start.weights_ * (1 - 1e-9), 1e-9)
    fits = [
        MCFA(
            len(weights),
            2,
            max_iter=4,
            weights_init=weights,
            latent_means_init=m,
            latent_covariances_init=np.repeat(shared, len(weights), axis=0),
            **given,
            **options,
        ).fit(X)
        for weights, m in ((start.weights_, means), (nearly, far))
    ]
    for model in fits:
        assert np.all(np.diff(model.history_) >= -1e-9)
        assert np.all(np.linalg.eigvalsh(model.latent_covariances_) > 0)
    if prior is None:
        two, three = (model.loadings_ @ model.latent_covariances_[0] @ model.loadings_.T for model in fits)
        np.testing.assert_allclose(three, two, rtol=1e-6)


def test_one_component_has_the_density_of_factor_analysis():
    X, theta = problem(6, K=1)
    _, means, loadings, noise = oracle.as_mfa(*theta.values())
    one = FA.known({"weights": np.ones(1), "means": means, "loadings": loadings, "noise": noise})
    np.testing.assert_allclose(COMMON.known(theta).score_samples(X), one.score_samples(X), rtol=1e-10)


@pytest.mark.parametrize("width", [1.0, 1e-6])
def test_one_component_with_a_factor_more_is_no_worse_than_factor_analysis(width):
    """One factor, of little variance or none, takes the place of the mean."""
    X = rows(np.random.default_rng(1), 200, 6)
    free_mean = FactorAnalysis(2, tol=1e-10, max_iter=5000, prior=None).fit(X)
    model = MCFA(
        1,
        3,
        weights_init=[1.0],
        loadings_init=np.column_stack([free_mean.loadings_, free_mean.mean_]),
        latent_means_init=[[0.0, 0.0, 1.0]],
        latent_covariances_init=np.diag([1.0, 1.0, width]),
        noise_init=free_mean.noise_variance_,
        tol=1e-10,
        max_iter=5000,
        prior=None,
    ).fit(X)
    assert_sensible(model, X)
    assert np.array_equal(model.weights_, [1.0])
    assert model.history_[-1] > free_mean.history_[-1] - 1e-6


@pytest.mark.parametrize("K", [1, 2])
def test_as_many_factors_as_features_is_a_gaussian_mixture(K):
    """Every mean and covariance can be had, but for the floor under the noise."""
    X = rows(np.random.default_rng(3), 200, 3)
    # from one start, since searches for the best one differ
    gaussian = GaussianMixture(K, n_init=1, random_state=0, tol=1e-9, prior=None).fit(X)
    model = MCFA(K, 3, n_init=1, random_state=0, tol=1e-9, max_iter=5000, prior=None).fit(X)
    assert_sensible(model, X)
    assert model.n_parameters() == gaussian.n_parameters()
    assert model.history_[-1] == pytest.approx(gaussian.history_[-1], abs=2e-3)


# -- little to go by -----------------------------------------------------------------------------------------

RNG = np.random.default_rng(7)
POOR = {  # X, K, q
    "N < D": (rows(RNG, 8, 30), 2, 3),
    "N < D, q = N": (rows(RNG, 6, 20), 1, 6),
    "N < D, q > N": (rows(RNG, 6, 20), 2, 9),
    "N = K": (rows(RNG, 4, 3), 4, 2),
    "q = D": (rows(RNG, 40, 4), 2, 4),
    "D = 1": (rows(RNG, 40, 1), 3, 1),
    "each row ten times": (np.repeat(rows(RNG, 4, 4), 10, axis=0), 3, 2),
    "two distinct rows": (np.repeat([[0.0, 1.0, 2.0], [5.0, 4.0, 1.0]], 10, axis=0), 4, 2),
    "rank one": (rows(RNG, 40, 1) @ RNG.normal(size=(1, 5)), 3, 2),
    "rank one, q = D": (rows(RNG, 40, 1) @ RNG.normal(size=(1, 4)), 2, 4),
    "rank two, one factor": (rows(RNG, 40, 2) @ RNG.normal(size=(2, 5)), 3, 1),
    "all around the origin": (RNG.normal(size=(100, 4)), 2, 2),
    "a feature twice": (rows(RNG, 40, 3)[:, [0, 1, 2, 0]], 2, 2),
}
CONSTANT = {
    "a constant feature": (np.insert(rows(RNG, 40, 3), 1, 3.5, axis=1), 2, 2),
    "a feature that is zero": (np.insert(rows(RNG, 40, 3), 1, 0.0, axis=1), 2, 2),
    "all features but one": (np.insert(np.full((40, 3), 7.0), 1, RNG.normal(size=40), axis=1), 2, 2),
    "all features": (np.full((40, 3), 7.0), 2, 2),
    "all features zero": (np.zeros((40, 3)), 2, 2),
}


@pytest.mark.parametrize("accelerate", [None, "squarem"])
@pytest.mark.parametrize("data", POOR)
def test_poor_data(data, accelerate):
    X, K, q = POOR[data]
    assert_sensible(MCFA(K, q, **{**SHORT, "accelerate": accelerate, "max_iter": 40}).fit(X), X)


@pytest.mark.filterwarnings("ignore:X has constant features:UserWarning")
@pytest.mark.parametrize("data", CONSTANT)
def test_constant_features(data):
    X, K, q = CONSTANT[data]
    assert_sensible(MCFA(K, q, **SHORT).fit(X), X)


def test_loadings_that_say_the_same_twice_are_a_start():
    """Of rank one: a start like any other, or an error that says so."""
    X, _ = problem(7)
    for loadings in (np.ones((5, 2)), np.outer(np.arange(1.0, 6.0), [1.0, 0.0])):
        try:
            model = MCFA(3, 2, loadings_init=loadings, **SHORT).fit(X)
        except ValueError as error:
            assert "loadings_init" in str(error)
        else:
            assert_sensible(model, X)


# -- real data -----------------------------------------------------------------------------------------------

# The optimum that EM reaches from the true labels, per row.
REAL = {
    "iris": (load_iris().data, load_iris().target, 2, -1.7017),
    "wine": (StandardScaler().fit_transform(load_wine().data), load_wine().target, 3, -13.9725),
}


@pytest.mark.parametrize("name", REAL)
def test_fits_from_the_true_labels(name):
    """The labels make the start; the fit goes on without them."""
    X, labels, q, optimum = REAL[name]
    settings = {"random_state": 0, "warm_start": True, "prior": None}
    labelled = MCFA(3, q, **settings).fit(X, labels)
    model = labelled.fit(X)
    assert model.history_[-1] == pytest.approx(optimum, abs=1e-4)
    assert_sensible(model, X)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", REAL)
def test_default_fits_are_as_good_as_those_from_the_true_labels(name, seed):
    X, _, q, optimum = REAL[name]
    model = MCFA(3, q, random_state=seed, prior=None).fit(X)
    assert model.converged_
    assert model.history_[-1] > optimum - 1e-4


def test_a_saved_model_goes_on(tmp_path):
    X, _ = problem(8)
    model = MCFA(3, 2, **SHORT).fit(X)
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    assert type(again) is MCFA
    for name, array in COMMON.theta(model).items():
        np.testing.assert_array_equal(COMMON.theta(again)[name], array)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    np.testing.assert_array_equal(again.means_, model.means_)
    again.set_params(warm_start=True).fit(X)
    assert again.history_[0] == pytest.approx(model.history_[-1], rel=1e-10)


# -- steps in alternation ------------------------------------------------------------------------------------


def alternation(seed, N=60):
    """A kernel, parameters in its coordinates, and rows."""
    rng = np.random.default_rng(seed)
    D, K = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    theta = COMMON.example(rng, D, K, int(rng.integers(1, D + 1)))
    model = COMMON.known(theta)
    kernel, params = COMMON.kernel(model, np.zeros(D))
    return kernel, kernel.clamped(params), Block(rows(rng, N, D))


def stepped(kernel, params, block):
    """The log-likelihood at the parameters, and the parameters after a step."""
    density = kernel.prepare(params)
    stats = kernel.stats(density, kernel.e_step(density, block))
    return float(stats.log_likelihood), kernel.m_step(stats, params)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("part", [0, 1], ids=["noise", "factors"])
def test_no_conditional_step_lowers_the_likelihood(part, seed):
    kernel, params, block = alternation(seed)
    conditional = kernel.conditionals(missing=False)[part]
    before = -np.inf
    for _ in range(10):
        likelihood, params = stepped(conditional, params, block)
        assert likelihood > before - 1e-9 * abs(likelihood)
        before = likelihood


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shared", [False, True], ids=["", "shared"])
@pytest.mark.parametrize("part", ["noise", "factors", "all", "all, with tails"])
def test_no_step_lowers_the_penalised_likelihood(part, shared, seed):
    """Whatever the scale of the prior, and however strong it is."""
    kernel, params, block = alternation(seed)
    rng, D = np.random.default_rng(seed), block.X.shape[1]
    prior = Prior(5.0 * 10**seed, rng.uniform(0.1, 2.0, size=D), rng.normal(size=(D, 2)))
    family = dataclasses.replace(kernel.family, prior=prior, shared=shared)
    if shared:
        covariances = params.components.latent_covariances
        covariances = np.broadcast_to(covariances[:1], covariances.shape)
        params = dataclasses.replace(
            params, components=dataclasses.replace(params.components, latent_covariances=covariances)
        )
    if part == "all, with tails":
        family = HeavyTailed(family)
        degrees = np.full(len(params.weights), 4.0)
        params = dataclasses.replace(params, components=HeavyParams(params.components, degrees))
    kernel = dataclasses.replace(kernel, family=family)
    if part in ("noise", "factors"):
        kernel = kernel.conditionals(missing=False)[("noise", "factors").index(part)]
    before = -np.inf
    for _ in range(15):
        log_prior = kernel.log_prior(params)
        likelihood, params = stepped(kernel, params, block)
        assert likelihood + log_prior > before - 1e-9 * abs(likelihood + log_prior)
        before = likelihood + log_prior


def test_steps_with_a_prior_do_not_depend_on_the_coordinates_of_the_factors():
    X, _ = problem(2)
    start = COMMON.narrower(COMMON.example(np.random.default_rng(2), 5, 3, 2), 4.0)
    C = np.array([[3.0, 0.2], [-1.0, 0.01]])
    other = dict(zip(start, oracle.turned(C, *start.values()), strict=True))
    settings = {**EXACT, "prior": 20.0, "max_iter": 4}
    here, there = (COMMON.started(of, **settings).fit(X) for of in (start, other))
    np.testing.assert_allclose(there.history_, here.history_, rtol=1e-9)
    np.testing.assert_allclose(there.covariances_, here.covariances_, rtol=1e-6, atol=1e-8)


def test_a_strong_prior_gives_all_components_its_scale():
    X, _ = problem(3, N=200)
    model = MCFA(3, 2, prior=1e7, random_state=0).fit(X)
    np.testing.assert_allclose(
        model.covariances_, model.covariances_[:1].repeat(3, axis=0), rtol=1e-3, atol=1e-3
    )
    problem_of = model._problem(model._data(X, reset=False))
    prior, unit = problem_of.kernel.family.prior, problem_of.frame.scale
    expected = (prior.loadings @ prior.loadings.T + np.diag(prior.scale)) * unit[:, None] * unit
    np.testing.assert_allclose(model.covariances_[0], expected, rtol=1e-2, atol=1e-2)


def test_new_rows_from_few_are_likelier_with_the_prior():
    """Planted models, twelve rows for each component."""
    gained = []
    for seed in range(6):
        theta = COMMON.example(np.random.default_rng(seed), 6, 3, 2, spread=4.0)
        X, new = (COMMON.known(theta).sample(n, random_state=s)[0] for n, s in ((36, seed), (2000, 99)))
        plain, default = (MCFA(3, 2, random_state=0, prior=prior).fit(X) for prior in (None, "auto"))
        gained.append(default.score(new) - plain.score(new))
    assert min(gained) > -0.1 and np.median(gained) > 0.05


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "part, fixed",
    [(0, ("loadings", "latent_means", "latent_covariances")), (1, ("loadings", "noise_variance"))],
    ids=["noise", "factors"],
)
def test_a_conditional_step_leaves_the_rest_alone(part, fixed, seed):
    kernel, params, block = alternation(seed)
    _, after = stepped(kernel.conditionals(missing=False)[part], params, block)
    changed = {"loadings", "latent_means", "latent_covariances", "noise_variance"} - set(fixed)
    for name in fixed:
        np.testing.assert_array_equal(getattr(after.components, name), getattr(params.components, name))
    for name in changed:
        assert not np.allclose(getattr(after.components, name), getattr(params.components, name))


@pytest.mark.parametrize("seed", range(4))
def test_the_factors_are_the_best_for_their_responsibilities(seed):
    """With one component a second step changes nothing, and no others nearby are better."""
    rng = np.random.default_rng(seed)
    model = COMMON.known(COMMON.example(rng, 5, 1, 2))
    kernel, params = COMMON.kernel(model, np.zeros(5))
    block, params = Block(rows(rng, 80, 5)), kernel.clamped(params)
    _, once = stepped(kernel.conditionals(missing=False)[1], params, block)
    likelihood, twice = stepped(kernel.conditionals(missing=False)[1], once, block)
    twice, once_more = (dataclasses.asdict(of.components) for of in (twice, once))
    assert_same(twice, once_more, rtol=1e-8, atol=1e-8)
    for _ in range(20):  # factors nearby are no better
        moved = once.components.latent_means + 0.01 * rng.normal(size=(1, 2))
        roots = np.linalg.cholesky(once.components.latent_covariances + 1e-12 * np.eye(2))
        roots = roots + 0.01 * rng.normal(size=roots.shape)
        other = dataclasses.replace(
            once.components, latent_means=moved, latent_covariances=roots @ np.swapaxes(roots, 1, 2)
        )
        worse, _ = stepped(kernel, dataclasses.replace(once, components=other), block)
        assert worse < likelihood + 1e-9


@pytest.mark.parametrize("seed", [0])
def test_steps_in_alternation_end_where_em_does(seed):
    rng = np.random.default_rng(seed)
    X = rows(rng, 80, 5)
    slow = MCFA(2, 2, accelerate=None, max_iter=1500, tol=0, n_init=2, random_state=0).fit(X)
    named = {"noise_variance": "noise_init"}
    starts = {named.get(name, f"{name}_init"): array for name, array in slow._fitted_arrays().items()}
    fast = MCFA(2, 2, tol=1e-12, max_iter=200, **starts).fit(X)
    assert -1e-9 < fast.history_[-1] - slow.history_[-1] < 1e-3


# -- one covariance for all components --------------------------------------------------------------------


def alike(theta):
    """The parameters with the first component's covariance for all."""
    covariances = np.broadcast_to(theta["latent_covs"][0], theta["latent_covs"].shape)
    return {**theta, "latent_covs": covariances}


@pytest.mark.parametrize("seed", range(3))
def test_shared_covariance_steps_are_exact(seed):
    """Q parts into terms, and the best common covariance is the mean of the components' own, weighted."""
    X, _ = problem(seed)
    start = alike(COMMON.example(np.random.default_rng(seed), 5, 3, 2))
    model = COMMON.started(start, max_iter=1, shared_covariance=True, **EXACT).fit(X)
    weights, A, xi, Omega, noise = oracle.step(X, *start.values())
    pooled = np.broadcast_to(np.einsum("k,kij->ij", weights, Omega), Omega.shape)
    _, means, covariances = oracle.dense(weights, A, xi, pooled, noise)
    np.testing.assert_allclose(model.weights_, weights, rtol=1e-10)
    np.testing.assert_allclose(model.means_, means, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(model.covariances_, covariances, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("fashion", FASHIONS)
@pytest.mark.parametrize("holes", [False, True], ids=["", "holes"])
def test_shared_covariance_is_kept_and_never_falls(fashion, holes, tmp_path):
    X, _ = problem(4)
    if holes:
        X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    model = MCFA(3, 2, shared_covariance=True, **{**SHORT, **FASHIONS[fashion]}).fit(X)
    np.testing.assert_allclose(model.covariances_, model.covariances_[:1].repeat(3, axis=0), atol=1e-10)
    if fashion not in ("mini-batches", "single precision"):  # whose history is known to a few digits only
        assert_sensible(model, X)
        free = MCFA(3, 2, warm_start=True, **{**SHORT, **FASHIONS[fashion]})
        free.__dict__.update({k: v for k, v in vars(model).items() if k.endswith("_")})
        assert free.fit(X).history_[-1] >= model.history_[-1] - 1e-9
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    assert again.n_parameters() == model.n_parameters() < COMMON.known(COMMON.theta(model)).n_parameters()


@pytest.mark.parametrize(("D", "K", "q"), [(6, 2, 1), (6, 3, 2), (7, 4, 3), (5, 1, 2)])
def test_shared_covariance_counts_are_ranks(D, K, q):
    """The rank of the Jacobian of means and the common covariance by the parameters, by differences."""
    rng = np.random.default_rng(0)
    theta = alike(COMMON.example(rng, D, K, q))
    root = np.linalg.cholesky(theta["latent_covs"][0])
    shapes = [(D, q), (K, q), (q, q), (D,)]
    x0 = np.concatenate([a.ravel() for a in (theta["loadings"], theta["latent_means"], root, theta["noise"])])

    def density(x):
        parts = np.split(x, np.cumsum([np.prod(s) for s in shapes])[:-1])
        A, xi, C, psi = (part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
        return np.concatenate([(xi @ A.T).ravel(), (A @ C @ C.T @ A.T + np.diag(psi))[np.triu_indices(D)]])

    step = 1e-6
    jacobian = np.stack(
        [(density(x0 + step * e) - density(x0 - step * e)) / (2 * step) for e in np.eye(len(x0))]
    )
    values = np.linalg.svd(jacobian, compute_uv=False)
    rank = np.sum(values > 1e-6 * values[0])
    model = COMMON.known(theta).set_params(shared_covariance=True)
    assert model.n_parameters() == K - 1 + rank


def test_shared_covariance_wants_equal_starts():
    X, _ = problem(0)
    start = COMMON.example(np.random.default_rng(0), 5, 3, 2)
    with pytest.raises(ValueError, match="latent_covariances_init must be the same for all components"):
        COMMON.started(start, shared_covariance=True, **SHORT).fit(X)
    with pytest.raises(ValueError, match="shared_covariance must be True or False"):
        MCFA(3, 2, shared_covariance="yes").fit(X)
