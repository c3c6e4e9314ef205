"""Non-linear factorisation, against an oracle that walks through all entries one by one."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import latently
from latently.core.block import Block
from latently.core.quasi_newton import Descent
from latently.distributions.convex_rows import Rows, Shape, Softmax, descended, inverse_of, minimised
from latently.distributions.mappings import MAPPINGS, Tanh
from latently.distributions.nonlinear import Layer, Multiply, Newton, Terms, prepared, swept_rows
from latently.distributions.stack import climbed, flattened, unflattened
from latently.estimators.weights import in_rows
from latently.factorization import NLMF, PCA, DeepNLMF, NLMFClassifier
from latently.selection import select
from tests.oracles import nlmf as oracle

EXACT = {"accelerate": None, "tol": 0.0}  # max_iter=n is exactly n sweeps
WAYS = {
    "tanh": {"mapping": "tanh"},
    "logistic": {"mapping": "logistic"},
    "identity": {"mapping": "identity"},
    "semi": {"mapping": "logistic", "constraint": "semi"},
    "ratio": {"mapping": "ratio", "constraint": "non_negative"},
    "tanh >= 0": {"mapping": "tanh", "constraint": "non_negative"},
    "logistic >= 0": {"mapping": "logistic", "constraint": "non_negative"},
}
NON_NEGATIVE = ["ratio", "tanh >= 0", "logistic >= 0"]
every_way = pytest.mark.parametrize("way", WAYS)
holed_or_not = pytest.mark.parametrize("holed", [False, True], ids=["", "holed"])


def problem(seed, way, N=6, D=4, r=2, holed=False):
    """Rows, starting values within the constraints, labels of three classes (one of them unknown), and
    weights.
    """
    rng = np.random.default_rng(seed)
    constraint = WAYS[way].get("constraint", "unconstrained")
    A, b, S = rng.normal(size=(r, D)), rng.normal(size=D), rng.normal(size=(N, r))
    if constraint != "unconstrained":
        A, b = np.abs(A) + 0.1, np.abs(b) + 0.05
    if constraint == "non_negative":
        S = np.abs(S) + 0.05
    X = oracle.mapped(WAYS[way]["mapping"], S) @ A + b + 0.3 * rng.normal(size=(N, D))
    X = np.abs(X) if constraint != "unconstrained" else X
    if holed:
        X[rng.random((N, D)) < 0.25] = np.nan
        X[0] = 1.0
    start = {
        "components_init": np.abs(rng.normal(size=(r, D))) + 0.2
        if constraint != "unconstrained"
        else A + 0.2,
        "offset_init": b * 0.7,
        "activations_init": S * 0.8,
    }
    classes = {"coef_init": np.abs(rng.normal(size=(3, r))), "intercept_init": np.abs(rng.normal(size=3))}
    y = np.arange(N) % 3
    y[N - 1] = -1
    return X, start, classes, y, in_rows(rng.uniform(0.5, 2.0, N))  # costs are sums


def swept(sweep, n, options, X, start, y=None, classes=None, weight=None):
    """n sweeps of the oracle."""
    state = [start["activations_init"], start["components_init"], start["offset_init"]]
    state += [None, None] if y is None else [classes["coef_init"], classes["intercept_init"]]
    for _ in range(n):
        S, A, b, W, w0 = sweep(options, X, *state[:3], y=y, W=state[3], w0=state[4], weight=weight)
        state = [S, A, b, W, w0]
    return oracle.cost(options, X, *state[:3], y, *state[3:], weight), state


def fitted(model, X, y=None, weight=None):
    return model.fit(X, y, weight) if y is not None else model.fit(X, sample_weight=weight)


# -- against the oracle --------------------------------------------------------------------------------


@every_way
@holed_or_not
def test_exact_sweeps_are_those_of_the_oracle(way, holed):
    X, start, _, _, weight = problem(0, way, holed=holed)
    options = {"alpha": 0.2, "beta": 0.1, "sigma2": 0.5}
    model = NLMF(2, solver="exact", max_iter=2, **start, **options, **WAYS[way], **EXACT).fit(X, None, weight)
    constraint = WAYS[way].get("constraint", "unconstrained")
    expected, _ = swept(
        lambda *args, y, W, w0, weight: oracle.exact_sweep(*args, constraint, y, W, w0, weight),
        2,
        {**options, **WAYS[way]},
        X,
        start,
        weight=weight,
    )
    assert model.history_.shape == (2,)
    assert model.history_[-1] == pytest.approx(expected, rel=2e-7)


@pytest.mark.parametrize("way", ["tanh", "semi", "ratio"])
def test_exact_sweeps_with_labels_are_those_of_the_oracle(way):
    X, start, classes, y, weight = problem(1, way)
    options = {"alpha": 0.2, "beta": 0.1, "sigma2": 0.5, "gamma": 0.3}
    model = NLMFClassifier(
        2, solver="exact", max_iter=2, **start, **classes, **options, **WAYS[way], **EXACT
    ).fit(X, y, weight)
    constraint = WAYS[way].get("constraint", "unconstrained")
    expected, _ = swept(
        lambda *args, y, W, w0, weight: oracle.exact_sweep(*args, constraint, y, W, w0, weight),
        2,
        {**options, **WAYS[way]},
        X,
        start,
        y,
        classes,
        weight,
    )
    assert model.history_[-1] == pytest.approx(expected, rel=2e-6)
    total = model.cost(X, y, activations=model.activations_, sample_weight=weight).total
    assert total == pytest.approx(model.history_[-1], rel=1e-10)


@pytest.mark.parametrize("way", NON_NEGATIVE)
@holed_or_not
@pytest.mark.parametrize("labelled", [False, True], ids=["", "labelled"])
def test_multiplicative_sweeps_are_those_of_the_oracle(way, holed, labelled):
    X, start, classes, y, weight = problem(2, way, holed=holed)
    options = {"alpha": 0.3, "beta": 0.1, "sigma2": 0.5} | ({"gamma": 0.3} if labelled else {})
    kind = NLMFClassifier if labelled else NLMF
    more = classes if labelled else {}
    y = y if labelled else None
    model = fitted(
        kind(2, solver="mu", max_iter=3, **start, **more, **options, **WAYS[way], **EXACT), X, y, weight
    )
    expected, (S, A, b, W, _) = swept(
        oracle.multiplicative_sweep, 3, {**options, **WAYS[way]}, X, start, y, classes, weight
    )
    assert model.history_[-1] == pytest.approx(expected, rel=1e-10)
    np.testing.assert_allclose(model.activations_, S, rtol=1e-9)
    np.testing.assert_allclose(model.components_, A, rtol=1e-9)
    np.testing.assert_allclose(model.offset_, b, rtol=1e-9)
    if labelled:
        np.testing.assert_allclose(model.coef_, W, rtol=1e-9)


@every_way
@holed_or_not
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_inferred_sources_have_the_least_cost(way, holed, alpha):
    X, start, _, _, _ = problem(3, way, holed=holed)
    options = {"alpha": alpha, "sigma2": 0.5, **WAYS[way]}
    model = NLMF.from_parameters(components=start["components_init"], offset=start["offset_init"], **options)
    positive = WAYS[way].get("constraint") == "non_negative"
    S = model.transform(X)
    assert np.all(np.isfinite(S))
    for n in range(len(X)):
        best = oracle.best_sources(options, X[n], model.components_, model.offset_, positive)
        least = oracle.row_cost(options["mapping"], alpha, 0.5, X[n], best, model.components_, model.offset_)
        found = oracle.row_cost(options["mapping"], alpha, 0.5, X[n], S[n], model.components_, model.offset_)
        assert found <= least * (1 + 1e-9) + 1e-20


def test_a_row_is_inferred_on_its_own():
    X, start, _, _, _ = problem(4, "tanh", N=40)
    model = NLMF.from_parameters(
        components=start["components_init"], offset=start["offset_init"], alpha=0.2, beta=0.1
    )
    together = model.transform(X)
    alone = np.concatenate([model.transform(x[None, :]) for x in X])
    np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-12)


# -- costs that never rise -----------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    way=st.sampled_from(sorted(WAYS)),
    solver=st.sampled_from(["auto", "exact", "mu", "gradient"]),
    accelerate=st.sampled_from(["auto", None]),
    alpha=st.sampled_from([0.0, 0.01, 1.0]),
    sigma2=st.sampled_from([1e-4, 1.0]),
    labelled=st.booleans(),
)
def test_the_cost_never_rises(seed, way, solver, accelerate, alpha, sigma2, labelled):
    if solver == "mu" and way not in NON_NEGATIVE:
        solver = "gradient"
    X, _, _, y, weight = problem(seed, way, N=15, D=5)
    kind = NLMFClassifier if labelled else NLMF
    options = {
        "solver": solver,
        "accelerate": accelerate,
        "alpha": alpha,
        "beta": 0.1 * alpha,
        "sigma2": sigma2,
    }
    model = kind(3, max_iter=12, tol=0.0, random_state=seed, **options, **WAYS[way])
    model = fitted(model, X, y if labelled else None, weight)
    assert np.all(np.diff(model.history_) <= 1e-9 * np.abs(model.history_[1:]))
    labels = (y,) if labelled else ()
    total = model.cost(X, *labels, activations=model.activations_, sample_weight=weight).total
    assert total == pytest.approx(model.history_[-1], rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_far_from_the_origin_rounding_is_no_rise(seed):
    """The offset alone is rounded by 1e-5 there, which the cost of an exact step can show."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, 4)) + 1e11
    X[rng.random(X.shape) < 0.2] = np.nan
    model = NLMF(2, mapping="logistic", solver="exact", max_iter=40, tol=0.0, random_state=0).fit(X)
    assert np.all(np.diff(model.history_) <= 0.0)


