"""Tensors in, tensors out: every mixture on torch, on the CPU and on a CUDA device where there is one."""

import numpy as np
import pytest
from sklearn.base import clone

import latently
from latently.mixture import MFA, GaussianMixture
from tests.contracts.models import ALL, FACTOR, rows

torch = pytest.importorskip("torch")

CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
)
every_device = pytest.mark.parametrize("device", ["cpu", CUDA])
every_model = pytest.mark.parametrize("model", ALL, ids=str)
every_factor_model = pytest.mark.parametrize("model", FACTOR, ids=str)
SETTINGS = {"max_iter": 8, "tol": 0.0, "random_state": 0}


def tensor(array, device):
    return torch.asarray(array, device=device)


def close(ours, theirs, device, tolerance=1e-9):
    """A tensor on the device with the values of a NumPy array."""
    assert isinstance(ours, torch.Tensor)
    assert ours.device.type == device
    np.testing.assert_allclose(ours.cpu().numpy(), theirs, rtol=tolerance, atol=tolerance)


def data(model, seed=0, N=60, D=5):
    """Rows with holes, weights, and labels where there is more than one component."""
    rng = np.random.default_rng(seed)
    X = rows(rng, N, D)
    X[rng.random(X.shape) < 0.15] = np.nan
    X[:10] = rows(rng, 10, D)
    y = None
    if not model.one_component:
        y = np.full(N, -1)
        y[:6] = np.arange(6) % 2
    return X, y, rng.uniform(0.2, 3.0, size=N)


def attributes(estimator):
    return {name: array for name, array in vars(estimator).items() if hasattr(array, "shape")}


@every_device
@every_model
def test_a_fit_of_tensors_is_that_of_arrays(model, device):
    X, y, weight = data(model)
    for given in ((X[:10],), (X,), (X, y, weight)):
        settings = {**SETTINGS, "accelerate": None}  # long strides multiply what differs in the last digits
        here = model.unfitted(2, 2, **settings).fit(*given)
        there = model.unfitted(2, 2, **settings).fit(tensor(given[0], device), *given[1:])
        close(there.history_, here.history_, device)
        for name in here._fitted_arrays():
            close(getattr(there, f"{name}_"), getattr(here, f"{name}_"), device)


@every_device
@every_model
def test_results_are_tensors_where_the_rows_are(model, device):
    X, _, weight = data(model)
    here = model.known(model.example(np.random.default_rng(1), 5, 2, 2))
    there = here.to(device)
    T = tensor(X, device)
    for method in ("score_samples", "predict_proba", "impute"):
        close(getattr(there, method)(T), getattr(here, method)(X), device)
    labels = there.predict(T)
    assert labels.device.type == device
    np.testing.assert_array_equal(labels.cpu().numpy(), here.predict(X))
    for method in ("score", "bic", "aic", "icl"):
        assert getattr(there, method)(T) == pytest.approx(getattr(here, method)(X), rel=1e-9)
    assert there.score(T, sample_weight=tensor(weight, device)) == pytest.approx(
        here.score(X, sample_weight=weight), rel=1e-9
    )
    drawn, components = there.sample(7, random_state=0)
    close(drawn, here.sample(7, random_state=0)[0], device)
    assert components.device.type == device
    filled = there.impute(T, n_draws=1, random_state=0)[0]
    close(filled, here.impute(X, n_draws=1, random_state=0)[0], device)
    observed = ~np.isnan(X)
    np.testing.assert_array_equal(filled.cpu().numpy()[observed], X[observed])


@every_device
@every_factor_model
def test_factors_of_tensors(model, device):
    X = data(model)[0]
    here = model.known(model.example(np.random.default_rng(1), 5, 2, 2))
    there, T = here.to(device), tensor(X, device)
    for method in ("transform", "reconstruct"):
        close(getattr(there, method)(T), getattr(here, method)(X), device)
    for X_, T_ in ((X, T), (X[:10], T[:10])):
        for ours, theirs in zip(there.factor_posterior(T_), here.factor_posterior(X_), strict=True):
            close(ours, theirs, device)
    close(there.covariances_, here.covariances_, device)
    z = here.transform(X)
    close(there.inverse_transform(tensor(z, device)), here.inverse_transform(z), device)
    if not model.common_loadings:
        labels = np.zeros(len(z), dtype=int)
        close(there.inverse_transform(tensor(z, device), labels), here.inverse_transform(z, labels), device)


@every_device
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int64", "float16"])
def test_dtypes_of_tensors(dtype, device):
    X = np.random.default_rng(0).integers(0, 30, size=(50, 3)).astype(dtype)
    here = GaussianMixture(2, **SETTINGS).fit(X)
    there = GaussianMixture(2, **SETTINGS).fit(tensor(X, device))
    close(there.means_, here.means_, device)


