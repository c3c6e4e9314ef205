"""Results on disk: written atomically, and nothing is replaced without --force.

The file names in an output folder are fixed; none depends on the data.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import warnings
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from latently.backend.placement import memory_bytes
from latently.cli.speaking import listed, one_line, shown
from latently.core.replacing import folder_replacement, replacement
from latently.core.sources import package

MODEL, DESCRIPTION, SELECTION, REPORT = "model.latently", "description.json", "selection.csv", "report.html"
COMPARISON, EXPLORE = "comparison.csv", "explore.html"
DATA = "data.csv"  # of the demo
FILES = (MODEL, DESCRIPTION, SELECTION, COMPARISON, REPORT, EXPLORE, DATA)


@contextmanager
def new_folder(path, force):
    """A temporary folder that is renamed to `path` at the end; after an error nothing has changed."""
    _check_folder(Path(path), force)
    ready = False
    try:
        with folder_replacement(_located(path)) as folder:
            ready = True
            yield folder
    except OSError as error:
        if ready:
            raise
        raise ValueError(f"the folder {shown(path)} cannot be created: {error.strerror}") from error


def _located(path):
    """The path with links in its folders followed, but not in its name: a link is replaced."""
    path = Path(path)
    return path.parent.resolve() / path.name if path.name not in ("", "..") else path.resolve()


def _check_folder(path, force):
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise ValueError(f"the output {shown(path)} is a file; give the name of a folder")
    inside = {entry.name for entry in path.iterdir()}
    if inside and not force:
        raise ValueError(
            f"the folder {shown(path)} exists already; give --force to replace it, or another --output"
        )
    others = sorted(inside.difference(FILES))
    if others:
        raise ValueError(
            f"the folder {shown(path)} holds other files ({listed(others)}), so it is not "
            "replaced; give another --output"
        )


@contextmanager
def new_file(path, force):
    """The path of a temporary file that is renamed to `path` at the end."""
    check_file(path, force)
    with replacement(_located(path)) as hidden:
        yield hidden


def check_file(path, force):
    """Raise an error if the file must not be written."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"the output {shown(path)} is a folder; give the name of a file")
    if not path.resolve().parent.is_dir():
        raise ValueError(f"the output {shown(path)} is in a folder that does not exist")
    if os.path.lexists(path) and not force:
        raise ValueError(
            f"the file {shown(path)} exists already; give --force to replace it, or another --output"
        )


# -- rows ------------------------------------------------------------------------------------------------

_TEXT = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # what a cell begins with that spreadsheets run


def check_kind(output):
    """Raise an error unless rows can be written to a file with this name."""
    if output is not None and Path(output).suffix.lower() not in (*_TEXT, *_PARQUET):
        raise ValueError(f"the output {shown(output)} must end in {', '.join((*_TEXT, *_PARQUET))}")


def check_room(frame, n_rows, output, *, as_object):
    """Raise an error if so many rows like these have no room: on the disk, or for JSON in memory."""
    few = frame.head(100)
    if output is not None:
        in_parquet = Path(output).suffix.lower() in _PARQUET
        numbers = 8 * sum(column.dtype.kind == "f" for _, column in few.items())  # others are packed well
        each = numbers if in_parquet else len(_as_text(few, False, ",", ".")) / len(few)
        there, place = float(shutil.disk_usage(Path(output).resolve().parent).free), "free on the disk"
    elif as_object:
        each, there, place = 64 * (1 + len(few.columns)), memory_bytes(), "of memory"
    else:
        return  # to a pipe, whose reader may stop
    if each * n_rows > there:
        raise ValueError(
            f"{n_rows} rows take about {each * n_rows / 1e9:.3g} GB, but there are {there / 1e9:.3g} GB "
            f"{place}; draw fewer rows"
        )


def write_rows(frames, output, force, *, separator=",", decimal=".", as_object=False):
    """Write data frames to a file or to stdout; returns the number of rows, and None or the rows.

    Text files use the `separator` and `decimal` of the user's own file. With `as_object` and no file the rows
    are returned as a list, for JSON.
    """
    if output is None and as_object:
        records = [record for frame in frames for record in frame.to_dict("records")]
        return len(records), records
    n_rows = 0
    with new_file(output, force) if output is not None else nullcontext() as path:
        write = _writer(path, output, separator, decimal)
        try:
            for frame in frames:
                write(frame, n_rows == 0)
                n_rows += len(frame)
        finally:
            write(None, False)
    return n_rows, None


def _writer(path, output, separator, decimal):
    """A function `write(frame, first)`; None as frame closes the file."""
    if output is None:
        return lambda frame, first: (
            None if frame is None else _print(_as_text(frame, first, separator, decimal))
        )
    if Path(output).suffix.lower() in _PARQUET:
        return _parquet_writer(path)
    separator = separator if Path(output).suffix.lower() == ".csv" else "\t"
    file = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115 (closed by `write(None, ...)`)

    def write(frame, first):
        if frame is None:
            file.close()
        else:
            file.write(_as_text(frame, first, separator, decimal))

    return write


def _as_text(frame, first, separator, decimal):
    _warn_of_formulas(frame)
    text = io.StringIO()
    frame.to_csv(text, index=False, header=first, sep=separator, decimal=decimal, lineterminator="\n")
    return text.getvalue()


def _is_negative(text):
    """Whether a text is a negative number, which tables of text are full of."""
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return text.startswith("-")


def _warn_of_formulas(frame):
    """Cells of text, such as labels, are written as they are: other programs have to read the same."""
    for name, column in frame.items():
        cells = [name] if column.dtype.kind in "biuf" else [name, *column.tolist()]
        for cell in cells:
            if isinstance(cell, str) and cell.startswith(_FORMULAS) and not _is_negative(cell):
                warnings.warn(
                    f"the text {shown(cell, 30)} begins as formulas of spreadsheets do, "
                    "and is written as it is; import such a file as text, not by opening it",
                    stacklevel=2,
                )
                return


def _print(text):
    if sys.stdout.isatty():  # the user's cells must not control the terminal
        text = "".join(f"{one_line(line)}\n" for line in text.splitlines())
    sys.stdout.write(text)
    sys.stdout.flush()


def _parquet_writer(path):
    pyarrow, parquet = (
        package("pyarrow", "parquet", ".parquet files"),
        package("pyarrow.parquet", "parquet", ".parquet files"),
    )
    opened: list[Any] = []

    def write(frame, first):
        if frame is None:
            for file in opened:
                file.close()
            return
        table = pyarrow.Table.from_pandas(
            frame, preserve_index=False, schema=opened[0].schema if opened else None
        )
        if not opened:
            opened.append(parquet.ParquetWriter(path, table.schema))
        opened[0].write_table(table)

    return write