def test_a_step_with_an_exponent_can_raise_the_cost_and_is_shortened():
    """x = a = 1, s = 5, alpha = .01, tanh: the errata's example, .0500 -> .4159 without the test of the
    cost.
    """
    terms = Terms(MAPPINGS["tanh"], 0.01, 0.0, 0.0, 1.0, True, True)
    layer = Layer(np.ones((1, 1)), np.zeros(1))
    block = Block(np.ones((1, 1)), state=np.full((1, 1), 5.0))
    _, [moved] = swept_rows(terms, Multiply(), prepared(layer, terms), block)
    assert 0.5 * (1 - np.tanh(moved[0, 0])) ** 2 + 0.01 * moved[0, 0] == pytest.approx(0.4159, abs=1e-4)
    model = NLMF(
        1,
        mapping="tanh",
        constraint="non_negative",
        solver="mu",
        alpha=0.01,
        beta=1e-9,
        components_init=[[1.0]],
        offset_init=[0.0],
        activations_init=[[5.0], [5.0]],
        max_iter=1,
        **EXACT,
    ).fit([[1.0], [1.0]])
    assert model.history_[0] <= 2 * 0.0500


# -- what is optimal -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mapping", ["tanh", "logistic", "identity"])
def test_without_penalties_it_is_as_good_as_pca(mapping):
    X = np.random.default_rng(0).normal(size=(40, 3)) @ np.random.default_rng(1).normal(size=(3, 8))
    X += 0.1 * np.random.default_rng(2).normal(size=X.shape)
    model = NLMF(3, mapping=mapping, random_state=0).fit(X)
    assert 2 * model.cost(X).total <= PCA(3).fit(X).squared_error(X) * (1 + 1e-9)


