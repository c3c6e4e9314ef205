"""What a reproduction is, and how its result is told and kept.

Records are flat dictionaries. Some of their entries (`keys`) say what was measured, the others are numbers;
published records have the same keys, so that ours and theirs meet in one row.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import scipy
import sklearn

from latently import __version__ as latently_version
from reproductions.source import state
from reproductions.told import Told

Record = dict[str, Any]
Text = str | Callable[[Told], str]
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Reproduction:
    """One table or figure of a document.

    Parameters
    ----------
    id : str
        Document and name, such as "003/table-3.5"; folders and files are named after it.
    title, source, data, protocol : str
        What is shown; where it was printed; on which rows; and how our numbers come about. Breaks of lines in
        these and in remarks do not count, but empty lines of the protocol do.
    keys : tuple of str
        Entries of a record that say what was measured.
    columns : mapping of str to str
        Entries to show after the keys, with their format. One that was published too is followed by it.
    published : sequence of records
        As printed, errors included; what cannot be read is left out.
    measure : callable
        `measure(settings, seed)` gives our records.
    settings, quick_settings : mapping
        Of a full run, and what a quick run changes in them.
    summary : callable, optional
        `summary(rows)` gives the records of a short table that is shown first; a row is a record with the
        published numbers as "..., published".
    remarks : sequence of str or callable
        Why numbers differ, and what is wrong with the printed ones. One that tells numbers of ours is
        `remark(told)`, which takes them from a `Told`; it is left out if a run has not measured them.
    missed : str or callable
        Why cells are worse than the print, in short; needed where any is.
    other_numbers : mapping of str to str
        Numbers in remarks that are neither of these results nor printed: where they come from.
    figures : mapping of str to callable
        Ending of the file name to `figure(result)`, which gives a matplotlib figure, or None for rows that
        were not measured.
    better : mapping of str to str
        Published entries that are judged, each with "lower" or "higher": which is the better.
    excluded : callable, optional
        `excluded(record, measure)` says why a published number cannot be compared, or gives None; the record
        is the published one, with what ours has beside it.
    counted : callable, optional
        Whether a published record is counted; not if it repeats another one beside a variant of ours.
    tested : callable, optional
        `tested(record, measure)` is the number of rows behind a published rate; by default it is what our
        records say as "rows".
    """

    id: str
    title: str
    source: str
    data: str
    protocol: str
    keys: tuple[str, ...]
    columns: Mapping[str, str]
    published: Sequence[Record]
    measure: Callable[[Mapping[str, Any], int], list[Record]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    quick_settings: Mapping[str, Any] = field(default_factory=dict)
    summary: Callable[[list[Record]], list[Record]] | None = None
    remarks: Sequence[Text] = ()
    missed: Text = ""
    other_numbers: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Callable[[Result], Any]] = field(default_factory=dict)
    better: Mapping[str, str] = field(default_factory=dict)
    excluded: Callable[[Record, str], str | None] = lambda record, measure: None
    counted: Callable[[Record], bool] = lambda record: True
    tested: Callable[[Record, str], int | None] = lambda record, measure: record.get("rows")

    def run(self, quick: bool = False, seed: int = 0) -> Result:
        """Our numbers beside the published ones."""
        settings = {**self.settings, **(self.quick_settings if quick else {})}
        state()  # of the code that is running, should its files change meanwhile
        began = time.perf_counter()
        records = self.measure(settings, seed)
        return Result(self, records, settings, quick, seed, time.perf_counter() - began)


@dataclass(frozen=True)
class Result:
    """What a run has measured."""

    reproduction: Reproduction
    records: list[Record]
    settings: Mapping[str, Any]
    quick: bool
    seed: int
    seconds: float
    versions: Mapping[str, str] = field(default_factory=lambda: versions())

    @classmethod
    def of_saved(cls, reproduction: Reproduction, content: Mapping[str, Any]) -> Result:
        """A saved result, to be told with the texts of today."""
        names = ("records", "settings", "quick", "seed", "seconds", "versions")
        return cls(reproduction, **{name: content[name] for name in names})

    def rows(self) -> list[Record]:
        """Our records, each with the published numbers of the same keys as "..., published"."""
        keys = self.reproduction.keys
        theirs = {tuple(record[key] for key in keys): record for record in self.reproduction.published}
        rows = []
        for record in self.records:
            printed = theirs.get(tuple(record[key] for key in keys), {})
            rows.append(record | {beside(name): printed[name] for name in printed if name not in keys})
        return rows

    def remarks(self) -> list[str]:
        """What there is to say about these numbers."""
        return [text for text in map(self.tell, self.reproduction.remarks) if text]

    def missed(self) -> str:
        """Why cells are worse than the print."""
        return self.tell(self.reproduction.missed)

    def tell(self, text: Text) -> str:
        """The text in one line, with our numbers in their places; nothing if they were not measured."""
        if callable(text):
            of = self.reproduction
            try:
                text = text(Told(of.keys, self.records, of.published))
            except LookupError:
                return ""
        return one_line(text)

    def to_markdown(self) -> str:
        of = self.reproduction
        rows = self.rows()
        printed = {name for record in of.published for name in record}
        formats = dict.fromkeys(of.keys, "")
        for name, spec in of.columns.items():
            formats |= {name: spec} | ({beside(name): spec} if name in printed else {})
        settings = "".join(f", {name} = {value}" for name, value in self.settings.items())
        numbers = table(rows, formats)
        if of.summary:
            short = of.summary(rows)
            short_table = table(short, {name: formats.get(name, "") for name in short[0]})
            numbers = f"## In short\n\n{short_table}\n\n## All numbers\n\n{numbers}"
        parts = [
            f"# {of.id}: {of.title}",
            f"Source: {one_line(of.source)}.",
            f"Data: {one_line(of.data)}",
            f"How: {paragraphs(of.protocol)}",
            f"{'Quick run' if self.quick else 'Full run'}, seed {self.seed}{settings}.",
            numbers,
        ]
        remarks = self.remarks()
        if remarks:
            parts.append("## Remarks\n\n" + "\n".join(f"- {remark}" for remark in remarks))
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> str:
        of = self.reproduction
        content = {
            "id": of.id,
            "title": of.title,
            "source": one_line(of.source),
            "data": one_line(of.data),
            "protocol": paragraphs(of.protocol),
            "remarks": self.remarks(),
            "quick": self.quick,
            "seed": self.seed,
            "settings": dict(self.settings),
            "seconds": round(self.seconds, 1),
            "versions": dict(self.versions),
            "records": self.records,
            "published": list(of.published),
        }
        return json.dumps(content, indent=1, allow_nan=False) + "\n"

    def save(self, folder: str | os.PathLike[str] | None = None, *, with_figures: bool = True) -> list[Path]:
        """Writes Markdown, JSON and pictures; each file is whole or not there. Gives their paths.

        That of "003/table-3.5" is FOLDER/003/table-3.5.md, or by default document_003/results/table-3.5.md
        beside its code.
        """
        document, _, name = self.reproduction.id.partition("/")
        home = HERE / f"document_{document}" / "results" if folder is None else Path(folder, document)
        files = {".md": self.to_markdown().encode(), ".json": self.to_json().encode()}
        for ending, figure in self.reproduction.figures.items() if with_figures else ():
            drawn = figure(self)
            if drawn is None:
                continue
            picture = io.BytesIO()
            drawn.savefig(picture, format="png", dpi=130)
            files[f"{ending}.png"] = picture.getvalue()
        paths = []
        for ending, content in files.items():
            path = home / f"{name}{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.part")
            temporary.write_bytes(content)
            os.replace(temporary, path)
            paths.append(path)
        return paths


def versions() -> dict[str, str]:
    """Of Python, the packages and the source that numbers depend on, and the GPU if there was one."""
    packages = {"numpy": numpy, "scipy": scipy, "scikit-learn": sklearn}
    torch = sys.modules.get("torch")
    packages |= {"torch": torch} if torch else {}
    found = {"python": platform.python_version(), "latently": latently_version}
    found |= {name: str(package.__version__) for name, package in packages.items()} | state()
    if torch and torch.cuda.is_available():
        found["GPU"] = torch.cuda.get_device_name()
    return found


def beside(name: str) -> str:
    """The published counterpart of an entry."""
    return f"{name}, published"


def one_line(text: str) -> str:
    """Text that was broken into lines to suit its file."""
    return " ".join(text.split())


def paragraphs(text: str) -> str:
    """The same of each part between empty lines."""
    return "\n\n".join(one_line(part) for part in re.split(r"\n\s*\n", text.strip()))


def table(rows: Sequence[Record], formats: Mapping[str, str]) -> str:
    """A Markdown table that also reads well as plain text; entries that are missing or None stay empty."""
    lines = [list(formats), *([shown(row.get(name), spec) for name, spec in formats.items()] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(formats))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def shown(value: Any, spec: str) -> str:
    return "" if value is None else format(value, "" if isinstance(value, str) else spec)
