"""Runs that share passes over the rows take the same steps as alone, and so do runs of k-means."""

from dataclasses import replace

import numpy as np
import pytest

from latently.backend.linalg import leading_eigenpairs, rough_eigenpairs
from latently.core.block import Block
from latently.core.drivers import State, em_step, relative, run
from latently.core.squarem import squarem, squarem_steps
from latently.core.sweep import LocalSweep
from latently.core.together import em_steps, run_together
from latently.core.tree import mapped
from latently.distributions import FullGaussian, LowRankGaussian, Mixture
from latently.distributions.prior import Prior
from latently.distributions.stacked import Runs, can_be_stacked
from latently.mixture.kmeans import Task, kmeans

N, D, K = 60, 4, 3
STOP = relative(1e-6)
FAMILIES = {
    "full": lambda floor: FullGaussian(floor),
    "diagonal": lambda floor: LowRankGaussian(0, floor),
    "spherical": lambda floor: LowRankGaussian(0, floor, isotropic=True),
    "MFA": lambda floor: LowRankGaussian(2, floor),
    "MPPCA": lambda floor: LowRankGaussian(2, floor, isotropic=True),
}


def rows(seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((N, D)) + 3.0 * rng.standard_normal((K, D))[np.arange(N) % K]


def problem(family, *, prior=True, missing=False, labels=False, weights=False, temperature=1.0, xp=np):
    """A kernel, a sweep of a few rows, and four starts."""
    rng = np.random.default_rng(1)
    X, observed, allowed = rows(), None, None
    starts_from = X
    if missing:
        observed = rng.random((N, D)) > 0.2
        observed[:, 0] = True
        observed[:10] = True
        X = np.where(observed, X, 0.0)
    if labels:
        allowed = np.ones((N, K), dtype=bool)
        allowed[::4] = np.eye(K, dtype=bool)[np.arange(len(X[::4])) % K]
    weight = rng.integers(1, 4, N).astype(float) if weights else np.ones(N)
    kernel = Mixture(FAMILIES[family](np.full(D, 1e-6)))
    if prior:
        scale = np.diag(np.arange(1.0, D + 1)) if family == "full" else np.full(D, 0.5)
        kernel = Mixture(kernel.family.with_prior(Prior(1.0, scale)))
    starts = []
    for _ in range(4):
        parts = rng.integers(K, size=N)
        means = np.stack([starts_from[parts == k].mean(axis=0) for k in range(K)])
        starts.append(kernel.from_partition(starts_from, weight, parts, means))
    kernel = Mixture(mapped(lambda one: xp.asarray(one) if hasattr(one, "shape") else one, kernel.family))
    kernel = replace(kernel, temperature=temperature)
    block = mapped(xp.asarray, Block(X, weight, allowed, observed))
    sweep = LocalSweep(lambda: [block], None, floats_per_row=1)
    return kernel, sweep, [mapped(xp.asarray, start) for start in starts]


def same(a, b, tolerance=1e-9):
    pairs = [(a.weights, b.weights)] + [
        (getattr(a.components, name), getattr(b.components, name)) for name in vars(a.components)
    ]
    for one, other in pairs:
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=tolerance, atol=tolerance)


SITUATIONS = {
    "plain": {},
    "no prior": {"prior": False},
    "missing": {"missing": True},
    "labels and weights": {"labels": True, "weights": True},
    "all": {"missing": True, "labels": True, "weights": True},
    "tempered": {"temperature": 3.0, "missing": True, "labels": True, "weights": True},
}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_steps_together_are_those_of_each_run_alone(family, situation):
    kernel, sweep, starts = problem(family, **SITUATIONS[situation])
    assert can_be_stacked(kernel)
    alone, runs = em_step(kernel, sweep), Runs(kernel)
    taken = em_steps(runs, sweep, N, alone)(starts)
    longer = squarem_steps(em_steps(runs, sweep, N, alone), runs)(starts)
    for start, step, long in zip(starts, taken, longer, strict=True):
        expected = alone(start)
        assert step.objective == pytest.approx(expected.objective, rel=1e-12)
        assert step.rounding == pytest.approx(expected.rounding, rel=0.5)
        same(step.next_params(), expected.next_params())
        same(long.next_params(), squarem(alone, kernel)(start).next_params(), 1e-6)


@pytest.mark.parametrize("family", ["full", "MFA"])
def test_steps_together_on_torch(family):
    torch = pytest.importorskip("torch")
    kernel, sweep, starts = problem(family, missing=True, weights=True, xp=torch)
    alone = em_step(kernel, sweep)
    for start, step in zip(starts, em_steps(Runs(kernel), sweep, N, alone)(starts), strict=True):
        assert step.objective == pytest.approx(alone(start).objective, rel=1e-12)
        same(step.next_params(), alone(start).next_params())


def test_runs_together_end_where_they_end_alone():
    kernel, sweep, starts = problem("full")
    alone, runs = em_step(kernel, sweep), Runs(kernel)
    how = {"stop": STOP, "objective": run.__kwdefaults__["objective"]}
    ends = run_together(em_steps(runs, sweep, N, alone), [State.at(one) for one in starts], n_steps=30, **how)
    for start, end in zip(starts, ends, strict=True):
        expected = run(alone, State.at(start), max_iter=30, **how)
        assert (end.n_iter, end.converged) == (expected.n_iter, expected.converged)
        np.testing.assert_allclose(end.history, expected.history, rtol=1e-9)


