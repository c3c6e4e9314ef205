"""Intervals of the parameters, by bootstrap or by the information matrix."""

from __future__ import annotations

import numpy as np

from latently.report._drawing import number
from latently.report._markup import element, join
from latently.report._parts import Section, count, several, table

_FIRST = (
    "class_prior",
    "weights",
    "subweights",
    "means",
    "mean",
    "rates",
    "probabilities",
    "locations",
)  # those that tell most
_MOST = 400  # lines of the table
_PLACES = ("class", "component", "subcomponent", "feature", "feature_2", "factor", "factor_2")


def checked_uncertainty(found):
    """The result of `selection.bootstrap` or `selection.standard_errors`, or None."""
    if found is not None and not (hasattr(found, "intervals_") and hasattr(found, "basis")):
        raise TypeError(
            f"uncertainty must be the result of selection.bootstrap or standard_errors, not {found!r}"
        )
    return found


def intervals(facts):
    """None unless the report was given some."""
    found = facts.uncertainty
    if found is None:
        return None
    lines = found.intervals_
    order = {name: i for i, name in enumerate(_FIRST)}
    ranks = lines["parameter"].map(lambda name: order.get(name, len(order)))
    lines = lines.assign(rank=ranks).sort_values("rank", kind="stable").head(_MOST)
    places = [name for name in _PLACES if name in lines and lines[name].notna().any()]
    rows = []
    for entry in lines.to_dict("records"):
        cells = [element("th", str(entry["parameter"]).replace("_", " "), scope="row")]
        cells += [element("td", _text(entry[name])) for name in places]
        cells += [element("td", value, class_="number") for value in _in_units(facts, entry)]
        rows.append(element("tr", *cells))
    text = (
        f"{found.basis} They tell how sure the parameters of this optimum are; that another number of "
        "components or another optimum may be right is not part of them."
    )
    if facts.in_other_units:
        text += (
            " Weights, means, rates and chances are in the units of the data, variances and loadings are not."
        )
    caption = f"{count(len(lines))} of {several(len(found.intervals_), 'parameter')}"
    heads = [
        "parameter",
        *(name.replace("_", " ") for name in places),
        "estimate",
        "standard error",
        "from",
        "to",
    ]
    body = join([element("p", text), table(caption, heads, rows, folded=len(rows) > 40)])
    return Section("intervals", "Uncertainty of the parameters", body)


def _text(value):
    return "" if value is None or value != value or str(value) == "<NA>" else str(value)


def _in_units(facts, entry):
    """Estimate, standard error and ends, as text; of means in the user's units."""
    values = np.array([entry[name] for name in ("estimate", "standard_error", "low", "high")], dtype=float)
    if entry["parameter"] not in ("means", "mean") or entry["feature"] not in facts.feature_names:
        return list(map(number, values))
    j = facts.feature_names.index(entry["feature"])
    values = values * facts.scale[j] + np.array([1.0, 0.0, 1.0, 1.0]) * facts.offset[j]
    estimate, error, low, high = values
    return [
        facts.levels.text(j, estimate),
        number(error),
        *(facts.levels.text(j, end) for end in (low, high)),
    ]
