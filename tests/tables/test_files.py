"""Files that people have: packed, sheets, JSON, several at once, and text with all its habits."""

import bz2
import gzip
import io
import json
import lzma
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from latently.core.sources import open_source
from latently.core.sources.cells import MISSING, numbers_of
from latently.core.sources.dialect import Given
from latently.tables.reading import Reading, table_of
from tests.cli.conftest import make_table


def numbers(path, **given):
    table = table_of(path, Reading(Given(**given)))
    decimal = table.dialect.decimal if table.dialect else "."
    columns = [name for name in table.columns if name not in table.beside]
    frame = pd.concat(table.frames(MISSING, []))
    return pd.DataFrame(numbers_of(frame[columns], MISSING, decimal)[0], columns=columns)


@pytest.fixture
def table():
    return make_table(30, 3)[0].round(6)


@pytest.mark.parametrize("ending", ["csv.gz", "csv.bz2", "tsv.xz", "csv.zst", "zip", "csv.zip"])
def test_packed_text(tmp_path, table, ending):
    text = table.to_csv(index=False, sep="\t" if "tsv" in ending else ",").encode()
    path = tmp_path / f"a.{ending}"
    if ending.endswith("zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("__MACOSX/._a.csv", "x")
            archive.writestr("inner/a.csv", text)
    elif ending.endswith("zst"):
        pyarrow = pytest.importorskip("pyarrow")
        with pyarrow.output_stream(str(path), compression="zstd") as file:
            file.write(text)
    else:
        pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[ending.rpartition(".")[2]]
        path.write_bytes(pack(text))
    pd.testing.assert_frame_equal(numbers(path), table)
    np.testing.assert_array_equal(np.concatenate(list(open_source(path).chunks())), table)
    path.write_bytes(path.read_bytes()[:40])
    for read in (numbers, lambda path: list(open_source(path).chunks())):
        with pytest.raises((ValueError, OSError), match=r"cannot be read|empty|zstd") as refused:
            read(path)
        assert path.name in str(refused.value)


def test_archives_of_several_files_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "a\n1\n")
    with pytest.raises(ValueError, match=r"holds 2 files, not one: a\.csv, b\.csv"):
        table_of(tmp_path / "a.zip")


@pytest.mark.parametrize("ending", ["feather", "arrow", "json", "jsonl"])
def test_files_read_at_once(tmp_path, table, ending):
    table["code"] = [f"{i:05d}" for i in range(30)]
    path = tmp_path / f"a.{ending}"
    if ending == "feather":
        table.to_feather(path)
    elif ending == "arrow":
        pyarrow = pytest.importorskip("pyarrow")
        with pyarrow.ipc.new_stream(str(path), pyarrow.Table.from_pandas(table).schema) as file:
            file.write(pyarrow.Table.from_pandas(table))
    else:
        table.to_json(path, orient="records", lines=ending == "jsonl", double_precision=15)
    found = numbers(path)
    pd.testing.assert_frame_equal(found[list("abc")], table[list("abc")], rtol=1e-12)
    frame = next(iter(table_of(path).frames((), ["code"])))
    assert frame["code"].tolist() == table["code"].tolist()  # texts stay texts
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="cannot be read"):
        table_of(path)


@pytest.mark.parametrize("ending", ["xlsx", "ods"])
def test_sheets(tmp_path, table, ending):
    path = tmp_path / f"a.{ending}"
    try:
        table.to_excel(str(path), index=False)  # pandas tells sheets by the endings of texts only
    except ImportError:
        path.write_bytes(b"PK")
        with pytest.raises(ImportError, match=r"pip install 'latently\[excel\]'"):
            table_of(path)
    else:
        pd.testing.assert_frame_equal(numbers(path), table)


