"""Mixtures of mixtures: the flat mixture they are, the objective that never falls, and who belongs where."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import latently
from latently.mixture import GaussianMixture, NestedMixture

TYPES = ["full", "tied", "diag", "spherical"]
FEW = {"n_init": 3, "random_state": 0}
every_type = pytest.mark.parametrize("kind", TYPES)


def two_pairs(n=400, seed=0):
    """Two groups far apart, each of two overlapping clusters; with the group of every row."""
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=n)
    part = rng.integers(2, size=n)
    means = np.array([[[0.0, 0.0], [2.5, 0.0]], [[0.0, 12.0], [2.5, 14.0]]])
    return means[group, part] + rng.normal(scale=0.7, size=(n, 2)), group


def example(kind, K=3, J=2, D=2, seed=1):
    """Parameters by chance, and the covariance of every sub-component as a matrix (K, J, D, D)."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(K, J, D, D))
    full = root @ np.swapaxes(root, 2, 3) + 0.3 * np.eye(D)
    covariances, dense = {
        "full": (full, full),
        "tied": (full[0, 0], np.broadcast_to(full[0, 0], full.shape)),
        "diag": (full[..., [0, 1], [0, 1]], full * np.eye(D)),
        "spherical": (full[..., 0, 0], full[..., :1, :1] * np.eye(D)),
    }[kind]
    given = {
        "weights": rng.dirichlet(np.full(K, 3.0)),
        "subweights": rng.dirichlet(np.full(J, 3.0), size=K),
        "means": rng.normal(scale=2.0, size=(K, J, D)),
        "covariances": covariances,
    }
    return given, dense


def log_joint(given, dense, X):
    """(n, K, J) ln pi_k rho_kj N(x; mu_kj, Sigma_kj), term by term."""
    K, J = given["subweights"].shape
    terms = [
        [
            np.log(given["weights"][k] * given["subweights"][k, j])
            + multivariate_normal(given["means"][k, j], dense[k, j]).logpdf(X)
            for j in range(J)
        ]
        for k in range(K)
    ]
    return np.moveaxis(np.array(terms), 2, 0)


@every_type
def test_scores_and_posteriors_are_those_of_the_formula(kind):
    given, dense = example(kind)
    model = NestedMixture.from_parameters(**given, covariance_type=kind)
    X = np.random.default_rng(2).normal(scale=3.0, size=(50, 2))
    terms = log_joint(given, dense, X)
    total = logsumexp(terms, axis=(1, 2))
    np.testing.assert_allclose(model.score_samples(X), total, rtol=1e-10)
    joint = np.exp(terms - total[:, None, None])
    np.testing.assert_allclose(model.subcomponent_proba(X), joint, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X), joint.sum(axis=2), rtol=1e-8, atol=1e-12)
    top = joint.sum(axis=2).argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), top)
    np.testing.assert_array_equal(model.predict_subcomponents(X), joint[np.arange(50), top].argmax(axis=1))


@every_type
def test_collapse_is_the_same_density(kind):
    given, _ = example(kind)
    model = NestedMixture.from_parameters(**given, covariance_type=kind)
    flat = model.collapse()
    assert isinstance(flat, GaussianMixture) and flat.n_components == 6
    X, _ = model.sample(100, random_state=0)
    np.testing.assert_allclose(flat.score_samples(X), model.score_samples(X), rtol=1e-12)
    np.testing.assert_allclose(
        flat.predict_proba(X).reshape(-1, 3, 2), model.subcomponent_proba(X), rtol=1e-10
    )
    assert flat.n_parameters() == model.n_parameters()


def test_density_integrates_to_one():
    given, _ = example("full")
    model = NestedMixture.from_parameters(**given)
    axis = np.linspace(-16, 16, 401)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    total = np.exp(model.score_samples(grid)).sum() * (axis[1] - axis[0]) ** 2
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)


def test_draws_come_from_components_as_their_weights_say():
    given, _ = example("full")
    X, components = NestedMixture.from_parameters(**given).sample(40_000, random_state=0)
    np.testing.assert_allclose(np.bincount(components) / len(X), given["weights"], atol=0.01)
    for k in range(3):
        mean = given["subweights"][k] @ given["means"][k]
        np.testing.assert_allclose(X[components == k].mean(axis=0), mean, atol=0.15)


