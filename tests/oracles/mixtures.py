"""Slow reference implementations of mixtures of Gaussians and of factor models.

    k ~ pi     z ~ N(0, I_q)     x | z, k ~ N(mu_k + L_k z, diag(psi_k))

N rows, D features, K components, q factors; loops over rows and components, D x D algebra.
Nothing here is shared with the library. Sections: 0 tools, 1 Gaussian mixture, 2 factor analysis, 3 PPCA,
4 MFA, 5 MPPCA.

Plain arrays everywhere, tied or not: weights (K,), means (K, D), covs (K, D, D),
loadings (K, D, q), noise (K, D) (variances). sample_weight (N,) multiplies responsibilities.
Meant for well scaled data: moments are taken about the origin.
"""

import numpy as np

GAUSSIAN_TYPES = ("full", "tied", "diag", "spherical")
NOISE_TYPES = ("diagonal", "isotropic")


# ----------------------------------------------------------------- densities, sections 0 and 1


def covariances(loadings, noise):
    """Sigma_k = L_k L_k' + diag(psi_k), (K, D, D). Section 4."""
    return np.array([L @ L.T + np.diag(psi) for L, psi in zip(loadings, noise, strict=True)])


def log_normal(x, mean, cov):
    """ln N(x; mean, cov) of one row, dense. Section 0, last line of the first block."""
    r = x - mean
    sign, log_det = np.linalg.slogdet(cov)
    if sign <= 0:
        raise ValueError("covariance is not positive definite")
    return -0.5 * (len(x) * np.log(2 * np.pi) + log_det + r @ np.linalg.solve(cov, r))


def log_joint(X, weights, means, covs):
    """ln pi_k + ln N(x_n; mu_k, Sigma_k), (N, K). Section 0, Mixtures."""
    out = np.empty((len(X), len(weights)))
    for n, x in enumerate(X):
        for k, weight in enumerate(weights):
            out[n, k] = np.log(weight) + log_normal(x, means[k], covs[k])
    return out


def log_density(X, weights, means, covs):
    """ln sum_k pi_k N(x_n; mu_k, Sigma_k), (N,). Section 0, Mixtures."""
    out = np.empty(len(X))
    for n, row in enumerate(log_joint(X, weights, means, covs)):
        out[n] = row.max() + np.log(np.sum(np.exp(row - row.max())))
    return out


def log_likelihood(X, weights, means, covs, sample_weight=None):
    """sum_n w_n ln p(x_n)."""
    w = _row_weights(X, sample_weight)
    return float(np.sum(w * log_density(X, weights, means, covs)))


def responsibilities(X, weights, means, covs):
    """r_nk = p(k | x_n), (N, K). Section 0, Mixtures."""
    joint = log_joint(X, weights, means, covs)
    return np.exp(joint - log_density(X, weights, means, covs)[:, None])


# ------------------------------------------------------------- factors, reconstruction, section 0


def factor_posterior(X, means, loadings, noise):
    """E[z | x_n, k] (N, K, q) and Cov[z | x, k] (K, q, q), conditioning the Gaussian of (z, x).

    Cov[(z, x)] = [[I, L'], [L, Sigma]]; E[z|x] = L' Sigma^-1 (x - mu),
    Cov[z|x] = I - L' Sigma^-1 L. Section 0, Posterior of the factors, with S = I, xi = 0.
    """
    K, _, q = loadings.shape
    z_means, z_covs = np.empty((len(X), K, q)), np.empty((K, q, q))
    for k in range(K):
        L = loadings[k]
        joint = np.block([[np.eye(q), L.T], [L, L @ L.T + np.diag(noise[k])]])
        C_zz, C_zx, C_xx = joint[:q, :q], joint[:q, q:], joint[q:, q:]
        C_xx_inverse = np.linalg.inv(C_xx)
        z_covs[k] = C_zz - C_zx @ C_xx_inverse @ C_zx.T
        for n, x in enumerate(X):
            z_means[n, k] = C_zx @ C_xx_inverse @ (x - means[k])
    return z_means, z_covs


