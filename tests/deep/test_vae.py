"""Variational autoencoders against PPCA, quadrature and the exact density of linear ones."""

import numpy as np
import pytest
import torch
from scipy.special import expit, logsumexp
from scipy.stats import multivariate_normal, norm
from torch import nn

import latently
from latently.core.io import ModelFileError
from latently.deep import VAE
from latently.deep.draws import RowDraws
from latently.mixture import MFA, PPCA, GaussianMixture
from tests.training.helpers import Killed, killer

D = 5
QUICK = {"max_iter": 4, "batch_size": 20, "random_state": 0}


def linear_rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return 3.0 + rng.normal(size=(n, 2)) @ rng.normal(size=(2, D)) + 0.4 * rng.normal(size=(n, D))


def binary_rows(n=120, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.random((n, D)) < np.where(np.arange(D) % 2 == rng.integers(2, size=(n, 1)), 0.9, 0.1)) * 1.0


@pytest.fixture(scope="module")
def linear():
    return VAE(
        2,
        hidden_layer_sizes=(),
        max_iter=80,
        learning_rate=0.03,
        batch_size=50,
        learning_rate_schedule="cosine",
        random_state=0,
    ).fit(linear_rows())


def exact_density(model, X):
    """ln p(x) of a linear decoder."""
    mean = model.inverse_transform(np.zeros((1, 2)))[0]
    L = model.inverse_transform(np.eye(2)) - mean
    return multivariate_normal(mean, L.T @ L + model.noise_variance_ * np.eye(D)).logpdf(X)


# -- densities ---------------------------------------------------------------------------------------


def test_linear_decoder_finds_ppca(linear):
    X = linear_rows()
    best = PPCA(2).fit(X).score(X)
    assert best - 0.03 < linear.bound(X).mean() < best
    assert linear.noise_variance_ == pytest.approx(0.16, rel=0.15)
    assert linear.history_.shape == (80,) and linear.history_[-1] > linear.history_[0]


def test_bound_importance_sampling_and_truth_are_in_order(linear):
    X = linear_rows(100, seed=1)
    truth = exact_density(linear, X)
    found = linear.estimate_log_density(X, n_samples=2000)
    assert np.all(found.standard_error > 0)
    assert np.all(np.abs(found.value - truth) < 5 * found.standard_error + 1e-9)
    np.testing.assert_array_equal(found.value, linear.score_samples(X, n_samples=2000))
    assert linear.bound(X, n_samples=500).mean() < found.value.mean()
    # with one draw it is the bound on average, and more draws come closer to the truth
    few = np.mean([linear.score_samples(X, n_samples=1, random_state=seed).mean() for seed in range(50)])
    assert few < found.value.mean() and abs(few - linear.bound(X, n_samples=1000).mean()) < 0.05


def test_kl_divergence_in_closed_form(linear):
    m, v = linear.factor_posterior(linear_rows(3))
    line = np.linspace(-15, 15, 200001)
    for row, found in enumerate(linear.kl_divergence(linear_rows(3))):
        parts = []
        for j in range(2):
            q = norm(m[row, j], np.sqrt(v[row, j]))
            parts.append(np.trapezoid(q.pdf(line) * (q.logpdf(line) - norm.logpdf(line)), line))
        assert found == pytest.approx(sum(parts), abs=1e-8)
    np.testing.assert_array_equal(linear.transform(linear_rows(3)), m)


@pytest.mark.parametrize("prior", ["normal", MFA(2, 1, max_iter=20, n_init=1)], ids=["normal", "MFA"])
def test_bernoulli_density_by_quadrature(prior):
    X = binary_rows()
    model = VAE(1, hidden_layer_sizes=(4,), likelihood="bernoulli", prior=prior, **QUICK)
    with pytest.warns(UserWarning) if prior != "normal" else _nothing():
        model.fit(X)
    line = np.linspace(-12, 12, 4001)[:, None]
    log_prior = norm.logpdf(line)[:, 0] if prior == "normal" else model.prior_.score_samples(line)
    P = model.inverse_transform(line)
    log_p = X[:10] @ np.log(P).T + (1 - X[:10]) @ np.log1p(-P).T
    truth = logsumexp(log_p + log_prior, axis=1) + np.log(line[1, 0] - line[0, 0])
    found = model.estimate_log_density(X[:10], n_samples=4000)
    np.testing.assert_allclose(found.value, truth, atol=5 * found.standard_error.max())
    assert np.all(model.bound(X[:10], n_samples=4000) < truth + 0.01)
    drawn, codes = model.sample(4000, random_state=0)
    assert set(np.unique(drawn)) == {0.0, 1.0} and codes.shape == (4000, 1)
    if prior != "normal":
        assert abs(codes.mean() - model.prior_.sample(4000, random_state=1)[0].mean()) < 0.2


class _nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


