"""Tri-factorisations beside scikit-learn's SpectralCoclustering, on planted blocks, in one process.

    python benchmarks/co_clustering.py

CPU seconds of a fit (the best of three), and agreement of both labels with the planted ones. The last table
is a sparse matrix of 10000 x 20000 with empty rows; entries within blocks are four times as frequent.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import SpectralCoclustering
from sklearn.metrics import adjusted_rand_score

from latently.factorization import NMTF, FastNMTF, PenalizedNMTF

K = 5


def models(seed):
    return [
        SpectralCoclustering(K, random_state=seed),
        *(cls(K, K, random_state=seed) for cls in (FastNMTF, NMTF, PenalizedNMTF)),
    ]


def planted(seed, n=2000, D=1000, noise=1.0):
    rng = np.random.default_rng(seed)
    z, c = rng.integers(K, size=n), rng.integers(K, size=D)
    mean = 0.5 + 4.0 * np.eye(K)
    return np.maximum(mean[np.ix_(z, c)] + noise * rng.normal(size=(n, D)), 0.0), z, c


def sparse(seed, n=10_000, D=20_000, n_entries=800_000):
    rng = np.random.default_rng(seed)
    z, c = rng.integers(K, size=n), rng.integers(K, size=D)
    rows, columns = rng.integers(n, size=3 * n_entries), rng.integers(D, size=3 * n_entries)
    kept = rng.random(len(rows)) < np.where(z[rows] == c[columns], 0.8, 0.2)
    kept &= rows % 100 > 0  # every hundredth row is empty
    X = sp.csr_array((np.ones(kept.sum()), (rows[kept], columns[kept])), shape=(n, D))
    return X, z, c


def measured(model, X):
    seconds = []
    for _ in range(3):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X)
        seconds.append(time.process_time() - start)
    return min(seconds)


def main():
    for title, make, seeds in (
        ("dense 2000 x 1000", planted, range(3)),
        ("sparse 10000 x 20000", sparse, [0]),
    ):
        print(title)
        for seed in seeds:
            X, z, c = make(seed)
            filled = np.asarray(X.sum(axis=1)).ravel() > 0
            for model in models(seed):
                fitted = X
                if isinstance(model, SpectralCoclustering) and not filled.all():
                    print(f"  {'SpectralCoclustering':22} does not take empty rows; without them:")
                    fitted = X[filled]
                try:
                    seconds = measured(model, fitted)
                except (ValueError, MemoryError) as error:
                    print(f"  {type(model).__name__:22} {error}")
                    continue
                labels = model.row_labels_ if fitted is not X else model.row_labels_[filled]
                rows, columns = (
                    adjusted_rand_score(z[filled], labels),
                    adjusted_rand_score(c, model.column_labels_),
                )
                print(f"  {type(model).__name__:22} {seconds:7.3f} s   ARI {rows:.3f} {columns:.3f}")


if __name__ == "__main__":
    main()
