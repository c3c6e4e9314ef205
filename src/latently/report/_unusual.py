"""The section on unusual rows."""

from __future__ import annotations

import numpy as np

from latently.report import _charts as charts
from latently.report._charts import swatch
from latently.report._drawing import number
from latently.report._levels import away
from latently.report._markup import element, join
from latently.report._parts import (
    Section,
    brightness,
    count,
    figure,
    percent,
    picture,
    several,
    signed,
    table,
)

_MOST_UNUSUAL = 12


def unusual(facts):
    found = facts.unusual
    if found is None or len(found.rows) < 2 or not np.isfinite(facts.scores[found.rows]).any():
        return None
    text = f"The {facts.score_name} of a row measures how well it agrees with the model. "
    if found.given:
        text += (
            f"Rows below {number(found.threshold)}, the threshold of latently score, are unusual: "
            f"{count(found.n_below)} of {several(len(found.rows), 'row')}. "
        )
    elif found.threshold is not None:
        text += (
            f"Of rows sampled from the model, one in a thousand is below {number(found.threshold)}. Of the "
            f"{count(len(found.rows))} rows, {count(found.n_below)} "
            f"{'is' if found.n_below == 1 else 'are'}; about {found.n_expected:.1f} would be expected. "
        )
    if found.n_left_out:
        text += (
            f"Excluded are {several(found.n_left_out, 'row')} with missing entries: the density of fewer "
            "features is on another scale. "
        )
    elif not facts.complete.all():
        text += (
            "Rows with missing entries have the density of fewer features and are not strictly comparable. "
        )
    chart = charts.histogram(
        "density",
        facts.scores[found.rows],
        name=facts.score_name,
        threshold=found.threshold,
        threshold_name="threshold" if found.given else "one in a thousand",
        column="score",
    )
    parts = [element("p", text), figure(chart, f"Rows by {facts.score_name}")]
    shown = found.rows[:_MOST_UNUSUAL]
    parts.append(unusual_table(facts, shown))
    if facts.image_shape is not None:
        limits = brightness(facts)
        parts.append(
            picture(
                np.nan_to_num(facts.X[shown], nan=limits[0]),
                facts,
                limits=limits,
                n_columns=len(shown),
                alt="The least probable rows as images",
                caption="The same rows as images, the least probable first.",
            )
        )
    return Section("unusual", "Unusual rows", join(parts))


def unusual_table(facts, rows):
    heads = ["row", facts.score_name]
    heads += [facts.groups.noun] if facts.has_groups else []
    heads += ["class"] if facts.classes is not None else []
    heads += ["most unusual features"] if facts.image_shape is None else []
    lines = []
    for i in rows.tolist():
        cells = [
            element("th", facts.row_name(i), scope="row"),
            element("td", number(facts.scores[i]), class_="number"),
        ]
        if facts.has_groups:
            k = int(facts.groups.codes[i])
            cells.append(element("td", swatch(k, facts.groups.kind), facts.groups.names[k], class_="name"))
        if facts.classes is not None:
            cells.append(element("td", facts.classes.names[facts.classes.codes[i]], class_="name"))
        if facts.image_shape is None:
            cells.append(element("td", _oddities(facts, i), class_="long"))
        lines.append(element("tr", *cells, data_row=facts.row_name(i)))
    return table(f"The {len(rows)} least probable rows", heads, lines)


def _oddities(facts, i):
    """Features of a row furthest from the mean of its group, in standard deviations of the group."""
    of_group, k = (facts.everything, 0) if facts.profiles is None else (facts.profiles, facts.groups.codes[i])
    gap = np.nan_to_num(facts.X[i] - of_group.means[k])
    deviation = of_group.deviations[k]
    far = np.divide(gap, deviation, out=np.zeros_like(gap), where=deviation > 0)
    shares = {}
    for j in facts.levels.nominal:
        whole, of_groups = facts.shares[j]
        here = whole if facts.profiles is None else of_groups[k]
        shares[j] = 1.0 if np.isnan(facts.X[i, j]) else float(here[int(facts.X[i, j])])
        far[j] = away(shares[j])
    furthest = np.argsort(-np.abs(far), kind="stable")[:2].tolist()
    said = (
        f"{facts.feature_names[j]} {facts.levels.text(j, facts.shown[i, j])} "
        f"({f'{percent(shares[j])} of its group' if j in shares else signed(far[j])})"
        for j in furthest
    )
    return ", ".join(said)
