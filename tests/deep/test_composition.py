"""Deep mixtures inside other estimators, their files, and seeds of all kinds."""

import numpy as np
import pytest

import latently
from latently.backend import placement
from latently.core.drivers import ObjectiveWorsened
from latently.deep import DMCFA, DMFA
from latently.mixture import MCFA, MFA
from tests.deep.test_deep import clusters
from tests.unchecked import write_unchecked

every_model = pytest.mark.parametrize("cls", [DMFA, DMCFA])
QUICK = {"n_init": 2, "tol": 1e-4, "random_state": 0}


def round_trip(model, folder):
    model.save(folder / "model.latently")
    return latently.load(folder / "model.latently")


# -- files of estimators that hold deep mixtures -------------------------------------------------------


@every_model
@pytest.mark.parametrize("sizes", [(2, 2, 2, 1), (1, 2, [[2], [1, 3]], (2, 1))], ids=["two", "three"])
def test_per_class(cls, sizes, tmp_path):
    from latently.supervised import PerClass

    X = np.concatenate([clusters(0, 60), clusters(1, 60) + 3.0])
    y = np.repeat(["a", "b"], 60)
    model = PerClass(cls(*sizes, **QUICK), shrinkage=None, temperature=None).fit(X, y)
    loaded = round_trip(model, tmp_path)
    assert all(type(density) is cls for density in loaded.densities_)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.sample(5, random_state=0)[0], model.sample(5, random_state=0)[0])
    for ours, theirs in zip(loaded.densities_, model.densities_, strict=True):
        np.testing.assert_array_equal(ours.bound(X), theirs.bound(X))
        np.testing.assert_array_equal(ours.history_, theirs.history_)
    np.testing.assert_array_equal(loaded.fit(X, y).score_samples(X), model.score_samples(X))


@every_model
def test_sources(cls, tmp_path):
    from latently.factorization import PCA
    from latently.generate import SourceDensity

    X = clusters(0, 100)
    model = SourceDensity(PCA(3), cls(2, 2, [2, 1], 1, **QUICK)).fit(X)
    loaded = round_trip(model, tmp_path)
    np.testing.assert_array_equal(loaded.score_sources(X), model.score_sources(X))
    np.testing.assert_array_equal(loaded.sample(5, random_state=0)[0], model.sample(5, random_state=0)[0])
    assert loaded.density_.n_subcomponents == [2, 1]


@every_model
def test_a_fit_without_steps_can_be_saved(cls, tmp_path):
    X = clusters(0, 60)
    with pytest.warns(UserWarning, match="did not converge"):
        model = cls(2, 2, 2, (2, 1), **QUICK | {"max_iter": 0}).fit(X)
    loaded = round_trip(model, tmp_path)
    np.testing.assert_array_equal(loaded.history_, model.history_)
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))


@every_model
def test_files_whose_layers_do_not_fit_together(cls, tmp_path):
    other = {DMFA: MCFA, DMCFA: MFA}[cls]
    X = clusters(0, 60)
    model = cls(2, 2, 2, 1, **QUICK).fit(X)
    layers = model.layers_
    for wrong in (
        layers[:1],  # no second layer
        [layers[0], layers[1][:1]],  # a component without a mixture
        [layers[0], [layers[0][0], layers[1][1]]],  # one of another number of features
        [[other(2, 2, **QUICK).fit(X)], layers[1]],
        [],
    ):
        model.layers_ = wrong
        write_unchecked(model, tmp_path / "wrong")
        with pytest.raises(ValueError, match="does not hold a valid"):
            latently.load(tmp_path / "wrong")


# -- seeds -----------------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("inputs", ["expected", "sampled"])
@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState])
def test_generators_as_seeds(kind, inputs, cls):
    X = clusters(0, 60)
    settings = {"inputs": inputs, "n_init": 2, "tol": 1e-4}
    one, other = (cls(2, 2, 2, 1, **settings, random_state=kind(5)).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.score_samples(X), other.score_samples(X))
    if inputs == "sampled":
        different = cls(2, 2, 2, 1, **settings, random_state=kind(6)).fit(X)
        assert not np.array_equal(one.score_samples(X), different.score_samples(X))


