"""The page that tells how far all published tables and figures are met, from the saved results alone."""

from __future__ import annotations

import json
from collections import Counter

from reproductions import available
from reproductions.document_003._protocol import PROTOCOL
from reproductions.evidence import of_classes, of_clusters
from reproductions.framework import HERE, Result, paragraphs, table
from reproductions.inventory import DOCUMENTS, ITEMS, STATES
from reproductions.judgement import COMPARED, EXCLUDED, MATCHED, NOISE, NOT_RUN, WORSE, cells

SHARED = "*The shared protocol, as above.*"
PAGE = HERE.parent / "docs" / "reproductions_state.md"
HEAD = """\
# State of the reproductions

Generated from the saved results by `python -m reproductions --page`; do not edit.
[Reproductions](reproductions.md) says what they are, and how to run them again.

A published number is a cell. Ours beside it is **matched** if it is at least as good, to the digits printed;
**within noise** if it is worse by no more than chance explains; or **worse**. "Agrees" is two-sided: no
further from the print than noise, be it better or worse; many matched cells are better than the print and do
not agree with it. Noise is the larger of what one row can change (for BIC: 2), and two standard errors of
the difference, from the spread of our draws and of the printed ones; a printed number without a spread is
taken for one draw like ours. Where the rows are given, chance is in the starts alone, and the best of
several fits is told: its spread is that of the best of as many fits drawn again from those that were made,
which is nothing where all seeds end at one optimum. Numbers of other papers, sizes of data and formulas are
not counted. No cell is counted twice.

A match says that our model with our protocol does as well, not that the source did the same.
"""
MEASURES = """\
ERR is the share of rows in a wrong cluster or class, ARI the adjusted Rand index of clusters and classes, BIC
the Bayesian information criterion, log p(y) the mean log density of rows and log p(z) that of their factors.
The other measures are named in their tables.
"""
WHERE_WORSE = """\
Rates of clusters; cells of ARI are of the same fits. Labels choose nothing in our numbers; here they tell
what there would be to choose. A fit "from the classes" starts from the estimates for each class and then
forgets the labels; there is one where there are as many clusters as classes, and one layer. The source
reports "the best results from multiple trials" with random starts, in section 3.2.1; of such starts there are
numbers in Tables 3.3 to 3.5. "Likelier" is by more than 2 of BIC in the same units, or by the mean log
density of training rows.
"""
CLASSES = """\
Rates of classes. Our lowest rate of a method is picked from our grid by test rows, as nobody may. The
variants of 2L-MJFA have the same components and dimensions, at most two components.
"""
ABOUT_PROTOCOLS = """\
For each result the rows, how its numbers came about, and the settings of the run; a line unfolds.
"""
ABOUT_SOURCES = """\
The last commit that changed the library before results were run by it, and the first digits of the SHA-256 of
its code. Of results that were run before this was kept, the commit that brought their numbers stands there.
"""
SHARED_OF = "003"


def saved(name):
    """The saved JSON of a reproduction, or None."""
    document, _, own = name.partition("/")
    path = HERE / f"document_{document}" / "results" / f"{own}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def of_today(reproduction, result):
    """Whether a saved result was run by the protocol that the code has now, as far as settings tell."""
    return set(result["settings"]) == set(reproduction.settings)


def judged():
    """The cells of all reproductions by id, as saved."""
    found = {}
    for name, reproduction in available().items():
        result = saved(name)
        found[name] = cells(reproduction, result["records"] if result else [])
    return found


def page():
    """The text of the page."""
    found = judged()
    everything = [cell for own in found.values() for cell in own]
    parts = [HEAD, "## In short", f"{in_short(everything)} {of_starts(everything)}"]
    counted = {name: own for name, own in found.items() if own}
    parts += ["## By measure", MEASURES, by(measure_of, everything)]
    lines = [{"table": link(name)} | row(own) for name, own in counted.items()]
    parts += ["## By table", table(lines, dict.fromkeys(lines[0], ""))]
    parts += filter(None, [earlier()])
    reasons = Counter((name, cell.reason) for name, own in counted.items() for cell in own if cell.reason)
    if reasons:
        told = [
            {"table": name, "cells": number, "not comparable because": reason}
            for (name, reason), number in reasons.items()
        ]
        parts.append(table(told, dict.fromkeys(told[0], "")))
    parts += [
        "## Where ours is worse",
        reasons_of_worse(counted),
        WHERE_WORSE,
        beside_worse(of_clusters),
        CLASSES,
        beside_worse(of_classes),
    ]
    parts.append("## Every table and figure")
    for document, title in DOCUMENTS.items():
        own = [item for item in ITEMS if item.document == document]
        lines = [
            {
                "item": item.names,
                "state": item.state,
                "results": ", ".join(link(name) for name in item.by),
                "remark": item.why,
            }
            for item in own
        ]
        parts += [f"### Document {document}: {title}", table(lines, dict.fromkeys(lines[0], ""))]
    parts += ["## By which source", ABOUT_SOURCES, by_source()]
    parts += ["## Protocols", ABOUT_PROTOCOLS, *protocols(), "\n".join(targets())]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def reasons_of_worse(counted):
    """By table, why cells are worse."""
    lines = []
    for name, own in counted.items():
        worse = sum(cell.state == WORSE for cell in own)
        if worse:
            told = Result.of_saved(available()[name], saved(name))
            lines.append({"table": link(name), "worse": worse, "why": told.missed()})
    return table(lines, dict.fromkeys(lines[0], "")) if lines else "None."


