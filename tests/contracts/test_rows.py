"""Methods of every fitted estimator: each row for itself, from wherever rows come and in whatever form."""

import copy
import inspect
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import latently
from latently.core import io
from latently.core.io import ModelFileError
from tests.contracts.cases import (
    CASES,
    CLOSE,
    ROW_METHODS,
    D,
    answers,
    assert_equal,
    every_case,
    expected,
    fitted,
    from_source,
    having,
    in_every_form,
    state,
)

NEAR = {"rtol": 1e-8, "atol": 1e-9}


# -- rows ---------------------------------------------------------------------------------------------


def by_row(said, n):
    """Without covariances of the factors that all rows have in common."""
    return {name: array for name, array in said.items() if len(array) == n}


@every_case
def test_every_row_is_for_itself(case):
    X = case.data(seed=1)[0]
    order = np.random.default_rng(0).permutation(len(X))[:23]
    whole = by_row(answers(fitted(case), X), len(X))
    assert_equal(
        by_row(answers(fitted(case), X[order]), 23),
        {name: array[order] for name, array in whole.items()},
        **NEAR,
    )
    one = {name: array[order[:1]] for name, array in whole.items()}
    assert_equal({name: answers(fitted(case), X[order[:1]])[name] for name in one}, one, **NEAR)


@having(options=("block_size",))
def test_blocks_do_not_matter(case):
    X, y = case.data()
    for size in (1, 7):
        blocks = copy.copy(fitted(case)).set_params(block_size=size)
        assert_equal(answers(blocks, X), expected(case), **NEAR)
    blocks = answers(case.fit(X, y, block_size=7), X, case.settled)
    assert_equal(blocks, answers(fitted(case), X, case.settled), **CLOSE)


@every_case
def test_results_can_go_to_a_file(case, tmp_path):
    X = case.data()[0]
    for method in ROW_METHODS:
        bound = getattr(fitted(case), method, None)
        if bound is not None and "out" in inspect.signature(bound).parameters:
            path = tmp_path / f"{method}.npy"
            np.testing.assert_array_equal(bound(X, out=path), bound(X), err_msg=method)
            np.testing.assert_array_equal(np.load(path), bound(X), err_msg=method)
            with pytest.raises(ValueError, match="out"):
                bound(X, out=tmp_path / "nowhere" / "rows.npy")


FORMS = {
    "list": np.ndarray.tolist,
    "frame": lambda X: pd.DataFrame(X, columns=list("abcdefgh")[: X.shape[1]]),
    "fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "float32": lambda X: X.astype(np.float32),
    "object": lambda X: X.astype(object),
    "long double": lambda X: X.astype(np.longdouble),
    "big-endian": lambda X: X.astype(">f8"),
    "read-only": lambda X: np.frombuffer(np.ascontiguousarray(X).tobytes()).reshape(X.shape),
}
INTEGERS = ["int8", "float16", "bool"]


@in_every_form("form", FORMS, of_all=("frame", "float32"))
def test_the_form_of_rows_does_not_matter(case, form):
    X, y = case.data()
    before = X.copy()
    model = case.fit(FORMS[form](X), y)
    close = case.float32 if form == "float32" else CLOSE
    assert_equal(answers(model, FORMS[form](X)), expected(case), **close)
    np.testing.assert_array_equal(X, before)  # which are left alone


@in_every_form("kind", INTEGERS, of_all=("int8",), cases=[case for case in CASES if not case.holes])
def test_whole_numbers_are_their_values(case, kind):
    """Small integers must not wrap around anywhere."""
    most = 2 if kind == "bool" or case.rows == "unit" else 120
    X = np.random.default_rng(3).integers(0, most, size=(60, D)) + 0.0
    X, y = (X, None) if case.rows == "unit" else case.like(X)
    y = None if y is None else np.arange(60) % case.n_classes  # of which all features vary
    whole = case.fit(X.astype(kind), y)
    assert_equal(answers(whole, X.astype(kind)), answers(case.fit(X, y), X), rtol=1e-6, atol=1e-7)


