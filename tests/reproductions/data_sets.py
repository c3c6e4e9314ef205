"""Data sets that are files, which not every machine has."""

import os
from pathlib import Path

import pytest


def skip_without(name):
    """Skip the test if the file of a data set is not where `latently.datasets.load` looks for it."""
    folder = Path(os.environ.get("LATENTLY_DATA") or "~/latently_data").expanduser()
    if not (folder / f"{name}.npz").is_file():
        pytest.skip(f"{name}.npz is not in the folder of data sets")
