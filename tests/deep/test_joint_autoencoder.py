"""Joint autoencoders against exact formulas in NumPy; how they classify, generate and reject."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

import latently
from latently.deep import JointAutoencoder
from tests.training.helpers import Killed, killer

D = 6
SMALL = {"hidden_layer_sizes": (5,), "batch_size": 30, "random_state": 0}
both = pytest.mark.parametrize("variational", [False, True], ids=["deterministic", "variational"])


def rows(n=150, seed=0):
    """Three classes, named, in units of a hundred."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 3
    centres = 3.0 * np.random.default_rng(7).normal(size=(3, D))
    return 100.0 * (5.0 + centres[codes] + rng.normal(size=(n, D))), np.array(["a", "b", "c"])[codes]


def layers(net, X):
    """Linear layers with tanh between them, in float64."""
    linear = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    for number, layer in enumerate(linear):
        X = X @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
        X = np.tanh(X) if number < len(linear) - 1 else X
    return X


def coded(model, X):
    """Codes, their variances (zero if deterministic) and reconstructions."""
    module = model.module_
    mean, scale = module.mean.double().numpy(), float(module.scale)
    out = layers(module.encoder, (X - mean) / scale)
    if model.variational:
        Z, variance = out[:, : model.n_factors], np.exp(out[:, model.n_factors :])
    else:
        norm = module.normalisation
        Z = (out - norm.running_mean.double().numpy()) / np.sqrt(norm.running_var.double().numpy() + norm.eps)
        variance = np.zeros_like(Z)
    return Z, variance, mean + scale * layers(module.decoder, Z)


def class_log_joint(model, Z):
    parameters = zip(model.class_prior_, model.means_, model.covariances_, strict=True)
    return np.column_stack([np.log(p) + multivariate_normal(m, S).logpdf(Z) for p, m, S in parameters])


# -- the pass after training ---------------------------------------------------------------------------


@both
@pytest.mark.parametrize("given", ["labels", "weights", "some labels", "file"])
def test_final_pass_is_over_all_rows(variational, given, tmp_path):
    X, y = rows()
    rng = np.random.default_rng(3)
    weight = rng.integers(1, 4, size=len(X)) * 1.0 if given == "weights" else np.ones(len(X))
    codes = np.searchsorted(["a", "b", "c"], y)
    if given == "some labels":
        codes[rng.random(len(X)) < 0.3] = -1
    model = JointAutoencoder(2, variational=variational, covariance_shrinkage=0.1, max_iter=2, **SMALL)
    if given == "file":
        np.save(tmp_path / "rows.npy", X)
    model.fit(tmp_path / "rows.npy" if given == "file" else X, codes, weight if given == "weights" else None)
    Z, variance, rebuilt = coded(model, X)
    close = {"rtol": 1e-7, "atol": 1e-9}
    np.testing.assert_allclose(model.transform(X), Z, **close)
    np.testing.assert_allclose(model.reconstruct(X), rebuilt, **close)
    counts = np.array([weight[codes == c].sum() for c in range(3)])
    np.testing.assert_allclose(model.class_count_, counts, **close)
    np.testing.assert_allclose(model.class_prior_, counts / counts.sum(), **close)
    for c in range(3):
        own = codes == c
        share = weight[own] / weight[own].sum()
        mean = share @ Z[own]
        S = (share[:, None] * (Z[own] - mean)).T @ (Z[own] - mean) + np.diag(share @ variance[own])
        np.testing.assert_allclose(model.means_[c], mean, **close)
        expected = 0.9 * S + 0.1 * np.trace(S) / 2 * np.eye(2)
        np.testing.assert_allclose(model.covariances_[c], expected, **close)
    error = ((X - rebuilt) ** 2).mean(axis=1)
    assert model.noise_variance_ == pytest.approx(weight @ error / weight.sum(), rel=1e-7)
    if not variational and given in ("labels", "some labels", "file"):  # codes have a fixed unit
        np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-5)
        np.testing.assert_allclose(Z.var(axis=0), 1.0, rtol=1e-3)


