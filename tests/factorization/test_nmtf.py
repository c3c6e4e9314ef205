"""NMTF, PenalizedNMTF and FastNMTF: sweeps against oracles, recovery of blocks, and what rows may be."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import latently
from latently.distributions.tri_factors import Factors, Overlap, balanced
from latently.factorization import NMTF, FastNMTF, PenalizedNMTF
from latently.selection import select
from tests.oracles import nmtf as oracle

PENALTIES = {"row_penalty": 0.7, "column_penalty": 0.4, "core_penalty": 0.3}
EXACT = {"tol": 0.0, "accelerate": None}
ALL = [NMTF, PenalizedNMTF, FastNMTF]
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


def problem(rng, holes=False, n=7, D=5, K=3, L=2):
    X = rng.random((n, D)) * 4
    if holes:
        X[rng.random((n, D)) < 0.25] = np.nan
        X[:, 1] = np.where(np.isnan(X).all(axis=1), 1.0, X[:, 1])
    return X, rng.random((n, K)) + 0.1, rng.random((K, L)) + 0.1, rng.random((D, L)) + 0.1


def planted(rng, n=120, D=80, K=4, L=3, noise=0.5, mean=None):
    """Blocks with noise, and the clusters of rows and columns."""
    z, c = rng.integers(K, size=n), rng.integers(L, size=D)
    mean = 4 * rng.permutation(K * L).reshape(K, L) / (K * L) if mean is None else mean
    return np.maximum(mean[np.ix_(z, c)] + noise * rng.normal(size=(n, D)), 0.0), z, c


def starting(Z, W, C):
    return {"row_factors_init": Z, "core_init": W, "column_factors_init": C}


# -- sweeps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("cls", [NMTF, PenalizedNMTF])
def test_sweeps_are_those_of_the_formulas(cls, holes, weighted):
    rng = np.random.default_rng(3)
    X, Z, W, C = problem(rng, holes)
    W[0, 0] = C[1, 0] = 0.0  # which stay zero
    weight = np.arange(len(X)) % 3 + 1.0 if weighted else None  # units of rows
    options = PENALTIES if cls is PenalizedNMTF else {}
    numbers = tuple(options.values())
    for n_sweeps in (0, 1, 3):
        model = cls(3, 2, max_iter=n_sweeps, **starting(Z, W, C), **EXACT, **options)
        model.fit(X, sample_weight=weight)
        z, w, c = Z, W, C
        costs = []
        for _ in range(n_sweeps):
            z, w, c = oracle.multiplicative_sweep(X, z, w, c, *numbers, weight=weight)
            costs.append(oracle.cost(X, z, w, c, *numbers, weight=weight))
        np.testing.assert_allclose(model.history_, costs, rtol=1e-10)
        if cls is NMTF:  # the scale is in the core
            root = np.ones(len(X)) if weight is None else np.sqrt(weight)
            by_row, by_column = np.linalg.norm(z * root[:, None], axis=0), np.linalg.norm(c, axis=0)
            z, w, c = z / by_row, by_row[:, None] * w * by_column, c / by_column
        np.testing.assert_allclose(model.row_factors_, z, **CLOSE)
        np.testing.assert_allclose(model.core_, w, **CLOSE)
        np.testing.assert_allclose(model.column_factors_, c, **CLOSE)
        assert model.n_iter_ == n_sweeps


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("holes", [False, True])
def test_label_sweeps_are_those_of_the_formulas(holes, weighted):
    rng = np.random.default_rng(5)
    for trial in range(5):
        X = problem(rng, holes, n=12, D=9)[0] - 2.0
        z, c = rng.integers(4, size=12), rng.integers(3, size=9)
        weight = np.arange(12) % 3 + 1.0 if weighted else None
        ones = np.ones(12) if weight is None else weight
        W = np.full((4, 3), np.nansum(ones[:, None] * X) / np.sum(ones[:, None] * ~np.isnan(X)))
        model = FastNMTF(4, 3, row_labels_init=z, column_labels_init=c, max_iter=0, **EXACT)
        model.fit(X, sample_weight=weight)
        np.testing.assert_array_equal(model.row_labels_, z)
        np.testing.assert_allclose(model.core_, oracle.block_means(X, z, c, W, ones), **CLOSE)
        costs = []
        for n_sweeps in (1, 2, 3):
            z, c, W = oracle.block_sweep(X, z, c, W, weight)
            costs.append(oracle.block_cost(X, z, c, W, weight))
            model.set_params(max_iter=n_sweeps).fit(X, sample_weight=weight)
            np.testing.assert_array_equal(model.row_labels_, z, err_msg=str(trial))
            np.testing.assert_array_equal(model.column_labels_, c)
            np.testing.assert_allclose(model.core_, W, **CLOSE)
            np.testing.assert_allclose(model.history_, costs, rtol=1e-10)


def test_ties_go_to_the_lowest_label_and_empty_blocks_keep_the_mean():
    X = np.full((6, 4), 2.5)
    model = FastNMTF(3, 2, row_labels_init=[2, 1, 2, 1, 2, 1], column_labels_init=[1, 0, 1, 0], **EXACT)
    model.set_params(max_iter=2).fit(X)
    assert not model.row_labels_.any() and not model.column_labels_.any()
    np.testing.assert_array_equal(model.core_, np.full((3, 2), 2.5))
    X = np.arange(6.0)[:, None] * np.ones(3)
    model = FastNMTF(3, 1, row_labels_init=[0, 0, 0, 0, 0, 2], column_labels_init=[0, 0, 0], **EXACT)
    model.set_params(max_iter=0).fit(X)
    np.testing.assert_allclose(model.core_[:, 0], [2.0, 2.5, 5.0])


def test_an_empty_cluster_takes_what_is_fitted_worst():
    X = np.array([0.0, 0.1, 0.0, 9.0, 0.1, 5.0])[:, None] * np.ones(4)
    options = {
        "row_labels_init": [0, 0, 0, 1, 0, 1],
        "column_labels_init": [0] * 4,
        "tol": 0.0,
        "max_iter": 6,
    }
    stays = FastNMTF(4, 1, accelerate=None, **options).fit(X)
    filled = FastNMTF(4, 1, **options).fit(X)
    assert len(np.unique(stays.row_labels_)) < 4 == len(np.unique(filled.row_labels_))
    assert filled.history_[-1] < stays.history_[-1] and np.all(np.diff(filled.history_) <= 0)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("form", ["dense", "sparse", "holes"])
@pytest.mark.parametrize("accelerate", ["auto", None])
def test_the_cost_never_rises(cls, form, accelerate):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.gamma(0.3, size=(40, 25)) * 10.0 ** rng.uniform(-3, 3)
        if form == "sparse":
            X[np.quantile(X, 0.8) > X] = 0.0
            X[3], X[:, 4] = 0.0, 0.0
            X = sp.csr_array(X)
        if form == "holes":
            X[rng.random(X.shape) < 0.3] = np.nan
        model = cls(
            5, 4, max_iter=40, tol=0.0, init="random", n_init=2, random_state=seed, accelerate=accelerate
        )
        model.fit(X)
        assert len(model.history_) == 40
        assert np.all(np.diff(model.history_) <= 1e-9 * model.history_[:-1])
        rows = {"row_labels": model.row_labels_} if cls is FastNMTF else {"row_factors": model.row_factors_}
        assert model.cost(X, **rows).total == pytest.approx(model.history_[-1], rel=1e-9)


def test_descent_is_no_worse_than_multiplicative_updates():
    X = planted(np.random.default_rng(0))[0]
    for cls in (NMTF, PenalizedNMTF):
        options = {"max_iter": 300, "tol": 1e-9, "random_state": 0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            descent, plain = (cls(4, 3, accelerate=how, **options).fit(X) for how in ("auto", None))
        assert descent.history_[-1] <= plain.history_[-1] * (1 + 1e-3)


def test_lengths_of_factors_make_the_penalties_least_and_leave_the_product():
    """With overlaps between all clusters the least penalties over lengths exist, and are found."""
    rng = np.random.default_rng(8)
    _, Z, W, C = problem(rng)
    overlap = Overlap(0.7, 0.4, 0.3)

    def penalties(logs):
        p, q = np.exp(logs[:3]), np.exp(logs[3:])
        z, w, c = Z * p, W / np.outer(p, q), C * q
        return oracle.cost(z @ w @ c.T, z, w, c, 0.7, 0.4, 0.3)

    factors = Factors(Z, W, C)
    for _ in range(60):
        before, factors = factors, balanced(factors, overlap)
        assert sum(overlap.costs(factors)) <= sum(overlap.costs(before)) * (1 + 1e-12)
    np.testing.assert_allclose(factors.rows @ factors.core @ factors.columns.T, Z @ W @ C.T, rtol=1e-9)
    least = minimize(penalties, np.zeros(5), tol=1e-12).fun
    assert sum(overlap.costs(factors)) == pytest.approx(least, rel=1e-6)
    assert least < 0.9 * penalties(np.zeros(5))


@pytest.mark.parametrize("penalty", [0.1, 10.0])
def test_rows_without_noise_need_few_sweeps(penalty):
    """Nearly all of their cost is penalties, which sweeps alone lower for thousands of iterations."""
    X, z, c = planted(np.random.default_rng(0), noise=0.0)
    penalties = dict.fromkeys(PENALTIES, penalty)
    model = PenalizedNMTF(4, 3, n_init=3, max_iter=30, random_state=0, **penalties).fit(X)
    assert model.converged_ and np.all(np.diff(model.history_) <= 0)
    assert model.history_[-1] < 1e-6 * np.sum(X**2)
    assert adjusted_rand_score(z, model.row_labels_) == adjusted_rand_score(c, model.column_labels_) == 1.0
    np.testing.assert_allclose(model.reconstruct(X), X, atol=1e-2)


# -- clusters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("seed", range(3))
def test_planted_blocks_are_found(cls, seed):
    mean = np.array([[4.0, 0.0, 1.0, 0.0], [0.0, 3.0, 1.0, 2.0], [2.0, 2.0, 0.0, 4.0]])
    X, z, c = planted(np.random.default_rng(seed), n=300, D=150, K=3, L=4, mean=mean)
    model = cls(3, 4, random_state=seed).fit(X)
    assert adjusted_rand_score(z, model.row_labels_) == 1.0
    assert adjusted_rand_score(c, model.column_labels_) == 1.0
    assert adjusted_rand_score(z, model.predict(X)) == 1.0


@pytest.mark.parametrize("cls", ALL)
def test_planted_blocks_are_found_in_spite_of_holes(cls):
    rng = np.random.default_rng(1)
    X, z, c = planted(rng, n=200, D=100)
    whole = X.copy()
    X[rng.random(X.shape) < 0.4] = np.nan
    model = cls(4, 3, random_state=0).fit(X)
    assert adjusted_rand_score(z, model.row_labels_) == adjusted_rand_score(c, model.column_labels_) == 1.0
    filled = model.impute(X)
    hidden = np.isnan(X)
    np.testing.assert_array_equal(filled[~hidden], X[~hidden])
    assert np.mean((filled - whole)[hidden] ** 2) < 0.35  # of a variance of 1.5, and noise of 0.2


@pytest.mark.parametrize("cls", ALL)
def test_sparse_rows_give_what_dense_ones_do(cls):
    rng = np.random.default_rng(2)
    X, z, c = planted(rng, n=200, D=150, mean=np.diag([3.0, 4.0, 5.0]), K=3, noise=0.0)
    X *= rng.random(X.shape) < 0.2
    X[7], X[:, 9] = 0.0, 0.0  # empty
    dense, sparse = (cls(3, 3, random_state=0).fit(form) for form in (X, sp.csr_array(X)))
    filled = X.any(axis=1)
    assert adjusted_rand_score(z[filled], sparse.row_labels_[filled]) == 1.0
    assert adjusted_rand_score(c[X.any(axis=0)], sparse.column_labels_[X.any(axis=0)]) == 1.0
    np.testing.assert_array_equal(sparse.row_labels_, dense.row_labels_)
    np.testing.assert_allclose(sparse.core_, dense.core_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(sparse.transform(sp.csr_array(X)), sparse.transform(X), atol=1e-9)
    assert sparse.cost(sp.csr_array(X)).total == pytest.approx(sparse.cost(X).total)
    for model in (dense, sparse):
        assert all(np.all(np.isfinite(value)) for value in (model.core_, model.transform(X)))


def test_a_large_sparse_matrix_is_never_made_dense():
    """10000 x 20000 entries would take 1.6 GB."""
    rng = np.random.default_rng(0)
    n, D, K = 10_000, 20_000, 5
    z, c = rng.integers(K, size=n), rng.integers(K, size=D)
    order = np.argsort(c, kind="stable")
    starts = np.searchsorted(c[order], np.arange(K + 1))
    rows = np.repeat(np.arange(n), 40)
    inside = rng.random(len(rows)) < 0.8
    own = z[rows]
    columns = np.where(
        inside,
        order[(starts[own] + rng.random(len(rows)) * (starts[own + 1] - starts[own])).astype(int)],
        rng.integers(D, size=len(rows)),
    )
    X = sp.csr_array((rng.uniform(1, 2, len(rows)), (rows, columns)), shape=(n, D))
    X = sp.diags_array((np.arange(n) % 100 != 0).astype(float)) @ X
    filled = np.asarray(X.sum(axis=1)).ravel() > 0
    for cls in (FastNMTF, NMTF):
        model = cls(K, K, random_state=0, n_init=3, max_iter=30).fit(X)
        assert adjusted_rand_score(z[filled], model.row_labels_[filled]) > 0.99


@pytest.mark.parametrize("cls", ALL)
def test_a_weight_is_a_number_of_copies(cls):
    rng = np.random.default_rng(4)
    X = planted(rng, n=60, D=20, noise=1.0)[0]
    weight = rng.integers(0, 4, size=60)
    weight[:3] = (0, 1, 2)
    once = cls(4, 3, random_state=0).fit(X, sample_weight=weight)
    copies = cls(4, 3, random_state=0).fit(np.repeat(X, weight, axis=0))
    np.testing.assert_allclose(once.core_, copies.core_, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(once.column_labels_, copies.column_labels_)
    np.testing.assert_array_equal(np.repeat(once.row_labels_, weight), copies.row_labels_)
    assert once.history_[-1] == pytest.approx(copies.history_[-1])
    assert len(once.row_labels_) == 60  # rows of no weight have labels as well


# -- rows of their own --------------------------------------------------------------------------------


@pytest.mark.parametrize("holes", [False, True])
def test_row_factors_have_the_least_cost(holes):
    rng = np.random.default_rng(6)
    X, _, W, C = problem(rng, holes, n=20, D=9, K=2, L=4)
    model = NMTF.from_parameters(core=W, column_factors=C)
    Z = model.transform(X)
    for i in range(1, 20):
        seen = ~np.isnan(X[i])
        B = (W @ C.T)[:, seen]
        gradient = B @ (Z[i] @ B - X[i, seen])
        assert np.all(gradient > -1e-8) and np.all(np.abs(gradient * Z[i]) < 1e-8)
    np.testing.assert_allclose(
        model.row_cost(X), [oracle.cost(X[i : i + 1], Z[i : i + 1], W, C) for i in range(20)], rtol=1e-9
    )
    assert model.score(X) == pytest.approx(-model.cost(X).total / 20)


def test_a_penalty_leaves_few_clusters_to_a_row():
    rng = np.random.default_rng(7)
    X = rng.random((30, 12))
    core, columns = rng.random((4, 3)), rng.random((12, 3))
    free = PenalizedNMTF.from_parameters(core=core, column_factors=columns, row_penalty=0.0)
    strict = PenalizedNMTF.from_parameters(core=core, column_factors=columns, row_penalty=100.0)
    assert (
        np.mean((strict.transform(X) > 0).sum(axis=1)) == 1.0 < np.mean((free.transform(X) > 0).sum(axis=1))
    )
    best = [
        min(
            oracle.cost(X[i : i + 1], z * np.eye(4)[k : k + 1], core, columns)
            for k in range(4)
            for z in [max(0, X[i] @ (core @ columns.T)[k]) / np.sum((core @ columns.T)[k] ** 2)]
        )
        for i in range(30)
    ]
    np.testing.assert_allclose(strict.row_cost(X), best, rtol=1e-9)
    scaled = PenalizedNMTF.from_parameters(
        core=core, column_factors=columns, row_norms=[1e9, 1.0, 1e9, 1e9], row_penalty=0.0
    )
    belongs = free.transform(X)[:, 1] > 1e-6
    assert np.all(scaled.predict(X)[belongs] == 1)


def test_new_rows_go_to_the_nearest_blocks():
    rng = np.random.default_rng(8)
    core, labels = rng.normal(size=(3, 2)), np.array([0, 1, 1, 0, 1])
    model = FastNMTF.from_parameters(core=core, column_labels=labels)
    X = rng.normal(size=(40, 5)) + 1e6
    X[rng.random(X.shape) < 0.2] = np.nan
    moved = FastNMTF.from_parameters(core=core + 1e6, column_labels=labels)
    errors = np.array([np.nansum((X - 1e6 - core[k, labels]) ** 2, axis=1) for k in range(3)])
    np.testing.assert_array_equal(moved.predict(X), errors.argmin(axis=0))
    np.testing.assert_array_equal(model.predict(X - 1e6), errors.argmin(axis=0))
    np.testing.assert_allclose(moved.row_cost(X), 0.5 * errors.min(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(moved.transform(X).argmax(axis=1), moved.predict(X))
    np.testing.assert_array_equal(moved.reconstruct(X), moved.core_[moved.predict(X)][:, labels])


@pytest.mark.parametrize("cls", ALL)
def test_a_file_holds_what_new_rows_need(cls, tmp_path):
    X = planted(np.random.default_rng(0))[0]
    model = cls(4, 3, random_state=0).fit(X)
    model.save(tmp_path / "model.latently")
    read = latently.load(tmp_path / "model.latently")
    np.testing.assert_array_equal(read.predict(X), model.predict(X))
    np.testing.assert_array_equal(read.transform(X), model.transform(X))
    np.testing.assert_array_equal(read.column_labels_, model.column_labels_)
    assert read.column_labels_.dtype.kind == "i" and not hasattr(read, "row_labels_")


def test_warm_starts_go_on_where_the_last_fit_ended():
    X = planted(np.random.default_rng(0), noise=2.0)[0]
    options = {"tol": 0.0, "random_state": 0, "accelerate": None, "n_init": 2}
    for cls in ALL:
        whole = cls(4, 3, max_iter=7, **options).fit(X)
        model = cls(4, 3, max_iter=4, warm_start=True, **options).fit(X)
        model.set_params(max_iter=3).fit(X)
        assert model.history_[-1] == pytest.approx(whole.history_[-1], rel=1e-9)
        model.fit(X[:50])  # other rows: from the beginning


# -- selection ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [NMTF, FastNMTF])
def test_numbers_of_clusters_are_selected_by_hidden_entries(cls):
    mean = np.array([[4.0, 0.0, 1.0], [0.0, 3.0, 1.0], [1.0, 2.0, 4.0]])  # of full rank: no two would do
    X = planted(np.random.default_rng(3), n=80, D=50, K=3, L=3, noise=0.4, mean=mean)[0]
    grid = {"n_row_clusters": [2, 3, 4], "n_column_clusters": [2, 3]}
    found = select(cls(random_state=0, n_init=1, tol=1e-3), X, grid, criterion="entries")
    assert found.best_.n_column_clusters == 3 and found.best_.n_row_clusters >= 3
    by_rows = found.table_.groupby("n_row_clusters").held_out_error.min()
    assert by_rows[2] > 2 * by_rows[3]
    assert set(grid) <= set(found.table_.columns)


# -- what rows may be ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of penalties beside tiny X
@pytest.mark.parametrize("cls", ALL)
def test_constant_and_empty_matrices_have_a_fit(cls):
    for X in (np.full((8, 5), 3.0), np.zeros((8, 5)), np.eye(8)[:, :5], 1e-9 * np.ones((8, 5))):
        model = cls(2, 2, random_state=0).fit(X)
        assert model.row_labels_.shape == (8,) and model.column_labels_.shape == (5,)
        assert np.all(np.isfinite(model.history_)) and np.all(np.isfinite(model.reconstruct(X)))
    constant = np.full((8, 5), 3.0)
    close = 1e-3 if cls is PenalizedNMTF else 1e-9  # which penalties shrink
    np.testing.assert_allclose(cls(2, 2, random_state=0).fit(constant).reconstruct(constant), 3.0, rtol=close)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("cls", ALL)
def test_rows_without_entries_have_a_label(cls):
    X = planted(np.random.default_rng(0), n=30, D=12)[0]
    X[4] = np.nan
    model = cls(4, 3, random_state=0).fit(X)
    assert model.row_labels_.shape == (30,) and model.predict(X)[4] == 0
    assert np.all(np.isfinite(model.transform(X)))


@pytest.mark.parametrize(
    ("cls", "options", "X", "message"),
    [
        (NMTF, {}, -np.ones((4, 4)), "Negative values in data passed to NMTF.*FastNMTF"),
        (PenalizedNMTF, {}, -np.ones((4, 4)), "Negative values in data passed to PenalizedNMTF"),
        (NMTF, {"n_row_clusters": 5}, np.ones((4, 4)), "n_row_clusters=5 must not be larger.*n_samples=4"),
        (FastNMTF, {"n_column_clusters": 5}, np.ones((4, 4)), "n_column_clusters=5 must not.*n_features=4"),
        (FastNMTF, {}, np.ones((1, 4)), "1 sample"),
        (FastNMTF, {}, np.full((4, 4), np.nan), "every entry of X is missing"),
        (NMTF, {}, np.where(np.arange(4) == 2, np.nan, np.ones((4, 4))), "feature 2 of X is missing"),
        (NMTF, {}, np.full((4, 4), np.inf), "infinity"),
        (NMTF, {}, np.full((4, 4), 1e200), "too large"),
        (NMTF, {"init": "nndsvd"}, np.ones((4, 4)), "init must be one of"),
        (
            NMTF,
            {"row_factors_init": -np.ones((4, 2))},
            np.ones((4, 4)),
            "row_factors_init must not be negative",
        ),
        (NMTF, {"core_init": np.ones((3, 2))}, np.ones((4, 4)), "core_init has shape"),
        (PenalizedNMTF, {"core_penalty": 0.0}, np.ones((4, 4)), "core_penalty=0 with row_penalty=0.1"),
        (PenalizedNMTF, {"row_penalty": -1.0}, np.ones((4, 4)), "row_penalty must be"),
        (
            FastNMTF,
            {"row_labels_init": [0, 1, 2, 0]},
            np.ones((4, 4)),
            "row_labels_init must hold integers from 0 to 1",
        ),
        (FastNMTF, {"column_labels_init": [0, 1]}, np.ones((4, 4)), "column_labels_init must have shape"),
    ],
)
def test_bad_input_is_named(cls, options, X, message):
    with pytest.raises(ValueError, match=message):
        cls(**options).fit(X)


def test_all_penalties_may_be_zero():
    X = planted(np.random.default_rng(0), n=30, D=12)[0]
    options = {"max_iter": 5, "tol": 0.0, "random_state": 0, "accelerate": None}
    zero = {"row_penalty": 0.0, "column_penalty": 0.0, "core_penalty": 0.0}
    free, plain = PenalizedNMTF(4, 3, **zero, **options).fit(X), NMTF(4, 3, **options).fit(X)
    np.testing.assert_allclose(free.history_, plain.history_, rtol=1e-9)


def test_negative_rows_are_refused_by_methods_as_well():
    model = NMTF.from_parameters(core=np.ones((1, 1)), column_factors=np.ones((3, 1)))
    with pytest.raises(ValueError, match="Negative values"):
        model.transform(-np.ones((2, 3)))
    with pytest.raises(ValueError, match="columns"):
        model.inverse_transform(np.ones((2, 3)))


def test_known_factors_of_rows_give_their_labels():
    Z = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 1.5]])
    model = NMTF.from_parameters(core=np.eye(2), column_factors=np.eye(2), row_factors=Z)
    np.testing.assert_allclose(np.linalg.norm(model.row_factors_, axis=0), 1.0)
    np.testing.assert_array_equal(model.row_labels_, [0, 1, 1])
    penalized = PenalizedNMTF.from_parameters(core=np.eye(2), column_factors=np.eye(2), row_factors=Z)
    np.testing.assert_array_equal(penalized.row_factors_, Z)
    np.testing.assert_allclose(penalized.row_norms_, np.linalg.norm(Z, axis=0))
    fast = FastNMTF.from_parameters(core=np.eye(2), column_labels=[0, 1], row_labels=[1, 0, 1])
    np.testing.assert_array_equal(fast.row_labels_, [1, 0, 1])
    with pytest.raises(ValueError, match="column_labels must hold integers from 0 to 1"):
        FastNMTF.from_parameters(core=np.eye(2), column_labels=[0, 2])
