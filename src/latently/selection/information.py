"""Standard errors of the parameters of Gaussian mixtures and factor models by the information matrix.

With the derivatives s_n of ln p(x_n) by all parameters and H the second derivatives of their sum, a maximum
of the likelihood has the asymptotic covariance

    scores      (sum s_n s_n')^-1
    hessian     (-H)^-1, the observed information
    sandwich    H^-1 (sum s_n s_n') H^-1, which does not need the model to be right (Huber 1967, White 1982)

Parameters obey conditions: weights sum to one, and factors may be turned without any effect. As for the
bootstrap, factors of estimates are those nearest to the factors of the model, which is a linear condition on
small changes d of the loadings: L'd is symmetric for those of a component, and A'd = 0 for common loadings,
which have A'A = I. With all conditions C d = 0 and a basis B of such d, a covariance is B (B' I B)^-1 B'.
H is the derivative of the sum of scores, by central differences in steps of a thousandth of a standard error.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import null_space
from scipy.special import ndtri

from latently.estimators.checks import check_choice, check_number, check_weights
from latently.estimators.messages import warn_user
from latently.mixture.structure import CommonStructure, GaussianStructure, LowRankStructure, OneComponent
from latently.selection.intervals import ParameterIntervals, is_symmetric, names_of_axes, places_of
from latently.selection.refits import arrays_of, in_memory_rows, shapes_of
from latently.selection.row_scores import CommonFactors, Covariances, Factors, Passes

METHODS = ("sandwich", "hessian", "scores")
_STEP = 1e-3  # of differences, in standard errors
_SINGULAR = 1e-9  # smallest eigenvalue, relative to the largest, of an information with unit diagonal
_FAR = 0.5  # standard errors that a maximum may be away
_NO_CURVATURE = (
    "method={!r} finds no curvature of the likelihood: a variance of the model vanishes, as with constant "
    "features of X; leave them out, or use method='scores' or bootstrap"
)


class StandardErrors(ParameterIntervals):
    """The result of :func:`standard_errors`.

    Attributes
    ----------
    intervals_ : pandas.DataFrame
        As of :class:`Bootstrap`; `low` and `high` are those of a normal distribution.
    covariance_ : ndarray of shape (n_lines, n_lines)
        Of the estimates, in the order of the lines of `intervals_`.
    method : str
    level : float
    """

    def __init__(self, estimates, shapes, names, covariance, *, method, level):
        super().__init__(estimates, shapes, names, method=method, level=level)
        self.covariance_ = covariance
        self._errors = Vector(estimates, shapes).arrays(np.sqrt(np.diagonal(covariance)))

    @property
    def basis(self):
        """What the intervals are, as a sentence."""
        by = {
            "sandwich": "the sandwich estimator",
            "hessian": "observed information",
            "scores": "products of scores",
        }
        level = f"{100 * self.level:g} %"
        return f"Intervals of {level} are normal, with standard errors by {by[self.method]}."

    def _numbers(self, name):
        error = self._errors[name]
        half = ndtri(0.5 + self.level / 2) * error
        return error, self._estimates[name] - half, self._estimates[name] + half


def standard_errors(model, X, *, method="sandwich", level=0.95, sample_weight=None, feature_names=None):
    """Standard errors and normal intervals of all parameters by the information matrix, without any fit.

    They take a small part of the time of :func:`bootstrap`, and suit many rows: estimates are taken to be
    normal, so intervals of variances and weights may be too symmetric, and those of few rows too short.

    Parameters
    ----------
    model : fitted estimator
        A `GaussianMixture` with covariances "full", "tied", "diag" or "spherical", `FactorAnalysis`, `PPCA`,
        `MFA`, `MPPCA` or `MCFA`, with normal tails. For any other use :func:`bootstrap`.
    X : array-like of shape (n_samples, n_features)
        The rows it was fitted to, in memory; NaN where missing.
    method : {"sandwich", "hessian", "scores"}, default="sandwich"
        "sandwich" does not need the model to be right, and agrees with the weighted bootstrap; "hessian" and
        "scores" need it to be, as the parametric bootstrap does, and "scores" is a single pass over the rows.
    level : float, default=0.95
        Probability of the intervals.
    sample_weight : array-like of shape (n_samples,), optional
        Weight of each row in the fit, as so many copies of it.
    feature_names : list of str, optional
        Names in the table; by default those of the fit.

    Returns
    -------
    StandardErrors
        `intervals_`, `covariance_`, `summary()`.

    Warns
    -----
    UserWarning
        If rows do not determine all parameters, whose standard errors are then NaN, or if the model is not
        near a maximum of the likelihood, because of its prior or because the fit had not converged.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import GaussianMixture
    >>> from latently.selection import standard_errors
    >>> X = load_iris().data
    >>> model = GaussianMixture(2, prior=None, tol=1e-9, random_state=0).fit(X)
    >>> found = standard_errors(model, X).intervals_
    >>> weights = found[found["parameter"] == "weights"]
    >>> weights["standard_error"].round(3).tolist()       # sqrt(w (1 - w) / 150) for groups far apart
    [0.038, 0.038]
    """
    check_choice("method", method, METHODS)
    check_number("level", level, least=1e-6, most=1 - 1e-6)
    kind, shapes = _kind_of(model), shapes_of(model)
    X = in_memory_rows(model, X)
    weight = np.ones(len(X)) if sample_weight is None else check_weights(sample_weight, len(X))
    arrays = arrays_of(model)
    vector = Vector(arrays, shapes)
    conditions = _conditions(model._structure(), arrays, vector)
    covariance = _covariance(Passes(X, weight, kind), vector, conditions, method)
    names = names_of_axes(model, feature_names)
    return StandardErrors(arrays, shapes, names, covariance, method=method, level=float(level))


def _kind_of(model):
    """How covariances follow from the parameters; an error for models whose scores are not at hand."""
    structure = model._structure() if hasattr(model, "_structure") else None
    if type(structure) is GaussianStructure:
        shape = {"VVV": "full"}.get(structure.covariance_type, structure.covariance_type)
        if shape in ("full", "tied", "diag", "spherical"):
            return Covariances(shape)
    if type(structure) in (LowRankStructure, OneComponent):
        return Factors(type(structure) is OneComponent)
    if type(structure) is CommonStructure:
        return CommonFactors()
    raise TypeError(
        "standard_errors needs a GaussianMixture with covariances full, tied, diag or spherical, or a "
        "FactorAnalysis, PPCA, MFA, MPPCA or MCFA, with normal tails and without a noise component, not "
        f"{model!r}; use bootstrap"
    )


class Vector:
    """All numbers of the fitted arrays one after the other, in the order of the lines of the table."""

    def __init__(self, arrays, shapes):
        self.start = arrays
        self.index = {name: tuple(places_of(arrays[name], shapes[name]).T) for name in arrays}
        self.symmetric = {name for name in arrays if is_symmetric(shapes[name])}
        ends = np.cumsum([0, *(np.size(array[self.index[name]]) for name, array in arrays.items())])
        self.slices = {name: slice(*ends[i : i + 2]) for i, name in enumerate(arrays)}
        self.size = int(ends[-1])

    def number(self, name, *index):
        """The place of one number."""
        here = np.all(np.transpose(self.index[name]) == index, axis=1)
        return self.slices[name].start + int(np.flatnonzero(here)[0])

    def arrays(self, values):
        """Arrays with these numbers."""
        found = {}
        for name, array in self.start.items():
            at, made = self.index[name], np.empty(np.shape(array))
            made[at] = values[self.slices[name]]
            if name in self.symmetric:
                made[(*at[:-2], at[-1], at[-2])] = values[self.slices[name]]
            found[name] = made
        return found

    def derivatives(self, by_array):
        """(..., P) from those by entries; entries beside the diagonal of a matrix count twice."""
        parts = []
        for name, at in self.index.items():
            part = by_array[name][(..., *at)]
            if name in self.symmetric:
                other = by_array[name][(..., *at[:-2], at[-1], at[-2])]
                part = part + np.where(at[-1] == at[-2], 0.0, other)
            parts.append(part)
        return np.concatenate(parts, axis=-1)


def _conditions(structure, arrays, vector):
    """C (m, P): changes d of the parameters have C d = 0."""
    found = []

    def condition(terms):
        row = np.zeros(vector.size)
        for place, value in terms:
            row[place] += value
        found.append(row)

    if "weights" in arrays:
        condition([(vector.number("weights", k), 1.0) for k in range(len(arrays["weights"]))])
    same = [("noise_variance", -1)] if getattr(structure, "isotropic", False) else []
    same += [("noise_variance", 0)] if getattr(structure, "shared", False) else []
    same += [("latent_covariances", 0)] if getattr(structure, "shared_covariance", False) else []
    for name, axis in same:
        for index in np.transpose(vector.index[name]):
            first = index.copy()
            first[axis] = 0
            if index[axis]:
                condition([(vector.number(name, *index), 1.0), (vector.number(name, *first), -1.0)])
    if "loadings" in arrays:
        L = arrays["loadings"]
        D, q = L.shape[-2:]
        for k in np.ndindex(L.shape[:-2]):
            for i, j in np.ndindex(q, q):
                place = [(vector.number("loadings", *k, d, j), L[(*k, d, i)]) for d in range(D)]
                if "latent_means" in arrays:
                    condition(place)
                elif i < j:
                    other = [(vector.number("loadings", *k, d, i), -L[(*k, d, j)]) for d in range(D)]
                    condition(place + other)
    return np.reshape(found, (-1, vector.size))


@np.errstate(all="ignore")  # what is not finite is told
def _covariance(passes, vector, conditions, method):
    """(P, P), with NaN for parameters that rows do not determine."""
    products = np.zeros((vector.size, vector.size))
    for weight, by_row in passes.by_row(vector.start):
        scores = vector.derivatives(by_row)
        products += scores.T @ (scores * weight[:, None])
    here = np.concatenate([np.ravel(array[vector.index[name]]) for name, array in vector.start.items()])
    unit = np.sqrt(np.diagonal(products))
    unit = np.where(unit > 0, 1.0 / np.where(unit > 0, unit, 1.0), 1.0)
    basis = unit[:, None] * null_space(conditions * unit)

    def slope(values):
        try:
            return basis.T @ vector.derivatives(passes.total(vector.arrays(values)))
        except np.linalg.LinAlgError:
            raise ValueError(_NO_CURVATURE.format(method)) from None

    products = basis.T @ products @ basis
    information = products
    if method != "scores":
        columns = [slope(here + _STEP * d) - slope(here - _STEP * d) for d in basis.T]
        information = np.stack(columns, axis=1) / (-2.0 * _STEP)
        information = 0.5 * (information + information.T)
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diagonal(information)), np.finfo(float).tiny))
    information = information * scale[:, None] * scale
    if not np.all(np.isfinite(information)):
        raise ValueError(_NO_CURVATURE.format(method))
    values, vectors = np.linalg.eigh(information)
    sure = values > _SINGULAR * values[-1]
    directions = basis @ (scale[:, None] * vectors)
    inverse = (vectors[:, sure] / values[sure]) @ vectors[:, sure].T * scale[:, None] * scale
    within = inverse @ products @ inverse if method == "sandwich" else inverse
    covariance = basis @ within @ basis.T
    unsure = np.any(np.abs(directions[:, ~sure]) > 1e-3 * unit[:, None], axis=1)
    if np.any(unsure):
        covariance[unsure, :] = covariance[:, unsure] = np.nan
        warn_user(
            f"the rows do not determine {int(unsure.sum())} of the {vector.size} parameters, whose standard "
            "errors are NaN: too many components or factors, too few rows, or a variance that vanishes"
        )
    ahead = np.abs(basis @ (inverse @ slope(here)))
    errors = np.sqrt(np.clip(np.diagonal(covariance), 0.0, None))
    far = float(np.nanmax(np.where(errors > 0, ahead / np.where(errors > 0, errors, 1.0), 0.0), initial=0.0))
    if far > _FAR:
        warn_user(
            f"the likelihood is largest about {far:.2g} standard errors away from these parameters, so these "
            "hold only roughly: fit with prior=None and a smaller tol, or use bootstrap"
        )
    return covariance
