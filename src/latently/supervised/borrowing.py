"""Rows that classes borrow from one another: shrinkage of their shapes towards what they share.

With few rows per class a density per class describes these rows, not the class. So each class c, with mean
m_c, n_c rows (their total weight) and covariance S_c, is given further rows about its mean:

    deviations    m_c + (x - m_h), x every row of every class h: together their covariance is the pooled S
    axes          m_c +- (D s_j)^1/2 e_j, s_j the pooled variance of feature j: their covariance is diag(s)

The former have the share 1 - g and the latter the share g of a weight nu_c. Of complete rows a Gaussian sees
the moments only, so both are replaced by the 2 D rows m_c +- D^1/2 t_j, t_j the columns of the square root of
T below. A Gaussian becomes

    Sigma_c = (n_c S_c + nu_c T) / (n_c + nu_c),      T = (1 - g) S + g diag(s),

which is regularised discriminant analysis (Friedman, 1989, JASA 84), and the objective is that of a fit to
more rows, which EM never lowers. Any density that takes weights can borrow. Both amounts have closed forms,
the minima of expected squared errors of correlations (Ledoit & Wolf, 2004; Schaefer & Strimmer, 2005): the
squared standard errors of the entries that are shrunk, over their squared distances from the target. Classes
of up to five rows borrow ten more than that, because errors of covariances of few rows cost a classifier more
than their squares; classes of n rows the fraction 5 / n of all this, because differences between classes that
are small in squares may be what tells classes apart.

N rows, D features, C classes: O(N D^2 + D^3 + C D^2), and 2 D rows are added to every class, or N + 2 D.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latently.backend.namespace import Floats
from latently.estimators.checks import check_number

_AT_LEAST = 10.0  # rows that a class of few rows borrows on average
_SMALL = 5.0  # rows of such a class; larger ones borrow less
_AT_MOST = 50.0  # times the rows of a class
_DIGITS = 40  # binary, of borrowed rows
_NEGLIGIBLE = 1e-3  # share of axes below which there are none


@dataclass(frozen=True)
class BorrowedRows:
    X: Floats  # (m, D)
    codes: Floats  # (m,): the class that borrows
    weight: Floats  # (m,)


def check_shrinkage(name, value):
    """How many rows a class borrows: "auto", a number, or None for none."""
    if value is None or (isinstance(value, str) and value == "auto"):
        return
    if isinstance(value, str):
        raise ValueError(f"{name} must be 'auto', None or a number of rows, not {value!r}")
    check_number(name, value, least=0)


def borrowed_rows(X, codes, weight, n_classes, shrinkage, *, unlabelled=0.0, axes=True):
    """The rows that classes borrow, of labelled rows X (N, D) with weights (N,); None if there are none.

    `unlabelled` is the weight of further rows of unknown class: they tell as much of the shape of classes, so
    "auto" borrows less, and no more than there are rows. NaN in X marks missing entries, which deviations
    keep. Without `axes` only deviations are borrowed, for densities of several components, to which single
    rows far from the mean would be clusters.
    """
    sizes = np.bincount(codes, weight, minlength=n_classes)
    n, D = sizes.sum(), X.shape[1]
    free = np.sum(np.maximum(sizes - 1.0, 0.0))
    if free <= 0 or n_classes < 2:
        return None
    origin = _first_observed(X)  # so that constant features stay exactly constant
    X = X - origin
    means = _means(X, codes, weight, n_classes)
    deviations = X - means[codes]
    deviations = deviations * np.sqrt(n / free)  # about estimated means deviations are too small
    known = np.where(np.isnan(deviations), 0.0, deviations)
    variance = weight @ known**2 / n
    unit = np.where(variance > 0, np.sqrt(variance), 1.0)
    share, on_axes = _amounts(known / unit, codes, weight, sizes)
    if isinstance(shrinkage, str):
        per_class = n / n_classes
        rows = min(_AT_LEAST + per_class * share / max(1.0 - share, 1e-9), _AT_MOST * per_class)
        rows *= min(1.0, _SMALL / per_class)
        if unlabelled > 0:
            rows = min(rows * n / (n + unlabelled), (n + unlabelled) / n_classes)
    else:
        rows = float(shrinkage)
    if rows == 0:
        return None
    on_axes = on_axes if axes and on_axes > _NEGLIGIBLE else 0.0
    varying = np.flatnonzero(variance > 0)
    if axes and len(varying) and not np.isnan(deviations).any():
        around = _with_moments((known / unit)[:, varying], weight / n, on_axes)
        around = np.concatenate([around, -around])
        around, shares = (
            _spread_out(around * unit[varying], varying, D),
            np.full(len(around), 1 / len(around)),
        )
    else:
        each = [(deviations, (1.0 - on_axes) * weight / n)]
        if on_axes:
            spread = np.diag(np.sqrt(D * variance))
            each += [(sign * spread, np.full(D, on_axes / (2 * D))) for sign in (1.0, -1.0)]
        around, shares = (np.concatenate(part) for part in zip(*each, strict=True))
        around, shares = around[shares > 0], shares[shares > 0]
    X_borrowed = np.concatenate([means[c] + around for c in range(n_classes)])
    # on a fine grid, so that starts do not depend on the last digits of sums over the rows
    grid = 2.0 ** (np.floor(np.log2(unit)) - _DIGITS)
    X_borrowed = np.round(X_borrowed / grid) * grid + origin
    lent = np.concatenate([rows * n_classes * size / n * shares for size in sizes])
    return BorrowedRows(X_borrowed, np.repeat(np.arange(n_classes), len(around)), lent)


def _with_moments(Z, weight, on_axes):
    """(D, D) rows that, with those of opposite sign, have the covariance T of standardised rows Z."""
    S = (Z * weight[:, None]).T @ Z
    values, vectors = np.linalg.eigh(S - on_axes * (S - np.diag(np.diagonal(S))))
    # the symmetric root, because eigenvectors themselves may turn with the last digits
    return np.sqrt(len(S)) * (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def _spread_out(rows, features, D):
    """(n, D) the rows with zeros in all other features."""
    wide = np.zeros((len(rows), D))
    wide[:, features] = rows
    return wide


def _means(X, codes, weight, n_classes):
    """(C, D) means of the observed entries; of all classes, where a class has none."""
    observed = ~np.isnan(X)
    known, counted = np.where(observed, X, 0.0), observed * weight[:, None]
    total = np.maximum(counted.sum(axis=0), 1e-300)
    overall = (known * counted).sum(axis=0) / total
    means = np.empty((n_classes, X.shape[1]))
    for c in range(n_classes):
        own = codes == c
        size = counted[own].sum(axis=0)
        sums = (known[own] * counted[own]).sum(axis=0)
        means[c] = np.where(size > 0, sums / np.where(size > 0, size, 1.0), overall)
    return means


def _first_observed(X):
    """(D,) of each feature; zero if it has no entry."""
    observed = ~np.isnan(X)
    first = X[np.argmax(observed, axis=0), np.arange(X.shape[1])]
    return np.where(np.isnan(first), 0.0, first)


def _amounts(Z, codes, weight, sizes):
    """The share of the target in Sigma_c, and that of the diagonal in the target.

    Z (N, D) are standardised deviations. Squared standard errors of the entries of a covariance of n rows are
    summed by sum_ij var(z_i z_j) / n = (sum w |z|^4 / n - |S|^2) / n.
    """
    n = sizes.sum()
    S = (Z * weight[:, None]).T @ Z / n
    between = S - np.diag(np.diagonal(S))
    squares = Z**2
    error = weight @ squares.sum(axis=1) ** 2 / n - np.sum(S**2)
    error -= float(np.sum(weight @ squares**2 / n - np.diagonal(S) ** 2))  # of the diagonal, which is kept
    on_axes = _ratio(error / max(n - 1.0, 1.0), np.sum(between**2))
    target = S - on_axes * between
    errors = distances = 0.0
    for c, size in enumerate(sizes):
        if size <= 1.0:
            continue
        z, w = Z[codes == c], weight[codes == c]
        own = (z * w[:, None]).T @ z / size
        errors += size * (w @ np.sum(z**2, axis=1) ** 2 / size - np.sum(own**2)) / (size - 1.0)
        distances += size * np.sum((own - target) ** 2)
    return _ratio(errors, distances), on_axes


def _ratio(error, distance):
    return float(min(1.0, max(0.0, error / distance))) if distance > 0 else 1.0