@both
def test_posteriors_and_scores(variational):
    X, y = rows()
    model = JointAutoencoder(2, variational=variational, max_iter=8, **SMALL).fit(X, y)
    Z, _, rebuilt = coded(model, X)
    joint = class_log_joint(model, Z)
    np.testing.assert_allclose(model.predict_proba(X), softmax(joint, axis=1), rtol=1e-7, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), np.array(["a", "b", "c"])[joint.argmax(axis=1)])
    latent = logsumexp(joint, axis=1)
    likelihood = multivariate_normal(np.zeros(D), model.noise_variance_ * np.eye(D)).logpdf(X - rebuilt)
    found = model.rejection_scores(X)
    expected = {
        "joint": latent + likelihood,
        "latent": latent,
        "reconstruction": likelihood,
        "max_softmax": softmax(joint, axis=1).max(axis=1),
        "mahalanobis": -np.min(
            [
                np.einsum("ni,ij,nj->n", Z - m, np.linalg.inv(S), Z - m)
                for m, S in zip(model.means_, model.covariances_, strict=True)
            ],
            axis=0,
        ),
    }
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-7, atol=1e-9, err_msg=name)
    np.testing.assert_array_equal(model.score_samples(X), found["joint"])
    np.testing.assert_allclose(model.latent_mixture_.score_samples(Z), latent, rtol=1e-8)


# -- the loss --------------------------------------------------------------------------------------------


def quadrature_kl(m, v, mu, S):
    """KL of N(m, diag v) from N(mu, S) in two dimensions."""
    q, p = multivariate_normal(m, np.diag(v)), multivariate_normal(mu, S)
    line = np.linspace(-9, 9, 401)
    grid = m + np.stack(np.meshgrid(line, line), axis=-1) * np.sqrt(v)
    step = (line[1] - line[0]) ** 2 * np.sqrt(v.prod())
    return float((q.pdf(grid) * (q.logpdf(grid) - p.logpdf(grid))).sum() * step)


def test_divergences_from_classes_in_closed_form():
    X, y = rows()
    module = JointAutoencoder(2, variational=True, max_iter=3, **SMALL).fit(X, y).module_.double()
    with torch.no_grad():
        module.lower += torch.tril(0.5 * torch.ones(2, 2), -1)
        m, log_v = module.posterior(torch.from_numpy(X[:4]))
        found = module.class_divergences(m, log_v).numpy()
        mu, S = module.means.numpy(), module.covariances().numpy()
    for n in range(4):
        for c in range(3):
            expected = quadrature_kl(m[n].numpy(), np.exp(log_v[n].numpy()), mu[c], S[c])
            assert found[n, c] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("labelled", [True, False], ids=["labels", "some labels"])
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
def test_loss_of_a_batch(labelled, weighted):
    """All rows as one batch, parameters that do not move: the first loss is that of the formula."""
    X, y = rows(60)
    rng = np.random.default_rng(0)
    codes = np.searchsorted(["a", "b", "c"], y)
    if not labelled:
        codes[rng.random(60) < 0.4] = -1
    weight = rng.integers(1, 4, size=60) * 1.0 if weighted else np.ones(60)
    still = SMALL | {"batch_size": 100, "learning_rate": 0.0, "max_iter": 1}
    model = JointAutoencoder(2, generation_weight=0.3, classification_weight=2.0, **still)
    model.fit(X, codes, weight if weighted else None)
    module = model.module_
    mean, scale = module.mean.double().numpy(), float(module.scale)
    out = layers(module.encoder, (X - mean) / scale)
    Z = (out - out.mean(axis=0)) / np.sqrt(out.var(axis=0) + 1e-5)
    rebuilt = mean + scale * layers(module.decoder, Z)
    prior = np.array([weight[codes == c].sum() for c in range(3)])
    mu, S = module.means.detach().numpy(), module.covariances().detach().numpy()
    joint = np.log(prior / prior.sum()) + np.column_stack(
        [multivariate_normal(mu[c], S[c]).logpdf(Z) for c in range(3)]
    )
    total = logsumexp(joint, axis=1)
    own = np.where(codes >= 0, joint[np.arange(60), codes], total)
    likelihood = multivariate_normal(np.zeros(D), scale**2 * np.eye(D)).logpdf(X - rebuilt)
    expected = weight @ (0.3 * (-likelihood - own) + 2.0 * (total - own)) / weight.sum()
    assert model.history_[0] == pytest.approx(expected, rel=1e-4)


@both
def test_loss_falls_and_classes_are_told(variational):
    X, y = rows()
    model = JointAutoencoder(2, variational=variational, max_iter=40, **SMALL).fit(X, y)
    assert model.history_[-1] < model.history_[0]
    assert model.score(*rows(seed=1)) > 0.95
    assert set(model.losses_) == {*("loss", "cross-entropy", "log density of codes", "log density of rows")}


def test_unlabelled_rows_help():
    X, y = rows(300)
    few = np.where(np.arange(300) < 12, np.searchsorted(["a", "b", "c"], y), -1)
    model = JointAutoencoder(2, max_iter=40, **SMALL)
    test, truth = rows(seed=1)
    accuracy = model.fit(X, few).score(test, np.searchsorted(["a", "b", "c"], truth))
    alone = model.fit(X[:12], few[:12]).score(test, np.searchsorted(["a", "b", "c"], truth))
    assert accuracy >= alone and accuracy > 0.9


