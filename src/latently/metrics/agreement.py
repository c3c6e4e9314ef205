"""Agreement of clusters with classes, of reconstructions with rows and of matrices, and sparsity of vectors.

    n_ck = weight of the rows of class c in cluster k,    n = their sum

    accuracy = max over one-to-one assignments a of  sum_k n_{a(k) k} / n
    purity   = sum_k max_c n_ck / n

Cluster labels are arbitrary, so no measure changes when classes or clusters are renamed.

    signal-to-error ratio = 20 log10 of the mean over rows of norm(x) / norm(x_hat - x)
    mean sparsity index = mean over vectors of the share of entries with an absolute value below a threshold
    von Neumann divergence = tr(A log A - A log B - A + B), with the logarithm of matrices
"""

from __future__ import annotations

import math
from numbers import Real

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.utils import check_array, check_consistent_length

from latently.backend.namespace import is_native, to_numpy


def clustering_accuracy(labels_true, labels_pred, *, sample_weight=None):
    """Fraction of rows whose cluster is matched to their class, under the best one-to-one matching.

    There may be more or fewer clusters than classes; rows of unmatched clusters or classes count as errors.

    Parameters
    ----------
    labels_true : array-like of shape (n_samples,)
        Classes: integers, strings or booleans.
    labels_pred : array-like of shape (n_samples,)
        Cluster labels; they need not be the names of the classes.
    sample_weight : array-like of shape (n_samples,), optional

    Returns
    -------
    float
        In (0, 1]; 1 if clusters and classes are identical up to renaming.

    Examples
    --------
    >>> from latently.metrics import clustering_accuracy
    >>> clustering_accuracy(["a", "a", "b", "b"], [1, 1, 0, 1])
    0.75
    """
    table = _weights_by_class_and_cluster(labels_true, labels_pred, sample_weight)
    return _share(table[linear_sum_assignment(table, maximize=True)], table)


def error_rate(labels_true, labels_pred, *, sample_weight=None):
    """Fraction of errors under the best one-to-one matching: 1 - `clustering_accuracy`.

    Parameters
    ----------
    labels_true, labels_pred, sample_weight
        As for `clustering_accuracy`.

    Returns
    -------
    float
        In [0, 1).

    Examples
    --------
    >>> from latently.metrics import error_rate
    >>> error_rate(["a", "a", "b", "b"], [1, 1, 0, 1])
    0.25
    """
    return 1.0 - clustering_accuracy(labels_true, labels_pred, sample_weight=sample_weight)


def purity(labels_true, labels_pred, *, sample_weight=None):
    """Fraction of rows that belong to the most frequent class of their cluster.

    Several clusters may match the same class, so purity is never below `clustering_accuracy`, and one
    cluster per row has purity 1: compare it only for equal numbers of clusters.

    Parameters
    ----------
    labels_true, labels_pred, sample_weight
        As for `clustering_accuracy`.

    Returns
    -------
    float
        In (0, 1].

    Examples
    --------
    >>> from latently.metrics import clustering_accuracy, purity
    >>> classes, clusters = ["a", "a", "b", "b"], [0, 1, 2, 2]
    >>> purity(classes, clusters), clustering_accuracy(classes, clusters)
    (1.0, 0.75)
    """
    table = _weights_by_class_and_cluster(labels_true, labels_pred, sample_weight)
    return _share(table.max(axis=0), table)


def signal_to_error_ratio(X, X_hat):
    """Norm of rows relative to the norm of their reconstruction errors, in decibels.

    It is 20 log10 of the mean over rows of norm(x) / norm(x_hat - x): a mean of ratios, which a single good
    reconstruction can dominate. A row reconstructed without error makes it infinite; rows of zeros have the
    ratio 0, whatever their reconstruction.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The rows.
    X_hat : array-like of shape (n_samples, n_features)
        Their reconstructions.

    Returns
    -------
    float
        Higher is better; inf if a nonzero row is reconstructed without error, -inf if all rows are zero.

    Examples
    --------
    >>> from latently.metrics import signal_to_error_ratio
    >>> signal_to_error_ratio([[3.0, 4.0], [0.0, 5.0]], [[3.0, 4.5], [0.5, 5.0]])
    20.0
    """
    X = check_array(X, dtype=np.float64, input_name="X")
    X_hat = check_array(X_hat, dtype=np.float64, input_name="X_hat")
    if X.shape != X_hat.shape:
        raise ValueError(f"X_hat must have the shape of X, {X.shape}, not {X_hat.shape}")
    # scale each row by its largest entry, so that no square overflows or underflows
    size = np.max(np.abs(X), axis=1)
    filled = size > 0
    if not filled.any():
        return -math.inf
    rows, scale = X[filled], size[filled, None]
    signal = np.linalg.norm(rows / scale, axis=1)
    with np.errstate(over="ignore", divide="ignore"):
        error = np.linalg.norm(X_hat[filled] / scale - rows / scale, axis=1)
        return float(20 * np.log10(np.sum(signal / error) / len(X)))


