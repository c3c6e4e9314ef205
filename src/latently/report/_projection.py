"""Rows as points, those of them that are selected, and pairs of features."""

from __future__ import annotations

import json

import numpy as np

from latently.report._drawing import number
from latently.report._markup import element, join, script_data
from latently.report._parts import MOST_GROUPS, Section, count, plural, several, table
from latently.report._points import axes_of, coloured_features, drawn_rows, points
from latently.report._still import still

_MOST_PAIRED = 5  # features in the plot of pairs


def scatter(facts):
    payload, rows = points(facts)
    axes, first = axes_of(facts, len(rows))
    x_name, y_name = (axes[i][0] for i in first)
    on_principal_axes = x_name.startswith("principal")
    text = f"Each point is a row, drawn at its {x_name} and {y_name}. "
    if on_principal_axes and facts.each_has_its_own_factors:
        text += (
            "Each component has its own factors, which have no common plane, so these are the principal axes "
        )
    elif on_principal_axes:
        text += "The model has no factors to plot, so these are the principal axes "
    if on_principal_axes:
        text += f"of the {'images' if facts.image_shape else 'standardised features'}. "
    elif facts.profiles is not None and facts.factors.shape[1] > 2:
        text += (
            f"Of the {plural(facts.factor_noun)}, these two separate the {plural(facts.groups.noun)} best. "
        )
    if len(rows) < facts.n_rows:
        text += (
            f"Of {count(facts.n_rows)} rows {count(len(rows))} are drawn, including the most unusual ones. "
        )
    needs = "Without JavaScript, the picture stands still."
    hint = "Click a point to pick its row"
    hint += ", or a group to isolate it" if payload["groups"] else ""
    hint += (
        ". Drag to pan, or to draw a lasso with Shift or the lasso switched on; Ctrl and the mouse wheel, "
    )
    hint += "or + and −, zoom."
    body = [
        element("p", text),
        element("noscript", element("p", needs)),
        element(
            "figure",
            controls(payload),
            canvases(len(rows)),
            element("div", id="scale", hidden=True),
            element("div", id="legend", role="group", aria_label="Show one group only"),
            element("p", id="told", role="status", aria_live="polite"),
            still(facts, rows, [axes[i] for i in first]),
            element("figcaption", hint),
            id="scatter-figure",
        ),
        selected_rows(facts),
        where_groups_lie(facts, [axes[i] for i in first]),
        script_data("rows", payload),
    ]
    return Section("scatter", "Projection of the rows", join(body))


def controls(payload):
    colours = [
        element("option", f"by {groups['noun']}", value=f"g{i}") for i, groups in enumerate(payload["groups"])
    ]
    first = None if payload["groups"] else payload["coloured"]
    colours += [
        element("option", f"by {value['name']}", value=f"v{i}", selected=i == first)
        for i, value in enumerate(payload["values"])
    ]

    def axis_menu(identifier, chosen):
        names = [axis["name"] for axis in payload["axes"]]
        options = [element("option", name, value=i, selected=i == chosen) for i, name in enumerate(names)]
        return element("select", *options, id=identifier)

    across, up = payload["first"]
    return element(
        "div",
        element("label", "Colour ", element("select", *colours, id="colour")),
        element("label", "x axis ", axis_menu("across", across)),
        element("label", "y axis ", axis_menu("up", up)),
        element(
            "span",
            element("button", "+", type="button", id="closer", aria_label="Zoom in"),
            element("button", "−", type="button", id="farther", aria_label="Zoom out"),
            element("button", "Show all", type="button", id="all"),
            element("button", "Lasso", type="button", id="lasso", aria_pressed="false"),
            class_="buttons",
        ),
        class_="controls",
    )


