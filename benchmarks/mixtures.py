"""Time per EM iteration, against scikit-learn and against what the machine's matrix product allows.

    python benchmarks/mixtures.py [--quick] [--output benchmarks/results/mixtures.json]

Everything is measured in one run and told as ratios, because seconds mean little on another machine.
Data are drawn from a model of the size that is fitted; all fits begin from the same starting values, so
no time goes into starts. Memory is what a fit needs above its data, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn
from sklearn.decomposition import FactorAnalysis as PeerFactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as PeerGaussianMixture

from latently.mixture import MCFA, MFA, FactorAnalysis, GaussianMixture

CASES = {  # name: model, N, D, K, q
    "MFA N=10000 D=784 K=10 q=10": ("mfa", 10_000, 784, 10, 10),
    "MFA N=60000 D=784 K=50 q=10": ("mfa", 60_000, 784, 50, 10),
    "MFA N=5000 D=64 K=10 q=4": ("mfa", 5_000, 64, 10, 4),
    "MCFA N=5000 D=64 K=10 q=6": ("mcfa", 5_000, 64, 10, 6),
    "MCFA N=60000 D=784 K=50 q=10": ("mcfa", 60_000, 784, 50, 10),
    "GMM full N=20000 D=50 K=20": ("full", 20_000, 50, 20, 0),
    "GMM diag N=100000 D=100 K=50": ("diag", 100_000, 100, 50, 0),
    "FA N=20000 D=200 q=10": ("fa", 20_000, 200, 1, 10),
}
ITERATIONS = 8


def make_data(N, D, K, q, seed=0):
    """Rows of K clusters with a few strong directions each, written in place: no second copy in memory."""
    rng = np.random.default_rng(seed)
    means = rng.standard_normal((K, D))
    loadings = rng.standard_normal((K, D, max(q, 1))) / np.sqrt(D / 20)
    X = np.empty((N, D))
    for i in range(0, N, 1000):
        rows = X[i : i + 1000]
        rng.standard_normal(out=rows)
        labels = rng.integers(K, size=len(rows))
        for k in range(K):
            own = labels == k
            rows[own] += means[k] + rng.standard_normal((own.sum(), loadings.shape[2])) @ loadings[k].T
    starts = means + 0.3 * rng.standard_normal((K, D))
    return X, starts


def make_estimator(model, starts, q, dtype, **options):
    """Ours, with all starting values given."""
    K, D = starts.shape
    shared = {"tol": 0, "dtype": dtype, "accelerate": None, **options}
    directions = np.random.default_rng(1).standard_normal((K, D, q)) / np.sqrt(D)
    if model == "mfa":
        return MFA(
            K, q, weights_init=1 / K, means_init=starts, loadings_init=directions, noise_init=1.0, **shared
        )
    if model == "mcfa":
        axes = np.linalg.qr(directions[0])[0]
        return MCFA(
            K,
            q,
            weights_init=1 / K,
            loadings_init=axes,
            latent_means_init=starts @ axes,
            latent_covariances_init=np.eye(q),
            noise_init=1.0,
            **shared,
        )
    if model == "fa":
        return FactorAnalysis(q, means_init=starts[0], loadings_init=directions[0], noise_init=1.0, **shared)
    covariances = np.eye(D) if model == "full" else 1.0
    return GaussianMixture(
        K,
        covariance_type=model,
        weights_init=1 / K,
        means_init=starts,
        covariances_init=covariances,
        **shared,
    )


def our_seconds(model, X, starts, q, dtype):
    """The quickest of a few EM iterations."""
    stamps = []
    # the first iterations have soft responsibilities and are not typical: three steps are left out
    warm, timed = 3, ITERATIONS if model != "fa" else 50
    callback = lambda iteration: stamps.append(time.perf_counter())
    make_estimator(model, starts, q, dtype, max_iter=warm + timed, callbacks=[callback]).fit(X)
    return float(np.min(np.diff(stamps)[warm:]))


def peer_seconds(model, X, starts):
    """scikit-learn's, from the difference of two numbers of iterations; None where it has no such model."""
    K, D = starts.shape

    def seconds(n_iter):
        if model == "fa":
            peer = PeerFactorAnalysis(10, max_iter=n_iter, tol=0, svd_method="randomized", random_state=0)
        else:
            precisions = np.ones((K, D)) if model == "diag" else np.tile(np.eye(D), (K, 1, 1))
            peer = PeerGaussianMixture(
                K,
                covariance_type=model,
                tol=0,
                max_iter=n_iter,
                weights_init=np.full(K, 1 / K),
                means_init=starts,
                precisions_init=precisions,
                init_params="random_from_data",
                random_state=0,
            )
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            peer.fit(X)
        return time.perf_counter() - began

    if model in ("mfa", "mcfa"):
        return None
    few, many = 3, 3 + 2 * ITERATIONS
    return (min(seconds(many) for _ in range(3)) - min(seconds(few) for _ in range(3))) / (many - few)


