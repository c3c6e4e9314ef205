"""Does anything grow? Thousands of fits in one process, and a stream that never ends.

    python -m tests.fuzz.soak --fits 2000 --minutes 60

prints memory (MB), threads and open files on the way, and fails if they grew after the first tenth.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
import time

import numpy as np

from latently.mixture import MFA, GaussianMixture
from tests.contracts.cases import CASES
from tests.fuzz.attack import quiet

_MORE_MEGABYTES = 60  # than after the first tenth
_MORE_THREADS = _MORE_FILES = 4


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


def stream(minutes):
    """A mixture learns from batches whose centres drift; its parameters stay finite and follow them."""
    rng, seen, number = np.random.default_rng(0), [], 0
    models = [GaussianMixture(3, random_state=0), MFA(3, 1, random_state=0)]
    began = told = time.monotonic()
    while time.monotonic() - began < 60 * minutes:
        centres = np.array([[0.0], [6.0], [12.0]]) + np.sin(number / 500) * np.ones(5)
        X = centres[rng.integers(3, size=200)] + rng.normal(size=(200, 5))
        for model in models:
            with quiet():
                model.partial_fit(X)
            if hasattr(model, "history_") and len(model.history_) > 10_000:
                model.history_ = model.history_[-10:]  # which is all that grows
        number += 1
        if time.monotonic() - told > 3 * minutes:
            told = time.monotonic()
            seen.append(standing())
            print(f"{number:6d} batches: {seen[-1]}", flush=True)
    for model in models:
        arrays = model._fitted_arrays().values()
        if not all(np.all(np.isfinite(array)) for array in arrays):
            sys.exit(f"{type(model).__name__} has parameters that are not finite")
    seen.append(standing())
    return seen


def main():
    parser = argparse.ArgumentParser("python -m tests.fuzz.soak", description=__doc__)
    parser.add_argument("--fits", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    runs = {"fits": many_fits(options.fits), "the stream": stream(options.minutes)}
    for name, seen in runs.items():
        print(f"{name}: {'GREW' if grown(seen) else 'flat'}, {seen[0]} to {seen[-1]} (MB, threads, files)")
    return int(any(map(grown, runs.values())))


if __name__ == "__main__":
    sys.exit(main())
