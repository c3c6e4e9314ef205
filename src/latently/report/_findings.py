"""Sections on the results of the model."""

from __future__ import annotations

import numpy as np

from latently.report import _charts as charts
from latently.report._charts import swatch
from latently.report._drawing import number
from latently.report._levels import typical
from latently.report._markup import element, join
from latently.report._parts import (
    MOST_FEATURES,
    MOST_GROUPS,
    Section,
    brightness,
    count,
    figure,
    percent,
    picture,
    plural,
    several,
    short,
    signed,
    table,
)

_MOST_COMPONENTS = 6  # components whose loadings are shown
_IN_A_LINE = 12  # images
_MOST_IMAGES = 60
_MOST_TRAITS = 4
_MOST_SOURCES = 20_000  # in a chart
_SMALL_SOURCE = 0.05
_MOST_UNCERTAIN = 10
_FAINT = 0.5  # standard deviations below which a difference is not mentioned


# -- groups ---------------------------------------------------------------------------------------------


def components(facts):
    if not facts.has_groups:
        return None
    groups, n = facts.groups, len(facts.X)
    order = np.argsort(-groups.sizes, kind="stable")
    lines = []
    for k in order[:MOST_GROUPS].tolist():
        own, share = groups.codes == k, float(groups.sizes[k] / n)
        bar = charts.shares([(k, share, groups.names[k])], f"{percent(share)} of the rows", groups.kind)
        cells = [
            element("th", swatch(k, groups.kind), groups.names[k], scope="row"),
            element("td", count(groups.sizes[k]), class_="number"),
            element("td", percent(share), class_="number"),
            element("td", bar, class_="wide"),
        ]
        if groups.probabilities is not None:
            certainty = percent(np.mean(groups.probabilities[own, k])) if own.any() else "–"
            cells.append(element("td", certainty, class_="number"))
        if facts.classes is not None:
            cells.append(element("td", composition(facts.classes, own), class_="wide"))
        lines.append(element("tr", *cells, data_code=k))
    heads = [groups.noun, "rows", "fraction", ""]
    heads += ["certainty"] if groups.probabilities is not None else []
    heads += ["classes"] if facts.classes is not None else []
    text = (
        f"The largest of {several(len(order), groups.noun)} has {percent(groups.sizes.max() / n)} of the "
        f"rows, the smallest {percent(groups.sizes.min() / n)}."
    )
    if groups.probabilities is not None:
        certain = np.mean(groups.probabilities.max(axis=1) >= 0.9)
        text += (
            f" {percent(certain)} of the rows have a largest responsibility of at least 0.9. Certainty "
            "is the mean largest responsibility of the rows of a component."
        )
    caption = f"{plural(groups.noun).capitalize()} by size"
    if len(order) > MOST_GROUPS:
        caption += f": the largest {MOST_GROUPS} of {len(order)}"
    parts = [element("p", text), table(caption, heads, lines)]
    if facts.classes is not None:
        names = facts.classes.names[:MOST_GROUPS]
        keys = [element("li", swatch(c, "d"), name) for c, name in enumerate(names)]
        parts.append(element("ul", *keys, class_="key", aria_label="Colours of the classes"))
    parts.append(uncertainty(facts) or "")
    return Section("components", plural(groups.noun).capitalize(), join(parts))


