"""Tables from what the user has: a data frame, an Arrow table, an array, or the path of a file or folder."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from latently.core.sources import FOLDERS, Table, Unclear, package
from latently.core.sources import open_table as opened
from latently.core.sources.dialect import Given
from latently.core.sources.source import Source
from latently.core.sources.whole import frame_table
from latently.estimators.messages import warn_user
from latently.tables.columns import in_python


@dataclass(frozen=True)
class Reading:
    """How a file is read; None is detected automatically."""

    text: Given = field(default_factory=Given)
    array: str | None = None
    resize: tuple[int, int] | None = None  # height, width
    colour: bool = False


def table_of(data: Any, reading: Reading | None = None, option: Any = in_python) -> Table:
    """The table that the data are, or are a path to."""
    if isinstance(data, Table):
        return data
    if isinstance(data, str | os.PathLike):
        data = [data]
    if isinstance(data, list | tuple) and data and all(isinstance(one, str | os.PathLike) for one in data):
        data = [path for one in data for path in _matching(one)]
        if len(data) > 1:
            return joined([open_path(Path(one), reading or Reading(), option) for one in data])
        [data] = data
    if isinstance(data, str | os.PathLike):
        return open_path(Path(data), reading or Reading(), option)
    if isinstance(data, Source):
        raise TypeError("a table is needed: a data frame, an array or the path of a file")
    return frame_table(as_frame(data), Path("table"), "the table", is_named(data))


def _matching(path: Any) -> list[Any]:
    """The path, or the files that a pattern such as "2024-*.csv" matches."""
    if Path(path).exists() or not any(mark in str(path) for mark in "*?["):
        return [path]
    return sorted(glob.glob(os.fspath(path), recursive=True)) or [path]


def joined(tables: list[Table]) -> Table:
    """The rows of several files, one below the other, with the file of each row in a column beside."""
    first = tables[0]
    for table in tables[1:]:
        if set(table.columns) != set(first.columns):
            other = sorted(set(table.columns) ^ set(first.columns))
            raise ValueError(f"{table.name} and {first.name} differ in columns: {', '.join(other[:10])}")

    def frames(missing: Any = (), texts: Any = (), moved: Any = None) -> Any:
        done, own = 0, None if texts is None else [text for text in texts if text != FILE]
        for table in tables:
            last = 0
            for frame in table.frames(missing, own):
                last += len(frame)
                yield frame[first.columns].assign(**{FILE: table.path.name})
            done += table.size
            if moved is not None:
                moved(done)

    def chunks() -> Any:
        for table in tables:
            yield from table.chunks()

    decimals = {table.dialect.decimal if table.dialect else "." for table in tables}
    if len(decimals) > 1:
        raise ValueError(
            f"some of {first.name} and the other files have decimal commas, others points; give --decimal"
        )
    n_rows = [table.n_rows for table in tables]
    return replace(
        first,
        name=f"{first.name} and {len(tables) - 1} more files",
        columns=[*first.columns, FILE],
        n_rows=None if None in n_rows else sum(n for n in n_rows if n is not None),
        frames=frames,
        chunks=chunks,
        size=sum(table.size for table in tables),
        beside=(*first.beside, FILE),
    )


FILE = "file"  # the column that says where a row comes from


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


def open_path(path: Path, reading: Reading, option: Any = in_python) -> Table:
    """The table in a file or folder."""
    if path.is_dir() and not path.name.lower().endswith(FOLDERS):
        from latently.tables.images import open_images

        return open_images(path, reading)
    try:
        table = opened(
            path,
            text=reading.text,
            array=reading.array,
        )
    except Unclear as error:
        raise ValueError(f"{error}; give {option(error.option, '...')}") from error
    if table.dialect is not None:
        if reading.text.header is None and not table.dialect.header:
            warn_user("the first line is read as data, not as column names; use --header if it has names")
        if reading.text.decimal is None and table.dialect.decimal == ",":
            warn_user("numbers are read with a decimal comma; use --decimal . if they have decimal points")
    return table
