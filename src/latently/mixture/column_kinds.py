"""Columns of a table and what they hold: kinds, levels, and the numbers that stand for them in a model.

A model of mixed columns works on one array of floats: numbers as they are, dates in days since 1970, levels
as 0, 1, 2 ..., counts as they are, NaN where a cell is empty. `found` looks at a table and tells the kind of
every column, `encoded` makes the array, and `decoded` gives a table back. Tables are data frames of pandas or
polars, tables of pyarrow, and arrays.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np

from latently.backend.namespace import without_mask

KINDS = ("number", "date", "category", "ordinal", "count")
_MOST_COUNTED = 20  # whole numbers from 0 to this one are counts
_MOST_NUMBERS = 1000  # distinct numbers that are counted
_MANY_LEVELS = 50  # a column of text with more levels than this, most of them seen once, is no category
_EXAMPLES = 20  # texts that are looked at for dates
_CONVERT = "its texts look like dates: convert them, for example with pandas.to_datetime"
_DAY = np.timedelta64(1, "D") / np.timedelta64(1, "us")


@dataclass(frozen=True)
class Column:
    """A column as a fit saw it."""

    name: Any  # text, or a number where columns have no names
    kind: str  # one of KINDS
    levels: tuple[Any, ...] = ()  # text, numbers or truth values; ordered answers from low to high
    dtype: str = "float64"  # in the table of the fit

    def as_list(self) -> list[Any]:
        return [self.name, self.kind, list(self.levels), self.dtype]

    @classmethod
    def from_list(cls, entry: Any) -> Column:
        """The column of an entry of a file; a ValueError where there is none."""
        if not isinstance(entry, list) or len(entry) != 4:
            raise ValueError("a column must have a name, a kind, levels and a dtype")
        name, kind, levels, dtype = entry
        plain = (str, bool, int, float)
        if not isinstance(name, (str, int)) or kind not in KINDS or not isinstance(dtype, str):
            raise ValueError(f"{entry[:2]} is not a column of a known kind")
        if not isinstance(levels, list) or not all(isinstance(level, plain) for level in levels):
            raise ValueError(f"the levels of column {name!r} must be text or numbers")
        if (kind in ("category", "ordinal")) != bool(levels) or len(set(levels)) != len(levels):
            raise ValueError(f"column {name!r} must have distinct levels if it is a category, and only then")
        return cls(name, kind, tuple(levels), dtype)


@dataclass
class Cells:
    """The cells of one column: numbers, or texts and truth values as objects."""

    values: np.ndarray  # float64, NaN where empty; or objects, None where empty
    what: str  # "number", "integer", "date", "truth", "text", "other"
    levels: tuple[Any, ...] = ()  # known beforehand, of categorical columns
    ordered: bool = False
    dtype: str = "float64"


# -- tables -------------------------------------------------------------------------------------------


def is_table(X: Any) -> bool:
    """Whether X is a data frame of pandas or polars, or a table of pyarrow."""
    return _library(X) is not None


def _library(X: Any) -> str | None:
    for library, name in (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table")):
        module = sys.modules.get(library)
        if module is not None and isinstance(X, getattr(module, name, ())):
            return library
    return None


def names_of(X: Any) -> list[Any]:
    """Names of the columns; their numbers for arrays."""
    library = _library(X)
    if library is None:
        return list(range(np.shape(X)[1]))
    names = list(X.column_names if library == "pyarrow" else X.columns)
    return [name if isinstance(name, (str, int)) else str(name) for name in names]


def n_rows_of(X: Any) -> int:
    return int(X.num_rows if _library(X) == "pyarrow" else len(X))


def cells_of(X: Any, place: int) -> Cells:
    """The cells of the column at this place."""
    library = _library(X)
    if library == "pandas":
        return _of_pandas(X.iloc[:, place])
    if library == "polars":
        series = X.to_series(place)
        return _of_objects(series.to_list(), str(series.dtype))
    if library == "pyarrow":
        column = X.column(place)
        return _of_objects(column.to_pylist(), str(column.type))
    values = np.asarray(X)[:, place]
    if values.dtype.kind in "biuf":
        return _of_numbers(values.astype(np.float64), values.dtype.kind, str(values.dtype))
    return _of_objects(list(values), "object")


def _of_pandas(series: Any) -> Cells:
    pandas = import_module("pandas")
    dtype, name = series.dtype, str(series.dtype)
    if isinstance(dtype, pandas.CategoricalDtype):
        levels = tuple(_plain(level) for level in dtype.categories)
        values = series.astype(object).where(series.notna(), None).to_numpy()
        return Cells(values, "text", levels, bool(dtype.ordered), "category")
    kind = getattr(dtype, "kind", "O")
    if kind in "biuf":
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        return _of_numbers(values, kind, name)
    if kind == "M":
        naive = series.dt.tz_convert(None) if getattr(dtype, "tz", None) is not None else series
        return Cells(_days(naive.to_numpy()), "date", dtype="datetime64[ns]")
    if kind == "m":
        return Cells(series.dt.total_seconds().to_numpy() / 86400.0, "number", dtype=name)
    return _of_objects(series.astype(object).where(series.notna(), None).to_numpy(), "object")


def _of_numbers(values: np.ndarray, kind: str, dtype: str) -> Cells:
    if kind == "b":
        objects = np.where(np.isnan(values), np.array(None), (values == 1.0).astype(object))
        return Cells(objects, "truth", dtype="bool")
    return Cells(values, "integer" if kind in "iu" else "number", dtype=dtype)


def _of_objects(values: Any, dtype: str) -> Cells:
    """The cells of Python objects, by the types of those that are not empty."""
    cells = np.empty(len(values), dtype=object)
    cells[:] = [None if _is_empty(value) else _plain(value) for value in values]
    types = {type(value) for value in cells if value is not None}
    if not types or types <= {int, float}:
        try:
            numbers = np.array([np.nan if value is None else value for value in cells], dtype=np.float64)
        except OverflowError as error:
            raise ValueError(f"X holds numbers that float64 cannot hold: {error}") from None
        whole = types == {int}
        return Cells(numbers, "integer" if whole else "number", dtype="int64" if whole else "float64")
    if types == {bool}:
        return Cells(cells, "truth", dtype="bool")
    if types == {str}:
        return Cells(cells, "text", dtype="object" if dtype == "object" else "str")
    if all(hasattr(value, "isoformat") for value in cells if value is not None):
        stamps = np.array([None if value is None else value.isoformat() for value in cells], "datetime64[us]")
        return Cells(_days(stamps), "date", dtype="datetime64[ns]")
    return Cells(cells, "other", dtype=" and ".join(sorted(kind.__name__ for kind in types)))


def _is_empty(value: Any) -> bool:
    return (
        value is None or (isinstance(value, (float, np.floating)) and value != value) or str(value) == "<NA>"
    )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _days(stamps: np.ndarray) -> np.ndarray:
    micro = stamps.astype("datetime64[us]")
    return np.where(np.isnat(micro), np.nan, micro.astype(np.int64) / _DAY)


# -- kinds --------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What the rows so far show of a column."""

    what: set[str] = field(default_factory=set)
    dtype: str = "float64"
    given: tuple[Any, ...] = ()  # levels known beforehand
    ordered: bool = False
    counts: dict[Any, int] = field(default_factory=dict)  # of distinct values, unless they are many numbers
    low: float = np.inf
    n_rows: int = 0
    fraction: bool = False  # whether any number is not whole
    many: bool = False  # whether there are so many distinct numbers that they are not counted

    def look(self, cells: Cells, all_values: bool) -> None:
        """Note these cells; with `all_values` also all distinct numbers, however many there are."""
        self.what.add(cells.what)
        self.dtype, self.ordered = cells.dtype, cells.ordered
        self.given = self.given or cells.levels
        if cells.values.dtype == object:
            distinct, inverse = _factorised(cells.values)
            sizes = np.bincount(inverse, minlength=len(distinct) + 1)[:-1].tolist()
            self.n_rows += sum(sizes)
        else:
            numbers = cells.values[~np.isnan(cells.values)]
            self.n_rows += len(numbers)
            if len(numbers):
                self.low = min(self.low, float(numbers.min()))
                self.fraction = self.fraction or bool(np.any(numbers != np.round(numbers)))
            self.many = self.many or (not all_values and (self.fraction or self.low < 0))
            if self.many:
                return
            distinct, sizes = (part.tolist() for part in np.unique(numbers, return_counts=True))
            self.many = not all_values and len(distinct) > _MOST_NUMBERS
        for value, size in zip(distinct, sizes, strict=True):
            self.counts[value] = self.counts.get(value, 0) + size

    def column(self, name: Any, wanted: Any, unseen: str) -> Column:
        """The column that was seen, as the user wants it or by the rules of `MixedMixture`."""
        kinds = {"number" if what == "integer" else what for what in self.what}
        if len(kinds) > 1:
            what = " and ".join(sorted(kinds))
            raise ValueError(f"column {name!r} mixes {what}; make all of its cells text, or all numbers")
        if self.n_rows == 0:
            raise ValueError(f"column {name!r} is missing (empty) in every row; leave it out")
        levels = list(self.given)
        if isinstance(wanted, (list, tuple)):
            levels, kind = [_plain(level) for level in wanted], "ordinal"
            if len(set(levels)) != len(levels) or len(levels) < 2:
                raise ValueError(
                    f"columns[{name!r}] must list at least two levels, each once, from low to high, not "
                    f"{levels}"
                )
        else:
            kind = self._kind() if wanted is None else wanted
        text = bool(self.what & {"text", "truth"})
        if "date" in self.what and kind not in ("date", "number"):
            raise ValueError(
                f"column {name!r} holds dates, so it cannot be of kind {kind!r}; use 'date', or make it text"
            )
        if kind in ("number", "date", "count"):
            if text:
                what = "text" if "text" in self.what else "truth values"
                instead = _CONVERT if self._looks_like_dates() else "use 'category'"
                raise ValueError(f"column {name!r} holds {what}, so it cannot be of kind {kind!r}; {instead}")
            if kind == "count" and (self.low < 0 or self.fraction):
                raise ValueError(
                    f"column {name!r} must hold whole numbers of at least 0 to be a count; use 'number'"
                )
            return Column(name, "date" if "date" in self.what else kind, (), self.dtype)
        ordered = self.ordered or isinstance(wanted, (list, tuple))
        if kind == "ordinal" and not ordered and "text" in self.what:
            raise ValueError(
                f"column {name!r} has text for levels, whose order is not known; list the levels from low to "
                f"high: columns={{{name!r}: [...]}}"
            )
        if not levels:
            levels = sorted(self.counts)
        unknown = [value for value in self.counts if value not in levels]
        if unknown and unseen == "error":
            raise ValueError(
                f"column {name!r} holds {unknown[0]!r}, which is not among its levels {levels}; with "
                "unseen='missing' such cells count as missing"
            )
        if len(unknown) == len(self.counts):
            raise ValueError(f"column {name!r} holds none of its levels {levels} in any row; leave it out")
        if wanted is None and text and len(levels) > max(_MANY_LEVELS, self.n_rows // 2):
            instead = f"leave it out, or set columns={{{name!r}: 'category'}}"
            raise ValueError(
                f"column {name!r} has {len(levels)} different texts in {self.n_rows} rows, so it tells "
                f"nothing of groups of rows; {_CONVERT if self._looks_like_dates() else instead}"
            )
        return Column(name, kind, tuple(levels), self.dtype)

    def _looks_like_dates(self) -> bool:
        texts = [text for text in islice(self.counts, _EXAMPLES) if isinstance(text, str)]
        try:
            return bool(texts) and all(datetime.fromisoformat(text) for text in texts)
        except ValueError:
            return False

    def _kind(self) -> str:
        if "date" in self.what:
            return "date"
        if self.what & {"text", "truth"}:
            return "ordinal" if self.ordered and len(self.given) > 2 else "category"
        if not self.many and not self.fraction:  # whole numbers may come as floats, for empty cells
            if set(self.counts) == {0.0, 1.0}:
                return "category"
            if self.low >= 0 and len(self.counts) > 2 and max(self.counts) <= _MOST_COUNTED:
                return "count"
        return "number"


def found(
    tables: Iterable[Any], wanted: Mapping[Any, Any] | str, unseen: str, kept: Any = None
) -> list[Column]:
    """The columns of a table that comes in one or several parts; only of the rows `kept` (n,) if given."""
    names: list[Any] = []
    seen: list[Seen] = []
    plain, start = True, 0
    for table in tables:
        cells = [cells_of(table, j) for j in range(len(names_of(table)))]
        if not seen:
            names, plain = names_of(table), not is_table(table)
            _refuse_other_types(cells, names)
            _refuse_duplicates(names)
            seen = [Seen() for _ in names]
            given = _by_name(wanted, names)
        n = n_rows_of(table)
        for one, own, name in zip(seen, cells, names, strict=True):
            _refuse_infinity(own, name)
            if kept is not None:
                own = replace(own, values=own.values[kept[start : start + n]])
            one.look(own, given.get(name) in ("category", "ordinal"))
        start += n
    columns = []
    for name, one in zip(names, seen, strict=True):
        how = given.get(name)
        if plain and how is None and not one.what & {"text", "truth", "date", "other"}:
            how = "number"  # arrays say nothing about their columns
        columns.append(one.column(name, how, unseen))
    return columns


def _refuse_other_types(cells: list[Cells], names: list[Any]) -> None:
    for one, name in zip(cells, names, strict=True):
        if one.what == "other":
            sizes = Counter(type(value) for value in one.values if value is not None)
            rarest = min(sizes, key=lambda kind: sizes[kind])
            example = next(value for value in one.values if type(value) is rarest)
            raise ValueError(
                f"column {name!r} holds cells of the types {one.dtype}, such as {example!r}; each column "
                "must hold text, truth values, dates or numbers (float or int), and nothing else"
            )


def _refuse_duplicates(names: list[Any]) -> None:
    twice = [name for name, number in Counter(names).items() if number > 1]
    if twice:
        raise ValueError(f"X has several columns named {twice[0]!r}; give each a name of its own")


def _refuse_infinity(cells: Cells, name: Any) -> None:
    if cells.values.dtype != object and np.any(np.isinf(cells.values)):
        raise ValueError(f"Input X contains infinity, in column {name!r}")


def _by_name(wanted: Mapping[Any, Any] | str, names: list[Any]) -> dict[Any, Any]:
    """What is wanted of columns, which may be given by their number as well."""
    given = {}
    for name, kind in {} if isinstance(wanted, str) else wanted.items():
        place = isinstance(name, int) and name not in names and -len(names) <= name < len(names)
        name = names[name] if place else name
        if name not in names:
            raise ValueError(f"columns names {name!r}, but X has the columns {names[:8]}")
        given[name] = kind
    return given


# -- arrays -------------------------------------------------------------------------------------------


def encoded(X: Any, columns: Sequence[Column], unseen: str) -> np.ndarray:
    """(n, D) the numbers of a table with these columns; levels that the fit has not seen as `unseen` says."""
    names, known = names_of(X), [column.name for column in columns]
    if len(names) != len(columns):
        raise ValueError(f"X has {len(names)} features, but the model was fitted to {len(columns)}")
    if is_table(X) and names != known and all(isinstance(name, str) for name in known):
        j = next(j for j, name in enumerate(names) if name != known[j])
        raise ValueError(
            f"the feature names of X are not those of the fit: {names[j]!r} instead of {known[j]!r}"
        )
    rows = np.empty((n_rows_of(X), len(columns)))
    for j, column in enumerate(columns):
        cells = cells_of(X, j)
        _refuse_infinity(cells, column.name)
        rows[:, j] = _numbers(cells, column, unseen)
    return rows


def _numbers(cells: Cells, column: Column, unseen: str) -> np.ndarray:
    name, values = column.name, cells.values
    if column.kind not in ("category", "ordinal"):
        if values.dtype == object:
            raise ValueError(f"column {name!r} holds text, but in the fit it was a {column.kind}")
        if column.kind == "count":
            wrong = ~np.isnan(values) & ((values < 0) | (values != np.round(values)))
            if wrong.any():
                raise ValueError(
                    f"column {name!r} must hold whole numbers of at least 0, not {values[wrong][0]:g}"
                )
        return values
    places = {level: float(code) for code, level in enumerate(column.levels)}
    if values.dtype == object:
        distinct, inverse = _factorised(values)
    else:
        numbers, inverse = np.unique(values, return_inverse=True)
        distinct = [None if value != value else value for value in numbers.tolist()]
    codes = np.array([np.nan if value is None else places.get(value, -1.0) for value in distinct] + [np.nan])
    new = [value for value, code in zip(distinct, codes, strict=False) if code == -1.0]
    if new and unseen == "error":
        raise ValueError(
            f"column {name!r} holds {new[0]!r}, which it did not in the fit (levels: "
            f"{', '.join(map(repr, column.levels[:8]))}); with unseen='missing' such cells count as missing"
        )
    codes[codes == -1.0] = np.nan
    return codes[inverse]


def _factorised(values: np.ndarray) -> tuple[list[Any], np.ndarray]:
    """Distinct objects, and where each cell is among them; empty cells are the last entry."""
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        codes, distinct = pandas.factorize(values, use_na_sentinel=True)
        return [_plain(value) for value in distinct], np.where(codes < 0, len(distinct), codes)
    known: dict[Any, int] = {}
    codes = np.array([-1 if value is None else known.setdefault(value, len(known)) for value in values])
    return list(known), np.where(codes < 0, len(known), codes)


# -- tables again -------------------------------------------------------------------------------------


def decoded(rows: np.ndarray, columns: Sequence[Column], like: Any = None) -> Any:
    """The table of encoded rows, of the type of the table `like`; pandas by default, arrays for arrays."""
    if not all(isinstance(column.name, str) for column in columns) or (
        like is not None and not is_table(like)
    ):
        return np.stack([_values(rows[:, j], column) for j, column in enumerate(columns)], axis=1)
    library = _library(like) or "pandas"
    cells = {column.name: _values(rows[:, j], column) for j, column in enumerate(columns)}
    if library == "pandas":
        pandas = _pandas()
        index = None if like is None else like.index
        made = {}
        for j, column in enumerate(columns):  # names of several levels are texts here
            before = None if like is None else like.dtypes.iloc[j]
            made[column.name] = _as_before(pandas, cells[column.name], column, index, before)
        return pandas.DataFrame(made, index=index)
    lists = {
        name: [None if _is_empty(value) else value for value in own.tolist()] for name, own in cells.items()
    }
    for column in columns:
        if column.kind == "date":
            lists[column.name] = _stamps(cells[column.name]).astype(object).tolist()
    return getattr(import_module(library), "table" if library == "pyarrow" else "DataFrame")(lists)


def with_own_cells(made: Any, X: Any) -> Any:
    """The table `made` of X with the cells of X that are not empty; those of polars and pyarrow as made."""
    if _library(X) == "pandas":
        if not is_table(made):  # of columns without names
            return with_own_cells(made, X.to_numpy())
        pairs = [(name, made.iloc[:, j], X.iloc[:, j]) for j, name in enumerate(made)]
        kept = {name: _filled(own, other) for name, other, own in pairs if not other.equals(own)}
        return made.assign(**{name: own for name, own in kept.items() if not own.equals(made[name])})
    X = without_mask(X)
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf":
        return np.where(np.isnan(X), made, X)
    return made


def _filled(own: Any, other: Any) -> Any:
    """The column with cells of another where it is empty; categories are those of both."""
    if hasattr(own, "cat"):
        more = [level for level in other.dropna().unique() if level not in own.cat.categories]
        own = own.cat.add_categories(more)
        other = other.astype(own.dtype)
    elif own.dtype.kind in "iu" and other.dtype.kind == "f" and own.isna().any():  # integers of pandas
        own = own.astype(other.dtype)
    return own.where(own.notna(), other)


def _pandas() -> Any:
    try:
        return import_module("pandas")
    except ImportError:
        raise ImportError("a table of mixed columns needs pandas: pip install 'latently[csv]'") from None


def _values(rows: np.ndarray, column: Column) -> np.ndarray:
    """The values of a column: levels in place of codes."""
    if column.kind not in ("category", "ordinal"):
        return rows
    numeric = all(isinstance(level, (int, float)) and not isinstance(level, bool) for level in column.levels)
    levels = np.array([*column.levels, np.nan if numeric else None], dtype=float if numeric else object)
    codes = np.where(np.isnan(rows), len(column.levels), rows).astype(np.int64)
    return levels[codes]


def _stamps(days: np.ndarray) -> np.ndarray:
    """Times to the microsecond, which days since 1970 as float64 just hold."""
    empty = np.isnan(days)
    micro = np.round(np.where(empty, 0.0, days) * _DAY).astype(np.int64).astype("datetime64[us]")
    return np.where(empty, np.datetime64("NaT", "us"), micro)


def _as_before(pandas: Any, values: np.ndarray, column: Column, index: Any, before: Any) -> Any:
    """A column of a data frame in the dtype of the fit, where its cells allow; times in the zone of X."""
    if column.dtype == "category":
        ordered = column.kind == "ordinal" or getattr(before, "ordered", False)  # two levels are no ordinal
        return pandas.Series(pandas.Categorical(values, list(column.levels), ordered=ordered), index=index)
    if column.kind == "date":
        times = pandas.Series(_stamps(values).astype("datetime64[ns]"), index=index)
        zone = getattr(before, "tz", None)
        return times if zone is None else times.dt.tz_localize("UTC").dt.tz_convert(zone)
    if column.dtype.startswith("timedelta"):
        return pandas.Series(pandas.to_timedelta(values, unit="D"), index=index)
    series = pandas.Series(values, index=index)
    empty = series.isna().any()
    if column.dtype == "bool" and not empty:
        return series.astype(bool)
    if column.dtype.startswith(("int", "uint", "Int", "UInt")) and not empty and column.kind != "number":
        return series.astype(column.dtype)
    return series.astype("float32") if column.dtype == "float32" else series
