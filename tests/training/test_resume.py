"""A training that was killed goes on from its checkpoint as if it had not been, bit for bit."""

import numpy as np
import pytest
import torch
from torch import nn

from latently.core.checkpoint import Checkpoint
from latently.core.io import ModelFileError
from latently.training.batches import Rows
from latently.training.generators import Generators
from latently.training.loop import train
from latently.training.modules import module_arrays
from tests.training.helpers import OPTIMIZERS, ContrastiveMean, Killed, NoisyAutoencoder, killer

MAX_ITER = 7


def place(tmp_path, **belongs_to):
    return Checkpoint(tmp_path / "state", {"model": "test", **belongs_to})


def same(first, second):
    one, other = module_arrays(first.params), module_arrays(second.params)
    assert (first.history, first.losses, first.n_iter) == (second.history, second.losses, second.n_iter)
    assert (first.converged, first.interrupted) == (second.converged, second.interrupted)
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("killed_at", [1, 4, 6])
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_resumed_training_equals_the_undisturbed(optimizer, every, killed_at, tmp_path):
    schedule = {"max_iter": MAX_ITER, "schedule": lambda epoch: 0.9**epoch}
    whole = NoisyAutoencoder(optimizer).train(**schedule)
    saving = {"checkpoint": place(tmp_path), "checkpoint_every": every}
    with pytest.raises(Killed):
        NoisyAutoencoder(optimizer).train(callbacks=[killer(killed_at)], **schedule, **saving)
    assert place(tmp_path).exists() == (killed_at > every)
    seed = 99 if place(tmp_path).exists() else 0  # all that the seed decides is in the file
    resumed = NoisyAutoencoder(optimizer, seed=seed).train(**schedule, **saving)
    same(resumed, whole)


@pytest.mark.parametrize("killed_at", [2, 5])
def test_step_without_optimizer_resumes_too(killed_at, tmp_path):
    def fit(**options):
        module = ContrastiveMean(2)
        rows = Rows(np.random.default_rng(0).normal(size=(50, 2)) + 3, batch_size=10)
        settings = {"objective": "log-likelihood", "maximise": True, "max_iter": MAX_ITER}
        return train(module.step, module, rows, Generators.from_seed(0), **settings, **options)

    with pytest.raises(Killed):
        fit(callbacks=[killer(killed_at)], checkpoint=place(tmp_path))
    same(fit(checkpoint=place(tmp_path)), fit())


@pytest.mark.parametrize("killed_at", [2, 4, 5])
def test_best_state_and_patience_resume(killed_at, tmp_path):
    losses = [5.0, 3.0, 4.0, 2.0, 2.5, 2.6, 2.7, 1.0]

    def fit(**options):
        module = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(module.weight)

        def step(batch):
            module.weight += 1
            return {"loss": losses[batch.epoch]}

        rows = Rows(np.ones((3, 1)), batch_size=3)
        return train(step, module, rows, Generators.from_seed(0), max_iter=8, patience=3, **options)

    with pytest.raises(Killed):
        fit(callbacks=[killer(killed_at)], checkpoint=place(tmp_path))
    resumed = fit(checkpoint=place(tmp_path))
    same(resumed, fit())
    assert resumed.n_iter == 4 and resumed.converged


def test_validation_resumes(tmp_path):
    def fit(seed, **options):
        model = NoisyAutoencoder(seed=seed)
        training, model.validation = model.rows.split(0.3, np.random.default_rng(0))
        model.rows = training
        return model.train(validation=model.validation, patience=2, max_iter=MAX_ITER, **options)

    whole = fit(0)
    with pytest.raises(Killed):
        fit(0, callbacks=[killer(4)], checkpoint=place(tmp_path))
    same(fit(1, checkpoint=place(tmp_path)), whole)


def test_finished_training_is_not_repeated_but_may_go_on(tmp_path):
    def fit(max_iter, **options):
        model = NoisyAutoencoder(seed=0)
        return model.train(max_iter=max_iter, checkpoint=place(tmp_path), checkpoint_every=100, **options)

    first = fit(3)
    same(fit(3, callbacks=[killer(3)]), first)
    same(fit(6), NoisyAutoencoder().train(max_iter=6))

    place(tmp_path).remove()
    ended = fit(6, callbacks=[lambda iteration: iteration.number == 2])
    same(fit(6), ended)


def test_interrupted_training_goes_on(tmp_path):
    def interrupt(iteration):
        if iteration.number == 3:
            raise KeyboardInterrupt

    result = NoisyAutoencoder().train(max_iter=5, checkpoint=place(tmp_path), callbacks=[interrupt])
    assert result.interrupted and result.n_iter == 3
    same(
        NoisyAutoencoder().train(max_iter=5, checkpoint=place(tmp_path)), NoisyAutoencoder().train(max_iter=5)
    )


# -- checkpoints that do not fit -----------------------------------------------------------------------------


def written(tmp_path, optimizer="adam", **belongs_to):
    NoisyAutoencoder(optimizer).train(max_iter=1, checkpoint=place(tmp_path, **belongs_to))


def test_checkpoint_of_another_fit(tmp_path):
    written(tmp_path, learning_rate=0.1)
    with pytest.raises(ValueError, match="belongs to a fit with other learning_rate; delete the file"):
        NoisyAutoencoder().train(max_iter=2, checkpoint=place(tmp_path, learning_rate=0.2))


def test_checkpoint_of_another_module(tmp_path):
    written(tmp_path)
    model = NoisyAutoencoder()
    model.module[4] = nn.Linear(4, 5).double()
    with pytest.raises(
        ValueError, match=r"does not match this model: 4.weight must have .*float64.*start again"
    ):
        model.train(max_iter=2, checkpoint=place(tmp_path))
    model.module[4] = nn.Identity()
    with pytest.raises(ValueError, match=r"does not match this model: .*unknown"):
        model.train(max_iter=2, checkpoint=place(tmp_path))


def test_checkpoint_of_another_optimizer(tmp_path):
    written(tmp_path)
    model = NoisyAutoencoder()
    with pytest.raises(ValueError, match="state of an optimizer, but no optimizer was given"):
        train(model.step, model.module, model.rows, model.generators, max_iter=2, checkpoint=place(tmp_path))
    model.optimizer = torch.optim.Adam([model.module[0].weight])
    with pytest.raises(ValueError, match="the optimizer has 1 parameters"):
        model.train(max_iter=2, checkpoint=place(tmp_path))
    model.optimizer = torch.optim.Adam(reversed(list(model.module.parameters())))
    with pytest.raises(ValueError, match="of parameter 0 has shape"):
        model.train(max_iter=2, checkpoint=place(tmp_path))


def test_damaged_checkpoint(tmp_path):
    written(tmp_path)
    path = tmp_path / "state"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="damaged"):
        NoisyAutoencoder().train(max_iter=2, checkpoint=place(tmp_path))


def test_optimizer_that_no_checkpoint_can_hold(tmp_path):
    for past in ([torch.zeros(4, 5)], torch.zeros(3)):
        model = NoisyAutoencoder("plain")
        model.optimizer.state[model.module[0].weight]["past"] = past
        with pytest.raises(NotImplementedError, match="cannot hold 'past' of SGD, which is neither"):
            model.train(max_iter=1, checkpoint=place(tmp_path))
