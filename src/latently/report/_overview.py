"""Sections on the data, the model, its selection and its fit."""

from __future__ import annotations

import inspect
from numbers import Integral
from typing import Any

import numpy as np

from latently.report import _charts as charts
from latently.report._drawing import apart, number, padded
from latently.report._levels import frequent
from latently.report._markup import element, join
from latently.report._parts import (
    MOST_FEATURES,
    MOST_GROUPS,
    Section,
    count,
    figure,
    line,
    percent,
    plain,
    plural,
    several,
    table,
    words,
)
from latently.selection.criteria import OF_ALL_ROWS

_MOST_MODELS = 12
_MOST_LINES = 15  # of a table that is not folded


def lead(facts, grid):
    """Summary of the report in two or three sentences."""
    m = facts.model
    sizes = [
        several(int(getattr(m, f"n_{noun}s")), noun)
        for noun in ("component", "factor")
        if isinstance(getattr(m, f"n_{noun}s", None), Integral)
    ]
    text = f"{type(m).__name__}{' with ' + ' and '.join(sizes) if sizes else ''}"
    if grid is not None:
        text += f", the best of {count(len(grid.table))} models by {grid.criterion.label}"
    text += "."
    if facts.share_predicted_right is not None:
        text += f" It predicts the class of {percent(facts.share_predicted_right)} of the rows correctly."
    elif facts.agreement is not None:
        what, share = facts.agreement.in_words
        text += f" {percent(share)} of the rows {what}."
    if facts.unusual is not None and facts.unusual.n_below:
        n = facts.unusual.n_below
        text += f" {several(n, 'row').capitalize()} {'is' if n == 1 else 'are'} unusual under the model."
    if not facts.converged:
        text += " The fit had not converged, so interpret the results with care."
    return element("p", text, class_="lead")


def glance(facts):
    """Key numbers."""
    n, D = facts.X.shape
    missing = int(facts.missing.sum())
    cells = [
        ("rows", count(n) if n == facts.n_rows else f"{count(n)} of {count(facts.n_rows)}"),
        ("features", count(D)),
        ("missing entries", percent(missing / facts.X.size) if missing else "none"),
    ]
    if facts.has_groups:
        cells.append((plural(facts.groups.noun), count(len(facts.groups.names))))
    if facts.factors is not None:
        cells.append((plural(facts.factor_noun), count(facts.factors.shape[1])))
    if facts.scores is not None:
        cells.append((f"mean {facts.score_name}", number(np.mean(facts.scores))))
    shown = [element("div", element("dt", name), element("dd", value)) for name, value in cells]
    return element("dl", *shown, class_="glance")


# -- the data -------------------------------------------------------------------------------------------


def data(facts, data_summary):
    n, D = facts.X.shape
    missing = int(facts.missing.sum())
    text = f"{several(n, 'row').capitalize()} of {several(D, 'feature')}. "
    if n < facts.n_rows:
        text = f"{count(n)} rows, drawn at random from {count(facts.n_rows)}, of {several(D, 'feature')}. "
    if missing:
        text += (
            f"{count(missing)} entries ({percent(missing / facts.X.size)}) are missing, in "
            f"{several(np.count_nonzero(~facts.complete), 'row')} and "
            f"{several(np.count_nonzero(facts.missing), 'feature')}; the model uses the observed entries."
        )
    else:
        text += "No entry is missing."
    parts = [element("p", text)]
    if data_summary:
        entries = [
            element("div", element("dt", str(name).replace("_", " ")), element("dd", plain(value)))
            for name, value in data_summary.items()
        ]
        parts.append(element("dl", *entries, class_="facts"))
    if facts.classes is not None:
        parts.append(class_sizes(facts.classes))
    parts.append(feature_table(facts))
    return Section("data", "The data", join(parts))


