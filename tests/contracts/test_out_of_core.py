"""Rows that are not in memory: every fit and every result is that of the same rows in memory."""

import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from latently.core.sources import chunks, open_source
from latently.mixture import MCFA, MFA, PPCA, FactorAnalysis, GaussianMixture
from tests.contracts.models import rows

N, D = 600, 5


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4096)  # 102 rows of 5 float64


# -- the same rows in many forms ---------------------------------------------------------------------------


def table(X):
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])


def in_npy(folder, X):
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def in_columns(folder, X):
    np.save(folder / "x.npy", np.asfortranarray(X))
    return str(folder / "x.npy")


def memory_mapped(folder, X):
    return np.load(in_npy(folder, X), mmap_mode="r")


def in_zarr(folder, X):
    zarr = pytest.importorskip("zarr")
    path = folder / "x.zarr"
    array = zarr.create_array(str(path), shape=X.shape, chunks=(10, 5), dtype=X.dtype, overwrite=True)
    array[:] = X
    return path


def in_parquet(folder, X):
    pytest.importorskip("pyarrow")
    table(X).to_parquet(folder / "x.parquet", row_group_size=150)
    return folder / "x.parquet"


def in_csv(folder, X):
    table(X).to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


def in_blocks(folder, X):
    return [X[:5], X[5:6], X[6 : len(X) // 2], X[len(X) // 2 :]]


def in_tables(folder, X):
    return [table(block) for block in in_blocks(folder, X)]


def by_a_function(folder, X):
    return lambda: iter(in_blocks(folder, X))


class Again:
    """Blocks anew each time one iterates."""

    def __init__(self, blocks):
        self.blocks = blocks

    def __iter__(self):
        yield from self.blocks


def by_an_iterable(folder, X):
    return Again(in_blocks(folder, X))


FORMS = {
    "npy": in_npy,
    "fortran": in_columns,
    "memmap": memory_mapped,
    "zarr": in_zarr,
    "parquet": in_parquet,
    "csv": in_csv,
    "blocks": in_blocks,
    "tables": in_tables,
    "function": by_a_function,
    "iterable": by_an_iterable,
}
every_form = pytest.mark.parametrize("stored", FORMS.values(), ids=FORMS)
some_forms = pytest.mark.parametrize("stored", [in_npy, by_a_function], ids=["npy", "function"])


# -- what is fitted to what ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    X: np.ndarray
    y: np.ndarray | None = None
    weight: np.ndarray | None = None


@cache
def given(what, wide=False):
    """Rows, and what belongs to them; whole chunks of them say nothing where there are weights or holes."""
    rng = np.random.default_rng(3)
    n, d = (30, 40) if wide else (N, D)
    X = rows(rng, n, d) * rng.choice([0.1, 1.0, 20.0], size=d)
    X = np.round(X * 4096) / 4096  # so that text holds it exactly
    if what == "complete":
        return Given(X)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], size=n)
    weight[slice(5, 25) if wide else slice(100, 220)] = 0.0
    if what == "weighted":
        return Given(X, weight=weight)
    X[rng.random((n, d)) < 0.2] = np.nan
    if not wide:
        X[300:415] = np.nan
    y = np.where(rng.random(n) < 0.2, rng.integers(2, size=n), -1)
    y[np.isnan(X).all(axis=1)] = -1
    return Given(X, y, weight)


SETTINGS = {"random_state": 0, "tol": 0.0, "max_iter": 4, "n_init": 1, "accelerate": None}
MODELS = {
    "GMM-full": lambda **more: GaussianMixture(2, **SETTINGS | more),
    "GMM-diag": lambda **more: GaussianMixture(2, covariance_type="diag", **SETTINGS | more),
    "MFA": lambda **more: MFA(2, 2, **SETTINGS | more),
    "MCFA": lambda **more: MCFA(2, 2, **SETTINGS | more),
    "FactorAnalysis": lambda **more: FactorAnalysis(2, **SETTINGS | more),
    "PPCA": lambda **more: PPCA(2, **SETTINGS | more),
}
CASES = [(name, False) for name in MODELS] + [("MFA", True), ("FactorAnalysis", True), ("PPCA", True)]
every_model = pytest.mark.parametrize(
    ("name", "wide"), CASES, ids=[name + ("-wide" if wide else "") for name, wide in CASES]
)


