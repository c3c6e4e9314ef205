"""Recommended next steps, depending on the results."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from latently.report._commands import in_shell
from latently.report._parts import count, percent

_SMALL = 0.02  # fraction of rows below which a component is small
_FEW_ROWS = 10
_DOUBT = 0.9  # largest responsibility below which a row is uncertain
_CELLS_PER_PARAMETER = 5  # fewer observed entries per parameter are few
_FAR_MORE = 3  # times as many unusual rows as in samples from the model


@dataclass(frozen=True)
class Step:
    title: str
    text: str
    code: str = ""
    kind: str = ""  # by which `in_shell` knows its command


def next_steps(facts, grid):
    """Steps, most urgent first."""
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
    steps = [step for step in found if step is not None]
    if facts.command_line is None:
        return steps
    around = {} if grid is None else {name: _around(facts, grid, name) for name in grid.values}
    return [in_shell(step, facts, around or _neighbours(facts)) for step in steps]


def not_converged(facts):
    model = facts.model
    if facts.converged:
        return None
    return Step(
        "Continue the fit",
        f"The fit stopped after {model.n_iter_} iterations and has not converged. Continue it:",
        f"model.set_params(max_iter={10 * max(model.n_iter_, 100)}, warm_start=True).fit({_data(facts)})",
        "converge",
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
        "Extend the search",
        f"The best model is at the boundary of the grid in {named}, so a better one may be outside of it:",
        f"select({_call(facts, without=around)}, X, {around})",
        "search",
    )


def _within(values, others):
    return others[0] <= values[0] and values[-1] <= others[-1]


def _around(facts, grid, name):
    """Integers around the best one, with more of them beyond a boundary of the grid."""
    values, best = grid.values[name], int(grid.table[name].iloc[0])
    step = max(1, int(np.median(np.diff(values))))
    behind, ahead = {"low": (3, 0), "high": (0, 3)}.get(grid.at_edge.get(name), (1, 1))
    most = facts.X.shape[1] if name == "n_factors" else len(facts.X)
    return sorted({min(most, max(1, best + step * i)) for i in range(-behind, ahead + 1)})


def _call(facts, without=()):
    """Constructor call of the estimator, without some parameters."""
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
        "Evaluate on held-out rows",
        f"The model has {m} free parameters for {cells} observed entries, so it may overfit. Compare the "
        "mean log density of held-out rows with the one above:",
        f"{_call(facts)}.fit({half}).score_samples(X[1::2]).mean()",
        "held out",
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
        "Inspect small components",
        f"{listed}{more}: so few rows may be a rare cluster, a few outliers, or an artefact of the fit. "
        "Inspect them, and check whether they are found again with other random restarts:",
        f"X[model.predict(X) == {first}]\nmodel.set_params(n_init=50, random_state=1).fit(X)"
        if not facts.is_classifier
        else f"X[model.predict_component(X) == {first}]",
        "small",
    )


def unusual_rows(facts):
    unusual = facts.unusual
    if unusual is None or unusual.threshold is None:
        return None
    if unusual.given or unusual.n_below < max(1, _FAR_MORE * unusual.n_expected):
        return None
    return Step(
        "Check the unusual rows",
        f"{_rows(unusual.n_below)} {'is' if unusual.n_below == 1 else 'are'} below the 0.1 % quantile "
        f"of the log density of samples from the model; about {unusual.n_expected:.1f} would be expected. "
        "They may be measurement errors, or a cluster without a component:",
        f"X[model.score_samples(X) < {unusual.threshold:.4g}]",
        "unusual",
    )


def missing_cells(facts):
    total = int(facts.missing.sum())
    if not total or not hasattr(facts.model, "impute"):
        return None
    more, code = "", ""
    if "n_draws" in inspect.signature(facts.model.impute).parameters:
        more = ", with standard errors, or draw several completed tables"
        code = "imputed, error = model.impute(X, return_std=True)\ntables = model.impute(X, n_draws=5)"
    return Step(
        "Impute the missing entries",
        f"{count(total)} entries are missing. Impute them by their conditional expectation{more}:",
        code or "imputed = model.impute(X)",
        "impute",
    )


def doubtful_rows(facts):
    groups = facts.groups
    if not facts.has_groups or groups.probabilities is None:
        return None
    doubtful = int(np.count_nonzero(groups.probabilities.max(axis=1) < _DOUBT))
    if doubtful < 0.1 * len(facts.X):
        return None
    return Step(
        "Components overlap",
        f"{_rows(doubtful)} ({percent(doubtful / len(facts.X))}) have a largest responsibility "
        f"below {_DOUBT:g}. Use the responsibilities rather than hard assignments, or select fewer, better "
        "separated components:",
        f"model.predict_proba(X)\nselect({_call(facts, without=['n_components'])}, X, {{'n_components': "
        f"{list(range(1, len(groups.names) + 1))[-6:]}}}, criterion='icl')",
        "overlap",
    )


def no_search(facts, grid):
    sizes = [
        name
        for name in ("n_components", "n_factors")
        if isinstance(getattr(facts.model, name, None), Integral)
    ]
    if (
        grid is not None
        or (facts.command_line is not None and facts.command_line.compared)
        or facts.groups is None
        or facts.is_classifier
        or not sizes
        or not hasattr(facts.model, "bic")
    ):
        return None
    tried = _neighbours(facts)
    return Step(
        "Compare other model sizes",
        f"The size of {' and '.join(_words(facts, name) for name in sizes)} has not been "
        "compared with others. Compare neighbouring sizes by BIC, and pass the result to the report:",
        f"found = select({_call(facts, without=tried)}, X, {tried})\n"
        'write_report("report.html", found.best_, X, selection=found)',
        "search",
    )


def _neighbours(facts):
    """Sizes beside those of the model, by parameter."""
    n_numbers, least = facts.X.shape[1], {"n_components": 1, "n_factors": 1}
    if hasattr(facts.model, "columns_"):  # of mixed columns, whose numbers need no factors
        n_numbers = sum(one.kind in ("number", "date") for one in facts.model.columns_)
        least["n_factors"] = 0
    most = {"n_components": len(facts.X), "n_factors": n_numbers}
    return {
        name: [
            v for v in range(_now(facts, name) - 1, _now(facts, name) + 3) if least[name] <= v <= most[name]
        ]
        for name in most
        if isinstance(getattr(facts.model, name, None), Integral)
    }


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
        "Save the model and apply it to new rows",
        "The file contains numbers and text only, no code.",
        'model.save("model.latently")\nmodel = latently.load("model.latently")'
        + "".join(f"\nmodel.{use}(new_rows)" for use in uses[:1]),
        "keep",
    )


def _rows(n):
    return "1 row" if n == 1 else f"{count(n)} rows"
