"""The engine below the estimators: statistics, sweeps, namespaces, drivers, frames."""

import dataclasses
import os
from dataclasses import replace
from functools import reduce
from itertools import count, pairwise
from threading import Event, Thread

import array_api_compat
import array_api_strict
import numpy as np
import pytest

from latently.backend import placement
from latently.backend.namespace import to_numpy
from latently.core.block import Block
from latently.core.drivers import Iteration, ObjectiveWorsened, State, Step, best_start, em_step, relative
from latently.core.drivers import run as run_from
from latently.core.frame import Frame
from latently.core.summary import summarise as summarise_sweep
from latently.core.sweep import LocalSweep
from latently.core.tree import add
from latently.distributions import Mixture, MixtureParams, common_loadings, gaussian
from latently.distributions import responsibilities as responsibilities_module
from latently.distributions.mixture import log_density, responsibilities
from latently.distributions.moments import moment_step, total_moments
from tests.contracts.models import ALL, BY_EM, BY_NAME, FA, assert_same, rows

every_model = pytest.mark.parametrize("model", ALL, ids=str)
every_em_model = pytest.mark.parametrize("model", BY_EM, ids=str)
weighted_or_not = pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])

UNIT = Frame(np.zeros(4), np.ones(4))


def sweep_over(block, frame, block_size=None):
    """A sweep over rows in memory."""
    return LocalSweep(lambda: [block], frame, floats_per_row=4, block_size=block_size)


def summarise(block, rows_at_a_time, sample_size=0):
    return summarise_sweep(sweep_over(block, None, rows_at_a_time), sample_size)


def run(step, params, **how):
    return run_from(step, State.at(params), **how)


def kernel_and_params(model, seed=0, D=4, K=3, q=2, spread=2.0, floor=0.0, dtype="float64"):
    """The kernel behind an estimator, with parameters of its own kind."""
    known = model.known(model.example(np.random.default_rng(seed), D, K, q, spread=spread))
    return model.kernel(known, np.full(D, floor), dtype)


def block_of(seed=1, N=40, D=4, weighted=True):
    rng = np.random.default_rng(seed)
    return Block(rows(rng, N, D), rng.uniform(0.2, 3.0, size=N) if weighted else None)


def leaves(record):
    """The arrays of a record by dotted name."""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            yield from ((f"{field.name}.{name}", leaf) for name, leaf in leaves(value))
        elif value is not None:
            yield field.name, value


def assert_records_agree(a, b, rtol=1e-10, atol=1e-10):
    a, b = dict(leaves(a)), dict(leaves(b))
    assert a.keys() == b.keys()
    for name in a:
        if a[name] is None or b[name] is None:
            assert a[name] is b[name], name
            continue
        np.testing.assert_allclose(to_numpy(a[name]), to_numpy(b[name]), rtol=rtol, atol=atol, err_msg=name)


# -- statistics are sums over rows -----------------------------------------------------------------------


@every_model
@weighted_or_not
def test_parts_add_up_to_the_whole(model, weighted):
    kernel, params = kernel_and_params(model)
    block = block_of(weighted=weighted)
    density = kernel.prepare(params)
    whole = kernel.e_step(density, block)
    for cuts in ([20], [1, 2, 3], [7, 39]):
        edges = [0, *cuts, len(block)]
        parts = [block[a:b] for a, b in pairwise(edges)]
        assert sum(map(len, parts)) == len(block)
        assert_records_agree(reduce(add, [kernel.e_step(density, part) for part in parts]), whole)


@every_model
def test_statistics_say_likelihood_and_weight(model):
    kernel, params = kernel_and_params(model)
    block = block_of()
    density = kernel.prepare(params)
    stats = kernel.e_step(density, block)
    np.testing.assert_allclose(stats.total_weight, block.weight.sum())
    np.testing.assert_allclose(stats.log_likelihood, block.weight @ log_density(kernel, density, block))
    resp = responsibilities(kernel, density, block)
    np.testing.assert_allclose(stats.components.weight, block.weight @ resp)
    sum_x = (block.weight[:, None] * resp).T @ block.X
    np.testing.assert_allclose(stats.components.sum_x, sum_x.sum(axis=0) if model.common_loadings else sum_x)


