"""The search for the best optimum: races between starts, new starts near the best, and partitions."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from latently.core.block import Block
from latently.core.drivers import Step, best_start, relative
from latently.core.frame import Frame
from latently.core.search import CHEAP, CHEAP_WIDE, COSTLY, COSTLY_WIDE, Search
from latently.core.tree import mapped
from latently.estimators.starts import features_in_order, rows_in_order
from latently.mixture import MCFA, MFA, GaussianMixture, starts, trimming
from latently.mixture.degenerate import without_degenerate
from latently.mixture.starts import Starts, agglomerated, number_of_starts
from latently.supervised import MJFAClassifier

STOP = relative(1e-6)


def along(curves, visits=None):
    """A step through known curves: parameters are (name of the curve, time)."""

    def step(at):
        name, t = at
        if visits is not None:
            visits.append(at)
        return Step(curves[name](t), 0.0, lambda: (name, t + 1))

    return step


def quick(height):
    return lambda t: height * (1.0 - 0.5**t)


def late(t):
    """Low at first, and best of all after 60 steps."""
    return min(0.03 * t, 2.0)


def searched(step, names, **how):
    return Search(step, step, STOP, **how).best([(name, 0) for name in names])


def test_a_start_that_overtakes_late_wins():
    curves = {"late": late, **{f"quick {i}": quick(1.0 - 0.1 * i) for i in range(7)}}
    step = along(curves)
    starts = [(name, 0) for name in curves]
    assert best_start(step, starts, n_steps=4, stop=STOP)[0][0] == "quick 0"  # short runs mislead
    (name, _), interrupted = searched(step, curves)
    assert (name, interrupted) == ("late", False)


def test_the_first_start_always_races():
    visits = []
    curves = {"low": quick(0.1), **{f"quick {i}": quick(1.0 - 0.1 * i) for i in range(7)}}
    (name, _), _ = searched(along(curves, visits), curves)
    assert name == "quick 0"
    steps = {name: max(t for of, t in visits if of == name) for name in curves}
    assert steps["low"] > 4 and steps["quick 6"] == 4


def test_runs_to_the_same_optimum_are_dropped():
    visits = []
    curves = {"fast": quick(1.0), "slow": lambda t: 1.0 - 0.8**t, "apart": quick(0.5)}
    searched(along(curves, visits), curves)
    n_steps = {name: max(t for of, t in visits if of == name) for name in curves}
    assert n_steps["slow"] < 40  # alone it takes 62
    assert n_steps["apart"] <= 14


def test_a_single_start_is_returned_unchanged():
    assert searched(along({"one": late}), ["one"]) == (("one", 0), False)


def test_a_race_ends_when_it_is_decided():
    visits = []
    curves = {"quick": quick(1.0), "slow": lambda t: 2.0 - 0.9**t}
    (name, t), _ = searched(along(curves, visits), curves)
    assert name == "slow" and t < 20  # the fit goes on from here
    (name, t), _ = Search(along(curves), along(curves), STOP).best(
        [(name, 0) for name in curves], lambda at: [], n_near=1
    )
    assert name == "slow" and t > 60  # the optimum itself is wanted, to find starts near it


def test_runs_that_are_not_clean_rank_below_others():
    curves = {"spurious": quick(5.0), "clean": quick(1.0), "low": quick(0.5)}
    step = along(curves)
    assert searched(step, curves, clean=lambda at: at[0] != "spurious")[0][0] == "clean"
    assert searched(step, curves, clean=lambda at: False)[0][0] == "spurious"


def test_starts_near_the_best_are_tried_until_they_are_used_up():
    curves = {i: quick(1.0 + 0.1 * i) for i in range(20)}
    asked = []

    def near(at):
        asked.append(at[0])
        while True:
            yield (at[0] + 1, 0)

    search = Search(along(curves), along(curves), STOP)
    best, _ = search.best([(0, 0), (1, 0)], near, n_near=36)
    assert asked == [1, 2, 3] and best[0] == 4  # twelve at a time
    assert search.best([(0, 0), (1, 0)], near, n_near=0)[0][0] == 1
    assert search.best([(0, 0), (1, 0)], lambda at: [], n_near=9)[0][0] == 1


@pytest.mark.parametrize("heights, n_asked", [([1.0, 1.0, 1.0, 1.0], 1), ([1.0, 0.99, 0.98, 0.97], 3)])
def test_few_starts_near_the_best_are_tried_where_runs_agree(heights, n_asked):
    curves = {f"start {i}": quick(height) for i, height in enumerate(heights)} | {"near": quick(0.5)}
    asked = []

    def near(at):
        asked.append(at[0])
        while True:
            yield ("near", 0)

    search = Search(along(curves), along(curves), STOP)
    starts = [(name, 0) for name in curves if name != "near"]
    assert search.best(starts, near, n_near=100, n_vain=3)[0][0] == "start 0"
    assert len(asked) == n_asked
    asked.clear()
    search.best(starts, near, n_near=24)  # as many as the user asked for
    assert len(asked) == 2


@pytest.mark.parametrize("call", [2, 12, 25, 40])
def test_an_interrupt_keeps_the_best_so_far(call):
    curves = {"low": quick(0.5), "quick": quick(1.0), "late": late}
    visits = []
    inner = along(curves, visits)

    def step(at):
        if len(visits) == call:
            raise KeyboardInterrupt
        return inner(at)

    (name, _), interrupted = searched(step, curves)
    assert interrupted
    assert name == ("low" if call < 6 else "quick")


def test_an_interrupt_before_anything_is_known():
    def step(at):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        searched(step, ["one", "other"])


# -- partitions ---------------------------------------------------------------------------------------


def clusters(K, n, seed=0, D=3):
    """Rows of K clusters far apart, and their labels."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return 30.0 * rng.standard_normal((K, D))[y] + rng.standard_normal((n, D)), y


