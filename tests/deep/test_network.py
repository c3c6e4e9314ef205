"""Estimators that are torch modules, by two small ones: everything but the model is that of the base."""

import pickle
import sys
import types
from dataclasses import KW_ONLY

import numpy as np
import pytest
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import latently
from latently.core import io
from latently.core.drivers import Objective
from latently.core.io import ModelFileError
from latently.deep.network import NetworkEstimator
from latently.estimators.checks import check_integer
from latently.estimators.options import estimator, option
from latently.saved import KNOWN_CLASSES
from tests.training.helpers import ContrastiveMean, Killed, correlated_rows, killer


@estimator
class LinearAutoencoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, NetworkEstimator):
    """Rows through a few linear factors and back.

    Parameters
    ----------
    n_factors : int, default=2
        Number of factors.
    noise : float, default=0.0
        Standard deviation of noise that is added to the rows in training.
    {options}
    """

    n_factors: int = option(default=2, check=check_integer, least=1)
    _: KW_ONLY
    noise: float = 0.0

    def _module(self, n_features):
        return nn.ModuleDict(
            {
                "encoder": nn.Linear(n_features, self.n_factors),
                "decoder": nn.Linear(self.n_factors, n_features),
            }
        )

    def _losses(self, module, batch):
        X = batch.X + self.noise * torch.randn_like(batch.X)
        error = ((module["decoder"](module["encoder"](X)) - batch.X) ** 2).sum(dim=1)
        return {"loss": batch.mean(error), "largest": error.detach().max()}

    def transform(self, X, *, out=None):
        return self.rows_through(lambda module, X: module["encoder"](X), X, out)

    def predict(self, X):
        return self.rows_through(lambda module, X: module["encoder"](X).argmax(dim=1), X)

    @property
    def _n_features_out(self):
        return self.n_factors


@estimator
class Centre(NetworkEstimator):
    """N(mean, I), with a step that updates the mean itself.

    Parameters
    ----------
    {options}
    """

    objective = Objective("log density per row")
    watched = "log-likelihood"

    def _module(self, n_features):
        return ContrastiveMean(n_features)

    def _optimizer(self, module):
        return None

    def _losses(self, module, batch):
        return module.step(batch, self.learning_rate)


@estimator
class Regression(NetworkEstimator):
    """A linear regression, which needs targets.

    Parameters
    ----------
    {options}
    """

    def _module(self, n_features):
        return nn.Linear(n_features, 1)

    def _optimizer(self, module):
        return torch.optim.SGD(module.parameters(), lr=self.learning_rate)

    def _targets(self, y):
        return np.asarray(y, dtype=np.float64)

    def _losses(self, module, batch):
        return {"loss": batch.mean((module(batch.X)[:, 0] - batch.y) ** 2)}


QUICK = {"learning_rate": 0.02, "max_iter": 6, "batch_size": 32, "random_state": 0}


def same_parameters(one, other):
    ours, theirs = one.module_.state_dict(), other.module_.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


# -- fitting -------------------------------------------------------------------------------------------


def test_finds_the_subspace_of_the_rows():
    X = correlated_rows()
    model = LinearAutoencoder(2, **QUICK | {"max_iter": 150}).fit(X)
    assert model.history_.shape == (150,) and model.n_iter_ == model.n_passes_ == 150
    assert model.losses_.keys() == {"loss", "largest"} and not model.converged_
    assert model.history_[-1] < 0.02 * model.history_[0]
    back = model.rows_through(lambda module, X: module["decoder"](module["encoder"](X)), X)
    residual = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[2:]
    assert np.sum((X - back) ** 2) < 1.5 * np.sum(residual**2)
    assert not model.module_.training


