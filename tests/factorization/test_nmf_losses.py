"""Beta divergences, weights of entries and fixed components of NMF, against the slow oracle."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.decomposition import NMF as TheirNMF
from sklearn.decomposition._nmf import _beta_divergence
from sklearn.exceptions import ConvergenceWarning

import latently
from latently.factorization import NMF
from tests.oracles import nmf as oracle

BETAS = ["itakura-saito", -1.0, 0.5, 1.5, 3.0]
LOSSES = [*BETAS, "kl", "frobenius"]
WAYS = {
    **{str(beta): {"loss": beta} for beta in BETAS},
    "kl": {"loss": "kl"},
    "mu": {"loss": "frobenius", "solver": "mu"},
    "hals": {"loss": "frobenius"},
}
EXACT = {"accelerate": None, "tol": 0.0}
every_beta = pytest.mark.parametrize("loss", BETAS)
every_loss = pytest.mark.parametrize("loss", LOSSES)
every_way = pytest.mark.parametrize("way", WAYS)


def problem(seed, N=9, D=6, r=3, holed=False, zeros=False):
    """Rows, starting values of both factors, weights of rows, and weights of entries, some of them zero."""
    rng = np.random.default_rng(seed)
    X = rng.gamma(1.0, size=(N, r)) @ rng.gamma(1.0, size=(r, D)) * rng.gamma(4.0, 0.25, size=(N, D)) + 0.05
    if zeros:
        X *= rng.random((N, D)) < 0.7
    if holed:
        X[rng.random((N, D)) < 0.2] = np.nan
        X[:2] = np.where(np.isnan(X[:2]), 1.0, X[:2])
    W = rng.choice([0.0, 0.5, 1.0, 2.5], size=(N, D))
    W[:2] = 1.0  # complete rows among the others
    return X, rng.uniform(0.1, 2.0, (N, r)), rng.uniform(0.1, 2.0, (r, D)), rng.integers(1, 4, N), W


def started(S, A, **more):
    return NMF(len(A), components_init=A, activations_init=S, **more)


def swept(way, X, S, A, weight=None, exponent=1.0, entry_weight=None):
    if way == "hals":
        return oracle.coordinate_sweep(X, S, A, weight, entry_weight=entry_weight)
    return oracle.multiplicative_sweep(WAYS[way]["loss"], X, S, A, weight, exponent, entry_weight)


def unit(A):
    return A / np.linalg.norm(A, axis=1, keepdims=True)


def quietly(model, *data, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data, **more)


# -- beta divergences -----------------------------------------------------------------------------------


@every_beta
def test_two_sweeps_are_those_of_the_oracle(loss):
    X, S, A, weight, _ = problem(0, holed=True)
    costs, given = [], (S, A)
    for n in (1, 2):
        ours = started(*given, loss=loss, max_iter=n, **EXACT).fit(X, sample_weight=weight)
        S, A = oracle.multiplicative_sweep(loss, X, S, A, weight)
        costs.append(oracle.cost(loss, X, S, A, weight))
        np.testing.assert_allclose(ours.components_, unit(A), rtol=1e-9)
        np.testing.assert_allclose(ours.history_, costs, rtol=1e-9)
        assert ours.reconstruction_err_ == pytest.approx(np.sqrt(2 * costs[-1]))
    assert costs[1] < costs[0] < oracle.cost(loss, X, *given, weight)


@every_beta
def test_costs_are_those_of_scikit_learn(loss):
    X, _, A, *_ = problem(1, zeros=loss not in ("itakura-saito", -1.0))
    ours = NMF.from_parameters(components=A, loss=loss)
    S, beta = ours.transform(X), 0 if loss == "itakura-saito" else loss
    S[0] = 1.0  # somewhere else
    row_cost = [oracle.row_cost(loss, x, s, A) for x, s in zip(X, S, strict=True)]
    assert sum(row_cost) == pytest.approx(_beta_divergence(X, S, A, beta), rel=1e-6)
    np.testing.assert_allclose(ours.row_cost(X)[1:], row_cost[1:], rtol=1e-9)


@every_beta
def test_as_good_as_scikit_learn(loss):
    X = problem(2, N=40, D=10, r=3)[0]
    beta = 0 if loss == "itakura-saito" else loss
    theirs = TheirNMF(3, solver="mu", beta_loss=beta, init="random", random_state=0, max_iter=300, tol=0)
    W = quietly(theirs, X).transform(X)
    H = theirs.components_
    ours = started(W, H, loss=loss, max_iter=200, tol=0.0).fit(X)
    assert ours.history_[-1] <= _beta_divergence(X, W, H, beta) * (1 + 1e-9)  # goes on from there
    own = NMF(3, loss=loss, n_init=3, max_iter=300, tol=0.0, random_state=0).fit(X)
    assert own.history_[-1] <= 1.05 * _beta_divergence(X, W, H, beta)


@st.composite
def cases(draw):
    return {
        "seed": draw(st.integers(0, 10**6)),
        "loss": draw(st.sampled_from([*LOSSES, 0.1, 1.0, 1.9, 2.0, 2.5, 5.0, -0.5])),
        "accelerate": draw(st.sampled_from(["auto", None])),
        "penalty": draw(st.sampled_from([0.0, 0.0, 1e-3, 0.1])),
        "l1_ratio": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "form": draw(st.sampled_from(["dense", "holed", "sparse", "float32", "weights", "fixed"])),
        "r": draw(st.integers(1, 5)),
        "init": draw(st.sampled_from(["nndsvda", "random", "kmeans"])),
    }


# Of a row and a column of zeros, made by what float32 takes for zero.
SMALL_POWERS = {"seed": 0, "loss": 0.1, "accelerate": "auto", "penalty": 0.0, "l1_ratio": 0.0}
SMALL_POWERS |= {"form": "float32", "r": 2, "init": "nndsvda"}


@given(case=cases())
@example(case=SMALL_POWERS)
@settings(max_examples=25)
def test_no_sweep_leads_up(case):
    check_descent(case, max_iter=30)


@pytest.mark.slow
@given(case=cases())
@settings(max_examples=3000, derandomize=False)
def test_no_sweep_leads_up_in_thousands_of_cases(case):
    check_descent(case, max_iter=60)


def check_descent(case, max_iter):
    beta = {"itakura-saito": 0.0, "kl": 1.0, "frobenius": 2.0}.get(case["loss"], case["loss"])
    zeros = beta > 0
    X, _, A, weight, W = problem(case["seed"], N=12, D=7, holed=case["form"] == "holed", zeros=zeros)
    if zeros:
        X[3], X[:, 2] = 0.0, 0.0
    rows = {"sparse": sparse.csr_array, "float32": np.float32}.get(case["form"], np.asarray)(X)
    if case["form"] == "sparse" and not zeros:
        rows = X
    more = {"entry_weight": W} if case["form"] == "weights" else {}
    fixed = A[: min(2, case["r"])] if case["form"] == "fixed" else None
    model = NMF(
        case["r"],
        loss=case["loss"],
        accelerate=case["accelerate"],
        alpha_W=case["penalty"],
        l1_ratio=case["l1_ratio"],
        init=case["init"],
        fixed_components=fixed,
        max_iter=max_iter,
        tol=0.0,
        random_state=0,
    )
    ours = model.fit(rows, sample_weight=weight, **more)
    largest = np.nanmax(X) ** max(beta, 0) * X.size * 5 + X.size
    rounding = (1e-5 if case["form"] == "float32" else 1e-11) * largest
    assert np.all(np.isfinite(ours.history_)) and np.all(np.isfinite(ours.components_))
    assert np.max(np.diff(ours.history_), initial=0.0) <= rounding
    S = ours.transform(rows, **more)
    assert np.all(np.isfinite(S)) and S.min() >= 0
    if fixed is not None:
        np.testing.assert_array_equal(ours.components_[: len(fixed)], fixed)


@every_beta
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_transform_ends_where_no_slope_leads_down(loss, weighted):
    X, _, A, _, W = problem(3, N=15, D=8, r=4, zeros=loss in (0.5, 1.5, 3.0))
    A[1:] *= np.random.default_rng(0).random((3, A.shape[1])) < 0.7
    W = W if weighted else np.ones_like(W)
    ours = NMF.from_parameters(components=A, loss=loss)
    S = ours.transform(X, entry_weight=W)
    beta = 0.0 if loss == "itakura-saito" else loss
    made = S @ A
    with np.errstate(divide="ignore", invalid="ignore"):
        steep = np.where((made == 0) & (X == 0), 1e3, 0.0) if beta < 1 else 0.0  # infinitely, for such zeros
        slopes = (W * np.where(made > 0, made ** (beta - 1) - X * made ** (beta - 2), steep)) @ A.T
        size = (W * np.where(made > 0, made ** (beta - 1), 0.0)) @ A.T
    relative = slopes / np.maximum(size, 1e-12)
    assert relative.min() > -1e-5
    on = S / S.max(axis=1, keepdims=True) > 1e-8
    assert np.abs(relative[on]).max() < 1e-4
    rng = np.random.default_rng(1)
    costs = ours.row_cost(X, entry_weight=W)
    for n in range(5):
        told = oracle.row_cost(loss, X[n], S[n], A, W[n])
        assert costs[n] == pytest.approx(told, rel=1e-9, abs=1e-12)
        if 1 <= beta <= 2:  # convex, so the minimum
            for other in (S[n] * rng.uniform(0.9, 1.1, 4) for _ in range(20)):
                assert told <= oracle.row_cost(loss, X[n], other, A, W[n]) + 1e-12


def test_divergences_near_one_and_two_are_those_of_one_and_two():
    X, S, A, *_ = problem(4)
    for name, beta in (("kl", 1.0), ("frobenius", 2.0)):
        plain = started(S, A, loss=name, solver="mu", max_iter=5, **EXACT).fit(X)
        same = started(S, A, loss=beta, solver="mu", max_iter=5, **EXACT).fit(X)
        np.testing.assert_array_equal(plain.components_, same.components_)
        for near in (beta - 1e-6, beta + 1e-6):
            other = started(S, A, loss=near, max_iter=5, **EXACT).fit(X)
            np.testing.assert_allclose(other.history_, plain.history_, rtol=1e-4)
            np.testing.assert_allclose(other.components_, plain.components_, rtol=1e-4)


@pytest.mark.parametrize("scale", [1e-60, 1e60])
@pytest.mark.parametrize("loss", ["itakura-saito", 0.5, 3.0])
def test_all_scales_are_the_same_problem(loss, scale):
    X = problem(5, N=20)[0]
    model = NMF(2, loss=loss, max_iter=20, tol=0.0, random_state=0)
    plain, scaled = clone(model).fit(X), clone(model).fit(scale * X)
    by = scale ** (0.0 if loss == "itakura-saito" else loss)
    np.testing.assert_allclose(scaled.history_ / by, plain.history_, rtol=1e-5)
    np.testing.assert_allclose(scaled.components_, plain.components_, atol=1e-4)


@pytest.mark.parametrize("loss", [0.5, 1.5, 3.0])
def test_zeros_and_sparse_rows(loss):
    X, *_, weight, _ = problem(6, N=20, D=8, zeros=True)
    X[4], X[:, 2] = 0.0, 0.0
    model = NMF(3, loss=loss, max_iter=15, tol=0.0, random_state=0)
    dense = clone(model).fit(X, sample_weight=weight)
    thin = clone(model).fit(sparse.csr_array(X), sample_weight=weight)
    np.testing.assert_allclose(thin.history_, dense.history_, rtol=1e-7)
    np.testing.assert_allclose(dense.transform(sparse.csr_array(X)), dense.transform(X), atol=1e-7)
    np.testing.assert_allclose(dense.row_cost(sparse.csr_array(X)), dense.row_cost(X), atol=1e-9)
    np.testing.assert_allclose(dense.transform(X)[4], 0.0, atol=1e-9)
    np.testing.assert_allclose(dense.components_[:, 2], 0.0, atol=1e-9)


@pytest.mark.parametrize("loss", ["itakura-saito", -1.0])
def test_zeros_that_cost_infinitely_much_are_an_error(loss):
    X = problem(7)[0]
    ours = NMF(2, loss=loss, random_state=0, max_iter=3, tol=0.0).fit(X)
    X[2, 3] = 0.0
    for call in (NMF(2, loss=loss).fit, NMF(2, loss=loss).partial_fit, ours.transform, ours.row_cost):
        for rows in (X, sparse.csr_array(X)):
            with pytest.raises(ValueError, match=r"X has entries of zero.*small number.*\(NaN\).*above 0"):
                call(rows)
    X[2, 3] = np.nan
    NMF(2, loss=loss, random_state=0, max_iter=3, tol=0.0).fit(X).transform(X)
    with pytest.raises(ValueError, match="zero in feature 3"):
        NMF(2, loss=loss, components_init=np.array([[1.0] * 3 + [0.0] + [1.0] * 2] * 2)).fit(X)
    with pytest.raises(ValueError, match=r"too large.*rescale"):
        NMF(2, loss=5.0).fit(1e100 * X)
    with pytest.raises(ValueError, match="solver must be one of"):
        NMF(2, loss=loss, solver="hals").fit(X)


@every_beta
def test_batches_come_near_a_fit(loss):
    rng = np.random.default_rng(8)
    X = (
        rng.gamma(1.0, size=(400, 3)) @ rng.gamma(0.5, size=(3, 8)) * rng.gamma(20, 0.05, size=(400, 8))
        + 1e-2
    )
    whole = quietly(NMF(3, loss=loss, random_state=0, max_iter=100), X)
    online, first = NMF(3, loss=loss, random_state=0), None
    for _ in range(6):
        for start in range(0, 400, 80):
            online.partial_fit(X[start : start + 80])
            first = online.score(X) if first is None else first
    assert whole.score(X) - online.score(X) < 0.7 * (whole.score(X) - first)  # slowly, as for "kl"
    before = whole.score(X)
    whole.partial_fit(X[:2])
    assert before - whole.score(X) < 0.3 * (before - NMF(3, loss=loss).partial_fit(X[:2]).score(X))


@every_beta
@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_other_arrays(loss, library):
    xp = pytest.importorskip(library)
    X, *_, W = problem(9, N=15)
    model = NMF(2, loss=loss, max_iter=4, tol=0.0, random_state=0, fixed_components=X[:1])
    here, there = (
        clone(model).fit(X, entry_weight=W),
        clone(model).fit(xp.asarray(X), entry_weight=xp.asarray(W)),
    )
    np.testing.assert_allclose(np.from_dlpack(there.history_), here.history_, rtol=1e-8)
    costs = there.row_cost(xp.asarray(X), entry_weight=W)
    np.testing.assert_allclose(np.from_dlpack(costs), here.row_cost(X, entry_weight=W), rtol=1e-5, atol=1e-9)


# -- weights of entries ---------------------------------------------------------------------------------


@every_way
def test_two_sweeps_with_weights_are_those_of_the_oracle(way):
    X, S, A, weight, W = problem(10)
    costs, given = [], (S, A)
    for n in (1, 2):
        ours = started(*given, **WAYS[way], max_iter=n, **EXACT)
        ours.fit(X, sample_weight=weight, entry_weight=W)
        S, A = swept(way, X, S, A, weight, entry_weight=W)
        costs.append(oracle.cost(WAYS[way]["loss"], X, S, A, weight, entry_weight=W))
        np.testing.assert_allclose(ours.components_, unit(A), rtol=1e-9)
        np.testing.assert_allclose(ours.history_, costs, rtol=1e-9)


@every_way
def test_a_weight_of_zero_is_a_missing_entry(way):
    X, *_, W = problem(11, N=14)
    hidden = np.where(W > 0, X, np.nan)
    wild = np.where(W > 0, X, 1e9)
    model = NMF(2, max_iter=6, tol=0.0, random_state=0, **WAYS[way])
    for weights in ((W > 0).astype(float), W):
        missing = clone(model)
        if weights is W:  # NaN, with weights elsewhere
            missing.fit(hidden, entry_weight=np.where(W > 0, W, 7.0))
        else:
            missing.fit(hidden)
        ours = clone(model).fit(wild, entry_weight=weights)
        np.testing.assert_array_equal(ours.components_, missing.components_)
        np.testing.assert_array_equal(ours.history_, missing.history_)
    imputed = ours.impute(wild, entry_weight=W > 0)
    np.testing.assert_array_equal(imputed, ours.impute(hidden))
    np.testing.assert_array_equal(ours.transform(wild, entry_weight=W > 0), ours.transform(hidden))


@every_way
def test_weights_of_ones_are_none_and_of_rows_are_sample_weights(way):
    X, *_, weight, W = problem(12, N=14)
    model = NMF(2, max_iter=6, tol=0.0, random_state=0, init="random", **WAYS[way])
    plain = clone(model).fit(X)
    ones = clone(model).fit(X, entry_weight=np.ones_like(X))
    np.testing.assert_array_equal(ones.components_, plain.components_)
    by_row = clone(model).fit(X, sample_weight=weight)
    by_entry = clone(model).fit(X, entry_weight=np.broadcast_to(weight[:, None], X.shape))
    np.testing.assert_allclose(by_entry.history_, by_row.history_, rtol=1e-8)
    np.testing.assert_allclose(by_entry.components_, by_row.components_, rtol=1e-6, atol=1e-9)
    W[:, 1] = 1.0
    twice = np.where(np.arange(6) == 1, 2.0 * W, W)
    given = started(*problem(12, N=14)[1:3], max_iter=4, **EXACT, **WAYS[way])
    heavy = clone(given).fit(X, entry_weight=twice)
    A = given.components_init
    copied = clone(given).set_params(components_init=np.hstack([A, A[:, 1:2]]))
    copied.fit(np.hstack([X, X[:, 1:2]]), entry_weight=np.hstack([W, W[:, 1:2]]))
    np.testing.assert_allclose(copied.history_, heavy.history_, rtol=1e-8)


@every_way
def test_blocks_of_rows_and_rows_without_weight(way):
    """A block of which every row that counts is complete still has its weights."""
    X, *_, W = problem(13, N=20)
    W[5] = 0.0
    W[10:] = np.maximum(W[10:], 0.5)
    X[5] = np.nan
    model = NMF(2, max_iter=6, tol=0.0, random_state=0, **WAYS[way])
    whole = clone(model).fit(X, entry_weight=W)
    parts = clone(model).set_params(block_size=3).fit(X, entry_weight=W)
    fewer = clone(model).fit(np.delete(X, 5, axis=0), entry_weight=np.delete(W, 5, axis=0))
    for other in (parts, fewer):
        np.testing.assert_allclose(other.history_, whole.history_, rtol=1e-9)
        np.testing.assert_allclose(other.components_, whole.components_, rtol=1e-6, atol=1e-9)
    S = whole.transform(X, entry_weight=W)
    np.testing.assert_allclose(clone(model).fit_transform(X, entry_weight=W), S, rtol=1e-12)
    made = whole.reconstruct(X, entry_weight=W)
    np.testing.assert_allclose(made, S @ whole.components_, rtol=1e-9)
    expected = [
        oracle.row_cost(WAYS[way]["loss"], x, s, whole.components_, w)
        for x, s, w in zip(X, S, W, strict=True)
    ]
    np.testing.assert_allclose(whole.row_cost(X, entry_weight=W), expected, rtol=1e-8, atol=1e-12)
    assert whole.score(X, entry_weight=W) == pytest.approx(-np.mean(expected))
    batch = clone(model).partial_fit(X[:10], entry_weight=W[:10]).partial_fit(X[10:], entry_weight=W[10:])
    assert np.all(np.isfinite(batch.components_))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((9, 5)), r"entry_weight must have the shape of X, \(9, 6\), not \(9, 5\)"),
        (np.full((9, 6), -1.0), "entry_weight must not be negative; its smallest entry is -1"),
        (np.full((9, 6), np.nan), "entry_weight contains NaN"),
        (np.full((9, 6), 1e60), r"entry_weight must be zero or lie between 1e-50 and 1e\+50"),
        (np.zeros((9, 6)), "every entry of X is missing"),
        (np.arange(6) != np.full((9, 1), 2), "feature 2 of X is missing"),
        (np.full((9, 6), "a"), "could not convert string"),
    ],
)
def test_bad_weights(weights, message):
    X = problem(14)[0]
    with pytest.raises(ValueError, match=message):
        NMF(2).fit(X, entry_weight=weights)


def test_weights_need_dense_rows_in_memory(tmp_path):
    X = problem(14)[0]
    with pytest.raises(ValueError, match="entry_weight needs a dense X"):
        NMF(2).fit(sparse.csr_array(X), entry_weight=np.ones_like(X))
    np.save(tmp_path / "rows.npy", X)
    with pytest.raises(ValueError, match="entry_weight needs X in memory"):
        NMF(2).fit(tmp_path / "rows.npy", entry_weight=np.ones_like(X))


def test_a_checkpoint_belongs_to_its_weights(tmp_path):
    X, *_, W = problem(15)

    def stop(iteration):
        raise InterruptedError

    model = NMF(2, tol=0.0, random_state=0, checkpoint=tmp_path / "state", checkpoint_every=1)
    killed = clone(model).set_params(callbacks=[lambda it: stop(it) if it.number == 3 else None])
    with pytest.raises(InterruptedError):
        killed.fit(X, entry_weight=W)
    with pytest.raises(ValueError, match="other data"):
        clone(model).fit(X, entry_weight=W + 1.0)
    resumed = clone(model).set_params(max_iter=20).fit(X, entry_weight=W)
    whole = clone(model).set_params(max_iter=20, checkpoint=None).fit(X, entry_weight=W)
    np.testing.assert_array_equal(resumed.history_, whole.history_)


# -- fixed components -----------------------------------------------------------------------------------


@every_way
def test_two_sweeps_with_fixed_components_are_those_of_the_oracle(way):
    X, S, A, weight, _ = problem(16)
    given, first = (S, A), A[:2].copy()
    for n in (1, 2):
        ours = started(*given, fixed_components=first, **WAYS[way], max_iter=n, **EXACT)
        ours.fit(X, sample_weight=weight)
        if way == "hals":
            S, A = oracle.coordinate_sweep(X, S, A, weight, n_fixed=2)
        else:
            S, A = swept(way, X, S, A, weight)
            A[:2] = first
        np.testing.assert_allclose(ours.components_, np.vstack([first, unit(A[2:])]), rtol=1e-9)
        cost = oracle.cost(WAYS[way]["loss"], X, S, A, weight)
        assert ours.history_[-1] == pytest.approx(cost, rel=1e-9)


@every_way
def test_what_is_not_given_is_found(way):
    rng = np.random.default_rng(17)
    parts = rng.gamma(0.5, size=(3, 10)) + 0.01
    X = rng.gamma(1.0, size=(30, 3)) @ parts
    ours = quietly(NMF(3, fixed_components=parts[:2], random_state=0, max_iter=400, **WAYS[way]), X)
    np.testing.assert_array_equal(ours.components_[:2], parts[:2])
    mean = oracle.cost(WAYS[way]["loss"], X[:20], np.ones((20, 1)), X.mean(axis=0)[None])
    assert -ours.score(X) < 1e-3 * mean / 20
    alone = quietly(
        NMF(3, fixed_components=parts, random_state=0, **WAYS[way]), X
    )  # nothing is left to learn
    np.testing.assert_array_equal(alone.components_, parts)
    np.testing.assert_allclose(alone.reconstruct(X), X, rtol=1e-3, atol=1e-5)


@every_way
@pytest.mark.parametrize("alpha", [0.0, 1e-3])
def test_fixed_components_stay(way, alpha, tmp_path):
    X, _, A, *_ = problem(18, N=20)
    fixed = 100.0 * A[:1]
    model = NMF(3, fixed_components=fixed, alpha_W=alpha, random_state=0, max_iter=8, tol=0.0, **WAYS[way])
    ours = clone(model).set_params(n_init=3).fit(X)
    assert np.diff(ours.history_).max() <= 1e-9 * ours.history_[0]
    other = clone(model).set_params(components_init=A).fit(X)
    again = clone(model).set_params(warm_start=True, fixed_components=None).fit(X)
    again = again.set_params(fixed_components=fixed).fit(X)
    online = clone(model).partial_fit(X[:10]).partial_fit(X[10:])
    after = clone(model).fit(X).partial_fit(X)
    for fitted in (ours, other, again, online, after):
        np.testing.assert_array_equal(fitted.components_[:1], fixed)
    ours.save(tmp_path / "model")
    loaded = latently.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.fixed_components, fixed)
    np.testing.assert_array_equal(loaded.transform(X), ours.transform(X))


def test_bad_fixed_components():
    X = problem(19)[0]
    with pytest.raises(ValueError, match="fixed_components has 3 rows, more than the 2 components"):
        NMF(2, fixed_components=np.ones((3, 6))).fit(X)
    with pytest.raises(ValueError, match=r"fixed_components has shape \(1, 5\), but X has 6 features"):
        NMF(2, fixed_components=np.ones((1, 5))).fit(X)
    with pytest.raises(ValueError, match="fixed_components has 7 rows, more than the 6 components"):
        NMF(fixed_components=np.ones((7, 6))).fit(X)


@every_beta
def test_saved_and_loaded(loss, tmp_path):
    X = problem(20)[0]
    ours = NMF(2, loss=loss, random_state=0, max_iter=4, tol=0.0).fit(X)
    ours.save(tmp_path / "model")
    loaded = latently.load(tmp_path / "model")
    assert loaded.loss == loss
    np.testing.assert_array_equal(loaded.row_cost(X), ours.row_cost(X))
