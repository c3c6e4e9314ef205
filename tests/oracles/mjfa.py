"""Slow reference implementation of two-layer mixtures of factor analysers with joint loadings.

    c ~ rho     i | c ~ pi_c     z | c, i ~ N(xi_ci, Omega_ci)     x | z ~ N(A z, diag(psi))

so that x | c, i ~ N(A xi_ci, A Omega_ci A' + diag(psi)): a mixture for every class, all with the same A, psi.
The class of a row is known, or is not known (-1) and latent like its component.

N rows, D features, C classes, K components of each, q factors; loops over rows, classes and components, D x D
algebra. NaN in X is what is missing. Section 8 of the errata, with the tools of section 0.

Parameters, in this order: class_prior (C,), weights (C, K) within the classes, loadings (D, q), latent_means
(C, K, q), latent_covs (C, K, q, q) and noise (D,) (variances).
"""

import numpy as np

from . import mcfa
from .missing import common_factors_and_features
from .mixtures import log_normal

# ---------------------------------------------------------------------------------------- densities


def dense(class_prior, weights, loadings, latent_means, latent_covs, noise):
    """Means (C, K, D) and covariances (C, K, D, D) of x given class and component."""
    means = np.array([[loadings @ xi for xi in own] for own in latent_means])
    covs = np.array(
        [[loadings @ Omega @ loadings.T + np.diag(noise) for Omega in own] for own in latent_covs]
    )
    return means, covs


def log_joint(X, class_prior, weights, *rest):
    """ln rho_c + ln pi_ci + ln N(x_n; A xi_ci, A Omega_ci A' + Psi) of what was observed, (N, C, K)."""
    means, covs = dense(class_prior, weights, *rest)
    C, K = weights.shape
    out = np.empty((len(X), C, K))
    for n, x in enumerate(X):
        seen = ~np.isnan(x)
        for c in range(C):
            for i in range(K):
                cov = covs[c, i][np.ix_(seen, seen)]
                out[n, c, i] = np.log(class_prior[c]) + np.log(weights[c, i])
                out[n, c, i] += log_normal(x[seen], means[c, i][seen], cov) if seen.any() else 0.0
    return out


def class_log_joint(X, *theta):
    """ln p(x_n, c) = ln rho_c + ln sum_i pi_ci N(x_n; .), (N, C)."""
    joint = log_joint(X, *theta)
    return np.array([[_log_sum(components) for components in row] for row in joint])


def log_density(X, *theta):
    """ln p(x_n) = ln sum_c p(x_n, c), (N,)."""
    return np.array([_log_sum(row) for row in class_log_joint(X, *theta)])


def class_posterior(X, *theta):
    """p(c | x_n), (N, C): the prior enters once."""
    return np.exp(class_log_joint(X, *theta) - log_density(X, *theta)[:, None])


def objective(X, y, *theta, sample_weight=None):
    """Mean of ln p(x_n, c_n) of rows with a label, and of ln p(x_n) of those without: what EM raises."""
    w = np.ones(len(X)) if sample_weight is None else sample_weight
    joint, total = class_log_joint(X, *theta), 0.0
    for n, label in enumerate(y):
        total += w[n] * (_log_sum(joint[n]) if label == -1 else joint[n, label])
    return total / np.sum(w)


# -------------------------------------------------------------------------------------- one EM step


def responsibilities(X, y, *theta):
    """p(c, i | x_n, what is known of c), (N, C, K): zero outside the class of a row with a label."""
    joint = log_joint(X, *theta)
    for n, label in enumerate(y):
        for c in range(joint.shape[1]):
            if label not in (-1, c):
                joint[n, c] = -np.inf
    return np.array([np.exp(row - _log_sum(row.ravel())) for row in joint])


