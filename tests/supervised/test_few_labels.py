"""Few labels: borrowed rows against loops, temperatures, and unlabelled rows that count less."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import log_loss
from sklearn.preprocessing import scale

import latently
from latently.estimators.classifier import calibrated
from latently.estimators.messages import InterruptedWarning
from latently.estimators.weights import in_rows
from latently.mixture import MFA, MPPCA, GaussianMixture
from latently.supervised import MFMClassifier, MJFAClassifier, PerClass, labelled
from latently.supervised.borrowing import borrowed_rows
from latently.supervised.few_rows import FewRows

QUICK = {"random_state": 0, "n_init": 1, "tol": 1e-4}
X, y = load_wine(return_X_y=True)
X = scale(X)[:, :5]


def few(n, seed=0):
    """Indices of n rows of each class, and the others."""
    rng = np.random.default_rng(seed)
    seen = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:n] for c in range(3)])
    return seen, np.setdiff1d(np.arange(len(y)), seen)


def quietly(model, *given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*given)


# -- borrowed rows ------------------------------------------------------------------------------------------


def covariances(X, codes, C):
    """Scatter matrices (C, D, D) about class means, their numbers of rows, and the pooled covariance."""
    scatters = []
    for c in range(C):
        rows = X[codes == c] - X[codes == c].mean(axis=0)
        scatters.append(sum(np.outer(row, row) for row in rows))
    counts = np.bincount(codes)
    return np.array(scatters), counts, sum(scatters) / np.sum(counts - 1)


def shares_by_loops(X, codes, C):
    """The closed forms, entry by entry: share of the target, and of the diagonal in the target."""
    counts = np.bincount(codes)
    means = np.array([X[codes == c].mean(axis=0) for c in range(C)])
    Z = (X - means[codes]) * np.sqrt(len(X) / np.sum(counts - 1))
    Z = Z / np.sqrt(np.mean(Z**2, axis=0))
    D = Z.shape[1]
    S, error, square = np.empty((D, D)), 0.0, 0.0
    for i in range(D):
        for j in range(D):
            product = Z[:, i] * Z[:, j]
            S[i, j] = product.mean()
            if i != j:
                error += np.mean((product - product.mean()) ** 2) / (len(Z) - 1)
                square += S[i, j] ** 2
    on_axes = min(1.0, error / square)
    target = np.where(np.eye(D) > 0, S, (1 - on_axes) * S)
    errors = distances = 0.0
    for c in range(C):
        z = Z[codes == c]
        for i in range(D):
            for j in range(D):
                product = z[:, i] * z[:, j]
                errors += len(z) * np.mean((product - product.mean()) ** 2) / (len(z) - 1)
                distances += len(z) * (product.mean() - target[i, j]) ** 2
    return min(1.0, errors / distances), on_axes


def test_a_gaussian_with_borrowed_rows_is_shrunk_towards_the_target():
    seen, _ = few(8)
    rows, codes = X[seen][3:], y[seen][3:]  # classes of different sizes
    nu = 7.0
    density = GaussianMixture(noise_floor=0, prior=None)
    model = PerClass(density, shrinkage=nu, temperature=None).fit(rows, codes)
    scatters, counts, S = covariances(rows, codes, 3)
    on_axes = shares_by_loops(rows, codes, 3)[1]
    T = (1 - on_axes) * S + on_axes * np.diag(np.diagonal(S))
    for c, density in enumerate(model.densities_):
        lent = nu * 3 * counts[c] / len(rows)
        expected = (scatters[c] + lent * T) / (counts[c] + lent)
        np.testing.assert_allclose(density.covariances_[0], expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(density.means_[0], rows[codes == c].mean(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.class_prior_, counts / len(rows), rtol=1e-12)


@pytest.mark.parametrize("n", [4, 12, 40])
def test_the_amount_is_the_closed_form_and_ten_rows_less_for_larger_classes(n):
    seen, _ = few(n)
    lent = borrowed_rows(X[seen], y[seen], np.ones(len(seen)), 3, "auto")
    share, _ = shares_by_loops(X[seen], y[seen], 3)
    expected = min(10 + n * share / max(1 - share, 1e-9), 50 * n) * min(1, 5 / n)
    np.testing.assert_allclose(np.bincount(lent.codes, lent.weight), expected, rtol=1e-9)


def test_nothing_is_borrowed_if_not_asked_for():
    seen, _ = few(6)
    for model, same in (
        (MJFAClassifier(1, 2, shrinkage=None, **QUICK), MJFAClassifier(1, 2, shrinkage=0, **QUICK)),
        (
            MJFAClassifier(1, 2, prior=None, **QUICK),
            MJFAClassifier(1, 2, prior=None, shrinkage=None, **QUICK),
        ),
        (PerClass(MFA(1, 1, prior=None, **QUICK)), PerClass(MFA(1, 1, prior=None, **QUICK), shrinkage=None)),
    ):
        ours, theirs = (quietly(one, X[seen], y[seen]).score_samples(X) for one in (model, same))
        np.testing.assert_array_equal(ours, theirs)
    borrowing = quietly(MJFAClassifier(1, 2, **QUICK), X[seen], y[seen])
    assert not np.allclose(borrowing.score_samples(X), ours)


def test_constant_features_and_missing_entries_are_borrowed_as_they_are():
    seen, _ = few(5)
    rows = np.column_stack([X[seen], np.full(len(seen), 0.1)])
    rows[::4, 0] = np.nan
    lent = borrowed_rows(rows, y[seen], np.ones(len(seen)), 3, 5.0)
    assert np.all(lent.X[:, 5] == 0.1) and np.isnan(lent.X[:, 0]).any()
    model = quietly(MJFAClassifier(1, 2, **QUICK), rows, y[seen])
    assert np.isfinite(model.score_samples(rows)).all()


@pytest.mark.parametrize(
    "model",
    [
        PerClass(GaussianMixture()),
        MJFAClassifier(1, 2, unlabelled_weight="auto", tol=1e-8, random_state=0),
    ],
    ids=["PerClass", "MJFA"],
)
def test_weights_are_copies(model):
    seen, others = few(6)
    rows, labels = X[seen], y[seen].copy()
    if isinstance(model, MJFAClassifier):
        rows, labels = np.concatenate([rows, X[others[:60]]]), np.append(labels, np.full(60, -1))
    weight = np.random.default_rng(1).integers(1, 4, len(rows))
    ours = quietly(model, rows, labels, weight)
    probabilities, temperature = ours.predict_proba(X), ours.temperature_
    copied = quietly(model, np.repeat(rows, weight, axis=0), np.repeat(labels, weight))
    np.testing.assert_allclose(temperature, copied.temperature_, rtol=1e-3)
    np.testing.assert_allclose(probabilities, copied.predict_proba(X), atol=2e-3)


def test_the_objective_never_falls_with_borrowed_rows():
    seen, others = few(5)
    labels = np.append(y[seen], np.full(50, -1))
    model = MJFAClassifier(2, 2, random_state=0, max_iter=60, tol=0.0, temperature=None)
    model = quietly(model, np.concatenate([X[seen], X[others[:50]]]), labels)
    assert np.diff(model.history_).min() >= -1e-10


def test_infinitely_many_borrowed_rows_give_classes_one_covariance():
    seen, _ = few(20)
    model = quietly(MJFAClassifier(1, 2, shrinkage=1e5, temperature=None, **QUICK), X[seen], y[seen])
    spread = model.covariances_[:, 0]
    assert np.abs(spread - spread[0]).max() < 0.01 * np.abs(spread[0]).max()


@pytest.mark.parametrize(
    "model",
    [MJFAClassifier(1, 4, **QUICK), PerClass(MPPCA(1, 2, **QUICK)), PerClass(GaussianMixture())],
    ids=["MJFA", "MPPCA", "GaussianMixture"],
)
def test_five_rows_per_class_are_enough_for_what_shrunken_lda_finds(model):
    rows, right, theirs, losses, their_losses = scale(load_wine().data), [], [], [], []
    for seed in range(4):
        seen, others = few(5, seed)
        lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(rows[seen], y[seen])
        quietly(model, rows[seen], y[seen])
        right.append(model.score(rows[others], y[others]))
        theirs.append(lda.score(rows[others], y[others]))
        losses.append(log_loss(y[others], model.predict_proba(rows[others])))
        their_losses.append(log_loss(y[others], lda.predict_proba(rows[others])))
    assert np.mean(right) > np.mean(theirs) - 0.015
    assert np.mean(losses) < np.mean(their_losses) and max(losses) < np.log(3)


@pytest.mark.parametrize("value", ["many", -1, np.nan, True])
def test_amounts_that_are_none(value):
    with pytest.raises(ValueError, match="shrinkage"):
        MJFAClassifier(shrinkage=value).fit(X, y)


# -- few rows for a density ---------------------------------------------------------------------------------


def test_classes_with_too_few_rows_are_named():
    seen, _ = few(3)
    rows, labels = np.concatenate([X[seen], X[y == 0]]), np.append(y[seen], y[y == 0])
    with pytest.warns(
        UserWarning,
        match=r"class 1 has 3 rows and needs 5, class 2 has 3.*fewer parameters, shrinkage='auto'",
    ):
        PerClass(GaussianMixture(), shrinkage=None).fit(rows, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PerClass(GaussianMixture()).fit(X, y)


# -- temperature --------------------------------------------------------------------------------------------


def test_posteriors_are_cooled_by_the_temperature(tmp_path):
    seen, _ = few(4)
    model = PerClass(GaussianMixture(), shrinkage=None)
    quietly(model, X[seen], y[seen])
    assert model.temperature_ > 1 and 0 < model.doubt_ < 1
    expected = softmax(model._class_log_joint(X) / model.temperature_, axis=1)
    expected = (1 - model.doubt_) * expected + model.doubt_ / 3
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-10, atol=1e-12)
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    assert (again.temperature_, again.doubt_) == (model.temperature_, model.doubt_)
    hot, cold = model.predict(X), quietly(model.set_params(temperature=None), X[seen], y[seen])
    assert (cold.temperature_, cold.doubt_) == (1.0, 0.0)
    np.testing.assert_array_equal(cold.predict(X), hot)
    assert quietly(model.set_params(temperature=3), X[seen], y[seen]).temperature_ == 3.0


@pytest.mark.parametrize(
    "model",
    [PerClass(GaussianMixture()), MJFAClassifier(1, 2, shrinkage=None, **QUICK)],
    ids=["PerClass", "MJFA"],
)
def test_of_many_rows_the_temperature_is_that_of_the_fit(model):
    rows, labels = np.tile(X**3, (2, 1)), np.tile(y, 2)  # far from Gaussian
    model = quietly(clone(model), rows, labels)
    assert model.temperature_ > 1

    joint = model._class_log_joint(rows)

    def loss(given):
        temperature, doubt = 1 + given[0] ** 2, 1 / (1 + np.exp(given[1]))
        own = (1 - doubt) * softmax(joint / temperature, axis=1)[range(len(labels)), labels] + doubt / 3
        return -np.sum(np.log(own)) - 0.25 * np.log(doubt / 3)

    found = minimize(loss, [1.0, 3.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}).x
    assert model.temperature_ == pytest.approx(1 + found[0] ** 2, rel=0.01)
    assert model.doubt_ == pytest.approx(1 / (1 + np.exp(found[1])), rel=0.02)
    assert quietly(clone(model).set_params(temperature=None), rows, labels).temperature_ == 1.0


def test_what_held_out_rows_say_is_no_worse_than_a_guess():
    rng = np.random.default_rng(0)
    codes, sure = rng.integers(4, size=40), np.where(rng.random((40, 4)) < 0.5, 0.0, -1e5)
    for joint in (1e4 * rng.normal(size=(40, 4)), sure, np.zeros((40, 4))):
        found = calibrated(joint, codes, np.ones(40))
        assert found.loss <= np.log(4) * (1 + 0.25 / 40) + 1e-3
        assert 0 < found.doubt < 1  # classes keep their order


def test_the_gain_is_that_of_held_out_labels_over_a_guess():
    rng = np.random.default_rng(1)
    codes, weight = rng.integers(3, size=30), rng.uniform(0.5, 2.0, size=30)
    joint = rng.normal(size=(30, 3)) + 2.0 * np.eye(3)[codes]
    found = calibrated(joint, codes, weight)
    posteriors = (1 - found.doubt) * softmax(joint / found.temperature, axis=1) + found.doubt / 3
    assert found.gain == pytest.approx(weight @ np.log(3 * posteriors[range(30), codes]), rel=1e-9)


@pytest.mark.parametrize("weight", [1.0, 1e-3])
@pytest.mark.parametrize(
    "model",
    [MFMClassifier(1, 2, **QUICK), MJFAClassifier(1, 2, **QUICK), PerClass(GaussianMixture())],
    ids=["MFM", "MJFA", "PerClass"],
)
def test_a_classifier_that_is_hardly_better_than_a_guess_says_so(model, weight):
    seen, _ = few(5)
    weights = np.full(15, weight)
    noise = np.random.default_rng(3).normal(size=(15, 5))
    with pytest.warns(
        UserWarning, match="hardly better than a guess: the labels of 15 rows.*label more rows"
    ):
        clone(model).fit(noise, y[seen], weights)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model).fit(X[seen], y[seen], weights)
        clone(model).set_params(temperature=None).fit(noise, y[seen], weights)


def places(rows, tmp_path):
    """The same rows in files, blocks, tensors and partitions."""
    np.save(tmp_path / "rows.npy", rows)
    yield tmp_path / "rows.npy"
    yield [rows[:7], rows[7:30], rows[30:]]
    yield pytest.importorskip("torch").asarray(rows)
    yield pytest.importorskip("dask.array").from_array(rows, chunks=(20, -1))


@pytest.mark.parametrize(
    ("model", "n"),
    [
        (MJFAClassifier(1, 2, max_iter=3, accelerate=None, **QUICK), 5),
        (MJFAClassifier(2, 2, max_iter=3, accelerate=None, shrinkage=4.0, **QUICK), 8),
        (MFMClassifier(1, 2, max_iter=3, **QUICK), 5),
    ],
    ids=["MJFA", "MJFA-components", "MFM"],
)
def test_the_same_rows_give_the_same_model_wherever_they_are(model, n, tmp_path):
    seen, others = few(n)
    rows = X[np.append(seen, others[:40])] ** 3
    rows[-1] = np.nan  # of unknown class and without an entry: it counts nowhere
    rows[1, 0] = np.nan
    labels = np.append(y[seen], np.full(40, -1))
    expected = quietly(clone(model), rows, labels)
    assert expected.doubt_ > 0
    backwards = quietly(clone(model), rows[::-1], labels[::-1])
    np.testing.assert_allclose(backwards.predict_proba(X), expected.predict_proba(X), rtol=1e-6, atol=1e-9)
    for given in places(rows, tmp_path):
        found = quietly(clone(model), given, labels)
        np.testing.assert_allclose(found.temperature_, expected.temperature_, rtol=1e-6)
        np.testing.assert_allclose(found.doubt_, expected.doubt_, rtol=1e-6)
        there = type(given).__module__.startswith("torch")
        posteriors = (found.to("numpy") if there else found).predict_proba(X)
        np.testing.assert_allclose(posteriors, expected.predict_proba(X), rtol=1e-6, atol=1e-9)


def test_tensors_of_few_rows_learn_the_temperature_of_arrays():
    torch = pytest.importorskip("torch")
    seen, _ = few(5)
    model = PerClass(GaussianMixture())
    expected = quietly(clone(model), X[seen], y[seen]).temperature_
    assert expected > 1
    assert quietly(clone(model), torch.asarray(X[seen]), y[seen]).temperature_ == pytest.approx(expected)


@pytest.mark.parametrize(
    "model", [MJFAClassifier(2, 2, random_state=0), MFMClassifier(2, 1, random_state=0)], ids=["MJFA", "MFM"]
)
@pytest.mark.parametrize("within", [True, False], ids=["in a fit", "between fits"])
def test_an_interrupt_while_the_temperature_is_learnt_ends_the_fit(model, within, monkeypatch):
    seen, _ = few(8)
    n_fits, place = 0, "latently.estimators.classifier"

    def interrupted(self, *given):
        nonlocal n_fits
        n_fits += 1
        raise InterruptedWarning if within else KeyboardInterrupt

    monkeypatch.setattr(f"{place}.DensityClassifier._held_out", interrupted)
    with pytest.warns(InterruptedWarning, match="interrupted"):
        model = clone(model).fit(X[seen], y[seen])
    assert (n_fits, model.n_iter_, model.temperature_) == (1, 0, 1.0)
    assert np.isfinite(model.predict_log_proba(X)).all()


def test_an_interrupt_within_a_fold_is_noticed(monkeypatch):
    monkeypatch.setattr("latently.estimators.classifier._BRIEF", {"n_init": 1})  # callbacks reach the folds
    seen, _ = few(8)
    n_calls = 0

    def interrupt(state):
        nonlocal n_calls
        n_calls += 1
        raise KeyboardInterrupt

    density = GaussianMixture(2, random_state=0, callbacks=[interrupt])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = PerClass(density, shrinkage=None).fit(X[seen], y[seen])
    assert any("not learnt" in str(one.message) for one in told)
    assert model.temperature_ == 1.0
    assert n_calls == 4  # in one fold, and in the density of each class


@pytest.mark.parametrize("value", ["hot", 0, -1.0, np.inf, True])
def test_temperatures_that_are_none(value):
    with pytest.raises(ValueError, match="temperature"):
        PerClass(GaussianMixture(), temperature=value).fit(X, y)


# -- unlabelled rows ----------------------------------------------------------------------------------------

PLAIN = {"shrinkage": None, "temperature": None, **QUICK}
models = pytest.mark.parametrize(
    "model",
    [MJFAClassifier(1, 2, **PLAIN), MFMClassifier(1, 2, temperature=None, **QUICK)],
    ids=["MJFA", "MFM"],
)


@models
def test_unlabelled_rows_of_no_weight_are_left_out(model):
    seen, others = few(10)
    labels = np.append(y[seen], np.full(len(others), -1))
    rows = np.concatenate([X[seen], X[others]])
    ours = quietly(model.set_params(unlabelled_weight=0), rows, labels).predict_proba(X)
    np.testing.assert_allclose(ours, quietly(model, X[seen], y[seen]).predict_proba(X), atol=1e-6)


@models
def test_unlabelled_rows_are_kept_at_three_times_the_labelled_ones(model):
    seen, others = few(10)
    labels = np.append(y[seen], np.full(len(others), -1))
    apart = X + 6.0 * np.eye(5)[y]
    rows = np.concatenate([apart[seen], apart[others]])
    share = 3 * len(seen) / len(others)
    ours = quietly(model.set_params(unlabelled_weight="auto"), rows, labels).score_samples(apart)
    theirs = quietly(model.set_params(unlabelled_weight=share), rows, labels).score_samples(apart)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    fully = quietly(model.set_params(unlabelled_weight=1), rows, labels).score_samples(apart)
    assert np.abs(ours - fully).max() > 1e-3


@pytest.mark.parametrize(
    ("changed", "lost", "most"),  # of 100 unlabelled rows of weight 2 and of 40 labelled ones, by weight
    [
        ({3.0: 5, 0.3: 0}, {3.0: 1, 0.3: 0}, 3.0),
        ({3.0: 6, 0.3: 10}, {3.0: 0, 0.3: 0}, 0.3),
        ({3.0: 0, 0.3: 0}, {3.0: 2, 0.3: 0}, 0.3),
        ({3.0: 6, 0.3: 11}, {3.0: 0, 0.3: 0}, 0.0),
        ({3.0: 0, 0.3: 0}, {3.0: 9, 0.3: 9}, 0.0),
    ],
)
def test_unlabelled_rows_count_as_much_as_leaves_classes_alone(changed, lost, most, monkeypatch):
    codes = np.append(np.tile([0, 1], 20), np.full(100, -1))
    few_rows = FewRows(np.zeros((140, 2)), codes, np.where(codes == -1, 2.0, 1.0))
    labels = np.where(codes == -1, 0, codes)

    def classes(model, given, rows):
        weight = given.weight[given.codes == -1].sum() / 40
        if weight == 0:
            return labels
        times = 3.0 if weight > 1 else 0.3
        assert weight == pytest.approx(times)
        found = labels.copy()
        found[40 : 40 + changed[times]] = 1
        found[: lost[times]] = 1 - found[: lost[times]]
        return found

    monkeypatch.setattr(labelled, "_quick_classes", classes)
    assert labelled._most_unlabelled(None, few_rows) == most


@pytest.mark.parametrize("shrinkage", ["auto", None])
def test_unlabelled_rows_count_less_where_they_turn_classes_away_from_labels(shrinkage, monkeypatch):
    """Seen in the weights of the last fit: what it ends at also depends on rounding."""
    digits, number = load_digits(return_X_y=True)
    rows = scale(np.linalg.svd(digits - digits.mean(axis=0), full_matrices=False)[0][:, :12])[:800]
    shares, lightened = [], labelled.lightened

    def spy(model, data, *learnt):
        lighter = lightened(model, data, *learnt)
        if lighter is not data:
            weight = lighter.field("weight")
            shares.append(weight[100:].sum() / weight[:100].sum())
        return lighter

    monkeypatch.setattr(labelled, "lightened", spy)
    model = MJFAClassifier(1, 3, shrinkage=shrinkage, temperature=None, **QUICK)
    apart = rows + 20.0 * (number[:800] > 4)[:, None]
    for X, share in ((rows, 0.3), (apart, 3.0)):  # classes of five clusters each, mixed up or far apart
        quietly(clone(model), X, np.where(np.arange(800) < 100, (number[:800] > 4).astype(int), -1))
        assert shares[-1] == pytest.approx(share)


@models
def test_a_weight_of_unlabelled_rows_is_that_of_each(model):
    seen, others = few(10)
    labels, rows = np.append(y[seen], np.full(40, -1)), np.concatenate([X[seen], X[others[:40]]])
    weight = np.append(np.ones(len(seen)), np.full(40, 0.25))
    weight = in_rows(weight)  # without this unit they are those of four rows and one
    by_likelihood = clone(model).set_params(prior=None, unlabelled_weight=0.25)
    ours = quietly(by_likelihood, rows, labels).predict_proba(X)
    for one in (1.0, "auto"):  # maximum likelihood counts all rows fully
        theirs = quietly(by_likelihood.set_params(unlabelled_weight=one), rows, labels, weight)
        np.testing.assert_allclose(ours, theirs.predict_proba(X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("value", ["some", None, -0.1, 1.5, True])
def test_weights_of_unlabelled_rows_that_are_none(value):
    with pytest.raises(ValueError, match="unlabelled_weight"):
        MFMClassifier(unlabelled_weight=value).fit(X, y)


def many_classes(n, n_classes=8):
    """n rows of each class; the classes differ in eight directions."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(n_classes), n)
    return 4.0 * np.eye(n_classes)[labels] + rng.normal(size=(len(labels), n_classes)), labels


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_too_few_factors_for_the_classes_are_told(missing):
    rows, labels = many_classes(20)
    rows[np.random.default_rng(1).random(rows.shape) < missing] = np.nan
    with pytest.warns(UserWarning, match="does not tell the classes apart.*n_factors=2.*n_factors=8"):
        model = MJFAClassifier(1, 2, **QUICK).fit(rows, labels)
    assert model.score(rows, labels) < 0.7
    assert MJFAClassifier(1, 8, **QUICK).fit(rows, labels).score(rows, labels) > 0.9  # and no warning


