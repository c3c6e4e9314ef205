"""Slow reference for rows with missing entries (NaN) and for rows whose component is known in part.

Of a row and its component, factors and features are jointly Gaussian,

    (z, x) | k ~ N((0, mu_k), [[I, L_k'], [L_k, Sigma_k]])

(with common loadings as in `mcfa`, N((xi_k, A xi_k), [[Omega_k, Omega_k A'], [A Omega_k, Sigma_k]])),
and whatever is not observed is conditioned on what is: `conditioned` does that for one row and one component,
and the rest is built on it. An EM step has the component, the factors and the missing entries as latent
variables: expected sufficient statistics of the complete data, then the M-step of the complete data.

N rows, D features, K components, q factors; arrays as in `mixtures` and `mcfa`. NaN in X is what is missing;
allowed (N, K) says which components a row may come from, None all of them. Sections are those of the errata.
"""

import numpy as np

from . import mcfa, mixtures
from .mixtures import covariances

# ------------------------------------------------------------------------------- rows and labels


def conditioned(row, mean, cov):
    """Mean and covariance of N(mean, cov) given the entries of row that are not NaN.

    Known entries keep their value and have no variance.
    """
    known = ~np.isnan(row)
    unknown = ~known
    new_mean, new_cov = np.where(known, row, mean), np.zeros(cov.shape)
    C_uk, C_kk = cov[np.ix_(unknown, known)], cov[np.ix_(known, known)]
    gain = C_uk @ np.linalg.inv(C_kk)
    new_mean[unknown] += gain @ (row[known] - mean[known])
    new_cov[np.ix_(unknown, unknown)] = cov[np.ix_(unknown, unknown)] - gain @ C_uk.T
    return new_mean, new_cov


def allowed_components(y, K):
    """(N, K) from labels (N,), of which -1 is unknown."""
    return np.array([[label in (-1, k) for k in range(K)] for label in y])


def variances(X, sample_weight=None):
    """(D,) variance of the observed entries of each feature."""
    out, w = np.empty(X.shape[1]), _row_weights(X, sample_weight)
    for j, column in enumerate(X.T):
        seen = ~np.isnan(column)
        mean = np.average(column[seen], weights=w[seen])
        out[j] = np.average((column[seen] - mean) ** 2, weights=w[seen])
    return out


# ------------------------------------------------------------------------- densities, section 0


def log_joint(X, weights, means, covs, allowed=None):
    """ln pi_k + ln N(x_n,o; mu_k,o, Sigma_k,oo), (N, K); -inf where k is not allowed."""
    out = np.full((len(X), len(weights)), -np.inf)
    for n, x in enumerate(X):
        seen = ~np.isnan(x)
        for k, weight in enumerate(weights):
            if allowed is None or allowed[n, k]:
                cov = covs[k][np.ix_(seen, seen)]
                out[n, k] = np.log(weight) + mixtures.log_normal(x[seen], means[k][seen], cov)
    return out


def log_density(X, weights, means, covs, allowed=None):
    """ln sum_{k allowed} pi_k p(x_n,o | k), (N,)."""
    out = np.empty(len(X))
    for n, row in enumerate(log_joint(X, weights, means, covs, allowed)):
        out[n] = row.max() + np.log(np.sum(np.exp(row - row.max())))
    return out


def log_likelihood(X, weights, means, covs, sample_weight=None, allowed=None):
    """sum_n w_n ln sum_{k allowed} pi_k p(x_n,o | k): what EM raises."""
    w = _row_weights(X, sample_weight)
    return float(np.sum(w * log_density(X, weights, means, covs, allowed)))


def responsibilities(X, weights, means, covs, allowed=None):
    """p(k | x_n,o, k allowed), (N, K)."""
    joint = log_joint(X, weights, means, covs, allowed)
    return np.exp(joint - log_density(X, weights, means, covs, allowed)[:, None])


# ------------------------------------------------------------------ factors and missing entries


def impute(X, weights, means, covs):
    """X with E[x_n,m | x_n,o] in place of NaN, (N, D)."""
    r, out = responsibilities(X, weights, means, covs), np.zeros(X.shape)
    for n, x in enumerate(X):
        for k in range(len(weights)):
            out[n] += r[n, k] * conditioned(x, means[k], covs[k])[0]
    return np.where(np.isnan(X), out, X)


