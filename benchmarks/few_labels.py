"""Classifiers with few labels: accuracy, log loss and calibration error of latently and baselines.

    python -m benchmarks.few_labels [--sets NAMES or FILES.npz] [--shares 0 0.5] [--seeds 5] [--json FILE]
                                    [--models "MJFA, unlabelled"]    # those that begin so
    python -m benchmarks.few_labels --table FILE    # the table of docs/mjfa.md, of earlier records

A share of 0 means five rows of each class, others that share of each class, at least two rows. The rest is
the test set (at most 300 rows). Features are standardised with the training rows. Semi-supervised models see
the test rows without labels.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings

import numpy as np
from sklearn import datasets as theirs
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading

from latently.datasets import load
from latently.mixture import MFA
from latently.supervised import MFMClassifier, MJFAClassifier, PerClass

SETS = [
    "iris",
    "wine",
    "seeds",
    "breast_tissue",
    "user_knowledge",
    "sonar",
    "wdbc",
    "urban_land_cover",
    "digits",
    "usps",
]
MOST_ROWS, MOST_TESTED = 800, 300


def rows_of(name):
    """Rows and classes 0, 1, ... of a data set or of an .npz file with X and y, at most 800 of them."""
    if name.endswith(".npz"):
        with np.load(name) as arrays:
            X, y = arrays["X"], arrays["y"]
    elif name in ("iris", "wine", "digits"):
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
        "MFM": lambda: MFMClassifier(1, q, **ours),
        "shrunken LDA": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "logistic regression": lambda: LogisticRegression(max_iter=300),
        "random forest": lambda: RandomForestClassifier(100, random_state=0),
    }


def semi_supervised(n_features, n_classes):
    q = min(n_features - 1, max(4, n_classes - 1), 10)
    ours = {"random_state": 0}
    return {
        "MJFA, unlabelled rows": lambda: MJFAClassifier(1, q, **ours),
        "LabelSpreading": lambda: LabelSpreading(kernel="knn", n_neighbors=7),
    }


def measured(model, X, y, X_test, y_test):
    """Accuracy, log loss, expected calibration error, seconds."""
    began = time.process_time()
    right = model.fit(X, y).predict(X_test) == y_test
    found = model.predict_proba(X_test)
    seconds = time.process_time() - began
    found = np.where(np.isfinite(found), found, 1.0 / found.shape[1])
    found = np.clip(found, 1e-15, None) / np.clip(found, 1e-15, None).sum(axis=1, keepdims=True)
    sure = found.max(axis=1)
    bins = np.minimum((10 * sure).astype(int), 9)
    gaps = [abs(np.sum(right[bins == b]) - np.sum(sure[bins == b])) for b in range(10)]
    loss = -np.mean(np.log(found[np.arange(len(y_test)), y_test]))
    return float(right.mean()), float(loss), float(sum(gaps)) / len(y_test), seconds


def records(name, share, seed, chosen=("",)):
    """A record for every model."""
    X, y = rows_of(name)
    C = int(y.max()) + 1
    seen, others = split(y, share, np.random.default_rng(seed))
    mean, unit = X[seen].mean(axis=0), X[seen].std(axis=0)
    Z = np.clip((X - mean) / np.where(unit > 0, unit, 1.0), -30, 30)
    rows, told = np.r_[seen, others], np.r_[y[seen], np.full(len(others), -1)]
    some = {label: (make, seen, y[seen]) for label, make in models(X.shape[1], C).items()}
    some |= {label: (make, rows, told) for label, make in semi_supervised(X.shape[1], C).items()}
    for label, (make, given, labels) in some.items():
        if not label.startswith(tuple(chosen)):
            continue
        values = measured(make(), Z[given], labels, Z[others], y[others])
        yield {"set": name, "classes": C, "share": share, "seed": seed, "model": label, "values": values}


def table(found):
    """Means over draws in Markdown: accuracy and log loss."""
    labels = list(dict.fromkeys(record["model"] for record in found))
    lines = [f"| data | labelled | guess | {' | '.join(labels)} |", f"|---|---|---|{'---|' * len(labels)}"]
    for key in dict.fromkeys((record["set"], record["classes"], record["share"]) for record in found):
        name, C, share = key
        own = [record for record in found if (record["set"], record["classes"], record["share"]) == key]
        means = {m: np.mean([r["values"] for r in own if r["model"] == m], axis=0) for m in labels}
        best = max(value[0] for value in means.values())
        cells = [
            (f"**{a:.2f}**" if a >= best - 0.01 else f"{a:.2f}") + f", {loss:.2f}"
            for a, loss, *_ in means.values()
        ]
        what = "5 per class" if share == 0 else f"{share:.0%}"
        guess = f"{1 / C:.2f}, {np.log(C):.2f}"
        lines.append(f"| {name.replace('_', ' ')} | {what} | {guess} | {' | '.join(cells)} |")
    lines.append("")
    for column, what in ((2, "expected calibration error"), (3, "CPU seconds")):
        means = {m: np.mean([r["values"][column] for r in found if r["model"] == m]) for m in labels}
        lines.append(f"{what}: " + ", ".join(f"{m} {value:.3f}" for m, value in means.items()))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--shares", nargs="+", type=float, default=[0.0, 0.5])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", nargs="+", default=[""], help="beginnings of their names")
    parser.add_argument("--json", help="file to which records are appended, one per line")
    parser.add_argument("--table", help="such a file, to show and not to measure")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.table:
        with open(args.table, encoding="utf-8") as file:
            print(table([json.loads(line) for line in file]))
        return
    found = []
    for name, share, seed in itertools.product(args.sets, args.shares, range(args.seeds)):
        for record in records(name, share, seed, args.models):
            found.append(record)
            if args.json:
                with open(args.json, "a", encoding="utf-8") as file:
                    print(json.dumps(record), file=file)
    print(table(found))


if __name__ == "__main__":
    main()
