"""Kinds of columns: which hold categories, ordered answers, counts or dates, and the numbers for them.

A model of mixed columns takes one array: numbers, dates in days since 1970, counts, and levels as 0, 1, 2 ...
Levels are known by their text, so that a later table may come from another kind of file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from latently.core.sources import package
from latently.core.words import listed, shown
from latently.mixture.column_kinds import KINDS as OF_MODELS
from latently.tables import suspicion
from latently.tables.survey import numbered, texts_of

KINDS = (*OF_MODELS, "time")  # a date with the time of the day
DATES = ("date", "time")
WITH_LEVELS = ("category", "ordinal")
MOST_LEVELS = 100  # of a category that nobody asked for
_FEW_LEVELS = 10  # which even a small table may have
_MOST_COUNTED = 20  # whole numbers from 0 to this one are counts
_TRUTH = ("false", "true")


@dataclass(frozen=True)
class Kind:
    """What a column holds: one of `KINDS`, and its levels as text."""

    name: str
    levels: tuple[str, ...] = ()


def wanted_kind(name: str, kind: Any) -> Any:
    """The kind that a user gives for a column, or its levels from low to high, as a tuple."""
    if isinstance(kind, list | tuple):
        levels = tuple(str(level) for level in kind)
        if len(levels) < 2 or len(set(levels)) != len(levels):
            raise ValueError(f"the kind of {shown(name)} must list at least two levels, from low to high")
        return levels
    if kind not in KINDS:
        raise ValueError(
            f"the kind of {shown(name)} must be {listed(KINDS, len(KINDS))}, or its levels from low to high, "
            f"not {shown(str(kind))}"
        )
    return kind


# -- guesses -------------------------------------------------------------------------------------------


def guessed(found: Any, place: int) -> tuple[str | None, str | None]:
    """The kind of a surveyed column, None for plain numbers; and why it can be of none, if it holds text."""
    if found.n_text[place] > found.n_seen[place]:
        return _of_texts(found, place)
    if suspicion.two_values(found, place):
        return "category", None
    whole = found.whole[place] and found.n_seen[place] and not found.n_text[place]
    if whole and found.least[place] >= 0 and found.most[place] <= _MOST_COUNTED and found.has_more[place]:
        return "count", None
    return None, None


def _of_texts(found: Any, place: int) -> tuple[str | None, str | None]:
    texts = found.texts[place]
    if all(map(_day_of, texts)):
        return "date", None
    m, n = len(texts), sum(texts.values())
    if m == 1 and not found.n_seen[place]:
        return None, f"is always {shown(next(iter(texts)), 30)}"
    identifies = m > n // 2 and suspicion.identifies(found.columns[place])
    if m == n or m > max(_FEW_LEVELS, n // 2) or identifies:
        return None, (
            f"holds text such as {shown(found.examples[place], 30)}, of which {m} of {n} cells differ, so it "
            "tells nothing of groups of rows"
        )
    return "category", None


def _day_of(text: str) -> float | None:
    """Days since 1970 of a date in the form of ISO 8601, such as 2024-01-31; None for other texts."""
    if not (len(text) >= 8 and text[:4].isdigit() and "-" in text):
        return None
    try:
        stamp = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (stamp.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds() / 86400


# -- numbers -------------------------------------------------------------------------------------------


def _distinct(column: Any, missing: Sequence[str]) -> tuple[np.ndarray, list[str | None]]:
    """Of each cell the place of its text, and the texts; None where a cell is missing."""
    pandas = package("pandas", "csv", "tables")
    codes, cells = pandas.factorize(column.astype(object), use_na_sentinel=False)
    return codes, texts_of(pandas.Series(cells, dtype=object), missing)


def coded(column: Any, kind: Kind, missing: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(n,) the numbers of a column that is not one of plain numbers, NaN where missing; and which cells
    hold something else, which is NaN as well.
    """
    codes, texts = _distinct(column, missing)
    if kind.name in DATES:
        days = [np.nan if text is None else _day_of(text) for text in texts]
        numbers = np.array([np.nan if day is None else day for day in days] + [np.nan])
    else:
        places = {level: place for place, level in enumerate(kind.levels)}
        places |= {_same(level): place for level, place in places.items() if _same(level) not in places}
        own = [places.get(text, places.get(_same(text))) if text is not None else None for text in texts]
        numbers = np.array([np.nan if place is None else place for place in own] + [np.nan], dtype=float)
    strange = np.array([text is not None for text in texts] + [False]) & np.isnan(numbers)
    return numbers[codes], strange[codes]