# -- digits: what it is for ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X, y, np.arange(len(X)) % 3 == 0


@both
def test_classifies_generates_and_rejects(variational, digits):
    X, y, test = digits
    known = y != 5
    train, usual, odd = known & ~test, known & test, ~known
    model = JointAutoencoder(
        8, variational=variational, hidden_layer_sizes=(64,), batch_size=50, max_iter=20, random_state=0
    ).fit(X[train], y[train])
    assert model.score(X[usual], y[usual]) > 0.95
    judge = SVC().fit(X[known], y[known])
    wanted = np.repeat(model.classes_, 30)
    assert judge.score(model.generate(wanted, random_state=0), wanted) > 0.9
    score = {
        name: roc_auc_score(known[test | odd], s) for name, s in model.rejection_scores(X[test | odd]).items()
    }
    assert score["joint"] > 0.85
    half = np.flatnonzero(usual)
    model.calibrate_rejection(X[half[::2]], acceptance=0.9)
    assert 0.8 < model.accepts(X[half[1::2]]).mean() < 0.97
    assert model.accepts(X[odd]).mean() < 0.6
    assert np.mean(model.predict(X[odd]) == -1) == np.mean(~model.accepts(X[odd]))


def test_generated_rows_are_decoded_draws():
    X, y = rows()
    model = JointAutoencoder(2, max_iter=10, **SMALL).fit(X, y)
    made = model.generate(["b"] * 4000, random_state=0)
    direct = model.inverse_transform(
        np.random.default_rng(1).multivariate_normal(model.means_[1], model.covariances_[1], size=4000)
    )
    np.testing.assert_allclose(made.mean(axis=0), direct.mean(axis=0), atol=0.1 * direct.std())
    np.testing.assert_allclose(made.std(axis=0), direct.std(axis=0), rtol=0.1)
    np.testing.assert_array_equal(
        model.generate(["c", "a"], random_state=3), model.generate(["c", "a"], random_state=3)
    )


# -- networks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8, 8), (1, 28, 28), (3, 9, 11), (33, 40)], ids=str)
def test_layers_of_the_source(shape):
    n = int(np.prod(shape))
    X = np.random.default_rng(0).random((12, n))
    model = JointAutoencoder(4, image_shape=shape, architecture="source", max_iter=1, random_state=0)
    model.fit(X, np.arange(12) % 2)
    assert model.reconstruct(X).shape == (12, n)
    assert model.reconstruct(X).min() >= 0.0 and model.reconstruct(X).max() <= 1.0
    with pytest.raises(ValueError, match=r'architecture="source" needs images in \[0, 1\]'):
        model.fit(255.0 * X, np.arange(12) % 2)


def test_layers_of_the_source_as_printed():
    """003, 6.2.2: the tables for MNIST and for urban land cover."""
    X, y = np.random.default_rng(0).random((12, 784)), np.arange(12) % 2
    model = JointAutoencoder(4, image_shape=(28, 28), architecture="source", max_iter=0).fit(X, y)
    kinds = torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear
    found = [tuple(m.weight.shape) for m in model.module_.modules() if isinstance(m, kinds)]
    assert found == [
        *((28, 1, 5, 5), (64, 28, 3, 3), (128, 64, 3, 3), (32, 2048), (4, 32)),
        *((32, 4), (2048, 32), (128, 64, 3, 3), (64, 28, 3, 3), (28, 1, 5, 5)),
    ]
    model = JointAutoencoder(10, architecture="source", max_iter=0).fit(X[:, :147], y)
    found = [tuple(m.weight.shape) for m in model.module_.modules() if isinstance(m, kinds)]
    assert found == [(64, 147), (12, 64), (10, 12), (12, 10), (64, 12), (147, 64)]


def test_convolutions_and_own_networks(tmp_path):
    X, y = load_digits(n_class=3, return_X_y=True)
    model = JointAutoencoder(3, image_shape=(8, 8), hidden_layer_sizes=(4, 8), max_iter=3, random_state=0)
    model.fit(X, y).save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    own = {"encoder": torch.nn.Linear(64, 3), "decoder": torch.nn.Linear(3, 64)}
    model = JointAutoencoder(3, **own, max_iter=2, random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="encoder and decoder"):
        model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model", **own)
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))


# -- training --------------------------------------------------------------------------------------------


