"""A fit that cannot fit into memory is told before it begins, with the argument to change."""

import numpy as np
import pytest

from latently.backend.placement import memory_bytes
from latently.factorization import NLMF, NMF, PenalizedNMTF
from latently.mixture import MCFA, MFA, GaussianMixture, MixedMixture
from latently.supervised import MJFAClassifier

X = np.random.default_rng(0).random((40, 6))


@pytest.mark.parametrize(
    "model, says",
    [
        (GaussianMixture(3), r"GaussianMixture .* covariances_ of shape \(3, 6, 6\).* n_components, .*diag"),
        (MFA(3, 2), r"MFA .* loadings_ of shape \(3, 6, 2\).* n_components, n_factors, or the columns"),
        (MCFA(3, 2), r"MCFA .* n_components, n_factors"),
        (NMF(2), r"NMF .* activations_ of shape \(40, 2\).* n_components"),
        (NLMF(2), r"NLMF .* activations_ of shape \(40, 2\).* n_components"),
        (MixedMixture(2), "MixedMixture .* n_components"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_parameters_beyond_memory(model, says, monkeypatch):
    monkeypatch.setattr("latently.estimators.memory.memory_bytes", lambda: 1000.0)
    for kind in (MemoryError, ValueError):
        with pytest.raises(kind, match=says):
            model.fit(X)
    assert not hasattr(model, "history_")


def test_a_block_beyond_memory(monkeypatch):
    model = MFA(3, 2, block_size=40)
    monkeypatch.setattr("latently.estimators.memory.memory_bytes", lambda: 9000.0)
    with pytest.raises(MemoryError, match=r"a block of 40 rows, .* set block_size=\d+, or reduce"):
        model.fit(np.tile(X, (2, 1)))


def test_many_components_of_a_machine(monkeypatch):
    """Without any limit but that of the machine, in no time."""
    with pytest.raises(MemoryError, match=r"needs at least .* GB .* reduce n_components"):
        GaussianMixture(10**10).fit(X)
    with pytest.raises(MemoryError, match="reduce n_components"):
        NMF(10**12).fit(X)
    assert 10**8 < memory_bytes() < 10**15


def test_the_others_are_not_in_the_way():
    MJFAClassifier(1, 1, max_iter=1, tol=0.0).fit(X, np.arange(40) % 2)
    PenalizedNMTF(2, 2, max_iter=1, tol=0.0).fit(X)
