"""Dask arrays and data frames: the same fits as in memory, whatever becomes of the workers."""

import copy
import os
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

from latently.core import cluster as core_cluster  # noqa: E402 (only where Dask is installed)
from latently.core.partitions import Pass, sum_of_sums  # noqa: E402 (only where Dask is installed)
from latently.core.sweep_dask import DaskData  # noqa: E402 (only where Dask is installed)
from latently.core.tree import add  # noqa: E402 (only where Dask is installed)
from latently.factorization import NLMF, NMF, NLMFClassifier  # noqa: E402 (as above)
from latently.mixture import MCFA, MFA, PPCA, FactorAnalysis, GaussianMixture  # noqa: E402 (as above)
from tests.contracts.models import rows  # noqa: E402 (only where Dask is installed)

# a few iterations will do
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

N, D = 300, 4
CHUNKINGS = {
    "uneven": ((1, 150, 49, 100), D),
    "columns": (120, 3),
    "empty": ((0, 150, 0, 0, 150, 0), D),
    "one": (N, D),
    "many": (20, D),  # more than are added in one task
}
MODELS = {
    "gmm": GaussianMixture(3),
    "mfa": MFA(3, 2),
    "mcfa": MCFA(3, 2),
    "fa": FactorAnalysis(2),
    "ppca": PPCA(2),
}
with_and_without_client = pytest.mark.parametrize("client", ["cluster", "here"], indirect=True)


@pytest.fixture
def client(request):
    """A client that Dask uses, or None."""
    if getattr(request, "param", "cluster") == "here":
        yield None
        return
    with distributed.Client(request.getfixturevalue("cluster")) as client:
        client.wait_for_workers(2, timeout=60)  # one that was killed may be on its way back
        yield client


def model(name, **settings):
    fixed = {"max_iter": 3, "tol": 0, "n_init": 1, "random_state": 0, "accelerate": None}
    return clone(MODELS[name]).set_params(**{**fixed, **settings})


def values(holes=False):
    rng = np.random.default_rng(0)
    X = rows(rng, N, D)
    if holes:
        X[rng.random(X.shape) < 0.15] = np.nan
    return X


def lazy_values(chunks, holes=False):
    return da.from_array(values(holes), chunks=CHUNKINGS.get(chunks, chunks))


def unknown(X):
    """The same rows, of which Dask does not know how many there are."""
    return X[da.ones(len(X), chunks=X.chunks[0]) > 0]


def mapped(fn, chunks):
    """Rows that a function makes, of which Dask is not to try an example first."""
    return lazy_values((chunks, D)).map_blocks(fn, meta=np.zeros((0, 0)))


def assert_same_fit(fitted, expected):
    a, b = fitted._fitted_arrays(), expected._fitted_arrays()
    for name in b:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-9, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(fitted.history_, expected.history_, rtol=1e-9)


def assert_equal_bits(fitted, expected):
    a, b = fitted._fitted_arrays(), expected._fitted_arrays()
    for name in b:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    np.testing.assert_array_equal(fitted.history_, expected.history_)


# -- the same fit as in memory -----------------------------------------------------------------------------


@with_and_without_client
@pytest.mark.parametrize("name", MODELS)
def test_fit_is_that_in_memory(client, name):
    fitted = model(name).fit(lazy_values("uneven"))
    assert_same_fit(fitted, model(name).fit(values()))
    assert len(set(fitted.history_)) == len(fitted.history_)  # parameters do move from sweep to sweep


@with_and_without_client
@pytest.mark.parametrize("chunks", CHUNKINGS)
def test_partitions_make_no_difference(client, chunks):
    X = lazy_values(chunks, holes=True)
    expected = model("mfa").fit(values(holes=True))
    for lazy in (X, unknown(X)):
        assert_same_fit(model("mfa").fit(lazy), expected)
        data = DaskData(lazy)
        assert data.count_rows() == N and data.n_features == D and not data.in_memory
        np.testing.assert_array_equal(
            np.concatenate([block.X for block in data.blocks()]), values(holes=True)
        )


@with_and_without_client
@pytest.mark.parametrize("name", ["gmm", "mfa", "mcfa"])
def test_weights_and_labels(client, name):
    rng = np.random.default_rng(1)
    X, weight, y = values(holes=True), rng.uniform(0, 2, size=N), rng.integers(-1, 3, size=N)
    weight[:50] = 0
    expected = model(name).fit(X, y, sample_weight=weight)
    lazy = lazy_values("uneven", holes=True)
    assert_same_fit(model(name).fit(lazy, y, sample_weight=weight), expected)
    y, weight = da.from_array(y, chunks=77), da.from_array(weight, chunks=99)
    assert_same_fit(model(name).fit(unknown(lazy), y, sample_weight=weight), expected)


