"""Partial labels: rows whose component is known, or known to be one of several."""

import re
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latently.mixture import MFA, GaussianMixture
from tests.contracts.models import ALL, BY_NAME, FA, PRINCIPAL, assert_same, rows
from tests.oracles import missing as oracle

MIXTURES = [model for model in ALL if not model.one_component]
SEPARATE = [m for m in MIXTURES if not m.shared and m.options.get("covariance_type") != "tied"]
every_model = pytest.mark.parametrize("model", ALL, ids=str)
every_mixture = pytest.mark.parametrize("model", MIXTURES, ids=str)
# one of each kind, where the families have no part in what is tested
FEW = [BY_NAME[name] for name in "GMM-full GMM-tied GMM-diag MFA-diagonal MPPCA-shared MCFA".split()]
a_few_mixtures = pytest.mark.parametrize("model", FEW, ids=str)
every_separate_mixture = pytest.mark.parametrize("model", SEPARATE, ids=str)
weighted_or_not = pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
complete_or_not = pytest.mark.parametrize("holes", [False, True], ids=["", "holes"])

EXACT = {
    "noise_floor": 0.0,
    "prior": None,
    "tol": 0.0,
    "accelerate": None,
}  # max_iter=n runs exactly n EM steps


def with_holes(rng, X, fraction=0.2):
    """X with NaN in about this fraction of its entries; no row is empty, and no column nearly so."""
    N, D = X.shape
    holes = rng.random((N, D)) < fraction
    holes[np.arange(N), rng.integers(D, size=N)] = False
    for j in range(D):
        holes[rng.choice(N, size=min(N, 3), replace=False), j] = False
    return np.where(holes, np.nan, X)


def some_labels(rng, N, K, known=0.4):
    """Labels (N,), of which about this fraction is known, each of them at least once."""
    y = np.where(rng.random(N) < known, rng.integers(K, size=N), -1)
    y[rng.choice(N, size=K, replace=False)] = np.arange(K)
    return y


def some_allowed(rng, N, K):
    """(N, K) of which a row allows all, some or one."""
    allowed = rng.random((N, K)) < rng.choice([0.0, 0.5, 1.0], size=(N, 1))
    allowed[np.arange(N), rng.integers(K, size=N)] = True
    return allowed


def problem(model, seed, N=40, D=4, K=3, q=2, holes=False):
    """Rows, row weights and starting values that are wide enough."""
    rng = np.random.default_rng(seed)
    X = rows(rng, N, D)
    weight = rng.uniform(0.2, 3.0, size=N)
    start = model.narrower(model.example(rng, D, K, q), 6.0)
    means = X[rng.choice(N, size=len(start["weights"]), replace=False)]
    return rng, with_holes(rng, X) if holes else X, weight, model.centred(start, means)


def turned_to(theta):
    """Parameters with L L' in the place of L, which is all that the density depends on."""
    if "loadings" not in theta or "latent_means" in theta:
        return theta
    return {**theta, "loadings": theta["loadings"] @ np.swapaxes(theta["loadings"], 1, 2)}


def assert_equal_fits(model, one, other, rtol=0.0, atol=0.0):
    assert_same(model.theta(one), model.theta(other), rtol=rtol, atol=atol)
    np.testing.assert_allclose(one.history_, other.history_, rtol=max(rtol, 1e-14))


# -- steps --------------------------------------------------------------------------------------------------


def check_steps(model, X, y, weight, start, n_steps):
    K = len(start["weights"])
    allowed = y if y.ndim == 2 else oracle.allowed_components(y, K)
    expected, history = start, [oracle.objective(model, X, start, weight, allowed)]
    for _ in range(n_steps):
        expected = oracle.step(model, X, expected, weight, allowed)
        history.append(oracle.objective(model, X, expected, weight, allowed))
    assert np.all(np.diff(history) >= -1e-12)  # of the oracle itself
    estimator = model.started(start, max_iter=n_steps, **EXACT).fit(X, y, sample_weight=weight)
    assert_same(turned_to(model.theta(estimator)), turned_to(model.normal_form(expected)))
    assert estimator.n_iter_ == n_steps
    assert estimator.history_.shape == (n_steps + 1,)
    np.testing.assert_allclose(estimator.history_, history, rtol=1e-9)


