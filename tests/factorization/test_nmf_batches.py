"""NMF by mini-batches: near the optimum of all rows, reproducible, and for all kinds of rows."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits

from latently.core.io import ModelFileError
from latently.factorization import NMF

X = load_digits().data[:900]
SETTINGS = {"n_components": 6, "batch_size": 60, "tol": 0, "random_state": 0}


@pytest.mark.parametrize(("loss", "near"), [("frobenius", 1.03), ("kl", 1.06), (1.5, 1.06)])
def test_the_cost_approaches_that_of_the_full_fit(loss, near):
    whole = NMF(6, loss=loss, random_state=0).fit(X)
    costs = []
    for n_passes in (1, 8, 30):
        model = NMF(loss=loss, max_iter=n_passes, learning_decay=0.5, **SETTINGS).fit(X)
        costs.append(-model.score(X) * len(X))
        assert model.n_iter_ == n_passes and len(model.history_) == n_passes + 1
        assert model.history_[-1] == pytest.approx(costs[-1], rel=1e-6)
        assert model.reconstruction_err_ == pytest.approx(np.sqrt(2 * costs[-1]), rel=1e-6)
    assert costs[0] > costs[1] > costs[2]
    assert costs[2] < near * whole.history_[-1]


def test_many_rows_need_few_passes():
    rng = np.random.default_rng(0)
    rows = rng.gamma(0.5, size=(20_000, 4)) @ rng.gamma(0.5, size=(4, 30)) + 0.1 * rng.random((20_000, 30))
    whole = NMF(4, random_state=0).fit(rows)
    model = NMF(4, batch_size=200, max_iter=3, tol=0, learning_decay=0.5, random_state=0).fit(rows)
    assert model.history_[-1] < 1.05 * whole.history_[-1]


def test_rows_of_all_kinds(tmp_path):
    dense = NMF(max_iter=4, **SETTINGS).fit(X)
    again = NMF(max_iter=4, **SETTINGS).fit(X)
    np.testing.assert_array_equal(again.components_, dense.components_)
    np.save(tmp_path / "rows.npy", X)
    from_file = NMF(max_iter=4, **SETTINGS).fit(str(tmp_path / "rows.npy"))
    np.testing.assert_allclose(from_file.history_, dense.history_, rtol=1e-9)
    of_sparse = NMF(max_iter=4, **SETTINGS).fit(sparse.csr_array(X))
    np.testing.assert_allclose(of_sparse.history_, dense.history_, rtol=1e-6)
    holed = X.copy()
    holed[::7, 20:40] = np.nan  # batches with and without missing entries
    some = NMF(max_iter=4, **SETTINGS).fit(holed)
    assert np.isfinite(some.components_).all() and some.history_[-1] < some.history_[0]
    weight = np.ones(len(X))
    weight[450:] = 0.0
    first = NMF(max_iter=4, **SETTINGS).fit(X, sample_weight=weight)
    assert first.history_[-1] == pytest.approx(-first.score(X[:450]) * 450, rel=1e-6)


def test_fixed_components_stay():
    given = NMF(2, random_state=0).fit(X).components_
    model = NMF(max_iter=3, fixed_components=given, **SETTINGS).fit(X)
    np.testing.assert_array_equal(model.components_[:2], given)
    assert model.history_[-1] < model.history_[0]


def test_penalties_are_part_of_the_cost():
    free, held = (NMF(max_iter=5, alpha_W=alpha, **SETTINGS).fit(X) for alpha in (0.0, 0.05))
    assert held.components_.sum() < free.components_.sum() or held.history_[-1] > free.history_[-1]
    left = -held.score(X) * len(X)
    assert held.reconstruction_err_ == pytest.approx(np.sqrt(2 * left), rel=1e-6) and held.history_[-1] > left


def test_a_killed_fit_is_resumed_exactly(tmp_path):
    def killed(iteration):
        if iteration.number == 3:
            raise RuntimeError("killed")

    path = tmp_path / "state"
    given = {"max_iter": 6, "checkpoint": path, "checkpoint_every": 2, **SETTINGS}
    with pytest.raises(RuntimeError, match="killed"):
        NMF(callbacks=[killed], **given).fit(X)
    assert path.exists()
    resumed = NMF(**given).fit(X)
    whole = NMF(max_iter=6, **SETTINGS).fit(X)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    with pytest.raises(RuntimeError, match="killed"):
        NMF(callbacks=[killed], **given).fit(X)
    with pytest.raises((ModelFileError, ValueError), match="state"):
        NMF(**given).fit(X[::-1])


@pytest.mark.parametrize("size", [0, 2.5, "many"])
def test_bad_sizes_are_named(size):
    with pytest.raises(ValueError, match="batch_size"):
        NMF(2, batch_size=size).fit(X)
