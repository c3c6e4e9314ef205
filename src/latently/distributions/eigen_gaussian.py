"""Gaussians whose covariances share volume, shape or orientation: the models of mclust beside the usual four.

    Sigma_k = lambda_k Q_k A_k Q_k'

with the volume lambda_k = |Sigma_k|^(1/D), the shape A_k, diagonal with |A_k| = 1, and the orientation Q_k,
orthogonal. Three letters say what components share of volume, shape and orientation; E is equal, V varying, I
(as shape) spherical or (as orientation) along the axes. Banfield & Raftery (1993), Biometrics 49; Celeux &
Govaert (1995), Pattern Recognition 28. With the scatters W_k and weights n_k, the M-step minimises

    sum_k n_k ln|Sigma_k| + tr(W_k Sigma_k^-1),

in closed form (EVI, EVV, EEV) or by steps that each minimise it over some of the parameters, from those of
the step before (VEI, VEE, VEV, EVE, VVE), so that no step of EM lowers the likelihood. A common orientation
of components that differ in shape is found by rotations in planes: in the plane of two axes, the best angle
is that of an eigenvector of a 2 x 2 matrix. A prior adds its pseudo-rows to W_k and n_k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from latently.backend.linalg import is_positive_definite
from latently.backend.namespace import Array, Floats, eye, like, namespace, to_numpy
from latently.distributions.family import SMALLEST_VARIANCE
from latently.distributions.gaussian import FullGaussian, FullParams, FullStats
from latently.distributions.responsibilities import has_rows

_ROUNDS = 100  # of steps over parts of the parameters
_ENOUGH = 1e-12  # relative change of a covariance
_SWEEPS = 8  # of rotations over all planes, in a round
_SMALL_ANGLE = 1e-9
_LEAST_AT_START = 1e-3  # variance in every direction, where features have about unit variance


@dataclass(frozen=True)
class EigenGaussian(FullGaussian):
    """The family; `model` is its three letters."""

    model: str = "VVE"

    @property
    def isotropic(self) -> bool:  # type: ignore[override]
        """Whether features must keep their units: scaling them turns axes and changes shapes."""
        return MODELS[self.model].one_unit

    def m_step(self, stats: FullStats, params: FullParams) -> FullParams:
        """Weighted means, and covariances of the model; empty components keep theirs."""
        xp, place = namespace(stats.weight), stats.weight
        filled = has_rows(stats.weight)
        precision = stats.weight if stats.precision is None else stats.precision
        share = xp.where(filled, precision, 1.0)
        means = xp.where(filled[:, None], stats.sum_x / share[:, None], params.means)
        scatter = stats.sum_xx - precision[:, None, None] * means[:, :, None] * means[:, None, :]
        W, n = to_numpy(scatter), to_numpy(stats.weight).copy()
        before = to_numpy(params.covariances)
        if self.prior is not None:
            W, n = W + self.prior.rows * to_numpy(self.prior.scale), n + self.prior.rows
        none = n <= 0  # such components take no part in what others share
        W = np.where(none[:, None, None], 0.0, 0.5 * (W + np.swapaxes(W, 1, 2)))
        found = self._shaped(W, n, before)
        found = np.where(none[:, None, None], before, found)
        return FullParams(means, self.bounded(like(found, place)))

    def _shaped(self, W: Floats, n: Floats, before: Floats) -> Floats:
        """(K, D, D) covariances of the model."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            found = MODELS[self.model].covariances(W, n, before)
        if not np.all(np.isfinite(found)):
            raise ValueError(_singular(self.model))
        return found

    def bounded(self, covariances: Array) -> Array:
        """The covariances; one that is singular is an error, since a bound would leave the model."""
        xp = namespace(covariances)
        covariances = 0.5 * (covariances + xp.permute_dims(covariances, (0, 2, 1)))
        least = xp.where(self.floor < SMALLEST_VARIANCE, SMALLEST_VARIANCE, self.floor)
        if not is_positive_definite(covariances - SMALLEST_VARIANCE * eye(least.shape[0], least) * least):
            raise ValueError(_singular(self.model))
        return covariances

    @property
    def separate(self) -> bool:
        return False

    def from_coordinates(self, *arrays: Array) -> FullParams:
        """An extrapolation leaves the model, so the nearest covariances of the model are taken."""
        params = super().from_coordinates(*arrays)
        return FullParams(params.means, self._nearest(params.covariances))

    def from_partition(self, X: Array, weight: Array, labels: Array, means: Array) -> FullParams:
        floor = namespace(X).clip(self.floor, min=_LEAST_AT_START)  # rows of a part may lie in a subspace
        params = FullGaussian(floor).from_partition(X, weight, labels, means)
        return FullParams(params.means, self._nearest(params.covariances))

    def clamped(self, params: FullParams) -> FullParams:
        return FullParams(params.means, self.bounded(params.covariances))

    def _nearest(self, covariances: Array) -> Array:
        """Those of the model for rows with these covariances, as many in each component."""
        given = to_numpy(covariances)
        return self.bounded(like(self._shaped(given, np.ones(len(given)), given), covariances))

    def n_parameters(self, K: int, D: int) -> int:
        volume, shape, orientation = tuple(self.model)
        n_orientations = {"I": 0, "E": 1, "V": K}[orientation]
        n_shapes = {"I": 0, "E": 1, "V": K}[shape]
        n_volumes = {"E": 1, "V": K}[volume]
        return K * D + n_volumes + n_shapes * (D - 1) + n_orientations * D * (D - 1) // 2

    def least_rows(self, D: int) -> int:
        """As many as the parameters of a component's own need."""
        return D + 1 if self.model[2] == "V" else 2