@every_em_model
def test_steps_and_kernels_change_nothing_they_are_given(model):
    kernel, params = kernel_and_params(model)
    block = block_of()
    before = {name: np.array(leaf) for name, leaf in leaves(params)}, block.X.copy(), block.weight.copy()
    density = kernel.prepare(params)
    prepared = {name: np.array(leaf) for name, leaf in leaves(density)}
    kernel.m_step(kernel.stats(density, kernel.e_step(density, block)), params)
    assert all(np.array_equal(leaf, before[0][name]) for name, leaf in leaves(params))
    assert all(np.array_equal(leaf, prepared[name]) for name, leaf in leaves(density))
    np.testing.assert_array_equal(block.X, before[1])
    np.testing.assert_array_equal(block.weight, before[2])


# -- where the rows are and who adds up does not matter --------------------------------------------------


def threads(monkeypatch, n):
    monkeypatch.setattr("latently.backend.placement.row_threads", lambda: n)


@every_model
@pytest.mark.parametrize(("n_threads", "block_size"), [(1, 1), (1, 7), (2, 7), (5, 7), (3, 1000), (2, None)])
def test_blocks_and_threads_do_not_matter(model, n_threads, block_size, monkeypatch):
    rng = np.random.default_rng(3)
    X, weight = rows(rng, 90, 4), rng.uniform(0.2, 3.0, size=90)
    start = model.narrower(model.example(rng, 4, 3, 2), 6.0)
    start = model.centred(start, X[: len(start["weights"])])

    def results(**settings):
        fitted = model.started(start, max_iter=6, tol=0.0, **settings).fit(X, sample_weight=weight)
        return fitted, model.theta(fitted), fitted.score_samples(X), fitted.predict_proba(X)

    threads(monkeypatch, 1)
    _, theta, scores, proba = results()
    monkeypatch.setattr("latently.backend.placement.SMALLEST_BLOCK", 8)
    threads(monkeypatch, n_threads)
    fitted, other, other_scores, other_proba = results(block_size=block_size)
    assert_same(other, theta)
    np.testing.assert_allclose(other_scores, scores, rtol=1e-9)
    np.testing.assert_allclose(other_proba, proba, atol=1e-9)
    assert_same(model.theta(results(block_size=block_size)[0]), model.theta(fitted), rtol=0, atol=0)


@pytest.mark.parametrize("n_threads", [1, 2, 4])
@pytest.mark.parametrize("block_size", [1, 3, 10, 11])
def test_a_sweep_sees_every_row_once_and_in_order(n_threads, block_size, monkeypatch):
    threads(monkeypatch, n_threads)
    block = Block(np.arange(40.0).reshape(10, 4), np.arange(10.0))
    frame = Frame(np.full(4, 1.0), np.full(4, 2.0))
    sweep = sweep_over(block, frame, block_size)
    rows_of = lambda fn: list(sweep.rows(fn))
    np.testing.assert_array_equal(np.concatenate(rows_of(lambda piece: piece.X)), (block.X - 1.0) / 2.0)
    np.testing.assert_array_equal(np.concatenate(rows_of(lambda piece: piece.weight)), block.weight)
    assert max(len(piece) for piece in rows_of(lambda piece: piece.X)) <= block_size
    seen = sweep.reduce(lambda piece: piece.weight, lambda a, b: np.concatenate([a, b]))
    np.testing.assert_array_equal(seen, np.arange(1.0, 10.0))  # the row of no weight says nothing


def test_a_small_table_enters_the_frame_once_if_its_arrays_are_fixed(monkeypatch):
    entered = []
    enter = Frame.enter
    monkeypatch.setattr(Frame, "enter", lambda self, block: entered.append(block) or enter(self, block))
    X, weight = np.arange(20.0).reshape(10, 2), np.ones(10)
    weight[0] = 0.0
    frame = Frame(np.ones(2), np.full(2, 2.0))
    for fixed, times in ((True, 1), (False, 3)):
        entered.clear()
        sweep = LocalSweep(lambda: [Block(X, weight)], frame, floats_per_row=10, fixed=fixed)
        sums = [sweep.reduce(lambda block: block.X.sum(), lambda a, b: a + b) for _ in range(3)]
        assert len(entered) == times
        assert sums == pytest.approx([((X[1:] - 1) / 2).sum()] * 3)


