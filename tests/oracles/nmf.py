"""Non-negative factorisation, entry by entry: X (N, D), S (N, r), A (r, D), NaN where nothing was observed.

Loops over rows, features and components, with nothing in common with the library. `weight` counts rows,
`entry_weight` (N, D) entries; `penalties` are l1 and l2 of S, then of A, as they stand in the cost. A loss is
a name, or the beta of a beta divergence.
"""

import math

import numpy as np
from scipy.optimize import minimize, nnls

NO_PENALTIES = (0.0, 0.0, 0.0, 0.0)


def entry_cost(loss, x, y):
    """Of one entry and what is made of it."""
    if math.isnan(x):
        return 0.0
    if loss == "frobenius":
        return 0.5 * (x - y) ** 2
    if loss == "itakura-saito":
        return x / y - math.log(x / y) - 1
    if loss != "kl":
        if y == 0 and loss < 1:
            return 0.0 if x == 0 and loss > 0 else math.inf
        return (x**loss + (loss - 1) * y**loss - loss * x * y ** (loss - 1)) / (loss * (loss - 1))
    if x == 0:
        return y
    return x * math.log(x / y) - x + y if y > 0 else math.inf


def row_cost(loss, x, s, A, entry_weight=None):
    w = np.ones(len(x)) if entry_weight is None else entry_weight
    return math.fsum(
        w[d] * entry_cost(loss, x[d], sum(s[k] * A[k, d] for k in range(len(s))))
        for d in range(len(x))
        if w[d] > 0
    )


def cost(loss, X, S, A, weight=None, penalties=NO_PENALTIES, entry_weight=None):
    """What a fit minimises."""
    weight = np.ones(len(X)) if weight is None else weight
    W = np.ones(X.shape) if entry_weight is None else entry_weight
    l1_S, l2_S, l1_A, l2_A = penalties
    total = 0.0
    for n in range(len(X)):
        own = math.fsum(l1_S * s + 0.5 * l2_S * s**2 for s in S[n])
        total += weight[n] * (row_cost(loss, X[n], S[n], A, W[n]) + own)
    return total + math.fsum(l1_A * a + 0.5 * l2_A * a**2 for a in A.ravel())


def penalties(alpha_W, alpha_H, l1_ratio, n_features, total_weight):
    """As scikit-learn scales them: by the number of features and of rows."""
    of_S, of_A = alpha_W * n_features, alpha_H * total_weight
    return of_S * l1_ratio, of_S * (1 - l1_ratio), of_A * l1_ratio, of_A * (1 - l1_ratio)


# -- one sweep: activations, then components ------------------------------------------------------------


def multiplicative_sweep(loss, X, S, A, weight=None, exponent=1.0, entry_weight=None):
    """The rule of the source with ratios to a power: S, then A with the new S."""
    weight = np.ones(len(X)) if weight is None else weight
    W = np.ones(X.shape) if entry_weight is None else entry_weight
    exponent = exponent * descending_power(loss)
    S = S * _ratios(loss, X, S, A, W) ** exponent
    A = A * _ratios(loss, X.T, A.T, S.T, W.T, weight).T ** exponent
    return S, A


def descending_power(loss):
    """The power of the ratio with which no update leads up (Févotte and Idier 2011, table 2)."""
    beta = {"frobenius": 2.0, "kl": 1.0, "itakura-saito": 0.0}.get(loss, loss)
    if beta < 1:
        return 1 / (2 - beta)
    return 1.0 if beta <= 2 else 1 / (beta - 1)


def _ratios(loss, X, S, A, W, feature_weight=None):
    """What each entry of S is multiplied with; one where nothing depends on it."""
    feature_weight = np.ones(X.shape[1]) if feature_weight is None else feature_weight
    beta = {"frobenius": 2.0, "kl": 1.0, "itakura-saito": 0.0}.get(loss, loss)
    found = np.ones_like(S)
    for n in range(len(X)):
        for k in range(S.shape[1]):
            above = below = 0.0
            for d in range(X.shape[1]):
                if math.isnan(X[n, d]) or W[n, d] == 0:
                    continue
                y = sum(S[n, j] * A[j, d] for j in range(S.shape[1]))
                w = W[n, d] * feature_weight[d] * A[k, d]
                above += w * X[n, d] * y ** (beta - 2) if X[n, d] > 0 and y > 0 else 0.0
                below += w * y ** (beta - 1) if beta >= 1 or y > 0 else 0.0
            if below > 0:
                found[n, k] = above / below
    return found