@every_case
def test_features_have_names(case):
    X, y = case.data()
    table = pd.DataFrame(X, columns=list("abcd"))
    model = case.fit(table, y)
    assert list(model.feature_names_in_) == list("abcd") and model.n_features_in_ == D
    assert not hasattr(fitted(case), "feature_names_in_")
    for name in answers(model, table):
        method = getattr(model, name.partition(".")[0])
        with pytest.raises(ValueError, match="feature names"):
            method(table[list("bacd")])
        with pytest.warns(UserWarning, match="feature names"):
            method(X)
        with pytest.raises(ValueError, match="features"):
            getattr(fitted(case), name.partition(".")[0])(X[:, :3])


@every_case
def test_nothing_before_fit(case):
    X = case.data()[0]
    model = case.make()
    for method in (*ROW_METHODS, "score", "bic", "aic", "icl"):
        if hasattr(model, method) and not (case.is_classifier and method in ("score", "bic", "aic")):
            with pytest.raises(NotFittedError):
                getattr(model, method)(X)
    for method in ("sample", "n_parameters", "collapse"):
        if hasattr(model, method):
            with pytest.raises(NotFittedError):
                getattr(model, method)()
    if case.has("save"):
        with pytest.raises(NotFittedError):
            model.save("unused")


@having("transform", "inverse_transform")
def test_factors_and_back(case):
    X = case.data()[0]
    Z = fitted(case).transform(X)
    assert Z.shape == (len(X), len(fitted(case).get_feature_names_out()))
    assert fitted(case).inverse_transform(Z).shape == X.shape
    with pytest.raises(ValueError, match=r"columns?|features"):
        fitted(case).inverse_transform(np.zeros((2, Z.shape[1] + 1)))
    table = pd.DataFrame(X, columns=list("abcd"), index=range(100, 100 + len(X)))
    model = case.make().set_output(transform="pandas")
    out = case.fit(table, case.data()[1], to=model).transform(table)
    assert list(out.columns) == [f"{case.cls.__name__.lower()}{i}" for i in range(Z.shape[1])]
    assert list(out.index) == list(table.index)
    # sums over the columns of a table are rounded in another order
    np.testing.assert_allclose(out.to_numpy(), Z, rtol=1e-9, atol=1e-8)


@every_case
def test_in_a_pipeline(case):
    X, y = case.data()
    scaler = StandardScaler() if case.rows == "real" else FunctionTransformer()
    pipe = make_pipeline(scaler, case.make())
    case.fit(X, y, to=pipe)
    Z = scaler.fit_transform(X)
    alone = case.fit(Z, y)
    for method in ("score_samples", "predict", "predict_proba", "transform"):
        if hasattr(alone, method):
            np.testing.assert_array_equal(getattr(pipe, method)(X), getattr(alone, method)(Z), err_msg=method)


# -- criteria and draws -------------------------------------------------------------------------------


@having("bic", is_classifier=False)
def test_criteria_are_what_their_names_say(case):
    X, model = case.data()[0], fitted(case)
    total = model.score_samples(X).sum()
    assert model.score(X) == pytest.approx(total / len(X), rel=1e-12)
    assert model.bic(X) == pytest.approx(-2 * total + model.n_parameters() * np.log(len(X)), rel=1e-12)
    assert model.aic(X) == pytest.approx(-2 * total + 2 * model.n_parameters(), rel=1e-12)
    if hasattr(model, "icl"):
        P = model.predict_proba(X)
        entropy = -np.sum(P * np.log(np.where(P > 0, P, 1.0)))
        assert model.icl(X) == pytest.approx(model.bic(X) + 2 * entropy, rel=1e-9)
    weight = np.arange(len(X)) % 3.0
    assert model.score(X, sample_weight=weight) == pytest.approx(
        np.average(model.score_samples(X), weights=weight), rel=1e-12
    )


@having(is_classifier=True, unlabelled=False)
def test_probabilities_of_classes(case):
    X, y = case.data()
    model = fitted(case)
    P = model.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.log(P), model.predict_log_proba(X), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(model.predict(X), model.classes_[P.argmax(axis=1)])
    assert model.score(X, y) == np.mean(model.predict(X) == y)
    named = case.fit(X, np.array(["ash", "birch", "cedar"])[y])
    np.testing.assert_array_equal(named.predict_proba(X), P)
    assert set(named.predict(X)) <= {"ash", "birch", "cedar"}