@every_type
@pytest.mark.parametrize("accelerate", [None, "squarem"])
def test_objective_never_falls_and_is_the_classification_likelihood(kind, accelerate):
    X, _ = two_pairs()
    given, _ = example(kind, K=2)
    starts = {f"{name}_init": value for name, value in given.items()}
    model = NestedMixture(
        2,
        2,
        covariance_type=kind,
        accelerate=accelerate,
        tol=0,
        max_iter=30,
        noise_floor=0,
        prior=None,
        **starts,
    ).fit(X)
    assert np.all(np.diff(model.history_) >= -1e-12 * np.abs(model.history_[:-1]))
    assert model.history_[-1] > model.history_[0]
    at_start = NestedMixture.from_parameters(**given, covariance_type=kind)
    for one, value in ((at_start, model.history_[0]), (model, model.history_[-1])):
        by_row = one.score_samples(X) + np.log(one.predict_proba(X).max(axis=1))
        np.testing.assert_allclose(by_row.mean(), value, rtol=1e-9)
    assert model.score(X) >= model.history_[-1]


def test_one_step_is_dealing_then_em_in_every_component():
    X, _ = two_pairs(120)
    given, dense = example("full", K=2)
    terms = log_joint(given, dense, X)
    top = logsumexp(terms, axis=2).argmax(axis=1)
    starts = {f"{name}_init": value for name, value in given.items()}
    model = NestedMixture(2, 2, accelerate=None, tol=0, max_iter=1, noise_floor=0, prior=None, **starts).fit(
        X
    )
    np.testing.assert_allclose(model.weights_, np.bincount(top) / len(X), rtol=1e-10)
    for k in range(2):
        own = GaussianMixture(
            2,
            accelerate=None,
            tol=0,
            max_iter=1,
            noise_floor=0,
            prior=None,
            weights_init=given["subweights"][k],
            means_init=given["means"][k],
            covariances_init=given["covariances"][k],
        ).fit(X[top == k])
        np.testing.assert_allclose(model.subweights_[k], own.weights_, rtol=1e-8)
        np.testing.assert_allclose(model.means_[k], own.means_, rtol=1e-8)
        np.testing.assert_allclose(model.covariances_[k], own.covariances_, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_finds_groups_and_their_parts(seed):
    """Whatever the seed: of three ways to put four clusters into pairs, one is right."""
    X, group = two_pairs(seed=seed)
    model = NestedMixture(2, 2, n_init=3, random_state=seed).fit(X)
    labels = model.predict(X)
    assert np.all(labels == group) or np.all(labels == 1 - group)
    means = model.means_[labels[group == 0][0]]
    np.testing.assert_allclose(means[np.argsort(means[:, 0])], [[0.0, 0.0], [2.5, 0.0]], atol=0.5)
    assert model.converged_


def test_one_component_is_a_gaussian_mixture():
    X, _ = two_pairs()
    nested = NestedMixture(1, 3, random_state=0, n_init=1).fit(X)  # searches differ: its runs are not stacked
    plain = GaussianMixture(3, random_state=0, n_init=1).fit(X)
    np.testing.assert_allclose(nested.means_[0], plain.means_, rtol=1e-10)
    np.testing.assert_allclose(nested.history_, plain.history_, rtol=1e-10)


def test_labels_hold_rows_in_their_component():
    """All labels known: a mixture for each component, fitted to its rows alone."""
    X, group = two_pairs()
    shuffled = np.where(np.random.default_rng(0).random(len(X)) < 0.2, 1 - group, group)
    settings = {"tol": 1e-9, "random_state": 0, "n_init": 3, "prior": None}
    model = NestedMixture(2, 2, **settings).fit(X, shuffled)
    np.testing.assert_allclose(model.weights_, np.bincount(shuffled) / len(X), rtol=1e-10)
    alone = [GaussianMixture(2, **settings).fit(X[shuffled == k]).score(X[shuffled == k]) for k in range(2)]
    weights = np.bincount(shuffled) / len(X)
    best = weights @ (alone + np.log(weights))
    assert model.history_[-1] == pytest.approx(best, abs=1e-4)
    start = NestedMixture(2, 2, max_iter=0, tol=0, **FEW).fit(X, shuffled)
    np.testing.assert_allclose(start.weights_, weights, rtol=1e-10)  # labels hold from the first on
    free = NestedMixture(2, 2, **settings).fit(X)
    assert free.history_[-1] > model.history_[-1] + 0.1


def test_some_labels():
    X, group = two_pairs()
    y = np.full(len(X), -1)
    y[:10] = 1 - group[:10]
    model = NestedMixture(2, 2, **FEW).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), 1 - group)


