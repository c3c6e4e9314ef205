"""Slow reference for mixtures of t components, with or without uniform noise beside them.

    u | k ~ Gamma(nu_k / 2, rate nu_k / 2)     (z, x) | u, k ~ N(m_k, C_k / u)     noise: uniform over a box

One row and one component at a time: SciPy's multivariate t for densities, `missing.conditioned` for the
Gaussian of all that is latent given what is observed, quadrature over u for its expectations, and a bracketed
root for nu. With degrees None, u is one and components are Gaussian. Nothing here is shared with the library.

N rows (NaN where missing), D features, K components, q factors. `joints` are pairs (m_k, C_k) of (z, x), z
first; noise is None or (weight, box (2, D)).
"""

import numpy as np
from scipy import optimize, special, stats

from .missing import conditioned
from .mixtures import log_normal


def joints_of_factors(means, loadings, noise):
    """Of z ~ N(0, I), x = mu + L z + noise."""
    q = loadings.shape[2]
    joint = []
    for mu, L, psi in zip(means, loadings, noise, strict=True):
        cov = np.block([[np.eye(q), L.T], [L, L @ L.T + np.diag(psi)]])
        joint.append((np.concatenate([np.zeros(q), mu]), cov))
    return joint


def joints_of_common(loadings, latent_means, latent_covs, noise):
    """Of z ~ N(xi, Omega), x = A z + noise."""
    joint = []
    for xi, Omega in zip(latent_means, latent_covs, strict=True):
        C = loadings @ Omega
        cov = np.block([[Omega, C.T], [C, C @ loadings.T + np.diag(noise)]])
        joint.append((np.concatenate([xi, loadings @ xi]), cov))
    return joint


def log_component(x, mean, cov, degrees):
    """ln p of the observed entries of a row."""
    seen = ~np.isnan(x)
    mean, cov = mean[seen], cov[np.ix_(seen, seen)]
    if degrees is None:
        return log_normal(x[seen], mean, cov)
    return float(stats.multivariate_t(mean, cov, degrees).logpdf(x[seen]))


def log_joint(X, weights, means, covs, degrees=None, noise=None):
    """(N, K), or (N, K + 1) with noise."""
    K = len(weights)
    out = np.full((len(X), K + (noise is not None)), -np.inf)
    for n, x in enumerate(X):
        for k in range(K):
            nu = None if degrees is None else degrees[k]
            out[n, k] = np.log(weights[k]) + log_component(x, means[k], covs[k], nu)
        if noise is not None:
            weight, box = noise
            out[n, K] = np.log(weight) - np.sum(np.log(box[1] - box[0])[~np.isnan(x)])
    return out


def log_density(X, weights, means, covs, degrees=None, noise=None):
    return special.logsumexp(log_joint(X, weights, means, covs, degrees, noise), axis=1)


def precision(x, mean, cov, degrees):
    """E[u | x] and E[ln u | x], by quadrature over u of Gamma(u) N(x; mean, cov / u)."""
    seen = ~np.isnan(x)
    r, cov = (x - mean)[seen], cov[np.ix_(seen, seen)]
    distance, size = r @ np.linalg.solve(cov, r), seen.sum()
    s = np.linspace(
        -25.0, 6.0, 3001
    )  # u = exp(s); the trapezoidal rule is exact to rounding for such integrands
    u, h = np.exp(s), degrees / 2
    log_integrand = (h + 0.5 * size) * s - (
        h + 0.5 * distance
    ) * u  # Gamma(u) N(x; mean, cov / u) du, unnormalised
    weight = np.exp(log_integrand - log_integrand.max())
    return np.sum(weight * u) / weight.sum(), np.sum(weight * s) / weight.sum()


def moments(X, joints, q, r, degrees=None):
    """For every component: sums of r, of r E[u], of r E[u v], of r E[u v v'], v = (z, x); and its new nu."""
    found = []
    for k, (mean, cov) in enumerate(joints):
        weight = first = share = 0.0
        second, tail = np.zeros(cov.shape), 0.0
        for n, x in enumerate(X):
            v, spread = conditioned(np.concatenate([np.full(q, np.nan), x]), mean, cov)
            u, log_u = (1.0, 0.0) if degrees is None else precision(x, mean[q:], cov[q:, q:], degrees[k])
            weight, share = weight + r[n, k], share + r[n, k] * u
            first = first + r[n, k] * u * v
            second += r[n, k] * (u * np.outer(v, v) + spread)
            tail += r[n, k] * (log_u - u)
        found.append((weight, share, first, second, None if degrees is None else new_degrees(tail / weight)))
    return found


def new_degrees(mean):
    """The maximiser of -ln G(nu / 2) + nu / 2 (ln(nu / 2) + mean) from 1 to 10000."""

    def slope(log_nu):
        h = 0.5 * np.exp(log_nu)
        return np.log(h) + 1.0 - special.digamma(h) + mean

    low, high = 0.0, np.log(1e4)
    if slope(low) < 0:
        return 1.0
    return 1e4 if slope(high) > 0 else np.exp(optimize.brentq(slope, low, high, xtol=1e-14, rtol=1e-14))