@with_and_without_client
def test_data_frames(client):
    table = pd.DataFrame(values(holes=True), columns=list("abcd"))
    table["a"] = table["a"].astype("float32")
    table["b"] = table["b"].astype("Float64")  # with its own kind of missing entry
    table["c"] = np.arange(N) % 7
    expected = model("gmm").fit(table)
    X = dd.from_pandas(table, npartitions=3)
    fitted = model("gmm").fit(X)
    assert_same_fit(fitted, expected)
    assert list(fitted.feature_names_in_) == list("abcd")
    np.testing.assert_allclose(fitted.score_samples(X).compute(), expected.score_samples(table), rtol=1e-9)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(X[list("bacd")])
    assert_same_fit(model("gmm").fit(X[X["c"] > 2]), model("gmm").fit(table[table["c"] > 2]))


def test_names_are_strings_or_none():
    X = dd.from_pandas(pd.DataFrame(values()), npartitions=2)
    assert DaskData(X).feature_names is None
    assert not hasattr(model("ppca").fit(X), "feature_names_in_")


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int32", "bool", ">f8"])
def test_dtypes(dtype):
    X = np.abs(10 * values()).astype("uint8").astype(dtype) if dtype != "bool" else values() > 0
    expected = model("ppca").fit(X.astype("float64"))
    assert_same_fit(model("ppca").fit(da.from_array(X, chunks=(123, D))), expected)


def test_masked_entries_are_missing():
    X = da.ma.masked_invalid(lazy_values((200, D), holes=True))
    assert_same_fit(model("gmm").fit(X), model("gmm").fit(values(holes=True)))


@with_and_without_client
def test_partitions_are_made_by_functions(client):
    def load(start):
        return values()[start : start + 75]

    def shifted(block):
        return block + 3

    parts = [da.from_delayed(dask.delayed(load)(i), (75, D), dtype=float) for i in range(0, N, 75)]
    X = da.concatenate(parts).map_blocks(shifted)
    assert_same_fit(model("mfa").fit(X), model("mfa").fit(values() + 3))


@with_and_without_client
@pytest.mark.parametrize("settings", [{"accelerate": "squarem"}, {"n_init": 3, "block_size": 37}], ids=str)
def test_other_ways_of_fitting(client, settings):
    fitted = model("mfa", **settings).fit(lazy_values((130, D)))
    expected = model("mfa", **settings).fit(values())
    # of starts that lead to the same place, rounding chooses one, so components may change places
    np.testing.assert_allclose(fitted.history_, expected.history_, rtol=1e-7)
    np.testing.assert_allclose(np.sort(fitted.weights_), np.sort(expected.weights_), rtol=1e-5)


@with_and_without_client
def test_mini_batches(client):
    X = lazy_values(((0, 150, 150), D))
    fitted = model("gmm", batch_size=50).fit(X)
    assert fitted.history_[-1] > fitted.history_[0]
    batches = list(DaskData(X).batches(50, np.random.default_rng(0)))
    assert [len(batch) for batch in batches] == [50] * 6
    seen = np.concatenate([batch.X for batch in batches])
    np.testing.assert_array_equal(np.sort(seen, axis=0), np.sort(values(), axis=0))


def test_partial_fit(client):
    online, expected = model("gmm"), model("gmm")
    for part in np.array_split(values(), 3):
        online.partial_fit(da.from_array(part, chunks=(70, D)))
        expected.partial_fit(part)
    assert_same_fit(online, expected)


# -- one row for every row ---------------------------------------------------------------------------------


@with_and_without_client
@pytest.mark.parametrize(
    "method", ["score_samples", "predict", "predict_proba", "transform", "impute", "reconstruct"]
)
def test_rows_are_lazy_and_the_same(client, tmp_path, method):
    fitted = model("mfa").fit(values(holes=True))
    of = getattr(fitted, method)
    expected = of(values(holes=True))
    for chunks in ("uneven", "empty", "columns"):
        X = lazy_values(chunks, holes=True)
        lazy = of(X)
        assert isinstance(lazy, da.Array)
        assert lazy.shape == expected.shape and lazy.dtype == expected.dtype
        assert all(len(sizes) == 1 for sizes in lazy.chunks[1:])
        result = lazy.compute()
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(lazy[145:155].compute(), result[145:155])
    np.testing.assert_array_equal(of(unknown(X)).compute(), result)
    for given in (X, unknown(X)):
        file = of(given, out=tmp_path / "rows.npy")
        assert isinstance(file, np.memmap)
        np.testing.assert_array_equal(file, result, strict=True)