def test_classes_that_cannot_be_told_apart_are_no_reason_for_a_warning():
    rows, labels = many_classes(20)
    MJFAClassifier(1, 2, **QUICK).fit(rows, np.random.default_rng(0).permutation(labels))


def test_factors_that_describe_rows_instead_of_classes_are_told():
    """Classes in an order, on one axis of rows without any structure."""
    rows = np.random.default_rng(0).uniform(-1.7, 1.7, size=(200, 5))
    labels = np.digitize(rows[:, 4], [-0.85, 0.0, 0.85])
    with pytest.warns(
        UserWarning, match="MFMClassifier does not .* larger discriminative_weight, such as 100"
    ):
        model = MFMClassifier(1, 4, **QUICK).fit(rows, labels)
    more = MFMClassifier(1, 4, discriminative_weight=100.0, **QUICK).fit(rows, labels)
    assert more.score(rows, labels) > model.score(rows, labels) + 0.1


def test_wide_rows_are_compared_in_their_principal_scores():
    rows, labels = many_classes(20)
    wide = np.hstack([rows, 0.1 * np.random.default_rng(0).normal(size=(len(rows), 100))])
    with pytest.warns(UserWarning, match="does not tell the classes apart"):
        MJFAClassifier(1, 2, **QUICK).fit(wide * np.r_[np.full(8, 10.0), np.ones(100)], labels)


def test_data_frames_of_many_rows_give_no_warning():
    rows, labels = many_classes(120, n_classes=2)
    named = pd.DataFrame(rows, columns=["one", "other"])
    MJFAClassifier(1, 2, **QUICK).fit(named, labels)  # warnings are errors in tests
