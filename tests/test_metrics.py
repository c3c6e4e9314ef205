"""Agreement of clusters with classes (against all assignments), of images and of matrices."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import logm
from sklearn import metrics as sklearn_metrics

from latently import metrics
from latently.metrics import (
    clustering_accuracy,
    error_rate,
    mean_sparsity_index,
    purity,
    signal_to_error_ratio,
    von_neumann_divergence,
)

MEASURES = [clustering_accuracy, error_rate, purity]

rows = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=25
).filter(lambda rows: any(weight for *_, weight in rows))


def unpacked(rows):
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def best_by_trying_all(classes, clusters, weights):
    """Every way to give each cluster a class of its own; clusters beyond the classes get none."""
    kinds, groups = list(np.unique(classes)), np.unique(clusters)
    kinds += [None] * len(groups)
    matched = [
        sum(
            weights[(clusters == group) & (classes == kind)].sum()
            for group, kind in zip(groups, chosen, strict=True)
        )
        for chosen in set(permutations(kinds, len(groups)))
    ]
    return max(matched) / weights.sum()


@pytest.mark.parametrize(("n_classes", "n_clusters"), [(1, 1), (3, 3), (4, 2), (2, 4), (1, 3), (3, 1)])
def test_accuracy_is_that_of_the_best_of_all_assignments(n_classes, n_clusters):
    rng = np.random.default_rng(10 * n_classes + n_clusters)
    for n_rows in (1, 5, 12, 40):
        classes, clusters = rng.integers(n_classes, size=n_rows), rng.integers(n_clusters, size=n_rows)
        weights = rng.random(n_rows)
        expected = best_by_trying_all(classes, clusters, np.ones(n_rows))
        assert clustering_accuracy(classes, clusters) == pytest.approx(expected, rel=1e-12)
        weighted = best_by_trying_all(classes, clusters, weights)
        assert clustering_accuracy(classes, clusters, sample_weight=weights) == pytest.approx(
            weighted, rel=1e-12
        )


@given(rows)
def test_purity_counts_the_majority_of_every_cluster(rows):
    classes, clusters, weights = unpacked(rows)
    majority = sum(
        max(weights[(clusters == group) & (classes == kind)].sum() for kind in np.unique(classes))
        for group in np.unique(clusters)
    )
    assert purity(classes, clusters, sample_weight=weights) == pytest.approx(majority / weights.sum())


@given(rows)
def test_order_between_the_measures(rows):
    classes, clusters, weights = unpacked(rows)
    accuracy = clustering_accuracy(classes, clusters, sample_weight=weights)
    assert 0 < accuracy <= purity(classes, clusters, sample_weight=weights) <= 1
    assert error_rate(classes, clusters, sample_weight=weights) == 1 - accuracy
    # one-to-one assignments do not mind which side is called the clusters
    assert accuracy == clustering_accuracy(clusters, classes, sample_weight=weights)


@pytest.mark.parametrize("measure", MEASURES)
@given(rows)
def test_a_weight_is_a_number_of_copies(measure, rows):
    classes, clusters, weights = unpacked(rows)
    copied = measure(np.repeat(classes, weights), np.repeat(clusters, weights))
    assert measure(classes, clusters, sample_weight=weights) == copied


@pytest.mark.parametrize("measure", MEASURES)
@given(rows, st.permutations(list("uvwxy")), st.permutations([True, 7, -3, 0.5, 12, 99]))
def test_names_mean_nothing(measure, rows, class_names, cluster_names):
    classes, clusters, _ = unpacked(rows)
    renamed = measure(np.array(class_names)[classes], np.array(cluster_names, dtype=float)[clusters])
    assert measure(classes, clusters) == renamed


@pytest.mark.parametrize("measure", [clustering_accuracy, purity])
def test_equal_up_to_names_is_exactly_one(measure):
    rng = np.random.default_rng(0)
    classes = rng.integers(7, size=1000)
    weights = rng.lognormal(sigma=8, size=1000)  # sums of these depend on their order
    assert measure(classes, np.array(list("gfedcba"))[classes], sample_weight=weights) == 1.0


def test_labels_of_any_kind():
    pandas = pytest.importorskip("pandas", reason="pandas is optional")
    clusters = [1, 1, 0, 1]
    for classes in (
        ["a", "a", "b", "b"],
        [True, True, False, False],
        (3, 3, 8, 8),
        np.array(["x", "x", "y", "y"], dtype=object),
        pandas.Series(["p", "p", "q", "q"], index=[5, 3, 1, 0]),
        pandas.Series(["p", "p", "q", "q"], dtype="category"),
    ):
        assert clustering_accuracy(classes, clusters) == 0.75
        assert clustering_accuracy(clusters, classes) == 0.75


def test_rows_without_weight_change_nothing():
    classes, clusters = [0, 0, 1, 1, 2], [0, 0, 1, 1, 5]
    assert clustering_accuracy(classes + [9], clusters + [0], sample_weight=[1] * 5 + [0]) == 1.0


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0, 1, 1]), "inconsistent numbers of samples"),
        (([], []), "labels_true .*at least one row"),
        (([[0], [1]], [0, 1]), r"labels_true must have shape \(n_samples,\), not \(2, 1\)"),
        (([0, 1], [[0, 1]]), r"labels_pred must have shape"),
        (([0, np.nan], [0, 1]), "labels_true .*no missing labels: .*NaN"),
        (([0, 1], np.array(["a", np.nan], dtype=object)), "labels_pred .*no missing labels: .*NaN"),
        (([0, 1], np.array(["a", None], dtype=object)), "labels_pred .*no missing labels: .*None"),
        ((np.array([0, "a"], dtype=object), [0, 1]), "labels_true must have labels of one type"),
    ],
)
def test_bad_labels_are_named(measure, arguments, message):
    with pytest.raises(ValueError, match=message):
        measure(*arguments)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2, 3], r"sample_weight must have one entry per row, shape \(2,\), not \(3,\)"),
        ([1, -1], "sample_weight must not be negative"),
        ([0, 0], "sample_weight is zero for every row"),
        ([1, np.nan], "sample_weight contains NaN"),
        ([1e308, 1e308], "the sum of sample_weight overflows float64"),
    ],
)
def test_bad_weights_are_named(weights, message):
    with pytest.raises(ValueError, match=message):
        purity([0, 0], [1, 1], sample_weight=weights)


def test_other_measures_are_those_of_scikit_learn():
    assert metrics.adjusted_rand_score is sklearn_metrics.adjusted_rand_score
    assert metrics.normalized_mutual_info_score is sklearn_metrics.normalized_mutual_info_score


# -- reconstructions ----------------------------------------------------------------------------------


def test_signal_to_error_is_the_mean_of_the_ratios_in_decibels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    X_hat = X + 0.1 * rng.normal(size=X.shape)
    ratios = [np.sqrt(sum(x**2)) / np.sqrt(sum((x_hat - x) ** 2)) for x, x_hat in zip(X, X_hat, strict=True)]
    expected = 20 * np.log10(sum(ratios) / 20)
    assert signal_to_error_ratio(X, X_hat) == pytest.approx(expected, rel=1e-12)
    assert signal_to_error_ratio(X.tolist(), X_hat.tolist()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1.0, 1e170, 1e300])
def test_signal_to_error_does_not_hang_on_units(unit):
    X, X_hat = np.array([[3.0, 4.0], [0.0, 5.0]]), np.array([[3.0, 4.5], [0.5, 5.0]])
    assert signal_to_error_ratio(unit * X, unit * X_hat) == pytest.approx(20.0, rel=1e-9)


def test_ten_times_the_error_is_twenty_decibels_less():
    rng = np.random.default_rng(1)
    X, error = rng.normal(size=(2, 30, 4))
    near, far = (signal_to_error_ratio(X, X + size * error) for size in (0.1, 1.0))
    assert near - far == pytest.approx(20.0, rel=1e-9)


def test_a_reconstruction_without_error_is_infinitely_good():
    X = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert signal_to_error_ratio(X, X) == np.inf
    assert signal_to_error_ratio(X, [[1.0, 2.0], [0.0, 0.0]]) == np.inf  # one row is enough


def test_rows_of_zeros_have_no_signal():
    X = np.array([[0.0, 0.0], [3.0, 4.0]])
    halved = 20 * np.log10(5.0 / 0.5 / 2)
    for of_zeros in ([0.0, 0.0], [1.0, 0.0]):
        assert signal_to_error_ratio(X, [of_zeros, [3.0, 4.5]]) == pytest.approx(halved)
    assert signal_to_error_ratio(0 * X, X) == signal_to_error_ratio(0 * X, 0 * X) == -np.inf


@pytest.mark.parametrize(
    ("X", "X_hat", "message"),
    [
        ([[1.0, 2.0]], [[1.0]], r"X_hat must have the shape of X, \(1, 2\), not \(1, 1\)"),
        ([[1.0], [2.0]], [[1.0]], r"X_hat must have the shape of X"),
        ([1.0, 2.0], [1.0, 2.0], "2D"),
        ([[1.0, np.nan]], [[1.0, 2.0]], "X contains NaN"),
        ([[1.0, 2.0]], [[1.0, np.inf]], "X_hat contains infinity"),
        (np.empty((0, 2)), np.empty((0, 2)), "minimum of 1"),
    ],
)
def test_bad_reconstructions_are_named(X, X_hat, message):
    with pytest.raises(ValueError, match=message):
        signal_to_error_ratio(X, X_hat)


def test_the_sparsity_index_counts_small_entries_of_each_vector():
    A = [[0.0, 1.0, -0.01, 0.04], [2.0, 3.0, 0.06, -0.05]]
    assert mean_sparsity_index(A) == pytest.approx((3 / 4 + 0) / 2)
    assert mean_sparsity_index(A, threshold=0.1) == pytest.approx((3 / 4 + 2 / 4) / 2)
    with pytest.raises(ValueError, match="threshold must be a number of at least 0"):
        mean_sparsity_index(A, threshold=-1.0)


def by_matrix_logarithms(A, B):
    return np.trace(A @ logm(A) - A @ logm(B) - A + B)


def embedded(P, embedding, eps):
    """The embedding of an image as one large matrix, formed literally."""
    if embedding == "elementwise":
        return np.diag(P.ravel() + eps)
    if embedding == "gram":
        return P @ P.T + eps * np.eye(len(P))
    whole = np.block([[np.zeros((len(P),) * 2), P], [P.T, np.zeros((P.shape[1],) * 2)]])
    values, vectors = np.linalg.eigh(whole)
    return (vectors * np.abs(values)) @ vectors.T + eps * np.eye(len(whole))


@pytest.mark.parametrize("embedding", ["gram", "dilation", "elementwise"])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 4)])
def test_the_divergence_of_images_is_that_of_their_embeddings(embedding, shape):
    rng = np.random.default_rng(0)
    P, Q = rng.random(shape), rng.random(shape)
    P[0, 0] = 0.0
    A, B = embedded(P, embedding, 0.01), embedded(Q, embedding, 0.01)
    found = von_neumann_divergence(P, Q, embedding=embedding, eps=0.01)
    assert found == pytest.approx(by_matrix_logarithms(A, B), rel=1e-9)
    assert found == pytest.approx(von_neumann_divergence(A, B), rel=1e-9)
    assert found != pytest.approx(von_neumann_divergence(Q, P, embedding=embedding, eps=0.01), rel=1e-3)
    assert von_neumann_divergence(P, P, embedding=embedding) == pytest.approx(0.0, abs=1e-12)


def test_the_divergence_is_finite_only_if_the_first_range_is_in_the_second():
    u, v = np.array([3.0, 4.0]) / 5, np.array([-4.0, 3.0]) / 5
    line, plane = 2 * np.outer(u, u), 2 * np.outer(u, u) + 0.5 * np.outer(v, v)
    assert von_neumann_divergence(plane, line) == np.inf
    assert von_neumann_divergence(line, plane) == pytest.approx(0.5)
    assert von_neumann_divergence(0 * line, plane) == pytest.approx(2.5)
    assert von_neumann_divergence([[0.0, 1.0]], [[1.0, 0.0]], embedding="elementwise", eps=0) == np.inf


def test_a_brighter_shape_and_scattered_pixels():
    """The numbers of the errata for Figure 4.9 of document 003, whose images are not given."""
    image = np.zeros((6, 6))
    plus = np.array([[0, 1], [1, 0], [1, 1], [1, 2], [2, 1]]).T
    image[:3, 3:] = image[3:, 3:] = image[3:, :3] = 0.5 * np.ones((3, 3))
    image[1, 4] = image[3, 1] = image[3, 2] = image[4, 2] = 0.0
    image[4, 3] = image[4, 5] = image[5, 3] = image[5, 5] = 0.0
    image[tuple(plus)] = 0.5
    brighter = image.copy()
    brighter[tuple(plus)] += 0.4
    assert np.mean((brighter - image) ** 2) == pytest.approx(0.0222, abs=5e-5)
    found = [
        von_neumann_divergence(brighter, image, embedding=name)
        for name in ("elementwise", "dilation", "gram")
    ]
    assert found == pytest.approx([0.644, 0.547, 1.444], abs=5e-4)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([[1.0, 2.0]], [[1.0, 2.0]]), {}, "A must be symmetric"),
        (([[1.0, 0.5], [0.0, 1.0]], np.eye(2)), {}, "A must be symmetric"),
        ((np.eye(2), [[1.0, 2.0], [2.0, 1.0]]), {}, "B must be positive semi-definite"),
        ((np.eye(2), np.eye(3)), {}, "B must have the shape of A"),
        ((np.eye(2), np.eye(2)), {"embedding": "log"}, "embedding must be None"),
        ((np.eye(2), np.eye(2)), {"embedding": "gram", "eps": -1}, "eps must be a finite number"),
        ((-np.eye(2), np.eye(2)), {"embedding": "elementwise"}, "A must not be negative"),
        (([[np.nan]], [[1.0]]), {}, "A contains NaN"),
    ],
)
def test_bad_matrices_are_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        von_neumann_divergence(*arguments, **options)
