"""NMF against scikit-learn's, side by side in one run: time to a cost, and time of a sweep.

    python benchmarks/nmf.py [--quick]

On MNIST where its file is found (LATENTLY_DATA), else on images made of strokes, which are as sparse. "Within
0.1 %" is of the lowest cost that either finds. scikit-learn tells no costs on its way, so it is run anew with
ever more iterations until it is there or a limit is reached.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import scipy.sparse as sparse
from sklearn.decomposition import NMF as TheirNMF
from sklearn.exceptions import ConvergenceWarning

from latently.datasets import load
from latently.factorization import NMF

NEAR = 1.001
BETA = {"frobenius": 2, "kl": 1, "itakura-saito": 0}


def images(n_rows):
    try:
        X = load("mnist").X_train[:n_rows]
        return np.ascontiguousarray(X, dtype=np.float64) / 255, "MNIST"
    except FileNotFoundError:
        rng = np.random.default_rng(0)
        strokes = np.abs(rng.standard_normal((60, 784))) * (rng.random((60, 784)) < 0.1)
        on = rng.random((n_rows, 60)) * (rng.random((n_rows, 60)) < 0.15)
        return on @ strokes, "strokes"


def ours(X, n_components, loss, max_iter):
    """Seconds and cost after every sweep, the start included in the first, and the time of a whole fit."""
    told = []
    began = time.perf_counter()
    model = NMF(
        n_components,
        loss=loss,
        max_iter=max_iter,
        tol=0,
        random_state=0,
        callbacks=[lambda iteration: told.append(time.perf_counter() - began)],
    )
    model.fit(X)
    return np.array(told[1:]), model.history_, model


def theirs(X, n_components, loss, limits):
    """Seconds and cost for each number of iterations."""
    solver = "cd" if loss == "frobenius" else "mu"
    settings = {"solver": solver, "beta_loss": BETA.get(loss, loss)}
    found = []
    for max_iter in limits:
        began = time.perf_counter()
        model = TheirNMF(n_components, init="nndsvda", max_iter=max_iter, tol=0, random_state=0, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X)
        found.append((time.perf_counter() - began, 0.5 * model.reconstruction_err_**2))
    return np.array(found)


def two_products(X, n_components):
    """Seconds of the two products that a sweep cannot do without, by all cores; the median of several."""
    A = np.random.default_rng(0).random((n_components, X.shape[1]))
    S = np.random.default_rng(1).random((n_components, X.shape[0]))
    times = []
    for _ in range(9):
        began = time.perf_counter()
        A @ X.T
        S @ X
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def compared(title, X, n_components, loss, max_iter, limits):
    times, costs, model = ours(X, n_components, loss, max_iter)
    found = theirs(X, n_components, loss, limits)
    goal = NEAR * min(costs.min(), found[:, 1].min())
    here = times[np.argmax(costs <= goal)] if costs.min() <= goal else np.inf
    there = found[np.argmax(found[:, 1] <= goal), 0] if found[:, 1].min() <= goal else np.inf
    print(f"{title}, {loss}, r={n_components}")
    print(f"  lowest cost: ours {costs.min():.1f}, scikit-learn {found[:, 1].min():.1f}")
    at_least = "" if np.isfinite(there) else "more than "
    longest = there if np.isfinite(there) else found[-1, 0]
    print(
        f"  seconds to within 0.1 %: ours {here:.2f}, scikit-learn {at_least}{longest:.1f}"
        f" -> {at_least}{longest / here:.1f} times as fast"
    )
    own = NEAR * found[:, 1].min()  # where scikit-learn ends
    mine, its = times[np.argmax(costs <= own)], found[np.argmax(found[:, 1] <= own), 0]
    print(f"  seconds to within 0.1 % of scikit-learn's own lowest: ours {mine:.2f}, scikit-learn {its:.1f}")
    per_sweep = (times[-1] - times[0]) / (len(times) - 1)
    per_pass = (times[-1] - times[0]) / (model.n_passes_ - 1)
    their_sweep = (found[-1, 0] - found[0, 0]) / (limits[-1] - limits[0])
    line = f"  milliseconds a sweep: ours {1e3 * per_sweep:.1f} ({1e3 * per_pass:.1f} a pass), "
    line += f"scikit-learn {1e3 * their_sweep:.1f}"
    if not sparse.issparse(X) and loss == "frobenius":
        line += f"; two products {1e3 * two_products(X, n_components):.1f}"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and iterations")
    quick = parser.parse_args().quick
    n = 2000 if quick else 10000
    X, name = images(n)
    compared(f"{name} {X.shape}", X, 30, "frobenius", 200, (20, 100) if quick else (20, 50, 100, 200))
    if not quick:
        compared(f"{name} {X.shape}", X, 100, "frobenius", 200, (20, 50, 100, 200))
    few = X[: n // 2]
    compared(f"{name} {few.shape}", few, 30, "kl", 200, (20, 100) if quick else (20, 100, 200, 400))
    positive = few + 0.01 * few.max()  # the Itakura-Saito divergence of zeros is infinite
    for loss in ("itakura-saito", 0.5, 1.5):
        compared(f"{name} {few.shape}", positive, 30, loss, 200, (20, 100) if quick else (20, 100, 200, 400))
    rng = np.random.default_rng(0)
    words = sparse.random(n, 2 * n, 0.005, format="csr", random_state=rng)
    compared(f"sparse {words.shape}", words, 30, "frobenius", 50, (10, 30))
    compared(f"sparse {words.shape}", words, 30, "kl", 30, (10, 30))


if __name__ == "__main__":
    main()