def class_sizes(classes):
    largest = np.argsort(-classes.sizes, kind="stable")[:MOST_GROUPS]
    listed = ", ".join(f"{classes.names[c]} ({count(classes.sizes[c])})" for c in largest if classes.sizes[c])
    rest = len(classes.names) - len(largest)
    more = f" and {rest} others" if rest else ""
    return element("p", f"Rows by class: {listed}{more}.")


def feature_table(facts):
    n, D = facts.X.shape
    chosen = facts.strongest(facts.informative, MOST_FEATURES)
    with_missing = bool(facts.missing.any())
    lines = []
    for j in chosen:
        name, there = facts.feature_names[j], facts.shown[~np.isnan(facts.X[:, j]), j]
        cells = [element("th", name, scope="row")]
        if with_missing:
            cells.append(element("td", percent(facts.missing[j] / n), class_="number"))
        if j in facts.levels.names and len(there):
            n_levels = len(facts.levels.names[j])
            counts = np.bincount(there.astype(int), minlength=n_levels)
            cells.append(element("td", frequent(facts, j), colspan=4))
            where = {"column": int(j), "low": -0.5, "high": n_levels - 0.5}
            cells.append(element("td", charts.small_histogram(counts, f"distribution of {name}", **where)))
        elif len(there):
            mean, deviation = (
                facts.mean[j] * facts.scale[j] + facts.offset[j],
                facts.deviation[j] * facts.scale[j],
            )
            mean = 0.0 if abs(mean) < 1e-9 * deviation else mean  # rounding error only
            shown = [facts.levels.text(j, value) for value in (mean, there.min(), there.max())]
            shown.insert(1, number(deviation))
            cells += [element("td", value, class_="number") for value in shown]
            low, high = padded(there.min(), there.max())
            counts = np.histogram(there, bins=16, range=(low, high))[0]
            spark = charts.small_histogram(
                counts, f"distribution of {name}", column=int(j), low=low, high=high
            )
            cells.append(element("td", spark))
        else:
            cells.append(element("td", "not observed in any row", colspan=5))
        lines.append(element("tr", *cells))
    heads = ["feature", *(["missing"] if with_missing else [])]
    heads += ["mean", "standard deviation", "minimum", "maximum", "distribution"]
    caption = "Features, before they were standardised" if facts.in_other_units else "Features"
    if len(chosen) < D:
        what = "differ most between groups" if facts.profiles is not None else "vary most"
        caption += f": the {len(chosen)} of {count(D)} that {what}"
    return table(caption, heads, lines, folded=len(chosen) > _MOST_LINES)


# -- the model ------------------------------------------------------------------------------------------


def model(facts):
    numbers = [line(name, value) for name, value in numbers_of(facts)]
    settings = [line(name, repr(value)) for name, value in facts.settings.items()]
    tables = [
        table(caption, None, lines)
        for caption, lines in (("Numbers", numbers), ("Parameters that differ from their defaults", settings))
        if lines
    ]
    body = [element("p", join(in_words(facts), " ")), element("div", *tables, class_="columns")]
    return Section("model", "The model", join(body))


def in_words(facts):
    """Sentences that describe the model by its attributes, whatever its class."""
    m = facts.model
    summary = (inspect.getdoc(type(m)) or "").split("\n\n")[0].replace("\n", " ").split(":")[0].strip(" .")
    yield join([element("strong", type(m).__name__), f": {summary}." if summary else "."])
    if facts.has_groups and facts.groups.noun == "component":
        K = len(facts.groups.names)
        yield f"Each row comes from one of {K} components, whose weights are estimated."
    q: Any = getattr(m, "n_factors", None)
    if isinstance(q, Integral) and int(q) > 0:
        factors = several(q, "factor")
        if facts.each_has_its_own_factors:
            yield f"Each component has its own {factors}: directions of correlated variation of its rows."
        elif hasattr(facts.flat, "latent_means_"):
            yield f"All components share {factors}, and each component is a Gaussian in the space of these."
        else:
            explain = "explain" if int(q) > 1 else "explains"
            yield f"{factors.capitalize()} {explain} the correlations of features."
    if getattr(m, "covariance_type", None) in _COVARIANCES:
        yield _COVARIANCES[m.covariance_type]
    if facts.loadings is not None and facts.loadings.noun == "part":
        yield f"Each row is a combination of {several(facts.loadings.raw.shape[1], 'part')}."
    if facts.is_classifier:
        classes = ", ".join(str(label) for label in list(m.classes_)[:MOST_GROUPS])
        yield f"It distinguishes {len(m.classes_)} classes: {classes}."
    if facts.noise_share is not None:
        yield (
            f"It explains {percent(1 - facts.noise_share)} of the variance of a feature on average; the rest "
            "is noise."
        )


