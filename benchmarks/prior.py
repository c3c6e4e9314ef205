"""Strength of the default prior, chosen by held-out log-likelihood; labels are never used.

    python benchmarks/prior.py [--data FOLDER] [--seeds 2] [--rows 0 0.1 0.3 1 3 10]

Every data set is halved at random; models are fitted to one half and scored on the other, for several
strengths of the prior (rows per component; 0 is maximum likelihood) and both ways round. A line tells, for
one model, the mean and the worst over data sets of the held-out log-likelihood per row and feature minus that
of maximum likelihood (differences beyond 0.5 are counted as 0.5), for the sets used to choose and for the
others. Rows are few on purpose: with many, no prior matters. It takes a few minutes on two cores.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture

FEW = {"n_init": 2, "max_iter": 150, "tol": 1e-5, "random_state": 0}
MODELS = {
    "GaussianMixture(3), full": lambda: GaussianMixture(3, **FEW),
    "GaussianMixture(3), tied": lambda: GaussianMixture(3, covariance_type="tied", **FEW),
    "GaussianMixture(3), diag": lambda: GaussianMixture(3, covariance_type="diag", **FEW),
    "GaussianMixture(3), spherical": lambda: GaussianMixture(3, covariance_type="spherical", **FEW),
    "MFA(3, 3)": lambda: MFA(3, 3, **FEW),
    "MFA(3, 3), shared noise": lambda: MFA(3, 3, shared_noise=True, **FEW),
    "MPPCA(3, 3)": lambda: MPPCA(3, 3, **FEW),
    "MCFA(3, 2)": lambda: MCFA(3, 2, **FEW),
    "FactorAnalysis(3)": lambda: FactorAnalysis(3, **FEW),
    "PPCA(3)": lambda: PPCA(3, **FEW),
}
FILES = {  # name: array, rows taken
    "seeds": ("X", 210),
    "breast_tissue": ("X", 106),
    "user_knowledge": ("X", 300),
    "wpbc": ("X", 194),
    "sonar": ("X", 208),
    "leuk72_3k": ("X", 72),
    "urban_land_cover": ("X_train", 168),
    "thyroid_odds": ("X", 400),
    "usps": ("X_train", 200),
}
WIDE = 40  # features beyond which full covariances are left out
LARGEST = 0.5


def data_sets(folder):
    """Data sets by name, without constant features; every second one is used to choose."""
    rng = np.random.default_rng(0)
    found = {
        "iris": load_iris().data,
        "wine": load_wine().data,
        "wine + 14 of noise": np.hstack([load_wine().data, rng.normal(size=(178, 14))]),
        "breast cancer": load_breast_cancer().data[:250],
        "diabetes": load_diabetes().data[:250],
        "digits": load_digits().data[:300] / 16 + 0.05 * rng.normal(size=(300, 64)),
    }
    for name, (key, n_rows) in FILES.items() if folder else ():
        path = Path(folder) / f"{name}.npz"
        if path.exists():
            X = np.load(path)[key].astype(float)
            found[name] = X[rng.permutation(len(X))[:n_rows]]
    return {name: X[:, np.std(X, axis=0) > 0] for name, X in found.items()}


def held_out(make, X, rows, seeds):
    """The mean held-out log-likelihood per row and feature."""
    scores = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(X))
        halves = order[: len(X) // 2], order[len(X) // 2 :]
        for seen, others in (halves, halves[::-1]):
            varies = np.std(X[seen], axis=0) > 0
            model = make().set_params(prior=rows or None).fit(X[seen][:, varies])
            scores.append(model.score(X[others][:, varies]) / varies.sum())
    return np.mean(scores)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder with further data sets as .npz files")
    parser.add_argument("--seeds", type=int, default=1, help="random halves per data set")
    parser.add_argument("--rows", type=float, nargs="+", default=[0.1, 0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="names, or the beginning of them")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    sets = data_sets(chosen.data)
    print("| model | sets |", " | ".join(f"{rows:g}" for rows in chosen.rows), "|")
    print("|---|---|" + "---|" * len(chosen.rows))
    for name, make in MODELS.items():
        if not any(name.startswith(start) for start in chosen.models):
            continue
        wide = "full" in name or "tied" in name
        table = []
        for X in (X for X in sets.values() if not wide or X.shape[1] <= WIDE):
            likeliest = held_out(make, X, 0, chosen.seeds)
            table.append([held_out(make, X, rows, chosen.seeds) - likeliest for rows in chosen.rows])
        gains = np.clip(np.array(table), -LARGEST, LARGEST)
        for half, label in ((gains[::2], "choice"), (gains[1::2], "check")):
            cells = (f"{np.mean(column):+.3f} ({np.min(column):+.3f})" for column in half.T)
            print(f"| {name} | {label} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
