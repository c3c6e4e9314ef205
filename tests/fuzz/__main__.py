"""Runs the attacks in turn for some minutes, counts what happened, and keeps what failed."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

from tests.fuzz import files, fits, processes, uses
from tests.fuzz.attack import Finding

ATTACKS = files.ATTACKS | fits.ATTACKS | uses.ATTACKS | processes.ATTACKS
COSTLY = frozenset(processes.ATTACKS)  # of seconds each, tried once for every ten of the others


def main(arguments=None):
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first attack; the next ones count on")
    parser.add_argument("--count", type=int, default=None, help="attacks of each kind, instead of minutes")
    parser.add_argument("--only", default="", help=f"names, separated by commas: {', '.join(ATTACKS)}")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-findings"))
    options = parser.parse_args(arguments)
    names = [name for name in options.only.split(",") if name] or list(ATTACKS)
    counts = {name: Counter() for name in names}
    stop, number = time.monotonic() + 60 * options.minutes, 0
    while (number < options.count) if options.count else (time.monotonic() < stop):
        for name in names:
            if name in COSTLY and len(names) > 1 and number % 10:
                continue
            if options.count or time.monotonic() < stop:
                counts[name][attacked(name, options.seed + number, options.keep)] += 1
        number += 1
    for name in names:
        told = ", ".join(f"{n} {word}" for word, n in sorted(counts[name].items()))
        print(f"{name:24s} {sum(counts[name].values()):6d}: {told}")
    found = sum(count["FINDING"] for count in counts.values())
    print(f"{found} findings" + (f", kept in {options.keep}" if found else ""))
    return 1 if found else 0


def attacked(name, seed, keep):
    """What an attack came to; a finding is written to a folder with all its files."""
    with tempfile.TemporaryDirectory(prefix="latently-fuzz-") as folder:
        try:
            return ATTACKS[name](np.random.default_rng([seed, *name.encode()]), Path(folder))
        except Exception as error:
            expected = isinstance(error, Finding)
            text = str(error) if expected else traceback.format_exc()
            print(f"{name} --seed {seed}: {text}", file=sys.stderr, flush=True)
            home = keep / f"{name}-{seed}"
            home.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(folder, home, dirs_exist_ok=True)
            cause = "".join(traceback.format_exception(error))
            (home / "finding.json").write_text(json.dumps({"attack": name, "seed": seed, "cause": cause}))
            return "FINDING"


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # workers and threads of attacks may be left
