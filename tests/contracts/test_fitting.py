"""Fits of every estimator: repeatable, whole or not at all, weighted, watched, interrupted and resumed."""

import random
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

import latently
from latently import saved
from tests.contracts.cases import (
    CASES,
    CLOSE,
    HAVE_TORCH,
    NETWORKS,
    answers,
    assert_equal,
    every_case,
    fitted,
    having,
    in_every_form,
    numbers,
    state,
)

iterative = having(is_iterative=True)


def test_every_public_estimator_has_a_case():
    packages = [getattr(latently, name) for name in latently.__all__ if not name.startswith("_")]
    public = {
        thing
        for package in packages
        for thing in (
            getattr(package, name)
            for name in getattr(package, "__all__", ())
            if HAVE_TORCH or name not in NETWORKS
        )
        if isinstance(thing, type) and issubclass(thing, BaseEstimator)
    }
    public -= {latently.tables.TableModel}  # it takes tables, and has tests of its own
    scores = {latently.rejection.ClassifierScore}  # of another classifier, fitted to classes: the same
    assert public - scores == {case.cls for case in CASES}
    known = set(saved.KNOWN_CLASSES) - (set() if HAVE_TORCH else NETWORKS)
    assert {cls.__name__ for cls in public} == known


# -- parameters ---------------------------------------------------------------------------------------


@every_case
def test_parameters_are_kept_as_given(case):
    X, y = case.data()
    model = case.make()
    before = model.get_params()
    case.fit(X, y, to=model)
    assert model.get_params().keys() == before.keys()
    assert all(model.get_params()[name] is value for name, value in before.items())
    copy = clone(model)
    assert not state(copy)
    assert_equal(answers(case.fit(X, y, to=copy), X), answers(model, X))
    assert case.cls.__name__ in repr(model)
    for name, value in model.get_params(deep=False).items():
        assert model.set_params(**{name: value}) is model
    with pytest.raises(ValueError, match="no_such_option"):
        model.set_params(no_such_option=1)


# -- chance -------------------------------------------------------------------------------------------


SEEDS = {"int": int, "Generator": np.random.default_rng, "RandomState": np.random.RandomState}


@in_every_form(
    "source",
    SEEDS,
    of_all=("int", "Generator"),
    cases=[case for case in CASES if "random_state" in case.options],
)
def test_the_same_seed_gives_the_same_fit(case, source):
    X, y = case.data()
    more = {"n_init": 2} if "n_init" in case.options else {}
    one, other = (case.fit(X, y, random_state=SEEDS[source](5), **more) for _ in range(2))
    assert_equal(state(one), state(other))


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if "block_size" in case.options and not case.trained],
    ids=str,
)
def test_the_number_of_threads_changes_rounding_alone(case, monkeypatch):
    """Threads share the rows out, so sums are added in another order, and nothing else."""
    X, y = case.data()
    monkeypatch.setattr("latently.backend.placement.SMALL_BYTES", 0)
    monkeypatch.setattr("latently.backend.placement.SMALLEST_BLOCK", 8)
    said = []
    for n_threads in (1, 3):
        monkeypatch.setattr("latently.backend.placement.row_threads", lambda n=n_threads: n)
        model = case.fit(X, y)
        scores = [model.score_samples(X)] if case.has("score_samples") else []
        said.append([getattr(model, "history_", np.zeros(0)), *map(np.mean, scores)])
    for one, other in zip(*said, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-10)


@every_case
def test_nobody_elses_chance_is_used_up(case):
    torch = pytest.importorskip("torch")
    X, y = case.data()
    before = np.random.get_state()[1].copy(), random.getstate(), torch.get_rng_state()  # noqa: NPY002
    model = case.fit(X, y)
    if case.has("sample"):
        model.sample(3, random_state=0)
    np.testing.assert_array_equal(before[0], np.random.get_state()[1])  # noqa: NPY002 (what this is about)
    assert before[1] == random.getstate()
    assert torch.equal(before[2], torch.get_rng_state())


@pytest.mark.parametrize("name", ["GaussianMixture", "GaussianMixture-t", "MFA", "MPPCA", "MCFA"])
@pytest.mark.parametrize("standardised", [False, True])
def test_the_order_of_features_does_not_matter(name, standardised):
    """Rows are ordered and units of features drawn in an order that the values of the features decide."""
    case = next(case for case in CASES if case.name == name)
    options = {"max_iter": 300, "tol": 1e-9, "n_init": 3}
    for seed in (1, 2, 3):
        X, _ = case.data(n=80, seed=100 * seed)
        X = (X - X.mean(axis=0)) / X.std(axis=0) if standardised else X
        order = np.random.default_rng([seed, 7]).permutation(X.shape[1])
        one, other = case.fit(X, **options), case.fit(X[:, order], **options)
        np.testing.assert_allclose(
            other.score_samples(X[:, order]).mean(), one.score_samples(X).mean(), atol=1e-4
        )


