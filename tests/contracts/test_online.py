"""Stepwise EM: batches that come one after the other, and mini-batches of a fit."""

import copy
import pickle
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import latently
from latently.core.data import Data
from latently.core.sources import chunks
from latently.mixture import MFA, GaussianMixture
from tests.contracts.models import BY_NAME, assert_same, rows

N, D = 240, 4
MODELS = [
    BY_NAME[name]
    for name in ("GMM-full", "GMM-diag", "MFA-diagonal", "MPPCA-shared", "FactorAnalysis", "MCFA")
]
every_model = pytest.mark.parametrize("model", MODELS, ids=str)
every_mixture = pytest.mark.parametrize("model", [m for m in MODELS if not m.one_component], ids=str)
PLAIN = {"accelerate": None, "tol": 0.0}  # max_iter=n takes exactly n EM steps


def problem(model):
    """Rows that the model made, their components, and starting values not far from the truth."""
    return _problem(model.name)


@cache
def _problem(name, seed=0):
    model = BY_NAME[name]
    rng = np.random.default_rng(seed)
    truth = model.example(rng, D, 3, 1, spread=6.0)
    truth["weights"] = np.full(len(truth["weights"]), 1 / len(truth["weights"]))
    X, labels = model.known(truth).sample(N, random_state=seed)
    start = model.narrower(truth, 3.0)
    means = model.dense(start)[1]
    return X, labels, model.centred(start, means + rng.normal(size=means.shape))


def everything(model):
    """The rows with holes, labels for some of them, and weights of which some are zero."""
    X, labels, start = problem(model)
    rng = np.random.default_rng(1)
    X = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    y = None if model.one_component else np.where(rng.random(N) < 0.2, labels, -1)
    return X, y, rng.choice([0.0, 0.5, 1.0, 3.0], size=N), start


def given(model, known):
    """X, y, weight, start: the rows alone, or everything."""
    X, _, start = problem(model)
    return everything(model) if known == "everything" else (X, None, None, start)


@cache
def optimum(name, known):
    """The log-likelihood of the starting values, and of where EM leads from there."""
    X, y, weight, start = given(BY_NAME[name], known)
    model = BY_NAME[name].started(start, max_iter=300, tol=1e-9, accelerate="squarem")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # near enough
        history = model.fit(X, y, sample_weight=weight).history_
    return history[0], history[-1]


CASES = [(model, "rows") for model in MODELS] + [(MODELS[0], "everything"), (MODELS[2], "everything")]
every_case = pytest.mark.parametrize(("model", "known"), CASES, ids=[f"{m}-{known}" for m, known in CASES])


