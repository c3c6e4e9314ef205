"""Deep belief nets against listings of all states, and what is particular to them."""

import numpy as np
import pytest
from scipy.special import expit, logsumexp

import latently
from latently.deep import DBN, RBM
from tests.oracles import boltzmann as oracle
from tests.training.helpers import Killed, killer

SIZES = (4, 3, 2)  # hidden units
D = 5


def parameters(seed=0, sizes=SIZES, n_labels=0, scale=1.0):
    rng = np.random.default_rng(seed)
    layers = []
    for layer, H in enumerate(sizes):
        V = (D, *sizes)[layer] + (n_labels if layer == len(sizes) - 1 else 0)
        layers.append((scale * rng.normal(size=(H, V)), rng.normal(size=V), rng.normal(size=H)))
    return layers


def machines(layers, n_labels=0):
    return [
        RBM.from_parameters(
            components=A,
            intercept_visible=b,
            intercept_hidden=c,
            label_units=n_labels if number == len(layers) - 1 else 0,
        )
        for number, (A, b, c) in enumerate(layers)
    ]


def labelled_rows(n=120, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    X = (rng.random((n, D)) < np.where(np.arange(D) % 2 == y[:, None], 0.9, 0.1)).astype(float)
    return X, np.array(["even", "odd"])[y]


@pytest.mark.parametrize("n_labels", [0, 3])
@pytest.mark.parametrize("sizes", [SIZES, (4, 3), (4,)], ids=str)
def test_bound_and_density_by_listing(sizes, n_labels):
    layers = parameters(1, sizes, n_labels)
    model = DBN.from_layers(*machines(layers, n_labels))
    X = oracle.states(D)
    up = [(A, c) for A, _, c in layers]
    density = oracle.stack_log_density(layers, X, n_labels)
    bound = oracle.stack_bound(layers, up, X, n_labels)
    np.testing.assert_allclose(model.score_samples(X), density, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.bound(X), bound, rtol=0, atol=1e-10)
    assert np.exp(density).sum() == pytest.approx(1.0)
    assert np.all(model.bound(X) <= model.score_samples(X) + 1e-12)
    for (R, r), (A, _, c) in zip(model.recognition_, layers, strict=True):
        np.testing.assert_array_equal(R, A)
        np.testing.assert_array_equal(r, c)


def test_fine_tuned_net_has_a_bound_with_its_own_up_pass():
    X, _ = labelled_rows()
    model = DBN((4, 3), max_iter=3, fine_tune=5, batch_size=10, random_state=0).fit(X)
    layers = [(m.components_, m.intercept_visible_, m.intercept_hidden_) for m in model.layers_]
    assert np.abs(model.recognition_[0][0] - layers[0][0]).max() > 1e-3
    V = oracle.states(D)
    expected = oracle.stack_bound(layers, model.recognition_, V)
    np.testing.assert_allclose(model.bound(V), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(model.score_samples(V), oracle.stack_log_density(layers, V), atol=1e-10)


def test_sampled_bound_agrees_with_the_exact_one(monkeypatch):
    model = DBN.from_layers(*machines(parameters(2)))
    X = oracle.states(D)[:6]
    exact = model.bound(X)
    monkeypatch.setattr("latently.deep.dbn.LISTED_UNITS", 2)
    found = np.array([model.bound(X, n_samples=400, random_state=seed) for seed in range(10)])
    error = found.std(axis=0) / np.sqrt(len(found))
    assert np.all(error > 0) and np.all(np.abs(found.mean(axis=0) - exact) < 6 * error)
    np.testing.assert_array_equal(model.bound(X, n_samples=7)[2:3], model.bound(X[2:3], n_samples=7))


def test_tied_start_keeps_the_density_and_training_above_raises_the_bound():
    X, _ = labelled_rows()
    first = RBM(4, n_gibbs=5, max_iter=15, batch_size=10, random_state=0).fit(X)
    tied = RBM.from_parameters(
        components=first.components_.T,
        intercept_visible=first.intercept_hidden_,
        intercept_hidden=first.intercept_visible_,
    )
    V = oracle.states(D)
    np.testing.assert_allclose(DBN.from_layers(first, tied).bound(V), first.score_samples(V), atol=1e-10)
    start = DBN((4, D), max_iter=15, batch_size=10, random_state=0, callbacks=[lambda it: it.number == 15])
    np.testing.assert_allclose(start.fit(X).layers_[0].components_, first.components_)
    model = DBN((4, D), max_iter=0, random_state=0).fit(X)
    np.testing.assert_array_equal(model.layers_[1].components_, model.layers_[0].components_.T)
    np.testing.assert_array_equal(model.layers_[1].intercept_hidden_, model.layers_[0].intercept_visible_)
    random = DBN((4, D), max_iter=0, tied_start=False, random_state=0).fit(X)
    assert np.abs(random.layers_[1].components_ - random.layers_[0].components_.T).max() > 1e-3
    whole = DBN((4, D), max_iter=60, learning_rate=0.05, n_gibbs=5, batch_size=10, random_state=0).fit(X)
    assert whole.score(X) > whole.layers_[0].score(X) - 0.02


def test_probabilities_of_labels():
    layers = parameters(3, (4, 3), 3)
    model = DBN.from_layers(*machines(layers, 3), classes=["a", "b", "c"])
    X = oracle.states(D)
    (A, _, c), (B, b, d) = layers
    h = expit(X @ A.T + c)
    scores = np.stack(
        [
            np.hstack([h, np.tile(code, (len(h), 1))]) @ b
            + np.logaddexp(0, np.hstack([h, np.tile(code, (len(h), 1))]) @ B.T + d).sum(axis=1)
            for code in np.eye(3)
        ],
        axis=1,
    )
    expected = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-10)
    np.testing.assert_array_equal(model.predict(X), np.array(["a", "b", "c"])[expected.argmax(axis=1)])


def test_one_layer_has_the_exact_posterior_of_labels():
    ((A, b, c),) = layers = parameters(4, (4,), 2)
    model = DBN.from_layers(*machines(layers, 2))
    X = oracle.states(D)
    joint = np.stack(
        [oracle.log_density(A, b, c, np.hstack([X, np.tile(code, (len(X), 1))]), 2) for code in np.eye(2)],
        axis=1,
    )
    expected = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-10)