def explode(block):
    raise AssertionError("worked out too early")


def test_nothing_is_worked_out_before_it_is_asked_for():
    lazy = model("mfa").fit(values()).predict(mapped(explode, 200))
    with pytest.raises(AssertionError, match="too early"):
        lazy.compute()


@with_and_without_client
def test_numbers_about_all_rows(client):
    X = values()
    lazy, fitted = lazy_values((170, D)), model("mfa").fit(X)
    for name in ("score", "bic", "aic", "icl"):
        np.testing.assert_allclose(getattr(fitted, name)(lazy), getattr(fitted, name)(X), rtol=1e-9)
    means, covariances = fitted.factor_posterior(lazy)
    np.testing.assert_allclose(means.compute(), fitted.factor_posterior(X)[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(covariances, fitted.factor_posterior(X)[1], rtol=1e-9)
    np.testing.assert_array_equal(model("gmm").fit_predict(lazy).compute(), model("gmm").fit_predict(X))


@with_and_without_client
def test_draws_belong_to_the_seed(client):
    X = values(holes=True)
    fitted, lazy = model("mfa").fit(X), lazy_values((100, D), holes=True)

    def draw(seed):
        return fitted.impute(lazy, n_draws=1, random_state=seed)[0]

    draws = draw(3)
    first = draws.compute()
    np.testing.assert_array_equal(draws.compute(), first)  # also when worked out again,
    np.testing.assert_array_equal(draws[150:260].compute(), first[150:260])  # or in part
    np.testing.assert_array_equal(draw(3).compute(), first)
    assert np.any(draw(4).compute() != first)
    rng = np.random.default_rng(3)
    assert np.any(draw(rng).compute() != draw(rng).compute())
    np.testing.assert_array_equal(first[~np.isnan(X)], X[~np.isnan(X)])
    error = (first - fitted.impute(X))[np.isnan(X)]
    assert abs(error.mean()) < 5 * error.std() / np.sqrt(len(error)) and error.std() > 0.1


# -- a cluster ---------------------------------------------------------------------------------------------


def slowly(block):
    time.sleep(0.01)
    return block


def kill(pids):
    """As when a machine fails; nannies start other workers."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("how_many", "delay", "kept"),
    [
        pytest.param(1, 0.0, True, id="one"),
        pytest.param(1, 0.05, False, id="one_of_rows_loaded_anew", marks=pytest.mark.slow),
        pytest.param(2, 0.02, True, id="all", marks=pytest.mark.slow),
    ],
)
def test_killed_workers_change_nothing(client, cluster, monkeypatch, how_many, delay, kept):
    if not kept:
        monkeypatch.setattr(DaskData, "held", DaskData.recipes)  # as if the rows did not fit in memory
    X = lazy_values((30, D), holes=True).map_blocks(slowly)
    weight = np.random.default_rng(2).uniform(size=N)
    undisturbed = model("mfa", max_iter=4).fit(X, sample_weight=weight)
    killed = []

    def disturb(iteration):
        if iteration.number == 2:
            killed.extend([worker.pid for worker in cluster.workers.values()][:how_many])
            threading.Timer(delay, kill, [killed]).start()

    survived = model("mfa", max_iter=4, callbacks=[disturb]).fit(X, sample_weight=weight)
    assert len(killed) == how_many
    assert_equal_bits(survived, undisturbed)


def test_rows_that_the_cluster_forgets_are_made_again(client):
    """As after client.restart()."""

    def forget(iteration):
        if iteration.number == 2:
            client.cancel([distributed.Future(key, client) for key in client.futures])

    X = lazy_values((100, D))
    assert_equal_bits(model("mfa", callbacks=[forget]).fit(X), model("mfa").fit(X))


# -- states of the rows, which stay with the workers ------------------------------------------------------

FACTORISATIONS = {
    "momentum": NMF(3),
    "penalties": NMF(3, alpha_W=0.1, alpha_H=0.2),
    "kl": NMF(3, loss="kl"),
    "free": NLMF(3, mapping="logistic"),
    "mu": NLMF(3, constraint="non_negative", solver="mu"),
    "classes": NLMFClassifier(3),
}


def factorisation(name, **settings):
    return clone(FACTORISATIONS[name]).set_params(max_iter=5, tol=0, random_state=0, **settings)


def amounts(n_rows=N):
    rng = np.random.default_rng(5)
    return rng.random((n_rows, 3)) @ rng.random((3, D)) + 0.1 * rng.random((n_rows, D))


@with_and_without_client
@pytest.mark.parametrize("name", FACTORISATIONS)
def test_factorisations_are_those_in_memory(client, name):
    X, weight = amounts(), np.random.default_rng(1).uniform(0, 2, size=N)
    given = {"y": np.arange(N) % 2} if name == "classes" else {}
    expected = factorisation(name).fit(X, sample_weight=weight, **given)
    fitted = factorisation(name).fit(da.from_array(X, (40, D)), sample_weight=weight, **given)
    assert_same_fit(fitted, expected)
    if hasattr(expected, "activations_"):
        np.testing.assert_allclose(fitted.activations_, expected.activations_, rtol=1e-6, atol=1e-9)


def test_states_do_not_come_to_the_caller(client, monkeypatch):
    X = da.from_array(amounts(20_000), (2500, D))
    monkeypatch.setattr(core_cluster.States, "here", lambda self: pytest.fail("states came to the caller"))
    assert len(factorisation("momentum").fit(X).history_) == 5


@pytest.mark.parametrize("n_rows", [N, 20_000], ids=["few", "many"])
def test_states_that_are_lost_are_made_again(client, cluster, n_rows):
    """Of few rows they have come to the caller on the way, as parameters take more; of many they have not."""
    X = da.from_array(amounts(n_rows), (n_rows // 8, D))
    disturbed = set()

    def disturb(iteration):
        disturbed.add(iteration.number)
        if iteration.number == 2:
            kill([next(iter(cluster.workers.values())).pid])
        if iteration.number == 4:
            client.cancel([distributed.Future(key, client) for key in client.futures])

    survived = factorisation("momentum", callbacks=[disturb]).fit(X)
    assert {2, 4} <= disturbed
    assert_equal_bits(survived, factorisation("momentum").fit(X))


def test_states_in_checkpoints(client, tmp_path):
    X, path = da.from_array(amounts(), (40, D)), tmp_path / "state"

    def killed(iteration):
        if iteration.number == 3:
            raise KeyError("killed")

    whole = factorisation("momentum").fit(X)
    with pytest.raises(KeyError, match="killed"):
        factorisation("momentum", checkpoint=path, checkpoint_every=1, callbacks=[killed]).fit(X)
    resumed = factorisation("momentum", checkpoint=path, checkpoint_every=1).fit(X)
    np.testing.assert_array_equal(resumed.components_, whole.components_)


def test_result_does_not_hang_on_who_is_quick(client):
    def at_random(block):
        time.sleep(np.random.default_rng().uniform(0, 0.02))
        return block

    assert_equal_bits(model("mfa").fit(mapped(at_random, 30)), model("mfa").fit(lazy_values((30, D))))


def test_threads_of_one_worker():
    """Workers in this process, several threads each, share its BLAS."""
    X = lazy_values((50, D), holes=True)
    with distributed.Client(
        processes=False, n_workers=1, threads_per_worker=3, dashboard_address=":0", silence_logs=50
    ):
        first, second = model("gmm").fit(X), model("gmm").fit(X)
    assert_equal_bits(first, second)
    assert_same_fit(first, model("gmm").fit(values(holes=True)))


def kept_by(cluster):
    """Names of what the cluster keeps or is about to do."""
    return set(cluster.scheduler.tasks)


def test_nothing_stays_on_the_cluster(client, cluster):
    before = kept_by(cluster)
    factorisation("momentum").fit(da.from_array(amounts(), (100, D)))
    fitted = model("mfa").fit(lazy_values((100, D)), sample_weight=np.linspace(0, 1, N))
    assert fitted.predict(lazy_values((100, D))).compute().shape == (N,)
    deadline = time.monotonic() + 10
    while kept_by(cluster) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not kept_by(cluster) - before


def count(block):
    return float(len(block))


def test_rows_are_kept_where_they_fit(client, tmp_path):
    def load(block):
        (tmp_path / f"{time.time_ns()}-{os.getpid()}").touch()
        return block

    def n_loads():
        return len(list(tmp_path.iterdir()))

    X = mapped(load, 150)
    model("mfa").fit(X)
    assert n_loads() == 2
    data = DaskData(X)
    data.dtype = SimpleNamespace(itemsize=10**12)  # as if there were much more of it
    for _ in range(2):
        assert data.sweep(None, floats_per_row=1, block_size=None).sum(count) == N
    assert n_loads() == 6


def test_sums_are_not_used_up():
    """A sum may have to be done again, when it was lost with a worker: what goes into it stays as it is."""
    told = Pass(count, add, (), None, 1, None, np.geterr())
    parts = [None, np.ones(3), None, np.ones(3)]
    before = copy.deepcopy(parts)
    parts[1].flags.writeable = False  # as it may come from another worker
    for _ in range(2):
        np.testing.assert_array_equal(sum_of_sums(told, *parts), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(parts[3], before[3])
    assert sum_of_sums(told, None, None) is None


def test_losing_workers_again_and_again_is_an_error(client, monkeypatch):
    def lose(*args):
        raise distributed.CancelledError

    monkeypatch.setattr(core_cluster, "summed", lose)
    with pytest.raises(RuntimeError, match="get_worker_logs"):
        model("mfa").fit(lazy_values((100, D)))


def test_a_cluster_that_does_nothing_is_an_error(client, monkeypatch):
    def asleep(block):
        time.sleep(1.5)
        return block

    monkeypatch.setattr(core_cluster, "PATIENCE", 0.4)
    with pytest.raises(TimeoutError, match="took no step"):
        model("mfa").fit(mapped(asleep, N))


def test_a_worker_that_takes_nothing_is_named(client, cluster, monkeypatch):
    """Parameters go to one worker first, which may have stopped."""
    monkeypatch.setattr(core_cluster, "PATIENCE", 2.0)
    monkeypatch.setattr(core_cluster, "NOTICE", 1.0)
    told = Pass(count, add, (), None, 1, None, np.geterr())
    stopped = next(iter(cluster.workers.values()))
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        for _ in range(4):  # some are sent to it first, and then to the other one
            core_cluster._scattered(client, told).release()
        monkeypatch.setattr(core_cluster, "PATIENCE", 1.0)
        with pytest.raises(TimeoutError, match=f"no step .* for worker {stopped.worker_address}"):
            for _ in range(4):
                core_cluster._scattered(client, told).release()
    finally:
        os.kill(stopped.pid, signal.SIGCONT)


def test_an_error_in_a_task_is_told_as_it_is(client):
    def fail(block):
        raise TimeoutError("the disk is slow")

    with pytest.raises(TimeoutError, match="the disk is slow"):
        model("mfa").fit(mapped(fail, 100))


# -- what cannot be used -----------------------------------------------------------------------------------


def of_shape(*shape):
    return da.zeros(shape, chunks=3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: of_shape(5), "2D"),
        (lambda: of_shape(5, 2, 2), "2D"),
        (lambda: of_shape(0, 2), "no rows"),
        (lambda: of_shape(5, 0), "no columns"),
        (lambda: of_shape(5, 2).astype(object), "object"),
        (lambda: of_shape(5, 2).astype(complex), "complex"),
        (lambda: of_shape(5, 2).astype("datetime64[s]"), "datetime"),
        (lambda: of_shape(6, 4)[:, of_shape(4) > 1], "number of columns"),
        (lambda: dd.from_pandas(pd.DataFrame({"a": [1.0, 2], "b": ["x", "y"]}), npartitions=1), "column 'b'"),
        (lambda: dd.from_pandas(pd.Series([1.0, 2.0]), npartitions=1), "2D"),
        (lambda: dask.delayed(np.zeros)((5, 2)), "array or a data frame"),
    ],
    ids="1d 3d rows columns object complex dates unknown_columns strings series delayed".split(),
)
def test_other_collections_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        model("gmm").fit(make())


@with_and_without_client
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda block: np.where(block > 2.5, np.inf, block), "infinity"),
        (lambda block: np.full(block.shape, np.nan), "missing"),
        (lambda block: block[:-1], "should have 100 rows but has 99"),
        (lambda block: block[:, :-1], f"should have {D} columns but has {D - 1}"),
    ],
    ids=["infinite", "all_missing", "rows", "columns"],
)
def test_values_are_looked_at(client, spoil, message):
    with pytest.raises(ValueError, match=message):
        model("gmm").fit(mapped(spoil, 100))


def test_weights_of_the_wrong_length():
    with pytest.raises(ValueError, match=f"shape \\({N},\\)"):
        model("gmm").fit(unknown(lazy_values((100, D))), sample_weight=np.ones(N - 1))
