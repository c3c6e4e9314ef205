"""Reproductions of document 001: the algorithm is the source's, measures mean what they say, pictures."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom, poisson

from latently.datasets import load, load_bars
from reproductions import available
from reproductions.document_001 import _bars, large_bars, section_4_1, section_4_2, success_rates
from reproductions.document_001._bars import EXACT, LAST, LEAST_SQUARES, NOISE, NOISY, WITHOUT
from reproductions.plots.curves import curve_panels, shares
from tests.reproductions.data_sets import skip_without

REPRODUCTIONS = {name: one for name, one in available().items() if name.startswith("001/")}


def joint(X, weights, probability):
    """All states (M, H), and p(x, s) of every row and state (n, M), one Poisson at a time."""
    states = np.array(list(product((0, 1), repeat=len(weights))))
    prior = np.prod(np.where(states == 1, probability, 1 - probability), axis=1)
    likelihood = np.stack([poisson(state @ weights).pmf(X).prod(axis=1) for state in states], axis=1)
    return states, likelihood * prior


@pytest.fixture
def few():
    """Few bars and rows, and parameters that are nothing like the truth."""
    bars = load_bars(2, 40, weight=4.0, random_state=0)
    rng = np.random.default_rng(0)
    return bars, rng.uniform(0.5, 3.0, size=(4, 4)), 0.4


# -- what was printed ---------------------------------------------------------------------------------


def test_there_are_four():
    assert sorted(REPRODUCTIONS) == [
        "001/large-bars",
        "001/section-4.1",
        "001/section-4.2",
        "001/success-rates",
    ]


def test_printed_errors_are_those_of_shares_in_fifty_runs():
    published = REPRODUCTIONS["001/success-rates"].published
    assert [record["all bars"] for record in published] == [0.91, 0.84]
    for record in published:
        share = record["all bars"]
        assert abs(record["standard error"] - math.sqrt(share * (1 - share) / 50)) < 0.01
        assert (record["method"], record["truncation"]) in success_rates.entries()
    assert 50 * 0.84 == 42
    assert 50 * 0.91 == 45.5  # so not in 50 runs


# -- the algorithm ------------------------------------------------------------------------------------


def test_step_is_that_of_the_source(few):
    bars, weights, probability = few
    states, p = joint(bars.X, weights, probability)
    q = p / p.sum(axis=1, keepdims=True)
    on = q @ states
    both = np.einsum("nm,mi,mj->ij", q, states, states)
    expected = np.linalg.solve(both, on.T @ bars.X)
    start, (moved, pi) = _bars.path(bars.X, weights, probability, LEAST_SQUARES, n_iter=1)
    assert start == (weights, probability)
    assert np.any(expected < 0)
    np.testing.assert_allclose(moved, np.maximum(expected, 0), atol=1e-5)
    assert pi == pytest.approx(on.mean())


def test_truncation_is_that_of_the_source_until_the_end(few):
    bars, weights, probability = few
    states, p = joint(bars.X, weights, probability)
    n_on = states.sum(axis=1)
    q = np.where(n_on <= 1, p, 0) / p[:, n_on <= 2].sum(axis=1, keepdims=True)
    both = np.einsum("nm,mi,mj->ij", q, states, states)
    expected = np.maximum(np.linalg.solve(both, (q @ states).T @ bars.X), 0)
    steps = _bars.path(bars.X, weights, probability, LEAST_SQUARES, truncation=1, n_iter=LAST + 1)
    np.testing.assert_allclose(steps[1][0], expected, atol=1e-5)
    all_states = _bars.path(bars.X, *steps[1], LEAST_SQUARES, n_iter=LAST)
    np.testing.assert_allclose(steps[-1][0], all_states[-1][0])


def test_noise_is_added_until_the_end(few):
    bars, weights, probability = few
    noisy, plain = (
        _bars.path(bars.X, weights, probability, step, n_iter=LAST + 2, rng=np.random.default_rng(1))
        for step in (NOISY, LEAST_SQUARES)
    )
    added = (noisy[1][0] - plain[1][0]) / NOISE
    np.testing.assert_allclose(added, np.round(added), atol=1e-9)
    assert added.min() >= 0 < added.max()
    rest = _bars.path(bars.X, *noisy[2], LEAST_SQUARES, n_iter=LAST)
    np.testing.assert_array_equal(noisy[-1][0], rest[-1][0])


# -- measures -----------------------------------------------------------------------------------------


def test_truth_in_another_order_is_found():
    bars = load_bars(random_state=1)
    weights = bars.components[[3, 1, 7, 0, 2, 6, 5, 4]]
    found = _bars.judged(1.25 * weights, 0.31, bars)
    assert found["bars"] == 8
    assert found["amplitudes off by"] == pytest.approx(0.25)
    assert found["pi"] == 0.31
    exact = _bars.judged(weights, 0.3, bars)
    assert exact["amplitudes off by"] == 0
    assert exact["codes right"] > 0.99
    np.testing.assert_array_equal(weights[_bars.in_order(weights, bars)], bars.components)


def test_bars_in_one_unit_are_not_found():
    bars = load_bars(random_state=1)
    weights = bars.components.copy()
    weights[0] += weights[5]
    weights[5] = 1.0
    found = _bars.judged(weights, 0.3, bars)
    assert found["bars"] == 6
    assert found["amplitudes off by"] == pytest.approx(0.9)
    assert found["codes right"] < 0.97


def test_log_likelihood_is_over_all_states(few):
    bars, weights, probability = few
    expected = np.log(joint(bars.X, weights, probability)[1].sum(axis=1)).sum()
    assert section_4_1.log_likelihood(bars.X, weights, probability) == pytest.approx(expected)


def test_only_least_squares_lead_down_from_the_truth():
    bars = load_bars(random_state=2)
    curves = {
        step: np.diff(section_4_1.one_run(bars, section_4_1.TRUTH, step, WITHOUT, 12, seed=0)[1])
        for step in (EXACT, LEAST_SQUARES)
    }
    assert curves[EXACT].min() > -1e-6
    assert curves[EXACT][0] > 0
    assert curves[LEAST_SQUARES][0] < -100


def test_falls_are_counted(monkeypatch):
    bars = load_bars(random_state=0)
    at_truth = section_4_1.log_likelihood(bars.X, bars.components, 0.3)
    curve = at_truth + np.array([-9.0, -2.0, -2.5, 3.0, -4.0, 2.0])
    run = ([(bars.components, 0.3)], curve.tolist())
    monkeypatch.setattr(section_4_1, "runs", lambda seed: {("random 1", EXACT, WITHOUT): run})
    (record,) = section_4_1.measure({}, seed=0)
    assert record["falls"] == 2
    assert record["largest fall"] == pytest.approx(7.0)
    assert record["above truth"] == pytest.approx(2.0)
    assert record["bars"] == 8


def test_summary_is_of_random_starts():
    common = {"step": EXACT, "truncation": WITHOUT}
    rows = [
        common | {"start": "random 1", "bars": 8, "falls": 0, "largest fall": 0.0, "above truth": 3.0},
        common | {"start": "random 2", "bars": 6, "falls": 2, "largest fall": 4.0, "above truth": -9.0},
        common | {"start": "truth", "bars": 8, "falls": 1, "largest fall": 9.0, "above truth": 5.0},
    ]
    (short,) = section_4_1.summary(rows)
    assert short == common | {
        "all bars": "1 of 2",
        "runs with falls": 1,
        "largest fall": 4.0,
        "above truth": 3.0,
    }


def test_rates_are_shares_of_runs():
    good = {"bars": 8, "amplitudes off by": 0.04, "pi": 0.32, "codes right": 0.98, "seconds": 1.0}
    runs = [good] * 3 + [good | {"bars": 6, "amplitudes off by": 0.06, "pi": 0.26, "seconds": 5.0}]
    found = success_rates.rates([*runs, good | {"codes right": 0.9, "seconds": 2.0}])
    assert found == pytest.approx(
        {
            "all bars": 0.8,
            "standard error": math.sqrt(0.16 / 5),
            "bars": 7.6,
            "amplitudes": 0.8,
            "pi": 0.8,
            "codes": 0.8,
            "seconds": 2.0,
        }
    )


@pytest.mark.parametrize("entry", [success_rates.entries()[i] for i in (3, 4, -2)])
def test_seeds_decide_a_run(entry):
    one, again, other = (success_rates.one_run(*entry, seeds, n_iter=3) for seeds in ([0, 1], [0, 1], [0, 2]))
    assert one["pi"] == again["pi"] != other["pi"]


def test_default_finds_all_bars():
    found = success_rates.one_run(success_rates.DEFAULT, WITHOUT, [5, 5])
    assert found["bars"] == 8
    assert found["amplitudes off by"] < 0.05


# -- data ---------------------------------------------------------------------------------------------


def test_shares_of_images_with_few_bars_are_those_that_are_told():
    for most_on in (3, 4):
        assert f"{binom.cdf(most_on, 20, 0.1):.3f}" in large_bars.REPRODUCTION.data


def test_images_are_counts_of_ones_and_sevens():
    skip_without("mnist")
    X = section_4_2.images(50, seed=0)
    assert set(np.unique(X)) == set(range(11))
    digits = load("mnist")
    counts = np.round(digits.X_train[np.isin(digits.y_train, (1, 7))] * (10 / 255))
    rows = {row.tobytes() for row in counts}
    assert all(row.tobytes() in rows for row in X)
    assert len(np.unique(X, axis=0)) == 50


# -- pictures -----------------------------------------------------------------------------------------


def test_panels_have_their_curves():
    panels = {"one": {"a": [1.0, 2.0], "b": [0.0, 3.0]}, "two": {"a": [5.0, 6.0, 7.0]}, "three": {}}
    figure = curve_panels(panels, y="y", title="t", level=4.0, limits=(-1.0, 9.0), n_lines=2)
    one, two, _, empty = figure.axes
    assert [len(ax.lines) for ax in (one, two)] == [3, 2]  # with the level
    assert list(two.lines[1].get_ydata()) == [5.0, 6.0, 7.0]
    assert one.get_ylim() == (-1.0, 9.0)
    assert not empty.axison


def test_shares_stand_beside_published_ones():
    ax = shares({"a": 0.5, "b": 0.9}, [0.1, 0.0], [None, 0.8], x="x", title="t").axes[0]
    points, printed = ax.lines[0], ax.lines[-1]
    assert list(points.get_xdata()) == [0.5, 0.9]
    assert (list(printed.get_xdata()), list(printed.get_ydata())) == ([0.8], [1])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
