"""Parts that are split and merged again: against brute force, and on partitions that are wrong."""

import numpy as np
import pytest

from latently.mixture import MCFA, MFA, MPPCA, GaussianMixture
from latently.mixture.regrouping import Spread, _merged, regrouped, spread_of

SPREADS = {
    "full": Spread(axes=False),
    "factors": Spread(axes=False, n_equal=2),
    "diagonal": Spread(axes=True),
    "spherical": Spread(axes=True, n_equal=3),
}


def clusters(n_clusters, n, seed=0):
    """Rows (n, 3) around distant points, and their clusters."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_clusters
    return rng.normal(scale=10.0, size=(n_clusters, 3))[y] + rng.normal(size=(n, 3)), y


def log_volume(kind, S):
    if kind == "full":
        return np.log(np.linalg.eigvalsh(S)).sum()
    if kind == "factors":
        small, large = np.split(np.linalg.eigvalsh(S), [2])
        return 2 * np.log(small.mean()) + np.log(large).sum()
    if kind == "diagonal":
        return np.log(np.diag(S)).sum()
    return 3 * np.log(np.diag(S).mean())


def loss(kind, X, w, labels, K):
    """Minus the log-likelihood of rows that belong to their parts, by the formula of the module."""
    centred = X - w @ X / w.sum()
    S = (centred * w[:, None]).T @ centred / w.sum()
    S = S * K ** (-2 / 3) * np.where(np.eye(3) > 0, 1.0, 0.99)
    total = 0.0
    for k in np.unique(labels):
        own, n = X[labels == k], w[labels == k]
        apart = own - n @ own / n.sum()
        scatter = (apart * n[:, None]).T @ apart
        total += n.sum() * (log_volume(kind, (scatter + S) / (n.sum() + 1)) / 2 - np.log(n.sum()))
    return total


@pytest.mark.parametrize("kind", SPREADS)
def test_mergers_lose_least(kind):
    rng = np.random.default_rng(1)
    X, w = rng.normal(size=(20, 3)) * [1, 2, 5], rng.uniform(0.5, 2.0, size=20)
    X[:, 2] = X[:, 0] + 1e-3 * X[:, 2]  # nearly dependent
    labels = np.arange(20) % 9
    ours = _merged(X, w, labels, 3, SPREADS[kind])[labels]
    while len(np.unique(labels)) > 3:
        parts = np.unique(labels)
        pairs = [(i, j) for i in parts for j in parts if i < j]
        merged = [np.where(labels == j, i, labels) for i, j in pairs]
        labels = min(merged, key=lambda one: loss(kind, X, w, one, 3))
    together = ours[:, None] == ours
    np.testing.assert_array_equal(together, labels[:, None] == labels)


@pytest.mark.parametrize("kind", SPREADS)
def test_several_mistakes_are_mended_at_once(kind):
    X, y = clusters(6, 300)
    wrong = np.array([0, 0, 1, 1, 2, 4])[y]  # two parts of two clusters each
    wrong[y == 4] = np.array([2, 3])[np.arange(50) % 2]  # and two halves of one, twice
    wrong[y == 5] = np.array([4, 5])[np.arange(50) % 2]
    rng = np.random.RandomState(0)
    found = [regrouped(X, np.ones(300), wrong, 6, SPREADS[kind], rng) for _ in range(10)]
    same = [np.array_equal(one[:, None] == one, y[:, None] == y) for one in found]
    assert np.mean(same) >= 0.5


def test_parts_keep_the_numbers_of_most_of_their_rows():
    X, y = clusters(3, 300)
    chosen = (y > 0) | (np.arange(300) < 30)  # the first cluster is small
    X, y = X[chosen], y[chosen]
    labels = np.where(y == 2, np.array([1, 2, 1])[np.arange(len(y)) % 3], 0)
    rng = np.random.RandomState(0)
    found = [regrouped(X, np.ones(len(X)), labels, 3, Spread(axes=False), rng) for _ in range(10)]
    right = [one for one in found if np.array_equal(one[:, None] == one, y[:, None] == y)]
    assert len(right) >= 5
    assert all(np.array_equal(one, np.array([2, 0, 1])[y]) for one in right)


def test_a_part_without_rows_gets_some():
    X, y = clusters(4, 200)
    labels = np.array([0, 1, 3, 3])[y]  # none is in part 2
    rng = np.random.RandomState(0)
    found = regrouped(X, np.ones(200), labels, 4, Spread(axes=False), rng)
    assert sorted(np.unique(found)) == [0, 1, 2, 3] and np.array_equal(found[y < 2], y[y < 2])


def test_rows_without_weight_do_not_matter():
    X, y = clusters(3, 90)
    more = np.concatenate([X, X + 100.0])
    weight = np.repeat([1.0, 0.0], 90)
    labels = np.tile(np.array([0, 0, 1])[y], 2)
    draws = [np.random.RandomState(seed) for seed in range(5)]
    found = [regrouped(more, weight, labels, 2, Spread(axes=False), rng)[:90] for rng in draws]
    assert all(len(np.unique(one)) == 2 for one in found)


@pytest.mark.parametrize("X", [np.zeros((5, 2)), np.ones((2, 3)), np.eye(4)])
def test_few_and_equal_rows(X):
    labels = np.arange(len(X)) % 2
    for axes in (True, False):
        found = regrouped(X, np.ones(len(X)), labels, 2, Spread(axes), np.random.RandomState(0))
        assert set(found) <= {0, 1}


def test_spreads_of_families():
    def of(model):
        return spread_of(model._structure().family(np.zeros(5)), 5)

    assert of(GaussianMixture(2)) == Spread(axes=False)
    assert of(GaussianMixture(2, covariance_type="tied")) is None
    assert of(GaussianMixture(2, covariance_type="diag")) == Spread(axes=True)
    assert of(GaussianMixture(2, covariance_type="spherical")) == Spread(axes=True, n_equal=5)
    assert of(MFA(2, 2)) == of(MFA(2, 2, tails="t")) == of(MCFA(2, 2)) == Spread(axes=False)
    assert of(MPPCA(2, 2)) == Spread(axes=False, n_equal=3)
