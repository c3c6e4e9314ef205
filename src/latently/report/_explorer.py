"""The explorer: rows that the model makes at any code, and what it makes of rows of the data."""

from __future__ import annotations

import numpy as np

from latently.report._makers import Gaussians, as_plain, maker_of, packed
from latently.report._markup import element, join, script_data
from latently.report._parts import Section, brightness, count, plural, several
from latently.report._points import drawn_rows, encoded

_ROW_BYTES = {True: 600_000, False: 150_000}  # of the rows that are kept whole, if they are images or not
_FEWEST_ROWS = 40
_MOST_UNUSUAL = 60
_MOST_SLIDERS = 12
_NEVER_BELOW = 0.01  # quantile of log densities above which a row is usual, if there is no threshold


def explorer(facts):
    maker = maker_of(facts)
    if maker is None:
        return None
    payload, n_kept = _payload(facts, maker)
    makes = "image" if facts.image_shape else "row"
    has_density = isinstance(maker, Gaussians) and maker.has_density
    move = f"Move the {plural(maker.noun)}" if maker.n_codes else "Choose a component"
    text = f"{move} to see the {makes} that the model makes there. Pick a row of the data to "
    text += "see its code, what the model makes of it, and the rows nearest to it"
    tells = has_density and not facts.image_shape
    text += ", and what would have to change for it to be usual." if tells else "."
    if n_kept < facts.n_rows:
        text += f" This page keeps {count(n_kept)} of {several(facts.n_rows, 'row')} whole, the most unusual "
        text += "among them."
    body = [
        element("p", text),
        element("noscript", element("p", "The explorer needs a browser with JavaScript.")),
        element(
            "div",
            _controls(facts, maker),
            _made(facts, has_density),
            _row(facts),
            _walk(),
            id="explorer",
            class_="explorer",
        ),
        script_data("explorer-data", payload),
    ]
    return Section("explore", "Explorer", join(body))


# -- what is shown -------------------------------------------------------------------------------------------


def _controls(facts, maker):
    names = _component_names(facts, maker)
    choice = ""
    if len(names) > 1:
        options = [element("option", name, value=k) for k, name in enumerate(names)]
        choice = element("label", "Component ", element("select", *options, id="component"))
    sources = [element("option", "the whole model", value="all")]
    sources += [element("option", name, value=f"k{k}") for k, name in enumerate(names) if len(names) > 1]
    if facts.classes is not None:
        sources += [
            element("option", f"class {name}", value=f"c{c}") for c, name in enumerate(facts.classes.names)
        ]
    return element(
        "div",
        choice,
        element("div", id="sliders", class_="sliders"),
        element(
            "div",
            element("button", "Back to the mean", type="button", id="to-mean"),
            element("span", id="more-codes", class_="quiet"),
            class_="line",
        ),
        element(
            "div",
            element("label", "Draw from ", element("select", *sources, id="draw-from")),
            element("button", "Draw", type="button", id="draw"),
            element("label", element("input", type="checkbox", id="with-noise"), " with noise")
            if isinstance(maker, Gaussians)
            else "",
            class_="line",
        ),
        id="maker",
        role="group",
        aria_label="Code",
    )


def _made(facts, has_density):
    kind = "image" if facts.image_shape else "row"
    shown = (
        element(
            "div",
            element(
                "figure",
                element("canvas", id="made-image", role="img", aria_label="The image that the model makes"),
                element("figcaption", "made by the model"),
            ),
            element(
                "figure",
                element("canvas", id="row-image", role="img", aria_label="The row of the data"),
                element("figcaption", id="row-caption"),
                id="row-figure",
                hidden=True,
            ),
            element(
                "figure",
                element("canvas", id="gap-image", role="img", aria_label="The row minus its reconstruction"),
                element("figcaption", "difference: blue is higher in the row, orange lower"),
                id="gap-figure",
                hidden=True,
            ),
            class_="canvases",
        )
        if facts.image_shape
        else element("div", id="made-row", class_="bars")
    )
    return element(
        "div",
        element("h3", f"The {kind} made there"),
        shown,
        element("p", id="made-told", role="status", aria_live="polite") if has_density else "",
        class_="made",
    )


