"""Binary NMF on bars: seconds of whole fits, and iterations beside the products they cannot do without.

    python benchmarks/binary.py [--quick]

The bound of an iteration is two products with the table of states, X log(a)' and q X.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from latently.datasets import load_bars
from latently.distributions.binary_causes import n_states
from latently.factorization import BNMF

CASES = {  # size of the images, rows, probability of a bar, truncation
    "H=8, all 256 states, N=1000 D=16": (4, 1000, 0.3, None),
    "H=20, at most 3 on, N=2000 D=100": (10, 2000, 0.1, 3),
}


def seconds(fit):
    began = time.perf_counter()
    fit()
    return time.perf_counter() - began


def products(N, D, M, repeats=5):
    """Seconds of the two products."""
    rng = np.random.default_rng(0)
    X, table, q = rng.random((N, D)), rng.random((M, D)), rng.random((M, N))
    return min(seconds(lambda: (table @ X.T, q @ X)) for _ in range(repeats))


def measure(size, n_samples, probability, truncation, iterations):
    bars = load_bars(size, n_samples, probability=probability, random_state=0)
    H = 2 * size
    plain = BNMF(
        H, truncation=truncation, accelerate=None, tol=0, n_init=1, max_iter=iterations, random_state=0
    )
    default = BNMF(H, truncation=truncation, random_state=0)
    M = n_states(H, H if truncation is None else truncation)
    run = min(seconds(lambda: plain.fit(bars.X)) for _ in range(2))
    return {
        f"{iterations} iterations": run,
        "default fit": seconds(lambda: default.fit(bars.X)),
        "iteration / products": run / iterations / products(n_samples, size**2, M),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few iterations, to see that it runs")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name, case in CASES.items():
        found = measure(*case, iterations=3 if quick else 60)
        print(f"BNMF, {name}: " + ", ".join(f"{what} {value:.3g}" for what, value in found.items()))


if __name__ == "__main__":
    main()
