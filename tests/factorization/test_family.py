"""Vector quantisation and PCA as factorisations: one reading of components, sources and cost."""

import numpy as np
import pytest
from sklearn import decomposition
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

import latently
from latently.factorization import NMF, PCA, VectorQuantizer
from tests.unchecked import write_unchecked

INITS = ["k-means++", "rows", "unit", "gaussian"]
X = load_digits().data[:300]
FAMILY = [VectorQuantizer(4, n_init=2, random_state=0), PCA(4)]
every_member = pytest.mark.parametrize("model", FAMILY, ids=lambda model: type(model).__name__)


# -- one reading for all ----------------------------------------------------------------------------


@every_member
def test_the_cost_is_that_of_sources_times_components(model):
    model = clone(model).fit(X)
    S, A = model.transform(X), model.components_
    offset = getattr(model, "mean_", 0.0)
    np.testing.assert_allclose(model.inverse_transform(S), S @ A + offset, rtol=1e-12)
    np.testing.assert_allclose(model.reconstruct(X), S @ A + offset, rtol=1e-12)
    by_row = np.linalg.norm(X - offset - S @ A, axis=1) ** 2
    np.testing.assert_allclose(model.squared_error(X), by_row.sum(), rtol=1e-12)
    weight = np.arange(len(X)) % 3
    np.testing.assert_allclose(model.squared_error(X, weight), weight @ by_row, rtol=1e-12)


@every_member
def test_reconstructing_twice_changes_nothing(model):
    model = clone(model).fit(X)
    once = model.reconstruct(X)
    np.testing.assert_allclose(model.reconstruct(once), once, atol=1e-10)


@every_member
def test_more_components_cost_less(model):
    costs = [clone(model).set_params(n_components=r).fit(X).squared_error(X) for r in (1, 2, 5, 20)]
    assert np.all(np.diff(costs) < 0)


@every_member
def test_files_with_other_arrays(model, tmp_path):
    fitted = clone(model).fit(X)
    fitted.n_components = 5  # a header that says otherwise than its arrays
    write_unchecked(fitted, tmp_path / "model.latently")
    with pytest.raises(latently.core.io.ModelFileError, match="n_components=5"):
        latently.load(tmp_path / "model.latently")


@every_member
def test_bad_use(model):
    with pytest.raises(NotFittedError):
        clone(model).reconstruct(X)
    fitted = clone(model).fit(X)
    with pytest.raises(ValueError, match="3 columns, but the model has 4 components"):
        fitted.inverse_transform(np.zeros((2, 3)))
    for wrong in (0, 2.5, "many", 301):
        with pytest.raises(ValueError, match="n_components"):
            clone(model).set_params(n_components=wrong).fit(X)


# -- vector quantisation ----------------------------------------------------------------------------


