"""Deep mixtures of factor analysers."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from latently.backend.linalg import with_fixed_signs
from latently.backend.namespace import to_numpy
from latently.core.tree import mapped
from latently.deep._base import DeepMixture, pooled
from latently.deep._docs import shares_deep_docs
from latently.distributions import LowRankGaussian, LowRankParams, MixtureParams
from latently.distributions.deep import DeepLowRank, DeepParams
from latently.distributions.layers import Layer, Layers, expectations, stacked, standard_top
from latently.mixture import MFA


@shares_deep_docs
class DMFA(DeepMixture):
    """Deep mixture of factor analysers.

    A mixture of factor analysers for the rows and, for the factors of each of its components, another one in
    the place of their standard normal prior: z2 ~ N(0, I), z1 = mu2_s + W2_s z2 + noise for a sub-component s
    of the component c, and x = mu1_c + W1_c z1 + noise. It is a mixture of factor analysers with as many
    components as there are sub-components, which share loadings and noise within each component.

    {sizes}
    {shared}

    Attributes
    ----------
    layers_ : list of lists of MFA
        `layers_[0]` has one mixture, of the rows; `layers_[1]` one for the factors of each component of that;
        and so on.
    {fitted}

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

    _LAYER: ClassVar = MFA
    _COMMON: ClassVar = False

    def __init__(
        self,
        n_components=1,
        n_factors=1,
        n_subcomponents=2,
        n_subfactors=1,
        *,
        fine_tune=False,
        inputs="expected",
        prior_rows="auto",
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        init="kmeans",
        noise_floor=1e-6,
        accelerate="squarem",
        block_size=None,
        dtype="float64",
        random_state=None,
        verbose=0,
        callbacks=None,
    ):
        super().__init__(
            n_components=n_components,
            n_factors=n_factors,
            n_subcomponents=n_subcomponents,
            n_subfactors=n_subfactors,
            fine_tune=fine_tune,
            inputs=inputs,
            prior_rows=prior_rows,
            max_iter=max_iter,
            tol=tol,
            n_init=n_init,
            init=init,
            noise_floor=noise_floor,
            accelerate=accelerate,
            block_size=block_size,
            dtype=dtype,
            random_state=random_state,
            verbose=verbose,
            callbacks=callbacks,
        )

    def _family(self, floor):
        return LowRankGaussian(self.layers_[0][0].n_factors, floor)

    def _deep_family(self, family, rules):
        return DeepLowRank(family, rules, self._nodes()[0])

    def _first_params(self):
        first = self.layers_[0][0]
        return LowRankParams(first.means_, first.loadings_, first.noise_variance_)

    def _first_layer(self, first):
        return Layer(first.means, first.loadings, first.noise_variance)

    def _part_params(self, part):
        layer = Layer(part.means_, part.loadings_, part.noise_variance_)
        return Layers(layer, standard_top(part.n_components, part.n_factors, part.means_))

    def _part(self, params):
        layer = params.components.layer
        return MFA.from_parameters(
            weights=params.weights,
            means=layer.means,
            loadings=layer.loadings,
            noise_variance=layer.noise_variance,
        )

    def _with_factors_settled(self, part, covariances):
        turns = np.stack([with_fixed_signs(np.linalg.eigh(V)[1]) for V in covariances])
        params = self._described(part)
        layer = params.components.layer
        turned = Layers(replace(layer, loadings=layer.loadings @ turns), params.components.above)
        return self._part(replace(params, components=turned))

    def _collapsed(self):
        params = mapped(to_numpy, self._parameters())
        c = params.components
        return MFA.from_parameters(
            weights=params.weights, means=c.means, loadings=c.loadings, noise_variance=c.noise_variance
        )

    def _set_record(self, params):
        """In units in which the factors of every component have mean zero and unit variances."""
        params = mapped(to_numpy, params)
        record, nodes, weights = params.components, self._nodes(), params.weights
        layers = [self._first_layer(record.first), *record.above.all()]
        moments = expectations(record.above, self._owners())
        for height, parent in enumerate(self._parents()):
            of = pooled(moments[height], weights, nodes[height])
            m, unit = of.means, np.sqrt(np.diagonal(of.covariances, axis1=1, axis2=2))
            below, above = layers[height], layers[height + 1]
            layers[height] = Layer(
                below.means + np.einsum("npq,nq->np", below.loadings, m),
                below.loadings * unit[:, None, :],
                below.noise_variance,
            )
            layers[height + 1] = Layer(
                (above.means - m[parent]) / unit[parent],
                above.loadings / unit[parent][:, :, None],
                above.noise_variance / unit[parent] ** 2,
            )
        first = LowRankParams(*vars(layers[0]).values())
        components = DeepParams(first, stacked(layers[1:], record.above.top))
        super()._set_record(MixtureParams(weights, components))