def test_gradients_vanish_where_a_fit_has_converged():
    """Of the cost in A, b, W and w0 with free sources, and of the sources by finite differences."""
    X, _, _, y, _ = problem(5, "tanh", N=20, D=5)
    options = {"alpha": 0.0, "beta": 0.0, "sigma2": 0.5, "gamma": 0.1, "mapping": "tanh"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = NLMFClassifier(2, tol=1e-12, max_iter=3000, random_state=0, **options).fit(X, y)
    S, A, b, W, w0 = model.activations_, model.components_, model.offset_, model.coef_, model.intercept_
    base = oracle.cost(options, X, S, A, b, y, W, w0)
    assert base == pytest.approx(model.history_[-1], rel=1e-10)
    rng = np.random.default_rng(0)
    for _ in range(5):
        dS, dA, db = (1e-4 * rng.normal(size=array.shape) for array in (S, A, b))
        assert oracle.cost(options, X, S + dS, A + dA, b + db, y, W, w0) >= base * (1 - 1e-7)


def test_alpha_without_beta_is_told():
    X = problem(6, "tanh")[0]
    with pytest.warns(UserWarning, match=r"alpha=0.1 with beta=0: the cost has no minimum"):
        NLMF(2, alpha=0.1, max_iter=2, tol=0.0).fit(X)


def test_rows_beyond_the_range_have_finite_sources():
    model = NLMF.from_parameters(components=[[1.0]], offset=[0.0])
    S = model.transform([[2.0], [-3.0]])
    assert np.all(np.abs(S) < 20)
    np.testing.assert_allclose(model.row_cost([[2.0], [-3.0]]), [0.5, 2.0], rtol=1e-9)


# -- classes -------------------------------------------------------------------------------------------


def digits():
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X[:400] / 16, y[:400], X[400:800] / 16, y[400:800]


def test_generated_sources_tell_their_class():
    X, y, _, _ = digits()
    model = NLMFClassifier(15, sigma2=0.05, max_iter=15, tol=0.0, random_state=0).fit(X, y)
    wanted = np.repeat(np.arange(10), 3)
    S = model.generate_activations(wanted, threshold=0.95, random_state=0)
    v = np.tanh(S) @ model.coef_.T + model.intercept_
    p = np.exp(v - v.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    assert np.all(p[np.arange(30), wanted] > 0.95)
    made = model.generate(wanted, threshold=0.95, random_state=0)
    np.testing.assert_allclose(made, np.tanh(S) @ model.components_ + model.offset_)
    assert len(np.unique(np.round(made, 6), axis=0)) == 30
    assert np.mean(model.predict(made) == wanted) > 0.9


@pytest.mark.parametrize("way", ["tanh", "ratio"])
def test_generation_reaches_the_one_minimum(way):
    """With a penalty the minimum is unique: all starts end there, at the cost the oracle finds."""
    rng = np.random.default_rng(0)
    W, w0 = np.abs(rng.normal(size=(3, 2))), rng.normal(size=3) ** 2
    options = {"alpha": 0.2, "beta": 0.1, **WAYS[way]}
    model = NLMFClassifier.from_parameters(
        components=np.ones((2, 3)), offset=np.zeros(3), coef=W, intercept=w0, **options
    )
    S = model.generate_activations([1, 1, 1], threshold=1.0, random_state=0)
    settings_ = {"mapping": WAYS[way]["mapping"], "alpha": 0.2, "sigma2": 1.0}
    best = oracle.best_sources(
        settings_, np.zeros(0), np.zeros((2, 0)), np.zeros(0), way == "ratio", 1, W, w0
    )
    least = oracle.cross_entropy(settings_["mapping"], best, 1, W, w0) + 0.2 * np.abs(best).sum()
    for s in S:
        assert oracle.cross_entropy(settings_["mapping"], s, 1, W, w0) + 0.2 * np.abs(s).sum() <= least + 1e-4


def test_two_sessions_fit_the_classifier_to_given_sources():
    X, start, _, y, weight = problem(7, "ratio", N=12)
    options = {"sigma2": 0.5, "gamma": 0.3, **WAYS["ratio"]}
    model = NLMFClassifier(2, session="dual", max_iter=3, **start, **options, **EXACT).fit(X, y, weight)
    alone = NLMF(2, max_iter=3, sigma2=0.5, **start, **WAYS["ratio"], **EXACT).fit(X, None, weight)
    np.testing.assert_array_equal(model.history_, alone.history_)
    F = oracle.mapped("ratio", model.activations_)
    W, w0 = oracle.best_coefficients(options, F, y, 3, False, weight)
    ours, theirs = (
        sum(
            w * oracle.cross_entropy("ratio", s, c, *fit)
            for w, s, c in zip(weight, model.activations_, y, strict=True)
        )
        + 0.3 * np.abs(fit[0]).sum()
        for fit in ((model.coef_, model.intercept_), (W, w0))
    )
    assert ours <= theirs * (1 + 1e-7)


def test_rows_unlike_the_training_rows_are_rejected():
    X, y, held_out, _ = digits()
    model = NLMFClassifier(15, sigma2=0.05, max_iter=10, tol=0.0, random_state=0).fit(X, y)
    model.calibrate_rejection(held_out, acceptance=0.95)
    noise = np.random.default_rng(0).random((50, 64))
    assert np.mean(model.predict(noise) == -1) > 0.9
    assert np.mean(model.predict(held_out) == -1) == pytest.approx(0.05, abs=0.01)


# -- bad input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigma2": 0.0}, "sigma2 must be above 0"),
        ({"sigma2": -1.0}, "sigma2"),
        ({"mapping": "ratio"}, r'mapping="ratio" needs constraint="non_negative"'),
        ({"constraint": "semi"}, r'constraint="semi" needs mapping="logistic"'),
        ({"solver": "mu"}, r'solver="mu" needs constraint="non_negative"'),
        ({"activations_init": np.zeros((6, 2))}, "activations_init needs components_init"),
        ({"components_init": np.zeros((3, 4))}, "components_init has shape"),
        (
            {"components_init": -np.ones((2, 4)), "constraint": "non_negative"},
            "components_init must not be negative",
        ),
        ({"alpha": -1.0}, "alpha"),
        ({"mapping": "sine"}, "mapping"),
    ],
)
def test_options_that_cannot_be_are_told(options, message):
    with pytest.raises(ValueError, match=message):
        NLMF(2, **options).fit(np.abs(problem(8, "tanh")[0]))


