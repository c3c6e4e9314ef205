"""Slow reference implementation of mixtures of factor models with a label.

    l ~ pi     y ~ N(0, I_d)     x | y, l ~ N(mu_l + G_l y, sigma_l^2 I)     v_j | y ~ N(w_j'y + b_j, 1)

Question j is answered with yes if v_j > 0. Two classes have one question, and yes tells the second class.
Of C > 2 classes each has its question, and a label answers all of them. The objective is the mean over
questions of ln f(x, answer), and the class posterior the product of those of the answers, normalised.

Of a component, u = (y, x, v) is jointly Gaussian. Everything here comes from conditioning it: first on the
entries of x that are not NaN, then on the sign of one v_j, which changes the mean and variance of v_j to
those of a normal variable cut off at zero, and the rest of u along with it. These two are computed with 40
digits. So there is nothing here of the closed forms that the library uses, nor any of its code.

N rows, D features, L components, d factors, C classes, J questions. Parameters, in this order: weights (L,),
means (L, D), loadings (L, D, d), noise (L, D) (variances, the D of a component equal), coef (J, d),
intercept (J,). Labels are 0 .. C - 1, and -1 where unknown. Sections are those of the errata; 9 is this
model.
"""

import mpmath
import numpy as np
from scipy import special

from .missing import conditioned
from .mixtures import _row_weights, log_normal

# ------------------------------------------------------------------------------------ densities


def n_classes(theta):
    """C of parameters: one question tells two classes apart."""
    J = len(theta[5])
    return 2 if J == 1 else J


def answers(label, C):
    """The (question, sign of its v) that a label tells."""
    if C == 2:
        return [(0, 1 if label == 1 else -1)]
    return [(j, 1 if j == label else -1) for j in range(C)]


def put_together(log_no, log_yes):
    """ln P(class), (N, C), from those of no and yes to each question, (N, J)."""
    if log_no.shape[1] == 1:
        return np.concatenate([log_no, log_yes], axis=1)
    C = log_no.shape[1]
    product = np.transpose([log_yes[:, c] + sum(log_no[:, j] for j in range(C) if j != c) for c in range(C)])
    return product - special.logsumexp(product, axis=1, keepdims=True)


def joint(theta, l):
    """Mean and covariance of u = (y, x, v) of component l."""
    _, means, loadings, noise, coef, intercept = theta
    d, J = loadings.shape[2], len(coef)
    by_factors = np.concatenate([np.eye(d), loadings[l], coef])
    mean = np.concatenate([np.zeros(d), means[l], intercept])
    return mean, by_factors @ by_factors.T + np.diag(np.concatenate([np.zeros(d), noise[l], np.ones(J)]))


def given_row(x, theta, l):
    """ln pi_l + ln N(x_o; l), and mean and covariance of u given what is observed of x."""
    d, J = theta[4].shape[1], len(theta[5])
    mean, cov = joint(theta, l)
    seen = np.concatenate([np.zeros(d, bool), ~np.isnan(x), np.zeros(J, bool)])
    row = np.concatenate([np.full(d, np.nan), x, np.full(J, np.nan)])
    log_p = np.log(theta[0][l]) + log_normal(row[seen], mean[seen], cov[np.ix_(seen, seen)])
    return log_p, *conditioned(row, mean, cov)


def cut_off(mean, variance, sign):
    """ln P(sign v > 0), E[v | sign v > 0] and Var[v | sign v > 0] of v ~ N(mean, variance)."""
    with mpmath.workdps(40):
        s = mpmath.sqrt(mpmath.mpf(float(variance)))
        t = sign * mpmath.mpf(float(mean)) / s
        P = mpmath.erfc(-t / mpmath.sqrt(2)) / 2
        h = mpmath.npdf(t) / P
        return float(mpmath.log(P)), float(mean + sign * s * h), float(variance * (1 - h * (h + t)))


