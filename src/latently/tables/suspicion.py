"""Columns, values and rows that are not what a density should learn from, although they are numbers.

Each rule gives a reason in words, or nothing. None of them is certain: all can be overruled by `as_is`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np

from latently.tables.survey import SENTINELS, TAIL_ROWS

ENOUGH_TO_COUNT = 10  # rows; fewer may be consecutive numbers by coincidence
ROUNDING = 1e-10  # relative range below which a column is constant but for rounding
_ALIKE = 1e-6  # relative difference of a sum from the row that shows it

_IDENTITY = {"id", "ids", "uid", "uuid", "guid", "pid", "oid"}
_IDENTITY |= {  # in one word
    f"{what}id"
    for what in (
        *("case", "client", "customer", "household", "item", "order", "participant", "patient", "person"),
        *("product", "record", "resp", "respondent", "row", "sample", "student", "subj", "subject", "user"),
    )
}
_NUMBERING = {"idx", "index", "key", "recno", "record", "serial", "unnamed"}
_NUMBERING |= {"rownum", "rowid", "rowname", "rownames", "obsnum"}
_POSTAL = {"zip", "zipcode", "postcode", "postal", "plz", "postleitzahl", "fips", "pincode", "zcta"}
_NAMING = {
    "phone",
    "telephone",
    "mobile",
    "fax",
    "iban",
    "isbn",
    "issn",
    "ean",
    "gtin",
    "upc",
    "barcode",
    "ssn",
}
_TIME = {"time", "timestamp", "ts", "date", "datetime", "epoch", "unixtime", "unix", "created", "updated"}
_TIME |= {"modified", "at", "utc", "when", "zeit", "datum", "dt", "day"}
_BINARY = ({0.0, 1.0}, {-1.0, 1.0}, {1.0, 2.0})
_TOTAL = re.compile(
    r"(grand |sub|over ?all )?(total|sum)s?|(grand |sub)?total.{0,20}|gesamt(summe)?|summe", re.I
)
_AVERAGE = re.compile(r"(over ?all |grand )?(average|mean|avg\.?)|mittelwert|durchschnitt", re.I)


def words_of(name):
    """The words in a name such as "customer_id", "customerID" or "Customer Id", in small letters."""
    parts = re.split(r"[^A-Za-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(name)))
    return {part.lower() for part in parts if part}


# -- columns ---------------------------------------------------------------------------------------------


def identifies(name):
    """Whether a column of this name tells rows apart, such as "customer_id"."""
    return bool(words_of(name) & _IDENTITY)


def nearly_constant(found, place):
    """Whether a column varies by rounding errors only."""
    least, most = found.least[place], found.most[place]
    if least == most:
        return f"it is always {least:g}"
    if most - least <= ROUNDING * max(abs(least), abs(most)):
        return f"it is {most:.10g} but for rounding, with differences of {most - least:.1g}"
    return None


def numbering(found, place):
    """Row numbers in any order, and other numbers that tell rows apart."""
    least, most, n = found.least[place], found.most[place], int(found.n_seen[place])
    if not found.whole[place] or n < ENOUGH_TO_COUNT:
        return None
    if abs(found.steps[place]) == 1:
        first, last = (least, most) if found.steps[place] > 0 else (most, least)
        return f"it numbers the rows, {first:g} to {last:g}"
    values, words = found.sample(place), words_of(found.columns[place])
    distinct = len(np.unique(values)) == len(values)
    if distinct and most - least == n - 1 and _is_permutation(found, place):
        return f"it numbers the rows in another order, with each number from {least:g} to {most:g} once"
    if identifies(found.columns[place]) or (distinct and words & _NUMBERING):
        return f"it holds numbers that identify, such as {values[0]:.0f}"
    return None


def _is_permutation(found, place):
    """Whether mean and variance are those of each integer between the extremes once."""
    n = float(found.n_seen[place])
    middle = (found.least[place] + found.most[place]) / 2
    variance = found.squares[place] / n
    return abs(found.mean[place] - middle) < 1e-9 * n and abs(variance - (n * n - 1) / 12) < 1e-9 * n * n


def code(found, place, padded=()):
    """Numbers that are names, such as postal codes: their differences mean nothing."""
    name, words = found.columns[place], words_of(found.columns[place])
    if not found.whole[place] or found.n_seen[place] == 0:
        return None
    example = f"such as {found.sample(place)[:1].sum():.0f}"
    if name in padded:
        return f"it holds codes with leading zeros, {example}"
    if words & _POSTAL:
        return f"it holds postal codes, {example}"
    if words & _NAMING and found.most[place] > 1e4:
        return f"it holds numbers that are names, {example}"
    return None


def point_in_time(found, place):
    """Dates as numbers: seconds since 1970 and their fractions, or written as yyyymmdd."""
    least, most = found.least[place], found.most[place]
    named = bool(words_of(found.columns[place]) & _TIME)
    if not np.isfinite(least) or (found.n_seen[place] < ENOUGH_TO_COUNT and not named):
        return None
    if found.whole[place] and least >= 19000101 and most <= 21001231 and _are_dates(found.sample(place)):
        return f"it holds dates written as yyyymmdd, {least:.0f} to {most:.0f}"
    if found.whole[place] and named and least >= 190001 and most <= 210012:
        months = found.sample(place) % 100
        if months.min() >= 1 and months.max() <= 12:
            return f"it holds months written as yyyymm, {least:.0f} to {most:.0f}"
    for unit, per_second in (
        ("seconds", 1),
        ("milliseconds", 10**3),
        ("microseconds", 10**6),
        ("nanoseconds", 10**9),
    ):
        first, last = least / per_second, most / per_second
        # named columns from 1980 on; others only if they are integers of this century
        early = 3.2e8 if named else 9.46e8
        if early <= first and last <= 2.5e9 and (named or (found.whole[place] and last <= 2.1e9)):
            if per_second == 1 and not named and last > 1.6 * first:
                continue
            shown = [datetime.fromtimestamp(float(t), UTC).strftime("%Y-%m-%d") for t in (first, last)]
            return f"it holds points in time ({unit} since 1970), {shown[0]} to {shown[1]}"
    return None


def _are_dates(values):
    months, days = values // 100 % 100, values % 100
    return months.min() >= 1 and months.max() <= 12 and days.min() >= 1 and days.max() <= 31


def two_values(found, place):
    """Whether the column is a yes or no."""
    if found.has_more[place] or np.isnan(found.two[:, place]).any():
        return None
    two = set(found.two[:, place].tolist())
    if two not in _BINARY:
        return None
    return f"it has two values, {min(two):g} and {max(two):g}, which a Gaussian density does not describe"


def one_hot(found, places):
    """Places of those of these yes-or-no columns of which exactly one is 1 in every row."""
    groups: list[list[int]] = []
    places = [place for place in places if set(found.two[:, place].tolist()) == {0.0, 1.0}]
    rows = found.sample_rows(places) if places else np.empty((0, 0))
    start = 0
    while start < len(places):
        total = np.zeros(len(rows))
        for end in range(start, len(places)):
            total = total + rows[:, end]
            if not (total <= 1).all():
                break
            if end > start + 1 and (total == 1).all():
                groups.append(places[start : end + 1])
                start = end
                break
        start += 1
    return groups


# -- values ----------------------------------------------------------------------------------------------


def sentinels(found, place, elsewhere=()):
    """Values such as -9999 that stand for "not measured": far beyond all others, at an end of the column.

    Beyond all others is enough for values that stand for it `elsewhere` in the table.
    """
    counts = found.n_sentinels[:, place]
    least, most = found.least_ordinary[place], found.most_ordinary[place]
    if not counts.any() or not np.isfinite(least):
        return {}
    spread = max(most - least, 1e-3 * abs(most), 1e-3 * abs(least))
    told = {}
    for value, count in zip(SENTINELS.tolist(), counts.tolist(), strict=True):
        if count == 0 or least <= value <= most:
            continue
        gap = (least - value if value < least else value - most) / spread
        needed = 3.0 if abs(value) < 100 else 1.0
        needed = 0.1 if value in elsewhere and abs(value) > 100 else needed if count > 1 else 10.0
        if gap >= needed:
            told[value] = count
    return told


# -- rows ------------------------------------------------------------------------------------------------


def notes_below(found, places):
    """The last rows if they have text and no numbers, such as sources: number from 0, and what they are."""
    notes = {}
    for number, values, texts in reversed(found.last_rows):
        if np.isfinite(values[places]).any() or not (set(texts) == {0} or texts.keys() & set(places)):
            break
        notes[number] = "a line without numbers below the table"
    return notes


def summary_rows(found, places, notes=()):
    """The last rows that are sums or means of those before them: number from 0, and what they are.

    `notes` are numbers of rows below these.
    """
    rows = [row for row in found.last_rows if row[0] not in notes][-TAIL_ROWS:]
    for first in range(len(rows)):  # a mean may stand below a total
        below = rows[first:]
        kinds = [_summary(found, row, below, places) for row in below]
        if all(kinds):
            return {row[0]: f"the {kind} of the rows above" for row, kind in zip(below, kinds, strict=True)}
    return {}


def _summary(found, row, below, places):
    """What a row is of all rows above `below`: "sum", "mean" or nothing."""
    _, values, texts = row
    n = found.n_seen.astype(float)
    total = found.mean * n
    for _, others, _ in below:
        seen = np.isfinite(others)
        total, n = total - np.where(seen, others, 0.0), n - seen
    words = [text.strip(" :*") for text in texts.values()]
    named = (
        "sum" if any(map(_TOTAL.fullmatch, words)) else "mean" if any(map(_AVERAGE.fullmatch, words)) else ""
    )
    used = [
        place
        for place in places
        if np.isfinite(values[place])
        and n[place] >= 3
        and total[place] != 0
        and found.least[place] < found.most[place]
    ]
    if not used or len(used) < (1 if named else 2):
        return None
    for kind, expected in (("sum", total[used]), ("mean", total[used] / n[used])):
        scale = (
            np.abs(expected) + np.abs(found.squares[used] / np.maximum(found.n_seen[used], 1)) ** 0.5 * 1e-3
        )
        alike = np.abs(values[used] - expected) <= _ALIKE * scale
        if kind == "mean":  # means are often rounded
            alike = np.abs(values[used] - expected) <= 1e-2 * np.abs(expected) if named else alike
        if alike.mean() >= (0.5 if named else 1.0):
            return kind
    return named if named == "sum" and _outgrows(found, values, used) else None


def _outgrows(found, values, used):
    """Whether a row called total is the largest of the table in most columns."""
    return len(used) > 0 and np.mean(values[used] >= found.most[used]) > 0.5