def labels_for(name, data):
    return data.y if name in ("GMM-full", "GMM-diag", "MFA", "MCFA") else None


@cache
def fitted_in_memory(name, what, wide=False):
    data = given(what, wide)
    return MODELS[name]().fit(data.X, labels_for(name, data), sample_weight=data.weight)


def fitted_attributes(estimator):
    return {
        name: value
        for name, value in vars(estimator).items()
        if name.endswith("_") and name != "feature_names_in_"
    }


def assert_same_fit(actual, expected, tolerance=1e-9):
    actual, expected = fitted_attributes(actual), fitted_attributes(expected)
    assert actual.keys() == expected.keys() and len(actual) >= 8
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


# -- fitting -------------------------------------------------------------------------------------------------


@every_form
def test_the_rows_do_come_in_chunks(tmp_path, stored):
    for wide in (False, True):
        X = given("everything", wide).X
        pieces = list(open_source(stored(tmp_path, X)).chunks())
        assert len(pieces) >= 3
        np.testing.assert_array_equal(np.concatenate(pieces), X)


def check_fit(stored, folder, name, what, wide):
    data = given(what, wide)
    model = MODELS[name]().fit(stored(folder, data.X), labels_for(name, data), sample_weight=data.weight)
    assert_same_fit(model, fitted_in_memory(name, what, wide))


@pytest.mark.parametrize("what", ["complete", "weighted", "everything"])
@every_model
@some_forms
def test_a_fit_is_that_of_rows_in_memory(tmp_path, stored, name, wide, what):
    check_fit(stored, tmp_path, name, what, wide)


@pytest.mark.parametrize(("name", "what"), [(name, "everything") for name in MODELS] + [("PPCA", "complete")])
@every_form
def test_a_fit_is_that_of_rows_in_memory_in_every_form(tmp_path, stored, name, what):
    check_fit(stored, tmp_path, name, what, wide=False)


def test_weights_and_labels_and_holes_matter():
    """Or the test above would say little."""
    for name in MODELS:
        fits = [fitted_in_memory(name, what).history_[-1] for what in ("complete", "weighted", "everything")]
        assert np.min(np.abs(np.diff(sorted(fits)))) > 1e-3
    data = given("everything")
    unlabelled = MODELS["MFA"]().fit(data.X, sample_weight=data.weight)
    assert abs(unlabelled.history_[-1] - fitted_in_memory("MFA", "everything").history_[-1]) > 1e-3


@pytest.mark.parametrize("name", ["GMM-full", "MFA", "MCFA", "FactorAnalysis"])
@pytest.mark.parametrize(
    "more",
    [
        {"block_size": 40},
        {"accelerate": "squarem", "n_init": 3, "max_iter": 3},
        {"tol": 1e-4, "max_iter": 500},
    ],
    ids=["block_size", "squarem", "to-the-end"],
)
def test_settings_of_the_fit_do_the_same(tmp_path, name, more):
    X = given("complete").X
    assert_same_fit(MODELS[name](**more).fit(in_npy(tmp_path, X)), MODELS[name](**more).fit(X), 1e-8)


@every_form
def test_starts_see_the_same_sample(tmp_path, stored, monkeypatch):
    """Of more rows than starts look at, those are chosen that would be chosen in memory."""
    fitted_in_memory("MFA", "everything")  # is kept, and must be of all rows
    monkeypatch.setattr("latently.estimators.starts.rows_for_start", lambda n_components: 60)
    data = given("everything")
    here = MODELS["MFA"](max_iter=1).fit(data.X, data.y, sample_weight=data.weight)
    assert abs(here.history_[0] - fitted_in_memory("MFA", "everything").history_[0]) > 1e-6
    there = MODELS["MFA"](max_iter=1).fit(stored(tmp_path, data.X), data.y, sample_weight=data.weight)
    assert_same_fit(there, here)


