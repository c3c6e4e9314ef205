"""Model files: what comes back is what was saved, bit for bit, or a clear error; nothing is ever run."""

import json
import os
import pickle
import stat
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy

import latently
from latently.core import io
from latently.core.io import ModelFileError
from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture

FAST = dict(random_state=0, tol=1e-3)
MODELS = {
    "full": lambda: GaussianMixture(2, covariance_type="full", **FAST),
    "tied": lambda: GaussianMixture(2, covariance_type="tied", **FAST),
    "diag": lambda: GaussianMixture(2, covariance_type="diag", **FAST),
    "spherical": lambda: GaussianMixture(2, covariance_type="spherical", **FAST),
    "fa": lambda: FactorAnalysis(2, **FAST),
    "ppca": lambda: PPCA(2, **FAST),
    "mfa": lambda: MFA(2, 2, **FAST),
    "mfa-shared": lambda: MFA(2, 2, shared_noise=True, **FAST),
    "mfa-isotropic": lambda: MFA(2, 2, noise="isotropic", **FAST),
    "mfa-isotropic-shared": lambda: MFA(2, 2, noise="isotropic", shared_noise=True, **FAST),
    "mfa-0": lambda: MFA(2, 0, **FAST),
    "mfa-float32": lambda: MFA(2, 2, dtype="float32", **FAST),
    "mppca": lambda: MPPCA(2, 2, **FAST),
    "mppca-shared": lambda: MPPCA(2, 2, shared_noise=True, **FAST),
    "mppca-0": lambda: MPPCA(2, 0, **FAST),
    "mcfa": lambda: MCFA(2, 2, **FAST),
}
X = np.random.default_rng(0).standard_normal((60, 4)) + 5.0 * np.arange(60)[:, None] % 10


def assert_same(again, model):
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    np.testing.assert_array_equal(again.sample(5, random_state=1)[0], model.sample(5, random_state=1)[0])
    fitted = {k: v for k, v in vars(model).items() if k.endswith("_")}
    assert set(fitted) == {k for k in vars(again) if k.endswith("_")}
    for name, value in fitted.items():
        np.testing.assert_array_equal(getattr(again, name), value, err_msg=name)
    ours, theirs = model.get_params(), again.get_params()
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        np.testing.assert_array_equal(theirs[name], value, err_msg=name)


@pytest.fixture
def saved(tmp_path):
    """A model and the file it was saved to."""
    model = MFA(2, 1, **FAST).fit(pd.DataFrame(X, columns=list("abcd")).to_numpy())
    path = tmp_path / "model.latently"
    model.save(path)
    return model, path


def rewritten(path, change):
    """The file with header and arrays changed and a checksum to match: what a forger would write."""
    header, arrays = io.read(path)
    version = header.pop("format_version")
    header, arrays = change(header, arrays) or (header, arrays)
    io.write(path, {"format_version": version, **header}, arrays)
    return path


# -- round trips ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name, tmp_path):
    model = MODELS[name]().fit(X)
    model.save(tmp_path / "model")
    assert_same(latently.load(tmp_path / "model"), model)
    model.save(str(tmp_path / "model"))  # over itself, and by a plain string
    assert_same(latently.load(str(tmp_path / "model")), model)
    again = latently.load(tmp_path / "model")
    again.save(tmp_path / "second")
    assert_same(latently.load(tmp_path / "second"), model)
    assert np.isfinite(again.fit(X).score(X))  # what was read is a full estimator


def test_round_trip_of_hyper_parameters(tmp_path):
    model = MFA(
        np.int64(2),
        np.int32(1),
        noise=np.str_("isotropic"),
        shared_noise=True,
        max_iter=np.int16(30),
        tol=np.float32(1e-3),
        n_init=2,
        weights_init=[0.25, 0.75],
        means_init=np.zeros((1, 4), dtype=np.float32),
        loadings_init=np.ones((2, 4, 1)),
        noise_init=np.float64(2.0),
        noise_floor=1e-4,
        batch_size=7,
        random_state=np.uint32(5),
        warm_start=np.bool_(False),
        verbose=0,
    ).fit(X)
    model.save(tmp_path / "model")
    assert_same(latently.load(tmp_path / "model"), model)


def test_round_trip_of_starting_values_of_rank_zero_and_tuples(tmp_path):
    model = FactorAnalysis(1, means_init=(0.0, 1.0, 2.0, 3.0), noise_init=np.array(2.0), tol=1e-3).fit(X)
    model.save(tmp_path / "model")
    assert_same(latently.load(tmp_path / "model"), model)


