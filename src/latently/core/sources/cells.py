"""Cells of a data frame as numbers: what counts as one, and what as missing."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Texts that stand for a missing entry, in small letters: ours, and those of pandas.
MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "?", "-", ".", "missing") + (
    "#n/a n/a", "#na", "<na>", "-nan", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan",
)  # fmt: skip
_TRUTH = {"true": 1.0, "false": 0.0}


_WITH_EXPONENT = re.compile(r"[+-]?\d+\.?\d*[eE][+-]?\d+")


def numbers_of(
    frame: Any, missing: Collection[str] = MISSING, decimal: str = "."
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(n, C) numbers of a data frame, NaN where there are none, and (n, C) whether there is text instead."""
    pandas = import_module("pandas")
    values = np.full(frame.shape, np.nan)
    is_text = np.zeros(frame.shape, dtype=bool)
    plain = np.array([getattr(dtype, "kind", "O") in "biuf" for dtype in frame.dtypes], dtype=bool)
    if plain.any():
        values[:, plain] = frame.iloc[:, np.flatnonzero(plain)].to_numpy(dtype=np.float64, na_value=np.nan)
    places = np.flatnonzero(~plain)
    if len(places):
        cells = frame.iloc[:, places].astype(object).to_numpy().ravel()
        found, text = _numbers_in_cells(pandas.Series(cells, dtype=object), missing, decimal)
        values[:, places], is_text[:, places] = found.reshape(-1, len(places)), text.reshape(-1, len(places))
    return values, is_text


def _numbers_in_cells(
    cells: Any, missing: Collection[str], decimal: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    values = _parsed(cells, decimal)
    is_text = np.zeros(len(cells), dtype=bool)
    unclear = np.flatnonzero(~np.isfinite(values))
    if len(unclear):
        rest = cells.iloc[unclear]
        words = rest.map(lambda cell: str(cell).strip().lower())
        absent = (rest.isna() | words.isin(missing)).to_numpy(dtype=bool)
        truth = words.map(_TRUTH).to_numpy(dtype=np.float64, copy=True)
        infinite = np.isinf(values[unclear])  # which is a number, unless it was said to stand for none
        rest = ~absent & ~infinite & np.isnan(truth)
        if rest.any():
            truth[rest] = [_decorated(word, decimal) for word in words[rest]]
        values[unclear] = np.where(absent, np.nan, np.where(infinite, values[unclear], truth))
        is_text[unclear] = ~absent & ~infinite & np.isnan(truth)
    return values, is_text


_BLANKS = "[ \u00a0\u2009\u202f'\u2019]"
_MINUS = ("\u2212", "\u2013", "\u2012")  # as typesetters write it: a minus and dashes
_AROUND = re.compile(r"^[$€£¥₹]\s*|\s*([$€£¥₹%‰]|eur|usd|gbp|chf)$")  # currencies and percent
_GROUPED = {  # whole numbers in groups of three, by the decimal mark
    ".": re.compile(rf"[+-]?\d{{1,3}}((,\d{{3}})+|({_BLANKS}\d{{3}})+)?(\.\d+)?"),
    ",": re.compile(rf"[+-]?\d{{1,3}}((\.\d{{3}})+|({_BLANKS}\d{{3}})+)?(,\d+)?"),
}
_PLAIN = {".": re.compile(r"[+-]?\d+(\.\d+)?"), ",": re.compile(r"[+-]?\d+(,\d+)?")}


def _decorated(word: str, decimal: str) -> float:
    """The number in "$1,234.50", "1 234", "(12)" or "7 %", which stands for 7; NaN if there is none."""
    word = f"-{word[1:]}" if word.startswith(_MINUS) else word
    if len(word) > 40 or not any(map(str.isdigit, word)):
        return float("nan")
    negative = word.startswith("(") and word.endswith(")")  # as accountants write it
    word = word.strip("()") if negative else word
    sign = "-" if word.startswith("-") or negative else ""
    word = _AROUND.sub("", _AROUND.sub("", word.lstrip("+-").strip())).strip()
    if not (_GROUPED[decimal].fullmatch(word) or _PLAIN[decimal].fullmatch(word)):
        return float("nan")
    word = re.sub(_BLANKS, "", word).replace("," if decimal == "." else ".", "").replace(",", ".")
    return float(sign + word)


def _parsed(cells: Any, decimal: str) -> NDArray[np.float64]:
    """(n,) NaN where a cell is no number."""
    if decimal == ",":
        cells = cells.map(lambda cell: cell.replace(",", ".") if isinstance(cell, str) else cell)
    try:
        numbers = import_module("pandas").to_numeric(cells, errors="coerce")
        values = np.array(numbers.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError, OverflowError):  # cells that are lists and the like
        plain = cells.map(lambda cell: cell if isinstance(cell, str | int | float) else str(cell))
        return _parsed(plain, ".")
    raw = cells.to_numpy()
    for i in np.flatnonzero(np.isnan(values)):  # older versions of pandas do not read numbers beyond float64
        if isinstance(raw[i], str) and _WITH_EXPONENT.fullmatch(raw[i].strip()):
            values[i] = float(raw[i])
    return values
