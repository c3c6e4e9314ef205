"""Sources of rows: whatever the format, the same rows, every time, in little memory."""

import gzip
import importlib
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from latently.core.sources import RowWriter, Source, ahead, chunks, open_source, packages

torch = pytest.importorskip("torch")

N, D = 1000, 7


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4096)  # 73 rows of 7 float64


def values(dtype="float64", n=N, d=D):
    X = np.random.default_rng(0).normal(scale=20, size=(n, d))
    if np.dtype(dtype).kind == "f":
        X[::13, 2] = np.nan
        X[5:6, :] = np.nan
    return X.astype(dtype) if np.dtype(dtype).kind != "u" else np.abs(X).astype(dtype)


def frame(X):
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])


def read(opened):
    """All rows; every chunk must be as promised."""
    pieces = list(opened.chunks())
    for chunk in pieces:
        assert type(chunk) is np.ndarray
        assert chunk.ndim == 2 and chunk.shape[0] >= 1 and chunk.shape[1] == opened.n_features
        assert chunk.nbytes <= chunks.CHUNK_BYTES or len(chunk) == 1
        assert chunk.flags.c_contiguous and chunk.flags.writeable and chunk.dtype.isnative
    return np.concatenate(pieces)


def assert_gives(opened, X, *, n_rows=True, exact=True):
    assert isinstance(opened, Source)
    assert opened.n_features == X.shape[1]
    assert opened.n_rows == (len(X) if n_rows else None)
    for _ in range(2):
        np.testing.assert_allclose(read(opened), X, rtol=0 if exact else 1e-14, strict=True)
        assert opened.n_rows == len(X)
    rest = opened.chunks()  # one reading does not disturb another
    first = next(rest)
    np.testing.assert_allclose(read(opened), X, rtol=0 if exact else 1e-14)
    np.testing.assert_allclose(np.concatenate([first, *rest]), X, rtol=0 if exact else 1e-14)
    assert open_source(opened) is opened


# -- .npy and memory maps --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("dtype", "given"),
    [
        ("float64", "float64"),
        ("float32", "float32"),
        ("float16", "float64"),
        ("longdouble", "float64"),
        (">f8", "float64"),
        (">i4", "int32"),
        ("uint8", "uint8"),
        ("int64", "int64"),
        ("bool", "float64"),
    ],
)
def test_npy(tmp_path, dtype, given, order):
    X = np.asarray(values(dtype), order=order)
    np.save(tmp_path / "x.npy", X)
    opened = open_source(tmp_path / "x.npy")
    assert_gives(opened, X.astype(given))
    assert opened.feature_names is None
    assert_gives(open_source(str(tmp_path / "x.npy")), X.astype(given))
    assert_gives(open_source(np.load(tmp_path / "x.npy", mmap_mode="r")), X.astype(given))


def test_npy_of_version_2(tmp_path):
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, values(), version=(2, 0))
    assert_gives(open_source(tmp_path / "x.npy"), values())


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize(
    "part",
    [np.s_[:], np.s_[10:900], np.s_[::3], np.s_[::-1], np.s_[:, 1:5], np.s_[5:, ::2]],
    ids=["all", "rows", "step", "backwards", "columns", "both"],
)
def test_memmap_and_its_views(tmp_path, mode, part):
    np.save(tmp_path / "x.npy", values())
    X = np.load(tmp_path / "x.npy", mmap_mode=mode)
    assert_gives(open_source(X[part]), values()[part])


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_what_was_written_to_a_memmap_is_kept(tmp_path, mode):
    np.save(tmp_path / "x.npy", values())
    X = np.load(tmp_path / "x.npy", mmap_mode=mode)
    X[:] = 3
    assert_gives(open_source(X), np.full((N, D), 3.0))
    assert (X == 3).all()


def test_chunks_belong_to_the_reader(tmp_path):
    np.save(tmp_path / "x.npy", values())
    X = np.load(tmp_path / "x.npy", mmap_mode="r+")
    for opened in (open_source(X), open_source([np.asarray(X)]), open_source(tmp_path / "x.npy")):
        for chunk in opened.chunks():
            chunk[:] = 0
        np.testing.assert_array_equal(X, values())


