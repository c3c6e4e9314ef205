"""From a table to numbers, and the record of this preprocessing, so that later rows are treated alike.

The first pass determines the contents of each column; text, constants and the like are excluded and reported.
Small tables are kept in memory; large ones are read again and written to a temporary file, from which the
library fits out of core.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from latently.cli.speaking import counted, listed, shown
from latently.cli.tables import frames_of
from latently.core.sources import MISSING, RowWriter, numbers_of
from latently.selection.criteria import CRITERIA

IN_MEMORY_BYTES = 256_000_000  # size beyond which the numbers of a table stay on disk
FORMAT_VERSION = 1
_LARGEST_VALUE = 1e150  # of a cell; squares of larger values overflow
_LARGEST_NUMBER = 1e299  # in a record
_LARGEST_RECORD = 200_000_000  # bytes
_ENOUGH_TO_COUNT = 10  # rows; fewer may be consecutive numbers by coincidence
_PROBABILITIES = np.unique(
    np.r_[0, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, np.arange(1, 100) / 100, 0.995, 0.999, 1]
)


# -- cells -----------------------------------------------------------------------------------------------


def texts_of(column, missing):
    """Cells as text, None if missing; integers without a decimal point."""
    return [_text_of(cell, missing) for cell in column.tolist()]


def _text_of(cell, missing):
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    text = str(cell).strip()
    return None if text.lower() in missing else text


# -- contents of columns ---------------------------------------------------------------------------------


@dataclass
class Survey:
    """Statistics of the columns of a table, by position, collected in one pass."""

    columns: list[str]
    missing: tuple[str, ...]
    decimal: str
    label: str | None
    n_rows: int = 0
    labels: dict[str, int] = field(default_factory=dict)  # the classes, in order of appearance
    codes: list = field(default_factory=list)  # class indices of the rows of each frame, -1 if unlabelled
    kept: list | None = field(default_factory=list)  # the numbers of each frame; None when they are too many

    def __post_init__(self):
        n = len(self.columns)
        self.n_seen, self.n_text, self.n_infinite = (np.zeros(n, dtype=int) for _ in range(3))
        self.mean, self.squares = np.zeros(n), np.zeros(n)
        self.least, self.most = np.full(n, np.inf), np.full(n, -np.inf)
        self.counts_rows = np.ones(n, dtype=bool)  # whether each value is one more than the previous one
        self.last = np.full(n, np.nan)
        self.examples: list[str | None] = [None] * n

    def add(self, frame, limit):
        """Add the next rows; their numbers are kept as long as they take at most `limit` bytes."""
        values, is_text = numbers_of(frame, self.missing, self.decimal)
        if self.label is not None:
            texts = texts_of(frame[self.label], self.missing)
            codes = [-1 if text is None else self.labels.setdefault(text, len(self.labels)) for text in texts]
            self.codes.append(np.array(codes, dtype=np.int64))
        for place in np.flatnonzero(is_text.any(axis=0) & (self.n_text == 0)):
            self.examples[int(place)] = str(frame.iloc[int(np.argmax(is_text[:, place])), place])
        self.n_text += is_text.sum(axis=0)
        self._add_numbers(values)
        self.n_rows += len(values)
        if self.kept is not None:
            self.kept.append(values)
            if values.shape[1] * self.n_rows * 8 > limit:
                self.kept = None

    def _add_numbers(self, values):
        self.n_infinite += np.isinf(values).sum(axis=0)
        finite = np.isfinite(values)
        n = finite.sum(axis=0)
        rows = np.where(finite, values, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = rows.sum(axis=0) / np.maximum(n, 1)
            squares = np.where(finite, (values - mean) ** 2, 0.0).sum(axis=0)
            total = self.n_seen + n
            step = mean - self.mean
            self.squares += squares + step**2 * self.n_seen * n / np.maximum(total, 1)
            self.mean += np.where(n > 0, step * n / np.maximum(total, 1), 0.0)
            self.n_seen = total
            self.least = np.fmin(self.least, np.where(finite, values, np.inf).min(axis=0))
            self.most = np.fmax(self.most, np.where(finite, values, -np.inf).max(axis=0))
            above = np.vstack([self.last if self.n_rows else values[0] - 1, values[:-1]])
            self.counts_rows &= np.all(values == above + 1, axis=0)
        self.last = values[-1]


def survey(table, voice, *, missing=(), label=None, limit=IN_MEMORY_BYTES):
    """Read the table once and collect its statistics."""
    missing = (*MISSING, *(text.strip().lower() for text in missing))
    if label is not None and label not in table.columns:
        raise ValueError(_no_column(label, table.columns))
    decimal = table.dialect.decimal if table.dialect else "."
    found = Survey(table.columns, missing, decimal, label)
    if table.n_rows is not None and table.n_rows * len(table.columns) * 8 > limit:
        found.kept = None
    for frame in frames_of(table, voice, missing, [] if label is None else [label]):
        found.add(frame, limit)
    if found.n_rows == 0:
        raise ValueError(f"the file {shown(table.path)} has no rows")
    return found


def _no_column(name, columns):
    close = difflib.get_close_matches(name, columns, n=1)
    meant = f"; did you mean {shown(close[0])}?" if close else ""
    return f"the data have no column {shown(name)}{meant}; they have {listed(columns)}"


# -- selection of columns --------------------------------------------------------------------------------


def chosen_columns(found, table, *, columns=(), without=(), voice):
    """Positions of the columns to use, and name and reason of the excluded ones."""
    names = found.columns
    wanted = _places(columns, names)
    unwanted = set(_places(without, names))
    demanded = bool(wanted)
    left_out = []
    kept = []
    for place in wanted or range(len(names)):
        name = names[place]
        if name in table.beside and not demanded:
            continue
        if name == found.label:
            if demanded:
                raise ValueError(f"the column {shown(name)} holds the labels, so it cannot be a feature too")
            continue
        if place in unwanted:
            left_out.append((name, "not wanted"))
            continue
        reason = _why_not(found, place)
        if reason is None:
            kept.append(place)
        elif demanded:
            raise ValueError(f"the column {shown(name)} cannot be used: it {reason}{_cure(found, place)}")
        else:
            left_out.append((name, f"it {reason}"))
    if not demanded:
        kept, left_out = _without_flat(found, kept, left_out, table)
    if not kept:
        reasons = "; ".join(f"{shown(name)}: {reason}" for name, reason in left_out[:3])
        raise ValueError(f"no column of {shown(table.path)} can be used ({reasons})")
    _tell(found, table, kept, left_out, voice)
    return kept, left_out


def _places(patterns, names):
    """Positions of the columns given by names or patterns, separated by commas."""
    by_name = {name: place for place, name in enumerate(names)}
    places: dict[int, None] = {}
    for pattern in patterns:
        for part in [pattern] if pattern in by_name else pattern.split(","):
            part = part if part in by_name else part.strip()
            if part in by_name:
                places[by_name[part]] = None
                continue
            matching = (
                [by_name[name] for name in names if fnmatch.fnmatchcase(name, part)] if "*" in part else []
            )
            if not matching:
                raise ValueError(_no_column(part, names))
            places |= dict.fromkeys(matching)
    return list(places)


def _why_not(found, place):
    """Why the column cannot be used; None if it can."""
    n_text, n_seen = found.n_text[place], found.n_seen[place]
    if n_text:
        share = f" in {counted(n_text, 'cell')} and numbers in {n_seen}" if n_seen else ""
        return f"holds text such as {shown(found.examples[place], 30)}{share}"
    if found.n_infinite[place]:
        return f"holds infinite values in {counted(found.n_infinite[place], 'cell')}"
    if n_seen == 0:
        return "has no values at all"
    largest = max(abs(found.least[place]), abs(found.most[place]))
    return f"holds values as large as {largest:.3g}; rescale it" if largest > _LARGEST_VALUE else None


def _cure(found, place):
    """Advice for text in a requested column."""
    if not found.n_text[place] or not found.n_seen[place]:
        return ""
    return f"; if that text marks a missing cell, give --missing {shown(found.examples[place], 30)}"


def _without_flat(found, kept, left_out, table):
    """Exclude uninformative columns: constants and row numbers. Images keep all pixels."""
    if table.image_shape:
        return kept, left_out
    useful = []
    for place in kept:
        name = found.columns[place]
        if found.least[place] == found.most[place]:
            left_out.append((name, f"it is always {found.least[place]:g}"))
        elif table.named and found.n_rows >= _ENOUGH_TO_COUNT and len(kept) > 1 and found.counts_rows[place]:
            left_out.append((name, f"it numbers the rows, {found.least[place]:g} to {found.most[place]:g}"))
        else:
            useful.append(place)
    return useful, left_out


def _tell(found, table, kept, left_out, voice):
    reasons = [(name, reason) for name, reason in left_out if reason != "not wanted"]
    for name, reason in reasons[:5]:
        place = found.columns.index(name)
        voice.note(f"column {shown(name)} is left out: {reason}{_cure(found, place)}")
    if len(reasons) > 5:
        voice.note(f"{len(reasons) - 5} more columns are left out; description.json lists them")
    n_missing = found.n_rows * len(kept) - int(found.n_seen[kept].sum())
    if n_missing:
        cells = found.n_rows * len(kept)
        voice.note(f"{n_missing} of {cells} cells are missing; the model is fitted to the observed cells")


# -- the record ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Preparation:
    """The preprocessing of rows, and further information for later commands."""

    columns: list[str]
    mean: list[float]  # subtracted from each column
    scale: list[float]  # by which it is then divided
    standardised: bool
    model: str
    n_rows: int
    n_missing: int
    file: str
    left_out: list[list[str]]  # pairs of name and reason
    label: str | None
    labels: list[str]
    missing: list[str]
    image_shape: list[int] | None
    seed: int
    densities: list[float]  # quantiles of log densities of the training rows, in the user's units, if any
    selection: dict | None  # criterion and parameters of the table in selection.csv

    def to_frame(self, values):
        """Rows in the model's units."""
        return (values - np.array(self.mean)) / np.array(self.scale)

    def from_frame(self, rows):
        """Rows in the user's units."""
        return rows * np.array(self.scale) + np.array(self.mean)

    def log_volume(self, values):
        """(n,) log density in the model's units minus that in the user's units, for observed entries."""
        return ~np.isnan(values) @ np.log(np.array(self.scale))

    def threshold(self, acceptance_rate):
        """The log density that this fraction of the training rows reaches."""
        return float(np.interp(1 - acceptance_rate, _PROBABILITIES, self.densities))

    def to_json(self):
        content = {"format": "latently fit", "format_version": FORMAT_VERSION, **asdict(self)}
        return json.dumps(content, indent=1, allow_nan=False) + "\n"


