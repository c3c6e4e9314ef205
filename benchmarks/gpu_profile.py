"""Where the time of iterations and whole fits on a CUDA device goes.

    python benchmarks/gpu_profile.py [--only MFA] [--device cuda] [--quick]

For the cases of gpu.py: of each iteration the operations that take the device longest, the kernels launched,
and how often the host waits; of whole fits also the functions of Python in which the time passes.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import time

import torch
from gpu import CASES, FITS, fitted, make_data, rows_for, rows_of_fit, synchronize
from torch.profiler import ProfilerActivity, profile

SHOWN = 15
ITERATIONS = 8
WARM = 3  # iterations before those that are looked at
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernelEx")
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def activities(device):
    return [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]


def told(profiler, seconds, n, device):
    """Print the table of a profile, per iteration of n."""
    events = profiler.key_averages()

    def count(names):
        return sum(event.count for event in events if event.key in names) / n

    def time_of(event):
        return event.self_device_time_total if device == "cuda" else event.self_cpu_time_total

    kernels = [event for event in events if device != "cuda" or str(event.device_type).endswith("CUDA")]
    total = sum(time_of(event) for event in kernels)
    print(
        f"  {1e3 * seconds / n:.2f} ms, {total / n / 1e3:.2f} ms of the device, "
        f"{count(LAUNCHES):.0f} launches, {count(WAITS):.1f} waits, {count(('aten::item',)):.1f} items"
    )
    for event in sorted(kernels, key=time_of, reverse=True)[:SHOWN]:
        print(f"  {time_of(event) / n / 1e3:9.3f} ms {event.count / n:7.1f} x  {event.key[:110]}")
    if device == "cuda":
        print("  and of the host:")
        calls = sorted(events, key=lambda event: event.self_cpu_time_total, reverse=True)[:SHOWN]
        for event in calls:
            share = event.self_cpu_time_total / n / 1e3
            print(f"  {share:9.3f} ms {event.count / n:7.1f} x  {event.key[:110]}")


class Watch:
    """A callback that profiles the iterations after the first few."""

    def __init__(self, device):
        self.device, self.profiler = device, profile(activities=activities(device))

    def __call__(self, iteration):
        if iteration.number == WARM:
            synchronize(self.device)
            self.profiler.start()
            self.begun = time.perf_counter()
        if iteration.number == ITERATIONS:
            synchronize(self.device)
            self.seconds = time.perf_counter() - self.begun
            self.profiler.stop()


def iterations(name, device, scale):
    make, N, D, K, q, missing, _ = CASES[name]
    X, labels = make_data(N // scale, D, K, q, missing, device)
    model = make(random_state=0)
    if getattr(model, "dtype", None) == "float32":
        X = X.float()
    watch = Watch(device)
    plain = {"max_iter": ITERATIONS, "tol": 0, "accelerate": None, "n_init": 1, "shrinkage": 0.0}
    fitted(model, rows_for(model, X), labels, callbacks=[watch], **plain)
    told(watch.profiler, watch.seconds, ITERATIONS - WARM, device)


def whole_fit(name, device, scale):
    make, rows = FITS[name]
    X, labels = rows_of_fit(rows, device, scale)
    fitted(make(random_state=0), X, labels)
    calls = cProfile.Profile()
    begun = time.perf_counter()
    with profile(activities=activities(device)) as profiler:
        model = fitted(make(random_state=1), X, labels)
        synchronize(device)
    told(profiler, time.perf_counter() - begun, 1, device)
    calls.enable()
    fitted(make(random_state=1), X, labels)
    calls.disable()
    text = io.StringIO()
    pstats.Stats(calls, stream=text).sort_stats("cumulative").print_stats("latently", 40)
    print(f"  {model.n_iter_} iterations, {getattr(model, 'n_passes_', 0)} passes")
    print("\n".join(line for line in text.getvalue().splitlines() if "latently" in line))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names that contain one of these, separated by semicolons")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows, to try the script")
    parser.add_argument("--fits", action="store_true", help="whole fits in place of iterations")
    options = parser.parse_args()
    cases, look = (FITS, whole_fit) if options.fits else (CASES, iterations)
    for name in cases:
        if any(part in name for part in options.only.split(";")):
            print(name, flush=True)
            look(name, options.device, 100 if options.quick else 1)
            if options.device == "cuda":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