_COVARIANCES = {
    "full": "Each component has its own full covariance matrix.",
    "tied": "All components share one covariance matrix and differ in their means.",
    "diag": "Within a component features are independent, each with its own variance.",
    "spherical": "Each component has one variance for all features.",
}


def numbers_of(facts):
    m = facts.model
    if facts.scores is not None:
        yield f"mean {facts.score_name} of a row", number(np.mean(facts.scores))
    if facts.n_parameters is not None:
        yield "free parameters", count(facts.n_parameters)
    if not facts.is_classifier and facts.scores is not None and facts.score_name == "log density":
        for criterion in OF_ALL_ROWS:
            if hasattr(m, criterion.name):
                of = ", of standardised features" if facts.in_other_units else ""
                yield f"{criterion.label} ({criterion.direction}{of})", number(facts.asked(criterion.name))
    if getattr(m, "n_iter_", 0):
        yield "iterations of the fit", f"{count(m.n_iter_)}, {'' if facts.converged else 'not '}converged"
    if facts.share_predicted_right is not None:
        yield "rows with correctly predicted class", percent(facts.share_predicted_right)
    if facts.agreement is not None:
        what, share = facts.agreement.in_words
        yield f"rows that {what}", percent(share)
        yield "adjusted Rand index with the classes", number(facts.agreement.adjusted_rand)


# -- the search -----------------------------------------------------------------------------------------


def selection(facts, grid):
    if grid is None:
        return None
    best, label = grid.table.iloc[0], grid.criterion.label
    chosen = ", ".join(f"{name} = {best[name]}" for name in grid.parameters)
    text = (
        f"{count(len(grid.table))} models were fitted and compared by {label} ({grid.criterion.direction}). "
        f"The best has {chosen}."
    )
    if facts.in_other_units:
        text += " Here densities are those of standardised features."
    if grid.at_edge:
        text += f" It is at the boundary of the grid in {' and '.join(map(words, grid.at_edge))}."
    parts = [element("p", text)]
    if grid.display is not None:
        parts += grid_maps(grid.display)
    columns = [*grid.parameters, "n_parameters", "log_likelihood"]
    columns += [] if grid.criterion.column in columns else [grid.criterion.column]
    heads = [label if name == grid.criterion.column else str(name).replace("_", " ") for name in columns]
    lines: list[Any] = []
    for row in grid.table.head(_MOST_MODELS).to_dict("records"):
        cells = [element("td", _cell(row[name]), class_="number") for name in columns]
        lines.append(element("tr", *cells, class_=None if lines else "best"))
    caption = f"The best {len(lines)} of {count(len(grid.table))} models"
    parts.append(table(caption, heads, lines, folded=True))
    return Section("selection", "Model selection", join(parts))


def _cell(value):
    return number(value) if isinstance(value, float) else str(value)