def memory_for(reading, folder):
    """MB by which memory grows when a source is read to its end, in a process of its own."""
    if not Path("/proc/self/status").exists():
        pytest.skip("reads the memory in use from /proc")
    program = f"""
import numpy as np
from latently.core.sources import ahead, chunks, open_source

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1000

chunks.CHUNK_BYTES = 2_000_000
if {"parquet" in reading}:  # imports are not counted
    list(open_source("small.parquet").chunks())
before = peak()
opened = {reading}
rows = sum(len(chunk) for chunk in ahead(opened.chunks()))
assert rows == opened.n_rows
print(peak() - before)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=folder
    )
    return float(run.stdout)


@pytest.mark.parametrize(
    "reading",
    [
        "open_source('c.npy')",
        "open_source('fortran.npy')",
        "open_source(np.load('c.npy', mmap_mode='r'))",
        "open_source([np.load('c.npy', mmap_mode='r+')] * 2)",
    ],
    ids=["npy", "fortran", "memmap", "memmaps"],
)
def test_memory_stays_flat(tmp_path, reading):
    shape = (800_000, 32)  # 200 MB, on disk a hole
    for name in ("c", "fortran"):
        with (tmp_path / f"{name}.npy").open("wb") as file:
            fields = {"descr": "<f8", "fortran_order": name == "fortran", "shape": shape}
            np.lib.format.write_array_header_1_0(file, fields)
            file.truncate(file.tell() + 8 * shape[0] * shape[1])
    assert memory_for(reading, tmp_path) < 25


def test_memory_stays_flat_for_one_large_row_group(tmp_path):
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    for name, n in (("small", 10), ("large", 1_600_000)):  # 100 MB
        table = frame(rng.normal(size=(n, 8)))
        table.to_parquet(
            tmp_path / f"{name}.parquet", row_group_size=n, use_dictionary=False, compression=None
        )
    assert memory_for("open_source('large.parquet')", tmp_path) < 60


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.arange(5.0), "1-D, not 2-D; reshape"),
        (np.zeros((2, 3, 4)), "3-D, not 2-D"),
        (np.zeros((2, 3), complex), "real numbers"),
        (np.zeros((2, 3), "U3"), "real numbers"),
        (np.zeros((2, 3), "M8[s]"), "real numbers"),
        (np.zeros((2, 3), [("a", "f8")]), "real numbers"),
        (np.zeros((0, 3)), "empty"),
        (np.zeros((3, 0)), "empty"),
    ],
    ids="1-D 3-D complex text dates records no-rows no-columns".split(),
)
def test_unfit_npy(tmp_path, X, message):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(ValueError, match=message) as caught:
        open_source(tmp_path / "x.npy")
    assert "x.npy" in str(caught.value)
    if X.size:
        with pytest.raises(ValueError, match=message):
            open_source(np.load(tmp_path / "x.npy", mmap_mode="r"))


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_npy_is_never_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[Trap()]], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="real numbers"):
        open_source(tmp_path / "x.npy")


def test_damaged_npy(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, values())
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"x.npy' is cut short"):
        open_source(path)
    for start in (b"", b"not an array", whole[:50]):
        path.write_bytes(start)
        with pytest.raises(ValueError, match=r"x.npy' cannot be read"):
            open_source(path)
    path.write_bytes(whole)
    opened = open_source(path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="became shorter"):
        read(opened)


# -- zarr ------------------------------------------------------------------------------------------------


def zarr_array(store, X, chunks, **options):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(store, shape=X.shape, chunks=chunks, dtype=X.dtype, **options)
    array[:] = X
    return array


@pytest.mark.parametrize(
    ("dtype", "chunks"), [("float64", (20, D)), ("float32", (64, 3)), ("int16", (N, 2)), ("bool", (50, D))]
)
def test_zarr(tmp_path, dtype, chunks):
    X = values(dtype)
    array = zarr_array(str(tmp_path / "x.zarr"), X, chunks)
    given = X.astype("float64" if dtype == "bool" else dtype)
    assert_gives(open_source(tmp_path / "x.zarr"), given)
    assert_gives(open_source(array), given)


def test_zarr_is_read_by_whole_stored_chunks(tmp_path):
    array = zarr_array(str(tmp_path / "x.zarr"), values(), (10, 3))
    assert [len(chunk) for chunk in open_source(array).chunks()] == [70] * 14 + [20]


def test_zarr_in_shards(tmp_path):
    array = zarr_array(str(tmp_path / "x.zarr"), values(), (10, D), shards=(100, D))
    assert_gives(open_source(array), values())


def test_zarr_group(tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "x.zarr"), mode="w")
    with pytest.raises(ValueError, match="group of 0 arrays"):
        open_source(tmp_path / "x.zarr")
    group.create_array("a", data=values())
    assert_gives(open_source(tmp_path / "x.zarr"), values())
    group.create_array("b", data=values())
    with pytest.raises(ValueError, match=r"x.zarr' is a group of 2 arrays \(a, b\)"):
        open_source(tmp_path / "x.zarr")


def test_unfit_zarr(tmp_path):
    with pytest.raises(ValueError, match="1-D, not 2-D; reshape"):
        open_source(zarr_array(str(tmp_path / "1.zarr"), np.zeros(4), (2,)))
    with pytest.raises(ValueError, match="real numbers"):
        open_source(zarr_array(str(tmp_path / "2.zarr"), np.zeros((4, 2), complex), (2, 2)))
    (tmp_path / "3.zarr").mkdir()
    with pytest.raises(ValueError, match=r"3.zarr' holds no zarr array"):
        open_source(tmp_path / "3.zarr")


# -- parquet ---------------------------------------------------------------------------------------------


@pytest.fixture
def parquet():
    return pytest.importorskip("pyarrow.parquet")


@pytest.mark.parametrize("suffix", ["parquet", "pq", "PARQUET"])
@pytest.mark.parametrize(
    ("dtype", "given"),
    [("float64", "float64"), ("float32", "float32"), ("int32", "float64"), ("bool", "float64")],
)
def test_parquet(parquet, tmp_path, dtype, given, suffix):
    X = values(dtype)
    frame(X).to_parquet(tmp_path / f"x.{suffix}", row_group_size=150)
    opened = open_source(tmp_path / f"x.{suffix}")
    assert_gives(opened, X.astype(given))
    assert opened.feature_names == [f"x{j}" for j in range(D)]


def test_parquet_of_many_types_with_nulls(parquet, tmp_path):
    import pyarrow as pa

    columns = {
        "i.1": pa.array([1, None, 3], pa.int64()),
        "big": pa.array([2**62 + 1, 2, 3], pa.int64()),
        "b": pa.array([True, False, None]),
        "f": pa.array([0.5, None, 2.5], pa.float32()),
        "d": pa.array([1, None, 2], pa.decimal128(5, 2)),
        "n": pa.nulls(3),
    }
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    nan = np.nan
    X = [[1, 2.0**62, 1, 0.5, 1, nan], [nan, 2, 0, nan, nan, nan], [3, 3, nan, 2.5, 2, nan]]
    assert_gives(open_source(tmp_path / "x.parquet"), np.array(X))


def test_folder_of_parquet_files(parquet, tmp_path):
    folder = tmp_path / "x.parquet"
    (folder / "more").mkdir(parents=True)
    parts = np.array_split(values(), 12)
    for i, part in enumerate(parts):
        columns = frame(part) if i % 2 else frame(part)[[f"x{j}" for j in reversed(range(D))]]
        columns.to_parquet(folder / f"part.{i}.parquet")
    frame(values(n=3)).to_parquet(folder / "more" / "p.parquet")
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / "_temporary.parquet").write_bytes(b"")
    opened = open_source(folder)
    expected = pd.read_parquet(folder)  # in its order of rows and columns
    assert opened.feature_names == list(expected.columns)
    assert_gives(opened, np.ascontiguousarray(expected.to_numpy()))


def test_row_labels_of_pandas_are_no_feature(parquet, tmp_path):
    frame(values()).iloc[::-1].to_parquet(tmp_path / "x.parquet")
    assert_gives(open_source(tmp_path / "x.parquet"), np.ascontiguousarray(values()[::-1]))


def test_unfit_parquet(parquet, tmp_path):
    path = tmp_path / "x.parquet"
    frame(values()).assign(colour="red").to_parquet(path)
    with pytest.raises(ValueError, match=r"column 'colour' .*x.parquet' .*real numbers"):
        open_source(path)
    frame(values()).assign(day=pd.Timestamp(0)).to_parquet(path)
    with pytest.raises(ValueError, match=r"column 'day'"):
        open_source(path)
    frame(values(n=0)).to_parquet(path)
    with pytest.raises(ValueError, match=r"x.parquet' is empty"):
        open_source(path)
    path.write_bytes(b"not parquet, but long enough for it")
    with pytest.raises(ValueError, match=r"x.parquet' cannot be read"):
        open_source(path)


def test_unfit_folder_of_parquet_files(parquet, tmp_path):
    folder = tmp_path / "x.parquet"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"x.parquet' is empty"):
        open_source(folder)
    frame(values()).to_parquet(folder / "a.parquet")
    frame(values(d=6)).to_parquet(folder / "b.parquet")
    with pytest.raises(ValueError, match=r"b.parquet' .*a.parquet' differ in columns: x6"):
        open_source(folder)


# -- text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [True, False], ids=["header", "bare"])
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "tsv", "tsv.gz", "CSV"])
def test_csv(tmp_path, suffix, header):
    X = values()
    X[0, 0] = np.nan  # so that an empty field is the first there is
    path = tmp_path / f"x.{suffix}"
    frame(X).to_csv(path, index=False, header=header, sep="\t" if "tsv" in suffix else ",")
    opened = open_source(path)
    assert_gives(opened, X, n_rows=False, exact=False)
    assert opened.feature_names == ([f"x{j}" for j in range(D)] if header else None)


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("1,2\n3,4\n", None, [[1, 2], [3, 4]]),
        ("1e5,-.5\n+3,inf", None, [[1e5, -0.5], [3, np.inf]]),
        ("nan,1\n3,NA\n", None, [[np.nan, 1], [3, np.nan]]),
        (",1\n3,\n", None, [[np.nan, 1], [3, np.nan]]),
        ("\ufeff1,2\n3,4\n", None, [[1, 2], [3, 4]]),
        ("\ufeffa,b\n3,4\n", ["a", "b"], [[3, 4]]),
        ('"a, or b","c ""d"""\n"3", 4\n', ["a, or b", 'c "d"'], [[3, 4]]),
        ("a, b\r\n1, \r\n\r\n3, 4\r\n", ["a", "b"], [[1, np.nan], [3, 4]]),
        ("\n\na,b\n1,2\n", ["a", "b"], [[1, 2]]),
        ("a,2\n1,2\n", ["a", "2"], [[1, 2]]),
        ("a,b\nTrue,1\nFalse,2\n,3\n", ["a", "b"], [[1, 1], [0, 2], [np.nan, 3]]),
        ("a\n123456789012345678901234567890\n1\n", ["a"], [[123456789012345678901234567890.0], [1]]),
        ("größe\n1\n", ["größe"], [[1]]),
        ("a;b\n1,5;2,5\n3;?\n", ["a", "b"], [[1.5, 2.5], [3, np.nan]]),
        ("1.5;1e3\n-;4\n", None, [[1.5, 1000], [np.nan, 4]]),
        ("a b\n1 2\n3 4\n", ["a", "b"], [[1, 2], [3, 4]]),
        (",0,1\n7,1.5,2\n8,2.5,3\n", ["column_1", "0", "1"], [[7, 1.5, 2], [8, 2.5, 3]]),
        ("a,b\ntrue,1\n0.5,2\n", ["a", "b"], [[1, 1], [0.5, 2]]),
    ],
    ids=range(18),
)
def test_kinds_of_csv(tmp_path, text, names, rows):
    (tmp_path / "x.csv").write_text(text, encoding="utf-8", newline="")
    opened = open_source(tmp_path / "x.csv")
    assert opened.feature_names == names
    assert_gives(opened, np.array(rows, dtype=float), n_rows=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b\n", "is empty"),
        ("a,b\n1,red\n", "column 'b' of .* holds 'red'; real numbers"),
        ("a,b\n1,2020-01-01\n", "column 'b'"),
        ("1,2\n3,x\n", "column 'column_2' of .* holds 'x'"),
        ("a,b\n" + "1,2\n" * 2000 + "1,red\n", "column 'b' of .* holds 'red'"),
        ("a,b\n1,2,3,4\n", "2 names in its header but 4 cells in the line below"),
        ("a,b\n1,2\n1,2,3\n", "cannot be read.* line 3"),
        ("1,2\n1,2\n1,2,3\n", "cannot be read.* line 3"),
    ],
    ids=range(10),
)
def test_unfit_csv(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read(open_source(tmp_path / "x.csv"))
    assert "x.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "warning", "names", "rows"),
    [
        (b"a,a\n1,2\n", "'a_2'", ["a", "a_2"], [[1, 2]]),
        (b"a,b\nx,1,2\ny,3,4\n", "names of rows", ["a", "b"], [[1, 2], [3, 4]]),
        ("größe\n1\n".encode("latin-1"), "Latin-1", ["größe"], [[1]]),
    ],
    ids="twice row-names latin-1".split(),
)
def test_what_had_to_be_guessed_of_csv(tmp_path, content, warning, names, rows):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.warns(UserWarning, match=warning):
        opened = open_source(tmp_path / "x.csv")
    assert opened.feature_names == names
    assert_gives(opened, np.array(rows, dtype=float), n_rows=False)