def test_seed_decides_and_global_generators_are_left_alone():
    X = correlated_rows()
    ours, numpys = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    one, same, other = (
        LinearAutoencoder(noise=0.1, **QUICK | {"random_state": seed}).fit(X) for seed in (0, 0, 1)
    )
    assert same_parameters(one, same) and not same_parameters(one, other)
    assert one.history_.tolist() == same.history_.tolist()
    assert torch.equal(torch.get_rng_state(), ours)
    np.testing.assert_array_equal(np.random.get_state()[1], numpys)  # noqa: NPY002
    generators = [np.random.default_rng(3), np.random.default_rng(3)]
    one, same = (LinearAutoencoder(**QUICK | {"random_state": seed}).fit(X) for seed in generators)
    assert same_parameters(one, same)


def test_no_epochs_keep_the_initial_parameters():
    model = LinearAutoencoder(max_iter=0).fit(correlated_rows())
    assert model.history_.shape == (0,) and model.n_passes_ == 0
    assert model.transform(correlated_rows()).shape == (120, 2)


def test_module_that_updates_itself():
    X = correlated_rows() + 4.0
    model = Centre(learning_rate=0.1, batch_size=20, max_iter=40, random_state=0).fit(X)
    assert np.abs(model.module_.mean.numpy() - X.mean(axis=0)).max() < 0.4
    assert model.history_[-1] > model.history_[0]
    patient = Centre(learning_rate=0.1, batch_size=20, max_iter=500, patience=5, random_state=0).fit(X)
    assert patient.n_iter_ == np.argmax(patient.losses_["log-likelihood"]) + 1  # the largest is the best


def test_smallest_batch(monkeypatch):
    monkeypatch.setattr(LinearAutoencoder, "min_batch_size", 2)
    with pytest.raises(ValueError, match="batch_size=1 must be at least min_batch_size=2"):
        LinearAutoencoder(batch_size=1).fit(correlated_rows())


def test_trains_on_the_device_that_was_named():
    X = correlated_rows()
    model = LinearAutoencoder(**QUICK, device="cuda")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device='cuda' needs a GPU"):
            model.fit(X)
        return
    assert next(model.fit(X).module_.parameters()).is_cuda
    assert isinstance(model.transform(X), np.ndarray)
    np.testing.assert_allclose(model.to("cpu").transform(X), model.transform(X), rtol=1e-4, atol=1e-5)


def test_targets():
    X = correlated_rows()
    y = X @ np.arange(5.0) + 1.0
    model = Regression(**QUICK | {"max_iter": 200}).fit(X, y)
    assert model.history_[-1] < 1e-2 * model.history_[0]
    with pytest.raises(ValueError, match="one entry per row"):
        Regression(**QUICK).fit(X, y[1:])


def test_weights():
    X = correlated_rows()
    weight = np.random.default_rng(0).integers(0, 3, size=120).astype(float)
    full = QUICK | {"batch_size": 1000}
    weighted = LinearAutoencoder(**full).fit(X, sample_weight=weight)
    repeated = LinearAutoencoder(**full).fit(np.repeat(X, weight.astype(int), axis=0))
    np.testing.assert_allclose(weighted.history_, repeated.history_, rtol=1e-5)
    assert abs(weighted.history_[-1] / LinearAutoencoder(**full).fit(X).history_[-1] - 1) > 1e-3


def test_early_stopping_keeps_the_best_epoch():
    X = correlated_rows()
    options = QUICK | {"max_iter": 500, "validation_fraction": 0.25, "patience": 4, "tol": 1e-2}
    model = LinearAutoencoder(noise=0.5, **options).fit(X)
    validation = model.losses_["validation loss"]
    assert model.converged_ and model.n_passes_ == len(validation) < 500
    assert model.n_iter_ == len(model.history_) == np.argmin(validation) + 1
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=3"):
        LinearAutoencoder(**options | {"max_iter": 3}).fit(X)


