"""From a table to the rows of a fit, and from later tables to rows alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from latently.core.sources import MISSING, RowWriter, Table, numbers_of
from latently.core.words import counted, shown
from latently.estimators.messages import warn_user
from latently.tables.columns import Choice, chosen_columns, no_column, tell, without_suspects
from latently.tables.kinds import DATES, WITH_LEVELS, Kind, coded, with_levels
from latently.tables.preparation import Preparation
from latently.tables.survey import Survey, numbered, survey, texts_of, without_sentinels

IN_MEMORY_BYTES = 256_000_000  # size beyond which the numbers of a table stay on disk

# What models make of columns, by class: nothing else about a model matters here.
SUMS_OF_PARTS = {"NMF", "NLMF", "BNMF", "BinarySparseCoding"}  # which start from zero: not standardised
SUMS_OF_PARTS |= {"MEIBP", "INBMT", "IBPIBP", "LinearGaussianIBP", "NMTF", "FastNMTF", "PenalizedNMTF"}
_UNIT_ROWS = {"RBM", "DBN"}  # rows from 0 to 1
_TAKES_BINARY = SUMS_OF_PARTS | _UNIT_ROWS | {"VAE", "NLMFClassifier", "DeepNLMF"}


_NO_NUMBER = "cannot be used as a number"


def takes_kinds(class_name):
    """Whether models of this class take categories, ordered answers and counts."""
    return class_name == "MixedMixture"


def takes_binary(class_name):
    """Whether models of this class describe columns of two values."""
    return class_name in _TAKES_BINARY


def standardises(class_name):
    """Whether tables are standardised for models of this class, unless the user decides."""
    return class_name not in SUMS_OF_PARTS | _UNIT_ROWS


@dataclass
class Rows:
    """Rows for a fit: an array, or the path of a .npy file, in the model's units."""

    X: object
    n_rows: int
    codes: np.ndarray | None  # class indices, -1 if unlabelled
    labels: list[str]  # names of the classes, in order of appearance


@dataclass
class Surveyed:
    """A table whose columns are known, and which of them are used."""

    table: Table
    found: Survey
    places: list[int]
    left_out: list[tuple[str, str]]
    sentinels: dict[int, list[float]]  # by place
    kinds: dict[int, Kind]  # by place, of columns that are not plain numbers
    held_out: np.ndarray  # numbers of rows, from 0, that neither preparation nor fit may see

    @property
    def in_memory(self):
        return self.found.kept is not None

    @property
    def mixed(self):
        """Whether only a model of mixed columns takes the table."""
        return bool(self.kinds)


def surveyed(table, choice=None, *, missing=(), label=None, limit=np.inf, hold_out=0.0, seed=0):
    """Read the table, decide which columns, rows and values are used, and tell the user.

    Of a share `hold_out` of the rows, drawn at random, nothing enters the statistics of the table.
    """
    choice = choice or Choice()
    if label is not None and label not in table.columns:
        raise ValueError(no_column(label, table.columns))
    reading = {"missing": missing, "label": label, "limit": limit}
    found = survey(table, **reading)
    chosen = chosen_columns(found, table, choice)
    if choice.takes_kinds is None and not chosen.mixed and not choice.kinds:  # numbers have better models
        chosen = chosen_columns(found, table, replace(choice, takes_kinds=False))
    values = {place: list(told) for place, told in chosen.sentinels.items()}
    summaries = np.array(list(chosen.rows), dtype=int)
    if len(summaries) or values:  # sums again, without them
        found = survey(table, **reading, left_out_rows=summaries, sentinels=values)
    chosen = without_suspects(found, table, chosen, choice)
    held_out = _drawn_rows(found.n_rows + len(summaries), summaries, hold_out, seed)
    if len(held_out):
        without = np.concatenate([summaries, held_out])
        found = survey(table, **reading, left_out_rows=without, sentinels=values)
    kinds = _kinds_of(table, found, chosen, choice)
    tell(found, chosen, choice)
    sentinels = {place: some for place, some in values.items() if place in chosen.places}
    return Surveyed(table, found, chosen.places, chosen.left_out, sentinels, kinds, held_out)


def _kinds_of(table, found, chosen, choice):
    """The kinds of the chosen columns, by place. Categories of too many levels leave the chosen columns."""
    wanted = {place: kind for place, kind in chosen.kinds.items() if place in chosen.places}
    kinds, against = with_levels(table, found, wanted)
    for place, reason in against.items():
        if found.columns[place] not in choice.kinds:
            chosen.places.remove(place)
            chosen.left_out.append((found.columns[place], reason))
    return {place: kind for place, kind in kinds.items() if place in chosen.places and kind.name != "number"}


def _drawn_rows(n_rows, left_out, share, seed):
    """Numbers of a share of the rows, in order."""
    used = np.setdiff1d(np.arange(n_rows), left_out)
    n = round(share * len(used))
    if share and n < 1:
        raise ValueError(f"--hold-out {share:g} of {counted(len(used), 'row')} is none; give a larger share")
    return np.sort(np.random.default_rng(seed).permutation(used)[:n])