@every_mixture
@pytest.mark.parametrize(
    ("kind", "weighted", "holes", "n_steps"),
    [
        ("labels", False, False, 3),
        ("labels", True, True, 3),
        ("allowed", False, True, 3),
        ("allowed", True, False, 3),
        ("allowed", True, True, 0),
    ],
)
def test_exactly_n_steps(model, kind, weighted, holes, n_steps):
    rng, X, weight, start = problem(model, 0, holes=holes)
    y = {"labels": some_labels, "allowed": some_allowed}[kind](rng, len(X), 3)
    check_steps(model, X, y, weight if weighted else None, start, n_steps)


@every_mixture
@pytest.mark.parametrize(("holes", "seed"), [(False, 0), (True, 1), (True, 2)])
def test_steps_of_all_sizes(model, holes, seed):
    rng = np.random.default_rng(seed + 50)
    D, K = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    rng, X, weight, start = problem(model, seed, 60, D, K, q=int(rng.integers(0, D + 1)), holes=holes)
    check_steps(model, X, some_allowed(rng, len(X), K), weight, start, 2)


@every_mixture
@complete_or_not
def test_labels_against_the_evidence(model, holes):
    # rows far from the only components that they may have, which without labels would have no part in them
    rng, X, weight, start = problem(model, 22, N=60, holes=holes)
    start = model.centred(start, model.dense(start)[1] + 40.0 * np.arange(3)[:, None])
    X = X + 40.0 * rng.integers(3, size=60)[:, None]
    check_steps(model, X, some_allowed(rng, 60, 3), weight, start, 2)


@every_mixture
def test_empty_rows_with_labels_count(model):
    # nothing of them is observed but their component, so they are kept: the weights feel them
    rng, X, weight, start = problem(model, 1, holes=True)
    y = some_labels(rng, len(X), 3)
    X[:4], y[:4] = np.nan, [0, 0, 1, 2]
    check_steps(model, X, y, weight, start, 2)
    allowed = oracle.allowed_components(y, 3)
    allowed[:2] = [True, False, True]
    check_steps(model, X, allowed, weight, start, 2)


@every_mixture
@pytest.mark.parametrize("kind", ["labels", "allowed"])
def test_empty_rows_without_labels_are_left_out(model, kind):
    rng, X, weight, start = problem(model, 2, holes=True)
    y = some_labels(rng, len(X), 3)
    X[:4], y[:4] = np.nan, -1
    y = y if kind == "labels" else oracle.allowed_components(y, 3)
    settings = {"max_iter": 5, "tol": 0.0}
    with_them = model.started(start, **settings).fit(X, y, sample_weight=weight)
    without = model.started(start, **settings).fit(X[4:], y[4:], sample_weight=weight[4:])
    assert_equal_fits(model, with_them, without, rtol=1e-12, atol=1e-12)


@every_mixture
@pytest.mark.parametrize("block_size", [1, 7])
def test_parts_of_the_rows_add_up(model, block_size):
    rng, X, weight, start = problem(model, 3, holes=True)
    y = some_allowed(rng, len(X), 3)
    whole, parts = (
        model.started(start, max_iter=3, block_size=size, **EXACT).fit(X, y, sample_weight=weight)
        for size in (None, block_size)
    )
    assert_equal_fits(model, whole, parts, rtol=1e-9, atol=1e-10)


# -- the likelihood never falls -----------------------------------------------------------------------------