def test_rows_that_cannot_be_are_told():
    X = problem(9, "tanh")[0]
    with pytest.raises(ValueError, match="Negative values in data passed to NLMF"):
        NLMF(2, constraint="non_negative").fit(X)
    model = NLMF(2, constraint="non_negative", max_iter=1, tol=0.0).fit(np.abs(X))
    with pytest.raises(ValueError, match="Negative values"):
        model.transform(-np.abs(X))
    with pytest.raises(ValueError, match="at least 2 classes"):
        NLMFClassifier(2).fit(X, np.zeros(len(X)))
    classifier = NLMFClassifier(2, max_iter=1, tol=0.0).fit(X, np.arange(len(X)) % 2)
    with pytest.raises(ValueError, match="not among"):
        classifier.generate([7])
    with pytest.raises(ValueError, match="one column for each of the 2 components"):
        model.inverse_transform(np.zeros((3, 5)))


# -- around it -----------------------------------------------------------------------------------------


def test_batches_approach_the_fit_of_all_rows():
    rng = np.random.default_rng(0)
    X = np.tanh(rng.normal(size=(600, 2))) @ rng.normal(size=(2, 6)) + 3.0 + 0.05 * rng.normal(size=(600, 6))
    whole = NLMF(2, random_state=0).fit(X)
    model = NLMF(2, random_state=0)
    for i in range(0, 600, 60):
        model.partial_fit(X[i : i + 60])
    assert model.score(X) > 1.1 * whole.score(X)
    again = latently_copy(whole)
    again.partial_fit(X[:100])
    assert again.score(X) > 1.05 * whole.score(X)