def grid_maps(display):
    """A heat map for every combination of the parameters not on the axes; shades show the gap to the best."""
    sign = 1 if display.higher_is_better else -1
    groups = {name: np.atleast_2d(values) for name, values in display.groups.items()}
    gaps = {name: sign * (display.best_score - values) for name, values in groups.items()}
    widest = max(*(float(np.nanmax(gap)) for gap in gaps.values()), np.finfo(float).tiny)
    for i, (name, values) in enumerate(groups.items()):
        group, at = display.best
        title = f"{display.label} of the models{', ' + name if name else ''}"
        chart = charts.heat_map(
            f"grid{i}",
            values,
            [""] if display.y_name is None else display.y_values,
            display.x_values,
            title=title,
            described=f"The best is {number(display.best_score)}.",
            row_axis="" if display.y_name is None else words(display.y_name),
            column_axis=words(display.x_name) + (f"; {name}" if name else ""),
            shades=1 - np.sqrt(np.clip(gaps[name] / widest, 0, 1)),
            best=(0, *at)[-2:] if group == name else None,
            written=number,
        )
        yield figure(chart, title, f"{title}. Darker is better; the best is framed.")


# -- whether it fits -------------------------------------------------------------------------------------


def fit(verdict, points):
    """What held-out rows say of the model."""
    if not verdict and points is None:
        return None
    body = [element("p", verdict)] if verdict else []
    if points is not None:
        chart = charts.probability_plot("probability-plot", *points)
        caption = "The share of held-out rows whose log density is below the model's own quantile, at each "
        caption += (
            "probability. A model that fits follows the dashed diagonal; above it rows are less likely "
        )
        caption += "than the model says, and below it more."
        body.append(figure(chart, "Probability plot", caption))
    return Section("fit", "Does the model fit?", join(body))


# -- the fit --------------------------------------------------------------------------------------------


def convergence(facts):
    history = np.asarray(getattr(facts.model, "history_", ()), dtype=float)
    if len(history) < 2 or not np.isfinite(history).all():
        return None
    if getattr(facts.model, "losses_", None):
        return _training(facts.model, history)
    climbs = facts.score_name == "log density" and facts.scores is not None and history[-1] >= history[0]
    penalised = "" if getattr(facts.model, "prior", None) is None else "penalised "
    objective = f"{penalised}log-likelihood per row" if climbs else "objective"
    steps = several(facts.model.n_iter_, "iteration")
    text = (
        f"The fit converged after {steps}."
        if facts.converged
        else f"The fit was stopped after {steps}, before it converged."
    )
    of = ", of standardised features," if facts.in_other_units else ""
    text += f" The {objective}{of} changed from {' to '.join(apart(history[0], history[-1]))}."
    body = [element("p", text)]
    if len(history) > 2:
        caption = f"Left: the {objective} at every iteration. Right: its distance to the final value."
        body.append(figure(charts.convergence("fit", history, objective=objective), "Convergence", caption))
    if facts.parts_of_cost is not None:
        chart = charts.curves("parts", facts.parts_of_cost, x_name="iteration", title="Parts of the cost")
        caption = "The two parts of the cost: of rows with their sources, and of labels given the sources."
        body.append(figure(chart, "Parts of the cost", caption))
    return Section("convergence", "Convergence", join(body))


def _training(model, history):
    """Curves of a network: its objective, and that of validation rows if there were any."""
    objective = model.objective.name
    text = f"The network was trained for {several(model.n_passes_, 'epoch')}"
    if model.converged_:
        text += f"; it did not improve after the first {model.n_iter_}, whose parameters it keeps"
    text += f". The {objective} changed from {' to '.join(apart(history[0], history[-1]))}"
    text += " while the parameters changed; it is noisy."
    found = {objective: history}
    validation = model.losses_.get(f"validation {model.watched}")
    if validation is not None:
        found["of validation rows"] = validation
    caption = f"The {objective} in every epoch" + (", and that of rows held out." if len(found) > 1 else ".")
    body = [element("p", text), figure(charts.curves("fit", found), "Training", caption)]
    return Section("convergence", "Training", join(body))
