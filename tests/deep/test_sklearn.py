"""Deep mixtures as scikit-learn users expect them, and input that makes no sense."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from latently.deep import DMCFA, DMFA
from latently.mixture import MCFA, MFA
from tests.contracts.models import rows

every_model = pytest.mark.parametrize("cls", [DMFA, DMCFA])
QUICK = {"n_init": 2, "tol": 1e-4, "random_state": 0}


@every_model
def test_tables(cls):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(rows(np.random.default_rng(0), 60, 4), columns=["a", "b", "c", "d"])
    model = cls(2, 2, 2, 1, **QUICK).set_output(transform="pandas").fit(X)
    assert list(model.transform(X).columns) == [f"{cls.__name__.lower()}0"]
    assert list(model.collapse().feature_names_in_) == list(X.columns)
    np.testing.assert_array_equal(model.collapse().score_samples(X), model.score_samples(X))
    with pytest.raises(ValueError, match="feature names"):
        model.bound(X[["b", "a", "c", "d"]])


@every_model
def test_in_a_notebook(cls):
    X = rows(np.random.default_rng(0), 60, 4)
    model = cls(2, 2, [2, 3], 1, **QUICK)
    assert "layer 1" not in model._repr_html_()
    assert "layer 1: 2 x 2 factors, layer 2: 5 x 1 factors, 4 features" in model.fit(X)._repr_html_()


# -- sizes and settings --------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "n_components"),
        ({"n_factors": 0}, "n_factors"),
        ({"n_factors": 5}, "n_factors=5 must not be larger than n_features=4"),
        ({"n_subfactors": 0}, "n_subfactors"),
        ({"n_subfactors": 3}, "n_subfactors=3 must not be larger"),
        ({"n_subfactors": [2, 3]}, "n_subfactors=.2, 3. must not be larger"),
        ({"n_subfactors": []}, "n_subfactors"),
        ({"n_subfactors": "many"}, "n_subfactors"),
        ({"n_subcomponents": 0}, "n_subcomponents"),
        ({"n_subcomponents": [2, 0]}, "n_subcomponents"),
        ({"n_subcomponents": [2, 2, 2]}, "each of the 2 components of the layer below"),
        ({"n_subcomponents": [2.5, 2]}, "n_subcomponents"),
        ({"n_subcomponents": [2, 2, 2], "n_subfactors": [1, 1]}, "each of the 2 layers"),
        (
            {"n_subcomponents": [2, [2, 2]], "n_subfactors": [1, 1]},
            "each of the 4 components of the layer below",
        ),
        ({"fine_tune": "yes"}, "fine_tune"),
        ({"inputs": "mean"}, "inputs"),
        ({"prior_rows": -1.0}, "prior_rows"),
        ({"noise_floor": -1.0}, "noise_floor"),
    ],
)
def test_settings_that_make_no_sense(cls, settings, message):
    X = rows(np.random.default_rng(0), 60, 4)
    settings = {
        "n_components": 2,
        "n_factors": 2,
        "n_subcomponents": 2,
        "n_subfactors": 1,
        **QUICK,
        **settings,
    }
    with pytest.raises(ValueError, match=message):
        cls(**settings).fit(X)


@every_model
def test_layer_that_is_not_there(cls):
    X = rows(np.random.default_rng(0), 60, 4)
    model = cls(2, 2, 2, 1, **QUICK).fit(X)
    for method in (model.predict_proba, model.predict, model.factor_posterior):
        with pytest.raises(ValueError, match="layer=3 must not be larger than the number of layers, 2"):
            method(X, layer=3)
        with pytest.raises(ValueError, match="layer"):
            method(X, layer=0)
    with pytest.raises(ValueError, match="X has 2 columns, but the model has n_factors=1"):
        model.inverse_transform(np.zeros((3, 2)))
    assert not hasattr(model, "partial_fit")


def test_layers_that_do_not_fit_together():
    rng = np.random.default_rng(0)

    def mixture(K, D, q):
        return MFA.from_parameters(
            weights=np.full(K, 1 / K),
            means=rng.normal(size=(K, D)),
            loadings=rng.normal(size=(K, D, q)),
            noise_variance=np.ones((K, D)),
        )

    first = mixture(2, 4, 2)
    with pytest.raises(ValueError, match="a mixture for each of the 2 components below, not 1"):
        DMFA.from_layers(first, [mixture(2, 2, 1)])
    with pytest.raises(ValueError, match="must have 2 features"):
        DMFA.from_layers(first, [mixture(2, 2, 1), mixture(2, 3, 1)])
    with pytest.raises(ValueError, match="same number of factors"):
        DMFA.from_layers(first, [mixture(2, 2, 1), mixture(2, 2, 2)])
    with pytest.raises(ValueError, match="consist of MFA, not of MCFA"):
        DMFA.from_layers(first, [mixture(2, 2, 1), MCFA(2, 1)])
    with pytest.raises(NotFittedError):
        DMFA.from_layers(first, [mixture(2, 2, 1), MFA(2, 1)])
    with pytest.raises(ValueError, match="at least one more layer"):
        DMFA.from_parameters(layers=[[first]])
    model = DMFA.from_layers(first, [mixture(2, 2, 1), mixture(3, 2, 1)])
    first.loadings_ *= 2.0  # the model has copies
    assert not np.allclose(model.layers_[0][0].loadings_, first.loadings_)
    assert model.n_subcomponents == [2, 3]


# -- rows that are few, or odd -------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("fine_tune", [False, True])
def test_fewer_rows_than_sub_components(cls, fine_tune):
    X = rows(np.random.default_rng(0), 9, 3)
    model = cls(3, 2, 5, 1, fine_tune=fine_tune, **QUICK).fit(X)
    assert np.isclose(model.weights_.sum(), 1)
    assert np.all(np.isfinite(model.score_samples(X)))
    assert np.all(np.diff(model.bound_history_[0]) >= -1e-9)
    with pytest.raises(ValueError, match="n_components=10 must not be larger than n_samples=9"):
        cls(10, 2, 2, 1, **QUICK).fit(X)


def test_too_few_rows_to_learn_from_keep_the_prior():
    X, new = rows(np.random.default_rng(0), 13, 8), rows(np.random.default_rng(0), 60, 8)
    model = DMFA(2, 7, 2, 2, **QUICK).fit(X)
    np.testing.assert_allclose(model.score_samples(new), model.layers_[0][0].score_samples(new), rtol=1e-9)
    assert len(model.weights_) == 4
    np.testing.assert_allclose(model.bound_history_[0], model.history_[0], rtol=1e-9)
    learnt = DMFA(2, 7, 2, 2, prior_rows=0.0, **QUICK).fit(X)
    assert learnt.score(X) > model.score(X) + 1e-3


@every_model
def test_component_of_one_row(cls):
    X = np.concatenate([rows(np.random.default_rng(0), 40, 3), np.full((1, 3), 50.0)])
    model = cls(2, 2, 3, 1, fine_tune=True, **QUICK).fit(X)
    assert np.all(np.isfinite(model.score_samples(X)))
    assert np.isclose(model.weights_.sum(), 1)


@every_model
def test_one_row_and_no_rows(cls):
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        cls().fit(np.zeros((1, 3)))
    with pytest.raises(ValueError, match="missing"):
        cls().fit(np.full((5, 3), np.nan))
    with pytest.raises(ValueError, match="infinity"):
        cls().fit([[1.0, np.inf], [2.0, 3.0]])


@every_model
@pytest.mark.filterwarnings("ignore:a layer of DMCFA did not converge")  # noise shrinks ever more slowly
def test_rows_that_are_all_the_same_in_parts(cls):
    X = np.repeat(rows(np.random.default_rng(0), 6, 3), 10, axis=0)
    model = cls(2, 2, 3, 1, **QUICK).fit(X)
    assert np.all(np.isfinite(model.score_samples(X)))


def test_far_from_the_origin():
    X = rows(np.random.default_rng(0), 60, 4)
    near = DMFA(2, 2, 2, 1, fine_tune=True, **QUICK).fit(X)
    far = DMFA(2, 2, 2, 1, fine_tune=True, **QUICK).fit(X + 1e6)
    np.testing.assert_allclose(near.score(X), far.score(X + 1e6), rtol=1e-4)
    with pytest.raises(ValueError, match="away from the origin"):  # as MCFA
        DMCFA(2, 2, 2, 1, **QUICK).fit(X + 1e14)


@every_model
def test_units_do_not_matter(cls):
    X = rows(np.random.default_rng(1), 80, 4)
    unit = np.array([1e-3, 1.0, 1e4, 8.0])
    settings = {"max_iter": 20, "tol": 0.0, "n_init": 2, "random_state": 0}
    one, other = (cls(2, 2, 2, 1, **settings).fit(data) for data in (X, X * 4.0))
    np.testing.assert_allclose(one.score(X), other.score(X * 4.0) + 4 * np.log(4.0), rtol=1e-8)
    assert np.isfinite(cls(2, 2, 2, 1, **settings).fit(X * unit).score(X * unit))


@every_model
def test_warns_where_a_layer_has_not_converged(cls):
    X = rows(np.random.default_rng(0), 100, 5)
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        cls(2, 3, 3, 2, max_iter=2, n_init=1, tol=1e-9, random_state=0).fit(X)


@every_model
def test_same_seed_same_model(cls):
    X = rows(np.random.default_rng(0), 60, 4)
    one, other = (cls(2, 2, 2, 1, inputs="sampled", **QUICK).fit(X).score_samples(X) for _ in range(2))
    np.testing.assert_array_equal(one, other)
