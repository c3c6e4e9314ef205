"""Reproductions of chapter 6 and section 2.5.2 of document 003, and runs in parallel."""

import json
import tarfile
from functools import partial

import numpy as np
import pytest
from scipy.stats import betabinom

from latently.metrics import conformal_interval
from reproductions import in_parallel, kept
from reproductions.document_003 import _joint, section_2_5_2_spread, table_6_1_settings
from reproductions.document_003.table_6_2 import probability
from tests.reproductions.data_sets import skip_without


@pytest.mark.parametrize(("before", "after"), [(16, 20), (20, 20), (39, 20), (7, 13)])
def test_images_are_scaled_as_by_pillow(before, after):
    image = pytest.importorskip("PIL.Image")
    line = np.random.default_rng(0).integers(60, 200, size=before)
    picture = image.fromarray(np.tile(line, (4, 1)).astype(np.uint8))
    expected = np.asarray(picture.resize((after, 4), image.Resampling.BICUBIC))[0]
    np.testing.assert_allclose(_joint._cubic(before, after) @ line, expected, atol=0.51)


def test_acceptances_outside_their_interval_are_improbable():
    n_test, n_calibration, wanted = 500, 300, 0.97
    low, high = conformal_interval(n_calibration, wanted, n_rows=n_test)
    for acceptance in np.arange(n_test + 1) / n_test:
        p = probability(acceptance, n_test, n_calibration, wanted)
        assert (p > 0.05) == (low <= acceptance <= high), acceptance
    rank = 9  # floor(301 * 0.03)
    middle = betabinom(n_test, n_calibration + 1 - rank, rank).median() / n_test
    assert probability(middle, n_test, n_calibration, wanted) > 0.9


def test_settings_of_the_least_error_are_taken():
    records = [
        {"channels": "8", "weight": 1.0, "epochs": 2, "error": 0.2},
        {"channels": "16-32", "weight": 3.0, "epochs": 4, "error": 0.1},
    ]
    best = table_6_1_settings.best(records)
    assert (best["hidden_layer_sizes"], best["classification_weight"], best["max_iter"]) == ([16, 32], 3.0, 4)
    assert best.keys() == _joint.CHOSEN.keys()


def test_spread_is_over_seeds_on_the_same_half():
    values = [[[0.5, 0.1], [0.7, 0.1]], [[0.9, 0.3], [0.9, 0.3]]]  # (halves, seeds, measures)
    found = section_2_5_2_spread.told(values)
    assert found["AUROC"] == pytest.approx(0.75)
    assert found["AUROC, sd over seeds"] == pytest.approx(0.1)  # variances 0.02 and 0
    assert found["AUROC, sd over halves"] == pytest.approx(0.15)
    assert found["F1, sd over seeds"] == 0


def fails_on_a_gpu(found):
    if _joint.DEVICE != "cpu":
        raise RuntimeError("no such kernel")
    found.append("done")


def test_what_fails_on_a_gpu_runs_on_the_cpu(monkeypatch):
    monkeypatch.setattr(_joint, "DEVICE", "cuda")
    found = []
    _, noted, error = in_parallel.in_order([partial(fails_on_a_gpu, found)])
    assert (found, error) == (["done"], "")
    assert "no such kernel" in noted
    _, _, error = in_parallel.in_order([partial(int, "x")])
    assert "ValueError" in error


@pytest.mark.slow
def test_runs_in_parallel_and_goes_on(tmp_path, monkeypatch, capsys):
    for name in ("mnist", "binary_alphadigits", "urban_land_cover", "arrhythmia_odds"):
        skip_without(name)

    def run(name, *options):
        monkeypatch.setenv("TMPDIR", str(tmp_path / name))
        monkeypatch.setattr("tempfile.tempdir", None)
        (tmp_path / name).mkdir()
        output = tmp_path / f"{name}-output"
        fixed = ["in_parallel", "--quick", "--networks", "1", "--tables", "1", "--output", str(output)]
        monkeypatch.setattr("sys.argv", [*fixed, *options])
        in_parallel.main()
        return output

    first = run("first")
    names = {path.name for path in first.glob("*.json")}
    assert {"table-6.1.json", "table-6.2.json", "figures-6.3-6.6.json", "section-2.5.2.json"} < names
    with tarfile.open(first / "kept.tar") as archive:
        assert "log.txt" in archive.getnames()
    second = run("second", "--resume", str(first / "kept.tar"))
    assert {path.name for path in second.glob("*.json")} == names
    assert not list(kept.folder_of_kept().glob("joint-*"))  # nothing was trained again
    for name in names:
        records = [json.loads((folder / name).read_text())["records"] for folder in (first, second)]
        assert records[0] == records[1], name
    assert "all were run" in capsys.readouterr().out
