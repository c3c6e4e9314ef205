"""Slow reference implementation of mixtures of common factor analysers.

    k ~ pi     z | k ~ N(xi_k, Omega_k)     x | z ~ N(A z, diag(psi))

so that x | k ~ N(A xi_k, A Omega_k A' + diag(psi)). All components share A and psi and there is no free mean:
moving the rows changes the model. (A C^-1, C xi_k, C Omega_k C') is the same model for every invertible C.

N rows, D features, K components, q factors; loops over rows and components, D x D algebra. Nothing here is
shared with the library. Sections are those of the errata; 6 is this model, 0 the tools.

Parameters, in this order: weights (K,), loadings (D, q), latent_means (K, q), latent_covs (K, q, q) and
noise (D,) (variances). Meant for well scaled data: moments are taken about the origin. Rows with missing
entries are in `missing`.
"""

import numpy as np

from .mixtures import _cubature, _entropy, _row_weights, log_normal, responsibilities

# ---------------------------------------------------------------------------- densities, factors


def dense(weights, loadings, latent_means, latent_covs, noise):
    """(weights, means, covs), which is what the densities of `mixtures` take. Section 6."""
    means = np.array([loadings @ xi for xi in latent_means])
    covs = np.array([loadings @ Omega @ loadings.T + np.diag(noise) for Omega in latent_covs])
    return weights, means, covs


def factor_posterior(X, loadings, latent_means, latent_covs, noise):
    """E[z | x_n, k] (N, K, q) and Cov[z | x, k] (K, q, q), conditioning the Gaussian of (z, x).

    Cov[(z, x)] = [[Omega, Omega A'], [A Omega, Sigma]] and the mean is (xi, A xi). Section 0 with S = Omega.
    """
    (_, q), K = loadings.shape, len(latent_means)
    z_means, z_covs = np.empty((len(X), K, q)), np.empty((K, q, q))
    for k in range(K):
        xi, Omega = latent_means[k], latent_covs[k]
        C_zx = Omega @ loadings.T
        C_xx_inverse = np.linalg.inv(loadings @ C_zx + np.diag(noise))
        z_covs[k] = Omega - C_zx @ C_xx_inverse @ C_zx.T
        for n, x in enumerate(X):
            z_means[n, k] = xi + C_zx @ C_xx_inverse @ (x - loadings @ xi)
    return z_means, z_covs


def transform(X, weights, loadings, latent_means, latent_covs, noise):
    """E[z | x_n] = sum_k r_nk m_nk, (N, q). Section 6, projection of a sample."""
    r = responsibilities(X, *dense(weights, loadings, latent_means, latent_covs, noise))
    m, _ = factor_posterior(X, loadings, latent_means, latent_covs, noise)
    out = np.zeros((len(X), loadings.shape[1]))
    for n in range(len(X)):
        for k in range(len(weights)):
            out[n] += r[n, k] * m[n, k]
    return out


def reconstruct(X, weights, loadings, latent_means, latent_covs, noise):
    """E[A z | x_n], (N, D): the rows without their noise."""
    z = transform(X, weights, loadings, latent_means, latent_covs, noise)
    return np.array([loadings @ z_n for z_n in z])


# ----------------------------------------------------------------------------------- one EM step


def step(X, weights, loadings, latent_means, latent_covs, noise, sample_weight=None):
    """One exact EM step with latent (k, z): all five parameters. Section 6.

    The joint maximiser of Q: Omega about the new xi, the noise with the new A.
    """
    (D, q), (N, K) = loadings.shape, (len(X), len(weights))
    r = responsibilities(X, *dense(weights, loadings, latent_means, latent_covs, noise))
    r = r * _row_weights(X, sample_weight)[:, None]
    m, V = factor_posterior(X, loadings, latent_means, latent_covs, noise)
    new_weights, new_xi, new_Omega = np.empty(K), np.empty((K, q)), np.empty((K, q, q))
    sum_xz, sum_zz = np.zeros((D, q)), np.zeros((q, q))
    for k in range(K):
        N_k = r[:, k].sum()
        new_weights[k] = N_k / r.sum()
        new_xi[k] = sum(r[n, k] * m[n, k] for n in range(N)) / N_k
        scatter = np.zeros((q, q))
        for n in range(N):
            scatter += r[n, k] * np.outer(m[n, k] - new_xi[k], m[n, k] - new_xi[k])
            sum_xz += r[n, k] * np.outer(X[n], m[n, k])
            sum_zz += r[n, k] * (V[k] + np.outer(m[n, k], m[n, k]))
        new_Omega[k] = symmetric(V[k] + scatter / N_k)
    A = sum_xz @ np.linalg.inv(sum_zz)
    sum_residual = np.zeros(D)
    for n in range(N):
        for k in range(K):
            residual = X[n] - A @ m[n, k]
            sum_residual += r[n, k] * np.diag(np.outer(residual, residual) + A @ V[k] @ A.T)
    return new_weights, A, new_xi, new_Omega, sum_residual / r.sum()


