"""Deep mixtures of factor analysers."""

from __future__ import annotations

from typing import ClassVar

from latently.deep.base import DeepMixture
from latently.deep.kinds import OwnLoadings
from latently.estimators.options import estimator


@estimator
class DMFA(DeepMixture):
    """Deep mixture of factor analysers.

    A mixture of factor analysers for the rows in which the standard normal prior of the factors of each
    component is replaced by another mixture of factor analysers: z2 ~ N(0, I), z1 = mu2_s + W2_s z2 + noise
    for a sub-component s of the component c, and x = mu1_c + W1_c z1 + noise. As a density it is a mixture of
    factor analysers with one component per sub-component, which share loadings and noise within each
    component.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    layers_ : list of lists of MFA
        `layers_[0]` holds one mixture, for the rows; `layers_[1]` one for the factors of each component of
        `layers_[0]`; and so on.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.deep import DMFA
    >>> X = load_iris().data
    >>> model = DMFA(n_components=2, n_factors=2, n_subcomponents=2, n_subfactors=1, random_state=0).fit(X)
    >>> model.predict_proba(X).shape, model.predict_proba(X, layer=2).shape
    ((150, 2), (150, 4))
    >>> bool(abs(model.collapse().score(X) - model.score(X)) < 1e-9)
    True
    """

    kind: ClassVar = OwnLoadings()
