"""The scripts of the gallery run without a warning, and each ends in a picture.

The documentation runs them as well, and a script that fails fails its build.
"""

import runpy
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot as plt

SCRIPTS = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))


def test_there_are_scripts_and_the_gallery_shows_all():
    assert len(SCRIPTS) >= 6
    # sphinx-gallery runs, and so draws, only what is named like this
    assert all(script.name.startswith("plot_") for script in SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_ends_in_a_picture(script, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    plt.close("all")
    runpy.run_path(str(script), run_name="__main__")
    figures = [plt.figure(number) for number in plt.get_fignums()]
    assert figures
    for figure in figures:
        assert any(ax.has_data() for ax in figure.axes)
        figure.savefig("picture.png")
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]  # scripts leave nothing behind
    plt.close("all")
