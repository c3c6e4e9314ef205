"""The first pass over a table: what each of its columns holds.

Sums, extremes and counts are of all rows. Distinct values and texts are judged by the first rows of the
table, which `Survey.sample` keeps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latently.core.sources import MISSING, numbers_of

SAMPLE_ROWS = 20_000
TAIL_ROWS = 3  # at the end of the table, where sums stand
_LAST_ROWS = TAIL_ROWS + 7  # with notes below these
# Numbers that stand for "no value" in many files, mostly nines; and fill values of instruments and formats.
_NINES = [sign * float("9" * n) for n in range(2, 11) for sign in (1, -1)]
_WITH_POINT = [sign * value for value in (99.9, 99.99, 999.9, 999.99, 9999.9, 9999.99) for sign in (1, -1)]
_FILLS = [-32768.0, -2147483648.0, 2147483647.0, -999.25, 1e20, -1e20, 1e30, -1e30, 1e35, -1e35, 1e36, 1e37]
SENTINELS = np.array([*_NINES, *_WITH_POINT, *_FILLS, 9.96921e36, float(np.float32(9.96921e36))])


def texts_of(column, missing):
    """Cells as text, None if missing; integers without a decimal point."""
    return [_text_of(cell, missing) for cell in column.tolist()]


def _text_of(cell, missing):
    if cell is None or str(cell) in ("nan", "NaT", "<NA>"):
        return None
    if isinstance(cell, float) and math.isfinite(cell) and cell.is_integer():
        cell = int(cell)
    text = str(cell).strip()
    return None if text.lower() in missing else text


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
    last_rows: list = field(default_factory=list)  # (numbers, texts by place) of the last rows
    left_out_rows: Any = ()  # numbers, from 0
    sentinels: dict[int, list[float]] = field(default_factory=dict)  # by place: values that stand for none

    def __post_init__(self):
        n = len(self.columns)
        self.n_seen, self.n_text, self.n_infinite = (np.zeros(n, dtype=int) for _ in range(3))
        self.mean, self.squares = np.zeros(n), np.zeros(n)
        self.least, self.most = np.full(n, np.inf), np.full(n, -np.inf)
        self.steps = np.full(n, np.nan)  # by which each value follows the previous one; 0 if that differs
        self.whole = np.ones(n, dtype=bool)  # whether all values are integers
        self.two = np.full((2, n), np.nan)  # the first two distinct values
        self.has_more = np.zeros(n, dtype=bool)  # whether there are more than these
        self.last = np.full(n, np.nan)
        self.n_sentinels = np.zeros((len(SENTINELS), n), dtype=int)
        self.least_ordinary, self.most_ordinary = self.least.copy(), self.most.copy()  # without sentinels
        self.examples: list[str | None] = [None] * n
        self.texts: list[dict[str, int]] = [{} for _ in range(n)]  # of columns of numbers and texts, counted
        self._sample: list = []

    def add(self, frame, start, limit):
        """Add the rows from number `start` on; numbers are kept while they take at most `limit` bytes."""
        if len(self.left_out_rows):
            frame = frame[~np.isin(np.arange(start, start + len(frame)), self.left_out_rows)]
        if len(frame) == 0:
            return
        values, is_text = numbers_of(frame, self.missing, self.decimal)
        values = without_sentinels(values, self.sentinels)
        if self.label is not None:
            texts = texts_of(frame[self.label], self.missing)
            codes = [-1 if text is None else self.labels.setdefault(text, len(self.labels)) for text in texts]
            self.codes.append(np.array(codes, dtype=np.int64))
        self._add_texts(frame, is_text)
        self._add_numbers(values)
        if self.n_rows < SAMPLE_ROWS:
            self._sample.append(values[: SAMPLE_ROWS - self.n_rows])
        self._keep_the_last(frame, values, is_text, start)
        self.n_rows += len(values)
        if self.kept is not None:
            self.kept.append(values)
            if values.shape[1] * self.n_rows * 8 > limit:
                self.kept = None

    def sample(self, place):
        """The numbers among the first values of a column."""
        values = np.concatenate([rows[:, place] for rows in self._sample])
        return values[np.isfinite(values)]

    def sample_rows(self, places):
        """(n, C) the first rows of these columns."""
        return np.concatenate([rows[:, places] for rows in self._sample])

    def _add_texts(self, frame, is_text):
        self.n_text += is_text.sum(axis=0)
        for place in map(int, np.flatnonzero(is_text.any(axis=0))):
            cells = frame.iloc[:, place].to_numpy(dtype=object)[is_text[:, place]]
            self.examples[place] = self.examples[place] or str(cells[0])
            for cell in cells[: max(0, 1000 - len(self.texts[place]))]:
                text = str(cell).strip()[:200]
                self.texts[place][text] = self.texts[place].get(text, 0) + 1

    def _add_numbers(self, values):
        self.n_infinite += np.isinf(values).sum(axis=0)
        finite = np.isfinite(values)
        n = finite.sum(axis=0)
        rows = np.where(finite, values, 0.0)
        self.whole &= (rows == np.trunc(rows)).all(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = rows.sum(axis=0) / np.maximum(n, 1)
            squares = np.where(finite, (values - mean) ** 2, 0.0).sum(axis=0)
            total = self.n_seen + n
            step = mean - self.mean
            self.squares += squares + step**2 * self.n_seen * n / np.maximum(total, 1)
            self.mean += np.where(n > 0, step * n / np.maximum(total, 1), 0.0)
            self.n_seen = total
            self._add_steps(values)
        low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
        self.least, self.most = (
            np.minimum(self.least, low.min(axis=0)),
            np.maximum(self.most, high.max(axis=0)),
        )
        ordinary = finite
        for found, sentinel in zip(self.n_sentinels, SENTINELS, strict=True):
            if not ((self.least <= sentinel) & (sentinel <= self.most)).any():
                continue
            here = values == sentinel
            found += here.sum(axis=0)
            ordinary = ordinary & ~here
        low, high = np.where(ordinary, values, np.inf), np.where(ordinary, values, -np.inf)
        self.least_ordinary = np.minimum(self.least_ordinary, low.min(axis=0))
        self.most_ordinary = np.maximum(self.most_ordinary, high.max(axis=0))
        self._add_two(values, finite)

    def _add_steps(self, values):
        above = np.vstack([self.last, values[:-1]]) if self.n_rows else values[:-1]
        steps = (values if self.n_rows else values[1:]) - above
        if len(steps):
            first = np.where(np.isnan(self.steps), steps[0], self.steps)
            same = np.isin(first, (1.0, -1.0)) & np.all(steps == first, axis=0)
            self.steps = np.where(same, first, 0.0)
        self.last = values[-1]

    def _add_two(self, values, finite):
        for which in (0, 1):
            unknown = np.isnan(self.two[which]) & ~self.has_more
            if unknown.any():
                new = finite & (values != self.two[0]) if which else finite
                some = unknown & new.any(axis=0)
                self.two[which, some] = values[new.argmax(axis=0)[some], np.flatnonzero(some)]
        self.has_more |= (finite & (values != self.two[0]) & (values != self.two[1])).any(axis=0)

    def _keep_the_last(self, frame, values, is_text, start):
        for i in range(max(0, len(values) - _LAST_ROWS), len(values)):
            texts = {int(place): str(frame.iat[i, int(place)]) for place in np.flatnonzero(is_text[i])}
            self.last_rows.append((start + i, values[i], texts))
        self.last_rows = self.last_rows[-_LAST_ROWS:]


def survey(table, *, missing=(), label=None, limit=np.inf, left_out_rows=(), sentinels=None):
    """Read the table once and collect its statistics, without some rows and values."""
    missing = (*MISSING, *(text.strip().lower() for text in missing))
    decimal = table.dialect.decimal if table.dialect else "."
    found = Survey(
        table.columns, missing, decimal, label, left_out_rows=left_out_rows, sentinels=sentinels or {}
    )
    if table.n_rows is not None and table.n_rows * len(table.columns) * 8 > limit:
        found.kept = None
    for frame, start in numbered(table.frames(missing, [] if label is None else [label])):
        found.add(frame, start, limit)
    if found.n_rows == 0:
        raise ValueError(f"{table.name} has no rows")
    return found


def numbered(frames):
    """Frames and the number of their first row, from 0."""
    start = 0
    for frame in frames:
        yield frame, start
        start += len(frame)


def without_sentinels(values, sentinels):
    """The numbers with NaN for values that stand for none; `sentinels` by column."""
    for place, some in sentinels.items():
        values[np.isin(values[:, place], some), place] = np.nan
    return values