@pytest.mark.parametrize("init", INITS)
def test_prototypes_are_a_fixed_point_of_lloyd(init):
    model = VectorQuantizer(6, init=init, n_init=1, random_state=1).fit(X)
    distances = ((X[:, None, :] - model.components_) ** 2).sum(axis=2)
    labels = distances.argmin(axis=1)
    np.testing.assert_array_equal(model.predict(X), labels)
    np.testing.assert_array_equal(model.transform(X), np.eye(6)[labels])
    assert model.components_.min() >= 0  # as X is
    assert set(labels) == set(range(6))  # none is left without rows, wherever it started
    for k in range(6):
        np.testing.assert_allclose(model.components_[k], X[labels == k].mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(model.squared_error(X), distances.min(axis=1).sum(), rtol=1e-10)


def test_starts_are_what_they_are_called():
    starts = {init: VectorQuantizer(20, init=init, n_init=1, random_state=0).fit(X).starts_ for init in INITS}
    for init in ("k-means++", "rows"):
        assert all(np.any(np.all(np.isclose(X, start), axis=1)) for start in starts[init])
        assert len(np.unique(starts[init], axis=0)) == 20
    np.testing.assert_allclose(np.linalg.norm(starts["unit"], axis=1), 1.0, rtol=1e-12)
    assert starts["unit"].min() > 0
    z = (starts["gaussian"] - X.mean(axis=0))[:, X.std(axis=0) > 0] / X.std(axis=0)[X.std(axis=0) > 0]
    assert abs(z.mean()) < 5 / np.sqrt(z.size) and abs(z.var() - 1) < 5 * np.sqrt(2 / z.size)


def test_is_no_worse_than_scikit_learn():
    ours = VectorQuantizer(10, n_init=10, random_state=0).fit(X).squared_error(X)
    theirs = KMeans(10, n_init=10, random_state=0).fit(X).inertia_
    assert ours < 1.02 * theirs


def test_more_starts_never_cost_more():
    cost = lambda n, seed: (
        VectorQuantizer(15, init="rows", n_init=n, random_state=seed).fit(X).squared_error(X)
    )
    gains = [cost(1, seed) - cost(4, seed) for seed in range(6)]  # the first start is the same
    assert min(gains) >= 0 and max(gains) > 0


def test_weights_count():
    weight = np.random.default_rng(0).uniform(0.1, 5.0, len(X))
    prototypes = VectorQuantizer(5, random_state=0).fit(X, sample_weight=weight)
    labels = prototypes.predict(X)
    for k in range(5):
        own = labels == k
        mean = np.average(X[own], axis=0, weights=weight[own])
        np.testing.assert_allclose(prototypes.components_[k], mean, rtol=1e-10)
    axes = PCA(3).fit(X, sample_weight=weight)
    covariance = np.cov(X.T, aweights=weight, ddof=0) * len(X) / (len(X) - 1)  # weights are shares
    np.testing.assert_allclose(axes.mean_, np.average(X, axis=0, weights=weight), atol=1e-12)
    np.testing.assert_allclose(
        axes.components_ @ covariance @ axes.components_.T, np.diag(axes.explained_variance_), atol=1e-9
    )
    np.testing.assert_allclose(np.linalg.eigvalsh(covariance)[:-4:-1], axes.explained_variance_, rtol=1e-9)


@every_member
def test_weights_are_copies_in_any_order(model):
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 3, len(X))
    weighted = clone(model).fit(X, sample_weight=weight)
    copied = clone(model).fit(rng.permutation(np.repeat(X, weight, axis=0)))
    np.testing.assert_allclose(weighted.components_, copied.components_, atol=1e-9)
    np.testing.assert_allclose(weighted.transform(X), copied.transform(X), atol=1e-9)


def test_fewer_distinct_rows_than_prototypes():
    with pytest.raises(ValueError, match=r"n_components=3 .* distinct rows of X, 2"):
        VectorQuantizer(3).fit(np.repeat([[0.0, 1.0], [2.0, 3.0]], 10, axis=0))


def test_bad_settings():
    for setting in ({"init": "worst"}, {"n_init": 0}, {"max_iter": 0}, {"random_state": "seed"}):
        (name,) = setting
        with pytest.raises(ValueError, match=name):
            VectorQuantizer(2, **setting).fit(X)


# -- PCA --------------------------------------------------------------------------------------------


def test_pca_cost_is_what_the_other_singular_values_leave():
    values = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    for r in (1, 5, 30):
        model = PCA(r).fit(X)
        np.testing.assert_allclose(model.squared_error(X), np.sum(values[r:] ** 2), rtol=1e-9)
        np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(r), atol=1e-12)
        np.testing.assert_allclose(
            model.transform(X).var(axis=0, ddof=1), model.explained_variance_, rtol=1e-9
        )


def test_pca_is_that_of_scikit_learn():
    ours, theirs = PCA(7).fit(X), decomposition.PCA(7, svd_solver="full").fit(X)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-12)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-9)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-10)


def test_costs_of_the_family():
    """The mean and r axes hold any r + 1 prototypes; parts are as many components, and constrained."""
    for r in (1, 3, 6):
        axes = PCA(r).fit(X).squared_error(X)
        assert axes <= VectorQuantizer(r + 1, n_init=3, random_state=0).fit(X).squared_error(X) * (1 + 1e-9)
        parts = 2 * NMF(r + 1, random_state=0).fit(X).row_cost(X).sum()
        # r + 1 free components through the origin can hold the mean and r axes, so parts may cost less than
        # these, but no less than r + 1 axes
        assert parts >= PCA(r + 1).fit(X).squared_error(X) * (1 - 1e-9)
