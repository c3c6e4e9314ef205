"""Unlucky uses: rows, options, weights and classes in odd forms, and copies of models in mid-use."""

from __future__ import annotations

import copy
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse
from sklearn.base import clone

from latently.mixture import MixedMixture
from tests.contracts.cases import CASES, answers
from tests.fuzz.attack import Finding, chosen, expect, quiet, within

CLEAR = (ValueError, TypeError, FileNotFoundError)


def table(X, **options):
    return pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])], **options)


def spread_out(X):
    """A view of every second row and third column of something else."""
    whole = np.full((2 * len(X), 3 * X.shape[1]), np.pi)
    whole[::2, ::3] = X
    return whole[::2, ::3]


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def first(X, value):
    """The array with another first entry."""
    return np.where(np.arange(X.size).reshape(X.shape) == 0, value, X)


# The same numbers in forms that arrays and tables come in: the same fit, or a clear refusal.
SAME = {
    "objects": lambda X: X.astype(object),
    "None": lambda X: np.where(np.isnan(X), None, X.astype(object)),
    "pandas.NA": lambda X: np.where(np.isnan(X), pd.NA, X.astype(object)),
    "decimals": lambda X: np.array([[Decimal(float(v)) for v in row] for row in X], dtype=object),
    "fractions": lambda X: np.array([[v if np.isnan(v) else Fraction(v) for v in row] for row in X], object),
    "text": lambda X: X.astype(str),
    "text objects": lambda X: X.astype(str).astype(object),
    "bytes": lambda X: X.astype("S30"),
    "complex": lambda X: X.astype(complex),
    "csr": scipy.sparse.csr_matrix,
    "coo": scipy.sparse.coo_array,
    "masked": lambda X: np.ma.masked_array(np.nan_to_num(X, nan=77.0), mask=np.isnan(X)),
    "Fortran": np.asfortranarray,
    "reversed": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "spread out": spread_out,
    "read-only": read_only,
    "big-endian": lambda X: X.astype(">f8"),
    "long double": lambda X: X.astype(np.longdouble),
    "matrix": np.matrix,
    "lists": lambda X: X.tolist(),
    "tuples": lambda X: tuple(map(tuple, X.tolist())),
    "structured": lambda X: np.array(
        [tuple(row) for row in X], [(f"f{j}", float) for j in range(X.shape[1])]
    ),
    "table": table,
    "nullable table": lambda X: table(X).astype("Float64"),
    "Arrow columns": lambda X: table(X).astype("double[pyarrow]"),
    "table of objects": lambda X: table(X).astype(object),
    "table of NA": lambda X: table(X).astype(object).where(~np.isnan(X), pd.NA),
    "categories": lambda X: table(X).astype("category"),
    "one name": lambda X: pd.DataFrame(X, columns=["a"] * X.shape[1]),
    "pairs of names": lambda X: pd.DataFrame(
        X, columns=[("a" if j < 2 else "b", j) for j in range(X.shape[1])]
    ),
    "one index": lambda X: table(X, index=[0] * len(X)),
    "odd names": lambda X: pd.DataFrame(X, columns=["", "\n", "\0", "<b>", *range(99)][: X.shape[1]]),
    "numbers for names": pd.DataFrame,
    "sparse table": lambda X: table(X).astype(pd.SparseDtype(float, 0.0)),
    "polars": lambda X: pl.from_pandas(table(X)),
    "polars nulls": lambda X: pl.from_pandas(table(X)).fill_nan(None),
    "Arrow": lambda X: pa.table(dict(table(X))),
    "Arrow in chunks": lambda X: pa.concat_tables([pa.table(dict(table(part))) for part in (X[:7], X[7:])]),
}
# What is no table of numbers.
NO_ROWS = {
    "complex": lambda X: X + 1j,
    "three dimensions": lambda X: X[None],
    "one dimension": lambda X: X[:, 0],
    "a number": lambda X: np.array(3.0),
    "no rows": lambda X: X[:0],
    "no columns": lambda X: X[:, :0],
    "None": lambda X: None,
    "a missing file": lambda X: "no file.csv",
    "bytes": lambda X: b"abc",
    "a dict": lambda X: {"a": 1},
    "a set": lambda X: {1, 2},
    "a generator": lambda X: (row for row in X.tolist()),
    "ragged lists": lambda X: [[1.0], [1.0, 2.0]],
    "an empty list": lambda X: [],
    "an object": lambda X: object(),
    "times": lambda X: np.nan_to_num(X).astype("datetime64[s]"),
    "spans of time": lambda X: np.nan_to_num(X).astype("timedelta64[s]"),
    "infinity": lambda X: first(X, np.inf),
    "a word": lambda X: first(X.astype(object), "word"),
    "dates": lambda X: table(X).assign(c0=pd.Timestamp("2020-01-01")),
    "words": lambda X: table(X).assign(c0="w"),
    "lists in cells": lambda X: table(X).assign(c0=[[1, 2]] * len(X)),
    "a series": lambda X: pd.Series(X[:, 0]),
    "an empty table": lambda X: pd.DataFrame(),
    "periods": lambda X: table(X).assign(c1=pd.period_range("2020-01", periods=len(X), freq="M")),
    "intervals": lambda X: table(X).assign(c1=pd.interval_range(0, len(X))),
    "words of polars": lambda X: pl.from_pandas(table(X)).with_columns(c0=pl.lit("x")),
    "lists of polars": lambda X: pl.from_pandas(table(X)).with_columns(c0=pl.lit([1, 2])),
    "integers beyond floats": lambda X: np.full(X.shape, 10**400, dtype=object),
    "an estimator": lambda X: CASES[0].make(),
    "a class": lambda X: type(X),
}


