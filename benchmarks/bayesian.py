"""Numbers of components and factors by variational Bayes, and the density of held-out rows, beside others.

    python benchmarks/bayesian.py [--data FOLDER] [--seeds 3]

For every data set, standardised, and every seed a random 70 % of the rows are fitted and the others scored by

    MFA      BayesianMFA(10, 5), its predictive density
    CFA      BayesianMCFA(10, 5), its predictive density
    MFA BIC  MFA with the numbers of components, 1 to 5, and factors, 1 to 4, of the smallest BIC
    GM       BayesianGaussianMixture(10), its predictive density
    theirs   scikit-learn's BayesianGaussianMixture(n_components=10): the density of its expected parameters
    GM BIC   GaussianMixture with the number of components, 1 to 6, of the smallest BIC

A line has the mean log density per held-out row, the numbers of components (theirs: those with at least one
fitted row), factors per row for the first three, and CPU seconds of fits, means over seeds. The first sets
were looked at when the priors of ours were chosen; so were those after the line, for `BayesianMFA` and the
scale of the prior of `BayesianGaussianMixture`, with two of the seeds.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn.mixture
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from latently.mixture import MFA, BayesianGaussianMixture, BayesianMCFA, BayesianMFA, GaussianMixture

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
    """Of every model the score, the numbers of components and factors, and seconds."""
    for fitted in (bayesian_mfa, bayesian_mcfa, mfa_by_bic, bayesian_mixture, theirs, mixture_by_bic):
        start = time.process_time()
        model, n_components, n_factors = fitted(train, seed)
        yield model.score(test), n_components, n_factors, time.process_time() - start


def bayesian_mfa(train, seed):
    model = BayesianMFA(MOST, 5, random_state=seed).fit(train)
    return model, model.n_components_, model.weights_ @ model.n_factors_


def bayesian_mcfa(train, seed):
    model = BayesianMCFA(MOST, 5, random_state=seed).fit(train)
    return model, model.n_components_, model.n_factors_


def mfa_by_bic(train, seed):
    sizes = [(k, q) for k in range(1, 6) for q in range(1, min(5, train.shape[1]))]
    models = (MFA(k, q, n_init=2, random_state=seed).fit(train) for k, q in sizes)
    chosen = min(models, key=lambda model: model.bic(train))
    return chosen, chosen.n_components, chosen.n_factors


def bayesian_mixture(train, seed):
    model = BayesianGaussianMixture(MOST, random_state=seed).fit(train)
    return model, model.n_components_, 0


def theirs(train, seed):
    model = sklearn.mixture.BayesianGaussianMixture(n_components=MOST, max_iter=2000, random_state=seed)
    model.fit(train)
    used = int(np.sum(model.degrees_of_freedom_ - train.shape[1] >= 1))
    return density_of(model), used, 0


def mixture_by_bic(train, seed):
    models = (GaussianMixture(k, n_init=2, random_state=seed).fit(train) for k in range(1, 7))
    chosen = min(models, key=lambda model: model.bic(train))
    return chosen, chosen.n_components, 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    names = ("MFA", "CFA", "MFA BIC", "GM", "theirs", "GM BIC")
    heads = [
        *names,
        *(f"K {name}" for name in names),
        "q MFA",
        "q CFA",
        "q MFA BIC",
        *(f"s {name}" for name in names),
    ]
    print("| rows | " + " | ".join(heads) + " |")
    print("|---" * (len(heads) + 1) + "|")
    chosen = True
    for name, X, used in data_sets(given.data):
        if chosen and not used:
            print("| *added later* " + "| " * len(heads) + "|")
        chosen, X, found = used, standardised(X), []
        for seed in range(given.seeds):
            order, n = np.random.default_rng(seed).permutation(len(X)), int(0.7 * len(X))
            found.append(list(fits(X[order[:n]], X[order[n:]], seed)))
        scores_, sizes, factors, seconds = np.mean(found, axis=0).T
        cells = [
            *(f"{s:.2f}" for s in scores_),
            *(f"{k:.1f}" for k in sizes),
            *(f"{q:.1f}" for q in factors[:3]),
            *(f"{t:.2f}" for t in seconds),
        ]
        print(f"| {name}, {X.shape[0]} x {X.shape[1]} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