def coordinate_sweep(X, S, A, weight=None, n_passes=1, entry_weight=None, n_fixed=0):
    """Each activation at the minimum of the squared error given all else, one by one; then each component.

    The first `n_fixed` components stay as they are.
    """
    weight = np.ones(len(X)) if weight is None else weight
    W = np.ones(X.shape) if entry_weight is None else entry_weight
    S, A = S.copy(), A.copy()
    for _ in range(n_passes):
        for k in range(S.shape[1]):
            for n in range(len(X)):
                seen = [d for d in range(X.shape[1]) if not math.isnan(X[n, d])]
                below = sum(W[n, d] * A[k, d] ** 2 for d in seen)
                above = sum(W[n, d] * A[k, d] * _without(X, S, A, n, d, k) for d in seen)
                S[n, k] = max(above / below, 0.0) if below > 0 else S[n, k]
    for k in range(n_fixed, S.shape[1]):
        for d in range(X.shape[1]):
            seen = [n for n in range(len(X)) if not math.isnan(X[n, d])]
            below = sum(weight[n] * W[n, d] * S[n, k] ** 2 for n in seen)
            above = sum(weight[n] * W[n, d] * S[n, k] * _without(X, S, A, n, d, k) for n in seen)
            A[k, d] = max(above / below, 0.0) if below > 0 else A[k, d]
    return S, A


def _without(X, S, A, n, d, k):
    return X[n, d] - sum(S[n, j] * A[j, d] for j in range(S.shape[1]) if j != k)


# -- activations of given components ----------------------------------------------------------------------


def best_activations(loss, x, A, l1=0.0, l2=0.0):
    """Those of one row, by solvers that are made for such problems."""
    seen = ~np.isnan(x)
    x, A = x[seen], A[:, seen]
    if loss == "frobenius" and l1 == 0:
        # l2 s^2 / 2 is the squared error of rows that are zero
        return nnls(np.vstack([A.T, math.sqrt(l2) * np.eye(len(A))]), np.append(x, np.zeros(len(A))))[0]

    def value(s):
        made = s @ A
        with np.errstate(divide="ignore"):
            loss_of = (
                0.5 * np.sum((x - made) ** 2)
                if loss == "frobenius"
                else np.sum(made) - np.sum(x[x > 0] * np.log(made[x > 0]))
            )
        return loss_of + l1 * s.sum() + 0.5 * l2 * s @ s

    def slope(s):
        made = s @ A
        if loss == "frobenius":
            by_entry = made - x
        else:
            by_entry = 1.0 - np.divide(x, made, out=np.zeros_like(x), where=x > 0)
        return A @ by_entry + l1 + l2 * s

    start = np.full(len(A), max(x.sum(), 1e-9) / max(A.sum(), 1e-9))
    found = minimize(
        value,
        start,
        jac=slope,
        bounds=[(0.0 if loss == "frobenius" else 1e-12, None)] * len(A),
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000},
    )
    return found.x


def lowest_cost(loss, X, S, A, weight=None):
    """The cost at the end of a descent over both factors from S and A, by a general solver."""
    weight = np.ones(len(X)) if weight is None else weight
    seen = ~np.isnan(X)
    filled = np.where(seen, X, 0.0)
    counted = weight[:, None] * seen

    def value(theta):
        S_, A_ = theta[: S.size].reshape(S.shape), theta[S.size :].reshape(A.shape)
        made = S_ @ A_
        if loss == "frobenius":
            by_entry = made - filled
            total = 0.5 * np.sum(counted * by_entry**2)
        else:
            ratio = np.divide(filled, made, out=np.zeros_like(made), where=filled > 0)
            by_entry = 1.0 - ratio
            logs = np.log(ratio, out=np.zeros_like(made), where=ratio > 0)
            total = np.sum(counted * (filled * logs - filled + made))
        slope = counted * by_entry
        return total, np.concatenate([(slope @ A_.T).ravel(), (S_.T @ slope).ravel()])

    low = 0.0 if loss == "frobenius" else 1e-12
    start = np.maximum(np.concatenate([S.ravel(), A.ravel()]), low)
    found = minimize(
        value,
        start,
        jac=True,
        bounds=[(low, None)] * len(start),
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 20000, "maxfun": 40000},
    )
    return found.fun
