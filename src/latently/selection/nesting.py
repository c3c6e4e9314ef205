"""Nested models, and how to initialise a larger model from the optimum of a smaller one.

With fewer components or factors, or with shared noise, a model is a special case of the larger one, whose
maximum likelihood is therefore at least as high. If the larger model was fitted with a lower likelihood, its
optimum is poor. It can be initialised from the smaller one, with small factors added and components split in
two: the likelihood is then about the same, and EM never decreases it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latently.backend.linalg import root
from latently.backend.namespace import to_numpy

_SIZES = ("n_components", "n_factors")
_SPECIAL_CASES: dict[str, set[tuple[Any, Any]]] = {  # pairs of a value and a more general one
    "shared_noise": {(True, False)},
    "noise": {("isotropic", "diagonal")},
    "covariance_type": {("spherical", "diag"), ("spherical", "full"), ("diag", "full"), ("tied", "full")},
}
_STARTS = {  # a fitted attribute, without its underscore, and the parameter that takes it as starting value
    "weights": "weights_init",
    "means": "means_init",
    "covariances": "covariances_init",
    "loadings": "loadings_init",
    "noise_variance": "noise_init",
    "latent_means": "latent_means_init",
    "latent_covariances": "latent_covariances_init",
}
_SHORT = 0.1  # norm of an added factor, in standard deviations of the noise
_APART = 0.5  # shift of the halves of a component from its mean, in its standard deviations


def is_nested(smaller, larger):
    """Whether a model with the parameters `smaller` is a special case of one with `larger`."""
    different = [name for name in larger if not _same(smaller[name], larger[name])]
    return bool(different) and all(_widens(name, smaller[name], larger[name]) for name in different)


def _same(a, b):
    return a is b or bool(np.array_equal(a, b))


def _widens(name, narrow, wide):
    if name in _SIZES:
        return narrow < wide
    return (narrow, wide) in _SPECIAL_CASES.get(name, ())


def start_from(model, params, rng):
    """The optimum of a fitted model as starting values, by name, for parameters in which it is nested.

    None if the conversion is not supported.
    """
    names = [name for name, init in _STARTS.items() if init in params]
    known = all(hasattr(model, f"{name}_") for name in ("weights", *names))
    if not known or params.get("covariance_type") != getattr(model, "covariance_type", None):
        return None
    values = {name: to_numpy(getattr(model, f"{name}_")) for name in names}
    for _ in range(params.get("n_factors", 0) - getattr(model, "n_factors", 0)):
        values = _with_factor(values, rng)
    for _ in range(params["n_components"] - model.n_components):
        values = _with_component(values, params.get("covariance_type") == "tied", rng)
    return {_STARTS[name]: array for name, array in values.items()}


def _with_factor(values, rng):
    """Add one factor. It is small but not zero: a zero factor would never grow under EM."""
    noise, loadings = values["noise_variance"], values["loadings"]
    column = _SHORT * np.sqrt(noise) * rng.standard_normal(noise.shape)
    if loadings.ndim == 3 and loadings.shape[0] > 1 and not np.any(loadings != loadings[:1]):
        column = np.repeat(column[:1], len(column), axis=0)  # components share their loadings
    values = {**values, "loadings": np.concatenate([loadings, column[..., None]], axis=-1)}
    if "latent_means" in values:
        K, q = values["latent_means"].shape
        covariances = np.tile(np.eye(q + 1), (K, 1, 1))
        covariances[:, :q, :q] = values["latent_covariances"]
        values["latent_covariances"] = covariances
        values["latent_means"] = np.concatenate([values["latent_means"], np.zeros((K, 1))], axis=1)
    return values


def _with_component(values, tied, rng):
    """Split the largest component in two, with shifted means: identical halves would never separate."""
    k = int(np.argmax(values["weights"]))
    where = "latent_means" if "latent_means" in values else "means"
    step = _APART * _deviation(values, k, tied, rng)
    common = {"covariances"} if tied else {"loadings", "noise_variance"} if where == "latent_means" else set()
    values = {
        name: array if name in common else np.concatenate([array, array[k : k + 1]])
        for name, array in values.items()
    }
    values["weights"][[k, -1]] /= 2
    values[where][k] += step
    values[where][-1] -= step
    return values


def _deviation(values, k, tied, rng):
    """Deviation of a random draw from component k from its mean."""
    if "latent_covariances" in values:
        spread = root(values["latent_covariances"][k])  # it may be singular
        return spread @ rng.standard_normal(len(spread))
    if "loadings" in values:
        loadings, noise = values["loadings"][k], values["noise_variance"][k]
        return loadings @ rng.standard_normal(loadings.shape[1]) + np.sqrt(noise) * rng.standard_normal(
            len(noise)
        )
    covariance = values["covariances"] if tied else values["covariances"][k]
    normal = rng.standard_normal(values["means"].shape[1])
    return np.linalg.cholesky(covariance) @ normal if covariance.ndim == 2 else np.sqrt(covariance) * normal