# -- paths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.npy", "x.zarr", "x.parquet", "x.csv", "x.tsv", "x"])
def test_missing_file(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=name):
        open_source(tmp_path / name)


@pytest.mark.parametrize("name", ["x.doc", "x.pkl", "x", "npy"])
def test_unknown_suffix(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=r"\.npy, \.npz, \.zarr, \.parquet, \.pq, \.csv, \.tsv"):
        open_source(tmp_path / name)


@pytest.mark.parametrize("name", ["x.npy", "x.csv"])
def test_folder_for_a_file(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        open_source(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("x.zarr", "zarr", "zarr"), ("x.pq", "pyarrow", "parquet"), ("x.csv", "pandas", "csv")],
)
def test_missing_package(tmp_path, monkeypatch, name, package, extra):
    def without(module, *args):
        if module.partition(".")[0] == package:
            raise ImportError(module)
        return importlib.import_module(module, *args)

    monkeypatch.setattr(packages, "import_module", without)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ImportError, match=rf"need {package}: pip install 'latently\[{extra}\]'"):
        open_source(tmp_path / name)


def test_import_loads_no_optional_library():
    program = (
        "import sys, numpy as np\n"
        "from latently.core.sources import open_source\n"
        "open_source(lambda: iter([np.ones((2, 2))]))\n"
        "print(*{'pandas', 'pyarrow', 'zarr', 'dask', 'torch', 'sklearn'} & sys.modules.keys())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


# -- blocks ----------------------------------------------------------------------------------------------


class Blocks:
    """Something with __iter__ that starts anew every time."""

    def __init__(self, blocks):
        self.blocks = blocks

    def __iter__(self):
        yield from self.blocks


def pieces(X, sizes=(3, 0, 1, 300, 2, 500)):
    return np.split(X, np.cumsum(sizes))


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "function": lambda blocks: lambda: (block for block in blocks),
    "function of list": lambda blocks: lambda: blocks,
    "class": Blocks,
}
KINDS = {"array": np.asarray, "fortran": np.asfortranarray, "frame": frame, "tensor": torch.from_numpy}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_blocks(container, kind, dtype):
    blocks = [KINDS[kind](piece) for piece in pieces(values(dtype))]
    opened = open_source(CONTAINERS[container](blocks))
    assert opened.feature_names == ([f"x{j}" for j in range(D)] if kind == "frame" else None)
    assert_gives(opened, values(dtype), n_rows=container in ("list", "tuple"))


