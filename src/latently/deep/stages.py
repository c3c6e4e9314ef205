"""One checkpoint for a fit of several stages.

The file holds what finished stages have found, and the state of the one that runs. A fit that is resumed goes
through the same stages in the same order: those that were finished return what the file says, the one that
ran goes on from its state, and the others begin. What lies between stages is computed again from the results,
so it must depend on nothing else; seeds are in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import Any

from latently.core.checkpoint import Checkpoint
from latently.core.drivers import Passes, Result
from latently.estimators.fitting import FitOptions


@dataclass(frozen=True)
class Finished:
    """What a stage has found, and how many passes over the rows that took."""

    result: Result[Any]
    n_passes: int


class Stages:
    """The stages of a fit with these options, whose checkpoint is that of the whole."""

    def __init__(self, options: FitOptions, seeds: list[int]):
        self.options = options
        self.seeds = seeds  # of the whole fit; a checkpoint has those that it began with
        self.finished: list[Finished] = []
        self._file: Checkpoint | None = None
        self._found: dict[str, Any] = {"finished": [], "running": None}
        if options.checkpoint is not None:
            # results of finished stages depend on what other fits may change on their way
            limits = {"max_iter": repr(options.max_iter), "tol": repr(options.tol)}
            self._file = Checkpoint(options.checkpoint.path, options.checkpoint.belongs_to | limits)
            if self._file.exists():
                self._found = self._file.read({})[2]
                self.seeds = self._found["seeds"]

    def run(
        self, fit: Callable[[FitOptions], Result[Any]], example: Callable[[], Any], **changes: Any
    ) -> Finished:
        """The result of `fit(options)`, a fit with these changes of the options; or what the file says.

        `example` gives a record with the shapes of the parameters.
        """
        number = len(self.finished)
        if number < len(self._found["finished"]):
            stage = self._read(number, example())
        else:
            own = None if self._file is None else OfStage(self, number)
            options = replace(self.options, checkpoint=own, passes=Passes(), **changes)
            result = fit(options)
            stage = Finished(result, options.passes.count)
        self.finished.append(stage)
        if len(self.finished) > len(self._found["finished"]):
            self.write({}, [], None)
        return stage

    def end(self) -> None:
        """After the last stage; a fit that was interrupted leaves its checkpoint to go on from."""
        if self._file is not None and not self.interrupted:
            self._file.remove()

    @property
    def interrupted(self) -> bool:
        return any(stage.result.interrupted for stage in self.finished)

    def runs(self, number: int) -> bool:
        """Whether the file has the state of this stage."""
        return number == len(self._found["finished"]) and self._found["running"] is not None

    def read(self, templates: dict[str, Any], optional: Set[str]) -> Any:
        """The state of the running stage."""
        assert self._file is not None
        records, history, numbers = self._file.read(templates, optional)
        return records, history, numbers["running"]

    def write(self, records: dict[str, Any], history: list[float], running: dict[str, Any] | None) -> None:
        """All that is finished, and the state of the running stage; nothing after an interrupt."""
        if self._file is None or self.interrupted:
            return
        results = {_name(i): stage.result.params for i, stage in enumerate(self.finished)}
        finished = [
            {
                "history": [float(value) for value in stage.result.history],
                "n_iter": stage.result.n_iter,
                "converged": bool(stage.result.converged),
                "n_passes": stage.n_passes,
            }
            for stage in self.finished
        ]
        numbers = {"seeds": self.seeds, "finished": finished, "running": running}
        self._file.write(results | records, history, numbers)

    def _read(self, number: int, example: Any) -> Finished:
        assert self._file is not None
        records, _, _ = self._file.read({_name(number): example})
        told = dict(self._found["finished"][number])
        n_passes = told.pop("n_passes")
        return Finished(Result(records[_name(number)], **told), n_passes)


class OfStage(Checkpoint):
    """The checkpoint of one stage, within that of all."""

    def __init__(self, stages: Stages, number: int):
        self.stages, self.number = stages, number

    def write(self, records: dict[str, Any], history: list[float], numbers: dict[str, Any]) -> None:
        self.stages.write(records, history, numbers)

    def exists(self) -> bool:
        return self.stages.runs(self.number)

    def read(self, templates: dict[str, Any], optional: Set[str] = frozenset()) -> Any:
        return self.stages.read(templates, optional)

    def remove(self) -> None:
        """The file stays until the last stage has ended."""


def _name(number: int) -> str:
    return f"stage{number}"
