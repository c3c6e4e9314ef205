"""Indian-buffet models, entry by entry: Y (N, D), Z (N, K), C (D, L), W (K, L) or (K, D).

Loops over rows, features and codes, with quadrature for truncated normals and nothing in common with the
library. NaN marks what was not observed.
"""

import math
from functools import cache

import numpy as np
from scipy.integrate import quad
from scipy.stats import multivariate_normal


class Truncated:
    """N(mu, s^2) on [0, inf), by quadrature."""

    def __init__(self, mu, s):
        high = max(mu, 0.0) + (12 * s if mu > -2 * s else 40 * s**2 / -mu)
        peak = max(mu, 0.0)
        log_density = lambda w: -0.5 * ((w - mu) ** 2 - (peak - mu) ** 2) / s**2
        integral = lambda f: quad(f, 0.0, high, points=[peak], limit=200, epsabs=0, epsrel=1e-10)[0]
        mass = integral(lambda w: math.exp(log_density(w)))
        self.mean = integral(lambda w: w * math.exp(log_density(w))) / mass
        self.square = integral(lambda w: w**2 * math.exp(log_density(w))) / mass
        self.variance = self.square - self.mean**2
        self.entropy = math.log(mass) - integral(lambda w: math.exp(log_density(w)) * log_density(w)) / mass


@cache
def truncated(mu, s):
    return Truncated(mu, s)


def log_buffet_of_class(Z, alpha):
    """ln P([Z]) from the finite model's limit: the restaurant with new dishes in order of the customers."""
    N, total = len(Z), 0.0
    seen = np.zeros(Z.shape[1], dtype=bool)
    for n in range(N):
        m = Z[:n].sum(axis=0)
        for k in np.flatnonzero(seen):
            p = m[k] / (n + 1)
            total += math.log(p if Z[n, k] else 1 - p)
        new = int((Z[n].astype(bool) & ~seen).sum())
        total += new * math.log(alpha / (n + 1)) - alpha / (n + 1) - math.lgamma(new + 1)
        seen |= Z[n].astype(bool)
    # matrices that the restaurant makes of one class: orders of the new dishes of each customer
    first = [tuple(Z[:, k]) for k in range(Z.shape[1])]
    for n in range(N):
        born = [h for h in first if any(h) and h.index(1) == n]
        total += math.lgamma(len(born) + 1) - sum(math.lgamma(born.count(h) + 1) for h in set(born))
    return total


def log_ordered(Z, alpha):
    columns = [tuple(column) for column in Z.T if any(column)]
    repeated = sum(math.lgamma(columns.count(h) + 1) for h in set(columns))
    kept = np.array(columns).T.reshape(len(Z), -1)
    return log_buffet_of_class(kept, alpha) + repeated - math.lgamma(len(columns) + 1)


def inverse_gamma(variance, a, b):
    return -(a + 1) * math.log(variance) - b / variance


def gamma(value, a, b):
    return ((a - 1) * math.log(value) if a != 1 else 0.0) - b * value


def collapsed_log_likelihood(Y, Z, noise, spread):
    """ln p(Y | Z), weights integrated out, one feature after the other."""
    total = 0.0
    for d in range(Y.shape[1]):
        o = ~np.isnan(Y[:, d])
        covariance = spread * Z[o] @ Z[o].T + noise * np.eye(o.sum())
        total += multivariate_normal(np.zeros(o.sum()), covariance).logpdf(Y[o, d])
    return total