def test_chunks_that_are_filled_again_are_seen_again():
    X = np.zeros((10, 2))

    def chunks():
        X[:] += 1.0  # the same array with other values
        yield Block(X)

    sweep = LocalSweep(chunks, None, floats_per_row=10)
    assert [sweep.reduce(lambda block: block.X.sum(), lambda a, b: a + b) for _ in range(2)] == [20.0, 40.0]


def test_an_error_in_a_thread_is_raised(monkeypatch):
    threads(monkeypatch, 2)
    sweep = sweep_over(block_of(), UNIT, 5)

    def broken(piece):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sweep.sum(broken)


def test_blas_threads_are_given_back():
    """Two fits in two threads, the first ending first: what they found is there again after the second."""
    threads_of = lambda: [library["num_threads"] for library in placement._blas().info()]
    with placement._blas().limit(limits=2):
        before = threads_of()
        first, second = placement.one_blas_thread(), placement.one_blas_thread()
        first.__enter__()
        second.__enter__()
        assert set(threads_of()) == {1}
        first.__exit__(None, None, None)
        assert set(threads_of()) == {1}
        second.__exit__(None, None, None)
        assert threads_of() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_blas_threads_are_given_back_to_a_child():
    """Made in the middle of a fit, which it is not part of; what it enters and leaves is its own."""
    threads_of = lambda: {library["num_threads"] for library in placement._blas().info()}
    with placement._blas().limit(limits=2):
        before = threads_of()
        with placement.one_blas_thread():
            child = os.fork()
            if child == 0:
                at_first = threads_of()
                with placement.one_blas_thread():
                    within = threads_of()
                placement.one_blas_thread().__exit__(None, None, None)  # of the fit of the parent
                os._exit(0 if (at_first, within, threads_of()) == (before, {1}, before) else 1)
            assert os.waitpid(child, 0)[1] == 0
            assert threads_of() == {1}
        assert threads_of() == before


def test_blas_threads_are_given_back_by_any_thread():
    """A fit in another thread that outlasts ours gives back what we had found, and both have one thread."""
    entered, leave = Event(), Event()
    threads_of = lambda: {library["num_threads"] for library in placement._blas().info()}

    def other():
        with placement.one_blas_thread():
            seen.append(threads_of())
            entered.set()
            leave.wait(10)

    seen = []
    with placement._blas().limit(limits=2):
        before = threads_of()
        with placement.one_blas_thread():
            thread = Thread(target=other)
            thread.start()
            entered.wait(10)
        assert threads_of() == {1}
        leave.set()
        thread.join()
        assert seen == [{1}]
        assert threads_of() == before
        with placement.one_blas_thread():
            assert threads_of() == {1}


# -- rows that do not count can be left out ----------------------------------------------------------------


@every_model
@pytest.mark.parametrize("spread", [1.0, 30.0], ids=["soft", "hard"])
@pytest.mark.parametrize("lost", [-1e6, -45.0], ids=["every row", "rows that count"])
def test_sparse_sums_are_the_dense_ones(model, spread, lost, monkeypatch):
    kernel, params = kernel_and_params(model, spread=spread)
    rng = np.random.default_rng(0)
    X = params.components.means[rng.integers(len(params.weights), size=60)] + rng.normal(size=(60, 4))
    block, density = Block(X, rng.uniform(0.2, 3.0, size=60)), kernel.prepare(params)
    monkeypatch.setattr(responsibilities_module, "LOST", lost)

    def stats(most_per_row):
        monkeypatch.setattr(type(kernel.family), "most_per_row", lambda family, K: most_per_row)
        joint = kernel.family.evaluate(density, block)[0]
        _, resp = responsibilities_module.respond(joint, block.weight, None, most_per_row)
        assert (resp.sparse is None) == (most_per_row == 0)
        return kernel.stats(density, kernel.e_step(density, block))

    dense, gathered = stats(0), stats(len(params.weights))
    assert_records_agree(gathered, dense, rtol=1e-11, atol=1e-10 * spread**2)
    assert_records_agree(kernel.m_step(gathered, params), kernel.m_step(dense, params), rtol=1e-8, atol=1e-9)


