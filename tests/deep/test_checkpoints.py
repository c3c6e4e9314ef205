"""Fits of several stages that are killed resume from their checkpoint, wherever they were."""

import shutil

import numpy as np
import pytest

from latently.core.checkpoint import Checkpoint
from latently.deep import DMCFA, DMFA
from tests.deep.test_deep import clusters

every_model = pytest.mark.parametrize("cls", [DMFA, DMCFA])
SIZES = {
    "one for all": (2, 2, 2, 1),
    "three layers": (2, 2, [2, [1, 2, 1, 2]], (2, 1)),  # a list of lists of several lengths
}
SETTINGS = {"random_state": 0, "n_init": 1, "tol": 1e-5, "max_iter": 100, "prior": None}


class Killed(BaseException):
    """What nothing catches, as SIGKILL; but this process lives on."""


def killed_after(n_writes, model, X, *more):
    """A fit that is killed after so many writes of its checkpoint; whether it was."""
    write, count = Checkpoint.write, 0

    def counted(self, *args):
        nonlocal count
        write(self, *args)
        if hasattr(self, "path"):  # the file, not one stage of it
            count += 1
            if count == n_writes:
                raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "write", counted)
        try:
            model.fit(X, *more)
        except Killed:
            return True
    return False


def assert_identical(actual, expected, X):
    for name in ("history_", "n_iter_", "n_passes_", "converged_", "weights_"):
        np.testing.assert_array_equal(getattr(actual, name), getattr(expected, name), err_msg=name)
    for ours, theirs in zip(actual.bound_history_, expected.bound_history_, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for mine, other in zip(actual.layers_, expected.layers_, strict=True):
        for one, another in zip(mine, other, strict=True):
            np.testing.assert_array_equal(one.loadings_, another.loadings_)
            np.testing.assert_array_equal(one.noise_variance_, another.noise_variance_)
    np.testing.assert_array_equal(actual.score_samples(X), expected.score_samples(X))
    np.testing.assert_array_equal(actual.bound(X), expected.bound(X))


def stage_of(path):
    """How many stages are finished, and whether one was running."""
    header = Checkpoint(path, {}).read({})[2]
    return len(header["finished"]), header["running"] is not None


def snapshots(model, X, folder):
    """The checkpoints that kills at every stage would leave: by stages finished, and whether one ran."""
    write, found = Checkpoint.write, {}

    def copied(self, records, history, numbers):
        write(self, records, history, numbers)
        if hasattr(self, "path"):
            key = len(numbers["finished"]), numbers["running"] is not None
            found[key] = shutil.copy(self.path, folder / f"{len(found)}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "write", copied)
        model.fit(X)
    return found


@every_model
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("sizes", "inputs"),
    [("one for all", "sampled"), ("three layers", "expected")],
)
def test_a_fit_killed_anywhere_ends_where_the_undisturbed_one_does(cls, sizes, inputs, tmp_path):
    X = clusters(0, 80)
    X[np.random.default_rng(0).random(X.shape) < 0.05] = np.nan
    settings = {"inputs": inputs, "fine_tune": True, **SETTINGS, "max_iter": 12}
    undisturbed = cls(*SIZES[sizes], **settings).fit(X)
    (tmp_path / "copies").mkdir()
    path = tmp_path / "checkpoint"
    model = cls(*SIZES[sizes], checkpoint=path, checkpoint_every=1, **settings)
    found = snapshots(model, X, tmp_path / "copies")
    assert not path.exists()
    n_mixtures = {"one for all": 2, "three layers": 2 + 4}[sizes]
    assert {key for key in found if not key[1]} == {(n, False) for n in range(1, n_mixtures + 3)}
    running = {number for number, runs in found if runs}
    assert {0, 1, n_mixtures + 1} <= running  # first layer, a mixture above it, fine-tuning
    for copy in found.values():
        shutil.copy(copy, path)
        assert_identical(model.fit(X), undisturbed, X)
        assert not path.exists()


@every_model
def test_a_fit_may_be_killed_again_and_again(cls, tmp_path):
    X = clusters(1, 80)
    settings = {"fine_tune": True, **SETTINGS}
    model = cls(2, 2, 2, 1, checkpoint=tmp_path / "c", checkpoint_every=2, **settings)
    n_kills = 0
    while killed_after(2, model, X):  # every life sees the file written twice
        n_kills += 1
    assert n_kills > 4
    undisturbed = cls(2, 2, 2, 1, **settings).fit(X)
    assert_identical(model, undisturbed, X)
    assert not list(tmp_path.iterdir())


@every_model
def test_labels_and_weights(cls, tmp_path):
    X = clusters(2, 80)
    rng = np.random.default_rng(0)
    given = np.where(rng.random(80) < 0.2, rng.integers(2, size=80), -1), rng.integers(1, 4, size=80)
    model = cls(2, 2, 2, 1, fine_tune=True, checkpoint=tmp_path / "c", checkpoint_every=3, **SETTINGS)
    undisturbed = cls(2, 2, 2, 1, fine_tune=True, **SETTINGS).fit(X, *given)
    assert killed_after(4, model, X, *given)
    with pytest.raises(ValueError, match="belongs to a fit with other data"):
        model.fit(X, given[0])
    assert_identical(model.fit(X, *given), undisturbed, X)


@pytest.mark.parametrize(
    "seed",
    [lambda: np.random.default_rng(3), lambda: np.random.RandomState(3), lambda: None],
    ids=["Generator", "RandomState", "None"],
)
def test_seeds_are_in_the_checkpoint(seed, tmp_path):
    """Also those of later stages, which nobody could draw again."""
    X = clusters(3, 80)
    settings = {**SETTINGS, "inputs": "sampled", "checkpoint_every": 3}
    path = tmp_path / "c"
    assert killed_after(1, DMFA(2, 2, 2, 1, **settings | {"random_state": seed()}, checkpoint=path), X)
    assert stage_of(path) == (0, True)
    copies = [shutil.copy(path, tmp_path / name) for name in "ab"]
    a, b = (
        DMFA(2, 2, 2, 1, **settings | {"random_state": seed()}, checkpoint=copy).fit(X) for copy in copies
    )
    assert_identical(a, b, X)
    if seed() is not None:
        assert_identical(a, DMFA(2, 2, 2, 1, **settings | {"random_state": seed()}).fit(X), X)


@pytest.mark.parametrize(
    "other",
    [
        {"n_subcomponents": 3},
        {"n_subfactors": 2},
        {"fine_tune": True},
        {"prior_rows": 3.0},
        {"inputs": "sampled"},
        {"random_state": 1},
        {"max_iter": 50},  # what is finished was ended by it
        {"tol": 1e-6},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_checkpoint_of_other_settings(other, tmp_path):
    X = clusters(4, 60)
    path = tmp_path / "c"
    model = DMFA(2, 2, 2, 1, **SETTINGS, checkpoint=path, checkpoint_every=2)
    assert killed_after(1, model, X)
    content = path.read_bytes()
    with pytest.raises(ValueError, match=rf"belongs to a fit with other {next(iter(other))};"):
        model.set_params(**other).fit(X)
    assert path.read_bytes() == content and not hasattr(model, "layers_")


@pytest.mark.filterwarnings("ignore:.*did not converge")  # from where the interrupt left them
@every_model
@pytest.mark.parametrize("stage", [0, 1, 3], ids=["first layer", "mixture", "fine-tuning"])
def test_an_interrupted_fit_is_kept_and_can_be_continued(cls, stage, tmp_path):
    X = clusters(5, 80)
    settings = {"fine_tune": True, **SETTINGS}
    path = tmp_path / "c"
    model = cls(2, 2, 2, 1, checkpoint=path, checkpoint_every=1, **settings)
    write = Checkpoint.write

    def pressed(self, records, history, numbers):
        write(self, records, history, numbers)
        if hasattr(self, "path") and len(numbers["finished"]) == stage and numbers["running"]:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.warns(UserWarning, match="was interrupted"):
        patch.setattr(Checkpoint, "write", pressed)
        model.fit(X)
    assert np.all(np.isfinite(model.score_samples(X)))
    assert stage_of(path) == (stage, True)
    assert_identical(model.fit(X), cls(2, 2, 2, 1, **settings).fit(X), X)
    assert not list(tmp_path.iterdir())
