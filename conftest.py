"""Doctests run in an empty folder, so that the files their examples save do not land in the repository."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _empty_folder_for_doctests(request: pytest.FixtureRequest) -> Iterator[None]:
    if isinstance(request.node, pytest.DoctestItem):
        folder = request.getfixturevalue("tmp_path")
        request.getfixturevalue("monkeypatch").chdir(folder)
    yield
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:  # figures that examples leave open add up
        pyplot.close("all")
