"""Rotated factors of a fitted model: the same density with loadings that are easier to read."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import to_numpy
from latently.distributions.rotations import OBLIQUE, ORTHOGONAL, procrustes, rotated
from latently.estimators.checks import check_choice, check_flag, numbers


class RotatedFactors:
    """Mixin of factor models: `rotate`, `align_factors` and `communalities`."""

    # of the model
    loadings_: Any
    covariances_: Any
    noise_variance_: Any
    weights_: Any
    latent_means_: Any
    latent_covariances_: Any
    _fitted_arrays: Any
    _set_fitted_arrays: Any

    def rotate(self, method="varimax", *, normalize=True):
        """The same density with rotated factors.

        Parameters
        ----------
        method : {"varimax", "quartimax", "promax", "oblimin"}, default="varimax"
            "varimax" prefers factors with few large loadings, "quartimax" features that load on few factors.
            "promax" and "oblimin" (with gamma = 0) let factors correlate. Factors of a density model are
            uncorrelated, except in `MCFA`; elsewhere the model that is returned has the loadings of
            "varimax", and beside them the pattern and correlations of the oblique factors.
        normalize : bool, default=True
            Kaiser's normalisation: features count equally, in whatever units they are.

        Returns
        -------
        estimator
            A copy with an equal density, whose factors come with the largest sum of squares first. Its
            `rotation_`, of shape (n_components, q, q), or (q, q) for one set of loadings, has the matrices T:
            rotated factors are T' times those before. After "promax" and "oblimin" it has `pattern_`, in the
            shape of the loadings, and `factor_correlations_` in that of `rotation_`.
        """
        check_is_fitted(self)
        check_choice("method", method, (*ORTHOGONAL, *OBLIQUE))
        check_flag("normalize", normalize)
        if hasattr(self, "latent_covariances_"):
            return self._with_rotated_space(method, normalize)
        loadings = to_numpy(self.loadings_)
        stacked = loadings.reshape(-1, *loadings.shape[-2:])
        found = [rotated(L, method, normalize=normalize) for L in stacked]
        kept = found
        if method in OBLIQUE:
            kept = [rotated(L, "varimax", normalize=normalize) for L in stacked]
        shape = loadings.shape[:-2]
        model = self._with_factors(loadings=np.stack([one.loadings for one in kept]).reshape(loadings.shape))
        q = loadings.shape[-1]
        model.rotation_ = np.stack([one.matrix for one in found]).reshape(*shape, q, q)
        if method in OBLIQUE:
            model.pattern_ = np.stack([one.loadings for one in found]).reshape(loadings.shape)
            model.factor_correlations_ = np.stack([one.correlations for one in found]).reshape(*shape, q, q)
        return model

    def align_factors(self, reference=0):
        """The same density with factors of all components turned towards those of one (Procrustes).

        Factors of different components can then be compared, and `transform` averages like with like.

        Parameters
        ----------
        reference : int or array-like of shape (n_features, n_factors), default=0
            A component, or loadings, to which those of each component are turned by a rotation with the
            least squared difference.

        Returns
        -------
        estimator
            A copy with an equal density and `rotation_`.
        """
        check_is_fitted(self)
        if hasattr(self, "latent_covariances_"):
            raise ValueError("components with common loadings have the same factors: nothing to align")
        loadings = to_numpy(self.loadings_)
        stacked = loadings.reshape(-1, *loadings.shape[-2:])
        if np.ndim(reference) == 0:
            if not (isinstance(reference, (int, np.integer)) and 0 <= reference < len(stacked)):
                raise ValueError(f"reference must be a component from 0 to {len(stacked) - 1}, or loadings")
            target = stacked[reference]
        else:
            target = numbers("reference", reference)
            if target.shape != stacked.shape[1:]:
                raise ValueError(f"reference must have shape {stacked.shape[1:]}, not {target.shape}")
        turns = [procrustes(L, target) for L in stacked]
        turned = np.stack([L @ T for L, T in zip(stacked, turns, strict=True)])
        model = self._with_factors(loadings=turned.reshape(loadings.shape))
        model.rotation_ = np.stack(turns).reshape(*loadings.shape[:-2], *turns[0].shape)
        return model

    def communalities(self):
        """How much of each feature's variance the factors explain, and how much is noise of its own.

        Returns
        -------
        pandas.DataFrame
            One line for each feature (and component, if there are several): `variance`, `communality` (the
            share that factors explain; with several sets of latent variables within the component) and
            `uniqueness` (the share of noise), which sum to one.
        """
        import pandas

        check_is_fitted(self)
        covariances = to_numpy(self.covariances_)
        K, D = covariances.shape[:2]
        variance = np.diagonal(covariances, axis1=1, axis2=2)
        noise = np.broadcast_to(to_numpy(self.noise_variance_), (K, D))
        names = getattr(self, "feature_names_in_", None)
        names = [f"feature {j}" for j in range(D)] if names is None else [str(name) for name in names]
        table = pandas.DataFrame(
            {
                "component": np.repeat(np.arange(K), D),
                "feature": names * K,
                "variance": variance.ravel(),
                "communality": (1.0 - noise / variance).ravel(),
                "uniqueness": (noise / variance).ravel(),
            }
        )
        return table.drop(columns="component") if K == 1 else table

    def _with_rotated_space(self, method, normalize):
        """Common loadings: factors are first scaled to unit covariance over all components."""
        A, weights = to_numpy(self.loadings_), to_numpy(self.weights_)
        means, covariances = to_numpy(self.latent_means_), to_numpy(self.latent_covariances_)
        pi = weights[: len(means)] / weights[: len(means)].sum()
        deviations = means - pi @ means
        total = np.tensordot(pi, covariances, axes=1) + (deviations.T * pi) @ deviations
        root = np.linalg.cholesky(total)
        found = rotated(A @ root, method, normalize=normalize)
        turn = np.linalg.solve(root.T, found.matrix).T  # T' root^-1: rotated factors of those before
        covariances = turn @ covariances @ turn.T
        model = self._with_factors(
            loadings=found.loadings,
            latent_means=means @ turn.T,
            latent_covariances=0.5 * (covariances + np.swapaxes(covariances, 1, 2)),
        )
        model.rotation_ = turn.T
        if method in OBLIQUE:
            model.pattern_, model.factor_correlations_ = found.loadings, found.correlations
        return model

    def _with_factors(self, **changed):
        """A copy with these fitted arrays changed, and what the fit told of itself."""
        model = copy(self)
        model._set_fitted_arrays(**{**self._fitted_arrays(), **changed})
        for name in ("n_iter_", "n_passes_", "converged_", "history_"):
            setattr(model, name, getattr(self, name))
        model.__dict__.pop("_online", None)
        return model
