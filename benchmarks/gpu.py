"""Time per EM iteration on a CUDA device, against the rate of its own matrix product.

    python benchmarks/gpu.py [--output benchmarks/results/gpu.json]

Data are drawn on the device; fits begin from given starting values. The share is that of the floating-point
operations of the products of one iteration, done in the time it takes, in the rate at which the device
multiplies large square matrices of the same dtype.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from latently.mixture import MFA

CASES = {  # name: N, D, K, q, dtype, share of entries that are missing
    "MFA N=1000000 D=784 K=100 q=10 float64": (1_000_000, 784, 100, 10, "float64", 0.0),
    "MFA N=1000000 D=784 K=100 q=10 float32": (1_000_000, 784, 100, 10, "float32", 0.0),
    "MFA N=60000 D=784 K=50 q=10 float64": (60_000, 784, 50, 10, "float64", 0.0),
    "MFA N=60000 D=784 K=50 q=10 float32": (60_000, 784, 50, 10, "float32", 0.0),
    "MFA N=60000 D=784 K=50 q=10 float64, 20 % missing": (60_000, 784, 50, 10, "float64", 0.2),
}
ITERATIONS = 8


def gemm_rate(dtype, n=8192):
    """Operations per second of a large square product, best of a few."""
    a, b = (torch.randn(n, n, dtype=getattr(torch, dtype), device="cuda") for _ in range(2))
    best = 0.0
    for _ in range(4):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(4):
            a @ b
        torch.cuda.synchronize()
        best = max(best, 4 * 2 * n**3 / (time.perf_counter() - begin))
    return best


def make_data(N, D, K, q, missing):
    """Rows of K clusters with a few strong directions each, and means near the true ones."""
    torch.manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, device="cuda")
    means, loadings = draw(K, D), draw(K, D, q) / np.sqrt(D / 20)
    X = draw(N, D)
    labels = torch.randint(K, (N,), device="cuda")
    for k in range(K):
        own = torch.nonzero(labels == k)[:, 0]
        X[own] += means[k] + draw(len(own), q) @ loadings[k].T
    if missing:
        X[torch.rand(N, D, device="cuda") < missing] = torch.nan
    return X, (means + 0.3 * draw(K, D)).cpu().numpy()


def seconds_per_iteration(X, starts, q, dtype):
    K, D = starts.shape
    rng = np.random.default_rng(0)
    times = []

    def note(iteration):
        torch.cuda.synchronize()
        times.append(time.perf_counter())

    model = MFA(
        K,
        q,
        max_iter=ITERATIONS,
        tol=0,
        accelerate=None,
        dtype=dtype,
        weights_init=np.full(K, 1 / K),
        means_init=starts,
        loadings_init=0.3 * rng.standard_normal((K, D, q)),
        noise_init=1.0,
        callbacks=[note],
    )
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    return float(np.median(np.diff(times))), times[0] - begin, float(torch.diff(model.history_).min())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/gpu.json"))
    output = parser.parse_args().output
    rates = {dtype: gemm_rate(dtype) for dtype in ("float64", "float32")}
    results = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "gemm": rates, "cases": {}}
    print(results["device"], {dtype: f"{rate / 1e12:.1f} TFLOP/s" for dtype, rate in rates.items()})
    for name, (N, D, K, q, dtype, missing) in CASES.items():
        X, starts = make_data(N, D, K, q, missing)
        torch.cuda.reset_peak_memory_stats()
        seconds, before, worst = seconds_per_iteration(X, starts, q, dtype)
        operations = 2 * N * D * K * (2 * q + 4)
        share = operations / seconds / rates[dtype]
        memory = torch.cuda.max_memory_allocated() / 1e9
        results["cases"][name] = {"seconds": seconds, "share": share, "before": before, "memory_gb": memory}
        print(
            f"{name}: {1000 * seconds:.1f} ms an iteration, {share:.2f} of the GEMM rate, "
            f"{before:.1f} s before the first, {memory:.1f} GB at most, smallest gain {worst:.2g}",
            flush=True,
        )
        del X
        torch.cuda.empty_cache()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
