"""EM at a temperature above one, and starts that are annealed by it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from latently.core.block import Block
from latently.core.drivers import State, em_step, relative, run
from latently.core.sweep import LocalSweep
from latently.distributions import LowRankGaussian, Mixture
from latently.distributions.prior import Prior
from latently.mixture import MFA
from latently.mixture.annealing import Annealing, temperatures
from tests.contracts.test_together import FAMILIES, SITUATIONS, N, problem

PLAIN = [name for name in SITUATIONS if name != "tempered"]


@pytest.mark.parametrize("family", FAMILIES)
def test_responsibilities_are_those_of_densities_to_a_power(family):
    kernel, sweep, (start, *_) = problem(family, weights=True)
    (block,) = sweep.chunks()
    density = kernel.prepare(start)
    log_joint = kernel.family.evaluate(density, block)[0]
    for temperature in (1.0, 2.5, 40.0):
        stats = replace(kernel, temperature=temperature).e_step(density, block)
        of_row = temperature * logsumexp(log_joint / temperature, axis=0)
        assert stats.log_likelihood == pytest.approx(block.weight @ of_row, rel=1e-12)
        expected = softmax(log_joint / temperature, axis=0) @ block.weight
        weight = kernel.stats(density, stats).components.weight
        np.testing.assert_allclose(weight, expected, rtol=1e-9)


@pytest.mark.parametrize("temperature", [1.5, 6.0])
@pytest.mark.parametrize("situation", PLAIN)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_step_lowers_the_tempered_objective(family, situation, temperature):
    kernel, sweep, starts = problem(family, temperature=temperature, **SITUATIONS[situation])
    step = em_step(kernel, sweep)
    for params in starts:
        before = -np.inf
        for _ in range(30):
            taken = step(params)
            assert taken.objective >= before - taken.rounding
            before, params = taken.objective, taken.next_params()


@pytest.mark.parametrize("n_features", [30, 300, 5000])
def test_temperatures_fall_to_one(n_features):
    found = temperatures(n_features)
    assert found[-1] == 1.0
    assert (np.diff(found) < 0).all()
    assert n_features / found[0] == pytest.approx(4.0)


@pytest.mark.parametrize("seed", range(3))
def test_annealed_starts_lead_to_better_optima_where_features_are_many(seed):
    """Clusters in 200 dimensions that EM from random parts does not find."""
    rng = np.random.default_rng(seed)
    K, n, D = 8, 160, 200
    X = rng.standard_normal((n, D)) + 0.3 * rng.standard_normal((K, D))[np.arange(n) % K]
    X -= X.mean(axis=0)
    family = LowRankGaussian(0, np.full(D, 1e-6)).with_prior(Prior(1.0, np.ones(D)))
    kernel, block = Mixture(family), Block(X, np.ones(len(X)), None, None)
    sweep = LocalSweep(lambda: [block], None, floats_per_row=1)
    starts = []
    for _ in range(8):
        labels = rng.integers(K, size=n)
        means = np.stack([X[labels == k].mean(axis=0) for k in range(K)])
        starts.append(kernel.from_partition(X, block.weight, labels, means))

    def ends(starts):
        step, how = em_step(kernel, sweep), {"max_iter": 200, "stop": relative(1e-8)}
        return np.array([run(step, State.at(start), **how).history[-1] for start in starts])

    annealed = Annealing(kernel, sweep, len(starts), temperatures(D))(starts)
    assert ends(annealed).min() > ends(starts).max() + 1.0


def test_an_interrupt_while_starts_are_annealed_keeps_the_first(monkeypatch):
    def interrupted(self, starts):
        raise KeyboardInterrupt

    monkeypatch.setattr(Annealing, "__call__", interrupted)
    X = np.random.default_rng(0).standard_normal((N, 40))
    with pytest.warns(UserWarning, match="interrupted"):
        model = MFA(2, 1, random_state=0).fit(X)
    assert np.isfinite(model.score(X))