def step(
    X,
    y,
    class_prior,
    weights,
    loadings,
    latent_means,
    latent_covs,
    noise,
    sample_weight=None,
    fixed_prior=False,
    shared_covariance=False,
):
    """One exact EM step, latent the unknown classes, components, factors and missing entries.

    xi, Omega and pi within each class; A and psi once, from sums over all classes, components and rows. With
    a fixed prior rho stays as it is, which changes nothing else in the M-step; a covariance that all share is
    their scatter about their own xi, over all rows.
    """
    (C, K), (D, q) = weights.shape, loadings.shape
    r = responsibilities(X, y, class_prior, weights, loadings, latent_means, latent_covs, noise)
    r = r * (np.ones(len(X)) if sample_weight is None else sample_weight)[:, None, None]
    new_prior, new_weights = np.empty(C), np.empty((C, K))
    new_xi, new_Omega = np.empty((C, K, q)), np.empty((C, K, q, q))
    sum_zz, sum_xz, sum_xx = np.zeros((q, q)), np.zeros((D, q)), np.zeros(D)
    sum_scatter = np.zeros((q, q))
    for c in range(C):
        new_prior[c] = r[:, c].sum() / r.sum()
        for i in range(K):
            N_ci = r[:, c, i].sum()
            new_weights[c, i] = N_ci / r[:, c].sum()
            moments = [
                common_factors_and_features(x, loadings, latent_means[c, i], latent_covs[c, i], noise)
                for x in X
            ]
            new_xi[c, i] = sum(r[n, c, i] * m[:q] for n, (m, _) in enumerate(moments)) / N_ci
            scatter = np.zeros((q, q))
            for n, (m, V) in enumerate(moments):
                scatter += r[n, c, i] * (V[:q, :q] + np.outer(m[:q] - new_xi[c, i], m[:q] - new_xi[c, i]))
                second = V + np.outer(m, m)  # E[(z, x)(z, x)']
                sum_zz += r[n, c, i] * second[:q, :q]
                sum_xz += r[n, c, i] * second[q:, :q]
                sum_xx += r[n, c, i] * np.diag(second)[q:]
            new_Omega[c, i] = mcfa.symmetric(scatter / N_ci)
            sum_scatter += scatter
    if shared_covariance:
        new_Omega[:] = mcfa.symmetric(sum_scatter / r.sum())
    A = sum_xz @ np.linalg.inv(sum_zz)
    # E[(x - A z)^2], feature by feature, with the new A
    residual = [sum_xx[j] - 2 * A[j] @ sum_xz[j] + A[j] @ sum_zz @ A[j] for j in range(D)]
    rho = class_prior if fixed_prior else new_prior
    return rho, new_weights, A, new_xi, new_Omega, np.array(residual) / r.sum()


def normal_form(class_prior, weights, loadings, latent_means, latent_covs, noise):
    """The same model with A'A = I. Section 6, Normal form."""
    U = np.linalg.cholesky(loadings.T @ loadings).T
    turned = np.array([[U @ xi for xi in own] for own in latent_means])
    covs = np.array([[U @ Omega @ U.T for Omega in own] for own in latent_covs])
    return class_prior, weights, loadings @ np.linalg.inv(U), turned, covs, noise


# ----------------------------------------------------------------------------- number of parameters


def n_parameters(D, C, K, q):
    """CK - 1 + D + Dq - q^2 + CK [q + q(q+1)/2]. Section 8, for fewer factors than features."""
    return C * K - 1 + D + D * q - q * q + C * K * (q + q * (q + 1) // 2)


def jacobian_rank(D, C, K, q, fixed_prior=False, shared_covariance=False, seed=0):
    """Rank, at a random point, of d(rho, pi, means, covariances)/d(parameters), by complex step."""
    rng = np.random.default_rng(seed)
    shapes = {
        "prior": (0,) if fixed_prior else (C,),
        "weights": (C, K),
        "loadings": (D, q),
        "latent_means": (C, K, q),
        "roots": (C, K, q, q),
        "noise": (D,),
    }

    def distribution(vector):
        part, start = {}, 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            part[name], start = vector[start : start + size].reshape(shape), start + size
        rho = np.exp(part["prior"]) / np.sum(np.exp(part["prior"]))
        pi = np.exp(part["weights"]) / np.sum(np.exp(part["weights"]), axis=1, keepdims=True)
        latent_covs = np.array([[R @ R.T for R in own] for own in part["roots"]])
        if shared_covariance:
            latent_covs[:] = latent_covs[0, 0]
        means, covs = dense(rho, pi, part["loadings"], part["latent_means"], latent_covs, part["noise"])
        upper = np.triu_indices(D)
        covs = [cov[upper] for own in covs for cov in own]
        return np.concatenate([rho, pi.ravel(), means.ravel(), *covs])

    point = rng.standard_normal(sum(int(np.prod(shape)) for shape in shapes.values())).astype(complex)
    columns = []
    for j in range(len(point)):
        shifted = point.copy()
        shifted[j] += 1e-30j
        columns.append(distribution(shifted).imag / 1e-30)
    return int(np.linalg.matrix_rank(np.array(columns).T, tol=1e-9))


def _log_sum(values):
    """ln sum exp of a vector; -inf entries add nothing."""
    return values.max() + np.log(np.sum(np.exp(values - values.max())))