def uncertainty(facts):
    """How certain assignments are, and the rows between groups; None if all are certain."""
    groups = facts.groups
    if not facts.has_groups or groups.probabilities is None:
        return None
    ordered = np.sort(groups.probabilities, axis=1)
    certain = ordered[:, -1]
    if np.all(certain > 0.999):
        return None
    lines = []
    for i in np.argsort(certain, kind="stable")[:_MOST_UNCERTAIN].tolist():
        first, second = np.argsort(-groups.probabilities[i], kind="stable")[:2].tolist()
        cells = [element("th", facts.row_name(i), scope="row")]
        for k in (first, second):
            name = [swatch(k, groups.kind), f"{groups.names[k]}, {percent(groups.probabilities[i, k])}"]
            cells.append(element("td", *name, class_="name"))
        lines.append(element("tr", *cells, data_row=facts.row_name(i)))
    shares = [f"at least {limit:g} for {percent(np.mean(certain >= limit))}" for limit in (0.99, 0.9, 0.5)]
    text = (
        f"The largest {'responsibility' if groups.noun == 'component' else 'probability'} of a row says how "
    )
    text += (
        f"certain its {groups.noun} is: {', '.join(shares)} of the rows. The table lists rows between groups."
    )
    chart = charts.histogram(
        "certainty",
        certain,
        name="certainty",
        threshold=None,
        threshold_name="",
        column="certainty",
        limits=(min(1 / ordered.shape[1], float(certain.min())), 1.0),
    )
    return join(
        [
            element("h3", "Uncertainty of assignments"),
            element("p", text),
            figure(chart, "Rows by certainty"),
            table("The least certain rows", [*("row", "likeliest", "second")], lines, folded=True),
        ]
    )


def composition(classes, own):
    sizes = np.bincount(classes.codes[own], minlength=len(classes.names))
    total = max(int(sizes.sum()), 1)
    shown = np.sort(np.argsort(-sizes, kind="stable")[:MOST_GROUPS]).tolist()
    parts = [(c, float(sizes[c] / total), f"{classes.names[c]}: {several(sizes[c], 'row')}") for c in shown]
    largest = np.argsort(-sizes, kind="stable")[:3]
    told = ", ".join(f"{classes.names[c]} {percent(sizes[c] / total)}" for c in largest if sizes[c])
    return charts.shares(parts, told or "no rows", "d")


def profiles(facts):
    if facts.profiles is None:
        return None
    groups, differences = facts.groups, facts.profiles.differences
    shown = np.sort(np.argsort(-groups.sizes, kind="stable")[:MOST_GROUPS])
    shown = shown[groups.sizes[shown] > 0].tolist()
    explained = (
        f"The numbers compare the mean of a feature in one {groups.noun} with its mean in all other rows, in "
        "within-group standard deviations. At 1 the two means are one such deviation apart, so that the "
        "rows still overlap; above 3 the feature alone nearly separates them. The numbers are descriptive, "
        "not a test, since the groups were estimated from the same rows."
    )
    draw = profile_images if facts.image_shape else profile_map
    body = [element("p", explained), *draw(facts, groups, differences, shown)]
    return Section("profiles", f"Distinguishing features of each {groups.noun}", join(body))


def profile_images(facts, groups, differences, shown):
    names = f"from {groups.names[shown[0]]} to {groups.names[shown[-1]]}"
    yield picture(
        differences[shown],
        facts,
        limits=None,
        n_columns=min(_IN_A_LINE, len(shown)),
        alt=f"Differences of means of each {groups.noun}",
        caption=f"Difference of means at every pixel, {names}: blue is higher than elsewhere, orange lower.",
    )


def profile_map(facts, groups, differences, shown):
    yield element(
        "ul",
        *[
            element(
                "li",
                swatch(k, groups.kind),
                element("strong", groups.names[k]),
                f" ({percent(groups.sizes[k] / len(facts.X))}): {traits(facts, k)}",
            )
            for k in shown
        ],
        class_="traits",
    )
    ordered = np.setdiff1d(np.arange(facts.X.shape[1]), list(facts.levels.nominal))
    if len(ordered) == 0:
        return
    chosen = ordered[facts.strongest(facts.informative[ordered], MOST_FEATURES)]
    caption = f"Difference of means, {groups.noun} against the rest."
    if len(chosen) < len(ordered):
        caption += f" The {len(chosen)} of {count(len(ordered))} features that differ most."
    title = f"Distinguishing features of each {groups.noun}"
    chart = charts.heat_map(
        "profiles-map",
        differences[np.ix_(shown, chosen)].T,
        [facts.feature_names[j] for j in chosen],
        [short(groups.names[k]) for k in shown],
        title=title,
        described="Positive if the feature is higher in the group than in other groups, negative if lower.",
        row_axis="feature",
        column_axis=groups.noun,
        limit=min(4.0, float(np.max(np.abs(differences[shown])))),
        cells=lambda i, j: {"data_group": shown[j], "data_feature": int(chosen[i])},
    )
    yield element("div", figure(chart, title, caption), class_="cells")