def test_sampled_inputs_do_not_depend_on_threads(monkeypatch):
    X = clusters(1, 1500)
    settings = {"inputs": "sampled", "block_size": 20, "max_iter": 0, "n_init": 1, "random_state": 0}
    found = []
    for n_threads in (1, 4):
        monkeypatch.setattr(placement, "row_threads", lambda n_threads=n_threads: n_threads)
        with pytest.warns(UserWarning, match="did not converge"):
            found.append(DMFA(2, 2, 2, 1, **settings | {"tol": 1e-4}).fit(X))
    np.testing.assert_allclose(found[1].score_samples(X), found[0].score_samples(X), rtol=1e-6)


# -- numerics --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_factors_far_from_the_origin_are_no_fall_of_the_bound(seed):
    """Components of two distinct rows: factors of nearly no spread, which become the unit."""
    X = np.repeat([[1.0, 3.0], [2.0, 1.0], [3.0, 3.0], [4.0, 1.0]], 4, axis=0)
    X = X + 0.3 * np.random.default_rng(seed).normal(size=2)
    try:
        model = DMCFA(2, 1, 2, 1, fine_tune=True, n_init=2, tol=1e-3, random_state=seed).fit(X)
    except ObjectiveWorsened as error:
        pytest.fail(str(error))
    assert np.all(np.isfinite(model.score_samples(X)))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(16))
def test_few_rows_far_from_the_origin(seed):
    X = 1e5 + np.round(np.random.default_rng(seed).normal(size=(8, 2)), 3)
    model = DMCFA(2, 2, 2, 1, max_iter=12, fine_tune=True, random_state=seed).fit(X)
    assert np.all(np.diff(model.bound_history_[0]) >= 0)
    assert np.all(np.diff(model.history_[1:]) >= -1e-9)  # after the layer is added
    assert np.all(np.isfinite(model.score_samples(X)))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", [0, 1])
def test_missing_entries_and_a_constant_feature_far_from_the_origin(seed):
    rng = np.random.default_rng(seed)
    X = 1.387e6 + 130 * rng.normal(size=(13, 5))
    X[:, 3] = 1.387e6
    X[rng.random(X.shape) < 0.5] = np.nan
    model = DMCFA(2, 2, 2, 1, max_iter=12, fine_tune=True, random_state=seed).fit(X)
    assert np.all(np.diff(model.history_[1:]) >= -1e-9)
    assert np.all(np.isfinite(model.score_samples(X)))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("sizes", [(2, 2, 2, 2), (2, 3, 2, 2), (1, 3, [[2], [2, 1]], (2, 1))])
def test_how_far_the_origin_is_does_not_matter(sizes):
    """Seen from far enough all rows lie in one direction, which takes one factor of every layer."""
    X = np.round(clusters(2, 60) * 1024) / 1024  # X + offset is exact
    options = {"max_iter": 40, "accelerate": None, "random_state": 0, "fine_tune": True}
    scores = []
    for offset in (1e5, 1e6, 1e7):
        model = DMCFA(*sizes, **options).fit(X + offset)
        assert np.all(np.diff(model.history_[len(model.layers_) - 1 :]) >= -1e-9)
        assert all(np.all(np.diff(bound) >= 0) for bound in model.bound_history_)
        scores.append(model.score(X + offset))
    if sizes == (2, 2, 2, 2):  # with more factors or layers rounding may lead to another optimum
        np.testing.assert_allclose(scores, scores[0], rtol=0, atol=3e-5)  # 1e5 is not infinity


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(3))
def test_rows_that_vary_less_than_float64_tells_are_refused(seed):
    X = np.tile([4.3e9, 0.25, 0.0], (9, 1))
    X[np.random.default_rng(seed).random(X.shape) < 0.2] = np.nan
    with pytest.raises(ValueError, match="subtract the mean"):
        DMCFA(2, 2, 2, 1, max_iter=12, init="random", fine_tune=True, random_state=seed).fit(X)


@pytest.mark.parametrize("prior", [None, 1.0, 5.0])
def test_fine_tuning_maximises_what_the_layers_did(prior):
    """The prior of the noise does not become stronger where components become several leaves."""
    X = clusters(4, 30)
    model = DMCFA(2, 2, 3, 1, fine_tune=True, prior=prior, **QUICK).fit(X)
    assert np.all(np.diff(model.history_[1:]) >= 0)
