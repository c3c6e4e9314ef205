"""Deep mixtures of common factor analysers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from latently.backend.linalg import clamp_spectrum, symmetric, with_fixed_signs
from latently.backend.namespace import eye, namespace, to_numpy, zeros
from latently.core.tree import mapped
from latently.deep._base import DeepMixture
from latently.deep._docs import shares_deep_docs
from latently.distributions import CommonLoadings, CommonParams
from latently.distributions.deep import DeepCommon
from latently.distributions.layers import Layer, Layers, Top
from latently.mixture import MCFA

_LEAST_SPREAD = 1e-3  # variance of factors, as a fraction of what noise makes of them
_FARTHEST = 1e5  # standard deviations that rows may lie away from the origin


@shares_deep_docs
class DMCFA(DeepMixture):
    """Deep mixture of common factor analysers.

    As :class:`DMFA`, with layers of common loadings: z2 ~ N(xi_s, Omega_s) for a sub-component s of the
    component c, z1 = A2_c z2 + noise, and x = A1 z1 + noise. All rows share A1 and its noise, and the
    sub-components of a component share A2_c and its noise, so there are far fewer parameters. As in
    :class:`latently.mixture.MCFA` there is no free mean: the place of the origin matters.

    {sizes}
    {shared}

    Attributes
    ----------
    layers_ : list of lists of MCFA
        `layers_[0]` has one mixture, of the rows; `layers_[1]` one for the factors of each component of that,
        which takes the place of its means and covariances of factors; and so on.
    {fitted}

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

    _LAYER: ClassVar = MCFA
    _COMMON: ClassVar = True

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

    def _check_frame(self, frame):
        distance = np.max(np.abs(to_numpy(frame.shift / frame.scale)))
        if distance > _FARTHEST:
            raise ValueError(
                f"X lies {distance:.1g} standard deviations away from the origin, where DMCFA, whose layers "
                "have no free mean, has too few digits left; subtract a constant"
            )

    def _family(self, floor):
        return CommonLoadings(self.layers_[0][0].n_factors, floor)

    def _deep_family(self, family, rules):
        return DeepCommon(family, rules)

    def _first_params(self):
        first = self.layers_[0][0]
        A, psi = first.loadings_, first.noise_variance_
        q = A.shape[1]
        return CommonParams(
            origin=zeros(psi.shape, psi),
            anchor=zeros((q,), A),
            centre=zeros(psi.shape, psi),
            loadings=A,
            latent_means=first.latent_means_,
            latent_covariances=first.latent_covariances_,
            noise_variance=psi,
            basis=eye(q, A),
        )

    def _first_layer(self, first):
        xp = namespace(first.centre)
        A = first.loadings @ xp.linalg.inv(first.basis)
        return Layer(zeros((1, A.shape[0]), A), A[None, ...], first.noise_variance[None, :])

    def _part_params(self, part):
        A, psi = part.loadings_, part.noise_variance_
        layer = Layer(zeros((1, A.shape[0]), A), A[None, ...], psi[None, :])
        return Layers(layer, Top(part.latent_means_, part.latent_covariances_))

    def _part(self, params):
        layer, top = params.components.layer, params.components.top
        return MCFA.from_parameters(
            weights=params.weights,
            loadings=layer.loadings[0],
            latent_means=top.means,
            latent_covariances=top.covariances,
            noise_variance=layer.noise_variance[0],
        )

    def _with_factors_settled(self, part, covariances):
        weights, A, xi, omega, psi = (
            to_numpy(array)
            for array in (
                part.weights_,
                part.loadings_,
                part.latent_means_,
                part.latent_covariances_,
                part.noise_variance_,
            )
        )
        # a layer above needs a density: spread of at least a small part of what noise makes of the factors
        unit = np.linalg.cholesky(np.linalg.inv(A.T @ (A / psi[:, None])))
        inverse = np.linalg.inv(unit)
        least = np.full(len(unit), _LEAST_SPREAD)
        omega = unit @ clamp_spectrum(inverse @ omega @ inverse.T, least) @ unit.T
        # unit covariance on average, and posterior covariances that are diagonal on average
        values, vectors = np.linalg.eigh(np.einsum("k,kij->ij", weights, omega))
        whitening, back = (vectors / np.sqrt(values)).T, vectors * np.sqrt(values)
        V = whitening @ np.einsum("k,kij->ij", weights, covariances) @ whitening.T
        turn = with_fixed_signs(np.linalg.eigh(symmetric(V))[1])
        basis = turn.T @ whitening
        return MCFA.from_parameters(
            weights=weights,
            loadings=A @ back @ turn,
            latent_means=xi @ basis.T,
            latent_covariances=symmetric(basis @ omega @ basis.T),
            noise_variance=psi,
        )

    def _collapsed(self):
        params = mapped(to_numpy, self._parameters())
        c = params.components
        return MCFA.from_parameters(
            weights=params.weights,
            loadings=c.loadings,
            latent_means=c.latent_means,
            latent_covariances=c.latent_covariances,
            noise_variance=c.noise_variance,
        )
