"""A file is the same rows to the library and to the command line: numbers, names and what is missing.

The library opens it as a source, the command line as a table that it surveys and collects. What they do about
text differs, and is held here as well.
"""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from latently import load
from latently.cli import main
from latently.cli.speaking import Voice
from latently.cli.tables import open_table
from latently.core.sources import chunks, open_source
from latently.mixture import PPCA
from latently.tables.preparing import Surveyed, collected, recorded
from latently.tables.reading import Reading
from latently.tables.survey import survey

nan = np.nan


def text(content, encoding="utf-8"):
    return lambda path: path.write_bytes(content.encode(encoding))


def packed(content):
    return lambda path: path.write_bytes(gzip.compress(content.encode()))


def parquet(**columns):
    return lambda path: pd.DataFrame(columns).to_parquet(path)


def array(X, **more):
    return lambda path: np.savez(path, X=X, **more) if path.suffix == ".npz" else np.save(path, X)


def zarr_array(path):
    stored = pytest.importorskip("zarr").create_array(str(path), shape=(3, 2), chunks=(2, 1), dtype="int16")
    stored[:] = INTEGERS


def parquet_folder(path):
    path.mkdir()
    pd.DataFrame({"a": [1.5], "b": [1]}).to_parquet(path / "1.parquet")
    pd.DataFrame({"b": pd.array([None, 4], dtype="Int64"), "a": [2.5, nan]}).to_parquet(path / "2.parquet")


INTEGERS = np.array([[1, 2], [3, 4], [5, 7]])
HOLED = np.array([[1.5, 2.5], [nan, 3.0], [4.0, nan]])
AB = ["a", "b"]

FILES = {  # name: how it is written, names of the columns or None, numbers
    "semicolons.csv": (text("a;b\n1,5;2,5\n;3\n4;NA\n"), AB, HOLED),
    "semicolons-and-points.csv": (text("a;b\n1.5;2.5\n;3\n4;NA\n"), AB, HOLED),
    "tabs-and-commas.tsv": (text("a\tb\n1,5\t2,5\n\t3\n4\tNA\n"), AB, HOLED),
    "bars.txt": (text("a|b\n1.5|2.5\n|3\n4|NA\n"), AB, HOLED),
    "blanks.dat": (text("1.5 2.5\nnan 3\n4 nan\n"), None, HOLED),
    "bare.csv": (text("1.5,2.5\n,3\n4,\n"), None, HOLED),
    "hole-at-first.csv": (text(",2.5\n1.5,3\n4,\n"), None, np.array([[nan, 2.5], [1.5, 3], [4, nan]])),
    "marks.csv": (
        text("a,b\n1,?\n2,-\n3,n/a\n4,NULL\n5, none \n6,Missing\n7,.\n8,#N/A\n9,<NA>\n10,-nan\n11,0.5\n"),
        AB,
        np.array([[i, nan] for i in range(1, 11)] + [[11, 0.5]]),
    ),
    "quoted.csv": (text('"a, or ""x""","b\n2"\n"1.5","2.5"\n,3\n4,\n'), ['a, or "x"', "b\n2"], HOLED),
    "bom.csv": (text("\ufeffa,b\n1.5,2.5\n,3\n4,\n"), AB, HOLED),
    "utf-16.csv": (text("größe;b\n1,5;2,5\n;3\n4;\n", "utf-16"), ["größe", "b"], HOLED),
    "lines.csv": (text("\r\n\r\na, b\r\n1.5, 2.5\r\n\r\n, 3\r\n4\r\n"), AB, HOLED),
    "years.csv": (text("1990,2000\n1.5,2.5\n,3\n4,\n"), ["1990", "2000"], HOLED),
    "numbered.csv": (text(",0\n1.5,2.5\n,3\n4,\n"), ["column_1", "0"], HOLED),
    "truth.csv": (text("a,b\nTrue,1\nfalse,2\n0.5,\n"), AB, np.array([[1, 1], [0, 2], [0.5, nan]])),
    "whole.csv": (text("a,b\n1,9007199254740993\n2,1e400\n3,-7\n"), AB, None),
    "packed.csv.gz": (packed("a;b\n1,5;2,5\n;3\n4;NA\n"), AB, HOLED),
    "nulls.parquet": (
        parquet(a=pd.array([1, None, 3], dtype="Int64"), b=pd.array([True, None, False], dtype="boolean")),
        AB,
        np.array([[1, 1], [nan, nan], [3, 0]]),
    ),
    "large-integers.pq": (
        parquet(a=np.array([2**62 + 1, -1, 0]), b=np.array([1, 2, 3], "uint8")),
        AB,
        np.array([[2.0**62, 1], [-1, 2], [0, 3]]),
    ),
    "float32.parquet": (parquet(a=HOLED[:, 0].astype("f4"), b=HOLED[:, 1].astype("f4")), AB, HOLED),
    "folder.parquet": (parquet_folder, AB, np.array([[1.5, 1], [2.5, nan], [nan, 4]])),
    "c.npy": (array(HOLED), None, HOLED),
    "fortran.npy": (array(np.asfortranarray(HOLED)), None, HOLED),
    "swapped.npy": (array(INTEGERS.astype(">i2")), None, INTEGERS),
    "half.npy": (array(HOLED.astype("f2")), None, HOLED),
    "archive.npz": (array(HOLED, y=np.array([1, 2, 1])), None, HOLED),
    "fortran.npz": (array(np.asfortranarray(HOLED)), None, HOLED),
    "stored.zarr": (zarr_array, None, INTEGERS),
}