def ways(x, answer, theta):
    """All l that lead to a row and an answer (question, sign): (l, ln probability, mean and covariance of u).

    The answer None is that of a row without a label.
    """
    out, d = [], theta[4].shape[1]
    for l in range(len(theta[0])):
        log_p, mean, cov = given_row(x, theta, l)
        if answer is not None:
            j, sign = answer
            i = d + len(x) + j
            log_side, new_mean, new_variance = cut_off(mean[i], cov[i, i], sign)
            slope = cov[:, i] / cov[i, i]  # of u on v_j
            log_p = log_p + log_side
            moved = mean + slope * (new_mean - mean[i])
            cov = cov + np.outer(slope, slope) * (new_variance - cov[i, i])
            mean = moved
        out.append((l, log_p, mean, cov))
    return out


def log_answer(X, answer, theta):
    """ln f(x_n, answer), (N,); of the answer None ln f(x_n). Section 9, Densities."""
    return np.array(
        [special.logsumexp([way[1] for way in ways(x, answer, theta)]) for x in np.asarray(X, float)]
    )


def log_density(X, theta):
    """ln f(x_n), (N,)."""
    return log_answer(X, None, theta)


def class_log_posterior(X, theta):
    """ln P(z = c | x_n), (N, C)."""
    plain = log_density(X, theta)
    no, yes = (
        np.transpose([log_answer(X, (j, sign), theta) - plain for j in range(len(theta[5]))])
        for sign in (-1, 1)
    )
    return put_together(no, yes)


def class_posterior(X, theta):
    """P(z = c | x_n), (N, C)."""
    return np.exp(class_log_posterior(X, theta))


def log_joint(X, labels, theta):
    """ln f(x_n, z_n), or ln f(x_n) where the label is -1, (N,)."""
    plain, labels = log_density(X, theta), np.asarray(labels)
    told = class_log_posterior(X, theta)[np.arange(len(labels)), labels]
    return np.where(labels == -1, plain, plain + told)


def component_posterior(X, theta):
    """f(l | x_n), (N, L)."""
    out = np.zeros((len(X), len(theta[0])))
    for n, x in enumerate(np.asarray(X, float)):
        found = ways(x, None, theta)
        total = special.logsumexp([way[1] for way in found])
        for l, log_p, _, _ in found:
            out[n, l] = np.exp(log_p - total)
    return out


def objective(X, labels, theta, emphasis=1.0, sample_weight=None):
    """Mean over rows of ln f(x_n) + a (mean over questions of ln P(answer | x_n)), a the emphasis."""
    w, value = _row_weights(X, sample_weight), log_density(X, theta)
    for n, label in enumerate(labels):
        if label != -1:
            told = answers(label, n_classes(theta))
            log_p = [log_answer(X[n : n + 1], answer, theta)[0] for answer in told]
            value[n] += emphasis * (np.mean(log_p) - value[n])
    return float(np.average(value, weights=w))


def posterior_by_quadrature(x, theta):
    """P(z = c | x) of a complete row, (C,): the chance of answers given y, over y given x. Section 9.

    w_j'y is normal given x and l, so one dimension will do, by 100 points of Gauss and Hermite.
    """
    weights, means, loadings, noise, coef, intercept = theta
    nodes, node_weights = special.roots_hermitenorm(100)
    yes, total = [], []
    for l, weight in enumerate(weights):
        G, psi = loadings[l], noise[l]
        Sigma = G @ G.T + np.diag(psi)
        M = G.T @ np.linalg.solve(Sigma, x - means[l])
        R = np.eye(G.shape[1]) - G.T @ np.linalg.solve(Sigma, G)
        total.append(np.log(weight) + log_normal(x, means[l], Sigma))
        inside = [w @ M + b + np.sqrt(w @ R @ w) * nodes for w, b in zip(coef, intercept, strict=True)]
        yes.append([np.sum(node_weights * special.ndtr(v)) / np.sqrt(2 * np.pi) for v in inside])
    share = np.exp(np.array(total) - special.logsumexp(total))
    chance = (share @ np.array(yes))[None, :]
    return np.exp(put_together(np.log1p(-chance), np.log(chance)))[0]


