"""Deep autoencoding Gaussian mixtures against exact formulas in NumPy."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.metrics import roc_auc_score

import latently
from latently.deep import DAGMM
from tests.training.helpers import Killed, killer

D = 6
SMALL = {"hidden_layer_sizes": (5,), "estimation_layer_sizes": (4,), "batch_size": 40, "random_state": 0}
LONGER = {**SMALL, "contamination": 0.05, "learning_rate": 0.01, "max_iter": 40}


def rows(n=200, seed=0):
    """Near a plane, of different units."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ np.random.default_rng(9).normal(size=(2, D)) + 0.1 * rng.normal(size=(n, D))
    return 10.0 + X * np.logspace(-2, 2, D)


def odd_rows(n=100, seed=1):
    return 10.0 + np.random.default_rng(seed).normal(size=(n, D)) * np.logspace(-2, 2, D)


@pytest.fixture(scope="module")
def fitted():
    return DAGMM(3, 2, **LONGER).fit(rows())


# -- the networks and the final statistics, written anew in NumPy ----------------------------------------


def layers(net, X):
    """Linear layers with tanh between them, in float64."""
    linear = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    for number, layer in enumerate(linear):
        X = X @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
        X = np.tanh(X) if number < len(linear) - 1 else X
    return X


def features(model, X):
    """Codes and features of the error, not standardised."""
    module = model.module_
    x = (X - module.mean.double().numpy()) / module.scale.double().numpy()
    c = layers(module.encoder, x)
    y = layers(module.decoder, c)
    length = np.linalg.norm(x, axis=1)
    relative = np.linalg.norm(x - y, axis=1) / np.maximum(length, 0.01 * np.sqrt(x.shape[1]))
    cosine = (x * y).sum(axis=1) / (length * np.linalg.norm(y, axis=1))
    return np.column_stack([c, relative, cosine])


def expected_mixture(model, X, weight, shrinkage):
    """z, memberships and the mixture of all rows."""
    raw = features(model, X)
    share = weight / weight.sum()
    z = (raw - share @ raw) / np.sqrt(share @ (raw - share @ raw) ** 2)
    v = layers(model.module_.estimator, z)
    resp = np.exp(v - logsumexp(v, axis=1, keepdims=True))
    r = resp * weight[:, None]
    means = (r.T @ z) / r.sum(axis=0)[:, None]
    covariances = []
    for k in range(r.shape[1]):
        S = (r[:, k, None] * (z - means[k])).T @ (z - means[k]) / r[:, k].sum()
        d = len(S)
        covariances.append((1 - shrinkage) * S + shrinkage * np.trace(S) / d * np.eye(d))
    return z, resp, r.sum(axis=0) / r.sum(), means, np.array(covariances)