@having(is_classifier=True, unlabelled=False, rows="real")
def test_probabilities_of_far_rows_sum_to_one(case):
    """Where classes tie, the logarithm of two is lost beside joint log densities of 1e20."""
    X = np.repeat(case.data(30)[0], case.n_classes, axis=0)  # every row in each class
    model = case.fit(X, np.arange(len(X)) % case.n_classes)
    for far in (1e4, 1e8, 1e12):
        np.testing.assert_allclose(model.predict_proba(far * X[:4]).sum(axis=1), 1.0, rtol=1e-12)


@having("sample")
def test_draws_by_seed(case):
    draw = lambda seed: fitted(case).sample(20, random_state=seed)[0]
    assert draw(0).shape == (20, D)
    np.testing.assert_array_equal(draw(0), draw(0))
    np.testing.assert_array_equal(draw(np.random.default_rng(3)), draw(np.random.default_rng(3)))
    assert not np.array_equal(draw(0), draw(1))
    for bad in (0, -1, 1.5, "many", None, True):
        with pytest.raises(ValueError, match="n_samples"):
            fitted(case).sample(bad)
    for bad in ("seed", -1, 1.5):
        with pytest.raises(ValueError, match="random_state"):
            fitted(case).sample(3, random_state=bad)


@having("sample", "score_samples", trained=False)
def test_draws_agree_with_the_density(case):
    """The mean of q(x) / p(x) under p is one for every q whose tails are no heavier."""
    X, y = case.data()
    if case.rows == "counts":
        less = np.random.default_rng(0).binomial(X.astype(int), 0.8).astype(float)
    else:
        mean = np.nanmean(X, axis=0)
        less = mean + 0.85 * (X - mean)
    p, q = fitted(case), case.fit(less, y)
    drawn = p.sample(40_000, random_state=0)[0]
    ratio = np.exp(q.score_samples(drawn) - p.score_samples(drawn))
    assert ratio.std() > 0.01
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(len(ratio))


# -- copies and files ---------------------------------------------------------------------------------


@every_case
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_say_the_same(case, copied):
    X, model = case.data()[0], copied(fitted(case))
    assert_equal(state(model), state(fitted(case)))
    assert_equal(answers(model, X), expected(case))
    assert state(clone(model)) == {}


@having("save")
@pytest.mark.parametrize("named", [False, True], ids=["", "named"])
def test_saved_and_loaded_models_say_the_same(case, named, tmp_path):
    X, y = case.data()
    X = pd.DataFrame(X, columns=["a", "ü", "<b>", "d d"]) if named else X
    model = case.fit(X, y)
    model.save(tmp_path / "model.latently")
    again = latently.load(tmp_path / "model.latently")
    assert type(again) is case.cls
    assert_equal(answers(again, X), answers(model, X))
    assert_equal(state(again), state(model))
    assert hasattr(again, "feature_names_in_") == named
    assert repr(again.get_params()) == repr(model.get_params())
    if case.has("sample"):
        np.testing.assert_array_equal(again.sample(5, random_state=0)[0], model.sample(5, random_state=0)[0])
    assert_equal(state(case.fit(X, y, to=again)), state(model))


@having("sample")
def test_more_rows_than_memory_are_not_drawn(case):
    with pytest.raises(ValueError, match=f"n_samples={10**15} rows .* GB of memory"):
        fitted(case).sample(10**15)


@having("save", options=("checkpoint",))
def test_files_do_not_say_where_a_fit_writes(case, tmp_path):
    model = copy.deepcopy(fitted(case)).set_params(checkpoint=tmp_path / "here")
    model.save(tmp_path / "model.latently")
    assert b'checkpoint"' not in (tmp_path / "model.latently").read_bytes()
    header, arrays = io.read(tmp_path / "model.latently")
    header["hyper_parameters"]["checkpoint"] = str(tmp_path / "planted")
    io.write(tmp_path / "model.latently", header, arrays)
    assert latently.load(tmp_path / "model.latently").checkpoint is None