@pytest.mark.parametrize(
    "names", [list("abcd"), ["größe", "重さ", "🙂", 'a\n\0"b'], ["", " ", "\u202e", "x" * 5000]]
)
def test_round_trip_of_feature_names(names, tmp_path):
    frame = pd.DataFrame(X, columns=names)
    model = MFA(2, 1, **FAST).fit(frame)
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    assert list(again.feature_names_in_) == names
    np.testing.assert_array_equal(again.score_samples(frame), model.score_samples(frame))


def test_round_trip_from_parameters(tmp_path):
    models = [
        PPCA.from_parameters(mean=np.zeros(4), loadings=np.ones((4, 2)), noise_variance=0.5),
        MFA.from_parameters(
            weights=[1.0], means=[[0.0] * 4], loadings=np.zeros((1, 4, 0)), noise_variance=2.0
        ),
        GaussianMixture.from_parameters(weights=[0.1, 0.9], means=np.eye(2, 4), covariances=np.eye(4)),
        MCFA.from_parameters(
            weights=[0.1, 0.9],
            loadings=2.0 * np.eye(4, 2),
            latent_means=np.eye(2),
            latent_covariances=[np.eye(2), 3.0 * np.eye(2)],
            noise_variance=[1.0, 2.0, 3.0, 4.0],
        ),
    ]
    for model in models:
        model.save(tmp_path / "model")
        assert_same(latently.load(tmp_path / "model"), model)


@pytest.mark.parametrize("name", ["model", "modèle 重さ.safetensors", "-rf", "a b'c", "x" * 240])
def test_file_names(name, tmp_path, saved):
    saved[0].save(tmp_path / name)
    assert_same(latently.load(tmp_path / name), saved[0])


def test_what_cannot_be_written_is_left_out_with_a_warning(tmp_path):
    seen = []
    model = MFA(2, 1, tol=1e-3, random_state=np.random.RandomState(0), callbacks=[seen.append]).fit(X)
    with pytest.warns(UserWarning) as caught:
        model.save(tmp_path / "model")
    texts = " ".join(str(warning.message) for warning in caught)
    assert "random_state" in texts and "callbacks" in texts
    again = latently.load(tmp_path / "model")
    assert again.random_state is None and again.callbacks is None
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))


def test_a_class_of_the_users_own_is_refused_when_it_is_saved(tmp_path):
    """Better than a file that nobody can read."""

    class Mine(MFA):
        pass

    model = Mine.from_parameters(weights=[1.0], means=[[0.0]], loadings=[[[1.0]]], noise_variance=1.0)
    with pytest.raises((ValueError, TypeError), match="Mine"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


# -- damaged files ----------------------------------------------------------------------------------


def test_truncated(saved):
    _, path = saved
    data = path.read_bytes()
    for n in [0, 1, 7, 8, 9, 100, len(data) // 2, len(data) - 8, len(data) - 1]:
        path.write_bytes(data[:n])
        with pytest.raises(ModelFileError, match=r"model\.latently"):
            latently.load(path)


def test_lengthened(saved):
    _, path = saved
    for more in (b"\0", b"\0" * 64, path.read_bytes()):
        data = path.read_bytes()
        path.write_bytes(data + more)
        with pytest.raises(ModelFileError):
            latently.load(path)
        path.write_bytes(data)


@pytest.mark.parametrize(
    "content", [b"", b"hello\n", b"{}", b"\x89PNG\r\n", b"\0" * 100, b"\xff" * 100, b"PK\x03\x04" * 50]
)
def test_other_files(content, tmp_path):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="other"):
        latently.load(path)


def test_another_safetensors_file(tmp_path):
    for metadata in (None, {"format": "pt"}, {"latently": "{}"}, {"latently": "nonsense", "sha256": "0"}):
        safetensors.numpy.save_file({"a": np.zeros(3)}, tmp_path / "other", metadata=metadata)
        with pytest.raises(ModelFileError):
            latently.load(tmp_path / "other")


def test_every_flipped_byte_is_noticed_or_harmless(saved):
    model, path = saved
    data = bytearray(path.read_bytes())
    reference = model.score_samples(X)
    rng = np.random.default_rng(0)
    loaded = []
    for i in range(len(data)):
        was = data[i]
        data[i] ^= int(rng.integers(1, 256)) if i % 2 else 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            again = latently.load(path)
        except ModelFileError:
            pass
        else:
            loaded.append(i)
            np.testing.assert_array_equal(again.score_samples(X), reference, err_msg=f"byte {i}")
            assert str(again.get_params()) == str(model.get_params())
            np.testing.assert_array_equal(again.history_, model.history_)
            assert (again.n_iter_, again.converged_) == (model.n_iter_, model.converged_)
        data[i] = was
    assert len(loaded) < 0.02 * len(data)  # only spaces that pad the header may go unnoticed


def test_swapped_bytes_of_the_payload(saved):
    _, path = saved
    data = path.read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    path.write_bytes(data[:start] + data[start:][::-1])
    with pytest.raises(ModelFileError, match="damaged"):
        latently.load(path)


def test_a_header_length_that_is_huge(saved):
    _, path = saved
    data = path.read_bytes()
    for length in (2**63, 2**40, len(data)):
        path.write_bytes(struct.pack("<Q", length) + data[8:])
        with pytest.raises(ModelFileError):
            latently.load(path)


# -- files with a checksum that matches, but not from us ----------------------------------------------


@pytest.mark.parametrize("version", [0, 2, -1, 99, "1", None, 1.5, True, [1], {}])
def test_other_versions(saved, version):
    path = rewritten(saved[1], lambda header, arrays: ({**header, "format_version": version}, arrays))
    # io.write puts the header last, so that this version is the one in the file
    with pytest.raises(ModelFileError, match=r"version|damaged"):
        latently.load(path)


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "system",
        "KMeans",
        "latently.mixture.MFA",
        "MixtureBase",
        "__import__",
        "",
        None,
        3,
        ["MFA"],
        {},
    ],
)
def test_other_classes(saved, name):
    path = rewritten(saved[1], lambda header, arrays: ({**header, "class": name}, arrays))
    with pytest.raises(ModelFileError):
        latently.load(path)


