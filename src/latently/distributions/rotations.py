"""Rotations of loadings: other factors with the same covariance of the features.

    L L' = (L T) (L T)'                   T orthogonal: varimax, quartimax
    L L' = P Phi P',  P = L T^-1',  Phi = T'T      T with columns of unit length: oblimin, promax

L (D, q) loadings of uncorrelated factors, P the pattern of rotated factors, and Phi their correlations. The
criteria prefer loadings near zero. Every step of gradient projection lowers them (Bernaards & Jennrich 2005,
Educ. Psychol. Meas. 65).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Criterion = Callable[[Floats], tuple[float, Floats]]  # of loadings: the value, lower is simpler; the gradient

ORTHOGONAL, OBLIQUE = ("varimax", "quartimax"), ("promax", "oblimin")
_MOST_STEPS, _SOLVED, _HALVINGS = 1000, 1e-9, 30
_STARTS = 5  # the identity, and random rotations with a fixed seed: criteria have local minima
_POWER = 4  # of the target of promax


@dataclass(frozen=True)
class Rotation:
    """Rotated loadings of uncorrelated factors, or the pattern of correlated ones."""

    loadings: Floats  # (D, q)
    correlations: Floats  # (q, q): of the factors; the identity for orthogonal rotations
    matrix: Floats  # (q, q) T: the rotated factors are T' times those before
    history: list[float]  # the criterion after every step


def rotated(L: Floats, method: str, *, normalize: bool = True) -> Rotation:
    """Loadings (D, q) rotated by this method; with `normalize` rows count with unit length (Kaiser).

    Factors come in the order of the sums of their squared loadings, the largest first, and with a positive
    sum of cubed loadings.
    """
    lengths = np.sqrt(np.sum(L**2, axis=1))
    units = np.where(lengths > 0, lengths, 1.0) if normalize else np.ones(len(L))
    A = L / units[:, None]
    if L.shape[1] < 2 or not np.any(L):
        T, history = np.eye(L.shape[1]), list[float]()
    elif method == "promax":
        T, history = _promax(A, *_best(A, _varimax, oblique=False))
    else:
        criterion = {"varimax": _varimax, "quartimax": _quartimax, "oblimin": _oblimin}[method]
        T, history = _best(A, criterion, oblique=method == "oblimin")
    P = _loadings(L, T)
    order = np.argsort(-np.sum(P**2, axis=0), kind="stable")
    signs = np.where(np.sum(P**3, axis=0) < 0, -1.0, 1.0)
    T = (T * signs)[:, order]
    return Rotation(_loadings(L, T), T.T @ T if method in OBLIQUE else np.eye(len(T)), T, history)


def criterion_value(P: Floats, method: str) -> float:
    """The criterion that varimax, quartimax or oblimin minimises, of these loadings."""
    value, _ = {"varimax": _varimax, "quartimax": _quartimax, "oblimin": _oblimin}[method](P)
    return value


def procrustes(L: Floats, target: Floats) -> Floats:
    """(q, q) the orthogonal T of the least ``|L T - target|``."""
    U, _, Vt = np.linalg.svd(L.T @ target)
    aligned: Floats = U @ Vt
    return aligned


def _loadings(L: Floats, T: Floats) -> Floats:
    """L T^-1', which is L T for orthogonal T."""
    return np.asarray(np.linalg.solve(T, L.T).T, dtype=np.float64)


# -- criteria -----------------------------------------------------------------------------------------


def _varimax(P: Floats) -> tuple[float, Floats]:
    spread = P**2 - np.mean(P**2, axis=0)
    return -0.25 * float(np.sum(spread**2)), -P * spread


def _quartimax(P: Floats) -> tuple[float, Floats]:
    return -0.25 * float(np.sum(P**4)), -(P**3)


def _oblimin(P: Floats) -> tuple[float, Floats]:
    """With gamma = 0: products of squared loadings of different factors."""
    squares = P**2
    others = squares.sum(axis=1, keepdims=True) - squares
    return 0.25 * float(np.sum(squares * others)), P * others


# -- gradient projection ------------------------------------------------------------------------------


def _best(A: Floats, criterion: Criterion, *, oblique: bool) -> tuple[Floats, list[float]]:
    """The best of a few starts; among equals the first."""
    rng = np.random.default_rng(0)
    q = A.shape[1]
    runs = []
    for number in range(_STARTS):
        drawn: Floats = np.linalg.qr(rng.standard_normal((q, q)))[0]
        start = np.eye(q) if number == 0 else drawn
        runs.append(_projected(A, start, criterion, oblique))
    least = min(history[-1] for _, history in runs)
    size = 1e-9 * max(abs(least), 1e-300)
    return next(run for run in runs if run[1][-1] <= least + size)


def _projected(A: Floats, T: Floats, criterion: Criterion, oblique: bool) -> tuple[Floats, list[float]]:
    """Steps along the projected gradient, halved until the criterion falls enough."""
    P = _loadings(A, T) if oblique else A @ T
    value, slope = criterion(P)
    history, rate = [value], 1.0
    scale = max(float(np.sum(A**2)) ** 2 / len(A), 1e-300)
    for _ in range(_MOST_STEPS):
        gradient = -np.linalg.solve(T.T, slope.T @ P) if oblique else A.T @ slope
        if oblique:
            gradient = gradient - T * np.sum(T * gradient, axis=0)
        else:
            inner = T.T @ gradient
            gradient = gradient - T @ (inner + inner.T) / 2
        steepness = float(np.sum(gradient**2))
        if np.sqrt(steepness) <= _SOLVED * scale:
            break
        rate *= 2.0
        for _ in range(_HALVINGS):
            there = _normed(T - rate * gradient, oblique)
            P_there = _loadings(A, there) if oblique else A @ there
            found, slope_there = criterion(P_there)
            if found < value - 0.5 * steepness * rate:
                break
            rate *= 0.5
        else:
            break
        T, P, value, slope = there, P_there, found, slope_there
        history.append(value)
    return T, history


def _normed(T: Floats, oblique: bool) -> Floats:
    """The nearest rotation; or columns of unit length."""
    if oblique:
        lengths: Floats = np.linalg.norm(T, axis=0)
        return T / lengths
    U, _, Vt = np.linalg.svd(T)
    nearest: Floats = U @ Vt
    return nearest


def _promax(A: Floats, T: Floats, history: list[float]) -> tuple[Floats, list[float]]:
    """Least squares from varimax loadings to the same with small ones smaller; factors of unit variance."""
    V = A @ T
    target = V * np.abs(V) ** (_POWER - 1)
    U = np.linalg.lstsq(V, target, rcond=None)[0]
    lengths = np.sqrt(np.diagonal(np.linalg.pinv(U.T @ U)))
    U = U * lengths  # then (U'U)^-1 has a unit diagonal
    return T @ np.linalg.inv(U).T, history
