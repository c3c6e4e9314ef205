"""The rows as points for the browser, in columns of small integers to limit the file size."""

from __future__ import annotations

import base64

import numpy as np

from latently.report._charts import MARKS

MOST_POINTS = 50_000
_FEATURE_BYTES = 240_000  # for colours by feature, and images of rows
_MOST_FEATURES = 200
_NAME_BYTES = 200_000
_MANY = 20_000  # number of points from which only four axes are offered


def points(facts):
    """The data of the script as plain values, and the rows in it."""
    rows = drawn_rows(facts)
    axes, first = axes_of(facts, len(rows))
    features, width = coloured_features(facts, len(rows))
    groupings = [groups for groups in (facts.groups, facts.classes, facts.predicted) if groups is not None]
    groupings = list({groups.noun: groups for groups in groupings}.values())
    values = []
    if facts.scores is not None:
        values.append(column(facts.score_name, facts.scores[rows], 2))
    certainty = None  # its place among the values
    if facts.groups is not None and facts.groups.probabilities is not None and len(facts.groups.names) > 1:
        certainty, largest = len(values), np.max(facts.groups.probabilities[rows], axis=1)
        values.append(column("certainty", largest, 1, limits=(0.0, 1.0)))
    values += [
        column(facts.feature_names[j], facts.shown[rows, j], width)
        | {"feature": int(j)}
        | facts.levels.plain(int(j))
        for j in features
    ]
    n_others = len(values) - len(features)
    most = n_others + int(np.argmax(facts.informative[features])) if len(features) else 0
    names = None if facts.row_names is None else [facts.row_names[i] for i in rows]
    if names is not None and sum(map(len, names)) > _NAME_BYTES:
        names = None
    whole = len(features) == facts.X.shape[1]
    numbers = facts.row_numbers[rows]
    consecutive = np.array_equal(numbers, np.arange(1, len(rows) + 1))
    return {
        "count": len(rows),
        "marks": MARKS,
        "names": names,
        "rows": None if consecutive else _gaps(numbers),
        "axes": [column(name, values_of[rows], 2) for name, values_of in axes],
        "first": first,
        "groups": [
            {
                "noun": groups.noun,
                "kind": groups.kind,
                "names": groups.names,
                "width": 1 if len(groups.names) <= 256 else 2,
                "data": encoded(groups.codes[rows].astype("u1" if len(groups.names) <= 256 else "<u2")),
            }
            for groups in groupings
        ],
        "certainty": certainty,
        "coloured": 0 if n_others else most,  # the value that colours rows without groups
        "values": values,
        "picture": list(facts.image_shape) if facts.image_shape and whole else None,
    }, rows


def _gaps(numbers):
    """Row numbers by the steps between them, which are small."""
    gaps = np.diff(numbers, prepend=0)
    width = 1 if gaps.min() >= 0 and gaps.max() < 256 else 4
    return {"width": width, "data": encoded(gaps.astype("u1" if width == 1 else "<i4"))}


def drawn_rows(facts):
    """All rows, or a sample that includes the least probable ones."""
    n = len(facts.X)
    if n <= MOST_POINTS:
        return np.arange(n)
    kept = np.zeros(n, dtype=bool)
    if facts.unusual is not None:
        kept[facts.unusual.rows[: MOST_POINTS // 50]] = True
    others = np.flatnonzero(~kept)
    drawn = np.random.default_rng(0).choice(others, MOST_POINTS - np.count_nonzero(kept), replace=False)
    kept[drawn] = True
    return np.flatnonzero(kept)


def axes_of(facts, n_points):
    """Names and values of the available axes, and the indices of the initial two."""
    order = telling_factors(facts)[: 2 if n_points > _MANY else 8]
    factors = sorted(order)
    found = [(f"{facts.factor_noun} {j + 1}", facts.factors[:, j]) for j in factors]
    found += [(f"principal axis {j}", values) for j, values in enumerate(facts.principal.T, 1)]
    if len(found) < 2 and facts.scores is not None:
        found.append((facts.score_name, np.maximum(facts.scores, _lowest(facts.scores))))
    if len(found) < 2:
        found.append(("row", facts.row_numbers.astype(float)))
    if len(factors) >= 2 and not facts.each_has_its_own_factors:
        return found, sorted(factors.index(j) for j in order[:2])
    begin = min(len(factors), len(found) - 2)
    return found, [begin, begin + 1]


def telling_factors(facts):
    """Factors, ordered by how well they separate the groups."""
    Z = facts.factors
    if Z is None:
        return []
    if facts.profiles is None:
        return list(range(Z.shape[1]))
    codes, sizes = facts.groups.codes, np.maximum(facts.groups.sizes, 1)
    means = np.stack([np.bincount(codes, z, len(sizes)) / sizes for z in Z.T], axis=1)  # (K, q)
    within = np.mean((Z - means[codes]) ** 2, axis=0)
    return np.argsort(within / np.maximum(Z.var(axis=0), np.finfo(float).tiny), kind="stable").tolist()


def _lowest(values):
    """The lowest finite value."""
    finite = values[np.isfinite(values)]
    return finite.min() if finite.size else 0.0


def coloured_features(facts, n_points):
    """Features whose values are stored with the points, and the bytes per value."""
    D = facts.X.shape[1]
    cells = n_points * min(D, _MOST_FEATURES)
    width = next((width for width in (4, 2) if width * cells <= _FEATURE_BYTES), 1)
    most = int(np.clip(_FEATURE_BYTES // (width * n_points), 3, _MOST_FEATURES))
    return facts.strongest(facts.informative, min(D, most)), width


def column(name, values, width, limits=None):
    """Values as integers of 1 or 2 bytes between two limits, the largest for missing ones, or as floats."""
    values = np.asarray(values, dtype=float)
    finite = values[np.isfinite(values)]
    if limits is None:
        limits = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    low, high = limits
    if width == 4:
        return {"name": name, "low": low, "high": high, "width": 4, "data": encoded(values.astype("<f4"))}
    levels = 256**width - 2
    clipped = np.clip(np.where(np.isnan(values), low, values), low, high)
    codes = np.round((clipped - low) / (high - low or 1.0) * levels)
    codes = np.where(np.isnan(values), levels + 1, codes).astype("<u2" if width == 2 else "u1")
    return {"name": name, "low": low, "high": high, "width": width, "data": encoded(codes)}


def encoded(array):
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
