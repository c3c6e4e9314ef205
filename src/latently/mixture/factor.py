"""Factor analysis and probabilistic PCA: factor models of one component."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from latently.backend.namespace import ones
from latently.core.drivers import Result
from latently.distributions import LowRankParams, MixtureParams
from latently.distributions.moments import moment_step, principal_fit, total_moments
from latently.mixture._clusters import Clusters
from latently.mixture._docs import shares_docs
from latently.mixture._factors import FactorMixture


class _OneComponent(Clusters, FactorMixture):
    """Attributes without the axis of components."""

    _PARAMETERS: ClassVar = {
        "mean": "means_init",
        "loadings": "loadings_init",
        "noise_variance": "noise_init",
    }

    def __init__(
        self,
        n_factors=1,
        *,
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        init="kmeans",
        means_init=None,
        loadings_init=None,
        noise_init=None,
        noise_floor=1e-6,
        accelerate="squarem",
        batch_size=None,
        learning_decay=0.7,
        learning_offset=10.0,
        checkpoint=None,
        checkpoint_every=10,
        block_size=None,
        dtype="float64",
        random_state=None,
        warm_start=False,
        verbose=0,
        callbacks=None,
    ):
        super().__init__(
            n_factors=n_factors,
            max_iter=max_iter,
            tol=tol,
            n_init=n_init,
            init=init,
            means_init=means_init,
            loadings_init=loadings_init,
            noise_init=noise_init,
            noise_floor=noise_floor,
            accelerate=accelerate,
            batch_size=batch_size,
            learning_decay=learning_decay,
            learning_offset=learning_offset,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            block_size=block_size,
            dtype=dtype,
            random_state=random_state,
            warm_start=warm_start,
            verbose=verbose,
            callbacks=callbacks,
        )

    @classmethod
    def from_parameters(cls, *, mean, loadings, noise_variance):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes."""
        if np.ndim(loadings) != 2:
            raise ValueError("loadings must have shape (n_features, n_factors)")
        model = cls(np.shape(loadings)[1])
        model._check_hyperparameters()
        return model._set_parameters(mean=mean, loadings=loadings, noise_variance=noise_variance)

    def _n_components(self):
        return 1

    def _shapes(self, D):
        return {"mean": (D,), "loadings": (D, self.n_factors), "noise_variance": (D,)}

    def _to_kernel(self, fitted):
        mean, *rest = (fitted[name][None, ...] for name in ("mean", "loadings", "noise_variance"))
        return MixtureParams(ones((1,), mean), LowRankParams(mean, *rest))

    def _from_kernel(self, params):
        c = params.components
        arrays = {"mean": c.means, "loadings": c.loadings, "noise_variance": c.noise_variance}
        return {name: array[0, ...] for name, array in arrays.items()}

    @property
    def covariance_(self):
        """(n_features, n_features) covariance matrix, worked out when asked for."""
        return self.covariances_[0]


@shares_docs
class FactorAnalysis(_OneComponent):
    """Factor analysis: x = mu + L z + noise, z ~ N(0, I), noise ~ N(0, diag(psi)).

    With more rows than features the data are read once, for their covariance, and an iteration costs
    O(D^2 q) however many rows there are.

    Parameters
    ----------
    n_factors : int, default=1
        Number of factors q.
    {shared}

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    loadings_ : ndarray of shape (n_features, n_factors)
    noise_variance_ : ndarray of shape (n_features,)
    covariance_ : ndarray of shape (n_features, n_features)
        Worked out when asked for.
    {fitted}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import FactorAnalysis
    >>> X = load_iris().data
    >>> model = FactorAnalysis(n_factors=1).fit(X)
    >>> model.loadings_.shape
    (4, 1)
    >>> model.n_parameters()
    12
    """

    def _noise(self):
        return False, False

    def _step(self, problem):
        if problem.summary.missing or problem.summary.n_rows <= problem.data.n_features:
            return problem.step()
        return moment_step(problem.kernel, total_moments(problem.sweep()), problem.log_volume)


@shares_docs
class PPCA(_OneComponent):
    """Probabilistic PCA: x = mu + W z + noise, z ~ N(0, I), noise ~ N(0, sigma^2 I).

    Fitted in closed form, so the parameters that steer iterations (`max_iter`, `tol`, starting values and
    the like) have no effect, unless entries are missing: then it is fitted by EM, as the other models are.

    Parameters
    ----------
    n_factors : int, default=1
        Number of factors q.
    {shared}

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
    loadings_ : ndarray of shape (n_features, n_factors)
        Principal axes, longest first, each with its largest entry positive.
    noise_variance_ : ndarray of shape (n_features,)
        The same in all entries.
    covariance_ : ndarray of shape (n_features, n_features)
        Worked out when asked for.
    n_iter_, n_passes_, converged_ : int, int, bool
        1, 1 and True, unless entries are missing.
    history_ : ndarray
        Log-likelihood per row; one entry, unless entries are missing.
    n_features_in_, feature_names_in_ : int, ndarray
        Number of features, and their names if X had any.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import PPCA
    >>> X = load_iris().data
    >>> model = PPCA(n_factors=2).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    >>> model.n_parameters()
    12
    """

    def _noise(self):
        return True, False

    def _fitted_in(self, problem):
        """The maximum of the likelihood, in the frame; starting values are looked at but not needed."""
        if problem.summary.missing:
            return super()._fitted_in(problem)
        self._given_starts(problem.data.n_features)
        params = principal_fit(problem.kernel.family, problem.sweep(), problem.summary.n_rows)
        self.n_passes_ = 1
        return Result(params, [problem.step()(params).objective], 1, True)
