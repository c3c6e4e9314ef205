"""Replayed steps: the same results as plain ones, and no step that a CUDA graph could not hold."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from latently.deep import DBN, RBM, VAE
from latently.training.generators import Generators
from latently.training.graphs import Recorder, Steps, recorder
from latently.training.modules import module_arrays
from tests.training.helpers import NoisyAutoencoder
from tests.training.replays import FakeRecorder, NoHostReads, replaying


@pytest.mark.parametrize(("n", "n_recorded", "n_replayed"), [(120, 3, 9), (126, 6, 6), (20, 0, 0)])
def test_replayed_training_equals_the_plain_one(monkeypatch, n, n_recorded, n_replayed):
    """Batches of one size (4 of 30), of two (31 and 32), and so few that none comes again."""
    X = np.random.default_rng(0).normal(size=(n, 5))
    settings = {"max_iter": 3, "schedule": lambda epoch: 0.5**epoch}
    plain = NoisyAutoencoder("momentum", X=X)
    expected = plain.train(**settings)
    replayed, recorder = NoisyAutoencoder("momentum", X=X), replaying(monkeypatch)
    found = replayed.train(static=True, **settings)
    assert (recorder.n_recorded, recorder.n_replayed) == (n_recorded, n_replayed)
    assert found.losses == expected.losses
    theirs = module_arrays(plain.module)
    for name, array in module_arrays(replayed.module).items():
        np.testing.assert_array_equal(array, theirs[name])


def test_steps_of_many_sizes_run_as_they_are():
    """Only two sizes are recorded, as each takes memory."""
    recorder = FakeRecorder()
    steps, rows = Steps(lambda batch: {"sum": batch.X.sum()}, recorder), NoisyAutoencoder().rows
    generator = Generators.from_seed(0).sampling
    (batch, *_) = rows.batches(generator)
    with steps.epoch():
        for n in (5, 6, 7) * 3:
            part = type(batch)(batch.X[:n] + n, None, None, batch.rows[:n], generator, 0)
            assert float(steps(part)["sum"]) == float(part.X.sum())
    assert (recorder.n_recorded, recorder.n_replayed) == (2, 4)


MODELS = {
    "RBM": lambda: RBM(4, momentum=0.5, weight_decay=1e-3, sparsity_target=0.1),
    "RBM with chains": lambda: RBM(4, persistent=True, n_gibbs=2),
    "Gaussian RBM with chains": lambda: RBM(4, visible="gaussian", persistent=True),
    "DBN": lambda: DBN((5, 4), fine_tune=3),
    "DBN with chains": lambda: DBN((5, 4), fine_tune=3, persistent=True),
    "VAE": lambda: VAE(2, hidden_layer_sizes=(4,), learning_rate_schedule="cosine", warm_up=2),
    "Bernoulli VAE": lambda: VAE(2, hidden_layer_sizes=(4,), likelihood="bernoulli", binarize=True),
    "convolutional VAE": lambda: VAE(2, hidden_layer_sizes=(3,), image_shape=(2, 3)),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_models_can_be_replayed(monkeypatch, name, weighted):
    """No step reads a tensor on the host, and results are those of plain steps."""
    rng = np.random.default_rng(0)
    X, y = (rng.random((90, 6)) < 0.4).astype(float), rng.integers(-1, 3, size=90)
    given = {"sample_weight": rng.random(90)} if weighted else {}
    fit = lambda: MODELS[name]().set_params(batch_size=15, max_iter=3, random_state=0).fit(X, y, **given)
    expected, recorder = fit(), replaying(monkeypatch)
    found = fit()
    n_epochs = len(found.history_)
    assert (recorder.n_recorded, recorder.n_replayed) == (n_epochs, 5 * n_epochs)
    assert found.history_.tolist() == expected.history_.tolist()
    theirs = module_arrays(expected.module_)
    for name, array in module_arrays(found.module_).items():
        np.testing.assert_array_equal(array, theirs[name])


def test_networks_of_the_user_are_not_replayed(monkeypatch):
    recorder = replaying(monkeypatch)
    coder = torch.nn.Linear(6, 4)
    VAE(2, encoder=coder, batch_size=10, max_iter=1, random_state=0).fit(
        np.random.default_rng(0).random((60, 6))
    )
    assert recorder.n_recorded == 0


def test_reading_a_tensor_is_noticed():
    with NoHostReads():
        total = torch.ones(3).sum()
        with pytest.raises(RuntimeError, match="host wait"):
            bool(total > 0)


class FakeGraph:
    """A CUDA graph that notes what it is told, and replays by calling again."""

    def __init__(self):
        self.shares, self.generator, self.is_open = None, None, False

    def register_generator_state(self, generator):
        self.generator = generator

    def capture_begin(self, pool=None, capture_error_mode="global"):
        self.shares, self.is_open = pool, True

    def capture_end(self):
        self.is_open = False

    def pool(self):
        return self if self.shares is None else self.shares

    def replay(self):
        assert not self.is_open


@pytest.fixture
def fake_cuda(monkeypatch):
    stream = SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)


def test_graphs_share_memory_and_live_for_an_epoch(fake_cuda):
    module = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(module.parameters(), fused=True)
    records = Recorder(torch.Generator(), optimizer)
    told, graphs = [], []

    def call():
        told.append(optimizer.param_groups[0]["capturable"])
        return {"loss": len(told)}

    for _ in range(3):
        with records.epoch():
            for _ in range(2):
                assert records.recorded(call)() == {"loss": len(told)}
                graphs.append(records._graphs[-1])
        assert records._graphs == graphs[-2:]  # those of earlier epochs are gone
    assert told == [True] * 6 and not optimizer.param_groups[0]["capturable"]
    assert {graph.pool() for graph in graphs} == {graphs[0]}
    assert {graph.generator for graph in graphs} == {records.generator}


def test_recording_that_fails_is_ended(fake_cuda, monkeypatch):
    graph = FakeGraph()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    records = Recorder(torch.Generator(), None)
    with pytest.raises(ZeroDivisionError), records.epoch():
        records.recorded(lambda: 1 / 0)
    assert graph.shares is None and not graph.is_open and records._graphs == []


def test_only_gpus_record():
    assert recorder(torch.Generator("cpu"), None) is None
