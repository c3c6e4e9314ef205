"""Next steps of a report as shell commands, for models that the command line fitted.

The estimator of such a model takes prepared rows, so advice in Python would need the preparation too; the
folder has both, and the commands that are printed run as they are.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class CommandLine:
    """Where a model and its rows are, and what it was fitted with."""

    folder: str
    data: tuple[str, ...]
    model: str  # its name on the command line
    sizes: dict = field(default_factory=dict)  # "-k" and "-q", as they are now
    options: tuple[str, ...] = ()  # of the preparation, such as "--label", "kind"
    compared: bool = False  # whether families of several sizes were compared for it

    def apply(self, command, *more):
        return _joined("latently", command, self.folder, *self.data, *more)

    def fit(self, command, *more, sizes=None, suffix=""):
        """The command that fits the model again, with other sizes, to another folder if there is a suffix."""
        given = [part for item in (self.sizes if sizes is None else sizes).items() for part in item]
        output = ("--output", f"{self.folder.rstrip('/')}{suffix}", *(() if suffix else ("--force",)))
        parts = (
            "latently",
            command,
            *self.data,
            "--model",
            self.model,
            *given,
            *self.options,
            *more,
            *output,
        )
        return _joined(*parts)


def _joined(*parts):
    return " ".join(shlex.quote(str(part)) for part in parts)


def in_shell(step, facts, sizes):
    """The step with commands; `sizes` are ranges that a search should try, by parameter."""
    line = facts.command_line
    ranges = {
        option: ",".join(map(str, sizes.get(parameter, [])))
        for option, parameter in (("-k", "n_components"), ("-q", "n_factors"))
        if option in line.sizes and sizes.get(parameter)
    }
    codes = {
        "converge": lambda: line.fit("fit", "--max-iter", 10 * max(getattr(facts.model, "n_iter_", 0), 100)),
        "search": lambda: line.fit("select", sizes={**line.sizes, **ranges}, suffix="-wider"),
        "held out": lambda: line.fit("select", "--criterion", "log_likelihood", suffix="-held-out"),
        "small": lambda: line.apply("predict", "--output", "components.csv"),
        "unusual": lambda: line.apply("score", "--output", "scores.csv"),
        "impute": lambda: line.apply("impute", "--output", "imputed.csv"),
        "overlap": lambda: line.apply("predict", "--probabilities", "--output", "components.csv"),
        "keep": lambda: _keep(facts, line),
    }
    return replace(step, code=codes[step.kind]())


def _keep(facts, line):
    uses = [use for use in ("predict", "score_samples", "transform") if hasattr(facts.model, use)]
    lines = [f"model = latently.load({line.folder!r})"]
    lines += [f"model.{uses[0]}({line.data[0]!r})" if uses else ""]
    command = {"predict": "predict", "score_samples": "score", "transform": "transform"}
    shell = [line.apply(command[uses[0]])] if uses else []
    script = "; ".join(["import latently", *lines[:1], f"print({lines[1]})"])
    plain = not any(mark in script for mark in '"$`\\!')
    python = [f'python -c "{script}"' if plain else f"python -c {shlex.quote(script)}"]
    return "\n".join([*shell, *(python if uses else [])])
