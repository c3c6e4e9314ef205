"""Fitted estimators as a header and named arrays, and back: how all models are saved.

Contents of a file:

    class, hyper-parameters      JSON values; hyper-parameters may also be arrays or estimators, or lists
    fitted.NAME                  the arrays of `_fitted_arrays()`, restored by `_set_fitted_arrays`
    exact.NAME                   parameters in full precision, for models that keep them (`_exact_arrays`)
    fit                          history, iterations, convergence
    layout                       JSON values on which the shapes of the arrays depend (`_layout_header`)
    rejection                    a calibrated threshold (`estimators.rejection`)
    more                         further JSON values (`_more_header`)
    parts                        nested parts (`_parts`): fitted estimators, named tensors of a torch module,
                                 or lists of these, up to a limited depth

An estimator implements `_fitted_arrays`, `_set_fitted_arrays` and `_check_options`; the other methods are
optional.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latently.backend.namespace import is_native, to_numpy
from latently.core import io
from latently.estimators.checks import exact_shapes
from latently.estimators.messages import warn_user

Arrays = dict[str, NDArray[Any]]

_MOST_LEVELS = 16  # of parts within parts
_MOST_PARTS = 100_000
# Hyper-parameters that are sizes of fitted arrays.
_SIZES = {"n_components", "n_factors", "n_groups", "n_subcomponents", "n_subfactors", "hidden_layer_sizes"}
# Hyper-parameters that stay behind: a file must not say where the next fit of its reader writes.
_OF_ONE_MACHINE = {"checkpoint", "verbose"}


def save(self: Any, path: str | os.PathLike[str]) -> None:
    """Write the fitted estimator to a file that `latently.load` reads.

    The file holds only arrays and text: reading it never runs code.

    Parameters
    ----------
    path : str or path-like
        Where to write; an existing file is replaced atomically.
    """
    left_out = LeftOut()
    header, arrays = _described(self, left_out)
    needed = self._needed_at_load() if hasattr(self, "_needed_at_load") else []
    if needed:
        given = ", ".join(f"{name}=..." for name in needed)
        warn_user(
            f"the file holds the parameters of {' and '.join(needed)}, but no code; reading it needs "
            f"latently.load(path, {given})"
        )
    for name in sorted(left_out - set(needed)):
        warn_user(f"{name} cannot be written to a file and is not saved")
    _check_that_it_can_be_read(self, header, arrays, left_out.classes, needed)
    io.write(path, header, arrays)


def _check_that_it_can_be_read(
    estimator: Any, header: dict[str, Any], arrays: Arrays, classes: dict[str, type], needed: list[str]
) -> None:
    """Raise an error instead of writing a file that `load` would refuse."""
    header = json.loads(json.dumps(header, allow_nan=False))
    if needed and any(getattr(estimator, name, None) is None for name in needed):
        return  # networks that whoever loads the file has to give
    given = {name: deepcopy(getattr(estimator, name)) for name in needed}
    try:
        rebuild(classes.__getitem__, header, arrays, given)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"this {type(estimator).__name__} cannot be saved, since its file could not be read: {error}. "
            "Were its parameters changed after the fit? Fit it again"
        ) from error


class LeftOut(set[str]):
    """Names of hyper-parameters that cannot be saved, and the classes that were met, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.classes: dict[str, type] = {}


# -- to a file ----------------------------------------------------------------------------------------