@pytest.mark.parametrize("chunk_bytes", [1, 500, 10**9])
def test_the_size_of_chunks_does_not_matter(tmp_path, monkeypatch, chunk_bytes):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk_bytes)  # at least one row
    data = given("everything")
    X, *more = (array[:90] for array in (data.X, data.y, data.weight))
    assert_same_fit(MODELS["GMM-full"]().fit(in_npy(tmp_path, X), *more), MODELS["GMM-full"]().fit(X, *more))


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8"])
def test_other_dtypes(tmp_path, dtype):
    X = np.abs(given("complete").X % 200).astype(dtype)
    here = MODELS["MFA"]().fit(X)
    for stored in (in_npy, memory_mapped, in_blocks):
        assert_same_fit(MODELS["MFA"]().fit(stored(tmp_path, X)), here)


# -- names of features ---------------------------------------------------------------------------------------


named_forms = pytest.mark.parametrize(
    "stored", [in_csv, in_parquet, in_tables], ids=["csv", "parquet", "tables"]
)


@named_forms
def test_features_are_named_as_in_the_file(tmp_path, stored):
    X = given("complete").X
    model = MODELS["PPCA"]().fit(stored(tmp_path, X))
    assert model.feature_names_in_.tolist() == ["x0", "x1", "x2", "x3", "x4"]
    assert model.feature_names_in_.dtype == object
    assert model.n_features_in_ == D
    expected = model.score_samples(table(X))  # a warning if the names were not those of the fit
    for again in (stored, in_npy):  # which has no names
        np.testing.assert_allclose(model.score_samples(again(tmp_path, X)), expected, rtol=1e-9)


@named_forms
def test_other_names_are_refused(tmp_path, stored):
    X = given("complete").X
    model = MODELS["PPCA"]().fit(stored(tmp_path, X))
    turned = table(X)[["x1", "x0", "x2", "x3", "x4"]]
    turned.to_csv(tmp_path / "turned.csv", index=False)
    for other in (tmp_path / "turned.csv", [turned]):
        for method in (model.predict, model.score_samples, model.transform, model.impute):
            with pytest.raises(ValueError, match=r"feature names.*not those of the fit.*x1.*x0"):
                method(other)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(turned)


def test_names_do_not_outlive_their_fit(tmp_path):
    X = given("complete").X
    model = MODELS["PPCA"]().fit(in_csv(tmp_path, X))
    model.fit(in_npy(tmp_path, X))
    assert not hasattr(model, "feature_names_in_")


# -- a result for every row ---------------------------------------------------------------------------------

RESULTS = ["predict", "predict_proba", "score_samples", "transform", "reconstruct", "impute"]
every_result = pytest.mark.parametrize("method", RESULTS)


@every_result
@every_form
def test_results_are_those_of_rows_in_memory(tmp_path, stored, method):
    X = given("everything").X
    model = fitted_in_memory("MFA", "everything")
    there, here = getattr(model, method)(stored(tmp_path, X)), getattr(model, method)(X)
    assert type(there) is np.ndarray
    np.testing.assert_allclose(there, here, rtol=1e-10, atol=1e-10, strict=True)


@some_forms
def test_numbers_are_those_of_rows_in_memory(tmp_path, stored):
    data = given("everything")
    model = fitted_in_memory("MFA", "everything")
    X = stored(tmp_path, data.X)
    for method in ("score", "bic", "aic", "icl"):
        np.testing.assert_allclose(getattr(model, method)(X), getattr(model, method)(data.X), rtol=1e-12)
    weighted = model.score(data.X, sample_weight=data.weight)
    assert weighted != model.score(data.X)
    np.testing.assert_allclose(model.score(X, sample_weight=data.weight), weighted, rtol=1e-12)
    for there, here in zip(model.factor_posterior(X), model.factor_posterior(data.X), strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-9, atol=1e-12)


@some_forms
def test_draws_fill_holes_only(tmp_path, stored):
    X = given("everything").X
    model = fitted_in_memory("MFA", "everything")
    drawn = model.impute(stored(tmp_path, X), n_draws=1, random_state=0)[0]
    assert np.isfinite(drawn).all()
    np.testing.assert_array_equal(np.where(np.isnan(X), 0.0, drawn), np.nan_to_num(X))
    holes = np.isnan(X)
    assert np.abs(drawn[holes] - model.impute(X)[holes]).min() > 0


