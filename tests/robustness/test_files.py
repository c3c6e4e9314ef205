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
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import latently
from latently.core import io
from latently.core.io import ModelFileError
from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture
from latently.supervised import PerClass

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
        block_size=7,
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


# -- classifiers, which hold labels, a threshold and other estimators ---------------------------------


Y = np.where(np.arange(60) % 3 == 0, "birch", "ash")


def assert_same_classifier(again, model):
    assert type(again) is type(model) is PerClass
    for method in ("predict", "predict_proba", "score_samples", "accepts"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(model, method)(X), err_msg=method)
    for here, there in zip(model.sample(5, random_state=1), again.sample(5, random_state=1), strict=True):
        np.testing.assert_array_equal(here, there)
    assert {k for k in vars(again) if k.endswith("_")} == {k for k in vars(model) if k.endswith("_")}
    np.testing.assert_array_equal(again.classes_, model.classes_)
    assert again.classes_.dtype.kind == model.classes_.dtype.kind.replace("u", "i")
    assert again.reject_below_ == model.reject_below_
    assert set(again.get_params()) == set(model.get_params())
    for name, value in model.get_params().items():
        if name != "density":
            np.testing.assert_array_equal(again.get_params()[name], value, err_msg=name)
    for ours, theirs in zip(model.densities_, again.densities_, strict=True):
        assert_same(theirs, ours)


@pytest.mark.parametrize("name", ["full", "fa", "ppca", "mfa", "mppca", "mcfa"])
def test_round_trip_of_a_density_for_each_class(name, tmp_path):
    extras = {} if name == "fa" else {"shrinkage": None, "temperature": None}  # they take many fits
    model = PerClass(MODELS[name](), **extras).fit(X, Y)
    model.save(tmp_path / "model")
    assert_same_classifier(latently.load(tmp_path / "model"), model)
    model.calibrate_rejection(X + 0.1, acceptance=0.9).save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    assert_same_classifier(again, model)
    again.save(tmp_path / "second")
    assert_same_classifier(latently.load(tmp_path / "second"), model)
    assert again.fit(X, Y).reject_below_ == -np.inf  # what was read is a full estimator
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    "labels",
    [
        [3, 7],
        [-1, 1],
        np.array([3, 7], dtype=np.int8),
        np.array([3, 7], dtype=np.uint8),
        [0.0, 4.0],
        np.array([0, 4], dtype=np.float32),
        [False, True],
        ["a", "größe 重さ 🙂"],
        ["", "0"],
    ],
    ids=str,
)
def test_round_trip_of_labels(labels, tmp_path):
    model = PerClass(PPCA(1)).fit(X, np.asarray(labels)[np.arange(60) % 2])
    model.save(tmp_path / "model")
    assert_same_classifier(latently.load(tmp_path / "model"), model)


def test_round_trip_of_the_settings_of_a_classifier(tmp_path):
    density = FactorAnalysis(1, means_init=(0.0, 1.0, 2.0, 3.0), noise_init=np.array(2.0), tol=1e-3)
    model = PerClass(density, class_prior=(0.25, 0.75), reject_below=np.float32(-20), n_jobs=1)
    model.fit(pd.DataFrame(X, columns=list("abcd")), Y)
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    assert list(again.feature_names_in_) == list("abcd")
    np.testing.assert_array_equal(again.density.means_init, density.means_init)
    assert again.n_parameters() == model.n_parameters()
    table = pd.DataFrame(X, columns=list("abcd"))
    np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))
    np.testing.assert_array_equal(again.fit(table, Y).predict_proba(table), model.predict_proba(table))


def test_settings_changed_after_the_fit_are_not_those_of_the_densities(tmp_path):
    model = PerClass(MFA(2, 1, **FAST)).fit(X, Y).set_params(density__n_components=3, density__n_factors=2)
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    assert again.density.n_components == 3 and again.densities_[0].n_components == 2
    assert_same_classifier(again, model)


@pytest.mark.parametrize(
    "density, says",
    [(KernelDensity(), "KernelDensity"), (make_pipeline(StandardScaler(), PPCA(1)), "Pipeline")],
    ids=["KernelDensity", "Pipeline"],
)
def test_densities_that_are_not_ours_are_refused(density, says, tmp_path):
    with pytest.raises(TypeError, match=says):
        PerClass(density).fit(X, Y).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_cannot_be_written_of_a_density_is_told_once(tmp_path):
    model = PerClass(MFA(1, 1, tol=1e-3, random_state=np.random.RandomState(0))).fit(X, Y)
    with pytest.warns(UserWarning, match="random_state") as caught:
        model.save(tmp_path / "model")
    assert len(caught) == 1 and caught[0].filename == __file__
    assert latently.load(tmp_path / "model").density.random_state is None


