"""Slow reference implementation of mixtures over columns of several kinds: loops over rows and columns.

Parameters are plain: weights (K,), and for every column a dict with its kind and one entry per component:
`number` mean, variance; `category` probabilities (L,); `ordinal` cuts (L - 1,), location, scale; `count` rate
and dispersion. Rows are lists with None where a cell is empty. Numbers are independent here (no factors).
"""

import numpy as np
from scipy import stats


def log_cell(value, column, k):
    """ln p of one cell given component k; an empty one has none."""
    if value is None:
        return 0.0
    kind = column["kind"]
    if kind == "number":
        return stats.norm(column["mean"][k], np.sqrt(column["variance"][k])).logpdf(value)
    if kind == "category":
        return np.log(column["probabilities"][k][int(value)])
    if kind == "ordinal":
        ends = [-np.inf, *column["cuts"], np.inf]
        low, high = (
            (end - column["location"][k]) / column["scale"][k] for end in ends[int(value) : int(value) + 2]
        )
        return np.log(stats.norm.cdf(high) - stats.norm.cdf(low))
    r, mu = 1.0 / column["dispersion"][k], column["rate"][k]
    return stats.nbinom(r, r / (r + mu)).logpmf(value)


def log_joint(rows, weights, columns):
    """(n, K)"""
    return np.array(
        [
            [
                np.log(weight)
                + sum(log_cell(cell, column, k) for cell, column in zip(row, columns, strict=True))
                for k, weight in enumerate(weights)
            ]
            for row in rows
        ]
    )


def log_density(rows, weights, columns):
    return np.logaddexp.reduce(log_joint(rows, weights, columns), axis=1)


def q_function(rows, resp, weights, columns):
    """The sum of r (ln pi_k + ln p(x | k)), which an EM step maximises."""
    return float(np.sum(resp * log_joint(rows, weights, columns)))
