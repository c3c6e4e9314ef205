"""Families of densities compared: by `fit` without a model, and by `compare`."""

from __future__ import annotations

import numpy as np

from latently.cli.models import MODELS, numbers_in
from latently.cli.speaking import one_line
from latently.cli.tables import choice_of, kinds_in_words, open_table
from latently.selection import compare
from latently.selection.families import rows_to_search
from latently.tables.preparing import collected, recorded, surveyed


def compared(X, record, request, voice, *, n_bootstrap=0):
    """The `Comparison` of families on rows in memory."""
    few = rows_to_search(*X.shape)
    voice.note(
        f"families of models are compared for at most {request.budget:g} s (--budget)"
        + (f", on {few} rows drawn from {len(X)}" if few < len(X) else "")
    )
    with voice.bar("Comparing families", request.budget) as moved:
        return compare(
            X,
            n_components=None if request.k is None else numbers_in(request.k, "-k"),
            n_factors=None if request.q is None else numbers_in(request.q, "-q"),
            budget=request.budget,
            n_bootstrap=n_bootstrap,
            columns=record.estimator_columns() or None,
            feature_names=record.columns,
            random_state=request.seed,
            refit=False,
            progress=lambda seconds, budget, text: moved(min(seconds, budget)),
        )


def winner(comparison, seed):
    """The name of the best model on the command line, and its estimator, not fitted."""
    best, estimator = comparison.best_, comparison.unfitted(seed)
    return next(name for name, model in MODELS.items() if model.name == type(best).__name__), estimator


def compare_table(request, voice, n_bootstrap):
    """The `Comparison` of families on a table."""
    table = open_table(request.data, request.reading, voice)
    choice = choice_of(request, None, decides=True)
    known = surveyed(table, choice, missing=request.missing, label=request.label)
    record = recorded(known, "MFA", missing=request.missing, standardise=request.standardise)
    if record.kinds:
        voice.note(kinds_in_words(record))
    return compared(np.asarray(collected(known, record).X), record, request, voice, n_bootstrap=n_bootstrap)


def show(comparison, voice):
    """Print the table of a comparison."""
    from pandas import isna

    formats = {"bic": "{:.1f}", "held_out": "{:.4f}", "stability": "{:.2f}", "seconds": "{:.1f}"}
    table = comparison.table_
    columns = [name for name in table if table[name].notna().any()]
    rows = [
        ["" if isna(row[name]) else formats.get(name, "{}").format(row[name]) for name in columns]
        for row in table[columns].astype(object).to_dict("records")
    ]
    voice.table([one_line(name.removeprefix("n_")) for name in columns], rows)
