"""Densities of sources: against the change of variables, by sampling, with factorisations of all kinds."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn import decomposition
from sklearn import mixture as sklearn_mixture
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import latently
from latently.factorization import NMF, PCA
from latently.generate import SourceDensity
from latently.mixture import MCFA, MFA, FactorAnalysis, GaussianMixture, NestedMixture
from tests.unchecked import write_unchecked

X = load_digits().data[:400]
FAST = {"random_state": 0, "tol": 1e-3, "n_init": 1}


def correlated(n=200, D=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, D)) @ rng.normal(size=(D, D)) + rng.normal(size=D)


FACTORIZERS = [
    PCA(5),
    NMF(5, random_state=0),
    decomposition.PCA(5, whiten=True),
    decomposition.NMF(5, init="nndsvda", max_iter=2000, tol=1e-3),
    decomposition.FactorAnalysis(5, max_iter=50),
    decomposition.TruncatedSVD(5, random_state=0),
    FactorAnalysis(5, tol=1e-4),
    make_pipeline(StandardScaler(), PCA(5)),
]


@pytest.mark.filterwarnings("ignore:FactorAnalysis did not converge")
@pytest.mark.filterwarnings("ignore:X has constant features")
@pytest.mark.parametrize(
    "factorizer", FACTORIZERS, ids=lambda each: f"{type(each).__module__.split('.')[0]}-{each!r:.12}"
)
def test_rows_are_made_of_drawn_sources(factorizer):
    """Draws are A s + b: in the span of what the factorisation can make, with the moments of the sources."""
    model = SourceDensity(factorizer, GaussianMixture(2, **FAST)).fit(X)
    S = model.sources(X)
    assert S.shape == (400, 5) and model.n_sources_ == 5
    drawn, components = model.sample(20_000, random_state=0)
    assert drawn.shape == (20_000, 64) and set(components) == {0, 1}
    density = model.density_
    mean = density.weights_ @ density.means_
    fitted = clone(factorizer).fit(X)
    if hasattr(fitted, "inverse_transform"):
        expected = fitted.inverse_transform(mean[None])[0]
    else:
        expected = mean @ fitted.components_ + fitted.mean_
    np.testing.assert_allclose(drawn.mean(axis=0), expected, atol=0.15)
    singular = np.linalg.svd(drawn[:1000] - drawn[:1000].mean(axis=0), compute_uv=False)
    assert np.all(singular[5:] < 1e-8 * singular[0]) and singular[4] > 1e-3 * singular[0]
    np.testing.assert_allclose(model.score_sources(X), density.score_samples(S), rtol=1e-12)
    with pytest.raises(ValueError, match=r"5 sources for 64 features.*score_sources"):
        model.score_samples(X)


@pytest.mark.parametrize(
    "density",
    [
        MFA(2, 2, **FAST),
        MCFA(2, 2, **FAST),
        NestedMixture(2, 2, **FAST),
        sklearn_mixture.GaussianMixture(2, random_state=0),
        KernelDensity(),
    ],
    ids=lambda each: f"{type(each).__module__.split('.')[0]}-{type(each).__name__}",
)
def test_any_density_of_sources(density):
    model = SourceDensity(PCA(4), density).fit(X)
    alone = clone(density).fit(PCA(4).fit_transform(X))
    np.testing.assert_allclose(
        model.score_sources(X), alone.score_samples(PCA(4).fit_transform(X)), rtol=1e-9
    )
    one, components = model.sample(50, random_state=3)
    two, again = model.sample(50, random_state=3)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(components, again)
    assert not np.array_equal(one, model.sample(50, random_state=4)[0])
    if isinstance(density, KernelDensity):
        np.testing.assert_array_equal(components, 0)
    else:
        assert np.any(np.diff(components) < 0)  # in no order
        means = model.density_.means_ if not isinstance(density, NestedMixture) else None
        if means is not None:
            S = PCA(4).fit(X).transform(model.sample(4000, random_state=0)[0])
            labels = model.sample(4000, random_state=0)[1]
            found = np.stack([S[labels == k].mean(axis=0) for k in range(2)])
            np.testing.assert_allclose(found, means, atol=2.0)


# -- the density of rows ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "factorizer",
    [
        PCA(),
        decomposition.PCA(whiten=True),
        make_pipeline(StandardScaler(), PCA()),
    ],
    ids=["PCA", "whitened", "pipeline"],
)
def test_invertible_maps_keep_a_gaussian(factorizer):
    """One Gaussian of the sources is one Gaussian of the rows, whatever the invertible map between them."""
    rows = correlated()
    model = SourceDensity(factorizer, GaussianMixture(noise_floor=0, prior=None)).fit(rows)
    gaussian = multivariate_normal(rows.mean(axis=0), np.cov(rows.T, bias=True))
    np.testing.assert_allclose(model.score_samples(rows), gaussian.logpdf(rows), rtol=1e-8)
    assert model.score(rows) == pytest.approx(gaussian.logpdf(rows).mean())
    weight = np.arange(len(rows))
    expected = np.average(gaussian.logpdf(rows), weights=weight)
    assert model.score(rows, sample_weight=weight) == pytest.approx(expected)


def test_density_of_rows_integrates_to_one_where_sources_are_constrained():
    """`transform` of NMF gives no negative sources; the density of rows needs those that the map has."""
    rng = np.random.default_rng(0)
    rows = rng.gamma(2.0, size=(200, 2)) @ np.array([[1.0, 0.3], [0.2, 1.0]])
    nmf = decomposition.NMF(2, init="nndsvda", max_iter=5000)
    model = SourceDensity(nmf, GaussianMixture(2, **FAST)).fit(rows)
    axis = np.linspace(-15, 30, 601)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    total = np.exp(model.score_samples(grid)).sum() * (axis[1] - axis[0]) ** 2
    np.testing.assert_allclose(total, 1.0, rtol=1e-4)


class Bent(TransformerMixin, BaseEstimator):
    """Sources whose squares are the rows."""

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return np.sqrt(np.abs(X))

    def inverse_transform(self, X):
        return X**2


class OneWay(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X


class Doubled(OneWay):
    """Singular: all sources make the same of all features."""

    def inverse_transform(self, X):
        return X @ np.ones((3, 3))


def test_maps_without_a_density():
    model = SourceDensity(Bent(), GaussianMixture()).fit(correlated())
    with pytest.raises(ValueError, match="needs a linear map from sources to rows, which Bent"):
        model.score_samples(correlated())
    assert model.sample(3)[0].shape == (3, 3)
    singular = SourceDensity(Doubled(), GaussianMixture()).fit(correlated())
    with pytest.raises(ValueError, match="singular"):
        singular.score_samples(correlated())
    with pytest.raises(TypeError, match=r"OneWay has.*neither"):
        SourceDensity(OneWay(), GaussianMixture()).fit(correlated())


# -- around it --------------------------------------------------------------------------------------


def test_truncation_is_for_display_only():
    model = SourceDensity(PCA(5), GaussianMixture(2, **FAST)).fit(X)
    plain, components = model.sample(200, random_state=0)
    shown, same = model.sample(200, random_state=0, truncate=True)
    assert plain.min() < 0
    np.testing.assert_array_equal(shown, np.where(plain < 0, 0.0, plain))
    np.testing.assert_array_equal(components, same)


def test_reconstruction():
    model = SourceDensity(PCA(5), GaussianMixture()).fit(X)
    np.testing.assert_allclose(model.reconstruct(X), PCA(5).fit(X).reconstruct(X), atol=1e-9)


def test_estimators_given_stay_as_they_were():
    factorizer, density = PCA(3), GaussianMixture(2, **FAST)
    SourceDensity(factorizer, density).fit(X)
    for untouched in (lambda: factorizer.transform(X), lambda: density.score_samples(X[:, :3])):
        with pytest.raises(NotFittedError):
            untouched()


def test_in_a_grid_search():
    search = GridSearchCV(
        SourceDensity(PCA(3), GaussianMixture(**FAST)),
        {"density__n_components": [1, 2], "factorizer__n_components": [2, 3]},
        scoring=lambda model, rows: model.score_sources(rows).mean(),
        cv=2,
    ).fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_files_with_parts_that_do_not_fit(tmp_path):
    model = SourceDensity(PCA(4), GaussianMixture()).fit(X)
    model.density_ = GaussianMixture().fit(X[:, :3] + np.random.default_rng(0).normal(size=(400, 3)))
    write_unchecked(model, tmp_path / "model.latently")
    with pytest.raises(latently.core.io.ModelFileError):
        latently.load(tmp_path / "model.latently")


@pytest.mark.parametrize(
    "parts, says",
    [
        ((PCA, GaussianMixture()), "factorizer must be an estimator"),
        (("pca", GaussianMixture()), "factorizer must be an estimator"),
        ((PCA(2), PCA(2)), "density must be an estimator"),
        ((PCA(2), GaussianMixture), "density must be an estimator"),
        ((PCA(2), None), "density must be an estimator"),
    ],
)
def test_parts_that_are_none(parts, says):
    with pytest.raises(TypeError, match=says):
        SourceDensity(*parts).fit(X)


def test_bad_use():
    model = SourceDensity(PCA(2), GaussianMixture())
    for use in (model.sample, lambda: model.score_sources(X), lambda: model.score_samples(X)):
        with pytest.raises(NotFittedError):
            use()
    model.fit(X)
    before = model.sample(3, random_state=0)[0]
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 10, np.nan, X))
    np.testing.assert_array_equal(model.sample(3, random_state=0)[0], before)
    with pytest.raises(ValueError, match="n_samples"):
        model.sample(0)
    with pytest.raises(ValueError, match="truncate"):
        model.sample(2, truncate=1)