def transform(X, weights, means, loadings, noise):
    """E[z | x_n] = sum_k r_nk m_nk, (N, q). Section 0."""
    r = responsibilities(X, weights, means, covariances(loadings, noise))
    m, _ = factor_posterior(X, means, loadings, noise)
    out = np.zeros((len(X), loadings.shape[2]))
    for n in range(len(X)):
        for k in range(len(weights)):
            out[n] += r[n, k] * m[n, k]
    return out


def reconstruct(X, weights, means, loadings, noise):
    """E[mu_k + L_k z | x_n] over k and z = sum_k r_nk (mu_k + L_k m_nk), (N, D). Section 0."""
    r = responsibilities(X, weights, means, covariances(loadings, noise))
    m, _ = factor_posterior(X, means, loadings, noise)
    out = np.zeros(X.shape)
    for n in range(len(X)):
        for k in range(len(weights)):
            out[n] += r[n, k] * (means[k] + loadings[k] @ m[n, k])
    return out


# ------------------------------------------------------------------- Gaussian mixture, section 1


def gmm_step(X, weights, means, covs, covariance_type="full", sample_weight=None):
    """One exact EM step: (weights, means, covs), covs dense (K, D, D) for all four types.

    Section 1, scatter about the new means. Tied (not in section 1): Sigma = sum_k N_k S_k / N.
    """
    N, D = X.shape
    K = len(weights)
    r = responsibilities(X, weights, means, covs)
    r = r * _row_weights(X, sample_weight)[:, None]
    total = r.sum()
    new_weights, new_means = np.empty(K), np.empty((K, D))
    scatters = np.zeros((K, D, D))
    for k in range(K):
        N_k = r[:, k].sum()
        new_weights[k] = N_k / total
        new_means[k] = sum(r[n, k] * X[n] for n in range(N)) / N_k
        for n in range(N):
            scatters[k] += r[n, k] * np.outer(X[n] - new_means[k], X[n] - new_means[k])
    new_covs = np.empty((K, D, D))
    for k in range(K):
        S_k = scatters[k] / r[:, k].sum()
        if covariance_type == "full":
            new_covs[k] = S_k
        elif covariance_type == "tied":
            new_covs[k] = scatters.sum(axis=0) / total
        elif covariance_type == "diag":
            new_covs[k] = np.diag(np.diag(S_k))
        elif covariance_type == "spherical":
            new_covs[k] = np.trace(S_k) / D * np.eye(D)
        else:
            raise ValueError(covariance_type)
    return new_weights, new_means, new_covs


def sklearn_covariances(covs, covariance_type):
    """Dense (K, D, D) to scikit-learn's shape of the type."""
    if covariance_type == "full":
        return covs
    if covariance_type == "tied":
        return covs[0]
    if covariance_type == "diag":
        return np.array([np.diag(cov) for cov in covs])
    return np.array([cov[0, 0] for cov in covs])


def gmm_q(X, old, new, sample_weight=None):
    """Q(new | old) of parameters (weights, means, covs), latent k. Section 0, EM."""
    r = responsibilities(X, *old) * _row_weights(X, sample_weight)[:, None]
    return float(np.sum(r * log_joint(X, *new)))


def gmm_entropy(X, old, sample_weight=None):
    """H of the posterior of k, so that ln p(X | old) = Q(old | old) + H. Section 0, EM."""
    w = _row_weights(X, sample_weight)
    return float(sum(w[n] * _entropy(r) for n, r in enumerate(responsibilities(X, *old))))


# ----------------------------------- mixtures of factor analysers, sections 2, 4 and 5 (a)