def recorded(known, class_name, *, model="", missing=(), as_is=(), standardise=None, seed=0):
    """The record of the preparation for a model of this class."""
    table, found, places = known.table, known.found, known.places
    if standardise is None:  # pixels already share one unit
        standardise = standardises(class_name) and table.image_shape is None
    mean, scale = np.zeros(len(places)), np.ones(len(places))
    if standardise:
        deviation = np.sqrt(found.squares[places] / np.maximum(found.n_seen[places], 1))
        mean, scale = found.mean[places], np.where(deviation > 0, deviation, 1.0)
        discrete = [place in known.kinds and known.kinds[place].name not in DATES for place in places]
        mean, scale = np.where(discrete, 0.0, mean), np.where(discrete, 1.0, scale)
    elif class_name in _UNIT_ROWS:
        low, high = float(np.min(found.least[places])), float(np.max(found.most[places]))
        if low < 0.0 or high > 1.0:  # such as grey levels: one common range, which becomes that from 0 to 1
            mean, scale = np.full(len(places), min(low, 0.0)), np.full(len(places), high - min(low, 0.0))
    n_seen = int(found.n_seen[places].sum())
    whole_image = table.image_shape is not None and len(places) == int(np.prod(table.image_shape))
    return Preparation(
        columns=[found.columns[place] for place in places],
        mean=[float(value) for value in mean],
        scale=[float(value) for value in scale],
        standardised=bool(standardise),
        model=model or class_name,
        n_rows=found.n_rows,
        n_missing=found.n_rows * len(places) - n_seen,
        file=table.path.name,
        left_out=[list(pair) for pair in known.left_out],
        label=found.label,
        labels=sorted(found.labels),
        missing=[text.strip().lower() for text in missing],
        as_is=list(as_is),
        image_shape=list(table.image_shape) if whole_image else None,
        seed=seed,
        densities=[],
        held_out=[],
        selection=None,
        sentinels={found.columns[place]: list(values) for place, values in known.sentinels.items()},
        kinds={found.columns[place]: known.kinds[place].name for place in places if place in known.kinds},
        levels={
            found.columns[place]: list(known.kinds[place].levels)
            for place in places
            if place in known.kinds and known.kinds[place].levels
        },
    )


def collected(known, record, *, scratch=None, in_memory=False):
    """The surveyed rows in the model's units; read a second time if they were too many to keep.

    Then they are written to a file in the folder `scratch`, unless they shall be in memory.
    """
    table, found, places = known.table, known.found, known.places
    codes, labels = (np.concatenate(found.codes) if found.codes else None), list(found.labels)
    if found.kept is not None:
        X = np.concatenate([values[:, places] for values in found.kept])
        found.kept = None
        return Rows(record.to_frame(_finite(X)), found.n_rows, codes, labels)
    chunks = partial(_chunks, known, record, lambda numbers: ~np.isin(numbers, found.left_out_rows))
    if in_memory:
        return Rows(np.concatenate(list(chunks())), found.n_rows, codes, labels)
    path = scratch / "rows.npy"
    with RowWriter(path) as file:
        for values in chunks():
            file.write(values)
    if file.n_rows != found.n_rows:
        raise ValueError(f"{table.name} changed while it was read")
    return Rows(str(path), found.n_rows, codes, labels)


def held_out_chunks(known, record):
    """The rows that were held out of the fit, in the model's units."""
    return _chunks(known, record, lambda numbers: np.isin(numbers, known.held_out))


def _chunks(known, record, wanted):
    """Rows of the table in the model's units, of those numbers that are wanted."""
    found = known.found
    frames = known.table.frames(found.missing, record.read_as_text(record.columns))
    for frame, start in numbered(frames):
        frame = frame[wanted(np.arange(start, start + len(frame)))]
        if len(frame):
            yield record.to_frame(_values(frame[record.columns], record, found.missing, found.decimal)[0])


def _values(frame, record, missing, decimal):
    """(n, D) numbers of the model's columns in the user's units, NaN where missing or not usable; and what
    cells are not usable.
    """
    kinds = [record.kind_of(name) for name in record.columns]
    plain = [j for j, kind in enumerate(kinds) if kind.name in ("number", "count")]
    values, wrong = np.empty(frame.shape), np.zeros(frame.shape, dtype=bool)
    values[:, plain], wrong[:, plain] = numbers_of(frame.iloc[:, plain], missing, decimal)
    wrong |= np.isinf(values) & np.isin(np.arange(len(kinds)), plain)
    for j, kind in enumerate(kinds):
        if j not in plain:
            values[:, j], wrong[:, j] = coded(frame.iloc[:, j], kind, missing)
        elif kind.name == "count":
            wrong[:, j] |= (values[:, j] < 0) | (values[:, j] != np.round(values[:, j])) & ~np.isnan(
                values[:, j]
            )
    sentinels = {record.columns.index(name): some for name, some in record.sentinels.items()}
    values = without_sentinels(_finite(values), sentinels)
    return np.where(wrong, np.nan, values), wrong


