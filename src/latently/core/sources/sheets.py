"""The table in a sheet: below titles and blank lines, with names and perhaps units above the numbers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from latently.core.sources.dialect import Cells, Given, are_units, has_header
from latently.core.sources.packages import package

SHEETS = (".xlsx", ".xlsm", ".ods")
_FIRST_LINES = 200


def read_sheet(path: Path, ending: str, name: str, given: Given) -> tuple[Any, bool]:
    """The first sheet of a file as a data frame, and whether it names its columns."""
    pandas = package("pandas", "csv", f"{ending} files")
    engine = "odf" if ending == ".ods" else "openpyxl"
    package(engine, "excel", f"{ending} files")
    with pandas.ExcelFile(path, engine=engine) as book:
        if len(book.sheet_names) > 1:
            names = ", ".join(map(repr, book.sheet_names[:5]))
            warnings.warn(
                f"{name} has {len(book.sheet_names)} sheets ({names}); the first is read", stacklevel=2
            )
        cells = pandas.read_excel(book, header=None)
    cells = cells.dropna(axis=1, how="all")
    first = _lines_above(cells, name) if given.skip_rows is None else given.skip_rows
    cells = cells.iloc[first:].dropna(how="all")
    if not len(cells):
        raise ValueError("it has no cells")
    rows = _texts(cells)
    header = has_header(rows) if given.header is None else given.header
    if not header:
        if given.header is None:
            warnings.warn(
                f"the first line of {name} is read as data, not as column names; "
                "use --header if it has names",
                stacklevel=2,
            )
        return _frame(cells, [""] * cells.shape[1]), False
    units = given.header is None and are_units(rows)
    if units:
        texts = ", ".join(cell for cell in rows[1] if cell)
        warnings.warn(
            f"the line below the header of {name} is left out: it has units ({texts[:80]})", stacklevel=2
        )
    return _frame(cells.iloc[1 + units :], rows[0]), True


def _lines_above(cells: Any, name: str) -> int:
    """Number of lines above the table: blank ones, and titles of one cell above a table of several."""
    filled = cells.notna().sum(axis=1).to_list()[:_FIRST_LINES]
    widths = [n for n in filled if n]
    usual = max(set(widths), key=widths.count) if widths else 0
    first = 0
    while first < len(filled) - 1 and (filled[first] == 0 or filled[first] == 1 < usual):
        first += 1
    titles = [row for row in range(first) if filled[row]]
    if titles:
        text = str(cells.iloc[titles[0]].dropna().iloc[0])[:60]
        warnings.warn(
            f"the first {first} lines of {name} are left out: they are above the table, such as {text!r}",
            stacklevel=2,
        )
    return first


def _texts(cells: Any) -> Cells:
    """The first lines as text; integers without a decimal point."""
    return [
        [
            "" if cell is None or cell != cell else f"{cell:g}" if _whole(cell) else str(cell).strip()
            for cell in row
        ]
        for row in cells.head(_FIRST_LINES).itertuples(index=False)
    ]


def _whole(cell: Any) -> bool:
    return isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e6


def _frame(cells: Any, names: list[str]) -> Any:
    return cells.set_axis(names, axis=1).reset_index(drop=True).infer_objects()
