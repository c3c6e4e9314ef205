"""Non-linear factorisation, entry by entry: X (N, D), S (N, r), A (r, D), b (D,), W (C, r), w0 (C,).

Loops over rows, features and components, with nothing in common with the library. NaN marks what was not
observed, a label of -1 a row without one; `weight` counts rows.
"""

import math

import numpy as np
from scipy.optimize import minimize

MAPS = {
    "tanh": math.tanh,
    "logistic": lambda s: 1 / (1 + math.exp(-s)) if s > 0 else math.exp(s) / (1 + math.exp(s)),
    "ratio": lambda s: s / (1 + s),
    "identity": lambda s: s,
}
SLOPES = {
    "tanh": lambda s: 1 / math.cosh(s) ** 2,
    "logistic": lambda s: MAPS["logistic"](s) * MAPS["logistic"](-s),
    "ratio": lambda s: 1 / (1 + s) ** 2,
    "identity": lambda s: 1.0,
}
FURTHEST = {"tanh": 12.0, "logistic": 24.0, "ratio": 1e6, "identity": 50.0}


def mapped(mapping, S):
    return np.array([[MAPS[mapping](s) for s in row] for row in S]).reshape(np.shape(S))


def row_cost(mapping, alpha, sigma2, x, s, A, b):
    """Squared error over 2 sigma^2 and penalty of one row."""
    total = 0.0
    for d in range(len(x)):
        if not math.isnan(x[d]):
            made = sum(MAPS[mapping](s[k]) * A[k, d] for k in range(len(s))) + b[d]
            total += (x[d] - made) ** 2 / (2 * sigma2)
    return total + alpha * sum(abs(v) for v in s)


def cross_entropy(mapping, s, label, W, w0):
    if label < 0:
        return 0.0
    v = [sum(W[c, k] * MAPS[mapping](s[k]) for k in range(len(s))) + w0[c] for c in range(len(w0))]
    largest = max(v)
    return largest + math.log(sum(math.exp(value - largest) for value in v)) - v[label]


def cost(settings, X, S, A, b, y=None, W=None, w0=None, weight=None):
    """What a fit minimises; `settings` are mapping, alpha, beta, sigma2 and, with labels, gamma."""
    mapping, alpha, sigma2 = settings["mapping"], settings["alpha"], settings["sigma2"]
    weight = np.ones(len(X)) if weight is None else weight
    total = settings["beta"] * np.abs(A).sum()
    for n in range(len(X)):
        own = row_cost(mapping, alpha, sigma2, X[n], S[n], A, b)
        own += 0.0 if y is None else cross_entropy(mapping, S[n], y[n], W, w0)
        total += weight[n] * own
    return total + (0.0 if y is None else settings["gamma"] * np.abs(W).sum())


# -- exact blocks ---------------------------------------------------------------------------------------


def best_sources(settings, x, A, b, positive, label=-1, W=None, w0=None, rounds=2000):
    """Coordinate descent in s, each coordinate by bisection of the derivative of its own convex problem in
    f(s).
    """
    mapping, r = settings["mapping"], len(A)
    f, slope, alpha, sigma2 = MAPS[mapping], SLOPES[mapping], settings["alpha"], settings["sigma2"]
    seen = ~np.isnan(x)
    y, parts = x[seen] - b[seen], A[:, seen]
    low = 0.0 if positive else -FURTHEST[mapping]
    u = np.array([f(0.1)] * r)
    s = np.array([0.1] * r)
    for _ in range(rounds):
        before = s.copy()
        for k in range(r):
            rest = y - u @ parts + u[k] * parts[k]

            def derivative(t, side, k=k, rest=rest):
                """Of the cost with respect to f(s_k), at s_k = t."""
                value = f(t)
                found = -(rest - value * parts[k]) @ parts[k] / sigma2 + side * alpha / slope(t)
                if W is not None and label >= 0:
                    there = u.copy()
                    there[k] = value
                    v = W @ there + w0
                    p = np.exp(v - v.max()) / np.exp(v - v.max()).sum()
                    found += p @ W[:, k] - W[label, k]
                return found

            if derivative(0.0, 1.0) >= 0 and (positive or derivative(0.0, -1.0) <= 0):
                s[k] = 0.0
            else:
                side = 1.0 if derivative(0.0, 1.0) < 0 else -1.0
                a, c = (0.0, FURTHEST[mapping]) if side > 0 else (low, 0.0)
                for _ in range(70):
                    middle = 0.5 * (a + c)
                    a, c = (middle, c) if derivative(middle, side) < 0 else (a, middle)
                s[k] = 0.5 * (a + c)
            u[k] = f(s[k])
        if np.abs(s - before).max() <= 1e-12 * max(1.0, np.abs(s).max()):
            break
    return s


