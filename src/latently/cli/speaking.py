"""Output of commands: results on stdout, notes and progress on stderr.

File names and cells may contain anything. No text is interpreted as markup, and terminal control characters
are shown as escapes.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from contextlib import contextmanager

from latently.core.words import counted, listed, one_line, shown

__all__ = ["Voice", "as_json", "counted", "listed", "one_line", "shown"]


def as_json(facts):
    """One line of JSON, with null for infinities, which JSON does not have."""
    return json.dumps(_plain(facts), ensure_ascii=True, allow_nan=False)


def _plain(value):
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float) else str(value)


class Voice:
    """Output of one command; within its context the library's warnings become notes."""

    def __init__(self, json=False, quiet=False):
        self.json = json
        self.quiet = quiet
        self.notes = []

    def __enter__(self):
        self._catching = warnings.catch_warnings()
        self._catching.__enter__()
        warnings.simplefilter("ignore")  # other warnings are for programmers
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: self.note(str(message))
        return self

    def __exit__(self, *error):
        self._catching.__exit__(*error)

    def note(self, text):
        """Print a note for the user, each one once."""
        from latently.cli.tables import true_names

        text = one_line(true_names(text))
        if text not in self.notes:
            self.notes.append(text)
            if self.quiet:
                return
            print(f"latently: note: {text}", file=sys.stderr)

    def result(self, text, **facts):
        """Print the result of the command: text, or with --json an object that includes the notes."""
        if self.json:
            print(as_json({**facts, "notes": self.notes}))
        else:
            for line in [] if self.quiet else [text] if isinstance(text, str) else text:
                print(one_line(line) if line else "")

    def table(self, names, rows):
        """Print a table of texts on stdout, except with --json."""
        if self.json:
            return
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in names:
            table.add_column(Text(one_line(name)), justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*(Text(one_line(cell)) for cell in row))
        console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
        if not console.is_terminal:
            console.width = 200  # a file has no line width
        console.print(table)

    @property
    def watched(self):
        """Whether stderr is a terminal."""
        return sys.stderr.isatty() and not self.quiet

    @contextmanager
    def bar(self, title, total=None):
        """A progress bar on stderr; yields a function that updates it.

        `move(done, total)`: the amount done and, if it was not known before, the total amount.
        """
        if not self.watched:
            yield lambda done, total=None: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        ) as progress:
            task = progress.add_task(one_line(title), total=total)
            yield lambda done, total=None: progress.update(
                task, completed=done, **({} if total is None else {"total": total})
            )
