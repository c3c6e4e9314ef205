"""Restricted Boltzmann machines against listings of all states, and what is particular to them."""

import numpy as np
import pytest
import torch
from scipy.special import expit

import latently
from latently.deep import RBM
from latently.training.generators import seed_of
from tests.oracles import boltzmann as oracle
from tests.training.helpers import Killed, killer

H, D = 4, 5


def parameters(seed=0, H=H, D=D, scale=1.0):
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=(H, D)), rng.normal(size=D), rng.normal(size=H)


def machine(seed=0, **options):
    A, b, c = parameters(seed)
    return RBM.from_parameters(components=A, intercept_visible=b, intercept_hidden=c, **options)


def starts(seed=0, scale=1.0):
    A, b, c = parameters(seed, scale=scale)
    return {"components_init": A, "intercept_visible_init": b, "intercept_hidden_init": c}


def binary_rows(n=40, D=D, seed=0):
    """Rows with two patterns and some noise."""
    rng = np.random.default_rng(seed)
    pattern = (np.arange(D) % 2 == rng.integers(2, size=(n, 1))).astype(float)
    return np.where(rng.random((n, D)) < 0.1, 1.0 - pattern, pattern)


# -- densities ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_labels", [0, 3])
@pytest.mark.parametrize("sizes", [(4, 5), (6, 4)], ids=["few hidden", "few visible"])
def test_density_and_partition_function_by_listing(sizes, n_labels):
    A, b, c = parameters(1, *sizes)
    model = RBM.from_parameters(components=A, intercept_visible=b, intercept_hidden=c, label_units=n_labels)
    V = oracle.visible_states(sizes[1], n_labels)
    assert model.log_partition() == pytest.approx(oracle.log_partition(A, b, c, n_labels), abs=1e-12)
    np.testing.assert_allclose(
        model.score_samples(V), oracle.log_density(A, b, c, V, n_labels), rtol=0, atol=1e-12
    )
    assert np.exp(model.score_samples(V)).sum() == pytest.approx(1.0)
    np.testing.assert_allclose(model.free_energy(V), -b @ V.T - np.logaddexp(0, c + V @ A.T).sum(axis=1))
    assert model.score(V) == pytest.approx(model.score_samples(V).mean())


def test_conditional_probabilities():
    A, b, c = parameters()
    V, codes = oracle.states(D), oracle.states(H)
    np.testing.assert_allclose(machine().transform(V), expit(V @ A.T + c), rtol=1e-13)
    np.testing.assert_allclose(machine().inverse_transform(codes), expit(codes @ A + b), rtol=1e-13)
    np.testing.assert_allclose(machine().reconstruct(V), expit(expit(V @ A.T + c) @ A + b), rtol=1e-13)
    labelled = machine(label_units=3).inverse_transform(codes)
    odds = np.exp(codes @ A + b)[:, 2:]
    np.testing.assert_allclose(labelled[:, 2:], odds / odds.sum(axis=1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"label_units": 2}, {"visible": "gaussian", "visible_variance": 0.6}]
)
def test_annealed_importance_sampling_agrees_with_the_exact_value(options):
    model = machine(3, **options)
    exact, found = model.log_partition("exact"), model.estimate_log_partition("ais", random_state=0)
    assert found.method == "ais" and 0 < found.standard_error < 0.05
    assert abs(found.value - exact) < 0.1 and abs(found.value - exact) < 5 * found.standard_error
    assert model.log_partition("ais", random_state=0) == found.value
    assert model.log_partition("ais", random_state=1) != found.value
    assert model.estimate_log_partition().standard_error == 0.0