def quantiles(scores):
    """Quantiles of log densities, for a record."""
    within = np.clip(scores, -_LARGEST_NUMBER, _LARGEST_NUMBER)  # a density may underflow to zero
    return [float(value) for value in np.quantile(within, _PROBABILITIES)]


def read_preparation(path):
    """The record in a file; untrusted, so everything is validated."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(
            f"{shown(path.parent)} is not a folder written by latently fit or select: it has no {path.name}"
        )
    if path.stat().st_size > _LARGEST_RECORD:
        raise ValueError(f"the file {shown(path)} is too large to be a description")
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
        if not isinstance(content, dict) or content.pop("format", None) != "latently fit":
            raise ValueError("it was not written by latently")
        version = content.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise ValueError(f"it has format version {version!r}, but this latently reads {FORMAT_VERSION}")
        if set(content) != set(_CHECKS):
            raise ValueError(
                f"it has missing or unknown entries: {listed(sorted(set(content) ^ set(_CHECKS)))}"
            )
        for name, check in _CHECKS.items():
            if not check(content[name]):
                raise ValueError(f"its entry {name} is not valid")
        record = Preparation(**content)
        _check_together(record)
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"the description {shown(path)} cannot be used: {error}") from error
    return record


def _no_number(text):
    raise ValueError(f"it holds {text}, which is not a number")


def _text(value):
    return isinstance(value, str)


def _count(value):
    return type(value) is int and 0 <= value < 1 << 62


def _number(value):
    return type(value) in (int, float) and abs(value) <= _LARGEST_NUMBER


def _all(check):
    return lambda values: isinstance(values, list) and all(map(check, values))


def _or_none(check):
    return lambda value: value is None or check(value)


def _different_texts(values):
    return _all(_text)(values) and len(set(values)) == len(values)


def _pair(value):
    return _all(_text)(value) and len(value) == 2


def _selection(value):
    return (
        isinstance(value, dict)
        and set(value) == {"criterion", "parameters"}
        and value["criterion"] in CRITERIA
        and _different_texts(value["parameters"])
    )


_CHECKS = {
    "columns": lambda value: _different_texts(value) and len(value) > 0,
    "mean": _all(_number),
    "scale": _all(lambda value: _number(value) and value > 0),
    "standardised": lambda value: type(value) is bool,
    "model": _text,
    "n_rows": _count,
    "n_missing": _count,
    "file": _text,
    "left_out": _all(_pair),
    "label": _or_none(_text),
    "labels": _different_texts,
    "missing": _all(_text),
    "image_shape": _or_none(lambda value: _all(_count)(value) and 2 <= len(value) <= 3),
    "seed": _count,
    "densities": _all(_number),
    "selection": _or_none(_selection),
}


def _check_together(record):
    n = len(record.columns)
    if len(record.mean) != n or len(record.scale) != n:
        raise ValueError("mean and scale do not have an entry for every column")
    if record.image_shape is not None and math.prod(record.image_shape) != n:
        raise ValueError("image_shape does not match the number of columns")
    if len(record.densities) not in (0, len(_PROBABILITIES)) or np.any(np.diff(record.densities) < 0):
        raise ValueError("densities are not ascending quantiles")


# -- rows in the model's units ---------------------------------------------------------------------------


@dataclass
class Rows:
    """Rows for a fit: an array, or the path of a .npy file, in the model's units."""

    X: object
    n_rows: int
    codes: np.ndarray | None  # class indices, -1 if unlabelled


