"""Non-linear factorisation beside the matrix products it cannot do without, and beside PCA and a regression.

    python benchmarks/nlmf.py [--quick]

On MNIST where its file is found (LATENTLY_DATA), else on images made of strokes. Ratios are of times in one
run; the products are those of numbers as many as the rows, features and components, by as many threads.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from latently.factorization import NLMF, PCA, NLMFClassifier

sys.path.insert(0, str(Path(__file__).parent))
from nmf import images, two_products


def seconds_of_sweeps(model, X, *y):
    """The median time of a sweep once warm, and the fitted model."""
    told = []
    model.set_params(callbacks=[lambda iteration: told.append(time.perf_counter())])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, *y)
    return float(np.median(np.diff(told)[1:])), model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few rows")
    n_rows, r = (2000, 30) if parser.parse_args().quick else (10000, 100)
    X, name = images(n_rows)
    products = two_products(X, r)
    print(f"{name}, {X.shape[0]} x {X.shape[1]}, {r} components; two products: {products:.3f} s")
    settings = {"max_iter": 8, "tol": 0.0, "sigma2": 0.01, "random_state": 0}
    for title, more in {
        "free": {},
        "free, alpha and beta": {"alpha": 0.05, "beta": 0.05},
        "non-negative, ratio": {"mapping": "ratio", "constraint": "non_negative"},
        "multiplicative": {"mapping": "ratio", "constraint": "non_negative", "solver": "mu"},
    }.items():
        seconds, model = seconds_of_sweeps(NLMF(r, **settings, **more), X)
        began = time.perf_counter()
        model.transform(X)
        inference = time.perf_counter() - began
        print(
            f"{title:>22}: sweep {seconds:.3f} s = {seconds / products:.1f} products, inference {inference:.2f} s"
        )
        if title == "free":
            ours, theirs = ((X - one.reconstruct(X)) ** 2 for one in (model, PCA(r).fit(X)))
            print(f"{'':>22}  squared error over that of PCA {np.sum(ours) / np.sum(theirs):.5f}")
    y = np.argmax(X @ np.random.default_rng(0).standard_normal((X.shape[1], 10)), axis=1)
    seconds, model = seconds_of_sweeps(NLMFClassifier(r, **settings), X, y)
    began = time.perf_counter()
    LogisticRegression(max_iter=100).fit(X, y)
    print(
        f"{'classifier':>22}: sweep {seconds:.3f} s = {seconds / products:.1f} products; "
        f"logistic regression on pixels {time.perf_counter() - began:.1f} s"
    )


if __name__ == "__main__":
    main()