def traits(facts, k):
    """The most distinguishing features of a group, in words."""
    own = facts.profiles.differences[k]
    strongest = np.argsort(-np.abs(own), kind="stable")[:_MOST_TRAITS]
    said = [
        f"{'high' if own[j] > 0 else 'low'} {facts.feature_names[j]} ({signed(own[j])})"
        for j in strongest
        if abs(own[j]) >= _FAINT
    ]
    said += [typical(facts, j, k) for j in sorted(facts.levels.nominal) if facts.informative[j] >= _FAINT]
    if not said:
        return "no feature differs by half a standard deviation; the group differs in correlations only."
    return ", ".join(said) + "."


# -- factors --------------------------------------------------------------------------------------------


def loadings(facts):
    if facts.loadings is None:
        return None
    title = "Loadings" if facts.loadings.noun == "factor" else "Parts"
    draw = loading_images if facts.image_shape else loading_maps
    return Section("loadings", title, join(draw(facts, facts.loadings)))


def loading_images(facts, found):
    shown, offset = found.raw.T[:_MOST_IMAGES], facts.offset_image
    shown = shown if offset is None else np.concatenate([shown, offset])
    n_shown = len(shown) - (offset is not None)
    positive = found.noun == "part" and np.min(shown) >= 0
    nouns = plural(found.noun).capitalize()
    caption = f"{nouns} as images{', component by component' if len(found.tables) > 1 else ''}. "
    caption += "" if positive else "Each is on its own scale; blue is positive, orange negative. "
    if n_shown < found.raw.shape[1]:
        caption += f"The first {n_shown} of {found.raw.shape[1]}. "
    caption += "" if offset is None else "The last image is the offset."
    yield picture(
        shown,
        facts,
        limits=(0.0, float(np.max(shown))) if positive else None,
        n_columns=min(_IN_A_LINE, len(shown)),
        alt=f"{nouns} as images",
        caption=caption,
    )


def loading_maps(facts, found):
    titles = list(found.tables)
    if len(titles) > _MOST_COMPONENTS:
        largest = np.argsort(-np.asarray(facts.flat.weights_), kind="stable")[:_MOST_COMPONENTS]
        titles = [titles[k] for k in np.sort(largest)]
    tables = {title: found.tables[title] for title in titles}
    strength = np.max(np.abs(np.concatenate(list(tables.values()), axis=1)), axis=1)
    chosen = facts.strongest(strength, MOST_FEATURES)
    if found.noun == "factor":
        text = (
            "The change of each feature, in its standard deviations, when a factor increases by one standard "
            "deviation. Features with large loadings on the same factor are correlated, negatively if the "
            "signs differ."
        )
        if found.raw.shape[1] > 1:
            text += (
                " Factors can be rotated without changing the model, so interpret patterns of loadings "
                "rather than single numbers."
            )
    else:
        text = "The contribution of each part to a feature, in standard deviations of the feature."
    if len(chosen) < facts.X.shape[1]:
        text += (
            f" Of {count(facts.X.shape[1])} features, the {len(chosen)} with the largest numbers are shown."
        )
    if len(titles) < len(found.tables):
        text += f" Of {len(found.tables)} components, the {len(titles)} largest are shown."
    yield element("p", text)
    maps = []
    for i, (title, values) in enumerate(tables.items()):
        name = f"Loadings{' of ' + title if title else ''}"
        chart = charts.heat_map(
            f"loadings{i}",
            values[chosen],
            [facts.feature_names[j] for j in chosen],
            range(1, values.shape[1] + 1),
            title=name,
            described=f"Lines are features, columns {plural(found.noun)}.",
            row_axis="feature",
            column_axis=found.noun + (f", {title}" if title else ""),
            limit=float(np.max(strength)),
        )
        maps.append(figure(chart, name))
    yield element("div", *maps, class_="maps")


