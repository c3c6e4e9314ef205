"""The projection of the rows as a still picture: for paper, and for browsers that run no script.

Points are pixels of an image, since tens of thousands of SVG elements would be slow and large; axes and their
labels are SVG.
"""

from __future__ import annotations

import numpy as np

from latently.report._charts import swatch
from latently.report._drawing import drawing, padded, tick_labels, ticks
from latently.report._images import data_uri
from latently.report._markup import element
from latently.report._parts import MOST_GROUPS, several

_WIDTH, _HEIGHT = 640, 400  # of the chart
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 10, 10, 44
_FINE = 2  # pixels of the image per unit of the chart
# those of the style sheet, on light paper: of components, and of classes
COLOURS = {
    "c": ["#0072b2", "#d55e00", "#00916a", "#c0619a", "#c78700", "#3aa0dc", "#857800", "#5c6670"],
    "d": ["#332288", "#882255", "#117733", "#999933", "#cc6677", "#44aa99", "#661100", "#aa4499"],
}


def still(facts, rows, axes):
    """A figure of the rows on two named axes, coloured by group."""
    groups = facts.groups or facts.classes
    codes = np.zeros(len(rows), dtype=int) if groups is None else groups.codes[rows]
    (x_name, x), (y_name, y) = ((name, np.asarray(values)[rows]) for name, values in axes)
    x_range, y_range = (padded(float(np.min(v)), float(np.max(v))) for v in (x, y))
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    pixels = painted(
        (x - x_range[0]) / (x_range[1] - x_range[0]),
        (y - y_range[0]) / (y_range[1] - y_range[0]),
        codes,
        (_FINE * (bottom - _TOP), _FINE * (right - _LEFT)),
        COLOURS["c" if groups is None else groups.kind],
    )
    place_x = lambda value: _LEFT + (right - _LEFT) * (value - x_range[0]) / (x_range[1] - x_range[0])
    place_y = lambda value: bottom - (bottom - _TOP) * (value - y_range[0]) / (y_range[1] - y_range[0])
    parts = [
        element("image", href=data_uri(pixels), x=_LEFT, y=_TOP, width=right - _LEFT, height=bottom - _TOP),
        element("rect", x=_LEFT, y=_TOP, width=right - _LEFT, height=bottom - _TOP, class_="border"),
        element("text", x_name, x=(_LEFT + right) / 2, y=_HEIGHT - 6, text_anchor="middle", class_="axis"),
        element(
            "text",
            y_name,
            x=14,
            y=(_TOP + bottom) / 2,
            text_anchor="middle",
            class_="axis",
            transform=f"rotate(-90 14 {(_TOP + bottom) / 2})",
        ),
    ]
    x_ticks, y_ticks = ticks(x_range[0], x_range[1], 7), ticks(y_range[0], y_range[1], 6)
    for tick, shown in zip(x_ticks, tick_labels(x_ticks), strict=True):
        parts.append(element("text", shown, x=float(place_x(tick)), y=bottom + 16, text_anchor="middle"))
    for tick, shown in zip(y_ticks, tick_labels(y_ticks), strict=True):
        parts.append(element("text", shown, x=_LEFT - 6, y=float(place_y(tick)) + 4, text_anchor="end"))
    chart = drawing(
        "still",
        _WIDTH,
        _HEIGHT,
        parts,
        title="Projection of the rows",
        described=f"{several(len(rows), 'row').capitalize()} at {x_name} and {y_name}.",
        fluid=True,
    )
    key = ""
    if groups is not None and len(groups.names) > 1:
        items = [
            element("li", swatch(k, groups.kind), name) for k, name in enumerate(groups.names[:MOST_GROUPS])
        ]
        key = element("ul", *items, class_="key", aria_label=f"Colours by {groups.noun}")
    return element("div", chart, key, class_="still")


def painted(x, y, codes, shape, colours):
    """Discs at unit coordinates, in the colours of their groups, as RGBA levels (height, width, 4)."""
    height, width = shape
    radius = _FINE * float(np.clip(130 / np.sqrt(len(x)), 1.2, 3.0))
    opacity = 0.55 if len(x) > 5000 else 0.85
    palette = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in colours], dtype=float)
    centre_x, centre_y = (x * width)[:, None], ((1 - y) * height)[:, None]
    steps = np.arange(2 * int(np.ceil(radius)) + 3) - int(np.ceil(radius)) - 1
    down, right = (offsets.ravel() for offsets in np.meshgrid(steps, steps, indexing="ij"))
    # Pixels near each centre, (n, n_steps): far fewer than those of the canvas.
    column, line = np.floor(centre_x).astype(int) + right, np.floor(centre_y).astype(int) + down
    distance = np.hypot(column + 0.5 - centre_x, line + 0.5 - centre_y)
    alpha = opacity * np.clip(radius - distance + 0.5, 0, 1)
    seen = (alpha > 0) & (column >= 0) & (column < width) & (line >= 0) & (line < height)
    at, alpha = (line * width + column)[seen], alpha[seen]
    group = np.broadcast_to((codes % len(palette))[:, None], seen.shape)[seen]
    covered = np.zeros(height * width, dtype=bool)
    covered[at] = True
    at = (np.cumsum(covered) - 1)[at]  # among the covered pixels
    n_covered = int(covered.sum())
    light = np.exp(np.bincount(at, np.log1p(-alpha), n_covered))  # let through
    paint = np.bincount(at * len(palette) + group, alpha, n_covered * len(palette)).reshape(n_covered, -1)
    colour = (paint @ palette) / paint.sum(axis=1, keepdims=True)
    pixels = np.empty((n_covered, 4), dtype=np.uint8)
    pixels[:, :3] = (np.round(colour / 8) * 8).clip(0, 255)  # fewer levels, smaller
    pixels[:, 3] = np.round((1 - light) * 15) * 17
    pixels[pixels[:, 3] == 0] = 0
    canvas = np.zeros((height * width, 4), dtype=np.uint8)
    canvas[covered] = pixels
    return canvas.reshape(height, width, 4)