def latently_copy(model):
    from copy import deepcopy

    return deepcopy(model)


def test_the_number_of_components_is_found_by_hidden_entries():
    rng = np.random.default_rng(0)
    X = np.tanh(rng.normal(size=(80, 2))) @ rng.normal(size=(2, 8)) + 0.05 * rng.normal(size=(80, 8))
    found = select(NLMF(tol=1e-4), X, {"n_components": [1, 2, 4]}, "entries", random_state=0, n_jobs=1)
    assert found.best_.n_components == 2


def test_a_saved_layer_says_the_same(tmp_path):
    X, _, _, y, _ = problem(10, "semi", N=12)
    model = NLMFClassifier(2, max_iter=3, tol=0.0, **WAYS["semi"]).fit(X, np.array(["a", "b", "c"])[y])
    model.save(tmp_path / "layer")
    loaded = latently.load(tmp_path / "layer")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(
        loaded.generate(["b"], random_state=0), model.generate(["b"], random_state=0)
    )


@pytest.mark.parametrize("way", NON_NEGATIVE)
@pytest.mark.parametrize("alpha", [0.0, 2.0])
@pytest.mark.parametrize("labelled", [False, True])
def test_coordinate_descent_lowers_the_cost_of_every_row_towards_the_minimum(way, alpha, labelled):
    rng = np.random.default_rng(2)
    terms = Terms(MAPPINGS[WAYS[way]["mapping"]], alpha, 0.0, 0.0, 0.5, True, True)
    A, U = rng.random((4, 6)), terms.mapping.value(rng.random((9, 4)) * (rng.random((9, 4)) < 0.6))
    Y = 3.0 * rng.random((9, 6))
    softmax = None
    if labelled:  # the last row has no label
        targets = np.eye(3)[np.arange(9) % 3] * (np.arange(9) < 8)[:, None]
        softmax = Softmax(3.0 * rng.normal(size=(3, 4)), rng.normal(size=3), targets, 0.5)
    G = A @ A.T
    rows = Rows(terms.shape(), G, inverse_of(G, 0.0), Y @ A.T, 0.5 * np.sum(Y * Y, axis=1), softmax)

    def costs(U):
        found = 0.5 * np.sum((Y - U @ A) ** 2, axis=1)
        found += 0.5 * alpha * np.sum(np.abs(terms.mapping.inverse(U)), axis=1)
        if labelled:
            v = U @ softmax.coef.T + softmax.intercept
            told = np.log(np.sum(np.exp(v), axis=1)) - np.sum(v * targets, axis=1)
            found += 0.5 * np.where(targets.any(axis=1), told, 0.0)
        return found

    before, best = costs(U), costs(minimised(rows, U, tolerance=1e-14))
    for _ in range(60):
        U = descended(rows, U, 1 if labelled else 3)
        after = costs(U)
        assert np.all(after <= before + 1e-14)
        before = after
    for _ in range(200):  # bounds of the cross-entropy are wide, and steps short
        U = descended(rows, U, 3)
    np.testing.assert_allclose(costs(U), best, rtol=1e-7)