def _row(facts):
    return element(
        "div",
        element("h3", "A row of the data"),
        element(
            "div",
            element(
                "label", "Row ", element("input", id="row-choice", type="text", size=12, autocomplete="off")
            ),
            element("button", "Show", type="button", id="row-show"),
            element("button", "A random row", type="button", id="row-random"),
            element("button", "The most unusual row", type="button", id="row-unusual")
            if facts.scores is not None
            else "",
            class_="line",
        ),
        element("div", id="row-told", role="status", aria_live="polite"),
        id="row-form",
        role="group",
        aria_label="A row of the data",
    )


def _walk():
    return element(
        "div",
        element("h3", "A walk between two rows"),
        element(
            "div",
            element(
                "label",
                "From row ",
                element("input", id="walk-from", type="text", size=8, autocomplete="off"),
            ),
            element(
                "label", "to row ", element("input", id="walk-to", type="text", size=8, autocomplete="off")
            ),
            element(
                "label",
                element("span", "Place on the way", class_="unseen"),
                element("input", id="walk", type="range", min=0, max=100, value=0, disabled=True),
            ),
            element("button", "Walk", type="button", id="walk-go"),
            class_="line",
        ),
        element("p", id="walk-told", role="status", aria_live="polite"),
        id="walk-form",
        role="group",
        aria_label="A walk between two rows",
    )


def _component_names(facts, maker):
    if not isinstance(maker, Gaussians):
        return []
    K = len(maker.weights)
    if facts.groups is not None and facts.groups.noun == "component" and len(facts.groups.names) == K:
        return facts.groups.names
    if maker.class_of is not None:
        names = [f"class {facts.model.classes_[c]}" for c in maker.class_of]
        if len(set(names)) == K:
            return names
        nth = [names[:k].count(name) for k, name in enumerate(names)]
        return [f"{name}, component {j}" for name, j in zip(names, nth, strict=True)]
    return [f"{'component' if facts.flat is facts.model else 'sub-component'} {k}" for k in range(K)]


# -- what the script is given --------------------------------------------------------------------------------


def _payload(facts, maker):
    D = facts.X.shape[1]
    points = drawn_rows(facts)
    kept = kept_rows(facts, points)
    rows = points[kept]
    is_gaussian = isinstance(maker, Gaussians)
    centre = np.array(facts.mean) if is_gaussian else np.zeros(D)
    centre[[column.place for column in getattr(maker, "discrete", ())]] = 0.0
    codes = None if is_gaussian else np.asarray(facts.factors[rows], dtype=float)
    low, high = np.zeros(D), np.ones(D)
    there = ~np.isnan(facts.X).all(axis=0)
    low[there], high[there] = np.nanmin(facts.X[:, there], axis=0), np.nanmax(facts.X[:, there], axis=0)
    payload = {
        "maker": as_plain(maker, centre),
        "names": _component_names(facts, maker),
        "image": list(facts.image_shape) if facts.image_shape else None,
        "grey": list(brightness(facts)) if facts.image_shape else None,
        "features": None if facts.image_shape else facts.feature_names,
        "cells": None if facts.image_shape else [facts.levels.plain(j) for j in range(D)],
        "centre": packed(np.asarray(centre, dtype=float)),
        "offset": packed(np.array(facts.offset)),
        "scale": packed(np.array(facts.scale)),
        "deviation": packed(np.where(facts.deviation > 0, facts.deviation, 1.0)),
        "low": packed(low - centre),
        "high": packed(high - centre),
        "places": packed_integers(kept),
        "rows": _quantised(facts.X[rows] - centre),
        "codes": None if codes is None else packed(codes),
        "ranges": _ranges(facts, maker),
        "sliders": _sliders(facts, maker),
        "usual": _usual(facts),
        "scores": None if facts.scores is None else packed(_score_quantiles(facts)),
        "byClass": _components_of_classes(facts, maker),
    }
    return payload, len(rows)