def _same(text: Any) -> Any:
    """One spelling of numbers and truth values, which files write in several ways."""
    if str(text).lower() in _TRUTH:
        return str(text).lower()
    number = _number(text)
    return text if number is None else number


def _number(text: Any) -> float | None:
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def in_order(levels: Sequence[str]) -> tuple[str, ...]:
    """Levels that are numbers by size, others by the alphabet."""
    numbers = [_number(level) for level in levels]
    if all(number is not None for number in numbers):
        return tuple(sorted(levels, key=float))
    return tuple(sorted(levels))


def cells_of(numbers: np.ndarray, kind: Kind, like: Any = None) -> np.ndarray:
    """The cells for numbers of a column: texts of levels, or what they stand for; dates as dates.

    Levels come as the column `like` has them: texts, numbers or truth values. Without one, levels that are
    all numbers come as numbers, and truth values as such.
    """
    if kind.name == "count":
        return np.round(numbers)
    if kind.name in DATES:
        days = np.round(numbers) if kind.name == "date" else numbers
        return np.round(days * 86400).astype("datetime64[s]").astype("datetime64[ns]")
    own = [] if like is None else [cell for cell in like.dropna().unique().tolist()]
    texts = any(isinstance(cell, str) for cell in own)
    levels = np.array([_value(level, kind.levels) for level in kind.levels], dtype=object)
    if texts:
        levels = np.array(kind.levels, dtype=object)
    made = levels[numbers.astype(int)]
    for plain in () if texts else (bool, float):
        if all(isinstance(level, plain) for level in levels):
            return made.astype(plain)
    return made


def _value(level: str, levels: Sequence[str]) -> Any:
    if {one.lower() for one in levels} <= set(_TRUTH):
        return level.lower() == "true"
    return float(level) if all(_number(one) is not None for one in levels) else level


def written(numbers: np.ndarray, kind: Kind, decimal: str) -> list[str]:
    """The cells of numbers as a file of text has them."""
    if kind.name in WITH_LEVELS:
        return [kind.levels[int(number)] for number in numbers]
    if kind.name in DATES:
        unit = "datetime64[D]" if kind.name == "date" else "datetime64[s]"
        return np.datetime_as_string(cells_of(numbers, kind).astype(unit)).tolist()
    if kind.name == "count":
        return [str(round(number)) for number in numbers.tolist()]
    return [repr(float(number)).replace(".", decimal) for number in numbers]


# -- levels --------------------------------------------------------------------------------------------


