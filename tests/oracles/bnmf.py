"""Slow reference implementation of binary causes that add up, with Poisson or Gaussian noise.

    s_h ~ Bernoulli(pi_h)     a_d(s) = sum_h W_hd s_h     y_d | s ~ Poisson(a_d(s)) or N(a_d(s), sigma^2)

Rows, states, units and features are walked one by one: every expectation is a sum over a list of states.
There is nothing here of the products over all states that the library uses, nor any of its code. A feature
that is NaN is left out of its row.

N rows, D features, H units. Parameters, in this order: W (H, D), pi (H,), the variance sigma^2, or None for
Poisson noise. Section 4 of the errata is this model.
"""

import itertools
import math

import numpy as np

# ------------------------------------------------------------------------------------ densities


def states(H, limit=None):
    """All s with at most `limit` ones, as tuples."""
    return [s for s in itertools.product((0, 1), repeat=H) if limit is None or sum(s) <= limit]


def log_prior(s, pi):
    """ln p(s), (2.1)."""
    return math.fsum(math.log(p) if on else math.log1p(-p) for on, p in zip(s, pi, strict=True))


def rate(s, W, d):
    """a_d(s)."""
    return math.fsum(W[h][d] for h in range(len(s)) if s[h])


def log_entry(y, a, variance):
    """ln p(y_d | s); nothing explains a count but a positive rate, and a rate of zero explains zero only."""
    if variance is not None:
        return -0.5 * (math.log(2 * math.pi * variance) + (y - a) ** 2 / variance)
    if a == 0:
        return 0.0 if y == 0 else -math.inf
    return y * math.log(a) - a - math.lgamma(y + 1)


def log_joint(y, s, theta):
    """ln p(y, s) of the features that are not NaN."""
    W, pi, variance = theta
    entries = [log_entry(y[d], rate(s, W, d), variance) for d in range(len(y)) if not math.isnan(y[d])]
    return math.fsum(entries) + log_prior(s, pi) if -math.inf not in entries else -math.inf


def log_sum(values):
    """ln sum exp, with the constant B_n of each row (3.2.1) put back."""
    top = max(values)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(v - top) for v in values))


def log_density(X, theta, listed=None):
    """ln sum_s p(y_n, s), (N,): over all states or the listed ones, one list for all rows or one per row."""
    lists = _per_row(X, theta, listed)
    return np.array([log_sum([log_joint(y, s, theta) for s in of_row]) for y, of_row in _pairs(X, lists)])


def posterior(X, theta, listed=None, compared=None):
    """For each row the pairs (s, q_n(s)) of the listed states.

    Probabilities are shares of the sum over the `compared` states, by default the listed ones; with more
    states compared than listed they sum to c_n < 1, as in the source.
    """
    lists = _per_row(X, theta, listed)
    totals = log_density(X, theta, lists if compared is None else compared)
    return [
        [(s, math.exp(log_joint(y, s, theta) - total)) for s in of_row]
        for (y, of_row), total in zip(_pairs(X, lists), totals, strict=True)
    ]


def free_energy(X, q, theta):
    """sum_s q_n(s) [ln p(y_n, s) - ln q_n(s)], (N,), equation (3.2)."""
    return np.array(
        [
            math.fsum(p * (log_joint(y, s, theta) - math.log(p)) for s, p in of_row if p > 0)
            for y, of_row in _pairs(X, q)
        ]
    )


def means(X, theta, listed=None):
    """<s_h>_n, (N, H), with probabilities that sum to one over the listed states."""
    H = len(theta[1])
    return np.array(
        [
            [math.fsum(p for s, p in of_row if s[h]) for h in range(H)]
            for of_row in posterior(X, theta, listed)
        ]
    )


def best_states(X, theta, listed=None):
    """The most probable of the listed states, (N, H)."""
    return np.array([max(of_row, key=lambda pair: pair[1])[0] for of_row in posterior(X, theta, listed)])


def log_kept(pi, limit):
    """ln A = ln P(|s| <= limit), by the states themselves."""
    return log_sum([log_prior(s, pi) for s in states(len(pi), limit)])


# -------------------------------------------------------------------------------------- M-steps


def expected(X, q, theta, sample_weight=None):
    """Q: sum_n w_n sum_s q_n(s) ln p(y_n, s), equation (3.6)."""
    weight = np.ones(len(X)) if sample_weight is None else sample_weight
    return math.fsum(
        w * p * log_joint(y, s, theta)
        for (y, of_row), w in zip(_pairs(X, q), weight, strict=True)
        for s, p in of_row
        if p > 0
    )


def multiplied(X, q, W, sample_weight=None):
    """The monotone step of W, (H, D): W_hd (sum_n y_nd <s_h / a_d>) / (sum_n <s_h>)."""
    (H, D), out = np.shape(W), np.array(W, dtype=float)
    for h in range(H):
        for d in range(D):
            above, below = [], []
            for w, y, s, p in _all(X, q, sample_weight):
                if s[h] and p > 0 and not math.isnan(y[d]):
                    a = rate(s, W, d)
                    below.append(w * p)
                    above.append(w * p * y[d] / a if a > 0 else 0.0)
            if math.fsum(below) > 0:
                out[h, d] = W[h][d] * math.fsum(above) / math.fsum(below)
    return out


