"""Progress of a fit, as a progress bar if rich is installed, else as lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from latently.core.drivers import Iteration


class Progress:
    """A callback that is also a context manager around a run."""

    def __init__(self, title: str, quantity: str = "log-likelihood per row"):
        self.title = title
        self.quantity = quantity  # name of the objective
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        try:
            from rich import progress
        except ImportError:
            return self
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TextColumn("{task.completed} of at most {task.total} iterations"),
            progress.TextColumn(f"{self.quantity} {{task.fields[objective]}}"),
            progress.TimeElapsedColumn(),
        )
        self._bar.start()
        return self

    def starts(self, starts: Iterable[Any]) -> Iterator[Any]:
        """Yield the starts one by one and report each before it is tried."""
        for number, start in enumerate(starts, 1):
            self._say(f"{self.title}: trying start {number}")
            yield start

    def __call__(self, iteration: Iteration) -> None:
        value = f"{iteration.objective:.6f}"
        if self._bar is None:
            gain = "" if math.isinf(iteration.gain) else f"  (+{iteration.gain:.3g})"
            self._say(f"{self.title}: iteration {iteration.number}, {self.quantity} {value}{gain}")
            return
        if self._task is None:
            self._task = self._bar.add_task(self.title, total=iteration.max_iter, objective=value)
        self._bar.update(self._task, completed=iteration.number, objective=value)

    def _say(self, text: str) -> None:
        if self._bar is None:
            print(text)
        else:
            self._bar.console.print(text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