def test_small_blocks_are_joined_and_large_ones_split():
    for sizes in ([1] * N, [N]):
        lengths = [len(chunk) for chunk in open_source(pieces(values(), sizes)).chunks()]
        assert lengths == [73] * (N // 73) + [N % 73]


def test_blocks_may_differ_in_dtype():
    X = values("int32")
    blocks = [
        piece.astype(dtype) for piece, dtype in zip(pieces(X), "f8 f4 f4 i4 i8 ?".split(), strict=False)
    ]
    for _ in range(2):
        np.testing.assert_array_equal(read(open_source(blocks)), np.concatenate(blocks, dtype="f8"))


def test_a_block_s_memory_may_be_used_again():
    def reader():
        room = np.empty((10, D))
        for start in range(0, N, 10):
            room[:] = values()[start : start + 10]
            yield room

    assert_gives(open_source(reader), values(), n_rows=False)


def test_frames_of_many_types():
    table = pd.DataFrame(
        {
            "i": pd.array([1, None, 3], dtype="Int64"),
            "f": pd.array([0.5, None, 2.5], dtype="Float32"),
            "b": pd.array([True, None, False], dtype="boolean"),
            "plain": [True, False, True],
            "n": np.array([1, 2, 3], dtype="uint8"),
        }
    )
    nan = np.nan
    X = np.array([[1, 0.5, 1, 1, 1], [nan, nan, nan, 0, 2], [3, 2.5, 0, 1, 3]])
    assert_gives(open_source([table]), X)
    assert_gives(open_source([table[["plain"]]]), X[:, 3:4])
    assert open_source([frame(values()).rename(columns={"x0": 0})]).feature_names is None


def test_masked_values_are_missing():
    block = np.ma.masked_array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    assert_gives(open_source([block]), np.array([[1, np.nan], [3, 4]]))


def test_a_list_of_memmaps(tmp_path):
    np.save(tmp_path / "x.npy", values())
    X = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert_gives(open_source([X[:300], X[300:]]), values())


@pytest.mark.parametrize("once", [iter, lambda blocks: (b for b in blocks), lambda blocks: map(abs, blocks)])
def test_an_iterator_is_refused(once):
    with pytest.raises(
        TypeError, match=r"can be read only once.* function that returns a new iterator.*__iter__"
    ):
        open_source(once(pieces(values())))


@pytest.mark.parametrize("shared", [iter, lambda blocks: (b for b in blocks)], ids=["iterator", "generator"])
def test_an_iterator_that_comes_back_is_refused(shared):
    blocks = shared(pieces(values()))
    with pytest.raises(TypeError, match="same iterator"):
        read(open_source(lambda: blocks))


def test_blocks_that_change():
    blocks = pieces(values())
    for container in (blocks, Blocks(blocks)):
        opened = open_source(container)
        n = len(read(opened))
        blocks.append(values())
        with pytest.raises(ValueError, match=f"changed between two readings: it had {n} rows, now {n + N}"):
            read(opened)


def test_a_reading_that_stops_early_says_nothing_about_the_number_of_rows():
    opened = open_source(Blocks(pieces(values())))
    list(islice(opened.chunks(), 2))
    assert opened.n_rows is None
    assert len(read(opened)) == N


def test_blocks_are_closed_when_the_reading_stops():
    events = []

    def blocks():
        events.append("open")
        try:
            yield from pieces(values())
        finally:
            events.append("close")

    reading = open_source(blocks).chunks()
    next(reading)
    reading.close()
    assert events == ["open", "close"] * 2


@pytest.mark.parametrize(
    ("blocks", "error", "message"),
    [
        ([np.ones((2, 3)), np.ones((2, 3)), np.ones((1, 4))], ValueError, "block 2 has 4 columns.* has 3"),
        ([np.ones((2, 3)), np.ones(3)], ValueError, "block 1 is 1-D"),
        ([np.ones((2, 3)), np.ones((2, 3), complex)], ValueError, "block 1 .*real numbers"),
        ([np.ones((2, 3)), np.full((2, 3), "a")], ValueError, "block 1 .*real numbers"),
        ([np.ones((2, 3)), np.full((2, 3), None)], ValueError, "block 1 .*real numbers"),
        ([np.ones((0, 3)), np.ones((0, 3))], ValueError, "empty"),
        ([np.ones((2, 0))], ValueError, "empty"),
        ([scipy.sparse.eye_array(3)], TypeError, "block 0 is sparse"),
        ([frame(np.ones((2, 2))).assign(c="red")], ValueError, "column 'c' of block 0 .*real numbers"),
        ([frame(np.ones((2, 2))), frame(np.ones((2, 2)))[["x1", "x0"]]], ValueError, "column names"),
        (lambda: np.ones((3, 3)), TypeError, "must return an iterator over blocks, not ndarray"),
        (lambda: None, TypeError, "must return an iterator over blocks, not NoneType"),
        (lambda: iter([]), ValueError, "empty"),
        (lambda: iter([1, 2]), TypeError, "block 0 is of type int"),
        (lambda: iter(["x.npy"]), TypeError, "block 0 is of type str"),
        (lambda: iter([[[1, 2], [3]]]), ValueError, "block 0 is no 2-D array"),
        (Blocks([np.ones(3)]), ValueError, "block 0 is 1-D"),
        (Blocks([(torch.ones(2, 3), torch.ones(2))]), ValueError, "block 0"),
    ],
    ids=range(18),
)
def test_unfit_blocks(blocks, error, message):
    with pytest.raises(error, match=message):
        read(open_source(blocks))


def test_an_error_of_the_blocks_own_is_passed_on():
    def blocks():
        yield values()
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        read(open_source(blocks))


@pytest.mark.parametrize(
    "X",
    [
        values(),
        values().tolist(),
        list(values()),
        frame(values()),
        frame(values())["x0"],
        torch.ones(3, 2),
        [torch.ones(3), torch.ones(3)],
        scipy.sparse.eye_array(3),
        [],
        (),
        [1.0, 2.0],
        range(5),
        {"a": [1, 2]},
        {1, 2},
        b"x.npy",
        None,
        3.5,
        np.float64(2),
    ],
    ids=lambda X: type(X).__name__,
)
def test_anything_else_is_no_source(X):
    assert open_source(X) is None


def test_a_memmap_without_a_map_is_an_array(tmp_path):
    np.save(tmp_path / "x.npy", values())
    assert open_source(np.load(tmp_path / "x.npy", mmap_mode="r").astype("float32")) is None


def test_dask_collections_are_no_source():
    dask = pytest.importorskip("dask")
    array = pytest.importorskip("dask.array").ones((4, 2))
    delayed = dask.delayed(values)()
    for X in (array, delayed, [delayed], [array]):
        assert open_source(X) is None


# -- reading ahead ---------------------------------------------------------------------------------------


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("latently-ahead")]


