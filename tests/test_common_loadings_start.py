"""Starts of common loadings from moments of rows are those from the rows themselves."""

import numpy as np

from latently.distributions.common_loadings_start import _few_rows, row_moments


def test_moments_tell_what_rows_tell():
    rng = np.random.default_rng(0)
    n, D, K, q = 60, 7, 3, 2
    X, weight, labels = rng.standard_normal((n, D)) + 2.0, rng.random(n), rng.integers(K, size=n)
    means = rng.standard_normal((K, D))  # not those of the parts
    many, few = row_moments(X, weight), _few_rows(X, weight)
    assert row_moments(X, weight) is many
    assert row_moments(X.copy(), weight) is not many
    away = X - means[labels]
    S = away.T @ (away * (weight / weight.sum())[:, None])
    expected = 1.0 / np.diagonal(np.linalg.inv(S + 1e-6 * np.diag(np.diagonal(S))))
    np.testing.assert_allclose(many.unexplained(X, weight, labels, means), expected)
    np.testing.assert_allclose(few.unexplained(X, weight, labels, means), 0.5 * np.diagonal(S))
    unit, last, about = rng.random(D) + 0.5, rng.standard_normal(D), rng.standard_normal(D)
    V = many.leading(unit, last, q)
    np.testing.assert_allclose(few.leading(unit, last, q), V, atol=1e-12)
    rows = (X - weight @ X / weight.sum()) / unit + about
    left = weight @ (rows - rows @ V @ V.T) ** 2 / weight.sum()
    for moments in (many, few):
        np.testing.assert_allclose(moments.left(about, unit, V), left)
