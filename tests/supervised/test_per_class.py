"""A density for each class: against Bayes' rule by hand, against scikit-learn, and in its own right."""

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn import mixture as sklearn_mixture
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from latently.mixture import MCFA, MFA, MPPCA, PPCA, GaussianMixture
from latently.supervised import PerClass


def separate(density, **options):
    """Each density fitted to its class alone, and posteriors by Bayes' rule."""
    return PerClass(density, **{"shrinkage": None, "temperature": None, **options})


FAST = {"random_state": 0, "tol": 1e-3, "n_init": 1}


def three_classes(n=150, D=3, seed=0):
    """Rows of three overlapping Gaussians with shares of about 1:2:3, and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=n, p=[1 / 6, 2 / 6, 3 / 6])
    spread = rng.normal(size=(3, D, D)) / 2 + np.eye(D)
    means = rng.normal(size=(3, D))
    return means[y] + np.einsum("ndf,nf->nd", spread[y], rng.normal(size=(n, D))), y


X, y = three_classes()
names = np.array(["ash", "birch", "cedar"])[y]


# -- Bayes' rule ------------------------------------------------------------------------------------


def test_posteriors_by_hand():
    model = separate(GaussianMixture(noise_floor=0, prior=None)).fit(X, names)
    joint = []
    for label in np.unique(names):
        rows = X[names == label]
        density = multivariate_normal(rows.mean(axis=0), np.cov(rows.T, bias=True))
        joint.append(np.log(len(rows) / len(X)) + density.logpdf(X))
    joint = np.stack(joint, axis=1)
    total = logsumexp(joint, axis=1)
    np.testing.assert_allclose(model.score_samples(X), total, rtol=1e-10)
    np.testing.assert_allclose(model.predict_log_proba(X), joint - total[:, None], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X), np.exp(joint - total[:, None]), rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_array_equal(model.predict(X), model.classes_[joint.argmax(axis=1)])


def test_one_gaussian_for_each_class_is_quadratic_discriminant_analysis():
    theirs = QuadraticDiscriminantAnalysis(store_covariance=True).fit(X, y)
    ours = separate(GaussianMixture(noise_floor=0, prior=None)).fit(X, y)
    for density, covariance in zip(ours.densities_, theirs.covariance_, strict=True):
        density.covariances_ = covariance[None]  # their divisor is n or n - 1, by the version
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_a_diagonal_gaussian_for_each_class_is_naive_bayes():
    prior = [0.5, 0.2, 0.3]
    theirs = GaussianNB(priors=prior, var_smoothing=0).fit(X, y)
    ours = separate(
        GaussianMixture(covariance_type="diag", noise_floor=0, prior=None), class_prior=prior
    ).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    "density",
    [
        MCFA(2, 1, **FAST),
        MPPCA(2, 1, **FAST),
        KernelDensity(bandwidth=0.5),
        sklearn_mixture.GaussianMixture(2, random_state=0),
        make_pipeline(StandardScaler(), PCA(2), GaussianMixture(2, **FAST)),
    ],
    ids=lambda density: type(density).__name__,
)
def test_each_density_is_that_of_its_class_alone(density):
    model = separate(density).fit(X, names)
    joint = [
        clone(density).fit(X[names == label]).score_samples(X) + np.log(np.mean(names == label))
        for label in model.classes_
    ]
    np.testing.assert_allclose(model.score_samples(X), logsumexp(joint, axis=0), rtol=1e-12)
    np.testing.assert_allclose(
        model.predict_proba(X), np.exp(joint - logsumexp(joint, axis=0)).T, rtol=1e-9, atol=1e-15
    )
    assert len(model.densities_) == 3 and not hasattr(density, "densities_")
    with pytest.raises(NotFittedError):  # the one given is left as it was
        density.score_samples(X)


def test_class_priors():
    model = separate(GaussianMixture()).fit(X, y)
    np.testing.assert_allclose(model.class_prior_, np.bincount(y) / len(y), rtol=1e-14)
    other = separate(GaussianMixture(), class_prior=(0.7, 0.2, 0.1)).fit(X, y)
    np.testing.assert_allclose(other.class_prior_, [0.7, 0.2, 0.1], rtol=1e-14)
    gain = (
        other.predict_log_proba(X)
        - model.predict_log_proba(X)
        - np.log(other.class_prior_ / model.class_prior_)
    )
    np.testing.assert_allclose(gain - gain[:, :1], 0.0, atol=1e-10)  # Bayes' rule in the odds


@pytest.mark.parametrize(
    "prior, says",
    [
        ([0.5, 0.5], "3 classes"),
        ([[0.2, 0.3, 0.5]], "3 classes"),
        (1.0, "3 classes"),
        ([0.5, 0.5, 0.0], "positive"),
        ([0.8, 0.4, -0.2], "positive"),
        ([0.5, 0.4, 0.2], "sum to one"),
        ([0.5, np.nan, 0.5], "finite"),
        (["a", "b", "c"], "real numbers"),
    ],
)
def test_class_priors_that_are_none(prior, says):
    with pytest.raises(ValueError, match=f"class_prior.*{says}"):
        separate(GaussianMixture(), class_prior=prior).fit(X, y)


def test_far_rows_are_told_apart():
    """Densities of all classes vanish in floating point long before their logarithms do."""
    model = separate(GaussianMixture()).fit(X, y)
    for distance in (1e3, 1e6, 1e100, 1e160):
        rows = distance * np.array([np.ones(3), -np.ones(3), [1, -1, 1]])
        proba = model.predict_proba(rows)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-14)
        np.testing.assert_array_equal(model.predict(rows), proba.argmax(axis=1))
        assert not np.isnan(model.score_samples(rows)).any()


def test_one_class_is_a_detector_of_novelty():
    model = separate(GaussianMixture()).fit(X[::2], np.zeros(len(X[::2])))
    np.testing.assert_array_equal(model.predict_proba(X), 1.0)
    np.testing.assert_allclose(model.score_samples(X), GaussianMixture().fit(X[::2]).score_samples(X))
    model.calibrate_rejection(X[1::2], acceptance=0.9)
    n = len(X[1::2])
    assert np.sum(~model.accepts(X[1::2])) == np.floor(0.1 * (n + 1) + 1e-9) - 1
    assert model.predict([[50.0, 50.0, 50.0]]) == [-1]


# -- fitting ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [GaussianMixture(2, **FAST), MCFA(2, 1, **FAST), KernelDensity()])
def test_weights_are_copies(density):
    weight = np.random.default_rng(1).integers(1, 4, len(X))
    weighted = separate(density).fit(X, y, sample_weight=weight)
    copied = separate(density).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.class_prior_, copied.class_prior_, rtol=1e-12)
    np.testing.assert_allclose(weighted.predict_proba(X), copied.predict_proba(X), rtol=1e-6, atol=1e-9)
    plain = separate(density).fit(X, y)
    assert np.abs(plain.class_prior_ - weighted.class_prior_).max() > 1e-4


def test_weights_for_a_density_that_takes_none():
    model = separate(sklearn_mixture.GaussianMixture())
    with pytest.raises(ValueError, match=r"sample_weight.*GaussianMixture"):
        model.fit(X, y, sample_weight=np.ones(len(X)))
    with pytest.raises(ValueError, match=r"zero for every row of class 'birch'"):
        separate(GaussianMixture()).fit(X, names, sample_weight=names != "birch")


def test_names_and_order_of_labels_do_not_matter():
    by_number = separate(MPPCA(2, 1, **FAST)).fit(X, y)
    turned = separate(MPPCA(2, 1, **FAST)).fit(X, 2 - y)
    # sums over classes in another order
    np.testing.assert_allclose(turned.predict_proba(X)[:, ::-1], by_number.predict_proba(X), rtol=1e-13)
    named = separate(MPPCA(2, 1, **FAST)).fit(pd.DataFrame(X), pd.Series(names))
    np.testing.assert_array_equal(named.predict_proba(pd.DataFrame(X)), by_number.predict_proba(X))


def test_classes_fitted_at_once_are_the_same():
    alone = separate(MPPCA(2, 1, **FAST)).fit(X, y)
    with joblib.parallel_config("threading"):  # processes take seconds to begin
        together = separate(MPPCA(2, 1, **FAST), n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(alone.predict_proba(X), together.predict_proba(X))


def test_chance_is_that_of_the_density():
    seeds = (np.random.RandomState(3) for _ in range(2))
    again = [separate(MFA(2, 1, n_init=3, tol=1e-3, random_state=seed)).fit(X, y) for seed in seeds]
    np.testing.assert_array_equal(again[0].predict_proba(X), again[1].predict_proba(X))
    assert again[0].get_params()["density__n_factors"] == 1


def test_missing_entries_are_for_the_density_to_judge():
    holed = np.where(np.random.default_rng(0).random(X.shape) < 0.2, np.nan, X)
    model = separate(GaussianMixture()).fit(holed, y)
    assert np.isfinite(model.predict_proba(holed)).all()
    seen = [0, 2]
    marginal = np.array([[X[0, 0], np.nan, X[0, 2]]])
    joint = [
        multivariate_normal(d.means_[0, seen], d.covariances_[0][np.ix_(seen, seen)]).logpdf(X[0, seen])
        for d in model.densities_
    ]
    np.testing.assert_allclose(model.score_samples(marginal), logsumexp(joint + np.log(model.class_prior_)))
    assert model.__sklearn_tags__().input_tags.allow_nan
    other = separate(KernelDensity())
    assert not other.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(ValueError, match="NaN"):
        other.fit(holed, y)
    with pytest.raises(ValueError, match="NaN"):
        other.fit(X, y).predict(holed)


def test_tensors():
    torch = pytest.importorskip("torch")
    model = separate(MPPCA(2, 1, **FAST)).fit(torch.asarray(X), torch.asarray(y))
    expected = separate(MPPCA(2, 1, **FAST)).fit(X, y)
    np.testing.assert_allclose(
        model.predict_proba(torch.asarray(X)), expected.predict_proba(X), rtol=1e-6, atol=1e-9
    )
    np.testing.assert_array_equal(model.predict(torch.asarray(X)), expected.predict(X))
    rows, labels = model.sample(10, random_state=0)
    assert isinstance(rows, np.ndarray) and isinstance(labels, np.ndarray)


@pytest.mark.parametrize(
    "density",
    [None, "GaussianMixture", GaussianMixture, KMeans(), PCA, StandardScaler(), separate(GaussianMixture())],
    ids=str,
)
def test_what_is_no_density(density):
    with pytest.raises(TypeError, match="density must be an estimator"):
        separate(density).fit(X, y)


def test_a_class_with_too_few_rows():
    labels = np.where(np.arange(len(X)) < 1, "rare", "common")
    with pytest.raises(ValueError, match=r"MFA could not be fitted to the 1 rows of class 'rare': .*sample"):
        separate(MFA(2, 1)).fit(X, labels)


def test_rows_that_are_not_in_memory(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    with pytest.raises(ValueError, match="in memory"):
        separate(GaussianMixture()).fit(tmp_path / "rows.npy", y)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    np.testing.assert_array_equal(
        separate(GaussianMixture()).fit(mapped, y).predict_proba(mapped),
        separate(GaussianMixture()).fit(X, y).predict_proba(X),
    )


class Broken(BaseEstimator):
    """A density that gives one row a value that is none."""

    def __init__(self, value=np.nan):
        self.value = value

    def fit(self, X):
        self.n_rows_ = len(X)
        return self

    def score_samples(self, X):
        return np.where(np.arange(len(X)) == 5, self.value, 0.0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_densities_that_are_none(value):
    model = separate(Broken(value)).fit(X, names)
    for method in ("predict", "predict_proba", "score_samples", "accepts", "calibrate_rejection"):
        with pytest.raises(ValueError, match=f"class 'ash' gives row 5 of X the log density {value}"):
            getattr(model, method)(X)


def test_as_part_of_scikit_learn():
    grid = {"density__n_components": [1, 2], "class_prior": [None, [1 / 3, 1 / 3, 1 / 3]]}
    search = GridSearchCV(separate(GaussianMixture(**FAST)), grid, cv=3).fit(X, names)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(copy.predict(X), search.predict(X))
    assert not hasattr(clone(copy), "densities_")


# -- samples, parameters, criteria ------------------------------------------------------------------


@pytest.mark.parametrize(
    "density",
    [
        GaussianMixture(2, **FAST),
        MCFA(2, 1, **FAST),
        PPCA(1),
        sklearn_mixture.GaussianMixture(2, random_state=0),
        KernelDensity(),
    ],
    ids=str,
)
def test_sampler_agrees_with_densities_and_priors(density):
    """The mean of q(x, l) / p(x, l) under p is one for any q whose support is no larger."""
    model = separate(density, class_prior=[0.2, 0.3, 0.5]).fit(X, names)
    rows, labels = model.sample(4000, random_state=0)
    assert rows.shape == (4000, 3) and set(labels) == set(model.classes_)
    shares = np.array([np.mean(labels == label) for label in model.classes_])
    assert np.all(np.abs(shares - model.class_prior_) < 5 * np.sqrt(0.25 / 4000))
    p = model._class_log_densities(rows)
    for code, label in enumerate(model.classes_):
        of_class = labels == label
        narrow = multivariate_normal(rows[of_class].mean(axis=0), 0.3 * np.cov(rows[of_class].T))
        ratio = np.exp(narrow.logpdf(rows[of_class]) - p[of_class, code])
        assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(of_class.sum()) + 0.02


def test_samples_are_in_no_order():
    """scikit-learn's mixtures give the rows of their first component first."""
    rows = np.concatenate([X, X + 100.0])
    model = separate(sklearn_mixture.GaussianMixture(2, random_state=0)).fit(rows, np.zeros(len(rows)))
    second = model.sample(400, random_state=1)[0][:, 0] > 50
    halves = second[:200].mean(), second[200:].mean()
    assert abs(halves[0] - halves[1]) < 0.25


