"""Scores beside densities, and densities as outlier detectors."""

import numpy as np
import pytest
from sklearn.covariance import LedoitWolf
from sklearn.datasets import load_iris, load_wine
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import latently
from latently.factorization import PCA
from latently.mixture import MFA, GaussianMixture
from latently.rejection import ClassifierScore, MahalanobisScore, NeighborScore
from latently.selection import as_outlier_detector
from latently.supervised import MJFAClassifier, PerClass

X, Y = load_wine(return_X_y=True)
X = X / X.std(axis=0)


# -- scores -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_classes", [True, False])
def test_mahalanobis_is_that_of_ledoit_and_wolf(with_classes):
    y = Y if with_classes else np.zeros(len(X), int)
    means = np.array([X[y == c].mean(axis=0) for c in np.unique(y)])
    precision = np.linalg.inv(LedoitWolf(assume_centered=True).fit(X - means[y]).covariance_)
    rows = X + np.random.default_rng(0).normal(size=X.shape)
    gaps = rows[:, None, :] - means
    expected = -np.einsum("ncd,de,nce->nc", gaps, precision, gaps).min(axis=1)
    score = MahalanobisScore().fit(X, Y if with_classes else None)
    np.testing.assert_allclose(score.score_samples(rows), expected, rtol=1e-7)
    assert hasattr(score, "classes_") == with_classes


def test_mahalanobis_with_classes_of_one_row_and_unlabelled_rows():
    y = np.where(np.arange(len(X)) < 20, -1, Y)
    y[-1] = 7  # a class of one row
    score = MahalanobisScore().fit(X, y)
    assert score.classes_.tolist() == [0, 1, 2, 7] and np.isfinite(score.score_samples(X)).all()
    assert score.score_samples(X[-1:])[0] == pytest.approx(0.0, abs=1e-9)
    alone = MahalanobisScore().fit(X[20:], y[20:])
    np.testing.assert_allclose(score.covariance_, alone.covariance_)


def test_neighbours_are_counted_from_the_nearest():
    rows = np.random.default_rng(0).normal(size=(7, 13))
    distances = np.sort(np.linalg.norm(rows[:, None] - X, axis=2), axis=1)
    for k in (1, 5):
        np.testing.assert_allclose(NeighborScore(k).fit(X).score_samples(rows), -distances[:, k - 1])
    with pytest.raises(ValueError, match="n_neighbors=9 must not be larger than n_samples=8"):
        NeighborScore(9).fit(X[:8])


def test_codes_may_be_those_of_a_model(tmp_path):
    model = MJFAClassifier(1, 2, temperature=None, tol=1e-3, random_state=0).fit(X, Y)
    codes = model.transform(X)
    for score in (MahalanobisScore, NeighborScore):
        ours = score(transformer=FrozenEstimator(model)).fit(X, Y).score_samples(X)
        np.testing.assert_allclose(ours, score().fit(codes, Y).score_samples(codes), rtol=1e-6)
    anew = NeighborScore(transformer=MJFAClassifier(1, 2, temperature=None, tol=1e-3, random_state=0))
    np.testing.assert_allclose(anew.fit(X, Y).score_samples(X), ours, rtol=1e-6)
    anew.save(tmp_path / "score")
    np.testing.assert_array_equal(latently.load(tmp_path / "score").score_samples(X), anew.score_samples(X))
    with pytest.raises(TypeError, match="transformer must be an estimator"):
        NeighborScore(transformer=PCA).fit(X)


def test_scores_of_classifiers():
    logistic = LogisticRegression(max_iter=500).fit(X, Y)
    logits, proba = logistic.decision_function(X), logistic.predict_proba(X)
    sure = ClassifierScore(FrozenEstimator(logistic)).fit(X, Y)
    np.testing.assert_allclose(sure.score_samples(X), np.log(proba.max(axis=1)), rtol=1e-9, atol=1e-14)
    energy = ClassifierScore(FrozenEstimator(logistic), kind="energy").fit(X, Y)
    np.testing.assert_allclose(energy.score_samples(X), np.log(np.exp(logits).sum(axis=1)))
    two = LogisticRegression(max_iter=500).fit(X, Y == 1)
    energy = ClassifierScore(FrozenEstimator(two), kind="energy").fit(X, Y == 1)
    np.testing.assert_allclose(energy.score_samples(X), np.logaddexp(0.0, two.decision_function(X)))
    ours = PerClass(GaussianMixture(), shrinkage=None, temperature=None).fit(X, Y)
    energy = ClassifierScore(FrozenEstimator(ours), kind="energy").fit(X, Y)
    np.testing.assert_allclose(energy.score_samples(X), ours.score_samples(X))
    assert ClassifierScore(SVC()).fit(X, Y).classes_.tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="needs predict_proba, which Perceptron lacks"):
        ClassifierScore(Perceptron()).fit(X, Y).score_samples(X)
    forest = ClassifierScore(RandomForestClassifier(5), kind="energy").fit(X, Y)
    with pytest.raises(TypeError, match="which RandomForestClassifier lacks"):
        forest.score_samples(X)
    with pytest.raises(TypeError, match="classifier must be a classifier"):
        ClassifierScore(KernelDensity()).fit(X, Y)


# -- detectors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [MFA(1, 2), KernelDensity(), make_pipeline(StandardScaler(), MFA(1, 2))])
@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
def test_a_detector_is_as_those_of_scikit_learn(density, share):
    model = as_outlier_detector(density, contamination=share).fit(X)
    theirs = IsolationForest(contamination=share, random_state=0).fit(X)
    assert abs(np.sum(model.predict(X) == -1) - np.sum(theirs.predict(X) == -1)) <= 1
    assert model.offset_ == np.percentile(model.score_samples(X), 100 * share)
    np.testing.assert_array_equal(model.decision_function(X), model.score_samples(X) - model.offset_)
    np.testing.assert_array_equal(model.predict(X) == -1, model.decision_function(X) < 0)
    np.testing.assert_array_equal(model.fit_predict(X), model.predict(X))
    np.testing.assert_array_equal(model.score_samples(X), density.fit(X).score_samples(X))


@pytest.mark.parametrize("share", [0, 0.0, -0.1, 0.51, 1, "auto", None, True, np.nan], ids=str)
def test_shares_of_outliers_that_are_none(share):
    with pytest.raises(ValueError, match=r"contamination must be a number above 0 and at most 0\.5"):
        as_outlier_detector(MFA(1, 1), contamination=share).fit(X)


@pytest.mark.parametrize("density", [MFA, PCA(2), "MFA", PerClass(MFA(1, 1)), None])
def test_densities_that_are_none(density):
    with pytest.raises(TypeError, match="density must be an estimator"):
        as_outlier_detector(density).fit(X)


def test_a_detector_finds_rows_that_are_far_and_keeps_tables_and_holes():
    import pandas as pd

    table = load_iris(as_frame=True).data.copy()
    table.iloc[3] += 10.0
    table.iloc[5, 1] = np.nan
    model = as_outlier_detector(MFA(2, 1, random_state=0), contamination=1 / 150).fit(table)
    assert np.flatnonzero(model.predict(table) == -1).tolist() == [3]
    assert model.feature_names_in_.tolist() == list(table.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(pd.DataFrame(table.to_numpy(), columns=list("abcd")))