@st.composite
def fits(draw):
    """A model with its settings, rows, labels or allowed components, and row weights."""
    model = BY_NAME[draw(st.sampled_from(sorted(BY_NAME)))]
    D, K = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    K = 1 if model.one_component else K
    N, q = draw(st.integers(max(3, 2 * K), 40)), draw(st.integers(0, D))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rows(rng, N, D, spread=draw(st.sampled_from([0.0, 2.0, 20.0])))
    X = X * 10.0 ** rng.uniform(-3, 3, size=D)
    X = with_holes(rng, X, 0.3) if draw(st.booleans()) else X
    if draw(st.booleans()):
        y = some_labels(rng, N, K, draw(st.sampled_from([0.05, 0.5, 1.0])))
    else:
        y = some_allowed(rng, N, K)
    weight = rng.uniform(0.1, 5.0, size=N) if draw(st.booleans()) else None
    chosen = {
        "init": draw(st.sampled_from(["kmeans", "k-means++", "random"])),
        "noise_floor": draw(st.sampled_from([1e-6, 1e-3])),
        "accelerate": draw(st.sampled_from([None, "squarem"])),
        "block_size": draw(st.sampled_from([None, 3])),
        "n_init": draw(st.integers(1, 2)),
        "random_state": draw(st.integers(0, 100)),
    }
    return model, K, q, chosen, X, y, weight


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(fits())
def test_likelihood_never_falls(fit):
    model, K, q, chosen, X, y, weight = fit
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X has constant features", UserWarning)
        chosen = {"prior": None, **chosen}
        estimator = model.unfitted(K, q, max_iter=20, tol=0.0, **chosen).fit(X, y, sample_weight=weight)
    theta = model.theta(estimator)
    for name, array in theta.items():
        assert np.all(np.isfinite(array)), name
    history = estimator.history_
    assert np.all(np.isfinite(history))
    fall = -np.min(np.diff(history), initial=0.0)
    # 32 roundings of quadratic forms, which are the larger the smaller the noise may be
    assert fall <= 32 * np.finfo(float).eps * X.shape[1] / chosen["noise_floor"] + 1e-9
    if np.all(theta["weights"] > 0) and chosen["noise_floor"] == 1e-3:  # within what the dense oracle can do
        allowed = y if y.ndim == 2 else oracle.allowed_components(y, K)
        expected = oracle.objective(model, X, theta, weight, allowed)
        assert history[-1] == pytest.approx(expected, rel=1e-5, abs=1e-5)


# -- forms of y that are the same ---------------------------------------------------------------------------


def fit_of(model, X, y=None, weight=None, **settings):
    chosen = {"max_iter": 8, "tol": 0.0, "n_init": 2, "random_state": 3, **settings}
    return model.unfitted(3, 1, **chosen).fit(X, y, sample_weight=weight)


@a_few_mixtures
@pytest.mark.parametrize("init", ["kmeans", "random"])
def test_one_allowed_component_is_a_label(model, init):
    rng, X, weight, _ = problem(model, 4, N=50, holes=True)
    y = some_labels(rng, len(X), 3)
    by_label = fit_of(model, X, y, weight, init=init)
    by_allowed = fit_of(model, X, oracle.allowed_components(y, 3), weight, init=init)
    assert_equal_fits(model, by_label, by_allowed)
    assert not np.allclose(by_label.history_[-1], fit_of(model, X, None, weight, init=init).history_[-1])


@pytest.mark.parametrize("model", [*FEW, FA, PRINCIPAL], ids=str)
@pytest.mark.parametrize(("holes", "init"), [(False, "kmeans"), (True, "kmeans"), (False, "random")])
def test_nothing_known_is_no_labels(model, holes, init):
    _, X, weight, start = problem(model, 5, N=50, holes=holes)
    K = len(start["weights"])
    plain = fit_of(model, X, None, weight, init=init)
    assert_equal_fits(model, plain, fit_of(model, X, np.full(50, -1), weight, init=init))
    assert_equal_fits(model, plain, fit_of(model, X, np.ones((50, K), dtype=bool), weight, init=init))


@pytest.mark.parametrize("model", [FA, PRINCIPAL], ids=str)
@complete_or_not
def test_one_component_needs_no_labels(model, holes):
    _, X, weight, _ = problem(model, 6, N=50, holes=holes)
    y = np.arange(50) % 2 - 1
    plain, labelled = fit_of(model, X, None, weight), fit_of(model, X, y, weight)
    assert_equal_fits(model, plain, labelled, rtol=1e-11, atol=1e-11)


@a_few_mixtures
def test_the_form_of_labels_does_not_matter(model):
    pandas = pytest.importorskip("pandas")
    rng, X, _, _ = problem(model, 7)
    y = some_labels(rng, len(X), 3)
    plain = fit_of(model, X, y)
    for other in (y.astype("int8"), y.astype("float32"), y.astype(float), y.tolist(), pandas.Series(y)):
        assert_equal_fits(model, plain, fit_of(model, X, other))


@a_few_mixtures
def test_all_labels_known_need_no_minus_one(model):
    rng, X, _, _ = problem(model, 7)
    y = some_labels(rng, len(X), 3, known=1.0)
    assert -1 not in y
    allowed = y[:, None] == np.arange(3)
    by_label = fit_of(model, X, y)
    assert_equal_fits(model, by_label, fit_of(model, X, allowed))
    assert_equal_fits(model, by_label, fit_of(model, X, allowed.tolist()))


# -- rows and weights ---------------------------------------------------------------------------------------