def test_a_fit_that_starts_at_its_minimum_makes_one_pass_for_each_sweep():
    X = np.random.default_rng(0).random((60, 8))
    model = NLMF(3, max_iter=10, tol=0.0, random_state=0).fit(X)
    assert model.n_passes_ <= model.n_iter_ + 3


def test_coefficients_are_fitted_where_labels_are_a_small_part_of_the_cost():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 6))
    y = np.argmax(X[:, :3] + 0.5 * rng.normal(size=(150, 3)), axis=1)
    options = {"sigma2": 1e-7, "gamma": 0.5, "random_state": 0}
    joint = NLMFClassifier(4, **options).fit(X, y)
    dual = NLMFClassifier(4, session="dual", **options).fit(X, y)
    assert joint.n_iter_ <= 3  # the relative change of the cost is tiny from the start
    one, other = (model.cost(X, y) for model in (joint, dual))
    assert one.classification + one.coef <= 1.03 * (other.classification + other.coef)


def test_newton_steps_of_few_do_not_lose_what_was_found():
    """Sources that are at their minimum stay there."""
    X, start, _, _, _ = problem(11, "tanh", N=30)
    terms = Terms(MAPPINGS["tanh"], 0.1, 0.0, 0.0, 0.5, False, False)
    known = prepared(Layer(start["components_init"], start["offset_init"]), terms)
    _, [best] = swept_rows(terms, Newton(), known, Block(X))
    _, [again] = swept_rows(terms, Newton(n_steps=2), known, Block(X, state=best))
    np.testing.assert_allclose(again, best, rtol=1e-6, atol=1e-8)


# -- layers ----------------------------------------------------------------------------------------


