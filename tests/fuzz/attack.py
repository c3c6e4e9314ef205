"""What attacks share: findings, limits of time and memory, and a watch over what must not happen."""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
import threading
import warnings

import numpy as np

# What loading a file must never do. Modules of our own may be imported, which opens files to read.
_FORBIDDEN = {
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "pickle.find_class"),
    *("socket.connect", "socket.bind", "os.remove", "os.rename", "shutil.rmtree", "os.mkdir", "os.chmod"),
}
_watching = threading.local()


class Finding(Exception):
    """The library broke a promise."""


def expect(condition, message):
    if not condition:
        raise Finding(message)


@contextlib.contextmanager
def within(seconds):
    """A hang is a finding. Works in the main thread only."""

    def late(signum, frame):
        raise Finding(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def memory_within(megabytes):
    """More memory than that is a finding, whether it was there or not."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 1_500_000_000, hard))
    try:
        yield
    except MemoryError as error:
        raise Finding(f"MemoryError: {error}") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    expect(taken < megabytes, f"took {taken:.0f} MB of memory")


def _audit(event, args):
    if getattr(_watching, "on", False):
        writes = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
        if (event in _FORBIDDEN or writes) and "torchinductor" not in str(args[0]):  # made by importing torch
            _watching.seen.append(f"{event} {args!r}"[:200])


_hooked = []


@contextlib.contextmanager
def nothing_is_run():
    """A process, a connection or a written file is a finding."""
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked.append(True)
    _watching.on, _watching.seen = True, []
    try:
        yield
    finally:
        _watching.on = False
    expect(not _watching.seen, f"loading ran {_watching.seen}")


def chosen(rng, options):
    """One of the options, of whatever types."""
    options = list(options)
    return options[int(rng.integers(len(options)))]


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
