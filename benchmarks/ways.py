"""Every way to run a mixture, each beside the plain one: holes, disk, Dask, SQUAREM, time to the optimum.

    python benchmarks/ways.py [--quick] [--output benchmarks/results/ways.json]

All in one run and as ratios, because seconds mean little on another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from mixtures import make_data, make_estimator
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from latently.mixture import MCFA, MFA

ITERATIONS = 6
SMALL, LARGE = (10_000, 784, 10, 10), (60_000, 784, 50, 10)  # N, D, K, q
OPTIMA = {  # with K = 3: factors, log-likelihood per row
    "MFA, iris": (MFA, 2, -1.2016),
    "MFA, wine": (MFA, 3, -12.392),
    "MCFA, iris": (MCFA, 2, -1.7017),
    "MCFA, wine": (MCFA, 3, -13.9725),
}


def seconds_per_iteration(X, starts, q, repeats=2, **options):
    """The best of a few fits from the same starting values, each by its median iteration."""
    best = np.inf
    for _ in range(repeats):
        times = []
        note = lambda iteration, times=times: times.append(time.perf_counter())
        settings = {"accelerate": None, "max_iter": ITERATIONS, "callbacks": [note], **options}
        make_estimator("mfa", starts, q, "float64", **settings).fit(X)
        best = min(best, float(np.median(np.diff(times))))
    return best


def holes(N, D, K, q):
    X, starts = make_data(N, D, K, q)
    complete = seconds_per_iteration(X, starts, q)
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    holed = seconds_per_iteration(X, starts, q)
    return {"complete": complete, "20 % missing": holed, "ratio": holed / complete}


def places(N, D, K, q):
    """In memory, from a file, and on a Dask cluster of one worker with as many threads as there are cores."""
    X, starts = make_data(N, D, K, q)
    found = {"memory": seconds_per_iteration(X, starts, q)}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.npy")
        np.save(path, X)
        del X
        found["file"] = seconds_per_iteration(path, starts, q)
        try:
            found["Dask"] = on_dask(path, starts, q)
        except ImportError:
            print("Dask is not installed: left out")
    return {**found, **{f"{name} / memory": t / found["memory"] for name, t in found.items()}}


def on_dask(path, starts, q):
    import dask.array as da
    from distributed import Client, LocalCluster

    threads = len(os.sched_getaffinity(0))
    with (
        LocalCluster(n_workers=1, threads_per_worker=threads, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        rows = np.load(path, mmap_mode="r")
        return seconds_per_iteration(da.from_array(rows, chunks=(5000, rows.shape[1])), starts, q)


def passes():
    """Passes over the data from the same start: of EM, of SQUAREM, and of SQUAREM until it is as good."""
    data = {
        "wine K=3 q=3": (StandardScaler().fit_transform(load_wine().data), 3, 3),
        "digits K=10 q=6": (load_digits().data, 10, 6),
    }
    found = {}
    for name, (X, K, q) in data.items():
        start = MFA(K, q, max_iter=0, random_state=0).fit(X)
        given = {
            "weights_init": start.weights_,
            "means_init": start.means_,
            "loadings_init": start.loadings_,
            "noise_init": start.noise_variance_,
        }
        fits = [
            MFA(K, q, tol=1e-8, max_iter=20_000, accelerate=accelerate, **given).fit(X)
            for accelerate in (None, "squarem")
        ]
        em, fast = fits
        as_good = int(np.argmax(fast.history_ >= em.history_[-1]))
        found[name] = {
            "EM": em.n_passes_,
            "SQUAREM": fast.n_passes_,
            "ratio": em.n_passes_ / fast.n_passes_,
            "as good as EM after": 3 * as_good + 1,
            "log-likelihood": [float(em.history_[-1]), float(fast.history_[-1])],
        }
    return found


def optima():
    """Seconds to the optimum from the true labels, and where the default fit ends."""
    data = {
        "iris": (load_iris().data, load_iris().target),
        "wine": (StandardScaler().fit_transform(load_wine().data), load_wine().target),
    }
    found = {}
    for name, (model, q, optimum) in OPTIMA.items():
        X, y = data[name.split(", ")[1]]
        start = model(3, q, max_iter=0).fit(X, y)  # all labelled: the parts are the classes
        given = {init: getattr(start, f"{attribute}_") for attribute, init in model._PARAMETERS.items()}
        begin = time.perf_counter()
        fitted = model(3, q, **given).fit(X)
        seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        ends = [float(model(3, q, random_state=seed).fit(X).history_[-1]) for seed in range(5)]
        found[name] = {
            "known optimum": optimum,
            "from the true labels": float(fitted.history_[-1]),
            "seconds": seconds,
            "passes": fitted.n_passes_,
            "default fits": ends,
            "seconds of a default fit": (time.perf_counter() - begin) / 5,
        }
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller data, to see that it runs")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/ways.json"))
    arguments = parser.parse_args()
    small, large = ((2000, 100, 3, 4), (4000, 100, 5, 4)) if arguments.quick else (SMALL, LARGE)
    results = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, measure in {
            f"holes {small}": lambda: holes(*small),
            f"places {large}": lambda: places(*large),
            "passes to tol=1e-8": passes,
            "time to the optimum": optima,
        }.items():
            results[name] = measure()
            print(name, json.dumps(results[name], indent=1), flush=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
