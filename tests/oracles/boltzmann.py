"""Restricted Boltzmann machines and stacks of them, by listing every state; slow, and with NumPy alone."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import expit, logsumexp


def states(n):
    """(2^n, n)"""
    return np.array(list(itertools.product([0.0, 1.0], repeat=n)))


def visible_states(D, n_labels=0):
    """All binary rows of which the last `n_labels` entries are one-hot."""
    V = states(D)
    return V[V[:, D - n_labels :].sum(axis=1) == 1] if n_labels else V


def log_joint(A, b, c, V):
    """(rows of V, 2^H) h'Av + b'v + c'h, term by term."""
    table = np.empty((len(V), 2 ** len(c)))
    for i, v in enumerate(V):
        for j, h in enumerate(states(len(c))):
            table[i, j] = h @ A @ v + b @ v + c @ h
    return table


def log_partition(A, b, c, n_labels=0):
    return logsumexp(log_joint(A, b, c, visible_states(len(b), n_labels)))


def log_density(A, b, c, V, n_labels=0):
    return logsumexp(log_joint(A, b, c, V), axis=1) - log_partition(A, b, c, n_labels)


def gibbs_kernel(A, b, c):
    """(2^D, 2^D) probabilities of one Gibbs step from each visible state to each other one."""
    V, H = states(len(b)), states(len(c))
    up = bernoulli(expit(V @ A.T + c), H)  # (2^D, 2^H)
    down = bernoulli(expit(H @ A + b), V)  # (2^H, 2^D)
    return up @ down


def bernoulli(P, X):
    """(rows of P, rows of X) probabilities of binary rows."""
    return np.prod(np.where(X[None] == 1.0, P[:, None], 1.0 - P[:, None]), axis=2)


def expected_cd_step(A, b, c, V0, k=1):
    """Expected change of A, b, c by CD-k for the mean over the binary rows V0."""
    V = states(len(b))
    start = np.array([np.flatnonzero((v == V).all(axis=1))[0] for v in V0])
    end = np.linalg.matrix_power(gibbs_kernel(A, b, c), k)[start].mean(axis=0)  # (2^D,)
    p0, p = expit(V0 @ A.T + c), expit(V @ A.T + c)
    return (
        p0.T @ V0 / len(V0) - (p * end[:, None]).T @ V,
        V0.mean(axis=0) - end @ V,
        p0.mean(axis=0) - end @ p,
    )


def stack_log_density(layers, X, n_labels=0):
    """ln p(x) of a deep belief net; layers are (A, b, c), the rows' first."""
    *below, top = layers
    seen = states(len(top[1]) - n_labels) if below else X
    if n_labels:
        codes = np.eye(n_labels)
        parts = [np.hstack([seen, np.tile(code, (len(seen), 1))]) for code in codes]
        log_p = logsumexp([log_density(*top, part, n_labels) for part in parts], axis=0)
    else:
        log_p = log_density(*top, seen)
    for number in reversed(range(len(below))):
        A, b, _ = below[number]
        above = states(len(A))
        here = X if number == 0 else states(len(b))
        log_down = np.log(bernoulli(expit(above @ A + b), here))  # (2^H, rows)
        log_p = logsumexp(log_down + log_p[:, None], axis=0)
    return log_p


def stack_bound(layers, recognition, X, n_labels=0):
    """E_q[ln p(x, h) - ln q(h | x)], q the up-pass."""
    if len(layers) == 1:
        return stack_log_density(layers, X, n_labels)
    (A, b, _), (R, r) = layers[0], recognition[0]
    H = states(len(A))
    above = stack_bound(layers[1:], recognition[1:], H, n_labels)  # (2^H,)
    q = bernoulli(expit(X @ R.T + r), H)  # (rows, 2^H)
    log_down = np.log(bernoulli(expit(H @ A + b), X)).T
    return np.sum(q * (log_down - np.log(q) + above), axis=1)
