"""Tables from files: text with separators, Parquet, NumPy arrays, and folders of images.

Whatever it comes from, a table has named columns and gives its rows as data frames, some at a time, as often
as one likes. Nothing is unpickled.
"""

from __future__ import annotations

import importlib
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from latently.cli.delimited import Dialect, dialect_of, read_frames, unique
from latently.cli.speaking import shown

CELLS = 1 << 20  # that a data frame may hold
_TEXT = (".csv", ".tsv", ".txt", ".dat", ".csv.gz", ".tsv.gz", ".txt.gz")
_PARQUET = (".parquet", ".pq")
_MOST_PIXELS = 1 << 20
_BESIDE_IMAGES = ("file", "folder")
_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Reading:
    """What the user said of how a file is to be read."""

    separator: str | None = None
    decimal: str | None = None
    header: bool | None = None
    array: str | None = None
    resize: tuple[int, int] | None = None  # height, width
    colour: bool = False


@dataclass
class Table:
    """A file's rows.

    `frames(moved, missing, texts)` gives them and tells `moved(done)` how far it is, of `size` in all.
    `missing` and `texts` matter to files of text alone: see `delimited.read_frames`.
    """

    path: Path
    columns: list[str]
    frames: Callable[..., Iterator[Any]]
    size: int  # in whatever units `frames` counts
    n_rows: int | None = None  # None where only reading can tell
    named: bool = True  # whether the file gave the names of the columns
    image_shape: tuple[int, ...] | None = None
    beside: tuple[str, ...] = ()  # columns that belong to the rows but are no features
    dialect: Dialect | None = None  # of text

    def read(self, voice, missing, texts):
        """The frames, with a bar."""
        with voice.bar(f"Reading {self.path.name}", self.size) as moved:
            yield from self.frames(moved, missing, texts)


def package(name, extra, what):
    """A package that is not always installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        needed = name.partition(".")[0]
        raise ImportError(f"{what} needs {needed}: pip install 'latently[{extra}]'") from error


def open_table(path, reading, voice):
    """The table in a file or folder."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"there is no file {shown(path)}")
    if path.is_dir():
        return _images(path, reading)
    name = path.name.lower()
    if path.stat().st_size == 0:
        raise ValueError(f"the file {shown(path)} is empty")
    for endings, opener in ((_TEXT, _text), (_PARQUET, _parquet), ((".npy",), _npy), ((".npz",), _npz)):
        if name.endswith(endings):
            return opener(path, reading, voice)
    raise ValueError(
        f"{shown(path)} is not a kind of file that can be read: {', '.join((*_TEXT, *_PARQUET))}, .npy, "
        ".npz, or a folder of images"
    )


# -- text ------------------------------------------------------------------------------------------------