def test_fit_predict_and_fit_transform(tmp_path):
    X = given("everything").X
    path = in_npy(tmp_path, X)
    np.testing.assert_array_equal(MODELS["MFA"]().fit_predict(path), MODELS["MFA"]().fit(X).predict(X))
    np.testing.assert_allclose(
        MODELS["MFA"]().fit_transform(path), MODELS["MFA"]().fit(X).transform(X), rtol=1e-7, atol=1e-9
    )


@every_result
@pytest.mark.parametrize(
    "stored", [None, in_npy, in_csv, by_a_function], ids="memory npy csv function".split()
)
def test_results_go_to_a_file(tmp_path, stored, method):
    X = given("everything").X
    model = fitted_in_memory("MFA", "everything")
    out = tmp_path / "out.npy"
    out.write_bytes(b"what was there before")
    written = getattr(model, method)(X if stored is None else stored(tmp_path, X), out=out)
    assert isinstance(written, np.memmap) and written.mode == "r" and Path(written.filename) == out
    expected = getattr(model, method)(X)
    assert written.dtype == expected.dtype
    np.testing.assert_allclose(written, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(np.load(out), written)
    assert not list(tmp_path.glob(".*"))  # nothing unfinished


def test_a_file_may_be_replaced_by_its_own_result(tmp_path):
    X = given("everything").X
    path = in_npy(tmp_path, X)
    model = fitted_in_memory("MFA", "everything")
    filled = model.impute(path, out=str(path))
    np.testing.assert_allclose(filled, model.impute(X), rtol=1e-10)
    np.testing.assert_array_equal(np.load(path), filled)


def test_a_result_that_fails_leaves_the_file_as_it_was(tmp_path):
    X = given("everything").X
    model = fitted_in_memory("MFA", "everything")
    out = tmp_path / "out.npy"
    out.write_bytes(b"as it was")

    def broken():
        yield X
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        model.predict(broken, out=out)
    with pytest.raises(ValueError, match="features"):
        model.predict([X[:, :3]], out=out)
    assert out.read_bytes() == b"as it was"
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


# -- errors --------------------------------------------------------------------------------------------------


def failing(how):
    """Arguments of `fit` that cannot be fitted, and what the error says."""
    X = given("complete").X
    n_reads = 0

    def breaks_down():
        nonlocal n_reads
        n_reads += 1
        yield X[:400]
        if n_reads > 3:
            raise OSError("the disk is gone")
        yield X[400:]

    def grows():
        nonlocal n_reads
        n_reads += 1
        yield X
        if n_reads > 3:
            yield X[:1]

    infinite = X.copy()
    infinite[450, 3] = -np.inf
    return {
        "weights": (([X],), {"sample_weight": np.ones(N - 1)}, ValueError, r"sample_weight.*600.*599"),
        "weights-of-blocks": ((lambda: iter([X]),), {"sample_weight": np.ones(N + 1)}, ValueError, "600"),
        "labels": (([X], np.zeros(N - 1, int)), {}, ValueError, r"y must have.*600.*599"),
        "generator": ((block for block in [X]), {}, TypeError, r"generator.*only once.*function"),
        "blocks-differ": (
            ([X, X[:, :3]],),
            {},
            ValueError,
            "block 1 has 3 columns, but the first block has 5",
        ),
        "no-rows": ((lambda: iter([]),), {}, ValueError, "empty"),
        "few-rows": (([X[:1]],), {}, ValueError, "n_components=2 must not be larger than n_samples=1"),
        "infinite": (([infinite],), {}, ValueError, r"infinity.*feature 3"),
        "missing": (([X, np.full((3, D), np.nan)][1:],), {}, ValueError, "every entry of X is missing"),
        "no-weight": (([X],), {"sample_weight": np.zeros(N)}, ValueError, "sample_weight is zero"),
        "breaks-down": ((breaks_down,), {}, OSError, "the disk is gone"),
        "grows": ((grows,), {}, ValueError, "changed between two readings: it had 600 rows, now 601"),
        "missing-file": (("nowhere.npy",), {}, FileNotFoundError, r"nowhere\.npy"),
        "unknown-file": ((__file__,), {}, ValueError, r"\.npy.*not a kind of file"),
    }[how]


FAILURES = (
    "weights weights-of-blocks labels generator blocks-differ no-rows few-rows infinite missing no-weight "
    "breaks-down grows missing-file unknown-file"
)


@pytest.mark.parametrize("fitted", [False, True], ids=["new", "fitted"])
@pytest.mark.parametrize("how", FAILURES.split())
def test_a_fit_that_fails_says_why_and_changes_nothing(how, fitted):
    arguments, more, error, message = failing(how)
    if how == "generator":
        arguments = (arguments,)
    model = MODELS["GMM-full"]()
    if fitted:
        model.fit(table(np.arange(60.0).reshape(20, 3) ** 1.5 % 7))  # other features, with names
    before = vars(model).copy()
    with pytest.raises(error, match=message):
        model.fit(*arguments, **more)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


@every_result
@pytest.mark.parametrize("more", [-1, 1])
def test_another_number_of_features(tmp_path, method, more):
    model = fitted_in_memory("MFA", "complete")
    X = np.zeros((9, D + more))
    for stored in (in_npy, memory_mapped, in_csv, by_a_function):
        with pytest.raises(ValueError, match=rf"X has {D + more} features, but MFA is expecting {D}"):
            getattr(model, method)(stored(tmp_path, X))


@every_result
def test_iterators_are_refused(method):
    model = fitted_in_memory("MFA", "complete")
    with pytest.raises(TypeError, match=r"only once.*function that returns a new iterator"):
        getattr(model, method)(block for block in [given("complete").X])


@every_result
def test_infinities_are_refused(tmp_path, method):
    """As they are in memory."""
    X = given("complete").X.copy()
    X[450, 3] = np.inf
    model = fitted_in_memory("MFA", "complete")
    with pytest.raises(ValueError, match="infinity"):
        getattr(model, method)(X)
    with pytest.raises(ValueError, match="infinity"):
        getattr(model, method)(in_npy(tmp_path, X))


def test_a_single_row_is_refused(tmp_path):
    """As it is in memory."""
    X = given("complete").X[:1]
    for data in (X, in_npy(tmp_path, X)):
        with pytest.raises(ValueError, match=r"1 sample\(s\)"):
            PPCA(1).fit(data)


# -- memory --------------------------------------------------------------------------------------------------

FLAT = """
import sys
import numpy as np
import sklearn.cluster
from latently.backend import placement
from latently.core.sources import RowWriter, chunks
from latently.mixture import MFA

def peak():
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1000

small = sys.argv[1] == "small"
if small:
    chunks.CHUNK_BYTES = placement.BLOCK_BYTES = 4_000_000
D = 50
rng = np.random.default_rng(0)
block = rng.normal(size=(20_000, D)) * np.arange(1, D + 1)
block[rng.random(block.shape) < 0.001] = np.nan
with RowWriter("x.npy") as file:
    for _ in range(8 if small else 50):
        file.write(block)
        block = np.roll(block, 1, axis=0) + 0.5
model = MFA(2, 2, max_iter=2, tol=0, weights_init=[0.4, 0.6], means_init=[[0.0], [3.0]],
            loadings_init=rng.normal(size=(2, D, 2)), noise_init=rng.uniform(500, 900, size=(2, D)))
model.fit(block[:500])  # what is loaded on first use is not counted
del block
before = peak()
model.fit("x.npy")
assert model.n_iter_ == 2 and np.diff(model.history_).min() > 0
print(peak() - before)
filled = model.impute("x.npy", out="filled.npy")
assert filled.shape == (160_000 if small else 1_000_000, D)
print(peak() - before)
"""


def memory_grown(folder, size):
    """MB that a fit takes, and that it takes together with an imputation, in a process of its own."""
    if not Path("/proc/self/status").exists():
        pytest.skip("reads the memory in use from /proc")
    command = [sys.executable, "-c", FLAT, size]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return [float(line) for line in run.stdout.split()]


def test_memory_stays_flat(tmp_path):
    fit, both = memory_grown(tmp_path, "small")  # the rows take 64 MB, the result as many
    assert fit < 40 and both < 40


@pytest.mark.slow
def test_memory_stays_flat_with_chunks_of_the_usual_size(tmp_path):
    fit, both = memory_grown(tmp_path, "large")  # the rows take 400 MB, the result as many
    assert fit < 250 and both < 350
