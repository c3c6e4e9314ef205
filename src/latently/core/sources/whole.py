"""Files that are read at once: sheets, Arrow and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from latently.core.sources.cells import MISSING, numbers_of
from latently.core.sources.chunks import Rows, check_shape, rechunked, rows_in_frame
from latently.core.sources.dialect import Given, unique
from latently.core.sources.limits import check_filled, check_sheets
from latently.core.sources.packages import errors_name, package
from latently.core.sources.sheets import SHEETS, read_sheet
from latently.core.sources.table import Table

WHOLE = (*SHEETS, ".feather", ".arrow", ".jsonl", ".ndjson", ".json")


def open_whole(path: Path, ending: str, given: Given | None = None) -> Table:
    """The table in a file of one of these kinds; `given` says where that of a sheet begins."""
    name = repr(str(path))
    with errors_name(name, f"a {ending} file"):
        if ending in SHEETS:
            check_sheets(path, ending, "it")
            frame, named = read_sheet(path, ending, name, given or Given())
        else:
            frame, named = _read(path, ending), True
    check_shape(frame.shape, name)
    return frame_table(frame, path, name, named)


def frame_table(frame: Any, path: Path, name: str, named: bool = True) -> Table:
    """A pandas data frame as a table."""
    names = unique([str(column) for column in frame.columns], name)
    frame = frame.set_axis(names, axis=1)
    return Table(
        path,
        name,
        names,
        len(frame),
        partial(_frames, frame),
        partial(_chunks, frame, name),
        size=len(frame),
        named=named,
    )


def _read(path: Path, ending: str) -> Any:
    pandas = package("pandas", "csv", f"{ending} files")
    if ending in (".feather", ".arrow"):
        return _arrow(path)
    return pandas.DataFrame(_json(path, ending))


_TOO_DEEP = "it is nested too deeply"


def _json(path: Path, ending: str) -> Any:
    """Rows as a list of objects, or columns by name; texts stay texts, so that "00501" is no number."""
    text = path.read_text(encoding="utf-8-sig")
    try:
        found = json.loads(text) if ending == ".json" else None
    except ValueError:  # perhaps an object in each line, as many programs write it
        found = None
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    if found is None:
        try:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        except RecursionError as error:
            raise ValueError(_TOO_DEEP) from error
    if isinstance(found, dict) and all(isinstance(column, list | dict) for column in found.values()):
        rows = {row for column in found.values() if isinstance(column, dict) for row in column}
        check_filled(len(rows), len(found), sum(map(len, found.values())), "it")
        return found
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise ValueError("a list of objects, or lists by name, is needed")
    names = {name for row in found for name in row}
    check_filled(len(found), len(names), sum(map(len, found)), "it")
    return found


def _arrow(path: Path) -> Any:
    package("pyarrow", "parquet", ".feather and .arrow files")
    ipc = import_module("pyarrow.ipc")
    with path.open("rb") as file:
        start = file.read(6)
        file.seek(0)
        if start.startswith(b"FEA1"):
            return import_module("pyarrow.feather").read_feather(str(path))
        reader = ipc.open_file(file) if start == b"ARROW1" else ipc.open_stream(file)
        return reader.read_all().to_pandas()


def _frames(
    frame: Any,
    missing: Collection[str] = MISSING,
    texts: Collection[str] | None = (),
    moved: Callable[[int], object] | None = None,
) -> Iterator[Any]:
    step = rows_in_frame(max(1, frame.shape[1]))
    for start in range(0, len(frame), step):
        yield frame.iloc[start : start + step]
        if moved is not None:
            moved(min(len(frame), start + step))


def _chunks(frame: Any, name: str) -> Iterator[Rows]:
    return rechunked(_numbers(frame, name), frame.shape[1])


def _numbers(frame: Any, name: str) -> Iterator[Rows]:
    for part in _frames(frame):
        values, is_text = numbers_of(part)
        if is_text.any():
            row, place = np.argwhere(is_text)[0]
            raise ValueError(
                f"column {frame.columns[place]!r} of {name} holds {str(part.iat[row, place])[:60]!r}; "
                "real numbers are needed"
            )
        yield values