class Blocks:
    """iNBMT; ME-IBP is the case C = I whose codes have no prior and stay."""

    def __init__(self, Y, Z, C, mu, s, alpha, lam, noise, spread, *, free=True):
        self.Y, self.Z, self.C, self.mu, self.s = Y, Z.copy(), C.copy(), mu.copy(), s.copy()
        self.alpha, self.lam, self.noise, self.spread, self.free = alpha, lam, noise, spread, free

    def moments(self):
        q = [
            [truncated(m, s) for m, s in zip(*pair, strict=True)]
            for pair in zip(self.mu, self.s, strict=True)
        ]
        get = lambda name: np.array([[getattr(one, name) for one in row] for row in q]).reshape(self.mu.shape)
        return get("mean"), get("variance"), get("square"), get("entropy")

    def bound(self):
        M, V, S, H = self.moments()
        total, mean, variance = 0.0, self.Z @ M @ self.C.T, self.Z @ V @ self.C.T
        for n, d in np.argwhere(~np.isnan(self.Y)):
            error = (self.Y[n, d] - mean[n, d]) ** 2 + variance[n, d]
            total += -0.5 * math.log(2 * math.pi * self.noise) - 0.5 * error / self.noise
        used = self.Z.any(axis=0)[:, None] & self.C.any(axis=0)
        phi = -0.5 * math.log(math.pi * self.spread / 2) - S / (2 * self.spread) + H
        total += float(phi[used].sum()) + log_ordered(self.Z, self.alpha)
        return total + (log_ordered(self.C, self.lam) if self.free else 0.0)

    def objective(self, concentration=(1, 1), noise=(1, 1e-3), spread=(1, 1e-3)):
        total = self.bound() + gamma(self.alpha, *concentration)
        total += gamma(self.lam, *concentration) if self.free else 0.0
        return total + inverse_gamma(self.noise, *noise) + inverse_gamma(self.spread, *spread)

    def sweep(self, modes=True):
        """One sweep as it is defined: each bit set to whatever makes the bound larger."""
        self.move_weights()
        self.move_bits(self.Z)
        if self.free:
            self.move_bits(self.C)
        rows, columns = self.Z.any(axis=0), self.C.any(axis=0) if self.free else np.ones(len(self.C), bool)
        self.Z, self.C = self.Z[:, rows], self.C[:, columns]
        self.mu, self.s = self.mu[rows][:, columns], self.s[rows][:, columns]
        if modes:
            self.move_hyper()

    def move_weights(self):
        M = self.moments()[0]
        seen = ~np.isnan(self.Y)
        for k in range(M.shape[0]):
            for m in range(M.shape[1]):
                count, target = 0.0, 0.0
                for n, d in np.argwhere(seen):
                    if self.Z[n, k] and self.C[d, m]:
                        rest = self.Z[n] @ M @ self.C[d] - M[k, m]
                        count, target = count + 1, target + self.Y[n, d] - rest
                tau = 1 / (count + self.noise / self.spread)
                self.mu[k, m], self.s[k, m] = tau * target, math.sqrt(tau * self.noise)
                M[k, m] = truncated(self.mu[k, m], self.s[k, m]).mean

    def move_bits(self, codes):
        for n in range(codes.shape[0]):
            for k in range(codes.shape[1]):
                codes[n, k] = 1
                on = self.bound()
                codes[n, k] = 0
                if on > self.bound():
                    codes[n, k] = 1

    def move_hyper(self, concentration=(1, 1), noise=(1, 1e-3), spread=(1, 1e-3)):
        N, D = self.Y.shape
        M, V, S, _ = self.moments()
        harmonic = lambda n: sum(1 / j for j in range(1, n + 1))
        error, count = 0.0, 0
        for n, d in np.argwhere(~np.isnan(self.Y)):
            error += (self.Y[n, d] - self.Z[n] @ M @ self.C[d]) ** 2 + self.Z[n] @ V @ self.C[d]
            count += 1
        self.alpha = (concentration[0] + self.Z.shape[1] - 1) / (concentration[1] + harmonic(N))
        self.lam = (concentration[0] + self.C.shape[1] - 1) / (concentration[1] + harmonic(D))
        self.noise = (noise[1] + error / 2) / (noise[0] + 1 + count / 2)
        self.spread = (spread[1] + S.sum() / 2) / (spread[0] + 1 + S.size / 2)


def log_link(z, c, q):
    """ln p(z | c) of a noisy or."""
    p = 1 - q**c
    return (math.log(p) if p > 0 else -math.inf) if z else (math.log(1 - p))


def correlated_bound(Y, Z, U, V, mu, s, alphas, noise, rate, q):
    """T of the correlated IBP-IBP."""
    total = log_ordered(U, alphas[0]) + log_ordered(V, alphas[1])
    counts = U @ V
    for n in range(len(Z)):
        total += sum(log_link(Z[n, k], counts[n, k], q) for k in range(Z.shape[1]))
    means, variances = np.zeros(mu.shape), np.zeros(mu.shape)
    for k, d in np.ndindex(*mu.shape):
        one = truncated(mu[k, d], s[k, d])
        means[k, d], variances[k, d] = one.mean, one.variance
        total += math.log(rate) - rate * one.mean + one.entropy
    for n, d in np.argwhere(~np.isnan(Y)):
        error = (Y[n, d] - Z[n] @ means[:, d]) ** 2 + Z[n] @ variances[:, d]
        total += -0.5 * math.log(2 * math.pi * noise) - 0.5 * error / noise
    return total
