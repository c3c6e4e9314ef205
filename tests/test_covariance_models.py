"""The covariance models of mclust: volume, shape and orientation, equal or varying among components."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

import latently
from latently.distributions.eigen_gaussian import MODELS
from latently.mixture import GaussianMixture

ALL = "EII VII EEI VEI EVI VVI EEE VEE EVE VVE EEV VEV EVV VVV".split()
# BIC of two components on Fisher's iris, as mclust 6.0.0 prints it (negative here): likelihood facts.
MCLUST = dict(
    zip(
        ALL,
        (1123.4117, 1012.2352, 1042.9679, 956.2823, 1007.3082, 857.5515, 688.0972)
        + (656.3270, 657.2263, 605.1841, 644.5997, 561.7285, 658.3306, 574.0178),
        strict=True,
    )
)


def parts(covariances):
    """Volumes (K,), shapes (K, D) from the largest, and whether all have the same eigenvectors."""
    values = np.linalg.eigvalsh(covariances)[:, ::-1]
    volumes = np.prod(values, axis=1) ** (1 / values.shape[1])
    first, second = covariances[:2]
    commute = np.abs(first @ second - second @ first).max() / np.abs(first @ second).max() < 1e-7
    return volumes, values / volumes[:, None], commute


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(3, 4, 4))
    return np.concatenate([rng.normal(size=(60, 4)) @ root + 4 * k for k, root in enumerate(roots)])


@pytest.mark.parametrize("model", ALL)
def test_components_share_what_the_letters_say(model, rows):
    found = GaussianMixture(3, covariance_type=model, n_init=1, max_iter=30, tol=0, random_state=0)
    found.fit(rows)
    covariances = found.covariances_
    assert covariances.shape == (3, 4, 4)
    volumes, shapes, commute = parts(covariances)
    volume, shape, orientation = model
    assert (np.ptp(volumes) < 1e-8 * volumes.max()) == (volume == "E")
    if shape == "I":
        np.testing.assert_allclose(shapes, 1.0, rtol=1e-8)
    elif orientation != "I":  # along the axes shapes are compared axis by axis
        assert (np.ptp(shapes, axis=0).max() < 1e-6 * shapes.max()) == (shape == "E")
    if orientation == "I":
        assert np.all(covariances * (1 - np.eye(4)) == 0)
        diagonals = np.diagonal(covariances, axis1=1, axis2=2) / volumes[:, None]
        assert (np.ptp(diagonals, axis=0).max() < 1e-8 * diagonals.max()) == (shape in "EI")
    else:
        assert commute == (orientation == "E")
    assert np.diff(found.history_).min() > -1e-11
    assert found.n_parameters() == 2 + found._structure().family(None).n_parameters(3, 4)


@pytest.mark.parametrize("model", ALL)
def test_bic_is_that_of_mclust(model):
    X = load_iris().data
    found = GaussianMixture(2, covariance_type=model, prior=None, random_state=0).fit(X)
    ours = found.bic(X)
    if model == "VVE":  # rotations in planes reach a better optimum than mclust's majorisation
        assert ours < MCLUST[model]
    else:
        assert ours == pytest.approx(MCLUST[model], rel=1e-6)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_an_m_step_is_at_least_a_local_optimum(model):
    """No covariances of the model near those found have a smaller sum of n ln|S| + tr(W S^-1)."""
    rng = np.random.default_rng(1)
    K, D = 3, 3
    roots = rng.normal(size=(K, D, D))
    n = np.array([20.0, 35.0, 50.0])
    W = n[:, None, None] * (roots @ np.swapaxes(roots, 1, 2) + 0.1 * np.eye(D))
    before = np.repeat(np.eye(D)[None] + np.diag([0.1, 0.2, 0.3]), K, axis=0)
    found = MODELS[model].covariances(W, n, before)

    def objective(S):
        return sum(n[k] * np.linalg.slogdet(S[k])[1] + np.trace(W[k] @ np.linalg.inv(S[k])) for k in range(K))

    best = objective(found)
    volume, shape, orientation = model
    values, Q = np.linalg.eigh(found)
    if orientation == "E" and shape == "V":  # one set of axes: the eigenvalues along them, in one order
        Q = np.repeat(np.linalg.eigh(found[0])[1][None], K, axis=0)
        values = np.einsum("kji,kjl,kli->ki", Q, found, Q)
    if orientation == "I":
        Q, values = np.repeat(np.eye(D)[None], K, axis=0), np.diagonal(found, axis1=1, axis2=2)
    for _ in range(60):
        step = 0.02 * rng.normal(size=(K, D))
        moved_volume, moved_shape = step.mean(axis=1, keepdims=True), step - step.mean(axis=1, keepdims=True)
        if volume == "E":
            moved_volume = moved_volume[:1]
        if shape == "E":
            moved_shape = moved_shape[:1]
        turns = 0.02 * rng.normal(size=(K, D, D))
        turns = (turns - np.swapaxes(turns, 1, 2)) * (orientation != "I")
        turns = turns[:1] if orientation == "E" else turns
        turned = (np.eye(D) + turns + turns @ turns / 2) @ Q  # nearly orthogonal
        turned = np.linalg.qr(turned)[0]
        S = (turned * (values * np.exp(moved_volume + moved_shape))[:, None, :]) @ np.swapaxes(turned, 1, 2)
        assert objective(S) > best - 1e-9 * abs(best)


@pytest.mark.parametrize("model", ["VVE", "EEV", "VEI", "EEI"])
def test_models_take_missing_entries_weights_and_files(model, rows, tmp_path):
    rng = np.random.default_rng(0)
    holes = np.where(rng.random(rows.shape) < 0.1, np.nan, rows)
    found = GaussianMixture(2, covariance_type=model, n_init=1, max_iter=20, tol=0, random_state=0)
    found.fit(holes, sample_weight=rng.integers(3, size=len(rows)))
    assert np.diff(found.history_).min() > -1e-10 and np.isfinite(found.impute(holes)).all()
    found.save(tmp_path / "m.latently")
    loaded = latently.load(tmp_path / "m.latently")
    np.testing.assert_array_equal(loaded.score_samples(holes), found.score_samples(holes))


def test_starting_values_must_fit_the_model(rows):
    covariances = np.repeat(np.cov(rows.T)[None], 2, axis=0)
    with pytest.raises(ValueError, match="covariances_init must be diagonal"):
        GaussianMixture(2, covariance_type="VVI", covariances_init=covariances).fit(rows)
    with pytest.raises(ValueError, match=r"covariance_type must be one of .*'VVE'"):
        GaussianMixture(2, covariance_type="VVX").fit(rows)


def test_a_singular_covariance_is_an_error_that_names_the_cure():
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[:, 2] = X[:, 0] + X[:, 1]
    with pytest.raises(ValueError, match="became singular; use the default prior"):
        GaussianMixture(2, covariance_type="VEV", prior=None, noise_floor=0, random_state=0).fit(X)
    found = GaussianMixture(2, covariance_type="VEV", random_state=0).fit(X)
    assert np.isfinite(found.score(X))
