"""What charts are drawn with: the SVG element, ticks, ranges, and numbers in few characters."""

from __future__ import annotations

import math

from latently.report._markup import element, join

THIN = "\u202f"  # non-breaking thousands separator


def drawing(identifier, width, height, parts, *, title, described, fluid=False, **attributes):
    """The SVG element of a chart, with a title and a description for accessibility.

    A fluid chart shrinks with the page.
    """
    return element(
        "svg",
        element("title", title, id=f"{identifier}-title"),
        element("desc", described, id=f"{identifier}-text"),
        join(parts),
        class_="chart fluid" if fluid else "chart",
        viewBox=f"0 0 {math.ceil(width)} {math.ceil(height)}",
        width=math.ceil(width),
        height=math.ceil(height),
        role="img",
        aria_labelledby=f"{identifier}-title {identifier}-text",
        **attributes,
    )


def ticks(low, high, about, whole=False):
    """Round numbers between two limits."""
    step = 10 ** math.floor(math.log10((high - low) / about))
    step = next(step * m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= about)
    if whole:
        step = max(1, round(step))
    first = math.ceil(low / step - 1e-9)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_labels(found):
    """Tick labels with the fewest decimals that distinguish them."""
    step = found[1] - found[0] if len(found) > 1 else 1.0
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if digits > 6 or max(map(abs, found), default=0.0) >= 1e6:
        return [number(tick) for tick in found]
    return [f"{tick + 0.0:.{digits}f}".replace("-", "−") for tick in found]


def apart(first, last):
    """Two numbers with enough decimals to show that they differ."""
    gap = abs(last - first)
    digits = min(8, max(2, 1 - math.floor(math.log10(gap)))) if gap > 0 else 2
    return tuple(f"{value:.{digits}f}".replace("-", "−") for value in (first, last))


def padded(low, high):
    """A slightly wider range that is never empty, nor as narrow as errors of rounding."""
    scale = max(abs(low), abs(high))
    space = 0.04 * (high - low) if high - low > 1e-9 * scale else max(scale, 1.0) * 1e-3
    return low - space, high + space


def decimals(value):
    shown = f"{value:.2f}"
    return "0.00" if shown == "-0.00" else shown.replace("-", "−")


def number(value):
    """A number with few characters."""
    value = float(value)
    if not math.isfinite(value):
        return "-∞" if value < 0 else "∞"
    size = abs(value)
    if size >= 1e9 or 0 < size < 1e-3:
        return f"{value:.2g}".replace("-", "−")
    if size >= 10_000:
        return f"{value:,.0f}".replace(",", THIN).replace("-", "−")
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    shown = f"{value:.{digits}f}"
    if "." in shown:
        shown = shown.rstrip("0").rstrip(".")
    return "0" if shown in ("-0", "") else shown.replace("-", "−")
