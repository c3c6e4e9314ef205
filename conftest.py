"""Doctests run in an empty folder, so that the files their examples save do not land in the repository."""

import pytest


@pytest.fixture(autouse=True)
def _empty_folder_for_doctests(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        folder = request.getfixturevalue("tmp_path")
        request.getfixturevalue("monkeypatch").chdir(folder)