@pytest.fixture(params=[None, 64 * 3], ids=["whole", "in pieces"])
def pieces(request, monkeypatch):
    """Files are read at once, or a row or two at a time."""
    if request.param:
        monkeypatch.setattr(chunks, "CHUNK_BYTES", request.param)


def library_reads(path):
    source = open_source(path)
    return source.feature_names, np.concatenate(list(source.chunks())).astype(np.float64)


def command_line_reads(path, scratch):
    """Both from the first reading, as small tables are, and from a second one, as large tables are."""
    readings = []
    for limit in (np.inf, 0):
        with Voice() as voice:
            table = open_table(path, Reading(), voice)
            found = survey(table, limit=limit)
            places = [place for place, name in enumerate(table.columns) if name not in table.beside]
            options = {"scratch": scratch, "in_memory": True}
            known = Surveyed(table, found, places, [], {}, {}, np.zeros(0, dtype=int))
            record = recorded(known, "PPCA", standardise=False)
            rows = collected(known, record, **options)
        assert found.n_rows == len(rows.X) and not found.n_text[places].any()
        readings.append(rows.X)
    np.testing.assert_array_equal(*readings)
    names = [table.columns[place] for place in places]
    return names if table.named else None, readings[0]


@pytest.mark.filterwarnings("ignore:rows .* have fewer cells")
@pytest.mark.parametrize("name", FILES)
def test_both_read_the_same(tmp_path, pieces, name):
    write, names, expected = FILES[name]
    write(tmp_path / name)
    its_names, rows = library_reads(tmp_path / name)
    assert its_names == names
    if expected is not None:
        np.testing.assert_array_equal(rows, expected)
    their_names, their_rows = command_line_reads(tmp_path / name, tmp_path)
    assert their_names == its_names
    np.testing.assert_array_equal(their_rows, np.where(np.isinf(rows), nan, rows))  # which no model fits


@pytest.mark.parametrize("name", ["semicolons.csv", "table.parquet", "array.npy", "array.npz"])
def test_both_fit_the_same_model(tmp_path, name):
    X = np.random.default_rng(0).normal(size=(60, 3)) @ np.diag([1, 2, 3])
    X[::7, 1] = nan
    frame = pd.DataFrame(X, columns=list("abc"))
    if name.endswith("csv"):
        frame.to_csv(tmp_path / name, sep=";", decimal=",", na_rep="?", index=False)
    elif name.endswith("parquet"):
        frame.to_parquet(tmp_path / name)
    else:
        array(X)(tmp_path / name)
    model = PPCA(1, random_state=0).fit(tmp_path / name)
    folder = tmp_path / "model"
    command = ["fit", tmp_path / name, "-m", "ppca", "-q", 1, "--no-standardise", "--from-disk"]
    assert main([*map(str, command), "-o", str(folder)]) == 0
    theirs = load(folder).estimator_
    for attribute in ("mean_", "loadings_", "noise_variance_", "history_"):
        np.testing.assert_array_equal(getattr(theirs, attribute), getattr(model, attribute))
    if not name.startswith("array"):
        record = json.loads((folder / "description.json").read_text())
        assert record["columns"] == list(model.feature_names_in_)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_text_is_refused_by_the_one_and_left_out_by_the_other(tmp_path, name):
    frame = pd.DataFrame({"a": [1.5, 2.5, 4.0], "kind": ["red", "blue", "red"]})
    frame.to_csv(tmp_path / name, index=False) if name == "a.csv" else frame.to_parquet(tmp_path / name)
    with pytest.raises(ValueError, match=r"column 'kind' of .*real numbers are needed"):
        library_reads(tmp_path / name)
    with Voice() as voice:
        found = survey(open_table(tmp_path / name, Reading(), voice), label="kind")
    assert found.n_text.tolist() == [0, 3] and list(found.labels) == ["red", "blue"]
    np.testing.assert_array_equal(found.kept[0][:, 0], frame["a"])


def test_images_are_features_to_the_command_line_alone(tmp_path):
    X = np.arange(24.0).reshape(4, 2, 3)
    for order in "CF":
        np.save(tmp_path / "x.npy", np.asarray(X, order=order))
        with pytest.raises(ValueError, match="3-D, not 2-D"):
            open_source(tmp_path / "x.npy")
        names, rows = command_line_reads(tmp_path / "x.npy", tmp_path)
        assert names is None
        np.testing.assert_array_equal(rows, X.reshape(4, 6))


def test_a_damaged_archive_is_named(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, X=np.random.default_rng(0).normal(size=(500, 3)))
    whole = bytearray(path.read_bytes())
    for damaged in (whole[:-30], whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"x.npz' cannot be read as an .npz file"):
            open_source(path)
    whole[len(whole) // 2] ^= 255
    path.write_bytes(whole)
    with pytest.raises(ValueError, match=r"x.npz' cannot be read as an .npz file"):
        library_reads(path)