def kept_rows(facts, points):
    """Indices into the points of the rows that are kept whole: all, or the most unusual ones and others."""
    D = facts.X.shape[1]
    most = max(_FEWEST_ROWS, _ROW_BYTES[facts.image_shape is not None] // (2 * D))
    if len(points) <= most:
        return np.arange(len(points))
    kept = np.zeros(len(points), dtype=bool)
    if facts.scores is not None:
        kept[np.argsort(facts.scores[points], kind="stable")[: min(_MOST_UNUSUAL, most // 4)]] = True
    others = np.flatnonzero(~kept)
    rng = np.random.default_rng(0)
    kept[rng.choice(others, most - np.count_nonzero(kept), replace=False)] = True
    return np.flatnonzero(kept)


def packed_integers(values):
    return {"kind": "u4", "shape": [len(values)], "data": encoded(np.asarray(values, dtype="<u4"))}


def _quantised(X):
    """Rows as 4-byte floats if they are few, else as integers of 2 bytes between limits of each column."""
    if X.size <= 100_000:
        return {"values": packed(X.astype(np.float32))}
    there = ~np.isnan(X)
    low = np.where(there.any(axis=0), np.min(np.where(there, X, np.inf), axis=0), 0.0)
    high = np.where(there.any(axis=0), np.max(np.where(there, X, -np.inf), axis=0), 0.0)
    span = np.where(high > low, high - low, 1.0)
    levels = np.where(there, np.round((np.where(there, X, low) - low) / span * 65534), 65535)
    codes = {"kind": "u2", "shape": list(X.shape), "data": encoded(levels.astype("<u2"))}
    return {"codes": codes, "low": packed(low), "span": packed(span)}


def _ranges(facts, maker):
    """(K, q, 2) limits of the sliders, or (1, q, 2)."""
    if isinstance(maker, Gaussians):
        spread = np.ones_like(maker.shift) if maker.spread is None else np.sqrt((maker.spread**2).sum(axis=2))
        centre = maker.shift + maker.origin
        return packed(np.stack([centre - 3 * spread, centre + 3 * spread], axis=2))
    low, high = np.quantile(facts.factors, [0.002, 0.998], axis=0)
    wide = np.where(high > low, 0.0, 0.5)
    return packed(np.stack([low - wide, high + wide], axis=1)[None])


def _sliders(facts, maker):
    """Indices of the codes with sliders: all, or those with the largest effect."""
    q = maker.n_codes
    if isinstance(maker, Gaussians):
        effect = np.einsum("k,kdq->q", np.resize(maker.weights, len(maker.maps)), maker.maps**2)
    else:
        first = next(parts["weights"] for _, parts in maker.layers if "weights" in parts)
        effect = np.var(facts.factors, axis=0) * (first.reshape(q, -1) ** 2).sum(axis=1)
    return sorted(np.argsort(-effect, kind="stable")[:_MOST_SLIDERS].tolist())


def _usual(facts):
    """The log density from which a row is usual."""
    if facts.scores is None:
        return None
    if facts.unusual is not None and facts.unusual.threshold is not None:
        return facts.unusual.threshold
    return float(np.quantile(facts.scores, _NEVER_BELOW))


def _score_quantiles(facts):
    finite = facts.scores[np.isfinite(facts.scores)]
    return np.quantile(finite, np.linspace(0, 1, 201)) if len(finite) else np.zeros(201)


def _components_of_classes(facts, maker):
    """(C, K) how often a row of each class is in each component; None without classes or components."""
    if facts.classes is None or not isinstance(maker, Gaussians):
        return None
    K, C = len(maker.weights), len(facts.classes.names)
    if K == 1 or facts.groups is None:
        return packed(np.ones((C, K)))
    if facts.groups.noun == "component" and len(facts.groups.names) == K:
        both = np.bincount(facts.classes.codes * K + facts.groups.codes, minlength=C * K)
        return packed(both.reshape(C, K).astype(float))
    if maker.class_of is not None:
        table = np.ones((C, K))
        own = maker.class_of == np.arange(len(facts.model.classes_))[:, None]
        table[: len(own)] = own * maker.weights
        return packed(table)
    return None
