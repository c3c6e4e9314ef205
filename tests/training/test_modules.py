"""Modules as named arrays, and back."""

import numpy as np
import pytest
import torch
from torch import nn

from latently.core import io
from latently.training.modules import module_arrays, set_module_arrays


def module():
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    net(torch.randn(4, 1, 3, 3))
    return net.eval()


def test_arrays_bring_back_the_module_through_a_file(tmp_path):
    first, second, x = module(), module(), torch.randn(5, 1, 3, 3)
    assert not torch.equal(first(x), second(x))
    io.write(tmp_path / "net", {}, module_arrays(first))
    _, arrays = io.read(tmp_path / "net")
    parameters = list(second.parameters())
    set_module_arrays(second, arrays)
    assert torch.equal(first(x), second(x))
    assert all(a is b for a, b in zip(parameters, second.parameters(), strict=True))
    assert second[1].num_batches_tracked == 1


def test_arrays_are_copies():
    net = nn.Linear(2, 2)
    arrays = module_arrays(net)
    before = arrays["weight"].copy()
    nn.init.zeros_(net.weight)
    assert np.array_equal(arrays["weight"], before)
    set_module_arrays(net, arrays)
    arrays["weight"] += 1
    assert np.array_equal(module_arrays(net)["weight"], before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("bias"), r"missing \['bias'\]"),
        (lambda a: a.update(scale=np.ones(2)), r"unknown \['scale'\]"),
        (lambda a: a.update(weight=a["weight"].T), r"weight must have shape \(3, 2\).*not shape \(2, 3\)"),
        (lambda a: a.update(weight=a["weight"].astype(float)), "dtype float32, .*float64"),
        (lambda a: a.update(bias=np.full(3, np.nan, np.float32)), "bias must have finite entries"),
    ],
)
def test_arrays_that_do_not_fit_change_nothing(change, message):
    net = nn.Linear(2, 3)
    arrays, before = module_arrays(nn.Linear(2, 3)), module_arrays(net)
    change(arrays)
    with pytest.raises(ValueError, match=message):
        set_module_arrays(net, arrays)
    assert all(np.array_equal(before[name], value) for name, value in module_arrays(net).items())