def gemm_rate(dtype, repeats=4):
    """Floating-point operations per second of this machine's matrix product, all cores."""
    A = np.ones((3000, 3000), dtype=dtype)
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        A @ A
        best = min(best, time.perf_counter() - began)
    return 2 * 3000**3 / best


def bound_seconds(model, N, D, K, q, rate):
    """What dense matrix products would take for one E-step and one M-step; None where rows are not read."""
    operations = {
        "mfa": 4 * N * D * K * (q + 2),
        "mcfa": 4 * N * D * (q + 2) + 6 * N * K * q * q,
        "full": 4 * N * D * D * K,
        "diag": 8 * N * D * K,
        "fa": None,
    }[model]
    return None if operations is None else operations / rate


def peak_megabytes(name, dtype):
    """Memory of a fit above its data, from a process of its own."""
    command = [sys.executable, __file__, "--memory-of", name, "--dtype", dtype]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_memory(name, dtype):
    model, N, D, K, q = CASES[name]
    X, starts = make_data(N, D, K, q)
    make_estimator(model, starts, q, dtype, max_iter=1).fit(X[:1000])  # what is loaded once
    before = peak_kilobytes()
    make_estimator(model, starts, q, dtype, max_iter=3).fit(X)
    print((peak_kilobytes() - before) / 1024)


def peak_kilobytes():
    """The most memory this process ever held (Linux; elsewhere nothing comparable is at hand)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def measure(names):
    results = []
    for name in names:
        model, N, D, K, q = CASES[name]
        X, starts = make_data(N, D, K, q)
        peer = peer_seconds(model, X, starts)
        for dtype in ("float64", "float32"):
            rate = gemm_rate(dtype)
            ours = our_seconds(model, X, starts, q, dtype)
            bound = bound_seconds(model, N, D, K, q, max(rate, gemm_rate(dtype)))
            results.append(
                {
                    "case": name,
                    "dtype": dtype,
                    "seconds": ours,
                    "peer_seconds": peer,
                    "faster_than_peer": None if peer is None else peer / ours,
                    "gemm_bound_seconds": bound,
                    "times_the_bound": None if bound is None else ours / bound,
                    "megabytes_above_data": peak_megabytes(name, dtype),
                }
            )
            print(row(results[-1]), flush=True)
    return results


HEADER = (
    f"{'case':32}{'dtype':9}{'s/iteration':>12}"
    f"{'x scikit-learn':>16}{'x GEMM bound':>14}{'MB above data':>15}"
)


def row(result):
    def number(value, form):
        return "-" if value is None else format(value, form)

    return (
        f"{result['case']:32}{result['dtype']:9}{result['seconds']:>12.5f}"
        f"{number(result['faster_than_peer'], '.1f'):>16}{number(result['times_the_bound'], '.2f'):>14}"
        f"{result['megabytes_above_data']:>15.0f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="leave out the largest case")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--output", default="benchmarks/results/mixtures.json")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    parser.add_argument("--dtype", default="float64", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        return print_memory(options.memory_of, options.dtype)
    names = [n for n in CASES if not (options.quick and "60000" in n) and (options.only or "") in n]
    print("x scikit-learn: how many times faster than it; x GEMM bound: time over that of the dense products")
    print(HEADER)
    results = measure(names)
    versions = {"python": platform.python_version(), "numpy": np.__version__, "sklearn": sklearn.__version__}
    output = Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({"versions": versions, "results": results}, indent=2) + "\n")
    print(f"Wrote {output}")


if __name__ == "__main__":
    main()
