"""What to do next, where something was found that calls for it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from latently.report._parts import count, percent

_SMALL = 0.02  # share of rows below which a component is small
_FEW_ROWS = 10
_DOUBT = 0.9  # probability below which a row lies between components
_CELLS_PER_PARAMETER = 5  # fewer are few
_FAR_MORE = 3  # times as many unusual rows as the model itself would draw


@dataclass(frozen=True)
class Step:
    title: str
    text: str
    code: str = ""


def next_steps(facts, grid):
    """Steps, the most urgent first."""
    found = [
        not_converged(facts),
        edge_of_grid(facts, grid),
        too_many_parameters(facts),
        small_components(facts),
        unusual_rows(facts),
        missing_cells(facts),
        doubtful_rows(facts),
        no_search(facts, grid),
        keep(facts),
    ]
    return [step for step in found if step is not None]


def not_converged(facts):
    model = facts.model
    if facts.converged:
        return None
    return Step(
        "Let the fit end",
        f"The fit stopped after {model.n_iter_} iterations, before it had converged. Go on from where it is:",
        f"model.set_params(max_iter={10 * max(model.n_iter_, 100)}, warm_start=True).fit({_data(facts)})",
    )


def _data(facts):
    return "X, y" if facts.is_classifier else "X"


def edge_of_grid(facts, grid):
    if grid is None or not grid.at_edge:
        return None
    around = {name: _around(facts, grid, name) for name in grid.values}
    beyond = [name for name in grid.at_edge if not _within(around[name], grid.values[name])]
    if not beyond:
        return None  # there cannot be more factors than features
    named = " and ".join(name.removeprefix("n_") for name in beyond)
    return Step(
        "Search further",
        f"The best model lies at the edge of the search in {named}, so a better one may lie beyond it:",
        f"select({_call(facts, without=around)}, X, {around})",
    )


def _within(values, others):
    return others[0] <= values[0] and values[-1] <= others[-1]


def _around(facts, grid, name):
    """Whole numbers around the best one, and more of them beyond an edge."""
    values, best = grid.values[name], int(grid.table[name].iloc[0])
    step = max(1, int(np.median(np.diff(values))))
    behind, ahead = {"low": (3, 0), "high": (0, 3)}.get(grid.at_edge.get(name), (1, 1))
    most = facts.X.shape[1] if name == "n_factors" else len(facts.X)
    return sorted({min(most, max(1, best + step * i)) for i in range(-behind, ahead + 1)})


def _call(facts, without=()):
    """How one would write the estimator, but for some parameters."""
    given = [f"{name}={value!r}" for name, value in facts.settings.items() if name not in without]
    return f"{type(facts.model).__name__}({', '.join(given)})"


def too_many_parameters(facts):
    m = facts.n_parameters
    if m is None or facts.scores is None or facts.score_name != "log density":
        return None
    cells = facts.X.size - int(facts.missing.sum())
    if m * _CELLS_PER_PARAMETER <= cells:
        return None
    half = "X[::2], y[::2]" if facts.is_classifier else "X[::2]"
    return Step(
        "Check it on rows it has not seen",
        f"The model has {m} free parameters for {cells} observed cells, so it may describe these rows better "
        "than others. Compare the mean log density of rows that were held out with the one above:",
        f"{_call(facts)}.fit({half}).score_samples(X[1::2]).mean()",
    )


def small_components(facts):
    groups = facts.groups
    if not facts.has_groups or groups.noun != "component":
        return None
    n = groups.sizes.sum()
    small = [k for k, size in enumerate(groups.sizes) if size < max(_FEW_ROWS, _SMALL * n)]
    if not small:
        return None
    listed = ", ".join(f"{groups.names[k]} ({_rows(groups.sizes[k])})" for k in small[:5])
    more = " and others" if len(small) > 5 else ""
    first = small[0]
    return Step(
        "Look at small components",
        f"{listed}{more}: so few rows may be a rare group, a few outliers, or an accident of the fit. Look "
        "at them, and see whether they are found again from other starts:",
        f"X[model.predict(X) == {first}]\nmodel.set_params(n_init=50, random_state=1).fit(X)"
        if not facts.is_classifier
        else f"X[model.predict_component(X) == {first}]",
    )


def unusual_rows(facts):
    unusual = facts.unusual
    if unusual is None or unusual.threshold is None:
        return None
    if unusual.n_below < max(1, _FAR_MORE * unusual.n_expected):
        return None
    return Step(
        "Check the unusual rows",
        f"{_rows(unusual.n_below)} {'is' if unusual.n_below == 1 else 'are'} less probable than all but one "
        "in a thousand that the model itself would draw, where one would expect about "
        f"{unusual.n_expected:.1f}. They may be errors of measurement, or a group the model has no component "
        "for:",
        f"X[model.score_samples(X) < {unusual.threshold:.4g}]",
    )


def missing_cells(facts):
    total = int(facts.missing.sum())
    if not total or not hasattr(facts.model, "impute"):
        return None
    more, code = "", ""
    if "sample" in inspect.signature(facts.model.impute).parameters:
        more = ", or draw several versions, whose spread shows how sure it is"
        code = "\ndrawn = [model.impute(X, sample=True, random_state=i) for i in range(5)]"
    return Step(
        "Fill the missing cells",
        f"{count(total)} cells were not observed. The model can fill them with what it expects{more}:",
        "filled = model.impute(X)" + code,
    )


def doubtful_rows(facts):
    groups = facts.groups
    if not facts.has_groups or groups.probabilities is None:
        return None
    doubtful = int(np.count_nonzero(groups.probabilities.max(axis=1) < _DOUBT))
    if doubtful < 0.1 * len(facts.X):
        return None
    return Step(
        "Do not take components for separate groups",
        f"{_rows(doubtful)} ({percent(doubtful / len(facts.X))}) belong to their component with a "
        f"probability below {_DOUBT:g}: components overlap. Use the probabilities rather than the "
        "components, or look for fewer that are further apart:",
        f"model.predict_proba(X)\nselect({_call(facts, without=['n_components'])}, X, {{'n_components': "
        f"{list(range(1, len(groups.names) + 1))[-6:]}}}, criterion='icl')",
    )


def no_search(facts, grid):
    sizes = [
        name
        for name in ("n_components", "n_factors")
        if isinstance(getattr(facts.model, name, None), Integral)
    ]
    if (
        grid is not None
        or facts.groups is None
        or facts.is_classifier
        or not sizes
        or not hasattr(facts.model, "bic")
    ):
        return None
    most = {"n_components": len(facts.X), "n_factors": facts.X.shape[1]}
    tried = {
        name: [v for v in range(_now(facts, name) - 1, _now(facts, name) + 3) if 1 <= v <= most[name]]
        for name in sizes
    }
    return Step(
        "Try other sizes",
        f"Nothing here says that {' and '.join(_words(facts, name) for name in sizes)} "
        "is the right size. Compare neighbours by BIC, and give the result to the report:",
        f"found = select({_call(facts, without=tried)}, X, {tried})\n"
        'write_report("report.html", found.best_, X, selection=found)',
    )


def _now(facts, name):
    return int(getattr(facts.model, name))


def _words(facts, name):
    value, noun = _now(facts, name), name.removeprefix("n_")
    return f"{value} {noun if value != 1 else noun.removesuffix('s')}"


def keep(facts):
    if not hasattr(facts.model, "save"):
        return None
    uses = [use for use in ("predict", "transform", "score_samples") if hasattr(facts.model, use)]
    return Step(
        "Keep the model and use it on new rows",
        "The file holds numbers and text only, no code.",
        'model.save("model.latently")\nmodel = latently.load("model.latently")'
        + "".join(f"\nmodel.{use}(new_rows)" for use in uses[:1]),
    )


def _rows(n):
    return "1 row" if n == 1 else f"{count(n)} rows"