def refusal(error, *words):
    """That an error is one for users: of the right kind, and naming the argument."""
    clear = isinstance(error, CLEAR) and not isinstance(error, np.linalg.LinAlgError)
    expect(clear and any(word in str(error) for word in words), f"{words[0]} is not named: {error!r}")
    return "refused"


def odd_rows(rng, folder):
    """Rows in another form give the same model, or a refusal that names X, and stay as they were."""
    case = chosen(rng, CASES)
    X, y = case.data(seed=int(rng.integers(1000)))
    kinds = SAME if rng.random() < 0.7 else NO_ROWS
    name = chosen(rng, kinds)
    (folder / "case.txt").write_text(f"{case.name} {name}")
    given, before = kinds[name](X), kinds[name](X)
    with within(60), quiet():
        try:
            model = case.fit(given, y)
        except Exception as error:
            return refusal(error, "X", "rows", "feature names", "column", "no file")
        expect(kinds is SAME or case.cls is MixedMixture, f"{case} took {name} for rows")
        if kinds is NO_ROWS:
            return "taken for categories"
        said, expected = answers(model, given, case.settled), answers(case.fit(X, y), X, case.settled)
    for method, array in expected.items():
        tolerance = 1e-9 * np.abs(array).max(initial=1.0) if array.dtype.kind == "f" else 0.0
        close = np.allclose(
            array, said[method].astype(array.dtype), rtol=1e-9, atol=tolerance, equal_nan=True
        )
        expect(close, f"{case}: {method} differs for {name}")
    if isinstance(given, np.ndarray | pd.DataFrame):
        same = repr(np.asarray(given).tolist()) == repr(np.asarray(before).tolist())
        expect(same, f"{case} changed its rows: {name}")
    return "same"


ODD = (
    *(
        True,
        False,
        None,
        np.nan,
        np.inf,
        -np.inf,
        -1,
        0,
        1,
        2,
        3,
        0.5,
        2.0,
        1e-300,
        1e300,
        10**9,
        2**63,
        10**30,
    ),
    *(np.int8(2), np.uint64(2), np.float32(0.5), np.float64(2), np.bool_(True), np.str_("auto"), np.array(2)),
    *(
        "",
        "2",
        "auto",
        "none",
        b"2",
        "\0",
        1j,
        Decimal(1),
        Fraction(1, 2),
        Ellipsis,
        NotImplemented,
        object(),
    ),
    *(
        (),
        [],
        {},
        [1],
        [2, 2],
        (1, 2),
        [None],
        ["a"],
        {1},
        {"a": 1},
        [[1.0]],
        [np.nan],
        range(2),
        np.zeros(0),
    ),
    *(
        np.zeros((2, 4)),
        np.full((2, 4), np.nan),
        np.array([object()]),
        int,
        len,
        np,
        CASES[0].make(),
        type(None),
    ),
    *(
        pd.NA,
        pd.NaT,
        pd.Series([1.0, 2.0]),
        np.datetime64("2020-01-01"),
        "x" * 10**5,
        slice(None),
        -0.0,
        5e-324,
    ),
)