@pytest.mark.parametrize("name", ["GaussianMixture", "FactorAnalysis", "PPCA", "MPPCA"])
def test_the_class_of_another_model(saved, name):
    path = rewritten(saved[1], lambda header, arrays: ({**header, "class": name}, arrays))
    with pytest.raises(ModelFileError, match=f"valid {name}"):
        latently.load(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("array", ["weights", "means", "loadings", "noise_variance"])
def test_values_that_are_not_finite(saved, array, value):
    def change(header, arrays):
        arrays[f"fitted.{array}"].flat[-1] = value

    with pytest.raises(ModelFileError, match="finite"):
        latently.load(rewritten(saved[1], change))


@pytest.mark.parametrize(
    "array, value",
    [
        ("fitted.weights", np.array([0.5, 0.6])),
        ("fitted.weights", np.array([1.5, -0.5])),
        ("fitted.noise_variance", np.zeros((2, 4))),
        ("fitted.noise_variance", -np.ones((2, 4))),
        ("fit.history", np.array([np.nan])),
    ],
)
def test_values_that_make_no_model(saved, array, value):
    def change(header, arrays):
        arrays[array] = value

    with pytest.raises(ModelFileError):
        latently.load(rewritten(saved[1], change))


@pytest.mark.parametrize(
    "array, shape",
    [
        ("fitted.weights", (3,)),
        ("fitted.weights", (1, 2)),
        ("fitted.means", (2, 5)),
        ("fitted.means", (3, 4)),
        ("fitted.means", (4,)),  # would broadcast, but no file of ours has it
        ("fitted.means", (1, 4)),
        ("fitted.means", ()),
        ("fitted.loadings", (2, 4, 2)),
        ("fitted.loadings", (4, 1)),
        ("fitted.loadings", (2, 4, 0)),
        ("fitted.noise_variance", (4,)),
        ("fitted.noise_variance", ()),
        ("fit.history", (2, 3)),
        ("fit.history", (1000,)),  # n_iter says otherwise
    ],
)
def test_other_shapes(saved, array, shape):
    def change(header, arrays):
        arrays[array] = np.full(shape, 0.5 if "weights" in array else 1.0)

    with pytest.raises(ModelFileError):
        latently.load(rewritten(saved[1], change))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_, np.float16])
def test_other_dtypes(saved, dtype):
    """Ours are float64; anything else was written by something else."""

    def change(header, arrays):
        arrays["fitted.means"] = arrays["fitted.means"].astype(dtype)

    with pytest.raises(ModelFileError):
        latently.load(rewritten(saved[1], change))


@pytest.mark.parametrize(
    "array", ["fitted.extra", "fit.extra", "hyper.extra", "extra", "other.extra", "hyper.max_iter"]
)
def test_extra_arrays(saved, array):
    def change(header, arrays):
        arrays[array] = np.ones(2)

    with pytest.raises(ModelFileError):
        latently.load(rewritten(saved[1], change))


@pytest.mark.parametrize(
    "array", ["fitted.weights", "fitted.means", "fitted.loadings", "fitted.noise_variance", "fit.history"]
)
def test_missing_arrays(saved, array):
    def change(header, arrays):
        del arrays[array]

    with pytest.raises(ModelFileError):
        latently.load(rewritten(saved[1], change))


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1},
        {"max_iter": -1},
        {"tol": "small"},
        {"n_components": 3},
        {"n_components": "2"},
        {"n_factors": 2},
        {"noise": "other"},
        {"callbacks": [1]},
        {"dtype": "float16"},
        {"random_state": {}},
        {"means_init": "x"},
    ],
    ids=str,
)
def test_other_hyper_parameters(saved, change):
    def edit(header, arrays):
        header["hyper_parameters"].update(change)

    with pytest.raises(ModelFileError):
        latently.load(rewritten(saved[1], edit))