def mean_sparsity_index(A, threshold=0.05):
    """Share of the entries of a vector that are small, averaged over vectors.

    Document 000, section 5.2.1. Vectors are not normalised, so small vectors count as sparse.

    Parameters
    ----------
    A : array-like of shape (n_vectors, n_entries)
        Rows are vectors, such as the sources of rows or components.
    threshold : float, default=0.05
        An entry is small if its absolute value is below this.

    Returns
    -------
    float
        From 0 to 1.

    Examples
    --------
    >>> from latently.metrics import mean_sparsity_index
    >>> mean_sparsity_index([[0.0, 1.0, -0.01], [2.0, 3.0, 0.04]])
    0.5
    """
    A = check_array(to_numpy(A) if is_native(A) else A, dtype=np.float64, input_name="A")
    if isinstance(threshold, bool) or not isinstance(threshold, Real) or not float(threshold) >= 0:
        raise ValueError(f"threshold must be a number of at least 0, not {threshold!r}")
    return float(np.mean(np.mean(np.abs(A) < threshold, axis=1)))


def von_neumann_divergence(A, B, *, embedding=None, eps=1e-3):
    """The von Neumann divergence of two matrices, tr(A log A - A log B - A + B).

    The logarithm is that of matrices, so A and B have to be symmetric and positive semi-definite. Images and
    other rectangular matrices P are made so by an embedding, on which the value depends; say which you used.
    The divergence is not symmetric: give the reconstruction first and the truth second.

    Parameters
    ----------
    A, B : array-like of equal shapes
        Two matrices: symmetric and positive semi-definite, unless there is an embedding.
    embedding : {None, "gram", "dilation", "elementwise"}, default=None
        "gram": P P' + eps I. "dilation": the absolute value of [[0, P], [P', 0]], plus eps I, which has the
        singular values of P. "elementwise": the diagonal matrix of all entries of P + eps, which must not be
        negative; this is the generalised Kullback-Leibler divergence.
    eps : float, default=1e-3
        Added to the diagonal by embeddings, so that the divergence is finite.

    Returns
    -------
    float
        0 if A and B are equal, else positive; inf if A is not zero where B is.

    References
    ----------
    X. Yang, *Learning density models via structured latent variables*, section 4.5.3, where the embedding is
    not stated.

    Examples
    --------
    >>> import numpy as np
    >>> from latently.metrics import von_neumann_divergence
    >>> truth = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    >>> [round(von_neumann_divergence(0.9 * truth, truth, embedding=name), 4)
    ...  for name in ("gram", "dilation", "elementwise")]
    [0.0579, 0.0231, 0.0155]
    """
    if embedding not in (None, "gram", "dilation", "elementwise"):
        raise ValueError(f'embedding must be None, "gram", "dilation" or "elementwise", not {embedding!r}')
    if isinstance(eps, bool) or not isinstance(eps, Real) or not 0 <= float(eps) < math.inf:
        raise ValueError(f"eps must be a finite number of at least 0, not {eps!r}")
    A = check_array(to_numpy(A) if is_native(A) else A, dtype=np.float64, input_name="A")
    B = check_array(to_numpy(B) if is_native(B) else B, dtype=np.float64, input_name="B")
    if A.shape != B.shape:
        raise ValueError(f"B must have the shape of A, {A.shape}, not {B.shape}")
    if embedding == "elementwise":
        return _generalised_divergence(_shifted("A", A, eps), _shifted("B", B, eps))
    if embedding == "dilation":
        # the absolute value of the dilation has two blocks, (P P')^(1/2) and (P' P)^(1/2)
        (U, s, V), (W, t, Z) = _singular(A), _singular(B)
        return sum(
            _spectral_divergence(_padded(s, len(X)) + eps, X, _padded(t, len(Y)) + eps, Y)
            for X, Y in ((U, W), (V, Z))
        )
    if embedding == "gram":
        (U, s, _), (W, t, _) = _singular(A), _singular(B)
        return _spectral_divergence(_padded(s, len(U)) ** 2 + eps, U, _padded(t, len(W)) ** 2 + eps, W)
    return _spectral_divergence(*_spectrum("A", A), *_spectrum("B", B))


