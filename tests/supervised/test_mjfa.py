"""Classes in one common subspace: against loops over dense Gaussians, against MCFA, and in its own right."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import latently
from latently.mixture import MCFA
from latently.supervised import MJFAClassifier
from tests.oracles import mjfa as oracle

EXACT = {
    "noise_floor": 0.0,
    "prior": None,
    "temperature": None,
    "tol": 0.0,
    "accelerate": None,
}  # max_iter=n runs exactly n EM steps
PLAIN = {"max_iter": 8, "tol": 0.0, "n_init": 2, "random_state": 0}
SHORT = {**PLAIN, "shrinkage": None, "temperature": None, "unlabelled_weight": 1.0}
STARTS = {  # fitted attributes, and what gives them starting values
    "class_prior": "class_prior_init",
    "weights": "weights_init",
    "loadings": "loadings_init",
    "latent_means": "latent_means_init",
    "latent_covariances": "latent_covariances_init",
    "noise_variance": "noise_init",
}


def example(rng, D, C, K, q, spread=2.0):
    """Random parameters, by the names of the fitted attributes."""
    roots = rng.normal(size=(C, K, q, q))
    return {
        "class_prior": rng.dirichlet(np.full(C, 5.0)),
        "weights": rng.dirichlet(np.full(K, 5.0), size=C),
        "loadings": rng.normal(size=(D, q)),
        "latent_means": rng.normal(scale=spread, size=(C, K, q)),
        "latent_covariances": roots @ np.swapaxes(roots, -1, -2) + 0.5 * np.eye(q),
        "noise_variance": rng.uniform(0.3, 2.0, size=D),
    }


def known(theta, **more):
    return MJFAClassifier.from_parameters(**theta, **more)


def started(theta, **settings):
    """An estimator before `fit`, with all starting values given."""
    sizes = theta["latent_means"].shape[1:]
    return MJFAClassifier(*sizes, **{init: theta[name] for name, init in STARTS.items()}, **settings)


def parameters(model):
    return {name: getattr(model, f"{name}_") for name in STARTS}


def assert_same(actual, expected, rtol=1e-8, atol=1e-9):
    for name in STARTS:
        np.testing.assert_allclose(actual[name], expected[name], rtol=rtol, atol=atol, err_msg=name)


def assert_equal_fits(one, other, rtol=1e-9, atol=1e-10):
    assert_same(parameters(one), parameters(other), rtol, atol)
    np.testing.assert_allclose(one.history_, other.history_, rtol=max(rtol, 1e-12))


def problem(seed, N=60, D=5, C=3, K=2, q=2, *, holes=False, unlabelled=False, weighted=False):
    """Rows of a random model, their labels and weights, and other parameters to start from."""
    rng = np.random.default_rng(seed)
    X, y = known(example(rng, D, C, K, q)).sample(N, random_state=seed)
    y[:C] = np.arange(C)  # no class is without a row
    if holes:
        missing = rng.random(X.shape) < 0.2
        missing[np.arange(N), rng.integers(D, size=N)] = False
        X[missing] = np.nan
    if unlabelled:
        y[C:][rng.random(N - C) < 0.5] = -1
    weight = rng.uniform(0.2, 3.0, size=N) if weighted else None
    start = example(rng, D, C, K, q)
    start["latent_covariances"] = 4 * start["latent_covariances"]
    start["noise_variance"] = 4 * start["noise_variance"]
    return X, y, weight, start


@pytest.fixture(scope="module")
def data():
    """Rows of three classes, and others of the same kind."""
    theta = example(np.random.default_rng(5), 6, 3, 2, 2, spread=4.0)
    return (*known(theta).sample(90, random_state=0), *known(theta).sample(60, random_state=1))


@pytest.fixture(scope="module")
def fitted(data):
    return MJFAClassifier(2, 2, **SHORT).fit(*data[:2])


# -- densities ----------------------------------------------------------------------------------------------

SIZES = [(1, 1, 1, 1), (4, 1, 2, 2), (3, 2, 1, 3), (5, 3, 2, 2), (6, 4, 3, 4)]
every_size = pytest.mark.parametrize("sizes", SIZES, ids=str)


@every_size
@pytest.mark.parametrize("holes", [False, True], ids=["", "holes"])
def test_densities_and_posteriors_are_those_of_dense_gaussians(sizes, holes):
    rng = np.random.default_rng(0)
    theta = example(rng, *sizes)
    X = rng.normal(scale=4.0, size=(20, sizes[0]))
    if holes:
        X[rng.random(X.shape) < 0.3] = np.nan
    model = known(theta)
    joint = oracle.class_log_joint(X, *theta.values())
    expected = oracle.log_density(X, *theta.values())
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model._class_log_joint(X), joint, rtol=1e-10, atol=1e-12)
    log_posterior = joint - expected[:, None]
    np.testing.assert_allclose(model.predict_log_proba(X), log_posterior, rtol=1e-9, atol=1e-10)
    posterior = oracle.class_posterior(X, *theta.values())
    np.testing.assert_allclose(model.predict_proba(X), posterior, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_array_equal(model.predict(X), posterior.argmax(axis=1))


def test_means_and_covariances_are_by_class():
    theta = example(np.random.default_rng(1), 4, 3, 2, 2)
    means, covariances = oracle.dense(*theta.values())
    np.testing.assert_allclose(known(theta).means_, means, rtol=1e-12)
    np.testing.assert_allclose(known(theta).covariances_, covariances, rtol=1e-12)


def test_the_density_integrates_to_one_and_those_of_the_classes_to_their_prior():
    theta = example(np.random.default_rng(2), 2, 3, 2, 1)
    model = known(theta)
    deviation = np.sqrt(np.diagonal(model.covariances_, axis1=-2, axis2=-1))
    low = np.min(model.means_ - 9 * deviation, axis=(0, 1))
    high = np.max(model.means_ + 9 * deviation, axis=(0, 1))
    axes = [np.linspace(a, b, 400) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(model.score_samples(grid)) * np.prod([axis[1] - axis[0] for axis in axes])
    assert density.sum() == pytest.approx(1.0, abs=1e-6)
    of_classes = density @ model.predict_proba(grid)
    np.testing.assert_allclose(of_classes, theta["class_prior"], atol=1e-6)


def test_far_rows():
    """Densities of all classes vanish in floating point long before their logarithms do."""
    model = known(example(np.random.default_rng(3), 4, 3, 2, 2))
    direction = np.random.default_rng(4).normal(size=(5, 4))
    for distance in (1e2, 1e5, 1e100):
        scores, posterior = (
            model.score_samples(distance * direction),
            model.predict_proba(distance * direction),
        )
        assert np.all(np.isfinite(scores)) and np.all(scores < -100)
        np.testing.assert_allclose(posterior.sum(axis=1), 1.0, rtol=1e-14)
    assert not np.isnan(model.score_samples(1e200 * direction)).any()
    np.testing.assert_allclose(model.predict_proba(1e200 * direction).sum(axis=1), 1.0, rtol=1e-14)


def test_the_sampler_agrees_with_the_density():
    rng = np.random.default_rng(5)
    theta = example(rng, 3, 3, 2, 2)
    other = {**theta, "latent_covariances": 0.8 * theta["latent_covariances"]}
    other["noise_variance"] = 0.8 * theta["noise_variance"]
    model, narrower = known(theta), known(other)
    X, y = model.sample(50_000, random_state=0)
    ratio = np.exp(narrower.score_samples(X) - model.score_samples(X))  # its mean is one
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(X))
    # what posteriors promise of the labels is what becomes of them, wherever one looks
    surprise = (y[:, None] == np.arange(3)) - model.predict_proba(X)
    for feature in (np.ones(len(X)), *X.T):
        promised = surprise * feature[:, None]
        assert np.all(np.abs(promised.mean(axis=0)) < 5 * promised.std(axis=0) / np.sqrt(len(X)))


# -- steps --------------------------------------------------------------------------------------------------

SITUATIONS = {
    "labels": {},
    "some labels": {"unlabelled": True},
    "weights": {"weighted": True},
    "holes": {"holes": True},
    "all of it": {"unlabelled": True, "weighted": True, "holes": True},
}
every_situation = pytest.mark.parametrize("situation", SITUATIONS)


def check_steps(X, y, weight, start, n_steps=1, prior=None, shared=False):
    theta = start if prior is None else {**start, "class_prior": prior}
    history = [oracle.objective(X, y, *theta.values(), sample_weight=weight)]
    for _ in range(n_steps):
        stepped = oracle.step(X, y, *theta.values(), weight, prior is not None, shared)
        theta = dict(zip(theta, stepped, strict=True))
        history.append(oracle.objective(X, y, *theta.values(), sample_weight=weight))
    assert np.all(np.diff(history) >= 0)  # of the oracle itself
    settings = {"max_iter": n_steps, "class_prior": prior, "shared_covariance": shared, **EXACT}
    model = started(start, **settings).fit(X, y, sample_weight=weight)
    assert_same(parameters(model), dict(zip(theta, oracle.normal_form(*theta.values()), strict=True)))
    np.testing.assert_allclose(model.history_, history, rtol=1e-9)
    assert model.n_iter_ == n_steps
    return model


@every_situation
@pytest.mark.parametrize("fixed", [False, True], ids=["", "fixed prior"])
def test_exact_steps(situation, fixed):
    X, y, weight, start = problem(0, 40, 4, **SITUATIONS[situation])
    prior = np.array([0.5, 0.2, 0.3]) if fixed else None
    model = check_steps(X, y, weight, start, prior=prior)
    if fixed:
        np.testing.assert_array_equal(model.class_prior_, prior)


@pytest.mark.parametrize("sizes", [(3, 1, 1, 1), (4, 1, 3, 2), (3, 4, 1, 3), (6, 2, 3, 4)], ids=str)
def test_steps_of_all_sizes(sizes):
    X, y, weight, start = problem(1, 40, *sizes, unlabelled=sizes[1] > 1, weighted=True)
    check_steps(X, y, weight, start, n_steps=2)


@pytest.mark.parametrize("situation", ["labels", "all of it"])
def test_steps_with_one_covariance_for_all(situation):
    X, y, weight, start = problem(2, 40, 4, **SITUATIONS[situation])
    start["latent_covariances"] = np.broadcast_to(start["latent_covariances"][0, 0], (3, 2, 2, 2))
    check_steps(X, y, weight, start, n_steps=2, shared=True)


def test_labels_against_the_evidence():
    """Rows far from the class that they are said to be of have their part in it all the same."""
    X, y, weight, start = problem(3, 40, 4, weighted=True)
    check_steps(X + 20.0 * np.eye(4)[y], (y + 1) % 3, weight, start)


def test_of_empty_rows_the_labels_count():
    X, y, weight, start = problem(4, 40, 4, holes=True, unlabelled=True, weighted=True)
    X[:3], y[:3] = np.nan, [0, 1, 1]
    check_steps(X, y, weight, start)


@pytest.mark.parametrize("accelerate", [None, "squarem"])
@pytest.mark.parametrize("seed", range(12))
def test_the_likelihood_never_falls(seed, accelerate):
    rng = np.random.default_rng(seed)
    C, K, q = 1 + seed % 4, 1 + seed // 4, int(rng.integers(1, 5))
    holes, unlabelled, weighted, fixed, shared = rng.random(5) < 0.5
    X, y, weight, _ = problem(
        seed, 50, 5, C, K, q, holes=holes, unlabelled=unlabelled and C > 1, weighted=weighted
    )
    prior = rng.dirichlet(np.full(C, 5.0)) if fixed else None
    settings = {"class_prior": prior, "shared_covariance": bool(shared), "accelerate": accelerate}
    model = MJFAClassifier(K, q, **{**SHORT, "max_iter": 12}, **settings, prior=None)
    model.fit(X, y, sample_weight=weight)
    assert len(model.history_) > 1
    assert np.all(np.diff(model.history_) >= -1e-9 * np.abs(model.history_[1:]))
    expected = oracle.objective(X, y, *parameters(model).values(), sample_weight=weight)
    assert model.history_[-1] == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(model.loadings_.T @ model.loadings_, np.eye(q), atol=1e-10)
    if fixed:
        np.testing.assert_array_equal(model.class_prior_, prior)


# -- other models that it is --------------------------------------------------------------------------------


@pytest.mark.parametrize("unlabelled", [False, True], ids=["", "some labels"])
def test_one_component_for_each_class_is_mcfa_with_known_components(unlabelled):
    X, y, weight, start = problem(6, 80, K=1, unlabelled=unlabelled, weighted=True)
    if unlabelled:  # both begin where they are told, because rows without a label leave starts to chance
        flat = {name: start[name][:, 0] for name in ("latent_means", "latent_covariances")}
        flat = {**start, **flat, "weights": start["class_prior"]}
        starts = {init: flat[name] for name, init in STARTS.items() if name != "class_prior"}
        model, same = started(start, **SHORT), MCFA(3, 2, **starts, **PLAIN)
    else:
        once = {**SHORT, "n_init": 1}  # of several, the best goes on from its short run
        model, same = MJFAClassifier(1, 2, **once), MCFA(3, 2, **{**PLAIN, "n_init": 1})
    model.fit(X, y, sample_weight=weight)
    same.fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.history_, same.history_, rtol=1e-9)
    np.testing.assert_allclose(model.class_prior_, same.weights_, rtol=1e-7)
    np.testing.assert_allclose(model.score_samples(X), same.score_samples(X), rtol=1e-7)
    np.testing.assert_allclose(model.predict_proba(X), same.predict_proba(X), atol=1e-7)
    np.testing.assert_allclose(model.transform(X), same.transform(X), atol=1e-6)


def test_one_class_is_mcfa():
    X, _, _, _ = problem(7, 80, C=1)
    model = MJFAClassifier(2, 2, **SHORT).fit(X, np.full(80, 3))
    same = MCFA(2, 2, **PLAIN).fit(X)
    np.testing.assert_allclose(model.history_, same.history_, rtol=1e-10)
    np.testing.assert_allclose(model.score_samples(X), same.score_samples(X), rtol=1e-9)
    np.testing.assert_allclose(model.weights_, same.weights_[None], rtol=1e-8)
    np.testing.assert_array_equal(model.predict(X), 3)
    np.testing.assert_allclose(model.class_prior_, [1.0], rtol=1e-15)  # a sum of two weights
    assert model.n_parameters() == same.n_parameters()


def test_factors_are_those_of_the_mixture_of_all_components(fitted, data):
    X = data[2].copy()
    X[::3, 1] = np.nan
    flat = MCFA.from_parameters(
        weights=(fitted.class_prior_[:, None] * fitted.weights_).ravel(),
        loadings=fitted.loadings_,
        latent_means=fitted.latent_means_.reshape(6, 2),
        latent_covariances=fitted.latent_covariances_.reshape(6, 2, 2),
        noise_variance=fitted.noise_variance_,
    )
    for method in ("score_samples", "transform", "reconstruct", "impute"):
        here, there = (getattr(model, method)(X) for model in (fitted, flat))
        np.testing.assert_allclose(here, there, rtol=1e-7, atol=1e-8, err_msg=method)
    Z = fitted.transform(X)
    assert Z.shape == (60, 2)
    np.testing.assert_allclose(fitted.inverse_transform(Z), Z @ fitted.loadings_.T, rtol=1e-12)
    seen = ~np.isnan(X)
    np.testing.assert_array_equal(fitted.impute(X)[seen], X[seen])
    assert not np.isnan(fitted.impute(X)).any()


# -- rows, weights and labels -------------------------------------------------------------------------------


LABELS = {
    "text": ["ash", "birch", "cedar"],
    "objects": np.array(["ash", "birch", "cedar"], dtype=object),
    "floats": [0.0, 5.0, 7.0],
    "small": np.array([3, 7, 9], dtype=np.int8),
    "with minus one as text": ["-1", "0", "1"],
}


@pytest.mark.filterwarnings("ignore:y holds the text '-1'")
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_names_of_labels_do_not_matter(labels, data):
    X, y, X_new, _ = data
    labels = np.asarray(labels)
    plain = MJFAClassifier(2, 1, **SHORT).fit(X, y)
    named = MJFAClassifier(2, 1, **SHORT).fit(X, labels[y])
    assert named.classes_.tolist() == labels.tolist()
    assert_equal_fits(named, plain, rtol=0, atol=0)
    assert named.predict(X_new).tolist() == labels[plain.predict(X_new)].tolist()
    assert set(named.sample(50, random_state=0)[1].tolist()) == set(labels.tolist())


def test_the_order_of_classes_does_not_matter():
    X, y, _, start = problem(11, unlabelled=True)
    turned = {
        name: array[::-1] if name[0] in "cw" or "latent" in name else array for name, array in start.items()
    }
    here = started(start, max_iter=3, **EXACT).fit(X, y)
    there = started(turned, max_iter=3, **EXACT).fit(X, np.where(y == -1, -1, 2 - y))
    np.testing.assert_allclose(there.predict_proba(X)[:, ::-1], here.predict_proba(X), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(there.history_, here.history_, rtol=1e-11)


def test_minus_one_and_one_are_classes():
    X, y, _, _ = problem(12, C=2)
    model = MJFAClassifier(2, 2, **SHORT).fit(X, 2 * y - 1)
    assert model.classes_.tolist() == [-1, 1]
    assert_equal_fits(model, MJFAClassifier(2, 2, **SHORT).fit(X, y), rtol=0, atol=0)


def test_text_labels_with_rows_that_have_none(data):
    X, y, _, _ = data
    some = np.where(np.arange(len(y)) % 3 == 0, -1, y)
    named = np.array(["ash", "birch", "cedar"], dtype=object)[y]
    named[some == -1] = -1
    model = MJFAClassifier(2, 2, **SHORT).fit(X, named)
    assert model.classes_.tolist() == ["ash", "birch", "cedar"]
    assert_equal_fits(model, MJFAClassifier(2, 2, **SHORT).fit(X, some), rtol=0, atol=0)


@pytest.mark.parametrize("seed", range(3))
def test_rows_without_a_label_help(seed):
    """Twelve labels among six hundred rows: the subspace is learnt from all of them."""
    truth = known(example(np.random.default_rng(seed), 12, 3, 1, 2, spread=3.0))
    X, y = truth.sample(600, random_state=seed)
    X_new, _ = truth.sample(1000, random_state=seed + 100)
    few = np.concatenate([np.flatnonzero(y == c)[:4] for c in range(3)])
    some = np.full(len(y), -1)
    some[few] = y[few]
    settings = {"random_state": 0, "n_init": 2, "tol": 1e-5, "temperature": None, "unlabelled_weight": 1.0}
    with_all = MJFAClassifier(1, 2, **settings).fit(X, some)
    labelled_only = MJFAClassifier(1, 2, **settings).fit(X[few], y[few])
    gain = with_all.score_samples(X_new).mean() - labelled_only.score_samples(X_new).mean()
    assert gain > 0.5
    best = truth.score_samples(X_new).mean()
    assert with_all.score_samples(X_new).mean() > best - 0.5


# -- the prior ----------------------------------------------------------------------------------------------


def test_the_prior_of_labelled_rows_is_their_share():
    X, y, weight, _ = problem(13, weighted=True)
    model = MJFAClassifier(2, 2, **SHORT).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(model.class_prior_, np.bincount(y, weight) / weight.sum(), rtol=1e-12)


def test_a_prior_that_is_given_changes_nothing_else_of_labelled_rows():
    """Of rows that all have a label, ln rho is a term of its own in the likelihood."""
    X, y, _, start = problem(14)
    prior = np.array([0.7, 0.2, 0.1])
    learnt = started(start, max_iter=4, **EXACT).fit(X, y)
    given = started(start, max_iter=4, class_prior=prior, **EXACT).fit(X, y)
    assert_same({**parameters(given), "class_prior": learnt.class_prior_}, parameters(learnt), rtol=1e-9)
    np.testing.assert_array_equal(given.class_prior_, prior)
    change = given.predict_log_proba(X) - learnt.predict_log_proba(X) - np.log(prior / learnt.class_prior_)
    np.testing.assert_allclose(change, change[:, :1] * np.ones(3), atol=1e-9)  # Bayes' rule in the odds


@pytest.mark.parametrize("how", ["fit", "mini-batches", "partial_fit", "torch"])
def test_a_given_prior_is_kept_whatever_the_way(how, data):
    X, y, _, _ = data
    settings = {**SHORT, "class_prior": (0.6, 0.3, 0.1)}
    if how == "torch":
        torch = pytest.importorskip("torch")
        model = MJFAClassifier(2, 1, **settings).fit(torch.asarray(X), y)
    elif how == "partial_fit":
        model = MJFAClassifier(2, 1, **settings).partial_fit(X, y).partial_fit(X[y == 1], y[y == 1])
    else:
        model = MJFAClassifier(2, 1, batch_size=None if how == "fit" else 30, **settings).fit(X, y)
    np.testing.assert_allclose(np.asarray(model.class_prior_), [0.6, 0.3, 0.1], rtol=1e-14)


# -- number of parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(6, 2, 1, 1), (6, 3, 2, 2), (7, 2, 2, 3), (5, 1, 2, 2)], ids=str)
def test_number_of_parameters(sizes):
    C, model = sizes[1], known(example(np.random.default_rng(0), *sizes))
    assert model.n_parameters() == oracle.n_parameters(*sizes) == oracle.jacobian_rank(*sizes)
    fixed = model.set_params(class_prior=np.full(C, 1 / C))
    assert fixed.n_parameters() == oracle.jacobian_rank(*sizes, fixed_prior=True)
    fixed.set_params(class_prior=None, shared_covariance=True)
    assert fixed.n_parameters() == oracle.jacobian_rank(*sizes, shared_covariance=True)


# -- little to go by ----------------------------------------------------------------------------------------


def assert_sensible(model, X):
    for name, array in parameters(model).items():
        assert np.all(np.isfinite(array)), name
    assert np.all(model.noise_variance_ > 0)
    assert np.all(np.diff(model.history_) >= -1e-9 * (1 + np.abs(model.history_[1:])))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)
    assert np.all(np.isfinite(model.score_samples(X)))
    assert np.all(np.isfinite(model.transform(X)))


def poor():
    rng = np.random.default_rng(7)
    X, y, _, _ = problem(7)
    single = np.where(y == 2, 0, y)
    single[5] = 2
    return {
        "a class of one row": (X, single, 2, 2),
        "a class of two rows, four components": (X, np.where(np.arange(60) < 2, 2, y % 2), 4, 2),
        "N < D": (rng.normal(size=(50, 300)), np.arange(50) % 3, 2, 3),
        "q = D": (X, y, 2, 5),
        "D = 1": (X[:, :1], y, 2, 1),
        "each row ten times": (np.repeat(X[:6], 10, axis=0), np.repeat(np.arange(6) % 3, 10), 2, 2),
        "equal rows of different classes": (np.tile(X[:20], (3, 1)), np.repeat(np.arange(3), 20), 2, 2),
        "rank one": (X[:, :1] @ rng.normal(size=(1, 5)), y, 2, 2),
    }


POOR = poor()


@pytest.mark.parametrize("name", POOR)
def test_poor_data(name):
    X, y, K, q = POOR[name]
    assert_sensible(MJFAClassifier(K, q, **SHORT).fit(X, y), X)


def test_rows_far_from_the_origin(data):
    """The way from the origin takes one factor; what is left tells the classes apart as before."""
    X, y, X_new, y_new = data
    offset = 1e6 * np.array([1.0, -1.0, 0.5, 2.0, 1.0, 0.3])
    settings = {**SHORT, "max_iter": 60}
    here = MJFAClassifier(1, 3, **settings).fit(X, y)
    there = MJFAClassifier(1, 3, **settings).fit(X + offset, y)
    assert_sensible(there, X + offset)
    for c in range(3):
        own = X[y == c]
        assert np.all(np.abs(there.means_[c, 0] - offset - own.mean(axis=0)) < 0.5 * own.std(axis=0))
    assert there.score(X_new + offset, y_new) > here.score(X_new, y_new) - 0.05


def test_single_precision_is_close(data, fitted):
    X, y, X_new, _ = data
    single = MJFAClassifier(2, 2, dtype="float32", **SHORT).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.score_samples(X_new), fitted.score_samples(X_new), atol=0.01)
    assert np.mean(single.predict(X_new) == fitted.predict(X_new)) > 0.98


def test_a_class_without_weight_has_no_share():
    X, y, _, _ = problem(15)
    model = MJFAClassifier(2, 2, **SHORT).fit(X, y, sample_weight=y != 1)
    assert model.classes_.tolist() == [0, 1, 2] and model.class_prior_[1] < 1e-90
    assert_sensible(model, X)
    assert model.predict_proba(X)[:, 1].max() < 1e-50


# -- streams, restarts and other places ---------------------------------------------------------------------


def test_streams(data):
    X, y, X_new, y_new = data
    stream = MJFAClassifier(2, 2, **SHORT)
    stream.partial_fit(X[:45], y[:45], classes=[0, 1, 2])
    first = stream.score_samples(X_new).mean()
    for _ in range(10):
        for part in (slice(0, 45), slice(45, 90)):
            stream.partial_fit(X[part], y[part])
    stream.partial_fit(X[y == 1], y[y == 1]).partial_fit(X[:5], [-1] * 5)
    assert stream.n_iter_ == 23
    assert stream.score_samples(X_new).mean() > first
    whole = MJFAClassifier(2, 2, **SHORT).fit(X, y)
    assert stream.score(X_new, y_new) > whole.score(X_new, y_new) - 0.1
    with pytest.raises(ValueError, match=r"class 7, which is not among \[0, 1, 2\]"):
        stream.partial_fit(X, np.full(len(X), 7))
    assert stream.classes_.tolist() == [0, 1, 2]


def test_classes_that_come_later(data):
    X, y, _, _ = data
    early = y < 2
    stream = MJFAClassifier(1, 2, **SHORT).partial_fit(X[early], y[early], classes=[0, 1, 2])
    assert stream.classes_.tolist() == [0, 1, 2] and stream.class_prior_[2] < 1e-90
    for _ in range(20):
        stream.partial_fit(X, y)
    assert stream.class_prior_[2] > 0.1
    assert np.mean(stream.predict(X)[y == 2] == 2) > 0.5
    with pytest.raises(ValueError, match="which is not among"):
        MJFAClassifier(1, 2, **SHORT).partial_fit(X, y, classes=[0, 1])


def test_mini_batches(data, fitted):
    X, y, _, _ = data
    model = MJFAClassifier(2, 2, batch_size=30, prior=None, **{**SHORT, "max_iter": 30}).fit(X, y)
    expected = oracle.objective(X, y, *parameters(model).values())
    assert model.history_[-1] == pytest.approx(expected, rel=1e-6)
    assert model.history_[-1] > fitted.history_[-1] - 0.2


def test_warm_start(data, fitted):
    X, y, _, _ = data
    model = clone(fitted).set_params(warm_start=True).fit(X, y)
    last = model.history_[-1]
    model.fit(X, y)
    assert model.history_[0] == pytest.approx(last, rel=1e-9)
    assert model.history_[-1] >= last - 1e-9
    with pytest.raises(ValueError, match="warm_start needs the shapes"):
        model.fit(X, y % 2)
    assert len(model.classes_) == 3  # a fit that fails leaves what was there


# -- decisions ----------------------------------------------------------------------------------------------


def test_rejection(data, fitted):
    X, y, X_new, _ = data
    model = pickle.loads(pickle.dumps(fitted))
    assert model.reject_below_ == -np.inf
    assert model.calibrate_rejection(X_new, acceptance=0.9) is model
    assert model.accepts(X_new).sum() == 55  # of 60: the threshold is the sixth score, floor(61 / 10)
    far = 100.0 * np.ones((1, 6))
    assert model.predict(far).tolist() == [-1] and fitted.predict(far)[0] in (0, 1, 2)
    np.testing.assert_array_equal(model.predict_proba(far), fitted.predict_proba(far))
    set_before = MJFAClassifier(2, 2, reject_below=model.reject_below_, **SHORT).fit(X, y)
    np.testing.assert_array_equal(set_before.predict(X_new), model.predict(X_new))


def test_it_tells_classes_apart(data, fitted):
    _, _, X_new, y_new = data
    model = known(example(np.random.default_rng(5), 6, 3, 2, 2, spread=4.0))
    assert fitted.score(X_new, y_new) > model.score(X_new, y_new) - 0.1  # of the model that made the rows


# -- as scikit-learn users expect ---------------------------------------------------------------------------


def test_in_a_pipeline_and_a_grid_search(data):
    X, y, X_new, _ = data
    pipe = make_pipeline(StandardScaler(), MJFAClassifier(2, 2, **SHORT)).fit(X, y)
    scaler = StandardScaler().fit(X)
    alone = MJFAClassifier(2, 2, **SHORT).fit(scaler.transform(X), y)
    np.testing.assert_array_equal(pipe.predict_proba(X_new), alone.predict_proba(scaler.transform(X_new)))
    np.testing.assert_array_equal(pipe.transform(X_new), alone.transform(scaler.transform(X_new)))
    grid = {"mjfaclassifier__n_factors": [1, 2]}
    search = GridSearchCV(pipe, grid, cv=3).fit(X, y)
    assert np.all(search.cv_results_["mean_test_score"] > 1 / 3)


@pytest.mark.parametrize("labels", [[0, 1, 2], [-2.0, 0.0, 5.0], ["ash", "birch", "cedar"]], ids=str)
@pytest.mark.parametrize("prior", [None, [0.2, 0.3, 0.5]], ids=str)
def test_saving_and_loading(labels, prior, data, tmp_path):
    X, y, X_new, _ = data
    X = X + 1e4  # where digits are dear
    model = MJFAClassifier(2, 2, class_prior=prior, **SHORT).fit(X, np.asarray(labels)[y])
    model.calibrate_rejection(X_new + 1e4, acceptance=0.8)
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    assert type(again) is MJFAClassifier
    assert again.classes_.tolist() == labels and again.classes_.dtype == model.classes_.dtype
    assert again.reject_below_ == model.reject_below_
    for method in ("score_samples", "predict_log_proba", "predict", "accepts", "transform"):
        here, there = (getattr(one, method)(X_new + 1e4) for one in (model, again))
        np.testing.assert_array_equal(there, here, err_msg=method)
    np.testing.assert_array_equal(again.history_, model.history_)
    assert again.n_parameters() == model.n_parameters()
    again.set_params(warm_start=True).fit(X, np.asarray(labels)[y])
    assert again.history_[0] == pytest.approx(model.history_[-1], rel=1e-9)


# -- what is turned away ------------------------------------------------------------------------------------

BAD = {
    "n_components=0": ({"n_components": 0}, "n_components must be an integer of at least 1, not 0"),
    "n_components=True": ({"n_components": True}, "n_components must be an integer of at least 1, not True"),
    "too many components": ({"n_components": 100}, "n_components=100 must not be larger than n_samples=60"),
    "n_factors=0": ({"n_factors": 0}, "n_factors must be an integer of at least 1"),
    "n_factors > n_features": ({"n_factors": 6}, "n_factors=6 must not be larger than n_features=5"),
    "prior too short": (
        {"class_prior": [0.5, 0.5]},
        r"class_prior must have an entry for each of the 3 classes",
    ),
    "prior negative": ({"class_prior": [0.6, 0.6, -0.2]}, "class_prior must be positive"),
    "prior zero": ({"class_prior": [0.5, 0.5, 0.0]}, "class_prior must be positive"),
    "prior sum": ({"class_prior": [0.5, 0.5, 0.5]}, "class_prior must .* sum to one"),
    "prior NaN": ({"class_prior": [0.5, np.nan, 0.5]}, "class_prior must hold finite numbers"),
    "prior text": ({"class_prior": "balanced"}, "class_prior must be an array of real numbers"),
    "reject_below text": ({"reject_below": "low"}, "reject_below must be a number"),
    "reject_below NaN": ({"reject_below": np.nan}, "reject_below must be a number"),
    "loadings alone": ({"loadings_init": np.ones((5, 2))}, "loadings_init needs all other starting values"),
    "latent means alone": (
        {"latent_means_init": np.ones((3, 2, 2))},
        "latent_means_init needs loadings_init",
    ),
    "weights per class": ({"weights_init": [[0.5, 0.6]]}, "each row of weights_init must .* sum to one"),
}
SHAPES = {
    "class_prior_init": np.full(2, 0.5),
    "weights_init": np.full((3, 3), 1 / 3),
    "loadings_init": np.ones((4, 2)),
    "latent_means_init": np.ones((3, 3, 2)),
    "latent_covariances_init": np.ones((3, 2, 3, 3)),
    "noise_init": np.ones(4),
}


@pytest.mark.parametrize("settings, says", BAD.values(), ids=BAD)
def test_bad_settings(settings, says):
    X, y, _, _ = problem(0)
    model = MJFAClassifier(**{"n_components": 2, "n_factors": 2, **SHORT, **settings})
    with pytest.raises(ValueError, match=says):
        model.fit(X, y)
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize("name", SHAPES)
def test_starting_values_of_wrong_shape(name):
    X, y, _, start = problem(0)
    with pytest.raises(ValueError, match=f"{name} has shape"):
        started(start, **SHORT).set_params(**{name: SHAPES[name]}).fit(X, y)


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda y: None, "requires y"),
        (lambda y: y[1:], "y must have one label per row, 60 in all, not 59"),
        (lambda y: np.where(y == 0, np.nan, y), "y contains NaN; use the number -1 for"),
        (lambda y: y + 0.5 * np.arange(60), "continuous|Unknown label type"),
        (lambda y: np.full(60, -1), "every row is unlabelled"),
        (lambda y: np.stack([y, y], axis=1), "1d array"),
    ],
    ids=["None", "short", "NaN", "continuous", "all unlabelled", "two columns"],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_bad_labels(change, says, method):
    X, y, _, _ = problem(0)
    with pytest.raises(ValueError, match=says):
        getattr(MJFAClassifier(2, 2, **SHORT), method)(X, change(y))


def test_known_parameters_that_do_not_fit():
    theta = example(np.random.default_rng(0), 4, 3, 2, 2)
    with pytest.raises(ValueError, match=r"weights must have shape \(n_classes, n_components\)"):
        known({**theta, "weights": np.ones(3)})
    with pytest.raises(ValueError, match="class_prior must be non-negative and sum to one"):
        known({**theta, "class_prior": [0.5, 0.6, 0.7]})
    with pytest.raises(ValueError, match="latent_means has shape"):
        known({**theta, "latent_means": np.ones((2, 2, 2))})
    with pytest.raises(ValueError, match="classes must be 3 different labels"):
        known(theta, classes=["a", "b"])
    assert known(theta, classes=["a", "b", "c"]).predict(np.zeros((1, 4)))[0] in "abc"


def test_given_starts_beside_our_own():
    """Shares and noise can be given alone; the rest is found."""
    X, y, _, _ = problem(16)
    for given in ({"class_prior_init": [0.5, 0.3, 0.2]}, {"weights_init": [0.9, 0.1]}, {"noise_init": 1.0}):
        assert_sensible(MJFAClassifier(2, 2, **given, **SHORT).fit(X, y), X)