@pytest.mark.parametrize("fine_tune", [0, 10])
def test_learns_labels_and_generates_by_them(fine_tune):
    X, y = labelled_rows(300)
    options = {"max_iter": 15, "batch_size": 10, "random_state": 0}
    model = DBN((6, 6), fine_tune=fine_tune, **options).fit(X[:200], y[:200])
    assert model.history_.shape == (30 + fine_tune,) and list(model.classes_) == ["even", "odd"]
    assert model.score(X[200:], y[200:]) > 0.85
    wanted = np.repeat(["even", "odd"], 100)
    made = model.generate(wanted, n_steps=50, random_state=0)
    assert made.shape == (200, D) and np.all((made > 0) & (made < 1))
    assert np.mean(model.predict(made) == wanted) > 0.8
    np.testing.assert_array_equal(made, model.generate(wanted, n_steps=50, random_state=0))
    with pytest.raises(ValueError, match="not among"):
        model.generate(["neither"])


def test_generated_rows_have_the_clamped_distribution():
    layers = parameters(5, (3, 3), 2)
    model = DBN.from_layers(*machines(layers, 2))
    (A, b, _), (B, e, d) = layers
    H = oracle.states(3)
    joint = oracle.log_density(B, e, d, np.hstack([H, np.tile([0.0, 1.0], (len(H), 1))]), 2)
    p = np.exp(joint - logsumexp(joint))
    expected = p @ expit(H @ A + b)
    made = model.generate(np.ones(20000, dtype=int), n_steps=30, random_state=0)
    np.testing.assert_allclose(made.mean(axis=0), expected, atol=0.015)


def test_samples_follow_the_density():
    model = DBN.from_layers(*machines(parameters(6)))
    drawn, top = model.sample(20000, n_steps=50, random_state=0)
    assert top.shape == (20000, SIZES[-1])
    shares = np.bincount((drawn @ 2 ** np.arange(D)[::-1]).astype(int), minlength=2**D) / len(drawn)
    p = np.exp(model.score_samples(oracle.states(D)))
    assert np.all(np.abs(shares - p) < 5 * np.sqrt(p / len(drawn)) + 2e-4)