def sound(fit, X, said, *words):
    """What comes of a fit: a refusal that names one of the words, or a model whose answers are no NaN."""
    try:
        model = fit()
    except Exception as error:
        try:
            return refusal(error, *words)
        except Finding as finding:
            raise Finding(f"{said}: {finding}") from error
    for method, array in answers(model, X).items():
        odd = array.dtype.kind == "f" and np.isnan(array).any()
        expect(not odd, f"{said}: {method} gave NaN")
    return "taken"


def odd_option(rng, folder):
    """Any value of any option: a refusal that names the option, or a model whose answers are no NaN."""
    case = chosen(rng, CASES)
    names = sorted(case.options - {"n_jobs", "callbacks", "checkpoint", "verbose"})
    name, value = chosen(rng, names), chosen(rng, ODD)
    if name in ("max_iter", "cv", "n_init", "fine_tune", "fine_tune_iter", "steps") and isinstance(
        value, int
    ):
        value = min(value, 3)  # which is only long
    said = repr(value)[:60]
    (folder / "case.txt").write_text(f"{case.name} {name}={said}")
    X, y = case.data(seed=int(rng.integers(1000)))
    with within(60), quiet():
        return sound(lambda: case.fit(X, y, **{name: value}), X, f"{case} {name}={said}", name)


WEIGHTS = {
    "ones": lambda w: np.ones(len(w)),
    "one row": lambda w: np.arange(len(w)) == 0,
    "zeros": lambda w: 0 * w,
    "negative": lambda w: -w,
    "NaN": lambda w: first(w, np.nan),
    "infinity": lambda w: first(w, np.inf),
    "None": lambda w: first(w, None),
    "words": lambda w: np.full(len(w), "x"),
    "text": lambda w: w.astype(str),
    "complex": lambda w: w + 1j,
    "one": lambda w: 1.0,
    "a word": lambda w: "balanced",
    "column": lambda w: w[:, None],
    "too few": lambda w: w[:-1],
    "flags": lambda w: w > np.median(w),
    "series": lambda w: pd.Series(w, index=range(7, 7 + len(w))),
    "list": lambda w: w.tolist(),
    "nullable": lambda w: pd.Series(w).astype("Float64").where(w > w.min(), pd.NA),
    "dict": lambda w: {0: 1.0, 1: 2.0},
    "times": lambda w: w.astype("timedelta64[s]"),
    "sparse": lambda w: scipy.sparse.csr_array(w[None]),
    "read-only": read_only,
    "half": lambda w: w.astype(np.float16),
    "huge": lambda w: w * 1e300,
    "tiny": lambda w: w * 5e-324,
}
LABELS = {
    "NaN": lambda y: first(y, np.nan),
    "None": lambda y: first(y, None),
    "NA": lambda y: pd.Series(y).astype("Int64").where(np.arange(len(y)) > 0, pd.NA),
    "flags": lambda y: y > 0,
    "words": lambda y: np.array(["-1", "a<b>", "", "\n"])[y],
    "words and numbers": lambda y: np.where(y > 0, "a", y.astype(object)),
    "categories": lambda y: pd.Series(pd.Categorical(y, categories=[5, *range(-1, 4)])),
    "column": lambda y: y[:, None],
    "two columns": lambda y: np.c_[y, y],
    "one class": lambda y: 0 * y,
    "each its own": lambda y: np.arange(len(y)),
    "too few": lambda y: y[:-1],
    "fractions": lambda y: y + 0.5,
    "infinity": lambda y: first(y, np.inf),
    "complex": lambda y: y + 1j,
    "times": lambda y: y.astype("datetime64[s]"),
    "bytes": lambda y: y.astype("S3"),
    "objects": lambda y: np.array([object() for _ in y]),
    "tuples": lambda y: [(int(k), 1) for k in y],
    "polars": lambda y: pl.Series(y),
    "Arrow": lambda y: pa.array(y),
    "one index": lambda y: pd.Series(y, index=[0] * len(y)),
    "small": lambda y: y.astype(np.int8),
    "big": lambda y: y.astype(np.uint64) + np.uint64(2**63),
    "a word": lambda y: "abc",
    "a number": lambda y: 3,
    "a set": lambda y: set(y.tolist()),
    "read-only": read_only,
}


