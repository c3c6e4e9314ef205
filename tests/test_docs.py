"""The pages: nothing public is left out, nothing written about models or links is untrue."""

import doctest
import importlib
import io
import pkgutil
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import get_tags

import latently
from latently.cli import main
from latently.deep import DBN, RBM
from latently.factorization import NMF, PCA
from latently.generate import CodebookGenerator, SourceDensity
from latently.mixture import MFA, GaussianMixture
from latently.supervised import PerClass

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
ESTIMATORS = ("mixture", "deep", "supervised", "factorization", "generate")


def text_of(page):
    return (DOCS / page).read_text(encoding="utf-8")


# -- the reference -----------------------------------------------------------------------------------


def public_names():
    """Names in `__all__` of all packages, dotted."""
    for module in pkgutil.iter_modules(latently.__path__):
        if not module.name.startswith("_"):
            package = importlib.import_module(f"latently.{module.name}")
            yield from (f"{module.name}.{name}" for name in getattr(package, "__all__", []))
    yield "load"


def documented_names():
    """Names that get a page of their own from api.md, and those that its text mentions, dotted."""
    for section in text_of("api.md").split("\n## "):
        module = re.search(r"currentmodule:: latently\.?(\S*)", section)
        if module is None:
            continue
        listed = re.findall(r"^   (\w[\w.]*)$", section, re.M)
        mentioned = re.findall(r"`(\w+)`", section)
        yield from (f"{module[1]}.{name}".lstrip(".") for name in listed + mentioned)


def test_every_public_name_is_in_the_reference():
    names = set(public_names())
    assert {"mixture.MFA", "plots.image_grid", "load"} <= names
    assert names - set(documented_names()) == set()


def test_every_name_in_the_reference_exists():
    for name in documented_names():
        package, _, rest = f"latently.{name}".rpartition(".")
        assert hasattr(importlib.import_module(package), rest), name


# -- pages and links -----------------------------------------------------------------------------------


def test_every_page_is_in_the_contents():
    entries = set()
    for contents in re.findall(r"```\{toctree\}\n(.*?)```", text_of("index.md"), re.S):
        for entry in re.findall(r"^[a-z][\w/*]*$", contents, re.M):
            if entry.startswith("generated/"):
                continue  # there only after the documentation was built
            found = {page.stem for page in DOCS.glob(f"{entry}.md")}
            assert found, f"the contents name {entry!r}, which does not exist"
            assert not found & entries, f"{entry!r} is there twice"
            entries |= found
    assert {page.stem for page in PAGES} - entries == {"index"}


@pytest.mark.parametrize("drawing", ["which_model.svg", "architecture.svg"])
def test_drawings_lead_to_pages_and_name_packages(drawing):
    text = text_of(f"images/{drawing}")
    for target in re.findall(r'href="([^"]+)\.html"', text):
        page, _, name = target.partition("generated/reference/latently.")
        if name:
            assert name in set(documented_names())
        else:
            assert (DOCS / f"{page}.md").is_file(), f"{drawing} leads to {page}, which does not exist"
    if drawing == "architecture.svg":
        drawn = set(re.findall(r'class="name"[^>]*>(\w+)<', text))
        packages = {module.name for module in pkgutil.iter_modules(latently.__path__)}
        assert drawn == {name for name in packages - {"saved"} if not name.startswith("_")}


def model_pages():
    """Pages of models, by the contents, with the one on generators, which is listed elsewhere."""
    (listed,) = re.findall(r":caption: Models\n.*?\n\n(.*?)```", text_of("index.md"), re.S)
    return sorted({*listed.split(), "generate"} - {"robust", "rotations"})  # those are about options


@pytest.mark.parametrize("page", model_pages())
def test_pages_of_models_begin_with_their_use(page):
    text = text_of(f"{page}.md")
    sections = re.findall(r"^## (.*)$", text, re.M)
    assert sections[0] == "When to use it"
    assert page == "generate" or sections[1] == "Example"
    assert "$$" not in text[: text.index("```python")] or page == "generate"