def symmetric(cov):
    """A covariance without the rounding errors of its two halves, which steps would enlarge without end."""
    return (cov + cov.T) / 2


def q_function(X, old, new, sample_weight=None):
    """Q(new | old), latent (k, z). Section 0, EM.

    The log joint density is quadratic in z, so 2q + 1 points with the posterior's mean and covariance give
    its expectation: exact, and independent of the moment formulas in `step`.
    """
    r, w = responsibilities(X, *dense(*old)), _row_weights(X, sample_weight)
    m, V = factor_posterior(X, *old[1:])
    weights, loadings, latent_means, latent_covs, noise = new
    total = 0.0
    for k in range(len(weights)):
        offsets, point_weights = _cubature(V[k])
        for n, x in enumerate(X):
            for offset, point_weight in zip(offsets, point_weights, strict=True):
                z = m[n, k] + offset
                log_p = np.log(weights[k])
                log_p += log_normal(z, latent_means[k], latent_covs[k])
                log_p += log_normal(x, loadings @ z, np.diag(noise))
                total += w[n] * r[n, k] * point_weight * log_p
    return float(total)


def entropy(X, old, sample_weight=None):
    """H of the posterior of (k, z), so that ln p(X | old) = Q(old | old) + H. Section 0, EM."""
    r, w = responsibilities(X, *dense(*old)), _row_weights(X, sample_weight)
    _, V = factor_posterior(X, *old[1:])
    total = 0.0
    for n in range(len(X)):
        total += w[n] * _entropy(r[n])
        for k in range(len(old[0])):
            total += w[n] * r[n, k] * 0.5 * np.linalg.slogdet(2 * np.pi * np.e * V[k])[1]
    return float(total)


# ------------------------------------------------------------- the same model in other parameters


def turned(C, weights, loadings, latent_means, latent_covs, noise):
    """The same model with factors C z in the place of z, C (q, q) invertible. Section 6, Invariance."""
    latent_means = np.array([C @ xi for xi in latent_means])
    latent_covs = np.array([C @ Omega @ C.T for Omega in latent_covs])
    return weights, loadings @ np.linalg.inv(C), latent_means, latent_covs, noise


def normal_form(weights, loadings, latent_means, latent_covs, noise):
    """The same model with A'A = I, turned by U of U'U = A'A, U upper triangular. Section 6, Normal form."""
    U = np.linalg.cholesky(loadings.T @ loadings).T
    return turned(U, weights, loadings, latent_means, latent_covs, noise)


def as_mfa(weights, loadings, latent_means, latent_covs, noise):
    """The MFA that is this model: weights, means, loadings (K, D, q), noise (K, D)."""
    _, means, _ = dense(weights, loadings, latent_means, latent_covs, noise)
    own = np.array([loadings @ np.linalg.cholesky(Omega) for Omega in latent_covs])
    return weights, means, own, np.array([noise] * len(weights))


# ---------------------------------------------------------------------------- number of parameters


def n_parameters(D, K, q):
    """Free parameters for q from 1 to D: the dimension of the set of (weights, means, covariances).

    Section 6, but never more than K free means and covariances have. That bound is met with q = D, where it
    is D less than the count, and by one component with q near D.
    """
    count = (K - 1) + D + D * q + K * q + K * q * (q + 1) // 2 - q * q
    return min(count, (K - 1) + K * D + K * D * (D + 1) // 2)


def jacobian_rank(D, K, q, seed=0):
    """Rank, at a random point, of d(weights, means, covariances)/d(parameters), by complex step."""
    rng = np.random.default_rng(seed)
    shapes = {"logits": (K,), "loadings": (D, q), "latent_means": (K, q), "roots": (K, q, q), "noise": (D,)}

    def distribution(theta):
        part, start = {}, 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            part[name], start = theta[start : start + size].reshape(shape), start + size
        weights = np.exp(part["logits"]) / np.sum(np.exp(part["logits"]))
        latent_covs = np.array([R @ R.T for R in part["roots"]])
        _, means, covs = dense(weights, part["loadings"], part["latent_means"], latent_covs, part["noise"])
        upper = np.triu_indices(D)
        return np.concatenate([weights, means.ravel(), *[cov[upper] for cov in covs]])

    theta = rng.standard_normal(sum(int(np.prod(shape)) for shape in shapes.values())).astype(complex)
    columns = []
    for i in range(len(theta)):
        shifted = theta.copy()
        shifted[i] += 1e-30j
        columns.append(distribution(shifted).imag / 1e-30)
    return int(np.linalg.matrix_rank(np.array(columns).T, tol=1e-9))