@having("save")
def test_files_that_hold_something_else_are_refused(case, tmp_path):
    path = tmp_path / "model.latently"
    fitted(case).save(path)
    header, arrays = io.read(path)

    def refused(header, arrays):
        io.write(path, header, arrays)
        with pytest.raises(ModelFileError):
            latently.load(path)

    refused({**header, "class": "VectorQuantizer" if header["class"] == "PCA" else "PCA"}, arrays)
    refused({**header, "class": "NoSuchModel"}, arrays)
    refused({key: value for key, value in header.items() if key != "hyper_parameters"}, arrays)
    for name, array in arrays.items():
        others = {key: value for key, value in arrays.items() if key != name}
        refused(header, others)
        refused(header, {**others, name: np.stack([array, array])})
        if array.dtype.kind == "f" and array.size:
            refused(header, {**others, name: np.full_like(array, np.nan)})
    refused(header, {**arrays, "fitted.nothing_we_know": np.zeros(3)})


# -- rows that are elsewhere --------------------------------------------------------------------------


def stored(X, form, folder, names="abcd"):
    """The rows in a file, or as blocks."""
    table = pd.DataFrame(X, columns=list(names))
    if form == "npy":
        np.save(folder / "rows.npy", X)
    elif form == "csv":
        table.to_csv(folder / "rows.csv", index=False)
    elif form == "parquet":
        table.to_parquet(folder / "rows.parquet")
    else:
        return [X[:17], X[17:40], X[40:]]
    return folder / f"rows.{form}"


@in_every_form(
    "form",
    ["npy", "csv", "parquet", "blocks"],
    of_all=("csv", "blocks"),
    cases=[case for case in CASES if "files" in case.sources],
)
def test_files_and_blocks_are_rows_too(case, form, tmp_path):
    X, y = case.data()
    there = stored(X, form, tmp_path)
    model = case.fit(there, y)
    assert_equal(answers(model, there), expected(case), rtol=1e-6, atol=1e-8)
    assert hasattr(model, "feature_names_in_") == (form in ("csv", "parquet"))
    if form in ("csv", "parquet"):
        (tmp_path / "other").mkdir()
        other = stored(X, form, tmp_path / "other", names="bacd")
        with pytest.raises(ValueError, match="feature names"):
            model.transform(other) if case.has("transform") else model.score_samples(other)


@from_source("dask")
def test_dask_arrays_are_rows_too(case):
    dask_array = pytest.importorskip("dask.array")
    X, y = case.data()
    there = dask_array.from_array(X, chunks=(25, D))
    model = case.fit(there, y)
    here = answers(fitted(case), X, case.settled)
    assert_equal(answers(model, X, case.settled), here, rtol=1e-6, atol=1e-8)
    method = next(name for name in ("score_samples", "transform") if case.has(name))
    np.testing.assert_allclose(
        np.asarray(getattr(fitted(case), method)(there)), getattr(fitted(case), method)(X), rtol=1e-9
    )


@from_source("torch")
def test_tensors_are_rows_too(case):
    torch = pytest.importorskip("torch")
    X, y = case.data()
    model = case.fit(torch.asarray(X), y)
    here = {name: np.asarray(array) for name, array in answers(model, torch.asarray(X)).items()}
    assert_equal(here, answers(fitted(case), X), rtol=1e-6, atol=1e-7)
    if case.has("to"):
        assert_equal(answers(model.to("numpy"), X), answers(fitted(case), X), rtol=1e-6, atol=1e-7)
        there = fitted(case).to("cpu")
        if case.trained:  # rows are moved to the module
            assert_equal(answers(there, X), answers(fitted(case), X))
            return
        assert any(isinstance(value, torch.Tensor) for value in vars(there).values())
        with pytest.raises(ValueError, match="same namespace and device"):
            there.transform(X) if case.has("transform") else there.score_samples(X)


@having(sources=frozenset())
def test_what_takes_rows_in_memory_alone_says_so(case, tmp_path):
    X, y = case.data()
    np.save(tmp_path / "rows.npy", X)
    with pytest.raises((ValueError, TypeError)):
        case.fit(tmp_path / "rows.npy", y)