def _text(path, reading, voice):
    pandas = package("pandas", "csv", "a file of text")
    separator = reading.separator or ("\t" if ".tsv" in path.name.lower()[-7:] else None)
    dialect = dialect_of(
        path, separator=separator, decimal=reading.decimal, header=reading.header, note=voice.note
    )
    n_rows = max(1, CELLS // len(dialect.names))
    packed = path.name.lower().endswith(".gz")
    size = path.stat().st_size * (4 if packed else 1)  # a guess, for the bar alone
    return Table(
        path,
        list(dialect.names),
        lambda moved, missing, texts: read_frames(path, dialect, n_rows, pandas, missing, texts, moved),
        size,
        named=dialect.header,
        dialect=dialect,
    )


# -- Parquet ---------------------------------------------------------------------------------------------


def _parquet(path, reading, voice):
    parquet = package("pyarrow.parquet", "parquet", "a Parquet file")
    package("pandas", "csv", "a table")
    try:
        with parquet.ParquetFile(path) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
    except ValueError as error:  # pyarrow's own errors are such
        raise ValueError(f"the file {shown(path)} is no whole Parquet file: {error}") from error
    index = (schema.pandas_metadata or {}).get("index_columns", [])  # labels of rows, not columns
    places = [place for place, field in enumerate(schema) if field.name not in index]
    names = unique([schema.names[place] for place in places], voice.note)
    if not n_rows or not names:
        raise ValueError(f"the file {shown(path)} has no {'rows' if names else 'columns'}")

    def frames(moved, missing, texts):
        done = 0
        # a small buffer per column: by default a whole row group, which may be the file, is read at once
        with parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            for batch in file.iter_batches(max(1, CELLS // len(names))):
                frame = batch.select(places).to_pandas(date_as_object=False)
                frame.columns = names
                yield frame
                done += len(frame)
                moved(done)

    return Table(path, names, frames, n_rows, n_rows)


# -- NumPy -----------------------------------------------------------------------------------------------


def _npy(path, reading, voice):
    return _array_table(path, partial(open, path, "rb"), shown(path))


def _npz(path, reading, voice):
    try:
        with zipfile.ZipFile(path) as archive:
            members = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    except zipfile.BadZipFile as error:
        raise ValueError(f"the file {shown(path)} is no whole .npz file: {error}") from error
    shapes = {}
    for name in members:
        with _member(path, name) as file:
            shapes[name] = _npy_header(file, f"the array {shown(name)} of {shown(path)}")[0]
    chosen = (
        reading.array or _only([name for name, shape in shapes.items() if len(shape) >= 2]) or _only(members)
    )
    if chosen not in shapes:
        there = ", ".join(f"{shown(name)} {shape}" for name, shape in shapes.items()) or "none"
        wrong = f"has no array {shown(chosen)}" if chosen else "holds several arrays"
        raise ValueError(f"the file {shown(path)} {wrong}; choose with --array: {there}")
    table = _array_table(path, partial(_member, path, chosen), f"the array {shown(chosen)} of {shown(path)}")
    taken = {chosen, *table.columns}
    beside = [name for name, shape in shapes.items() if name not in taken and shape == (table.n_rows,)]
    return _with_arrays_beside(table, path, beside) if beside else table


def _only(names):
    return names[0] if len(names) == 1 else None


class _member:
    """An array of an archive as a file."""

    def __init__(self, path, name):
        self.path, self.name = path, name

    def __enter__(self):
        self.archive = zipfile.ZipFile(self.path)
        self.file = self.archive.open(f"{self.name}.npy")
        return self.file

    def __exit__(self, *error):
        self.file.close()
        self.archive.close()


def _npy_header(file, name):
    """Shape, whether columns lie together, and type."""
    import numpy as np

    try:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[
            version
        ]
        return read(file)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{name} is no NumPy array: {error}") from error


def _array_table(path, opened, name):
    import numpy as np

    pandas = package("pandas", "csv", "a table")
    with opened() as file:
        shape, by_columns, dtype = _npy_header(file, name)
    if dtype.hasobject:
        raise ValueError(
            f"{name} holds Python objects, which are not read: they could run code when they are"
        )
    if dtype.kind not in "biuf":
        raise ValueError(f"{name} holds values of type {dtype}; numbers are needed")
    if not 1 <= len(shape) <= 4 or 0 in shape:
        raise ValueError(f"{name} has shape {shape}; rows of numbers are needed, or images")
    n_rows, width = shape[0], int(np.prod(shape[1:], dtype=int))
    is_images = len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))  # without or with colours
    image_shape = shape[1:] if is_images else None
    names = _pixel_names(image_shape) if image_shape else [f"column_{j}" for j in range(1, width + 1)]

    def frames(moved, missing, texts):
        with opened() as file:
            _npy_header(file, name)
            if by_columns:  # then rows do not lie together, and all are read at once
                values = _values(file, n_rows * width, dtype, name).reshape(shape, order="F")
                yield pandas.DataFrame(values.reshape(n_rows, width), columns=names)
                return
            step = max(1, CELLS // width)
            for start in range(0, n_rows, step):
                n = min(step, n_rows - start)
                values = _values(file, n * width, dtype, name).reshape(n, width)
                yield pandas.DataFrame(values, columns=names)
                moved(start + n)

    return Table(path, names, frames, n_rows, n_rows, named=False, image_shape=image_shape)


def _values(file, n, dtype, name):
    import numpy as np

    content = file.read(n * dtype.itemsize)
    if len(content) < n * dtype.itemsize:
        raise ValueError(f"{name} is cut short")
    values = np.frombuffer(content, dtype)
    return (
        values.astype(dtype.newbyteorder("="))
        if dtype.kind != "f" or dtype.itemsize in (4, 8)
        else values.astype(float)
    )


def _with_arrays_beside(table, path, beside):
    """The table with further columns: arrays of the archive with an entry for each row, such as labels."""
    import numpy as np

    columns = {}
    with np.load(path, allow_pickle=False) as file:
        for name in beside:
            if not _has_objects(path, name):
                columns[name] = file[name]

    def frames(moved, missing, texts):
        start = 0
        for frame in table.frames(moved, missing, texts):
            extra = {name: values[start : start + len(frame)] for name, values in columns.items()}
            start += len(frame)
            yield frame.assign(**extra)

    return replace(table, columns=[*table.columns, *columns], frames=frames, beside=tuple(columns))


def _has_objects(path, name):
    with _member(path, name) as file:
        return _npy_header(file, name)[2].hasobject


def _pixel_names(shape):
    """Row and column of every pixel, and its colour if it has one."""
    import numpy as np

    return ["pixel_" + "_".join(str(i + 1) for i in place) for place in np.ndindex(*shape)]


# -- images ----------------------------------------------------------------------------------------------


def _images(folder, reading):
    import numpy as np

    image = package("PIL.Image", "images", "a folder of images")
    pandas = package("pandas", "csv", "a table")
    there = sorted(
        (file for file in _files_in(folder) if file.suffix.lower() in _IMAGES),
        key=lambda file: file.relative_to(folder).as_posix(),
    )
    if not there:
        raise ValueError(f"the folder {shown(folder)} has no images in it ({', '.join(_IMAGES)})")
    mode = "RGB" if reading.colour else "L"

    def pixels(file, size):
        """The image in the range 0 to 1, of this size if one is demanded, (height, width)."""
        try:
            with image.open(file) as opened:
                grey = opened.convert(mode)
                if reading.resize and grey.size != reading.resize[::-1]:
                    grey = grey.resize(reading.resize[::-1])
                values = np.asarray(grey, dtype=np.float32) / 255
        except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
            raise ValueError(
                f"{shown(file)} cannot be read as an image: {error}; remove it from the folder"
            ) from error
        if size is not None and values.shape[:2] != size:
            (h, w), (height, width) = values.shape[:2], size
            raise ValueError(
                f"images differ in size: {shown(there[0].name)} is {width} x {height}, {shown(file.name)} "
                f"{w} x {h}; give --resize {width}x{height}, say"
            )
        return values

    shape = pixels(there[0], None).shape
    names = _pixel_names(shape)
    if len(names) > _MOST_PIXELS:
        height, width = shape[:2]
        raise ValueError(
            f"images of {width} x {height} are too large; give a smaller size by --resize 64x64, say"
        )

    def frames(moved, missing, texts):
        step = max(1, CELLS // len(names))
        for start in range(0, len(there), step):
            rows = []
            for number, file in enumerate(there[start : start + step], start + 1):
                rows.append(pixels(file, shape[:2]).reshape(-1))
                moved(number)
            some = [file.relative_to(folder) for file in there[start : start + step]]
            frame = pandas.DataFrame(np.stack(rows), columns=names)
            yield frame.assign(
                file=[file.as_posix() for file in some], folder=[file.parent.as_posix() for file in some]
            )

    return Table(
        folder,
        [*names, *_BESIDE_IMAGES],
        frames,
        len(there),
        len(there),
        named=False,
        image_shape=shape,
        beside=_BESIDE_IMAGES,
    )


def _files_in(folder):
    """All files below a folder but hidden ones; links to folders are not followed."""
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(where, name) for name in names if not name.startswith("."))


def size_of(text):
    """(height, width) of "WIDTHxHEIGHT"."""
    width, x, height = text.lower().partition("x")
    if not (
        x and width.isdecimal() and height.isdecimal() and 0 < int(width) <= 4096 and 0 < int(height) <= 4096
    ):
        raise ValueError(f"a size is written WIDTHxHEIGHT, such as 28x28, not {shown(text)}")
    return int(height), int(width)
