"""The twelve parsimonious mixtures of factor analysers: what is shared, counts, optima, floors."""

from contextlib import nullcontext

import numpy as np
import pytest
from scipy import optimize
from scipy.special import logsumexp

import latently
from latently.distributions.parsimonious import _OF_FORM
from latently.mixture import MFA, MPPCA
from latently.mixture.parsimonious import MODELS, structure_of
from latently.selection import select

NEW = [name for name, (_, shared, loadings) in MODELS.items() if loadings or isinstance(shared, str)]
K, D, Q = 2, 4, 1


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    parts = [
        4.0 * k
        + rng.normal(size=(60, 1)) @ rng.uniform(0.7, 1.6, size=(1, D))
        + rng.normal(size=(60, D)) * width
        for k, width in enumerate(rng.uniform(0.4, 1.5, size=(K, D)))
    ]
    return np.concatenate(parts)


# -- an oracle: covariances from free numbers, and their dense densities -----------------------------------


def covariances(numbers, name):
    """(K, D, D) by the definition of the model, from one vector of numbers, more than it needs."""
    noise, shared, common = MODELS[name]
    L = numbers[: K * D * Q].reshape(K, D, Q)
    log_psi = numbers[K * D * Q : K * D * (Q + 1)].reshape(K, D)
    if common:
        L = L[:1]
    if noise == "isotropic":
        log_psi = log_psi[:, :1]
    volume = log_psi.mean(axis=1, keepdims=True)
    shape = log_psi - volume
    if shared is True:
        volume, shape = volume[:1], shape[:1]
    if shared == "shape":
        shape = shape[:1]
    if shared == "volume":
        volume = volume[:1]
    psi = np.exp(volume + shape) * np.ones((K, D))
    return L @ np.swapaxes(L, 1, 2) + psi[:, :, None] * np.eye(D)


def log_likelihood(numbers, X, name):
    """Per row."""
    log_weights = np.append(0.0, numbers[: K - 1])
    means = numbers[K - 1 : K - 1 + K * D].reshape(K, D)
    S = covariances(numbers[K - 1 + K * D :], name)
    r = X[None] - means[:, None]
    quadratic = np.einsum("kni,kij,knj->kn", r, np.linalg.inv(S), r)
    log_normal = -0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * S)[1][:, None])
    return logsumexp(log_normal + (log_weights - logsumexp(log_weights))[:, None], axis=0).mean()


def numbers_of(model):
    weights = np.log(model.weights_[1:] / model.weights_[0])
    parts = (weights, model.means_, model.loadings_, np.log(model.noise_variance_))
    return np.concatenate([np.ravel(part) for part in parts])


# -- tests ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_components_share_what_the_letters_say(name, rows):
    noise, shared, common = MODELS[name]
    model = MFA(K, Q, covariance_type=name, n_init=1, max_iter=40, tol=0, random_state=0).fit(rows)
    assert model.loadings_.shape == (K, D, Q) and model.noise_variance_.shape == (K, D)
    assert np.diff(model.history_).min() > -1e-11
    logs = np.log(model.noise_variance_)
    volume = logs.mean(axis=1)
    assert (np.ptp(model.loadings_, axis=0).max() < 1e-12) == common
    assert (np.ptp(logs, axis=1).max() < 1e-12) == (noise == "isotropic")
    assert (np.ptp(volume) < 1e-10) == (shared in (True, "volume"))
    same_shape = noise == "isotropic" or shared in (True, "shape")
    assert (np.ptp(logs - volume[:, None], axis=0).max() < 1e-10) == same_shape
    by_parts = MFA(K, Q, noise=noise, shared_noise=shared, shared_loadings=common)
    assert structure_of(by_parts) == structure_of(model)


@pytest.mark.parametrize("name", MODELS)
def test_counts_are_ranks(name):
    """As many free parameters as there are directions in which the covariances can move."""
    size = K * D * (Q + 1)
    at, step = np.random.default_rng(1).normal(size=size), 1e-5
    moved = [covariances(at + e, name) - covariances(at - e, name) for e in step * np.eye(size)]
    rank = np.linalg.matrix_rank(np.array(moved).reshape(size, -1) / (2 * step), tol=1e-5)
    model = MFA.from_parameters(
        weights=np.ones(K) / K, means=np.zeros((K, D)), loadings=np.ones((K, D, Q)),
        noise_variance=np.ones((K, D)), covariance_type=name,
    )  # fmt: skip
    assert model.n_parameters() == K - 1 + K * D + rank


@pytest.mark.parametrize("name", NEW)
def test_a_fit_is_a_maximum_of_the_likelihood(name, rows):
    """The likelihood of an own density is flat there, and a general optimiser comes back to it."""
    model = MFA(K, Q, covariance_type=name, prior=None, n_init=1, tol=1e-12, random_state=0).fit(rows)
    at = numbers_of(model)
    assert log_likelihood(at, rows, name) == pytest.approx(model.history_[-1], abs=1e-12)
    slopes = optimize.approx_fprime(at, log_likelihood, 1e-7, rows, name)
    assert np.max(np.abs(slopes)) < 1e-4
    if name in ("CUCU", "CUU"):
        start = at + 0.02 * np.random.default_rng(2).normal(size=at.size)
        found = optimize.minimize(lambda p: -log_likelihood(p, rows, name), start, options={"maxiter": 200})
        assert -found.fun == pytest.approx(model.history_[-1], abs=1e-6)