def test_gaussian_density_integrates_to_one():
    A, b, c = parameters(2, 3, 2)
    model = RBM.from_parameters(
        components=A, intercept_visible=b, intercept_hidden=c, visible="gaussian", visible_variance=0.5
    )
    line = np.linspace(-12, 12, 241)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    assert np.exp(model.score_samples(grid)).sum() * (line[1] - line[0]) ** 2 == pytest.approx(1.0)
    labelled = RBM.from_parameters(
        components=np.hstack([A, A]),
        intercept_visible=np.hstack([b, b]),
        intercept_hidden=c,
        visible="gaussian",
        visible_variance=0.5,
        label_units=2,
    )
    both = [np.hstack([grid, np.tile(code, (len(grid), 1))]) for code in np.eye(2)]
    total = sum(np.exp(labelled.score_samples(rows)).sum() for rows in both)
    assert total * (line[1] - line[0]) ** 2 == pytest.approx(1.0)
    assert labelled.log_partition("ais", random_state=0) == pytest.approx(labelled.log_partition(), abs=0.1)
    X, codes = model.sample(4000, n_steps=50, random_state=0)
    assert np.var(X - model.inverse_transform(codes)) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("n_labels", [0, 2])
def test_pseudo_likelihood_is_unbiased(n_labels):
    model = machine(label_units=n_labels)
    V = oracle.visible_states(D, n_labels)
    log_p = oracle.log_density(*parameters(), V, n_labels)
    place = {tuple(v): i for i, v in enumerate(V)}
    exact = np.zeros(len(V))
    for i, v in enumerate(V):
        for unit in range(D - n_labels):
            flipped = v.copy()
            flipped[unit] = 1.0 - v[unit]
            exact[i] -= np.logaddexp(0.0, log_p[place[tuple(flipped)]] - log_p[i])
        if n_labels:
            others = [place[(*v[: D - n_labels], *code)] for code in np.eye(n_labels)]
            exact[i] += log_p[i] - np.logaddexp.reduce(log_p[others])
    found = np.array([model.pseudo_log_likelihood(V, random_state=seed) for seed in range(300)])
    error = found.std(axis=0) / np.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - exact) < 5 * error)


# -- learning ------------------------------------------------------------------------------------------


def one_step(X, seed, **options):
    plain = {"learning_rate": 1.0, "momentum": 0.0, "weight_decay": 0.0, "batch_size": 10**4, "max_iter": 1}
    return RBM(H, **starts(scale=0.7), **plain | options, random_state=seed).fit(X)


@pytest.mark.parametrize("k", [1, 3])
def test_mean_step_is_the_expected_one(k):
    A, b, c = parameters(scale=0.7)
    X = np.repeat(binary_rows(8), 250, axis=0)
    changes = [one_step(X, seed, n_gibbs=k) for seed in range(10)]
    expected = oracle.expected_cd_step(A, b, c, X[::250], k)
    for name, start, change in zip(
        ("components_", "intercept_visible_", "intercept_hidden_"), (A, b, c), expected, strict=True
    ):
        found = np.array([getattr(model, name) - start for model in changes])
        error = found.std(axis=0) / np.sqrt(len(found)) + 1e-6
        assert np.all(np.abs(found.mean(axis=0) - change) < 6 * error), name
        assert np.abs(change).max() > 20 * error.max()


def test_weight_decay_and_momentum_are_exact():
    X, (A, _, _) = binary_rows(), parameters(scale=0.7)
    plain, decayed = one_step(X, 0), one_step(X, 0, weight_decay=0.01, learning_rate=1.0)
    np.testing.assert_allclose(decayed.components_ - plain.components_, -0.01 * A, rtol=1e-10, atol=1e-15)
    np.testing.assert_array_equal(decayed.intercept_visible_, plain.intercept_visible_)
    small, twice = (one_step(X, 0, learning_rate=1e-9, momentum=m, max_iter=2) for m in (0.0, 0.5))
    once = one_step(X, 0, learning_rate=1e-9)
    # with so small steps both gradients are those at the start, up to their draws
    first, both = once.components_ - A, twice.components_ - small.components_
    np.testing.assert_allclose(both, 0.5 * first, rtol=1e-3, atol=1e-15)


def test_no_epochs_return_the_start_and_fractions_are_used_as_they_are():
    X = np.random.default_rng(0).random((30, D))
    model = RBM(H, **starts(), max_iter=0).fit(X)
    for name, value in zip(
        ("components_", "intercept_visible_", "intercept_hidden_"), parameters(), strict=True
    ):
        np.testing.assert_array_equal(getattr(model, name), value)
    mean = one_step(X, 0).intercept_visible_ - one_step(np.round(X), 0).intercept_visible_
    assert np.abs(mean).max() > 1e-3


