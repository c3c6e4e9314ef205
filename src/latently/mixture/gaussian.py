"""Mixtures of Gaussians with full, tied, diagonal or spherical covariances."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np

from latently.estimators.checks import check_choice, check_integer
from latently.estimators.options import estimator, option
from latently.mixture.robust import RobustMixture
from latently.mixture.structure import COVARIANCE_TYPES, GaussianStructure


@estimator
class GaussianMixture(RobustMixture):
    """Mixture of Gaussians.

    A component k is drawn with probability pi_k, then x from N(mu_k, Sigma_k).

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    covariance_type : {"full", "tied", "diag", "spherical"} or a model of mclust, default="full"
        Each component has its own covariance matrix ("full"), all components share one ("tied"), each has its
        own diagonal covariance matrix ("diag"), or each has a single variance ("spherical"). Three letters,
        such as "VVE", for volume, shape and orientation of the covariances: equal (E) or varying (V) among
        components; I as second letter is a spherical shape, as third letter orientation along the axes.
        The 14 models are EII, VII, EEI, VEI, EVI, VVI, EEE, VEE, EVE, VVE, EEV, VEV, EVV and VVV.
    {options}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    covariances_ : ndarray
        (n_components, n_features, n_features) if "full", (n_features, n_features) if "tied",
        (n_components, n_features) if "diag", (n_components,) if "spherical"; else as if "full".
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import GaussianMixture
    >>> X = load_iris().data
    >>> model = GaussianMixture(n_components=3, covariance_type="tied", random_state=0).fit(X)
    >>> model.means_.shape, model.covariances_.shape
    ((3, 4), (4, 4))
    >>> model.n_parameters()
    24
    """

    n_components: int = option(default=1, check=check_integer, least=1)
    _: KW_ONLY
    covariance_type: str = option(default="full", check=check_choice, choices=tuple(COVARIANCE_TYPES))
    weights_init: Any = None
    means_init: Any = None
    covariances_init: Any = None

    @classmethod
    def from_parameters(cls, *, weights, means, covariances, **options):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        given = {"weights": weights, "means": means, "covariances": covariances}
        return cls._from_parameters((max(1, np.size(weights)),), given, options)

    def _gaussian_structure(self):
        return GaussianStructure(self.n_components, self.covariance_type)
