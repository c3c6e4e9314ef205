"""Small files that claim to be large are refused before anything is allocated, by name."""

import gzip
import struct
import zipfile

import numpy as np
import pytest

import latently
from latently.core import io
from latently.core.io import ModelFileError
from latently.core.sources import open_source
from tests.fuzz.files import SAVED


def header_of(shape):
    fields = {"descr": "<f8", "fortran_order": False, "shape": shape}
    return np.lib.format.magic(1, 0) + struct.pack("<H", 118) + repr(fields).encode().ljust(117) + b"\n"


@pytest.mark.parametrize("shape", [(10, 10**10), (10**10, 10), (2**62, 4), (2**40, 2**40)])
@pytest.mark.parametrize("ending", ["npy", "npz"])
def test_an_array_that_is_not_there(shape, ending, tmp_path):
    path = tmp_path / f"x.{ending}"
    if ending == "npy":
        path.write_bytes(header_of(shape))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", header_of(shape))
    with pytest.raises(ValueError, match=rf"x\.{ending}.*cut short"):
        open_source(path)


def test_more_columns_than_any_table(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1, 1_000_001), np.uint8))
    with pytest.raises(ValueError, match=r"x\.npy.* 1000001 columns.*transposed"):
        open_source(tmp_path / "x.npy")


def test_a_line_without_end(tmp_path):
    path = tmp_path / "x.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(12):
            file.write(b"1," * 500_000)
    with pytest.raises(ValueError, match=r"x\.csv\.gz.*no end of line"):
        open_source(path)


def test_a_later_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("latently.core.sources.delimited._LONGEST_LINE", 1_000_000)
    path = tmp_path / "x.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a,b\n" + b"1,2\n" * 3_000_000 + b"1," * 3_000_000)
    with pytest.raises(ValueError, match=r"x\.csv\.gz.*a line of more than"):
        for _ in open_source(path).chunks():
            pass


SIZES = ("n_components", "n_factors", "n_groups", "n_subcomponents", "n_subfactors", "hidden_layer_sizes")


@pytest.mark.parametrize("size", [10**5, 10**9])
@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_sizes_beyond_the_contents_of_a_model(path, size, tmp_path):
    header, arrays = io.read(path)
    header.pop("format_version")
    tried = 0
    for name, value in header["hyper_parameters"].items():
        if name in SIZES and value is not None:
            tried += 1
            forged = size if not isinstance(value, list) else [size] * len(value)
            changed = {**header, "hyper_parameters": {**header["hyper_parameters"], name: forged}}
            io.write(tmp_path / "x", changed, arrays)
            with pytest.raises(ModelFileError, match=f"{name}|parts|layer|size"):
                latently.load(tmp_path / "x")
    if not tried:
        pytest.skip("has no sizes")


def test_exact_parameters_are_those_that_are_shown(tmp_path):
    """They decide on scores, so they must not say something else than what users see."""
    path = next(path for path in SAVED if path.stem == "MCFA")
    header, arrays = io.read(path)
    header.pop("format_version")
    changed = {**arrays, "exact.latent_means": arrays["exact.latent_means"] + 1.0}
    io.write(tmp_path / "x", header, changed)
    with pytest.raises(ModelFileError, match="exact parameters are not those"):
        latently.load(tmp_path / "x")


def test_a_model_that_could_not_be_read_is_not_saved(tmp_path):
    from latently.mixture import GaussianMixture

    X = np.random.default_rng(0).normal(size=(30, 2))
    model = GaussianMixture(2, random_state=0).fit(X)
    model.save(tmp_path / "x")
    before = (tmp_path / "x").read_bytes()
    model.set_params(n_components=3)
    with pytest.raises(ValueError, match=r"GaussianMixture cannot be saved.*Fit it again"):
        model.save(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == before


@pytest.mark.parametrize(
    "name, array, value, says",
    [
        ("VAE", "scale", 0.0, "scale .* positive"),
        ("JointAutoencoder", "normalisation.running_var", -1.0, "running_var .* negative"),
        ("RBM", "intercept_visible", 1e160, "beyond 1e\\+150"),
    ],
)
def test_parameters_of_networks_that_make_nan_of_rows(name, array, value, says, tmp_path):
    path = next(path for path in SAVED if path.stem == name)
    header, arrays = io.read(path)
    header.pop("format_version")
    key = f"parts.module.{array}"
    io.write(tmp_path / "x", header, arrays | {key: np.full_like(arrays[key], value)})
    with pytest.raises(ModelFileError, match=says):
        latently.load(tmp_path / "x")


def test_losses_that_are_no_numbers(tmp_path):
    header, arrays = io.read(next(path for path in SAVED if path.stem == "VAE"))
    header.pop("format_version")
    header["more"]["losses"]["KL"][0] = None
    io.write(tmp_path / "x", header, arrays)
    with pytest.raises(ModelFileError, match="losses must be lists of finite numbers"):
        latently.load(tmp_path / "x")
