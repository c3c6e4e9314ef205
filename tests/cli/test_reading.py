"""Files of many kinds: the right numbers, or an error that helps."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from latently.cli.speaking import Voice
from latently.cli.tables import open_table
from latently.core.sources import MISSING, numbers_of
from latently.core.sources.dialect import Given
from latently.tables.reading import Reading
from latently.tables.survey import survey


def numbers_in(path, **reading):
    """All numbers of a table, by name, and what was noted."""
    with Voice() as voice:
        table = open_table(path, Reading(Given(**reading)), voice)
        decimal = table.dialect.decimal if table.dialect else "."
        blocks = [numbers_of(frame, MISSING, decimal)[0] for frame in table.frames(MISSING, [])]
    return pd.DataFrame(np.concatenate(blocks), columns=table.columns), voice.notes


@pytest.fixture(params=[None, 7], ids=["whole", "in pieces"])
def pieces(request, monkeypatch):
    """Tables are read in frames of few cells, so that there are many."""
    if request.param:
        monkeypatch.setattr("latently.core.sources.chunks.CHUNK_BYTES", 64 * request.param)


# -- text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("separator", "decimal"), [",.", ";.", ";,", "\t.", "\t,", "|.", "|,"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_dialects_are_guessed(tmp_path, pieces, table, separator, decimal, encoding):
    table = table.head(20).rename(columns={"a": "größe in m", "b": "b; or | not"})
    holed = table.mask(np.random.default_rng(0).random(table.shape) < 0.1)
    path = tmp_path / "some.csv"
    holed.to_csv(path, sep=separator, decimal=decimal, encoding=encoding, index=False)
    found, notes = numbers_in(path)
    pd.testing.assert_frame_equal(found, holed, rtol=1e-12)
    assert any("Latin-1" in note for note in notes) == (encoding == "latin-1")


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("decimal", [".", ","])
def test_semicolons_win_over_decimal_commas(tmp_path, table, header, decimal):
    path = tmp_path / "some.csv"
    table.to_csv(path, sep=";", decimal=decimal, index=False, header=header)
    found, _ = numbers_in(path)
    np.testing.assert_allclose(found, table)
    assert list(found) == (list(table) if header else [f"column_{j}" for j in range(1, 6)])


def test_missing_cells_are_known_by_many_names(tmp_path):
    marks = ["", "NA", "n/a", "NaN", "null", "None", "?", "-", "NULL", " ? ", "#N/A"]
    path = tmp_path / "some.csv"
    path.write_text("a,b\n" + "".join(f"{mark},{i}\n" for i, mark in enumerate(marks)) + "2.5,0\n")
    found, _ = numbers_in(path)
    assert found["a"].isna().sum() == len(marks) and found["a"].iloc[-1] == 2.5


def test_packed_text_and_blanks(tmp_path, table):
    with gzip.open(tmp_path / "some.csv.gz", "wt") as file:
        table.to_csv(file, index=False)
    np.testing.assert_allclose(numbers_in(tmp_path / "some.csv.gz")[0], table)
    np.savetxt(tmp_path / "some.txt", table)
    np.testing.assert_allclose(numbers_in(tmp_path / "some.txt")[0], table)


def test_names_of_rows_without_a_name(tmp_path):
    (tmp_path / "some.csv").write_text("a,b\nx,1,2\ny,3,4\n")
    found, notes = numbers_in(tmp_path / "some.csv")
    assert list(found) == ["row_name", "a", "b"] and found["b"].tolist() == [2, 4] and notes


def test_names_that_come_twice_or_not_at_all(tmp_path):
    (tmp_path / "some.csv").write_text("a,a,,a_2\n1,2,3,4\n5,6,7,8\n")
    found, notes = numbers_in(tmp_path / "some.csv")
    assert list(found) == ["a", "a_2", "column_3", "a_2_2"] and "a_2" in notes[0]
    assert found.iloc[1].tolist() == [5, 6, 7, 8]


def test_a_first_line_of_data_is_data(tmp_path):
    (tmp_path / "iris.csv").write_text("5.1,3.5,Iris-setosa\n4.9,3.0,Iris-setosa\n6.1,2.0,Iris-virginica\n")
    assert len(numbers_in(tmp_path / "iris.csv")[0]) == 3
    assert len(numbers_in(tmp_path / "iris.csv", header=True)[0]) == 2


def test_years_are_names(tmp_path):
    (tmp_path / "a.csv").write_text("country,1990,2000\nItaly,1.5,2.5\nSpain,2.5,0.5\n")
    assert list(numbers_in(tmp_path / "a.csv")[0]) == ["country", "1990", "2000"]


def test_cells_with_breaks_and_quotes(tmp_path):
    (tmp_path / "a.csv").write_text("a;b;note\n" + '1,5;2,5;"one\ntwo; three, ""four"""\n' * 3)
    found, _ = numbers_in(tmp_path / "a.csv")
    assert found["a"].tolist() == [1.5] * 3 and found["b"].tolist() == [2.5] * 3


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_ends_of_lines(tmp_path, end):
    (tmp_path / "a.csv").write_bytes(end.join(["a,b", "1,2", "3,4", ""]).encode())
    assert numbers_in(tmp_path / "a.csv")[0].to_numpy().tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"\n \n\n", "is empty"),
        ("a.csv", b"a,b,c\n", "no rows"),
        ("a.csv", bytes(range(256)), "not text"),
        ("a.csv", b"a,b\n1,2\n3,4,5\n1,2\n", "line 3"),
        ("a.csv", b"a,b\n1,2,3,4\n", "--separator"),
        ("a.csv", b'a,b\n"1,2\n3,4\n', "cannot be read|no column"),
        ("a.csv", b"name,city\nanna,bern\nbob,rome\n", "'anna'"),
        ("a.csv", b"a\n1\n1\n1\n", "always 1"),
        ("a.csv", b"a,b\n?,x\n?,y\n", "no values at all"),
        ("a.csv.gz", b"no gzip", "gzip"),
        ("a.parquet", b"no parquet", "Parquet"),
        ("a.npy", b"no array", "NumPy"),
        ("a.npz", b"no archive", ".npz"),
        ("a.docx", b"PK", "kind of file"),
    ],
)
def test_files_that_cannot_be_used(latently, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    answer = latently("fit", tmp_path / name, "-o", tmp_path / "out", code=1)
    assert pd.Series([answer.err]).str.contains(message).all(), answer.err
    assert name in answer.err
    assert [path.name for path in tmp_path.iterdir()] == [name]


# -- columns ---------------------------------------------------------------------------------------------


def test_columns_left_out_are_named_with_reasons(latently, tmp_path, table):
    table.insert(0, "id", range(1, len(table) + 1))
    table["kind"], table["day"], table["same"] = "a word", "2024-01-05", 3.0
    table["typo"] = np.where(np.arange(len(table)) % 3, "unknown", table["a"])
    table.to_csv(tmp_path / "a.csv", index=False)
    answer = latently(
        "fit", tmp_path / "a.csv", "-m", "mcfa", "-k", 1, "-q", 1, "-o", tmp_path / "m", "--json"
    )
    facts = json.loads(answer.out)
    reasons = {entry["column"]: entry["reason"] for entry in facts["left_out"]}
    assert facts["columns"] == list("abcde") and set(reasons) == {"id", "kind", "day", "same", "typo"}
    assert "numbers the rows" in reasons["id"] and "always 3" in reasons["same"]
    assert "2024-01-05" in reasons["day"] and "'unknown' in 160 cells and numbers in 80" in reasons["typo"]
    assert "--missing 'unknown'" in answer.err


def test_text_may_be_declared_missing(latently, tmp_path, table):
    table["b"] = table["b"].astype(str).where(np.arange(len(table)) != 7, "Un Known")
    table.to_csv(tmp_path / "a.csv", index=False)
    arguments = [
        "fit",
        tmp_path / "a.csv",
        "-m",
        "mcfa",
        "-k",
        1,
        "-q",
        1,
        "-o",
        tmp_path / "m",
        "--missing",
        "un known",
    ]
    facts = json.loads(latently(*arguments, "--json").out)
    assert facts["columns"] == list("abcde") and facts["missing_cells"] == 1
    latently("score", tmp_path / "m", tmp_path / "a.csv")  # the folder knows the mark


def test_columns_can_be_chosen(latently, tmp_path, table):
    table = table.rename(columns={"c": "c, with comma", "d": "d 1", "e": "d 2"})
    table.to_csv(tmp_path / "a.csv", index=False)

    def chosen(*options):
        arguments = [
            "fit",
            tmp_path / "a.csv",
            "-m",
            "mcfa",
            "-k",
            1,
            "-q",
            1,
            "-o",
            tmp_path / "m",
            "--force",
            "--json",
        ]
        return json.loads(latently(*arguments, *options).out)["columns"]

    assert chosen("--columns", "b, a") == ["b", "a"]
    assert chosen("--columns", "c, with comma", "--columns", "d*") == ["c, with comma", "d 1", "d 2"]
    assert chosen("--without", "d*,a") == ["b", "c, with comma"]
    answer = latently("fit", tmp_path / "a.csv", "--columns", "d1", "-o", tmp_path / "n", code=1)
    assert "did you mean 'd 1'?" in answer.err


def test_a_column_that_was_asked_for_must_be_numbers(latently, tmp_path, table):
    table["kind"] = "a word"
    table.to_csv(tmp_path / "a.csv", index=False)
    arguments = ["fit", tmp_path / "a.csv", "--columns", "a,kind", "-o", tmp_path / "m"]
    assert "'a word'" in latently(*arguments, code=1).err


def test_one_column(latently, tmp_path):
    values = np.random.default_rng(0).normal(size=100) + np.repeat([0, 9], 50)
    pd.DataFrame({"only": values}).to_csv(tmp_path / "a.csv", index=False)
    facts = json.loads(latently("fit", tmp_path / "a.csv", "-o", tmp_path / "m", "--json").out)
    assert facts["model"] == "gaussian-mixture" and facts["n_components"] == 2


def test_a_survey_in_pieces_finds_what_numpy_finds(tmp_path, pieces, table):
    holed = table.mask(np.random.default_rng(1).random(table.shape) < 0.2) + 1e8
    holed.to_csv(tmp_path / "a.csv", index=False)
    voice = Voice()
    found = survey(open_table(tmp_path / "a.csv", Reading(), voice))
    np.testing.assert_allclose(found.mean, holed.mean(), rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(found.squares / found.n_seen), holed.std(ddof=0), rtol=1e-6)
    np.testing.assert_allclose(found.least, holed.min())
    np.testing.assert_allclose(found.most, holed.max())
    assert found.n_seen.tolist() == holed.notna().sum().tolist()


# -- other kinds -----------------------------------------------------------------------------------------


def test_parquet(tmp_path, pieces, table):
    table = table.head(30).assign(f=pd.array([1, None, 3] * 10, dtype="Int64"), g=[True, False] * 15)
    table = table.assign(when=pd.Timestamp("2024-01-01"), long=pd.Timedelta("1D"), who="me")
    table.index = pd.Index(range(30, 60), name="row")
    table.to_parquet(tmp_path / "a.parquet")
    found, _ = numbers_in(tmp_path / "a.parquet")
    assert list(found) == list(table)
    np.testing.assert_allclose(found[list("abcde")], table[list("abcde")])
    assert found["f"].isna().sum() == 10 and found["g"].sum() == 15
    assert found[["when", "long", "who"]].isna().all(axis=None)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f8", "f4", ">f8", "i2", "f2"])
def test_arrays(tmp_path, pieces, order, dtype):
    array = np.asarray(np.random.default_rng(0).integers(0, 50, (20, 3)), dtype=dtype, order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez_compressed(tmp_path / "a.npz", X=array, y=np.arange(20), extra=np.zeros(3))
    np.testing.assert_array_equal(numbers_in(tmp_path / "a.npy")[0], array)
    found, _ = numbers_in(tmp_path / "a.npz")
    np.testing.assert_array_equal(found[["column_1", "column_2", "column_3"]], array)
    np.testing.assert_array_equal(found["y"], np.arange(20))


def test_arrays_that_cannot_be_used(latently, tmp_path):
    np.savez(tmp_path / "two.npz", first=np.zeros((3, 3)), second=np.zeros((3, 3)))
    answer = latently("fit", tmp_path / "two.npz", code=1)
    assert "--array" in answer.err and "'first' (3, 3)" in answer.err
    assert "'third'" in latently("fit", tmp_path / "two.npz", "--array", "third", code=1).err
    np.save(tmp_path / "objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    assert "could run code" in latently("fit", tmp_path / "objects.npy", code=1).err
    np.save(tmp_path / "short.npy", np.zeros((100, 3)))
    content = (tmp_path / "short.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(content[:-8])
    assert "cut short" in latently("fit", tmp_path / "short.npy", code=1).err


def test_labels_in_an_archive_are_no_feature(latently, tmp_path, table):
    np.savez(tmp_path / "a.npz", X=table, y=np.arange(len(table)) % 2)
    arguments = ["fit", tmp_path / "a.npz", "-m", "mcfa", "-k", 1, "-q", 1, "--json"]
    assert len(json.loads(latently(*arguments, "-o", tmp_path / "m").out)["columns"]) == 5
    latently(*arguments, "-o", tmp_path / "n", "--label", "y", "-m", "mjfa")


def images(folder, n=12, size=(6, 5)):
    rng = np.random.default_rng(0)
    for i in range(n):
        (folder / f"kind {i % 2}").mkdir(parents=True, exist_ok=True)
        pixels = np.clip(rng.normal(size=size) * 20 + 150 * (i % 2) + 50, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"kind {i % 2}" / f"{i:03}.png")
    return folder


def test_a_folder_of_images(latently, tmp_path, pieces):
    folder = images(tmp_path / "images")
    found, _ = numbers_in(folder)
    pixels = np.asarray(Image.open(folder / "kind 0" / "000.png")) / 255
    np.testing.assert_allclose(found.filter(like="pixel").iloc[0], pixels.ravel(), atol=1e-6)
    arguments = ["fit", folder, "-m", "mppca", "-k", 2, "-q", 1, "--label", "folder", "-o", tmp_path / "m"]
    facts = json.loads(latently(*arguments, "--json").out)
    assert facts["clustering_accuracy"] == 1 and not facts["standardised"]
    record = json.loads((tmp_path / "m" / "description.json").read_text())
    assert record["image_shape"] == [6, 5] and record["labels"] == ["kind 0", "kind 1"]
    assert "kind 1/001.png" in latently("predict", tmp_path / "m", folder).out


def test_a_thousand_images(latently, tmp_path):
    folder = images(tmp_path / "images", n=1000, size=(16, 16))
    latently("fit", folder, "-m", "ppca", "-q", 2, "-o", tmp_path / "m")
    assert len(latently("transform", tmp_path / "m", folder).out.splitlines()) == 1001


def test_images_of_several_sizes(latently, tmp_path):
    folder = images(tmp_path / "images")
    Image.fromarray(np.zeros((9, 9), dtype=np.uint8)).save(folder / "odd.png")
    assert "--resize" in latently("fit", folder, "-o", tmp_path / "m", code=1).err
    (folder / "notes.txt").write_text("no image")
    latently("fit", folder, "--resize", "4x3", "-m", "ppca", "-q", 1, "-o", tmp_path / "m")
    assert json.loads((tmp_path / "m" / "description.json").read_text())["image_shape"] == [3, 4]
    assert len(latently("score", tmp_path / "m", folder).out.splitlines()) == 14  # of whatever size


def test_images_that_are_none(latently, tmp_path):
    (tmp_path / "nothing").mkdir()
    assert "no images" in latently("fit", tmp_path / "nothing", code=1).err
    (tmp_path / "nothing" / "a.png").write_bytes(b"not an image")
    assert "a.png" in latently("fit", tmp_path / "nothing", code=1).err


def test_colour_images(latently, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(10):
        Image.fromarray(rng.integers(0, 255, (3, 4, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    latently("fit", folder, "--colour", "-m", "ppca", "-q", 1, "-o", tmp_path / "m")
    assert json.loads((tmp_path / "m" / "description.json").read_text())["image_shape"] == [3, 4, 3]
    latently("score", tmp_path / "m", folder)
