"""Columns that hold categories, ordered answers or dates: what their numbers stand for, and their section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from latently.mixture.column_kinds import is_table
from latently.mixture.mixed import on_numbers
from latently.report import _charts as charts
from latently.report._charts import swatch
from latently.report._drawing import number
from latently.report._markup import element, join
from latently.report._parts import MOST_FEATURES, Section, percent, short, table

_MOST_COMPONENTS = 8  # of a table
_MOST_LEVELS = 12  # of a column in it
_MOST_NAMED = 3  # levels in a line
_RAREST = 1e-12


@dataclass(frozen=True)
class Levels:
    """What the numbers of some columns stand for."""

    names: dict[int, list[str]]  # of the levels 0, 1, ..., by place
    nominal: frozenset[int]  # places of categories, whose levels have no order
    dates: frozenset[int]  # places of days since 1970

    def text(self, j, value):
        """The cell for a number of a column."""
        if np.isnan(value):
            return "missing"
        if j in self.names:
            return self.names[j][round(float(value))]
        if j in self.dates:
            return str(np.datetime64(round(float(value)), "D"))
        return number(value)

    def plain(self, j):
        """What the script needs to write values of a column."""
        if j in self.names:
            return {"levels": self.names[j], "nominal": j in self.nominal}
        return {"days": True} if j in self.dates else {}


def with_levels(model, X, columns, feature_names):
    """The model and rows as numbers, the levels of columns, and the names of the features."""
    kinds = {j: one.kind for j, one in enumerate(getattr(model, "columns_", ()))}
    names: dict[int, list[str]] = {}
    if kinds and is_table(X):
        feature_names = [one.name for one in model.columns_] if feature_names is None else feature_names
        model, X, names = on_numbers(model, X)
    dates = {j for j, kind in kinds.items() if kind == "date"}
    known = [] if feature_names is None else list(feature_names)  # may be an array
    for name, meaning in (columns or {}).items():
        if name not in known:
            raise ValueError(f"columns names {name!r}, which is not one of the feature names")
        if isinstance(meaning, str) and meaning == "date":
            dates.add(known.index(name))
        elif isinstance(meaning, list | tuple) and meaning:
            names[known.index(name)] = list(map(str, meaning))
        else:
            raise ValueError(f"columns[{name!r}] must be a list of levels or 'date', not {meaning!r}")
    nominal = {j for j in names if kinds.get(j) != "ordinal"}
    return model, X, feature_names, Levels(names, frozenset(nominal), frozenset(dates))


def check_levels(levels, X):
    """Raise an error unless all numbers of columns with levels are those of levels."""
    for j, names in levels.names.items():
        values = X[~np.isnan(X[:, j]), j]
        if len(values) and not (np.isin(values, np.arange(len(names)))).all():
            raise ValueError(f"column {j} of X holds numbers that stand for none of its {len(names)} levels")


def indicators(values, n_levels):
    """(n, m) 1 at the level of each row, NaN where it is missing."""
    own = (values[:, None] == np.arange(n_levels)).astype(float)
    own[np.isnan(values)] = np.nan
    return own


def away(share):
    """How unusual a level of this probability is, as standard deviations of a normal variable."""
    return float(-ndtri(max(share, _RAREST) / 2))


# -- the section ---------------------------------------------------------------------------------------


def columns(facts):
    """Means of numbers beside the levels of categories, by component; None without categories."""
    if not facts.levels.names or facts.groups is None:
        return None
    groups = facts.groups
    shown = np.sort(np.argsort(-groups.sizes, kind="stable")[:_MOST_COMPONENTS])
    shown = shown[groups.sizes[shown] > 0].tolist()
    chosen = facts.strongest(facts.informative, MOST_FEATURES).tolist()
    lines: list[Any] = []
    for j in chosen:
        lines += _of_levels(facts, j, shown) if j in facts.levels.names else [_of_numbers(facts, j, shown)]
    heads = ["column", "all rows", *(join([swatch(k, groups.kind), short(groups.names[k])]) for k in shown)]
    text = (
        "Of numbers and counts the mean and standard deviation of the rows, of categories and ordered "
        f"answers how frequent every level is among the rows of a {groups.noun}, by responsibility."
    )
    caption = f"Columns by {groups.noun}"
    if len(chosen) < facts.X.shape[1]:
        caption += f": the {len(chosen)} that differ most"
    return Section(
        "columns", f"Columns of each {groups.noun}", join([element("p", text), table(caption, heads, lines)])
    )


def _of_numbers(facts, j, shown):
    cells = [element("th", facts.feature_names[j], scope="row")]
    for of, k in [(facts.everything, 0), *((facts.profiles or facts.everything, k) for k in shown)]:
        k = k if len(of.means) > k else 0
        mean, deviation = (
            of.means[k, j] * facts.scale[j] + facts.offset[j],
            of.deviations[k, j] * facts.scale[j],
        )
        days = " days" if j in facts.levels.dates else ""
        said = f"{facts.levels.text(j, mean) if days else number(mean)} ± {number(deviation)}{days}"
        cells.append(element("td", said, class_="number"))
    return element("tr", *cells)


def _of_levels(facts, j, shown):
    names, (whole, of_groups) = facts.levels.names[j], facts.shares[j]
    yield element("tr", element("th", facts.feature_names[j], scope="row", colspan=2 + len(shown)))
    order = list(range(len(names)))
    if len(names) > _MOST_LEVELS:
        order = sorted(np.argsort(-whole, kind="stable")[:_MOST_LEVELS].tolist())
    for level in order:
        cells = [element("td", names[level])]
        for position, share in [(None, whole[level]), *((k, of_groups[k, level]) for k in shown)]:
            kind = "all" if position is None else facts.groups.kind
            bar = charts.shares([(position or 0, float(share), names[level])], percent(share), kind)
            said = element("span", percent(share), class_="number")
            cells.append(element("td", element("div", bar, said, class_="share")))
        yield element("tr", *cells)
    if len(names) > _MOST_LEVELS:
        rest = f"and {len(names) - _MOST_LEVELS} levels that are less frequent"
        yield element("tr", element("td", rest, colspan=2 + len(shown)))


def frequent(facts, j):
    """The most frequent levels of a column, in words."""
    whole = facts.shares[j][0]
    order = np.argsort(-whole, kind="stable")[:_MOST_NAMED].tolist()
    rest = len(whole) - len(order)
    said = ", ".join(f"{facts.levels.names[j][level]} {percent(whole[level])}" for level in order)
    return said + (f" and {rest} more" if rest else "")


def typical(facts, j, k):
    """The level by which a group differs most from the others, in words."""
    whole, of_groups = facts.shares[j]
    level = int(np.argmax(np.abs(of_groups[k] - whole)))
    more = "often" if of_groups[k, level] > whole[level] else "seldom"
    name = f"{facts.feature_names[j]} = {facts.levels.names[j][level]}"
    return f"{more} {name} ({percent(of_groups[k, level])}, of all rows {percent(whole[level])})"