def batches_of(order, size, *arrays):
    """All rows in batches: X, y, weight of each, None where there is none."""
    for rows_ in np.array_split(order, len(order) // size):
        yield [None if array is None else array[rows_] for array in arrays]


def fitted_attributes(estimator):
    return {name: value for name, value in vars(estimator).items() if name.endswith("_")}


def assert_same_fit(actual, expected, tolerance=0.0):
    actual, expected = fitted_attributes(actual), fitted_attributes(expected)
    assert actual.keys() == expected.keys() and len(actual) >= 8
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


def assert_unchanged(estimator, before):
    assert vars(estimator).keys() == before.keys()
    assert all(vars(estimator)[name] is value for name, value in before.items())


# -- a batch that is all the data ----------------------------------------------------------------------------


@pytest.mark.parametrize("known", ["rows", "everything"])
@every_model
def test_without_memory_each_batch_is_an_em_step(model, known):
    X, y, weight, start = given(model, known)
    online = model.started(start, learning_decay=0.0)
    for n in range(1, 5):
        online.partial_fit(X, y, sample_weight=weight)
        steps = model.started(start, max_iter=n, **PLAIN).fit(X, y, sample_weight=weight)
        assert_same(model.theta(online), model.theta(steps), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(online.history_, steps.history_[:n], rtol=1e-10)
        assert (online.n_iter_, online.n_passes_, len(online.history_)) == (n, n, n)
        assert not online.converged_


@pytest.mark.parametrize("decay", [0.0, 0.7, 1.0])
@every_model
def test_the_first_batch_is_the_oracle_s_em_step(model, decay):
    """Whatever the learning rate: there is nothing to be forgotten yet."""
    X, _, start = problem(model)
    online = model.started(start, learning_decay=decay, noise_floor=0.0).partial_fit(X)
    assert_same(model.theta(online), model.normal_form(model.step(X, start)))


def test_the_first_batch_finds_its_own_starting_values():
    X = rows(np.random.default_rng(0), N, D)
    for model in MODELS[::2]:
        online = model.unfitted(3, 1, n_init=2, random_state=4, learning_decay=0.0, accelerate=None)
        online.partial_fit(X)
        fit = model.unfitted(3, 1, n_init=2, random_state=4, max_iter=1, **PLAIN).fit(X)
        assert_same(model.theta(online), model.theta(fit))


def test_ppca_goes_on_by_em():
    model = BY_NAME["PPCA"]
    X = problem(BY_NAME["FactorAnalysis"])[0]
    fit = model.unfitted(q=2).fit(X)
    online = model.unfitted(q=2, learning_decay=0.0)
    for _ in range(300):
        online.partial_fit(X)
    np.testing.assert_allclose(online.covariance_, fit.covariance_, rtol=1e-5, atol=1e-6)
    assert np.diff(online.history_).min() > -1e-12


# -- what batches add up to ----------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize(("decay", "offset"), [(0.6, 10.0), (0.7, 1.0), (1.0, 3.0), (0.0, 5.0)])
def test_shares_of_the_batches(decay, offset, weighted):
    """One Gaussian is made of the blended first and second moments, in closed form."""
    rng = np.random.default_rng(0)
    model = GaussianMixture(1, learning_decay=decay, learning_offset=offset, noise_floor=0.0, prior=None)
    mean, square = np.zeros(D), np.zeros((D, D))
    for t, n in enumerate([50, 20, 80, 30]):
        X = rng.normal(loc=t, scale=1 + t, size=(n, D))
        weight = rng.uniform(0.2, 5.0, size=n) if weighted else np.ones(n)
        model.partial_fit(X, sample_weight=weight if weighted else None)
        first = np.average(X, axis=0, weights=weight)
        second = (X * weight[:, None]).T @ X / weight.sum()
        share = 1.0 if t == 0 else (t + offset) ** -decay
        mean = (1 - share) * mean + share * first
        square = (1 - share) * square + share * second
        np.testing.assert_allclose(model.means_[0], mean, rtol=1e-9)
        np.testing.assert_allclose(model.covariances_[0], square - np.outer(mean, mean), rtol=1e-8)


@pytest.mark.parametrize("name", ["GMM-full", "GMM-tied", "GMM-diag", "GMM-spherical"])
def test_labelled_batches_with_equal_shares_are_one_fit(name):
    """With decay and offset 1 the share of batch t is 1 / (t + 1), so nothing is forgotten."""
    model = BY_NAME[name]
    X, labels, start = problem(model)
    online = model.started(start, learning_decay=1.0, learning_offset=1.0, noise_floor=0.0)
    for X_, y in batches_of(np.random.default_rng(0).permutation(N), 40, X, labels):
        online.partial_fit(X_, y)
    fit = model.started(start, noise_floor=0.0).fit(X, labels)
    assert_same(model.theta(online), model.theta(fit))


@every_case
def test_many_passes_lead_where_em_leads(model, known):
    X, y, weight, start = given(model, known)
    first, best = optimum(model.name, known)

    def gap(decay, n_passes):
        rng = np.random.default_rng(0)
        online = model.started(start, learning_decay=decay)
        for _ in range(n_passes):
            for batch in batches_of(rng.permutation(N), 60, X, y, weight):
                online.partial_fit(*batch)
        # a fit of no steps tells the likelihood, labels and all
        here = model.started(model.theta(online), max_iter=0, **PLAIN).fit(X, y, sample_weight=weight)
        return (best - here.history_[0]) / (best - first)

    quick, longer = gap(0.6, 4), gap(0.6, 20)
    assert -1e-6 < longer < 0.5 * quick < 0.1
    assert longer < 0.02
    assert gap(1.0, 12) < gap(1.0, 4) < 1.0  # slowly, but surely


# -- holes, weights and labels -------------------------------------------------------------------------------


@every_model
def test_weight_two_is_a_row_twice(model):
    X, y, _, start = everything(model)
    twice = np.arange(N) % 3 == 0
    weighted, repeated = model.started(start), model.started(start)
    for batch in np.array_split(np.arange(N), 4):
        copies = np.repeat(batch, 1 + twice[batch])
        weighted.partial_fit(X[batch], None if y is None else y[batch], sample_weight=1.0 + twice[batch])
        repeated.partial_fit(X[copies], None if y is None else y[copies])
    assert_same_fit(weighted, repeated, 1e-8)


@every_model
def test_weight_zero_is_no_row(model):
    X, y, weight, start = everything(model)
    kept = weight > 0
    with_zeros, without = model.started(start), model.started(start)
    for X_, y_, weight_, kept_ in batches_of(np.arange(N), 60, X, y, weight, kept):
        with_zeros.partial_fit(X_, y_, sample_weight=weight_)
        without.partial_fit(X_[kept_], None if y_ is None else y_[kept_], sample_weight=weight_[kept_])
    assert_same_fit(with_zeros, without, 1e-9)


def test_a_batch_that_says_nothing_is_passed_over():
    X, _, start = problem(MODELS[2])
    online = MODELS[2].started(start).partial_fit(X)
    before = copy.deepcopy(online)
    online.partial_fit(np.full((5, D), np.nan))
    assert_same_fit(online, before)
    assert_same_fit(online.partial_fit(X[:50]), before.partial_fit(X[:50]))


@every_mixture
def test_labels_are_kept_to(model):
    """Labelled rows decide which component is which, in the first batch and later."""
    X, labels, _ = problem(model)
    turned = (labels + 1) % 3
    online = model.unfitted(3, 1, random_state=0)
    for X_, y in batches_of(np.arange(N), 60, X, turned):
        online.partial_fit(X_, y)
    assert np.mean(online.predict(X) == turned) > 0.9
    shares = np.bincount(turned, minlength=3) / N
    np.testing.assert_allclose(online.weights_, shares, atol=0.1)


@every_mixture
def test_labels_may_come_late(model):
    """A batch without labels, then one whose labels say that all is of component 0."""
    X, _, start = problem(model)
    online = model.started(start, learning_decay=0.0).partial_fit(X)
    assert online.weights_[0] < 0.9
    online.partial_fit(X, np.zeros(N, int))
    np.testing.assert_allclose(online.weights_, [1.0, 0.0, 0.0], atol=1e-12)


@every_model
def test_history_is_the_likelihood_before_each_batch(model):
    X, _, start = problem(model)
    weight = np.random.default_rng(0).uniform(0.1, 3.0, size=N)
    online = model.started(start)
    expected = []
    for X_, weight_ in batches_of(np.arange(N), 60, X, weight):
        known = online if expected else model.known(start)
        expected.append(known.score(X_, sample_weight=weight_))
        online.partial_fit(X_, sample_weight=weight_)
    np.testing.assert_allclose(online.history_, expected, rtol=1e-10)


def test_history_is_the_likelihood_whatever_is_missing():
    X = problem(MODELS[2])[0] * [1.0, 30.0, 0.01, 1.0]
    online = MFA(3, 1, random_state=0, prior=None).partial_fit(X)
    holed = X.copy()
    holed[:200, 1] = np.nan
    expected = online.score(holed)
    online.partial_fit(holed)
    np.testing.assert_allclose(online.history_[-1], expected, rtol=1e-10)


# -- batches in files ----------------------------------------------------------------------------------------


def test_batches_may_be_sources(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 700)
    model = MODELS[2]
    X, y, weight, start = everything(model)
    here, there = model.started(start), model.started(start)
    for X_, y_, weight_ in batches_of(np.arange(N), 80, X, y, weight):
        np.save(tmp_path / "x.npy", X_)
        here.partial_fit(X_, y_, sample_weight=weight_)
        there.partial_fit(tmp_path / "x.npy", y_, sample_weight=weight_)
    assert_same_fit(there, here, 1e-9)


def test_names_of_features_are_those_of_the_first_batch(tmp_path):
    X = pd.DataFrame(problem(MODELS[0])[0], columns=list("abcd"))
    X.to_csv(tmp_path / "x.csv", index=False)
    for first in (X, tmp_path / "x.csv"):
        online = GaussianMixture(2, random_state=0).partial_fit(first)
        assert online.feature_names_in_.tolist() == list("abcd")
        online.partial_fit(X).partial_fit(tmp_path / "x.csv")
        before = vars(online).copy()
        for other in (X[list("badc")], [X[list("badc")]]):
            with pytest.raises(ValueError, match="feature names"):
                online.partial_fit(other)
            assert_unchanged(online, before)


# -- before, between and after -------------------------------------------------------------------------------


def test_a_first_batch_that_is_too_small():
    X = problem(MODELS[0])[0]
    online = MFA(5, 1, random_state=0)
    before = vars(online).copy()
    for first in (X[:4], [X[:4]]):
        with pytest.raises(ValueError, match="n_components=5 must not be larger than n_samples=4"):
            online.partial_fit(first)
        assert_unchanged(online, before)
    assert online.partial_fit(X).n_iter_ == 1


def test_later_batches_may_be_of_one_row():
    X = problem(MODELS[0])[0]
    online = GaussianMixture(3, random_state=0, learning_decay=1.0, learning_offset=N).partial_fit(X)
    score = online.score(X)
    for row in X[:20]:
        online.partial_fit(row[None])
    assert online.n_iter_ == 21
    assert abs(online.score(X) - score) < 0.1


@pytest.mark.parametrize("d", [D - 1, D + 1])
@every_model
def test_another_number_of_features(model, d):
    X, _, start = problem(model)
    online = model.started(start).partial_fit(X)
    before = vars(online).copy()
    for other in (np.zeros((50, d)), [np.zeros((50, d))]):
        with pytest.raises(ValueError, match=rf"X has {d} features, but \w+ is expecting {D}"):
            online.partial_fit(other)
        assert_unchanged(online, before)


@every_model
def test_a_fit_after_batches_begins_anew(model):
    X = problem(model)[0]
    model_ = model.unfitted(3, 1, random_state=0, tol=1e-3, n_init=1)
    model_.partial_fit(X[:100, :3] * 7).partial_fit(X[100:, :3])  # not even the features are the same
    fresh = model.unfitted(3, 1, random_state=0, tol=1e-3, n_init=1).fit(X)
    assert_same_fit(model_.fit(X), fresh)
    assert_same_fit(model_.partial_fit(X[:80]), fresh.partial_fit(X[:80]))


@pytest.mark.parametrize("how", ["fitted", "loaded", "given"])
@every_model
def test_batches_after_a_fit_go_on_from_it(model, how, tmp_path):
    X, _, start = problem(model)
    fit = model.started(start, max_iter=1000, tol=1e-6, n_init=1).fit(X)
    theta, n_iter = model.theta(fit), fit.n_iter_
    if how == "loaded":
        fit.save(tmp_path / "model")
        fit = latently.load(tmp_path / "model")
    if how == "given":
        fit, n_iter = model.known(theta), 0
    history = fit.history_
    fit.partial_fit(X)
    assert_same(model.theta(fit), theta, rtol=0.02, atol=0.02)  # little to be gained
    assert fit.n_iter_ == n_iter + 1
    np.testing.assert_array_equal(fit.history_[:-1], history)
    np.testing.assert_allclose(fit.history_[-1], model.known(theta).score(X), rtol=1e-10)


@every_model
def test_a_fit_is_not_forgotten_for_a_few_rows(model):
    X, _, start = problem(model)
    fit = model.started(start, max_iter=20, **PLAIN).fit(X)
    score = fit.score(X)
    for batch in (X[:30], X[30:36], X[36:37]):
        fit.partial_fit(batch)
        assert fit.score(X) > score - 0.5


@pytest.mark.parametrize("n", [1, 2])
def test_a_fit_goes_on_with_a_row_or_two(n):
    X, _, start = problem(MODELS[0])
    fit = MODELS[0].started(start, max_iter=20, **PLAIN).fit(X)
    score = fit.score(X)
    assert fit.partial_fit(X[:n]).score(X) > score - 0.5


@pytest.mark.parametrize("kept", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@every_model
def test_a_stream_can_be_put_away_and_taken_up(model, kept):
    X, y, weight, start = everything(model)
    through, paused = model.started(start), model.started(start)
    for batch in batches_of(np.arange(N), 40, X, y, weight):
        through.partial_fit(*batch)
        paused = kept(paused.partial_fit(*batch))
    assert_same_fit(paused, through)


def test_a_clone_knows_nothing_of_the_stream():
    X = problem(MODELS[0])[0]
    online = GaussianMixture(2, random_state=0).partial_fit(X)
    assert_same_fit(clone(online).partial_fit(X[:50]), GaussianMixture(2, random_state=0).partial_fit(X[:50]))


def test_partial_fit_returns_the_estimator_and_leaves_its_input_alone():
    X, y, weight, start = everything(MODELS[2])
    copies = [array.copy() for array in (X, y, weight)]
    online = MODELS[2].started(start)
    assert online.partial_fit(X, y, sample_weight=weight) is online
    means = online.means_
    kept = means.copy()
    online.partial_fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(means, kept)  # what was handed out is not changed behind one's back
    for array, before in zip((X, y, weight), copies, strict=True):
        np.testing.assert_array_equal(array, before)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [np.inf, 1e200])
def test_a_batch_with_values_too_large_is_refused(value):
    X = problem(MODELS[0])[0]
    bad = X.copy()
    bad[3, 1] = value
    for estimator in (GaussianMixture(2, random_state=0), MFA(2, 1, random_state=0)):
        online = estimator.partial_fit(X)
        with pytest.raises(ValueError, match=r"infinity|overflow|underflows"):
            online.partial_fit([bad])


# -- mini-batches of a fit -----------------------------------------------------------------------------------


@every_case
def test_mini_batches_end_near_the_optimum(model, known):
    X, y, weight, start = given(model, known)
    settings = {"batch_size": 60, "max_iter": 20, "tol": 0.0, "learning_decay": 0.6, "random_state": 0}
    fit = model.started(start, **settings).fit(X, y, sample_weight=weight)
    assert (fit.n_iter_, fit.n_passes_, fit.converged_) == (20, 21, False)
    assert len(fit.history_) == 21
    if y is None:
        np.testing.assert_allclose(fit.history_[-1], fit.score(X, sample_weight=weight), rtol=1e-12)
    first, best = optimum(model.name, known)
    assert -1e-6 < best - fit.history_[-1] < 0.02 * (best - first)
    again = model.started(start, **settings).fit(X, y, sample_weight=weight)
    assert_same_fit(again, fit)
    other = model.started(start, **settings | {"random_state": 1}).fit(X, y, sample_weight=weight)
    assert not np.array_equal(other.history_, fit.history_)


@every_model
def test_one_batch_of_all_rows_without_memory_is_em(model):
    X, y, weight, start = everything(model)
    for size in (N, N + 1, 10**9):
        online = model.started(start, batch_size=size, learning_decay=0.0, max_iter=5, tol=0.0)
        steps = model.started(start, max_iter=5, **PLAIN)
        online.fit(X, y, sample_weight=weight)
        steps.fit(X, y, sample_weight=weight)
        assert_same(model.theta(online), model.theta(steps))
        np.testing.assert_allclose(online.history_, steps.history_, rtol=1e-10)


def test_a_pass_sees_every_row_once():
    """One Gaussian whose batches have equal shares has the moments of all rows after a pass."""
    X = problem(MODELS[0])[0]
    options = {
        "learning_decay": 1.0,
        "learning_offset": 1.0,
        "noise_floor": 0.0,
        "prior": None,
        "max_iter": 1,
        "tol": 0.0,
    }
    for size in (8, 60, N):
        fit = GaussianMixture(1, batch_size=size, **options).fit(X)
        np.testing.assert_allclose(fit.means_[0], X.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(fit.covariances_[0], np.cov(X.T, bias=True), rtol=1e-9)


@pytest.mark.parametrize("size", [1, 7, 100, 1000])
def test_batches_are_all_rows_in_another_order_each_time(size):
    X = np.arange(2.0 * N).reshape(N, 2)
    data = Data(X, weight=X[:, 0] + 0.5, allowed=X > 100)
    orders = []
    for seed in (0, 1):
        batches = list(data.batches(size, np.random.default_rng(seed)))
        assert len(batches) == -(-N // size)
        assert all(len(batch) <= size for batch in batches)
        joined = np.concatenate([batch.X for batch in batches])
        np.testing.assert_array_equal(np.concatenate([batch.weight for batch in batches]), joined[:, 0] + 0.5)
        np.testing.assert_array_equal(np.concatenate([batch.allowed for batch in batches]), joined > 100)
        np.testing.assert_array_equal(joined[np.argsort(joined[:, 0])], X)
        orders.append(joined[:, 0])
    assert not np.array_equal(*orders)


def test_mini_batches_stop_when_nothing_moves():
    X, _, start = problem(MODELS[0])
    seen = []
    fit = MODELS[0].started(start, batch_size=60, tol=1e-3, random_state=0, callbacks=[seen.append]).fit(X)
    assert fit.converged_ and fit.n_iter_ < 200
    assert [iteration.number for iteration in seen] == list(range(fit.n_iter_))
    assert len(fit.history_) == fit.n_iter_ + 1
    np.testing.assert_array_equal([iteration.objective for iteration in seen], fit.history_[:-1])


def test_mini_batches_that_do_not_settle_say_so():
    X, _, start = problem(MODELS[0])
    fit = MODELS[0].started(start, batch_size=60, tol=1e-9, max_iter=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=3"):
        fit.fit(X)
    assert not fit.converged_ and fit.n_iter_ == 3


def test_a_callback_that_ends_a_fit_does_not_make_it_converge():
    X, _, start = problem(MODELS[0])
    for batch_size in (None, 60):
        fit = MODELS[0].started(
            start, batch_size=batch_size, tol=0.0, callbacks=[lambda iteration: iteration.number == 2]
        )
        fit.fit(X)
        assert not fit.converged_


def test_mini_batches_of_sources(tmp_path, monkeypatch):
    X, y, weight, start = everything(MODELS[2])
    np.save(tmp_path / "x.npy", X)
    settings = {"batch_size": 40, "max_iter": 10, "tol": 0.0, "random_state": 0}
    here = MODELS[2].started(start, **settings).fit(X, y, sample_weight=weight)
    there = MODELS[2].started(start, **settings).fit(tmp_path / "x.npy", y, sample_weight=weight)
    assert_same_fit(there, here)  # all in one chunk
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 80 * D * 8)  # three chunks, whose rows stay together
    for form in (tmp_path / "x.npy", [X[:100], X[100:]], lambda: iter([X])):
        chunked = MODELS[2].started(start, **settings).fit(form, y, sample_weight=weight)
        assert not np.array_equal(chunked.history_, here.history_)
        assert abs(chunked.history_[-1] - here.history_[-1]) < 0.02


def test_a_chunk_of_a_single_row_counts_as_one(monkeypatch):
    X = problem(MODELS[0])[0]
    monkeypatch.setattr(chunks, "CHUNK_BYTES", (N - 1) * D * 8)
    settings = {"batch_size": 60, "max_iter": 20, "tol": 0.0, "random_state": 0}
    here = GaussianMixture(1, **settings).fit(X)
    there = GaussianMixture(1, **settings).fit([X])
    assert abs(there.score(X) - here.score(X)) < 0.003


def test_mini_batches_weigh_their_rows():
    """A tenth of the rows have nine tenths of the weight, and lie apart."""
    X = problem(MODELS[0])[0].copy()
    X[: N // 10] += 20
    weight = np.where(np.arange(N) < N // 10, 81.0, 1.0)
    fit = GaussianMixture(1, batch_size=10, max_iter=30, tol=0.0, random_state=0).fit(X, sample_weight=weight)
    optimum = GaussianMixture(1).fit(X, sample_weight=weight)
    gap = optimum.score(X, sample_weight=weight) - fit.score(X, sample_weight=weight)
    assert gap < 0.02


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("batch_size", -3),
        ("batch_size", 2.5),
        ("batch_size", True),
        ("batch_size", "100"),
        ("learning_decay", -0.1),
        ("learning_decay", 1.1),
        ("learning_decay", np.nan),
        ("learning_decay", "0.7"),
        ("learning_decay", None),
        ("learning_offset", 0.5),
        ("learning_offset", np.inf),
        ("learning_offset", np.nan),
        ("learning_offset", None),
    ],
)
@pytest.mark.parametrize("model", [BY_NAME["GMM-full"], BY_NAME["FactorAnalysis"]], ids=str)
def test_bad_settings_are_named(model, name, value, method):
    estimator = model.unfitted(**{name: value})
    with pytest.raises(ValueError, match=rf"^{name} must be .*, not {value!r}$"):
        getattr(estimator, method)(problem(model)[0])