def test_products_for_devices_have_the_same_sums(monkeypatch):
    """Fewer numbers or components at a time, as accelerators need them, on rows in main memory."""
    for name, module in (("MCFA", common_loadings), ("GMM-full", gaussian)):
        kernel, params = kernel_and_params(BY_NAME[name], K=4, q=2)
        density, block = kernel.prepare(params), block_of()
        here = kernel.e_step(density, block)
        monkeypatch.setattr(module, "on_device", lambda array: True)
        there = kernel.e_step(density, replace(block))
        assert_records_agree(there, here)


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
def test_components_may_be_multiplied_some_at_a_time(at_once, monkeypatch):
    kernel, params = kernel_and_params(BY_NAME["GMM-full"], K=4)
    density, block = kernel.prepare(params), block_of()
    whole = kernel.e_step(density, block)
    monkeypatch.setattr(gaussian, "_components_at_once", lambda X, K: at_once)
    assert_records_agree(kernel.e_step(density, replace(block)), whole)


def test_responsibilities_that_count():
    exact = np.array([[1.0, 0.5, 1e-30, 1e-30], [1e-30, 0.5, 1.0, 1.0]])
    respond = lambda *given: responsibilities_module.respond(np.log(exact), *given)
    log_norm, resp = respond(None, None, 1.5)
    np.testing.assert_allclose(log_norm, 0.0, atol=1e-15)
    assert resp.dense is None and [list(resp.sparse.of(k)[0]) for k in range(2)] == [[0, 1], [1, 2, 3]]
    np.testing.assert_allclose(resp.weight, exact.sum(axis=1))
    assert respond(None, None, 1.0)[1].sparse is None  # too many
    weight = np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(respond(weight, None, 1.5)[1].weight, exact @ weight)
    # a component that hardly shows, and one that is dead
    faint = np.log(np.array([[1.0, 1.0, 1.0], [1e-30, 1e-31, 1e-60], [1e-320, 1e-320, 1e-320]]))
    faint[2] = -np.inf
    resp = responsibilities_module.respond(faint, None, None, 3.0)[1]
    assert [list(resp.sparse.of(k)[0]) for k in range(3)] == [[0, 1, 2], [0, 1], []]
    np.testing.assert_allclose(resp.weight, [3.0, 1.1e-30, 0.0])


@every_em_model
def test_an_empty_component_stays_as_it_was(model):
    kernel, params = kernel_and_params(model)
    if model.one_component:
        pytest.skip("has no second component")
    params = MixtureParams(np.array([0.5, 0.0, 0.5]), params.components)
    density = kernel.prepare(params)
    after = kernel.m_step(kernel.stats(density, kernel.e_step(density, block_of())), params)
    assert after.weights[1] == 0.0
    for name, leaf in leaves(after):
        assert np.all(np.isfinite(leaf)), name
    if model.common_loadings:  # its factors stay, though what they mean is another thing now
        now, before = after.components, params.components
        latent_means = [record.latent_means[1] + record.anchor for record in (now, before)]
        np.testing.assert_allclose(*latent_means, rtol=1e-12)
        np.testing.assert_allclose(now.latent_covariances[1], before.latent_covariances[1], rtol=1e-12)
        return
    np.testing.assert_array_equal(after.components.means[1], params.components.means[1])
    if not model.shared and model.name != "GMM-tied":
        for (name, new), (_, old) in zip(leaves(after.components), leaves(params.components), strict=True):
            np.testing.assert_array_equal(new[1], old[1], err_msg=name)


