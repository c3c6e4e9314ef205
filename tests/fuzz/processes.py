"""Kills, interrupts, full disks, threads, forks, and workers that stop: processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import cache

import numpy as np

import latently
from tests.contracts.cases import CASES, answers
from tests.fuzz.attack import Finding, chosen, expect, quiet, within

PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LONG = [case for case in CASES if {"checkpoint", "callbacks", "max_iter"} <= case.options]

_FIT = """
import sys, warnings
warnings.simplefilter("ignore")
from tests.contracts.cases import CASES
name, path = sys.argv[1:]
case = next(case for case in CASES if case.name == name)
print("ready", flush=True)
tell = lambda iteration: print("step", flush=True)
options = {"checkpoint": path, "checkpoint_every": 1, "max_iter": 40, "callbacks": [tell]}
model = case.fit(*case.data(n=300, n_features=6), **options)
print("done", flush=True)
"""
_SAVE = """
import sys
import latently
kind, source, path = sys.argv[1:]
model = latently.load(source)
print("ready", flush=True)
while True:
    model.save(path)
"""


def _started(script, *arguments):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([PARENT, *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    line = process.stdout.readline()
    if line != "ready\n":
        raise Finding(f"a process did not start: {process.stderr.read()[-500:]}")
    return process


def _killed(process):
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate()
    return "done" in out


@cache
def _undisturbed(case):
    with quiet():
        X, y = case.data(n=300, n_features=6)
        return answers(case.fit(X, y, max_iter=40), X)


def killed_fit(rng, folder):
    """kill -9 in the middle of fits with checkpoints: resumed, they end as if undisturbed."""
    case, path = chosen(rng, LONG), folder / "c"
    expected, kills = _undisturbed(case), 0
    for _ in range(3):
        process, steps = _started(_FIT, case.name, path), int(rng.integers(1, 20))
        while steps and process.stdout.readline() == "step\n":
            steps -= 1
        time.sleep(rng.exponential(0.02))
        if steps or _killed(process):
            process.communicate()
            break
        kills += 1
    with within(120), quiet():
        X, y = case.data(n=300, n_features=6)
        model = case.fit(X, y, max_iter=40, checkpoint=path, checkpoint_every=1)
    for name, array in answers(model, X).items():
        expect(np.array_equal(array, expected[name]), f"{case}: {name} differs after {kills} kills")
    left = sorted(entry.name for entry in folder.iterdir())
    expect(not left, f"{case}: files are left: {left}")
    return f"{kills} kills"


def killed_save(rng, folder):
    """kill -9 while a model is saved: the old file or the new one, and nothing beside it at the next save."""
    from tests.fuzz.files import SAVED

    source, path = chosen(rng, SAVED), folder / "model.latently"
    model = latently.load(source)
    model.save(path)
    process = _started(_SAVE, "model", source, path)
    time.sleep(rng.exponential(0.03))
    _killed(process)
    try:
        latently.load(path).save(path)
    except Exception as error:
        raise Finding(f"a killed save left {error!r}") from error
    left = sorted(entry.name for entry in folder.iterdir())
    expect(left == ["model.latently"], f"files are left: {left}")
    return "whole"


def interrupted_fit(rng, folder):
    """Ctrl-C at any moment ends a fit at once: with the best so far, or unchanged."""
    case = chosen(rng, [case for case in CASES if "callbacks" in case.options and not case.in_closed_form])
    X, y = case.data(n=400, n_features=6, seed=int(rng.integers(1000)))
    endless = {"max_iter": 10**6, "tol": 0.0}
    model = case.make(**{name: value for name, value in endless.items() if name in case.options})
    before = dict(vars(model))
    with quiet():
        case.fit(X, y)  # imports what it needs: modules half imported are not ours to mend
    wait = rng.exponential(0.2)
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(wait, lambda: os.kill(os.getpid(), signal.SIGINT))
    began = time.monotonic()
    try:
        with within(60), quiet():
            try:
                timer.start()
                model.fit(X, y) if y is not None else model.fit(X)
                ended = "kept the best"
            except KeyboardInterrupt:
                ended = "unchanged"
    finally:
        timer.cancel()
        timer.join()
        signal.signal(signal.SIGINT, old)
    expect(time.monotonic() - began < wait + 20, f"{case}: went on for {time.monotonic() - began:.0f} s")
    if ended == "unchanged":
        same = vars(model).keys() == before.keys()
        expect(same, f"{case}: an interrupted fit left {vars(model).keys() - before.keys()}")
    else:
        with quiet():
            for name, array in answers(model, X).items():
                odd = array.dtype.kind == "f" and not np.all(np.isfinite(array))
                expect(not odd, f"{case}: {name} after an interrupt")
    return ended


def full_disk(rng, folder):
    """A file system without room: the old file stays, and the error names the file."""
    place = folder / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        return "no small file system allowed"
    from tests.fuzz.files import SAVED

    try:
        path = place / "model.latently"
        model = latently.load(chosen(rng, SAVED))
        model.save(path)
        old = path.read_bytes()
        free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        (place / "filler").write_bytes(bytes(max(0, free - int(rng.integers(0, len(old) // 2 + 1)))))
        try:
            model.save(path)
            return "room enough"
        except OSError as error:
            expect(str(path) in str(error), f"the error names no file: {error}")
        expect(path.read_bytes() == old, "the old file is gone")
        expect(
            sorted(entry.name for entry in place.iterdir()) == ["filler", "model.latently"], "files are left"
        )
        return "old file kept"
    finally:
        subprocess.run(["umount", place], capture_output=True, check=True)


def many_threads(rng, folder):
    """One model used, and several fitted, from many threads at once: as one after the other."""
    case = chosen(rng, [case for case in LONG if not case.trained])
    X, y = case.data(n=200, n_features=5)
    with quiet():
        expected = answers(case.fit(X, y), X)
    found, errors = [], []

    def work():
        try:
            model = case.fit(X, y)
            found.append(answers(model, X))
            model.save(folder / "shared.latently")
            found.append(answers(latently.load(folder / "shared.latently"), X))
        except BaseException as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    with within(120), quiet():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expect(not errors, f"{case}: {errors}")
    for said in found:
        for name, array in said.items():
            close = np.allclose(array, expected[name], rtol=1e-10, atol=1e-10)
            expect(close, f"{case}: {name} differs between threads")
    return "same"


def forked(rng, folder):
    """A child made by fork in the middle of a fit fits as its parent does."""
    case = chosen(
        rng, [case for case in CASES if case.name in ("MFA-holes", "MCFA", "NMF", "BNMF", "PPCA-holes")]
    )
    X, y = case.data(n=200, n_features=5)
    with quiet():
        expected = answers(case.fit(X, y), X)
    status = []

    def fork(iteration):
        if status:
            return
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(30)
                said = answers(case.fit(X, y), X)
                code = 0 if all(np.allclose(said[name], expected[name], rtol=1e-8) for name in said) else 2
            finally:
                os._exit(code)
        status.append(os.waitpid(child, 0)[1])

    with within(90), quiet():
        case.fit(X, y, callbacks=[fork])
    expect(status == [0], f"{case}: the child ended with {status}")
    return "same"


def stopped_worker(rng, folder):
    """A Dask worker that is killed: the same bits; one that is paused: a time-out that names it."""
    import dask.array as da
    from distributed import Client, LocalCluster

    from latently.core import cluster as core_cluster

    case = chosen(
        rng, [case for case in CASES if case.name in ("GaussianMixture", "MFA-holes", "MCFA", "NMF")]
    )
    X, _ = case.data(n=400, n_features=5)
    paused = rng.random() < 0.5
    patience = core_cluster.PATIENCE
    with (
        quiet(),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        rows = da.from_array(X, chunks=(50, 5))
        undisturbed = case.fit(rows)
        pids = client.run(os.getpid)
        struck = []

        def strike(iteration):
            if not struck:
                address, pid = chosen(rng, list(pids.items()))
                struck.append((address, pid))
                os.kill(pid, signal.SIGSTOP if paused else signal.SIGKILL)

        try:
            core_cluster.PATIENCE = 5.0
            with within(120):
                model = case.fit(rows, callbacks=[strike])
            ended = "killed: same"
            for name, array in undisturbed._fitted_arrays().items():
                same = np.array_equal(array, model._fitted_arrays()[name])
                expect(same or paused, f"{case}: {name} differs")
        except TimeoutError as error:
            expect(paused, f"{case}: a killed worker ended the fit: {error}")
            expect(struck[0][0] in str(error), f"the time-out does not name {struck[0][0]}: {error}")
            ended = "paused: named"
        finally:
            core_cluster.PATIENCE = patience
            for _, pid in struck:
                if paused:
                    os.kill(pid, signal.SIGCONT)
    return ended


ATTACKS = {
    attack.__name__: attack
    for attack in (
        killed_fit,
        killed_save,
        interrupted_fit,
        full_disk,
        many_threads,
        forked,
        stopped_worker,
    )
}