def _singular(model: str) -> str:
    return (
        f"a covariance matrix of {model} became singular; use the default prior, prior='auto', fewer "
        "components or a simpler covariance_type"
    )


# -- covariances (K, D, D) of each model, from scatters W (K, D, D), weights n (K,) and those before ---------


def _volume(W: Floats) -> Floats:
    """(K,) |W|^(1/D)"""
    found: Floats = np.exp(np.linalg.slogdet(W)[1] / W.shape[-1])
    return found


def _unit(values: Floats) -> Floats:
    """Diagonals (..., D) divided by the D-th root of their product."""
    found: Floats = values / np.exp(np.mean(np.log(values), axis=-1, keepdims=True))
    return found


def _diagonal(values: Floats) -> Floats:
    found: Floats = values[..., None] * np.eye(values.shape[-1])
    return found


def _axes(W: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues (K, D), from the largest, and eigenvectors as columns."""
    values, vectors = np.linalg.eigh(W)
    return np.maximum(values[:, ::-1], 0.0), vectors[:, :, ::-1]


def _alternated(step: Callable[[Floats], tuple[Floats, Floats]], volumes: Floats) -> Floats:
    """Covariances after steps that take volumes (K,) to volumes and covariances, until they stay."""
    volumes, found = step(volumes)
    for _ in range(_ROUNDS):
        volumes, after = step(volumes)
        if np.max(np.abs(after - found)) <= _ENOUGH * np.max(np.abs(after)):
            return after
        found = after
    return found


def _vee(W: Floats, n: Floats, before: Floats) -> Floats:
    D = W.shape[-1]

    def step(volumes: Floats) -> tuple[Floats, Floats]:
        C = np.sum(W / volumes[:, None, None], axis=0)
        C = C / _volume(C[None])[0]
        volumes = np.einsum("kij,ji->k", W, np.linalg.inv(C)) / (D * np.where(n > 0, n, 1.0))
        volumes = np.where(n > 0, volumes, 1.0)
        return volumes, volumes[:, None, None] * C

    return _alternated(step, _volume(before))


def _vei(W: Floats, n: Floats, before: Floats) -> Floats:
    return _vee(_diagonal(np.diagonal(W, axis1=1, axis2=2)), n, before)


def _evi(W: Floats, n: Floats, before: Floats) -> Floats:
    values = np.diagonal(W, axis1=1, axis2=2)
    return _of_one_volume(np.where(n[:, None] > 0, values, 0.0), n, np.eye(W.shape[-1]))


def _of_one_volume(values: Floats, n: Floats, Q: Floats) -> Floats:
    """Q lambda A_k Q' for the diagonals (K, D) of scatters along the axes Q."""
    some = n > 0
    volumes = np.where(some, np.exp(np.mean(np.log(np.where(some[:, None], values, 1.0)), axis=1)), 0.0)
    shapes = np.where(some[:, None], _unit(np.where(some[:, None], values, 1.0)), 1.0)
    found: Floats = (Q * (volumes.sum() / n.sum() * shapes)[:, None, :]) @ np.swapaxes(Q, -1, -2)
    return found


def _evv(W: Floats, n: Floats, before: Floats) -> Floats:
    some = n > 0
    kept = np.where(some[:, None, None], W, np.eye(W.shape[-1]))
    volumes = _volume(kept)
    found: Floats = kept / volumes[:, None, None] * (volumes[some].sum() / n.sum())
    return found


def _eev(W: Floats, n: Floats, before: Floats) -> Floats:
    values, Q = _axes(W)
    found: Floats = (Q * (values.sum(axis=0) / n.sum())) @ np.swapaxes(Q, 1, 2)
    return found


def _vev(W: Floats, n: Floats, before: Floats) -> Floats:
    values, Q = _axes(W)

    def step(volumes: Floats) -> tuple[Floats, Floats]:
        A = _unit(np.sum(values / volumes[:, None], axis=0))
        volumes = np.where(n > 0, np.mean(values / A, axis=1) / np.where(n > 0, n, 1.0), 1.0)
        return volumes, (Q * (volumes[:, None] * A)[:, None, :]) @ np.swapaxes(Q, 1, 2)

    return _alternated(step, _volume(before))


def _eve(W: Floats, n: Floats, before: Floats) -> Floats:
    return _in_common_axes(W, n, before, lambda values, Q: _of_one_volume(values, n, Q))


def _vve(W: Floats, n: Floats, before: Floats) -> Floats:
    share = np.where(n > 0, n, 1.0)[:, None]
    return _in_common_axes(W, n, before, lambda values, Q: (Q * (values / share)[:, None, :]) @ Q.T)


def _in_common_axes(
    W: Floats, n: Floats, before: Floats, of_values: Callable[[Floats, Floats], Floats]
) -> Floats:
    """Alternately the covariances along common axes, and better axes for these."""
    some = n > 0
    Q = _common_axes(before)
    found = None
    for _ in range(_ROUNDS):
        values = np.einsum("ji,kjl,li->ki", Q, W, Q)
        after = of_values(np.where(some[:, None], values, 1.0), Q)
        if found is not None and np.max(np.abs(after - found)) <= _ENOUGH * np.max(np.abs(after)):
            break
        found = after
        inverse = 1.0 / np.einsum("ji,kjl,li->ki", Q, found, Q)
        Q = _rotated(W[some], inverse[some], Q)
    return after


def _common_axes(covariances: Floats) -> Floats:
    """The eigenvectors that covariances of one orientation have in common: those of a generic mean."""
    scaled = covariances / np.trace(covariances, axis1=1, axis2=2)[:, None, None]
    mixed = np.tensordot(1.0 + np.sqrt(np.arange(1.0, len(scaled) + 1.0)), scaled, axes=1)
    return np.asarray(np.linalg.eigh(mixed)[1])


def _rotated(W: Floats, inverse: Floats, Q: Floats) -> Floats:
    """Axes with a smaller sum_k tr(W_k Q diag(inverse_k) Q'): the best angle in one plane after another."""
    D = Q.shape[0]
    M = Q.T @ W @ Q  # (K, D, D)
    for _ in range(_SWEEPS):
        largest = 0.0
        for i in range(D - 1):
            for j in range(i + 1, D):
                weight = inverse[:, i] - inverse[:, j]
                a, b, c = weight @ M[:, i, i], weight @ M[:, i, j], weight @ M[:, j, j]
                # that of the eigenvector of the smaller eigenvalue of [[a, b], [b, c]]
                angle = 0.5 * float(np.arctan2(-2.0 * b, c - a))
                if abs(angle) < _SMALL_ANGLE:
                    continue
                largest = max(largest, float(abs(angle)))
                R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
                plane = [i, j]
                Q[:, plane] = Q[:, plane] @ R
                M[:, :, plane] = M[:, :, plane] @ R
                M[:, plane, :] = R.T @ M[:, plane, :]
        if largest < _SMALL_ANGLE:
            break
    return Q


@dataclass(frozen=True)
class Model:
    covariances: Callable[[Floats, Floats, Floats], Floats]
    one_unit: bool  # whether the model depends on the units of the features


MODELS: dict[str, Model] = {
    "VEI": Model(_vei, False),
    "EVI": Model(_evi, False),
    "VEE": Model(_vee, False),
    "EVE": Model(_eve, True),
    "VVE": Model(_vve, True),
    "EEV": Model(_eev, True),
    "VEV": Model(_vev, True),
    "EVV": Model(_evv, False),
}