def beside_worse(counted):
    """By table, which other fits meet the rates that ours do not."""
    lines = []
    for name, reproduction in available().items():
        result = saved(name)
        if result:
            lines += [{"table": link(name)} | line for line in counted(reproduction, result["records"])]
    return table(lines, dict.fromkeys(lines[0], "")) if lines else "None."


def protocols():
    """How each number came about, as saved with it."""
    for document, title in DOCUMENTS.items():
        yield f"### How: document {document}, {title}"
        if document == SHARED_OF:
            yield f"Shared protocol of chapters 3 and 5: {paragraphs(PROTOCOL)}"
        for name in available():
            result = saved(name)
            if result and name.startswith(document):
                yield folded(name, result)


def folded(name, result):
    """The protocol of a result, as a line that unfolds."""
    settings = "\n".join(f"- {key} = {value}" for key, value in result["settings"].items())
    parts = [
        f"<details><summary>{name}: {result['title']}</summary>",
        f"Rows: {result['data']}",
        f"How: {result['protocol'].replace(paragraphs(PROTOCOL), SHARED)}",
        f"Seed {result['seed']}" + (", and these settings:" if settings else "."),
        settings,
        f"Numbers and remarks: {link(name)}",
        "</details>",
    ]
    return "\n\n".join(filter(None, parts))


def in_short(everything):
    states = Counter(cell.state for cell in everything)
    compared = sum(states[state] for state in COMPARED)
    met = states[MATCHED] + states[NOISE]
    agree = sum(cell.agrees for cell in everything)
    wide = sum(cell.state == NOISE and cell.noise > abs(cell.printed) for cell in everything)
    items = Counter(item.state for item in ITEMS)
    entries = "; ".join(f"{items[state]} {state}" for state in STATES)
    return (
        f"Of {len(everything)} published cells, {compared} are comparable and were run. **{met} of these "
        f"({share(met, compared)}) are matched ({states[MATCHED]}) or within noise ({states[NOISE]})**, and "
        f"{states[WORSE]} are worse. {agree} ({share(agree, compared)}) agree with the print either way. "
        f"{wide} of those within noise are so because the noise is wider than the printed number. "
        f"{states[EXCLUDED]} are not comparable, and {states[NOT_RUN]} were not run. Of {len(ITEMS)} entries "
        f"below: {entries}."
    )


def of_starts(everything):
    """How much of the share is owed to counting the chance of starts where rows are given."""
    without = [cell for name in available() for cell in judged_by_rows(name)]
    more = sum(cell.state in (MATCHED, NOISE) for cell in everything) - sum(
        cell.state in (MATCHED, NOISE) for cell in without
    )
    return f"Were noise one row wherever the rows are given, {more} fewer would be within noise."


def judged_by_rows(name):
    """The cells of a reproduction, with no spread where its rows are given and the best of fits is told."""
    result = saved(name)
    records = result["records"] if result else []
    return cells(
        available()[name],
        [
            {key: value for key, value in record.items() if not key.endswith(", spread")}
            if record.get("draws") == 1
            else record
            for record in records
        ],
    )


def row(own):
    """Of one table or measure."""
    states = Counter(cell.state for cell in own)
    compared = sum(states[state] for state in COMPARED)
    met = states[MATCHED] + states[NOISE]
    agree = sum(cell.agrees for cell in own)
    line = {"cells": len(own)} | {state: states[state] for state in COMPARED}
    line |= {"share met": share(met, compared), "agrees": share(agree, compared)}
    return line | {state: states[state] for state in (EXCLUDED, NOT_RUN)}


def earlier():
    """Which results the code would not give today."""
    results = {name: saved(name) for name in available()}
    old = [name for name, result in results.items() if result and not of_today(available()[name], result)]
    return (
        old and f"Run by an earlier protocol, as told below, and not yet again: {', '.join(map(link, old))}."
    )


def by_source():
    """Which state of the library each result is of, and on which GPU."""
    groups = {}
    for name in available():
        result = saved(name)
        if result:
            versions = result["versions"]
            commit = versions.get("commit") or f"before {versions.get('published', 'this was kept')}"
            state = commit, versions.get("source", "not kept"), versions.get("GPU", "")
            groups.setdefault(state, []).append(link(name))
    lines = [
        {"library": commit, "code": source, "GPU": gpu, "results": ", ".join(names)}
        for (commit, source, gpu), names in sorted(groups.items())
    ]
    return table(lines, dict.fromkeys(lines[0], "")) if lines else "None."


def by(kind, everything):
    groups = {}
    for cell in everything:
        groups.setdefault(kind(cell), []).append(cell)
    lines = [{"measure": name} | row(own) for name, own in groups.items()]
    return table(lines, dict.fromkeys(lines[0], ""))


def measure_of(cell):
    """What is measured, in words, and for rates of classes by which method."""
    if cell.key[0] in ("one fold", "four folds", "two thirds", "official rows"):
        return f"ERR of classes, {cell.key[1]}"
    if cell.measure in ("BIC", "ARI") or cell.measure.startswith("log p"):
        return cell.measure
    if cell.measure.startswith("ERR"):
        return "ERR of clusters"
    return "other"


def share(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "-"


def link(name):
    return f"[{name}]"


def targets():
    """Where the links lead."""
    root = "https://github.com/latently/latently/blob/main/reproductions"
    for name in available():
        document, _, own = name.partition("/")
        yield f"[{name}]: {root}/document_{document}/results/{own}.md"


def write():
    """Write the page, and give its path."""
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE
