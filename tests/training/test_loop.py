"""The training loop: what it learns, when it ends, what it tells."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from latently.core.drivers import Iteration, Result
from latently.core.progress import Progress
from latently.training.batches import Rows
from latently.training.generators import Generators, initialise
from latently.training.loop import train
from latently.training.modules import module_arrays
from tests.training.helpers import ContrastiveMean, NoisyAutoencoder, correlated_rows


def linear(n_inputs, n_outputs, generators, bias=True):
    return initialise(nn.Linear(n_inputs, n_outputs, bias=bias).double(), generators.initialisation)


def logistic_regression(X, y, weight=None, penalty=0.05, **options):
    """Trained by full batches, so that gradients have no noise."""
    generators = Generators.from_seed(0)
    module = linear(X.shape[1], 1, generators)
    rows = Rows(X, y, weight, batch_size=len(X), dtype="float64")

    def step(batch):
        errors = nn.functional.binary_cross_entropy_with_logits(
            module(batch.X)[:, 0], batch.y.double(), reduction="none"
        )
        return {"loss": batch.mean(errors) + 0.5 * penalty * (module.weight**2).sum()}

    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9)
    return train(step, module, rows, generators, optimizer=optimizer, max_iter=400, **options)


# -- what it learns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_logistic_regression_finds_what_scikit_learn_does(weighted):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 3))
    y = (X @ [1.0, -2.0, 0.5] + rng.normal(size=80) > 0).astype(int)
    weight = rng.choice([0.0, 0.5, 2.0], size=80) if weighted else None
    total = 80 if weight is None else weight.sum()
    result = logistic_regression(X, y, weight)
    reference = LogisticRegression(C=1 / (0.05 * total), tol=1e-10).fit(X, y, sample_weight=weight)
    assert np.allclose(result.params.weight.detach(), reference.coef_, atol=1e-5)
    assert np.allclose(result.params.bias.detach(), reference.intercept_, atol=1e-5)


def test_linear_autoencoder_finds_the_principal_subspace():
    X = np.random.default_rng(0).normal(size=(120, 5)) * [2.0, 1.8, 0.8, 0.7, 0.6]
    X -= X.mean(axis=0)
    generators = Generators.from_seed(0)
    module = nn.Sequential(linear(5, 2, generators, bias=False), linear(2, 5, generators, bias=False))
    rows = Rows(X, batch_size=30, dtype="float64")

    def step(batch):
        return {"loss": batch.mean(((module(batch.X) - batch.X) ** 2).sum(dim=1))}

    optimizer = torch.optim.Adam(module.parameters(), lr=0.03)
    result = train(
        step, module, rows, generators, optimizer=optimizer, max_iter=100, schedule=lambda epoch: 0.95**epoch
    )
    left_over = (np.linalg.svd(X, compute_uv=False)[2:] ** 2).sum() / len(X)
    assert left_over <= result.history[-1] < 1.001 * left_over


def test_step_that_moves_parameters_itself():
    X = correlated_rows(400) + [3.0, -1.0, 0.0, 2.0, 5.0]
    generators, module = Generators.from_seed(0), ContrastiveMean(5).double()
    rows = Rows(X, batch_size=50, dtype="float64")
    result = train(
        module.step, module, rows, generators, max_iter=40, objective="log-likelihood", maximise=True
    )
    assert np.allclose(module.mean, X.mean(axis=0), atol=0.25)
    assert result.history[-1] > result.history[0] + 1
    assert result.maximise and result.losses == {"log-likelihood": result.history}


# -- the record --------------------------------------------------------------------------------------------


def test_history_has_one_entry_for_every_epoch():
    result = NoisyAutoencoder().train(max_iter=4)
    assert isinstance(result, Result)
    assert (len(result.history), result.n_iter, result.converged, result.interrupted) == (4, 4, False, False)
    assert result.losses.keys() == {"loss", "largest"}
    assert result.losses["loss"] == result.history
    assert not result.params.training


def test_no_epochs_return_the_start():
    model = NoisyAutoencoder()
    before = module_arrays(model.module)
    result = model.train(max_iter=0)
    assert (result.history, result.n_iter) == ([], 0)
    assert all(np.array_equal(before[name], value) for name, value in module_arrays(result.params).items())


def test_history_is_the_mean_over_rows_whatever_the_batches():
    X = correlated_rows(10)
    for size in (1, 3, 4, 10):
        module = nn.Linear(1, 1)
        rows = Rows(X, batch_size=size, dtype="float64", weight=np.arange(10))
        result = train(
            lambda batch: {"loss": batch.mean(batch.X[:, 0])},
            module,
            rows,
            Generators.from_seed(0),
            max_iter=1,
        )
        assert result.history == pytest.approx([np.average(X[:, 0], weights=np.arange(10))])


def test_callbacks_are_told_of_every_epoch_and_may_end():
    seen = []

    def stop_at_three(iteration):
        seen.append(iteration)
        return iteration.number == 3

    result = NoisyAutoencoder().train(max_iter=9, callbacks=[stop_at_three])
    assert (result.n_iter, result.converged) == (3, False)
    first, second, third = seen
    assert first == Iteration(1, result.history[0], np.inf, 9)
    assert second.gain == result.history[0] - result.history[1]  # a loss gains where it falls
    assert third.number == 3


def test_progress_is_a_callback(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rich", None)
    with Progress("Autoencoder", "loss") as progress:
        NoisyAutoencoder().train(max_iter=2, callbacks=[progress])
    assert "Autoencoder: iteration 2, loss" in capsys.readouterr().out


def test_schedule_multiplies_the_learning_rate():
    model, seen = NoisyAutoencoder("plain"), []
    rate = model.optimizer.param_groups[0]["lr"]

    def look(iteration):
        seen.append(model.optimizer.param_groups[0]["lr"])

    model.train(max_iter=3, schedule=lambda epoch: 1 / (1 + epoch), callbacks=[look])
    assert seen == pytest.approx([rate, rate / 2, rate / 3])
    assert model.optimizer.param_groups[0]["lr"] == rate


# -- validation and early stopping -------------------------------------------------------------------------


def wandering(values, **options):
    """A training whose losses are those given: one batch an epoch, the parameter counts epochs."""
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)

    def step(batch):
        module.weight += 1
        return {"loss": values[batch.epoch]}

    rows = Rows(np.ones((3, 1)), batch_size=3)
    return train(step, module, rows, Generators.from_seed(0), max_iter=len(values), **options)


def test_patience_ends_the_training_and_restores_the_best():
    result = wandering([5.0, 3.0, 4.0, 2.0, 2.5, 2.625, 2.75, 1.0], patience=3)
    assert (result.n_iter, result.converged) == (4, True)
    assert result.history == [5.0, 3.0, 4.0, 2.0]  # the last entry is that of what is returned
    assert result.losses["loss"] == [5.0, 3.0, 4.0, 2.0, 2.5, 2.625, 2.75]
    assert float(result.params.weight.detach()) == 4


def test_patience_counts_small_gains_as_none():
    result = wandering([5.0, 4.99, 4.98, 4.97, 1.0], patience=2, tol=0.01)
    assert (result.n_iter, result.converged) == (3, True)  # the best of all, even so
    assert wandering([5.0, 4.9, 4.8, 4.7, 1.0], patience=2, tol=0.01).n_iter == 5


def test_patience_of_what_should_rise():
    assert wandering([1.0, 3.0, 2.0, 2.0, 9.0], patience=2, maximise=True).n_iter == 2


def test_best_state_is_restored_where_all_epochs_were_done():
    result = wandering([5.0, 1.0, 4.0], patience=9)
    assert (result.n_iter, result.converged, float(result.params.weight.detach())) == (2, False, 2)


def test_validation_rows_are_looked_at_but_not_learnt_from():
    X = correlated_rows()
    model = NoisyAutoencoder(X=X)
    training, validation = model.rows.split(0.25, np.random.default_rng(0))
    assert (len(training), len(validation)) == (90, 30)
    numbers = {"train": set(), "validate": set()}

    def step(batch):
        mode = "train" if model.module.training else "validate"
        assert torch.is_grad_enabled() == (mode == "train")
        numbers[mode] |= set(batch.rows.tolist())
        return model.step(batch)

    result = train(
        step,
        model.module,
        training,
        model.generators,
        optimizer=model.optimizer,
        validation=validation,
        max_iter=3,
        patience=5,
    )
    assert numbers["train"] & numbers["validate"] == set()
    assert numbers["train"] | numbers["validate"] == set(range(120))
    assert result.losses.keys() == {"loss", "largest", "validation loss", "validation largest"}
    alone = NoisyAutoencoder(X=X)
    alone.rows = training
    assert alone.train(max_iter=3).losses["loss"] == result.losses["loss"]  # the look costs training no draw


def test_validation_decides_where_there_is_any():
    losses = iter([5.0, 3.0, 4.0, 4.0])
    rows = Rows(np.ones((2, 1)), batch_size=2)
    result = train(
        lambda batch: {"loss": -float(batch.epoch)},
        nn.Linear(1, 1),
        rows,
        Generators.from_seed(0),
        max_iter=9,
        validation=rows,
        evaluate=lambda batch: {"loss": next(losses)},
        patience=2,
    )
    assert (result.n_iter, result.converged, result.history) == (2, True, [0.0, -1.0])


def test_validation_sees_the_same_draws_each_time():
    draws = []
    rows = Rows(np.ones((2, 1)), batch_size=2)

    def look(batch):
        draws.append(float(torch.rand(1, generator=batch.generator)))
        return {"loss": 0.0}

    train(look, nn.Linear(1, 1), rows, Generators.from_seed(0), max_iter=3, validation=rows, evaluate=look)
    assert len(set(draws[1::2])) == 1 and len(set(draws[::2])) == 3


# -- interrupts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("patience", "kept"), [(None, 3), (5, 2)])
def test_interrupt_keeps_the_best_or_the_last_epoch(patience, kept):
    module, losses = nn.Linear(1, 1, bias=False), [5.0, 1.0, 4.0, 9.0]
    nn.init.zeros_(module.weight)

    def step(batch):
        module.weight += 0.5
        if batch.epoch == 3 and float(module.weight.detach()) > 3.4:  # in the middle of an epoch
            raise KeyboardInterrupt
        return {"loss": losses[batch.epoch]}

    rows = Rows(np.ones((4, 1)), batch_size=2)
    result = train(step, module, rows, Generators.from_seed(0), max_iter=9, patience=patience)
    assert result.interrupted and not result.converged
    assert (result.n_iter, result.history) == (kept, losses[:kept])
    assert float(module.weight.detach()) == kept
    assert result.losses["loss"] == losses[:3]


def test_interrupt_before_anything_was_learnt_is_passed_on():
    def step(batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(step, nn.Linear(1, 1), Rows(np.ones((4, 1)), batch_size=2), Generators.from_seed(0), max_iter=2)


# -- errors ------------------------------------------------------------------------------------------------


def test_loss_that_is_not_finite_says_which_when_and_what_to_do():
    model = NoisyAutoencoder("plain")
    model.optimizer.param_groups[0]["lr"] = 1e30
    with pytest.raises(FloatingPointError, match=r"loss 'loss' became .* in epoch 1; lower learning_rate"):
        model.train(max_iter=20)


def test_record_that_is_not_finite_is_an_error_too():
    with pytest.raises(FloatingPointError, match="loss 'loss' became nan in epoch 2"):
        wandering([1.0, float("nan"), 1.0])


def test_steps_that_return_the_wrong_thing():
    model = NoisyAutoencoder()
    with pytest.raises(ValueError, match=r"shape \(32,\).*batch.mean"):
        train(
            lambda batch: {"loss": batch.X[:, 0]},
            model.module,
            Rows(correlated_rows(32), batch_size=32),
            model.generators,
            optimizer=model.optimizer,
            max_iter=1,
        )
    model.step = lambda batch: {"error": batch.X.mean()}
    with pytest.raises(ValueError, match=r"must return a tensor 'loss'.*\['error'\]"):
        model.train(max_iter=1)
    with pytest.raises(ValueError, match=r"returned no 'bound', only \['loss'\]"):
        wandering([1.0], objective="bound")


def test_settings_that_do_not_go_together():
    rows = Rows(np.ones((2, 1)), batch_size=2)
    with pytest.raises(ValueError, match="validation rows need evaluate="):
        wandering([1.0], validation=rows)
    with pytest.raises(ValueError, match="schedule= needs an optimizer"):
        wandering([1.0], schedule=lambda epoch: 1.0)