# -- failures -----------------------------------------------------------------------------------------


def assert_unchanged(model, before):
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())


@every_case
@pytest.mark.parametrize("earlier", [False, True], ids=["", "fitted"])
def test_a_failed_fit_changes_nothing(case, earlier):
    X, y = case.data(n_features=D_OTHER)
    model = case.fit(*case.data()) if earlier else case.make()
    before = dict(vars(model))
    infinite = X.copy()
    infinite[3, 1] = np.inf
    for bad in (infinite, X[:1], np.full_like(X, np.nan), np.full(X.shape, "text")):
        with pytest.raises(ValueError):
            model.fit(bad, None if y is None else y[: len(bad)])
        assert_unchanged(model, before)


D_OTHER = 5  # features: others than in the fit before


@iterative
def test_a_fit_that_fails_on_its_way_changes_nothing(case):
    def broken(iteration):
        if iteration.number == 2:
            raise RuntimeError("no power")

    X, y = case.data(n_features=D_OTHER)
    model = case.fit(*case.data()).set_params(callbacks=[broken])
    before = dict(vars(model))
    with pytest.raises(RuntimeError, match="no power"):
        case.fit(X, y, to=model)
    assert_unchanged(model, before)


# -- weights and order --------------------------------------------------------------------------------


@having(takes_weights=True, trained=False)
def test_weight_two_is_a_row_twice(case):
    X, y = case.data()
    copies = np.random.default_rng(7).integers(1, 4, size=len(X))
    by_weight = case.fit(X, y, copies.astype(float))
    by_copies = case.fit(np.repeat(X, copies, axis=0), None if y is None else np.repeat(y, copies))
    by_weight_, by_copies_ = (answers(model, X, case.settled) for model in (by_weight, by_copies))
    assert_equal(by_weight_, by_copies_, rtol=1e-5, atol=1e-6)
    if case.is_iterative:
        np.testing.assert_allclose(by_weight.history_, by_copies.history_, rtol=1e-8)


@having(takes_weights=True)
def test_weight_zero_is_a_row_absent(case):
    X, y = case.data()
    weight = np.random.default_rng(8).uniform(0.5, 2.0, size=len(X))
    weight[::5] = 0.0
    kept = weight > 0
    X[~kept] *= 1000.0
    zero = case.fit(X, y, weight)
    absent = case.fit(X[kept], None if y is None else y[kept], weight[kept])
    assert_equal(answers(zero, X[kept]), answers(absent, X[kept]), rtol=1e-9, atol=1e-10)


BAD_WEIGHTS = {
    "negative": lambda n: np.where(np.arange(n) == 3, -1.0, 1.0),
    "zero": np.zeros,
    "nan": lambda n: np.where(np.arange(n) == 3, np.nan, 1.0),
    "inf": lambda n: np.where(np.arange(n) == 3, np.inf, 1.0),
    "short": lambda n: np.ones(n - 1),
    "2-D": lambda n: np.ones((n, 2)),
    "column": lambda n: np.ones((n, 1)),
    "scalar": lambda n: 1.0,
    "text": lambda n: ["a"] * n,
    "empty": lambda n: [],
    "complex": lambda n: np.ones(n) * 1j,
    "overflow": lambda n: np.full(n, 1e308),  # their sum
}


@having(takes_weights=True)
@pytest.mark.parametrize("bad", BAD_WEIGHTS)
def test_weights_that_are_none(case, bad):
    X, y = case.data()
    with pytest.raises((ValueError, TypeError), match=r"sample_weight|scalar|convert|[Cc]omplex"):
        case.fit(X, y, BAD_WEIGHTS[bad](len(X)))


@having(trained=False, counted=False)
def test_the_order_of_rows_does_not_matter(case):
    X, y = case.data()
    order = np.random.default_rng(9).permutation(len(X))
    forth, back = case.fit(X, y), case.fit(X[order], None if y is None else y[order])
    assert_equal(answers(forth, X, case.settled), answers(back, X, case.settled), **CLOSE)


# -- missing entries ----------------------------------------------------------------------------------


