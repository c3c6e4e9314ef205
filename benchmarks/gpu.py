"""Time per iteration and per whole fit on a CUDA device, against the rates of the device.

    python benchmarks/gpu.py [--output results/gpu.json] [--only MFA] [--device cuda] [--quick] [--check]

Data are drawn on the device. `iterations`: plain EM (or sweeps) from the k-means start of a sample, the
median of eight. `gemm` is the share that the operations of the model's matrix products, done in that time,
have of the rate at which the device multiplies large square matrices of the same dtype; `reads` is the time
in times that of reading the rows once. `fits`: seconds of whole fits with the defaults, and what they
reach; the second of two, since a process compiles and loads much at first. With `--check`, `difference` is
the largest between the objectives of a few thousand rows there and with NumPy, in eight iterations, relative
to the objective. Results are one JSON file.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import torch

from latently.deep import DMCFA, DMFA
from latently.factorization import BNMF, NMF
from latently.mixture import MCFA, MFA, MPPCA, FactorAnalysis, GaussianMixture
from latently.supervised import MFMClassifier, MJFAClassifier

ITERATIONS = 8
ROWS_TO_CHECK = 3000


def mfa_products(N, D, K, q):
    """Distances, factors and both sums of the M-step."""
    return 2.0 * N * D * K * (2 * q + 4)


def full_products(N, D, K):
    """Whitened rows, and the sums of their products."""
    return 2.0 * 2.0 * N * D * D * K


# name: the model, N, D, clusters, factors of the data, share of missing entries, operations of its products
CASES = {
    "MFA, 1M x 784, K=100, q=10": (partial(MFA, 100, 10), 1_000_000, 784, 100, 10, 0.0, mfa_products),
    "MFA, 1M x 784, K=100, q=10, float32": (
        partial(MFA, 100, 10, dtype="float32"),
        1_000_000,
        784,
        100,
        10,
        0.0,
        mfa_products,
    ),
    "MFA, 60000 x 784, K=50, q=10": (partial(MFA, 50, 10), 60_000, 784, 50, 10, 0.0, mfa_products),
    "MFA, 60000 x 784, K=50, q=10, 20 % missing": (
        partial(MFA, 50, 10),
        60_000,
        784,
        50,
        10,
        0.2,
        mfa_products,
    ),
    "MPPCA, 60000 x 784, K=50, q=10": (partial(MPPCA, 50, 10), 60_000, 784, 50, 10, 0.0, mfa_products),
    "MCFA, 1M x 784, K=100, q=10": (partial(MCFA, 100, 10), 1_000_000, 784, 100, 10, 0.0, None),
    "MCFA, 60000 x 784, K=50, q=10, 20 % missing": (partial(MCFA, 50, 10), 60_000, 784, 50, 10, 0.2, None),
    "FactorAnalysis, 1M x 784, q=10": (partial(FactorAnalysis, 10), 1_000_000, 784, 100, 10, 0.0, None),
    "GaussianMixture full, 200000 x 100, K=50": (
        partial(GaussianMixture, 50),
        200_000,
        100,
        50,
        10,
        0.0,
        full_products,
    ),
    "GaussianMixture full, 20000 x 100, K=50, 20 % missing": (
        partial(GaussianMixture, 50),
        20_000,
        100,
        50,
        10,
        0.2,
        full_products,
    ),
    "GaussianMixture diag, 1M x 100, K=50": (
        partial(GaussianMixture, 50, covariance_type="diag"),
        1_000_000,
        100,
        50,
        10,
        0.0,
        None,
    ),
    "GaussianMixture tied, 1M x 100, K=50": (
        partial(GaussianMixture, 50, covariance_type="tied"),
        1_000_000,
        100,
        50,
        10,
        0.0,
        None,
    ),
    "NMF, 60000 x 784, r=100": (partial(NMF, 100), 60_000, 784, 50, 10, 0.0, None),
    "BNMF, 60000 x 784, 40 causes": (partial(BNMF, 40, truncation=2), 60_000, 784, 50, 10, 0.0, None),
    "DMFA, 60000 x 100": (
        partial(DMFA, 5, 10, n_subcomponents=2, n_subfactors=3),
        60_000,
        100,
        20,
        10,
        0.0,
        None,
    ),
    "DMCFA, 60000 x 100": (
        partial(DMCFA, 5, 10, n_subcomponents=2, n_subfactors=3),
        60_000,
        100,
        20,
        10,
        0.0,
        None,
    ),
    "MJFAClassifier, 60000 x 784": (partial(MJFAClassifier, 5, 20), 60_000, 784, 10, 10, 0.0, None),
    "MFMClassifier, 60000 x 784": (partial(MFMClassifier, 5, 10), 60_000, 784, 10, 10, 0.0, None),
}


FITS = {  # name: the model with its defaults, and the rows: those of MNIST, or N, D, clusters, factors
    "MFA, MNIST 60000 x 784, K=50, q=10": (partial(MFA, 50, 10), "mnist"),
    "MFA, drawn 60000 x 784, K=50, q=10": (partial(MFA, 50, 10), (60_000, 784, 50, 10)),
    "GaussianMixture full, 100000 x 50, K=10": (partial(GaussianMixture, 10), (100_000, 50, 10, 5)),
    "MCFA, drawn 60000 x 784, K=50, q=10": (partial(MCFA, 50, 10), (60_000, 784, 50, 10)),
    "NMF, MNIST 60000 x 784, r=100": (partial(NMF, 100), "mnist"),
}


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(call, device, repeats=5):
    """The least of a few."""
    best = np.inf
    for _ in range(repeats):
        synchronize(device)
        begin = time.perf_counter()
        call()
        synchronize(device)
        best = min(best, time.perf_counter() - begin)
    return best


def device_rates(device, n):
    """Operations per second of a large square product of each dtype, and bytes per second of reading rows."""
    rates = {}
    for name in ("float64", "float32"):
        a, b = (torch.randn(n, n, dtype=getattr(torch, name), device=device) for _ in range(2))
        rates[name] = 2 * n**3 / seconds_of(partial(torch.matmul, a, b), device)
    rows = torch.zeros(16 * n, n, dtype=torch.float64, device=device)
    rates["bytes read"] = 8 * rows.numel() / seconds_of(rows.sum, device)
    return rates


def make_data(N, D, K, q, missing, device, seed=0):
    """Non-negative rows of K clusters with a few strong directions each, and their clusters."""
    torch.manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, device=device)
    means, loadings = draw(K, D), draw(K, D, q) / np.sqrt(D / 20)
    X = draw(N, D)
    labels = torch.randint(K, (N,), device=device)
    for k in range(K):
        own = torch.nonzero(labels == k)[:, 0]
        X[own] += means[k] + draw(len(own), q) @ loadings[k].T
    X -= X.min()
    if missing:
        X[torch.rand(N, D, device=device) < missing] = torch.nan
    return X, labels


def fitted(model, X, labels, **options):
    known = model.get_params()
    model.set_params(**{name: value for name, value in options.items() if name in known})
    needs_labels = hasattr(model, "predict_log_proba")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, labels) if needs_labels else model.fit(X)


def rows_for(model, X):
    """Counts for binary causes of Poisson rates; others take the rows as they are."""
    return torch.floor(X) if isinstance(model, BNMF) else X


def time_iterations(make, X, labels, device):
    """Seconds of an iteration and before the first, and the least gain of the objective."""
    times = []

    def note(iteration):
        synchronize(device)
        times.append(time.perf_counter())

    plain = {"max_iter": ITERATIONS, "tol": 0, "accelerate": None, "n_init": 1, "shrinkage": 0.0}
    begin = time.perf_counter()
    model = fitted(make(random_state=0), X, labels, callbacks=[note], **plain)
    history = torch.as_tensor(model.history_).cpu().numpy()
    gains = np.diff(history) if hasattr(model, "score_samples") else -np.diff(history)  # costs fall
    return {
        "seconds": float(np.median(np.diff(times))),
        "before": times[0] - begin,
        "smallest gain": float(np.min(gains)),
    }


def difference(make, X, labels):
    """Between the objectives of some rows where they are and in main memory, relative to the objective."""
    plain = {"max_iter": ITERATIONS, "tol": 0, "accelerate": None, "n_init": 1, "shrinkage": 0.0}
    X, labels = X[:ROWS_TO_CHECK], labels[:ROWS_TO_CHECK]
    here = np.asarray(fitted(make(random_state=0), X.cpu().numpy(), labels.cpu().numpy(), **plain).history_)
    there = torch.as_tensor(fitted(make(random_state=0), X, labels, **plain).history_).cpu().numpy()
    return float(np.max(np.abs(there - here) / np.abs(here)))


def iterations(name, device, scale, rates, check):
    make, N, D, K, q, missing, products = CASES[name]
    X, labels = make_data(N // scale, D, K, q, missing, device)
    model = make()
    if getattr(model, "dtype", None) == "float32":
        X = X.float()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    result = time_iterations(make, rows_for(model, X), labels, device)
    if check:
        result["difference"] = difference(make, rows_for(model, X), labels)
    dtype = "float32" if X.dtype == torch.float32 else "float64"
    result["reads"] = result["seconds"] * rates["bytes read"] / (X.element_size() * X.numel())
    if products is not None:
        sizes = (N // scale, D, *model_sizes(model))
        result["gemm"] = products(*sizes) / result["seconds"] / rates[dtype]
    if device == "cuda":
        result["memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return result


def model_sizes(model):
    return [getattr(model, name) for name in ("n_components", "n_factors") if hasattr(model, name)]


def rows_of_fit(rows, device, scale):
    """Rows of FITS, and their clusters if they are drawn."""
    if rows == "mnist":
        from latently.datasets import load

        return torch.as_tensor(load("mnist").X[: 60_000 // scale] / 255.0, device=device), None
    N, D, K, q = rows
    return make_data(N // scale, D, K, q, 0.0, device)


def whole_fit(name, device, scale):
    make, rows = FITS[name]
    X, labels = rows_of_fit(rows, device, scale)
    seconds, reached = [], []
    for seed in range(2):
        synchronize(device)
        begin = time.perf_counter()
        model = fitted(make(random_state=seed), X, labels)
        synchronize(device)
        seconds.append(time.perf_counter() - begin)
        reached.append(
            float(model.score(X)) if hasattr(model, "score_samples") else float(model.history_[-1])
        )
    told = {"seconds": seconds[1], "first": seconds[0], "reached": reached}
    return told | {"iterations": int(model.n_iter_), "passes": int(getattr(model, "n_passes_", 0))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/gpu.json"))
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows, to try the script")
    parser.add_argument("--check", action="store_true", help="compare with NumPy, which takes longer")
    options = parser.parse_args()
    scale, device = (100 if options.quick else 1), options.device
    rates = device_rates(device, 512 if options.quick else 8192)
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    results = {"device": name, "torch": torch.__version__, "rates": rates, "iterations": {}, "fits": {}}
    print(name, {key: f"{rate / 1e12:.2f} T/s" for key, rate in rates.items()})
    parts = {
        "iterations": (CASES, partial(iterations, rates=rates, check=options.check)),
        "fits": (FITS, whole_fit),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    for part, (cases, measure) in parts.items():
        for case in (case for case in cases if options.only in case):
            try:
                found = measure(case, device=device, scale=scale)
            except Exception as error:  # the others are worth their time
                found = {"error": "".join(traceback.format_exception(error)[-3:])}
            results[part][case] = found
            print(
                case,
                {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in found.items()},
            )
            options.output.write_text(json.dumps(results, indent=1))
            if device == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