def same_partition(a, b):
    return len({*zip(a.tolist(), b.tolist(), strict=True)}) == len(set(a.tolist())) == len(set(b.tolist()))


@pytest.mark.parametrize("n", [60, 1700])  # more than are agglomerated
def test_agglomeration_finds_clusters(n):
    X, y = clusters(5, n)
    assert same_partition(agglomerated(X, 5, seed=0), y)


def starts_of(model, X, allowed=None, n_classes=None, **how):
    K = model.n_components if n_classes is None else model.n_components * n_classes
    kernel = model._structure().kernel(model._structure().family(np.full(X.shape[1], 1e-6)), "float64")
    block = Block(X, np.ones(len(X)), allowed)
    frame = Frame(np.zeros(X.shape[1]), np.ones(X.shape[1]))
    return Starts(kernel, K, "kmeans", 0, block, frame, n_classes=n_classes, **how), kernel


def test_the_third_start_is_hierarchical(monkeypatch):
    X, _ = clusters(3, 60)
    found, _ = starts_of(GaussianMixture(3), X)
    kinds = []

    def noted(rows, weight, n_components, given, *others):
        kinds.extend(how.by for how in given)
        return partitions(rows, weight, n_components, given, *others)

    partitions = starts.partitions
    monkeypatch.setattr(starts, "partitions", noted)
    assert len(list(found.first(5))) == 5
    assert sorted(kinds) == ["kmeans"] * 4 + ["ward"]
    assert found._clustering(2).by == "ward"


def test_features_are_standardised_for_models_of_one_scale_too():
    X, y = clusters(3, 150, D=8)
    X = np.column_stack([X - X.mean(axis=0), 1e4 * np.random.default_rng(1).standard_normal(150)])
    as_they_are, standardised = starts_of(GaussianMixture(3, covariance_type="spherical"), X)[0]._partitions(
        2
    )
    assert same_partition(standardised, y)
    assert not same_partition(as_they_are, y)


def test_starts_near_an_optimum_merge_two_parts_and_split_one():
    X, y = clusters(6, 240)
    found, kernel = starts_of(GaussianMixture(4), X)
    wrong = np.array([0, 0, 1, 1, 2, 3])[y]  # two parts of two clusters each, two of half a cluster
    wrong[y == 5] = 3
    means = starts.part_means(X, np.ones(len(X)), wrong, 4)
    here = kernel.from_partition(X, np.ones(len(X)), wrong, means)
    near = found.near(here)
    changed = [next(near) for _ in range(20)]
    moved = [np.sum(np.abs(one.components.means - means).max(axis=1) > 1e-9) for one in changed]
    assert set(moved) <= {0, 2, 3} and 3 in moved  # the others stay as they are
    assert all(np.isclose(one.weights.sum(), 1.0) and one.weights.min() > 0 for one in changed)


def test_starts_near_an_optimum_keep_its_other_components():
    X, y = clusters(5, 200)
    found, kernel = starts_of(MFA(5, 1), X)
    means = starts.part_means(X, np.ones(len(X)), y, 5)
    here = kernel.from_partition(X, np.ones(len(X)), y, means)
    learnt = replace(
        here.components, noise_variance=1.1 * here.components.noise_variance
    )  # what no partition gives
    near = found.near(replace(here, components=learnt))
    for one in [next(near) for _ in range(10)]:
        kept = np.all(one.components.noise_variance == learnt.noise_variance, axis=1)
        assert 2 <= kept.sum() < 5
        np.testing.assert_array_equal(one.components.loadings[kept], learnt.loadings[kept])
        np.testing.assert_array_equal(one.weights[kept], here.weights[kept])
        assert one.weights.sum() == pytest.approx(1.0)