@every_em_model
def test_components_whose_weights_have_no_reciprocals_are_finite(model, monkeypatch):
    """Responsibilities by the softmax of a CUDA device are not cut off; fits to images ended there."""
    if model.one_component:
        pytest.skip("has no second component")
    monkeypatch.setattr(responsibilities_module, "_NEGLIGIBLE", -760.0)
    kernel, params = kernel_and_params(model)
    for digits in range(300, 324, 2):
        params = MixtureParams(np.array([0.5, 10.0**-digits, 0.5]), params.components)
        density = kernel.prepare(params)
        after = kernel.m_step(kernel.stats(density, kernel.e_step(density, block_of())), params)
        for name, leaf in leaves(after):
            assert np.all(np.isfinite(leaf)), (name, digits)


# -- what the arrays are does not matter -------------------------------------------------------------------


def as_torch(array):
    torch = pytest.importorskip("torch")
    return torch.asarray(np.array(array))


def as_strict(array):
    return array_api_strict.asarray(np.array(array))


def converted(record, convert):
    """A record with all its arrays in another namespace."""
    if dataclasses.is_dataclass(record):
        fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
        return dataclasses.replace(
            record, **{name: converted(value, convert) for name, value in fields.items()}
        )
    return convert(record) if isinstance(record, np.ndarray) else record


every_namespace = pytest.mark.parametrize("convert", [as_torch, as_strict], ids=["torch", "strict"])


@every_model
@every_namespace
@weighted_or_not
@pytest.mark.parametrize("spread", [2.0, 30.0], ids=["soft", "hard"])
def test_kernels_agree_in_all_namespaces(model, convert, weighted, spread):
    kernel, params = kernel_and_params(model, spread=spread, floor=0.1)
    rng = np.random.default_rng(0)
    X = params.components.means[rng.integers(len(params.weights), size=50)] + rng.normal(size=(50, 4))
    block = Block(X, rng.uniform(0.2, 3.0, size=50) if weighted else None)
    there = converted(kernel, convert), converted(params, convert), converted(block, convert)

    def step(kernel, params, block):
        density = kernel.prepare(params)
        stats = kernel.stats(density, kernel.e_step(density, block))
        scores = log_density(kernel, density, block), responsibilities(kernel, density, block)
        return stats, kernel.m_step(stats, params), kernel.rounding(density), *scores

    stats, next_params, rounding, scores, resp = step(kernel, params, block)
    other_stats, other_next_params, other_rounding, other_scores, other_resp = step(*there)
    namespace = array_api_compat.array_namespace(there[2].X)
    for record in (other_stats, other_next_params):
        for name, leaf in leaves(record):
            assert array_api_compat.array_namespace(leaf) is namespace, name
            assert leaf.dtype == namespace.float64, name
    assert_records_agree(other_stats, stats, rtol=1e-10, atol=1e-10 * spread**2)
    assert_records_agree(other_next_params, next_params, rtol=1e-9, atol=1e-9)
    assert other_rounding == pytest.approx(rounding)
    np.testing.assert_allclose(to_numpy(other_scores), scores, rtol=1e-10)
    np.testing.assert_allclose(to_numpy(other_resp), resp, atol=1e-10)


@every_model
@every_namespace
def test_single_precision_agrees_in_all_namespaces(model, convert):
    kernel, params = kernel_and_params(model, floor=0.1, dtype="float32")
    block = block_of()
    here = kernel.e_step(kernel.prepare(params), block)
    kernel, params, block = (converted(record, convert) for record in (kernel, params, block))
    there = kernel.e_step(kernel.prepare(params), block)
    assert_records_agree(there, here, rtol=1e-4, atol=1e-2)


@every_namespace
def test_summaries_and_frames_in_all_namespaces(convert):
    block = block_of()
    here, there = summarise(block, 7), summarise(converted(block, convert), 7)
    assert_records_agree(there, here, rtol=1e-13, atol=1e-13)
    for isotropic in (False, True):
        frame = Frame.around(here.mean, here.deviation, isotropic=isotropic)
        other = Frame.around(there.mean, there.deviation, isotropic=isotropic)
        assert float(other.log_volume(block)) == float(frame.log_volume(block))
        np.testing.assert_array_equal(to_numpy(other.scale), frame.scale)
        u = to_numpy(other.enter(converted(block, convert)).X)
        np.testing.assert_allclose(u, frame.enter(block).X, rtol=1e-12, atol=1e-12)