# ----------------------------------------------------------------------------------- one EM step


def step(X, labels, theta, emphasis=1.0, sample_weight=None):
    """One exact EM step for an emphasis a <= 1: all six parameters. Sections 4 and 9.

    Latent are component, factors, missing entries and the v of each question. Rows count with a, shared out
    among the questions that their label answers, and with 1 - a without their label. The classifier is the
    regression of v on [y; 1], divided by the standard deviation of what it leaves: the model in which that is
    free has the same answers.
    """
    (L, D, d), J = theta[2].shape, len(theta[5])
    u_x, one = slice(d, d + D), np.zeros((d + D + J + 1, d + D + J + 1))
    own, asked = [one.copy() for _ in range(L)], [one.copy() for _ in range(J)]
    for (x, label), weight in zip(_rows(X, labels), _row_weights(X, sample_weight), strict=True):
        shares = [(None, 1.0)]
        if label != -1:
            shares = [(answer, emphasis / J) for answer in answers(label, n_classes(theta))]
            shares.append((None, 1 - emphasis))
        for answer, share in shares:
            found = ways(x, answer, theta)
            total = special.logsumexp([way[1] for way in found])
            for l, log_p, mean, cov in found:
                full = np.append(mean, 1.0)
                second = np.outer(full, full)  # E[u~ u~'], u~ = [u; 1]
                second[:-1, :-1] += cov
                second *= weight * share * np.exp(log_p - total)
                own[l] += second
                if answer is not None:
                    asked[answer[0]] += second
    y_one = [*range(d), d + D + J]
    weights = np.array([S[-1, -1] for S in own])
    means, loadings, noise = np.empty((L, D)), np.empty((L, D, d)), np.empty((L, D))
    for l, S in enumerate(own):
        A = S[u_x][:, y_one] @ np.linalg.inv(S[np.ix_(y_one, y_one)])
        loadings[l], means[l] = A[:, :d], A[:, d]
        left = np.trace(S[u_x, u_x] - 2 * A @ S[y_one][:, u_x] + A @ S[np.ix_(y_one, y_one)] @ A.T)
        noise[l] = left / (D * S[-1, -1])
    coef, intercept = np.empty((J, d)), np.empty(J)
    for j, S in enumerate(asked):
        i = d + D + j
        slope = np.linalg.solve(S[np.ix_(y_one, y_one)], S[y_one, i])
        spread = np.sqrt((S[i, i] - slope @ S[y_one, i]) / S[-1, -1])
        coef[j], intercept[j] = slope[:d] / spread, slope[d] / spread
    return weights / weights.sum(), means, loadings, noise, coef, intercept


def gradient(X, labels, theta):
    """dl/d|w| and dl/db of the log-likelihood of complete, labelled rows of two classes. Section 9."""
    weights, means, loadings, noise, coef, intercept = theta
    length = np.linalg.norm(coef[0])
    e, b = coef[0] / length, intercept[0]
    by_length = by_intercept = 0.0
    for x, label in _rows(X, labels):
        log_f = log_joint(x[None], [label], theta)[0]
        for l, weight in enumerate(weights):
            G, psi = loadings[l], noise[l]
            Sigma = G @ G.T + np.diag(psi)
            M = G.T @ np.linalg.solve(Sigma, x - means[l])
            R = np.eye(len(e)) - G.T @ np.linalg.solve(Sigma, G)
            s = np.sqrt(1 + length**2 * e @ R @ e)
            t = (length * e @ M + b) / s
            log_share = np.log(weight) + log_normal(x, means[l], Sigma) - t**2 / 2 - np.log(2 * np.pi) / 2
            share = (2 * label - 1) * np.exp(log_share - log_f)
            by_length += share * (e @ M - b * length * e @ R @ e) / s**3
            by_intercept += share / s
    return by_length, by_intercept


# --------------------------------------------------------------------------- decisions and risks


