"""CUDA graphs without a GPU: what a recorded step may not do, and the tensors that it shares."""

from contextlib import nullcontext

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from latently.training import graphs


class NoHostReads(TorchDispatchMode):
    """Context in which Python may read no value of a tensor, as while a CUDA graph is recorded."""

    READS = ("_local_scalar_dense", "equal", "nonzero", "multinomial", "masked_select")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in self.READS:
            raise RuntimeError(f"{func} makes the host wait for the device")
        return func(*args, **kwargs or {})


class FakeRecorder:
    """A replay is the call itself, on the fixed tensors; its results are overwritten by the next replay."""

    def __init__(self):
        self.n_recorded, self.n_replayed = 0, 0

    def epoch(self):
        return nullcontext()

    def recorded(self, call):
        self.n_recorded += 1
        results = {}

        def replay():
            self.n_replayed += 1
            with NoHostReads():
                found = call()
            for name, value in found.items():
                results.setdefault(name, torch.empty_like(value)).copy_(value)
            return results

        return replay


def replaying(monkeypatch):
    """From now on static steps are replayed on the CPU too; returns what records them."""
    recorder = FakeRecorder()
    monkeypatch.setattr(graphs, "recorder", lambda generator, optimizer: recorder)
    return recorder
