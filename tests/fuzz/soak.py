"""Does anything grow? Thousands of fits in one process, and a stream that never ends and drifts.

    python -m tests.fuzz.soak --fits 2000 --minutes 60

prints memory (MB), threads and open files on the way, and fails if they grew after the first tenth. Of the
stream it prints each minute how many nats a row models lose to the density that new rows come from, and fails
if they lose track of it. `--share 0.2` leaves most of the processor to others.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
import time

import numpy as np
from scipy.special import logsumexp

from latently.mixture import MCFA, MFA, GaussianMixture
from tests.contracts.cases import CASES
from tests.fuzz.attack import quiet

_MORE_MEGABYTES = 60  # than after the first tenth
_MORE_THREADS = _MORE_FILES = 4
_LOST = 0.5  # nats a row, below the density of the rows


def standing():
    """Memory in MB, threads and open files of this process."""
    gc.collect()
    with open("/proc/self/statm") as file:
        memory = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return round(memory), threading.active_count(), len(os.listdir("/proc/self/fd"))


def grown(seen):
    """Whether memory, threads or files grew after the first tenth of what was seen."""
    early, late = seen[max(1, len(seen) // 10)], seen[-1]
    most = (_MORE_MEGABYTES, _MORE_THREADS, _MORE_FILES)
    return any(b - a > more for a, b, more in zip(early, late, most, strict=True))


def many_fits(n_fits):
    seen = []
    for number in range(n_fits):
        case = CASES[number % len(CASES)]
        with quiet():
            X, y = case.data(seed=number // len(CASES))
            case.fit(X, y)
        if number % max(1, n_fits // 20) == 0 and number >= 2 * len(CASES):  # by then all is imported
            seen.append(standing())
            print(f"{number:6d} fits: {seen[-1]}", flush=True)
    seen.append(standing())
    print(f"{n_fits:6d} fits: {seen[-1]}", flush=True)
    return seen


class Drift:
    """Three groups of rows in five dimensions that walk away from where they began, and sway; unit noise."""

    def __init__(self):
        self.centres = np.array([[0.0], [6.0], [12.0]]) + np.zeros(5)

    def at(self, batch):
        return self.centres + 0.0005 * batch + np.sin(batch / 3000) * np.array([1.0, -1.0, 1.0, -1.0, 0.0])

    def rows(self, batch, n, rng):
        return self.at(batch)[rng.integers(3, size=n)] + rng.normal(size=(n, 5))

    def score(self, batch, X):
        squares = ((X[:, None] - self.at(batch)) ** 2).sum(axis=2)
        return (logsumexp(-squares / 2, axis=1) - np.log(3) - 2.5 * np.log(2 * np.pi)).mean()


def stream(minutes, share=1.0):
    """Mixtures learn from batches whose groups drift; their parameters stay finite and follow them."""
    drift, rng, new = Drift(), np.random.default_rng(0), np.random.default_rng(1)
    settings = {"learning_decay": 0.5, "random_state": 0}
    models = {
        "GaussianMixture": GaussianMixture(3, **settings),
        "MFA": MFA(3, 1, **settings),
        "MFA, a tenth missing": MFA(3, 1, **settings),
        "MCFA": MCFA(3, 2, **settings),
    }
    seen, batch = [], 0
    began = told = time.monotonic()
    while time.monotonic() - began < 60 * minutes:
        worked = time.monotonic()
        X = drift.rows(batch, 200, rng)
        holed = np.where(rng.random(X.shape) < 0.1, np.nan, X)
        for name, model in models.items():
            with quiet():
                model.partial_fit(holed if "missing" in name else X)
        batch += 1
        if time.monotonic() - told > min(60, 3 * minutes):
            told = time.monotonic()
            seen.append(standing())
            held_out = drift.rows(batch, 2000, new)
            truth = drift.score(batch, held_out)
            lost = {name: truth - model.score(held_out) for name, model in models.items()}
            said = ", ".join(f"{name} {nats:.3f}" for name, nats in lost.items())
            print(f"{batch:7d} batches: {seen[-1]}; nats a row lost: {said}", flush=True)
            for name, model in models.items():
                arrays = model._fitted_arrays().values()
                if not all(np.all(np.isfinite(array)) for array in arrays):
                    sys.exit(f"{name} has parameters that are not finite")
                if not lost[name] < _LOST:
                    sys.exit(f"{name} lost track of the rows")
        time.sleep((time.monotonic() - worked) * (1 / share - 1))
    return seen


def main():
    parser = argparse.ArgumentParser("python -m tests.fuzz.soak", description=__doc__)
    parser.add_argument("--fits", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--share", type=float, default=1.0, help="of a processor that the stream may take")
    options = parser.parse_args()
    runs = {}
    if options.fits:
        runs["fits"] = many_fits(options.fits)
    if options.minutes:
        runs["the stream"] = stream(options.minutes, options.share)
    for name, seen in runs.items():
        print(f"{name}: {'GREW' if grown(seen) else 'flat'}, {seen[0]} to {seen[-1]} (MB, threads, files)")
    return int(any(map(grown, runs.values())))


if __name__ == "__main__":
    sys.exit(main())