HEADERS = [
    ("hyper_parameters", None),
    ("hyper_parameters", [1]),
    ("hyper_parameters", "x"),
    ("feature_names", ["a"]),
    ("feature_names", "abcd"),
    ("feature_names", [1, 2, 3, 4]),
    ("feature_names", [None] * 4),
    ("feature_names", {}),
    ("n_iter", "many"),
    ("n_iter", -3),
    ("n_iter", None),
    ("n_iter", 1.5),
    ("converged", "perhaps"),
    ("converged", None),
    ("converged", [1]),
]


@pytest.mark.parametrize("field, value", HEADERS, ids=[f"{f}={v!r}" for f, v in HEADERS])
def test_other_header_fields(saved, field, value):
    path = rewritten(saved[1], lambda header, arrays: ({**header, field: value}, arrays))
    with pytest.raises(ModelFileError):
        latently.load(path)


@pytest.mark.parametrize("field", ["class", "hyper_parameters", "feature_names", "n_iter", "converged"])
def test_missing_header_fields(saved, field):
    def change(header, arrays):
        del header[field]

    with pytest.raises(ModelFileError):
        latently.load(rewritten(saved[1], change))


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "3",
        "null",
        '"x"',
        "{}",
        '{"format_version": 1}',
        "[" * 100_000,
        '{"format_version": 1, "n_iter": 1e999}',
    ],
)
def test_headers_that_are_not_ours(saved, text):
    """With a matching checksum, so that nothing but the contents can be the reason."""
    _, path = saved
    _, arrays = io.read(path)
    metadata = {"latently": text, "sha256": io._digest(text, arrays)}
    safetensors.numpy.save_file(arrays, path, metadata=metadata)
    with pytest.raises(ModelFileError):
        latently.load(path)


@pytest.mark.parametrize("number", ["Infinity", "NaN", "1e999"])
def test_a_header_with_numbers_that_are_not(saved, number):
    _, path = saved
    header, arrays = io.read(path)
    text = json.dumps({**header, "n_iter": 7654321}).replace("7654321", number)
    safetensors.numpy.save_file(arrays, path, metadata={"latently": text, "sha256": io._digest(text, arrays)})
    with pytest.raises(ModelFileError):
        latently.load(path)


class Bomb:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_a_pickle_is_never_unpickled(tmp_path):
    target, path = tmp_path / "touched", tmp_path / "model"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(Bomb(target), protocol=protocol))
        with pytest.raises(ModelFileError):
            latently.load(path)
    np.save(tmp_path / "array.npy", np.array([Bomb(target)], dtype=object), allow_pickle=True)
    with pytest.raises(ModelFileError):
        latently.load(tmp_path / "array.npy")
    assert not target.exists()
    pickle.loads(path.read_bytes())  # the bomb does work
    assert target.exists()


# -- paths and writing ------------------------------------------------------------------------------


def test_missing_path(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        latently.load(tmp_path / "nothing")


def test_a_folder(tmp_path, saved):
    with pytest.raises(OSError, match=str(tmp_path)):
        latently.load(tmp_path)
    before = sorted(tmp_path.iterdir())
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        saved[0].save(tmp_path / "folder")
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "folder"])


def test_a_folder_that_is_not_there(tmp_path, saved):
    with pytest.raises(FileNotFoundError):
        saved[0].save(tmp_path / "no" / "model")
    with pytest.raises(OSError):
        saved[0].save(saved[1] / "model")  # a file where the folder should be


def test_a_folder_that_may_not_be_written(tmp_path, saved):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("root may write anywhere")
    try:
        with pytest.raises(PermissionError):
            saved[0].save(folder / "model")
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("step", ["replace", "chmod", "fdopen"])
@pytest.mark.parametrize(
    "error", [OSError("disk full"), KeyboardInterrupt()], ids=["OSError", "KeyboardInterrupt"]
)
def test_a_write_that_fails_leaves_the_old_file(saved, monkeypatch, step, error):
    path = saved[1]
    before = path.read_bytes()

    def broken(*args, **kwargs):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, step, broken)
        with pytest.raises(type(error)):
            MFA(2, 1, **FAST).fit(X[:30]).save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_save_writes_nothing(tmp_path):
    """A hyper-parameter changed after the fit to what no file can hold."""
    model = MFA(2, 1, **FAST).fit(X).set_params(tol=float("inf"))
    with pytest.raises(ValueError):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_permissions_are_those_of_any_new_file(tmp_path, saved):
    (tmp_path / "plain").write_text("x")
    assert stat.S_IMODE(saved[1].stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)
