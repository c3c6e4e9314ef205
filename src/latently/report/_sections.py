"""The sections of a report, in order. Sections without content are None."""

from __future__ import annotations

from latently.report import _findings as findings
from latently.report import _overview as overview
from latently.report import _projection as projection
from latently.report._advice import next_steps
from latently.report._blocks import blocks
from latently.report._codes import codes
from latently.report._explorer import explorer
from latently.report._intervals import intervals
from latently.report._levels import columns
from latently.report._markup import element
from latently.report._parts import Section
from latently.report._unusual import unusual

EXPLORER = ("explore", "scatter", "pairs-of-features", "components", "profiles", "loadings", "unusual")
_NAMES = (
    *(
        "data",
        "model",
        "selection",
        "convergence",
        "fit",
        "scatter",
        "explore",
        "pairs-of-features",
        "components",
    ),
    *(
        "columns",
        "blocks",
        "codes",
        "profiles",
        "loadings",
        "sources",
        "class-weights",
        "images",
        "unusual",
        "intervals",
        "next",
    ),
)


def sections(facts, grid, data_summary, only=None, fit=(None, None)):
    """The sections for which the model has results, or those of them with these names."""
    if only is not None:
        unknown = isinstance(only, str) or [name for name in only if name not in _NAMES]
        if unknown:
            raise ValueError(f"only must be names of sections, of {', '.join(_NAMES)}, not {only!r}")
        by_name = {section.identifier: section for section in sections(facts, grid, data_summary, None, fit)}
        return [by_name[name] for name in only if name in by_name]
    found = [
        overview.data(facts, data_summary),
        overview.model(facts),
        overview.selection(facts, grid),
        overview.convergence(facts),
        overview.fit(*fit),
        projection.scatter(facts),
        explorer(facts),
        projection.pairs(facts),
        findings.components(facts),
        columns(facts),
        blocks(facts),
        codes(facts),
        findings.profiles(facts),
        findings.loadings(facts),
        findings.sources(facts),
        findings.class_weights(facts),
        findings.images(facts),
        unusual(facts),
        intervals(facts),
        next_things(facts, grid),
    ]
    return [section for section in found if section is not None]


def next_things(facts, grid):
    items = []
    for step in next_steps(facts, grid):
        code = element("pre", element("code", step.code), tabindex="0") if step.code else ""
        items.append(element("li", element("h3", step.title), element("p", step.text), code))
    return Section("next", "Next steps", element("ol", *items, class_="steps"))