def least_squares(X, q, theta, sample_weight=None):
    """W by (3.8), (H, D), before negative weights are set to zero; NaN is expected to be a_d(s) of before."""
    H, D = np.shape(theta[0])
    moment, second = np.zeros((H, D)), np.zeros((H, H))
    for w, y, s, p in _all(X, q, sample_weight):
        row = [rate(s, theta[0], d) if math.isnan(y[d]) else y[d] for d in range(D)]
        moment += w * p * np.outer(s, row)
        second += w * p * np.outer(s, s)
    return np.linalg.solve(second, moment)


def residual_variance(X, q, W, theta, sample_weight=None):
    """sigma^2: the mean over rows and features of <(y_d - a_d)^2>; NaN has mean and variance of before."""
    squares, count = [], []
    for w, y, s, p in _all(X, q, sample_weight):
        for d in range(len(y)):
            known = not math.isnan(y[d])
            left = (y[d] if known else rate(s, theta[0], d)) - rate(s, W, d)
            squares.append(w * p * (left**2 + (0.0 if known else theta[2])))
            count.append(w * p)
    return math.fsum(squares) / math.fsum(count)


def activity(q, sample_weight=None):
    """sum_n <s_h> / sum_n c_n, (H,): pi of each unit, (3.7) apart for each."""
    weight = np.ones(len(q)) if sample_weight is None else sample_weight
    total = math.fsum(w * p for of_row, w in zip(q, weight, strict=True) for _, p in of_row)
    H = len(q[0][0][0])
    return np.array(
        [
            math.fsum(w * p for of_row, w in zip(q, weight, strict=True) for s, p in of_row if s[h]) / total
            for h in range(H)
        ]
    )


def truncated_mean(pi, H, limit):
    """B(pi) / A(pi): the mean of |s| given |s| <= limit."""
    chances = [math.comb(H, j) * pi**j * (1 - pi) ** (H - j) for j in range(limit + 1)]
    return math.fsum(j * chance for j, chance in enumerate(chances)) / math.fsum(chances)


def corrected(mean_count, H, limit):
    """The pi at which B(pi) / A(pi) is the mean number of ones, by bisection; it rises with pi."""
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if truncated_mean(middle, H, limit) < mean_count else (low, middle)
    return (low + high) / 2


def step(X, q, theta, *, by_least_squares=False, limit=None, per_unit=False, sample_weight=None):
    """All parameters after an M-step with posteriors q; with a limit, pi is corrected for it."""
    W, pi, variance = theta
    if variance is not None:
        new = least_squares(X, q, theta, sample_weight)
        variance = residual_variance(X, q, new, theta, sample_weight)
    elif by_least_squares:
        new = np.maximum(least_squares(X, q, theta, sample_weight), 0.0)
    else:
        new = multiplied(X, q, W, sample_weight)
    on, H = activity(q, sample_weight), len(pi)
    if not per_unit:
        on = np.full(H, np.mean(on) if limit is None else corrected(math.fsum(on), H, limit))
    return new, on, variance


def separable_bound(X, q, old, new):
    """The part of Q that depends on W, with ln a_d(s) replaced by sum_h r_h ln(W_hd / r_h)."""
    total = []
    for _, y, s, p in _all(X, q, None):
        for d in range(len(y)):
            a = rate(s, old, d)
            shares = [(old[h][d] / a, new[h][d]) for h in range(len(s)) if s[h] and old[h][d] > 0]
            total.append(p * y[d] * math.fsum(r * math.log(w / r) for r, w in shares))
            total.append(-p * rate(s, new, d))
    return math.fsum(total)


# -------------------------------------------------------------------------------- number of parameters


def jacobian_rank(H, D, variance=None, per_unit=False, seed=0):
    """Rank of d(ln p(y) at many rows) / d(parameters) at a random point, by central differences."""
    rng = np.random.default_rng(seed)
    n_probabilities = H if per_unit else 1
    point = np.concatenate([rng.uniform(0.5, 4.0, H * D), rng.uniform(0.2, 0.6, n_probabilities)])
    if variance is not None:
        point = np.append(point, variance)
    X = rng.poisson(4.0, size=(4 * len(point), D)).astype(float)

    def log_p(point):
        W, pi = point[: H * D].reshape(H, D), point[H * D : H * D + n_probabilities]
        return log_density(X, (W, np.broadcast_to(pi, H), None if variance is None else point[-1]))

    columns = []
    for i in range(len(point)):
        change = 1e-5 * np.eye(len(point))[i]
        columns.append((log_p(point + change) - log_p(point - change)) / 2e-5)
    values = np.linalg.svd(np.array(columns), compute_uv=False)
    return int(np.sum(values > 1e-6 * values[0]))


def _per_row(X, theta, listed):
    """One list of states for each row."""
    listed = states(len(theta[1])) if listed is None else listed
    return listed if isinstance(listed[0], list) else [listed] * len(X)


def _pairs(X, of_rows):
    return list(zip(np.asarray(X, dtype=float).tolist(), of_rows, strict=True))


def _all(X, q, sample_weight):
    """(weight, y_n, s, q_n(s)) of all rows and states."""
    weight = np.ones(len(X)) if sample_weight is None else sample_weight
    for (y, of_row), w in zip(_pairs(X, q), weight, strict=True):
        for s, p in of_row:
            yield w, y, s, p
