"""Tables of the parameters of a model with their standard errors and intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier

from latently.selection.frames import pandas
from latently.selection.refits import AXES

_PLACES = ("class", "component", "subcomponent", "feature", "feature_2", "factor", "factor_2")
_COUNTED = ("component", "subcomponent", "factor", "factor_2")
_NUMBERS = ("estimate", "standard_error", "low", "high")
_WEIGHTS = ("class_prior", "weights", "subweights")


def is_symmetric(shape):
    return len(shape) > 1 and shape[-1] == shape[-2]


def places_of(array, shape):
    """For every number of an array with these axes its index; of matrices up to the diagonal."""
    index = np.argwhere(np.ones(np.shape(array), dtype=bool))
    return index[index[:, -1] <= index[:, -2]] if is_symmetric(shape) else index


class ParameterIntervals:
    """Base of results: `intervals_`, and `summary()` in words; a result has `_numbers` and `basis`."""

    def __init__(self, estimates, shapes, names, *, method, level):
        self.method, self.level = method, level
        self._estimates, self._shapes, self._names = estimates, shapes, names

    def _numbers(self, name):
        """Standard errors and ends of the intervals, in the shape of the array."""
        raise NotImplementedError

    @property
    def basis(self):
        """What the intervals are, as a sentence."""
        raise NotImplementedError

    @property
    def intervals_(self):
        tables = []
        for name, estimate in self._estimates.items():
            shape = self._shapes[name]
            index = places_of(estimate, shape)
            at = tuple(index.T)
            columns: dict[str, Any] = {"parameter": np.full(len(index), name)}
            for axis, symbol in enumerate(shape):
                title = AXES[symbol] + ("_2" if symbol in shape[:axis] else "")
                places = index[:, axis]
                names = self._names.get(symbol)
                if names is not None:  # objects, since whole numbers beside missing ones would become 0.0
                    places = pandas().Series([names[i] for i in places], dtype=object)
                columns[title] = places
            numbers = (estimate, *self._numbers(name))
            values = [np.asarray(array)[at] if len(shape) else np.atleast_1d(array) for array in numbers]
            columns |= dict(zip(_NUMBERS, values, strict=True))
            tables.append(pandas().DataFrame(columns))
        table = pandas().concat(tables, ignore_index=True)
        known = [name for name in _PLACES if name in table]
        counts = [name for name in known if name in _COUNTED]
        return table[["parameter", *known, *_NUMBERS]].astype(dict.fromkeys(counts, "Int64"))

    def summary(self):
        """Text: intervals of the weights, and the standard errors of each parameter."""
        table = self.intervals_
        lines = [
            f"weight of {_place_of(row)}: {row['estimate']:.3g}, {100 * self.level:g} % interval "
            f"{row['low']:.3g} to {row['high']:.3g}"
            for _, row in table[table["parameter"].isin(_WEIGHTS)].iterrows()
        ]
        spread = table.groupby("parameter", sort=False)["standard_error"].agg(["size", "median", "max"])
        return "\n".join([self.basis, *lines, "standard errors by parameter", spread.to_string()])

    def __repr__(self):
        return self.summary()

    def _repr_html_(self):
        return self.intervals_._repr_html_()


def _place_of(row):
    places = (name for name in ("class", "component", "subcomponent") if name in row.index)
    return ", ".join(f"{name} {row[name]}" for name in places if not pandas().isna(row[name]))


def names_of_axes(model, feature_names=None, levels=None):
    """By the symbol of an axis, the names along it; others are numbered."""
    n_features = model.n_features_in_
    known = getattr(model, "feature_names_in_", range(n_features)) if feature_names is None else feature_names
    names = {"D": [str(name) for name in known]}
    if len(names["D"]) != n_features:
        raise ValueError(f"feature_names must have {n_features} names, not {len(names['D'])}")
    if is_classifier(model):
        names["L"] = model.classes_.tolist()
        if len(getattr(model, "intercept_", names["L"])) == 1:  # one question about two classes
            names["L"] = names["L"][1:]
    columns = getattr(getattr(model, "densities_", [model])[0], "columns_", ())
    return names | _names_of_columns(columns, names["D"], levels or {})


def _names_of_columns(columns, names, levels):
    """Names along the axes of a mixture of mixed columns: of columns, and of levels of categories."""
    kinds = {"N": ("number", "date"), "O": ("ordinal",), "C": ("count",)}
    named = list(zip(names, columns, strict=False))
    found = {symbol: [name for name, one in named if one.kind in own] for symbol, own in kinds.items()}
    of_categories = [
        f"{name} = {levels[name][int(level)] if name in levels else level}"
        for name, one in named
        if one.kind == "category"
        for level in one.levels
    ]
    return found | {"M": of_categories}