@pytest.fixture(scope="module")
def content_of_classifier(tmp_path_factory):
    path = tmp_path_factory.mktemp("classifier") / "model"
    PerClass(MFA(2, 1, **FAST), class_prior=[0.5, 0.5]).fit(X, Y).calibrate_rejection(X + 0.1).save(path)
    return path.read_bytes()


@pytest.fixture
def saved_classifier(tmp_path, content_of_classifier):
    path = tmp_path / "model.latently"
    path.write_bytes(content_of_classifier)
    return path


def test_a_classifier_rewritten_as_it_was_loads(saved_classifier):
    """So that the changes below, and nothing else, are what is refused."""
    assert latently.load(rewritten(saved_classifier, lambda header, arrays: None)).classes_.tolist() == [
        "ash",
        "birch",
    ]


def without(field):
    return lambda part: part.pop(field)


def with_value(field, value):
    return lambda part: part.update({field: value})


OTHER_MORE = {
    "no classes": without("classes"),
    "one class": with_value("classes", ["ash"]),
    "three classes": with_value("classes", ["ash", "birch", "oak"]),
    "no class": with_value("classes", []),
    "the same twice": with_value("classes", ["ash", "ash"]),
    "not in order": with_value("classes", ["birch", "ash"]),
    "mixed": with_value("classes", ["ash", 1]),
    "bool and int": with_value("classes", [False, 1]),
    "null": with_value("classes", [None, None]),
    "nested": with_value("classes", [["a"], ["b"]]),
    "dict": with_value("classes", {"a": 0, "b": 1}),
    "text": with_value("classes", "ab"),
    "nothing": with_value("classes", None),
    "huge": with_value("classes", [1, 10**40]),
    "early threshold of text": with_value("reject_below", "-3"),
    "early threshold of bool": with_value("reject_below", True),
    "unknown entry": with_value("other", 1),
}
OTHER_REJECTION = {
    "no threshold": without("reject_below"),
    "threshold of text": with_value("reject_below", "-3"),
    "threshold of bool": with_value("reject_below", True),
    "thresholds for one class": with_value("reject_below", [-3.0]),
    "thresholds without their rows": with_value("reject_below", [-3.0, -4.0]),
    "no rate": without("acceptance"),
    "rate of text": with_value("acceptance", "0.9"),
    "rate of all rows": with_value("acceptance", 1.0),
    "rows of text": with_value("n_rows", "60"),
    "fewer rows than none": with_value("n_rows", -1),
    "unknown entry": with_value("other", 1),
}


@pytest.mark.parametrize("change", OTHER_MORE.values(), ids=OTHER_MORE)
def test_other_classes_and_thresholds(saved_classifier, change):
    def edit(header, arrays):
        change(header["more"])

    with pytest.raises(ModelFileError, match="valid PerClass"):
        latently.load(rewritten(saved_classifier, edit))


@pytest.mark.parametrize("change", OTHER_REJECTION.values(), ids=OTHER_REJECTION)
def test_other_thresholds(saved_classifier, change):
    def edit(header, arrays):
        change(header["rejection"])

    with pytest.raises(ModelFileError, match="valid PerClass"):
        latently.load(rewritten(saved_classifier, edit))


def test_a_threshold_of_an_early_file_is_that_of_its_model(saved_classifier):
    """It stood beside the classes, and nobody knows what it was calibrated for."""

    def edit(header, arrays):
        header["more"]["reject_below"] = header.pop("rejection")["reject_below"]

    expected = latently.load(saved_classifier)
    model = latently.load(rewritten(saved_classifier, edit))
    assert model.reject_below_ == expected.reject_below_ > -np.inf
    model.save(saved_classifier)
    assert latently.load(saved_classifier).reject_below_ == expected.reject_below_


@pytest.mark.parametrize("more", [None, [], {}, "x", 3], ids=str)
def test_other_entries_of_a_classifier(saved_classifier, more):
    with pytest.raises(ModelFileError, match="valid PerClass"):
        latently.load(rewritten(saved_classifier, lambda header, arrays: ({**header, "more": more}, arrays)))