def best_components(settings, X, F, A, b, positive, weight=None, rounds=20000):
    """Coordinate descent over each feature's components and offset."""
    weight = np.ones(len(X)) if weight is None else weight
    A, b = A.copy(), b.copy()
    penalty = settings["sigma2"] * settings["beta"]
    for d in range(X.shape[1]):
        seen = ~np.isnan(X[:, d])
        features, w, x = np.column_stack([F, np.ones(len(F))])[seen], weight[seen], X[seen, d]
        a = np.append(A[:, d], b[d])
        for _ in range(rounds):
            before = a.copy()
            for k in range(len(a)):
                rest = x - features @ a + features[:, k] * a[k]
                pull, square = (w * features[:, k]) @ rest, (w * features[:, k]) @ features[:, k]
                own = penalty if k < len(a) - 1 else 0.0
                a[k] = 0.0 if square == 0 else math.copysign(max(abs(pull) - own, 0.0), pull) / square
                if positive:
                    a[k] = max(a[k], 0.0)
            if np.abs(a - before).max() <= 1e-13 * max(np.abs(a).max(), 1e-300):
                break
        A[:, d], b[d] = a[:-1], a[-1]
    return A, b


def best_coefficients(settings, F, y, C, positive, weight=None):
    """The minimum of cross-entropy and penalty: W = P - Q with P, Q >= 0, which makes the penalty linear."""
    weight = np.ones(len(F)) if weight is None else weight
    r = F.shape[1]
    known = y >= 0
    features, labels, w = np.column_stack([F, np.ones(len(F))])[known], y[known], weight[known]

    def value(z):
        P, Q = z[: C * r].reshape(C, r), z[C * r : 2 * C * r].reshape(C, r)
        coefficients = np.column_stack([P - Q, z[2 * C * r :]])
        v = features @ coefficients.T
        v -= v.max(axis=1, keepdims=True)
        p = np.exp(v) / np.exp(v).sum(axis=1, keepdims=True)
        entropy = -(w @ np.log(p[np.arange(len(labels)), labels]))
        slope = ((p - np.eye(C)[labels]) * w[:, None]).T @ features
        gradient = np.concatenate(
            [
                (slope[:, :-1] + settings["gamma"]).ravel(),
                (settings["gamma"] - slope[:, :-1]).ravel(),
                slope[:, -1],
            ]
        )
        return entropy + settings["gamma"] * (P.sum() + Q.sum()), gradient

    upper = (
        [(0, None)] * (C * r)
        + [(0, 0.0 if positive else None)] * (C * r)
        + [(0 if positive else None, None)] * C
    )
    start = np.concatenate(
        [np.full(C * r, 0.01), np.zeros(C * r) if positive else np.full(C * r, 0.01), np.zeros(C)]
    )
    found = minimize(
        value,
        start,
        jac=True,
        bounds=upper,
        method="L-BFGS-B",
        options={"maxiter": 50000, "maxfun": 100000, "ftol": 1e-16, "gtol": 1e-10},
    ).x
    W = (found[: C * r] - found[C * r : 2 * C * r]).reshape(C, r)
    return W, found[2 * C * r :]


