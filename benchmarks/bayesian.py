"""Numbers of components by variational Bayes, and the density of held-out rows, beside scikit-learn's.

    python benchmarks/bayesian.py [--data FOLDER] [--seeds 3]

For every data set, standardised, and every seed a random 70 % of the rows are fitted and the others scored by

    ours     BayesianGaussianMixture(10), its predictive density
    theirs   scikit-learn's BayesianGaussianMixture(n_components=10): the density of its expected parameters
    BIC      GaussianMixture with the number of components, 1 to 6, of the smallest BIC

A line has the mean log density per held-out row and the numbers of components, means over seeds (theirs:
those with at least one fitted row), and CPU seconds of the fits. The first sets were looked at when the prior
of ours was chosen, those after the line were not.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn.mixture
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from latently.mixture import BayesianGaussianMixture, GaussianMixture

MOST, ROWS, SCORES = 10, 1200, 8


def data_sets(folder):
    """Name, rows, and whether the prior was chosen with them."""
    for name, load in (("iris", load_iris), ("wine", load_wine), ("diabetes", load_diabetes)):
        yield name, load().data, True
    yield "breast_cancer", load_breast_cancer().data, True
    for name in ("seeds", "breast_tissue", "user_knowledge", "thyroid_odds"):
        yield name, np.load(folder / f"{name}.npz")["X"], True
    yield "wpbc", np.load(folder / "wpbc.npz")["X"], False
    yield "digits, 8 scores", scores(load_digits().data), False
    for name, array in (("usps", "X_train"), ("coil20", "X"), ("umist", "X"), ("cbcl_faces", "X")):
        yield f"{name}, 8 scores", scores(np.load(folder / f"{name}.npz")[array]), False


def scores(X):
    """Of the leading principal components."""
    X = X.astype(float)[np.random.default_rng(0).permutation(len(X))[:ROWS]]
    U, lengths, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return U[:, :SCORES] * lengths[:SCORES]


def standardised(X):
    X = np.asarray(X, float)[:ROWS]
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def density_of(theirs):
    """scikit-learn's own scores are expected logarithms, no density; this is that of its parameters."""
    return GaussianMixture.from_parameters(
        weights=theirs.weights_, means=theirs.means_, covariances=theirs.covariances_
    )


def fits(train, test, seed):
    start = time.process_time()
    ours = BayesianGaussianMixture(MOST, random_state=seed).fit(train)
    yield ours.score(test), ours.n_components_, time.process_time() - start
    start = time.process_time()
    theirs = sklearn.mixture.BayesianGaussianMixture(n_components=MOST, max_iter=2000, random_state=seed)
    theirs.fit(train)
    used = int(np.sum(theirs.degrees_of_freedom_ - train.shape[1] >= 1))
    yield density_of(theirs).score(test), used, time.process_time() - start
    start = time.process_time()
    all_sizes = (GaussianMixture(k, n_init=2, random_state=seed).fit(train) for k in range(1, 7))
    chosen = min(all_sizes, key=lambda model: model.bic(train))
    yield chosen.score(test), chosen.n_components, time.process_time() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| rows | ours | theirs | BIC | K ours | K theirs | K BIC | s ours | s theirs | s BIC |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    chosen = True
    for name, X, used in data_sets(given.data):
        if chosen and not used:
            print("| *not used to choose* | | | | | | | | | |")
        chosen, X, found = used, standardised(X), []
        for seed in range(given.seeds):
            order, n = np.random.default_rng(seed).permutation(len(X)), int(0.7 * len(X))
            found.append(list(fits(X[order[:n]], X[order[n:]], seed)))
        means = np.mean(found, axis=0).T  # scores, sizes, seconds
        cells = [
            *(f"{s:.2f}" for s in means[0]),
            *(f"{k:.1f}" for k in means[1]),
            *(f"{t:.2f}" for t in means[2]),
        ]
        print(f"| {name}, {X.shape[0]} x {X.shape[1]} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