def factors(X, theta):
    """E[y | x_n] = sum_l f(l | x_n) M_nl, (N, d)."""
    d, r = theta[4].shape[1], component_posterior(X, theta)
    own = np.array([[given_row(x, theta, l)[1][:d] for l in range(len(theta[0]))] for x in X])
    return np.einsum("nl,nld->nd", r, own)


def reconstruct(X, theta):
    """G_l y_hat + mu_l of the likeliest component l, (N, D)."""
    _, means, loadings, *_ = theta
    best = component_posterior(X, theta).argmax(axis=1)
    return np.array([means[l] + loadings[l] @ y for l, y in zip(best, factors(X, theta), strict=True)])


def project(X, theta):
    """The point of the likeliest component's plane nearest to x_n where it is observed, (N, D)."""
    _, means, loadings, *_ = theta
    best, out = component_posterior(X, theta).argmax(axis=1), np.empty(X.shape)
    for n, (x, l) in enumerate(zip(X, best, strict=True)):
        seen = ~np.isnan(x)
        y = np.linalg.lstsq(loadings[l][seen], x[seen] - means[l][seen])[0]
        out[n] = means[l] + loadings[l] @ y
    return out


def risks(X, theta):
    """dimension, classification, latent_classification and clustering, each (N,). Section 9, Decisions."""
    d, y_hat = theta[4].shape[1], factors(X, theta)
    r, dimension = component_posterior(X, theta), np.zeros(len(X))
    for n, x in enumerate(X):
        for l in range(len(theta[0])):
            _, mean, cov = given_row(x, theta, l)
            spread = np.trace(cov[:d, :d]) + np.sum((mean[:d] - y_hat[n]) ** 2)
            dimension[n] += r[n, l] * spread
    t = y_hat @ theta[4].T + theta[5]
    latent = np.exp(put_together(special.log_ndtr(-t), special.log_ndtr(t)))
    classification = 1 - class_posterior(X, theta).max(axis=1)
    return dimension, classification, 1 - latent.max(axis=1), 1 - r.max(axis=1)


# ---------------------------------------------------------------------------- number of parameters


def jacobian_rank(L, d, D, C, seed=0):
    """Rank, at a random point, of d(ln f(x, answer) at many points)/d(parameters), by complex step."""
    rng = np.random.default_rng(seed)
    J = 1 if C == 2 else C
    shapes = [(L,), (L, D), (L, D, d), (L,), (J, d), (J,)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    theta = rng.standard_normal(sum(sizes))
    X, signs = 1.5 * rng.standard_normal((4 * sum(sizes), D)), rng.choice([-1, 1], size=4 * sum(sizes))

    def log_f(theta):
        parts = np.split(theta, np.cumsum(sizes)[:-1])
        logits, means, loadings, log_noise, coef, intercept = (
            part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)
        )
        total = 0
        for l in range(L):
            G = loadings[l]
            Sigma = G @ G.T + np.exp(log_noise[l]) * np.eye(D)
            residual = X - means[l]
            whitened = np.linalg.solve(Sigma, residual.T).T
            density = np.exp(logits[l] - 0.5 * (whitened * residual).sum(axis=1))
            density = density / np.sqrt(np.linalg.det(Sigma)) / np.exp(logits).sum()
            R = np.eye(d) - G.T @ np.linalg.solve(Sigma, G)
            t = [
                (whitened @ G @ w + b) / np.sqrt(1 + w @ R @ w) for w, b in zip(coef, intercept, strict=True)
            ]
            chance = special.erfc(-signs * np.array(t) / np.sqrt(2)) / 2  # (J, N)
            total = total + density * chance
        return np.log(total).ravel()

    columns = []
    for i in range(len(theta)):
        moved = theta.astype(complex)
        moved[i] += 1e-30j
        columns.append(log_f(moved).imag / 1e-30)
    values = np.linalg.svd(np.array(columns), compute_uv=False)
    return int(np.sum(values > 1e-10 * values[0]))


def _rows(X, labels):
    return list(zip(np.asarray(X, dtype=float), labels, strict=True))