def test_standard_normal_given_as_a_mixture_changes_nothing():
    X = binary_rows(40)
    model = VAE(2, hidden_layer_sizes=(3,), likelihood="bernoulli", **QUICK).fit(X)
    bound, score = model.bound(X, n_samples=3000), model.score_samples(X, n_samples=50)
    model.prior_ = GaussianMixture.from_parameters(
        weights=[1.0], means=np.zeros((1, 2)), covariances=[np.eye(2)]
    )
    np.testing.assert_allclose(model.score_samples(X, n_samples=50), score, rtol=1e-10)
    np.testing.assert_allclose(model.bound(X, n_samples=3000), bound, atol=0.15)  # its KL is by draws
    assert abs(model.bound(X, n_samples=3000).mean() - bound.mean()) < 0.02


def test_mixture_of_codes_is_a_better_prior():
    """Two groups of rows, of which codes have a gap between them."""
    rng = np.random.default_rng(0)
    X = np.repeat([[-4.0] * D, [4.0] * D], 200, axis=0) + 0.3 * rng.normal(size=(400, D))
    options = {"hidden_layer_sizes": (8,), "max_iter": 25, "batch_size": 20, "random_state": 0}
    normal, mixture = (VAE(1, prior=prior, **options).fit(X) for prior in ("normal", "mixture"))
    for name, value in normal.module_.state_dict().items():
        assert torch.equal(mixture.module_.state_dict()[name], value)
    assert mixture.score_samples(X).mean() > normal.score_samples(X).mean() + 0.05
    drawn = mixture.sample(300, random_state=0)[0].mean(axis=1)
    assert np.mean(np.abs(np.abs(drawn) - 4) < 1) > 0.9


def test_units_of_the_rows_count(linear):
    X = linear_rows(50)
    options = {"hidden_layer_sizes": (4,), **QUICK}
    one, other = VAE(2, **options).fit(X), VAE(2, **options).fit(1000.0 * X)
    np.testing.assert_allclose(
        other.score_samples(1000.0 * X), one.score_samples(X) - D * np.log(1000.0), atol=0.2
    )
    assert other.noise_variance_ == pytest.approx(1e6 * one.noise_variance_, rel=1e-3)


def test_draws_belong_to_rows(linear):
    X = linear_rows(60)
    whole = linear.score_samples(X, n_samples=30)
    np.testing.assert_allclose(linear.score_samples(X[[7]], n_samples=30), whole[[7]], rtol=1e-10)
    assert np.all(whole != linear.score_samples(X, n_samples=30, random_state=1))
    draws = RowDraws(torch.from_numpy(X), 0)
    many = np.concatenate([draws.normal(400, 2).numpy().ravel(), draws.normal(3).numpy().ravel()])
    assert abs(many.mean()) < 0.02 and abs(many.std() - 1) < 0.02
    uniform = draws.uniform(500).numpy()
    assert np.abs(np.corrcoef(uniform[:20])[np.triu_indices(20, 1)]).max() < 0.25
    assert abs(np.quantile(uniform, 0.25) - 0.25) < 0.01


# -- training ----------------------------------------------------------------------------------------


def test_warm_up_weighs_the_divergence():
    X = linear_rows(100)
    plain, warm = (VAE(2, hidden_layer_sizes=(4,), warm_up=n, **QUICK).fit(X) for n in (0, 4))
    assert set(plain.losses_) == {"loss", "ELBO", "KL"}
    np.testing.assert_allclose(plain.losses_["loss"], -plain.losses_["ELBO"], rtol=1e-6)
    share = np.array([0.25, 0.5, 0.75, 1.0])
    missing = warm.losses_["loss"] + warm.losses_["ELBO"] + (1 - share) * warm.losses_["KL"]
    np.testing.assert_allclose(missing, 0.0, atol=1e-4)


def test_rows_are_binarised_anew_in_every_epoch():
    X = np.full((200, D), 0.5)
    model = VAE(
        1, hidden_layer_sizes=(), likelihood="bernoulli", binarize=True, learning_rate=0.0, **QUICK
    ).fit(X)
    assert len(set(np.round(model.history_, 6))) == 4
    with pytest.raises(ValueError, match="binarize=True needs"):
        VAE(binarize=True).fit(X)


@pytest.mark.parametrize("options", [{}, {"prior": "mixture", "validation_fraction": 0.2, "patience": 50}])
def test_killed_fit_resumes_bit_for_bit(options, tmp_path):
    X = linear_rows(80)
    options = {"hidden_layer_sizes": (4,), **QUICK, "max_iter": 8, "tol": 0.0, **options}
    whole = VAE(2, **options).fit(X)
    kept = {"checkpoint": tmp_path / "state", "checkpoint_every": 2}
    with pytest.raises(Killed):
        VAE(2, **options, **kept, callbacks=[killer(5)]).fit(X)
    resumed = VAE(2, **options, **kept).fit(X)
    np.testing.assert_array_equal(resumed.history_, whole.history_)
    np.testing.assert_array_equal(resumed.score_samples(X, n_samples=5), whole.score_samples(X, n_samples=5))