def test_rows_without_a_label_are_used():
    X, y = labelled_rows(200)
    codes = np.where(np.arange(200) % 2, (y == "odd").astype(int), -1)
    model = DBN((6, 6), max_iter=15, batch_size=10, random_state=0).fit(X, codes)
    assert list(model.classes_) == [0, 1] and model.score(X, (y == "odd").astype(int)) > 0.8


@pytest.mark.parametrize("kill", [3, 7, 11])
def test_killed_fit_resumes_bit_for_bit_in_every_stage(kill, tmp_path):
    X, y = labelled_rows(60)
    options = {"max_iter": 4, "fine_tune": 4, "batch_size": 10, "random_state": 3}
    whole = DBN((4, 3), **options).fit(X, y)
    kept = {"checkpoint": tmp_path / "state", "checkpoint_every": 2}
    with pytest.raises(Killed):
        DBN((4, 3), **options, **kept, callbacks=[killer(kill)]).fit(X, y)
    seen = []
    resumed = DBN((4, 3), **options, **kept, callbacks=[lambda it: seen.append(it.number)]).fit(X, y)
    assert seen[-1] == 12 and len(seen) < 12 and not (tmp_path / "state").exists()
    np.testing.assert_array_equal(resumed.history_, whole.history_)
    for one, other in zip(resumed.layers_, whole.layers_, strict=True):
        np.testing.assert_array_equal(one.components_, other.components_)
    np.testing.assert_array_equal(resumed.recognition_[0][0], whole.recognition_[0][0])


def test_every_layer_stops_early_by_itself():
    X, y = labelled_rows(100)
    options = {"max_iter": 60, "patience": 3, "validation_fraction": 0.3, "tol": 0.01, "batch_size": 10}
    model = DBN((4, 3), learning_rate=0.3, random_state=0, **options).fit(X, y)
    assert model.converged_ and model.n_iter_ == len(model.history_) < 120
    assert len(model.losses_["validation log-likelihood"]) == model.n_passes_ >= model.n_iter_


def test_interrupt_in_a_later_layer_keeps_the_layers_before():
    X, _ = labelled_rows(60)

    def interrupt(iteration):
        if iteration.number == 5:
            raise KeyboardInterrupt

    options = {"max_iter": 4, "batch_size": 10, "random_state": 0}
    with pytest.warns(UserWarning, match="interrupted"):
        model = DBN((4, 3), callbacks=[interrupt], **options).fit(X)
    whole = DBN((4, 3), **options).fit(X)
    assert model.n_iter_ == 5
    np.testing.assert_array_equal(model.layers_[0].components_, whole.layers_[0].components_)


def test_partial_fit_learns_all_layers(tmp_path):
    X, y = labelled_rows(200)
    model = DBN((6, 6), batch_size=10, fine_tune=1, random_state=0)
    with pytest.raises(ValueError, match="not among"):
        model.partial_fit(X, y, classes=["a", "b"])
    model.partial_fit(X, y, classes=["odd", "even"])  # in any order
    for _ in range(40):
        model.partial_fit(X, y)
    assert model.n_iter_ == 41 and model.score(X, y) > 0.8
    model.save(tmp_path / "net")
    again = latently.load(tmp_path / "net")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert list(again.classes_) == ["even", "odd"]


def test_bad_input():
    X, _ = labelled_rows(30)
    first, second = machines(parameters(0, (4, 3)))
    for layers, message in [
        ((), "at least one"),
        ((first, first), "layer 1 has 5 visible units"),
        (
            (
                first,
                RBM.from_parameters(
                    components=second.components_,
                    intercept_visible=np.zeros(4),
                    intercept_hidden=np.zeros(3),
                    visible="gaussian",
                ),
            ),
            "Gaussian units",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            DBN.from_layers(*layers)
    with pytest.raises(ValueError, match="n_components must be a sequence of positive integers"):
        DBN("5").fit(X)
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        DBN((3, 2)).fit(2 * X)
    with pytest.raises(AttributeError, match="score_samples"):
        DBN((17, 2)).score_samples  # noqa: B018
    with pytest.raises(ValueError, match="without labels"):
        DBN((3, 2), max_iter=0).fit(X).generate([0])
    assert not hasattr(DBN((3, 2), max_iter=0).fit(X), "predict") and DBN(3, max_iter=0).fit(X).layers_
