"""Weights, holes, labels, blocks, files and tensors together, not only one by one."""

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from latently.core.sources import chunks
from latently.mixture import MFA
from tests.contracts.models import ALL, assert_same, rows

every_model = pytest.mark.parametrize("model", ALL, ids=str)
SETTINGS = {"max_iter": 6, "tol": 0.0, "n_init": 1, "random_state": 0}


def everything(model, seed=0, N=60, D=4):
    """Rows with holes, labels of some rows, and whole weights, some of them zero."""
    rng = np.random.default_rng(seed)
    X = rows(rng, N, D)
    X[rng.random(X.shape) < 0.2] = np.nan
    X[7] = np.nan
    y = np.where(rng.random(N) < 0.3, rng.integers(2, size=N), -1)
    y[7] = -1
    return X, 0 * y if model.one_component else y, rng.integers(0, 4, size=N)


def in_memory(X, folder):
    return X


def in_a_file(X, folder):
    np.save(folder / "rows.npy", X)
    return folder / "rows.npy"


def in_blocks(X, folder):
    return [X[:1], X[1:30], X[30:]]


def as_tensor(X, folder):
    return pytest.importorskip("torch").asarray(X)


def in_dask(X, folder):
    return pytest.importorskip("dask.array").from_array(X, chunks=(17, X.shape[1]))


@every_model
@pytest.mark.parametrize(
    ("place", "accelerate"),
    [
        (in_memory, "squarem"),
        (in_a_file, None),
        (in_blocks, None),
        (as_tensor, "squarem"),
        (in_dask, None),
    ],
)
def test_all_at_once_is_the_plain_fit_of_expanded_rows(model, place, accelerate, tmp_path, monkeypatch):
    X, y, copies = everything(model)
    settings = {**SETTINGS, "accelerate": accelerate}
    plain = model.unfitted(2, 2, **settings)
    plain.fit(np.repeat(X, copies, axis=0), np.repeat(y, copies))
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 600)
    other = model.unfitted(2, 2, block_size=11, **settings)
    other.fit(place(X, tmp_path), y, sample_weight=copies)
    np.testing.assert_allclose(other.history_, plain.history_, rtol=1e-9)
    assert_same(model.theta(other.to("numpy")), model.theta(plain), rtol=1e-8, atol=1e-9)


@every_model
def test_the_statistics_that_parameters_imply_lead_back_to_them(model):
    known = model.known(model.example(np.random.default_rng(0), 4, 3, 2))
    kernel, params = model.kernel(known, np.zeros(4))
    again = kernel.m_step(kernel.implied_stats(params), params)
    known._keep(again)
    expected = model.normal_form(model.example(np.random.default_rng(0), 4, 3, 2))
    assert_same(model.normal_form(model.theta(known)), expected)


# The optimum that EM reaches from the true labels, where published packages need thousands of iterations.
# Loadings beyond what data tell apart make the likelihood flat.


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    "X, q, optimum",
    [
        (load_iris().data, 2, -1.2016),
        (StandardScaler().fit_transform(load_wine().data), 3, -12.392),
    ],
    ids=["iris", "wine"],
)
def test_the_default_fit_finds_the_optimum_of_the_true_labels(X, q, optimum, seed):
    slack = 2e-4 * abs(optimum)  # between optima that the search counts as equal
    assert MFA(3, q, prior=None, random_state=seed).fit(X).history_[-1] > optimum - slack