def test_ahead_gives_the_same_items():
    assert list(ahead(iter(range(100)))) == list(range(100))
    assert list(ahead(iter([]))) == []
    assert threads() == []


def test_ahead_reads_the_next_item_and_no_more():
    started = [threading.Event() for _ in range(4)]

    def items():
        for i, event in enumerate(started):
            event.set()
            yield i

    for i in ahead(items()):
        if i + 1 < len(started):
            assert started[i + 1].wait(10)
        assert not any(event.is_set() for event in started[i + 2 :])


def test_ahead_passes_errors_on():
    def items():
        yield 1
        yield 2
        raise RuntimeError("no third")

    seen = []
    with pytest.raises(RuntimeError, match="no third"):
        for item in ahead(items()):
            seen.append(item)
    assert seen == [1, 2]
    assert threads() == []


def test_ahead_ends_when_the_reader_stops():
    closed = []

    def items():
        try:
            yield from range(100)
        finally:
            closed.append(True)

    reading = ahead(items())
    assert next(reading) == 0
    assert len(threads()) == 1
    reading.close()
    assert closed and threads() == []

    def first_item():
        for item in ahead(items()):
            return item

    assert first_item() == 0
    assert len(closed) == 2 and threads() == []


@pytest.mark.parametrize("suffix", ["npy", "zarr", "parquet", "csv"])
def test_files_are_read_ahead(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    if suffix == "npy":
        np.save(path, values())
    elif suffix == "zarr":
        zarr_array(str(path), values(), (50, D))
    elif suffix == "parquet":
        pytest.importorskip("pyarrow")
        frame(values()).to_parquet(path)
    else:
        frame(values()).to_csv(path, index=False)
    opened = open_source(path)
    np.testing.assert_allclose(np.concatenate(list(ahead(opened.chunks()))), values(), rtol=1e-14)
    assert len(list(islice(ahead(opened.chunks()), 2))) == 2
    assert threads() == []


# -- writing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32", ">f8", "longdouble", "int64", "bool", "complex128"])
def test_written_rows(tmp_path, shape, dtype):
    rows = np.random.default_rng(0).normal(scale=9, size=(100, *shape)).astype(dtype)
    path = tmp_path / "x.npy"
    with RowWriter(path) as writer:
        for part in np.split(rows, [0, 1, 1, 40]):
            writer.write(part)
        assert not path.exists()
    for mode in (None, "r"):
        loaded = np.load(path, mmap_mode=mode)
        np.testing.assert_array_equal(loaded, rows, strict=True)
    assert path.stat().st_size == 128 + rows.nbytes
    assert list(tmp_path.iterdir()) == [path]


def test_written_rows_of_any_layout(tmp_path):
    X = values()
    for given in (np.asfortranarray(X), X[::-1, ::2], X[:, ::-1], X.tolist(), X[:0]):
        with RowWriter(tmp_path / "x.npy") as writer:
            writer.write(given)
        np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.asarray(given))


