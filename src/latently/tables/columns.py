"""Which columns of a table a model is fitted to, and why not the others."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latently.core.words import counted, listed, shown
from latently.estimators.messages import warn_user
from latently.tables import kinds, suspicion

_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_LARGEST_VALUE = 1e150  # of a cell; squares of larger values overflow
_MOSTLY_TEXT = 0.2  # share of different texts beyond which a column with many numbers is one of texts


def in_python(name, value):
    """An option as an argument in Python."""
    return f"{name}=[{value!r}]"


@dataclass(frozen=True)
class Choice:
    """What the user says about columns: names, or patterns in which * matches any text."""

    columns: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    as_is: tuple[str, ...] = ()  # columns that are not suspected of anything
    takes_binary: bool = False  # whether the model describes columns of two values
    option: Callable[[str, str], str] = in_python  # how an option is written, given its name and value
    kinds: Mapping[str, Any] = field(default_factory=dict)  # of some columns, or levels from low to high
    takes_kinds: bool | None = False  # whether the model takes categories; None if the columns decide


@dataclass
class Chosen:
    """Places of the columns to use, and what was found on the way."""

    places: list[int]
    left_out: list[tuple[str, str]]  # name and reason
    sentinels: dict[int, dict[float, int]] = field(
        default_factory=dict
    )  # by place: values, with their counts
    rows: dict[int, str] = field(default_factory=dict)  # left out, by number from 0: what they are
    kinds: dict[int, Any] = field(default_factory=dict)  # by place, of columns that are not plain numbers

    @property
    def mixed(self):
        """Whether some column holds levels, which only a model of mixed columns takes."""
        return any(kind not in ("number", "count", "date") for kind in self.kinds.values())


def chosen_columns(found, table, choice):
    """The columns to use of a surveyed table. Those that the user names are used if that is possible."""
    names = found.columns
    wanted, unwanted = _places(choice.columns, names), set(_places(choice.without, names))
    as_is = set(_places(choice.as_is, names))
    given = {_places([name], names)[0]: kinds.wanted_kind(name, kind) for name, kind in choice.kinds.items()}
    if choice.takes_kinds is False and set(given.values()) - {"number"}:
        name = next(names[place] for place, kind in given.items() if kind != "number")
        raise ValueError(
            f"the kind of {shown(name)} is of use to the model mixed (MixedMixture) only; others take numbers"
        )
    chosen = Chosen([], [])
    for place in wanted or range(len(names)):
        name = names[place]
        if name in table.beside and not wanted:
            continue
        if name == found.label:
            if wanted:
                raise ValueError(f"the column {shown(name)} holds the labels, so it cannot be a feature too")
            continue
        if place in unwanted:
            chosen.left_out.append((name, "not wanted"))
            continue
        kind, against = given.get(place), None
        if kind is None and choice.takes_kinds is not False and table.named and table.image_shape is None:
            kind, against = kinds.guessed(found, place)
        reason = against or (_why_not(found, place) if kind in (None, "number", "count") else None)
        if kind is not None and reason is None and choice.takes_kinds is not False:
            chosen.kinds[place] = kind
        if reason is None:
            chosen.places.append(place)
        elif wanted or place in given:
            raise ValueError(
                f"the column {shown(name)} cannot be used: it {reason}{_cure(found, place, choice)}"
            )
        else:
            chosen.left_out.append((name, f"it {reason}"))
    if table.image_shape is None:
        numbers = [
            place for place in chosen.places if chosen.kinds.get(place, "count") in ("number", "count")
        ]
        doubted = [place for place in numbers if place not in as_is]
        elsewhere = {value for place in doubted for value in suspicion.sentinels(found, place)}
        chosen.sentinels = {
            place: told for place in doubted if (told := suspicion.sentinels(found, place, elsewhere))
        }
        if table.named and not as_is.issuperset(chosen.places):
            notes = suspicion.notes_below(found, numbers) if _may_be_a_note(found, chosen, numbers) else {}
            chosen.rows = notes | suspicion.summary_rows(found, numbers, notes)
    return chosen


def _may_be_a_note(found, chosen, numbers):
    """Whether a last row without numbers tells that it is no row, by a text that no other row begins with."""
    texts = found.last_rows[-1][2] if found.last_rows else {}
    repeats = 0 in chosen.kinds and found.texts[0].get(texts.get(0, "").strip(), 0) > 1
    return bool(numbers) and not repeats


def without_suspects(found, table, chosen, choice):
    """Leave out columns that say nothing, or nothing to a density. Images keep all pixels."""
    trusted = {*_places([*choice.columns, *choice.as_is, *choice.kinds], found.columns)}
    trusted |= {place for place in chosen.kinds if not found.n_seen[place]}  # texts, which were judged
    if table.image_shape is None:
        doubts = {
            place: reason
            for place in chosen.places
            if place not in trusted and (reason := _doubt(found, place, table))
        }
        numbers = [place for place in chosen.places if place not in chosen.kinds]
        binary = {} if choice.takes_binary else _binary(found, numbers, trusted, doubts)
        rest = [place for place in chosen.places if place not in doubts and place not in binary]
        if not rest and binary:
            warn_user(
                "all columns have two values, which Gaussian densities do not describe; a model of binary "
                "rows, such as rbm, fits them better"
            )
        elif not rest and len(doubts) == 1 and not _says_nothing(found, *doubts):
            doubts = {}  # a table of one column: the user means it
        else:
            doubts |= binary
        chosen.left_out += [(found.columns[place], reason) for place, reason in doubts.items()]
        chosen.places = [place for place in chosen.places if place not in doubts]
    if not chosen.places and found.n_rows == 1:
        raise ValueError(f"{table.name} has one row, and a model needs several")
    if not chosen.places:
        reasons = "; ".join(f"{shown(name)}: {reason}" for name, reason in chosen.left_out[:3])
        raise ValueError(f"no column of {table.name} can be used ({reasons})")
    return chosen


def _doubt(found, place, table):
    reason = suspicion.nearly_constant(found, place)
    if reason is not None or not table.named:
        return reason
    padded = table.dialect.padded if table.dialect else ()
    return (
        suspicion.numbering(found, place)
        or suspicion.code(found, place, padded)
        or suspicion.point_in_time(found, place)
    )


def _says_nothing(found, place):
    return suspicion.nearly_constant(found, place) is not None


def _binary(found, places, trusted, doubts):
    """Reasons against the columns of two values."""
    two = {place: reason for place in places if (reason := suspicion.two_values(found, place))}
    for group in suspicion.one_hot(found, list(two)):
        others = listed([found.columns[place] for place in group])
        for place in group:
            two[place] = f"exactly one of {others} is 1 in every row (one-hot)"
    return {place: reason for place, reason in two.items() if place not in trusted and place not in doubts}


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
                raise ValueError(no_column(part, names))
            places |= dict.fromkeys(matching)
    return list(places)


def no_column(name, columns):
    """What to say of a name that is none of the columns."""
    close = difflib.get_close_matches(name, columns, n=1)
    meant = f"; did you mean {shown(close[0])}?" if close else ""
    return f"the data have no column {shown(name)}{meant}; they have {listed(columns)}"


def _why_not(found, place):
    """Why the column cannot be used; None if it can, with a few cells that cannot be read."""
    n_text, n_seen, n_infinite = (int(n[place]) for n in (found.n_text, found.n_seen, found.n_infinite))
    if n_text > n_seen or (n_text and _is_of_texts(found, place)):
        share = f" in {counted(n_text, 'cell')} and numbers in {n_seen}" if n_seen else ""
        return f"holds text such as {shown(found.examples[place], 30)}{share}"
    if n_infinite > n_seen:
        return f"holds infinite values in {counted(n_infinite, 'cell')}"
    if n_seen == 0:
        return "has no values at all"
    largest = max(abs(found.least[place]), abs(found.most[place]))
    return f"holds values as large as {largest:.3g}; rescale it" if largest > _LARGEST_VALUE else None


def _is_of_texts(found, place):
    """Whether texts are many and nearly all different, as in names of which some are numbers."""
    n_text, texts = int(found.n_text[place]), found.texts[place]
    many = n_text > _MOSTLY_TEXT * (n_text + found.n_seen[place])
    return many and len(texts) > max(10, 0.5 * min(n_text, 1000))


def _cure(found, place, choice):
    """Advice for text in a requested column."""
    if not found.n_text[place]:
        return ""
    if not found.n_seen[place] and all(map(_DECIMAL_COMMA.fullmatch, found.texts[place])):
        return f"; if its commas are decimal marks, give {choice.option('decimal', ',')}"
    if not found.n_seen[place]:
        if len(found.texts[place]) > _MOST_LEVELS:
            return ""
        if choice.takes_kinds is False:
            return "; the model mixed (MixedMixture) takes it as a category"
        return "; it can be of the kind category"
    if len(found.texts[place]) > _MOST_MARKS:
        return ""
    text = found.examples[place]
    return f"; if that text marks a missing cell, give {choice.option('missing', shown(text, 30)[1:-1])}"


_MOST_LEVELS = 20
_MOST_MARKS = 3  # different texts for missing cells in one column


# -- what the user is told -------------------------------------------------------------------------------

_MOST_TOLD = 5


def tell(found, chosen, choice):
    """Warn of everything that was left out or taken for missing, with the option that decides."""
    _tell_columns(found, chosen, choice)
    _tell_rows(chosen, choice)
    _tell_sentinels(found, chosen, choice)
    _tell_bad_cells(found, chosen, choice)
    n_missing = found.n_rows * len(chosen.places) - int(found.n_seen[chosen.places].sum())
    if n_missing:
        cells = found.n_rows * len(chosen.places)
        warn_user(f"{n_missing} of {cells} cells are missing; the model is fitted to the observed cells")


def _tell_columns(found, chosen, choice):
    reasons = [(name, reason) for name, reason in chosen.left_out if reason != "not wanted"]
    for name, reason in reasons[:_MOST_TOLD]:
        place = found.columns.index(name)
        usable = _why_not(found, place) is None
        cure = f"; {choice.option('as_is', name)} uses it" if usable else _cure(found, place, choice)
        warn_user(f"column {shown(name)} is left out: {reason}{cure}")
    if len(reasons) > _MOST_TOLD:
        more = listed([name for name, _ in reasons[_MOST_TOLD:]], 20)
        warn_user(
            f"{len(reasons) - _MOST_TOLD} more columns are left out: {more}; the description has the reasons"
        )


def _tell_rows(chosen, choice):
    for number, kind in chosen.rows.items():
        warn_user(
            f"row {number + 1} is left out: it is {kind}; "
            f"{choice.option('as_is', '*')} uses all rows and values as they are"
        )


def _tell_sentinels(found, chosen, choice):
    for place in [place for place in chosen.sentinels if place in chosen.places]:
        name = found.columns[place]
        values = " and ".join(
            f"{value:.10g} in {counted(count, 'cell')}" for value, count in chosen.sentinels[place].items()
        )
        least, most = found.least[place], found.most[place]
        rest = f"the others are from {least:.4g} to {most:.4g}"
        warn_user(
            f"column {shown(name)}: {values} taken for missing, since {rest}; "
            f"{choice.option('as_is', name)} keeps such values"
        )


def _tell_bad_cells(found, chosen, choice):
    bad = [place for place in chosen.places if found.n_text[place] or found.n_infinite[place]]
    for place in bad[:_MOST_TOLD]:
        texts = sorted(found.texts[place], key=lambda text: -found.texts[place][text])
        n = int(found.n_text[place] + found.n_infinite[place])
        examples = listed([*texts, *(["inf"] if found.n_infinite[place] else [])], 3)
        warn_user(
            f"column {shown(found.columns[place])}: {counted(n, 'cell')} that cannot be used as a number "
            f"taken for missing ({examples}); "
            f"{choice.option('without', found.columns[place])} leaves the column out"
        )
    if len(bad) > _MOST_TOLD:
        n = int(np.sum(found.n_text[bad[_MOST_TOLD:]] + found.n_infinite[bad[_MOST_TOLD:]]))
        warn_user(f"{counted(n, 'more cell')} in {len(bad) - _MOST_TOLD} more columns taken for missing")