# -- sources and class weights --------------------------------------------------------------------------


def sources(facts):
    found = facts.sources
    if found is None:
        return None
    values, mapped = np.ravel(found.values), np.ravel(found.mapped)
    small = float(np.mean(np.abs(values) < _SMALL_SOURCE))
    text = (
        f"Each row has {several(found.values.shape[1], 'source')} s, and the map {found.mapping} turns them "
        f"into what parts are multiplied by. {percent(small)} of the sources are within {_SMALL_SOURCE} of "
        f"zero; f(s) is between {number(mapped.min())} and {number(mapped.max())}."
    )
    some = np.unique(np.linspace(0, len(values) - 1, min(len(values), _MOST_SOURCES)).astype(int))
    chart = charts.sources("sources-map", values[some], mapped[some])
    caption = "Left: how sources are distributed. Right: the map f at the sources of the rows."
    return Section("sources", "Sources", join([element("p", text), figure(chart, "Sources", caption)]))


def class_weights(facts):
    """What each class looks for in a row."""
    found = facts.class_features
    if found is None:
        return None
    names = [str(name) for name in facts.model.classes_]
    text = "Coefficients of the classes, propagated through the parts to features: a row is more probably of "
    text += "a class the more it has of its positive values, and the less of the negative ones."
    if facts.image_shape:
        shown = found[:_MOST_IMAGES]
        caption = f"Classes {', '.join(names[: len(shown)])}, each on its own scale; blue is positive, "
        body = picture(
            shown,
            facts,
            limits=None,
            n_columns=min(_IN_A_LINE, len(shown)),
            alt="Class weights as images",
            caption=caption + "orange negative.",
        )
    else:
        scaled = found * facts.deviation
        chosen = facts.strongest(np.max(np.abs(scaled), axis=0), MOST_FEATURES)
        chart = charts.heat_map(
            "class-weights-map",
            scaled.T[chosen],
            [facts.feature_names[j] for j in chosen],
            names,
            title="Class weights",
            described="Lines are features, columns classes.",
            row_axis="feature",
            column_axis="class",
            limit=float(np.max(np.abs(scaled))) or 1.0,
        )
        body = figure(chart, "Class weights", "Per standard deviation of the feature.")
    return Section("class-weights", "Class weights", join([element("p", text), body]))


# -- images ---------------------------------------------------------------------------------------------


def images(facts):
    if facts.image_shape is None:
        return None
    limits = brightness(facts)
    lines = [
        picture(rows, facts, limits=limits, n_columns=n_columns, alt=alt, caption=caption)
        for rows, n_columns, alt, caption in image_lines(facts, black=limits[0])
    ]
    return Section("images", "Images", join(lines)) if lines else None


def image_lines(facts, black):
    """Rows, number of images per line, alternative text and caption."""
    n, D = facts.X.shape
    means = getattr(facts.model, "means_", None)
    if means is not None and np.shape(means)[-1] == D:
        means = np.reshape(means, (-1, D))[:_MOST_IMAGES]
        yield means, min(_IN_A_LINE, len(means)), "Means", "Means of the components, in order."
    if hasattr(facts.model, "reconstruct"):
        some = np.sort(np.random.default_rng(0).choice(n, min(_IN_A_LINE, n), replace=False))
        both = np.concatenate([np.nan_to_num(facts.X[some], nan=black), facts.asked("reconstruct", some)])
        caption = "Above, random rows; below, their reconstructions."
        yield both, len(some), "Rows and their reconstructions", caption
    if hasattr(facts.model, "sample"):
        drawn = facts.drawn(2 * _IN_A_LINE)
        caption = "Images sampled from the model."
        yield drawn, _IN_A_LINE, "Images sampled from the model", caption