def test_warm_start_continues_and_leaves_the_earlier_module_alone():
    X = correlated_rows()
    model = LinearAutoencoder(**QUICK | {"warm_start": True}).fit(X)
    earlier, arrays = model.module_, {k: v.clone() for k, v in model.module_.state_dict().items()}
    first = model.history_
    model.fit(X)
    assert model.history_[0] < first[-1]
    assert all(torch.equal(earlier.state_dict()[name], arrays[name]) for name in arrays)
    with pytest.raises(ValueError, match="warm_start needs the sizes of the earlier fit"):
        model.fit(X[:, :3])
    assert model.n_features_in_ == 5


def test_callbacks_end_the_fit_and_interrupts_keep_it(capsys):
    seen = []
    model = LinearAutoencoder(**QUICK, callbacks=[lambda it: seen.append(it.objective) or it.number == 3])
    assert model.fit(correlated_rows()).n_iter_ == 3
    assert model.history_.tolist() == seen

    def interrupt(iteration):
        if iteration.number == 2:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted; it keeps the parameters of iteration 2"):
        model = LinearAutoencoder(**QUICK, callbacks=[interrupt]).fit(correlated_rows())
    assert model.n_iter_ == 2 and same_parameters(
        model, LinearAutoencoder(**QUICK | {"max_iter": 2}).fit(correlated_rows())
    )
    LinearAutoencoder(**QUICK, verbose=1).fit(correlated_rows())
    assert "loss per row" in capsys.readouterr().out
    assert "loss per row" in model._repr_html_()


def test_step_that_diverges_leaves_the_model_unchanged():
    X = correlated_rows()
    model = LinearAutoencoder(**QUICK | {"warm_start": True}).fit(X)
    before = model.transform(X)
    with pytest.raises(FloatingPointError, match="learning_rate"):
        model.set_params(learning_rate=1e30).fit(X)
    np.testing.assert_array_equal(model.transform(X), before)
    with pytest.raises(FloatingPointError, match="not finite after the last epoch"):
        Regression(**QUICK | {"learning_rate": 1e37, "max_iter": 1, "batch_size": 1000}).fit(
            1e4 * X, 1e4 * X[:, 0]
        )


# -- checkpoints ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("early_stopping", [{}, {"validation_fraction": 0.2, "patience": 100}])
def test_killed_fit_resumes_bit_for_bit(tmp_path, early_stopping):
    X, path = correlated_rows(), tmp_path / "state"
    options = QUICK | early_stopping | {"noise": 0.1, "max_iter": 9, "tol": 0.0}
    whole = LinearAutoencoder(**options).fit(X)
    model = LinearAutoencoder(**options, checkpoint=path, checkpoint_every=2, callbacks=[killer(5)])
    with pytest.raises(Killed):
        model.fit(X)
    assert path.exists() and not hasattr(model, "module_")
    with pytest.raises(ValueError, match="belongs to a fit with other data"):
        clone(model).fit(X + 1.0)
    with pytest.raises(ValueError, match="other learning_rate"):
        clone(model).set_params(learning_rate=0.1).fit(X)
    epochs = []
    resumed = model.set_params(callbacks=[lambda iteration: epochs.append(iteration.number)]).fit(X)
    assert epochs == [5, 6, 7, 8, 9] and not path.exists()
    assert same_parameters(resumed, whole) and resumed.n_passes_ == whole.n_passes_
    assert resumed.history_.tolist() == whole.history_.tolist()
    assert {k: v.tolist() for k, v in resumed.losses_.items()} == {
        k: v.tolist() for k, v in whole.losses_.items()
    }


def test_checkpoint_belongs_to_its_targets(tmp_path):
    X, path = correlated_rows(), tmp_path / "state"
    model = Regression(**QUICK, checkpoint=path, checkpoint_every=1, callbacks=[killer(3)])
    with pytest.raises(Killed):
        model.fit(X, X[:, 0])
    with pytest.raises(ValueError, match="belongs to a fit with other data"):
        model.fit(X, X[:, 1])
    with pytest.raises(ValueError, match=r"random_state .with checkpoint and validation_fraction. must be"):
        model.set_params(validation_fraction=0.2, random_state=None).fit(X, X[:, 0])