def expected_energy(z, weights, means, covariances):
    parts = [
        np.log(w) + multivariate_normal(m, S).logpdf(z)
        for w, m, S in zip(weights, means, covariances, strict=True)
    ]
    return -logsumexp(parts, axis=0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("in_memory", [True, False])
def test_final_statistics_are_those_of_all_rows(weighted, in_memory, tmp_path):
    X = rows()
    weight = np.random.default_rng(5).integers(1, 4, size=len(X)) * 1.0 if weighted else np.ones(len(X))
    model = DAGMM(3, 2, covariance_shrinkage=0.07, max_iter=2, **SMALL)
    np.save(tmp_path / "rows.npy", X)
    model.fit(X if in_memory else tmp_path / "rows.npy", sample_weight=weight if weighted else None)
    z, resp, weights, means, covariances = expected_mixture(model, X, weight, 0.07)
    close = {"rtol": 1e-8, "atol": 1e-9}
    np.testing.assert_allclose(model.transform(X), z, **close)
    np.testing.assert_allclose(model.memberships(X), resp, **close)
    np.testing.assert_allclose(model.weights_, weights, **close)
    np.testing.assert_allclose(model.means_, means, **close)
    np.testing.assert_allclose(model.covariances_, covariances, **close)
    energy = expected_energy(z, weights, means, covariances)
    np.testing.assert_allclose(model.energy(X), energy, **close)
    np.testing.assert_allclose(model.score_samples(X), -energy, **close)
    method = {"weights": weight, "method": "inverted_cdf"} if weighted else {}
    assert model.offset_ == pytest.approx(np.quantile(-energy, 0.1, **method))


def test_decisions(fitted):
    X = np.vstack([rows(), odd_rows()])
    score = fitted.score_samples(X)
    np.testing.assert_array_equal(fitted.decision_function(X), score - fitted.offset_)
    np.testing.assert_array_equal(fitted.predict(X), np.where(score < fitted.offset_, -1, 1))
    assert np.mean(fitted.predict(rows()) == -1) == pytest.approx(0.05)
    assert roc_auc_score(np.repeat([1, 0], [200, 100]), score) > 0.9
    np.testing.assert_array_equal(DAGMM(3, 2, **LONGER).fit_predict(rows()), fitted.predict(rows()))


def test_latent_mixture_scores_and_samples(fitted):
    mixture = fitted.latent_mixture_
    z = fitted.transform(rows())
    np.testing.assert_allclose(mixture.score_samples(z), fitted.score_samples(rows()), rtol=1e-9)
    drawn = mixture.sample(20000, random_state=0)[0]
    np.testing.assert_allclose(drawn.mean(axis=0), fitted.weights_ @ fitted.means_, atol=0.05)
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(z.std(axis=0), 1.0, rtol=1e-12)


def test_reconstruction_is_in_the_units_of_the_rows(fitted):
    X = rows()
    module = fitted.module_
    c = features(fitted, X)[:, :2]
    mean, scale = module.mean.double().numpy(), module.scale.double().numpy()
    expected = mean + scale * layers(module.decoder, c)
    np.testing.assert_allclose(fitted.reconstruct(X), expected, rtol=1e-9)
    np.testing.assert_allclose(fitted.inverse_transform(fitted.transform(X)), expected, rtol=1e-9)


# -- training --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_loss_of_a_batch(weighted):
    """All rows as one batch, parameters that do not move: the first loss is that of the formula."""
    X = rows(80)
    weight = np.random.default_rng(5).integers(1, 4, size=80) * 1.0 if weighted else np.ones(80)
    options = {"energy_weight": 0.3, "covariance_penalty": 0.02, "covariance_shrinkage": 0.05}
    model = DAGMM(2, 1, **options, **SMALL | {"batch_size": 100, "learning_rate": 0.0, "max_iter": 1})
    model.fit(X, sample_weight=weight if weighted else None)
    z, _, *mixture = expected_mixture(model, X, weight, 0.05)
    x = (X - module_array(model, "mean")) / module_array(model, "scale")
    error = (x - layers(model.module_.decoder, features(model, X)[:, :1])) ** 2
    penalty = sum((1 / np.diag(S)).sum() for S in mixture[2])
    share = weight / weight.sum()
    expected = share @ error.sum(axis=1) + 0.3 * share @ expected_energy(z, *mixture) + 0.02 * penalty
    assert model.history_[0] == pytest.approx(expected, rel=2e-3)  # float32, with variances a bit larger
    assert model.losses_["penalty"][0] == pytest.approx(penalty, rel=5e-3)


def module_array(model, name):
    return getattr(model.module_, name).double().numpy()


def test_loss_falls(fitted):
    assert fitted.history_[-1] < fitted.history_[0] - 1
    assert set(fitted.losses_) == {"loss", "squared error", "energy", "penalty"}


def test_killed_fit_resumes_bit_for_bit(tmp_path):
    X = rows(80)
    options = {**SMALL, "max_iter": 6}
    whole = DAGMM(2, 1, **options).fit(X)
    kept = {"checkpoint": tmp_path / "state", "checkpoint_every": 2}
    with pytest.raises(Killed):
        DAGMM(2, 1, **options, **kept, callbacks=[killer(5)]).fit(X)
    resumed = DAGMM(2, 1, **options, **kept).fit(X)
    np.testing.assert_array_equal(resumed.history_, whole.history_)
    np.testing.assert_array_equal(resumed.score_samples(X), whole.score_samples(X))


def test_partial_fit_goes_on():
    X = rows()
    model = DAGMM(2, 2, learning_rate=0.01, **SMALL)
    for _ in range(40):
        model.partial_fit(X)
    assert model.n_iter_ == 40 and model.history_[-1] < model.history_[0]
    assert roc_auc_score(np.repeat([1, 0], [200, 100]), model.score_samples(np.vstack([X, odd_rows()]))) > 0.9
    again = DAGMM(2, 2, warm_start=True, max_iter=1, **SMALL).fit(X).fit(X)
    assert again.history_[0] < DAGMM(2, 2, max_iter=1, **SMALL).fit(X).history_[0]


def test_saved_model_goes_on(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    np.testing.assert_array_equal(again.score_samples(rows()), fitted.score_samples(rows()))
    assert again.offset_ == fitted.offset_
    again.partial_fit(rows())
    assert np.isfinite(again.score_samples(rows())).all()


def test_images():
    X = np.random.default_rng(0).random((40, 64))
    model = DAGMM(2, 2, image_shape=(8, 8), hidden_layer_sizes=(3, 4), max_iter=2, random_state=0).fit(X)
    assert model.transform(X).shape == (40, 4) and model.reconstruct(X).shape == X.shape


# -- what breaks others ----------------------------------------------------------------------------------


def strange(kind, rng):
    n, p = int(rng.integers(6, 60)), int(rng.integers(1, 8))
    X = rng.normal(size=(n, p))
    return {
        "plain": X,
        "few rows": X[:5],
        "one column": X[:, :1],
        "constant columns": np.column_stack([X, np.full(n, 3.0), np.zeros(n)]),
        "all rows the same": np.repeat(X[:1], n, axis=0),
        "two values": rng.integers(2, size=(n, p)) * 1.0,
        "duplicates": np.repeat(X[: n // 2 + 1], 3, axis=0),
        "a line": X[:, :1] * np.arange(1.0, p + 1),
        "outliers": np.vstack([X, 1e6 * rng.normal(size=(2, p))]),
        "tiny and huge": X * np.logspace(-12, 12, p),
    }[kind]


KINDS = (
    *("plain", "few rows", "one column", "constant columns", "all rows the same"),
    *("two values", "duplicates", "a line", "outliers", "tiny and huge"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_no_fit_fails(kind):
    """100 random data sets: fits end, every score is finite, mixtures can be scored."""
    for seed in range(10):
        rng = np.random.default_rng([KINDS.index(kind), seed])
        X = strange(kind, rng)
        options = {"batch_size": int(rng.integers(2, 30)), "max_iter": 3, "random_state": seed}
        options["learning_rate"] = 10.0 ** rng.uniform(-3, -1)
        shrinkage = float(rng.choice([0.0, 0.01]))
        model = DAGMM(int(rng.integers(1, 5)), int(rng.integers(1, 4)), **options)
        model.set_params(hidden_layer_sizes=(8,), covariance_shrinkage=shrinkage).fit(X)
        assert np.isfinite(model.score_samples(X)).all()
        assert np.isfinite(model.latent_mixture_.score_samples(model.transform(X))).all()


def test_scores_of_distant_rows_are_not_tied(fitted):
    """Densities below 1e-308 underflow, and logs of them would tie such rows; energies do not."""
    linear = DAGMM(2, 2, **LONGER | {"hidden_layer_sizes": ()}).fit(rows())
    far = np.linspace(1.0, 3000.0, 200)[:, None]
    for model, least in ((fitted, 5.0), (linear, 1e5)):  # hidden units bound the codes, and so energies
        energy = model.energy(rows(1)[0] + far * np.logspace(-2, 2, D) * np.array([1, -1, 1, 1, -1, 1]))
        assert np.isfinite(energy).all() and len(np.unique(energy)) == len(far)
        assert energy.max() > least


def test_columns_that_float32_cannot_resolve_are_told():
    X = rows(60) + np.array([0, 1e9, 0, 0, 0, 0])
    with pytest.warns(UserWarning, match="feature 1 of X varies by .* about 1e.09"):
        DAGMM(2, 1, max_iter=1, **SMALL).fit(X)
    DAGMM(2, 1, max_iter=1, **SMALL).fit(X - X.mean(axis=0))


@pytest.mark.parametrize("contamination", [0.0, 0.5, 0.7, -0.1, "auto"])
def test_contamination_out_of_range(contamination):
    with pytest.raises(ValueError, match="contamination"):
        DAGMM(contamination=contamination).fit(rows())


def test_clear_errors(fitted):
    with pytest.raises(ValueError, match="needs at least 10 rows, but X has n_samples=7"):
        DAGMM(2, 8, **SMALL).fit(rows(7))
    with pytest.raises(ValueError, match="has 64 pixels, but X has 6 columns"):
        DAGMM(image_shape=(8, 8)).fit(rows())
    with pytest.raises(ValueError, match="columns"):
        fitted.inverse_transform(np.zeros((3, 2)))
    before = fitted.score_samples(rows())
    with pytest.raises(ValueError, match="NaN"):
        fitted.fit(np.full((30, D), np.nan))
    np.testing.assert_array_equal(fitted.score_samples(rows()), before)
