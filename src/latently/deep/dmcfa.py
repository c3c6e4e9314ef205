"""Deep mixtures of common factor analysers."""

from __future__ import annotations

from typing import ClassVar

from latently.deep.base import DeepMixture
from latently.deep.kinds import CommonLoadings
from latently.estimators.options import estimator


@estimator
class DMCFA(DeepMixture):
    """Deep mixture of common factor analysers.

    As :class:`DMFA`, with layers of common loadings: z2 ~ N(xi_s, Omega_s) for a sub-component s of the
    component c, z1 = A2_c z2 + noise, and x = A1 z1 + noise. All rows share A1 and its noise, and the
    sub-components of a component share A2_c and its noise, so there are far fewer parameters. As in
    :class:`latently.mixture.MCFA` there is no free mean, so the origin of the features matters.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    layers_ : list of lists of MCFA
        `layers_[0]` holds one mixture, for the rows; `layers_[1]` one for the factors of each component of
        `layers_[0]`, which replaces their means and covariances; and so on.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.deep import DMCFA
    >>> X = load_iris().data
    >>> model = DMCFA(n_components=2, n_factors=3, n_subcomponents=2, n_subfactors=2, random_state=0).fit(X)
    >>> model.transform(X).shape
    (150, 2)
    >>> bool(abs(model.collapse().score(X) - model.score(X)) < 1e-9)
    True
    """

    kind: ClassVar = CommonLoadings()