def factors_and_features(x, mean, loadings, noise):
    """Mean (q + D,) and covariance of (z, x) given one component and the observed entries of x."""
    q = loadings.shape[1]
    joint = np.block([[np.eye(q), loadings.T], [loadings, loadings @ loadings.T + np.diag(noise)]])
    row = np.concatenate([np.full(q, np.nan), x])  # factors are never observed
    return conditioned(row, np.concatenate([np.zeros(q), mean]), joint)


def common_factors_and_features(x, loadings, latent_mean, latent_cov, noise):
    """Mean (q + D,) and covariance of (z, x) as above, of common loadings. Section 6."""
    C_zx = latent_cov @ loadings.T
    joint = np.block([[latent_cov, C_zx], [C_zx.T, loadings @ C_zx + np.diag(noise)]])
    row = np.concatenate([np.full(len(latent_mean), np.nan), x])
    return conditioned(row, np.concatenate([latent_mean, loadings @ latent_mean]), joint)


def factor_posterior(X, means, loadings, noise):
    """E[z | x_n,o, k] (N, K, q) and Cov[z | x_n,o, k] (N, K, q, q)."""
    K, _, q = loadings.shape
    z_means, z_covs = np.empty((len(X), K, q)), np.empty((len(X), K, q, q))
    for n, x in enumerate(X):
        for k in range(K):
            m, V = factors_and_features(x, means[k], loadings[k], noise[k])
            z_means[n, k], z_covs[n, k] = m[:q], V[:q, :q]
    return z_means, z_covs


def transform(X, weights, means, loadings, noise):
    """E[z | x_n,o] = sum_k r_nk m_nk, (N, q)."""
    r = responsibilities(X, weights, means, covariances(loadings, noise))
    m, _ = factor_posterior(X, means, loadings, noise)
    return np.array([sum(r[n, k] * m[n, k] for k in range(len(weights))) for n in range(len(X))])


def reconstruct(X, weights, means, loadings, noise):
    """E[mu_k + L_k z | x_n,o] over k and z, (N, D): observed features too are without their noise."""
    r = responsibilities(X, weights, means, covariances(loadings, noise))
    m, _ = factor_posterior(X, means, loadings, noise)
    out = np.zeros(X.shape)
    for n in range(len(X)):
        for k in range(len(weights)):
            out[n] += r[n, k] * (means[k] + loadings[k] @ m[n, k])
    return out


def mcfa_factor_posterior(X, loadings, latent_means, latent_covs, noise):
    """As `factor_posterior`, of common loadings."""
    K, q = latent_means.shape
    z_means, z_covs = np.empty((len(X), K, q)), np.empty((len(X), K, q, q))
    for n, x in enumerate(X):
        for k in range(K):
            m, V = common_factors_and_features(x, loadings, latent_means[k], latent_covs[k], noise)
            z_means[n, k], z_covs[n, k] = m[:q], V[:q, :q]
    return z_means, z_covs


def mcfa_transform(X, weights, *rest):
    """E[z | x_n,o] = sum_k r_nk m_nk, (N, q). Section 6."""
    r = responsibilities(X, *mcfa.dense(weights, *rest))
    m, _ = mcfa_factor_posterior(X, *rest)
    return np.array([sum(r[n, k] * m[n, k] for k in range(len(weights))) for n in range(len(X))])


# ------------------------------------------------------------------------------------- EM steps