@pytest.mark.parametrize("options", [{}, {"persistent": True}, {"n_gibbs": 3}])
def test_learning_raises_the_exact_likelihood(options):
    X = binary_rows(200)
    start = RBM(H, max_iter=0, random_state=0).fit(X).score(X)
    model = RBM(H, learning_rate=0.2, batch_size=20, max_iter=40, random_state=0, **options).fit(X)
    assert model.score(X) > start + 0.5
    assert model.history_.shape == (40,) and model.history_[-5:].mean() > model.history_[:5].mean()
    entropy = -np.sum(
        np.unique(X, axis=0, return_counts=True)[1]
        / 200
        * np.log(np.unique(X, axis=0, return_counts=True)[1] / 200)
    )
    assert model.score(X) <= -entropy + 1e-9


def test_labels_are_one_group():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    X = np.hstack(
        [(rng.random((300, 6)) < np.where(np.arange(6) // 2 == y[:, None], 0.9, 0.1)), np.eye(3)[y]]
    )
    model = RBM(6, label_units=3, learning_rate=0.2, max_iter=30, batch_size=20, random_state=0).fit(X)
    drawn = model.sample(200, n_steps=200, random_state=0)[0]
    assert np.all(drawn[:, 6:].sum(axis=1) == 1) and np.all(drawn.sum(axis=0) > 0)
    unknown = X.copy()
    unknown[:, 6:] = np.nan
    for method in ("mean_field", "gibbs"):
        filled = model.impute(unknown, method=method)
        np.testing.assert_allclose(filled[:, 6:].sum(axis=1), 1.0, rtol=1e-9)
        assert np.mean(filled[:, 6:].argmax(axis=1) == y) > 0.8


def test_sparsity_target_changes_how_often_units_are_on():
    X = binary_rows(200)
    plain, sparse = (
        RBM(8, max_iter=20, batch_size=20, sparsity_target=target, sparsity_weight=1.0, random_state=0).fit(X)
        for target in (None, 0.1)
    )
    assert plain.transform(X).mean() > 0.3 and abs(sparse.transform(X).mean() - 0.1) < 0.05


# -- draws -------------------------------------------------------------------------------------------


def test_samples_follow_the_density():
    model = machine()
    drawn, codes = model.sample(20000, n_steps=100, random_state=0)
    V = oracle.states(D)
    numbers = drawn @ 2 ** np.arange(D)[::-1]
    shares = np.bincount(numbers.astype(int), minlength=2**D) / len(drawn)
    p = np.exp(model.score_samples(V))
    assert np.all(np.abs(shares - p) < 5 * np.sqrt(p / len(drawn)) + 1e-4)
    assert codes.shape == (20000, H) and set(np.unique(codes)) == {0.0, 1.0}


def test_gibbs_steps_follow_their_kernel():
    start = oracle.states(D)[[11]]
    after = machine().gibbs(np.repeat(start, 20000, axis=0), 2, random_state=0)
    p = np.linalg.matrix_power(oracle.gibbs_kernel(*parameters()), 2)[11]
    shares = np.bincount((after @ 2 ** np.arange(D)[::-1]).astype(int), minlength=2**D) / len(after)
    assert np.all(np.abs(shares - p) < 5 * np.sqrt(p / len(after)) + 1e-4)


def test_imputed_entries_are_conditional_means():
    A, b, c = parameters()
    X = np.array([[1.0, np.nan, 0.0, np.nan, 1.0]])
    V = oracle.states(D)
    fits = (V[:, [0, 2, 4]] == X[0, [0, 2, 4]]).all(axis=1)
    p = np.exp(oracle.log_density(A, b, c, V[fits]))
    exact = p @ V[fits] / p.sum()
    found = machine().impute(X, method="gibbs", n_steps=4000)
    np.testing.assert_allclose(found[0], exact, atol=0.03)
    np.testing.assert_array_equal(
        machine().impute(X, method="gibbs", n_steps=50),
        machine().impute(np.repeat(X, 3, axis=0), method="gibbs", n_steps=50)[:1],
    )
    assert np.all((machine().impute(X) > 0) == (exact > 0))


# -- seeds, checkpoints, files ------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"persistent": True, "validation_fraction": 0.2, "patience": 50}])
def test_killed_fit_resumes_bit_for_bit(options, tmp_path):
    X = binary_rows(60)
    options = {"max_iter": 8, "batch_size": 10, "random_state": 3, "tol": 0.0, **options}
    whole = RBM(H, **options).fit(X)
    kept = {"checkpoint": tmp_path / "state", "checkpoint_every": 2}
    with pytest.raises(Killed):
        RBM(H, **options, **kept, callbacks=[killer(5)]).fit(X)
    resumed = RBM(H, **options, **kept).fit(X)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(resumed.history_, whole.history_)


def test_validation_rows_decide_on_stopping():
    options = {"max_iter": 300, "learning_rate": 0.3, "batch_size": 10, "random_state": 0}
    model = RBM(H, validation_fraction=0.3, patience=5, tol=0.01, **options).fit(binary_rows(100))
    validation = model.losses_["validation log-likelihood"]
    assert model.converged_ and model.n_iter_ == np.argmax(validation) + 1 < model.n_passes_ < 300


def test_partial_fit_of_one_batch_is_an_epoch_of_fit():
    X = binary_rows()
    options = {"max_iter": 2, "batch_size": 10, "random_state": 0, "persistent": True}
    whole = RBM(H, **options).fit(X)
    parts = RBM(H, **options).partial_fit(X).partial_fit(X)
    np.testing.assert_array_equal(parts.components_, whole.components_)
    np.testing.assert_array_equal(parts.history_, whole.history_)


def test_saved_file_holds_the_parameters_and_no_state_of_the_training(tmp_path):
    model = RBM(H, max_iter=2, random_state=0).fit(binary_rows())
    model.save(tmp_path / "rbm")
    arrays = latently.core.io.read(tmp_path / "rbm")[1]
    assert {name for name in arrays if name.startswith("parts")} == {
        f"parts.module.{name}" for name in ("components", "intercept_visible", "intercept_hidden")
    }


# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (3.0 * binary_rows(), {}, r"binary visible units need X in \[0, 1\].*from 0 to 3"),
        (binary_rows() - 0.5, {}, "from -0.5 to 0.5"),
        (np.where(binary_rows() > 2, 0, np.nan), {}, "NaN"),
        (binary_rows()[:1], {}, "minimum of 2|1 sample"),
        (binary_rows(), {"label_units": 3}, "last label_units=3 columns of X must sum to one"),
        (binary_rows(), {"label_units": 5}, "fewer than the 5 columns"),
        (binary_rows(), {"components_init": np.zeros((2, 2))}, r"components_init has shape \(2, 2\)"),
        (binary_rows(), {"device": "cuda"} if not torch.cuda.is_available() else {"device": "gpu"}, "device"),
    ],
)
def test_bad_input(X, options, message):
    with pytest.raises(ValueError, match=message):
        RBM(H, **options).fit(X)


def test_rows_outside_are_refused_in_files_and_by_methods(tmp_path):
    np.save(tmp_path / "X.npy", 2.0 * binary_rows())
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        RBM(H).fit(tmp_path / "X.npy")
    for method in ("transform", "score_samples", "gibbs", "impute"):
        with pytest.raises(ValueError, match=r"in \[0, 1\]"):
            getattr(machine(), method)(2.0 * binary_rows())
    with pytest.raises(ValueError, match="would list 2\\^40 states"):
        RBM(40, max_iter=0).fit(binary_rows(D=41)).log_partition("exact")
    with pytest.raises(ValueError, match='needs visible="binary"'):
        machine(visible="gaussian").pseudo_log_likelihood(binary_rows())
    assert seed_of(0) == seed_of(0)
