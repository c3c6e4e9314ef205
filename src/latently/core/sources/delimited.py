"""Text with a mark between the fields: .csv and .tsv files."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from latently.core.sources.chunks import Rows, rechunked, rows_in_chunk
from latently.core.sources.packages import errors_name, package
from latently.core.sources.source import RowSource, Source


def open_delimited(path: Path) -> Source:
    """Text with commas, or tabs in .tsv. The first line names the columns unless it is all numbers."""
    package("pandas", "csv", ".csv and .tsv")
    name = repr(str(path))
    separator = "\t" if ".tsv" in path.name.lower()[-7:] else ","
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with cast(Any, opened)(path, "rt", encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file, delimiter=separator, skipinitialspace=True)
        with errors_name(path):
            first, second = ([*islice((line for line in lines if line), 2), [], []])[:2]
    if not first:
        raise ValueError(f"{name} is empty")
    if len(second) > len(first):  # pandas would take the first fields for labels of the rows
        raise ValueError(f"{name} has {len(first)} fields in its first line, {len(second)} in the second")
    header = None if all(map(_is_number, first)) else 0
    read = partial(_csv_tables, path, separator, header)
    with closing(read(n_rows=1)) as tables:
        table = next(tables, None)
    if table is None or len(table) == 0:
        raise ValueError(f"{name} is empty: it has a header, but no rows")
    names = None if header is None else [str(column) for column in table.columns]
    n_features = table.shape[1]
    return RowSource(name, n_features, None, names, partial(_read_csv, path, separator, header, n_features))


def _is_number(field: str) -> bool:
    """Whether a field is a number, or nothing where a number could be."""
    try:
        float(field or "nan")
    except ValueError:
        return False
    return "_" not in field  # which Python lets through


def _read_csv(path: Path, separator: str, header: int | None, n_features: int) -> Iterator[Rows]:
    # parsing takes some four times the memory of the numbers that come out of it
    n_rows = rows_in_chunk(n_features, np.dtype(np.float64), parts=4)
    with closing(_csv_tables(path, separator, header, n_rows)) as tables:
        yield from rechunked((_csv_numbers(table, path) for table in tables), n_features)


def _csv_tables(path: Path, separator: str, header: int | None, n_rows: int) -> Generator[Any, None, None]:
    pandas = import_module("pandas")
    with (
        errors_name(path),
        pandas.read_csv(
            path,
            sep=separator,
            header=header,
            chunksize=n_rows,
            skipinitialspace=True,
            encoding="utf-8-sig",
            low_memory=False,  # one type per column and table
        ) as tables,
    ):
        yield from tables


def _csv_numbers(table: Any, path: Path) -> Rows:
    """The values of a table in float64, a missing one as NaN."""
    numbers = np.empty(table.shape)
    for j, column in enumerate(table.columns):
        values = table.iloc[:, j]
        try:
            numbers[:, j] = values.to_numpy(dtype=np.float64, na_value=np.nan)
        except (ValueError, TypeError):
            parsed = import_module("pandas").to_numeric(values, errors="coerce")
            bad = values[parsed.isna() & values.notna()]
            example = (bad if len(bad) > 0 else values).iloc[0]
            raise ValueError(
                f"column {column!r} of {str(path)!r} holds {example!r}; real numbers are needed"
            ) from None
    return numbers