def exact_sweep(settings, X, S, A, b, constraint, y=None, W=None, w0=None, weight=None):
    """Sources, components, then coefficients, each at its minimum."""
    S = np.array(
        [
            best_sources(settings, X[n], A, b, constraint == "non_negative", -1 if y is None else y[n], W, w0)
            for n in range(len(X))
        ]
    )
    F = mapped(settings["mapping"], S)
    A, b = best_components(settings, X, F, A, b, constraint != "unconstrained", weight)
    if y is not None:
        W, w0 = best_coefficients(settings, F, y, len(w0), constraint != "unconstrained", weight)
    return S, A, b, W, w0


# -- multiplicative blocks --------------------------------------------------------------------------------


def multiplicative_sweep(settings, X, S, A, b, y=None, W=None, w0=None, weight=None):
    """Sources, components, then coefficients, each with exponent 1, halved until the whole cost does not
    rise.
    """
    mapping, alpha, sigma2 = settings["mapping"], settings["alpha"], settings["sigma2"]
    weight = np.ones(len(X)) if weight is None else weight
    N, r, D = len(X), len(A), X.shape[1]

    def total(S, A, b, W, w0):
        return cost(settings, X, S, A, b, y, W, w0, weight)

    def probabilities(s):
        v = np.array([sum(W[c, k] * MAPS[mapping](s[k]) for k in range(r)) + w0[c] for c in range(len(w0))])
        return np.exp(v - v.max()) / np.exp(v - v.max()).sum()

    ratio = np.ones((N, r))
    for n in range(N):
        made = [sum(MAPS[mapping](S[n, j]) * A[j, d] for j in range(r)) + b[d] for d in range(D)]
        for k in range(r):
            seen = [d for d in range(D) if not math.isnan(X[n, d])]
            above = sum(X[n, d] * A[k, d] for d in seen) / sigma2
            below = sum(made[d] * A[k, d] for d in seen) / sigma2 + alpha / SLOPES[mapping](S[n, k])
            if y is not None and y[n] >= 0:
                p = probabilities(S[n])
                above += W[y[n], k]
                below += sum(p[c] * W[c, k] for c in range(len(w0)))
            ratio[n, k] = above / below if below > 0 else 1.0
    S = _halved(lambda e: S * ratio**e, lambda there: total(there, A, b, W, w0), total(S, A, b, W, w0), S)

    F = np.column_stack([mapped(mapping, S), np.ones(N)])
    stacked = np.vstack([A, b])
    ratio = np.ones((r + 1, D))
    for k in range(r + 1):
        for d in range(D):
            seen = [n for n in range(N) if not math.isnan(X[n, d])]
            above = sum(weight[n] * F[n, k] * X[n, d] for n in seen)
            below = sum(weight[n] * F[n, k] * (F[n] @ stacked[:, d]) for n in seen)
            below += sigma2 * settings["beta"] if k < r else 0.0
            ratio[k, d] = above / below if below > 0 else 1.0
    here = total(S, A, b, W, w0)
    stacked = _halved(lambda e: stacked * ratio**e, lambda t: total(S, t[:-1], t[-1], W, w0), here, stacked)
    A, b = stacked[:-1], stacked[-1]
    if y is None:
        return S, A, b, W, w0

    stacked, C = np.column_stack([W, w0]), len(w0)
    ratio = np.ones((C, r + 1))
    P = np.array([probabilities(s) for s in S])
    for c in range(C):
        for k in range(r + 1):
            above = sum(weight[n] * F[n, k] for n in range(N) if y[n] == c)
            below = sum(weight[n] * P[n, c] * F[n, k] for n in range(N) if y[n] >= 0)
            below += settings["gamma"] if k < r else 0.0
            ratio[c, k] = above / below if below > 0 else 1.0
    here = total(S, A, b, W, w0)
    stacked = _halved(
        lambda e: stacked * ratio**e, lambda t: total(S, A, b, t[:, :-1], t[:, -1]), here, stacked
    )
    return S, A, b, stacked[:, :-1], stacked[:, -1]


def _halved(moved, value, before, stays):
    exponent = 1.0
    for _ in range(60):
        there = moved(exponent)
        if value(there) <= before * (1 + 1e-13):
            return there
        exponent /= 2
    return stays
