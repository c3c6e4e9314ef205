"""Deep mixtures by dense Gaussian algebra: slow, and written from the model alone.

A model is a tree. `layers[0]` is one mixture, of the rows; `layers[l]` has one mixture for each component of
the layer below, in order. A mixture is a dict: `weights` (K,), and either `means` (K, p), `loadings` (K, p,
q) and `noise` (K, p), with factors N(0, I); or, with common loadings, `loadings` (p, q), `noise` (p,),
`latent_means` (K, q) and `latent_covs` (K, q, q), of which all but those of the last layer are replaced.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal


@dataclass(frozen=True)
class Leaf:
    """A component of the last layer, with the Gaussian of all variables (x, z1, .., zL) together."""

    path: tuple  # components from the first layer to the last, each numbered within its layer
    weight: float
    mean: np.ndarray
    cov: np.ndarray
    slices: list  # of x, z1, .., zL

    def of(self, i):
        own = self.slices[i]
        return self.mean[own], self.cov[own, own]

    def given_x(self, X, i):
        """Means (N, q) and covariance of z_i given rows."""
        x, z = self.slices[0], self.slices[i]
        gain = self.cov[z, x] @ np.linalg.inv(self.cov[x, x])
        return self.mean[z] + (X - self.mean[x]) @ gain.T, self.cov[z, z] - gain @ self.cov[x, z]


def is_common(mixture):
    return "latent_means" in mixture


def n_components(mixture):
    return len(mixture["weights"])


def random_layers(rng, D, factors, counts, common):
    """Random layers; `factors` of every layer, `counts` lists of components of every mixture by layer."""
    layers, p = [], D
    for q, of_layer in zip(factors, counts, strict=True):
        layers.append([random_mixture(rng, p, K, q, common) for K in of_layer])
        p = q
    return layers


def random_mixture(rng, p, K, q, common):
    weights = rng.dirichlet(np.full(K, 5.0))
    if common:
        roots = rng.normal(size=(K, q, q))
        return {
            "weights": weights,
            "loadings": rng.normal(size=(p, q)),
            "noise": rng.uniform(0.2, 1.0, size=p),
            "latent_means": rng.normal(size=(K, q)),
            "latent_covs": np.array([R @ R.T + 0.3 * np.eye(q) for R in roots]),
        }
    return {
        "weights": weights,
        "means": rng.normal(size=(K, p)),
        "loadings": rng.normal(size=(K, p, q)),
        "noise": rng.uniform(0.2, 1.0, size=(K, p)),
    }


def leaves(layers):
    """All leaves in order."""
    found = [((), 1.0)]
    for parts in layers:
        grown = []
        for (path, weight), mixture in zip(found, parts, strict=True):
            grown += [((*path, len(grown) + k), weight * w) for k, w in enumerate(mixture["weights"])]
        found = [(path, weight) for path, weight in grown]
    return [_leaf(layers, path, weight) for path, weight in found]


def _leaf(layers, path, weight):
    maps = []  # (mean, loadings, noise) from above to below, of every layer
    for i, parts in enumerate(layers):
        part = parts[0 if i == 0 else path[i - 1]]
        k = path[i] - sum(n_components(p) for p in parts[: 0 if i == 0 else path[i - 1]])
        if is_common(part):
            maps.append((np.zeros(len(part["noise"])), part["loadings"], part["noise"]))
            top = part["latent_means"][k], part["latent_covs"][k]
        else:
            maps.append((part["means"][k], part["loadings"][k], part["noise"][k]))
            top = np.zeros(part["loadings"].shape[2]), np.eye(part["loadings"].shape[2])
    # from the top: append z_{l-1} = mean + W z_l + e below z_l
    mean, cov = top
    blocks = [len(mean)]
    for mu, W, psi in reversed(maps):
        q = blocks[0]
        lower_mean = mu + W @ mean[:q]
        cross = W @ cov[:q, :]
        lower_cov = W @ cov[:q, :q] @ W.T + np.diag(psi)
        mean = np.concatenate([lower_mean, mean])
        cov = np.block([[lower_cov, cross], [cross.T, cov]])
        blocks.insert(0, len(mu))
    bounds = np.concatenate([[0], np.cumsum(blocks)])
    return Leaf(path, weight, mean, cov, [slice(a, b) for a, b in pairwise(bounds)])


def log_joint(X, layers):
    """(N, S) ln p(x, leaf)."""
    return np.stack(
        [
            np.log(leaf.weight) + multivariate_normal(*leaf.of(0)).logpdf(X).reshape(len(X))
            for leaf in leaves(layers)
        ],
        axis=1,
    )


def log_density(X, layers):
    return logsumexp(log_joint(X, layers), axis=1)


def probabilities(X, layers, layer=None):
    """(N, K) posterior probabilities of the components of a layer, by default of the last."""
    joint = log_joint(X, layers)
    posterior = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    if layer is None:
        return posterior
    node = [leaf.path[layer - 1] for leaf in leaves(layers)]
    return np.stack([posterior[:, np.array(node) == k].sum(axis=1) for k in range(max(node) + 1)], axis=1)


def transform(X, layers):
    posterior = probabilities(X, layers)
    return sum(posterior[:, [s]] * leaf.given_x(X, len(layers))[0] for s, leaf in enumerate(leaves(layers)))


def without_last(layers):
    return layers[:-1]


def expected_log_normal(m, V, mean, cov):
    """E ln N(z; mean, cov) for z ~ N(m, V), m (N, q)."""
    precision = np.linalg.inv(cov)
    return multivariate_normal(mean, cov).logpdf(m).reshape(len(m)) - 0.5 * np.trace(precision @ V)


def bound(X, layers):
    """(N,) the lower bound of ln p(x) with the posterior of the model without its last layer.

    Sum over c of q(c|x) (E ln p(x, z, c) with the new prior, its sub-components weighed best, minus E ln q).
    """
    lower = without_last(layers)
    joint, total = log_joint(X, lower), np.zeros(len(X))
    posterior = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    for c, leaf in enumerate(leaves(lower)):
        m, V = leaf.given_x(X, len(lower))
        prior = leaf.of(len(lower))
        above = [
            np.log(one.weight) + expected_log_normal(m, V, *one.of(0)) for one in leaves([[layers[-1][c]]])
        ]
        free_energy = logsumexp(np.stack(above, axis=1), axis=1)
        # E_q ln p(x|z,c) + E_q ln prior + H(q) = ln p(x|c), so what is left is the change of the prior
        own = joint[:, c] + free_energy - expected_log_normal(m, V, *prior)
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = np.where(posterior[:, c] > 0, posterior[:, c] * np.log(posterior[:, c]), 0.0)
        total += posterior[:, c] * own - entropy
    return total


# -- EM over all layers together -----------------------------------------------------------------------


def step(X, layers, floors=None):
    """One EM step: posterior moments of all variables row by row, then a regression for every layer."""
    tree = leaves(layers)
    posterior = probabilities(X, layers)
    n = posterior.sum(axis=0)
    moments = []  # of every leaf: weighted sums of y and y y', y = (x, z1, .., zL)
    for s, leaf in enumerate(tree):
        size = len(leaf.mean)
        first, second = np.zeros(size), np.zeros((size, size))
        x = leaf.slices[0]
        gain = leaf.cov[:, x] @ np.linalg.inv(leaf.cov[x, x])
        open_ = leaf.cov - gain @ leaf.cov[x, :]
        for row, r in zip(X, posterior[:, s], strict=True):
            y = leaf.mean + gain @ (row - leaf.mean[x])
            first += r * y
            second += r * (open_ + np.outer(y, y))
        moments.append((first, second))
    stepped = []
    for i, parts in enumerate(layers):
        new_parts, number = [], 0
        for part in parts:
            own = range(number, number + n_components(part))
            number += n_components(part)
            under = {k: [s for s, leaf in enumerate(tree) if leaf.path[i] == k] for k in own}
            weights = np.array([n[under[k]].sum() for k in own])
            new = {"weights": weights / weights.sum()}
            x, z = tree[0].slices[i], tree[0].slices[i + 1]
            if is_common(part):
                all_under = [s for k in own for s in under[k]]
                xz = sum(moments[s][1][x, z] for s in all_under)
                zz = sum(moments[s][1][z, z] for s in all_under)
                A = xz @ np.linalg.inv(zz)
                xx = sum(moments[s][1][x, x] for s in all_under)
                new["loadings"], new["noise"] = A, np.diag(xx - A @ xz.T) / n[all_under].sum()
                if i == len(layers) - 1:
                    new["latent_means"] = np.array([moments[k][0][z] / n[k] for k in own])
                    new["latent_covs"] = np.array(
                        [
                            moments[k][1][z, z] / n[k] - np.outer(m, m)
                            for k, m in zip(own, new["latent_means"], strict=True)
                        ]
                    )
            else:
                means, loadings, noise = [], [], []
                for k in own:
                    total = n[under[k]].sum()
                    first = sum(moments[s][0] for s in under[k])
                    second = sum(moments[s][1] for s in under[k])
                    xz1 = np.column_stack([second[x, z], first[x]])
                    zz1 = np.block([[second[z, z], first[z][:, None]], [first[z][None], np.array([[total]])]])
                    both = xz1 @ np.linalg.inv(zz1)
                    loadings.append(both[:, :-1])
                    means.append(both[:, -1])
                    noise.append(np.diag(second[x, x] - both @ xz1.T) / total)
                new |= {"means": np.array(means), "loadings": np.array(loadings), "noise": np.array(noise)}
            new_parts.append(new)
        stepped.append(new_parts)
    return stepped


# -- counts --------------------------------------------------------------------------------------------


def jacobian_rank(D, factors, counts, common, seed=0):
    """The dimension of the set of densities at a random point: weights but one, means and covariances."""
    rng = np.random.default_rng(seed)
    layers = random_layers(rng, D, factors, counts, common)
    last = len(layers) - 1

    def free(part, i):
        if common:
            return ["loadings", "noise"] + (["latent_means", "latent_covs"] if i == last else [])
        return ["means", "loadings", "noise"]

    places = [
        (i, p, name, index)
        for i, parts in enumerate(layers)
        for p, part in enumerate(parts)
        for name in free(part, i)
        for index in np.ndindex(part[name].shape)
        if name != "latent_covs" or index[1] <= index[2]
    ]

    def density():
        found = leaves(layers)
        return np.concatenate(
            [np.concatenate([leaf.of(0)[0], leaf.of(0)[1][np.tril_indices(D)]]) for leaf in found]
        )

    columns, h = [], 1e-4
    for i, p, name, index in places:
        array = layers[i][p][name]
        mirrored = (index[0], index[2], index[1]) if name == "latent_covs" else index
        kept, sides = array[index], []
        for sign in (1, -1):
            array[index] = array[mirrored] = kept + sign * h
            sides.append(density())
        array[index] = array[mirrored] = kept
        columns.append((sides[0] - sides[1]) / (2 * h))
    matrix = np.array(columns)
    matrix = matrix / np.linalg.norm(matrix, axis=0, keepdims=True).clip(1e-300)
    values = np.linalg.svd(matrix, compute_uv=False)
    n_leaves = len(leaves(layers))
    return int(np.sum(values > 1e-7 * values[0])) + n_leaves - 1, values