@pytest.mark.parametrize("entry", ["more", "parts", "hyper_estimators", "hyper_parameters", "feature_names"])
def test_missing_entries_of_a_classifier(saved_classifier, entry):
    with pytest.raises(ModelFileError, match="valid PerClass"):
        latently.load(rewritten(saved_classifier, lambda header, arrays: without(entry)(header) and None))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_threshold_that_is_no_number(saved_classifier, number):
    header, arrays = io.read(saved_classifier)
    header["rejection"]["reject_below"] = 7654321.0
    text = json.dumps(header).replace("7654321.0", number)
    metadata = {"latently": text, "sha256": io._digest(text, arrays)}
    safetensors.numpy.save_file(arrays, saved_classifier, metadata=metadata)
    with pytest.raises(ModelFileError, match=r"reject_below|damaged"):
        latently.load(saved_classifier)


def densities(header):
    """The parts of a classifier."""
    return header["parts"]["nodes"]["densities"]["nodes"]


OTHER_PARTS = {
    "none": lambda header: densities(header).clear(),
    "one too few": lambda header: densities(header).pop(),
    "one too many": lambda header: densities(header).append(densities(header)[0]),
    "no list": lambda header: header["parts"]["nodes"]["densities"].update(nodes={"0": densities(header)[0]}),
    "text": lambda header: header.update(parts="ab"),
    "numbers": lambda header: densities(header).__setitem__(slice(None), [1, 2]),
    "null": lambda header: densities(header).__setitem__(slice(None), [None, None]),
    "no kind": lambda header: header["parts"]["nodes"]["densities"].pop("kind"),
    "another kind": lambda header: header["parts"]["nodes"]["densities"].update(kind="tensors"),
    "of another name": lambda header: header["parts"]["nodes"].update(
        mixtures=header["parts"]["nodes"].pop("densities")
    ),
    "none at all": lambda header: header["parts"]["nodes"].clear(),
    "without a class": lambda header: densities(header)[0].pop("class"),
    "of a class that is not ours": lambda header: densities(header)[0].update({"class": "os.system"}),
    "of another class": lambda header: densities(header)[0].update({"class": "MPPCA"}),
    "without history": lambda header: densities(header)[1].pop("n_iter"),
    "a classifier": lambda header: densities(header).__setitem__(0, {**header, "parts": []}),
    "nested": lambda header: densities(header)[0].update(parts=[densities(header)[1]]),
    "with labels": lambda header: densities(header)[0].update(more=header["more"]),
    "density of another class": lambda header: header["hyper_estimators"]["density"].update(
        {"class": "MPPCA"}
    ),
    "density that is not ours": lambda header: header["hyper_estimators"]["density"].update(
        {"class": "KMeans"}
    ),
    "density that is a classifier": lambda header: header["hyper_estimators"].update(
        density={"class": "PerClass", "hyper_parameters": {"density": 3}}
    ),
    "density nested": lambda header: header["hyper_estimators"]["density"].update(
        hyper_estimators={"density": dict(header["hyper_estimators"]["density"])}
    ),
    "density of text": lambda header: header["hyper_estimators"].update(density="MFA"),
    "density twice": lambda header: header["hyper_parameters"].update(density="MFA"),
    "density in plain": lambda header: header.update(
        hyper_estimators={}, hyper_parameters={"density": "MFA"}
    ),
    "density with other settings": lambda header: header["hyper_estimators"]["density"][
        "hyper_parameters"
    ].update(extra=1),
    "other estimators": lambda header: header.update(hyper_estimators=[1]),
    "prior of text": lambda header: header["hyper_parameters"].update(class_prior="x"),
    "threshold of text": lambda header: header["hyper_parameters"].update(reject_below="x"),
    "a history": lambda header: header.update({"class": "MFA"}),
}


@pytest.mark.parametrize("change", OTHER_PARTS.values(), ids=OTHER_PARTS)
def test_other_parts(saved_classifier, change):
    def edit(header, arrays):
        change(header)

    with pytest.raises(ModelFileError, match="valid"):
        latently.load(rewritten(saved_classifier, edit))


@pytest.mark.parametrize(
    "depth", [1, 3, 100]
)  # the deepest that JSON itself writes, with four levels for each
@pytest.mark.parametrize("entry", ["parts", "hyper_estimators"])
def test_parts_of_parts_are_not_followed(saved_classifier, entry, depth):
    def edit(header, arrays):
        inner = header
        for _ in range(depth):
            if entry == "parts":
                nodes = [{"kind": "estimator", **inner}, densities(header)[1]]
                nested = {"kind": "dict", "nodes": {"densities": {"kind": "list", "nodes": nodes}}}
            else:
                nested = {"density": inner}
            inner = {**header, entry: nested}
        return inner, arrays

    with pytest.raises(ModelFileError, match="valid"):
        latently.load(rewritten(saved_classifier, edit))