@every_namespace
def test_sweeps_in_all_namespaces(convert):
    model = BY_NAME["MFA-diagonal"]
    kernel, params = kernel_and_params(model, floor=0.1)
    block = block_of()
    sweep = sweep_over(block, UNIT, 9)
    there = (converted(record, convert) for record in (kernel, params, block, UNIT))
    other_kernel, other_params, other_block, other_unit = there
    other = sweep_over(other_block, other_unit, 9)
    a, b = em_step(kernel, sweep)(params), em_step(other_kernel, other)(other_params)
    assert b.objective == pytest.approx(a.objective, rel=1e-12)
    assert_records_agree(b.next_params(), a.next_params())


def test_moments_give_the_step_of_the_rows():
    kernel, params = kernel_and_params(FA, floor=0.01)
    for weighted in (False, True):
        sweep = sweep_over(block_of(weighted=weighted), UNIT, 9)
        by_rows = em_step(kernel, sweep)(params)
        by_moments = moment_step(kernel, total_moments(sweep), 0.0)(params)
        assert by_moments.objective == pytest.approx(by_rows.objective, rel=1e-12)
        assert_records_agree(by_moments.next_params(), by_rows.next_params())


# -- drivers ----------------------------------------------------------------------------------------------


def stepping(objectives, rounding=1e-12):
    """A step over the numbers 0, 1, 2, ... with these objectives."""
    return lambda number: Step(objectives[number], rounding, lambda: number + 1)


never = relative(0.0)


def test_a_run_takes_the_steps_it_is_given():
    result = run(stepping([1.0, 2.0, 3.0, 4.0]), 0, max_iter=3, stop=never)
    assert (result.params, result.n_iter, result.converged) == (3, 3, False)
    assert result.history == [1.0, 2.0, 3.0, 4.0]
    result = run(stepping([1.0]), 0, max_iter=0, stop=never)
    assert (result.params, result.n_iter, result.history) == (0, 0, [1.0])


def test_a_fall_is_an_error_that_says_where():
    with pytest.raises(ObjectiveWorsened, match=r"fell by 0\.5 .* iteration 2"):
        run(stepping([1.0, 2.0, 1.5, 3.0]), 0, max_iter=3, stop=never)