def collect(found, table, places, to_frame, voice, *, scratch, in_memory):
    """The surveyed rows, read a second time if they were too many to keep."""
    codes = np.concatenate(found.codes) if found.codes else None
    if found.kept is not None:
        X = np.concatenate([values[:, places] for values in found.kept])
        found.kept = None
        return Rows(to_frame(X), found.n_rows, codes)
    frames = (
        to_frame(numbers_of(frame.iloc[:, places], found.missing, found.decimal)[0])
        for frame in frames_of(table, voice, found.missing, [])
    )
    if in_memory:
        return Rows(np.concatenate(list(frames)), found.n_rows, codes)
    path = scratch / "rows.npy"
    with RowWriter(path) as file:
        for values in frames:
            file.write(values)
    if file.n_rows != found.n_rows:
        raise ValueError(f"the file {shown(table.path)} changed while it was read")
    return Rows(str(path), found.n_rows, codes)


def matching_columns(table, record):
    """The table's names of the model's columns; files without a header are matched by position."""
    missing = [name for name in record.columns if name not in table.columns]
    if not missing:
        return record.columns
    if table.named:
        more = f", and {len(missing) - 1} more of the model's columns are missing" if len(missing) > 1 else ""
        raise ValueError(_no_column(missing[0], table.columns) + more)
    numbered = [name for name in table.columns if name.startswith(("column_", "pixel_"))]
    if len(numbered) != len(record.columns):
        raise ValueError(
            f"the data have {counted(len(numbered), 'column')}, "
            f"but the model was fitted to {len(record.columns)}"
        )
    return numbered


def later_rows(frame, names, missing, decimal):
    """(n, D) numbers in the user's units of the columns of these names."""
    known = frame[names]
    values, is_text = numbers_of(known, missing, decimal)
    if is_text.any():
        row, place = np.argwhere(is_text)[0]
        example = shown(known.iloc[int(row), int(place)], 30)
        raise ValueError(
            f"the column {shown(names[place])} holds text such as {example}, but the model was fitted to "
            f"numbers; if it marks a missing cell, give --missing {example}"
        )
    if np.isinf(values).any():
        place = np.argwhere(np.isinf(values))[0][1]
        raise ValueError(f"the column {shown(names[place])} holds infinite values")
    return values
