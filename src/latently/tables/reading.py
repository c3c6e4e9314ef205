"""Tables from what the user has: a data frame, an Arrow table, an array, or the path of a file or folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from latently.core.sources import FOLDERS, Table, Unclear, package, rows_in_frame
from latently.core.sources import open_table as opened
from latently.core.sources.dialect import unique
from latently.core.sources.source import Source
from latently.estimators.messages import warn_user
from latently.tables.columns import in_python


@dataclass(frozen=True)
class Reading:
    """How a file is read; None is detected automatically."""

    separator: str | None = None
    decimal: str | None = None
    header: bool | None = None
    array: str | None = None
    resize: tuple[int, int] | None = None  # height, width
    colour: bool = False


def table_of(data: Any, reading: Reading | None = None, option: Any = in_python) -> Table:
    """The table that the data are, or are a path to."""
    if isinstance(data, Table):
        return data
    if isinstance(data, str | os.PathLike):
        return open_path(Path(data), reading or Reading(), option)
    if isinstance(data, Source):
        raise TypeError("a table is needed: a data frame, an array or the path of a file")
    frame = as_frame(data)
    names = unique([str(name) for name in frame.columns], "the table")
    frame = frame.set_axis(names, axis=1)
    return Table(
        Path("table"),
        "the table",
        names,
        len(frame),
        partial(_frames, frame),
        lambda: (part.to_numpy(dtype=np.float64, na_value=np.nan) for part in _frames(frame)),
        size=len(frame),
        named=is_named(data),
    )


def is_named(data: Any) -> bool:
    """Whether columns have names of their own."""
    if not hasattr(data, "columns") and not hasattr(data, "column_names"):
        return False
    names = getattr(data, "column_names", None) or list(data.columns)
    return any(isinstance(name, str) for name in names)


def as_frame(data: Any) -> Any:
    """A pandas data frame with these rows."""
    pandas = package("pandas", "csv", "tables")
    if isinstance(data, pandas.DataFrame):
        return data
    if isinstance(data, pandas.Series):
        raise TypeError("a table is needed, not one column; give series.to_frame()")
    if hasattr(data, "to_pandas"):  # polars, Arrow
        return data.to_pandas()
    if isinstance(data, dict):
        return pandas.DataFrame(data)
    rows = np.asarray(data)
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise TypeError(
            "a table is needed: a data frame, an Arrow table, a 2-D array of numbers or the path of a file, "
            f"not {type(data).__name__}"
            + (f" of shape {rows.shape} and type {rows.dtype}" if rows.ndim else "")
        )
    return pandas.DataFrame(rows, columns=[f"column_{j}" for j in range(1, rows.shape[1] + 1)])


def like_input(frame: Any, data: Any) -> Any:
    """A pandas data frame as the kind of table that `data` is."""
    kind = type(data).__module__.partition(".")[0]
    if kind in ("polars", "pyarrow"):
        module = package(kind, "parquet", "Arrow tables")
        frame = frame.reset_index(drop=True)
        return (
            module.from_pandas(frame)
            if kind == "polars"
            else module.Table.from_pandas(frame, preserve_index=False)
        )
    if isinstance(data, np.ndarray):
        return frame.to_numpy()
    return frame


def _frames(frame, missing=(), texts=(), moved=None):
    step = rows_in_frame(max(1, frame.shape[1]))
    for start in range(0, len(frame), step):
        yield frame.iloc[start : start + step]
        if moved is not None:
            moved(min(len(frame), start + step))


def open_path(path: Path, reading: Reading, option: Any = in_python) -> Table:
    """The table in a file or folder."""
    if path.is_dir() and not path.name.lower().endswith(FOLDERS):
        from latently.tables.images import open_images

        return open_images(path, reading)
    try:
        table = opened(
            path,
            separator=reading.separator,
            decimal=reading.decimal,
            header=reading.header,
            array=reading.array,
        )
    except Unclear as error:
        raise ValueError(f"{error}; give {option(error.option, '...')}") from error
    if table.dialect is not None:
        if reading.header is None and not table.dialect.header:
            warn_user("the first line is read as data, not as column names; use --header if it has names")
        if reading.decimal is None and table.dialect.decimal == ",":
            warn_user("numbers are read with a decimal comma; use --decimal . if they have decimal points")
    return table
