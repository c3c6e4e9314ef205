"""One checkpoint for a fit with several stages.

The file holds the results of finished stages, and the state of the running stage. A resumed fit runs the same
stages in the same order: finished stages return their saved results, the running stage resumes from its
state, and the others start normally. Computations between stages are repeated, so they must depend on the
results only; seeds are in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import Any

from latently.core.checkpoint import Checkpoint, whole_number
from latently.core.drivers import Passes, Result
from latently.estimators.fitting import FitOptions


@dataclass(frozen=True)
class Finished:
    """The result of a stage, and the number of passes over the rows that it took."""

    result: Result[Any]
    n_passes: int


class Stages:
    """The stages of a fit with these options, which share one checkpoint."""

    def __init__(self, options: FitOptions, seeds: list[int]):
        self.options = options
        self.seeds = seeds  # of the whole fit; a resumed fit uses those in the checkpoint
        self.finished: list[Finished] = []
        self._file: Checkpoint | None = None
        self._found: dict[str, Any] = {"finished": [], "running": None}
        if options.checkpoint is not None:
            # results of finished stages depend on options that other fits may change before they resume
            limits = {"max_iter": repr(options.max_iter), "tol": repr(options.tol)}
            self._file = Checkpoint(options.checkpoint.path, options.checkpoint.belongs_to | limits)
            if self._file.exists():
                self._found = _checked(self._file, self._file.read({})[2], len(seeds))
                self.seeds = self._found["seeds"]

    def run(
        self, fit: Callable[[FitOptions], Result[Any]], example: Callable[[], Any], **changes: Any
    ) -> Finished:
        """The result of `fit(options)` with these changes of the options, or the saved result.

        `example` returns a record with the shapes of the parameters.
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
        """Call after the last stage; an interrupted fit keeps its checkpoint, so that it can be resumed."""
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
        """Write the finished stages and the state of the running stage; does nothing after an interrupt."""
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
        finished = dict(self._found["finished"][number])
        n_passes = finished.pop("n_passes")
        return Finished(Result(records[_name(number)], **finished), n_passes)


def _checked(file: Checkpoint, numbers: dict[str, Any], n_seeds: int) -> dict[str, Any]:
    """What a checkpoint says of its stages; a ValueError if that is not what `write` writes."""
    with file.understood():
        seeds, finished, running = (numbers[name] for name in ("seeds", "finished", "running"))
        if len(seeds) != n_seeds or not all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds):
            raise ValueError("its seeds are not those of such a fit")
        if not isinstance(finished, list) or not isinstance(running, dict | None):
            raise ValueError("its stages are not described")
        for stage in finished:
            if set(stage) != {"history", "n_iter", "converged", "n_passes"}:
                raise ValueError("a finished stage is not described")
            whole_number(stage, "n_iter")
            whole_number(stage, "n_passes")
            if not stage["history"] or not all(type(value) is float for value in stage["history"]):
                raise ValueError("a finished stage has no history")
            if type(stage["converged"]) is not bool:
                raise ValueError("a finished stage does not say whether it converged")
    return numbers


class OfStage(Checkpoint):
    """The checkpoint of one stage, within the checkpoint of the whole fit."""

    def __init__(self, stages: Stages, number: int):
        assert stages._file is not None
        self.path, self.belongs_to = stages._file.path, stages._file.belongs_to
        self.stages, self.number = stages, number

    def write(self, records: dict[str, Any], history: list[float], numbers: dict[str, Any]) -> None:
        self.stages.write(records, history, numbers)

    def exists(self) -> bool:
        return self.stages.runs(self.number)

    def read(self, templates: dict[str, Any], optional: Set[str] = frozenset()) -> Any:
        return self.stages.read(templates, optional)

    def remove(self) -> None:
        """Does nothing: the file is kept until the last stage has finished."""


def _name(number: int) -> str:
    return f"stage{number}"
