"""Sphinx configuration: Markdown pages, API from docstrings, gallery. Needs no network."""

import doctest
import re
from contextlib import chdir
from importlib.metadata import version as installed_version
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

project = "latently"
author = "The latently developers"
copyright = "2026, The latently developers"
release = version = installed_version("latently")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_math_renderer = "mathml"  # browsers render it without a script, so no network is needed
html_title = "latently"
html_static_path = ["static"]
html_css_files = ["formulas.css"]
exclude_patterns = ["_build", "templates"]
templates_path = ["templates"]
highlight_language = "python"

autosummary_generate = True  # a page for each name in api.md
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types are in the docstrings
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # attributes that are properties are listed among the members too

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "generated/gallery",
    "backreferences_dir": "generated/backreferences",  # which examples use a class, for its page
    "doc_module": ("latently",),
    "reference_url": {"latently": None},  # names in examples lead to their pages
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
}


def leave_out_scikit_learn(app, what, name, obj, skip, options):
    """Leave out the members that scikit-learn adds to every estimator."""
    module = getattr(obj, "__module__", None) or ""
    if name.endswith("_request") or module.split(".")[0] == "sklearn":
        return True
    return None


# Replacements for what the TeX converter does not know or takes for a letter: in its input and its output.
TEX = {
    r"\\arg\s*\\(max|min)": r"\\operatorname*{arg\1}",
    r"\{aligned\}": "{align*}",
    r"\\[Bb]ig(?=\s*[(\[])": r"\\left",
    r"\\[Bb]ig(?=\s*[)\]])": r"\\right",
    r"\\(ln|log)(?![a-z])\s*(?![(])": r"\\\1\\,",  # the space after the name of a function
}
MATHML = {
    "<mi>&#x0007E;</mi>": "<mo>&#x223C;</mo>",  # \sim
    "<mi>&#x027E8;</mi>": '<mo stretchy="false">&#x27E8;</mo>',  # \langle
    "<mi>&#x027E9;</mi>": '<mo stretchy="false">&#x27E9;</mo>',  # \rangle
}


def formula(node, display):
    """A formula as MathML."""
    text = node.astext()
    for unknown, known in TEX.items():
        text = re.sub(unknown, known, text)
    text = convert(text, display=display)
    for letter, sign in MATHML.items():
        text = text.replace(letter, sign)
    if unknown := re.search(r"\\[A-Za-z]+", text):
        logging.getLogger(__name__).warning("formulas cannot have %s", unknown[0], location=node)
    return text


def write_inline_formula(translator, node):
    translator.body.append(formula(node, "inline"))
    raise nodes.SkipNode


def write_displayed_formula(translator, node):
    translator.body.append(f'<div class="math">{formula(node, "block")}</div>')
    raise nodes.SkipNode


def write_results(app):
    """Write a page for each reproduced table, with its figures, from the folder of reproductions."""
    folder = Path(app.srcdir).parent / "reproductions"
    pages = sorted(
        folder.glob("document_*/results/*.md"), key=lambda path: [document_of(path), *numbered(path.stem)]
    )
    contents = (
        "# Reproduced tables and figures\n\nAll full runs with seed 0: our numbers and the published ones.\n"
    )
    for document in dict.fromkeys(map(document_of, pages)):
        entries = [f"{document}/{page.stem}" for page in pages if document_of(page) == document]
        contents += "\n".join(
            ["", f"## Document {document}", "", "```{toctree}", ":maxdepth: 1", "", *entries, "```", ""]
        )
    write(app, "index", contents)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for picture in sorted(page.parent.glob(f"{page.stem}*.png")):
            owner = max((other.stem for other in pages if picture.stem.startswith(other.stem)), key=len)
            if owner == page.stem:
                text += f"\n![{picture.stem}](../../../../{picture.relative_to(folder.parent).as_posix()})\n"
        write(app, f"{document_of(page)}/{page.stem}", text)


def write_reports(app, exception):
    """Write the reports that their gallery shows, by running the examples of its page."""
    if exception is not None or app.builder.name != "html":
        return
    page = Path(app.srcdir, "report_gallery.md").resolve()
    folder = Path(app.outdir, "reports")
    folder.mkdir(exist_ok=True)
    if all(
        (folder / name).exists() and (folder / name).stat().st_mtime > page.stat().st_mtime
        for name in written(page)
    ):
        return
    with chdir(folder):
        doctest.testfile(str(page), module_relative=False, raise_on_error=True)


def written(page):
    """The names of the reports that the examples of a page write."""
    return re.findall(r'write_report\("([^"]+)"', page.read_text(encoding="utf-8"))


def document_of(page):
    """The number of the document, from reproductions/document_003/results/table-3.5.md."""
    return page.parts[-3].removeprefix("document_")


def numbered(name):
    """Sort key with numbers as integers, so that table 3.10 comes after table 3.9."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def write(app, name, text):
    """Write a page of results, unless it is unchanged, so that it is not rebuilt."""
    path = Path(app.srcdir, "generated", "results", f"{name}.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def setup(app):
    app.connect("builder-inited", write_results)
    app.connect("build-finished", write_reports)
    app.connect("autodoc-skip-member", leave_out_scikit_learn)
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(write_inline_formula, None),
        block_renderers=(write_displayed_formula, None),
    )