def odd_beside(rng, folder):
    """Weights or classes in another form: a refusal that names them, or a sound model."""
    of_classes = rng.random() < 0.5
    case = chosen(rng, [case for case in CASES if (case.is_classifier if of_classes else case.takes_weights)])
    X, y = case.data(seed=int(rng.integers(1000)))
    weight = rng.uniform(0.5, 2, len(X))
    name = chosen(rng, LABELS if of_classes else WEIGHTS)
    (folder / "case.txt").write_text(f"{case.name} {name}")
    with within(60), quiet():
        if of_classes:
            words = ("y", "class", "label", "unlabelled")
            return sound(lambda: case.fit(X, LABELS[name](y)), X, f"{case} with {name}", *words)
        words = ("sample_weight", "weight", "n_samples")
        return sound(lambda: case.fit(X, y, WEIGHTS[name](weight)), X, f"{case} with {name}", *words)


# -- models in mid-use ------------------------------------------------------------------------------------


def copied_model(rng, folder):
    """A copy of a fitted model, by whatever means, says the same, learns the same, and shares nothing."""
    case = chosen(rng, CASES)
    seed = int(rng.integers(1000))
    X, y = case.data(seed=seed)
    ways = {
        "pickle": lambda model: pickle.loads(pickle.dumps(model)),
        "deepcopy": copy.deepcopy,
        "copy": copy.copy,
        "clone": lambda model: case.fit(X, y, to=clone(model)),
        "params": lambda model: case.fit(X, y, to=type(model)(**model.get_params(deep=False))),
    }
    way = chosen(rng, ways)
    (folder / "case.txt").write_text(f"{case.name} {way} {seed}")
    with within(60), quiet():
        model = case.fit(X, y)
        expected = answers(model, X)
        other = ways[way](model)
        _same(case, answers(other, X), expected, way)
        labels = () if y is None else (y,)
        if hasattr(model, "partial_fit") and way in ("pickle", "deepcopy"):
            for one in (model, other):
                try:
                    one.partial_fit(X[:20], *(part[:20] for part in labels))
                except ValueError as error:
                    return refusal(error, "partial_fit", "class", "row")
            _same(case, answers(other, X), answers(model, X), f"partial_fit after {way}")
        elif way in ("pickle", "deepcopy", "copy"):
            case.fit(X[::-1], None if y is None else y[::-1], to=other)
            _same(case, answers(model, X), expected, f"a fit of a {way}")
    return way


def _same(case, said, expected, way):
    for name, array in expected.items():
        same = np.array_equal(array, said[name], equal_nan=array.dtype.kind == "f")
        expect(same, f"{case}: {name} differs after {way}")


def reused_model(rng, folder):
    """A model that was fitted to other rows, with another number of columns, is fitted as a new one."""
    case = chosen(rng, CASES)
    X, y = case.data(seed=int(rng.integers(1000)))
    wide, classes = case.data(n=50, n_features=6, seed=5)
    (folder / "case.txt").write_text(case.name)
    with within(60), quiet():
        new = case.fit(table(X), y)
        model = case.make()
        try:
            model = case.fit(pd.DataFrame(wide, columns=list("uvwxyz")), classes, to=model)
        except ValueError as error:
            return refusal(error, "X", "n_features", "shape", "column", "columns")
        case.fit(table(X), y, to=model)
        left = sorted(vars(model).keys() ^ vars(new).keys())
        expect(not left, f"{case}: an earlier fit left {left}")
        _same(case, answers(model, table(X)), answers(new, table(X)), "another fit")
        for name in ("predict", "score_samples", "transform"):
            if hasattr(model, name):
                try:
                    getattr(model, name)(table(X)[::-1].iloc[:, ::-1])
                except ValueError as error:
                    refusal(error, "feature names", "columns")
                else:
                    raise Finding(f"{case}: {name} took columns in another order")
    return "as new"


ATTACKS = {
    attack.__name__: attack for attack in (odd_rows, odd_option, odd_beside, copied_model, reused_model)
}
