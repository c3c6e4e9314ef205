"""Functions of blocks of rows, computed with the collapsed mixture of a tree.

`kernel`, `density` and `frame` are those of the collapsed mixture, whose S components are the leaves; a
`FactorMap` maps its factors to the q factors of a layer.
"""

from __future__ import annotations

import numpy as np

from latently.backend import packed
from latently.backend.linalg import transpose
from latently.backend.namespace import namespace, to_numpy
from latently.core.block import Block
from latently.deep.next_layer import density_of_prior, kernel_for
from latently.distributions.layers import Moments
from latently.distributions.mixture import log_density
from latently.distributions.responsibilities import normalise
from latently.estimators.rows import for_method
from latently.mixture.base import probabilities

_NEGLIGIBLE = 1e-12  # responsibilities below this are dropped from the inputs of a component


@for_method("predict_proba")
def probabilities_of_nodes(kernel, density, frame, members, block):
    """(n, nodes); `members` (S, nodes) is 1 if a leaf belongs to a node, else 0."""
    return probabilities(kernel, density, frame, block) @ members


@for_method("predict")
def most_probable_node(kernel, density, frame, members, block):
    resp = probabilities_of_nodes(kernel, density, frame, members, block)
    return namespace(resp).argmax(resp, axis=1)


@for_method("transform")
def averaged_factors(kernel, density, frame, factors, block):
    """(n, q)"""
    log_joint, latent = kernel.family.evaluate(density, frame.enter(block))
    resp = normalise(log_joint)[1]
    return namespace(resp).sum(resp[:, :, None] * _means(kernel, density, factors, latent), axis=0)


@for_method("factor_posterior")
def factor_means(kernel, density, frame, factors, block):
    """(n, S, q)"""
    latent = kernel.family.evaluate(density, frame.enter(block))[1]
    return namespace(block.X).permute_dims(_means(kernel, density, factors, latent), (1, 0, 2))


@for_method("factor_posterior")
def factor_covariances(kernel, density, frame, factors, block):
    """(n, S, q, q)"""
    latent = kernel.family.evaluate(density, frame.enter(block))[1]
    return factors.covariances(kernel.family.factor_covariances(density, latent, len(block)))


@for_method("bound")
def bounds_of_rows(kernel, density, frame, factors, V, priors, mixtures, common, block):
    """(n,) ln p(x) of the tree, plus the gain from replacing the priors of its last factors by mixtures.

    `factors` maps to factors minus the means of these priors; V (S, q, q) are their posterior covariances for
    complete rows.
    """
    xp = namespace(density.constants)
    log_norm, resp, latent = _posterior(kernel, density, frame, block)
    incomplete = block.observed is not None
    if incomplete:
        rows = _means_and_covariances(kernel, density, factors, latent, len(block))
    else:
        rows = _means(kernel, density, factors, latent)
    total = log_norm - frame.log_volume(block)
    for leaf, params in enumerate(mixtures):
        prior = Moments(priors.means[leaf : leaf + 1, ...], priors.covariances[leaf : leaf + 1, ...])
        covariance = None if incomplete else V[leaf, ...]
        above = kernel_for(params.weights.shape[0], 1, prior, covariance, common=common)
        own = Block(rows[leaf, ...])
        gain = log_density(above, above.prepare(params), own)
        gain = gain - above.family.evaluate(density_of_prior(above), own)[0][0, :]
        total = total + xp.where(resp[leaf, :] > 0, resp[leaf, :] * gain, 0.0)
    return total


# -- in training ----------------------------------------------------------------------------------------


def log_likelihoods(kernel, density, frame, block):
    """(n,) log-likelihoods of rows, given the labels of their components."""
    return _posterior(kernel, density, frame, block)[0] - frame.log_volume(block)


def weighted(kernel, density, frame, fn, *args):
    """The sum over rows of weight times `fn`."""
    *_, block = args
    values = fn(kernel, density, frame, *args)
    return namespace(values).sum(values if block.weight is None else values * block.weight)


def inputs_of_rows(kernel, density, frame, factors, V, missing, rng, block):
    """[for every leaf: rows (n, q) or (n, q + T), and weights (n,)], in main memory; one entry for the block.

    Rows are posterior means of factors; with `missing` followed by their packed covariances. With `rng`, rows
    are drawn from their posterior and assigned to the most probable leaf.
    """
    _, resp, latent = _posterior(kernel, density, frame, block)
    if missing and rng is None:
        rows = _means_and_covariances(kernel, density, factors, latent, len(block))
    else:
        rows = _means(kernel, density, factors, latent)
    rows, resp = to_numpy(rows), to_numpy(resp)
    if rng is not None:
        rows = rows + _deviations(kernel, density, factors, V, latent, missing, len(block), rng)
        resp = (np.argmax(resp, axis=0) == np.arange(len(resp))[:, None]).astype(np.float64)
    kept = resp > _NEGLIGIBLE
    weight = resp if block.weight is None else resp * to_numpy(block.weight)
    return [[(rows[leaf][kept[leaf]], weight[leaf][kept[leaf]]) for leaf in range(len(resp))]]


# -- posteriors -----------------------------------------------------------------------------------------


def _posterior(kernel, density, frame, block):
    """ln p(x) (n,) and responsibilities (S, n), given the labels of components, and latent values."""
    log_joint, latent = kernel.family.evaluate(density, frame.enter(block))
    if block.allowed is not None:
        log_joint = namespace(log_joint).where(block.allowed.T, log_joint, -namespace(log_joint).inf)
    return *normalise(log_joint), latent


def _means(kernel, density, factors, latent):
    """(S, n, q) posterior means of factors."""
    f = kernel.family.factor_means(density, latent)
    return namespace(f).permute_dims(f, (1, 0, 2)) @ transpose(factors.gain) + factors.offset[:, None, :]


def _means_and_covariances(kernel, density, factors, latent, n):
    """(S, n, q + T) posterior means of factors, and their packed covariances."""
    V = factors.covariances(kernel.family.factor_covariances(density, latent, n))  # (n, S, q, q)
    xp = namespace(V)
    entries = xp.stack([V[:, :, i, j].T for i, j in packed.pairs(V.shape[-1])], axis=2)
    return xp.concat([_means(kernel, density, factors, latent), entries], axis=2)


def _deviations(kernel, density, factors, V, latent, missing, n, rng):
    """(S, n, q) draws of the factors minus their posterior means."""
    if missing:
        V = to_numpy(factors.covariances(kernel.family.factor_covariances(density, latent, n)))
        V = np.swapaxes(V, 0, 1)  # (S, n, q, q)
    else:
        V = V[:, None]
    noise = rng.standard_normal((V.shape[0], n, V.shape[-1], 1))
    return (np.linalg.cholesky(V) @ noise)[..., 0]
