"""Fits that are killed go on from their checkpoint as if nothing had happened; those interrupted are kept."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from sklearn.exceptions import ConvergenceWarning

import latently
from latently.backend import placement
from latently.core.io import ModelFileError
from latently.core.sources import chunks
from latently.distributions.mixture import Mixture
from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture, starts
from tests.contracts.models import rows

ROOT = Path(__file__).resolve().parents[2]
N, D = 200, 5  # one block, so that threads have no part in the rounding
EVERY, KILLED_AT, MAX_ITER = 3, 10, 16


@cache
def data(what="rows"):
    """X, y, weight."""
    rng = np.random.default_rng(0)
    X = rows(rng, N, D) * [1.0, 20.0, 0.1, 1.0, 3.0]
    if what == "rows":
        return X, None, None
    X[rng.random((N, D)) < 0.15] = np.nan
    X[np.isnan(X).all(axis=1), 0] = 0.0
    y = np.where(rng.random(N) < 0.2, rng.integers(2, size=N), -1)
    return X, None if what == "unlabelled" else y, rng.choice([0.0, 0.5, 1.0, 2.0], size=N)


# prior=None: the history is the log-likelihood, as `score` tells
SETTINGS = {
    "random_state": 0,
    "tol": 0.0,
    "max_iter": MAX_ITER,
    "n_init": 2,
    "accelerate": None,
    "prior": None,
}


def mfa(**more):
    return MFA(2, 2, **SETTINGS | more)


def mcfa(**more):
    return MCFA(2, 2, **SETTINGS | more)


def gaussian(**more):
    return GaussianMixture(2, **SETTINGS | more)


def factors(**more):
    return FactorAnalysis(2, **SETTINGS | more)


# name: how to make the estimator, its settings, the rows, and whether they are in a file
CASES = {
    "MFA": (mfa, {}, "rows", False),
    "MFA-squarem": (mfa, {"accelerate": "squarem"}, "rows", False),
    "MFA-everything": (mfa, {}, "everything", False),
    "MFA-single-precision": (mfa, {"dtype": "float32"}, "rows", False),
    "MFA-file": (mfa, {}, "everything", True),
    "MFA-mini-batches": (mfa, {"batch_size": 40}, "rows", False),
    "MFA-mini-batches-file": (mfa, {"batch_size": 40}, "everything", True),
    "MCFA": (mcfa, {}, "everything", False),
    "MCFA-squarem": (mcfa, {"accelerate": "squarem"}, "rows", False),
    "MCFA-mini-batches": (mcfa, {"batch_size": 40}, "rows", False),
    "GMM": (gaussian, {}, "rows", False),
    "GMM-squarem": (gaussian, {"accelerate": "squarem"}, "everything", False),
    "GMM-tied": (gaussian, {"covariance_type": "tied"}, "rows", False),
    "GMM-diag-squarem-file": (
        gaussian,
        {"covariance_type": "diag", "accelerate": "squarem"},
        "everything",
        True,
    ),
    "GMM-mini-batches": (gaussian, {"batch_size": 40}, "everything", False),
    "FactorAnalysis": (factors, {}, "rows", False),
    "FactorAnalysis-everything": (factors, {"accelerate": "squarem"}, "everything", False),
    "MFA-converges": (mfa, {"tol": 1e-5, "max_iter": 500}, "rows", False),
}
every_case = pytest.mark.parametrize("case", CASES)
em_or_mini_batches = pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="EM"),
        pytest.param({"accelerate": "squarem"}, id="squarem"),
        pytest.param({"batch_size": 50}, id="mini-batches"),
    ],
)


def fit(case, folder, **more):
    """The fit of a case, with rows in x.npy if they are in a file."""
    make, settings, what, in_file = CASES[case]
    X, y, weight = data(what)
    if in_file:
        np.save(folder / "x.npy", X)
    y = None if make is factors else y
    chunks.CHUNK_BYTES = 60 * D * 8
    try:
        return make(**settings | more).fit(folder / "x.npy" if in_file else X, y, sample_weight=weight)
    finally:
        chunks.CHUNK_BYTES = 64_000_000


def fitted_attributes(estimator):
    return {name: value for name, value in vars(estimator).items() if name.endswith("_")}


def assert_identical(actual, expected):
    actual, expected = fitted_attributes(actual), fitted_attributes(expected)
    assert actual.keys() == expected.keys() and len(actual) >= 8
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name, strict=True)


def assert_unchanged(estimator, before):
    assert vars(estimator).keys() == before.keys()
    assert all(vars(estimator)[name] is value for name, value in before.items())


class Numbers:
    """A callback that remembers the numbers of the iterations."""

    def __init__(self):
        self.seen = []

    def __call__(self, iteration):
        self.seen.append(iteration.number)


# -- killed ---------------------------------------------------------------------------------------------


def leave_checkpoints(folder):
    """Runs every case in a process that is killed on its way. Called in a process of its own."""

    def die(iteration):
        if iteration.number == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    import sklearn.cluster  # noqa: F401 (loaded on first use, so it would be loaded by every child)

    for case in CASES:
        child = os.fork()
        if child == 0:
            try:
                fit(case, folder, checkpoint=folder / case, checkpoint_every=EVERY, callbacks=[die])
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, case


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """A folder with the checkpoints that killed fits left behind."""
    if not hasattr(os, "fork"):
        pytest.skip("kills processes that were forked")
    folder = tmp_path_factory.mktemp("checkpoints")
    program = (
        "import sys, pathlib; from tests.contracts.test_checkpoints import leave_checkpoints; "
        "leave_checkpoints(pathlib.Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads do not survive a fork
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return folder


@every_case
def test_a_killed_fit_goes_on_as_if_nothing_had_happened(case, checkpoints, tmp_path):
    checkpoint = shutil.copy(checkpoints / case, tmp_path / "checkpoint")
    numbers = Numbers()
    resumed = fit(case, tmp_path, checkpoint=checkpoint, checkpoint_every=EVERY, callbacks=[numbers])
    assert numbers.seen[0] == KILLED_AT // EVERY * EVERY
    assert numbers.seen == list(range(numbers.seen[0], numbers.seen[-1] + 1))
    undisturbed = fit(case, tmp_path)
    assert undisturbed.n_iter_ > KILLED_AT
    assert undisturbed.converged_ == (case == "MFA-converges")
    assert_identical(resumed, undisturbed)
    assert not Path(checkpoint).exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"x.npy"}


class Killed(BaseException):
    """What nothing catches, as SIGKILL; but this process lives on."""


def killer(number):
    def die(iteration):
        if iteration.number == number:
            raise Killed

    return die


def killed(estimator, number, path, X, *more, **settings):
    """A checkpoint of this fit, killed at an iteration."""
    settings = {"checkpoint_every": EVERY, **settings, "checkpoint": path, "callbacks": [killer(number)]}
    with pytest.raises(Killed):
        estimator(**settings).fit(X, *more)
    return Path(path)


@em_or_mini_batches
def test_a_fit_may_be_killed_again_and_again(settings, tmp_path):
    X = data()[0]
    seen = []
    for number in (4, 5, 7, 13):
        numbers = Numbers()
        with pytest.raises(Killed):
            mfa(
                **settings,
                checkpoint=tmp_path / "c",
                checkpoint_every=EVERY,
                callbacks=[numbers, killer(number)],
            ).fit(X)
        seen.append(numbers.seen[0])
    assert seen == [0, 3, 3, 6]
    assert_identical(mfa(**settings, checkpoint=tmp_path / "c").fit(X), mfa(**settings).fit(X))
    assert not list(tmp_path.iterdir())


def test_a_fit_with_a_checkpoint_is_that_without(tmp_path):
    X = data()[0]
    for path in (tmp_path / "c", str(tmp_path / "c")):
        sizes = []
        look = lambda iteration, sizes=sizes: sizes.append(len(list(tmp_path.iterdir())))
        made = mfa(checkpoint=path, checkpoint_every=5, callbacks=[look]).fit(X)
        assert sizes == [0] * 5 + [1] * (MAX_ITER - 4)
        assert_identical(made, mfa().fit(X))
        assert not list(tmp_path.iterdir())


def test_a_second_fit_begins_anew(tmp_path):
    """The checkpoint of the first is gone, so other data or settings are no matter."""
    X = data()[0]
    model = mfa(checkpoint=tmp_path / "c", checkpoint_every=1).fit(X)
    model.set_params(n_factors=1).fit(X[:100])
    assert_identical(model, MFA(2, 1, **SETTINGS).fit(X[:100]))


def test_without_a_checkpoint_due_there_is_no_file(tmp_path):
    killed(mfa, 5, tmp_path / "c", data()[0], checkpoint_every=100)
    assert not list(tmp_path.iterdir())


@em_or_mini_batches
def test_what_may_change_between(settings, tmp_path):
    X = data()[0]
    path = killed(mfa, KILLED_AT, tmp_path / "c", X, **settings)
    numbers = Numbers()
    free = {"max_iter": 18, "tol": 1e-14, "checkpoint_every": 7, "callbacks": [numbers]}
    with pytest.warns(ConvergenceWarning, match="max_iter=18"):
        longer = mfa(**settings, checkpoint=path, **free).fit(X)
    assert numbers.seen[0] == 9 and longer.n_iter_ == 18
    assert_identical(longer, mfa(**settings, max_iter=18).fit(X))


def test_a_seed_that_is_not_given_is_kept(tmp_path):
    """Chance comes in at the start, and in the order of mini-batches; both are in the checkpoint."""
    X = data()[0]
    settings = {"random_state": None, "batch_size": 20, "max_iter": 10}
    path = killed(mfa, 7, tmp_path / "c", X, **settings)
    copies = [shutil.copy(path, tmp_path / name) for name in "ab"]
    a, b = (mfa(**settings, checkpoint=copy, checkpoint_every=EVERY).fit(X) for copy in copies)
    assert_identical(a, b)


def test_a_write_that_fails_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    X = data()[0]
    replace, n_writes = os.replace, 0

    def failing(*paths):
        nonlocal n_writes
        n_writes += 1
        if n_writes == 3:
            raise OSError("the disk is full")
        return replace(*paths)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="the disk is full"):
        mfa(checkpoint=tmp_path / "c", checkpoint_every=EVERY).fit(X)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    numbers = Numbers()
    resumed = mfa(checkpoint=tmp_path / "c", callbacks=[numbers]).fit(X)
    assert numbers.seen[0] == 2 * EVERY
    assert_identical(resumed, mfa().fit(X))


# -- checkpoints of other fits --------------------------------------------------------------------------


def refused(estimator, path, message, *given):
    """The fit raises a ValueError, and neither the file nor the estimator is changed."""
    content, before = path.read_bytes(), vars(estimator).copy()
    with pytest.raises(ValueError, match=message):
        estimator.fit(*given)
    assert path.read_bytes() == content
    assert_unchanged(estimator, before)
    assert [other.name for other in path.parent.iterdir()] == [path.name]


OTHER_DATA = {
    "an-entry": lambda X, y, w: (np.where(np.arange(X.size).reshape(X.shape) == 76, X + 1e-9, X), y, w),
    "a-row-less": lambda X, y, w: (X[:-1], y[:-1], w[:-1]),
    "a-row-twice": lambda X, y, w: (np.vstack([X, X[-1:]]), np.append(y, y[-1]), np.append(w, w[-1])),
    "a-hole": lambda X, y, w: (np.where(np.arange(X.size).reshape(X.shape) == 78, np.nan, X), y, w),
    "a-weight": lambda X, y, w: (X, y, w + 1e-9 * (np.arange(N) == 5)),
    "weights": lambda X, y, w: (X, y, w[::-1].copy()),
    "a-label": lambda X, y, w: (X, np.where(np.arange(N) == np.argmax(y >= 0), 1 - y, y), w),
    "no-labels": lambda X, y, w: (X, None, w),
}


@pytest.mark.parametrize("how", OTHER_DATA)
def test_a_checkpoint_of_other_data(how, tmp_path):
    X, y, w = data("everything")
    w = w + 0.1
    path = killed(mfa, 7, tmp_path / "c", X, y, w)
    other = OTHER_DATA[how](X, y, w)
    refused(mfa(checkpoint=path), path, r"belongs to a fit with other data; delete the file", *other)


def test_a_checkpoint_of_other_labels_of_many_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("latently.estimators.starts.rows_for_start", lambda n_components: 20)
    X, y, weight = data("everything")
    path = killed(mfa, 7, tmp_path / "c", X, y, weight)
    for row in np.flatnonzero((y >= 0) & (weight > 0))[:10]:
        other = np.where(np.arange(N) == row, 1 - y, y)
        refused(mfa(checkpoint=path), path, "belongs to a fit with other data", X, other, weight)


OTHER_SETTINGS = [
    (mfa, {"n_components": 3}),
    (mfa, {"n_factors": 1}),
    (mfa, {"noise": "isotropic"}),
    (mfa, {"shared_noise": True}),
    (mfa, {"random_state": 1}),
    (mfa, {"n_init": 3}),
    (mfa, {"init": "random"}),
    (mfa, {"accelerate": "squarem"}),
    (mfa, {"noise_floor": 1e-5}),
    (mfa, {"dtype": "float32"}),
    (mfa, {"batch_size": 20}),
    (mfa, {"means_init": np.zeros((2, D))}),
    (gaussian, {"covariance_type": "diag"}),
    (gaussian, {"covariances_init": np.eye(D)}),
]


@pytest.mark.parametrize(("make", "other"), OTHER_SETTINGS, ids=[next(iter(o)) for _, o in OTHER_SETTINGS])
def test_a_checkpoint_of_other_settings(make, other, tmp_path):
    X = data()[0]
    path = killed(make, 7, tmp_path / "c", X)
    model = make(checkpoint=path).set_params(**other)
    (name,) = other
    refused(model, path, rf"c' belongs to a fit with other {name}; delete the file .* another path", X)


def test_all_that_differs_is_named(tmp_path):
    X = data()[0]
    path = killed(mfa, 7, tmp_path / "c", X, batch_size=20)
    other = mfa(checkpoint=path, batch_size=30, learning_decay=0.8, learning_offset=5)
    refused(other, path, "other batch_size, learning_decay, learning_offset;", X)
    other = mfa(checkpoint=path, batch_size=20, noise_floor=1e-5)
    refused(other, path, "other data, noise_floor;", X[1:])


def test_starting_values_are_compared(tmp_path):
    X = data()[0]
    means = X[:2]
    path = killed(mfa, 7, tmp_path / "c", X, means_init=means)
    refused(mfa(checkpoint=path, means_init=means + 1e-12), path, "other means_init;", X)
    resumed = mfa(checkpoint=path, means_init=means.copy()).fit(X)
    assert_identical(resumed, mfa(means_init=means).fit(X))


def test_a_checkpoint_of_another_model(tmp_path):
    X = data()[0]
    path = killed(mfa, 7, tmp_path / "c", X, noise="isotropic")
    refused(MPPCA(2, 2, **SETTINGS, checkpoint=path), path, "other model", X)
    refused(gaussian(checkpoint=path), path, "other model", X)


@pytest.mark.parametrize(
    "same",
    [{"n_components": np.int64(2)}, {"noise_floor": np.float64(1e-6)}, {"random_state": np.int64(0)}],
    ids=lambda same: next(iter(same)),
)
def test_the_same_number_of_another_type_is_the_same(same, tmp_path):
    X = data()[0]
    path = killed(mfa, 7, tmp_path / "c", X)
    resumed = mfa(checkpoint=path).set_params(**same).fit(X)
    assert_identical(resumed, mfa().fit(X))


def test_a_fit_may_go_on_with_another_number_of_threads(tmp_path, monkeypatch):
    """As on another machine, or in another queue."""
    X = rows(np.random.default_rng(1), 3000, D)
    monkeypatch.setattr(placement, "row_threads", lambda: 2)
    path = killed(mfa, 7, tmp_path / "c", X, n_init=1)
    monkeypatch.setattr(placement, "row_threads", lambda: 1)
    numbers = Numbers()
    mfa(n_init=1, checkpoint=path, callbacks=[numbers]).fit(X)
    assert numbers.seen[0] == 6


# -- files that are no checkpoints ----------------------------------------------------------------------


def test_a_model_file_is_not_overwritten(tmp_path):
    X = data()[0]
    path = tmp_path / "model"
    mfa(max_iter=1).fit(X).save(path)
    refused(mfa(checkpoint=path), path, r"model' is a model file, not a checkpoint; choose another path", X)


DAMAGES = {
    "cut-short": lambda content: content[:-7],
    "a-byte": lambda content: content[:-20] + bytes([content[-20] ^ 1]) + content[-19:],
    "text": lambda content: b"dear diary\n" * 50,
    "empty": lambda content: b"",
    "header-only": lambda content: content[:40],
    "another-program's": lambda content: safetensors.numpy.save({"a": np.zeros(3)}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_not_overwritten(damage, tmp_path):
    X = data()[0]
    path = killed(mfa, 7, tmp_path / "c", X)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    refused(mfa(checkpoint=path), path, r"c' is (damaged|truncated|a safetensors file)", X)


def test_a_checkpoint_is_no_model(tmp_path):
    path = killed(mfa, 7, tmp_path / "c", data()[0])
    with pytest.raises(ModelFileError, match="checkpoint"):
        latently.load(path)


@pytest.mark.parametrize("where", ["missing folder", "folder"])
def test_a_place_where_no_checkpoint_can_be_is_told_of_at_once(where, tmp_path):
    numbers = Numbers()
    path = tmp_path / "nowhere" / "c" if where == "missing folder" else tmp_path
    with pytest.raises((ValueError, OSError), match="checkpoint"):
        mfa(checkpoint=path, checkpoint_every=EVERY, callbacks=[numbers]).fit(data()[0])
    assert not numbers.seen


def test_a_fit_that_cannot_write_its_checkpoint_fails_as_a_whole(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    model = mfa(
        checkpoint=folder / "c",
        checkpoint_every=EVERY,
        callbacks=[lambda i: folder.exists() and folder.rmdir()],
    )
    before = vars(model).copy()
    with pytest.raises(OSError, match="folder"):
        model.fit(data()[0])
    assert_unchanged(model, before)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("checkpoint", 3),
        ("checkpoint", True),
        ("checkpoint_every", 0),
        ("checkpoint_every", 1.5),
        ("checkpoint_every", None),
    ],
)
def test_bad_settings_are_named(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .*, not {value!r}$"):
        mfa(**{name: value}).fit(data()[0])


def test_a_closed_form_needs_no_checkpoint(tmp_path):
    path = tmp_path / "c"
    PPCA(2, checkpoint=path, checkpoint_every=1).fit(data()[0])
    assert not list(tmp_path.iterdir())


# -- interrupted ----------------------------------------------------------------------------------------

WAYS = {
    "MFA": (mfa, {}),
    "MFA-squarem": (mfa, {"accelerate": "squarem"}),
    "GMM": (gaussian, {}),
    "GMM-squarem": (gaussian, {"accelerate": "squarem"}),
}
every_way = pytest.mark.parametrize(("make", "settings"), WAYS.values(), ids=WAYS)


def interrupt(iteration, number=5):
    if iteration.number == number:
        raise KeyboardInterrupt


def press_ctrl_c(iteration, number=5):
    if iteration.number == number:
        # a process started in the background ignores the signal, and so would its tests
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.signal(signal.SIGINT, before)


@contextmanager
def kept(message="interrupted"):
    """Inside, a fit is interrupted, which it says and survives."""
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        try:
            yield caught
        except KeyboardInterrupt:  # which would end the tests
            pytest.fail("the interrupt was not caught")
    assert len(caught) == 1


def assert_kept(model, X, weight=None):
    """A fitted model that says how good it is, whose likelihood never fell on the way."""
    assert not model.converged_
    assert len(model.history_) == model.n_iter_ + 1
    np.testing.assert_allclose(model.history_[-1], model.score(X, sample_weight=weight), rtol=1e-10)
    assert np.diff(model.history_).min(initial=0.0) > -1e-10


@pytest.mark.parametrize("how", [interrupt, press_ctrl_c])
@pytest.mark.parametrize("what", ["rows", "unlabelled"])
@every_way
def test_an_interrupted_fit_keeps_what_it_has(make, settings, what, how):
    X, _, weight = data(what)
    model = make(**settings, callbacks=[how])
    with kept(r"was interrupted; .* parameters of iteration 5"):
        model.fit(X, sample_weight=weight)
    assert_kept(model, X, weight)
    shorter = make(**settings, max_iter=5).fit(X, sample_weight=weight)
    for name, value in fitted_attributes(shorter).items():
        np.testing.assert_array_equal(getattr(model, name), value, err_msg=name)


def test_warnings_point_to_the_call_of_fit():
    with kept() as caught:
        mfa(callbacks=[interrupt]).fit(data()[0])
    assert caught[0].filename == __file__
    with pytest.warns(ConvergenceWarning, match="max_iter=2") as caught:
        mfa(max_iter=2, tol=1e-9).fit(data()[0])
    assert caught[0].filename == __file__


class Bomb:
    """Goes off when something is called for the n-th time."""

    def __init__(self, monkeypatch, owner, name, call):
        self.n_calls = 0
        original = getattr(owner, name)

        def counted(*args, **kwargs):
            self.n_calls += 1
            if self.n_calls == call:
                raise KeyboardInterrupt
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)


def given_starts(make):
    """Starting values, so that nothing is looked at before the first iteration."""
    start = make(max_iter=0).fit(data()[0])
    names = {"covariances": "covariances_init", "noise_variance": "noise_init"}
    return {names.get(name, f"{name}_init"): getattr(start, f"{name}_") for name in start._fitted_arrays()}


@pytest.mark.parametrize("call", [2, 3, 4, 5, 9, 13])
@every_way
def test_an_interrupt_inside_a_step(make, settings, call, monkeypatch):
    """At whichever look at the data: with SQUAREM an iteration has three."""
    X = data()[0]
    model = make(**settings, **given_starts(make))
    undisturbed = make(**settings, **given_starts(make)).fit(X)
    with monkeypatch.context() as patch:
        bomb = Bomb(patch, Mixture, "e_step", call)
        with kept():
            model.fit(X)
    assert bomb.n_calls == call
    assert_kept(model, X)
    assert model.n_iter_ == (call - 2 if settings == {} else (call - 2) // 3)
    np.testing.assert_array_equal(model.history_, undisturbed.history_[: model.n_iter_ + 1])


@every_way
def test_an_interrupt_before_anything_is_known(make, settings, monkeypatch):
    X = data()[0]
    model = make(**settings, **given_starts(make))
    for fitted in (False, True):
        before = vars(model).copy()
        with monkeypatch.context() as patch:
            Bomb(patch, Mixture, "e_step", 1)
            with pytest.raises(KeyboardInterrupt):
                model.fit(X)
        assert_unchanged(model, before)
        if not fitted:
            model.fit(X)


@pytest.mark.parametrize("call", [2, 5, 10, 16])
@every_way
def test_an_interrupt_while_starts_are_tried(make, settings, call, monkeypatch):
    X = data()[0]
    model = make(**settings | {"n_init": 20})  # enough for the last call: starts share passes over the rows
    with monkeypatch.context() as patch:
        Bomb(patch, Mixture, "e_step", call)
        with kept(r"interrupted; .* parameters of iteration 0"):
            model.fit(X)
    assert model.n_iter_ == 0
    assert_kept(model, X)


def test_an_interrupt_while_the_first_starts_are_sought(monkeypatch):
    X = data()[0]
    model = mfa(n_init=3)
    before = vars(model).copy()
    for owner, name in ((starts, "partitions"), (Mixture, "e_step")):
        with monkeypatch.context() as patch:
            Bomb(patch, owner, name, 1)
            with pytest.raises(KeyboardInterrupt):
                model.fit(X)
        assert_unchanged(model, before)


def test_an_interrupt_while_another_start_is_sought(monkeypatch):
    X = data()[0]
    model = mfa(n_init=20)
    with monkeypatch.context() as patch:
        Bomb(patch, starts.Starts, "_halves", 1)  # of starts near the best optimum found
        with kept():
            model.fit(X)
    assert_kept(model, X)


@pytest.mark.parametrize("reading", [1, 2, 3, 5, 9])
def test_an_interrupt_while_rows_are_read(reading):
    X = data()[0]
    n_readings = 0

    def blocks():
        nonlocal n_readings
        n_readings += 1
        yield X[:150]
        if n_readings == reading + 1:  # the first tells the number of features only
            raise KeyboardInterrupt
        yield X[150:]

    model = mfa(**given_starts(mfa))
    before = vars(model).copy()
    if reading < 4:  # two for the moments, and that of the starting values
        with pytest.raises(KeyboardInterrupt):
            model.fit(blocks)
        assert_unchanged(model, before)
        return
    with kept():
        model.fit(blocks)
    assert model.n_iter_ == reading - 4
    assert_kept(model, X)


@pytest.mark.parametrize("number", [0, 3])
def test_an_interrupt_between_mini_batches(number):
    X = data()[0]
    model = mfa(batch_size=50, callbacks=[lambda iteration: interrupt(iteration, number)])
    with kept():
        model.fit(X)
    assert model.n_iter_ == number + 1 and len(model.history_) == number + 2
    np.testing.assert_allclose(model.history_[-1], model.score(X), rtol=1e-10)
    assert_identical(model, mfa(batch_size=50, max_iter=number + 1).fit(X))


def test_an_interrupt_inside_a_mini_batch(monkeypatch):
    X = data()[0]
    starts = given_starts(mfa)
    for call in (2, 7):  # four batches in a pass
        model = mfa(batch_size=50, **starts)
        before = vars(model).copy()
        with monkeypatch.context() as patch:
            Bomb(patch, Mixture, "e_step", call)
            if call < 5:
                with pytest.raises(KeyboardInterrupt):
                    model.fit(X)
                assert_unchanged(model, before)
                continue
            with kept():
                model.fit(X)
        assert model.n_iter_ == 1 and len(model.history_) == 2
        np.testing.assert_allclose(model.history_[-1], model.score(X), rtol=1e-10)


def test_an_interrupt_while_starts_are_tried_ends_mini_batches_too(monkeypatch):
    X = data()[0]
    numbers = Numbers()
    model = mfa(batch_size=50, max_iter=2, n_init=3, callbacks=[numbers])
    Bomb(monkeypatch, Mixture, "e_step", 5)
    with kept():
        model.fit(X)
    assert not numbers.seen


def test_an_interrupt_of_the_last_look_keeps_mini_batches(monkeypatch):
    X = data()[0]
    model = mfa(batch_size=50, max_iter=3, **given_starts(mfa))
    Bomb(monkeypatch, Mixture, "e_step", 3 * 4 + 1)
    with kept():
        model.fit(X)


@em_or_mini_batches
def test_an_interrupted_fit_can_be_gone_on_with(settings, tmp_path):
    X = data()[0]
    model = mfa(**settings, checkpoint=tmp_path / "c", checkpoint_every=2, callbacks=[press_ctrl_c])
    with kept():
        model.fit(X)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    numbers = Numbers()
    model.set_params(callbacks=[numbers]).fit(X)
    assert numbers.seen[0] in (4, 6)
    assert_identical(model, mfa(**settings).fit(X))
    assert not list(tmp_path.iterdir())


def test_an_interrupt_while_going_on(tmp_path, monkeypatch):
    """Before the first step after a checkpoint, the model is that of the last step before it."""
    X = data()[0]
    path = killed(mfa, 7, tmp_path / "c", X)
    model = mfa(checkpoint=path)
    with monkeypatch.context() as patch:
        Bomb(patch, Mixture, "e_step", 1)
        with kept(r"interrupted; .* parameters of iteration 5"):
            model.fit(X)
    assert_kept(model, X)
    assert path.exists()
    assert_identical(model.fit(X), mfa().fit(X))


@pytest.mark.parametrize(
    "moved",
    [
        False,
        True,
    ],
    ids=["before", "after"],
)
def test_an_interrupt_while_a_checkpoint_is_written(moved, tmp_path, monkeypatch):
    X = data()[0]
    replace = os.replace

    def interrupted(*paths):
        if moved:
            replace(*paths)
        raise KeyboardInterrupt

    model = mfa(checkpoint=tmp_path / "c", checkpoint_every=EVERY)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with kept():
            model.fit(X)
    assert_kept(model, X)
    assert [path.name for path in tmp_path.iterdir()] == ["c"] * moved
    assert_identical(model.fit(X), mfa().fit(X))


def test_an_interrupt_while_a_reader_starts(monkeypatch):
    """Ctrl-C comes to the main thread, which may be waiting for a thread to start."""
    X = data()[0]
    start = threading.Thread.start
    n_starts = 0

    def interrupted(thread):
        nonlocal n_starts
        start(thread)
        if "latently-ahead" in thread.name:
            n_starts += 1
            if n_starts == 6:
                raise KeyboardInterrupt

    def blocks():
        time.sleep(0.02)
        yield X

    model = mfa(**given_starts(mfa))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with kept():
            model.fit(blocks)
    assert_kept(model, X)


def test_an_interrupted_fit_is_a_failed_one_where_warnings_are_errors():
    X = data()[0]
    model = mfa(callbacks=[interrupt])
    before = vars(model).copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning, match="interrupted"):
            model.fit(X)
    assert_unchanged(model, before)