def test_a_fall_within_rounding_is_not():
    result = run(stepping([1.0, 2.0, 1.5, 3.0], rounding=0.5), 0, max_iter=3, stop=never)
    assert result.history == [1.0, 2.0, 1.5, 3.0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_objective_that_is_not_finite_is_an_error(value):
    with pytest.raises(FloatingPointError, match="iteration 1"):
        run(stepping([1.0, value, 2.0]), 0, max_iter=2, stop=never)
    with pytest.raises(FloatingPointError, match="iteration 0"):
        run(stepping([value, 2.0]), 0, max_iter=2, stop=never)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_runs_stop_by_relative_gain(sign):
    objectives = [sign * 1000.0, sign * 1000.0 + 5.0, sign * 1000.0 + 6.5, sign * 1000.0 + 7.0]
    result = run(stepping(objectives), 0, max_iter=3, stop=relative(2e-3))
    assert (result.n_iter, result.converged) == (2, True)
    assert result.params == 2


def test_the_relative_rule():
    assert relative(1e-3)(-1000.0, 1.0)
    assert not relative(1e-3)(-1000.0, 1.1)
    assert relative(1e-3)(0.0, 1e-3)  # objectives below one count as one
    assert not relative(1e-3)(0.0, 1.1e-3)
    assert relative(1e-3)(5.0, -1e-9)
    assert not relative(0.0)(1.0, 0.0)
    assert not relative(1e-3)(1.0, np.inf)


def test_callbacks_of_a_run():
    seen = []
    result = run(stepping([1.0, 3.0, 4.0]), 0, max_iter=2, stop=never, callbacks=[seen.append])
    assert seen == [Iteration(0, 1.0, np.inf, 2), Iteration(1, 3.0, 2.0, 2), Iteration(2, 4.0, 1.0, 2)]
    assert result.n_iter == 2
    ended = run(
        stepping([1.0, 3.0, 4.0]), 0, max_iter=2, stop=never, callbacks=[lambda told: told.number == 1]
    )
    assert (ended.n_iter, ended.params, ended.history, ended.converged) == (1, 1, [1.0, 3.0], False)


def test_the_best_of_several_starts():
    step = lambda at: Step(at[0] + at[1], 0.0, lambda: (at[0], at[1] + 1))
    # all take four steps, the better two four more
    assert best_start(step, [(1.0, 0), (7.0, 0), (3.0, 0)], n_steps=4, stop=never)[0] == (7.0, 8)
    late = lambda at: Step(at[0] * at[1], 0.0, lambda: (at[0], at[1] + 1))
    assert best_start(late, [(2.0, 0), (1.0, 3), (0.5, 0)], n_steps=4, stop=never)[0] == (2.0, 8)
    assert best_start(step, [(3.0, 0)], n_steps=4, stop=never)[0] == (3.0, 0)


@every_em_model
@pytest.mark.parametrize("fault", ["means", "weights"])
def test_the_guard_notices_a_broken_kernel(model, fault, monkeypatch):
    if model.one_component and (fault == "weights" or model is FA):
        pytest.skip("nothing to break this way")
    rng = np.random.default_rng(0)
    X = rows(rng, 60, 4)
    right, steps = Mixture.m_step, count()

    def wrong(self, stats, params):
        after = right(self, stats, params)
        if next(steps) < 30:  # a kernel that is always wrong may rise to where it stays
            return after
        if fault == "weights":
            weights = after.weights * np.arange(1, 4)
            return MixtureParams(weights / weights.sum(), after.components)
        name = "latent_means" if model.common_loadings else "means"
        moved = {name: getattr(after.components, name) + 0.2}
        return MixtureParams(after.weights, dataclasses.replace(after.components, **moved))

    monkeypatch.setattr(Mixture, "m_step", wrong)
    with pytest.raises(ObjectiveWorsened):
        model.unfitted(3, 1, max_iter=60, tol=0.0, n_init=1, random_state=0).fit(X)


# -- frames and summaries ---------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("exponents", [(0, 0, 0, 0), (3, -7, 40, -60)], ids=str)
def test_parameters_go_into_a_frame_and_back(model, exponents):
    exponents = np.full(4, exponents[1]) if model.isotropic else np.array(exponents)
    kernel, params = kernel_and_params(model)
    scale, shift = 2.0**exponents, np.array([3.0, -1e3, 0.1, 7.0])
    there = kernel.moved(params, -shift / scale, 1.0 / scale)
    back = kernel.moved(there, shift, scale)
    if model.common_loadings:  # factors may be counted from elsewhere, and in other units
        for one, other in zip(densely(back.components), densely(params.components), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
        return
    assert_records_agree(back, params, rtol=1e-12, atol=1e-12)


def densely(common):
    """Means and covariances of common loadings."""
    A = common.loadings
    return common.means, A @ common.latent_covariances @ A.T + np.diag(common.noise_variance)


@every_model
def test_densities_in_a_frame_differ_by_its_volume(model):
    kernel, params = kernel_and_params(model)
    block = block_of()
    frame = Frame.around(*kernel.moments(params), isotropic=model.isotropic)
    inside = kernel.prepare(kernel.moved(params, -frame.shift / frame.scale, 1.0 / frame.scale))
    there = log_density(kernel, inside, frame.enter(block))
    here = log_density(kernel, kernel.prepare(params), block)
    np.testing.assert_allclose(there - frame.log_volume(block), here, rtol=1e-11)


@pytest.mark.parametrize("isotropic", [False, True])
@pytest.mark.parametrize("size", [1e-140, 1e-3, 1.0, 1e3, 1e140])
def test_frames_are_powers_of_two_of_about_unit_variance(isotropic, size):
    rng = np.random.default_rng(0)
    deviation = size * rng.uniform(1.0, 2.0, size=5)
    frame = Frame.around(rng.normal(size=5), deviation, isotropic=isotropic)
    mantissa, _ = np.frexp(frame.scale)
    assert np.all(mantissa == 0.5)
    assert frame.log_volume(Block(np.zeros((1, 5)))) == pytest.approx(np.log(frame.scale).sum(), rel=1e-12)
    assert np.all(np.abs(np.log2(deviation / frame.scale)) <= (0.5 if not isotropic else 1.5))
    if isotropic:
        assert len(set(frame.scale)) == 1


def test_a_constant_feature_takes_the_scale_of_the_others():
    frame = Frame.around(np.zeros(3), np.array([0.0, 64.0, 64.0]), isotropic=False)
    np.testing.assert_array_equal(frame.scale, 64.0)
    frame = Frame.around(np.zeros(2), np.zeros(2), isotropic=False)
    np.testing.assert_array_equal(frame.scale, 1.0)


def test_rows_enter_a_frame():
    rng = np.random.default_rng(0)
    X = 1e8 + np.round(rng.normal(size=(20, 3)) * 64) / 64
    frame = Frame(np.full(3, 1e8), np.array([0.5, 1.0, 2.0]))
    u = frame.enter(Block(X)).X
    assert u.dtype == np.float64
    np.testing.assert_array_equal(u, (X - 1e8) / frame.scale)
    assert np.all(np.abs(X) > 1e7)  # and not in place


@weighted_or_not
@pytest.mark.parametrize("offset", [0.0, 1e8, -1e8])
@pytest.mark.parametrize("size", [1e-150, 1e-30, 1.0, 1e30, 1e150])
@pytest.mark.parametrize("rows_at_a_time", [7, 1000])
def test_summaries(weighted, offset, size, rows_at_a_time):
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(50, 3)) * 1024) / 1024 + offset  # exact with the offset
    weight = rng.uniform(0.2, 3.0, size=50) if weighted else None
    summary = summarise(Block(X * size, weight), rows_at_a_time)
    centred = X - offset
    mean = np.average(centred, axis=0, weights=weight)
    variance = np.average((centred - mean) ** 2, axis=0, weights=weight)
    # size is no power of two, so a far offset leaves the scaled rows fewer digits
    digits = 1e-12 if offset == 0 else 1e-7
    np.testing.assert_allclose(
        summary.mean / size - offset, mean, rtol=digits, atol=1e-14 + 1e-15 * abs(offset)
    )
    np.testing.assert_allclose(summary.deviation / size, np.sqrt(variance), rtol=digits)
    assert not summary.constant.any()