@pytest.mark.parametrize("form", ["shape", "volume"])
@pytest.mark.parametrize("binding", [False, True])
def test_noise_of_a_shared_shape_or_volume_is_the_best(form, binding):
    rng = np.random.default_rng(3)
    s, n = rng.uniform(1.0, 9.0, size=(3, 4)), rng.uniform(5.0, 9.0, size=(3, 1)) * np.ones((3, 4))
    floor = np.array([1e-6, 1e-6, 1e-6, 1.2 if binding else 1e-6])
    s[:, 3] *= 0.7
    before = np.full((3, 4), 2.0)
    found = before
    for _ in range(20):
        found = _OF_FORM[form](s, n, found, floor)
    assert np.all(found >= floor * (1 - 1e-9))
    assert np.any(found <= floor * (1 + 1e-9)) == binding

    def cost(psi):
        return np.sum(n * np.log(psi) + s / psi)

    def psi_of(numbers):
        if form == "shape":
            return np.exp(numbers[:3, None] + numbers[3:7])
        logs = numbers[:12].reshape(3, 4)
        return np.exp(logs - logs.mean(axis=1, keepdims=True) + numbers[12])

    best = optimize.minimize(
        lambda p: cost(psi_of(p)), np.full(13, 0.4), method="SLSQP", options={"maxiter": 500, "ftol": 1e-13},
        constraints={"type": "ineq", "fun": lambda p: np.ravel(np.log(psi_of(p)) - np.log(floor))},
    )  # fmt: skip
    if form == "volume" or not binding:
        assert cost(found) == pytest.approx(best.fun, abs=1e-6)
    else:  # steps over one part after the other may end at a corner of the bounds
        assert best.fun - 1e-6 <= cost(found) < cost(np.maximum(before, floor))


@pytest.mark.parametrize(
    ("name", "prior"), [("CUU", "auto"), ("CCUU", None), ("UUCU", "auto"), ("CUCU", None), ("CCC", None)]
)
def test_models_take_holes_weights_constants_and_files(name, prior, rows, tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack([np.where(rng.random(rows.shape) < 0.1, np.nan, rows), np.full(len(rows), 7.0)])
    model = MFA(2, 2, covariance_type=name, prior=prior, n_init=1, max_iter=30, tol=0, random_state=0)
    isotropic = MODELS[name][0] == "isotropic"  # has no feature's own variance
    with nullcontext() if isotropic else pytest.warns(UserWarning, match="constant features"):
        model.fit(X, sample_weight=rng.integers(3, size=len(rows)))
    assert np.diff(model.history_).min() > -1e-10 and np.isfinite(model.impute(X)).all()
    model.save(tmp_path / "m.latently")
    loaded = latently.load(tmp_path / "m.latently")
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))
    assert loaded.n_parameters() == model.n_parameters()


def test_select_goes_over_models_and_sizes(rows):
    grid = {"covariance_type": ["UUU", "CUU", "CCUU"], "n_components": [1, 2], "n_factors": [1]}
    found = select(MFA(random_state=0, n_init=1, max_iter=50, tol=1e-5), rows, grid)
    assert found.best_params_["n_components"] == 2
    assert found.best_params_["covariance_type"].startswith("C")  # loadings of these rows are alike


def test_rotated_models_share_their_loadings(rows):
    model = MFA(2, 2, covariance_type="CUU", n_init=1, random_state=0).fit(rows)
    turned = model.rotate()
    np.testing.assert_allclose(turned.score_samples(rows), model.score_samples(rows), rtol=1e-10)
    assert not np.any(turned.loadings_ != turned.loadings_[:1])


def test_starting_values_and_options_must_fit_the_model(rows):
    L = np.arange(16.0).reshape(2, 4, 2)
    with pytest.raises(ValueError, match="loadings_init must be the same for all components"):
        MFA(2, 2, covariance_type="CUU", loadings_init=L).fit(rows)
    with pytest.raises(ValueError, match="noise_init must be that of components which share the shape"):
        MFA(2, 2, covariance_type="UCUU", noise_init=[[1, 2, 3, 4], [1, 1, 1, 1]]).fit(rows)
    with pytest.raises(ValueError, match=r"covariance_type must be one of 'auto', 'UUU'"):
        MFA(2, 2, covariance_type="UCCU").fit(rows)
    with pytest.raises(ValueError, match="leave these at their defaults"):
        MFA(2, 2, covariance_type="CCC", shared_noise=True).fit(rows)
    with pytest.raises(ValueError, match="shared_noise must be True, False, 'shape' or 'volume', not 'all'"):
        MFA(2, 2, shared_noise="all").fit(rows)
    with pytest.raises(ValueError, match="shared_noise must be True, False"):
        MFA(2, 2, shared_noise=np.array([])).fit(rows)


def test_isotropic_noise_has_one_shape(rows):
    settings = {"n_init": 1, "max_iter": 20, "tol": 0, "random_state": 0}
    free = MFA(2, 1, noise="isotropic", shared_noise="shape", **settings).fit(rows)
    np.testing.assert_array_equal(free.loadings_, MPPCA(2, 1, **settings).fit(rows).loadings_)
    shared = MFA(2, 1, noise="isotropic", shared_noise="volume", **settings).fit(rows)
    np.testing.assert_array_equal(
        shared.loadings_, MPPCA(2, 1, shared_noise=True, **settings).fit(rows).loadings_
    )