@pytest.mark.parametrize("units", [(), ("cm", "kg", "")])
@pytest.mark.parametrize("ending", ["xlsx", "ods"])
def test_a_sheet_begins_below_its_titles(tmp_path, ending, units):
    pytest.importorskip("openpyxl" if ending == "xlsx" else "odf")
    lines = [
        ["Study of 1988", None, None],
        [None] * 3,
        ["length", "mass", "kind"],
        *([units] if units else []),
    ]
    lines += [[1.5, 2, "a"], [3, 4, "b"], [5.25, 6, "c"]]
    pd.DataFrame(lines).to_excel(str(tmp_path / f"a.{ending}"), index=False, header=False)
    with pytest.warns(UserWarning) as told:
        found = table_of(tmp_path / f"a.{ending}")
    texts = " ".join(str(one.message) for one in told)
    assert "'Study of 1988'" in texts and ("it has units (cm, kg)" in texts) == bool(units)
    frame = next(iter(found.frames()))
    assert frame["length"].tolist() == [1.5, 3, 5.25] and frame["kind"].tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(frame["mass"], [2, 4, 6])
    given = table_of(tmp_path / f"a.{ending}", Reading(Given(skip_rows=2, header=False)))
    assert given.columns == ["column_1", "column_2", "column_3"] and given.n_rows == len(lines) - 2


def test_the_first_of_several_sheets_is_read_and_told(tmp_path):
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(tmp_path / "a.xlsx") as book:
        pd.DataFrame({"a": [1, 2], "b": [3, 4]}).to_excel(book, sheet_name="Data", index=False)
        pd.DataFrame({"c": [5]}).to_excel(book, sheet_name="More", index=False)
    with pytest.warns(UserWarning, match=r"has 2 sheets \('Data', 'More'\); the first is read"):
        assert table_of(tmp_path / "a.xlsx").columns == ["a", "b"]


def test_a_line_of_too_many_cells_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 5 + "1,2,3\n")
    with pytest.raises(ValueError, match="line 7 has 3 cells, but the table has 2 columns"):
        numbers(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a,b\n"$1,234.50",7 %\n"$2,000",12%\n-$5,3 %\n', [[1234.5, 7], [2000, 12], [-5, 3]]),
        ("a;b\n1.234,5 €;1\n2.000,0 €;2\n", [[1234.5, 1], [2000, 2]]),
        ("a;b\n1 234,5;1\n12 000 000,0;2\n", [[1234.5, 1], [12e6, 2]]),
        ("a;b\n1,234,567;1.5\n2,000;2\n", [[1234567, 1.5], [2000, 2]]),
        ("a,b\n(12),1\n(3.5),2\n", [[-12, 1], [-3.5, 2]]),
        ("# made by a machine\n# in 2024\na,b\n1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("# a,b\n1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("a,b\n\u22121.5,2\n\u20133,\u2212$4\n", [[-1.5, 2], [-3, -4]]),
    ],
)
@pytest.mark.filterwarnings("ignore:numbers are read with a decimal comma")
def test_habits_of_text(tmp_path, text, expected):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    found = numbers(tmp_path / "a.csv")
    np.testing.assert_array_equal(found, expected)
    assert list(found) == ["a", "b"]


def test_lines_that_are_no_rows_are_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Report of May\n\nlength,mass\ncm,kg\n1,2\n3,4\n5,6\n")
    with pytest.warns(UserWarning) as told:
        found = numbers(path)
    assert found.to_dict("list") == {"length": [1, 3, 5], "mass": [2, 4, 6]}
    texts = " ".join(str(one.message) for one in told)
    assert "'Report of May'" in texts and "it has units (cm, kg)" in texts
    path.write_text("Report;;\nof 2024-05-01;;\n\na;b;c;d\n" + "1;2;3;4\n" * 9)
    with pytest.warns(UserWarning, match="above the table"):
        assert list(numbers(path)) == list("abcd")
    path.write_text("a,b,c\n1,2,3\n4,5\n6,7,8\n")
    with pytest.warns(UserWarning, match="rows 2 of .* have fewer cells than the 3 columns"):
        assert numbers(path)["c"].isna().sum() == 1


@pytest.mark.parametrize(
    "header", ['"length\nof leaf",mass', 'mass,"length\nof leaf"', '"a\n\nb","length\nof leaf"']
)
def test_names_of_two_lines(header, tmp_path):
    """Sheets have them. A first such name was taken for a title, and the rows lost one."""
    path = tmp_path / "a.csv"
    path.write_text(header + "\n" + "1,2\n3,4\n5,6\n7,8\n")
    found = numbers(path)
    assert "length\nof leaf" in found.columns and len(found) == 4
    path.write_text(header + "\ncm,kg\n" + "1,2\n3,4\n5,6\n7,8\n")
    with pytest.warns(UserWarning, match="units"):
        assert len(numbers(path)) == 4


