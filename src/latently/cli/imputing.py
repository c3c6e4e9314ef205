"""`impute` without a model: choose one for a table by hidden cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from latently.cli.fitting import MIXED, ROWS_TO_CHOOSE_BY, drawn, selected
from latently.cli.models import build, model_named
from latently.cli.speaking import counted
from latently.cli.tables import choice_of, kinds_in_words, open_table
from latently.tables.preparing import collected, recorded, surveyed
from latently.tables.survey import survey

_SIZES, _MOST_FACTORS = (1, 2, 4, 8), 2  # of mixtures of mixed columns


def chosen_imputer(request, voice):
    """A fitted model for the columns of a table, the record of its preparation, its error and that of means.

    The table is read into memory.
    """
    from latently.selection import Imputer
    from latently.selection.imputer import name_of

    table = open_table(request.data, request.reading, voice)
    decides = _lacks_levels(survey(table, missing=request.missing))  # numbers alone have better models
    known = surveyed(table, choice_of(request, None, decides=decides), missing=request.missing)
    if known.mixed:
        return _chosen_mixed_imputer(known, request, voice)
    record = recorded(known, "Imputer", model="imputer", missing=request.missing, standardise=True)
    rows = collected(known, record)
    n_compared = 0

    def compared(candidate):
        nonlocal n_compared
        n_compared += 1
        move(n_compared)

    with voice.bar("Comparing models by hidden cells") as move:
        imputer = Imputer(random_state=request.seed, callbacks=[compared]).fit(rows.X)
    voice.note(
        f"chose {name_of(imputer.best_)} among {counted(n_compared, 'model')}: its error in hidden cells is "
        f"{imputer.best_score_:.3g} standard deviations, that of column means {imputer.baseline_score_:.3g}"
    )
    return imputer.best_, record, imputer.best_score_, imputer.baseline_score_


def _lacks_levels(seen):
    """Whether a column of text, or of two values, has empty cells."""
    empty = seen.n_seen + seen.n_text < seen.n_rows
    two = ~seen.has_more & np.isfinite(seen.two[1])
    return bool(np.any(empty & ((seen.n_text > 0) | two)))


def _chosen_mixed_imputer(known, request, voice):
    """The same for columns of several kinds, of which a mixture with one component has means alone."""
    model = model_named(MIXED)
    record = recorded(known, model.name, model=MIXED, missing=request.missing, seed=request.seed)
    voice.note(kinds_in_words(record))
    rows = collected(known, record)
    most_factors = max(0, (len(record.columns) - len(record.estimator_columns()) - 1) // 2)
    grid = {
        "n_components": [size for size in _SIZES if size == 1 or 10 * size <= rows.n_rows],
        "n_factors": list(range(min(_MOST_FACTORS, most_factors) + 1)),
    }
    estimator = build(model, {}, [], seed=request.seed, max_iter=None, tol=None)
    estimator.set_params(columns=record.estimator_columns())
    few = rows.n_rows <= ROWS_TO_CHOOSE_BY
    by = replace(request, criterion="entries")
    chosen = selected(estimator, rows.X if few else drawn(rows, request.seed, voice), grid, by, voice)
    best = chosen.best_ if few else estimator.set_params(**chosen.best_params_).fit(rows.X)
    of_means, error = np.sqrt(chosen.table_["held_out_error"].iloc[0]), np.sqrt(chosen.best_score_)
    voice.note(
        f"chose MixedMixture({best.n_components}, n_factors={best.n_factors}) among "
        f"{counted(len(chosen.table_), 'model')}: its error in hidden cells is {error:.3g}, in standard "
        f"deviations and wrong levels, that of means and most frequent levels {of_means:.3g}"
    )
    return best, record, error, of_means
