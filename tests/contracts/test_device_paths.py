"""What is computed in another way on accelerators, tried on the CPU with tensors that pass for theirs."""

import sys

import numpy as np
import pytest
from sklearn.base import clone

from latently.backend import linalg
from latently.backend.namespace import is_torch, to_numpy
from latently.backend.placement import on_device
from latently.core import sweep
from latently.core.frame import Frame
from latently.distributions import LowRankGaussian, products
from latently.distributions.responsibilities import needed_entries
from latently.mixture import MCFA, MFA, GaussianMixture
from tests.contracts.models import ALL
from tests.contracts.test_torch import SETTINGS, close, data

torch = pytest.importorskip("torch")

every_model = pytest.mark.parametrize("model", ALL, ids=str)


@pytest.fixture
def pretended(monkeypatch):
    """All tensors count as those of an accelerator, which is not waited for."""
    for name, module in list(sys.modules.items()):
        if name.startswith("latently."):
            if getattr(module, "on_device", None) is on_device:
                monkeypatch.setattr(module, "on_device", is_torch)
            if hasattr(module, "surely_all"):
                monkeypatch.setattr(module, "surely_all", lambda mask: not is_torch(mask) and mask.all())


@every_model
def test_steps_are_those_of_arrays(model, pretended):
    X, y, weight = data(model)
    settings = {**SETTINGS, "accelerate": None, "n_init": 1}
    for given in ((X[:10],), (X,), (X, y, weight)):
        here = model.unfitted(2, 2, **settings).fit(*given)
        there = model.unfitted(2, 2, **settings).fit(torch.asarray(given[0]), *given[1:])
        close(there.history_, here.history_, "cpu")
        for name in here._fitted_arrays():
            close(getattr(there, f"{name}_"), getattr(here, f"{name}_"), "cpu")


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("model", [GaussianMixture(3), MFA(3, 2), MCFA(3, 2)], ids=str)
def test_batches_teach_what_those_of_arrays_teach(model, missing, pretended):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((90, 5)) + 3.0 * rng.standard_normal((3, 5))[rng.integers(3, size=90)]
    X[rng.random(X.shape) < missing] = np.nan
    here, there = (clone(model).set_params(n_init=1, random_state=0) for _ in range(2))
    for start in range(0, 90, 30):
        here.partial_fit(X[start : start + 30])
        there.partial_fit(torch.asarray(X[start : start + 30]))
    assert float(there.score(torch.asarray(X))) == pytest.approx(here.score(X), rel=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize(
    "model",
    [GaussianMixture(3, random_state=0), MFA(3, 2, random_state=0), MFA(3, 2, block_size=40, random_state=0)],
    ids=str,
)
def test_whole_fits_find_what_those_of_arrays_find(model, missing, pretended):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 6)) + 5.0 * rng.standard_normal((3, 6))[rng.integers(3, size=200)]
    X[rng.random(X.shape) < missing] = np.nan
    here, there = (model.fit(rows).history_[-1] for rows in (X, torch.asarray(X)))
    assert float(there) == pytest.approx(float(here), abs=1e-6)


def test_densities_are_prepared_before_results_are_waited_for_and_only_once(pretended, monkeypatch):
    said = []
    for name in ("prepare", "evaluate", "rounding"):  # the last one waits
        original = getattr(LowRankGaussian, name)

        def telling(self, *given, name=name, of=original, **options):
            said.append(name[0])
            return of(self, *given, **options)

        monkeypatch.setattr(LowRankGaussian, name, telling)
    X = torch.asarray(np.random.default_rng(0).standard_normal((60, 4)))
    MFA(2, 1, n_init=1, max_iter=3, tol=0, accelerate=None, random_state=0).fit(X)
    assert "".join(said) == "pe" + 3 * "pre" + "pr"