def canvases(n_points):
    """A canvas for the points, and one above it for the axes, which also takes the focus."""
    described = (
        f"Scatter of {several(n_points, 'row')}. Arrow keys go from point to point, plus and minus zoom, "
        "Space picks the row of a point, Enter isolates its group, Escape shows all again."
    )
    return element(
        "div",
        element("canvas", id="points", aria_hidden="true"),
        element("canvas", id="frame", tabindex=0, role="img", aria_label=described, aria_describedby="told"),
        element("div", id="tip", hidden=True),
        id="plot",
    )


def selected_rows(facts):
    """The list of what is selected; empty without the script."""
    return element(
        "div",
        element("h3", "Selected rows"),
        element(
            "div",
            element(
                "label",
                "Find ",
                element(
                    "input",
                    id="find-row",
                    type="text",
                    size=22,
                    autocomplete="off",
                    placeholder=_something_to_find(facts),
                ),
            ),
            element("button", "Find", type="button", id="find-go"),
            element("button", "Select none", type="button", id="select-none", disabled=True),
            element("button", "Save all rows as CSV", type="button", id="save-rows"),
            class_="line",
        ),
        element("p", id="selected-told", role="status", aria_live="polite"),
        element("p", id="selected-traits", hidden=True),
        element(
            "div",
            element(
                "table",
                element("caption", "Selected rows", class_="unseen"),
                element("thead"),
                element("tbody"),
            ),
            id="selected-rows",
            class_="scroll",
            tabindex="0",
            role="region",
            aria_label="Selected rows",
            hidden=True,
        ),
        id="chosen-rows",
    )


def _something_to_find(facts):
    """A row number, and a condition on the feature with the shortest name."""
    n = min(17, facts.n_rows)
    if facts.image_shape:
        return f"{n}"
    j = min(coloured_features(facts, len(drawn_rows(facts)))[0], key=lambda j: len(facts.feature_names[j]))
    name = facts.feature_names[j]
    if len(name) > 20:
        return f"{n}"
    middle = float(np.nanmean(facts.shown[:, j])) if facts.deviation[j] > 0 else 0.0
    middle = 0.0 if abs(middle) < 1e-9 * facts.deviation[j] * facts.scale[j] else middle
    return f"{n}, or {name} > {number(middle)}"


def pairs(facts):
    """A frame for the script, which draws every pair of a few features."""
    if facts.image_shape or facts.X.shape[1] < 2:
        return None
    stored, _ = coloured_features(facts, len(drawn_rows(facts)))
    stored = stored[~np.isin(stored, list(facts.levels.nominal))]
    if len(stored) < 2:
        return None
    order = np.argsort(-facts.informative[stored], kind="stable")[:_MOST_PAIRED]
    chosen = [int(j) for j in np.sort(stored[order])]
    what = "differ most between groups" if facts.profiles is not None else "vary most"
    which = f"the {len(chosen)} features that {what}" if len(chosen) < facts.X.shape[1] else "the features"
    body = [
        element("p", f"Every pair of {which}. Drag over a pair to select rows; the whole page shows them."),
        element("noscript", element("p", "The pairs need a browser with JavaScript.")),
        element("figure", id="pairs", data_features=json.dumps(chosen), data_name="pairs"),
    ]
    return Section("pairs-of-features", "Pairs of features", join(body))


def where_groups_lie(facts, axes):
    """Table of group positions, for accessibility."""
    groups = facts.groups or facts.classes
    codes = np.zeros(len(facts.X), dtype=int) if groups is None else groups.codes
    names = ["all rows"] if groups is None else groups.names
    lines = []
    for k, name in enumerate(names[:MOST_GROUPS]):
        own = codes == k
        if own.any():
            places = [f"{number(np.mean(values[own]))} ± {number(np.std(values[own]))}" for _, values in axes]
            cells = [element("td", text, class_="number") for text in (count(own.sum()), *places)]
            lines.append(element("tr", element("th", name, scope="row"), *cells))
    heads = ["group", "rows", *(f"{name}, mean ± standard deviation" for name, _ in axes)]
    what = "all rows" if groups is None else "the groups"
    return table(f"Positions of {what}", heads, lines, folded=True)
