"""Remarks tell the numbers that are saved: none of ours is typed."""

import json
import math
import random
import re

import pytest

from reproductions import available, overview
from reproductions.framework import Result, one_line

REPRODUCTIONS = available()
SAVED = [name for name in REPRODUCTIONS if overview.saved(name)]
REFERENCE = re.compile(
    r"\b(Figs?\.|Figures?|Tables?|Sections?|section|chapter) \d[\d.]*((, | to | and |-)\d[\d.]*)*|\d{3}/\S+"
)
NUMBER = re.compile(r"(?<![\w.,])\d+(?:[ ,]\d{3})+(?![\d.])|(?<![\w.])\d*\.\d+|(?<![\w.,])\d{3,}|\d+(?= ?%)")


def numbers(text):
    """Decimals, shares in percent and long integers, without references to figures and tables."""
    return {found.group() for found in NUMBER.finditer(REFERENCE.sub("", text))}


def typed_numbers(reproduction, saved):
    """Numbers in remarks that do not follow the records, and that nothing else accounts for."""
    rng = random.Random(0)
    versions = saved["records"], [moved(record, reproduction.keys, rng) for record in saved["records"]]
    told = (Result.of_saved(reproduction, saved | {"records": records}) for records in versions)
    ours, others = (numbers(" ".join((*one.remarks(), one.missed()))) for one in told)
    of = reproduction
    texts = " ".join((of.title, of.source, of.data, of.protocol, json.dumps(saved["settings"])))
    accounted = numbers(one_line(texts)) | set(of.other_numbers)
    printed = [
        value for record in of.published for value in record.values() if isinstance(value, (int, float))
    ]
    return sorted(one for one in ours & others - accounted if not is_printed(one, printed))


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
