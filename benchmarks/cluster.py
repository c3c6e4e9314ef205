"""Fits on Dask clusters: bytes that a pass over the rows sends, and rows beyond the memory of the workers.

    python benchmarks/cluster.py [--rows 1600000] [--output benchmarks/results/cluster.json]

Workers are processes of this machine. Bytes are all that workers, scheduler and caller write to each other.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import dask.array as da
import numpy as np
from dask import delayed
from distributed import Client, LocalCluster

from latently.deep import DMFA
from latently.factorization import BNMF, NLMF, NMF
from latently.mixture import MCFA, MFA, GaussianMixture
from latently.supervised import MFMClassifier, MJFAClassifier

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for `count_writes`, in workers too
QUICK = {"tol": 0.0, "random_state": 0}
PLAIN = {**QUICK, "n_init": 1, "accelerate": None}


def generated(start, n_rows, D):
    """Rows in three clusters, the same for the same start."""
    rng = np.random.default_rng([7, start])
    X = rng.standard_normal((n_rows, D), dtype=np.float32)
    X += 3 * rng.integers(3, size=(n_rows, 1)).astype(np.float32)
    return np.abs(X)


def lazy_rows(N, D, n_parts):
    """A Dask array whose partitions are made when they are needed."""
    ends = np.linspace(0, N, n_parts + 1).astype(int)
    parts = [
        da.from_delayed(
            delayed(generated, pure=False)(int(a), int(b - a), D), shape=(b - a, D), dtype=np.float32
        )
        for a, b in pairwise(ends)
    ]
    return da.concatenate(parts)


_WRITTEN = [0]


def count_writes():
    """Count the bytes that this process sends."""
    from distributed.comm.tcp import TCP

    from benchmarks import cluster

    plain = TCP.write

    async def write(self, *given, **more):
        n_bytes = await plain(self, *given, **more)
        cluster._WRITTEN[0] += n_bytes or 0
        return n_bytes

    TCP.write = write


def written():
    from benchmarks import cluster

    return cluster._WRITTEN[0]


def sent(client):
    """Bytes that all processes have sent; that of the caller is the one of the scheduler."""
    return written() + sum(client.run(written).values())


def _peak(dask_worker):
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Marks:
    """Notes what all processes have sent so far, after every iteration."""

    def __init__(self, client):
        self.client, self.sent = client, []

    def __call__(self, iteration):
        self.sent.append(sent(self.client))


def bytes_of_a_pass(client, model, X, y=None):
    """Bytes that one iteration sends, the median of several; all have one pass."""
    marks = Marks(client)
    model.set_params(callbacks=[marks], max_iter=6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X) if y is None else model.fit(X, y)
    return float(np.median(np.diff(marks.sent)))


def sizes():
    """Bytes of a pass for models of several sizes, on two and four workers, in 8 and 32 partitions."""
    found = []
    for n_workers in (2, 4):
        with cluster(n_workers) as (client, _):
            for name, make, D, K, q in (
                ("MFA", lambda K, q: MFA(K, q, **PLAIN), 100, 4, 4),
                ("MFA", lambda K, q: MFA(K, q, **PLAIN), 200, 8, 8),
                ("MFA", lambda K, q: MFA(K, q, **PLAIN), 400, 8, 8),
                ("MCFA", lambda K, q: MCFA(K, q, **PLAIN), 400, 8, 8),
                ("GaussianMixture", lambda K, q: GaussianMixture(K, **PLAIN), 100, 4, 0),
                ("GaussianMixture", lambda K, q: GaussianMixture(K, **PLAIN), 200, 4, 0),
                ("NMF", lambda K, q: NMF(K, **QUICK), 400, 8, 0),
            ):
                for n_parts in (8, 32):
                    X = lazy_rows(20_000, D, n_parts)
                    moved = bytes_of_a_pass(client, make(K, q), X)
                    per_feature = {"GaussianMixture": D, "NMF": 1}.get(name, q + 2)
                    parameters = 8 * K * D * per_feature
                    found.append(
                        {"model": name, "D": D, "K": K, "q": q, "workers": n_workers, "partitions": n_parts,
                         "bytes": moved, "parameters": parameters}
                    )  # fmt: skip
                    print(found[-1], flush=True)
    return found


def larger_than_memory(N, D=100, n_workers=4, limit="512MB"):
    """Every model that sweeps, on rows that are larger than the memory of each worker."""
    found = []
    models = {
        "GaussianMixture": GaussianMixture(3, max_iter=2, **PLAIN),
        "MFA": MFA(3, 2, max_iter=2, **PLAIN),
        "MCFA": MCFA(3, 2, max_iter=2, **PLAIN),
        "DMFA": DMFA(2, 2, 2, 1, max_iter=2, n_init=1, **QUICK),
        "MJFAClassifier": MJFAClassifier(1, 2, max_iter=2, temperature=None, **PLAIN),
        "MFMClassifier": MFMClassifier(1, 2, max_iter=2, temperature=None, n_init=1, **QUICK),
        "NMF": NMF(3, max_iter=2, **QUICK),
        "NLMF": NLMF(3, max_iter=2, **QUICK),
        "BNMF": BNMF(3, max_iter=2, n_init=1, **QUICK),
    }
    n_parts = max(16, 4 * N * D // 16_000_000)
    with cluster(n_workers, limit) as (client, limits):
        for name, model in models.items():
            X = lazy_rows(N, D, n_parts)
            y = np.arange(N) % 2 if name.endswith("Classifier") else None
            began = sent(client)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    model.fit(X) if y is None else model.fit(X, y)
                    outcome = "fitted"
                except Exception as error:
                    outcome = f"{type(error).__name__}: {error}"[:300]
            peak = max(client.run(_peak).values())
            moved = sent(client) - began
            found.append(
                {"model": name, "rows": N, "D": D, "bytes of rows": 4 * N * D, "memory limit": limits,
                 "largest worker, MB": round(peak), "sent, MB": round(moved / 1e6, 1), "outcome": outcome}
            )  # fmt: skip
            print(found[-1], flush=True)
    return found


class cluster:
    """A cluster of processes, its client, and the memory limit of each."""

    def __init__(self, n_workers, limit="2GB"):
        self.cluster = LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit=limit,
            dashboard_address=None,
            silence_logs=50,
        )

    def __enter__(self):
        self.client = Client(self.cluster)
        here = str(Path(__file__).resolve().parents[1])
        self.client.run(sys.path.append, here)
        self.client.run(count_writes)
        workers = self.client.scheduler_info()["workers"].values()
        return self.client, next(worker["memory_limit"] for worker in workers)

    def __exit__(self, *error):
        self.client.close()
        self.cluster.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_600_000)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", choices=["sizes", "memory"])
    options = parser.parse_args()
    count_writes()
    results = {}
    if options.only != "memory":
        results["bytes of a pass"] = sizes()
    if options.only != "sizes":
        results["larger than memory"] = larger_than_memory(options.rows)
    if options.output:
        options.output.parent.mkdir(exist_ok=True)
        options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
