"""Chance is local: one seed decides everything, and global generators are left alone."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

from latently.training.generators import Generators, drawing_from, initialise
from latently.training.modules import module_arrays
from tests.training.helpers import NoisyAutoencoder


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def fitted(seed):
    return NoisyAutoencoder(seed=seed).train(max_iter=2)


def same(first, second):
    one, other = module_arrays(first.params), module_arrays(second.params)
    return first.losses == second.losses and all(np.array_equal(one[name], other[name]) for name in one)


def test_seed_decides_everything():
    assert same(fitted(3), fitted(3))
    assert same(fitted(3), fitted(np.int64(3)))
    assert not same(fitted(3), fitted(4))
    assert not same(fitted(None), fitted(None))


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_generators_of_numpy_are_seeds_and_advance(make):
    assert same(fitted(make(0)), fitted(make(0)))
    one = make(0)
    assert not same(fitted(one), fitted(one))


def test_global_generators_are_neither_read_nor_changed():
    def states():
        _, key, position, *_ = np.random.get_state()  # noqa: NPY002
        return key.tobytes(), position, torch.get_rng_state().numpy().tobytes()

    before = states()
    first = fitted(0)
    assert states() == before
    fitted(None)
    assert states() == before
    torch.rand(3), np.random.rand(3)  # noqa: NPY002
    assert states() != before
    assert same(first, fitted(0))


def test_uses_do_not_disturb_each_other():
    one, other = Generators.from_seed(0), Generators.from_seed(0)
    torch.rand(10, generator=one.sampling), torch.rand(10, generator=one.initialisation)
    assert one.shuffling.random() == other.shuffling.random()
    states = [g.get_state().numpy().tobytes() for g in other.torch_generators().values()]
    assert len(set(states)) == 3


@pytest.mark.parametrize("seed", [-1, 1.5, True, "0"])
def test_bad_seeds(seed):
    with pytest.raises(ValueError, match="random_state must be None, a non-negative integer"):
        Generators.from_seed(seed)


LAYERS = {
    "linear": lambda: nn.Linear(3, 2),
    "convolution": lambda: nn.Conv2d(2, 3, 2),
    "transposed": lambda: nn.ConvTranspose2d(2, 3, 2),
    "embedding": lambda: nn.Embedding(4, 2),
    "recurrent": lambda: nn.LSTM(2, 3),
    "attention": lambda: nn.MultiheadAttention(4, 2),
    "bilinear": lambda: nn.Bilinear(2, 3, 2),
    "norm": lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)),
}


@pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS)
def test_layers_start_from_the_generator_given(build):
    before = torch.get_rng_state()
    with drawing_from(generator()):
        built = build()
    with drawing_from(generator()):
        again = build()
    assert torch.equal(torch.get_rng_state(), before)
    for name, array in module_arrays(built).items():
        assert np.array_equal(array, module_arrays(again)[name])
    other = build()
    before = torch.get_rng_state()
    one = module_arrays(initialise(other, generator(1)))
    two = module_arrays(initialise(built, generator(1)))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert any(not np.array_equal(one[name], value) for name, value in module_arrays(again).items())


def test_initialise_resets_statistics_and_keeps_parameters_of_no_layer():
    norm = nn.BatchNorm1d(2)
    norm(torch.randn(5, 2) + 3)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.log_scale = nn.Parameter(torch.full((2,), 0.7))
            self.norm = norm

    module = initialise(Scaled(), generator())
    assert not norm.running_mean.any() and norm.num_batches_tracked == 0
    assert torch.equal(module.log_scale, torch.full((2,), 0.7))


def test_starts_are_those_of_torch():
    """The distribution is torch's own: that of a layer whose global generator has the same state."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        expected = module_arrays(nn.Linear(4, 3))
    with drawing_from(generator(5)):
        found = module_arrays(nn.Linear(4, 3))
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


DRAWS = {
    "rand": lambda x: torch.rand(3),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "normal": lambda x: torch.normal(x, 1.0),
    "bernoulli": lambda x: torch.bernoulli(x / 50),
    "in place": lambda x: x.clone().uniform_(),
    "permutation": lambda x: torch.randperm(40),
    "choice": lambda x: torch.multinomial(x + 1, 20),
    "normal distribution": lambda x: torch.distributions.Normal(x, 1.0).rsample(),
    "gamma distribution": lambda x: torch.distributions.Gamma(x + 1, 1.0).rsample(),
    "categories": lambda x: torch.distributions.Categorical(torch.ones(40, 9)).sample(),
    "dropout layer": nn.Dropout(0.5),
    "dropout": lambda x: torch.dropout(x, 0.5, True),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_draws_that_name_no_generator_come_from_ours(draw):
    x, own = torch.arange(40.0), generator()
    before = torch.get_rng_state()
    with drawing_from(own):
        first, second = draw(x), draw(x)
    with drawing_from(generator()):
        assert torch.equal(draw(x), first)
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_generator_that_is_named_stays():
    with drawing_from(generator(0)):
        found = torch.rand(3, generator=generator(1))
    assert torch.equal(found, torch.rand(3, generator=generator(1)))


def test_dropout_keeps_the_mean_and_rests_when_not_training():
    x = torch.ones(10_000)
    with drawing_from(generator()):
        for layer in (nn.Dropout(0.3), nn.Dropout(0.3, inplace=True)):
            y = layer(x.clone())
            assert set(y.unique().tolist()) == {0.0, float(torch.tensor(1.0) / 0.7)}
            assert abs(float(y.mean()) - 1) < 0.03
            assert torch.equal(layer.eval()(x), x)
        assert not nn.Dropout(1.0)(x).any()


def test_draws_that_cannot_be_told_are_refused():
    x = torch.ones(1, 2, 3, 3)
    with drawing_from(generator()):
        with pytest.raises(NotImplementedError, match="dropout2d draws from torch's global generator"):
            nn.Dropout2d(0.5)(x)
        assert torch.equal(nn.Dropout2d(0.5).eval()(x), x)
        with pytest.raises(NotImplementedError, match="gumbel_softmax"):
            nn.functional.gumbel_softmax(x)


def test_other_threads_draw_as_they_did():
    expected = torch.rand(3, generator=generator(0))
    with drawing_from(generator(0)):
        thread = threading.Thread(target=lambda: torch.rand(3))
        thread.start()
        thread.join()
        assert torch.equal(torch.rand(3), expected)
