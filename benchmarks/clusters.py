"""Clusters that BIC chooses: their agreement with known classes, beside those of mclust.

    python -m benchmarks.clusters FILES.npz [--json FILE]      # Rscript with mclust for its columns
    python -m benchmarks.clusters --table FILE                 # the table of docs/selection.md

Every file has rows X and classes y (benchmarks/r_tables.py writes some). Rows are standardised; labels are
for the comparison only. `select` chooses by BIC among the families and sizes below; Mclust with its defaults
among 14 structures of covariances and one to nine components. ARI is the agreement of the chosen clusters
with the classes, and seconds those of the CPU. The number of components is chosen too, so a class that is no
single Gaussian costs agreement whatever the likelihood.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

from latently.mixture import MCFA, MFA, MPPCA, GaussianMixture
from latently.selection import select

COMPONENTS = list(range(1, 10))
MCLUST = """
suppressMessages(library(mclust))
rows <- as.matrix(read.csv("{path}", header=FALSE))
before <- proc.time()
found <- Mclust(rows, verbose=FALSE)
seconds <- sum((proc.time() - before)[1:2])
cat(found$modelName, found$G, found$bic, seconds, "\\n")
cat(found$classification, "\\n")
"""


def families(n_features):
    """Estimators and grids."""
    factors = [q for q in (1, 2, 3, 4, 6) if q < n_features - 1]
    few = {"n_components": COMPONENTS[:6], "n_factors": factors}
    structures = ["full", "tied", "diag", "spherical"]
    return [
        (GaussianMixture(), {"n_components": COMPONENTS, "covariance_type": structures}),
        (MFA(), {**few, "shared_noise": [False, True]}),
        (MPPCA(), few),
        (MCFA(), few),
    ]


def ours(X):
    """The best model by BIC of all families: name, number of components, BIC and labels."""
    ends = []
    for estimator, grid in families(X.shape[1]):
        found = select(estimator, X, grid, random_state=0, n_jobs=1)
        degenerate = len(found.best_.degenerate_components_) > 0
        ends.append((degenerate, found.best_.bic(X), type(estimator).__name__, found))
    _, bic, name, found = min(ends, key=lambda end: end[:2])
    best = found.best_
    size = (
        f"({best.n_components}, {best.n_factors})" if hasattr(best, "n_factors") else f"({best.n_components})"
    )
    shared = ", shared noise" if getattr(best, "shared_noise", False) else ""
    structure = f", {best.covariance_type}" if name == "GaussianMixture" else shared
    text = f"{name}{size}{structure}"
    return text, int(best.n_components), float(bic), best.predict(X)


def mclust(X):
    """The same of Mclust, and its CPU seconds; None without R or mclust."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        np.savetxt(path, X, delimiter=",")
        try:
            done = subprocess.run(
                ["Rscript", "-e", MCLUST.format(path=path)], capture_output=True, text=True, check=True
            )
        except (FileNotFoundError, subprocess.CalledProcessError):
            return None
    first, labels = done.stdout.strip().splitlines()[-2:]
    name, n_components, bic, seconds = first.split()
    found = f"{name}({n_components})", int(n_components), -float(bic), np.array(labels.split(), dtype=int)
    return found, float(seconds)


def measured(path):
    with np.load(path) as arrays:
        X, y = arrays["X"].astype(float), arrays["y"]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    record = {"set": Path(path).stem, "shape": X.shape, "classes": len(np.unique(y))}

    def told(of, seconds):
        name, n_components, bic, labels = of
        found = {"model": name, "K": n_components, "bic": bic, "seconds": seconds}
        return found | {"ari": float(adjusted_rand_score(y, labels))}

    start = time.process_time()
    own = ours(X)
    record["latently"] = told(own, time.process_time() - start)
    theirs = mclust(X)
    return record | ({} if theirs is None else {"mclust": told(*theirs)})


def table(records):
    print("| rows, classes | latently | BIC | ARI | CPU s | mclust | BIC | ARI | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for record in records:
        n, d = record["shape"]
        cells = [f"{record['set']} {n} x {d}, {record['classes']}"]
        for by in ("latently", "mclust"):
            of = record.get(by)
            cells += (
                ["", "", "", ""]
                if of is None
                else [
                    of["model"],
                    f"{of['bic']:.0f}",
                    f"{of['ari']:.2f}",
                    f"{of['seconds']:.1f}",
                ]
            )
        print("| " + " | ".join(cells) + " |")
    both = [r for r in records if "mclust" in r]
    ahead = sum(r["latently"]["ari"] > r["mclust"]["ari"] + 0.01 for r in both)
    behind = sum(r["latently"]["ari"] < r["mclust"]["ari"] - 0.01 for r in both)
    print(f"\nARI higher in {ahead}, lower in {behind} of {len(both)}; means", end=" ")
    print([round(float(np.mean([r[by]["ari"] for r in both])), 3) for by in ("latently", "mclust")])
    print("BIC lower in", sum(r["latently"]["bic"] < r["mclust"]["bic"] for r in both))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--json", help="file that records are added to")
    parser.add_argument("--table", help="only print the table of this file")
    chosen = parser.parse_args()
    if chosen.table:
        return table(json.loads(Path(chosen.table).read_text()))
    warnings.simplefilter("ignore")
    path = Path(chosen.json) if chosen.json else None
    records = json.loads(path.read_text()) if path and path.exists() else []
    for name in chosen.files:
        records.append(measured(name))
        print(records[-1], flush=True)
        if path:
            path.write_text(json.dumps(records))
    return table(records)


if __name__ == "__main__":
    main()