def responsibilities(X, weights, means, covs, degrees, noise, sample_weight):
    """(N, K) of the components, times the weights of the rows; the weight of the noise; that of all rows."""
    joint = log_joint(X, weights, means, covs, degrees, noise)
    w = np.ones(len(X)) if sample_weight is None else sample_weight
    r = np.exp(joint - special.logsumexp(joint, axis=1)[:, None]) * w[:, None]
    return r[:, : len(weights)], None if noise is None else r[:, -1].sum() / w.sum(), w.sum()


def gaussian_step(X, weights, means, covs, kind, degrees=None, noise=None, sample_weight=None):
    """One EM step: weights, means, dense covs, degrees, weight of the noise."""
    r, share_of_noise, total = responsibilities(X, weights, means, covs, degrees, noise, sample_weight)
    found = moments(X, list(zip(means, covs, strict=True)), 0, r, degrees)
    new_means = np.array([first / share for _, share, first, _, _ in found])
    scatters = np.array(
        [f[3] - f[1] * np.outer(mean, mean) for f, mean in zip(found, new_means, strict=True)]
    )
    N_k = np.array([f[0] for f in found])
    new = scatters / N_k[:, None, None]
    if kind == "tied":
        new = np.array([scatters.sum(axis=0) / N_k.sum()] * len(new))
    elif kind == "diag":
        new = np.array([np.diag(np.diag(cov)) for cov in new])
    elif kind == "spherical":
        new = np.array([np.trace(cov) / len(cov) * np.eye(len(cov)) for cov in new])
    weights, share_of_noise = shares(N_k, total, share_of_noise)
    return (weights, new_means, new), _degrees(found), share_of_noise


def mfa_step(
    X, weights, means, loadings, psi, isotropic, shared, degrees=None, noise=None, sample_weight=None
):
    """One EM step: weights, means, loadings, noise variances; degrees; weight of the noise."""
    K, D, q = loadings.shape
    joints = joints_of_factors(means, loadings, psi)
    covs = np.array([cov[q:, q:] for _, cov in joints])
    r, share_of_noise, total = responsibilities(X, weights, means, covs, degrees, noise, sample_weight)
    found = moments(X, joints, q, r, degrees)
    new_means, new_loadings, residual = np.empty((K, D)), np.empty((K, D, q)), np.empty((K, D))
    for k, (_, share, first, second, _) in enumerate(found):
        zz = np.block([[second[:q, :q], first[:q, None]], [first[None, :q], np.array([[share]])]])
        xz = np.concatenate([second[q:, :q], first[q:, None]], axis=1)
        B = xz @ np.linalg.inv(zz)
        new_loadings[k], new_means[k] = B[:, :q], B[:, q]
        residual[k] = np.diag(second[q:, q:] - xz @ B.T - B @ xz.T + B @ zz @ B.T)
    N_k = np.array([f[0] for f in found])
    new = residual / N_k[:, None]
    if shared:
        new = np.array([residual.sum(axis=0) / N_k.sum()] * K)
    if isotropic:
        new = np.repeat(new.mean(axis=1)[:, None], D, axis=1)
    weights, share_of_noise = shares(N_k, total, share_of_noise)
    return (weights, new_means, new_loadings, new), _degrees(found), share_of_noise


def mcfa_step(
    X, weights, loadings, latent_means, latent_covs, psi, degrees=None, noise=None, sample_weight=None
):
    """One EM step: weights, loadings, factor means and covariances, noise variances; degrees; noise."""
    q = loadings.shape[1]
    joints = joints_of_common(loadings, latent_means, latent_covs, psi)
    means, covs = np.array([m[q:] for m, _ in joints]), np.array([cov[q:, q:] for _, cov in joints])
    r, share_of_noise, total = responsibilities(X, weights, means, covs, degrees, noise, sample_weight)
    found = moments(X, joints, q, r, degrees)
    xi = np.array([first[:q] / share for _, share, first, _, _ in found])
    Omega = np.array([(f[3][:q, :q] - f[1] * np.outer(m, m)) / f[0] for f, m in zip(found, xi, strict=True)])
    second = sum(f[3] for f in found)
    A = second[q:, :q] @ np.linalg.inv(second[:q, :q])
    left = np.diag(second[q:, q:] - second[q:, :q] @ A.T)
    N_k = np.array([f[0] for f in found])
    weights, share_of_noise = shares(N_k, total, share_of_noise)
    return (weights, A, xi, Omega, left / N_k.sum()), _degrees(found), share_of_noise


def shares(N_k, total, share_of_noise):
    """New weights of the components and of noise, which is at most a half."""
    if share_of_noise is None or share_of_noise <= 0.5:
        return N_k / total, share_of_noise
    return 0.5 * N_k / N_k.sum(), 0.5


def _degrees(found):
    return None if found[0][4] is None else np.array([f[4] for f in found])
