"""Rejection: scores and thresholds of latently beside scikit-learn's detectors, on public data sets.

    python benchmarks/rejection.py                                   # all, as tables in Markdown
    python benchmarks/rejection.py --sets wine digits --seeds 2
    python benchmarks/rejection.py --out results.json

Of sets with classes, one class is the one to be rejected (another for every seed), and the others are known.
Of sets with outliers these are. Half of the known rows are for fits, a quarter for calibration at a rate of
0.9, the last quarter and all rows to be rejected are for the report. Features are standardised by the rows of
the fit; pixels are only divided by their common deviation, and images of more than 100 pixels are reduced to
50 principal axes. Sizes of the models are the same for all sets and were not tuned: three components or one
for each class, min(8, D // 2) factors.
"""

from __future__ import annotations

import argparse
import json
import warnings
from time import process_time

import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import LocalOutlierFactor

from latently import datasets
from latently.metrics import conformal_threshold, rejection_report
from latently.mixture import MFA, GaussianMixture
from latently.rejection import ClassifierScore, MahalanobisScore, NeighborScore
from latently.supervised import MJFAClassifier, PerClass

ACCEPTANCE = 0.9
PIXELS = {"digits", "usps", "mnist", "fashion_mnist"}
OUTLIERS = {"thyroid_odds", "arrhythmia_odds"}
SETS = {  # the largest number of known rows
    **dict.fromkeys(("wine", "wdbc", "seeds", "breast_tissue", "user_knowledge", "iris"), None),
    **dict.fromkeys(("thyroid_odds", "arrhythmia_odds", "digits"), 2000),
    **dict.fromkeys(("usps", "mnist", "fashion_mnist"), 3000),
}


class Detector:
    """scikit-learn's detectors call their scores `score_samples` too."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        self.model.fit(X)
        return self

    def score_samples(self, X):
        return self.model.score_samples(X)


class Shrunken(Detector):
    """One Gaussian with the covariance of Ledoit and Wolf."""

    def score_samples(self, X):
        return -self.model.mahalanobis(X)


class Density(Detector):
    """A density that uses no classes."""


def methods(D, seed):
    """Estimators by name, with `fit(X, y)` and `score_samples`."""
    q = max(1, min(8, D // 2))
    settings = {"random_state": seed, "tol": 1e-5}
    joint = MJFAClassifier(1, q, temperature=None, **settings)
    return {
        "GaussianMixture": Density(GaussianMixture(3, **settings)),
        "MFA": Density(MFA(3, q, **settings)),
        "PerClass(MFA)": PerClass(MFA(1, q, **settings), temperature=None),
        "MJFAClassifier": joint,
        "MJFA, max softmax": ClassifierScore(joint),
        "MJFA, Mahalanobis of factors": MahalanobisScore(transformer=joint),
        "MJFA, neighbours of factors": NeighborScore(transformer=joint),
        "MahalanobisScore": MahalanobisScore(),
        "NeighborScore": NeighborScore(),
        "logistic, max softmax": ClassifierScore(LogisticRegression(max_iter=300)),
        "logistic, energy": ClassifierScore(LogisticRegression(max_iter=300), kind="energy"),
        "IsolationForest": Detector(IsolationForest(random_state=seed)),
        "LocalOutlierFactor": Detector(LocalOutlierFactor(novelty=True)),
        "one Gaussian (Ledoit-Wolf)": Shrunken(LedoitWolf()),
    }


def rows_of(name):
    if name == "digits":
        from sklearn.datasets import load_digits

        return load_digits(return_X_y=True)
    found = datasets.load(name)
    return np.asarray(found.X, dtype=np.float64).reshape(len(found.X), -1), np.asarray(found.y)


def parts(name, X, y, seed):
    """Rows and classes for fit, calibration and report, and the rows to be rejected."""
    rng = np.random.default_rng(seed)
    classes = np.unique(y)
    odd = y == 1 if name in OUTLIERS else y == classes[seed % len(classes)]
    known, other = rng.permutation(np.flatnonzero(~odd)), rng.permutation(np.flatnonzero(odd))
    most = SETS[name]
    known, other = known[:most], other[:most]
    if name in OUTLIERS:  # they have no classes
        y = np.zeros(len(y), dtype=int)
    n = len(known)
    fit, calibration, test = known[: n // 2], known[n // 2 : 3 * n // 4], known[3 * n // 4 :]
    rows = X[fit]
    if name in PIXELS:
        mean, scale = rows.mean(axis=0), rows.std()
    else:
        mean, scale = rows.mean(axis=0), np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1.0)
    scaled = (X - mean) / scale
    kept = rows.std(axis=0) > 0 if name not in PIXELS else np.full(X.shape[1], True)
    scaled = scaled[:, kept]
    if name in PIXELS and X.shape[1] > 100:  # 50 principal axes: full covariances of pixels are degenerate
        scaled = PCA(50, random_state=0).fit(scaled[fit]).transform(scaled)
        scaled = scaled / scaled[fit].std()
    return *((scaled[part], y[part]) for part in (fit, calibration, test)), scaled[other]


def run(name, seed):
    X, y = rows_of(name)
    (X_fit, y_fit), (X_cal, _), (X_test, _), X_other = parts(name, X, y, seed)
    records = []
    for method, model in methods(X_fit.shape[1], seed).items():
        needs_classes = len(np.unique(y_fit)) > 1
        if not needs_classes and method.startswith(("MJFA", "PerClass", "logistic")):
            continue
        start = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.fit(X_fit, y_fit)
                scores = [np.asarray(model.score_samples(rows)) for rows in (X_cal, X_test, X_other)]
            except ValueError as error:
                records.append({"set": name, "seed": seed, "method": method, "error": str(error)[:80]})
                continue
        below = conformal_threshold(scores[0], ACCEPTANCE)
        report = rejection_report(
            scores[1],
            scores[2],
            threshold=below,
            acceptance=ACCEPTANCE,
            n_calibration=len(X_cal),
        )
        records.append(
            {
                "set": name,
                "seed": seed,
                "method": method,
                "acceptance": report.acceptance,
                "inside": report.as_calibrated,
                "rejection": report.rejection,
                "auroc": report.auroc,
                "seconds": process_time() - start,
            }
        )
    return records


def table(records, field, sets):
    names = list(dict.fromkeys(record["method"] for record in records))
    lines = ["| score | " + " | ".join(sets) + " |", "|---" * (len(sets) + 1) + "|"]
    for method in names:
        cells = []
        for name in sets:
            found = [r[field] for r in records if r["method"] == method and r["set"] == name and field in r]
            cells.append(f"{np.mean(found):.3f}" if found else "")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", help="a JSON file of all records, to which they are added")
    options = parser.parse_args()
    records = []
    for name in options.sets:
        for seed in range(options.seeds):
            records += run(name, seed)
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(records, file, indent=1)
    for field in ("auroc", "rejection", "acceptance", "seconds"):
        print(f"\n{field}, mean of {options.seeds} seeds\n\n{table(records, field, options.sets)}")
    inside = [record["inside"] for record in records if "inside" in record]
    print(f"\nacceptance within its 95 % conformal interval: {sum(inside)} of {len(inside)}")


if __name__ == "__main__":
    main()
