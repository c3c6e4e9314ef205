"""Imputation: `Imputer` and a full Gaussian against scikit-learn's imputers, on public data sets.

    python benchmarks/missing.py                        # all, as a table in Markdown
    python benchmarks/missing.py --share 0.3 --seeds 2 --sets wine sonar
    python benchmarks/missing.py --sets FILES.npz       # others with rows X, as of benchmarks/r_tables.py

Entries are removed at random. Errors are root mean squares over the removed entries, in standard deviations
of their features; a column of means has about one. scikit-learn's imputers get standardised features. Seconds
are those of the CPU, for fit and imputation together, on one core.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from time import process_time

import numpy as np
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  # makes IterativeImputer importable
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from latently import datasets
from latently.mixture import GaussianMixture
from latently.selection import Imputer

SETS = {  # the largest number of rows
    **dict.fromkeys(("iris", "wine", "seeds", "breast_tissue", "user_knowledge", "wdbc", "sonar"), None),
    **{"diabetes": None, "thyroid_odds": 1000, "digits": 500},
}
MOST_ROWS = 800  # of a file
METHODS = {
    "mean": lambda seed: SimpleImputer(),
    "KNN": lambda seed: KNNImputer(),
    "iterative": lambda seed: IterativeImputer(random_state=seed),
    "full Gaussian": lambda seed: GaussianMixture(prior=None, random_state=seed),
    "Imputer": lambda seed: Imputer(random_state=seed, n_jobs=1),
}


def rows_of(name, most):
    """The rows of a data set, drawn at random if there are more than `most`, without constant features."""
    if name.endswith(".npz"):
        with np.load(name) as arrays:
            X = arrays["X"]
    elif name in ("diabetes", "digits"):
        from sklearn import datasets as others

        X = getattr(others, f"load_{name}")().data
    else:
        X = np.asarray(datasets.load(name).X)
    X = X.astype(np.float64)
    X = X[~np.isnan(X).any(axis=1)]
    if most is not None and len(X) > most:
        X = X[np.random.default_rng(0).permutation(len(X))[:most]]
    return X[:, X.std(axis=0) > 0]


def imputed(method, seed, X):
    model = METHODS[method](seed)
    if method in ("full Gaussian", "Imputer"):
        return model.fit(X).impute(X)
    scaler = StandardScaler()
    return scaler.inverse_transform(make_pipeline(scaler, model).fit_transform(X))


def measured(name, most, share, seed, methods=tuple(METHODS)):
    """A record for every method."""
    X = rows_of(name, most)
    missing = np.random.default_rng(seed).random(X.shape) < share
    given = np.where(missing, np.nan, X)
    for method in methods:
        began = process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            completed = imputed(method, seed, given)
        seconds = process_time() - began
        error = np.sqrt(np.mean((((completed - X) / X.std(axis=0))[missing]) ** 2))
        yield {"set": Path(name).stem, "rows": X.shape, "share": share, "seed": seed, "method": method,
               "error": float(error), "seconds": seconds}  # fmt: skip


def table(records):
    """Means over seeds, in Markdown: errors, with CPU seconds in parentheses, the lowest in bold."""
    methods = [m for m in METHODS if any(r["method"] == m for r in records)]
    lines = [f"| rows | missing | {' | '.join(methods)} |", f"|---|---|{'---|' * len(methods)}"]
    for key in dict.fromkeys((r["set"], tuple(r["rows"]), r["share"]) for r in records):
        own = {
            m: [r for r in records if (r["set"], tuple(r["rows"]), r["share"]) == key and r["method"] == m]
            for m in methods
        }
        errors = {m: np.mean([r["error"] for r in found]) for m, found in own.items()}
        seconds = {m: np.mean([r["seconds"] for r in found]) for m, found in own.items()}
        lowest = min(errors.values())
        cells = [
            (f"**{errors[m]:.3f}**" if errors[m] <= 1.005 * lowest else f"{errors[m]:.3f}")
            + f" ({seconds[m]:.2g} s)"
            for m in methods
        ]
        name, shape, share = key
        lines.append(f"| {name} {shape[0]} x {shape[1]} | {share:.0%} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="names or files")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--json", help="file to which records are appended, one per line")
    chosen = parser.parse_args()
    records = []
    for name in chosen.sets:
        for share in chosen.share:
            for seed in range(chosen.seeds):
                for record in measured(name, SETS.get(name, MOST_ROWS), share, seed, chosen.methods):
                    records.append(record)
                    print(
                        f"{name} {share} {record['method']}: {record['error']:.3f}, {record['seconds']:.2f} s"
                    )
                    if chosen.json:
                        with open(chosen.json, "a", encoding="utf-8") as file:
                            print(json.dumps(record), file=file)
    print(table(records))


if __name__ == "__main__":
    main()
