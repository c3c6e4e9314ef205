"""Agreement of clusterings, errors of reconstructions, sparsity, and how well rows are rejected."""

from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from latently.metrics.agreement import (
    clustering_accuracy,
    error_rate,
    mean_sparsity_index,
    purity,
    signal_to_error_ratio,
    von_neumann_divergence,
)
from latently.metrics.consensus import consensus_matrix, cophenetic_correlation
from latently.metrics.rejection import (
    RejectionReport,
    conformal_interval,
    conformal_threshold,
    rejection_report,
)

__all__ = [
    "RejectionReport",
    "adjusted_rand_score",
    "clustering_accuracy",
    "conformal_interval",
    "conformal_threshold",
    "consensus_matrix",
    "cophenetic_correlation",
    "error_rate",
    "mean_sparsity_index",
    "normalized_mutual_info_score",
    "purity",
    "rejection_report",
    "signal_to_error_ratio",
    "von_neumann_divergence",
]
