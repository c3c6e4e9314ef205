"""Non-negative factorisation, against an oracle that walks through all entries one by one."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.decomposition import NMF as TheirNMF
from sklearn.exceptions import ConvergenceWarning

import latently
from latently.distributions.nonnegative import descended
from latently.estimators.weights import in_rows
from latently.factorization import NMF
from latently.factorization.sweeps import cheapest_scale
from tests.oracles import nmf as oracle

WAYS = {
    "hals": {"loss": "frobenius", "solver": "hals"},
    "mu": {"loss": "frobenius", "solver": "mu"},
    "kl": {"loss": "kl"},
}
EXACT = {"accelerate": None, "tol": 0.0}  # max_iter=n is exactly n sweeps
INITS = ["nndsvd", "nndsvda", "nndsvdar", "random", "kmeans"]
every_way = pytest.mark.parametrize("way", WAYS)
both_losses = pytest.mark.parametrize("loss", ["frobenius", "kl"])
holed_or_not = pytest.mark.parametrize("holed", [False, True], ids=["", "holed"])
weighted_or_not = pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])


def problem(seed, N=9, D=6, r=3, holed=False, sparsity=0.3):
    """Rows with zeros among them, starting values of both factors, and weights."""
    rng = np.random.default_rng(seed)
    parts = rng.gamma(1.0, size=(r, D)) * (rng.random((r, D)) > sparsity)
    X = rng.gamma(1.0, size=(N, r)) @ parts + 0.1 * rng.random((N, D))
    X *= rng.random((N, D)) > sparsity
    if holed:
        X[rng.random((N, D)) < 0.2] = np.nan
        X[:2] = np.nan_to_num(X[:2])  # complete rows among the others
        X[2], X[2, 0] = np.nan, 0.0
    weight = in_rows(rng.uniform(0.2, 3.0, N))  # costs are sums
    return X, rng.uniform(0.1, 2.0, (N, r)), rng.uniform(0.1, 2.0, (r, D)), weight


def started(S, A, way, **more):
    return NMF(len(A), components_init=A, activations_init=S, **{**WAYS[way], **more})


def swept(way, X, S, A, weight, exponent=1.0):
    """One sweep of the oracle."""
    if way == "hals":
        return oracle.coordinate_sweep(X, S, A, weight)
    return oracle.multiplicative_sweep(WAYS[way]["loss"], X, S, A, weight, exponent)


def unit(A):
    norms = np.linalg.norm(A, axis=1, keepdims=True)
    return A / np.where(norms > 0, norms, 1.0)


def quietly(model, *data, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data, **more)


def level(X):
    """What rounding of costs is measured by."""
    return 0.5 * float(np.nansum(np.asarray(X, dtype=float) ** 2)) + float(np.nansum(np.abs(X)))


# -- costs ----------------------------------------------------------------------------------------------


@every_way
@holed_or_not
@weighted_or_not
def test_the_cost_of_a_start_is_that_of_the_oracle(way, holed, weighted):
    X, S, A, weight = problem(0, holed=holed)
    S[3, 1], A[0, 2] = 0.0, 0.0
    weight = weight if weighted else None
    ours = started(S, A, way, max_iter=0, **EXACT).fit(X, sample_weight=weight)
    expected = oracle.cost(WAYS[way]["loss"], X, S, A, weight)
    assert ours.reconstruction_err_ == pytest.approx(np.sqrt(2 * expected), rel=1e-9)
    np.testing.assert_allclose(ours.components_, unit(A), rtol=1e-14)
    assert ours.n_iter_ == 0 and len(ours.history_) == 0


@both_losses
@holed_or_not
def test_costs_of_rows_are_those_of_the_oracle(loss, holed):
    X, _, A, weight = problem(1, holed=holed)
    ours = NMF.from_parameters(components=A, loss=loss)
    S = ours.transform(X)
    expected = [oracle.row_cost(loss, x, s, A) for x, s in zip(X, S, strict=True)]
    np.testing.assert_allclose(ours.row_cost(X), expected, rtol=1e-9, atol=1e-12)
    assert ours.score(X, sample_weight=weight) == pytest.approx(-np.average(expected, weights=weight))
    assert ours.score(X) == pytest.approx(-np.mean(expected))
    squares = np.nansum((X - S @ A) ** 2, axis=1)
    assert ours.squared_error(X) == pytest.approx(squares.sum())
    assert ours.squared_error(X, sample_weight=weight) == pytest.approx(weight @ squares)
    if not holed:
        np.testing.assert_allclose(ours.row_cost(sparse.csr_array(X)), expected, rtol=1e-9, atol=1e-12)


def test_what_no_component_has_costs_infinitely_much_by_divergence():
    ours = NMF.from_parameters(components=[[1.0, 2.0, 0.0]], loss="kl")
    X = np.array([[1.0, 2.0, 0.0], [1.0, 2.0, 1e9], [0.0, 0.0, 3.0]])
    for rows in (X, sparse.csr_array(X)):
        np.testing.assert_allclose(ours.row_cost(rows), [0.0, np.inf, np.inf], atol=1e-12)
        np.testing.assert_allclose(ours.transform(rows), [[1.0], [1.0], [0.0]], atol=1e-12)
    assert ours.score(X) == -np.inf


# -- single sweeps --------------------------------------------------------------------------------------


@every_way
@holed_or_not
@weighted_or_not
def test_two_sweeps_are_those_of_the_oracle(way, holed, weighted):
    X, S, A, weight = problem(2, holed=holed)
    S[3, 1], A[0, 2] = 0.0, 0.0
    weight = weight if weighted else None
    costs = []
    for n in (1, 2):
        ours = started(*problem(2, holed=holed)[1:3], way, max_iter=n, **EXACT)
        ours.activations_init[3, 1] = ours.components_init[0, 2] = 0.0
        ours.fit(X, sample_weight=weight)
        S, A = swept(way, X, S, A, weight)
        costs.append(oracle.cost(WAYS[way]["loss"], X, S, A, weight))
        np.testing.assert_allclose(ours.components_, unit(A), rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(ours.history_, costs, rtol=1e-9)
        assert ours.n_iter_ == n and not ours.converged_
    assert costs[1] < costs[0]


@pytest.mark.parametrize("way", ["mu", "kl"])
@holed_or_not
def test_exponents_grow_by_a_tenth(way, holed):
    X, S, A, _ = problem(3, holed=holed)
    ours = started(S, A, way, max_iter=3, tol=0.0).fit(X)
    costs = []
    for exponent in (1.0, 1.1, 1.21):
        S, A = swept(way, X, S, A, None, exponent)
        costs.append(oracle.cost(WAYS[way]["loss"], X, S, A))
    assert costs[0] > costs[1] > costs[2]  # or steps would have been taken back
    np.testing.assert_allclose(ours.history_, costs, rtol=1e-9)
    np.testing.assert_allclose(ours.components_, unit(A), rtol=1e-9)


@pytest.mark.parametrize("way", ["mu", "kl"])
def test_a_sweep_that_leads_up_is_taken_again_with_exponent_one(way, monkeypatch):
    X, S, A, _ = problem(4, N=12, D=8, r=4)
    quick, plain = (started(S, A, way, max_iter=200, tol=0.0, accelerate=a).fit(X) for a in ("auto", None))
    assert quick.history_[100] < plain.history_[100]
    monkeypatch.setattr("latently.core.alternation._LARGEST_EXPONENT", 5.0)
    monkeypatch.setattr("latently.core.alternation._GROWTH_OF_EXPONENT", 5.0)
    ours = started(S, A, way, max_iter=30, tol=0.0).fit(X)
    assert ours.n_passes_ > ours.n_iter_ + 5
    assert np.diff(ours.history_).max() <= 1e-12 * level(X)
    first, again = oracle.multiplicative_sweep(WAYS[way]["loss"], X, S, A), None
    for exponent in (5.0, 1.0):  # the second sweep leads up with the larger exponent
        again = oracle.multiplicative_sweep(WAYS[way]["loss"], X, *first, exponent=exponent)
        assert (oracle.cost(WAYS[way]["loss"], X, *again) > ours.history_[0]) == (exponent == 5.0)
    assert ours.history_[1] == pytest.approx(oracle.cost(WAYS[way]["loss"], X, *again), rel=1e-9)


def test_multiplicative_zeros_stay_and_others_may_leave():
    X, S, A, _ = problem(5, sparsity=0.0)
    A[0, :3] = 0.0
    for way in ("mu", "kl"):
        assert np.all(started(S, A, way, max_iter=20, **EXACT).fit(X).components_[0, :3] == 0)
    ours = started(S, A, "hals", max_iter=20, **EXACT).fit(X)
    assert np.any(ours.components_[0, :3] > 0)


@every_way
def test_scales_of_the_factors_do_not_matter(way):
    X, S, A, _ = problem(6)
    c = np.array([1e-3, 7.0, 1e4])
    ours = started(S, A, way, max_iter=6, **EXACT).fit(X)
    scaled = started(S / c, A * c[:, None], way, max_iter=6, **EXACT).fit(X)
    np.testing.assert_allclose(scaled.history_, ours.history_, rtol=1e-9)
    np.testing.assert_allclose(scaled.components_, ours.components_, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("own_matrix", [False, True])
def test_coordinate_descent_finds_the_minimum(own_matrix):
    rng = np.random.default_rng(0)
    r, m = 11, 5  # more coordinates than are taken together
    rows = rng.normal(size=(m, 30, r))
    targets = rng.normal(size=(m, 30))
    if not own_matrix:
        rows[:] = rows[0]
    G = np.stack([A.T @ A for A in rows], axis=-1)
    B = np.stack([A.T @ b for A, b in zip(rows, targets, strict=True)], axis=-1)
    found = descended(np.zeros((r, m)), G if own_matrix else G[:, :, 0], B, 3000, 1e-14)
    expected = np.stack([oracle.nnls(A, b)[0] for A, b in zip(rows, targets, strict=True)], axis=-1)
    np.testing.assert_allclose(found, expected, atol=1e-9)


# -- no step leads up -----------------------------------------------------------------------------------


@st.composite
def cases(draw):
    return {
        "seed": draw(st.integers(0, 10**6)),
        "way": draw(st.sampled_from(list(WAYS))),
        "accelerate": draw(st.sampled_from(["auto", None])),
        "penalty": draw(st.sampled_from([0.0, 0.0, 1e-3, 0.1])),
        "l1_ratio": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "weighted": draw(st.booleans()),
        "form": draw(st.sampled_from(["dense", "holed", "sparse", "float32", "counts"])),
        "empty": draw(st.booleans()),
        "r": draw(st.integers(1, 6)),
        "init": draw(st.sampled_from(["nndsvda", "nndsvdar", "random", "kmeans"])),
    }


@given(case=cases())
@settings(max_examples=120)
def test_no_sweep_leads_up(case):
    check_descent(case, max_iter=25)


def check_descent(case, max_iter):
    X, _, _, weight = problem(case["seed"], N=14, D=7, holed=case["form"] == "holed")
    if case["empty"]:  # a row and a feature of zeros, and a row that nothing is known of
        X[1], X[:, 2], weight[3] = 0.0, 0.0, 0.0
        if case["form"] == "holed":
            X[4] = np.nan
    seen = ~np.isnan(X).all(axis=0)
    X = X[:, seen]
    given = {
        "sparse": lambda: sparse.csr_array(X),
        "float32": lambda: X.astype(np.float32),
        "counts": lambda: np.round(5 * X).astype(np.int64),
    }.get(case["form"], lambda: X)()
    alpha, l1 = case["penalty"], case["l1_ratio"]
    ours = NMF(
        case["r"],
        accelerate=case["accelerate"],
        alpha_W=alpha,
        l1_ratio=l1,
        init=case["init"],
        max_iter=max_iter,
        tol=0.0,
        random_state=0,
        **WAYS[case["way"]],
    )
    weight = weight if case["weighted"] else None
    ours.fit(given, sample_weight=weight)
    rounding = 1e-5 if case["form"] == "float32" else 1e-11
    X = X if case["form"] != "counts" else np.round(5 * X)
    scale = level(X) * (1.0 if weight is None else weight.max())
    assert np.all(np.isfinite(ours.history_)) and np.all(ours.components_ >= 0)
    assert np.max(np.diff(ours.history_), initial=0.0) <= rounding * scale
    counted = np.ones(len(X)) if weight is None else weight
    total = counted[~np.isnan(X).all(axis=1)].sum()
    penalties = oracle.penalties(alpha, alpha, l1, X.shape[1], total)
    S = ours.transform(given)
    assert S.min() >= 0
    # activations that are solved for are at least as good as those of the last sweep
    # (rows that do not count may cost infinitely much: what they alone have is in no component)
    told = counted > 0
    loss = WAYS[case["way"]]["loss"]
    end = oracle.cost(loss, X[told], S[told], ours.components_, counted[told], penalties)
    assert end <= ours.history_[-1] + 10 * rounding * scale


def test_curvatures_that_vanish_in_floating_point_do_no_harm():
    case = {
        "seed": 3577,
        "way": "kl",
        "accelerate": "auto",
        "penalty": 0.0,
        "l1_ratio": 0.0,
        "weighted": True,
    }
    check_descent({**case, "form": "holed", "empty": False, "r": 6, "init": "nndsvdar"}, max_iter=60)


@pytest.mark.slow
@given(case=cases())
@settings(max_examples=3000, derandomize=False)
def test_no_sweep_leads_up_in_thousands_of_cases(case):
    check_descent(case, max_iter=60)


@pytest.mark.parametrize(
    ("way", "penalty"),
    [
        ("hals", {}),
        ("hals", {"alpha_W": 0.02, "l1_ratio": 1.0}),
        ("mu", {"alpha_W": 0.01}),
        ("kl", {}),
        ("kl", {"alpha_W": 0.02, "l1_ratio": 0.5}),
    ],
)
def test_every_slope_agrees_at_the_end(way, penalty):
    """Zero where an entry is positive, and not negative where it is zero."""
    X, _, _, weight = problem(7, N=15, D=6, r=2, sparsity=0.2)
    ours = quietly(
        NMF(2, max_iter=3000, tol=1e-13, random_state=0, **penalty, **WAYS[way]), X, sample_weight=weight
    )
    A, S = ours.components_, ours.transform(X)
    alpha, l1 = penalty.get("alpha_W", 0.0), penalty.get("l1_ratio", 0.0)
    given = oracle.penalties(alpha, alpha, l1, 6, weight.sum())
    cost = lambda S, A: oracle.cost(WAYS[way]["loss"], X, S, A, weight, given)

    def slope(which, index, h=1e-6):
        factors = [S, A]
        moved = factors[which].copy()
        ends = []
        for sign in (1, -1) if moved[index] > h else (2, 0):
            moved = factors[which].copy()
            moved[index] += sign * h
            ends.append(cost(*(factors[:which] + [moved] + factors[which + 1 :])))
        return (ends[0] - ends[1]) / (2 * h)

    for which, factor in enumerate((S, A)):
        for index in np.ndindex(factor.shape):
            found = slope(which, index)
            assert found > -2e-3
            assert factor[index] < 1e-4 or abs(found) < 2e-3


@every_way
def test_as_good_as_the_peers(way):
    X = problem(8, N=40, D=12, r=4)[0]
    ours = quietly(NMF(4, max_iter=1000, tol=1e-7, random_state=0, n_init=3, **WAYS[way]), X)
    name = "frobenius" if way != "kl" else "kullback-leibler"
    settings = {"beta_loss": name, "solver": "cd" if way == "hals" else "mu", "max_iter": 1000, "tol": 1e-7}
    theirs = quietly(TheirNMF(4, init="nndsvda", random_state=0, **settings), X)
    assert ours.reconstruction_err_ < 1.01 * theirs.reconstruction_err_


# -- penalties ------------------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("l1_ratio", [0.3, 1.0])
def test_penalties_mean_what_they_mean_to_scikit_learn(way, l1_ratio):
    X = problem(9, N=20, D=8)[0]
    loss = WAYS[way]["loss"]
    penalty = {"alpha_W": 0.01, "alpha_H": 0.03, "l1_ratio": l1_ratio}
    ours = quietly(NMF(3, max_iter=800, tol=1e-8, random_state=0, n_init=2, **penalty, **WAYS[way]), X)
    name = "frobenius" if loss == "frobenius" else "kullback-leibler"
    solver = "cd" if loss == "frobenius" else "mu"
    theirs = TheirNMF(3, init="nndsvda", beta_loss=name, solver=solver, max_iter=800, tol=1e-8, **penalty)
    W = quietly(theirs.set_params(random_state=0), X).transform(X)
    given = oracle.penalties(0.01, 0.03, l1_ratio, 8, 20)
    cost = oracle.cost(loss, X, ours.transform(X), ours.components_, penalties=given)
    assert cost == pytest.approx(ours.history_[-1], rel=1e-4)
    assert cost < 1.005 * oracle.cost(loss, X, W, theirs.components_, penalties=given)
    bare = oracle.cost(loss, X, ours.transform(X), ours.components_)
    assert ours.reconstruction_err_ == pytest.approx(np.sqrt(2 * bare), rel=1e-2)


@every_way
def test_the_scale_of_a_start_is_mended_at_once_where_there_are_penalties(way):
    X, S, A, _ = problem(10)
    penalty = {"alpha_W": 1e-3, "l1_ratio": 0.5}
    ends = [
        started(S / c, A * c, way, max_iter=30, tol=0.0, **penalty).fit(X).history_[-1]
        for c in (1.0, 1e-4, 1e4)
    ]
    np.testing.assert_allclose(ends[1:], ends[0], rtol=0.02)


@every_way
@pytest.mark.parametrize("accelerate", [None, "auto"])
def test_penalties_of_both_factors_balance_after_every_sweep(way, accelerate):
    """Of squares, they are then equal for each part, and so in all."""
    X = problem(9, N=20, D=8)[0]
    for n in (1, 4):
        model = NMF(3, alpha_W=1e-3, alpha_H=5e-3, random_state=0, **WAYS[way])
        ours = model.set_params(max_iter=n, tol=0.0, accelerate=accelerate).fit(X)
        penalties = ours.history_[-1] - 0.5 * ours.reconstruction_err_**2
        assert penalties == pytest.approx(5e-3 * 20 * np.sum(ours.components_**2), rel=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_thecheapest_scale(seed):
    terms = np.random.default_rng(seed).gamma(0.3, size=(4, 20))
    terms[0, :4] = terms[2, :4] = 0.0
    cost = lambda c: terms[0] * c + terms[1] * c**2 / 2 + terms[2] / c + terms[3] / c**2 / 2
    best = cheapest_scale(*terms)
    for other in (0.5, 0.99, 1.01, 2.0):
        assert np.all(cost(best) <= cost(other * best) * (1 + 1e-12))


def test_a_penalty_too_large_leaves_nothing():
    X = problem(11)[0]
    for way in ("hals", "mu"):
        ours = NMF(3, alpha_W=50.0, l1_ratio=1.0, random_state=0, **WAYS[way]).fit(X)
        assert ours.history_[-1] == pytest.approx(0.5 * np.sum(X**2), rel=1e-6)
        assert np.max(ours.transform(X)) < 1e-6


# -- activations of given components --------------------------------------------------------------------


@both_losses
@holed_or_not
@pytest.mark.parametrize("penalty", [{}, {"alpha_W": 0.02}, {"alpha_W": 0.02, "l1_ratio": 1.0}], ids=str)
def test_transform_is_the_minimum(loss, holed, penalty):
    X, _, A, _ = problem(12, N=20, D=8, r=4, holed=holed)
    A[1:] *= np.random.default_rng(0).random((3, A.shape[1])) < 0.7
    ours = NMF.from_parameters(components=A, loss=loss, **penalty)
    l1, l2, *_ = oracle.penalties(
        penalty.get("alpha_W", 0.0), 0.0, penalty.get("l1_ratio", 0.0), X.shape[1], 1.0
    )
    S = ours.transform(X)
    expected = np.array([oracle.best_activations(loss, x, A, l1, l2) for x in X])
    np.testing.assert_allclose(S, expected, atol=2e-5)

    def value(s, x):
        return oracle.row_cost(loss, x, s, A) + l1 * s.sum() + 0.5 * l2 * s @ s

    for s, other, x in zip(S, expected, X, strict=True):
        assert value(s, x) <= value(other, x) + 1e-9
    observed = ~np.isnan(X)  # slopes: zero where positive, and not negative where zero
    made = np.where(observed, S @ A, 1.0)
    filled = np.where(observed, X, 0.0)
    by_entry = made - filled if loss == "frobenius" else 1.0 - filled / np.where(filled > 0, made, 1.0)
    slopes = np.where(observed, by_entry, 0.0) @ A.T + l1 + l2 * S
    assert slopes.min() > -1e-6 and np.abs(np.minimum(S, slopes)).max() < 1e-6


@both_losses
def test_transform_of_a_row_does_not_depend_on_others(loss):
    X = problem(13, N=60, D=10, r=5)[0]
    ours = NMF(5, loss=loss, random_state=0, tol=1e-3).fit(X)
    S = ours.transform(X)
    np.testing.assert_allclose(np.vstack([ours.transform(x[None]) for x in X]), S, atol=1e-6)
    order = np.random.default_rng(0).permutation(60)
    np.testing.assert_allclose(ours.transform(X[order]), S[order], atol=1e-6)
    np.testing.assert_allclose(ours.set_params(block_size=7).transform(X), S, atol=1e-6)


@both_losses
@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1.0, 1e30, 1e100])
def test_transform_at_all_scales(loss, scale):
    X, _, A, _ = problem(14, D=8)
    ours = NMF.from_parameters(components=A, loss=loss)
    np.testing.assert_allclose(ours.transform(scale * X) / scale, ours.transform(X), atol=1e-6)


@every_way
@holed_or_not
def test_fit_transform_is_transform(way, holed):
    X, _, _, weight = problem(15, N=20, holed=holed)
    model = NMF(2, random_state=0, tol=1e-4, **WAYS[way])
    S = clone(model).fit_transform(X, sample_weight=weight)
    ours = model.fit(X, sample_weight=weight)
    np.testing.assert_array_equal(S, ours.transform(X))
    np.testing.assert_allclose(ours.reconstruct(X), S @ ours.components_, rtol=1e-12)
    np.testing.assert_allclose(ours.inverse_transform(S), ours.reconstruct(X), rtol=1e-12)


@both_losses
def test_components_have_unit_length_and_history_belongs_to_them(loss):
    X = problem(16, N=25)[0]
    ours = quietly(NMF(3, loss=loss, random_state=0, max_iter=5000, tol=1e-10), X)
    np.testing.assert_allclose(np.linalg.norm(ours.components_, axis=1), 1.0, rtol=1e-12)
    end = oracle.cost(loss, X, ours.transform(X), ours.components_)
    assert ours.history_[-1] == pytest.approx(end, rel=1e-4)
    assert ours.reconstruction_err_ == pytest.approx(np.sqrt(2 * ours.history_[-1]), rel=1e-7)
    assert ours.n_iter_ == len(ours.history_)


# -- missing entries ------------------------------------------------------------------------------------


@every_way
def test_holes_are_left_out_of_the_cost_as_brute_force_does(way):
    X, S, A, weight = problem(17, N=10, D=6, r=2, holed=True)
    ours = quietly(started(S, A, way, max_iter=1500, tol=1e-10), X, sample_weight=weight)
    loss = WAYS[way]["loss"]
    S_end = ours.transform(X)
    expected = oracle.lowest_cost(loss, X, S_end, ours.components_, weight)  # from our end nothing is gained
    near = 1e-2 if way == "mu" else 1e-3  # multiplicative steps arrive late
    assert ours.history_[-1] <= expected * (1 + near) + 1e-9
    assert ours.history_[-1] == pytest.approx(oracle.cost(loss, X, S_end, ours.components_, weight), rel=near)


@both_losses
def test_a_hole_filled_with_what_is_made_of_it_changes_nothing(loss):
    X = problem(18, N=20, D=7, r=2, holed=True)[0]
    ours = quietly(NMF(2, loss=loss, random_state=0, tol=1e-8, max_iter=3000), X)
    filled = ours.impute(X)
    np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    np.testing.assert_allclose(filled[np.isnan(X)], ours.reconstruct(X)[np.isnan(X)], rtol=1e-12)
    np.testing.assert_allclose(ours.transform(filled), ours.transform(X), atol=1e-5)
    np.testing.assert_allclose(ours.row_cost(filled), ours.row_cost(X), atol=1e-9)
    whole = np.abs(np.nan_to_num(X))
    np.testing.assert_array_equal(ours.impute(whole), whole)


@every_way
def test_what_was_hidden_is_found(way):
    rng = np.random.default_rng(0)
    X = rng.gamma(1.0, size=(60, 2)) @ rng.gamma(1.0, size=(2, 10))
    holed = np.where(rng.random(X.shape) < 0.25, np.nan, X)
    holed[:8, 3:] = np.nan  # a block
    ours = quietly(NMF(2, tol=1e-9, max_iter=800, random_state=0, **WAYS[way]), holed)
    np.testing.assert_allclose(ours.impute(holed), X, atol=0.05 * X.max())


@every_way
@pytest.mark.parametrize("block_size", [None, 3])
def test_rows_that_say_nothing_change_nothing(way, block_size):
    """Rows without any observation, and rows of no weight."""
    X, _, A, _ = problem(19, holed=True)
    nothing = np.full((2, X.shape[1]), np.nan)
    more = np.concatenate([nothing[:1], X[:4], nothing, X[4:], 100 * np.ones((1, X.shape[1]))])
    weight = np.ones(len(more))
    weight[-1] = 0.0
    for start in ({"components_init": A}, {"init": "random", "random_state": 0}):
        model = NMF(3, max_iter=5, tol=0.0, block_size=block_size, **start, **WAYS[way])
        plain = clone(model).fit(X)
        padded = clone(model).fit(more, sample_weight=weight)
        np.testing.assert_allclose(padded.history_, plain.history_, rtol=1e-9)
        np.testing.assert_allclose(padded.components_, plain.components_, rtol=1e-7, atol=1e-10)
    assert np.all(np.isfinite(plain.transform(nothing)))
    assert np.all(np.isfinite(plain.impute(nothing)))
    np.testing.assert_array_equal(plain.row_cost(nothing), 0.0)


# -- what must not matter -------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("accelerate", [None, "auto"])
@holed_or_not
def test_weight_two_is_a_row_twice(way, accelerate, holed):
    X = problem(20, N=16, holed=holed)[0]
    copies = np.random.default_rng(0).integers(1, 4, size=16)
    model = NMF(2, max_iter=8, tol=0.0, accelerate=accelerate, alpha_W=1e-3, random_state=0, **WAYS[way])
    by_weight = clone(model).fit(X, sample_weight=copies)
    by_copies = clone(model).fit(np.repeat(X, copies, axis=0))
    np.testing.assert_allclose(by_weight.history_, by_copies.history_, rtol=1e-8)
    np.testing.assert_allclose(by_weight.components_, by_copies.components_, rtol=1e-5, atol=1e-8)


@every_way
@pytest.mark.parametrize("init", INITS[:4])
def test_order_and_blocks_do_not_matter(way, init):
    X, _, _, weight = problem(21, N=30, holed=True)
    order = np.random.default_rng(0).permutation(30)
    init = "nndsvda" if way == "kl" and init == "nndsvd" else init
    model = NMF(3, max_iter=8, tol=0.0, init=init, random_state=0, **WAYS[way])
    plain = clone(model).fit(X, sample_weight=weight)
    turned = clone(model).fit(X[order], sample_weight=weight[order])
    blocks = clone(model).set_params(block_size=7).fit(X, sample_weight=weight)
    for other in (turned, blocks):
        np.testing.assert_allclose(other.history_, plain.history_, rtol=1e-7)
        np.testing.assert_allclose(other.components_, plain.components_, rtol=1e-4, atol=1e-7)


@every_way
@pytest.mark.parametrize(
    ("init", "kind"),
    [
        *((init, sparse.csr_array) for init in [*INITS, "given"]),
        *(("given", kind) for kind in (sparse.csc_array, sparse.csr_matrix, sparse.coo_array)),
    ],
)
def test_sparse_is_dense(way, init, kind):
    X, _, A, weight = problem(22, N=25, D=8)
    X[3], X[:, 1] = 0.0, 0.0
    start = {"components_init": A[:, :8]} if init == "given" else {"init": init}
    if way == "kl" and init == "nndsvd":
        start = {"init": "nndsvda"}
    model = NMF(3, max_iter=6, tol=0.0, random_state=0, **start, **WAYS[way])
    dense = clone(model).fit(X, sample_weight=weight)
    thin = clone(model).fit(kind(X), sample_weight=weight)
    np.testing.assert_allclose(thin.history_, dense.history_, rtol=1e-7)
    np.testing.assert_allclose(thin.components_, dense.components_, rtol=1e-5, atol=1e-8)
    for method in ("transform", "reconstruct", "row_cost", "impute"):
        expected = getattr(dense, method)(X)
        np.testing.assert_allclose(getattr(dense, method)(kind(X)), expected, rtol=1e-6, atol=1e-7)
    assert dense.score(kind(X)) == pytest.approx(dense.score(X))


def test_sparse_rows_are_never_made_dense():
    X = sparse.random_array((4000, 50_000), density=1e-4, format="csr", rng=np.random.default_rng(0))
    for loss in ("frobenius", "kl"):  # 1.6 GB if dense
        ours = NMF(2, loss=loss, max_iter=2, tol=0.0, init="random", random_state=0).fit(X)
        assert ours.transform(X).shape == (4000, 2)


@every_way
@pytest.mark.parametrize("kind", [np.float32, np.int32, np.uint8, bool])
def test_types_of_numbers(way, kind):
    X = np.round(2 * problem(23, N=20)[0]).astype(kind)
    model = NMF(2, max_iter=5, random_state=0, **EXACT, **WAYS[way])
    expected, ours = clone(model).fit(X.astype(float)), clone(model).fit(X)
    tolerance = 1e-4 if kind is np.float32 else 1e-9
    np.testing.assert_allclose(ours.history_, expected.history_, rtol=tolerance)
    S = ours.transform(X)
    assert S.dtype == (np.float32 if kind is np.float32 else np.float64)
    np.testing.assert_allclose(S, expected.transform(X.astype(float)), atol=50 * tolerance)
    thin = clone(model).fit(sparse.csr_array(X))
    np.testing.assert_allclose(thin.history_, expected.history_, rtol=tolerance)


@both_losses
@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e100])
def test_all_scales_are_the_same_problem(loss, scale):
    X = problem(24, N=20)[0]
    model = NMF(2, loss=loss, max_iter=30, tol=0.0, random_state=0, accelerate=None)
    plain, scaled = clone(model).fit(X), clone(model).fit(scale * X)
    by = scale**2 if loss == "frobenius" else scale
    np.testing.assert_allclose(scaled.history_ / by, plain.history_, rtol=1e-5)
    np.testing.assert_allclose(scaled.components_, plain.components_, atol=1e-4)


def files(folder, X):
    table = pd.DataFrame(X, columns=[f"x{d}" for d in range(X.shape[1])])
    np.save(folder / "rows.npy", X)
    table.to_parquet(folder / "rows.parquet")
    blocks = [X[:1], X[1:20], X[20:]]
    return {
        "npy": folder / "rows.npy",
        "parquet": folder / "rows.parquet",
        "mapped": np.load(folder / "rows.npy", mmap_mode="r"),
        "blocks": blocks,
        "function": lambda: iter(blocks),
    }


@every_way
@pytest.mark.parametrize("init", ["auto", "kmeans"])
def test_files_and_blocks_are_rows_too(way, init, tmp_path, monkeypatch):
    monkeypatch.setattr("latently.core.sources.chunks.CHUNK_BYTES", 600)  # some 12 rows
    X, _, _, weight = problem(25, N=40, holed=True)
    X[5] = np.nan
    model = NMF(3, max_iter=5, tol=0.0, init=init, random_state=0, alpha_W=1e-3, **WAYS[way])
    plain = clone(model).fit(X, sample_weight=weight)
    for form, place in files(tmp_path, X).items():
        other = clone(model).fit(place, sample_weight=weight)
        np.testing.assert_allclose(other.history_, plain.history_, rtol=1e-8, err_msg=form)
        np.testing.assert_allclose(other.components_, plain.components_, rtol=1e-6, atol=1e-9)
        for method in ("transform", "impute", "row_cost"):
            found = getattr(plain, method)(place)
            np.testing.assert_allclose(found, getattr(plain, method)(X), rtol=1e-6, atol=1e-7)
    written = plain.transform(tmp_path / "rows.npy", out=tmp_path / "out.npy")
    assert isinstance(written, np.memmap)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), plain.transform(X), atol=1e-7)


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with distributed.Client(
        processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as client:
        yield client


@every_way
@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_dask_collections_are_rows_too(way, where, request):
    da = pytest.importorskip("dask.array")
    if where == "cluster":
        request.getfixturevalue("client")
    X, _, _, weight = problem(26, N=40, holed=True)
    X[5] = np.nan
    model = NMF(3, max_iter=4, tol=0.0, random_state=0, alpha_W=1e-3, **WAYS[way])
    plain = clone(model).fit(X, sample_weight=weight)
    for chunks in ((15, 3), ((0, 1, 30, 9), 6))[where == "cluster" :]:
        lazy = da.from_array(X, chunks=chunks)
        other = clone(model).fit(lazy, sample_weight=weight)
        np.testing.assert_allclose(other.history_, plain.history_, rtol=1e-8)
        np.testing.assert_allclose(other.components_, plain.components_, rtol=1e-6, atol=1e-9)
        for method in ("transform", "impute", "reconstruct", "row_cost"):
            found = getattr(other, method)(lazy)
            assert isinstance(found, da.Array)
            np.testing.assert_allclose(found.compute(), getattr(plain, method)(X), rtol=1e-6, atol=1e-7)
    assert other.score(lazy) == pytest.approx(plain.score(X))


# -- tensors --------------------------------------------------------------------------------------------


def devices():
    torch = pytest.importorskip("torch")
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@every_way
@pytest.mark.parametrize(
    ("penalty", "holed"),
    [({}, True), ({"alpha_W": 1e-3, "l1_ratio": 0.5}, False)],
    ids=["holed", "penalised"],
)
def test_tensors(way, penalty, holed, tmp_path):
    torch = pytest.importorskip("torch")
    X, _, _, weight = problem(27, N=30, holed=holed)
    model = NMF(3, max_iter=6, random_state=0, **EXACT, **penalty, **WAYS[way])
    near = 1e-3 if holed else 1e-6  # a row of few observations may have many activations
    here = clone(model).fit(X, sample_weight=weight)
    for device in devices():
        T = torch.asarray(X, device=device)
        there = clone(model).fit(T, sample_weight=weight)
        for array in (there.components_, there.history_):
            assert isinstance(array, torch.Tensor) and array.device.type == device
        np.testing.assert_allclose(there.history_.cpu(), here.history_, rtol=1e-8)
        np.testing.assert_allclose(there.components_.cpu(), here.components_, rtol=1e-6, atol=1e-9)
        moved = here.to(device)
        for method in ("transform", "reconstruct", "impute", "row_cost"):
            found = getattr(moved, method)(T)
            assert found.device.type == device
            np.testing.assert_allclose(found.cpu(), getattr(here, method)(X), rtol=near, atol=near)
        assert moved.score(T) == pytest.approx(here.score(X), rel=1e-6)
        np.testing.assert_allclose(there.to("numpy").row_cost(X), here.row_cost(X), atol=1e-6)
        there.save(tmp_path / "model")
        loaded = latently.load(tmp_path / "model")
        np.testing.assert_allclose(loaded.row_cost(X), here.row_cost(X), atol=1e-6)
        online = clone(model).partial_fit(T[:15]).partial_fit(T[15:])
        expected = clone(model).partial_fit(X[:15]).partial_fit(X[15:])
        np.testing.assert_allclose(online.components_.cpu(), expected.components_, rtol=1e-5, atol=1e-7)


@every_way
@holed_or_not
def test_the_standard_is_kept_to(way, holed):
    """By arrays that have nothing but what the Array API asks for."""
    strict = pytest.importorskip("array_api_strict")
    X, _, _, weight = problem(27, N=20, holed=holed)
    model = NMF(3, max_iter=4, tol=0.0, random_state=0, **WAYS[way])
    here = clone(model).fit(X, sample_weight=weight)
    there = clone(model).fit(strict.asarray(X), sample_weight=weight)
    np.testing.assert_allclose(np.from_dlpack(there.history_), here.history_, rtol=1e-7)
    costs = there.row_cost(strict.asarray(X))
    np.testing.assert_allclose(np.from_dlpack(costs), here.row_cost(X), rtol=1e-5, atol=1e-8)


@every_way
def test_tensors_of_float32_and_acceleration(way):
    torch = pytest.importorskip("torch")
    X = problem(28, N=40)[0].astype(np.float32)
    for device in devices():
        there = NMF(3, max_iter=20, tol=0.0, random_state=0, **WAYS[way]).fit(torch.asarray(X, device=device))
        assert torch.diff(there.history_).max() <= 1e-5 * level(X)
        assert there.transform(torch.asarray(X, device=device)).dtype == torch.float32


def test_places_that_do_not_agree_are_an_error():
    torch = pytest.importorskip("torch")
    X = problem(29)[0]
    ours = NMF(2, random_state=0, tol=1e-2).fit(X)
    with pytest.raises(ValueError, match=r"NMF.transform.*parameters are NumPy.*model.to\('cpu'\)"):
        ours.transform(torch.asarray(X))
    with pytest.raises(ValueError, match=r"NMF.transform.*model.to\('numpy'\)"):
        ours.to("cpu").transform(X)
    for method in ("transform", "partial_fit"):
        with pytest.raises(ValueError, match=rf"NMF.{method}.*sparse.*model.to\('numpy'\)"):
            getattr(ours.to("cpu"), method)(sparse.csr_array(X))


# -- starts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("init", INITS)
@every_way
def test_starts_are_finite_and_reproducible(init, way):
    init = "nndsvda" if way == "kl" and init == "nndsvd" else init
    for X in (problem(30, N=12)[0], problem(30, N=12, holed=True)[0], np.zeros((5, 4)), np.full((5, 4), 3.0)):
        for r in (1, 9):
            ours, again = (NMF(r, init=init, max_iter=1, tol=0.0, random_state=0, **WAYS[way]) for _ in "ab")
            assert np.all(np.isfinite(ours.fit(X).components_)) and np.all(ours.components_ >= 0)
            np.testing.assert_array_equal(again.fit(X).components_, ours.components_)


def test_singular_vectors_of_a_product_of_rank_one_are_the_answer():
    rng = np.random.default_rng(0)
    X = np.outer(rng.random(20), rng.random(7))
    ours = NMF(1, init="nndsvd", max_iter=1, **EXACT).fit(X)
    assert ours.history_[0] < 1e-12 * level(X)
    start = NMF(1, init="nndsvd", max_iter=0, **EXACT).fit(X).components_
    np.testing.assert_allclose(start, unit(X[:1]), rtol=1e-9)


def test_nndsvd_is_that_of_scikit_learn():
    from sklearn.decomposition._nmf import _initialize_nmf

    X = problem(31, N=80, D=60)[0]
    _, expected = _initialize_nmf(X, 3, init="nndsvd", random_state=0)
    ours = NMF(3, init="nndsvd", max_iter=0, random_state=0, **EXACT).fit(X)
    np.testing.assert_allclose(ours.components_, unit(expected), atol=1e-3)


@pytest.mark.parametrize("way", ["hals", "kl"])
def test_the_best_of_several_starts_goes_on(way):
    X = problem(32, N=40, D=10, r=5)[0]
    settings = {"init": "random", "tol": 1e-6, "max_iter": 300, **WAYS[way]}
    one = [quietly(NMF(4, random_state=seed, **settings), X).history_[-1] for seed in range(4)]
    many = [quietly(NMF(4, random_state=seed, n_init=5, **settings), X).history_[-1] for seed in range(4)]
    assert np.mean(many) <= np.mean(one) and min(many) <= min(one) * (1 + 1e-3)


# -- other ways to fit ----------------------------------------------------------------------------------


@both_losses
@pytest.mark.parametrize("form", ["dense", "holed", "sparse"])
def test_partial_fit_comes_near_fit(loss, form):
    rng = np.random.default_rng(33)
    A = rng.gamma(1.0, size=(3, 8)) * (rng.random((3, 8)) < 0.6)
    X = rng.gamma(1.0, size=(600, 3)) @ A + 0.05 * rng.random((600, 8))
    given = X if form == "dense" else np.where(rng.random(X.shape) < 0.1, np.nan, X)
    given = sparse.csr_array(X) if form == "sparse" else given
    whole = NMF(3, loss=loss, random_state=0).fit(given)
    online = NMF(3, loss=loss, random_state=0)
    first = None
    for _ in range(5):
        for start in range(0, 600, 100):
            online.partial_fit(given[start : start + 100])
            first = online.score(X) if first is None else first
    assert online.n_iter_ == 30 and len(online.history_) == 30
    gap = whole.score(X) - first
    assert whole.score(X) - online.score(X) < 0.4 * gap


@both_losses
def test_partial_fit_goes_on_from_a_fit(loss, tmp_path):
    X = problem(34, N=80, D=8)[0]
    ours = NMF(3, loss=loss, random_state=0, tol=1e-7, max_iter=2000).fit(X)
    alone = NMF(3, loss=loss, random_state=0).partial_fit(X[:2]).score(X)
    before = ours.score(X)
    ours.save(tmp_path / "model")
    for model in (ours, latently.load(tmp_path / "model")):
        after = model.partial_fit(X[:2]).score(X)
        assert before - after < 0.3 * (before - alone)  # the fit is not forgotten for two rows


@every_way
def test_warm_start_goes_on(way):
    X = problem(35, N=30)[0]
    ours = NMF(3, max_iter=5, tol=0.0, warm_start=True, random_state=0, **WAYS[way]).fit(X)
    before = ours.history_[-1]
    again = ours.fit(X).history_
    assert again[-1] < before
    with pytest.raises(ValueError, match=r"warm_start needs the shapes.*\(3, 6\).*\(2, 6\)"):
        ours.set_params(n_components=2).fit(X)
    thin = NMF(3, max_iter=5, tol=0.0, warm_start=True, random_state=0, **WAYS[way]).fit(sparse.csr_array(X))
    np.testing.assert_allclose(thin.fit(sparse.csr_array(X)).history_, again, rtol=1e-6)


class Killed(Exception):
    """In place of a process that is killed."""


def killed_at(sweep):
    def kill(iteration):
        if iteration.number == sweep:
            raise Killed

    return kill


def assert_same_fit(ours, theirs):
    """To the last bit."""
    np.testing.assert_array_equal(ours.components_, theirs.components_)
    np.testing.assert_array_equal(ours.history_, theirs.history_)
    for name in ("n_iter_", "converged_", "reconstruction_err_"):
        assert getattr(ours, name) == getattr(theirs, name)


FORMS = {
    "dense": lambda X: X,
    "sparse": sparse.csr_array,
    "incomplete": lambda X: np.where(np.arange(X.size).reshape(X.shape) % 7 == 3, np.nan, X),
    "single": lambda X: X.astype(np.float32),
}


@every_way
@pytest.mark.parametrize(
    ("form", "accelerate", "settings"),
    [
        ("dense", "auto", {"alpha_W": 1e-3, "l1_ratio": 0.5}),
        ("sparse", None, {}),
        ("sparse", "auto", {"block_size": 17}),
        ("incomplete", "auto", {}),
        ("single", None, {"block_size": 17}),
    ],
)
def test_a_killed_fit_resumes_from_its_checkpoint(way, accelerate, form, settings, tmp_path):
    X = FORMS[form](problem(39, N=60)[0])
    settings = {"max_iter": 25, "tol": 0.0, "random_state": 0, "accelerate": accelerate, **settings}
    settings |= WAYS[way]
    whole = NMF(3, **settings).fit(X)
    resumed = NMF(3, checkpoint=tmp_path / "state", checkpoint_every=1, **settings)
    for sweep in (1, 2, 10, 24):
        with pytest.raises(Killed):
            clone(resumed).set_params(callbacks=[killed_at(sweep)]).fit(X)
        assert (tmp_path / "state").exists()
    assert_same_fit(resumed.fit(X), whole)
    assert not (tmp_path / "state").exists()


@every_way
def test_a_killed_fit_resumes_where_its_last_checkpoint_was(way, tmp_path):
    X = problem(39, N=60)[0]
    settings = {"max_iter": 30, "tol": 0.0, "random_state": 0, "n_init": 3, **WAYS[way]}
    whole = NMF(3, **settings).fit(X)
    resumed = NMF(3, checkpoint=tmp_path / "state", checkpoint_every=4, **settings)
    with pytest.raises(Killed):
        clone(resumed).set_params(callbacks=[killed_at(11)]).fit(X)
    told = []
    assert_same_fit(resumed.set_params(callbacks=[lambda it: told.append(it.number)]).fit(X), whole)
    assert told[0] == 8


@every_way
def test_a_checkpoint_belongs_to_its_rows_and_settings(way, tmp_path):
    X = problem(39, N=60)[0]
    ours = NMF(3, random_state=0, tol=0.0, checkpoint=tmp_path / "state", checkpoint_every=1, **WAYS[way])
    with pytest.raises(Killed):
        clone(ours).set_params(callbacks=[killed_at(3)]).fit(X)
    with pytest.raises(ValueError, match="other data"):  # activations belong to rows in their order
        clone(ours).fit(X[::-1])
    with pytest.raises(ValueError, match="other data"):
        clone(ours).fit(X, sample_weight=np.arange(1.0, 61.0))
    with pytest.raises(ValueError, match="other l1_ratio"):
        clone(ours).set_params(l1_ratio=0.5).fit(X)


@every_way
def test_a_killed_fit_of_tensors_resumes(way, tmp_path):
    torch = pytest.importorskip("torch")
    X = torch.asarray(problem(39, N=60)[0])
    settings = {"max_iter": 20, "tol": 0.0, "random_state": 0, **WAYS[way]}
    whole = NMF(3, **settings).fit(X)
    resumed = NMF(3, checkpoint=tmp_path / "state", checkpoint_every=1, **settings)
    for sweep in (1, 9):
        with pytest.raises(Killed):
            clone(resumed).set_params(callbacks=[killed_at(sweep)]).fit(X)
    assert_same_fit(resumed.fit(X), whole)


def test_a_generator_is_a_seed():
    X = problem(39, N=30)[0]
    one, two = (NMF(2, init="random", random_state=np.random.default_rng(3)).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.components_, two.components_)


# -- as scikit-learn users expect it --------------------------------------------------------------------


SHORT = {"max_iter": 8, "tol": 0.0, "random_state": 0}


@both_losses
def test_known_components_make_a_model(loss, tmp_path):
    X, _, A, _ = problem(42)
    ours = NMF.from_parameters(components=A, loss=loss)
    np.testing.assert_array_equal(ours.components_, A)
    assert ours.n_features_in_ == 6 and ours.n_components == 3
    ours.save(tmp_path / "model")
    np.testing.assert_array_equal(latently.load(tmp_path / "model").transform(X), ours.transform(X))
    assert np.isnan(latently.load(tmp_path / "model").reconstruction_err_)
    for components, message in (
        ([[1.0, -1.0]], "components must not be negative; its smallest entry is -1"),
        ([[1.0, np.nan]], "finite"),
        ([1.0, 2.0], r"components must have shape \(n_components, n_features\)"),
        (np.zeros((2, 0)), r"components must have shape"),
    ):
        with pytest.raises(ValueError, match=message):
            NMF.from_parameters(components=components)


def test_without_a_number_of_components_there_is_one_for_each_feature():
    X = problem(43, N=30)[0]
    assert NMF(random_state=0, tol=1e-2).fit(X).components_.shape == (6, 6)


# -- degenerate and bad input ---------------------------------------------------------------------------


@every_way
def test_data_that_are_all_alike(way):
    for X, r in ((np.zeros((5, 4)), 3), (np.full((5, 4), 3.0), 3), (np.eye(4), 9), (np.ones((2, 1)), 2)):
        for rows in (X, sparse.csr_array(X)):
            ours = quietly(NMF(r, random_state=0, tol=1e-6, max_iter=500, **WAYS[way]), rows)
            np.testing.assert_allclose(ours.reconstruct(X), X, atol=1e-2)
            assert ours.components_.shape == (r, X.shape[1])


@every_way
def test_more_components_than_the_rank_or_than_rows_and_features(way):
    rng = np.random.default_rng(0)
    X = rng.random((6, 2)) @ rng.random((2, 5))
    for r in (2, 4, 12):
        ours = quietly(NMF(r, random_state=0, max_iter=1000, tol=1e-7, **WAYS[way]), X)
        assert ours.history_[-1] < 2e-4 * level(X)
        np.testing.assert_allclose(ours.reconstruct(X), X, atol=0.05)


@both_losses
def test_rows_and_features_of_zeros(loss):
    X = problem(44, N=20)[0]
    X[4], X[:, 2] = 0.0, 0.0
    ours = NMF(3, loss=loss, random_state=0, tol=1e-4).fit(X)
    np.testing.assert_allclose(ours.transform(X)[4], 0.0, atol=1e-12)
    np.testing.assert_allclose(ours.components_[:, 2], 0.0, atol=1e-12)


BAD_ROWS = {
    "negative": (np.array([[1.0, -2.0], [1.0, 1.0]]), "Negative values in data passed to NMF"),
    "infinite": (np.array([[1.0, np.inf], [1.0, 1.0]]), "infinity"),
    "too large": (np.full((3, 2), 1e160), r"too large: 1e\+160; rescale"),
    "too small": (np.full((3, 2), 1e-160), "no entry above 1e-160.*rescale"),
    "too large for float32": (np.full((3, 2), 1e30, np.float32), "too large.*float64"),
    "too small for float32": (np.full((3, 2), 1e-30, np.float32), "underflow.*float64"),
    "missing": (np.full((3, 2), np.nan), "every entry of X is missing"),
    "missing feature": (np.array([[1.0, np.nan], [2.0, np.nan]]), r"feature 1 .*missing.*in every row; drop"),
    "one row": (np.ones((1, 3)), r"1 sample\(s\)"),
    "one dimension": (np.ones(4), "2D"),
    "words": (np.array([["a", "b"], ["c", "d"]]), "not compatible with arrays of bytes/strings"),
    "sparse with holes": (sparse.csr_array([[1.0, np.nan], [1.0, 1.0]]), "sparse and contains NaN.*dense"),
    "sparse and negative": (sparse.csr_array([[1.0, -3.0], [1.0, 1.0]]), "Negative values.* -3"),
}


@pytest.mark.parametrize("how", BAD_ROWS)
@both_losses
def test_bad_rows(how, loss):
    X, message = BAD_ROWS[how]
    with pytest.raises(ValueError, match=message):
        NMF(2, loss=loss).fit(X)
    with pytest.raises(ValueError, match=message):
        NMF(2, loss=loss).partial_fit(X)


@pytest.mark.parametrize("bad", [np.full((2, 6), -1.0), np.full((2, 6), np.inf), np.ones((2, 5))], ids=str)
def test_bad_rows_after_the_fit(bad, tmp_path):
    ours = NMF(2, **SHORT).fit(problem(45, N=30)[0])
    np.save(tmp_path / "bad.npy", bad)
    for rows in (bad, sparse.csr_array(bad), tmp_path / "bad.npy"):
        for method in ("transform", "row_cost", "impute"):
            with pytest.raises(ValueError, match=r"Negative|infinity|features"):
                getattr(ours, method)(rows)
    with pytest.raises(ValueError, match="one column for each of the 2 components"):
        ours.inverse_transform(np.ones((3, 3)))


BAD_SETTINGS = {
    "n_components": ([0, 1.5, "auto"], "n_components must be an integer of at least 1"),
    "loss": (["euclidean", None, True, np.nan, 11.0], "loss must be one of .* beta divergence, a number"),
    "fixed_components": ([np.ones(6), -np.ones((1, 6)), [[np.nan] * 6], np.ones((1, 5))], "fixed_components"),
    "solver": (["cd", None], "solver must be one of"),
    "init": (["custom", None], "init must be one of"),
    "n_init": ([0], "n_init must be"),
    "alpha_W": ([-1.0, np.nan], "alpha_W must be"),
    "alpha_H": ([-1.0], "alpha_H must be"),
    "l1_ratio": ([1.5, -0.1], "l1_ratio must be"),
    "max_iter": ([-1, 2.5], "max_iter must be"),
    "tol": ([-1e-3], "tol must be"),
    "accelerate": (["squarem", True], "accelerate must be"),
    "learning_decay": ([2.0], "learning_decay must be"),
    "learning_offset": ([0.0], "learning_offset must be"),
    "block_size": ([0], "block_size must be"),
    "random_state": (["seed"], "random_state"),
    "warm_start": ([1], "warm_start must be"),
    "verbose": ([-1], "verbose must be"),
    "callbacks": ([3, [3]], "callbacks must be"),
    "components_init": ([np.full((2, 6), -1.0), np.ones((3, 4)), [["a"]]], "components_init"),
    "activations_init": ([np.ones((9, 2))], "activations_init needs components_init"),
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_bad_settings(name):
    values, message = BAD_SETTINGS[name]
    for value in values:
        with pytest.raises(ValueError, match=message):
            NMF(**{"n_components": 2, name: value}).fit(problem(46)[0])


def test_settings_that_do_not_go_together():
    X, S, A, _ = problem(47)
    with pytest.raises(ValueError, match=r"alpha_W=0.1 and alpha_H=0.0.*no minimum.*set both"):
        NMF(2, alpha_W=0.1, alpha_H=0.0).fit(X)
    with pytest.raises(ValueError, match=r"alpha_W=0.0 and alpha_H=0.1"):
        NMF(2, alpha_H=0.1).fit(X)
    with pytest.raises(ValueError, match="solver must be one of"):
        NMF(2, loss="kl", solver="hals").fit(X)
    with pytest.raises(ValueError, match=r"activations_init has shape \(4, 3\)"):
        NMF(3, components_init=A, activations_init=S[:4]).fit(X)
    with pytest.raises(ValueError, match="activations_init must not be negative"):
        NMF(3, components_init=A, activations_init=-S).fit(X)
    with pytest.raises(ValueError, match="sample_weight must have one entry per row"):
        NMF(3).fit(X, sample_weight=np.ones(4))
    with pytest.raises(ValueError, match="sample_weight is zero for every row"):
        NMF(3).fit(X, sample_weight=np.zeros(len(X)))


def test_a_start_that_the_divergence_cannot_leave_is_an_error():
    X = np.ones((6, 4))
    A = np.ones((2, 4))
    A[:, 3] = 0.0
    with pytest.raises(ValueError, match=r"zero in feature 3, where X is not.*positive components_init"):
        NMF(2, loss="kl", components_init=A).fit(X)
    blocks = np.kron(np.diag([1.0, 2.0]), np.ones((3, 2)))
    with pytest.raises(ValueError, match='init="nndsvda"'):
        NMF(1, loss="kl", init="nndsvd").fit(blocks)
    warm = NMF(2, loss="kl", warm_start=True, random_state=0).fit(X * [1, 1, 1, 0])
    with pytest.raises(ValueError, match="zero in feature 3"):
        warm.fit(X)


# -- rows far from zero -------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
@pytest.mark.parametrize("dtype, offset", [(np.float64, 1e7), (np.float32, 1e4)])
def test_a_cost_that_is_lost_in_rounding_is_told(loss, dtype, offset):
    X = (np.abs(np.random.default_rng(0).normal(size=(80, 5))) + offset).astype(dtype)
    with pytest.warns(UserWarning, match=r"lost in rounding.*far from zero.*subtract a constant"):
        NMF(2, loss=loss, random_state=0).fit(X)


@pytest.mark.parametrize("loss", ["frobenius", "kl"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_product_has_no_cost_and_needs_no_warning(loss, dtype):
    """However far from zero: nothing is left, so nothing is lost."""
    rng = np.random.default_rng(1)
    rows = np.outer(rng.uniform(1, 2, 40), rng.uniform(1, 2, 5)).astype(dtype)
    NMF(1, loss=loss, random_state=0, max_iter=2000).fit(rows)
    NMF(1, loss=loss, random_state=0).fit(np.full((40, 5), 1e7, dtype))