def test_pictures_and_links_of_the_gallery_have_scripts():
    named = {
        name
        for page in PAGES
        for name in re.findall(
            r"generated/gallery/(?:images/sphx_glr_)?plot_([a-z_]+?)(?:_\d+\.png)?\)",
            page.read_text(encoding="utf-8"),
        )
    }
    assert len(named) > 8
    assert named <= {script.stem.removeprefix("plot_") for script in (DOCS.parent / "examples").glob("*.py")}


def test_pictures_of_the_gallery_of_reports_lead_to_reports():
    text = text_of("report_gallery.md")
    pictures = re.findall(r"```\{image\} (\S+)\n.*?:target: reports/(\S+)\n", text, re.S)
    assert [target for _, target in pictures] == re.findall(r'write_report\("([^"]+)"', text)
    assert len(pictures) >= 4
    for picture, _ in pictures:
        assert 0 < (DOCS / picture).stat().st_size < 60_000


# -- which model? ----------------------------------------------------------------------------------------

METHODS = {
    "density": "score_samples",
    "clusters": "predict",
    "factors": "transform",
    "sampling": "sample",
    "imputation": "impute",
    "streams": "partial_fit",
}
PARTS = {  # of estimators that are made of others, or refuse most rows
    "RBM": RBM(visible="gaussian", max_iter=1),
    "DBN": DBN(visible="gaussian", max_iter=1),
    "PerClass": PerClass(MFA(1, 1)),
    "SourceDensity": SourceDensity(PCA(2), GaussianMixture(1)),
    "CodebookGenerator": CodebookGenerator(NMF(2, random_state=0), n_groups=1, random_state=0),
}


def models():
    """All estimators by name."""
    homes = [importlib.import_module(f"latently.{package}") for package in ESTIMATORS]
    return {name: PARTS.get(name) or getattr(home, name)() for home in homes for name in home.__all__}


def abilities():
    """The table of which_model.md: for each model what it says under each heading."""
    lines = text_of("which_model.md").split("## What each can do")[1].split("\n\n")[1].splitlines()
    (_, *headings), _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: dict(zip(headings, cells, strict=True)) for name, *cells in rows}


@pytest.mark.parametrize("name", models())
def test_models_can_do_what_the_table_says(name, tmp_path, monkeypatch):
    model, said = models()[name], abilities()[name]
    for heading, method in METHODS.items():
        if heading == "clusters" and name in ("FactorAnalysis", "PPCA"):
            assert not said[heading]  # they have one component, which they do predict
            continue
        assert bool(said[heading]) == hasattr(model, method), heading
    assert (said["clusters"] == "classes") == (get_tags(model).estimator_type == "classifier")
    assert bool(said["missing entries"]) == get_tags(model).input_tags.allow_nan

    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).poisson(5.0, size=(30, 3)).astype(float)
    np.save("rows.npy", X)
    y = np.repeat([0, 1], 15) if said["clusters"] == "classes" else None
    if said["files"]:
        model.fit("rows.npy", y)
    else:
        with pytest.raises((ValueError, TypeError)):
            model.fit("rows.npy", y)


def test_all_models_are_in_the_table():
    assert abilities().keys() == models().keys()


# -- the quick start on the command line --------------------------------------------------------------------


def test_commands_of_the_quick_start_print_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```console\n(.*?)^```", text_of("quickstart.md"), re.M | re.S)
    commands = [example.partition("\n") for example in re.split(r"^\$ ", block, flags=re.M)[1:]]
    assert len(commands) == 3
    for command, _, expected in commands:
        program, *arguments = shlex.split(command)
        shown = io.StringIO()
        with redirect_stdout(shown), redirect_stderr(shown):
            code = main(arguments)
        assert (program, code) == ("latently", 0), shown.getvalue()
        assert doctest.OutputChecker().check_output(expected, shown.getvalue(), doctest.ELLIPSIS), (
            shown.getvalue()
        )