def mfa_step(
    X,
    weights,
    means,
    loadings,
    noise,
    noise_type="diagonal",
    shared_noise=False,
    sample_weight=None,
):
    """One exact EM step with latent (k, z): (weights, means, loadings, noise (K, D)).

    Section 4, augmented factors z~ = [z; 1]: mean and loadings jointly, then the noise with the
    new values; isotropic noise as in section 5 (a). K = 1 is factor analysis (section 2).
    """
    if noise_type not in NOISE_TYPES:
        raise ValueError(noise_type)
    N, D = X.shape
    K, _, q = loadings.shape
    r = responsibilities(X, weights, means, covariances(loadings, noise))
    r = r * _row_weights(X, sample_weight)[:, None]
    m, V = factor_posterior(X, means, loadings, noise)
    total = r.sum()
    new_weights, new_means = np.empty(K), np.empty((K, D))
    new_loadings, sum_residual = np.empty((K, D, q)), np.zeros((K, D))
    for k in range(K):
        new_weights[k] = r[:, k].sum() / total
        sum_xz, sum_zz = np.zeros((D, q + 1)), np.zeros((q + 1, q + 1))
        for n in range(N):
            z_mean = np.append(m[n, k], 1.0)  # E[z~ | x_n, k]
            z_second = np.outer(z_mean, z_mean)  # E[z~ z~' | x_n, k]
            z_second[:q, :q] += V[k]
            sum_xz += r[n, k] * np.outer(X[n], z_mean)
            sum_zz += r[n, k] * z_second
        augmented = sum_xz @ np.linalg.inv(sum_zz)
        new_loadings[k], new_means[k] = augmented[:, :q], augmented[:, q]
        L = new_loadings[k]
        for n in range(N):
            residual = X[n] - L @ m[n, k] - new_means[k]
            sum_residual[k] += r[n, k] * np.diag(np.outer(residual, residual) + L @ V[k] @ L.T)
    new_noise = np.empty((K, D))
    for k in range(K):
        if shared_noise:
            psi = sum_residual.sum(axis=0) / total
        else:
            psi = sum_residual[k] / r[:, k].sum()
        new_noise[k] = psi if noise_type == "diagonal" else np.full(D, psi.mean())
    return new_weights, new_means, new_loadings, new_noise


def mfa_q(X, old, new, sample_weight=None):
    """Q(new | old) of parameters (weights, means, loadings, noise), latent (k, z). Section 0, EM.

    The expectation over z of the log joint density, quadratic in z, is a weighted sum over
    2q + 1 points with the mean and covariance of the posterior: exact, and independent of the
    moment formulas in `mfa_step`.
    """
    r = responsibilities(X, old[0], old[1], covariances(old[2], old[3]))
    w = _row_weights(X, sample_weight)
    m, V = factor_posterior(X, *old[1:])
    weights, means, loadings, noise = new
    q = loadings.shape[2]
    prior_mean, prior_cov = np.zeros(q), np.eye(q)
    total = 0.0
    for k in range(len(weights)):
        offsets, point_weights = _cubature(V[k])
        for n, x in enumerate(X):
            for offset, point_weight in zip(offsets, point_weights, strict=True):
                z = m[n, k] + offset
                log_p = np.log(weights[k])
                log_p += log_normal(z, prior_mean, prior_cov)
                log_p += log_normal(x, means[k] + loadings[k] @ z, np.diag(noise[k]))
                total += w[n] * r[n, k] * point_weight * log_p
    return float(total)


def mfa_entropy(X, old, sample_weight=None):
    """H of the posterior of (k, z), so that ln p(X | old) = Q(old | old) + H. Section 0, EM."""
    r = responsibilities(X, old[0], old[1], covariances(old[2], old[3]))
    w = _row_weights(X, sample_weight)
    _, V = factor_posterior(X, *old[1:])
    total = 0.0
    for n in range(len(X)):
        total += w[n] * _entropy(r[n])
        for k in range(len(old[0])):
            total += w[n] * r[n, k] * 0.5 * np.linalg.slogdet(2 * np.pi * np.e * V[k])[1]
    return float(total)


# ------------------------------------------------------------------------ PPCA, sections 3 and 5 (b)


def ppca(X, q, sample_weight=None):
    """Maximum likelihood: mean (D,), loadings (D, q) with R = I, sigma^2. q < D. Section 3.

    Covariance with divisor sum_n w_n (N without weights).
    """
    mean, S = _moments(X, sample_weight)
    return (mean, *_ppca_of_covariance(S, q))


