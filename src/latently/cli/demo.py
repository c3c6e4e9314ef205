"""`latently demo` and `latently datasets`: tables that come with the library.

The demo is a typical use: a table in a file, one column of which holds the cultivar of each wine; a model
selected by BIC; and a report.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from latently.cli.fitting import Request, fit
from latently.cli.using import Folder, write_page
from latently.cli.writing import DATA, REPORT, check_file, check_kind, write_rows
from latently.core.sources import package
from latently.datasets import load

LABEL = "label"
COMPONENTS, FACTORS = "2..4", "3..5"  # takes some seconds


def as_frame(dataset):
    """A data set as a table: its features by name, and the class names in the column `label`."""
    pandas = package("pandas", "csv", "tables")
    X = np.asarray(dataset.X)
    X = X.reshape(len(X), -1)
    names = dataset.feature_names
    names = [f"feature_{j}" for j in range(1, X.shape[1] + 1)] if names is None else list(map(str, names))
    frame = pandas.DataFrame(X, columns=names)
    if dataset.y is not None:
        classes = dataset.class_names
        frame[LABEL] = dataset.y if classes is None else np.asarray(classes).astype(str)[dataset.y]
    return frame


def write_dataset(name, folder, output, force, as_object):
    """Write the data set with this name; returns the result of `write_rows`."""
    check_kind(output)
    if output is not None:
        check_file(output, force)
    return write_rows([as_frame(load(name, folder))], output, force, as_object=as_object)


def run_demo(output, force, seed, voice, scratch):
    """Select a model of wines and write it, its data and a report to the folder `output`."""
    table = scratch / "wine.csv"
    write_rows([as_frame(load("wine"))], table, force=False)
    request = Request(
        [str(table)], output, force, model="mcfa", k=COMPONENTS, q=FACTORS, label=LABEL, seed=seed
    )  # fmt: skip

    def then(fitted, table_model, folder):
        (folder / DATA).write_bytes(table.read_bytes())
        write_page(
            folder / REPORT,
            Folder(output, table_model),
            fitted.X,
            labels=[fitted.labels[code] for code in fitted.codes],
            row_names=None,
            selection=fitted.selection,
            file="wine",
            n_rows=len(fitted.X),
            data=Path(output) / DATA,
        )

    return fit(request, voice, select_all=True, then=then)
