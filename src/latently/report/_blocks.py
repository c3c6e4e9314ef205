"""Co-clusters: the matrix in the order of its clusters, and the core."""

from __future__ import annotations

import numpy as np

from latently.report import _charts as charts
from latently.report._images import data_uri
from latently.report._markup import element, join
from latently.report._parts import MOST_GROUPS, Section, count, figure, several

_MOST = 400  # pixels a side
_BORDER = (205, 85, 0)


def blocks(facts):
    """None unless columns have clusters as well."""
    columns = getattr(facts.model, "column_labels_", None)
    if columns is None or facts.groups is None:
        return None
    core = np.asarray(facts.model.core_)
    rows = facts.groups.codes
    text = (
        f"{several(core.shape[0], 'row cluster')} and {several(core.shape[1], 'column cluster')}. Below, "
        "rows and columns stand in the order of their clusters; lines separate them."
    )
    sizes = "Columns in each cluster: " + ", ".join(
        f"{name} {count(size)}" for name, size in enumerate(np.bincount(columns, minlength=core.shape[1]))
    )
    pixels = _sorted_matrix(facts.X, rows, columns)
    height, width = pixels.shape[:2]
    image = element(
        "img",
        src=data_uri(pixels),
        alt="The matrix in the order of its clusters",
        width=max(width, 320),
        height=max(height, 240),
        class_="pixels",
    )
    shown = core[:MOST_GROUPS, :MOST_GROUPS]
    chart = charts.heat_map(
        "core-map",
        shown,
        [f"row cluster {k}" for k in range(len(shown))],
        range(shown.shape[1]),
        title="Core",
        described="Lines are row clusters, columns column clusters.",
        row_axis="row cluster",
        column_axis="column cluster",
        limit=float(np.max(np.abs(core))) or 1.0,
    )
    caption = "Bright: large entries; grey columns of a cluster would mean that nothing was observed."
    body = [
        element("p", text),
        element("figure", image, element("figcaption", caption)),
        element("p", sizes + "."),
        figure(chart, "Core", "The core: how strongly clusters of rows and of columns go together."),
    ]
    return Section("blocks", "Blocks", join(body))


def _sorted_matrix(X, rows, columns):
    """RGBA levels (height, width, 4) of the sorted matrix, at most `_MOST` a side, with borders."""
    by_row, by_column = np.argsort(rows, kind="stable"), np.argsort(columns, kind="stable")
    picked_rows, picked_columns = (
        np.unique(np.linspace(0, size - 1, min(size, _MOST)).astype(int)) for size in X.shape
    )
    by_row, by_column = by_row[picked_rows], by_column[picked_columns]
    values = X[np.ix_(by_row, by_column)]
    low, high = np.nanquantile(values, [0.01, 0.99]) if np.isfinite(values).any() else (0.0, 1.0)
    level = np.clip((values - low) / max(high - low, np.finfo(float).tiny), 0.0, 1.0)
    level = np.where(np.isnan(level), 0.5, level)
    down, across = (max(1, -(-240 // size)) for size in values.shape)  # small matrices are enlarged
    canvas = np.full((*values.shape, 4), 255, dtype=np.uint8)
    canvas[..., :3] = np.round(255 * level)[..., None]
    canvas = np.repeat(np.repeat(canvas, down, axis=0), across, axis=1)
    for border in np.flatnonzero(np.diff(rows[by_row])) + 1:
        canvas[border * down - (down > 1), :, :3] = _BORDER
    for border in np.flatnonzero(np.diff(columns[by_column])) + 1:
        canvas[:, border * across - (across > 1), :3] = _BORDER
    return canvas