def with_levels(table: Any, found: Any, wanted: Mapping[int, Any]) -> tuple[dict[int, Kind], dict[int, str]]:
    """Read the table again for the levels of columns, by place; and reasons against columns.

    Afterwards the survey counts cells of these columns as seen, and its numbers are those of the model.
    """
    by_place = {place: kind for place, kind in wanted.items() if kind not in ("number", "count")}
    counts: dict[int, dict[str, int]] = {place: {} for place in by_place}
    pieces: dict[int, list[np.ndarray]] = {place: [] for place in by_place}
    orders: dict[int, tuple[str, ...]] = {}
    names = [found.columns[place] for place in by_place]
    for frame, start in numbered(table.frames(found.missing, names)) if by_place else ():
        if len(found.left_out_rows):
            frame = frame[~np.isin(np.arange(start, start + len(frame)), found.left_out_rows)]
        for place, kind in by_place.items():
            column = frame.iloc[:, place]
            if kind in DATES:
                pieces[place].append(coded(column, Kind("date"), found.missing)[0])
                continue
            orders.setdefault(place, _order_of(column))
            codes, texts = _distinct(column, found.missing)
            sizes = np.bincount(codes, minlength=len(texts)).tolist()
            known = counts[place]
            for text, size in zip(texts, sizes, strict=True):
                if text is not None:
                    known[text] = known.get(text, 0) + size
            if found.kept is not None:
                every = {text: number for number, text in enumerate(known)}
                own = np.array([np.nan if text is None else every[text] for text in texts] + [np.nan])
                pieces[place].append(own[codes])
    kinds, against = {}, {}
    for place, kind in wanted.items():
        name = found.columns[place]
        if kind == "count":
            _check_counts(found, place)
        if place not in by_place:
            kinds[place] = Kind(kind)
        elif kind in DATES:
            kinds[place] = _dates(found, place, np.concatenate(pieces[place]))
        else:
            kinds[place] = _levels_of(name, kind, counts[place], orders[place])
            found.n_seen[place] = sum(counts[place].values())
            if kind == "category" and len(kinds[place].levels) > MOST_LEVELS:
                against[place] = f"it has {len(kinds[place].levels)} different texts"
    if found.kept is not None and by_place:
        rows = np.concatenate(found.kept)
        for place, kind in by_place.items():
            numbers = np.concatenate(pieces[place])
            if kind not in DATES:
                order = {level: number for number, level in enumerate(kinds[place].levels)}
                into = np.array([order[text] for text in counts[place]] + [np.nan], dtype=float)
                numbers = into[np.where(np.isnan(numbers), len(into) - 1, numbers).astype(int)]
            rows[:, place] = numbers
        found.kept = [rows]
    for place in by_place:
        found.n_text[place] = found.n_infinite[place] = 0
    return kinds, against


def _order_of(column: Any) -> tuple[str, ...]:
    """The levels of an ordered column of pandas."""
    dtype = column.dtype
    return tuple(map(str, dtype.categories)) if getattr(dtype, "ordered", False) else ()


def _levels_of(name: str, kind: Any, counts: Mapping[str, int], order: tuple[str, ...]) -> Kind:
    if not counts:
        raise ValueError(f"the column {shown(name)} has no values at all")
    if isinstance(kind, tuple):
        unknown = [text for text in counts if text not in kind]
        if unknown:
            raise ValueError(
                f"the column {shown(name)} holds {shown(unknown[0], 30)}, which is not among its levels "
                f"{listed(kind)}"
            )
        order = kind
    elif kind == "ordinal" and not order and any(_number(text) is None for text in counts):
        raise ValueError(
            f"the column {shown(name)} has texts for levels, whose order is not known; give them from low to "
            f"high: --kind {name}=low,mid,high (in Python kinds={{{name!r}: ['low', 'mid', 'high']}})"
        )
    if (order and kind == "category" and len(order) > 2) or isinstance(kind, tuple):
        kind = "ordinal"
    levels = tuple(level for level in order if level in counts) or in_order(list(counts))
    return Kind("category" if len(levels) < 2 else kind, levels)


def _dates(found: Any, place: int, days: np.ndarray) -> Kind:
    seen = days[~np.isnan(days)]
    if not len(seen):
        raise ValueError(
            f"the column {shown(found.columns[place])} holds no dates such as 2024-01-31, but "
            f"{shown(str(found.examples[place]), 30)}"
        )
    found.n_seen[place], found.mean[place] = len(seen), seen.mean()
    found.squares[place] = float(np.sum((seen - seen.mean()) ** 2))
    found.least[place], found.most[place] = seen.min(), seen.max()
    return Kind("date" if np.all(seen == np.round(seen)) else "time")


def _check_counts(found: Any, place: int) -> None:
    if not found.whole[place] or found.least[place] < 0:
        raise ValueError(
            f"the column {shown(found.columns[place])} must hold whole numbers of at least 0 to be a count, "
            f"not numbers such as {found.least[place]:g}"
        )