def test_summaries_of_constant_features():
    X = np.column_stack([np.full(20, 0.1), np.arange(20.0), np.full(20, 1e150)])
    summary = summarise(Block(X), 7)
    np.testing.assert_array_equal(summary.constant, [True, False, True])
    np.testing.assert_array_equal(summary.deviation[[0, 2]], 0.0)
    np.testing.assert_allclose(summary.mean, X.mean(axis=0), rtol=1e-15)


def test_summaries_weigh_rows():
    X = np.random.default_rng(0).normal(size=(20, 3))
    copies = np.arange(1, 21)
    by_weight, by_copies = (
        summarise(Block(X, copies * 1.0), 6),
        summarise(Block(np.repeat(X, copies, axis=0)), 9),
    )
    assert by_weight.total_weight == by_copies.total_weight == 210
    for name in ("mean", "deviation", "observed_weight"):
        np.testing.assert_allclose(getattr(by_weight, name), getattr(by_copies, name), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float32"])
def test_summaries_are_float64_whatever_the_rows_are(dtype):
    X = np.random.default_rng(0).integers(0, 127, size=(40, 3)).astype(dtype)
    summary = summarise(Block(X), 7)
    assert summary.mean.dtype == summary.deviation.dtype == np.float64
    np.testing.assert_allclose(summary.mean, X.astype(float).mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(summary.deviation, X.astype(float).std(axis=0), rtol=1e-13)