def test_every_array_of_a_classifier_is_needed(saved_classifier):
    whole = saved_classifier.read_bytes()
    _, arrays = io.read(saved_classifier)
    assert {"fitted.class_prior", "hyper.class_prior", "parts.densities.1.fitted.means"} <= set(arrays)
    for key in set(arrays) - {"hyper.class_prior"}:
        saved_classifier.write_bytes(whole)
        with pytest.raises(ModelFileError):
            latently.load(rewritten(saved_classifier, lambda _, arrays, key=key: arrays.__delitem__(key)))


def test_every_array_of_a_classifier_is_checked(saved_classifier):
    whole = saved_classifier.read_bytes()
    _, arrays = io.read(saved_classifier)
    for key, array in arrays.items():
        wrong = [np.full_like(array, np.nan), array.astype(np.float32)]
        if not key.startswith("hyper."):  # whose shape is looked at by the next fit
            wrong.append(np.zeros((*array.shape, 2)))
        for value in wrong:
            saved_classifier.write_bytes(whole)
            change = lambda _, arrays, key=key, value=value: arrays.update({key: value})
            with pytest.raises(ModelFileError):
                latently.load(rewritten(saved_classifier, change))


@pytest.mark.parametrize(
    "key",
    [
        "parts.densities.2.fitted.means",
        "parts.densities.0.fitted.extra",
        "parts.densities.0.extra",
        "parts.densities.x.fitted.means",
        "parts.extra",
        "parts",
        "hyper.density.hyper.extra",
        "hyper.density.fitted.means",
        "hyper.other.hyper.means_init",
        "hyper.density",
        "hyper.reject_below",
        "fitted.extra",
        "exact.extra",
        "fit.history",
        "extra",
    ],
)
def test_extra_arrays_of_a_classifier(saved_classifier, key):
    with pytest.raises(ModelFileError, match="valid PerClass"):
        latently.load(
            rewritten(saved_classifier, lambda header, arrays: arrays.update({key: np.ones((2, 4))}))
        )


def test_densities_of_different_numbers_of_features(saved_classifier, tmp_path):
    PerClass(MFA(2, 1, **FAST)).fit(X[:, :3], Y).save(tmp_path / "narrow")
    header, arrays = io.read(tmp_path / "narrow")

    def edit(wide_header, wide_arrays):
        densities(wide_header)[1] = densities(header)[1]
        own = "parts.densities.1."
        wide_arrays.update({key: array for key, array in arrays.items() if key.startswith(own)})

    with pytest.raises(ModelFileError, match="features"):
        latently.load(rewritten(saved_classifier, edit))


def test_densities_of_another_class_than_the_setting(tmp_path):
    """Both classes have the same parameters, so each part on its own is valid."""
    PerClass(PPCA(1)).fit(X, Y).save(tmp_path / "model")

    def edit(header, arrays):
        header["hyper_estimators"]["density"]["class"] = "FactorAnalysis"

    with pytest.raises(ModelFileError, match="do not have the class"):
        latently.load(rewritten(tmp_path / "model", edit))


def test_a_mixture_has_no_entries_of_a_classifier(saved):
    def edit(header, arrays):
        header["more"] = {"classes": [0, 1], "reject_below": None}

    with pytest.raises(ModelFileError, match="unknown"):
        latently.load(rewritten(saved[1], edit))


def test_a_classifier_that_is_damaged(saved_classifier):
    data = bytearray(saved_classifier.read_bytes())
    for i in range(0, len(data), 97):
        data[i] ^= 1
        saved_classifier.write_bytes(data)
        try:
            latently.load(saved_classifier)
        except ModelFileError:
            pass
        else:
            assert data[i] ^ 1 == ord(" "), f"byte {i}"
        data[i] ^= 1


# -- paths and writing ------------------------------------------------------------------------------


def test_missing_path(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"):
        latently.load(tmp_path / "nothing")


def test_a_folder(tmp_path, saved):
    with pytest.raises((OSError, ModelFileError), match=str(tmp_path)):  # not one of the command line
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


@pytest.mark.parametrize("step", ["replace", "chmod", "fsync"])
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