def _described(estimator: Any, left_out: LeftOut, level: int = 0) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a fitted estimator; adds names of hyper-parameters that cannot be saved."""
    header, arrays = _described_settings(estimator, left_out, level)
    fitted, exact = estimator._fitted_arrays(), _optional(estimator, "_exact_arrays")
    arrays |= {f"fitted.{name}": to_numpy(array) for name, array in fitted.items()}
    arrays |= {f"exact.{name}": to_numpy(array) for name, array in exact.items()}
    names = getattr(estimator, "feature_names_in_", None)
    header["feature_names"] = None if names is None else [str(name) for name in names]
    if hasattr(estimator, "history_"):
        arrays["fit.history"] = to_numpy(estimator.history_)
        header["n_iter"], header["n_passes"] = int(estimator.n_iter_), int(estimator.n_passes_)
        header["converged"] = bool(estimator.converged_)
    layout = _optional(estimator, "_layout_header")
    if layout:
        header["layout"] = layout
    rejection = getattr(estimator, "_rejection", None)
    if rejection is not None:
        header["rejection"] = rejection.for_file()
    more, parts = _optional(estimator, "_more_header"), _optional(estimator, "_parts")
    if more:
        header["more"] = more
    if parts:
        header["parts"], its_arrays = _described_part(dict(parts), left_out, level + 1)
        arrays |= {f"parts.{key}": array for key, array in its_arrays.items()}
    return header, arrays


def _optional(estimator: Any, method: str) -> dict[str, Any]:
    found: dict[str, Any] = getattr(estimator, method)() if hasattr(estimator, method) else {}
    return found


@dataclass(frozen=True)
class Tensors:
    """The arrays of a torch module by name, as a part of an estimator."""

    arrays: Mapping[str, Any] = field(default_factory=dict)


def _described_part(part: Any, left_out: LeftOut, level: int) -> tuple[dict[str, Any], Arrays]:
    """A node of the tree of parts: an estimator, tensors, a list or dict of nodes, or None."""
    if level > _MOST_LEVELS:
        raise ValueError(f"the estimator has parts nested deeper than {_MOST_LEVELS} levels")
    if part is None:
        return {"kind": "none"}, {}
    if isinstance(part, Tensors):
        return {"kind": "tensors"}, {name: to_numpy(array) for name, array in part.arrays.items()}
    if isinstance(part, (list, tuple, dict)):
        items = (
            list(part.items()) if isinstance(part, dict) else [(str(i), one) for i, one in enumerate(part)]
        )
        nodes: dict[str, Any] = {}
        arrays: Arrays = {}
        for name, one in items:
            nodes[name], its_arrays = _described_part(one, left_out, level + 1)
            arrays |= {f"{name}.{key}": array for key, array in its_arrays.items()}
        kind = "dict" if isinstance(part, dict) else "list"
        return {"kind": kind, "nodes": nodes if kind == "dict" else list(nodes.values())}, arrays
    header, arrays = _described(part, left_out, level)
    return {"kind": "estimator", **header}, arrays


def _described_settings(estimator: Any, left_out: LeftOut, level: int) -> tuple[dict[str, Any], Arrays]:
    """Class and hyper-parameters, some of which may be arrays or estimators."""
    ours = hasattr(estimator, "_fitted_arrays") and type(estimator).__module__.startswith("latently.")
    if not ours:
        raise TypeError(
            f"{type(estimator).__name__} is not a class of latently, so latently.load cannot read it"
        )
    if level > _MOST_LEVELS:
        raise ValueError(f"the estimator has estimators nested deeper than {_MOST_LEVELS} levels")
    left_out.classes[type(estimator).__name__] = type(estimator)
    arrays: Arrays = {}
    plain: dict[str, Any] = {}
    estimators: dict[str, Any] = {}
    mappings: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if name in _OF_ONE_MACHINE:
            continue
        if _may_be_array(name) and is_native(value):
            arrays[f"hyper.{name}"] = to_numpy(value)
        elif _may_be_array(name) and isinstance(value, (list, tuple, np.ndarray)):
            arrays[f"hyper.{name}"] = np.asarray(value, dtype=np.float64)
        elif value is None or isinstance(value, (bool, int, float, str)):
            plain[name] = value
        elif isinstance(value, np.generic):
            plain[name] = value.item()
        elif _are_sizes(value):
            plain[name] = _as_lists(value)
        elif isinstance(value, Mapping) and _are_sizes([*value, *value.values()], of_text=True):
            mappings[name] = [[key, _as_lists(entry)] for key, entry in value.items()]
        elif hasattr(value, "get_params"):
            estimators[name], its_arrays = _described_settings(value, left_out, level + 1)
            arrays |= {f"hyper.{name}.{key}": array for key, array in its_arrays.items()}
        elif isinstance(value, (list, tuple)) and all(hasattr(one, "get_params") for one in value):
            estimators[name] = []
            for i, one in enumerate(value):
                its_header, its_arrays = _described_settings(one, left_out, level + 1)
                estimators[name].append(its_header)
                arrays |= {f"hyper.{name}.{i}.{key}": array for key, array in its_arrays.items()}
        else:
            left_out.add(name)
    header = {"class": type(estimator).__name__, "hyper_parameters": plain}
    for name, found in (("hyper_estimators", estimators), ("hyper_mappings", mappings)):
        if found:
            header[name] = found
    return header, arrays


def _may_be_array(hyper_parameter: str) -> bool:
    return hyper_parameter in ("class_prior", "fixed_components") or (
        hyper_parameter.endswith("_init") and hyper_parameter != "n_init"
    )


def _are_sizes(value: Any, *, of_text: bool = False) -> bool:
    """Whether this is a sequence of integers, or of such sequences: numbers of components per layer.

    Or one of numbers and text: a setting for each layer. With `of_text` inner sequences may hold text too.
    """
    inner = (bool, int, float, str) if of_text else int
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iu" and value.ndim in (1, 2)
    return isinstance(value, (list, tuple)) and all(
        isinstance(entry, (bool, int, float, str))
        or (isinstance(entry, (list, tuple)) and all(_is_one(size, inner) for size in entry))
        for entry in value
    )


def _is_one(value: Any, kinds: Any) -> bool:
    return type(value) is int if kinds is int else isinstance(value, kinds)


def _as_lists(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_as_lists(entry) for entry in value] if isinstance(value, (list, tuple)) else value


# -- from a file --------------------------------------------------------------------------------------


ClassNamed = Callable[[Any], Any]  # class name in a header -> class


def rebuild(
    class_named: ClassNamed,
    header: dict[str, Any],
    arrays: Arrays,
    needed: Mapping[str, Any] | None = None,
) -> Any:
    """The estimator described by a header and its arrays; an error such as ValueError if they are invalid.

    `needed` are hyper-parameters that the file could not hold.
    """
    _require(_count_parts(header) <= _MOST_PARTS, f"it has more than {_MOST_PARTS} parts")
    with exact_shapes():
        return _rebuilt(class_named, header, arrays, 0, needed)


def _rebuilt(
    class_named: ClassNamed,
    header: dict[str, Any],
    arrays: Arrays,
    level: int,
    needed: Mapping[str, Any] | None = None,
) -> Any:
    groups = _groups(arrays, ("fitted", "exact", "fit", "hyper", "parts"))
    for group in ("fitted", "exact", "fit"):
        _check_numbers(groups[group])
    more = header.get("more", {})
    _require(isinstance(more, dict))
    own_networks = bool(needed) or bool(more.get("needs"))
    _check_sizes(header["hyper_parameters"], sum(array.size for array in arrays.values()), own_networks)
    estimator = _rebuilt_settings(class_named, header, groups["hyper"], level)
    estimator.set_params(**(needed or {}))
    estimator._check_options()
    if "parts" in header or groups["parts"]:
        parts = _rebuilt_part(class_named, header.get("parts"), groups["parts"], level + 1)
        _require(isinstance(parts, dict) and hasattr(estimator, "_set_parts"), "it has unknown parts")
        estimator._set_parts(**parts)
    else:
        _require(not hasattr(estimator, "_set_parts"), "its parts are missing")
    layout = header.get("layout")
    _require((layout is not None) == hasattr(estimator, "_set_layout"), "its layout is missing or unknown")
    if layout is not None:
        _require(isinstance(layout, dict))
        estimator._set_layout(**layout)
    estimator._set_fitted_arrays(**groups["fitted"])
    for name, array in groups["fitted"].items():
        _require(getattr(estimator, f"{name}_").shape == array.shape, f"{name} has shape {array.shape}")
    if groups["exact"]:
        known = hasattr(estimator, "_set_exact_arrays")
        _require(known, f"it has unknown arrays: {sorted(groups['exact'])}")
        estimator._set_exact_arrays(**groups["exact"])
    _require(
        not groups["fit"] or hasattr(estimator, "history_"),
        "it has a history that its class does not expect: _set_fitted_arrays must set history_ and the like",
    )
    if hasattr(estimator, "history_"):
        _set_history(estimator, header, groups["fit"])
    if more or hasattr(estimator, "_set_more"):
        known = hasattr(estimator, "_set_more")
        _require(known, f"its header has unknown entries: {sorted(more)}")
        estimator._set_more(**more)
    if "rejection" in header:
        rejection = header["rejection"]
        _require(isinstance(rejection, dict) and hasattr(estimator, "_set_rejection"))
        estimator._set_rejection(rejection)
    names = header["feature_names"]
    if names is not None:
        _require(isinstance(names, list) and all(isinstance(name, str) for name in names))
        _require(len(names) == estimator.n_features_in_)
        estimator.feature_names_in_ = np.array(names, dtype=object)
    return estimator


def _rebuilt_part(class_named: ClassNamed, node: Any, arrays: Arrays, level: int) -> Any:
    """The part described by a node of the tree of parts."""
    _require(level <= _MOST_LEVELS, f"it has parts nested deeper than {_MOST_LEVELS} levels")
    _require(isinstance(node, dict) and isinstance(node.get("kind"), str), "its parts are not described")
    kind = node["kind"]
    if kind == "none":
        _require(not arrays)
        return None
    if kind == "tensors":
        for name, array in arrays.items():
            finite = array.dtype.kind not in "fc" or bool(np.all(np.isfinite(array)))
            _require(finite and array.dtype.kind in "fiub", f"{name} must hold finite real numbers")
        return arrays
    if kind in ("list", "dict"):
        nodes = node.get("nodes")
        _require(isinstance(nodes, list if kind == "list" else dict))
        items = [(str(i), one) for i, one in enumerate(nodes)] if kind == "list" else list(nodes.items())
        own = _groups(arrays, tuple(name for name, _ in items))
        built = {name: _rebuilt_part(class_named, one, own[name], level + 1) for name, one in items}
        return list(built.values()) if kind == "list" else built
    _require(kind == "estimator", f"it has a part of an unknown kind, {kind!r}")
    return _rebuilt(class_named, node, arrays, level)


def _count_parts(node: Any) -> int:
    """Number of nodes of the tree of parts; not recursive, so a file cannot exceed the recursion limit."""
    count, waiting = 0, [node]
    while waiting and count <= _MOST_PARTS:
        here = waiting.pop()
        if isinstance(here, dict):
            count += 1
            waiting.extend(here.values())
        elif isinstance(here, list):
            waiting.extend(one for one in here if isinstance(one, (dict, list)))
    return count


def _rebuilt_settings(class_named: ClassNamed, header: Any, arrays: Arrays, level: int) -> Any:
    """The estimator, not fitted yet."""
    _require(level <= _MOST_LEVELS, f"it has estimators nested deeper than {_MOST_LEVELS} levels")
    plain, described = header["hyper_parameters"], header.get("hyper_estimators", {})
    mappings = {name: _rebuilt_mapping(pairs) for name, pairs in header.get("hyper_mappings", {}).items()}
    _require(isinstance(plain, dict) and isinstance(described, dict))
    _require(not any(isinstance(value, dict) for value in plain.values()))
    _require(all(_are_sizes(value) for value in plain.values() if isinstance(value, list)))
    _require(not any(isinstance(plain[name], str) for name in plain if _may_be_array(name)))
    plain = {name: value for name, value in plain.items() if name not in _OF_ONE_MACHINE}
    given = {name: array for name, array in arrays.items() if "." not in name}
    _check_numbers(given)
    inner = _groups({name: arrays[name] for name in arrays if name not in given}, tuple(described))
    estimators: dict[str, Any] = {}

    def rebuilt(its_header: Any, its_arrays: Arrays) -> Any:
        hyper = _groups(its_arrays, ("hyper",))["hyper"]
        return _rebuilt_settings(class_named, its_header, hyper, level + 1)

    for name, its_header in described.items():
        if isinstance(its_header, list):
            own = _groups(inner[name], tuple(str(i) for i in range(len(its_header))))
            estimators[name] = [rebuilt(one, own[str(i)]) for i, one in enumerate(its_header)]
        else:
            estimators[name] = rebuilt(its_header, inner[name])
    return class_named(header["class"])(**plain, **given, **estimators, **mappings)


def _rebuilt_mapping(pairs: Any) -> dict[Any, Any]:
    _require(isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs))
    _require(all(isinstance(key, (str, int)) for key, _ in pairs))
    _require(_are_sizes([value for _, value in pairs], of_text=True))
    return {key: value for key, value in pairs}


def _check_sizes(hyper_parameters: Any, entries: int, own_networks: bool) -> None:
    """Sizes of a fitted estimator are those of its arrays; larger ones would take memory for nothing.

    Networks of the user have layers of their own, whatever the sizes of the hidden ones.
    """
    _require(isinstance(hyper_parameters, dict))
    for name, value in hyper_parameters.items():
        if name in _SIZES and not (own_networks and name == "hidden_layer_sizes"):
            most = _largest_size(value)
            _require(most <= entries, f"{name}={value!r} does not go with {entries} numbers"[:200])


def _largest_size(value: Any) -> int:
    """The largest size, or product of two that follow one another, in a size or in lists of sizes."""
    if type(value) is int:
        return value
    if not isinstance(value, list):
        return 0
    flat = [_largest_size(one) for one in value]
    return max([*flat, *(a * b for a, b in pairwise(flat) if a > 0 and b > 0)], default=0)


def _set_history(estimator: Any, header: dict[str, Any], arrays: Arrays) -> None:
    _require(set(arrays) == {"history"})
    history, n_iter, converged = arrays["history"], header["n_iter"], header["converged"]
    n_passes = header["n_passes"]
    _require(all(type(n) is int and n >= 0 for n in (n_iter, n_passes)) and type(converged) is bool)
    n_stages = getattr(estimator, "_n_stages", 1)  # each starts with its own entry
    _require(history.ndim == 1 and len(history) <= n_iter + n_stages)
    estimator.history_, estimator.n_iter_, estimator.converged_ = history, n_iter, converged
    estimator.n_passes_ = n_passes


def _groups(arrays: Arrays, names: tuple[str, ...]) -> dict[str, Arrays]:
    """Arrays by the part of their key before the first dot."""
    groups: dict[str, Arrays] = {name: {} for name in names}
    for key, array in arrays.items():
        group, _, rest = key.partition(".")
        _require(group in groups, f"it has an unknown array {key!r}")
        groups[group][rest] = array
    return groups


def _check_numbers(arrays: Arrays) -> None:
    for name, array in arrays.items():
        if array.dtype != np.float64 or not np.all(np.isfinite(array)):
            raise ValueError(f"{name} must hold finite numbers in float64")


def _require(condition: Any, message: str = "its header does not match its arrays") -> None:
    if not condition:
        raise ValueError(message)