@a_few_mixtures
@pytest.mark.parametrize(
    ("kind", "holes", "init"),
    [("labels", False, "kmeans"), ("labels", True, "k-means++"), ("allowed", True, "kmeans")],
)
def test_weight_two_is_a_row_twice(model, kind, holes, init):
    rng, X, _, _ = problem(model, 8, N=50, holes=holes)
    y = {"labels": some_labels, "allowed": some_allowed}[kind](rng, len(X), 3)
    copies = rng.integers(1, 4, size=len(X))
    by_weight = fit_of(model, X, y, copies.astype(float), init=init)
    by_copies = fit_of(model, *(np.repeat(array, copies, axis=0) for array in (X, y)), init=init)
    assert_equal_fits(model, by_weight, by_copies, rtol=1e-6, atol=1e-8)


@a_few_mixtures
@pytest.mark.parametrize("kind", ["labels", "allowed"])
def test_weight_zero_is_a_row_absent(model, kind):
    rng, X, weight, _ = problem(model, 9, N=50, holes=True)
    y = {"labels": some_labels, "allowed": some_allowed}[kind](rng, len(X), 3)
    weight[::5] = 0.0
    kept = weight > 0
    with_zeros, without = fit_of(model, X, y, weight), fit_of(model, X[kept], y[kept], weight[kept])
    assert_equal_fits(model, with_zeros, without)


@a_few_mixtures
@pytest.mark.parametrize("init", ["kmeans", "k-means++"])
def test_order_of_rows_does_not_matter(model, init):
    rng, X, weight, _ = problem(model, 10, N=50, holes=True)
    y, order = some_labels(rng, len(X), 3), rng.permutation(50)
    forth = fit_of(model, X, y, weight, init=init)
    back = fit_of(model, X[order], y[order], weight[order], init=init)
    assert_equal_fits(model, forth, back, rtol=1e-6, atol=1e-8)


@a_few_mixtures
def test_equal_rows_may_have_different_labels(model):
    rng, X, weight, _ = problem(model, 23, N=50, holes=True)
    X[25:] = X[:25]
    y, order = some_labels(rng, 50, 3), rng.permutation(50)
    y[:10], y[25:35] = 0, 1
    forth = fit_of(model, X, y, weight, init="k-means++")
    back = fit_of(model, X[order], y[order], weight[order], init="k-means++")
    assert_equal_fits(model, forth, back, rtol=1e-6, atol=1e-8)


@every_mixture
def test_labels_are_numbers_of_components(model):
    rng, X, weight, start = problem(model, 11, holes=True)
    y, order = some_labels(rng, len(X), 3), np.array([2, 0, 1])
    moved = model.picked(start, order)  # component order[k] becomes k
    renamed = np.where(y < 0, -1, np.argsort(order)[y])
    here = model.started(start, max_iter=3, **EXACT).fit(X, y, sample_weight=weight)
    there = model.started(moved, max_iter=3, **EXACT).fit(X, renamed, sample_weight=weight)
    assert_same(model.theta(there), model.picked(model.theta(here), order), rtol=1e-9)


# -- what labels are for ------------------------------------------------------------------------------------


