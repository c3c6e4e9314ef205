"""Steps that are replayed as CUDA graphs.

A step on a hundred rows is dozens or hundreds of small kernels, and a GPU does them faster than Python can
ask for them. A CUDA graph holds all kernels of a step, and replaying it is one call with the same results:
the generator is registered with the graph, so that a replay draws what the step would have drawn.

A graph repeats its kernels with the memory and the numbers that it was recorded with. Hence

    batches are copied into fixed tensors, one set for each size of batch;
    a graph is used for one epoch, as steps may use its number, and learning rates change with it;
    the first batch of every size in an epoch runs as it is, which also allocates all that is allocated once.

Steps must be static: the same operations for every batch of an epoch, with no value of a tensor read by
Python, and an optimiser that keeps its state on the device (such as a fused one). Recording takes about as
long as two or three steps, in every epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch.optim import Optimizer

from latently.training.batches import Batch

_MOST_SIZES = 2  # rows that are shared out evenly have batches of two sizes
_FIELDS = ("X", "y", "weight", "rows")

Call: TypeAlias = Callable[[], Any]


class Steps:
    """The steps of a training, of which repeated ones are replayed if `recorder` is given."""

    def __init__(self, step: Callable[[Batch], Any], recorder: Recorder | None = None):
        self.step, self.recorder = step, recorder
        self._seen: set[Any] = set()
        self._recorded: dict[Any, tuple[Batch, Call]] = {}

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """Around the steps of an epoch."""
        self._seen.clear()
        self._recorded.clear()
        with nullcontext() if self.recorder is None else self.recorder.epoch():
            yield

    def __call__(self, batch: Batch) -> Any:
        if self.recorder is None:
            return self.step(batch)
        size = tuple(None if tensor is None else tensor.shape for tensor in _tensors(batch))
        if size not in self._seen:
            self._seen.add(size)
            return self.step(batch)
        if size not in self._recorded:
            if len(self._recorded) == _MOST_SIZES:
                return self.step(batch)
            fixed = replace(batch, **_clones(batch))
            self._recorded[size] = fixed, self.recorder.recorded(lambda: self.step(fixed))
        fixed, replay = self._recorded[size]
        for place, tensor in zip(_tensors(fixed), _tensors(batch), strict=True):
            if place is not None:
                place.copy_(tensor)
        return replay()


def _tensors(batch: Batch) -> list[Any]:
    return [getattr(batch, name) for name in _FIELDS]


def _clones(batch: Batch) -> dict[str, Any]:
    pairs = zip(_FIELDS, _tensors(batch), strict=True)
    return {name: None if tensor is None else tensor.clone() for name, tensor in pairs}


class Recorder:
    """Records calls as CUDA graphs."""

    def __init__(self, generator: torch.Generator, optimizer: Optimizer | None):
        self.generator, self.optimizer = generator, optimizer
        self.stream: Any = torch.cuda.Stream(device=generator.device)  # type: ignore[no-untyped-call]  # the default one cannot be recorded
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._n_in_epoch = 0

    @contextmanager
    def epoch(self) -> Iterator[None]:
        """All steps run on one stream: what autograd keeps of steps on another one spoils a graph."""
        outside = torch.cuda.current_stream(self.generator.device)
        self.stream.wait_stream(outside)
        self._n_in_epoch = 0
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            outside.wait_stream(self.stream)

    def recorded(self, call: Call) -> Call:
        """A function that does again on the device what `call` does, and returns the same tensors."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        memory: dict[str, Any] = (
            {"pool": self._graphs[0].pool()} if self._graphs else {}
        )  # replays follow each other
        with _recordable(self.optimizer):
            graph.capture_begin(**memory, capture_error_mode="thread_local")
            try:
                result = call()
            finally:
                graph.capture_end()
        # graphs of the epoch before keep their memory alive until one of this epoch shares it
        self._graphs = [*self._graphs[len(self._graphs) - self._n_in_epoch :], graph]
        self._n_in_epoch += 1

        def replay() -> Any:
            graph.replay()
            return result

        return replay


@contextmanager
def _recordable(optimizer: Optimizer | None) -> Iterator[None]:
    """Optimisers want to be told that they are recorded, and warn if they are told so at other times."""
    groups = [] if optimizer is None else [group for group in optimizer.param_groups if "capturable" in group]
    before = [group["capturable"] for group in groups]
    try:
        for group in groups:
            group["capturable"] = True
        yield
    finally:
        for group, value in zip(groups, before, strict=True):
            group["capturable"] = value


def recorder(generator: torch.Generator, optimizer: Optimizer | None) -> Recorder | None:
    """What records steps on the device of the generator; None if nothing does."""
    return Recorder(generator, optimizer) if generator.device.type == "cuda" else None