def gmm_step(X, weights, means, covs, covariance_type="full", sample_weight=None, allowed=None):
    """One EM step, latent k and x_m: (weights, means, covs), covs dense for all four types. Section 1.

    With m_nk, C_nk the moments of the completed row, mu_k = sum_n r_nk m_nk / N_k and the scatter is
    sum_n r_nk [(m_nk - mu_k)(m_nk - mu_k)' + C_nk], about the new mean.
    """
    N, D = X.shape
    K = len(weights)
    r = responsibilities(X, weights, means, covs, allowed) * _row_weights(X, sample_weight)[:, None]
    new_means, scatters = np.empty((K, D)), np.zeros((K, D, D))
    for k in range(K):
        completed = [conditioned(x, means[k], covs[k]) for x in X]
        new_means[k] = sum(r[n, k] * completed[n][0] for n in range(N)) / r[:, k].sum()
        for n, (m, C) in enumerate(completed):
            scatters[k] += r[n, k] * (np.outer(m - new_means[k], m - new_means[k]) + C)
    new_covs = np.empty((K, D, D))
    for k in range(K):
        S_k = scatters[k] / r[:, k].sum()
        new_covs[k] = {
            "full": S_k,
            "tied": scatters.sum(axis=0) / r.sum(),
            "diag": np.diag(np.diag(S_k)),
            "spherical": np.trace(S_k) / D * np.eye(D),
        }[covariance_type]
    return r.sum(axis=0) / r.sum(), new_means, new_covs


def mfa_step(
    X,
    weights,
    means,
    loadings,
    noise,
    noise_type="diagonal",
    shared_noise=False,
    sample_weight=None,
    allowed=None,
):
    """One EM step, latent k, z and x_m: (weights, means, loadings, noise (K, D)). Sections 4 and 5 (a).

    G_k = sum_n r_nk E[u u'] with u = (z, 1, x): the regression of x on (z, 1) gives [L_k mu_k], and with
    T = [-[L_k mu_k], I] the diagonal of T G_k T' is the sum of squared residuals.
    """
    D = X.shape[1]
    K, _, q = loadings.shape
    r = responsibilities(X, weights, means, covariances(loadings, noise), allowed)
    r = r * _row_weights(X, sample_weight)[:, None]
    new_means, new_loadings, sum_residual = np.empty((K, D)), np.empty((K, D, q)), np.empty((K, D))
    for k in range(K):
        G = np.zeros((q + 1 + D, q + 1 + D))
        for n, x in enumerate(X):
            m, V = factors_and_features(x, means[k], loadings[k], noise[k])
            u = np.insert(m, q, 1.0)
            cov = np.insert(np.insert(V, q, 0.0, axis=0), q, 0.0, axis=1)  # one has no variance
            G += r[n, k] * (np.outer(u, u) + cov)
        augmented = G[q + 1 :, : q + 1] @ np.linalg.inv(G[: q + 1, : q + 1])
        new_loadings[k], new_means[k] = augmented[:, :q], augmented[:, q]
        T = np.hstack([-augmented, np.eye(D)])
        sum_residual[k] = np.diag(T @ G @ T.T)
    new_noise = np.empty((K, D))
    for k in range(K):
        psi = sum_residual.sum(axis=0) / r.sum() if shared_noise else sum_residual[k] / r[:, k].sum()
        new_noise[k] = {"diagonal": psi, "isotropic": np.full(D, psi.mean())}[noise_type]
    return r.sum(axis=0) / r.sum(), new_means, new_loadings, new_noise


def mcfa_step(X, weights, loadings, latent_means, latent_covs, noise, sample_weight=None, allowed=None):
    """One EM step, latent k, z and x_m: the five parameters of `mcfa`. Section 6.

    G_k = sum_n r_nk E[u u'] with u = (z, 1, x): its block of (z, 1) gives xi_k and Omega_k. In the sum of
    all G_k the regression of x on z alone gives A, and with T = [-A, I] the diagonal of T G T' is the sum of
    squared residuals.
    """
    (D, q), K = loadings.shape, len(weights)
    r = responsibilities(X, *mcfa.dense(weights, loadings, latent_means, latent_covs, noise), allowed)
    r = r * _row_weights(X, sample_weight)[:, None]
    new_xi, new_Omega, sum_G = np.empty((K, q)), np.empty((K, q, q)), np.zeros((q + D, q + D))
    for k in range(K):
        G = np.zeros((q + 1 + D, q + 1 + D))
        for n, x in enumerate(X):
            m, V = common_factors_and_features(x, loadings, latent_means[k], latent_covs[k], noise)
            u = np.insert(m, q, 1.0)
            cov = np.insert(np.insert(V, q, 0.0, axis=0), q, 0.0, axis=1)  # one has no variance
            G += r[n, k] * (np.outer(u, u) + cov)
        new_xi[k] = G[:q, q] / G[q, q]
        new_Omega[k] = mcfa.symmetric(G[:q, :q] / G[q, q] - np.outer(new_xi[k], new_xi[k]))
        sum_G += np.delete(np.delete(G, q, axis=0), q, axis=1)
    A = sum_G[q:, :q] @ np.linalg.inv(sum_G[:q, :q])
    T = np.hstack([-A, np.eye(D)])
    return r.sum(axis=0) / r.sum(), A, new_xi, new_Omega, np.diag(T @ sum_G @ T.T) / r.sum()


