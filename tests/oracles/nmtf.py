"""Tri-factorisations entry by entry, from the formulas: slow, and independent of the library."""

import numpy as np


def cost(X, Z, W, C, a=0.0, b=0.0, c=0.0, weight=None):
    """Of observed entries (not NaN), with penalties; row n counts `weight[n]` times."""
    n, D = X.shape
    weight = np.ones(n) if weight is None else weight
    total = 0.0
    for i in range(n):
        for d in range(D):
            if not np.isnan(X[i, d]):
                total += 0.5 * weight[i] * (X[i, d] - Z[i] @ W @ C[d]) ** 2
        total += (
            0.5
            * a
            * weight[i]
            * sum(Z[i, k] * Z[i, j] for k in range(Z.shape[1]) for j in range(Z.shape[1]) if k != j)
        )
    for d in range(D):
        total += (
            0.5 * b * sum(C[d, k] * C[d, j] for k in range(C.shape[1]) for j in range(C.shape[1]) if k != j)
        )
    return total + 0.5 * c * sum(w**2 for w in W.ravel())


def multiplicative_sweep(X, Z, W, C, a=0.0, b=0.0, c=0.0, weight=None):
    """Z, then C, then W, each entry times the ratio of the two parts of its gradient."""
    n, D = X.shape
    weight = np.ones(n) if weight is None else weight
    seen = ~np.isnan(X)
    Z, W, C = Z.copy(), W.copy(), C.copy()
    K, L = W.shape

    def ratio(up, down):
        return up / down if down > 0 else 1.0

    model = Z @ W @ C.T
    new = Z.copy()
    for i in range(n):
        for k in range(K):
            pattern = [W[k] @ C[d] for d in range(D)]
            up = sum(X[i, d] * pattern[d] for d in range(D) if seen[i, d])
            down = sum(model[i, d] * pattern[d] for d in range(D) if seen[i, d])
            new[i, k] = Z[i, k] * ratio(up, down + a * (Z[i].sum() - Z[i, k]))
    Z, model = new, new @ W @ C.T
    new = C.copy()
    for d in range(D):
        for m in range(L):
            pattern = [Z[i] @ W[:, m] for i in range(n)]
            up = sum(weight[i] * X[i, d] * pattern[i] for i in range(n) if seen[i, d])
            down = sum(weight[i] * model[i, d] * pattern[i] for i in range(n) if seen[i, d])
            new[d, m] = C[d, m] * ratio(up, down + b * (C[d].sum() - C[d, m]))
    C, model = new, Z @ W @ new.T
    new = W.copy()
    for k in range(K):
        for m in range(L):
            pairs = [(i, d) for i in range(n) for d in range(D) if seen[i, d]]
            up = sum(weight[i] * X[i, d] * Z[i, k] * C[d, m] for i, d in pairs)
            down = sum(weight[i] * model[i, d] * Z[i, k] * C[d, m] for i, d in pairs)
            new[k, m] = W[k, m] * ratio(up, down + c * W[k, m])
    return Z, new, C


def block_means(X, z, c, W, weight):
    """A block without observed entries keeps its mean."""
    W = W.copy()
    for k in range(W.shape[0]):
        for m in range(W.shape[1]):
            cells = [
                (i, d)
                for i in np.flatnonzero(z == k)
                for d in np.flatnonzero(c == m)
                if not np.isnan(X[i, d])
            ]
            if cells:
                total = sum(weight[i] for i, _ in cells)
                W[k, m] = sum(weight[i] * X[i, d] for i, d in cells) / total
    return W


def block_sweep(X, z, c, W, weight=None):
    """Means, rows, means, columns, means."""
    n, D = X.shape
    weight = np.ones(n) if weight is None else weight
    W = block_means(X, z, c, W, weight)
    errors = np.array([[np.nansum((X[i] - W[k, c]) ** 2) for k in range(len(W))] for i in range(n)])
    z = errors.argmin(axis=1)
    W = block_means(X, z, c, W, weight)
    errors = np.array(
        [[np.nansum(weight * (X[:, d] - W[z, m]) ** 2) for m in range(W.shape[1])] for d in range(D)]
    )
    c = errors.argmin(axis=1)
    return z, c, block_means(X, z, c, W, weight)


def block_cost(X, z, c, W, weight=None):
    weight = np.ones(len(X)) if weight is None else weight
    return 0.5 * np.nansum(weight[:, None] * (X - W[np.ix_(z, c)]) ** 2)
