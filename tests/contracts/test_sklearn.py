"""Estimators as scikit-learn users expect them, and fitted models that outlive their process."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import latently
from tests.contracts.models import ALL, FACTOR, assert_same, rows

every_model = pytest.mark.parametrize("model", ALL, ids=str)
every_factor_model = pytest.mark.parametrize("model", FACTOR, ids=str)

SETTINGS = {"max_iter": 10, "tol": 0.0, "random_state": 0}


def table(N=40):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(rows(np.random.default_rng(0), N, 4), columns=["a", "b", "c", "d"])


# with defaults, and every variant with a loose tol to save time
CHECKED = [cls() for cls in dict.fromkeys(model.cls for model in ALL)]
CHECKED += [model.unfitted(2, 1, tol=1e-3) for model in ALL]


# the checks hand targets of all kinds to every estimator
@pytest.mark.filterwarnings("ignore:y is ignored:UserWarning")
@parametrize_with_checks(CHECKED)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [model.cls() for model in ALL], ids=str)
def test_every_estimator_has_defaults(estimator):
    assert clone(estimator).get_params().keys() == estimator.get_params().keys()


@every_model
def test_clone_and_parameters(model):
    X = rows(np.random.default_rng(0), 40, 4)
    start = model.example(np.random.default_rng(1), 4, 2, 2)
    estimator = model.started(start, **SETTINGS)
    before = {name: np.array(value) for name, value in estimator.get_params().items() if value is not None}
    estimator.fit(X)
    after = estimator.get_params()
    for name, value in before.items():  # fitting changes no hyper-parameter
        np.testing.assert_array_equal(after[name], value, err_msg=name)
    copy = clone(estimator)
    assert not hasattr(copy, "history_")
    assert_same(model.theta(copy.fit(X)), model.theta(estimator), rtol=0, atol=0)
    assert set(model.options) <= set(after)


@every_model
def test_in_a_pipeline(model):
    X = rows(np.random.default_rng(0), 40, 4)
    pipe = make_pipeline(StandardScaler(), model.unfitted(2, 1, **SETTINGS)).fit(X)
    Z = StandardScaler().fit_transform(X)
    alone = model.unfitted(2, 1, **SETTINGS).fit(Z)
    np.testing.assert_array_equal(pipe.score_samples(X), alone.score_samples(Z))
    np.testing.assert_array_equal(pipe.predict(X), alone.predict(Z))
    assert pipe.score(X) == alone.score(Z)
    if not model.is_gaussian:
        np.testing.assert_array_equal(pipe.transform(X), alone.transform(Z))
    assert make_pipeline(StandardScaler(), model.unfitted(2, 1, **SETTINGS)).fit_predict(X).shape == (40,)


@every_model
def test_in_a_grid_search(model):
    X = rows(np.random.default_rng(0), 60, 4)
    grid = {"noise_floor": [1e-6, 1e-1]}
    search = GridSearchCV(model.unfitted(2, 1, **SETTINGS), grid, cv=3).fit(X)
    assert np.all(np.isfinite(search.cv_results_["mean_test_score"]))


@every_model
def test_tables_with_names(model):
    X = table()
    estimator = model.unfitted(2, 1, **SETTINGS).fit(X)
    assert list(estimator.feature_names_in_) == ["a", "b", "c", "d"]
    assert estimator.n_features_in_ == 4
    plain = model.unfitted(2, 1, **SETTINGS).fit(X.to_numpy())
    assert not hasattr(plain, "feature_names_in_")
    assert_same(model.theta(estimator), model.theta(plain), rtol=0, atol=0)
    np.testing.assert_array_equal(estimator.score_samples(X), plain.score_samples(X.to_numpy()))
    with pytest.raises(ValueError, match="feature names"):
        estimator.score_samples(X[["b", "a", "c", "d"]])
    with pytest.warns(UserWarning, match="feature names"):
        estimator.score_samples(X.to_numpy())


@every_factor_model
def test_tables_out(model):
    X = table()
    estimator = model.unfitted(2, 2, **SETTINGS).set_output(transform="pandas").fit(X)
    factors = estimator.transform(X)
    assert list(factors.index) == list(X.index)
    assert list(factors.columns) == list(estimator.get_feature_names_out())
    q = 0 if model.no_factors else 2
    assert list(factors.columns) == [f"{model.cls.__name__.lower()}{i}" for i in range(q)]
    plain = model.unfitted(2, 2, **SETTINGS).fit(X.to_numpy())
    np.testing.assert_array_equal(factors.to_numpy(), plain.transform(X.to_numpy()))
    np.testing.assert_array_equal(
        model.unfitted(2, 2, **SETTINGS).fit_transform(X), plain.transform(X.to_numpy())
    )


def everything(model, estimator, X):
    """All that a fitted estimator says about rows."""
    said = [estimator.score_samples(X), estimator.predict_proba(X), estimator.predict(X), estimator.bic(X)]
    said += [*estimator.sample(5, random_state=0)]
    if not model.is_gaussian:
        said += [estimator.transform(X), *estimator.factor_posterior(X)]
    return said


@every_model
def test_pickling(model):
    X = table()
    estimator = model.unfitted(2, 1, **SETTINGS).fit(X)
    copy = pickle.loads(pickle.dumps(estimator))
    for here, there in zip(everything(model, estimator, X), everything(model, copy, X), strict=True):
        np.testing.assert_array_equal(here, there)
    unfitted = pickle.loads(pickle.dumps(model.unfitted(2, 1, **SETTINGS)))
    assert_same(model.theta(unfitted.fit(X)), model.theta(estimator), rtol=0, atol=0)


@every_model
@pytest.mark.parametrize("named", [False, True])
def test_saving_and_loading(model, named, tmp_path):
    X = table() if named else table().to_numpy()
    start = model.example(np.random.default_rng(1), 4, 2, 1)
    estimator = model.started(start, **SETTINGS).fit(X)
    estimator.save(tmp_path / "model.latently")
    loaded = latently.load(tmp_path / "model.latently")
    assert type(loaded) is model.cls
    for here, there in zip(everything(model, estimator, X), everything(model, loaded, X), strict=True):
        np.testing.assert_array_equal(here, there)
    for name, value in estimator.get_params().items():
        np.testing.assert_array_equal(loaded.get_params()[name], value, err_msg=name)
    np.testing.assert_array_equal(loaded.history_, estimator.history_)
    assert (loaded.n_iter_, loaded.converged_) == (estimator.n_iter_, estimator.converged_)
    assert hasattr(loaded, "feature_names_in_") == named
    assert_same(model.theta(loaded.fit(X)), model.theta(estimator), rtol=0, atol=0)


@every_model
def test_not_fitted_yet(model):
    from sklearn.exceptions import NotFittedError

    X = np.zeros((3, 2))
    estimator = model.unfitted(2, 1)
    methods = ["score_samples", "score", "predict", "predict_proba", "bic", "aic", "icl"]
    methods += (
        [] if model.is_gaussian else ["transform", "inverse_transform", "factor_posterior", "reconstruct"]
    )
    for method in methods:
        with pytest.raises(NotFittedError):
            getattr(estimator, method)(X)
    for method in (estimator.sample, estimator.n_parameters):
        with pytest.raises(NotFittedError):
            method()
