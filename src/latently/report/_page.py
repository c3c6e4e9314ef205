"""The page: one self-contained HTML file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

from latently.core.io import replace_file
from latently.report._facts import Facts
from latently.report._grid import grid_of
from latently.report._inputs import checked_fit
from latently.report._markup import Markup, element, source_hash
from latently.report._overview import glance, lead
from latently.report._parts import several
from latently.report._sections import EXPLORER, sections

# in the order in which they need each other
SCRIPTS = (
    "arrays.js",
    "page.js",
    "rows.js",
    "scatter.js",
    "selection.js",
    "saving.js",
    "pairs.js",
    "makers.js",
    "explorer.js",
)


class Report:
    """A report as an HTML page: displayed by notebooks, or written to a file.

    Attributes
    ----------
    html : str
        The whole page.
    """

    def __init__(self, html):
        self.html = html

    def save(self, path):
        """Write the page atomically and return its path."""
        path = Path(path)
        replace_file(path, self.html.encode("utf-8"))
        return path

    def _repr_html_(self):
        frame = element(
            "iframe",
            srcdoc=self.html,
            sandbox="allow-scripts",
            width="100%",
            height="720",
            title="Report of a model",
        )
        return str(frame)


def report(
    model,
    X,
    *,
    feature_names=None,
    labels=None,
    row_names=None,
    selection=None,
    image_shape=None,
    title=None,
    data_summary=None,
    units=None,
    row_numbers=None,
    n_rows=None,
    threshold=None,
    only=None,
    verdict=None,
    probability_plot=None,
    columns=None,
    uncertainty=None,
    command_line=None,
):
    """Create a report on a fitted model and rows.

    Parameters
    ----------
    model : estimator
        A fitted mixture, factor model, classifier or factorisation. Sections for which it has no method are
        omitted.
    X : array-like of shape (n_samples, n_features)
        Rows in the units of the model, usually the training rows. NaN marks a missing entry.
    feature_names : sequence of str, optional
        By default those of the model, if it was fitted to a table with names.
    labels : array-like of shape (n_samples,), optional
        Classes of the rows, for comparison with the model; None, NaN or empty if unknown.
    row_names : sequence of str, optional
        By default rows are named by their numbers.
    selection : Selection or DataFrame, optional
        The result of `latently.selection.select` that led to the model, or its `table_`.
    image_shape : tuple of int, optional
        Height and width, if rows are images, followed by 3 for colour images.
    title : str, optional
    data_summary : dict, optional
        More information about the data, as names and plain values, such as the file name.
    units : pair of array-likes of shape (n_features,), optional
        Offset and scale, if features were standardised: values are shown as x * scale + offset, and log
        densities are of these.
    row_numbers : array-like of int of shape (n_samples,), optional
        Numbers of the rows in the user's file; by default from 1.
    n_rows : int, optional
        Number of rows of the file, if X was drawn from it.
    threshold : float, optional
        Log density below which a row is unusual, as in `latently score`; by default one in a thousand rows
        sampled from the model is below it.
    only : sequence of str, optional
        Sections by their names in the addresses of the page, such as "explore" and "scatter", in this order;
        by default all.
    verdict : str, optional
        Whether the model fits, in a sentence, such as the `verdict` of `latently.selection.calibration`.
    probability_plot : pair of sequences of float, optional
        The `expected` and `observed` shares of such a calibration.
    columns : dict, optional
        What the numbers of some columns stand for, by feature name: the levels 0, 1, ... of a category or
        an ordered answer, as a list of texts, or "date" for days since 1970. A `MixedMixture` that was
        fitted to a table takes the table as X, and knows.
    uncertainty : Bootstrap, optional
        The result of `latently.selection.bootstrap` for the model and X.
    command_line : CommandLine, optional
        Where the command line has the model and its rows; next steps are then shell commands.

    Returns
    -------
    Report
        With `html` and `save(path)`; notebooks display it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import MCFA
    >>> from latently.report import report
    >>> iris = load_iris()
    >>> model = MCFA(n_components=3, n_factors=2, random_state=0).fit(iris.data)
    >>> species = iris.target_names[iris.target]
    >>> page = report(model, iris.data, feature_names=iris.feature_names, labels=species)
    >>> "petal length" in page.html
    True
    >>> page.save("iris.html").name
    'iris.html'
    """
    facts = Facts(
        model,
        X,
        feature_names=feature_names,
        labels=labels,
        row_names=row_names,
        image_shape=image_shape,
        units=units,
        row_numbers=row_numbers,
        n_rows=n_rows,
        threshold=threshold,
        columns=columns,
        uncertainty=uncertainty,
        command_line=command_line,
    )
    grid, fit = grid_of(selection), checked_fit(verdict, probability_plot)
    if title is None:
        n, D = facts.X.shape
        title = f"{type(model).__name__}: {several(n, 'row')}, {several(D, 'feature')}"
    return Report(_page(str(title), facts, grid, sections(facts, grid, data_summary or {}, only, fit)))


def explore(model, X, **given):
    """Create a page to explore a model with: the explorer, the rows, and what belongs to both.

    Parameters
    ----------
    model, X
        As for `report`; the model has components or factors.
    **given
        Other arguments of `report`.

    Returns
    -------
    Report

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import FactorAnalysis
    >>> from latently.report import explore
    >>> iris = load_iris()
    >>> page = explore(FactorAnalysis(2).fit(iris.data), iris.data, feature_names=iris.feature_names)
    >>> page.save("explore.html").name
    'explore.html'
    """
    made = report(model, X, **{"only": EXPLORER} | given)
    if 'id="explore"' not in made.html:
        raise ValueError(
            f"{type(model).__name__} cannot be explored: it has no components or factors that rows are made "
            "from, or is too large for a page; see its report"
        )
    return made


def write_report(
    path,
    model,
    X,
    *,
    feature_names=None,
    labels=None,
    row_names=None,
    selection=None,
    image_shape=None,
    title=None,
    data_summary=None,
    units=None,
    row_numbers=None,
    n_rows=None,
    threshold=None,
    only=None,
    verdict=None,
    probability_plot=None,
    columns=None,
    uncertainty=None,
    command_line=None,
):
    """Write a report on a fitted model and rows to an HTML file.

    Parameters
    ----------
    path : str or path-like
        File to write; an existing file is replaced atomically.
    model, X, feature_names, labels, row_names, selection, image_shape, title, data_summary, units, \
    row_numbers, n_rows, threshold, only, verdict, \
    probability_plot, columns, uncertainty, command_line
        As for `report`.

    Returns
    -------
    pathlib.Path
        The path.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from latently.mixture import MFA
    >>> from latently.report import write_report
    >>> wine = load_wine()
    >>> model = MFA(n_components=3, n_factors=2, random_state=0).fit(wine.data)
    >>> write_report("wine.html", model, wine.data, feature_names=wine.feature_names).stat().st_size < 10**6
    True
    """
    made = report(
        model,
        X,
        feature_names=feature_names,
        labels=labels,
        row_names=row_names,
        selection=selection,
        image_shape=image_shape,
        title=title,
        data_summary=data_summary,
        units=units,
        row_numbers=row_numbers,
        n_rows=n_rows,
        threshold=threshold,
        only=only,
        verdict=verdict,
        probability_plot=probability_plot,
        columns=columns,
        uncertainty=uncertainty,
        command_line=command_line,
    )
    return made.save(path)


def _page(title, facts, grid, shown):
    style = _asset("report.css")
    script = "\n".join(_asset(name) for name in SCRIPTS)
    # only what is in this file may be run, shown or fetched
    policy = (
        f"default-src 'none'; style-src {source_hash(style)}; script-src {source_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    links = [element("li", element("a", section.title, href=f"#{section.identifier}")) for section in shown]
    bodies = [
        element(
            "section",
            element("h2", section.title, id=f"{section.identifier}-heading"),
            section.body,
            id=section.identifier,
            aria_labelledby=f"{section.identifier}-heading",
        )
        for section in shown
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        Markup(f"<style>{style}</style>"),
    )
    body = element(
        "body",
        element("a", "Skip to the report", href="#report", class_="skip"),
        element(
            "header",
            element("h1", title),
            element("button", "Dark", type="button", id="theme", aria_pressed="false", title="Light or dark"),
            lead(facts, grid),
            glance(facts),
        ),
        element("nav", element("ul", *links), aria_label="Sections"),
        element("main", *bodies, id="report", tabindex="-1"),
        element(
            "footer",
            element(
                "p",
                f"Written by latently {_version()}. Rows and factors are numbered from 1, components from 0, "
                "as by the command line. This page is self-contained: it loads nothing and sends nothing.",
            ),
        ),
        Markup(f"<script>{script}</script>"),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


@cache
def _asset(name):
    return files("latently.report").joinpath("assets", name).read_text(encoding="utf-8")


def _version():
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("latently")
    except PackageNotFoundError:  # run from a source tree without installation
        return "(not installed)"
