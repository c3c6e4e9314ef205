"""Building blocks of sections, and formatting of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latently.report._drawing import THIN
from latently.report._images import data_uri, sprite
from latently.report._markup import element

MOST_FEATURES = 40  # of a table or heat map
MOST_GROUPS = 30


@dataclass(frozen=True)
class Section:
    identifier: str
    title: str
    body: Any


def table(caption, heads, lines, folded=False):
    """A table with a header; a folded one opens on a click."""
    head = "" if heads is None else element("tr", *[element("th", name, scope="col") for name in heads])
    whole = element(
        "table",
        element("caption", caption, class_="unseen" if folded else None),
        element("thead", head) if head else "",
        element("tbody", *lines),
    )
    whole = scrolled(whole, caption)
    return element("details", element("summary", caption), whole) if folded else whole


def line(name, value):
    return element("tr", element("th", name, scope="row"), element("td", value, class_="number"))


def scrolled(content, name):
    """A scrollable container for wide content, accessible by keyboard."""
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=name)


def figure(chart, name, caption=None):
    return element("figure", scrolled(chart, name), element("figcaption", caption) if caption else "")


def picture(rows, facts, *, limits, n_columns, alt, caption):
    """Rows as images in lines of `n_columns`; see `sprite` for the limits."""
    pixels = sprite(rows, facts.image_shape, n_columns=n_columns, limits=limits)
    height, width = pixels.shape[:2]
    zoom = max(1, min(6, 900 // width))
    image = element(
        "img", src=data_uri(pixels), alt=alt, width=width * zoom, height=height * zoom, class_="pixels"
    )
    return element("figure", image, element("figcaption", caption))


def plain(value):
    """Text of a plain value given by the user."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "; ".join(f"{name}: {plain(entry)}" for name, entry in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(plain(entry) for entry in value) or "none"
    return "–" if value is None else str(value)


def brightness(facts):
    """The values shown as black and white in images of rows."""
    return tuple(float(value) for value in np.nanquantile(facts.X, [0.005, 0.995]))


def count(n):
    return f"{int(n):,}".replace(",", THIN)


def percent(share):
    if 0 < share < 0.001:
        return "under 0.1\u00a0%"
    return f"{100 * share:.1f}".removesuffix(".0") + "\u00a0%"


def signed(value):
    return f"{value:+.1f}".replace("-", "−")


def several(n, noun):
    return f"one {noun}" if n == 1 else f"{count(n)} {plural(noun)}"


def plural(noun):
    if noun.endswith("xis"):  # axis
        return f"{noun[:-2]}es"
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def words(name):
    return str(name).removeprefix("n_").replace("_", " ")


def short(name):
    return name.removeprefix("component ")