def _shifted(name, P, eps):
    shifted = P + eps
    if shifted.min() < 0:
        raise ValueError(
            f'{name} must not be negative with embedding="elementwise", but has an entry {P.min():.4g}; '
            'clip it, or use embedding="dilation"'
        )
    return shifted


def _generalised_divergence(P, Q):
    if np.any((P > 0) & (Q == 0)):
        return math.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(P > 0, P * np.log(P / np.where(Q > 0, Q, 1.0)), 0.0)
    return max(float(np.sum(logs - P + Q)), 0.0)


def _singular(P):
    U, s, Vt = np.linalg.svd(P)
    return U, s, Vt.T


def _padded(values, length):
    return np.append(values, np.zeros(length - len(values)))


def _spectrum(name, S):
    """Eigenvalues and eigenvectors (columns) of a positive semi-definite matrix."""
    size = np.abs(S).max()
    if S.shape[0] != S.shape[1] or np.abs(S - S.T).max() > 1e-8 * size:
        raise ValueError(
            f'{name} must be symmetric; for other matrices, such as images, set embedding="dilation"'
        )
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    negligible = 1e-13 * len(S) * max(abs(values[-1]), abs(values[0]))
    if values[0] < -1e5 * negligible:
        raise ValueError(
            f"{name} must be positive semi-definite, but has the eigenvalue {values[0]:.4g}; for other "
            'matrices set embedding="dilation"'
        )
    return np.where(values > negligible, values, 0.0), vectors


def _spectral_divergence(e, U, g, V):
    """tr(A log A - A log B - A + B) by the eigenvalues e, g and eigenvectors U, V of A and B."""
    shares = e @ (U.T @ V) ** 2  # v_j' A v_j
    if np.any(shares[g == 0] > 1e-12 * max(e.sum(), g.sum())):
        return math.inf
    positive, filled = e[e > 0], g > 0
    entropy = positive @ np.log(positive)
    return max(float(entropy - shares[filled] @ np.log(g[filled]) - e.sum() + g.sum()), 0.0)


def _share(part, table):
    # exact sums, so that perfect agreement is exactly 1
    return math.fsum(part) / math.fsum(table.ravel())


def _weights_by_class_and_cluster(labels_true, labels_pred, sample_weight):
    """(n_classes, n_clusters) total weight of the rows of each class in each cluster."""
    n_classes, classes = _codes(labels_true, "labels_true")
    n_clusters, clusters = _codes(labels_pred, "labels_pred")
    check_consistent_length(classes, clusters)
    weights = _checked_weights(sample_weight, classes)
    table = np.bincount(classes * n_clusters + clusters, weights, minlength=n_classes * n_clusters)
    return table.reshape(n_classes, n_clusters)


def _codes(labels, name):
    """Number of distinct labels, and the integer code of each row's label, from 0."""
    try:
        labels = check_array(labels, ensure_2d=False, dtype=None, input_name=name)
    except ValueError as error:
        raise ValueError(
            f"{name} must have one label per row, at least one row and no missing labels: {error}"
        ) from None
    if labels.ndim != 1:
        raise ValueError(f"{name} must have shape (n_samples,), not {labels.shape}")
    if labels.dtype == object and any(label is None for label in labels):
        raise ValueError(f"{name} must have one label per row and no missing labels: it contains None")
    try:
        different, codes = np.unique(labels, return_inverse=True)
    except TypeError:
        raise ValueError(
            f"{name} must have labels of one type, such as integers or strings, not a mixture"
        ) from None
    return len(different), codes


def _checked_weights(sample_weight, rows):
    if sample_weight is None:
        return None
    weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weights.shape != rows.shape:
        raise ValueError(
            f"sample_weight must have one entry per row, shape {rows.shape}, not {weights.shape}"
        )
    if (weights < 0).any():
        raise ValueError("sample_weight must not be negative")
    if not weights.any():
        raise ValueError("sample_weight is zero for every row; at least one weight must be positive")
    with np.errstate(over="ignore"):
        if not np.isfinite(weights.sum()):
            raise ValueError("the sum of sample_weight overflows float64; rescale the weights")
    return weights
