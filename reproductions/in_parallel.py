"""Chapter 6 of document 003 and DAGMM, in parallel processes on a machine with many cores and a GPU.

    PYTHONPATH=src python -m reproductions.in_parallel --output FOLDER [--minutes 8] [--networks 6]
        [--tables 10] [--resume FOLDER/kept.tar] [--quick]

Settings of the joint autoencoder are chosen first, on training rows, and the tables are then run with them.
FOLDER gets the JSON of each table when it is complete, for `python -m reproductions --retell`, and kept.tar,
by which a run that was stopped goes on, with what was printed. Needs torch, SciPy and scikit-learn, but
nothing that draws: pictures are drawn later, by `python -m reproductions` where kept.tar was unpacked.
"""

from __future__ import annotations

import argparse
import importlib
import io
import multiprocessing
import os
import sys
import tarfile
import time
import traceback
import warnings
from collections import deque
from dataclasses import replace
from pathlib import Path

from reproductions.kept import folder_of_kept

PACKAGE = "reproductions.document_003"
SETTINGS, NETWORKS, TABLES = (
    "table_6_1_settings",
    ("table_6_1", "figures_6_3_6_6", "table_6_2"),
    ("section_2_5_2", "section_2_5_2_spread", "section_2_5_2_as_published"),
)
EVERY = 20.0  # seconds between archives of what is kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=8.0, help="when it stops; 8 by default")
    parser.add_argument("--networks", type=int, default=6, help="processes for images, on the GPU")
    parser.add_argument("--tables", type=int, default=10, help="processes for DAGMM, on the CPU")
    parser.add_argument("--resume", type=Path, metavar="TAR", help="what an earlier run has kept")
    parser.add_argument("--quick", action="store_true", help="tiny settings, to see whether it runs")
    Run(parser.parse_args()).all()


class Run:
    """Tables, the pieces that they wait for, and the processes that these run in."""

    def __init__(self, options):
        self.options, self.began, self.archived = options, time.monotonic(), 0.0
        options.output.mkdir(parents=True, exist_ok=True)
        self.log_file = folder_of_kept() / "log.txt"
        self.waiting = {}  # by module: the reproduction, and how many chains of pieces are left
        self.running = deque()

    def all(self):
        resume = self.options.resume
        if resume is not None and resume.exists():
            with tarfile.open(resume) as archive:
                archive.extractall(folder_of_kept(), filter="data")
        context = multiprocessing.get_context("spawn")
        with context.Pool(self.options.networks) as networks, context.Pool(self.options.tables) as tables:
            for module in TABLES:
                self.add(module, tables)
            self.add(SETTINGS, networks)
            while self.running and self.minutes() < self.options.minutes:
                self.collect(networks)
                time.sleep(0.2)
            left = len(self.running)
            networks.terminate()
            tables.terminate()
        self.archive()
        for module in self.waiting:
            self.log(f"{module} is not complete")
        self.log(f"{left} chains of pieces were not run" if left else "all were run")

    def minutes(self):
        return (time.monotonic() - self.began) / 60

    def add(self, modules, pool, **settings):
        """Run the pieces of these modules, of the same name one after another."""
        names, chains = ([modules] if isinstance(modules, str) else list(modules)), {}
        for name in names:
            reproduction = importlib.import_module(f"{PACKAGE}.{name}").REPRODUCTION
            if settings:
                reproduction = replace(
                    reproduction,
                    settings={**reproduction.settings, **settings},
                    quick_settings={**reproduction.quick_settings, **settings},
                )
            own = {**reproduction.settings, **(reproduction.quick_settings if self.options.quick else {})}
            pieces = importlib.import_module(f"{PACKAGE}.{name}").pieces(own, 0)
            keys = set()
            for key, piece in pieces:
                chains.setdefault(key, []).append(piece)
                keys.add(key)
            self.waiting[name] = reproduction, keys
        for key, chain in chains.items():
            self.running.append((key, pool.apply_async(in_order, (chain,))))

    def collect(self, networks):
        """Look at what has ended, and write the tables that are complete."""
        for _ in range(len(self.running)):
            key, result = self.running.popleft()
            if not result.ready():
                self.running.append((key, result))
                continue
            seconds, noted, error = result.get()
            self.log("\n".join(filter(None, (f"{key}: {seconds:.1f} s", noted, error))))
            if not error:
                for _, keys in self.waiting.values():
                    keys.discard(key)
        for name in [name for name, (_, keys) in self.waiting.items() if not keys]:
            reproduction, _ = self.waiting.pop(name)
            try:
                result = reproduction.run(self.options.quick)
            except Exception:
                self.log(f"{name} failed\n{traceback.format_exc()}")
                continue
            write(
                self.options.output / f"{reproduction.id.rpartition('/')[2]}.json", result.to_json().encode()
            )
            self.log(result.to_markdown())
            if name == SETTINGS:
                module = importlib.import_module(f"{PACKAGE}.{SETTINGS}")
                chosen = module.best(result.records)
                self.log(f"chosen: {chosen}")
                self.add(NETWORKS, networks, options=chosen)
        if time.monotonic() - self.archived > EVERY:
            self.archive()

    def archive(self):
        """Numbers that are kept; not models, which are large and soon trained again."""
        self.archived, content = time.monotonic(), io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for path in [*sorted(folder_of_kept().glob("*.json")), self.log_file]:
                if path.exists():
                    archive.add(path, path.name)
        write(self.options.output / "kept.tar", content.getvalue())

    def log(self, text):
        line = f"{self.minutes():.2f} min: {text}"
        print(line, flush=True)
        with open(self.log_file, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def in_order(chain):
    """Run pieces that need the same model: seconds, a note, and what went wrong.

    What fails on a GPU is run on the CPU.
    """
    warnings.simplefilter("ignore")
    began, noted = time.monotonic(), ""
    while True:
        try:
            for piece in chain:
                piece()
            return time.monotonic() - began, noted, ""
        except Exception:
            joint = sys.modules.get(f"{PACKAGE}._joint")
            if joint is None or joint.DEVICE == "cpu":
                return time.monotonic() - began, noted, traceback.format_exc()
            joint.DEVICE, noted = "cpu", f"on the CPU, since: {traceback.format_exc()}"


def write(path, content):
    """A file that is whole or not there."""
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_bytes(content)
    os.replace(temporary, path)


if __name__ == "__main__":
    main()
