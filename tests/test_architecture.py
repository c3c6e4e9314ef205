"""Imports point down: estimators -> distributions -> core -> backend, and each large library has its home."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "latently"

FLOOR = {"estimators", "distributions", "core", "backend"}
ESTIMATORS = {"mixture", "factorization", "supervised", "deep", "generate", "rejection"}
MODELS = ESTIMATORS | FLOOR

# package: the packages of latently that it may import besides itself
MAY_IMPORT = {
    "backend": set(),
    "core": {"backend"},
    "distributions": {"core", "backend"},
    "training": {"core", "backend"},
    "estimators": FLOOR,
    "mixture": FLOOR,
    "factorization": FLOOR,
    "supervised": FLOOR | {"mixture"},
    "deep": FLOOR | {"mixture", "training"},
    "generate": FLOOR | {"factorization"},
    "rejection": FLOOR,
    "datasets": set(),
    "metrics": {"core", "backend"},
    "selection": MODELS | {"metrics", "plots"},
    "plots": {"metrics"},
    "report": MODELS | {"plots", "metrics", "selection"},
    "tables": FLOOR | {"selection", "mixture"},
    "cli": MODELS | {"tables", "report", "plots", "metrics", "selection", "datasets", "saved"},
}

# library: (where it may be imported at all, where of these only inside a function)
HOMES = {
    "sklearn": (ESTIMATORS | {"estimators", "selection", "metrics", "datasets", "tables"}, set()),
    "torch": ({"training", "deep", "backend"}, {"backend"}),
    "dask": ({"core.sweep_dask", "core.cluster"}, set()),
    "distributed": ({"core.cluster", "core.partitions"}, set()),
    "matplotlib": ({"plots"}, set()),
}


class Import(NamedTuple):
    name: str  # dotted and absolute; `from a import b` counts as a.b
    line: int
    lazy: bool  # inside a function


def imports(text: str, module: str, is_package: bool = False) -> Iterator[Import]:
    """Every import statement, and import_module with a literal name, in the source text of `module`."""

    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        match node:
            case ast.Import(names=names):
                yield from (Import(alias.name, node.lineno, lazy) for alias in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                parts = module.split(".")
                up = level - 1 if is_package else level
                base = parts[: len(parts) - up] if level else []
                base = ".".join([*base, source] if source else base)
                yield from (Import(f"{base}.{alias.name}", node.lineno, lazy) for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module" | "__import__")
                | ast.Name(id="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield Import(name, node.lineno, lazy)
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    yield from visit(ast.parse(text), lazy=False)


def violations(text: str, module: str, is_package: bool = False) -> list[str]:
    """What is wrong with the imports of one file, one sentence each; `module` is its dotted name."""
    inner = module.removeprefix("latently").lstrip(".")
    package = inner.split(".")[0]
    found = []
    for name, line, lazy in imports(text, module, is_package):
        where = f"{module}, line {line}: {name}"
        parts = name.split(".")
        if parts[0] == "reproductions":
            found.append(f"{where} is not installed with latently")
            continue
        if parts[0] == "latently":
            target = parts[1] if len(parts) > 1 else ""
            if package not in MAY_IMPORT or target == package:  # a module of the root may import anything
                continue
            if target not in MAY_IMPORT[package]:
                found.append(f"{where} is not below {package}")
            elif any(part.startswith("_") for part in parts[2:]):
                found.append(f"{where} is private to {target}")
            continue
        for library, (homes, lazy_homes) in HOMES.items():
            if library not in parts:  # anywhere in the name: array_api_compat.torch loads torch
                continue
            if not {package, inner} & homes:
                found.append(f"{where} does not belong in {package or 'the package root'}")
            elif package in lazy_homes and not lazy:
                found.append(f"{where} must be imported inside a function")
    return found


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def test_imports_point_down() -> None:
    found = [
        sentence
        for module, path in modules()
        for sentence in violations(path.read_text(encoding="utf-8"), module, path.name == "__init__.py")
    ]
    assert not found, "\n".join(found)


def test_every_package_has_a_rule() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages, f"no packages under {SOURCE.name}"
    assert packages <= MAY_IMPORT.keys()


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("latently.backend.linalg", "from latently.core import block"),
        ("latently.core.drivers", "from ..distributions import gaussian"),
        ("latently.core.drivers", "from .. import mixture"),
        ("latently.core.io", "from latently import load"),
        ("latently.core.io", "import latently"),
        ("latently.core.io", "def f():\n    import latently.mixture.mfa"),
        ("latently.core.io", "from importlib import import_module\nimport_module('latently.mixture')"),
        ("latently.distributions.gaussian", "from latently.mixture import MFA"),
        ("latently.estimators.fitting", "from latently.mixture import MFA"),
        ("latently.factorization.nmf", "from latently.mixture.base import MixtureEstimator"),
        ("latently.supervised.mfm", "from latently.mixture._private import something"),
        ("latently.supervised.mfm", "from latently.mixture.base import _something"),
        ("latently.report.page", "from latently.plots import _style"),
        ("latently.distributions.gaussian", "import sklearn"),
        ("latently.core.block", "from sklearn.base import BaseEstimator"),
        ("latently.mixture.mfa", "from latently.plots import history"),
        ("latently.mixture.mfa", "if True:\n    import torch"),
        ("latently.mixture.mfa", "def f():\n    import torch"),
        ("latently.core.sweep", "from array_api_compat import torch"),
        ("latently.core.sweep", "import array_api_compat.torch as xp"),
        ("latently.backend.placement", "import torch"),
        ("latently.core.sweep", "def f():\n    import dask.array"),
        ("latently.core.sweep", "from distributed import Client"),
        ("latently.metrics.scores", "import matplotlib.pyplot as plt"),
        ("latently.plots.history", "from latently.report import write"),
        ("latently.cli.commands", "def f():\n    from reproductions import available"),
    ],
)
def test_checker_finds_a_forbidden_import(module: str, text: str) -> None:
    assert len(violations(text, module)) == 1


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("latently.core.sweep", "from .block import Block\nfrom ..backend import linalg\nimport numpy"),
        ("latently.core.cluster", "import dask\nfrom distributed import Client"),
        ("latently.distributions.gaussian", "from latently.core.block import Block"),
        ("latently.mixture.mfa", "from sklearn.cluster import KMeans\nfrom ..distributions import low_rank"),
        ("latently.supervised.mfm", "from latently.mixture import MFA"),
        ("latently.backend.placement", "def f():\n    import torch"),
        ("latently.deep.vae", "import torch"),
        ("latently.training.loop", "import torch"),
        ("latently.plots.latent", "from latently.plots._style import colours"),
        ("latently.report.page", "from latently.plots import history"),
    ],
)
def test_checker_accepts_an_allowed_import(module: str, text: str) -> None:
    assert violations(text, module) == []


def test_relative_imports_of_a_package_start_at_the_package() -> None:
    assert violations("from .block import Block", "latently.core", is_package=True) == []
    assert violations("from ..mixture import MFA", "latently.core", is_package=True)


def test_root_may_import_every_package_but_no_large_library() -> None:
    assert violations("from .mixture import MFA", "latently", is_package=True) == []
    assert violations("import torch", "latently", is_package=True)


def is_public(name: str) -> bool:
    """Whether latently or a package of it lists the name; whole modules would let private names through."""
    package, _, last = name.rpartition(".")
    if package.count(".") > 1 or not package:
        return False
    module = importlib.import_module(package)
    return last in getattr(module, "__all__", ()) and not inspect.ismodule(getattr(module, last))


def test_reproductions_import_public_names_only() -> None:
    paths = sorted((ROOT / "reproductions").rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}, line {line}: {name} is not public"
        for path in paths
        for name, line, _ in imports(path.read_text(encoding="utf-8"), path.stem)
        if name.split(".")[0] == "latently" and not is_public(name)
    ]
    assert len(paths) > 30
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "name",
    ["latently", "latently.mixture", "latently.plots._style.LINES", "latently.plots.latent.draw_groups"],
)
def test_modules_and_what_they_keep_to_themselves_are_not_public(name: str) -> None:
    assert not is_public(name)
    assert is_public("latently.plots.image_grid") and is_public("latently.load")


def test_import_latently_loads_no_optional_library() -> None:
    program = (
        "import sys, latently, latently.mixture, latently.deep\n"
        "optional = {'torch', 'dask', 'distributed', 'matplotlib', 'rich', 'typer'}\n"
        "print(*sorted(optional & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def public_estimators() -> list[type]:
    """Every estimator class that the packages of models export."""
    packages = [importlib.import_module(f"latently.{name}") for name in sorted(ESTIMATORS)]
    return [getattr(package, name) for package in packages for name in package.__all__]


@pytest.mark.parametrize("cls", public_estimators(), ids=lambda cls: cls.__name__)
def test_estimators_are_shallow(cls: type) -> None:
    """At most four classes of ours in a line of inheritance, and no constructor written by hand."""
    assert longest_line(cls) <= 4, [base.__name__ for base in cls.__mro__]
    assert is_dataclass(cls)  # so that the constructor is made of the fields


def longest_line(cls: type) -> int:
    """Classes of ours from this one to its most distant ancestor."""
    if not cls.__module__.startswith("latently."):
        return 0
    return 1 + max(map(longest_line, cls.__bases__))


@pytest.mark.parametrize("cls", public_estimators(), ids=lambda cls: cls.__name__)
def test_every_parameter_is_documented(cls: type) -> None:
    """Each constructor parameter has an entry in the docstring, where inherited ones are filled in."""
    section = re.search(
        r"^Parameters\n-+\n(.*?)(?=\n\n\S[^\n]*\n-+\n|\Z)", cls.__doc__ or "", re.DOTALL | re.MULTILINE
    )
    assert section is not None
    entries = re.findall(r"^(\S[^\n]*?)(?: :.*)?$", section.group(1), re.MULTILINE)
    documented = {name for entry in entries for name in entry.split(", ")}
    assert {field.name for field in fields(cls) if field.init} == documented  # type: ignore[arg-type]
    assert "{" not in re.sub(r"\{[^{}]*\"[^{}]*\}", "", section.group(1))  # no placeholder was left


def test_what_needs_an_extra_says_which() -> None:
    program = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('pandas', 'matplotlib', 'torch', 'typer'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import numpy as np\n"
        "import latently.deep, latently.selection, latently.mixture, latently.rejection\n"
        "X = np.random.default_rng(0).normal(size=(30, 2))\n"
        "model = latently.mixture.MFA(1, 1).fit(X)\n"
        "def said(attempt):\n"
        "    try:\n"
        "        attempt()\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
        "said(lambda: latently.selection.select(latently.mixture.MFA(), X, {'n_factors': [1]}))\n"
        "said(lambda: __import__('latently.plots'))\n"
        "said(lambda: latently.deep.RBM)\n"
        "print('scored', latently.selection.as_outlier_detector(model).fit(X).score_samples(X).shape)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said = result.stdout.splitlines()
    assert [re.findall(r"latently\[(\w+)\]", line) for line in said[:3]] == [["csv"], ["plots"], ["deep"]]
    assert said[3] == "scored (30,)"