# -- rows from anywhere --------------------------------------------------------------------------------


def test_rows_of_files_and_tensors(tmp_path):
    X = correlated_rows()
    np.save(tmp_path / "X.npy", X)
    path = str(tmp_path / "X.npy")
    model = LinearAutoencoder(**QUICK).fit(X)
    from_file, from_tensor = (
        LinearAutoencoder(**QUICK).fit(path),
        LinearAutoencoder(**QUICK).fit(torch.tensor(X)),
    )
    assert same_parameters(model, from_file) and same_parameters(model, from_tensor)
    codes = model.transform(X)
    assert isinstance(codes, np.ndarray) and codes.dtype == np.float64
    np.testing.assert_array_equal(model.transform(path), codes)
    of_tensor = model.transform(torch.tensor(X, requires_grad=True))
    assert torch.is_tensor(of_tensor) and of_tensor.dtype == torch.float64 and not of_tensor.requires_grad
    np.testing.assert_array_equal(of_tensor.numpy(), codes)
    written = model.transform(path, out=tmp_path / "codes.npy")
    assert isinstance(written, np.memmap)
    np.testing.assert_array_equal(written, codes)
    np.testing.assert_array_equal(model.predict(X), codes.argmax(axis=1))
    assert model.predict(X).dtype == np.int64
    blocks = clone(model).set_params(block_size=7).fit(X).transform(X)
    np.testing.assert_allclose(blocks, codes, rtol=1e-4, atol=1e-5)


