"""Charts as SVG. Colours are classes of the style sheet, which has light, dark and print versions."""

from __future__ import annotations

import math

import numpy as np

from latently.report._drawing import apart, decimals, drawing, number, padded, tick_labels, ticks
from latently.report._markup import element

_LETTER = 6.4  # width of a letter at the font size of labels
_LONGEST = 30  # letters of a label


def swatch(position, kind="c"):
    """The marker of a component ("c") or class ("d"): a colour and, after the eighth, another shape."""
    return element(
        "svg",
        element("path", d=MARKS[position // 8 % 4], class_=f"{kind}{position % 8}"),
        class_="swatch",
        viewBox="-6 -6 12 12",
        aria_hidden="true",
    )


MARKS = (
    "M-5,0A5,5 0 1 1 5,0A5,5 0 1 1 -5,0Z",
    "M-4.5,-4.5H4.5V4.5H-4.5Z",
    "M0,-5L5,4.2H-5Z",
    "M0,-5.5L5.5,0L0,5.5L-5.5,0Z",
)


def shares(parts, described, kind="c"):
    """A stacked bar of parts (index of the group, fraction, label)."""
    left, drawn = 0.0, []
    for position, share, name in parts:
        if share > 0:
            mark = element(
                "rect",
                element("title", name),
                x=left,
                y=0,
                width=share * 100,
                height=10,
                class_=f"{kind}{position % 8}",
            )
            drawn.append(mark)
        left += 100 * share
    return element(
        "svg",
        *drawn,
        class_="bar",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=described,
    )


def small_histogram(counts, described, **brush):
    highest = max(np.max(counts), 1)
    marks = [
        element(
            "rect",
            x=float(6 * i),
            y=float(18 - 18 * count / highest),
            width=5,
            height=float(18 * count / highest),
        )
        for i, count in enumerate(counts)
    ]
    width = 6 * len(counts)
    return element(
        "svg",
        element("title", described),
        *marks,
        class_="spark",
        viewBox=f"0 0 {width} 18",
        role="img",
        aria_label=described,
        **brushed(len(counts), (0, width, 0, 18), **brush),
    )


def brushed(bins, box, *, column=None, low=None, high=None):
    """Attributes by which the script selects rows from a histogram: its column, limits and place."""
    if column is None:
        return {}
    left, right, top, bottom = (int(side) for side in box)
    place = {"data_left": left, "data_right": right, "data_top": top, "data_bottom": bottom}
    return {
        "data_column": column,
        "data_low": repr(float(low)),
        "data_high": repr(float(high)),
        "data_bins": bins,
    } | place


def heat_map(
    identifier,
    values,
    rows,
    columns,
    *,
    title,
    described,
    row_axis,
    column_axis,
    limit=None,
    best=None,
    shades=None,
    written=None,
    cells=None,
):
    """A heat map with numbers.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        Values written in the cells; NaN leaves a cell empty.
    limit : float, optional
        Absolute value with full shade.
    best : tuple, optional
        Cell to be framed.
    shades : ndarray, optional
        Shades between 0 and 1, in place of signed shades of the values.
    cells : callable, optional
        More attributes of a cell, by its line and column.
    written : callable, optional
        Formatter of values; by default two decimals, so that columns line up.
    """
    values = np.asarray(values, dtype=float)
    signed = shades is None
    shades = np.clip(np.abs(values) / (limit or 1.0), 0, 1) if signed else shades
    rows, columns = [str(name) for name in rows], [str(name) for name in columns]
    written = written or decimals
    texts = [[written(value) if np.isfinite(value) else "" for value in line] for line in values]
    widest = max((len(text) for line in texts for text in line), default=1)
    longest = _LETTER * min(_LONGEST, max(map(len, columns)))
    width, height = max(46.0, (widest + 2) * _LETTER), 22.0
    slanted = longest > width
    slant = 0.72 * longest if slanted else 8.0  # space for slanted labels, up and to the right
    left = 14 + _LETTER * min(_LONGEST, max(map(len, [*rows, row_axis])))
    top = 38 + slant
    right = left + max(width * len(columns) + slant, _LETTER * len(column_axis))
    drawn = [
        element("text", row_axis, x=left - 8, y=top - 8, text_anchor="end", class_="axis"),
        element("text", column_axis, x=left, y=14, class_="axis"),
    ]
    for j, name in enumerate(columns):
        x = left + width * (j + 0.5)
        turn = f"rotate(-45 {x:.1f} {top - 6:.1f})" if slanted else None
        anchor = "start" if slanted else "middle"
        drawn.append(label(name, x=x, y=top - 6, text_anchor=anchor, transform=turn))
    for i, name in enumerate(rows):
        y = top + height * i
        drawn.append(label(name, x=left - 8, y=y + 15, text_anchor="end"))
        for j, value in enumerate(values[i]):
            if not np.isfinite(value):
                continue
            x, shade = left + width * j, float(shades[i, j])
            kind = ("plus" if value >= 0 else "minus") if signed else "level"
            drawn.append(
                element(
                    "g",
                    element("title", f"{name}, {columns[j]}: {texts[i][j]}"),
                    element(
                        "rect",
                        x=x + 1,
                        y=y + 1,
                        width=width - 2,
                        height=height - 2,
                        rx=2,
                        class_=kind,
                        fill_opacity=0.04 + 0.96 * shade,
                    ),
                    element(
                        "text",
                        texts[i][j],
                        x=x + width / 2,
                        y=y + 15,
                        text_anchor="middle",
                        class_=_ink(shade),
                    ),
                    **(cells(i, j) if cells else {}),
                )
            )
    if best is not None:
        i, j = best
        drawn.append(
            element(
                "rect",
                x=left + width * j,
                y=top + height * i,
                width=width,
                height=height,
                rx=3,
                class_="frame",
            )
        )
    return drawing(identifier, right, top + height * len(rows) + 6, drawn, title=title, described=described)


def _ink(shade):
    """Class of text that is readable on a shade; in between it depends on light or dark mode."""
    return "on" if shade > 0.8 else "between" if shade > 0.6 else "off"


def label(name, **attributes):
    """A label; if it is too long it is truncated, and shown in full on hovering."""
    if len(name) <= _LONGEST:
        return element("text", name, **attributes)
    return element("text", element("title", name), name[: _LONGEST - 1] + "…", **attributes)


def convergence(identifier, history, *, objective):
    """The objective, and its distance to the final value, at every iteration."""
    history = np.asarray(history, dtype=float)
    steps = np.arange(len(history))
    last = history[-1]
    left = np.abs(last - history[:-1])
    left = np.maximum(left, max(1e-12, 1e-12 * abs(last)))
    whole = _Panel(0, "iteration", objective, steps, history)
    rest = _Panel(380, "iteration", "distance to final value", steps[:-1], np.log10(left), powers=True)
    described = (
        f"From {' to '.join(apart(history[0], last))} in {len(history) - 1} iterations. "
        "On the right, the distance to the last value on a logarithmic scale."
    )
    return drawing(
        identifier,
        740,
        250,
        [*whole.drawn(), *rest.drawn()],
        title="Convergence",
        described=described,
        fluid=True,
    )


def curves(identifier, named, *, x_name="epoch", title="Training"):
    """One or two curves over epochs, side by side, by name."""
    panels = [
        _Panel(380 * number, x_name, name, np.arange(1, len(values) + 1), np.asarray(values, dtype=float))
        for number, (name, values) in enumerate(named.items())
    ]
    described = ". ".join(
        f"{name}: from {' to '.join(apart(values[0], values[-1]))}" for name, values in named.items()
    )
    parts = [part for panel in panels for part in panel.drawn()]
    width = 360 if len(panels) == 1 else 740
    return drawing(identifier, width, 250, parts, title=title, described=described, fluid=True)


def sources(identifier, values, mapped):
    """How sources (n,) are distributed, and what a map makes of them."""
    counts, edges = np.histogram(values, bins=40)
    centres, start = 0.5 * (edges[1:] + edges[:-1]), float(edges[0])
    order = np.argsort(values, kind="stable")
    left = _Panel(0, "s", "percent of sources", centres, 100 * counts / len(values), start=start)
    right = _Panel(380, "s", "f(s)", values[order], mapped[order], start=start)
    described = (
        f"Sources between {' and '.join(apart(edges[0], edges[-1]))}, features f(s) between "
        f"{' and '.join(apart(mapped.min(), mapped.max()))}."
    )
    parts = [*left.drawn(), *right.drawn()]
    return drawing(identifier, 740, 250, parts, title="Sources", described=described, fluid=True)


class _Panel:
    """A curve in a panel of 360 by 250; without `start`, x are numbers of steps from 0."""

    def __init__(self, shift, x_name, y_name, x, y, powers=False, start=None):
        self.shift, self.x_name, self.y_name, self.x, self.y = shift, x_name, y_name, x, y
        self.powers, self.start = powers, start

    def drawn(self):
        left, right, top, bottom = self.shift + 66, self.shift + 350, 30, 206
        if self.start is None:
            x_low, x_high = 0.0, max(float(self.x[-1]), 1.0)
        else:
            x_low, x_high = padded(self.start, float(self.x[-1]))
        x_ticks = ticks(x_low, x_high, 5, whole=self.start is None)
        y_low, y_high = padded(float(np.min(self.y)), float(np.max(self.y)))
        y_ticks = ticks(y_low, y_high, 5, whole=self.powers)
        place_x = lambda x: left + (right - left) * (x - x_low) / (x_high - x_low)
        place_y = lambda y: bottom - (bottom - top) * (y - y_low) / (y_high - y_low)
        parts = [element("text", self.y_name, x=left - 50, y=16, class_="axis")]
        for tick, shown in zip(y_ticks, tick_labels(y_ticks), strict=True):
            shown = f"1e{shown}" if self.powers else shown
            parts.append(
                element("line", x1=left, x2=right, y1=place_y(tick), y2=place_y(tick), class_="grid")
            )
            parts.append(element("text", shown, x=left - 8, y=place_y(tick) + 4, text_anchor="end"))
        for tick, shown in zip(x_ticks, tick_labels(x_ticks), strict=True):
            parts.append(element("text", shown, x=place_x(tick), y=bottom + 18, text_anchor="middle"))
        parts.append(
            element(
                "text", self.x_name, x=(left + right) / 2, y=bottom + 38, text_anchor="middle", class_="axis"
            )
        )
        points = thinned(self.x, self.y)
        line = "M" + "L".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in points)
        parts.append(element("path", d=line, class_="curve"))
        parts.append(
            element(
                "circle", cx=float(place_x(self.x[-1])), cy=float(place_y(self.y[-1])), r=3.5, class_="dot"
            )
        )
        return parts


def thinned(x, y, most=400):
    """Points of a curve, subsampled if it is long, including the last."""
    every = -(-len(x) // most)
    kept = sorted({*range(0, len(x), every), len(x) - 1})
    return [(float(x[i]), float(y[i])) for i in kept]


def histogram(identifier, values, *, name, threshold, threshold_name, column=None, limits=None):
    """Histogram of values, with a line at a threshold.

    Without limits, the first bin has all values that are far below the others.
    """
    finite = values[np.isfinite(values)]
    low, high = limits or padded(*_range_without_tail(finite, threshold))
    counts, edges = np.histogram(
        np.clip(finite, low, high), bins=min(60, max(8, int(2 * math.sqrt(len(finite))))), range=(low, high)
    )
    left, right, top, bottom = 60.0, 730.0, 30.0, 196.0
    place_x = lambda x: left + (right - left) * (x - low) / (high - low)
    highest = max(int(np.max(counts)), 1)
    place_y = lambda y: bottom - (bottom - top) * y / highest
    drawn = [element("text", "rows", x=left - 10, y=16, text_anchor="end", class_="axis")]
    for tick in ticks(0, highest, 4, whole=True):
        drawn.append(element("line", x1=left, x2=right, y1=place_y(tick), y2=place_y(tick), class_="grid"))
        drawn.append(element("text", f"{tick:.0f}", x=left - 8, y=place_y(tick) + 4, text_anchor="end"))
    for count, start, end in zip(counts, edges[:-1], edges[1:], strict=True):
        below = threshold is not None and end <= threshold
        if count:
            drawn.append(
                element(
                    "rect",
                    element("title", f"{count} rows between {number(start)} and {number(end)}"),
                    x=float(place_x(start)) + 0.5,
                    y=float(place_y(count)),
                    width=max(float(place_x(end) - place_x(start)) - 1, 0.5),
                    height=float(bottom - place_y(count)),
                    class_="rare" if below else "usual",
                )
            )
    x_ticks = ticks(low, high, 7)
    for tick, shown in zip(x_ticks, tick_labels(x_ticks), strict=True):
        drawn.append(element("text", shown, x=float(place_x(tick)), y=bottom + 18, text_anchor="middle"))
    drawn.append(
        element("text", name, x=(left + right) / 2, y=bottom + 38, text_anchor="middle", class_="axis")
    )
    if threshold is not None and low <= threshold <= high:
        x = float(place_x(threshold))
        near_end = x > (left + right) / 2
        drawn.append(element("line", x1=x, x2=x, y1=top - 8, y2=bottom, class_="threshold"))
        drawn.append(
            element(
                "text",
                threshold_name,
                x=x + (-6 if near_end else 6),
                y=top,
                text_anchor="end" if near_end else "start",
                class_="strong",
            )
        )
    lowest, middle, highest = (number(value) for value in np.quantile(finite, [0, 0.5, 1]))
    described = f"{len(finite)} rows between {lowest} and {highest}, median {middle}."
    if threshold is not None:
        described += f" {threshold_name}: {number(threshold)}."
    brush = brushed(len(counts), (left, right, top, bottom), column=column, low=low, high=high)
    title = f"Rows by {name}"
    return drawing(identifier, 740, 240, drawn, title=title, described=described, fluid=True, **brush)


def probability_plot(identifier, expected, observed):
    """Shares of held-out rows below the model's own quantiles; the diagonal is a model that fits."""
    left, right, top, bottom = 66.0, 306.0, 12.0, 252.0
    place_x = lambda share: left + (right - left) * float(share)
    place_y = lambda share: bottom - (bottom - top) * float(share)
    drawn = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        drawn.append(element("line", x1=left, x2=right, y1=place_y(tick), y2=place_y(tick), class_="grid"))
        drawn.append(element("text", f"{tick:g}", x=left - 8, y=place_y(tick) + 4, text_anchor="end"))
        drawn.append(element("text", f"{tick:g}", x=place_x(tick), y=bottom + 18, text_anchor="middle"))
    ends = {"x1": left, "y1": bottom, "x2": right, "y2": top}
    drawn.append(element("line", **ends, class_="threshold"))
    places = [f"{place_x(a):.1f},{place_y(b):.1f}" for a, b in zip(expected, observed, strict=True)]
    drawn.append(element("path", d="M" + "L".join(places), class_="curve"))
    middle = (left + right) / 2
    drawn.append(
        element("text", "expected share", x=middle, y=bottom + 38, text_anchor="middle", class_="axis")
    )
    turn = f"rotate(-90 18 {middle:.0f})"
    drawn.append(
        element("text", "share of rows", x=18, y=middle, text_anchor="middle", class_="axis", transform=turn)
    )
    farthest = max((abs(a - b) for a, b in zip(expected, observed, strict=True)), default=0.0)
    return drawing(
        identifier,
        right + 14,
        bottom + 46,
        drawn,
        title="Probability plot",
        described=f"The largest distance from the diagonal is {farthest:.2f}.",
    )


def _range_without_tail(values, threshold):
    """A range that shows the bulk; values far below are counted in the first bin."""
    low, high = float(np.min(values)), float(np.max(values))
    middle, quarter = np.quantile(values, [0.5, 0.25])
    farthest = middle - 12 * max(middle - quarter, np.finfo(float).tiny)
    if threshold is not None:
        farthest, low = min(farthest, threshold - 0.1 * abs(high - threshold)), min(low, threshold)
    return max(low, farthest), high
