"""Classifiers with few labels: accuracy, log loss and calibration error of latently and baselines.

    python -m benchmarks.few_labels [--sets design|judged|NAMES] [--shares 0 0.05 0.1 0.5] [--seeds 3]

A share of 0 means five rows of each class, others that share of each class, at least two rows. The rest is
the test set (at most 600 rows). Features are standardised with the training rows. The amounts of shrinkage
were chosen on the sets of `DESIGN`; those of `JUDGED` were only looked at in the end. Semi-supervised models
see the test rows without labels.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from scipy import special
from sklearn import datasets as theirs
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading

from latently.datasets import load
from latently.mixture import MFA, GaussianMixture
from latently.supervised import MFMClassifier, MJFAClassifier, PerClass

DESIGN = ("wine", "wdbc", "seeds", "digits")
JUDGED = ("iris", "breast_tissue", "urban_land_cover", "user_knowledge", "sonar", "usps")
MOST_ROWS, MOST_TESTED = 1800, 600


def rows_of(name):
    """Rows and classes 0, 1, ... of a data set, at most 1800 of them."""
    if name in ("iris", "wine", "digits"):
        X, y = getattr(theirs, f"load_{name}")(return_X_y=True)
    elif name == "wdbc":
        X, y = theirs.load_breast_cancer(return_X_y=True)
    else:
        data = load(name)
        X, y = data.X, data.y
    X, y = np.asarray(X, dtype=np.float64), np.unique(y, return_inverse=True)[1]
    chosen = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS]
    X, y = X[chosen], y[chosen]
    return X[:, X.std(axis=0) > 0], y


def split(y, share, rng):
    """Training and test rows."""
    seen = []
    for c in np.unique(y):
        own = rng.permutation(np.flatnonzero(y == c))
        seen.append(own[: 5 if share == 0 else max(2, round(share * len(own)))])
    seen = np.concatenate(seen)
    return seen, rng.permutation(np.setdiff1d(np.arange(len(y)), seen))[:MOST_TESTED]


def models(n_features, n_classes):
    q = min(n_features - 1, max(4, n_classes - 1), 10)
    ours = {"random_state": 0}
    return {
        "MJFA": lambda: MJFAClassifier(1, q, **ours),
        "MJFA, no shrinkage": lambda: MJFAClassifier(1, q, shrinkage=None, temperature=None, **ours),
        "PerClass(MFA(1, 2))": lambda: PerClass(MFA(1, min(2, n_features), **ours)),
        "PerClass(MFA(1, 2)), no shrinkage": lambda: PerClass(
            MFA(1, min(2, n_features), **ours), shrinkage=None, temperature=None
        ),
        "PerClass(GaussianMixture())": lambda: PerClass(GaussianMixture()),
        "MFM": lambda: MFMClassifier(1, q, **ours),
        "shrunken LDA": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "QDA": lambda: QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
        "logistic regression": lambda: LogisticRegression(max_iter=300),
        "random forest": lambda: RandomForestClassifier(100, random_state=0),
    }


def semi_supervised(n_features, n_classes):
    q = min(n_features - 1, max(4, n_classes - 1), 10)
    ours = {"random_state": 0}
    return {
        "MJFA, unlabelled rows": lambda: MJFAClassifier(1, q, **ours),
        "MJFA, unlabelled_weight=1": lambda: MJFAClassifier(1, q, unlabelled_weight=1.0, **ours),
        "LabelSpreading": lambda: LabelSpreading(kernel="knn", n_neighbors=7),
    }


def measured(model, X, y, X_test, y_test):
    """Accuracy, log loss, expected calibration error, seconds."""
    began = time.process_time()
    try:
        found = model.fit(X, y).predict_proba(X_test)
    except np.linalg.LinAlgError:  # QDA, of a class in a subspace
        found = np.full((len(X_test), int(y.max()) + 1), 1.0 / (int(y.max()) + 1))
    seconds = time.process_time() - began
    found = np.where(np.isfinite(found), found, 1.0 / found.shape[1])
    found = np.clip(found, 1e-15, None) / np.clip(found, 1e-15, None).sum(axis=1, keepdims=True)
    right, sure = found.argmax(axis=1) == y_test, found.max(axis=1)
    bins = np.minimum((10 * sure).astype(int), 9)
    gaps = [abs(np.sum(right[bins == b]) - np.sum(sure[bins == b])) for b in range(10)]
    loss = -np.mean(np.log(found[np.arange(len(y_test)), y_test]))
    return right.mean(), loss, sum(gaps) / len(y_test), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["design"])
    parser.add_argument("--shares", nargs="+", type=float, default=[0.0, 0.05, 0.1, 0.5])
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    names = {"design": DESIGN, "judged": JUDGED}.get(args.sets[0], args.sets)
    warnings.simplefilter("ignore")
    for name in names:
        X, y = rows_of(name)
        C = int(y.max()) + 1
        for share in args.shares:
            found = {}
            for seed in range(args.seeds):
                seen, others = split(y, share, np.random.default_rng(seed))
                mean, unit = X[seen].mean(axis=0), X[seen].std(axis=0)
                Z = np.clip((X - mean) / np.where(unit > 0, unit, 1.0), -30, 30)
                for label, make in models(X.shape[1], C).items():
                    result = measured(make(), Z[seen], y[seen], Z[others], y[others])
                    found.setdefault(label, []).append(result)
                rows, told = np.r_[seen, others], np.r_[y[seen], np.full(len(others), -1)]
                for label, make in semi_supervised(X.shape[1], C).items():
                    result = measured(make(), Z[rows], told, Z[others], y[others])
                    found.setdefault(label, []).append(result)
            what = "5 rows per class" if share == 0 else f"{share:.0%} labelled"
            print(f"\n{name}, {X.shape[0]} x {X.shape[1]}, {C} classes, {what}")
            print(f"{'uniform guess':36}{1 / C:8.3f}{-special.xlogy(1, 1 / C):8.3f}", flush=True)
            for label, results in found.items():
                print(f"{label:36}" + "".join(f"{value:8.3f}" for value in np.mean(results, axis=0)))
    print("\ncolumns: accuracy, log loss, expected calibration error, CPU seconds", flush=True)


if __name__ == "__main__":
    main()