@having(takes_nan=True, counted=False)
def test_rows_that_say_nothing_change_nothing(case):
    if not getattr(case.cls, "takes_unlabelled", True):
        pytest.skip("every row has a label, which says something")
    X, y = case.data()
    more = case.fit(np.vstack([X, np.full((3, X.shape[1]), np.nan)]), None if y is None else [*y, -1, -1, -1])
    assert_equal(answers(more, X), answers(fitted(case), X), rtol=1e-6, atol=1e-8)


@having(takes_nan=True)
def test_entries_may_be_missing(case):
    X, y = case.data()
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    model = case.fit(X, y)
    assert all(np.all(np.isfinite(array)) for array in answers(model, X).values() if array.dtype.kind == "f")
    if case.has("impute"):
        seen = ~np.isnan(X)
        np.testing.assert_array_equal(model.impute(X)[seen], X[seen])
    with pytest.raises(ValueError, match="missing"):
        case.fit(np.full_like(X, np.nan), y)


@having(takes_nan=False)
def test_missing_entries_are_refused_where_they_may_not_be(case):
    X, y = case.data()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        case.fit(X, y)
    for method in answers(fitted(case), case.data()[0]):
        name = method.partition(".")[0]
        if name == "impute":  # what it is for, also where a fit needs complete rows
            assert np.all(np.isfinite(fitted(case).impute(X)))
            continue
        with pytest.raises(ValueError, match="NaN"):
            getattr(fitted(case), name)(X)


# -- iterations ---------------------------------------------------------------------------------------


@iterative
@pytest.mark.parametrize("n", [1, 5])
def test_exactly_as_many_steps_as_asked_for(case, n):
    X, y = case.data()
    model = case.fit(X, y, max_iter=n)
    assert model.n_iter_ == n
    assert not model.converged_


@iterative
@pytest.mark.parametrize("seed", range(2))
def test_the_objective_never_worsens(case, seed):
    model = case.fit(*case.data(seed=seed), max_iter=20)
    assert len(model.history_) in (model.n_iter_, model.n_iter_ + 1)
    assert np.all(np.isfinite(model.history_))
    gains = case.direction * np.diff(model.history_)
    assert np.all(gains >= -1e-9 * np.abs(model.history_[1:]))
    assert gains.sum() > 0


@iterative
def test_the_last_entry_of_the_history_is_of_the_model(case):
    X, y = case.data()
    if case.objective is not None:
        model = case.fit(X, y, prior=None) if "prior" in case.options else fitted(case)
        assert model.history_[-1] == pytest.approx(case.objective(model, X, y), rel=1e-9)


@iterative
def test_convergence(case):
    X, y = case.data()
    done = case.fit(X, y, tol=1e-2, max_iter=500)
    assert done.converged_ and done.n_iter_ < 500
    with pytest.warns(ConvergenceWarning, match="max_iter=2") as told:
        short = case.make(max_iter=2, tol=1e-14)
        short.fit(X, y)
    assert not short.converged_
    assert told[0].filename == __file__  # the line of the user


@having(options=("warm_start",), is_iterative=True)
def test_warm_start_continues(case):
    X, y = case.data()
    plain = {"accelerate": None}
    whole = case.fit(X, y, max_iter=7, **plain)
    parts = case.fit(X, y, max_iter=3, warm_start=True, **plain)
    first = parts.history_[-1]
    case.fit(X, y, to=parts.set_params(max_iter=4))
    assert case.direction * (parts.history_[-1] - first) > 0
    if not case.has("row_cost"):  # activations of the rows begin anew
        assert_equal(answers(parts, X), answers(whole, X), rtol=1e-7, atol=1e-8)
        assert parts.history_[-1] == pytest.approx(whole.history_[-1], rel=1e-9)
    with pytest.raises(ValueError, match="warm_start"):
        case.fit(*case.data(n_features=D_OTHER), to=parts)


# -- callbacks, interrupts and progress ---------------------------------------------------------------