def test_reading_is_decided_by_options(latently, tmp_path):
    table, _ = make_table(40, 3)
    (tmp_path / "a.csv").write_bytes(("junk,x\n1,2\n" + table.to_csv(index=False)).encode("cp1252"))
    fit = ["fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "-o", tmp_path / "m", "--json"]
    facts = json.loads(latently(*fit, "--skip-rows", 2, "--encoding", "cp1252").out)
    assert facts["rows"] == 40 and facts["columns"] == list("abc")
    assert "no encoding" in latently(*fit, "--encoding", "morse", code=2).err
    assert "--thousands" in latently(*fit, "--thousands", "..", code=2).err
    path = tmp_path / "b.csv"
    path.write_text("a;b\n1.000;2\n3.500;4\n")
    assert numbers(path, thousands=".", decimal=",")["a"].tolist() == [1000, 3500]


def test_several_files_are_one_table(latently, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table, _ = make_table(60, 3)
    table[:20].to_csv("p1.csv", index=False)
    table[20:][list("cab")].to_csv("p2.csv", index=False)
    whole = ["-m", "fa", "-q", 1, "--json", "-o"]
    facts = json.loads(latently("fit", "p1.csv", "p2.csv", *whole, "m").out)
    assert facts["rows"] == 60 and facts["columns"] == list("abc")
    assert json.loads(latently("fit", "p*.csv", *whole, "n").out)["rows"] == 60
    answer = pd.read_csv(io.StringIO(latently("score", "m", "p1.csv", "p2.csv").out))
    assert answer["file"].tolist() == ["p1.csv"] * 20 + ["p2.csv"] * 40
    assert answer["row"].tolist() == list(range(1, 61))
    table[["a"]].to_csv("p3.csv", index=False)
    assert "differ in columns: b, c" in latently("fit", "p*.csv", *whole, "o", code=1).err


def test_standard_input(tmp_path, table):
    fit = [
        sys.executable,
        "-m",
        "latently",
        "fit",
        "-",
        "-m",
        "fa",
        "-q",
        "1",
        "-o",
        tmp_path / "m",
        "--json",
    ]
    text = table.assign(word="x").to_csv(index=False)
    found = subprocess.run(fit, input=text, capture_output=True, text=True)
    assert json.loads(found.stdout)["rows"] == 30
    wrong = subprocess.run([*fit, "--force"], input="", capture_output=True, text=True)
    assert (
        wrong.returncode == 1 and "'standard input' is empty" in wrong.stderr and "/tmp" not in wrong.stderr
    )


def test_broken_images_are_left_out(latently, tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(30):
        Image.fromarray(rng.integers(0, 255, (4, 4), dtype=np.uint8)).save(folder / f"{i:02d}.png")
    (folder / "00.png").write_bytes(b"no image")
    (folder / "17.png").write_bytes((folder / "18.png").read_bytes()[:40])
    answer = latently("fit", folder, "-m", "ppca", "-q", 1, "--json", "-o", tmp_path / "m")
    assert json.loads(answer.out)["rows"] == 28
    assert "2 of 30 images cannot be read and are left out: '00.png', '17.png'" in answer.err
    scores = pd.read_csv(io.StringIO(latently("score", tmp_path / "m", folder).out))
    assert len(scores) == 28 and "17.png" not in set(scores["file"])


def test_quiet_prints_requested_rows_only(latently, tmp_path, table):
    table.assign(word="x").to_csv(tmp_path / "a.csv", index=False)
    answer = latently("fit", tmp_path / "a.csv", "-m", "fa", "-q", 1, "-o", tmp_path / "m", "--quiet")
    assert answer.out == answer.err == ""
    answer = latently("score", tmp_path / "m", tmp_path / "a.csv", "--quiet")
    assert len(answer.out.splitlines()) == 31 and answer.err == ""
