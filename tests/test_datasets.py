"""Data sets: where they are looked for, how they are recognised, and the laws that synthetic ones follow."""

import dataclasses
import hashlib
import os
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
from sklearn.utils import Bunch

from latently import datasets
from latently.datasets import (
    _public,
    load,
    load_bars,
    load_com_nist,
    load_com_usps,
    load_griffiths,
    load_noisy_seeds,
    load_three_gaussians,
    load_two_mode_class,
    with_noise_features,
)
from latently.datasets._catalogue import CATALOGUE, Entry
from latently.datasets._load import content_digest

REAL_FOLDER = Path(os.environ.get("LATENTLY_DATA") or Path(__file__).parents[2] / "shared" / "data")
DOWNLOADED = [name for name, entry in CATALOGUE.items() if entry.download]


def real_file(name):
    """The arrays of the real file as they are stored."""
    path = REAL_FOLDER / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"needs {name}.npz in the folder that LATENTLY_DATA names")
    with np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


@pytest.fixture(autouse=True)
def no_folder_and_no_network(monkeypatch, tmp_path):
    """Nothing is found by accident, and nothing is downloaded."""

    def offline(**arguments):
        raise URLError("no network")

    monkeypatch.delenv("LATENTLY_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    for fetcher in ("fetch_openml", "fetch_olivetti_faces", "fetch_kddcup99"):
        monkeypatch.setattr(_public, fetcher, offline)


TOY = {
    "X_train": np.arange(6.0).reshape(3, 2),
    "y_train": np.array([0, 1, 1]),
    "X_test": np.array([[7.0, 8.0]]),
    "y_test": np.array([0]),
    "class_names": np.array(["no", "yes"]),
    "image_shape": np.array([1, 2]),
    "extra": np.array([5]),
}


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """A folder with the file of a small data set, which is added to the catalogue."""
    folder = tmp_path / "data"
    folder.mkdir()
    np.savez(folder / "toy.npz", **TOY)
    sha256 = hashlib.sha256((folder / "toy.npz").read_bytes()).hexdigest()
    monkeypatch.setitem(CATALOGUE, "toy", Entry("Toys", "Made here; https://example.org.", "none", sha256))
    return folder


def same_arrays(one, other):
    assert one.keys() == other.keys()
    for key in one:
        assert np.array_equal(one[key], other[key]), key
        if one[key].dtype.kind != "U":  # widths of strings do not matter
            assert one[key].dtype == other[key].dtype, key


# ------------------------------------------------------------------------------------------- files


def test_file_in_a_folder(toy):
    data = load("toy", toy)
    assert isinstance(data, Bunch)
    assert data.X.tolist() == [[0, 1], [2, 3], [4, 5], [7, 8]]  # training rows, then test rows
    assert data.y.tolist() == [0, 1, 1, 0]
    assert data.X_train.shape == (3, 2) and data.y_test.tolist() == [0]
    assert data.class_names[data.y].tolist() == ["no", "yes", "yes", "no"]
    assert data.image_shape == (1, 2)
    assert data.feature_names is None
    assert data.extra.tolist() == [5]
    assert data.name == "toy"
    assert data.description == "Toys. Made here; https://example.org. Licence: none."


def test_order_of_the_folders(toy, tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    monkeypatch.setenv("LATENTLY_DATA", str(toy))
    assert load("toy").name == "toy"
    with pytest.raises(FileNotFoundError, match="empty"):
        load("toy", data_home=empty)
    monkeypatch.setenv("LATENTLY_DATA", str(empty))
    assert load("toy", data_home=str(toy)).name == "toy"
    monkeypatch.delenv("LATENTLY_DATA")
    with pytest.raises(FileNotFoundError, match=r"home.*latently_data"):
        load("toy")
    toy.rename(tmp_path / "moved")
    (tmp_path / "home").mkdir()
    (tmp_path / "moved").rename(tmp_path / "home" / "latently_data")
    assert load("toy").name == "toy"


@pytest.mark.parametrize("damage", ["one bit", "half", "empty", "other arrays", "pickle"])
def test_damaged_file_is_refused(toy, damage):
    path = toy / "toy.npz"
    good = path.read_bytes()
    match damage:
        case "one bit":
            path.write_bytes(good[:200] + bytes([good[200] ^ 1]) + good[201:])
        case "half":
            path.write_bytes(good[: len(good) // 2])
        case "empty":
            path.write_bytes(b"")
        case "other arrays":
            np.savez(path, X=np.eye(2), y=np.arange(2))
        case "pickle":
            np.savez(path, X=np.array([{}], dtype=object))
    with pytest.raises(
        ValueError, match=r"toy\.npz.* is damaged or not the expected file.*Replace or remove it"
    ) as caught:
        load("toy", toy)
    assert CATALOGUE["toy"].sha256 in str(caught.value)
    assert hashlib.sha256(path.read_bytes()).hexdigest() in str(caught.value)


def test_absent_set_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load("coil20", tmp_path)
    for part in (
        "coil20.npz",
        CATALOGUE["coil20"].sha256,
        str(tmp_path),
        "data_home",
        "LATENTLY_DATA",
        "cs.columbia.edu",
        "cannot be downloaded automatically",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("mnsit", "mnist"), ("Iris", "iris"), ("breast-tissue", "breast_tissue"), (["iris"], "iris")],
)
def test_unknown_name(name, meant):
    with pytest.raises(ValueError, match="name must be one of mnist, fashion_mnist") as caught:
        load(name)
    assert f"did you mean '{meant}'?" in str(caught.value)


def test_names():
    assert datasets.names().keys() == CATALOGUE.keys()
    assert all("\n" not in title and len(title) < 110 for title in datasets.names().values())


def test_catalogue_is_complete():
    for name, entry in CATALOGUE.items():
        assert len(entry.sha256) == 64, name
        assert entry.source.endswith("."), name
        assert entry.licence, name
        assert bool(entry.content) == bool(entry.bundled or entry.download), name
        assert "http" in entry.source or "sklearn" in entry.source, name
    assert len({entry.sha256 for entry in CATALOGUE.values()}) == len(CATALOGUE)


def test_documentation_lists_every_set():
    page = (Path(__file__).parents[1] / "docs" / "datasets.md").read_text(encoding="utf-8")
    for name, title in datasets.names().items():
        assert f"| `{name}` | {title} |" in page


@pytest.mark.parametrize("name", CATALOGUE)
def test_real_files(name):
    file = real_file(name)
    data = load(name, REAL_FOLDER)
    assert data.X.ndim == 2 and data.name == name
    for key in file.keys() - {"image_shape", "image_shape_64", "image_shape_full"}:
        assert data[key].dtype == file[key].dtype
        assert np.array_equal(data[key], file[key], equal_nan=file[key].dtype.kind == "f"), key
    if data.y is not None:
        assert data.y.shape == (len(data.X),)
        assert data.y.min() == 0
        if data.class_names is not None:
            assert np.unique(data.y).tolist() == list(range(len(data.class_names)))
    if data.feature_names is not None:
        assert len(data.feature_names) == data.X.shape[1]
    if data.image_shape is not None:
        assert np.prod(data.image_shape) == data.X.shape[1]
    if "X_train" in data:
        assert np.array_equal(data.X, np.concatenate([data.X_train, data.X_test]))
        assert np.array_equal(data.y, np.concatenate([data.y_train, data.y_test]))


# ------------------------------------------------------------------------- scikit-learn's own copies


@pytest.mark.parametrize("name", ["iris", "wine", "wdbc"])
def test_bundled_copy_needs_no_file(name):
    data = load(name)
    assert content_digest({key: data[key] for key in ("X", "y", "feature_names", "class_names")}) == (
        CATALOGUE[name].content
    )
    assert np.bincount(data.y).tolist() == {"iris": [50] * 3, "wine": [59, 71, 48], "wdbc": [212, 357]}[name]


@pytest.mark.parametrize("name", ["iris", "wine", "wdbc"])
def test_bundled_copy_is_the_file(name):
    same_arrays(CATALOGUE[name].bundled(), real_file(name))


def test_changed_bundled_copy_is_refused(monkeypatch):
    def changed():
        arrays = _public.iris()
        return {**arrays, "X": arrays["X"] + 1e-9}

    monkeypatch.setitem(CATALOGUE, "iris", dataclasses.replace(CATALOGUE["iris"], bundled=changed))
    with pytest.raises(ValueError, match="scikit-learn's copy of 'iris' does not match the checksum"):
        load("iris")


# -------------------------------------------------------------------------------------- downloads


@pytest.fixture
def public_toy(toy, monkeypatch):
    """The small set again, with a public home instead of a file; counts the downloads."""
    (toy / "toy.npz").unlink()
    downloads = []

    def download(scratch):
        assert Path(scratch).is_dir()
        downloads.append(scratch)
        return dict(TOY)

    changed = dataclasses.replace(CATALOGUE["toy"], download=download, content=content_digest(TOY))
    monkeypatch.setitem(CATALOGUE, "toy", changed)
    return toy / "new" / "folder", downloads


def test_download_is_kept(public_toy):
    folder, downloads = public_toy
    first = load("toy", folder)
    assert [path.name for path in folder.iterdir()] == ["toy.npz"]  # nothing else is left there
    second = load("toy", folder)
    assert len(downloads) == 1
    assert np.array_equal(first.X, second.X) and np.array_equal(first.y, second.y)
    assert second.X.tolist() == [[0, 1], [2, 3], [4, 5], [7, 8]]


def test_kept_download_is_checked_too(public_toy):
    folder, _ = public_toy
    load("toy", folder)
    np.savez(folder / "toy.npz", **{**TOY, "y_test": np.array([1])})
    with pytest.raises(ValueError, match="is damaged or not the expected file"):
        load("toy", folder)


@pytest.mark.parametrize(
    "change",
    [
        {"X_test": np.array([[7.0, 8.5]])},
        {"y_train": np.array([1, 1, 1])},
        {"class_names": np.array(["yes", "no"])},
        {"X_train": TOY["X_train"].astype(np.float32)},
        {"X_train": TOY["X_train"][:2], "y_train": TOY["y_train"][:2]},
        {"y_train": TOY["y_train"][:2]},
        {"y_train": TOY["y_train"][::-1]},
    ],
    ids=["value", "label", "name", "type", "row missing", "label missing", "labels moved"],
)
def test_another_set_is_refused_and_not_kept(public_toy, monkeypatch, change):
    folder, _ = public_toy
    wrong = dataclasses.replace(CATALOGUE["toy"], download=lambda scratch: {**TOY, **change})
    monkeypatch.setitem(CATALOGUE, "toy", wrong)
    with pytest.raises(ValueError, match="public copy of 'toy' does not match the checksum"):
        load("toy", folder)
    assert list(folder.iterdir()) == []


def test_offline(public_toy, monkeypatch):
    folder, _ = public_toy

    def offline(scratch):
        raise URLError("no network")

    monkeypatch.setitem(CATALOGUE, "toy", dataclasses.replace(CATALOGUE["toy"], download=offline))
    with pytest.raises(
        FileNotFoundError, match=r"could not be downloaded .*no network.*Put the file toy\.npz"
    ):
        load("toy", folder)
    assert list(folder.iterdir()) == []


def test_content_digest_minds_neither_order_nor_layout():
    moved = {**TOY, "X_train": TOY["X_train"][::-1], "y_train": TOY["y_train"][::-1]}
    stored = {**TOY, "X_train": np.asfortranarray(TOY["X_train"]), "X_test": TOY["X_test"].astype(">f8")}
    assert content_digest(TOY) == content_digest(moved) == content_digest(stored)


def as_published(name, file):
    """What the fetcher of scikit-learn gives for the arrays of a file."""
    if name == "olivetti":  # scaled to a maximum of 1
        return "fetch_olivetti_faces", (file["X"].astype(np.float32) / np.float32(242), file["y"].astype(int))
    if (
        name == "kddcup99_10pct"
    ):  # 41 columns of objects; categories and labels are bytes, these with a full stop
        order = [*file["num_names"][:1], *file["cat_names"], *file["num_names"][1:]]
        column = {key: file["X_num"][:, j].astype(object) for j, key in enumerate(file["num_names"])}
        for j, key in enumerate(file["cat_names"]):
            column[key] = file[f"cat_{key}"].astype(bytes).astype(object)[file["X_cat"][:, j]]
        labels = np.char.add(file["class_names"], ".").astype(bytes).astype(object)[file["y"]]
        data = np.column_stack([column[key] for key in order])
        return "fetch_kddcup99", Bunch(data=data, target=labels, feature_names=[str(key) for key in order])
    X, y = (
        np.concatenate([file[f"{key}_train"], file[f"{key}_test"]]) if f"{key}_train" in file else file[key]
        for key in "Xy"
    )
    X = X.astype(np.float64)
    if name == "usps":  # from -1 to 1 in three digits, labels from 1
        X, y = np.round(2 * X - 1, 3), y + 1
    labels = np.array(["Rock", "Mine"])[y] if name == "sonar" else (y + (name == "seeds")).astype(str)
    return "fetch_openml", (X, labels.astype(object))


def few_rows(file):
    """A small part of the file in which every class and category still occurs."""
    first = [np.unique(codes, return_index=True)[1] for codes in (file["y"], *file["X_cat"].T)]
    kept = np.union1d(np.concatenate(first), np.arange(1000))
    return {**file, **{key: file[key][kept] for key in ("X_num", "X_cat", "y")}}


@pytest.mark.parametrize("name", DOWNLOADED)
def test_conversion_of_a_public_copy_gives_the_file(name, monkeypatch, tmp_path):
    file = real_file(name)
    assert content_digest(file) == CATALOGUE[name].content
    file = few_rows(file) if name == "kddcup99_10pct" else file
    fetcher, published = as_published(name, file)
    asked = []

    def fetch(**arguments):
        asked.append(arguments)
        return published

    monkeypatch.setattr(_public, fetcher, fetch)
    same_arrays(CATALOGUE[name].download(tmp_path), file)
    assert asked[0]["data_home"] == tmp_path
    if fetcher == "fetch_openml":
        assert f"https://www.openml.org/d/{asked[0]['data_id']}." in CATALOGUE[name].source


@pytest.mark.parametrize("name", DOWNLOADED)
def test_every_public_home_may_be_out_of_reach(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{name}.* could not be downloaded .*no network"):
        load(name, tmp_path)


# -------------------------------------------------------------------------------------- synthetic


def assert_moments(X, mean, covariance):
    """Mean and covariance of many rows within five standard errors of the given ones."""
    n, deviations = len(X), X - mean
    assert np.all(np.abs(deviations.mean(axis=0)) < 5 * np.sqrt(np.diag(covariance) / n))
    products = deviations[:, :, None] * deviations[:, None, :]
    assert np.all(np.abs(products.mean(axis=0) - covariance) < 5 * products.std(axis=0) / np.sqrt(n))


def test_three_gaussians_have_their_moments():
    data = load_three_gaussians(60_000, random_state=1)
    for k in range(3):
        assert_moments(data.X[data.y == k], data.means[k], data.covariances[k])
    assert data.means.tolist() == [[0, 0, 0], [2, 2, 6], [8, 8, 8]]
    assert data.covariances[:, 0, 1].tolist() == [-1.8, 1.8, 0.0]
    for covariance in data.covariances:
        assert np.array_equal(covariance, covariance.T)
        assert np.linalg.eigvalsh(covariance).min() > 0.5


def test_two_mode_class_has_the_moments_of_its_classes_and_modes():
    data = load_two_mode_class(60_000, random_state=2)
    plane, noise = data.X[:, :2], data.X[:, 2:]
    assert data.class_covariances[0].tolist() == [[23.2368, 19.2956], [19.2956, 19.8985]]
    for k in range(2):
        assert_moments(plane[data.y == k], data.class_means[k], data.class_covariances[k])
    for m in range(3):
        assert_moments(plane[data.mode == m], data.means[m], data.covariances[m])
    assert_moments(noise[:, :4], np.zeros(4), np.eye(4))
    assert np.array_equal(data.y, data.mode == 2)


def test_first_class_has_two_modes_on_both_sides_of_the_second():
    data = load_two_mode_class(4000, random_state=3)
    axis = data.means[0] - data.means[1]
    position = (data.X[:, :2] - data.class_means[0]) @ axis / (axis @ axis)  # modes at +1/2 and -1/2
    two, one = position[data.y == 0], position[data.y == 1]
    assert np.mean(np.abs(two) < 0.2) < 0.01
    assert abs(np.mean(two > 0) - 0.5) < 0.05
    assert np.mean(np.abs(one) < 0.4) > 0.9


def test_bars_add_up_and_have_the_moments_of_poisson_counts():
    data = load_bars(3, 40_000, probability=0.4, weight=5.0, background=0.5, random_state=4)
    assert data.X.shape == (40_000, 9) and data.codes.shape == (40_000, 6)
    assert set(np.unique(data.codes)) == {0.0, 1.0}
    assert np.array_equal(data.X, np.round(data.X)) and data.X.min() >= 0
    pi, W = data.activation_probability, data.components
    assert pi == 0.4
    assert_moments(data.codes, np.full(6, pi), pi * (1 - pi) * np.eye(6))
    covariance = pi * (1 - pi) * W.T @ W + np.diag(pi * W.sum(axis=0))  # of the causes, and of counts
    assert_moments(data.X, pi * W.sum(axis=0), covariance)
    left = data.X - data.codes @ W
    assert np.all(np.abs(left.mean(axis=0)) < 5 * left.std(axis=0) / 200)


def test_bars_are_rows_and_columns_of_the_image():
    data = load_bars(4, 10, random_state=0)
    images = data.components.reshape(8, *data.image_shape)
    for i in range(4):
        row, column = np.zeros((4, 4)), np.zeros((4, 4))
        row[i], column[:, i] = 10.0, 10.0
        assert np.array_equal(images[i], row) and np.array_equal(images[4 + i], column)
    assert np.all(load_bars(2, 5, background=1.0, random_state=0).components >= 1.0)
    assert np.all(data.X[data.codes @ data.components == 0] == 0)
    nothing, all_bars = (load_bars(2, 5, probability=p, random_state=0) for p in (0.0, 1.0))
    assert not nothing.X.any() and all_bars.codes.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size"),
        ({"n_samples": 0}, "n_samples"),
        ({"probability": 1.5}, "probability"),
        ({"weight": -1.0}, "weight"),
        ({"background": -1.0}, "background"),
    ],
)
def test_bad_bars_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        load_bars(**options)


@pytest.mark.parametrize("generate", [load_three_gaussians, load_two_mode_class, load_bars, load_griffiths])
def test_generators_follow_their_seed(generate):
    first, again, other = (generate(random_state=seed) for seed in (7, 7, 8))
    assert np.array_equal(first.X, again.X)
    assert not np.any(np.all(first.X == other.X, axis=0))  # no column stays as it is
    assert first.name and first.description
    from_state = generate(random_state=np.random.RandomState(7))
    assert np.array_equal(first.X, from_state.X)


def test_griffiths_images_are_sums_of_shapes_with_noise():
    data = load_griffiths(20_000, noise=0.3, luminances=(1.0, 2.0), probability=0.4, random_state=5)
    assert data.X.shape == (20_000, 36) and data.features.shape == (4, 36)
    assert data.codes.dtype.kind == "i" and set(np.unique(data.codes)) == {0, 1}
    assert np.array_equal(data.luminances > 0, data.codes == 1)
    np.testing.assert_allclose(data.clean, data.luminances @ data.features)
    assert_moments(data.codes, np.full(4, 0.4), 0.24 * np.eye(4))
    assert abs(np.mean(data.luminances[data.codes == 1] == 2.0) - 0.5) < 0.02
    assert_moments((data.X - data.clean)[:, :4], np.zeros(4), 0.09 * np.eye(4))
    shapes = data.features.reshape(4, 2, 3, 2, 3).transpose(0, 1, 3, 2, 4)
    for k in range(4):  # a shape of its own in a corner of its own
        filled = shapes[k].sum(axis=(2, 3))
        assert np.flatnonzero(filled) == [k] and 5 <= filled.sum() <= 8
    for options, named in (
        ({"noise": -1.0}, "noise"),
        ({"luminances": ()}, "luminances"),
        ({"luminances": (0.0,)}, "luminances"),
        ({"probability": 2.0}, "probability"),
        ({"n_samples": 0}, "n_samples"),
    ):
        with pytest.raises(ValueError, match=named):
            load_griffiths(**options)


@pytest.mark.parametrize("generate", [load_com_usps, load_com_nist])
def test_combined_images_have_a_picture_of_each_class_in_its_quadrant(generate, monkeypatch):
    rng = np.random.default_rng(0)
    for name in ("usps", "inbmt_pre_nist"):
        arrays = {"X": rng.random((80, 6)), "y": np.repeat(np.arange(4), 20), "image_shape": np.array([2, 3])}
        toy = dataclasses.replace(
            CATALOGUE["seeds"], bundled=lambda a=arrays: a, content=content_digest(arrays)
        )
        monkeypatch.setitem(CATALOGUE, name, toy)
    data = generate(500, n_pictures=2, noise=0.1, random_state=0)
    assert (
        data.X.shape == (500, 24) and data.features.shape == (8, 24) and data.image_shape.tolist() == [4, 6]
    )
    np.testing.assert_array_equal(data.clean, data.codes @ data.features)
    assert abs(np.std(data.X - data.clean) - 0.1) < 0.01
    by_class = data.codes.reshape(500, 4, 2).sum(axis=2)
    assert by_class.max() == 1 and abs(by_class.mean() - 0.5) < 0.1
    images = data.features.reshape(4, 2, 2, 2, 2, 3)
    for k in range(4):
        others = images[k].copy()
        others[:, k // 2, :, k % 2, :] = 0
        assert not others.any() and not np.array_equal(images[k, 0], images[k, 1])
    assert np.array_equal(generate(5, random_state=1).X, generate(5, random_state=1).X)
    assert generate(5, random_state=1).features.shape == (4, 24)
    with pytest.raises(ValueError, match="n_pictures"):
        generate(5, n_pictures=0)


def test_sizes_of_synthetic_sets():
    assert np.bincount(load_three_gaussians().y).tolist() == [100, 100, 100]
    odd = load_three_gaussians(11)
    assert odd.X.shape == (11, 3) and np.bincount(odd.y).tolist() == [4, 4, 3]
    assert odd.weights.tolist() == [4 / 11, 4 / 11, 3 / 11]
    assert load_two_mode_class().X.shape == (400, 32)
    assert np.bincount(load_two_mode_class().mode).tolist() == [100, 100, 200]
    small = load_two_mode_class(7, n_noise_features=0)
    assert small.X.shape == (7, 2) and np.bincount(small.y).tolist() == [4, 3]
    with pytest.raises(ValueError, match="n_samples"):
        load_three_gaussians(0)
    with pytest.raises(TypeError, match="n_samples"):
        load_two_mode_class(10.5)


@pytest.mark.parametrize(
    ("options", "mean", "variance"),
    [
        ({}, 1.0, 4 / 12),
        ({"low": -3, "high": 1}, -1.0, 16 / 12),
        ({"distribution": "normal"}, 0.0, 1.0),
        ({"distribution": "normal", "scale": 0.1}, 0.0, 0.01),
    ],
)
def test_noise_features(options, mean, variance):
    X = np.random.default_rng(0).normal(size=(20_000, 2))
    noisy = with_noise_features(X, 3, random_state=4, **options)
    assert np.array_equal(noisy[:, :2], X)
    assert_moments(noisy[:, 2:], np.full(3, mean), variance * np.eye(3))
    correlations = np.corrcoef(noisy.T)[:2, 2:]
    assert np.abs(correlations).max() < 5 / np.sqrt(len(X))
    if options.get("distribution") != "normal":
        assert noisy[:, 2:].min() >= options.get("low", 0) and noisy[:, 2:].max() <= options.get("high", 2)
    assert np.array_equal(noisy, with_noise_features(X, 3, random_state=4, **options))
    assert not np.array_equal(noisy, with_noise_features(X, 3, random_state=5, **options))


def test_noise_features_keep_type_and_holes():
    X = np.array([[1.0, np.nan], [2.0, 3.0]], dtype=np.float32)
    noisy = with_noise_features(X, 1, random_state=0)
    assert noisy.dtype == np.float32 and noisy.shape == (2, 3)
    assert np.array_equal(noisy[:, :2], X, equal_nan=True)
    assert with_noise_features(X, 0).shape == (2, 2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_features": -1}, ValueError, "n_features"),
        ({"n_features": 1.5}, TypeError, "n_features"),
        ({"distribution": "cauchy"}, ValueError, "distribution must be 'uniform' or 'normal', not 'cauchy'"),
        ({"low": 2}, ValueError, "low must be less than high"),
        ({"high": np.inf}, ValueError, "low must be less than high, both finite"),
        ({"distribution": "normal", "scale": 0}, ValueError, "scale must be positive"),
        ({"distribution": "normal", "scale": np.nan}, ValueError, "scale must be positive"),
    ],
)
def test_bad_noise_is_named(options, error, message):
    with pytest.raises(error, match=message):
        with_noise_features(np.eye(3), **{"n_features": 2, **options})


def test_noisy_seeds(monkeypatch):
    names = [f"measurement_{i}" for i in range(7)]
    rng = np.random.default_rng(0)
    arrays = {"X": rng.random((210, 7)), "y": np.repeat([0, 1, 2], 70), "feature_names": np.array(names)}
    small = dataclasses.replace(CATALOGUE["seeds"], bundled=lambda: arrays, content=content_digest(arrays))
    monkeypatch.setitem(CATALOGUE, "seeds", small)
    data = load_noisy_seeds(random_state=0)
    assert data.X.shape == (210, 37) and data.y is arrays["y"]
    assert np.array_equal(data.X[:, :7], arrays["X"])
    assert data.X[:, 7:].min() >= 0 and 1.9 < data.X[:, 7:].max() <= 2
    assert data.feature_names.tolist() == names + [f"noise_{i}" for i in range(1, 31)]
    assert data.name == "noisy_seeds" and "30 uniform noise features" in data.description
    assert load_noisy_seeds(2, random_state=0).X.shape == (210, 9)
    assert np.array_equal(data.X, load_noisy_seeds(random_state=0).X)


@pytest.mark.parametrize("load", [load_three_gaussians, load_two_mode_class, load_bars, load_griffiths])
def test_generators_take_every_kind_of_seed(load):
    """The same seed gives the same rows, and a generator that is passed on gives others."""
    one, again = (load(random_state=np.random.default_rng(3)).X for _ in range(2))
    np.testing.assert_array_equal(one, again)
    rng = np.random.default_rng(3)
    np.testing.assert_array_equal(load(random_state=rng).X, one)
    assert not np.array_equal(load(random_state=rng).X, one)
