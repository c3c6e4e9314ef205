"""Small files that unpack to much, or claim to: refused with a clear error before memory is taken."""

import gzip
import json
import lzma
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from latently.core.sources import limits, open_table
from latently.core.sources.dialect import Given
from latently.tables.reading import Reading, table_of


def read(path, **given):
    table = open_table(path, text=Given(**given))
    return [frame for frame in table.frames((), ())]


def png(width, height):
    """A picture that says how large it is, and has nothing in it."""

    def part(kind, content):
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", header)
        + part(b"IDAT", zlib.compress(b"\0"))
        + part(b"IEND", b"")
    )


# -- images -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(60_000, 60_000), (8200, 8200)])
def test_an_image_of_too_many_pixels_is_left_out(size, tmp_path):
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(png(*size))
    table = table_of(tmp_path, Reading(resize=(4, 4)))
    with pytest.warns(UserWarning, match="1 of 2 images cannot be read.*(pixels|exceeds)"):
        assert sum(len(frame) for frame in table.frames()) == 1


def test_images_of_too_many_pixels_for_a_row_are_told_before_they_are_read(tmp_path):
    (tmp_path / "a.png").write_bytes(png(3000, 3000))
    with pytest.raises(ValueError, match=r"3000 x 3000 are too large; give a smaller size, .*--resize"):
        table_of(tmp_path)
    with pytest.raises(ValueError, match="5000 x 5000 are too large"):
        table_of(tmp_path, Reading(resize=(5000, 5000)))


def test_other_formats_under_the_name_of_an_image_are_not_run(tmp_path):
    (tmp_path / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    )
    with pytest.raises(ValueError, match=r"none of the 1 images .* cannot identify"):
        table_of(tmp_path)


# -- packed text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"encoding": "utf-8"}])
def test_zeros_are_no_text(given, tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n" + b"\0" * 20_000_000))
    with pytest.raises(ValueError, match=r"x\.csv\.gz.* not text"):
        read(path, **given)


@pytest.mark.parametrize("given", [{}, {"encoding": "utf-8"}])
def test_a_zero_far_down_is_told(given, tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b\n" + b"1,2\n" * 3_000_000 + b"1,\0\n")
    with pytest.raises(ValueError, match=r"x\.csv.* not text"):
        read(path, **given)


def test_text_that_unpacks_to_thousands_of_times_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "_MANY", 1_000_000)
    path = tmp_path / "x.csv.xz"
    path.write_bytes(lzma.compress(b"a,b\n" + b"1,2\n" * 6_000_000))
    with pytest.raises(ValueError, match=r"x\.csv\.xz.* unpacks to more than 5000 times its size"):
        open_table(path)


def test_xz_that_wants_much_memory(tmp_path):
    packed = bytearray(lzma.compress(b"a,b\n1,2\n3,4\n"))
    (tmp_path / "x.csv.xz").write_bytes(bytes(packed) * 2 + bytes(8))  # two streams, and zeros at the end
    assert len(read(tmp_path / "x.csv.xz")[0]) == 5
    packed[16] = 40  # the size of the dictionary, now 4 GB, in the header of the first block
    packed[20:24] = struct.pack("<I", zlib.crc32(packed[12:20]))
    (tmp_path / "x.csv.xz").write_bytes(packed)
    with pytest.raises(ValueError, match=r"x\.csv\.xz.* cannot be read as a xz file: .*[Mm]emory"):
        open_table(tmp_path / "x.csv.xz")


def test_lines_that_grow(tmp_path, monkeypatch):
    monkeypatch.setattr("latently.core.sources.delimited.MOST_CHARACTERS", 20_000_000)
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 3000 + (b"1," + b"2" * 20_000 + b"\n") * 2000, 1))
    with pytest.raises(ValueError, match=r"x\.csv\.gz.* far longer than those above"):
        read(path)


def test_long_lines_are_read_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("latently.core.sources.delimited._AT_A_TIME", 1_000_000)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + ("1," + "x" * 1000 + "\n") * 15_000)
    frames = read(path)
    assert max(map(len, frames[1:])) < 1100 and sum(map(len, frames)) == 15_000


# -- sheets and JSON --------------------------------------------------------------------------------------


def test_cells_of_a_sheet_that_are_far_apart(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active["A1"], book.active["XFD1048576"] = "a", 1
    book.save(tmp_path / "x.xlsx")
    with pytest.raises(ValueError, match=r"x\.xlsx.* 1048576 rows and 16384 columns, but only 2 filled"):
        open_table(tmp_path / "x.xlsx")


def test_a_sheet_that_unpacks_to_much(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "_MANY", 1_000_000)
    with zipfile.ZipFile(tmp_path / "x.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * 5_000_000)
    with pytest.raises(ValueError, match=r"x\.xlsx.* unpacks to more than 100 times its size"):
        open_table(tmp_path / "x.xlsx")


def test_repeated_cells_of_a_sheet(tmp_path):
    pytest.importorskip("odf")
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table")
    )
    content = (
        f"<office:document-content {names}><office:body><office:spreadsheet><table:table>"
        '<table:table-row table:number-rows-repeated="1000000"><table:table-cell office:value-type="float" '
        'office:value="1" table:number-columns-repeated="16000"/></table:table-row></table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    )
    with zipfile.ZipFile(tmp_path / "x.ods", "w") as archive:
        archive.writestr("content.xml", content)
    with pytest.raises(ValueError, match=r"x\.ods.* 1000000 rows and 16000 columns, but only 1 filled"):
        open_table(tmp_path / "x.ods")


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_json_that_is_deep(ending, tmp_path):
    (tmp_path / f"x.{ending}").write_text("[" * 200_000)
    with pytest.raises(ValueError, match=rf"x\.{ending}.* nested too deeply"):
        open_table(tmp_path / f"x.{ending}")


@pytest.mark.parametrize("by_name", [False, True])
def test_json_whose_rows_have_nothing_in_common(by_name, tmp_path):
    rows = {f"n{i}": {str(i): 1} for i in range(5000)} if by_name else [{f"n{i}": 1} for i in range(5000)]
    (tmp_path / "x.json").write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=r"x\.json.* 5000 rows and 5000 columns, but only 5000 filled"):
        open_table(tmp_path / "x.json")