# -------------------------------------------------- the same for a Model of the contract's table


def factor_posterior_of(model, X, theta):
    """`factor_posterior` of parameters of the model."""
    of = mcfa_factor_posterior if model.common_loadings else factor_posterior
    return of(X, *list(theta.values())[1:])


def transform_of(model, X, theta):
    """`transform` of parameters of the model."""
    return (mcfa_transform if model.common_loadings else transform)(X, *theta.values())


def reconstruct_of(model, X, theta):
    """`reconstruct` of parameters of the model; of common loadings E[A z | x_n,o]."""
    if model.common_loadings:
        return np.array([theta["loadings"] @ z for z in transform_of(model, X, theta)])
    return reconstruct(X, *theta.values())


def step(model, X, theta, sample_weight=None, allowed=None, floor=None):
    """One EM step from parameters to parameters; with a floor (D,), the maximiser under that bound."""
    if model.is_gaussian:
        kind = model.options["covariance_type"]
        weights, means, covs = gmm_step(X, *theta.values(), kind, sample_weight, allowed)
        if floor is not None and kind in ("full", "tied"):
            covs = np.array([mixtures.floor_full(cov, floor) for cov in covs])
        elif floor is not None:  # a diagonal, for which the floor of a spherical one is in all entries
            covs = np.array([np.diag(np.maximum(np.diag(cov), floor)) for cov in covs])
        return {"weights": weights, "means": means, "covs": covs}
    if model.common_loadings:
        *others, noise = mcfa_step(X, *theta.values(), sample_weight, allowed)
        noise = noise if floor is None else np.maximum(noise, floor)
        return dict(zip(theta, (*others, noise), strict=True))
    weights, means, loadings, noise = mfa_step(
        X, *theta.values(), model.noise_type, model.shared, sample_weight, allowed
    )
    noise = noise if floor is None else np.maximum(noise, floor)
    return {"weights": weights, "means": means, "loadings": loadings, "noise": noise}


def objective(model, X, theta, sample_weight=None, allowed=None):
    """Log-likelihood per row, by weight: an entry of `history_`."""
    total = _row_weights(X, sample_weight).sum()
    return log_likelihood(X, *model.dense(theta), sample_weight, allowed) / total


def floor_of(model, X, noise_floor, sample_weight=None):
    """(D,) smallest variances: a fraction of those observed, or of their mean if isotropic."""
    variance = variances(X, sample_weight)
    return noise_floor * (np.full(len(variance), variance.mean()) if model.isotropic else variance)


def _row_weights(X, sample_weight):
    return np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=float)


def moments(X, weights, means, covs):
    """Means and covariances (n, D, D) of the rows given what is observed: by conditioning each component."""
    resp = responsibilities(X, weights, means, covs)
    expected, covariances = np.empty(X.shape), np.zeros((*X.shape, X.shape[1]))
    for i, x in enumerate(X):
        seen, out = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
        completed = np.repeat(x[None], len(weights), axis=0)
        for k, (mean, cov) in enumerate(zip(means, covs, strict=True)):
            gain = cov[np.ix_(out, seen)] @ np.linalg.inv(cov[np.ix_(seen, seen)])
            completed[k, out] = mean[out] + gain @ (x - mean)[seen]
            within = cov[np.ix_(out, out)] - gain @ cov[np.ix_(seen, out)]
            covariances[i][np.ix_(out, out)] += resp[i, k] * within
        expected[i] = resp[i] @ completed
        between = completed - expected[i]
        covariances[i] += (resp[i][:, None] * between).T @ between
    return expected, covariances