@pytest.mark.parametrize("g, q, D", [(1, 1, 3), (3, 2, 8)])
def test_number_of_parameters_of_mmcfa(g, q, D):
    rows, labels = three_classes(200, D)
    m = 3
    model = separate(MCFA(g, q, random_state=0, tol=1e-1, n_init=1)).fit(rows, labels)
    expected = m * g - 1 + m * (D + D * q - q**2 + g * q + g * q * (q + 1) // 2)
    assert model.n_parameters() == expected
    known = clone(model).set_params(class_prior=[0.2, 0.3, 0.5]).fit(rows, labels)
    assert known.n_parameters() == model.n_parameters() - (m - 1)


def test_bic_is_that_of_rows_and_labels():
    model = separate(PPCA(1)).fit(X, names)
    total = sum(
        np.sum(density.score_samples(X[names == label]) + np.log(np.mean(names == label)))
        for label, density in zip(model.classes_, model.densities_, strict=True)
    )
    assert model.bic(X, names) == pytest.approx(-2 * total + model.n_parameters() * np.log(len(X)), rel=1e-12)
    # wrong labels tell less of the rows
    assert model.bic(X, names) < separate(PPCA(1)).fit(X, names[::-1]).bic(X, names[::-1])
    with pytest.raises(ValueError, match="'oak', which is not among"):
        model.bic(X[:2], ["ash", "oak"])


def test_what_a_density_cannot_do():
    model = separate(KernelDensity()).fit(X, y)
    for call in (model.n_parameters, lambda: model.bic(X, y)):
        with pytest.raises(
            TypeError, match="n_parameters needs densities that have 'n_parameters', but KernelDensity"
        ):
            call()
    pipeline = separate(make_pipeline(StandardScaler(), KernelDensity())).fit(X, y)
    with pytest.raises(TypeError, match="sample needs densities that have 'sample', but Pipeline"):
        pipeline.sample(3)


# -- the classifiers that it makes ------------------------------------------------------------------


@pytest.mark.parametrize(
    "classifier",
    [
        separate(MCFA(1, 2, **FAST)),
        separate(MPPCA(2, 2, **FAST)),
        make_pipeline(PCA(2), separate(GaussianMixture(2, **FAST))),
        make_pipeline(LinearDiscriminantAnalysis(n_components=2), separate(GaussianMixture(2, **FAST))),
    ],
    ids=["mMCFA", "mPPCA", "PCA-GMM", "LDA-GMM"],
)
def test_classifiers_in_one_line(classifier):
    wines, cultivars = load_wine(return_X_y=True)
    assert cross_val_score(make_pipeline(StandardScaler(), classifier), wines, cultivars, cv=3).mean() > 0.92


@pytest.mark.parametrize("far", [1e7, 1e8, 1e12])
def test_classes_that_tie_share_a_far_row(far):
    """The last digits of log densities of 1e16 are larger than ln 2."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    model = PerClass(GaussianMixture(1)).fit(np.concatenate([X, X]), np.repeat([0, 1], 40))
    np.testing.assert_allclose(model.predict_proba(X + far), 0.5, rtol=1e-12)
    np.testing.assert_allclose(model.predict_log_proba(X + far), -np.log(2.0), rtol=1e-12)