@iterative
def test_callbacks_see_every_iteration_and_can_end_the_fit(case):
    X, y = case.data()
    seen = []
    model = case.fit(X, y, callbacks=[seen.append])
    assert [told.number for told in seen] == list(range(model.n_iter_ + 1))
    assert seen[0].gain == np.inf and {told.max_iter for told in seen} == {model.max_iter}
    objectives = np.array([told.objective for told in seen])
    np.testing.assert_allclose(objectives[-len(model.history_) :], model.history_, rtol=1e-12)
    gains = case.direction * np.diff(objectives)
    np.testing.assert_allclose([told.gain for told in seen[1:]], gains, atol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the user ended it, and need not be told
        ended = case.make(callbacks=[lambda told: 1, lambda told: told.number == 3], tol=1e-12).fit(X, y)
    assert ended.n_iter_ == 3 and not ended.converged_
    assert_equal(answers(ended, X), answers(case.fit(X, y, max_iter=3), X))


@iterative
@pytest.mark.parametrize("number", [1, 4])
def test_an_interrupt_keeps_the_best_so_far(case, number):
    def interrupt(iteration):
        if iteration.number == number:
            raise KeyboardInterrupt

    X, y = case.data()
    model = case.make(callbacks=[interrupt])
    with pytest.warns(ConvergenceWarning, match=rf"interrupted.*iteration {number}") as told:
        model.fit(X, y)
    assert told[0].filename == __file__
    assert model.n_iter_ == number and not model.converged_
    assert_equal(answers(model, X), answers(case.fit(X, y, max_iter=number), X))


@iterative
@pytest.mark.parametrize("with_rich", [False, True], ids=["", "rich"])
def test_progress_is_shown_if_asked_for(case, with_rich, capsys, monkeypatch):
    if not with_rich:
        monkeypatch.setitem(sys.modules, "rich", None)
    X, y = case.data()
    case.fit(X, y)
    quiet = capsys.readouterr()
    assert quiet.out == quiet.err == ""
    model = case.fit(X, y, verbose=1, max_iter=3)
    shown = capsys.readouterr().out
    assert case.cls.__name__ in shown
    assert f"{model.history_[-1]:.5g}"[:-1] in shown
    if not with_rich:
        lines = [line for line in shown.splitlines() if "iteration" in line]
        assert len(lines) == model.n_iter_ + 1


# -- checkpoints --------------------------------------------------------------------------------------


class Killed(Exception):
    pass


def killed_at(number):
    def callback(iteration):
        if iteration.number == number:
            raise Killed

    return callback


@having(options=("checkpoint",), is_iterative=True)
@pytest.mark.parametrize("batch_size", [None, 16], ids=["", "batches"])
def test_a_killed_fit_resumes_from_its_checkpoint_bit_for_bit(case, batch_size, tmp_path):
    X, y = case.data()
    if batch_size and "batch_size" not in case.options:
        pytest.skip("it has no mini-batches")
    options = {"max_iter": 9} | ({"batch_size": batch_size} if batch_size else {})
    whole, path = case.fit(X, y, **options), tmp_path / "state"
    kept = {**options, "checkpoint": path, "checkpoint_every": 2}
    for kill in (4, 7):
        with pytest.raises(Killed):
            case.fit(X, y, callbacks=[killed_at(kill)], **kept)
        assert path.exists()
    with pytest.raises(ValueError, match=r"checkpoint.*other data"):
        case.fit(*case.data(seed=1), **kept)
    other = {"learning_decay": 0.6} if "learning_decay" in case.options else {"n_init": 2}
    with pytest.raises(ValueError, match=rf"checkpoint.*other {next(iter(other))}"):
        case.fit(X, y, **other, **kept)
    seen = []
    resumed = case.fit(X, y, callbacks=[seen.append], **kept)
    assert len(seen) < len(whole.history_)
    expected = {name: array for name, array in state(whole).items() if name != ".n_passes_"}
    assert_equal({name: state(resumed)[name] for name in expected}, expected)  # rows may be read once more
    assert not path.exists()


# -- batches as they come -----------------------------------------------------------------------------


@having("partial_fit")
def test_partial_fit_learns_batch_by_batch(case):
    X, y = case.data(n=120)
    model = case.make()
    classes = {"classes": np.unique(y)} if y is not None else {}
    for epoch in range(4):
        for part in (slice(0, 60), slice(60, 120)):
            labels = () if y is None else (y[part],)
            model.partial_fit(X[part], *labels, **(classes if epoch == part.start == 0 else {}))
        if epoch == 0:
            first = model.score(X) if case.rows == "real" and y is None else None
    assert model.n_iter_ == 8
    assert all(np.all(np.isfinite(array)) for array in numbers(model))
    if first is not None:
        assert model.score(X) > first - 0.05 * abs(first)
    before = dict(vars(model))
    with pytest.raises(ValueError):
        model.partial_fit(X[:, :2], *(() if y is None else (y,)))
    assert_unchanged(model, before)


@having("partial_fit")
def test_partial_fit_continues_a_fit_and_a_model_that_was_loaded(case, tmp_path):
    X, y = case.data()
    labels = () if y is None else (y,)
    model = case.fit(X, y)
    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    for one in (model, again):
        one.partial_fit(X[:40], *(part[:40] for part in labels))
    assert_equal(answers(again, X), answers(model, X), rtol=1e-9, atol=1e-10)
    assert model.n_iter_ == 1 + (1 if case.in_closed_form else fitted(case).n_iter_)