def test_blocks_on_a_device_enter_the_frame_once_where_memory_allows(monkeypatch):
    entered = []
    enter = Frame.enter
    monkeypatch.setattr(
        Frame, "enter", lambda frame, block: entered.append(len(block)) or enter(frame, block)
    )
    monkeypatch.setattr(sweep, "is_small", lambda X, floats: False)
    monkeypatch.setattr(sweep, "block_rows", lambda X, floats, size, kept=0: 50)
    X = 3.0 + np.random.default_rng(0).standard_normal((200, 4))
    counts, histories = [], []
    for kept in (0, 1):
        monkeypatch.setattr(sweep, "kept_bytes", lambda X, floats, kept=kept: kept)
        entered.clear()
        model = MFA(2, 1, n_init=1, max_iter=5, tol=0, prior=None, accelerate=None, random_state=0)
        histories.append(model.fit(torch.asarray(X)).history_)
        counts.append(entered.count(50))
    assert counts[0] - counts[1] == 4 * 5  # passes after the first
    assert bool(torch.all(histories[0] == histories[1]))


def test_rows_far_from_all_components_end_a_fit(pretended):
    X = np.concatenate([np.random.default_rng(0).standard_normal((50, 2)), [[1e200, 0.0]]])
    model = GaussianMixture(means_init=[[0.0, 0.0]], covariances_init=[np.eye(2)], weights_init=[1.0])
    for rows in (X, torch.asarray(X)):
        with pytest.raises(ValueError):
            model.fit(rows)


@pytest.mark.parametrize("D", [1, 7, 8, 19])
def test_quadratic_forms_and_moments_by_products_of_features(D, monkeypatch):
    rng = np.random.default_rng(D)
    X, A, b, c = rng.random((30, D)), rng.random((3, D, D)), rng.random((3, D)), rng.random(3)
    A, r = A + A.mT, rng.random((3, 30))
    terms = products.terms(torch.asarray(X))
    assert terms.shape == (products.n_terms(D), 30)
    forms = products.coefficients(*(torch.asarray(array) for array in (A, b, c))) @ terms
    expected = np.einsum("ni,kij,nj->kn", X, A, X) + b @ X.T + c[:, None]
    np.testing.assert_allclose(forms, expected, rtol=1e-12)
    first, second = products.moments(torch.asarray(r) @ terms.T, D)
    np.testing.assert_allclose(first, r @ X, rtol=1e-12)
    np.testing.assert_allclose(second, np.einsum("kn,ni,nj->kij", r, X, X), rtol=1e-12)


def test_needed_responsibilities():
    r = torch.asarray([[0.5, 1e-30, 0.25, 0.0], [0.5, 1.0, 0.75, 1.0]], dtype=torch.float64)
    values, flat, bounds = needed_entries(r, most=8.0)
    assert flat.tolist() == [0, 2, 4, 5, 6, 7]
    assert values.tolist() == [0.5, 0.25, 0.5, 1.0, 0.75, 1.0]
    assert bounds == [0, 2, 6]
    assert needed_entries(r, most=7.0) is None  # four places for each of two components


def test_tensors_are_factorised_as_arrays_are():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 6, 6))
    A = A @ A.mT + np.eye(6)
    C = np.linalg.cholesky(A)
    for tensors, expected in (
        (linalg.inverse(torch.asarray(A)), np.linalg.inv(A)),
        (linalg.cholesky_of_definite(torch.asarray(A)), C),
        (linalg.inverse_of_triangular(torch.asarray(C)), np.linalg.inv(C)),
    ):
        np.testing.assert_allclose(to_numpy(tensors), expected, rtol=1e-9, atol=1e-12)
    assert linalg.is_positive_definite(torch.asarray(A))
    assert not linalg.is_positive_definite(torch.asarray(A - 2.0 * np.eye(6) * np.linalg.eigvalsh(A).max()))
    assert not linalg.is_positive_definite(torch.asarray(A * np.nan))


def test_stacks_of_rows_have_the_eigenpairs_of_each():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 200, 150)) * np.geomspace(30.0, 1.0, 150)
    rows[1, 120:] = 0.0  # a smaller part
    values, vectors = linalg.rough_eigenpairs(torch.asarray(rows), 3)
    for i in range(3):
        one, directions = linalg.leading_eigenpairs(rows[i], 3)
        np.testing.assert_allclose(values[i], one, rtol=1e-2)
        assert np.abs(np.sum(to_numpy(vectors[i]) * directions, axis=0)).min() > 0.95
    zero, directions = linalg.rough_eigenpairs(torch.zeros((2, 200, 150), dtype=torch.float64), 3)
    assert not zero.any() and torch.isfinite(directions).all()