def test_starts_near_an_optimum_stay_within_classes(monkeypatch):
    X, y = clusters(4, 120)
    model = MJFAClassifier(2, 2, random_state=0, max_iter=3).fit(X, y // 2)
    allowed = np.repeat(np.eye(2, dtype=bool)[y // 2], 2, axis=1)
    kernel = model._fitted_model().kernel
    block = Block(X, np.ones(len(X)), allowed)
    found = Starts(kernel, 4, "kmeans", 0, block, Frame(np.zeros(3), np.ones(3)), n_classes=2)
    labels = []
    monkeypatch.setattr(Starts, "_start", lambda self, parts: labels.append(parts))
    near = found.near(model._fitted_model().params)
    for _ in range(10):
        next(near)
    assert all(np.all(parts // 2 == y // 2) for parts in labels)


@pytest.mark.parametrize("model", [GaussianMixture(3), GaussianMixture(3, covariance_type="diag"), MFA(3, 2)])
@pytest.mark.parametrize("missing", [False, True])
def test_starts_on_a_device_are_those_in_main_memory(model, missing):
    """Here with tensors in main memory, which starts of a fit leave to NumPy."""
    torch = pytest.importorskip("torch")
    X, _ = clusters(3, 60)
    found, kernel = starts_of(model, X)
    if missing:
        observed = np.random.default_rng(0).random(X.shape) > 0.2
        found = replace(found, block=replace(found.block, X=np.where(observed, X, 0.0), observed=observed))
    there = replace(kernel, family=replace(kernel.family, floor=torch.asarray(kernel.family.floor)))
    elsewhere = replace(found, there=(there, mapped(torch.asarray, found.block)))
    optimum = None
    for start, expected in zip(elsewhere.first(4), found.first(4), strict=True):
        optimum = expected
        assert_same_arrays(start, expected)
    changed = zip(elsewhere.near(optimum), found.near(optimum), strict=True)
    for start, expected in islice(changed, 8):
        assert_same_arrays(start, expected)


KINDS = {
    "standardised": lambda X: (X - X.mean(axis=0)) / X.std(axis=0),
    "uncorrelated": lambda X: np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[0],
    "ranks": lambda X: np.argsort(np.argsort(X, axis=0), axis=0) - 0.5 * (len(X) - 1),
    "signs": lambda X: np.where(np.argsort(np.argsort(X, axis=0), axis=0) < len(X) // 2, -1.0, 1.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_features_have_an_order_of_their_own(kind, seed):
    """Also where their sums of squares differ by rounding only, which depends on the layout in memory."""
    rng = np.random.default_rng(seed)
    X = KINDS[kind](rng.gamma(2.0, size=(60, 7)) @ rng.standard_normal((7, 7)))
    order, rows = rng.permutation(7), rng.permutation(60)
    shuffled = np.asfortranarray(X[rows][:, order]) * (1 + 1e-15 * rng.standard_normal(7))
    np.testing.assert_array_equal(order[features_in_order(shuffled)], features_in_order(X))
    in_order = X[rows][rows_in_order(shuffled)]
    np.testing.assert_array_equal(in_order, X[rows_in_order(X)])  # equal rows may change places


@pytest.mark.parametrize("model", [GaussianMixture(3), GaussianMixture(3, covariance_type="diag"), MFA(3, 2)])
@pytest.mark.parametrize("missing", [False, True])
def test_starts_do_not_depend_on_the_order_of_features(model, missing):
    X, _ = clusters(3, 60)
    X = KINDS["standardised"](X)
    observed = np.random.default_rng(0).random(X.shape) > 0.2 if missing else np.ones(X.shape, dtype=bool)
    X, order = np.where(observed, X, 0.0), np.array([2, 0, 1])
    here, there = (
        replace(found, block=replace(found.block, observed=seen if missing else None))
        for (found, _), seen in (
            (starts_of(model, X), observed),
            (starts_of(model, X[:, order]), observed[:, order]),
        )
    )
    optimum = turned = None
    for optimum, turned in zip(here.first(8), there.first(8), strict=True):
        np.testing.assert_allclose(turned.components.means, optimum.components.means[:, order], atol=1e-9)
    for one, other in islice(zip(here.near(optimum), there.near(turned), strict=True), 24):
        np.testing.assert_allclose(other.components.means, one.components.means[:, order], atol=1e-9)


def assert_same_arrays(record, expected):
    mapped(lambda array: np.testing.assert_array_equal(type(array), np.ndarray), record)
    names = [*vars(expected.components)]
    for name in names:
        of_record, of_expected = getattr(record.components, name), getattr(expected.components, name)
        np.testing.assert_allclose(of_record, of_expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(record.weights, expected.weights)


def test_the_number_of_starts(monkeypatch):
    assert [sum(number_of_starts(n)) for n in (1, 2, 7, 40)] == [1, 2, 7, 40]
    assert number_of_starts(5) == (5, 0)
    assert number_of_starts("auto", in_dimensions=2)[0] > number_of_starts("auto")[0]
    X, _ = clusters(3, 60)
    n_tried = 0
    start = Starts._start

    def counted(self, *given):
        nonlocal n_tried
        n_tried += 1
        return start(self, *given)

    monkeypatch.setattr(Starts, "_start", counted)
    for n in (1, 4, 15):
        n_tried = 0
        MFA(3, 1, n_init=n, random_state=0, max_iter=5, tol=1e-3).fit(X)
        assert n_tried == n


# -- degenerate components ----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::latently.estimators.messages.DegenerateWarning")
def test_rows_far_away_seldom_get_a_component_of_their_own_where_another_optimum_is_clean(monkeypatch):
    def degenerate():
        tables = (np.exp(1.5 * np.random.default_rng(seed).standard_normal((40, 5))) for seed in range(8))
        return sum(len(MCFA(4, 2, random_state=0).fit(X).degenerate_components_) > 0 for X in tables)

    n = degenerate()
    monkeypatch.setattr(trimming, "without_degenerate", lambda *given: None)
    assert n < 0.5 * degenerate()


def test_rows_of_degenerate_components_are_left_out():
    X, y = clusters(3, 61)
    X[0], y[0] = 200.0, 3
    kernel = starts_of(MFA(4, 1), X)[1]
    block = Block(X, np.ones(len(X)))
    params = kernel.from_partition(X, block.weight, y, starts.part_means(X, block.weight, y, 4))
    rest = without_degenerate(kernel, params, block)
    np.testing.assert_array_equal(rest.X, X[1:])
    clean = kernel.from_partition(X, block.weight, y % 3, starts.part_means(X, block.weight, y % 3, 4))
    assert without_degenerate(kernel, clean, block) is None  # an empty component is not degenerate
    assert without_degenerate(kernel, params, block.take(np.array([0, 1, 2]))) is None  # too few are left


# -- many features ------------------------------------------------------------------------------------


def test_the_better_part_of_short_runs_takes_long_steps_where_features_are_many():
    """Late runs are told apart by long steps before a race, which few of them take."""
    visits = []
    curves = {i: quick(1.0 + 0.1 * i) for i in range(13)}
    first, near = [(0, 0), (0, 0)], [(i, 0) for i in range(1, 13)]
    step = along(curves, visits)
    Search(step, step, STOP, effort=COSTLY_WIDE).best(first, lambda at: near, n_near=12)
    n_steps = {i: max(t for of, t in visits if of == i) for i in range(1, 13)}
    assert [i for i in n_steps if n_steps[i] > 3] == [10, 11, 12]


@pytest.mark.parametrize(
    "model, n, D, effort, annealed",
    [
        (MFA, 60, 14, CHEAP, False),
        (MFA, 60, 15, CHEAP_WIDE, True),
        (MFA, 4000, 15, COSTLY_WIDE, True),
        (MFA, 10_001, 30, COSTLY, False),
        (MCFA, 60, 29, COSTLY, False),
        (MCFA, 60, 30, COSTLY_WIDE, False),
    ],
)
def test_the_search_is_longer_with_many_features(model, n, D, effort, annealed, monkeypatch):
    tried = []

    def best(self, starts, *others, **how):
        tried.append(self)
        return next(iter(starts)), False

    monkeypatch.setattr(Search, "best", best)
    model(2, 1, tol=1e-2, random_state=0).fit(np.random.default_rng(0).standard_normal((n, D)))
    assert tried[0].effort == effort
    assert (tried[0].anneal is not None) == annealed


def test_every_other_start_but_the_first_is_annealed():
    annealed = []

    def anneal(starts):
        annealed.append([name for name, _ in starts])
        return [(10 * name, t) for name, t in starts]

    step = along({i: quick(1.0 + 0.1 * i) for i in (0, 10, 2, 30, 40, 5)})
    near = [[(4, 0), (5, 0)], []]
    search = Search(step, step, STOP, anneal=anneal)
    (name, _), _ = search.best([(i, 0) for i in range(4)], lambda at: near.pop(0), n_near=3)
    assert annealed == [[1, 3], [4]]
    assert name == 40
