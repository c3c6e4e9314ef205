"""Agreement of many clusterings of the same rows with each other.

    C_ij = share of the clusterings in which rows i and j are in one cluster

Clusterings that agree have only zeros and ones in C. Average linkage of 1 - C gives a tree; its cophenetic
distances, the heights at which rows meet, then equal 1 - C, and their correlation with it is one.

Monti et al. (2003), Machine Learning 52; Brunet et al. (2004), PNAS 101.
"""

from __future__ import annotations

import numpy as np
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.spatial.distance import squareform
from sklearn.utils import check_array


def consensus_matrix(labelings):
    """For each pair of rows, the share of clusterings that have them in one cluster.

    Parameters
    ----------
    labelings : array-like of shape (n_clusterings, n_samples)
        Cluster labels of the rows; they need not be the same in different clusterings.

    Returns
    -------
    ndarray of shape (n_samples, n_samples)

    Examples
    --------
    >>> from latently.metrics import consensus_matrix
    >>> consensus_matrix([[0, 0, 1], [1, 1, 0], [0, 1, 1]]).round(2).tolist()
    [[1.0, 0.67, 0.0], [0.67, 1.0, 0.33], [0.0, 0.33, 1.0]]
    """
    if np.ndim(labelings) != 2:
        raise ValueError(f"labelings must have shape (n_clusterings, n_samples), not {np.shape(labelings)}")
    labelings = check_array(labelings, dtype=None, input_name="labelings")
    together = np.zeros((labelings.shape[1],) * 2)
    for labels in labelings:
        together += labels[:, None] == labels[None, :]
    return together / len(labelings)


def cophenetic_correlation(consensus):
    """How well a consensus matrix is a tree of clusters: 1 if all clusterings agree.

    Parameters
    ----------
    consensus : array-like of shape (n_samples, n_samples)
        As from `consensus_matrix`.

    Returns
    -------
    float
        The correlation of the distances 1 - `consensus` with those in the tree of their average linkage; 1 if
        all distances are equal.

    Examples
    --------
    >>> from latently.metrics import consensus_matrix, cophenetic_correlation
    >>> cophenetic_correlation(consensus_matrix([[0, 0, 1, 1], [1, 1, 0, 0]]))
    1.0
    >>> bool(cophenetic_correlation(consensus_matrix([[0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 0, 1]])) < 0.9)
    True
    """
    distances = consensus_distances(consensus)
    if np.ptp(distances) == 0:
        return 1.0
    in_tree = cophenet(consensus_tree(consensus))
    return float(np.clip(np.corrcoef(distances, in_tree)[0, 1], -1.0, 1.0))


def consensus_tree(consensus):
    """Average linkage of the distances 1 - `consensus`, in the form of `scipy.cluster.hierarchy`."""
    return linkage(consensus_distances(consensus), "average")


def consensus_distances(consensus):
    """The distances 1 - `consensus` of all pairs of rows, checked and condensed."""
    C = check_array(consensus, dtype=np.float64, input_name="consensus")
    symmetric = C.shape[0] == C.shape[1] and np.array_equal(C, C.T)
    if not symmetric or len(C) < 2 or C.min() < 0 or C.max() > 1 or np.any(np.diagonal(C) != 1):
        raise ValueError(
            "consensus must be a symmetric matrix of shares from 0 to 1 with ones on its diagonal, for two "
            "or more rows, as from consensus_matrix"
        )
    return squareform(1.0 - C, checks=False)
