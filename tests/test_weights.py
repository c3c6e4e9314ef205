"""Weights of rows have no unit: times a constant they are the same weights."""

import numpy as np
import pytest

from latently.estimators.weights import Copies, weights_in_rows
from tests.contracts.cases import CASES


@pytest.mark.parametrize(
    "weights, expected",
    [
        ([1.0, 3.0, 0.0, 2.0], [1, 3, 0, 2]),  # copies, as they are
        ([2.0, 6.0, 8.0], [1, 3, 4]),
        ([7.0, 7.0], [1, 1]),
        ([0.3, 0.1, 0.7], [3, 1, 7]),
        ([1.0, 1.5], [2, 3]),
        ([100.0, 101.0], [100, 101]),
        ([1.0, 1e-17, 1.0, 1.0], [4 / 3, 4e-17 / 3, 4 / 3, 4 / 3]),  # no copies: shares
    ],
)
@pytest.mark.parametrize("unit", [1.0, 1e-60, 1e36, 0.1, 3.0])
def test_the_unit_is_what_weights_are_multiples_of_or_their_mean(weights, expected, unit):
    found = weights_in_rows(unit * np.array(weights), len(weights))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_weights_that_are_no_multiples_have_mean_one(rng=None):
    weight = np.random.default_rng(0).uniform(0.2, 3.0, 50)
    weight[7] = 0.0
    found = weights_in_rows(weight, 50)
    assert found.sum() == pytest.approx(49)
    np.testing.assert_allclose(found / weight.sum(), weight / weight.sum() * 49 / weight.sum(), rtol=1e-12)


def test_parts_keep_the_unit_of_the_whole():
    """A class of weights 2 and 4, in a table where others are 1, is not one of weights 1 and 2."""
    whole = weights_in_rows(np.array([1.0, 2.0, 4.0]), 3)
    part = weights_in_rows(whole[1:], 2)
    assert isinstance(part, Copies)
    np.testing.assert_array_equal(part, [2.0, 4.0])


KINDS = {
    "copies": lambda rng, n: rng.integers(0, 4, n) + 0.0,
    "shares": lambda rng, n: rng.uniform(0.2, 3, n),
}


@pytest.mark.parametrize("kind, factor", [("copies", 1e-60), ("shares", 1e36)])
@pytest.mark.parametrize("case", [case for case in CASES if case.takes_weights], ids=str)
def test_weights_times_a_constant_give_the_same_model(case, kind, factor):
    X, y = case.data()
    weight = KINDS[kind](np.random.default_rng(3), len(X))
    model, scaled = case.fit(X, y, weight), case.fit(X, y, weight * factor)
    for name, array in model._fitted_arrays().items():
        again = scaled._fitted_arrays()[name]
        np.testing.assert_allclose(again, array, rtol=1e-8, atol=1e-8 * np.abs(array).max(initial=0))
    if hasattr(model, "history_"):
        np.testing.assert_allclose(scaled.history_, model.history_, rtol=1e-8, atol=1e-8)