def test_the_gradient_of_the_total_cost_is_that_of_its_differences():
    """Also through the sources of both layers, which move with the parameters."""
    X, y, _, _ = digits()
    X, y = np.where(np.random.default_rng(0).random((40, 64)) < 0.1, np.nan, X[:40]), y[:40]
    options = {"alpha": (0.05, 0.1), "beta": 0.01, "sigma2": (0.1, 0.05), "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DeepNLMF((4, 3), max_iter=3, tol=0.0, **options).fit(X, y)
    terms, layers = (
        [layer._terms() for layer in model.layers_],
        tuple(layer._layer() for layer in model.layers_),
    )
    allowed = y[:, None] == model.classes_
    block = Block(X, allowed=allowed, weight=np.linspace(0.5, 2.0, 40)).with_observed()

    def evaluated(vector):
        stack = tuple(
            (t, prepared(layer, t)) for t, layer in zip(terms, unflattened(vector, layers), strict=True)
        )
        sums, _ = climbed(stack, block)
        return float(sums.cost), sums.gradient

    at = flattened(layers)
    gradient = evaluated(at)[1]
    for seed in range(3):
        direction = np.random.default_rng(seed).normal(size=at.shape)
        change = (evaluated(at + 1e-6 * direction)[0] - evaluated(at - 1e-6 * direction)[0]) / 2e-6
        assert gradient @ direction == pytest.approx(change, rel=1e-3)


def test_a_bound_that_is_near_does_not_keep_a_row_from_its_minimum():
    # a long step along (1, 1), of which one coordinate may take next to nothing
    close = 1.0 - 1e-8
    gram, least = np.array([[1.0, -close], [-close, 1.0]]), np.array([[2.0, 2.0]])
    pull = least @ gram
    shape = Shape(upper=np.array([1.0, np.inf]))
    rows = Rows(shape, gram[None], None, pull, 0.5 * np.sum(pull * least, axis=1))
    U = minimised(rows, np.full((1, 2), 1.0 - 1e-4), tolerance=1e-13)
    np.testing.assert_allclose(U, [[1.0, 2.0 - close]], rtol=0, atol=1e-12)
    # the same towards the kink of a penalty, of which one coordinate is already very near
    least = np.array([[-1.0, -1.0]])
    shape = Shape(penalty=np.array([3e-8, 0.0]), penalised=True)
    rows = Rows(shape, gram[None], None, least @ gram, 0.5 * np.sum(least @ gram * least, axis=1))
    U = minimised(rows, np.full((1, 2), 1e-4), tolerance=1e-13)
    np.testing.assert_allclose(U, [[0.0, close - 1.0]], rtol=0, atol=1e-12)


def test_a_source_at_the_end_of_its_range_passes_no_gradient_down():
    # its own gradient is of rounding, and ds/du about 1e15
    layers = Layer(np.ones((1, 1)), np.zeros(1)), Layer(np.ones((1, 1)), np.zeros(1))
    terms = Terms(Tanh(), 0.0, 0.0, 0.0, 1.0, positive_sources=False, positive_parts=False)
    sums, [S] = climbed(
        tuple((terms, prepared(layer, terms)) for layer in layers), Block(np.array([[1.0 - 1e-10]]))
    )
    np.testing.assert_allclose(S, 18.0)
    np.testing.assert_allclose(sums.gradient, [0.0, 0.0, -17.0, -17.0], atol=1e-6)


def test_a_descent_that_finds_no_lower_value_ends():
    asked = []

    def jumps(x, state):  # a value that the gradient belies
        asked.append(x)
        return (1.0 if x[0] == 0 else 2.0), np.array([1e30]), state

    descent = Descent(jumps, np.zeros(1), np.zeros(1, dtype=bool), np.ones(1))
    walk = descent.start(np.zeros(1))
    for _ in range(100):
        walk = descent.step(walk).next_params()
    assert walk.stuck and walk.value == 1.0
    assert len(asked) < 30
    assert np.abs(asked).max() < 1e-20  # the first trial is no wild one


def test_a_trial_that_is_rejected_leaves_no_trace():
    """Where sources are not unique an objective has several values; that next to the last point counts."""
    given = []

    def evaluate(x, state):
        given.append(state)
        return float(np.sum(x**4)), 4 * x**3, tuple(x)

    descent = Descent(evaluate, np.zeros(2), np.zeros(2, dtype=bool), np.ones(2))
    walk = descent.start(np.array([3.0, -2.0]), "start")
    n_tried = 0
    for _ in range(5):
        given.clear()
        after = descent.step(walk).next_params()
        n_tried = max(n_tried, len(given))
        assert set(given) == {walk.state} and after.state == tuple(after.at) and after.value < walk.value
        walk = after
    assert n_tried > 1


@pytest.mark.filterwarnings("ignore:DeepNLMF cannot be fine-tuned")
def test_fine_tuning_of_rows_with_few_entries_goes_on():
    """Their sources are not unique, and trials that were rejected led to others, of a higher cost."""
    rng = np.random.default_rng(365)
    X = rng.normal(size=(int(rng.integers(4, 30)), int(rng.integers(2, 6))))
    X[rng.integers(len(X))] = 10.0 ** rng.integers(2, 12)
    X[rng.random(X.shape) < 0.3] = np.nan
    options = {"sigma2": [0.5, 0.2], "max_iter": 4, "tol": 0, "random_state": 0, "fine_tune": True}
    model = DeepNLMF([3, 2], fine_tune_iter=30, **options).fit(X)
    assert model.fine_tune_history_[-1] < 0.1 * model.fine_tune_history_[0]


def test_fine_tuning_that_cannot_go_on_says_so(monkeypatch):
    monkeypatch.setattr(Descent, "_searched", lambda *given: None)
    rng = np.random.default_rng(12)
    X = np.where(rng.random((19, 3)) < 0.3, np.nan, rng.normal(size=(19, 3)))
    with pytest.warns(ConvergenceWarning, match="cannot be fine-tuned further"):
        model = DeepNLMF((3, 2), fine_tune=True, max_iter=4, tol=0.0, random_state=0).fit(X)
    assert np.all(np.diff(model.fine_tune_history_) <= 0)
    assert len(model.fine_tune_history_) == 101


def test_fine_tuning_lowers_the_cost_of_the_stack_at_every_step():
    X, y, X_new, y_new = digits()
    options = {"alpha": 0.05, "beta": 0.05, "sigma2": 0.05, "max_iter": 5, "tol": 0.0, "random_state": 0}
    greedy = DeepNLMF((12, 8), **options).fit(X, y)
    tuned = DeepNLMF((12, 8), fine_tune=True, fine_tune_iter=15, **options).fit(X, y)
    assert np.all(np.diff(tuned.fine_tune_history_) <= 0)
    assert tuned.fine_tune_history_[0] == pytest.approx(greedy.cost(X, y).total, rel=1e-6)
    assert tuned.fine_tune_history_[-1] == pytest.approx(tuned.cost(X, y).total, rel=1e-6)
    assert tuned.cost(X, y).total < 0.99 * greedy.cost(X, y).total
    assert tuned.score(X_new, y_new) > greedy.score(X_new, y_new) - 0.01


def test_a_stack_is_its_layers():
    X, y, X_new, _ = digits()
    model = DeepNLMF((10, 6), sigma2=(0.1, 0.05), max_iter=3, tol=0.0, random_state=0).fit(X, y)
    first, second = model.layers_
    S = second.transform(first.transform(X_new))
    np.testing.assert_array_equal(model.transform(X_new), S)
    np.testing.assert_array_equal(
        model.inverse_transform(S), first.inverse_transform(second.inverse_transform(S))
    )
    np.testing.assert_array_equal(model.predict_proba(X_new), second.predict_proba(first.transform(X_new)))
    again = DeepNLMF.from_layers(first, second)
    np.testing.assert_array_equal(again.predict(X_new), model.predict(X_new))
    made = model.generate(np.arange(10), random_state=1)
    top = model.generate_activations(np.arange(10), random_state=1)
    np.testing.assert_array_equal(made, model.inverse_transform(top))
    with pytest.raises(ValueError, match="layer 2 has 10 features, but layer 1 has 6 components"):
        DeepNLMF.from_layers(
            NLMF.from_parameters(components=second.components_, offset=second.offset_), second
        )
    unlabelled = DeepNLMF((10, 6), max_iter=2, tol=0.0, inputs="transform").fit(X)
    assert not hasattr(unlabelled, "predict")
    assert unlabelled.score(X_new) < 0
