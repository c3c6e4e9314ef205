"""Consensus of restarts: the matrix and its tree against brute force, and the number of components."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot as plt

from latently.factorization import NMF, FastNMTF
from latently.metrics import consensus_matrix, cophenetic_correlation
from latently.mixture import GaussianMixture
from latently.plots import ConsensusDisplay
from latently.selection import consensus


def brute_force(C):
    """The correlation of 1 - C with the heights at which average linkage, pair by pair, joins rows."""
    D, groups = 1.0 - C, [[i] for i in range(len(C))]
    heights = np.zeros_like(D)
    while len(groups) > 1:
        pairs = [(a, b) for a in range(len(groups)) for b in range(a)]
        gaps = [np.mean([D[i, j] for i in groups[a] for j in groups[b]]) for a, b in pairs]
        a, b = pairs[int(np.argmin(gaps))]
        for i in groups[a]:
            for j in groups[b]:
                heights[i, j] = heights[j, i] = min(gaps)
        groups[b] = groups[b] + groups.pop(a)
    above = np.triu_indices(len(C), 1)
    return np.corrcoef(D[above], heights[above])[0, 1]


@pytest.mark.parametrize("seed", range(3))
def test_matrix_and_correlation_are_those_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    labelings = [rng.permutation(3)[(np.arange(9) // 3 + (rng.random(9) < 0.3)) % 3] for _ in range(41)]
    C = consensus_matrix(labelings)
    for i in range(9):
        for j in range(9):
            assert C[i, j] == pytest.approx(np.mean([labels[i] == labels[j] for labels in labelings]))
    assert cophenetic_correlation(C) == pytest.approx(brute_force(C), rel=1e-9)


def test_clusterings_that_agree_have_correlation_one():
    labels = np.array([0, 0, 1, 1, 2])
    assert cophenetic_correlation(consensus_matrix([labels, 2 - labels, (labels + 1) % 3])) == 1.0
    assert cophenetic_correlation(consensus_matrix([["a", "a", "a"], ["b", "b", "b"]])) == 1.0
    with pytest.raises(ValueError, match="labelings"):
        consensus_matrix([0, 1, 1])
    for bad in (np.ones((2, 3)), np.zeros((2, 2)), 2 * np.eye(2), np.ones((1, 1)), [[1.0, 0.2], [0.3, 1.0]]):
        with pytest.raises(ValueError, match="consensus must be a symmetric matrix of shares"):
            cophenetic_correlation(bad)


def groups(seed, K=3):
    rng = np.random.default_rng(seed)
    means = np.repeat(rng.gamma(1.0, size=(K, 10)) + 0.1, 12, axis=0)
    return rng.poisson(20 * means).astype(float)


@pytest.fixture(scope="module")
def found():
    return consensus(NMF(loss="kl", tol=1e-3), groups(0), [2, 3, 4], n_runs=6, random_state=0)


def test_the_number_of_groups_is_found(found):
    assert found.n_components_ == 3 == found.best_.n_components
    table = found.table_.set_index("n_components")
    assert table["cophenetic_correlation"].idxmax() == 3 and table["cophenetic_correlation"][3] > 0.999
    assert table["dispersion"][3] > 0.99 and table["n_clusters"].to_list() == [2, 3, 3]
    assert found.best_.score(groups(0)) == table["score"][3]
    np.testing.assert_array_equal(np.unique(found.matrices_[3]), [0.0, 1.0])
    again = consensus(NMF(loss="kl", tol=1e-3), groups(0), [2, 3, 4], n_runs=6, n_jobs=2, random_state=0)
    assert again.table_.equals(found.table_)
    assert "agree best with 3" in repr(found)


def test_the_picture_sorts_rows_of_one_group_together(found):
    C = found.matrices_[3]
    order = np.random.default_rng(0).permutation(len(C))
    display = ConsensusDisplay(C[np.ix_(order, order)]).plot()
    assert np.all(np.diff(np.flatnonzero(np.diff(order[display.order] // 12))) == 12)  # blocks of 12 rows
    assert display.axes_[0].images[0].get_array().shape == C.shape
    assert "1.000" in display.axes_[0].get_title()
    assert found.plot(n_components=2).image.shape == C.shape
    with pytest.raises(ValueError, match=r"n_components must be one of \[2, 3, 4\], not 7"):
        found.plot(n_components=7)
    plt.close("all")


def test_mixtures_have_a_consensus_too():
    rows = np.random.default_rng(0).normal(size=(40, 2)) + 8.0 * (np.arange(40) % 2)[:, None]
    ours = consensus(GaussianMixture(tol=1e-3), rows, [2], n_runs=3, random_state=0)
    np.testing.assert_array_equal(ours.matrices_[2], consensus_matrix([np.arange(40) % 2]))


def test_bad_input():
    X = groups(0)
    for sizes, message in (([1, 2], "at least 2"), ([2, 2], "different numbers"), ([], "different numbers")):
        with pytest.raises(ValueError, match=message):
            consensus(NMF(), X, sizes)
    with pytest.raises(ValueError, match="n_runs must be an integer of at least 2"):
        consensus(NMF(), X, [2], n_runs=1)
    for model in (FastNMTF(2, 2), NMF, None):
        with pytest.raises(TypeError, match="consensus needs an unfitted factorisation or mixture"):
            consensus(model, X, [2])
    with pytest.raises(ValueError, match="give a sample of at most 5000"):
        consensus(NMF(), np.ones((5001, 2)), [2])
