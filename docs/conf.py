"""Sphinx configuration: pages in Markdown, the API from docstrings. Needs no network."""

from importlib.metadata import version as installed_version

project = "latently"
author = "The latently developers"
copyright = "2026, The latently developers"
release = version = installed_version("latently")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "latently"
exclude_patterns = ["_build"]
highlight_language = "python"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings name the types
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # attributes that are properties are listed among the members too


def leave_out_scikit_learn(app, what, name, obj, skip, options):
    """Leave out the members that scikit-learn adds to every estimator."""
    module = getattr(obj, "__module__", None) or ""
    if name.endswith("_request") or module.split(".")[0] == "sklearn":
        return True
    return None


def setup(app):
    app.connect("autodoc-skip-member", leave_out_scikit_learn)
