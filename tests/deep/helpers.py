"""Estimators from the oracle's layers, and back."""

import numpy as np

from latently.deep import DMCFA, DMFA
from latently.mixture import MCFA, MFA
from tests.oracles import deep as oracle


def part(mixture):
    """The estimator of one mixture."""
    if oracle.is_common(mixture):
        return MCFA.from_parameters(
            weights=mixture["weights"],
            loadings=mixture["loadings"],
            latent_means=mixture["latent_means"],
            latent_covariances=mixture["latent_covs"],
            noise_variance=mixture["noise"],
        )
    return MFA.from_parameters(
        weights=mixture["weights"],
        means=mixture["means"],
        loadings=mixture["loadings"],
        noise_variance=mixture["noise"],
    )


def build(layers):
    """The deep estimator."""
    cls = DMCFA if oracle.is_common(layers[0][0]) else DMFA
    first, *others = [[part(mixture) for mixture in parts] for parts in layers]
    return cls.from_layers(first[0], *others)


def read(model):
    """The oracle's layers of a fitted estimator."""
    return [[_read(one) for one in parts] for parts in model.layers_]


def _read(one):
    if isinstance(one, MCFA):
        return {
            "weights": one.weights_,
            "loadings": one.loadings_,
            "noise": one.noise_variance_,
            "latent_means": one.latent_means_,
            "latent_covs": one.latent_covariances_,
        }
    return {
        "weights": one.weights_,
        "means": one.means_,
        "loadings": one.loadings_,
        "noise": one.noise_variance_,
    }


CASES = [  # D, factors by layer, components of every mixture by layer
    (5, [2, 1], [[2], [2, 3]]),
    (4, [3, 2], [[3], [1, 2, 2]]),
    (6, [3, 1], [[1], [3]]),
    (6, [3, 2, 1], [[2], [2, 1], [2, 1, 3]]),
]


def case(number, common, seed=0, n_rows=30):
    """Layers of the oracle, and rows drawn from them."""
    rng = np.random.default_rng([number, common, seed])
    layers = oracle.random_layers(rng, *CASES[number], common)
    tree = oracle.leaves(layers)
    chosen = rng.choice(len(tree), size=n_rows, p=[leaf.weight for leaf in tree])
    X = np.array([rng.multivariate_normal(*tree[s].of(0)) for s in chosen])
    return layers, X