def test_missing_entries():
    X, group = two_pairs(300)
    holed = X.copy()
    holed[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    model = NestedMixture(2, 2, **FEW).fit(holed)
    assert np.all(np.diff(model.history_) >= -1e-10)
    seen = ~np.isnan(holed[:, 1])  # the groups differ in the second feature
    labels = model.predict(holed)[seen]
    assert np.all(labels == group[seen]) or np.all(labels == 1 - group[seen])
    assert np.isfinite(model.impute(holed)).all()


def test_a_component_that_loses_all_rows_stays_a_density():
    X, _ = two_pairs(100)
    start = {
        "weights_init": [0.5, 0.5],
        "subweights_init": [[0.5, 0.5], [0.5, 0.5]],
        "means_init": [[[0.0, 0.0], [1.0, 13.0]], [[1e3, 1e3], [1e3, -1e3]]],
        "covariances_init": np.eye(2),
    }
    model = NestedMixture(2, 2, prior=None, **start).fit(X)
    np.testing.assert_array_equal(model.weights_, [1.0, 0.0])
    np.testing.assert_allclose(model.subweights_.sum(axis=1), 1.0, rtol=1e-12)
    alone = GaussianMixture(
        2, weights_init=[0.5, 0.5], means_init=start["means_init"][0], covariances_init=np.eye(2), prior=None
    )
    np.testing.assert_allclose(model.score_samples(X), alone.fit(X).score_samples(X), rtol=1e-6)


def test_means_alone_may_be_given():
    X, group = two_pairs()
    means = [[[0.0, 12.0], [2.5, 14.0]], [[0.0, 0.0], [2.5, 0.0]]]
    model = NestedMixture(2, 2, means_init=means).fit(X)
    np.testing.assert_allclose(model.means_, means, atol=0.5)
    np.testing.assert_array_equal(model.predict(X), 1 - group)


@every_type
def test_saving_and_loading(kind, tmp_path):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(two_pairs(100)[0], columns=["a", "b"])
    model = NestedMixture(2, 2, covariance_type=kind, random_state=0, tol=1e-4).fit(X)
    model.save(tmp_path / "nested.latently")
    loaded = latently.load(tmp_path / "nested.latently")
    np.testing.assert_array_equal(loaded.score_samples(X), model.score_samples(X))
    np.testing.assert_array_equal(loaded.predict_subcomponents(X), model.predict_subcomponents(X))
    np.testing.assert_array_equal(loaded.history_, model.history_)
    assert loaded.get_params() == model.get_params()
    assert "2 components of 2 sub-components each, 2 features" in model._repr_html_()
    np.testing.assert_array_equal(loaded.collapse().feature_names_in_, ["a", "b"])


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"n_components": 0}, "n_components"),
        ({"n_subcomponents": 0}, "n_subcomponents"),
        ({"n_subcomponents": 1.5}, "n_subcomponents"),
        ({"covariance_type": "round"}, "covariance_type"),
        ({"n_components": 30, "n_subcomponents": 10}, "n_components=30 times n_subcomponents=10"),
        ({"n_components": 2, "subweights_init": [[0.5, 0.5], [0.5, 0.6]]}, "subweights_init of component 1"),
        ({"n_components": 2, "means_init": np.zeros((3, 2, 2))}, "means_init"),
    ],
)
def test_bad_settings(settings, says):
    with pytest.raises(ValueError, match=says):
        NestedMixture(**settings).fit(two_pairs(100)[0])


def test_bad_parameters():
    given, _ = example("full")
    with pytest.raises(ValueError, match="subweights must have shape"):
        NestedMixture.from_parameters(**{**given, "subweights": given["subweights"][0]})
