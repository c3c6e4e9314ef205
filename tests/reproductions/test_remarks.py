"""Remarks tell the numbers that are saved: none of ours is typed."""

import json
import math
import random
import re
from dataclasses import replace

import pytest

from reproductions import available, overview
from reproductions.framework import HERE, Result, one_line
from reproductions.told import Told, listed, span
from tests.reproductions.test_framework import example

REPRODUCTIONS = available()
SAVED = [name for name in REPRODUCTIONS if overview.saved(name)]
REFERENCE = re.compile(
    r"\b(Figs?\.|Figures?|Tables?|Sections?|section|chapter) \d[\d.]*"
    r"((, | to | and |-)\d[\d.]*(?![\d.]* ?%))*|\d{3}/\S+"
)
NUMBER = re.compile(r"(?<![\w.,])\d+(?:[ ,]\d{3})+(?![\d.])|(?<![\w.])\d*\.\d+|(?<![\w.,])\d{3,}|\d+(?= ?%)")


def numbers(text):
    """Decimals, shares in percent and long integers, without references to figures and tables."""
    return {found.group() for found in NUMBER.finditer(REFERENCE.sub("", text))}


def typed_numbers(reproduction, saved):
    """Numbers in remarks that follow neither ours nor those printed, and that nothing else accounts for."""
    of, records = reproduction, saved["records"]
    rng = random.Random(0)
    found = numbers_told(of, saved)
    for _ in range(3):
        ours, theirs = ([moved(one, of.keys, rng) for one in both] for both in (records, of.published))
        found &= numbers_told(replace(of, published=theirs), saved | {"records": ours})
    texts = " ".join((of.title, of.source, of.data, of.protocol, json.dumps(saved["settings"])))
    accounted = numbers(one_line(texts)) | set(of.other_numbers)
    printed = [
        value for record in of.published for value in record.values() if isinstance(value, (int, float))
    ]
    return sorted(one for one in found - accounted if not is_printed(one, printed))


def numbers_told(reproduction, saved):
    result = Result.of_saved(reproduction, saved)
    return numbers(" ".join((*result.remarks(), result.missed())))


def moved(record, keys, rng):
    """The same with other values."""
    return {key: value if key in keys else other(value, rng) for key, value in record.items()}


def other(value, rng):
    if isinstance(value, str):
        return value.translate(str.maketrans("0123456789", "1234567890"))
    if isinstance(value, float):
        return rng.uniform(2, 9) * value + rng.uniform(0.1, 0.9)
    return 7 * value + 3 if isinstance(value, int) else value


def is_printed(number, printed):
    """Whether a printed value reads so, rounded if need be."""
    text = re.sub(r"[ ,]", "", number)
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    return any(math.isclose(abs(value), float(text), rel_tol=0, abs_tol=half + 1e-9) for value in printed)


@pytest.mark.parametrize("name", SAVED)
def test_no_number_of_ours_is_typed(name):
    assert typed_numbers(REPRODUCTIONS[name], overview.saved(name)) == []


@pytest.mark.parametrize("name", SAVED)
def test_saved_results_are_told_as_today(name):
    saved = overview.saved(name)
    if not overview.of_today(REPRODUCTIONS[name], saved):
        pytest.skip("run by another protocol, which the page says")
    result = Result.of_saved(REPRODUCTIONS[name], saved)
    path = HERE / f"document_{name[:3]}" / "results" / f"{name[4:]}.json"
    assert result.to_json() == path.read_text(encoding="utf-8")
    assert result.to_markdown() == path.with_suffix(".md").read_text(encoding="utf-8")
    assert result.missed() or not REPRODUCTIONS[name].missed


def test_typed_numbers_are_found():
    records = [{"case": "a", "ERR": 0.123}]
    saved = {"records": records, "settings": {}, "quick": False, "seed": 0, "seconds": 1.0, "versions": {}}

    def typed(*remarks, **more):
        published = [{"case": "a", "ERR": 0.26}]
        return typed_numbers(example(remarks=remarks, published=published, **more), saved)

    assert typed("Ours is 0.123 for 0.26, as in Table 3.1 and 12 % of 2000 rows.") == ["0.123", "12", "2000"]
    assert typed(lambda told: f"Ours is {told('ERR', 'a'):.3f} for 0.26.") == []
    assert typed("It was 0.5 before.", other_numbers={"0.5": "an earlier run"}) == []
    assert typed(lambda told: f"{told('ERR', 'of no such case'):.3f}") == []  # not told at all


def test_numbers_are_told_by_their_keys():
    records = [{"method": "A", "size": size, "ERR": err} for size, err in ((1, 0.1), (2, 0.3), (3, None))] + [
        {"method": "B", "size": 1, "ERR": 0.2}
    ]
    published = [{"method": "A", "size": 2, "ERR": 0.25}]
    told = Told(("method", "size"), records, published)
    assert told("ERR", "A", 2) == 0.3
    assert told.all("ERR", "A") == [0.1, 0.3]
    assert told.all("ERR", ..., 1) == [0.1, 0.2]
    assert told.by_key("ERR", ("A", "B"), range(2, 9)) == {("A", 2): 0.3}
    assert told.printed("ERR", "A", 2) == 0.25
    assert told.above_print("ERR", "A") == [pytest.approx(0.05)]
    for missing in (("ERR", "A"), ("ERR", "C"), ("ERR", "A", 3), ("BIC", "A", 1)):
        with pytest.raises(LookupError):
            told(*missing)


def test_numbers_in_a_row_are_listed_or_spanned():
    assert listed([0.1, 0.2, 0.3], ".1f") == "0.1, 0.2 and 0.3"
    assert listed([0.1], ".1f") == "0.1"
    assert span([0.3, 0.1, 0.2], ".1f") == "0.1 to 0.3"
    assert span([0.301, 0.299], ".1f") == "0.3"