@both
def test_killed_fit_resumes_bit_for_bit(variational, tmp_path):
    X, y = rows(80)
    options = {**SMALL, "variational": variational, "max_iter": 6}
    whole = JointAutoencoder(2, **options).fit(X, y)
    kept = {"checkpoint": tmp_path / "state", "checkpoint_every": 2}
    with pytest.raises(Killed):
        JointAutoencoder(2, **options, **kept, callbacks=[killer(5)]).fit(X, y)
    resumed = JointAutoencoder(2, **options, **kept).fit(X, y)
    np.testing.assert_array_equal(resumed.history_, whole.history_)
    np.testing.assert_array_equal(resumed.score_samples(X), whole.score_samples(X))


def test_partial_fit_of_batches_with_few_classes(tmp_path):
    X, y = rows(300)
    model = JointAutoencoder(2, **SMALL)
    parts = [np.flatnonzero(y != c) for c in ("c", "a", "b")]  # of two classes each
    model.partial_fit(X[parts[0]], y[parts[0]], classes=["c", "a", "b"])
    assert list(model.classes_) == ["a", "b", "c"] and set(model.predict(X)) == {"a", "b"}
    for _ in range(12):
        for part in parts:
            model.partial_fit(X[part], y[part])
    assert model.n_iter_ == 37
    assert model.score(*rows(seed=1)) > 0.9
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model").partial_fit(X, y)
    assert again.score(*rows(seed=1)) > 0.9
    with pytest.raises(ValueError, match="'d', which is not among"):
        model.partial_fit(X[:2], ["a", "d"])


def test_gaussians_that_rows_make_singular_are_saved_to_the_last_digit(tmp_path):
    X, y = rows(60)
    X[y == "a"] = X[y == "a"][:1]
    for seed in range(3):
        model = JointAutoencoder(4, **SMALL | {"max_iter": 2, "random_state": seed}).fit(X, y)
        model.save(tmp_path / "model")
        again = latently.load(tmp_path / "model")
        np.testing.assert_array_equal(again.covariances_, model.covariances_)
        np.testing.assert_array_equal(again.predict_log_proba(X), model.predict_log_proba(X))


def test_threshold_and_gaussians_are_saved(tmp_path):
    X, y = rows()
    model = JointAutoencoder(2, max_iter=3, **SMALL).fit(X, y)
    model.calibrate_rejection(rows(seed=1)[0], acceptance=0.8)
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.reject_below_ == model.reject_below_ and "rejected" in again.predict(X)
    for name in ("class_count_", "class_prior_", "means_", "covariances_", "noise_variance_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))


# -- what breaks others ----------------------------------------------------------------------------------


def test_clear_errors():
    X, y = rows()
    model = JointAutoencoder(2, max_iter=1, **SMALL)
    with pytest.raises(ValueError, match=r"class 'd' has 1 row\(s\), but the Gaussian of a class"):
        model.fit(X, np.append(y[:-1], "d"))
    with pytest.raises(ValueError, match="n_factors=8 needs at least 8 rows, but X has n_samples=6"):
        JointAutoencoder(8).fit(X[:6], y[:6])
    with pytest.raises(ValueError, match="every row is unlabelled"):
        model.fit(X, np.full(len(X), -1.0).astype(object))
    with pytest.raises(ValueError, match="at least 2 classes"):
        model.fit(X, np.full(len(X), "a"))
    with pytest.raises(ValueError, match="has 64 pixels, but X has 6 columns"):
        JointAutoencoder(image_shape=(8, 8)).fit(X, y)
    with pytest.raises(ValueError, match="nothing to learn"):
        JointAutoencoder(generation_weight=0, classification_weight=0).fit(X, y)
    model.fit(X, y)
    with pytest.raises(ValueError, match="'z', which is not among"):
        model.generate(["z"])
    before = model.score_samples(X)
    with pytest.raises(ValueError):
        model.fit(X, y[:-1])
    np.testing.assert_array_equal(model.score_samples(X), before)


@both
def test_constant_columns_duplicates_and_outliers(variational):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(30, 4)) * np.logspace(-6, 6, 4)
        X = np.column_stack([np.repeat(X[:15], 2, axis=0), np.full(30, 7.0)])
        X[0] *= 1e3
        model = JointAutoencoder(
            3, variational=variational, hidden_layer_sizes=(6,), batch_size=7, max_iter=3, random_state=seed
        ).fit(X, np.arange(30) % 2)
        assert np.isfinite(model.score_samples(X)).all()
        assert np.isfinite(model.latent_mixture_.score_samples(model.transform(X))).all()
    same = model.fit(np.ones((10, 3)), np.arange(10) % 2)
    assert np.isfinite(same.score_samples(np.ones((10, 3)))).all()