def test_an_extrapolation_that_fails_fails_alone():
    kernel, sweep, starts = problem("full", prior=False)
    alone, runs = em_step(kernel, sweep), Runs(kernel)
    vectors = runs.to_vectors(starts)
    np.testing.assert_array_equal(vectors, np.stack([kernel.to_vector(one) for one in starts]))
    for one, back in zip(starts, runs.from_vectors(vectors, starts), strict=True):
        same(one, back, 1e-12)

    class Infeasible(Runs):
        def from_vectors(self, vectors, like):
            if any(one.weights[0] == bad for one in like):
                raise ValueError("there are no such parameters")
            return super().from_vectors(vectors, like)

    expected = [step.next_params() for step in squarem_steps(em_steps(runs, sweep, N, alone), runs)(starts)]
    twice = alone(alone(starts[1]).next_params()).next_params()
    stacked = em_steps(runs, sweep, N, alone)
    once = [step.next_params() for step in stacked(starts)]
    bad = [step.next_params() for step in stacked(once)][1].weights[0]
    found = [step.next_params() for step in squarem_steps(stacked, Infeasible(kernel))(starts)]
    same(found[1], twice)
    for i in (0, 2, 3):
        same(found[i], expected[i])


def test_components_that_share_parameters_are_not_stacked():
    floor = np.full(D, 1e-6)
    assert not can_be_stacked(Mixture(FullGaussian(floor, shared=True)))
    assert not can_be_stacked(Mixture(LowRankGaussian(1, floor, shared=True)))
    assert not can_be_stacked(Mixture(LowRankGaussian(1, floor, prior=Prior(1.0, np.ones((K, D))))))


# -- k-means ------------------------------------------------------------------------------------------


def tasks(n, S=4, **how):
    rng = np.random.default_rng(2)
    return [Task(np.ones(n), rng.random(D) + 0.5, seed, **how) for seed in range(S)]


@pytest.mark.parametrize("missing", [False, True])
def test_kmeans_ends_where_every_row_is_in_the_nearest_part(missing):
    X = np.random.default_rng(5).standard_normal((N, D))
    observed = np.random.default_rng(3).random(X.shape) > 0.4 if missing else np.ones(X.shape, dtype=bool)
    X = np.where(observed, X, 0.0)
    for task, labels in zip(tasks(N), kmeans(X, tasks(N), K, observed if missing else None), strict=True):
        masked = np.ma.array(X * task.units, mask=~observed)
        centres = np.stack([masked[labels == k].mean(axis=0).filled(0.0) for k in range(K)])
        distance = ((masked[:, None, :] - centres) ** 2).sum(axis=2).filled(0.0)
        np.testing.assert_array_equal(np.argmin(distance, axis=1), labels)


def test_runs_of_kmeans_do_not_depend_on_one_another():
    X = rows()
    together = kmeans(X, tasks(N), K)
    for task, labels in zip(tasks(N), together, strict=True):
        np.testing.assert_array_equal(kmeans(X, [task], K)[0], labels)


def test_weights_of_kmeans_equal_copies():
    X, weight = rows(), np.random.default_rng(4).integers(0, 3, N)
    copies = np.repeat(np.arange(N), weight)
    units = np.ones(D)
    for seed in range(5):
        light = kmeans(X, [Task(weight.astype(float), units, seed)], K)[0]
        heavy = kmeans(X[copies], [Task(np.ones(len(copies)), units, seed)], K)[0]
        np.testing.assert_array_equal(light[copies], heavy)


def test_kmeans_of_fewer_distinct_rows_than_centres():
    X = np.repeat(np.eye(2), 5, axis=0)
    labels = kmeans(X, [Task(np.ones(10), np.ones(2), 0)], 3)[0]
    assert len(set(labels[:5].tolist()) & set(labels[5:].tolist())) == 0


@pytest.mark.parametrize("missing", [False, True])
def test_kmeans_of_tensors_is_that_of_arrays(missing):
    torch = pytest.importorskip("torch")
    X = rows()
    observed = np.random.default_rng(3).random(X.shape) > 0.4 if missing else None
    X = X if observed is None else np.where(observed, X, 0.0)
    seen = None if observed is None else torch.asarray(observed)
    there = kmeans(torch.asarray(X), tasks(N), K, seen)
    for labels, expected in zip(there, kmeans(X, tasks(N), K, observed), strict=True):
        np.testing.assert_array_equal(labels, expected)
    same, task = np.repeat(np.eye(2), 5, axis=0), Task(np.ones(10), np.ones(2), 0)  # parts become empty
    np.testing.assert_array_equal(kmeans(torch.asarray(same), [task], 3)[0], kmeans(same, [task], 3)[0])


# -- eigenvectors of starts ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(300, 400), (400, 300)])
def test_rough_eigenpairs_are_near_the_exact_ones(shape):
    rng = np.random.default_rng(0)
    made = rng.standard_normal((shape[0], 6)) * [30, 20, 12, 8, 5, 3] @ rng.standard_normal((6, shape[1]))
    made += rng.standard_normal(shape)
    values, vectors = leading_eigenpairs(made, 6)
    rough, directions = rough_eigenpairs(made, 6)
    np.testing.assert_allclose(rough, values, rtol=1e-6)
    np.testing.assert_allclose(directions, vectors, atol=1e-3)


def test_rough_eigenpairs_of_rows_of_low_rank():
    made = np.outer(np.arange(200.0), np.ones(150))
    values, vectors = rough_eigenpairs(made, 3)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(values, [np.sum(made**2), 0, 0], atol=1e-6 * np.sum(made**2))
    none, empty = rough_eigenpairs(np.zeros((200, 150)), 3)
    assert np.isfinite(empty).all() and not none.any()