def ppca_max_log_likelihood(X, q, sample_weight=None):
    """-(N/2) [D (1 + ln 2 pi) + ln|S| + (D - q) ln(a / g)], N = sum_n w_n. Section 3."""
    D = X.shape[1]
    _, S = _moments(X, sample_weight)
    discarded = np.linalg.eigvalsh(S)[: D - q]  # ascending
    arithmetic, geometric = discarded.mean(), np.exp(np.log(discarded).mean())
    bracket = D * (1 + np.log(2 * np.pi)) + np.linalg.slogdet(S)[1]
    bracket += (D - q) * np.log(arithmetic / geometric)
    return float(-0.5 * _row_weights(X, sample_weight).sum() * bracket)


def mppca_marginal_step(X, weights, means, loadings, noise, sample_weight=None):
    """One EM step with only k latent, noise per component: Tipping-Bishop. Section 5 (b).

    Not the step of `mfa_step(..., "isotropic")`: another trajectory. For K = 1 it is `ppca`.
    """
    r = responsibilities(X, weights, means, covariances(loadings, noise))
    r = r * _row_weights(X, sample_weight)[:, None]
    K, D, q = loadings.shape
    new_weights, new_means = r.sum(axis=0) / r.sum(), np.empty((K, D))
    new_loadings, new_noise = np.empty((K, D, q)), np.empty((K, D))
    for k in range(K):
        new_means[k], S_k = _moments(X, r[:, k])
        new_loadings[k], sigma2 = _ppca_of_covariance(S_k, q)
        new_noise[k] = np.full(D, sigma2)
    return new_weights, new_means, new_loadings, new_noise


# ------------------------------------------------------------- number of parameters, criteria


def n_parameters(model, D, K=1, q=0, shared_noise=False):
    """Free parameters: the dimension of the set of (weights, means, covariances).

    model: "full", "tied", "diag", "spherical" (section 1; tied is D(D+1)/2 once), "fa", "mfa"
    (sections 2, 4), "ppca", "mppca" (sections 3, 5).
    A D x D covariance never counts more than D(D+1)/2 (Ledermann bound). With shared noise the
    bound holds for the K covariances together. Factors beyond D add nothing.
    """
    full = D * (D + 1) // 2
    weights_and_means = (K - 1) + K * D
    if model == "full":
        return weights_and_means + K * full
    if model == "tied":
        return weights_and_means + full
    if model == "diag":
        return weights_and_means + K * D
    if model == "spherical":
        return weights_and_means + K
    q = min(q, D)
    loadings = D * q - q * (q - 1) // 2  # up to rotation
    noise = {"fa": D, "mfa": D, "ppca": 1, "mppca": 1}[model]
    if shared_noise:
        return weights_and_means + min(K * loadings + noise, K * full)
    return weights_and_means + K * min(loadings + noise, full)


def jacobian_rank(model, D, K=1, q=0, shared_noise=False, seed=0):
    """Rank, at a random point, of d(weights, means, covariances)/d(parameters).

    The parameters are redundant on purpose (K logits, unrotated loadings, square roots of full
    covariances); derivatives by complex step, exact to rounding.
    """
    rng = np.random.default_rng(seed)
    sizes = {"logits": K, "means": K * D}
    if model in ("full", "tied"):
        sizes["loadings"] = (K if model == "full" else 1) * D * D
    elif model in ("diag", "spherical"):
        sizes["noise"] = K * (D if model == "diag" else 1)
    else:
        sizes["loadings"] = K * D * q
        sizes["noise"] = (1 if shared_noise else K) * (D if model in ("fa", "mfa") else 1)

    def distribution(theta):
        part, start = {}, 0
        for name, size in sizes.items():
            part[name], start = theta[start : start + size], start + size
        covs = np.zeros((K, D, D), dtype=complex)
        for k in range(K):
            if "loadings" in part:
                groups = 1 if model == "tied" else K
                L = part["loadings"].reshape(groups, D, -1)[k % groups]
                covs[k] += L @ L.T
            if "noise" in part:
                groups = 1 if shared_noise else K
                psi = part["noise"].reshape(groups, -1)[k % groups]
                covs[k] += np.diag(psi * np.ones(D))
        weights = np.exp(part["logits"]) / np.sum(np.exp(part["logits"]))
        upper = np.triu_indices(D)
        return np.concatenate([weights, part["means"], *[cov[upper] for cov in covs]])

    theta = rng.standard_normal(sum(sizes.values())).astype(complex)
    columns = []
    for i in range(len(theta)):
        moved = theta.copy()
        moved[i] += 1e-30j
        columns.append(distribution(moved).imag / 1e-30)
    return int(np.linalg.matrix_rank(np.array(columns).T, tol=1e-9))


