"""Fits of a fitted model to rows with other weights, or to rows drawn from it, for the bootstrap.

Each begins at the parameters of the model. Its components are then put in the order of those of the model, by
how they share the rows, sub-components within their component and components of a class within their class.
Factors are turned to those of the model (Procrustes): those of each set of loadings by a rotation of its own,
those that a regression of classes shares by one for all.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import svd
from scipy.optimize import linear_sum_assignment
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from latently.backend.namespace import is_native
from latently.backend.placement import one_blas_thread
from latently.estimators.checks import check_weights
from latently.estimators.labels import UNLABELLED
from latently.estimators.rows import rows_of
from latently.mixture.base import probabilities

METHODS = ("weighted", "parametric")
AXES = {"L": "class", "K": "component", "S": "subcomponent", "D": "feature", "q": "factor"}
AXES |= dict.fromkeys("NMOC", "feature")  # of mixed columns: numbers, levels of categories, ordered, counts


# -- what there is to be known -------------------------------------------------------------------------


def shapes_of(model):
    """The symbols of the axes of each fitted array; an error for models that have no such parameters."""
    check_is_fitted(model)
    name = type(model).__name__
    if hasattr(model, "densities_"):
        return _shapes_by_class(model)
    if hasattr(model, "layers_"):
        raise TypeError(
            f"the parameters of the layers of {name} are not unique, so they have no intervals; those of the "
            "mixture that it is, `model.collapse()`, are not estimated freely"
        )
    if hasattr(model, "weight_prior"):
        raise TypeError(
            f"{name} has a posterior of its parameters already, of which its attributes tell; for intervals "
            "of sizes that are given, fit its counterpart with these"
        )
    parameters = model._parameters() if hasattr(model, "_parameters") else ()
    renamed = {"C": "L"} if is_classifier(model) else {}
    renamed["J"] = "L" if hasattr(model, "coef_") else "S"
    shapes = {
        entry.name: tuple(renamed.get(symbol, symbol) for symbol in entry.shape)
        for entry in parameters
        if entry.name != "noise_box"
    }
    known = bool(shapes) and all(set(shape) <= set(AXES) for shape in shapes.values())
    if not known or not (hasattr(model, "columns_") or {"means", "mean", "latent_means"} & set(shapes)):
        raise TypeError(
            "bootstrap needs a fitted mixture of Gaussians, factor models or mixed columns, or a classifier "
            f"of such, for example GaussianMixture, MFA, MixedMixture or PerClass, not {name}"
        )
    return shapes


def _shapes_by_class(model):
    """Of the densities of all classes, with the class as the first axis."""
    first = shapes_of(model.densities_[0])
    for name in first:
        if len({np.shape(getattr(density, f"{name}_")) for density in model.densities_}) > 1:
            raise TypeError(
                f"the densities of the classes differ in the shape of {name}_, so they do not compare"
            )
    return {"class_prior": ("L",), **{name: ("L", *shape) for name, shape in first.items()}}


def arrays_of(model):
    """The fitted arrays that `shapes_of` names."""
    shapes = shapes_of(model)
    if hasattr(model, "densities_"):
        found = {
            name: np.stack([np.asarray(getattr(density, f"{name}_")) for density in model.densities_])
            for name in shapes
            if name != "class_prior"
        }
        found["class_prior"] = np.asarray(model.class_prior_)
        return {name: found[name].astype(np.float64) for name in shapes}
    return {name: np.asarray(getattr(model, f"{name}_"), dtype=np.float64) for name in shapes}


# -- rows ----------------------------------------------------------------------------------------------


def in_memory_rows(model, X):
    """The rows as an array, or the table of a mixture of mixed columns as it is."""
    if hasattr(model, "columns_") and hasattr(X, "iloc") and X.shape[1] == model.n_features_in_:
        return X
    X = np.asarray(X, dtype=np.float64) if not is_native(X) or isinstance(X, np.ndarray) else None
    if X is None or X.ndim != 2 or X.shape[1] != model.n_features_in_:
        raise ValueError(f"X must be the rows of the fit in main memory, with {model.n_features_in_} columns")
    return X


def like_rows(X, drawn):
    """Drawn rows with the missing cells of X."""
    if hasattr(drawn, "iloc"):
        return drawn.mask(X.isna().to_numpy())
    return np.where(np.isnan(X), np.nan, drawn)


@dataclass(frozen=True)
class Refits:
    """What all fits need; `draw` is one of them."""

    model: Any
    X: Any
    codes: Any  # (n,) numbers of the classes, for classifiers
    weight: Any  # (n,)
    method: str
    shapes: dict[str, tuple[str, ...]]
    amount: Any = None  # of rows that the densities of classes borrow

    @classmethod
    def of(cls, model, X, y, sample_weight, method):
        shapes = shapes_of(model)
        X = in_memory_rows(model, X)
        weight = np.ones(len(X)) if sample_weight is None else check_weights(sample_weight, len(X))
        if not is_classifier(model):
            if y is not None:
                raise ValueError("y holds classes, for classifiers; labels of components are not taken")
            return cls(model, X, None, weight, method, shapes)
        if y is None:
            raise ValueError(f"bootstrap of {type(model).__name__} needs y, the classes of the rows")
        codes = deepcopy(model)._encoded(y, len(X), model.classes_)
        if not hasattr(model, "densities_"):
            return cls(model, X, codes, weight, method, shapes)
        if method == "weighted" and not has_fit_parameter(model.density, "sample_weight"):
            name = type(model.density).__name__
            raise TypeError(f"{name}.fit takes no weights, so use method='parametric'")
        amount = _quietly(deepcopy(model)._learnt_amount, X, codes, weight)
        return cls(model, X, codes, weight, method, shapes, amount)

    def draw(self, seed):
        """Fitted arrays of one draw, matched with those of the model; the message if the fit fails."""
        rng = np.random.default_rng(seed)
        X, codes, weight = self.X, self.codes, self.weight
        if self.method == "weighted":
            drawn = weight * rng.exponential(size=len(X))
            weight = drawn * (weight.sum() / drawn.sum())
        else:
            rows, labels = self.model.sample(len(X), random_state=rng)
            X = like_rows(X, rows)
            if codes is not None:
                codes = np.where(
                    codes == UNLABELLED, UNLABELLED, np.searchsorted(self.model.classes_, labels)
                )
        try:
            return _quietly(self._fitted, X, codes, weight)
        except (ValueError, ArithmeticError) as error:
            return str(error)

    def _fitted(self, X, codes, weight):
        return matched(self._again(X, codes, weight), self.model, self.X, self.codes)

    def _again(self, X, codes, weight):
        """A copy of the model that is fitted to these rows, from where it is."""
        if self.amount is not None or hasattr(self.model, "densities_"):
            return self.model._fitted_again(X, codes, weight, self.amount)
        options = {"warm_start": True, "verbose": 0, "callbacks": None, "checkpoint": None}
        if codes is None:
            return deepcopy(self.model).set_params(**options).fit(X, sample_weight=weight)
        again = deepcopy(self.model).set_params(**options, temperature=None)
        y = again.classes_[codes]
        if np.any(codes == UNLABELLED):
            y = y if y.dtype.kind in "if" else y.astype(object)
            y[codes == UNLABELLED] = UNLABELLED
        return again.fit(X, y, sample_weight=weight)


def _quietly(function, *given):
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore")
        return function(*given)


# -- order and turns -----------------------------------------------------------------------------------


def matched(model, reference, X, codes=None):
    """The fitted arrays of a model by name, its components and factors in the order of another model."""
    if hasattr(reference, "densities_"):
        pairs = enumerate(zip(model.densities_, reference.densities_, strict=True))
        by_class = [matched(one, other, X[codes == code]) for code, (one, other) in pairs]
        found = {name: np.stack([arrays[name] for arrays in by_class]) for name in by_class[0]}
        return {"class_prior": np.asarray(model.class_prior_), **found}
    shapes, arrays = shapes_of(reference), arrays_of(model)
    if "weights" in arrays:
        outer, inner = _orders(model, reference, X, arrays)
        for name, shape in shapes.items():
            if shape[:1] == outer.symbols:
                arrays[name] = arrays[name][outer.order]
            if shape[:2] == inner.symbols:
                arrays[name] = np.stack(
                    [one[own] for one, own in zip(arrays[name], inner.order, strict=True)]
                )
    return _turned(arrays, reference)


@dataclass(frozen=True)
class _Order:
    symbols: tuple[str, ...]  # of the axes of the arrays that have it
    order: Any


def _orders(model, reference, X, arrays):
    """Of components, or classes, and of what is within them."""
    nothing = _Order(("none", "none"), [])
    if "subweights" in arrays:
        ours, theirs = (one.subcomponent_proba(X) for one in (model, reference))
        order = _best_order(ours.sum(axis=2), theirs.sum(axis=2))
        pairs = zip(np.moveaxis(ours, 1, 0)[order], np.moveaxis(theirs, 1, 0), strict=True)
        return _Order(("K",), order), _Order(("K", "S"), [_best_order(*pair) for pair in pairs])
    if arrays["weights"].ndim == 2:  # components of classes, which keep their places
        L, K = arrays["weights"].shape
        ours, theirs = (rows_of(one, X, probabilities).reshape(-1, L, K) for one in (model, reference))
        within = [_best_order(ours[:, label], theirs[:, label]) for label in range(L)]
        return _Order(("L",), np.arange(L)), _Order(("L", "K"), within)
    K = len(arrays["weights"])
    if is_classifier(model):
        ours, theirs = (rows_of(one, X, probabilities) for one in (model, reference))
    else:
        ours, theirs = (np.asarray(one.predict_proba(X)) for one in (model, reference))
    return _Order(("K",), _best_order(ours[:, :K], theirs[:, :K])), nothing


def _best_order(ours, theirs):
    """For each of their components the one of ours that shares the most responsibility for rows with it."""
    return linear_sum_assignment(theirs.T @ ours, maximize=True)[1]


def _turned(arrays, reference):
    """Factors turned to those of the reference."""
    if "loadings" not in arrays:
        return arrays
    loadings, there = arrays["loadings"], np.asarray(reference.loadings_)
    if "coef" in arrays:  # one rotation, which regressions share with all loadings
        q = loadings.shape[-1]
        ours = np.concatenate([loadings.reshape(-1, q), arrays["coef"]])
        turn = _turn(ours, np.concatenate([there.reshape(-1, q), np.asarray(reference.coef_)]))
    else:
        turn = _turn(loadings, there)
    for name in ("loadings", "latent_means", "coef"):
        if name in arrays:
            arrays[name] = arrays[name] @ turn
    if "latent_covariances" in arrays:
        arrays["latent_covariances"] = turn.T @ arrays["latent_covariances"] @ turn
    return arrays


def _turn(loadings, reference):
    """(..., q, q) the rotations with which loadings are nearest to others: Procrustes, for each component."""
    product = np.swapaxes(loadings, -1, -2) @ reference
    if product.ndim == 2:
        U, _, V = svd(product)
        return U @ V
    return np.stack([_turn(one, other) for one, other in zip(loadings, reference, strict=True)])