def test_dask_arrays():
    dask_array = pytest.importorskip("dask.array")
    X = correlated_rows()
    model = LinearAutoencoder(**QUICK).fit(dask_array.from_array(X, chunks=(50, 5)))
    assert model.history_[-1] < model.history_[0]
    codes = model.transform(dask_array.from_array(X, chunks=(50, 5)))
    np.testing.assert_allclose(np.asarray(codes), model.transform(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("source", ["array", "tensor", "file"])
def test_missing_and_infinite_entries_are_refused(tmp_path, value, source):
    X = correlated_rows()
    model = LinearAutoencoder(**QUICK).fit(X)
    X[70, 2] = value
    if source == "tensor":
        X = torch.tensor(X)
    if source == "file":
        np.save(tmp_path / "X.npy", X)
        X = str(tmp_path / "X.npy")
    for method in (LinearAutoencoder(**QUICK).fit, model.transform):
        with pytest.raises(ValueError, match="NaN" if np.isnan(value) else "infinity"):
            method(X)


def test_values_beyond_float32_are_refused():
    X = correlated_rows()
    X[3, 3] = 1e39
    with pytest.raises(ValueError, match=r"too large for dtype..float32"):
        LinearAutoencoder(**QUICK).fit(X)


# -- files and devices ---------------------------------------------------------------------------------


@pytest.fixture
def known(monkeypatch):
    """The autoencoder, as if it were a class of latently."""
    module = types.ModuleType("latently.deep.toy")
    module.LinearAutoencoder = LinearAutoencoder
    monkeypatch.setitem(sys.modules, "latently.deep.toy", module)
    monkeypatch.setitem(KNOWN_CLASSES, "LinearAutoencoder", "latently.deep.toy")
    monkeypatch.setattr(LinearAutoencoder, "__module__", "latently.deep.toy")


def test_saved_and_loaded_is_the_same(known, tmp_path):
    X = correlated_rows()
    model = LinearAutoencoder(3, **QUICK, validation_fraction=0.2).fit(X)
    model.save(tmp_path / "model")
    before = torch.get_rng_state()
    loaded = latently.load(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), before)
    assert same_parameters(model, loaded) and loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    assert loaded.history_.tolist() == model.history_.tolist()
    assert {k: v.tolist() for k, v in loaded.losses_.items()} == {
        k: v.tolist() for k, v in model.losses_.items()
    }
    for name in ("n_iter_", "n_passes_", "converged_", "n_features_in_"):
        assert getattr(loaded, name) == getattr(model, name)
    assert vars(loaded).keys() == vars(model).keys() and not loaded.module_.training
    with pytest.raises(NotFittedError):
        LinearAutoencoder().save(tmp_path / "nothing")


def n_features(size):
    return lambda header, arrays: header["more"].update(n_features=size)


def weight(change):
    name = "parts.module.encoder.weight"
    return lambda header, arrays: arrays.update({name: change(arrays[name])})


@pytest.mark.parametrize(
    "damage",
    [
        weight(lambda array: array[:, 1:]),
        weight(lambda array: array.astype(np.float64)),
        weight(lambda array: array * np.float32(np.nan)),
        lambda header, arrays: arrays.pop("parts.module.decoder.bias"),
        lambda header, arrays: arrays.update({"parts.module.more": np.zeros(2)}),
        lambda header, arrays: header["more"].pop("n_features"),
        lambda header, arrays: header["more"].update(losses={"loss": ["a"]}),
        lambda header, arrays: header["more"].update(losses=[1.0]),
        lambda header, arrays: header["hyper_parameters"].update(n_factors=10**9),
        *(n_features(size) for size in (4, 0, "5", 10**11)),
    ],
)
def test_file_with_other_tensors_is_refused(known, tmp_path, damage):
    LinearAutoencoder(**QUICK).fit(correlated_rows()).save(tmp_path / "model")
    header, arrays = io.read(tmp_path / "model")
    damage(header, arrays)
    io.write(tmp_path / "model", header, arrays)
    with pytest.raises(ModelFileError):
        latently.load(tmp_path / "model")


def test_copies_to_devices():
    X = correlated_rows()
    model = LinearAutoencoder(**QUICK).fit(X)
    codes = model.transform(X)
    for device in ("cpu", "numpy"):
        moved = model.to(device)
        np.testing.assert_array_equal(moved.transform(X), codes)
        with torch.no_grad():
            moved.module_["encoder"].weight.zero_()
    np.testing.assert_array_equal(model.transform(X), codes)
    assert all(tensor.is_meta for tensor in model.to("meta").module_.state_dict().values())
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(X), codes)


# -- as scikit-learn has it ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_iter": -1}, "max_iter"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": None}, "batch_size"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"validation_fraction": 0.0}, "validation_fraction=0.0 leaves no rows"),
        ({"validation_fraction": 1.5}, "validation_fraction"),
        ({"validation_fraction": 0.001}, "validation fraction of 0.001"),
        ({"patience": 0}, "patience"),
        ({"device": "gpu"}, 'device must be "auto" or a device of torch'),
        ({"device": None}, "device must be"),
        ({"n_factors": 0}, "n_factors"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        LinearAutoencoder(**options).fit(correlated_rows())


def test_options_of_em_are_no_options_here():
    params = LinearAutoencoder().get_params()
    assert not params.keys() & {"n_init", "accelerate", "learning_decay", "learning_offset"}
    assert all(f"\n{name} : " in LinearAutoencoder.__doc__ for name in params)
    assert "EM" not in LinearAutoencoder.__doc__.split()
    with pytest.raises(TypeError):
        LinearAutoencoder(n_init=2)


def test_not_fitted():
    with pytest.raises(NotFittedError):
        LinearAutoencoder().transform(correlated_rows())
    with pytest.raises(NotFittedError):
        LinearAutoencoder().to("cpu")


@parametrize_with_checks(
    [LinearAutoencoder(2, max_iter=2, random_state=0)],
    expected_failed_checks=lambda model: {
        "check_sample_weight_equivalence_on_dense_data": "batches differ from those of repeated rows",
    },
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