def clusters(seed, N=150, D=4, K=3):
    """Round clusters far apart, and which one a row is from."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(N) % K)
    # the bases of a simplex: all at the same distance, so no start is better than another
    X = 25.0 * np.eye(D)[labels] + rng.normal(size=(N, D))
    return rng, X, labels


def factors_for_clusters(model):
    """As many factors as the model needs to have a component at each of these clusters."""
    return 3 if model.common_loadings else 1


def few_of(rng, labels, each, classes):
    """Labels of which only some of each of these classes are known."""
    y = np.full(len(labels), -1)
    for k in classes:
        known = rng.choice(np.flatnonzero(labels == k), size=each, replace=False)
        y[known] = k
    return y


@every_mixture
@complete_or_not
@pytest.mark.parametrize("init", ["kmeans", "k-means++"])
@pytest.mark.parametrize("seed", [0])
def test_components_have_the_numbers_of_the_labels(model, holes, init, seed):
    rng, X, labels = clusters(seed)
    given = with_holes(rng, X, 0.1) if holes else X
    y = few_of(rng, labels, 2, range(3))
    # a single start, which has to be right from the beginning: EM alone would not exchange components
    settings = {"n_init": 1, "max_iter": 20, "tol": 0.0, "random_state": seed}
    fitted = model.unfitted(3, factors_for_clusters(model), init=init, **settings).fit(given, y)
    np.testing.assert_array_equal(fitted.predict(X), labels)
    np.testing.assert_array_equal(fitted.predict(given)[y >= 0], y[y >= 0])


@a_few_mixtures
@pytest.mark.parametrize("classes", [[2], [1, 2]], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_some_components_without_labels(model, classes, seed):
    rng, X, labels = clusters(seed)
    y = few_of(rng, labels, 3, classes)
    settings = {"random_state": seed, "n_init": 2, "max_iter": 20, "tol": 0.0}
    fitted = model.unfitted(3, factors_for_clusters(model), **settings).fit(X, y)
    found = fitted.predict(X)
    for k in classes:
        np.testing.assert_array_equal(found == k, labels == k)


@pytest.mark.parametrize("estimator", [GaussianMixture(2), MFA(2, 1)], ids=lambda e: type(e).__name__)
def test_labels_part_what_overlaps(estimator):
    # one long cloud in two halves that only labels tell apart
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    X = rng.normal(size=(200, 3)) * [6.0, 1.0, 1.0] + np.outer(labels, [0.0, 2.5, 0.0])
    y = few_of(rng, labels, 20, range(2))
    estimator.set_params(random_state=0, tol=1e-5)
    all_known, some_known, none_known = (
        np.mean(estimator.fit(X, given).predict(X) == labels) for given in (labels, y, None)
    )
    assert some_known > all_known - 0.05
    assert some_known > max(none_known, 1 - none_known) + 0.05


# -- all labels known ---------------------------------------------------------------------------------------


@every_separate_mixture
@weighted_or_not
@complete_or_not
def test_all_labels_known_are_separate_runs(model, weighted, holes):
    rng, X, weight, start = problem(model, 12, N=60, holes=holes)
    weight = weight if weighted else np.ones(len(X))
    y = rng.permutation(np.arange(60) % 3)
    together = model.started(start, max_iter=4, **EXACT).fit(X, y, sample_weight=weight)
    theta = turned_to(model.theta(together))
    for k in range(3):
        own = y == k
        alone = {name: array[k : k + 1] for name, array in start.items()}
        alone["weights"] = np.ones(1)
        apart = model.started(alone, max_iter=4, **EXACT).fit(X[own], sample_weight=weight[own])
        expected = turned_to(model.theta(apart))
        assert theta["weights"][k] == pytest.approx(weight[own].sum() / weight.sum(), rel=1e-12)
        for name in expected.keys() - {"weights"}:
            np.testing.assert_allclose(theta[name][k], expected[name][0], rtol=1e-8, atol=1e-9, err_msg=name)


@every_separate_mixture
@weighted_or_not
def test_all_labels_known_are_separate_fits(model, weighted):
    rng, _, labels = clusters(6)
    axes = rng.normal(size=(3, 4, 1))
    X = rng.normal(size=(3, 4))[labels] + 3.0 * np.einsum(
        "ndq,nq->nd", axes[labels], rng.normal(size=(150, 1))
    )
    X = X + 0.5 * rng.normal(size=X.shape)
    weight = rng.uniform(0.2, 3.0, size=150) if weighted else np.ones(150)
    settings = {
        "noise_floor": 0.0,
        "prior": None,
        "tol": 1e-13,
        "max_iter": 5000,
        "n_init": 1,
        "accelerate": "squarem",
    }
    together = model.unfitted(3, 1, **settings).fit(X, labels, sample_weight=weight)
    weights, means, covs = model.dense(model.theta(together))
    for k in range(3):
        own = labels == k
        apart = model.unfitted(1, 1, **settings).fit(X[own], sample_weight=weight[own])
        _, own_mean, own_cov = model.dense(model.theta(apart))
        assert weights[k] == pytest.approx(weight[own].sum() / weight.sum(), rel=1e-12)
        np.testing.assert_allclose(means[k], own_mean[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(covs[k], own_cov[0], rtol=1e-4, atol=1e-4 * np.trace(own_cov[0]))


def test_all_labels_known_of_one_tied_covariance():
    rng, X, weight, _ = problem(BY_NAME["GMM-tied"], 13, N=60)
    y = rng.permutation(np.arange(60) % 3)
    fitted = GaussianMixture(3, covariance_type="tied", prior=None).fit(X, y, sample_weight=weight)
    means = np.array([np.average(X[y == k], axis=0, weights=weight[y == k]) for k in range(3)])
    np.testing.assert_allclose(fitted.means_, means, rtol=1e-8)
    np.testing.assert_allclose(fitted.covariances_, np.cov((X - means[y]).T, bias=True, aweights=weight))


@every_mixture
def test_a_component_that_no_row_may_have_is_dead(model):
    rng, X, _, start = problem(model, 14, N=60)
    allowed = np.array([True, False, True]) & some_allowed(rng, 60, 3)
    allowed[~allowed.any(axis=1), 2] = True
    fitted = model.started(start, max_iter=3, tol=0.0).fit(X, allowed)
    assert fitted.weights_[1] == 0
    assert all(np.all(np.isfinite(array)) for array in model.theta(fitted).values())
    assert np.all(np.diff(fitted.history_) >= -1e-12)


# -- what is turned away ------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("wrong", ["K", "far", "below"])
def test_labels_outside_are_an_error(model, wrong):
    _, X, _, start = problem(model, 15)
    K = len(start["weights"])
    y = np.full(len(X), -1)
    y[3] = {"K": K, "far": 99, "below": -2}[wrong]
    for labels in (y, y.astype(float)):
        with pytest.raises(ValueError, match=rf"\by\b(.|\n)*\b{K - 1}\b") as error:
            model.unfitted(3, 1).fit(X, labels)
        assert re.search(r"\b0\b|-1", str(error.value))


@every_model
@pytest.mark.parametrize("kind", ["out of range", "negative", "fractions", "strings", "list of strings"])
def test_other_targets_are_ignored_with_a_warning(model, kind):
    rng, X, weight, start = problem(model, 16)
    K = len(start["weights"])
    y = {
        "out of range": np.arange(len(X)) % (K + 1),
        "negative": -2 - np.arange(len(X)) % K,
        "fractions": rng.normal(size=len(X)),
        "strings": np.array(["cat", "dog"])[np.arange(len(X)) % 2],
        "list of strings": ["cat", "dog"] * (len(X) // 2),
    }[kind]
    plain = model.started(start, max_iter=3, tol=0.0).fit(X, sample_weight=weight)
    estimator = model.started(start, max_iter=3, tol=0.0)
    if model.one_component:
        estimator.fit(X, y, sample_weight=weight)  # labels could say nothing anyway, so there is no warning
    else:
        with pytest.warns(UserWarning, match=r"\by\b.*ignored") as caught:
            estimator.fit(X, y, sample_weight=weight)
        assert caught[0].filename == __file__  # it points here, not into the library
    assert_equal_fits(model, plain, estimator)


@every_model
def test_labels_that_fit_give_no_warning(model):
    rng, X, _, start = problem(model, 17)
    y = some_labels(rng, len(X), len(start["weights"]), known=1.0)
    model.started(start, max_iter=1, tol=0.0).fit(X, y)  # warnings are errors


@every_model
@pytest.mark.parametrize("form", ["labels", "allowed", "columns"])
def test_y_of_another_shape_is_an_error(model, form):
    _, X, _, start = problem(model, 18)
    N, K = len(X), len(start["weights"])
    y = {
        "labels": np.zeros(N - 1, dtype=int),
        "allowed": np.ones((N - 1, K), dtype=bool),
        "columns": np.ones((N, K + 1), dtype=bool),
    }[form]
    with pytest.raises(ValueError, match=r"\by\b"):
        model.unfitted(3, 1).fit(X, y)


@every_model
def test_a_row_that_allows_nothing_is_an_error(model):
    _, X, _, start = problem(model, 19)
    allowed = np.ones((len(X), len(start["weights"])), dtype=bool)
    allowed[5] = False
    with pytest.raises(ValueError, match=r"\by\b"):
        model.unfitted(3, 1).fit(X, allowed)


@every_model
@pytest.mark.parametrize("others", [0.0, -1.0])
def test_nan_in_y_is_an_error_that_says_what_unknown_is(model, others):
    _, X, _, _ = problem(model, 20)
    y = np.full(len(X), others)
    y[4] = np.nan
    with pytest.raises(ValueError, match=r"\by\b(.|\n)*-1"):
        model.unfitted(3, 1).fit(X, y)


@every_model
def test_a_failed_fit_leaves_the_last_one(model):
    _, X, _, start = problem(model, 21)
    estimator = model.started(start, max_iter=2, tol=0.0).fit(X)
    before = model.theta(estimator)
    y = np.full(len(X), -1)
    y[0] = 99
    with pytest.raises(ValueError, match=r"\by\b"):
        estimator.fit(X, y)
    assert_same(model.theta(estimator), before, rtol=0, atol=0)