def bic(X, weights, means, covs, count):
    """-2 ln p(X) + count ln N, lower is better. Notation of the errata."""
    return -2 * log_likelihood(X, weights, means, covs) + count * np.log(len(X))


def aic(X, weights, means, covs, count):
    """-2 ln p(X) + 2 count, lower is better."""
    return -2 * log_likelihood(X, weights, means, covs) + 2 * count


def icl(X, weights, means, covs, count):
    """BIC + 2 sum_n H(r_n), lower is better."""
    entropy = sum(_entropy(r) for r in responsibilities(X, weights, means, covs))
    return bic(X, weights, means, covs, count) + 2 * entropy


# --------------------------------------------------------------------------- variance floors
#
# Q separates, so flooring the covariance (noise) that gmm_step (mfa_step) returns is the exact
# constrained maximiser of Q; for tied or shared ones, floor the pooled one.


def floor_full(S, floor):
    """Maximiser of -ln|Sigma| - tr(Sigma^-1 S) with Sigma - diag(floor) positive semidefinite.

    S (D, D), floor (D,) > 0: scaled by floor^-1/2 the constraint is T >= I, met by clamping the
    eigenvalues at 1.
    """
    floor = np.asarray(floor, dtype=float)
    if np.any(floor <= 0):
        raise ValueError("floor must be positive")
    root = np.sqrt(floor)
    values, vectors = np.linalg.eigh(S / np.outer(root, root))
    clamped = vectors @ np.diag(np.maximum(values, 1.0)) @ vectors.T
    return clamped * np.outer(root, root)


def floor_diagonal(variances, floor):
    """Maximiser over v of -sum_j [ln v_j + s_j / v_j] with v_j >= floor_j: max(s_j, floor_j)."""
    return np.array([max(s, f) for s, f in zip(variances, floor, strict=True)])


def floor_spherical(variance, floor):
    """Maximiser over v of -ln v - s / v with v >= every floor_j: max(s, max_j floor_j)."""
    return max(float(variance), float(np.max(floor)))


# ----------------------------------------------------------------------------------- helpers


def _row_weights(X, sample_weight):
    return np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=float)


def _entropy(p):
    """-sum p ln p, with 0 ln 0 = 0."""
    return -sum(value * np.log(value) for value in p if value > 0)


def _moments(X, sample_weight):
    """Weighted mean (D,) and covariance (D, D) with divisor sum_n w_n."""
    w = _row_weights(X, sample_weight)
    mean = sum(w[n] * X[n] for n in range(len(X))) / w.sum()
    S = sum(w[n] * np.outer(X[n] - mean, X[n] - mean) for n in range(len(X))) / w.sum()
    return mean, S


def _ppca_of_covariance(S, q):
    """W = U_q (L_q - sigma^2 I)^1/2 and sigma^2 = mean of the discarded eigenvalues. Section 3."""
    if not 0 <= q < len(S):
        raise ValueError("needs q < D")
    values, vectors = np.linalg.eigh(S)
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    sigma2 = float(values[q:].mean())
    return vectors[:, :q] @ np.diag(np.sqrt(values[:q] - sigma2)), sigma2


def _cubature(cov):
    """Offsets (2q + 1, q) and weights with mean 0 and covariance cov."""
    q = len(cov)
    root = np.linalg.cholesky(cov) if q else np.zeros((0, 0))
    columns = [np.sqrt(q + 1) * root[:, i] for i in range(q)]
    offsets = [np.zeros(q), *columns, *[-column for column in columns]]
    return offsets, [1 / (q + 1)] + [0.5 / (q + 1)] * (2 * q)
