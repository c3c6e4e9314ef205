"""Binary codes: which rows have which features, and which features go together."""

from __future__ import annotations

from collections import Counter

import numpy as np

from latently.distributions import left_ordered_form
from latently.report._images import data_uri
from latently.report._markup import element, join
from latently.report._parts import Section, count, picture, several

_MOST = 400  # rows of the picture
_WIDTH = 320  # pixels, about
_SHOWN = 5  # combinations that are listed
_MOST_PARTS = 48


def codes(facts):
    """None unless the model gives rows binary codes of their own."""
    if not hasattr(facts.model, "predict_codes"):
        return None
    found = np.asarray(facts.asked("predict_codes")).astype(int)
    if found.ndim != 2:
        return None
    n, K = found.shape
    shares = ", ".join(f"{k}: {count(size)}" for k, size in enumerate(found.sum(axis=0), 1))
    together = Counter(tuple((np.flatnonzero(row) + 1).tolist()) for row in found)
    listed = "; ".join(
        f"{' + '.join(map(str, code)) or 'none'}: {count(size)}"
        for code, size in together.most_common(_SHOWN)
    )
    body = [
        element(
            "p",
            f"{several(K, 'binary feature')}, of which a row may have any number. Rows that have each: "
            f"{shares or 'none'}. {several(len(together), 'combination')} in all; most frequent: {listed}.",
        )
    ]
    if K:
        image = element(
            "img",
            src=data_uri(_picture(found)),
            alt="The codes of the rows, sorted",
            width=_WIDTH,
            height=max(min(n, _MOST), 240),
            class_="pixels",
        )
        caption = (
            "A line for each row, sorted by code, and a column for each feature, the most frequent first: "
            "dark where it is present."
        )
        body.append(element("figure", image, element("figcaption", caption)))
    parts = getattr(facts.model, "components_", None)
    if K and parts is not None and facts.image_shape is not None:
        parts, most = np.asarray(parts)[:_MOST_PARTS], float(np.abs(parts).max()) or 1.0
        caption = "The features, from feature 1 on: what each adds to a row."
        shown = picture(
            parts,
            facts,
            limits=(0.0, most),
            n_columns=min(12, len(parts)),
            alt="The features",
            caption=caption,
        )
        body.append(shown)
    return Section("codes", "Codes", join(body))


def _picture(found):
    """RGBA levels (height, width, 4) of the left-ordered codes of at most `_MOST` rows."""
    by_size = found[:, np.argsort(-found.sum(axis=0), kind="stable")]
    ordered = left_ordered_form(by_size[np.lexsort(1 - by_size[:, ::-1].T)])
    kept = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), _MOST)).astype(int))
    level = np.where(ordered[kept] == 1, 40, 235).astype(np.uint8)
    down, across = max(1, -(-240 // len(kept))), max(1, _WIDTH // level.shape[1])
    level = np.repeat(np.repeat(level, down, axis=0), across, axis=1)
    canvas = np.full((*level.shape, 4), 255, dtype=np.uint8)
    canvas[..., :3] = level[..., None]
    return canvas