FEWEST_ROWS = 10  # by which a model can be judged


def check_enough(estimator, n_rows):
    """Raise an error, or warn, if components would describe a few rows each, or one all of very few."""
    K = estimator.get_params(deep=False).get("n_components")
    if isinstance(K, int) and K > 1 and hasattr(estimator, "predict_proba"):
        if n_rows < 2 * K:
            raise ValueError(
                f"n_components={K} needs at least {2 * K} rows, but there are {n_rows}; "
                "with fewer, components would be single rows"
            )
        if n_rows < 5 * K:
            warn_user(
                f"there are only {n_rows} rows for {K} components, so they may describe chance; "
                "use fewer components"
            )
            return
    if n_rows < FEWEST_ROWS:
        warn_user(
            f"there are only {n_rows} rows, too few to tell whether the model fits: it repeats these "
            f"rows, and what it says of others is a guess; give at least {FEWEST_ROWS}"
        )


def _finite(values):
    """The numbers, with infinities as missing entries."""
    return np.where(np.isinf(values), np.nan, values)


# -- later rows ------------------------------------------------------------------------------------------


@dataclass
class Later:
    """Rows to be prepared like those of the fit."""

    table: Table
    names: list[str]  # the table's names of the model's columns
    missing: tuple[str, ...]
    record: Preparation

    @property
    def decimal(self):
        return self.table.dialect.decimal if self.table.dialect else "."

    @property
    def manner(self):
        """Separator and decimal mark for text output, as in the user's file."""
        dialect = self.table.dialect
        if dialect is None or dialect.separator not in (",", ";", "|"):
            return {}
        return {"separator": dialect.separator, "decimal": dialect.decimal}

    def frames(self, texts=()):
        """Frames, their numbers in the model's columns in the user's units, and the place of their first row.

        Columns in `texts` are kept as text; all columns if it is None. At the end, cells that could not be
        used are told.
        """
        bad: dict[str, list] = {}
        n_rows = 0
        read = None if texts is None else [*texts, *self.record.read_as_text(self.names)]
        for frame, start in numbered(self.table.frames(self.missing, read)):
            n_rows += len(frame)
            yield frame, self._numbers(frame, bad), start
        if n_rows == 0:
            raise ValueError(f"{self.table.name} has no rows")
        for name, (n, example) in bad.items():
            kind = self.record.kind_of(self.record.columns[self.names.index(name)]).name
            what = "hold levels that the fit has not seen" if kind in WITH_LEVELS else f"are no {kind}"
            warn_user(
                f"column {shown(name)}: {counted(n, 'cell')} that {what if kind != 'number' else _NO_NUMBER} "
                f"taken for missing, such as {example}"
            )

    def _numbers(self, frame, bad):
        known = frame[self.names]
        values, wrong = _values(known, self.record, self.missing, self.decimal)
        n_wrong, n_numbers = wrong.sum(axis=0), np.isfinite(values).sum(axis=0)
        for place in map(int, np.flatnonzero(n_wrong)):
            first = known.iloc[int(np.argmax(wrong[:, place])), place]
            example = shown(first, 30)
            kind = self.record.kind_of(self.record.columns[place])
            if n_wrong[place] > n_numbers[place] and kind.name not in WITH_LEVELS:
                what = "infinite values" if isinstance(first, float) and np.isinf(first) else "text"
                what = what if kind.name == "number" else "values"
                raise ValueError(
                    f"the column {shown(self.names[place])} holds {what} such as {example}, but the "
                    f"model was fitted to {kind.name}s; if it marks a missing cell, give --missing {example} "
                    f"(in Python missing=[{example}])"
                )
            before = bad.setdefault(self.names[place], [0, example])
            before[0] += int(n_wrong[place])
        return values

    def labels(self, frame):
        """The label of each row as text, None if missing."""
        return texts_of(frame[self.record.label], self.missing)


def later_rows(table, record, missing=()):
    """The table that a model is applied to."""
    more = (text.strip().lower() for text in missing)
    return Later(table, matching_columns(table, record), (*MISSING, *record.missing, *more), record)


def matching_columns(table, record):
    """The table's names of the model's columns; files without a header are matched by position."""
    missing = [name for name in record.columns if name not in table.columns]
    if not missing:
        return record.columns
    if table.named:
        more = f", and {len(missing) - 1} more of the model's columns are missing" if len(missing) > 1 else ""
        raise ValueError(no_column(missing[0], table.columns) + more)
    numbered_columns = [name for name in table.columns if name.startswith(("column_", "pixel_"))]
    if len(numbered_columns) != len(record.columns):
        raise ValueError(
            f"the data have {counted(len(numbered_columns), 'column')}, "
            f"but the model was fitted to {len(record.columns)}"
        )
    return numbered_columns