@every_device
def test_chunks_blocks_and_acceleration_on_tensors(device):
    X = tensor(rows(np.random.default_rng(0), 80, 4), device)
    whole = MFA(2, 1, **SETTINGS).fit(X)
    blocks = MFA(2, 1, block_size=17, **SETTINGS).fit(X)
    torch.testing.assert_close(blocks.history_, whole.history_, rtol=1e-11, atol=0.0)
    fast = MFA(2, 1, accelerate="squarem", **SETTINGS).fit(X)
    assert torch.diff(fast.history_).min() > -1e-10
    online = MFA(2, 1, **SETTINGS).partial_fit(X[:40]).partial_fit(X[40:])
    assert online.means_.device.type == device
    batches = MFA(2, 1, batch_size=20, prior=None, **SETTINGS).fit(X)
    assert batches.score(X) == pytest.approx(float(batches.history_[-1]))


@every_device
def test_files_hold_numbers_wherever_they_were(device, tmp_path):
    X = rows(np.random.default_rng(0), 50, 4)
    model = MFA(2, 1, **SETTINGS).fit(tensor(X, device))
    model.save(tmp_path / "model")
    loaded = latently.load(tmp_path / "model")
    np.testing.assert_allclose(
        loaded.score_samples(X), model.score_samples(tensor(X, device)).cpu().numpy(), rtol=1e-9
    )


@every_device
def test_a_fit_can_begin_again_from_tensors(device):
    X = tensor(rows(np.random.default_rng(0), 50, 4), device)
    model = GaussianMixture(2, warm_start=True, **SETTINGS).fit(X)
    before = float(model.history_[-1])
    assert float(model.fit(X).history_[0]) == pytest.approx(before, rel=1e-9)
    given = clone(model).set_params(means_init=model.means_, warm_start=False).fit(X)
    assert given.means_.device.type == device


def test_mixed_places_are_an_error_that_says_what_to_do():
    X = rows(np.random.default_rng(0), 50, 4)
    arrays, tensors = (
        GaussianMixture(2, **SETTINGS).fit(X),
        GaussianMixture(2, **SETTINGS).fit(torch.asarray(X)),
    )
    with pytest.raises(
        ValueError, match=r"predict.*parameters are torch on cpu.*model = model.to\('numpy'\)"
    ):
        tensors.predict(X)
    with pytest.raises(ValueError, match=r"predict.*parameters are NumPy.*model = model.to\('cpu'\)"):
        arrays.predict(torch.asarray(X))
    np.testing.assert_array_equal(tensors.to("numpy").predict(X), arrays.to("cpu").predict(torch.asarray(X)))
    assert isinstance(tensors.means_, torch.Tensor)  # the copy was moved, not the model


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_arrays_after_a_fit_on_cuda():
    X = rows(np.random.default_rng(0), 50, 4)
    model = GaussianMixture(2, **SETTINGS).fit(torch.asarray(X, device="cuda"))
    for given in (X, torch.asarray(X)):
        with pytest.raises(ValueError, match="cuda"):
            model.predict(given)


@pytest.mark.parametrize(
    "bad, message",
    [
        (torch.zeros(5), "2D"),
        (torch.zeros((0, 3)), "0 sample"),
        (torch.zeros((5, 0)), "0 feature"),
        (torch.zeros((5, 2), dtype=torch.complex64), "real numbers"),
        (torch.full((5, 2), torch.inf), "infinity"),
        (torch.full((5, 2), torch.nan), "missing"),
    ],
    ids=["one dimension", "no rows", "no features", "complex", "infinite", "nothing observed"],
)
def test_bad_tensors(bad, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixture(2).fit(bad)


def test_tensors_of_another_width():
    model = GaussianMixture(1).fit(torch.randn(20, 3, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"4 features.*expecting 3"):
        model.predict(torch.randn(5, 4, dtype=torch.float64))


def test_tf32_stays_off_inside_and_comes_back():
    seen = []
    note = lambda iteration: seen.append(torch.get_float32_matmul_precision())
    X = torch.randn(30, 3, dtype=torch.float64)
    original = torch.get_float32_matmul_precision()
    inside = []
    multiply = torch.Tensor.__matmul__

    def watched(a, b):
        inside.append(torch.get_float32_matmul_precision())
        return multiply(a, b)

    torch.set_float32_matmul_precision("high")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "__matmul__", watched)
            MFA(2, 1, dtype="float32", callbacks=[note], **SETTINGS).fit(X)
        assert "highest" in inside
        assert seen[-1] == torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(original)
