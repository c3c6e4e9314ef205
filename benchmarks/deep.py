"""Deep mixtures on rows of the size of MNIST: seconds, memory, and a second layer beside the first.

    python benchmarks/deep.py [--quick]

60000 rows of 784 grey levels, 10 components with 64 factors, then 4 sub-components with 16 factors for each.
MNIST itself if it is among the data sets, else rows that are drawn from a mixture of that size.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from latently.datasets import load
from latently.deep import DMCFA, DMFA
from latently.mixture import MCFA, MFA

LIMITS = {"seconds": 600, "megabytes": 2000}
SETTINGS = {"n_init": 1, "noise_floor": 1e-2, "tol": 1e-5, "dtype": "float32", "random_state": 0}


def rows(n):
    try:
        return load("mnist").X_train[:n].reshape(n, -1)
    except FileNotFoundError:
        rng = np.random.default_rng(0)
        labels = rng.integers(10, size=n)
        maps, means = rng.normal(size=(10, 784, 64)), rng.normal(scale=20.0, size=(10, 784))
        X = means[labels] + 10.0 * rng.standard_normal((n, 784))
        for k in range(10):
            X[labels == k] += 5.0 * rng.standard_normal((np.sum(labels == k), 64)) @ maps[k].T
        return np.clip(128 + X, 0, 255).astype(np.uint8)


def seconds(fit):
    began = time.perf_counter()
    fit()
    return time.perf_counter() - began


def steps(deep, X, sizes, n=3):
    """Seconds of an EM step of the first layer, and of one over both, as callbacks see them."""
    told = []

    def note(iteration):
        told.append((iteration.number, time.perf_counter()))

    settings = {**SETTINGS, "accelerate": None, "max_iter": n, "tol": 0.0, "callbacks": [note]}
    deep(*sizes, fine_tune=True, **settings).fit(X)
    first, both = told[: n + 1], told[n + 1 :]
    return tuple(np.median(np.diff([when for _, when in part])) for part in (first, both))


def measure(deep, shallow, X, sizes, max_iter):
    components, factors, subcomponents, subfactors = sizes
    settings = {**SETTINGS, "max_iter": max_iter}
    model = deep(components, factors, subcomponents, subfactors, **settings)
    one = shallow(components, factors, **settings)
    deep(2, 2, 2, 1, **settings).fit(X[:200])  # what is loaded or set up once
    first, both = seconds(lambda: one.fit(X)), seconds(lambda: model.fit(X))
    of_first, of_all = steps(deep, X, sizes)
    return {
        "seconds": both,
        "both layers / first layer": both / first,
        "EM step of fine-tuning / of the first layer": of_all / of_first,
        "gain per row": float(model.history_[-1] - model.history_[0]),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rows and iterations, to see that it runs")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", "X has constant features")
    X, sizes = rows(2_000 if quick else 60_000), (3, 8, 2, 4) if quick else (10, 64, 4, 16)
    for deep, shallow in ((DMFA, MFA), (DMCFA, MCFA)):
        found = measure(deep, shallow, X, sizes, max_iter=3 if quick else 30)
        components, factors, subcomponents, subfactors = sizes
        shape = f"{components} x {factors}, then {components * subcomponents} x {subfactors}"
        told = ", ".join(f"{what} {value:.3g}" for what, value in found.items())
        print(f"{deep.__name__}, N={len(X)} D=784, {shape}: {told}", flush=True)
        if not quick and found["seconds"] > LIMITS["seconds"]:
            print(f"  that is more than {LIMITS['seconds']} seconds")
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"at most {megabytes:.0f} MB of memory, of {LIMITS['megabytes']} allowed")


if __name__ == "__main__":
    main()