def test_cosine_schedule_ends_with_small_steps():
    seen = []
    options = {"hidden_layer_sizes": (), "learning_rate_schedule": "cosine", **QUICK, "max_iter": 10}
    model = VAE(2, **options)
    earlier = model.set_params(callbacks=[lambda it: seen.append(it.objective)]).fit(linear_rows(60))
    assert earlier.n_iter_ == 10 and abs(seen[-1] - seen[-2]) < abs(seen[1] - seen[0])


@pytest.mark.parametrize(("shape", "width"), [((4, 5), 20), ((3, 3, 2), 18), ((7, 3), 21)])
def test_convolutions_take_images_of_any_size(shape, width):
    X = np.random.default_rng(0).random((30, width))
    model = VAE(2, image_shape=shape, hidden_layer_sizes=(3, 4), likelihood="bernoulli", **QUICK).fit(X)
    assert model.reconstruct(X).shape == X.shape
    assert any(isinstance(part, nn.ConvTranspose2d) for part in model.module_.modules())
    with pytest.raises(ValueError, match="pixels, but X has"):
        VAE(image_shape=(9, 9)).fit(X)


def test_networks_of_the_user(tmp_path):
    X = linear_rows(60)
    encoder = nn.Sequential(nn.Linear(D, 7), nn.Dropout(0.1), nn.ReLU(), nn.Linear(7, 4))
    decoder = nn.Linear(2, D)
    before, state = decoder.weight.clone(), torch.get_rng_state()
    model = VAE(2, encoder=encoder, decoder=decoder, **QUICK).fit(X)
    assert torch.equal(decoder.weight, before) and torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(model.module_.decoder.weight, before)
    with pytest.warns(UserWarning, match=r"latently.load\(path, encoder=..., decoder=...\)"):
        model.save(tmp_path / "vae")
    with pytest.raises(ModelFileError, match="modules of your own"):
        latently.load(tmp_path / "vae")
    again = latently.load(tmp_path / "vae", encoder=encoder, decoder=decoder)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    with pytest.raises(ModelFileError, match=r"match|shape"):
        latently.load(tmp_path / "vae", encoder=nn.Linear(D, 4), decoder=decoder)
    with pytest.raises(ValueError, match=r"encoder must return a tensor of shape \(2, 4\)"):
        VAE(2, encoder=nn.Linear(D, 3), decoder=decoder).fit(X)
    VAE(1, hidden_layer_sizes=(2,), **QUICK).fit(X).save(tmp_path / "other")
    with pytest.raises(TypeError, match="needs no encoder"):
        latently.load(tmp_path / "other", encoder=encoder)


def test_imputed_entries_are_conditional_means(linear):
    X = linear_rows(100)
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, X)
    holes[0] = np.nan
    filled = linear.impute(holes, n_samples=2000)
    missing = np.isnan(holes)
    np.testing.assert_array_equal(filled[~missing], X[~missing])
    mean = linear.inverse_transform(np.zeros((1, 2)))[0]
    L = linear.inverse_transform(np.eye(2)) - mean
    covariance = L.T @ L + linear.noise_variance_ * np.eye(D)
    for row in range(20):
        m, o = missing[row], ~missing[row]
        exact = mean[m]
        if o.any():
            gain = covariance[np.ix_(m, o)] @ np.linalg.inv(covariance[np.ix_(o, o)])
            exact = mean[m] + gain @ (X[row, o] - mean[o])
        np.testing.assert_allclose(filled[row, m], exact, atol=0.15)


def test_partial_fit_continues_with_the_same_optimiser():
    X = linear_rows(60)
    whole = VAE(2, hidden_layer_sizes=(4,), **QUICK | {"max_iter": 3}).fit(X)
    parts = VAE(2, hidden_layer_sizes=(4,), **QUICK)
    for _ in range(3):
        parts.partial_fit(X)
    np.testing.assert_array_equal(parts.history_, whole.history_)
    np.testing.assert_array_equal(parts.transform(X), whole.transform(X))


def test_decoder_is_what_it_says():
    X = binary_rows()
    model = VAE(2, hidden_layer_sizes=(4,), likelihood="bernoulli", **QUICK).fit(X)
    Z = np.random.default_rng(0).normal(size=(6, 2))
    (first, _, second) = model.module_.decoder
    W1, b1, W2, b2 = (
        p.detach().double().numpy() for p in (first.weight, first.bias, second.weight, second.bias)
    )
    np.testing.assert_allclose(
        model.inverse_transform(Z), expit(np.tanh(Z @ W1.T + b1) @ W2.T + b2), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("X", "options", "message"),
    [
        (linear_rows(), {"likelihood": "bernoulli"}, r"needs X in \[0, 1\]"),
        (linear_rows(), {"architecture": "conv"}, "needs image_shape"),
        (np.where(linear_rows() > 5, np.nan, 1.0), {}, "NaN"),
        (linear_rows(), {"prior": "flat"}, "prior must be"),
        (linear_rows()[:1], {}, "minimum of 2|1 sample"),
        (linear_rows(), {"device": "cuda"} if not torch.cuda.is_available() else {"device": "gpu"}, "device"),
    ],
)
def test_bad_input(X, options, message):
    with pytest.raises(ValueError, match=message):
        VAE(**options).fit(X)