def test_the_first_rows_decide_the_dtype(tmp_path):
    with RowWriter(tmp_path / "x.npy") as writer:
        writer.write(np.ones(3, "float32"))
        writer.write(np.ones(3, "float64"))
        writer.write(np.ones(3, "int64"))
        with pytest.raises(ValueError, match="complex128 do not go with the float32"):
            writer.write(np.ones(3, complex))
    assert np.load(tmp_path / "x.npy").dtype == "float32"
    assert len(np.load(tmp_path / "x.npy")) == writer.n_rows == 9


def test_a_written_file_is_a_source(tmp_path):
    with RowWriter(tmp_path / "x.npy") as writer:
        for chunk in open_source(pieces(values())).chunks():
            writer.write(chunk)
    assert_gives(open_source(tmp_path / "x.npy"), values())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("before", [None, b"what was there"], ids=["new", "old"])
def test_an_interrupted_write_leaves_nothing(tmp_path, error, before):
    path = tmp_path / "x.npy"
    if before is not None:
        path.write_bytes(before)
    with pytest.raises(error), RowWriter(path) as writer:
        writer.write(values())
        raise error
    assert [file.read_bytes() for file in tmp_path.iterdir()] == ([] if before is None else [before])


def test_unfit_rows(tmp_path):
    path = tmp_path / "x.npy"
    with pytest.raises(ValueError, match=r"no rows were written to .*x.npy"), RowWriter(path):
        pass
    for rows in (np.float64(1), np.array(["a"]), np.array([None]), np.zeros((1, 1, 1, 1, 1))):
        with pytest.raises(ValueError, match="rows of numbers"), RowWriter(path) as writer:
            writer.write(rows)
    shape = r"rows of shape \(2,\) are expected, not \(3,\)"
    with pytest.raises(ValueError, match=shape), RowWriter(path) as writer:
        writer.write(np.ones((4, 2)))
        writer.write(np.ones((4, 3)))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError), RowWriter(tmp_path / "nowhere" / "x.npy"):
        pass


def test_compressed_text_is_text(tmp_path):
    with gzip.open(tmp_path / "x.csv.gz", "wt") as file:
        file.write("a,b\n1,2\n")
    np.testing.assert_array_equal(read(open_source(tmp_path / "x.csv.gz")), [[1, 2]])
