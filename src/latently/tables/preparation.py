"""The record of how the rows of a table become those of a model, so that later rows are treated alike.

A model file holds it, and `description.json` beside the model shows it; both must agree.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field

import numpy as np

from latently.core import conformal
from latently.core.words import listed
from latently.selection.criteria import CRITERIA
from latently.tables.kinds import DATES, KINDS, WITH_LEVELS, Kind

FORMAT_VERSION = 2
ACCEPTANCE = 0.99  # where the user asks for no other
MOST_HELD_OUT = 5000  # log densities in a record
_LARGEST_NUMBER = 1e299  # in a record
PROBABILITIES = np.unique(
    np.r_[0, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, np.arange(1, 100) / 100, 0.995, 0.999, 1]
)


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
    as_is: list[str]  # columns that the user trusts
    image_shape: list[int] | None
    seed: int
    densities: list[float]  # quantiles of log densities of the training rows, in the user's units, if any
    held_out: list[float]  # log densities of rows that were left out of the fit, in the same units, if any
    selection: dict | None  # criterion and parameters of the table in selection.csv
    sentinels: dict[str, list[float]]  # values of columns that stand for missing cells
    verdict: str | None = None  # of a comparison of families
    probability_plot: list | None = (
        None  # expected and observed shares of held-out rows, as `Calibration` has them
    )
    kinds: dict[str, str] = field(default_factory=dict)  # of columns that are not plain numbers
    levels: dict[str, list[str]] = field(default_factory=dict)  # as text, which are 0, 1, ... in the model

    def kind_of(self, name):
        """What the column of this name holds."""
        return Kind(self.kinds.get(name, "number"), tuple(self.levels.get(name, ())))

    def read_as_text(self, names):
        """Of these names of the model's columns in a table, those whose cells are not read as numbers."""
        return [
            theirs
            for own, theirs in zip(self.columns, names, strict=True)
            if self.kind_of(own).name not in ("number", "count")
        ]

    def estimator_columns(self):
        """The kinds of the columns by place, as `MixedMixture(columns=...)` has them for prepared rows."""
        by_place = {place: self.kind_of(name).name for place, name in enumerate(self.columns)}
        return {place: kind for place, kind in by_place.items() if kind not in ("number", *DATES)}

    def to_frame(self, values):
        """Rows in the model's units."""
        return (values - np.array(self.mean)) / np.array(self.scale)

    def from_frame(self, rows):
        """Rows in the user's units."""
        return rows * np.array(self.scale) + np.array(self.mean)

    def log_volume(self, values):
        """(n,) log density in the model's units minus that in the user's units, for observed entries."""
        return ~np.isnan(values) @ np.log(np.array(self.scale))

    def threshold(self, acceptance):
        """The log density below which rows are rejected.

        By rows that were left out of the fit new rows of the same kind are accepted with at least this
        probability; by those of the fit, whose densities are higher, with a little less.
        """
        if self.held_out:
            return conformal.threshold(np.array(self.held_out), acceptance)
        return self.quantile(1 - acceptance)

    def quantile(self, share):
        """The log density below which there is this share of the training rows."""
        return float(np.interp(share, PROBABILITIES, self.densities))

    def to_dict(self):
        """The entries, as JSON has them; models of numbers alone have none about kinds."""
        entries = asdict(self)
        return {name: value for name, value in entries.items() if value or name not in _MAY_LACK}


def quantiles(scores):
    """Quantiles of log densities, for a record."""
    within = np.clip(scores, -_LARGEST_NUMBER, _LARGEST_NUMBER)  # a density may underflow to zero
    return [float(value) for value in np.quantile(within, PROBABILITIES)]


def held_out_scores(scores, rng):
    """Log densities of rows left out of the fit, for a record: at most a few thousand of them."""
    if len(scores) > MOST_HELD_OUT:
        scores = rng.choice(scores, MOST_HELD_OUT, replace=False)
    return [float(value) for value in np.sort(np.clip(scores, -_LARGEST_NUMBER, _LARGEST_NUMBER))]


def described(record):
    """The text of `description.json`."""
    content = {"format": "latently fit", "format_version": FORMAT_VERSION, **record.to_dict()}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def check_description(text, record):
    """Raise an error unless a description is that of the record."""
    try:
        content = json.loads(text)
        if not isinstance(content, dict) or content.pop("format", None) != "latently fit":
            raise ValueError("it was not written by latently")
        version = content.pop("format_version", None)
        if version != FORMAT_VERSION:
            raise ValueError(f"it has format version {version!r}, but this latently reads {FORMAT_VERSION}")
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    expected = record.to_dict()
    wrong = [
        name
        for name in {**expected, **content}
        if name not in content
        or name not in expected
        or json.dumps(content[name], sort_keys=True) != json.dumps(expected[name], sort_keys=True)
    ]
    if wrong:
        raise ValueError(f"it is not that of the model beside it: {listed(wrong)} was changed")


def preparation_of(content):
    """The record with these entries; untrusted, so everything is validated."""
    if isinstance(content, dict):
        content = {name: {} for name in _MAY_LACK} | content
    if not isinstance(content, dict) or set(content) != set(_CHECKS):
        unknown = set(content) ^ set(_CHECKS) if isinstance(content, dict) else "all"
        raise ValueError(f"its preparation has missing or unknown entries: {listed(sorted(unknown))}")
    for name, check in _CHECKS.items():
        if not check(content[name]):
            raise ValueError(f"the entry {name} of its preparation is not valid")
    record = Preparation(**content)
    _check_together(record)
    return record


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
    "as_is": _all(_text),
    "image_shape": _or_none(lambda value: _all(_count)(value) and 2 <= len(value) <= 3),
    "seed": _count,
    "densities": _all(_number),
    "held_out": _all(_number),
    "selection": _or_none(_selection),
    "verdict": _or_none(_text),
    "probability_plot": _or_none(lambda value: _all(_all(_number))(value) and len(value) == 2),
    "sentinels": lambda value: isinstance(value, dict) and all(map(_all(_number), value.values())),
    "kinds": lambda value: isinstance(value, dict) and all(kind in KINDS for kind in value.values()),
    "levels": lambda value: isinstance(value, dict) and all(map(_different_texts, value.values())),
}
_MAY_LACK = ("kinds", "levels")


def _check_together(record):
    n = len(record.columns)
    if len(record.mean) != n or len(record.scale) != n:
        raise ValueError("mean and scale do not have an entry for every column")
    if not set(record.sentinels) <= set(record.columns):
        raise ValueError("sentinels names columns that the model does not have")
    with_levels = {name for name, kind in record.kinds.items() if kind in WITH_LEVELS}
    if not set(record.kinds) <= set(record.columns) or set(record.levels) != with_levels:
        raise ValueError("kinds and levels do not belong to its columns")
    if not all(record.levels.values()):
        raise ValueError("a column of levels has none")
    if record.image_shape is not None and math.prod(record.image_shape) != n:
        raise ValueError("image_shape does not match the number of columns")
    if len(record.densities) not in (0, len(PROBABILITIES)) or np.any(np.diff(record.densities) < 0):
        raise ValueError("densities are not ascending quantiles")
